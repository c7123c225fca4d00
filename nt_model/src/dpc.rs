//! Deferred procedure calls.
//!
//! A DPC runs at DISPATCH_LEVEL, on a stack of its own. Where is a choice ([`DpcDelivery`]):
//!
//! - `Inline` (the default) does what the processor of the queueing thread would do: below DISPATCH_LEVEL the DPC runs
//!   at once, before `KeInsertQueueDpc` returns; at or above, it waits on this thread until the level drops.
//! - `Remote` hands it to one service thread, so that it runs concurrently with whoever queued it.
//!
//! A driver must be right under both. Timer expiries and device interrupts queue their DPCs the same way, from their
//! own threads.

mod dpc_ref;

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::callback;
use crate::cpu::{self, PENDING_DPC};
use crate::driver::EntryStack;
use crate::kernel::Machine;
use crate::records::{KDPC, OBJECT_DPC, OBJECT_THREADED_DPC};
use crate::routines::{self, DISPATCH_LEVEL};
use crate::rules::Details;
use crate::rules_nt::{NT_OBJECT_IN_USE, NT_OBJECT_KIND};
use crate::sched::Slot;
use crate::thread::{Thread, ThreadKind};
pub(crate) use dpc_ref::DpcRef;

/// Where DPCs run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DpcDelivery {
    /// On the thread that queued it, as soon as its level is below DISPATCH_LEVEL.
    Inline,
    /// On a thread of the machine.
    Remote,
}

struct Queued {
    dpc: DpcRef,
    /// The thread that must run it; 0: the service thread.
    owner: u64,
    sequence: u64,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Queued>,
    /// Sequence numbers of DPCs that run now.
    running: Vec<u64>,
    last_sequence: u64,
    /// Who waits for DPCs to finish.
    flushing: Vec<Arc<Slot>>,
    service: Option<Arc<Thread>>,
}

/// The DPCs of one machine.
#[derive(Default)]
pub(crate) struct DpcQueue {
    state: Mutex<State>,
    outstanding: AtomicUsize,
    closed: AtomicBool,
}

impl DpcQueue {
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
    }

    /// Addresses of queued DPCs within `range`.
    pub(crate) fn queued_in(&self, range: &Range<usize>) -> Vec<usize> {
        if self.outstanding.load(Ordering::Relaxed) == 0 {
            return Vec::new();
        }
        let state = self.state.lock();
        state.queue.iter().map(|queued| queued.dpc.address()).filter(|address| range.contains(address)).collect()
    }

    /// Addresses and routines of all queued DPCs.
    pub(crate) fn queued(&self) -> Vec<(usize, usize)> {
        let state = self.state.lock();
        state.queue.iter().map(|queued| (queued.dpc.address(), queued.dpc.routine())).collect()
    }
}

fn key(dpc: &KDPC) -> usize {
    core::ptr::from_ref(dpc).addr()
}

impl Machine {
    /// Makes `dpc` a DPC that calls `routine(dpc, context, argument1, argument2)` (`KDEFERRED_ROUTINE`).
    ///
    /// IRQL: any.
    #[doc(alias = "KeInitializeDpc")]
    #[track_caller]
    pub fn initialize_dpc(&self, dpc: &KDPC, routine: usize, context: usize, threaded: bool) {
        let _service = self.service(&routines::KE_INITIALIZE_DPC, [key(dpc) as u64, routine as u64, context as u64]);
        let queued = self.dpcs.queued_in(&(key(dpc)..key(dpc) + 1));
        self.rules.check(&NT_OBJECT_IN_USE, queued.is_empty(), || {
            Details::new(format!("the DPC at {:#x} is queued", key(dpc))).params([key(dpc) as u64, 0, 0])
        });
        dpc.kind.store(if threaded { OBJECT_THREADED_DPC } else { OBJECT_DPC }, Ordering::Relaxed);
        dpc.importance.store(1, Ordering::Relaxed);
        dpc.number.store(0, Ordering::Relaxed);
        dpc.routine.store(routine, Ordering::Relaxed);
        dpc.context.store(context, Ordering::Relaxed);
        dpc.argument1.store(0, Ordering::Relaxed);
        dpc.argument2.store(0, Ordering::Relaxed);
        dpc.data.store(0, Ordering::Release);
    }

    /// Queues `dpc`. False: it is queued already, and keeps its arguments.
    ///
    /// IRQL: any.
    #[doc(alias = "KeInsertQueueDpc")]
    #[track_caller]
    pub fn insert_queue_dpc(&self, dpc: &KDPC, argument1: usize, argument2: usize) -> bool {
        let arguments = [key(dpc) as u64, argument1 as u64, argument2 as u64];
        let _service = self.service(&routines::KE_INSERT_QUEUE_DPC, arguments);
        self.queue_dpc(dpc, argument1, argument2)
    }

    pub(crate) fn queue_dpc(&self, dpc: &KDPC, argument1: usize, argument2: usize) -> bool {
        let kind = dpc.kind.load(Ordering::Relaxed);
        let is_dpc = matches!(kind, OBJECT_DPC | OBJECT_THREADED_DPC) && dpc.routine.load(Ordering::Relaxed) != 0;
        let text = || Details::new(format!("the object at {:#x} is no initialised DPC (type {kind})", key(dpc)));
        if !self.rules.check(&NT_OBJECT_KIND, is_dpc, || text().params([key(dpc) as u64, kind.into(), 0])) {
            return false;
        }
        if dpc.data.compare_exchange(0, 1, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            return false;
        }
        dpc.argument1.store(argument1, Ordering::Relaxed);
        dpc.argument2.store(argument2, Ordering::Relaxed);
        let inline = self.config().dpc_delivery == DpcDelivery::Inline;
        let owner = if inline { self.current_thread_id() } else { 0 };
        let service = {
            let mut state = self.dpcs.state.lock();
            state.last_sequence += 1;
            let sequence = state.last_sequence;
            state.queue.push_back(Queued { dpc: DpcRef::new(dpc), owner, sequence });
            self.dpcs.outstanding.fetch_add(1, Ordering::Relaxed);
            state.service.clone()
        };
        if inline {
            cpu::with(|cpu| cpu.pending.set(cpu.pending.get() | PENDING_DPC));
            if self.irql() < DISPATCH_LEVEL {
                self.run_own_dpcs();
            }
        } else {
            let service = service.unwrap_or_else(|| self.start_dpc_service());
            self.sched.unpark(&service.slot);
        }
        true
    }

    /// Takes `dpc` out of the queue. False: it was not in it.
    ///
    /// IRQL: any.
    #[doc(alias = "KeRemoveQueueDpc")]
    #[track_caller]
    pub fn remove_queue_dpc(&self, dpc: &KDPC) -> bool {
        let _service = self.service(&routines::KE_REMOVE_QUEUE_DPC, [key(dpc) as u64]);
        let mut state = self.dpcs.state.lock();
        let Some(at) = state.queue.iter().position(|queued| queued.dpc.address() == key(dpc)) else { return false };
        state.queue.remove(at);
        self.dpcs.outstanding.fetch_sub(1, Ordering::Relaxed);
        dpc.data.store(0, Ordering::Release);
        true
    }

    /// Forgets the DPC at `address` without touching it: its memory is gone.
    pub(crate) fn forget_dpc(&self, address: usize) {
        let mut state = self.dpcs.state.lock();
        let before = state.queue.len();
        state.queue.retain(|queued| queued.dpc.address() != address);
        self.dpcs.outstanding.fetch_sub(before - state.queue.len(), Ordering::Relaxed);
    }

    /// Returns when every DPC that was queued at the call has finished.
    ///
    /// IRQL: at most APC_LEVEL.
    #[doc(alias = "KeFlushQueuedDpcs")]
    #[track_caller]
    pub fn flush_queued_dpcs(&self) {
        let _service = self.service(&routines::KE_FLUSH_QUEUED_DPCS, []);
        if self.irql() >= DISPATCH_LEVEL {
            return;
        }
        self.run_own_dpcs();
        let slot = self.with_current_thread(|thread| thread.slot.clone());
        let target = self.dpcs.state.lock().last_sequence;
        loop {
            {
                let mut state = self.dpcs.state.lock();
                let pending = state.queue.iter().map(|queued| queued.sequence).chain(state.running.iter().copied());
                if !pending.into_iter().any(|sequence| sequence <= target) || self.rules.is_stopped() {
                    return;
                }
                state.flushing.push(slot.clone());
            }
            self.sched.park(&slot, None);
        }
    }

    /// Runs the DPCs that wait for the calling thread.
    pub(crate) fn run_own_dpcs(&self) {
        let me = self.current_thread_id();
        while let Some(queued) = self.next_dpc(me) {
            self.run_dpc(&queued);
        }
        cpu::with(|cpu| cpu.pending.set(cpu.pending.get() & !PENDING_DPC));
    }

    /// Takes the next DPC for `owner` from the queue and marks it running.
    fn next_dpc(&self, owner: u64) -> Option<Queued> {
        if self.dpcs.outstanding.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let mut state = self.dpcs.state.lock();
        let at = state.queue.iter().position(|queued| queued.owner == owner)?;
        let queued = state.queue.remove(at)?;
        state.running.push(queued.sequence);
        Some(queued)
    }

    fn run_dpc(&self, queued: &Queued) {
        // The record may be queued again, or freed, as soon as the routine runs: read it first.
        let (routine, arguments) = queued.dpc.take();
        self.at_irql(DISPATCH_LEVEL, || {
            cpu::with(|cpu| cpu.in_dpc.set(cpu.in_dpc.get() + 1));
            let _ = self.call_driver_on(EntryStack::Own, "DPC", || callback::invoke(routine, arguments));
            cpu::with(|cpu| cpu.in_dpc.set(cpu.in_dpc.get().saturating_sub(1)));
            let flushing = {
                let mut state = self.dpcs.state.lock();
                state.running.retain(|sequence| *sequence != queued.sequence);
                std::mem::take(&mut state.flushing)
            };
            self.dpcs.outstanding.fetch_sub(1, Ordering::Relaxed);
            for slot in flushing {
                self.sched.unpark(&slot);
            }
        });
    }

    fn start_dpc_service(&self) -> Arc<Thread> {
        let machine = self.arc();
        let thread = self.start_thread("dpc", ThreadKind::Service, 0, move || machine.serve_dpcs());
        let mut state = self.dpcs.state.lock();
        // Two threads may get here at once; then one of the two services finds the queue empty for ever, which is fine.
        state.service.get_or_insert(thread).clone()
    }

    fn serve_dpcs(&self) {
        let slot = self.with_current_thread(|thread| thread.slot.clone());
        while !self.dpcs.closed.load(Ordering::Acquire) && !self.rules.is_stopped() {
            match self.next_dpc(0) {
                Some(queued) => self.run_dpc(&queued),
                None => _ = self.sched.park(&slot, None),
            }
        }
    }
}

/// A DPC of native code: a `KDPC` that stays where it is, and the closure that it calls at DISPATCH_LEVEL with its two
/// system arguments.
pub struct Dpc {
    inner: Box<NativeDpc>,
}

struct NativeDpc {
    kdpc: KDPC,
    routine: Box<dyn Fn(usize, usize) + Send + Sync>,
}

impl std::fmt::Debug for Dpc {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Dpc").field("kdpc", &self.inner.kdpc).finish_non_exhaustive()
    }
}

impl Dpc {
    /// A DPC that calls `routine`. It must not be dropped while it is queued; the machine's leak check sees that.
    #[track_caller]
    pub fn new(machine: &Machine, routine: impl Fn(usize, usize) + Send + Sync + 'static) -> Self {
        let inner = Box::new(NativeDpc { kdpc: KDPC::default(), routine: Box::new(routine) });
        let context = core::ptr::from_ref(&*inner).expose_provenance();
        machine.initialize_dpc(&inner.kdpc, dpc_ref::native_entry(), context, false);
        Self { inner }
    }

    /// The record, for the services.
    pub fn as_kdpc(&self) -> &KDPC {
        &self.inner.kdpc
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::{Kernel, KernelConfig};
    use crate::rules_nt::NT_IRQL_RETURN;

    fn counting(kernel: &Kernel) -> (Dpc, Arc<AtomicUsize>) {
        let count = Arc::new(AtomicUsize::new(0));
        let (inside, counter) = (kernel.arc(), count.clone());
        let dpc = Dpc::new(kernel, move |add, _| {
            assert_eq!(inside.irql(), DISPATCH_LEVEL);
            counter.fetch_add(add, Ordering::Relaxed);
        });
        (dpc, count)
    }

    #[test]
    fn inline_below_dispatch_runs_at_once() {
        let kernel = Kernel::collecting();
        let _in = kernel.enter();
        let (dpc, count) = counting(&kernel);
        assert!(kernel.insert_queue_dpc(dpc.as_kdpc(), 3, 0));
        assert_eq!((count.load(Ordering::Relaxed), kernel.irql()), (3, 0));
    }

    #[test]
    fn inline_at_dispatch_waits_for_the_level_to_drop() {
        let kernel = Kernel::collecting();
        let _in = kernel.enter();
        let (dpc, count) = counting(&kernel);
        let old = kernel.raise_irql(5);
        assert!(kernel.insert_queue_dpc(dpc.as_kdpc(), 1, 0));
        assert!(!kernel.insert_queue_dpc(dpc.as_kdpc(), 1, 0), "queued once");
        kernel.lower_irql(DISPATCH_LEVEL);
        assert_eq!(count.load(Ordering::Relaxed), 0);
        kernel.lower_irql(old);
        assert_eq!(count.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn a_removed_dpc_does_not_run() {
        let kernel = Kernel::collecting();
        let _in = kernel.enter();
        let (dpc, count) = counting(&kernel);
        let old = kernel.raise_irql(DISPATCH_LEVEL);
        kernel.insert_queue_dpc(dpc.as_kdpc(), 1, 0);
        assert!(kernel.remove_queue_dpc(dpc.as_kdpc()));
        assert!(!kernel.remove_queue_dpc(dpc.as_kdpc()));
        kernel.lower_irql(old);
        assert_eq!(count.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn remote_runs_elsewhere_and_flush_waits_for_it() {
        let kernel = Kernel::new(KernelConfig { dpc_delivery: DpcDelivery::Remote, ..KernelConfig::collecting() });
        let _in = kernel.enter();
        let (dpc, count) = counting(&kernel);
        for _ in 0..50 {
            kernel.insert_queue_dpc(dpc.as_kdpc(), 1, 0);
            kernel.flush_queued_dpcs();
        }
        assert_eq!(count.load(Ordering::Relaxed), 50);
        assert!(kernel.rules.violations().is_empty());
    }

    #[test]
    fn a_dpc_that_changes_the_level_is_caught() {
        let kernel = Kernel::collecting();
        let _in = kernel.enter();
        let inside = kernel.arc();
        let dpc = Dpc::new(&kernel, move |_, _| _ = inside.raise_irql(4));
        kernel.insert_queue_dpc(dpc.as_kdpc(), 0, 0);
        assert!(kernel.rules.was_broken(&NT_IRQL_RETURN));
    }

    #[test]
    fn a_dpc_that_was_never_initialised_is_caught() {
        let kernel = Kernel::collecting();
        let _in = kernel.enter();
        assert!(!kernel.insert_queue_dpc(&KDPC::default(), 0, 0));
        assert!(kernel.rules.was_broken(&NT_OBJECT_KIND));
    }

    #[test]
    fn initialising_a_queued_dpc_is_caught() {
        let kernel = Kernel::collecting();
        let _in = kernel.enter();
        let (dpc, _) = counting(&kernel);
        let old = kernel.raise_irql(DISPATCH_LEVEL);
        kernel.insert_queue_dpc(dpc.as_kdpc(), 1, 0);
        kernel.initialize_dpc(dpc.as_kdpc(), 1, 0, false);
        assert!(kernel.rules.was_broken(&NT_OBJECT_IN_USE));
        kernel.remove_queue_dpc(dpc.as_kdpc());
        kernel.lower_irql(old);
    }
}
