//! What is made while what it belongs to is destroyed, and what is made by a call whose results cannot be stored.

use crate::scenario::db::{MODELS, Memory, RingQueue, Room, raw};
use crate::scenario::pt::census;
use crate::scenario::raw::Raw;
use crate::scenario::{Played, Scenario, Scene, Setup, Stage, same};
use anyhow::{Context, anyhow, ensure};
use gpu_wire::private::{ContextData, MAGIC};
use nt_model::Rights;
use wddm_abi::ntstatus::{STATUS_ACCESS_VIOLATION, STATUS_SUCCESS};
use wddm_abi::{
    D3DDDI_SYNCHRONIZATIONOBJECT_TYPE, D3DKMT_CREATECONTEXTVIRTUAL, D3DKMT_CREATEDEVICE, D3DKMT_CREATEHWQUEUE,
    D3DKMT_CREATEPAGINGQUEUE, D3DKMT_CREATESYNCHRONIZATIONOBJECT2, D3DKMT_HANDLE, Plain,
};

pub(super) const CASES: &[Scenario] = &[
    Scenario {
        id: "BI-53",
        title: "queues, contexts and devices that are destroyed while another thread makes doorbells and queues of \
                them: nothing outlives them, and nothing is said of user mode",
        source: "D3DKMTDestroyHwQueue; D3DKMTDestroyDevice; DxgkDdiDestroyHwQueue",
        play: destroyed_beside,
    },
    Scenario {
        id: "BI-54",
        title: "a call whose results cannot be stored makes nothing",
        source: "D3DKMTCreateDoorbell, D3DKMTCreateHwQueue, Return value; DxgkDdiDestroyDoorbell",
        play: not_stored,
    },
];

/// What is destroyed beside the makers, in turns.
#[derive(Clone, Copy)]
enum End {
    Queue,
    Context,
    Device,
}

const ENDS: [End; 3] = [End::Queue, End::Context, End::Device];

fn spin(turns: u32) {
    (0..turns).for_each(|_| std::hint::spin_loop());
}

/// Makes a queue, and destroys it, or what it belongs to, while this thread makes more of it.
fn beside(scene: &Scene, raw: &Raw, round: u32) -> Played {
    let room = Room::new(raw)?;
    let (ring, control) = (room.memory(scene, 4096)?, room.memory(scene, 4096)?);
    // CAST: 0 to 2.
    let end = ENDS[(round % 3) as usize];
    for turn in 0..8 {
        let context = room.context(turn % 2)?;
        let queue = room.queue_in(context, true)?.handle;
        let bell = room.bell(queue, &ring, &control)?.handle;
        std::thread::scope(|scope| {
            let destroys = scope.spawn(|| {
                spin((round * 37 + turn * 113) % 700);
                match end {
                    End::Queue => room.destroy_queue(queue),
                    End::Context => room.destroy_context(context),
                    End::Device => raw.destroy_device(room.device),
                }
            });
            // Each may come too late.
            for call in 0..4 {
                match (call + turn) % 4 {
                    0 => drop(room.connect(queue, bell)),
                    1 => drop(room.bell_with(queue, &ring, &control, true)),
                    2 => drop(room.notify(queue, bell)),
                    _ => drop(room.queue_in(context, true)),
                }
            }
            destroys.join().map_err(|_| anyhow!("a thread ended by itself"))?.context("a destruction")
        })?;
        match end {
            End::Queue => room.destroy_context(context)?,
            End::Context => {}
            End::Device => return Ok(()),
        }
    }
    Ok(raw.destroy_device(room.device)?)
}

fn destroyed_beside(stage: &Stage) -> Played {
    /// A multiple of what is destroyed in turns, and so is a fifth of it.
    const ROUNDS: u64 = 240;
    // CAST: a few hundred.
    let rounds = stage.rounds(ROUNDS) as u32;
    for model in MODELS {
        let play = |scene: &Scene| {
            let (one, good) = (raw(scene)?, raw(scene)?);
            let room = Room::new(&good)?;
            let queue = RingQueue::connected(scene, &room, 0, 4096)?;
            // What a process's first device brings along stays.
            beside(scene, &one, 0)?;
            let before = (one.process.open_handles(), census(scene)?);
            for round in 1..=rounds {
                beside(scene, &one, round).with_context(|| format!("round {round}"))?;
            }
            same("handles and objects", (one.process.open_handles(), census(scene)?), before)?;
            let progress = queue.submit_through(&[])?;
            queue.wait(scene, progress)
        };
        stage.play(Setup::default().setting("DoorbellModel", model), play)?;
    }
    Ok(())
}

/// Calls `thunk` with a record in memory that user mode may only read.
fn kept_back<T: Plain>(
    scene: &Scene,
    raw: &Raw,
    page: &Memory,
    thunk: impl crate::scenario::raw::Thunk<T>,
    record: &T,
) -> Played {
    let protect = |rights| scene.world.os.kernel().protect_user(raw.process.nt(), page.cpu, rights);
    let mut bytes = record.as_bytes().to_vec();
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    page.write(raw, 0, &bytes)?;
    protect(Rights::Read).context("protection")?;
    let status = raw.call_at(thunk, page.cpu);
    protect(Rights::ReadWrite).context("protection")?;
    same("status", status, STATUS_ACCESS_VIOLATION)
}

fn not_stored(stage: &Stage) -> Played {
    stage.play(Setup::default(), |scene| {
        let raw = raw(scene)?;
        let room = Room::new(&raw)?;
        let page = room.memory(scene, 4096)?;
        let queue = room.queue(0, true)?;
        let (ring, control) = (room.memory(scene, 4096)?, room.memory(scene, 4096)?);
        let context = room.context(0)?;
        let before = (raw.process.open_handles(), census(scene)?);
        let is_as_before = |what: &str| {
            same(
                &format!("handles and objects behind {what}"),
                (raw.process.open_handles(), census(scene)?),
                before.clone(),
            )
        };
        let protect = |rights| scene.world.os.kernel().protect_user(raw.process.nt(), page.cpu, rights);

        // The private data alone.
        page.write(&raw, 0, &Room::bell_data(ring.gpu, control.gpu))?;
        let mut none = [0; 16];
        let mut record = Room::bell_record(queue.handle, ring.handle, control.handle, &mut none);
        record.PrivateDriverData = core::ptr::with_exposed_provenance_mut(page.cpu);
        let made = scene.calls("DxgkDdiCreateDoorbell");
        protect(Rights::Read).context("protection")?;
        let status = raw.call(raw.thunks.D3DKMTCreateDoorbell, &mut record);
        same("a doorbell whose private data cannot be stored", status, STATUS_ACCESS_VIOLATION)?;
        same("the driver's doorbells", scene.calls("DxgkDdiCreateDoorbell"), made + 1)?;
        is_as_before("the doorbell")?;
        let data = ContextData { magic: MAGIC, interface_version: gpu_wire::INTERFACE_VERSION };
        protect(Rights::ReadWrite).context("protection")?;
        page.write(&raw, 0, data.bytes())?;
        protect(Rights::Read).context("protection")?;
        let mut record = D3DKMT_CREATECONTEXTVIRTUAL::zeroed();
        record.hDevice = room.device;
        record.Flags.set_HwQueueSupported(true);
        record.pPrivateDriverData = core::ptr::with_exposed_provenance_mut(page.cpu);
        record.PrivateDriverDataSize = 8;
        let status = raw.call(raw.thunks.D3DKMTCreateContextVirtual, &mut record);
        ensure!(status != STATUS_SUCCESS, "a context whose private data cannot be stored was made");
        is_as_before("the context")?;
        protect(Rights::ReadWrite).context("protection")?;

        // The record.
        let mut data = Room::bell_data(ring.gpu, control.gpu);
        let record = Room::bell_record(queue.handle, ring.handle, control.handle, &mut data);
        kept_back(scene, &raw, &page, raw.thunks.D3DKMTCreateDoorbell, &record).context("a doorbell")?;
        is_as_before("a doorbell's record")?;
        let mut record = D3DKMT_CREATEHWQUEUE::zeroed();
        record.hHwContext = context;
        record.Flags.set_UserModeSubmission(true);
        kept_back(scene, &raw, &page, raw.thunks.D3DKMTCreateHwQueue, &record).context("a queue")?;
        is_as_before("a queue's record")?;
        let record = Raw::native_fence_record(room.device, 1);
        kept_back(scene, &raw, &page, raw.thunks.D3DKMTCreateNativeFence, &record).context("a native fence")?;
        is_as_before("a native fence's record")?;
        let mut record = D3DKMT_CREATESYNCHRONIZATIONOBJECT2::zeroed();
        record.hDevice = room.device;
        record.Info.Type = D3DDDI_SYNCHRONIZATIONOBJECT_TYPE::D3DDDI_MONITORED_FENCE;
        let thunk = raw.thunks.D3DKMTCreateSynchronizationObject2;
        kept_back(scene, &raw, &page, thunk, &record).context("a monitored fence")?;
        is_as_before("a monitored fence's record")?;
        let mut record = D3DKMT_CREATEPAGINGQUEUE::zeroed();
        record.hDevice = room.device;
        kept_back(scene, &raw, &page, raw.thunks.D3DKMTCreatePagingQueue, &record).context("a paging queue")?;
        is_as_before("a paging queue's record")?;
        let mut record = D3DKMT_CREATEDEVICE::zeroed();
        record.set_hAdapter(raw.adapter);
        kept_back(scene, &raw, &page, raw.thunks.D3DKMTCreateDevice, &record).context("a device")?;
        is_as_before("a device's record")?;

        // The queue has no doorbell: it gets one.
        let bell: D3DKMT_HANDLE = room.bell(queue.handle, &ring, &control)?.handle;
        Ok(room.connect(queue.handle, bell)?)
    })
}
