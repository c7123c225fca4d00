//! FILTER_RECT: a 3×3 convolution of RGBA8, row by row.
//!
//! Three source rows are copied to private memory, so the arithmetic never touches shared pages and cannot be disturbed
//! by a process that changes its picture meanwhile.

use super::{Advance, CHUNK, Long, reach};
use crate::address_space::AddressSpace;
use crate::engine::Core;
use crate::fault::Fault;
use crate::gpu::Gpu;
use crate::host::Host;
use gpu_wire::GpuVa;
use gpu_wire::packet::FilterRect;

/// Widest image, in pixels: what the engine's row buffers hold.
pub(crate) const MAX_WIDTH: u32 = 16384;

/// Pixels filtered between two reads of source rows.
const SPAN: usize = 64;

impl<H: Host> Core<H> {
    pub(super) fn filter_chunk(
        &mut self,
        gpu: &Gpu<H>,
        space: &AddressSpace<H>,
        packet: FilterRect,
        mut row: u32,
    ) -> Result<Advance, Fault> {
        let mut moved = 0;
        while row < packet.height && packet.width != 0 {
            self.filter_row(gpu, space, &packet, packet.y + row)?;
            row += 1;
            moved += u64::from(packet.width) * 4 * 4;
            if moved >= CHUNK && row < packet.height {
                return Ok(Advance::More(moved, Long::Filter { packet, row }));
            }
        }
        Ok(Advance::Done(moved))
    }

    fn filter_row(&mut self, gpu: &Gpu<H>, space: &AddressSpace<H>, p: &FilterRect, y: u32) -> Result<(), Fault> {
        let last_row = p.image_height - 1;
        let rows = [y.saturating_sub(1), y, (y + 1).min(last_row)];
        let mut x = p.x;
        while x < p.x + p.width {
            // CAST: at most SPAN.
            let n = (p.x + p.width - x).min(SPAN as u32);
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
                self.tlb.translate(gpu, space, at, reach, false)?;
                self.tlb.read(gpu, space, at, pixels.as_flattened_mut())?;
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
            self.tlb.translate(gpu, space, to, reach, true)?;
            self.write(gpu, space, to, out.as_flattened().get(..n as usize * 4).unwrap_or_default())?;
            x += n;
        }
        Ok(())
    }

    fn write(&mut self, gpu: &Gpu<H>, space: &AddressSpace<H>, mut va: GpuVa, mut from: &[u8]) -> Result<(), Fault> {
        while !from.is_empty() {
            let view = self.tlb.translate(gpu, space, va, from.len() as u64, true)?;
            let n = self.tlb.span(view).map_or(0, |s| s.write(from));
            if n == 0 {
                return Err(Fault::address(va, true));
            }
            from = from.get(n..).unwrap_or_default();
            va = GpuVa(va.0 + n as u64);
        }
        Ok(())
    }
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
