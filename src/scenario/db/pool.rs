//! Physical doorbells between processes: who keeps how many, what a page still holds, and everything at once.

use super::{CONNECTED, MODELS, RETRY, RingQueue, Room, raw};
use crate::scenario::{Played, Scenario, Scene, Setup, Stage, same};
use anyhow::{Context, Result, anyhow, ensure};
use dxgkrnl_model::personality::CallbackFault;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use wddm_abi::ntstatus;

const VICTIM: &str = "User-mode work submission, Victimizing doorbell pseudocode in KMD";

pub(super) const CASES: &[Scenario] = &[
    Scenario {
        id: "DB-39",
        title: "a process may have every doorbell; when another connects, each keeps its share, used or not",
        source: VICTIM,
        play: shared,
    },
    Scenario {
        id: "DB-40",
        title: "a physical doorbell's page holds nothing of its last owner",
        source: VICTIM,
        play: nothing_left,
    },
    Scenario {
        id: "DB-41",
        title: "doorbells are connected, taken, disconnected and destroyed at once: nothing fails, and what was rung \
                for runs",
        source: "DxgkDdiConnectDoorbell, Return value; DxgkDdiDestroyDoorbell; DxgkCbDisconnectDoorbell",
        play: at_once,
    },
    Scenario {
        id: "DB-69",
        title: "a doorbell of several pages: all of them are dummy pages, or the doorbell's, and hold nothing of \
                others",
        source: "DXGK_USERMODESUBMISSION_CAPS, DoorbellSizeInBytes; User-mode work submission, Discovery",
        play: several_pages,
    },
    Scenario {
        id: "DB-74",
        title: "where a rotation is over, nothing is looked for that was not rung: behind the loss of a doorbell, a \
                connection and the end of an old one",
        source: "DxgkCbDisconnectDoorbell; DxgkDdiConnectDoorbell; DxgkDdiDestroyDoorbell",
        play: looks_no_more,
    },
    Scenario {
        id: "DB-84",
        title: "the OS refuses to disconnect a doorbell, by whatever status: its owner has it until the OS agrees",
        source: "DxgkCbDisconnectDoorbell, Return value; User-mode work submission, Victimizing doorbell pseudocode in \
                 KMD",
        play: refused,
    },
];

/// Runs a submission that does nothing, with as many connections as it takes.
fn run(scene: &Scene, queue: &RingQueue) -> Played {
    let (progress, mut status) = queue.submit(&[])?;
    while status == RETRY {
        queue.connect().context("connect")?;
        status = queue.ring()?;
    }
    queue.wait(scene, progress)
}

fn connected<'a>(scene: &Scene, room: &'a Room, count: usize) -> Result<Vec<RingQueue<'a>>> {
    (0..count).map(|_| RingQueue::connected(scene, room, 0, 4096)).collect()
}

fn shared(stage: &Stage) -> Played {
    for (quota, share) in [(0, 2), (3, 1)] {
        let setup = Setup::default().setting("PhysicalDoorbells", 4).setting("DoorbellsPerProcess", quota);
        let setup = setup.setting("IdleMilliseconds", 0);
        stage.play(setup, |scene| shares(scene, share)).with_context(|| format!("DoorbellsPerProcess {quota}"))?;
    }
    Ok(())
}

/// One process has all four doorbells, on two devices. Then another connects as many as are its own from then on:
/// `share`.
fn shares(scene: &Scene, share: usize) -> Played {
    let (greedy, modest) = (raw(scene)?, raw(scene)?);
    let (first, second, modest) = (Room::new(&greedy)?, Room::new(&greedy)?, Room::new(&modest)?);
    let mut many = connected(scene, &first, 2)?;
    many.extend(connected(scene, &second, 2)?);
    same("doorbells taken from a process that is alone", scene.callbacks("DxgkCbDisconnectDoorbell"), 0)?;
    let few = connected(scene, &modest, share)?;
    let more = connected(scene, &first, 2)?;
    // The second process does nothing: its doorbells are the least recently used of all.
    for _ in 0..10 {
        many.iter().chain(&more).try_for_each(|queue| run(scene, queue))?;
    }
    for queue in &few {
        same("the doorbell of a process within its share", queue.status()?, CONNECTED)?;
        run(scene, queue)?;
    }
    Ok(())
}

/// One doorbell for two queues. The first time the OS keeps its owner's connection; by STATUS_INVALID_PARAMETER as
/// well, which says of a doorbell that is being destroyed that it is gone, and of no other.
fn refused(stage: &Stage) -> Played {
    for status in [ntstatus::STATUS_INVALID_PARAMETER, ntstatus::STATUS_UNSUCCESSFUL] {
        let setup = Setup::default().setting("PhysicalDoorbells", 1).setting("IdleMilliseconds", 0);
        let fault = CallbackFault::of("DxgkCbDisconnectDoorbell", 1..=1, status);
        let setup = setup.windows(|windows| windows.faults.callbacks.push(fault.clone()));
        stage.play(setup, kept_once).with_context(|| format!("{status:?}"))?;
    }
    Ok(())
}

fn kept_once(scene: &Scene) -> Played {
    let raw = raw(scene)?;
    let room = Room::new(&raw)?;
    let first = RingQueue::connected(scene, &room, 0, 4096)?;
    let second = RingQueue::connected(scene, &room, 0, 4096)?;
    same("calls that ask for a doorbell", scene.callbacks("DxgkCbDisconnectDoorbell"), 2)?;
    same("the first one's status", first.status()?, RETRY)?;
    [&second, &first].into_iter().try_for_each(|queue| run(scene, queue))
}

fn nothing_left(stage: &Stage) -> Played {
    stage.play(Setup::default().setting("PhysicalDoorbells", 1), |scene| {
        let (one, two) = (raw(scene)?, raw(scene)?);
        let (room, other) = (Room::new(&one)?, Room::new(&two)?);
        let first = RingQueue::connected(scene, &room, 0, 4096)?;
        let words = (0..4096).step_by(8);
        words.clone().try_for_each(|at| one.store(first.bell.doorbell + at, 0x5EC2E7))?;
        let second = RingQueue::connected(scene, &other, 0, 4096)?;
        same("the first's status", first.status()?, RETRY)?;
        for at in words {
            same("what another process had stored in the page", two.load(second.bell.doorbell + at)?, 0)?;
        }
        run(scene, &second)
    })
}

fn several_pages(stage: &Stage) -> Played {
    for model in MODELS {
        for pages in 1..=4 {
            let setup = Setup::default().setting("DoorbellModel", model).setting("DoorbellPages", pages);
            let setup = setup.setting("PhysicalDoorbells", 2).setting("IdleMilliseconds", 0);
            let play = |scene: &Scene| of_pages(scene, model, pages as usize);
            stage.play(setup, play).with_context(|| format!("DoorbellModel {model}, DoorbellPages {pages}"))?;
        }
    }
    Ok(())
}

/// The pages that a doorbell leads to, which must be `count` consecutive ones of one object.
fn led_to(scene: &Scene, queue: &RingQueue, count: usize) -> Result<Vec<(u64, usize)>> {
    let page = |number: usize| {
        let found = scene.world.os.kernel().page_at(queue.bell.doorbell + number * 4096);
        found.map(|(object, index, _)| (object.id(), index))
    };
    let (object, first) = page(0).context("nothing is mapped at a doorbell's address")?;
    let run: Vec<_> = (0..count).map_while(page).collect();
    same("the pages of a doorbell", &run, &(0..count).map(|number| (object, first + number)).collect())?;
    Ok(run)
}

fn of_pages(scene: &Scene, model: u32, count: usize) -> Played {
    let caps = scene.adapter().caps().context("caps")?.user_mode.context("user-mode submission caps")?;
    same("DoorbellSizeInBytes", caps.DoorbellSizeInBytes as usize, count * 4096)?;
    let (one, two) = (raw(scene)?, raw(scene)?);
    let (room, other) = (Room::new(&one)?, Room::new(&two)?);
    let first = RingQueue::new(scene, &room, 0, 4096)?;
    let words = || (0..count * 4096).step_by(8);
    let dummies = led_to(scene, &first, count)?;
    // Harmless: it lands in the dummy pages, of which nothing comes into the doorbell.
    words().try_for_each(|at| one.store(first.bell.doorbell + at, 0xD0))?;
    first.connect()?;
    let pages = led_to(scene, &first, count)?;
    ensure!(!pages.iter().any(|page| dummies.contains(page)), "dummy pages are a doorbell: {pages:?}");
    for at in words() {
        same("a word of the physical doorbell's pages", one.load(first.bell.doorbell + at)?, 0)?;
    }
    let second = RingQueue::connected(scene, &other, 0, 4096)?;
    let others = led_to(scene, &second, count)?;
    match model {
        0 => ensure!(!others.iter().any(|page| pages.contains(page)), "dedicated: {pages:?} and {others:?}"),
        _ => same("global: the pages of both", &others, &pages)?,
    }
    // Only the first word is rung: nothing looks at the others.
    words().skip(1).try_for_each(|at| one.store(first.bell.doorbell + at, 0x5EC2E7))?;
    for queue in [&first, &second] {
        run(scene, queue)?;
    }
    if model == 0 {
        // Another process gets the doorbell of the one that ran longest ago.
        let three = raw(scene)?;
        let last = Room::new(&three)?;
        let third = RingQueue::connected(scene, &last, 0, 4096)?;
        same("the first's status", first.status()?, RETRY)?;
        same("the pages that the first has again", &led_to(scene, &first, count)?, &dummies)?;
        same("the pages that the third has", &led_to(scene, &third, count)?, &pages)?;
        for at in words() {
            let left = three.load(third.bell.doorbell + at)?;
            same(&format!("what another process had stored at {at:#x} of the pages"), left, 0)?;
        }
        run(scene, &third)?;
    }
    run(scene, &first)
}

fn at_once(stage: &Stage) -> Played {
    for physical in [1, 2, 3] {
        let setup = Setup::default().setting("PhysicalDoorbells", physical);
        stage.play(setup, crowd).with_context(|| format!("{physical} physical doorbells"))?;
    }
    Ok(())
}

/// Threads that make, use and destroy doorbells, while the OS disconnects all of them again and again.
fn crowd(scene: &Scene) -> Played {
    const THREADS: usize = 4;
    let ended = AtomicUsize::new(0);
    let using = |node| -> Played {
        let raw = raw(scene)?;
        let room = Room::new(&raw)?;
        let kept = RingQueue::new(scene, &room, node, 4096)?;
        for _ in 0..15 {
            run(scene, &kept)?;
            let gone = RingQueue::connected(scene, &room, node, 4096)?;
            run(scene, &gone)?;
            // Connected still, unless another thread is taking it or the OS has disconnected it.
            gone.destroy_bell().context("destroy")?;
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let threads: [_; THREADS] = core::array::from_fn(|index| {
            let (using, ended) = (&using, &ended);
            scope.spawn(move || {
                let played = using(index as u32 % 2);
                ended.fetch_add(1, Ordering::SeqCst);
                played
            })
        });
        while ended.load(Ordering::SeqCst) < THREADS {
            scene.world.os.disconnect_doorbells(scene.adapter(), false);
            std::thread::park_timeout(Duration::from_micros(300));
        }
        threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| anyhow!("a thread ended by itself"))?)
    })
}

/// What is published and not rung is not run, while another queue of the node is. Then it is rung.
fn looked_at_when_rung(scene: &Scene, queue: &RingQueue, other: &RingQueue) -> Played {
    run(scene, other)?;
    let progress = queue.record(&[])?;
    queue.tell(progress)?;
    queue.publish()?;
    for _ in 0..5 {
        std::thread::park_timeout(Duration::from_millis(10));
        run(scene, other)?;
        same("progress of what was not rung", queue.progress()?, progress - 1)?;
    }
    if queue.ring()? == RETRY {
        queue.connect().context("connect")?;
    }
    queue.wait(scene, progress)
}

fn looks_no_more(stage: &Stage) -> Played {
    let setup = |doorbells| Setup::default().setting("PhysicalDoorbells", doorbells).setting("IdleMilliseconds", 0);
    // The driver takes a page away of which it did not know whether the OS has rotated it.
    stage.play(setup(1), |scene| {
        let (one, two) = (raw(scene)?, raw(scene)?);
        let (room, beside) = (Room::new(&one)?, Room::new(&two)?);
        let queue = RingQueue::connected(scene, &room, 0, 4096)?;
        run(scene, &queue)?;
        scene.world.os.disconnect_doorbells(scene.adapter(), false);
        let other = RingQueue::connected(scene, &beside, 0, 4096)?;
        looked_at_when_rung(scene, &queue, &other)
    })?;
    // A connection shows that it has.
    stage.play(setup(4), |scene| {
        let raw = raw(scene)?;
        let room = Room::new(&raw)?;
        let (queue, other) =
            (RingQueue::connected(scene, &room, 0, 4096)?, RingQueue::connected(scene, &room, 0, 4096)?);
        run(scene, &queue)?;
        scene.world.os.disconnect_doorbells(scene.adapter(), false);
        queue.connect().context("connect")?;
        looked_at_when_rung(scene, &queue, &other)
    })?;
    // So does the end of the doorbell, beside which there is another one.
    stage.play(setup(4), |scene| {
        let raw = raw(scene)?;
        let room = Room::new(&raw)?;
        let (old, other) = (RingQueue::connected(scene, &room, 0, 4096)?, RingQueue::connected(scene, &room, 0, 4096)?);
        run(scene, &old)?;
        let queue = old.resized(scene, 8192)?;
        queue.connect().context("connect")?;
        old.destroy_bell()?;
        looked_at_when_rung(scene, &queue, &other)
    })
}
