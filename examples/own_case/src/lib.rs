//! Two conformance cases in a crate of their own, as a driver's author or a tester of another house would write them.
//!
//! A case is a function of a [`Stage`] and a row in [`CASES`]. It boots a machine as a [`Setup`] says, has processes do
//! what it is about, looks at what came of it, and returns: [`Stage::play`] then shuts the machine down and judges what
//! the driver did by every rule of the model. Which helper is for what: the first page of [`fencepost::scenario`].

use fencepost::crates::anyhow::{Context, ensure};
use fencepost::scenario::{Client, NOTIFY, Played, RingQueue, Room, Scenario, Setup, Stage, same, skip};

/// The cases.
pub const CASES: &[Scenario] = &[
    Scenario {
        id: "OC-01",
        title: "a wait of the CPU ends with the value that it waits for, and not before",
        source: "D3DKMTWaitForSynchronizationObjectFromCpu, Remarks",
        play: wait_ends_with_its_value,
    },
    Scenario {
        id: "OC-02",
        title: "D3DKMTNotifyWorkSubmission reaches the driver once, with the queue that has the work",
        source: "DxgkDdiNotifyWorkSubmission; DXGKARG_NOTIFYWORKSUBMISSION, hHwQueue",
        play: notification_names_its_queue,
    },
];

fn wait_ends_with_its_value(stage: &Stage) -> Played {
    stage.play(Setup::default(), |scene| {
        // A process with the user-mode driver. On the lower rungs the fence is a monitored one.
        let client = Client::open(scene, "waits")?;
        let fence = client.fence(0, true)?;
        let waiting = client.wait(&[(&fence, 5)], false)?;
        client.signal(&[(&fence, 4)])?;
        waiting.still_waits(&client, "one below the value")?;
        client.signal(&[(&fence, 5)])?;
        waiting.comes(&client, "the value")?;
        same("CurrentValue", client.value(&fence)?, 5)
    })
}

fn notification_names_its_queue(stage: &Stage) -> Played {
    if stage.rung() < 3 {
        return skip("it is about doorbells, which rung 3 alone has");
    }
    // A setting of this driver: its doorbells are connected so that user mode tells of each submission.
    stage.play(Setup::default().setting("ConnectNotify", 1), |scene| {
        // A process without the user-mode driver: ring, control page and doorbell are written word by word.
        let raw = scene.raw("client")?;
        let room = Room::new(&raw)?;
        let queues = [RingQueue::connected(scene, &room, 0, 4096)?, RingQueue::connected(scene, &room, 0, 4096)?];
        let (progress, status) = queues[1].submit(&[])?;
        same("status", status, NOTIFY)?;
        queues[1].notify()?;
        queues[1].wait(scene, progress)?;
        let made = scene.journal_with_arguments(&["DxgkDdiCreateDoorbell"]);
        let told = scene.journal_with_arguments(&["DxgkDdiNotifyWorkSubmission"]);
        ensure!(made.len() == 2 && told.len() == 1, "{made:?}, {told:?}");
        // A number that the result carries.
        stage.note("notifications", told.len() as u64);
        let queue = told[0].get("hHwQueue").context("a queue")?;
        same("the queue", Some(queue), made[1].get("hHwQueue"))
    })
}
