//! What only paging buffers may do: page table entries and flushes.

use super::{Advance, Long};
use crate::command_processor::{Job, aligned};
use crate::engine::Core;
use crate::fault::Fault;
use crate::gpu::Gpu;
use crate::host::Host;
use crate::mutation::Mutation;
use crate::node::attention;
use crate::word::{Ordering, Word};
use core::sync::atomic::Ordering as AtomicOrdering;
use gpu_wire::GpuVa;
use gpu_wire::packet::{Entries, FaultKind, TableCopy, TableWrite};
use gpu_wire::pte::{Pte, TABLE_SIZE};

impl<H: Host> Core<H> {
    /// Writes entries of a page table. The table stays mapped until the packet that the stream belongs to completes:
    /// one paging buffer usually writes one table many times.
    pub(crate) fn table_write(&mut self, gpu: &Gpu<H>, head: TableWrite, entries: &Entries<'_>) -> Result<(), Fault> {
        let place = Pte(head.table).as_table().ok_or(FaultKind::BadOperand)?;
        let fault = || Fault::address(GpuVa(head.table), true);
        if self.table.as_ref().is_none_or(|(p, _)| *p != place) {
            self.table = None;
            self.table = Some((place, self.tlb.map_table(gpu, place, true).map_err(|()| fault())?));
        }
        let (_, window) = self.table.as_ref().ok_or_else(fault)?;
        for i in 0..head.count {
            let entry = entries.get(i).ok_or(FaultKind::BadLength)?;
            let word = window.span().word(u64::from(head.first + i) * 8).ok_or_else(fault)?;
            // One 64-bit store: a walk sees the old entry or the new one.
            word.store(entry.0, Ordering::Release);
        }
        Ok(())
    }

    /// Copies entries between page tables that the packet's address space shows. Both tables are mapped before the
    /// first entry is stored, so that a packet that faults has copied nothing and can be executed again.
    pub(crate) fn table_copy(&mut self, gpu: &Gpu<H>, job: &Job<'_, H>, copy: &TableCopy) -> Result<(), Fault> {
        let (source, destination) = (aligned(copy.source, 8)?, aligned(copy.destination, 8)?);
        let bytes = u64::from(copy.count) * 8;
        let in_table = |at: GpuVa| at.0 % u64::from(TABLE_SIZE) + bytes <= u64::from(TABLE_SIZE);
        if copy.reserved != 0 || copy.count == 0 || !in_table(source) || !in_table(destination) {
            return Err(FaultKind::BadOperand.into());
        }
        loop {
            let from = self.translate(gpu, job, source, bytes, false)?;
            let to = self.translate(gpu, job, destination, bytes, true)?;
            // Translating the second may have made room by dropping the first; then both are translated again.
            let (Some(from), Some(to)) = (self.tlb.span(from), self.tlb.span(to)) else { continue };
            // One table may be shown at two addresses, so addresses do not say whether the entries overlap.
            let entries = self.entries.iter_mut().take(copy.count as usize);
            for (entry, at) in entries.zip((0..).step_by(8)) {
                let word = from.word(at).ok_or(Fault::address(GpuVa(source.0 + at), false))?;
                *entry = word.load(Ordering::Relaxed);
            }
            if to.len() < bytes {
                return Err(Fault::address(GpuVa(destination.0 + to.len()), true));
            }
            let entries = self.entries.iter().take(copy.count as usize);
            for (entry, at) in entries.zip((0..).step_by(8)) {
                let word = to.word(at).ok_or(Fault::address(GpuVa(destination.0 + at), true))?;
                word.store(*entry, Ordering::Release);
            }
            return Ok(());
        }
    }

    /// Whether a flush is complete: every engine has dropped what it cached, this one included.
    pub(super) fn await_flush(&mut self, gpu: &Gpu<H>, number: u64) -> Advance {
        if gpu.nodes[self.node].attention.load(AtomicOrdering::Relaxed) & attention::FLUSH != 0 {
            self.serve_flushes(gpu);
        }
        if gpu.flush_done(number) || gpu.mutation.is(Mutation::FlushNotWaited) {
            Advance::Done(0)
        } else {
            Advance::NotYet(Long::Flush { number })
        }
    }
}
