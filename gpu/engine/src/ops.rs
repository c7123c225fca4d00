//! Operations: what may move more bytes than one look at the attention word allows.
//!
//! Each goes on until it has done [`STEP`] of work and comes back with the rest of itself, a small value. Between steps
//! the engine looks for flushes, preemption and reset, and translates anew, so no host address outlives a step. Work is
//! counted as if it were bytes moved: what a run of bytes costs at least, and every page table and every mapping, count
//! as well (`tlb.rs`). So one-byte rows and pages that are scattered make a step shorter, and none is longer than some
//! 45 µs at 10 GB/s: [`STEP`], and behind it one run with two translations that miss.

mod blit;
mod filter;
mod paging;

pub(crate) use self::paging::Scratch;

use crate::fault::Fault;
use crate::host::Host;
use crate::mmu::Mmu;
use gpu_wire::packet::{self, FaultKind};
use gpu_wire::{GpuVa, PAGE_SIZE};

/// Work between two looks at the attention word, in bytes moved.
pub(crate) const STEP: u64 = 256 << 10;
/// What a run counts for at least: translating both sides, and the call that moves it.
const RUN: u64 = 512;

/// An operation that is under way.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Long {
    /// Fill of `left` bytes at `at`, of `all`.
    Fill { at: GpuVa, left: u64, all: u64, pattern: u32 },
    /// Copy of `left` bytes, of `all`.
    Copy { from: GpuVa, to: GpuVa, left: u64, all: u64 },
    /// Copy of rows; `row` is next, `done` bytes of it are copied.
    Rect { packet: packet::CopyRect, row: u32, done: u32 },
    /// Convolution; `row` of the rectangle is next, `column` of it.
    Filter { packet: packet::FilterRect, row: u32, column: u32 },
    /// Waits until every engine served the flush with this number. The engine itself looks.
    Flush { number: u64 },
}

/// What became of a step.
#[derive(Clone, Copy)]
pub(crate) enum Advance {
    /// The operation is complete; bytes that the step moved.
    Done(u64),
    /// There is more.
    More(u64, Long),
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
        Ok(Self::Fill { at: GpuVa(b.address), left: b.length, all: b.length, pattern: b.pattern })
    }

    /// Checks a COPY packet.
    pub fn copy(b: packet::Copy) -> Result<Self, Fault> {
        disjoint(range(b.source, b.length)?, range(b.destination, b.length)?)?;
        Ok(Self::Copy { from: GpuVa(b.source), to: GpuVa(b.destination), left: b.length, all: b.length })
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
        Ok(Self::Filter { packet: b, row: 0, column: 0 })
    }

    /// One step.
    ///
    /// # Errors
    /// The fault of the address that cannot be reached. What lies before it may have been done.
    pub fn advance<H: Host>(self, mmu: &mut Mmu<'_, H>) -> Result<Advance, Fault> {
        match self {
            Self::Fill { at, left, all, pattern } => blit::fill(mmu, at, left, all, pattern),
            Self::Copy { from, to, left, all } => blit::copy(mmu, from, to, left, all),
            Self::Rect { packet, row, done } => blit::rect(mmu, packet, row, done),
            Self::Filter { packet, row, column } => filter::filter(mmu, packet, row, column),
            Self::Flush { .. } => Ok(Advance::More(0, self)),
        }
    }
}
