//! IRQ-1: what an engine has to report, against the interrupt routine that takes it. The functions of `Reports` and
//! `Gpu::drain`, with mailboxes that are small.

use crate::{LoomHost, W, caught, check, chosen, word};
use gpu_engine::fence;
use gpu_engine::mutation::{Chosen, Mutation};
use gpu_engine::notice::{Mailbox, Notice};
use gpu_engine::outbox::{self, Scan, Signaled, scan};
use gpu_engine::slots::{SlotId, SlotTable};
use gpu_engine::word::{Ordering, Word};
use loom::sync::Arc;
use loom::sync::atomic::AtomicU64;

/// What a node has for the routine, and the line by which it asks.
struct Node {
    mailbox: Mailbox<W>,
    wanted: Scan<W>,
    slots: SlotTable<LoomHost>,
    /// Interrupts that were raised.
    raised: AtomicU64,
    mutation: Arc<Chosen>,
}

impl Node {
    fn new(capacity: usize, mutation: u32) -> Arc<Self> {
        let new = |value| W(AtomicU64::new(value));
        Arc::new(Self {
            mailbox: Mailbox::new(capacity, new).expect("memory"),
            wanted: Scan::new(new),
            slots: SlotTable::new().expect("memory"),
            raised: AtomicU64::new(0),
            mutation: chosen(mutation),
        })
    }

    /// As `Reports::raise`.
    fn raise(&self) {
        if self.mailbox.request() {
            self.raised.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// As an engine signals: CurrentValue, the full fence, the notice, the interrupt.
    fn signal(&self, current: &W, key: SlotId, value: u64) {
        fence::store_current(current, value);
        fence::resolve::<W>(&self.mutation);
        let signaled = Signaled { fence: key, queue: key, key };
        outbox::post(&self.mailbox, &self.wanted, &self.slots, signaled, &self.mutation);
        self.raise();
    }

    /// The routine runs once for an interrupt that it has not served. Returns whether there was one.
    fn serve(&self, served: &mut u64, f: impl FnMut(Notice)) -> bool {
        let is_due = self.raised.load(Ordering::Acquire) > *served;
        if is_due {
            *served += 1;
            outbox::drain(&self.mailbox, &self.wanted, &self.slots, false, &self.mutation, f);
        }
        is_due
    }
}

/// The engine posts two notices; nothing may stay behind when every interrupt is served.
fn two_notices(mutation: u32) {
    let node = Node::new(2, mutation);
    let engine = {
        let node = node.clone();
        loom::thread::spawn(move || {
            for _ in 0..2 {
                assert!(node.mailbox.push(Notice::FencesSignaled));
                node.raise();
            }
        })
    };
    let (mut seen, mut served) = (0, 0);
    node.serve(&mut served, |_| seen += 1);
    engine.join().unwrap();
    while node.serve(&mut served, |_| seen += 1) {}
    assert_eq!(seen, 2, "a notice stays in the mailbox");
}

#[test]
fn irq_1_no_notice_stays_behind() {
    check(|| two_notices(0));
}

#[test]
fn irq_1_needs_the_withdrawal_first() {
    caught(Mutation::WithdrawsLate, two_notices);
}

/// The engine posts a notice, and signals a monitored fence; the value is in memory before that.
fn notice_and_scan(mutation: u32) {
    let (node, value) = (Node::new(1, mutation), word(0));
    let engine = {
        let (node, value) = (node.clone(), value.clone());
        loom::thread::spawn(move || {
            assert!(node.mailbox.push(Notice::FencesSignaled));
            node.raise();
            value.store(1, Ordering::Relaxed);
            node.wanted.add(scan::MONITORED);
            node.raise();
        })
    };
    let (mut seen, mut served) = (0, 0);
    // Relaxed: what the routine has taken says that the value is there.
    let look = |seen: &mut u64, notice| {
        if notice == Notice::MonitoredFenceSignaled {
            *seen = value.load(Ordering::Relaxed);
        }
    };
    node.serve(&mut served, |notice| look(&mut seen, notice));
    engine.join().unwrap();
    while node.serve(&mut served, |notice| look(&mut seen, notice)) {}
    assert_eq!(seen, 1, "the signal is not reported, or before its value");
}

#[test]
fn irq_1_no_scan_stays_behind() {
    check(|| notice_and_scan(0));
}

#[test]
fn irq_1_needs_the_scan_word_behind_the_withdrawal() {
    caught(Mutation::TakesScanFirst, notice_and_scan);
}

/// A burst of signals of one fence, of which one notice may stand for several: the OS, which looks at CurrentValue when
/// it is told of the fence, looks once more behind the last.
fn burst(mutation: u32) {
    let (node, current) = (Node::new(2, mutation), word(0));
    let fence = node.slots.allocate(1).expect("memory");
    let engine = {
        let (node, current) = (node.clone(), current.clone());
        loom::thread::spawn(move || (1..=2).for_each(|value| node.signal(&current, fence, value)))
    };
    let (mut seen, mut served) = (0, 0);
    let look = |seen: &mut u64| *seen = current.load(Ordering::Acquire);
    node.serve(&mut served, |_| look(&mut seen));
    engine.join().unwrap();
    while node.serve(&mut served, |_| look(&mut seen)) {}
    assert_eq!(seen, 2, "the last signal of a burst is not reported");
}

#[test]
fn irq_1_the_last_signal_of_a_burst_is_reported() {
    check(|| burst(0));
}

#[test]
fn irq_1_needs_the_mark_cleared_before_the_report() {
    caught(Mutation::ClearsMarkLate, burst);
}

/// The same where there is room for one notice, which another fence has taken: the fence has no name, and must have one
/// again afterwards.
fn burst_without_room(mutation: u32) {
    let (node, other, current) = (Node::new(1, mutation), word(0), word(0));
    let slots = [1, 2].map(|handle| node.slots.allocate(handle).expect("memory"));
    let engine = {
        let (node, current) = (node.clone(), current.clone());
        loom::thread::spawn(move || {
            node.signal(&other, slots[0], 1);
            (1..=2).for_each(|value| node.signal(&current, slots[1], value));
        })
    };
    let (mut seen, mut served) = (0, 0);
    let look = |seen: &mut u64, notice: Notice| match notice {
        Notice::FenceSignaled { fence, .. } if fence == slots[0] => {}
        _ => *seen = current.load(Ordering::Acquire),
    };
    node.serve(&mut served, |notice| look(&mut seen, notice));
    engine.join().unwrap();
    while node.serve(&mut served, |notice| look(&mut seen, notice)) {}
    assert_eq!(seen, 2, "the last signal of a fence without a name is not reported");
}

#[test]
fn irq_1_a_fence_that_found_no_room_is_reported_again() {
    check(|| burst_without_room(0));
}

#[test]
fn irq_1_needs_the_mark_taken_back_where_there_is_no_room() {
    caught(Mutation::KeepsMarkWhenFull, burst_without_room);
}

#[test]
fn irq_1_needs_the_scan_where_there_is_no_room() {
    caught(Mutation::DropOnOverflow, burst_without_room);
}

/// An engine that still has a destroyed fence signals it, while the fence that has the slot now is signaled and
/// reported: the mark of the one hides no signal of the other.
fn slot_used_again(mutation: u32) {
    let (node, current, dead) = (Node::new(4, mutation), word(0), word(0));
    let gone = node.slots.allocate(1).expect("memory");
    node.slots.kill(gone);
    node.slots.free(gone);
    let fence = node.slots.allocate(2).expect("memory");
    assert_eq!(fence.index, gone.index, "the slot is used again");
    let engine = {
        let (node, current) = (node.clone(), current.clone());
        loom::thread::spawn(move || {
            node.signal(&current, fence, 1);
            node.signal(&dead, gone, 1);
            node.signal(&current, fence, 2);
        })
    };
    let (mut seen, mut served) = (0, 0);
    let look = |seen: &mut u64, notice: Notice| match notice {
        Notice::FenceSignaled { fence: named, .. } if node.slots.handle(named).is_some() => {
            *seen = current.load(Ordering::Acquire);
        }
        _ => {}
    };
    node.serve(&mut served, |notice| look(&mut seen, notice));
    engine.join().unwrap();
    while node.serve(&mut served, |notice| look(&mut seen, notice)) {}
    assert_eq!(seen, 2, "a signal is hidden by the mark of a fence that is gone");
}

#[test]
fn irq_1_a_mark_of_a_destroyed_fence_hides_no_signal() {
    check(|| slot_used_again(0));
}

#[test]
fn irq_1_marks_are_of_a_generation() {
    caught(Mutation::MarksTheSlot, slot_used_again);
}
