//! Requests of the OS that this driver does not know. None is carried out as asked; each is counted. [`Strays::note`]
//! also prints some of them to the debugger, so that a new build of the OS shows what it wants.

use crate::platform::Platform;
use alloc::boxed::Box;
use core::fmt::Arguments;
use core::sync::atomic::{AtomicU64, Ordering};
use gpu_engine::NoMemory;
use gpu_engine::shared::try_box;

/// Kinds of paging operations that are counted one by one: those below the last, which is for all other numbers.
pub const PAGING_KINDS: usize = 32;

/// How many requests of each kind there were since StartDevice. The escape `START` returns them.
#[derive(Default)]
pub struct Strays {
    /// Page table entries with a page size, flag, segment or address that this driver does not know. They became
    /// invalid entries.
    pub entries: AtomicU64,
    /// Updates of page tables that go beyond a table, or have a level or flags that this driver does not know: invalid
    /// entries are written, as far as they lie within the table. Root tables in the aperture or an unknown segment:
    /// every address of the context faults.
    pub ranges: AtomicU64,
    /// Flushes for a process that this driver does not know. Every address space was flushed.
    pub flushes: AtomicU64,
    /// Paging operations of WDDM 1, or of features that this driver does not report, by number; the last element has
    /// all numbers from its own on. Some need nothing; the others stop the adapter ([`crate::halt`]).
    pub operations: [AtomicU64; PAGING_KINDS],
    /// Packets that `submit::submit` or the thunk of a submission refused. Their fences count as completed.
    pub packets: AtomicU64,
    /// Packet contexts that were made on hardware-scheduled nodes, for want of HwQueueSupported.
    pub odd_contexts: AtomicU64,
    /// Hardware queues whose native progress fence was not open when they were made, or whose progress fence is at an
    /// address that is no multiple of 8.
    pub plain_progress: AtomicU64,
    /// Page tables and logs that the OS put in memory that is not cached, or whose cache type the kernel does not say.
    /// They are used with fences.
    pub uncached: AtomicU64,
}

impl Strays {
    /// None so far. Apart from what has them, which is built on StartDevice's stack.
    ///
    /// # Errors
    /// [`NoMemory`].
    #[inline(never)]
    pub fn new() -> core::result::Result<Box<Self>, NoMemory> {
        try_box(Self::default())
    }

    /// Adds `count` to `which`, and prints `what` with the sum when the sum reaches or passes a power of two.
    pub fn note<P: Platform>(&self, which: &AtomicU64, count: u64, platform: &P, what: Arguments<'_>) {
        if count == 0 {
            return;
        }
        let before = which.fetch_add(count, Ordering::Relaxed);
        if (before + count).ilog2() > before.checked_ilog2().unwrap_or(0) || before == 0 {
            platform.print(format_args!("fencepost: {what}, {} so far\n", before + count));
        }
    }

    /// Counts a paging operation that is not carried out, by its number in `DXGK_BUILDPAGINGBUFFER_OPERATION`.
    pub fn note_operation<P: Platform>(&self, number: i32, platform: &P) {
        let kind = usize::try_from(number).unwrap_or(usize::MAX).min(PAGING_KINDS - 1);
        if let Some(which) = self.operations.get(kind) {
            self.note(which, 1, platform, format_args!("paging operations {number}, not carried out"));
        }
    }

    /// The kinds of such operations that there were, a bit each, and how many of all kinds.
    pub fn operations(&self) -> (u64, u64) {
        let counts = self.operations.iter().map(|count| count.load(Ordering::Relaxed));
        counts
            .enumerate()
            .fold((0, 0), |(kinds, sum), (kind, count)| (kinds | u64::from(count != 0) << kind, sum + count))
    }
}
