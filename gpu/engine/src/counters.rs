//! What the engines counted. Each node counts for itself; readers add up.

use core::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counters of one node. Only its engine and its interrupt routine write them.
        #[derive(Default)]
        pub struct Counters { $($(#[$doc])* pub $name: AtomicU64,)* }

        /// A reading of [`Counters`], or a sum of several.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        pub struct Totals { $($(#[$doc])* pub $name: u64,)* }

        impl Counters {
            /// Reads them all.
            pub fn read(&self) -> Totals {
                Totals { $($name: self.$name.load(Ordering::Relaxed),)* }
            }
        }

        impl Totals {
            /// Names, in the order of [`Self::values`].
            pub const NAMES: &[&str] = &[$(stringify!($name),)*];

            /// The numbers, as debug blobs have them.
            pub const fn values(&self) -> [u64; Self::NAMES.len()] {
                [$(self.$name,)*]
            }
        }

        impl core::ops::Add for Totals {
            type Output = Self;
            fn add(self, other: Self) -> Self {
                // The most of several engines is the most of any.
                let most_between_looks = self.most_between_looks.max(other.most_between_looks);
                Self { most_between_looks, ..Self { $($name: self.$name.wrapping_add(other.$name),)* } }
            }
        }
    };
}

counters! {
    /// Packets executed.
    packets,
    /// Doorbell rings seen. Rings that came while an earlier one had not been looked at count once.
    rings,
    /// Native fence signals.
    signals,
    /// Signals that asked for an interrupt.
    interrupts_wanted,
    /// Signals that did not, since no CPU waiter needs the value.
    interrupts_suppressed,
    /// Interrupts raised.
    interrupts_raised,
    /// Interrupts that could not be raised, and were asked for again.
    interrupts_failed,
    /// Waits that were already met.
    waits_met,
    /// Waits that parked their queue.
    waits_parked,
    /// Queues taken out of parking by this node's signals.
    wakes,
    /// Signals that stored less than was there.
    backwards,
    /// Log entries written.
    log_entries,
    /// Faults.
    faults,
    /// Command buffers jumped to.
    indirects,
    /// Bytes filled, copied or filtered.
    bytes,
    /// Packets (of packet mode) completed.
    completions,
    /// Packets (of packet mode) that a preemption took off in their middle.
    taken_off,
    /// Of these, the ones that came back and went on.
    resumed,
    /// Resets served.
    resets,
    /// Lookaside flushes served.
    flushes,
    /// Mappings of pages that are not cached.
    uncached,
    /// Turns that ended for want of memory for a mapping, and were taken again.
    starved,
    /// Mappings refused, of pages that are no memory of the machine.
    refused,
    /// Steps of operations, between which an engine looks up.
    steps,
    /// The most work between two looks of an engine, in bytes moved: [`crate::engine::BETWEEN_LOOKS`] at most.
    most_between_looks,
}

/// Adds one.
pub(crate) fn bump(counter: &AtomicU64) {
    add(counter, 1);
}

/// Adds `n`. One writer per counter: a load and a store, no locked instruction.
pub(crate) fn add(counter: &AtomicU64, n: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
}

/// Raises a counter that holds the most of something.
pub(crate) fn raise(counter: &AtomicU64, n: u64) {
    if counter.load(Ordering::Relaxed) < n {
        counter.store(n, Ordering::Relaxed);
    }
}
