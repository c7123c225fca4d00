//! Addresses that a process had and has no more.
//!
//! Every process of a machine has its memory among the host addresses of one program, where the next mapping goes to
//! where the last one was. A process that stores to an address that it has given up must fault, and not reach another
//! one's memory: so what it leaves stays inaccessible, and its own, until it ends or has left much more.

use std::collections::VecDeque;

use parking_lot::Mutex;

use crate::memory::host;

/// Ranges that a process keeps at most: the system counts each.
const MOST: usize = 1024;

/// First address and bytes of each range, the oldest first.
#[derive(Default)]
pub(super) struct Left(Mutex<VecDeque<(usize, usize)>>);

impl Left {
    /// Takes a range of the process's that is mapped in place of giving it back to the system.
    pub(super) fn keep(&self, start: usize, bytes: usize) {
        if host::clear(start, bytes).is_err() {
            host::unmap(start, bytes);
            return;
        }
        let oldest = {
            let mut kept = self.0.lock();
            kept.push_back((start, bytes));
            if kept.len() > MOST { kept.pop_front() } else { None }
        };
        if let Some((start, bytes)) = oldest {
            host::unmap(start, bytes);
        }
    }

    /// Gives up a range that is kept, so that the process maps something there. Returns whether it was: then it is
    /// still reserved.
    pub(super) fn take(&self, start: usize, bytes: usize) -> bool {
        let mut kept = self.0.lock();
        let at = kept.iter().position(|range| *range == (start, bytes));
        at.and_then(|at| kept.remove(at)).is_some()
    }

    /// Gives everything back to the system.
    pub(super) fn give_back(&self) {
        for (start, bytes) in std::mem::take(&mut *self.0.lock()) {
            host::unmap(start, bytes);
        }
    }
}

impl Drop for Left {
    fn drop(&mut self) {
        self.give_back();
    }
}
