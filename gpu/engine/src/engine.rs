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
//! | `packets.rs` | packet mode |
//! | `sync.rs` | what waits and signals bring about |

mod packets;
mod sync;
mod turn;

use self::packets::Running;
use crate::NoMemory;
use crate::address_space::{AddressSpace, EVERY_PROCESS};
use crate::command_processor::FenceRef;
use crate::context::Context;
use crate::counters::bump;
use crate::doorbell::Watch;
use crate::exec::Exec;
use crate::fence_table::FenceCache;
use crate::gpu::Gpu;
use crate::host::{Host, Lock};
use crate::mmu::Mmu;
use crate::node::{Control, Node, Phase, attention};
use crate::notice::Notice;
use crate::ops::Scratch;
use crate::queue::ParkedFence;
use crate::reports::Reports;
use crate::shared::{Shared, try_box};
use crate::slots::SlotId;
use crate::stream::Burst;
use crate::tlb::{Bus, Tlb};
use crate::trace::Event;
use alloc::boxed::Box;
use core::sync::atomic::Ordering;
use gpu_wire::doorbell::{Model, token_of};

/// Windows unmapped between two looks of the engine. Each unmapping is an interrupt to every processor, some 5 µs.
const UNMAPPED_AT_ONCE: usize = 8;

/// What a step did, and so what the thread should do next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Something; there may be more.
    Worked,
    /// Nothing, but another engine or the interrupt must do something first: step again soon.
    Waiting,
    /// Nothing to do. With `connected`, doorbells may ring, which nobody announces: poll.
    Idle {
        /// Whether a doorbell of this node is connected, or a write pointer is being watched.
        connected: bool,
    },
    /// A reset holds the engine.
    Held,
    /// The device stops: drop the engine, end the thread.
    Stopped,
}

/// One node's engine.
pub struct Engine<H: Host> {
    gpu: Shared<Gpu<H>>,
    core: Core<H>,
}

/// What only the engine's thread touches.
struct Core<H: Host> {
    node: usize,
    tlb: Tlb<H>,
    fences: FenceCache<ParkedFence<H>>,
    scratch: Scratch<H>,
    /// The private copy of what the stream executes.
    burst: Option<Burst>,
    reports: Reports,
    watch: Watch<H>,
    /// The flush that this engine served last; it is acknowledged when what it doomed is unmapped.
    flushed: u64,
    /// The queue that just parked must be looked at again.
    again: bool,
    running: Option<Running<H>>,
    /// Packets had the last turn, and queues have the next.
    queues_next: bool,
    /// The process of the packet that a reset took off the engine, unless the OS takes it as over by itself.
    cut_off: Option<SlotId>,
    /// An execution state for the next packet.
    spare: Option<Box<Exec<FenceRef<H>>>>,
    wedged: bool,
    /// Whether the current turn has begun a packet or a command buffer.
    ran: bool,
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

    /// The GPU.
    pub fn gpu(&self) -> &Shared<Gpu<H>> {
        &self.gpu
    }

    /// One unit of progress.
    pub fn step(&mut self) -> Step {
        self.core.step(&self.gpu)
    }

    /// About to sleep without polling. Returns whether there is no work, and every agent that brings some will kick.
    pub fn prepare_sleep(&mut self) -> bool {
        self.core.prepare_sleep(&self.gpu)
    }
}

impl<H: Host> Core<H> {
    fn new(gpu: &Gpu<H>, node: usize) -> Result<Self, NoMemory> {
        Ok(Self {
            node,
            tlb: Tlb::new()?,
            fences: FenceCache::new()?,
            scratch: Scratch::new()?,
            burst: Some(Burst::new()?),
            reports: Reports::new()?,
            watch: Watch::new(&gpu.doorbells)?,
            flushed: 0,
            again: false,
            running: None,
            queues_next: false,
            cut_off: None,
            spare: Some(try_box(Exec::new())?),
            wedged: false,
            ran: false,
        })
    }

    fn step(&mut self, gpu: &Gpu<H>) -> Step {
        let node = &gpu.nodes[self.node];
        node.awake();
        if self.wedged {
            if !gpu.faults.release.load(Ordering::Acquire) {
                return Step::Waiting;
            }
            self.wedged = false;
        }
        if node.attention.load(Ordering::Acquire) != 0
            && let Some(step) = self.attend(gpu, node)
        {
            return step;
        }
        self.reports.deliver(gpu, node);
        if self.reports.is_full() {
            return Step::Waiting;
        }
        self.end_cut_off(gpu, node);
        let connected = self.poll(gpu, node);
        // Packets and queues take turns; what comes from the paging process goes before both.
        let packets_first = !(core::mem::take(&mut self.queues_next) && node.has_ready());
        if packets_first && self.step_packets(gpu, node) {
            return Step::Worked;
        }
        let Some(queue) = node.next_ready(&gpu.mutation) else {
            let waits = self.running.is_some()
                || !self.reports.is_empty()
                || node.retry_interrupt.load(Ordering::Relaxed)
                || node.attention.load(Ordering::Relaxed) & attention::FLUSH != 0;
            return if waits { Step::Waiting } else { Step::Idle { connected } };
        };
        self.run(gpu, node, &queue)
    }

    fn prepare_sleep(&mut self, gpu: &Gpu<H>) -> bool {
        let node = &gpu.nodes[self.node];
        node.prepare_sleep(&gpu.mutation);
        let busy = node.attention.load(Ordering::Acquire) & !attention::HALT != 0
            || node.has_ready()
            || node.packets.with(|p| p.is_busy() || p.is_preempting())
            || !self.reports.is_empty()
            || node.retry_interrupt.load(Ordering::Relaxed);
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
                if node.phase() != Phase::Held {
                    self.hold(gpu, node);
                }
                let unmaps = node.attention.load(Ordering::Relaxed) & attention::FLUSH != 0;
                return Some(if unmaps { Step::Worked } else { Step::Held });
            }
            Control::Run => {
                if node.phase() == Phase::Held && !node.run(&gpu.mutation) {
                    return Some(Step::Held);
                }
            }
        }
        // Every request that set these bits is in its list already: set again means another step.
        let served = attention::CONTROL | attention::SUSPEND | attention::PREEMPT | attention::LOG;
        if node.attention.fetch_and(!served, Ordering::AcqRel) & attention::LOG != 0 {
            self.reports.raise(gpu, node);
        }
        if node.control() != Control::Run {
            node.attention.fetch_or(attention::CONTROL, Ordering::AcqRel);
        }
        self.take_off(gpu, node, None);
        if self.reports.is_full() {
            // A context may be left.
            node.attention.fetch_or(attention::SUSPEND, Ordering::AcqRel);
        }
        if self.running.is_none() {
            self.answer_preempt(gpu, node);
        }
        None
    }

    /// Acknowledges the suspensions of contexts that do not run: of all, but for `running`. A context that hangs keeps
    /// only itself from being suspended.
    fn take_off(&mut self, gpu: &Gpu<H>, node: &Node<H>, running: Option<&Shared<Context<H>>>) {
        while !self.reports.is_full()
            && let Some(context) = node.next_suspending(running)
        {
            if let Some(fence) = context.suspended() {
                node.trace.push(Event::Suspend, context.slot.pack());
                self.reports.notify(gpu, node, Notice::ContextSuspended { context: context.slot, fence });
            }
        }
    }

    /// Dooms translations that others asked to drop, unmaps some of what is doomed, and acknowledges the flush when
    /// all of it is.
    fn serve_flushes(&mut self, gpu: &Gpu<H>, node: &Node<H>) {
        if node.attention.fetch_and(!attention::FLUSH, Ordering::AcqRel) & attention::FLUSH == 0 {
            return;
        }
        let mut everything = false;
        let doom = |process, start, end| self.tlb.flush(process, start, end);
        self.flushed = gpu.flushes.serve(self.flushed, doom, || everything = true);
        if everything {
            self.tlb.flush(EVERY_PROCESS, 0, 0);
        }
        if self.tlb.give_back(UNMAPPED_AT_ONCE) {
            bump(&node.counters.flushes);
            // Release: the mappings are gone before the flusher is told.
            node.flushed.store(self.flushed, Ordering::Release);
        } else {
            node.attention.fetch_or(attention::FLUSH, Ordering::AcqRel);
        }
    }

    /// A reset: lets go of what runs. Its queue is lost if it was in the middle of something.
    fn hold(&mut self, gpu: &Gpu<H>, node: &Node<H>) {
        if let Some(running) = self.running.take() {
            self.cut_off = Some(running.packet.space.process.slot);
        }
        self.scratch.let_go();
        // What the OS takes as over is not reported behind the reset.
        let everything = node.loses_everything.load(Ordering::Acquire);
        self.reports.forget(|notice| everything || notice.is_of_packets());
        if self.spare.is_none() {
            self.spare = try_box(Exec::new()).ok();
        }
        self.watch.clear();
        bump(&node.counters.resets);
        node.trace.push(Event::Reset, 0);
        node.set_phase(Phase::Held, &gpu.mutation);
    }

    /// Lets go of everything.
    fn release(&mut self, gpu: &Gpu<H>, node: &Node<H>) {
        self.running = None;
        self.scratch.let_go();
        self.tlb.clear();
        self.watch.clear();
        self.fences.clear();
        while node.next_ready(&gpu.mutation).is_some() {}
        while node.next_suspending(None).is_some() {}
        drop(node.take_interrupted());
    }

    /// Looks at the doorbells. Returns whether any is connected.
    fn poll(&mut self, gpu: &Gpu<H>, node: &Node<H>) -> bool {
        let connected = match gpu.doorbells.model {
            Model::Dedicated => self.watch.poll(&gpu.doorbells, self.node, |queue| {
                bump(&node.counters.rings);
                node.make_ready(queue);
                gpu.arrived(queue);
            }),
            Model::Global => {
                if let Some(value) = Watch::poll_global(&gpu.doorbells) {
                    bump(&node.counters.rings);
                    gpu.rang_global(token_of(value));
                }
                gpu.any_global()
            }
        };
        node.rescan() || connected
    }
}

/// The lookaside buffer `tlb` for a stream that runs in `space`.
fn mmu<'a, H: Host>(tlb: &'a mut Tlb<H>, gpu: &'a Gpu<H>, node: &'a Node<H>, space: &'a AddressSpace<H>) -> Mmu<'a, H> {
    Mmu { tlb, bus: Bus { host: &gpu.host, counters: &node.counters, mutation: &gpu.mutation }, space }
}
