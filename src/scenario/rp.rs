//! Group RP: memory, and the power of the device.
//!
//! | file | holds |
//! |---|---|
//! | `rp.rs` | the device without power |
//! | `rp/ends.rs` | a process that ends as the power is taken |
//! | `rp/rings.rs` | rings and their doorbells |
//! | `rp/engines.rs` | F-states of an engine |
//! | `rp/memory.rs` | contents, and paging operations |
//! | `rp/refused.rs` | a driver that refuses a doorbell behind D3 |
//! | `rp/again.rs` | stop and start under load |

mod again;
mod ends;
mod engines;
mod memory;
mod pressure;
mod refused;
mod rings;

use super::client::{Client, PATIENCE};
use super::db::{RETRY, RingQueue, Room, joined, raw, store};
use super::te::Loop;
use super::{Played, Scenario, Scene, Setup, Stage, same};
use crate::client::{Allocation, Device};
use anyhow::{Context, Result, ensure};
use dxgkrnl_model::process::End;
use gpu_wire::GpuVa;
use gpu_wire::packet::Encoded;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use umd_core::ffi::types::{FP_KIND_LOCAL, FP_KIND_SYSTEM};

pub(super) const CASES: &[Scenario] =
    &joined::<
        {
            OWN.len()
                + rings::CASES.len()
                + engines::CASES.len()
                + memory::CASES.len()
                + again::CASES.len()
                + refused::CASES.len()
                + pressure::CASES.len()
        },
    >(&[OWN, rings::CASES, engines::CASES, memory::CASES, again::CASES, refused::CASES, pressure::CASES]);

const OWN: &[Scenario] = &[
    Scenario {
        id: "RP-05",
        title: "the device loses its power: contexts are suspended, then doorbells disconnected, then memory moved out; \
                and back in the other order",
        source: "User-mode work submission, engine D-state transitions",
        play: order,
    },
    Scenario {
        id: "RP-06",
        title: "a doorbell that is connected while the device has no power wakes it, and its work runs",
        source: "User-mode work submission, engine D-state transitions",
        play: connected,
    },
    Scenario {
        id: "RP-19",
        title: "a process that makes what it needs, or ends, while the device has no power wakes it",
        source: "User-mode work submission, engine D-state transitions; that any call wakes the device is chosen",
        play: used_asleep,
    },
    Scenario {
        id: "RP-10",
        title: "power comes back, also from hibernation: page tables begin anew, and contents are what they were",
        source: "System paging process; DXGK_SEGMENTFLAGS, PreservedDuringStandby, PreservedDuringHibernate",
        play: anew,
    },
];

/// Bytes of an allocation of local memory.
pub(super) const SIZE: u64 = 64 << 10;

/// Whether the GPU finds `word` everywhere in local memory.
fn holds(device: &Device, local: &Allocation, word: u32) -> Played {
    let seen = device.allocate(FP_KIND_SYSTEM, SIZE, 0)?;
    let queue = device.queue(0, 4096, 0, 0)?;
    let (from, to) = (local.gpu_va()?, seen.gpu_va()?);
    let done = queue.run(|list| list.copy(from, to, SIZE))?;
    queue.wait(done, Some(PATIENCE))?;
    let twice = u64::from(word) << 32 | u64::from(word);
    same("words", (seen.read_u64(0)?, seen.read_u64(SIZE - 8)?), (twice, twice))
}

/// Local memory that the GPU fills with `word`, and copies to where the CPU reads it.
pub(super) fn fill(device: &Device, word: u32) -> Result<Allocation> {
    let local = device.allocate(FP_KIND_LOCAL, SIZE, 0)?;
    let queue = device.queue(0, 4096, 0, 0)?;
    let to = local.gpu_va()?;
    let done = queue.run(|list| list.fill(to, SIZE, word))?;
    queue.wait(done, Some(PATIENCE))?;
    holds(device, &local, word)?;
    Ok(local)
}

/// Bytes of local memory in use.
fn used(scene: &Scene) -> u64 {
    let report = scene.world.os.report();
    let segments = report.adapters.first().map(|adapter| adapter.segments.clone()).unwrap_or_default();
    segments.iter().find(|(id, ..)| *id == 2).map_or(0, |(_, used, _)| *used)
}

const SUSPEND: &str = "DxgkDdiSuspendContext";
const RESUME: &str = "DxgkDdiResumeContext";
const DISCONNECT: &str = "DxgkDdiDisconnectDoorbell";
const BUILD: &str = "DxgkDdiBuildPagingBuffer";
const POWER: &str = "DxgkDdiSetPowerState";

/// The driver's calls from the `from`th on.
fn all_calls(scene: &Scene, from: usize) -> Vec<&'static str> {
    scene.journal(&[SUSPEND, RESUME, DISCONNECT, BUILD, POWER]).split_off(from)
}

/// The same, each run of one function as one.
fn calls(scene: &Scene, from: usize) -> Vec<&'static str> {
    let mut calls = all_calls(scene, from);
    calls.dedup();
    calls
}

/// How many contexts were suspended and not resumed since. One that the watch for timeouts had asked already is not
/// asked again when the power goes.
fn suspended(scene: &Scene) -> usize {
    let calls = scene.journal_with_arguments(&[SUSPEND, RESUME]);
    let last: BTreeMap<_, _> = calls.iter().map(|call| (call.get("hContext"), call.name)).collect();
    last.values().filter(|name| **name == SUSPEND).count()
}

fn order(stage: &Stage) -> Played {
    for hibernates in [false, true] {
        let play = |scene: &Scene| {
            let process = raw(scene)?;
            let room = Room::new(&process)?;
            let memory = room.memory(scene, 4096)?;
            let ring = RingQueue::connected(scene, &room, 0, 65536)?;
            let rig = Client::open(scene, "owner")?;
            let local = fill(&rig.device, 7)?;
            let before = used(scene);
            // Work that is not done when the power goes, for longer than a timeout takes.
            let (gate, page, waits) = (rig.fence(0, true)?, rig.page()?, rig.queue(1)?);
            waits.run(|list| {
                list.wait(&gate, 1)?;
                list.store(page.at(0), 1)
            })?;
            // Work on each engine that would not end.
            let endless = [(rig.queue(0)?, Loop::new(&rig)?), (rig.queue(1)?, Loop::new(&rig)?)];
            for (queue, run) in &endless {
                queue.run(|list| list.indirect(run.address, run.length))?;
                run.begins(scene)?;
            }
            let from = scene.journal(&[SUSPEND, RESUME, DISCONNECT, BUILD, POWER]).len();
            scene.world.os.put_to_sleep(scene.adapter(), hibernates);
            // Each has a context of its own, and a doorbell that was connected.
            let queues = 2 + endless.len();
            let down = all_calls(scene, from);
            let disconnected = down.iter().filter(|call| **call == DISCONNECT).count();
            ensure!(disconnected >= queues, "{queues} queues: {down:?}");
            let suspended = suspended(scene);
            ensure!(suspended >= queues, "{queues} queues: {suspended} contexts are suspended, {down:?}");
            endless.iter().try_for_each(|(_, run)| run.forget())?;
            // Local memory keeps its content while the system stands by.
            let down =
                if hibernates { &[SUSPEND, DISCONNECT, BUILD, POWER][..] } else { &[SUSPEND, DISCONNECT, POWER] };
            same("down", calls(scene, from).as_slice(), down)?;
            same("local memory in use", used(scene), if hibernates { 0 } else { before })?;
            same("the doorbell", ring.status()?, RETRY)?;
            std::thread::park_timeout(Duration::from_millis(700));
            same("what runs without power", page.word(0)?, 0)?;
            for (_, run) in &endless {
                same("an endless buffer runs without power", run.runs()?, false)?;
            }
            let from = scene.journal(&[SUSPEND, RESUME, DISCONNECT, BUILD, POWER]).len();
            scene.world.os.wake_up(scene.adapter());
            same("up", calls(scene, from).as_slice(), &[POWER, BUILD, RESUME][..])?;
            same("local memory in use", used(scene), before)?;
            for (_, run) in &endless {
                run.begins(scene)?;
                run.end()?;
            }
            rig.signal(&[(&gate, 1)])?;
            page.until(scene, "work that waited", 0, 1)?;
            holds(&rig.device, &local, 7)?;
            ring.connect()?;
            ring.submit_through(&[store(memory.gpu, 9)])?;
            scene.until("work behind it", || Ok(process.load(memory.cpu)? == 9))
        };
        // An idle engine keeps its doorbell, so that each queue has one when the power goes.
        let setup = Setup::default().quick_tdr().setting("IdleMilliseconds", 0);
        stage.play(setup, play).with_context(|| format!("hibernates {hibernates}"))?;
    }
    Ok(())
}

fn connected(stage: &Stage) -> Played {
    const CREATE: &str = "DxgkDdiCreateDoorbell";
    const CONNECT: &str = "DxgkDdiConnectDoorbell";
    for (hibernates, creates) in [(false, false), (true, false), (false, true), (true, true)] {
        let play = |scene: &Scene| {
            let process = raw(scene)?;
            let room = Room::new(&process)?;
            let memory = room.memory(scene, 4096)?;
            let ring = RingQueue::connected(scene, &room, 0, 65536)?;
            let rig = Client::open(scene, "driver")?;
            let (queue, page) = (rig.queue(1)?, rig.page()?);
            queue.run(|list| list.store(page.at(0), 0))?;
            for round in 1..=3 {
                scene.world.os.put_to_sleep(scene.adapter(), hibernates);
                ensure!(scene.world.os.is_asleep(scene.adapter()), "the device has power");
                let from = scene.journal(&[CREATE, CONNECT]).len();
                ring.connect()?;
                ensure!(!scene.world.os.is_asleep(scene.adapter()), "the device has no power");
                let calls = scene.journal(&[CREATE, CONNECT]).split_off(from);
                same("the connection", calls.as_slice(), if creates { &[CREATE, CONNECT][..] } else { &[CONNECT] })?;
                ring.submit_through(&[store(memory.gpu, round)])?;
                scene.until("work of the ring", || Ok(process.load(memory.cpu)? == round))?;
                // The user-mode driver finds RETRY, and connects by itself.
                scene.world.os.put_to_sleep(scene.adapter(), hibernates);
                queue.run(|list| list.store(page.at(0), round))?;
                page.until(scene, "work of the user-mode driver", 0, round)?;
            }
            Ok(())
        };
        let setup = Setup::default().windows(|windows| windows.user_mode.creates_behind_d3 = creates);
        stage.play(setup, play).with_context(|| format!("hibernates {hibernates}, creates {creates}"))?;
    }
    Ok(())
}

fn anew(stage: &Stage) -> Played {
    // Who writes the tables of processes; whether the driver's device has registers without power.
    for (mode, hibernates) in [(2, false), (2, true), (0, true)] {
        let play = |scene: &Scene| {
            let rig = Client::open(scene, "owner")?;
            let local = fill(&rig.device, 7)?;
            let (queue, page, fence) = (rig.queue(1)?, rig.page()?, rig.fence(0, stage.rung() == 3)?);
            for round in 1..=3 {
                let before = scene.evaluations("DXG-PAGING-ANEW");
                scene.world.os.put_to_sleep(scene.adapter(), hibernates);
                scene.world.os.wake_up(scene.adapter());
                ensure!(scene.evaluations("DXG-PAGING-ANEW") >= before + 2, "page tables did not begin anew");
                queue.run(|list| {
                    list.store(page.at(0), round)?;
                    list.signal(&fence, round)
                })?;
                fence.wait(round, Some(PATIENCE))?;
                same("a word", page.word(0)?, round)?;
                holds(&rig.device, &local, 7)?;
                fill(&rig.device, 8)?;
            }
            Ok(())
        };
        let setup = Setup::default().setting("PageTableUpdateMode", mode);
        stage.play(setup, play).with_context(|| format!("mode {mode}, hibernates {hibernates}"))?;
    }
    Ok(())
}

/// Far more than any of it takes, far less than a wait without an end.
const SOON: Duration = Duration::from_secs(20);

fn used_asleep(stage: &Stage) -> Played {
    for hibernates in [false, true] {
        let play = |scene: &Scene| {
            let asleep = || {
                scene.world.os.put_to_sleep(scene.adapter(), hibernates);
                ensure!(scene.world.os.is_asleep(scene.adapter()), "the device has power");
                Ok(())
            };
            let (process, good) = (raw(scene)?, raw(scene)?);
            let (room, beside) = (Room::new(&process)?, Room::new(&good)?);
            let queue = RingQueue::connected(scene, &room, 0, 4096)?;
            asleep()?;
            // Published, and announced without a connection.
            let (progress, status) = queue.submit(&[])?;
            same("status without power", status, RETRY)?;
            queue.notify()?;
            queue.wait(scene, progress)?;
            asleep()?;
            let made = RingQueue::connected(scene, &room, 1, 4096)?;
            let progress = made.submit_through(&[])?;
            made.wait(scene, progress)?;
            let fence = process.native_fence(room.device, 0)?;
            made.submit_through(&[Encoded::fence_wait(GpuVa(fence.gpu), 1)])?;
            for how in [End::Terminated, End::Normal] {
                let ends = raw(scene)?;
                let its = Room::new(&ends)?;
                let last = RingQueue::connected(scene, &its, 0, 4096)?;
                let progress = last.submit_through(&[])?;
                last.wait(scene, progress)?;
                asleep()?;
                let begun = Instant::now();
                ends.process.finish(how);
                ensure!(begun.elapsed() < SOON, "{how:?}: the end took {:?}", begun.elapsed());
            }
            asleep()?;
            room.destroy(made.ring.handle)?;
            let other = RingQueue::connected(scene, &beside, 0, 4096)?;
            let progress = other.submit_through(&[])?;
            other.wait(scene, progress)?;
            process.signal_cpu(room.device, &[(fence.handle, 1)])?;
            made.wait(scene, made.last.get())
        };
        stage.play(Setup::default(), play).with_context(|| format!("hibernates {hibernates}"))?;
    }
    stage.play(Setup::default(), ends::beside_sleep).context("an end beside it")
}
