//! What was submitted to one context or kernel-mode queue and has not been carried out: buffers, waits, signals, in
//! order.
//!
//! A wait keeps what is behind it back until the fences have their values; a signal is carried out when every buffer
//! before it is done, or where user mode says so when it is with the driver. Both are software commands of the OS: the
//! driver sees buffers only.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use nt_model::Machine;
use nt_model::sched::Ticks;
use wddm_abi::D3DDDI_CREATECONTEXTFLAGS;

use crate::objects::companion::Update;
use crate::objects::fence::{AnyFence, Target, Wait, cancel, wait_for};
use crate::port::miniport::Miniport;
use crate::port::sync::{Lock, Rank, Signal};

/// A buffer of user mode.
#[derive(Clone, Debug)]
pub(crate) struct Submission {
    /// GPU virtual address.
    pub(crate) address: u64,
    /// Bytes.
    pub(crate) size: u32,
    /// Private data as the driver gets it, eight bytes each. It is one memory however often the buffer is submitted:
    /// what the driver writes there it finds there again.
    pub(crate) private: Arc<[AtomicU64]>,
    /// Bytes of it that user mode wrote.
    pub(crate) private_user: u32,
    /// Bytes of it.
    pub(crate) private_size: u32,
    /// Value of the queue's progress fence when it is done; unused on packet nodes.
    pub(crate) progress: u64,
    /// A preemption gave it back.
    pub(crate) again: bool,
    /// The id that it had, if the driver of a packet node has given it back.
    pub(crate) id: Option<u32>,
    /// User mode set `NullRendering`: the driver completes the buffer's fence, and does not execute it.
    pub(crate) null_rendering: bool,
}

/// One command.
#[derive(Clone, Debug)]
pub(crate) enum Command {
    Submit(Submission),
    Wait(Vec<(AnyFence, u64)>),
    Signal(Vec<(AnyFence, u64)>),
    /// A signal that comes when the buffer before it is with the driver.
    SignalAtSubmission(Vec<(AnyFence, u64)>),
    /// Changes of page tables, on a companion context.
    Update(Update),
}

/// Fences with the values that are waited for, and the wait.
type Waiting = (Vec<(AnyFence, u64)>, Arc<Wait>);

#[derive(Debug, Default)]
struct State {
    list: VecDeque<Command>,
    /// Buffers that are with the driver.
    running: u32,
    waiting: Option<Waiting>,
    closed: bool,
    /// With a buffer the device was lost: nothing of the list is carried out, and it is about to be dropped.
    lost: bool,
    /// How many buffers are done.
    done: u64,
}

/// The commands of one context or queue.
#[derive(Debug)]
pub(crate) struct Commands {
    state: Lock<State>,
    /// Whether user mode made the owner with `NullRendering`.
    null_rendering: AtomicBool,
    /// Whether it made the owner with `SynchronizationOnly`.
    synchronization_only: AtomicBool,
    /// Something was carried out.
    pub(crate) changed: Signal,
}

/// What to do next.
enum Step {
    Nothing,
    Again,
    Submit(Submission),
    Wait(Vec<(AnyFence, u64)>),
    Signal(Vec<(AnyFence, u64)>),
    Update(Update),
}

impl Commands {
    pub(crate) fn new() -> Self {
        Self {
            state: Lock::new(Rank::Object, State::default()),
            changed: Signal::new(),
            null_rendering: AtomicBool::new(false),
            synchronization_only: AtomicBool::new(false),
        }
    }

    /// Stores what the owner was made for: with `NullRendering` each submission completes, and is not executed; with
    /// `SynchronizationOnly` there is none.
    pub(crate) fn set_purpose(&self, flags: D3DDDI_CREATECONTEXTFLAGS) {
        self.null_rendering.store(flags.NullRendering(), Ordering::Release);
        self.synchronization_only.store(flags.SynchronizationOnly(), Ordering::Release);
    }

    /// Returns whether command buffers may be submitted to the owner: it was made without `SynchronizationOnly`.
    ///
    /// Source: DDI page D3DDDI_CREATECONTEXTFLAGS ("for synchronization purposes only, and not for rendering"); the
    /// status of a submission by a public suite of tests that is written to run on Windows 11.
    pub(crate) fn may_render(&self) -> bool {
        !self.synchronization_only.load(Ordering::Acquire)
    }

    /// Returns whether the owner was made with `NullRendering`.
    pub(crate) fn renders_nothing(&self) -> bool {
        self.null_rendering.load(Ordering::Acquire)
    }

    /// Returns whether commands are taken: the owner is neither going away nor lost.
    pub(crate) fn is_open(&self) -> bool {
        !self.state.lock().closed
    }

    /// Adds a command. False: the owner is going away or lost.
    pub(crate) fn push(&self, command: Command) -> bool {
        let mut state = self.state.lock();
        if state.closed {
            return false;
        }
        state.list.push_back(command);
        true
    }

    /// Puts a buffer that the driver gave back first.
    pub(crate) fn push_back_in_front(&self, submission: Submission) {
        let mut state = self.state.lock();
        state.running = state.running.saturating_sub(1);
        if !state.closed {
            state.list.push_front(Command::Submit(submission));
        }
    }

    /// Returns whether nothing of it is with the driver.
    pub(crate) fn is_idle(&self) -> bool {
        self.state.lock().running == 0
    }

    /// Whether its next command is a buffer.
    pub(crate) fn has_buffer(&self) -> bool {
        let state = self.state.lock();
        state.waiting.is_none() && matches!(state.list.front(), Some(Command::Submit(_)))
    }

    /// Whether nothing is left to do before its owner can be destroyed: nothing is with the driver, and the list is
    /// empty, held up by a wait, or lost.
    ///
    /// Chosen: a wait that nobody may ever end does not keep its queue alive; it goes, with what is behind it.
    pub(crate) fn is_settled(&self) -> bool {
        let state = self.state.lock();
        let is_held_up = || match &state.waiting {
            Some((_, wait)) => !wait.is_over(),
            None => state.list.is_empty(),
        };
        state.running == 0 && (state.lost || is_held_up())
    }

    /// Waits until everything is done, `over` says that it is over, nothing has been done for `standstill`, or it is
    /// `until`: a buffer that comes off its engine whenever it is asked to, and never ends, is no timeout, and is given
    /// up. `false`: it is given up.
    ///
    /// Chosen: no page says how long the destruction of a context waits for work whose engine answers.
    ///
    /// IRQL: PASSIVE_LEVEL.
    pub(crate) fn drain(&self, kernel: &Machine, standstill: Ticks, until: Ticks, over: impl Fn() -> bool) -> bool {
        loop {
            let before = self.state.lock().done;
            let settled = || (self.is_settled() || over()).then_some(());
            let ended = self.changed.wait_for(kernel, Some((kernel.now() + standstill).min(until)), settled);
            if ended.is_some() || kernel.rules.is_stopped() {
                return true;
            }
            if kernel.now() >= until {
                return false;
            }
            let state = self.state.lock();
            if state.done == before && state.running != 0 {
                return false;
            }
        }
    }

    /// A buffer of it is done.
    pub(crate) fn completed(&self, kernel: &Machine) {
        {
            let mut state = self.state.lock();
            state.running = state.running.saturating_sub(1);
            state.done += 1;
        }
        self.changed.notify(kernel);
    }

    /// A buffer of it is lost, and with it the device: nothing behind it is carried out.
    pub(crate) fn lost(&self, kernel: &Machine) {
        self.state.lock().lost = true;
        self.completed(kernel);
    }

    /// Forgets everything that is not with the driver; nothing is taken any more. The buffers among it.
    pub(crate) fn drop_all(&self) -> Vec<Submission> {
        let (list, waiting) = {
            let mut state = self.state.lock();
            state.closed = true;
            (std::mem::take(&mut state.list), state.waiting.take())
        };
        if let Some((fences, wait)) = waiting {
            Machine::with_current(|machine| {
                if let Some(machine) = machine {
                    cancel(machine, &fences, &wait);
                }
            });
        }
        let submission = |command| match command {
            Command::Submit(submission) => Some(submission),
            Command::Wait(_) | Command::Signal(_) | Command::SignalAtSubmission(_) | Command::Update(_) => None,
        };
        list.into_iter().filter_map(submission).collect()
    }

    /// Carries out what can be: waits and signals here, buffers by `submit`, changes of page tables by `update`. What
    /// those two begin ends with [`completed`](Self::completed).
    ///
    /// IRQL: PASSIVE_LEVEL; one thread at a time per owner.
    pub(crate) fn pump(
        &self,
        adapter: &Arc<Miniport>,
        can_submit: impl Fn() -> bool,
        mut submit: impl FnMut(Submission),
        mut update: impl FnMut(Update),
    ) {
        loop {
            // Asked before the list is locked: the answer takes other locks, and only this thread submits.
            match self.step(can_submit()) {
                Step::Nothing => return,
                Step::Again => self.changed.notify(adapter.kernel()),
                Step::Submit(submission) => submit(submission),
                Step::Update(changes) => update(changes),
                Step::Wait(fences) => {
                    let target = Target::Scheduler(Arc::downgrade(adapter));
                    let wait = wait_for(adapter.kernel(), &fences, false, target);
                    self.state.lock().waiting = Some((fences, wait));
                    // A list that a wait holds up is settled.
                    self.changed.notify(adapter.kernel());
                }
                Step::Signal(fences) => {
                    for (fence, value) in fences {
                        let _ = fence.signal(adapter.kernel(), value, adapter);
                    }
                    self.changed.notify(adapter.kernel());
                }
            }
        }
    }

    fn step(&self, can_submit: bool) -> Step {
        let mut state = self.state.lock();
        if state.lost {
            return Step::Nothing;
        }
        if let Some((_, wait)) = &state.waiting {
            if !wait.is_over() {
                return Step::Nothing;
            }
            state.waiting = None;
            return Step::Again;
        }
        match state.list.front() {
            None => return Step::Nothing,
            Some(Command::Signal(_) | Command::Update(_)) if state.running != 0 => return Step::Nothing,
            Some(Command::Submit(_)) if !can_submit => return Step::Nothing,
            Some(_) => (),
        }
        match state.list.pop_front() {
            Some(Command::Submit(submission)) => {
                state.running += 1;
                Step::Submit(submission)
            }
            Some(Command::Update(changes)) => {
                state.running += 1;
                Step::Update(changes)
            }
            Some(Command::Wait(fences)) => Step::Wait(fences),
            Some(Command::Signal(fences) | Command::SignalAtSubmission(fences)) => Step::Signal(fences),
            None => Step::Nothing,
        }
    }
}
