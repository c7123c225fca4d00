//! What an adapter's reset ends: a queue's fault before it is reported, and work that has not begun.

use super::super::client::Client;
use super::super::{Played, Scene, Setup, Stage, same};
use super::hardware::{ACTIVE, controller, force, recovered, works};
use super::held::{Said, Spinner, deaf_until_reset, listen, said, set_deaf, unheard};
use super::hog::Loop;
use super::packets::submitted;
use super::storm::counter;
use super::{Hog, client, victim};
use anyhow::{Context, Result, ensure};
use dxgkrnl_model::personality::SECOND;
use gpu_wire::packet::Fill;
use wddm_abi::ntstatus::STATUS_SUCCESS;

/// A queue faults, and the driver hears its interrupt again only in the adapter's reset: the OS has given up every
/// queue by then, and none is named behind the reset. One that faults behind it is.
pub(super) fn ended(stage: &Stage) -> Played {
    let setup = Setup::default().resets(1).setting("PreemptInBuffers", 1).setting("IdleMilliseconds", 0);
    let setup = setup.with_driver(deaf_until_reset).breaks(&["NT-INT-STORM", "DXG-ISR-DISMISS"]);
    stage.play(setup, |scene| {
        let (control, wrong) = (controller(scene)?, client(scene, "faults")?);
        let nowhere = Fill { address: 0x7FFF_0000_0000, length: 8, pattern: 0, reserved: 0 }.to_packet();
        let faulty = Spinner::new(scene, &wrong)?;
        faulty.queue.submit(&faulty.room, 1, &[nowhere], 2)?;
        let before = counter(scene, 0, "faults")?;
        scene.world.os.run(|| set_deaf(true));
        listen(scene);
        faulty.queue.stop(&wrong, 0, 1)?;
        scene.until("the work before the fault", || Ok(faulty.queue.value(&wrong)? == 1))?;
        // The engine says so by an interrupt that is not heard.
        scene.until("the fault", || Ok(counter(scene, 0, "faults")? > before))?;
        unheard(scene)?;
        same("what was said", said(scene), vec![])?;
        same("the escape", force(&control, None), STATUS_SUCCESS)?;
        recovered(scene, 1)?;
        works(scene)?;
        ensure!(!said(scene).contains(&Said::QueueFaulted), "behind the reset: {:?}", said(scene));
        let again = client(scene, "faults again")?;
        let faulty = Spinner::new(scene, &again)?;
        faulty.queue.submit(&faulty.room, 1, &[nowhere], 2)?;
        faulty.queue.stop(&again, 0, 1)?;
        scene.until("the loss of the device that has faulted", || Ok(!faulty.room.is_active()?))?;
        ensure!(said(scene).contains(&Said::QueueFaulted), "its own fault: {:?}", said(scene));
        Ok(())
    })
}

/// Packets of two devices wait, with the driver, behind one of a third device that never ends.
fn packets(scene: &Scene, node: u32) -> Played {
    let control = controller(scene)?;
    let raws = [client(scene, "hangs")?, client(scene, "one")?, client(scene, "other")?];
    let hogs = raws.iter().map(|raw| Hog::new(scene, raw, &[node])).collect::<Result<Vec<_>>>()?;
    hogs[0].spin(node, 0)?;
    hogs[0].begins(scene, 0)?;
    let given = || scene.adapter().packet_journal(node).iter().filter_map(submitted).count();
    let before = given();
    hogs[1].short(node, 0)?;
    hogs[2].short(node, 0)?;
    scene.until("three packets with the driver", || Ok(given() == before + 2))?;
    same("the escape", force(&control, None), STATUS_SUCCESS)?;
    recovered(scene, 1)?;
    // On the same engine, behind what was there before.
    let next = client(scene, "behind")?;
    let behind = Hog::new(scene, &next, &[node])?;
    behind.short(node, 0)?;
    scene.until("a packet behind the reset", || behind.has_ended(0))?;
    for hog in &hogs {
        ensure!(!hog.is_active()?, "a device outlived the adapter's reset");
        same("a packet from before it", hog.has_ended(0)?, false)?;
    }
    same("the device behind it", behind.is_active()?, true)
}

/// Work of two devices waits on an engine, behind a buffer of a third one that never ends, when the adapter is reset:
/// the OS has given it up, and none of it runs behind the reset.
pub(super) fn waiting(stage: &Stage) -> Played {
    let node = victim(stage);
    // All of them are with the driver when the reset comes.
    let setup = Setup::default().resets(1).windows(|windows| {
        (windows.preemption.in_ordinary_use, windows.tdr.delay) = (false, 10 * SECOND);
    });
    stage.play(setup, |scene| packets(scene, node)).context("packets")?;
    stage.play(Setup::default().resets(1), |scene| {
        let control = controller(scene)?;
        let (hangs, beside) =
            (Client::open(scene, "hangs")?, [Client::open(scene, "one")?, Client::open(scene, "other")?]);
        let (hog, run) = (hangs.queue(0)?, Loop::new(&hangs)?);
        let pages = [beside[0].page()?, beside[1].page()?];
        let queues = [beside[0].queue(0)?, beside[1].queue(0)?];
        hog.run(|list| list.indirect(run.address, run.length))?;
        run.begins(scene)?;
        for (queue, page) in queues.iter().zip(&pages) {
            queue.run(|list| list.store(page.at(0), 9))?;
        }
        same("the escape", force(&control, None), STATUS_SUCCESS)?;
        recovered(scene, 1)?;
        // On the same engine, behind what was there before.
        works(scene)?;
        for (rig, page) in beside.iter().zip(&pages) {
            ensure!(rig.device.state()?.execution != ACTIVE, "a device outlived the adapter's reset");
            same("a word that it would have written", page.word(0)?, 0)?;
        }
        Ok(())
    })
}
