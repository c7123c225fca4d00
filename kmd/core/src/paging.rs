//! `DxgkDdiBuildPagingBuffer`: VidMm's operations as packets for the paging node.
//!
//! Only three statuses are allowed: success, "busy" and "more buffer". So running out of memory cannot be an answer,
//! and nothing here allocates. An operation that does not fit goes on where `MultipassOffset` says.
//!
//! Source: `DxgkDdiBuildPagingBuffer`; *System paging process*.

use crate::irql::Passive;
use crate::segments::Order;
use crate::settings::Settings;
use crate::status::{Error, Result};
use gpu_engine::memory::Span;
use gpu_engine::word::{Ordering, Word};
use gpu_wire::GpuVa;
use gpu_wire::packet::{self, Encoded, MAX_TABLE_ENTRIES};
use gpu_wire::pte::{ENTRIES, Place, Pte};
use wddm_abi::{D3DGPU_PHYSICAL_ADDRESS, DXGK_BUILDPAGINGBUFFER_COPY_RANGE, DXGK_PTE};

/// An operation, its pointers made references by the thunk.
pub enum Operation<'a> {
    /// Entries of a page table, by the GPU.
    Update {
        /// Where the table is, as an entry of a parent would have it ([`table_at`]).
        table: Pte,
        /// Its level; 0 is the leaf.
        level: u32,
        /// The entries.
        entries: TableEntries<'a>,
    },
    /// Entries of a page table of the paging process, by the CPU, now.
    UpdateNow {
        /// The table's page.
        table: Span<'a>,
        /// Its level.
        level: u32,
        /// The entries.
        entries: TableEntries<'a>,
    },
    /// Entries of page tables that the address space of the paging buffer's context shows, by the GPU.
    Copy {
        /// What is copied, in order. Each passed [`copies_within_tables`].
        ranges: &'a [DXGK_BUILDPAGINGBUFFER_COPY_RANGE],
    },
    /// Translations of a process.
    Flush {
        /// The engine's number of the process.
        process: u64,
        /// First address.
        start: u64,
        /// Address after the last; both 0 for everything.
        end: u64,
    },
    /// Copy between addresses of the paging process.
    Transfer {
        /// Source.
        source: GpuVa,
        /// Destination.
        destination: GpuVa,
        /// Bytes.
        size: u64,
    },
    /// Fill of addresses of the paging process.
    Fill {
        /// Destination.
        destination: GpuVa,
        /// Bytes.
        size: u64,
        /// Pattern.
        pattern: u32,
    },
    /// Signal of a monitored fence.
    Signal {
        /// Where its value is, in the paging process.
        fence: GpuVa,
        /// The value.
        value: u64,
    },
    /// An operation that needs nothing ([`crate::halt::Verdict::Nothing`]).
    Nothing,
}

/// Consecutive page table entries.
#[derive(Clone, Copy)]
pub struct TableEntries<'a> {
    /// The OS's entries; one of them when `repeat`.
    pub from: &'a [DXGK_PTE],
    /// Index of the first entry in the table.
    pub first: u32,
    /// Entries.
    pub count: u32,
    /// All are the first.
    pub repeat: bool,
    /// How the entries are read.
    pub reading: Reading,
}

/// How page table entries are read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reading {
    /// What an address counts.
    pub unit: Unit,
    /// Which segment is which.
    pub order: Order,
}

impl Reading {
    /// What `settings` say of it.
    pub const fn of(settings: &Settings) -> Self {
        let unit = if settings.pte_byte_addresses { Unit::Bytes } else { Unit::Pages };
        Self { unit, order: Order::of(settings) }
    }
}

/// What an address in a page table entry counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unit {
    /// Pages of 4 KB, as other drivers have it.
    Pages,
    /// Bytes, as the page of `DXGK_PTE` can be read (setting `PteByteAddresses`).
    Bytes,
}

/// The DMA buffer being built.
pub struct Buffer<'a> {
    bytes: &'a mut [u8],
    /// Bytes written.
    pub used: usize,
}

/// Bytes of a packet that writes entries of a table, before the entries.
const TABLE_WRITE_SIZE: usize = packet::HEADER_SIZE + size_of::<packet::TableWrite>();

impl<'a> Buffer<'a> {
    /// Nothing written.
    pub fn new(bytes: &'a mut [u8]) -> Self {
        Self { bytes, used: 0 }
    }

    /// Bytes that are left.
    fn room(&self) -> usize {
        self.bytes.len().saturating_sub(self.used)
    }

    fn push(&mut self, packet: &Encoded) -> Result<()> {
        let bytes = packet.as_bytes();
        let to = self.bytes.get_mut(self.used..self.used + bytes.len()).ok_or(Error::InsufficientDmaBuffer)?;
        to.copy_from_slice(bytes);
        self.used += bytes.len();
        Ok(())
    }
}

/// Builds `operation` from where `multipass` says; `multipass` is where to go on after "more buffer".
///
/// # Errors
/// [`Error::InsufficientDmaBuffer`], and nothing else for operations that VidMm may ask for.
pub fn build(_irql: &Passive, operation: &Operation<'_>, buffer: &mut Buffer<'_>, multipass: &mut u32) -> Result<()> {
    let packet = match operation {
        // Without bytes: VidMm says that content is lost, while no work may run.
        Operation::Nothing | Operation::Transfer { size: 0, .. } => return Ok(()),
        Operation::Update { entries, .. } | Operation::UpdateNow { entries, .. } if entries.count == 0 => return Ok(()),
        Operation::Flush { process, start, end } => {
            packet::TlbFlush { process: *process, start: *start, end: *end }.to_packet()
        }
        Operation::Transfer { source, destination, size } => {
            packet::Copy { source: source.0, destination: destination.0, length: *size }.to_packet()
        }
        Operation::Fill { destination, size, pattern } => {
            // Sizes are whole pages.
            packet::Fill { address: destination.0, length: *size, pattern: *pattern, reserved: 0 }.to_packet()
        }
        Operation::Signal { fence, value } => packet::MonitoredSignal { address: fence.0, value: *value }.to_packet(),
        Operation::UpdateNow { table, level, entries } => {
            for i in 0..entries.count {
                if let Some(word) = table.word(u64::from(entries.first + i) * 8) {
                    word.store(entries.get(i, *level).0, Ordering::Release);
                }
            }
            return Ok(());
        }
        Operation::Update { table, level, entries } => return build_update(*table, *level, entries, buffer, multipass),
        Operation::Copy { ranges } => return build_copy(ranges, buffer, multipass),
    };
    buffer.push(&packet)
}

/// Builds the packets that write `entries` to `table`. Apart from [`build`], for the sake of its stack.
#[inline(never)]
fn build_update(
    table: Pte,
    level: u32,
    entries: &TableEntries<'_>,
    buffer: &mut Buffer<'_>,
    multipass: &mut u32,
) -> Result<()> {
    if entries.repeat {
        return buffer.push(&Encoded::table_repeat(table, entries.first, entries.count, entries.get(0, level)));
    }
    while *multipass < entries.count {
        // As many as the rest of the buffer holds: an empty one of any size that holds an entry is progress.
        let room = buffer.room().saturating_sub(TABLE_WRITE_SIZE) / size_of::<Pte>();
        if room == 0 {
            return Err(Error::InsufficientDmaBuffer);
        }
        // CAST: at most MAX_TABLE_ENTRIES.
        let n = (entries.count - *multipass).min(room.min(MAX_TABLE_ENTRIES) as u32);
        let chunk = (*multipass..*multipass + n).map(|at| entries.get(at, level));
        buffer.push(&Encoded::table_write(table, entries.first + *multipass, chunk))?;
        *multipass += n;
    }
    Ok(())
}

/// Builds the packets that copy `ranges`, and one that drops what the process's engines cache: the operation names no
/// process and no addresses, and no page says that VidMm flushes behind it.
#[inline(never)]
fn build_copy(
    ranges: &[DXGK_BUILDPAGINGBUFFER_COPY_RANGE],
    buffer: &mut Buffer<'_>,
    multipass: &mut u32,
) -> Result<()> {
    let entry = |table: u64, index: u32| table + u64::from(index) * 8;
    for range in ranges.iter().skip(*multipass as usize) {
        let copy = packet::TableCopy {
            source: entry(range.SrcPageTableAddress, range.SrcStartPteIndex),
            destination: entry(range.DstPageTableAddress, range.DstStartPteIndex),
            count: range.NumPageTableEntries,
            reserved: 0,
        };
        if copy.count != 0 {
            buffer.push(&copy.to_packet())?;
        }
        *multipass += 1;
    }
    if ranges.is_empty() {
        return Ok(());
    }
    buffer.push(&packet::TlbFlush { process: packet::OWN_PROCESS, start: 0, end: 0 }.to_packet())
}

/// Returns whether every range lies within a page table on both sides, at addresses that the GPU has.
///
/// Source: `DXGK_BUILDPAGINGBUFFER_COPY_RANGE` (tables are aligned to 64 KB; ours are to 4 KB).
pub fn copies_within_tables(ranges: &[DXGK_BUILDPAGINGBUFFER_COPY_RANGE]) -> bool {
    let is_table = |address: u64| {
        let va = GpuVa(address);
        va.is_canonical() && va.is_aligned(gpu_wire::PAGE_SIZE)
    };
    ranges.iter().all(|range| {
        let fits = |first: u32| first.checked_add(range.NumPageTableEntries).is_some_and(|end| end <= ENTRIES);
        let tables = is_table(range.SrcPageTableAddress) && is_table(range.DstPageTableAddress);
        tables && fits(range.SrcStartPteIndex) && fits(range.DstStartPteIndex)
    })
}

impl<'a> TableEntries<'a> {
    /// Entries within one table, or `None` when they leave it or the array is too short.
    pub fn new(from: &'a [DXGK_PTE], first: u32, count: u32, repeat: bool, reading: Reading) -> Option<Self> {
        let fits = first.checked_add(count).is_some_and(|end| end <= ENTRIES);
        let enough = from.len() >= if repeat { 1 } else { count as usize };
        (fits && enough).then_some(Self { from, first, count, repeat, reading })
    }

    /// `count` invalid entries from `first` on, as far as they lie within the table. They take the place of entries
    /// that this driver does not know.
    pub fn invalid(first: u32, count: u32, reading: Reading) -> Self {
        let first = first.min(ENTRIES);
        Self { from: &[], first, count: count.min(ENTRIES - first), repeat: true, reading }
    }

    /// Our entry for the `i`-th.
    fn get(&self, i: u32, level: u32) -> Pte {
        let entry = self.from.get(if self.repeat { 0 } else { i as usize });
        entry.and_then(|entry| translate(entry, level, self.reading)).unwrap_or(Pte::INVALID)
    }

    /// How many of the OS's entries, read as entries of level `level`, this driver does not know.
    pub fn unknown(&self, level: u32) -> u64 {
        // CAST: at most a table's entries.
        self.from.iter().filter(|entry| translate(entry, level, self.reading).is_none()).count() as u64
    }
}

/// The GPU's form of the OS's entry. `None` for an entry that this driver does not know: a page size other than 4 KB
/// (in a parent, of the table below), zero pages, another physical adapter, reserved bits that are set, a segment that
/// does not exist or is the aperture, an address that is too high.
///
/// Source: `DXGK_PTE`; `DXGK_GPUMMUCAPS` (LargePageSupported, ZeroInPteSupported and 64 KB pages are not advertised).
pub fn translate(entry: &DXGK_PTE, level: u32, reading: Reading) -> Option<Pte> {
    if !entry.Valid() {
        return Some(Pte::INVALID);
    }
    let parent_of_large = level > 0 && entry.PageTablePageSize() != 0;
    if entry.Zero()
        || entry.LargePage()
        || entry.PhysicalAdapterIndex() != 0
        || entry.Reserved() != 0
        || parent_of_large
    {
        return None;
    }
    // CAST: five bits.
    let segment = entry.Segment() as u32;
    let place = if level == 0 { entry.PageAddress() } else { entry.PageTableAddress() };
    let page = match reading.unit {
        // The member holds the upper 52 bits of the address.
        Unit::Pages => place,
        Unit::Bytes => place / gpu_wire::PAGE_SIZE,
    };
    let place = frame_of(reading.order, segment, page)?;
    if level == 0 { Pte::leaf(place, entry.ReadOnly()) } else { Pte::table(place) }
}

/// Where a frame of a segment is. `None` in the aperture, too: an offset there is no frame, and the aperture has no
/// page table of its own. What lies in it is mapped by its system pages, with segment 0.
///
/// Source: GPU segments.
fn frame_of(order: Order, segment: u32, frame: u64) -> Option<Place> {
    match segment {
        // Zero is system memory.
        0 => Some(Place::System(frame)),
        id if id == order.local() => Some(Place::Local(frame)),
        _ => None,
    }
}

/// The page table at a GPU physical address, as an entry of a parent. `None`: the aperture, a segment that does
/// not exist, or an address that no entry can hold.
pub fn table_at(order: Order, address: &D3DGPU_PHYSICAL_ADDRESS) -> Option<Pte> {
    place_of(order, address.SegmentId, address.SegmentOffset).and_then(Pte::table)
}

/// Where a GPU physical address points. `None`: in the aperture, or a segment that does not exist.
pub fn place_of(order: Order, segment: u32, offset: u64) -> Option<Place> {
    frame_of(order, segment, offset / gpu_wire::PAGE_SIZE)
}

#[cfg(test)]
mod tests;
