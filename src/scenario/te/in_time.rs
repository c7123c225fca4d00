//! Cases whose work is to be shorter than TdrDelay, by how long it really ran, and by how long the machine kept their
//! threads from its processors.

use super::super::{Played, Scene, Setup, Stage};
use crate::schedstat::Schedstat;
use anyhow::Context;
use dxgkrnl_model::personality::MS;
use std::cell::Cell;
use std::collections::BTreeMap;
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
    pub(in super::super) fn begin(&self) {
        self.begin_at(Instant::now());
    }

    /// Work began then, or later.
    pub(super) fn begin_at(&self, time: Instant) {
        self.since.set(time);
    }

    /// It has ended.
    pub(in super::super) fn end(&self) {
        self.late.set(self.late.get() || self.since.get().elapsed() >= self.delay);
    }
}

/// Whether the threads of this process have waited for a processor for as long as `limit` in all since `before`: by so
/// much what one hands on to the next may have come later. They have not where the kernel does not count that.
pub(super) fn were_kept(before: &BTreeMap<i32, Schedstat>, limit: Duration) -> bool {
    let since = |(thread, now): (i32, Schedstat)| {
        now.waited.saturating_sub(before.get(&thread).copied().unwrap_or_default().waited)
    };
    Schedstat::all().into_iter().map(since).sum::<Duration>() >= limit
}

/// Plays a case that says something only where its work ends before TdrDelay is over, or where the driver's threads,
/// the model's and the GPU's do what they must within TdrDelay: where the machine kept the case's thread from ending
/// its work, or the threads of this process from a processor for as long as TdrDelay in all, again with a longer
/// TdrDelay. What fails though they were not kept fails, and so does what fails with the last TdrDelay.
pub(in super::super) fn in_time(
    stage: &Stage,
    setup: impl Fn() -> Setup,
    play: impl Fn(&Scene, &Watch) -> Played,
) -> Played {
    for (at, milliseconds) in DELAYS.into_iter().enumerate() {
        let delay = Duration::from_millis(milliseconds);
        let watch = Watch { delay, since: Cell::new(Instant::now()), late: Cell::new(false) };
        let setup = setup().windows(|windows| windows.tdr.delay = milliseconds * MS);
        let played = stage.play(setup, |scene| {
            let before = Schedstat::all();
            let played = play(scene, &watch);
            // The GPU's threads end with the scene, which is judged behind that.
            watch.late.set(watch.late.get() || were_kept(&before, delay));
            played
        });
        if played.is_ok() || !watch.late.get() || at + 1 == DELAYS.len() {
            return played.with_context(|| format!("TdrDelay {milliseconds} ms"));
        }
    }
    Ok(())
}
