//! What the driver says by its private escapes: the engines' counters, and what its start was like.

use crate::scenario::Raw;
use crate::world::User;
use anyhow::{Context, Result};
pub use gpu_wire::private::{EscapeCounters, EscapeStart};
use gpu_wire::private::{EscapeHeader, MAGIC, escape_command};
use wddm_abi::{D3DKMT_ESCAPE, D3DKMT_ESCAPETYPE, LUID};

/// Reads the engines' counters as `user`, of the adapter with `luid`.
///
/// # Errors
/// When the adapter cannot be opened, the driver refuses the escape, or its answer is no block of counters.
pub fn read(user: &User, luid: LUID) -> Result<EscapeCounters> {
    read_by(&Raw::open(&user.process, luid)?)
}

/// As [`read`], by an adapter that is open.
///
/// # Errors
/// When the driver refuses the escape, or its answer is no block of counters.
pub fn read_by(raw: &Raw) -> Result<EscapeCounters> {
    let block = ask(raw, escape_command::COUNTERS, size_of::<EscapeCounters>())?;
    EscapeCounters::read(&block).context("the counters' escape returned something else")
}

/// Reads which features and queries the OS asked for at the start, what the driver answered and what the OS granted.
///
/// # Errors
/// When the driver refuses the escape, or its answer is no block of that kind.
pub fn start(raw: &Raw) -> Result<EscapeStart> {
    let block = ask(raw, escape_command::START, size_of::<EscapeStart>())?;
    EscapeStart::read(&block).context("the start's escape returned something else")
}

/// Asks for `command` with a block of `size` bytes, and returns the block.
///
/// # Errors
/// When the driver refuses the escape.
pub fn ask(raw: &Raw, command: u32, size: usize) -> Result<Vec<u8>> {
    // CAST: at most some hundred bytes.
    let header =
        EscapeHeader { magic: MAGIC, interface_version: gpu_wire::INTERFACE_VERSION, command, size: size as u32 };
    let mut block = vec![0; size];
    block[..header.bytes().len()].copy_from_slice(header.bytes());
    let mut record = D3DKMT_ESCAPE::zeroed();
    record.hAdapter = raw.adapter;
    record.Type = D3DKMT_ESCAPETYPE::D3DKMT_ESCAPE_DRIVERPRIVATE;
    record.pPrivateDriverData = block.as_mut_ptr().cast();
    record.PrivateDriverDataSize = header.size;
    raw.ok(raw.thunks.D3DKMTEscape, &mut record).with_context(|| format!("escape {command}"))?;
    Ok(block)
}
