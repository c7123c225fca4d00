//! Stage 4 of 8: what one packet does.
//!
//! A packet is executed over the memory that its stream sees ([`Mmu`]) and over the fences of its process. What it
//! brings about beyond that, a queue that parks, a wake, an interrupt, a flush, it does not do: it comes back as an
//! [`Effect`], and the engine does it.

use crate::context::Process;
use crate::counters::{add, bump};
use crate::exec::{Buffer, Pending, Synced, Wait};
use crate::fault::Fault;
use crate::fence::tickets;
use crate::fence_log::Entry;
use crate::fence_table::{FenceCache, OpenFence};
use crate::host::Host;
use crate::mmu::{Mmu, aligned};
use crate::monitored::MonitoredFences;
use crate::mutation::Mutation;
use crate::operation::Long;
use crate::ops::Scratch;
use crate::queue::{ParkedFence, Queue};
use crate::shared::Shared;
use crate::word::{Ordering, Word};
use gpu_wire::packet::{self, EVERY_PROCESS, FaultKind, OWN_PROCESS, Packet, Privilege, log_operation};
use gpu_wire::{GpuVa, NodeOrdinal};

/// A process's fence, as streams name it.
pub(crate) type FenceRef<H> = OpenFence<ParkedFence<H>>;

/// The process and the hardware queue or packet that a command stream belongs to.
pub(crate) struct Job<'a, H: Host> {
    /// The process.
    pub process: &'a Shared<Process<H>>,
    /// What the stream's packets may do.
    pub privilege: Privilege,
    /// The hardware queue; `None` for a packet.
    pub queue: Option<&'a Shared<Queue<H>>>,
    /// Of a packet: the OS's handle of its context, and its fence.
    pub packet: Option<(u64, u32)>,
}

/// How the GPU was set up, as far as packets depend on it.
#[derive(Clone, Copy)]
pub(crate) struct Unit {
    pub node: NodeOrdinal,
    pub monitored: MonitoredFences,
}

/// What a packet brings about beyond memory.
pub(crate) enum Effect<H: Host> {
    /// Nothing.
    Nothing,
    /// The stream goes on in a command buffer.
    Jump(Buffer),
    /// An operation begins.
    Start(Long),
    /// Translations of a process are to be dropped, and the stream waits for it: process, first and last address.
    Flush(u64, u64, u64),
    /// A wait that is met.
    Met,
    /// A wait that is not met, but for its ticket.
    Wait(Wait<FenceRef<H>>),
    /// A signal was stored. `None`: the fence is always signaled, and nothing was.
    Signal(Option<Pending<FenceRef<H>>>),
    /// The progress fence was signaled at an address where no native fence is open.
    SignalPlain,
    /// An entry for a log of native fences, with the index that user mode expects it to have.
    Log(Entry, u32),
    /// A monitored fence was signaled, and the OS is to hear of it.
    Monitored,
}

/// The command processor of an engine, for one stream.
pub(crate) struct Processor<'a, 'm, H: Host> {
    pub mmu: &'a mut Mmu<'m, H>,
    pub fences: &'a mut FenceCache<ParkedFence<H>>,
    pub scratch: &'a mut Scratch<H>,
    pub unit: Unit,
}

impl<H: Host> Processor<'_, '_, H> {
    /// Executes a packet. `synced` is the wait or signal that the packet before it was.
    ///
    /// # Errors
    /// What the packet did wrong. Then it has had no effect but for stores of its own.
    pub fn perform(
        &mut self,
        job: &Job<'_, H>,
        packet: &Packet<'_>,
        synced: Option<Synced>,
        now: impl FnOnce() -> u64,
    ) -> Result<Effect<H>, Fault> {
        Ok(match *packet {
            Packet::Nop => Effect::Nothing,
            Packet::Store(b) => {
                let va = aligned(b.address, 8)?;
                self.mmu.word(va, true)?.store(b.value, Ordering::Release);
                Effect::Nothing
            }
            Packet::Store32(b) => {
                self.mmu.store_low(aligned(b.address, 4)?, b.value)?;
                Effect::Nothing
            }
            Packet::Timestamp(b) => {
                let va = aligned(b.address, 8)?;
                let now = self.mmu.bus.host.clock();
                self.mmu.word(va, true)?.store(now, Ordering::Release);
                Effect::Nothing
            }
            Packet::Indirect(b) => {
                let buffer = Buffer::new(GpuVa(b.address), b.length)?;
                bump(&self.mmu.bus.counters.indirects);
                Effect::Jump(buffer)
            }
            Packet::FenceWait(b) => self.fence_wait(job, aligned(b.fence, 8)?, b.value)?,
            Packet::FenceSignal(b) => self.fence_signal(job, aligned(b.fence, 8)?, b.value)?,
            Packet::Log(b) => {
                // A packet has no logs.
                job.queue.ok_or(FaultKind::BadLog)?;
                Effect::Log(entry(synced.ok_or(FaultKind::BadLog)?, b, now())?, b.index_hint)
            }
            Packet::MonitoredSignal(b) => self.monitored_signal(job, &b)?,
            Packet::Fill(b) => Effect::Start(Long::fill(b)?),
            Packet::Copy(b) => Effect::Start(Long::copy(b)?),
            Packet::CopyRect(b) => Effect::Start(Long::copy_rect(b)?),
            Packet::FilterRect(b) => Effect::Start(Long::filter_rect(b)?),
            Packet::TableWrite(head, entries) => {
                self.scratch.table_write(self.mmu, head, &entries)?;
                Effect::Nothing
            }
            Packet::TableCopy(b) => {
                self.scratch.table_copy(self.mmu, &b)?;
                Effect::Nothing
            }
            Packet::TlbFlush(b) => Effect::Flush(flushed(job, b.process), b.start, b.end),
            // The engine has taken them apart (`Packet::split`).
            Packet::FenceWaitLogged(_) | Packet::FenceSignalLogged(_) | Packet::Progress(_) => {
                return Err(FaultKind::BadOpcode.into());
            }
        })
    }

    fn fence_wait(&mut self, job: &Job<'_, H>, va: GpuVa, value: u64) -> Result<Effect<H>, Fault> {
        // A packet cannot park: the OS holds packets until their waits are met.
        if job.queue.is_none() {
            return Err(FaultKind::NotPermitted.into());
        }
        let open = self.find_fence(job, va)?;
        if open.fence.is_always_signaled() || self.mmu.word(va, false)?.load(Ordering::Acquire) >= value {
            bump(&self.mmu.bus.counters.waits_met);
            return Ok(Effect::Met);
        }
        let observed = self.mmu.bus.host.clock();
        Ok(Effect::Wait(Wait { open, address: va, value, ticket: 0, observed }))
    }

    fn fence_signal(&mut self, job: &Job<'_, H>, va: GpuVa, value: u64) -> Result<Effect<H>, Fault> {
        let found = self.find_fence(job, va);
        let is_progress = job.queue.is_some_and(|queue| queue.progress == va);
        let open = match found {
            Err(_) if is_progress => return self.signal_plain(va, value),
            found => found?,
        };
        let mutation = self.mmu.bus.mutation;
        if open.fence.is_always_signaled() && !mutation.is(Mutation::WritesDeadFence) {
            bump(&self.mmu.bus.counters.signals);
            return Ok(Effect::Signal(None));
        }
        // Behind the store nothing can be put off until the engine has looked up.
        self.mmu.map_ahead(open.monitored)?;
        let (next_ticket, counters) = (self.mmu.bus.tickets, self.mmu.bus.counters);
        let word = self.mmu.word(va, true)?;
        bump(&counters.signals);
        let before = tickets(next_ticket);
        match open.fence.store(&word, value, mutation) {
            // The device was lost while the engine looked for the word.
            None => return Ok(Effect::Signal(None)),
            Some(backwards) => add(&self.mmu.bus.counters.backwards, u64::from(backwards)),
        }
        // Only a value that was stored has consequences: a signal that faults lets no waiter go.
        Ok(Effect::Signal(Some(Pending {
            open,
            address: va,
            value,
            before,
            signals: 1,
            logged: false,
            all_logged: true,
            fresh: true,
        })))
    }

    /// The signal `value` of the fence at `va` that has not been stored yet: for [`Mutation::NotifyBeforeValue`].
    pub fn announce(&mut self, job: &Job<'_, H>, va: GpuVa, value: u64) -> Option<Pending<FenceRef<H>>> {
        let open = self.find_fence(job, va).ok()?;
        let before = tickets(self.mmu.bus.tickets);
        Some(Pending { open, address: va, value, before, signals: 1, logged: false, all_logged: true, fresh: false })
    }

    /// Signals the queue's own progress fence where the process has no native fence open at its address: stores the
    /// value as a plain word. The engine does not know who waits for such a word, so the interrupts ask the OS to look
    /// at fences of both kinds.
    ///
    /// Source: `DXGKARG_CREATEHWQUEUE` promises that the native progress fence was created, not that it was opened.
    fn signal_plain(&mut self, va: GpuVa, value: u64) -> Result<Effect<H>, Fault> {
        self.mmu.word(va, true)?.store(value, Ordering::Release);
        bump(&self.mmu.bus.counters.signals);
        bump(&self.mmu.bus.counters.interrupts_wanted);
        Ok(Effect::SignalPlain)
    }

    /// Writes the progress fence of a buffer that is not run (null rendering): as a native fence where the process has
    /// one open at `fence`, otherwise as a monitored fence.
    ///
    /// # Errors
    /// The fault of the store, as for a signal by a packet.
    pub fn signal_progress(&mut self, job: &Job<'_, H>, fence: GpuVa, value: u64) -> Result<Effect<H>, Fault> {
        if self.find_fence(job, fence).is_ok() {
            return self.fence_signal(job, fence, value);
        }
        if job.queue.is_some_and(|queue| queue.native_progress) {
            return self.signal_plain(fence, value);
        }
        self.monitored_signal(job, &packet::MonitoredSignal { address: fence.0, value })
    }

    /// Performs a MONITORED_SIGNAL within the limits of the GPU's [`MonitoredFences`]: an engine that is `unable`
    /// faults, a `narrow` GPU stores 32 bits, and a `basic` one raises no interrupt. [`crate::monitored`] has the
    /// exceptions for progress fences.
    fn monitored_signal(&mut self, job: &Job<'_, H>, signal: &packet::MonitoredSignal) -> Result<Effect<H>, Fault> {
        let va = aligned(signal.address, 8)?;
        let is_progress = job.queue.is_some_and(|queue| queue.progress == va);
        let is_paging = job.privilege == Privilege::Paging;
        let (monitored, mutation) = (self.unit.monitored, self.mmu.bus.mutation);
        let unable = monitored.is_unable(self.unit.node);
        if unable && !is_progress && !is_paging && !mutation.is(Mutation::SignalsUnable) {
            return Err(FaultKind::NotPermitted.into());
        }
        if monitored.narrow && !mutation.is(Mutation::StoresNarrowWide) {
            self.mmu.store_low(va, signal.value)?;
        } else {
            self.mmu.word(va, true)?.store(signal.value, Ordering::Release);
        }
        Ok(if !monitored.basic || is_progress { Effect::Monitored } else { Effect::Nothing })
    }

    fn find_fence(&mut self, job: &Job<'_, H>, va: GpuVa) -> Result<FenceRef<H>, Fault> {
        Ok(self.fences.find(job.process.number, &job.process.fences, va).ok_or(FaultKind::UnknownFence)?)
    }
}

/// The process whose translations a TLB_FLUSH of `job` drops. Its own are everybody's where that is the paging
/// process: what it writes by address may be the table of any process.
fn flushed<H: Host>(job: &Job<'_, H>, process: u64) -> u64 {
    match process {
        OWN_PROCESS if job.process.privilege == Privilege::Paging => EVERY_PROCESS,
        OWN_PROCESS => job.process.number,
        other => other,
    }
}

/// The entry that the LOG packet `b` makes behind `synced`, with the times of what it is about. `now` is the GPU time
/// of the burst.
///
/// # Errors
/// [`FaultKind::BadLog`] for an operation other than the one before.
pub(crate) fn entry(synced: Synced, b: packet::Log, now: u64) -> Result<Entry, Fault> {
    let (observed, end) = match (b.operation, synced) {
        (log_operation::SIGNAL_EXECUTED, Synced::Signal { .. }) => (0, now),
        (log_operation::WAIT_UNBLOCKED, Synced::Wait(None)) => (now, now),
        (log_operation::WAIT_UNBLOCKED, Synced::Wait(Some(times))) => times,
        _ => return Err(FaultKind::BadLog.into()),
    };
    Ok(Entry { value: b.value, handle: b.fence_handle, operation: b.operation, observed, end })
}
