//! What the driver says by its private escapes: the engines' counters, and what its start was like.

use crate::scenario::Raw;
use crate::world::User;
use anyhow::Result;
use portable_cases::escape;
pub use portable_cases::escape::{EscapeCounters, EscapeStart};
use wddm_abi::{D3DKMT_ESCAPE, LUID};

/// Reads the engines' counters as `user`, of the adapter with `luid`.
///
/// # Errors
/// When the adapter cannot be opened, the driver refuses the escape, or its answer is no block of counters.
pub fn read(user: &User, luid: LUID) -> Result<EscapeCounters> {
    read_by(&Raw::open(&user.process, luid)?)
}

fn send(raw: &Raw) -> impl FnMut(&mut D3DKMT_ESCAPE) -> Result<()> {
    |record| Ok(raw.ok(raw.thunks.D3DKMTEscape, record)?)
}

/// As [`read`], by an adapter that is open.
///
/// # Errors
/// When the driver refuses the escape, or its answer is no block of counters.
pub fn read_by(raw: &Raw) -> Result<EscapeCounters> {
    escape::counters(raw.adapter, &mut send(raw))
}

/// Reads which features and queries the OS asked for at the start, what the driver answered and what the OS granted.
///
/// # Errors
/// When the driver refuses the escape, or its answer is no block of that kind.
pub fn start(raw: &Raw) -> Result<EscapeStart> {
    escape::start(raw.adapter, &mut send(raw))
}

/// Asks for `command` with a block of `size` bytes, and returns the block.
///
/// # Errors
/// When the driver refuses the escape.
pub fn ask(raw: &Raw, command: u32, size: usize) -> Result<Vec<u8>> {
    escape::ask(raw.adapter, command, size, &mut send(raw))
}
