//! What `DriverEntry` decides: which driver the image is, and how it finds Dxgkrnl.

use super::{Scenario, expected, work};
use crate::scenario::db::raw;
use crate::scenario::raw::Raw;
use crate::scenario::{Played, Setup, Stage, same};
use anyhow::{Context, ensure};
use dxgkrnl_model::adapter::compute::DeviceClass;
use dxgkrnl_model::personality::MS;
use dxgkrnl_model::personality::handshake::Requests;
use wddm_abi::DXGK_ENGINE_TYPE as Engine;
use wddm_abi::DXGK_QUERYADAPTERINFOTYPE as Query;
use wddm_abi::ntstatus::{STATUS_INVALID_PARAMETER, STATUS_SUCCESS};
use wddm_abi::{
    D3DKMT_ADAPTERINFO, D3DKMT_ADAPTERTYPE, D3DKMT_CLOSEADAPTER, D3DKMT_ENUMADAPTERS_FILTER, D3DKMT_ENUMADAPTERS2,
    D3DKMT_ENUMADAPTERS3, D3DKMT_QUERYADAPTERINFO, KMTQUERYADAPTERINFOTYPE, LUID, Plain,
};

pub(super) const CASES: &[Scenario] = &[
    Scenario {
        id: "ST-62",
        title: "the compute-only form: its table, its capabilities, its class, and the same work on every rung",
        source: "MCDM kernel-mode driver implementation guidelines",
        play: compute_only,
    },
    Scenario {
        id: "ST-69",
        title: "a compute-only adapter is of its own type, is listed where it is asked for, and a program finds it",
        source: "D3DKMT_ENUMADAPTERS3, Filter and Remarks; D3DKMT_ADAPTERTYPE",
        play: listed,
    },
    Scenario {
        id: "ST-81",
        title: "values of the service that are out of range are named, and the driver starts as without them",
        source: "docs/settings.md",
        play: out_of_range,
    },
    Scenario {
        id: "ST-63",
        title: "the request for DxgkInitialize: the newer code, the older one, a device that comes late",
        source: "docs/decisions/0001-cross-build.md; public filter drivers",
        play: handshake,
    },
];

/// Functions that a compute-only driver must not have, of those that this driver has otherwise.
const GONE: [&str; 6] = [
    "DxgkDdiNotifyAcpiEvent",
    "DxgkDdiPresent",
    "DxgkDdiQueryCurrentFence",
    "DxgkDdiRenderGdi",
    "DxgkDdiRenderKm",
    "DxgkDdiUpdateMonitorLinkInfo",
];

fn out_of_range(stage: &Stage) -> Played {
    stage.play(Setup::default().setting("ComputeOnly", 2).setting("HandshakeCode", 9), |scene| {
        let caps = scene.adapter().caps().context("caps")?;
        same("ComputeOnly", caps.is_compute_only(), false)?;
        let printed = scene.world.os.kernel().debug_messages().join("");
        for named in ["ComputeOnly = 2 is out of range", "HandshakeCode = 9 is out of range"] {
            ensure!(printed.contains(named), "no line says '{named}'");
        }
        work(scene).map(drop)
    })
}

fn compute_only(stage: &Stage) -> Played {
    let compute = || Setup::default().setting("ComputeOnly", 1);
    for rung in 0..=stage.rung() {
        stage
            .play(compute().setting("MaxRung", rung), |scene| {
                let caps = scene.adapter().caps().context("caps")?;
                same("ComputeOnly", caps.is_compute_only(), true)?;
                let null = scene.adapter().null_slots();
                let there: Vec<_> = GONE.iter().filter(|slot| !null.contains(slot)).collect();
                ensure!(there.is_empty(), "not NULL: {there:?}");
                let scheduling = caps.driver.SchedulingCaps;
                let flags = (scheduling.NoDmaPatching(), scheduling.HwQueuePacketCap(), caps.driver.SupportNonVGA);
                same("NoDmaPatching, HwQueuePacketCap, SupportNonVGA", flags, (false, 0, 0))?;
                let types: Vec<_> = caps.nodes.iter().map(|node| node.engine_type()).collect();
                let copy = Engine::DXGK_ENGINE_TYPE_COPY;
                same("engine types", types, vec![Engine::DXGK_ENGINE_TYPE_OTHER, copy, copy])?;
                for kind in [Query::DXGKQAITYPE_DEVICE_TYPE_CAPS, Query::DXGKQAITYPE_DISPLAY_DRIVERCAPS_EXTENSION] {
                    let (status, _) = scene.world.os.query_adapter_info(scene.adapter(), kind, &[], 64);
                    same("a query that is refused", status, STATUS_INVALID_PARAMETER)?;
                }
                let printed = scene.world.os.kernel().debug_messages().join("");
                ensure!(printed.contains("started as a compute-only driver"), "{printed}");
                same("work", work(scene)?, expected(stage, rung))
            })
            .with_context(|| format!("rung {rung}"))?;
    }
    // Class and kind that do not fit.
    for (value, class) in [(0, DeviceClass::ComputeAccelerator), (1, DeviceClass::Display)] {
        let mut setup = Setup::default().setting("ComputeOnly", value).breaks(&["DXG-COMPUTE-CLASS"]);
        setup.adapter.class = Some(class);
        stage.play(setup, |_| Ok(())).with_context(|| format!("ComputeOnly {value}, {class:?}"))?;
    }
    // The render-only form has what the other must not have.
    stage.play(Setup::default().setting("ComputeOnly", 0), |scene| {
        let null = scene.adapter().null_slots();
        ensure!(GONE.iter().all(|slot| !null.contains(slot)), "NULL: {null:?}");
        same("ComputeOnly", scene.adapter().caps().context("caps")?.is_compute_only(), false)
    })
}

/// The adapter's LUID among those that `D3DKMTEnumAdapters3` lists with a filter, or `D3DKMTEnumAdapters2` without one.
fn lists(raw: &Raw, luid: LUID, filter: Option<D3DKMT_ENUMADAPTERS_FILTER>) -> anyhow::Result<bool> {
    let mut found = [D3DKMT_ADAPTERINFO::zeroed(); 4];
    // CAST: four.
    let (room, array) = (found.len() as u32, found.as_mut_ptr());
    let (status, count) = match filter {
        Some(filter) => {
            let mut record = D3DKMT_ENUMADAPTERS3 { Filter: filter, ..D3DKMT_ENUMADAPTERS3::zeroed() };
            (record.NumAdapters, record.pAdapters) = (room, array);
            (raw.call(raw.thunks.D3DKMTEnumAdapters3, &mut record), record.NumAdapters)
        }
        None => {
            let mut record = D3DKMT_ENUMADAPTERS2::zeroed();
            (record.NumAdapters, record.pAdapters) = (room, array);
            (raw.call(raw.thunks.D3DKMTEnumAdapters2, &mut record), record.NumAdapters)
        }
    };
    same("a list of adapters", status, STATUS_SUCCESS)?;
    let listed = &found[..count as usize];
    for adapter in listed {
        let mut record = D3DKMT_CLOSEADAPTER::zeroed();
        record.hAdapter = adapter.hAdapter;
        same("closing", raw.call(raw.thunks.D3DKMTCloseAdapter, &mut record), STATUS_SUCCESS)?;
    }
    let is_it = |adapter: &D3DKMT_ADAPTERINFO| adapter.AdapterLuid.as_bytes() == luid.as_bytes();
    Ok(listed.iter().any(is_it))
}

/// What `KMTQAITYPE_ADAPTERTYPE` says.
fn adapter_type(raw: &Raw) -> anyhow::Result<D3DKMT_ADAPTERTYPE> {
    let mut kind = D3DKMT_ADAPTERTYPE::zeroed();
    let mut record = D3DKMT_QUERYADAPTERINFO::zeroed();
    (record.hAdapter, record.Type) = (raw.adapter, KMTQUERYADAPTERINFOTYPE::KMTQAITYPE_ADAPTERTYPE);
    record.pPrivateDriverData = (&raw mut kind).cast();
    // CAST: four bytes.
    record.PrivateDriverDataSize = size_of_val(&kind) as u32;
    same("the query", raw.call(raw.thunks.D3DKMTQueryAdapterInfo, &mut record), STATUS_SUCCESS)?;
    Ok(kind)
}

fn listed(stage: &Stage) -> Played {
    let plain = D3DKMT_ENUMADAPTERS_FILTER::zeroed();
    for (compute_only, by_both) in [(true, true), (true, false), (false, true), (false, false)] {
        let setup = Setup::default().setting("ComputeOnly", compute_only.into());
        let setup = setup.windows(|windows| windows.lists_compute_only = by_both);
        let what = || format!("ComputeOnly {compute_only}, listed without a filter {by_both}");
        let played = stage.play(setup, |scene| {
            let (raw, luid) = (raw(scene)?, scene.adapter().luid());
            same("with IncludeComputeOnly", lists(&raw, luid, Some(plain.with_IncludeComputeOnly(true)))?, true)?;
            same("without it", lists(&raw, luid, Some(plain))?, !compute_only)?;
            same("by the older call", lists(&raw, luid, None)?, !compute_only || by_both)?;
            let kind = adapter_type(&raw)?;
            let said = (kind.RenderSupported(), kind.DisplaySupported(), kind.ComputeOnly(), kind.Value >> 11 & 1);
            same("type", said, (true, false, compute_only, compute_only.into()))?;
            // By enumeration, and not by its LUID.
            let program = scene.process("finds it")?.open_with(None, 0)?;
            let calls = program.thunk_calls()?;
            let made = |name: &str| calls.iter().find(|(known, ..)| known == name).map_or(0, |(_, calls, _)| *calls);
            same("enumerations", (made("D3DKMTEnumAdapters3"), made("D3DKMTEnumAdapters2")), (2, 0))
        });
        played.with_context(what)?;
    }
    Ok(())
}

/// What Dxgkrnl answers, which code the setting names, and how the entry ends.
const HANDSHAKES: &[(Requests, u32, Option<&str>)] = &[
    (Requests::Both, 0, None),
    (Requests::Both, 1, None),
    (Requests::Both, 2, None),
    (Requests::Older, 0, None),
    (Requests::Older, 1, Some("DriverEntry returned")),
    (Requests::Newer, 0, None),
    (Requests::Newer, 2, Some("DriverEntry returned")),
    // The newer code first: the older one would be answered, and its function would refuse the table.
    (Requests::OlderForOldTables, 0, None),
    (Requests::OlderForOldTables, 2, Some("DriverEntry returned")),
];

fn handshake(stage: &Stage) -> Played {
    // A driver that is linked in calls the model's function itself.
    if stage.is_native() {
        return stage.play(Setup::default(), |scene| raw(scene).map(drop));
    }
    for (requests, code, refused) in HANDSHAKES {
        let setup = Setup::default().setting("HandshakeCode", *code);
        let setup = setup.windows(|windows| windows.handshake.requests = *requests);
        let what = || format!("{requests:?}, HandshakeCode {code}");
        match refused {
            None => stage.play(setup, |scene| work(scene).map(drop)).with_context(what)?,
            Some(words) => {
                let played = stage.play(setup, |_| Ok(()));
                let why = format!("{:#}", played.err().with_context(what)?);
                ensure!(why.contains(words), "{}: {why}", what());
            }
        }
    }
    for (late, works) in [(100 * MS, true), (5000 * MS, false)] {
        let setup = Setup::default().windows(|windows| windows.handshake.device_after = late);
        let played = stage.play(setup, |scene| work(scene).map(drop));
        same("a device that comes late", played.is_ok(), works)?;
    }
    Ok(())
}
