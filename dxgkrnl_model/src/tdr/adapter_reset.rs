//! Adapter reset: every thread leaves the driver, `DxgkDdiResetFromTimeout`, `DxgkDdiRestartFromTimeout`; every device
//! is lost.
//!
//! Source: article timeout-detection-and-recovery; tdr-registry-keys (TdrDdiDelay, TdrLimitCount, TdrLimitTime).
//!
//! Chosen: the content of memory survives (segments lie in system memory in every driver that this model has met), so
//! that the paging process needs no new tables; the buffers that were with the driver are lost, paging ones too, and
//! a wait for one ends with an error.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use nt_model::Details;
use wddm_abi::NTSTATUS;

use super::collect;
use crate::adapter::Adapter;
use crate::ddi::{self, call_ddi};
use crate::device::DeviceState;
use crate::rules::tdr::{TDR_ADAPTER, TDR_DDI_DELAY, TDR_LIMIT};

/// Resets the adapter.
///
/// IRQL: PASSIVE_LEVEL; not inside the driver.
pub(super) fn run(adapter: &Arc<Adapter>) {
    let settings = adapter.personality().tdr;
    adapter.tdr.adapter_resets.fetch_add(1, Ordering::Relaxed);
    adapter.shared().counters.tdr();
    adapter.note_event("TDR: adapter reset".to_owned());
    count(adapter);
    collect::whole(adapter);
    for node in adapter.scheduler.nodes() {
        node.packet.freeze();
    }
    let alone = adapter.quiesce(settings.ddi_delay);
    adapter.rules().check(&TDR_DDI_DELAY, alone.is_some(), || {
        format!("{} threads are inside the driver", adapter.threads_inside())
    });
    let miniport = adapter.context();
    let reset = ddi::status(call_ddi!(adapter, DxgkDdiResetFromTimeout(miniport)));
    judge(adapter, "DxgkDdiResetFromTimeout", reset);
    adapter.kernel().flush_queued_dpcs();
    for node in adapter.scheduler.nodes() {
        crate::interrupt::forget_node(adapter, node.ordinal as usize);
    }
    adapter.scheduling_logs.forgive(None);
    let restarted = ddi::status(call_ddi!(adapter, DxgkDdiRestartFromTimeout(miniport)));
    judge(adapter, "DxgkDdiRestartFromTimeout", restarted);
    drop(alone);
    let devices = adapter.devices();
    for device in &devices {
        device.mark_failed(DeviceState::Reset);
    }
    for context in adapter.hw_contexts() {
        context.invalidate();
    }
    for node in adapter.scheduler.nodes() {
        let (lost, _) = node.packet.thaw(None);
        for packet in lost {
            packet.end(adapter.kernel(), false);
        }
        node.packet.changed.notify(adapter.kernel());
    }
    for device in devices {
        device.fail_marked();
    }
    adapter.scheduler.kick(adapter);
}

/// More resets than TdrLimitCount within TdrLimitTime are a bug check.
fn count(adapter: &Adapter) {
    let settings = adapter.personality().tdr;
    let now = adapter.kernel().now();
    let recent = {
        let mut resets = adapter.tdr.resets.lock();
        resets.retain(|at| at + settings.limit_time > now);
        resets.push(now);
        resets.len()
    };
    if recent <= settings.limit_count as usize {
        adapter.rules().count(&TDR_LIMIT);
    } else {
        // Windows stops here, too: an adapter that is reset for ever would keep everybody waiting for ever.
        let details = Details::new(format!("{recent} resets")).params([recent as u64, 0, 0]);
        adapter.rules().broken_fatally(&TDR_LIMIT, details);
    }
}

fn judge(adapter: &Adapter, ddi: &str, status: NTSTATUS) {
    let fine = ddi::succeeded(status);
    adapter.rules().check(&TDR_ADAPTER, fine, || format!("{ddi}: {status:?}"));
}
