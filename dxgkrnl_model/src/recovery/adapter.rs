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

use wddm_abi::{NTSTATUS, ntstatus};

use super::journal::Record;
use super::{collect, packet};
use crate::objects::device::Device;
use crate::objects::hw_context::HwContext;
use crate::objects::scheduling_log::SchedulingLogSet;
use crate::port::ddi::{self, call_ddi};
use crate::port::miniport::Miniport;
use crate::port::personality::Departure;
use crate::port::rules::tdr::{TDR_ADAPTER, TDR_DDI_DELAY, TDR_LIMIT};
use crate::port::sync::Admission;
use crate::port::tdr::steps::{Reason, Step, What};
use crate::port::tdr::{DeviceState, Tdr};
use crate::port::worker::Worker;
use crate::recovery::Watch;
use crate::recovery::lost::{self, Loss};
use crate::sched::vidsch::VidSch;
use crate::sched::vidsch::dpc::{give_back, hear};
use crate::sched::vidsch::packet::Packet;

/// Resets the adapter.
///
/// IRQL: PASSIVE_LEVEL; not inside the driver.
pub(crate) fn run(adapter: &Arc<Miniport>, reason: Reason) {
    let recovers = Watch::of(adapter).alone(adapter);
    reset(adapter, reason, recovers);
}

/// How many resets of the adapter are over. In the recovery of an engine, none ends meanwhile.
pub(super) fn so_far(adapter: &Miniport) -> u64 {
    Tdr::of(adapter).adapter_over.load(Ordering::Acquire)
}

/// Resets the adapter since the reset of an engine did not do, which had the recovery alone when so many resets of the
/// adapter were over.
///
/// IRQL: PASSIVE_LEVEL; not inside the driver.
pub(super) fn run_promoted(adapter: &Arc<Miniport>, known: u64) {
    adapter.pass(adapter.personality().gates.promotion.as_ref());
    let recovers = Watch::of(adapter).alone(adapter);
    if so_far(adapter) != known {
        // The engine that could not be reset was reset with the adapter meanwhile, for another's sake.
        return;
    }
    let names_none = adapter.personality().departs(Departure::NamesNoPromotion);
    reset(adapter, if names_none { Reason::NoEngineReset } else { Reason::Promoted }, recovers);
}

fn reset(adapter: &Arc<Miniport>, reason: Reason, recovers: Admission<'_>) {
    let settings = adapter.personality().tdr;
    let record = Record::begin(adapter, What::Adapter, reason);
    Tdr::of(adapter).adapter_resets.fetch_add(1, Ordering::Relaxed);
    adapter.shared().counters.tdr();
    count(adapter);
    collect::whole(adapter, reason);
    record.step(Step::DebugInfo(collect::ADAPTER_TIMEOUT));
    for node in VidSch::of(adapter).nodes() {
        packet::freeze(adapter, &node, true);
    }
    let Some(alone) = adapter.quiesce(settings.ddi_delay) else {
        if !adapter.rules().is_stopped() {
            // Windows stops here, too.
            let inside = u64::from(adapter.threads_inside());
            let text = format!("{inside} threads are inside the driver");
            let details = adapter.bug_check_details(text, ntstatus::STATUS_SUCCESS, inside);
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
    for node in VidSch::of(adapter).nodes() {
        crate::sched::interrupt::forget_node(adapter, node.ordinal as usize);
    }
    Tdr::of(adapter).adapter_over.fetch_add(1, Ordering::AcqRel);
    SchedulingLogSet::of(adapter).forgive(None);
    // In the clean-up between the two calls.
    record.step(Step::Evicted(lost::memory_is_gone(adapter, Loss::Reset)));
    adapter.pass(adapter.personality().gates.restart.as_ref());
    still::judge(adapter, &values);
    let restarted = ddi::status(call_ddi!(adapter, DxgkDdiRestartFromTimeout(miniport)));
    judge(adapter, "DxgkDdiRestartFromTimeout", restarted);
    record.step(Step::RestartFromTimeout(restarted));
    lost::tables_begin_anew(adapter);
    // Those that are there now: what a thread makes that is let into the driver begins behind the reset.
    let devices = Device::all_of(adapter);
    for device in &devices {
        device.mark_failed(DeviceState::Reset);
    }
    drop(alone);
    for context in HwContext::all_of(adapter) {
        context.invalidate(false);
    }
    for node in VidSch::of(adapter).nodes() {
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
    let resumed = VidSch::of(adapter).forget_paging_ids();
    record.step(Step::InterruptsEnabled);
    record.step(Step::DevicesLost(devices.len()));
    drop(recovers);
    for device in devices {
        device.fail_marked();
    }
    record.step(Step::SystemResumed(resumed));
    Worker::of(adapter).kick(adapter);
}

/// More resets than TdrLimitCount within TdrLimitTime are a bug check.
fn count(adapter: &Miniport) {
    let settings = adapter.personality().tdr;
    let now = adapter.kernel().now();
    let recent = {
        let mut resets = Watch::of(adapter).resets.lock();
        resets.retain(|at| at + settings.limit_time > now);
        resets.push(now);
        resets.len()
    };
    if recent <= settings.limit_count as usize || Tdr::of(adapter).is_unlimited() {
        adapter.rules().count(&TDR_LIMIT);
    } else {
        // Windows stops here, too: an adapter that is reset for ever would keep everybody waiting for ever.
        let details = adapter.bug_check_details(format!("{recent} resets"), ntstatus::STATUS_SUCCESS, recent as u64);
        adapter.rules().broken_fatally(&TDR_LIMIT, details);
    }
}

fn judge(adapter: &Miniport, ddi: &str, status: NTSTATUS) {
    let fine = ddi::succeeded(status);
    adapter.rules().check(&TDR_ADAPTER, fine, || adapter.bug_check_details(format!("{ddi}: {status:?}"), status, 0));
}
