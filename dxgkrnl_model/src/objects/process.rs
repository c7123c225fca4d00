//! Processes: what user mode has of the graphics kernel, and what the driver of each adapter has.
//!
//! A process opens adapters, makes devices on them and everything else on devices; all of it has handles in the
//! process's table. [`ProcessAdapter`] is what the driver knows: its process object, and the GPU virtual address space.
//!
//! Chosen: `DxgkDdiCreateProcess` is called when a process first opens an adapter, `DxgkDdiDestroyProcess` when the
//! process ends or the adapter stops.

mod adapter;
pub(crate) mod lockout;
mod object;
mod other;
mod reservations;
pub(crate) mod root;
mod rundown;

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, Weak};

use nt_model::{Entered, InProcess, Machine};
use wddm_abi::{D3DKMT_HANDLE, NTSTATUS};

use crate::memory::allocation::Allocation;
use crate::objects::context::Context;
use crate::objects::device::Device;
use crate::objects::doorbell::Doorbell;
use crate::objects::fence::monitored::MonitoredFence;
use crate::objects::fence::native::LocalFence;
use crate::objects::hw_context::HwContext;
use crate::objects::hw_queue::HwQueue;
use crate::objects::open_allocation::{OpenAllocation, OpenResource};
use crate::objects::paging_queue::PagingQueue;
use crate::port::handle::{HandleTable, HandleType};
use crate::port::miniport::Miniport;
use crate::port::power::Power;
use crate::port::shared::Shared;
use crate::port::sync::{Admission, Lock, Rank};
pub(crate) use adapter::ProcessAdapter;
use lockout::Hangs;
pub(crate) use object::UserObject;
pub(crate) use other::OtherProcess;
pub use other::ProcessRights;
use reservations::Reservations;
use rundown::Rundown;
pub(crate) use rundown::{Admitted, AtEnd};

/// `D3DKMT_SCHEDULINGPRIORITYCLASS_NORMAL`.
const NORMAL_CLASS: i32 = 2;

/// How a process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It returns: work that was submitted finishes first.
    Normal,
    /// It is terminated: its devices are put into the error state and its queues suspended first.
    Terminated,
}

/// Typed look-ups in the handle table.
macro_rules! look_ups {
    ($($(#[$meta:meta])* $name:ident: $variant:ident, $kind:ident => $type:ty;)*) => {
        impl ProcessInner {$(
            $(#[$meta])*
            pub(crate) fn $name(&self, handle: D3DKMT_HANDLE) -> Option<Arc<$type>> {
                match self.handles.lock().get(handle, HandleType::$kind)? {
                    UserObject::$variant(object) => Some(object),
                    _ => None,
                }
            }
        )*}
    };
}

look_ups! {
    /// The process on an adapter that it opened.
    adapter: Adapter, Adapter => ProcessAdapter;
    /// A device.
    device: Device, Device => Device;
    /// A packet context.
    context: Context, Context => Context;
    /// A hardware context.
    hw_context: HwContext, HwContext => HwContext;
    /// A hardware queue.
    hw_queue: HwQueue, HwQueue => HwQueue;
    /// A paging queue.
    paging_queue: PagingQueue, PagingQueue => PagingQueue;
    /// An allocation.
    allocation: Allocation, Allocation => OpenAllocation;
    /// A resource.
    resource: Resource, Resource => OpenResource;
    /// A monitored fence.
    monitored_fence: Monitored, SyncObject => MonitoredFence;
    /// A native fence.
    native_fence: Native, NativeFence => LocalFence;
    /// A doorbell.
    doorbell: Doorbell, Doorbell => Doorbell;
}

/// A process, as the graphics kernel keeps it.
pub(crate) struct ProcessInner {
    shared: Weak<Shared>,
    nt: Arc<nt_model::Process>,
    handles: Lock<HandleTable<UserObject>>,
    gpu_processes: Lock<Vec<Arc<ProcessAdapter>>>,
    /// Its threads inside thunks.
    rundown: Rundown,
    /// It may control recovery by escapes.
    trusted: AtomicBool,
    /// What it has hung.
    pub(crate) hangs: Hangs,
    /// Its scheduling priority: a `D3DKMT_SCHEDULINGPRIORITYCLASS`.
    pub(crate) class: AtomicI32,
    /// Video memory that it has reserved.
    pub(crate) reservations: Reservations,
}

impl fmt::Debug for ProcessInner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Process").field("nt", &self.nt).finish_non_exhaustive()
    }
}

/// The processes of a machine.
struct Processes(Lock<Vec<Arc<ProcessInner>>>);

impl Default for Processes {
    fn default() -> Self {
        Self(Lock::new(Rank::Os, Vec::new()))
    }
}

impl ProcessInner {
    /// The processes of a machine.
    pub(crate) fn all_of(shared: &Shared) -> Vec<Arc<Self>> {
        let Processes(list) = shared.extension();
        list.lock().clone()
    }

    /// Enters it among those of its machine.
    fn enter(self: &Arc<Self>, shared: &Shared) {
        let Processes(list) = shared.extension();
        list.lock().push(self.clone());
    }

    /// Takes it out of those of its machine.
    fn leave(&self, shared: &Shared) {
        let Processes(list) = shared.extension();
        let gone = {
            let mut processes = list.lock();
            let at = processes.iter().position(|other| core::ptr::eq(&raw const **other, self));
            at.map(|at| processes.swap_remove(at))
        };
        drop(gone);
    }

    /// Its identity and user address space.
    pub(crate) fn nt(&self) -> &Arc<nt_model::Process> {
        &self.nt
    }

    /// Whether it may control recovery.
    pub(crate) fn is_trusted(&self) -> bool {
        self.trusted.load(Ordering::Acquire)
    }

    pub(crate) fn shared(&self) -> Option<Arc<Shared>> {
        self.shared.upgrade()
    }

    /// Adds an object. `None`: the table is full.
    pub(crate) fn insert(&self, object: UserObject) -> Option<D3DKMT_HANDLE> {
        let kind = object.kind();
        self.handles.lock().insert(kind, object)
    }

    /// A handle whose object comes later. `None`: the table is full.
    pub(crate) fn reserve(&self, kind: HandleType) -> Option<D3DKMT_HANDLE> {
        self.handles.lock().reserve(kind)
    }

    /// Lets a reserved handle lead to its object.
    pub(crate) fn fill(&self, handle: D3DKMT_HANDLE, object: UserObject) {
        self.handles.lock().fill(handle, object);
    }

    /// Takes an object out.
    pub(crate) fn remove(&self, handle: D3DKMT_HANDLE, kind: HandleType) -> Option<UserObject> {
        self.handles.lock().remove(handle, kind)
    }

    /// Handles that are open.
    pub(crate) fn open_handles(&self) -> usize {
        self.handles.lock().len()
    }

    /// The child of a resource; 0 beyond the last.
    pub(crate) fn resource_child(&self, handle: D3DKMT_HANDLE, index: usize) -> D3DKMT_HANDLE {
        self.resource(handle).and_then(|resource| resource.child(index)).unwrap_or(0)
    }

    /// Native fences that it has open.
    pub(crate) fn native_fences(&self) -> Vec<Arc<LocalFence>> {
        let native = |(_, object)| if let UserObject::Native(fence) = object { Some(fence) } else { None };
        self.objects().into_iter().filter_map(native).collect()
    }

    fn objects(&self) -> Vec<(D3DKMT_HANDLE, UserObject)> {
        self.handles.lock().entries()
    }

    /// Whether a fence's handle belongs to a queue or paging queue, and goes with that.
    pub(crate) fn owns_fence(&self, handle: D3DKMT_HANDLE) -> bool {
        self.handles.lock().any(|object| match object {
            UserObject::HwQueue(queue) => queue.progress_handle() == handle,
            UserObject::PagingQueue(queue) => queue.fence_handle() == handle,
            _ => false,
        })
    }

    /// The [`ProcessAdapter`] of `adapter`, made when there is none.
    ///
    /// # Errors
    /// What the driver returned.
    pub(crate) fn open(self: &Arc<Self>, adapter: &Arc<Miniport>) -> Result<Arc<ProcessAdapter>, NTSTATUS> {
        if let Some(known) = self.gpu_process_on(adapter) {
            return Ok(known);
        }
        let made = ProcessAdapter::create(adapter, Some(self))?;
        made.enter_space();
        let mut gpu_processes = self.gpu_processes.lock();
        let raced = gpu_processes.iter().find(|known| Arc::ptr_eq(known.adapter(), adapter)).cloned();
        if raced.is_none() {
            gpu_processes.push(made.clone());
        }
        drop(gpu_processes);
        match raced {
            Some(known) => {
                made.close();
                Ok(known)
            }
            None => Ok(made),
        }
    }

    /// The [`ProcessAdapter`] of `adapter`, if the process has opened it.
    pub(crate) fn gpu_process_on(&self, adapter: &Arc<Miniport>) -> Option<Arc<ProcessAdapter>> {
        self.gpu_processes.lock().iter().find(|known| Arc::ptr_eq(known.adapter(), adapter)).cloned()
    }

    /// Devices' handles of an allocation.
    pub(crate) fn opens_of(&self, allocation: &Arc<Allocation>) -> Vec<Arc<OpenAllocation>> {
        let is_it = |(_, object)| match object {
            UserObject::Allocation(open) if Arc::ptr_eq(open.allocation(), allocation) => Some(open),
            _ => None,
        };
        self.objects().into_iter().filter_map(is_it).collect()
    }

    /// Allocations on `adapter` that the process has open.
    pub(crate) fn allocations_on(&self, adapter: &Arc<Miniport>) -> Vec<Arc<OpenAllocation>> {
        let is_it = |(_, object)| match object {
            UserObject::Allocation(open) => Some(open),
            _ => None,
        };
        let all = self.objects().into_iter().filter_map(is_it);
        all.filter(|open| Arc::ptr_eq(open.allocation().adapter(), adapter)).collect()
    }

    /// The [`ProcessAdapter`] of the adapter that `is_it` picks.
    pub(crate) fn gpu_process_by(&self, is_it: impl Fn(&Miniport) -> bool) -> Option<Arc<ProcessAdapter>> {
        self.gpu_processes.lock().iter().find(|known| is_it(known.adapter())).cloned()
    }

    /// Destroys everything that belongs to `device`, and the device, once nothing is being made of it.
    ///
    /// IRQL: PASSIVE_LEVEL.
    pub(crate) fn destroy_device(&self, device: &Arc<Device>) {
        device.users.close(device.adapter().kernel());
        self.destroy_where(|object| match object {
            UserObject::Device(other) => Arc::ptr_eq(other, device),
            other => other.device().is_some_and(|owner| Arc::ptr_eq(owner, device)),
        });
    }

    /// Destroys a hardware queue and its doorbells, once none is being made.
    ///
    /// IRQL: PASSIVE_LEVEL.
    pub(crate) fn destroy_queue(&self, queue: &Arc<HwQueue>) {
        queue.users.close(queue.adapter().kernel());
        self.destroy_where(|object| match object {
            UserObject::HwQueue(other) => Arc::ptr_eq(other, queue),
            UserObject::Doorbell(doorbell) => Arc::ptr_eq(doorbell.queue(), queue),
            _ => false,
        });
    }

    /// Destroys a hardware context, its queues and their doorbells, once none of them is being made.
    ///
    /// IRQL: PASSIVE_LEVEL.
    pub(crate) fn destroy_hw_context(&self, context: &Arc<HwContext>) {
        context.users.close(context.device().adapter().kernel());
        self.destroy_where(|object| match object {
            UserObject::HwContext(other) => Arc::ptr_eq(other, context),
            UserObject::HwQueue(queue) => Arc::ptr_eq(queue.context(), context),
            UserObject::Doorbell(doorbell) => Arc::ptr_eq(doorbell.queue().context(), context),
            _ => false,
        });
    }

    /// Destroys what these handles name.
    ///
    /// IRQL: PASSIVE_LEVEL.
    pub(crate) fn destroy_made(&self, handles: &[D3DKMT_HANDLE]) {
        self.destroy_all(|handle, _| handles.contains(&handle));
    }

    fn destroy_where(&self, wanted: impl Fn(&UserObject) -> bool) {
        self.destroy_all(|_, object| wanted(object));
    }

    fn destroy_all(&self, wanted: impl Fn(D3DKMT_HANDLE, &UserObject) -> bool) {
        let mut objects: Vec<_> =
            self.objects().into_iter().filter(|(handle, object)| wanted(*handle, object)).collect();
        objects.sort_by_key(|(_, object)| object.order());
        for (handle, object) in objects {
            object.destroy();
            if let UserObject::Device(device) = &object {
                device.process().forget_device(device);
            }
            let removed = self.remove(handle, object.kind());
            drop(removed);
        }
    }

    /// The adapter is being stopped: devices on it are lost.
    pub(crate) fn leave_adapter(self: &Arc<Self>, adapter: &Arc<Miniport>) {
        if let Some(gpu_process) = self.gpu_process_on(adapter) {
            gpu_process.begin_to_leave();
            gpu_process.devices().iter().for_each(Device::stop);
        }
        // What threads inside have made meanwhile goes as well.
        let Some(_stopping) = self.rundown.stop(adapter.kernel()) else { return };
        let Some(gpu_process) = self.gpu_process_on(adapter) else { return };
        gpu_process.begin_to_leave();
        for device in gpu_process.devices() {
            device.stop();
            self.destroy_dependents(&device);
            device.destroy();
        }
        gpu_process.close();
        self.gpu_processes.lock().retain(|other| !Arc::ptr_eq(other, &gpu_process));
    }

    fn destroy_dependents(&self, device: &Arc<Device>) {
        self.destroy_where(|object| object.device().is_some_and(|owner| Arc::ptr_eq(owner, device)));
    }

    /// Disconnects every doorbell of the process, and destroys the allocations that their rings lie in.
    fn take_rings_away(&self) {
        let mut rings = Vec::new();
        for (_, object) in self.objects() {
            if let UserObject::Doorbell(doorbell) = object {
                rings.extend(doorbell.let_go_of_rings());
            }
        }
        self.destroy_where(|object| match object {
            UserObject::Allocation(open) => rings.iter().any(|ring| Arc::ptr_eq(ring, open)),
            _ => false,
        });
    }

    /// Its devices on every adapter.
    fn devices(&self) -> Vec<Arc<Device>> {
        let gpu_processes = self.gpu_processes.lock().clone();
        gpu_processes.iter().flat_map(|gpu_process| gpu_process.devices()).collect()
    }

    /// Wakes those of the process's adapters that sleep: they have their power again.
    ///
    /// IRQL: PASSIVE_LEVEL.
    pub(crate) fn wake_devices(&self) {
        let sleeps = |gpu_process: &&Arc<ProcessAdapter>| Power::of(gpu_process.adapter()).sleep.is_asleep();
        let asleep: Vec<_> = self.gpu_processes.lock().iter().filter(sleeps).cloned().collect();
        for gpu_process in asleep {
            Power::of(gpu_process.adapter()).sleep.end(gpu_process.adapter());
        }
    }

    /// The calling thread is inside a thunk until the guard is dropped. `None`: the process is ending.
    pub(crate) fn admit(self: &Arc<Self>, machine: &Machine) -> Option<Admitted> {
        rundown::admit(self, machine)
    }

    /// Ends the process: no thunk begins any more, those that run come to their end, and everything is destroyed.
    /// Further calls do nothing.
    pub(crate) fn end(self: &Arc<Self>, how: End) {
        let Some(shared) = self.shared() else { return };
        if !self.rundown.begin() {
            return;
        }
        self.wake_devices();
        let gpu_processes = self.gpu_processes.lock().clone();
        match how {
            End::Normal => {
                let _awake = keep_awake(&gpu_processes);
                Device::drain(&self.devices());
            }
            End::Terminated => self.devices().iter().for_each(Device::stop),
        }
        self.rundown.wait(shared.kernel(), || self.devices());
        if how == End::Terminated {
            // Those that threads inside have made meanwhile.
            self.devices().iter().for_each(Device::stop);
        }
        // Behind the rundown: a thread inside may wait for the power itself.
        let _awake = keep_awake(&gpu_processes);
        // Source: article user-mode-work-submission, both terminations: ring, ring control, doorbell, queue.
        if shared.personality().rings_first {
            self.take_rings_away();
        }
        if how == End::Terminated && shared.personality().ends_rudely {
            self.devices().iter().for_each(|device| device.destroy_first());
        }
        self.destroy_where(|_| true);
        let gpu_processes = std::mem::take(&mut *self.gpu_processes.lock());
        gpu_processes.iter().for_each(|gpu_process| gpu_process.close());
        drop(gpu_processes);
        self.rundown.finish();
        let objects = shared.kernel().end_process(&self.nt);
        drop(objects);
        self.leave(&shared);
    }
}

/// Keeps the adapters of `gpu_processes` awake until the guards are dropped: what is waited for runs, and what is
/// destroyed is destroyed with power.
///
/// IRQL: PASSIVE_LEVEL.
fn keep_awake(gpu_processes: &[Arc<ProcessAdapter>]) -> Vec<Admission<'_>> {
    let mut guards = Vec::new();
    for gpu_process in gpu_processes {
        guards.push(Power::of(gpu_process.adapter()).sleep.stay_awake(gpu_process.adapter()));
    }
    guards
}

/// The graphics kernel's object for the process that the calling thread is in.
pub(crate) fn current(machine: &Machine) -> Option<Arc<ProcessInner>> {
    let shared = crate::port::shared::shared_of(machine)?;
    let id = machine.current_process_id();
    ProcessInner::all_of(&shared).into_iter().find(|process| process.nt.id() == id)
}

/// A process that tests and tools hold. Dropping it ends it normally.
pub struct Process {
    inner: Arc<ProcessInner>,
    shared: Arc<Shared>,
}

impl fmt::Debug for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl Process {
    pub(crate) fn new(shared: &Arc<Shared>, name: &str) -> Self {
        let inner = Arc::new(ProcessInner {
            shared: Arc::downgrade(shared),
            nt: shared.kernel().create_process(name),
            handles: Lock::new(Rank::Process, HandleTable::default()),
            gpu_processes: Lock::new(Rank::Registry, Vec::new()),
            rundown: Rundown::new(),
            trusted: AtomicBool::new(false),
            hangs: Hangs::new(),
            class: AtomicI32::new(NORMAL_CLASS),
            reservations: Reservations::new(),
        });
        inner.enter(shared);
        Self { inner, shared: shared.clone() }
    }

    /// Makes the calling host thread a thread of this process until the guard is dropped. Any number of threads may be
    /// inside; thunks act for the process that their thread is in.
    pub fn enter(&self) -> Client {
        let entered = self.shared.kernel().enter();
        let process = self.shared.kernel().enter_process(&self.inner.nt);
        Client { _process: process, _entered: entered }
    }

    /// Makes it one that may force resets (`D3DKMT_ESCAPE_TDRDBGCTRL`): a test's.
    pub fn trust(&self) {
        self.inner.trusted.store(true, Ordering::Release);
    }

    /// Whether it makes no device any more, since it has hung engines too often.
    pub fn is_blocked(&self) -> bool {
        self.inner.hangs.is_blocked()
    }

    /// Its identity, NT handles and user address space.
    pub fn nt(&self) -> &Arc<nt_model::Process> {
        &self.inner.nt
    }

    /// `D3DKMT_HANDLE`s that are open.
    pub fn open_handles(&self) -> usize {
        self.inner.open_handles()
    }

    /// Ends it. Dropping the value ends it normally.
    pub fn end(self, how: End) {
        self.finish(how);
    }

    /// Ends it, although others hold it. Threads may be inside thunks; they are waited for.
    pub fn finish(&self, how: End) {
        let _inside = self.shared.kernel().enter();
        self.inner.end(how);
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.finish(End::Normal);
    }
}

/// The calling thread is in a process while this lives.
#[derive(Debug)]
#[must_use = "the thread leaves the process when the guard is dropped"]
pub struct Client {
    _process: InProcess,
    _entered: Entered,
}
