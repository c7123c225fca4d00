//! Suspension, and kernel-mode queues beside user-mode ones.

use super::{CONNECTED, KernelQueue, RingQueue, Room, raw, store};
use crate::scenario::{Played, Scenario, Scene, Setup, Stage, portable, same};
use anyhow::{Context, Result, ensure};
use dxgkrnl_model::personality::SECOND;
use gpu_wire::GpuVa;
use gpu_wire::packet::Encoded;
use std::time::Duration;

/// TdrDelay of [`Setup::quick_tdr`].
const QUICK: Duration = Duration::from_millis(200);

const SUSPEND: &str = "User-mode work submission, Hardware context suspension";

pub(super) const CASES: &[Scenario] = &[
    Scenario {
        id: "DB-29",
        title: "kernel-mode and user-mode queues on one node",
        source: "User-mode work submission, Submit work",
        play: mixed,
    },
    Scenario { id: "DB-32", title: "rung while suspended, run when resumed", source: SUSPEND, play: suspended },
    Scenario {
        id: "DB-79",
        title: "a context that the OS has suspended stays off its engine for longer than TdrDelay, with work that waits",
        source: SUSPEND,
        play: kept_off,
    },
    Scenario {
        id: "DB-33",
        title: "suspended twice, and resumed before the acknowledgement",
        source: "DxgkddiSuspendContext, Return value and Remarks",
        play: suspended_twice,
    },
    Scenario {
        id: "DB-34",
        title: "only fences that were asked for are acknowledged, under load",
        source: "DXGKARG_SUSPENDCONTEXT; bug check 0x119 parameter 0x11",
        play: acknowledged,
    },
    Scenario {
        id: "DB-36",
        title: "a kernel-mode queue has MaxInFlightHwQueueBuffers with the driver at most",
        source: "DXGK_NODEMETADATA_FLAGS, MaxInFlightHwQueueBuffers",
        play: in_flight,
    },
    Scenario {
        id: "DB-38",
        title: "a suspended queue's doorbell is taken and connected again; its work waits for the resumption",
        source: SUSPEND,
        play: victim_of_suspended,
    },
    Scenario {
        id: "DB-50",
        title: "a context is destroyed while its suspension is under way: the acknowledgement comes before the call",
        source: "DXGKARG_SUSPENDCONTEXT; bug check 0x119 parameter 0x11",
        play: destroyed_while_suspending,
    },
];

fn mixed(stage: &Stage) -> Played {
    portable::case(stage, "DB-29", |scene| {
        // Thirty, and one that waits.
        same("kernel submissions", scene.world.os.report().counts.kernel_submissions, 31)?;
        let raw = raw(scene)?;
        let room = Room::new(&raw)?;
        let context = room.context(0)?;
        let kernel = KernelQueue::new(scene, &room, context)?;
        let user = RingQueue::on(scene, &room, room.queue_in(context, true)?, 4096)?;
        user.connect()?;
        let target = room.memory(scene, 4096)?;
        for value in 1..=10 {
            kernel.submit(&room, 0, &[store(target.gpu, value)], value)?;
            let progress = user.submit_through(&[store(target.gpu + 8, value)])?;
            scene.until("the kernel-mode queue of one context", || Ok(kernel.value(&raw)? == value))?;
            user.wait(scene, progress)?;
            same("both of one context", (raw.load(target.cpu)?, raw.load(target.cpu + 8)?), (value, value))?;
        }
        Ok(())
    })
}

fn suspended(stage: &Stage) -> Played {
    stage.play(Setup::default().setting("IdleMilliseconds", 0), |scene| {
        let (one, two) = (raw(scene)?, raw(scene)?);
        let (room, other_room) = (Room::new(&one)?, Room::new(&two)?);
        let queue = RingQueue::connected(scene, &room, 0, 4096)?;
        let other = RingQueue::connected(scene, &other_room, 0, 4096)?;
        let target = room.memory(scene, 4096)?;
        let os = &scene.world.os;
        for round in 1..=10 {
            ensure!(os.suspend(scene.adapter(), &one.process), "not acknowledged");
            let (progress, status) = queue.submit(&[store(target.gpu, round)])?;
            same("the doorbell stays connected", status, CONNECTED)?;
            let done = other.submit_through(&[])?;
            other.wait(scene, done)?;
            same("nothing ran", (queue.progress()?, one.load(target.cpu)?), (progress - 1, round - 1))?;
            os.resume(scene.adapter(), &one.process);
            queue.wait(scene, progress)?;
            same("memory", one.load(target.cpu)?, round)?;
        }
        same("connections", scene.calls("DxgkDdiConnectDoorbell"), 2)
    })?;
    all_of_a_context(stage)?;
    stage.play(unwatched(), kernel_of_suspended)
}

/// No engine lets a doorbell go by itself, and the OS looks at no queue before a wait of the case has failed.
fn unwatched() -> Setup {
    Setup::default().setting("IdleMilliseconds", 0).windows(|windows| windows.tdr.delay = 120 * SECOND)
}

/// What the OS has suspended it resumes itself: three times TdrDelay with work that does not run are no reason to ask
/// the engine, which would let the context on.
fn kept_off(stage: &Stage) -> Played {
    stage.play(Setup::default().quick_tdr().setting("IdleMilliseconds", 0), |scene| {
        let raw = raw(scene)?;
        let room = Room::new(&raw)?;
        let queue = RingQueue::connected(scene, &room, 0, 4096)?;
        let kernel = KernelQueue::new(scene, &room, room.context(0)?)?;
        let target = room.memory(scene, 4096)?;
        let os = &scene.world.os;
        for round in 1..=2 {
            ensure!(os.suspend(scene.adapter(), &raw.process), "not acknowledged");
            let (progress, status) = queue.submit(&[store(target.gpu, round)])?;
            same("the doorbell stays connected", status, CONNECTED)?;
            kernel.submit(&room, 0, &[store(target.gpu + 8, round)], round)?;
            let calls = (scene.calls("DxgkDdiSuspendContext"), scene.calls("DxgkDdiResumeContext"));
            std::thread::park_timeout(3 * QUICK);
            let now = (scene.calls("DxgkDdiSuspendContext"), scene.calls("DxgkDdiResumeContext"));
            same("suspensions and resumptions meanwhile", now, calls)?;
            let stored = (raw.load(target.cpu)?, raw.load(target.cpu + 8)?);
            same("what ran meanwhile", stored, (round - 1, round - 1))?;
            os.resume(scene.adapter(), &raw.process);
            queue.wait(scene, progress)?;
            scene.until("the kernel-mode queue", || Ok(kernel.value(&raw)? == round))?;
            same("memory", (raw.load(target.cpu)?, raw.load(target.cpu + 8)?), (round, round))?;
        }
        same("recoveries", scene.adapter().recoveries().len(), 0)
    })
}

/// What a suspended context's kernel-mode queue is given, the OS keeps back: it runs when the context is resumed, in
/// order.
fn kernel_of_suspended(scene: &Scene) -> Played {
    let (raw, other) = (raw(scene)?, raw(scene)?);
    let (room, beside) = (Room::new(&raw)?, Room::new(&other)?);
    let queue = KernelQueue::new(scene, &room, room.context(0)?)?;
    let witness = RingQueue::connected(scene, &beside, 0, 4096)?;
    let target = room.memory(scene, 4096)?;
    let os = &scene.world.os;
    let mut value = 0;
    for _ in 0..5 {
        ensure!(os.suspend(scene.adapter(), &raw.process), "not acknowledged");
        let (before, calls) = (value, scene.calls("DxgkDdiSubmitCommandToHwQueue"));
        for slot in 0..8 {
            value += 1;
            queue.submit(&room, slot, &[store(target.gpu, value)], value)?;
        }
        let done = witness.submit_through(&[])?;
        witness.wait(scene, done)?;
        same("nothing ran", (queue.value(&raw)?, raw.load(target.cpu)?), (before, before))?;
        same("what the driver got", scene.calls("DxgkDdiSubmitCommandToHwQueue"), calls)?;
        os.resume(scene.adapter(), &raw.process);
        scene.until("all of it", || Ok(queue.value(&raw)? == value))?;
        same("the last store", raw.load(target.cpu)?, value)?;
    }
    Ok(())
}

/// Three queues of a context: none of them runs while it is suspended, and each does behind the resumption.
fn all_of_a_context(stage: &Stage) -> Played {
    stage.play(unwatched(), |scene| {
        let (raw, other) = (raw(scene)?, raw(scene)?);
        let (room, beside) = (Room::new(&raw)?, Room::new(&other)?);
        let context = room.context(0)?;
        let queues = (0..3).map(|_| RingQueue::on(scene, &room, room.queue_in(context, true)?, 4096));
        let queues = queues.collect::<Result<Vec<_>>>()?;
        queues.iter().try_for_each(RingQueue::connect)?;
        let witness = RingQueue::connected(scene, &beside, 0, 4096)?;
        let os = &scene.world.os;
        for round in 0..5 {
            ensure!(os.suspend(scene.adapter(), &raw.process), "not acknowledged");
            let submit = |queue: &RingQueue<'_>| Ok(queue.submit(&[])?.0);
            let submitted = queues.iter().map(submit).collect::<Result<Vec<_>>>()?;
            let done = witness.submit_through(&[])?;
            witness.wait(scene, done)?;
            let progress = queues.iter().map(RingQueue::progress).collect::<Result<Vec<_>>>()?;
            same("what ran", progress, vec![round; 3])?;
            os.resume(scene.adapter(), &raw.process);
            for (queue, progress) in queues.iter().zip(submitted) {
                queue.wait(scene, progress)?;
            }
        }
        Ok(())
    })
}

fn suspended_twice(stage: &Stage) -> Played {
    stage.play(Setup::default(), |scene| {
        let raw = raw(scene)?;
        let room = Room::new(&raw)?;
        let queue = RingQueue::connected(scene, &room, 0, 4096)?;
        let os = &scene.world.os;
        let (adapter, process) = (scene.adapter(), &raw.process);
        let first = os.begin_suspension(adapter, process);
        same("of a context that runs", (first.at_once, first.pending), (0, 1))?;
        ensure!(os.suspend(adapter, process), "not acknowledged");
        let again = os.begin_suspension(adapter, process);
        same("of one that is suspended", (again.at_once, again.pending), (1, 0))?;
        os.resume(adapter, process);
        let progress = queue.submit_through(&[])?;
        queue.wait(scene, progress)?;
        for _ in 0..100 {
            os.begin_suspension(adapter, process);
            os.resume(adapter, process);
            os.begin_suspension(adapter, process);
            ensure!(os.suspend(adapter, process), "the newest is not acknowledged");
            let progress = queue.submit_through(&[])?;
            same("nothing ran", queue.progress()?, progress - 1)?;
            os.resume(adapter, process);
            queue.wait(scene, progress)?;
        }
        Ok(())
    })
}

fn destroyed_while_suspending(stage: &Stage) -> Played {
    const ROUNDS: usize = 400;
    stage.play(Setup::default(), |scene| {
        let raw = raw(scene)?;
        let room = Room::new(&raw)?;
        let mut pending = 0;
        for _ in 0..ROUNDS {
            let context = room.context(0)?;
            pending += scene.world.os.begin_suspension(scene.adapter(), &raw.process).pending;
            room.destroy_context(context)?;
        }
        same("suspensions that were under way", pending, ROUNDS)?;
        same("the device", room.is_active()?, true)
    })
}

fn acknowledged(stage: &Stage) -> Played {
    stage.play(Setup::default(), |scene| {
        let raw = raw(scene)?;
        let room = Room::new(&raw)?;
        let queue = RingQueue::connected(scene, &room, 0, 64 << 10)?;
        let target = room.memory(scene, 1 << 20)?;
        let os = &scene.world.os;
        let fill = gpu_wire::packet::Fill { address: target.gpu, length: target.size, pattern: 7, reserved: 0 };
        let before = scene.evaluations("DXG-INT-SUSPEND-FENCE");
        for _ in 0..40 {
            let progress = queue.submit_through(&[fill.to_packet(), fill.to_packet()])?;
            ensure!(os.suspend(scene.adapter(), &raw.process), "not acknowledged");
            os.resume(scene.adapter(), &raw.process);
            queue.wait(scene, progress)?;
        }
        let now = scene.evaluations("DXG-INT-SUSPEND-FENCE");
        ensure!(now > before, "no acknowledgement was judged");
        Ok(())
    })
}

fn in_flight(stage: &Stage) -> Played {
    const BUFFERS: u64 = 100;
    stage.play(Setup::default(), |scene| {
        let raw = raw(scene)?;
        let room = Room::new(&raw)?;
        let queue = room.queue(0, false)?;
        let gate = raw.native_fence(room.device, 0)?;
        let caps = scene.adapter().caps().context("caps")?;
        let limit: u64 = caps.node(0).context("node 0")?.max_in_flight().into();
        ensure!((1..BUFFERS).contains(&limit), "the limit is {limit}");
        // 48 bytes a buffer: a wait (met after the first) and the progress fence.
        let buffers = room.memory(scene, 8192)?;
        for index in 0..BUFFERS {
            let at = index * 48;
            let packets =
                [Encoded::fence_wait(GpuVa(gate.gpu), 1), Encoded::fence_signal(GpuVa(queue.progress.gpu), index + 1)];
            let bytes: Vec<u8> = packets.iter().flat_map(|packet| packet.as_bytes().to_vec()).collect();
            buffers.write(&raw, at, &bytes)?;
            room.submit(queue.handle, buffers.gpu + at, 48, index + 1)?;
        }
        let name = "DxgkDdiSubmitCommandToHwQueue";
        scene.until("the limit", || Ok(scene.calls(name) >= limit))?;
        same("with the driver", scene.calls(name), limit)?;
        same("progress", raw.load(queue.progress.cpu)?, 0)?;
        raw.signal_cpu(room.device, &[(gate.handle, 1)])?;
        scene.until("the end", || Ok(raw.load(queue.progress.cpu)? == BUFFERS))?;
        same("in all", scene.calls(name), BUFFERS)
    })
}

fn victim_of_suspended(stage: &Stage) -> Played {
    stage.play(Setup::default().setting("PhysicalDoorbells", 1), |scene| {
        let (one, two) = (raw(scene)?, raw(scene)?);
        let (room, other_room) = (Room::new(&one)?, Room::new(&two)?);
        let queue = RingQueue::connected(scene, &room, 0, 4096)?;
        let other = RingQueue::new(scene, &other_room, 0, 4096)?;
        let os = &scene.world.os;
        ensure!(os.suspend(scene.adapter(), &one.process), "not acknowledged");
        other.connect()?;
        let (progress, status) = queue.submit(&[])?;
        same("the suspended queue's status", status, super::RETRY)?;
        queue.connect()?;
        same("connected again", queue.ring()?, CONNECTED)?;
        let (done, status) = other.submit(&[])?;
        same("the other's status", status, super::RETRY)?;
        other.connect()?;
        other.wait(scene, done)?;
        same("nothing ran", queue.progress()?, 0)?;
        os.resume(scene.adapter(), &one.process);
        queue.wait(scene, progress)
    })
}
