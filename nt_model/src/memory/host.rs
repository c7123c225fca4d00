//! The host's memory calls: memfds and mappings of them, each as one safe step.
//!
//! Every address range that this module hands out was mapped by the operating system for this crate alone, so replacing
//! or unmapping it cannot take memory from anybody else. References into it are made elsewhere, under the rules there.
#![expect(unsafe_code, reason = "mmap, mprotect, munmap and memfd_create have no safe wrappers")]

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Once;

use libc::{c_int, c_void};

/// Size of a page, in bytes.
pub const PAGE_SIZE: usize = 4096;

/// What code may do with a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rights {
    /// Nothing: every access traps.
    None,
    /// Load.
    Read,
    /// Load and store.
    ReadWrite,
    /// Load and execute.
    ReadExecute,
}

impl Rights {
    fn protection(self) -> c_int {
        match self {
            Self::None => libc::PROT_NONE,
            Self::Read => libc::PROT_READ,
            Self::ReadWrite => libc::PROT_READ | libc::PROT_WRITE,
            Self::ReadExecute => libc::PROT_READ | libc::PROT_EXEC,
        }
    }
}

/// A memfd of `pages` zeroed pages that can be sealed.
pub(crate) fn memfd(pages: usize) -> io::Result<OwnedFd> {
    raise_descriptor_limit();
    // SAFETY: the name is a C string; the call returns a new descriptor or -1.
    let fd = unsafe { libc::memfd_create(c"nt_model".as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: `fd` is open and nobody else's.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    let length = libc::off_t::try_from(pages * PAGE_SIZE).map_err(|_| io::ErrorKind::InvalidInput)?;
    // SAFETY: an open descriptor and a length.
    if unsafe { libc::ftruncate(fd.as_raw_fd(), length) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(fd)
}

/// One descriptor per page object: a machine can have thousands.
fn raise_descriptor_limit() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: fills the record.
        if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } == 0 {
            limit.rlim_cur = limit.rlim_max;
            // SAFETY: reads the record. Failure leaves the old limit, which is enough for small machines.
            let _ = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) };
        }
    });
}

fn map(hint: usize, bytes: usize, rights: Rights, flags: c_int, fd: RawFd, offset: usize) -> io::Result<usize> {
    let offset = libc::off_t::try_from(offset).map_err(|_| io::ErrorKind::InvalidInput)?;
    let hint = core::ptr::with_exposed_provenance_mut(hint);
    // SAFETY: without MAP_FIXED the call cannot touch existing mappings; the callers that pass MAP_FIXED name ranges
    // that `reserve` gave this crate.
    let at = unsafe { libc::mmap(hint, bytes, rights.protection(), flags, fd, offset) };
    if at == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(at.expose_provenance()) }
}

/// Reserves address space: every access traps until something is mapped into it.
pub(crate) fn reserve(bytes: usize) -> io::Result<usize> {
    map(0, bytes, Rights::None, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE, -1, 0)
}

/// Reserves address space at `at` exactly; fails when anything is there.
pub(crate) fn reserve_at(at: usize, bytes: usize) -> io::Result<()> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE;
    let got = map(at, bytes, Rights::None, flags, -1, 0)?;
    if got == at {
        return Ok(());
    }
    // Kernels before 4.17 take the address as a hint.
    unmap(got, bytes);
    Err(io::ErrorKind::AddrInUse.into())
}

/// Maps `pages` pages of `fd`, from page `first` on, at an address of the system's choice.
pub(crate) fn map_pages(fd: &OwnedFd, first: usize, pages: usize, rights: Rights) -> io::Result<usize> {
    map(0, pages * PAGE_SIZE, rights, libc::MAP_SHARED, fd.as_raw_fd(), first * PAGE_SIZE)
}

/// Maps pages of `fd` over part of a range that this module handed out. The old mapping is replaced in one step: a
/// concurrent access sees the old page or the new one, never none.
pub(crate) fn map_pages_at(at: usize, fd: &OwnedFd, first: usize, pages: usize, rights: Rights) -> io::Result<()> {
    let flags = libc::MAP_SHARED | libc::MAP_FIXED;
    map(at, pages * PAGE_SIZE, rights, flags, fd.as_raw_fd(), first * PAGE_SIZE).map(drop)
}

/// Makes part of a range that this module handed out inaccessible again, keeping the address space.
pub(crate) fn clear(at: usize, bytes: usize) -> io::Result<()> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
    map(at, bytes, Rights::None, flags, -1, 0).map(drop)
}

/// Fresh private memory within a reserved range.
pub(crate) fn commit(at: usize, bytes: usize, rights: Rights) -> io::Result<()> {
    map(at, bytes, rights, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED, -1, 0).map(drop)
}

/// Changes what may be done with part of a range that this module handed out.
pub(crate) fn protect(at: usize, bytes: usize, rights: Rights) -> io::Result<()> {
    let address = core::ptr::with_exposed_provenance_mut(at);
    // SAFETY: the range is this crate's; taking rights away makes later accesses trap, which is reported.
    let result = unsafe { libc::mprotect(address, bytes, rights.protection()) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Gives a range that this module handed out back to the system.
pub(crate) fn unmap(at: usize, bytes: usize) {
    if bytes == 0 {
        return;
    }
    let address = core::ptr::with_exposed_provenance_mut(at);
    // SAFETY: the range is this crate's, and its owner gives it up with this call.
    let result = unsafe { libc::munmap(address, bytes) };
    debug_assert_eq!(result, 0, "munmap of {at:#x}");
}

/// Copies `bytes` into mapped, writable memory at `at`.
pub(crate) fn write(at: usize, bytes: &[u8]) {
    let to: *mut u8 = core::ptr::with_exposed_provenance_mut(at);
    // SAFETY: callers pass ranges that they have mapped writable and that nobody else uses at the time, or that are
    // shared with driver code, for which a racing byte copy is what the hardware would do too.
    unsafe { to.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
}

/// Copies from mapped, readable memory at `at`.
pub(crate) fn read(at: usize, bytes: &mut [u8]) {
    let from: *const u8 = core::ptr::with_exposed_provenance(at);
    // SAFETY: as `write`.
    unsafe { from.copy_to_nonoverlapping(bytes.as_mut_ptr(), bytes.len()) };
}

/// Fills mapped, writable memory.
pub(crate) fn fill(at: usize, value: u8, bytes: usize) {
    let to: *mut u8 = core::ptr::with_exposed_provenance_mut(at);
    // SAFETY: as `write`.
    unsafe { to.write_bytes(value, bytes) };
}

/// Whether `bytes` of mapped memory all have `value`; the offset of the first that has not.
pub(crate) fn first_other(at: usize, value: u8, bytes: usize) -> Option<usize> {
    let from: *const u8 = core::ptr::with_exposed_provenance(at);
    // SAFETY: callers pass mapped, readable memory that no driver should be writing; one that does is what is looked
    // for.
    let seen = unsafe { std::slice::from_raw_parts(from, bytes) };
    seen.iter().position(|byte| *byte != value)
}

/// Seals a memfd that another process gets: its size stays. `read_only`: no process maps it writable any more, while
/// mappings that exist keep working. A seal that is there already is no error.
pub(crate) fn seal(fd: &OwnedFd, read_only: bool) -> io::Result<()> {
    // The other process has the file, and could add seals of its own: what others get next would be sealed as well.
    let all = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
    let seals = if read_only { all | libc::F_SEAL_FUTURE_WRITE } else { all };
    // SAFETY: an open descriptor.
    let is_sealed = || unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GET_SEALS) } & seals == seals;
    if is_sealed() {
        return Ok(());
    }
    // SAFETY: an open descriptor and flags.
    let result = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_ADD_SEALS, seals) };
    let error = io::Error::last_os_error();
    // Another thread may have been first.
    if result == 0 || is_sealed() { Ok(()) } else { Err(error) }
}

/// Maps the writable, shared memory at `from` a second time, over part of a range that this module handed out. A seal
/// against new mappings does not apply to it.
pub(crate) fn duplicate_at(from: usize, at: usize, bytes: usize) -> io::Result<()> {
    let from = core::ptr::with_exposed_provenance_mut::<c_void>(from);
    let to = core::ptr::with_exposed_provenance_mut::<c_void>(at);
    // SAFETY: an old size of 0 leaves the old mapping of shared memory as it is; the new place is this crate's.
    let got = unsafe { libc::mremap(from, 0, bytes, libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED, to) };
    if got == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// The same file once more, opened for reading alone.
pub(crate) fn reopen_to_read(fd: &OwnedFd) -> io::Result<OwnedFd> {
    std::fs::File::open(format!("/proc/self/fd/{}", fd.as_raw_fd())).map(OwnedFd::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_seen_through_two_mappings() {
        let Ok(fd) = memfd(2) else { panic!("memfd") };
        let first = map_pages(&fd, 0, 2, Rights::ReadWrite).unwrap_or_default();
        let second = map_pages(&fd, 1, 1, Rights::Read).unwrap_or_default();
        write(first + PAGE_SIZE, &[1, 2, 3]);
        let mut seen = [0; 3];
        read(second, &mut seen);
        assert_eq!(seen, [1, 2, 3]);
        unmap(first, 2 * PAGE_SIZE);
        unmap(second, PAGE_SIZE);
    }

    #[test]
    fn a_sealed_memfd_has_no_new_writable_mapping() {
        let Ok(fd) = memfd(1) else { panic!("memfd") };
        let kernel = map_pages(&fd, 0, 1, Rights::ReadWrite).unwrap_or_default();
        assert!(seal(&fd, true).is_ok());
        assert!(map_pages(&fd, 0, 1, Rights::ReadWrite).is_err());
        assert!(seal(&fd, true).is_ok(), "as it is");
        write(kernel, &[7]);
        unmap(kernel, PAGE_SIZE);
    }
}
