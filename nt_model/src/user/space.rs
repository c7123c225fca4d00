//! User address spaces in other Linux processes.
//!
//! Such a process has an agent, a thread that maps what it is told to. Addresses are picked here, from a range that is
//! reserved in both processes: in this one nothing is ever mapped there, so that the table of regions, and addresses
//! in records, mean the same as for a process that lives here. Its memory is read and written by the host's calls for
//! that; a page that it may only read cannot be written so.
#![expect(unsafe_code, reason = "process_vm_readv and process_vm_writev have no safe wrappers")]

use std::fmt::Debug;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::cpu;
use crate::memory::{Handed, PAGE_SIZE, Rights, host};
use crate::user::guard::{AccessViolation, try_user};
use crate::user::process::{MapError, UserMapping};

/// The process is gone, or does not answer and is ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the process is gone")]
pub struct Gone;

/// What changes the address space of another Linux process. Each function returns when it is done there, or the process
/// cannot run any more.
pub trait Agent: Send + Sync + Debug {
    /// Maps pages one behind another from `at` on, replacing what is there.
    ///
    /// # Errors
    /// [`Gone`].
    fn show(&self, at: usize, pages: Vec<Handed>, rights: Rights) -> Result<(), Gone>;

    /// Takes away what is mapped, and keeps the addresses.
    ///
    /// # Errors
    /// [`Gone`].
    fn clear(&self, at: usize, bytes: usize) -> Result<(), Gone>;

    /// Changes what may be done with a mapping.
    ///
    /// # Errors
    /// [`Gone`].
    fn protect(&self, at: usize, bytes: usize, rights: Rights) -> Result<(), Gone>;

    /// Ends the process: it sees what it must not see, and cannot be told otherwise.
    fn end(&self);
}

/// Addresses that are reserved for a process in another Linux process, as long as this lives.
#[derive(Debug)]
pub struct Window {
    start: usize,
    bytes: usize,
}

impl Window {
    /// Reserves addresses here. The other process is asked to reserve the same.
    ///
    /// # Errors
    /// What the host reports.
    pub fn reserve(bytes: usize) -> std::io::Result<Self> {
        host::reserve(bytes).map(|start| Self { start, bytes })
    }

    /// Reserves the addresses that another process has picked.
    ///
    /// # Errors
    /// What the host reports; `AddrInUse` where something is there.
    pub fn reserve_at(start: usize, bytes: usize) -> std::io::Result<Self> {
        host::reserve_at(start, bytes).map(|()| Self { start, bytes })
    }

    /// The first address.
    pub fn start(&self) -> usize {
        self.start
    }

    /// How many bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The offset of a range of whole pages, if it lies in the window.
    fn holds(&self, at: usize, bytes: usize) -> bool {
        let offset = at.checked_sub(self.start).filter(|offset| offset.is_multiple_of(PAGE_SIZE));
        bytes.is_multiple_of(PAGE_SIZE)
            && offset.and_then(|offset| offset.checked_add(bytes)).is_some_and(|end| end <= self.bytes)
    }

    /// Maps pages of a file that another process has handed over.
    ///
    /// # Errors
    /// `InvalidInput` for addresses outside; what the host reports.
    pub fn show(&self, at: usize, handed: &Handed, rights: Rights) -> std::io::Result<()> {
        if !self.holds(at, handed.pages * PAGE_SIZE) {
            return Err(std::io::ErrorKind::InvalidInput.into());
        }
        host::map_pages_at(at, &handed.file, handed.first, handed.pages, rights)
    }

    /// Takes away what is mapped.
    ///
    /// # Errors
    /// As [`show`](Self::show).
    pub fn clear(&self, at: usize, bytes: usize) -> std::io::Result<()> {
        if self.holds(at, bytes) { host::clear(at, bytes) } else { Err(std::io::ErrorKind::InvalidInput.into()) }
    }

    /// Changes what may be done with what is mapped.
    ///
    /// # Errors
    /// As [`show`](Self::show).
    pub fn protect(&self, at: usize, bytes: usize, rights: Rights) -> std::io::Result<()> {
        if self.holds(at, bytes) {
            host::protect(at, bytes, rights)
        } else {
            Err(std::io::ErrorKind::InvalidInput.into())
        }
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        host::unmap(self.start, self.bytes);
    }
}

/// The address space of a process that is another Linux process.
#[derive(Debug)]
pub struct Separate {
    /// Its id for the host. It must not be used again for another process as long as this lives: the owner keeps the
    /// process unreaped.
    pub pid: i32,
    /// Where its mappings are.
    pub window: Window,
    /// What changes them.
    pub agent: Box<dyn Agent>,
    /// Bytes of the window that were handed out. None is handed out twice, so that a stale address finds nothing.
    pub used: AtomicUsize,
}

impl Separate {
    /// Addresses that were never used.
    fn take(&self, bytes: usize) -> Result<usize, MapError> {
        let all = self.window.bytes;
        let next = |used: usize| used.checked_add(bytes).filter(|end| *end <= all);
        let offset = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        offset.map(|offset| self.window.start + offset).map_err(|_| MapError::Host)
    }

    /// What the process needs to map these pages.
    pub(super) fn hand_over(mapping: &UserMapping) -> Result<Vec<Handed>, MapError> {
        mapping.object.hand_over(mapping.first, mapping.pages, mapping.rights).map_err(|_| MapError::Host)
    }

    /// Shows pages at addresses that were never used. Returns the first.
    pub(super) fn map(&self, mapping: &UserMapping) -> Result<usize, MapError> {
        let pages = Self::hand_over(mapping)?;
        let start = self.take(mapping.pages * PAGE_SIZE)?;
        self.agent.show(start, pages, mapping.rights).map(|()| start).map_err(|Gone| MapError::Host)
    }
}

/// Copies from the memory of the process that the calling thread is in.
///
/// # Errors
/// [`AccessViolation`].
pub fn read_user(at: usize, to: &mut [u8]) -> Result<(), AccessViolation> {
    match cpu::with(|cpu| cpu.separate.get()) {
        0 => {
            let from: *const u8 = core::ptr::with_exposed_provenance(at);
            // SAFETY: `to` has that many bytes; a bad source is an access violation, which the guard returns. Bytes
            // that another thread changes meanwhile are torn, which is what a copy of user memory is.
            try_user(|| unsafe { from.copy_to_nonoverlapping(to.as_mut_ptr(), to.len()) })
        }
        pid => {
            let here = libc::iovec { iov_base: to.as_mut_ptr().cast(), iov_len: to.len() };
            let there = libc::iovec { iov_base: core::ptr::with_exposed_provenance_mut(at), iov_len: to.len() };
            // SAFETY: one range here, which `to` owns; whatever the other process has at `at`, or nothing.
            let copied = unsafe { libc::process_vm_readv(pid, &raw const here, 1, &raw const there, 1, 0) };
            whole(copied, at, to.len(), false)
        }
    }
}

/// Copies into the memory of the process that the calling thread is in.
///
/// # Errors
/// [`AccessViolation`]; bytes before the address in it may have been stored.
pub fn write_user(at: usize, from: &[u8]) -> Result<(), AccessViolation> {
    match cpu::with(|cpu| cpu.separate.get()) {
        0 => {
            let to: *mut u8 = core::ptr::with_exposed_provenance_mut(at);
            // SAFETY: as in `read_user`, the other way round.
            try_user(|| unsafe { from.as_ptr().copy_to_nonoverlapping(to, from.len()) })
        }
        pid => {
            let here = libc::iovec { iov_base: from.as_ptr().cast_mut().cast(), iov_len: from.len() };
            let there = libc::iovec { iov_base: core::ptr::with_exposed_provenance_mut(at), iov_len: from.len() };
            // SAFETY: as in `read_user`; the range here is only read.
            let copied = unsafe { libc::process_vm_writev(pid, &raw const here, 1, &raw const there, 1, 0) };
            whole(copied, at, from.len(), true)
        }
    }
}

/// A copy that stopped early met something at the address where it stopped.
fn whole(copied: isize, at: usize, wanted: usize, write: bool) -> Result<(), AccessViolation> {
    let copied = usize::try_from(copied).unwrap_or(0);
    if copied == wanted { Ok(()) } else { Err(AccessViolation { address: at.wrapping_add(copied), write }) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{CacheType, PageKind};
    use crate::{Kernel, MapError};

    /// An agent that maps nothing, and lives as long as its process.
    #[derive(Debug)]
    struct Idle;

    impl Agent for Idle {
        fn end(&self) {}

        fn show(&self, _at: usize, _pages: Vec<Handed>, _rights: Rights) -> Result<(), Gone> {
            Ok(())
        }

        fn clear(&self, _at: usize, _bytes: usize) -> Result<(), Gone> {
            Err(Gone)
        }

        fn protect(&self, _at: usize, _bytes: usize, _rights: Rights) -> Result<(), Gone> {
            Ok(())
        }
    }

    #[test]
    fn a_window_maps_inside_alone() {
        let window = Window::reserve(4 * PAGE_SIZE).expect("addresses");
        let handed = || Handed { file: host::memfd(2).expect("a file"), first: 0, pages: 2 };
        let start = window.start();
        assert!(Window::reserve_at(start, PAGE_SIZE).is_err(), "it is taken");
        assert!(window.show(start + 2 * PAGE_SIZE, &handed(), Rights::ReadWrite).is_ok());
        for at in [start + 3 * PAGE_SIZE, start - PAGE_SIZE, start + 8, usize::MAX - 4095] {
            assert!(window.show(at, &handed(), Rights::ReadWrite).is_err(), "{at:#x}");
            assert!(window.clear(at, 2 * PAGE_SIZE).is_err(), "{at:#x}");
        }
    }

    /// This process stands for the other one.
    #[test]
    fn memory_of_another_process_is_read_and_written_by_its_id() {
        let kernel = Kernel::collecting();
        let process = kernel.create_process("other");
        let window = Window::reserve(4 * PAGE_SIZE).expect("addresses");
        let start = window.start();
        let pid = i32::try_from(std::process::id()).expect("an id");
        let used = AtomicUsize::new(0);
        assert!(process.set_separate(Separate { pid, window, agent: Box::new(Idle), used }));
        let _entered = kernel.enter();
        let _inside = kernel.enter_process(&process);
        let (mut word, mut seen) = (0x1234_5678_u32, [0; 4]);
        let at = (&raw mut word).expose_provenance();
        assert_eq!(read_user(at, &mut seen), Ok(()));
        assert_eq!(u32::from_le_bytes(seen), 0x1234_5678);
        assert_eq!(write_user(at, &[1]), Ok(()));
        assert_eq!(read_user(start, &mut seen), Err(AccessViolation { address: start, write: false }));
        assert_eq!(write_user(start, &[1]), Err(AccessViolation { address: start, write: true }));
        // Addresses are handed out once, also where the process is gone.
        let object = kernel.allocate_pages(2, PageKind::System, 0).expect("pages");
        let map = |first, pages| {
            let (object, rights, cache) = (object.clone(), Rights::ReadWrite, CacheType::Cached);
            kernel.map_user(&process, &UserMapping { object, first, pages, rights, cache }, None)
        };
        assert_eq!(map(0, 1), Err(MapError::Host), "a part of a file is not handed over");
        let first = map(0, 2).expect("mapped");
        assert!(kernel.unmap_user(&process, first).is_ok());
        assert_eq!(map(0, 2), Ok(first + 2 * PAGE_SIZE));
        assert_eq!(map(0, 2), Err(MapError::Host), "the window is full");
    }
}
