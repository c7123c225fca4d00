//! What one driver knows of a process: [`ProcessAdapter`], a process on one adapter.

use std::any::Any;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use wddm_abi::{DXGKARG_CREATEPROCESS, NTSTATUS, ntstatus};

use super::ProcessInner;
use super::root::Roots;
use crate::memory::fence::kept::Kept;
use crate::memory::page_table::Purpose;
use crate::memory::paging::PagingError;
use crate::memory::space::{AddressSpace, Content, Owner};
use crate::memory::{Job, Manager, VidMm};
use crate::objects::companion::Privileged;
use crate::objects::device::Device;
use crate::objects::doorbell::DoorbellPages;
use crate::objects::fence::shown::FenceStorage;
use crate::port::caps::Caps;
use crate::port::ddi::{self, call_ddi};
use crate::port::handle::{DriverHandle, KernelHandle, KernelObject};
use crate::port::miniport::Miniport;
use crate::port::rules::paging::OBJECT_HANDLE;
use crate::port::sync::{Lock, Rank};

/// A process on one adapter: the driver's process object and the GPU virtual address space.
#[derive(Debug)]
pub(crate) struct ProcessAdapter {
    adapter: Arc<Miniport>,
    process: Weak<ProcessInner>,
    /// The number of that Windows process; of the paging process 0.
    number: u64,
    handle: KernelHandle<ProcessAdapter>,
    driver: DriverHandle,
    space: Arc<AddressSpace>,
    devices: Lock<Vec<Arc<Device>>>,
    /// The privileged address space, once page tables were updated in order with work: a [`Privileged`], which has
    /// contexts. Its type is erased, since the compiler follows types of fields in circles, up to a limit.
    privileged: Lock<Option<Arc<dyn Any + Send + Sync>>>,
    pub(crate) fences: FenceStorage,
    pub(crate) doorbells: DoorbellPages,
    pub(super) roots: Roots,
    /// The adapter is being stopped under the process.
    is_left: AtomicBool,
}

impl KernelObject for ProcessAdapter {
    const KIND: &'static str = "process";
}

impl ProcessAdapter {
    /// What each process has of an adapter; the paging process is not among them.
    pub(crate) fn all_of(adapter: &Miniport) -> impl Iterator<Item = Arc<Self>> {
        let processes = ProcessInner::all_of(adapter.shared()).into_iter();
        processes.filter_map(|process| process.gpu_process_by(|known| core::ptr::eq(known, adapter)))
    }

    fn new(adapter: &Arc<Miniport>, process: Option<&Arc<ProcessInner>>, caps: &Caps) -> Arc<Self> {
        let owner = if process.is_some() { Owner::Process } else { Owner::Paging };
        let this = Arc::new(Self {
            adapter: adapter.clone(),
            process: process.map(Arc::downgrade).unwrap_or_default(),
            number: process.map_or(0, |process| process.nt().id()),
            handle: KernelHandle::reserve(),
            driver: DriverHandle::none(),
            space: Arc::new(AddressSpace::new(caps, adapter.personality().pte_address, owner)),
            devices: Lock::new(Rank::Registry, Vec::new()),
            privileged: Lock::new(Rank::Registry, None),
            fences: FenceStorage::new(),
            doorbells: DoorbellPages::new(),
            roots: Roots::new(),
            is_left: AtomicBool::new(false),
        });
        this.handle.bind(&this);
        this
    }

    /// Makes the paging process: its tables are initialized by its maker.
    pub(crate) fn create_system(adapter: &Arc<Miniport>, caps: &Caps) -> Result<Arc<Self>, NTSTATUS> {
        let this = Self::new(adapter, None, caps);
        // Without GPU virtual addresses a driver need not know processes.
        if caps.is_gpu_mmu() || adapter.table().DxgkDdiCreateProcess.is_some() {
            this.create_in_driver("")?;
        }
        Ok(this)
    }

    pub(super) fn create(adapter: &Arc<Miniport>, process: Option<&Arc<ProcessInner>>) -> Result<Arc<Self>, NTSTATUS> {
        let manager = VidMm::of(adapter).manager().ok_or(ntstatus::STATUS_DEVICE_REMOVED)?;
        let this = Self::new(adapter, process, &manager.caps);
        this.create_in_driver(process.map_or("", |process| process.nt.name()))?;
        let made = this.clone();
        let initialized =
            manager.run_on_worker(adapter, move |adapter, manager| made.initialize_tables(adapter, manager));
        match initialized {
            Some(Ok(())) => Ok(this),
            Some(Err(error)) => {
                this.destroy();
                Err(crate::memory::residency::status_of(error))
            }
            None => Err(ntstatus::STATUS_SYSTEM_SHUTDOWN),
        }
    }

    fn create_in_driver(&self, name: &str) -> Result<(), NTSTATUS> {
        let mut name: Vec<u16> = name.encode_utf16().chain([0]).collect();
        let mut pasids = self.pasids();
        let mut arguments = DXGKARG_CREATEPROCESS::zeroed();
        arguments.hDxgkProcess = self.handle.raw();
        arguments.Flags.set_SystemProcess(self.is_system());
        if !pasids.is_empty() {
            // CAST: one for each physical adapter.
            arguments.NumPasid = pasids.len() as u32;
            arguments.pPasid = pasids.as_mut_ptr();
        }
        if name.len() > 1 {
            // CAST: a process name.
            arguments.ProcessNameLength = (name.len() - 1) as u32;
            arguments.pProcessName = name.as_mut_ptr();
        }
        let (context, pointer) = (self.adapter.context(), &raw mut arguments);
        self.space.set_creating(true);
        let status = ddi::status(call_ddi!(self.adapter, DxgkDdiCreateProcess(context, pointer)));
        self.space.set_creating(false);
        if !status.is_success() {
            return Err(status);
        }
        let made = arguments.hKmdProcess;
        self.adapter.rules().check(&OBJECT_HANDLE, !made.is_null() && made != self.handle.raw(), || {
            "DxgkDdiCreateProcess stored no hKmdProcess".to_owned()
        });
        self.driver.set(made);
        self.space.set_process(made.expose_provenance());
        Ok(())
    }

    /// Its identifiers on the physical adapters; none for a process of user mode.
    ///
    /// Chosen: they count from 1, as long as nothing translates by them.
    ///
    /// Source: DDI page DXGKARG_CREATEPROCESS, NumPasid and pPasid; a system process was seen to have one on an adapter
    /// without an IOMMU of its own.
    fn pasids(&self) -> Vec<u32> {
        let none = !self.is_system() || self.adapter.personality().paging_process.no_pasids;
        if none { Vec::new() } else { (1..=self.adapter.config().links.max(1)).collect() }
    }

    /// The adapter.
    pub(crate) fn adapter(&self) -> &Arc<Miniport> {
        &self.adapter
    }

    /// The process, unless this is the paging process or it has ended.
    pub(crate) fn process(&self) -> Option<Arc<ProcessInner>> {
        self.process.upgrade()
    }

    /// The number of its Windows process, which may have ended; of the paging process 0.
    ///
    /// IRQL: any.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Whether this is the paging process.
    pub(crate) fn is_system(&self) -> bool {
        self.process.strong_count() == 0 && self.process.ptr_eq(&Weak::new())
    }

    /// `hKmdProcess`, as a number.
    pub(crate) fn driver_handle(&self) -> usize {
        self.driver.number()
    }

    pub(crate) fn address_space(&self) -> &Arc<AddressSpace> {
        &self.space
    }

    /// From here on VidMm keeps the page tables up to where allocations lie.
    pub(super) fn enter_space(&self) {
        if let Some(manager) = VidMm::of(&self.adapter).manager() {
            manager.add_space(&self.space);
        }
    }

    /// The privileged address space, if there is one.
    pub(crate) fn privileged(&self) -> Option<Arc<Privileged>> {
        self.privileged.lock().clone()?.downcast().ok()
    }

    /// Stores the privileged address space.
    pub(crate) fn set_privileged(&self, privileged: &Arc<Privileged>) {
        *self.privileged.lock() = Some(privileged.clone());
    }

    /// The context with this handle of the driver's goes, and its companion with it.
    ///
    /// IRQL: PASSIVE_LEVEL, not on the paging worker.
    pub(crate) fn forget_companion(&self, context: usize) {
        if let Some(privileged) = self.privileged() {
            privileged.forget(context);
        }
    }

    /// Makes the root table. On the paging worker, or before it runs.
    pub(crate) fn initialize_tables(&self, adapter: &Arc<Miniport>, manager: &Arc<Manager>) -> Result<(), PagingError> {
        self.space.initialize(adapter, manager)
    }

    /// Its page tables begin anew: their memory was lost. On the paging worker.
    pub(crate) fn tables_begin_anew(&self, adapter: &Arc<Miniport>, manager: &Arc<Manager>) -> Result<(), PagingError> {
        if self.driver_handle() == 0 {
            return Ok(());
        }
        self.space.begin_anew(adapter, manager)?;
        match self.privileged() {
            Some(privileged) => privileged.begin_anew(adapter, manager),
            None => Ok(()),
        }
    }

    /// Gives page table entries a content. On the paging worker, or before it runs.
    pub(crate) fn set_entries(
        &self,
        adapter: &Arc<Miniport>,
        manager: &Arc<Manager>,
        address: u64,
        pages: u64,
        content: &Content,
        purpose: Purpose,
    ) -> Result<(), PagingError> {
        self.space.set(adapter, manager, address, pages, content, purpose)
    }

    pub(crate) fn add_device(&self, device: &Arc<Device>) {
        self.devices.lock().push(device.clone());
    }

    pub(super) fn forget_device(&self, device: &Arc<Device>) {
        self.devices.lock().retain(|other| !Arc::ptr_eq(other, device));
    }

    /// Live devices.
    pub(crate) fn devices(&self) -> Vec<Arc<Device>> {
        self.devices.lock().clone()
    }

    pub(crate) fn take_devices(&self) -> Vec<Arc<Device>> {
        std::mem::take(&mut *self.devices.lock())
    }

    /// The adapter is being stopped under the process: what [`take_from_user`](Self::take_from_user) takes from now on
    /// leaves a copy.
    pub(super) fn begin_to_leave(&self) {
        self.is_left.store(true, Ordering::Release);
    }

    /// Takes away what user mode has mapped at `address`. Where the adapter is being stopped under the process, its
    /// threads may be at work there: they find what was there last (a status that says ABORT, a fence whose waits are
    /// over), and what they store goes nowhere.
    ///
    /// IRQL: PASSIVE_LEVEL.
    pub(crate) fn take_from_user(&self, address: usize) {
        let Some(process) = self.process() else { return };
        let kernel = self.adapter.kernel();
        let has_left = self.is_left.load(Ordering::Acquire) && kernel.leave_copy(process.nt(), address).is_ok();
        if !has_left {
            let _ = kernel.unmap_user(process.nt(), address);
        }
    }

    /// Takes everything of a user process down, on both sides.
    pub(super) fn close(self: &Arc<Self>) {
        if self.driver_handle() == 0 {
            return;
        }
        if let Some(manager) = VidMm::of(&self.adapter).manager() {
            manager.remove_space(&self.space);
        }
        self.doorbells.release(self);
        self.fences.release(self);
        Kept::of(&self.adapter).judge(&self.adapter);
        let devices = self.take_devices();
        drop(devices);
        if let Some(manager) = VidMm::of(&self.adapter).manager() {
            let this = self.clone();
            let job: Job = Box::new(move |_, manager| {
                if let Some(privileged) = this.privileged() {
                    privileged.take_down(manager);
                }
                let privileged = this.privileged.lock().take();
                drop(privileged);
                this.space.take_down(manager);
            });
            manager.post(&self.adapter, job);
            manager.run_on_worker(&self.adapter, |_, _| ());
        }
        self.destroy();
    }

    /// `DxgkDdiDestroyProcess`. A second call does nothing.
    pub(crate) fn destroy(&self) {
        let Some(driver) = self.driver.take() else { return };
        self.space.set_process(0);
        let handle = crate::port::handle::of_driver(driver);
        let context = self.adapter.context();
        let status = ddi::status(call_ddi!(self.adapter, DxgkDdiDestroyProcess(context, handle)));
        if let Some(manager) = VidMm::of(&self.adapter).manager() {
            manager.set_gone_process(driver);
        }
        self.adapter.judge_destroy("DxgkDdiDestroyProcess", status);
    }
}
