//! The OS asks a started driver again and again what it measures, whatever else the driver does: while engines hang and
//! are reset, while processes end, and until the adapter stops.
//!
//! Source: not documented; an author of a driver saw NODEPERFDATA and ADAPTERPERFDATA asked about once a second for
//! each node, for as long as the adapter was up. A device that has no power is not asked: whether Windows asks it is
//! not known.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use nt_model::Thread;
use wddm_abi::{DXGK_ADAPTER_PERFDATA, DXGK_NODE_PERFDATA, DXGK_QUERYADAPTERINFOTYPE};

use crate::port::miniport::Miniport;
use crate::port::power::Power;
use crate::port::sync::{Lock, Rank, Signal};

/// The thread that asks.
#[derive(Debug)]
pub(super) struct Polls {
    stopping: AtomicBool,
    changed: Signal,
    thread: Lock<Option<Arc<Thread>>>,
}

impl Default for Polls {
    fn default() -> Self {
        Self { stopping: AtomicBool::new(false), changed: Signal::new(), thread: Lock::new(Rank::Leaf, None) }
    }
}

impl Polls {
    pub(super) fn of(adapter: &Miniport) -> &Self {
        adapter.extension()
    }

    /// Begins to ask, where the personality does.
    ///
    /// IRQL: PASSIVE_LEVEL.
    pub(super) fn start(&self, adapter: &Arc<Miniport>) {
        if adapter.personality().polls.is_none() {
            return;
        }
        self.stopping.store(false, Ordering::Release);
        let weak = Arc::downgrade(adapter);
        let thread = adapter.kernel().spawn_system_thread("performance polls", move || poll(&weak));
        *self.thread.lock() = Some(thread);
    }

    /// Ends that. A question that is under way is waited for.
    ///
    /// IRQL: PASSIVE_LEVEL.
    pub(super) fn stop(&self, adapter: &Miniport) {
        self.stopping.store(true, Ordering::Release);
        self.changed.notify(adapter.kernel());
        let thread = self.thread.lock().take();
        if let Some(thread) = thread {
            adapter.kernel().wait_for_object(thread.header(), None);
        }
    }
}

fn poll(weak: &Weak<Miniport>) {
    loop {
        let Some(adapter) = weak.upgrade() else { return };
        let (polls, kernel) = (Polls::of(&adapter), adapter.kernel());
        let Some(every) = adapter.personality().polls else { return };
        let stops = || polls.stopping.load(Ordering::Acquire).then_some(());
        let stopped = polls.changed.wait_for(kernel, Some(kernel.now() + every), stops);
        if stopped.is_some() || kernel.rules.is_stopped() {
            return;
        }
        if let Some(_powered) = Power::of(&adapter).sleep.watch(kernel) {
            ask(&adapter);
        }
    }
}

/// One question for each node, and one for the adapter. What comes back is for monitors, so that a refusal is no fault.
fn ask(adapter: &Miniport) {
    let Some(caps) = adapter.caps() else { return };
    for node in &caps.nodes {
        let input = [node.place.node.to_le_bytes(), node.place.engine.to_le_bytes()].concat();
        let kind = DXGK_QUERYADAPTERINFOTYPE::DXGKQAITYPE_NODEPERFDATA;
        let _answer = adapter.query_record::<DXGK_NODE_PERFDATA>(kind, &input);
    }
    let kind = DXGK_QUERYADAPTERINFOTYPE::DXGKQAITYPE_ADAPTERPERFDATA;
    let _answer = adapter.query_record::<DXGK_ADAPTER_PERFDATA>(kind, &[]);
}
