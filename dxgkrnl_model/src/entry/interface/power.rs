//! Callbacks of runtime power management: components, F-states.

use std::sync::Arc;

use nt_model::{In, shims};
use wddm_abi::{NTSTATUS, ntstatus};

use crate::port::callback::{callback, routines};
use crate::port::handle::raw;
use crate::port::miniport::Miniport;
use crate::port::power::Power;
use crate::port::rules::interface::CB_OBJECT;

routines! {
    ACTIVE = "DxgkCbSetPowerComponentActive"("hAdapter", "ComponentIndex") 0..=0;
    IDLE = "DxgkCbSetPowerComponentIdle"("hAdapter", "ComponentIndex") 0..=2;
    LATENCY = "DxgkCbSetPowerComponentLatency"("hAdapter", "ComponentIndex", "Latency") 0..=2;
    RESIDENCY = "DxgkCbSetPowerComponentResidency"("hAdapter", "ComponentIndex", "Residency") 0..=2;
    COMPLETE_F = "DxgkCbCompleteFStateTransition"("hAdapter", "ComponentIndex") 0..=2;
    CONTROL = "DxgkCbPowerRuntimeControlRequest"("hAdapter", "PowerControlCode") 0..=2;
}

/// Whether the adapter has the component.
fn component(adapter: &Miniport, index: u32, what: &str) -> bool {
    let count = adapter.known_caps().power_components.len();
    adapter.rules().check(&CB_OBJECT, (index as usize) < count, || format!("{what}: component {index} of {count}"))
}

shims! {
    /// Power callbacks.
    pub(crate) table CALLBACKS;

    fn DxgkCbSetPowerComponentActive(_machine, adapter: usize, index: u32) {
        let _ = callback(raw(adapter as u64), &ACTIVE, [adapter as u64, index.into()], |adapter: &Arc<Miniport>| {
            if component(adapter, index, ACTIVE.name) {
                Power::of(adapter).component_active(adapter, index);
            }
        });
    }

    fn DxgkCbSetPowerComponentIdle(_machine, adapter: usize, index: u32) {
        let _ = callback(raw(adapter as u64), &IDLE, [adapter as u64, index.into()], |adapter: &Arc<Miniport>| {
            if component(adapter, index, IDLE.name) {
                Power::of(adapter).component_idle(adapter, index);
            }
        });
    }

    fn DxgkCbSetPowerComponentLatency(_machine, adapter: usize, index: u32, latency: u64) {
        let _ = callback(raw(adapter as u64), &LATENCY, [adapter as u64, index.into(), latency], |adapter| {
            component(adapter, index, LATENCY.name)
        });
    }

    fn DxgkCbSetPowerComponentResidency(_machine, adapter: usize, index: u32, residency: u64) {
        let _ = callback(raw(adapter as u64), &RESIDENCY, [adapter as u64, index.into(), residency], |adapter| {
            component(adapter, index, RESIDENCY.name)
        });
    }

    fn DxgkCbCompleteFStateTransition(_machine, adapter: usize, index: u32) {
        let _ = callback(raw(adapter as u64), &COMPLETE_F, [adapter as u64, index.into()], |adapter: &Arc<Miniport>| {
            if component(adapter, index, COMPLETE_F.name) {
                Power::of(adapter).complete_transition(adapter, index);
            }
        });
    }

    fn DxgkCbPowerRuntimeControlRequest(
        _machine,
        adapter: usize,
        code: In<[u8; 16]>,
        _input: usize,
        _input_size: usize,
        _output: usize,
        _output_size: usize,
        _returned: usize,
    ) -> NTSTATUS {
        // The codes are private to a power engine plug-in, of which there is none.
        let arguments = [adapter as u64, code.address() as u64];
        let status = callback(raw(adapter as u64), &CONTROL, arguments, |_| ntstatus::STATUS_NOT_IMPLEMENTED);
        status.unwrap_or_else(|status| status)
    }
}
