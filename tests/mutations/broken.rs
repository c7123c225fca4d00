//! Drivers that are wrong at their table or at their callbacks: functions in front of those, which make a mistake with
//! any driver, linked in or an image. The table says which case notices each; rows with `image` are also played on the
//! images that ship, so that rules judge a `.sys` that breaks them.

mod callbacks;
mod doorbells;
mod fences;
mod notices;
mod queues;
mod recovery;
mod start;
mod testing;

use crate::{Wrong, play};
use core::ffi::c_void;
use fencepost::world::Decorator;
use libtest_mimic::{Failed, Trial};

/// A mistake.
#[derive(Clone, Copy)]
pub struct Broken {
    /// Its name.
    pub name: &'static str,
    /// Puts functions in front of a driver's table.
    pub decorate: Decorator,
    /// At least one of these cases fails with it: ids of conformance cases, or names of [`crate::own::CASES`].
    pub cases: &'static [&'static str],
    /// Whether the images are played with it, too.
    image: bool,
    /// What the case says that fails, among else.
    says: &'static str,
}

const fn row(name: &'static str, decorate: Decorator, cases: &'static [&'static str]) -> Broken {
    Broken { name, decorate, cases, image: false, says: "" }
}

const fn image(name: &'static str, decorate: Decorator, cases: &'static [&'static str]) -> Broken {
    Broken { name, decorate, cases, image: true, says: "" }
}

/// A driver that does not come back from `says`, a function that the scheduler calls: the system stops and names it.
const fn stays(name: &'static str, decorate: Decorator, case: &'static [&'static str], says: &'static str) -> Broken {
    Broken { name, decorate, cases: case, image: true, says }
}

pub const TABLE: &[Broken] = &[
    // Monitored values and interrupts.
    image("MonitoredOnlyRaised", fences::monitored_only_raised, &["WS-02"]),
    image("KeepsKernelVa", fences::keeps_kernel_va, &["WS-02", "WS-11"]),
    image("FailsMonitoredUpdate", fences::fails_monitored_update, &["WS-02"]),
    image("NeverInterrupt", notices::never, &["WS-02"]),
    row("AlwaysInterrupt", fences::always_interrupt, &["MR-07", "MR-08"]),
    image("DriverHandleInInterrupt", notices::drivers_handle, &["WS-02"]),
    // Native fences.
    row("NotificationWrites", fences::notification_writes, &["XA-04", "XA-09"]),
    row("NoWakeFromCpu", fences::no_wake_from_cpu, &["WS-03"]),
    image("FailsCurrentUpdate", fences::fails_current_update, &["WS-03"]),
    row("StopsAtBadFence", fences::stops_at_bad_fence, &["MR-20"]),
    image("OnlyFirstOfBatch", fences::only_first_of_batch, &["MR-18"]),
    image("ScribblesPrivateData", fences::scribbles_private_data, &["NF-15"]),
    row("IntraGpuInAperture", fences::intra_gpu_in_aperture, &["NF-23"]),
    image("DestroysOnClose", fences::destroys_on_close, &["NF-07", "NF-09"]),
    row("BelievesProgressHandle", fences::believes_progress_handle, &["CL-20"]),
    row("LogKeepsOldBuffer", fences::log_keeps_old_buffer, &["LB-10"]),
    row("TakesNoLog", fences::takes_no_log, &["LB-15"]),
    row("LogBeyondBuffer", fences::log_beyond_buffer, &["LB-09"]),
    row("TimestampsBackwards", fences::timestamps_backwards, &["LB-12"]),
    // Monitored fences.
    row("BasicProgressSilent", notices::monitored_never, &["MF-09"]),
    // Doorbells.
    image("NoScanAtConnect", doorbells::no_look_at_connect, &["DB-04"]),
    row("OneToken", doorbells::one_token, &["DB-66"]),
    row("ReusesDoorbellEarly", doorbells::reused_early, &["DB-08"]),
    image("SharesDoorbellPage", doorbells::one_page, &["two doorbells of one node"]),
    image("ForgetsOldRing", doorbells::old_ring_forgotten, &["DB-67"]),
    image("FailsDisconnect", doorbells::fails_disconnect, &["DB-20"]),
    row("BindsAtCreate", doorbells::bound_at_create, &["DB-08"]),
    row("NotifiesSilently", doorbells::notified_silently, &["DB-12", "DB-13", "DB-45"]),
    row("CompletesSilently", doorbells::completes_silently, &["DB-46"]),
    row("KeepsWhatWasWritten", doorbells::page_kept, &["DB-40"]),
    image("SaysOnePage", doorbells::says_one_page, &["DB-69"]),
    // Callbacks that take their time, or fail; DPCs that come late; evictions.
    row("TakesWithoutAsking", doorbells::reused_early, &["DB-85"]),
    row("TakesForGood", callbacks::takes_for_good, &["DB-85"]),
    row("AsksBehindRefused", callbacks::asks_behind, &["DB-86"]),
    image("BelievesRefusals", callbacks::believes_refusals, &["DB-86"]),
    row("AsksOnce", callbacks::asks_once, &["DB-86"]),
    image("TellsInLateDpcs", callbacks::tells_in_late_dpcs, &["DD-23"]),
    row("LosesWorkToLateDpcs", callbacks::loses_work_to_late_dpcs, &["DD-23"]),
    image("ForgetsEvicted", callbacks::forgets_evicted, &["RP-22"]),
    row("KeepsTranslations", callbacks::keeps_translations, &["RP-22"]),
    // Scheduling, resets.
    image("WrongSuspendFence", notices::wrong_suspend_fence, &["DB-34"]),
    image("ResetWithoutInvalidate", notices::reset_without_invalidate, &["a hang and its recovery"]),
    image("InterruptBeforeResume", notices::interrupt_before_resume, &["a hang and its recovery"]),
    row("ResetsWithoutInvalidating", notices::reset_without_invalidate, &["TE-27"]),
    // Kernel-mode queues.
    image("SuspendsNothing", queues::suspends_nothing, &["DB-59"]),
    image("KeepsPriorities", queues::keeps_properties, &["DB-71"]),
    row("ForgetsBuffers", queues::forgets_buffers, &["DB-58"]),
    image("TablesStayLost", recovery::tables_stay_lost, &["TA-04"]),
    row("TablesStayLostWithoutPower", recovery::tables_stay_lost, &["RP-10"]),
    // Debug information.
    image("CollectWantsRoom", recovery::collect_wants_room, &["TE-23"]),
    row("CollectsNotInReset", recovery::silent_in_reset, &["TE-23"]),
    row("CollectsNotAsleep", recovery::silent_asleep, &["TE-23"]),
    image("WritesPayload", recovery::writes_payload, &["TE-24"]),
    image("BlamesNothing", recovery::blames_nothing, &["TE-33"]),
    image("SkipsResets", recovery::skips_resets, &["TE-27"]),
    row("RefusesCancel", recovery::refuses_cancel, &["TE-84"]),
    row("RefusesBesideReset", recovery::refuses_beside, &["TE-34"]),
    // Functions that keep the scheduler's own thread.
    stays("StaysInSubmit", recovery::stays_in_submit, &["TE-03"], "DxgkDdiSubmitCommandVirtual has not come back"),
    stays("StaysInPreempt", recovery::stays_in_preempt, &["TE-03"], "DxgkDdiPreemptCommand has not come back"),
    stays("StaysInStatus", recovery::stays_in_status, &["TE-03"], "DxgkDdiQueryEngineStatus has not come back"),
    stays("StaysInGroup", recovery::stays_in_group, &["TE-03"], "DxgkDdiQueryDependentEngineGroup has not come back"),
    stays("StaysInCollect", recovery::stays_in_collect, &["TE-03"], "DxgkDdiCollectDbgInfo2 has not come back"),
    stays("StaysInReset", recovery::stays_in_reset, &["TE-03"], "DxgkDdiResetEngine has not come back"),
    stays("StaysInHwReset", recovery::stays_in_hw_reset, &["TE-14"], "DxgkDdiResetHwEngine has not come back"),
    stays("StaysInSuspend", recovery::stays_in_suspend, &["TE-14"], "DxgkDdiSuspendContext has not come back"),
    // Packets, paging.
    image("CompletesOutOfOrder", notices::completes_out_of_order, &["NF-01"]),
    image("ResetNamesCompleted", notices::reset_names_completed, &["DD-12"]),
    image("BadPagingStatus", start::bad_paging_status, &["NF-01"]),
    // Start, life.
    image("WrongWddmVersion", start::wrong_wddm_version, &["ST-02"]),
    row("AdvertisesDisabledFence", start::advertises_disabled_fence, &["ST-03", "NF-21"]),
    row("AsksForInterfaceFirst", start::asks_unasked, &["NF-21"]),
    row("AsksForOtherVersion", start::asks_other_version, &["NF-29"]),
    row("ForgetsFenceVersion", start::forgets_version, &["NF-31"]),
    row("RefusesSegmentProbe", start::refuses_segment_probe, &["ST-01"]),
    image("HidesNode", start::hides_node, &["ST-01"]),
    image("LeaksWithDevice", start::leaks_with_device, &["NF-01"]),
    // Kernel-mode testing.
    image("TestsAnywhere", testing::tests_anywhere, &["BI-20"]),
    row("TestsInAnyVersion", testing::tests_in_any_version, &["BI-20"]),
    image("FillsWithZeros", testing::fills_with_zeros, &["BI-20"]),
    row("TestsUnmeasured", testing::tests_unmeasured, &["BI-20"]),
    row("BuildsAnything", testing::builds_anything, &["BI-20"]),
    row("TestProgressMissing", testing::test_progress_missing, &["BI-20"]),
    row("LeaksAtRudeExits", start::leaks_with_device, &["PT-41"]),
    // What shows that fuzzers can find something.
    row("LeaksBesideThunks", start::leaks_with_device, &["the fuzzer thunks"]),
    row("LeaksBesideRings", start::leaks_with_device, &["the fuzzer rings"]),
    row("FailsDisconnectBesideDoorbells", doorbells::fails_disconnect, &["the fuzzer doorbells"]),
    row("InterruptsBesideStorms", fences::always_interrupt, &["the fuzzer interrupts"]),
];

/// Every row, on the driver that is linked in and, where it says so, on the images.
pub fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for (number, broken) in TABLE.iter().enumerate() {
        let cases = broken.cases.join(" or ");
        let title = format!("{} at the table is noticed by {cases}", broken.name);
        trials.push(Trial::test(title, move || noticed(broken, number, false)));
        if broken.image {
            let title = format!("{} in front of fencepost.sys is noticed by {cases}", broken.name);
            trials.push(Trial::test(title, move || noticed(broken, number, true)));
        }
    }
    trials
}

fn noticed(broken: &Broken, number: usize, image: bool) -> Result<(), Failed> {
    for case in broken.cases {
        if let Some(why) = play(case, Wrong { broken: Some(number), image, ..Wrong::default() })? {
            if !why.contains(broken.says) {
                return Err(format!(
                    "{case} failed with {}, and does not say that {}: {why}",
                    broken.name, broken.says
                )
                .into());
            }
            println!("{}: {case}: {why}", broken.name);
            return Ok(());
        }
    }
    Err(format!("{} passed with {}", broken.cases.join(", "), broken.name).into())
}

/// A pointer as a number that may be kept.
pub fn number(pointer: *mut c_void) -> usize {
    pointer.expose_provenance()
}

/// A number that [`number`] gave, as a pointer.
pub fn pointer(number: usize) -> *mut c_void {
    core::ptr::with_exposed_provenance_mut(number)
}
