//! Doorbells: user addresses that lead to a physical doorbell while it is connected, and to a dummy page otherwise.
//!
//! The address that user mode gets never changes. Connecting and disconnecting rotate what is behind it, atomically and
//! after the driver's function has returned, and store the status that user mode reads. Dummy page, status page and the
//! page of last-queued values belong to a process on an adapter.
//!
//! Source: article user-mode-work-submission; DDI pages of the functions and of D3DKMT_CREATE_DOORBELL.
//!
//! Chosen: what `DxgkDdiConnectDoorbell` returns is the start of a page. Its page lets doorbells share a page, each at
//! an offset of its own; but the user address was handed out before any connection, and stays, so that it could not
//! follow an offset; and it is a page of memory (contiguous memory, pages for an MDL, memory on the device), never
//! pool, since user mode can write all of it. Rings are named to the driver by the handle of `DxgkDdiCreateAllocation`,
//! or by the device's own where the personality says so. `DxgkCbDisconnectDoorbell` rotates before it returns and calls
//! no DDI.
//!
//! Chosen, since a header says no more of `ResizeRingBufferOperation` than that a doorbell is being recreated with a
//! resized ring: with the flag a doorbell may be created behind the destruction of the queue's last one, or beside it;
//! never beside two. Its last queued value begins with that of the old one. The old ring stays resident as long as user
//! mode wants it to: it says by the flag that it keeps it.

pub(crate) mod callbacks;
mod pages;
mod rings;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use nt_model::sched::YieldPoint;
use nt_model::{PAGE_SIZE, PageKind, Rights, UserMapping};
use wddm_abi::{
    D3DDDI_DOORBELLSTATUS, DXGKARG_CONNECTDOORBELL, DXGKARG_CREATEDOORBELL, DXGKARG_DESTROYDOORBELL,
    DXGKARG_DISCONNECTDOORBELL, DXGKARG_NOTIFYWORKSUBMISSION, NTSTATUS, ntstatus,
};

use crate::objects::hw_queue::HwQueue;
use crate::objects::open_allocation::OpenAllocation;
use crate::port::ddi::{self, call_ddi};
use crate::port::handle::{DriverHandle, KernelHandle, KernelObject};
use crate::port::miniport::Miniport;
use crate::port::personality::RingHandle;
use crate::port::poison;
use crate::port::power::Power;
use crate::port::rules::paging::OBJECT_HANDLE;
use crate::port::rules::queue::{DB_ADDRESS, DB_CONNECT, DB_MUST_SUCCEED, DB_PAGE, DB_STATUS};
use crate::port::sync::{Lock, Rank, Signal};

pub(crate) use pages::DoorbellPages;
use pages::{Exposed, Shown, Slot, dummy_mapping};
use rings::Rings;

/// Bytes of private data at most.
pub(crate) const PRIVATE_MAX: usize = 16;

/// Statuses, by short names.
const CONNECTED: D3DDDI_DOORBELLSTATUS = D3DDDI_DOORBELLSTATUS::D3DDDI_DOORBELLSTATUS_CONNECTED;
const CONNECTED_NOTIFY: D3DDDI_DOORBELLSTATUS = D3DDDI_DOORBELLSTATUS::D3DDDI_DOORBELLSTATUS_CONNECTED_NOTIFY_KMD;
const RETRY: D3DDDI_DOORBELLSTATUS = D3DDDI_DOORBELLSTATUS::D3DDDI_DOORBELLSTATUS_DISCONNECTED_RETRY;
const ABORT: D3DDDI_DOORBELLSTATUS = D3DDDI_DOORBELLSTATUS::D3DDDI_DOORBELLSTATUS_DISCONNECTED_ABORT;

#[derive(Debug)]
struct State {
    status: D3DDDI_DOORBELLSTATUS,
    /// Counts disconnections, so that one during a connection is seen.
    generation: u64,
    /// Whether it is destroyed: nothing of it is in user mode any more.
    gone: bool,
    /// Whether a thread changes what is behind its addresses.
    rotates: bool,
}

/// Leave to change what is behind a doorbell's addresses, which one thread has at a time. It is held across the answer
/// of another process, so that no lock may be; nor is it a gate, which lets those pass that are in the driver.
struct Rotation<'a>(&'a Doorbell);

impl Drop for Rotation<'_> {
    fn drop(&mut self) {
        self.0.state.lock().rotates = false;
        self.0.rotated.notify(self.0.queue.adapter().kernel());
    }
}

/// A doorbell.
#[derive(Debug)]
pub(crate) struct Doorbell {
    queue: Arc<HwQueue>,
    handle: KernelHandle<Doorbell>,
    driver: DriverHandle,
    /// Private data as user mode gave them.
    private: Vec<u8>,
    /// Whether the device has been without power since it was connected last.
    had_no_power: AtomicBool,
    /// It is being destroyed: no connection begins any more.
    closing: AtomicBool,
    /// Entered by the thread that destroys it.
    ending: crate::port::sync::Gate,
    /// Whether `DxgkDdiDestroyDoorbell` is under way: the driver may still name the doorbell.
    going: AtomicBool,
    primary: Exposed,
    secondary: Option<Exposed>,
    status_slot: Slot,
    queued_slot: Slot,
    state: Lock<State>,
    rings: Lock<Option<Rings>>,
    /// Connections and disconnections by the OS are one at a time, but for a fault of the personality.
    serial: crate::port::sync::Gate,
    /// A [`Rotation`] has ended.
    rotated: Signal,
    /// The driver has destroyed it.
    ended: Signal,
}

/// What user mode asks for.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) ring: Arc<OpenAllocation>,
    pub(crate) control: Option<Arc<OpenAllocation>>,
    pub(crate) secondary: bool,
    pub(crate) resize: bool,
    /// Private data; changed by the driver.
    pub(crate) private: Vec<u8>,
}

/// Addresses that user mode gets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Addresses {
    pub(crate) doorbell: usize,
    pub(crate) secondary: usize,
    pub(crate) status: usize,
    pub(crate) last_queued: usize,
}

impl KernelObject for Doorbell {
    const KIND: &'static str = "doorbell";
}

impl Doorbell {
    /// Makes a doorbell, disconnected.
    ///
    /// IRQL: PASSIVE_LEVEL.
    ///
    /// # Errors
    /// STATUS_INVALID_PARAMETER, STATUS_NOT_SUPPORTED, STATUS_NO_MEMORY, or what the driver returned.
    pub(crate) fn create(queue: &Arc<HwQueue>, request: &mut Request) -> Result<Arc<Self>, NTSTATUS> {
        let adapter = queue.adapter();
        if !queue.is_user_mode() || request.private.len() > PRIVATE_MAX {
            return Err(ntstatus::STATUS_INVALID_PARAMETER);
        }
        // One beside it may be on its way: the driver decides between the two.
        if queue.doorbells().len() > usize::from(request.resize) {
            return Err(ntstatus::STATUS_INVALID_PARAMETER);
        }
        let rings = Rings::hold(request).ok_or(ntstatus::STATUS_INVALID_PARAMETER)?;
        let caps = adapter.known_caps().user_mode.ok_or(ntstatus::STATUS_NOT_SUPPORTED)?;
        if request.secondary && !caps.Flags.SecondaryDoorbellSupported() {
            return Err(ntstatus::STATUS_NOT_SUPPORTED);
        }
        let gpu_process = queue.context().device().process();
        let pages_of = |bytes: u32| (bytes as usize).div_ceil(PAGE_SIZE).max(1);
        let secondary = request.secondary.then(|| pages_of(caps.SecondaryDoorbellSizeInBytes));
        let shown = Shown::new(gpu_process, pages_of(caps.DoorbellSizeInBytes), secondary)?;
        let Shown { primary, secondary, status_slot, queued_slot } = shown;
        crate::port::raw::store(status_slot.kernel, RETRY.0 as u64);
        // Behind a resize the work in the old ring is still queued.
        let queued = if request.resize { queue.told() } else { 0 };
        crate::port::raw::store(queued_slot.kernel, queued.max(queue.progress().value()));
        let handle = KernelHandle::reserve();
        let private = request.private.clone();
        let made = create_in_driver(queue, request, &handle);
        let doorbell = Arc::new(Self {
            queue: queue.clone(),
            handle,
            driver: DriverHandle::of_number(made.unwrap_or(0)),
            private,
            had_no_power: AtomicBool::new(false),
            closing: AtomicBool::new(false),
            ending: crate::port::sync::Gate::new(),
            going: AtomicBool::new(false),
            primary,
            secondary,
            status_slot,
            queued_slot,
            state: Lock::new(Rank::Object, State { status: RETRY, generation: 0, gone: false, rotates: false }),
            rings: Lock::new(Rank::Registry, Some(rings)),
            serial: crate::port::sync::Gate::new(),
            rotated: Signal::new(),
            ended: Signal::new(),
        });
        if let Err(status) = made {
            doorbell.unexpose();
            return Err(status);
        }
        doorbell.handle.bind(&doorbell);
        queue.add_doorbell(&doorbell);
        Ok(doorbell)
    }

    pub(crate) fn queue(&self) -> &Arc<HwQueue> {
        &self.queue
    }

    /// The driver's handle, as a number; 0 once it is destroyed.
    pub(crate) fn driver_handle(&self) -> usize {
        self.driver.number()
    }

    pub(crate) fn is_alive(&self) -> bool {
        self.driver.is_alive()
    }

    /// Returns whether the driver is being told to destroy it.
    fn is_going(&self) -> bool {
        self.going.load(Ordering::Acquire)
    }

    /// What user mode gets.
    pub(crate) fn addresses(&self) -> Addresses {
        Addresses {
            doorbell: self.primary.user,
            secondary: self.secondary.as_ref().map_or(0, |exposed| exposed.user),
            status: self.status_slot.user,
            last_queued: self.queued_slot.user,
        }
    }

    /// What user mode says it queued last; 0: it is destroyed, and says nothing any more.
    pub(crate) fn last_queued(&self) -> u64 {
        // Behind the destruction the slot may be another doorbell's.
        let state = self.state.lock();
        if state.gone { 0 } else { crate::port::raw::load(self.queued_slot.kernel) }
    }

    /// How it is.
    pub(crate) fn status(&self) -> D3DDDI_DOORBELLSTATUS {
        self.state.lock().status
    }

    /// Returns whether user mode's rings reach the GPU.
    pub(crate) fn is_connected(&self) -> bool {
        matches!(self.status(), CONNECTED | CONNECTED_NOTIFY)
    }

    /// Connects it.
    ///
    /// IRQL: PASSIVE_LEVEL.
    ///
    /// # Errors
    /// STATUS_DEVICE_REMOVED; what the driver returned.
    pub(crate) fn connect(&self) -> Result<(), NTSTATUS> {
        let adapter = self.queue.adapter();
        let kernel = adapter.kernel();
        self.queue.context().device().usable()?;
        let _awake = Power::of(adapter).sleep.stay_awake(adapter);
        let _serial = self.serial.exclusive(kernel);
        self.queue.context().device().usable()?;
        if !self.is_alive() || self.closing.load(Ordering::Acquire) {
            return Err(ntstatus::STATUS_INVALID_PARAMETER);
        }
        if self.status() == ABORT {
            return Err(ntstatus::STATUS_DEVICE_REMOVED);
        }
        if matches!(self.status(), CONNECTED | CONNECTED_NOTIFY) {
            return Ok(());
        }
        if self.had_no_power.load(Ordering::Acquire) && adapter.personality().user_mode.creates_behind_d3 {
            self.create_again()?;
        }
        // Where the driver refused, the next connection has it made again.
        self.had_no_power.store(false, Ordering::Release);
        Power::of(adapter).wake_node(adapter, self.queue.context().node());
        let generation = self.state.lock().generation;
        let mut arguments = DXGKARG_CONNECTDOORBELL::zeroed();
        arguments.hDoorbell = self.driver.raw();
        arguments.Flags.set_RequireSecondaryAddress(self.secondary.is_some());
        arguments.Status = D3DDDI_DOORBELLSTATUS(poison::WORD.cast_signed());
        let pointer = &raw mut arguments;
        let status = ddi::status(call_ddi!(adapter, DxgkDdiConnectDoorbell(pointer)));
        adapter.shared().counters.doorbell_connect();
        let excused = status == ntstatus::STATUS_SYSTEM_SHUTDOWN
            || self.queue.context().device().usable().is_err()
            || adapter.device.edu().is_some_and(|edu| edu.is_gone());
        adapter.rules().check(&DB_CONNECT, status.is_success() || excused, || format!("{status:?}"));
        if !status.is_success() {
            return Err(status);
        }
        let said = arguments.Status;
        adapter.rules().check(&DB_STATUS, matches!(said, CONNECTED | CONNECTED_NOTIFY), || format!("{said:?}"));
        let primary = self.physical(arguments.KernelCpuVirtualAddress.expose_provenance(), &self.primary)?;
        let secondary = match &self.secondary {
            Some(exposed) => {
                Some(self.physical(arguments.SecondaryKernelCpuVirtualAddress.expose_provenance(), exposed)?)
            }
            None => None,
        };
        // Between the driver's return and the rotation the address still leads to the dummy page.
        kernel.yield_point(YieldPoint::Service);
        let rotation = self.rotation();
        if self.state.lock().generation != generation {
            // The driver took it back meanwhile.
            return Ok(());
        }
        let mut is_shown = self.rotate(&self.primary, Some(&primary));
        if let (Some(exposed), Some(mapping)) = (&self.secondary, &secondary) {
            is_shown &= self.rotate(exposed, Some(mapping));
        }
        if !is_shown {
            // A ring would reach the dummy page. The driver hears that the doorbell is not connected.
            drop(rotation);
            self.disconnect_in_driver();
            self.rotate_away(RETRY);
            return Err(ntstatus::STATUS_NO_MEMORY);
        }
        let status = if said == CONNECTED_NOTIFY { CONNECTED_NOTIFY } else { CONNECTED };
        self.set_status(&mut self.state.lock(), status);
        drop(rotation);
        // The engine may have gone to F1 meanwhile.
        Power::of(adapter).wake_node(adapter, self.queue.context().node());
        Ok(())
    }

    /// `DxgkDdiCreateDoorbell` for the doorbell that there is, as the personality has it behind D3.
    ///
    /// # Errors
    /// What the driver returned.
    fn create_again(&self) -> Result<(), NTSTATUS> {
        let allocations = self.rings.lock().as_ref().and_then(Rings::ring_and_control);
        let Some((ring, control)) = allocations else { return Ok(()) };
        let private = self.private.clone();
        let mut request = Request { ring, control, secondary: self.secondary.is_some(), resize: false, private };
        let driver = create_in_driver(&self.queue, &mut request, &self.handle)?;
        self.driver.set(crate::port::handle::of_driver(driver));
        Ok(())
    }

    /// The memory behind a kernel address that the driver named.
    fn physical(&self, address: usize, exposed: &Exposed) -> Result<UserMapping, NTSTATUS> {
        let adapter = self.queue.adapter();
        let found = adapter.kernel().page_at(address);
        let inside = found
            .as_ref()
            .is_some_and(|(object, first, offset)| *offset == 0 && first + exposed.pages <= object.pages());
        let held = adapter.rules().check(&DB_ADDRESS, inside, || match &found {
            Some((object, first, offset)) => format!(
                "{address:#x} is byte {offset} of page {first} of {:?} memory with {} pages; the doorbell has {}",
                object.kind(),
                object.pages(),
                exposed.pages
            ),
            None => format!("{address:#x} is not mapped memory"),
        });
        let (object, first, _) = found.filter(|_| held).ok_or(ntstatus::STATUS_UNSUCCESSFUL)?;
        let whole = matches!(object.kind(), PageKind::Contiguous | PageKind::MdlPages | PageKind::DeviceRam);
        adapter.rules().check(&DB_PAGE, whole, || format!("{address:#x} is {:?} memory", object.kind()));
        // By the type that the driver has it mapped with: all mappings of a page have one.
        let cache = object.cache_of(first);
        Ok(UserMapping { object, first, pages: exposed.pages, rights: Rights::ReadWrite, cache })
    }

    /// Waits until no other thread changes what is behind the addresses.
    ///
    /// IRQL: PASSIVE_LEVEL.
    fn rotation(&self) -> Rotation<'_> {
        let mine = || (!std::mem::replace(&mut self.state.lock().rotates, true)).then_some(());
        // `None`: the machine has stopped.
        let _ = self.rotated.wait_for(self.queue.adapter().kernel(), None, mine);
        Rotation(self)
    }

    /// Every change of what is behind a doorbell's address, by the thread that has the [`Rotation`]. It waits for the
    /// answer of a process of its own. Returns whether it is done; a process that has ended sees nothing any more.
    fn rotate(&self, exposed: &Exposed, to: Option<&UserMapping>) -> bool {
        crate::port::sync::assert_free("a rotation");
        let gpu_process = self.queue.context().device().process();
        let Some(process) = gpu_process.process() else { return true };
        let dummy = dummy_mapping(exposed);
        gpu_process.adapter().kernel().remap_user(process.nt(), exposed.user, to.unwrap_or(&dummy)).is_ok()
    }

    fn set_status(&self, state: &mut State, status: D3DDDI_DOORBELLSTATUS) {
        state.status = status;
        // CAST: statuses are small and positive.
        crate::port::raw::store(self.status_slot.kernel, status.0 as u64);
    }

    /// Rotates the doorbell to its dummy page, then stores `status`, unless the status is ABORT already. Returns
    /// `false`, and does nothing, when the doorbell is destroyed.
    fn rotate_away(&self, status: D3DDDI_DOORBELLSTATUS) -> bool {
        let rotation = self.rotation();
        {
            let mut state = self.state.lock();
            if state.gone {
                return false;
            }
            state.generation += 1;
            if matches!(state.status, CONNECTED | CONNECTED_NOTIFY) {
                self.queue.adapter().shared().counters.doorbell_disconnect();
            }
        }
        let mut is_away = self.rotate(&self.primary, None);
        if let Some(exposed) = &self.secondary {
            is_away &= self.rotate(exposed, None);
        }
        {
            let mut state = self.state.lock();
            if state.status != ABORT {
                self.set_status(&mut state, status);
            }
        }
        drop(rotation);
        if !is_away && let Some(process) = self.queue.context().device().process().process() {
            // The process could not be remapped, and would keep a page that is to be another doorbell's.
            process.nt().end_separate();
        }
        true
    }

    /// Disconnects the doorbell as the OS does: calls `DxgkDdiDisconnectDoorbell`, then rotates the doorbell to its
    /// dummy page and stores `status`. The driver is not called for a doorbell that is disconnected already.
    ///
    /// IRQL: PASSIVE_LEVEL.
    pub(crate) fn disconnect(&self, status: D3DDDI_DOORBELLSTATUS) {
        self.disconnect_if(status, |before| matches!(before, CONNECTED | CONNECTED_NOTIFY));
    }

    /// As [`disconnect`](Self::disconnect), but the driver is called if `wanted` returns `true` for the doorbell's
    /// status before.
    ///
    /// IRQL: PASSIVE_LEVEL.
    pub(crate) fn disconnect_if(
        &self,
        status: D3DDDI_DOORBELLSTATUS,
        wanted: impl FnOnce(D3DDDI_DOORBELLSTATUS) -> bool,
    ) {
        let adapter = self.queue.adapter();
        let is_beside = adapter.personality().faults.disconnects_beside;
        let _serial = (!is_beside).then(|| self.serial.exclusive(adapter.kernel()));
        if wanted(self.status()) && self.is_alive() {
            self.disconnect_in_driver();
            adapter.kernel().yield_point(YieldPoint::Service);
            Self::wait_for_rotation(adapter);
        }
        self.rotate_away(status);
    }

    /// Disconnects the doorbell, since the device is about to lose its power.
    ///
    /// IRQL: PASSIVE_LEVEL.
    pub(crate) fn disconnect_for_d3(&self) {
        self.disconnect(RETRY);
        self.had_no_power.store(true, Ordering::Release);
    }

    /// `DxgkDdiDisconnectDoorbell`.
    fn disconnect_in_driver(&self) {
        let adapter = self.queue.adapter();
        let mut arguments = DXGKARG_DISCONNECTDOORBELL::zeroed();
        arguments.hDoorbell = self.driver.raw();
        let pointer = &raw mut arguments;
        let returned = ddi::status(call_ddi!(adapter, DxgkDdiDisconnectDoorbell(pointer)));
        must_succeed(adapter, "DxgkDdiDisconnectDoorbell", returned);
    }

    /// Takes the time that a rotation takes: user mode goes on to ring the old page, and reads the old status.
    ///
    /// IRQL: PASSIVE_LEVEL.
    fn wait_for_rotation(adapter: &Miniport) {
        let time = adapter.personality().disconnect_time;
        if time != 0 {
            // CAST: a time that tests choose, far below 2^63.
            adapter.kernel().delay_execution(-(time as i64));
        }
    }

    /// `DxgkCbDisconnectDoorbell`: the driver takes it back. Returns `false`, and does nothing, when
    /// `DxgkDdiDestroyDoorbell` returned meanwhile.
    pub(crate) fn disconnected_by_driver(&self, status: D3DDDI_DOORBELLSTATUS) -> bool {
        self.rotate_away(status)
    }

    /// `D3DKMTNotifyWorkSubmission`.
    ///
    /// # Errors
    /// STATUS_DEVICE_REMOVED; what the driver returned.
    pub(crate) fn notify(&self) -> Result<(), NTSTATUS> {
        self.queue.context().device().usable()?;
        let _named = self.queue.name().ok_or(ntstatus::STATUS_INVALID_PARAMETER)?;
        let adapter = self.queue.adapter();
        let mut arguments = DXGKARG_NOTIFYWORKSUBMISSION::zeroed();
        arguments.hHwQueue = crate::port::handle::of_driver(self.queue.driver_handle());
        let pointer = &raw mut arguments;
        let status = ddi::status(call_ddi!(adapter, DxgkDdiNotifyWorkSubmission(pointer)));
        must_succeed(adapter, "DxgkDdiNotifyWorkSubmission", status);
        if status.is_success() { Ok(()) } else { Err(status) }
    }

    /// The handle is gone. A second call does nothing, and returns behind the first.
    ///
    /// IRQL: PASSIVE_LEVEL.
    pub(crate) fn destroy(&self) {
        let adapter = self.queue.adapter();
        let _ending = self.ending.exclusive(adapter.kernel());
        if !self.is_alive() {
            return;
        }
        self.queue.judge_queued();
        // Before the disconnection: what would connect it behind that finds this.
        self.closing.store(true, Ordering::Release);
        self.disconnect(RETRY);
        self.queue.note_told(self.last_queued());
        // No connection is under way in the driver, and none begins behind this.
        let _serial = self.serial.exclusive(adapter.kernel());
        // Before the handle goes: the driver's callback finds one or the other.
        self.going.store(true, Ordering::Release);
        let Some(driver) = self.driver.take() else {
            self.going.store(false, Ordering::Release);
            return;
        };
        let mut arguments = DXGKARG_DESTROYDOORBELL::zeroed();
        arguments.hDoorbell = crate::port::handle::of_driver(driver);
        let pointer = &raw mut arguments;
        let status = ddi::status(call_ddi!(adapter, DxgkDdiDestroyDoorbell(pointer)));
        self.going.store(false, Ordering::Release);
        self.ended.notify(adapter.kernel());
        must_succeed(adapter, "DxgkDdiDestroyDoorbell", status);
        self.unexpose();
        let rings = self.rings.lock().take();
        drop(rings);
    }

    /// Disconnects the doorbell and releases the allocations that its ring and control words lie in, before the
    /// doorbell itself is destroyed. Returns those allocations; a second call returns none.
    ///
    /// IRQL: PASSIVE_LEVEL.
    pub(crate) fn let_go_of_rings(&self) -> Vec<Arc<OpenAllocation>> {
        self.disconnect(RETRY);
        let rings = self.rings.lock().take();
        rings.map(|rings| rings.allocations()).unwrap_or_default()
    }

    fn unexpose(&self) {
        let _rotation = self.rotation();
        self.state.lock().gone = true;
        let gpu_process = self.queue.context().device().process();
        for exposed in std::iter::once(&self.primary).chain(&self.secondary) {
            gpu_process.take_from_user(exposed.user);
        }
        gpu_process.doorbells.release_slot(self.status_slot, true);
        gpu_process.doorbells.release_slot(self.queued_slot, false);
    }
}

fn create_in_driver(
    queue: &HwQueue,
    request: &mut Request,
    handle: &KernelHandle<Doorbell>,
) -> Result<usize, NTSTATUS> {
    let adapter = queue.adapter();
    let named = |open: &Arc<OpenAllocation>| {
        let number = match adapter.personality().ring_handle {
            RingHandle::Allocation => open.allocation().driver_handle(),
            RingHandle::DeviceSpecific => open.device_specific(),
        };
        core::ptr::with_exposed_provenance_mut(number)
    };
    let mut arguments = DXGKARG_CREATEDOORBELL::zeroed();
    arguments.hHwQueue = crate::port::handle::of_driver(queue.driver_handle());
    arguments.hDoorbell = handle.raw();
    if !request.private.is_empty() {
        // CAST: at most 16 bytes.
        arguments.PrivateDriverDataSize = request.private.len() as u32;
        arguments.PrivateDriverData = request.private.as_mut_ptr().cast();
    }
    arguments.hRingBuffer = named(&request.ring);
    arguments.hRingBufferControl = request.control.as_ref().map_or(core::ptr::null_mut(), named);
    arguments.Flags.set_ResizeRingBufferOperation(request.resize);
    let pointer = &raw mut arguments;
    let status = ddi::status(call_ddi!(adapter, DxgkDdiCreateDoorbell(pointer)));
    if !status.is_success() {
        return Err(status);
    }
    let made = arguments.hDoorbell.expose_provenance();
    adapter.rules().check(&OBJECT_HANDLE, made != 0 && made as u64 != handle.value(), || {
        format!("DxgkDdiCreateDoorbell left {made:#x}")
    });
    Ok(made)
}

fn must_succeed(adapter: &Miniport, ddi: &str, status: NTSTATUS) {
    let fine = status == ntstatus::STATUS_SUCCESS || status == ntstatus::STATUS_SYSTEM_SHUTDOWN;
    adapter.rules().check(&DB_MUST_SUCCEED, fine, || format!("{ddi}: {status:?}"));
}
