//! `decode`: a debug blob in words.

use anyhow::{Context, Result, ensure};
use clap::Args;
use fencepost::decode::{decode, in_dump, is_dump};
use std::fs::File;
use std::io::Read;
use std::path::PathBuf;

/// A debug blob of the driver (DxgkDdiCollectDbgInfo) in words, or every one that a dump of Windows holds
#[derive(Args)]
#[command(name = "decode")]
pub struct Arguments {
    /// The file: a blob, or a dump (of a timeout: C:\Windows\LiveKernelReports\WATCHDOG); -: standard input
    blob: PathBuf,
}

/// Bytes; a blob of this driver has some thousands.
const LARGEST: u64 = 64 << 20;
/// Bytes that tell a dump.
const MAGIC: u64 = 4;

pub fn run(arguments: &Arguments) -> Result<bool> {
    let is_input = arguments.blob.as_os_str() == "-";
    let name = if is_input { "standard input".to_owned() } else { arguments.blob.display().to_string() };
    let cannot = || format!("cannot read {name}");
    // Opened once: what was read of a pipe is gone.
    let mut from: Box<dyn Read> = match is_input {
        true => Box::new(std::io::stdin()),
        false => Box::new(File::open(&arguments.blob).with_context(cannot)?),
    };
    let mut bytes = Vec::new();
    from.by_ref().take(MAGIC).read_to_end(&mut bytes).with_context(cannot)?;
    if is_dump(&bytes) {
        return of_dump(bytes.chain(from), &name);
    }
    from.take(LARGEST + 1).read_to_end(&mut bytes).with_context(cannot)?;
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

/// Every blob in a dump. Returns whether each can be decoded; one that cannot hides no other.
fn of_dump(dump: impl Read, name: &str) -> Result<bool> {
    let blobs = in_dump(dump).with_context(|| format!("cannot read {name}"))?;
    let count = blobs.len();
    ensure!(
        count != 0,
        "{name} is a dump without a debug blob of this version: it is cut, or no timeout's of this driver, or the \
         model's, which has one where a rule is broken"
    );
    let mut all = true;
    for (number, blob) in (1..).zip(&blobs) {
        println!("blob {number} of {count}, {} bytes", blob.len());
        match decode(blob) {
            Ok(decoded) => print!("{}", decoded.text),
            Err(why) => {
                eprintln!("fencepost: cannot decode blob {number} of {name}: {why:#}");
                all = false;
            }
        }
    }
    Ok(all)
}
