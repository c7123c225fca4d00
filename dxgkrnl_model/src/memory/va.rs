//! Ranges of one GPU virtual address space: what is reserved, what is mapped where.
//!
//! Nothing here touches page tables. Addresses and sizes are bytes and multiples of [`PAGE`].

use std::collections::BTreeMap;
use std::sync::Arc;

use super::allocation::Allocation;

/// Bytes of a GPU page.
pub(crate) const PAGE: u64 = 4096;
/// Alignment of a range that asks for none.
pub(crate) const DEFAULT_ALIGNMENT: u64 = 0x1_0000;
/// Nothing lies below: an address of zero is never valid.
const FIRST: u64 = 0x1_0000;

/// How a range may be used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Protection {
    pub(crate) write: bool,
    pub(crate) execute: bool,
    /// Reads give zero and writes vanish, without memory behind.
    pub(crate) zero: bool,
    /// Accesses fault.
    pub(crate) no_access: bool,
}

impl Protection {
    /// Readable and writable.
    pub(crate) const READ_WRITE: Self = Self { write: true, execute: false, zero: false, no_access: false };
    /// Readable.
    pub(crate) const READ_ONLY: Self = Self { write: false, execute: false, zero: false, no_access: false };
}

/// What a range is.
#[derive(Clone, Debug)]
pub(crate) enum Use {
    /// `DxgkCbReserveGpuVirtualAddressRange`: the driver's own page table entries.
    Driver,
    /// Reserved without memory.
    Reserved(Protection),
    /// Pages of an allocation, from a byte offset on.
    Allocation { allocation: Arc<Allocation>, offset: u64, protection: Protection, driver_protection: u64 },
    /// The system's: fences, logs, paging buffers.
    System,
}

/// A range.
#[derive(Clone, Debug)]
pub(crate) struct Range {
    pub(crate) size: u64,
    pub(crate) used: Use,
    /// Where the reservation that it belongs to begins: freeing names that.
    pub(crate) base: u64,
}

/// The ranges of a space.
#[derive(Debug)]
pub(crate) struct Ranges {
    map: BTreeMap<u64, Range>,
    end: u64,
}

/// Where a new range may lie.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Wanted {
    pub(crate) size: u64,
    /// 0: anywhere.
    pub(crate) base: u64,
    pub(crate) minimum: u64,
    /// 0: the end of the space.
    pub(crate) maximum: u64,
    /// 0: [`DEFAULT_ALIGNMENT`].
    pub(crate) alignment: u64,
}

impl Ranges {
    /// An empty space of `bits` bits.
    pub(crate) fn new(bits: u32) -> Self {
        Self { map: BTreeMap::new(), end: 1_u64.checked_shl(bits.min(63)).unwrap_or(1 << 63) }
    }

    /// One beyond the last address.
    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    fn is_free(&self, start: u64, size: u64) -> bool {
        let Some(end) = start.checked_add(size).filter(|end| *end <= self.end) else { return false };
        let before = self.map.range(..end).next_back();
        before.is_none_or(|(at, range)| at + range.size <= start)
    }

    /// Finds room and enters the range.
    pub(crate) fn insert(&mut self, wanted: &Wanted, used: Use) -> Option<u64> {
        if wanted.size == 0 || !wanted.size.is_multiple_of(PAGE) {
            return None;
        }
        let start = if wanted.base != 0 {
            let fits = wanted.base.is_multiple_of(PAGE) && self.is_free(wanted.base, wanted.size);
            fits.then_some(wanted.base)?
        } else {
            self.find(wanted)?
        };
        self.map.insert(start, Range { size: wanted.size, used, base: start });
        Some(start)
    }

    /// First fit.
    fn find(&self, wanted: &Wanted) -> Option<u64> {
        let alignment = if wanted.alignment == 0 { DEFAULT_ALIGNMENT } else { wanted.alignment }.max(PAGE);
        let last = if wanted.maximum == 0 { self.end } else { wanted.maximum.min(self.end) };
        let mut start = wanted.minimum.max(FIRST).checked_next_multiple_of(alignment)?;
        for (at, range) in &self.map {
            let end = at + range.size;
            if end <= start {
                continue;
            }
            if start.checked_add(wanted.size)? <= *at {
                break;
            }
            start = end.checked_next_multiple_of(alignment)?;
        }
        (start.checked_add(wanted.size)? <= last).then_some(start)
    }

    /// The range that holds `address`.
    pub(crate) fn at(&self, address: u64) -> Option<(u64, &Range)> {
        let (start, range) = self.map.range(..=address).next_back()?;
        (address < start + range.size).then_some((*start, range))
    }

    /// The uses of `size` bytes from `start` on, as far as they are reserved or mapped by user mode.
    pub(crate) fn uses(&self, start: u64, size: u64) -> Uses {
        let end = start.saturating_add(size);
        let mut uses = Vec::new();
        let mut at = start;
        while at < end {
            let Some((first, range)) = self.at(at) else { break };
            if !matches!(range.used, Use::Reserved(_) | Use::Allocation { .. }) {
                break;
            }
            let skip = at - first;
            let covered = (range.size - skip).min(end - at);
            uses.push((at, covered, use_from(range, skip)));
            at += covered;
        }
        uses
    }

    /// The base of the one reservation that all of a range belongs to; `None`: it is not covered, or by several.
    pub(crate) fn reservation(&self, start: u64, size: u64) -> Option<u64> {
        let end = start.checked_add(size)?;
        let base = self.at(start)?.1.base;
        let mut at = start;
        while at < end {
            let (first, range) = self.at(at)?;
            let user = matches!(range.used, Use::Reserved(_) | Use::Allocation { .. });
            if !user || range.base != base {
                return None;
            }
            at = first + range.size;
        }
        (size != 0).then_some(base)
    }

    /// Cuts ranges so that one begins at `address`.
    fn cut(&mut self, address: u64) {
        let Some((start, range)) = self.at(address).map(|(start, range)| (start, range.clone())) else { return };
        if start == address {
            return;
        }
        let head = address - start;
        let mut tail = Range { size: range.size - head, ..range };
        if let Use::Allocation { offset, .. } = &mut tail.used {
            *offset += head;
        }
        self.map.insert(start, Range { size: head, used: range_use(&tail.used, head), base: tail.base });
        self.map.insert(address, tail);
    }

    /// Whether all of a range is reserved or mapped, by user mode.
    pub(crate) fn is_covered(&self, start: u64, size: u64) -> bool {
        let Some(end) = start.checked_add(size) else { return false };
        let mut at = start;
        while at < end {
            match self.at(at) {
                Some((first, range)) if matches!(range.used, Use::Reserved(_) | Use::Allocation { .. }) => {
                    at = first + range.size;
                }
                _ => return false,
            }
        }
        true
    }

    /// Gives a covered range another use and keeps whose reservation it is. The old uses are returned.
    pub(crate) fn replace(&mut self, start: u64, size: u64, used: Use) -> Option<Vec<(u64, Range)>> {
        if size == 0 || !self.is_covered(start, size) {
            return None;
        }
        self.cut(start);
        self.cut(start + size);
        let keys: Vec<_> = self.map.range(start..start + size).map(|(at, _)| *at).collect();
        let old: Vec<_> = keys.iter().filter_map(|at| Some((*at, self.map.remove(at)?))).collect();
        let base = old.first().map_or(start, |(_, range)| range.base);
        self.map.insert(start, Range { size, used, base });
        Some(old)
    }

    /// Takes out the whole range or reservation that begins at `base`; `size` 0 takes what is there.
    pub(crate) fn remove(&mut self, base: u64, size: u64) -> Option<Vec<(u64, Range)>> {
        let keys: Vec<_> =
            self.map.range(base..).take_while(|(_, range)| range.base == base).map(|(at, _)| *at).collect();
        let total: u64 = keys.iter().filter_map(|at| self.map.get(at)).map(|range| range.size).sum();
        if keys.is_empty() || (size != 0 && size != total) {
            return None;
        }
        Some(keys.iter().filter_map(|at| Some((*at, self.map.remove(at)?))).collect())
    }

    /// Bytes of the reservation that begins at `base`; 0 when there is none.
    pub(crate) fn extent(&self, base: u64) -> u64 {
        self.map.range(base..).take_while(|(_, range)| range.base == base).map(|(_, range)| range.size).sum()
    }

    /// Every range, with its address.
    pub(crate) fn all(&self) -> Vec<(u64, Range)> {
        self.map.iter().map(|(at, range)| (*at, range.clone())).collect()
    }

    /// Every place where `allocation` is mapped: address, offset, size, protection.
    pub(crate) fn mappings_of(&self, allocation: &Arc<Allocation>) -> Vec<(u64, Range)> {
        let is_it = |range: &Range| matches!(&range.used, Use::Allocation { allocation: other, .. } if Arc::ptr_eq(other, allocation));
        self.map.iter().filter(|(_, range)| is_it(range)).map(|(at, range)| (*at, range.clone())).collect()
    }
}

/// The use of the first `head` bytes of a range whose rest is `tail`.
fn range_use(tail: &Use, head: u64) -> Use {
    match tail {
        Use::Allocation { allocation, offset, protection, driver_protection } => Use::Allocation {
            allocation: allocation.clone(),
            offset: offset - head,
            protection: *protection,
            driver_protection: *driver_protection,
        },
        other => other.clone(),
    }
}

/// A range's uses, each with its place and size.
pub(crate) type Uses = Vec<(u64, u64, Use)>;

/// The use of a range behind its first `skip` bytes.
fn use_from(range: &Range, skip: u64) -> Use {
    match range.used.clone() {
        Use::Allocation { allocation, offset, protection, driver_protection } => {
            Use::Allocation { allocation, offset: offset + skip, protection, driver_protection }
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(size: u64) -> Wanted {
        Wanted { size, ..Wanted::default() }
    }

    #[test]
    fn ranges_do_not_overlap_and_are_found_again() {
        let mut ranges = Ranges::new(32);
        let one = ranges.insert(&wanted(0x3000), Use::System).unwrap_or_default();
        let two = ranges.insert(&wanted(0x1000), Use::System).unwrap_or_default();
        assert_eq!((one, two), (0x1_0000, 0x2_0000));
        assert_eq!(ranges.insert(&Wanted { size: 0x1000, base: 0x1_2000, ..Wanted::default() }, Use::System), None);
        assert!(ranges.at(0x1_2FFF).is_some());
        assert!(ranges.at(0x1_3000).is_none());
        assert!(ranges.remove(one, 0x1000).is_none());
        assert_eq!(ranges.remove(one, 0).map(|old| old.len()), Some(1));
        assert_eq!(ranges.insert(&wanted(0x3000), Use::System), Some(one));
    }

    #[test]
    fn a_mapping_takes_its_part_of_a_reservation() {
        let mut ranges = Ranges::new(32);
        let whole = ranges.insert(&wanted(0x1_0000), Use::Reserved(Protection::default())).unwrap_or_default();
        assert!(ranges.replace(whole + 0x4000, 0x2000, Use::Reserved(Protection::READ_ONLY)).is_some());
        assert_eq!(ranges.map.len(), 3);
        assert!(ranges.is_covered(whole, 0x1_0000));
        assert!(!ranges.is_covered(whole, 0x1_1000));
        assert_eq!(ranges.remove(whole, 0x1_0000).map(|old| old.len()), Some(3));
        assert_eq!(ranges.map.len(), 0);
    }

    #[test]
    fn limits_are_kept() {
        let mut ranges = Ranges::new(20);
        let high = Wanted { size: 0x1000, minimum: 0x8_0000, maximum: 0x8_1000, ..Wanted::default() };
        assert_eq!(ranges.insert(&high, Use::System), Some(0x8_0000));
        assert_eq!(ranges.insert(&high, Use::System), None);
        assert_eq!(ranges.insert(&wanted(0x20_0000), Use::System), None);
    }
}
