//! `fencepost decode`: a debug blob of the driver's in words.

mod dump;

pub use dump::{in_dump, is_dump};

use anyhow::{Result, anyhow, bail, ensure};
use gpu_engine::counters::Totals;
use gpu_engine::trace::Event;
use gpu_wire::debug_blob::{
    CONTROLS, ENDS, FENCE, FenceState, LINE, Line, NAME, NO_NODE, OBJECTS, PHASES, QUEUE, QueueState, SIGNATURE,
    STREAMS, Section, WHY, kind, sections,
};
use std::fmt::Write;

/// A blob in words.
#[derive(Debug)]
pub struct Decoded {
    /// The words.
    pub text: String,
    /// How many bytes of its last section are missing; 0 for a whole blob, and for one that is cut between two.
    pub missing: usize,
}

/// What is said of a blob that the driver did not write so.
const DAMAGED: &str = "this is no debug blob that a driver of this version wrote";
/// Bytes of signature and head.
const HEADER: usize = 8 + 8 + 6 * 8;
/// The most words that a section has.
const MOST: usize = 4096;
/// The number in [`WHY`] of a blob without a node that timed out.
const WHY_NONE: u64 = 4;
/// And where its engine does not answer.
const WHY_ENGINE: u64 = 3;
/// Types of recoveries (`DXGK_TDR_TYPE`), by number.
const TYPES: [&str; 14] = [
    "none was said",
    "forced",
    "a preemption timed out",
    "a vertical sync timed out",
    "a present was forced",
    "a present timed out",
    "an engine timed out",
    "a vertical sync was forced",
    "a vertical sync timed out",
    "an engine's timeout became the adapter's",
    "a page fault",
    "an invalid fence",
    "a page fault of an engine",
    "a fault of a display engine",
];

/// The blob in words. One that ends early, behind its head and at the end of a word, is shown as far as it goes.
///
/// # Errors
/// When it does not begin as a blob of this version does, ends in its head or inside a word, or has something in it
/// that this driver never writes.
pub fn decode(blob: &[u8]) -> Result<Decoded> {
    ensure!(!blob.is_empty(), "the file is empty: no engine was reset when it was made, so there is no debug blob");
    let Some(rest) = blob.strip_prefix(&SIGNATURE) else {
        if blob.starts_with(&SIGNATURE[..NAME]) {
            bail!("this is a debug blob of another version; use the fencepost command of the driver's version");
        }
        bail!("this is no Fencepost debug blob: it does not begin with \"FNCPDBG\"");
    };
    let length = blob.len();
    ensure!(length >= HEADER, "this is a stump of a debug blob: {length} bytes, where its head alone has {HEADER}");
    let mut text = Text::default();
    let (mut missing, mut end) = (0, SIGNATURE.len());
    let mut first = true;
    for section in sections(rest) {
        let there = section.words().count();
        ensure!(there + section.missing <= MOST, "{DAMAGED}: a section of {} words", there + section.missing);
        ensure!(
            first == (section.kind == kind::HEAD),
            "{DAMAGED}: it {}",
            match first {
                true => "does not begin with its head",
                false => "has two heads",
            }
        );
        first = false;
        let words = there + section.missing;
        ensure!(has_room(section.kind, words), "{DAMAGED}: a section of kind {} with {words} words", section.kind);
        end += 8 + there * 8;
        missing += section.missing * 8;
        tell(&section, &mut text)?;
        if section.kind == kind::GUILTY && [WHY_ENGINE, WHY_NONE].contains(&section.word(0)) {
            tell_who_answers_not(rest, &mut text);
        }
    }
    ensure!(!first, "{DAMAGED}: it has no head");
    // What a debugger writes may have the whole buffer, whose end the driver left alone: a word that does not fit, too.
    let behind = blob.get(end..).unwrap_or_default();
    let is_left_alone = behind.iter().all(|byte| *byte == 0);
    ensure!(
        missing == 0 || is_left_alone,
        "this is a stump of a debug blob: it ends inside a word, after {length} bytes"
    );
    ensure!(is_left_alone, "{DAMAGED}: there is something behind its {end} bytes");
    if missing != 0 {
        text.told.push_str("(the blob ends here)\n");
    }
    Ok(Decoded { text: text.told, missing })
}

/// An adapter's reset names no node: the engines that answer no more, if there are any.
fn tell_who_answers_not(rest: &[u8], text: &mut Text) {
    let nodes = sections(rest).filter(|section| section.kind == kind::NODE && section.word(3) == 1);
    for node in nodes {
        text.line("  answers no more", &format!("node {}", node.word(0)));
    }
}

/// Returns whether a section of that kind may have so many words, whether they are there or not. Of a kind that this
/// command does not know, any number; no section has the kind 0, which is what lies behind a blob's end.
fn has_room(of: u32, words: usize) -> bool {
    match of {
        0 => false,
        kind::HEAD => words == 6,
        kind::GUILTY => words == 3,
        kind::NODE => words == 10,
        kind::NOW | kind::LAST => words == 1 + LINE,
        kind::COUNTERS => words == 1 + Totals::NAMES.len(),
        kind::TRACE => words % 3 == 1,
        kind::CENSUS => words == OBJECTS.len(),
        kind::QUEUE => words == QUEUE,
        kind::FENCE => words == FENCE,
        _ => true,
    }
}

/// Returns whether a word that is 0 or 1 is 1.
fn flag(what: &str, word: u64) -> Result<bool> {
    ensure!(word <= 1, "{DAMAGED}: {what} of {word:#x}");
    Ok(word == 1)
}

#[derive(Default)]
struct Text {
    told: String,
    /// The queues that have their turn, by what the sections so far say.
    running: Vec<u64>,
}

impl Text {
    fn line(&mut self, name: &str, value: &str) {
        // A string takes every write.
        _ = writeln!(self.told, "{}", format!("{name:<24}{value}").trim_end());
    }

    fn count(&mut self, name: &str, count: u64) {
        self.line(name, &count.to_string());
    }
}

fn tell(section: &Section<'_>, text: &mut Text) -> Result<()> {
    let mut words = section.words();
    match section.kind {
        kind::HEAD => tell_head(section, text)?,
        kind::GUILTY => {
            text.line("guilty", words_of("guilt", section.word(0), &WHY)?);
            let context = section.word(1);
            if context != 0 {
                text.line("  context", &format!("{context:#x}"));
                let value = match section.word(2) {
                    0 => "in its ring alone: user mode submits to the queue".to_owned(),
                    value => format!("{value:#x}"),
                };
                text.line("  value", &value);
            }
        }
        kind::NODE => {
            let [node, phase, control, wedged, completed, submitted, running, runs, waiting, reported] =
                core::array::from_fn(|at| section.word(at));
            text.line("", "");
            text.line(&format!("node {node}"), words_of("phase", phase, &PHASES)?);
            text.line("  told to", words_of("control", control, &CONTROLS)?);
            if flag("an engine that answers no more", wedged)? {
                text.line("  answers", "no");
            }
            let packets = format!("last completed {completed:#x}, reported {reported:#x}, submitted {submitted:#x}");
            text.line("  packets", &packets);
            if flag("a packet that runs", runs)? {
                text.line("  runs packet", &format!("{running:#x}, {waiting} wait"));
            }
        }
        kind::NOW | kind::LAST => {
            let mut line = [0; LINE];
            line.iter_mut().zip(words.by_ref().skip(1)).for_each(|(to, word)| *to = word);
            let line = Line::from_words(line);
            if section.kind == kind::NOW && line.queue != 0 {
                text.running.push(line.queue);
            }
            if section.kind == kind::LAST || line.stream != 0 {
                let name = if section.kind == kind::NOW { "  now" } else { "  before" };
                text.line(name, &line_in_words(&line)?);
            }
        }
        kind::COUNTERS => {
            text.line("", "");
            text.line(&format!("counters of node {}", section.word(0)), "");
            for (name, count) in Totals::NAMES.iter().zip(words.skip(1)) {
                text.count(&format!("  {}", name.replace('_', " ")), count);
            }
        }
        kind::CENSUS => {
            text.line("", "");
            text.line("objects", "");
            for (name, count) in OBJECTS.iter().zip(words) {
                text.count(&format!("  {name}"), count);
            }
        }
        kind::TRACE => {
            text.line("", "");
            text.line(&format!("events of node {}", section.word(0)), "");
            let all: Vec<_> = words.skip(1).collect();
            for [number, event, argument] in all.as_chunks::<3>().0 {
                let known = u8::try_from(*event).ok().and_then(Event::from_raw);
                let event = known.ok_or_else(|| anyhow!("{DAMAGED}: an event of kind {event:#x}"))?;
                text.line(&format!("  {number}"), &format!("{event:?} {argument:#x}"));
            }
        }
        kind::QUEUE => tell_queue(&QueueState::from_words(core::array::from_fn(|at| section.word(at))), text)?,
        kind::FENCE => {
            let state = FenceState::from_words(core::array::from_fn(|at| section.word(at)));
            text.line("", "");
            let FenceState { number, fence, opened, .. } = state;
            text.line("fence", &format!("{fence:#x}, number {number}, opened {opened} times"));
            if state.address != 0 {
                text.line("  value at", &format!("{:#x}", state.address));
            }
            if state.from_cpu != 0 {
                text.line("  from the processor", &format!("{:#x}", state.from_cpu));
            }
            if flag("a fence that is always signaled", state.always_signaled)? {
                text.line("  waits for it", "pass: its device is in error");
            }
        }
        other => {
            let count = section.words().count() + section.missing;
            text.line(&format!("section {other}"), &format!("{count} words that this command does not know"));
        }
    }
    Ok(())
}

fn tell_head(section: &Section<'_>, text: &mut Text) -> Result<()> {
    let [reason, of, node, halted, rung, nodes] = core::array::from_fn(|at| section.word(at));
    ensure!(u32::try_from(reason).is_ok(), "{DAMAGED}: its reason is {reason:#x}, no bug check's code");
    let halted = stopped(halted).ok_or_else(|| anyhow!("{DAMAGED}: the adapter stopped for {halted:#x}"))?;
    let of = usize::try_from(of).ok().and_then(|of| TYPES.get(of));
    text.line("reason", &format!("{reason:#x}"));
    text.line("recovery", of.copied().unwrap_or("of a type that this command does not know"));
    if node != NO_NODE {
        text.count("node that timed out", node);
    }
    text.line("stopped", &halted);
    text.count("rung", rung);
    text.count("nodes", nodes);
    Ok(())
}

/// A queue, and its last turn. Of one that is done, or gave way, only the end and the ring's positions are new.
fn tell_queue(state: &QueueState, text: &mut Text) -> Result<()> {
    let QueueState { number, node, flags, progress, ring, bytes, fence, wanted, turn } = *state;
    ensure!(flags <= 3, "{DAMAGED}: flags of a queue of {flags:#x}");
    text.line("", "");
    let from = if flags & 1 == 0 { "the kernel" } else { "user mode" };
    let (queue, context) = (turn.queue, turn.context);
    text.line("queue", &format!("{queue:#x} of context {context:#x}, number {number}, node {node}, from {from}"));
    let kind = if flags & 2 == 0 { "" } else { ", a native fence" };
    text.line("  progress at", &format!("{progress:#x}{kind}"));
    if ring != 0 {
        let (consumed, published) = (turn.ring & u64::from(u32::MAX), turn.ring >> 32);
        let at = format!("{ring:#x}, {bytes} bytes, consumed to {consumed:#x}, published to {published:#x}");
        text.line("  ring at", &at);
    }
    let runs = text.running.contains(&queue);
    let last = match turn.end {
        0 if runs => "it runs; its ring as of when its turn began".to_owned(),
        0 => "none".to_owned(),
        1 | 2 => words_of("end", turn.end, &ENDS)?.to_owned(),
        // The queue is named, and so is its ring.
        _ => line_in_words(&Line { queue: 0, context: 0, ring: 0, ..turn })?,
    };
    text.line("  last turn", &last);
    if fence != 0 {
        text.line("  waits for fence", &format!("{fence:#x} to be {wanted:#x}"));
    }
    Ok(())
}

fn line_in_words(line: &Line) -> Result<String> {
    let mut words = format!("{} ({})", words_of("stream", line.stream, &STREAMS)?, words_of("end", line.end, &ENDS)?);
    let mut add = |name: &str, value: u64| {
        if value != 0 {
            // A string takes every write.
            _ = write!(words, ", {name} {value:#x}");
        }
    };
    add("queue", line.queue);
    add("context", line.context);
    add("value", line.value);
    add("ring consumed to", line.ring & u64::from(u32::MAX));
    add("published to", line.ring >> 32);
    add("next packet at", line.next);
    add("clock", line.clock);
    Ok(words)
}

/// Why the adapter stopped before its time, in words (`kmd_core::halt::Reason::raw`).
fn stopped(word: u64) -> Option<String> {
    let which = word & u64::from(u32::MAX);
    Some(match word >> 32 {
        0 if which == 0 => "no".to_owned(),
        1 => format!("paging operation {which} cannot be carried out"),
        2 => format!("a page table in segment {which} cannot be updated"),
        3 if which == 0 => "a page table that is nowhere cannot be updated".to_owned(),
        4 if which == 0 => "page table entries that are nowhere cannot be copied".to_owned(),
        _ => return None,
    })
}

fn words_of(what: &str, word: u64, names: &[&'static str]) -> Result<&'static str> {
    let name = usize::try_from(word).ok().and_then(|at| names.get(at));
    name.copied().ok_or_else(|| anyhow!("{DAMAGED}: a {what} of {word:#x}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpu_wire::debug_blob::Writer;

    /// The words of a head: the adapter stopped for `halted`.
    pub(super) fn head(halted: u64) -> [u64; 6] {
        [0x141, 6, 0, halted, 3, 1]
    }

    /// A blob of one node that is held, on which a queue hung.
    pub(super) fn blob_of(head: [u64; 6]) -> Vec<u8> {
        let mut buffer = [0; 2048];
        let mut writer = Writer::new(&mut buffer);
        writer.section(kind::HEAD, 6, head);
        writer.section(kind::GUILTY, 3, [2, 0x500, 7]);
        writer.section(kind::NODE, 10, [0, 1, 1, 0, 4, 6, 5, 1, 1, 4]);
        let line = Line { stream: 1, end: 3, queue: 0x400, context: 0x500, next: 0x1_0000, ..Line::default() };
        writer.section(kind::LAST, 9, [0].into_iter().chain(line.words()));
        let counters = (0..Totals::NAMES.len() as u64).map(|n| n * 10);
        writer.section(kind::COUNTERS, Totals::NAMES.len() as u32 + 1, [0].into_iter().chain(counters));
        writer.section(kind::TRACE, 4, [0, 17, 9, 5]);
        let of_ring =
            QueueState { number: 5, flags: 3, progress: 0x9000, ring: 0x8000, bytes: 4096, ..QueueState::default() };
        let waits = QueueState { fence: 0x700, wanted: 12, turn: Line { ring: 8 | 24 << 32, ..line }, ..of_ring };
        let done = QueueState { turn: Line { queue: 0x410, end: 1, ..Line::default() }, ..QueueState::default() };
        for queue in [waits, done] {
            writer.section(kind::QUEUE, QUEUE as u32, queue.words());
        }
        let fence =
            FenceState { number: 6, fence: 0x700, opened: 2, address: 0xA000, always_signaled: 1, from_cpu: 11 };
        writer.section(kind::FENCE, FENCE as u32, fence.words());
        writer.section(99, 2, [1, 2]);
        let used = writer.used();
        buffer[..used].to_vec()
    }

    /// The adapter is reset since an engine does not answer: the OS names no node, and the blob says which one it is.
    #[test]
    fn engines_that_answer_no_more_are_named_where_no_node_is() {
        let why = |number| WHY[usize::try_from(number).unwrap()];
        assert_eq!(why(WHY_NONE), "the OS names no node, and each engine answers");
        assert_eq!(why(WHY_ENGINE), "the engine stopped answering");
        let told = |why, wedged| {
            let mut buffer = [0; 512];
            let mut writer = Writer::new(&mut buffer);
            writer.section(kind::HEAD, 6, [0x117, 9, NO_NODE, 0, 0, 2]);
            writer.section(kind::GUILTY, 3, [why, 0, 0]);
            writer.section(kind::NODE, 10, [0; 10]);
            writer.section(kind::NODE, 10, [1, 0, 0, wedged, 0, 0, 0, 0, 0, 0]);
            decode(&buffer).unwrap().text
        };
        let named = "guilty                  the engine stopped answering\n  answers no more       node 1\n";
        assert!(told(WHY_ENGINE, 1).contains(named), "{}", told(WHY_ENGINE, 1));
        assert!(!told(WHY_NONE, 0).contains("answers no more"));
        assert!(!told(0, 1).contains("answers no more"));
    }

    /// A queue of user mode that runs: only its ring has the value, and its last turn is this one.
    #[test]
    fn a_queue_that_has_its_turn_is_said_to_run() {
        let told = |running| {
            let mut buffer = [0; 512];
            let mut writer = Writer::new(&mut buffer);
            writer.section(kind::HEAD, 6, [0x141, 2, 0, 0, 3, 1]);
            writer.section(kind::GUILTY, 3, [1, 0x500, 0]);
            let now = Line { stream: 1, queue: running, context: 0x500, ..Line::default() };
            writer.section(kind::NOW, 9, [0].into_iter().chain(now.words()));
            let turn = Line { queue: 0x400, context: 0x500, ..Line::default() };
            let queue = QueueState { number: 5, flags: 3, turn, ..QueueState::default() };
            writer.section(kind::QUEUE, QUEUE as u32, queue.words());
            decode(&buffer).unwrap().text
        };
        assert!(told(0x400).contains("  value                 in its ring alone"), "{}", told(0x400));
        assert!(told(0x400).contains("  last turn             it runs; "), "{}", told(0x400));
        assert!(told(0x410).contains("  last turn             none"), "{}", told(0x410));
    }

    fn blob() -> Vec<u8> {
        blob_of(head(0))
    }

    #[test]
    fn a_blob_is_told_in_words() {
        let mut padded = blob();
        padded.extend([0; 21]);
        for blob in [blob(), padded] {
            let Decoded { text, missing } = decode(&blob).unwrap();
            for line in [
                "reason                  0x141",
                "recovery                an engine timed out",
                "guilty                  runs, was asked to come off, and cannot",
                "  context               0x500",
                "node 0                  held",
                "  runs packet           0x5, 1 wait",
                "  before                a queue (waits for a fence), queue 0x400, context 0x500",
                "  rings                 10",
                "  17                    Complete 0x5",
                "queue                   0x400 of context 0x500, number 5, node 0, from user mode",
                "  progress at           0x9000, a native fence",
                "  ring at               0x8000, 4096 bytes, consumed to 0x8, published to 0x18",
                "  last turn             a queue (waits for a fence), next packet at 0x10000",
                "  waits for fence       0x700 to be 0xc",
                "queue                   0x410 of context 0x0, number 0, node 0, from the kernel",
                "  last turn             done",
                "fence                   0x700, number 6, opened 2 times",
                "  value at              0xa000",
                "  from the processor    0xb",
                "  waits for it          pass: its device is in error",
                "section 99              2 words",
            ] {
                assert!(text.contains(line), "no '{line}' in\n{text}");
            }
            assert!(missing == 0 && !text.contains("ends here"));
        }
    }

    #[test]
    fn a_cut_blob_is_shown_as_far_as_it_goes_and_is_not_whole() {
        let whole = blob();
        let mut cut = 0;
        for length in (HEADER..whole.len()).step_by(8) {
            let Decoded { text, missing } = decode(&whole[..length]).unwrap();
            // Between two sections nothing is known to be missing.
            assert_eq!(text.ends_with("ends here)\n"), missing != 0, "{text}");
            cut += usize::from(missing != 0);
        }
        assert!(cut > 30, "{cut}");
    }

    #[test]
    fn why_the_adapter_stopped_is_told_in_words() {
        use kmd_core::halt::Reason;
        use wddm_abi::DXGK_BUILDPAGINGBUFFER_OPERATION as Operation;
        let told = |reason: Reason| decode(&blob_of(head(reason.raw()))).unwrap().text;
        assert!(told(Reason::Operation(Operation(19))).contains("stopped                 paging operation 19"));
        assert!(told(Reason::Table { segment: 31 }).contains("stopped                 a page table in segment 31"));
        assert!(told(Reason::NoTable).contains("a page table that is nowhere"));
        assert!(told(Reason::Copy).contains("page table entries that are nowhere"));
        assert!(decode(&blob()).unwrap().text.contains("stopped                 no\n"));
    }

    #[test]
    fn a_stump_is_refused() {
        let whole = blob();
        for length in (SIGNATURE.len()..HEADER).chain((HEADER..whole.len()).filter(|length| length % 8 != 0)) {
            let Err(error) = decode(&whole[..length]) else {
                // Less than a section's head is left behind a whole one.
                assert!(whole[length - length % 8..length].iter().all(|byte| *byte == 0), "{length}");
                continue;
            };
            let text = error.to_string();
            assert!(text.contains("stump") || text.contains("something behind"), "{length}: {text}");
        }
    }

    #[test]
    fn noise_behind_a_signature_is_refused() {
        let spoil = |at: usize, word: u64| {
            let mut blob = blob();
            blob[at..at + 8].copy_from_slice(&word.to_le_bytes());
            decode(&blob).unwrap_err().to_string()
        };
        assert!(spoil(16, 1 << 32).contains("its reason is 0x100000000"));
        assert!(spoil(40, 5 << 32).contains("the adapter stopped for 0x500000000") && spoil(40, 1).contains("0x1"));
        assert!(spoil(8, u64::from(kind::NODE) | 6 << 32).contains("does not begin with its head"));
        assert!(spoil(64, u64::from(kind::GUILTY) | 1 << 50).contains("a section of"));
        assert!(spoil(72, 9).contains("a guilt of 0x9"));
        let longer = [blob(), vec![0; 8], vec![1]].concat();
        assert!(decode(&longer).unwrap_err().to_string().contains("something behind"));
        let noise: Vec<u8> = (0..4096_u32).map(|n| (n.wrapping_mul(0x9E37_79B9) >> 24) as u8).collect();
        assert!(decode(&[&SIGNATURE[..], &noise].concat()).is_err());
    }

    #[test]
    fn a_section_has_the_words_of_its_kind_and_there_is_one_head() {
        let with = |of: u32, words: &[u64]| {
            let mut buffer = vec![0; 2048];
            let mut writer = Writer::new(&mut buffer);
            writer.section(kind::HEAD, 6, head(0));
            writer.section(of, words.len() as u32, words.iter().copied());
            decode(&buffer).map(|_| ()).map_err(|error| error.to_string())
        };
        let counters = vec![0; 1 + Totals::NAMES.len()];
        let fitting: [(u32, &[u64]); 9] = [
            (kind::GUILTY, &[0; 3]),
            (kind::NODE, &[0; 10]),
            (kind::NOW, &[0; 1 + LINE]),
            (kind::LAST, &[0; 1 + LINE]),
            (kind::COUNTERS, &counters),
            (kind::TRACE, &[0]),
            (kind::CENSUS, &[0; OBJECTS.len()]),
            (kind::QUEUE, &[0; QUEUE]),
            (kind::FENCE, &[0; FENCE]),
        ];
        for (of, words) in fitting {
            assert_eq!(with(of, words), Ok(()), "kind {of}");
            for wrong in [&words[1..], &[words, &[0]].concat()] {
                let error = with(of, wrong).expect_err("a wrong length");
                assert!(error.contains(&format!("a section of kind {of} with {} words", wrong.len())), "{error}");
            }
        }
        assert!(with(kind::HEAD, &head(0)).unwrap_err().contains("has two heads"));
        assert!(with(0, &[1]).unwrap_err().contains("a section of kind 0"));
        assert!(
            decode(&blob_with_head(&[0x141])).unwrap_err().to_string().contains("a section of kind 1 with 1 words")
        );
        let wedged = [0, 0, 0, 2, 0, 0, 0, 0, 0, 0];
        assert!(with(kind::NODE, &wedged).unwrap_err().contains("answers no more of 0x2"));
        assert!(with(kind::FENCE, &[0, 0, 0, 0, 7, 0]).unwrap_err().contains("always signaled of 0x7"));
        let queue = QueueState { flags: 4, ..QueueState::default() };
        assert!(with(kind::QUEUE, &queue.words()).unwrap_err().contains("flags of a queue of 0x4"));
    }

    fn blob_with_head(words: &[u64]) -> Vec<u8> {
        let mut buffer = vec![0; 256];
        Writer::new(&mut buffer).section(kind::HEAD, words.len() as u32, words.iter().copied());
        buffer
    }

    #[test]
    fn something_else_is_refused() {
        assert!(decode(b"MZ").unwrap_err().to_string().contains("no Fencepost debug blob"));
        assert!(decode(b"FNCPDBG\x03").unwrap_err().to_string().contains("another version"));
    }
}
