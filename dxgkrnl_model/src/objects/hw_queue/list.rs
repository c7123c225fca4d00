//! The hardware queues of an adapter.

use std::sync::{Arc, Weak};

use super::HwQueue;
use crate::port::alive::make_room;
use crate::port::miniport::Miniport;
use crate::port::sync::{Lock, Rank};

/// Hardware queues of an adapter.
#[derive(Debug)]
struct Queues(Lock<Vec<Weak<HwQueue>>>);

impl Default for Queues {
    fn default() -> Self {
        Self(Lock::new(Rank::Registry, Vec::new()))
    }
}

impl HwQueue {
    /// Live hardware queues of an adapter.
    pub(crate) fn all_of(adapter: &Miniport) -> Vec<Arc<Self>> {
        let Queues(list) = adapter.extension();
        list.lock().iter().filter_map(Weak::upgrade).filter(|queue| queue.is_alive()).collect()
    }

    /// Buffers of kernel-mode queues that the driver has for a node.
    pub(super) fn buffers_on(adapter: &Miniport, node: u32) -> usize {
        Self::all_of(adapter)
            .iter()
            .filter(|queue| queue.context().node() == node)
            .map(|queue| queue.unfinished())
            .sum()
    }

    /// Enters it among those of its adapter.
    pub(super) fn enter(self: &Arc<Self>, adapter: &Miniport) {
        let Queues(list) = adapter.extension();
        let mut queues = list.lock();
        make_room(&mut queues);
        queues.push(Arc::downgrade(self));
    }
}
