//! What a submission costs, whom the last queued value can keep waiting, and which page a doorbell leads to.

use super::{CONNECTED, MODELS, NOTIFY, RETRY, RingQueue, Room, raw, store};
use crate::scenario::client::{Client, until_idle};
use crate::scenario::stuck::Stuck;
use crate::scenario::te::in_time::{Watch, in_time};
use crate::scenario::{Played, Scenario, Scene, Setup, Stage, same};
use anyhow::{Context, Result, ensure};
use dxgkrnl_model::personality::{SECOND, SchedulingLogs};
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
        title: "a last queued value that is never reached keeps nobody waiting: the queue's end, the context's, the \
                device's, the process's",
        source: "User-mode work submission, Normal process termination; D3DKMTDestroyHwQueue",
        play: never_reached,
    },
    Scenario {
        id: "DB-76",
        title: "the end of a queue waits for work that goes on, for longer than TdrDelay in all, and the end of a \
                context or device for a queue that waits for another one meanwhile",
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
            let rig = Client::open(scene, "client")?;
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
/// Queues of a context, or a process, that ends.
const ENDING: usize = 20;
/// Devices of a process that ends.
const DEVICES: usize = 5;

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

/// While the work of one queue is waited for, the doorbells of the process's other devices are gone.
fn all_disconnected(stage: &Stage) -> Played {
    let setup = Setup::default().setting("IdleMilliseconds", 0).windows(|windows| windows.tdr.delay = 120 * SECOND);
    stage.play(setup, |scene| {
        let raw = raw(scene)?;
        let rooms = [Room::new(&raw)?, Room::new(&raw)?, Room::new(&raw)?];
        let memory = rooms[0].memory(scene, 4096)?;
        let queues: Vec<_> =
            rooms.iter().map(|room| RingQueue::connected(scene, room, 0, 4096)).collect::<Result<_>>()?;
        let stuck = Stuck::new(scene);
        queues[0].submit_through(&[store(memory.gpu, 1)])?;
        scene.until("an engine that maps the page of a store", || Ok(stuck.has_come()))?;
        drop(queues);
        let process = Arc::into_inner(raw.process).context("another owner of the process")?;
        let connected = || scene.world.os.connected_doorbells(scene.adapter());
        same("connected doorbells", connected(), 3)?;
        std::thread::scope(|scope| {
            let end = scope.spawn(|| process.end(End::Normal));
            let all = scene.until("the doorbells' end", || Ok(connected() == 0));
            let all = all.and_then(|()| same("an end behind work that is not done", end.is_finished(), false));
            stuck.let_go();
            end.join().map_err(|_| anyhow::anyhow!("the thread of the end ended by itself"))?;
            all
        })
    })
}

fn never_reached(stage: &Stage) -> Played {
    all_disconnected(stage).context("the doorbells of all devices")?;
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
            // Many in one context, so that their ends would add up.
            let context = rooms[2].context(0)?;
            let many: Vec<_> = (0..ENDING)
                .map(|_| RingQueue::on(scene, &rooms[2], rooms[2].queue_in(context, true)?, 4096))
                .collect::<Result<_>>()?;
            for queue in &many {
                queue.connect()?;
                queue.tell(value)?;
            }
            drop(many);
            let begun = Instant::now();
            rooms[2].destroy_context(context).context("the context")?;
            ends_within(begun, watch, STILL, "the context")?;
            // Many of several devices. Of one of the values, the last one's progress moves for ever.
            let devices: Vec<_> = (0..DEVICES).map(|_| Room::new(&bad)).collect::<Result<_>>()?;
            let many: Vec<_> = (0..ENDING)
                .map(|number| RingQueue::connected(scene, &devices[number * DEVICES / ENDING], 0, 4096))
                .collect::<Result<_>>()?;
            many.iter().try_for_each(|queue| queue.tell(value))?;
            let moves = value == u64::MAX;
            if moves {
                move_for_ever(scene, &devices[DEVICES - 1], &many[ENDING - 1])?;
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

/// What ends while work goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ends {
    Queue,
    /// A context with both queues, of which the one that waits was made first.
    Context,
    /// A device with both queues, each on a node of its own.
    Device {
        /// The queue that waits for the other one was made first.
        waits_first: bool,
    },
}

/// Work that takes twice TdrDelay, and shows progress ten times in each: of a queue that ends by itself, and of a
/// context and a device that end, in which another queue waits for the end of that work and for half a TdrDelay more.
/// Queues are waited for in the order in which they were made.
fn goes_on(stage: &Stage) -> Played {
    let all = [Ends::Queue, Ends::Context, Ends::Device { waits_first: false }, Ends::Device { waits_first: true }];
    all.into_iter().try_for_each(|ends| work_goes_on(stage, ends).with_context(|| format!("{ends:?}")))
}

fn work_goes_on(stage: &Stage, ends: Ends) -> Played {
    const STEPS: u64 = 20;
    in_time(stage, Setup::default, |scene, watch| {
        let raw = raw(scene)?;
        // What outlives the device.
        let (room, kept) = (Room::new(&raw)?, Room::new(&raw)?);
        let (gate, ended) = (raw.native_fence(kept.device, 0)?, raw.native_fence(kept.device, 0)?);
        let memory = kept.memory(scene, 4096)?;
        let context = room.context(0)?;
        let other = if ends == Ends::Context { context } else { room.context(1)? };
        let made = |context| RingQueue::on(scene, &room, room.queue_in(context, true)?, 8192);
        let (first, second) = (made(context)?, made(other)?);
        [&first, &second].into_iter().try_for_each(RingQueue::connect)?;
        let waits_first = matches!(ends, Ends::Context | Ends::Device { waits_first: true });
        let (works, waits) = if waits_first { (&second, &first) } else { (&first, &second) };
        watch.begin();
        for step in 1..=STEPS {
            works.submit_through(&[Encoded::fence_wait(GpuVa(gate.gpu), step), store(memory.gpu, step)])?;
        }
        works.submit_through(&[Encoded::fence_signal(GpuVa(ended.gpu), 1)])?;
        let last = Encoded::fence_wait(GpuVa(gate.gpu), STEPS + 1);
        waits.submit_through(&[Encoded::fence_wait(GpuVa(ended.gpu), 1), last, store(memory.gpu + 8, 1)])?;
        let handle = works.queue.handle;
        std::thread::scope(|scope| -> Played {
            let end = scope.spawn(|| match ends {
                Ends::Queue => room.destroy_queue(handle).context("the queue"),
                Ends::Context => room.destroy_context(context).context("the context"),
                Ends::Device { .. } => raw.destroy_device(room.device).context("the device"),
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
        if ends != Ends::Queue {
            same("the work that waited", raw.load(memory.cpu + 8)?, 1)?;
        }
        Ok(())
    })
}
