//! Queues whose ring goes before their doorbell, logs that are taken away, doorbells that run short.

use super::super::client::{Client, until_idle};
use super::super::db::{RETRY, RingQueue, Room, raw, store};
use super::super::raw::{ALL, duplicate};
use super::super::stage::patience;
use super::super::{Played, Raw, Scene, Setup, Stage, same};
use anyhow::{Context, Result, ensure};
use dxgkrnl_model::personality::{LogReplacement, MS, ProgressOpened};
use dxgkrnl_model::process::End;
use gpu_wire::GpuVa;
use gpu_wire::packet::{Encoded, Fill};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use wddm_abi::D3DDDI_CREATECONTEXTFLAGS;
use wddm_abi::DXGK_INTERRUPT_TYPE as Type;
use wddm_abi::ntstatus::STATUS_SUCCESS;

/// Page faults of hardware queues that the first adapter has reported.
fn faults(scene: &Scene) -> u64 {
    let report = scene.world.os.report();
    let kinds = report.adapters.first().map(|adapter| adapter.kinds.clone()).unwrap_or_default();
    kinds.get(&Type::DXGK_INTERRUPT_HWQUEUE_PAGE_FAULTED).copied().unwrap_or(0)
}

pub(super) fn rings_first(stage: &Stage) -> Played {
    for first in [true, false] {
        for model in [0, 1] {
            let setup = Setup::default().setting("DoorbellModel", model).windows(|windows| windows.rings_first = first);
            let play = |scene: &Scene| {
                for round in 1..6 {
                    let raw = raw(scene)?;
                    let room = Room::new(&raw)?;
                    let memory = room.memory(scene, 4096)?;
                    for node in 0..2 {
                        let queue = RingQueue::connected(scene, &room, node, 4096)?;
                        let progress = queue.submit_through(&[store(memory.gpu, round)])?;
                        queue.wait(scene, progress)?;
                    }
                    // The process ends with its doorbells connected.
                }
                same("faults of queues that did nothing wrong", faults(scene), 0)
            };
            stage.play(setup.clone(), play).with_context(|| format!("rings first: {first}, doorbell model {model}"))?;
            let of = || format!("work under way, rings first: {first}, doorbell model {model}");
            stage.play(setup, |scene| ends_at_work(scene, first)).with_context(of)?;
        }
    }
    Ok(())
}

/// Bytes that each queue still has to fill when its process ends, some milliseconds of work.
const UNDER_WAY: u64 = 256 << 20;

/// A process with two devices ends while a queue of each works: all that was submitted is done, whichever of them was
/// waited for first, and no ring was touched before that. Rings go first in both ends.
fn ends_at_work(scene: &Scene, first: bool) -> Played {
    const GOES: [&str; 2] = ["DxgkDdiDestroyDoorbell", "DxgkDdiCloseAllocation"];
    let witness = raw(scene)?;
    let seen_by = Room::new(&witness)?;
    let mut amid = 0;
    // On a busy machine a round may come to its end too late.
    for round in 1..50 {
        let raw = raw(scene)?;
        let rooms = [Room::new(&raw)?, Room::new(&raw)?];
        let (mut fences, mut work) = (Vec::new(), Vec::new());
        for room in &rooms {
            let memory = room.memory(scene, 1 << 20)?;
            let queue = RingQueue::connected(scene, room, 0, 64 << 10)?;
            let fence = witness.shared_native_fence(seen_by.device, 0)?;
            let shared = duplicate(witness.share(fence.handle, ALL)?, &witness.process, &raw.process)?;
            let opened = raw.open_native_fence(room.device, shared)?;
            let fill = Fill { address: memory.gpu, length: memory.size, pattern: round, reserved: 0 }.to_packet();
            // CAST: 64.
            let mut packets = vec![fill; (UNDER_WAY / memory.size) as usize];
            packets.push(Encoded::fence_signal(GpuVa(opened.gpu), round.into()));
            fences.push(fence);
            work.push((queue, packets));
        }
        work.iter().try_for_each(|(queue, packets)| queue.submit(packets).map(|_| ()))?;
        let done = fences.iter().map(|fence| Ok(witness.load(fence.cpu)?)).collect::<Result<Vec<_>>>()?;
        amid += u32::from(done == [0, 0]);
        drop(work);
        // With its doorbells connected.
        let process = Arc::into_inner(raw.process).context("another owner of the process")?;
        // Every third is terminated, of which nothing is waited for.
        let how = if round % 3 == 0 { End::Terminated } else { End::Normal };
        let from = scene.journal(&GOES).len();
        process.end(how);
        let gone = scene.journal(&GOES).get(from).copied();
        same("what goes first", gone, Some(GOES[usize::from(first)])).with_context(|| format!("{how:?}"))?;
        if how == End::Terminated {
            continue;
        }
        for fence in &fences {
            same("what its queues have signaled", witness.load(fence.cpu)?, round.into())?;
        }
        if amid >= 4 {
            break;
        }
    }
    ensure!(amid >= 4, "{amid} processes ended at work");
    same("faults of queues that did nothing wrong", faults(scene), 0)
}

pub(super) fn logs(stage: &Stage) -> Played {
    for replacement in [LogReplacement::Null, LogReplacement::NoEntries, LogReplacement::NewFirst] {
        for optimized in [0, 1] {
            let setup = Setup::default().setting("OptimizedInterrupt", optimized);
            let setup = setup.windows(|windows| windows.log_replacement = replacement);
            let play = |scene: &Scene| {
                let rig = Client::open(scene, "client")?;
                let (queue, fence) = (rig.queue(0)?, rig.fence(0, true)?);
                for value in 1..20 {
                    queue.run(|list| list.signal(&fence, value))?;
                    until_idle(scene, &queue)?;
                    scene.world.os.recreate_fence_logs(scene.adapter());
                }
                let signals = scene.world.os.report().log.iter().filter(|entry| !entry.is_wait_log).count();
                ensure!(signals >= 19, "{signals} signals are in the logs");
                Ok(())
            };
            stage.play(setup, play).with_context(|| format!("{replacement:?}, optimized interrupt {optimized}"))?;
        }
    }
    Ok(())
}

pub(super) fn short_of_doorbells(stage: &Stage) -> Played {
    for physical in [1, 2] {
        for time in [0, MS] {
            let setup = Setup::default().setting("PhysicalDoorbells", physical);
            let setup = setup.windows(|windows| windows.disconnect_time = time);
            let what = || format!("{physical} physical doorbells, {time} ticks to take one away");
            stage.play(setup, contended).with_context(what)?;
        }
    }
    Ok(())
}

/// Threads that connect, and one that destroys what is connected: each connection succeeds.
fn contended(scene: &Scene) -> Played {
    std::thread::scope(|scope| {
        let connecting = |node| {
            move || -> Played {
                let raw = raw(scene)?;
                let room = Room::new(&raw)?;
                let queues = [0, 1].map(|_| RingQueue::new(scene, &room, node, 4096));
                let [one, two] = queues;
                let queues = [one?, two?];
                for _ in 0..60 {
                    for queue in &queues {
                        queue.connect().context("connect")?;
                        let progress = queue.submit_through(&[])?;
                        // The other thread may have taken the doorbell away before the ring.
                        while queue.ring()? == RETRY {
                            queue.connect().context("connect again")?;
                        }
                        queue.wait(scene, progress)?;
                    }
                }
                Ok(())
            }
        };
        let destroying = move || -> Played {
            let raw = raw(scene)?;
            let room = Room::new(&raw)?;
            for _ in 0..40 {
                let queue = RingQueue::connected(scene, &room, 0, 4096)?;
                queue.destroy_bell().context("destroy")?;
            }
            Ok(())
        };
        let threads = [scope.spawn(connecting(0)), scope.spawn(connecting(1))];
        let destroyed = scope.spawn(destroying);
        for thread in threads.into_iter().chain([destroyed]) {
            thread.join().map_err(|_| anyhow::anyhow!("a thread ended by itself"))??;
        }
        Ok(())
    })
}

/// How long the OS takes to disconnect a doorbell in [`waits_for_doorbells`]: longer than a driver may have patience.
const SLOW: u64 = 1_500 * MS;

pub(super) fn waits_for_doorbells(stage: &Stage) -> Played {
    for physical in [1, 2] {
        let setup = Setup::default().setting("PhysicalDoorbells", physical);
        // CAST: 1 or 2.
        let play = |scene: &Scene| all_change_hands(scene, physical as usize);
        stage
            .play(setup.windows(|windows| windows.disconnect_time = SLOW), play)
            .with_context(|| format!("{physical} physical doorbells"))?;
    }
    // Where the OS holds a lock, the doorbell is destroyed before the callback has searched for it.
    for destroys_locked in [false, true] {
        let setup = Setup::default().setting("PhysicalDoorbells", 1).windows(|windows| {
            (windows.destroys_locked, windows.disconnect_time) = (destroys_locked, 2 * SLOW);
        });
        let gone = stage.play(setup, gone_meanwhile);
        gone.with_context(|| format!("the device goes while a connection waits, a lock held: {destroys_locked}"))?;
    }
    Ok(())
}

/// A connection on a thread of its own, by a process of its own. `taking` is counted up before it begins.
fn connects(scene: &Scene, taking: &AtomicUsize) -> Played {
    let raw = raw(scene)?;
    let room = Room::new(&raw)?;
    let queue = RingQueue::new(scene, &room, 0, 4096)?;
    taking.fetch_add(1, Ordering::SeqCst);
    queue.connect().context("connect")?;
    let progress = queue.submit_through(&[])?;
    // Another thread may have taken the doorbell before the ring.
    while queue.ring()? == RETRY {
        queue.connect().context("connect again")?;
    }
    queue.wait(scene, progress)
}

/// Every doorbell is connected; two more connections than there are doorbells take them, and one of these waits for
/// another's.
fn all_change_hands(scene: &Scene, physical: usize) -> Played {
    let raw = raw(scene)?;
    let room = Room::new(&raw)?;
    let queues: Vec<_> = (0..physical).map(|_| RingQueue::connected(scene, &room, 0, 4096)).collect();
    queues.into_iter().collect::<anyhow::Result<Vec<_>>>()?;
    let taking = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..=physical).map(|_| scope.spawn(|| connects(scene, &taking))).collect();
        threads.into_iter().try_for_each(|thread| {
            thread.join().map_err(|_| anyhow::anyhow!("a thread ended by itself")).and_then(|played| played)
        })
    })
}

/// The device goes while one thread is in the OS to take the only doorbell and another waits for that: the second does
/// not wait for the first. No process ends meanwhile.
fn gone_meanwhile(scene: &Scene) -> Played {
    let (owner, others) = (raw(scene)?, [raw(scene)?, raw(scene)?]);
    let room = Room::new(&owner)?;
    let _connected = RingQueue::connected(scene, &room, 0, 4096)?;
    let (taking, ended) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let connect = |raw: &Raw| -> Played {
        let room = Room::new(raw)?;
        let queue = RingQueue::new(scene, &room, 0, 4096)?;
        taking.fetch_add(1, Ordering::SeqCst);
        Ok(queue.connect()?)
    };
    let connecting = |name: &'static str, raw: &Raw| {
        let connected = connect(raw);
        ended.lock().unwrap_or_else(PoisonError::into_inner).push((name, connected.is_ok()));
    };
    std::thread::scope(|scope| -> Played {
        scope.spawn(|| connecting("taking", &others[0]));
        scene.until("the first connection", || Ok(taking.load(Ordering::SeqCst) == 1))?;
        std::thread::park_timeout(Duration::from_millis(100));
        scope.spawn(|| connecting("waiting", &others[1]));
        scene.until("the second connection", || Ok(taking.load(Ordering::SeqCst) == 2))?;
        std::thread::park_timeout(Duration::from_millis(100));
        let status = scene.world.os.remove_by_surprise(scene.adapter()).context("the driver was not told")?;
        same("the answer", status, STATUS_SUCCESS)
    })?;
    let ended = ended.into_inner().unwrap_or_else(PoisonError::into_inner);
    same("which ended first, and whether it got a doorbell", ended.first().copied(), Some(("waiting", false)))
}

pub(super) fn destroyed_while_taken(stage: &Stage) -> Played {
    // Where the OS holds a lock, the destruction begins in front of the callback's search for the doorbell.
    for (destroys_locked, time) in [(false, SLOW), (true, 300 * MS)] {
        let setup = Setup::default().setting("PhysicalDoorbells", 1).windows(|windows| {
            (windows.destroys_locked, windows.disconnect_time) = (destroys_locked, time);
        });
        let taken = stage.play(setup, destroyed_beside_taker);
        taken.with_context(|| format!("destroyed with a lock held: {destroys_locked}"))?;
    }
    Ok(())
}

fn destroyed_beside_taker(scene: &Scene) -> Played {
    let raw = raw(scene)?;
    let room = Room::new(&raw)?;
    let victim = RingQueue::connected(scene, &room, 0, 4096)?;
    let taking = AtomicUsize::new(0);
    std::thread::scope(|scope| -> Played {
        let taker = scope.spawn(|| connects(scene, &taking));
        scene.until("the connection", || Ok(taking.load(Ordering::SeqCst) == 1))?;
        // The driver is in the callback by then, or the victim goes before: that is no mistake either.
        std::thread::park_timeout(Duration::from_millis(100));
        victim.destroy_bell()?;
        taker.join().map_err(|_| anyhow::anyhow!("a thread ended by itself"))?
    })
}

pub(super) fn null_rendering(stage: &Stage) -> Played {
    for rung in [3, 1, 0] {
        // A progress fence that the driver was not told of has waiters of which the driver knows nothing.
        for opened in [ProgressOpened::Before, ProgressOpened::Never] {
            let setup = Setup::default().setting("MaxRung", rung);
            let setup = setup.windows(|windows| windows.user_mode.progress_opened = opened);
            stage.play(setup, renders_nothing).with_context(|| format!("rung {rung}, opened {opened:?}"))?;
        }
    }
    Ok(())
}

/// Command buffers of a context with NullRendering complete, whatever they hold, and nothing of them runs.
fn renders_nothing(scene: &Scene) -> Played {
    let raw = raw(scene)?;
    let room = Room::new(&raw)?;
    let memory = room.memory(scene, 4096)?;
    // A store, and an address that nothing is mapped to.
    let list = store(memory.gpu, 7);
    memory.write(&raw, 64, list.as_bytes())?;
    let length = u32::try_from(list.as_bytes().len())?;
    let buffers = [(memory.gpu + 64, length), (1 << 40, 64)];
    let mut flags = D3DDDI_CREATECONTEXTFLAGS::zeroed();
    flags.set_NullRendering(true);
    if scene.adapter().caps().context("caps")?.has_hardware_scheduling() {
        flags.set_HwQueueSupported(true);
        let context = room.context_with(0, flags).context("context")?;
        let queue = room.queue_in(context, false).context("queue")?;
        for (progress, (address, length)) in (1..).zip(buffers) {
            let (event, handle) = raw.event();
            raw.wait_cpu(room.device, &[(queue.progress.handle, progress)], false, Some(handle))?;
            room.submit(queue.handle, address, length, progress)?;
            ensure!(raw.wait_event(&event, patience()), "a wait for {progress} did not end");
            raw.close(handle);
            same("the fence", raw.load(queue.progress.cpu)?, progress)?;
        }
    } else {
        let context = room.context_with(0, flags).context("context")?;
        let fence = raw.monitored_fence(room.device, 0, false)?;
        for (value, (address, length)) in (1..).zip(buffers) {
            raw.submit_command(context, address, length)?;
            raw.context_signal(context, fence.handle, value)?;
            scene.until("the fence", || Ok(raw.load(fence.cpu)? == value))?;
        }
    }
    same("what the buffer would have stored", raw.load(memory.cpu)?, 0)?;
    same("the device", room.is_active()?, true)
}
