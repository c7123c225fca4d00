//! The adapter is stopped under load, and started again.

use crate::scenario::client::{Client, PATIENCE};
use crate::scenario::{Played, Scenario, Scene, Setup, Stage, same};
use anyhow::{Context, Result, anyhow, ensure};
use dxgkrnl_model::adapter::AdapterState;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use umd_core::ffi::types::FP_QUEUE_KERNEL_MODE;

pub(super) const CASES: &[Scenario] = &[Scenario {
    id: "RP-15",
    title: "stopped while processes submit as fast as they can: nothing hangs, no work is taken, and the next start \
            works",
    source: "DxgkDdiStopDevice; DxgkDdiStartDevice",
    play: under_load,
}];

/// Threads that submit, each as a process of its own.
const THREADS: u64 = 4;

/// Submits until something is refused; then everything else is.
fn load(scene: &Scene, thread: u64, done: &AtomicU64) -> Played {
    let rig = Client::open(scene, "load")?;
    let flags = if thread.is_multiple_of(2) { 0 } else { FP_QUEUE_KERNEL_MODE };
    let (queue, page) = (rig.device.queue(0, 64 << 10, flags, 0)?, rig.page()?);
    let at = page.at(0);
    let refused = (1..).find_map(|value| {
        let ran = queue.run(|list| list.store(at, value)).and_then(|progress| queue.wait(progress, Some(PATIENCE)));
        done.fetch_add(1, Ordering::Relaxed);
        ran.err()
    });
    let refused = refused.context("the work has no end")?;
    // Of a device that is gone no call takes work, and none waits.
    // A doorbell reads ABORT soon behind its device's error.
    scene.until("a refusal of work", || Ok(queue.run(|list| list.store(at, 1)).is_err()))?;
    // The fences of a lost device read as passed; a wait ends at once, and tells the loss. What was refused last may
    // have run all the same.
    let made = queue.progress()?.1;
    for progress in [made + 100, u64::MAX] {
        let begun = Instant::now();
        let waited = queue.wait(progress, Some(PATIENCE));
        ensure!(begun.elapsed() < PATIENCE / 2, "behind {refused}: a wait took {:?}: {waited:?}", begun.elapsed());
        let now = queue.progress();
        ensure!(
            waited.is_err(),
            "behind {refused}: a wait for {progress:#x} succeeded, of {made} submissions: {now:?}"
        );
    }
    Ok(())
}

fn under_load(stage: &Stage) -> Played {
    for surprise in [false, true] {
        let play = |scene: &Scene| {
            for round in 0..3 {
                let done: [AtomicU64; THREADS as usize] = core::array::from_fn(|_| AtomicU64::new(0));
                std::thread::scope(|scope| -> Played {
                    let threads: Vec<_> =
                        (0..).zip(&done).map(|(thread, done)| scope.spawn(move || load(scene, thread, done))).collect();
                    let all_run = || Ok(done.iter().all(|done| done.load(Ordering::Relaxed) > 20));
                    let begun = scene.until("work of every thread", all_run);
                    std::thread::park_timeout(Duration::from_millis(round * 3));
                    match surprise {
                        false => scene.world.os.stop_adapter(scene.adapter()),
                        true => drop(scene.world.os.remove_by_surprise(scene.adapter())),
                    }
                    let ended: Result<Vec<()>> = threads
                        .into_iter()
                        .map(|thread| thread.join().map_err(|_| anyhow!("a thread ended by itself"))?)
                        .collect();
                    begun.and(ended.map(drop))
                })?;
                same("state", scene.adapter().state(), AdapterState::Stopped)?;
                scene.world.os.restart_adapter(scene.adapter())?;
                let rig = Client::open(scene, "next")?;
                let (queue, page) = (rig.queue(0)?, rig.page()?);
                queue.run(|list| list.store(page.at(0), 7))?;
                page.until(scene, "work behind the next start", 0, 7)?;
            }
            Ok(())
        };
        stage.play(Setup::default(), play).with_context(|| format!("by surprise {surprise}"))?;
    }
    Ok(())
}
