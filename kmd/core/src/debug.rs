//! Debug information: a small blob of plain numbers. Source: `DxgkDdiCollectDbgInfo`.
//!
//! Any IRQL, at any time: nothing is locked or allocated. Format: 8 bytes "FNCPDBG\x02", then 64-bit little-endian
//! words: the reason, why the adapter stopped before its time ([`crate::halt::Reason::raw`]; 0: it did not), the number
//! of nodes, and per node its phase, its control word and its counters in the order of
//! [`gpu_engine::counters::Totals::NAMES`].

use crate::adapter::Started;
use crate::platform::Platform;
use core::sync::atomic::Ordering;

/// First bytes of a blob: name and version.
pub const SIGNATURE: [u8; 8] = *b"FNCPDBG\x02";

/// Writes as much of the blob as fits; how many bytes.
pub fn collect<P: Platform>(started: &Started<P>, reason: u32, buffer: &mut [u8]) -> usize {
    let mut used = 0;
    let mut put = |bytes: &[u8]| {
        if let Some(to) = buffer.get_mut(used..used + bytes.len()) {
            to.copy_from_slice(bytes);
            used += bytes.len();
        }
    };
    put(&SIGNATURE);
    put(&u64::from(reason).to_le_bytes());
    put(&started.halted.load(Ordering::Relaxed).to_le_bytes());
    put(&(started.gpu.nodes.len() as u64).to_le_bytes());
    for node in started.gpu.nodes.iter() {
        put(&(node.phase() as u64).to_le_bytes());
        put(&(node.control() as u64).to_le_bytes());
        for word in node.counters.read().values() {
            put(&word.to_le_bytes());
        }
    }
    used
}
