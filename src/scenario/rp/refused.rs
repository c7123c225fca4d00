//! A driver that refuses to make a doorbell again behind D3, once.
#![expect(unsafe_code, reason = "the driver's own function is called")]

use super::super::db::{RETRY, RingQueue, Room, denied, raw};
use crate::scenario::{Played, Scenario, Setup, Stage, same};
use crate::wrap::{machine, own};
use std::sync::{Mutex, PoisonError};
use wddm_abi::ntstatus::STATUS_NO_MEMORY;

pub(super) const CASES: &[Scenario] = &[Scenario {
    id: "RP-21",
    title: "a doorbell that cannot be made again behind D3 is made again by the next connection",
    source: "User-mode work submission, engine D-state transitions (CreateDoorbell on the way to a connection)",
    play: refused_once,
}];

/// Machines whose driver refuses the next doorbell.
static REFUSING: Mutex<Vec<usize>> = Mutex::new(Vec::new());

crate::decorate! {
    /// Has no memory for a doorbell, once for each time that a case asks for it.
    refuses: DxgkDdiCreateDoorbell(arguments: *mut wddm_abi::DXGKARG_CREATEDOORBELL) -> wddm_abi::NTSTATUS {
        let this = machine();
        let mut refusing = REFUSING.lock().unwrap_or_else(PoisonError::into_inner);
        match refusing.iter().position(|machine| *machine == this) {
            Some(at) => {
                refusing.swap_remove(at);
                STATUS_NO_MEMORY
            }
            None => {
                drop(refusing);
                own!(DxgkDdiCreateDoorbell(arguments))
            }
        }
    }
}

fn refused_once(stage: &Stage) -> Played {
    const CALLS: &[&str] = &["DxgkDdiCreateDoorbell", "DxgkDdiConnectDoorbell"];
    let setup = Setup::default().with_driver(refuses).windows(|windows| windows.user_mode.creates_behind_d3 = true);
    stage.play(setup, |scene| {
        let process = raw(scene)?;
        let room = Room::new(&process)?;
        let queue = RingQueue::connected(scene, &room, 0, 4096)?;
        scene.world.os.put_to_sleep(scene.adapter(), false);
        let number = scene.world.os.kernel().number();
        REFUSING.lock().unwrap_or_else(PoisonError::into_inner).push(number);
        let from = scene.journal(CALLS).len();
        denied("a connection", queue.connect(), STATUS_NO_MEMORY)?;
        same("calls of the refused one", scene.journal(CALLS).split_off(from), vec![CALLS[0]])?;
        let (progress, status) = queue.submit(&[])?;
        same("the status", status, RETRY)?;
        queue.connect()?;
        same("all calls", scene.journal(CALLS).split_off(from), vec![CALLS[0], CALLS[0], CALLS[1]])?;
        queue.wait(scene, progress)
    })
}
