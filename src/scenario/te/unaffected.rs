//! Packets that the reset of their engine does not affect.

use super::super::db::Room;
use super::super::{Played, Scene, Stage, same};
use super::packets::submitted;
use super::{Hog, aborted, client, is_lost, only_reset, stubborn};
use anyhow::{Context, ensure};
use dxgkrnl_model::adapter::{PacketEvent, Step};
use dxgkrnl_model::personality::SECOND;
use gpu_wire::private::allocation_kind;
use std::collections::BTreeSet;

/// The paging node.
const PAGING: u32 = 2;

/// Paging packets behind the packet that hangs, at least.
const SEVERAL: usize = 2;

/// A packet with the driver: its id, and whether it is a paging packet.
type Flight = (u32, bool);

/// What is with the driver at the end of `journal`, in order.
fn flights(journal: &[PacketEvent]) -> Vec<Flight> {
    let mut flights: Vec<Flight> = Vec::new();
    for event in journal {
        match *event {
            PacketEvent::Submitted { id, paging, .. } => flights.push((id, paging)),
            PacketEvent::Completed { id } => {
                let over = flights.iter().position(|(of, _)| *of == id).map_or(0, |at| at + 1);
                flights.drain(..over);
            }
            PacketEvent::Preempted { .. } | PacketEvent::Reset { .. } => flights.clear(),
            PacketEvent::Preempting { .. } => {}
        }
    }
    flights
}

/// A packet on the paging node hangs; several paging packets of another process are with the driver behind it, and a
/// packet of a third one behind those. The reset takes the first alone.
pub(super) fn packets(stage: &Stage) -> Played {
    let setup = stubborn().resets(1).windows(|windows| {
        // Nothing is preempted before the timeout, and there is time to hand everything in.
        (windows.preemption.in_ordinary_use, windows.preemption.in_flight) = (false, 16);
        windows.tdr.delay = SECOND;
        // One operation takes several packets.
        windows.faults.paging_buffer_size = Some(64);
    });
    stage.play(setup, |scene| {
        let (hangs, beside) = (client(scene, "hangs")?, client(scene, "beside")?);
        let (hog, other) = (Hog::new(scene, &hangs, &[PAGING])?, Hog::new(scene, &beside, &[PAGING])?);
        let raw = client(scene, "pages")?;
        let room = Room::new(&raw)?;
        let allocation = room.create(allocation_kind::SYSTEM, 64 << 10)?;
        room.make_resident(scene, allocation)?;
        hog.spin(PAGING, 0)?;
        hog.begins(scene, 0)?;
        let count = |paging| {
            let all = flights(&scene.adapter().packet_journal(PAGING));
            all.into_iter().filter(|(_, is_paging)| *is_paging == paging).count()
        };
        let value = room.begin_map(allocation)?;
        scene.until("paging packets with the driver", || Ok(count(true) >= SEVERAL))?;
        other.short(PAGING, 0)?;
        scene.until("another packet with the driver", || Ok(count(false) == 2))?;
        is_lost(scene, &hog)?;
        let recovery = only_reset(scene)?;
        room.paged(scene, value)?;
        scene.until("the packet behind them", || other.has_ended(0))?;
        judge(scene, &recovery.steps, aborted(&recovery)?).with_context(|| recovery.to_string())?;
        ensure!(other.is_active()?, "the device of the packet behind them is lost");
        same("the device of the process that pages", room.is_active()?, true)?;
        same("recoveries", scene.adapter().recoveries().len(), 1)
    })
}

/// What was behind the aborted packet came back: paging packets under the ids that they had, in their order, before
/// anything new, and others under new ids. Nothing has the flag of a preemption.
fn judge(scene: &Scene, steps: &[Step], aborted: u32) -> Played {
    let journal = scene.adapter().packet_journal(PAGING);
    let at = journal.iter().position(|event| matches!(event, PacketEvent::Reset { .. })).context("no reset")?;
    let (before, behind) = journal.split_at(at);
    let all = flights(before);
    let place = all.iter().position(|(id, _)| *id == aborted).context("the aborted packet was not with the driver")?;
    let (paging, render): (Vec<Flight>, Vec<Flight>) = all[place + 1..].iter().partition(|(_, paging)| *paging);
    ensure!(paging.len() >= SEVERAL && render.len() == 1, "behind the aborted packet: {paging:x?}, {render:x?}");
    let given = Step::GivenBack { paging: paging.len(), render: render.len() };
    ensure!(steps.contains(&given), "no {given:?}");
    let used: BTreeSet<u32> = before.iter().filter_map(submitted).map(|(id, ..)| id).collect();
    let again: Vec<_> = behind.iter().filter_map(submitted).collect();
    let first: Vec<_> = again.iter().take(paging.len()).map(|(id, paging, _)| (*id, *paging)).collect();
    same("the first packets behind the reset", first, paging)?;
    let new = again.iter().skip(first_new(&again, &used));
    ensure!(new.clone().all(|(id, ..)| !used.contains(id)), "a packet has an old id: {again:x?}");
    ensure!(new.clone().any(|(_, paging, _)| !paging), "the packet behind them did not come back: {again:x?}");
    ensure!(again.iter().all(|(.., again)| !again), "the flag of a preemption: {again:x?}");
    Ok(())
}

/// How many packets at the beginning have old ids.
fn first_new(again: &[(u32, bool, bool)], used: &BTreeSet<u32>) -> usize {
    again.iter().take_while(|(id, ..)| used.contains(id)).count()
}
