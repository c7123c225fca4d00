//! In which of a queue's rings a turn is.

use super::outcome::Outcome;
use crate::command_processor::{FenceRef, Job};
use crate::exec::Exec;
use crate::gpu::Gpu;
use crate::host::Host;
use crate::mutation::Mutation;
use crate::queue::{Queue, abandon};
use crate::word::Ordering;

/// Takes over how the rings of `queue` have changed since its last turn. In another ring than it was the stream begins
/// at position 0, and what waits in a fence's list for the old one leaves that.
pub(super) fn take_rings_over<H: Host>(gpu: &Gpu<H>, queue: &Queue<H>, exec: &mut Exec<FenceRef<H>>) {
    let bindings = queue.bindings.load(Ordering::Acquire);
    if bindings == exec.bindings {
        return;
    }
    let first = queue.first_ring();
    if first.number != exec.ring {
        let keeps = gpu.mutation.is(Mutation::NextRingGoesOn);
        let consumed = if keeps { exec.consumed } else { 0 };
        abandon(queue, exec);
        *exec = Exec { ring: first.number, binding: first.binding, consumed, ..Exec::new() };
        gpu.show_ring(queue, first.binding);
    }
    exec.bindings = bindings;
    exec.is_aside = first.is_aside && !gpu.mutation.is(Mutation::RunsAside);
    if queue.user_mode {
        queue.take_over(bindings, exec.retired());
    }
}

/// Returns whether the stream comes off, since the rings of `queue` have changed: it goes on in another turn. Where it
/// cannot, which is what `leaves` says, since it is in a command buffer, it touches the ring no more in this one.
pub(super) fn leaves_old_ring<H: Host>(queue: &Queue<H>, exec: &mut Exec<FenceRef<H>>, leaves: bool) -> bool {
    let bindings = queue.bindings.load(Ordering::Acquire);
    if bindings == exec.bindings || !queue.user_mode {
        return false;
    }
    if !leaves && exec.buffer.is_some() && !exec.may_be_logged() {
        exec.is_aside = true;
        queue.let_go_of_rings(bindings);
    }
    leaves
}

/// The ring has nothing more, and another one stands behind it. What was published in front of that one is seen by a
/// look behind its sight: `None`, the caller looks again. Behind that the stream comes off, and its next turn is in the
/// next ring.
pub(super) fn leaves_ring<H: Host>(gpu: &Gpu<H>, queue: &Queue<H>, exec: &mut Exec<FenceRef<H>>) -> Option<Outcome> {
    if exec.last_look != Some(exec.consumed) && !gpu.mutation.is(Mutation::LeavesUnlooked) {
        (exec.last_look, exec.looked) = (Some(exec.consumed), None);
        return None;
    }
    queue.leave_ring(exec.ring);
    Some(Outcome::Budget)
}

/// The ring cannot be read. User mode may free one that was replaced, once its read pointer says that all is done: then
/// the stream is in the next one behind this. Returns whether it is; `false`: the ring is missing.
pub(super) fn leaves_lost_ring<H: Host>(job: &Job<'_, H>, exec: &Exec<FenceRef<H>>) -> bool {
    let is_done = exec.published == exec.consumed;
    job.queue.is_some_and(|queue| is_done && queue.has_next_ring() && queue.leave_ring(exec.ring))
}
