//! The worker of an adapter: the one thread that submits, waits and recovers for its nodes.
//!
//! [`Worker::kick`] lets it look; [`Worker::defer`] hands it a job to do at PASSIVE_LEVEL. What a round is, the layer
//! that starts it says.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use nt_model::Thread;
use nt_model::sched::Ticks;

use crate::port::hook::Hook;
use crate::port::miniport::{Miniport, note_worker};
use crate::port::sync::{Lock, Rank, Signal};
use crate::port::tdr::steps::Reason;

/// Work that an interrupt, or another thread, has started.
pub(crate) type Job = Box<dyn FnOnce(&Arc<Miniport>) + Send>;

/// What the worker does each time that it looks, behind the jobs. Returns when it is to look again.
pub(crate) type Round = fn(&Arc<Miniport>) -> Option<Ticks>;

/// What a layer below the recovery wants of it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Escalation {
    /// The reset of a node's engine, or of the adapter.
    Reset(Reason),
    /// The engine of the node wishes to go to F1.
    EngineIdle,
}

/// Does what is wanted of the recovery for a node, on the worker.
pub(crate) type Escalate = fn(&Arc<Miniport>, u32, Escalation);

/// The worker of an adapter.
pub(crate) struct Worker {
    jobs: Lock<VecDeque<Job>>,
    changed: Signal,
    kicked: AtomicBool,
    stopping: AtomicBool,
    thread: Lock<Option<Arc<Thread>>>,
}

impl Default for Worker {
    fn default() -> Self {
        Self {
            jobs: Lock::new(Rank::Leaf, VecDeque::new()),
            changed: Signal::new(),
            kicked: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            thread: Lock::new(Rank::Leaf, None),
        }
    }
}

impl Worker {
    /// That of an adapter.
    pub(crate) fn of(adapter: &Miniport) -> &Self {
        adapter.extension()
    }

    /// Starts it.
    ///
    /// IRQL: PASSIVE_LEVEL.
    pub(crate) fn start(&self, adapter: &Arc<Miniport>, round: Round, escalate: Escalate) {
        Hook::enter(adapter, escalate);
        self.stopping.store(false, Ordering::Release);
        let weak = Arc::downgrade(adapter);
        let thread = adapter.kernel().spawn_system_thread("VidSch worker", move || work(&weak, round));
        *self.thread.lock() = Some(thread);
    }

    /// Ends it. Jobs that it has not begun stay, for [`forget`](Self::forget).
    ///
    /// IRQL: PASSIVE_LEVEL.
    pub(crate) fn stop(&self, adapter: &Miniport) {
        self.stopping.store(true, Ordering::Release);
        self.changed.notify(adapter.kernel());
        let thread = self.thread.lock().take();
        if let Some(thread) = thread {
            adapter.kernel().wait_for_object(thread.header(), None);
        }
    }

    /// Drops the jobs that were left.
    pub(crate) fn forget(&self) {
        let jobs = std::mem::take(&mut *self.jobs.lock());
        drop(jobs);
    }

    /// Returns whether it ends, or has ended.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Lets the worker look.
    ///
    /// IRQL: at most DISPATCH_LEVEL.
    pub(crate) fn kick(&self, adapter: &Miniport) {
        self.kicked.store(true, Ordering::Release);
        self.changed.notify(adapter.kernel());
    }

    /// Lets the worker do something at PASSIVE_LEVEL.
    ///
    /// IRQL: at most DISPATCH_LEVEL.
    pub(crate) fn defer(&self, adapter: &Miniport, job: Job) {
        self.jobs.lock().push_back(job);
        self.kick(adapter);
    }

    /// Wants something of the recovery for a node, at once.
    ///
    /// IRQL: PASSIVE_LEVEL; on the worker.
    pub(crate) fn escalate(adapter: &Arc<Miniport>, node: u32, wish: Escalation) {
        if let Some(escalate) = Hook::<Escalate>::of(adapter) {
            escalate(adapter, node, wish);
        }
    }

    /// Lets the worker do something. Returns when that is over, or the adapter stops.
    ///
    /// IRQL: PASSIVE_LEVEL; not on the worker.
    pub(crate) fn run(&self, adapter: &Arc<Miniport>, job: impl FnOnce(&Arc<Miniport>) + Send + 'static) {
        let done = Arc::new((AtomicBool::new(false), Signal::new()));
        let told = done.clone();
        let job = move |adapter: &Arc<Miniport>| {
            job(adapter);
            told.0.store(true, Ordering::Release);
            told.1.notify(adapter.kernel());
        };
        self.defer(adapter, Box::new(job));
        let over = || (done.0.load(Ordering::Acquire) || !adapter.is_working()).then_some(());
        done.1.wait_for(adapter.kernel(), None, over);
    }
}

fn work(weak: &Weak<Miniport>, round: Round) {
    note_worker();
    let mut deadline = None;
    loop {
        let Some(adapter) = weak.upgrade() else { return };
        let worker = Worker::of(&adapter);
        let kernel = adapter.kernel();
        worker.changed.wait_for(kernel, deadline, || {
            let kicked = worker.kicked.swap(false, Ordering::AcqRel);
            (kicked || worker.is_stopping()).then_some(())
        });
        if worker.is_stopping() || kernel.rules.is_stopped() {
            return;
        }
        loop {
            let Some(job) = worker.jobs.lock().pop_front() else { break };
            job(&adapter);
        }
        deadline = round(&adapter);
    }
}
