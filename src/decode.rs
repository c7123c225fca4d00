//! `fencepost decode`: a debug blob of the driver's in words.

use anyhow::{Result, anyhow, bail, ensure};
use gpu_engine::counters::Totals;
use std::fmt::Write;

/// First bytes of a blob, version included.
const SIGNATURE: [u8; 8] = *b"FNCPDBG\x01";

/// A blob in words.
#[derive(Debug)]
pub struct Decoded {
    /// The words.
    pub text: String,
    /// How many bytes are missing at the end; 0 for a whole blob.
    pub missing: usize,
}

/// Nodes that a driver may have; this one has three.
const MOST_NODES: u64 = 64;

/// Bytes of signature, reason and number of nodes.
const HEADER: usize = 24;

/// The blob in words. One that ends early, behind its header and at the end of a word, is shown as far as it goes.
///
/// # Errors
/// When it does not begin as a blob of this version does, ends in its header or inside a word, or has something in it
/// that this driver never writes.
pub fn decode(blob: &[u8]) -> Result<Decoded> {
    let Some(rest) = blob.strip_prefix(&SIGNATURE) else {
        if blob.starts_with(&SIGNATURE[..7]) {
            bail!("this is a debug blob of another version; use the fencepost command of the driver's version");
        }
        bail!("this is no Fencepost debug blob: it does not begin with \"FNCPDBG\"");
    };
    let length = blob.len();
    ensure!(length >= HEADER, "this is a stump of a debug blob: {length} bytes, where its header alone has {HEADER}");
    let mut words = rest.chunks_exact(8).map(|c| u64::from_le_bytes(c.try_into().unwrap_or_default()));
    let mut next = || words.next();
    let (reason, nodes) = (next().unwrap_or_default(), next().unwrap_or_default());
    ensure!(u32::try_from(reason).is_ok(), "{DAMAGED}: its reason is {reason:#x}, no bug check's code");
    ensure!((1..=MOST_NODES).contains(&nodes), "{DAMAGED}: it speaks of {nodes} nodes");
    // CAST: at most 64 nodes.
    let whole = HEADER + nodes as usize * (2 + Totals::NAMES.len()) * 8;
    ensure!(
        length >= whole || length.is_multiple_of(8),
        "this is a stump of a debug blob: it ends inside a word, after {length} of {whole} bytes"
    );
    // What a debugger writes may have the whole buffer, whose end the driver left alone.
    let behind = blob.get(whole..).unwrap_or_default();
    ensure!(behind.iter().all(|byte| *byte == 0), "{DAMAGED}: there is something behind its {whole} bytes");
    let mut text = format!("{:<24}{reason:#x}\n{:<24}{nodes}\n", "reason", "nodes");
    // A string takes every write.
    let mut line = |name: &str, value: &str| _ = writeln!(text, "{name:<24}{value}");
    'nodes: for node in 0..nodes {
        let Some(phase) = next() else { break };
        line("", "");
        line(&format!("node {node}"), name(node, phase, &["running", "held", "stopped"])?);
        let Some(control) = next() else { break };
        line("  told to", name(node, control, &["run", "hold", "stop"])?);
        for counter in Totals::NAMES {
            let Some(count) = next() else { break 'nodes };
            line(&format!("  {}", counter.replace('_', " ")), &count.to_string());
        }
    }
    let missing = whole.saturating_sub(length);
    if missing != 0 {
        text.push_str("(the blob ends here)\n");
    }
    Ok(Decoded { text, missing })
}

/// What is said of a blob that the driver did not write so.
const DAMAGED: &str = "this is no debug blob that a driver of this version wrote";

fn name(node: u64, word: u64, names: &[&'static str]) -> Result<&'static str> {
    let name = usize::try_from(word).ok().and_then(|at| names.get(at));
    name.copied().ok_or_else(|| anyhow!("{DAMAGED}: node {node} has the state {word:#x}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A blob of one node that is held.
    fn blob() -> Vec<u8> {
        let mut blob = SIGNATURE.to_vec();
        let words = [0x141, 1, 1, 1].into_iter().chain((0..Totals::NAMES.len() as u64).map(|n| n * 10));
        blob.extend(words.flat_map(u64::to_le_bytes));
        blob
    }

    #[test]
    fn a_blob_is_told_in_words() {
        let mut padded = blob();
        padded.extend([0; 21]);
        for blob in [blob(), padded] {
            let Decoded { text, missing } = decode(&blob).unwrap();
            assert!(text.contains("reason                  0x141"));
            assert!(text.contains("node 0                  held"));
            assert!(text.contains("  rings                 10"));
            assert!(missing == 0 && !text.contains("ends here"));
        }
    }

    #[test]
    fn a_cut_blob_is_shown_as_far_as_it_goes_and_is_not_whole() {
        let whole = blob();
        for length in (HEADER..whole.len()).step_by(8) {
            let Decoded { text, missing } = decode(&whole[..length]).unwrap();
            assert!(text.ends_with("ends here)\n"), "{text}");
            assert_eq!(missing, whole.len() - length);
        }
    }

    #[test]
    fn a_stump_is_refused() {
        let whole = blob();
        for length in (SIGNATURE.len()..HEADER).chain((HEADER..whole.len()).filter(|length| length % 8 != 0)) {
            assert!(decode(&whole[..length]).unwrap_err().to_string().contains("stump"), "{length}");
        }
    }

    #[test]
    fn noise_behind_a_signature_is_refused() {
        let spoil = |at: usize, word: u64| {
            let mut blob = blob();
            blob[at..at + 8].copy_from_slice(&word.to_le_bytes());
            decode(&blob).unwrap_err().to_string()
        };
        assert!(spoil(8, 1 << 32).contains("its reason is 0x100000000"));
        assert!(spoil(16, 0).contains("0 nodes") && spoil(16, u64::MAX).contains("nodes"));
        assert!(spoil(24, 3).contains("node 0 has the state 0x3") && spoil(32, u64::MAX).contains("node 0"));
        let longer = [blob(), vec![1]].concat();
        assert!(decode(&longer).unwrap_err().to_string().contains("something behind"));
        let noise: Vec<u8> = (0..4096_u32).map(|n| (n.wrapping_mul(0x9E37_79B9) >> 24) as u8).collect();
        assert!(decode(&[&SIGNATURE[..], &noise].concat()).is_err());
    }

    #[test]
    fn something_else_is_refused() {
        assert!(decode(b"MZ").unwrap_err().to_string().contains("no Fencepost debug blob"));
        assert!(decode(b"FNCPDBG\x02").unwrap_err().to_string().contains("another version"));
    }
}
