//! What only the paging process may do: page table entries and flushes.

use super::{Advance, Long};
use crate::engine::Core;
use crate::fault::Fault;
use crate::gpu::Gpu;
use crate::host::Host;
use crate::mutation::Mutation;
use crate::node::attention;
use crate::word::{Ordering, Word};
use core::sync::atomic::Ordering as AtomicOrdering;
use gpu_wire::GpuVa;
use gpu_wire::packet::{Entries, FaultKind, TableWrite};
use gpu_wire::pte::Pte;

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
