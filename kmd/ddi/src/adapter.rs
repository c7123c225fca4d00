//! AddDevice to RemoveDevice, the interrupt routine, the DPC, power.

use crate::arguments::{array, borrow, object, record, record_mut, started, with_started};
use crate::thunk::{always, ddi, nothing, yes};
use core::ffi::c_void;
use gpu_engine::shared::Shared;
use kmd_core::adapter::{Adapter, Routines};
use kmd_core::dxgkrnl::Dxgkrnl;
use kmd_core::handle::Handle;
use kmd_core::interrupt::{self, Section};
use kmd_core::irql::Passive;
use kmd_core::platform::{Platform, SettingsKey};
use kmd_core::reset;
use kmd_core::service::Form;
use kmd_core::settings::Settings;
use kmd_core::start::{self, MemoryResource, StartInfo};
use kmd_core::status::{Error, Result, of};
use wddm_abi::ntstatus::STATUS_SUCCESS;
use wddm_abi::{
    BOOLEAN, CM_PARTIAL_RESOURCE_DESCRIPTOR, CM_RESOURCE_LIST, DEVICE_OBJECT, DEVICE_POWER_STATE, DXGK_START_INFO,
    DXGK_SURPRISE_REMOVAL_TYPE, DXGKRNL_INTERFACE, HANDLE, NTSTATUS, PDXGK_CHILD_DESCRIPTOR, POWER_ACTION, win_extern,
};

/// `CmResourceTypeInterrupt`.
const RESOURCE_INTERRUPT: u8 = 2;
/// `DISPLAY_ADAPTER_HW_ID`: the adapter itself, as opposed to a child.
const WHOLE_ADAPTER: u32 = u32::MAX;
/// `PowerDeviceD0`.
const POWER_DEVICE_D0: DEVICE_POWER_STATE = DEVICE_POWER_STATE(1);
/// `CmResourceTypeMemory`.
const RESOURCE_MEMORY: u8 = 3;

ddi! {
    /// `DxgkDdiAddDevice`, `PASSIVE_LEVEL`.
    fn add_device[P: Platform](device: *mut DEVICE_OBJECT) at irql: Passive,
        with context: write *mut *mut c_void, answers of {
        add::<P>(&irql, Form::Render, device, context)
    }

    /// `DxgkDdiAddDevice` of the compute-only form, `PASSIVE_LEVEL`.
    fn add_compute_device[P: Platform](device: *mut DEVICE_OBJECT) at irql: Passive,
        with context: write *mut *mut c_void, answers of {
        add::<P>(&irql, Form::ComputeOnly, device, context)
    }

    /// `DxgkDdiStopDevice`, `PASSIVE_LEVEL`.
    fn stop_device[P: Platform](context: *mut c_void) at irql: Passive, answers of {
        object::<Adapter<P>>(context).and_then(|adapter| start::stop(&irql, &adapter))
    }

    /// `DxgkDdiRemoveDevice`, `PASSIVE_LEVEL`.
    fn remove_device[P: Platform](context: *mut c_void) answers of {
        Handle::from_ptr(context).take::<Adapter<P>>().map(drop)
    }

    /// `DxgkDdiSetPowerState`, `PASSIVE_LEVEL`. Never fails. The OS suspends contexts and disconnects doorbells
    /// before. An engine thread has no power state of its own; what it has to report in D1 to D3 waits for D0.
    /// Children have no power states here.
    fn set_power_state[P: Platform](
        context: *mut c_void, device: u32, state: DEVICE_POWER_STATE, _action: POWER_ACTION
    ) at irql: Passive, answers always {
        if device == WHOLE_ADAPTER {
            start::set_power(&irql, &*started::<P>(context)?, state == POWER_DEVICE_D0);
        }
        Ok(())
    }

    /// `DxgkDdiSetPowerComponentFState`, at most `DISPATCH_LEVEL`. The transition is over when the driver says so
    /// ([`start::set_component`]).
    fn set_power_component_f_state[P: Platform](
        context: *mut c_void, component: u32, state: u32
    ) at irql: Dispatch, answers of {
        let set = with_started::<P, _>(context, |started| start::set_component(&irql, started, component, state));
        // The one status that its page has for a failure.
        set.map_err(|_| Error::InvalidParameter)
    }

    /// `DxgkDdiNotifySurpriseRemoval`, `PASSIVE_LEVEL`, at any time and beside other DDIs. Never fails. Both kinds of
    /// removal are treated alike: the device is gone, and later calls free the driver's objects without touching it.
    fn notify_surprise_removal[P: Platform](context: *mut c_void, _kind: DXGK_SURPRISE_REMOVAL_TYPE) at irql: Passive,
        answers always {
        start::remove_by_surprise(&irql, &*started::<P>(context)?);
        Ok(())
    }

    /// `DxgkDdiResetFromTimeout`, `PASSIVE_LEVEL`. Must succeed.
    fn reset_from_timeout[P: Platform](adapter: HANDLE) at irql: Passive, answers always {
        reset::reset_adapter(&irql, &*started::<P>(adapter)?);
        Ok(())
    }

    /// `DxgkDdiRestartFromTimeout`, `PASSIVE_LEVEL`. Must succeed.
    fn restart_from_timeout[P: Platform](adapter: HANDLE) at irql: Passive, answers always {
        reset::restart_adapter(&irql, &*started::<P>(adapter)?);
        Ok(())
    }

    /// `DxgkDdiStartDevice`, `PASSIVE_LEVEL`.
    fn start_device[P: Platform](
        context: *mut c_void,
        info: *mut DXGK_START_INFO,
        interface: *mut DXGKRNL_INTERFACE,
        sources: *mut u32,
        children: *mut u32
    ) at irql: Passive, answers of {
        // SAFETY: Dxgkrnl passes pointers to its own records and variables, valid for the call.
        unsafe { start::<P>(&irql, context, info, interface, sources, children) }
    }

    /// `DxgkDdiInterruptRoutine`, device interrupt level.
    fn interrupt_routine[P: Platform](context: *mut c_void, _message: u32) at irql: Dirql, answers yes as BOOLEAN {
        borrow::<Adapter<P>, _>(context, |adapter| Ok(interrupt::routine(&irql, adapter)))
    }

    /// `DxgkDdiDpcRoutine`, `DISPATCH_LEVEL`.
    fn dpc_routine[P: Platform](context: *mut c_void) at irql: Dispatch, answers nothing as () {
        borrow::<Adapter<P>, _>(context, |adapter| {
            interrupt::dpc(&irql, adapter);
            Ok(())
        })
    }

    /// Runs at the device's level through `DxgkCbSynchronizeExecution`: reports for a device that has no interrupt.
    fn synchronized_report[P: Platform](context: *mut c_void) at irql: Dirql, answers yes as BOOLEAN {
        with_started::<P, _>(context, |started| {
            interrupt::report_all(&irql, started);
            Ok(true)
        })
    }
}

win_extern! {
    /// Runs at the device's level: what the interrupt routine must not see half done.
    fn synchronized_section[P: Platform](context: *mut c_void) -> BOOLEAN {
        // SAFETY: `interrupt` passes a pointer to a Section on its stack and waits until this returned.
        if let Ok(section) = unsafe { record(context.cast_const().cast::<Section<'_, P>>()) } {
            section.run();
        }
        1
    }

    /// `DxgkDdiQueryChildRelations`, `PASSIVE_LEVEL`: there are no children.
    pub(crate) fn query_child_relations(_context: *mut c_void, _relations: PDXGK_CHILD_DESCRIPTOR, _size: u32) -> NTSTATUS {
        STATUS_SUCCESS
    }

    /// `DxgkDdiResetDevice`, any level: there is no display to hand back.
    pub(crate) fn reset_device(_context: *mut c_void) {}

    /// `DxgkDdiControlEtwLogging`.
    pub(crate) fn control_etw_logging(_enable: BOOLEAN, _flags: u32, _level: u8) {}

}

/// The body of AddDevice: an adapter of the driver's `form`, whose handle becomes the context.
///
/// # Errors
/// [`kmd_core::status::Error::NoMemory`].
fn add<P: Platform>(irql: &Passive, form: Form, device: *mut DEVICE_OBJECT, context: &mut *mut c_void) -> Result<()> {
    let platform = P::current();
    let settings = Settings::read(irql, &platform, SettingsKey::Device(device));
    let adapter = Shared::try_new(Adapter::new(irql, platform, form, settings))?;
    *context = Handle::create(adapter)?.as_ptr();
    Ok(())
}

/// The body of StartDevice.
///
/// # Safety
/// The pointers are NULL or valid for the call.
unsafe fn start<P: Platform>(
    irql: &Passive,
    context: *mut c_void,
    info: *mut DXGK_START_INFO,
    interface: *mut DXGKRNL_INTERFACE,
    sources: *mut u32,
    children: *mut u32,
) -> Result<()> {
    let adapter = object::<Adapter<P>>(context)?;
    // SAFETY: valid for the call, or NULL, which says nothing.
    let required = unsafe { record(info.cast_const()) }.map_or(0, |info| info.RequiredDmaQueueEntry);
    // SAFETY: valid for the call, or NULL, which is refused.
    let sources = unsafe { record_mut(sources) }?;
    // SAFETY: as above.
    let children = unsafe { record_mut(children) }?;
    // SAFETY: as above; only to refuse NULL.
    let _there = unsafe { record(interface.cast_const()) }?;
    // SAFETY: an interface of Size bytes, whose functions live until the device is stopped.
    let dxgkrnl = unsafe { Dxgkrnl::copy(interface) }?;
    let device = dxgkrnl.device_information(irql)?;
    // SAFETY: Dxgkrnl's string lives as long as the device.
    let registry_path =
        unsafe { array(device.DeviceRegistryPath.Buffer, usize::from(device.DeviceRegistryPath.Length) / 2) }?;
    // SAFETY: Dxgkrnl's resource list lives as long as the device.
    let (memory, interrupt) = unsafe { resources(device.TranslatedResourceList) };
    let info = StartInfo {
        dxgkrnl,
        adapter: Handle::from_ptr(context),
        routines: Routines { report: Some(synchronized_report::<P>), section: Some(synchronized_section::<P>) },
        registry_path,
        memory,
        interrupt,
        // CAST: a physical address is not negative.
        highest_physical_address: device.HighestPhysicalAddress.QuadPart as u64,
        required_dma_queue_entries: required,
    };
    start::start(irql, &adapter, &info)?;
    // Render and compute only: no sources, no children.
    *sources = 0;
    *children = 0;
    Ok(())
}

/// The first memory resource, and whether there is an interrupt.
///
/// # Safety
/// `list` is NULL or points at a resource list whose counts are true.
unsafe fn resources(list: *const CM_RESOURCE_LIST) -> (Option<MemoryResource>, bool) {
    // SAFETY: the caller's promise.
    let Ok(known) = (unsafe { record(list) }) else { return (None, false) };
    if known.Count == 0 {
        return (None, false);
    }
    let count = known.List[0].PartialResourceList.Count as usize;
    // Not by the reference, which reaches one descriptor.
    // SAFETY: `list` points at a resource list (the caller's promise; `record` has looked that it is not NULL).
    let first = unsafe { &raw const (*list).List[0].PartialResourceList.PartialDescriptors };
    // SAFETY: `Count` descriptors follow one another from the first (the caller's promise).
    let descriptors = unsafe { array::<CM_PARTIAL_RESOURCE_DESCRIPTOR>(first.cast(), count) }.unwrap_or_default();
    let memory = descriptors.iter().find(|d| d.Type == RESOURCE_MEMORY).map(|d| MemoryResource {
        // CAST: a physical address is not negative.
        address: (u64::from(d.u[0]) | u64::from(d.u[1]) << 32) as i64,
        length: d.u[2].into(),
    });
    (memory, descriptors.iter().any(|d| d.Type == RESOURCE_INTERRUPT))
}
