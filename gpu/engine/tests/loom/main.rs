//! The ordering contracts, every interleaving and every reordering that the memory model allows: the driver's own
//! functions over loom's atomics. Each contract is also broken once, and loom must see it: a test that cannot fail
//! proves nothing.
//!
//! The search has no bound: all of it takes a minute or two.

#![expect(unsafe_code, reason = "the host's mapping type must exist, though none is made")]

mod arrivals;
mod dead;
mod engines;
mod fences;
mod handed_over;
mod notices;
mod storing;

use gpu_engine::consequences::Agent;
use gpu_engine::host::{Host, Lock, Unmapped};
use gpu_engine::memory::{Mapping, Span};
use gpu_engine::mutation::{Chosen, Mutation};
use gpu_engine::word::{Exchange, Ordering, Word};
use gpu_wire::NodeOrdinal;
use loom::sync::Arc;
use loom::sync::atomic::AtomicU64;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A word of loom's.
struct W(AtomicU64);

impl Word for W {
    fn load(&self, order: Ordering) -> u64 {
        self.0.load(order)
    }
    fn store(&self, value: u64, order: Ordering) {
        self.0.store(value, order);
    }
    fn fence(order: Ordering) {
        loom::sync::atomic::fence(order);
    }
}

impl Exchange for W {
    fn swap(&self, value: u64, order: Ordering) -> u64 {
        self.0.swap(value, order)
    }
    fn compare_exchange(&self, current: u64, new: u64, order: Ordering) -> Result<u64, u64> {
        self.0.compare_exchange(current, new, order, Ordering::Acquire)
    }
}

fn word(value: u64) -> Arc<W> {
    Arc::new(W(AtomicU64::new(value)))
}

struct LoomLock<T>(loom::sync::Mutex<T>);

impl<T: Send> Lock<T> for LoomLock<T> {
    fn new(value: T) -> Self {
        Self(loom::sync::Mutex::new(value))
    }
    fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        f(&mut self.0.lock().unwrap())
    }
}

/// Only its words and locks are used.
struct LoomHost;

/// Never made.
enum NoMapping {}

// SAFETY: there is no value of this type.
unsafe impl Mapping for NoMapping {
    fn base(&self) -> *mut u8 {
        match *self {}
    }
    fn len(&self) -> u64 {
        match *self {}
    }
}

impl Host for LoomHost {
    type Lock<T: Send> = LoomLock<T>;
    type Word = W;
    type Mapping = NoMapping;
    fn word(value: u64) -> W {
        W(AtomicU64::new(value))
    }
    fn map_system(&self, _frames: &[u64], _write: bool) -> Result<NoMapping, Unmapped> {
        Err(Unmapped::NoMemory)
    }
    fn local(&self, _page: u64) -> Option<Span<'static>> {
        None
    }
    fn clock(&self) -> u64 {
        0
    }
    fn clock_frequency(&self) -> u64 {
        1
    }
    fn kick(&self, _node: NodeOrdinal) {}
    fn raise_interrupt(&self, _node: NodeOrdinal) -> bool {
        true
    }
}

/// An agent that draws the consequences of a signal: how it writes the log, wakes queues, and looks at MonitoredValue.
struct Steps<L, K, A>(L, K, A);

impl<L: FnMut(), K: FnMut(), A: FnMut() -> bool> Agent for Steps<L, K, A> {
    fn write_log(&mut self) -> bool {
        (self.0)();
        true
    }
    fn wake(&mut self) {
        (self.1)();
    }
    fn is_awaited(&mut self) -> bool {
        (self.2)()
    }
}

fn check(f: impl Fn() + Sync + Send + 'static) {
    loom::model::Builder::new().check(f);
}

/// Runs `f` under loom with `mutation`, and requires that some execution fails.
fn caught(mutation: Mutation, f: fn(u32)) {
    let outcome = catch_unwind(AssertUnwindSafe(|| check(move || f(mutation as u32))));
    assert!(outcome.is_err(), "{} was not noticed", mutation.name());
}

fn chosen(mutation: u32) -> Arc<Chosen> {
    let chosen = Chosen::none();
    chosen.set(mutation);
    Arc::new(chosen)
}
