//! Store buffers of the engines' threads: total store order, as seen through the accesses to shared words.
//!
//! An engine's stores wait in a queue of its own, oldest first, until it passes a barrier, calls a service of the
//! kernel, or has too many. Its own loads find them. Each access is a place where the scheduler may run another thread,
//! as long as something waits in the queue. At raised IRQL (a lock is held, the interrupt routine runs) stores go out
//! at once. The CPU has no such queue: its DDIs at the device's interrupt level are taken apart at their accesses, and
//! what a barrier is for on that side is loom's to show.
#![expect(unsafe_code, reason = "stores that were held back go to the words by address")]

use gpu_engine::memory::hooks::{Hooks, install as install_hooks};
use nt_model::Machine;
use nt_model::sched::YieldPoint;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

/// Stores that a processor holds back at most.
const DEPTH: usize = 32;

/// `DISPATCH_LEVEL`.
const DISPATCH: u8 = 2;

thread_local! {
    static BUFFER: RefCell<VecDeque<(usize, u64)>> = const { RefCell::new(VecDeque::new()) };
    /// Whether this thread is an engine's; unknown at first.
    static ENGINE: Cell<Option<bool>> = const { Cell::new(None) };
}

static HOOKS: Hooks = Hooks { load, store, read, fence };

/// Gives every engine of this process a store buffer.
pub fn install() {
    install_hooks(&HOOKS);
    super::told::install();
}

fn is_engine() -> bool {
    ENGINE.get().unwrap_or_else(|| {
        let engine = std::thread::current().name() == Some("engine");
        ENGINE.set(Some(engine));
        engine
    })
}

/// Whether stores may be held back here; what was held back goes out where not.
fn buffers() -> bool {
    if !is_engine() {
        return false;
    }
    let passive = Machine::with_current(|machine| machine.is_some_and(|machine| machine.irql() == 0));
    if !passive {
        drain(0);
    }
    passive
}

/// Lets all stores but the youngest `left` go out.
fn drain(left: usize) {
    BUFFER.with_borrow_mut(|buffer| {
        while buffer.len() > left {
            let Some((at, value)) = buffer.pop_front() else { break };
            // SAFETY: the address of an aligned word that was mapped when the store was made; mappings go away by
            // services of the kernel, and those come after a drain.
            let word = unsafe { AtomicU64::from_ptr(std::ptr::with_exposed_provenance_mut(at)) };
            word.store(value, Ordering::Release);
        }
    });
}

/// Somebody else may run while stores are held back.
fn offer() {
    if BUFFER.with_borrow(|buffer| !buffer.is_empty()) {
        Machine::with_current(|machine| machine.map(|machine| machine.yield_point(YieldPoint::Custom(1))));
    }
}

/// Somebody else may run between two accesses of the CPU in a DDI at the device's interrupt level, as engines do on
/// other processors.
fn offer_in_ddi() {
    if !is_engine() {
        let raised =
            |machine: &Machine| (machine.irql() > DISPATCH).then(|| machine.yield_point(YieldPoint::Custom(3)));
        Machine::with_current(|machine| machine.and_then(raised));
    }
}

fn load(at: *const u64, _order: Ordering) -> Option<u64> {
    if is_engine() {
        super::told::look();
    }
    if !buffers() {
        offer_in_ddi();
        return None;
    }
    offer();
    let at = at.expose_provenance();
    BUFFER.with_borrow(|buffer| buffer.iter().rev().find(|(of, _)| *of == at).map(|(_, value)| *value))
}

fn store(at: *mut u64, value: u64, _order: Ordering) -> bool {
    if !buffers() {
        offer_in_ddi();
        return false;
    }
    offer();
    BUFFER.with_borrow_mut(|buffer| buffer.push_back((at.expose_provenance(), value)));
    drain(DEPTH);
    true
}

fn read(at: *const u8, bytes: usize) {
    if !buffers() {
        return;
    }
    let bytes = at.addr()..at.addr() + bytes;
    if BUFFER.with_borrow(|buffer| buffer.iter().any(|(at, _)| *at + 8 > bytes.start && *at < bytes.end)) {
        drain(0);
    }
    offer();
}

fn fence(_order: Ordering) {
    if is_engine() {
        drain(0);
    }
}
