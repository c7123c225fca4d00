//! Group CL: user-mode drivers other than ours. Two clients use the OS as public user-mode drivers of other vendors do,
//! from the adapter to the exit, with our driver's private blocks in place of theirs; and what the documents let vary
//! for any client.
//!
//! Source: facts of intel/compute-runtime and ROCm/rocm-systems (call order, flags, waits, how residency is asked for),
//! and of Microsoft's dxgkrnl for Linux (limits). None of their code is here.

mod edges;
mod silent;
mod stall;
mod stranger;
mod vary;

use super::db::{Room, raw};
use super::raw::Raw;
use super::{Denied, Played, Scenario, Setup, Stage, same};
use anyhow::{Context, Result, ensure};
use dxgkrnl_model::personality::{Affinity, HwContexts, Residency};
use stranger::{Stranger, Style};
use wddm_abi::ntstatus::{STATUS_INVALID_PARAMETER, STATUS_NO_MEMORY, STATUS_NOT_IMPLEMENTED, STATUS_NOT_SUPPORTED};
use wddm_abi::{
    D3DDDI_CREATECONTEXTFLAGS, D3DKMT_CREATECONTEXTVIRTUAL, D3DKMT_CREATEHWQUEUE, D3DKMT_DESTROYCONTEXT,
    D3DKMT_DESTROYHWCONTEXT, DXGK_FEATURE_ID,
};

const CONTEXT: &str = "DXGK_CREATECONTEXTFLAGS, HwQueueSupported; DXGKARGCB_INVALIDATEHWCONTEXT, hHwContext";
const BROADCAST: &str = "D3DDDI_CREATEHWQUEUEFLAGS, NoBroadcastSignal and NoBroadcastWait";

pub(super) const CASES: &[Scenario] = &super::db::joined::<
    { OWN.len() + vary::CASES.len() + 1 + edges::CASES.len() + silent::CASES.len() },
>(&[OWN, vary::CASES, &[stall::CASE], edges::CASES, silent::CASES]);

const OWN: &[Scenario] = &[
    case("CL-01", "a client that acts as Intel's user mode does, from adapter to exit", "intel/compute-runtime", intel),
    case("CL-02", "a client that acts as AMD's user mode does, from adapter to exit", "ROCm/rocm-systems", amd),
    case(
        "CL-03",
        "contexts and devices without private data, as Microsoft's test makes them",
        "microsoft/libdxg",
        bare,
    ),
    case("CL-04", "which context each flag makes on each kind of node, both ways", CONTEXT, kinds),
    case("CL-05", "waits and signals of a context reach its queues, but for those that stay out", BROADCAST, broadcast),
    case(
        "CL-06",
        "32 fences, 64 targets, 1024 allocations in one call, and no more",
        "microsoft dxgkrnl for Linux",
        limits,
    ),
];

const fn case(id: &'static str, title: &'static str, source: &'static str, play: fn(&Stage) -> Played) -> Scenario {
    Scenario { id, title, source, play }
}

/// Plays a client twice on each of nodes 0 and 1: 20 submissions, each on memory that is allocated for it and freed
/// after it. `residency`: how the OS answers MakeResident.
fn live(stage: &Stage, style: Style, residency: Residency) -> Played {
    stage.play(Setup::default().windows(|windows| windows.user_mode.residency = residency), |scene| {
        let raw = raw(scene)?;
        for round in 0..2 {
            for node in 0..2 {
                let mut client = Stranger::open(scene, &raw, style, node)?;
                for value in 1..=20 {
                    client.work(value).with_context(|| format!("round {round}, node {node}, submission {value}"))?;
                    if value.is_multiple_of(4) {
                        client.use_spare()?;
                    }
                }
                if (style, residency) == (Style::Intel, Residency::OverBudget) {
                    same("how often an eviction was enough", client.trims(), 5)?;
                }
                client.close()?;
            }
        }
        Ok(())
    })
}

fn intel(stage: &Stage) -> Played {
    live(stage, Style::Intel, Residency::Pending)?;
    live(stage, Style::Intel, Residency::OverBudget).context("over the budget")
}

fn amd(stage: &Stage) -> Played {
    live(stage, Style::Amd, Residency::Pending)
}

fn create(room: &Room<'_>, node: u32, affinity: u32, flags: D3DDDI_CREATECONTEXTFLAGS) -> Result<u32, Denied> {
    let mut record = D3DKMT_CREATECONTEXTVIRTUAL::zeroed();
    (record.hDevice, record.NodeOrdinal, record.EngineAffinity, record.Flags) = (room.device, node, affinity, flags);
    room.raw.ok(room.raw.thunks.D3DKMTCreateContextVirtual, &mut record)?;
    Ok(record.hContext)
}

fn destroy(raw: &Raw, context: u32) -> Result<(), Denied> {
    raw.ok(raw.thunks.D3DKMTDestroyContext, &mut D3DKMT_DESTROYCONTEXT { hContext: context })
}

fn bare(stage: &Stage) -> Played {
    stage.play(Setup::default(), |scene| {
        let raw = raw(scene)?;
        let room = Room::new(&raw)?;
        let scheduled = scene.adapter().caps().context("caps")?.has_hardware_scheduling();
        let flags = D3DDDI_CREATECONTEXTFLAGS::zeroed().with_HwQueueSupported(scheduled);
        let context = match create(&room, 0, 1, flags) {
            // A Windows that makes such contexts by the obsolete call alone, which needs private data.
            Err(Denied(STATUS_NOT_SUPPORTED)) => return Ok(()),
            made => made.context("a context without private data")?,
        };
        if scheduled {
            let queue = room.queue_in(context, false).context("a queue in it")?;
            room.destroy_queue(queue.handle).context("destroying the queue")?;
        }
        destroy(&raw, context).context("destroying the context")?;
        ensure!(room.is_active()?, "the device is lost");
        Ok(())
    })
}

fn kinds(stage: &Stage) -> Played {
    let with_queues = D3DDDI_CREATECONTEXTFLAGS::zeroed().with_HwQueueSupported(true);
    let plain = D3DDDI_CREATECONTEXTFLAGS::zeroed();
    for way in [HwContexts::CreateContext, HwContexts::CreateHwContext] {
        let setup = Setup::default().windows(|w| (w.hw_contexts, w.packet_contexts_anywhere) = (way, true));
        let setup = setup.without(DXGK_FEATURE_ID::DXGK_FEATURE_KERNEL_MODE_TESTING);
        stage.play(setup, |scene| {
            let raw = raw(scene)?;
            let room = Room::new(&raw)?;
            let obsolete = way == HwContexts::CreateHwContext;
            let refused = if obsolete { STATUS_NOT_SUPPORTED } else { STATUS_NOT_IMPLEMENTED };
            // A context that takes queues, on a scheduled node.
            if obsolete {
                same("HwQueueSupported", room.context_with(0, with_queues), Err(Denied(refused)))?;
                let context = room.obsolete_context(0).context("the obsolete call")?;
                room.queue_in(context, false).context("a queue in it")?;
                same("DestroyContext of it", destroy(&raw, context), Err(Denied(STATUS_INVALID_PARAMETER)))?;
                let mut record = D3DKMT_DESTROYHWCONTEXT { hHwContext: context };
                raw.ok(raw.thunks.D3DKMTDestroyHwContext, &mut record).context("the obsolete destruction")?;
                same("calls of the pair", scene.calls("DxgkDdiCreateHwContext"), 1)?;
            } else {
                let context = room.context_with(0, with_queues).context("HwQueueSupported")?;
                room.queue_in(context, false).context("a queue in it")?;
                same("the obsolete call", room.obsolete_context(0), Err(Denied(refused)))?;
                let mut record = D3DKMT_DESTROYHWCONTEXT { hHwContext: context };
                let destroyed = raw.ok(raw.thunks.D3DKMTDestroyHwContext, &mut record);
                same("the obsolete destruction", destroyed, Err(Denied(refused)))?;
                destroy(&raw, context).context("destroying it")?;
                same("destroying it twice", destroy(&raw, context), Err(Denied(STATUS_INVALID_PARAMETER)))?;
                same("calls of the pair", scene.calls("DxgkDdiCreateHwContext"), 0)?;
            }
            // Without the flag on a scheduled node, or with it on a packet node: a packet context, which takes no
            // queues.
            for (what, node, flags) in [("no flag", 0, plain), ("a packet node", 2, with_queues)] {
                let context = room.context_with(node, flags).context(what)?;
                let queue = room.queue_in(context, false).map(|_| ());
                same(what, queue, Err(Denied(STATUS_INVALID_PARAMETER)))?;
                destroy(&raw, context).context(what)?;
            }
            let odd = crate::demo::counters::start(&raw)?.odd_contexts;
            same("packet contexts on scheduled nodes, as the driver counts them", odd, 1)?;
            // An engine that does not exist is refused: by the OS, or by the driver with a status that its page lists.
            let affinity = create(&room, 2, 2, plain).map(|_| ());
            let status = match scene.adapter().personality().affinity {
                Affinity::Bit => STATUS_INVALID_PARAMETER,
                Affinity::Passed => STATUS_NO_MEMORY,
            };
            same("engine affinity 2", affinity, Err(Denied(status)))?;
            // Kernel-mode testing is off here.
            let testing = plain.with_TestContext(true);
            if !obsolete {
                let context = room.context_with(0, with_queues).context("HwQueueSupported")?;
                let mut record = D3DKMT_CREATEHWQUEUE::zeroed();
                record.hHwContext = context;
                record.Flags.set_TestQueue(true);
                let queue = raw.ok(raw.thunks.D3DKMTCreateHwQueue, &mut record);
                same("TestQueue", queue, Err(Denied(STATUS_INVALID_PARAMETER)))?;
                destroy(&raw, context).context("destroying the context")?;
            }
            same("TestContext", room.context_with(2, testing).map(|_| ()), Err(Denied(STATUS_INVALID_PARAMETER)))
        })?;
    }
    // An OS that wants queues on a scheduled node refuses a context without them by itself.
    stage.play(Setup::default().windows(|w| w.packet_contexts_anywhere = false), |scene| {
        let raw = raw(scene)?;
        let room = Room::new(&raw)?;
        let before = scene.calls("DxgkDdiCreateContext");
        let refused = room.context_with(0, plain).map(|_| ());
        same("no flag on a scheduled node", refused, Err(Denied(STATUS_NOT_SUPPORTED)))?;
        same("calls of the driver", scene.calls("DxgkDdiCreateContext"), before)?;
        room.context_with(2, plain).map(drop).context("no flag on a packet node")
    })?;
    Ok(())
}

fn broadcast(stage: &Stage) -> Played {
    stranger::broadcast(stage)
}

fn limits(stage: &Stage) -> Played {
    stage.play(Setup::default(), |scene| {
        let raw = raw(scene)?;
        let room = Room::new(&raw)?;
        let fence = raw.monitored_fence(room.device, 1, false)?;
        let refused = Err(Denied(STATUS_INVALID_PARAMETER));
        let many = vec![(fence.handle, 1); 33];
        same("33 fences", raw.wait_cpu(room.device, &many, false, None), refused)?;
        same("32 fences", raw.wait_cpu(room.device, &many[..32], false, None), Ok(()))?;
        same("signalling 33 fences", raw.signal_cpu(room.device, &many), refused)?;
        let caps = scene.adapter().caps().context("caps")?;
        if caps.has_hardware_scheduling() {
            let queue = room.queue(0, false)?;
            let signal = |count| stranger::signal_queues(&raw, &vec![queue.handle; count], fence.handle, 2);
            same("65 queues", signal(65), refused)?;
            same("64 queues", signal(64), Ok(()))?;
        }
        same("1025 allocations", room.create_many(1025).map(|made| made.len()), refused.map(|()| 0))?;
        same("1024 allocations", room.create_many(1024).map(|made| made.len()), Ok(1024))
    })
}
