//! DriverEntry, and the table of functions.

use dxgkrnl_model::driver::NativeStart;
use wddm_abi::ntstatus::STATUS_SUCCESS;
use wddm_abi::{DRIVER_INITIALIZATION_DATA, KMDDOD_INITIALIZATION_DATA, NTSTATUS};

use super::{LOADING, Options, doorbell, idle, memory, queue, reset, scheduling, start};

/// DriverEntry.
pub fn entry(start: &NativeStart, options: Options) -> NTSTATUS {
    LOADING.with(|cell| cell.set(options));
    if options.mutant == "entry-without-initialize" {
        return STATUS_SUCCESS;
    }
    let mut table = table(options);
    if options.display_only {
        return start.initialize_display_only(&display_only(&table));
    }
    if matches!(options.mutant, "init-version" | "entry-hides-failure") {
        table.Version = 0x9999;
    }
    if options.mutant == "init-version-old" {
        // DXGKDDI_INTERFACE_VERSION_WIN7.
        table.Version = 0x2005;
    }
    let status = start.initialize(&table);
    if options.mutant == "init-unload" {
        let at = start.driver_object().expose_provenance()
            + core::mem::offset_of!(nt_model::records_io::DriverObject, driver_unload);
        let pointer: *mut usize = core::ptr::with_exposed_provenance_mut(at);
        // SAFETY: a member of the driver object.
        unsafe { pointer.write(0x1234) };
    }
    if options.mutant == "entry-hides-failure" { STATUS_SUCCESS } else { status }
}

fn table(options: Options) -> DRIVER_INITIALIZATION_DATA {
    let mut table = DRIVER_INITIALIZATION_DATA::zeroed();
    table.Version = options.version.0;
    if options.engines > 1 {
        start::fill_linked(&mut table);
    }
    start::fill(&mut table);
    memory::fill(&mut table);
    queue::fill(&mut table);
    doorbell::fill(&mut table);
    reset::fill(&mut table);
    scheduling::fill(&mut table);
    idle::fill(&mut table);
    match options.mutant {
        "init-slot" => table.DxgkDdiSuspendContext = None,
        "init-slot-2-0" => table.DxgkDdiSetStablePowerState = None,
        "init-slot-2-4" => table.DxgkDdiSetVirtualMachineData = None,
        "init-inside" => idle::misplaced(&mut table),
        "caps-per-engine-tdr" => table.DxgkDdiQueryEngineStatus = None,
        _ => (),
    }
    if !options.native_fences {
        table.DxgkDdiCreateNativeFence = None;
    }
    if options.compute_only {
        if options.mutant != "compute-slot" {
            table.DxgkDdiQueryCurrentFence = None;
        }
        idle::fill_compute_only(&mut table);
        if options.mutant == "compute-needed" {
            table.DxgkDdiFormatHistoryBuffer = None;
        }
        table.DxgkDdiNotifyAcpiEvent = None;
        table.DxgkDdiUpdateMonitorLinkInfo = None;
        table.DxgkDdiRenderKm = None;
        table.DxgkDdiRenderGdi = None;
        table.DxgkDdiPresent = None;
    }
    table
}

/// What a display-only driver registers of these functions.
fn display_only(table: &DRIVER_INITIALIZATION_DATA) -> KMDDOD_INITIALIZATION_DATA {
    let mut own = KMDDOD_INITIALIZATION_DATA::zeroed();
    own.Version = table.Version;
    own.DxgkDdiAddDevice = table.DxgkDdiAddDevice;
    own.DxgkDdiStartDevice = table.DxgkDdiStartDevice;
    own.DxgkDdiStopDevice = table.DxgkDdiStopDevice;
    own.DxgkDdiRemoveDevice = table.DxgkDdiRemoveDevice;
    own.DxgkDdiUnload = table.DxgkDdiUnload;
    own.DxgkDdiInterruptRoutine = table.DxgkDdiInterruptRoutine;
    own.DxgkDdiDpcRoutine = table.DxgkDdiDpcRoutine;
    own.DxgkDdiQueryAdapterInfo = table.DxgkDdiQueryAdapterInfo;
    own.DxgkDdiSetPowerState = table.DxgkDdiSetPowerState;
    own
}
