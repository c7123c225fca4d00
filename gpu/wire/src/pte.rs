//! The page table entry of the Fencepost GPU (SPEC §6).
//!
//! 64 bits, one format for every level. 48-bit addresses, four levels of 512 entries, tables of 4 KiB in system memory.
//! Level 0 is the leaf. An entry is written as one 64-bit store, by paging packets or (for the paging process itself,
//! inside `DxgkDdiBuildPagingBuffer`) by the CPU; engines read it as one 64-bit load.

use crate::GpuVa;

/// Levels of the page table. Level 0 maps pages, level 3 is the root.
pub const LEVELS: u32 = 4;
/// Address bits per level.
pub const INDEX_BITS: u32 = 9;
/// Entries of a table.
pub const ENTRIES: u32 = 1 << INDEX_BITS;
/// Bytes of a table.
pub const TABLE_SIZE: u32 = ENTRIES * 8;

/// Bits 12..52: page frame, or offset of the page in the local segment in pages.
const FRAME_SHIFT: u32 = 12;
const FRAME_BITS: u32 = 40;
const VALID: u64 = 1 << 0;
const READ_ONLY: u64 = 1 << 2;
const LOCAL: u64 = 1 << 3;
/// Bits that must be zero in a valid entry.
const RESERVED: u64 = !(VALID | READ_ONLY | LOCAL | (((1 << FRAME_BITS) - 1) << FRAME_SHIFT));

/// Where a page or a table lies.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub enum Place {
    /// System memory, by page frame number.
    System(u64),
    /// The local segment, by page index from its start.
    Local(u64),
}

impl Place {
    /// The place `pages` further on, or `None` beyond what an entry can hold.
    pub const fn checked_add(self, pages: u64) -> Option<Self> {
        let (Self::System(n) | Self::Local(n)) = self;
        match n.checked_add(pages) {
            Some(n) if n >> FRAME_BITS == 0 => Some(match self {
                Self::System(_) => Self::System(n),
                Self::Local(_) => Self::Local(n),
            }),
            _ => None,
        }
    }
}

/// What a leaf entry allows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Leaf {
    /// The page.
    pub place: Place,
    /// Stores fault.
    pub read_only: bool,
}

/// An entry as it lies in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(transparent)]
pub struct Pte(pub u64);

impl Pte {
    /// The entry that faults.
    pub const INVALID: Self = Self(0);

    /// A leaf entry, or `None` when the frame does not fit.
    pub const fn leaf(place: Place, read_only: bool) -> Option<Self> {
        match Self::table(place) {
            Some(Self(bits)) => Some(Self(if read_only { bits | READ_ONLY } else { bits })),
            None => None,
        }
    }

    /// An entry of a level above 0: the table below lies at `place`. `None` when the frame does not fit.
    pub const fn table(place: Place) -> Option<Self> {
        let (frame, local) = match place {
            Place::System(n) => (n, 0),
            Place::Local(n) => (n, LOCAL),
        };
        if frame >> FRAME_BITS != 0 { None } else { Some(Self(frame << FRAME_SHIFT | local | VALID)) }
    }

    /// The entry as a leaf; `None` when it is invalid or has a reserved bit set.
    pub const fn as_leaf(self) -> Option<Leaf> {
        if self.0 & VALID == 0 || self.0 & RESERVED != 0 {
            return None;
        }
        Some(Leaf { place: self.place(), read_only: self.0 & READ_ONLY != 0 })
    }

    /// The entry as a pointer to a table; `None` when it is invalid or is no such pointer.
    pub const fn as_table(self) -> Option<Place> {
        if self.0 & VALID == 0 || self.0 & (RESERVED | READ_ONLY) != 0 { None } else { Some(self.place()) }
    }

    const fn place(self) -> Place {
        let frame = (self.0 >> FRAME_SHIFT) & ((1 << FRAME_BITS) - 1);
        if self.0 & LOCAL != 0 { Place::Local(frame) } else { Place::System(frame) }
    }
}

/// Index into the table of `level` that translates `va`.
pub const fn index(va: GpuVa, level: u32) -> u32 {
    // CAST: masked to nine bits.
    ((va.0 >> (12 + INDEX_BITS * level)) & (ENTRIES as u64 - 1)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_come_back_as_they_went_in() {
        for place in [Place::System(0x1234_5678), Place::Local(7), Place::System((1 << 40) - 1)] {
            for read_only in [false, true] {
                let leaf = Pte::leaf(place, read_only).unwrap().as_leaf().unwrap();
                assert_eq!(leaf, Leaf { place, read_only });
            }
            assert_eq!(Pte::table(place).unwrap().as_table(), Some(place));
        }
        assert_eq!(Pte::leaf(Place::System(1 << 40), false), None);
    }

    #[test]
    fn reserved_bits_and_invalid_entries_translate_nothing() {
        assert_eq!(Pte::INVALID.as_leaf(), None);
        assert_eq!(Pte(VALID | 1 << 4).as_leaf(), None);
        assert_eq!(Pte(VALID | READ_ONLY).as_table(), None);
        assert_eq!(Pte(VALID | 1 << 63).as_table(), None);
        for bit in 52..64 {
            assert_eq!(Pte(VALID | 1 << bit).as_leaf(), None, "bit {bit}");
        }
    }

    #[test]
    fn indices_split_a_48_bit_address() {
        let va = GpuVa(0x0000_8040_2010_0fff);
        assert_eq!([index(va, 3), index(va, 2), index(va, 1), index(va, 0)], [0x100, 0x100, 0x100, 0x100]);
    }
}
