//! DB: hardware queues and doorbells. Source of most: *User-mode work submission*.
//!
//! | file | holds |
//! |---|---|
//! | `db.rs` | creation, connection, the rules about both |
//! | `db/bands.rs` | priority bands |
//! | `db/callbacks.rs` | callbacks about doorbells that take their time, or fail for a while |
//! | `db/anew.rs` | queues of the user-mode driver that are made anew |
//! | `db/idle.rs` | doorbells of idle engines |
//! | `db/power.rs` | power components of engines |
//! | `db/path.rs` | what a submission costs, last queued values, pages |
//! | `db/crowd.rs` | many queues on few doorbells |
//! | `db/together.rs` | several lists in one submission |
//! | `db/pool.rs` | physical doorbells between processes |
//! | `db/ring.rs` | rings, write pointers, retries |
//! | `db/resize.rs` | a ring in place of another |
//! | `db/kernel.rs` | kernel-mode queues |
//! | `db/schedule.rs` | suspension, kernel-mode queues beside user-mode ones |
//! | `db/sizes.rs` | what a driver may say of a doorbell's size |
//! | `db/priority.rs` | priorities that clients set |
//! | `db/room.rs` | queues and doorbells without the user-mode driver |

mod anew;
mod bands;
mod callbacks;
mod crowd;
mod idle;
mod kernel;
mod path;
mod pool;
pub(super) mod power;
mod priority;
mod resize;
mod ring;
mod room;
mod runner;
mod schedule;
mod sizes;
mod together;

pub use crowd::crowd;
pub(in crate::scenario) use idle::MODELS;
pub(super) use idle::idle_queue;
pub use room::{ABORT, CONNECTED, Doorbell, HardwareQueue, KernelQueue, Memory, NOTIFY, RETRY, RingQueue, Room};

use super::stuck::Stuck;
use super::{Denied, Played, Raw, Scenario, Scene, Setup, Stage, portable, same};
use anyhow::{Context, ensure};
use dxgkrnl_model::personality::SECOND;
use gpu_wire::packet::{Encoded, Store};
use nt_model::MapError;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use wddm_abi::ntstatus::{STATUS_INVALID_PARAMETER, STATUS_NOT_SUPPORTED};
use wddm_abi::{D3DKMT_CREATE_DOORBELL, NTSTATUS};

const SUBMIT: &str = "User-mode work submission, Work submission pseudocode in UMD";
const CREATE: &str = "D3DKMT_CREATE_DOORBELL; DxgkDdiCreateDoorbell";

/// The slices in `parts`, one after the other; `N` cases in all.
pub(super) const fn joined<const N: usize>(parts: &[&[Scenario]]) -> [Scenario; N] {
    let mut all = [parts[0][0]; N];
    let (mut part, mut at) = (0, 0);
    while part < parts.len() {
        let mut index = 0;
        while index < parts[part].len() {
            all[at] = parts[part][index];
            (at, index) = (at + 1, index + 1);
        }
        part += 1;
    }
    assert!(at == N);
    all
}

pub(super) const CASES: &[Scenario] = &joined::<
    {
        let [pool, ring, schedule] =
            [pool::CASES.len(), ring::CASES.len(), schedule::CASES.len() + bands::CASES.len() + callbacks::CASES.len()];
        let [idle, power, kernel] = [idle::CASES.len(), power::CASES.len(), kernel::CASES.len()];
        let more =
            anew::CASES.len() + path::CASES.len() + crowd::CASES.len() + resize::CASES.len() + priority::CASES.len();
        OWN.len() + pool + ring + schedule + kernel + idle + power + together::CASES.len() + more
    },
>(&[
    OWN,
    pool::CASES,
    ring::CASES,
    schedule::CASES,
    kernel::CASES,
    idle::CASES,
    power::CASES,
    together::CASES,
    path::CASES,
    crowd::CASES,
    resize::CASES,
    priority::CASES,
    anew::CASES,
    bands::CASES,
    callbacks::CASES,
]);

const OWN: &[Scenario] = &[
    Scenario {
        id: "DB-01",
        title: "no user-mode queue on a node without user-mode submission",
        source: "User-mode work submission, KMD-reported node flag; DXGK_NODEMETADATA_FLAGS",
        play: node_without,
    },
    Scenario {
        id: "DB-02",
        title: "the doorbell's size is between 1 byte and DXGK_MAX_DOORBELL_SIZE_BYTES",
        source: "DXGK_USERMODESUBMISSION_CAPS, DoorbellSizeInBytes",
        play: sizes::sizes,
    },
    Scenario { id: "DB-03", title: "a doorbell is created disconnected", source: CREATE, play: created_disconnected },
    Scenario {
        id: "DB-04",
        title: "a ring before the connection lands in the dummy page",
        source: CREATE,
        play: ring_unconnected,
    },
    Scenario {
        id: "DB-05",
        title: "connect rotates in a page that holds nothing but the doorbell",
        source: "D3DKMT_CREATE_DOORBELL, DoorbellStatusCPUVirtualAddress; DXGKARG_CONNECTDOORBELL",
        play: connect,
    },
    Scenario {
        id: "DB-07",
        title: "addresses stay over 100 connections and disconnections",
        source: "D3DKMT_CREATE_DOORBELL, DoorbellCPUVirtualAddress (constant over the lifetime)",
        play: addresses_stay,
    },
    Scenario {
        id: "DB-08",
        title: "one physical doorbell, two queues: the callback first, then the doorbell moves",
        source: "User-mode work submission, Victimizing doorbell pseudocode in KMD",
        play: victim,
    },
    Scenario {
        id: "DB-14",
        title: "a user-mode queue refuses D3DKMTSubmitCommandToHwQueue",
        source: "User-mode work submission, User-mode work submission DDIs",
        play: no_kernel_way,
    },
    Scenario { id: "DB-15", title: "a kernel-mode queue has no doorbell", source: CREATE, play: no_doorbell },
    Scenario { id: "DB-16", title: "a second doorbell is refused, the first works on", source: CREATE, play: second },
    Scenario {
        id: "DB-18",
        title: "no control allocation: the driver's policy is to refuse",
        source: "D3DKMT_CREATE_DOORBELL, hRingBufferControl (optional)",
        play: no_control,
    },
    Scenario {
        id: "DB-19",
        title: "no secondary address without SecondaryDoorbellSupported",
        source: "DXGK_USERMODESUBMISSION_CAPS; D3DKMT_CREATE_DOORBELL_FLAGS, RequireSecondaryCpuVA",
        play: secondary,
    },
    Scenario {
        id: "DB-20",
        title: "destroying a connected doorbell disconnects it first, and waits until no engine is in its ring",
        source: "DxgkDdiDestroyDoorbell; User-mode work submission, Normal process termination",
        play: destroy_connected,
    },
    Scenario {
        id: "DB-22",
        title: "disconnecting a disconnected doorbell succeeds",
        source: "DxgkDdiDisconnectDoorbell, Return value (must succeed)",
        play: disconnect_twice,
    },
];

/// Direct calls of a process `client`.
pub(super) fn raw(scene: &Scene) -> anyhow::Result<Raw> {
    scene.raw("client")
}

/// A store of 8 bytes.
pub fn store(address: u64, value: u64) -> Encoded {
    Store { address, value }.to_packet()
}

/// Refusal with a status.
pub(super) fn denied<T>(what: &str, result: Result<T, Denied>, status: NTSTATUS) -> Played {
    match result {
        Ok(_) => anyhow::bail!("{what}: succeeded, instead of {status:?}"),
        Err(Denied(got)) => same(what, got, status),
    }
}

fn node_without(stage: &Stage) -> Played {
    portable::case(stage, "DB-01", |scene| same("calls of the driver", scene.calls("DxgkDdiCreateHwQueue"), 0))?;
    stage.play(Setup::default(), |scene| {
        let raw = raw(scene)?;
        let room = Room::new(&raw)?;
        let caps = scene.adapter().caps().context("caps")?;
        let node = caps.nodes.iter().find(|node| !node.takes_user_mode_work()).context("such a node")?.place.node;
        match room.context(node) {
            // A packet context, which has no queues.
            Ok(context) => denied("a user-mode queue", room.queue_in(context, true), STATUS_INVALID_PARAMETER),
            refused => denied("a hardware context on it", refused, STATUS_NOT_SUPPORTED),
        }
    })?;
    // Hardware-scheduled, but the OS left user-mode submission off.
    let off = Setup::default().without(wddm_abi::DXGK_FEATURE_ID::DXGK_FEATURE_USER_MODE_SUBMISSION);
    stage.play(off, |scene| {
        let raw = raw(scene)?;
        let room = Room::new(&raw)?;
        let context = room.context(0)?;
        denied("a user-mode queue", room.queue_in(context, true), STATUS_NOT_SUPPORTED)?;
        room.queue_in(context, false).context("a kernel-mode queue")?;
        Ok(())
    })
}

fn created_disconnected(stage: &Stage) -> Played {
    portable::case(stage, "DB-03", |scene| {
        same("connect calls", scene.calls("DxgkDdiConnectDoorbell"), 0)?;
        let raw = raw(scene)?;
        let room = Room::new(&raw)?;
        let queue = RingQueue::new(scene, &room, 0, 4096)?;
        let read_only = raw.store(queue.bell.status, CONNECTED).err().context("a store to the status succeeded")?;
        ensure!(read_only.write, "{read_only:?}");
        Ok(())
    })
}

fn ring_unconnected(stage: &Stage) -> Played {
    // An engine that lets a doorbell go looks at what its queue has published, and so does one whose context the
    // scheduler has suspended because of its silence: however slow the host is, it comes to neither.
    let setup = Setup::default().setting("IdleMilliseconds", 0).windows(|windows| windows.tdr.delay = 60 * SECOND);
    stage.play(setup, |scene| {
        let raw = raw(scene)?;
        let room = Room::new(&raw)?;
        let quiet = RingQueue::new(scene, &room, 0, 4096)?;
        let other = RingQueue::connected(scene, &room, 0, 4096)?;
        let target = room.memory(scene, 4096)?;
        let (progress, status) = quiet.submit(&[store(target.gpu, 1)])?;
        same("status after the ring", status, RETRY)?;
        ensure!(raw.load(quiet.bell.doorbell)? != 0, "the dummy page takes the value");
        // Another queue of the node runs meanwhile, so the engine is awake.
        for value in 2..10 {
            let done = other.submit_through(&[store(target.gpu + 8, value)])?;
            other.wait(scene, done)?;
        }
        same("nothing ran", (quiet.progress()?, raw.load(target.cpu)?), (0, 0))?;
        // At the connection, and not behind a suspension.
        let suspensions = scene.calls("DxgkDdiSuspendContext");
        quiet.connect()?;
        quiet.wait(scene, progress)?;
        same("suspensions", scene.calls("DxgkDdiSuspendContext"), suspensions)?;
        same("memory", raw.load(target.cpu)?, 1)?;
        // A connection has the engine look at the queue more than once. What came behind these looks is done when they
        // are over.
        for value in 20..30 {
            let done = other.submit_through(&[store(target.gpu + 8, value)])?;
            other.wait(scene, done)?;
        }
        // Of two connected ones, each with a doorbell of its own, the one that rings runs.
        let progress = quiet.record(&[store(target.gpu, 2)])?;
        raw.store(quiet.bell.last_queued, progress)?;
        quiet.publish()?;
        for value in 10..20 {
            let done = other.submit_through(&[store(target.gpu + 8, value)])?;
            other.wait(scene, done)?;
        }
        same("nothing ran that did not ring", (quiet.progress()?, raw.load(target.cpu)?), (progress - 1, 1))?;
        same("its ring", quiet.ring()?, CONNECTED)?;
        quiet.wait(scene, progress)?;
        same("memory", raw.load(target.cpu)?, 2)
    })
}

/// No timeout has had a queue's engine looked at: what was to bring its work there did.
fn unprobed(scene: &Scene) -> Played {
    same("suspensions", scene.calls("DxgkDdiSuspendContext"), 0)
}

fn connect(stage: &Stage) -> Played {
    portable::case(stage, "DB-05", |scene| same("connect calls", scene.calls("DxgkDdiConnectDoorbell"), 1))
}

fn addresses_stay(stage: &Stage) -> Played {
    portable::case(stage, "DB-07", |scene| {
        let taken = scene.callbacks("DxgkCbDisconnectDoorbell");
        ensure!(taken >= 199, "a page was taken away {taken} times");
        Ok(())
    })?;
    // Where the host pauses it, the queue is a seldom one, and the doorbell of an idle engine goes: not here.
    stage.play(Setup::default().setting("IdleMilliseconds", 0), |scene| {
        let raw = raw(scene)?;
        let room = Room::new(&raw)?;
        let queue = RingQueue::new(scene, &room, 0, 4096)?;
        let target = room.memory(scene, 4096)?;
        for round in 1..=100 {
            queue.connect()?;
            let (progress, status) = queue.submit(&[store(target.gpu, round)])?;
            same("status at its address", status, CONNECTED)?;
            queue.wait(scene, progress)?;
            same("memory", raw.load(target.cpu)?, round)?;
            same("last queued value", raw.load(queue.bell.last_queued)?, progress)?;
            scene.world.os.disconnect_doorbells(scene.adapter(), false);
            same("status at its address", queue.status()?, RETRY)?;
        }
        let calls = (scene.calls("DxgkDdiConnectDoorbell"), scene.calls("DxgkDdiDisconnectDoorbell"));
        same("connections and disconnections", calls, (100, 100))
    })
}

fn victim(stage: &Stage) -> Played {
    portable::case(stage, "DB-08", unprobed)?;
    stage.play(Setup::default().setting("PhysicalDoorbells", 1).setting("IdleMilliseconds", 0), |scene| {
        let raw = raw(scene)?;
        let room = Room::new(&raw)?;
        let first = RingQueue::connected(scene, &room, 0, 4096)?;
        let second = RingQueue::new(scene, &room, 0, 4096)?;
        same("callbacks", scene.callbacks("DxgkCbDisconnectDoorbell"), 0)?;
        second.connect()?;
        same("callbacks", scene.callbacks("DxgkCbDisconnectDoorbell"), 1)?;
        same("calls of the disconnect DDI", scene.calls("DxgkDdiDisconnectDoorbell"), 0)?;
        same("statuses", (first.status()?, second.status()?), (RETRY, CONNECTED))?;
        // What the first rings with does not reach the second's page.
        let before = raw.load(second.bell.doorbell)?;
        raw.store(first.bell.doorbell, 0xDEAD)?;
        same("the second's page", raw.load(second.bell.doorbell)?, before)?;
        // Both work, the doorbell goes back and forth.
        for _ in 0..10 {
            for queue in [&first, &second] {
                let (progress, status) = queue.submit(&[])?;
                if status == RETRY {
                    queue.connect()?;
                    same("status", queue.ring()?, CONNECTED)?;
                }
                queue.wait(scene, progress)?;
            }
        }
        ensure!(scene.callbacks("DxgkCbDisconnectDoorbell") >= 10, "the doorbell hardly moved");
        Ok(())
    })
}

fn no_kernel_way(stage: &Stage) -> Played {
    portable::case(stage, "DB-14", |scene| {
        same("submissions", scene.calls("DxgkDdiSubmitCommandToHwQueue"), 0)?;
        let raw = raw(scene)?;
        let room = Room::new(&raw)?;
        let queue = RingQueue::connected(scene, &room, 0, 4096)?;
        let fence = raw.monitored_fence(room.device, 7, false)?;
        let (handle, refused) = (queue.queue.handle, Err(Denied(STATUS_INVALID_PARAMETER)));
        same("a wait that is met", raw.queue_wait(handle, fence.handle, 1), refused)?;
        same("a signal", raw.queue_signal(handle, fence.handle, 9), refused)?;
        // Presents have no other way in than this thunk.
        same("a present", raw.call_by_name("D3DKMTSubmitPresentToHwQueue", queue.control.cpu), STATUS_NOT_SUPPORTED)?;
        same("the fence", raw.load(fence.cpu)?, 7)?;
        let progress = queue.submit_through(&[])?;
        queue.wait(scene, progress)
    })
}

fn no_doorbell(stage: &Stage) -> Played {
    portable::case(stage, "DB-15", |scene| same("driver's doorbells", scene.calls("DxgkDdiCreateDoorbell"), 0))
}

fn second(stage: &Stage) -> Played {
    portable::case(stage, "DB-16", |_| Ok(()))
}

/// Creates a doorbell as `change` wants it, which must be refused; then a good one, which works.
fn refused_then_fine(
    scene: &Scene,
    what: &str,
    status: NTSTATUS,
    change: impl FnOnce(&mut D3DKMT_CREATE_DOORBELL),
) -> Played {
    let raw = raw(scene)?;
    let room = Room::new(&raw)?;
    let queue = room.queue(0, true)?;
    let (ring, control) = (room.memory(scene, 4096)?, room.memory(scene, 4096)?);
    let mut data = Room::bell_data(ring.gpu, control.gpu);
    let mut record = Room::bell_record(queue.handle, ring.handle, control.handle, &mut data);
    change(&mut record);
    same(what, raw.call(raw.thunks.D3DKMTCreateDoorbell, &mut record), status)?;
    room.bell(queue.handle, &ring, &control).context("a good one")?;
    Ok(())
}

fn no_control(stage: &Stage) -> Played {
    portable::case(stage, "DB-18", |scene| same("asked the driver", scene.calls("DxgkDdiCreateDoorbell"), 2))
}

fn secondary(stage: &Stage) -> Played {
    stage.play(Setup::default(), |scene| {
        refused_then_fine(scene, "with a secondary address", STATUS_NOT_SUPPORTED, |record| {
            record.Flags.set_RequireSecondaryCpuVA(true);
        })?;
        same("asked the driver", scene.calls("DxgkDdiCreateDoorbell"), 1)
    })
}

fn destroy_connected(stage: &Stage) -> Played {
    destroy_amid(stage).context("an engine is in the middle of a packet of the ring")?;
    stage.play(Setup::default().setting("PhysicalDoorbells", 1).setting("IdleMilliseconds", 0), |scene| {
        let raw = raw(scene)?;
        let room = Room::new(&raw)?;
        let queue = RingQueue::connected(scene, &room, 0, 4096)?;
        let progress = queue.submit_through(&[])?;
        queue.wait(scene, progress)?;
        queue.destroy_bell()?;
        let names = ["DxgkDdiDisconnectDoorbell", "DxgkDdiDestroyDoorbell"];
        same("the driver's calls", scene.journal(&names), names.to_vec())?;
        // Not by a store: the address may be another process's by now, of a case that runs beside this one.
        let mapping = scene.world.os.kernel().user_mapping(raw.process.nt(), queue.bell.doorbell);
        same("the mapping at the doorbell's address", mapping.err(), Some(MapError::NotMapped))?;
        // The only physical doorbell is free again: nobody has to give it up.
        let other = RingQueue::connected(scene, &room, 0, 4096)?;
        for round in 0..2 {
            let progress = other.submit_through(&[])?;
            other.wait(scene, progress)?;
            if round == 0 {
                // Published work of a queue without a doorbell belongs to no engine. Not before the other queue ran:
                // until then the engine may be having the look that was under way when the doorbell went.
                queue.record(&[])?;
                queue.publish()?;
            }
        }
        same("callbacks", scene.callbacks("DxgkCbDisconnectDoorbell"), 0)?;
        same("the first's progress", queue.progress()?, 1)?;
        // Nor is it looked at when its context is put back on the run list.
        ensure!(scene.world.os.suspend(scene.adapter(), &raw.process), "not acknowledged");
        scene.world.os.resume(scene.adapter(), &raw.process);
        let progress = other.submit_through(&[])?;
        other.wait(scene, progress)?;
        same("the first's progress behind a resumption", queue.progress()?, 1)
    })
}

/// User mode may free the ring behind the destruction: no engine is in it by then.
fn destroy_amid(stage: &Stage) -> Played {
    const HELD: Duration = Duration::from_millis(300);
    stage.play(Setup::default(), |scene| {
        let raw = raw(scene)?;
        let room = Room::new(&raw)?;
        let memory = room.memory(scene, 4096)?;
        let queue = RingQueue::connected(scene, &room, 0, 4096)?;
        let progress = queue.submit_through(&[])?;
        queue.wait(scene, progress)?;
        let stuck = Stuck::new(scene);
        queue.submit_through(&[store(memory.gpu, 1)])?;
        scene.until("an engine that maps the page of a store", || Ok(stuck.has_come()))?;
        let goes_on = AtomicBool::new(false);
        let was_held = std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::park_timeout(HELD);
                goes_on.store(true, Ordering::Release);
                stuck.let_go();
            });
            queue.destroy_bell().map(|()| goes_on.load(Ordering::Acquire))
        })?;
        ensure!(was_held, "the doorbell is destroyed, and an engine is still in its ring");
        Ok(())
    })
}

fn disconnect_twice(stage: &Stage) -> Played {
    for model in [0, 1] {
        let setup = Setup::default().setting("DoorbellModel", model).setting("IdleMilliseconds", 0);
        stage.play(setup, |scene| {
            let raw = raw(scene)?;
            let room = Room::new(&raw)?;
            // One that never was connected, and one that was.
            let fresh = RingQueue::new(scene, &room, 0, 4096)?;
            let used = RingQueue::connected(scene, &room, 1, 4096)?;
            for _ in 0..3 {
                scene.world.os.disconnect_doorbells(scene.adapter(), true);
            }
            same("calls", scene.calls("DxgkDdiDisconnectDoorbell"), 6)?;
            for queue in [&fresh, &used] {
                queue.connect()?;
                let (progress, status) = queue.submit(&[])?;
                same("status", status, CONNECTED)?;
                queue.wait(scene, progress)?;
            }
            Ok(())
        })?;
    }
    Ok(())
}
