//! Waits and signals on fences whose values are in local memory: the model only, 24H2 does not offer it.

use crate::client::Queue;
use crate::scenario::client::{Client, native_interrupts, until_idle};
use crate::scenario::nf::intra_gpu_record;
use crate::scenario::raw::{ALL, NativeFence, duplicate};
use crate::scenario::{Played, Raw, Setup, Stage, same};
use anyhow::{Context, Result};
use dxgkrnl_model::process::End;
use gpu_wire::GpuVa;
use gpu_wire::packet::Encoded;

fn offered() -> Setup {
    Setup::default().windows(|windows| windows.native_fence_os_caps.intra_gpu = true)
}

fn fence(rig: &Client) -> Result<NativeFence> {
    rig.raw.create_native_fence(&mut intra_gpu_record(rig.plain)).context("an intra-GPU fence")
}

/// Has `queue` wait for each of `rounds` values of one fence and signal it of the other.
fn take_turns(queue: &Queue, waits: NativeFence, signals: NativeFence, rounds: u64, first: bool) -> Played {
    for start in (1..=rounds).step_by(50) {
        queue.run(|list| {
            (start..start + 50).try_for_each(|round| {
                let awaited = if first { round - 1 } else { round };
                list.raw(Encoded::fence_wait(GpuVa(waits.gpu), awaited).as_bytes())?;
                list.raw(Encoded::fence_signal(GpuVa(signals.gpu), round).as_bytes())
            })
        })?;
    }
    Ok(())
}

pub(super) fn turns(stage: &Stage) -> Played {
    const ROUNDS: u64 = 1000;
    stage.play(offered(), |scene| {
        let rig = Client::open(scene, "client")?;
        let peek = rig.page()?;
        for (from, to) in [(0, 1), (0, 0)] {
            let (one, two) = (rig.queue(from)?, rig.queue(to)?);
            let (ping, pong) = (fence(&rig)?, fence(&rig)?);
            let local = |places: &&(u32, u32)| **places == (2, 2);
            same("fences in local memory", scene.adapter().native_fence_segments().iter().filter(local).count(), 2)?;
            let (updates, interrupts) = (scene.calls("DxgkDdiUpdateMonitoredValues"), native_interrupts(scene).len());
            take_turns(&one, pong, ping, ROUNDS, true)?;
            take_turns(&two, ping, pong, ROUNDS, false)?;
            until_idle(scene, &one)?;
            until_idle(scene, &two)?;
            // Nobody waits from the CPU, so nobody is told.
            same("updates of MonitoredValue", scene.calls("DxgkDdiUpdateMonitoredValues"), updates)?;
            same("interrupts", native_interrupts(scene).len(), interrupts)?;
            one.run(|list| {
                list.copy(ping.gpu, peek.at(0), 8)?;
                list.copy(pong.gpu, peek.at(1), 8)
            })?;
            until_idle(scene, &one)?;
            same("the values", (peek.word(0)?, peek.word(1)?), (ROUNDS, ROUNDS))?;
            for fence in [ping, pong] {
                rig.raw.destroy_fence(fence.handle).context("destroy")?;
            }
        }
        Ok(())
    })
}

/// The CPU has no address of such a fence, and yet its waiters are released when its maker is lost.
pub(super) fn maker_lost(stage: &Stage) -> Played {
    stage.play(offered(), |scene| {
        let consumer = Client::open(scene, "consumer")?;
        let page = consumer.page()?;
        let (waits, works) = (consumer.queue(1)?, consumer.queue(1)?);
        let maker = scene.process("maker")?;
        let raw = Raw::open(&maker.process, scene.adapter().luid())?;
        let device = raw.device().context("device")?;
        // One that another process has open, too, and one in local memory.
        raw.create_native_fence(&mut intra_gpu_record(device)).context("an intra-GPU fence")?;
        let mut record = intra_gpu_record(device);
        record.Info.Flags.set_Shared(true);
        record.Info.Flags.set_NtSecuritySharing(true);
        let shared = raw.create_native_fence(&mut record).context("a shared one")?;
        let handle = raw.share(shared.handle, ALL).context("share")?;
        let handle = duplicate(handle, &maker.process, &consumer.user.process)?;
        let opened = consumer.raw.open_native_fence(consumer.plain, handle).context("open")?;
        consumer.raw.close(handle);
        let wait = |value, mark| {
            waits.run(|list| {
                list.store(page.at(0), mark)?;
                list.raw(Encoded::fence_wait(GpuVa(opened.gpu), value).as_bytes())?;
                list.store(page.at(1), mark)
            })
        };
        wait(5, 1)?;
        page.until(scene, "the mark before the wait", 0, 1)?;
        works.run(|list| list.store(page.at(2), 1))?;
        page.until(scene, "another queue of the node", 2, 1)?;
        same("the mark behind the wait", page.word(1)?, 0)?;
        let calls = scene.calls("DxgkDdiUpdateCurrentValuesFromCpu");
        drop(raw);
        std::sync::Arc::into_inner(maker.process).context("the only owner")?.end(End::Terminated);
        same("AlwaysSignaled", scene.calls("DxgkDdiUpdateCurrentValuesFromCpu") - calls, 2)?;
        page.until(scene, "the mark behind the wait", 1, 1)?;
        // Later waits pass at once, signals do nothing.
        wait(9, 2)?;
        page.until(scene, "a later wait", 1, 2)?;
        works.run(|list| {
            list.raw(Encoded::fence_signal(GpuVa(opened.gpu), 77).as_bytes())?;
            list.copy(opened.gpu, page.at(3), 8)
        })?;
        until_idle(scene, &works)?;
        same("the value", page.word(3)?, 0)
    })
}
