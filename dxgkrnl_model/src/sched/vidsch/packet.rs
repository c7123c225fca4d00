//! Packet nodes: buffers with 32-bit fence ids, completed in the order in which they were submitted.
//!
//! Submissions and preemptions of one node share one sequence of ids. Completing an id completes every buffer before it
//! in the hardware queue; an id that is not outstanding breaks DXG-INT-FENCE at interrupt time. What a preemption or
//! the reset of an engine gives back is submitted again: paging buffers under the ids that they had, in their order,
//! before anything new; others under new ids. The flag `Resubmission` is for what a preemption gave back.
//!
//! Source: articles supplying-fence-identifiers, gpu-preemption, tdr-changes-in-windows-8; DDI pages
//! DxgkDdiSubmitCommandVirtual, DxgkDdiPreemptCommand; DXGK_SUBMITCOMMANDFLAGS.
//!
//! Chosen: paging buffers come first; how many buffers are with the driver at a time is
//! [`Preemption::in_flight`](crate::port::personality::Preemption); which ids count as submitted is [`Submitted`].

mod ids;
mod submit;

use std::collections::VecDeque;
use std::sync::Arc;

use nt_model::Machine;
use nt_model::sched::Ticks;

pub(crate) use ids::is_before;

use super::journal::{Journal, PacketEvent, Preemptions};
use crate::memory::completion::Completion;
use crate::objects::command::Submission;
use crate::objects::context::Context;
use crate::port::miniport::Miniport;
use crate::port::personality::{Departure, Submitted};
use crate::port::place::Place;
use crate::port::sync::{Lock, Rank, Signal};

/// Ids that a reset has ended and that are remembered.
const REMEMBERED: usize = 64;
/// The first id: not a small number, so that a driver that counts by itself is seen.
const FIRST_ID: u32 = 0x100;

/// A paging buffer to be submitted.
#[derive(Clone, Debug)]
pub(crate) struct PagingBuffer {
    pub(crate) address: u64,
    pub(crate) size: u32,
    /// Address and size of its private data, which stay until it is done.
    pub(crate) private: usize,
    pub(crate) private_size: u32,
    /// The companion context that it is for; `None`: the system context.
    pub(crate) companion: Option<Arc<Context>>,
    /// The driver's handles of the allocations that its operations refer to.
    pub(crate) refers: Arc<[usize]>,
    /// Its place among all paging buffers of the adapter, which it keeps when the driver gives it back.
    pub(crate) number: u64,
    /// The id that it has, if the driver has given it back.
    pub(crate) id: Option<u32>,
    /// A preemption gave it back.
    pub(crate) again: bool,
    pub(crate) completion: Arc<Completion>,
}

/// What a packet is.
#[derive(Clone, Debug)]
pub(crate) enum Load {
    Paging(PagingBuffer),
    Command(Submission),
}

/// A buffer that is with the driver.
#[derive(Clone, Debug)]
pub(crate) struct Packet {
    pub(crate) id: u32,
    pub(crate) context: Arc<Context>,
    pub(crate) load: Load,
    /// When the driver got it.
    pub(crate) since: Ticks,
}

impl Packet {
    /// Whether it is the system's.
    pub(crate) fn is_paging(&self) -> bool {
        matches!(self.load, Load::Paging(_))
    }

    /// It is done; or lost, by a fault, a refusal or a reset.
    pub(crate) fn end(&self, kernel: &Machine, done: bool) {
        match (&self.load, done) {
            (Load::Paging(buffer), _) => buffer.completion.end(kernel, done),
            (Load::Command(_), true) => self.context.commands().completed(kernel),
            (Load::Command(_), false) => self.context.commands().lost(kernel),
        }
    }
}

#[derive(Debug)]
struct State {
    /// The newest id: a packet's or a preemption's.
    newest: u32,
    /// The newest id of a packet.
    last_packet: u32,
    /// Behind an adapter reset: the newest id that it has ended. Another event moves it on with the last completed one.
    ended: u32,
    last_completed: u32,
    flights: VecDeque<Packet>,
    /// A preemption that was asked for and not acknowledged, and when.
    preempting: Option<(u32, Ticks)>,
    /// Packets come back from the driver and are not in their lists yet: nothing else goes there before them.
    giving_back: bool,
    /// The preemption that was given more time, since nothing was with the driver.
    waited_on: Option<u32>,
    /// Nothing is submitted, and the engine's interrupts are ignored: it is being reset.
    frozen: bool,
    /// An interrupt that was ignored told of fences: they are looked at behind the reset.
    unheard: bool,
    /// The last ids that resets have ended.
    lost: VecDeque<u32>,
    /// The last ids that the driver has refused.
    refused: VecDeque<u32>,
    /// The last packet that the driver took: its function has returned success.
    taken: u32,
    /// The same when the node was frozen last.
    taken_by_reset: u32,
    /// The last packet of which the driver knows that it is over.
    over: u32,
}

impl State {
    /// Enters packets that come to no end any more, so that a late completion of one is told from a wrong id.
    fn remember<'a>(&mut self, packets: impl IntoIterator<Item = &'a Packet>) {
        self.lost.extend(packets.into_iter().map(|packet| packet.id));
        let surplus = self.lost.len().saturating_sub(REMEMBERED);
        self.lost.drain(..surplus);
    }

    /// Everything up to `id` is over.
    fn advance(&mut self, id: u32) {
        (self.last_completed, self.over, self.ended) = (id, id, id);
    }

    /// The driver took the packet with this id. A paging packet that came back has an id from before the newest one,
    /// which stays.
    fn took(&mut self, id: u32) {
        if is_before(self.taken, id) {
            self.taken = id;
        }
    }

    fn next_id(&mut self) -> u32 {
        self.newest = self.newest.wrapping_add(1);
        self.newest
    }
}

/// A packet node.
#[derive(Debug)]
pub(crate) struct PacketNode {
    ordinal: u32,
    /// As the driver knows it.
    place: Place,
    /// What counts as submitted.
    submitted: Submitted,
    state: Lock<State>,
    /// A packet has ended, or the preemption was acknowledged.
    pub(crate) changed: Signal,
    journal: Journal,
}

/// What the scheduler knows of a node at the moment from which on its interrupts are ignored.
#[derive(Clone, Debug)]
pub(crate) struct Snapshot {
    /// Last completed id.
    pub(crate) completed: u32,
    /// Last submitted id.
    pub(crate) submitted: u32,
    /// Ids in the hardware queue, in order.
    pub(crate) outstanding: Vec<u32>,
}

impl PacketNode {
    pub(crate) fn new(ordinal: u32, place: Place, submitted: Submitted) -> Self {
        let state = State {
            newest: FIRST_ID,
            last_packet: FIRST_ID,
            ended: FIRST_ID,
            last_completed: FIRST_ID,
            flights: VecDeque::new(),
            preempting: None,
            giving_back: false,
            waited_on: None,
            frozen: false,
            unheard: false,
            lost: VecDeque::new(),
            refused: VecDeque::new(),
            taken: FIRST_ID,
            taken_by_reset: FIRST_ID,
            over: FIRST_ID,
        };
        let (state, changed) = (Lock::new(Rank::Node, state), Signal::new());
        Self { ordinal, place, submitted, state, changed, journal: Journal::new() }
    }

    /// What has happened to the node's packets, in order.
    pub(crate) fn journal(&self) -> Vec<PacketEvent> {
        self.journal.events()
    }

    /// How often it was preempted.
    pub(crate) fn preemptions(&self) -> Preemptions {
        self.journal.preemptions()
    }

    /// Whether the driver may get another buffer, `limit` at most.
    pub(crate) fn has_room(&self, limit: usize) -> bool {
        let state = self.state.lock();
        let is_open = !state.frozen && !state.giving_back && state.preempting.is_none();
        is_open && state.flights.len() < limit.max(1)
    }

    /// Packets that are with the driver, in order.
    pub(crate) fn flights(&self) -> Vec<Packet> {
        self.state.lock().flights.iter().cloned().collect()
    }

    /// The oldest buffer that is with the driver: since when, and whose.
    pub(crate) fn oldest(&self) -> Option<Packet> {
        self.state.lock().flights.front().cloned()
    }

    /// Ids: last completed, last submitted, outstanding.
    pub(crate) fn ids(&self) -> (u32, u32, Vec<u32>) {
        let state = self.state.lock();
        (state.last_completed, self.last_submitted(&state), state.flights.iter().map(|packet| packet.id).collect())
    }

    fn last_submitted(&self, state: &State) -> u32 {
        match self.submitted {
            Submitted::WithPreemptions => state.newest,
            Submitted::Packets => state.last_packet,
        }
    }

    /// The last packet of which the driver knows that it is over: it has reported that one or one behind it, or a reset
    /// has ended it.
    pub(crate) fn over(&self) -> u32 {
        self.state.lock().over
    }

    /// Whether a reset has ended this id. `None`: there was no reset.
    pub(crate) fn was_lost(&self, id: u32) -> Option<bool> {
        let state = self.state.lock();
        (!state.lost.is_empty()).then(|| state.lost.contains(&id))
    }

    /// Whether a buffer of the context is with the driver.
    pub(crate) fn has_buffers_of(&self, context: &Arc<Context>) -> bool {
        self.state.lock().flights.iter().any(|packet| Arc::ptr_eq(&packet.context, context))
    }

    /// Takes back every paging buffer that the driver has, as lost.
    pub(crate) fn give_up_paging(&self, kernel: &Machine) {
        let lost = {
            let mut state = self.state.lock();
            let (lost, kept): (VecDeque<_>, _) = state.flights.drain(..).partition(Packet::is_paging);
            state.flights = kept;
            state.remember(&lost);
            lost
        };
        for packet in lost {
            packet.end(kernel, false);
        }
        self.changed.notify(kernel);
    }

    /// Takes back a buffer that the driver refused.
    fn take(&self, id: u32) -> Option<Packet> {
        let mut state = self.state.lock();
        state.refused.push_back(id);
        let surplus = state.refused.len().saturating_sub(REMEMBERED);
        state.refused.drain(..surplus);
        let at = state.flights.iter().position(|packet| packet.id == id)?;
        state.flights.remove(at)
    }

    /// The driver reported `id` as completed: that packet and every earlier one. `Err`: it is not outstanding.
    ///
    /// IRQL: any.
    pub(crate) fn complete(&self, id: u32) -> Result<Vec<Packet>, ()> {
        let mut state = self.state.lock();
        let at = state.flights.iter().position(|packet| packet.id == id).ok_or(())?;
        state.advance(id);
        self.journal.note(PacketEvent::Completed { id });
        Ok(state.flights.drain(..=at).collect())
    }

    /// Whether the engine's interrupts are ignored: it is being reset.
    pub(crate) fn is_ignored(&self) -> bool {
        self.state.lock().frozen
    }

    /// An interrupt that is ignored tells of fences.
    ///
    /// IRQL: any.
    pub(crate) fn leave_unheard(&self) {
        self.state.lock().unheard = true;
    }

    /// Returns whether an interrupt that was ignored told of fences, and forgets it.
    pub(crate) fn take_unheard(&self) -> bool {
        std::mem::take(&mut self.state.lock().unheard)
    }

    /// The driver reported `id` as faulted: those before it are completed, it is taken out.
    pub(crate) fn fault(&self, id: u32) -> Result<(Vec<Packet>, Packet), ()> {
        let mut done = self.complete(id)?;
        let faulted = done.pop().ok_or(())?;
        Ok((done, faulted))
    }

    /// The driver acknowledged a preemption: what was completed before it, and what comes back. Behind that, see
    /// [`given_back`](Self::given_back).
    pub(crate) fn preempted(&self, id: u32, last_completed: u32) -> Result<(Vec<Packet>, Vec<Packet>), ()> {
        let mut state = self.state.lock();
        if state.preempting.is_none_or(|(asked, _)| asked != id) {
            return Err(());
        }
        let last_completed = state.meant_by(last_completed);
        let known =
            last_completed == state.last_completed || state.flights.iter().any(|packet| packet.id == last_completed);
        if !known {
            return Err(());
        }
        (state.preempting, state.giving_back) = (None, true);
        let done = match state.flights.iter().position(|packet| packet.id == last_completed) {
            Some(at) => state.flights.drain(..=at).collect(),
            None => Vec::new(),
        };
        state.advance(last_completed);
        let back: Vec<_> = state.flights.drain(..).collect();
        self.journal.note(PacketEvent::Preempted { request: id, completed: last_completed, back: back.len() });
        Ok((done, back))
    }

    /// The packet that a driver means by `id`, which is that one or, where it has refused that, the one before it.
    pub(crate) fn meant_by(&self, id: u32) -> u32 {
        self.state.lock().meant_by(id)
    }

    /// What came back is in its lists.
    pub(crate) fn given_back(&self) {
        self.state.lock().giving_back = false;
    }

    /// The preemption that is not acknowledged.
    pub(crate) fn preempting(&self) -> Option<u32> {
        self.state.lock().preempting.map(|(request, _)| request)
    }

    /// Since when a preemption is not acknowledged; `None`: there is none.
    pub(crate) fn preempting_since(&self) -> Option<Ticks> {
        self.state.lock().preempting.map(|(_, since)| since)
    }

    /// Returns whether the driver has no packet of a context's, and owes no answer to a preemption.
    pub(crate) fn is_off(&self) -> bool {
        let state = self.state.lock();
        state.preempting.is_none() && !state.giving_back && state.flights.iter().all(Packet::is_paging)
    }

    /// Begins a reset: nothing is submitted, and the engine's interrupts are ignored from here on; unless nothing is
    /// with the driver and `anyway` is false, when there is nothing to reset. What is known at that moment.
    ///
    /// IRQL: the device's, under the interrupt lock, so that no interrupt comes in between.
    pub(crate) fn snapshot(&self, anyway: bool) -> Snapshot {
        let mut state = self.state.lock();
        if anyway || !state.flights.is_empty() {
            state.frozen = true;
            state.taken_by_reset = state.taken;
        }
        self.noted(&state)
    }

    /// What a reset is to know of the node, as it is now; its interrupts count all the same.
    pub(crate) fn note(&self) -> Snapshot {
        self.noted(&self.state.lock())
    }

    fn noted(&self, state: &State) -> Snapshot {
        Snapshot {
            completed: state.last_completed,
            submitted: self.last_submitted(state),
            outstanding: state.flights.iter().map(|packet| packet.id).collect(),
        }
    }

    /// The preemption that is not acknowledged and whose `delay` is over has as much from `now`. `false`: it had that
    /// once before, and is given up.
    pub(crate) fn wait_on(&self, now: Ticks, delay: Ticks) -> bool {
        let mut state = self.state.lock();
        let Some((request, _)) = state.preempting.filter(|(_, since)| now >= since + delay) else { return true };
        let once = state.waited_on != Some(request);
        state.waited_on = Some(request);
        state.preempting = once.then_some((request, now));
        once
    }

    /// Ends a reset in which the interrupts of the engine were ignored, in which `aborted` was the last fence that was
    /// lost: it and those before it do not come back, the rest does. `None`: everything is lost. Behind that, see
    /// [`given_back`](Self::given_back).
    pub(crate) fn thaw(&self, adapter: &Miniport, aborted: Option<u32>) -> (Vec<Packet>, Vec<Packet>) {
        let departs = |how| adapter.personality().departs(how);
        let mut state = self.state.lock();
        (state.frozen, state.giving_back) = (false, true);
        let request = state.preempting.take().map(|(request, _)| request);
        state.lost.extend(request);
        let lost = match aborted {
            None => state.flights.len(),
            Some(_) if departs(Departure::TakesAllBehind) => state.flights.len(),
            Some(id) => state.flights.iter().position(|packet| packet.id == id).map_or(0, |at| at + 1),
        };
        let lost: Vec<_> = state.flights.drain(..lost).collect();
        state.remember(&lost);
        match aborted {
            Some(id) if !departs(Departure::EngineMovesNothing) => state.advance(id),
            None if !departs(Departure::AdapterMovesNothing) => {
                (state.last_completed, state.ended) = (self.last_submitted(&state), state.newest);
                if is_before(state.over, state.taken_by_reset) {
                    state.over = state.taken_by_reset;
                }
            }
            _ => {}
        }
        let back: Vec<_> = state.flights.drain(..).collect();
        self.journal.note(PacketEvent::Reset { aborted, lost: lost.len(), back: back.len() });
        (lost, back)
    }
}

#[cfg(test)]
mod tests;
