//! Operations, as values: what is left of one, and which packets are none.
//!
//! A value of [`Long`] is all that an engine needs to go on with an operation, after it looked up or came off.
//! [`crate::ops`] carries them out.

use crate::fault::Fault;
use gpu_wire::GpuVa;
use gpu_wire::packet::{self, FaultKind};

/// Widest image of a FILTER_RECT, in pixels.
pub(crate) const MAX_WIDTH: u32 = 16384;

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
            && b.image_width <= MAX_WIDTH;
        if !aligned || !bounded || !inside(b.x, b.width, b.image_width) || !inside(b.y, b.height, b.image_height) {
            return Err(FaultKind::BadOperand.into());
        }
        let row_bytes = b.image_width.checked_mul(4).ok_or(FaultKind::BadOperand)?;
        let source = range(b.source, extent(b.source_pitch, row_bytes, b.image_height)?)?;
        let destination = range(b.destination, extent(b.destination_pitch, row_bytes, b.image_height)?)?;
        disjoint(source, destination)?;
        Ok(Self::Filter { packet: b, row: 0, column: 0 })
    }
}
