//! The good process: it submits, waits, and looks after its memory.

use super::Round;
use super::machine::open;
use crate::scenario::{NOTIFY, Played, RETRY, Raw, RingQueue, Room, Scene};
use anyhow::{Context, ensure};
use gpu_wire::packet::Store;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long each submission of a good process may take. The machine may be busy with other things, and an engine is
/// reset after a second: a multiple of both.
const PATIENCE: Duration = Duration::from_secs(10);

/// Bytes that nothing but this process may change.
const CANARY: u64 = 64 << 10;

/// Submissions between two looks at all of the canary.
const LOOK_EVERY: u64 = 64;

/// What the canary holds at `at`.
fn grain(at: u64) -> u64 {
    0xC0FF_EE00_0000_0000 | at
}

/// Lives until `end`, on `node`: each submission ends within [`PATIENCE`], memory and device stay whole. Sets nothing;
/// `stop` cuts it short.
///
/// # Errors
/// How it was harmed.
pub fn live(round: &Round, scene: &Scene, node: u32, end: Instant, stop: &AtomicBool) -> Played {
    let raw = open(scene).context("the good process")?;
    let room = Room::new(&raw).context("the good process")?;
    let queue = RingQueue::connected(scene, &room, node, 4096).context("the good process")?;
    let (canary, word) = (room.memory(scene, CANARY)?, room.memory(scene, 4096)?);
    for at in (0..CANARY).step_by(8) {
        // CAST: below 64 Ki.
        raw.store(canary.cpu + at as usize, grain(at))?;
    }
    let mut rounds = 0;
    while Instant::now() < end && !stop.load(Ordering::Acquire) {
        let begun = Instant::now();
        rounds += 1;
        submit(&queue, word.gpu, rounds).with_context(|| format!("the good process, submission {rounds}"))?;
        let value = raw.load(word.cpu)?;
        ensure!(value == rounds, "the good process stored {rounds} and finds {value:#x}");
        if rounds % LOOK_EVERY == 1 {
            look(&raw, canary.cpu)?;
            ensure!(room.is_active()?, "the good process's device is lost: {:?}", room.state()?);
        }
        // CAST: milliseconds of a round.
        round.coverage.most("victim: slowest submission in ms (most)", begun.elapsed().as_millis() as u64);
        round.coverage.count("victim: submissions", 1);
    }
    look(&raw, canary.cpu)?;
    ensure!(room.is_active()?, "the good process's device is lost: {:?}", room.state()?);
    raw.destroy_device(room.device).context("the good process's end")
}

/// Stores `value` by the GPU and waits for it, doing what the doorbell's status asks for.
fn submit(queue: &RingQueue, address: u64, value: u64) -> Played {
    let end = Instant::now() + PATIENCE;
    let (progress, mut status) = queue.submit(&[Store { address, value }.to_packet()])?;
    while queue.progress()? < progress {
        match status {
            RETRY => {
                queue.connect().context("connecting again")?;
                status = queue.ring()?;
            }
            NOTIFY => {
                queue.notify().context("notifying")?;
                status = queue.status()?;
            }
            _ => status = queue.status()?,
        }
        let where_it_is =
            || format!("status {status}, {} of {} bytes retired", queue.retired().unwrap_or(0), queue.written.get());
        ensure!(Instant::now() < end, "no end within {} s: {}", PATIENCE.as_secs(), where_it_is());
        std::thread::park_timeout(Duration::from_micros(100));
    }
    Ok(())
}

fn look(raw: &Raw, canary: usize) -> Played {
    for at in (0..CANARY).step_by(8) {
        // CAST: below 64 Ki.
        let found = raw.load(canary + at as usize)?;
        ensure!(found == grain(at), "the good process's memory at {at:#x}: {found:#x}, which it has not stored");
    }
    Ok(())
}
