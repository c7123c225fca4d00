//! The engines' counters, by the driver's private escape.

use crate::scenario::Raw;
use crate::world::User;
use anyhow::{Context, Result};
pub use gpu_wire::private::EscapeCounters;
use gpu_wire::private::{EscapeHeader, MAGIC, escape_command};
use wddm_abi::{D3DKMT_ESCAPE, D3DKMT_ESCAPETYPE, LUID};

/// Reads them as `user`.
///
/// # Errors
/// When the driver refuses the escape.
pub fn read(user: &User, luid: LUID) -> Result<EscapeCounters> {
    let raw = Raw::open(&user.process, luid)?;
    // CAST: 144.
    let size = size_of::<EscapeCounters>() as u32;
    let header = EscapeHeader {
        magic: MAGIC,
        interface_version: gpu_wire::INTERFACE_VERSION,
        command: escape_command::COUNTERS,
        size,
    };
    let mut block = vec![0; size as usize];
    block[..header.bytes().len()].copy_from_slice(header.bytes());
    let mut record = D3DKMT_ESCAPE::zeroed();
    record.hAdapter = raw.adapter;
    record.Type = D3DKMT_ESCAPETYPE::D3DKMT_ESCAPE_DRIVERPRIVATE;
    record.pPrivateDriverData = block.as_mut_ptr().cast();
    record.PrivateDriverDataSize = size;
    raw.ok(raw.thunks.D3DKMTEscape, &mut record).context("the counters' escape")?;
    EscapeCounters::read(&block).context("the counters' escape returned something else")
}
