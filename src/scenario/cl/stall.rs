//! Buffers of kernel-mode queues that do not run: what a driver of before submitted.

use super::super::te::in_time::in_time;
use super::raw;
use crate::scenario::db::{Memory, Room};
use crate::scenario::raw::Raw;
use crate::scenario::{Played, Scenario, Setup, Stage};
use anyhow::{Context, ensure};
use gpu_wire::GpuVa;
use gpu_wire::packet::{Encoded, Store};

pub(super) const CASE: Scenario = Scenario {
    id: "CL-13",
    title: "a kernel-mode buffer that waits on the GPU, or never writes its value, is found out; what follows goes on",
    source: "Native GPU fence objects, Kernel-mode work submission; D3DKMT_SUBMITCOMMANDTOHWQUEUE",
    play: stalls,
};

const RULE: &str = "DXG-HW-STALL";

/// Writes packets to the start of a buffer; how many bytes they are.
fn write(raw: &Raw, buffer: &Memory, packets: &[Encoded]) -> anyhow::Result<u32> {
    let bytes: Vec<u8> = packets.iter().flat_map(|packet| packet.as_bytes().to_vec()).collect();
    buffer.write(raw, 0, &bytes)?;
    // CAST: some packets.
    Ok(bytes.len() as u32)
}

fn stalls(stage: &Stage) -> Played {
    // Suspensions are acknowledged within TdrDelay, or the engine is reset: where the host lets its thread run.
    let setup = || Setup::default().quick_tdr().breaks(&[RULE]);
    in_time(stage, setup, |scene, _| {
        let raw = raw(scene)?;
        let room = Room::new(&raw)?;
        let (queue, buffer) = (room.queue(0, false)?, room.memory(scene, 4096)?);
        let store = Store { address: buffer.gpu + 1024, value: 7 }.to_packet();
        let length = write(&raw, &buffer, &[store])?;
        room.submit(queue.handle, buffer.gpu, length, 1).context("a buffer that does not write its value")?;
        scene.until("the verdict", || Ok(scene.world.os.report().broken().any(|rule| rule.rule.name == RULE)))?;
        ensure!(raw.load(buffer.cpu + 1024)? == 7 && raw.load(queue.progress.cpu)? == 0, "it did not run");
        // The model no longer waits for the buffer's end.
        room.destroy_queue(queue.handle).context("destroying the queue")?;
        ensure!(room.is_active()?, "the device is lost");
        Ok(())
    })
    .context("a value that no buffer writes")?;
    in_time(stage, setup, |scene, _| {
        let raw = raw(scene)?;
        let room = Room::new(&raw)?;
        let (queue, buffer) = (room.queue(0, false)?, room.memory(scene, 4096)?);
        let fence = raw.native_fence(room.device, 0).context("a native fence")?;
        let end = Encoded::fence_signal(GpuVa(queue.progress.gpu), 1);
        let length = write(&raw, &buffer, &[Encoded::fence_wait(GpuVa(fence.gpu), 5), end])?;
        room.submit(queue.handle, buffer.gpu, length, 1).context("a buffer that waits")?;
        scene.until("the verdict", || Ok(scene.world.os.report().broken().any(|rule| rule.rule.name == RULE)))?;
        raw.signal_cpu(room.device, &[(fence.handle, 5)]).context("the signal")?;
        scene.until("its value", || Ok(raw.load(queue.progress.cpu)? == 1))?;
        room.destroy_queue(queue.handle).context("destroying the queue")?;
        ensure!(room.is_active()?, "the device is lost");
        Ok(())
    })
    .context("a wait on the GPU")
}
