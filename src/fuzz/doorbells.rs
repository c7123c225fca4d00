//! Doorbells that are made, taken, rung and destroyed at once by processes that share too few of them.

use super::Round;
use super::dice::Dice;
use super::machine::{beside, play as on_a_machine, setup};
use crate::scenario::{Denied, Memory, Played, Raw, Room, Scene};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use wddm_abi::{D3DKMT_CONNECT_DOORBELL, D3DKMT_DESTROY_DOORBELL, D3DKMT_HANDLE, D3DKMT_NOTIFY_WORK_SUBMISSION};

/// Two to four hostile processes, a good one on each node, one to three physical doorbells, or one that all share.
/// Engines that are idle let them go, soon or late or never; with power components they ask for F1. The OS disconnects,
/// too.
pub fn play(round: &Round) -> Played {
    let mut dice = round.dice(0x100);
    // CAST: 1 to 3.
    let setup = setup().setting("PhysicalDoorbells", 1 + dice.below(3) as u32);
    let setup = setup
        .setting("DoorbellModel", u32::from(dice.one_in(3)))
        .setting("IdleMilliseconds", *dice.of(&[0, 1, 1, 10]))
        .setting("PowerComponents", u32::from(dice.one_in(2)));
    let threads = 2 + dice.below(3);
    on_a_machine(round, setup, |scene| {
        let hostile =
            |scene: &Scene, raw: &Raw, dice: &mut Dice, stop: &AtomicBool| quarrel(round, scene, raw, dice, stop);
        beside(round, scene, &[0, 1], threads, &hostile, || {
            if dice.one_in(4) {
                let all = dice.one_in(2);
                scene.world.os.disconnect_doorbells(scene.adapter(), all);
                round.coverage.count("doorbells: disconnected by the OS", 1);
            }
            std::thread::park_timeout(Duration::from_micros(50 + dice.below(1000)));
        })
    })
}

/// Queues of a hostile process, whose doorbells come and go on two threads.
fn quarrel(round: &Round, scene: &Scene, raw: &Raw, dice: &mut Dice, stop: &AtomicBool) -> Played {
    let room = Room::new(raw)?;
    // CAST: 0 or 1.
    let queues = [room.queue(dice.below(2) as u32, true)?, room.queue(dice.below(2) as u32, true)?];
    let pages = [room.memory(scene, 4096)?, room.memory(scene, 4096)?];
    let handles = queues.map(|queue| queue.handle);
    let (mut one, mut two) = (Dice::new(dice.draw()), Dice::new(dice.draw()));
    std::thread::scope(|scope| {
        scope.spawn(|| come_and_go(round, raw, &room, &handles, &pages, &mut one, stop));
        come_and_go(round, raw, &room, &handles, &pages, &mut two, stop);
    });
    Ok(())
}

/// Doorbells of `queues`, for which another thread makes doorbells, too: a queue has one at most.
fn come_and_go(
    round: &Round,
    raw: &Raw,
    room: &Room,
    queues: &[D3DKMT_HANDLE],
    pages: &[Memory; 2],
    dice: &mut Dice,
    stop: &AtomicBool,
) {
    let mut bell: D3DKMT_HANDLE = 0;
    let count = |what: &str, done: Result<(), Denied>| {
        let how = match done {
            Ok(()) => format!("{what}: STATUS_SUCCESS"),
            Err(Denied(status)) => format!("{what}: {status:?}"),
        };
        round.coverage.count(&how, 1);
    };
    for _ in 0..300 {
        if stop.load(Ordering::Acquire) {
            return;
        }
        match dice.below(8) {
            0 | 1 => match room.bell(*dice.of(queues), &pages[0], &pages[1]) {
                Ok(made) => {
                    bell = made.handle;
                    // The page may be another's already, or none.
                    let _ = raw.store(made.doorbell, dice.draw());
                    count("create", Ok(()));
                }
                Err(denied) => count("create", Err(denied)),
            },
            2..=4 => {
                let mut record = D3DKMT_CONNECT_DOORBELL::zeroed();
                record.hDoorbell = bell;
                count("connect", raw.ok(raw.thunks.D3DKMTConnectDoorbell, &mut record));
            }
            5 => {
                let mut record = D3DKMT_NOTIFY_WORK_SUBMISSION::zeroed();
                record.hDoorbell = bell;
                count("notify", raw.ok(raw.thunks.D3DKMTNotifyWorkSubmission, &mut record));
            }
            _ => {
                let mut record = D3DKMT_DESTROY_DOORBELL::zeroed();
                record.hDoorbell = bell;
                count("destroy", raw.ok(raw.thunks.D3DKMTDestroyDoorbell, &mut record));
            }
        }
    }
}
