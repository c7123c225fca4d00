//! The kernel's exports as images import them: thin win64 wrappers over the services of [`Machine`](crate::Machine).
//!
//! One file per family. A wrapper turns pointers into references, NT's encodings into ours, and nothing else.

pub(crate) mod bug_check;
pub(crate) mod chkstk;
pub(crate) mod crt;
pub(crate) mod data;
pub(crate) mod debug;
pub(crate) mod etw;
pub(crate) mod interrupt;
pub(crate) mod io;
pub(crate) mod lists;
pub(crate) mod lookaside;
pub(crate) mod memory;
pub(crate) mod pool;
pub(crate) mod process;
pub(crate) mod registry;
pub(crate) mod rtl;
pub(crate) mod sync;
pub(crate) mod system;
pub(crate) mod wait;

#[cfg(test)]
mod tests;

use crate::shim::{In, ShimEntry};

/// Every table of the kernel's exports.
pub(crate) static TABLES: &[&[ShimEntry]] = &[
    bug_check::BUG_CHECK,
    chkstk::CHKSTK,
    crt::CRT,
    crt::CRT_ALIASES,
    debug::DEBUG,
    debug::DEBUG_VARIADIC,
    etw::ETW,
    interrupt::INTERRUPT,
    io::IO,
    lists::LISTS,
    lookaside::LOOKASIDE,
    memory::MEMORY,
    pool::POOL,
    process::PROCESS,
    registry::REGISTRY,
    rtl::RTL,
    sync::SYNC,
    system::SYSTEM,
    wait::WAIT,
];

/// A pointer by address, as if driver code had passed it.
pub(crate) fn pointer<T>(address: usize) -> In<T> {
    crate::shim::in_from_address(address)
}
