//! Operations: what may move more bytes than one look at the attention word allows.
//!
//! Each goes on until it has done [`STEP`] of work and comes back with the rest of itself, a small value. Between steps
//! the engine looks for flushes, preemption and reset, and translates anew, so no host address outlives a step. Work is
//! counted as if it were bytes moved: what a run of bytes costs at least, and every page table and every mapping, count
//! as well (`tlb.rs`). So one-byte rows and pages that are scattered make a step shorter: behind [`STEP`] nothing is
//! mapped any more, and the step ends in front of what a translation was for; the next one finds what is mapped in the
//! lookaside buffer.

mod blit;
mod filter;
mod paging;

pub(crate) use self::blit::{copy_short, fill_short};
pub(crate) use self::paging::Scratch;

use crate::fault::Fault;
use crate::host::Host;
use crate::mmu::Mmu;
use crate::operation::Long;
pub(crate) use crate::tlb::STEP;
use gpu_wire::PAGE_SIZE;

/// What a run counts for at least: translating both sides, and the call that moves it.
const RUN: u64 = 512;

/// What became of a step.
#[derive(Clone, Copy)]
pub(crate) enum Advance {
    /// The operation is complete; bytes that the step moved.
    Done(u64),
    /// There is more.
    More(u64, Long),
}

/// Bytes from a row's current byte on that the rest of an operation goes through page by page, so that they may be
/// mapped at once: all `rows` rows, of which `row_left` bytes of the first are left, or that row alone where whole
/// pages lie between two rows. `rows` counts the current one.
fn reach(pitch: u32, row_bytes: u32, row_left: u32, rows: u32) -> u64 {
    let gap = u64::from(pitch.saturating_sub(row_bytes));
    let behind = if gap < PAGE_SIZE { u64::from(rows.saturating_sub(1)) * u64::from(pitch) } else { 0 };
    u64::from(row_left) + behind
}

/// One step of `long`.
///
/// # Errors
/// The fault of the address that cannot be reached. What lies before it may have been done.
pub(crate) fn advance<H: Host>(long: Long, mmu: &mut Mmu<'_, H>) -> Result<Advance, Fault> {
    match long {
        Long::Fill { at, left, all, pattern } => blit::fill(mmu, at, left, all, pattern),
        Long::Copy { from, to, left, all } => blit::copy(mmu, from, to, left, all),
        Long::Rect { packet, row, done } => blit::rect(mmu, packet, row, done),
        Long::Filter { packet, row, column } => filter::filter(mmu, packet, row, column),
        Long::Flush { .. } => Ok(Advance::More(0, long)),
    }
}
