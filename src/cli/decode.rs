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
    /// The file
    blob: PathBuf,
}

/// Bytes; a blob of this driver has some thousands.
const LARGEST: u64 = 64 << 20;

pub fn run(arguments: &Arguments) -> Result<bool> {
    let file = std::fs::File::open(&arguments.blob);
    let mut bytes = Vec::new();
    let read = file.and_then(|file| file.take(LARGEST + 1).read_to_end(&mut bytes));
    read.with_context(|| format!("cannot read {}", arguments.blob.display()))?;
    ensure!(bytes.len() as u64 <= LARGEST, "{} has more than {LARGEST} bytes: no debug blob", arguments.blob.display());
    let decoded = decode(&bytes).with_context(|| format!("cannot decode {}", arguments.blob.display()))?;
    print!("{}", decoded.text);
    if decoded.missing != 0 {
        let (there, missing) = (bytes.len(), decoded.missing);
        eprintln!(
            "fencepost: the blob has {there} bytes, and at least {missing} are missing: it was cut, or had no more room"
        );
    }
    Ok(decoded.missing == 0)
}
