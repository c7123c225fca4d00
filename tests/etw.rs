//! What the shipped images write to a trace: every event is decoded by the metadata that it brings, and says what
//! happened. docs/tracing.md lists them: neither has one that the other lacks. The images must have been built.

use dxgkrnl_model::personality::Personality;
use fencepost::events::{Collector, Event, decode};
use fencepost::scenario::{Stage, all};
use fencepost::setting::adapter_of_ours;
use fencepost::world::{Form, Images, World};
use libtest_mimic::{Arguments, Failed, Trial};
use roxmltree::Document;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use wddm_abi::DXGK_INTERRUPT_TYPE;

/// {fff4ea55-96b1-5721-2bf9-620556ad8eb5}, in the order of its bytes: the GUID that ETW's tools make of the name
/// `Fencepost`.
const PROVIDER: [u8; 16] =
    [0x55, 0xEA, 0xF4, 0xFF, 0xB1, 0x96, 0x21, 0x57, 0x2B, 0xF9, 0x62, 0x05, 0x56, 0xAD, 0x8E, 0xB5];
const VERBOSE: u8 = 5;
const ALL: u64 = u64::MAX;
const PATIENCE: Option<Duration> = Some(Duration::from_secs(20));

/// Plays `f` with a trace on, and returns what was written.
fn traced(f: impl FnOnce()) -> Vec<Event> {
    let collector = Arc::new(Collector::default());
    collector.listening(f);
    let events = collector.take();
    assert!(events.iter().all(|event| event.provider == PROVIDER), "another provider's event");
    events.iter().map(|event| decode(event).unwrap_or_else(|error| panic!("{error}: {event:?}"))).collect()
}

fn folder() -> PathBuf {
    std::env::var_os("FENCEPOST_OUT").map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("out"), PathBuf::from)
}

fn form() -> Form {
    Form::Image(Arc::new(Images::read(&folder()).expect("the images")))
}

/// The events of that name and opcode.
fn named<'e>(events: &'e [Event], name: &str, opcode: u8) -> Vec<&'e Event> {
    events.iter().filter(|event| event.name == name && event.opcode == opcode).collect()
}

/// One queue signals a fence, and another waits for it: each has its events, in their order, with the same values.
fn a_wait_and_a_signal_are_told_from_record_to_interrupt() {
    let events = traced(|| {
        let world = World::boot(&form(), Personality::collecting()).expect("the driver loads");
        world.adapter(adapter_of_ours(&[])).expect("the adapter starts");
        let user = world.process("tracer").expect("a process");
        let device = user.open().and_then(|adapter| adapter.device()).expect("a device");
        let fence = device.fence(0, 0).expect("a fence");
        let [waits, signals] = [0, 1].map(|node| device.queue(node, 0x1_0000, 0, 0).expect("a queue"));
        let waited = waits.run(|list| list.wait(&fence, 7)).expect("submitted");
        let signaled = signals.run(|list| list.signal(&fence, 7)).expect("submitted");
        signals.wait(signaled, PATIENCE).expect("executed");
        waits.wait(waited, PATIENCE).expect("executed");
        signals.recreate(0).expect("recreated");
        drop((waits, signals, fence, device));
    });
    let one = |name: &str, opcode: u8, value: u64| -> &Event {
        let found: Vec<_> =
            named(&events, name, opcode).into_iter().filter(|e| e.number("FenceValue") == Some(value)).collect();
        assert_eq!(found.len(), 1, "{name}: {found:?}");
        found[0]
    };
    whose_they_are(&events);
    // The user-mode driver's half, and the engine's: of the same fence.
    let [wait, signal] = ["Wait", "Signal"].map(|which| one(&format!("NativeFence{which}Queued"), 0, 7));
    let met = one("NativeFenceWaitUnblocked", 0, 7);
    let done = one("NativeFenceSignalExecuted", 0, 7);
    let fence = wait.number("hNativeFence");
    assert!(fence.is_some_and(|handle| handle != 0));
    assert!([signal, met, done].iter().all(|event| event.number("hNativeFence") == fence), "{met} {done} {signal}");
    assert_eq!((met.number("NodeOrdinal"), done.number("NodeOrdinal")), (Some(0), Some(1)));
    // The wait began before it was met, and was met by the signal.
    let time = |event: &Event, field: &str| event.number(field).unwrap_or_default();
    assert!(time(met, "FenceObservedGpuTimestamp") <= time(met, "FenceEndGpuTimestamp"), "{met}");
    assert!(time(done, "FenceEndGpuTimestamp") <= time(met, "FenceEndGpuTimestamp"), "{done} {met}");
    // What was recorded was so before it was executed.
    assert!(time(wait, "RecordedTimestamp") <= met.time, "{wait}, {met} at {:#x}", met.time);
    assert!(time(signal, "RecordedTimestamp") <= done.time, "{signal}, {done} at {:#x}", done.time);
    // Two queues, and the one that was recreated, from creation to destruction, on both sides: with the same fields.
    for name in ["UserQueue", "HwQueue"] {
        let of = |opcode| -> Vec<String> {
            let told = named(&events, name, opcode);
            let mut fields: Vec<String> = told.iter().map(|event| format!("{:?}", event.fields)).collect();
            fields.sort();
            fields
        };
        assert_eq!((of(1).len(), of(1)), (3, of(2)), "{name}");
    }
    let changes = |change| named(&events, "Doorbell", 0).iter().filter(|e| e.number("Change") == Some(change)).count();
    assert_eq!((changes(0), changes(3)), (3, 3), "created and destroyed");
    assert!(changes(1) >= 2 && changes(2) >= 2, "connected and disconnected");
    let starts: Vec<String> = named(&events, "DdiStartDevice", 0).iter().map(ToString::to_string).collect();
    assert_eq!(starts, ["Fencepost DdiStartDevice NodeCount=0x3 Status=0x0"]);
    assert_eq!(named(&events, "DdiStopDevice", 0).len(), 1);
}

/// The values of a field in all events of that name and opcode.
fn values(events: &[Event], name: &str, opcode: u8, field: &str) -> BTreeSet<u64> {
    named(events, name, opcode).iter().map(|event| event.number(field).expect("a number")).collect()
}

/// Handles are those of one machine: what is said of a queue names one that was said to begin, by its own handle.
fn whose_they_are(events: &[Event]) {
    let of = |name, opcode, field| values(events, name, opcode, field);
    let queues = of("HwQueue", 1, "hHwQueue");
    assert!(of("HwQueue", 1, "hContext").is_disjoint(&queues) && of("Doorbell", 0, "hDoorbell").is_disjoint(&queues));
    assert_eq!(of("Doorbell", 0, "hHwQueue"), queues);
    for name in ["NativeFenceSignalExecuted", "NativeFenceWaitUnblocked"] {
        assert!(of(name, 0, "hHwQueue").is_subset(&queues), "{name}");
    }
    let (own, progress) = (of("UserQueue", 1, "hHwQueue"), of("UserQueue", 1, "hHwQueueProgressFence"));
    assert!(progress.is_disjoint(&own), "{progress:?}");
    let submitted: BTreeSet<_> = named(events, "UserSubmission", 0)
        .iter()
        .map(|event| (event.number("hHwQueue"), event.number("ProgressFenceValue")))
        .collect();
    assert_eq!(submitted.len(), 2);
    assert!(submitted.iter().all(|(queue, _)| queue.is_some_and(|queue| own.contains(&queue))), "{submitted:?}");
    for event in ["Wait", "Signal"].iter().flat_map(|which| named(events, &format!("NativeFence{which}Queued"), 0)) {
        assert!(submitted.contains(&(event.number("hHwQueue"), event.number("ProgressFenceValue"))), "{event}");
    }
    for name in ["HwQueue", "UserQueue"] {
        let mut nodes: Vec<_> = named(events, name, 1).iter().map(|event| event.number("NodeOrdinal")).collect();
        nodes.sort_unstable();
        assert_eq!(nodes, [0, 1, 1].map(Some), "{name}");
        assert_eq!(of(name, 1, "UserModeSubmission"), BTreeSet::from([1]), "{name}");
    }
}

/// What runs without a trace on writes nothing, and a trace that ends is the end of what is written.
fn nothing_is_written_without_a_trace() {
    let kept = Arc::new(Mutex::new(0_usize));
    let world = World::boot(&form(), Personality::collecting()).expect("the driver loads");
    let count = kept.clone();
    world.os.kernel().on_etw_event(move |_| *count.lock().expect("a count") += 1);
    let run = || {
        let adapter = world.adapter(adapter_of_ours(&[])).expect("the adapter starts");
        drop(adapter);
    };
    run();
    assert_eq!(*kept.lock().expect("a count"), 0);
    let kernel = world.os.kernel();
    let inside = kernel.enter();
    kernel.enable_etw(VERBOSE, ALL);
    drop(inside);
    let user = world.process("tracer").expect("a process");
    let device = user.open().and_then(|adapter| adapter.device()).expect("a device");
    let queue = device.queue(0, 0x1_0000, 0, 0).expect("a queue");
    let written = *kept.lock().expect("a count");
    assert!(written > 0);
    let inside = kernel.enter();
    kernel.disable_etw();
    drop(inside);
    let value = queue.run(|list| list.nop(16)).expect("submitted");
    queue.wait(value, PATIENCE).expect("executed");
    assert_eq!(*kept.lock().expect("a count"), written);
}

/// The cases that together have the driver write every event, each on the rung on which it does.
const PLAYED: &[(&str, u32)] = &[
    ("TE-26", 3),
    ("TE-03", 0),
    ("TA-01", 0),
    ("NF-01", 3),
    ("DB-57", 3),
    ("RP-05", 3),
    ("DB-46", 3),
    ("LB-17", 3),
    ("TE-95", 0),
];

/// What each event of a name has.
#[derive(Debug, PartialEq, Eq)]
struct Shape {
    keyword: u64,
    level: u8,
    fields: Vec<String>,
}

fn keyword(cell: &str) -> u64 {
    let digits = cell.trim().strip_prefix("0x").expect("a keyword");
    u64::from_str_radix(digits, 16).expect("a keyword")
}

/// The events of docs/tracing.md, by name.
fn documented() -> BTreeMap<String, Shape> {
    let page = include_str!("../docs/tracing.md");
    let cells = |row: &'static str| -> Vec<&str> { row.trim_matches('|').split(" | ").map(str::trim).collect() };
    let levels: BTreeMap<u64, u8> = page
        .lines()
        .filter(|line| line.starts_with("| 0x"))
        .map(|row| {
            let cells = cells(row);
            let level = cells[2].chars().take_while(char::is_ascii_digit).collect::<String>();
            (keyword(cells[0]), level.parse().expect("a level"))
        })
        .collect();
    let ticked = |cell: &str| -> Vec<String> { cell.split('`').skip(1).step_by(2).map(str::to_owned).collect() };
    let rows = page.lines().filter(|line| line.starts_with("| `"));
    rows.map(|row| {
        let cells = cells(row);
        let keyword = keyword(cells[2]);
        let shape = Shape { keyword, level: levels[&keyword], fields: ticked(cells[3]) };
        (ticked(cells[0]).join(" "), shape)
    })
    .collect()
}

/// Times are there, and what was recorded was so before the event was written. A packet's end names what is complete.
fn the_values_make_sense(event: &Event) {
    for (name, value) in &event.fields {
        assert!(!name.ends_with("Timestamp") || value.number().is_some_and(|time| time != 0), "{event}");
    }
    if let Some(recorded) = event.number("RecordedTimestamp") {
        assert!(recorded <= event.time, "{event} at {:#x}", event.time);
    }
    if let Some(kind) = event.number("InterruptType")
        && let (Some(fence), Some(completed)) = (event.number("uliSubmissionId"), event.number("uliCompletionId"))
    {
        // CAST: ids have 32 bits, and wrap.
        let behind = (fence as u32).wrapping_sub(completed as u32).cast_signed();
        let is = |of: DXGK_INTERRUPT_TYPE| Some(kind) == u64::try_from(of.0).ok();
        let preempted = u64::from(is(DXGK_INTERRUPT_TYPE::DXGK_INTERRUPT_DMA_PREEMPTED));
        assert_eq!(event.number("bPreempted"), Some(preempted), "{event}");
        assert!(!is(DXGK_INTERRUPT_TYPE::DXGK_INTERRUPT_DMA_COMPLETED) || behind == 0, "{event}");
        assert!(!is(DXGK_INTERRUPT_TYPE::DXGK_INTERRUPT_DMA_PAGE_FAULTED) || behind > 0, "{event}");
    }
}

/// What the events of a case say together.
fn they_agree(id: &str, events: &[Event]) {
    let of = |name, opcode, field| values(events, name, opcode, field);
    // The first packet is the OS's own, for its page tables.
    let first =
        named(events, "DmaPacket", 1).first().map(|e| ["NodeOrdinal", "Paging", "Resubmission"].map(|f| e.number(f)));
    assert_eq!(first, Some([2, 1, 0].map(Some)), "{id}");
    assert!(of("DmaPacket", 0, "hHwQueue").is_subset(&of("HwQueue", 1, "hHwQueue")), "{id}");
    for event in named(events, "Reset", 0) {
        let of_adapter = event.field("Ddi").is_some_and(|ddi| ddi.to_string().contains("FromTimeout"));
        let node = event.number("NodeOrdinal");
        assert!(
            if of_adapter { node == Some(0xFFFF_FFFF) } else { node.is_some_and(|node| node < 3) },
            "{id}: {event}"
        );
        assert_eq!(event.number("Status"), Some(0), "{id}: {event}");
    }
    if id == "RP-05" {
        let states: Vec<_> = named(events, "DdiSetPowerState", 0).iter().map(|event| event.number("D0")).collect();
        assert!(states.len() >= 2 && states.chunks(2).all(|pair| pair == [Some(0), Some(1)]), "{states:?}");
    }
    if id == "DB-46" {
        let of_engines = named(events, "DdiSetPowerComponentFState", 0).into_iter();
        let mut of_engines = of_engines.filter(|event| event.number("ComponentIndex") == Some(0));
        assert!(of_engines.any(|event| event.number("FState") == Some(1)), "no component is idle");
    }
}

/// Each event that the page lists was written by a case, every time with the keyword, level and fields that it lists,
/// and no other was. Among them are packets that faulted.
fn the_page_lists_what_is_written() {
    let documented = documented();
    let mut written = BTreeSet::new();
    let (mut faults, mut nodes) = (0, BTreeSet::new());
    for (id, rung) in PLAYED {
        let case = all().find(|case| case.id == *id).expect("a case");
        let stage = Stage::new(form(), 1).with_setting("MaxRung", *rung).for_case(id);
        let events = traced(|| (case.play)(&stage).unwrap_or_else(|error| panic!("{id}: {error:#}")));
        they_agree(id, &events);
        nodes.extend(values(&events, "NotifyInterruptCB", 0, "NodeOrdinal"));
        for event in events {
            let opcode = ["", " Start", " Stop"][usize::from(event.opcode)];
            let name = format!("{}{opcode}", event.name);
            let fields = event.fields.iter().map(|(name, _)| name.clone()).collect();
            let shape = Shape { keyword: event.keyword, level: event.level, fields };
            assert_eq!(documented.get(&name), Some(&shape), "{id}: {name}");
            the_values_make_sense(&event);
            faults += usize::from(event.number("FaultedVirtualAddress").is_some_and(|address| address != 0));
            written.insert(name);
        }
    }
    assert_eq!(written, documented.into_keys().collect());
    assert!(faults > 0, "no packet faulted");
    assert_eq!(nodes, BTreeSet::from([0, 1, 2]), "nodes that interrupt");
}

/// The profile for WPR is XML, records this provider and Dxgkrnl's by their GUIDs, and refers to nothing that it lacks.
fn the_profile_records_both_providers() {
    let profile = Document::parse(include_str!("../kmd/fencepost.wprp")).expect("XML");
    let with = |name: &'static str, attribute: &'static str| -> BTreeSet<&str> {
        let nodes = profile.descendants().filter(move |node| node.has_tag_name(name));
        nodes.filter_map(|node| node.attribute(attribute)).collect()
    };
    let [d, c, b, a, f, e, h, g] = PROVIDER[..8].try_into().expect("eight bytes");
    let head = [a, b, c, d, e, f, g, h].map(|byte: u8| format!("{byte:02x}")).concat();
    let tail: String = PROVIDER[8..].iter().map(|byte| format!("{byte:02x}")).collect();
    let guid = format!("{}-{}-{}-{}-{}", &head[..8], &head[8..12], &head[12..], &tail[..4], &tail[4..]);
    let names = with("EventProvider", "Name");
    assert_eq!(names, BTreeSet::from([guid.as_str(), "802ec45a-1e99-4b83-9920-87c98277ba9d"]));
    for kind in ["EventProvider", "SystemProvider", "EventCollector", "SystemCollector"] {
        let used = profile.descendants().filter(|node| node.tag_name().name() == format!("{kind}Id"));
        let used: BTreeSet<_> = used.filter_map(|node| node.attribute("Value")).collect();
        assert_eq!(used, with(kind, "Id"), "{kind}");
    }
    let page = include_str!("../docs/tracing.md");
    assert_eq!(page.matches(&format!("{{{guid}}}")).count(), 2, "the page has another GUID");
}

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let built = folder().join("fencepost.sys").exists();
    let trial = |name: &str, test: fn()| {
        Trial::test(name, move || {
            test();
            Ok::<(), Failed>(())
        })
        .with_ignored_flag(!built)
    };
    let trials = vec![
        trial(
            "a wait and a signal are told from record to interrupt",
            a_wait_and_a_signal_are_told_from_record_to_interrupt,
        ),
        trial("nothing is written without a trace", nothing_is_written_without_a_trace),
        trial("the page lists what is written", the_page_lists_what_is_written),
    ];
    let mut trials = trials;
    trials
        .push(trial("the profile records both providers", the_profile_records_both_providers).with_ignored_flag(false));
    libtest_mimic::run(&arguments, trials).exit_code()
}
