//! What user mode tells against what the engines find.
//!
//! A client's thread lets others run behind each of its stores. At each access of an engine to a shared word, and so at
//! each fetch of a write pointer, its queues are looked at: progress that is ahead of the last queued value, and a
//! write pointer that shows a submission which the last queued value does not count, are mistakes of the user-mode
//! driver.
#![expect(unsafe_code, reason = "words of user mode are read by address")]

use fencepost::client::Queue;
use nt_model::Machine;
use nt_model::sched::YieldPoint;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use umd_core::memory::hooks::{Hooks, install as install_hooks};

thread_local! {
    /// Whether others may run behind this thread's stores.
    static OFFERS: Cell<bool> = const { Cell::new(false) };
}

/// How many machines have queues that are looked at.
static MACHINES: AtomicUsize = AtomicUsize::new(0);
/// The queues of each machine.
static WATCHED: Mutex<BTreeMap<usize, Seen>> = Mutex::new(BTreeMap::new());
static HOOKS: Hooks = Hooks { stored };

/// What was seen of a machine's queues.
#[derive(Default)]
struct Seen {
    queues: Vec<Words>,
    looks: u64,
    mistake: Option<String>,
}

/// The words of a queue, by their addresses, and what was seen of them.
struct Words {
    progress: usize,
    last_queued: usize,
    write_pointer: usize,
    /// The write pointer that was seen last, and how many submissions had been shown then.
    shown: u64,
    submissions: u64,
}

fn word(at: usize) -> u64 {
    // SAFETY: an aligned word of a queue that lives while it is looked at, which everyone accesses atomically.
    let word = unsafe { AtomicU64::from_ptr(std::ptr::with_exposed_provenance_mut(at)) };
    // Relaxed loads of 8 bytes are the ones that Rust guarantees for memory that may only be read.
    word.load(Ordering::Relaxed)
}

fn stored() {
    if OFFERS.get() {
        Machine::with_current(|machine| machine.map(|machine| machine.yield_point(YieldPoint::Custom(4))));
    }
}

/// Lets others run behind the stores of threads that ask for it.
pub fn install() {
    install_hooks(&HOOKS);
}

fn machine() -> usize {
    Machine::with_current(|machine| machine.map_or(0, |machine| std::ptr::from_ref(machine).addr()))
}

/// An engine is about to access a shared word.
pub fn look() {
    if MACHINES.load(Ordering::Acquire) == 0 {
        return;
    }
    let mut watched = WATCHED.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(Seen { queues, looks, mistake }) = watched.get_mut(&machine()) else { return };
    *looks += 1;
    for (number, queue) in queues.iter_mut().enumerate() {
        let (progress, shown, told) = (word(queue.progress), word(queue.write_pointer), word(queue.last_queued));
        queue.submissions += u64::from(shown != queue.shown);
        queue.shown = shown;
        let ahead = progress.max(queue.submissions);
        if ahead > told && mistake.is_none() {
            *mistake = Some(format!("queue {number} has come to {ahead} (progress {progress}), and {told} is queued"));
        }
    }
}

/// Queues that are looked at while this lives, by the thread that submits to them.
pub struct Watch(usize);

impl Watch {
    /// Looks at these queues, whose work is done.
    pub fn new(queues: &[Queue]) -> fencepost::client::Result<Self> {
        let mut words = Vec::new();
        for queue in queues {
            let info = queue.info()?;
            // CAST: addresses.
            let [progress, last_queued, write_pointer] =
                [info.progress_address, info.last_queued_address, info.write_pointer_address].map(|at| at as usize);
            let (shown, submissions) = (word(write_pointer), word(last_queued));
            words.push(Words { progress, last_queued, write_pointer, shown, submissions });
        }
        let machine = machine();
        let seen = Seen { queues: words, ..Seen::default() };
        WATCHED.lock().unwrap_or_else(PoisonError::into_inner).insert(machine, seen);
        MACHINES.fetch_add(1, Ordering::AcqRel);
        OFFERS.set(true);
        Ok(Self(machine))
    }

    /// How often an engine has looked, and the first mistake that was seen.
    pub fn seen(&self) -> (u64, Option<String>) {
        let mut watched = WATCHED.lock().unwrap_or_else(PoisonError::into_inner);
        watched.get_mut(&self.0).map_or((0, None), |seen| (seen.looks, seen.mistake.take()))
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        OFFERS.set(false);
        MACHINES.fetch_sub(1, Ordering::AcqRel);
        WATCHED.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.0);
    }
}
