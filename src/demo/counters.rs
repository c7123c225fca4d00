//! What the driver says by its private escapes: the engines' counters, and what its start was like.

use crate::scenario::Raw;
use crate::world::User;
use anyhow::{Context, Result};
pub use gpu_wire::private::{EscapeCounters, EscapeStart};
use gpu_wire::private::{EscapeHeader, MAGIC, escape_command};
use wddm_abi::{D3DKMT_ESCAPE, D3DKMT_ESCAPETYPE, LUID};

/// Reads the counters as `user`.
///
/// # Errors
/// When the driver refuses the escape.
pub fn read(user: &User, luid: LUID) -> Result<EscapeCounters> {
    let raw = Raw::open(&user.process, luid)?;
    let block = ask(&raw, escape_command::COUNTERS, size_of::<EscapeCounters>())?;
    EscapeCounters::read(&block).context("the counters' escape returned something else")
}

/// Reads what was asked, answered and granted at the start.
///
/// # Errors
/// When the driver refuses the escape.
pub fn start(raw: &Raw) -> Result<EscapeStart> {
    let block = ask(raw, escape_command::START, size_of::<EscapeStart>())?;
    EscapeStart::read(&block).context("the start's escape returned something else")
}

fn ask(raw: &Raw, command: u32, size: usize) -> Result<Vec<u8>> {
    // CAST: a hundred bytes.
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
