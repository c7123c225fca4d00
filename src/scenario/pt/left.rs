//! What a process leaves behind in the driver, when it destroys nothing.

use super::{Held, Neighbour};
use crate::decode::decode;
use crate::scenario::client::{Client, PATIENCE};
use crate::scenario::db::{RingQueue, Room, raw, store};
use crate::scenario::st::Worker;
use crate::scenario::{Played, Scenario, Scene, Setup, Stage, same};
use anyhow::{Context, Result, ensure};
use dxgkrnl_model::process::{End, Process};
use std::sync::Arc;
use umd_core::ffi::types::{FP_KIND_LOCAL, FP_KIND_SYSTEM, FP_QUEUE_KERNEL_MODE};
use wddm_abi::ntstatus::STATUS_SUCCESS;
use wddm_abi::{DRIVER_INITIALIZATION_DATA, DXGKARG_DESTROYDOORBELL, HANDLE, NTSTATUS};

pub(super) const CASES: &[Scenario] = &[
    Scenario {
        id: "PT-43",
        title: "a process leaves everything open: the driver's objects are as many as before, and so are the pages",
        source: "User-mode work submission, Normal and abnormal process termination; DxgkDdiDestroyDevice",
        play: everything_open,
    },
    Scenario {
        id: "PT-41",
        title: "a rude exit: the device is destroyed before its contexts and allocations are, nothing is waited for, and \
                others run on",
        source: "DxgkDdiDestroyDevice",
        play: rude,
    },
];

/// How many objects of each kind the driver has, as its debug information says.
pub(in crate::scenario) fn census(scene: &Scene) -> Result<Vec<String>> {
    scene.world.os.collect_debug_info(scene.adapter());
    let text = decode(&scene.adapter().debug_info())?.text;
    let lines = text.lines().skip_while(|line| line.trim() != "objects").skip(1);
    let counts: Vec<_> = lines.take_while(|line| !line.trim().is_empty()).map(str::to_owned).collect();
    ensure!(counts.len() >= 8, "the debug information has no objects: {counts:?}");
    Ok(counts)
}

/// Ends a process that nothing else has.
fn end(process: Arc<Process>, how: End) -> Played {
    Arc::into_inner(process).context("another owner of the process").map(|process| process.end(how))
}

/// Two devices with everything that a process can make, used and unused.
fn fill(scene: &Scene, how: End) -> Played {
    let raw = raw(scene)?;
    let rooms = [Room::new(&raw)?, Room::new(&raw)?];
    let mut queues = Vec::new();
    for room in &rooms {
        let used = RingQueue::connected(scene, room, 0, 4096)?;
        let progress = used.submit_through(&[])?;
        used.wait(scene, progress)?;
        queues.extend([used, RingQueue::new(scene, room, 1, 4096)?]);
        room.queue(1, false).context("a kernel-mode queue")?;
        room.context(0).context("a context without a queue")?;
        raw.native_fence(room.device, 3).context("a native fence")?;
        raw.monitored_fence(room.device, 3, false).context("a monitored fence")?;
    }
    // A ring that is destroyed, and an allocation that is evicted.
    rooms[0].destroy(queues[0].ring.handle)?;
    rooms[1].evict(queues[1].control.handle).or_else(|_| rooms[0].evict(queues[1].control.handle))?;
    drop(queues);
    end(raw.process, how)
}

/// The same by way of the user-mode driver, whose objects are never destroyed.
fn forget(scene: &Scene, how: End) -> Played {
    let rig = Client::open(scene, "forgets")?;
    let (user, kernel) = (rig.queue(0)?, rig.device.queue(1, 64 << 10, FP_QUEUE_KERNEL_MODE, 0)?);
    let page = rig.page()?;
    for queue in [&user, &kernel] {
        let progress = queue.run(|list| list.store(page.at(0), 1))?;
        queue.wait(progress, Some(PATIENCE))?;
    }
    let shared = rig.device.shared_fence(0)?;
    shared.share()?;
    rig.device.allocate_shared(FP_KIND_SYSTEM, 4096)?.share()?;
    let local = rig.device.allocate(FP_KIND_LOCAL, 64 << 10, 0)?;
    let process = rig.user.process.clone();
    std::mem::forget((user, kernel, page, shared, local));
    // What was forgotten keeps the process's value alive, and not the process.
    drop(rig);
    process.finish(how);
    Ok(())
}

fn everything_open(stage: &Stage) -> Played {
    stage.play(Setup::default(), |scene| {
        // The first process of a machine leaves pools that later ones use.
        for how in [End::Normal, End::Terminated] {
            fill(scene, how)?;
            forget(scene, how)?;
        }
        let (before, pages) = (census(scene)?, scene.world.os.kernel().page_objects().len());
        for round in 0..5 {
            for how in [End::Normal, End::Terminated] {
                fill(scene, how)?;
                forget(scene, how)?;
                same(&format!("objects behind round {round}, {how:?}"), census(scene)?, before.clone())?;
            }
        }
        // Twenty processes: a page that each leaves would be seen beside what pools grow by. What `forget` forgets
        // keeps the library's image of its process, where there is one.
        let images = if stage.is_native() { 0 } else { 10 };
        let after = scene.world.os.kernel().page_objects().len();
        ensure!(after <= pages + images + 5, "{pages} pieces of memory became {after}");
        Ok(())
    })
}

crate::decorate! {
    /// The driver hears nothing of it.
    keeps_doorbell: DxgkDdiDestroyDoorbell(_args: *mut DXGKARG_DESTROYDOORBELL) -> NTSTATUS {
        STATUS_SUCCESS
    }

    /// As above.
    keeps_queue: DxgkDdiDestroyHwQueue(_queue: HANDLE) -> NTSTATUS {
        STATUS_SUCCESS
    }
}

/// Nobody destroys doorbells and queues: they go with their device.
fn keeps_users(table: &mut DRIVER_INITIALIZATION_DATA) {
    keeps_doorbell(table);
    keeps_queue(table);
}

/// Queues and doorbells, connected and not, of which nothing but the destruction of their device tells the driver. The
/// physical doorbell that one of them had is there for the next.
fn run_down(stage: &Stage) -> Played {
    let setup =
        Setup::default().setting("PhysicalDoorbells", 1).setting("IdleMilliseconds", 0).with_driver(keeps_users);
    stage.play(setup, |scene| {
        let before = census(scene)?;
        for round in 0..4 {
            let raw = raw(scene)?;
            let room = Room::new(&raw)?;
            let queue = RingQueue::connected(scene, &room, 0, 4096)?;
            let _other = RingQueue::new(scene, &room, 1, 4096)?;
            let progress = queue.submit_through(&[])?;
            queue.wait(scene, progress)?;
            let how = if round % 2 == 0 { End::Terminated } else { End::Normal };
            end(raw.process, how)?;
            same("objects", census(scene)?, before.clone())?;
        }
        same("doorbells that were taken from a queue", scene.callbacks("DxgkCbDisconnectDoorbell"), 0)
    })
}

/// The same end of a client that is a Linux process of its own, which SIGKILL ends at work.
fn rude_to_another(scene: &Scene) -> Played {
    let mut neighbour = Neighbour::new(scene, 0)?;
    let names = ["DxgkDdiDestroyContext", "DxgkDdiDestroyDevice", "DxgkDdiCloseAllocation"];
    let before = Held::now(scene)?;
    let client = scene.world.separate("busy")?;
    client.expect("busy")?;
    let begun = scene.journal(&names).len();
    client.kill();
    let mut calls = scene.journal(&names).split_off(begun);
    calls.dedup();
    same("what the driver was told of", calls, vec![names[1], names[2]])?;
    before.until_again(scene, 64)?;
    neighbour.job(scene)
}

fn rude(stage: &Stage) -> Played {
    let setup = super::setup().setting("MaxRung", 0).windows(|windows| windows.ends_rudely = true);
    stage.play(setup, rude_to_another).context("another Linux process")?;
    if stage.rung() == 3 {
        run_down(stage).context("queues and doorbells that nobody destroys")?;
    }
    let setup = Setup::default().windows(|windows| windows.ends_rudely = true);
    stage.play(setup, |scene| {
        let good = Client::open(scene, "runs on")?;
        let (queue, page) = (good.device.queue(0, 64 << 10, FP_QUEUE_KERNEL_MODE, 0)?, good.page()?);
        let names = ["DxgkDdiDestroyContext", "DxgkDdiDestroyDevice", "DxgkDdiCloseAllocation"];
        let before = census(scene)?;
        for round in 1..=3 {
            let bad = raw(scene)?;
            let room = Room::new(&bad)?;
            let worker = Worker::new(scene, &room, 0)?;
            let memory = room.memory(scene, 4096)?;
            worker.run(scene, &[store(memory.gpu, 1)])?;
            // Submitted, and not looked for the end of.
            worker.submit(&[store(memory.gpu, 2)])?;
            let begun = scene.journal(&names).len();
            end(bad.process, End::Terminated)?;
            let mut calls = scene.journal(&names).split_off(begun);
            calls.dedup();
            same("what the driver was told of", calls, vec![names[1], names[2]])?;
            let progress = queue.run(|list| list.store(page.at(0), round))?;
            queue.wait(progress, Some(PATIENCE))?;
            same("another process's work", page.word(0)?, round)?;
            same("objects", census(scene)?, before.clone())?;
        }
        Ok(())
    })
}
