//! MDLs: allocated, described, locked, unlocked, freed. Mapping them is in [`super::mapping`].

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;

use super::page_object::{CacheType, PageKind, PageObject, PageRequest};
use super::physical::Frame;
use super::regions::{Backing, Purpose};
use super::{PAGE_SIZE, Rights, host};
use crate::cpu::Site;
use crate::kernel::Machine;
use crate::pool::PoolUse;
use crate::records::{
    MDL, MDL_IO_SPACE, MDL_MAPPED_TO_SYSTEM_VA, MDL_PAGES_LOCKED, MDL_PARTIAL, MDL_SOURCE_IS_NONPAGED_POOL,
    MDL_WRITE_OPERATION,
};
use crate::routines::{self, Routine};
use crate::rules::Details;
use crate::rules_memory::{NT_MDL_FRAME, NT_MDL_PAGED, NT_MDL_PROBE, NT_MDL_SHAPE, NT_MDL_STATE};

/// Tag of MDLs that the model allocates.
const MDL_TAG: u32 = u32::from_le_bytes(*b"Mdl ");
/// Largest buffer that an MDL describes: 4 GiB less a page.
const MAX_BYTES: usize = 0xFFFF_F000;

/// An MDL in driver memory, by its address: the header and the frame numbers behind it.
///
/// Made from the reference that a driver passed, or returned by an allocation. It says nothing about lifetime: as with
/// the pointer it stands for, use it only until the MDL is freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Mdl(usize);

/// One MDL that `IoAllocateMdl` or `MmAllocatePagesForMdlEx` made.
#[derive(Clone, Debug)]
pub(crate) struct MdlRecord {
    /// The pages, for `MmAllocatePagesForMdlEx`, until they are freed.
    pub(crate) pages: Option<Arc<PageObject>>,
}

/// The MDLs that the model made.
#[derive(Debug, Default)]
pub(crate) struct MdlTable {
    map: Mutex<HashMap<usize, MdlRecord>>,
}

impl MdlTable {
    pub(crate) fn remove(&self, address: usize) -> Option<MdlRecord> {
        self.map.lock().remove(&address)
    }
}

impl Mdl {
    /// The MDL that begins with `header`; its frame numbers follow it in memory.
    pub fn of(header: &MDL) -> Self {
        Self(core::ptr::from_ref(header).expose_provenance())
    }

    /// Address.
    pub fn address(self) -> usize {
        self.0
    }

    /// The header.
    pub fn header<'a>(self) -> &'a MDL {
        super::mdl_header::at(self.0)
    }

    /// Pages that the described buffer spans.
    pub fn pages(self) -> usize {
        let header = self.header();
        let bytes = header.byte_count.load(Ordering::Relaxed) as usize;
        let offset = header.byte_offset.load(Ordering::Relaxed) as usize;
        (offset + bytes).div_ceil(PAGE_SIZE)
    }

    /// `MmGetMdlVirtualAddress`: start of the described buffer.
    pub fn virtual_address(self) -> usize {
        let header = self.header();
        header.start_va.load(Ordering::Relaxed) + header.byte_offset.load(Ordering::Relaxed) as usize
    }

    /// `MmGetMdlByteCount`.
    pub fn byte_count(self) -> usize {
        self.header().byte_count.load(Ordering::Relaxed) as usize
    }

    /// The page frame numbers (`MmGetMdlPfnArray`).
    pub fn frames(self) -> Vec<u64> {
        let mut bytes = vec![0; self.pages() * 8];
        host::read(self.0 + size_of::<MDL>(), &mut bytes);
        bytes.chunks_exact(8).map(|chunk| u64::from_le_bytes(chunk.try_into().unwrap_or_default())).collect()
    }

    /// Writes the page frame numbers. The MDL must have been allocated for so many.
    pub fn set_frames(self, frames: &[u64]) {
        let bytes: Vec<u8> = frames.iter().flat_map(|frame| frame.to_le_bytes()).collect();
        host::write(self.0 + size_of::<MDL>(), &bytes);
    }

    pub(crate) fn flags(self) -> u16 {
        self.header().flags.load(Ordering::Relaxed)
    }

    fn add_flags(self, flags: u16) {
        self.header().flags.fetch_or(flags, Ordering::Relaxed);
    }

    pub(crate) fn remove_flags(self, flags: u16) {
        self.header().flags.fetch_and(!flags, Ordering::Relaxed);
    }
}

/// What `MmProbeAndLockPages` is to allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockOperation {
    /// `IoReadAccess`: the device reads.
    Read,
    /// `IoWriteAccess` or `IoModifyAccess`: the device writes.
    Write,
}

fn state(mdl: Mdl, what: &str) -> Details {
    Details::new(format!("{what} (flags {:#x}): MDL {:#x}", mdl.flags(), mdl.address())).params([
        mdl.address() as u64,
        mdl.flags().into(),
        0,
    ])
}

impl Machine {
    /// Allocates an MDL for `bytes` bytes at `address`. Its frame numbers are not filled in.
    ///
    /// IRQL: at most DISPATCH_LEVEL.
    #[doc(alias = "IoAllocateMdl")]
    #[track_caller]
    pub fn allocate_mdl(&self, address: usize, bytes: usize) -> Option<Mdl> {
        let _service = self.service(&routines::IO_ALLOCATE_MDL, [address as u64, bytes as u64]);
        if bytes > MAX_BYTES || self.memory.must_fail() {
            return None;
        }
        self.new_mdl(address, bytes, PoolUse::Service("an MDL"))
    }

    fn new_mdl(&self, address: usize, bytes: usize, used_as: PoolUse) -> Option<Mdl> {
        let offset = address % PAGE_SIZE;
        let pages = (offset + bytes).div_ceil(PAGE_SIZE);
        let size = size_of::<MDL>() + 8 * pages;
        let mdl = Mdl(self.pool.allocate(&self.memory, size, MDL_TAG, false, 0, used_as)?);
        let header = mdl.header();
        // CAST: wraps as on Windows for MDLs of more than 4,000 pages; nobody reads it then.
        header.size.store(size as i16, Ordering::Relaxed);
        header.start_va.store(address - offset, Ordering::Relaxed);
        // CAST: at most MAX_BYTES, and below a page.
        header.byte_count.store(bytes as u32, Ordering::Relaxed);
        header.byte_offset.store(offset as u32, Ordering::Relaxed);
        self.memory.mdls.map.lock().insert(mdl.0, MdlRecord { pages: None });
        Some(mdl)
    }

    /// Frees an MDL of [`allocate_mdl`](Self::allocate_mdl), removing its system mapping as `IoFreeMdl` does for
    /// partial ones only: any other mapping that is left breaks NT-MDL-STATE.
    ///
    /// IRQL: at most DISPATCH_LEVEL.
    #[doc(alias = "IoFreeMdl")]
    #[track_caller]
    pub fn free_mdl(&self, mdl: Mdl) {
        let _service = self.service(&routines::IO_FREE_MDL, [mdl.address() as u64]);
        let known = matches!(self.pool.used_as(mdl.address()), Some(PoolUse::Service(_) | PoolUse::PagesMdl));
        let text = || state_of_unknown(mdl, "was not allocated by IoAllocateMdl, or is freed already");
        if !self.rules.check(&NT_MDL_SHAPE, known, text) {
            return;
        }
        let flags = mdl.flags();
        let nonpaged = flags & MDL_SOURCE_IS_NONPAGED_POOL != 0;
        let mapped = flags & MDL_MAPPED_TO_SYSTEM_VA != 0 && !nonpaged && flags & MDL_PARTIAL == 0;
        self.rules.check(&NT_MDL_STATE, !mapped, || state(mdl, "freed while it is mapped").param1(0xB8));
        let owned = self.memory.mdls.map.lock().get(&mdl.address()).is_some_and(|record| record.pages.is_some());
        let locked = flags & MDL_PAGES_LOCKED != 0 && flags & MDL_PARTIAL == 0 && !owned && self.counts_locks(mdl);
        self.rules.check(&NT_MDL_STATE, !locked, || state(mdl, "freed while its pages are locked").param1(0xB8));
        self.memory.mdls.remove(mdl.address());
        self.release_pool(mdl.address());
    }

    /// Whether the pages of an MDL with `MDL_PAGES_LOCKED` carry locks that `MmUnlockPages` must drop. A self-built MDL
    /// over pages that are resident anyway has none.
    fn counts_locks(&self, mdl: Mdl) -> bool {
        mdl.frames().iter().any(|frame| {
            self.page_of_frame(*frame).is_some_and(|(object, index)| {
                !object.kind().is_resident() && object.state(index).locks.load(Ordering::Relaxed) != 0
            })
        })
    }

    /// Fills in the frame numbers of non-paged memory.
    ///
    /// IRQL: at most DISPATCH_LEVEL.
    #[doc(alias = "MmBuildMdlForNonPagedPool")]
    #[track_caller]
    pub fn build_mdl_for_nonpaged(&self, mdl: Mdl) {
        let _service = self.service(&routines::MM_BUILD_MDL_FOR_NON_PAGED_POOL, [mdl.address() as u64]);
        let flags = mdl.flags();
        let fresh = flags & (MDL_PAGES_LOCKED | MDL_MAPPED_TO_SYSTEM_VA | MDL_PARTIAL | MDL_SOURCE_IS_NONPAGED_POOL);
        self.rules.check(&NT_MDL_STATE, fresh == 0, || state(mdl, "built twice, or over locked pages"));
        let Some(frames) = self.frames_of_buffer(mdl, |kind| kind.is_resident()) else { return };
        mdl.set_frames(&frames);
        mdl.header().mapped_system_va.store(mdl.virtual_address(), Ordering::Relaxed);
        mdl.add_flags(MDL_SOURCE_IS_NONPAGED_POOL);
    }

    /// Frame numbers behind an MDL's buffer, if all of it is memory of an allowed kind.
    fn frames_of_buffer(&self, mdl: Mdl, allowed: impl Fn(PageKind) -> bool) -> Option<Vec<u64>> {
        let start = mdl.header().start_va.load(Ordering::Relaxed);
        let mut frames = Vec::with_capacity(mdl.pages());
        let mut bad = None;
        for page in 0..mdl.pages() {
            let address = start + page * PAGE_SIZE;
            match self.page_at(address) {
                Some((object, index, _)) if allowed(object.kind()) => frames.push(object.frame(index)),
                other => bad = bad.or(Some((address, other.map(|(object, ..)| object.kind())))),
            }
        }
        self.rules.check(&NT_MDL_PAGED, bad.is_none(), || {
            let (address, kind) = bad.unwrap_or_default();
            let what = kind.map_or("no memory of this machine".to_owned(), |kind| format!("{kind:?} memory"));
            Details::new(format!("{address:#x} is {what}")).params([
                self.irql().into(),
                mdl.address() as u64,
                mdl.flags().into(),
            ])
        });
        bad.is_none().then_some(frames)
    }

    /// Locks the pages of a buffer in memory and fills in their frame numbers.
    ///
    /// IRQL: at most DISPATCH_LEVEL (for memory that may be paged, at most APC_LEVEL).
    ///
    /// Returns false, with NT-MDL-PROBE broken, where Windows raises an exception.
    #[doc(alias = "MmProbeAndLockPages")]
    #[track_caller]
    pub fn probe_and_lock(&self, mdl: Mdl, user_mode: bool, operation: LockOperation) -> bool {
        let arguments = [mdl.address() as u64, user_mode.into(), u64::from(operation == LockOperation::Write)];
        let _service = self.service(&routines::MM_PROBE_AND_LOCK_PAGES, arguments);
        let wrong = mdl.flags() & (MDL_PAGES_LOCKED | MDL_SOURCE_IS_NONPAGED_POOL | MDL_PARTIAL | MDL_IO_SPACE);
        let text = || state(mdl, "locked, or built for non-paged pool, already").param1(0xB0);
        if !self.rules.check(&NT_MDL_STATE, wrong == 0, text) {
            return false;
        }
        let start = mdl.header().start_va.load(Ordering::Relaxed);
        let mut pages = Vec::with_capacity(mdl.pages());
        let mut bad = None;
        for page in 0..mdl.pages() {
            let address = start + page * PAGE_SIZE;
            match self.probe(address, user_mode, operation) {
                Some(found) => pages.push(found),
                None => bad = bad.or(Some(address)),
            }
        }
        let accessible = self.rules.check(&NT_MDL_PROBE, bad.is_none(), || {
            let mode = if user_mode { "user" } else { "kernel" };
            Details::new(format!("{:#x} is not accessible for {operation:?} in {mode} mode", bad.unwrap_or_default()))
        });
        if !accessible {
            return false;
        }
        for (object, index) in &pages {
            object.lock_page(*index);
        }
        let frames: Vec<_> = pages.iter().map(|(object, index)| object.frame(*index)).collect();
        mdl.set_frames(&frames);
        let write = if operation == LockOperation::Write { MDL_WRITE_OPERATION } else { 0 };
        mdl.add_flags(MDL_PAGES_LOCKED | write);
        mdl.header().process.store(crate::cpu::with(|cpu| cpu.process.get()) as usize, Ordering::Relaxed);
        true
    }

    fn probe(&self, address: usize, user_mode: bool, operation: LockOperation) -> Option<(Arc<PageObject>, usize)> {
        let region = self.memory.regions.find(address)?;
        let is_user = matches!(region.purpose, Purpose::Process(_));
        let writable = region.rights == Rights::ReadWrite;
        if user_mode && !is_user || operation == LockOperation::Write && !writable {
            return None;
        }
        region.page(address).map(|(object, index, _)| (object, index))
    }

    /// Unlocks what [`probe_and_lock`](Self::probe_and_lock) locked, removing the system mapping if there is one.
    ///
    /// IRQL: at most DISPATCH_LEVEL.
    #[doc(alias = "MmUnlockPages")]
    #[track_caller]
    pub fn unlock_pages(&self, mdl: Mdl) {
        let _service = self.service(&routines::MM_UNLOCK_PAGES, [mdl.address() as u64]);
        let flags = mdl.flags();
        let locked = flags & MDL_PAGES_LOCKED != 0 && flags & (MDL_SOURCE_IS_NONPAGED_POOL | MDL_PARTIAL) == 0;
        let text = || {
            let param1 = if flags & MDL_SOURCE_IS_NONPAGED_POOL != 0 { 0x7D } else { 0x7C };
            state(mdl, "unlocked, but never locked").param1(param1)
        };
        if !self.rules.check(&NT_MDL_STATE, locked, text) {
            return;
        }
        if flags & MDL_MAPPED_TO_SYSTEM_VA != 0 {
            let address = mdl.header().mapped_system_va.load(Ordering::Relaxed);
            self.remove_mapping_at(address);
        }
        for frame in mdl.frames() {
            if let Some((object, index)) = self.page_of_frame(frame) {
                object.unlock_page(index);
            }
        }
        mdl.remove_flags(MDL_PAGES_LOCKED | MDL_MAPPED_TO_SYSTEM_VA | MDL_WRITE_OPERATION);
    }

    /// Allocates pages that are not mapped, described by an MDL. The frames are not consecutive.
    ///
    /// `zero`: ignored, pages are always zeroed. `fully`: all of `bytes` or nothing (`MM_ALLOCATE_FULLY_REQUIRED`);
    /// without it fewer pages may come. The pages are freed by [`free_pages_from_mdl`](Self::free_pages_from_mdl), the
    /// MDL itself by `ExFreePool`.
    ///
    /// IRQL: at most DISPATCH_LEVEL.
    #[doc(alias = "MmAllocatePagesForMdlEx")]
    #[track_caller]
    pub fn allocate_pages_for_mdl(
        &self,
        limits: std::ops::RangeInclusive<u64>,
        bytes: usize,
        cache: CacheType,
        fully: bool,
    ) -> Option<Mdl> {
        // CAST: printed only.
        let arguments = [*limits.start(), *limits.end(), 0, bytes as u64, cache as u64, u64::from(fully) * 4];
        let _service = self.service(&routines::MM_ALLOCATE_PAGES_FOR_MDL_EX, arguments);
        if bytes == 0 || bytes > MAX_BYTES || self.memory.must_fail() {
            return None;
        }
        let mut pages = bytes.div_ceil(PAGE_SIZE);
        if !fully {
            pages = pages.min(usize::try_from(self.memory.physical.free_pages()).unwrap_or(pages));
        }
        let object = self.memory.physical.allocate(&PageRequest {
            pages,
            kind: PageKind::MdlPages,
            contiguous: false,
            highest: *limits.end(),
            lowest: *limits.start(),
            cache: Some(cache),
            read_only: false,
            tag: 0,
            site: Site::here(),
            fixed: None,
        })?;
        let Some(mdl) = self.new_mdl(0, pages * PAGE_SIZE, PoolUse::PagesMdl) else {
            self.memory.physical.free(&object);
            return None;
        };
        mdl.set_frames(&object.frames());
        mdl.add_flags(MDL_PAGES_LOCKED);
        if let Some(record) = self.memory.mdls.map.lock().get_mut(&mdl.address()) {
            record.pages = Some(object);
        }
        Some(mdl)
    }

    /// Frees the pages of an MDL of [`allocate_pages_for_mdl`](Self::allocate_pages_for_mdl), not the MDL.
    ///
    /// IRQL: at most DISPATCH_LEVEL.
    #[doc(alias = "MmFreePagesFromMdl")]
    #[track_caller]
    pub fn free_pages_from_mdl(&self, mdl: Mdl) {
        let _service = self.service(&routines::MM_FREE_PAGES_FROM_MDL, [mdl.address() as u64]);
        let pages = self.memory.mdls.map.lock().get_mut(&mdl.address()).and_then(|record| record.pages.take());
        let text = || state_of_unknown(mdl, "has no pages of MmAllocatePagesForMdlEx (any more)");
        self.rules.check(&NT_MDL_STATE, pages.is_some(), text);
        let Some(object) = pages else { return };
        self.check_unmapped(&object, 0);
        self.memory.physical.free(&object);
        mdl.remove_flags(MDL_PAGES_LOCKED);
    }

    /// Describes part of `source` by `target`, which was allocated large enough.
    ///
    /// IRQL: at most DISPATCH_LEVEL.
    #[doc(alias = "IoBuildPartialMdl")]
    #[track_caller]
    pub fn build_partial_mdl(&self, source: Mdl, target: Mdl, address: usize, bytes: usize) {
        let arguments = [source.address() as u64, target.address() as u64, address as u64, bytes as u64];
        let _service = self.service(&routines::IO_BUILD_PARTIAL_MDL, arguments);
        let start = source.virtual_address();
        let end = start + source.byte_count();
        let bytes = if bytes == 0 { end.saturating_sub(address) } else { bytes };
        let inside = address >= start && address + bytes <= end;
        if !self.rules.check(&NT_MDL_SHAPE, inside, || state(source, "does not contain the part asked for")) {
            return;
        }
        let offset = address % PAGE_SIZE;
        let header = target.header();
        header.start_va.store(address - offset, Ordering::Relaxed);
        // CAST: below a page; at most the source's byte count.
        header.byte_offset.store(offset as u32, Ordering::Relaxed);
        header.byte_count.store(bytes as u32, Ordering::Relaxed);
        header.process.store(source.header().process.load(Ordering::Relaxed), Ordering::Relaxed);
        let first = (address - offset - source.header().start_va.load(Ordering::Relaxed)) / PAGE_SIZE;
        let frames = source.frames();
        target.set_frames(frames.get(first..first + target.pages()).unwrap_or_default());
        let inherited = source.flags() & (MDL_PAGES_LOCKED | MDL_SOURCE_IS_NONPAGED_POOL | MDL_IO_SPACE);
        target.add_flags(MDL_PARTIAL | inherited);
        if source.flags() & (MDL_SOURCE_IS_NONPAGED_POOL | MDL_MAPPED_TO_SYSTEM_VA) != 0 {
            let mapped = source.header().mapped_system_va.load(Ordering::Relaxed) + (address - start);
            header.mapped_system_va.store(mapped, Ordering::Relaxed);
            target.add_flags(MDL_MAPPED_TO_SYSTEM_VA);
        }
    }

    /// The pages behind an MDL's frames, or `None` with NT-MDL-FRAME broken.
    pub(crate) fn pages_of_mdl(&self, routine: &'static Routine, mdl: Mdl) -> Option<Vec<(Arc<PageObject>, usize)>> {
        let frames = mdl.frames();
        let mut pages = Vec::with_capacity(frames.len());
        let mut bad = None;
        for (at, frame) in frames.iter().enumerate() {
            match self.memory.physical.frame(*frame) {
                Some(Frame::Page(object, index)) => pages.push((object, index)),
                _ => bad = bad.or(Some((at, *frame))),
            }
        }
        let allowed = bad.is_none();
        self.rules.check(&NT_MDL_FRAME, allowed, || {
            let (at, frame) = bad.unwrap_or_default();
            let text = format!("{}: frame number {at}, {frame:#x}, is no allocated RAM", routine.name);
            Details::new(text).params([mdl.address() as u64, at as u64, frame])
        });
        allowed.then_some(pages)
    }

    /// Whether a header can be an MDL at all.
    pub(crate) fn check_mdl_shape(&self, mdl: Mdl) -> bool {
        let header = mdl.header();
        let start = header.start_va.load(Ordering::Relaxed);
        let offset = header.byte_offset.load(Ordering::Relaxed) as usize;
        let good =
            start.is_multiple_of(PAGE_SIZE) && offset < PAGE_SIZE && header.byte_count.load(Ordering::Relaxed) != 0;
        self.rules.check(&NT_MDL_SHAPE, good, || {
            Details::new(format!(
                "start {start:#x}, offset {offset:#x}, {} bytes",
                header.byte_count.load(Ordering::Relaxed)
            ))
            .params([mdl.address() as u64, 0, 0])
        })
    }

    /// Device registers behind an MDL with `MDL_IO_SPACE`, if that is what its first frame is.
    pub(crate) fn registers_of_mdl(&self, mdl: Mdl) -> Option<Backing> {
        match self.memory.physical.frame(*mdl.frames().first()?)? {
            Frame::Register(range, offset) => Some(Backing::Registers(range, offset)),
            Frame::Page(..) => None,
        }
    }
}

fn state_of_unknown(mdl: Mdl, what: &str) -> Details {
    // Without the flags: the header may be gone.
    Details::new(format!("the MDL at {:#x} {what}", mdl.address())).params([mdl.address() as u64, 0, 0])
}
