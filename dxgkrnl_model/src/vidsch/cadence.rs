//! How contexts share a packet node: in turn, and by preemption in ordinary use.
//!
//! Each context hands in a buffer in its turn. While buffers of two contexts want a node it is preempted once per slice
//! of time, and another context goes first behind that. Paging buffers go before everybody's: what runs when one is to
//! be submitted is preempted after a shorter slice. The lengths of slices are drawn from a seed.
//!
//! Source: article gpu-preemption (requests are sent in ordinary use, paging commands are scheduled before any others
//! on the engine); the numbers are what one driver's author saw on Windows, 40 to 70 preemptions a second with two
//! contexts on a node.

use std::sync::{Arc, Weak};

use nt_model::sched::Ticks;

use super::packet::{Load, Packet};
use super::{Node, VidSch};
use crate::adapter::Adapter;
use crate::context::Context;
use crate::personality::{Departure, Preemption};

/// A node's turns.
#[derive(Debug)]
pub(super) struct Cadence {
    dice: u64,
    /// When the slice ends; 0: none has begun.
    end: Ticks,
    /// Since when paging wants the node while another has it.
    paging: Option<Ticks>,
    /// The context that goes first.
    first: Weak<Context>,
}

impl Cadence {
    pub(super) fn new(seed: u64, node: u32) -> Self {
        // The state of xorshift must not be 0.
        let dice = (seed ^ (u64::from(node) << 32)).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        Self { dice, end: 0, paging: None, first: Weak::new() }
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

    /// Somebody has the node while others want it, or paging does: when it is to be preempted.
    fn due(&mut self, paging: bool, now: Ticks, settings: &Preemption) -> Ticks {
        if self.end == 0 {
            self.begin(now, settings);
        }
        if !paging {
            self.paging = None;
            return self.end;
        }
        let since = *self.paging.get_or_insert(now);
        self.end.min(since + settings.paging_slice)
    }
}

impl VidSch {
    /// Preempts nodes on which a context had its slice, or on which paging waits. When to look again.
    ///
    /// IRQL: PASSIVE_LEVEL; on the worker.
    pub(super) fn keep_cadence(&self, adapter: &Arc<Adapter>) -> Option<Ticks> {
        let settings = adapter.personality().preemption;
        if !settings.in_ordinary_use {
            return None;
        }
        let packets = self.nodes().into_iter().filter(|node| !node.is_hardware_scheduled);
        packets.filter_map(|node| self.keep_cadence_of(adapter, &node, &settings)).min()
    }

    fn keep_cadence_of(&self, adapter: &Arc<Adapter>, node: &Node, settings: &Preemption) -> Option<Ticks> {
        let now = adapter.kernel().now();
        let oldest = node.packet.oldest().filter(|_| node.packet.preempting_since().is_none());
        let Some(contender) = oldest.and_then(|oldest| self.contender(node, &oldest)) else {
            node.cadence.lock().paging = None;
            return None;
        };
        let due = node.cadence.lock().due(matches!(contender, Contender::Paging), now, settings);
        if now < due {
            return Some(due);
        }
        {
            let mut cadence = node.cadence.lock();
            cadence.begin(now, settings);
            if let Contender::Context(next) = contender {
                cadence.first = next;
            }
        }
        node.packet.preempt(adapter);
        None
    }

    /// Who wants a node that `oldest` has; `None`: nobody else.
    fn contender(&self, node: &Node, oldest: &Packet) -> Option<Contender> {
        if oldest.is_paging() {
            return None;
        }
        let flights = node.packet.flights();
        if flights.iter().any(Packet::is_paging) || self.has_paging(node.ordinal) {
            return Some(Contender::Paging);
        }
        let is_other = |context: &Arc<Context>| !Arc::ptr_eq(context, &oldest.context);
        let behind = flights.into_iter().map(|packet| packet.context).find(is_other);
        let waiting = || {
            self.in_turn(node, Some(&oldest.context))
                .into_iter()
                .find(|context| is_other(context) && context.commands().has_buffer())
        };
        behind.or_else(waiting).map(|context| Contender::Context(Arc::downgrade(&context)))
    }

    /// The contexts of a node, the one behind `last` first; `None`: the one whose turn it is.
    fn in_turn(&self, node: &Node, last: Option<&Arc<Context>>) -> Vec<Arc<Context>> {
        let mut contexts: Vec<_> = node.contexts.lock().iter().filter_map(Weak::upgrade).collect();
        let first = node.cadence.lock().first.upgrade();
        let at = |of: &Arc<Context>| contexts.iter().position(|context| Arc::ptr_eq(context, of));
        let start = match last {
            Some(last) => at(last).map_or(0, |at| at + 1),
            None => first.as_ref().and_then(at).unwrap_or(0),
        };
        let count = contexts.len().max(1);
        contexts.rotate_left(start % count);
        contexts
    }

    /// Hands buffers of a packet node to the driver: paging buffers first, then a buffer of each context in turn, as
    /// long as there is room.
    ///
    /// IRQL: PASSIVE_LEVEL; on the worker.
    pub(super) fn pump_packets(&self, adapter: &Arc<Adapter>, node: &Node) {
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
    fn pump_contexts(&self, adapter: &Arc<Adapter>, node: &Node, limit: usize) {
        let waits = || !adapter.personality().departs(Departure::NewBeforePaging) && self.has_paging(node.ordinal);
        loop {
            let mut submitted = false;
            for context in self.in_turn(node, None) {
                let took = std::cell::Cell::new(false);
                context.commands().pump(
                    adapter,
                    || !took.get() && !waits() && node.packet.has_room(limit),
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
                    let next = self.in_turn(node, Some(&context)).into_iter().next();
                    node.cadence.lock().first = next.as_ref().map(Arc::downgrade).unwrap_or_default();
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
    Context(Weak<Context>),
}
