//! `decode`: a debug blob in words.

use anyhow::{Context, Result};
use clap::Args;
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
    print!("{}", fencepost::decode::decode(&bytes)?);
    Ok(true)
}
