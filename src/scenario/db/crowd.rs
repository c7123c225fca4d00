//! Many queues on few physical doorbells: whose goes, and how long the others wait.

use super::{CONNECTED, RETRY, RingQueue, Room, raw};
use crate::fuzz::dice::Dice;
use crate::scenario::{Played, Raw, Scenario, Scene, Setup, Stage, same};
use crate::schedstat::Schedstat;
use anyhow::{Context, Result, anyhow, ensure};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const VICTIM: &str = "User-mode work submission, Dedicated doorbells; Victimizing doorbell pseudocode in KMD";

pub(super) const CASES: &[Scenario] = &[
    Scenario {
        id: "DB-64",
        title: "among several, the least recently used doorbell is the one that goes, each time",
        source: VICTIM,
        play: least_recently_used,
    },
    Scenario {
        id: "DB-65",
        title: "256 queues, four submissions each, from eight threads on four doorbells: every one completes, no connection \
                fails, and none waits for more than its turns",
        source: VICTIM,
        play: many_on_few,
    },
];

fn least_recently_used(stage: &Stage) -> Played {
    const DOORBELLS: usize = 4;
    let setup = Setup::default().setting("PhysicalDoorbells", DOORBELLS as u32).setting("IdleMilliseconds", 0);
    stage.play(setup, |scene| {
        let raw = raw(scene)?;
        let room = Room::new(&raw)?;
        let queues: Vec<_> =
            (0..DOORBELLS + 3).map(|_| RingQueue::new(scene, &room, 0, 4096)).collect::<Result<_>>()?;
        // The doorbells that are connected, the least recently used first.
        let mut order: Vec<usize> = (0..DOORBELLS).collect();
        queues[..DOORBELLS].iter().try_for_each(RingQueue::connect)?;
        let mut dice = Dice::new(stage.seed());
        for round in 0..200 {
            let drawn = dice.draw();
            // CAST: small.
            // One use to three, in an order that is not that of the connections.
            for number in 0..1 + (drawn >> 16) % 3 {
                // CAST: below the doorbells.
                let used = order.remove((drawn >> (4 * number)) as usize % DOORBELLS);
                let (progress, status) = queues[used].submit(&[])?;
                same("status of one that is connected", status, CONNECTED)?;
                queues[used].wait(scene, progress)?;
                order.push(used);
            }
            let others: Vec<_> = (0..queues.len()).filter(|queue| !order.contains(queue)).collect();
            let next = others[(drawn >> 32) as usize % others.len()];
            queues[next].connect()?;
            let victim = order.remove(0);
            order.push(next);
            for (number, queue) in queues.iter().enumerate() {
                let wanted = if order.contains(&number) { CONNECTED } else { RETRY };
                let what = || format!("round {round}: queue {number}, where {victim} was to go for {next}");
                same("status", queue.status()?, wanted).with_context(what)?;
            }
        }
        same("callbacks", scene.callbacks("DxgkCbDisconnectDoorbell"), 200)
    })
}

const THREADS: usize = 8;
const DOORBELLS: u64 = 4;

/// The driver passes over a connection that waits and whose thread does not look for so long: it keeps no other
/// waiting.
const AWAY: Duration = Duration::from_millis(20);

/// The victimisations of a wait that say something of the driver: all of them, unless the host has kept the thread from
/// running for so long that the driver may have passed it over; then those that fall in the time in which the thread
/// ran or slept.
fn telling(victims: u64, took: Duration, kept: Duration) -> u64 {
    if kept < AWAY {
        return victims;
    }
    let own = took.saturating_sub(kept).as_nanos();
    // CAST: no more than `victims`.
    (u128::from(victims) * own).div_ceil(took.as_nanos().max(1)) as u64
}

/// Submits to each of so many queues in turn, so many times; the most victimisations that one of them saw.
fn submit_all(scene: &Scene, raw: &Raw, queues: usize, times: usize) -> Result<u64> {
    let room = Room::new(raw)?;
    let queues: Vec<_> =
        (0..queues).map(|number| RingQueue::new(scene, &room, number as u32 % 2, 4096)).collect::<Result<_>>()?;
    let victims = || scene.callbacks("DxgkCbDisconnectDoorbell");
    let mut most = 0;
    for _ in 0..times {
        for queue in &queues {
            let (begun, kept, before) = (Instant::now(), Schedstat::own().waited, victims());
            let progress = queue.submit_through(&[]).context("a connection")?;
            scene.until_now("progress", || Ok(queue.progress()? >= progress))?;
            let seen = victims() - before;
            most = most.max(telling(seen, begun.elapsed(), Schedstat::own().waited.saturating_sub(kept)));
        }
    }
    Ok(most)
}

fn many_on_few(stage: &Stage) -> Played {
    crowd(stage, 256, 4)
}

/// So many queues, a multiple of eight, each of which submits so many times, from eight threads on four doorbells.
///
/// # Errors
/// When a connection fails, a queue waits for longer than its turns, or work does not come to its end.
pub fn crowd(stage: &Stage, queues: usize, times: usize) -> Played {
    for one_process in [true, false] {
        // CAST: 4.
        let setup = Setup::default().setting("PhysicalDoorbells", DOORBELLS as u32);
        let play = |scene: &Scene| {
            let most = AtomicU64::new(0);
            let raws: Vec<_> = (0..if one_process { 1 } else { THREADS }).map(|_| raw(scene)).collect::<Result<_>>()?;
            std::thread::scope(|scope| {
                let threads: Vec<_> = (0..THREADS)
                    .map(|thread| {
                        let (raw, most) = (&raws[thread % raws.len()], &most);
                        scope.spawn(move || -> Played {
                            let seen = submit_all(scene, raw, queues / THREADS, times)?;
                            most.fetch_max(seen, Ordering::Relaxed);
                            Ok(())
                        })
                    })
                    .collect();
                threads
                    .into_iter()
                    .try_for_each(|thread| thread.join().map_err(|_| anyhow!("a thread ended by itself"))?)
            })?;
            // CAST: a thousand.
            let bound = 8 * queues as u64 / DOORBELLS;
            let most = most.into_inner();
            ensure!(most <= bound, "a queue waited for {most} victimisations, and {bound} is the bound");
            ensure!(scene.callbacks("DxgkCbDisconnectDoorbell") > queues as u64, "doorbells hardly moved");
            Ok(())
        };
        stage.play(setup, play).with_context(|| format!("one process {one_process}"))?;
    }
    Ok(())
}
