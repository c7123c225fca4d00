//! A root page table of two levels, which grows with the addresses that are mapped.
//!
//! Chosen: it has the entries that its space needs so far, twice as many each time, as the driver rounds them; it does
//! not shrink. Those of the paging process and of companions have one size. The new one is filled before any context
//! has it, and the old one goes when none has it any more.
//!
//! Source: DDI pages DxgkDdiGetRootPageTableSize, DxgkDdiSetRootPageTable (no context of the process runs meanwhile);
//! article GPU virtual memory in WDDM 2.0 (a root of two levels is sized dynamically).

use std::sync::Arc;

use wddm_abi::ntstatus;

use super::{AddressSpace, Owner, Source, root_size};
use crate::memory::Manager;
use crate::memory::page_table::{TableMemory, TableSource};
use crate::memory::paging::PagingError;
use crate::port::miniport::Miniport;

impl AddressSpace {
    /// Has a root that covers addresses up to `end`. On the paging worker.
    ///
    /// # Errors
    /// STATUS_NO_MEMORY: there is none for a larger root, or a context of the process does not come off its engine. The
    /// old root stays.
    pub(super) fn have_root(
        &self,
        adapter: &Arc<Miniport>,
        manager: &Arc<Manager>,
        end: u64,
    ) -> Result<(), PagingError> {
        let resizable = manager.caps.mmu.as_ref().is_some_and(|mmu| mmu.levels.len() == 2);
        if !resizable || self.owner != Owner::Process {
            return Ok(());
        }
        let copy = self.tables.lock().clone();
        let Some(mut tables) = copy else { return Ok(()) };
        let (Some((_, have)), wanted) = (tables.root(), tables.root_entries_for(end)) else { return Ok(()) };
        if wanted <= have {
            return Ok(());
        }
        let most = tables.root_entries_for(self.ranges.lock().end());
        let (entries, bytes) = root_size(adapter, (2 * have).clamp(wanted, most.max(wanted)));
        let mut source = Source { adapter, manager, is_paging: false, failed: None };
        let level = manager.caps.mmu.as_ref().map_or(0, |mmu| mmu.levels.len().saturating_sub(1));
        let Some((memory, window)) = source.allocate(level, bytes) else { return Err(source.error()) };
        let give_back = |memory: &TableMemory| {
            if let TableMemory::Segment { id, offset, .. } = memory {
                manager.free_in_segment(*id, *offset);
            }
        };
        let Some((old, updates)) = tables.grow_root(memory.clone(), window, entries) else { return Ok(()) };
        if let Err(error) = self.run(adapter, manager, updates, None) {
            give_back(&memory);
            return Err(error);
        }
        let change = move |space: &Self| drop(space.tables.lock().replace(tables));
        let replaced = match manager.hooks() {
            Some(hooks) => (hooks.replace_root)(adapter, self, Box::new(change)),
            None => {
                change(self);
                true
            }
        };
        if replaced {
            give_back(&old);
            return Ok(());
        }
        give_back(&memory);
        Err(PagingError::Driver(ntstatus::STATUS_NO_MEMORY))
    }
}
