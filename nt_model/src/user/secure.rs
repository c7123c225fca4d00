//! Memory of a process that it cannot free while the kernel uses it.
//!
//! Source: DDI page MmSecureVirtualMemory. Chosen: what [`Machine::allocate_user`] and VirtualAlloc made, as a whole;
//! where a process ends, the pages stay until they are let go of.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::process::{MapError, Process};
use crate::kernel::Machine;
use crate::memory::regions::Purpose;
use crate::memory::{PAGE_SIZE, PageObject, Rights};

/// What pages are labelled with that a process has allocated for itself, as opposed to those that are shown to it.
pub(crate) const PRIVATE_MEMORY: u32 = u32::from_le_bytes(*b"VadS");

/// What counts how often pages are secured says this while the process frees them.
pub(super) const FREED: u32 = u32::MAX;

/// Pages of a process's own.
#[derive(Clone, Debug)]
pub struct Secured {
    /// Whose pages.
    pub object: Arc<PageObject>,
    /// The first of them.
    pub first: usize,
}

impl Machine {
    /// Keeps `process` from freeing the memory that `pages` pages from `address` on are part of. Nests; undone by
    /// [`unsecure`](Self::unsecure).
    ///
    /// # Errors
    /// [`MapError::NotMapped`] where the process has no memory, or none that it may write; [`MapError::Range`] for an
    /// address within a page, and for pages that are not all of one allocation of the process's own: what the kernel
    /// shows to a process may be somewhere else at any time.
    #[doc(alias = "MmSecureVirtualMemory")]
    pub fn secure_user(&self, process: &Process, address: usize, pages: usize) -> Result<Secured, MapError> {
        let bytes = pages.checked_mul(PAGE_SIZE).filter(|bytes| *bytes != 0).ok_or(MapError::Range)?;
        let end = address.checked_add(bytes).ok_or(MapError::Range)?;
        if !address.is_multiple_of(PAGE_SIZE) {
            return Err(MapError::Range);
        }
        let region = self.memory.regions.find(address).ok_or(MapError::NotMapped)?;
        if region.purpose != Purpose::Process(process.id()) || region.rights != Rights::ReadWrite {
            return Err(MapError::NotMapped);
        }
        let (object, first, _) = region.page(address).ok_or(MapError::NotMapped)?;
        if object.tag() != PRIVATE_MEMORY || end > region.range().end {
            return Err(MapError::Range);
        }
        let more = |count| (count != FREED).then_some(count + 1);
        object.secured.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).map_err(|_| MapError::NotMapped)?;
        Ok(Secured { object, first })
    }

    /// Undoes one [`secure_user`](Self::secure_user). Pages whose process has ended are freed with the last.
    #[doc(alias = "MmUnsecureVirtualMemory")]
    pub fn unsecure(&self, object: &Arc<PageObject>) {
        let was_last = object.secured.fetch_sub(1, Ordering::AcqRel) == 1;
        if was_last && (0..object.pages()).all(|index| object.mappings(index) == 0) {
            self.memory.physical.free(object);
        }
    }
}
