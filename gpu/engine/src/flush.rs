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

    /// Serves every flush after `seen`: `range` for each, or `all` when some are lost. The last number.
    pub(crate) fn serve(&self, seen: u64, mut range: impl FnMut(u64, u64, u64), all: impl FnOnce()) -> u64 {
        let mut copy = [Flush { number: 0, process: 0, start: 0, end: 0 }; 8];
        let (last, n, lost) = self.pending.with(|(last, list)| {
            let mut n = 0;
            let mut lost = list.first().is_some_and(|f| f.number > seen + 1) && *last > seen;
            for flush in list.iter().filter(|f| f.number > seen) {
                match copy.get_mut(n) {
                    Some(slot) => *slot = *flush,
                    None => lost = true,
                }
                n += 1;
            }
            (*last, n.min(8), lost)
        });
        if lost {
            all();
        } else {
            for flush in &copy[..n] {
                range(flush.process, flush.start, flush.end);
            }
        }
        last
    }
}
