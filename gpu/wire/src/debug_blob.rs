//! The layout of the driver's debug blobs, for the driver that writes them and the command that reads them: the
//! signature, then 64-bit little-endian words: the reason, why the adapter stopped before its time (`halt::Reason::raw`
//! of the driver; 0: it did not), the number of nodes, and per node its phase, its control word and its counters in the
//! order of `gpu_engine::counters::Totals::NAMES`.
//!
//! Source: `DxgkDdiCollectDbgInfo` (the buffer's content is the driver's).

/// First bytes of a blob: a name of 7 bytes, and the version of the layout.
pub const SIGNATURE: [u8; 8] = *b"FNCPDBG\x02";
/// Bytes of the name in [`SIGNATURE`].
pub const NAME: usize = 7;
/// Bytes of signature, reason, why the adapter stopped, and number of nodes.
pub const HEADER: usize = 32;
/// Words of a node in front of its counters: phase and control.
const NODE: usize = 2;
/// Phases in words, by number.
pub const PHASES: [&str; 3] = ["running", "held", "stopped"];
/// Control words in words, by number.
pub const CONTROLS: [&str; 3] = ["run", "hold", "stop"];

/// Bytes of a whole blob of `nodes` nodes with `counters` counters each.
pub const fn size(nodes: usize, counters: usize) -> usize {
    HEADER + nodes * (NODE + counters) * 8
}

/// The words of a blob behind its signature, in order. `nodes` yields phase, control and counters of each node.
pub fn words<'a, C: IntoIterator<Item = u64>>(
    reason: u32,
    halted: u64,
    nodes: impl ExactSizeIterator<Item = (u64, u64, C)> + 'a,
) -> impl Iterator<Item = u64> + 'a
where
    C::IntoIter: 'a,
{
    let head = [reason.into(), halted, nodes.len() as u64];
    head.into_iter().chain(nodes.flat_map(|(phase, control, counters)| [phase, control].into_iter().chain(counters)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_blob_has_the_size_that_it_says() {
        let nodes = [(0, 1, [7; 5]), (2, 0, [8; 5])];
        let mut words = words(0x141, 3, nodes.into_iter());
        assert_eq!([words.next(), words.next(), words.next()], [Some(0x141), Some(3), Some(2)]);
        assert_eq!(SIGNATURE.len() + (3 + words.count()) * 8, size(2, 5));
        assert_eq!(HEADER, size(0, 5));
    }
}
