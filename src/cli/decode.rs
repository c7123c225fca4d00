//! `decode`: a debug blob in words.

use anyhow::{Context, Result, ensure};
use clap::Args;
use fencepost::decode::decode;
use std::io::Read;
use std::path::PathBuf;

/// A debug blob of the driver (DxgkDdiCollectDbgInfo) in words
#[derive(Args)]
#[command(name = "decode")]
pub struct Arguments {
    /// The file; -: standard input
    blob: PathBuf,
}

/// Bytes; a blob of this driver has some thousands.
const LARGEST: u64 = 64 << 20;

pub fn run(arguments: &Arguments) -> Result<bool> {
    let is_input = arguments.blob.as_os_str() == "-";
    let name = if is_input { "standard input".to_owned() } else { arguments.blob.display().to_string() };
    let mut bytes = Vec::new();
    let read = if is_input {
        std::io::stdin().take(LARGEST + 1).read_to_end(&mut bytes)
    } else {
        std::fs::File::open(&arguments.blob).and_then(|file| file.take(LARGEST + 1).read_to_end(&mut bytes))
    };
    read.with_context(|| format!("cannot read {name}"))?;
    ensure!(bytes.len() as u64 <= LARGEST, "{name} has more than {LARGEST} bytes: no debug blob");
    let decoded = decode(&bytes).with_context(|| format!("cannot decode {name}"))?;
    print!("{}", decoded.text);
    if decoded.missing != 0 {
        let (there, missing) = (bytes.len(), decoded.missing);
        eprintln!(
            "fencepost: the blob has {there} bytes, and at least {missing} are missing: it was cut, or had no more room"
        );
    }
    Ok(decoded.missing == 0)
}
