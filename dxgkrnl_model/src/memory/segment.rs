//! Room in memory segments and apertures.

use std::collections::BTreeMap;

use super::va::PAGE;
use crate::port::caps::Segment;

/// Which part of one segment is in use. Offsets and sizes are bytes.
#[derive(Debug)]
pub(crate) struct SegmentSpace {
    pub(crate) segment: Segment,
    used: BTreeMap<u64, u64>,
}

impl SegmentSpace {
    /// An empty segment.
    pub(crate) fn new(segment: Segment) -> Self {
        Self { segment, used: BTreeMap::new() }
    }

    /// Takes room; from the end when `from_end`.
    pub(crate) fn allocate(&mut self, size: u64, alignment: u64, from_end: bool) -> Option<u64> {
        let page = self.segment.page_size();
        let size = size.checked_next_multiple_of(page)?;
        let alignment = alignment.max(page).checked_next_power_of_two()?;
        let commit = match self.segment.descriptor.CommitLimit as u64 {
            0 => self.segment.size(),
            limit => limit,
        };
        if size == 0 || self.in_use() + size > commit {
            return None;
        }
        let offset = if from_end { self.find_last(size, alignment) } else { self.find_first(size, alignment) }?;
        self.used.insert(offset, size);
        Some(offset)
    }

    fn find_first(&self, size: u64, alignment: u64) -> Option<u64> {
        let mut start = 0;
        for (at, length) in &self.used {
            if start + size <= *at {
                break;
            }
            start = (at + length).next_multiple_of(alignment).max(start);
        }
        (start + size <= self.segment.size()).then_some(start)
    }

    fn find_last(&self, size: u64, alignment: u64) -> Option<u64> {
        let down = |end: u64| end.checked_sub(size).map(|start| start / alignment * alignment);
        let mut end = self.segment.size();
        for (at, length) in self.used.iter().rev() {
            if down(end).is_some_and(|start| start >= at + length) {
                break;
            }
            end = end.min(*at);
        }
        down(end)
    }

    /// Gives room back.
    pub(crate) fn free(&mut self, offset: u64) {
        self.used.remove(&offset);
    }

    /// Bytes in use.
    pub(crate) fn in_use(&self) -> u64 {
        self.used.values().sum()
    }

    /// What a page table entry or a residency notice names: the segment's own base and the offset.
    pub(crate) fn address(&self, offset: u64) -> u64 {
        self.segment.descriptor.BaseAddress.QuadPart.cast_unsigned() + offset
    }

    /// Page frame that the CPU reaches the byte at `offset` by.
    pub(crate) fn cpu_frame(&self, offset: u64) -> Option<u64> {
        let base = self.segment.descriptor.CpuTranslatedAddress().QuadPart.cast_unsigned();
        self.segment.is_cpu_visible().then(|| (base + offset) / PAGE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wddm_abi::DXGK_SEGMENTDESCRIPTOR4;

    fn segment(size: usize) -> SegmentSpace {
        let mut descriptor = DXGK_SEGMENTDESCRIPTOR4::zeroed();
        descriptor.Size = size;
        SegmentSpace::new(Segment { id: 1, descriptor })
    }

    #[test]
    fn room_is_taken_from_either_end_and_given_back() {
        let mut space = segment(0x1_0000);
        assert_eq!(space.allocate(1, 0, false), Some(0));
        assert_eq!(space.allocate(0x2000, 0x4000, false), Some(0x4000));
        assert_eq!(space.allocate(0x1000, 0, true), Some(0xF000));
        assert_eq!(space.allocate(0x1000, 0, true), Some(0xE000));
        assert_eq!(space.in_use(), 0x5000);
        space.free(0xF000);
        assert_eq!(space.allocate(0x1000, 0, true), Some(0xF000));
        assert_eq!(space.allocate(0x1_0000, 0, false), None);
    }
}
