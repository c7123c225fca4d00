//! `decode`: a debug blob in words.

use anyhow::{Context, Result, ensure};
use clap::Args;
use fencepost::decode::{decode, in_dump, is_dump};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// A debug blob of the driver (DxgkDdiCollectDbgInfo) in words, or every one that a dump of Windows holds
#[derive(Args)]
#[command(name = "decode")]
pub struct Arguments {
    /// The file: a blob, or a dump (of a timeout: C:\Windows\LiveKernelReports\WATCHDOG); -: a blob from standard input
    blob: PathBuf,
}

/// Bytes; a blob of this driver has some thousands.
const LARGEST: u64 = 64 << 20;

pub fn run(arguments: &Arguments) -> Result<bool> {
    let is_input = arguments.blob.as_os_str() == "-";
    let name = if is_input { "standard input".to_owned() } else { arguments.blob.display().to_string() };
    if !is_input && begins_as_dump(&arguments.blob) {
        return of_dump(arguments, &name);
    }
    let mut bytes = Vec::new();
    let read = if is_input {
        std::io::stdin().take(LARGEST + 1).read_to_end(&mut bytes)
    } else {
        File::open(&arguments.blob).and_then(|file| file.take(LARGEST + 1).read_to_end(&mut bytes))
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

/// Returns whether the file is there and begins as a dump does.
fn begins_as_dump(path: &Path) -> bool {
    let mut magic = [0; 4];
    File::open(path).and_then(|mut file| file.read_exact(&mut magic)).is_ok() && is_dump(&magic)
}

/// Every blob in a dump.
fn of_dump(arguments: &Arguments, name: &str) -> Result<bool> {
    let file = File::open(&arguments.blob).with_context(|| format!("cannot read {name}"))?;
    let blobs = in_dump(file).with_context(|| format!("cannot read {name}"))?;
    let count = blobs.len();
    ensure!(
        count != 0,
        "{name} is a dump without a debug blob of this version: it is cut, or no timeout's of this driver, or the \
         model's, which has one where a rule is broken"
    );
    for (number, blob) in (1..).zip(&blobs) {
        println!("blob {number} of {count}, {} bytes", blob.len());
        print!("{}", decode(blob).with_context(|| format!("cannot decode blob {number} of {name}"))?.text);
    }
    Ok(true)
}
