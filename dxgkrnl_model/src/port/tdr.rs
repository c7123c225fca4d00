//! TDR of an adapter, as far as everything below the recovery has to know of it: whether timeouts are looked for, which
//! engines are under reset, and how often that was.

mod device_state;
pub(crate) mod question;
pub(crate) mod steps;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use nt_model::sched::Ticks;

use crate::port::miniport::Miniport;
use crate::port::sync::{Lock, Rank};
pub(crate) use device_state::DeviceState;
use steps::Reason;

/// A node under reset.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct NodeState {
    /// The reset has begun and the engine is not resumed.
    pub(crate) resetting: bool,
    /// `DxgkDdiResetHwEngine` has returned and `DxgkDdiResumeHwEngine` has not been called.
    pub(crate) quiet: bool,
}

/// What the watch of one queue saw.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct QueueWatch {
    pub(crate) progress: u64,
    /// Since when the progress has been that with more queued.
    pub(crate) since: Option<Ticks>,
    /// How many looks in a row have found that the queue's buffers do not run.
    pub(crate) stalled: u32,
}

/// What is known of the timeouts of an adapter, and of its resets.
#[derive(Debug)]
pub(crate) struct Tdr {
    enabled: AtomicBool,
    /// However many resets there are, the system goes on.
    unlimited: AtomicBool,
    nodes: Lock<Vec<NodeState>>,
    /// How often each node's interrupts began to count again behind a reset of its engine or of the adapter.
    over: Lock<Vec<u64>>,
    /// How often all did behind a reset of the adapter.
    pub(crate) adapter_over: AtomicU64,
    /// A paging buffer did not end while nothing looked for timeouts: no other one is waited for then.
    pub(crate) paging_lost: AtomicBool,
    /// Engine resets so far.
    pub(crate) engine_resets: AtomicU64,
    /// Adapter resets so far.
    pub(crate) adapter_resets: AtomicU64,
    /// Contexts that were probed and acknowledged.
    pub(crate) innocent_probes: AtomicU64,
}

impl Default for Tdr {
    fn default() -> Self {
        Self {
            enabled: AtomicBool::new(true),
            unlimited: AtomicBool::new(false),
            nodes: Lock::new(Rank::Leaf, Vec::new()),
            over: Lock::new(Rank::Leaf, Vec::new()),
            adapter_over: AtomicU64::new(0),
            paging_lost: AtomicBool::new(false),
            engine_resets: AtomicU64::new(0),
            adapter_resets: AtomicU64::new(0),
            innocent_probes: AtomicU64::new(0),
        }
    }
}

impl Tdr {
    /// That of an adapter.
    pub(crate) fn of(adapter: &Miniport) -> &Self {
        adapter.extension()
    }

    /// Begins to watch for an adapter that starts.
    pub(crate) fn begin(&self) {
        self.nodes.lock().clear();
        self.paging_lost.store(false, Ordering::Release);
        self.enabled.store(true, Ordering::Release);
    }

    /// Returns whether the safety conditions are disabled.
    pub(crate) fn is_unlimited(&self) -> bool {
        self.unlimited.load(Ordering::Acquire)
    }

    /// Ends the watch: the adapter stops.
    pub(crate) fn end(&self) {
        self.enabled.store(false, Ordering::Release);
    }

    /// Disables the safety conditions, the check for consecutive recoveries among them.
    pub(crate) fn ignore_limits(&self) {
        self.unlimited.store(true, Ordering::Release);
    }

    /// Whether an engine without progress is looked for: the adapter is started, and its stop has not begun.
    pub(crate) fn watches(&self, adapter: &Miniport) -> bool {
        adapter.personality().tdr.enabled && self.enabled.load(Ordering::Acquire) && adapter.is_working()
    }

    /// A reset of the node has begun and is not over.
    pub(crate) fn is_resetting(&self, node: u32) -> bool {
        self.nodes.lock().get(node as usize).is_some_and(|node| node.resetting)
    }

    /// How many resets that are as good as the one wanted have come to the point from which on interrupts count again:
    /// of the node or of the adapter, or of the adapter alone.
    pub(crate) fn resets_for(&self, node: u32, reason: Reason) -> u64 {
        if reason == Reason::AdapterFault {
            return self.adapter_over.load(Ordering::Acquire);
        }
        self.over.lock().get(node as usize).copied().unwrap_or(0)
    }

    /// The node's interrupts count again behind a reset: notices from before are of what that has ended.
    pub(crate) fn note_reset(&self, node: usize) {
        let mut over = self.over.lock();
        if over.len() <= node {
            over.resize(node + 1, 0);
        }
        if let Some(count) = over.get_mut(node) {
            *count += 1;
        }
    }

    /// The node is between its reset and its resumption.
    pub(crate) fn is_quiet(&self, node: u32) -> bool {
        self.nodes.lock().get(node as usize).is_some_and(|node| node.quiet)
    }

    /// The state of a node changes.
    pub(crate) fn set_node(&self, node: u32, state: NodeState) {
        let mut nodes = self.nodes.lock();
        if nodes.len() <= node as usize {
            nodes.resize(node as usize + 1, NodeState::default());
        }
        if let Some(slot) = nodes.get_mut(node as usize) {
            *slot = state;
        }
    }
}
