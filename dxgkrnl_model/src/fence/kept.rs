//! An adapter keeps the storage that a destroyed fence had alone for a while, and judges that nothing writes to it.

use std::collections::VecDeque;
use std::sync::Arc;

use super::storage::FencePages;
use crate::adapter::Adapter;
use crate::sync::{Lock, Rank};

/// Fences whose storage is kept at most.
const MOST: usize = 32;

/// The storage that is kept, the oldest first.
#[derive(Debug)]
pub(crate) struct Kept {
    pages: Lock<VecDeque<Arc<FencePages>>>,
}

impl Kept {
    pub(crate) fn new() -> Self {
        Self { pages: Lock::new(Rank::Registry, VecDeque::new()) }
    }

    /// Keeps the storage of a fence that is destroyed; where there is too much, the oldest is judged and given back.
    pub(super) fn keep(&self, adapter: &Adapter, pages: &Arc<FencePages>) {
        let surplus: Vec<_> = {
            let mut kept = self.pages.lock();
            kept.push_back(pages.clone());
            let surplus = kept.len().saturating_sub(MOST);
            kept.drain(..surplus).collect()
        };
        surplus.iter().for_each(|pages| pages.judge_all(adapter));
    }

    /// Judges everything that is kept, and gives it back.
    pub(crate) fn judge(&self, adapter: &Adapter) {
        let all = std::mem::take(&mut *self.pages.lock());
        all.iter().for_each(|pages| pages.judge_all(adapter));
    }
}
