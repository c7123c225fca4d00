//! What the scheduler notes of a node whose timeout it has detected, and when.

use super::super::{Played, Stage};
use super::{Hog, client, is_lost, only_reset, packet_resets, stubborn, victim};
use anyhow::{Context, ensure};
use dxgkrnl_model::adapter::Step;
use dxgkrnl_model::personality::Gate;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long the device's level is held while nothing may be noted: many times what that takes.
const HELD: Duration = Duration::from_millis(50);

/// While an interrupt of the device could be served, that is while its level is held, the scheduler notes nothing of the
/// node; then it does, and the reset goes on.
pub(super) fn at_the_devices_level(stage: &Stage) -> Played {
    let node = victim(stage);
    let gate = Gate::default();
    let setup = stubborn().windows(|windows| windows.gates.snapshot = Some(gate.clone())).resets(1);
    stage.play(setup, |scene| {
        let raw = client(scene, "hangs")?;
        let hog = Hog::new(scene, &raw, &[node])?;
        hog.spin(node, 0)?;
        hog.begins(scene, 0)?;
        scene.until("the timeout", || Ok(gate.came() == 1))?;
        let (held, over) = (AtomicBool::new(false), AtomicBool::new(false));
        let hold = || {
            held.store(true, Ordering::Release);
            // A failure of the other thread ends it, too.
            let end = Instant::now() + HELD * 100;
            while !over.load(Ordering::Acquire) && Instant::now() < end {
                std::hint::spin_loop();
            }
        };
        let has_noted = || {
            let is_noted = |step: &Step| matches!(step, Step::Snapshot { .. } | Step::Emptied);
            packet_resets(scene).iter().any(|recovery| recovery.has(is_noted))
        };
        std::thread::scope(|scope| -> Played {
            let holder = scope.spawn(|| scene.world.os.hold_interrupts(scene.adapter(), hold));
            let played = scene.until("the device's level", || Ok(held.load(Ordering::Acquire))).and_then(|()| {
                gate.let_through();
                std::thread::park_timeout(HELD);
                ensure!(!has_noted(), "the scheduler has noted what it knows while an interrupt could be served");
                Ok(())
            });
            gate.let_through();
            over.store(true, Ordering::Release);
            holder.join().map_err(|_| anyhow::anyhow!("a panic"))?.context("no interrupt is connected")?;
            played
        })?;
        is_lost(scene, &hog)?;
        let recovery = only_reset(scene)?;
        ensure!(recovery.has(|step| matches!(step, Step::Snapshot { packets: 1, .. })), "{recovery}");
        Ok(())
    })
}
