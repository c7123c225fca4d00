//! What documents say of the engine in a half-sentence: each here has a test of its own.

use crate::support::{Range, Rig, TestQueue, log, log_entry, log_position};
use gpu_engine::engine::Step;
use gpu_engine::fence_log::{ENTRY_SIZE, HEADER_SIZE};
use gpu_engine::host::Lock;
use gpu_engine::node::Control;
use gpu_engine::queue::{Binding, State};
use gpu_engine::word::{Ordering, Word};
use gpu_wire::packet::log_operation::SIGNAL_EXECUTED;
use gpu_wire::packet::{self, Encoded, FaultKind};
use gpu_wire::pte::{self, Place};
use gpu_wire::{GpuVa, PAGE_SIZE};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

fn store(at: GpuVa, value: u64) -> Encoded {
    packet::Store { address: at.0, value }.to_packet()
}

/// A copy of `memory`, of 400 pages, that takes many steps: from its upper half to its lower.
fn long_copy(memory: Range) -> Encoded {
    packet::Copy { source: memory.at(200 * PAGE_SIZE).0, destination: memory.va.0, length: 200 * PAGE_SIZE }.to_packet()
}

/// An engine's reset ends the operation that it meets, also one that no command buffer is around.
#[test]
fn a_reset_ends_an_operation_of_the_ring_itself() {
    let mut rig = Rig::new();
    let (mut q, memory, m) = (rig.queue(0, 0), rig.map(400, false), rig.map(1, false));
    for page in [200, 399] {
        memory.word(page * PAGE_SIZE).store(7, Ordering::SeqCst);
    }
    q.submit(&[store(m.at(8), 1)]);
    rig.settle();
    // It comes while the operation maps what it copies.
    let (gpu, mut left) = (rig.gpu.clone(), 3);
    *rig.gpu.host.on_each_map.lock().unwrap() = Some(Box::new(move || {
        left -= 1;
        if left == 0 {
            gpu.command(0, Control::Hold);
        }
    }));
    q.submit(&[long_copy(memory), store(m.va, 1)]);
    while rig.engines[0].step() != Step::Held {}
    let (gpu, done) = (rig.gpu.clone(), memory.read(0));
    let lost = gpu.nodes[0].take_interrupted().expect("the queue in the operation is lost");
    assert_eq!((lost.slot, q.queue.state(), m.read(0), done), (q.queue.slot, State::Stopped, 0, 7));
    memory.word(0).store(0, Ordering::SeqCst);
    gpu.command(0, Control::Run);
    rig.settle();
    assert_eq!((memory.read(0), memory.read(199 * PAGE_SIZE), m.read(0)), (0, 0, 0), "it goes on behind the reset");
}

/// What is copied ahead of a command buffer is read anew behind a wait that is met while the engine looks at its value.
#[test]
fn a_wait_that_is_met_while_it_is_looked_at_has_what_follows_read_anew() {
    let mut rig = Rig::new();
    let (mut q, code, m, f) = (rig.queue(0, 0), rig.map(1, false), rig.map(1, false), rig.fence());
    let (wait, nop) = (Encoded::fence_wait(f.current.va, 1), Encoded::nop(8));
    let behind = wait.as_bytes().len() as u64;
    code.bytes.write(wait.as_bytes());
    code.bytes.part(behind, u64::MAX).write(store(m.va, 1).as_bytes());
    code.bytes.part(2048, u64::MAX).write(nop.as_bytes());
    let jump = |offset, length| packet::Indirect { address: code.at(offset).0, length }.to_packet();
    q.submit(&[jump(2048, nop.as_bytes().len() as u64), store(m.at(8), 1)]);
    rig.settle();
    // The clock is read when the wait is seen, which was not met.
    let seen = rig.gpu.nodes[0].counters.read();
    let (bytes, written) = (code.bytes.part(behind, 24), store(m.va, 2));
    *rig.gpu.host.on_clock.lock().unwrap() = Some(Box::new(move || {
        bytes.write(written.as_bytes());
        f.current.word(0).store(1, Ordering::SeqCst);
    }));
    q.submit(&[jump(0, behind + 24)]);
    rig.settle();
    let now = rig.gpu.nodes[0].counters.read();
    assert_eq!((now.waits_met - seen.waits_met, now.waits_parked - seen.waits_parked), (1, 0));
    assert_eq!((q.fault(), m.read(0)), (None, 2));
}

/// A fill that begins in front of a command buffer and reaches into it writes what is executed behind it.
#[test]
fn a_fill_from_in_front_of_a_command_buffer_is_executed() {
    for is_warm in [false, true] {
        let mut rig = Rig::new();
        let (mut q, code, m) = (rig.queue(0, 0), rig.map(1, false), rig.map(1, false));
        let fill =
            |from, length| packet::Fill { address: code.at(from).0, length, pattern: 0, reserved: 0 }.to_packet();
        let (begin, own) = (1024, fill(0, 8).as_bytes().len() as u64);
        code.bytes.part(begin, u64::MAX).write(fill(begin - 64, 64 + own + 24).as_bytes());
        code.bytes.part(begin + own, u64::MAX).write(store(m.va, 1).as_bytes());
        if is_warm {
            q.submit(&[store(code.at(3072), 1), store(m.at(8), 1)]);
            rig.settle();
        }
        q.submit(&[packet::Indirect { address: code.at(begin).0, length: own + 24 }.to_packet()]);
        rig.settle();
        // Zeros are no packet.
        assert_eq!((m.read(0), q.fault()), (0, Some(FaultKind::BadLength)), "warm: {is_warm}");
    }
}

/// As in system memory: pages of local memory that are shown together have one right.
#[test]
fn a_run_of_local_pages_has_one_right() {
    for read_only in [0, 1] {
        let mut rig = Rig::new();
        let (mut q, memory) = (rig.queue(0, 0), rig.map_local(0, 2));
        let space = rig.context.clone();
        rig.map_at(&space, memory.at(read_only * PAGE_SIZE), Place::Local(read_only), true);
        let store = |page| store(memory.at(page * PAGE_SIZE), 7);
        q.submit(&[store(1 - read_only)]);
        rig.settle();
        assert_eq!((q.fault(), memory.read((1 - read_only) * PAGE_SIZE)), (None, 7), "page {read_only}");
        q.submit(&[store(read_only)]);
        rig.settle();
        assert_eq!((q.fault(), memory.read(read_only * PAGE_SIZE)), (Some(FaultKind::Address), 0), "page {read_only}");
    }
}

/// Each ring counts as its queue's, whether the doorbell was looked at or the write pointer.
#[test]
fn a_ring_that_is_found_by_the_write_pointer_counts() {
    let mut rig = Rig::new();
    let (mut q, m) = (rig.queue(0, 0), rig.map(1, false));
    rig.settle();
    let before = q.queue.rung.load(Ordering::Relaxed);
    for value in 1..=5 {
        q.submit(&[store(m.va, value)]);
        rig.settle();
    }
    assert_eq!((q.queue.rung.load(Ordering::Relaxed) - before, m.read(0)), (5, 5));
}

/// The same where the engine has more doorbells than the one whose write pointer it looks at.
#[test]
fn a_ring_of_each_of_several_doorbells_counts() {
    let mut rig = Rig::new();
    let (mut queues, m) = ([rig.queue(0, 0), rig.queue(0, 1)], rig.map(1, false));
    rig.settle();
    let rung = |q: &TestQueue| q.queue.rung.load(Ordering::Relaxed);
    let before = [0, 1].map(|at| rung(&queues[at]));
    for value in 1..=5 {
        for queue in &mut queues {
            queue.submit(&[store(m.va, value)]);
            rig.settle();
        }
    }
    assert_eq!([0, 1].map(|at| rung(&queues[at]) - before[at]), [5, 5]);
}

/// A ring that comes between the connection and the engine's next look at the doorbells is seen.
#[test]
fn a_ring_in_front_of_the_first_look_at_a_connection_is_seen() {
    let mut rig = Rig::new();
    let (mut q, m) = (rig.queue(0, 0), rig.map(1, false));
    rig.settle();
    rig.gpu.doorbells.disconnect(0);
    rig.settle();
    rig.gpu.doorbells.connect(0, &q.queue, true);
    q.submit(&[store(m.va, 1)]);
    rig.settle();
    assert_eq!(m.read(0), 1);
}

/// A ring that was replaced, and freed before its work was done, is a fault: its packets are not passed over.
#[test]
fn a_replaced_ring_that_goes_with_work_in_it_is_a_fault() {
    let mut rig = Rig::new();
    let (mut q, m) = (rig.queue(0, 0), rig.map(1, false));
    q.submit(&[store(m.va, 1)]);
    rig.settle();
    rig.cool();
    q.publish(&[store(m.va, 2)]);
    let old = q.ring;
    (q.ring, q.control, q.wp) = (rig.map(1, false), rig.map(1, false), 0);
    assert!(q.queue.resize(Binding { ring: q.ring.va, control: q.control.va, geometry: q.geometry }));
    let table = rig.leaf_table(&rig.context.clone(), old.va);
    rig.entry(table, pte::index(old.va, 0)).store(0, Ordering::SeqCst);
    rig.gpu.flush(rig.process.number, 0, 0);
    rig.settle();
    rig.gpu.make_ready(&q.queue);
    q.submit(&[store(m.va, 3)]);
    rig.settle();
    assert_eq!((m.read(0), q.queue.state()), (1, State::Stopped));
}

/// The interrupt of a signal does not wait for the end of the operation behind it, but for a step of it.
#[test]
fn a_signal_interrupts_in_front_of_a_long_operation() {
    let mut rig = Rig::new();
    let (mut q, memory, m) = (rig.queue(0, 0), rig.map(400, false), rig.map(1, false));
    let monitored = packet::MonitoredSignal { address: m.at(8).0, value: 1 }.to_packet();
    let (gpu, steps) = (rig.gpu.clone(), Arc::new(AtomicU64::new(u64::MAX)));
    let at_first = steps.clone();
    *rig.gpu.host.on_interrupt.lock().unwrap() = Some(Box::new(move || {
        at_first.fetch_min(gpu.nodes[0].counters.read().steps, Ordering::SeqCst);
    }));
    q.submit(&[monitored, long_copy(memory), store(m.va, 1)]);
    rig.settle();
    assert_eq!((q.fault(), m.read(0)), (None, 1));
    let (first, all) = (steps.load(Ordering::SeqCst), rig.gpu.nodes[0].counters.read().steps);
    assert!(all > 4 && first <= 1, "behind step {first} of {all}");
}

/// A fence that a process has open twice stays open until it is closed twice.
#[test]
fn a_fence_that_is_open_twice_is_closed_twice() {
    let mut rig = Rig::new();
    let (mut q, f) = (rig.queue(0, 0), rig.fence());
    assert_eq!(rig.process.fences.open(f.current.va, f.monitored.va, &f.fence).unwrap(), 2);
    rig.process.fences.close(f.current.va);
    q.submit(&[Encoded::fence_signal(f.current.va, 1)]);
    rig.settle();
    assert_eq!((q.fault(), f.current.read(0)), (None, 1));
    rig.process.fences.close(f.current.va);
    q.submit(&[Encoded::fence_signal(f.current.va, 2)]);
    rig.settle();
    assert_eq!((q.fault(), f.current.read(0)), (Some(FaultKind::UnknownFence), 1));
}

/// A log whose header stands behind its last entry begins anew, in its first.
#[test]
fn a_log_that_stands_behind_its_end_begins_anew() {
    let mut rig = Rig::new();
    let (mut q, f) = (rig.queue(0, 0), rig.fence());
    let fresh = rig.map(1, false).bytes;
    // Of more entries than the log is to have: what lies behind these is another's.
    let behind = fresh.word(HEADER_SIZE + 4 * ENTRY_SIZE).unwrap();
    fresh.word(0).unwrap().store(4, Ordering::SeqCst);
    behind.store(0xABCD, Ordering::SeqCst);
    q.queue.signals.with(|log| log.set(fresh, 4)).unwrap();
    q.submit(&[Encoded::fence_signal(f.current.va, 9), log(SIGNAL_EXECUTED, 9, u32::MAX)]);
    rig.settle();
    assert_eq!((log_entry(fresh, 0)[0], log_position(fresh).0, behind.load(Ordering::SeqCst)), (9, 1, 0xABCD));
}

/// A flush of a range leaves no page table mapped: the OS may free those of a range as well.
#[test]
fn a_flush_of_a_range_leaves_no_table_mapped() {
    let mut rig = Rig::new();
    let (mut q, m) = (rig.queue(0, 0), rig.map(1, false));
    q.submit(&[store(m.va, 1)]);
    rig.settle();
    rig.cool();
    assert_ne!(rig.gpu.host.mappings.load(Ordering::Relaxed), 0);
    // All pages, by their addresses.
    let flush = rig.gpu.flush(rig.process.number, 1, u64::MAX);
    rig.settle();
    assert!(rig.gpu.flush_done(flush));
    assert_eq!(rig.gpu.host.mappings.load(Ordering::Relaxed), 0);
}

/// An interrupt that is lost, as in a reset, is raised again also where the thread that asks for that is faster than
/// the engine that raised it.
#[test]
fn what_asks_for_an_interrupt_amid_another_gets_one() {
    let mut rig = Rig::new();
    let mut q = rig.queue(0, 0);
    rig.settle();
    let (gpu, asked) = (rig.gpu.clone(), AtomicU64::new(0));
    *rig.gpu.host.on_interrupt.lock().unwrap() = Some(Box::new(move || {
        if asked.fetch_add(1, Ordering::SeqCst) == 0 {
            gpu.raise_again(0);
        }
    }));
    q.submit(&[Encoded::new(0x7f, 0, &[])]);
    rig.settle();
    assert_eq!((q.fault(), rig.interrupts()), (Some(FaultKind::BadOpcode), 2));
}
