//! Hardware contexts.
//!
//! Source: article user-mode-work-submission; DDI pages of the functions.
//!
//! Chosen: a context is created resumed, gets its root page table and then its scheduling properties (normal band).

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use wddm_abi::{
    DXGK_CREATECONTEXTFLAGS, DXGK_SCHEDULING_PRIORITY_BAND, DXGKARG_CREATEHWCONTEXT, DXGKARG_RESUMECONTEXT,
    DXGKARG_SETCONTEXTSCHEDULINGPROPERTIES, DXGKARG_SUSPENDCONTEXT, NTSTATUS, ntstatus,
};

use crate::adapter::Adapter;
use crate::ddi::{self, call_ddi};
use crate::device::Device;
use crate::handle::{KernelHandle, KernelObject};
use crate::hw_queue::HwQueue;
use crate::process::judge_destroy;
use crate::rules::paging::OBJECT_HANDLE;
use crate::rules::queue::SUSPEND_STATUS;
use crate::sync::{Gate, Lock, Rank, Signal};
use crate::vidsch::judge_resume;

/// First suspend fence.
const FIRST_SUSPEND_FENCE: u64 = 0x5_0000_0001;

#[derive(Debug)]
struct Suspension {
    next: u64,
    /// The fence that the driver has to acknowledge.
    awaited: Option<u64>,
    /// Fences that nobody waits for any more: the context was resumed, or suspended again, before their acknowledgement.
    superseded: Vec<u64>,
    suspended: bool,
}

/// A hardware context.
#[derive(Debug)]
pub(crate) struct HwContext {
    device: Arc<Device>,
    node: u32,
    handle: KernelHandle,
    driver: AtomicUsize,
    /// It was made by `DxgkDdiCreateContext`.
    is_context: bool,
    /// Bytes of private data that the driver takes with each submission; `None`: it could not say.
    private_size: Option<u32>,
    suspension: Lock<Suspension>,
    /// A suspension was acknowledged.
    pub(crate) changed: Signal,
    queues: Lock<Vec<Weak<HwQueue>>>,
    /// The driver said that its engine's reset has ended it.
    invalidated: AtomicBool,
    /// Whoever takes it off the run list because its device is lost, or destroys it.
    ending: Gate,
    /// Its queues' buffers are not rendered.
    null_rendering: AtomicBool,
    /// A progress fence of its queues has said that it ran.
    ran: AtomicBool,
}

/// Which DDI makes a hardware context.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Way {
    /// `DxgkDdiCreateContext` with these flags, `HwQueueSupported` among them; `DxgkDdiDestroyContext` ends it.
    CreateContext(DXGK_CREATECONTEXTFLAGS),
    /// `DxgkDdiCreateHwContext`, whose flags are all reserved; `DxgkDdiDestroyHwContext` ends it.
    CreateHwContext,
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

impl HwContext {
    /// Makes a context.
    ///
    /// # Errors
    /// What the driver returned.
    pub(crate) fn create(
        device: &Arc<Device>,
        node: u32,
        affinity: u32,
        way: Way,
        private: &mut [u8],
    ) -> Result<Arc<Self>, NTSTATUS> {
        let handle = KernelHandle::reserve();
        let logs = &device.adapter().scheduling_logs;
        logs.making(node);
        let made = match way {
            Way::CreateContext(flags) => {
                crate::context::create_in_driver(device, &handle, (node, affinity), private, flags)
                    .map(|made| (made.driver, Some(made.private_size)))
            }
            Way::CreateHwContext => {
                create_in_driver(device, &handle, (node, affinity), private).map(|driver| (driver, None))
            }
        };
        let (driver, private_size) = made.inspect_err(|_| logs.made(node, None))?;
        let context = Arc::new(Self {
            device: device.clone(),
            node,
            handle,
            driver: AtomicUsize::new(driver),
            is_context: matches!(way, Way::CreateContext(_)),
            private_size,
            suspension: Lock::new(
                Rank::Node,
                Suspension { next: FIRST_SUSPEND_FENCE, awaited: None, superseded: Vec::new(), suspended: false },
            ),
            changed: Signal::new(),
            queues: Lock::new(Rank::Registry, Vec::new()),
            invalidated: AtomicBool::new(false),
            ending: Gate::new(),
            null_rendering: AtomicBool::new(false),
            ran: AtomicBool::new(false),
        });
        logs.made(node, Some(&context));
        context.handle.bind(KernelObject::HwContext(Arc::downgrade(&context)));
        device.add_hw_context(&context);
        crate::context::set_root(device, context.driver_handle());
        context.set_properties();
        Ok(context)
    }

    /// What `D3DDDI_CREATECONTEXTFLAGS.NullRendering` says: each submission completes, and is not executed.
    pub(crate) fn set_null_rendering(&self, null: bool) {
        self.null_rendering.store(null, Ordering::Release);
    }

    pub(crate) fn renders_nothing(&self) -> bool {
        self.null_rendering.load(Ordering::Acquire)
    }

    /// A progress fence of its queues has this value.
    pub(crate) fn note_progress(&self, value: u64) {
        // Of a context that renders nothing the driver may end the buffers itself, and of a device that is lost Dxgkrnl ends them.
        if value != 0 && !self.renders_nothing() && self.device.usable().is_ok() {
            self.ran.store(true, Ordering::Release);
        }
    }

    fn set_properties(&self) {
        let adapter = self.device.adapter();
        let mut arguments = DXGKARG_SETCONTEXTSCHEDULINGPROPERTIES::zeroed();
        arguments.hContext = core::ptr::with_exposed_provenance_mut(self.driver_handle());
        arguments.priorityBand = DXGK_SCHEDULING_PRIORITY_BAND::DXGK_SCHEDULING_PRIORITY_BAND_NORMAL;
        arguments.quantum = 400_000;
        arguments.gracePeriodSamePriority = 100_000;
        arguments.gracePeriodLowerPriority = 100_000;
        let (miniport, pointer) = (adapter.context(), &raw const arguments);
        let status = ddi::status(call_ddi!(adapter, DxgkDdiSetContextSchedulingProperties(miniport, pointer)));
        judge_resume(adapter, "DxgkDdiSetContextSchedulingProperties", status);
    }

    pub(crate) fn device(&self) -> &Arc<Device> {
        &self.device
    }

    pub(crate) fn node(&self) -> u32 {
        self.node
    }

    /// The driver's handle, as a number; 0 once it is destroyed.
    pub(crate) fn driver_handle(&self) -> usize {
        self.driver.load(Ordering::Acquire)
    }

    /// Whether `DxgkDdiCreateContext` made it, as opposed to `DxgkDdiCreateHwContext`.
    pub(crate) fn is_context(&self) -> bool {
        self.is_context
    }

    /// Most bytes of private data of a submission; `None`: the driver was not asked.
    pub(crate) fn private_size(&self) -> Option<usize> {
        self.private_size.map(|size| size as usize)
    }

    /// Whether the driver has not been told to destroy it.
    pub(crate) fn is_alive(&self) -> bool {
        self.driver_handle() != 0
    }

    /// A queue was made on it.
    pub(crate) fn add_queue(&self, queue: &Arc<HwQueue>) {
        self.queues.lock().push(Arc::downgrade(queue));
    }

    /// Live queues.
    pub(crate) fn queues(&self) -> Vec<Arc<HwQueue>> {
        self.queues.lock().iter().filter_map(Weak::upgrade).filter(|queue| queue.is_alive()).collect()
    }

    /// Whether the driver owes this acknowledgement.
    pub(crate) fn is_awaited(&self, fence: u64) -> bool {
        self.suspension.lock().awaited == Some(fence)
    }

    /// Whether this acknowledgement comes too late to matter; each counts once.
    ///
    /// Source: DXGKARG_SUSPENDCONTEXT, Remarks ("distinguish between the previous suspend acknowledgement and the latest one").
    pub(crate) fn take_superseded(&self, fence: u64) -> bool {
        let mut suspension = self.suspension.lock();
        let at = suspension.superseded.iter().position(|old| *old == fence);
        at.map(|at| suspension.superseded.swap_remove(at)).is_some()
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
        adapter.scheduler.kick(adapter);
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
        arguments.hContext = core::ptr::with_exposed_provenance_mut(self.driver_handle());
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

    /// Lets the driver schedule it again.
    ///
    /// IRQL: PASSIVE_LEVEL.
    pub(crate) fn resume(&self) {
        {
            let mut suspension = self.suspension.lock();
            if !suspension.suspended {
                return;
            }
            suspension.suspended = false;
        }
        let adapter = self.device.adapter();
        let mut arguments = DXGKARG_RESUMECONTEXT::zeroed();
        arguments.hContext = core::ptr::with_exposed_provenance_mut(self.driver_handle());
        let (miniport, pointer) = (adapter.context(), &raw const arguments);
        let status = ddi::status(call_ddi!(adapter, DxgkDdiResumeContext(miniport, pointer)));
        judge_resume(adapter, "DxgkDdiResumeContext", status);
    }

    /// [`resume`](Self::resume), also of a context whose suspension the driver has yet to acknowledge.
    ///
    /// IRQL: PASSIVE_LEVEL.
    pub(crate) fn resume_early(&self) {
        {
            let mut suspension = self.suspension.lock();
            let old = suspension.awaited.take();
            suspension.suspended |= old.is_some();
            suspension.superseded.extend(old);
        }
        self.resume();
    }

    /// A reset has ended it.
    pub(crate) fn invalidate(&self) {
        self.invalidated.store(true, Ordering::Release);
        let mut suspension = self.suspension.lock();
        suspension.awaited = None;
    }

    /// Its device is lost: off the run list (waiting for the acknowledgement for at most the TDR delay), doorbells gone
    /// for good.
    ///
    /// IRQL: PASSIVE_LEVEL.
    pub(crate) fn abort(self: &Arc<Self>) {
        let adapter = self.device.adapter();
        let ending = self.ending.exclusive(adapter.kernel());
        if adapter.is_working()
            && self.is_alive()
            && !self.invalidated.load(Ordering::Acquire)
            && !adapter.tdr.is_resetting(self.node)
            && matches!(self.suspend(), Suspend::Pending(_))
        {
            crate::tdr::await_suspension(adapter, self);
        }
        drop(ending);
        for queue in self.queues() {
            queue.abort();
        }
    }

    /// `DxgkDdiDestroyContext` or `DxgkDdiDestroyHwContext`, as it was made. A second call does nothing. A suspension that is waited for is acknowledged before.
    ///
    /// IRQL: PASSIVE_LEVEL.
    pub(crate) fn destroy(&self) {
        let _ending = self.ending.exclusive(self.device.adapter().kernel());
        let driver = self.driver.swap(0, Ordering::AcqRel);
        if driver == 0 {
            return;
        }
        let adapter = self.device.adapter();
        if self.is_context {
            crate::context::destroy_in_driver(adapter, driver);
        } else {
            let handle = core::ptr::with_exposed_provenance_mut(driver);
            let status = ddi::status(call_ddi!(adapter, DxgkDdiDestroyHwContext(handle)));
            judge_destroy(adapter, "DxgkDdiDestroyHwContext", status);
        }
        adapter.scheduling_logs.destroyed(adapter, self, driver, self.ran.load(Ordering::Acquire));
    }
}

/// `DxgkDdiCreateHwContext`: the driver's handle. `place`: node and engine affinity.
fn create_in_driver(
    device: &Arc<Device>,
    handle: &KernelHandle,
    place: (u32, u32),
    private: &mut [u8],
) -> Result<usize, NTSTATUS> {
    let adapter = device.adapter();
    let mut arguments = DXGKARG_CREATEHWCONTEXT::zeroed();
    arguments.hHwContext = handle.raw();
    (arguments.NodeOrdinal, arguments.EngineAffinity) = place;
    if !private.is_empty() {
        arguments.pPrivateDriverData = private.as_mut_ptr().cast();
        // CAST: limited by the thunk.
        arguments.PrivateDriverDataSize = private.len() as u32;
    }
    let owner = core::ptr::with_exposed_provenance_mut(device.driver_handle());
    let pointer = &raw mut arguments;
    let status = ddi::status(call_ddi!(adapter, DxgkDdiCreateHwContext(owner, pointer)));
    if !status.is_success() {
        return Err(status);
    }
    let made = arguments.hHwContext.expose_provenance();
    judge_handle(adapter, "DxgkDdiCreateHwContext", made, handle);
    Ok(made)
}

pub(crate) fn judge_handle(adapter: &Adapter, ddi: &str, made: usize, ours: &KernelHandle) {
    let fine = made != 0 && made as u64 != ours.value();
    adapter.rules().check(&OBJECT_HANDLE, fine, || format!("{ddi} left {made:#x}"));
}
