//! Rings, write pointers, retries.

use super::{ABORT, CONNECTED, NOTIFY, RETRY, RingQueue, Room, raw, store, unprobed};
use crate::scenario::stage::PATIENCE;
use crate::scenario::{Denied, ExecutionCount, Played, Scenario, Setup, Stage, portable, refused, same};
use anyhow::{Result, ensure};
use dxgkrnl_model::report::{UserFault, UserMistake};
use gpu_wire::GpuVa;
use gpu_wire::packet::{Copy, Encoded, Fill};
use umd_core::ffi::types::{FP_KIND_SYSTEM, FP_SUBMIT_DO_NOT_WAIT};
use wddm_abi::ntstatus::{STATUS_DEVICE_REMOVED, STATUS_IO_TIMEOUT};

const SUBMIT: &str = super::SUBMIT;
const PROGRESS: &str = "User-mode work submission, HW queue progress fence changes";

pub(super) const CASES: &[Scenario] = &[
    Scenario { id: "DB-06", title: "five-step submission runs once", source: PROGRESS, play: five_steps },
    Scenario {
        id: "DB-10",
        title: "a ring into the dummy page, connected before anybody looks: the work runs",
        source: SUBMIT,
        play: lost_ring,
    },
    Scenario { id: "DB-11", title: "RETRY rings again and runs nothing twice", source: SUBMIT, play: retry_once },
    Scenario {
        id: "DB-12",
        title: "CONNECTED_NOTIFY: D3DKMTNotifyWorkSubmission after each ring",
        source: "D3DKMTNotifyWorkSubmission, Remarks",
        play: notify,
    },
    Scenario {
        id: "DB-13",
        title: "a notification nobody asked for succeeds and runs nothing twice",
        source: "DxgkDdiNotifyWorkSubmission, Return value",
        play: notify_anyway,
    },
    Scenario { id: "DB-24", title: "a full ring makes the producer wait", source: SUBMIT, play: full },
    Scenario { id: "DB-25", title: "packets across the ring's end", source: SUBMIT, play: wrap },
    Scenario {
        id: "DB-26",
        title: "impossible write pointers stop their own device only",
        source: "User-mode work submission, Residency model (device-lost scenarios); DXGKARGCB_NOTIFY_INTERRUPT_DATA",
        play: bad_pointer,
    },
    Scenario { id: "DB-28", title: "eight threads, one queue", source: SUBMIT, play: threads },
    Scenario {
        id: "DB-30",
        title: "user mode does not tell what it queued: a fault of its own, and the process ends all the same",
        source: PROGRESS,
        play: untold,
    },
    Scenario {
        id: "DB-37",
        title: "global doorbell: two processes ring the same page; queues that always have work have turns in one \
                order",
        source: "User-mode work submission, Doorbells (global doorbells)",
        play: global,
    },
];

fn five_steps(stage: &Stage) -> Played {
    portable::case(stage, "DB-06", |scene| {
        same("kernel submissions", scene.world.os.report().counts.kernel_submissions, 0)?;
        unprobed(scene)?;
        // As in the article's pseudo code: the write pointer is the control page's first word, and what is rung.
        let raw = raw(scene)?;
        let room = Room::new(&raw)?;
        let queue = RingQueue::connected(scene, &room, 0, 4096)?;
        for _ in 0..3 {
            let progress = queue.record(&[])?;
            raw.store(queue.bell.last_queued, progress)?;
            raw.store(queue.control.cpu, queue.written.get())?;
            raw.store(queue.bell.doorbell, queue.written.get())?;
            queue.wait(scene, progress)?;
        }
        unprobed(scene)
    })
}

fn lost_ring(stage: &Stage) -> Played {
    stage.play(Setup::default(), |scene| {
        let raw = raw(scene)?;
        let room = Room::new(&raw)?;
        let queue = RingQueue::connected(scene, &room, 0, 4096)?;
        for _ in 0..50 {
            scene.world.os.disconnect_doorbells(scene.adapter(), false);
            let (progress, status) = queue.submit(&[])?;
            same("the ring is lost", status, RETRY)?;
            // Another thread of the application connects; this one reads CONNECTED and believes that it has rung.
            queue.connect()?;
            same("status", queue.status()?, CONNECTED)?;
            queue.wait(scene, progress)?;
        }
        Ok(())
    })
}

fn retry_once(stage: &Stage) -> Played {
    stage.play(Setup::default(), |scene| {
        let raw = raw(scene)?;
        let room = Room::new(&raw)?;
        let queue = RingQueue::connected(scene, &room, 0, 4096)?;
        let count = ExecutionCount::new(scene, &room)?;
        for round in 1..=30 {
            scene.world.os.disconnect_doorbells(scene.adapter(), false);
            let (progress, status) = queue.submit(&count.packets())?;
            same("status", status, RETRY)?;
            queue.connect()?;
            for _ in 0..3 {
                same("status", queue.ring()?, CONNECTED)?;
            }
            queue.wait(scene, progress)?;
            same("executions", count.get(&room)?, round)?;
        }
        Ok(())
    })?;
    // The user-mode driver, with a doorbell that is taken from it again and again.
    stage.play(Setup::default().setting("PhysicalDoorbells", 1), |scene| {
        let user = scene.process("client")?;
        let adapter = user.open()?;
        let device = adapter.device()?;
        let queues = [device.queue(0, 4096, 0, 0)?, device.queue(1, 4096, 0, 0)?];
        for _ in 0..20 {
            for queue in &queues {
                let progress = queue.run(|list| list.nop(8))?;
                queue.wait(progress, PATIENCE)?;
            }
        }
        let reconnects = queues[0].counters()?.reconnects + queues[1].counters()?.reconnects;
        ensure!(reconnects >= 20, "{reconnects} reconnections");
        for queue in &queues {
            same("progress", queue.progress()?, (20, 20))?;
        }
        Ok(())
    })
}

fn notify(stage: &Stage) -> Played {
    stage.play(Setup::default().setting("ConnectNotify", 1), |scene| {
        let raw = raw(scene)?;
        let room = Room::new(&raw)?;
        let queue = RingQueue::connected(scene, &room, 0, 4096)?;
        let (progress, status) = queue.submit(&[])?;
        same("status", status, NOTIFY)?;
        queue.notify()?;
        queue.wait(scene, progress)?;
        same("notifications", scene.calls("DxgkDdiNotifyWorkSubmission"), 1)?;
        let user = scene.process("client")?;
        let adapter = user.open()?;
        let device = adapter.device()?;
        let queue = device.queue(0, 4096, 0, 0)?;
        for _ in 0..10 {
            queue.run(|list| list.nop(8))?;
        }
        queue.wait(0, PATIENCE)?;
        let counters = queue.counters()?;
        same("rings and notifications", (counters.rings, counters.notifies), (10, 10))?;
        same("notifications", scene.calls("DxgkDdiNotifyWorkSubmission"), 11)?;
        unprobed(scene)
    })
}

fn notify_anyway(stage: &Stage) -> Played {
    portable::case(stage, "DB-13", unprobed)
}

fn full(stage: &Stage) -> Played {
    portable::case(stage, "DB-24", |_| Ok(()))?;
    const ROUNDS: u64 = 200;
    stage.play(Setup::default(), |scene| {
        let user = scene.process("client")?;
        let adapter = user.open()?;
        let device = adapter.device()?;
        let queue = device.queue(0, 4096, 0, 0)?;
        let gate = device.fence(0, 0)?;
        let memory = device.allocate(FP_KIND_SYSTEM, 4096, 0)?;
        let at = memory.gpu_va()?;
        queue.run(|list| list.wait(&gate, 1))?;
        let mut taken = 0;
        let last = loop {
            let mut list = queue.list()?;
            list.store(at + taken * 8, taken + 1)?;
            match queue.submit_with(&mut list, FP_SUBMIT_DO_NOT_WAIT) {
                Ok(_) => taken += 1,
                error => break error,
            }
            ensure!(taken < ROUNDS, "a ring of 4 KiB took {taken} submissions");
        };
        refused("into a full ring", last, STATUS_IO_TIMEOUT)?;
        ensure!(taken > 10, "{taken} submissions filled the ring");
        same("progress", queue.progress()?, (0, taken + 1))?;
        let waits = || {
            let thunks = scene.world.os.counts().thunks;
            thunks.get("D3DKMTWaitForSynchronizationObjectFromCpu").copied().unwrap_or(0)
        };
        let before = waits();
        std::thread::scope(|scope| {
            let producer = scope.spawn(|| -> Played {
                for index in taken..ROUNDS {
                    queue.run(|list| list.store(at + index * 8, index + 1))?;
                }
                Ok(())
            });
            // A producer that has looked long enough waits for the progress fence.
            scene.until("a stall", || Ok(waits() > before || producer.is_finished()))?;
            ensure!(!producer.is_finished(), "the ring took everything");
            gate.signal(1)?;
            producer.join().map_err(|_| anyhow::anyhow!("the producer panicked"))?
        })?;
        queue.wait(0, PATIENCE)?;
        ensure!(queue.counters()?.stalls >= 1, "nothing stalled");
        for index in 0..ROUNDS {
            same("memory", memory.read_u64(index * 8)?, index + 1)?;
        }
        Ok(())
    })
}

fn wrap(stage: &Stage) -> Played {
    portable::case(stage, "DB-25", |_| Ok(()))
}

fn bad_pointer(stage: &Stage) -> Played {
    portable::case(stage, "DB-26", |scene| {
        let raw = raw(scene)?;
        let room = Room::new(&raw)?;
        let queues = [RingQueue::connected(scene, &room, 0, 4096)?, RingQueue::connected(scene, &room, 1, 4096)?];
        let idle = RingQueue::new(scene, &room, 0, 4096)?;
        for queue in &queues {
            let progress = queue.submit_through(&[])?;
            queue.wait(scene, progress)?;
        }
        // All of its device is lost, whether it has done anything or not.
        raw.store(queues[0].control.cpu, 1 << 40)?;
        raw.store(queues[0].bell.doorbell, 1 << 40)?;
        scene.until("the end of its device", || Ok(!room.is_active()?))?;
        for queue in queues.iter().chain([&idle]) {
            scene.until("the end of each doorbell", || Ok(queue.status()? == ABORT))?;
        }
        let refused = Err(Denied(STATUS_DEVICE_REMOVED));
        same("another's connection", queues[1].connect(), refused)?;
        let calls = scene.calls("DxgkDdiNotifyWorkSubmission");
        same("a notification", queues[1].notify(), refused)?;
        same("what the driver was told of it", scene.calls("DxgkDdiNotifyWorkSubmission"), calls)?;
        // The device's doorbells are disconnected once more: ABORT stays.
        scene.world.os.put_to_sleep(scene.adapter(), false);
        scene.world.os.wake_up(scene.adapter());
        for queue in queues.iter().chain([&idle]) {
            same("the status behind D3", queue.status()?, ABORT)?;
        }
        Ok(())
    })
}

fn threads(stage: &Stage) -> Played {
    portable::case(stage, "DB-28", |_| Ok(()))
}

fn untold(stage: &Stage) -> Played {
    stage.play(Setup::default().client_errs(), |scene| {
        let raw = raw(scene)?;
        let room = Room::new(&raw)?;
        let queue = RingQueue::connected(scene, &room, 0, 4096)?;
        let progress = queue.record(&[])?;
        queue.publish()?;
        queue.ring()?;
        queue.wait(scene, progress)?;
        // And work that never ends: the OS believes that the queue is idle.
        let fence = raw.native_fence(room.device, 0)?;
        queue.record(&[Encoded::fence_wait(GpuVa(fence.gpu), 1)])?;
        queue.publish()?;
        queue.ring()?;
        same("last queued value", raw.load(queue.bell.last_queued)?, 0)?;
        same("progress", queue.progress()?, progress)?;
        // Another queue of the process tells what it queues.
        let other = RingQueue::connected(scene, &room, 1, 4096)?;
        let last = other.submit_through(&[])?;
        other.wait(scene, last)?;
        let (process, handle) = (raw.process.nt().id(), queue.queue.handle);
        drop(raw);
        let mistake = UserMistake::ProgressAhead { queue: handle, progress, queued: 0 };
        same("faults of user mode", scene.world.os.report().user_faults, vec![UserFault { process, mistake }])
    })
}

fn global(stage: &Stage) -> Played {
    stage.play(Setup::default().setting("DoorbellModel", 1).setting("IdleMilliseconds", 0), |scene| {
        let (one, two) = (raw(scene)?, raw(scene)?);
        let rooms = [Room::new(&one)?, Room::new(&two)?];
        let queues = [
            RingQueue::connected(scene, &rooms[0], 0, 4096)?,
            RingQueue::connected(scene, &rooms[0], 1, 4096)?,
            RingQueue::connected(scene, &rooms[1], 0, 4096)?,
        ];
        for _ in 0..50 {
            let mut wanted = [0; 3];
            for (queue, wanted) in queues.iter().zip(&mut wanted) {
                let (progress, status) = queue.submit(&[])?;
                same("status", status, CONNECTED)?;
                *wanted = progress;
            }
            for (queue, wanted) in queues.iter().zip(wanted) {
                queue.wait(scene, wanted)?;
            }
        }
        same("callbacks", scene.callbacks("DxgkCbDisconnectDoorbell"), 0)
    })?;
    round_robin(stage)
}

/// Four queues of four contexts, all of whose work is published before one of them rings: each has the engine in its
/// turn. Behind each round of a queue the GPU notes how far all are; a round takes as long as a turn.
fn round_robin(stage: &Stage) -> Played {
    const QUEUES: u64 = 4;
    const ROUNDS: u64 = 16;
    /// Bytes of a round's work: as many as a turn has at most.
    const BYTES: u64 = 4 << 20;
    stage.play(Setup::default().setting("DoorbellModel", 1).setting("IdleMilliseconds", 0), |scene| {
        let raw = raw(scene)?;
        let room = Room::new(&raw)?;
        let (words, log) = (room.memory(scene, 4096)?, room.memory(scene, 4096)?);
        let target = room.memory(scene, BYTES)?;
        let queues = (0..QUEUES).map(|_| RingQueue::connected(scene, &room, 0, 4096)).collect::<Result<Vec<_>>>()?;
        // The GPU looks at a queue by itself when it is connected. That is behind it here: with it a queue would begin
        // before the others are published, and have turns alone.
        for queue in &queues {
            let progress = queue.submit_through(&[])?;
            queue.wait(scene, progress)?;
        }
        // A quantum that is over with each turn.
        scene.world.os.set_scheduling(scene.adapter(), &raw.process, |it| it.quantum = 1);
        let row = |queue: u64, round: u64| 8 * QUEUES * (queue * ROUNDS + round - 1);
        let mut last = Vec::new();
        for (queue, number) in queues.iter().zip(0..) {
            for round in 1..=ROUNDS {
                let to = log.gpu + row(number, round);
                let note = Copy { source: words.gpu, destination: to, length: 8 * QUEUES };
                let work = Fill { address: target.gpu, length: BYTES, pattern: 1, reserved: 0 };
                queue.write(store(words.gpu + 8 * number, round).as_bytes())?;
                queue.write(note.to_packet().as_bytes())?;
                queue.write(work.to_packet().as_bytes())?;
            }
            let progress = queue.record(&[])?;
            queue.tell(progress)?;
            queue.publish()?;
            last.push(progress);
        }
        same("status", queues[2].ring()?, CONNECTED)?;
        for (queue, progress) in queues.iter().zip(last) {
            queue.wait(scene, progress)?;
        }
        for (number, round) in (0..QUEUES).flat_map(|number| (1..=ROUNDS).map(move |round| (number, round))) {
            // CAST: below the size of a page.
            let seen = |other: u64| raw.load(log.cpu + (row(number, round) + 8 * other) as usize);
            let rounds = (0..QUEUES).map(seen).collect::<Result<Vec<_>, _>>()?;
            let is_turn = rounds.iter().all(|other| (round - 1..=round + 1).contains(other));
            ensure!(is_turn, "queue {number} begins round {round} while the queues' rounds are {rounds:?}");
        }
        Ok(())
    })
}
