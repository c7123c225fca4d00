//! Hardware queues.
//!
//! A queue is made for user-mode submission (doorbells, logs, a native progress fence) or for kernel-mode submission
//! (buffers, waits and signals through the OS); each refuses the other's way in.
//!
//! Source: articles user-mode-work-submission, native-gpu-fence-objects; DDI pages of the functions.
//!
//! Chosen: the progress fence of a user-mode queue is native; that of a kernel-mode queue is native where the driver
//! has native fences, unless the personality says otherwise.

mod doorbells;
mod list;
mod standstill;

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use nt_model::Machine;
use nt_model::sched::Ticks;
use wddm_abi::{
    D3DDDI_CREATEHWQUEUEFLAGS, D3DDDI_NATIVEFENCE_TYPE, D3DKMT_HANDLE, DXGKARG_CREATEHWQUEUE,
    DXGKARG_SUBMITCOMMANDTOHWQUEUE, NTSTATUS, Plain, ntstatus,
};

use self::standstill::Standstill;
pub(crate) use self::standstill::drain;
use crate::objects::command::{Commands, Submission};
use crate::objects::doorbell::Doorbell;
use crate::objects::fence::monitored::{self, MonitoredFence};
use crate::objects::fence::native::{LocalFence, PRIVATE_SIZE, Request};
use crate::objects::fence::{AnyFence, Target, Wait, wait_for};
use crate::objects::fence_log::FenceLog;
use crate::objects::hw_context::{HwContext, judge_handle};
use crate::objects::process::{ProcessInner, UserObject};
use crate::port::ddi::{self, call_ddi};
use crate::port::handle::{DriverHandle, HandleType, KernelHandle, KernelObject};
use crate::port::miniport::Miniport;
use crate::port::personality::{KernelProgress, PacketCap, ProgressFenceHandle, ProgressOpened};
use crate::port::power::Power;
use crate::port::rules::paging::HW_SUBMIT_STATUS;
use crate::port::rules::tdr::HW_STALL;
use crate::port::sync::{Gate, Lock, Named, Naming, Rank, Signal};
use crate::port::tdr::{DeviceState, QueueWatch, Tdr};

/// The fence that says how far a queue is.
#[derive(Clone, Debug)]
pub(crate) enum Progress {
    Native(Arc<LocalFence>),
    Monitored(Arc<MonitoredFence>),
}

impl Progress {
    fn fence(&self) -> AnyFence {
        match self {
            Self::Native(fence) => AnyFence::Native(fence.fence().clone()),
            Self::Monitored(fence) => AnyFence::Monitored(fence.state().clone()),
        }
    }

    /// The value now.
    pub(crate) fn value(&self) -> u64 {
        self.fence().value()
    }

    fn kernel_address(&self) -> usize {
        match self {
            // A progress fence is of the default type.
            Self::Native(fence) => fence.fence().slot().current().unwrap_or(0),
            Self::Monitored(fence) => fence.state().address(),
        }
    }

    /// User and GPU address.
    pub(crate) fn addresses(&self) -> (usize, u64) {
        match self {
            Self::Native(fence) => (fence.addresses().user, fence.addresses().current),
            Self::Monitored(fence) => (fence.view().user, fence.view().gpu),
        }
    }
}

/// A buffer of a kernel-mode queue that the driver has.
#[derive(Debug)]
struct Flight {
    progress: u64,
    wait: Option<Arc<Wait>>,
}

/// A hardware queue.
#[derive(Debug)]
pub(crate) struct HwQueue {
    context: Arc<HwContext>,
    handle: KernelHandle<HwQueue>,
    driver: DriverHandle,
    /// The thread that destroys the queue: a second one waits until the first is done, and does nothing.
    ending: Gate,
    /// Calls that name the queue to the driver.
    naming: Naming,
    /// Thunks that make something of it.
    pub(crate) users: Naming,
    flags: D3DDDI_CREATEHWQUEUEFLAGS,
    progress: Progress,
    progress_handle: AtomicU32,
    user_handle: AtomicU32,
    log: FenceLog,
    /// One, and a second one while the ring is being resized: the last is the newest.
    doorbells: Lock<Vec<Weak<Doorbell>>>,
    /// What user mode had queued last when a doorbell was destroyed.
    told: AtomicU64,
    commands: Commands,
    flights: Lock<Vec<Flight>>,
    /// What the watch saw last: last queued value, progress, since when.
    pub(crate) watch: Lock<QueueWatch>,
    /// What was submitted was judged not to run.
    given_up: AtomicBool,
    /// User mode was found not to tell what it queues.
    is_untold: AtomicBool,
    /// The process and the handle of the progress fence, which goes with the queue.
    process: Weak<ProcessInner>,
}

/// TdrDelays for which kernel-mode work that is destroyed may make no progress: within these the timeout's detection
/// says what comes of its engine.
pub(crate) const STANDSTILL: Ticks = 5;
/// TdrDelays for which an end waits for work in all.
const ENDS: Ticks = 30;

/// Until when an end that begins now waits for work, however much progress that makes.
pub(crate) fn end_of_wait(adapter: &Miniport) -> Ticks {
    adapter.kernel().now() + ENDS * adapter.personality().tdr.delay
}

impl KernelObject for HwQueue {
    const KIND: &'static str = "hardware queue";
}

impl HwQueue {
    /// Makes a queue and its progress fence.
    ///
    /// # Errors
    /// What the driver returned; STATUS_NOT_SUPPORTED for user-mode submission on a node without it.
    pub(crate) fn create(
        process: &Arc<ProcessInner>,
        context: &Arc<HwContext>,
        flags: D3DDDI_CREATEHWQUEUEFLAGS,
        private: &mut [u8],
    ) -> Result<Arc<Self>, NTSTATUS> {
        let device = context.device();
        let adapter = device.adapter();
        let caps = adapter.known_caps();
        let mut flags = flags;
        let node = caps.node(context.node()).ok_or(ntstatus::STATUS_INVALID_PARAMETER)?;
        if flags.UserModeSubmission() && !node.takes_user_mode_work() {
            return Err(ntstatus::STATUS_NOT_SUPPORTED);
        }
        let readings = adapter.personality().user_mode;
        let native = caps.has_native_fences()
            && (flags.UserModeSubmission() || readings.kernel_progress == KernelProgress::Native);
        flags.set_NativeProgressFence(native);
        let progress = if native {
            let opened = readings.progress_opened == ProgressOpened::Before;
            Progress::Native(LocalFence::create_for_queue(device, &mut progress_request(), opened)?)
        } else {
            Progress::Monitored(MonitoredFence::create(device, monitored::Request::default())?)
        };
        let object = match &progress {
            Progress::Native(fence) => UserObject::Native(fence.clone()),
            Progress::Monitored(fence) => UserObject::Monitored(fence.clone()),
        };
        let Some(progress_handle) = process.insert(object.clone()) else {
            object.destroy();
            return Err(ntstatus::STATUS_NO_MEMORY);
        };
        match Self::create_in_driver(process, context, flags, &progress, progress_handle, private) {
            Ok(queue) => Ok(queue),
            Err(status) => {
                let kind = if native { HandleType::NativeFence } else { HandleType::SyncObject };
                let removed = process.remove(progress_handle, kind);
                drop(removed);
                match &progress {
                    Progress::Native(fence) => fence.destroy(),
                    Progress::Monitored(fence) => fence.destroy(),
                }
                Err(status)
            }
        }
    }

    fn create_in_driver(
        process: &Arc<ProcessInner>,
        context: &Arc<HwContext>,
        flags: D3DDDI_CREATEHWQUEUEFLAGS,
        progress: &Progress,
        progress_handle: D3DKMT_HANDLE,
        private: &mut [u8],
    ) -> Result<Arc<Self>, NTSTATUS> {
        let adapter = context.device().adapter();
        let handle = KernelHandle::reserve();
        let mut record = QueueRecord { record: DXGKARG_CREATEHWQUEUE::zeroed(), appended: 0 };
        let arguments = &mut record.record;
        arguments.hHwQueue = handle.raw();
        arguments.Flags = flags;
        if !private.is_empty() {
            arguments.pPrivateDriverData = private.as_mut_ptr().cast();
            // CAST: limited by the thunk.
            arguments.PrivateDriverDataSize = private.len() as u32;
        }
        arguments.hHwQueueProgressFence = progress_handle;
        arguments.HwQueueProgressFenceCPUVirtualAddress =
            core::ptr::with_exposed_provenance_mut(progress.kernel_address());
        let odd = if adapter.personality().faults.odd_progress { 4 } else { 0 };
        arguments.HwQueueProgressFenceGPUVirtualAddress = progress.addresses().1 + odd;
        if let Progress::Native(fence) = progress {
            record.name_fence(adapter.personality().progress_fence_handle, fence.driver_fence().driver_handle() as u64);
            if adapter.personality().faults.other_progress {
                let others = process.native_fences().into_iter().filter(|other| !Arc::ptr_eq(other, fence));
                let other = others.map(|other| other.driver_fence().driver_handle()).find(|handle| *handle != 0);
                let other = other.unwrap_or(NO_FENCE) as u64;
                record.name_fence(ProgressFenceHandle::At24, other);
                record.name_fence(ProgressFenceHandle::At48, other);
            }
        }
        let owner = crate::port::handle::of_driver(context.driver_handle());
        let pointer = (&raw mut record).cast::<DXGKARG_CREATEHWQUEUE>();
        let status = ddi::status(call_ddi!(adapter, DxgkDdiCreateHwQueue(owner, pointer)));
        if !status.is_success() {
            return Err(status);
        }
        let made = record.record.hHwQueue;
        judge_handle(adapter, "DxgkDdiCreateHwQueue", made.expose_provenance(), &handle);
        let queue = Arc::new(Self {
            context: context.clone(),
            handle,
            driver: DriverHandle::new(made),
            ending: Gate::new(),
            naming: Naming::new(),
            users: Naming::new(),
            flags,
            progress: progress.clone(),
            progress_handle: AtomicU32::new(progress_handle),
            user_handle: AtomicU32::new(0),
            log: FenceLog::new(),
            doorbells: Lock::new(Rank::Registry, Vec::new()),
            told: AtomicU64::new(0),
            commands: Commands::new(),
            flights: Lock::new(Rank::Object, Vec::new()),
            watch: Lock::new(Rank::Leaf, QueueWatch::default()),
            given_up: AtomicBool::new(false),
            is_untold: AtomicBool::new(false),
            process: Arc::downgrade(process),
        });
        queue.handle.bind(&queue);
        context.add_queue(&queue);
        queue.enter(adapter);
        if let Progress::Native(fence) = &queue.progress
            && adapter.personality().user_mode.progress_opened == ProgressOpened::After
            && let Err(status) = fence.open_in_driver(&mut [0; PRIVATE_SIZE])
        {
            queue.destroy_in_driver();
            return Err(status);
        }
        if queue.has_logs()
            && let Err(status) = queue.log.make(&queue)
        {
            queue.destroy_in_driver();
            return Err(status);
        }
        Ok(queue)
    }

    pub(crate) fn context(&self) -> &Arc<HwContext> {
        &self.context
    }

    pub(crate) fn adapter(&self) -> &Arc<Miniport> {
        self.context.device().adapter()
    }

    /// The driver's handle, as a number; 0 once it is destroyed.
    pub(crate) fn driver_handle(&self) -> usize {
        self.driver.number()
    }

    /// Whether the driver has not been told to destroy it.
    pub(crate) fn is_alive(&self) -> bool {
        self.driver.is_alive()
    }

    /// Returns leave to name the queue in a call of the driver. `None`: `DxgkDdiDestroyHwQueue` has begun.
    ///
    /// IRQL: at most DISPATCH_LEVEL.
    pub(crate) fn name(&self) -> Option<Named<'_>> {
        self.naming.name(self.adapter().kernel())
    }

    /// The queue's flags as the driver got them, `NativeProgressFence` included.
    pub(crate) fn flags(&self) -> D3DDDI_CREATEHWQUEUEFLAGS {
        self.flags
    }

    /// Whether work comes through doorbells.
    pub(crate) fn is_user_mode(&self) -> bool {
        self.flags.UserModeSubmission()
    }

    /// Returns whether it has logs of native fences.
    pub(crate) fn has_logs(&self) -> bool {
        let adapter = self.adapter();
        let kernel = adapter.personality().kernel_queue_logs && adapter.known_caps().has_native_fences();
        self.is_user_mode() || kernel
    }

    /// Whether the watch leaves it alone.
    pub(crate) fn is_unwatched(&self) -> bool {
        self.flags.DisableGpuTimeout()
    }

    pub(crate) fn progress(&self) -> &Progress {
        &self.progress
    }

    /// User mode's handle of the progress fence.
    pub(crate) fn progress_handle(&self) -> D3DKMT_HANDLE {
        self.progress_handle.load(Ordering::Acquire)
    }

    /// User mode's handle.
    pub(crate) fn user_handle(&self) -> D3DKMT_HANDLE {
        self.user_handle.load(Ordering::Acquire)
    }

    pub(crate) fn set_user_handle(&self, handle: D3DKMT_HANDLE) {
        self.user_handle.store(handle, Ordering::Release);
    }

    pub(crate) fn log(&self) -> &FenceLog {
        &self.log
    }

    pub(crate) fn commands(&self) -> &Commands {
        &self.commands
    }

    /// Submits what can be. On the scheduler's worker.
    pub(crate) fn pump(self: &Arc<Self>, adapter: &Arc<Miniport>) {
        if self.is_user_mode() {
            return;
        }
        self.retire();
        let limit = match adapter.known_caps().node(self.context.node()).map_or(0, |node| node.max_in_flight()) {
            0 => u32::MAX as usize,
            limit => limit as usize,
        };
        // Of the whole node.
        let cap = match adapter.personality().packet_cap {
            PacketCap::PacketNodes => usize::MAX,
            PacketCap::Nodes => adapter.known_caps().packet_cap(),
        };
        let has_room = || {
            let reset = Tdr::of(adapter).is_resetting(self.context.node());
            !reset
                && self.context.device().usable().is_ok()
                && !self.context.is_suspended()
                && !self.context.is_suspending()
                && self.flights.lock().len() < limit
                && (cap == usize::MAX || Self::buffers_on(adapter, self.context.node()) < cap)
        };
        self.commands.pump(adapter, has_room, |mut submission| self.submit(adapter, &mut submission), |_| ());
    }

    /// The buffers that were submitted will not be done: waits for their end return.
    pub(crate) fn give_up(&self, kernel: &Machine) {
        self.given_up.store(true, Ordering::Release);
        self.commands.changed.notify(kernel);
    }

    /// Buffers that the driver has and has not done.
    pub(crate) fn unfinished(&self) -> usize {
        let value = self.progress.value();
        self.flights.lock().iter().filter(|flight| flight.progress > value).count()
    }

    /// Notes what the progress fence says is done.
    fn retire(&self) {
        let value = self.progress.value();
        let always = match &self.progress {
            Progress::Native(fence) => fence.fence().is_always_signaled(),
            Progress::Monitored(_) => false,
        };
        let done = {
            let mut flights = self.flights.lock();
            let before = flights.len();
            flights.retain(|flight| flight.progress > value && !always);
            before - flights.len()
        };
        for _ in 0..done {
            self.commands.completed(self.adapter().kernel());
        }
        if done != 0 {
            self.adapter().rules().check(&HW_STALL, true, String::new);
            // Its buffers may have signaled more than the progress fence.
            monitored::scan::completed(self.adapter(), self.context.device().process());
        }
    }

    /// Returns whether command buffers of the kernel are on their way.
    pub(crate) fn has_flights(&self) -> bool {
        !self.flights.lock().is_empty()
    }

    /// Source: DDI page DXGKARG_SUBMITCOMMANDTOHWQUEUE: the private data is freed when the call returns; it is
    /// overwritten here, so that a driver that comes back to it finds something else.
    fn submit(self: &Arc<Self>, adapter: &Arc<Miniport>, submission: &mut Submission) {
        // The scheduler is woken when the fence gets there. Entered before the call: it may be done inside.
        self.flights.lock().push(Flight { progress: submission.progress, wait: None });
        let fences = [(self.progress.fence(), submission.progress)];
        let wait = wait_for(adapter.kernel(), &fences, false, Target::Scheduler(Arc::downgrade(adapter)));
        if let Some(flight) = self.flights.lock().iter_mut().find(|flight| flight.progress == submission.progress) {
            flight.wait = Some(wait);
        }
        let Some(named) = self.name() else { return };
        let mut arguments = DXGKARG_SUBMITCOMMANDTOHWQUEUE::zeroed();
        arguments.hHwQueue = self.driver.raw();
        arguments.HwQueueProgressFenceId = submission.progress;
        arguments.DmaBufferVirtualAddress = submission.address;
        arguments.DmaBufferSize = submission.size;
        arguments.DmaBufferPrivateDataSize = submission.private_size;
        arguments.pDmaBufferPrivateData = submission.private.as_ptr().cast_mut().cast();
        arguments.HwQueueProgressFenceGpuVa = self.progress.addresses().1;
        arguments.HwQueueProgressFenceCpuVa = core::ptr::with_exposed_provenance_mut(self.progress.kernel_address());
        arguments.Flags.set_NullRendering(self.context.commands().renders_nothing());
        adapter.shared().counters.kernel_submission();
        Power::of(adapter).wake_node(adapter, self.context.node());
        let (miniport, pointer) = (adapter.context(), &raw const arguments);
        let status = ddi::status(call_ddi!(adapter, DxgkDdiSubmitCommandToHwQueue(miniport, pointer)));
        drop(named);
        submission.private.iter().for_each(|word| word.store(FREED, Ordering::Relaxed));
        adapter.rules().check(&HW_SUBMIT_STATUS, ddi::succeeded(status), || {
            format!("progress {:#x}: {status:?}", submission.progress)
        });
        if !status.is_success() {
            self.flights.lock().retain(|flight| flight.progress != submission.progress);
            // Perhaps between two steps of another node's reset.
            self.context.device().fail_later(DeviceState::DmaFault);
            self.commands.lost(adapter.kernel());
        }
    }

    /// Disconnects what doorbells there are, since the queue ends.
    ///
    /// IRQL: PASSIVE_LEVEL.
    fn disconnect_doorbells(&self) {
        for doorbell in self.doorbells() {
            doorbell.disconnect(wddm_abi::D3DDDI_DOORBELLSTATUS::D3DDDI_DOORBELLSTATUS_DISCONNECTED_RETRY);
        }
    }

    /// Waits until everything that was queued is done, or the device fails. Doorbells are gone by then, but for one
    /// that user mode has connected meanwhile, which goes here. Of a user-mode queue the last queued value is user
    /// mode's word; where none of the queues of `standstill` has made progress for one to two TdrDelays, the rest was
    /// never published, or waits for ever, and is given up; so is what is not done at `until`. Returns whether
    /// everything is done.
    ///
    /// Chosen: no page says how long `D3DKMTDestroyHwQueue` and `D3DKMTDestroyDevice` wait for work whose engine
    /// answers.
    ///
    /// IRQL: PASSIVE_LEVEL.
    fn drain(self: &Arc<Self>, standstill: &mut Standstill, until: Ticks) -> bool {
        let adapter = self.adapter();
        let delay = adapter.personality().tdr.delay;
        self.disconnect_doorbells();
        if self.is_user_mode() {
            self.judge_queued();
            let wanted = self.last_queued();
            let fences = [(self.progress.fence(), wanted)];
            let wait = wait_for(adapter.kernel(), &fences, false, Target::Thread(Signal::new()));
            let is_over = || wait.is_over() || self.context.device().usable().is_err() || !adapter.is_working();
            let kernel = adapter.kernel();
            let mut is_done = true;
            // What this one waits for may have gone on while another one was waited for.
            standstill.look(kernel);
            while let Some(signal) = wait.signal() {
                let deadline = (standstill.since() + delay).min(until);
                let over = signal.wait_for(kernel, Some(deadline), || is_over().then_some(()));
                if over.is_some() || kernel.rules.is_stopped() {
                    break;
                }
                if kernel.now() >= until || !standstill.look(kernel) {
                    is_done = false;
                    break;
                }
            }
            crate::objects::fence::cancel(adapter.kernel(), &fences, &wait);
            is_done
        } else {
            let over = || {
                let given_up = self.given_up.load(Ordering::Acquire);
                given_up || self.context.device().usable().is_err() || !adapter.is_working()
            };
            self.commands.drain(adapter.kernel(), STANDSTILL * delay, until, over)
        }
    }

    /// Its device is lost.
    pub(crate) fn abort(&self) {
        self.commands.drop_all();
        let old = std::mem::take(&mut *self.flights.lock());
        drop(old);
        for doorbell in self.doorbells() {
            doorbell.disconnect(wddm_abi::D3DDDI_DOORBELLSTATUS::D3DDDI_DOORBELLSTATUS_DISCONNECTED_ABORT);
        }
    }

    /// The handle is gone. A second call does nothing, and returns when the queue is destroyed.
    ///
    /// IRQL: PASSIVE_LEVEL.
    pub(crate) fn destroy(self: &Arc<Self>) {
        let _ending = self.ending.exclusive(self.adapter().kernel());
        if !self.is_alive() {
            return;
        }
        self.commands.drop_all();
        if self.has_logs() && self.adapter().is_working() {
            crate::objects::fence_log::collect_from(self.adapter(), std::slice::from_ref(self));
        }
        self.log.close(self);
        self.context.note_progress(self.progress.value());
        self.destroy_in_driver();
        self.log.destroy(self);
        let handle = self.progress_handle();
        if let Some(process) = self.process.upgrade() {
            match &self.progress {
                Progress::Native(fence) => {
                    let removed = process.remove(handle, HandleType::NativeFence);
                    fence.destroy();
                    drop(removed);
                }
                Progress::Monitored(fence) => {
                    let removed = process.remove(handle, HandleType::SyncObject);
                    fence.destroy();
                    drop(removed);
                }
            }
        }
    }

    fn destroy_in_driver(&self) {
        // Until the driver has returned, interrupts may name the queue: the handle is forgotten afterwards.
        let driver = self.driver.number();
        if driver == 0 {
            return;
        }
        let handle = crate::port::handle::of_driver(driver);
        let adapter = self.adapter();
        self.naming.close(adapter.kernel());
        let status = ddi::status(call_ddi!(adapter, DxgkDdiDestroyHwQueue(handle)));
        self.driver.clear();
        adapter.judge_destroy("DxgkDdiDestroyHwQueue", status);
    }
}

/// What private data reads as once it is freed.
const FREED: u64 = 0xF4EE_DF4E_EDF4_EEDF;

/// A driver's handle that it never gave out.
const NO_FENCE: usize = 0x5EC2_E75E_0000;

/// `DXGKARG_CREATEHWQUEUE` with eight bytes behind it.
#[repr(C)]
struct QueueRecord {
    record: DXGKARG_CREATEHWQUEUE,
    appended: u64,
}

impl QueueRecord {
    /// Names the native fence where the personality has it.
    fn name_fence(&mut self, place: ProgressFenceHandle, handle: u64) {
        match place {
            ProgressFenceHandle::At24 => {
                self.record.as_bytes_mut()[24..32].copy_from_slice(&handle.to_le_bytes());
            }
            ProgressFenceHandle::At48 => self.appended = handle,
            ProgressFenceHandle::Nowhere => self.record.hHwQueueProgressFence = 0,
        }
    }
}

fn progress_request() -> Request {
    Request {
        kind: D3DDDI_NATIVEFENCE_TYPE::D3DDDI_NATIVEFENCE_TYPE_DEFAULT,
        initial: 0,
        shared: false,
        cross_adapter: false,
        private: [0; PRIVATE_SIZE],
    }
}
