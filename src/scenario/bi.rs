//! BI: bad input.
//!
//! | file | holds |
//! |---|---|
//! | `bi.rs` | records, flags, handles |
//! | `bi/every.rs` | flags and handles of what every rung has |
//! | `bi/rings.rs` | arguments of rings and doorbells; queries |
//! | `bi/hostile.rs` | hostile streams and addresses, memory that runs out |
//! | `bi/crowd.rs` | what one process takes from all |
//! | `bi/gone.rs` | what is made while its owner goes, or cannot be told to user mode |
//! | `bi/hogs.rs` | one process keeps a node busy |
//! | `bi/pairs.rs` | functions of two processes side by side |
//! | `bi/testing.rs` | command buffers of kernel-mode tests |
//! | `bi/privilege.rs` | what only paging buffers may hold |
//! | `bi/worker.rs` | a process that works on every rung |
//! | `bi/at.rs` | calls with records in shared user memory |

mod at;
mod crowd;
mod every;
mod gone;
mod hogs;
mod hostile;
mod pairs;
mod privilege;
mod rings;
mod testing;
mod worker;

use super::db::{RingQueue, Room, denied, joined, raw};
use super::raw::Thunk;
use super::{Played, Raw, Scenario, Scene, Setup, Stage, same};
use crate::fuzz::dice::Dice;
use anyhow::{Context, ensure};
use every::Handles;
use std::sync::atomic::{AtomicBool, Ordering};
use wddm_abi::ntstatus::{STATUS_INVALID_PARAMETER, STATUS_SUCCESS};
use wddm_abi::{
    D3DKMT_CONNECT_DOORBELL, D3DKMT_CREATE_DOORBELL, D3DKMT_CREATENATIVEFENCE, D3DKMT_DESTROY_DOORBELL,
    D3DKMT_GETNATIVEFENCELOGDETAIL, D3DKMT_HANDLE, D3DKMT_NOTIFY_WORK_SUBMISSION, D3DKMT_OPENNATIVEFENCEFROMNTHANDLE,
    NTSTATUS, Plain,
};
use worker::Worker;

pub(super) const CASES: &[Scenario] = &joined::<
    {
        OWN.len()
            + rings::CASES.len()
            + hostile::CASES.len()
            + crowd::CASES.len()
            + gone::CASES.len()
            + hogs::CASES.len()
            + pairs::CASES.len()
            + testing::CASES.len()
            + privilege::CASES.len()
    },
>(&[
    OWN,
    rings::CASES,
    hostile::CASES,
    crowd::CASES,
    gone::CASES,
    hogs::CASES,
    pairs::CASES,
    testing::CASES,
    privilege::CASES,
]);

const STATUS: &str = "D3DKMTCreateNativeFence, D3DKMTCreateDoorbell, D3DKMTNotifyWorkSubmission, Return value";

const OWN: &[Scenario] = &[
    Scenario { id: "BI-01", title: "no record at all", source: STATUS, play: null },
    Scenario { id: "BI-03", title: "records full of 0xA5: refused, and not written", source: STATUS, play: pattern },
    Scenario {
        id: "BI-04",
        title: "each reserved bit of each flag word that the rung has",
        source: "D3DKMT_CREATE_DOORBELL_FLAGS, D3DDDI_CREATEHWQUEUEFLAGS, D3DKMT_CREATENATIVEFENCE, Reserved",
        play: flags,
    },
    Scenario {
        id: "BI-05",
        title: "handles of another process, another device, another type",
        source: STATUS,
        play: foreign,
    },
    Scenario { id: "BI-06", title: "handles after destruction", source: STATUS, play: destroyed },
    Scenario {
        id: "BI-08",
        title: "another thread changes the record during the call",
        source: "D3DKMTCreateNativeFence; D3DKMTSignalSynchronizationObjectFromCpu",
        play: changed,
    },
];

/// What the drivers' functions behind the new calls have counted.
fn reached(scene: &Scene) -> u64 {
    [
        "CreateNativeFence",
        "OpenNativeFence",
        "CreateDoorbell",
        "ConnectDoorbell",
        "DestroyDoorbell",
        "NotifyWorkSubmission",
    ]
    .iter()
    .map(|name| scene.calls(&format!("DxgkDdi{name}")))
    .sum()
}

fn null(stage: &Stage) -> Played {
    stage.play(Setup::default(), |scene| {
        let raw = raw(scene)?;
        let t = &raw.thunks;
        let all = [
            ("CreateNativeFence", raw.call_null::<D3DKMT_CREATENATIVEFENCE>(t.D3DKMTCreateNativeFence)),
            (
                "OpenNativeFence",
                raw.call_null::<D3DKMT_OPENNATIVEFENCEFROMNTHANDLE>(t.D3DKMTOpenNativeFenceFromNtHandle),
            ),
            (
                "GetNativeFenceLogDetail",
                raw.call_null::<D3DKMT_GETNATIVEFENCELOGDETAIL>(t.D3DKMTGetNativeFenceLogDetail),
            ),
            ("CreateDoorbell", raw.call_null::<D3DKMT_CREATE_DOORBELL>(t.D3DKMTCreateDoorbell)),
            ("ConnectDoorbell", raw.call_null::<D3DKMT_CONNECT_DOORBELL>(t.D3DKMTConnectDoorbell)),
            ("DestroyDoorbell", raw.call_null::<D3DKMT_DESTROY_DOORBELL>(t.D3DKMTDestroyDoorbell)),
            ("NotifyWorkSubmission", raw.call_null::<D3DKMT_NOTIFY_WORK_SUBMISSION>(t.D3DKMTNotifyWorkSubmission)),
        ];
        for (what, status) in all {
            same(what, status, STATUS_INVALID_PARAMETER)?;
        }
        same("calls of the driver", reached(scene), 0)
    })
}

/// Calls `thunk` with bytes of 0xA5.
fn filled<T: Plain + Copy>(raw: &Raw, what: &str, mut record: T, thunk: impl Thunk<T>) -> Played {
    record.as_bytes_mut().fill(0xA5);
    same(what, raw.call(thunk, &mut record), STATUS_INVALID_PARAMETER)?;
    ensure!(record.as_bytes().iter().all(|byte| *byte == 0xA5), "{what}: the record was written");
    Ok(())
}

fn pattern(stage: &Stage) -> Played {
    stage.play(Setup::default(), |scene| {
        let raw = raw(scene)?;
        let t = &raw.thunks;
        filled(&raw, "CreateNativeFence", D3DKMT_CREATENATIVEFENCE::zeroed(), t.D3DKMTCreateNativeFence)?;
        let open = D3DKMT_OPENNATIVEFENCEFROMNTHANDLE::zeroed();
        filled(&raw, "OpenNativeFence", open, t.D3DKMTOpenNativeFenceFromNtHandle)?;
        let detail = D3DKMT_GETNATIVEFENCELOGDETAIL::zeroed();
        filled(&raw, "GetNativeFenceLogDetail", detail, t.D3DKMTGetNativeFenceLogDetail)?;
        filled(&raw, "CreateDoorbell", D3DKMT_CREATE_DOORBELL::zeroed(), t.D3DKMTCreateDoorbell)?;
        filled(&raw, "ConnectDoorbell", D3DKMT_CONNECT_DOORBELL::zeroed(), t.D3DKMTConnectDoorbell)?;
        filled(&raw, "DestroyDoorbell", D3DKMT_DESTROY_DOORBELL::zeroed(), t.D3DKMTDestroyDoorbell)?;
        filled(&raw, "NotifyWorkSubmission", D3DKMT_NOTIFY_WORK_SUBMISSION::zeroed(), t.D3DKMTNotifyWorkSubmission)?;
        same("calls of the driver", reached(scene), 0)
    })
}

fn flags(stage: &Stage) -> Played {
    stage.play(Setup::default(), |scene| {
        let raw = raw(scene)?;
        let room = Room::new(&raw)?;
        let worker = Worker::new(scene, "works", 0)?;
        every::flags(scene, &raw, &room)?;
        if stage.rung() >= 1 {
            every::queue_flags(scene, &raw, &room)?;
        }
        if stage.rung() >= 2 {
            fence_flags(scene, &raw, &room)?;
        }
        if stage.rung() == 3 {
            doorbell_flags(scene, &raw, &room)?;
        }
        worker.run(scene, &[])
    })
}

fn is_refused(what: &str, bit: u32, status: NTSTATUS) -> Played {
    same(&format!("{what}, bit {bit}"), status, STATUS_INVALID_PARAMETER)
}

fn fence_flags(scene: &Scene, raw: &Raw, room: &Room<'_>) -> Played {
    let before = reached(scene);
    for bit in 0..32 {
        let mut fence = Raw::native_fence_record(room.device, 0);
        fence.Flags.Value = 1 << bit;
        let status = raw.call(raw.thunks.D3DKMTCreateNativeFence, &mut fence);
        is_refused("D3DKMT_CREATENATIVEFENCE", bit, status)?;
    }
    same("calls of the driver", reached(scene), before)
}

fn doorbell_flags(scene: &Scene, raw: &Raw, room: &Room<'_>) -> Played {
    let t = raw.thunks;
    let queue = RingQueue::connected(scene, room, 0, 4096)?;
    let bare = room.queue(0, true)?;
    let (ring, control) = (room.memory(scene, 4096)?, room.memory(scene, 4096)?);
    let before = reached(scene);
    for bit in 0..32 {
        let mut connect = D3DKMT_CONNECT_DOORBELL::zeroed();
        connect.hDoorbell = queue.bell.handle;
        connect.Flags.Value = 1 << bit;
        is_refused("D3DKMT_CONNECT_DOORBELL", bit, raw.call(t.D3DKMTConnectDoorbell, &mut connect))?;
        let mut notify = D3DKMT_NOTIFY_WORK_SUBMISSION::zeroed();
        notify.hDoorbell = queue.bell.handle;
        notify.Flags.Value = 1 << bit;
        is_refused("D3DKMT_NOTIFY_WORK_SUBMISSION", bit, raw.call(t.D3DKMTNotifyWorkSubmission, &mut notify))?;
    }
    // Two flags are known.
    for bit in 2..32 {
        let mut data = Room::bell_data(ring.gpu, control.gpu);
        let mut bell = Room::bell_record(bare.handle, ring.handle, control.handle, &mut data);
        bell.Flags.Value = 1 << bit;
        is_refused("D3DKMT_CREATE_DOORBELL", bit, raw.call(t.D3DKMTCreateDoorbell, &mut bell))?;
    }
    same("calls of the driver", reached(scene), before)?;
    let progress = queue.submit_through(&[])?;
    queue.wait(scene, progress)
}

/// Every use of these handles must be refused: device, queue, doorbell, allocation, fence.
fn unusable(scene: &Scene, raw: &Raw, device: u32, queue: u32, doorbell: u32, allocation: u32, fence: u32) -> Played {
    let t = raw.thunks;
    let before = reached(scene);
    let refused = |what: &str, status| same(what, status, STATUS_INVALID_PARAMETER);
    refused("a fence on the device", raw.call(t.D3DKMTCreateNativeFence, &mut Raw::native_fence_record(device, 0)))?;
    denied("destroying the device", raw.destroy_device(device), STATUS_INVALID_PARAMETER)?;
    let mut data = Room::bell_data(0x10_0000, 0x11_0000);
    refused(
        "a doorbell",
        raw.call(t.D3DKMTCreateDoorbell, &mut Room::bell_record(queue, allocation, allocation, &mut data)),
    )?;
    let mut connect = D3DKMT_CONNECT_DOORBELL::zeroed();
    connect.hDoorbell = doorbell;
    refused("connecting", raw.call(t.D3DKMTConnectDoorbell, &mut connect))?;
    let mut notify = D3DKMT_NOTIFY_WORK_SUBMISSION::zeroed();
    notify.hDoorbell = doorbell;
    refused("notifying", raw.call(t.D3DKMTNotifyWorkSubmission, &mut notify))?;
    let mut destroy = D3DKMT_DESTROY_DOORBELL::zeroed();
    destroy.hDoorbell = doorbell;
    refused("destroying the doorbell", raw.call(t.D3DKMTDestroyDoorbell, &mut destroy))?;
    let mut detail = D3DKMT_GETNATIVEFENCELOGDETAIL::zeroed();
    detail.hHwQueue = queue;
    refused("the log's details", raw.call(t.D3DKMTGetNativeFenceLogDetail, &mut detail))?;
    denied("destroying the fence", raw.destroy_fence(fence), STATUS_INVALID_PARAMETER)?;
    same("calls of the driver", reached(scene), before)
}

fn foreign(stage: &Stage) -> Played {
    stage.play(Setup::default(), |scene| {
        let (one, two) = (raw(scene)?, raw(scene)?);
        let room = Room::new(&one)?;
        let handles = Handles::new(stage, &room)?;
        handles.are_unusable(scene, &two).context("another process's")?;
        for turned in handles.turned() {
            turned.are_unusable(scene, &one).context("of other types")?;
        }
        // Right type, another device's.
        let other = Room::new(&one)?;
        denied("another device's allocation", other.destroy(handles.allocation()), STATUS_INVALID_PARAMETER)?;
        if stage.rung() == 3 {
            foreign_rings(scene, &one, &two)?;
        }
        // What all of it named is as it was.
        handles.destroy(&one)
    })
}

fn foreign_rings(scene: &Scene, one: &Raw, two: &Raw) -> Played {
    let room = Room::new(one)?;
    let queue = RingQueue::connected(scene, &room, 0, 4096)?;
    let fence = one.native_fence(room.device, 0)?.handle;
    let (device, hw, bell) = (room.device, queue.queue.handle, queue.bell.handle);
    let allocation = queue.ring.handle;
    // The other process has nothing but its adapter.
    unusable(scene, two, device, hw, bell, allocation, fence).context("another process's")?;
    // Right process, wrong types.
    unusable(scene, one, fence, device, hw, bell, allocation).context("of other types")?;
    unusable(scene, one, bell, allocation, fence, device, hw).context("of other types")?;
    // Right type, another device's.
    let other = Room::new(one)?;
    let bare = other.queue(0, true)?;
    let mut data = Room::bell_data(queue.ring.gpu, queue.control.gpu);
    let mut record = Room::bell_record(bare.handle, queue.ring.handle, queue.control.handle, &mut data);
    same("another device's rings", one.call(one.thunks.D3DKMTCreateDoorbell, &mut record), STATUS_INVALID_PARAMETER)?;
    let progress = queue.submit_through(&[])?;
    queue.wait(scene, progress)
}

fn destroyed(stage: &Stage) -> Played {
    stage.play(Setup::default(), |scene| {
        let raw = raw(scene)?;
        let room = Room::new(&raw)?;
        let handles = Handles::new(stage, &room)?;
        handles.destroy(&raw)?;
        handles.are_unusable(scene, &raw)?;
        // Handles are not used again at once.
        let again: D3DKMT_HANDLE = raw.device()?;
        ensure!(again != room.device, "the device's handle came back");
        if stage.rung() == 3 { destroyed_rings(scene, &raw) } else { Ok(()) }
    })
}

fn destroyed_rings(scene: &Scene, raw: &Raw) -> Played {
    let room = Room::new(raw)?;
    let queue = RingQueue::connected(scene, &room, 0, 4096)?;
    let progress = queue.submit_through(&[])?;
    queue.wait(scene, progress)?;
    let fence = raw.native_fence(room.device, 0)?.handle;
    raw.destroy_fence(fence)?;
    denied("the fence, again", raw.destroy_fence(fence), STATUS_INVALID_PARAMETER)?;
    queue.destroy_bell()?;
    denied("the doorbell, again", queue.destroy_bell(), STATUS_INVALID_PARAMETER)?;
    denied("connecting it", queue.connect(), STATUS_INVALID_PARAMETER)?;
    denied("notifying", queue.notify(), STATUS_INVALID_PARAMETER)?;
    room.destroy_queue(queue.queue.handle)?;
    denied("the queue, again", room.destroy_queue(queue.queue.handle), STATUS_INVALID_PARAMETER)?;
    // The fence of a queue went with it.
    denied("its fence", raw.destroy_fence(queue.queue.progress.handle), STATUS_INVALID_PARAMETER)?;
    raw.destroy_device(room.device)?;
    let (device, hw, bell) = (room.device, queue.queue.handle, queue.bell.handle);
    unusable(scene, raw, device, hw, bell, queue.ring.handle, fence)
}

fn changed(stage: &Stage) -> Played {
    const ROUNDS: u64 = 300;
    stage.play(Setup::default(), |scene| {
        let raw = raw(scene)?;
        let room = Room::new(&raw)?;
        let memory = room.memory(scene, 4096)?;
        let fence = raw.native_fence(room.device, 0)?;
        let mut record = Raw::native_fence_record(room.device, 1);
        let initial = std::mem::offset_of!(D3DKMT_CREATENATIVEFENCE, Info)
            + record.Info.as_bytes().windows(8).position(|bytes| bytes == 1_u64.to_le_bytes()).context("the value")?;
        let stop = AtomicBool::new(false);
        let (mut made, mut refused) = (0, 0);
        std::thread::scope(|scope| -> Played {
            let spoiler = scope.spawn(|| -> Played {
                let mut dice = Dice::new(1);
                while !stop.load(Ordering::Acquire) {
                    // Initial value 1 or 2, and a device that is there or not.
                    raw.store(memory.cpu + initial, 1 + (dice.draw() & 1))?;
                    let device = if dice.draw() & 3 == 0 { 0xBAD0 } else { u64::from(room.device) };
                    raw.store(memory.cpu, device)?;
                }
                Ok(())
            });
            let mut rounds = || -> Played {
                for _ in 0..ROUNDS {
                    for (index, word) in record.as_bytes_mut().chunks_exact(8).enumerate() {
                        let mut bytes = [0; 8];
                        bytes.copy_from_slice(word);
                        raw.store(memory.cpu + index * 8, u64::from_le_bytes(bytes))?;
                    }
                    match raw.call_at::<D3DKMT_CREATENATIVEFENCE>(raw.thunks.D3DKMTCreateNativeFence, memory.cpu) {
                        STATUS_SUCCESS => made += 1,
                        STATUS_INVALID_PARAMETER => refused += 1,
                        other => anyhow::bail!("{other:?}"),
                    }
                }
                Ok(())
            };
            let result = rounds();
            stop.store(true, Ordering::Release);
            spoiler.join().map_err(|_| anyhow::anyhow!("the spoiler panicked"))??;
            result
        })?;
        ensure!(made > 0, "nothing was made, {refused} times refused");
        same("the driver's fences", scene.calls("DxgkDdiCreateNativeFence"), made + 1)?;
        // What was made has one of the two values, whatever the record said a moment later.
        same("an untouched fence", raw.load(fence.cpu)?, 0)
    })
}
