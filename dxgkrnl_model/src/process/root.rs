//! The root page table of a process, as its contexts have it: one that is replaced is replaced in all of them, while
//! none is on an engine.
//!
//! Source: DDI page DxgkDdiSetRootPageTable. Chosen: how contexts come off: packets come to an end, and no other
//! begins; contexts of hardware queues are suspended. What is not off within twice TdrDelay keeps its root.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::ProcessAdapter;
use crate::adapter::Adapter;
use crate::context::{Context, set_root};
use crate::hw_context::{HwContext, Keeper};
use crate::memory::space::AddressSpace;
use crate::sync::{Gate, Lock, Rank, Signal};

/// How the contexts of a process get its root.
#[derive(Debug)]
pub(super) struct Roots {
    /// Shared: a context gets the root that there is. Exclusive: the root is replaced.
    gate: Gate,
    /// No packet of the process begins.
    rests: AtomicBool,
}

impl Roots {
    /// Nothing is being replaced.
    pub(super) fn new() -> Self {
        Self { gate: Gate::new(), rests: AtomicBool::new(false) }
    }
}

impl ProcessAdapter {
    /// Gives a context of the process the root, by the driver's handle, and enters it by `enter`.
    ///
    /// IRQL: PASSIVE_LEVEL.
    pub(crate) fn admit(&self, device: &crate::device::Device, context: usize, enter: impl FnOnce()) {
        let _admitted = self.roots.gate.shared(self.adapter().kernel());
        set_root(device, context, self.address_space().root());
        enter();
    }

    /// Returns whether packets of the process may begin.
    pub(crate) fn runs_packets(&self) -> bool {
        !self.roots.rests.load(Ordering::Acquire)
    }

    fn packet_contexts(&self) -> Vec<Arc<Context>> {
        self.devices().iter().flat_map(|device| device.contexts()).collect()
    }

    fn hw_contexts(&self) -> Vec<Arc<HwContext>> {
        self.devices().iter().flat_map(|device| device.hw_contexts()).collect()
    }

    /// The root is another: each context gets it, unless one is on an engine. Returns whether they have.
    fn follow(&self, change: impl FnOnce(&AddressSpace)) -> bool {
        let (packets, queues) = (self.packet_contexts(), self.hw_contexts());
        let is_off = packets.iter().all(|context| context.commands().is_idle())
            && queues.iter().all(|context| context.is_suspended() || context.is_invalidated());
        if !is_off {
            return false;
        }
        change(self.address_space());
        let root = self.address_space().root();
        for context in packets {
            let driver = context.driver_handle();
            if driver != 0 {
                set_root(context.device(), driver, root);
            }
        }
        for context in queues {
            let _held = context.hold_now();
            let driver = context.driver_handle();
            if driver != 0 {
                set_root(context.device(), driver, root);
            }
        }
        true
    }
}

/// What the worker of the scheduler was asked for.
enum Asked<F> {
    /// To replace the root.
    Change(F),
    /// It has, or it has not.
    Done(bool),
    /// Nothing any more.
    Nothing,
}

/// Replaces the root of `space` by `change`, and has each context of its process follow. Returns whether that was done;
/// if not, nothing has changed. On the paging worker.
///
/// IRQL: PASSIVE_LEVEL.
pub(crate) fn replace(
    adapter: &Arc<Adapter>,
    space: &AddressSpace,
    change: impl FnOnce(&AddressSpace) + Send + 'static,
) -> bool {
    let Some(part) = adapter.part_with(space) else {
        // Of the process that is being made, or of none that has contexts.
        change(space);
        return true;
    };
    let kernel = adapter.kernel();
    let deadline = kernel.now() + 2 * adapter.personality().tdr.delay;
    let _alone = part.roots.gate.exclusive(kernel);
    part.roots.rests.store(true, Ordering::Release);
    let queues = part.hw_contexts();
    for context in &queues {
        let _held = context.hold_now();
        if context.is_alive() {
            let _ = context.keep_off(Keeper::Root);
        }
    }
    for context in &queues {
        let off = || (!context.is_suspending() || !context.is_alive()).then_some(());
        context.changed.wait_for(kernel, Some(deadline), off);
    }
    for context in part.packet_contexts() {
        let off = || context.commands().is_idle().then_some(());
        context.commands().changed.wait_for(kernel, Some(deadline), off);
    }
    let asked = Arc::new((Lock::new(Rank::Object, Asked::Change(change)), Signal::new()));
    let (work, its) = (asked.clone(), part.clone());
    // On the thread that hands packets over: none is handed over meanwhile.
    let replace = move |adapter: &Arc<Adapter>| {
        let taken = std::mem::replace(&mut *work.0.lock(), Asked::Nothing);
        let Asked::Change(change) = taken else { return };
        let done = its.follow(change);
        *work.0.lock() = Asked::Done(done);
        work.1.notify(adapter.kernel());
    };
    adapter.scheduler.defer(adapter, Box::new(replace));
    let done = || match *asked.0.lock() {
        Asked::Done(done) => Some(done),
        _ => None,
    };
    let mut replaced = asked.1.wait_for(kernel, Some(deadline), done);
    if replaced.is_none() {
        let taken = std::mem::replace(&mut *asked.0.lock(), Asked::Nothing);
        replaced = match taken {
            // The worker never came to it.
            Asked::Change(_) => Some(false),
            Asked::Done(done) => Some(done),
            // It is amid the calls of the driver, which end.
            Asked::Nothing => asked.1.wait_for(kernel, None, done),
        };
    }
    part.roots.rests.store(false, Ordering::Release);
    for context in &queues {
        let _held = context.hold_now();
        if context.is_alive() {
            context.let_on_early(Keeper::Root);
        }
    }
    adapter.scheduler.kick(adapter);
    replaced.unwrap_or(false)
}
