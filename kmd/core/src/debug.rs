//! Debug information: what the engines run and ran, and who is guilty of a timeout. Source: `DxgkDdiCollectDbgInfo`,
//! `DxgkDdiCollectDbgInfo2`; *TDR debuggability improvements*.
//!
//! Any IRQL, at any time: nothing is locked, allocated or waited for. The layout is [`gpu_wire::debug_blob`].

#![expect(unsafe_code, reason = "what a bug check finds listed is kept as addresses")]

use crate::adapter::{Gpu, Started};
use crate::platform::Platform;
use crate::root::{FENCEPOST, LISTED};
use core::sync::atomic::Ordering;
use gpu_engine::mutation::Mutation;
use gpu_engine::node::{Control, Phase};
use gpu_engine::plate::Plate;
use gpu_engine::slots::SlotId;
use gpu_wire::NodeOrdinal;
use gpu_wire::debug_blob::{FENCE, FIRST, FenceState, Line, NO_NODE, QUEUE, QueueState, Writer, kind};

const _: () = assert!(
    Phase::Running as usize == 0 && Phase::Held as usize == 1 && Phase::Stopped as usize == 2,
    "debug_blob::PHASES names them in this order"
);
const _: () = assert!(
    Control::Run as usize == 0 && Control::Hold as usize == 1 && Control::Stop as usize == 2,
    "debug_blob::CONTROLS names them in this order"
);

/// Events of a node's trace that a blob has.
const EVENTS: usize = 32;

/// What the OS asks about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct About {
    /// The bug check's code.
    pub reason: u32,
    /// `DXGK_TDR_TYPE`; 0 where none is said.
    pub kind: u32,
    /// The node that timed out, if one did.
    pub node: Option<NodeOrdinal>,
}

/// Writes as much of the blob as fits. Returns the OS's handle of the context that the driver takes for the one that
/// timed out; 0: it knows none.
pub fn collect<P: Platform>(started: &Started<P>, about: &About, buffer: &mut [u8]) -> u64 {
    let gpu = &started.gpu;
    let mut blob = Writer::new(buffer);
    let node = about.node.map_or(NO_NODE, |node| node.0.into());
    let halted = started.halted.load(Ordering::Relaxed);
    // CAST: a small enumerator; a handful of nodes.
    let (rung, nodes) = (started.plan.rung as u64, gpu.nodes.len() as u64);
    blob.section(kind::HEAD, 6, [about.reason.into(), about.kind.into(), node, halted, rung, nodes]);
    let [why, context, value] = guilty(gpu, about.node.or_else(|| stuck(gpu, about)));
    blob.section(kind::GUILTY, 3, [why, context, value]);
    for ordinal in 0..gpu.nodes.len() {
        node_state(started, ordinal, &mut blob);
    }
    queues(gpu, true, &mut blob);
    // What is long comes last: a small buffer has the rest.
    for (ordinal, node) in (0..).zip(gpu.nodes.iter()) {
        let counters = node.counters.read();
        let values = counters.values();
        // CAST: some dozens.
        blob.section(kind::COUNTERS, values.len() as u32 + 1, [ordinal].into_iter().chain(values));
    }
    let census = &started.census;
    let counts = [
        &census.processes,
        &census.devices,
        &census.contexts,
        &census.hw_contexts,
        &census.hw_queues,
        &census.doorbells,
        &census.fences,
        &census.allocations,
    ];
    // CAST: eight.
    blob.section(kind::CENSUS, counts.len() as u32, counts.map(|count| count.load(Ordering::Relaxed)));
    for (ordinal, node) in (0..).zip(gpu.nodes.iter()) {
        // One look: the engine adds events meanwhile.
        let events = node.trace.newest(EVENTS);
        // CAST: at most three words for each event.
        let count = 1 + 3 * events.len() as u32;
        let words = events.flat_map(|(number, event, argument)| [number, event.into(), argument]);
        blob.section(kind::TRACE, count, [ordinal].into_iter().chain(words));
    }
    queues(gpu, false, &mut blob);
    fences(gpu, &mut blob);
    context
}

/// Writes the debug blobs of all adapters that are started, each into its equal part of `buffer`, of which what no blob
/// has is zeros. Returns the bytes that hold them; 0 where there is no adapter. For a bug check: any IRQL.
///
/// # Safety
/// Every adapter of this image is on platform `P`, and none is stopped meanwhile: no other processor runs.
pub unsafe fn collect_all<P: Platform>(buffer: &mut [u8]) -> usize {
    // A blob is whole words.
    let part = (buffer.len() / LISTED) & !7;
    let mut used = 0;
    for (at, to) in FENCEPOST.listed().zip(buffer.chunks_exact_mut(part.max(8))) {
        // SAFETY: StartDevice has listed a `Started<P>`, and StopDevice takes it off the list before it is freed, which
        // does not happen meanwhile (the caller's promise).
        let started = unsafe { &*at.cast::<Started<P>>() };
        collect(started, &About { reason: 0, kind: 0, node: None }, to);
        used += to.len();
    }
    used
}

/// The state of a node, what it runs, and what it ran.
fn node_state<P: Platform>(started: &Started<P>, ordinal: usize, blob: &mut Writer<'_>) {
    let gpu = &started.gpu;
    let Some(node) = gpu.nodes.get(ordinal) else { return };
    let packets = node.packets.shown();
    let reported = started.reported.get(ordinal).map_or(0, |fence| fence.load(Ordering::Relaxed));
    let words = [
        ordinal as u64,
        node.phase() as u64,
        node.control() as u64,
        node.is_wedged().into(),
        packets.completed.into(),
        packets.submitted.into(),
        packets.running.unwrap_or(0).into(),
        packets.running.is_some().into(),
        packets.waiting,
        reported.into(),
    ];
    blob.section(kind::NODE, 10, words);
    let (now, _) = node.board.now();
    blob.section(kind::NOW, 9, [ordinal as u64].into_iter().chain(named(gpu, now).words()));
    for line in node.board.last() {
        blob.section(kind::LAST, 9, [ordinal as u64].into_iter().chain(named(gpu, line).words()));
    }
}

/// The queues of which nothing more is to be done or that let another have its turn; or, with `amid`, the first of the
/// others, which wait, were taken off, or have stopped.
fn queues<P: Platform>(gpu: &Gpu<P>, amid: bool, blob: &mut Writer<'_>) {
    let mut first = FIRST;
    for (slot, words) in gpu.slots.plates() {
        let Some(Plate::Queue(state)) = Plate::read(&words) else { continue };
        let has_turn = gpu.nodes.iter().any(|node| {
            let (now, _) = node.board.now();
            (now.stream, now.queue) == (1, slot.pack())
        });
        // Otherwise it has had no turn, is done, or gave way to another.
        let is_amid = has_turn || !matches!(state.turn.end, 0..=2);
        let is_first = is_amid && first != 0;
        first = first.saturating_sub(usize::from(is_amid));
        let is_left_out = is_amid && !is_first && gpu.mutation.is(Mutation::LeavesQueuesOut);
        if is_first != amid || is_left_out {
            continue;
        }
        if blob.is_full() {
            return;
        }
        let of = |slot: u64| gpu.slots.handle(SlotId::unpack(slot)).unwrap_or(0);
        let (queue, context) = (gpu.slots.handle(slot).unwrap_or(0), of(state.turn.context));
        // What its last turn ended with is over where it has another one.
        let end = if has_turn { 0 } else { state.turn.end };
        let turn = Line { queue, context, end, ..state.turn };
        // What it waited for before is over.
        let waits = turn.end == 3;
        let (fence, wanted) = if waits { (of(state.fence), state.wanted) } else { (0, 0) };
        // CAST: some words.
        blob.section(kind::QUEUE, QUEUE as u32, QueueState { fence, wanted, turn, ..state }.words());
    }
}

/// The native fences.
fn fences<P: Platform>(gpu: &Gpu<P>, blob: &mut Writer<'_>) {
    for (slot, words) in gpu.slots.plates() {
        let Some(Plate::Fence(state)) = Plate::read(&words) else { continue };
        if blob.is_full() {
            return;
        }
        let fence = gpu.slots.handle(slot).unwrap_or(0);
        // CAST: some words.
        blob.section(kind::FENCE, FENCE as u32, FenceState { fence, ..state }.words());
    }
}

/// Bug checks of timeouts: of the adapter that did not recover, that did, of an engine.
/// Source: *TDR debuggability improvements*; bug check code reference, 0x116, 0x117, 0x141.
const TIMEOUTS: [u32; 3] = [0x116, 0x117, 0x141];

/// Of a timeout of which the OS names no node (it does so in `DxgkDdiCollectDbgInfo2` alone): the first whose engine
/// does not answer, or else does not come off what it runs.
fn stuck<P: Platform>(gpu: &Gpu<P>, about: &About) -> Option<NodeOrdinal> {
    if !TIMEOUTS.contains(&about.reason) {
        return None;
    }
    let wedged = gpu.nodes.iter().position(|node| node.is_wedged());
    let found = wedged.or_else(|| gpu.nodes.iter().position(|node| node.board.now().1))?;
    // CAST: a handful of nodes.
    Some(NodeOrdinal(found as u32))
}

/// Why the driver takes which context for the one that timed out ([`gpu_wire::debug_blob::WHY`]), the context, and what
/// it runs.
fn guilty<P: Platform>(gpu: &Gpu<P>, node: Option<NodeOrdinal>) -> [u64; 3] {
    let Some(ordinal) = node else { return [4, 0, 0] };
    let Some(node) = gpu.nodes.get(ordinal.index()) else { return [4, 0, 0] };
    let (now, stuck) = node.board.now();
    let line = named(gpu, now);
    let line = if gpu.mutation.is(Mutation::NamesAnother) { another(gpu, ordinal, line) } else { line };
    match (now.stream, node.is_wedged(), stuck) {
        (_, true, _) => [3, line.context, line.value],
        (0, ..) => [0, 0, 0],
        (_, _, true) => [2, line.context, line.value],
        _ => [1, line.context, line.value],
    }
}

/// For a mutation: the line with another context of the node's queues.
fn another<P: Platform>(gpu: &Gpu<P>, node: NodeOrdinal, line: Line) -> Line {
    let contexts = gpu.slots.plates().filter_map(|(_, words)| match Plate::read(&words) {
        Some(Plate::Queue(state)) if state.node == u64::from(node.0) => {
            gpu.slots.handle(SlotId::unpack(state.turn.context))
        }
        _ => None,
    });
    let context = contexts.filter(|context| *context != line.context).last().unwrap_or(line.context);
    Line { context, ..line }
}

/// The line with the OS's handles in place of slots; 0 for what is gone.
fn named<P: Platform>(gpu: &Gpu<P>, line: Line) -> Line {
    let handle = |slot: u64| gpu.slots.handle(SlotId::unpack(slot)).unwrap_or(0);
    match line.stream {
        1 => Line { queue: handle(line.queue), context: handle(line.context), ..line },
        _ => line,
    }
}
