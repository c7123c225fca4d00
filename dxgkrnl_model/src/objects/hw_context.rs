//! Hardware contexts.
//!
//! Source: article user-mode-work-submission; DDI pages of the functions.
//!
//! Chosen: a context is created resumed, gets its root page table and then its scheduling properties (normal band).

pub(crate) mod suspension;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use wddm_abi::{
    DXGK_CREATECONTEXTFLAGS, DXGKARG_CREATEHWCONTEXT, DXGKARG_SETCONTEXTSCHEDULINGPROPERTIES, NTSTATUS, ntstatus,
};

use suspension::Suspension;
pub(crate) use suspension::{Acknowledgement, Keeper, Suspend};

use crate::objects::command::Commands;
use crate::objects::device::Device;
use crate::objects::hw_queue::HwQueue;
use crate::objects::priority::Priority;
use crate::objects::scheduling_log::SchedulingLogSet;
use crate::port::alive::make_room;
use crate::port::ddi::{self, call_ddi};
use crate::port::handle::{DriverHandle, KernelHandle, KernelObject};
use crate::port::miniport::Miniport;
use crate::port::rules::paging::OBJECT_HANDLE;
use crate::port::sync::{Admission, Gate, Lock, Naming, Rank, Signal};
use crate::port::tdr::Tdr;

/// A hardware context.
#[derive(Debug)]
pub(crate) struct HwContext {
    device: Arc<Device>,
    node: u32,
    handle: KernelHandle<HwContext>,
    driver: DriverHandle,
    /// Whether `DxgkDdiCreateContext` made it.
    is_context: bool,
    /// Most bytes of private data that the driver takes with a submission; `None`: `DxgkDdiCreateHwContext` made the
    /// context, and its record has no member for that.
    private_size: Option<u32>,
    /// `PagingCompanionNodeId`; `None` as above.
    companion_node: Option<u32>,
    suspension: Lock<Suspension>,
    /// A suspension was acknowledged.
    pub(crate) changed: Signal,
    queues: Lock<Vec<Weak<HwQueue>>>,
    /// As clients have set it.
    priority: Lock<Priority>,
    /// Entered by the thread that changes the priority and tells the driver of it.
    changing: Gate,
    /// Thunks that make something of it.
    pub(crate) users: Naming,
    /// Waits and signals of the context while none of its queues takes part in them.
    commands: Commands,
    /// The driver said that its engine's reset has ended it.
    invalidated: AtomicBool,
    /// Whoever takes it off the run list because its device is lost, or destroys it.
    ending: Gate,
    /// Whether a progress fence of its queues has shown that it ran.
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

impl KernelObject for HwContext {
    const KIND: &'static str = "hardware context";
}

impl HwContext {
    /// Every live hardware context of an adapter.
    pub(crate) fn all_of(adapter: &Miniport) -> Vec<Arc<Self>> {
        Device::all_of(adapter).iter().flat_map(|device| device.hw_contexts()).collect()
    }

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
        let logs = SchedulingLogSet::of(device.adapter());
        logs.making(node);
        let made = match way {
            Way::CreateContext(flags) => {
                crate::objects::context::create_in_driver(device, &handle, (node, affinity), private, flags)
                    .map(|made| (made.driver, Some(made.private_size), Some(made.companion_node)))
            }
            Way::CreateHwContext => {
                create_in_driver(device, &handle, (node, affinity), private).map(|driver| (driver, None, None))
            }
        };
        let (driver, private_size, companion_node) = made.inspect_err(|_| logs.made(node, None))?;
        let context = Arc::new(Self {
            device: device.clone(),
            node,
            handle,
            driver: DriverHandle::of_number(driver),
            is_context: matches!(way, Way::CreateContext(_)),
            private_size,
            companion_node,
            suspension: Lock::new(Rank::Node, Suspension::new()),
            changed: Signal::new(),
            queues: Lock::new(Rank::Registry, Vec::new()),
            priority: Lock::new(Rank::Leaf, Priority::default()),
            changing: Gate::new(),
            users: Naming::new(),
            commands: Commands::new(),
            invalidated: AtomicBool::new(false),
            ending: Gate::new(),
            ran: AtomicBool::new(false),
        });
        logs.made(node, Some(&context));
        context.handle.bind(&context);
        device.process().admit(device, context.driver_handle(), || device.add_hw_context(&context));
        // Judged there; a context that the driver would not schedule so is made all the same.
        let _ = context.set_properties(|_| ());
        Ok(context)
    }

    /// `PagingCompanionNodeId`; `None`: the context was made by a function whose record has no such member.
    pub(crate) fn companion_node(&self) -> Option<u32> {
        self.companion_node
    }

    /// Notes the last value of a progress fence of its queues: above 0, the context has run.
    pub(crate) fn note_progress(&self, value: u64) {
        // The driver may complete buffers of a null-rendering context itself, and Dxgkrnl completes those of a lost
        // device: neither shows that the context ran.
        if value != 0 && !self.commands.renders_nothing() && self.device.usable().is_ok() {
            self.ran.store(true, Ordering::Release);
        }
    }

    /// The priorities that clients have set.
    pub(crate) fn priority(&self) -> Priority {
        *self.priority.lock()
    }

    /// Changes the priorities, and tells the driver.
    ///
    /// IRQL: PASSIVE_LEVEL.
    ///
    /// # Errors
    /// What the driver returned, or STATUS_INVALID_PARAMETER when the context is gone: nothing has changed.
    pub(crate) fn set_priority(&self, change: impl FnOnce(&mut Priority)) -> Result<(), NTSTATUS> {
        let _alone = self.changing.exclusive(self.device.adapter().kernel());
        let _held = self.hold();
        if !self.is_alive() {
            return Err(ntstatus::STATUS_INVALID_PARAMETER);
        }
        let before = self.priority();
        change(&mut self.priority.lock());
        let status = self.set_properties(|_| ());
        if status.is_success() {
            return Ok(());
        }
        *self.priority.lock() = before;
        Err(status)
    }

    /// Tells the driver how the context is scheduled: as clients would have it, but for what `change` changes. Returns
    /// the driver's status.
    ///
    /// IRQL: PASSIVE_LEVEL.
    pub(crate) fn set_properties(&self, change: impl FnOnce(&mut DXGKARG_SETCONTEXTSCHEDULINGPROPERTIES)) -> NTSTATUS {
        let adapter = self.device.adapter();
        let mut arguments = DXGKARG_SETCONTEXTSCHEDULINGPROPERTIES::zeroed();
        arguments.hContext = self.driver.raw();
        self.priority().store(&mut arguments);
        arguments.quantum = 400_000;
        arguments.gracePeriodSamePriority = 100_000;
        arguments.gracePeriodLowerPriority = 100_000;
        change(&mut arguments);
        let (miniport, pointer) = (adapter.context(), &raw const arguments);
        let status = ddi::status(call_ddi!(adapter, DxgkDdiSetContextSchedulingProperties(miniport, pointer)));
        adapter.judge_resume("DxgkDdiSetContextSchedulingProperties", status);
        status
    }

    pub(crate) fn device(&self) -> &Arc<Device> {
        &self.device
    }

    pub(crate) fn node(&self) -> u32 {
        self.node
    }

    /// The driver's handle, as a number; 0 once it is destroyed.
    pub(crate) fn driver_handle(&self) -> usize {
        self.driver.number()
    }

    /// Returns whether `DxgkDdiCreateContext` made the context, as opposed to `DxgkDdiCreateHwContext`.
    pub(crate) fn is_context(&self) -> bool {
        self.is_context
    }

    /// Most bytes of private data of a submission; `None`: the driver could not say (`DxgkDdiCreateHwContext`).
    pub(crate) fn private_size(&self) -> Option<usize> {
        self.private_size.map(|size| size as usize)
    }

    /// Whether the driver has not been told to destroy it.
    pub(crate) fn is_alive(&self) -> bool {
        self.driver.is_alive()
    }

    /// Keeps the context in the driver until what is returned is dropped, where it is there now.
    ///
    /// IRQL: PASSIVE_LEVEL.
    pub(crate) fn hold(&self) -> Admission<'_> {
        self.ending.shared(self.device.adapter().kernel())
    }

    /// [`hold`](Self::hold), which waits for nobody. `None`: the context is being taken off the run list for good, or
    /// destroyed.
    ///
    /// IRQL: PASSIVE_LEVEL.
    pub(crate) fn hold_now(&self) -> Option<Admission<'_>> {
        self.ending.shared_now(self.device.adapter().kernel())
    }

    /// Waits and signals of the context itself; buffers are never among them.
    pub(crate) fn commands(&self) -> &Commands {
        &self.commands
    }

    /// A queue was made on it.
    pub(crate) fn add_queue(&self, queue: &Arc<HwQueue>) {
        let mut queues = self.queues.lock();
        make_room(&mut queues);
        queues.push(Arc::downgrade(queue));
    }

    /// Live queues.
    pub(crate) fn queues(&self) -> Vec<Arc<HwQueue>> {
        self.queues.lock().iter().filter_map(Weak::upgrade).filter(|queue| queue.is_alive()).collect()
    }

    /// The device of these contexts is lost: off the run list, all of them asked before any acknowledgement is waited
    /// for (for at most the TDR delay), and then doorbells gone for good.
    ///
    /// IRQL: PASSIVE_LEVEL.
    pub(crate) fn abort_all(adapter: &Arc<Miniport>, contexts: &[Arc<Self>]) {
        // Entered for all of them until they are off: meanwhile the watch puts none back.
        let ending: Vec<_> = contexts.iter().map(|context| context.ending.exclusive(adapter.kernel())).collect();
        let is_asked =
            |context: &&Arc<Self>| context.acknowledges() && matches!(context.suspend(), Suspend::Pending(_));
        let asked: Vec<_> = contexts.iter().filter(is_asked).cloned().collect();
        suspension::await_suspensions(adapter, &asked);
        drop(ending);
        for context in contexts {
            context.commands.drop_all();
            context.queues().iter().for_each(|queue| queue.abort());
        }
    }

    /// Waits until the context's own waits and signals are carried out, but for what a wait holds up.
    ///
    /// IRQL: PASSIVE_LEVEL.
    pub(crate) fn drain(&self) {
        let adapter = self.device.adapter();
        self.commands.changed.wait_for(adapter.kernel(), None, || {
            let over = self.commands.is_settled() || self.device.usable().is_err() || !adapter.is_working();
            over.then_some(())
        });
    }

    /// Returns whether the driver has the context, and no reset takes it off the run list: a suspension that is asked
    /// for is acknowledged.
    pub(crate) fn acknowledges(&self) -> bool {
        let adapter = self.device.adapter();
        adapter.is_working()
            && self.is_alive()
            && !self.invalidated.load(Ordering::Acquire)
            && !Tdr::of(adapter).is_resetting(self.node)
    }

    /// Calls `DxgkDdiDestroyContext` or `DxgkDdiDestroyHwContext`, as the context was made. A second call does nothing.
    /// A suspension that is waited for is acknowledged before.
    ///
    /// IRQL: PASSIVE_LEVEL.
    pub(crate) fn destroy(self: &Arc<Self>) {
        self.device.process().forget_companion(self.driver_handle());
        let adapter = self.device.adapter();
        let mut ending = self.ending.exclusive(adapter.kernel());
        // Twice: the watch may have asked for another suspension meanwhile. A driver that owes both was reset.
        for _ in 0..2 {
            if !(self.is_suspending() && self.acknowledges()) {
                break;
            }
            // Outside of the lock: a reset for the sake of the acknowledgement aborts contexts, perhaps this one.
            drop(ending);
            suspension::await_suspension(adapter, self);
            ending = self.ending.exclusive(adapter.kernel());
        }
        let Some(driver) = self.driver.take() else { return };
        self.commands.drop_all();
        if self.is_context {
            crate::objects::context::destroy_in_driver(adapter, driver);
        } else {
            let handle = crate::port::handle::of_driver(driver);
            let status = ddi::status(call_ddi!(adapter, DxgkDdiDestroyHwContext(handle)));
            adapter.judge_destroy("DxgkDdiDestroyHwContext", status);
        }
        SchedulingLogSet::of(adapter).destroyed(adapter, self, driver, self.ran.load(Ordering::Acquire));
        drop(ending);
    }
}

/// Calls `DxgkDdiCreateHwContext` and returns the driver's handle, as a number. `place`: node and engine affinity.
///
/// # Errors
/// What the driver returned.
fn create_in_driver(
    device: &Arc<Device>,
    handle: &KernelHandle<HwContext>,
    place: (u32, u32),
    private: &mut [u8],
) -> Result<usize, NTSTATUS> {
    let adapter = device.adapter();
    let mut arguments = DXGKARG_CREATEHWCONTEXT::zeroed();
    arguments.hHwContext = handle.raw();
    let at = adapter.known_caps().place(place.0);
    (arguments.NodeOrdinal, arguments.EngineAffinity) =
        (at.node, adapter.personality().affinity.of(place.1, at.engine));
    adapter.note_affinity(arguments.EngineAffinity);
    if !private.is_empty() {
        arguments.pPrivateDriverData = private.as_mut_ptr().cast();
        // CAST: limited by the thunk.
        arguments.PrivateDriverDataSize = private.len() as u32;
    }
    let owner = crate::port::handle::of_driver(device.driver_handle());
    let pointer = &raw mut arguments;
    let status = ddi::status(call_ddi!(adapter, DxgkDdiCreateHwContext(owner, pointer)));
    if !status.is_success() {
        return Err(status);
    }
    let made = arguments.hHwContext.expose_provenance();
    judge_handle(adapter, "DxgkDdiCreateHwContext", made, handle);
    Ok(made)
}

pub(crate) fn judge_handle<T>(adapter: &Miniport, ddi: &str, made: usize, ours: &KernelHandle<T>) {
    let fine = made != 0 && made as u64 != ours.value();
    adapter.rules().check(&OBJECT_HANDLE, fine, || format!("{ddi} left {made:#x}"));
}
