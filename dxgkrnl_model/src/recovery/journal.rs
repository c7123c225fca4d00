//! The recoveries of an adapter, kept while they happen.

use crate::port::miniport::Miniport;
use crate::port::sync::{Lock, Rank};
use crate::recovery::Watch;

use crate::port::tdr::steps::{Reason, Recovery, Step, What};

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
    /// Recoveries before this one, counted as [`gone`](Self::gone), have ended and been told of.
    told: usize,
    recoveries: Vec<Recovery>,
}

impl Journal {
    pub(super) fn new() -> Self {
        Self { list: Lock::new(Rank::Leaf, Kept::default()) }
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

    /// Ends a recovery. Returns the texts of those that are to be told of now: in the order in which they began, so
    /// that one which ends inside of another comes behind that.
    fn end(&self, number: usize) -> Vec<String> {
        let mut kept = self.list.lock();
        let at = number.checked_sub(kept.gone);
        if let Some(recovery) = at.and_then(|at| kept.recoveries.get_mut(at)) {
            recovery.is_over = true;
        }
        let first = kept.told.saturating_sub(kept.gone);
        let behind = kept.recoveries.get(first..).unwrap_or_default();
        let texts: Vec<_> = behind.iter().take_while(|one| one.is_over).map(ToString::to_string).collect();
        kept.told = kept.gone + first + texts.len();
        texts
    }
}

/// One recovery that happens. Its end is an event of the adapter's, behind that of each which began before it.
pub(super) struct Record<'a> {
    adapter: &'a Miniport,
    number: usize,
}

impl<'a> Record<'a> {
    pub(super) fn begin(adapter: &'a Miniport, what: What, reason: Reason) -> Self {
        Self { adapter, number: Watch::of(adapter).journal.begin(what, reason) }
    }

    pub(super) fn step(&self, step: Step) {
        Watch::of(self.adapter).journal.step(self.number, step);
    }
}

impl Drop for Record<'_> {
    fn drop(&mut self) {
        for text in Watch::of(self.adapter).journal.end(self.number) {
            self.adapter.note_event(format!("TDR: {text}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recoveries_are_told_of_in_the_order_in_which_they_began() {
        let journal = Journal::new();
        let engine = journal.begin(What::PacketEngine { node: 2 }, Reason::Preemption);
        let adapter = journal.begin(What::Adapter, Reason::Promoted);
        assert_eq!(journal.end(adapter), Vec::<String>::new());
        let told = journal.end(engine);
        assert!(told.len() == 2 && told[0].starts_with("engine") && told[1].starts_with("adapter"), "{told:?}");
        let next = journal.begin(What::Adapter, Reason::Forced);
        assert_eq!(journal.end(next).len(), 1);
    }
}
