//! Drivers that answer as some did whose authors wrote down what Windows made of them, 26100 unless another is named:
//! what started there starts here, and what was refused there is refused.
//!
//! Source: logs and notes that authors of render-only and full drivers have published.

use dxgkrnl_model::adapter::{Adapter, AdapterConfig, FailureReason, Problem, StartError};
use dxgkrnl_model::os::Os;
use dxgkrnl_model::personality::Personality;
use nt_model::Severity;
use std::sync::Arc;
use wddm_abi::ntstatus::{
    STATUS_DEVICE_CONFIGURATION_ERROR, STATUS_INVALID_PARAMETER, STATUS_NOT_IMPLEMENTED, STATUS_REVISION_MISMATCH,
    STATUS_SUCCESS,
};
use wddm_abi::{
    DXGK_PAGETABLEUPDATEMODE, DXGK_WDDMVERSION, DXGKDDI_INTERFACE_VERSION_WDDM2_1, KMDDOD_INITIALIZATION_DATA,
};

use crate::tour::{self, Ended};
use crate::toy::{Options, Toy};

/// A render-only driver of 2.1: no scheduling in hardware, no native fences, no doorbells.
fn of_2_1() -> Options {
    let version = (DXGKDDI_INTERFACE_VERSION_WDDM2_1, DXGK_WDDMVERSION::DXGKDDI_WDDMv2_1);
    Options { version, ..without_features() }
}

/// What the recorded drivers of 3.2 did without.
fn without_features() -> Options {
    Options { user_mode: false, native_fences: false, ..Options::default() }
}

/// One that is 3.2, and has no GPU virtual addresses at all.
fn physical() -> Options {
    Options { physical: true, ..without_features() }
}

fn start(options: Options) -> Ended {
    tour::play(options, tour::windows(), 1, |_, _| Ok(()))
}

/// The adapter of a driver that does not start, and why.
fn refused(options: Options) -> (Arc<Adapter>, StartError) {
    let os = Os::boot(tour::windows()).unwrap_or_else(|error| panic!("{error}"));
    let driver = os.load_driver(&Toy::driver(options)).unwrap_or_else(|error| panic!("{error}"));
    match os.try_adapter(&driver, AdapterConfig::default()) {
        (adapter, Err(error)) => (adapter, error),
        (_, Ok(())) => panic!("it has started"),
    }
}

/// It has started, and what was found stops no Windows: no more than these rules, none of them an error.
#[track_caller]
fn assert_starts(options: Options, findings: &[&str]) {
    let ended = start(options);
    let said: Vec<_> = ended.violations.iter().map(ToString::to_string).collect();
    assert_eq!(ended.stopped, None, "{said:#?}");
    let errors = ended.violations.iter().filter(|violation| violation.rule.severity == Severity::Error).count();
    assert_eq!((ended.broken.as_slice(), errors), (findings, 0), "{said:#?}");
    assert_eq!(ended.errors, [""; 0]);
}

/// It has not started, for this rule.
#[track_caller]
fn assert_refused(options: Options, rule: &str) {
    let ended = start(options);
    let why = ended.stopped.unwrap_or_default();
    assert!(why.contains(rule) && ended.broken.contains(&rule), "{why}: {:?}", ended.broken);
}

#[test]
fn a_driver_of_3_2_without_gpu_virtual_addresses_starts() {
    assert_starts(physical(), &[]);
}

#[test]
fn a_driver_of_2_1_starts() {
    assert_starts(of_2_1(), &[]);
}

/// Descriptors at both queries, at that for their number as well.
#[test]
fn a_driver_that_fills_segments_before_it_is_asked_to_starts() {
    assert_starts(Options { mutant: "segment-probe", ..without_features() }, &["DXG-SEGMENT-PROBE"]);
}

/// Descriptors `sizeof` bytes apart, where the OS names a stride: that of 26100 is the size.
#[test]
fn a_driver_with_strides_of_96_bytes_starts() {
    assert_starts(Options { mutant: "segment-stride", ..without_features() }, &["DXG-SEGMENT-STRIDE"]);
}

#[test]
fn a_driver_that_writes_behind_the_descriptors_is_found() {
    let ended = start(Options { mutant: "segment-overrun", ..without_features() });
    assert_eq!(ended.broken, ["DXG-QAI-OVERRUN"]);
    assert!(ended.violations.iter().all(|violation| violation.rule.severity == Severity::Error));
}

#[test]
fn drivers_that_answer_no_more_than_was_asked_of_them_start() {
    // NUMPOWERCOMPONENTS and PHYSICALADAPTERCAPS were refused on both versions.
    for options in [physical(), of_2_1(), without_features()] {
        assert_starts(Options { mutant: "qai-expected", ..options }, &["DXG-QAI-EXPECTED"]);
        assert_starts(Options { mutant: "qai-expected-physical", ..options }, &["DXG-QAI-EXPECTED"]);
    }
}

/// Event 549 has reason 3 for what the system refuses behind the start, with another status for a slot of a later
/// interface and for HISTORYBUFFERPRECISION, and reason 1 for a DxgkDdiStartDevice that fails; a driver that does not
/// add its device has no event.
#[test]
fn a_refused_start_shows_the_recorded_code_and_event() {
    let refused_with = |status| {
        Some(Problem { code: 43, status: STATUS_SUCCESS, event: Some((FailureReason::AddAdapterFailed, status)) })
    };
    for (mutant, status) in [
        ("caps-flip", STATUS_INVALID_PARAMETER),
        ("caps-multi-engine", STATUS_INVALID_PARAMETER),
        ("init-slot-2-0", STATUS_INVALID_PARAMETER),
        ("init-slot-2-4", STATUS_REVISION_MISMATCH),
        ("caps-history", STATUS_DEVICE_CONFIGURATION_ERROR),
        ("system-context", STATUS_NOT_IMPLEMENTED),
    ] {
        let (_, error) = refused(Options { mutant, ..without_features() });
        assert_eq!(error.problem(), refused_with(status), "{mutant}: {error}");
    }
    let (_, error) = refused(Options { mutant: "add-context", ..without_features() });
    assert_eq!(error.problem().map(|problem| (problem.code, problem.event)), Some((31, None)), "{error}");
    let (_, error) = refused(Options { mutant: "start-status", ..without_features() });
    let event = error.problem().and_then(|problem| problem.event);
    assert_eq!(event.map(|(reason, _)| reason), Some(FailureReason::DdiStartDeviceFailed), "{error}");
}

/// Code 43 with FlipCaps and MaxQueuedFlipOnVSync 0, which was seen of display adapters alone.
#[test]
fn a_display_adapter_without_flips_is_refused() {
    for options in [physical(), of_2_1(), without_features()] {
        assert_refused(Options { mutant: "caps-flip", ..options }, "DXG-CAPS-FLIP");
    }
    assert_starts(Options { mutant: "caps-flip", compute_only: true, ..Options::default() }, &[]);
}

/// Zeros in DXGKARG_CALIBRATEGPUCLOCK, of a driver of 2.1 that runs the desktop.
#[test]
fn a_driver_whose_clocks_have_no_frequency_starts() {
    assert_starts(Options { mutant: "clock-status", ..of_2_1() }, &["DXG-CLOCK-ANSWER"]);
    let ended = start(Options { mutant: "clock-status", ..Options::default() });
    assert_eq!(ended.broken, ["DXG-CLOCK-STATUS"]);
}

/// 0xC0000182 from the adapter's start, with a HISTORYBUFFERPRECISION that is none.
#[test]
fn a_history_buffer_precision_that_is_none_is_refused() {
    for options in [physical(), without_features()] {
        assert_refused(Options { mutant: "caps-history", ..options }, "DXG-CAPS-HISTORY");
    }
}

/// 0x10E/0x49: the CPU is to write page tables that lie where it cannot.
#[test]
fn page_tables_that_the_cpu_cannot_write_are_refused() {
    let update_mode = DXGK_PAGETABLEUPDATEMODE::DXGK_PAGETABLEUPDATE_CPU_VIRTUAL;
    let options = Options { update_mode, two_levels: true, ..without_features() };
    assert_refused(options, "DXG-MMU-UPDATE-MODE");
}

/// 0x10E/0x49: contexts of a driver with page tables name no segment for DMA buffers, which was seen of display
/// adapters alone.
#[test]
fn a_display_adapter_whose_contexts_name_no_segment_is_refused() {
    for options in [of_2_1(), without_features(), Options::default()] {
        let options = Options { mutant: "context-segment", ..options };
        assert_refused(options, "DXG-CONTEXT-SEGMENT");
        let ended = start(options);
        let found = ended.violations.iter().find(|violation| violation.rule.name == "DXG-CONTEXT-SEGMENT");
        let code = found.and_then(|violation| violation.rule.bugcheck);
        assert_eq!(code, Some((0x10E, 0x49)));
    }
    assert_starts(Options { mutant: "context-segment", compute_only: true, ..Options::default() }, &[]);
    // Without page tables nothing is known of it.
    assert_starts(Options { mutant: "context-segment", ..physical() }, &[]);
}

/// Code 43, while DxgkDdiCreateContext is not implemented: the system makes a context at the start, with page tables or
/// without, of display adapters.
#[test]
fn a_driver_that_refuses_the_systems_context_is_refused() {
    for options in [physical(), of_2_1(), without_features()] {
        assert_starts(options, &[]);
        let ended = start(Options { mutant: "system-context", ..options });
        let why = ended.stopped.unwrap_or_default();
        assert!(why.contains("STATUS_NOT_IMPLEMENTED"), "{why}");
        assert_eq!(ended.broken, ["DXG-OBJECT-STATUS"]);
        // What there was already is taken down all the same.
        let (adapter, _) = refused(Options { mutant: "system-context", ..options });
        let called = |name: &str| adapter.ddi_calls().get(name).copied().unwrap_or(0);
        let made = ["DxgkDdiCreateDevice", "DxgkDdiCreateProcess"].map(called);
        assert_eq!(["DxgkDdiDestroyDevice", "DxgkDdiDestroyProcess"].map(called), made);
        assert!(made[0] == 1, "{made:?}");
    }
    // What was recorded is of display adapters: of others it is not asked. (They are to have virtual addresses.)
    let ended = start(Options { mutant: "system-context", compute_only: true, ..physical() });
    assert_eq!((ended.stopped, ended.broken.as_slice()), (None, ["DXG-COMPUTE-CAPS"].as_slice()));
}

#[test]
fn a_display_only_driver_is_known_by_its_handshake() {
    let os = Os::boot(tour::windows()).unwrap_or_else(|error| panic!("{error}"));
    let options = Options { display_only: true, ..without_features() };
    let driver = os.load_driver(&Toy::driver(options)).unwrap_or_else(|error| panic!("{error}"));
    assert!(driver.is_display_only());
    assert!(driver.slots().len() >= 9 && !driver.slots().contains(&"DxgkDdiGetNodeMetadata"), "{:?}", driver.slots());
    let (adapter, started) = os.try_adapter(&driver, AdapterConfig::default());
    assert!(matches!(started, Err(StartError::DisplayOnly)), "{started:?}");
    let steps: Vec<_> = adapter.transcript().into_iter().map(|line| line.step).collect();
    let first = |step: &str| steps.iter().position(|other| other.starts_with(step));
    let all = ["AddDevice", "StartDevice", "query DRIVERCAPS", "StopDevice", "RemoveDevice"].map(first);
    assert!(all.iter().all(Option::is_some) && all.is_sorted(), "{steps:?}");
    assert_eq!(steps.len(), all.len(), "nothing else is asked: {steps:?}");
    os.shut_down();
    let violations: Vec<_> = os.kernel().rules.violations().iter().map(ToString::to_string).collect();
    assert_eq!(violations, [""; 0]);
    assert_eq!(size_of::<KMDDOD_INITIALIZATION_DATA>(), 336);
}

#[test]
fn a_start_goes_on_past_a_refusal_and_says_so() {
    let goes_on = || Personality { past_refusals: true, ..tour::windows() };
    let started = |mutant, windows| {
        let os = Os::boot(windows).unwrap_or_else(|error| panic!("{error}"));
        let driver = os.load_driver(&Toy::driver(Options { mutant, ..Options::default() }));
        let (adapter, started) =
            os.try_adapter(&driver.unwrap_or_else(|error| panic!("{error}")), AdapterConfig::default());
        let passed = adapter.passed_refusal().map(|refusal| (refusal.to_string(), refusal.problem().map(|it| it.code)));
        os.shut_down();
        (started.is_ok(), passed)
    };
    for (mutant, rule) in [
        ("caps-flip", "DXG-CAPS-FLIP"),
        ("caps-multi-engine", "DXG-CAPS-MULTI-ENGINE"),
        ("init-slot-2-0", "DXG-INIT-SLOT-VERSION"),
    ] {
        assert_eq!(started(mutant, tour::windows()), (false, None), "{mutant}");
        let (is_started, passed) = started(mutant, goes_on());
        let (text, code) = passed.unwrap_or_default();
        assert!(is_started && text.contains(rule) && code == Some(43), "{mutant}: {is_started}, {text}, {code:?}");
    }
    // The model cannot go on past these; and nothing is said of a start that Windows does not refuse.
    for mutant in ["mmu-levels", "mmu-table-cpu"] {
        assert_eq!(started(mutant, goes_on()), (false, None), "{mutant}");
    }
    assert_eq!(started("", goes_on()), (true, None));
}
