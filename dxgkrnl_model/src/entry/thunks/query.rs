//! `D3DKMTQueryAdapterInfo`: which type is answered by what.

mod measured;
mod registry;

use wddm_abi::{
    D3DKMT_ADAPTERTYPE, D3DKMT_DRIVERVERSION, D3DKMT_NODEMETADATA, D3DKMT_QUERY_DEVICE_IDS, D3DKMT_QUERYADAPTERINFO,
    D3DKMT_WDDM_1_2_CAPS, D3DKMT_WDDM_1_3_CAPS, D3DKMT_WDDM_2_0_CAPS, D3DKMT_WDDM_2_7_CAPS, D3DKMT_WDDM_2_9_CAPS,
    D3DKMT_WDDM_3_0_CAPS, D3DKMT_WDDM_3_1_CAPS, DXGK_FEATURE_ID, DXGK_QUERYADAPTERINFOTYPE, KMTQUERYADAPTERINFOTYPE,
    NTSTATUS, Plain, ntstatus,
};

use super::adapter::{PRIVATE_LIMIT, adapter};
use super::{Call, DONE, INVALID, Outcome, capture};
use crate::objects::process::ProcessAdapter;
use crate::port::caps::Caps;
use crate::port::features::Features;
use crate::port::miniport::Miniport;
use crate::port::place::Place;
use crate::port::query::{Buffer, Query};

/// Answers a query.
pub(super) fn query(call: &Call, record: &D3DKMT_QUERYADAPTERINFO) -> Outcome {
    use KMTQUERYADAPTERINFOTYPE as Type;
    let gpu_process = adapter(call, record.hAdapter)?;
    let adapter = gpu_process.adapter();
    let (address, size) = (record.pPrivateDriverData.expose_provenance(), record.PrivateDriverDataSize as usize);
    if size > PRIVATE_LIMIT || (address == 0 && size != 0) {
        return Err(INVALID);
    }
    let caps = adapter.known_caps();
    match record.Type {
        Type::KMTQAITYPE_UMDRIVERPRIVATE => private(&gpu_process, address, size),
        // Chosen: a driver that only renders is asked the same by either type.
        Type::KMTQAITYPE_WDDM_1_2_CAPS | Type::KMTQAITYPE_WDDM_1_2_CAPS_RENDER => {
            let mut answer = D3DKMT_WDDM_1_2_CAPS::zeroed();
            answer.PreemptionCaps = caps.driver.PreemptionCaps;
            answer.set_SupportPerEngineTDR(caps.has_engine_reset());
            give(address, size, &answer)
        }
        Type::KMTQAITYPE_WDDM_1_3_CAPS
        | Type::KMTQAITYPE_WDDM_1_3_CAPS_RENDER
        | Type::KMTQAITYPE_WDDM_2_0_CAPS
        | Type::KMTQAITYPE_WDDM_2_7_CAPS
        | Type::KMTQAITYPE_WDDM_2_9_CAPS
        | Type::KMTQAITYPE_WDDM_3_0_CAPS
        | Type::KMTQAITYPE_WDDM_3_1_CAPS => give(address, size, &wddm_caps(adapter, &caps, record.Type)),
        Type::KMTQAITYPE_NODEMETADATA => {
            let mut answer: D3DKMT_NODEMETADATA = taken(address, size)?;
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
            let mut answer: D3DKMT_QUERY_DEVICE_IDS = taken(address, size)?;
            if answer.PhysicalAdapterIndex >= caps.engines() {
                return Err(INVALID);
            }
            answer.DeviceIds = adapter.device.ids();
            give(address, size, &answer)
        }
        Type::KMTQAITYPE_PHYSICALADAPTERCOUNT => give(address, size, &caps.engines()),
        Type::KMTQAITYPE_GETSEGMENTSIZE => give(address, size, &measured::segment_sizes(&caps)),
        Type::KMTQAITYPE_GETSEGMENTGROUPSIZE => measured::segment_groups(&caps, address, size),
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
        | Type::KMTQUITYPE_GPUVERSION => measured::performance(adapter, record.Type, address, size),
        // No update of the driver is being installed.
        Type::KMTQAITYPE_CHECKDRIVERUPDATESTATUS | Type::KMTQAITYPE_CHECKDRIVERUPDATESTATUS_RENDER => {
            give(address, size, &0_u32)
        }
        Type::KMTQAITYPE_ADAPTERGUID | Type::KMTQAITYPE_ADAPTERGUID_RENDER => give(address, size, &adapter.guid()),
        Type::KMTQAITYPE_UMDRIVERNAME => registry::driver_name(adapter, address, size),
        Type::KMTQAITYPE_ADAPTERREGISTRYINFO | Type::KMTQAITYPE_ADAPTERREGISTRYINFO_RENDER => {
            registry::info(adapter, address, size)
        }
        Type::KMTQAITYPE_QUERYREGISTRY => registry::value(adapter, address, size),
        Type::KMTQAITYPE_DRIVER_DESCRIPTION | Type::KMTQAITYPE_DRIVER_DESCRIPTION_RENDER => {
            registry::description(adapter, address, size)
        }
        Type::KMTQAITYPE_KMD_DRIVER_VERSION | Type::KMTQAITYPE_UMD_DRIVER_VERSION => {
            has_room::<u64>(size)?;
            give(address, size, &registry::package_version(adapter)?)
        }
        Type::KMTQAITYPE_PHYSICALADAPTERPNPKEY => registry::key(adapter, address, size),
        Type::KMTQAITYPE_ADAPTERADDRESS | Type::KMTQAITYPE_ADAPTERADDRESS_RENDER => {
            // CAST: below 256.
            give(address, size, &[0_u32, adapter.device.index() as u32, 0])
        }
        _ => Err(INVALID),
    }
}

/// The driver's own data. The caller's bytes are its input and, as far as it writes, its output.
fn private(gpu_process: &ProcessAdapter, address: usize, size: usize) -> Outcome {
    let mut output = Buffer::new(size, 0);
    output.bytes_mut().copy_from_slice(&capture::bytes(address, size)?);
    let query = Query {
        kind: DXGK_QUERYADAPTERINFOTYPE::DXGKQAITYPE_UMDRIVERPRIVATE,
        input: &[],
        in_place: false,
        process: crate::port::handle::of_driver(gpu_process.driver_handle()),
    };
    let status = gpu_process.adapter().query(&query, &mut output);
    if !status.is_success() {
        return Err(status);
    }
    capture::store(address, output.bytes())?;
    DONE
}

/// Capabilities by the version of WDDM that brought them.
///
/// Source: DDI pages D3DKMT_WDDM_1_3_CAPS to D3DKMT_WDDM_3_1_CAPS: the graphics kernel knows them from the start of the
/// driver. Chosen: what is about displays is 0.
fn wddm_caps(adapter: &Miniport, caps: &Caps, kind: KMTQUERYADAPTERINFOTYPE) -> u32 {
    use KMTQUERYADAPTERINFOTYPE as Type;
    let scheduled = Features::of(adapter).query(adapter, DXGK_FEATURE_ID::DXGK_FEATURE_HWSCH).enabled
        && caps.has_hardware_scheduling();
    let memory = caps.driver.MemoryManagementCaps;
    match kind {
        Type::KMTQAITYPE_WDDM_1_3_CAPS | Type::KMTQAITYPE_WDDM_1_3_CAPS_RENDER => {
            let mut answer = D3DKMT_WDDM_1_3_CAPS::zeroed();
            answer.set_IsHybridIntegratedGPU(caps.driver.HybridIntegrated != 0);
            answer.set_IsHybridDiscreteGPU(caps.driver.HybridDiscrete != 0);
            answer.set_SupportCrossAdapterResource(memory.CrossAdapterResource());
            answer.Value
        }
        Type::KMTQAITYPE_WDDM_2_0_CAPS => {
            let mut answer = D3DKMT_WDDM_2_0_CAPS::zeroed();
            answer.set_Support64BitAtomics(caps.has_64_bit_atomics());
            answer.set_GpuMmuSupported(memory.GpuMmuSupported());
            answer.set_IoMmuSupported(memory.IoMmuSupported());
            answer.set_SupportSurpriseRemoval(caps.driver.SupportSurpriseRemoval != 0);
            answer.Value
        }
        Type::KMTQAITYPE_WDDM_2_7_CAPS => {
            let mut answer = D3DKMT_WDDM_2_7_CAPS::zeroed();
            answer.set_HwSchSupported(scheduled);
            answer.set_HwSchEnabled(scheduled);
            answer.set_HwSchEnabledByDefault(scheduled);
            answer.Value
        }
        Type::KMTQAITYPE_WDDM_2_9_CAPS => {
            let mut answer = D3DKMT_WDDM_2_9_CAPS::zeroed();
            // DXGK_FEATURE_SUPPORT: 3 is "always on".
            answer.set_HwSchSupportState(if scheduled { 3 } else { 0 });
            answer.set_HwSchEnabled(scheduled);
            answer.Value
        }
        Type::KMTQAITYPE_WDDM_3_0_CAPS => {
            let mut answer = D3DKMT_WDDM_3_0_CAPS::zeroed();
            answer.set_DisplayableSupported(caps.driver.MiscCaps.DisplayableSupport());
            answer.Value
        }
        _ => {
            let mut answer = D3DKMT_WDDM_3_1_CAPS::zeroed();
            answer.set_NativeGpuFenceSupported(caps.has_native_fences());
            answer.Value
        }
    }
}

/// Refuses a buffer that is too short for a `T`.
fn has_room<T>(size: usize) -> Result<(), NTSTATUS> {
    if size < size_of::<T>() { Err(INVALID) } else { Ok(()) }
}

/// Stores an answer where there is room for it.
fn give<T: Plain>(address: usize, size: usize, answer: &T) -> Outcome {
    has_room::<T>(size)?;
    capture::write(address, answer)?;
    DONE
}

/// The record that a query brings.
fn taken<T: Plain>(address: usize, size: usize) -> Result<T, NTSTATUS> {
    has_room::<T>(size)?;
    capture::read(address)
}
