//! Kernel addresses that a driver may use during one call and never after.
//!
//! A window is one page of kernel address space. It shows a page of fence values while the call runs. Afterwards an
//! image finds nothing there (an access is reported by nt_model); a native driver, whose traps end the process, finds a
//! page of a pattern, and a store into it is found when the window is used or closed the next time.
//!
//! Windows are used in turn, so that an address is different at each call.
#![expect(unsafe_code, reason = "a page of address space is mapped over at will")]

use nt_model::{PAGE_SIZE, PageObject, Rights};

use crate::memory::fence::place::ObjectPage;
use crate::port::miniport::Miniport;
use crate::port::rules::fence::NF_ADDRESS_CACHED;
use crate::port::sync::{Lock, Rank};

/// Windows of an adapter: several of the largest batches at once.
const COUNT: usize = 256;
/// What a closed window holds for a native driver.
const PATTERN: u64 = 0xDEAD_FE9C_E0DE_AD00;

/// The windows of one adapter.
#[derive(Debug)]
pub(crate) struct Windows {
    state: Lock<State>,
}

#[derive(Debug)]
struct State {
    base: usize,
    next: usize,
    open: [bool; COUNT],
    /// Closed ones hold the pattern, as opposed to nothing.
    patterned: bool,
    used: [bool; COUNT],
}

impl Default for Windows {
    fn default() -> Self {
        Self::new()
    }
}

impl Windows {
    /// That of an adapter.
    pub(crate) fn of(adapter: &Miniport) -> &Self {
        adapter.extension()
    }

    fn new() -> Self {
        let state = State { base: 0, next: 0, open: [false; COUNT], patterned: false, used: [false; COUNT] };
        Self { state: Lock::new(Rank::Leaf, state) }
    }

    /// Shows `page` for one call; its address. `None`: the host has no address space, or all windows are open.
    ///
    /// IRQL: any.
    pub(crate) fn open(&self, adapter: &Miniport, (object, index): ObjectPage, write: bool) -> Option<usize> {
        let (address, broken) = {
            let mut state = self.state.lock();
            if state.base == 0 {
                state.base = reserve()?;
                state.patterned = adapter.driver().image().is_none();
            }
            let slot = (0..COUNT).map(|at| (state.next + at) % COUNT).find(|slot| !state.open[*slot])?;
            state.next = slot + 1;
            let address = state.base + slot * PAGE_SIZE;
            let broken = state.patterned && state.used[slot] && is_written(address);
            state.open[slot] = true;
            state.used[slot] = true;
            show(address, &object, index, write);
            (address, broken)
        };
        judge(adapter, broken, address);
        Some(address)
    }

    /// The call is over.
    pub(crate) fn close(&self, address: usize) {
        let mut state = self.state.lock();
        let slot = address.wrapping_sub(state.base) / PAGE_SIZE;
        if slot < COUNT {
            state.open[slot] = false;
            hide(state.base + slot * PAGE_SIZE, state.patterned);
        }
    }

    /// Looks at every closed window: for the end of an adapter, and for tests.
    pub(crate) fn inspect(&self, adapter: &Miniport) {
        let broken = {
            let mut state = self.state.lock();
            let mut broken = None;
            for slot in 0..COUNT {
                let address = state.base + slot * PAGE_SIZE;
                if state.patterned && state.used[slot] && !state.open[slot] && is_written(address) {
                    broken = Some(address);
                    hide(address, true);
                }
                state.used[slot] &= state.patterned;
            }
            broken
        };
        judge(adapter, broken.is_some(), broken.unwrap_or(0));
    }
}

impl Drop for Windows {
    fn drop(&mut self) {
        let base = self.state.lock().base;
        if base != 0 {
            // SAFETY: the range was reserved by `reserve` and nothing else knows it.
            unsafe { libc::munmap(core::ptr::with_exposed_provenance_mut(base), COUNT * PAGE_SIZE) };
        }
    }
}

fn judge(adapter: &Miniport, broken: bool, address: usize) {
    adapter.rules().check(&NF_ADDRESS_CACHED, !broken, || {
        format!("a store to {address:#x}, which was a fence value during an earlier call")
    });
}

fn reserve() -> Option<usize> {
    // SAFETY: an anonymous mapping at an address that the host chooses.
    let at = unsafe {
        libc::mmap(
            core::ptr::null_mut(),
            COUNT * PAGE_SIZE,
            libc::PROT_NONE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    (at != libc::MAP_FAILED).then(|| at.expose_provenance())
}

fn show(address: usize, object: &PageObject, index: usize, write: bool) {
    let rights = if write { Rights::ReadWrite } else { Rights::Read };
    // The page of address space is a window's; what used it before was told not to keep the address.
    let _ = object.map_over(address, index, 1, rights);
}

fn hide(address: usize, patterned: bool) {
    let rights = if patterned { libc::PROT_READ | libc::PROT_WRITE } else { libc::PROT_NONE };
    let at: *mut u64 = core::ptr::with_exposed_provenance_mut(address);
    // SAFETY: as in `show`.
    unsafe {
        libc::mmap(at.cast(), PAGE_SIZE, rights, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED, -1, 0)
    };
    if patterned {
        for word in 0..PAGE_SIZE / 8 {
            crate::port::raw::store(address + word * 8, PATTERN);
        }
    }
}

fn is_written(address: usize) -> bool {
    (0..PAGE_SIZE / 8).any(|word| crate::port::raw::load(address + word * 8) != PATTERN)
}
