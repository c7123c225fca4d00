//! The layout of the driver's debug blobs, for the driver that writes them and the command that reads them.
//!
//! A signature of 8 bytes, then 64-bit little-endian words: *sections* behind each other, each a word with its [`kind`]
//! in the low half and the number of words that follow in the high half. A blob that was cut ends anywhere; what lies
//! behind its end is zeros. A reader passes over kinds that it does not know.
//!
//! | kind | words |
//! |---|---|
//! | [`HEAD`](kind::HEAD) | the reason (a bug check's code); the type of the recovery (`DXGK_TDR_TYPE`; 0: none was said); the node that it is about ([`NO_NODE`]: none); why the adapter stopped before its time (`halt::Reason::raw` of the driver; 0: it did not); the rung; the number of nodes |
//! | [`GUILTY`](kind::GUILTY) | one of [`WHY`]; the OS's handle of the context that the engine is on (0: none); the value that the queue's progress fence is to get or the packet's fence (0: a queue of user mode, whose ring alone says it) |
//! | [`NODE`](kind::NODE) | its number; its phase, one of [`PHASES`]; what it is told, one of [`CONTROLS`]; whether its engine has stopped answering; packets: last completed fence, last submitted fence, running fence and whether there is one, packets that wait; the fence that was reported last |
//! | [`NOW`](kind::NOW) | the node's number, and a [`Line`]: what runs; the kind is 0 where nothing does |
//! | [`LAST`](kind::LAST) | the same: a turn that ended otherwise than with its work done, the oldest first |
//! | [`COUNTERS`](kind::COUNTERS) | the node's number, and its counters in the order of `gpu_engine::counters::Totals::NAMES` |
//! | [`TRACE`](kind::TRACE) | the node's number, and per event its number, its kind (`gpu_engine::trace::Event`) and its argument |
//! | [`QUEUE`](kind::QUEUE) | a [`QueueState`]: a hardware queue that is alive. Those whose last turn did not end with their work done come before the counters, at most [`FIRST`] of them, and all others behind the events |
//! | [`FENCE`](kind::FENCE) | a [`FenceState`]: a native fence that is alive, behind the queues |
//! | [`CENSUS`](kind::CENSUS) | objects alive, in the order of [`OBJECTS`] |
//!
//! Source: `DxgkDdiCollectDbgInfo` (the buffer's content is the driver's).

/// First bytes of a blob: a name of 7 bytes, and the version of the layout.
pub const SIGNATURE: [u8; 8] = *b"FNCPDBG\x04";
/// Bytes of the name in [`SIGNATURE`].
pub const NAME: usize = 7;
/// In place of a node's number: none.
pub const NO_NODE: u64 = u64::MAX;
/// Phases in words, by number.
pub const PHASES: [&str; 3] = ["running", "held", "stopped"];
/// Control words in words, by number.
pub const CONTROLS: [&str; 3] = ["run", "hold", "stop"];
/// Who is guilty of a timeout, by number.
pub const WHY: [&str; 5] = [
    "nothing runs",
    "runs, and comes off when it is asked to",
    "runs, was asked to come off, and cannot",
    "the engine stopped answering",
    "the OS names no node, and each engine answers",
];
/// What a [`Line`] is about, by number.
pub const STREAMS: [&str; 3] = ["nothing", "a queue", "a packet"];
/// How a turn ended, by number; 0: it has not.
pub const ENDS: [&str; 9] = [
    "runs",
    "done",
    "another's turn",
    "waits for a fence",
    "taken off",
    "reset or stopped",
    "waits for other engines or for memory",
    "its queue is gone",
    "faulted",
];
/// Kinds of objects, in the order of their counts.
pub const OBJECTS: [&str; 8] = [
    "processes",
    "devices",
    "packet contexts",
    "hardware contexts",
    "hardware queues",
    "doorbells",
    "fences",
    "allocations",
];

/// Queues that come before the counters, at most.
pub const FIRST: usize = 32;

/// Kinds of sections.
pub mod kind {
    /// What the blob is about.
    pub const HEAD: u32 = 1;
    /// Which context the driver takes for the one that timed out, and why.
    pub const GUILTY: u32 = 2;
    /// A node.
    pub const NODE: u32 = 3;
    /// What a node runs.
    pub const NOW: u32 = 4;
    /// What a node ran.
    pub const LAST: u32 = 5;
    /// A node's counters.
    pub const COUNTERS: u32 = 6;
    /// A node's last events.
    pub const TRACE: u32 = 7;
    /// Objects alive.
    pub const CENSUS: u32 = 8;
    /// A hardware queue.
    pub const QUEUE: u32 = 9;
    /// A native fence.
    pub const FENCE: u32 = 10;
}

/// Words of a [`Line`].
pub const LINE: usize = 8;

/// A turn of a queue or of a packet on an engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Line {
    /// What it is of, one of [`STREAMS`].
    pub stream: u64,
    /// How it ended, one of [`ENDS`].
    pub end: u64,
    /// The OS's handle of the queue; 0 for a packet.
    pub queue: u64,
    /// The OS's handle of the context.
    pub context: u64,
    /// The value that the queue's progress fence is to get; the packet's fence. 0: a queue of user mode, whose ring
    /// alone says it.
    pub value: u64,
    /// Bytes of the ring that are consumed, and that are published (low and high half, of the positions' low 32 bits).
    pub ring: u64,
    /// GPU address of the next packet in a command buffer; 0: in the ring.
    pub next: u64,
    /// GPU clock when the place was noted.
    pub clock: u64,
}

impl Line {
    /// As it stands in a blob.
    pub const fn words(&self) -> [u64; LINE] {
        [self.stream, self.end, self.queue, self.context, self.value, self.ring, self.next, self.clock]
    }

    /// From a blob.
    pub const fn from_words(words: [u64; LINE]) -> Self {
        let [stream, end, queue, context, value, ring, next, clock] = words;
        Self { stream, end, queue, context, value, ring, next, clock }
    }
}

/// Words of a [`QueueState`].
pub const QUEUE: usize = 8 + LINE;

/// A hardware queue: what it is, and its last turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct QueueState {
    /// Its number, of which a doorbell's token is made.
    pub number: u64,
    /// Its node.
    pub node: u64,
    /// Bits: 1, it submits from user mode; 2, its progress fence is a native one.
    pub flags: u64,
    /// GPU address of its progress fence.
    pub progress: u64,
    /// GPU address of its ring; 0: it has none.
    pub ring: u64,
    /// Bytes of the ring.
    pub bytes: u64,
    /// The OS's handle of the fence that it waits for, where its turn ended so.
    pub fence: u64,
    /// The value that it waits for.
    pub wanted: u64,
    /// Its last turn; the end is 0 before the first. Of one that ended with its work done, or for another's, all but
    /// the end and the ring's positions is of an earlier turn.
    pub turn: Line,
}

impl QueueState {
    /// As it stands in a blob.
    pub const fn words(&self) -> [u64; QUEUE] {
        let Self { number, node, flags, progress, ring, bytes, fence, wanted, turn } = *self;
        let [stream, end, queue, context, value, at, next, clock] = turn.words();
        [
            number, node, flags, progress, ring, bytes, fence, wanted, // and the turn:
            stream, end, queue, context, value, at, next, clock,
        ]
    }

    /// From a blob.
    pub const fn from_words(words: [u64; QUEUE]) -> Self {
        let [number, node, flags, progress, ring, bytes, fence, wanted, turn @ ..] = words;
        Self { number, node, flags, progress, ring, bytes, fence, wanted, turn: Line::from_words(turn) }
    }
}

/// Words of a [`FenceState`].
pub const FENCE: usize = 6;

/// A native fence. Its CurrentValue lies in the OS's memory, which debug information does not touch.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FenceState {
    /// Its number, which the user-mode driver knows.
    pub number: u64,
    /// The OS's handle.
    pub fence: u64,
    /// How often it was opened.
    pub opened: u64,
    /// GPU address of CurrentValue, in the process that opened it last.
    pub address: u64,
    /// 1: its device is in error, and every wait passes.
    pub always_signaled: u64,
    /// The last value that came from the processor.
    pub from_cpu: u64,
}

impl FenceState {
    /// As it stands in a blob.
    pub const fn words(&self) -> [u64; FENCE] {
        [self.number, self.fence, self.opened, self.address, self.always_signaled, self.from_cpu]
    }

    /// From a blob.
    pub const fn from_words(words: [u64; FENCE]) -> Self {
        let [number, fence, opened, address, always_signaled, from_cpu] = words;
        Self { number, fence, opened, address, always_signaled, from_cpu }
    }
}

/// Writes a blob into a buffer, as far as it fits.
pub struct Writer<'a> {
    buffer: &'a mut [u8],
    used: usize,
}

impl<'a> Writer<'a> {
    /// Begins with the signature. All that is not written is zeros, whatever was in `buffer`.
    pub fn new(buffer: &'a mut [u8]) -> Self {
        buffer.fill(0);
        let mut writer = Self { buffer, used: 0 };
        writer.put(&SIGNATURE);
        writer
    }

    fn put(&mut self, bytes: &[u8]) {
        if let Some(to) = self.buffer.get_mut(self.used..).and_then(|rest| rest.get_mut(..bytes.len())) {
            to.copy_from_slice(bytes);
            self.used = self.used.wrapping_add(bytes.len());
        } else {
            // Nothing behind what did not fit.
            self.used = self.buffer.len();
        }
    }

    /// Adds a section. `count` is the number of `words`; more are left out, and fewer filled up with zeros.
    pub fn section(&mut self, kind: u32, count: u32, words: impl IntoIterator<Item = u64>) {
        self.put(&(u64::from(kind) | u64::from(count) << 32).to_le_bytes());
        let padded = words.into_iter().chain(core::iter::repeat(0)).take(count as usize);
        padded.for_each(|word| self.put(&word.to_le_bytes()));
    }

    /// Whether nothing more fits.
    pub fn is_full(&self) -> bool {
        self.used >= self.buffer.len()
    }

    /// Bytes written.
    pub fn used(&self) -> usize {
        self.used
    }
}

/// A section of a blob.
#[derive(Clone, Copy, Debug)]
pub struct Section<'a> {
    /// Its [`kind`].
    pub kind: u32,
    /// Its words that are there.
    bytes: &'a [u8],
    /// How many words are missing at its end.
    pub missing: usize,
}

impl Section<'_> {
    /// The words that are there.
    pub fn words(&self) -> impl Iterator<Item = u64> {
        self.bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word))
    }

    /// The word with this number; 0 where it is missing.
    pub fn word(&self, number: usize) -> u64 {
        self.words().nth(number).unwrap_or(0)
    }
}

/// The sections behind the signature of a blob: `rest`. They end with the bytes, or where zeros follow.
pub fn sections(rest: &[u8]) -> impl Iterator<Item = Section<'_>> {
    let mut rest = rest;
    core::iter::from_fn(move || {
        let (head, behind) = rest.split_first_chunk::<8>()?;
        let head = u64::from_le_bytes(*head);
        if head == 0 {
            return None;
        }
        // CAST: the low half, and the high half.
        let (kind, count) = (head as u32, (head >> 32) as usize);
        let there = count.min(behind.len() / 8);
        let (bytes, after) = behind.split_at(there * 8);
        rest = after;
        Some(Section { kind, bytes, missing: count - there })
    })
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use std::vec::Vec;

    #[test]
    fn what_is_written_is_read() {
        let mut buffer = [0xA5; 256];
        let mut writer = Writer::new(&mut buffer);
        let line = Line { stream: 1, queue: 0x500, ..Line::default() };
        writer.section(kind::HEAD, 3, [0x141, 6, NO_NODE]);
        writer.section(kind::NOW, 9, [2].into_iter().chain(line.words()));
        assert_eq!(writer.used(), 8 + 4 * 8 + 10 * 8);
        assert!(buffer[8 + 14 * 8..].iter().all(|byte| *byte == 0), "what lies behind the blob's end");
        let rest = buffer.strip_prefix(&SIGNATURE).expect("a signature");
        let read: Vec<_> = sections(rest).collect();
        assert_eq!(read.len(), 2);
        assert_eq!((read[0].kind, read[0].word(0), read[0].word(2), read[0].word(3)), (kind::HEAD, 0x141, NO_NODE, 0));
        let words: Vec<_> = read[1].words().collect();
        assert_eq!((read[1].missing, words[0]), (0, 2));
        assert_eq!(Line::from_words(words[1..].try_into().expect("a line")), line);
        let queue: [u64; QUEUE] = core::array::from_fn(|at| at as u64 + 1);
        assert_eq!(QueueState::from_words(queue).words(), queue);
        assert_eq!(QueueState::from_words(queue).turn.clock, QUEUE as u64);
        let fence: [u64; FENCE] = core::array::from_fn(|at| at as u64 + 1);
        assert_eq!(FenceState::from_words(fence).words(), fence);
    }

    #[test]
    fn a_blob_that_is_cut_says_what_is_missing() {
        for room in 0..64 {
            let mut buffer = [0xA5; 64];
            let mut writer = Writer::new(&mut buffer[..room]);
            writer.section(kind::HEAD, 5, [1, 2, 3, 4, 5]);
            writer.section(kind::CENSUS, 1, [6]);
            let used = writer.used();
            assert!(used <= room);
            // A word that has no room is not begun.
            assert!(buffer[room / 8 * 8..room].iter().all(|byte| *byte == 0), "{room}");
            let Some(rest) = buffer[..room].strip_prefix(&SIGNATURE) else {
                assert!(room < 8);
                continue;
            };
            let read: Vec<_> = sections(rest).collect();
            let there = read.first().map_or(0, |section| section.words().count());
            assert_eq!(there, (room / 8).saturating_sub(2).min(5), "{room}");
            assert!(read.iter().all(|section| section.kind == kind::HEAD));
        }
    }
}
