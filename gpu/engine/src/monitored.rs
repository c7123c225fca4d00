//! Stage 5 for monitored fences: what a MONITORED_SIGNAL does on a GPU that is built this way or that.
//!
//! The progress fence of a hardware queue is an exception to two of the three: hardware scheduling rests on it. Where
//! engines have the basic implementation the OS learns of the end of a buffer by that fence's interrupt; and where an
//! engine cannot write monitored fences by address, it writes this one all the same.
//!
//! Source: *Context monitoring*, "GPU signal" and "Monitored fence creation".

use crate::command_processor::{Job, aligned};
use crate::engine::Core;
use crate::fault::Fault;
use crate::gpu::Gpu;
use crate::host::Host;
use crate::mutation::Mutation;
use crate::word::{Ordering, Word};
use gpu_wire::packet::{FaultKind, MonitoredSignal, Privilege};
use gpu_wire::{GpuVa, NodeOrdinal};

/// How the GPU treats monitored fences.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MonitoredFences {
    /// The basic implementation: a signal interrupts nobody, and the OS looks when the buffer is done.
    pub basic: bool,
    /// Signals store the low 32 bits.
    pub narrow: bool,
    /// One bit per node whose engine cannot write monitored fences.
    pub unable: u32,
}

impl MonitoredFences {
    /// Whether the engine of `node` cannot write monitored fences.
    pub fn is_unable(&self, node: NodeOrdinal) -> bool {
        self.unable & 1_u32.checked_shl(node.0).unwrap_or(0) != 0
    }
}

impl<H: Host> Core<H> {
    /// Performs a MONITORED_SIGNAL.
    pub(crate) fn monitored_signal(
        &mut self,
        gpu: &Gpu<H>,
        job: &Job<'_, H>,
        signal: &MonitoredSignal,
    ) -> Result<(), Fault> {
        let va = aligned(signal.address, 8)?;
        let is_progress = job.queue.is_some_and(|queue| queue.progress == va);
        let is_paging = job.privilege == Privilege::Paging;
        // CAST: a node index.
        let unable = gpu.monitored.is_unable(NodeOrdinal(self.node as u32));
        if unable && !is_progress && !is_paging && !gpu.mutation.is(Mutation::SignalsUnable) {
            return Err(FaultKind::NotPermitted.into());
        }
        if gpu.monitored.narrow && !gpu.mutation.is(Mutation::StoresNarrowWide) {
            self.store_low(gpu, job, va, signal.value)?;
        } else {
            self.word(gpu, job, va, true)?.store(signal.value, Ordering::Release);
        }
        if !gpu.monitored.basic || is_progress {
            self.notify_monitored(gpu);
        }
        Ok(())
    }

    /// Stores the low half of `value`.
    pub(crate) fn store_low(&mut self, gpu: &Gpu<H>, job: &Job<'_, H>, va: GpuVa, value: u64) -> Result<(), Fault> {
        let view = self.translate(gpu, job, va, 4, true)?;
        // CAST: the low half is what is asked for.
        match self.tlb.span(view).map(|span| span.store_u32(0, value as u32)) {
            Some(true) => Ok(()),
            _ => Err(Fault::address(va, true)),
        }
    }
}
