//! What happens between two accesses of an engine to shared memory. The accesses are seen by hooks, which a process has
//! once: so these tests are a program of their own.

#[path = "../support/mod.rs"]
mod support;

use gpu_engine::memory::hooks::{Hooks, install};
use gpu_engine::queue::{Binding, State};
use gpu_engine::word::Ordering;
use gpu_wire::packet::{self, Encoded, FaultKind};
use gpu_wire::ring;
use std::cell::RefCell;
use support::Rig;

/// What happens behind a load.
struct Moment {
    /// The address that is loaded.
    address: *const u64,
    /// What it held.
    value: u64,
    happens: Box<dyn FnOnce()>,
}

thread_local! {
    static NEXT: RefCell<Option<Moment>> = const { RefCell::new(None) };
}

/// The engine loads a word: what is to happen behind that happens, and the engine has what it loaded before.
fn load(address: *const u64, _order: Ordering) -> Option<u64> {
    let moment = NEXT.with_borrow_mut(|next| next.take_if(|next| next.address == address))?;
    (moment.happens)();
    Some(moment.value)
}

thread_local! {
    static STORED: RefCell<Vec<*const u64>> = const { RefCell::new(Vec::new()) };
}

/// The engine stores a word: where is noted, in their order.
fn store(address: *mut u64, _value: u64, _order: Ordering) -> bool {
    STORED.with_borrow_mut(|stored| stored.push(address));
    false
}

static HOOKS: Hooks = Hooks { load, store, read: |_, _| (), fence: |_| () };

/// The old ring has another submission, and then the new ring is there, behind the engine's look at the old one's write
/// pointer: it looks at that once more before it leaves.
#[test]
fn what_is_published_in_front_of_the_next_ring_is_executed() {
    install(&HOOKS);
    let mut rig = Rig::new();
    let (mut q, m) = (rig.queue(0, 0), rig.map(1, false));
    let storing = move |offset, value| -> Encoded { packet::Store { address: m.at(offset).0, value }.to_packet() };
    q.submit(&[storing(0, 1)]);
    rig.settle();
    rig.cool();
    let (address, value) = (q.control.bytes.as_ptr().cast_const().cast(), q.wp);
    let (new, control) = (rig.map(1, false), rig.map(1, false));
    let queue = q.queue.clone();
    q.ring();
    let happens = Box::new(move || {
        q.publish(&[storing(8, 2)]);
        (q.ring, q.control, q.wp) = (new, control, 0);
        assert!(q.queue.resize(Binding { ring: new.va, control: control.va, geometry: q.geometry }));
        q.publish(&[storing(16, 3)]);
    });
    NEXT.set(Some(Moment { address, value, happens }));
    rig.gpu.make_ready(&queue);
    rig.settle();
    assert!(NEXT.with_borrow(Option::is_none), "the engine has not looked");
    rig.gpu.make_ready(&queue);
    rig.settle();
    assert_eq!(([0, 8, 16].map(|offset| m.read(offset)), queue.state()), ([1, 2, 3], State::Active));
}

/// The kind of a fault says that there is one: user mode that sees it finds address and position beside it.
#[test]
fn the_kind_of_a_fault_is_stored_last() {
    install(&HOOKS);
    let mut rig = Rig::new();
    let mut q = rig.queue(0, 0);
    q.submit(&[Encoded::new(0x7f, 0, &[])]);
    STORED.take();
    rig.settle();
    let word = |offset: usize| q.control.bytes.as_ptr().cast_const().wrapping_add(offset).cast::<u64>();
    let report = [ring::FAULT_ADDRESS, ring::FAULT_POSITION, ring::FAULT_KIND].map(word);
    let stored: Vec<_> = STORED.take().into_iter().filter(|address| report.contains(address)).collect();
    assert_eq!((stored, q.fault()), (report.to_vec(), Some(FaultKind::BadOpcode)));
}
