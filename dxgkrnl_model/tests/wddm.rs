//! The model against a driver that is right, in many forms and on many Windows, and against the same driver with one
//! thing wrong at a time.
#![expect(unsafe_code, reason = "a driver and its clients follow pointers")]

mod bells;
mod client;
mod groups;
mod logs;
mod monitored;
mod mutants;
mod named;
mod once;
mod paging_process;
mod recorded;
mod roots;
mod storage;
mod tour;
mod toy;

use std::collections::BTreeSet;

use dxgkrnl_model::personality::family::{READINGS, Windows};
use dxgkrnl_model::personality::{Build, HandleReadings, HwContexts, Personality, ProgressFenceHandle, PteAddress};
use nt_model::InterruptDelivery;
use tour::{Ended, Stage, run, windows};
use toy::Options;
use wddm_abi::{DXGK_FEATURE_ID, DXGK_PAGETABLEUPDATEMODE};

#[track_caller]
fn assert_clean(ended: &Ended, what: &str) {
    let violations: Vec<_> = ended.violations.iter().map(ToString::to_string).collect();
    let text = format!("{what}: {:?}\n{}\n{}", ended.stopped, violations.join("\n"), ended.report);
    assert!(
        ended.stopped.is_none() && ended.errors.is_empty() && ended.broken.is_empty(),
        "{text}\n{:#?}",
        ended.errors
    );
}

/// A change of the toy.
type Form = fn(&mut Options);
/// A change of Windows.
type Kind = fn(&mut Personality);

/// What the toy can do, at its simplest.
fn options(stage: Stage) -> Options {
    Options { engine_reset: stage != Stage::AdapterHang, ..Options::default() }
}

/// Every stage on this Windows with this toy; what the toy counted.
#[track_caller]
fn all_stages(what: &str, personality: &Personality, change: impl Fn(&mut Options)) -> BTreeSet<&'static str> {
    let mut counted = BTreeSet::new();
    for stage in Stage::ALL {
        let mut options = options(stage);
        change(&mut options);
        if stage.needs_user_mode() && !options.user_mode {
            continue;
        }
        let ended = run(options, stage, personality.clone());
        assert_clean(&ended, &format!("{what}, {stage:?}"));
        counted.extend(ended.toy.iter().flat_map(|toy| toy.counted_all()));
    }
    counted
}

#[test]
fn a_right_driver_breaks_no_rule() {
    all_stages("plain", &windows(), |_| ());
}

#[test]
fn whatever_the_interleaving() {
    for seed in 100..130 {
        all_stages(&format!("seed {seed}"), &windows().seeded(seed), |_| ());
    }
}

/// Contexts that waited behind the one that hung an engine have all of TdrDelay again.
#[test]
fn an_engine_that_comes_back_slowly_is_reset_once() {
    for seed in 7..12 {
        let options = Options { slow_start: 50, ..options(Stage::QueueHang) };
        let ended = run(options, Stage::QueueHang, windows().seeded(seed));
        assert_clean(&ended, &format!("seed {seed}"));
        assert_eq!(ended.report.counts.resets, 1, "seed {seed}");
    }
}

/// The acknowledgement of a suspension that an engine gave right before its reset waits in the driver until the engine
/// is resumed: nothing hung, and nobody is to be named.
#[test]
fn who_had_let_go_before_the_reset_says_so_behind_it() {
    for seed in 7..12 {
        let options = Options { lets_go_late: true, ..options(Stage::QueueLate) };
        let ended = run(options, Stage::QueueLate, windows().seeded(seed));
        assert_clean(&ended, &format!("seed {seed}"));
        assert_eq!(ended.report.counts.resets, 1, "seed {seed}");
    }
}

#[test]
fn every_form_of_the_driver() {
    // A form, and what shows that it made a difference.
    let forms: [(&str, Form, &str); 20] = [
        ("memory for each allocation", |o| o.pages_of_its_own = true, "packet"),
        ("paging buffers in the aperture", |o| o.paging_aperture = true, "map buffer"),
        ("an interface of displays", |o| o.has_i2c = true, "display interface let go"),
        ("cross-adapter resources", |o| o.cross_adapter = true, "cross adapter"),
        ("fences at chosen addresses", |o| o.fence_range = true, "fence range"),
        ("tables by the CPU", |o| o.update_mode = DXGK_PAGETABLEUPDATEMODE::DXGK_PAGETABLEUPDATE_CPU_VIRTUAL, "packet"),
        ("tables by address", |o| o.update_mode = DXGK_PAGETABLEUPDATEMODE::DXGK_PAGETABLEUPDATE_GPU_VIRTUAL, "packet"),
        ("two levels", |o| o.two_levels = true, "packet"),
        ("optimized interrupt", |o| o.optimized = true, "logged"),
        ("skipped fence writes", |o| (o.optimized, o.skips_writes) = (true, true), "logged"),
        ("one doorbell", |o| o.doorbells = 1, "victim"),
        ("doorbells of several pages", |o| (o.doorbells, o.doorbell_bytes) = (1, 3 * 4096), "victim"),
        ("doorbells in a BAR", |o| o.doorbells_in_bar = true, "rung in a BAR"),
        (
            "two doorbells of several pages in a BAR",
            |o| (o.doorbells_in_bar, o.doorbells, o.doorbell_bytes, o.secondary_bytes) = (true, 1, 8193, 4096),
            "rung in a BAR",
        ),
        ("notified", |o| o.notify = true, "notify work"),
        ("a power component", |o| o.power_component = true, "f-state"),
        ("suspensions at once", |o| o.suspends_at_once = true, "suspended at once"),
        ("two engines", |o| o.engines = 2, "reset hw engine 1"),
        ("no user-mode submission", |o| o.user_mode = false, "kernel submission"),
        ("no native fences", |o| (o.user_mode, o.native_fences) = (false, false), "kernel submission"),
    ];
    for (what, change, sign) in forms {
        let counted = all_stages(what, &windows(), change);
        assert!(counted.contains(sign), "{what}: no {sign} among {counted:?}");
    }
}

#[test]
fn every_windows() {
    let kinds: &[(&str, Kind)] = &[
        ("contexts by DxgkDdiCreateHwContext", |p| p.hw_contexts = HwContexts::CreateHwContext),
        ("packet contexts on packet nodes only", |p| p.packet_contexts_anywhere = false),
        ("a lost interrupt", |p| p.faults.lost_interrupt = 9),
        ("batches with a bad handle", |p| p.faults.stray_handles = true),
        ("every slot", |p| p.every_slot = true),
        ("fences in local memory", mutants::special::local_fences),
        ("24H2 as shipped", |p| p.build = Build::W26100Ga),
        ("progress fence appended", |p| p.progress_fence_handle = ProgressFenceHandle::At48),
        ("either handle", |p| p.handles = HandleReadings::LENIENT),
        ("small paging buffers", |p| p.faults.paging_buffer_size = Some(256)),
        ("small logs", |p| p.log_entries = 2),
        ("a list of one", |p| p.notification_list = 1),
        ("a slow kernel", |p| p.faults.slow_resample = 5),
    ];
    for (what, change) in kinds {
        let mut personality = windows();
        change(&mut personality);
        all_stages(what, &personality, |_| ());
    }
}

#[test]
fn every_reading() {
    for (at, reading) in READINGS.iter().enumerate() {
        let mut personality = windows();
        Windows::Reading(at).apply(&mut personality);
        let bytes = personality.pte_address == PteAddress::Bytes;
        // The client of these tests has the records of 26100, with which it cannot connect a doorbell there.
        let old_records = personality.build == Build::W28000;
        all_stages(reading.name, &personality, |o| {
            o.pte_bytes = bytes;
            o.user_mode &= !old_records;
        });
    }
}

#[test]
fn interrupts_on_a_thread_of_their_own() {
    for delivery in [InterruptDelivery::Remote, InterruptDelivery::Seeded(3)] {
        let mut personality = windows();
        personality.interrupt_delivery = delivery;
        all_stages(&format!("{delivery:?}"), &personality, |_| ());
    }
}

#[test]
fn without_the_features() {
    for feature in [DXGK_FEATURE_ID::DXGK_FEATURE_USER_MODE_SUBMISSION, DXGK_FEATURE_ID::DXGK_FEATURE_NATIVE_FENCE] {
        // The driver asks, and advertises what it may.
        let personality = windows().with_feature(feature, false);
        let native = feature != DXGK_FEATURE_ID::DXGK_FEATURE_NATIVE_FENCE;
        all_stages(&format!("{feature:?}"), &personality, |o| (o.user_mode, o.native_fences) = (false, native));
    }
}

/// A hang on the second engine of a link is answered there, by packets and queues alike.
#[test]
fn an_engine_of_a_link_is_reset_alone() {
    let ended = run(Options { engines: 2, ..options(Stage::Linked) }, Stage::Linked, windows());
    assert_clean(&ended, "linked");
    let toy = ended.toy.expect("a toy");
    let counted =
        ["reset engine", "reset engine 1", "reset hw engine", "reset hw engine 1"].map(|what| toy.counted(what));
    assert_eq!(counted, [0, 1, 0, 1]);
}

/// A driver that does not say how many adapters its link has, or says another number, does not start.
#[test]
fn a_link_has_as_many_adapters_as_the_driver_says() {
    for (engines, links) in [(1, 2), (2, 1), (2, 3)] {
        let os = dxgkrnl_model::os::Os::boot(windows()).expect("a machine");
        let toy = toy::Toy::driver(Options { engines, ..Options::default() });
        let driver = os.load_driver(&toy).expect("loaded");
        let config = dxgkrnl_model::adapter::AdapterConfig { links, ..Default::default() };
        let error = os.add_adapter(&driver, config).err().map(|error| error.to_string());
        os.shut_down();
        // Without DxgkDdiLinkDevice an adapter stands alone, wherever it is.
        assert_eq!(error.is_none(), engines == 1, "{engines} of {links}: {error:?}");
    }
}

/// A driver that cannot reset engines is told what is asked of it, and runs; one that can is told nothing.
#[test]
fn resets_of_engines_are_asked_for_and_not_demanded() {
    for engine_reset in [true, false] {
        let ended = run(Options { engine_reset, ..Options::default() }, Stage::Packets, windows());
        assert_clean(&ended, &format!("SupportPerEngineTDR {engine_reset}"));
        let told = ended.report.advice.iter().filter(|text| text.contains("SupportPerEngineTDR")).count();
        assert_eq!(told, usize::from(!engine_reset), "{:?}", ended.report.advice);
    }
}

#[test]
fn in_real_time() {
    let mut personality = windows();
    personality.clock = dxgkrnl_model::personality::Clock::Real;
    // A busy machine must not look like a hang.
    personality.tdr = dxgkrnl_model::personality::TdrSettings::default();
    for stage in [Stage::Packets, Stage::KernelQueue, Stage::UserQueue, Stage::Faults, Stage::Kill, Stage::Sleep] {
        assert_clean(&run(options(stage), stage, personality.clone()), &format!("{stage:?}"));
    }
}
