//! Every mutation of the driver and of its GPU is noticed: by a conformance case, by a case of this test's own, by a
//! loom test, by a test of the engine or by the schedule explorer. A mutation in no row fails
//! `every mutation has a row`; a case that the driver does not pass without a mutation fails, too, since it would
//! notice anything. `broken.rs` has what shows at the driver's table or at its callbacks: mistakes of which the driver
//! knows nothing. `user_mode.rs` has the mutations of the user-mode driver that need a case; the others are noticed by
//! tests of `umd/core`. `os.rs` has steps of a recovery that the model leaves out: the cases about the article's order
//! of steps notice those. `older.rs` has the user-mode driver's image with records of another kit.
//!
//! `./x test --test mutations -- WS-02` plays what has to do with a case, `-- NoParkRecheck` what has to do with a
//! mutation.

mod broken;
mod older;
mod os;
mod own;
mod suspensions;
mod user_mode;

use fencepost::scenario::{Played, Stage, all, wait_at_most};
use fencepost::world::{Form, Images};
use gpu_engine::mutation::Mutation::{self, *};
use libtest_mimic::{Arguments, Failed, Trial};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{Command, ExitCode};
use std::sync::Arc;

/// Who must notice a mutation.
#[derive(Clone, Copy)]
enum By {
    /// At least one of these cases fails: ids of conformance cases, or names of [`own::CASES`].
    Cases(&'static [&'static str]),
    /// These tests in `gpu/engine/tests/loom` demand that loom finds a failing execution.
    Loom(&'static [&'static str]),
    /// The row with this test in `gpu/engine/tests/engine/main.rs`: `what_is_left_out_is_noticed`.
    Engine(&'static str),
    /// `tests/explore` finds a schedule.
    Explorer,
}

use By::{Cases, Engine, Explorer, Loom};

const TABLE: &[(Mutation, &[By])] = &[
    // FENCE-1, PARK-1, WAKE-1, READY-1, RESET-1: orders that x86 keeps, or that take a chance in a thousand.
    (NoSignalBarrier, &[Loom(&["fence_1_needs_the_barrier_of_the_signal", "park_1_needs_the_barrier_of_the_signal"])]),
    (
        NoMonitoredBarrier,
        &[Loom(&["fence_1_needs_the_barrier_of_the_update", "fence_1_the_shadow_needs_both_barriers"])],
    ),
    (
        NoParkRecheck,
        &[Loom(&[
            "park_1_needs_the_second_look",
            "park_1_a_signal_from_the_cpu_needs_the_second_look",
            "park_1_the_end_of_a_fence_needs_the_second_look",
        ])],
    ),
    (ShadowNotRechecked, &[Loom(&["fence_1_the_shadow_needs_its_second_look"]), Explorer]),
    (ShadowFirst, &[Loom(&["fence_1_the_shadow_needs_the_word_before_it"]), Explorer]),
    (NoSleepBarrier, &[Loom(&["wake_1_needs_the_barrier_of_the_engine"])]),
    (NoTurnBarrier, &[Loom(&["gone_1_needs_the_barrier"])]),
    (ClearsReadyByStore, &[Loom(&["ready_1_needs_the_exchange"])]),
    (HandsOverUnordered, &[Loom(&["ready_1_a_state_needs_the_release"])]),
    (ReadsRingUnordered, &[Loom(&["ring_1_needs_the_acquire_of_the_engine"])]),
    (HoldsRelaxed, &[Loom(&["reset_1_needs_the_release"])]),
    (RunsUnasked, &[Loom(&["reset_1_needs_the_second_look"])]),
    (SpeaksUnfenced, &[Loom(&["reset_1_a_report_needs_its_second_look_fenced"])]),
    (NotifyBeforeValue, &[Cases(&["WS-02"]), Loom(&["fence_1_needs_the_value_before_the_decision"])]),
    // Doorbells.
    (NotesUnserved, &[Explorer]),
    (RoundsBeginAnew, &[Engine("global::ringing_without_an_end_leaves_no_queue_out")]),
    (RoundsForgetRings, &[Engine("global::a_ring_during_a_round_begins_another")]),
    (KeepsTheTurn, &[Cases(&["DB-37"]), Engine("global::queues_that_always_have_work_have_turns_one_after_the_other")]),
    (KeepsWindows, &[Cases(&["RP-17"]), Engine("mappings::nothing_is_mapped_of_a_ring_that_may_be_evicted")]),
    (WatchesOn, &[Cases(&["DB-74"])]),
    (WatchesConnected, &[Cases(&["DB-74"])]),
    (WatchesOld, &[Cases(&["DB-74"])]),
    (NoLastLook, &[Cases(&["DB-43"]), Explorer]),
    // Monitored values and interrupts.
    (AcknowledgesLate, &[Explorer]),
    (
        DropOnOverflow,
        &[
            Loom(&["irq_1_needs_the_scan_where_there_is_no_room"]),
            Engine("fences::an_overflowing_mailbox_asks_for_a_scan_of_everything"),
        ],
    ),
    (
        KeepsMarkWhenFull,
        &[
            Loom(&["irq_1_needs_the_mark_taken_back_where_there_is_no_room"]),
            Engine("fences::an_overflowing_mailbox_asks_for_a_scan_of_everything"),
        ],
    ),
    (WithdrawsLate, &[Loom(&["irq_1_needs_the_withdrawal_first"])]),
    (TakesScanFirst, &[Loom(&["irq_1_needs_the_scan_word_behind_the_withdrawal"])]),
    (ClearsMarkLate, &[Loom(&["irq_1_needs_the_mark_cleared_before_the_report"])]),
    (MarksTheSlot, &[Loom(&["irq_1_marks_are_of_a_generation"])]),
    (ForgetsFailedInterrupt, &[Engine("fences::an_interrupt_that_cannot_be_raised_is_asked_for_again")]),
    (RunsWhenFull, &[Engine("limits::an_engine_whose_reports_have_no_room_runs_nothing")]),
    (ReportsWhileHeld, &[Engine("fences::a_fence_that_no_engine_signals_is_reported_by_a_node_that_is_not_held")]),
    // Native fences.
    (
        WritesDeadFence,
        &[
            Loom(&["dead_1_needs_the_look_whether_the_fence_is_dead"]),
            Engine("fences::an_always_signaled_fence_passes_waits_and_drops_signals"),
        ],
    ),
    (StoresUnlocked, &[Loom(&["dead_1_needs_the_lock_around_the_store"])]),
    // Monitored fences.
    (StoresNarrowWide, &[Cases(&["MF-14"]), Engine("monitored::a_narrow_signal_stores_32_bits")]),
    (SignalsUnable, &[Cases(&["MF-13"]), Engine("monitored::an_unable_engine_writes_its_progress_fence_only")]),
    // Logs.
    (
        IndexBeforeEntry,
        &[Loom(&["log_1_needs_the_entry_before_the_index"]), Engine("logs::the_index_is_written_behind_the_entry")],
    ),
    (StretchPassesStore, &[Engine("stretches::a_store_to_a_fences_word_comes_behind_the_signals_before_it")]),
    (OwnEntryLate, &[Engine("fused::no_interrupt_is_ahead_of_its_own_entry")]),
    (NextRingGoesOn, &[Engine("rings::the_old_ring_runs_to_its_end_before_the_new_one_begins_at_zero")]),
    (LeavesUnlooked, &[Engine("rings::what_is_published_in_front_of_another_ring_runs_where_the_engine_rests")]),
    (RunsAside, &[Engine("rings::nothing_runs_while_a_ring_is_set_aside")]),
    (MergesByAddress, &[Engine("amid::signals_of_two_fences_at_one_address_wake_what_waits_for_each")]),
    (DrawsAtTheEnd, &[Engine("amid::a_signal_wakes_in_front_of_the_second_cold_page")]),
    (NoLogBarrier, &[Loom(&["log_1_with_one_barrier_needs_the_flush"])]),
    // Contexts, queues.
    (AnswersResumed, &[Engine("limits::a_suspension_that_was_taken_back_is_not_answered")]),
    (
        ReportsLostSuspension,
        &[
            Cases(&["a suspension behind an engine reset"]),
            Engine("limits::a_suspension_of_a_context_that_a_reset_takes_is_not_answered"),
        ],
    ),
    (
        ReportsSuspensionsOfLost,
        &[
            Cases(&["a suspension behind an adapter reset"]),
            Engine("limits::a_suspension_is_not_answered_behind_an_adapter_reset"),
        ],
    ),
    // What was raised before a reset.
    (KeepsAborted, &[Cases(&["TE-43"])]),
    (ResetRaisesNothing, &[Cases(&["TE-43"])]),
    (ResumeRaisesNothing, &[Cases(&["TE-44"])]),
    (ReportsOldHang, &[Cases(&["TE-44"]), Cases(&["TE-86"])]),
    (KeepsLost, &[Cases(&["TE-45"])]),
    (KeepsLostAnswer, &[Cases(&["TE-83"])]),
    (KeepsLostFault, &[Cases(&["TE-83"])]),
    (KeepsLostHang, &[Cases(&["TE-83"])]),
    (RunsLost, &[Cases(&["TE-81"])]),
    (KeepsWaitingPackets, &[Cases(&["TE-81"])]),
    (AdapterNamesPacket, &[Cases(&["TA-22"])]),
    (HeldKeepsReports, &[Engine("limits::what_an_engine_held_with_is_over_when_the_adapters_reset_follows")]),
    (BacklogKeepsPackets, &[Engine("limits::ends_of_packets_that_had_no_room_are_over_with_a_reset")]),
    (LeavesHeldEngine, &[Cases(&["TE-85"])]),
    (LeavesQueuesOut, &[Cases(&["TE-77"])]),
    // Settings that break the GPU on purpose, on a machine that is not one for tests.
    (ArmsCorruption, &[Cases(&["TA-23"])]),
    (ArmsInterrupts, &[Cases(&["TA-23"])]),
    (OldEngineGoesOn, &[Engine("replaced::an_engine_that_was_given_up_touches_nothing_when_it_comes_back")]),
    (NamesAnother, &[Cases(&["TE-24"])]),
    (ArmsWedge, &[Cases(&["TA-23"])]),
    (ArmsLoss, &[Cases(&["TA-23"])]),
    (RestartRaisesNothing, &[Cases(&["TE-45"])]),
    (LeavesBusyQueue, &[Cases(&["BI-51"])]),
    (WatchesDestroyed, &[Engine("limits::a_destroyed_queue_is_not_watched")]),
    (BelievesWritePointer, &[Engine("faults::hostile_write_pointers_fault_their_queue")]),
    (KernelQueueStays, &[Engine("limits::a_kernel_queue_leaves_its_engine_between_two_buffers")]),
    (StarvedKeepsWindows, &[Engine("limits::an_engine_that_is_short_of_memory_keeps_nothing_mapped")]),
    // Threads.
    (CompletesEarly, &[Cases(&["DB-54"])]),
    (ResumesOne, &[Cases(&["DB-32"])]),
    (KeepsRing, &[Cases(&["DB-20"])]),
    (KeepsDoorbells, &[Cases(&["PT-41"])]),
    (RunsInF1, &[Cases(&["DB-70"])]),
    (DropsInF1, &[Cases(&["DB-80"])]),
    (KeepsShare, &[Cases(&["DB-35"])]),
    (GivesNoGrace, &[Cases(&["DB-81"])]),
    (
        ForgetsEngineResets,
        &[Engine("taken_off::a_packet_that_an_engine_reset_gave_back_goes_on_without_the_flag"), Cases(&["TE-105"])],
    ),
    (LeavesRing, &[Cases(&["DB-20"])]),
    (RestsAreWork, &[Cases(&["DD-22"])]),
    // Packets.
    (ForgetsRefused, &[Engine("packet_room::a_packet_that_is_not_kept_counts_as_completed_behind_the_others")]),
    (BeginsAnew, &[Engine("taken_off::a_packet_that_is_taken_off_goes_on_under_another_fence")]),
    (CountsTakenOff, &[Engine("taken_off::a_packet_that_is_taken_off_goes_on_under_another_fence")]),
    (FencesRunBack, &[Engine("taken_off::a_paging_packet_that_comes_back_does_not_run_the_fences_back")]),
    // Wakes.
    (WakesAllAtOnce, &[Engine("charges::a_signal_is_charged_by_the_queues_that_it_wakes")]),
    (GrantsLater, &[Engine("waking::a_wait_that_begins_behind_the_store_reads_the_value")]),
    (HoldForgetsWakes, &[Engine("waking::an_engine_that_is_held_wakes_them_all")]),
    // Paging.
    (MapsNeighbours, &[Cases(&["ST-67"]), Engine("mappings::a_mapping_covers_what_was_asked_for")]),
    (MapsWritable, &[Cases(&["WS-02"]), Engine("mappings::what_is_only_read_is_mapped_for_reading")]),
    (FlushNotWaited, &[Engine("packet_mode::paging_packets_change_translations_only_after_every_engine_let_go")]),
];

/// What is noticed below the highest rung as well, by a case and on which rungs: mutations about resets, whose packets
/// and hardware queues every rung has. Rows of [`TABLE`] are played on the highest.
///
/// Left out is what a rung has not: rung 0 has no hardware queues (RunsLost, NamesAnother). Then what it does not show
/// each time: a fence's signal that a reset leaves unsaid may be said with the next one (ResetRaisesNothing, and
/// ResumeRaisesNothing on rung 2), and a queue of the kernel's may have nothing left to go on with (RunsLost on rungs 1
/// and 2). And what takes a case's whole patience to show (AdapterNamesPacket on rung 0).
const BELOW: &[(Mutation, &str, &[u32])] = &[
    (KeepsAborted, "TE-43", &[0, 1, 2]),
    (ResumeRaisesNothing, "TE-44", &[1]),
    (ReportsOldHang, "TE-44", &[1, 2]),
    (ReportsOldHang, "TE-86", &[0, 1, 2]),
    (KeepsLost, "TE-45", &[0, 1, 2]),
    (RestartRaisesNothing, "TE-45", &[0, 1, 2]),
    (KeepsLostAnswer, "TE-83", &[0, 1, 2]),
    (KeepsLostFault, "TE-83", &[0, 1, 2]),
    (KeepsLostHang, "TE-83", &[0, 1, 2]),
    (KeepsWaitingPackets, "TE-81", &[0, 1, 2]),
    (AdapterNamesPacket, "TA-22", &[1, 2]),
    (LeavesHeldEngine, "TE-85", &[0, 1, 2]),
    (NamesAnother, "TE-24", &[1, 2]),
];

/// The conformance case with this id, or the case of this test's own with this name.
fn case(name: &str) -> Result<fn(&Stage) -> Played, Failed> {
    let own = own::CASES.iter().find(|(own, _)| *own == name).map(|(_, play)| *play);
    let play = own.or_else(|| all().find(|case| case.id == name).map(|case| case.play));
    play.ok_or_else(|| format!("there is no case {name}").into())
}

/// In the environment of a process that plays a case: the numbers of the mutations of driver and user-mode driver, the
/// number of the row of [`broken::TABLE`] or `none`, whether it is played on the images, the number of a departure of
/// the model or `none`, the rung, and the case's name.
const PLAY: &str = "FENCEPOST_MUTATION_CASE";

/// Seconds that a case looks for what must happen, while the user-mode driver is wrong or the driver broken: longer
/// than the model takes to say that a buffer does not run.
const PATIENCE: u64 = 8;

/// What is wrong: numbers of mutations, 0 for none.
#[derive(Clone, Copy, Default)]
struct Wrong {
    /// Of the driver and its GPU.
    driver: u32,
    /// Of the user-mode driver.
    user_mode: u32,
    /// A row of [`broken::TABLE`].
    broken: Option<usize>,
    /// Whether the images are played, not what is linked in; with a row of [`broken::TABLE`] alone.
    image: bool,
    /// What the model does otherwise than the documents say, by its place in [`os::TABLE`].
    departs: Option<usize>,
    /// How many rungs below the highest the case is played.
    below: u32,
}

/// Plays the case in a process of its own, since a wrong driver that is linked in may take its process with it. Why the
/// case failed.
fn play(name: &str, wrong: Wrong) -> Result<Option<String>, Failed> {
    case(name)?;
    let mut child = Command::new(std::env::current_exe()?);
    let number = |of: Option<usize>| of.map_or("none".to_owned(), |number| number.to_string());
    let (broken, departs) = (number(wrong.broken), number(wrong.departs));
    let Wrong { driver, user_mode, image, below, .. } = wrong;
    let task = format!("{driver} {user_mode} {broken} {image} {departs} {below} {name}");
    let output = child.env(PLAY, task).output()?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    match output.status.code() {
        Some(0) => Ok(None),
        Some(2) => Err(format!("{name} could not be played: {text}").into()),
        _ => Ok(Some(format!("{}: {text}", output.status))),
    }
}

/// What that process does.
fn played(task: &str) -> ExitCode {
    let mut parts = task.splitn(7, ' ');
    let mut next = || parts.next().unwrap_or_default();
    let (Ok(driver), Ok(user_mode)) = (next().parse::<u32>(), next().parse()) else { return ExitCode::from(2) };
    let broken = next().parse().ok().and_then(|number: usize| broken::TABLE.get(number));
    let Ok(image) = next().parse() else { return ExitCode::from(2) };
    let departs = next().parse().ok().and_then(|number: usize| os::TABLE.get(number));
    let (Ok(below), Ok(play)) = (next().parse::<u32>(), case(next())) else { return ExitCode::from(2) };
    if user_mode != 0 || broken.is_some() || departs.is_some() {
        wait_at_most(PATIENCE);
    }
    let form = match (broken, image) {
        (None, _) => Form::UserModeMutant(user_mode),
        (Some(broken), false) => Form::Decorated(broken.decorate),
        (Some(broken), true) => match Images::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("out")) {
            Ok(images) => Form::DecoratedImage(Arc::new(images), broken.decorate),
            Err(_) => return ExitCode::from(2),
        },
    };
    let mut stage = Stage::new(form, 1).with_setting("Mutant", driver);
    if below != 0 {
        stage = stage.with_setting("MaxRung", 3 - below);
    }
    if let Some((how, ..)) = departs {
        stage = stage.with_departure(*how);
    }
    match play(&stage) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

/// How often each case is played before a mutation counts as not noticed: what a race shows, it shows most of the time.
const TRIES: usize = 5;

fn noticed_by_cases(mutation: Mutation, names: &[&str], rung: u32) -> Result<(), Failed> {
    for name in names.repeat(TRIES) {
        // CAST: its number.
        if let Some(why) = play(name, Wrong { driver: mutation as u32, below: 3 - rung, ..Wrong::default() })? {
            println!("{}: {name}: {why}", mutation.name());
            return Ok(());
        }
    }
    Err(format!("{} passed {TRIES} times on rung {rung} with {}", names.join(", "), mutation.name()).into())
}

/// The text of the function `name` in `source`.
fn function<'s>(source: &'s str, name: &str) -> Result<&'s str, Failed> {
    let at = source.find(&format!("\nfn {name}(")).ok_or_else(|| format!("there is no test {name}"))?;
    let text = &source[at..];
    Ok(text.split("\n}\n").next().unwrap_or(text))
}

/// The test must demand that the mutation is found; it runs with `gpu_engine`'s own tests.
fn noticed_elsewhere(mutation: Mutation, by: By) -> Result<(), Failed> {
    let fences = include_str!("../../gpu/engine/tests/loom/fences.rs");
    let engines = include_str!("../../gpu/engine/tests/loom/engines.rs");
    let notices = include_str!("../../gpu/engine/tests/loom/notices.rs");
    let storing = include_str!("../../gpu/engine/tests/loom/storing.rs");
    let dead = include_str!("../../gpu/engine/tests/loom/dead.rs");
    let handed_over = include_str!("../../gpu/engine/tests/loom/handed_over.rs");
    let loom = [fences, engines, notices, storing, dead, handed_over].concat();
    let engine = include_str!("../../gpu/engine/tests/engine/main.rs");
    let explore = include_str!("../explore/main.rs");
    let has = |text: &str, what: &str| -> Result<(), Failed> {
        if text.contains(what) { Ok(()) } else { Err(format!("no {what} there").into()) }
    };
    match by {
        Cases(_) => Ok(()),
        Loom(tests) => tests
            .iter()
            .try_for_each(|test| has(function(&loom, test)?, &format!("caught(Mutation::{}", mutation.name()))),
        Engine(test) => has(engine, &format!("(Mutation::{}, {test}),", mutation.name())),
        Explorer => has(explore, &format!("found(Mutation::{}", mutation.name()))
            .or_else(|_| has(explore, &format!("found_in_shadow(Mutation::{}", mutation.name())))
            .or_else(|_| has(explore, &format!("found_with_pauses(Mutation::{}", mutation.name()))),
    }
}

fn every_mutation_has_a_row() -> Result<(), Failed> {
    for mutation in Mutation::ALL {
        let rows = TABLE.iter().filter(|(of, _)| of == mutation).count();
        let by = TABLE.iter().filter(|(of, _)| of == mutation).map(|(_, by)| by.len()).sum::<usize>();
        if rows != 1 || by == 0 {
            return Err(format!("{} has {rows} rows, noticed by {by}", mutation.name()).into());
        }
    }
    Ok(())
}

fn main() -> ExitCode {
    if let Ok(task) = std::env::var(PLAY) {
        return played(&task);
    }
    let mut arguments = Arguments::from_args();
    // Most of a case is waiting, above all for what a mutation keeps from happening.
    arguments.test_threads = arguments.test_threads.or(Some(12));
    let mut trials = vec![Trial::test("every mutation has a row", every_mutation_has_a_row)];
    let mut cases: BTreeMap<&str, ()> = own::CASES.iter().map(|(name, _)| (*name, ())).collect();
    for (mutation, by) in TABLE {
        for by in *by {
            let name = mutation.name();
            if let Cases(names) = by {
                cases.extend(names.iter().map(|name| (*name, ())));
                let mut distinct = names.to_vec();
                distinct.dedup();
                let title = format!("{name} is noticed by {}", distinct.join(" or "));
                trials.push(Trial::test(title, || noticed_by_cases(*mutation, names, 3)));
            } else {
                trials.push(Trial::test(format!("{name} is noticed elsewhere"), || noticed_elsewhere(*mutation, *by)));
            }
        }
    }
    let mut lower = BTreeSet::new();
    for (mutation, name, rungs) in BELOW {
        for rung in *rungs {
            lower.insert((*rung, *name));
            let title = format!("{} is noticed by {name} on rung {rung}", mutation.name());
            trials.push(Trial::test(title, || noticed_by_cases(*mutation, &[name], *rung)));
        }
    }
    cases.extend(broken::TABLE.iter().flat_map(|broken| broken.cases).map(|name| (*name, ())));
    trials.extend(broken::trials());
    cases.extend(user_mode::TABLE.iter().map(|(_, name, _)| (*name, ())));
    trials.extend(user_mode::trials());
    lower.extend(os::lower());
    for (rung, name) in lower {
        trials.push(Trial::test(format!("{name} passes on rung {rung} without a mutation"), move || {
            match play(name, Wrong { below: 3 - rung, ..Wrong::default() })? {
                None => Ok(()),
                Some(why) => Err(why.into()),
            }
        }));
    }
    trials.extend(os::trials());
    trials.extend(older::trials());
    cases.extend(os::TABLE.iter().filter(|(_, rung, _)| *rung == 3).map(|(.., name)| (*name, ())));
    for name in cases.into_keys() {
        trials.push(Trial::test(format!("{name} passes without a mutation"), move || {
            match play(name, Wrong::default())? {
                None => Ok(()),
                Some(why) => Err(why.into()),
            }
        }));
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}
