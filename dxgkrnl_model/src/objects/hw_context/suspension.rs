//! Suspension of hardware contexts: off the run list, and on it again.
//!
//! Source: DDI pages DxgkDdiSuspendContext, DXGKARG_SUSPENDCONTEXT, DxgkDdiResumeContext.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use wddm_abi::{DXGKARG_RESUMECONTEXT, DXGKARG_SUSPENDCONTEXT, ntstatus};

use super::HwContext;
use crate::objects::hw_queue::HwQueue;
use crate::port::ddi::{self, call_ddi};
use crate::port::hook::Hook;
use crate::port::miniport::Miniport;
use crate::port::rules::queue::{SUSPEND_ACK, SUSPEND_STATUS};
use crate::port::worker::Worker;

/// First suspend fence.
const FIRST_SUSPEND_FENCE: u64 = 0x5_0000_0001;

/// How a context stands on its engine's run list.
#[derive(Debug)]
pub(super) struct Suspension {
    next: u64,
    /// The fence that the driver has to acknowledge.
    awaited: Option<u64>,
    /// Suspend fences whose acknowledgement changes nothing any more: the context was resumed, or suspended again,
    /// before it came.
    superseded: Vec<u64>,
    suspended: bool,
    /// A bit for each [`Keeper`] that has taken the context off until it says otherwise. A context that was merely
    /// asked whether its engine answers has none, and is resumed by the scheduler.
    keepers: u8,
}

/// What keeps a context off the run list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keeper {
    /// A test's call, which stands for one of the OS's reasons.
    System = 1,
    /// The device is without power, or about to be.
    Sleep = 2,
    /// Its process gets another root page table.
    Root = 4,
    /// What its process has made resident is evicted.
    Memory = 8,
}

/// How a suspension began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Suspend {
    /// The driver will acknowledge this fence.
    Pending(u64),
    /// It is suspended.
    Done,
    /// The driver failed.
    Failed,
}

/// What an acknowledgement is to the OS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Acknowledgement {
    /// The driver owes it.
    Awaited,
    /// The context was resumed, or suspended again, before it came.
    Late,
    /// The driver was asked for none with this fence, or has given it.
    Unknown,
}

impl Suspension {
    /// A context on the run list.
    pub(super) fn new() -> Self {
        Self { next: FIRST_SUSPEND_FENCE, awaited: None, superseded: Vec::new(), suspended: false, keepers: 0 }
    }
}

/// Resets the engine of a node on which these contexts owe the acknowledgement of their suspension: the recovery enters
/// it as a [`Hook`].
///
/// IRQL: PASSIVE_LEVEL.
pub(crate) type Overdue = fn(&Arc<Miniport>, u32, &[Arc<HwContext>]);

/// [`await_suspensions`] of one context.
///
/// IRQL: PASSIVE_LEVEL.
pub(crate) fn await_suspension(adapter: &Arc<Miniport>, context: &Arc<HwContext>) {
    await_suspensions(adapter, std::slice::from_ref(context));
}

/// Waits for acknowledgements outside the watch, of contexts that have all been asked; an engine that owes any of them
/// for TdrDelay is reset, once for all that it owes.
///
/// IRQL: PASSIVE_LEVEL.
pub(crate) fn await_suspensions(adapter: &Arc<Miniport>, contexts: &[Arc<HwContext>]) {
    let kernel = adapter.kernel();
    let deadline = kernel.now() + adapter.personality().tdr.delay;
    for context in contexts {
        let is_over = || (!context.is_suspending() || !adapter.is_working()).then_some(());
        context.changed.wait_for(kernel, Some(deadline), is_over);
        if adapter.is_working() {
            let acknowledged = !context.is_suspending();
            // An engine that hangs may owe it; one that has nothing to do may not.
            adapter.rules().check(&SUSPEND_ACK, acknowledged || !is_idle(adapter, context.node()), || {
                format!("node {} has nothing to do and did not acknowledge a suspension", context.node())
            });
        }
    }
    for (at, context) in contexts.iter().enumerate() {
        let node = context.node();
        let is_first = contexts[..at].iter().all(|other| other.node() != node);
        let owes = |other: &&Arc<HwContext>| other.node() == node && other.is_suspending();
        let late: Vec<_> = contexts.iter().filter(owes).cloned().collect();
        if is_first
            && !late.is_empty()
            && adapter.is_working()
            && adapter.personality().tdr.enabled
            && let Some(overdue) = Hook::<Overdue>::of(adapter)
        {
            overdue(adapter, node, &late);
        }
    }
}

/// Whether every queue of a node is done with what was queued.
fn is_idle(adapter: &Miniport, node: u32) -> bool {
    let queues = HwQueue::all_of(adapter);
    queues
        .iter()
        .filter(|queue| queue.context().node() == node)
        .all(|queue| queue.progress().value() >= queue.last_queued())
}

impl HwContext {
    /// What the acknowledgement of `fence` is to the OS. One that comes too late to matter counts once.
    ///
    /// Source: DXGKARG_SUSPENDCONTEXT, Remarks ("distinguish between the previous suspend acknowledgement and the
    /// latest one").
    pub(crate) fn hears(&self, fence: u64) -> Acknowledgement {
        // One look: a resumption beside it makes the awaited one a late one.
        let mut suspension = self.suspension.lock();
        if let Some(at) = suspension.superseded.iter().position(|old| *old == fence) {
            suspension.superseded.swap_remove(at);
            return Acknowledgement::Late;
        }
        if suspension.awaited == Some(fence) { Acknowledgement::Awaited } else { Acknowledgement::Unknown }
    }

    /// Whether it owes any.
    pub(crate) fn is_suspending(&self) -> bool {
        self.suspension.lock().awaited.is_some()
    }

    pub(crate) fn is_suspended(&self) -> bool {
        self.suspension.lock().suspended
    }

    /// The driver acknowledged.
    ///
    /// IRQL: at most DISPATCH_LEVEL.
    pub(crate) fn acknowledged(&self, fence: u64) {
        {
            let mut suspension = self.suspension.lock();
            if suspension.awaited != Some(fence) {
                return;
            }
            suspension.awaited = None;
            suspension.suspended = true;
        }
        let adapter = self.device.adapter();
        self.changed.notify(adapter.kernel());
        Worker::of(adapter).kick(adapter);
    }

    /// Asks the driver to take the context off its run list, unless it is off or has been asked.
    ///
    /// IRQL: PASSIVE_LEVEL.
    pub(crate) fn suspend(&self) -> Suspend {
        {
            let suspension = self.suspension.lock();
            if suspension.suspended {
                return Suspend::Done;
            }
            if let Some(fence) = suspension.awaited {
                return Suspend::Pending(fence);
            }
        }
        self.suspend_again()
    }

    /// [`suspend`](Self::suspend), until [`let_on`](Self::let_on).
    ///
    /// IRQL: PASSIVE_LEVEL.
    pub(crate) fn keep_off(&self, keeper: Keeper) -> Suspend {
        self.keep(keeper);
        self.suspend()
    }

    /// The next suspension lasts until `keeper` ends it.
    pub(crate) fn keep(&self, keeper: Keeper) {
        self.suspension.lock().keepers |= keeper as u8;
    }

    /// Returns whether a [`Keeper`] keeps the context off.
    pub(crate) fn is_kept_off(&self) -> bool {
        self.suspension.lock().keepers != 0
    }

    /// The context runs on as far as `keeper` is concerned. As for [`resume`](Self::resume).
    ///
    /// IRQL: PASSIVE_LEVEL.
    pub(crate) fn let_on(&self, keeper: Keeper) {
        self.suspension.lock().keepers &= !(keeper as u8);
        self.resume();
    }

    /// [`let_on`](Self::let_on), also where the driver has yet to acknowledge the suspension.
    ///
    /// IRQL: PASSIVE_LEVEL.
    pub(crate) fn let_on_early(&self, keeper: Keeper) {
        self.suspension.lock().keepers &= !(keeper as u8);
        self.resume_early();
    }

    /// Asks the driver, whatever it was asked before.
    ///
    /// IRQL: PASSIVE_LEVEL.
    pub(crate) fn suspend_again(&self) -> Suspend {
        let fence = {
            let mut suspension = self.suspension.lock();
            let fence = suspension.next;
            suspension.next += 1;
            // Before the call: the driver may acknowledge inside.
            let old = suspension.awaited.replace(fence);
            suspension.superseded.extend(old);
            fence
        };
        let adapter = self.device.adapter();
        let mut arguments = DXGKARG_SUSPENDCONTEXT::zeroed();
        arguments.hContext = self.driver.raw();
        arguments.contextSuspendFence = fence;
        let (miniport, pointer) = (adapter.context(), &raw const arguments);
        let status = ddi::status(call_ddi!(adapter, DxgkDdiSuspendContext(miniport, pointer)));
        let fine =
            matches!(status, ntstatus::STATUS_SUCCESS | ntstatus::STATUS_PENDING | ntstatus::STATUS_SYSTEM_SHUTDOWN);
        adapter.rules().check(&SUSPEND_STATUS, fine, || format!("{status:?}"));
        match status {
            ntstatus::STATUS_PENDING => Suspend::Pending(fence),
            ntstatus::STATUS_SUCCESS => {
                let mut suspension = self.suspension.lock();
                suspension.awaited = None;
                suspension.suspended = true;
                Suspend::Done
            }
            _ => {
                self.suspension.lock().awaited = None;
                Suspend::Failed
            }
        }
    }

    /// Lets the driver schedule the context again, unless a [`Keeper`] keeps it off. The caller [holds](Self::hold) a
    /// context that another thread may destroy.
    ///
    /// IRQL: PASSIVE_LEVEL.
    pub(crate) fn resume(&self) {
        {
            let mut suspension = self.suspension.lock();
            if !suspension.suspended || suspension.keepers != 0 {
                return;
            }
            suspension.suspended = false;
        }
        let adapter = self.device.adapter();
        let mut arguments = DXGKARG_RESUMECONTEXT::zeroed();
        arguments.hContext = self.driver.raw();
        let (miniport, pointer) = (adapter.context(), &raw const arguments);
        let status = ddi::status(call_ddi!(adapter, DxgkDdiResumeContext(miniport, pointer)));
        adapter.judge_resume("DxgkDdiResumeContext", status);
        // What its kernel-mode queues were given meanwhile goes on to the driver.
        Worker::of(adapter).kick(adapter);
    }

    /// [`resume`](Self::resume), also of a context whose suspension the driver has yet to acknowledge.
    ///
    /// IRQL: PASSIVE_LEVEL.
    pub(crate) fn resume_early(&self) {
        {
            let mut suspension = self.suspension.lock();
            if suspension.keepers != 0 {
                return;
            }
            let old = suspension.awaited.take();
            suspension.suspended |= old.is_some();
            suspension.superseded.extend(old);
        }
        self.resume();
    }

    /// Returns whether a reset has ended it.
    pub(crate) fn is_invalidated(&self) -> bool {
        self.invalidated.load(Ordering::Acquire)
    }

    /// A reset has ended it. `late`: the driver did not name it, and may acknowledge its suspension still.
    pub(crate) fn invalidate(&self, late: bool) {
        self.invalidated.store(true, Ordering::Release);
        let mut suspension = self.suspension.lock();
        let owed = suspension.awaited.take();
        suspension.superseded.extend(owed.filter(|_| late));
    }
}
