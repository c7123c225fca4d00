//! Judgements of page tables, segments, and where fences and doorbells lie.

use nt_model::Rule;
use wddm_abi::{
    DXGK_MAX_DOORBELL_SIZE_BYTES, DXGK_MAX_PAGE_TABLE_LEVEL_COUNT, DXGK_PAGE_TABLE_LEVEL_DESC, DXGK_PAGETABLEUPDATEMODE,
};

use super::Verdict;
use crate::port::caps::{Caps, Mmu, Segment};
use crate::port::rules::caps as rule;

/// Most bytes of a page table in system memory that the model makes.
const MOST_TABLE_BYTES: u32 = 1 << 20;

/// The tables of each level, in words.
fn tables(mmu: &Mmu) -> String {
    let level = |(index, level): (usize, &DXGK_PAGE_TABLE_LEVEL_DESC)| {
        let (bits, bytes) = (level.PageTableIndexBitCount, level.PageTableSizeInBytes);
        let (own, paging) = (level.PageTableSegmentId, level.PagingProcessPageTableSegmentId);
        format!("level {index}: {bits} bits, {bytes} bytes in segment {own}, the paging process's in {paging}")
    };
    mmu.levels.iter().enumerate().map(level).collect::<Vec<_>>().join("; ")
}

/// Returns whether the model has page tables for a driver that breaks this rule: in system memory under another number
/// than 0, and of several pages there, which follow each other then.
pub(super) fn has_tables_all_the_same(caps: &Caps, broken: &Rule) -> bool {
    let mut levels = caps.mmu.iter().flat_map(|mmu| &mmu.levels);
    if std::ptr::eq(broken, &rule::MMU_TABLE_SEGMENT) {
        levels.all(|level| {
            let is_local = |id| caps.segment(id).is_some_and(|segment| !segment.is_aperture());
            let is_memory = |id| caps.is_system_memory(id) || is_local(id);
            is_memory(level.PageTableSegmentId) && is_memory(level.PagingProcessPageTableSegmentId)
        })
    } else if std::ptr::eq(broken, &rule::MMU_TABLE_SIZE) {
        levels.all(|level| {
            let bytes = level.PageTableSizeInBytes;
            bytes != 0 && bytes.is_multiple_of(4096) && bytes <= MOST_TABLE_BYTES
        })
    } else {
        false
    }
}

pub(super) fn judge_mmu(caps: &Caps, mmu: &Mmu) -> Vec<Verdict> {
    let count = mmu.caps.PageTableLevelCount;
    let bits = 12 + mmu.levels.iter().map(|level| level.PageTableIndexBitCount).sum::<u32>();
    let whole = (2..=DXGK_MAX_PAGE_TABLE_LEVEL_COUNT).contains(&count) && mmu.levels.len() == count as usize;
    // The root of two levels is resizable, so that its bits are only where it begins.
    let bits_agree = count == 2 || bits == mmu.caps.VirtualAddressBitCount;
    let resizable_root = |index: usize| count == 2 && index == 1;
    let is_memory = |id: u32| id == 0 || caps.segment(id).is_some_and(|segment| !segment.is_aperture());
    let mut sizes = true;
    let mut segments = true;
    let mut directories_local = false;
    let mut seen = true;
    let is_seen = |id: u32| {
        caps.is_system_memory(id) || caps.segment(id).is_none_or(|segment| segment.descriptor.Flags.CpuVisible())
    };
    for (index, level) in mmu.levels.iter().enumerate() {
        let in_system = [level.PageTableSegmentId, level.PagingProcessPageTableSegmentId];
        let in_system = in_system.into_iter().any(|id| caps.is_system_memory(id));
        let fixed = !resizable_root(index);
        sizes &= level.PageTableSizeInBytes.is_multiple_of(4096);
        sizes &= !fixed || level.PageTableSizeInBytes != 0;
        sizes &= !(in_system && fixed) || level.PageTableSizeInBytes == 4096;
        segments &= is_memory(level.PageTableSegmentId) && is_memory(level.PagingProcessPageTableSegmentId);
        seen &= is_seen(level.PagingProcessPageTableSegmentId);
        directories_local |= index > 0 && !caps.is_system_memory(level.PageTableSegmentId);
    }
    let mode = mmu.update_mode();
    let known = matches!(
        mode,
        DXGK_PAGETABLEUPDATEMODE::DXGK_PAGETABLEUPDATE_CPU_VIRTUAL
            | DXGK_PAGETABLEUPDATEMODE::DXGK_PAGETABLEUPDATE_GPU_VIRTUAL
            | DXGK_PAGETABLEUPDATEMODE::DXGK_PAGETABLEUPDATE_GPU_PHYSICAL
    );
    let cpu = mode == DXGK_PAGETABLEUPDATEMODE::DXGK_PAGETABLEUPDATE_CPU_VIRTUAL;
    let leaf = mmu.caps.LeafPageTableSizeFor64KPagesInBytes;
    vec![
        (
            &rule::MMU_LEVELS,
            whole && bits_agree,
            format!(
                "{count} levels, {} described, {bits} bits of {}",
                mmu.levels.len(),
                mmu.caps.VirtualAddressBitCount
            ),
        ),
        (&rule::MMU_TABLE_SIZE, sizes, tables(mmu)),
        (&rule::MMU_TABLE_SEGMENT, segments, tables(mmu)),
        (&rule::MMU_TABLE_CPU, seen, tables(mmu)),
        (
            &rule::MMU_UPDATE_MODE,
            known && !(cpu && directories_local),
            format!(
                "{mode:?}, page directories {}",
                if directories_local { "in local memory" } else { "in system memory" }
            ),
        ),
        (&rule::MMU_LARGE_LEAF, leaf.is_multiple_of(4096), format!("{leaf} bytes")),
    ]
}

pub(super) fn judge_segments(caps: &Caps) -> Vec<Verdict> {
    let last = caps.segments.len();
    let sound = caps.segments.iter().all(|segment| {
        let flags = segment.descriptor.Flags;
        let hosted = flags.SupportsCpuHostAperture();
        let visible = flags.CpuVisible() && !segment.is_aperture() && !hosted;
        segment.size() != 0
            && (!hosted || segment.id as usize == last)
            && (!visible || segment.descriptor.CpuTranslatedAddress().QuadPart != 0)
    });
    let paging = caps.paging_buffer_segment;
    let buffer = (paging == 0 || caps.segment(paging).is_some()) && caps.paging_buffer_size != 0;
    let describe = || {
        let one = |segment: &Segment| format!("{}: {:?} {:#x}", segment.id, segment.descriptor.Flags, segment.size());
        caps.segments.iter().map(one).collect::<Vec<_>>().join("; ")
    };
    vec![
        (&rule::SEGMENT_SHAPE, sound, describe()),
        (&rule::SEGMENT_PAGING_BUFFER, buffer, format!("segment {paging}, {} bytes", caps.paging_buffer_size)),
    ]
}

pub(super) fn judge_fences(caps: &Caps) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    if let Some(fence) = &caps.native_fence {
        let stride = fence.MonitoredValueStride;
        let range = fence.MaximumAddress == 0 || fence.MinimumAddress <= fence.MaximumAddress;
        let text = format!("stride {stride}, addresses {:#x} to {:#x}", fence.MinimumAddress, fence.MaximumAddress);
        verdicts.push((&rule::NATIVE_FENCE_CAPS, stride.is_multiple_of(8) && stride <= 4096 && range, text) as Verdict);
    }
    if let Some(user_mode) = &caps.user_mode {
        let sizes = 1..=DXGK_MAX_DOORBELL_SIZE_BYTES;
        let secondary = user_mode.Flags.SecondaryDoorbellSupported();
        let holds = sizes.contains(&user_mode.DoorbellSizeInBytes)
            && (!secondary || sizes.contains(&user_mode.SecondaryDoorbellSizeInBytes));
        let text = format!(
            "{} bytes, secondary {} bytes",
            user_mode.DoorbellSizeInBytes, user_mode.SecondaryDoorbellSizeInBytes
        );
        verdicts.push((&rule::USER_MODE_CAPS, holds, text));
    }
    verdicts
}
