//! Callbacks about doorbells that take their time, or fail for a while.

use super::{CONNECTED, RETRY, RingQueue, Room, raw, store};
use crate::scenario::{Played, Scenario, Setup, Stage, same};
use anyhow::{Context, ensure};
use dxgkrnl_model::personality::{CallbackFault, Gate};
use wddm_abi::ntstatus::STATUS_UNSUCCESSFUL;

const DISCONNECT: &str = "DxgkCbDisconnectDoorbell";

pub(super) const CASES: &[Scenario] = &[
    Scenario {
        id: "DB-85",
        title: "the OS takes its time to disconnect a doorbell that another queue is to have: until then its owner \
                rings it, and nothing is lost",
        source: "DxgkCbDisconnectDoorbell, Remarks; User-mode work submission, Victimizing doorbell pseudocode in KMD",
        play: held,
    },
    Scenario {
        id: "DB-86",
        title: "the OS refuses for a while to disconnect a doorbell that another queue is to have: its owner has it \
                until the OS agrees, and then the other",
        source: "DxgkCbDisconnectDoorbell, Return value; User-mode work submission, Victimizing doorbell pseudocode in \
                 KMD",
        play: refused_for_a_while,
    },
];

fn held(stage: &Stage) -> Played {
    let gate = Gate::default();
    let setup = Setup::default().setting("PhysicalDoorbells", 1).setting("IdleMilliseconds", 0);
    let setup = setup.windows(|windows| windows.gates.callback = Some((DISCONNECT, gate.clone())));
    stage.play(setup, |scene| {
        let raw = raw(scene)?;
        let room = Room::new(&raw)?;
        let memory = room.memory(scene, 4096)?;
        let (first, second) = (RingQueue::new(scene, &room, 0, 4096)?, RingQueue::new(scene, &room, 0, 4096)?);
        first.connect().context("the owner")?;
        let next = second.queue.handle;
        let bell = second.bell.handle;
        let room = &room;
        let (progress, status) = std::thread::scope(|scope| {
            let connects = scope.spawn(move || room.connect(next, bell));
            let rung = (|| {
                scene.until("the call that asks for the doorbell", || Ok(gate.came() == 1))?;
                ensure!(!connects.is_finished(), "the doorbell was given away before the OS had disconnected it");
                first.submit(&[store(memory.gpu, 7)])
            })();
            gate.open(true);
            let connected = connects.join().map_err(|_| anyhow::anyhow!("the connection panicked"))?;
            connected.context("the queue that is to have the doorbell")?;
            rung
        })?;
        same("the owner's status before the OS disconnects it", status, CONNECTED)?;
        // Rung in time: no second ring is needed.
        first.wait(scene, progress)?;
        same("what the owner's packet has stored", raw.load(memory.cpu)?, 7)?;
        same("the owner's status", first.status()?, RETRY)?;
        let (progress, status) = second.submit(&[])?;
        same("the new owner's status", status, CONNECTED)?;
        second.wait(scene, progress)
    })
}

/// Calls that the OS refuses.
const REFUSALS: u64 = 3;

fn refused_for_a_while(stage: &Stage) -> Played {
    let fault = CallbackFault::of(DISCONNECT, 1..=REFUSALS, STATUS_UNSUCCESSFUL);
    let setup = Setup::default().setting("PhysicalDoorbells", 1).setting("IdleMilliseconds", 0);
    stage.play(setup.windows(|windows| windows.faults.callbacks.push(fault.clone())), |scene| {
        let raw = raw(scene)?;
        let room = Room::new(&raw)?;
        let (first, second) = (RingQueue::new(scene, &room, 0, 4096)?, RingQueue::new(scene, &room, 0, 4096)?);
        first.connect().context("the owner")?;
        let mut refused = 0;
        // The driver may ask again by itself, or leave it to who connects.
        while let Err(status) = second.connect() {
            refused += 1;
            ensure!(refused <= REFUSALS, "the connection was refused {refused} times: {status:?}");
            same("the owner's status", first.status()?, CONNECTED)?;
            let progress = first.submit_through(&[])?;
            first.wait(scene, progress)?;
        }
        stage.note("refused_connections", refused);
        same("calls that ask for the doorbell", scene.callbacks(DISCONNECT), REFUSALS + 1)?;
        same("the owner's status", first.status()?, RETRY)?;
        let (progress, status) = second.submit(&[])?;
        same("the new owner's status", status, CONNECTED)?;
        second.wait(scene, progress)?;
        let progress = first.submit_through(&[])?;
        first.wait(scene, progress)
    })
}
