//! A device that sleeps, and one that goes.

use super::super::rig::Rig;
use super::super::stage::PATIENCE;
use super::super::{Played, Scene, Setup, Stage, same};
use anyhow::{Context, ensure};
use dxgkrnl_model::adapter::AdapterState;
use dxgkrnl_model::pci::{DeviceKind, InterruptModel};
use dxgkrnl_model::personality::MS;
use umd_core::ffi::types::FP_QUEUE_KERNEL_MODE;
use wddm_abi::ntstatus::STATUS_SUCCESS;

/// A process with queues of both kinds, one of which waits for a fence.
fn busy(scene: &Scene) -> anyhow::Result<()> {
    let rig = Rig::open(scene, "client")?;
    let (user, kernel) = (rig.queue(0)?, rig.device.queue(1, 64 << 10, FP_QUEUE_KERNEL_MODE, 0)?);
    let (fence, page) = (rig.fence(0, true)?, rig.page()?);
    kernel.run(|list| list.store(page.at(0), 1))?;
    page.until(scene, "work", 0, 1)?;
    user.run(|list| {
        list.wait(&fence, 1)?;
        list.store(page.at(1), 1)
    })?;
    let status = scene.world.os.remove_by_surprise(scene.adapter()).context("the driver was not told")?;
    same("the answer", status, STATUS_SUCCESS)?;
    same("state", scene.adapter().state(), AdapterState::Stopped)?;
    // What is called afterwards is refused, and nothing hangs.
    ensure!(rig.raw.native_fence(rig.plain, 0).is_err(), "a fence was made on a device that is gone");
    Ok(())
}

pub(super) fn removal(stage: &Stage) -> Played {
    for interrupts in [InterruptModel::Line, InterruptModel::Message] {
        let mut setup = Setup::default();
        setup.adapter.device.interrupts = interrupts;
        stage.play(setup, busy).with_context(|| format!("{interrupts:?}"))?;
    }
    // And back again: the next start finds a device.
    stage.play(Setup::default(), |scene| {
        let status = scene.world.os.remove_by_surprise(scene.adapter()).context("the driver was not told")?;
        same("the answer", status, STATUS_SUCCESS)?;
        scene.world.os.restart_adapter(scene.adapter())?;
        let rig = Rig::open(scene, "client")?;
        let (queue, page) = (rig.queue(0)?, rig.page()?);
        queue.run(|list| list.store(page.at(0), 1))?;
        page.until(scene, "work", 0, 1)
    })
}

pub(super) fn asleep(stage: &Stage) -> Played {
    for dead in [true, false] {
        for kind in [DeviceKind::Edu, DeviceKind::Root] {
            let mut setup = Setup::default().windows(|windows| windows.dead_in_d3 = dead);
            setup.adapter.device.kind = kind;
            if kind == DeviceKind::Root {
                setup.adapter.device.interrupts = InterruptModel::SynchronizedOnly;
            }
            stage.play(setup, completes_in_d3).with_context(|| format!("{kind:?}, registers dead in D3: {dead}"))?;
        }
    }
    Ok(())
}

/// Work ends while the device is in D3; what it has to say is heard after D0.
fn completes_in_d3(scene: &Scene) -> Played {
    let rig = Rig::open(scene, "client")?;
    let (gate, done, page) = (rig.fence(0, true)?, rig.fence(0, true)?, rig.page()?);
    for round in 1..4 {
        let mut waits = Vec::new();
        for node in 0..2 {
            let queue = rig.queue(node)?;
            queue.run(|list| {
                list.wait(&gate, round)?;
                list.store(page.at(node.into()), round)
            })?;
            waits.push(queue);
        }
        waits[0].run(|list| list.signal(&done, round))?;
        let waiting = rig.wait(&[(&done, round)], false)?;
        scene.world.os.set_adapter_power(scene.adapter(), false);
        rig.signal(&[(&gate, round)])?;
        for node in 0..2 {
            page.until(scene, "work in D3", node, round)?;
        }
        scene.until("the last signal", || Ok(rig.value(&done)? == round))?;
        scene.world.os.set_adapter_power(scene.adapter(), true);
        waiting.comes(&rig, "what was signaled in D3")?;
    }
    Ok(())
}

pub(super) fn lost_interrupt(stage: &Stage) -> Played {
    // The interrupt that gets lost is a paging packet's, or a command buffer's.
    let mut asked = 0;
    for nth in [1, 2, 5, 9, 10, 11, 12, 13, 14, 15, 16] {
        let setup = Setup::default().setting("MaxRung", 0).windows(|windows| {
            windows.tdr.delay = 500 * MS;
            windows.faults.lost_interrupt = nth;
        });
        let play = |scene: &Scene| {
            let rig = Rig::open(scene, "client")?;
            let (one, two, page) = (rig.queue(0)?, rig.queue(1)?, rig.page()?);
            for round in 1..8 {
                one.run(|list| list.store(page.at(0), round))?;
                two.run(|list| list.store(page.at(1), round))?;
                one.wait(0, PATIENCE)?;
                two.wait(0, PATIENCE)?;
                same("memory", (page.word(0)?, page.word(1)?), (round, round))?;
            }
            asked += scene.calls("DxgkDdiQueryCurrentFence");
            Ok(())
        };
        stage.play(setup, play).with_context(|| format!("interrupt {nth} gets lost"))?;
    }
    ensure!(asked > 0, "nobody asked for a fence");
    Ok(())
}
