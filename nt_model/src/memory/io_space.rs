//! `MmMapIoSpace`: device registers and memory on devices.

use std::sync::Arc;

use super::page_object::CacheType;
use super::physical::Frame;
use super::regions::{self, Backing, Purpose, Region};
use super::{PAGE_SIZE, Rights, host};
use crate::cpu::Site;
use crate::kernel::Machine;
use crate::routines;
use crate::rules::Details;
use crate::rules_memory::{NT_IO_RAM, NT_IO_UNKNOWN, NT_UNMAP};

impl Machine {
    /// Maps a range of physical addresses that a device answers.
    ///
    /// Registers become a range whose every access goes to the device model; memory on a device is mapped like RAM. RAM
    /// breaks NT-IO-RAM, nothing breaks NT-IO-UNKNOWN; both return `None`.
    ///
    /// IRQL: at most DISPATCH_LEVEL.
    #[doc(alias = "MmMapIoSpace")]
    #[doc(alias = "MmMapIoSpaceEx")]
    #[track_caller]
    pub fn map_io_space(&self, physical: u64, bytes: usize, cache: CacheType) -> Option<usize> {
        // CAST: printed only.
        let _service = self.service(&routines::MM_MAP_IO_SPACE, [physical, bytes as u64, cache as u64]);
        if bytes == 0 || self.memory.must_fail() {
            return None;
        }
        let first = physical / PAGE_SIZE as u64;
        // CAST: the remainder of a division by the page size.
        let offset = (physical % PAGE_SIZE as u64) as usize;
        let count = (offset + bytes).div_ceil(PAGE_SIZE);
        let frames: Vec<_> = (0..count as u64).map(|at| self.memory.physical.frame(first + at)).collect();
        let ram =
            frames.iter().position(|frame| matches!(frame, Some(Frame::Page(object, _)) if object.kind().is_ram()));
        let device = self.rules.check(&NT_IO_RAM, ram.is_none(), || {
            let frame = first + ram.unwrap_or_default() as u64;
            let text = format!("physical address {:#x} is RAM", frame * PAGE_SIZE as u64);
            Details::new(text).params([physical, bytes as u64, frame])
        });
        let hole = frames.iter().position(Option::is_none);
        let known = self.rules.check(&NT_IO_UNKNOWN, hole.is_none(), || {
            let frame = first + hole.unwrap_or_default() as u64;
            Details::new(format!("nothing answers physical address {:#x}", frame * PAGE_SIZE as u64))
        });
        if !device || !known {
            return None;
        }
        let (backing, rights) = backing_of(frames.into_iter().flatten().collect())?;
        let start = match &backing {
            Backing::Pages(runs) => regions::map_runs(runs, rights).ok()?,
            _ => host::reserve(count * PAGE_SIZE).ok()?,
        };
        let bytes = count * PAGE_SIZE;
        let region = Region { start, bytes, backing, purpose: Purpose::IoSpace, rights, cache, site: Site::here() };
        self.count_mappings(&region);
        self.memory.regions.insert(region);
        Some(start + offset)
    }

    /// Removes a mapping of [`map_io_space`](Self::map_io_space).
    ///
    /// IRQL: at most DISPATCH_LEVEL.
    #[doc(alias = "MmUnmapIoSpace")]
    #[track_caller]
    pub fn unmap_io_space(&self, address: usize, bytes: usize) {
        let _service = self.service(&routines::MM_UNMAP_IO_SPACE, [address as u64, bytes as u64]);
        let region = self.memory.regions.at(address - address % PAGE_SIZE);
        let whole = (address % PAGE_SIZE + bytes).next_multiple_of(PAGE_SIZE);
        let good = region.as_ref().is_some_and(|r| r.purpose == Purpose::IoSpace && r.bytes == whole);
        self.rules.check(&NT_UNMAP, good, || {
            Details::new(match &region {
                Some(region) => format!("{region:?} is not what was mapped: {bytes:#x} bytes of I/O space"),
                None => format!("no I/O space is mapped at {address:#x}"),
            })
            .params([address as u64, bytes as u64, 0])
        });
        if region.is_some_and(|region| region.purpose == Purpose::IoSpace) {
            self.remove_mapping_at(address);
        }
    }
}

/// One backing for a run of frames of one device. `None`: registers and memory mixed.
fn backing_of(frames: Vec<Frame>) -> Option<(Backing, Rights)> {
    if let Some(Frame::Register(range, offset)) = frames.first() {
        let (range, offset) = (range.clone(), *offset);
        let same = |frame: &Frame| matches!(frame, Frame::Register(other, _) if Arc::ptr_eq(other, &range));
        return frames.iter().all(same).then_some((Backing::Registers(range, offset), Rights::None));
    }
    let pages = frames.into_iter().map(|frame| match frame {
        Frame::Page(object, index) => Some((object, index)),
        Frame::Register(..) => None,
    });
    Some((Backing::Pages(regions::merge(pages.collect::<Option<Vec<_>>>()?)), Rights::ReadWrite))
}
