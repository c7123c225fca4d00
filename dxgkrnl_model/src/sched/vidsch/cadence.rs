//! How contexts share a packet node: in turn, and by preemption in ordinary use.
//!
//! Each context hands in a buffer in its turn. While buffers of two contexts want a node it is preempted once per slice
//! of time, and another context goes first behind that. Paging buffers go before everybody's: what runs when one is to
//! be submitted is preempted after a shorter slice. The lengths of slices are drawn from a seed.
//!
//! A context goes before those that it outranks ([`crate::objects::priority`]), and takes a node from them after the
//! shorter slice. One buffer or slice of [`SHARE`] goes to them all the same, in turn, but to the idle ones.
//!
//! Source: article gpu-preemption has it that work of a high priority is delayed where packets that run for long are
//! not preempted, and promises a request before a time-out alone; of paging commands it says that those which a
//! preemption gave back go before all others on the engine. Chosen: requests in ordinary use, 40 to 70 a second with
//! two contexts on a node, as one driver's author saw on Windows; and that all paging commands go first.

use std::cmp::{Ordering, Reverse};
use std::sync::{Arc, Weak};

use nt_model::sched::Ticks;

use super::packet::{Load, Packet};
use super::{Node, VidSch};
use crate::objects::context::Context;
use crate::objects::priority::Standing;
use crate::port::miniport::Miniport;
use crate::port::personality::{Departure, Preemption};
use crate::port::power::Power;

/// Buffers, or slices, of which contexts that are outranked have one.
const SHARE: u32 = 10;

/// A node's turns.
#[derive(Debug)]
pub(super) struct Cadence {
    dice: u64,
    /// When the slice ends; 0: none has begun.
    end: Ticks,
    /// Since when paging, or a context that outranks its own, wants the node while another has it.
    paging: Option<Ticks>,
    /// The context that goes first.
    first: Weak<Context>,
    /// Buffers and slices since a context that waits and is outranked had one.
    passed: u32,
    /// Such a context, which goes first by its share.
    owed: Weak<Context>,
    /// The one that had a buffer by its share last.
    shared: Weak<Context>,
    /// The same, while no context was preempted since.
    sharing: Weak<Context>,
}

impl Cadence {
    pub(super) fn new(seed: u64, node: u32) -> Self {
        // The state of xorshift must not be 0.
        let dice = (seed ^ (u64::from(node) << 32)).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        let nobody = Weak::new;
        let (first, owed, shared, sharing) = (nobody(), nobody(), nobody(), nobody());
        Self { dice, end: 0, paging: None, first, passed: 0, owed, shared, sharing }
    }

    /// A number from `least` to `most`.
    fn draw(&mut self, least: Ticks, most: Ticks) -> Ticks {
        self.dice ^= self.dice << 13;
        self.dice ^= self.dice >> 7;
        self.dice ^= self.dice << 17;
        least + self.dice % most.saturating_sub(least).saturating_add(1)
    }

    /// A slice begins.
    fn begin(&mut self, now: Ticks, settings: &Preemption) {
        let (least, most) = settings.slice;
        (self.end, self.paging) = (now + self.draw(least, most), None);
    }

    /// Somebody has the node while others want it, or, `soon`, paging or somebody that goes first does: when it is to
    /// be preempted.
    fn due(&mut self, soon: bool, now: Ticks, settings: &Preemption) -> Ticks {
        if self.end == 0 {
            self.begin(now, settings);
        }
        if !soon {
            self.paging = None;
            return self.end;
        }
        let since = *self.paging.get_or_insert(now);
        self.end.min(since + settings.paging_slice)
    }

    /// A buffer or a slice has passed over `waiting`. Returns whether its share is due.
    fn pass_over(&mut self, waiting: &Arc<Context>) -> bool {
        self.passed += 1;
        let is_due = self.passed >= SHARE;
        if is_due {
            self.passed = 0;
            (self.owed, self.shared) = (Arc::downgrade(waiting), Arc::downgrade(waiting));
        }
        is_due
    }
}

/// Returns whether `first` goes before `second`, whichever of them has its turn.
fn outranks(first: &Arc<Context>, second: &Arc<Context>) -> bool {
    let (ours, theirs) = (first.priority(), second.priority());
    let is_one_process = || Arc::ptr_eq(first.device().process(), second.device().process());
    match ours.standing().cmp(&theirs.standing()) {
        Ordering::Equal => ours.in_process > theirs.in_process && is_one_process(),
        unequal => unequal == Ordering::Greater,
    }
}

/// Sorts contexts so that none stands before one that outranks it, and leaves their order else.
fn by_rank(contexts: &mut [Arc<Context>]) {
    contexts.sort_by_key(|context| Reverse(context.priority().standing()));
    // Among those of one standing a process's contexts share the places that they have.
    for at in 1..contexts.len() {
        let mut at = at;
        for before in (0..at).rev() {
            if outranks(&contexts[at], &contexts[before]) {
                contexts.swap(at, before);
                at = before;
            }
        }
    }
}

/// Returns whether a context has no share while others want the node.
fn is_idle(context: &Arc<Context>) -> bool {
    context.priority().standing() == Standing::Idle
}

impl VidSch {
    /// Preempts nodes on which a context had its slice, or on which paging waits. When to look again.
    ///
    /// IRQL: PASSIVE_LEVEL; on the worker.
    pub(crate) fn keep_cadence(&self, adapter: &Arc<Miniport>) -> Option<Ticks> {
        let settings = adapter.personality().preemption;
        if !settings.in_ordinary_use {
            return None;
        }
        let packets = self.nodes().into_iter().filter(|node| !node.is_hardware_scheduled);
        packets.filter_map(|node| self.keep_cadence_of(adapter, &node, &settings)).min()
    }

    fn keep_cadence_of(&self, adapter: &Arc<Miniport>, node: &Node, settings: &Preemption) -> Option<Ticks> {
        let now = adapter.kernel().now();
        let oldest = node.packet.oldest().filter(|_| node.packet.preempting_since().is_none());
        let Some(contender) = oldest.and_then(|oldest| self.contender(adapter, node, &oldest)) else {
            node.cadence.lock().paging = None;
            return None;
        };
        let soon = matches!(contender, Contender::Paging | Contender::Higher(_));
        let due = node.cadence.lock().due(soon, now, settings);
        if now < due {
            return Some(due);
        }
        {
            let mut cadence = node.cadence.lock();
            cadence.begin(now, settings);
            match contender {
                Contender::Paging => (),
                Contender::Context(next) | Contender::Higher(next) => cadence.first = Arc::downgrade(&next),
                Contender::Lower(next) if cadence.pass_over(&next) => (),
                Contender::Lower(_) => return Some(cadence.end),
            }
            cadence.sharing = Weak::new();
        }
        node.packet.preempt(adapter);
        None
    }

    /// Preempts a node whose oldest packet has taken TdrDelay: who waits for it goes first behind that, as in ordinary
    /// use. A context that is outranked has its share.
    ///
    /// IRQL: PASSIVE_LEVEL; on the worker.
    pub(crate) fn preempt_late(&self, adapter: &Arc<Miniport>, node: &Node) {
        let contender = node.packet.oldest().and_then(|oldest| self.contender(adapter, node, &oldest));
        let contender = contender.filter(|_| !adapter.personality().departs(Departure::PreemptsForNobody));
        {
            let mut cadence = node.cadence.lock();
            match contender {
                None | Some(Contender::Paging) => (),
                Some(Contender::Context(next) | Contender::Higher(next)) => cadence.first = Arc::downgrade(&next),
                Some(Contender::Lower(next)) => {
                    let _due = cadence.pass_over(&next);
                }
            }
            cadence.sharing = Weak::new();
        }
        node.packet.preempt(adapter);
    }

    /// Who wants a node that `oldest` has; `None`: nobody else.
    fn contender(&self, adapter: &Miniport, node: &Node, oldest: &Packet) -> Option<Contender> {
        if oldest.is_paging() {
            return None;
        }
        let flights = node.packet.flights();
        if flights.iter().any(Packet::is_paging) || self.has_paging(node.ordinal) {
            return Some(Contender::Paging);
        }
        let has = &oldest.context;
        let behind = flights.into_iter().map(|packet| packet.context);
        let waiting =
            self.in_turn(adapter, node, Some(has)).into_iter().filter(|context| context.commands().has_buffer());
        let others = behind.chain(waiting).filter(|context| !Arc::ptr_eq(context, has));
        let next = others.reduce(|best, other| if outranks(&other, &best) { other } else { best })?;
        let is_shared = node.cadence.lock().sharing.upgrade().is_some_and(|sharing| Arc::ptr_eq(&sharing, has));
        match (outranks(&next, has), outranks(has, &next)) {
            (true, _) if !is_shared => Some(Contender::Higher(next)),
            (_, true) if is_idle(&next) => None,
            (_, true) => Some(Contender::Lower(next)),
            _ => Some(Contender::Context(next)),
        }
    }

    /// The contexts of a node, none before one that outranks it, and else the one behind `last` first; `None`: the one
    /// whose share or turn it is.
    fn in_turn(&self, adapter: &Miniport, node: &Node, last: Option<&Arc<Context>>) -> Vec<Arc<Context>> {
        let mut contexts = Context::on_node(adapter, node.ordinal);
        let (first, owed) = {
            let cadence = node.cadence.lock();
            (cadence.first.upgrade(), cadence.owed.upgrade().filter(|_| last.is_none()))
        };
        let at = |of: &Arc<Context>| contexts.iter().position(|context| Arc::ptr_eq(context, of));
        let start = match last {
            Some(last) => at(last).map_or(0, |at| at + 1),
            None => first.as_ref().and_then(at).unwrap_or(0),
        };
        let count = contexts.len().max(1);
        contexts.rotate_left(start % count);
        if contexts.iter().any(|context| !context.priority().is_usual()) {
            by_rank(&mut contexts);
        }
        if let Some(at) = owed.and_then(|owed| contexts.iter().position(|context| Arc::ptr_eq(context, &owed))) {
            contexts[..=at].rotate_right(1);
        }
        contexts
    }

    /// A buffer of `context` was handed over: those that wait and are outranked get their share.
    fn note_turn(&self, adapter: &Miniport, node: &Node, context: &Arc<Context>) {
        let shared = {
            let mut cadence = node.cadence.lock();
            if cadence.owed.upgrade().is_some_and(|owed| Arc::ptr_eq(&owed, context)) {
                cadence.sharing = std::mem::take(&mut cadence.owed);
                return;
            }
            cadence.shared.upgrade()
        };
        let waits = |other: &Arc<Context>| outranks(context, other) && !is_idle(other) && other.commands().has_buffer();
        let waiting = self.in_turn(adapter, node, shared.as_ref().or(Some(context))).into_iter().find(waits);
        let mut cadence = node.cadence.lock();
        match waiting {
            Some(waiting) => {
                let _due = cadence.pass_over(&waiting);
            }
            None => cadence.passed = 0,
        }
    }

    /// Hands buffers of a packet node to the driver: paging buffers first, then a buffer of each context in turn, as
    /// long as there is room.
    ///
    /// IRQL: PASSIVE_LEVEL; on the worker.
    pub(super) fn pump_packets(&self, adapter: &Arc<Miniport>, node: &Node) {
        let limit = (adapter.personality().preemption.in_flight as usize).min(adapter.known_caps().packet_cap());
        if adapter.personality().departs(Departure::NewBeforePaging) {
            self.pump_contexts(adapter, node, limit);
        }
        if let Some(system) = self.system_context() {
            while node.packet.has_room(limit) {
                let Some(buffer) = self.next_paging(&system, node.ordinal) else { break };
                let context = buffer.companion.clone().unwrap_or_else(|| system.clone());
                if let Err(Load::Paging(buffer)) = node.packet.submit(adapter, &context, Load::Paging(buffer)) {
                    self.return_paging(buffer);
                }
            }
        }
        self.pump_contexts(adapter, node, limit);
    }

    /// A buffer of each context in turn, as long as there is room.
    fn pump_contexts(&self, adapter: &Arc<Miniport>, node: &Node, limit: usize) {
        let waits = || !adapter.personality().departs(Departure::NewBeforePaging) && self.has_paging(node.ordinal);
        let has_room = || !waits() && !Power::of(adapter).sleep.rests() && node.packet.has_room(limit);
        loop {
            let mut submitted = false;
            for context in self.in_turn(adapter, node, None) {
                let took = std::cell::Cell::new(false);
                context.commands().pump(
                    adapter,
                    || !took.get() && context.may_begin() && has_room(),
                    |submission| {
                        took.set(true);
                        let handed = node.packet.submit(adapter, &context, Load::Command(submission));
                        if let Err(Load::Command(submission)) = handed {
                            context.commands().push_back_in_front(submission);
                        }
                    },
                    |changes| context.update(adapter, changes),
                );
                if took.get() {
                    submitted = true;
                    let next = self.in_turn(adapter, node, Some(&context)).into_iter().next();
                    node.cadence.lock().first = next.as_ref().map(Arc::downgrade).unwrap_or_default();
                    self.note_turn(adapter, node, &context);
                    // Who outranks others goes on.
                    break;
                }
            }
            if !submitted {
                return;
            }
        }
    }
}

/// Who wants a node that another has.
enum Contender {
    /// Paging buffers.
    Paging,
    /// A context.
    Context(Arc<Context>),
    /// A context that outranks the other.
    Higher(Arc<Context>),
    /// A context that the other outranks.
    Lower(Arc<Context>),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::port::personality::SECOND;

    #[test]
    fn a_node_that_two_contexts_want_is_preempted_40_to_70_times_a_second() {
        const SECONDS: u64 = 100;
        let settings = Preemption::default();
        for (seed, node) in (0..50).flat_map(|seed| [(seed, 0), (seed, 2)]) {
            let mut cadence = Cadence::new(seed, node);
            let (mut now, mut count) = (SECOND, 0);
            while now < (1 + SECONDS) * SECOND {
                now = cadence.due(false, now, &settings);
                cadence.begin(now, &settings);
                count += 1;
            }
            assert!((40 * SECONDS..=70 * SECONDS).contains(&count), "seed {seed}: {count} in {SECONDS} s");
        }
    }

    #[test]
    fn paging_has_a_node_sooner_and_not_later_than_a_context() {
        let settings = Preemption::default();
        let mut cadence = Cadence::new(1, 0);
        let end = cadence.due(false, SECOND, &settings);
        assert_eq!(cadence.due(true, SECOND, &settings), SECOND + settings.paging_slice);
        let late = end - settings.paging_slice / 2;
        assert_eq!(cadence.due(false, late, &settings), end);
        assert_eq!(cadence.due(true, late, &settings), end);
    }
}
