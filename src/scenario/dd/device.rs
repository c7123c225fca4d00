//! A device that sleeps, and one that goes.

use super::super::client::{Client, endless, until_idle};
use super::super::db::{Room, raw, store};
use super::super::stage::PATIENCE;
use super::super::te::Hog;
use super::super::te::held::while_held;
use super::super::{Played, Scene, Setup, Stage, same};
use anyhow::{Context, Result, ensure};
use dxgkrnl_model::adapter::AdapterState;
use dxgkrnl_model::pci::{DeviceKind, InterruptModel};
use dxgkrnl_model::personality::{Gate, MS};
use gpu_wire::packet::Indirect;
use nt_model::InterruptDelivery;
use std::time::Duration;
use umd_core::ffi::types::FP_QUEUE_KERNEL_MODE;
use wddm_abi::ntstatus::STATUS_SUCCESS;

/// Removes the device while a process has queues of both kinds, of which the user-mode one waits for a fence.
fn busy(scene: &Scene) -> anyhow::Result<()> {
    let rig = Client::open(scene, "client")?;
    let (user, kernel) = (rig.queue(0)?, rig.device.queue(1, 64 << 10, FP_QUEUE_KERNEL_MODE, 0)?);
    let (fence, page) = (rig.fence(0, true)?, rig.page()?);
    kernel.run(|list| list.store(page.at(0), 1))?;
    page.until(scene, "work", 0, 1)?;
    user.run(|list| {
        list.wait(&fence, 1)?;
        list.store(page.at(1), 1)
    })?;
    let caps = scene.adapter().caps().context("caps")?.driver;
    let [running, asleep] = [caps.SupportSurpriseRemoval, caps.SupportSurpriseRemovalInHibernation];
    same("SupportSurpriseRemoval, and in hibernation", (running, asleep), (1, 1))?;
    let status = scene.world.os.remove_by_surprise(scene.adapter()).context("the driver was not told")?;
    same("the answer", status, STATUS_SUCCESS)?;
    same("state", scene.adapter().state(), AdapterState::Stopped)?;
    // Calls after that are refused, and none hangs.
    ensure!(rig.raw.native_fence(rig.plain, 0).is_err(), "a fence was made on a device that is gone");
    Ok(())
}

/// Waits until no interrupt of finished work is on its way any more. Returns how often the driver has notified by then.
fn quiet(scene: &Scene) -> Result<u64> {
    let told = || scene.callbacks("DxgkCbNotifyInterrupt");
    let mut last = told();
    scene.until("the end of the interrupts", || {
        std::thread::park_timeout(Duration::from_millis(20));
        Ok(std::mem::replace(&mut last, told()) == told())
    })?;
    Ok(told())
}

pub(super) fn late_dpc(stage: &Stage) -> Played {
    stage.play(Setup::default(), |scene| {
        let client = Client::open(scene, "client")?;
        let (queue, page) = (client.queue(0)?, client.page()?);
        for round in 1..=20 {
            let done = queue.run(|list| list.store(page.at(0), round))?;
            // A wait of the CPU: its end is told of by a DPC, whatever came late before.
            queue.wait(done, PATIENCE).with_context(|| format!("round {round}"))?;
            page.until(scene, "work", 0, round)?;
            until_idle(scene, &queue)?;
            let told = quiet(scene)?;
            let before = scene.calls("DxgkDdiDpcRoutine");
            // Half of them among others': work is under way, whose end is told all the same.
            let beside = (round % 2 == 0).then(|| queue.run(|list| list.store(page.at(1), round))).transpose()?;
            scene.world.os.queue_late_dpc(scene.adapter());
            scene.until("the late DPC", || Ok(scene.calls("DxgkDdiDpcRoutine") > before))?;
            if let Some(beside) = beside {
                queue.wait(beside, PATIENCE).with_context(|| format!("beside the DPC of round {round}"))?;
                page.until(scene, "work beside it", 1, round)?;
            } else {
                // The routine has only been entered by then, and may tell something until it returns.
                same("notifications by a DPC alone", quiet(scene)?, told)?;
            }
        }
        Ok(())
    })
}

pub(super) fn removal(stage: &Stage) -> Played {
    for interrupts in [InterruptModel::Line, InterruptModel::Message] {
        let mut setup = Setup::default();
        setup.adapter.device.interrupts = interrupts;
        stage.play(setup, busy).with_context(|| format!("{interrupts:?}"))?;
    }
    // The next start finds a device again, and an engine that hangs is recovered as before.
    stage.play(Setup::default().quick_tdr().resets(1), |scene| {
        let status = scene.world.os.remove_by_surprise(scene.adapter()).context("the driver was not told")?;
        same("the answer", status, STATUS_SUCCESS)?;
        scene.world.os.restart_adapter(scene.adapter())?;
        let rig = Client::open(scene, "client")?;
        let (queue, page) = (rig.queue(0)?, rig.page()?);
        queue.run(|list| list.store(page.at(0), 1))?;
        page.until(scene, "work", 0, 1)?;
        let (_memory, address, length) = endless(&rig.device)?;
        queue.run(|list| list.indirect(address, length))?;
        scene.until("the loss of the device", || Ok(rig.device.state()?.execution != 1))
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
    for delivery in [InterruptDelivery::Inline, InterruptDelivery::Remote] {
        for interrupts in [InterruptModel::Line, InterruptModel::Message] {
            let mut setup = Setup::default().windows(|windows| windows.interrupt_delivery = delivery);
            setup.adapter.device.interrupts = interrupts;
            stage.play(setup, raises_into_d3).with_context(|| format!("{interrupts:?}, {delivery:?}"))?;
        }
    }
    Ok(())
}

/// Engines signal at full speed while the device goes to D3: an interrupt that the device had raised before must not be
/// left unclaimed (a line that stays high interrupts for ever), and each signal is reported, at the latest in D0.
fn raises_into_d3(scene: &Scene) -> Played {
    const SIGNALS: u64 = 24;
    let rig = Client::open(scene, "client")?;
    let (queue, fence) = (rig.queue(0)?, rig.fence(0, true)?);
    for round in 0..40 {
        let first = round * SIGNALS + 1;
        let values: Vec<_> = (first..first + SIGNALS).collect();
        let waits: Vec<_> =
            values.iter().map(|value| rig.wait(&[(&fence, *value)], false)).collect::<Result<_, _>>()?;
        queue.run(|list| values.iter().try_for_each(|value| list.signal(&fence, *value)))?;
        // Each round at another moment of the stream.
        scene.until_now("a signal", || Ok(rig.value(&fence)? >= first + round % SIGNALS))?;
        scene.world.os.set_adapter_power(scene.adapter(), false);
        scene.world.os.set_adapter_power(scene.adapter(), true);
        for wait in waits {
            wait.comes(&rig, "what was signaled around D3")?;
        }
    }
    Ok(())
}

/// Work ends while the device is in D3; the OS gets its interrupt once the device is in D0 again.
fn completes_in_d3(scene: &Scene) -> Played {
    let rig = Client::open(scene, "client")?;
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
    // The numbers are chosen so that the lost interrupt is once a paging packet's, once a command buffer's.
    let mut asked = 0;
    for nth in [1, 2, 5, 9, 10, 11, 12, 13, 14, 15, 16] {
        let setup = Setup::default().setting("MaxRung", 0).windows(|windows| {
            windows.tdr.delay = 500 * MS;
            windows.faults.lost_interrupt = nth;
        });
        let play = |scene: &Scene| {
            let rig = Client::open(scene, "client")?;
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
    ensure!(asked > 0, "DxgkDdiQueryCurrentFence was never called");
    asked_behind_a_reset(stage)
}

/// Two packets that never end, each the first of node 0 behind a start or an adapter reset: the driver is asked for the
/// fence of each, and does not answer one that is older than what the reset has ended.
fn asked_behind_a_reset(stage: &Stage) -> Played {
    let setup = Setup::default().quick_tdr().setting("MaxRung", 0).setting("PerEngineTdr", 0).resets(2);
    stage.play(setup, |scene| {
        for round in 1..3 {
            let rig = Client::open(scene, "client")?;
            let queue = rig.queue(0)?;
            let (_memory, address, length) = endless(&rig.device)?;
            queue.run(|list| list.indirect(address, length))?;
            scene.until("the loss of the device", || Ok(rig.device.state()?.execution != 1))?;
            // The device is marked in front of it.
            scene.until("the adapter's reset", || Ok(scene.calls("DxgkDdiResetFromTimeout") == round))?;
            ensure!(scene.calls("DxgkDdiQueryCurrentFence") >= round, "DxgkDdiQueryCurrentFence was not called");
        }
        Ok(())
    })
}

/// The DPC of the last packet still runs when the adapter is stopped: its processor was taken away from it in Dxgkrnl's
/// callback.
pub(super) fn stop_during_dpc(stage: &Stage) -> Played {
    let setup = Setup::default().windows(|windows| {
        windows.interrupt_delivery = InterruptDelivery::Remote;
        windows.notify_dpc_time = 20 * MS;
    });
    stage.play(setup, |scene| {
        for _ in 0..3 {
            drop(Client::open(scene, "client")?.page()?);
            scene.world.os.stop_adapter(scene.adapter());
            scene.world.os.restart_adapter(scene.adapter())?;
        }
        Ok(())
    })
}

pub(super) fn late_interrupts(stage: &Stage) -> Played {
    for interrupts in [InterruptModel::Line, InterruptModel::Message] {
        let mut setup = Setup::default().windows(|windows| windows.late_interrupts = true);
        setup.adapter.device.interrupts = interrupts;
        let play = |scene: &Scene| {
            for _ in 0..3 {
                drop(Client::open(scene, "client")?.page()?);
                scene.world.os.stop_adapter(scene.adapter());
                scene.world.os.restart_adapter(scene.adapter())?;
            }
            Ok(())
        };
        stage.play(setup, play).with_context(|| format!("{interrupts:?}"))?;
    }
    Ok(())
}

/// A packet that never ends, and another process's packet behind it, which is given back and runs after the reset.
pub(super) fn aborted(stage: &Stage) -> Played {
    stage.play(Setup::default().quick_tdr().setting("MaxRung", 0).resets(1), |scene| {
        let works = Client::open(scene, "works")?;
        let (queue, page) = (works.queue(0)?, works.page()?);
        // Without the user-mode driver, which would submit the end of its list as another packet.
        let hangs = raw(scene)?;
        let room = Room::new(&hangs)?;
        let (memory, context) = (room.memory(scene, 4096)?, room.packet_context(0)?);
        // It says that it runs, and begins again.
        let begun = store(memory.gpu + 1024, 1);
        let jump = |length| Indirect { address: memory.gpu, length }.to_packet();
        let length = begun.as_bytes().len() + jump(0).as_bytes().len();
        memory.write(&hangs, 0, &[begun.as_bytes(), jump(length as u64).as_bytes()].concat())?;
        hangs.submit_command(context, memory.gpu, u32::try_from(length)?).context("the packet that never ends")?;
        scene.until("its run", || Ok(hangs.load(memory.cpu + 1024)? == 1))?;
        queue.run(|list| list.store(page.at(0), 1))?;
        scene.until("the loss of the device that hangs", || Ok(!room.is_active()?))?;
        same("engine resets", scene.calls("DxgkDdiResetEngine"), 1)?;
        page.until(scene, "the packet behind the one that was aborted", 0, 1)?;
        queue.wait(0, PATIENCE)?;
        same("the device behind it", works.device.state()?.execution, 1)
    })
}

/// An engine resets a packet node that has done its work, and said so by an interrupt that is served while the reset
/// holds the engine: the interrupt's lock is held until the driver is in `DxgkDdiResetEngine`, where both the routine
/// and the driver wait for it. The OS takes the packet as completed by the reset, so that it may not be reported any
/// more; and the next packet's completion needs an interrupt of its own.
pub(super) fn raised_before_a_reset(stage: &Stage) -> Played {
    const RESETS: u64 = 4;
    let gate = Gate::default();
    let setup = Setup::default().quick_tdr().setting("MaxRung", 0).resets(RESETS);
    let setup = setup.windows(|windows| {
        windows.interrupt_delivery = InterruptDelivery::Remote;
        windows.gates.reset = Some(gate.clone());
    });
    stage.play(setup, |scene| {
        // All that it needs is there before: an interrupt about paging would report for every node.
        let next = Client::open(scene, "next")?;
        let (beside, place) = (next.queue(0)?, next.page()?);
        beside.run(|list| list.store(place.at(0), 1))?;
        beside.wait(0, PATIENCE)?;
        for round in 1..=RESETS {
            let raw = raw(scene).with_context(|| format!("round {round}"))?;
            let late = Hog::new(scene, &raw, &[0])?;
            late.spin(0, 0)?;
            // From here on the node's interrupts are ignored.
            scene.until("the preparation", || Ok(gate.came() == round))?;
            let ends = || {
                late.end(0)?;
                scene.until("the end of the packet", || late.has_ended(0))?;
                gate.let_through();
                Ok(())
            };
            while_held(scene, "DxgkDdiResetEngine", round, ends).with_context(|| format!("round {round}"))?;
            beside.run(|list| list.store(place.at(0), round + 1))?;
            beside.wait(0, PATIENCE).with_context(|| format!("the packet behind reset {round}"))?;
            same("the device behind the reset", next.device.state()?.execution, 1)?;
        }
        Ok(())
    })
}
