//! Cases whose work is to be shorter than TdrDelay, by how long it really ran.

use super::super::{Played, Scene, Setup, Stage};
use anyhow::Context;
use dxgkrnl_model::personality::MS;
use std::cell::Cell;
use std::time::{Duration, Instant};

/// TdrDelay in milliseconds, each where work took too long for the one before.
const DELAYS: [u64; 3] = [200, 1_000, 5_000];

/// For how long work ran that is to be shorter than TdrDelay, and whether that was too long once.
pub(in super::super) struct Watch {
    /// TdrDelay.
    pub delay: Duration,
    since: Cell<Instant>,
    /// Work was late.
    pub late: Cell<bool>,
}

impl Watch {
    /// Work begins now, or later.
    pub(super) fn begin(&self) {
        self.begin_at(Instant::now());
    }

    /// Work began then, or later.
    pub(super) fn begin_at(&self, time: Instant) {
        self.since.set(time);
    }

    /// It has ended.
    pub(super) fn end(&self) {
        self.late.set(self.late.get() || self.since.get().elapsed() >= self.delay);
    }
}

/// Plays a case that says something only where its work ends before TdrDelay is over: where the machine kept this
/// thread from ending it, again with a longer TdrDelay. What fails though all work was in time fails, and so does what
/// fails with the last TdrDelay.
pub(in super::super) fn in_time(
    stage: &Stage,
    setup: impl Fn() -> Setup,
    play: impl Fn(&Scene, &Watch) -> Played,
) -> Played {
    for (at, milliseconds) in DELAYS.into_iter().enumerate() {
        let delay = Duration::from_millis(milliseconds);
        let watch = Watch { delay, since: Cell::new(Instant::now()), late: Cell::new(false) };
        let setup = setup().windows(|windows| windows.tdr.delay = milliseconds * MS);
        let played = stage.play(setup, |scene| play(scene, &watch));
        if played.is_ok() || !watch.late.get() || at + 1 == DELAYS.len() {
            return played.with_context(|| format!("TdrDelay {milliseconds} ms"));
        }
    }
    Ok(())
}
