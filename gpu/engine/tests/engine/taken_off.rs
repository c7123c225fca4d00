//! Packets that a preemption takes off in their middle: they have not completed, come back under another fence (a
//! paging packet under its own), and go on where they were.
//!
//! Source: *GPU preemption*; `DXGK_SUBMITCOMMANDFLAGS`, `Resubmission`; *TDR changes in Windows 8*, the three
//! situations in which the last completed fence advances.

use crate::packet_mode::packet_of;
use crate::support::{Range, Rig, TestHost};
use gpu_engine::node::Control;
use gpu_engine::notice::Notice;
use gpu_engine::packet_context::Resets;
use gpu_engine::packet_node::PacketSubmission;
use gpu_engine::word::{Ordering, Word};
use gpu_wire::packet::{self, Encoded, Privilege};
use gpu_wire::pte::{self, Pte};
use gpu_wire::{GpuVa, PAGE_SIZE};

/// Pages that take an engine more than a turn to fill.
const BIG: u64 = 1024;

/// A packet that takes some turns: it copies a word on, between two fills, and stores 9 behind them.
fn long(rig: &mut Rig, fence: u32, m: Range, big: Range) -> PacketSubmission<TestHost> {
    let fill = |pattern| packet::Fill { address: big.va.0, length: BIG * PAGE_SIZE, pattern, reserved: 0 }.to_packet();
    let copy = |from, to| packet::Copy { source: m.at(from).0, destination: m.at(to).0, length: 8 }.to_packet();
    let store = packet::Store { address: m.at(24).0, value: 9 }.to_packet();
    packet_of(rig, fence, false, &[copy(0, 8), fill(7), copy(0, 16), fill(9), store])
}

fn submit(rig: &Rig, packet: PacketSubmission<TestHost>) {
    rig.gpu.nodes[0].packets.with(|queue| queue.submit(packet, &rig.gpu.mutation)).unwrap();
}

/// The OS submits the packet again under `fence`.
fn again(first: &PacketSubmission<TestHost>, fence: u32) -> PacketSubmission<TestHost> {
    let context = first.context.clone();
    let resumes = context.claim(true, first.address, first.length, Resets::default());
    PacketSubmission { fence, context, resumes, ..*first }
}

/// Asks for a preemption, and drops what comes back.
fn preempt(rig: &Rig, request: u32) -> usize {
    let queue = &rig.gpu.nodes[0].packets;
    let mut back = queue.with(|queue| queue.preempt(request));
    let count = back.len();
    rig.gpu.ask_preempt(0);
    back.clear();
    queue.with(|queue| queue.give_back(back));
    count
}

/// Asks for a preemption when the running packet maps its first page, and has everything done that there is to do. The
/// fence of the packet that ran by then, and how many came back.
fn preempt_amid(rig: &mut Rig, request: u32) -> (Option<u32>, usize) {
    let (gpu, (tell, told)) = (rig.gpu.clone(), std::sync::mpsc::channel());
    let asks = move || {
        let queue = &gpu.nodes[0].packets;
        let running = queue.shown().running;
        let back = queue.with(|queue| queue.preempt(request));
        gpu.ask_preempt(0);
        tell.send((running, back.len())).unwrap();
    };
    *rig.gpu.host.on_map.lock().unwrap() = Some(Box::new(asks));
    rig.gpu.wake(0);
    rig.settle();
    told.try_recv().unwrap()
}

/// A turn of the packet's, in which another queue waits, so that it is not the whole packet.
fn turn(rig: &mut Rig, other: &mut crate::support::TestQueue) {
    other.submit(&[Encoded::nop(8)]);
    rig.engines[0].step();
}

/// A packet with the fence 5 that the preemption `request` has taken off in its middle: the words that it works on, and
/// the packet as the OS keeps it.
fn taken_off(rig: &mut Rig, request: u32) -> (Range, PacketSubmission<TestHost>) {
    let (mut other, m, big) = (rig.queue(0, 1), rig.map(1, false), rig.map(BIG, false));
    let first = long(rig, 5, m, big);
    let kept = again(&first, 0);
    submit(rig, first);
    turn(rig, &mut other);
    preempt(rig, request);
    rig.settle();
    (m, kept)
}

#[test]
pub(crate) fn a_packet_that_is_taken_off_goes_on_under_another_fence() {
    let mut rig = Rig::new();
    let (mut other, m, big) = (rig.queue(0, 1), rig.map(1, false), rig.map(BIG, false));
    m.word(0).store(1, Ordering::SeqCst);
    let first = long(&mut rig, 5, m, big);
    let (kept, behind) = (again(&first, 0), packet_of(&mut rig, 6, false, &[Encoded::nop(8)]));
    assert!(!kept.resumes, "nothing was taken off yet");
    submit(&rig, first);
    submit(&rig, behind);
    turn(&mut rig, &mut other);
    assert_eq!((m.read(8), m.read(24)), (1, 0), "it is not in its middle");
    // What it has done is not done again: the word that it copied is another one by now.
    m.word(0).store(2, Ordering::SeqCst);
    assert_eq!(preempt(&rig, 7), 1, "the one that has not started comes back at once");
    rig.settle();
    assert_eq!(rig.drain(), [(0, Notice::PacketPreempted { request: 7, completed: 4 })]);
    assert_eq!(rig.gpu.nodes[0].packets.with(|queue| queue.fences()), (4, 6));
    submit(&rig, again(&kept, 8));
    rig.settle();
    assert_eq!(rig.drain(), [(0, Notice::PacketCompleted { fence: 8 })]);
    assert_eq!((m.read(8), m.read(16), m.read(24)), (1, 2, 9));
    let counters = rig.gpu.nodes[0].counters.read();
    assert_eq!((counters.taken_off, counters.resumed, counters.bytes), (1, 1, 2 * BIG * PAGE_SIZE + 16));
}

/// Behind a reset of the adapter nothing goes on in its middle: what the packet had done may be gone.
#[test]
fn a_packet_that_an_adapter_reset_came_behind_begins_anew() {
    let mut rig = Rig::new();
    let (_, kept) = taken_off(&mut rig, 7);
    rig.gpu.lose_all();
    let back = &kept;
    let resets = rig.gpu.nodes[0].all_resets();
    assert_eq!(resets, Resets { adapter: 1, engine: 0 });
    assert!(!back.context.claim(true, back.address, back.length, resets), "it goes on in its middle");
}

/// Behind a reset of the engine a packet that was taken off comes back without the flag: the OS may not have heard that
/// it came off. It goes on where it was; before such a reset a packet without the flag is another one.
#[test]
pub(crate) fn a_packet_that_an_engine_reset_gave_back_goes_on_without_the_flag() {
    let mut rig = Rig::new();
    let (m, kept) = taken_off(&mut rig, 7);
    let gpu = rig.gpu.clone();
    let node = &gpu.nodes[0];
    node.note_engine_reset(&rig.gpu.mutation);
    assert_eq!(node.all_resets(), Resets { adapter: 0, engine: 1 });
    rig.drain();
    let resumes = kept.context.claim(false, kept.address, kept.length, node.all_resets());
    assert!(resumes, "it begins anew");
    submit(&rig, PacketSubmission { fence: 8, context: kept.context.clone(), resumes, ..kept });
    rig.settle();
    assert_eq!((rig.drain(), m.read(24)), (vec![(0, Notice::PacketCompleted { fence: 8 })], 9));
    let (_, kept) = taken_off(&mut Rig::new(), 7);
    assert!(!kept.context.claim(false, kept.address, kept.length, Resets::default()), "it is another packet");
}

/// A packet that is refused behind a preemption does not count as completed in the answer to that, running or not.
#[test]
fn an_answer_names_nothing_that_was_refused_behind_its_request() {
    for runs in [false, true] {
        let mut rig = Rig::new();
        let (mut other, m, big) = (rig.queue(0, 1), rig.map(1, false), rig.map(BIG, false));
        let first = long(&mut rig, 5, m, big);
        submit(&rig, first);
        match runs {
            true => turn(&mut rig, &mut other),
            false => drop(rig.settle()),
        }
        rig.drain();
        let queue = &rig.gpu.nodes[0].packets;
        let back = queue.with(|queue| queue.preempt(10));
        queue.with(|queue| queue.refuse(11, &rig.gpu.mutation));
        queue.with(|queue| queue.give_back(back));
        rig.gpu.ask_preempt(0);
        rig.settle();
        let completed = if runs { 4 } else { 5 };
        assert_eq!(rig.drain(), [(0, Notice::PacketPreempted { request: 10, completed })]);
        assert_eq!(rig.gpu.nodes[0].packets.with(|queue| queue.fences()), (11, 11));
    }
}

/// What is submitted, and refused, behind a packet that was refused behind a preemption counts in its place.
#[test]
fn a_packet_behind_one_that_was_refused_behind_a_preemption_counts_as_completed() {
    for refused_again in [false, true] {
        let mut rig = Rig::new();
        let (mut other, m, big) = (rig.queue(0, 1), rig.map(1, false), rig.map(BIG, false));
        let first = long(&mut rig, 5, m, big);
        submit(&rig, first);
        turn(&mut rig, &mut other);
        let back = rig.gpu.nodes[0].packets.with(|queue| queue.preempt(10));
        rig.gpu.nodes[0].packets.with(|queue| (queue.give_back(back), queue.refuse(11, &rig.gpu.mutation)));
        let behind = packet_of(&mut rig, 12, false, &[Encoded::nop(8)]);
        submit(&rig, behind);
        if refused_again {
            rig.gpu.nodes[0].packets.with(|queue| queue.refuse(13, &rig.gpu.mutation));
        }
        rig.gpu.ask_preempt(0);
        rig.settle();
        let told = [Notice::PacketPreempted { request: 10, completed: 4 }, Notice::PacketCompleted { fence: 12 }];
        assert_eq!(rig.drain(), told.map(|notice| (0, notice)));
        let last = if refused_again { 13 } else { 12 };
        assert_eq!(rig.gpu.nodes[0].packets.with(|queue| queue.fences()), (last, last));
        // What is taken back before it has begun leaves what was refused before it.
        let behind = packet_of(&mut rig, 14, false, &[Encoded::nop(8)]);
        submit(&rig, behind);
        assert_eq!(preempt(&rig, 15), 1);
        rig.settle();
        assert_eq!(rig.drain(), [(0, Notice::PacketPreempted { request: 15, completed: last })]);
    }
}

/// Preempted at every turn, and once more before it has begun again: each part of it runs once.
#[test]
fn a_packet_is_taken_off_as_often_as_the_os_wants() {
    let mut rig = Rig::new();
    let (mut other, m, big) = (rig.queue(0, 1), rig.map(1, false), rig.map(BIG, false));
    let first = long(&mut rig, 1, m, big);
    let kept = again(&first, 0);
    submit(&rig, first);
    let mut fence = 1;
    let mut rounds = 0;
    while m.read(24) == 0 {
        turn(&mut rig, &mut other);
        fence += 1;
        preempt(&rig, fence);
        rig.settle();
        rig.drain();
        if rig.gpu.nodes[0].counters.read().completions != 0 {
            break;
        }
        fence += 1;
        submit(&rig, again(&kept, fence));
        if rounds % 2 == 0 {
            fence += 1;
            assert_eq!(preempt(&rig, fence), 1, "it has not begun");
            rig.settle();
            fence += 1;
            submit(&rig, again(&kept, fence));
        }
        rounds += 1;
        assert!(rounds < 100);
    }
    let counters = rig.gpu.nodes[0].counters.read();
    assert!(counters.taken_off > 1, "{counters:?}");
    assert_eq!((counters.taken_off, counters.bytes), (counters.resumed, 2 * BIG * PAGE_SIZE + 16));
    assert_eq!((m.read(24), counters.completions), (9, 1));
}

/// The OS dropped what was taken off, and submits the same buffer anew: it begins at its beginning.
#[test]
fn what_does_not_come_back_is_forgotten() {
    let mut rig = Rig::new();
    let (mut other, m, big) = (rig.queue(0, 1), rig.map(1, false), rig.map(BIG, false));
    let first = long(&mut rig, 1, m, big);
    let kept = again(&first, 0);
    submit(&rig, first);
    turn(&mut rig, &mut other);
    preempt(&rig, 2);
    rig.settle();
    let anew = |fence| PacketSubmission {
        fence,
        context: kept.context.clone(),
        resumes: kept.context.claim(false, kept.address, kept.length, Resets::default()),
        ..kept
    };
    m.word(8).store(77, Ordering::SeqCst);
    submit(&rig, anew(3));
    // Taken back before it begins, and submitted again: there is nothing to go on with.
    assert_eq!(preempt(&rig, 4), 1);
    rig.settle();
    submit(&rig, again(&kept, 5));
    rig.settle();
    assert_eq!((m.read(8), m.read(24)), (0, 9), "the old state was taken for its own");
}

/// A preemption that finds a packet in its middle on an engine that comes off at the end of buffers only.
#[test]
fn an_engine_that_does_not_come_off_in_buffers_answers_behind_the_packet() {
    let mut rig = Rig::without_preemption();
    let (m, big) = (rig.map(1, false), rig.map(BIG, false));
    let first = long(&mut rig, 1, m, big);
    submit(&rig, first);
    assert_eq!(preempt_amid(&mut rig, 2), (Some(1), 0));
    let told = [(0, Notice::PacketCompleted { fence: 1 }), (0, Notice::PacketPreempted { request: 2, completed: 1 })];
    assert_eq!(rig.drain(), told);
    assert_eq!((m.read(24), rig.gpu.nodes[0].counters.read().taken_off), (9, 0));
}

/// What was taken back from behind a packet that stays on the engine does not complete with that.
#[test]
fn a_packet_that_stays_completes_nothing_that_was_taken_back_behind_it() {
    let mut rig = Rig::without_preemption();
    let (m, big) = (rig.map(1, false), rig.map(BIG, false));
    let first = long(&mut rig, 1, m, big);
    submit(&rig, first);
    for fence in [2, 3] {
        let behind = packet_of(&mut rig, fence, false, &[Encoded::nop(8)]);
        submit(&rig, behind);
    }
    assert_eq!(preempt_amid(&mut rig, 4), (Some(1), 2));
    let told = [(0, Notice::PacketCompleted { fence: 1 }), (0, Notice::PacketPreempted { request: 4, completed: 1 })];
    assert_eq!(rig.drain(), told);
    assert_eq!(rig.gpu.nodes[0].packets.with(|queue| queue.fences()), (1, 3));
}

/// Another command buffer of the context begins at its beginning, also with the flag, and whatever they share.
#[test]
fn another_buffer_does_not_go_on_where_one_was_taken_off() {
    for (by, more) in [(8, 0), (0, 8)] {
        let mut rig = Rig::new();
        let (_, kept) = taken_off(&mut rig, 6);
        let (address, length) = (GpuVa(kept.address.0 + by), kept.length + more);
        assert!(!kept.context.claim(true, address, length, Resets::default()), "{by} bytes on, {more} bytes more");
        assert!(
            !kept.context.claim(true, kept.address, kept.length, Resets::default()),
            "it was dropped for another one"
        );
    }
}

/// A page table that a paging packet has written is not mapped behind its end, nor when it is taken off.
#[test]
fn no_table_of_a_paging_packet_stays_mapped() {
    for is_taken_off in [false, true] {
        let mapped = [false, true].map(|writes| {
            let mut rig = Rig::new();
            let (mut other, m, big) = (rig.queue(0, 1), rig.map(1, false), rig.map(BIG, false));
            let table = rig.leaf_table(&rig.context.clone(), m.va);
            let entry = Encoded::table_write(Pte::table(table).unwrap(), pte::index(m.va, 0), [Pte::INVALID]);
            let first = if writes { entry } else { Encoded::nop(8) };
            let fill = packet::Fill { address: big.va.0, length: BIG * PAGE_SIZE, pattern: 1, reserved: 0 };
            // It works in the other process's address space, as in that of a companion context.
            let packet = packet_of(&mut rig, 1, false, &[first, fill.to_packet()]);
            submit(&rig, PacketSubmission { privilege: Privilege::Paging, ..packet });
            if is_taken_off {
                turn(&mut rig, &mut other);
                preempt(&rig, 2);
            }
            rig.settle();
            assert_eq!(rig.gpu.nodes[0].counters.read().taken_off, u64::from(is_taken_off));
            rig.gpu.host.mappings.load(Ordering::Relaxed)
        });
        assert_eq!(mapped[0], mapped[1], "a packet that was taken off: {is_taken_off}");
    }
}

/// What was refused right behind a packet that is taken off is not completed before it.
#[test]
fn what_was_refused_behind_a_packet_that_is_taken_off_does_not_complete_it() {
    let mut rig = Rig::new();
    let (mut other, m, big) = (rig.queue(0, 1), rig.map(1, false), rig.map(BIG, false));
    let first = long(&mut rig, 1, m, big);
    let kept = again(&first, 0);
    submit(&rig, first);
    rig.gpu.nodes[0].packets.with(|queue| queue.refuse(2, &rig.gpu.mutation));
    turn(&mut rig, &mut other);
    preempt(&rig, 3);
    rig.settle();
    assert_eq!(rig.drain(), [(0, Notice::PacketPreempted { request: 3, completed: 0 })]);
    submit(&rig, again(&kept, 4));
    rig.settle();
    assert_eq!(rig.gpu.nodes[0].packets.with(|queue| queue.fences()), (4, 4));
}

/// A paging packet comes back under its own fence, and an adapter reset behind that ends what was named last.
#[test]
pub(crate) fn a_paging_packet_that_comes_back_does_not_run_the_fences_back() {
    let mut rig = Rig::new();
    let gpu = rig.gpu.clone();
    let submit = |rig: &mut Rig, fence| {
        let packet = packet_of(rig, fence, true, &[Encoded::nop(8)]);
        gpu.nodes[2].packets.with(|queue| queue.submit(packet, &gpu.mutation)).unwrap();
    };
    submit(&mut rig, 10);
    submit(&mut rig, 11);
    assert_eq!(gpu.nodes[2].packets.with(|queue| queue.preempt(12)).len(), 2);
    gpu.ask_preempt(2);
    rig.settle();
    submit(&mut rig, 13);
    assert_eq!(gpu.nodes[2].packets.with(|queue| queue.preempt(14)).len(), 1);
    gpu.ask_preempt(2);
    rig.settle();
    for fence in [10, 11] {
        submit(&mut rig, fence);
    }
    assert_eq!(gpu.nodes[2].packets.with(|queue| queue.fences()), (9, 13));
    gpu.command(2, Control::Hold);
    rig.settle();
    gpu.nodes[2].packets.with(|queue| queue.reset_adapter(&gpu.mutation)).clear();
    // The newest id is the preemption's, whether the OS counts that as submitted or not.
    assert_eq!(gpu.nodes[2].packets.with(|queue| queue.fences()), (14, 13));
}

/// The OS may submit again what it has taken back as soon as the engine has answered, which may be before the call that
/// takes it back is over.
#[test]
fn what_is_taken_back_may_be_claimed_again_at_once() {
    let mut rig = Rig::new();
    let (m, kept) = taken_off(&mut rig, 6);
    rig.drain();
    // It waits, and is taken back.
    let back = again(&kept, 7);
    assert!(back.resumes);
    submit(&rig, back);
    let queue = &rig.gpu.nodes[0].packets;
    let taken = queue.with(|queue| queue.preempt(8));
    rig.gpu.ask_preempt(0);
    rig.settle();
    assert_eq!(rig.drain(), [(0, Notice::PacketPreempted { request: 8, completed: 4 })]);
    let back = again(&kept, 9);
    assert!(back.resumes, "it begins anew in its middle");
    drop(taken);
    submit(&rig, back);
    rig.settle();
    assert_eq!((rig.drain(), m.read(24)), (vec![(0, Notice::PacketCompleted { fence: 9 })], 9));
}
