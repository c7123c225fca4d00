//! `decode`: a debug blob in words.

use anyhow::{Context, Result};
use clap::Args;
use fencepost::decode::decode;
use std::path::PathBuf;

/// A debug blob of the driver (DxgkDdiCollectDbgInfo) in words
#[derive(Args)]
#[command(name = "decode")]
pub struct Arguments {
    /// The file
    blob: PathBuf,
}

pub fn run(arguments: &Arguments) -> Result<bool> {
    let bytes = std::fs::read(&arguments.blob).with_context(|| format!("cannot read {}", arguments.blob.display()))?;
    let decoded = decode(&bytes).with_context(|| format!("cannot decode {}", arguments.blob.display()))?;
    print!("{}", decoded.text);
    if decoded.missing != 0 {
        let (there, missing) = (bytes.len(), decoded.missing);
        eprintln!("fencepost: the blob has {there} bytes, and {missing} are missing: it was cut, or had no more room");
    }
    Ok(decoded.missing == 0)
}
