//! Hostile streams, addresses and arguments, and memory that runs out.

use super::worker::Worker;
use crate::demo::counters;
use crate::fuzz::dice::Dice;
use crate::scenario::db::{RingQueue, Room, raw, store};
use crate::scenario::stage::PATIENCE;
use crate::scenario::{Denied, Played, Scenario, Scene, Setup, Stage, same};
use anyhow::{Context, ensure};
use dxgkrnl_model::personality::MS;
use dxgkrnl_model::process::End;
use gpu_wire::GpuVa;
use gpu_wire::packet::{Copy, Encoded, FaultKind, MonitoredSignal, Timestamp};
use gpu_wire::ring::{FAULT_ADDRESS, FAULT_KIND};
use kmd_core::time_stamp::is_invariant;
use umd_core::ffi::types::{FP_KIND_LOCAL, FP_KIND_SYSTEM};
use wddm_abi::ntstatus::STATUS_DEVICE_REMOVED;

pub(super) const CASES: &[Scenario] = &[
    Scenario {
        id: "BI-14",
        title: "random and damaged packets stop their own device only",
        source: "User-mode work submission, Residency model (device-lost scenarios)",
        play: packets,
    },
    Scenario {
        id: "BI-15",
        title: "random GPU addresses and driver protections: translation faults, and nothing else",
        source: "DXGKARGCB_NOTIFY_INTERRUPT_DATA, HwQueuePageFaulted; D3DDDI_MAPGPUVIRTUALADDRESS",
        play: addresses,
    },
    Scenario {
        id: "BI-17",
        title: "the nth allocation fails, at start and in use: a clean refusal, nothing left behind",
        source: "DxgkDdiStartDevice, Return value; DxgkDdiCreateDevice, Return value",
        play: no_memory,
    },
    Scenario {
        id: "BI-18",
        title: "random arguments of every D3DKMT function",
        source: "D3DKMT functions, Return value",
        play: thunks,
    },
    Scenario { id: "BI-19", title: "no DDI takes longer than 250 ms", source: "Windows HLK, PoliceDdi", play: police },
    Scenario {
        id: "BI-21",
        title: "the GPU's clock: calibrated at DISPATCH_LEVEL, between two readings of the processor's",
        source: "DxgkDdiCalibrateGpuClock; DXGK_GPUCLOCKDATA",
        play: clock,
    },
    Scenario {
        id: "BI-41",
        title: "memory runs out while paging: it completes all the same",
        source: "DxgkDdiBuildPagingBuffer, Return value; bug check 0x10E",
        play: paging,
    },
    Scenario {
        id: "BI-42",
        title: "work that cannot run: an error of its device, and later work of others goes on",
        source: "DxgkDdiSubmitCommandVirtual, Return value; DxgkDdiSubmitCommandToHwQueue; bug check 0x119",
        play: refused_work,
    },
];

/// Packets that are right, to be damaged.
fn sound(gpu: u64, fence: u64) -> Vec<Encoded> {
    vec![
        store(gpu, 1),
        Copy { source: gpu, destination: gpu + 2048, length: 64 }.to_packet(),
        Timestamp { address: gpu + 8 }.to_packet(),
        Encoded::fence_signal(GpuVa(fence), 1),
        Encoded::nop(8),
    ]
}

fn packets(stage: &Stage) -> Played {
    in_buffers(stage)?;
    if stage.rung() < 3 {
        return Ok(());
    }
    stage.play(Setup::default().quick_tdr(), |scene| {
        let raw = raw(scene)?;
        let good_room = Room::new(&raw)?;
        let good = RingQueue::connected(scene, &good_room, 0, 4096)?;
        let mut dice = Dice::new(stage.seed() ^ 0xB1_14);
        let mut lost = 0;
        for round in 0..40 {
            let room = Room::new(&raw)?;
            let queue = RingQueue::connected(scene, &room, 0, 4096)?;
            let memory = room.memory(scene, 4096)?;
            let fence = raw.native_fence(room.device, 0)?;
            let mut bytes = Vec::new();
            if round % 2 == 0 {
                (0..64).for_each(|_| bytes.extend_from_slice(&dice.draw().to_le_bytes()));
            } else {
                sound(memory.gpu, fence.gpu).iter().for_each(|packet| bytes.extend_from_slice(packet.as_bytes()));
                for _ in 0..3 {
                    let at = usize::try_from(dice.draw())? % bytes.len();
                    bytes[at] ^= 1 << (dice.draw() % 8);
                }
            }
            queue.write(&bytes)?;
            queue.publish()?;
            queue.ring()?;
            scene.until("an end", || Ok(!room.is_active()? || queue.retired()? == queue.written.get()))?;
            if !room.is_active()? {
                lost += 1;
                let kind = raw.load(queue.control.cpu + FAULT_KIND)?;
                ensure!(FaultKind::from_raw(u32::try_from(kind)?).is_some(), "the report says {kind}");
            }
            let progress = good.submit_through(&[]).context("the other device")?;
            good.wait(scene, progress)?;
            raw.destroy_device(room.device)?;
        }
        ensure!(lost >= 20, "{lost} of 40 devices were lost");
        same("the other device", good_room.is_active()?, true)
    })
}

/// The same in command buffers, which every rung has.
fn in_buffers(stage: &Stage) -> Played {
    // Nothing hangs, and no timeout is wanted, however busy the machine is.
    stage.play(Setup::default(), |scene| {
        let good = Worker::new(scene, "good", 0)?;
        let mut dice = Dice::new(stage.seed() ^ 0xB1_14);
        let mut lost = 0;
        for round in 0..20 {
            let bad = Worker::new(scene, "bad", round % 2)?;
            let (memory, mut bytes) = (bad.at(8), Vec::new());
            if round % 3 == 0 {
                (0..64).for_each(|_| bytes.extend_from_slice(&dice.draw().to_le_bytes()));
            } else {
                let right = [
                    store(memory, 1),
                    Copy { source: memory, destination: memory + 512, length: 64 }.to_packet(),
                    Timestamp { address: memory + 8 }.to_packet(),
                    Encoded::nop(8),
                ];
                right.iter().for_each(|packet| bytes.extend_from_slice(packet.as_bytes()));
                for _ in 0..3 {
                    let at = usize::try_from(dice.draw())? % bytes.len();
                    bytes[at] ^= 1 << (dice.draw() % 8);
                }
            }
            bad.submit(&bytes)?;
            bad.ends(scene)?;
            lost += u32::from(!bad.is_active()?);
            good.run(scene, &[]).context("the other device")?;
        }
        ensure!(lost >= 8, "{lost} of 20 devices were lost");
        same("the other device", good.is_active()?, true)
    })
}

/// Random addresses of command buffers, which every rung has.
fn from_buffers(stage: &Stage) -> Played {
    // Nothing hangs, and no timeout is wanted, however busy the machine is.
    stage.play(Setup::default(), |scene| {
        let (good, theirs) = (Worker::new(scene, "good", 0)?, Worker::new(scene, "another", 1)?);
        let mut dice = Dice::new(stage.seed() ^ 0xB1_15);
        for round in 0..24 {
            let bad = Worker::new(scene, "bad", round % 2)?;
            let address = match round % 4 {
                0 => dice.draw() & !7,
                1 => dice.draw() & 0x0000_FFFF_FFFF_FFF8,
                // Another process's, in this one's space.
                2 => theirs.at(0) + (1 << 30),
                _ => 0,
            };
            bad.submit(store(address, 1).as_bytes())?;
            scene.until("the device's error", || Ok(!bad.is_active()?)).with_context(|| format!("{address:#x}"))?;
            good.run(scene, &[])?;
        }
        same("the other process's memory", theirs.word(0)?, 0)?;
        same("recoveries", scene.adapter().recoveries().len(), 0)
    })
}

fn addresses(stage: &Stage) -> Played {
    from_buffers(stage)?;
    if stage.rung() < 3 {
        return Ok(());
    }
    stage.play(Setup::default().quick_tdr(), |scene| {
        let raw = raw(scene)?;
        let good_room = Room::new(&raw)?;
        let good = RingQueue::connected(scene, &good_room, 0, 4096)?;
        let foreign = crate::scenario::db::raw(scene)?;
        let foreign_room = Room::new(&foreign)?;
        let theirs = foreign_room.memory(scene, 1 << 20)?;
        let mut dice = Dice::new(stage.seed() ^ 0xB1_15);
        for round in 0..24 {
            let room = Room::new(&raw)?;
            let queue = RingQueue::connected(scene, &room, 0, 4096)?;
            let memory = room.memory(scene, 4096)?;
            // The driver's own bits of a mapping are user mode's: they must change nothing but what they may.
            let twice = room.map(scene, memory.handle, dice.draw())?;
            let progress = queue.submit_through(&[store(twice + 64, 0x77)])?;
            queue.wait(scene, progress)?;
            same("through the second mapping", raw.load(memory.cpu + 64)?, 0x77)?;
            let fence = raw.native_fence(room.device, 0)?;
            let address = match round % 6 {
                0 => dice.draw() & !7,
                1 => dice.draw() & 0x0000_FFFF_FFFF_FFF8,
                2 => twice + 0x4000_0000_0000,
                // Another process's, in this one's space.
                3 => theirs.gpu + (1 << 30),
                // User mode may not write what CPU waiters rely on.
                4 => fence.monitored,
                _ => 0,
            };
            queue.submit(&[store(address, 1)])?;
            room.lost_by_page_fault(scene)?;
            let kind = raw.load(queue.control.cpu + FAULT_KIND)?;
            let wanted = [FaultKind::Address.raw().into(), FaultKind::BadOperand.raw().into()];
            ensure!(wanted.contains(&kind), "{address:#x}: fault {kind}");
            if kind == wanted[0] {
                same("the reported address", raw.load(queue.control.cpu + FAULT_ADDRESS)?, address)?;
            }
            let progress = good.submit_through(&[])?;
            good.wait(scene, progress)?;
            raw.destroy_device(room.device)?;
        }
        for word in (0..1 << 20).step_by(4096) {
            same("the other process's memory", foreign.load(theirs.cpu + word)?, 0)?;
        }
        Ok(())
    })
}

/// Everything that a process does, as far as it gets.
fn life(scene: &Scene) -> Played {
    let user = scene.process("client")?;
    let adapter = user.open()?;
    let device = adapter.device()?;
    let memory = device.allocate(FP_KIND_SYSTEM, 4096, 0)?;
    let local = device.allocate(FP_KIND_LOCAL, 64 << 10, 0)?;
    let queue = device.queue(0, 4096, 0, 0)?;
    let fence = device.fence(0, 0)?;
    let (at, there) = (memory.gpu_va()?, local.gpu_va()?);
    queue.run(|list| {
        list.store(at, 5)?;
        list.copy(at, there, 4096)?;
        list.signal(&fence, 1)
    })?;
    fence.wait(1, PATIENCE)?;
    queue.wait(0, PATIENCE)?;
    same("memory", memory.read_u64(0)?, 5)
}

fn no_memory(stage: &Stage) -> Played {
    // A plan that never comes due: starts that fail are excused.
    let setup = || Setup::default().windows(|w| w.faults.allocation = u64::MAX);
    stage.play(setup(), |scene| {
        let kernel = scene.world.os.kernel();
        let (mut failed, mut refusals) = (0, 0);
        let mut nth = 1;
        while nth < 600 {
            kernel.fail_allocation(nth);
            refusals += u32::from(life(scene).is_err());
            failed += u32::from(kernel.allocations_until_failure() == 0);
            kernel.fail_allocation(0);
            nth += 1 + nth / 12;
        }
        // Linked in, the driver's own objects are the process's memory: what fails are mappings, which engines wait
        // for.
        let due = if stage.is_native() { 0 } else { 2 };
        ensure!(failed >= 10 && refusals >= due, "{failed} allocations failed, {refusals} refusals");
        life(scene).context("with memory again")
    })?;
    stage.play(setup(), |scene| {
        let kernel = scene.world.os.kernel();
        scene.world.os.stop_adapter(scene.adapter());
        let mut refusals = 0;
        let mut nth = 1;
        while nth < 200 {
            kernel.fail_allocation(nth);
            let started = scene.world.os.restart_adapter(scene.adapter());
            kernel.fail_allocation(0);
            match started {
                Ok(()) => scene.world.os.stop_adapter(scene.adapter()),
                Err(_) => refusals += 1,
            }
            nth += 1 + nth / 12;
        }
        ensure!(refusals >= 3, "{refusals} starts failed");
        scene.world.os.restart_adapter(scene.adapter())?;
        life(scene).context("with memory again")
    })
}

/// Functions that may wait for what never happens, when they are asked to.
const BLOCKING: [&str; 5] = [
    "D3DKMTWaitForSynchronizationObjectFromCpu",
    "D3DKMTWaitForSynchronizationObjectFromGpu",
    "D3DKMTSubmitWaitForSyncObjectsToHwQueue",
    "D3DKMTShareObjects",
    "D3DKMTCloseAdapter",
];

fn thunks(stage: &Stage) -> Played {
    stage.play(Setup::default().quick_tdr(), |scene| {
        let names: Vec<_> = dxgkrnl_model::thunks::implemented();
        ensure!(names.len() > 40, "{} functions", names.len());
        let good = Worker::new(scene, "good", 0)?;
        let mut dice = Dice::new(stage.seed() ^ 0xB1_18);
        for _ in 0..6 {
            let raw = raw(scene)?;
            let room = Room::new(&raw)?;
            // What submits on this rung: a queue for doorbells, a hardware queue, a packet context.
            let ring = if stage.rung() == 3 { Some(RingQueue::connected(scene, &room, 0, 4096)?) } else { None };
            let (queue, context) = match (&ring, stage.rung()) {
                (Some(ring), _) => (ring.queue.handle, ring.queue.context),
                (None, 0) => (0, room.packet_context(0)?),
                (None, _) => room.queue(0, false).map(|queue| (queue.handle, queue.context))?,
            };
            let memory = room.memory(scene, 8192)?;
            let handles = [raw.adapter, room.device, room.paging(), queue, context, memory.handle];
            for name in names.iter().filter(|name| !BLOCKING.contains(name)) {
                for _ in 0..3 {
                    for word in (0..512).step_by(8) {
                        let random = dice.draw();
                        let handle = handles[usize::try_from(random % 6)?];
                        // Numbers of all sizes, handles, pointers that are good and that are not.
                        let value = match random >> 40 & 7 {
                            0 => 0,
                            1 => u64::from(handle),
                            2 => u64::from(handle) << 32 | random & 7,
                            3 => memory.cpu as u64 + 4096,
                            4 => random & 0xFF,
                            5 => random & 0xFFFF_FFFF,
                            _ => random,
                        };
                        raw.store(memory.cpu + word, value)?;
                    }
                    let _ = raw.call_by_name(name, memory.cpu);
                    if raw.load(memory.cpu).is_err() {
                        break;
                    }
                }
                if raw.load(memory.cpu).is_err() {
                    break;
                }
            }
            good.run(scene, &[])?;
            let process = std::sync::Arc::into_inner(raw.process).context("the only owner")?;
            process.end(End::Terminated);
        }
        same("the other process", good.is_active()?, true)
    })
}

/// The limit is the kit's, and known by its name alone. Of the documents' limit, TdrDdiDelay, what waits for an engine
/// that never answers takes a tenth (`kmd/core/src/reset.rs`: `PATIENCE`); here every engine answers, as in the kit's
/// jobs. TE-76 plays resets under both.
fn police(stage: &Stage) -> Played {
    // A small segment: what StartDevice takes to allocate is the host's.
    let setup = Setup::default().setting("LocalSegmentSize", 16 << 20).windows(|w| w.police_ddi = 250 * MS);
    stage.play(setup, |scene| {
        for _ in 0..3 {
            life(scene)?;
            scene.world.os.stop_adapter(scene.adapter());
            scene.world.os.restart_adapter(scene.adapter())?;
        }
        let timed = scene.evaluations("DXG-DDI-TIME");
        ensure!(timed > 300, "{timed} calls were timed");
        Ok(())
    })
}

/// Whichever counter the GPU's clock is.
fn clock(stage: &Stage) -> Played {
    clock_by(stage, 0)?;
    clock_by(stage, 1)
}

fn clock_by(stage: &Stage, time_stamps: u32) -> Played {
    stage.play(Setup::default().setting("TimeStamps", time_stamps), |scene| {
        let worker = Worker::new(scene, "client", 0)?;
        let frequency = scene.world.os.kernel().performance_frequency();
        for _ in 0..50 {
            let before = scene.world.os.calibrate_gpu_clock(scene.adapter(), 0).context("a calibration")?;
            worker.run(scene, &[Timestamp { address: worker.at(1) }.to_packet()])?;
            let stamp = worker.word(1)?;
            let after = scene.world.os.calibrate_gpu_clock(scene.adapter(), 0).context("a calibration")?;
            ensure!((before.gpu..=after.gpu).contains(&stamp), "{stamp} outside of {before:?}..{after:?}");
            ensure!(before.cpu <= after.cpu, "{before:?}, {after:?}");
            // Both clocks went on by the same time, to a millisecond.
            let gpu = i128::from(after.gpu - before.gpu) * 1_000_000 / i128::from(after.frequency);
            let cpu = i128::from(after.cpu - before.cpu) * 1_000_000 / i128::from(frequency);
            ensure!((gpu - cpu).abs() < 1000, "{gpu} µs by the GPU, {cpu} µs by the processor");
        }
        // And at the frequency that is said, to a thousandth.
        let calibrate = || scene.world.os.calibrate_gpu_clock(scene.adapter(), 0).context("a calibration");
        let begin = calibrate()?;
        let mut end = begin;
        scene.until("a tenth of a second", || {
            end = calibrate()?;
            Ok(end.cpu - begin.cpu >= frequency / 10)
        })?;
        let passed = i128::from(end.cpu - begin.cpu) * i128::from(end.frequency) / i128::from(frequency);
        let error = (i128::from(end.gpu - begin.gpu) - passed).abs();
        ensure!(error * 1000 < passed, "{error} of {passed} ticks amiss at {} Hz", end.frequency);
        let uses_stamps = end.frequency != frequency;
        let wanted = time_stamps == 1 && is_invariant();
        ensure!(uses_stamps == wanted || stage.sets("TimeStamps"), "the clock counts {} Hz", end.frequency);
        Ok(())
    })
}

fn paging(stage: &Stage) -> Played {
    stage.play(Setup::default().windows(|w| w.faults.allocation = u64::MAX), |scene| {
        let kernel = scene.world.os.kernel();
        let before = scene.calls("DxgkDdiBuildPagingBuffer");
        let (mut failed, mut made) = (0, 0);
        for nth in 1..=40 {
            // A process of its own: page tables that no engine has seen.
            kernel.fail_allocation(nth);
            let begun = raw(scene);
            let room = begun.as_ref().ok().and_then(|raw| Room::new(raw).ok());
            let memory = room.as_ref().and_then(|room| room.memory(scene, 64 << 10).ok());
            failed += u32::from(kernel.allocations_until_failure() == 0);
            kernel.fail_allocation(0);
            let (Some(room), Some(memory)) = (room, memory) else { continue };
            made += 1;
            // Whatever was mapped is mapped. By a packet, on the node that takes packets on every rung.
            let what = || format!("with the {nth}th");
            let (last, packet) = (memory.size - 8, store(memory.gpu + memory.size - 8, nth));
            memory.write(room.raw, 0, packet.as_bytes())?;
            let context = room.packet_context(2).with_context(what)?;
            room.raw.submit_command(context, memory.gpu, u32::try_from(packet.as_bytes().len())?).with_context(what)?;
            // CAST: below 64 KiB.
            scene
                .until("the last word", || Ok(room.raw.load(memory.cpu + last as usize)? == nth))
                .with_context(what)?;
        }
        let built = scene.calls("DxgkDdiBuildPagingBuffer") - before;
        ensure!(failed >= 8 && made >= 8 && built >= 80, "{failed} failed, {made} made, {built} paging buffers");
        Ok(())
    })
}

fn refused_work(stage: &Stage) -> Played {
    // What user mode may name as a command buffer, beside a good one at `good`.
    let wrong = |good: u64| [(good + 4, 8), (good, 12), (good, 0x8000_0000), (0, 64), (u64::MAX - 7, 64), (1 << 47, 8)];
    let queues = |scene: &Scene| -> Played {
        let raw = raw(scene)?;
        let good_room = Room::new(&raw)?;
        let good_memory = good_room.memory(scene, 4096)?;
        let good = good_room.queue(0, false)?;
        let is_native = scene.adapter().caps().is_some_and(|caps| caps.has_native_fences());
        let address = good.progress.gpu;
        let end = |value| match is_native {
            true => Encoded::fence_signal(GpuVa(address), value),
            false => MonitoredSignal { address, value }.to_packet(),
        };
        good_memory.write(&raw, 0, Encoded::nop(8).as_bytes())?;
        for (round, (address, length)) in (1..).zip(wrong(good_memory.gpu)) {
            let room = Room::new(&raw)?;
            let queue = room.queue(0, false)?;
            room.submit(queue.handle, address, length, 1).context("user mode's call succeeds")?;
            scene.until("the device's error", || Ok(!room.is_active()?))?;
            let refused = room.submit(queue.handle, good_memory.gpu, 8, 2);
            same("afterwards", refused, Err(Denied(STATUS_DEVICE_REMOVED)))?;
            good_memory.write(&raw, 64, end(round).as_bytes())?;
            good_room.submit(good.handle, good_memory.gpu + 64, 24, round)?;
            scene.until("the other's work", || Ok(raw.load(good.progress.cpu)? == round))?;
        }
        Ok(())
    };
    if stage.rung() >= 1 {
        stage.play(Setup::default().quick_tdr(), queues).context("hardware queues")?;
    }
    // Packet mode: a refused submission still has its place in the order of fences.
    stage.play(Setup::default().quick_tdr().setting("MaxRung", 0), |scene| {
        let raw = raw(scene)?;
        let good_room = Room::new(&raw)?;
        let memory = good_room.memory(scene, 4096)?;
        let good = good_room.packet_context(0)?;
        for (round, (address, length)) in (1..).zip(wrong(memory.gpu)) {
            // The OS itself refuses commands at no address (WN-28): the driver gets what is beside that.
            let address = if address == 0 { 64 } else { address };
            let room = Room::new(&raw)?;
            let context = room.packet_context(0)?;
            raw.submit_command(context, address, length).context("user mode's call succeeds")?;
            scene.until("the device's error", || Ok(!room.is_active()?))?;
            memory.write(&raw, 64, store(memory.gpu, round).as_bytes())?;
            raw.submit_command(good, memory.gpu + 64, 24)?;
            scene.until("the other's work", || Ok(raw.load(memory.cpu)? == round))?;
        }
        let counted = counters::start(&raw)?.refused_packets;
        ensure!(counted >= 2, "{counted} refused packets were counted");
        same("the other device", good_room.is_active()?, true)
    })
}
