//! Stage 4 of 8: one node's engine.
//!
//! [`Engine::step`] is one unit of progress and never waits; the thread loop around it belongs to the shell, and tests
//! call it themselves. The engine owns what only it touches; everything shared lies in [`crate::node::Node`]. It is the
//! one place that parks and wakes, reports, and decides what runs:
//!
//! | file | what |
//! |---|---|
//! | here | a step: what others ask for, then packets or a queue |
//! | `turn.rs` | a turn: one queue or packet runs until something else must happen |
//! | `execute.rs` | one packet of a turn: decoded, carried out, its effect noted or drawn |
//! | `hot.rs` | the queue that ran dry last, whose write pointer is looked at |
//! | `outcome.rs` | why a stream comes off |
//! | `pace.rs` | how soon it is looked at again |
//! | `ready.rs` | queues that ring, arrive, and have the next turn |
//! | `stretch.rs` | packets of a burst that only store, signal, or fill and copy a little, carried out together |
//! | `step.rs` | what a step did |
//! | `report.rs` | the read pointer, and the fault that stops a queue, in its control page |
//! | `packets.rs` | packet mode |
//! | `sync.rs` | what waits and signals bring about |
//! | `waking.rs` | queues that a signal still has to wake |
//! | `watched.rs` | write pointers of queues that the OS has disconnected |

mod execute;
mod hot;
mod outcome;
mod pace;
mod packets;
mod place;
mod ready;
mod report;
mod rings;
mod step;
mod stretch;
mod sync;
mod turn;
mod waking;
mod watched;

use self::hot::HotQueue;
use self::pace::Pace;
use self::packets::Running;
pub use self::step::{Step, Watched};
use self::waking::Waker;
use self::watched::{Eyes, WatchedPointers};
use crate::NoMemory;
use crate::address_space::EVERY_PROCESS;
use crate::arrivals::Taken;
use crate::command_processor::FenceRef;
use crate::context::Context;
use crate::counters::{bump, raise};
use crate::doorbell::Watch;
use crate::exec::Exec;
use crate::fence_table::FenceCache;
use crate::gpu::Gpu;
use crate::host::Host;
use crate::log_batch::LogBatch;
use crate::mutation::Mutation;
use crate::node::{Control, Node, Phase, attention};
use crate::notice::Notice;
use crate::ops::{STEP, Scratch};
use crate::queue::{ParkedFence, Queue};
use crate::reports::Reports;
use crate::schedule::Schedule;
use crate::shared::{Shared, try_box};
use crate::stream::Burst;
use crate::tlb::Tlb;
use crate::trace::Event;
use crate::waking::Waking;
use alloc::boxed::Box;
use core::sync::atomic::Ordering;

/// The most work between two looks of an engine, in bytes moved: 45 µs at 10 GB/s. Nothing of the engine reads it;
/// tests and the fuzzer hold it.
pub const BETWEEN_LOOKS: u64 = 450_000;

/// Windows that a flush has doomed and that are unmapped between two looks of the engine: some 10 µs.
const UNMAPPED_AT_ONCE: usize = 2;
/// What the answer to a suspension counts for, in bytes moved.
const ANSWER_COST: u64 = 1 << 10;
/// One node's engine.
pub struct Engine<H: Host> {
    gpu: Shared<Gpu<H>>,
    /// Not in line: what makes and moves an engine has a small stack.
    core: Box<Core<H>>,
}

/// What only the engine's thread touches.
struct Core<H: Host> {
    node: usize,
    /// Which of the node's engines it is.
    incarnation: u64,
    /// The adapter resets that it has seen.
    resets: u64,
    tlb: Box<Tlb<H>>,
    fences: FenceCache<ParkedFence<H>>,
    scratch: Scratch<H>,
    /// The private copy of what the stream executes.
    burst: Option<Burst>,
    /// Log entries of the queue that has its turn.
    entries: LogBatch,
    reports: Reports,
    watch: Watch<H>,
    hot: HotQueue<H>,
    pace: Pace,
    /// Submissions that were done since the last look at a write pointer, and when the last of them was.
    submissions: u32,
    done: u64,
    /// Queues that have arrived, and are not in the engine's own list.
    arriving: Taken<Queue<H>>,
    watched: WatchedPointers<H>,
    schedule: Schedule<H>,
    /// The signals whose queues are not all awake.
    waking: Waking<H>,
    /// The flush that this engine served last; it is acknowledged when what it doomed is unmapped.
    flushed: u64,
    /// The host had no memory for a mapping, and the engine unmaps all that it has.
    gives_back: bool,
    /// The queue that just parked must be looked at again.
    looks_again: bool,
    running: Option<Running<H>>,
    /// Packets had the last turn, and queues have the next.
    queues_next: bool,
    /// A reset took a packet off the engine, unless the OS takes it as over by itself.
    cut_off: bool,
    /// An execution state for the next packet.
    spare: Option<Box<Exec<FenceRef<H>>>>,
    wedged: bool,
    /// Since when the engine has been asked to come off and could not; `Some(None)`: it has said so.
    stuck: Option<Option<u64>>,
    /// Whether the current turn has begun a packet or a command buffer.
    ran: bool,
    /// Since when the turn runs something, where the scheduling log does not say so yet.
    begun: Option<u64>,
    /// Since when other queues wait for the one that has its turn, by the GPU clock; `None`: none does.
    contested: Option<u64>,
    /// Turns in a row that came to nothing for want of memory.
    starved: usize,
}

impl<H: Host> Engine<H> {
    /// The engine of node `node`.
    ///
    /// # Errors
    /// [`NoMemory`].
    pub fn new(gpu: Shared<Gpu<H>>, node: usize) -> Result<Self, NoMemory> {
        let core = Core::new(&gpu, node)?;
        Ok(Self { gpu, core })
    }

    /// The engine that is to take the place of the one that node `node` has, with [`Node::supersede`] behind this.
    ///
    /// # Errors
    /// [`NoMemory`].
    pub fn successor(gpu: Shared<Gpu<H>>, node: usize) -> Result<Self, NoMemory> {
        let mut engine = Self::new(gpu, node)?;
        engine.core.incarnation += 1;
        Ok(engine)
    }

    /// The GPU.
    pub fn gpu(&self) -> &Shared<Gpu<H>> {
        &self.gpu
    }

    /// One unit of progress.
    pub fn step(&mut self) -> Step {
        self.core.step(&self.gpu)
    }

    /// Serves what others ask for (flushes, suspensions, a hold, a stop), and gives no turn. `Some`: what a step would
    /// come to, since nothing else may happen.
    pub fn attend(&mut self) -> Option<Step> {
        self.core.attend_alone(&self.gpu)
    }

    /// About to pause although there may be work. Returns whether nothing is asked of it; from now on every agent that
    /// asks for something kicks.
    pub fn prepare_pause(&mut self) -> bool {
        let node = &self.gpu.nodes[self.core.node];
        node.prepare_sleep(&self.gpu.mutation);
        node.attention.load(Ordering::Acquire) & !attention::HALT == 0
    }

    /// The OS is told that the engine's state changes to `state`, a `DXGK_ENGINE_STATE`. Behind this, step.
    pub fn report_state(&mut self, state: u32) {
        let node = &self.gpu.nodes[self.core.node];
        self.core.reports.notify(&self.gpu, node, Notice::EngineState { state });
    }

    /// The pages of all doorbells of this node's queues were rotated away: looks at each write pointer that is watched
    /// once more, and watches none from then on. Queues that have work are ready behind it. An engine that is held, and
    /// one of an adapter that has stopped, looks at nothing, and watches on.
    ///
    /// Returns whether that is done. If not, step, and call it again: it looks as far as the engine goes between two
    /// looks.
    #[must_use]
    pub fn last_look(&mut self) -> bool {
        self.core.last_look(&self.gpu)
    }

    /// Returns whether the engine leaves out looks at the queue that ran last: what an idle step did not find, a later
    /// one may.
    pub fn is_resting(&self) -> bool {
        self.core.hot.is_resting()
    }

    /// How often the engine has seen the list of watched write pointers change: where it has, a watch may have begun.
    pub fn watching_changes(&self) -> u64 {
        self.core.watched.seen()
    }

    /// About to sleep, or to pause. Returns whether there is no work, nor a write pointer to watch that the engine does
    /// not know of, and every agent that brings some will kick.
    pub fn prepare_sleep(&mut self) -> bool {
        self.core.prepare_sleep(&self.gpu)
    }
}

impl<H: Host> Core<H> {
    #[inline(never)]
    fn new(gpu: &Gpu<H>, node: usize) -> Result<Box<Self>, NoMemory> {
        try_box(Self {
            node,
            incarnation: gpu.nodes[node].incarnation(),
            resets: gpu.nodes[node].adapter_resets(),
            tlb: Tlb::new()?,
            fences: FenceCache::new()?,
            scratch: Scratch::new()?,
            burst: Some(Burst::new()?),
            entries: LogBatch::new()?,
            reports: Reports::new()?,
            watch: Watch::new(&gpu.doorbells)?,
            hot: HotQueue::new(),
            pace: Pace::new(gpu.host.clock_frequency()),
            submissions: 0,
            done: 0,
            arriving: Taken::none(),
            watched: WatchedPointers::new(),
            schedule: Schedule::new(node)?,
            waking: Waking::new(),
            // What an engine before it has acknowledged stays so: this one has nothing mapped.
            flushed: gpu.nodes[node].flushed.load(Ordering::Acquire),
            gives_back: false,
            looks_again: false,
            running: None,
            queues_next: false,
            cut_off: false,
            spare: Some(try_box(Exec::new())?),
            wedged: false,
            stuck: None,
            ran: false,
            begun: None,
            contested: None,
            starved: 0,
        })
    }

    fn step(&mut self, gpu: &Gpu<H>) -> Step {
        let node = &gpu.nodes[self.node];
        if self.is_given_up(gpu) {
            // Another engine has the node, and its event: this one comes back late, and ends.
            return Step::Stopped;
        }
        if self.wedged && !gpu.faults.release.load(Ordering::Acquire) {
            // It is not waited for: what is mapped would outlive the memory. Nor is anything else of the node touched,
            // which another engine may have by now.
            self.tlb.clear();
            self.scratch.let_go();
            node.wedge(self.incarnation);
            return Step::Waiting;
        }
        node.awake();
        // A step begins with a look.
        self.take_work(node);
        if self.wedged {
            self.wedged = false;
            // What was taken for done meanwhile is done before anything else is touched.
            node.attention.fetch_or(attention::FLUSH, Ordering::AcqRel);
            node.come_back();
        }
        if node.attention.load(Ordering::Acquire) != 0
            && let Some(step) = self.attend(gpu, node)
        {
            return step;
        }
        self.reports.deliver(gpu, node);
        if self.reports.is_full(&gpu.mutation) {
            return Step::Waiting;
        }
        if self.step_waking(gpu, node) {
            return Step::Worked;
        }
        if core::mem::take(&mut self.gives_back) && node.attention.load(Ordering::Relaxed) & attention::FLUSH != 0 {
            // What takes the memory is unmapped first: with some of it a stream would get no further than before.
            self.gives_back = true;
            return Step::Worked;
        }
        self.end_cut_off(gpu, node);
        let watched = self.poll(gpu, node);
        // Packets and queues take turns.
        let packets_first = !(core::mem::take(&mut self.queues_next) && self.has_ready(node));
        if packets_first && self.step_packets(gpu, node) {
            return Step::Worked;
        }
        let Some(queue) = self.next_ready(gpu, node) else {
            // Where their places in line are not given yet, their turn is still to come.
            self.queues_next = !packets_first && !self.schedule.is_empty();
            let unmaps = node.attention.load(Ordering::Relaxed) & attention::FLUSH != 0;
            let looks_on = self.watched.is_amid() || gpu.global.concerns(node.index);
            if unmaps || looks_on || !self.arriving.is_empty() || !self.schedule.is_empty() {
                // Windows are left to be unmapped, queues to be taken in or put in line, or write pointers to be looked
                // at.
                return Step::Worked;
            }
            let waits =
                self.running.is_some() || !self.reports.is_empty() || node.retry_interrupt.load(Ordering::Relaxed);
            return if waits { Step::Waiting } else { Step::Idle(watched) };
        };
        self.run(gpu, node, &queue)
    }

    /// Returns whether another engine has the node by now.
    fn is_given_up(&self, gpu: &Gpu<H>) -> bool {
        gpu.nodes[self.node].incarnation() != self.incarnation && !gpu.mutation.is(Mutation::OldEngineGoesOn)
    }

    fn attend_alone(&mut self, gpu: &Gpu<H>) -> Option<Step> {
        let node = &gpu.nodes[self.node];
        if self.wedged {
            return Some(if self.is_given_up(gpu) { Step::Stopped } else { Step::Waiting });
        }
        node.awake();
        self.take_work(node);
        if node.attention.load(Ordering::Acquire) == 0 { None } else { self.attend(gpu, node) }
    }

    /// The engine looks up: the work since it last did, which begins anew.
    fn take_work(&mut self, node: &Node<H>) -> u64 {
        let work = core::mem::take(&mut self.tlb.work);
        self.tlb.limit = STEP;
        raise(&node.counters.most_between_looks, work);
        work
    }

    fn last_look(&mut self, gpu: &Gpu<H>) -> bool {
        let node = &gpu.nodes[self.node];
        if node.incarnation() != self.incarnation {
            // What is owed the engine owes that has the node now.
            return false;
        }
        if self.wedged || node.phase() != Phase::Running {
            return true;
        }
        self.take_work(node);
        let Self { tlb, schedule, .. } = self;
        Eyes { gpu, node, tlb, schedule }.last_look()
    }

    /// Wakes some of the queues that signals have let go, as a step of its own. Returns whether there was anything to
    /// do.
    fn step_waking(&mut self, gpu: &Gpu<H>, node: &Node<H>) -> bool {
        if self.waking.is_over() {
            return false;
        }
        // A step begins with a look.
        self.take_work(node);
        self.go_on_waking(gpu, node);
        true
    }

    /// Wakes some of the queues that are left. Returns whether there may be more.
    fn go_on_waking(&mut self, gpu: &Gpu<H>, node: &Node<H>) -> bool {
        let Self { waking, schedule, tlb, .. } = self;
        Waker { gpu, node, schedule, work: &mut tlb.work }.go_on(waking)
    }

    /// There is no hot queue any more.
    fn cool(&mut self) {
        self.hot.cool(&mut self.watch);
    }

    fn prepare_sleep(&mut self, gpu: &Gpu<H>) -> bool {
        let node = &gpu.nodes[self.node];
        node.prepare_sleep(&gpu.mutation);
        let busy = node.attention.load(Ordering::Acquire) & !attention::HALT != 0
            || self.has_ready(node)
            || !self.waking.is_over()
            || node.packets.is_busy()
            || !self.reports.is_empty()
            || node.retry_interrupt.load(Ordering::Relaxed)
            || gpu.global.concerns(node.index)
            || node.has_changed_watching(self.watched.seen());
        if busy {
            node.awake();
        }
        !busy
    }

    /// Serves what others asked for. `Some`: nothing else may happen in this step.
    fn attend(&mut self, gpu: &Gpu<H>, node: &Node<H>) -> Option<Step> {
        self.serve_flushes(gpu, node);
        match node.control() {
            Control::Stop => {
                self.release(gpu, node);
                node.set_phase(Phase::Stopped, &gpu.mutation);
                return Some(Step::Stopped);
            }
            Control::Hold => {
                if !gpu.mutation.is(Mutation::HoldForgetsWakes) && self.step_waking(gpu, node) {
                    return Some(Step::Worked);
                }
                if node.phase() != Phase::Held {
                    self.hold(gpu, node);
                }
                let unmaps = node.attention.load(Ordering::Relaxed) & attention::FLUSH != 0;
                let lets_go = self.watched.let_go(&mut self.tlb.work);
                return Some(if unmaps || lets_go { Step::Worked } else { Step::Held });
            }
            Control::Run => {
                let resets = node.adapter_resets();
                if core::mem::replace(&mut self.resets, resets) != resets
                    && !gpu.mutation.is(Mutation::HeldKeepsReports)
                {
                    // Behind the adapter's reset, and whatever it held for before that.
                    self.forget_lost(gpu, true);
                }
                if node.phase() == Phase::Held && !node.run(&gpu.mutation) {
                    return Some(Step::Held);
                }
            }
        }
        self.stuck = None;
        // Every request that set these bits is in its list already: set again means another step.
        let served = attention::CONTROL | attention::SUSPEND | attention::PREEMPT | attention::LOG | attention::REST;
        if node.attention.fetch_and(!served, Ordering::AcqRel) & attention::LOG != 0 {
            self.reports.raise(gpu, node);
        }
        if node.control() != Control::Run {
            node.attention.fetch_or(attention::CONTROL, Ordering::AcqRel);
        }
        self.take_off(gpu, node, None);
        if self.reports.is_full(&gpu.mutation) {
            // A context may be left.
            node.attention.fetch_or(attention::SUSPEND, Ordering::AcqRel);
        }
        self.preempt_packet(gpu, node);
        None
    }

    /// Acknowledges every pending suspension except that of `running`, so that a context that hangs delays no other
    /// context's suspension. Stops early when the reports are full.
    fn take_off(&mut self, gpu: &Gpu<H>, node: &Node<H>, running: Option<&Shared<Context<H>>>) {
        while !self.reports.is_full(&gpu.mutation)
            && let Some(context) = node.next_suspending(running)
        {
            if let Some(fence) = context.suspended(&gpu.mutation) {
                node.trace.push(Event::Suspend, context.slot.pack());
                self.reports.notify(gpu, node, Notice::ContextSuspended { context: context.slot, fence });
                self.tlb.work += ANSWER_COST;
            }
        }
    }

    /// Dooms translations that others asked to drop, unmaps some of what is doomed, and acknowledges the flush when
    /// all of it is.
    fn serve_flushes(&mut self, gpu: &Gpu<H>, node: &Node<H>) {
        if node.attention.fetch_and(!attention::FLUSH, Ordering::AcqRel) & attention::FLUSH == 0 {
            return;
        }
        // The table of a paging packet, too: between two of its entries it is mapped again.
        self.scratch.let_go();
        let mut everything = false;
        let doom = |process, start, end| self.tlb.flush(process, start, end);
        let (served, more) = gpu.flushes.serve(self.flushed, doom, || everything = true);
        self.flushed = served;
        if everything {
            self.tlb.flush(EVERY_PROCESS, 0, 0);
        }
        let is_done = gpu.mutation.is(Mutation::KeepsWindows) || self.tlb.give_back(UNMAPPED_AT_ONCE);
        if is_done {
            bump(&node.counters.flushes);
            node.trace.push(Event::Flush, served);
            // Release: the mappings are gone before the flusher is told.
            node.flushed.store(served, Ordering::Release);
            gpu.flushed(node);
        }
        if more || !is_done {
            node.attention.fetch_or(attention::FLUSH, Ordering::AcqRel);
        }
    }

    /// A reset: lets go of what runs. Its queue is lost if it was in the middle of something.
    fn hold(&mut self, gpu: &Gpu<H>, node: &Node<H>) {
        if let Some(running) = self.running.take() {
            self.cut_off = true;
            // The next packet has its place: nothing is allocated behind a reset.
            self.spare = Some(running.exec);
        }
        self.scratch.let_go();
        self.waking.clear();
        // What the OS takes as over is not reported behind the reset. Nothing is reported before the node runs again,
        // and behind the adapter's reset that forgets the rest.
        self.forget_lost(gpu, false);
        self.stuck = None;
        self.cool();
        self.watch.clear();
        self.watched.forget();
        bump(&node.counters.resets);
        node.trace.push(Event::Reset, 0);
        node.set_phase(Phase::Held, &gpu.mutation);
    }

    /// Forgets what was to be reported and is over with a reset: of `everything`, where that is the adapter's.
    fn forget_lost(&mut self, gpu: &Gpu<H>, everything: bool) {
        let everything = everything && !gpu.mutation.is(Mutation::ReportsSuspensionsOfLost);
        let of_packets = |notice: Notice| notice.is_of_packets() && !gpu.mutation.is(Mutation::BacklogKeepsPackets);
        self.reports.forget(|notice| everything || of_packets(notice) || notice == Notice::EngineHung);
    }

    /// Lets go of everything.
    fn release(&mut self, gpu: &Gpu<H>, node: &Node<H>) {
        self.running = None;
        self.waking.clear();
        self.scratch.let_go();
        self.tlb.clear();
        self.cool();
        self.watch.clear();
        self.fences.clear();
        while self.next_ready(gpu, node).is_some() || !self.schedule.is_empty() {}
        self.arriving = Taken::none();
        node.arrivals.take().for_each(drop);
        self.watched = WatchedPointers::new();
        while node.next_suspending(None).is_some() {}
        drop(node.take_interrupted());
    }
}
