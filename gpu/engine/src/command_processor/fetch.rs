//! From the ring or a command buffer to a private copy, and the read pointer that gives the space back.

use super::{Exec, Job, Stored};
use crate::engine::Core;
use crate::fault::Fault;
use crate::gpu::Gpu;
use crate::host::Host;
use crate::queue::Binding;
use crate::word::{Ordering, Word};
use gpu_wire::packet::{self, FaultKind, HEADER_SIZE, Header, MAX_SIZE};
use gpu_wire::{GpuVa, ring};

/// Where the stream goes on.
#[derive(Clone, Copy)]
pub(super) enum From {
    Buffer(GpuVa),
    Ring(u64),
}

impl<H: Host> Core<H> {
    /// Copies the next packet to private memory. Bytes that are there, and where the stream goes on after it.
    pub(super) fn fetch(
        &mut self,
        gpu: &Gpu<H>,
        job: &Job<'_, H>,
        exec: &mut Exec<H>,
        copy: &mut [u8; MAX_SIZE],
    ) -> Result<Option<(usize, From)>, Fault> {
        if let Some(buffer) = exec.buffer {
            let left = buffer.end - buffer.next.0;
            if left == 0 {
                exec.buffer = None;
            } else {
                let (bytes, length) = self
                    .fetch_packet(left, copy, |engine, at, to| engine.read(gpu, job, GpuVa(buffer.next.0 + at), to))?;
                return Ok(Some((bytes, From::Buffer(GpuVa(buffer.next.0 + length)))));
            }
        }
        let Some(binding) = exec.binding else { return Ok(None) };
        match self.fetch_from_ring(gpu, job, exec, binding, copy) {
            // A queue without a connected doorbell may have lost its ring: user mode may free it. Then the queue has
            // nothing to run and is no longer scanned. Connecting a doorbell makes the engine look at the queue again.
            Err(fault) if fault.kind == FaultKind::Address && is_watched_only(job) && !self.tlb.starved => {
                if let Some(queue) = job.queue {
                    gpu.nodes[self.node].stop_scanning(queue, None);
                }
                Ok(None)
            }
            fetched => fetched,
        }
    }

    /// Copies the next packet of the job's ring to `copy`, with its length and where it came from; `None` when the
    /// ring is empty.
    ///
    /// # Errors
    /// The fault of reading the ring or its control page, or of a packet that is malformed.
    fn fetch_from_ring(
        &mut self,
        gpu: &Gpu<H>,
        job: &Job<'_, H>,
        exec: &mut Exec<H>,
        binding: Binding,
        copy: &mut [u8; MAX_SIZE],
    ) -> Result<Option<(usize, From)>, Fault> {
        exec.started = exec.consumed;
        if exec.published == exec.consumed {
            // ORDERING[RING-1]: Acquire pairs with user mode's Release: the packets below it are written.
            let control = self.word(gpu, job, binding.control, false)?;
            let published = control.load(Ordering::Acquire);
            let pending = binding.geometry.pending(published, exec.consumed);
            if pending.map_err(|_| FaultKind::BadWritePointer)? == 0 {
                return Ok(None);
            }
            exec.published = published;
        }
        let (bytes, length) = self.fetch_packet(exec.published - exec.consumed, copy, |engine, at, to| {
            let spans = binding.geometry.spans(exec.consumed + at, to.len() as u64);
            let (first, second) = to.split_at_mut(spans.first_len as usize);
            engine.read(gpu, job, GpuVa(binding.ring.0 + spans.first), first)?;
            engine.read(gpu, job, binding.ring, second)
        })?;
        Ok(Some((bytes, From::Ring(exec.consumed + length))))
    }

    /// Reads a header, checks its length, reads the rest. Bytes in the private copy, and the packet's length.
    pub(super) fn fetch_packet(
        &mut self,
        available: u64,
        copy: &mut [u8; MAX_SIZE],
        mut read: impl FnMut(&mut Self, u64, &mut [u8]) -> Result<(), Fault>,
    ) -> Result<(usize, u64), Fault> {
        if available < HEADER_SIZE as u64 {
            return Err(FaultKind::BadLength.into());
        }
        let (head, body) = copy.split_at_mut(HEADER_SIZE);
        read(self, 0, head)?;
        let header = Header::read(head.first_chunk().ok_or(FaultKind::BadLength)?);
        let length = header.check_length(available)?;
        let bytes = if header.opcode == packet::opcode::NOP { HEADER_SIZE } else { length as usize };
        let rest = body.get_mut(..bytes - HEADER_SIZE).ok_or(FaultKind::BadLength)?;
        if !rest.is_empty() {
            read(self, HEADER_SIZE as u64, rest)?;
        }
        Ok((bytes, length))
    }

    /// Between packets: stores the read pointer every eighth of the ring, since a producer that keeps the ring fed
    /// needs space, too. Not while a signal's consequences wait for its LOG.
    pub(super) fn report_while_running(&mut self, gpu: &Gpu<H>, job: &Job<'_, H>, exec: &mut Exec<H>) {
        let due = exec.binding.is_some_and(|binding| exec.consumed - exec.reported >= binding.geometry.size() / 8);
        if due && exec.pending.is_none() {
            self.report(gpu, job, exec);
        }
    }

    /// Stores the read pointer. Returns `false` where the host has no memory for the mapping: it is still to be stored.
    pub(super) fn report(&mut self, gpu: &Gpu<H>, job: &Job<'_, H>, exec: &mut Exec<H>) -> bool {
        let Some(binding) = exec.binding else { return true };
        let retired = exec.retired();
        if exec.reported == retired {
            return true;
        }
        if let Some(queue) = job.queue {
            queue.consumed.store(retired, Ordering::Relaxed);
        }
        // ORDERING[RING-1]: Release: the packets were copied out before user mode may write over them. A control page
        // that went away is noticed at the next fetch.
        let at = GpuVa(binding.control.0 + ring::READ_POINTER as u64);
        let stored = self.store_if_mapped(gpu, job, at, retired) != Stored::NoMemory;
        if stored {
            exec.reported = retired;
        }
        stored
    }
}

/// Returns whether the job's queue has no connected doorbell. `false` for a job without a queue.
fn is_watched_only<H: Host>(job: &Job<'_, H>) -> bool {
    job.queue.is_some_and(|queue| queue.connected.load(Ordering::Acquire) == 0)
}
