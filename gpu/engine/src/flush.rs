//! Requests to drop cached translations, which every engine serves between packets and between steps of operations.

use crate::NoMemory;
use crate::host::{Host, Lock};
use alloc::vec::Vec;

/// A request to drop translations.
#[derive(Clone, Copy)]
struct Flush {
    number: u64,
    process: u64,
    start: u64,
    end: u64,
}

/// Flushes that some engine has not served yet.
pub struct FlushBoard<H: Host> {
    pending: H::Lock<(u64, Vec<Flush>)>,
}

/// Flushes the board holds; more make every engine drop everything.
const BOARD: usize = 64;
/// Flushes that an engine serves between two looks: each is a search through what it has mapped.
const AT_ONCE: usize = 1;

impl<H: Host> FlushBoard<H> {
    pub(crate) fn new() -> Result<Self, NoMemory> {
        let mut list = Vec::new();
        list.try_reserve_exact(BOARD)?;
        Ok(Self { pending: H::Lock::new((0, list)) })
    }

    pub(crate) fn post(&self, process: u64, start: u64, end: u64) -> u64 {
        self.pending.with(|(last, list)| {
            *last += 1;
            if list.len() == BOARD {
                // The oldest goes; an engine that has not served it sees a gap and drops everything.
                list.remove(0);
            }
            list.push(Flush { number: *last, process, start, end });
            *last
        })
    }

    /// Serves the next flushes after `seen`, [`AT_ONCE`] at most: `range` for each, or `all` when some are lost.
    /// Returns the number of the last one that is served, and whether more are left.
    pub(crate) fn serve(&self, seen: u64, mut range: impl FnMut(u64, u64, u64), all: impl FnOnce()) -> (u64, bool) {
        let mut next = [None; AT_ONCE];
        let (last, lost, more) = self.pending.with(|(last, list)| {
            let lost = list.first().is_some_and(|f| f.number > seen + 1) && *last > seen;
            let mut left = list.iter().filter(|f| f.number > seen);
            for place in &mut next {
                *place = left.next().copied();
            }
            (*last, lost, left.next().is_some())
        });
        if lost {
            all();
            return (last, false);
        }
        let mut served = seen;
        for flush in next.into_iter().flatten() {
            range(flush.process, flush.start, flush.end);
            served = flush.number;
        }
        (served, more)
    }
}
