//! Stage 7 of 8: what a node has for the interrupt routine, and how the routine takes it.
//!
//! Signals of a fence are many, and its interrupt is one: while a notice of a fence waits in the mailbox, the fence's
//! slot is marked, and a signal that finds the mark sends none. What found no room, and what has no name, is a bit of
//! the scan word.
//!
//! ORDERING[IRQ-1]: the routine clears a fence's mark before the OS is told of it, and so before the OS reads
//! CurrentValue: a signal behind that finds no mark and sends a notice of its own. It takes the scan word after it has
//! withdrawn the request: a bit that comes too late to be taken comes with an interrupt of its own.

use crate::host::Host;
use crate::mutation::{Chosen, Mutation};
use crate::notice::{Mailbox, Notice};
use crate::slots::{SlotId, SlotTable};
use crate::word::{Exchange, Ordering};

/// Bits of a node's scan word: what the interrupt routine reports beside the mailbox, coalesced.
pub mod scan {
    /// Native fences passed their MonitoredValues, and there was no room to say which.
    pub const NATIVE: u64 = 1;
    /// A monitored fence was signaled.
    pub const MONITORED: u64 = 2;
    /// The entry of the scheduling log that the OS named for the interrupt was written.
    pub const LOG: u64 = 4;
}

/// The scan word.
pub struct Scan<W: Exchange>(W);

impl<W: Exchange> Scan<W> {
    /// No bit is set; `word` makes the word.
    pub fn new(word: impl Fn(u64) -> W) -> Self {
        Self(word(0))
    }

    /// Sets bits of [`scan`]. The caller asks for the interrupt behind it. Any IRQL.
    pub fn add(&self, bits: u64) {
        let mut held = self.0.load(Ordering::Relaxed);
        // ORDERING[IRQ-1]: AcqRel: what the bits are about is visible to the routine that takes them.
        while let Err(now) = self.0.compare_exchange(held, held | bits, Ordering::AcqRel) {
            held = now;
        }
    }

    /// Takes every bit.
    fn take(&self) -> u64 {
        self.0.swap(0, Ordering::AcqRel)
    }

    /// Returns whether no bit is set. A hint.
    pub fn is_empty(&self) -> bool {
        self.0.load(Ordering::Acquire) == 0
    }
}

/// What a signal of a native fence is reported with.
#[derive(Clone, Copy)]
pub struct Signaled {
    /// The fence.
    pub fence: SlotId,
    /// The queue whose signal it was.
    pub queue: SlotId,
    /// Which of the two interrupts name: the one whose slot is marked.
    pub key: SlotId,
}

/// Engine: a native fence passed its MonitoredValue. Leaves a notice, unless one waits that the routine has not taken;
/// where the mailbox is full, the OS is asked to scan everything. The caller asks for the interrupt behind it.
pub fn post<H: Host>(
    mailbox: &Mailbox<H::Word>,
    wanted: &Scan<H::Word>,
    slots: &SlotTable<H>,
    Signaled { fence, queue, key }: Signaled,
    mutation: &Chosen,
) {
    if !slots.notice_pending(key, mutation) || mailbox.push(Notice::FenceSignaled { fence, queue }) {
        return;
    }
    if !mutation.is(Mutation::KeepsMarkWhenFull) {
        slots.notice_taken(key, mutation);
    }
    if !mutation.is(Mutation::DropOnOverflow) {
        wanted.add(scan::NATIVE);
    }
}

/// A node that an interrupt may name now, as `free` finds one; where it finds none, the interrupt that comes behind the
/// next resumption reports every fence, as `later` says from here on. Any IRQL.
pub fn speaker<W: Exchange>(
    free: impl Fn() -> Option<usize>,
    later: Option<&Scan<W>>,
    mutation: &Chosen,
) -> Option<usize> {
    free().or_else(|| {
        later?.add(scan::NATIVE);
        if !mutation.is(Mutation::SpeaksUnfenced) {
            // ORDERING[RESET-1]: pairs with `Handshake::tell`: either the resuming thread sees the bit, or this sees it
            // resumed.
            W::fence(Ordering::SeqCst);
        }
        free()
    })
}

/// Interrupt routine: tells `f` everything that there is, in order. `names_queues`: queues are marked, not fences.
/// Returns how much there was. Any IRQL, one caller at a time.
pub fn drain<H: Host>(
    mailbox: &Mailbox<H::Word>,
    wanted: &Scan<H::Word>,
    slots: &SlotTable<H>,
    names_queues: bool,
    mutation: &Chosen,
    mut f: impl FnMut(Notice),
) -> u64 {
    let early = if mutation.is(Mutation::TakesScanFirst) { wanted.take() } else { 0 };
    let mut n = mailbox.drain(mutation, |notice| {
        let mark = match notice {
            Notice::FenceSignaled { fence, queue } => Some(if names_queues { queue } else { fence }),
            _ => None,
        };
        if mutation.is(Mutation::ClearsMarkLate) {
            f(notice);
        }
        if let Some(mark) = mark {
            // ORDERING[IRQ-1]: before the OS is told: a signal from now on makes a notice of its own.
            slots.notice_taken(mark, mutation);
        }
        if !mutation.is(Mutation::ClearsMarkLate) {
            f(notice);
        }
    });
    // ORDERING[IRQ-1]: after the request was withdrawn: a bit set from now on comes with an interrupt of its own.
    let bits = if mutation.is(Mutation::TakesScanFirst) { early } else { wanted.take() };
    let coalesced = [
        (scan::NATIVE, Notice::FencesSignaled),
        (scan::MONITORED, Notice::MonitoredFenceSignaled),
        (scan::LOG, Notice::SchedulingLog),
    ];
    for (bit, notice) in coalesced {
        if bits & bit != 0 {
            f(notice);
            n = n.wrapping_add(1);
        }
    }
    n
}
