//! The first start on a real Windows: answers about which documents or drivers disagree, and features.

use super::{expected, rung, work};
use crate::demo::counters;
use crate::scenario::db::raw;
use crate::scenario::{Played, Scenario, Scene, Setup, Stage, same};
use anyhow::{Context, ensure};
use dxgkrnl_model::personality::{FeatureSetting, PteAddress};
use dxgkrnl_model::transcript::START_26100;
use gpu_wire::private::{EscapeHeader, Rung, escape_command};
use umd_core::ffi::types::{FP_MODE_PACKET, FP_MODE_USER};
use wddm_abi::ntstatus::{STATUS_INVALID_PARAMETER, STATUS_SUCCESS};
use wddm_abi::{DXGK_FEATURE_ID as Feature, DXGK_QUERYADAPTERINFOTYPE as Query};

pub(super) const CASES: &[Scenario] = &[
    Scenario {
        id: "ST-50",
        title: "answers that documents disagree about follow their settings, and the model says what it thinks of each",
        source: "DXGK_DRIVERCAPS; DXGK_VIDMMCAPS; DXGK_SEGMENTFLAGS; DXGK_QUERYSEGMENTOUT4; \
                 WDDM driver and feature caps",
        play: answers,
    },
    Scenario {
        id: "ST-51",
        title: "MaxRung holds in every answer, asked before the start or in it",
        source: "Querying WDDM feature support and enablement; DXGKARG_QUERYFEATURESUPPORT",
        play: held_down,
    },
    Scenario {
        id: "ST-52",
        title: "experimental support is there only where the OS allows it",
        source: "DXGKARG_QUERYFEATURESUPPORT, AllowExperimental",
        play: experimental,
    },
    Scenario {
        id: "ST-53",
        title: "the driver says what it was asked, what it answered and what the OS granted",
        source: "DxgkDdiEscape; docs/settings.md",
        play: told,
    },
    Scenario {
        id: "ST-54",
        title: "queries that say nothing of a render-only adapter are answered; refused, they end the start by one \
                reading only",
        source: "DxgkDdiQueryAdapterInfo; DXGK_QUERYADAPTERINFOTYPE",
        play: queries,
    },
    Scenario {
        id: "ST-55",
        title: "history buffers have a precision for every node",
        source: "DXGKARG_HISTORYBUFFERPRECISION, Remarks",
        play: history,
    },
];

/// What a setting comes to under the model.
enum Comes {
    /// The adapter starts and takes work, and no rule is broken.
    Works,
    /// The adapter starts and takes work, and breaks this rule.
    Breaks(&'static str),
    /// The adapter does not start, and the reason names this rule.
    Refused(&'static str),
}

/// The memory segment is memory of the host, and counts as such.
fn memory_segment(scene: &Scene) -> Played {
    let caps = scene.adapter().caps().context("a started adapter has capabilities")?;
    let segment = caps.segments.iter().find(|segment| !segment.is_aperture()).context("a memory segment")?;
    let flags = segment.descriptor.Flags;
    same("PopulatedFromSystemMemory of the memory segment", flags.PopulatedFromSystemMemory(), true)?;
    same("its budget group", (flags.LocalBudgetGroup(), flags.NonLocalBudgetGroup()), (false, true))
}

fn answers(stage: &Stage) -> Played {
    use Comes::{Breaks, Refused, Works};
    let cases: &[(&[(&str, u32)], Comes)] = &[
        (&[("FlipCaps", 0)], Refused("DXG-CAPS-FLIP")),
        (&[("FlipCaps", 2)], Works),
        (&[("SupportNonVGA", 1)], Breaks("DXG-CAPS-NON-VGA")),
        (&[("NoDmaPatching", 0), ("CancelCommandAware", 0), ("LowIrqlPreemptCommand", 0)], Works),
        (&[("HwQueuePacketCap", 0)], Works),
        (&[("KernelModeCommandBuffer", 1)], Works),
        (&[("PerEngineTdr", 0)], Works),
        (&[("PreemptionGranularity", 0)], Breaks("DXG-CAPS-GRANULARITY")),
        (&[("PhysicalAdapterHandle", 1)], Breaks("DXG-CAPS-ADAPTER-HANDLE")),
        (&[("LocalSegmentFirst", 1)], Works),
        (&[("LocalSegmentFirst", 1), ("PagingBufferSegment", 1), ("ApertureCpuVisible", 1)], Works),
        (&[("LocalSegmentCpuVisible", 1)], Works),
        (&[("FenceStorageSegment", 1)], Works),
        (&[("FenceStorageSegment", 2)], Works),
        (&[("CrossAdapterResource", 1)], Breaks("DXG-CAPS-CROSS-ADAPTER-SERVED")),
        (&[("HistoryBufferPrecision", 40)], Works),
        (&[("HistoryBufferPrecision", 0)], Refused("DXG-CAPS-HISTORY")),
        // Out of range: the driver ignores it and keeps the default.
        (&[("HistoryBufferPrecision", 10)], Works),
        (&[("PagingBufferSegment", 1)], Breaks("DXG-SEGMENT-PAGING-VISIBLE")),
        (&[("PagingBufferSegment", 1), ("ApertureCpuVisible", 1)], Works),
        (&[("DmaBufferSegmentSet", 0)], Refused("DXG-CONTEXT-SEGMENT")),
        (&[("DmaBufferSegmentSet", 0), ("ComputeOnly", 1)], Works),
        (&[("PopulatedFromSystemMemory", 0), ("LocalSegmentBudget", 0)], Works),
        (&[("LocalSegmentBudget", 1), ("ApplicationTarget", 1)], Works),
        (&[("PageTableUpdateMode", 0)], Works),
        (&[("LeafTable64K", 0)], Works),
        (&[("DriverCapsVersion", 0)], Refused("DXG-VERSION-AGREES")),
        (&[("FriendlyNames", 0)], Works),
        (&[("FriendlyNames", 0), ("ComputeOnly", 1)], Works),
        (&[("Only64Bit", 1)], Works),
        (&[("FeatureInterfaceHandle", 1)], Works),
    ];
    stage.play(Setup::default(), memory_segment).context("what the driver says of itself")?;
    for (settings, comes) in cases {
        let setup = settings.iter().fold(Setup::default(), |setup, (name, value)| setup.setting(name, *value));
        let played = match comes {
            Works => stage.play(setup, |scene| same("work", work(scene)?, expected(stage, 3))),
            Breaks(rule) => stage.play(setup.breaks(&[rule]), |scene| work(scene).map(drop)),
            Refused(rule) => stage.refuses_to_start(setup.breaks(&[rule])).and_then(|why| {
                ensure!(why.contains(rule), "{why}");
                Ok(())
            }),
        };
        played.with_context(|| format!("{settings:?}"))?;
    }
    let bytes =
        Setup::default().setting("PteByteAddresses", 1).windows(|windows| windows.pte_address = PteAddress::Bytes);
    stage.play(bytes, |scene| work(scene).map(drop)).context("a Windows whose page table entries hold bytes")?;
    let without = Setup::default().setting("FlipCaps", 0).windows(|windows| windows.flip_caps_demanded = false);
    stage.play(without, |scene| same("work", work(scene)?, expected(stage, 3))).context("a Windows that wants no flips")
}

/// The model's start transcript, with features negotiated before `DxgkDdiStartDevice`.
fn asked_early() -> String {
    START_26100.replacen("start-device", "features\nstart-device", 1)
}

fn held_down(stage: &Stage) -> Played {
    for limit in [0, 1, 2, 3] {
        for early in [false, true] {
            let setup = Setup::default().setting("MaxRung", limit);
            let setup = setup.windows(|windows| windows.start_transcript = early.then(asked_early));
            stage
                .play(setup, |scene| {
                    let features = [
                        Feature::DXGK_FEATURE_HWSCH,
                        Feature::DXGK_FEATURE_NATIVE_FENCE,
                        Feature::DXGK_FEATURE_USER_MODE_SUBMISSION,
                    ];
                    for (rung, feature) in (1..).zip(features) {
                        let state = scene.adapter().feature(feature);
                        same("supported", (state.by_driver, state.enabled), (rung <= limit, rung <= limit))?;
                    }
                    work(scene).map(drop)
                })
                .with_context(|| format!("MaxRung {limit}, asked early: {early}"))?;
        }
    }
    Ok(())
}

fn experimental(stage: &Stage) -> Played {
    let setup = |allow: bool, setting: u32| {
        Setup::default().setting("ExperimentalFeatures", setting).windows(|windows| {
            for feature in [
                Feature::DXGK_FEATURE_HWSCH,
                Feature::DXGK_FEATURE_NATIVE_FENCE,
                Feature::DXGK_FEATURE_USER_MODE_SUBMISSION,
            ] {
                let rule = FeatureSetting { allow_experimental: allow, ..FeatureSetting::ON };
                // CAST: the identifier as the 32 bits that it is.
                windows.features.insert(feature.0 as u32, rule);
            }
        })
    };
    rung(stage, "stable, not allowed", setup(false, 0), 3, FP_MODE_USER)?;
    rung(stage, "experimental, not allowed", setup(false, 1), 0, FP_MODE_PACKET)?;
    rung(stage, "experimental, allowed", setup(true, 1), 3, FP_MODE_USER)
}

/// Hardware scheduling, native fences, user-mode submission and kernel-mode testing, a bit each, in the escape START.
const ALL: u32 = 15;
/// Kernel-mode testing.
const TESTING: u32 = 8;

fn told(stage: &Stage) -> Played {
    let said = |setup: Setup, check: &dyn Fn(&counters::EscapeStart) -> Played| {
        stage.play(setup, |scene| {
            let start = counters::start(&raw(scene)?)?;
            same("features that were asked about", start.asked, ALL)?;
            ensure!(start.queries & 1 << Query::DXGKQAITYPE_DRIVERCAPS.0 != 0, "{:#x} asked", start.queries);
            same("interface", start.interface_size, 576)?;
            check(&start)?;
            // The debugger hears the same.
            let printed = scene.world.os.kernel().debug_messages().join("");
            let words = [
                "hardware scheduling answered",
                "native fences answered",
                "user-mode submission answered",
                "kernel-mode testing answered",
                "refused 0x",
            ];
            for said in words {
                ensure!(printed.contains(said), "'{said}' is not in what was printed:\n{printed}");
            }
            let granted = printed.contains("user-mode submission answered yes, granted in version 1");
            same("granted, as printed", granted, start.granted == ALL)
        })
    };
    stage.play(Setup::default(), |scene| {
        // A tool may know a longer reply than this driver's: the header says how much of the block is one.
        for (command, want) in [
            (escape_command::COUNTERS, size_of::<counters::EscapeCounters>()),
            (escape_command::START, size_of::<counters::EscapeStart>()),
        ] {
            let block = counters::ask(&raw(scene)?, command, 256)?;
            let header = EscapeHeader::read(&block).context("a header")?;
            same("size of the reply", (header.command, header.size as usize), (command, want))?;
            ensure!(block[want..].iter().all(|byte| *byte == 0), "written behind {want} bytes: {block:?}");
        }
        Ok(())
    })?;
    said(Setup::default(), &|start| {
        same("answered, granted", (start.answered, start.granted), (ALL, ALL))?;
        same("rungs", (start.rung, start.max_rung), (Rung::UserModeSubmission.raw(), Rung::UserModeSubmission.raw()))
    })?;
    stage.play(Setup::default().setting("MaxRung", 7), |scene| {
        same("a value out of range", counters::start(&raw(scene)?)?.max_rung, Rung::UserModeSubmission.raw())?;
        let printed = scene.world.os.kernel().debug_messages().join("");
        ensure!(printed.contains("setting MaxRung = 7 is out of range; ignored"), "{printed}");
        Ok(())
    })?;
    said(Setup::default().setting("MaxRung", 1), &|start| {
        same("answered, granted", (start.answered, start.granted), (1 | TESTING, 1 | TESTING))?;
        same("rungs", (start.rung, start.max_rung), (Rung::HardwareQueues.raw(), Rung::HardwareQueues.raw()))
    })?;
    said(Setup::default().without(Feature::DXGK_FEATURE_NATIVE_FENCE), &|start| {
        same("answered, granted", (start.answered, start.granted), (ALL, 1 | TESTING))?;
        same("rung", start.rung, Rung::HardwareQueues.raw())
    })
}

/// Types of `DxgkDdiQueryAdapterInfo` that the driver answers with success and zeros.
const NOTHING: [Query; 5] = [
    Query::DXGKQAITYPE_DISPLAY_DRIVERCAPS_EXTENSION,
    Query::DXGKQAITYPE_NODEPERFDATA,
    Query::DXGKQAITYPE_ADAPTERPERFDATA_CAPS,
    Query::DXGKQAITYPE_DIRTYBITTRACKINGCAPS,
    Query::DXGKQAITYPE_64BITONLYCAPS,
];

fn queries(stage: &Stage) -> Played {
    stage.play(Setup::default(), |scene| {
        for kind in NOTHING {
            let (status, output) = scene.world.os.query_adapter_info(scene.adapter(), kind, &[], 64);
            same("status", status, STATUS_SUCCESS)?;
            ensure!(output.iter().all(|byte| *byte == 0), "{kind:?}: {output:?}");
        }
        Ok(())
    })?;
    let refusing = || Setup::default().setting("RefuseQueries", 1 << Query::DXGKQAITYPE_DISPLAY_DRIVERCAPS_EXTENSION.0);
    stage.play(refusing(), |scene| {
        let kind = Query::DXGKQAITYPE_DISPLAY_DRIVERCAPS_EXTENSION;
        let (status, _) = scene.world.os.query_adapter_info(scene.adapter(), kind, &[], 64);
        same("status", status, STATUS_INVALID_PARAMETER)?;
        same("refused", counters::start(&raw(scene)?)?.refused & 1 << kind.0, 1 << kind.0)?;
        work(scene).map(drop)
    })?;
    // A type that one Windows demands of every driver, and each of a compute-only one.
    let without = || Setup::default().setting("RefuseQueries", 1 << Query::DXGKQAITYPE_NUMPOWERCOMPONENTS.0);
    if stage.setting("ComputeOnly") != Some(1) {
        stage.play(without().breaks(&["DXG-QAI-EXPECTED"]), |scene| work(scene).map(drop))?;
    }
    let demanded = without().windows(|windows| windows.power_components_demanded = true);
    let why = stage.refuses_to_start(demanded.breaks(&["DXG-QAI-REQUIRED"]))?;
    ensure!(why.contains("NUMPOWERCOMPONENTS"), "{why}");
    let strict = refusing().windows(|windows| windows.refusals_end_start = true).breaks(&["DXG-QAI-REQUIRED"]);
    let why = stage.refuses_to_start(strict)?;
    ensure!(why.contains("DISPLAY_DRIVERCAPS_EXTENSION"), "{why}");
    stage.play(Setup::default().windows(|windows| windows.refusals_end_start = true), |scene| work(scene).map(drop))
}

fn history(stage: &Stage) -> Played {
    stage.play(Setup::default(), |scene| {
        let caps = scene.adapter().caps().context("caps")?;
        same("bits by node", caps.history_bits.clone(), vec![64; caps.nodes.len()])?;
        let kind = Query::DXGKQAITYPE_HISTORYBUFFERPRECISION;
        for (size, want) in
            [(4, STATUS_SUCCESS), (12, STATUS_SUCCESS), (14, STATUS_SUCCESS), (3, STATUS_INVALID_PARAMETER)]
        {
            let (status, output) = scene.world.os.query_adapter_info(scene.adapter(), kind, &[0; 4], size);
            same("status", status, want)?;
            let whole = output.chunks_exact(4).all(|element| element == [64, 0, 0, 0]);
            ensure!(whole && output.len() == size, "{size} bytes: {output:?}");
        }
        Ok(())
    })
}
