//! Waiting for a device to be idle.

use crate::scenario::db::{KernelQueue, Memory, RingQueue, Room, raw};
use crate::scenario::{Played, Raw, Scene, Setup, Stage, patience, same};
use anyhow::{Context, ensure};
use gpu_wire::packet::{Copy, Encoded, Indirect};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;
use wddm_abi::ntstatus::{STATUS_INVALID_PARAMETER, STATUS_SUCCESS};
use wddm_abi::{D3DKMT_HANDLE, D3DKMT_WAITFORIDLE, D3DKMT_WAITFORSYNCHRONIZATIONOBJECTFROMGPU, NTSTATUS};

/// How long a wait that must not end is looked at.
const A_WHILE: Duration = Duration::from_millis(30);

/// The packet node of every rung.
const PACKETS: u32 = 2;

pub(super) fn wait_for_idle(raw: &Raw, device: D3DKMT_HANDLE) -> NTSTATUS {
    raw.call(raw.thunks.D3DKMTWaitForIdle, &mut D3DKMT_WAITFORIDLE { hDevice: device })
}

/// Waits on a thread of its own: what arrives is the call's status.
fn begin(raw: &Raw, device: D3DKMT_HANDLE) -> Receiver<NTSTATUS> {
    let (sender, receiver) = channel();
    let raw = raw.again();
    std::thread::spawn(move || {
        let status = wait_for_idle(&raw, device);
        // Let go of the process first: it must not outlive the case because of this thread.
        drop(raw);
        // The receiver is gone when the case has failed.
        let _ = sender.send(status);
    });
    receiver
}

/// The device is not idle before `work` has ended its work.
fn idle_behind(raw: &Raw, device: D3DKMT_HANDLE, work: impl FnOnce() -> Played) -> Played {
    let waits = begin(raw, device);
    same("a wait while there is work", waits.recv_timeout(A_WHILE), Err(RecvTimeoutError::Timeout))?;
    work()?;
    same("the wait", waits.recv_timeout(patience()).context("it did not return")?, STATUS_SUCCESS)
}

/// A command buffer that runs until it is told to stop, for packet contexts.
struct Spin(Memory);

impl Spin {
    /// Bytes of its packets: a copy within the page, and a jump back.
    fn packets(&self) -> [Encoded; 2] {
        let copy = Copy { source: self.0.gpu + 1024, destination: self.0.gpu + 1032, length: 8 }.to_packet();
        let jump = |length| Indirect { address: self.0.gpu, length }.to_packet();
        let length = copy.as_bytes().len() + jump(0).as_bytes().len();
        [copy, jump(length as u64)]
    }

    /// Where the process finds the word that becomes 1 when the buffer runs.
    fn runs_at(&self) -> usize {
        self.0.cpu + 1032
    }

    fn submit(&self, raw: &Raw, context: D3DKMT_HANDLE) -> Played {
        let bytes: Vec<u8> = self.packets().iter().flat_map(|packet| packet.as_bytes().to_vec()).collect();
        self.0.write(raw, 0, &bytes)?;
        self.0.write(raw, 1024, &1_u64.to_le_bytes())?;
        // CAST: two packets.
        raw.submit_command(context, self.0.gpu, bytes.len() as u32).context("submit")
    }

    fn stop(&self, raw: &Raw) -> Played {
        let [copy, jump] = self.packets();
        let nop = Encoded::nop(u32::try_from(jump.as_bytes().len())?);
        self.0.write(raw, copy.as_bytes().len() as u64, &nop.as_bytes()[..8])
    }
}

/// Work of packet contexts, and what waits for a fence.
fn packets(scene: &Scene, raw: &Raw) -> Played {
    let room = Room::new(raw)?;
    same("a device without work", wait_for_idle(raw, room.device), STATUS_SUCCESS)?;
    let (context, spin) = (room.packet_context(PACKETS).context("context")?, Spin(room.memory(scene, 4096)?));
    spin.submit(raw, context)?;
    idle_behind(raw, room.device, || spin.stop(raw))?;
    // Work behind a wait that nothing ends keeps no device busy; behind the signal it does.
    let fence = raw.monitored_fence(room.device, 0, false).context("fence")?.handle;
    let mut wait = D3DKMT_WAITFORSYNCHRONIZATIONOBJECTFROMGPU::zeroed();
    let value = 1_u64;
    (wait.hContext, wait.ObjectCount, wait.ObjectHandleArray) = (context, 1, &raw const fence);
    wait.set_MonitoredFenceValueArray(&raw const value);
    raw.ok(raw.thunks.D3DKMTWaitForSynchronizationObjectFromGpu, &mut wait).context("a wait")?;
    spin.submit(raw, context)?;
    same("work that waits", wait_for_idle(raw, room.device), STATUS_SUCCESS)?;
    // It does not run now.
    raw.store(spin.runs_at(), 0)?;
    raw.signal_cpu(room.device, &[(fence, 1)]).context("signal")?;
    scene.until("the buffer runs", || Ok(raw.load(spin.runs_at())? == 1))?;
    idle_behind(raw, room.device, || spin.stop(raw))
}

/// Work of hardware queues.
fn queues(scene: &Scene, raw: &Raw, has_doorbells: bool) -> Played {
    let room = Room::new(raw)?;
    let queue = KernelQueue::new(scene, &room, room.context(0).context("context")?)?;
    queue.spin(&room, 0, None, 1)?;
    idle_behind(raw, room.device, || queue.stop(raw, 0, 1))?;
    ensure!(queue.value(raw)? == 1, "it was over before the work");
    if !has_doorbells {
        return Ok(());
    }
    let bell = RingQueue::connected(scene, &room, 0, 4096)?;
    // The word says that something is queued, as it does before the ring has it.
    bell.tell(1)?;
    idle_behind(raw, room.device, || bell.submit_through(&[]).map(|_| ()))
}

pub(super) fn idle(stage: &Stage) -> Played {
    for rung in [0, 1, 3].into_iter().filter(|rung| *rung <= stage.rung()) {
        let play = |scene: &Scene| {
            let (raw, other) = (raw(scene)?, raw(scene)?);
            packets(scene, &raw)?;
            if rung > 0 {
                queues(scene, &raw, rung == 3)?;
            }
            let device = raw.device()?;
            for (what, process, handle) in
                [("no device", &raw, 0), ("an adapter", &raw, raw.adapter), ("another's", &other, device)]
            {
                same(what, wait_for_idle(process, handle), STATUS_INVALID_PARAMETER)?;
            }
            same("NULL", raw.call_null(raw.thunks.D3DKMTWaitForIdle), STATUS_INVALID_PARAMETER)?;
            raw.destroy_device(device)?;
            same("a device that is gone", wait_for_idle(&raw, device), STATUS_INVALID_PARAMETER)
        };
        let setup = Setup::default().setting("MaxRung", rung);
        stage.play(setup, play).with_context(|| format!("rung {rung}"))?;
    }
    stage.play(Setup::default().setting("MaxRung", 0).resets(1), |scene| {
        let raw = raw(scene)?;
        let room = Room::new(&raw)?;
        let (context, spin) = (room.packet_context(PACKETS).context("context")?, Spin(room.memory(scene, 4096)?));
        spin.submit(&raw, context)?;
        scene.until("the buffer runs", || Ok(raw.load(spin.runs_at())? == 1))?;
        let waits = begin(&raw, room.device);
        scene.world.os.reset_engine(scene.adapter(), PACKETS, false);
        let status = waits.recv_timeout(patience()).context("it did not return")?;
        same("a device that is lost", status, scene.status_of_lost())
    })
}
