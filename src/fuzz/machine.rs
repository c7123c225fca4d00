//! A machine per round: hostile processes and good ones on it, and what is looked at behind it.

use super::victim;
use super::{Dice, ROUND, Round};
use crate::scenario::{Played, Raw, Scene, Setup};
use crate::world::World;
use anyhow::{Result, anyhow, bail, ensure};
use dxgkrnl_model::personality::{MS, SECOND};
use dxgkrnl_model::process::End;
use dxgkrnl_model::thunks::Thunks;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// A rule that a client can break by itself, the fuzzers whose clients do, and why the driver cannot help it.
pub type Tolerated = (&'static str, &'static [&'static str], &'static str);

/// Those rules.
pub const TOLERATED: &[Tolerated] = &[
    (
        "DXG-LOG-HEADER",
        &["rings"],
        "the log lies in the process's GPU address space, writable, as the article has it: a FILL reaches its header",
    ),
    (
        "DXG-NF-CURRENT-WRITTEN",
        &["rings"],
        "an engine stores a lower value, for the same process, before the value that the driver wrote is looked at",
    ),
    (
        "DXG-NF-WRITE-AFTER",
        &["rings"],
        "a STORE of another queue of the lost device runs on until the OS has taken that queue's context off",
    ),
    (
        "DXG-SLOG-RAN",
        &["rings", "thunks"],
        "that a context ran is read from its queues' progress fences, which the process signals by other means, too",
    ),
];

/// A Windows that ends what hangs soon, and goes on however often it has to. Longer than in cases: an engine that gets
/// no processor for that long is no fault of the driver.
pub fn setup() -> Setup {
    Setup::default().windows(|windows| {
        windows.tdr.delay = 1000 * MS;
        windows.tdr.ddi_delay = 20 * SECOND;
        windows.tdr.limit_count = u32::MAX;
    })
}

/// Boots a machine as `setup` says, plays, shuts down, and looks at the rules.
///
/// # Errors
/// What `body` returns; a broken rule that is not in [`TOLERATED`].
pub fn play(round: &Round, setup: Setup, body: impl FnOnce(&Scene) -> Played) -> Played {
    let world = World::boot_with(&round.form, setup.personality, &setup.service)?;
    let adapter = world.adapter(setup.adapter)?;
    let scene = Scene { world, adapters: vec![adapter], thunks: Thunks::new() };
    let played = body(&scene);
    let report = scene.world.os.report();
    let Scene { world, adapters, .. } = scene;
    drop(adapters);
    world.os.shut_down();
    for adapter in &report.adapters {
        round.coverage.count("machine: engine resets", adapter.engine_resets);
        round.coverage.count("machine: adapter resets", adapter.adapter_resets);
        round.coverage.count("machine: interrupts", adapter.interrupts);
    }
    let events = || report.events.iter().rev().take(6).map(|event| event.text.as_str()).collect::<Vec<_>>().join("; ");
    if let Err(error) = played {
        bail!("{error:#}\n    last events, the newest first: {}", events());
    }
    let is_tolerated =
        |rule: &str| TOLERATED.iter().any(|(name, fuzzers, _)| *name == rule && fuzzers.contains(&round.fuzzer));
    for rule in world.os.report().broken().filter(|rule| is_tolerated(rule.rule.name)) {
        round.coverage.count(&format!("tolerated: {}", rule.rule.name), rule.broken);
    }
    let violations = world.os.kernel().rules.violations();
    let broken = violations.iter().find(|violation| !is_tolerated(violation.rule.name));
    ensure!(broken.is_none(), "{}", broken.map(ToString::to_string).unwrap_or_default());
    Ok(())
}

/// A new process that has opened the adapter.
pub fn open(scene: &Scene) -> Result<Raw> {
    Raw::open(&Arc::new(scene.world.os.create_process("client")), scene.adapter().luid())
}

/// What a hostile process does: once, until it is through or `stop` is set. An error is the hostile process's affair.
pub type Hostile<'a> = &'a (dyn Fn(&Scene, &Raw, &mut Dice, &AtomicBool) -> Played + Sync);

/// Sets it when dropped, so that the others end, too, when one panics.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Plays `hostile` on `threads` threads, again and again, each time in a process of its own that is then ended, and
/// beside them a good process on each node of `nodes`, for the length of a round. What `meanwhile` does is done again
/// and again on this thread.
///
/// # Errors
/// What a good process found.
pub fn beside(
    round: &Round,
    scene: &Scene,
    nodes: &[u32],
    threads: u64,
    hostile: Hostile<'_>,
    mut meanwhile: impl FnMut(),
) -> Played {
    let (stop, end) = (AtomicBool::new(false), Instant::now() + ROUND);
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (stop, mut dice) = (&stop, round.dice(thread));
            scope.spawn(move || {
                let _others = Stop(stop);
                while !stop.load(Ordering::Acquire) {
                    attack(round, scene, hostile, &mut dice, stop);
                }
            });
        }
        let good: Vec<_> = nodes
            .iter()
            .map(|node| {
                let stop = &stop;
                scope.spawn(move || victim::live(round, scene, *node, end, stop))
            })
            .collect();
        while !good.iter().all(|thread| thread.is_finished()) {
            meanwhile();
        }
        drop(Stop(&stop));
        let mut all: Played = Ok(());
        for thread in good {
            let one = thread.join().unwrap_or_else(|_| Err(anyhow!("the good process's thread panicked")));
            all = all.and(one);
        }
        all
    })
}

/// The life of a hostile process.
fn attack(round: &Round, scene: &Scene, hostile: Hostile<'_>, dice: &mut Dice, stop: &AtomicBool) {
    let Ok(raw) = open(scene) else {
        round.coverage.count("hostile: refused at the door", 1);
        return;
    };
    let what = if hostile(scene, &raw, dice, stop).is_ok() { "hostile: through" } else { "hostile: cut short" };
    round.coverage.count(what, 1);
    // Every thread of the process has ended, so that this is the only owner.
    if let Some(process) = Arc::into_inner(raw.process) {
        process.end(End::Terminated);
    }
}
