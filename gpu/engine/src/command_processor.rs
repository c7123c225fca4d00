//! Stage 4 of 8: fetch, decode, execute.
//!
//! A packet is copied to private memory, decoded, and the copy is executed; what user mode does to the ring meanwhile
//! changes nothing. The processor can be taken off a queue between packets of the ring and inside long operations
//! there; inside a command buffer it cannot, since it remembers one position and has no stack. So the preemption
//! granularity is the command buffer, and an endless INDIRECT loop is ended by a reset and by nothing else.

mod fences;
mod fetch;

use self::fetch::From;
use crate::address_space::AddressSpace;
use crate::counters::{add, bump};
use crate::engine::Core;
use crate::fault::{Fault, Injected};
use crate::fence::Fence;
use crate::fence_table::OpenFence;
use crate::gpu::Gpu;
use crate::host::Host;
use crate::memory::SharedWord;
use crate::node::attention;
use crate::notice::Notice;
use crate::ops::{Advance, Long};
use crate::queue::{Binding, Queue, State};
use crate::shared::Shared;
use crate::slots::SlotId;
use crate::tlb::View;
use crate::trace::Event;
use crate::word::{Ordering, Word};
use gpu_wire::packet::{self, EVERY_PROCESS, FaultKind, HEADER_SIZE, MAX_SIZE, OWN_PROCESS, Packet, Privilege};
use gpu_wire::{GpuVa, ring};

/// A command buffer being executed.
#[derive(Clone, Copy, Debug)]
struct Buffer {
    next: GpuVa,
    end: u64,
}

/// A fence wait that was not met.
struct Wait<H: Host> {
    open: OpenFence<H>,
    address: GpuVa,
    value: u64,
    ticket: u64,
    observed: u64,
}

/// What a LOG packet may describe.
#[derive(Clone, Copy)]
enum Synced {
    /// With the fence whose interrupt went out before the entry was there.
    Signal { told: Option<SlotId> },
    /// When the wait was seen and when it ended; `None`: it was met at once.
    Wait(Option<(u64, u64)>),
}

/// A signal whose consequences are not drawn yet.
struct Pending<H: Host> {
    fence: Shared<Fence<H>>,
    monitored: GpuVa,
    value: u64,
    /// Its entry is in the queue's log.
    logged: bool,
}

/// Where a stream was before it fetched a packet.
#[derive(Clone, Copy, Default)]
struct Before {
    consumed: u64,
    buffer: Option<Buffer>,
}

/// Where a queue is in its stream.
pub struct Exec<H: Host> {
    bindings: u64,
    binding: Option<Binding>,
    /// Bytes of the ring consumed.
    consumed: u64,
    /// Where the packet of the ring began that was fetched last.
    started: u64,
    /// Write pointer that was read and believed.
    published: u64,
    /// Read pointer that was stored.
    reported: u64,
    buffer: Option<Buffer>,
    /// The state before the packet that is executed was fetched.
    before: Before,
    long: Option<Long>,
    wait: Option<Wait<H>>,
    synced: Option<Synced>,
    pending: Option<Pending<H>>,
    /// A progress value that is to be signaled before anything else.
    owed: Option<u64>,
}

impl<H: Host> Exec<H> {
    /// At the start of nothing.
    pub(crate) fn new() -> Self {
        Self {
            bindings: 0,
            binding: None,
            consumed: 0,
            started: 0,
            published: 0,
            reported: 0,
            buffer: None,
            before: Before::default(),
            long: None,
            wait: None,
            synced: None,
            pending: None,
            owed: None,
        }
    }

    /// Goes back to what failed for want of memory: a wait and a long operation go on where they are, and any other
    /// packet is fetched and executed again. Every packet may be, until it has succeeded.
    fn again(&mut self) {
        if self.wait.is_none() && self.long.is_none() {
            (self.consumed, self.buffer) = (self.before.consumed, self.before.buffer);
        }
    }

    /// Owes a progress value: it is signaled before anything else.
    pub(crate) fn owe(&mut self, progress: u64) {
        self.owed = Some(progress);
    }

    /// Starts a command buffer.
    pub(crate) fn begin(&mut self, address: GpuVa, length: u64) -> Result<(), Fault> {
        self.buffer = Some(buffer(address, length)?);
        Ok(())
    }

    /// Lets go of everything that it refers to.
    pub(crate) fn abandon(&mut self) {
        if let Some(wait) = self.wait.take() {
            wait.open.fence.parked.remove(wait.ticket);
        }
        self.buffer = None;
        self.long = None;
        self.pending = None;
        self.synced = None;
        self.owed = None;
    }

    /// Returns whether the queue can come off the engine here and go on later: outside of command buffers, and not
    /// between a signal and its LOG. What a signal brings about happens when the queue comes off, so that an interrupt
    /// would be ahead of its entry; one packet more is looked at, whose cost is bounded.
    fn may_leave(&self) -> bool {
        self.buffer.is_none() && self.pending.is_none()
    }

    /// Bytes of the ring whose packets are done.
    fn retired(&self) -> u64 {
        if self.is_mid_work() || self.wait.is_some() { self.started } else { self.consumed }
    }

    /// Whether it is in the middle of something that a reset destroys.
    pub(crate) fn is_mid_work(&self) -> bool {
        self.buffer.is_some() || self.long.is_some()
    }
}

/// What became of a store that the stream did not ask for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stored {
    Done,
    /// User mode took the page away.
    NotMapped,
    /// The host has no memory for a mapping now.
    NoMemory,
}

/// Whose stream it is.
pub(crate) struct Job<'a, H: Host> {
    /// The address space that it runs in, and whose that is.
    pub space: &'a AddressSpace<H>,
    /// What it may do.
    pub privilege: Privilege,
    /// The hardware queue; `None` for a packet.
    pub queue: Option<&'a Shared<Queue<H>>>,
}

/// Why execution came back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    /// Nothing is left.
    Drained,
    /// Another queue's turn.
    Budget,
    /// Parked on a fence.
    Parked,
    /// A suspension or preemption asks for the engine.
    Preempted,
    /// Reset or stop.
    Controlled,
    /// Waits for other engines, or for memory; ask again soon.
    Waiting,
    /// The queue was stopped or destroyed.
    Gone,
    /// It did something wrong.
    Faulted(Fault),
}

fn buffer(address: GpuVa, length: u64) -> Result<Buffer, Fault> {
    if !address.is_aligned(ring::ALIGN) || !length.is_multiple_of(ring::ALIGN) || length > packet::MAX_INDIRECT_SIZE {
        return Err(FaultKind::BadOperand.into());
    }
    let end = address.checked_add(length).ok_or(FaultKind::BadOperand)?;
    Ok(Buffer { next: address, end: end.0 })
}

/// Work units of a turn: packets count [`PACKET_COST`], long operations one per 64 bytes.
const TURN: u64 = 1 << 16;
/// Work units of a packet.
const PACKET_COST: u64 = 16;

impl<H: Host> Core<H> {
    /// Executes until something else must happen. Everything that a signal brings about has happened when it returns.
    pub(crate) fn execute(&mut self, gpu: &Gpu<H>, job: &Job<'_, H>, exec: &mut Exec<H>) -> Outcome {
        self.tlb.starved = false;
        let outcome = match self.stream(gpu, job, exec) {
            Ok(outcome) => outcome,
            // The host had no memory for a mapping, which is no mistake of the stream's, whichever it is: it waits, and
            // this engine gives back what it has mapped.
            Err(_) if self.tlb.starved => {
                exec.again();
                self.tlb.clear();
                bump(&gpu.nodes[self.node].counters.starved);
                Outcome::Waiting
            }
            Err(fault) => {
                // It stays at the packet that faulted.
                exec.consumed = exec.started;
                if fault.kind == FaultKind::AdapterStopped {
                    // Nothing of it is stored or looked at any more.
                    exec.pending = None;
                    return Outcome::Faulted(fault);
                }
                Outcome::Faulted(fault)
            }
        };
        // Before anything else happens: ring empty, preemption, fault (a missing LOG never loses a wake: LOG-1).
        self.resolve(gpu, job, exec);
        self.raise_due(gpu);
        match outcome {
            // User mode waits for the read pointer: it is stored before the engine leaves the queue alone.
            Outcome::Drained | Outcome::Parked if !self.report(gpu, job, exec) => Outcome::Waiting,
            outcome => {
                self.report(gpu, job, exec);
                outcome
            }
        }
    }

    fn stream(&mut self, gpu: &Gpu<H>, job: &Job<'_, H>, exec: &mut Exec<H>) -> Result<Outcome, Fault> {
        let node = &gpu.nodes[self.node];
        let mut turn = TURN;
        // The private copy: what is decoded and executed, whatever becomes of the ring meanwhile.
        let mut copy = [0; MAX_SIZE];
        if let Some(queue) = job.queue {
            let bindings = queue.bindings.load(Ordering::Acquire);
            if bindings != exec.bindings {
                // What waits in a fence's list for the old ring leaves it.
                exec.abandon();
                *exec = Exec { bindings, binding: queue.binding(), ..Exec::new() };
            }
        }
        loop {
            let bits = node.attention.load(Ordering::Relaxed);
            if bits != 0 {
                if bits & attention::FLUSH != 0 {
                    self.serve_flushes(gpu);
                }
                if bits & attention::CONTROL != 0 {
                    return Ok(Outcome::Controlled);
                }
                if bits & attention::HALT != 0 {
                    return Err(FaultKind::AdapterStopped.into());
                }
                if bits & (attention::SUSPEND | attention::PREEMPT) != 0 && exec.may_leave() {
                    return Ok(Outcome::Preempted);
                }
                if bits & attention::SUSPEND != 0 {
                    // The bit stays: the running context may be in the list, for when it can be taken off.
                    self.take_off(gpu, job.queue.map(|queue| &queue.context));
                }
            }
            if let Some(queue) = job.queue
                && queue.state() != State::Active
            {
                return Ok(Outcome::Gone);
            }
            if turn == 0 {
                self.raise_due(gpu);
                if exec.may_leave() && self.others_wait(gpu) {
                    return Ok(Outcome::Budget);
                }
                turn = TURN;
            }
            if let Some(queue) = job.queue
                && let Some(progress) = exec.owed
            {
                self.signal_progress(gpu, job, exec, queue.progress, progress)?;
                exec.owed = None;
            }
            if let Some(long) = exec.long {
                if let Some(queue) = job.queue {
                    self.begun(gpu, queue);
                }
                match self.advance(gpu, job.space, long)? {
                    Advance::Done(bytes) => {
                        exec.long = None;
                        turn = self.charge(gpu, turn, bytes);
                    }
                    Advance::More(bytes, long) => {
                        // Not before the first chunk: many small operations between signals are no reason to
                        // interrupt for each.
                        self.raise_due(gpu);
                        exec.long = Some(long);
                        turn = self.charge(gpu, turn, bytes);
                    }
                    Advance::NotYet(long) => {
                        exec.long = Some(long);
                        return Ok(Outcome::Waiting);
                    }
                }
                continue;
            }
            if exec.wait.is_some() && !self.wait_over(gpu, job, exec)? {
                return Ok(Outcome::Parked);
            }
            exec.before = Before { consumed: exec.consumed, buffer: exec.buffer };
            let Some((bytes, from)) = self.fetch(gpu, job, exec, &mut copy)? else {
                return Ok(Outcome::Drained);
            };
            let decoded = Packet::decode(copy.get(..bytes).unwrap_or_default(), job.privilege);
            // A notification that waits for its LOG waits for nothing else.
            if exec.pending.is_some() && !matches!(decoded, Ok(Packet::Log(_))) {
                self.resolve(gpu, job, exec);
            }
            let decoded = match gpu.faults.at_packet() {
                None => decoded?,
                Some(Injected::Corrupt) => {
                    // The opcode becomes one that nobody assigned: whichever packet it is, the fault shows.
                    copy[1] ^= 0x20;
                    Packet::decode(copy.get(..bytes).unwrap_or_default(), job.privilege)?
                }
                Some(Injected::Wedge) => {
                    self.wedge();
                    decoded?
                }
            };
            match from {
                From::Buffer(next) => exec.buffer = exec.buffer.map(|b| Buffer { next, ..b }),
                From::Ring(consumed) => {
                    self.report_while_running(gpu, job, exec);
                    exec.consumed = consumed;
                }
            }
            bump(&node.counters.packets);
            turn = turn.saturating_sub(PACKET_COST);
            if let Some(queue) = job.queue {
                self.begun(gpu, queue);
                add(&queue.packets, 1);
            }
            self.perform(gpu, job, exec, &decoded)?;
        }
    }

    fn charge(&self, gpu: &Gpu<H>, turn: u64, bytes: u64) -> u64 {
        add(&gpu.nodes[self.node].counters.bytes, bytes);
        turn.saturating_sub(bytes / 64)
    }

    fn perform(
        &mut self,
        gpu: &Gpu<H>,
        job: &Job<'_, H>,
        exec: &mut Exec<H>,
        packet: &Packet<'_>,
    ) -> Result<(), Fault> {
        let synced = exec.synced.take();
        match *packet {
            Packet::Nop => Ok(()),
            Packet::Store(b) => {
                let va = aligned(b.address, 8)?;
                self.word(gpu, job, va, true)?.store(b.value, Ordering::Release);
                Ok(())
            }
            Packet::Store32(b) => self.store_low(gpu, job, aligned(b.address, 4)?, b.value),
            Packet::Timestamp(b) => {
                let va = aligned(b.address, 8)?;
                let now = gpu.host.clock();
                self.word(gpu, job, va, true)?.store(now, Ordering::Release);
                Ok(())
            }
            Packet::Indirect(b) => {
                bump(&gpu.nodes[self.node].counters.indirects);
                exec.buffer = Some(buffer(GpuVa(b.address), b.length)?);
                Ok(())
            }
            Packet::FenceWait(b) => self.fence_wait(gpu, job, exec, aligned(b.fence, 8)?, b.value),
            Packet::FenceSignal(b) => self.fence_signal(gpu, job, exec, aligned(b.fence, 8)?, b.value),
            Packet::Log(b) => {
                let queue = job.queue.ok_or(FaultKind::BadLog)?;
                let logged = self.log(gpu, queue, synced.ok_or(FaultKind::BadLog)?, b)?;
                if let Some(pending) = &mut exec.pending {
                    pending.logged = logged;
                }
                self.resolve(gpu, job, exec);
                if logged && let Some(Synced::Signal { told: Some(fence) }) = synced {
                    // An interrupt has told of the signal already, and the entry comes behind it: an OS that wakes by
                    // the log has not found it.
                    self.notify_fence(gpu, fence, queue.slot);
                }
                Ok(())
            }
            Packet::MonitoredSignal(b) => self.monitored_signal(gpu, job, &b),
            Packet::Fill(b) => start(exec, Long::fill(b)?),
            Packet::Copy(b) => start(exec, Long::copy(b)?),
            Packet::CopyRect(b) => start(exec, Long::copy_rect(b)?),
            Packet::FilterRect(b) => start(exec, Long::filter_rect(b)?),
            Packet::TableWrite(head, entries) => self.table_write(gpu, head, &entries),
            Packet::TableCopy(b) => self.table_copy(gpu, job, &b),
            Packet::TlbFlush(b) => {
                let number = gpu.flush(flushed(job, b.process), b.start, b.end);
                start(exec, Long::Flush { number })
            }
        }
    }

    fn read(&mut self, gpu: &Gpu<H>, job: &Job<'_, H>, va: GpuVa, to: &mut [u8]) -> Result<(), Fault> {
        self.tlb.read(gpu, job.space, va, to)
    }

    pub(crate) fn translate(
        &mut self,
        gpu: &Gpu<H>,
        job: &Job<'_, H>,
        va: GpuVa,
        want: u64,
        write: bool,
    ) -> Result<View, Fault> {
        self.tlb.translate(gpu, job.space, va, want, write)
    }

    /// As [`Self::translate`], of what the stream itself does not ask for: its failure is no failure of the stream's.
    fn translate_aside(&mut self, gpu: &Gpu<H>, job: &Job<'_, H>, va: GpuVa, write: bool) -> Result<View, Stored> {
        let before = core::mem::take(&mut self.tlb.starved);
        let view = self.translate(gpu, job, va, 8, write);
        let starved = core::mem::replace(&mut self.tlb.starved, before);
        view.map_err(|_| if starved { Stored::NoMemory } else { Stored::NotMapped })
    }

    /// Stores a word of the queue's control page.
    fn store_if_mapped(&mut self, gpu: &Gpu<H>, job: &Job<'_, H>, va: GpuVa, value: u64) -> Stored {
        match self.translate_aside(gpu, job, va, true) {
            Err(why) => why,
            Ok(view) => match self.tlb.span(view).and_then(|span| span.word(0)) {
                Some(word) => {
                    word.store(value, Ordering::Release);
                    Stored::Done
                }
                None => Stored::NotMapped,
            },
        }
    }

    pub(crate) fn word(
        &mut self,
        gpu: &Gpu<H>,
        job: &Job<'_, H>,
        va: GpuVa,
        write: bool,
    ) -> Result<SharedWord<'_>, Fault> {
        self.tlb.word(gpu, job.space, va, write)
    }

    /// Adds the fault to the node's notices and stops the queue.
    pub(crate) fn fault_queue(
        &mut self,
        gpu: &Gpu<H>,
        job: &Job<'_, H>,
        exec: &Exec<H>,
        queue: &Shared<Queue<H>>,
        fault: Fault,
    ) {
        let node = &gpu.nodes[self.node];
        if !queue.stop() {
            return;
        }
        bump(&node.counters.faults);
        node.trace.push(Event::Fault, fault.kind.raw().into());
        let halted = fault.kind == FaultKind::AdapterStopped;
        // The buffer that faulted, by the number that the kernel gave it. What runs in a user-mode queue has no such
        // number: the values of its progress fence are user mode's words, and the OS is told none of them.
        let progress = if queue.user_mode { 0 } else { queue.running.load(Ordering::Relaxed) };
        if let Some(binding) = exec.binding.filter(|_| !halted) {
            let report = [
                (ring::FAULT_ADDRESS, fault.address.0),
                (ring::FAULT_POSITION, exec.consumed),
                (ring::FAULT_KIND, fault.kind.raw().into()),
            ];
            for (offset, value) in report {
                let at = GpuVa(binding.control.0 + offset as u64);
                if self.store_if_mapped(gpu, job, at, value) == Stored::NoMemory {
                    // The engine gives back what it has mapped: there is no later turn of this queue.
                    self.tlb.clear();
                    self.store_if_mapped(gpu, job, at, value);
                }
            }
        }
        self.notify(gpu, Notice::QueueFaulted { queue: queue.slot, fault, progress });
    }
}

/// The process whose translations a TLB_FLUSH of `job` drops. Its own are everybody's where that is the paging
/// process: what it writes by address may be the table of any process.
fn flushed<H: Host>(job: &Job<'_, H>, process: u64) -> u64 {
    let own = &job.space.process;
    match process {
        OWN_PROCESS if own.privilege == Privilege::Paging => EVERY_PROCESS,
        OWN_PROCESS => own.number,
        other => other,
    }
}

fn start<H: Host>(exec: &mut Exec<H>, long: Long) -> Result<(), Fault> {
    exec.long = Some(long);
    Ok(())
}

pub(crate) fn aligned(address: u64, align: u64) -> Result<GpuVa, Fault> {
    let va = GpuVa(address);
    if va.is_aligned(align) && va.is_canonical() { Ok(va) } else { Err(FaultKind::BadOperand.into()) }
}

const _: () = assert!(MAX_SIZE >= HEADER_SIZE + 16);
