//! An adapter that is stopped, taken away or started again under processes that use it.

use crate::scenario::client::{Client, PATIENCE, block, returned};
use crate::scenario::db::{ABORT, RingQueue, Room, raw};
use crate::scenario::{Played, Scenario, Scene, Setup, Stage, same};
use anyhow::{Context, ensure};
use std::time::{Duration, Instant};
use umd_core::ffi::types::FP_QUEUE_KERNEL_MODE;
use wddm_abi::D3DKMT_OPENADAPTERFROMLUID;
use wddm_abi::ntstatus::STATUS_INVALID_PARAMETER;

pub(super) const CASES: &[Scenario] = &[
    Scenario {
        id: "PT-10",
        title: "an adapter goes while processes use it: every doorbell reads ABORT, calls fail, waits end, and stores go \
                nowhere",
        source: "User-mode work submission, Residency model (device-lost scenarios); D3DDDI_DOORBELLSTATUS",
        play: removed,
    },
    Scenario {
        id: "PT-42",
        title: "an adapter that is started again: its old LUID opens nothing, and whoever used it hears of the loss soon",
        source: "D3DKMTOpenAdapterFromLuid; D3DKMTGetDeviceState",
        play: started_again,
    },
];

/// The adapter goes, by its stop or by surprise.
fn goes(scene: &Scene, surprise: bool) {
    match surprise {
        false => scene.world.os.stop_adapter(scene.adapter()),
        true => drop(scene.world.os.remove_by_surprise(scene.adapter())),
    }
}

/// Far more than a refusal takes, also on a host that has much else to do; less than the 20 s at which a client gives
/// up a wait that hangs.
const SOON: Duration = Duration::from_secs(15);

fn removed(stage: &Stage) -> Played {
    for (model, surprise) in [(0, false), (0, true), (1, false), (1, true)] {
        let play = |scene: &Scene| {
            let (one, two) = (raw(scene)?, raw(scene)?);
            let rooms = [Room::new(&one)?, Room::new(&two)?];
            let mut queues = Vec::new();
            for room in &rooms {
                for node in [0, 1] {
                    let queue = RingQueue::connected(scene, room, node, 4096)?;
                    let progress = queue.submit_through(&[])?;
                    queue.wait(scene, progress)?;
                    queues.extend([queue, RingQueue::new(scene, room, node, 4096)?]);
                }
            }
            let fence = one.native_fence(rooms[0].device, 0)?;
            let waiting = block(&one, rooms[0].device, vec![(fence.handle, 1)], false);
            scene.until("a wait", || {
                Ok(scene.world.os.was_monitored(one.process.nt().id(), fence.handle) == Some(true))
            })?;
            goes(scene, surprise);
            for queue in &queues {
                same("status", queue.status()?, ABORT)?;
                // The five steps of a thread that has not looked yet.
                let (_, status) = queue.submit(&[]).context("stores of a process whose adapter is gone")?;
                same("status behind a ring", status, ABORT)?;
                ensure!(queue.connect().is_err() && queue.notify().is_err(), "a call of a doorbell that is gone");
            }
            ensure!(returned("a wait for a fence", &waiting)?.is_err(), "the wait succeeded");
            for (process, room) in [&one, &two].into_iter().zip(&rooms) {
                ensure!(process.device().is_err(), "a device was made on an adapter that is gone");
                ensure!(process.native_fence(room.device, 0).is_err(), "a fence was made on a device that is gone");
                ensure!(room.queue(0, true).is_err(), "a queue was made on a device that is gone");
            }
            Ok(())
        };
        let setup = Setup::default().setting("DoorbellModel", model);
        stage.play(setup, play).with_context(|| format!("DoorbellModel {model}, by surprise {surprise}"))?;
        let play = |scene: &Scene| under_another(scene, surprise, false);
        stage
            .play(super::setup().setting("DoorbellModel", model), play)
            .with_context(|| format!("another Linux process, DoorbellModel {model}, by surprise {surprise}"))?;
    }
    Ok(())
}

/// The adapter goes under a client that is a Linux process of its own; `again`: another one is there then.
fn under_another(scene: &Scene, surprise: bool, again: bool) -> Played {
    let mut client = scene.world.separate("outlive")?;
    client.expect("waits")?;
    let begun = Instant::now();
    goes(scene, surprise);
    if again {
        scene.world.os.restart_adapter(scene.adapter())?;
    }
    let heard = client.hear()?;
    // Of a kernel-mode queue the OS waits, and ends the wait as that of any fence of a lost device.
    let is_user_mode = scene.calls("DxgkDdiConnectDoorbell") != 0;
    ensure!(heard == "refused" || (heard == "ended" && !is_user_mode), "the wait for work: {heard}");
    client.say("gone")?;
    client.expect("knows")?;
    let took = begun.elapsed();
    ensure!(took < SOON, "the loss was known after {took:?}");
    if again {
        client.say("again")?;
        client.expect("memory 3")?;
    }
    client.say("end")?;
    let process = client.process().clone();
    ensure!(client.exit()?.success(), "the client failed");
    same("open handles", (process.open_handles(), process.nt().open_handles()), (0, 0))
}

fn started_again(stage: &Stage) -> Played {
    for (flags, surprise) in [(0, false), (FP_QUEUE_KERNEL_MODE, false), (0, true), (FP_QUEUE_KERNEL_MODE, true)] {
        let play = |scene: &Scene| {
            let rig = Client::open(scene, "client")?;
            let (queue, page, gate) = (rig.device.queue(0, 64 << 10, flags, 0)?, rig.page()?, rig.fence(0, true)?);
            let progress = queue.run(|list| list.store(page.at(0), 1))?;
            queue.wait(progress, Some(PATIENCE))?;
            // Work that waits for what does not come.
            let stuck = queue.run(|list| list.wait(&gate, 1))?;
            let old = scene.adapter().luid();
            let begun = std::thread::scope(|scope| {
                let waiting = scope.spawn(|| queue.wait(stuck, Some(PATIENCE)).err());
                std::thread::park_timeout(Duration::from_millis(20));
                goes(scene, surprise);
                let begun = Instant::now();
                let restarted = scene.world.os.restart_adapter(scene.adapter());
                let refused = waiting.join().map_err(|_| anyhow::anyhow!("a thread ended by itself"))?;
                restarted?;
                // Of a kernel-mode queue the OS waits, and ends the wait as that of any fence of a lost device.
                let is_told = refused.is_some() || flags != 0 || stage.rung() < 3;
                ensure!(is_told, "the wait for work of an adapter that is gone succeeded");
                Ok(begun)
            })?;
            ensure!(queue.run(|list| list.store(page.at(0), 2)).is_err(), "work was taken on an adapter that is gone");
            ensure!(rig.device.queue(0, 64 << 10, flags, 0).is_err(), "a queue was made with an old device");
            let took = begun.elapsed();
            ensure!(took < SOON, "the loss was known after {took:?}");
            let mut record = D3DKMT_OPENADAPTERFROMLUID::zeroed();
            record.AdapterLuid = old;
            let opened = rig.raw.call(rig.raw.thunks.D3DKMTOpenAdapterFromLuid, &mut record);
            same("opening the old LUID", opened, STATUS_INVALID_PARAMETER)?;
            // The same process uses the adapter that is there now.
            let device = rig.user.open()?.device()?;
            let memory = device.allocate(umd_core::ffi::types::FP_KIND_SYSTEM, 4096, 0)?;
            let queue = device.queue(0, 64 << 10, flags, 0)?;
            let at = memory.gpu_va()?;
            let progress = queue.run(|list| list.store(at, 3))?;
            queue.wait(progress, Some(PATIENCE))?;
            same("memory", memory.read_u64(0)?, 3)
        };
        stage.play(Setup::default(), play).with_context(|| format!("flags {flags}, by surprise {surprise}"))?;
    }
    for surprise in [false, true] {
        let play = |scene: &Scene| under_another(scene, surprise, true);
        stage.play(super::setup(), play).with_context(|| format!("another Linux process, by surprise {surprise}"))?;
    }
    Ok(())
}
