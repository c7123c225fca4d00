//! The table that `DxgkInitialize` gets. What is not named here is NULL; `docs/wddm_map.md` has a verdict for every
//! slot.

use crate::{adapter, doorbells, fences, memory, objects, packets, query, refuse, scheduling};
use kmd_core::platform::Platform;
use kmd_core::service::Form;
use wddm_abi::{DRIVER_INITIALIZATION_DATA, DXGKDDI_INTERFACE_VERSION_WDDM3_2};

/// The interface version that the driver registers: 3.2, as 24H2 has it.
pub const VERSION: u32 = DXGKDDI_INTERFACE_VERSION_WDDM3_2;

/// The table for platform `P` and a form of the driver.
pub fn table<P: Platform>(form: Form) -> DRIVER_INITIALIZATION_DATA {
    let mut t = DRIVER_INITIALIZATION_DATA::zeroed();
    t.Version = VERSION;
    lifecycle::<P>(&mut t);
    queries::<P>(&mut t);
    memory_objects::<P>(&mut t);
    packet_mode::<P>(&mut t);
    hardware_scheduling::<P>(&mut t);
    native_fences::<P>(&mut t);
    user_mode_submission::<P>(&mut t);
    refusals(&mut t);
    if form.is_compute_only() {
        compute_only::<P>(&mut t);
    }
    t
}

/// What a compute-only driver must not have, and the AddDevice that makes such adapters.
///
/// Source: article *MCDM kernel-mode driver implementation guidelines*: "Prohibited functions", "WDDM 1.x functions".
fn compute_only<P: Platform>(t: &mut DRIVER_INITIALIZATION_DATA) {
    t.DxgkDdiAddDevice = Some(adapter::add_compute_device::<P>);
    t.DxgkDdiQueryCurrentFence = None;
    t.DxgkDdiNotifyAcpiEvent = None;
    t.DxgkDdiPresent = None;
    t.DxgkDdiRenderGdi = None;
    t.DxgkDdiRenderKm = None;
    t.DxgkDdiUpdateMonitorLinkInfo = None;
}

fn lifecycle<P: Platform>(t: &mut DRIVER_INITIALIZATION_DATA) {
    t.DxgkDdiAddDevice = Some(adapter::add_device::<P>);
    t.DxgkDdiStartDevice = Some(adapter::start_device::<P>);
    t.DxgkDdiStopDevice = Some(adapter::stop_device::<P>);
    t.DxgkDdiRemoveDevice = Some(adapter::remove_device::<P>);
    t.DxgkDdiInterruptRoutine = Some(adapter::interrupt_routine::<P>);
    t.DxgkDdiDpcRoutine = Some(adapter::dpc_routine::<P>);
    t.DxgkDdiQueryChildRelations = Some(adapter::query_child_relations);
    t.DxgkDdiSetPowerState = Some(adapter::set_power_state::<P>);
    t.DxgkDdiNotifySurpriseRemoval = Some(adapter::notify_surprise_removal::<P>);
    t.DxgkDdiResetDevice = Some(adapter::reset_device);
    t.DxgkDdiControlEtwLogging = Some(adapter::control_etw_logging);
    t.DxgkDdiResetFromTimeout = Some(adapter::reset_from_timeout::<P>);
    t.DxgkDdiRestartFromTimeout = Some(adapter::restart_from_timeout::<P>);
}

fn queries<P: Platform>(t: &mut DRIVER_INITIALIZATION_DATA) {
    t.DxgkDdiQueryInterface = Some(query::query_interface::<P>);
    t.DxgkDdiQueryAdapterInfo = Some(query::query_adapter_info::<P>);
    t.DxgkDdiGetNodeMetadata = Some(query::get_node_metadata::<P>);
    t.DxgkDdiCalibrateGpuClock = Some(query::calibrate_gpu_clock::<P>);
    t.DxgkDdiFormatHistoryBuffer = Some(query::format_history_buffer::<P>);
    t.DxgkDdiEscape = Some(query::escape::<P>);
    t.DxgkDdiCollectDbgInfo = Some(query::collect_dbg_info::<P>);
    t.DxgkDdiCollectDbgInfo2 = Some(query::collect_dbg_info2::<P>);
}

fn memory_objects<P: Platform>(t: &mut DRIVER_INITIALIZATION_DATA) {
    t.DxgkDdiCreateProcess = Some(objects::create_process::<P>);
    t.DxgkDdiDestroyProcess = Some(objects::destroy_process::<P>);
    t.DxgkDdiCreateDevice = Some(objects::create_device::<P>);
    t.DxgkDdiDestroyDevice = Some(objects::destroy_device::<P>);
    t.DxgkDdiCreateContext = Some(objects::create_context::<P>);
    t.DxgkDdiDestroyContext = Some(objects::destroy_context::<P>);
    t.DxgkDdiSetRootPageTable = Some(objects::set_root_page_table::<P>);
    t.DxgkDdiGetRootPageTableSize = Some(objects::get_root_page_table_size);
    t.DxgkDdiCreateAllocation = Some(memory::create_allocation::<P>);
    t.DxgkDdiDestroyAllocation = Some(memory::destroy_allocation::<P>);
    t.DxgkDdiOpenAllocation = Some(memory::open_allocation::<P>);
    t.DxgkDdiCloseAllocation = Some(memory::close_allocation::<P>);
    t.DxgkDdiGetStandardAllocationDriverData = Some(memory::get_standard_allocation::<P>);
    t.DxgkDdiBuildPagingBuffer = Some(memory::build_paging_buffer::<P>);
}

fn packet_mode<P: Platform>(t: &mut DRIVER_INITIALIZATION_DATA) {
    t.DxgkDdiSubmitCommandVirtual = Some(packets::submit_command_virtual::<P>);
    t.DxgkDdiSubmitCommand = Some(packets::submit_command::<P>);
    t.DxgkDdiPatch = Some(packets::patch);
    t.DxgkDdiPreemptCommand = Some(packets::preempt_command::<P>);
    t.DxgkDdiCancelCommand = Some(packets::cancel_command);
    t.DxgkDdiQueryCurrentFence = Some(packets::query_current_fence::<P>);
    t.DxgkDdiQueryDependentEngineGroup = Some(packets::query_dependent_engine_group::<P>);
    t.DxgkDdiQueryEngineStatus = Some(packets::query_engine_status::<P>);
    t.DxgkDdiResetEngine = Some(packets::reset_engine::<P>);
}

fn hardware_scheduling<P: Platform>(t: &mut DRIVER_INITIALIZATION_DATA) {
    t.DxgkDdiCreateHwContext = Some(scheduling::create_hw_context::<P>);
    t.DxgkDdiDestroyHwContext = Some(scheduling::destroy_hw_context::<P>);
    t.DxgkDdiCreateHwQueue = Some(scheduling::create_hw_queue::<P>);
    t.DxgkDdiDestroyHwQueue = Some(scheduling::destroy_hw_queue::<P>);
    t.DxgkDdiSubmitCommandToHwQueue = Some(scheduling::submit_command_to_hw_queue::<P>);
    t.DxgkDdiSuspendContext = Some(scheduling::suspend_context::<P>);
    t.DxgkDdiResumeContext = Some(scheduling::resume_context::<P>);
    t.DxgkDdiResetHwEngine = Some(scheduling::reset_hw_engine::<P>);
    t.DxgkDdiResumeHwEngine = Some(scheduling::resume_hw_engine::<P>);
    t.DxgkDdiSetupPriorityBands = Some(scheduling::setup_priority_bands::<P>);
    t.DxgkDdiSetContextSchedulingProperties = Some(scheduling::set_context_scheduling_properties::<P>);
    t.DxgkDdiSetSchedulingLogBuffer = Some(scheduling::set_scheduling_log_buffer::<P>);
    t.DxgkDdiSwitchToHwContextList = Some(scheduling::switch_to_hw_context_list);
    t.DxgkDdiUpdateHwContextState = Some(scheduling::update_hw_context_state);
    t.DxgkDdiSignalMonitoredFence = Some(scheduling::signal_monitored_fence);
}

fn native_fences<P: Platform>(t: &mut DRIVER_INITIALIZATION_DATA) {
    t.DxgkDdiCreateNativeFence = Some(fences::create_native_fence::<P>);
    t.DxgkDdiDestroyNativeFence = Some(fences::destroy_native_fence::<P>);
    t.DxgkDdiOpenNativeFence = Some(fences::open_native_fence::<P>);
    t.DxgkDdiCloseNativeFence = Some(fences::close_native_fence::<P>);
    t.DxgkDdiUpdateMonitoredValues = Some(fences::update_monitored_values::<P>);
    t.DxgkDdiUpdateCurrentValuesFromCpu = Some(fences::update_current_values::<P>);
    t.DxgkDdiSetNativeFenceLogBuffer = Some(fences::set_native_fence_log_buffer::<P>);
    t.DxgkDdiUpdateNativeFenceLogs = Some(fences::update_native_fence_logs::<P>);
}

fn user_mode_submission<P: Platform>(t: &mut DRIVER_INITIALIZATION_DATA) {
    t.DxgkDdiCreateDoorbell = Some(doorbells::create_doorbell::<P>);
    t.DxgkDdiConnectDoorbell = Some(doorbells::connect_doorbell::<P>);
    t.DxgkDdiDisconnectDoorbell = Some(doorbells::disconnect_doorbell::<P>);
    t.DxgkDdiDestroyDoorbell = Some(doorbells::destroy_doorbell::<P>);
    t.DxgkDdiSetPowerComponentFState = Some(adapter::set_power_component_f_state::<P>);
    t.DxgkDdiNotifyWorkSubmission = Some(doorbells::notify_work_submission::<P>);
}

fn refusals(t: &mut DRIVER_INITIALIZATION_DATA) {
    t.DxgkDdiDispatchIoRequest = Some(refuse::dispatch_io_request);
    t.DxgkDdiQueryChildStatus = Some(refuse::query_child_status);
    t.DxgkDdiQueryDeviceDescriptor = Some(refuse::query_device_descriptor);
    t.DxgkDdiNotifyAcpiEvent = Some(refuse::notify_acpi_event);
    t.DxgkDdiDescribeAllocation = Some(refuse::describe_allocation);
    t.DxgkDdiRender = Some(refuse::render);
    t.DxgkDdiRenderKm = Some(refuse::render);
    t.DxgkDdiRenderGdi = Some(refuse::render_gdi);
    t.DxgkDdiPresent = Some(refuse::present);
    t.DxgkDdiPresentToHwQueue = Some(refuse::present);
    t.DxgkDdiUpdateMonitorLinkInfo = Some(refuse::update_monitor_link_info);
    t.DxgkDdiSetVirtualMachineData = Some(refuse::set_virtual_machine_data);
    t.DxgkDdiBeginExclusiveAccess = Some(refuse::begin_exclusive_access);
    t.DxgkDdiEndExclusiveAccess = Some(refuse::end_exclusive_access);
    t.DxgkDdiSetStablePowerState = Some(refuse::set_stable_power_state);
}
