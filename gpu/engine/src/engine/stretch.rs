//! A stretch: packets of one burst that only store, and signal one fence, carried out one behind another; or that store
//! and are short fills and copies.
//!
//! It is what most submissions are made of. The engine looks up before a stretch and behind it, and not between its
//! packets: it is as long as the burst at most, its fills and copies are no more work than a step of an operation, and
//! every access hits the lookaside buffer: no packet of it can fault, wait or map. In front of the first packet that is
//! anything else it ends, and the packet takes the ordinary way (`execute.rs`), which also says what is wrong with it.
//! Behind the stores the engine may map the control page, to report how far the ring is consumed.
//!
//! The signals of a stretch are one store of CurrentValue, of the last of their values, when the stretch ends or the
//! entries have no more room: no value is less than the one before, so that it is as if each had been stored and none
//! of the earlier ones been seen. Each has its own log entry, behind the store (LOG-1). A packet that stores to the
//! fence's own word ends the stretch, since it comes between two values.

use super::Core;
use super::place::Place;
use crate::command_processor::FenceRef;
use crate::counters::add;
use crate::exec::{Exec, Pending};
use crate::fence_log::Entry;
use crate::host::Host;
use crate::log_batch::LogBatch;
use crate::mutation::Mutation;
use crate::ops;
use crate::shared::Shared;
use crate::stream::Burst;
use crate::word::{Ordering, Word};
use gpu_wire::GpuVa;
use gpu_wire::packet::{Fence, Header, Log, Packet, Privilege, log_operation};

/// What a packet of a stretch counts for, in bytes moved: a line that another processor has, as a rule.
const PACKET_COST: u64 = 256;

/// Signals of a stretch that are not stored yet.
struct Signals {
    /// Where the engine's cache has the fence.
    place: usize,
    address: GpuVa,
    /// The value of the last one.
    value: u64,
    count: u32,
}

impl<H: Host> Core<H> {
    /// Executes the stretch that the burst goes on with. Returns how many packets it has: 0 where the next one is of
    /// another kind.
    pub(super) fn stretch(
        &mut self,
        at: &Place<'_, H>,
        exec: &mut Exec<FenceRef<H>>,
        burst: &Burst,
        clock: &mut Option<u64>,
    ) -> u64 {
        let Place { gpu, node, job, space } = *at;
        let Some(queue) = job.queue else { return 0 };
        let passes = gpu.mutation.is(Mutation::StretchPassesStore);
        // Faults are of the ordinary way, and two orders that a stretch cannot have.
        let out_of_order = gpu.mutation.is(Mutation::NotifyBeforeValue) || gpu.mutation.is(Mutation::OwnEntryLate);
        if gpu.faults.is_armed() || out_of_order {
            return 0;
        }
        if exec.may_be_logged() {
            return 0;
        }
        let mut rest = burst.rest_of(exec);
        let number = space.id().number;
        let mut signals: Option<Signals> = None;
        let (mut packets, mut bytes, noted) = (0, 0, self.entries.len());
        // What a signal brings about is drawn in front of an operation.
        let operates = exec.pending.is_none();
        let (mut moved, mut operations) = (0, 0);
        while let Some((packet, length)) = next(rest) {
            match packet.split(Some(queue.progress)) {
                Ok((Packet::Nop, _)) => {}
                Ok((Packet::Store(b), _)) => {
                    let own = signals.as_ref().is_some_and(|signals| signals.address.0 == b.address);
                    if own && !passes {
                        break;
                    }
                    let Some(word) = self.tlb.cached(number, GpuVa(b.address), true) else { break };
                    word.store(b.value, Ordering::Release);
                }
                Ok((Packet::FenceSignal(b), Some(log))) => {
                    if self.entries.is_full() {
                        break;
                    }
                    match &mut signals {
                        Some(signals) if signals.address.0 == b.fence && b.value >= signals.value => {
                            (signals.value, signals.count) = (b.value, signals.count + 1);
                        }
                        Some(_) => break,
                        None => match self.first_signal(at, exec, number, b) {
                            None => break,
                            first => signals = first,
                        },
                    }
                    note(&mut self.entries, log);
                }
                Ok((Packet::Fill(b), _))
                    if operates && signals.is_none() && !burst.is_of(exec, b.address, b.length) =>
                {
                    self.begun(gpu, node, queue);
                    let Some(filled) = ops::fill_short(&mut self.tlb, number, b) else { break };
                    (moved, operations) = (moved + filled, operations + 1);
                }
                Ok((Packet::Copy(b), _))
                    if operates && signals.is_none() && !burst.is_of(exec, b.destination, b.length) =>
                {
                    self.begun(gpu, node, queue);
                    let Some(copied) = ops::copy_short(&mut self.tlb, number, b) else { break };
                    (moved, operations) = (moved + copied, operations + 1);
                }
                _ => break,
            }
            packets += 1;
            bytes += length;
            rest = rest.get(length as usize..).unwrap_or_default();
        }
        if packets == 0 {
            return 0;
        }
        if operations != 0 {
            // What they took is not the signal's.
            *clock = None;
        }
        if let Some(signals) = signals {
            if signals.address == queue.progress {
                self.submissions = self.submissions.saturating_add(signals.count);
            }
            self.store_last(at, exec, number, signals);
            self.done = *clock.get_or_insert_with(|| gpu.host.clock());
            self.entries.stamp(noted, self.done);
        }
        // Behind the store, which a waiter may be looking for, and at its time: to read the clock in front of it as
        // well would cost more than the packets.
        match *clock {
            Some(since) => self.has_begun(gpu, queue, since),
            None => self.begun(gpu, node, queue),
        }
        exec.synced = None;
        self.report_while_running(at, exec);
        match &mut exec.buffer {
            Some(buffer) => buffer.next = GpuVa(buffer.next.0 + bytes),
            None => exec.consumed += bytes,
        }
        add(&node.counters.packets, packets);
        add(&node.counters.bytes, moved);
        add(&node.counters.steps, operations);
        add(&queue.packets, packets);
        self.tlb.work += PACKET_COST * packets;
        packets
    }

    /// The first signal of a stretch; `None` where it takes the ordinary way.
    fn first_signal(
        &mut self,
        at: &Place<'_, H>,
        exec: &Exec<FenceRef<H>>,
        number: u64,
        Fence { fence, value }: Fence,
    ) -> Option<Signals> {
        let address = GpuVa(fence);
        let goes_on = exec
            .pending
            .as_ref()
            .is_none_or(|pending| pending.address == address && value >= pending.value && pending.logged);
        self.tlb.cached(number, address, true).filter(|_| goes_on)?;
        let place = self.fences.place(at.job.process.number, &at.job.process.fences, address)?;
        let open = self.fences.at(place)?;
        // The address may have been another fence's when what is pending was signaled.
        let goes_on = |pending: &Pending<FenceRef<H>>| Shared::ptr_eq(&pending.open.fence, &open.fence);
        if !at.gpu.mutation.is(Mutation::MergesByAddress) && !exec.pending.as_ref().is_none_or(goes_on) {
            return None;
        }
        // It is read behind the store.
        self.tlb.cached(number, open.monitored, false)?;
        Some(Signals { place, address, value, count: 1 })
    }

    /// Stores the last value of `signals`; what they bring about is drawn later, as behind any other signal.
    fn store_last(&mut self, at: &Place<'_, H>, exec: &mut Exec<FenceRef<H>>, number: u64, signals: Signals) {
        let Place { gpu, node, .. } = *at;
        let Signals { place, address, value, count } = signals;
        add(&node.counters.signals, count.into());
        // A stretch lets go of no translation.
        let Some(word) = self.tlb.cached(number, address, true) else { return };
        // The stretch has looked for no other fence.
        let Some(open) = self.fences.at(place) else { return };
        let tickets = gpu.next_ticket();
        // The device may be lost by now: then nothing is stored, and no waiter is left.
        let Some(backwards) = open.fence.store(&word, value, &gpu.mutation) else { return };
        add(&node.counters.backwards, backwards.into());
        let (open, before) = (open.clone(), exec.pending.take());
        exec.pending = Some(Pending {
            open,
            address,
            value,
            before: tickets,
            signals: u64::from(count) + before.as_ref().map_or(0, |before| before.signals),
            logged: true,
            all_logged: before.is_none_or(|before| before.all_logged && before.logged),
            fresh: false,
        });
    }
}

/// The packet that `bytes` begin with, and how many bytes it takes; `None` where it is not whole or is wrong.
#[inline(always)]
fn next(bytes: &[u8]) -> Option<(Packet<'_>, u64)> {
    let header = Header::read(bytes.first_chunk()?);
    let length = header.check_length(bytes.len() as u64).ok()?;
    let packet = Packet::decode(bytes.get(..length as usize)?, Privilege::User).ok()?;
    Some((packet, length))
}

/// Adds the entry of a signal that is not stored yet: its time is that of the store.
fn note(entries: &mut LogBatch, log: Log) {
    debug_assert_eq!(log.operation, log_operation::SIGNAL_EXECUTED);
    let Log { value, fence_handle: handle, operation, index_hint, .. } = log;
    entries.add(Entry { value, handle, operation, observed: 0, end: 0 }, index_hint);
}
