//! What a submission costs, whom the last queued value can keep waiting, and which page a doorbell leads to.

use super::{CONNECTED, MODELS, NOTIFY, RETRY, RingQueue, Room, raw, store};
use crate::scenario::rig::{Rig, until_idle};
use crate::scenario::te::in_time::{Watch, in_time};
use crate::scenario::{Played, Scenario, Scene, Setup, Stage, same};
use anyhow::{Context, Result, ensure};
use dxgkrnl_model::personality::SchedulingLogs;
use dxgkrnl_model::process::End;
use gpu_wire::GpuVa;
use gpu_wire::packet::{Encoded, Indirect};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

pub(super) const CASES: &[Scenario] = &[
    Scenario {
        id: "DB-61",
        title: "a thousand submissions call no function of the driver, no thunk and no callback, and interrupt nobody",
        source: "User-mode work submission, introduction; User-mode work submission APIs",
        play: hot_path,
    },
    Scenario {
        id: "DB-62",
        title: "a last queued value that is never reached keeps nobody waiting: the queue's end, the device's, the \
                process's",
        source: "User-mode work submission, Normal process termination; D3DKMTDestroyHwQueue",
        play: never_reached,
    },
    Scenario {
        id: "DB-76",
        title: "the end of a queue waits for work that goes on, for longer than TdrDelay in all, and the end of a \
                device for a queue that waits for another one meanwhile",
        source: "User-mode work submission, Normal process termination",
        play: goes_on,
    },
    Scenario {
        id: "DB-66",
        title: "global: all doorbells lead to one page; dedicated: each to one of its own; disconnected: to neither",
        source: "User-mode work submission, Doorbells; Victimizing doorbell pseudocode in KMD",
        play: pages,
    },
];

/// Submissions of which each call is counted.
const MANY: u64 = 1000;

/// Everything that a submission could have called.
type Calls = [BTreeMap<&'static str, u64>; 3];

fn calls(scene: &Scene) -> Calls {
    let adapter = scene.adapter();
    // An interrupt has the driver call back.
    [adapter.ddi_calls(), adapter.callback_calls(), scene.world.os.counts().thunks]
}

fn hot_path(stage: &Stage) -> Played {
    for model in MODELS {
        // A scheduling log interrupts when it is half full, by whom it may be filled.
        let setup = Setup::default().setting("DoorbellModel", model).setting("IdleMilliseconds", 0);
        let setup = setup.windows(|windows| windows.scheduling_logs = SchedulingLogs::None);
        let play = |scene: &Scene| {
            let raw = raw(scene)?;
            let room = Room::new(&raw)?;
            let memory = room.memory(scene, 4096)?;
            let queue = RingQueue::connected(scene, &room, 0, 4096)?;
            let rig = Rig::open(scene, "client")?;
            let (driver, page) = (rig.queue(1)?, rig.page()?);
            // The first submission of the user-mode driver connects.
            driver.run(|list| list.store(page.at(0), 1))?;
            until_idle(scene, &driver)?;
            let before = calls(scene);
            for value in 1..=MANY {
                let (progress, status) = queue.submit(&[store(memory.gpu, value)])?;
                same("status", status, CONNECTED)?;
                scene.until_now("progress", || Ok(queue.progress()? >= progress))?;
                driver.run(|list| list.store(page.at(0), value))?;
                until_idle(scene, &driver)?;
            }
            for (before, now) in before.iter().zip(calls(scene)) {
                let new: Vec<_> = now.iter().filter(|(name, count)| before.get(*name) != Some(count)).collect();
                ensure!(new.is_empty(), "called by {MANY} submissions: {new:?}");
            }
            same("memory", (raw.load(memory.cpu)?, page.word(0)?), (MANY, MANY))
        };
        stage.play(setup, play).with_context(|| format!("DoorbellModel {model}"))?;
    }
    Ok(())
}

/// TdrDelays for which an end takes at most whose queues stand still: two, and what the end itself takes. A queue is
/// given up once.
const STILL: u32 = 4;
/// The same of an end whose queue moves for ever: the model waits for 30 in all.
const BOUND: u32 = 34;
/// Queues of a process that ends.
const ENDING: usize = 20;

/// Checks that an end that began at `begun` took less than so many TdrDelays.
fn ends_within(begun: Instant, watch: &Watch, delays: u32, what: &str) -> Played {
    let (took, bound) = (begun.elapsed(), delays * watch.delay);
    ensure!(took < bound, "the end of {what} took {took:?}, and {bound:?} is the bound");
    Ok(())
}

/// Makes the progress of a queue change between 1 and 2 for ever.
fn move_for_ever(scene: &Scene, room: &Room<'_>, queue: &RingQueue<'_>) -> Played {
    let code = room.memory(scene, 4096)?;
    let moves = [1, 2].map(|value| Encoded::fence_signal(GpuVa(queue.queue.progress.gpu), value));
    let moves = moves.iter().flat_map(|packet| packet.as_bytes().to_vec()).collect::<Vec<_>>();
    let jump = Indirect { address: code.gpu, length: moves.len() as u64 + 24 }.to_packet();
    code.write(room.raw, 0, &[moves.as_slice(), jump.as_bytes()].concat())?;
    queue.write(jump.as_bytes())?;
    queue.publish()?;
    queue.ring()?;
    scene.until("a progress that moves", || Ok(queue.progress()? == 2))
}

fn never_reached(stage: &Stage) -> Played {
    for value in [2, 1 << 63, u64::MAX - 1, u64::MAX] {
        let play = |scene: &Scene, watch: &Watch| {
            let good = raw(scene)?;
            let beside = Room::new(&good)?;
            let other = RingQueue::connected(scene, &beside, 0, 4096)?;
            let bad = raw(scene)?;
            let rooms = [Room::new(&bad)?, Room::new(&bad)?, Room::new(&bad)?];
            let queues: Vec<_> =
                rooms.iter().map(|room| RingQueue::connected(scene, room, 0, 4096)).collect::<Result<_>>()?;
            for queue in &queues {
                let progress = queue.submit_through(&[])?;
                queue.wait(scene, progress)?;
                queue.tell(value)?;
            }
            let begun = Instant::now();
            rooms[0].destroy_queue(queues[0].queue.handle).context("the queue")?;
            ends_within(begun, watch, STILL, "the queue")?;
            let progress = other.submit_through(&[])?;
            other.wait(scene, progress)?;
            let begun = Instant::now();
            bad.destroy_device(rooms[1].device).context("the device")?;
            ends_within(begun, watch, STILL, "the device")?;
            drop(queues);
            // Many, so that their ends would add up. Of one of the values, the last one's progress moves for ever.
            let many: Vec<_> =
                (0..ENDING).map(|_| RingQueue::connected(scene, &rooms[2], 0, 4096)).collect::<Result<_>>()?;
            many.iter().try_for_each(|queue| queue.tell(value))?;
            let moves = value == u64::MAX;
            if moves {
                move_for_ever(scene, &rooms[2], &many[ENDING - 1])?;
            }
            drop(many);
            let order = ["DxgkDdiSuspendContext", "DxgkDdiDestroyHwQueue"];
            let from = scene.journal(&order).len();
            let begun = Instant::now();
            Arc::into_inner(bad.process).context("another owner of the process")?.end(End::Normal);
            ends_within(begun, watch, if moves { BOUND } else { STILL }, "the process")?;
            // What is not done is taken off the engine before it is destroyed.
            same("the first call of the end", scene.journal(&order).get(from).copied(), Some(order[0]))?;
            let progress = other.submit_through(&[])?;
            other.wait(scene, progress)
        };
        in_time(stage, || Setup::default().quick_tdr(), play)
            .with_context(|| format!("last queued value {value:#x}"))?;
    }
    Ok(())
}

/// The page that a process has at an address: the object's number, and the page's in it.
fn page(scene: &Scene, address: usize) -> Result<(u64, usize)> {
    let (object, index, _) = scene.world.os.kernel().page_at(address).context("nothing is mapped there")?;
    Ok((object.id(), index))
}

fn pages(stage: &Stage) -> Played {
    for model in MODELS {
        let setup = Setup::default().setting("DoorbellModel", model).setting("IdleMilliseconds", 0);
        let play = |scene: &Scene| {
            let (one, two) = (raw(scene)?, raw(scene)?);
            let rooms = [Room::new(&one)?, Room::new(&one)?, Room::new(&two)?];
            let mut queues = Vec::new();
            for (room, node) in rooms.iter().zip([0, 1, 0]) {
                queues.push(RingQueue::new(scene, room, node, 4096)?);
            }
            // What a ring of the global doorbell names a queue by.
            let tokens: Vec<_> = queues.iter().map(|queue| queue.bell.token).collect();
            let are_names = tokens.iter().all(|token| tokens.iter().filter(|other| *other == token).count() == 1);
            ensure!(are_names && !tokens.contains(&0), "queues are called {tokens:?}");
            let dummies: Vec<_> = queues.iter().map(|queue| page(scene, queue.bell.doorbell)).collect::<Result<_>>()?;
            queues.iter().try_for_each(RingQueue::connect)?;
            let shown = || -> Result<Vec<_>> { queues.iter().map(|queue| page(scene, queue.bell.doorbell)).collect() };
            let connected = shown()?;
            let [first, second, third] = connected[..] else { anyhow::bail!("{connected:?}") };
            match model {
                0 => ensure!(first != second && second != third && first != third, "dedicated: {connected:?}"),
                _ => ensure!(first == second && second == third, "global: {connected:?}"),
            }
            ensure!(connected.iter().all(|page| !dummies.contains(page)), "a dummy page is a doorbell: {connected:?}");
            for queue in &queues {
                let progress = queue.submit_through(&[])?;
                queue.wait(scene, progress)?;
                ensure!(matches!(queue.status()?, CONNECTED | NOTIFY), "a doorbell was taken away");
            }
            scene.world.os.disconnect_doorbells(scene.adapter(), false);
            same("statuses", queues.iter().map(RingQueue::status).collect::<Result<Vec<_>>>()?, vec![RETRY; 3])?;
            same("pages of disconnected doorbells", shown()?, dummies)
        };
        stage.play(setup, play).with_context(|| format!("DoorbellModel {model}"))?;
    }
    Ok(())
}

/// Work that takes twice TdrDelay, and shows progress ten times in each: of a queue that ends by itself, and of a
/// device that ends, in which another queue waits for the end of that work and for half a TdrDelay more. The end of a
/// device waits for its queues in the order in which they were made.
fn goes_on(stage: &Stage) -> Played {
    work_goes_on(stage, None).context("the queue")?;
    for waits_first in [false, true] {
        work_goes_on(stage, Some(waits_first))
            .with_context(|| format!("the device, whose first waits: {waits_first}"))?;
    }
    Ok(())
}

/// `waits_first`: the device ends, and the queue that waits for the other one was made first; `None`: the queue ends.
fn work_goes_on(stage: &Stage, waits_first: Option<bool>) -> Played {
    const STEPS: u64 = 20;
    in_time(stage, Setup::default, |scene, watch| {
        let raw = raw(scene)?;
        // What outlives the device.
        let (room, kept) = (Room::new(&raw)?, Room::new(&raw)?);
        let (gate, ended) = (raw.native_fence(kept.device, 0)?, raw.native_fence(kept.device, 0)?);
        let memory = kept.memory(scene, 4096)?;
        let first = RingQueue::connected(scene, &room, 0, 8192)?;
        let second = RingQueue::connected(scene, &room, 1, 8192)?;
        let (works, waits) = if waits_first == Some(true) { (&second, &first) } else { (&first, &second) };
        watch.begin();
        for step in 1..=STEPS {
            works.submit_through(&[Encoded::fence_wait(GpuVa(gate.gpu), step), store(memory.gpu, step)])?;
        }
        works.submit_through(&[Encoded::fence_signal(GpuVa(ended.gpu), 1)])?;
        let last = Encoded::fence_wait(GpuVa(gate.gpu), STEPS + 1);
        waits.submit_through(&[Encoded::fence_wait(GpuVa(ended.gpu), 1), last, store(memory.gpu + 8, 1)])?;
        let handle = works.queue.handle;
        std::thread::scope(|scope| -> Played {
            let end = scope.spawn(|| match waits_first {
                None => room.destroy_queue(handle).context("the queue"),
                Some(_) => raw.destroy_device(room.device).context("the device"),
            });
            for step in 1..=STEPS + 1 {
                let pause = if step > STEPS { watch.delay / 2 } else { watch.delay / 10 };
                std::thread::park_timeout(pause);
                raw.signal_cpu(kept.device, &[(gate.handle, step)])?;
                watch.end();
                watch.begin();
            }
            end.join().map_err(|_| anyhow::anyhow!("the thread of the end ended by itself"))?
        })?;
        same("how far it came", raw.load(memory.cpu)?, STEPS)?;
        if waits_first.is_some() {
            same("the work that waited", raw.load(memory.cpu + 8)?, 1)?;
        }
        Ok(())
    })
}
