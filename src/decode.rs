//! `fencepost decode`: a debug blob of the driver's in words.

use anyhow::{Result, anyhow, bail, ensure};
use gpu_engine::counters::Totals;
use gpu_wire::debug_blob::{CONTROLS, HEADER, NAME, PHASES, SIGNATURE, size};
use std::fmt::Write;

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

/// The blob in words. One that ends early, behind its header and at the end of a word, is shown as far as it goes.
///
/// # Errors
/// When it does not begin as a blob of this version does, ends in its header or inside a word, or has something in it
/// that this driver never writes.
pub fn decode(blob: &[u8]) -> Result<Decoded> {
    ensure!(!blob.is_empty(), "the file is empty: no engine was reset when it was made, so there is no debug blob");
    let Some(rest) = blob.strip_prefix(&SIGNATURE) else {
        if blob.starts_with(&SIGNATURE[..NAME]) {
            bail!("this is a debug blob of another version; use the fencepost command of the driver's version");
        }
        bail!("this is no Fencepost debug blob: it does not begin with \"FNCPDBG\"");
    };
    let length = blob.len();
    ensure!(length >= HEADER, "this is a stump of a debug blob: {length} bytes, where its header alone has {HEADER}");
    let mut words = rest.chunks_exact(8).map(|c| u64::from_le_bytes(c.try_into().unwrap_or_default()));
    let mut next = || words.next();
    let mut head = || next().unwrap_or_default();
    let (reason, halted, nodes) = (head(), head(), head());
    let halted = stopped(halted).ok_or_else(|| anyhow!("{DAMAGED}: the adapter stopped for {halted:#x}"))?;
    ensure!(u32::try_from(reason).is_ok(), "{DAMAGED}: its reason is {reason:#x}, no bug check's code");
    ensure!((1..=MOST_NODES).contains(&nodes), "{DAMAGED}: it speaks of {nodes} nodes");
    // CAST: at most 64 nodes.
    let whole = size(nodes as usize, Totals::NAMES.len());
    ensure!(
        length >= whole || length.is_multiple_of(8),
        "this is a stump of a debug blob: it ends inside a word, after {length} of {whole} bytes"
    );
    // What a debugger writes may have the whole buffer, whose end the driver left alone.
    let behind = blob.get(whole..).unwrap_or_default();
    ensure!(behind.iter().all(|byte| *byte == 0), "{DAMAGED}: there is something behind its {whole} bytes");
    let mut text = format!("{:<24}{reason:#x}\n{:<24}{halted}\n{:<24}{nodes}\n", "reason", "stopped", "nodes");
    // A string takes every write.
    let mut line = |name: &str, value: &str| _ = writeln!(text, "{name:<24}{value}");
    'nodes: for node in 0..nodes {
        let Some(phase) = next() else { break };
        line("", "");
        line(&format!("node {node}"), name(node, phase, &PHASES)?);
        let Some(control) = next() else { break };
        line("  told to", name(node, control, &CONTROLS)?);
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

/// Why the adapter stopped before its time, in words (`kmd_core::halt::Reason::raw`).
fn stopped(word: u64) -> Option<String> {
    let which = word & u64::from(u32::MAX);
    Some(match word >> 32 {
        0 if which == 0 => "no".to_owned(),
        1 => format!("paging operation {which} cannot be carried out"),
        2 => format!("a page table in segment {which} cannot be updated"),
        3 if which == 0 => "a page table that is nowhere cannot be updated".to_owned(),
        4 if which == 0 => "page table entries that are nowhere cannot be copied".to_owned(),
        _ => return None,
    })
}

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
        let words = [0x141, 0, 1, 1, 1].into_iter().chain((0..Totals::NAMES.len() as u64).map(|n| n * 10));
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
    fn why_the_adapter_stopped_is_told_in_words() {
        use kmd_core::halt::Reason;
        use wddm_abi::DXGK_BUILDPAGINGBUFFER_OPERATION as Operation;
        let told = |reason: Reason| {
            let mut blob = blob();
            blob[16..24].copy_from_slice(&reason.raw().to_le_bytes());
            decode(&blob).unwrap().text
        };
        assert!(told(Reason::Operation(Operation(19))).contains("stopped                 paging operation 19"));
        assert!(told(Reason::Table { segment: 31 }).contains("stopped                 a page table in segment 31"));
        assert!(told(Reason::NoTable).contains("a page table that is nowhere"));
        assert!(told(Reason::Copy).contains("page table entries that are nowhere"));
        assert!(decode(&blob()).unwrap().text.contains("stopped                 no\n"));
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
        assert!(spoil(16, 5 << 32).contains("the adapter stopped for 0x500000000") && spoil(16, 1).contains("0x1"));
        assert!(spoil(24, 0).contains("0 nodes") && spoil(24, u64::MAX).contains("nodes"));
        assert!(spoil(32, 3).contains("node 0 has the state 0x3") && spoil(40, u64::MAX).contains("node 0"));
        let longer = [blob(), vec![1]].concat();
        assert!(decode(&longer).unwrap_err().to_string().contains("something behind"));
        let noise: Vec<u8> = (0..4096_u32).map(|n| (n.wrapping_mul(0x9E37_79B9) >> 24) as u8).collect();
        assert!(decode(&[&SIGNATURE[..], &noise].concat()).is_err());
    }

    #[test]
    fn something_else_is_refused() {
        assert!(decode(b"MZ").unwrap_err().to_string().contains("no Fencepost debug blob"));
        assert!(decode(b"FNCPDBG\x01").unwrap_err().to_string().contains("another version"));
    }
}
