//! The demo from boot to shutdown.

use super::audit;
use super::picture::Picture;
use super::play::{Played, play};
use crate::setting::{self, Assignment};
use crate::world::{Form, World};
use anyhow::Result;
use dxgkrnl_model::adapter::Adapter;
use dxgkrnl_model::personality::{Personality, Windows};
use portable_cases::demo::recipe;

/// What an endless command buffer hangs an engine with, if it is 0.
const HANGS: &str = "PreemptInBuffers";

/// What came of it.
pub struct Ended {
    /// What was done, or why it was not.
    pub played: Result<Played>,
    /// Names of the rules that were broken.
    pub broken: Vec<&'static str>,
    /// The first breaches, in words.
    pub breaches: Vec<String>,
    /// What the driver said of itself before its engine was reset, for `decode`; empty if it was not reset.
    pub debug_info: Vec<u8>,
    /// Distinct rules that were evaluated.
    pub rules_run: usize,
}

impl Ended {
    /// Whether the work was done, and the picture is the one that a plain computation gives.
    pub fn is_right(&self, photo: &Picture) -> bool {
        self.played.as_ref().is_ok_and(|played| played.picture == recipe::expected(photo))
    }

    /// What does not fit ([`audit::complaints`]); empty when the work was not done.
    pub fn complaints(&self) -> Vec<String> {
        self.played.as_ref().map(audit::complaints).unwrap_or_default()
    }
}

/// Boots a machine of this Windows, starts an adapter with these settings, calls `started`, plays, drops what `started`
/// returned, and shuts down.
/// `separate`: the processes are Linux processes of their own. `say` gets a line per step.
///
/// # Errors
/// When the driver does not load. An adapter that does not start is work that was not done ([`Ended::played`]).
pub fn run<G>(
    form: &Form,
    windows: Windows,
    settings: &[Assignment],
    photo: &Picture,
    separate: bool,
    started: impl FnOnce(&World, &Adapter) -> G,
    say: &dyn Fn(&str),
) -> Result<Ended> {
    let mut personality = Personality::collecting();
    windows.apply(&mut personality);
    personality.separate_processes = separate;
    let world = World::boot_with(form, personality, settings)?;
    let mut debug_info = Vec::new();
    let settings = with_a_hang(settings);
    // The last one counts.
    let hangs = settings.iter().rfind(|(name, _)| name == HANGS).is_none_or(|(_, value)| *value == 0);
    let played = world.adapter(setting::adapter_of_ours(&settings)).and_then(|adapter| {
        let beside = started(&world, &adapter);
        let played = play(&world, adapter.luid(), photo, separate, hangs, say);
        drop(beside);
        debug_info = adapter.debug_info();
        played
    });
    world.os.shut_down();
    let report = world.os.report();
    Ok(Ended {
        played,
        broken: report.broken().map(|rule| rule.rule.name).collect(),
        breaches: world.os.kernel().rules.violations().iter().take(5).map(ToString::to_string).collect(),
        debug_info,
        rules_run: report.rules.iter().filter(|rule| rule.evaluations != 0).count(),
    })
}

/// The settings of the demo's driver: what `settings` do not say otherwise, and an engine that an endless command
/// buffer hangs. Else it would go on beside all other work, and nothing would be reset.
fn with_a_hang(settings: &[Assignment]) -> Vec<Assignment> {
    [(HANGS.to_owned(), 0)].into_iter().chain(settings.iter().cloned()).collect()
}
