//! What the scenario library promises those who write cases, as another crate sees it: each helper that its first page
//! names is there and is public, and a case can say what the page says that it can.

use anyhow::{Context, bail};
use dxgkrnl_model::personality::Gate;
use fencepost::scenario::{Client, DdiCall, LIMIT, Outcome, Played, Scenario, Setup, Stage, Status, run, same, skip};
use fencepost::world::Form;
use std::path::Path;
use std::time::{Duration, Instant};
use wddm_abi::ntstatus::STATUS_SUCCESS;
use wddm_abi::{DXGKARG_CREATECONTEXT, DXGKARG_UPDATECURRENTVALUESFROMCPU, HANDLE, NTSTATUS};

/// The first page of the library.
const PAGE: &str = include_str!("../src/scenario/mod.rs");

/// The second cells of the table "which helper for which test", each with the first.
fn helpers() -> Vec<(&'static str, &'static str)> {
    let (_, table) = PAGE.split_once("//! | for a test of | there is |\n").expect("the table");
    let rows = table.lines().skip(1).take_while(|line| line.starts_with("//! |"));
    rows.map(|row| row.trim_start_matches("//! |").trim_end_matches('|').split_once(" | ").expect("two cells"))
        .collect()
}

/// What stands between backquotes.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// Every source below `folder`.
fn sources(folder: &Path, text: &mut String) {
    for entry in std::fs::read_dir(folder).expect("a source folder").flatten() {
        match entry.path() {
            path if path.is_dir() => sources(&path, text),
            path => text.push_str(&std::fs::read_to_string(path).expect("a source file")),
        }
    }
}

/// Returns whether `all` declares this public function, type, constant, macro or member.
fn is_public(all: &str, name: &str) -> bool {
    let kinds = ["fn", "const fn", "struct", "enum", "const", "trait", "type"];
    let declared = |line: &str| {
        let line = line.trim_start();
        let named = |rest: &str| {
            rest.strip_prefix(name)
                .is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_'))
        };
        let item = line.strip_prefix("pub ").is_some_and(|rest| {
            named(rest)
                || kinds
                    .iter()
                    .any(|kind| rest.strip_prefix(kind).and_then(|rest| rest.strip_prefix(' ')).is_some_and(named))
        });
        item || line.strip_prefix("macro_rules! ").is_some_and(named)
    };
    all.lines().any(declared)
}

#[test]
fn every_helper_of_the_page_is_there_for_other_crates() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut all = String::new();
    for folder in ["src", "dxgkrnl_model/src", "nt_model/src", "cases/src", "gpu/wire/src"] {
        sources(&root.join(folder), &mut all);
    }
    let mut named = 0;
    let mut missing = Vec::new();
    for (what, helpers) in helpers() {
        for name in quoted(helpers) {
            named += 1;
            let last = name.trim_end_matches('!').rsplit("::").next().unwrap_or(name);
            // A case names a type by the library's own path, or is handed a value of it.
            let owner = name.split("::").next().unwrap_or(name);
            let is_member = name.contains("::");
            let is_exported = is_member || name.ends_with('!') || PAGE.lines().any(|line| is_in_list(line, owner));
            let is_there = if is_member { is_public(&blocks_of(&all, owner), last) } else { is_public(&all, last) };
            if !is_there || !is_exported {
                missing.push(format!("{name} ({what})"));
            }
        }
    }
    assert!(missing.is_empty() && named > 50, "{named} names; not there: {missing:#?}");
    assert!(is_public(&blocks_of(&all, "Os"), "suspend") && !is_public(&blocks_of(&all, "Raw"), "suspend"));
    assert!(!is_public(&all, "no_such_helper") && !is_public("pub(super) fn hidden() {}", "hidden"));
}

/// The declaration of a type, and its `impl` blocks, among them those that macros fill.
fn blocks_of(all: &str, owner: &str) -> String {
    let begins = |line: &&str| {
        let line = line.trim_start();
        let declares = line.starts_with("impl") || line.starts_with("pub struct") || line.starts_with("pub enum");
        declares && !line.contains(" for ") && is_in_list(line, owner)
    };
    let mut blocks = String::new();
    let mut lines = all.lines();
    while let Some(first) = lines.find(begins) {
        let indent = first.len() - first.trim_start().len();
        let end = format!("{}}}", " ".repeat(indent));
        blocks.extend(lines.by_ref().take_while(|line| *line != end).flat_map(|line| [line, "\n"]));
    }
    blocks
}

/// Returns whether a line of code has this name among others.
fn is_in_list(line: &str, name: &str) -> bool {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    !line.trim_start().starts_with("//") && line.split(|c| !is_word(c)).any(|word| word == name)
}

/// Plays a case of these tests with the driver linked in.
fn played(play: fn(&Stage) -> Played) -> Outcome {
    let case = Scenario { id: "XX-01", title: "a case of a test", source: "tests/case_library.rs", play };
    run(&[Box::leak(Box::new(case))], &Stage::new(Form::Native, 1), LIMIT, &|_| ()).remove(0)
}

fencepost::decorate! {
    /// Values of the CPU are not written.
    writes_nothing: DxgkDdiUpdateCurrentValuesFromCpu(_args: *const DXGKARG_UPDATECURRENTVALUESFROMCPU) -> NTSTATUS {
        STATUS_SUCCESS
    }
}

/// A value that the CPU signals; where it must be written, and may not be.
fn signal(stage: &Stage, setup: Setup) -> Played {
    stage.play(setup, |scene| {
        let client = Client::open(scene, "signals")?;
        let fence = client.fence(0, true)?;
        client.signal(&[(&fence, 5)])
    })
}

/// The rule that such a driver breaks.
const RULE: &str = "DXG-NF-CURRENT-WRITTEN";

/// Callbacks that a driver may call above PASSIVE_LEVEL by their pages, and the lowest and the highest level.
const ABOVE_PASSIVE: &[(&str, u8, u8)] = &[
    ("DxgkCbAcquireHandleData", 0, 1),
    ("DxgkCbAcquirePostDisplayOwnership", 0, 1),
    ("DxgkCbCompleteFStateTransition", 0, 2),
    ("DxgkCbGetHandleData", 0, 1),
    ("DxgkCbGetHandleParent", 0, 1),
    ("DxgkCbLogEtwEvent", 0, 15),
    ("DxgkCbNotifyDpc", 2, 2),
    ("DxgkCbNotifyInterrupt", 3, 14),
    ("DxgkCbPowerRuntimeControlRequest", 0, 2),
    ("DxgkCbQueueDpc", 0, 15),
    ("DxgkCbReleaseHandleData", 0, 1),
    ("DxgkCbReportDiagnostic", 0, 2),
    ("DxgkCbSetPowerComponentIdle", 0, 2),
    ("DxgkCbSetPowerComponentLatency", 0, 2),
    ("DxgkCbSetPowerComponentResidency", 0, 2),
    ("DxgkCbSynchronizeExecution", 0, 2),
];

/// The levels at which the model lets callbacks be called are those of the table.
#[test]
fn callbacks_above_passive_level_are_known() {
    let mut all = String::new();
    sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("dxgkrnl_model/src"), &mut all);
    let limits = |line: &str| {
        let (_, routine) = line.trim().strip_suffix(';')?.split_once(" = \"DxgkCb")?;
        let (name, rest) = routine.split_once('"')?;
        let (min, max) = rest.rsplit_once(' ')?.1.split_once("..=")?;
        Some((format!("DxgkCb{name}"), min.parse::<u8>().ok()?, max.parse::<u8>().ok()?))
    };
    let mut found: Vec<_> = all.lines().filter_map(limits).filter(|(_, _, max)| *max != 0).collect();
    found.sort();
    let want: Vec<_> = ABOVE_PASSIVE.iter().map(|(name, min, max)| ((*name).to_owned(), *min, *max)).collect();
    assert_eq!(found, want);
}

/// Work of a client while a callback is to be held: how often it was held, how often it came where nothing may wait,
/// and what the stage said.
fn holding(callback: &'static str) -> (u64, u64, Played) {
    let gate = Gate::default();
    let setup = Setup::default().windows(|windows| windows.gates.callback = Some((callback, gate.clone())));
    // Whoever comes may go on.
    (0..1000).for_each(|_| gate.let_through());
    let played = Stage::new(Form::Native, 1).play(setup, |scene| {
        let client = Client::open(scene, "works")?;
        let (queue, page) = (client.queue(0)?, client.page()?);
        let done = queue.run(|list| list.store(page.at(0), 1))?;
        queue.wait(done, Some(Duration::from_secs(20)))?;
        same("work", page.word(0)?, 1)
    });
    (gate.came(), gate.passed_above(), played)
}

/// A callback that a driver calls where nothing may wait is not held, and a case that means to hold it is told so; one
/// that it calls at PASSIVE_LEVEL is held, whatever its page allows.
#[test]
fn callbacks_are_held_at_passive_level_alone() {
    for (callback, least, _) in ABOVE_PASSIVE.iter().filter(|(_, least, _)| *least != 0) {
        let (came, above, played) = holding(callback);
        let said = format!("{:#}", played.expect_err(callback));
        assert!(came == 0 && above != 0 && least >= &2, "{callback}: held {came} times, {above} above");
        let why = format!("{callback} was to be held: it came ");
        let level = " and nothing may wait above PASSIVE_LEVEL";
        assert!(said.starts_with(&why) && said.contains("last at IRQL ") && said.contains(level), "{said}");
    }
    // Its page allows DISPATCH_LEVEL, and this driver calls it at either.
    let (came, _, played) = holding("DxgkCbSynchronizeExecution");
    played.expect("work");
    assert!(came != 0, "no call was held");
    let (came, above, played) = holding("DxgkCbGetDeviceInformation");
    played.expect("work");
    assert!(came != 0 && above == 0, "held {came} times, {above} above");
    let said = format!("{:#}", holding("DxgkCbDisconnectsDoorbell").2.expect_err("no callback"));
    assert!(said.starts_with("DxgkCbDisconnectsDoorbell was to be held, and no driver has called it"), "{said}");
}

fencepost::decorate! {
    /// The record says something else when the driver returns.
    writes_into_its_record: DxgkDdiCreateContext(
        device: HANDLE,
        args: *mut DXGKARG_CREATECONTEXT,
    ) -> NTSTATUS {
        let status = fencepost::own!(DxgkDdiCreateContext(device, args));
        fencepost::record!(args).NodeOrdinal = 77;
        status
    }
}

/// The journal has arguments as they were when the driver was called, flags and all.
#[test]
fn the_journal_has_arguments_as_the_driver_was_given_them() {
    let setup = Setup::default().with_driver(writes_into_its_record);
    let played = Stage::new(Form::Native, 1).play(setup, |scene| {
        let client = Client::open(scene, "works")?;
        let (queue, page) = (client.queue(1)?, client.page()?);
        queue.run(|list| list.store(page.at(0), 1))?;
        page.until(scene, "work", 0, 1)?;
        let calls = scene.journal_with_arguments(&["DxgkDdiCreateContext"]);
        let nodes: Vec<_> = calls.iter().filter_map(|call| call.get("NodeOrdinal")).collect();
        same("a node that no call named", nodes.contains(&77), false)?;
        same("calls that name the client's node", nodes.contains(&1), true)?;
        let submitted = scene.journal_with_arguments(&["DxgkDdiSubmitCommandVirtual"]);
        let pages = |call: &DdiCall| call.get("Flags").is_some_and(|flags| flags & 1 == 1);
        same("paging packets by their flags", submitted.iter().any(pages), true)?;
        same("packets without flags", submitted.iter().filter(|call| call.get("Flags").is_none()).count(), 0)
    });
    played.expect("a journal of what was called");
}

#[test]
fn a_rule_may_be_broken_or_not_where_a_race_decides() {
    let broken = |setup: Setup| setup.with_driver(writes_nothing);
    let outcome = played(|stage| {
        signal(stage, Setup::default().may_break(&[RULE])).context("a right driver")?;
        signal(stage, Setup::default().with_driver(writes_nothing).may_break(&[RULE])).context("a wrong one")
    });
    assert_eq!(outcome.status, Status::Pass, "{}", outcome.reason);
    let stage = Stage::new(Form::Native, 1);
    let said = format!("{:#}", signal(&stage, broken(Setup::default())).expect_err("a broken rule"));
    assert!(said.contains(&format!("{RULE} broken")), "{said}");
    let said = format!("{:#}", signal(&stage, Setup::default().breaks(&[RULE])).expect_err("a rule that holds"));
    assert!(said.contains("was not found broken"), "{said}");
}

#[test]
fn resets_are_so_many_or_within_a_range() {
    let stage = Stage::new(Form::Native, 1);
    let with = |setup: Setup| stage.play(setup.quick_tdr(), |_| Ok(()));
    with(Setup::default().resets_within(0..=2)).expect("none is within");
    let said = format!("{:#}", with(Setup::default().resets_within(1..=2)).expect_err("none is not"));
    assert!(said.starts_with("resets: 0, not within 1..=2"), "{said}");
    let said = format!("{:#}", with(Setup::default().resets(1)).expect_err("none is not one"));
    assert!(said.starts_with("resets: 0, not 1"), "{said}");
}

#[test]
fn a_result_carries_numbers_and_a_case_says_why_it_is_not_played() {
    let outcome = played(|stage| {
        stage.note("retries", 3);
        stage.note("retries", 4);
        Ok(())
    });
    assert_eq!((outcome.status, outcome.numbers.into_iter().collect::<Vec<_>>()), (Status::Pass, vec![("retries", 4)]));
    let outcome = played(|stage| stage.play(Setup::default(), |_| skip("there is no such hardware")));
    assert_eq!((outcome.status, outcome.reason.as_str()), (Status::Skip, "there is no such hardware"));
}

/// What a case leaves waiting when it fails is given up, and its own reason comes first.
#[test]
fn a_case_that_fails_with_work_that_waits_ends() {
    let begun = Instant::now();
    let outcome = played(|stage| {
        stage.play(Setup::default().quick_tdr(), |scene| {
            let client = Client::open(scene, "waits for ever")?;
            let (queue, fence) = (client.queue(0)?, client.fence(0, true)?);
            queue.run(|list| list.wait(&fence, 1))?;
            bail!("the case's own reason")
        })
    });
    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
    assert!(
        outcome.status == Status::Fail && outcome.reason.starts_with("the case's own reason"),
        "{}",
        outcome.reason
    );
    let calls = outcome.reason.lines().find(|line| line.trim_start().starts_with("calls, behind ")).expect("its calls");
    assert!(calls.contains("DxgkDdi"), "{calls}");
}

/// A process goes while objects of its user-mode driver live on in the case, and while another works.
#[test]
fn a_process_is_killed_beside_live_clients() {
    let outcome = played(|stage| {
        stage.play(Setup::default().quick_tdr(), |scene| {
            let (killed, works) = (Client::open(scene, "is killed")?, Client::open(scene, "works")?);
            let (queue, fence, page) = (killed.queue(0)?, killed.fence(0, true)?, works.page()?);
            queue.run(|list| list.wait(&fence, 1))?;
            killed.user.kill();
            let other = works.queue(0)?;
            other.run(|list| list.store(page.at(0), 7))?;
            page.until(scene, "the other's work", 0, 7)?;
            same("handles of the killed process", killed.user.process.open_handles(), 0)
        })
    });
    assert_eq!(outcome.status, Status::Pass, "{}", outcome.reason);
}
