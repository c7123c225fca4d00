//! Monitored fences on an adapter whose engines store no more than 32 bits in one piece.

use crate::client::Queue;
use crate::scenario::client::{Client, Page, RING};
use crate::scenario::raw::NativeFence;
use crate::scenario::stage::PATIENCE;
use crate::scenario::{Denied, Played, Scene, Setup, Stage, same};
use anyhow::{Context, Result, ensure};
use umd_core::ffi::types::{FP_FENCE_MONITORED, FP_QUEUE_KERNEL_MODE};
use wddm_abi::ntstatus::STATUS_INVALID_PARAMETER;

/// How far values may be from the last one: `UINT_MAX / 2`.
const REACH: u64 = 0x7FFF_FFFF;
/// Just below the place where 32 bits wrap.
const LOW: u64 = 0x2_FFFF_FFF0;
/// Behind it.
const HIGH: u64 = 0x3_0000_0005;

fn setup(rung: u32) -> Setup {
    Setup::default().setting("MaxRung", rung).setting("No64BitAtomics", 1)
}

/// Plays where the setting counts.
fn narrow(stage: &Stage, more: impl Fn(Setup) -> Setup, play: impl Fn(&Scene) -> Played) -> Played {
    for rung in [0, 1] {
        let checked = |scene: &Scene| {
            let caps = scene.adapter().caps().context("no capabilities")?;
            ensure!(caps.driver.SchedulingCaps.No64BitAtomics(), "No64BitAtomics is clear");
            play(scene)
        };
        stage.play(more(setup(rung)), checked).with_context(|| format!("rung {rung}"))?;
    }
    Ok(())
}

/// A queue that waits for `value` and then stores it to the page.
fn waiter(rig: &Client, fence: &crate::client::Fence, value: u64, page: &Page) -> Result<Queue> {
    let queue = rig.device.queue(1, RING, 0, 0)?;
    queue.run(|list| {
        list.wait(fence, value)?;
        list.store(page.at(0), value)
    })?;
    Ok(queue)
}

/// Signals over the wrap, while a CPU and a queue wait for what lies behind it.
fn over_the_wrap(scene: &Scene) -> Played {
    let rig = Client::open(scene, "client")?;
    let (queue, page) = (rig.device.queue(0, RING, 0, 0)?, rig.page()?);
    let fence = rig.device.fence(LOW, FP_FENCE_MONITORED)?;
    same("the initial value", fence.value()?, LOW)?;
    let behind = rig.value(&fence)? >> 32;
    let (far, near) = (rig.wait(&[(&fence, HIGH)], false)?, rig.wait(&[(&fence, LOW + 1)], false)?);
    let other = waiter(&rig, &fence, HIGH, &page)?;
    queue.run(|list| list.signal(&fence, LOW + 1))?;
    near.comes(&rig, "the wait before the wrap")?;
    far.still_waits(&rig, "the wait behind the wrap")?;
    for value in LOW + 2..HIGH {
        queue.run(|list| list.signal(&fence, value))?;
        fence.wait(value, PATIENCE)?;
        same("the value", fence.value()?, value)?;
        far.still_waits(&rig, "the wait behind the wrap")?;
    }
    same("the queue that waits", page.word(0)?, 0)?;
    queue.run(|list| list.signal(&fence, HIGH))?;
    far.comes(&rig, "the wait behind the wrap")?;
    other.wait(0, PATIENCE)?;
    same("the queue that waited", page.word(0)?, HIGH)?;
    same("the value in memory", rig.value(&fence)? & 0xFFFF_FFFF, HIGH & 0xFFFF_FFFF)?;
    same("what lies behind it", rig.value(&fence)? >> 32, behind)?;
    // The CPU's turn, all the way round.
    let mut value = HIGH;
    for _ in 0..4 {
        let wait = rig.wait(&[(&fence, value + 0x6000_0000)], false)?;
        fence.signal(value + 0x5FFF_FFFF)?;
        wait.still_waits(&rig, "one more")?;
        fence.signal(value + 0x6000_0000)?;
        wait.comes(&rig, "a signal of the CPU")?;
        value += 0x6000_0000;
        same("the value", fence.value()?, value)?;
    }
    same("what lies behind it", rig.value(&fence)? >> 32, behind)
}

pub(super) fn wrap(stage: &Stage) -> Played {
    narrow(stage, |setup| setup, over_the_wrap)?;
    narrow(stage, |setup| setup.setting("BasicMonitoredFences", 1), over_the_wrap)?;
    narrow(stage, |setup| setup.setting("SoftwareSignalNodes", 7), over_the_wrap)
}

/// What a fence takes, by a wait and by a signal of the CPU, relative to a value.
fn takes(rig: &Client, fence: NativeFence, value: u64) -> [Result<(), Denied>; 2] {
    let (event, handle) = rig.raw.event();
    let wait = rig.raw.wait_cpu(rig.plain, &[(fence.handle, value)], false, Some(handle));
    let signal = rig.raw.rewind_cpu(rig.plain, fence.handle, value);
    rig.raw.close(handle);
    drop(event);
    [wait, signal]
}

pub(super) fn limit(stage: &Stage) -> Played {
    let refused = Err(Denied(STATUS_INVALID_PARAMETER));
    narrow(
        stage,
        |setup| setup,
        |scene| {
            let rig = Client::open(scene, "client")?;
            let fence = rig.raw.monitored_fence(rig.plain, LOW, false)?;
            same("too far up", takes(&rig, fence, LOW + REACH + 1), [refused, refused])?;
            same("far up", takes(&rig, fence, LOW + REACH), [Ok(()), Ok(())])?;
            // From there it is as far again.
            same("too far up", takes(&rig, fence, LOW + 2 * REACH + 1), [refused, refused])?;
            same("far up", takes(&rig, fence, LOW + 2 * REACH), [Ok(()), Ok(())])?;
            // Down: a wait is over, a signal is a signal.
            same("too far down", takes(&rig, fence, LOW + REACH - 1), [Ok(()), refused])?;
            same("far down", takes(&rig, fence, LOW + REACH), [Ok(()), Ok(())])?;
            // Waits and signals of queues.
            let queue = rig.device.queue(0, RING, 0, 0)?.info()?;
            let on = |signal: bool, value: u64| match (scene.calls("DxgkDdiCreateHwQueue") != 0, signal) {
                (true, true) => rig.raw.queue_signal(queue.handle, fence.handle, value),
                (true, false) => rig.raw.queue_wait(queue.handle, fence.handle, value),
                (false, true) => rig.raw.context_signal(queue.handle, fence.handle, value),
                (false, false) => rig.raw.context_wait(queue.handle, fence.handle, value),
            };
            let last = LOW + REACH;
            for signal in [false, true] {
                same("too far up for a queue", on(signal, last + REACH + 1), refused)?;
            }
            Ok(())
        },
    )?;
    // With 64 bits nothing is too far.
    stage.play(Setup::default().setting("MaxRung", 1), |scene| {
        let rig = Client::open(scene, "client")?;
        let fence = rig.raw.monitored_fence(rig.plain, LOW, false)?;
        for value in [LOW + REACH + 1, 1 << 60, 3] {
            same("a value anywhere", takes(&rig, fence, value), [Ok(()), Ok(())])?;
        }
        Ok(())
    })
}

pub(super) fn native(stage: &Stage) -> Played {
    for rung in [2, 3] {
        stage
            .play(setup(rung), |scene| {
                let caps = scene.adapter().caps().context("no capabilities")?;
                ensure!(!caps.driver.SchedulingCaps.No64BitAtomics(), "No64BitAtomics beside native fences");
                let rig = Client::open(scene, "client")?;
                let queue = rig.device.queue(0, RING, FP_QUEUE_KERNEL_MODE, 0)?;
                for native in [true, false] {
                    let fence = rig.fence(5, native)?;
                    let value = if native { 0x7_0000_0006 } else { 0x9_0000_0007 };
                    let wait = rig.wait(&[(&fence, value)], false)?;
                    queue.run(|list| list.signal(&fence, value))?;
                    wait.comes(&rig, "the wait")?;
                    same("all of the value", rig.value(&fence)?, value)?;
                }
                Ok(())
            })
            .with_context(|| format!("rung {rung}"))?;
    }
    Ok(())
}
