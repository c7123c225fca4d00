//! ST: start and negotiation. ST-08, a real start on a Windows 11 machine, is Windows's: `docs/windows.md`.
//!
//! | file | holds |
//! |---|---|
//! | `st.rs` | the start, features, other interfaces |
//! | `st/engines.rs` | engines, of which there is one |
//! | `st/entry.rs` | which driver the image is, and how it finds Dxgkrnl |
//! | `st/first.rs` | answers about which documents disagree, features |
//! | `st/layout.rs` | segments, the node that pages, the physical adapter |
//! | `st/os.rs` | what the OS may do without being asked by a client of ours |
//! | `st/queries.rs` | `DxgkDdiQueryAdapterInfo` |
//! | `st/spaces.rs` | address spaces, page tables that change in order with work |
//! | `st/stopped.rs` | operations that cannot be carried out, memory that is added |
//! | `st/tools.rs` | what tools ask by gdi32 |

mod engines;
mod entry;
mod first;
mod layout;
mod os;
mod queries;
mod records;
mod spaces;
mod stopped;
mod tools;

pub(super) use records::edge;
pub(super) use spaces::Worker;

use super::db::{Room, joined, raw};
use super::stage::PATIENCE;
use super::{Played, Scenario, Scene, Setup, Stage, same};
use crate::setting::registry_value;
use anyhow::{Context, ensure};
use dxgkrnl_model::adapter::AdapterState;
use dxgkrnl_model::personality::Build;
use umd_core::ffi::types::{FP_KIND_SYSTEM, FP_MODE_KERNEL, FP_MODE_PACKET, FP_MODE_USER};
use wddm_abi::DXGK_FEATURE_ID as Feature;
use wddm_abi::ntstatus::STATUS_SUCCESS;
use wddm_abi::slots::DRIVER_INITIALIZATION_DATA_SLOTS;
use wddm_abi::{DXGK_WDDMVERSION, DXGKDDI_INTERFACE_VERSION_WDDM3_2};

const FEATURES: &str = "Querying WDDM feature support and enablement";

pub(super) const CASES: &[Scenario] = &joined::<
    {
        OWN.len()
            + queries::CASES.len()
            + first::CASES.len()
            + layout::CASES.len()
            + os::CASES.len()
            + entry::CASES.len()
            + spaces::CASES.len()
            + stopped::CASES.len()
            + engines::CASES.len()
            + 2
    },
>(&[
    OWN,
    queries::CASES,
    first::CASES,
    layout::CASES,
    os::CASES,
    entry::CASES,
    spaces::CASES,
    stopped::CASES,
    engines::CASES,
    &[records::CASE, tools::CASE],
]);

const OWN: &[Scenario] = &[
    Scenario {
        id: "ST-01",
        title: "the start, query by query, ends with a working adapter",
        source: "Initializing the display miniport driver; DxgkDdiStartDevice; DxgkDdiQueryAdapterInfo",
        play: transcript,
    },
    Scenario {
        id: "ST-02",
        title: "version of table, driver caps and device caps agree",
        source: "DXGK_DRIVERCAPS, WDDMVersion; DRIVER_INITIALIZATION_DATA, Version",
        play: versions,
    },
    Scenario { id: "ST-03", title: "with a feature off, the driver works a rung lower", source: FEATURES, play: lower },
    Scenario {
        id: "ST-04",
        title: "a feature whose dependency is off is off",
        source: "Querying WDDM feature support and enablement, Feature dependencies",
        play: dependency,
    },
    Scenario {
        id: "ST-05",
        title: "slots that are NULL are those that nothing advertised needs",
        source: "DRIVER_INITIALIZATION_DATA",
        play: slots,
    },
    Scenario {
        id: "ST-07",
        title: "a smaller DXGKRNL_INTERFACE: not read beyond, and doorbells off without their callback",
        source: "DXGKRNL_INTERFACE, Size; DxgkCbDisconnectDoorbell",
        play: smaller_interface,
    },
    Scenario {
        id: "ST-42",
        title: "the interface version of a later kit",
        source: "DXGKRNL_INTERFACE, Version; DXGKDDI_INTERFACE_VERSION",
        play: later_kit,
    },
    Scenario {
        id: "ST-43",
        title: "stopped and started ten times, and work in between",
        source: "DxgkDdiStopDevice; DxgkDdiStartDevice",
        play: again,
    },
];

/// Runs work by the user-mode driver on every node that takes it: the mode, and whether fences are native.
fn work(scene: &Scene) -> anyhow::Result<(u32, bool)> {
    let user = scene.process("client")?;
    let adapter = user.open()?;
    let device = adapter.device()?;
    let memory = device.allocate(FP_KIND_SYSTEM, 4096, 0)?;
    let at = memory.gpu_va()?;
    let mut mode = 0;
    for node in 0..2 {
        let queue = device.queue(node, 4096, 0, 0)?;
        let fence = device.fence(0, 0)?;
        mode = queue.info()?.mode;
        queue.run(|list| list.store(at + u64::from(node) * 8, u64::from(node) + 1))?;
        queue.run(|list| list.signal(&fence, 1))?;
        fence.wait(1, PATIENCE)?;
        queue.wait(0, PATIENCE)?;
        same("memory", memory.read_u64(u64::from(node) * 8)?, u64::from(node) + 1)?;
    }
    Ok((mode, adapter.info()?.native_fences != 0))
}

/// What [`work`] returns on `rung`, or on the stage's if that is lower: how work is submitted, and whether there are
/// native fences.
fn expected(stage: &Stage, rung: u32) -> (u32, bool) {
    match rung.min(stage.rung()) {
        0 => (FP_MODE_PACKET, false),
        1 => (FP_MODE_KERNEL, false),
        2 => (FP_MODE_KERNEL, true),
        _ => (FP_MODE_USER, true),
    }
}

fn transcript(stage: &Stage) -> Played {
    stage.play(Setup::default(), |scene| {
        let lines = scene.adapter().transcript();
        ensure!(lines.len() > 20, "{} lines", lines.len());
        let place = |step: &str| {
            let found = lines.iter().position(|line| line.step.starts_with(step));
            found.with_context(|| format!("'{step}' is not in the transcript"))
        };
        let order = ["AddDevice", "StartDevice", "query DRIVERCAPS", "GetNodeMetadata 0", "query PHYSICALADAPTERCAPS"];
        let places = order.iter().map(|step| place(step)).collect::<Result<Vec<_>, _>>()?;
        ensure!(places.is_sorted(), "{order:?} at {places:?}");
        let success = format!("{STATUS_SUCCESS:?}");
        for line in lines.iter().filter(|line| !line.step.contains("unknown") && !line.step.starts_with("feature")) {
            ensure!(line.answer.starts_with(&success) || line.answer.starts_with("S"), "{line}");
        }
        same("state", scene.adapter().state(), AdapterState::Started)?;
        same("work", work(scene)?, expected(stage, 3))
    })
}

fn versions(stage: &Stage) -> Played {
    stage.play(Setup::default(), |scene| {
        let caps = scene.adapter().caps().context("caps")?;
        let want = DXGK_WDDMVERSION::DXGKDDI_WDDMv3_2;
        same("DRIVERCAPS and WDDMDEVICECAPS", (caps.driver.WDDMVersion, caps.device_version), (want, Some(want)))?;
        let report = scene.world.os.report();
        let rule = report.rules.iter().find(|rule| rule.rule.name == "DXG-VERSION-AGREES").context("the rule")?;
        ensure!(rule.evaluations > 0 && rule.broken == 0, "not judged");
        Ok(())
    })
}

/// DDIs of hardware queues, of native fences, of doorbells.
const FAMILIES: [&[&str]; 3] = [
    &["DxgkDdiSuspendContext", "DxgkDdiCreateHwQueue", "DxgkDdiSubmitCommandToHwQueue", "DxgkDdiSetupPriorityBands"],
    &[
        "DxgkDdiCreateNativeFence",
        "DxgkDdiOpenNativeFence",
        "DxgkDdiUpdateMonitoredValues",
        "DxgkDdiUpdateCurrentValuesFromCpu",
    ],
    &[
        "DxgkDdiCreateDoorbell",
        "DxgkDdiConnectDoorbell",
        "DxgkDdiNotifyWorkSubmission",
        "DxgkDdiSetNativeFenceLogBuffer",
    ],
];

/// Plays work on `setup`; `rung` families of DDIs may be called, the others must not.
fn rung(stage: &Stage, what: &str, setup: Setup, rung: usize, mode: u32) -> Played {
    stage
        .play(setup, |scene| {
            same("mode and native fences", work(scene)?, (mode, rung >= 2))?;
            for name in FAMILIES[rung..].iter().copied().flatten() {
                same(name, scene.calls(name), 0)?;
            }
            let caps = scene.adapter().caps().context("caps")?;
            let advertised =
                (caps.has_hardware_scheduling(), caps.has_native_fences(), caps.has_user_mode_submission());
            same("advertised", advertised, (rung >= 1, rung >= 2, rung >= 3))
        })
        .with_context(|| what.to_owned())
}

fn lower(stage: &Stage) -> Played {
    let without = |feature| Setup::default().without(feature);
    rung(stage, "everything on", Setup::default(), 3, FP_MODE_USER)?;
    rung(stage, "no HWSCH", without(Feature::DXGK_FEATURE_HWSCH), 0, FP_MODE_PACKET)?;
    rung(stage, "no NATIVE_FENCE", without(Feature::DXGK_FEATURE_NATIVE_FENCE), 1, FP_MODE_KERNEL)?;
    rung(stage, "no USER_MODE_SUBMISSION", without(Feature::DXGK_FEATURE_USER_MODE_SUBMISSION), 2, FP_MODE_KERNEL)?;
    // The driver's own limit gives the same.
    for (limit, mode) in [(0, FP_MODE_PACKET), (1, FP_MODE_KERNEL), (2, FP_MODE_KERNEL)] {
        let setup = Setup::default().setting("MaxRung", limit);
        rung(stage, "MaxRung", setup, usize::try_from(limit)?, mode)?;
    }
    Ok(())
}

fn dependency(stage: &Stage) -> Played {
    let on = |scene: &Scene, feature| scene.adapter().feature(feature).enabled;
    stage.play(Setup::default().without(Feature::DXGK_FEATURE_HWSCH), |scene| {
        let state = scene.adapter().feature(Feature::DXGK_FEATURE_USER_MODE_SUBMISSION);
        same(
            "USER_MODE_SUBMISSION known, available, enabled",
            (state.known, state.available, state.enabled),
            (true, true, false),
        )?;
        same("version", state.version, 0)?;
        same("NATIVE_FENCE", on(scene, Feature::DXGK_FEATURE_NATIVE_FENCE), false)
    })?;
    stage.play(Setup::default().without(Feature::DXGK_FEATURE_NATIVE_FENCE), |scene| {
        same("HWSCH", on(scene, Feature::DXGK_FEATURE_HWSCH), true)?;
        same("USER_MODE_SUBMISSION", on(scene, Feature::DXGK_FEATURE_USER_MODE_SUBMISSION), false)
    })
}

fn slots(stage: &Stage) -> Played {
    stage.play(Setup::default(), |scene| {
        same("bytes of the table", size_of::<wddm_abi::DRIVER_INITIALIZATION_DATA>(), 1544)?;
        let known = DRIVER_INITIALIZATION_DATA_SLOTS;
        // And the version.
        same("slots", known.len(), 193)?;
        // Offsets as the headers of the kit have them.
        for (member, offset) in [
            ("DxgkDdiCreateNativeFence", 1296),
            ("DxgkDdiNotifyWorkSubmission", 1360),
            ("DxgkDdiOpenNativeFence", 1488),
            ("DxgkDdiCloseNativeFence", 1496),
            ("DxgkDdiCollectDbgInfo2", 1520),
        ] {
            let slot = known.iter().find(|slot| slot.member == member).with_context(|| member.to_owned())?;
            same(member, slot.offset, offset)?;
        }
        let report = scene.world.os.report();
        let rule = report.rules.iter().find(|rule| rule.rule.name == "DXG-INIT-SLOT").context("the rule")?;
        ensure!(rule.evaluations > 0 && rule.broken == 0, "not judged");
        // Nothing that works here is called through a slot that is NULL.
        let null = scene.adapter().null_slots();
        ensure!(!null.is_empty() && null.len() < 192, "{} slots are NULL", null.len());
        work(scene)?;
        for name in scene.adapter().ddi_calls().keys() {
            ensure!(!null.contains(name), "{name} is NULL and was called");
        }
        Ok(())
    })
}

fn smaller_interface(stage: &Stage) -> Played {
    // Through the last member; without the last (DxgkCbDisconnectDoorbell); without the last two blocks.
    for (size, rung) in [(576, 3), (568, 2)] {
        let mode = expected(stage, rung).0;
        let setup = Setup::default().windows(|w| w.interface_size = size);
        stage
            .play(setup, |scene| {
                same("mode", work(scene)?.0, mode)?;
                let doorbells = scene.adapter().caps().context("caps")?.has_user_mode_submission();
                same("user-mode submission", doorbells, mode == FP_MODE_USER)
            })
            .with_context(|| format!("{size} bytes"))?;
    }
    Ok(())
}

fn later_kit(stage: &Stage) -> Played {
    for build in [Build::W28000, Build::W26100Update, Build::W26100Ga] {
        let setup = Setup::default().windows(|w| w.build = build);
        stage
            .play(setup, |scene| {
                let queue_doorbells = build.has_queue_doorbells();
                let (mode, native) = expected(stage, 3);
                let want = if queue_doorbells { mode.min(FP_MODE_KERNEL) } else { mode };
                same("mode", work(scene)?, (want, native))?;
                if queue_doorbells {
                    for thunk in ["D3DKMTCreateDoorbell", "D3DKMTConnectDoorbell", "D3DKMTDestroyDoorbell"] {
                        same(thunk, scene.world.os.counts().thunks.get(thunk).copied().unwrap_or(0), 0)?;
                    }
                }
                ensure!(DXGKDDI_INTERFACE_VERSION_WDDM3_2 == 0x1_1007, "the version that this driver declares");
                Ok(())
            })
            .with_context(|| format!("{build:?}"))?;
    }
    Ok(())
}

fn again(stage: &Stage) -> Played {
    stage.play(Setup::default(), |scene| {
        let mut luids = std::collections::BTreeSet::from([scene.adapter().luid_number()]);
        for round in 0..10 {
            let left = raw(scene)?;
            let _room = Room::new(&left)?;
            if round % 2 == 0 {
                work(scene)?;
            }
            scene.world.os.stop_adapter(scene.adapter());
            same("state", scene.adapter().state(), AdapterState::Stopped)?;
            scene.world.os.restart_adapter(scene.adapter())?;
            ensure!(luids.insert(scene.adapter().luid_number()), "the LUID came back");
        }
        same("work", work(scene)?, expected(stage, 3))?;
        // Settings are read at every start.
        scene.world.os.stop_adapter(scene.adapter());
        scene.adapter().set_registry_value("MaxRung", registry_value(0));
        scene.world.os.restart_adapter(scene.adapter())?;
        same("work with another setting", work(scene)?, expected(stage, 0))
    })
}
