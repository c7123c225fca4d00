//! Page tables that begin anew where they are: memory that they lay in has lost its content.
//!
//! Which entries there are is known from what ranges are used for; of the system's own ranges (fences, logs, paging
//! buffers, windows) what was stored is noted.

use std::sync::Arc;

use wddm_abi::DXGK_PAGETABLEUPDATEMODE;

use super::{AddressSpace, Content, Source, entries};
use crate::memory::Manager;
use crate::memory::page_table::{PageTables, Purpose, Update};
use crate::memory::paging::{Op, Pager, PagingError};
use crate::memory::residency::entries_of;
use crate::memory::va::{PAGE, Use};
use crate::port::miniport::Miniport;
use crate::port::poison;
use crate::port::rules::paging::PAGING_ANEW;

/// A table that the CPU sees: kernel address, bytes.
type Seen = (usize, usize);

impl AddressSpace {
    /// Notes what entries from `address` on are, where they belong to the system.
    pub(super) fn note(&self, address: u64, pages: u64, content: &Content, purpose: Purpose) {
        let is_system = self.ranges.lock().at(address).is_some_and(|(_, range)| matches!(range.used, Use::System));
        if !is_system {
            return;
        }
        let mut noted = self.noted.lock();
        let old: Vec<_> = noted.range(address..address + pages * PAGE).map(|(at, _)| *at).collect();
        for at in old {
            noted.remove(&at);
        }
        if !matches!(content, Content::None) {
            noted.insert(address, (pages, content.clone(), purpose));
        }
    }

    /// What the entries of the space shall be: addresses, pages, content, purpose.
    fn wanted(&self) -> Vec<(u64, u64, Content, Purpose)> {
        let ranges = self.ranges.lock().all();
        let mut wanted = Vec::new();
        for (address, range) in ranges {
            let pages = range.size / PAGE;
            match &range.used {
                Use::System => {
                    let noted = self.noted.lock();
                    let own = noted.range(address..address + range.size);
                    wanted.extend(own.map(|(at, (pages, content, purpose))| (*at, *pages, content.clone(), *purpose)));
                }
                // The driver's own entries are its business.
                Use::Driver => (),
                used => {
                    let (content, purpose) = entries_of(used, pages);
                    wanted.push((address, pages, content, purpose));
                }
            }
        }
        wanted.retain(|(.., content, _)| !matches!(content, Content::None));
        wanted
    }

    /// Stores every entry of every table again, by the paging node, and drops the space's translations. On the paging
    /// worker. Nothing may run in the space.
    pub(crate) fn begin_anew(&self, adapter: &Arc<Miniport>, manager: &Arc<Manager>) -> Result<(), PagingError> {
        let Some(tables) = self.tables.lock().clone() else { return Ok(()) };
        let seen = overwrite(manager, &tables);
        let updates = tables.anew();
        if updates.is_empty() {
            return Ok(());
        }
        let end = self.ranges.lock().end();
        self.run(adapter, manager, updates, Some((0, end)))?;
        for (address, pages, content, purpose) in self.wanted() {
            self.set(adapter, manager, address, pages, &content, purpose)?;
        }
        judge(adapter, &seen);
        Ok(())
    }

    /// The same for the paging process, by the CPU and at once, as when the adapter was initialized. No paging buffer
    /// is with the driver.
    ///
    /// Source: article system-paging-process.
    ///
    /// IRQL: PASSIVE_LEVEL.
    pub(crate) fn begin_anew_by_cpu(&self, adapter: &Arc<Miniport>, manager: &Arc<Manager>) -> Result<(), PagingError> {
        let Some(mut tables) = self.tables.lock().clone() else { return Ok(()) };
        let seen = overwrite(manager, &tables);
        let root_first = adapter.personality().paging_process.root_first;
        let mut updates = if root_first { tables.anew() } else { tables.leaves_first() };
        let (form, coherent) = (adapter.personality().pte_address, adapter.personality().io_coherent);
        let mut source = Source { adapter, manager, is_paging: true, failed: None };
        for (address, pages, content, purpose) in self.wanted() {
            let entries = entries(&manager.caps, form, coherent, &content);
            // Every table of what is noted is there.
            updates.extend(tables.set(address, pages, &entries, purpose, &mut source).unwrap_or_default());
        }
        let mode = DXGK_PAGETABLEUPDATEMODE::DXGK_PAGETABLEUPDATE_CPU_VIRTUAL;
        let op = |update: Update| Op::Update { update, process: self.process(), mode };
        let ops: Vec<_> = updates.into_iter().map(op).collect();
        Pager::run_immediate(adapter, &ops)?;
        judge(adapter, &seen);
        Ok(())
    }
}

/// Fills every table that the CPU sees with a pattern, as if what they lie in had lost its content. Returns which.
fn overwrite(manager: &Manager, tables: &PageTables) -> Vec<Seen> {
    let Some(mmu) = &manager.caps.mmu else { return Vec::new() };
    let mut seen = Vec::new();
    for (memory, level) in tables.places() {
        // A root of two levels has the size that the driver gave it.
        let is_resizable = mmu.levels.len() == 2 && level == 1;
        let bytes = mmu.levels.get(level).map_or(0, |level| level.PageTableSizeInBytes as usize);
        let address = memory.kernel_address();
        if address != 0 && !is_resizable {
            crate::port::raw::copy_to(address, &vec![poison::BYTE; bytes]);
            seen.push((address, bytes));
        }
    }
    seen
}

/// Judges that no entry was left as it was.
fn judge(adapter: &Miniport, seen: &[Seen]) {
    let pattern = [poison::BYTE; 8];
    let left = |(address, bytes): &&Seen| {
        let bytes = crate::port::raw::bytes_at(*address, *bytes);
        bytes.as_chunks::<8>().0.contains(&pattern)
    };
    let left = seen.iter().filter(left).count();
    adapter.rules().check(&PAGING_ANEW, left == 0 || adapter.rules().is_stopped(), || {
        format!("{left} of {} page tables have entries that were not written", seen.len())
    });
}
