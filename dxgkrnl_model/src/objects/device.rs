//! Devices: what a process makes everything else on, and what is lost as a whole when its work goes wrong.
//!
//! Chosen: a device in an error state accepts nothing but destruction and questions; thunks answer
//! STATUS_DEVICE_REMOVED. Its native fences are signaled for ever ("AlwaysSignaled"), so that no thread or queue waits
//! for what will not come; monitored fences that it made get the largest value, but for those with
//! NoSignalMaxValueOnTdr, and waits of its own threads on them end with that status. What its lists have left, signals
//! among it, is not carried out.

mod idle;

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use wddm_abi::{D3DKMT_DEVICEPAGEFAULT_STATE, DXGKARG_CREATEDEVICE, NTSTATUS, Plain, ntstatus};

use crate::objects::context::Context;
use crate::objects::fence::Wait;
use crate::objects::fence::monitored::MonitoredFence;
use crate::objects::fence::native::{FenceOnAdapter, LocalFence, NativeFence};
use crate::objects::hw_context::HwContext;
use crate::objects::hw_queue::{self, end_of_wait};
use crate::objects::open_allocation::OpenAllocation;
use crate::objects::process::ProcessAdapter;
use crate::port::alive::make_room;
use crate::port::ddi::{self, call_ddi};
use crate::port::handle::{DriverHandle, KernelHandle, KernelObject};
use crate::port::miniport::Miniport;
use crate::port::rules::paging::{OBJECT_HANDLE, OBJECT_STATUS};
use crate::port::sync::{Lock, Naming, Rank, Signal};
use crate::port::tdr::DeviceState;
use crate::port::worker::Worker;

/// A device.
#[derive(Debug)]
pub(crate) struct Device {
    process: Arc<ProcessAdapter>,
    handle: KernelHandle<Device>,
    driver: DriverHandle,
    /// The driver's handle that it had when it was destroyed.
    had: AtomicUsize,
    state: AtomicI32,
    /// The consequences of the state have been drawn.
    failed: AtomicBool,
    /// Its contexts are off the hardware, since it [failed](Self::fail_marked).
    is_off: AtomicBool,
    fault: Lock<Option<PageFault>>,
    contexts: Lock<Vec<Arc<Context>>>,
    hw_contexts: Lock<Vec<Weak<HwContext>>>,
    fences: Lock<Vec<Weak<LocalFence>>>,
    /// Monitored fences that are signaled to the largest value when it is lost.
    monitored: Lock<Vec<Weak<MonitoredFence>>>,
    /// Allocations that it has open.
    opened: Lock<Vec<Weak<OpenAllocation>>>,
    /// Waits of the CPU that name it.
    waits: Lock<Vec<Weak<Wait>>>,
    /// Bytes that user mode has to evict before MakeResident asks for nothing more; `None`: it was not asked to.
    to_trim: Lock<Option<u64>>,
    /// Thunks that make something of it.
    pub(crate) users: Naming,
    /// Something that waits of its threads depend on has changed.
    pub(crate) changed: Signal,
}

/// What a page fault said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PageFault {
    pub(crate) address: u64,
    pub(crate) sequence: u64,
    pub(crate) stage: i32,
    pub(crate) table_entry: u32,
    pub(crate) flags: i32,
    pub(crate) error: u32,
}

impl PageFault {
    /// As `D3DKMTGetDeviceState` returns it.
    pub(crate) fn record(&self) -> D3DKMT_DEVICEPAGEFAULT_STATE {
        let mut record = D3DKMT_DEVICEPAGEFAULT_STATE::zeroed();
        record.FaultedPrimitiveAPISequenceNumber = self.sequence;
        record.FaultedPipelineStage.0 = self.stage;
        record.FaultedBindTableEntry = self.table_entry;
        record.PageFaultFlags.0 = self.flags;
        record.FaultErrorCode.as_bytes_mut().copy_from_slice(&self.error.to_le_bytes());
        record.FaultedVirtualAddress = self.address;
        record
    }
}

impl KernelObject for Device {
    const KIND: &'static str = "device";
}

impl Device {
    /// Every device of every process on an adapter.
    pub(crate) fn all_of(adapter: &Miniport) -> Vec<Arc<Self>> {
        ProcessAdapter::all_of(adapter).flat_map(|gpu_process| gpu_process.devices()).collect()
    }

    /// Makes a device of a process.
    ///
    /// # Errors
    /// What the driver returned.
    pub(crate) fn create(process: &Arc<ProcessAdapter>) -> Result<Arc<Self>, NTSTATUS> {
        if process.process().is_some_and(|process| process.hangs.is_blocked()) {
            return Err(ntstatus::STATUS_ACCESS_DENIED);
        }
        let device = Self::make(process, false)?;
        // What it will submit finds page tables.
        crate::memory::wait_for_tables(process.adapter());
        process.add_device(&device);
        Ok(device)
    }

    /// Over the budget, `bytes` are to be evicted before MakeResident is asked again.
    pub(crate) fn ask_to_trim(&self, bytes: u64) {
        *self.to_trim.lock() = Some(bytes);
    }

    /// User mode has evicted `bytes`.
    pub(crate) fn trimmed(&self, bytes: u64) {
        let mut left = self.to_trim.lock();
        *left = left.map(|left| left.saturating_sub(bytes));
    }

    /// Whether everything was evicted that was to be. Once it was, or when `anyway`, nothing is to be any more.
    pub(crate) fn has_trimmed(&self, anyway: bool) -> bool {
        self.to_trim.lock().take_if(|left| anyway || *left == 0) == Some(0)
    }

    /// Makes the system device.
    pub(crate) fn create_system(process: &Arc<ProcessAdapter>) -> Result<Arc<Self>, NTSTATUS> {
        Self::make(process, true)
    }

    fn make(process: &Arc<ProcessAdapter>, system: bool) -> Result<Arc<Self>, NTSTATUS> {
        let adapter = process.adapter();
        let device = Arc::new(Self {
            process: process.clone(),
            handle: KernelHandle::reserve(),
            driver: DriverHandle::none(),
            had: AtomicUsize::new(0),
            state: AtomicI32::new(DeviceState::Active as i32),
            failed: AtomicBool::new(false),
            is_off: AtomicBool::new(false),
            fault: Lock::new(Rank::Leaf, None),
            contexts: Lock::new(Rank::Registry, Vec::new()),
            hw_contexts: Lock::new(Rank::Registry, Vec::new()),
            fences: Lock::new(Rank::Registry, Vec::new()),
            monitored: Lock::new(Rank::Registry, Vec::new()),
            opened: Lock::new(Rank::Registry, Vec::new()),
            waits: Lock::new(Rank::Registry, Vec::new()),
            to_trim: Lock::new(Rank::Leaf, None),
            users: Naming::new(),
            changed: Signal::new(),
        });
        device.handle.bind(&device);
        let mut arguments = DXGKARG_CREATEDEVICE::zeroed();
        arguments.hDevice = device.handle.raw();
        arguments.Flags_mut().set_SystemDevice(system);
        arguments.hKmdProcess = crate::port::handle::of_driver(process.driver_handle());
        let (context, pointer) = (adapter.context(), &raw mut arguments);
        let status = ddi::status(call_ddi!(adapter, DxgkDdiCreateDevice(context, pointer)));
        judge_creation(adapter, "DxgkDdiCreateDevice", status, &[ntstatus::STATUS_NO_MEMORY])?;
        let made = arguments.hDevice;
        adapter.rules().check(&OBJECT_HANDLE, !made.is_null() && made != device.handle.raw(), || {
            "DxgkDdiCreateDevice stored no hDevice".to_owned()
        });
        device.driver.set(made);
        Ok(device)
    }

    pub(crate) fn process(&self) -> &Arc<ProcessAdapter> {
        &self.process
    }

    pub(crate) fn adapter(&self) -> &Arc<Miniport> {
        self.process.adapter()
    }

    /// The driver's handle, as a number.
    pub(crate) fn driver_handle(&self) -> usize {
        self.driver.number()
    }

    /// The driver's handle, or the one that it had before it was destroyed.
    pub(crate) fn last_driver_handle(&self) -> usize {
        match self.driver_handle() {
            0 => self.had.load(Ordering::Acquire),
            driver => driver,
        }
    }

    /// How it is.
    pub(crate) fn state(&self) -> DeviceState {
        DeviceState::from_raw(self.state.load(Ordering::Acquire))
    }

    /// Refuses everything but destruction once the device is in an error state.
    ///
    /// # Errors
    /// STATUS_DEVICE_REMOVED, or what the personality has instead.
    pub(crate) fn usable(&self) -> Result<(), NTSTATUS> {
        let exception = self.adapter().personality().user_mode.gpu_exception;
        match (self.state() == DeviceState::Active, exception) {
            (true, _) => Ok(()),
            (false, true) => Err(ntstatus::STATUS_GRAPHICS_GPU_EXCEPTION_ON_DEVICE),
            (false, false) => Err(ntstatus::STATUS_DEVICE_REMOVED),
        }
    }

    /// What its last page fault said.
    pub(crate) fn fault(&self) -> Option<PageFault> {
        *self.fault.lock()
    }

    pub(crate) fn set_fault(&self, fault: PageFault) {
        *self.fault.lock() = Some(fault);
    }

    pub(crate) fn add_context(&self, context: &Arc<Context>) {
        self.contexts.lock().push(context.clone());
    }

    pub(crate) fn take_contexts(&self) -> Vec<Arc<Context>> {
        std::mem::take(&mut *self.contexts.lock())
    }

    pub(crate) fn forget_context(&self, context: &Arc<Context>) {
        self.contexts.lock().retain(|other| !Arc::ptr_eq(other, context));
    }

    /// Live packet contexts.
    pub(crate) fn contexts(&self) -> Vec<Arc<Context>> {
        self.contexts.lock().clone()
    }

    pub(crate) fn add_hw_context(&self, context: &Arc<HwContext>) {
        let mut contexts = self.hw_contexts.lock();
        make_room(&mut contexts);
        contexts.push(Arc::downgrade(context));
    }

    /// Live hardware contexts.
    pub(crate) fn hw_contexts(&self) -> Vec<Arc<HwContext>> {
        self.hw_contexts.lock().iter().filter_map(Weak::upgrade).filter(|context| context.is_alive()).collect()
    }

    pub(crate) fn add_fence(&self, fence: &Arc<LocalFence>) {
        let mut fences = self.fences.lock();
        make_room(&mut fences);
        fences.push(Arc::downgrade(fence));
    }

    /// A monitored fence that the device can signal.
    pub(crate) fn add_monitored_fence(&self, fence: &Arc<MonitoredFence>) {
        let mut fences = self.monitored.lock();
        make_room(&mut fences);
        fences.push(Arc::downgrade(fence));
    }

    /// An allocation is opened in it.
    pub(crate) fn add_opened(&self, open: &Arc<OpenAllocation>) {
        let mut opened = self.opened.lock();
        make_room(&mut opened);
        opened.push(Arc::downgrade(open));
    }

    /// Allocations that it has open.
    pub(crate) fn opened(&self) -> Vec<Arc<OpenAllocation>> {
        self.opened.lock().iter().filter_map(Weak::upgrade).collect()
    }

    /// Whether it has an allocation open of which `refers` takes the driver's handle.
    pub(crate) fn owns(&self, refers: impl Fn(usize) -> bool) -> bool {
        self.opened().iter().any(|open| refers(open.allocation().driver_handle()))
    }

    /// Monitored fences that it has open.
    pub(crate) fn monitored_fences(&self) -> Vec<Arc<MonitoredFence>> {
        self.monitored.lock().iter().filter_map(Weak::upgrade).collect()
    }

    /// A wait that names the device: a thread's ends when the device is lost, any other's when it is destroyed.
    pub(crate) fn add_wait(&self, wait: &Arc<Wait>) {
        let mut waits = self.waits.lock();
        make_room(&mut waits);
        waits.push(Arc::downgrade(wait));
    }

    fn waits(&self) -> Vec<Arc<Wait>> {
        self.waits.lock().iter().filter_map(Weak::upgrade).collect()
    }

    fn fences(&self) -> Vec<Arc<LocalFence>> {
        self.fences.lock().iter().filter_map(Weak::upgrade).collect()
    }

    /// Returns whether a native fence that the device has open is `fence` for its driver.
    ///
    /// IRQL: at most DISPATCH_LEVEL.
    pub(crate) fn has_open(&self, fence: &Arc<FenceOnAdapter>) -> bool {
        self.fences().iter().any(|local| Arc::ptr_eq(local.driver_fence(), fence))
    }

    /// Looks at the native fences that it has open. True: waits have ended.
    ///
    /// IRQL: at most DISPATCH_LEVEL.
    pub(crate) fn look_at_fences(&self, adapter: &Miniport) -> bool {
        let fences = self.fences().iter().map(|local| local.fence().clone()).collect();
        NativeFence::looked_at_on(adapter.kernel(), adapter, fences)
    }

    /// Puts the device into an error state: its queues are taken off the hardware, its doorbells disconnected, its
    /// fences signaled for ever. The first reason stands.
    ///
    /// IRQL: PASSIVE_LEVEL.
    pub(crate) fn fail(self: &Arc<Self>, state: DeviceState) {
        self.mark_failed(state);
        self.fail_marked();
    }

    /// [`fail`](Self::fail) for the end of its process: returns when its contexts are off the hardware, also where
    /// another thread has begun that.
    ///
    /// Source: article user-mode-work-submission, Abnormal process termination: suspended first, then disconnected and
    /// destroyed.
    ///
    /// IRQL: PASSIVE_LEVEL; in no recovery.
    pub(crate) fn stop(self: &Arc<Self>) {
        self.fail(DeviceState::Stopped);
        let is_off = || (self.is_off.load(Ordering::Acquire) || !self.adapter().is_working()).then_some(());
        self.changed.wait_for(self.adapter().kernel(), None, is_off);
    }

    /// As [`fail`](Self::fail), for callers inside a recovery: the state is noted at once. What follows from it may
    /// want a recovery of its own, and is left to the scheduler's worker.
    ///
    /// IRQL: at most DISPATCH_LEVEL.
    pub(crate) fn fail_later(self: &Arc<Self>, state: DeviceState) {
        self.mark_failed(state);
        let device = self.clone();
        Worker::of(self.adapter()).defer(self.adapter(), Box::new(move |_| device.fail_marked()));
    }

    /// What follows from the error state; once.
    ///
    /// IRQL: PASSIVE_LEVEL.
    pub(crate) fn fail_marked(self: &Arc<Self>) {
        if self.usable().is_ok() || self.failed.swap(true, Ordering::AcqRel) {
            return;
        }
        let adapter = self.adapter();
        HwContext::abort_all(adapter, &self.hw_contexts());
        for context in self.contexts() {
            context.cancel();
        }
        self.is_off.store(true, Ordering::Release);
        for fence in self.fences() {
            fence.fence().make_always_signaled(adapter.kernel());
        }
        for fence in self.monitored_fences() {
            fence.device_lost(adapter.kernel());
        }
        // Those that set an event stay: their fences may be others'.
        for wait in self.waits() {
            if let Some(signal) = wait.signal() {
                signal.notify(adapter.kernel());
            }
        }
        self.changed.notify(adapter.kernel());
        Worker::of(adapter).kick(adapter);
    }

    /// Only notes the state; the rest follows at PASSIVE_LEVEL. False: it is in an error state already.
    pub(crate) fn mark_failed(&self, state: DeviceState) -> bool {
        let fresh = self.mark(state);
        if fresh
            && state == DeviceState::Hung
            && let Some(process) = self.process.process()
        {
            process.hangs.note(self.adapter(), process.nt().id());
        }
        fresh
    }

    /// As [`mark_failed`](Self::mark_failed), for what its process did not bring about.
    pub(crate) fn mark(&self, state: DeviceState) -> bool {
        let active = DeviceState::Active as i32;
        self.state.compare_exchange(active, state as i32, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Waits until everything that was submitted on devices that end together is done, or they are in an error state;
    /// no longer than for one of them. Where a queue is not done by then, or no queue of any of them has made progress
    /// for one to two TdrDelays, its device goes on as that of a process that is terminated: what runs is taken off
    /// before anything is destroyed.
    ///
    /// Source: article user-mode-work-submission, Abnormal process termination. Chosen: that this follows.
    ///
    /// IRQL: PASSIVE_LEVEL.
    pub(crate) fn drain(devices: &[Arc<Self>]) {
        let Some(first) = devices.first() else { return };
        let until = devices.iter().map(|device| end_of_wait(device.adapter())).max().unwrap_or_default();
        let queues = devices.iter().flat_map(|device| device.hw_contexts()).flat_map(|context| context.queues());
        let left = hw_queue::drain(first.adapter().kernel(), queues.collect(), until);
        for device in devices {
            if left.iter().any(|queue| Arc::ptr_eq(queue.context().device(), device)) {
                device.fail(DeviceState::Stopped);
            }
        }
        for device in devices {
            device.hw_contexts().iter().for_each(|context| context.drain());
            device.contexts().iter().for_each(|context| context.drain(until));
        }
    }

    /// Gives up what waits for fences on it.
    pub(crate) fn abandon_waits(&self) {
        for wait in self.waits() {
            wait.abandon(self.adapter().kernel());
        }
    }

    /// Destroys it before anything that belongs to it, where it has packet contexts alone, of which the driver is not
    /// told any more.
    ///
    /// IRQL: PASSIVE_LEVEL.
    pub(crate) fn destroy_first(&self) {
        if self.hw_contexts().is_empty() {
            self.contexts().iter().for_each(Context::forsake);
            self.destroy();
        }
    }

    /// `DxgkDdiDestroyDevice`. A second call does nothing.
    pub(crate) fn destroy(&self) {
        let Some(driver) = self.driver.take() else { return };
        self.had.store(driver, Ordering::Release);
        self.abandon_waits();
        let handle = crate::port::handle::of_driver(driver);
        let status = ddi::status(call_ddi!(self.adapter(), DxgkDdiDestroyDevice(handle)));
        self.adapter().judge_destroy("DxgkDdiDestroyDevice", status);
    }
}

/// A creation fails with a status that its page lists, or not at all.
///
/// # Errors
/// The status that user mode gets.
pub(crate) fn judge_creation(
    adapter: &Miniport,
    ddi: &str,
    status: NTSTATUS,
    listed: &[NTSTATUS],
) -> Result<(), NTSTATUS> {
    let known = ddi::succeeded(status) || listed.contains(&status);
    adapter.rules().check(&OBJECT_STATUS, known, || format!("{ddi}: {status:?}"));
    if status.is_success() { Ok(()) } else { Err(status) }
}
