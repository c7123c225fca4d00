//! Stage 7 of 8: what the interrupt will report.
//!
//! Each node has one mailbox: the engine thread writes, the interrupt routine reads, and nothing locks. The interrupt
//! routine runs at the device's interrupt level, on any processor, one at a time (the OS's interrupt lock).
//!
//! ORDERING[IRQ-1]: a notice is in the mailbox before the interrupt is asked for, and the routine withdraws the request
//! before it empties the mailbox. So a notice that comes too late to be seen finds the request withdrawn and raises
//! again. Without that order a notice stays in the mailbox until some other interrupt comes.

use crate::NoMemory;
use crate::fault::Fault;
use crate::mutation::{Chosen, Mutation};
use crate::slots::SlotId;
use crate::word::{Exchange, Ordering};
use alloc::boxed::Box;
use alloc::vec::Vec;
use gpu_wire::GpuVa;
use gpu_wire::packet::FaultKind;

/// What a node tells the OS.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Notice {
    /// A native fence passed its MonitoredValue.
    FenceSignaled {
        /// The fence.
        fence: SlotId,
        /// The queue whose signal it was.
        queue: SlotId,
    },
    /// Native fences passed their MonitoredValues, and it is not known which: scan all.
    FencesSignaled,
    /// A monitored fence (WDDM 2.0) was signaled.
    MonitoredFenceSignaled,
    /// The entry of the scheduling log that the OS named for the interrupt was written.
    SchedulingLog,
    /// A hardware queue faulted and will run no more.
    QueueFaulted {
        /// The queue that faulted.
        queue: SlotId,
        /// The kind of fault, and the address.
        fault: Fault,
        /// Progress fence value of the command that faulted.
        progress: u64,
    },
    /// A context is off the engine.
    ContextSuspended {
        /// The context.
        context: SlotId,
        /// The suspend fence of the request that this answers.
        fence: u64,
    },
    /// A packet completed: all up to this id have.
    PacketCompleted {
        /// `SubmissionFenceId`.
        fence: u32,
    },
    /// A preemption request was carried out.
    PacketPreempted {
        /// `PreemptionFenceId`.
        request: u32,
        /// `LastCompletedFenceId`.
        completed: u32,
    },
    /// A packet faulted; the packets behind it run on.
    PacketFaulted {
        /// `FaultedFenceId`.
        fence: u32,
        /// What happened.
        fault: Fault,
    },
    /// The engine asks to change its state (`DXGK_ENGINE_STATE`).
    EngineState {
        /// The new state.
        state: u32,
    },
    /// The engine was asked to come off its work, and has not been able to for too long.
    EngineHung,
}

type Words = [u64; 5];

/// The first word of a cell whose notice is not reported any more.
const NO_NOTICE: u64 = 0;

impl Notice {
    fn encode(self) -> Words {
        match self {
            Self::FenceSignaled { fence, queue } => [1, fence.pack(), queue.pack(), 0, 0],
            Self::FencesSignaled => [2, 0, 0, 0, 0],
            Self::MonitoredFenceSignaled => [3, 0, 0, 0, 0],
            Self::QueueFaulted { queue, fault, progress } => {
                [4, queue.pack(), encode_fault(fault), fault.address.0, progress]
            }
            Self::ContextSuspended { context, fence } => [5, context.pack(), fence, 0, 0],
            Self::PacketCompleted { fence } => [6, fence.into(), 0, 0, 0],
            Self::PacketPreempted { request, completed } => [7, request.into(), completed.into(), 0, 0],
            Self::PacketFaulted { fence, fault } => [8, fence.into(), encode_fault(fault), fault.address.0, 0],
            Self::EngineState { state } => [9, state.into(), 0, 0, 0],
            Self::SchedulingLog => [10, 0, 0, 0, 0],
            Self::EngineHung => [11, 0, 0, 0, 0],
        }
    }

    /// Returns whether it is about packets. After a reset of their engine the OS takes their fences as completed by
    /// itself, and waits for no preemption any more.
    pub const fn is_of_packets(self) -> bool {
        matches!(self, Self::PacketCompleted { .. } | Self::PacketPreempted { .. } | Self::PacketFaulted { .. })
    }

    /// Returns whether it answers the suspension of `lost`. The OS waits for no suspension of a context that it is told
    /// is lost.
    pub fn is_suspension_of(self, lost: SlotId) -> bool {
        matches!(self, Self::ContextSuspended { context, .. } if context == lost)
    }

    fn decode(w: Words) -> Option<Self> {
        // CAST: the fields were 32 bits wide when encoded.
        Some(match w[0] {
            1 => Self::FenceSignaled { fence: SlotId::unpack(w[1]), queue: SlotId::unpack(w[2]) },
            2 => Self::FencesSignaled,
            3 => Self::MonitoredFenceSignaled,
            4 => Self::QueueFaulted { queue: SlotId::unpack(w[1]), fault: decode_fault(w[2], w[3])?, progress: w[4] },
            5 => Self::ContextSuspended { context: SlotId::unpack(w[1]), fence: w[2] },
            6 => Self::PacketCompleted { fence: w[1] as u32 },
            7 => Self::PacketPreempted { request: w[1] as u32, completed: w[2] as u32 },
            8 => Self::PacketFaulted { fence: w[1] as u32, fault: decode_fault(w[2], w[3])? },
            9 => Self::EngineState { state: w[1] as u32 },
            10 => Self::SchedulingLog,
            11 => Self::EngineHung,
            _ => return None,
        })
    }
}

fn encode_fault(fault: Fault) -> u64 {
    u64::from(fault.kind.raw()) | u64::from(fault.write) << 32
}

fn decode_fault(word: u64, address: u64) -> Option<Fault> {
    // CAST: the low half.
    let kind = FaultKind::from_raw(word as u32)?;
    Some(Fault { kind, address: GpuVa(address), write: word >> 32 != 0 })
}

/// Notices that a mailbox holds.
pub const CAPACITY: usize = 256;

/// One producer, one consumer at a time.
pub struct Mailbox<W: Exchange> {
    cells: Box<[[W; 5]]>,
    /// Notices ever written. Written by the engine.
    tail: W,
    /// Notices ever read. Written by the interrupt routine.
    head: W,
    /// 1 while an interrupt was asked for that no routine has begun to serve.
    requested: W,
}

impl<W: Exchange> Mailbox<W> {
    /// An empty mailbox of `capacity` notices; `word` makes the words.
    ///
    /// # Errors
    /// [`NoMemory`].
    pub fn new(capacity: usize, word: impl Fn(u64) -> W) -> Result<Self, NoMemory> {
        let mut cells = Vec::new();
        cells.try_reserve_exact(capacity)?;
        cells.resize_with(capacity, || core::array::from_fn(|_| word(0)));
        Ok(Self { cells: cells.into_boxed_slice(), tail: word(0), head: word(0), requested: word(0) })
    }

    /// Engine: adds a notice; `false` when the mailbox is full.
    pub fn push(&self, notice: Notice) -> bool {
        let tail = self.tail.load(Ordering::Relaxed);
        // ORDERING[IRQ-1]: Acquire pairs with the Release in drain: the cell is free once its reader counted it.
        if tail.wrapping_sub(self.head.load(Ordering::Acquire)) >= self.cells.len() as u64 {
            return false;
        }
        let Some(cell) = self.cell(tail) else { return false };
        for (word, value) in cell.iter().zip(notice.encode()) {
            word.store(value, Ordering::Relaxed);
        }
        // ORDERING[IRQ-1]: Release: the cell is whole before it is counted.
        self.tail.store(tail.wrapping_add(1), Ordering::Release);
        true
    }

    /// Engine: asks for an interrupt after [`Self::push`]; `true` when the caller must raise it, `false` when one is on
    /// its way that will see the notice.
    pub fn request(&self) -> bool {
        // ORDERING[IRQ-1]: AcqRel: the notice before it is visible to the routine whose withdrawal comes after.
        self.requested.swap(1, Ordering::AcqRel) == 0
    }

    /// Engine: the interrupt could not be raised; the next [`Self::request`] must try again. Interrupt routine: it
    /// begins.
    pub fn withdraw(&self) {
        self.requested.swap(0, Ordering::AcqRel);
    }

    /// Interrupt routine: withdraws the request, then takes out every notice in order. How many there were.
    pub fn drain(&self, mutation: &Chosen, f: impl FnMut(Notice)) -> u64 {
        if mutation.is(Mutation::WithdrawsLate) {
            let n = self.empty(f);
            self.withdraw();
            return n;
        }
        // ORDERING[IRQ-1]: before the tail is read; see the module.
        self.withdraw();
        self.empty(f)
    }

    fn empty(&self, mut f: impl FnMut(Notice)) -> u64 {
        let mut head = self.head.load(Ordering::Relaxed);
        let mut n = 0_u64;
        // Bounded: an engine that keeps writing gets an interrupt of its own for what comes later.
        let tail = self.tail.load(Ordering::Acquire);
        while head != tail {
            let words = self.cell(head).map(|cell| cell.each_ref().map(|word| word.load(Ordering::Relaxed)));
            head = head.wrapping_add(1);
            // ORDERING[IRQ-1]: Release: the cell was read before the engine may write it again.
            self.head.store(head, Ordering::Release);
            if let Some(notice) = words.and_then(Notice::decode) {
                f(notice);
            }
            n = n.wrapping_add(1);
        }
        n
    }

    /// Reset, while the engine is told to hold, and no interrupt routine is here: notices that wait here and that
    /// `is_over` says a reset has ended will not be reported.
    ///
    /// ORDERING[RESET-1]: the engine is told to run again (Release) after this, and the routine finds that out
    /// (Acquire) before it comes here.
    pub fn forget(&self, is_over: impl Fn(Notice) -> bool) {
        // Nothing moves the head. An engine that does not answer may still write behind the tail that is read here.
        let (mut head, tail) = (self.head.load(Ordering::Acquire), self.tail.load(Ordering::Acquire));
        while head != tail {
            if let Some(cell) = self.cell(head)
                && let Some(notice) = Notice::decode(cell.each_ref().map(|word| word.load(Ordering::Relaxed)))
                && is_over(notice)
            {
                cell[0].store(NO_NOTICE, Ordering::Relaxed);
            }
            head = head.wrapping_add(1);
        }
    }

    /// The cell of the notice with this number. `None` in a mailbox without room.
    fn cell(&self, number: u64) -> Option<&[W; 5]> {
        let at = number.checked_rem(self.cells.len() as u64)?;
        self.cells.get(at as usize)
    }

    /// Whether nothing waits. A hint.
    pub fn is_empty(&self) -> bool {
        self.tail.load(Ordering::Relaxed) == self.head.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::AtomicU64;

    fn mailbox(n: usize) -> Mailbox<AtomicU64> {
        Mailbox::new(n, AtomicU64::new).unwrap()
    }

    #[test]
    fn notices_come_out_as_they_went_in() {
        let a = SlotId { index: 7, generation: 9 };
        let b = SlotId { index: u32::MAX, generation: 1 };
        let fault = Fault { kind: FaultKind::Address, address: GpuVa(0x1234_5000), write: true };
        let all = [
            Notice::FenceSignaled { fence: a, queue: b },
            Notice::FencesSignaled,
            Notice::MonitoredFenceSignaled,
            Notice::QueueFaulted { queue: a, fault, progress: u64::MAX },
            Notice::ContextSuspended { context: b, fence: 5 },
            Notice::PacketCompleted { fence: u32::MAX },
            Notice::PacketPreempted { request: 3, completed: 2 },
            Notice::PacketFaulted { fence: 4, fault },
            Notice::EngineState { state: 1 },
            Notice::SchedulingLog,
        ];
        let m = mailbox(16);
        for n in all {
            assert!(m.push(n));
        }
        let mut got = Vec::new();
        assert_eq!(m.drain(&Chosen::none(), |n| got.push(n)), 10);
        assert_eq!(got, all);
        assert!(m.is_empty());
    }

    #[test]
    fn a_full_mailbox_refuses_and_recovers() {
        let m = mailbox(2);
        assert!(m.push(Notice::FencesSignaled) && m.push(Notice::FencesSignaled));
        assert!(!m.push(Notice::FencesSignaled));
        assert_eq!(m.drain(&Chosen::none(), |_| ()), 2);
        assert!(m.push(Notice::FencesSignaled));
    }

    #[test]
    fn a_reset_forgets_notices_of_packets_alone() {
        let m = mailbox(4);
        let (completed, preempted) =
            (Notice::PacketCompleted { fence: 1 }, Notice::PacketPreempted { request: 2, completed: 1 });
        for notice in [completed, Notice::FencesSignaled, preempted] {
            assert!(m.push(notice));
        }
        m.forget(Notice::is_of_packets);
        assert!(m.push(Notice::PacketCompleted { fence: 3 }));
        let mut got = Vec::new();
        m.drain(&Chosen::none(), |notice| got.push(notice));
        assert_eq!(got, [Notice::FencesSignaled, Notice::PacketCompleted { fence: 3 }]);
    }

    #[test]
    fn one_request_is_outstanding_until_the_routine_begins() {
        let m = mailbox(2);
        assert!(m.request());
        assert!(!m.request());
        m.drain(&Chosen::none(), |_| ());
        assert!(m.request());
        m.withdraw();
        assert!(m.request());
    }
}
