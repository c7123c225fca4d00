//! Hangs amid something else that the OS does: while the device loses its power, and on two engines at once.

use super::super::client::Client;
use super::super::db::{KernelQueue, Room};
use super::super::{Played, Setup, Stage, same};
use super::hardware::{ACTIVE, recovered};
use super::held::Spinner;
use super::in_time::in_time;
use super::paging::aborts_all;
use super::{Hog, client, is_lost, stubborn, victim};
use anyhow::{Context, Result, ensure};
use dxgkrnl_model::adapter::{Reason, Step, What};
use dxgkrnl_model::personality::Gate;
use gpu_wire::private::allocation_kind;
use std::sync::mpsc::channel;
use std::time::Duration;

/// The paging node.
const PAGING: u32 = 2;
/// What a call may take that has an engine reset: many times a TdrDelay here.
const SOON: Duration = Duration::from_secs(20);

/// Plays `work` on a thread of its own. A model that waits for itself would not come back.
///
/// # Errors
/// It does not come back.
fn comes_back(what: &str, work: impl FnOnce() + Send) -> Result<()> {
    let (over, wait) = channel();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            work();
            over.send(()).unwrap_or(());
        });
        if wait.recv_timeout(SOON).is_err() {
            // The thread that hangs keeps the scope, and with it the process.
            eprintln!("{what} does not come back");
            std::process::exit(1);
        }
    });
    Ok(())
}

/// A queue hangs its engine; the device is to lose its power. The suspension in front of that is what the engine is
/// reset for, and the way down goes on behind the reset.
pub(super) fn sleep(stage: &Stage) -> Played {
    // The OS looks for no timeouts before: the way down is the first to wait for the engine.
    let setup = Setup::default().setting("PreemptInBuffers", 0).windows(|windows| {
        windows.tdr.delay = dxgkrnl_model::personality::SECOND;
    });
    for hibernates in [false, true] {
        stage.play(setup.clone().resets(1), |scene| {
            let (hangs, works) = (client(scene, "hangs")?, Client::open(scene, "works")?);
            let (queue, page) = (works.queue(1)?, works.page()?);
            let spinner = Spinner::new(scene, &hangs)?;
            let os = &scene.world.os;
            comes_back("a device that loses its power", || os.put_to_sleep(scene.adapter(), hibernates))?;
            ensure!(os.is_asleep(scene.adapter()), "the device has power");
            let recovery = recovered(scene, 1)?.remove(0);
            same("what", (recovery.what, recovery.reason), (What::HwEngine { node: 0 }, Reason::Suspension))?;
            ensure!(!spinner.room.is_active()?, "the device that hangs runs on");
            os.wake_up(scene.adapter());
            same("the device beside it", works.device.state()?.execution, ACTIVE)?;
            queue.run(|list| list.store(page.at(0), 1))?;
            page.until(scene, "work behind the sleep", 0, 1)
        })?;
    }
    Ok(())
}

/// A packet runs as the device loses its power, for longer than TdrDelay: it is taken off in front of that, alone or
/// for another that waits, rests meanwhile and goes on behind it.
pub(super) fn packets_rest(stage: &Stage) -> Played {
    let node = victim(stage);
    for (hibernates, is_alone) in [(false, true), (false, false), (true, true), (true, false)] {
        let setup = || Setup::default().quick_tdr().setting("PreemptInBuffers", 1);
        in_time(stage, setup, |scene, watch| {
            let (raw, other) = (client(scene, "long")?, client(scene, "beside")?);
            let (hog, beside) = (Hog::new(scene, &raw, &[node])?, Hog::new(scene, &other, &[node])?);
            let preempted = || scene.adapter().packet_preemptions(node).answers;
            watch.begin();
            hog.spin(node, 0)?;
            hog.begins(scene, 0)?;
            if !is_alone {
                beside.spin(node, 0)?;
                beside.begins(scene, 0)?;
            }
            let (os, before) = (&scene.world.os, preempted());
            os.put_to_sleep(scene.adapter(), hibernates);
            watch.end();
            ensure!(preempted() > before, "the node was not preempted");
            hog.clear(0)?;
            beside.clear(0)?;
            let asked = scene.calls("DxgkDdiPreemptCommand");
            std::thread::park_timeout(watch.delay * 3 / 2);
            ensure!(!hog.has_begun(0)? && !beside.has_begun(0)?, "a packet runs without power");
            same("preemptions without power", scene.calls("DxgkDdiPreemptCommand"), asked)?;
            os.wake_up(scene.adapter());
            watch.begin();
            hog.begins(scene, 0)?;
            // The scheduler looks as soon as the device has its power back, and what has slept has slept too long.
            std::thread::park_timeout(watch.delay / 4);
            if is_alone {
                same("preemptions behind it", scene.calls("DxgkDdiPreemptCommand"), asked)?;
            } else {
                beside.begins(scene, 0)?;
                beside.end(0)?;
                scene.until("the end of the packet beside it", || beside.has_ended(0))?;
            }
            hog.end(0)?;
            scene.until("the end of the packet", || hog.has_ended(0))?;
            watch.end();
            same("recoveries", scene.adapter().recoveries().len(), 0)?;
            ensure!(hog.is_active()? && beside.is_active()?, "a device is lost");
            Ok(())
        })
        .with_context(|| format!("hibernates: {hibernates}, alone: {is_alone}"))?;
    }
    Ok(())
}

/// A packet hangs a packet engine; the device is to lose its power. The preemption in front of that is what the engine
/// is reset for, and the way down goes on behind the reset.
pub(super) fn packet_hangs(stage: &Stage) -> Played {
    let node = victim(stage);
    for hibernates in [false, true] {
        stage.play(stubborn().resets(1), |scene| {
            let (raw, other) = (client(scene, "hangs")?, client(scene, "beside")?);
            let (hog, beside) = (Hog::new(scene, &raw, &[node])?, Hog::new(scene, &other, &[node])?);
            hog.spin(node, 0)?;
            hog.begins(scene, 0)?;
            let os = &scene.world.os;
            comes_back("a device that loses its power", || os.put_to_sleep(scene.adapter(), hibernates))?;
            ensure!(os.is_asleep(scene.adapter()), "the device has power");
            let recovery = recovered(scene, 1)?.remove(0);
            same("what", (recovery.what, recovery.reason), (What::PacketEngine { node }, Reason::Preemption))?;
            os.wake_up(scene.adapter());
            is_lost(scene, &hog)?;
            beside.short(node, 0)?;
            scene.until("a packet behind the sleep", || beside.has_ended(0))?;
            ensure!(beside.is_active()?, "the device beside it is lost");
            Ok(())
        })?;
    }
    Ok(())
}

/// A reset of the paging node takes paging along, and a queue of the memory's owner hangs another engine, whose reset
/// the owner's loss brings about.
pub(super) fn owner(stage: &Stage) -> Played {
    let gate = Gate::default();
    let setup = stubborn().with_driver(aborts_all).windows(|windows| {
        windows.preemption.in_ordinary_use = false;
        windows.tdr.process_limit = 0;
        windows.gates.reset = Some(gate.clone());
    });
    stage.play(setup.resets(3), |scene| {
        let (raw, owner) = (client(scene, "hangs")?, client(scene, "owner")?);
        let hog = Hog::new(scene, &raw, &[PAGING])?;
        let room = Room::new(&owner)?;
        let allocation = room.create(allocation_kind::SYSTEM, 64 << 10)?;
        room.make_resident(scene, allocation)?;
        let context = room.context(0)?;
        let queue = KernelQueue::new(scene, &room, context)?;
        hog.spin(PAGING, 0)?;
        hog.begins(scene, 0)?;
        room.begin_map(allocation)?;
        // The memory of the queue is there: nothing of it is paged behind the hang. It begins when the packet's engine
        // is about to be reset.
        scene.until("the reset of the packet's engine", || Ok(gate.came() == 1))?;
        queue.spin(&room, 0, None, 1)?;
        queue.runs(scene, &owner)?;
        gate.open(true);
        is_lost(scene, &hog)?;
        scene.until("the owner's loss", || Ok(!room.is_active()?))?;
        let adapter = || {
            let over = scene.adapter().recoveries().into_iter().filter(|one| one.is_over);
            Ok(over.filter(|one| one.what == What::Adapter).count() == 1)
        };
        scene.until("the adapter's reset", adapter)?;
        let order: Vec<_> = scene.adapter().recoveries().iter().map(|one| one.what).collect();
        let [packet, queue] = [What::PacketEngine { node: PAGING }, What::HwEngine { node: 0 }];
        same("recoveries", order.as_slice(), &[packet, queue, What::Adapter][..])?;
        let first = scene.adapter().recoveries().remove(0);
        ensure!(first.has(|step| *step == Step::OwnersLost(1)), "{first}");
        // Paging works, and so does a device that is made now.
        let rig = Client::open(scene, "after")?;
        let (queue, page) = (rig.queue(0)?, rig.page()?);
        queue.run(|list| list.store(page.at(0), 5))?;
        page.until(scene, "work behind the reset", 0, 5)
    })
}

/// Between two steps of the reset of an engine the driver refuses a packet of a device whose queue hangs another one.
/// What follows from that device's loss wants a reset of its own, which comes behind the first.
pub(super) fn refused(stage: &Stage) -> Played {
    let gate = Gate::default();
    let setup = stubborn().windows(|windows| windows.gates.reset = Some(gate.clone()));
    stage.play(setup.resets(2), |scene| {
        let (raw, other) = (client(scene, "hangs")?, client(scene, "is refused a packet")?);
        let (hangs, room) = (Room::new(&raw)?, Room::new(&other)?);
        let first = KernelQueue::new(scene, &hangs, hangs.context(1)?)?;
        let second = KernelQueue::new(scene, &room, room.context(0)?)?;
        let memory = room.memory(scene, 4096)?;
        let context = room.packet_context(PAGING)?;
        first.spin(&hangs, 0, None, 1)?;
        scene.until("the reset of the first engine", || Ok(gate.came() == 1))?;
        second.spin(&room, 0, None, 1)?;
        second.runs(scene, &other)?;
        // No packet is so short.
        other.submit_command(context, memory.gpu, 12)?;
        scene.until("the loss of the device that is refused a packet", || Ok(!room.is_active()?))?;
        gate.open(true);
        let order: Vec<_> = recovered(scene, 2)?.iter().map(|one| one.what).collect();
        same("recoveries", order.as_slice(), &[What::HwEngine { node: 1 }, What::HwEngine { node: 0 }][..])?;
        let rig = Client::open(scene, "after")?;
        let (queue, page) = (rig.queue(0)?, rig.page()?);
        queue.run(|list| list.store(page.at(0), 5))?;
        page.until(scene, "work behind the resets", 0, 5)
    })
}
