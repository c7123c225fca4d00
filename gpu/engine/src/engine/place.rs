//! Where a stream runs, and what is asked of its engine there.

use crate::address_space::AddressSpace;
use crate::command_processor::{FenceRef, Job};
use crate::exec::Exec;
use crate::gpu::Gpu;
use crate::host::Host;
use crate::node::Node;
use crate::plate::positions;
use crate::word::Ordering;
use gpu_wire::debug_blob::Line;

/// Where a stream runs.
pub(super) struct Place<'a, H: Host> {
    pub gpu: &'a Gpu<H>,
    pub node: &'a Node<H>,
    pub job: &'a Job<'a, H>,
    pub space: &'a AddressSpace<H>,
}

/// A queue, and a packet, by their numbers in `debug_blob::STREAMS`.
pub(super) const QUEUE_STREAM: u64 = 1;
pub(super) const PACKET_STREAM: u64 = 2;

/// Where a stream is.
pub(super) fn line<H: Host>(gpu: &Gpu<H>, job: &Job<'_, H>, exec: &Exec<FenceRef<H>>, end: u64) -> Line {
    let (stream, queue, context, value) = match (job.queue, job.packet) {
        (Some(queue), _) => {
            let value = queue.running.load(Ordering::Relaxed);
            (QUEUE_STREAM, queue.slot.pack(), queue.context.slot.pack(), value)
        }
        (None, Some((context, fence))) => (PACKET_STREAM, 0, context, fence.into()),
        (None, None) => (0, 0, 0, 0),
    };
    let ring = positions(exec);
    let next = exec.buffer.map_or(0, |buffer| buffer.next.0);
    Line { stream, end, queue, context, value, ring, next, clock: gpu.host.clock() }
}

/// How often an engine looks whether the others have served a flush before it waits for them: some 40 µs. Once where
/// schedules are explored: a look is a step there.
const FLUSH_LOOKS: u32 = if cfg!(feature = "explore") { 1 } else { 1_000 };

/// Returns whether the flush `number` is done, or is so soon: the others, where they are awake, look up within the time
/// in which this looks.
pub(super) fn flush_is_done<H: Host>(gpu: &Gpu<H>, node: &Node<H>, number: u64) -> bool {
    for _ in 0..FLUSH_LOOKS {
        if gpu.flush_done(number) || node.attention.load(Ordering::Relaxed) != 0 {
            break;
        }
        core::hint::spin_loop();
    }
    gpu.flush_done(number)
}

/// Returns whether a look may have the stream come off: something is asked of the engine, or the turn is over.
pub(super) fn is_asked<H: Host>(node: &Node<H>, turn: u64) -> bool {
    turn == 0 || node.attention.load(Ordering::Relaxed) != 0 || !node.arrivals.is_empty()
}

/// Returns whether the job's queue has no connected doorbell. `false` for a job without a queue.
pub(super) fn is_watched_only<H: Host>(job: &Job<'_, H>) -> bool {
    job.queue.is_some_and(|queue| queue.connected.load(Ordering::Acquire) == 0)
}
