//! `DxgkDdiCalibrateGpuClock`: the GPU's clock beside the CPU's, so that timestamps of the GPU can be put on one axis.
//!
//! Windows asks at least every 30 ms while it traces. The model asks when an adapter has started and when a report is
//! taken, which is enough to place what happened in between.

use std::sync::Arc;

use wddm_abi::{DXGKARG_CALIBRATEGPUCLOCK, ntstatus};

use crate::port::counters::Calibration;
use crate::port::ddi::{self, call_ddi};
use crate::port::miniport::Miniport;
use crate::port::place::Place;
use crate::port::rules::start::{CLOCK_ANSWER, CLOCK_FORWARD, CLOCK_PAIR, CLOCK_STATUS};

/// Asks every node of a started adapter.
///
/// IRQL: at most DISPATCH_LEVEL.
pub(crate) fn calibrate(adapter: &Arc<Miniport>) {
    if adapter.table().DxgkDdiCalibrateGpuClock.is_none() {
        return;
    }
    let Some(caps) = adapter.caps() else { return };
    for (node, info) in (0..).zip(&caps.nodes) {
        if let Some(calibration) = ask(adapter, node, info.place) {
            adapter.shared().counters.add_calibration(calibration);
        }
    }
}

/// Asks one node of a started adapter, for the report of nothing. `None`: it has no clock, or none now.
///
/// IRQL: at most DISPATCH_LEVEL.
pub(crate) fn of_node(adapter: &Arc<Miniport>, node: u32) -> Option<Calibration> {
    adapter.table().DxgkDdiCalibrateGpuClock?;
    let place = adapter.caps()?.node(node)?.place;
    ask(adapter, node, place)
}

fn ask(adapter: &Arc<Miniport>, node: u32, at: Place) -> Option<Calibration> {
    let kernel = adapter.kernel();
    let mut arguments = DXGKARG_CALIBRATEGPUCLOCK::zeroed();
    let (miniport, pointer) = (adapter.context(), &raw mut arguments);
    let counters = &adapter.shared().counters;
    // Looked up before the call: another thread may calibrate during it.
    let last = counters.last_calibration(adapter.luid_number(), node);
    let before = kernel.query_performance_counter();
    let status = ddi::status(call_ddi!(adapter, DxgkDdiCalibrateGpuClock(miniport, at.node, at.engine, pointer)));
    let after = kernel.query_performance_counter();
    if status == ntstatus::STATUS_SYSTEM_SHUTDOWN {
        return None;
    }
    // Copies: the record is packed.
    let (gpu, cpu, frequency) = (arguments.GpuClockCounter, arguments.CpuClockCounter, arguments.GpuFrequency);
    let valid = status.is_success() && frequency != 0;
    let has_logs = adapter.caps().is_some_and(|caps| caps.has_native_fences());
    let rule = if has_logs { &CLOCK_STATUS } else { &CLOCK_ANSWER };
    adapter.rules().check(rule, valid, || format!("node {node}: {status:?}, {frequency} ticks per second"));
    if !valid {
        return None;
    }
    adapter.rules().check(&CLOCK_PAIR, (before..=after).contains(&cpu), || {
        format!("node {node}: CpuClockCounter is {cpu}, and the call lasted from {before} to {after}")
    });
    let forward = last.is_none_or(|last| gpu >= last.gpu && frequency == last.frequency);
    adapter.rules().check(&CLOCK_FORWARD, forward, || format!("node {node}: {gpu} after {last:?}"));
    Some(Calibration { adapter: adapter.luid_number(), node, frequency, gpu, cpu })
}
