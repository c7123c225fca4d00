//! Debug information: at any time, whatever the buffer and the payload, and what it says of a hang.
#![expect(unsafe_code, reason = "functions of the driver's table are called")]

use super::super::client::Client;
use super::super::db::Room;
use super::super::{Played, Scene, Setup, Stage, same};
use super::hardware::{ACTIVE, controller, force, recovered, works};
use super::held::Spinner;
use super::hog::Loop;
use super::named::{contexts, notes};
use super::{Hog, Raw, client, is_lost, stubborn, victim};
use crate::decode::decode;
use crate::wrap::{copy, machine, own};
use anyhow::{Context, ensure};
use dxgkrnl_model::adapter::{DebugQuestion, PacketEvent, Step};
use dxgkrnl_model::personality::{Gate, SECOND};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use umd_core::ffi::types::FP_QUEUE_KERNEL_MODE;
use wddm_abi::ntstatus::STATUS_SUCCESS;
use wddm_abi::{
    D3DDDI_CREATECONTEXTFLAGS, D3DKMT_DESTROYCONTEXT, DRIVER_INITIALIZATION_DATA, DXGK_TDR_PAYLOAD_ENGINE_TIMEOUT,
    DXGK_TDR_TYPE, DXGKARG_COLLECTDBGINFO2, DXGKARG_RESETENGINE, DXGKARG_RESETHWENGINE, HANDLE, NTSTATUS, Plain,
};

/// Reasons: an engine, the adapter, and a bug check that is neither.
const REASONS: [u32; 3] = [0x141, 0x117, 0x119];

fn question(reason: u32, size: usize) -> DebugQuestion {
    DebugQuestion { reason, size, payload: (DXGK_TDR_TYPE::DXGK_TDR_TYPE_ENGINE_TIMEOUT, None), older: false }
}

/// The whole of what the driver says, for every reason and by either function.
fn is_told(scene: &Scene, when: &str) -> Played {
    for (reason, older) in REASONS.into_iter().flat_map(|reason| [(reason, false), (reason, true)]) {
        let mut asked = DebugQuestion { older, ..question(reason, 0x4000) };
        let (status, bytes) = scene.world.os.ask_for_debug_info(scene.adapter(), &mut asked);
        let what = format!("{when}, reason {reason:#x}, older function: {older}");
        same(&what, status, STATUS_SUCCESS)?;
        let told = decode(&bytes).with_context(|| what.clone())?;
        ensure!(told.missing == 0 && told.text.contains("guilty  "), "{what}:\n{}", told.text);
    }
    Ok(())
}

/// Every reason, by either function, with room for nothing, little, and much; and at moments in which others call
/// nothing: without power, and between the functions of the adapter's reset.
pub(super) fn sizes(stage: &Stage) -> Played {
    let gate = Gate::default();
    let setup = Setup::default().windows(|windows| windows.gates.restart = Some(gate.clone())).resets(1);
    stage
        .play(setup, |scene| {
            let control = controller(scene)?;
            for hibernates in [false, true] {
                scene.world.os.put_to_sleep(scene.adapter(), hibernates);
                is_told(scene, "without power")?;
                scene.world.os.wake_up(scene.adapter());
                is_told(scene, "with power again")?;
            }
            let told = std::thread::scope(|scope| -> Played {
                let reset = scope.spawn(|| force(&control, None));
                let told = scene.until("the first half of the reset", || Ok(gate.came() == 1));
                let told = told.and_then(|()| is_told(scene, "between the functions of the adapter's reset"));
                gate.let_through();
                same("the escape", reset.join().map_err(|_| anyhow::anyhow!("a panic"))?, STATUS_SUCCESS)?;
                told
            });
            told.and_then(|()| is_told(scene, "behind the reset")).and_then(|()| works(scene))
        })
        .context("at any time")?;
    stage.play(Setup::default(), |scene| {
        let rig = Client::open(scene, "busy")?;
        let (queue, page) = (rig.queue(0)?, rig.page()?);
        queue.run(|list| list.store(page.at(0), 1))?;
        page.until(scene, "work", 0, 1)?;
        let whole = scene.world.os.ask_for_debug_info(scene.adapter(), &mut question(0x141, 0x4000)).1;
        let length = 0x4000 - whole.iter().rev().take_while(|byte| **byte == 0).count();
        for reason in REASONS {
            for older in [false, true] {
                for size in [0, 1, 7, 8, 9, 72, 100, length, 0x4000, 0x2_0000] {
                    let mut asked = DebugQuestion { older, ..question(reason, size) };
                    let (status, bytes) = scene.world.os.ask_for_debug_info(scene.adapter(), &mut asked);
                    let what = format!("reason {reason:#x}, {size} bytes, older function: {older}");
                    same(&what, status, STATUS_SUCCESS)?;
                    let told = decode(&bytes);
                    ensure!(size < 64 || told.is_ok(), "{what}: {told:?}");
                    if size >= 0x4000 {
                        same(&what, told?.missing, 0)?;
                    }
                }
            }
        }
        Ok(())
    })
}

/// Payloads that are not there, that this driver knows, that are shorter and longer, and of other types.
pub(super) fn payloads(stage: &Stage) -> Played {
    // The engine stays in its buffer: between two turns there is no context that runs. No timeout comes of it.
    let setup = Setup::default().with_driver(notes).setting("PreemptInBuffers", 0);
    let setup = setup.windows(|windows| windows.tdr.delay = 300 * SECOND);
    stage.play(setup, |scene| {
        let kernel = if stage.rung() == 0 { FP_QUEUE_KERNEL_MODE } else { 0 };
        let open = |name: &str| -> anyhow::Result<_> {
            let rig = Client::open(scene, name)?;
            let queue = rig.device.queue(0, 64 << 10, kernel, 0)?;
            let made = contexts(scene, 0).last().context("a context")?.os;
            Ok((rig, queue, made))
        };
        // Contexts of the same node that have nothing to run, one before the one that runs and one behind it.
        let before = open("before")?;
        let (rig, queue, runs) = open("runs")?;
        let behind = open("behind")?;
        ensure!(before.2 != runs && behind.2 != runs, "contexts {:#x}, {runs:#x}, {:#x}", before.2, behind.2);
        let run = Loop::new(&rig)?;
        queue.run(|list| list.indirect(run.address, run.length))?;
        run.begins(scene)?;
        let known = size_of::<DXGK_TDR_PAYLOAD_ENGINE_TIMEOUT>();
        let of_engine = DXGK_TDR_TYPE::DXGK_TDR_TYPE_ENGINE_TIMEOUT;
        let types = [of_engine, DXGK_TDR_TYPE::DXGK_TDR_TYPE_VSYNC_TIMEOUT, DXGK_TDR_TYPE(77)];
        for kind in types {
            for size in [None, Some(0), Some(known - 1), Some(known), Some(known + 24), Some(4096)] {
                let mut payload = DXGK_TDR_PAYLOAD_ENGINE_TIMEOUT::zeroed();
                payload.NodeOrdinal = 0;
                let bytes = |size: usize| {
                    let mut bytes = payload.as_bytes().to_vec();
                    bytes.resize(size, 0xA5);
                    bytes
                };
                let before = size.map(bytes);
                let mut asked = DebugQuestion { payload: (kind, before.clone()), ..question(0x141, 0x4000) };
                let (status, _) = scene.world.os.ask_for_debug_info(scene.adapter(), &mut asked);
                let what = format!("{kind:?}, a payload of {size:?} bytes");
                same(&what, status, STATUS_SUCCESS)?;
                let (mut before, after) = (before.unwrap_or_default(), asked.payload.1.unwrap_or_default());
                if kind == of_engine && before.len() >= known {
                    // hContext is the record's last member; nothing else is the driver's to write.
                    let context = known - 8..known;
                    let named = after[context.clone()].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
                    ensure!(named == runs as u64, "{what}: context {named:#x} is named, {runs:#x} runs");
                    before[context.clone()].copy_from_slice(&after[context]);
                }
                ensure!(before == after, "{what}: it was written to");
            }
        }
        // A node that is not there.
        let mut payload = DXGK_TDR_PAYLOAD_ENGINE_TIMEOUT::zeroed();
        payload.NodeOrdinal = 1000;
        let mut asked = question(0x141, 0x4000);
        asked.payload = (of_engine, Some(payload.as_bytes().to_vec()));
        same("node 1000", scene.world.os.ask_for_debug_info(scene.adapter(), &mut asked).0, STATUS_SUCCESS)?;
        run.end()?;
        queue.wait(0, super::super::stage::PATIENCE)?;
        Ok(())
    })
}

/// The blob that is kept of a hang, in words.
fn told(scene: &Scene) -> anyhow::Result<String> {
    let blobs = scene.adapter().debug_blobs();
    let blob = blobs.iter().rev().find(|blob| blob.reason == 0x141).context("no blob of an engine's timeout")?;
    Ok(decode(&blob.bytes)?.text)
}

/// What the driver was told of an engine that timed out: node; last completed and last submitted fence; suspensions
/// that are not answered, and queues that have work.
type Payload = (u32, [u64; 2], [u32; 2]);

/// The last payload of each machine.
static PAYLOADS: Mutex<BTreeMap<usize, Payload>> = Mutex::new(BTreeMap::new());

crate::decorate! {
    notes_payload: DxgkDdiCollectDbgInfo2(adapter: HANDLE, args: *mut DXGKARG_COLLECTDBGINFO2) -> NTSTATUS {
        let asked = copy!(args);
        let payload = asked.TdrPayload.cast::<DXGK_TDR_PAYLOAD_ENGINE_TIMEOUT>().cast_const();
        if asked.TdrType == DXGK_TDR_TYPE::DXGK_TDR_TYPE_ENGINE_TIMEOUT && !payload.is_null() {
            let told = copy!(payload);
            let fences = [told.LastHwCompletedFenceId, told.LastHwSubmittedFenceId];
            let counts = [told.NumberOfPendingSuspendRequests, told.NumberOfReadyInteractiveHwQueues];
            let told = (told.NodeOrdinal, fences, counts);
            PAYLOADS.lock().unwrap_or_else(PoisonError::into_inner).insert(machine(), told);
        }
        own!(DxgkDdiCollectDbgInfo2(adapter, args))
    }
}

fn payload(scene: &Scene) -> anyhow::Result<Payload> {
    let number = scene.world.os.run(machine);
    PAYLOADS.lock().unwrap_or_else(PoisonError::into_inner).get(&number).copied().context("no payload")
}

/// A packet hangs, and a queue: the blob says which, and why the driver thinks so.
pub(super) fn guilty(stage: &Stage) -> Played {
    let node = victim(stage);
    stage.play(stubborn().resets(1), |scene| {
        let raw = client(scene, "hangs")?;
        let hog = Hog::new(scene, &raw, &[node])?;
        hog.spin(node, 0)?;
        is_lost(scene, &hog)?;
        let fence = super::aborted(&super::only_reset(scene)?)?;
        let text = told(scene)?;
        for line in [
            "guilty                  runs, was asked to come off, and cannot".to_owned(),
            format!("node that timed out     {node}"),
            format!("  runs packet           {fence:#x}, 0 wait"),
            format!("  value                 {fence:#x}"),
            format!("value {fence:#x}, next packet at "),
        ] {
            ensure!(text.contains(&line), "no '{line}' in\n{text}");
        }
        Ok(())
    })?;
    without_a_node(stage, node).context("the older function, which names no node")?;
    packets_of(stage, node).context("what is said of packets")?;
    payloads_of_timeouts(stage, node).context("what the driver is told")?;
    if stage.rung() == 0 {
        return Ok(());
    }
    stage.play(stubborn().resets(1), |scene| {
        let run = queue_hung(scene)?;
        let text = told(scene)?;
        for line in [
            "guilty                  runs, was asked to come off, and cannot".to_owned(),
            "  now                   a queue (runs), queue 0x".to_owned(),
        ] {
            ensure!(text.contains(&line), "no '{line}' in\n{text}");
        }
        let next = text.split("next packet at 0x").nth(1).and_then(|rest| rest.split(',').next());
        let next = u64::from_str_radix(next.context("no place in a command buffer")?, 16)?;
        ensure!(run.contains(&next), "the next packet is at {next:#x}, the loop in {run:#x?}");
        Ok(())
    })
}

/// A packet hangs: asked about a timeout without being told of which node, the driver finds the engine by itself, and
/// of what is no timeout it blames nobody.
fn without_a_node(stage: &Stage, node: u32) -> Played {
    let gate = Gate::default();
    let setup = stubborn().resets(1).windows(|windows| windows.gates.reset = Some(gate.clone()));
    stage.play(setup, |scene| {
        let raw = client(scene, "hangs")?;
        let hog = Hog::new(scene, &raw, &[node])?;
        hog.spin(node, 0)?;
        scene.until("the preparation of the reset", || Ok(gate.came() == 1))?;
        let cannot = "guilty                  runs, was asked to come off, and cannot";
        let nobody = "guilty                  the OS names no node, and each engine answers";
        for (reason, line) in [(0x141, cannot), (0x117, cannot), (0x119, nobody)] {
            let mut asked = DebugQuestion { older: true, ..question(reason, 0x4000) };
            let (_, bytes) = scene.world.os.ask_for_debug_info(scene.adapter(), &mut asked);
            let text = decode(&bytes)?.text;
            ensure!(text.contains(line), "no '{line}' for {reason:#x} in\n{text}");
        }
        gate.open(true);
        is_lost(scene, &hog)
    })
}

/// A queue of node 0 has hung, and its engine was reset. Where the loop lies that it hung in.
fn queue_hung(scene: &Scene) -> anyhow::Result<Range<u64>> {
    let rig = Client::open(scene, "hangs")?;
    let queue = rig.queue(0)?;
    let run = Loop::new(&rig)?;
    queue.run(|list| list.indirect(run.address, run.length))?;
    scene.until("the loss of the device that hangs", || Ok(rig.device.state()?.execution != ACTIVE))?;
    recovered(scene, 1)?;
    Ok(run.address..run.address + run.length)
}

/// A packet hangs, and a queue: what the driver is told with the question is what the OS has seen.
fn payloads_of_timeouts(stage: &Stage, node: u32) -> Played {
    stage.play(stubborn().resets(1).with_driver(notes_payload), |scene| {
        let raw = client(scene, "hangs")?;
        let hog = Hog::new(scene, &raw, &[node])?;
        hog.spin(node, 0)?;
        is_lost(scene, &hog)?;
        let recovery = super::only_reset(scene)?;
        let noted = recovery.steps.iter().find_map(|step| match step {
            Step::Snapshot { completed, submitted, .. } => Some([u64::from(*completed), u64::from(*submitted)]),
            _ => None,
        });
        same("of a packet", payload(scene)?, (node, noted.context("a snapshot")?, [0, 0]))
    })?;
    if stage.rung() == 0 {
        return Ok(());
    }
    stage.play(stubborn().resets(1).with_driver(notes_payload), |scene| {
        queue_hung(scene)?;
        same("of a queue", payload(scene)?, (0, [0, 0], [1, 1]))
    })?;
    // Queues with work on this node and on another one, which is done before anybody could blame it.
    let gate = Gate::default();
    let setup = stubborn().resets(1).windows(|windows| windows.gates.reset = Some(gate.clone()));
    stage.play(setup.with_driver(notes_payload), |scene| {
        let rigs = [Client::open(scene, "hangs")?, Client::open(scene, "beside")?];
        let queues = [rigs[0].queue(0)?, rigs[1].queue(1)?];
        let runs = [Loop::new(&rigs[0])?, Loop::new(&rigs[1])?];
        let begin = |at: usize| -> Played {
            queues[at].run(|list| list.indirect(runs[at].address, runs[at].length))?;
            runs[at].begins(scene)
        };
        begin(0)?;
        // So late that nobody looks at the other before the first one's time is over.
        scene.until("the suspension", || Ok(scene.calls("DxgkDdiSuspendContext") != 0))?;
        begin(1)?;
        scene.until("the preparation of the reset", || Ok(gate.came() == 1))?;
        let told = payload(scene)?;
        runs[1].end()?;
        gate.open(true);
        let lost = || Ok(rigs[0].device.state()?.execution != ACTIVE);
        scene.until("the loss of the device that hangs", lost)?;
        same("of a queue, beside another node's", told, (0, [0, 0], [1, 1]))?;
        same("the device beside it", rigs[1].device.state()?.execution, ACTIVE)
    })
}

/// One packet is done, one runs, and one waits: the blob says which.
fn packets_of(stage: &Stage, node: u32) -> Played {
    // Nothing preempts the node, and takes back what waits.
    let setup = stubborn().windows(|windows| {
        (windows.tdr.delay, windows.preemption.in_ordinary_use) = (5 * SECOND, false);
        windows.preemption.in_flight = 4;
    });
    stage.play(setup, |scene| {
        let raw = client(scene, "packets")?;
        let hog = Hog::new(scene, &raw, &[node])?;
        let flights = || {
            let journal = scene.adapter().packet_journal(node);
            let of = |event: &PacketEvent| match event {
                PacketEvent::Submitted { id, .. } => Some(*id),
                _ => None,
            };
            journal.iter().filter_map(of).collect::<Vec<_>>()
        };
        hog.short(node, 0)?;
        scene.until("a packet", || hog.has_ended(0))?;
        hog.spin(node, 1)?;
        hog.begins(scene, 1)?;
        let before = flights();
        hog.short(node, 2)?;
        scene.until("a packet that waits", || Ok(flights().len() > before.len()))?;
        let all = flights();
        let [.., done, runs, waits] = all[..] else { anyhow::bail!("packets {all:x?}") };
        same("what was handed in behind the one that runs", all.len(), before.len() + 1)?;
        let lines = [
            format!("  packets               last completed {done:#x}, reported {done:#x}, submitted {waits:#x}"),
            format!("  runs packet           {runs:#x}, 1 wait"),
        ];
        // The packet that waits is handed in behind its entry into the journal.
        let mut text = String::new();
        scene.until("a blob of them", || {
            let asked = scene.world.os.ask_for_debug_info(scene.adapter(), &mut question(0x141, 0x4000));
            text = decode(&asked.1)?.text;
            Ok(text.contains(&lines[1]))
        })?;
        ensure!(text.contains(&lines[0]), "no '{}' in\n{text}", lines[0]);
        hog.end(1)?;
        scene.until("the last packet", || hog.has_ended(2))
    })
}

/// Resets of engines that wait inside the driver's function, by machine; whether they may go on.
static INSIDE: Mutex<BTreeMap<usize, bool>> = Mutex::new(BTreeMap::new());

fn inside<R>(f: impl FnOnce(&mut BTreeMap<usize, bool>) -> R) -> R {
    f(&mut INSIDE.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Waits inside a function of the driver's until the case lets it go on.
fn stay() {
    inside(|all| all.insert(machine(), false));
    let end = Instant::now() + Duration::from_secs(20);
    while inside(|all| all.get(&machine()) == Some(&false)) && Instant::now() < end {
        std::thread::park_timeout(Duration::from_millis(1));
    }
}

crate::decorate! {
    stays_in_packets: DxgkDdiResetEngine(adapter: HANDLE, args: *mut DXGKARG_RESETENGINE) -> NTSTATUS {
        stay();
        own!(DxgkDdiResetEngine(adapter, args))
    }

    stays_in_queues: DxgkDdiResetHwEngine(adapter: HANDLE, args: *mut DXGKARG_RESETHWENGINE) -> NTSTATUS {
        stay();
        own!(DxgkDdiResetHwEngine(adapter, args))
    }
}

/// Takes its time inside the reset of an engine of either kind.
fn resets_slowly(table: &mut DRIVER_INITIALIZATION_DATA) {
    stays_in_packets(table);
    stays_in_queues(table);
}

/// While an engine's reset is prepared and carried out, the driver is asked by other threads, and a process beside
/// makes and unmakes what it needs: every answer comes.
pub(super) fn beside(stage: &Stage) -> Played {
    let node = victim(stage);
    during(stage, "DxgkDdiResetEngine", &mut |scene, raw, reset| {
        let hog = Hog::new(scene, raw, &[node])?;
        hog.spin(node, 0)?;
        reset()?;
        is_lost(scene, &hog)
    })?;
    if stage.rung() == 0 {
        return Ok(());
    }
    during(stage, "DxgkDdiResetHwEngine", &mut |scene, raw, reset| {
        let hog = Spinner::new(scene, raw)?;
        reset()?;
        scene.until("the loss of the device that hangs", || Ok(!hog.room.is_active()?))
    })
    .context("a hardware-scheduled engine")
}

/// What hangs an engine, calls its last argument once that is so, and waits for the loss of its device.
type Hang<'a> = &'a mut dyn FnMut(&Scene, &Raw, &dyn Fn() -> Played) -> Played;

/// The paging node, which takes packets on every rung.
const PAGING: u32 = 2;

/// Calls that each thread makes while it is looked at.
const EACH: u64 = 25;

/// The calls beside the reset of what `hang` hangs, which is `ddi`: a while before it, inside it, and until it is over.
fn during(stage: &Stage, ddi: &str, hang: Hang<'_>) -> Played {
    let gate = Gate::default();
    let setup = stubborn().windows(|windows| windows.gates.reset = Some(gate.clone())).resets(1);
    stage.play(setup.with_driver(resets_slowly), |scene| {
        let number = scene.world.os.run(machine);
        let (raw, works) = (client(scene, "hangs")?, client(scene, "works")?);
        let room = Room::new(&works)?;
        // Each thread's calls.
        let (asked, done) = ([const { AtomicU64::new(0) }; 4], AtomicBool::new(false));
        let ask = |count: &AtomicU64| -> Played {
            while !done.load(Ordering::Acquire) {
                let mut question = question(0x117, 0x4000);
                let (status, bytes) = scene.world.os.ask_for_debug_info(scene.adapter(), &mut question);
                same("the answer", status, STATUS_SUCCESS)?;
                decode(&bytes)?;
                count.fetch_add(1, Ordering::Release);
            }
            Ok(())
        };
        // Devices and fences are of level zero, as questions are; the memory of a fence is mapped by paging, which the
        // thread hands in that resets the engine. So this one may have to wait until the reset is over.
        let make = |count: &AtomicU64| -> Played {
            while !done.load(Ordering::Acquire) {
                let device = works.device()?;
                works.destroy_fence(works.monitored_fence(device, 0, false)?.handle)?;
                works.destroy_device(device)?;
                count.fetch_add(1, Ordering::Release);
            }
            Ok(())
        };
        // Contexts are of level zero, too. A packet context: that of a hardware queue is suspended before its end,
        // which is of the resets' level.
        let make_contexts = |count: &AtomicU64| -> Played {
            while !done.load(Ordering::Acquire) {
                let context = room.context_with(PAGING, D3DDDI_CREATECONTEXTFLAGS::zeroed())?;
                works.ok(works.thunks.D3DKMTDestroyContext, &mut D3DKMT_DESTROYCONTEXT { hContext: context })?;
                count.fetch_add(1, Ordering::Release);
            }
            Ok(())
        };
        let counts = || [0, 1, 2, 3].map(|at: usize| asked[at].load(Ordering::Acquire));
        // Of the first `threads`.
        let goes_on = |what: &str, threads: usize| {
            let before = counts();
            let each_does = || Ok(counts().iter().zip(before).take(threads).all(|(now, before)| *now > before + EACH));
            scene.until(what, each_does).with_context(|| format!("{what}: {before:?}, and then {:?}", counts()))
        };
        std::thread::scope(|scope| -> Played {
            // Level zero: several at once, beside a call of another level.
            let threads = [
                scope.spawn(|| ask(&asked[0])),
                scope.spawn(|| ask(&asked[1])),
                scope.spawn(|| make_contexts(&asked[2])),
                scope.spawn(|| make(&asked[3])),
            ];
            let played = hang(scene, &raw, &|| {
                scene.until("the preparation", || Ok(gate.came() == 1))?;
                goes_on("calls while the reset is prepared", 3)?;
                same("resets by then", scene.calls(ddi), 0)?;
                gate.let_through();
                scene.until("the driver's function", || Ok(inside(|all| all.contains_key(&number))))?;
                goes_on("calls inside the driver's function", 3)?;
                inside(|all| all.insert(number, true));
                Ok(())
            });
            let behind = played.and_then(|()| goes_on("calls behind it", 4));
            gate.let_through();
            inside(|all| all.insert(number, true));
            done.store(true, Ordering::Release);
            for thread in threads {
                thread.join().map_err(|_| anyhow::anyhow!("a panic"))??;
            }
            behind
        })?;
        inside(|all| all.remove(&number));
        same("resets", scene.calls(ddi), 1)
    })
}
