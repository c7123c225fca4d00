//! What no client of ours is given on an ordinary Windows: a progress fence at an address that is none, opening that
//! takes no flags, queues that end at once, local memory in units of 64 KB, another status of a device that is lost.

use super::raw;
use crate::client::Refused;
use crate::demo::counters;
use crate::scenario::client::{Client, PATIENCE};
use crate::scenario::db::{Room, store};
use crate::scenario::raw::duplicate_number;
use crate::scenario::{Played, Scenario, Scene, Setup, Stage, same};
use anyhow::{Context, Result, ensure};
use dxgkrnl_model::personality::ProgressOpened;
use gpu_wire::GpuVa;
use gpu_wire::packet::Encoded;
use gpu_wire::private::allocation_kind;
use umd_core::ffi::types::{FP_FENCE_MONITORED, FP_FENCE_SHARED, FP_KIND_LOCAL, FP_KIND_SYSTEM, FP_QUEUE_KERNEL_MODE};
use wddm_abi::ntstatus::{STATUS_DEVICE_REMOVED, STATUS_GRAPHICS_GPU_EXCEPTION_ON_DEVICE, STATUS_SUCCESS};
use wddm_abi::{D3DDDI_CREATECONTEXTFLAGS, NTSTATUS};

pub(super) const CASES: &[Scenario] = &[
    Scenario {
        id: "CL-14",
        title: "a queue whose progress fence is at no multiple of 8 is made and counted; a store there faults",
        source: "DxgkDdiCreateHwQueue, Return value; DXGKARG_CREATEHWQUEUE",
        play: odd_progress,
    },
    Scenario {
        id: "CL-15",
        title: "shared fences are opened without flags: sharing is for the process that makes them to ask for",
        source: "D3DKMT_OPENNATIVEFENCEFROMNTHANDLE, Flags; D3DKMT_OPENSYNCOBJECTFROMNTHANDLE2",
        play: opening,
    },
    Scenario {
        id: "CL-16",
        title: "a queue that is destroyed is idle first, where the OS does not wait for it",
        source: "D3DKMTDestroyHwQueue; User-mode work submission, normal termination",
        play: ending,
    },
    Scenario {
        id: "CL-17",
        title: "local memory of any size works where it is mapped in units of 64 KB alone",
        source: "ROCm/rocm-systems; D3DKMTMapGpuVirtualAddress says nothing of it",
        play: units,
    },
    Scenario {
        id: "CL-18",
        title: "a device in an error state is known by its state, whatever status a submission is refused with",
        source: "D3DKMTGetDeviceState; logs of three clients",
        play: failed,
    },
    Scenario {
        id: "CL-19",
        title: "a queue that is destroyed under one long piece of work is idle first",
        source: "D3DKMTDestroyHwQueue; User-mode work submission, normal termination",
        play: ending_long,
    },
    Scenario {
        id: "CL-20",
        title: "a queue's progress is counted at the address that it was told, whatever fence the handle beside it names",
        source: "DXGKARG_CREATEHWQUEUE, HwQueueProgressFenceGPUVirtualAddress; D3DDDI_CREATEHWQUEUEFLAGS, \
            NativeProgressFence",
        play: other_progress,
    },
];

/// Bytes that [`ending_long`] fills, and how often: together well over the fifth of a second for which a queue that may
/// wait for a fence is waited for.
const FILLED: u64 = 64 << 20;
/// See [`FILLED`].
const FILLS: u32 = 100;

fn ending_long(stage: &Stage) -> Played {
    stage.play(Setup::default().windows(|windows| windows.user_mode.queues_end_at_once = true), |scene| {
        let rig = Client::open(scene, "client")?;
        let memory = rig.device.allocate(FP_KIND_SYSTEM, FILLED, 0)?;
        for flags in [0, FP_QUEUE_KERNEL_MODE] {
            let (queue, page) = (rig.device.queue(0, 64 << 10, flags, 0)?, rig.page()?);
            let address = memory.gpu_va()?;
            queue.run(|list| {
                for fill in 0..FILLS {
                    list.fill(address, FILLED, fill)?;
                }
                list.store(page.at(0), 1)
            })?;
            drop(queue);
            same("what was queued behind the fills", page.word(0)?, 1)?;
        }
        Ok(())
    })
}

/// A value with bits in both halves.
const WIDE: u64 = 0x5555_6666_7777_8888;

fn odd_progress(stage: &Stage) -> Played {
    for null in [false, true] {
        let setup = Setup::default().quick_tdr().windows(|windows| windows.faults.odd_progress = true);
        stage.play(setup, |scene| odd_queue(scene, null)).with_context(|| format!("null rendering: {null}"))?;
    }
    Ok(())
}

/// A queue that was told of four bytes behind its fence. `null`: its context renders nothing, so that the driver, and
/// no packet, writes the fence.
fn odd_queue(scene: &Scene, null: bool) -> Played {
    let raw = raw(scene)?;
    let room = Room::new(&raw)?;
    let flags = D3DDDI_CREATECONTEXTFLAGS::zeroed().with_HwQueueSupported(true).with_NullRendering(null);
    let context = room.context_with(0, flags).context("context")?;
    let queue = room.queue_in(context, false).context("a queue whose progress fence is nowhere")?;
    same("such queues, as the driver counts them", counters::start(&raw)?.plain_progress, 1)?;
    let (progress, buffer) = (queue.progress, room.memory(scene, 4096)?);
    // The word behind it, unless that is on the next page: the high half of a value would be there. The fence itself is
    // the OS's to write when the device is lost.
    let behind = Some(progress.cpu + 8).filter(|address| !address.is_multiple_of(4096));
    let word = || -> Result<_> { Ok(behind.map(|address| raw.load(address)).transpose()?) };
    let submit = |packets: &[Encoded], value: u64| -> Played {
        let bytes: Vec<u8> = packets.iter().flat_map(|packet| packet.as_bytes().to_vec()).collect();
        buffer.write(&raw, 0, &bytes)?;
        room.submit(queue.handle, buffer.gpu, u32::try_from(bytes.len())?, value).context("submission")
    };
    let before = word()?;
    if null {
        submit(&[store(buffer.gpu + 1024, 7)], WIDE)?;
        room.lost_by_page_fault(scene)?;
        return same("the word behind the fence", word()?, before);
    }
    // Packets name the fence where it is.
    submit(&[store(buffer.gpu + 1024, 7), Encoded::fence_signal(GpuVa(progress.gpu), 1)], 1)?;
    scene.until("the queue's progress", || Ok(raw.load(progress.cpu)? == 1))?;
    same("what ran", raw.load(buffer.cpu + 1024)?, 7)?;
    submit(&[Encoded::fence_signal(GpuVa(progress.gpu + 4), WIDE)], 2)?;
    scene.until("the device's error", || Ok(!room.is_active()?))?;
    same("the word behind the fence", word()?, before)
}

fn other_progress(stage: &Stage) -> Played {
    for opened in [ProgressOpened::Before, ProgressOpened::Never] {
        for (null, alive) in [(false, true), (true, true), (false, false), (true, false)] {
            let setup = Setup::default().windows(|windows| {
                windows.faults.other_progress = true;
                windows.user_mode.progress_opened = opened;
            });
            let what = format!("opened {opened:?}, null rendering: {null}, a handle of a fence: {alive}");
            stage.play(setup, |scene| misnamed_queue(scene, null, alive)).context(what)?;
        }
    }
    Ok(())
}

/// A kernel-mode queue whose progress fence is named by the handle of another fence, or by one of nothing. `null`: its
/// context renders nothing, so that the driver, and no packet, writes the fence.
fn misnamed_queue(scene: &Scene, null: bool, alive: bool) -> Played {
    let raw = raw(scene)?;
    let room = Room::new(&raw)?;
    let other = if alive { Some(raw.native_fence(room.device, 7).context("another fence")?) } else { None };
    let flags = D3DDDI_CREATECONTEXTFLAGS::zeroed().with_HwQueueSupported(true).with_NullRendering(null);
    let context = room.context_with(0, flags).context("context")?;
    let queue = room.queue_in(context, false).context("queue")?;
    let (progress, buffer) = (queue.progress, room.memory(scene, 4096)?);
    for value in 8..=9 {
        let packets = [store(buffer.gpu + 1024, value), Encoded::fence_signal(GpuVa(progress.gpu), value)];
        let bytes: Vec<u8> = packets.iter().flat_map(|packet| packet.as_bytes().to_vec()).collect();
        buffer.write(&raw, 0, &bytes)?;
        let (event, handle) = raw.event();
        raw.wait_cpu(room.device, &[(progress.handle, value)], false, Some(handle)).context("a wait for progress")?;
        room.submit(queue.handle, buffer.gpu, u32::try_from(bytes.len())?, value).context("submission")?;
        ensure!(raw.wait_event(&event, PATIENCE), "a wait for {value} did not end");
        raw.close(handle);
        same("the queue's progress", raw.load(progress.cpu)?, value)?;
        same("what ran", raw.load(buffer.cpu + 1024)?, if null { 0 } else { value })?;
        if let Some(other) = &other {
            same("the fence that the handle names", raw.load(other.cpu)?, 7)?;
        }
    }
    same("the device", room.is_active()?, true)
}

fn opening(stage: &Stage) -> Played {
    stage.play(Setup::default().windows(|windows| windows.user_mode.bare_opening = true), |scene| {
        let (one, two) = (Client::open(scene, "one")?, Client::open(scene, "two")?);
        for monitored in [true, false] {
            if !monitored && !one.has_native {
                continue;
            }
            let kind = if monitored { FP_FENCE_MONITORED } else { 0 };
            let fence = one.device.fence(0, FP_FENCE_SHARED | kind)?;
            let share = duplicate_number(fence.share()?, &one.user.process, &two.user.process)?;
            let what = || format!("opening a fence, monitored: {monitored}");
            let opened = two.device.open_fence(share, monitored).with_context(what)?;
            one.signal(&[(&fence, 5)])?;
            opened.wait(5, Some(PATIENCE)).with_context(what)?;
        }
        Ok(())
    })
}

/// How often a queue is destroyed. Once in so many attempts its work may stand still for longer than the user-mode
/// driver waits, a fifth of a second, on a machine that is busy with other things.
const ATTEMPTS: usize = 5;

fn ending(stage: &Stage) -> Played {
    stage.play(Setup::default().windows(|windows| windows.user_mode.queues_end_at_once = true), |scene| {
        let rig = Client::open(scene, "client")?;
        for flags in [0, FP_QUEUE_KERNEL_MODE] {
            let mut ran = 0;
            for _ in 0..ATTEMPTS {
                ran += usize::from(ends_idle(scene, &rig, flags)?);
            }
            let lost = ATTEMPTS - ran;
            ensure!(
                lost <= 1,
                "{lost} times what was queued did not run before the queue was destroyed, flags {flags}"
            );
        }
        Ok(())
    })
}

/// Destroys a queue that waits for a fence, which is signaled once the user-mode driver waits for the queue, or has
/// destroyed it; whether what is behind the wait ran.
fn ends_idle(scene: &Scene, rig: &Client, flags: u32) -> Result<bool> {
    let waits = || -> Result<u64> {
        let calls = rig.adapter.thunk_calls()?;
        let of = |name: &str| calls.iter().find(|(call, ..)| call == name).map_or(0, |(_, count, _)| *count);
        Ok(of("D3DKMTWaitForSynchronizationObjectFromCpu") + of("D3DKMTDestroyHwQueue"))
    };
    let (queue, page) = (rig.device.queue(0, 4096, flags, 0)?, rig.page()?);
    let gate = rig.fence(0, true)?;
    queue.run(|list| {
        list.wait(&gate, 1)?;
        list.store(page.at(0), 1)
    })?;
    let before = waits()?;
    let ending = std::thread::spawn(move || drop(queue));
    scene.until("the end of the queue", || Ok(waits()? != before))?;
    rig.signal(&[(&gate, 1)])?;
    ensure!(ending.join().is_ok(), "the thread that destroys the queue failed");
    Ok(page.word(0)? == 1)
}

fn units(stage: &Stage) -> Played {
    stage.play(Setup::default().windows(|windows| windows.user_mode.local_in_64k = true), |scene| {
        let rig = Client::open(scene, "client")?;
        let (queue, page) = (rig.device.queue(1, 4096, FP_QUEUE_KERNEL_MODE, 0)?, rig.page()?);
        for (round, size) in (1..).zip([1, 4096, 64 << 10, (64 << 10) + 1]) {
            let local = rig.device.allocate(FP_KIND_LOCAL, size, 0);
            let local = local.with_context(|| format!("local memory of {size} bytes"))?;
            let at = local.gpu_va()?;
            queue.run(|list| list.store(at, round))?;
            queue.run(|list| list.copy(at, page.at(0), 8))?;
            queue.wait(0, Some(PATIENCE))?;
            same("what was stored", page.word(0)?, round)?;
        }
        // Without the user-mode driver: a page is refused.
        let raw = raw(scene)?;
        let room = Room::new(&raw)?;
        let handle = room.create(allocation_kind::LOCAL, 4096).context("a page")?;
        room.make_resident(scene, handle)?;
        ensure!(room.map(scene, handle, 0).is_err(), "a page of local memory was mapped");
        Ok(())
    })
}

/// The status that the user-mode driver refused with; success if it did not.
fn refusal(result: Result<(), Refused>) -> NTSTATUS {
    result.err().map_or(STATUS_SUCCESS, |refused| refused.status)
}

fn failed(stage: &Stage) -> Played {
    let statuses = [(false, STATUS_DEVICE_REMOVED), (true, STATUS_GRAPHICS_GPU_EXCEPTION_ON_DEVICE)];
    for (exception, status) in statuses {
        let setup = Setup::default().quick_tdr().windows(|windows| windows.user_mode.gpu_exception = exception);
        stage.play(setup, |scene| {
            let rig = Client::open(scene, "client")?;
            let (queue, page) = (rig.device.queue(0, 4096, FP_QUEUE_KERNEL_MODE, 0)?, rig.page()?);
            // Nothing is mapped there.
            queue.run(|list| list.store(1 << 40, 1))?;
            scene.until("the loss of the device", || Ok(rig.device.state()?.execution != 1))?;
            let submission = queue.run(|list| list.store(page.at(0), 1)).map(drop);
            same("what a submission says", refusal(submission), STATUS_DEVICE_REMOVED)?;
            ensure!(queue.wait(0, Some(PATIENCE)).is_err(), "the lost work was reported as done");
            // The user-mode driver passes on what it has no better word for.
            let memory = rig.device.allocate(FP_KIND_SYSTEM, 4096, 0).map(drop);
            same("what an allocation says", refusal(memory), status)
        })?;
    }
    Ok(())
}
