//! The first start: segments, the node that pages, the physical adapter. Documents and drivers disagree about each.

use super::{expected, work};
use crate::scenario::stage::PATIENCE;
use crate::scenario::{Played, Scenario, Scene, Setup, Stage, same};
use anyhow::{Context, ensure};
use dxgkrnl_model::personality::PhysicalAdapterCaps;
use umd_core::ffi::types::{FP_KIND_LOCAL, FP_KIND_SYSTEM, FP_MODE_PACKET};
use wddm_abi::DXGK_FEATURE_ID as Feature;
use wddm_abi::DXGK_QUERYADAPTERINFOTYPE as Query;

pub(super) const CASES: &[Scenario] = &[
    Scenario {
        id: "ST-70",
        title: "the local segment is the second or the first, visible to the CPU or not, and holds what is put there",
        source: "DXGK_QUERYSEGMENTOUT4; DXGK_SEGMENTFLAGS; MCDM KMD implementation guidelines; \
                 D3DKMDT_FENCESTORAGESURFACEDATA",
        play: segments,
    },
    Scenario {
        id: "ST-71",
        title: "the node of all work pages on a Windows that takes it, and the driver stays on packets",
        source: "DXGK_PHYSICALADAPTERCAPS, PagingNodeIndex; DXGK_CONTEXTINFO, PagingCompanionNodeId",
        play: one_node,
    },
    Scenario {
        id: "ST-72",
        title: "without PHYSICALADAPTERCAPS the nodes are those of DRIVERCAPS: not asked, refused, and refused where it is \
                demanded",
        source: "DXGK_PHYSICALADAPTERCAPS; DXGK_VIDMMCAPS, PagingNode; DXGK_GPUENGINETOPOLOGY",
        play: no_physical_adapter,
    },
];

/// Bytes of an allocation of local memory.
const SIZE: u64 = 64 << 10;

/// Local memory is filled by the GPU, and copied to where the CPU reads it.
fn local_memory(scene: &Scene) -> Played {
    let adapter = scene.process("client of local memory")?.open()?;
    let device = adapter.device()?;
    let (local, seen) = (device.allocate(FP_KIND_LOCAL, SIZE, 0)?, device.allocate(FP_KIND_SYSTEM, SIZE, 0)?);
    let queue = device.queue(0, 4096, 0, 0)?;
    let (from, to) = (local.gpu_va()?, seen.gpu_va()?);
    let done = queue.run(|list| {
        list.fill(from, SIZE, 0x5AA5_1234)?;
        list.copy(from, to, SIZE)
    })?;
    queue.wait(done, PATIENCE)?;
    let word = 0x5AA5_1234_5AA5_1234;
    same("words", (seen.read_u64(0)?, seen.read_u64(SIZE - 8)?), (word, word))
}

/// Bytes in use of the local segment, which is segment `id`.
fn used(scene: &Scene, id: u32) -> anyhow::Result<u64> {
    let report = scene.world.os.report();
    let segments = &report.adapters.first().context("an adapter")?.segments;
    segments.iter().find(|(segment, ..)| *segment == id).map(|(_, used, _)| *used).context("the segment")
}

fn segments(stage: &Stage) -> Played {
    for (first, visible) in [(0, 0), (1, 0), (0, 1), (1, 1)] {
        let setup = Setup::default().setting("LocalSegmentFirst", first).setting("LocalSegmentCpuVisible", visible);
        // The model judges which segment the driver names for values of intra-GPU fences.
        let setup = setup.windows(|windows| windows.native_fence_os_caps.intra_gpu = true);
        stage
            .play(setup, |scene| {
                let caps = scene.adapter().caps().context("a started adapter has capabilities")?;
                let (aperture, local) = if first == 1 { (2, 1) } else { (1, 2) };
                let is_aperture = |id| caps.segment(id).is_some_and(|segment| segment.is_aperture());
                same("apertures", (is_aperture(aperture), is_aperture(local)), (true, false))?;
                let segment = caps.segment(local).context("the local segment")?;
                same("CpuVisible", segment.is_cpu_visible(), visible == 1)?;
                same("work", work(scene)?, expected(stage, 3))?;
                let before = used(scene, local)?;
                let kept = scene.process("owner of local memory")?.open()?.device()?;
                let kept = kept.allocate(FP_KIND_LOCAL, SIZE, 0)?;
                ensure!(kept.gpu_va()? != 0, "the memory has no address");
                same("bytes of local memory", used(scene, local)? - before, SIZE)?;
                local_memory(scene)
            })
            .with_context(|| format!("LocalSegmentFirst {first}, LocalSegmentCpuVisible {visible}"))?;
    }
    for (answer, broken) in [(0, &[][..]), (1, &["DXG-NF-STORAGE-SEGMENT"]), (2, &[])] {
        // Below native fences the OS does not ask.
        let broken = if stage.rung() < 2 { &[] } else { broken };
        let setup = Setup::default().setting("FenceStorageSegment", answer).breaks(broken);
        let setup = setup.windows(|windows| windows.native_fence_os_caps.intra_gpu = true);
        let play = |scene: &Scene| same("work", work(scene)?, expected(stage, 3));
        stage.play(setup, play).with_context(|| format!("FenceStorageSegment {answer}"))?;
    }
    Ok(())
}

fn one_node(stage: &Stage) -> Played {
    let setup = || Setup::default().setting("PagingNode", 0);
    let why = stage.refuses_to_start(
        setup().breaks(&["DXG-CAPS-PAGING-NODE"]).windows(|windows| windows.copy_node_demanded = true),
    )?;
    ensure!(why.contains("DXG-CAPS-PAGING-NODE"), "{why}");
    for physical in [PhysicalAdapterCaps::Demanded, PhysicalAdapterCaps::Tolerated, PhysicalAdapterCaps::NotAsked] {
        let setup = setup().windows(|windows| {
            (windows.copy_node_demanded, windows.physical_adapter_caps) = (false, physical);
        });
        stage
            .play(setup, |scene| {
                let caps = scene.adapter().caps().context("a started adapter has capabilities")?;
                same("the node that pages", caps.paging_node(), 0)?;
                ensure!(!caps.has_hardware_scheduling(), "a node schedules in hardware");
                same("hardware scheduling", scene.adapter().feature(Feature::DXGK_FEATURE_HWSCH).by_driver, false)?;
                same("work", work(scene)?, (FP_MODE_PACKET, false))?;
                local_memory(scene)
            })
            .with_context(|| format!("PHYSICALADAPTERCAPS: {physical:?}"))?;
    }
    Ok(())
}

fn no_physical_adapter(stage: &Stage) -> Played {
    let kind = Query::DXGKQAITYPE_PHYSICALADAPTERCAPS;
    let refusing = || Setup::default().setting("RefuseQueries", 1 << kind.0);
    let reading = |setup: Setup, caps| setup.windows(|windows| windows.physical_adapter_caps = caps);
    let refused = refusing().breaks(&["DXG-QAI-EXPECTED"]);
    for (setup, answered) in [
        (Setup::default(), true),
        (reading(Setup::default(), PhysicalAdapterCaps::NotAsked), false),
        (reading(refused, PhysicalAdapterCaps::Tolerated), false),
        (reading(Setup::default(), PhysicalAdapterCaps::Demanded), true),
    ] {
        let which = setup.personality.physical_adapter_caps;
        stage
            .play(setup, |scene| {
                let caps = scene.adapter().caps().context("a started adapter has capabilities")?;
                same("PHYSICALADAPTERCAPS was answered", caps.is_physical_answered, answered)?;
                same("nodes", (caps.physical.NumExecutionNodes, caps.paging_node()), (3, 2))?;
                same("work", work(scene)?, expected(stage, 3))?;
                local_memory(scene)
            })
            .with_context(|| format!("PHYSICALADAPTERCAPS: {which:?}"))?;
    }
    let demanded = reading(refusing(), PhysicalAdapterCaps::Demanded);
    let why = stage.refuses_to_start(demanded.breaks(&["DXG-QAI-EXPECTED"]))?;
    ensure!(why.contains("PHYSICALADAPTERCAPS"), "{why}");
    Ok(())
}
