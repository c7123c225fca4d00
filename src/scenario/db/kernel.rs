//! Kernel-mode queues: what the OS queues on them, how much the driver is given, and suspension in a long command.
#![expect(unsafe_code, reason = "functions of the driver's table are called and given records")]

use super::super::te::hog::Hog;
use super::{KernelQueue, Room, raw, store};
use crate::scenario::{Denied, Played, Scenario, Scene, Setup, Stage, same};
use crate::wrap::{copy, own};
use anyhow::{Context, Result, ensure};
use dxgkrnl_model::personality::{MS, PacketCap, SECOND};
use gpu_wire::NODE_PAGING;
use gpu_wire::packet::{Copy, CopyRect};
use gpu_wire::private::allocation_kind;
use std::time::Duration;
use wddm_abi::ntstatus::{STATUS_DEVICE_REMOVED, STATUS_INVALID_PARAMETER};
use wddm_abi::{D3DDDICB_SIGNALFLAGS, D3DKMT_HANDLE, DXGKARG_SUBMITCOMMANDTOHWQUEUE, HANDLE, NTSTATUS};

const SUBMIT: &str = "DxgkDdiSubmitCommandToHwQueue";

pub(super) const CASES: &[Scenario] = &[
    Scenario {
        id: "DB-56",
        title: "a node is given HwQueuePacketCap packets at most, and a queue MaxInFlightHwQueueBuffers",
        source: "DXGK_VIDSCHCAPS, HwQueuePacketCap; DXGK_NODEMETADATA_FLAGS, MaxInFlightHwQueueBuffers",
        play: caps,
    },
    Scenario {
        id: "DB-57",
        title: "waits and signals that the OS queues are carried out in their order with a kernel-mode queue's buffers",
        source: "D3DKMTSubmitWaitForSyncObjectsToHwQueue; D3DKMTSubmitSignalSyncObjectsToHwQueue; D3DDDICB_SIGNALFLAGS",
        play: commands,
    },
    Scenario {
        id: "DB-58",
        title: "a kernel-mode queue's progress takes each buffer's value in its turn, however far they are apart",
        source: "DXGKARG_SUBMITCOMMANDTOHWQUEUE; DXGKARG_CREATEHWQUEUE, HwQueueProgressFenceGPUVirtualAddress",
        play: progress,
    },
    Scenario {
        id: "DB-59",
        title: "a kernel-mode queue is suspended inside a long command: nothing is touched until it is resumed, and it \
                goes on where its memory is then",
        source: "DxgkDdiSuspendContext; User-mode work submission, Hardware context suspension",
        play: suspended_inside,
    },
    Scenario {
        id: "DB-60",
        title: "a kernel-mode queue refuses what is beyond its room, and runs what it took",
        source: "DXGK_NODEMETADATA_FLAGS, MaxInFlightHwQueueBuffers; DxgkDdiSubmitCommandToHwQueue, Return value",
        play: crowded,
    },
];

/// The progress value at which [`crowds`] makes [`CROWD`] buffers of one, [`STEP`] bytes apart.
const SIGN: u64 = 1000;
const CROWD: u64 = 100;
const STEP: u64 = 64;

crate::decorate! {
    /// Submits many buffers for one: those behind the first may be refused for want of room alone.
    crowds: DxgkDdiSubmitCommandToHwQueue(
        adapter: HANDLE,
        args: *const DXGKARG_SUBMITCOMMANDTOHWQUEUE,
    ) -> NTSTATUS {
        let mut all = copy!(args);
        let mut status = own!(DxgkDdiSubmitCommandToHwQueue(adapter, &raw const all));
        for _ in 1..if all.HwQueueProgressFenceId == SIGN { CROWD } else { 1 } {
            all.DmaBufferVirtualAddress += STEP;
            let next = own!(DxgkDdiSubmitCommandToHwQueue(adapter, &raw const all));
            if !next.is_success() && next != STATUS_INVALID_PARAMETER {
                status = next;
            }
        }
        status
    }
}

/// Buffers of each queue behind one that does not end.
const BUFFERS: u64 = 50;

fn caps(stage: &Stage) -> Played {
    packets_of_a_node(stage)?;
    let readings = [(PacketCap::PacketNodes, 3), (PacketCap::Nodes, 3), (PacketCap::Nodes, 0)];
    for (reading, cap) in readings {
        let setup = Setup::default().setting("HwQueuePacketCap", cap).windows(|windows| windows.packet_cap = reading);
        // Compute-only drivers have no cap, whatever is set.
        let cap = if stage.setting("ComputeOnly") == Some(1) { 0 } else { cap };
        let play = |scene: &Scene| buffers_of_a_node(scene, reading, cap.into());
        stage.play(setup, play).with_context(|| format!("{reading:?}, {cap}"))?;
    }
    Ok(())
}

fn buffers_of_a_node(scene: &Scene, reading: PacketCap, cap: u64) -> Played {
    let raw = raw(scene)?;
    let room = Room::new(&raw)?;
    let caps = scene.adapter().caps().context("caps")?;
    let most = u64::from(caps.node(0).context("node 0")?.max_in_flight());
    ensure!((1..BUFFERS).contains(&most), "a queue may have {most}");
    let queues = [KernelQueue::new(scene, &room, room.context(0)?)?, KernelQueue::new(scene, &room, room.context(0)?)?];
    for queue in &queues {
        queue.spin(&room, 0, None, 1)?;
    }
    for slot in 1..BUFFERS {
        queues.iter().try_for_each(|queue| queue.submit(&room, slot, &[], slot + 1))?;
    }
    let all = match (reading, cap) {
        (PacketCap::Nodes, 1..) => cap,
        _ => 2 * most,
    };
    scene.until("as many as may be", || Ok(scene.calls(SUBMIT) >= all))?;
    std::thread::park_timeout(Duration::from_millis(30));
    same("with the driver", scene.calls(SUBMIT), all)?;
    queues.iter().try_for_each(|queue| queue.stop(&raw, 0, 1))?;
    for (index, queue) in queues.iter().enumerate() {
        scene.until("the end", || Ok(queue.value(&raw)? == BUFFERS)).with_context(|| format!("queue {index}"))?;
    }
    same("in all", scene.calls(SUBMIT), 2 * BUFFERS)
}

/// A packet node has no more packets than the cap either.
fn packets_of_a_node(stage: &Stage) -> Played {
    let submit = "DxgkDdiSubmitCommandVirtual";
    for cap in [1, 2] {
        let setup = Setup::default().setting("HwQueuePacketCap", cap).windows(|windows| {
            windows.preemption.in_ordinary_use = false;
            windows.preemption.in_flight = 6;
        });
        stage.play(setup, |scene| {
            let raw = raw(scene)?;
            let hog = Hog::new(scene, &raw, &[NODE_PAGING.0])?;
            let most = if stage.setting("ComputeOnly") == Some(1) { 6 } else { u64::from(cap) };
            let before = scene.calls(submit);
            (0..10).try_for_each(|slot| hog.spin(NODE_PAGING.0, slot))?;
            hog.begins(scene, 0)?;
            scene.until("as many as may be", || Ok(scene.calls(submit) - before >= most))?;
            same("with the driver", scene.calls(submit) - before, most)?;
            (0..10).try_for_each(|slot| hog.end(slot))?;
            scene.until("the end", || hog.has_ended(9))
        })?;
    }
    Ok(())
}

fn commands(stage: &Stage) -> Played {
    stage.play(Setup::default(), |scene| {
        let raw = raw(scene)?;
        let room = Room::new(&raw)?;
        let context = room.context(0)?;
        let (first, second) = (KernelQueue::new(scene, &room, context)?, KernelQueue::new(scene, &room, context)?);
        let fence = || raw.monitored_fence(room.device, 0, false);
        let (gate, other, done, early) = (fence()?, fence()?, fence()?, fence()?);
        let [one, two] = [first.queue.handle, second.queue.handle];
        let is = |what: &str, place: usize, value| same(what, raw.load(place).map_err(anyhow::Error::from)?, value);
        // A wait for two fences, a buffer, a signal; the other queue of the context goes on.
        let target = room.memory(scene, 4096)?;
        raw.queue_waits(one, &[(gate.handle, 1), (other.handle, 3)])?;
        first.submit(&room, 0, &[store(target.gpu, 1)], 1)?;
        raw.queue_signal(one, done.handle, 5)?;
        second.submit(&room, 0, &[store(target.gpu + 8, 1)], 1)?;
        scene.until("the queue beside it", || Ok(second.value(&raw)? == 1))?;
        raw.signal_cpu(room.device, &[(gate.handle, 1)])?;
        second.submit(&room, 1, &[], 2)?;
        scene.until("the queue beside it", || Ok(second.value(&raw)? == 2))?;
        same("buffers with the driver", scene.calls(SUBMIT), 2)?;
        is("what is behind the wait", target.cpu, 0)?;
        is("the signal behind it", done.cpu, 0)?;
        raw.signal_cpu(room.device, &[(other.handle, 3)])?;
        scene.until("the signal", || Ok(raw.load(done.cpu)? == 5))?;
        is("what is before the signal", target.cpu, 1)?;
        // A signal comes behind a buffer that runs, or with it, as user mode says.
        first.spin(&room, 1, None, 2)?;
        let at_submission = D3DDDICB_SIGNALFLAGS::zeroed().with_SignalAtSubmission(true);
        raw.queues_signal(&[one], at_submission, (early.handle, 7))?;
        raw.queue_signal(one, done.handle, 6)?;
        scene.until("the signal at submission", || Ok(raw.load(early.cpu)? == 7))?;
        first.runs(scene, &raw)?;
        is("the signal behind a buffer that runs", done.cpu, 5)?;
        first.stop(&raw, 1, 1)?;
        scene.until("the signal", || Ok(raw.load(done.cpu)? == 6))?;
        same("progress before it", first.value(&raw)?, 2)?;
        flags_and_numbers(scene, &room, [one, two], done.handle, done.cpu)?;
        // What waits for ever goes with its queue, and a lost device takes nothing any more.
        raw.queue_wait(two, gate.handle, 99)?;
        second.submit(&room, 2, &[store(target.gpu + 8, 9)], 3)?;
        room.destroy_queue(two)?;
        raw.signal_cpu(room.device, &[(gate.handle, 99)])?;
        first.submit(&room, 2, &[store(0xDEAD_0000_0000, 1)], 3)?;
        room.lost_by_page_fault(scene)?;
        is("what waited in the queue that went", target.cpu + 8, 1)?;
        same("a wait", raw.queue_wait(one, gate.handle, 1), Err(Denied(STATUS_DEVICE_REMOVED)))?;
        same("a signal", raw.queue_signal(one, done.handle, 9), Err(Denied(STATUS_DEVICE_REMOVED)))
    })
}

/// Which flags a queued signal takes, and how many queues and fences.
fn flags_and_numbers(scene: &Scene, room: &Room, queues: [D3DKMT_HANDLE; 2], fence: u32, at: usize) -> Played {
    let raw = room.raw;
    let refused = Err(Denied(STATUS_INVALID_PARAMETER));
    for bit in 0..32 {
        let mut flags = D3DDDICB_SIGNALFLAGS::zeroed();
        flags.Value = 1 << bit;
        let known = flags.SignalAtSubmission() || flags.AllowFenceRewind();
        let got = raw.queues_signal(&queues, flags, (fence, 8));
        same(&format!("bit {bit}"), got, if known { Ok(()) } else { refused })?;
    }
    let many = |count: usize| raw.queues_signal(&vec![queues[0]; count], D3DDDICB_SIGNALFLAGS::zeroed(), (fence, 8));
    same("no queue", many(0), refused)?;
    same("65 queues", many(65), refused)?;
    same("64 queues", many(64), Ok(()))?;
    same("no fence", raw.queue_waits(queues[0], &[]), refused)?;
    same("33 fences", raw.queue_waits(queues[0], &[(fence, 1); 33]), refused)?;
    same("32 fences", raw.queue_waits(queues[0], &[(fence, 1); 32]), Ok(()))?;
    // Each queue has done all of its signals: one that came late would be behind the value that goes back.
    // By another fence, since a late signal of one queue would take back what the other has signaled.
    let all_done = raw.monitored_fence(room.device, 0, false)?;
    for (queue, value) in queues.into_iter().zip(1..) {
        raw.queues_signal(&[queue], D3DDDICB_SIGNALFLAGS::zeroed(), (all_done.handle, value))?;
        scene.until("the signals", || Ok(raw.load(all_done.cpu)? == value))?;
    }
    // A client that always sets the flag lets a fence go back.
    let flags = D3DDDICB_SIGNALFLAGS::zeroed().with_AllowFenceRewind(true);
    raw.queues_signal(&queues[..1], flags, (fence, 2))?;
    scene.until("the value before", || Ok(raw.load(at)? == 2))
}

fn crowded(stage: &Stage) -> Played {
    stage.play(Setup::default().with_driver(crowds), |scene| {
        let raw = raw(scene)?;
        let room = Room::new(&raw)?;
        let queue = KernelQueue::new(scene, &room, room.context(0)?)?;
        let (code, target) = (room.memory(scene, (CROWD * STEP).next_multiple_of(4096))?, room.memory(scene, 4096)?);
        let mut length = 0;
        for index in 0..CROWD {
            let packets = [store(target.gpu + index * 8, 1), queue.end(SIGN)];
            let bytes: Vec<u8> = packets.iter().flat_map(|packet| packet.as_bytes().to_vec()).collect();
            ensure!(bytes.len() as u64 <= STEP, "a long buffer");
            code.write(&raw, index * STEP, &bytes)?;
            // CAST: at most STEP.
            length = bytes.len() as u32;
        }
        queue.spin(&room, 0, None, 1)?;
        queue.runs(scene, &raw)?;
        room.submit(queue.queue.handle, code.gpu, length, SIGN)?;
        scene.until("the crowd", || Ok(scene.calls(SUBMIT) == 2))?;
        queue.stop(&raw, 0, 1)?;
        scene.until("the first of the crowd", || Ok(queue.value(&raw)? == SIGN))?;
        std::thread::park_timeout(Duration::from_millis(50));
        queue.submit(&room, 1, &[], SIGN + 1)?;
        scene.until("the end", || Ok(queue.value(&raw)? == SIGN + 1))?;
        let words = (0..CROWD).map(|index| raw.load(target.cpu + index as usize * 8)).collect::<Result<Vec<_>, _>>()?;
        let ran = words.iter().sum::<u64>();
        let most = u64::from(scene.adapter().caps().context("caps")?.node(0).context("node 0")?.max_in_flight());
        ensure!((most - 1..CROWD).contains(&ran), "{ran} ran, and a queue may have {most}");
        same("those that ran are the first", words.iter().take_while(|word| **word == 1).count() as u64, ran)
    })
}

fn progress(stage: &Stage) -> Played {
    const VALUES: [u64; 8] = [1, 2, 5, 6, 1000, 0xFFFF, 0x1_0000, 0x7FFF_FFFF];
    stage.play(Setup::default(), |scene| {
        let raw = raw(scene)?;
        let room = Room::new(&raw)?;
        for node in [0, 1] {
            let queue = KernelQueue::new(scene, &room, room.context(node)?)?;
            same("progress of a new queue", queue.value(&raw)?, 0)?;
            let target = room.memory(scene, 4096)?;
            for (slot, value) in (0..).zip(VALUES) {
                // Each sees what progress was before it.
                let copy = Copy { source: target.gpu + 8 * slot, destination: target.gpu + 8 * (slot + 1), length: 8 };
                let packets = [store(target.gpu + 8 * slot, value), copy.to_packet()];
                queue.submit(&room, slot, &packets, value)?;
            }
            let (event, handle) = raw.event();
            let last = VALUES[VALUES.len() - 1];
            raw.wait_cpu(room.device, &[(queue.queue.progress.handle, last)], false, Some(handle))?;
            ensure!(raw.wait_event(&event, Duration::from_secs(20)), "the last value does not come");
            same("progress", queue.value(&raw)?, last)?;
            for (slot, value) in VALUES.into_iter().enumerate() {
                same("stores in order", raw.load(target.cpu + 8 * slot)?, value)?;
            }
            // One at a time: each value by itself, and every one below it has come as well.
            for (slot, value) in (0..4).map(|slot| (slot, last + 1 + slot * slot)) {
                queue.submit(&room, slot, &[], value)?;
                raw.wait_cpu(room.device, &[(queue.queue.progress.handle, value)], false, None)?;
                same("progress", queue.value(&raw)?, value)?;
            }
        }
        Ok(())
    })
}

/// Rows of a copy, and more than an engine has mapped at a time. Each is a page of its own.
const ROWS: u64 = 4200;
const PITCH: u32 = 2 * 4096;

fn suspended_inside(stage: &Stage) -> Played {
    let setup = Setup::default().setting("IdleMilliseconds", 0).windows(|windows| {
        windows.unmap_time = MS / 10;
        windows.tdr.delay = 20 * SECOND;
    });
    stage.play(setup, |scene| {
        one_command(scene).context("one command")?;
        moved(scene).context("memory that moves")
    })
}

/// One copy that takes long.
fn one_command(scene: &Scene) -> Played {
    let raw = raw(scene)?;
    let room = Room::new(&raw)?;
    let (source, target) =
        (room.memory(scene, (ROWS * 8).next_multiple_of(4096))?, room.memory(scene, ROWS * u64::from(PITCH))?);
    let copy = CopyRect {
        source: source.gpu,
        destination: target.gpu,
        source_pitch: 8,
        destination_pitch: PITCH,
        row_bytes: 8,
        // CAST: a few thousand.
        rows: ROWS as u32,
    };
    // CAST: within the memory.
    let row = |row: u64| Ok::<_, anyhow::Error>(raw.load(target.cpu + row as usize * PITCH as usize)?);
    let copied =
        |round| (0..ROWS).try_fold(0_u64, |sum, at| Ok::<_, anyhow::Error>(sum + u64::from(row(at)? == round)));
    let queue = KernelQueue::new(scene, &room, room.context(0)?)?;
    // The first round maps everything.
    for round in 1..=4 {
        source.write(&raw, 0, &u64::to_le_bytes(round).repeat(ROWS as usize))?;
        queue.submit(&room, 0, &[copy.to_packet()], round)?;
        let mut inside = 0;
        while queue.value(&raw)? < round {
            scene.until_now("a row", || Ok(row(16 * (inside + 1)).is_ok_and(|word| word == round)))?;
            ensure!(scene.world.os.suspend(scene.adapter(), &raw.process), "not acknowledged");
            let before = copied(round)?;
            std::thread::park_timeout(Duration::from_millis(20));
            same("rows while it is suspended", copied(round)?, before)?;
            inside += u64::from(before < ROWS);
            scene.world.os.resume(scene.adapter(), &raw.process);
            if inside == 3 {
                break;
            }
        }
        scene.until("the end", || Ok(queue.value(&raw)? == round))?;
        same("rows", copied(round)?, ROWS)?;
        if round > 1 {
            ensure!(inside > 0, "no suspension came inside the copy");
        }
    }
    Ok(())
}

/// A buffer that writes without an end is suspended, and its memory changes places with that of others.
fn moved(scene: &Scene) -> Played {
    let raw = raw(scene)?;
    let room = Room::new(&raw)?;
    let queue = KernelQueue::new(scene, &room, room.context(0)?)?;
    let place = || -> Result<(D3DKMT_HANDLE, u64)> {
        let handle = room.create(allocation_kind::LOCAL, 4096)?;
        room.make_resident(scene, handle)?;
        Ok((handle, room.map(scene, handle, 0)?))
    };
    let (mine, bystander) = (place()?, place()?);
    let seen = room.memory(scene, 4096)?;
    let look = |value| -> Result<(u64, u64)> {
        let copy = |from, at| Copy { source: from, destination: seen.gpu + at, length: 8 }.to_packet();
        queue.submit(&room, 8, &[copy(mine.1, 0), copy(bystander.1, 8)], value)?;
        scene.until("a look at both", || Ok(queue.value(&raw)? == value))?;
        Ok((raw.load(seen.cpu)?, raw.load(seen.cpu + 8)?))
    };
    let mut both = [mine, bystander];
    for round in 0..4 {
        let value = 10 * round;
        queue.submit(&room, 7, &[store(mine.1, 7), store(bystander.1, 9)], value + 1)?;
        same("at first", look(value + 2)?, (7, 9))?;
        queue.spin(&room, 0, Some(mine.1), value + 3)?;
        queue.runs(scene, &raw)?;
        ensure!(scene.world.os.suspend(scene.adapter(), &raw.process), "not acknowledged");
        let word = queue.runs_at()?;
        raw.store(word, 0)?;
        for (handle, _) in both {
            room.evict(handle)?;
        }
        // The one that lay behind the other is placed first.
        both.swap(0, 1);
        for (handle, _) in both {
            room.make_resident(scene, handle)?;
        }
        same("what it writes while it is suspended", raw.load(word)?, 0)?;
        scene.world.os.resume(scene.adapter(), &raw.process);
        queue.runs(scene, &raw)?;
        queue.stop(&raw, 0, 2)?;
        same("behind it", look(value + 4)?, (1, 9)).with_context(|| format!("round {round}"))?;
    }
    Ok(())
}
