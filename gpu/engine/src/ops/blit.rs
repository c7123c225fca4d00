//! FILL, COPY and COPY_RECT.

use super::{Advance, RUN, STEP, reach};
use crate::fault::Fault;
use crate::host::Host;
use crate::mmu::Mmu;
use crate::operation::Long;
use crate::tlb::Tlb;
use gpu_wire::packet::{Copy, CopyRect, Fill};
use gpu_wire::{GpuVa, PAGE_SIZE};

/// Bytes of a cache line.
const LINE: u64 = 64;

/// Bytes that the run which comes next, and writes from `to` on, may have, so that the step does not become longer than
/// [`STEP`]. It ends where a cache line does: stores that pass the caches by are slow where the next one begins inside
/// of a line.
fn room<H: Host>(mmu: &Mmu<'_, H>, to: GpuVa) -> u64 {
    let room = STEP.saturating_sub(mmu.tlb.work).max(RUN);
    room - to.0.wrapping_add(room) % LINE
}

/// Bytes of an operation that a stretch may have, at most.
const SHORT: u64 = 16 << 10;

/// Carries out a FILL that is short and for which nothing must be mapped, in the address space with the number `space`.
/// Returns the bytes that it filled; `None` where it is none of these, or the step has no room for it: nothing is done.
#[inline]
pub(crate) fn fill_short<H: Host>(tlb: &mut Tlb<H>, space: u64, packet: Fill) -> Option<u64> {
    let Long::Fill { at, all, pattern, .. } = Long::fill(packet).ok()? else { return None };
    let span = short(tlb, all).then(|| tlb.cached_span(space, at, all, true))??;
    span.fill_part(pattern, all);
    tlb.work += all.max(RUN);
    Some(all)
}

/// The same of a COPY.
#[inline]
pub(crate) fn copy_short<H: Host>(tlb: &mut Tlb<H>, space: u64, packet: Copy) -> Option<u64> {
    let Long::Copy { from, to, all, .. } = Long::copy(packet).ok()? else { return None };
    let source = short(tlb, all).then(|| tlb.cached_span(space, from, all, false))??;
    tlb.cached_span(space, to, all, true)?.copy_part(source, all);
    tlb.work += all.max(RUN);
    Some(all)
}

/// Returns whether an operation of `all` bytes is short, and the step has room for it.
fn short<H: Host>(tlb: &Tlb<H>, all: u64) -> bool {
    all <= SHORT && tlb.work.saturating_add(all) <= STEP
}

pub(super) fn fill<H: Host>(
    mmu: &mut Mmu<'_, H>,
    mut at: GpuVa,
    mut left: u64,
    all: u64,
    pattern: u32,
) -> Result<Advance, Fault> {
    let mut moved = 0;
    while left != 0 {
        let Some(view) = mmu.translate_in_step(at, left, true)? else {
            return Ok(Advance::More(moved, Long::Fill { at, left, all, pattern }));
        };
        let span = mmu.span(view).ok_or(Fault::address(at, true))?.part(0, room(mmu, at));
        span.fill_part(pattern, all);
        let n = span.len();
        mmu.tlb.work += n.max(RUN);
        (moved, at, left) = (moved + n, GpuVa(at.0 + n), left - n);
        if mmu.tlb.work >= STEP && left != 0 {
            return Ok(Advance::More(moved, Long::Fill { at, left, all, pattern }));
        }
    }
    Ok(Advance::Done(moved))
}

pub(super) fn copy<H: Host>(
    mmu: &mut Mmu<'_, H>,
    mut from: GpuVa,
    mut to: GpuVa,
    mut left: u64,
    all: u64,
) -> Result<Advance, Fault> {
    let mut moved = 0;
    while left != 0 {
        let Some(n) = run(mmu, (from, left), (to, left), left, all)? else {
            return Ok(Advance::More(moved, Long::Copy { from, to, left, all }));
        };
        (moved, from, to, left) = (moved + n, GpuVa(from.0 + n), GpuVa(to.0 + n), left - n);
        if mmu.tlb.work >= STEP && left != 0 {
            return Ok(Advance::More(moved, Long::Copy { from, to, left, all }));
        }
    }
    Ok(Advance::Done(moved))
}

pub(super) fn rect<H: Host>(
    mmu: &mut Mmu<'_, H>,
    packet: CopyRect,
    mut row: u32,
    mut done: u32,
) -> Result<Advance, Fault> {
    let mut moved = 0;
    // Rows of less than a page share their cache lines with what lies beside them: these are not passed by.
    let rows_at_once = if packet.row_bytes < PAGE_SIZE as u32 { 1 } else { packet.rows };
    let all = u64::from(packet.row_bytes) * u64::from(rows_at_once);
    while row < packet.rows && packet.row_bytes != 0 {
        let at = |base: u64, pitch: u32| GpuVa(base + u64::from(row) * u64::from(pitch) + u64::from(done));
        let from = at(packet.source, packet.source_pitch);
        let to = at(packet.destination, packet.destination_pitch);
        let (left, rows) = (packet.row_bytes - done, packet.rows - row);
        let reach = |pitch| reach(pitch, packet.row_bytes, left, rows);
        let (from, to) = ((from, reach(packet.source_pitch)), (to, reach(packet.destination_pitch)));
        let Some(n) = run(mmu, from, to, left.into(), all)? else {
            return Ok(Advance::More(moved, Long::Rect { packet, row, done }));
        };
        moved += n;
        // CAST: at most row_bytes.
        done += n as u32;
        if done == packet.row_bytes {
            (row, done) = (row + 1, 0);
        }
        if mmu.tlb.work >= STEP && row < packet.rows {
            return Ok(Advance::More(moved, Long::Rect { packet, row, done }));
        }
    }
    Ok(Advance::Done(moved))
}

/// Copies the first of `want` bytes that are contiguous on both sides, and returns how many. Each side is an address
/// and how many bytes from there on the operation is about; the copy that they belong to is of `all` bytes. `None`: the
/// step ends in front of it.
fn run<H: Host>(
    mmu: &mut Mmu<'_, H>,
    from: (GpuVa, u64),
    to: (GpuVa, u64),
    want: u64,
    all: u64,
) -> Result<Option<u64>, Fault> {
    loop {
        let Some(source) = mmu.translate_in_step(from.0, from.1, false)? else { return Ok(None) };
        let Some(destination) = mmu.translate_in_step(to.0, to.1, true)? else { return Ok(None) };
        // Translating the second may have made room by dropping the first; then both are translated again.
        if let (Some(source), Some(destination)) = (mmu.span(source), mmu.span(destination)) {
            let n = destination.part(0, want.min(room(mmu, to.0))).copy_part(source, all);
            mmu.tlb.work += n.max(RUN);
            return Ok(Some(n));
        }
    }
}
