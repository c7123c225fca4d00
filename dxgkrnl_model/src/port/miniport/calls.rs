//! What an adapter remembers of the calls between the OS and its driver.

use super::arguments::{Arguments, DdiCall};
use std::collections::{BTreeMap, VecDeque};

/// The calls of one adapter.
#[derive(Debug, Default)]
pub(super) struct Calls {
    pub(super) ddis: BTreeMap<&'static str, u64>,
    pub(super) callbacks: BTreeMap<&'static str, u64>,
    /// The last [`JOURNAL`] DDIs, in the order in which they were entered.
    pub(super) journal: VecDeque<DdiCall>,
}

/// How many DDI calls an adapter remembers in order.
pub const JOURNAL: usize = 8192;

impl Calls {
    /// Counts a call of the driver.
    pub(super) fn count_ddi(&mut self, name: &'static str, arguments: Arguments) {
        *self.ddis.entry(name).or_default() += 1;
        if self.journal.len() == JOURNAL {
            self.journal.pop_front();
        }
        self.journal.push_back(DdiCall { name, arguments });
    }
}
