//! What is done with the driver: load, start, use, stop, on a thread of its own, which the driver may keep.

use super::Reach;
use super::exercise::exercise;
use super::outcome::Gap;
use super::resets;
use crate::dump::Moment;
use dxgkrnl_model::adapter::{Adapter, AdapterConfig, StartError};
use dxgkrnl_model::driver::{Driver, DriverError};
use dxgkrnl_model::os::Os;
use nt_model::LoadError;
use std::collections::BTreeSet;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How often it is looked whether the driver has come back.
const LOOK: Duration = Duration::from_millis(50);
/// How long a driver that did not come back in time, and whose machine has been stopped, gets to leave at a service.
const LEAVE: Duration = Duration::from_secs(2);

/// What was seen of the driver.
#[derive(Default)]
pub(super) struct Seen {
    /// Steps that the driver took or refused, in words.
    pub steps: Vec<String>,
    pub reached: Vec<Reach>,
    /// Nodes on which a process's work has ended, before anything was reset.
    pub worked: BTreeSet<u32>,
    /// What was not reached, and why.
    pub lacks: Vec<(Reach, String)>,
    /// Functions that the driver has registered.
    pub slots: Vec<&'static str>,
    pub adapter: Option<Arc<Adapter>>,
    pub gaps: Vec<Gap>,
    /// Whether the start was refused as Windows refuses it.
    pub refused: bool,
    /// Why Windows would have refused the start, where the model went on past that.
    pub would_refuse: Option<String>,
    /// Whether the machine was shut down.
    pub ended: bool,
}

impl Seen {
    pub fn reach(&mut self, what: Reach) {
        if !self.reached.contains(&what) {
            self.reached.push(what);
        }
    }

    /// Notes what the driver was asked at its start.
    fn start(&mut self, adapter: &Adapter) {
        self.steps.extend(adapter.transcript().iter().map(|line| format!("{}: {}", line.step, line.answer)));
    }
}

/// What both threads know: the driver's keeps it alive for as long as the driver keeps that.
pub(super) struct Run {
    os: Os,
    seen: Mutex<Seen>,
    deadline: Duration,
}

impl Run {
    pub fn os(&self) -> &Os {
        &self.os
    }

    /// How long the driver may keep a caller, and a process the work that it has submitted.
    pub fn deadline(&self) -> Duration {
        self.deadline
    }

    /// What was seen so far.
    pub fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Does everything with a driver, and ends when it has ended, or keeps its thread for longer than `deadline`.
///
/// # Errors
/// When the file is no driver image that can be loaded.
pub(super) fn play(os: Os, driver: Driver, config: AdapterConfig, deadline: Duration) -> Result<Arc<Run>, LoadError> {
    os.kernel().watch_returns();
    let run = Arc::new(Run { os, seen: Mutex::default(), deadline });
    let (tell, told) = mpsc::channel();
    let runs = run.clone();
    let thread = std::thread::spawn(move || {
        let result = live(&runs, &driver, config);
        // Before it is told: the other thread is the last that has the machine.
        drop(runs);
        let _ = tell.send(result);
    });
    let mut late = false;
    loop {
        match told.recv_timeout(if late { LEAVE } else { LOOK }) {
            Ok(result) => return result.map(|()| run),
            Err(RecvTimeoutError::Timeout) if late => break,
            Err(RecvTimeoutError::Timeout) => late = !run.os.kernel().judge_returns(deadline),
            Err(RecvTimeoutError::Disconnected) => {
                let panicked = thread.join().expect_err("it has told nothing");
                std::panic::resume_unwind(panicked);
            }
        }
    }
    let adapters = run.os.adapters();
    let mut seen = run.seen();
    if let (None, Some(adapter)) = (&seen.adapter, adapters.into_iter().next()) {
        seen.start(&adapter);
        seen.adapter = Some(adapter);
    }
    drop(seen);
    Ok(run)
}

/// What the driver asks of page table updates and the model does not do.
///
/// Source: DDI page DXGK_GPUMMUCAPS, ExplicitPageTableInvalidation (entries are made invalid before a table is freed)
/// and PageTableUpdateRequireAddressSpaceIdle (contexts are suspended during an update).
fn unkept(adapter: &Adapter) -> Vec<Gap> {
    let Some(mmu) = adapter.caps().and_then(|caps| caps.mmu.as_ref().map(|mmu| mmu.caps)) else { return Vec::new() };
    let asked = [
        (mmu.ExplicitPageTableInvalidation(), "ExplicitPageTableInvalidation"),
        (mmu.PageTableUpdateRequireAddressSpaceIdle(), "PageTableUpdateRequireAddressSpaceIdle"),
    ];
    asked.into_iter().filter(|(is_set, _)| *is_set).map(|(_, name)| Gap::Memory(name)).collect()
}

/// The life of the driver.
fn live(run: &Run, driver: &Driver, config: AdapterConfig) -> Result<(), LoadError> {
    let os = &run.os;
    match os.load_driver(driver) {
        Ok(driver) => {
            run.seen().slots = driver.slots();
            let (adapter, started) = os.try_adapter(&driver, config);
            {
                let mut seen = run.seen();
                seen.start(&adapter);
                seen.adapter = Some(adapter.clone());
            }
            if driver.is_display_only() {
                run.seen().gaps.push(Gap::DisplayOnly);
            }
            if let Some(refusal) = adapter.passed_refusal() {
                let shown = refusal.problem().map(|problem| format!("; Windows shows {problem}")).unwrap_or_default();
                let mut seen = run.seen();
                seen.would_refuse = Some(format!("{refusal:#}{shown}"));
                seen.refused = true;
            }
            match started {
                // Its processes, and what they submit, have lists of allocations, which the model does not make.
                Ok(()) if adapter.caps().is_some_and(|caps| !caps.is_gpu_mmu()) => {
                    run.seen().gaps.push(Gap::Physical);
                }
                Ok(()) => {
                    run.seen().gaps.extend(unkept(&adapter));
                    exercise(run, &adapter);
                    if run.seen().reached.contains(&Reach::Device) {
                        resets::preempt(run, &adapter);
                        resets::reset(run, &adapter);
                    }
                }
                Err(error) => {
                    let mut seen = run.seen();
                    let shown = error.problem().map(|problem| format!("; Windows shows {problem}"));
                    let shown = shown.unwrap_or_default();
                    seen.steps.push(format!("the adapter does not start: {error:#}{shown}"));
                    seen.refused |= matches!(error, StartError::Refused { .. } | StartError::Links { .. });
                    if let StartError::Driver { step, status } = error {
                        seen.gaps.push(Gap::Start { step, status });
                    }
                }
            }
        }
        Err(DriverError::Image(LoadError::UnknownImports(unknown))) => {
            run.seen().gaps.push(Gap::Imports(unknown.len()));
        }
        Err(DriverError::Image(error)) => return Err(error),
        Err(error) => {
            let mut seen = run.seen();
            let entry = if matches!(error, DriverError::Entry(_)) { "; Windows shows Code 37 with it" } else { "" };
            seen.steps.push(format!("the driver does not load: {error:#}{entry}"));
            seen.gaps.push(Gap::Load(error.to_string()));
        }
    }
    os.kernel().dump_moment(Moment::Ended, "the machine before it was shut down");
    os.shut_down();
    run.seen().ended = true;
    Ok(())
}
