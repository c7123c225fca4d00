//! SIGKILL: the process is suspended, disconnected, destroyed, and its neighbour runs on.

use super::{Held, Neighbour, setup};
use crate::scenario::db::{RingQueue, Room, raw, store};
use crate::scenario::te::in_time::in_time;
use crate::scenario::{Played, Setup, Stage, same};
use anyhow::{Context, Result, ensure};
use dxgkrnl_model::process::End;
use gpu_wire::packet::Indirect;
use std::os::unix::process::ExitStatusExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// What the driver is called at when a process ends, in this order.
const SUSPEND: &str = "DxgkDdiSuspendContext";
const DISCONNECT: &str = "DxgkDdiDisconnectDoorbell";
const DESTROY: &str = "DxgkDdiDestroyDoorbell";
const QUEUE: &str = "DxgkDdiDestroyHwQueue";
/// An engine is reset.
const RESET: &str = "DxgkDdiResetHwEngine";
/// An allocation goes: the rings do in front of the doorbells.
const CLOSE: &str = "DxgkDdiCloseAllocation";
const CALLS: [&str; 5] = [SUSPEND, DISCONNECT, CLOSE, DESTROY, QUEUE];

pub(super) fn busy(stage: &Stage) -> Played {
    // Where the host pauses the client, the doorbell of an idle engine goes: not here.
    stage.play(setup().setting("IdleMilliseconds", 0), |scene| {
        let mut neighbour = Neighbour::new(scene, 0)?;
        let before = Held::now(scene)?;
        let client = scene.world.separate("busy")?;
        client.expect("busy")?;
        neighbour.job(scene)?;
        let from = scene.journal(&CALLS).len();
        let process = client.process().clone();
        client.kill();
        same("open handles", (process.open_handles(), process.nt().open_handles()), (0, 0))?;
        let calls = scene.journal(&CALLS).split_off(from);
        let place = |name: &str| calls.iter().position(|call| *call == name).with_context(|| format!("no {name}"));
        let last = |name: &str| calls.iter().rposition(|call| *call == name).with_context(|| format!("no {name}"));
        ensure!(place(SUSPEND)? < place(DISCONNECT)?, "disconnected before the suspension: {calls:?}");
        ensure!(last(DISCONNECT)? < place(DESTROY)?, "a doorbell goes before all are disconnected: {calls:?}");
        ensure!(last(DISCONNECT)? < place(CLOSE)?, "a ring goes before all are disconnected: {calls:?}");
        ensure!(place(DESTROY)? < place(QUEUE)?, "a queue goes before its doorbell: {calls:?}");
        before.until_again(scene, 64)?;
        neighbour.job(scene)
    })
}

/// A process whose contexts all want an engine that comes off none of them: they are asked together, so that one reset
/// is enough. Of this Linux process.
fn many_hung(stage: &Stage) -> Played {
    const CONTEXTS: u64 = 3;
    let setup = || Setup::default().setting("IdleMilliseconds", 0).quick_tdr().resets(1);
    in_time(stage, setup, |scene, _| {
        let raw = raw(scene)?;
        let room = Room::new(&raw)?;
        let code = room.memory(scene, 4096)?;
        let begins = store(code.gpu + 2048, 1);
        let jump = Indirect { address: code.gpu, length: begins.as_bytes().len() as u64 + 24 }.to_packet();
        code.write(&raw, 0, &[begins.as_bytes(), jump.as_bytes()].concat())?;
        let queues: Vec<_> =
            (0..CONTEXTS).map(|_| RingQueue::connected(scene, &room, 0, 4096)).collect::<Result<_>>()?;
        for queue in &queues {
            queue.write(jump.as_bytes())?;
            queue.publish()?;
            queue.ring()?;
        }
        scene.until("work without an end", || Ok(raw.load(code.cpu + 2048)? == 1))?;
        // Not before: TdrDelay begins with what the OS is told.
        queues.iter().try_for_each(|queue| queue.tell(1))?;
        let from = scene.journal(&[SUSPEND, RESET]).len();
        drop(queues);
        Arc::into_inner(raw.process).context("another owner of the process")?.end(End::Terminated);
        let calls = scene.journal(&[SUSPEND, RESET]).split_off(from);
        same("suspensions and resets", calls, vec![SUSPEND, SUSPEND, SUSPEND, RESET])?;
        Neighbour::new(scene, 0)?.job(scene)
    })
}

pub(super) fn hung(stage: &Stage) -> Played {
    many_hung(stage).context("several contexts")?;
    // The neighbour's work, and the paging before it, is shorter than TdrDelay.
    in_time(
        stage,
        || setup().quick_tdr().resets(1),
        |scene, _| {
            let mut neighbour = Neighbour::new(scene, 1)?;
            let client = scene.world.separate("hang")?;
            client.expect("hung")?;
            neighbour.job(scene)?;
            client.kill();
            neighbour.job(scene)?;
            Neighbour::new(scene, 0)?.job(scene)
        },
    )
}

/// An ended client is gone after so long at most, on a machine that is busy with other things.
const SOON: Duration = Duration::from_secs(10);

/// Of 40 looks in the 200 ms of a rotation, one in front of it and one behind it, and some that a busy host has there.
const LOOKS: u32 = 5;

pub(super) fn stopped(stage: &Stage) -> Played {
    stage.play(setup().setting("PhysicalDoorbells", 1), |scene| {
        let mut neighbour = Neighbour::new(scene, 0)?;
        let mut client = scene.world.separate("submit")?;
        client.expect("connected")?;
        client.stop();
        let begun = Instant::now();
        let looks = AtomicU32::new(0);
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Acquire) {
                    scene.world.os.connected_doorbells(scene.adapter());
                    looks.fetch_add(1, Ordering::Relaxed);
                    std::thread::park_timeout(Duration::from_millis(5));
                }
            });
            let job = neighbour.job(scene);
            is_over.store(true, Ordering::Release);
            job
        })?;
        let (time, looks) = (begun.elapsed(), looks.into_inner());
        ensure!(time >= Duration::from_millis(200) && time < SOON, "the doorbell was had after {time:?}");
        ensure!(looks > LOOKS, "{looks} looks at the doorbells' states in {time:?}: they wait for the rotation");
        ensure!(client.say("go").is_err() || client.hear().is_err(), "the client goes on");
        let status = client.exit()?;
        same("the signal that ended it", status.signal(), Some(9))?;
        neighbour.job(scene)
    })
}

pub(super) fn refusing(stage: &Stage) -> Played {
    stage.play(setup().setting("PhysicalDoorbells", 1), |scene| {
        let mut neighbour = Neighbour::new(scene, 0)?;
        let client = scene.world.separate("refuses")?;
        client.expect("refuses")?;
        neighbour.job(scene)?;
        let status = client.exit()?;
        same("the signal that ended it", status.signal(), Some(9))?;
        neighbour.job(scene)
    })
}

/// The most that a client's threads compute meanwhile: 200 ms and a part of that, and what its other threads do.
const COMPUTED: Duration = Duration::from_millis(600);

/// How long the threads of process `pid` have run, until it is waited for. In parts of 10 ms.
fn ran(pid: i32) -> Result<Duration> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).context("the client's account")?;
    // Behind the name: utime and stime are fields 14 and 15.
    let fields = text.rsplit(") ").next().unwrap_or_default().split(' ').skip(11).take(2);
    let ticks = fields.map(|field| Ok(field.parse::<u64>()?)).sum::<Result<u64>>()?;
    Ok(Duration::from_millis(10 * ticks))
}

pub(super) fn spinning(stage: &Stage) -> Played {
    stage.play(setup().setting("PhysicalDoorbells", 1), |scene| {
        let mut neighbour = Neighbour::new(scene, 0)?;
        let client = scene.world.separate("spins")?;
        client.expect("spins")?;
        let taken = || scene.callbacks("DxgkCbDisconnectDoorbell");
        let before = taken();
        // What the client computes while the neighbour comes to the rotation says nothing of that: it begins with the
        // driver's callback.
        let pid = client.pid();
        let begins = std::thread::scope(|scope| {
            let begins = scope.spawn(|| -> Result<Duration> {
                scene.until_now("the rotation", || Ok(taken() > before))?;
                ran(pid)
            });
            neighbour.job(scene)?;
            begins.join().map_err(|_| anyhow::anyhow!("a thread ended by itself"))?
        })?;
        let computed = ran(pid)?.saturating_sub(begins);
        ensure!(computed < COMPUTED, "the client has computed for {computed:?} when it is ended");
        let status = client.exit()?;
        same("the signal that ended it", status.signal(), Some(9))?;
        neighbour.job(scene)
    })
}
