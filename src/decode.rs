//! `fencepost decode`: a debug blob of the driver's in words.

use anyhow::{Result, bail};
use gpu_engine::counters::Totals;
use std::fmt::Write;

/// First bytes of a blob, version included.
const SIGNATURE: [u8; 8] = *b"FNCPDBG\x01";

/// The blob in words.
///
/// # Errors
/// When it does not begin as a blob of this version does. One that ends early is shown as far as it goes.
pub fn decode(blob: &[u8]) -> Result<String> {
    let Some(rest) = blob.strip_prefix(&SIGNATURE) else {
        if blob.starts_with(&SIGNATURE[..7]) {
            bail!("this is a debug blob of another version; use the fencepost command of the driver's version");
        }
        bail!("this is no Fencepost debug blob: it does not begin with \"FNCPDBG\"");
    };
    let mut words = rest.chunks_exact(8).map(|c| u64::from_le_bytes(c.try_into().unwrap_or_default()));
    let mut text = String::new();
    let mut line = |name: &str, value: Option<String>| {
        let value = value?;
        // A string takes every write.
        let _ = writeln!(text, "{name:<24}{value}");
        Some(())
    };
    let mut all = || {
        line("reason", words.next().map(|w| format!("{w:#x}")))?;
        let nodes = words.next()?;
        line("nodes", Some(nodes.to_string()))?;
        for node in 0..nodes.min(64) {
            line("", Some(String::new()))?;
            line(&format!("node {node}"), words.next().map(|w| name(w, &["running", "held", "stopped"])))?;
            line("  told to", words.next().map(|w| name(w, &["run", "hold", "stop"])))?;
            for counter in Totals::NAMES {
                line(&format!("  {}", counter.replace('_', " ")), words.next().map(|w| w.to_string()))?;
            }
        }
        Some(())
    };
    if all().is_none() {
        text.push_str("(the blob ends here: the operating system gave the driver no more room)\n");
    }
    Ok(text)
}

fn name(word: u64, names: &[&str]) -> String {
    usize::try_from(word)
        .ok()
        .and_then(|i| names.get(i))
        .map_or_else(|| format!("unknown ({word})"), |n| (*n).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_blob_is_told_in_words() {
        let mut blob = SIGNATURE.to_vec();
        let words = [0x141, 1, 1, 1].into_iter().chain((0..Totals::NAMES.len() as u64).map(|n| n * 10));
        blob.extend(words.flat_map(u64::to_le_bytes));
        let text = decode(&blob).unwrap();
        assert!(text.contains("reason                  0x141"));
        assert!(text.contains("node 0                  held"));
        assert!(text.contains("  rings                 10"));
        assert!(!text.contains("ends here"));
    }

    #[test]
    fn a_cut_blob_is_shown_as_far_as_it_goes() {
        let mut blob = SIGNATURE.to_vec();
        blob.extend([7_u64, 3].iter().flat_map(|w| w.to_le_bytes()));
        assert!(decode(&blob).unwrap().ends_with("no more room)\n"));
    }

    #[test]
    fn something_else_is_refused() {
        assert!(decode(b"MZ").unwrap_err().to_string().contains("no Fencepost debug blob"));
        assert!(decode(b"FNCPDBG\x02").unwrap_err().to_string().contains("another version"));
    }
}
