//! The kernel under the driver: time, priorities, want of addresses.

use super::super::rig::Rig;
use super::super::{Played, Scene, Setup, Stage, same};
use anyhow::ensure;
use std::time::{Duration, Instant};

/// Rings after each of so many pauses, in which the engine has stopped to look all the time.
const ROUNDS: u64 = 15;
/// How long such a ring may take until its work is done. Half a tick of the clock, 7.8 ms, is what engines would take
/// on average that look once a tick.
const SOON: Duration = Duration::from_millis(3);

/// The time from a ring to its work, of the middle one of [`ROUNDS`].
fn rings(scene: &Scene) -> anyhow::Result<Duration> {
    let rig = Rig::open(scene, "client")?;
    let (queue, page) = (rig.queue(0)?, rig.page()?);
    let mut times = Vec::new();
    for round in 1..=ROUNDS {
        std::thread::park_timeout(Duration::from_micros(20_000 + round * 1_000));
        let begun = Instant::now();
        queue.run(|list| list.store(page.at(0), round))?;
        scene.until_now("work", || Ok(page.word(0)? == round))?;
        times.push(begun.elapsed());
    }
    times.sort_unstable();
    Ok(times[times.len() / 2])
}

pub(super) fn waits(stage: &Stage) -> Played {
    for ends_at_once in [false, true] {
        let setup = Setup::default().windows(|windows| windows.time_outs.ends_at_once = ends_at_once);
        stage.play(setup, |scene| {
            let mut best = rings(scene)?;
            // Another process may have had the processors.
            for _ in 0..3 {
                best = if best <= SOON { best } else { best.min(rings(scene)?) };
            }
            ensure!(best <= SOON, "what was rung ran after {best:?}");
            scene.world.os.stop_adapter(scene.adapter());
            scene.world.os.restart_adapter(scene.adapter())?;
            same("time-outs of the driver below a tick", scene.world.os.kernel().waits_below_a_tick(), 0)
        })?;
    }
    Ok(())
}
