//! One thread at a time, the next one chosen from a seed, time that moves only when every thread waits.
//!
//! Operating-system threads hand a baton: the thread that holds it runs, all others sleep on their slot. At each yield
//! point the holder asks a pseudo-random generator whether, and to whom, to hand over; a thread that parks hands over
//! in any case. The clock is virtual: one tick per yield point, and when every thread waits it jumps to the earliest
//! deadline. So two runs with the same seed of a program whose threads interact only through the model take the same
//! path, and [`SeededScheduler::decisions`] lists it; [`SeededScheduler::replay`] follows such a list whatever the
//! seed.
//!
//! A host thread takes part while it is inside [`Machine::enter`](crate::Machine::enter). It must not wait outside the
//! model while it holds the baton (joining a thread, say): leave the kernel first.

#[path = "pin.rs"]
mod pin;
#[cfg(test)]
#[path = "tests.rs"]
mod tests;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;

use super::{DeadlockHook, Scheduler, Slot, Ticks, YieldPoint};

/// Options of a [`SeededScheduler`].
#[derive(Clone, Debug)]
pub struct SeededOptions {
    /// The seed. Equal seeds, equal schedules.
    pub seed: u64,
    /// At a yield point the holder hands over with a probability of one in this number. 1: it always draws lots.
    pub one_in: u32,
    /// Ticks that pass at each yield point.
    pub ticks_per_yield: Ticks,
    /// No host thread other than those inside the kernel will ever wake anybody: when all wait and no deadline is set,
    /// that is a deadlock, reported at once.
    pub closed: bool,
    /// Keep all threads on the processor of the first one: faster hand-over.
    pub pin: bool,
    /// Follow these decisions instead of the seed; past their end nobody hands over without need.
    pub replay: Option<Vec<Decision>>,
}

impl SeededOptions {
    /// The usual options with this seed.
    pub fn new(seed: u64) -> Self {
        Self { seed, one_in: 4, ticks_per_yield: 1, closed: true, pin: true, replay: None }
    }
}

/// At yield or park number `step`, the baton went to `thread`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Decision {
    /// Counts yield points and parks from 1.
    pub step: u64,
    /// Slot number.
    pub thread: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Status {
    Ready,
    Parked(Option<Ticks>),
    Spinning(usize),
}

struct Member {
    slot: Arc<Slot>,
    status: Status,
    token: bool,
}

struct State {
    members: Vec<Member>,
    holder: Option<u64>,
    random: u64,
    step: u64,
    decisions: Vec<Decision>,
    replay_at: usize,
}

/// See the module's text.
pub struct SeededScheduler {
    options: SeededOptions,
    clock: AtomicU64,
    free_running: AtomicBool,
    processor: AtomicUsize,
    state: Mutex<State>,
    on_deadlock: Mutex<Option<DeadlockHook>>,
    /// A deadlock that was found and not yet reported.
    deadlock: Mutex<Option<String>>,
}

impl fmt::Debug for SeededScheduler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SeededScheduler").field("seed", &self.options.seed).finish_non_exhaustive()
    }
}

impl State {
    /// xorshift64*: small, fast, and the same everywhere.
    fn draw(&mut self) -> u64 {
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        self.random.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    fn member(&mut self, id: u64) -> Option<&mut Member> {
        self.members.iter_mut().find(|member| member.slot.id() == id)
    }

    fn expire(&mut self, now: Ticks) {
        for member in &mut self.members {
            if matches!(member.status, Status::Parked(Some(deadline)) if deadline <= now) {
                member.status = Status::Ready;
            }
        }
    }

    fn earliest(&self) -> Option<Ticks> {
        let deadline = |member: &Member| match member.status {
            Status::Parked(deadline) => deadline,
            _ => None,
        };
        self.members.iter().filter_map(deadline).min()
    }

    /// One of the ready members, `except` only when nobody else is.
    fn choose(&mut self, except: Option<u64>) -> Option<u64> {
        let ready = |member: &&Member| member.status == Status::Ready && Some(member.slot.id()) != except;
        let count = self.members.iter().filter(ready).count();
        if count == 0 {
            let own = self.members.iter().find(|m| m.status == Status::Ready);
            return own.map(|member| member.slot.id());
        }
        // CAST: below the number of members.
        let at = (self.draw() % count as u64) as usize;
        self.members.iter().filter(ready).nth(at).map(|member| member.slot.id())
    }
}

impl SeededScheduler {
    /// A scheduler with these options; its clock stands at 0.
    pub fn new(options: SeededOptions) -> Arc<Self> {
        // xorshift must not start at 0; spread small seeds.
        let random = options.seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0x6A09_E667_F3BC_C909;
        let state = State {
            members: Vec::new(),
            holder: None,
            random: random.max(1),
            step: 0,
            decisions: Vec::new(),
            replay_at: 0,
        };
        Arc::new(Self {
            options,
            clock: AtomicU64::new(0),
            free_running: AtomicBool::new(false),
            processor: AtomicUsize::new(usize::MAX),
            state: Mutex::new(state),
            on_deadlock: Mutex::new(None),
            deadlock: Mutex::new(None),
        })
    }

    /// Follows `decisions` from an earlier run.
    pub fn replay(decisions: Vec<Decision>) -> Arc<Self> {
        Self::new(SeededOptions { replay: Some(decisions), ..SeededOptions::new(0) })
    }

    /// Every hand-over so far.
    pub fn decisions(&self) -> Vec<Decision> {
        self.state.lock().decisions.clone()
    }

    /// Yield points and parks so far.
    pub fn steps(&self) -> u64 {
        self.state.lock().step
    }

    /// Reports a deadlock that was found under the lock. Call it without the lock.
    fn report_deadlock(&self) {
        let found = self.deadlock.lock().take();
        if let Some(text) = found
            && let Some(hook) = &*self.on_deadlock.lock()
        {
            hook(text);
        }
    }

    fn runs_freely(&self) -> bool {
        self.free_running.load(Ordering::Acquire)
    }

    /// Wakes everybody for good: from now on parks return at once.
    fn run_freely(&self, state: &State) {
        self.free_running.store(true, Ordering::Release);
        for member in &state.members {
            member.slot.wake();
        }
    }

    /// Whom to run at this step according to the seed or the recorded decisions. `None`: the holder goes on.
    fn decide(&self, state: &mut State, me: u64) -> Option<u64> {
        if let Some(replay) = &self.options.replay {
            let decision = *replay.get(state.replay_at)?;
            if decision.step != state.step {
                return None;
            }
            state.replay_at += 1;
            return Some(decision.thread);
        }
        if self.options.one_in > 1 && !state.draw().is_multiple_of(self.options.one_in.into()) {
            return None;
        }
        state.choose(Some(me))
    }

    /// Hands over to `next`. True: the caller was the holder and must wait for its turn.
    fn hand_to(state: &mut State, me: u64, next: u64) -> bool {
        if next == me {
            state.holder = Some(me);
            return false;
        }
        let step = state.step;
        state.decisions.push(Decision { step, thread: next });
        state.holder = Some(next);
        if let Some(member) = state.member(next) {
            member.slot.wake();
        }
        true
    }

    /// The caller no longer runs: somebody else must. Moves the clock when nobody can.
    fn pass_on(&self, state: &mut State, me: u64) -> bool {
        loop {
            let now = self.clock.load(Ordering::Relaxed);
            state.expire(now);
            let recorded = match &self.options.replay {
                Some(replay) => {
                    let found = replay.get(state.replay_at).filter(|decision| decision.step == state.step);
                    state.replay_at += usize::from(found.is_some());
                    found.map(|decision| decision.thread)
                }
                None => None,
            };
            if let Some(next) = recorded.or_else(|| state.choose(None)) {
                return Self::hand_to(state, me, next);
            }
            if let Some(earliest) = state.earliest() {
                self.clock.fetch_max(earliest, Ordering::Relaxed);
                continue;
            }
            state.holder = None;
            if self.options.closed && state.members.iter().any(|member| member.slot.id() == me) {
                let waiting: Vec<_> =
                    state.members.iter().map(|m| format!("{}: {:?}", m.slot.id(), m.status)).collect();
                *self.deadlock.lock() = Some(waiting.join(", "));
                self.run_freely(state);
                return false;
            }
            return true;
        }
    }

    fn yield_with(&self, slot: &Slot, ticks: Ticks) {
        if self.runs_freely() {
            return;
        }
        self.clock.fetch_add(ticks, Ordering::Relaxed);
        let mut state = self.state.lock();
        if state.holder != Some(slot.id()) {
            return;
        }
        state.step += 1;
        state.expire(self.clock.load(Ordering::Relaxed));
        let Some(next) = self.decide(&mut state, slot.id()) else { return };
        let must_wait = Self::hand_to(&mut state, slot.id(), next);
        drop(state);
        if must_wait {
            slot.wait_token(None);
        }
    }
}

impl Scheduler for SeededScheduler {
    fn now(&self) -> Ticks {
        self.clock.load(Ordering::Relaxed)
    }

    fn interposes(&self) -> bool {
        true
    }

    fn announce(&self, slot: &Arc<Slot>) {
        let mut state = self.state.lock();
        if state.member(slot.id()).is_none() {
            state.members.push(Member { slot: slot.clone(), status: Status::Ready, token: false });
        }
    }

    fn attach(&self, slot: &Arc<Slot>) {
        if self.options.pin {
            let first =
                self.processor.compare_exchange(usize::MAX, pin::current(), Ordering::Relaxed, Ordering::Relaxed);
            if let Err(processor) = first {
                pin::pin_to(processor);
            }
        }
        self.announce(slot);
        let mut state = self.state.lock();
        if state.holder.is_none() {
            state.holder = Some(slot.id());
            return;
        }
        if state.holder == Some(slot.id()) {
            // Chosen before it got here: the token is or will be in its slot.
            drop(state);
            slot.wait_token(None);
            return;
        }
        drop(state);
        if !self.runs_freely() {
            slot.wait_token(None);
        }
    }

    fn detach(&self, slot: &Slot) {
        let mut state = self.state.lock();
        state.members.retain(|member| member.slot.id() != slot.id());
        if state.holder == Some(slot.id()) {
            state.holder = None;
            state.step += 1;
            self.pass_on(&mut state, slot.id());
        }
    }

    fn yield_point(&self, slot: &Slot, _at: YieldPoint) {
        self.yield_with(slot, self.options.ticks_per_yield);
    }

    fn park(&self, slot: &Slot, deadline: Option<Ticks>) -> bool {
        let mut state = self.state.lock();
        let now = self.clock.load(Ordering::Relaxed);
        let Some(member) = state.member(slot.id()) else { return false };
        if std::mem::take(&mut member.token) {
            return true;
        }
        if self.runs_freely() || deadline.is_some_and(|deadline| deadline <= now) {
            return false;
        }
        member.status = Status::Parked(deadline);
        state.step += 1;
        let must_wait = self.pass_on(&mut state, slot.id());
        drop(state);
        self.report_deadlock();
        if must_wait {
            slot.wait_token(None);
        }
        self.state.lock().member(slot.id()).is_some_and(|member| std::mem::take(&mut member.token))
    }

    fn unpark(&self, slot: &Slot) {
        let mut state = self.state.lock();
        let idle = state.holder.is_none();
        let Some(member) = state.member(slot.id()) else { return };
        member.token = true;
        if matches!(member.status, Status::Parked(_)) {
            member.status = Status::Ready;
        }
        if idle {
            // A host thread outside the kernel woke somebody while nobody held the baton.
            state.holder = Some(slot.id());
            slot.wake();
        }
        if self.runs_freely() {
            slot.wake();
        }
    }

    fn spin(&self, slot: &Slot, word: usize, _round: u32) {
        if self.runs_freely() {
            std::thread::yield_now();
            return;
        }
        let mut state = self.state.lock();
        if let Some(member) = state.member(slot.id()) {
            member.status = Status::Spinning(word);
        }
        state.step += 1;
        let must_wait = self.pass_on(&mut state, slot.id());
        drop(state);
        self.report_deadlock();
        if must_wait {
            slot.wait_token(None);
        }
    }

    fn released(&self, word: usize) {
        let mut state = self.state.lock();
        for member in &mut state.members {
            if member.status == Status::Spinning(word) {
                member.status = Status::Ready;
            }
        }
    }

    fn set_on_deadlock(&self, hook: DeadlockHook) {
        *self.on_deadlock.lock() = Some(hook);
    }

    fn stall(&self, slot: &Slot, ticks: Ticks) {
        self.yield_with(slot, ticks.max(1));
    }
}
