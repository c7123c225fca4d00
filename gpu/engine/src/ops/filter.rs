//! FILTER_RECT: a 3×3 convolution of RGBA8, row by row, 64 pixels at a time.
//!
//! Three source rows are copied to private memory, so the arithmetic never touches shared pages and cannot be disturbed
//! by a process that changes its picture meanwhile.

use super::{Advance, RUN, STEP, reach};
use crate::fault::Fault;
use crate::host::Host;
use crate::mmu::Mmu;
use crate::operation::Long;
use gpu_wire::packet::FilterRect;
use gpu_wire::{GpuVa, PAGE_SIZE};

/// Pixels filtered between two reads of source rows.
const SPAN: usize = 64;

pub(super) fn filter<H: Host>(
    mmu: &mut Mmu<'_, H>,
    packet: FilterRect,
    mut row: u32,
    mut column: u32,
) -> Result<Advance, Fault> {
    let mut moved = 0;
    while row < packet.height && packet.width != 0 {
        // CAST: at most SPAN.
        let n = (packet.width - column).min(SPAN as u32);
        if !span(mmu, &packet, packet.x + column, packet.y + row, n)? {
            return Ok(Advance::More(moved, Long::Filter { packet, row, column }));
        }
        // Three rows are read and one is written.
        let bytes = u64::from(n) * 4 * 4;
        moved += bytes;
        mmu.tlb.work += bytes.max(4 * RUN);
        column += n;
        if column == packet.width {
            (row, column) = (row + 1, 0);
        }
        if mmu.tlb.work >= STEP && row < packet.height {
            return Ok(Advance::More(moved, Long::Filter { packet, row, column }));
        }
    }
    Ok(Advance::Done(moved))
}

/// Filters the `n` pixels from column `x` on of row `y` of the image; at most [`SPAN`]. `false`: the step ends in front
/// of them.
fn span<H: Host>(mmu: &mut Mmu<'_, H>, p: &FilterRect, x: u32, y: u32, n: u32) -> Result<bool, Fault> {
    let last_row = p.image_height - 1;
    let rows = [y.saturating_sub(1), y, (y + 1).min(last_row)];
    // Columns x-1 ..= x+n, held inside the image.
    let first = x.saturating_sub(1);
    let end = (x + n + 1).min(p.image_width);
    let mut source = [[[0u8; 4]; SPAN + 2]; 3];
    for (to, row) in source.iter_mut().zip(rows) {
        let at = GpuVa(p.source + u64::from(row) * u64::from(p.source_pitch) + u64::from(first) * 4);
        // One pixel of room on the left when the image's edge is not there.
        let lead = usize::from(x == 0);
        let count = (end - first) as usize;
        let pixels = to.get_mut(lead..lead + count).unwrap_or_default();
        // CAST: a row of an image, of 32-bit pixels.
        let reach = reach(p.source_pitch, p.width * 4, pixels.len() as u32 * 4, p.y + p.height - y);
        if mmu.translate_in_step(at, reach, false)?.is_none() {
            return Ok(false);
        }
        let read = mmu.read(at, pixels.as_flattened_mut());
        if mmu.in_step(read)?.is_none() {
            return Ok(false);
        }
        if x == 0 {
            to[0] = to[1];
        }
        if end == x + n {
            to[n as usize + 1] = to[n as usize];
        }
    }
    let mut out = [[0u8; 4]; SPAN];
    for (i, pixel) in out.iter_mut().enumerate().take(n as usize) {
        *pixel = convolve(&source, i, p);
    }
    let to = GpuVa(p.destination + u64::from(y) * u64::from(p.destination_pitch) + u64::from(x) * 4);
    let reach = reach(p.destination_pitch, p.width * 4, n * 4, p.y + p.height - y);
    // Each page of the span is mapped before the first is written: what is written is written once.
    let last = GpuVa(to.0 + u64::from(n) * 4 - 1);
    if (last.0 / PAGE_SIZE != to.0 / PAGE_SIZE && mmu.translate_in_step(last, 1, true)?.is_none())
        || mmu.translate_in_step(to, reach, true)?.is_none()
    {
        return Ok(false);
    }
    mmu.write(to, out.as_flattened().get(..n as usize * 4).unwrap_or_default())?;
    Ok(true)
}

/// The pixel at column `i + 1` of the three rows.
fn convolve(rows: &[[[u8; 4]; SPAN + 2]; 3], i: usize, p: &FilterRect) -> [u8; 4] {
    let mut out = rows[1][i + 1];
    for (channel, value) in out.iter_mut().enumerate().take(3) {
        let mut sum = 0i32;
        for (dy, row) in rows.iter().enumerate() {
            for dx in 0..3 {
                sum += i32::from(p.coefficients[dy * 3 + dx]) * i32::from(row[i + dx][channel]);
            }
        }
        // CAST: clamped to a byte.
        *value = ((sum >> p.shift) + i32::from(p.bias)).clamp(0, 255) as u8;
    }
    out
}
