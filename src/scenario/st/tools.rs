//! What Windows' tools ask of an adapter, by gdi32: what it is, what it is called, and what it measures.

use crate::scenario::db::raw;
use crate::scenario::{Played, Raw, Scenario, Scene, Setup, Stage, portable, same};
use anyhow::ensure;
use gpu_wire::private::Rung;
use kmd_core::caps::{ARCHITECTURE, BIOS};
use wddm_abi::ntstatus::{STATUS_INVALID_PARAMETER, STATUS_SUCCESS};
use wddm_abi::{
    D3DKMT_ADAPTER_PERFDATA, D3DKMT_ADAPTER_PERFDATACAPS, D3DKMT_DRIVERVERSION, D3DKMT_GPUVERSION,
    D3DKMT_NODE_PERFDATA, D3DKMT_NODEMETADATA, D3DKMT_QUERYADAPTERINFO, D3DKMT_SEGMENTSIZEINFO, D3DKMT_WDDM_2_7_CAPS,
    D3DKMT_WDDM_2_9_CAPS, DXGK_ENGINE_TYPE, DXGK_QUERYADAPTERINFOTYPE as Query, KMTQUERYADAPTERINFOTYPE as Type,
    NTSTATUS, Plain,
};

pub(super) const CASE: Scenario = Scenario {
    id: "ST-96",
    title: "what tools ask: version, hardware scheduling, names of engines, memory, performance, architecture",
    source: "D3DKMT_GPUVERSION; D3DKMT_ADAPTER_PERFDATA; D3DKMT_ADAPTER_PERFDATACAPS; D3DKMT_NODE_PERFDATA; \
             D3DKMT_NODEMETADATA; D3DKMT_SEGMENTSIZEINFO; D3DKMT_DRIVERVERSION; D3DKMT_WDDM_2_7_CAPS",
    play: tools,
};

/// Asks with `size` bytes of room.
fn ask_within<T: Plain>(raw: &Raw, kind: Type, answer: &mut T, size: usize) -> NTSTATUS {
    let mut record = D3DKMT_QUERYADAPTERINFO::zeroed();
    (record.hAdapter, record.Type) = (raw.adapter, kind);
    record.pPrivateDriverData = (&raw mut *answer).cast();
    // CAST: some hundreds of bytes.
    record.PrivateDriverDataSize = size as u32;
    raw.call(raw.thunks.D3DKMTQueryAdapterInfo, &mut record)
}

fn ask<T: Plain>(raw: &Raw, kind: Type, answer: &mut T) -> NTSTATUS {
    ask_within(raw, kind, answer, size_of::<T>())
}

/// One byte too few is refused, and nothing is written.
fn refuses_a_short_one<T: Plain>(raw: &Raw, kind: Type, mut answer: T) -> Played {
    let before = answer.as_bytes().to_vec();
    let status = ask_within(raw, kind, &mut answer, size_of::<T>() - 1);
    same("a byte too few", status, STATUS_INVALID_PARAMETER)?;
    ensure!(answer.as_bytes() == before, "{kind:?}: a refusal wrote");
    Ok(())
}

/// The characters before the zero, which must be there.
fn text(units: &[u16]) -> anyhow::Result<String> {
    let end = units.iter().position(|unit| *unit == 0);
    ensure!(end.is_some(), "a text without an end: {units:?}");
    Ok(String::from_utf16_lossy(&units[..end.unwrap_or_default()]))
}

fn performance(scene: &Scene, raw: &Raw) -> Played {
    let mut version = D3DKMT_GPUVERSION::zeroed();
    same("GPUVERSION", ask(raw, Type::KMTQUITYPE_GPUVERSION, &mut version), STATUS_SUCCESS)?;
    same("BiosVersion", text(&{ version.BiosVersion })?, BIOS.to_owned())?;
    same("GpuArchitecture", text(&{ version.GpuArchitecture })?, ARCHITECTURE.to_owned())?;
    refuses_a_short_one(raw, Type::KMTQUITYPE_GPUVERSION, D3DKMT_GPUVERSION::zeroed())?;
    version.PhysicalAdapterIndex = 1;
    same("another adapter", ask(raw, Type::KMTQUITYPE_GPUVERSION, &mut version), STATUS_INVALID_PARAMETER)?;

    let mut limits = D3DKMT_ADAPTER_PERFDATACAPS::zeroed();
    same("caps", ask(raw, Type::KMTQAITYPE_ADAPTERPERFDATA_CAPS, &mut limits), STATUS_SUCCESS)?;
    ensure!(limits.as_bytes().iter().all(|byte| *byte == 0), "limits of nothing: {limits:?}");
    refuses_a_short_one(raw, Type::KMTQAITYPE_ADAPTERPERFDATA_CAPS, limits)?;

    for node in 0..3 {
        let mut engine = D3DKMT_NODE_PERFDATA::zeroed();
        engine.NodeOrdinal = node;
        same("an engine", ask(raw, Type::KMTQAITYPE_NODEPERFDATA, &mut engine), STATUS_SUCCESS)?;
        ensure!(engine.as_bytes()[4..].iter().all(|byte| *byte == 0), "a thread has a clock: {engine:?}");
        same("its node", engine.NodeOrdinal, node)?;
    }
    let mut nobody = D3DKMT_NODE_PERFDATA::zeroed();
    nobody.NodeOrdinal = 3;
    same("no engine", ask(raw, Type::KMTQAITYPE_NODEPERFDATA, &mut nobody), STATUS_INVALID_PARAMETER)?;

    let mut data = D3DKMT_ADAPTER_PERFDATA::zeroed();
    same("data", ask(raw, Type::KMTQAITYPE_ADAPTERPERFDATA, &mut data), STATUS_SUCCESS)?;
    same("PowerStateOverride in D0", data.PowerStateOverride, 1)?;
    data.PowerStateOverride = 0;
    ensure!(data.as_bytes().iter().all(|byte| *byte == 0), "a sensor that is not there: {data:?}");
    refuses_a_short_one(raw, Type::KMTQAITYPE_ADAPTERPERFDATA, data)?;
    // Asked below user mode, where nobody wakes the device first. Rooms of older systems are filled as far as they go.
    let has_power = |size: usize| {
        let (status, output) =
            scene.world.os.query_adapter_info(scene.adapter(), Query::DXGKQAITYPE_ADAPTERPERFDATA, &[], size);
        (status, output.get(52).copied())
    };
    same("an older room", has_power(52), (STATUS_SUCCESS, None))?;
    same("in D0", has_power(53), (STATUS_SUCCESS, Some(1)))?;
    scene.world.os.put_to_sleep(scene.adapter(), false);
    same("in D3", has_power(53), (STATUS_SUCCESS, Some(0)))?;
    scene.world.os.wake_up(scene.adapter());
    same("in D0 again", has_power(53), (STATUS_SUCCESS, Some(1)))
}

fn tools(stage: &Stage) -> Played {
    let compute_only = stage.setting("ComputeOnly") == Some(1);
    stage.play(Setup::default(), |scene| {
        portable::part(scene, "ST-96")?;
        let raw = raw(scene)?;
        let mut version = 0_u32;
        same("DRIVERVERSION", ask(&raw, Type::KMTQAITYPE_DRIVERVERSION, &mut version), STATUS_SUCCESS)?;
        // CAST: an enumerator's number.
        let is = D3DKMT_DRIVERVERSION(version as i32);
        same("the driver model", is, D3DKMT_DRIVERVERSION::KMT_DRIVERVERSION_WDDM_3_2)?;
        // "Is HAGS on?"
        let on = scene.process("asks")?.open()?.info()?.rung >= Rung::HardwareQueues.raw();
        let mut older = D3DKMT_WDDM_2_7_CAPS::zeroed();
        same("WDDM_2_7_CAPS", ask(&raw, Type::KMTQAITYPE_WDDM_2_7_CAPS, &mut older), STATUS_SUCCESS)?;
        same("supported, on", (older.HwSchSupported(), older.HwSchEnabled()), (on, on))?;
        let mut newer = D3DKMT_WDDM_2_9_CAPS::zeroed();
        same("WDDM_2_9_CAPS", ask(&raw, Type::KMTQAITYPE_WDDM_2_9_CAPS, &mut newer), STATUS_SUCCESS)?;
        same("supported, on", (newer.HwSchSupportState() != 0, newer.HwSchEnabled()), (on, on))?;
        let (three_d, copy, other) = (
            DXGK_ENGINE_TYPE::DXGK_ENGINE_TYPE_3D,
            DXGK_ENGINE_TYPE::DXGK_ENGINE_TYPE_COPY,
            DXGK_ENGINE_TYPE::DXGK_ENGINE_TYPE_OTHER,
        );
        let first = if compute_only { (other, "Compute") } else { (three_d, "3D and compute") };
        for (node, (kind, name)) in (0..).zip([first, (copy, "Copy"), (copy, "Paging")]) {
            let mut engine = D3DKMT_NODEMETADATA::zeroed();
            engine.NodeOrdinalAndAdapterIndex = node;
            same("NODEMETADATA", ask(&raw, Type::KMTQAITYPE_NODEMETADATA, &mut engine), STATUS_SUCCESS)?;
            let data = engine.NodeData;
            same("its type", data.EngineType, kind)?;
            same("its name", text(&{ data.FriendlyName })?, name.to_owned())?;
        }
        let mut memory = D3DKMT_SEGMENTSIZEINFO::zeroed();
        same("GETSEGMENTSIZE", ask(&raw, Type::KMTQAITYPE_GETSEGMENTSIZE, &mut memory), STATUS_SUCCESS)?;
        let size = scene.adapter().registry_value("HardwareInformation.qwMemorySize");
        let dedicated = { memory.DedicatedVideoMemorySize };
        same("memory, as the key has it", size.and_then(|value| value.number()), Some(dedicated))?;
        performance(scene, &raw)
    })
}
