//! The first start on a Windows that there is: answers about which documents or drivers disagree, and what the OS may do that
//! nothing of ours does.

use super::{expected, rung, work};
use crate::demo::counters;
use crate::scenario::db::{RingQueue, Room, raw, store};
use crate::scenario::stage::PATIENCE;
use crate::scenario::{Played, Raw, Scenario, Scene, Setup, Stage, same};
use anyhow::{Context, ensure};
use dxgkrnl_model::personality::{FeatureSetting, PteAddress, StrayEntry, SystemProcesses};
use dxgkrnl_model::transcript::START_26100;
use gpu_wire::private::Rung;
use umd_core::ffi::types::{FP_KIND_LOCAL, FP_KIND_SYSTEM, FP_MODE_PACKET, FP_MODE_USER};
use wddm_abi::ntstatus::{STATUS_GRAPHICS_DRIVER_MISMATCH, STATUS_INVALID_PARAMETER, STATUS_SUCCESS};
use wddm_abi::{
    D3DDDI_CREATECONTEXTFLAGS, D3DKMT_CREATECONTEXTVIRTUAL, D3DKMT_DEVICEEXECUTION_STATE, D3DKMT_FREEGPUVIRTUALADDRESS,
    D3DKMT_SIGNALSYNCHRONIZATIONOBJECTFROMGPU, D3DKMT_SUBMITCOMMAND, DXGK_FEATURE_ID as Feature,
    DXGK_QUERYADAPTERINFOTYPE as Query,
};

pub(super) const CASES: &[Scenario] = &[
    Scenario {
        id: "ST-50",
        title: "answers that documents disagree about follow their settings, and the model says what it thinks of each",
        source: "DXGK_DRIVERCAPS; DXGK_VIDMMCAPS; DXGK_SEGMENTFLAGS; DXGK_QUERYSEGMENTOUT4; WDDM driver and feature caps",
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
        title: "queries that say nothing of a render-only adapter are answered; refused, they end the start by one reading only",
        source: "DxgkDdiQueryAdapterInfo; DXGK_QUERYADAPTERINFOTYPE",
        play: queries,
    },
    Scenario {
        id: "ST-55",
        title: "history buffers have a precision for every node",
        source: "DXGKARG_HISTORYBUFFERPRECISION, Remarks",
        play: history,
    },
    Scenario {
        id: "ST-56",
        title: "contexts without private data are made; private data that is there and wrong is refused",
        source: "DxgkDdiCreateContext, Return value; D3DKMTCreateContextVirtual",
        play: bare_contexts,
    },
    Scenario {
        id: "ST-57",
        title: "another system process is not the paging process, made before or behind it",
        source: "DXGK_CREATEPROCESSFLAGS, SystemProcess; System paging process",
        play: system_processes,
    },
    Scenario {
        id: "ST-58",
        title: "page table entries that the driver does not know are faults, counted, and never mappings",
        source: "DXGK_PTE; DXGK_GPUMMUCAPS",
        play: stray_entries,
    },
    Scenario {
        id: "ST-59",
        title: "as many packets have room as the OS requires",
        source: "DXGK_START_INFO, RequiredDmaQueueEntry",
        play: room,
    },
    Scenario {
        id: "ST-60",
        title: "of a packet with NullRendering only the fence comes: what it holds does not run",
        source: "DXGK_SUBMITCOMMANDFLAGS, NullRendering; D3DKMT_SUBMITCOMMANDFLAGS",
        play: null_rendering,
    },
    Scenario {
        id: "ST-61",
        title: "a flush for a process that the driver does not know flushes: nothing is reached that was unmapped",
        source: "DXGK_BUILDPAGINGBUFFER_FLUSHTLB; DxgkDdiBuildPagingBuffer, Return value",
        play: stray_flushes,
    },
];

/// What a setting comes to under the model.
enum Comes {
    /// It works.
    Works,
    /// It starts, and breaks a rule that no start rests on.
    Breaks(&'static str),
    /// The adapter does not start.
    Refused(&'static str),
}

fn answers(stage: &Stage) -> Played {
    use Comes::{Breaks, Refused, Works};
    let cases: &[(&[(&str, u32)], Comes)] = &[
        (&[("FlipCaps", 0)], Refused("DXG-CAPS-FLIP")),
        (&[("FlipCaps", 0), ("ComputeOnly", 1)], Works),
        (&[("FlipCaps", 2)], Works),
        (&[("SupportNonVGA", 1)], Refused("DXG-CAPS-NON-VGA")),
        (&[("NoDmaPatching", 0), ("CancelCommandAware", 0), ("LowIrqlPreemptCommand", 0)], Works),
        (&[("HwQueuePacketCap", 0)], Works),
        (&[("KernelModeCommandBuffer", 1)], Works),
        (&[("PerEngineTdr", 0)], Works),
        (&[("CrossAdapterResource", 1)], Breaks("DXG-CAPS-CROSS-ADAPTER-SERVED")),
        (&[("HistoryBufferPrecision", 40)], Works),
        (&[("HistoryBufferPrecision", 0)], Refused("DXG-CAPS-HISTORY")),
        (&[("HistoryBufferPrecision", 10)], Works),
        (&[("PagingBufferSegment", 1)], Breaks("DXG-SEGMENT-PAGING-VISIBLE")),
        (&[("PagingBufferSegment", 1), ("ApertureCpuVisible", 1)], Works),
        (&[("DmaBufferSegmentSet", 0)], Works),
        (&[("PopulatedFromSystemMemory", 0), ("LocalSegmentBudget", 0)], Works),
        (&[("LocalSegmentBudget", 1), ("ApplicationTarget", 1)], Works),
        (&[("PageTableUpdateMode", 0)], Works),
        (&[("LeafTable64K", 0)], Works),
        (&[("DriverCapsVersion", 0)], Refused("DXG-VERSION-AGREES")),
        (&[("FriendlyNames", 0)], Works),
        (&[("FeatureInterfaceHandle", 1)], Works),
    ];
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

/// The start, with features negotiated as soon as the device is there.
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

/// Bits of features in what the driver says of its start.
const ALL: u32 = 7;

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
            let words = ["hardware scheduling answered", "native fences answered", "user-mode submission answered", "refused 0x"];
            for said in words {
                ensure!(printed.contains(said), "'{said}' is not in what was printed:\n{printed}");
            }
            let granted = printed.contains("user-mode submission answered yes, granted in version 1");
            same("granted, as printed", granted, start.granted == ALL)
        })
    };
    said(Setup::default(), &|start| {
        same("answered, granted", (start.answered, start.granted), (ALL, ALL))?;
        same("rungs", (start.rung, start.max_rung), (Rung::UserModeSubmission.raw(), Rung::UserModeSubmission.raw()))
    })?;
    said(Setup::default().setting("MaxRung", 1), &|start| {
        same("answered, granted", (start.answered, start.granted), (1, 1))?;
        same("rungs", (start.rung, start.max_rung), (Rung::HardwareQueues.raw(), Rung::HardwareQueues.raw()))
    })?;
    said(Setup::default().without(Feature::DXGK_FEATURE_NATIVE_FENCE), &|start| {
        same("answered, granted", (start.answered, start.granted), (ALL, 1))?;
        same("rung", start.rung, Rung::HardwareQueues.raw())
    })
}

/// Types that are answered with nothing.
const NOTHING: [Query; 6] = [
    Query::DXGKQAITYPE_DISPLAY_DRIVERCAPS_EXTENSION,
    Query::DXGKQAITYPE_ADAPTERPERFDATA,
    Query::DXGKQAITYPE_ADAPTERPERFDATA_CAPS,
    Query::DXGKQAITYPE_GPUVERSION,
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

/// A context with private data of a case's own.
fn context(raw: &Raw, room: &Room<'_>, node: u32, hw_queues: bool, private: &mut [u8]) -> wddm_abi::NTSTATUS {
    let mut flags = D3DDDI_CREATECONTEXTFLAGS::zeroed();
    flags.set_HwQueueSupported(hw_queues);
    let mut record = D3DKMT_CREATECONTEXTVIRTUAL::zeroed();
    (record.hDevice, record.NodeOrdinal, record.EngineAffinity, record.Flags) = (room.device, node, 1, flags);
    if !private.is_empty() {
        record.pPrivateDriverData = private.as_mut_ptr().cast();
        // CAST: a few bytes.
        record.PrivateDriverDataSize = private.len() as u32;
    }
    raw.call(raw.thunks.D3DKMTCreateContextVirtual, &mut record)
}

fn bare_contexts(stage: &Stage) -> Played {
    for limit in [0, 3] {
        stage.play(Setup::default().setting("MaxRung", limit), |scene| {
            let raw = raw(scene)?;
            let room = Room::new(&raw)?;
            for node in 0..3 {
                let hw_queues = limit == 3 && node < 2;
                same("without private data", context(&raw, &room, node, hw_queues, &mut []), STATUS_SUCCESS)?;
                for mut wrong in [vec![0; 1], vec![0; 8], vec![0xFF; 16]] {
                    let status = context(&raw, &room, node, hw_queues, &mut wrong);
                    same("with wrong private data", status, STATUS_GRAPHICS_DRIVER_MISMATCH)?;
                }
            }
            Ok(())
        })?;
    }
    Ok(())
}

fn system_processes(stage: &Stage) -> Played {
    use SystemProcesses as Kind;
    for processes in [Kind::One, Kind::AnotherFirst, Kind::AnotherLast, Kind::AnotherBriefly] {
        for without_context in [false, true] {
            let setup = Setup::default().windows(|windows| {
                (windows.system_processes, windows.paging_without_context) = (processes, without_context);
            });
            let told = || format!("{processes:?}, packets without context: {without_context}");
            stage.play(setup, |scene| work(scene).map(drop).and_then(|()| local_memory(scene))).with_context(told)?;
        }
    }
    Ok(())
}

/// Memory of the local segment comes and goes: the paging process's own translations change with it.
fn local_memory(scene: &Scene) -> Played {
    let user = scene.process("local")?;
    let adapter = user.open()?;
    let device = adapter.device()?;
    let queue = device.queue(1, 4096, 0, 0)?;
    let seen = device.allocate(FP_KIND_SYSTEM, 4096, 0)?;
    for round in 1..9 {
        let local = device.allocate(FP_KIND_LOCAL, 64 << 10, 0)?;
        let (from, to) = (local.gpu_va()?, seen.gpu_va()?);
        queue.run(|list| list.copy(from, to, 8))?;
        queue.run(|list| list.store(from, round))?;
        queue.run(|list| list.copy(from, to + 8, 8))?;
        queue.wait(0, PATIENCE)?;
        same("fresh local memory, and what was stored", (seen.read_u64(0)?, seen.read_u64(8)?), (0, round))?;
    }
    Ok(())
}

fn stray_entries(stage: &Stage) -> Played {
    for kind in StrayEntry::ALL {
        let setup = Setup::default().quick_tdr().windows(|windows| windows.faults.stray_entry = Some(kind));
        stage
            .play(setup, |scene| {
                let raw = raw(scene)?;
                let room = Room::new(&raw)?;
                let queue = RingQueue::connected(scene, &room, 0, 4096)?;
                let memory = room.memory(scene, 4096)?;
                let (progress, _) = queue.submit(&[store(memory.gpu, 0x77)])?;
                queue.wait(scene, progress)?;
                same("what is known", raw.load(memory.cpu)?, 0x77)?;
                let covered = 2 << 20;
                let stray = match kind {
                    StrayEntry::Table64K => memory.gpu + covered,
                    _ => memory.gpu / covered * covered + covered - 4096,
                };
                queue.submit(&[store(stray, 0x55)])?;
                scene.until("the device's error", || Ok(!room.is_active()?))?;
                let lost = D3DKMT_DEVICEEXECUTION_STATE::D3DKMT_DEVICEEXECUTION_ERROR_DMAPAGEFAULT;
                same("state", room.state()?, lost)?;
                same("memory", raw.load(memory.cpu)?, 0x77)?;
                let count = counters::start(&raw)?.stray_entries;
                ensure!(count > 0, "no entry was counted");
                Ok(())
            })
            .with_context(|| format!("{kind:?}"))?;
    }
    Ok(())
}

fn room(stage: &Stage) -> Played {
    for required in [0, 1, 1000, u32::MAX] {
        let setup = Setup::default().setting("MaxRung", 0);
        let setup = setup.windows(|windows| windows.required_dma_queue_entries = required);
        stage.play(setup, |scene| work(scene).map(drop)).with_context(|| format!("{required} entries"))?;
    }
    Ok(())
}

fn null_rendering(stage: &Stage) -> Played {
    stage.play(Setup::default().setting("MaxRung", 0).quick_tdr(), |scene| {
        let raw = raw(scene)?;
        let room = Room::new(&raw)?;
        let memory = room.memory(scene, 4096)?;
        let packet = store(memory.gpu + 1024, 0x77);
        for (index, chunk) in (0..).zip(packet.as_bytes().chunks_exact(8)) {
            raw.store(memory.cpu + index * 8, u64::from_le_bytes(chunk.try_into()?))?;
        }
        let context = room.context(0)?;
        let submit = |address: u64, length: usize, null: bool| {
            let mut record = D3DKMT_SUBMITCOMMAND::zeroed();
            // CAST: a packet's bytes.
            (record.Commands, record.CommandLength, record.BroadcastContextCount) = (address, length as u32, 1);
            record.BroadcastContext[0] = context;
            record.Flags.set_NullRendering(null);
            raw.ok(raw.thunks.D3DKMTSubmitCommand, &mut record)
        };
        let fence = raw.monitored_fence(room.device, 0, false)?;
        let length = packet.as_bytes().len();
        let done = |value: u64| {
            let mut signal = D3DKMT_SIGNALSYNCHRONIZATIONOBJECTFROMGPU::zeroed();
            (signal.hContext, signal.ObjectCount) = (context, 1);
            signal.ObjectHandleArray = &raw const fence.handle;
            signal.set_MonitoredFenceValueArray(&raw const value);
            raw.ok(raw.thunks.D3DKMTSignalSynchronizationObjectFromGpu, &mut signal)?;
            raw.wait_cpu(room.device, &[(fence.handle, value)], false, None)
        };
        // An address where nothing is, and one where something would happen.
        submit(0x7000_0000_0000, 64, true)?;
        submit(memory.gpu, length, true)?;
        done(1)?;
        same("what did not run", raw.load(memory.cpu + 1024)?, 0)?;
        submit(memory.gpu, length, false)?;
        done(2)?;
        same("what ran", raw.load(memory.cpu + 1024)?, 0x77)?;
        same("the device", room.is_active()?, true)
    })
}

fn stray_flushes(stage: &Stage) -> Played {
    let setup = Setup::default().quick_tdr().windows(|windows| windows.faults.stray_flushes = true);
    stage.play(setup, |scene| {
        let raw = raw(scene)?;
        let room = Room::new(&raw)?;
        let queue = RingQueue::connected(scene, &room, 0, 4096)?;
        let memory = room.memory(scene, 4096)?;
        let (progress, _) = queue.submit(&[store(memory.gpu, 0x77)])?;
        queue.wait(scene, progress)?;
        same("what is mapped", raw.load(memory.cpu)?, 0x77)?;
        let mut record = D3DKMT_FREEGPUVIRTUALADDRESS::zeroed();
        (record.hAdapter, record.BaseAddress, record.Size) = (raw.adapter, memory.gpu, 4096);
        raw.ok(raw.thunks.D3DKMTFreeGpuVirtualAddress, &mut record)?;
        // The entries are gone when the function returns, and the flush is done.
        ensure!(counters::start(&raw)?.stray_flushes > 0, "no flush was counted");
        queue.submit(&[store(memory.gpu, 0x55)])?;
        scene.until("the device's error", || Ok(!room.is_active()?))?;
        let lost = D3DKMT_DEVICEEXECUTION_STATE::D3DKMT_DEVICEEXECUTION_ERROR_DMAPAGEFAULT;
        same("state", room.state()?, lost)?;
        same("memory", raw.load(memory.cpu)?, 0x77)
    })
}
