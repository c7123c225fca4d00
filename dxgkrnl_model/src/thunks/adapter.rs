//! Thunks about adapters.

use std::sync::Arc;

use wddm_abi::{
    D3DKMT_ADAPTER_PERFDATA, D3DKMT_ADAPTER_PERFDATACAPS, D3DKMT_ADAPTERINFO, D3DKMT_ADAPTERTYPE, D3DKMT_CLOSEADAPTER,
    D3DKMT_DRIVERVERSION, D3DKMT_ENUMADAPTERS2, D3DKMT_ENUMADAPTERS3, D3DKMT_ESCAPE, D3DKMT_ESCAPETYPE,
    D3DKMT_GPUVERSION, D3DKMT_ISFEATUREENABLED, D3DKMT_NODE_PERFDATA, D3DKMT_NODEMETADATA,
    D3DKMT_OPENADAPTERFROMDEVICENAME, D3DKMT_OPENADAPTERFROMLUID, D3DKMT_QUERY_DEVICE_IDS, D3DKMT_QUERYADAPTERINFO,
    D3DKMT_SEGMENTSIZEINFO, D3DKMT_TDRDBGCTRL_ESCAPE, D3DKMT_TDRDBGCTRLTYPE, D3DKMT_WDDM_1_2_CAPS,
    D3DKMT_WDDM_2_7_CAPS, D3DKMT_WDDM_2_9_CAPS, D3DKMT_WDDM_3_1_CAPS, DXGK_ADAPTER_PERFDATA, DXGK_ADAPTER_PERFDATACAPS,
    DXGK_FEATURE_ID, DXGK_GPUVERSION, DXGK_NODE_PERFDATA, DXGK_QUERYADAPTERINFOTYPE, DXGKARG_ESCAPE,
    KMTQUERYADAPTERINFOTYPE, LUID, NTSTATUS, Plain, ntstatus,
};

use super::{Call, DONE, INVALID, Outcome, capture, thunks};
use crate::adapter::query::{Buffer, Query};
use crate::adapter::{Adapter, Place};
use crate::ddi::{self, call_ddi};
use crate::handle::HandleType;
use crate::process::{ProcessAdapter, UserObject};
use crate::rules::paging::ESCAPE_STATUS;

/// Most bytes of private data that a query or escape may have.
const PRIVATE_LIMIT: usize = 1 << 20;

/// The adapter that a handle was opened for, if it is still there.
pub(super) fn adapter(call: &Call, handle: u32) -> Result<Arc<ProcessAdapter>, NTSTATUS> {
    let part = call.process.adapter(handle).ok_or(INVALID)?;
    if part.adapter().is_started() && part.driver_handle() != 0 {
        Ok(part)
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

/// Opens every started adapter, compute-only ones if they are wanted. No adapter here only displays. Returns how many;
/// [`ROOM`] without an array.
fn enumerate(
    call: &Call,
    room: u32,
    array: *mut D3DKMT_ADAPTERINFO,
    compute_only: impl Fn(&Adapter) -> bool,
) -> Result<u32, NTSTATUS> {
    let mut adapters = call.shared.adapters();
    adapters
        .retain(|adapter| adapter.is_started() && (!adapter.known_caps().is_compute_only() || compute_only(adapter)));
    let count = u32::try_from(adapters.len()).unwrap_or(u32::MAX);
    if array.is_null() {
        return Ok(ROOM);
    }
    if room < count {
        return Err(ntstatus::STATUS_BUFFER_TOO_SMALL);
    }
    for (index, adapter) in adapters.iter().enumerate() {
        let part = call.process.open(adapter)?;
        let mut info = D3DKMT_ADAPTERINFO::zeroed();
        info.hAdapter = call.insert(UserObject::Adapter(part))?;
        info.AdapterLuid = adapter.luid();
        info.NumOfSources = adapter.known_caps().sources;
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
        let compute_only = |adapter: &Adapter| adapter.personality().lists_compute_only;
        record.NumAdapters = enumerate(call, record.NumAdapters, record.pAdapters, compute_only)?;
        DONE
    }

    fn D3DKMTEnumAdapters3(call, record: D3DKMT_ENUMADAPTERS3) {
        let compute_only = |_: &Adapter| record.Filter.IncludeComputeOnly();
        record.NumAdapters = enumerate(call, record.NumAdapters, record.pAdapters, compute_only)?;
        DONE
    }

    fn D3DKMTOpenAdapterFromLuid(call, record: D3DKMT_OPENADAPTERFROMLUID) {
        let adapter = call.shared.adapter_by_luid(number(record.AdapterLuid)).ok_or(INVALID)?;
        let part = call.process.open(&adapter)?;
        record.hAdapter = call.insert(UserObject::Adapter(part))?;
        DONE
    }

    fn D3DKMTOpenAdapterFromDeviceName(call, record: D3DKMT_OPENADAPTERFROMDEVICENAME) {
        let wanted = device_name(record.pDeviceName.expose_provenance())?;
        let mut started = call.shared.adapters().into_iter().filter(|adapter| adapter.is_started());
        let named = started.find(|adapter| adapter.device_name().eq_ignore_ascii_case(&wanted));
        let adapter = named.ok_or(INVALID)?;
        let part = call.process.open(&adapter)?;
        record.hAdapter = call.insert(UserObject::Adapter(part))?;
        record.AdapterLuid = adapter.luid();
        DONE
    }

    fn D3DKMTCloseAdapter(call, record: D3DKMT_CLOSEADAPTER) {
        call.process.remove(record.hAdapter, HandleType::Adapter).map(|_| ntstatus::STATUS_SUCCESS).ok_or(INVALID)
    }

    fn D3DKMTQueryAdapterInfo(call, record: D3DKMT_QUERYADAPTERINFO) {
        query(call, record)
    }

    fn D3DKMTIsFeatureEnabled(call, record: D3DKMT_ISFEATUREENABLED) {
        let part = adapter(call, record.hAdapter)?;
        record.Result = part.adapter().feature(record.FeatureId).result();
        DONE
    }

    fn D3DKMTEscape(call, record: D3DKMT_ESCAPE) {
        escape(call, record)
    }
}

fn query(call: &Call, record: &D3DKMT_QUERYADAPTERINFO) -> Outcome {
    use KMTQUERYADAPTERINFOTYPE as Type;
    let part = adapter(call, record.hAdapter)?;
    let adapter = part.adapter();
    let (address, size) = (record.pPrivateDriverData.expose_provenance(), record.PrivateDriverDataSize as usize);
    if size > PRIVATE_LIMIT || (address == 0 && size != 0) {
        return Err(INVALID);
    }
    let caps = adapter.known_caps();
    match record.Type {
        Type::KMTQAITYPE_UMDRIVERPRIVATE => {
            let mut output = Buffer::new(size, 0);
            output.bytes_mut().copy_from_slice(&capture::bytes(address, size)?);
            let query = Query {
                kind: DXGK_QUERYADAPTERINFOTYPE::DXGKQAITYPE_UMDRIVERPRIVATE,
                input: &[],
                in_place: false,
                process: core::ptr::with_exposed_provenance_mut(part.driver_handle()),
            };
            let status = adapter.query(&query, &mut output);
            if !status.is_success() {
                return Err(status);
            }
            capture::store(address, output.bytes())?;
            DONE
        }
        // Chosen: a driver that only renders is asked the same by either type.
        Type::KMTQAITYPE_WDDM_1_2_CAPS | Type::KMTQAITYPE_WDDM_1_2_CAPS_RENDER => {
            let mut answer = D3DKMT_WDDM_1_2_CAPS::zeroed();
            answer.PreemptionCaps = caps.driver.PreemptionCaps;
            answer.set_SupportPerEngineTDR(caps.has_engine_reset());
            give(address, size, &answer)
        }
        Type::KMTQAITYPE_WDDM_2_7_CAPS => {
            let enabled =
                adapter.feature(DXGK_FEATURE_ID::DXGK_FEATURE_HWSCH).enabled && caps.has_hardware_scheduling();
            let mut answer = D3DKMT_WDDM_2_7_CAPS::zeroed();
            answer.set_HwSchSupported(enabled);
            answer.set_HwSchEnabled(enabled);
            answer.set_HwSchEnabledByDefault(enabled);
            give(address, size, &answer)
        }
        Type::KMTQAITYPE_WDDM_2_9_CAPS => {
            let enabled =
                adapter.feature(DXGK_FEATURE_ID::DXGK_FEATURE_HWSCH).enabled && caps.has_hardware_scheduling();
            let mut answer = D3DKMT_WDDM_2_9_CAPS::zeroed();
            // DXGK_FEATURE_SUPPORT: 3 is "always on".
            answer.set_HwSchSupportState(if enabled { 3 } else { 0 });
            answer.set_HwSchEnabled(enabled);
            give(address, size, &answer)
        }
        Type::KMTQAITYPE_WDDM_3_1_CAPS => {
            let mut answer = D3DKMT_WDDM_3_1_CAPS::zeroed();
            answer.set_NativeGpuFenceSupported(caps.has_native_fences());
            give(address, size, &answer)
        }
        Type::KMTQAITYPE_NODEMETADATA => {
            let mut answer: D3DKMT_NODEMETADATA = capture::read(address)?;
            let asked = answer.NodeOrdinalAndAdapterIndex;
            let place = Place { node: asked & 0xFFFF, engine: asked >> 16 };
            let node = caps.node_at(place).and_then(|node| caps.node(node)).ok_or(INVALID)?;
            answer.NodeData = node.metadata;
            give(address, size, &answer)
        }
        Type::KMTQAITYPE_DRIVERVERSION | Type::KMTQAITYPE_DRIVERVERSION_RENDER => {
            // 0x3200 of the driver is 3200 of user mode.
            let version = caps.device_version.unwrap_or(caps.driver.WDDMVersion).0;
            let said = D3DKMT_DRIVERVERSION((version >> 12) * 1000 + (version >> 8 & 0xF) * 100);
            give(address, size, &said.0)
        }
        Type::KMTQAITYPE_ADAPTERTYPE | Type::KMTQAITYPE_ADAPTERTYPE_RENDER => {
            let kind = D3DKMT_ADAPTERTYPE::zeroed()
                .with_RenderSupported(true)
                .with_DisplaySupported(!caps.is_render_only())
                .with_ComputeOnly(caps.is_compute_only());
            give(address, size, &kind)
        }
        Type::KMTQAITYPE_PHYSICALADAPTERDEVICEIDS => {
            let mut answer: D3DKMT_QUERY_DEVICE_IDS = capture::read(address)?;
            if answer.PhysicalAdapterIndex >= caps.engines() {
                return Err(INVALID);
            }
            answer.DeviceIds = adapter.device.ids();
            give(address, size, &answer)
        }
        Type::KMTQAITYPE_PHYSICALADAPTERCOUNT => give(address, size, &caps.engines()),
        Type::KMTQAITYPE_GETSEGMENTSIZE => give(address, size, &segment_sizes(adapter)),
        Type::KMTQAITYPE_QUERY_GPUMMU_CAPS => {
            let mmu = caps.mmu.as_ref().ok_or(ntstatus::STATUS_NOT_SUPPORTED)?;
            let flags = u64::from(mmu.caps.ReadOnlyMemorySupported())
                | u64::from(mmu.caps.NoExecuteMemorySupported()) << 1
                | u64::from(mmu.caps.CacheCoherentMemorySupported()) << 2;
            give(address, size, &(flags | u64::from(mmu.caps.VirtualAddressBitCount) << 32))
        }
        Type::KMTQAITYPE_NODEPERFDATA
        | Type::KMTQAITYPE_ADAPTERPERFDATA
        | Type::KMTQAITYPE_ADAPTERPERFDATA_CAPS
        | Type::KMTQUITYPE_GPUVERSION => performance(adapter, record.Type, address, size),
        // No update of the driver is being installed.
        Type::KMTQAITYPE_CHECKDRIVERUPDATESTATUS => give(address, size, &0_u32),
        Type::KMTQAITYPE_UMDRIVERNAME => driver_name(adapter, address, size),
        Type::KMTQAITYPE_ADAPTERREGISTRYINFO | Type::KMTQAITYPE_ADAPTERREGISTRYINFO_RENDER => {
            registry_info(adapter, address, size)
        }
        Type::KMTQAITYPE_ADAPTERADDRESS | Type::KMTQAITYPE_ADAPTERADDRESS_RENDER => {
            // CAST: below 256.
            give(address, size, &[0_u32, adapter.device.index() as u32, 0])
        }
        _ => Err(INVALID),
    }
}

fn give<T: Plain>(address: usize, size: usize, answer: &T) -> Outcome {
    if size < size_of::<T>() {
        return Err(INVALID);
    }
    capture::write(address, answer)?;
    DONE
}

/// What the driver answers to the query of its own that this one becomes: the structure of user mode is the driver's
/// behind the index of the physical adapter, and for an engine that of the node.
///
/// Source: DDI pages DXGK_QUERYADAPTERINFOTYPE (NODEPERFDATA, ADAPTERPERFDATA, ADAPTERPERFDATA_CAPS, GPUVERSION),
/// D3DKMT_NODE_PERFDATA, D3DKMT_ADAPTER_PERFDATA, D3DKMT_ADAPTER_PERFDATACAPS, D3DKMT_GPUVERSION. Chosen, since no page
/// says of an input: the driver gets none, but for an engine its node and the index of the physical adapter, as user
/// mode gave them.
fn performance(adapter: &Adapter, kind: KMTQUERYADAPTERINFOTYPE, address: usize, size: usize) -> Outcome {
    use DXGK_QUERYADAPTERINFOTYPE as Query;
    use KMTQUERYADAPTERINFOTYPE as Type;
    fn asked<T: Plain>(adapter: &Adapter, kind: Query, input: &[u8]) -> Result<T, NTSTATUS> {
        let (status, record) = adapter.query_record(kind, input);
        if status.is_success() { record.ok_or(INVALID) } else { Err(status) }
    }
    fn given<T: Plain>(address: usize, size: usize) -> Result<T, NTSTATUS> {
        if size < size_of::<T>() { Err(INVALID) } else { capture::read(address) }
    }
    let caps = adapter.known_caps();
    let exists = |index: u32| if index < caps.engines() { Ok(()) } else { Err(INVALID) };
    match kind {
        Type::KMTQAITYPE_NODEPERFDATA => {
            let mut answer: D3DKMT_NODE_PERFDATA = given(address, size)?;
            let place = Place { node: answer.NodeOrdinal, engine: answer.PhysicalAdapterIndex };
            caps.node_at(place).ok_or(INVALID)?;
            let input = [answer.NodeOrdinal.to_le_bytes(), answer.PhysicalAdapterIndex.to_le_bytes()].concat();
            let said: DXGK_NODE_PERFDATA = asked(adapter, Query::DXGKQAITYPE_NODEPERFDATA, &input)?;
            (answer.Frequency, answer.MaxFrequency) = (said.Frequency, said.MaxFrequency);
            (answer.MaxFrequencyOC, answer.Voltage) = (said.MaxFrequencyOC, said.Voltage);
            (answer.VoltageMax, answer.VoltageMaxOC) = (said.VoltageMax, said.VoltageMaxOC);
            answer.MaxTransitionLatency = said.MaxTransitionLatency;
            give(address, size, &answer)
        }
        Type::KMTQAITYPE_ADAPTERPERFDATA => {
            let mut answer: D3DKMT_ADAPTER_PERFDATA = given(address, size)?;
            exists(answer.PhysicalAdapterIndex)?;
            let said: DXGK_ADAPTER_PERFDATA = asked(adapter, Query::DXGKQAITYPE_ADAPTERPERFDATA, &[])?;
            (answer.MemoryFrequency, answer.MaxMemoryFrequency) = (said.MemoryFrequency, said.MaxMemoryFrequency);
            (answer.MaxMemoryFrequencyOC, answer.MemoryBandwidth) = (said.MaxMemoryFrequencyOC, said.MemoryBandwidth);
            (answer.PCIEBandwidth, answer.FanRPM, answer.Power) = (said.PCIEBandwidth, said.FanRPM, said.Power);
            (answer.Temperature, answer.PowerStateOverride) = (said.Temperature, said.PowerStateOverride);
            give(address, size, &answer)
        }
        Type::KMTQAITYPE_ADAPTERPERFDATA_CAPS => {
            let mut answer: D3DKMT_ADAPTER_PERFDATACAPS = given(address, size)?;
            exists(answer.PhysicalAdapterIndex)?;
            let said: DXGK_ADAPTER_PERFDATACAPS = asked(adapter, Query::DXGKQAITYPE_ADAPTERPERFDATA_CAPS, &[])?;
            (answer.MaxMemoryBandwidth, answer.MaxPCIEBandwidth) = (said.MaxMemoryBandwidth, said.MaxPCIEBandwidth);
            (answer.MaxFanRPM, answer.TemperatureMax) = (said.MaxFanRPM, said.TemperatureMax);
            answer.TemperatureWarning = said.TemperatureWarning;
            give(address, size, &answer)
        }
        _ => {
            let mut answer: D3DKMT_GPUVERSION = given(address, size)?;
            exists(answer.PhysicalAdapterIndex)?;
            let said: DXGK_GPUVERSION = asked(adapter, Query::DXGKQAITYPE_GPUVERSION, &[])?;
            (answer.BiosVersion, answer.GpuArchitecture) = (said.BiosVersion, said.GpuArchitecture);
            give(address, size, &answer)
        }
    }
}

fn segment_sizes(adapter: &Adapter) -> D3DKMT_SEGMENTSIZEINFO {
    let mut sizes = D3DKMT_SEGMENTSIZEINFO::zeroed();
    for segment in &adapter.known_caps().segments {
        if segment.is_aperture() {
            sizes.SharedSystemMemorySize += segment.size();
        } else {
            sizes.DedicatedVideoMemorySize += segment.size();
        }
    }
    sizes
}

/// Values of the adapter's key, as strings.
fn registry_strings(adapter: &Adapter, name: &str) -> Vec<String> {
    let value = adapter.kernel().registry().get(&adapter.resources.key(), name);
    let Some(value) = value else { return Vec::new() };
    let units: Vec<_> = value.data.chunks_exact(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]])).collect();
    units.split(|unit| *unit == 0).filter(|part| !part.is_empty()).map(String::from_utf16_lossy).collect()
}

/// 260 characters of a string.
fn wide(text: &str) -> Vec<u8> {
    let mut units: Vec<u16> = text.encode_utf16().take(259).collect();
    units.resize(260, 0);
    units.into_iter().flat_map(u16::to_le_bytes).collect()
}

/// `UserModeDriverName` is a list by version: Direct3D 9, 10, 11, 12.
fn driver_name(adapter: &Adapter, address: usize, size: usize) -> Outcome {
    let version = capture::read::<u32>(address)? as usize;
    let name = registry_strings(adapter, "UserModeDriverName").into_iter().nth(version).ok_or(INVALID)?;
    let answer = wide(&name);
    if size < 4 + answer.len() {
        return Err(INVALID);
    }
    capture::store(address + 4, &answer)?;
    DONE
}

fn registry_info(adapter: &Adapter, address: usize, size: usize) -> Outcome {
    let names = [
        "HardwareInformation.AdapterString",
        "HardwareInformation.BiosString",
        "HardwareInformation.DacType",
        "HardwareInformation.ChipType",
    ];
    let answer: Vec<_> = names
        .iter()
        .flat_map(|name| wide(&registry_strings(adapter, name).first().cloned().unwrap_or_default()))
        .collect();
    if size < answer.len() {
        return Err(INVALID);
    }
    capture::store(address, &answer)?;
    DONE
}

/// `D3DKMT_ESCAPE_TDRDBGCTRL`: forces a reset, or changes how recovery behaves. Returns when the reset is over.
///
/// Source: DDI pages D3DKMT_ESCAPE (disabled unless TdrTestMode is 1), D3DKMT_TDRDBGCTRLTYPE, D3DKMT_TDRDBGCTRL_ESCAPE,
/// DXGK_TDR_TYPE (zero data forces one, too). Chosen: without TdrTestMode the status is STATUS_NOT_SUPPORTED; what
/// simulates timeouts of displays is refused for an adapter without any; breaks into a debugger that is not there
/// change nothing; a process that was not made one that may ([`Process::trust`](crate::process::Process::trust)) is
/// refused.
fn control_recovery(call: &Call, record: &D3DKMT_ESCAPE) -> Outcome {
    use D3DKMT_TDRDBGCTRLTYPE as Control;
    if !call.process.is_trusted() {
        return Err(ntstatus::STATUS_ACCESS_DENIED);
    }
    let part = adapter(call, record.hAdapter)?;
    let adapter = part.adapter();
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
            if size != size_of::<D3DKMT_TDRDBGCTRL_ESCAPE>() || adapter.scheduler.node(node).is_none() {
                return Err(INVALID);
            }
            crate::recovery::force(adapter, Some(node));
            DONE
        }
        Control::D3DKMT_TDRDBGCTRLTYPE_UNCONDITIONAL => {
            adapter.tdr.ignore_limits();
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
    let part = adapter(call, record.hAdapter)?;
    let adapter = part.adapter();
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
    arguments.hKmdProcessHandle = named(part.driver_handle());
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
