//! Long operations: what may move more bytes than one look at the attention word allows.
//!
//! Each advances by chunks of at most [`CHUNK`] bytes (well under 50 µs of work); between chunks the engine looks for
//! flushes, preemption and reset, and translates anew, so no host address outlives a chunk. The state between chunks is
//! a small value, which is what makes these operations preemptible.

mod blit;
mod filter;
mod paging;

use crate::address_space::AddressSpace;
use crate::engine::Core;
use crate::fault::Fault;
use crate::gpu::Gpu;
use crate::host::Host;
use gpu_wire::packet::{self, FaultKind};
use gpu_wire::{GpuVa, PAGE_SIZE};

/// Bytes moved between two looks at the attention word, at most.
pub(crate) const CHUNK: u64 = 256 << 10;

/// An operation that is under way.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Long {
    /// Fill of `left` bytes at `at`.
    Fill { at: GpuVa, left: u64, pattern: u32 },
    /// Copy of `left` bytes.
    Copy { from: GpuVa, to: GpuVa, left: u64 },
    /// Copy of rows; `row` is next, `done` bytes of it are copied.
    Rect { packet: packet::CopyRect, row: u32, done: u32 },
    /// Convolution; `row` of the rectangle is next.
    Filter { packet: packet::FilterRect, row: u32 },
    /// Waits until every engine served a flush.
    Flush { number: u64 },
}

/// What became of a chunk.
pub(crate) enum Advance {
    /// The operation is complete; bytes that the chunk moved.
    Done(u64),
    /// There is more.
    More(u64, Long),
    /// Other engines must do something first.
    NotYet(Long),
}

/// `va..va + length` as a range inside the address space.
fn range(va: u64, length: u64) -> Result<(u64, u64), Fault> {
    let end = GpuVa(va).checked_add(length).ok_or(FaultKind::BadOperand)?;
    if !GpuVa(va).is_canonical() {
        return Err(FaultKind::BadOperand.into());
    }
    Ok((va, end.0))
}

fn disjoint(a: (u64, u64), b: (u64, u64)) -> Result<(), Fault> {
    if a.0 < b.1 && b.0 < a.1 { Err(FaultKind::BadOperand.into()) } else { Ok(()) }
}

/// Bytes from the first to past the last byte of `rows` rows.
fn extent(pitch: u32, row_bytes: u32, rows: u32) -> Result<u64, Fault> {
    if pitch < row_bytes {
        return Err(FaultKind::BadOperand.into());
    }
    Ok(match rows.checked_sub(1) {
        Some(last) => u64::from(last) * u64::from(pitch) + u64::from(row_bytes),
        None => 0,
    })
}

/// Bytes from a row's current byte on that the rest of an operation goes through page by page, so that they may be
/// mapped at once: all `rows` rows, of which `row_left` bytes of the first are left, or that row alone where whole
/// pages lie between two rows. `rows` counts the current one.
fn reach(pitch: u32, row_bytes: u32, row_left: u32, rows: u32) -> u64 {
    let gap = u64::from(pitch.saturating_sub(row_bytes));
    let behind = if gap < PAGE_SIZE { u64::from(rows.saturating_sub(1)) * u64::from(pitch) } else { 0 };
    u64::from(row_left) + behind
}

impl Long {
    /// Checks a FILL packet.
    pub fn fill(b: packet::Fill) -> Result<Self, Fault> {
        if !b.address.is_multiple_of(4) || !b.length.is_multiple_of(4) || b.reserved != 0 {
            return Err(FaultKind::BadOperand.into());
        }
        range(b.address, b.length)?;
        Ok(Self::Fill { at: GpuVa(b.address), left: b.length, pattern: b.pattern })
    }

    /// Checks a COPY packet.
    pub fn copy(b: packet::Copy) -> Result<Self, Fault> {
        disjoint(range(b.source, b.length)?, range(b.destination, b.length)?)?;
        Ok(Self::Copy { from: GpuVa(b.source), to: GpuVa(b.destination), left: b.length })
    }

    /// Checks a COPY_RECT packet.
    pub fn copy_rect(b: packet::CopyRect) -> Result<Self, Fault> {
        let source = range(b.source, extent(b.source_pitch, b.row_bytes, b.rows)?)?;
        let destination = range(b.destination, extent(b.destination_pitch, b.row_bytes, b.rows)?)?;
        disjoint(source, destination)?;
        Ok(Self::Rect { packet: b, row: 0, done: 0 })
    }

    /// Checks a FILTER_RECT packet.
    pub fn filter_rect(b: packet::FilterRect) -> Result<Self, Fault> {
        let aligned = [b.source, b.destination].iter().all(|v| v.is_multiple_of(4))
            && [b.source_pitch, b.destination_pitch].iter().all(|v| v.is_multiple_of(4));
        let inside = |at: u32, size: u32, limit: u32| at.checked_add(size).is_some_and(|end| end <= limit);
        let bounded = b.coefficients.iter().all(|c| (-1024..=1024).contains(c))
            && (-256..=256).contains(&b.bias)
            && b.shift <= 16
            && b.reserved == 0
            && b.image_width <= filter::MAX_WIDTH;
        if !aligned || !bounded || !inside(b.x, b.width, b.image_width) || !inside(b.y, b.height, b.image_height) {
            return Err(FaultKind::BadOperand.into());
        }
        let row_bytes = b.image_width.checked_mul(4).ok_or(FaultKind::BadOperand)?;
        let source = range(b.source, extent(b.source_pitch, row_bytes, b.image_height)?)?;
        let destination = range(b.destination, extent(b.destination_pitch, row_bytes, b.image_height)?)?;
        disjoint(source, destination)?;
        Ok(Self::Filter { packet: b, row: 0 })
    }
}

impl<H: Host> Core<H> {
    /// One chunk of a long operation.
    pub(crate) fn advance(&mut self, gpu: &Gpu<H>, space: &AddressSpace<H>, long: Long) -> Result<Advance, Fault> {
        match long {
            Long::Fill { at, left, pattern } => self.fill_chunk(gpu, space, at, left, pattern),
            Long::Copy { from, to, left } => self.copy_chunk(gpu, space, from, to, left),
            Long::Rect { packet, row, done } => self.rect_chunk(gpu, space, packet, row, done),
            Long::Filter { packet, row } => self.filter_chunk(gpu, space, packet, row),
            Long::Flush { number } => Ok(self.await_flush(gpu, number)),
        }
    }
}
