//! Power components: one per engine of user-mode queues, where the setting `PowerComponents` says so.
//!
//! An engine that has slept for a while asks the OS for F1 (`DXGK_INTERRUPT_GPU_ENGINE_STATE_CHANGE`). The OS then
//! disconnects every doorbell of its queues, and tells the driver the new state. There is no power to be saved but that
//! of the engine's thread, which sleeps already; what F1 ends is the watch over write pointers of queues that the OS
//! has disconnected, since their pages are rotated by then: the engine looks at each of them once more, on its own
//! thread, and says then that it is in F1 (`DriverCompletesFStateTransition`). So nothing that is rung behind that is
//! found by it. What the last look has found was rung while the doorbell led to the engine, and runs. The engine does
//! not run it before it completes: it may have no end, and the OS waits for the completion. The next connection, or
//! submission, has the OS bring the engine back to F0. The paging node has no component: Dxgkrnl sees all of its work.
//!
//! Source: *User-mode work submission*, engine F-state transitions; `DXGK_POWER_RUNTIME_COMPONENT`;
//! `DxgkDdiSetPowerComponentFState`; `DxgkCbCompleteFStateTransition`, which may be called at `DISPATCH_LEVEL` and so
//! waits for no lock that its caller could keep others from.

use crate::settings::Settings;
use crate::status::{Error, Result};
use core::sync::atomic::{AtomicBool, Ordering};
use gpu_wire::{NODE_COUNT, NODE_PAGING};
use wddm_abi::{
    DXGK_ENGINE_STATE, DXGK_POWER_COMPONENT_MAPPING_EngineDesc, DXGK_POWER_COMPONENT_TYPE,
    DXGK_POWER_RUNTIME_COMPONENT, GUID,
};

/// What an engine says that asks for F1.
pub(crate) const TO_F1: DXGK_ENGINE_STATE = DXGK_ENGINE_STATE::DXGK_ENGINE_STATE_TRANSITION_TO_F1;

/// The components' GUID: {4b4e8e0c-6c5c-4f3a-9e0a-5f6d1c3b7a21}, with the node's index added to its last byte. It is
/// for plug-ins of the power engine, of which there is none.
const COMPONENT: GUID =
    GUID { Data1: 0x4b4e_8e0c, Data2: 0x6c5c, Data3: 0x4f3a, Data4: [0x9e, 0x0a, 0x5f, 0x6d, 0x1c, 0x3b, 0x7a, 0x21] };

/// Time from F1 to F0, in units of 100 ns: a thread is woken.
const LATENCY: u64 = 500;
/// Time in F1 for which going there is worthwhile, in units of 100 ns.
const RESIDENCY: u64 = 100_000;
/// Power in microwatts. A processor that polls, and none; the OS compares them with those of other states only.
const POLLING: u32 = 10_000_000;

/// F-state of an engine.
#[derive(Default)]
struct Engine {
    /// What the OS has told last is F1.
    in_f1: AtomicBool,
    /// It is, and the engine has not said that it is there.
    owed: AtomicBool,
}

/// F-states of the engines.
#[derive(Default)]
pub(crate) struct Power {
    engines: [Engine; NODE_COUNT],
    /// The OS has made a context, and so knows the nodes.
    may_ask: AtomicBool,
}

impl Power {
    /// The OS tells the component with the index `component` its F-state. Returns its node. F1 is owed from then on.
    ///
    /// # Errors
    /// [`Error::InvalidParameter`] when there is no such component or state.
    pub fn set(&self, settings: &Settings, component: u32, state: u32) -> Result<usize> {
        let node = component as usize;
        let engine = self.engines.get(node).filter(|_| component < count(settings) && state <= 1);
        let engine = engine.ok_or(Error::InvalidParameter)?;
        engine.in_f1.store(state == 1, Ordering::Relaxed);
        // Release: the OS has rotated the pages of the engine's doorbells by now, and its last look comes behind that.
        engine.owed.store(state == 1, Ordering::Release);
        Ok(node)
    }

    /// The OS makes a context: engines may ask for F1 from here on.
    pub fn nodes_are_known(&self) {
        self.may_ask.store(true, Ordering::Relaxed);
    }

    /// Returns whether an engine may ask for F1. While the device starts, no interrupt may come: the OS does not know
    /// the nodes yet, and the interrupt routine does not find what is being started, so that it claims nothing.
    pub fn may_ask(&self) -> bool {
        self.may_ask.load(Ordering::Relaxed)
    }

    /// Returns whether the OS has told that the component of `node` is in F1.
    pub fn is_in_f1(&self, node: usize) -> bool {
        self.engines.get(node).is_some_and(|engine| engine.in_f1.load(Ordering::Relaxed))
    }

    /// Returns whether the OS waits for the engine of `node` to say that it is in F1.
    pub fn is_owed(&self, node: usize) -> bool {
        self.engines.get(node).is_some_and(|engine| engine.owed.load(Ordering::Acquire))
    }

    /// The engine's thread: it is about to say that it is in F1, if that is owed.
    pub fn pays(&self, node: usize) -> bool {
        self.engines.get(node).is_some_and(|engine| engine.owed.swap(false, Ordering::AcqRel))
    }
}

/// How many components there are. That of a node has the node's index.
pub fn count(settings: &Settings) -> u32 {
    // The paging node is the last.
    if settings.power_components { NODE_PAGING.0 } else { 0 }
}

/// Describes component `index`. `completes`: the driver says when a transition is over; otherwise it is when the
/// function that tells it returns.
///
/// # Errors
/// [`Error::InvalidParameter`] when there is no such component.
pub fn component(settings: &Settings, index: u32, completes: bool) -> Result<DXGK_POWER_RUNTIME_COMPONENT> {
    if index >= count(settings) {
        return Err(Error::InvalidParameter);
    }
    let mut component = DXGK_POWER_RUNTIME_COMPONENT::zeroed();
    component.StateCount = 2;
    let [on, off, ..] = &mut component.States;
    on.NominalPower = POLLING;
    (off.TransitionLatency, off.ResidencyRequirement) = (LATENCY, RESIDENCY);
    component.ComponentMapping.ComponentType = DXGK_POWER_COMPONENT_TYPE::DXGK_POWER_COMPONENT_ENGINE;
    component.ComponentMapping.set_EngineDesc(DXGK_POWER_COMPONENT_MAPPING_EngineDesc { NodeIndex: index });
    component.Flags.set_DriverCompletesFStateTransition(completes);
    component.ComponentGuid = COMPONENT;
    // CAST: below 3.
    component.ComponentGuid.Data4[7] += index as u8;
    let name = b"Fencepost engine ";
    component.ComponentName[..name.len()].copy_from_slice(name);
    component.ComponentName[name.len()] = b'0' + index as u8;
    Ok(component)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn components_are_the_engines_of_user_mode_queues() {
        let settings = Settings { power_components: true, ..Settings::default() };
        assert_eq!((count(&settings), count(&Settings::default())), (2, 0));
        let [first, second] = [0, 1].map(|index| component(&settings, index, true).unwrap());
        assert_eq!([first, second].map(|it| it.ComponentMapping.EngineDesc().NodeIndex), [0, 1]);
        assert_ne!(first.ComponentGuid.Data4, second.ComponentGuid.Data4);
        assert_eq!(component(&settings, 2, true).err(), Some(Error::InvalidParameter));
        assert_eq!(component(&Settings::default(), 0, true).err(), Some(Error::InvalidParameter));
        let [on, off, ..] = first.States;
        assert_eq!((on.TransitionLatency, on.ResidencyRequirement), (0, 0), "as their page demands of F0");
        assert!(on.NominalPower > off.NominalPower && off.TransitionLatency > 0);
        assert!(first.Flags.DriverCompletesFStateTransition());
        assert!(!component(&settings, 0, false).unwrap().Flags.DriverCompletesFStateTransition());
    }

    #[test]
    fn f1_is_owed_until_the_engine_has_said_so() {
        let (settings, power) = (Settings { power_components: true, ..Settings::default() }, Power::default());
        assert_eq!((power.set(&settings, 1, 1), power.is_owed(1), power.is_owed(0)), (Ok(1), true, false));
        assert!(power.pays(1) && !power.pays(1) && power.is_in_f1(1));
        assert_eq!((power.set(&settings, 1, 0), power.is_owed(1), power.is_in_f1(1)), (Ok(1), false, false));
        // Back in F0 before the engine has said so: F1 is owed no more.
        assert_eq!((power.set(&settings, 1, 1), power.set(&settings, 1, 0), power.pays(1)), (Ok(1), Ok(1), false));
        assert_eq!(power.set(&settings, 2, 1), Err(Error::InvalidParameter));
        assert_eq!(power.set(&settings, 0, 2), Err(Error::InvalidParameter));
    }
}
