//! The order in which spin locks follow each other, and the search for a cycle in it.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::cpu::HeldLock;

/// "Taken while the other was held", per machine.
pub(crate) struct LockOrder {
    /// Changes whenever edges are forgotten, which voids the threads' caches. Unique in the process.
    pub(super) epoch: AtomicU64,
    after: Mutex<HashMap<usize, Vec<usize>>>,
}

impl Default for LockOrder {
    fn default() -> Self {
        Self { epoch: AtomicU64::new(next_epoch()), after: Mutex::default() }
    }
}

fn next_epoch() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    LAST.fetch_add(1, Ordering::Relaxed) + 1
}

impl LockOrder {
    /// Adds "`word` after `held`". Returns the path from `word` to `held` when there was one already.
    pub(super) fn add(&self, held: HeldLock, word: usize) -> Option<Vec<usize>> {
        let mut after = self.after.lock();
        let next = after.entry(held.word).or_default();
        if next.contains(&word) {
            return None;
        }
        next.push(word);
        let mut path = vec![word];
        find(&after, word, held.word, &mut path).then_some(path)
    }

    pub(super) fn forget(&self, range: &Range<usize>) {
        let mut after = self.after.lock();
        let before = after.len();
        after.retain(|word, _| !range.contains(word));
        let mut changed = after.len() != before;
        for next in after.values_mut() {
            let count = next.len();
            next.retain(|word| !range.contains(word));
            changed |= next.len() != count;
        }
        if changed {
            self.epoch.store(next_epoch(), Ordering::Relaxed);
        }
    }
}

fn find(after: &HashMap<usize, Vec<usize>>, from: usize, to: usize, path: &mut Vec<usize>) -> bool {
    for next in after.get(&from).into_iter().flatten() {
        if path.contains(next) {
            continue;
        }
        path.push(*next);
        if *next == to || find(after, *next, to, path) {
            return true;
        }
        path.pop();
    }
    false
}

/// Orders that a thread has reported already.
pub(super) mod cache {
    use std::cell::Cell;

    const SLOTS: usize = 64;

    struct Known {
        epoch: Cell<u64>,
        pairs: [Cell<(usize, usize)>; SLOTS],
    }

    thread_local! {
        static KNOWN: Known =
            const { Known { epoch: Cell::new(0), pairs: [const { Cell::new((0, 0)) }; SLOTS] } };
    }

    fn slot(first: usize, second: usize) -> usize {
        (first ^ second.rotate_left(17)).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 58
    }

    pub(in super::super) fn is_known(epoch: u64, first: usize, second: usize) -> bool {
        KNOWN.with(|known| known.epoch.get() == epoch && known.pairs[slot(first, second)].get() == (first, second))
    }

    pub(in super::super) fn set_known(epoch: u64, first: usize, second: usize) {
        KNOWN.with(|known| {
            if known.epoch.replace(epoch) != epoch {
                for pair in &known.pairs {
                    pair.set((0, 0));
                }
            }
            known.pairs[slot(first, second)].set((first, second));
        });
    }
}
