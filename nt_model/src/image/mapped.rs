//! The memory of a loaded image: its pages, and a page or more of stubs for missing imports behind them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::missing::{self, MissingImport, STUB_BYTES};
use super::pe::{LoadError, Section};
use crate::cpu::Site;
use crate::kernel::Machine;
use crate::memory::page_object::CacheType;
use crate::memory::regions::{Backing, PageRun, Purpose, Region};
use crate::memory::{PAGE_SIZE, PageKind, PageObject, Rights, host};

/// Images are placed from here on, far from any preferred base and from where the host places mappings.
const FIRST_BASE: usize = 0x6000_0000_0000;
/// Distance between two tries.
const STRIDE: usize = 64 << 20;

/// Address space and pages of an image.
#[derive(Debug)]
pub(crate) struct MappedImage {
    base: usize,
    bytes: usize,
    stubs: usize,
    stub_bytes: usize,
    object: Arc<PageObject>,
}

impl MappedImage {
    /// Reserves address space at a base that is not `preferred` and allocates the pages.
    pub(super) fn reserve(machine: &Machine, bytes: usize, preferred: u64, imports: usize) -> Result<Self, LoadError> {
        static NEXT: AtomicUsize = AtomicUsize::new(FIRST_BASE);
        let stubs = (imports * STUB_BYTES).next_multiple_of(PAGE_SIZE);
        let room = bytes + stubs;
        let object =
            machine.allocate_pages(bytes.div_ceil(PAGE_SIZE), PageKind::System, 0).ok_or(LoadError::NoMemory)?;
        for _ in 0..1000 {
            let base = NEXT.fetch_add(room.next_multiple_of(STRIDE), Ordering::Relaxed);
            if base as u64 != preferred && host::reserve_at(base, room).is_ok() {
                let image = Self { base, bytes, stubs: base + bytes, stub_bytes: stubs, object };
                if stubs != 0 {
                    host::commit(image.stubs, stubs, Rights::ReadWrite).map_err(|_| LoadError::NoMemory)?;
                }
                image.enter(machine);
                return Ok(image);
            }
        }
        Err(LoadError::NoMemory)
    }

    fn enter(&self, machine: &Machine) {
        machine.memory.regions.insert(Region {
            start: self.base,
            bytes: self.bytes,
            backing: Backing::Pages(vec![PageRun {
                object: self.object.clone(),
                first: 0,
                count: self.object.pages(),
            }]),
            purpose: Purpose::Model,
            rights: Rights::ReadWrite,
            cache: CacheType::Cached,
            site: Site::NONE,
        });
    }

    pub(crate) fn base(&self) -> usize {
        self.base
    }

    /// Writes the stub of missing import number `index`; returns its address.
    pub(super) fn write_stub(&self, index: usize, record: &MissingImport) -> usize {
        let at = self.stubs + index * STUB_BYTES;
        host::write(at, &missing::stub(record));
        at
    }

    /// Maps the pages, copies the laid-out image in, and gives each section its rights.
    pub(super) fn fill(&self, memory: &[u8], sections: &[Section]) -> Result<(), LoadError> {
        let failed = |_| LoadError::NoMemory;
        let pages = self.object.pages();
        self.object.map_over(self.base, 0, pages, Rights::ReadWrite).map_err(failed)?;
        host::write(self.base, memory);
        host::protect(self.base, self.bytes, Rights::Read).map_err(failed)?;
        for section in sections {
            let rights = match (section.is_executable(), section.is_writable()) {
                (true, _) => Rights::ReadExecute,
                (false, true) => Rights::ReadWrite,
                (false, false) => Rights::Read,
            };
            let bytes = (section.size as usize).next_multiple_of(PAGE_SIZE);
            if bytes != 0 {
                host::protect(self.base + section.rva as usize, bytes, rights).map_err(failed)?;
            }
        }
        if self.stub_bytes != 0 {
            host::protect(self.stubs, self.stub_bytes, Rights::ReadExecute).map_err(failed)?;
        }
        Ok(())
    }

    /// Takes the image out of the address space and frees its pages.
    pub(crate) fn unmap(&self, machine: &Machine) {
        machine.memory.regions.remove(self.base);
        host::unmap(self.base, self.bytes + self.stub_bytes);
        machine.memory.physical.free(&self.object);
    }
}
