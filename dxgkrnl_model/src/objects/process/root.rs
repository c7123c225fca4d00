//! The root page table of a process, as its contexts have it: one that is replaced is replaced in all of them, while
//! none is on an engine.
//!
//! Source: DDI page DxgkDdiSetRootPageTable. Chosen: how contexts come off: packets come to an end, and no other
//! begins; contexts of hardware queues are suspended. What is not off within twice TdrDelay keeps its root.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::ProcessAdapter;
use crate::memory::space::AddressSpace;
use crate::objects::context::{Context, set_root};
use crate::objects::hw_context::{HwContext, Keeper};
use crate::port::miniport::Miniport;
use crate::port::sync::{Gate, Lock, Rank, Signal};
use crate::port::worker::Worker;

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
    pub(crate) fn admit(&self, device: &crate::objects::device::Device, context: usize, enter: impl FnOnce()) {
        let _admitted = self.roots.gate.shared(self.adapter().kernel());
        set_root(device, context, self.address_space().root());
        enter();
    }

    /// Returns whether packets of the process may begin.
    pub(crate) fn runs_packets(&self) -> bool {
        !self.roots.rests.load(Ordering::Acquire)
    }

    /// Companions are in another space.
    fn packet_contexts(&self) -> Vec<Arc<Context>> {
        let contexts = self.devices().into_iter().flat_map(|device| device.contexts());
        contexts.filter(|context| !context.is_companion()).collect()
    }

    fn hw_contexts(&self) -> Vec<Arc<HwContext>> {
        self.devices().iter().flat_map(|device| device.hw_contexts()).collect()
    }

    /// The root is another: each context gets it, unless one is on an engine. Returns whether they have.
    fn follow(&self, change: impl FnOnce(&AddressSpace)) -> bool {
        let (packets, queues) = (self.packet_contexts(), self.hw_contexts());
        let are_off =
            packets.iter().all(|context| context.commands().is_idle()) && queues.iter().all(|context| is_off(context));
        if !are_off {
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
            // One that goes meanwhile runs no more.
            let held = context.hold_now();
            let driver = context.driver_handle();
            if held.is_some() && driver != 0 {
                set_root(context.device(), driver, root);
            }
        }
        true
    }
}

/// Returns whether nothing of a context of hardware queues is on its engine.
fn is_off(context: &HwContext) -> bool {
    context.is_suspended() || context.is_invalidated() || !context.is_alive()
}

/// What the worker of the scheduler is asked for, and what came of it.
struct Asked<F> {
    /// `None`: the worker has begun, or it is too late.
    change: Option<F>,
    done: Option<bool>,
}

/// Replaces the root of `space` by `change`, and has each context of its process follow. Returns whether that was done;
/// if not, nothing has changed. On the paging worker.
///
/// IRQL: PASSIVE_LEVEL.
pub(crate) fn replace(
    adapter: &Arc<Miniport>,
    space: &AddressSpace,
    change: Box<dyn FnOnce(&AddressSpace) + Send>,
) -> bool {
    let Some(gpu_process) = ProcessAdapter::all_of(adapter)
        .find(|gpu_process| core::ptr::eq(&raw const **gpu_process.address_space(), space))
    else {
        // Of a process that is being made: it has no contexts.
        change(space);
        return true;
    };
    let kernel = adapter.kernel();
    let deadline = kernel.now() + 2 * adapter.personality().tdr.delay;
    let _alone = gpu_process.roots.gate.exclusive(kernel);
    gpu_process.roots.rests.store(true, Ordering::Release);
    let queues = gpu_process.hw_contexts();
    for context in &queues {
        if let Some(_held) = context.hold_now() {
            let _ = context.is_alive().then(|| context.keep_off(Keeper::Root));
        }
    }
    for context in &queues {
        context.changed.wait_for(kernel, Some(deadline), || is_off(context).then_some(()));
    }
    for context in gpu_process.packet_contexts() {
        let off = || context.commands().is_idle().then_some(());
        context.commands().changed.wait_for(kernel, Some(deadline), off);
    }
    let asked = Arc::new((Lock::new(Rank::Object, Asked { change: Some(change), done: None }), Signal::new()));
    let (work, its) = (asked.clone(), gpu_process.clone());
    // On the thread that hands packets over: none is handed over meanwhile.
    let replace = move |adapter: &Arc<Miniport>| {
        let Some(change) = work.0.lock().change.take() else { return };
        let done = its.follow(change);
        work.0.lock().done = Some(done);
        work.1.notify(adapter.kernel());
    };
    Worker::of(adapter).defer(adapter, Box::new(replace));
    let wait = |deadline| asked.1.wait_for(kernel, deadline, || asked.0.lock().done);
    let replaced = wait(Some(deadline)).or_else(|| {
        // Where the worker has begun, the calls of the driver that it is amid end.
        let is_late = asked.0.lock().change.take().is_some();
        if is_late { Some(false) } else { wait(None) }
    });
    gpu_process.roots.rests.store(false, Ordering::Release);
    for context in &queues {
        if let Some(_held) = context.hold_now() {
            let _ = context.is_alive().then(|| context.let_on_early(Keeper::Root));
        }
    }
    Worker::of(adapter).kick(adapter);
    replaced.unwrap_or(false)
}
