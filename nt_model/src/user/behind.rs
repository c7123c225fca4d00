//! Memory that a process keeps at its addresses although what it showed is taken away.

use super::process::{MapError, Process, UserMapping};
use crate::kernel::Machine;
use crate::memory::{PAGE_SIZE, PageKind};

impl Machine {
    /// Takes away what the user mapping that begins at `address` shows, and leaves a copy of it there: user mode reads
    /// what was there last, and what it stores goes nowhere. The copy is the process's own, and goes with it.
    ///
    /// # Errors
    /// [`MapError`]; the mapping is as it was.
    pub fn leave_copy(&self, process: &Process, address: usize) -> Result<(), MapError> {
        let region = self.user_region(process, address)?;
        let pages = region.pages();
        let copy = self.allocate_pages(pages.len(), PageKind::User, 0).ok_or(MapError::Host)?;
        let mut page = vec![0; PAGE_SIZE];
        let filled = pages.iter().enumerate().try_for_each(|(at, (object, index))| {
            object.read(index * PAGE_SIZE, &mut page).and_then(|()| copy.write(at * PAGE_SIZE, &page))
        });
        let mapping = UserMapping::whole(&copy, region.rights);
        let shown = filled.map_err(|_| MapError::Host).and_then(|()| self.remap_user(process, address, &mapping));
        shown.inspect_err(|_| self.free_pages(&copy))
    }
}
