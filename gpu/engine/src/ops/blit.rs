//! FILL, COPY and COPY_RECT.

use super::{Advance, CHUNK, Long, reach};
use crate::address_space::AddressSpace;
use crate::engine::Core;
use crate::fault::Fault;
use crate::gpu::Gpu;
use crate::host::Host;
use gpu_wire::GpuVa;
use gpu_wire::packet::CopyRect;

impl<H: Host> Core<H> {
    pub(super) fn fill_chunk(
        &mut self,
        gpu: &Gpu<H>,
        space: &AddressSpace<H>,
        at: GpuVa,
        left: u64,
        pattern: u32,
    ) -> Result<Advance, Fault> {
        if left == 0 {
            return Ok(Advance::Done(0));
        }
        let view = self.tlb.translate(gpu, space, at, left, true)?;
        let span = self.tlb.span(view).ok_or(Fault::address(at, true))?.part(0, CHUNK);
        span.fill(pattern);
        let n = span.len();
        Ok(more(n, left, Long::Fill { at: GpuVa(at.0 + n), left: left - n, pattern }))
    }

    pub(super) fn copy_chunk(
        &mut self,
        gpu: &Gpu<H>,
        space: &AddressSpace<H>,
        from: GpuVa,
        to: GpuVa,
        left: u64,
    ) -> Result<Advance, Fault> {
        if left == 0 {
            return Ok(Advance::Done(0));
        }
        let n = self.copy_run(gpu, space, (from, left), (to, left), left.min(CHUNK))?;
        Ok(more(n, left, Long::Copy { from: GpuVa(from.0 + n), to: GpuVa(to.0 + n), left: left - n }))
    }

    pub(super) fn rect_chunk(
        &mut self,
        gpu: &Gpu<H>,
        space: &AddressSpace<H>,
        packet: CopyRect,
        mut row: u32,
        mut done: u32,
    ) -> Result<Advance, Fault> {
        let mut moved = 0;
        while row < packet.rows && packet.row_bytes != 0 {
            let at = |base: u64, pitch: u32| GpuVa(base + u64::from(row) * u64::from(pitch) + u64::from(done));
            let from = at(packet.source, packet.source_pitch);
            let to = at(packet.destination, packet.destination_pitch);
            let (left, rows) = (packet.row_bytes - done, packet.rows - row);
            let reach = |pitch| reach(pitch, packet.row_bytes, left, rows);
            let (from, to) = ((from, reach(packet.source_pitch)), (to, reach(packet.destination_pitch)));
            let n = self.copy_run(gpu, space, from, to, u64::from(left).min(CHUNK))?;
            moved += n;
            // CAST: at most row_bytes.
            done += n as u32;
            if done == packet.row_bytes {
                (row, done) = (row + 1, 0);
            }
            if moved >= CHUNK {
                return Ok(Advance::More(moved, Long::Rect { packet, row, done }));
            }
        }
        Ok(Advance::Done(moved))
    }

    /// Copies the first of `want` bytes that are contiguous on both sides, and returns how many. Each side is an
    /// address and how many bytes from there on the operation is about.
    fn copy_run(
        &mut self,
        gpu: &Gpu<H>,
        space: &AddressSpace<H>,
        from: (GpuVa, u64),
        to: (GpuVa, u64),
        want: u64,
    ) -> Result<u64, Fault> {
        loop {
            let source = self.tlb.translate(gpu, space, from.0, from.1, false)?;
            let destination = self.tlb.translate(gpu, space, to.0, to.1, true)?;
            // Translating the second may have made room by dropping the first; then both are translated again.
            if let (Some(source), Some(destination)) = (self.tlb.span(source), self.tlb.span(destination)) {
                return Ok(destination.part(0, want).copy_from(source));
            }
        }
    }
}

fn more(moved: u64, left: u64, rest: Long) -> Advance {
    if moved == left { Advance::Done(moved) } else { Advance::More(moved, rest) }
}
