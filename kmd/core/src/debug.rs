//! Debug information: a small blob of plain numbers. Source: `DxgkDdiCollectDbgInfo`.
//!
//! Any IRQL, at any time: nothing is locked or allocated. The layout is [`gpu_wire::debug_blob`].

use crate::adapter::Started;
use crate::platform::Platform;
use core::sync::atomic::Ordering;
use gpu_engine::node::{Control, Phase};
use gpu_wire::debug_blob;

const _: () = assert!(
    Phase::Running as usize == 0 && Phase::Held as usize == 1 && Phase::Stopped as usize == 2,
    "debug_blob::PHASES names them in this order"
);
const _: () = assert!(
    Control::Run as usize == 0 && Control::Hold as usize == 1 && Control::Stop as usize == 2,
    "debug_blob::CONTROLS names them in this order"
);

/// Writes as much of the blob as fits. Returns the number of bytes written.
pub fn collect<P: Platform>(started: &Started<P>, reason: u32, buffer: &mut [u8]) -> usize {
    let nodes = started.gpu.nodes.iter();
    let nodes = nodes.map(|node| (node.phase() as u64, node.control() as u64, node.counters.read().values()));
    let mut used = 0;
    let mut put = |bytes: &[u8]| {
        if let Some(to) = buffer.get_mut(used..).and_then(|rest| rest.get_mut(..bytes.len())) {
            to.copy_from_slice(bytes);
            used = used.wrapping_add(bytes.len());
        }
    };
    put(&debug_blob::SIGNATURE);
    let halted = started.halted.load(Ordering::Relaxed);
    debug_blob::words(reason, halted, nodes).for_each(|word| put(&word.to_le_bytes()));
    used
}
