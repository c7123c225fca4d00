//! Runtime power: F-states of components, and an engine's wish to go to F1.
//!
//! Source: article user-mode-work-submission, engine F-state transitions; DDI pages DxgkDdiSetPowerComponentFState,
//! DxgkCbCompleteFStateTransition.
//!
//! Chosen: the straight form. A component is active while the adapter is started, and idle between an engine's wish for
//! F1 and the next connection of a doorbell on it. The component of an engine is the one whose index is the node's,
//! where the driver has that many. A transition is over when the driver completes it, inside the function or later.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use wddm_abi::{D3DDDI_DOORBELLSTATUS, DXGK_ENGINE_STATE};

use crate::adapter::Adapter;
use crate::adapter::caps::Caps;
use crate::ddi::{self, call_ddi};
use crate::rules::queue::{POWER_FSTATE, POWER_STATE};
use crate::sync::{Lock, Rank, Signal};

#[derive(Clone, Copy, Debug, Default)]
struct Component {
    /// What it was told last.
    state: u32,
    /// The driver owes the completion.
    pending: bool,
    references: u32,
}

/// Power of one adapter.
#[derive(Debug)]
pub(crate) struct Power {
    components: Lock<Vec<Component>>,
    changed: Signal,
    transitions: AtomicU32,
}

/// `D0` of `DEVICE_POWER_STATE`.
const D0: i32 = 1;
/// `D3`.
const D3: i32 = 4;
/// `DeviceUid` of the adapter itself.
const WHOLE_ADAPTER: u32 = 0xFFFF_FFFF;

impl Power {
    pub(crate) fn new() -> Self {
        Self { components: Lock::new(Rank::Log, Vec::new()), changed: Signal::new(), transitions: AtomicU32::new(0) }
    }

    /// Components begin in F0.
    pub(crate) fn start(&self, _adapter: &Arc<Adapter>, caps: &Arc<Caps>) {
        *self.components.lock() = vec![Component::default(); caps.power_components.len()];
    }

    /// The adapter stops.
    pub(crate) fn stop(&self, _adapter: &Arc<Adapter>) {
        self.components.lock().clear();
    }

    /// F-state transitions so far.
    pub(crate) fn transitions(&self) -> u32 {
        self.transitions.load(Ordering::Relaxed)
    }

    /// `DxgkCbSetPowerComponentActive`.
    pub(crate) fn component_active(&self, adapter: &Arc<Adapter>, index: u32) {
        let first = self.with(index, |component| {
            component.references += 1;
            component.references == 1 && component.state != 0
        });
        if first == Some(true) {
            self.set(adapter, index, 0);
        }
    }

    /// `DxgkCbSetPowerComponentIdle`: it may be put to sleep.
    pub(crate) fn component_idle(&self, _adapter: &Arc<Adapter>, index: u32) {
        self.with(index, |component| component.references = component.references.saturating_sub(1));
    }

    /// `DxgkCbCompleteFStateTransition`.
    pub(crate) fn complete_transition(&self, adapter: &Arc<Adapter>, index: u32) {
        let owed = self.with(index, |component| std::mem::take(&mut component.pending)).unwrap_or(false);
        adapter.rules().check(&POWER_FSTATE, owed, || format!("component {index}: completed without a transition"));
        self.changed.notify(adapter.kernel());
    }

    fn with<R>(&self, index: u32, f: impl FnOnce(&mut Component) -> R) -> Option<R> {
        self.components.lock().get_mut(index as usize).map(f)
    }

    /// Tells the driver the F-state of a component and waits until it is reached.
    ///
    /// IRQL: PASSIVE_LEVEL.
    fn set(&self, adapter: &Arc<Adapter>, index: u32, state: u32) {
        let changes = self.with(index, |component| {
            let changes = component.state != state;
            component.state = state;
            component.pending = changes;
            changes
        });
        if changes != Some(true) {
            return;
        }
        self.transitions.fetch_add(1, Ordering::Relaxed);
        let context = adapter.context();
        let status = ddi::status(call_ddi!(adapter, DxgkDdiSetPowerComponentFState(context, index, state)));
        let fine = ddi::succeeded(status);
        let held = adapter.rules().check(&POWER_FSTATE, fine, || format!("component {index} to F{state}: {status:?}"));
        if !held {
            return;
        }
        let deadline = adapter.kernel().now() + adapter.personality().tdr.delay;
        let done = self.changed.wait_for(adapter.kernel(), Some(deadline), || {
            let pending = self.with(index, |component| component.pending).unwrap_or(false);
            (!pending || !adapter.is_working()).then_some(())
        });
        adapter.rules().check(&POWER_FSTATE, done.is_some(), || {
            format!("component {index} to F{state}: never completed by DxgkCbCompleteFStateTransition")
        });
    }

    /// The component of a node.
    fn component_of(adapter: &Adapter, node: u32) -> Option<u32> {
        (adapter.known_caps().power_components.len() as u64 > u64::from(node)).then_some(node)
    }

    /// An engine said how it is.
    ///
    /// IRQL: DISPATCH_LEVEL.
    pub(crate) fn engine_state(&self, adapter: &Arc<Adapter>, node: usize, state: DXGK_ENGINE_STATE) {
        if state != DXGK_ENGINE_STATE::DXGK_ENGINE_STATE_TRANSITION_TO_F1 {
            return;
        }
        // CAST: a node's number.
        let node = node as u32;
        adapter.scheduler.defer(
            adapter,
            Box::new(move |adapter| {
                for queue in adapter.scheduler.queues() {
                    if queue.context().node() == node
                        && let Some(doorbell) = queue.doorbell()
                    {
                        doorbell.disconnect(D3DDDI_DOORBELLSTATUS::D3DDDI_DOORBELLSTATUS_DISCONNECTED_RETRY);
                    }
                }
                if let Some(index) = Self::component_of(adapter, node) {
                    adapter.power.set(adapter, index, 1);
                }
            }),
        );
    }

    /// Work comes to a node.
    ///
    /// IRQL: PASSIVE_LEVEL.
    pub(crate) fn wake_node(&self, adapter: &Arc<Adapter>, node: u32) {
        if let Some(index) = Self::component_of(adapter, node)
            && self.with(index, |component| component.state != 0) == Some(true)
        {
            self.set(adapter, index, 0);
        }
    }

    /// Tells the driver the device's power state.
    ///
    /// IRQL: PASSIVE_LEVEL.
    pub(crate) fn set_device_state(adapter: &Adapter, on: bool) {
        let context = adapter.context();
        let state = wddm_abi::DEVICE_POWER_STATE(if on { D0 } else { D3 });
        let action = wddm_abi::POWER_ACTION(0);
        let dead = adapter.personality().dead_in_d3;
        if on && dead {
            adapter.device.set_asleep(false);
        }
        let status = ddi::status(call_ddi!(adapter, DxgkDdiSetPowerState(context, WHOLE_ADAPTER, state, action)));
        let fine = ddi::succeeded(status);
        adapter.rules().check(&POWER_STATE, fine, || format!("D{}: {status:?}", if on { 0 } else { 3 }));
        if !on && dead {
            adapter.device.set_asleep(true);
            crate::interrupt::probe_foreign_interrupt(adapter);
        }
    }
}
