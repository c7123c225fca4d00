//! One process keeps a node busy without an end, in ways that the OS is not told of; nothing hangs, and nothing is
//! reset.

use crate::scenario::db::{RingQueue, Room, raw};
use crate::scenario::{Played, Scenario, Setup, Stage, same};
use anyhow::{Context, Error, ensure};
use dxgkrnl_model::personality::{MS, SECOND};
use dxgkrnl_model::process::End;
use gpu_wire::packet::{CopyRect, Indirect, Store};
use std::sync::Arc;
use std::time::{Duration, Instant};

pub(super) const CASES: &[Scenario] = &[
    Scenario {
        id: "BI-49",
        title: "a command buffer that never ends leaves its node to the queues of others, and its process can end",
        source: "TDR changes in Windows 8 and later; DxgkDdiSuspendContext",
        play: endless,
    },
    Scenario {
        id: "BI-50",
        title: "copies of one-byte rows without an end keep no other process from mapping memory, nor from its work",
        source: "DxgkDdiBuildPagingBuffer, flushes; DxgkDdiSuspendContext",
        play: narrow_rows,
    },
    Scenario {
        id: "BI-51",
        title: "when the destruction of a queue in the middle of a copy has returned, nothing of it writes any more",
        source: "DxgkDdiDestroyHwQueue",
        play: writes_nothing_afterwards,
    },
];

/// Submissions of the good process beside the hog.
const ROUNDS: u64 = 40;

fn endless(stage: &Stage) -> Played {
    stage.play(Setup::default().quick_tdr(), |scene| {
        let good = raw(scene)?;
        let room = Room::new(&good)?;
        let victim = RingQueue::connected(scene, &room, 0, 4096)?;
        let bad = raw(scene)?;
        let rooms = Room::new(&bad)?;
        let hog = RingQueue::connected(scene, &rooms, 0, 4096)?;
        let buffer = rooms.memory(scene, 4096)?;
        let jump = Indirect { address: buffer.gpu, length: 24 }.to_packet();
        buffer.write(&bad, 0, jump.as_bytes())?;
        // The OS is not told of it, and so does not look for its end.
        hog.write(jump.as_bytes())?;
        hog.publish()?;
        hog.ring()?;
        for _ in 0..ROUNDS {
            let progress = victim.submit_through(&[])?;
            victim.wait(scene, progress)?;
        }
        // Both queues, its context and its memory go while it runs.
        Arc::into_inner(bad.process).context("another owner of the process")?.end(End::Terminated);
        let progress = victim.submit_through(&[])?;
        victim.wait(scene, progress)
    })
}

/// How long a mapping of another process may take: a hundred steps of the engine, as long as a TdrDelay here.
const SOON: Duration = Duration::from_millis(200);

fn narrow_rows(stage: &Stage) -> Played {
    stage.play(Setup::default().quick_tdr(), |scene| {
        let good = raw(scene)?;
        let room = Room::new(&good)?;
        let victim = RingQueue::connected(scene, &room, 0, 4096)?;
        let bad = raw(scene)?;
        let rooms = Room::new(&bad)?;
        let hog = RingQueue::connected(scene, &rooms, 0, 4096)?;
        let (source, target) = (rooms.memory(scene, 1 << 20)?, rooms.memory(scene, 1 << 20)?);
        let buffer = rooms.memory(scene, 4096)?;
        let rect = CopyRect {
            source: source.gpu,
            destination: target.gpu,
            source_pitch: 1,
            destination_pitch: 1,
            row_bytes: 1,
            rows: 1 << 20,
        }
        .to_packet();
        let began = Store { address: source.gpu, value: 1 }.to_packet();
        let length = (began.as_bytes().len() + rect.as_bytes().len() + 24) as u64;
        let jump = Indirect { address: buffer.gpu, length }.to_packet();
        let code = [began.as_bytes(), rect.as_bytes(), jump.as_bytes()].concat();
        buffer.write(&bad, 0, &code)?;
        hog.write(jump.as_bytes())?;
        hog.publish()?;
        hog.ring()?;
        // Each mapping ends in a flush that every engine serves.
        let begun = Instant::now();
        for _ in 0..ROUNDS {
            room.memory(scene, 4096)?;
            let progress = victim.submit_through(&[])?;
            victim.wait(scene, progress)?;
        }
        // CAST: a small number.
        let most = SOON * ROUNDS as u32;
        ensure!(begun.elapsed() < most, "{ROUNDS} mappings and submissions took {:?}", begun.elapsed());
        Ok(())
    })
}

/// Rows of a copy, and more than an engine has mapped at a time: it unmaps a page for each.
const ROWS: u64 = 4200;
/// Bytes from row to row. A page lies between two, so that each is mapped for itself.
const PITCH: u32 = 2 * 4096;
/// Queues that are destroyed. A host that lets the destroyer wait behind a destruction hides what the engine does then:
/// not in so many of them.
const DESTRUCTIONS: u64 = 20;
/// What unmapping takes: a step of an engine is longer than it takes to look at all rows.
const UNMAPPING: u64 = 2 * MS;

fn writes_nothing_afterwards(stage: &Stage) -> Played {
    // The OS waits for nothing that the driver would not have to wait for as well.
    let setup = Setup::default().windows(|windows| {
        windows.user_mode.queues_end_at_once = true;
        windows.unmap_time = UNMAPPING;
        windows.tdr.delay = 20 * SECOND;
    });
    stage.play(setup, |scene| {
        let raw = raw(scene)?;
        let room = Room::new(&raw)?;
        let (source, target) =
            (room.memory(scene, (ROWS * 8).next_multiple_of(4096))?, room.memory(scene, ROWS * u64::from(PITCH))?);
        let buffer = room.memory(scene, 4096)?;
        let copy = CopyRect {
            source: source.gpu,
            destination: target.gpu,
            source_pitch: 8,
            destination_pitch: PITCH,
            row_bytes: 8,
            // CAST: a few thousand.
            rows: ROWS as u32,
        }
        .to_packet();
        buffer.write(&raw, 0, copy.as_bytes())?;
        let row = |row: u64| raw.load(target.cpu + row as usize * PITCH as usize);
        let rows_of =
            |round| (0..ROWS).map(row).try_fold(0u64, |sum, word| Ok::<_, Error>(sum + u64::from(word? == round)));
        for round in 1..=stage.rounds(DESTRUCTIONS) {
            source.write(&raw, 0, &u64::to_le_bytes(round).repeat(ROWS as usize))?;
            let queue = room.queue(0, false)?;
            // CAST: the length of a packet.
            room.submit(queue.handle, buffer.gpu, copy.as_bytes().len() as u32, 1)?;
            // In the first round everything is mapped.
            let last = if round == 1 { ROWS - 1 } else { 3 * (2 + round % 5) };
            scene.until_now("a row", || Ok(row(last)? == round))?;
            room.destroy_queue(queue.handle)?;
            let before = rows_of(round)?;
            std::thread::park_timeout(Duration::from_millis(30));
            same("rows that are copied", rows_of(round)?, before).with_context(|| format!("round {round}"))?;
            room.destroy_context(queue.context)?;
        }
        Ok(())
    })
}
