//! Runtime power: F-states of components, and an engine's wish to go to F1.
//!
//! Source: article user-mode-work-submission, engine F-state transitions; DDI pages DxgkDdiSetPowerComponentFState,
//! DxgkCbCompleteFStateTransition.
//!
//! Chosen: the straight form. A component is active while the adapter is started, and idle between an engine's wish for
//! F1, or what the OS sees by itself, and the next connection of a doorbell, or submission, on it. The component of an
//! engine is the one that the driver maps to its node. A transition is over when the function returns; of a component
//! whose flags say DriverCompletesFStateTransition, when the driver completes it, inside the function or later: within
//! TdrDdiDelay, since no page has a limit. A doorbell that connects while its engine goes to F1 brings it back at once.
//! Work of the kernel that the engine has, or that comes while its doorbells are disconnected, takes the wish back:
//! nothing is submitted to an engine in F1. So does a user-mode queue whose progress is below its last queued value
//! once the doorbells are gone: what was rung before runs in F0. The article words no exception; of work that it was
//! not told of, the OS knows nothing, and the driver has the engine look once more in F1.

mod sleep;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use wddm_abi::{DXGK_POWER_COMPONENT_TYPE, DXGK_POWER_RUNTIME_COMPONENT};

use crate::port::caps::Caps;
use crate::port::ddi::{self, call_ddi};
use crate::port::miniport::Miniport;
use crate::port::rules::queue::POWER_FSTATE;
use crate::port::sync::{Gate, Lock, Rank, Signal};
use crate::port::worker::Worker;
pub(crate) use sleep::Sleep;

#[derive(Clone, Copy, Debug, Default)]
struct Component {
    /// What it was told last.
    state: u32,
    /// The last state whose transition is over.
    reached: u32,
    /// The driver owes the completion.
    pending: bool,
    references: u32,
    /// The driver completes transitions by the callback.
    completes: bool,
    /// The node that it belongs to.
    node: Option<u32>,
}

impl Component {
    fn of(reported: &DXGK_POWER_RUNTIME_COMPONENT) -> Self {
        let completes = reported.Flags.DriverCompletesFStateTransition();
        Self { completes, node: engine_of(reported), ..Self::default() }
    }
}

/// The node whose engine is the component.
fn engine_of(component: &DXGK_POWER_RUNTIME_COMPONENT) -> Option<u32> {
    let mapping = &component.ComponentMapping;
    let is_engine = mapping.ComponentType == DXGK_POWER_COMPONENT_TYPE::DXGK_POWER_COMPONENT_ENGINE;
    is_engine.then(|| mapping.EngineDesc().NodeIndex)
}

/// F-states that a component may have (`DXGK_MAX_F_STATES`).
const MAX_F_STATES: u32 = 8;

/// What is wrong with the components that a driver reports, for a GPU of `nodes` nodes.
pub(crate) fn wrong_component(components: &[DXGK_POWER_RUNTIME_COMPONENT], nodes: u32) -> Option<String> {
    components.iter().enumerate().find_map(|(index, component)| {
        let states = component.StateCount;
        let on = &component.States[0];
        let engine = engine_of(component);
        let same = components[..index].iter().any(|other| engine.is_some() && engine_of(other) == engine);
        let what = match () {
            () if !(1..=MAX_F_STATES).contains(&states) => format!("has {states} F-states"),
            () if (on.TransitionLatency, on.ResidencyRequirement) != (0, 0) => "needs time for F0".to_owned(),
            () if engine.is_some_and(|node| node >= nodes) => format!("is the engine of node {engine:?}"),
            () if same => format!("is, like another, the engine of node {engine:?}"),
            () => return None,
        };
        Some(format!("component {index} {what}"))
    })
}

/// Power of one adapter.
#[derive(Debug)]
pub(crate) struct Power {
    components: Lock<Vec<Component>>,
    /// One transition at a time.
    serial: Gate,
    changed: Signal,
    transitions: AtomicU32,
    /// The whole device.
    pub(crate) sleep: Sleep,
}

impl Default for Power {
    fn default() -> Self {
        Self::new()
    }
}

impl Power {
    /// That of an adapter.
    pub(crate) fn of(adapter: &Miniport) -> &Self {
        adapter.extension()
    }

    fn new() -> Self {
        Self {
            components: Lock::new(Rank::Leaf, Vec::new()),
            serial: Gate::new(),
            changed: Signal::new(),
            transitions: AtomicU32::new(0),
            sleep: Sleep::new(),
        }
    }

    /// Components begin in F0.
    pub(crate) fn start(&self, caps: &Caps) {
        *self.components.lock() = caps.power_components.iter().map(Component::of).collect();
    }

    /// The adapter stops.
    pub(crate) fn stop(&self) {
        self.components.lock().clear();
        self.sleep.clear();
    }

    /// The F-state of the component of a node, once the transition to it is over.
    pub(crate) fn state_of(&self, node: u32) -> Option<u32> {
        self.with(self.component_of(node)?, |component| component.reached)
    }

    /// The node that each component is the engine of, and the F-state that it was told last.
    pub(crate) fn engines(&self) -> Vec<(Option<u32>, u32)> {
        self.components.lock().iter().map(|component| (component.node, component.state)).collect()
    }

    /// F-state transitions so far.
    pub(crate) fn transitions(&self) -> u32 {
        self.transitions.load(Ordering::Relaxed)
    }

    /// `DxgkCbSetPowerComponentActive`.
    pub(crate) fn component_active(&self, adapter: &Arc<Miniport>, index: u32) {
        let first = self.with(index, |component| {
            component.references += 1;
            component.references == 1 && component.state != 0
        });
        if first == Some(true) {
            self.set(adapter, index, 0, || true);
        }
    }

    /// `DxgkCbSetPowerComponentIdle`: with the last reference it may be put to sleep.
    pub(crate) fn component_idle(&self, adapter: &Arc<Miniport>, index: u32) {
        self.with(index, |component| component.references = component.references.saturating_sub(1));
        Worker::of(adapter).kick(adapter);
    }

    /// Returns whether the driver has said of the component that it is active: it stays in F0.
    ///
    /// Source: DDI pages DXGKCB_SETPOWERCOMPONENTACTIVE, DXGKCB_SETPOWERCOMPONENTIDLE.
    pub(crate) fn is_active(&self, index: u32) -> bool {
        self.with(index, |component| component.references != 0).unwrap_or(false)
    }

    /// `DxgkCbCompleteFStateTransition`.
    pub(crate) fn complete_transition(&self, adapter: &Arc<Miniport>, index: u32) {
        let complete = |component: &mut Component| {
            if component.pending {
                component.reached = component.state;
            }
            std::mem::take(&mut component.pending)
        };
        let owed = self.with(index, complete).unwrap_or(false);
        adapter.rules().check(&POWER_FSTATE, owed, || {
            format!("component {index}: completed without a transition, or without DriverCompletesFStateTransition")
        });
        self.changed.notify(adapter.kernel());
    }

    fn with<R>(&self, index: u32, f: impl FnOnce(&mut Component) -> R) -> Option<R> {
        self.components.lock().get_mut(index as usize).map(f)
    }

    /// Tells the driver the F-state of a component and waits until it is reached; not where `wanted` says that it is
    /// not to be, once no other transition is under way.
    ///
    /// IRQL: PASSIVE_LEVEL.
    pub(crate) fn set(&self, adapter: &Arc<Miniport>, index: u32, state: u32, wanted: impl FnOnce() -> bool) {
        let _serial = self.serial.exclusive(adapter.kernel());
        if !wanted() {
            return;
        }
        let changes = self.with(index, |component| {
            let changes = component.state != state;
            component.state = state;
            component.pending = changes && component.completes;
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
        let deadline = adapter.kernel().now() + adapter.personality().tdr.ddi_delay;
        let done = self.changed.wait_for(adapter.kernel(), Some(deadline), || {
            let pending = self.with(index, |component| component.pending).unwrap_or(false);
            (!pending || !adapter.is_working()).then_some(())
        });
        self.with(index, |component| {
            if !component.pending {
                component.reached = component.state;
            }
        });
        adapter.rules().check(&POWER_FSTATE, done.is_some(), || {
            format!("component {index} to F{state}: never completed by DxgkCbCompleteFStateTransition")
        });
    }

    /// The component of a node.
    pub(crate) fn component_of(&self, node: u32) -> Option<u32> {
        let at = self.components.lock().iter().position(|component| component.node == Some(node))?;
        // CAST: as many as there are components.
        Some(at as u32)
    }

    /// Work comes to a node, which the scheduler knows of already, or a doorbell of it is connected. Behind this the
    /// engine is in F0.
    ///
    /// IRQL: PASSIVE_LEVEL.
    pub(crate) fn wake_node(&self, adapter: &Arc<Miniport>, node: u32) {
        if let Some(index) = self.component_of(node) {
            self.set(adapter, index, 0, || true);
        }
    }
}
