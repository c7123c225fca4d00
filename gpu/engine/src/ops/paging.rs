//! What only paging buffers may do: writing page table entries.

use crate::NoMemory;
use crate::fault::Fault;
use crate::host::Host;
use crate::memory::Window;
use crate::mmu::{Mmu, aligned};
use crate::shared::try_array;
use crate::word::{Ordering, Word};
use alloc::boxed::Box;
use gpu_wire::GpuVa;
use gpu_wire::packet::{Entries, FaultKind, TableCopy, TableWrite};
use gpu_wire::pte::{self, Place, Pte, TABLE_SIZE};

/// What paging packets of one engine work with.
pub(crate) struct Scratch<H: Host> {
    /// The page table that a packet writes, mapped until the packet completes or a flush is served: one paging buffer
    /// usually writes one table many times.
    table: Option<(Place, Window<H::Mapping>)>,
    /// Entries that a TABLE_COPY has read. Here and not on the stack: kernel stacks are small.
    entries: Box<[u64; pte::ENTRIES as usize]>,
}

impl<H: Host> Scratch<H> {
    /// Nothing mapped.
    ///
    /// # Errors
    /// [`NoMemory`].
    pub fn new() -> Result<Self, NoMemory> {
        Ok(Self { table: None, entries: try_array(|| 0)? })
    }

    /// Unmaps the page table.
    pub fn let_go(&mut self) {
        self.table = None;
    }

    /// Writes entries of a page table.
    ///
    /// # Errors
    /// [`FaultKind::BadOperand`], [`FaultKind::BadLength`], or the address fault of the table.
    pub fn table_write(&mut self, mmu: &mut Mmu<'_, H>, head: TableWrite, entries: &Entries<'_>) -> Result<(), Fault> {
        let place = Pte(head.table).as_table().ok_or(FaultKind::BadOperand)?;
        let fault = || Fault::address(GpuVa(head.table), true);
        if self.table.as_ref().is_none_or(|(p, _)| *p != place) {
            self.table = None;
            self.table = Some((place, mmu.tlb.map_table(&mmu.bus, place, true).map_err(|()| fault())?));
        }
        let (_, window) = self.table.as_ref().ok_or_else(fault)?;
        for i in 0..head.count {
            let entry = entries.get(i).ok_or(FaultKind::BadLength)?;
            let word = window.span().word(u64::from(head.first + i) * 8).ok_or_else(fault)?;
            // One 64-bit store: a walk sees the old entry or the new one.
            word.store(entry.0, Ordering::Release);
        }
        mmu.tlb.work += u64::from(head.count) * 8;
        Ok(())
    }

    /// Copies entries between page tables that the packet's address space shows. Both tables are mapped before the
    /// first entry is stored, so that a packet that faults has copied nothing and can be executed again.
    ///
    /// # Errors
    /// [`FaultKind::BadOperand`], or the address fault of a table.
    pub fn table_copy(&mut self, mmu: &mut Mmu<'_, H>, copy: &TableCopy) -> Result<(), Fault> {
        let (source, destination) = (aligned(copy.source, 8)?, aligned(copy.destination, 8)?);
        let bytes = u64::from(copy.count) * 8;
        let in_table = |at: GpuVa| at.0 % u64::from(TABLE_SIZE) + bytes <= u64::from(TABLE_SIZE);
        if copy.reserved != 0 || copy.count == 0 || !in_table(source) || !in_table(destination) {
            return Err(FaultKind::BadOperand.into());
        }
        mmu.tlb.work += 2 * bytes;
        loop {
            let from = mmu.translate(source, bytes, false)?;
            let to = mmu.translate(destination, bytes, true)?;
            // Translating the second may have made room by dropping the first; then both are translated again.
            let (Some(from), Some(to)) = (mmu.span(from), mmu.span(to)) else { continue };
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
}
