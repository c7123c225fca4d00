//! What the OS asked for that this driver does not know. Nothing of it is done; each is counted, and the first ones are named
//! in the debugger, so that a new build of the OS shows what it wants.

use crate::platform::Platform;
use core::fmt::Arguments;
use core::sync::atomic::{AtomicU64, Ordering};

/// Counts, from StartDevice on.
#[derive(Default)]
pub struct Strays {
    /// Page table entries with a page size, flag, segment or address that means nothing here: they are invalid.
    pub entries: AtomicU64,
    /// Updates of page tables beyond a table, of a level or of a place that there is not: they are invalid as far as they go.
    pub ranges: AtomicU64,
    /// Flushes for a process that this driver does not know: everything was flushed.
    pub flushes: AtomicU64,
    /// Packets that were refused.
    pub packets: AtomicU64,
}

impl Strays {
    /// Counts `count` more, and names them when the sum passes a power of two.
    pub fn note<P: Platform>(&self, which: &AtomicU64, count: u64, platform: &P, what: Arguments<'_>) {
        if count == 0 {
            return;
        }
        let before = which.fetch_add(count, Ordering::Relaxed);
        if (before + count).ilog2() > before.checked_ilog2().unwrap_or(0) || before == 0 {
            platform.print(format_args!("fencepost: {what}, {} so far\n", before + count));
        }
    }
}
