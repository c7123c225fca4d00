//! The recoveries of an adapter, kept while they happen.

use crate::adapter::Adapter;
use crate::sync::{Lock, Rank};

use super::steps::{Reason, Recovery, Step, What};

/// Recoveries that are kept; older ones go.
const KEPT: usize = 4096;

/// What was recovered.
#[derive(Debug)]
pub(crate) struct Journal {
    list: Lock<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    /// How many are gone.
    gone: usize,
    recoveries: Vec<Recovery>,
}

impl Journal {
    pub(super) fn new() -> Self {
        Self { list: Lock::new(Rank::Log, Kept::default()) }
    }

    /// What was recovered, in order.
    pub(crate) fn recoveries(&self) -> Vec<Recovery> {
        self.list.lock().recoveries.clone()
    }

    fn begin(&self, what: What, reason: Reason) -> usize {
        let mut kept = self.list.lock();
        if kept.recoveries.len() == KEPT {
            kept.recoveries.remove(0);
            kept.gone += 1;
        }
        kept.recoveries.push(Recovery { what, reason, steps: Vec::new(), is_over: false });
        kept.gone + kept.recoveries.len() - 1
    }

    fn step(&self, number: usize, step: Step) {
        let mut kept = self.list.lock();
        let at = number.checked_sub(kept.gone);
        if let Some(recovery) = at.and_then(|at| kept.recoveries.get_mut(at)) {
            recovery.steps.push(step);
        }
    }

    /// Ends a recovery; its text.
    fn end(&self, number: usize) -> Option<String> {
        let mut kept = self.list.lock();
        let at = number.checked_sub(kept.gone)?;
        let recovery = kept.recoveries.get_mut(at)?;
        recovery.is_over = true;
        Some(recovery.to_string())
    }
}

/// One recovery that happens. Its end is an event of the adapter's.
pub(super) struct Record<'a> {
    adapter: &'a Adapter,
    number: usize,
}

impl<'a> Record<'a> {
    pub(super) fn begin(adapter: &'a Adapter, what: What, reason: Reason) -> Self {
        Self { adapter, number: adapter.tdr.journal.begin(what, reason) }
    }

    pub(super) fn step(&self, step: Step) {
        self.adapter.tdr.journal.step(self.number, step);
    }
}

impl Drop for Record<'_> {
    fn drop(&mut self) {
        if let Some(text) = self.adapter.tdr.journal.end(self.number) {
            self.adapter.note_event(format!("TDR: {text}"));
        }
    }
}
