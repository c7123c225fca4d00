//! Thunks about adapters.

use std::sync::Arc;

use wddm_abi::{
    D3DKMT_ADAPTERINFO, D3DKMT_CLOSEADAPTER, D3DKMT_ENUMADAPTERS, D3DKMT_ENUMADAPTERS2, D3DKMT_ENUMADAPTERS3,
    D3DKMT_ESCAPE, D3DKMT_ESCAPETYPE, D3DKMT_ISFEATUREENABLED, D3DKMT_OPENADAPTERFROMDEVICENAME,
    D3DKMT_OPENADAPTERFROMLUID, D3DKMT_QUERYADAPTERINFO, D3DKMT_QUERYCLOCKCALIBRATION, D3DKMT_TDRDBGCTRL_ESCAPE,
    D3DKMT_TDRDBGCTRLTYPE, DXGK_GPUCLOCKDATA, DXGKARG_ESCAPE, LUID, NTSTATUS, Plain, ntstatus,
};

use super::{Call, DONE, INVALID, Outcome, capture, thunks};
use crate::objects::process::{ProcessAdapter, UserObject};
use crate::port::calibration;
use crate::port::ddi::{self, call_ddi};
use crate::port::features::Features;
use crate::port::handle::HandleType;
use crate::port::miniport::Miniport;
use crate::port::place::Place;
use crate::port::query::Buffer;
use crate::port::rules::paging::ESCAPE_STATUS;
use crate::port::tdr::Tdr;
use crate::sched::vidsch::VidSch;

/// Most bytes of private data that a query or escape may have.
pub(super) const PRIVATE_LIMIT: usize = 1 << 20;

/// The adapter that a handle was opened for, if it is still there.
pub(super) fn adapter(call: &Call, handle: u32) -> Result<Arc<ProcessAdapter>, NTSTATUS> {
    let gpu_process = call.process.adapter(handle).ok_or(INVALID)?;
    if gpu_process.adapter().is_started() && gpu_process.driver_handle() != 0 {
        Ok(gpu_process)
    } else {
        Err(ntstatus::STATUS_DEVICE_REMOVED)
    }
}

pub(super) fn number(luid: LUID) -> u64 {
    u64::from(luid.LowPart) | u64::from(luid.HighPart.cast_unsigned()) << 32
}

/// What an enumeration without an array asks to have room for: not how many there are. Source: Wine's tests of D3DKMT,
/// which run on Windows (34 on Windows 11, 32 before).
const ROOM: u32 = 34;

/// Started adapters, compute-only ones if they are wanted.
fn started(call: &Call, compute_only: impl Fn(&Miniport) -> bool) -> Vec<Arc<Miniport>> {
    let mut adapters = call.shared.adapters();
    adapters
        .retain(|adapter| adapter.is_started() && (!adapter.known_caps().is_compute_only() || compute_only(adapter)));
    adapters
}

/// Opens an adapter for an enumeration.
fn open(call: &Call, adapter: &Arc<Miniport>) -> Result<D3DKMT_ADAPTERINFO, NTSTATUS> {
    let gpu_process = call.process.open(adapter)?;
    let mut info = D3DKMT_ADAPTERINFO::zeroed();
    info.hAdapter = call.insert(UserObject::Adapter(gpu_process))?;
    info.AdapterLuid = adapter.luid();
    info.NumOfSources = adapter.known_caps().sources;
    Ok(info)
}

/// Opens every started adapter, compute-only ones if they are wanted. No adapter here only displays. Returns how many;
/// [`ROOM`] without an array.
fn enumerate(
    call: &Call,
    room: u32,
    array: *mut D3DKMT_ADAPTERINFO,
    compute_only: impl Fn(&Miniport) -> bool,
) -> Result<u32, NTSTATUS> {
    let adapters = started(call, compute_only);
    let count = u32::try_from(adapters.len()).unwrap_or(u32::MAX);
    if array.is_null() {
        return Ok(ROOM);
    }
    if room < count {
        return Err(ntstatus::STATUS_BUFFER_TOO_SMALL);
    }
    for (index, adapter) in adapters.iter().enumerate() {
        let info = open(call, adapter)?;
        capture::write(array.expose_provenance() + index * size_of::<D3DKMT_ADAPTERINFO>(), &info)?;
    }
    Ok(count)
}

/// Most characters of a device interface's name. Chosen.
const MOST_CHARACTERS: usize = 1024;

/// The string at `address`, up to its NUL.
fn device_name(address: usize) -> Result<String, NTSTATUS> {
    let mut units = Vec::new();
    loop {
        match capture::read::<u16>(address + 2 * units.len())? {
            0 => return Ok(String::from_utf16_lossy(&units)),
            _ if units.len() == MOST_CHARACTERS => return Err(INVALID),
            unit => units.push(unit),
        }
    }
}

thunks! {
    /// Adapters.
    table THUNKS;

    fn D3DKMTEnumAdapters2(call, record: D3DKMT_ENUMADAPTERS2) {
        let compute_only = |adapter: &Miniport| adapter.personality().lists_compute_only;
        record.NumAdapters = enumerate(call, record.NumAdapters, record.pAdapters, compute_only)?;
        DONE
    }

    fn D3DKMTEnumAdapters(call, record: D3DKMT_ENUMADAPTERS) {
        let compute_only = |adapter: &Miniport| adapter.personality().lists_compute_only;
        let mut started = started(call, compute_only);
        // Source: D3DKMT_ENUMADAPTERS, MAX_ENUM_ADAPTERS. Chosen: those beyond are left out.
        started.truncate(record.Adapters.len());
        for (adapter, info) in started.iter().zip(&mut record.Adapters) {
            *info = open(call, adapter)?;
        }
        // CAST: 16 at most.
        record.NumAdapters = started.len() as u32;
        DONE
    }

    fn D3DKMTQueryClockCalibration(call, record: D3DKMT_QUERYCLOCKCALIBRATION) {
        let gpu_process = adapter(call, record.hAdapter)?;
        let caps = gpu_process.adapter().known_caps();
        let place = Place { node: record.NodeOrdinal, engine: record.PhysicalAdapterIndex };
        let node = (0..).zip(&caps.nodes).find(|(_, info)| info.place == place).map(|(ordinal, _)| ordinal);
        let pair = calibration::of_node(gpu_process.adapter(), node.ok_or(INVALID)?);
        let pair = pair.ok_or(ntstatus::STATUS_NOT_SUPPORTED)?;
        let mut clock = DXGK_GPUCLOCKDATA::zeroed();
        (clock.GpuFrequency, clock.GpuClockCounter, clock.CpuClockCounter) = (pair.frequency, pair.gpu, pair.cpu);
        record.ClockData = clock;
        DONE
    }

    fn D3DKMTEnumAdapters3(call, record: D3DKMT_ENUMADAPTERS3) {
        let compute_only = |_: &Miniport| record.Filter.IncludeComputeOnly();
        record.NumAdapters = enumerate(call, record.NumAdapters, record.pAdapters, compute_only)?;
        DONE
    }

    fn D3DKMTOpenAdapterFromLuid(call, record: D3DKMT_OPENADAPTERFROMLUID) {
        let adapter = call.shared.adapter_by_luid(number(record.AdapterLuid)).ok_or(INVALID)?;
        let gpu_process = call.process.open(&adapter)?;
        record.hAdapter = call.insert(UserObject::Adapter(gpu_process))?;
        DONE
    }

    fn D3DKMTOpenAdapterFromDeviceName(call, record: D3DKMT_OPENADAPTERFROMDEVICENAME) {
        let wanted = device_name(record.pDeviceName.expose_provenance())?;
        let mut started = call.shared.adapters().into_iter().filter(|adapter| adapter.is_started());
        let named = started.find(|adapter| adapter.device_name().eq_ignore_ascii_case(&wanted));
        let adapter = named.ok_or(INVALID)?;
        let gpu_process = call.process.open(&adapter)?;
        record.hAdapter = call.insert(UserObject::Adapter(gpu_process))?;
        record.AdapterLuid = adapter.luid();
        DONE
    }

    fn D3DKMTCloseAdapter(call, record: D3DKMT_CLOSEADAPTER) {
        call.process.remove(record.hAdapter, HandleType::Adapter).map(|_| ntstatus::STATUS_SUCCESS).ok_or(INVALID)
    }

    fn D3DKMTQueryAdapterInfo(call, record: D3DKMT_QUERYADAPTERINFO) {
        super::query::query(call, record)
    }

    fn D3DKMTIsFeatureEnabled(call, record: D3DKMT_ISFEATUREENABLED) {
        let gpu_process = adapter(call, record.hAdapter)?;
        record.Result = Features::of(gpu_process.adapter()).query(gpu_process.adapter(), record.FeatureId).result();
        DONE
    }

    fn D3DKMTEscape(call, record: D3DKMT_ESCAPE) {
        escape(call, record)
    }
}

/// `D3DKMT_ESCAPE_TDRDBGCTRL`: forces a reset, or changes how recovery behaves. Returns when the reset is over.
///
/// Source: DDI pages D3DKMT_ESCAPE (disabled unless TdrTestMode is 1), D3DKMT_TDRDBGCTRLTYPE, D3DKMT_TDRDBGCTRL_ESCAPE,
/// DXGK_TDR_TYPE (zero data forces one, too). Chosen: without TdrTestMode the status is STATUS_NOT_SUPPORTED; what
/// simulates timeouts of displays is refused for an adapter without any; breaks into a debugger that is not there
/// change nothing; a process that was not made one that may
/// ([`Process::trust`](crate::objects::process::Process::trust)) is refused.
fn control_recovery(call: &Call, record: &D3DKMT_ESCAPE) -> Outcome {
    use D3DKMT_TDRDBGCTRLTYPE as Control;
    if !call.process.is_trusted() {
        return Err(ntstatus::STATUS_ACCESS_DENIED);
    }
    let gpu_process = adapter(call, record.hAdapter)?;
    let adapter = gpu_process.adapter();
    if !adapter.personality().tdr.test_mode {
        return Err(ntstatus::STATUS_NOT_SUPPORTED);
    }
    let size = (record.PrivateDriverDataSize as usize).min(size_of::<D3DKMT_TDRDBGCTRL_ESCAPE>());
    let mut data = D3DKMT_TDRDBGCTRL_ESCAPE::zeroed();
    let given = capture::bytes(record.pPrivateDriverData.expose_provenance(), size)?;
    data.as_bytes_mut()[..size].copy_from_slice(&given);
    match data.TdrControl {
        Control::D3DKMT_TDRDBGCTRLTYPE_FORCETDR | Control::D3DKMT_TDRDBGCTRLTYPE_GPUTDR => {
            crate::recovery::force(adapter, None);
            DONE
        }
        Control::D3DKMT_TDRDBGCTRLTYPE_ENGINETDR => {
            let node = data.NodeOrdinal();
            if size != size_of::<D3DKMT_TDRDBGCTRL_ESCAPE>() || VidSch::of(adapter).node(node).is_none() {
                return Err(INVALID);
            }
            crate::recovery::force(adapter, Some(node));
            DONE
        }
        Control::D3DKMT_TDRDBGCTRLTYPE_UNCONDITIONAL => {
            Tdr::of(adapter).ignore_limits();
            DONE
        }
        Control::D3DKMT_TDRDBGCTRLTYPE_DISABLEBREAK | Control::D3DKMT_TDRDBGCTRLTYPE_ENABLEBREAK => DONE,
        _ => Err(ntstatus::STATUS_NOT_SUPPORTED),
    }
}

/// Escapes to the driver, and those by which tests control recovery.
///
/// Chosen: of the others only `D3DKMT_ESCAPE_DRIVERPRIVATE` reaches the driver; with the HardwareAccess flag no
/// other thread is in it.
fn escape(call: &Call, record: &D3DKMT_ESCAPE) -> Outcome {
    match record.Type {
        D3DKMT_ESCAPETYPE::D3DKMT_ESCAPE_DRIVERPRIVATE if record.Flags.DriverKnownEscape() => {
            return super::testing::escape(call, record);
        }
        D3DKMT_ESCAPETYPE::D3DKMT_ESCAPE_DRIVERPRIVATE => {}
        D3DKMT_ESCAPETYPE::D3DKMT_ESCAPE_TDRDBGCTRL => return control_recovery(call, record),
        // Source: Wine's tests of D3DKMT, which run on Windows.
        D3DKMT_ESCAPETYPE(number) if D3DKMT_ESCAPETYPE(number).name().is_none() => return Err(INVALID),
        _ => return Err(ntstatus::STATUS_NOT_SUPPORTED),
    }
    let gpu_process = adapter(call, record.hAdapter)?;
    let adapter = gpu_process.adapter();
    let size = record.PrivateDriverDataSize as usize;
    if size > PRIVATE_LIMIT {
        return Err(INVALID);
    }
    let address = record.pPrivateDriverData.expose_provenance();
    let mut private = Buffer::new(size, 0);
    private.bytes_mut().copy_from_slice(&capture::bytes(address, size)?);
    let mut arguments = DXGKARG_ESCAPE::zeroed();
    let named = |number: usize| core::ptr::with_exposed_provenance_mut(number);
    if record.hDevice != 0 {
        arguments.hDevice = named(call.process.device(record.hDevice).ok_or(INVALID)?.driver_handle());
    }
    if record.hContext != 0 {
        let packet = call.process.context(record.hContext).map(|context| context.driver_handle());
        let hardware = || call.process.hw_context(record.hContext).map(|context| context.driver_handle());
        arguments.hContext = named(packet.or_else(hardware).ok_or(INVALID)?);
    }
    arguments.Flags = record.Flags;
    arguments.pPrivateDriverData = private.pointer().cast();
    // CAST: limited above.
    arguments.PrivateDriverDataSize = size as u32;
    arguments.hKmdProcessHandle = named(gpu_process.driver_handle());
    let alone = if record.Flags.HardwareAccess() { adapter.quiesce(adapter.personality().tdr.ddi_delay) } else { None };
    let (miniport, pointer) = (adapter.context(), &raw const arguments);
    let status = ddi::status(call_ddi!(adapter, DxgkDdiEscape(miniport, pointer)));
    drop(alone);
    let listed = status.is_success()
        || matches!(
            status,
            ntstatus::STATUS_INVALID_PARAMETER
                | ntstatus::STATUS_NO_MEMORY
                | ntstatus::STATUS_PRIVILEGED_INSTRUCTION
                | ntstatus::STATUS_ILLEGAL_INSTRUCTION
                | ntstatus::STATUS_GRAPHICS_DRIVER_MISMATCH
                | ntstatus::STATUS_SYSTEM_SHUTDOWN
        );
    let absent = adapter.table().DxgkDdiEscape.is_none();
    adapter.rules().check(&ESCAPE_STATUS, listed || absent, || format!("{status:?}"));
    if !status.is_success() {
        return Err(status);
    }
    capture::store(address, private.bytes())?;
    Ok(status)
}
