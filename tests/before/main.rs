//! The driver of before is noticed: each mistake that was found by reading, or in logs of other drivers, is brought back at the
//! driver's table (a decorator) or by a setting, and a case or a plain start then fails with the rule or the words that it must
//! fail with. The product has no code for it. The same case passes without.
//!
//! `./x test --test before -- DD-09` plays what has to do with a case, `-- flip` what has that in its name.

mod life;
mod objects;
mod slots;
mod start;
mod wrap;

use dxgkrnl_model::personality::Windows;
use fencepost::scenario::{Played, Setup, Stage, all, wait_at_most};
use fencepost::world::{Decorator, Form};
use libtest_mimic::{Arguments, Failed, Trial};
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

/// A number under the driver's registry key.
type Setting = (&'static str, u32);

/// What brings a mistake back.
#[derive(Clone, Copy)]
enum Brings {
    /// Functions before those of the table.
    Table(Decorator),
    /// A setting.
    Registry(Setting),
}

/// A mistake that was made.
#[derive(Clone, Copy)]
struct Mistake {
    /// What the driver did.
    name: &'static str,
    /// The page that it was against.
    source: &'static str,
    brings: Brings,
    /// A conformance case, or [`START`].
    case: &'static str,
    /// What the failure says.
    says: &'static str,
    /// Settings that the case is played with, with and without the mistake.
    settings: &'static [Setting],
    /// The reading of the documents that it is played under.
    windows: &'static str,
    /// What waits for an interrupt may wait for ever: to be kept is as good as to be told.
    may_hang: bool,
}

/// A start, and nothing else.
const START: &str = "start";

const fn table(
    name: &'static str,
    source: &'static str,
    decorate: Decorator,
    case: &'static str,
    says: &'static str,
) -> Mistake {
    Mistake {
        name,
        source,
        brings: Brings::Table(decorate),
        case,
        says,
        settings: &[],
        windows: "default",
        may_hang: false,
    }
}

const fn registry(name: &'static str, source: &'static str, setting: Setting, says: &'static str) -> Mistake {
    Mistake {
        name,
        source,
        brings: Brings::Registry(setting),
        case: START,
        says,
        settings: &[],
        windows: "default",
        may_hang: false,
    }
}

impl Mistake {
    const fn with(mut self, settings: &'static [Setting]) -> Self {
        self.settings = settings;
        self
    }

    const fn or_hangs(mut self) -> Self {
        self.may_hang = true;
        self
    }

    const fn under(mut self, windows: &'static str) -> Self {
        self.windows = windows;
        self
    }
}

#[rustfmt::skip]
const MISTAKES: &[Mistake] = &[
    // Contexts.
    table("contexts for queues are packet contexts", "DXGK_CREATECONTEXTFLAGS, HwQueueSupported", objects::packets_whatever_the_flag, "CL-04", "a queue in it"),
    table("Dxgkrnl's handle of a context is lost", "DXGKARGCB_INVALIDATEHWCONTEXT, hHwContext", objects::incoming_handle_lost, "WS-22", "DXG-CB-OBJECT"),
    table("contexts need private data", "DxgkDdiCreateContext, Return value", objects::private_data_demanded, "ST-56", "without private data"),
    table("a test's context is refused", "microsoft/libdxg", objects::private_data_demanded, "CL-03", "a context without private data"),
    table("the companion of a context is node 0", "DXGK_CONTEXTINFO, PagingCompanionNodeId", objects::companion_is_node_0, START, "DXG-CONTEXT-COMPANION"),
    table("outputs of CreateContext are left", "DXGK_CONTEXTINFO", objects::context_outputs_left, START, "DXG-CONTEXT-OUTPUT"),
    table("progress fences have to be opened", "DXGKARG_CREATEHWQUEUE", objects::unopened_progress_refused, "NF-01", "D3DKMTCreateHwQueue returned 0xc000000d").under("progress-never-opened"),
    // The start.
    registry("no flip capabilities", "WDDM driver and feature caps", ("FlipCaps", 0), "DXG-CAPS-FLIP"),
    registry("SupportNonVGA without its function", "DXGK_DRIVERCAPS, SupportNonVGA", ("SupportNonVGA", 1), "DXG-CAPS-NON-VGA"),
    registry("cross-adapter resources are promised", "DXGK_VIDMMCAPS, CrossAdapterResource", ("CrossAdapterResource", 1), "DXG-CAPS-CROSS-ADAPTER-SERVED"),
    registry("paging buffers where the CPU sees nothing", "seen with one driver", ("PagingBufferSegment", 1), "DXG-SEGMENT-PAGING-VISIBLE"),
    registry("a query of nothing is refused", "DxgkDdiQueryAdapterInfo", ("RefuseQueries", 1 << 16), "DISPLAY_DRIVERCAPS_EXTENSION returned").under("refusals-end-start"),
    table("history buffers of the first node only", "DXGKARG_HISTORYBUFFERPRECISION, Remarks", start::history_of_the_first_node, START, "DXG-CAPS-HISTORY"),
    table("SetVirtualMachineData is NULL", "DRIVER_INITIALIZATION_DATA", start::no_virtual_machine_data, START, "DXG-INIT-SLOT"),
    table("CalibrateGpuClock is NULL", "DRIVER_INITIALIZATION_DATA", start::no_gpu_clock, START, "DXG-INIT-SLOT"),
    table("SetStablePowerState is NULL", "DRIVER_INITIALIZATION_DATA", start::no_stable_power_state, START, "DXG-INIT-SLOT"),
    table("removals are survived unheard", "DxgkDdiNotifySurpriseRemoval, Remarks", start::survives_removals_unheard, START, "DXG-SURPRISE-CAPS"),
    table("AllowExperimental is overwritten", "DXGKARG_QUERYFEATURESUPPORT", start::experimental_overwritten, START, "DXG-FEATURE-INPUT"),
    table("features are answered whatever MaxRung says", "DXGKARG_QUERYFEATURESUPPORT", start::supports_everything, START, "DXG-FEATURE-UNUSED").with(&[("MaxRung", 1)]),
    table("any system process is the paging process", "DXGK_CREATEPROCESSFLAGS", objects::system_context_unread, "ST-57", "DXG-INT-SYSTEM-FAULT"),
    table("odd page table entries are mappings", "DXGK_PTE", objects::odd_entries_mapped, "ST-58", "the device's error did not happen"),
    table("flushes for unknown processes flush nothing", "DXGK_BUILDPAGINGBUFFER_FLUSHTLB", objects::stray_flush_ignored, "ST-61", "NT-MAP-LEFT"),
    table("packets that render nothing run", "DXGK_SUBMITCOMMANDFLAGS", objects::null_packets_run, "ST-60", "STATUS_DEVICE_REMOVED"),
    // Each function and its page.
    table("RenderGdi is refused", "DxgkDdiRenderGdi, Return value", slots::render_gdi_refused, "DD-01", "DxgkDdiRenderGdi returned"),
    table("Present is not supported", "DxgkDdiPresent, Return value", slots::present_not_supported, "DD-01", "DxgkDdiPresent returned"),
    table("PresentToHwQueue is not supported", "DxgkDdiPresentToHwQueue, Return value", slots::present_to_queue_not_supported, "DD-01", "DxgkDdiPresentToHwQueue returned"),
    table("RenderKm is privileged", "DxgkDdiRenderKm, Return value", slots::render_km_privileged, "DD-01", "DxgkDdiRenderKm returned"),
    table("QueryDeviceDescriptor is not supported", "DxgkDdiQueryDeviceDescriptor, Return value", slots::descriptor_not_supported, "DD-01", "DxgkDdiQueryDeviceDescriptor returned"),
    table("PreemptCommand fails", "DxgkDdiPreemptCommand, Return value", slots::preemption_fails, "DD-01", "DXG-PREEMPT-STATUS"),
    table("FormatHistoryBuffer leaves outputs", "DXGKARG_FORMATHISTORYBUFFER", slots::history_half_formatted, "DD-01", "DxgkDdiFormatHistoryBuffer: "),
    table("CalibrateGpuClock overwrites its flags", "DXGK_GPUCLOCKDATA_FLAGS", slots::clock_flags_overwritten, "DD-01", "flags left false"),
    table("flags of allocations are left", "DXGK_ALLOCATIONINFO, Flags2", objects::allocation_flags_left, "DD-10", "DXG-ALLOC-OUTPUT"),
    table("a removal is forgotten", "DxgkDdiNotifySurpriseRemoval", life::removal_forgotten, "DD-02", "DXG-SURPRISE-TOUCH").or_hangs(),
    table("interrupts are claimed by a device that is gone", "DxgkDdiInterruptRoutine", life::claims_when_gone, "DD-02", "DXG-ISR-CLAIM"),
    table("D0 restores nothing", "DxgkDdiSetPowerState", life::wake_ignored, "DD-03", "what was signaled in D3").or_hangs(),
    table("a fence is answered and not reported", "DxgkDdiQueryCurrentFence, Remarks", life::fence_not_reported, "DD-04", "DXG-TDR-FENCE"),
    table("a log cannot be taken away", "DxgkDdiSetNativeFenceLogBuffer", life::log_kept, "DD-06", "DXG-LOG-SET"),
    table("ConnectDoorbell fails while all change hands", "DxgkDdiConnectDoorbell, Return value", life::short_of_doorbells, "DD-07", "DXG-DB-CONNECT"),
    table("flushes end before their end", "DXGK_BUILDPAGINGBUFFER_FLUSHTLB, EndVirtualAddress", objects::flush_ends_before_its_end, "DD-08", "LastPage: NT-MAP-LEFT"),
    table("a bad handle ends a destruction", "DxgkDdiDestroyAllocation", objects::destroys_up_to_a_bad_handle, "DD-09", "DXG-LEAK-MAPPING"),
];

/// The function that plays a case.
fn case(name: &str) -> Option<fn(&Stage) -> Played> {
    match name {
        START => Some(|stage| stage.play(Setup::default(), |_| Ok(()))),
        _ => all().find(|case| case.id == name).map(|case| case.play),
    }
}

/// Plays the case of a mistake, with it or without.
fn play(mistake: &Mistake, made: bool) -> Played {
    let form = match mistake.brings {
        Brings::Table(decorate) if made => Form::Decorated(decorate),
        _ => Form::Native,
    };
    let mut stage = Stage::new(form, 1).with_windows(mistake.windows.parse::<Windows>()?);
    for (name, value) in mistake.settings {
        stage = stage.with_setting(name, *value);
    }
    if let (Brings::Registry((name, value)), true) = (mistake.brings, made) {
        stage = stage.with_setting(name, value);
    }
    match case(mistake.case) {
        Some(play) => play(&stage),
        None => anyhow::bail!("there is no case {}", mistake.case),
    }
}

/// In the environment of a process that plays: the number of the mistake, and whether it is made.
const PLAY: &str = "FENCEPOST_BEFORE";

/// How long a process may play.
const LIMIT: Duration = Duration::from_secs(180);
/// The same of one that a wrong driver may keep for ever.
const LIMIT_OF_HANGS: Duration = Duration::from_secs(15);
/// Why that failed.
const HANGS: &str = "it did not end";
/// Seconds that a case waits for what a mistake keeps from happening.
const PATIENCE: u64 = 3;

/// Plays in a process of its own, since a wrong driver may take its process with it. Why it failed.
fn apart(number: usize, made: bool, limit: Duration) -> Result<Option<String>, Failed> {
    let mut child = Command::new(std::env::current_exe()?);
    let child = child.env(PLAY, format!("{number} {made}")).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = child.spawn()?;
    let end = Instant::now() + limit;
    while child.try_wait()?.is_none() {
        if Instant::now() > end {
            child.kill()?;
            child.wait()?;
            return Ok(Some(HANGS.to_owned()));
        }
        std::thread::park_timeout(Duration::from_millis(20));
    }
    let output = child.wait_with_output()?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    Ok(if output.status.success() { None } else { Some(format!("{}: {text}", output.status)) })
}

/// What that process does.
fn played(task: &str) -> ExitCode {
    let task = task.split_once(' ').and_then(|(number, made)| Some((number.parse().ok()?, made.parse().ok()?)));
    let Some((mistake, made)) = task.and_then(|(number, made): (usize, bool)| Some((MISTAKES.get(number)?, made)))
    else {
        return ExitCode::from(2);
    };
    if made {
        wait_at_most(PATIENCE);
    }
    match catch_unwind(AssertUnwindSafe(|| play(mistake, made))) {
        Ok(Ok(())) => ExitCode::SUCCESS,
        Ok(Err(error)) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
        Err(_) => ExitCode::FAILURE,
    }
}

fn noticed(number: usize, mistake: &Mistake) -> Result<(), Failed> {
    let limit = if mistake.may_hang { LIMIT_OF_HANGS } else { LIMIT };
    match apart(number, true, limit)? {
        None => Err(format!("{} passed although {} ({})", mistake.case, mistake.name, mistake.source).into()),
        Some(why) if why.contains(mistake.says) || mistake.may_hang && why == HANGS => {
            println!("{}: {why}", mistake.name);
            Ok(())
        }
        Some(why) => Err(format!("'{}' is not in {why}", mistake.says).into()),
    }
}

fn main() -> ExitCode {
    if let Ok(task) = std::env::var(PLAY) {
        return played(&task);
    }
    let mut arguments = Arguments::from_args();
    // Part of a case is waiting.
    arguments.test_threads = arguments.test_threads.or(Some(6));
    let mut trials = Vec::new();
    let mut without = BTreeSet::new();
    for (number, mistake) in MISTAKES.iter().enumerate() {
        let title = format!("{}: {} says {}", mistake.name, mistake.case, mistake.says);
        trials.push(Trial::test(title, move || noticed(number, mistake)));
        if without.insert((mistake.case, mistake.settings, mistake.windows)) {
            let title = format!("{} passes as it is, {:?}, {}", mistake.case, mistake.settings, mistake.windows);
            trials.push(Trial::test(title, move || match apart(number, false, LIMIT)? {
                None => Ok(()),
                Some(why) => Err(why.into()),
            }));
        }
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}
