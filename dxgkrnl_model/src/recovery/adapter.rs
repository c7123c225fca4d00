//! Adapter reset: every thread leaves the driver, `DxgkDdiResetFromTimeout`, `DxgkDdiRestartFromTimeout`; every device
//! is lost, and the system device goes on.
//!
//! Source: articles timeout-detection-and-recovery, thread-synchronization-and-tdr, tdr-changes-in-windows-8;
//! tdr-registry-keys (TdrDdiDelay, TdrLimitCount, TdrLimitTime).
//!
//! Chosen: paging buffers that were with the driver are submitted again, under new ids, since the reset has moved the
//! last completed ids on to those that were submitted last; the article says of the system device that it resumes.

mod still;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use nt_model::Details;
use wddm_abi::{NTSTATUS, ntstatus};

use super::journal::Record;
use super::steps::{Reason, Step, What};
use super::{collect, packet};
use crate::adapter::Adapter;
use crate::ddi::{self, call_ddi};
use crate::device::DeviceState;
use crate::memory::lost::{self, Loss};
use crate::personality::Departure;
use crate::rules::tdr::{TDR_ADAPTER, TDR_DDI_DELAY, TDR_LIMIT};
use crate::sync::Admission;
use crate::vidsch::dpc::{give_back, hear};
use crate::vidsch::packet::Packet;

/// Resets the adapter.
///
/// IRQL: PASSIVE_LEVEL; not inside the driver.
pub(crate) fn run(adapter: &Arc<Adapter>, reason: Reason) {
    let recovers = adapter.tdr.alone(adapter);
    reset(adapter, reason, recovers);
}

/// How many resets of the adapter are over. In the recovery of an engine, none ends meanwhile.
pub(super) fn so_far(adapter: &Adapter) -> u64 {
    adapter.tdr.adapter_over.load(Ordering::Acquire)
}

/// Resets the adapter since the reset of an engine did not do, which had the recovery alone when so many resets of the
/// adapter were over.
///
/// IRQL: PASSIVE_LEVEL; not inside the driver.
pub(super) fn run_promoted(adapter: &Arc<Adapter>, known: u64) {
    super::pass(adapter, adapter.personality().gates.promotion.as_ref());
    let recovers = adapter.tdr.alone(adapter);
    if so_far(adapter) != known {
        // The engine that could not be reset was reset with the adapter meanwhile, for another's sake.
        return;
    }
    let names_none = adapter.personality().departs(Departure::NamesNoPromotion);
    reset(adapter, if names_none { Reason::NoEngineReset } else { Reason::Promoted }, recovers);
}

fn reset(adapter: &Arc<Adapter>, reason: Reason, recovers: Admission<'_>) {
    let settings = adapter.personality().tdr;
    let record = Record::begin(adapter, What::Adapter, reason);
    adapter.tdr.adapter_resets.fetch_add(1, Ordering::Relaxed);
    adapter.shared().counters.tdr();
    count(adapter);
    collect::whole(adapter, reason);
    record.step(Step::DebugInfo(collect::ADAPTER_TIMEOUT));
    for node in adapter.scheduler.nodes() {
        packet::freeze(adapter, &node, true);
    }
    let Some(alone) = adapter.quiesce(settings.ddi_delay) else {
        if !adapter.rules().is_stopped() {
            // Windows stops here, too.
            let inside = u64::from(adapter.threads_inside());
            let text = format!("{inside} threads are inside the driver");
            let details = details(adapter, text, ntstatus::STATUS_SUCCESS, inside);
            adapter.rules().broken_fatally(&TDR_DDI_DELAY, details);
        }
        return;
    };
    adapter.rules().count(&TDR_DDI_DELAY);
    record.step(Step::ThreadsLeft);
    let miniport = adapter.context();
    let reset = ddi::status(call_ddi!(adapter, DxgkDdiResetFromTimeout(miniport)));
    judge(adapter, "DxgkDdiResetFromTimeout", reset);
    record.step(Step::ResetFromTimeout(reset));
    let values = still::values(adapter);
    adapter.kernel().flush_queued_dpcs();
    for node in adapter.scheduler.nodes() {
        crate::interrupt::forget_node(adapter, node.ordinal as usize);
    }
    adapter.tdr.adapter_over.fetch_add(1, Ordering::AcqRel);
    adapter.scheduling_logs.forgive(None);
    // In the clean-up between the two calls.
    record.step(Step::Evicted(lost::memory_is_gone(adapter, Loss::Reset)));
    super::pass(adapter, adapter.personality().gates.restart.as_ref());
    still::judge(adapter, &values);
    let restarted = ddi::status(call_ddi!(adapter, DxgkDdiRestartFromTimeout(miniport)));
    judge(adapter, "DxgkDdiRestartFromTimeout", restarted);
    record.step(Step::RestartFromTimeout(restarted));
    lost::tables_begin_anew(adapter);
    // Those that are there now: what a thread makes that is let into the driver begins behind the reset.
    let devices = adapter.devices();
    for device in &devices {
        device.mark_failed(DeviceState::Reset);
    }
    drop(alone);
    for context in adapter.hw_contexts() {
        context.invalidate(false);
    }
    for node in adapter.scheduler.nodes() {
        let (lost, _) = node.packet.thaw(adapter, None);
        hear(adapter, &node);
        let (paging, lost): (Vec<_>, Vec<_>) = lost.into_iter().partition(Packet::is_paging);
        for packet in lost {
            packet.end(adapter.kernel(), false);
        }
        give_back(adapter, paging, false);
        node.packet.given_back();
        node.packet.changed.notify(adapter.kernel());
    }
    let resumed = adapter.scheduler.forget_paging_ids();
    record.step(Step::InterruptsEnabled);
    record.step(Step::DevicesLost(devices.len()));
    drop(recovers);
    for device in devices {
        device.fail_marked();
    }
    record.step(Step::SystemResumed(resumed));
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
    if recent <= settings.limit_count as usize || adapter.tdr.unlimited.load(Ordering::Acquire) {
        adapter.rules().count(&TDR_LIMIT);
    } else {
        // Windows stops here, too: an adapter that is reset for ever would keep everybody waiting for ever.
        let details = details(adapter, format!("{recent} resets"), ntstatus::STATUS_SUCCESS, recent as u64);
        adapter.rules().broken_fatally(&TDR_LIMIT, details);
    }
}

fn judge(adapter: &Adapter, ddi: &str, status: NTSTATUS) {
    let fine = ddi::succeeded(status);
    adapter.rules().check(&TDR_ADAPTER, fine, || details(adapter, format!("{ddi}: {status:?}"), status, 0));
}

/// With the parameters of bug check 0x116 behind the first: a pointer into the driver; the status of the function that
/// failed, 0 where none did; and what Windows keeps for itself, here a count.
///
/// Source: bug check 0x116, VIDEO_TDR_ERROR.
pub(super) fn details(adapter: &Adapter, text: String, status: NTSTATUS, count: u64) -> Details {
    let driver = adapter.table().DxgkDdiResetFromTimeout.map_or(0, |function| function as usize);
    // CAST: an address; sign-extended, as debuggers show it.
    Details::new(text).params([driver as u64, i64::from(status.0) as u64, count])
}
