//! An adapter keeps the storage that a destroyed fence had alone for a while, and judges that nothing writes to it.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::memory::fence::storage::FencePages;
use crate::port::miniport::Miniport;
use crate::port::sync::{Lock, Rank};

/// Fences whose storage is kept at most.
const MOST: usize = 32;

/// The storage that is kept, the oldest first.
#[derive(Debug)]
pub(crate) struct Kept {
    pages: Lock<VecDeque<Arc<FencePages>>>,
}

impl Default for Kept {
    fn default() -> Self {
        Self::new()
    }
}

impl Kept {
    /// That of an adapter.
    pub(crate) fn of(adapter: &Miniport) -> &Self {
        adapter.extension()
    }

    fn new() -> Self {
        Self { pages: Lock::new(Rank::Registry, VecDeque::new()) }
    }

    /// Keeps the storage of a fence that is destroyed; where there is too much, the oldest is judged and given back.
    pub(crate) fn keep(&self, adapter: &Miniport, pages: &Arc<FencePages>) {
        let surplus: Vec<_> = {
            let mut kept = self.pages.lock();
            kept.push_back(pages.clone());
            let surplus = kept.len().saturating_sub(MOST);
            kept.drain(..surplus).collect()
        };
        surplus.iter().for_each(|pages| pages.judge_all(adapter));
    }

    /// Judges everything that is kept, and gives it back.
    pub(crate) fn judge(&self, adapter: &Miniport) {
        let all = std::mem::take(&mut *self.pages.lock());
        all.iter().for_each(|pages| pages.judge_all(adapter));
    }
}
