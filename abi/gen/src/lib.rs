//! Writes the generated part of `wddm_abi` from the fact tables in `abi/facts`.
//!
//! The output is a function of the tables alone: no clock, no host, no formatter. What is generated is marked
//! `#[rustfmt::skip]` where it is declared, so the committed bytes do not depend on a version of rustfmt.
//!
//! * [`facts`] reads the tables ([`tsv`]) and their C types ([`ctype`]).
//! * [`scope`] says what each C name is in Rust, and how large.
//! * [`tree`] and [`lower`] turn a record into Rust types ([`shape`]); [`lower`] says how C and Rust differ and what is
//!   done about it.
//! * [`records`], [`items`] and [`probes`] write them down ([`source`]); [`modules`] decides what goes into which file.
//!
//! [`c_header`] writes them as a C header, which is not committed.
//!
//! [`verify`] compares the tables with C headers: those of an installed WDK, above all.
//!
//! Whatever does not fit (a type nobody knows, a size that contradicts the table, two members at one place) stops the
//! generator with the table's line.

pub mod c_header;
pub mod ctype;
pub mod facts;
pub mod items;
pub mod lower;
pub mod modules;
pub mod probes;
pub mod records;
pub mod scope;
pub mod shape;
pub mod source;
pub mod tree;
pub mod tsv;
pub mod verify;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::path::PathBuf;

use crate::facts::Facts;
use crate::tsv::Error;

/// The directories, relative to the crate `wddm_abi`, whose `.rs` files are all generated.
pub const GENERATED: [&str; 2] = ["src/generated", "tests/against_facts/generated"];

/// Generated files: path relative to the crate `wddm_abi`, and text.
pub type Files = BTreeMap<PathBuf, String>;

/// Generates everything from the tables in `facts`.
pub fn generate(facts: &Path) -> Result<Files, Error> {
    modules::files(&Facts::read(facts)?)
}

/// The headers of Microsoft's that a driver includes, each of which [`write_header`] has include the one.
pub const MICROSOFTS: [&str; 5] = ["d3dkmddi.h", "d3dkmdt.h", "d3dkmthk.h", "d3dukmdt.h", "dispmprt.h"];

/// Writes the tables as a C header into `folder`, which is made where it is missing, and `displib.c` beside it. `root`:
/// the folder of the crate `wddm_abi`.
///
/// # Errors
/// The tables do not fit together, or a file cannot be written.
pub fn write_header(root: &Path, folder: &Path) -> Result<(), Error> {
    let text = c_header::header(&Facts::read(&root.join("facts"))?)?;
    fs::create_dir_all(folder).map_err(|error| io(folder, &error))?;
    let names = MICROSOFTS.iter().map(|name| (*name, "#pragma once\n#include \"wddm_abi.h\"\n"));
    let displib = fs::read_to_string(root.join("c/displib.c")).map_err(|error| io(Path::new("c/displib.c"), &error))?;
    for (name, text) in names.chain([("wddm_abi.h", text.as_str()), ("displib.c", displib.as_str())]) {
        let path = folder.join(name);
        fs::write(&path, text).map_err(|error| io(&path, &error))?;
    }
    Ok(())
}

/// Writes `files` below `root` and removes what is there besides.
pub fn write(root: &Path, files: &Files) -> Result<(), Error> {
    for stale in present(root)?.iter().filter(|path| !files.contains_key(*path)) {
        fs::remove_file(root.join(stale)).map_err(|error| io(stale, &error))?;
    }
    for (path, text) in files {
        let target = root.join(path);
        if fs::read(&target).is_ok_and(|old| old == text.as_bytes()) {
            continue;
        }
        if let Some(directory) = target.parent() {
            fs::create_dir_all(directory).map_err(|error| io(path, &error))?;
        }
        fs::write(&target, text).map_err(|error| io(path, &error))?;
    }
    Ok(())
}

/// The first difference between `files` and what is below `root`, in words.
pub fn first_difference(root: &Path, files: &Files) -> Result<Option<String>, Error> {
    for path in present(root)? {
        if !files.contains_key(&path) {
            return Ok(Some(format!("{}: is there, but is not generated", path.display())));
        }
    }
    for (path, text) in files {
        let Ok(old) = fs::read(root.join(path)) else {
            return Ok(Some(format!("{}: is missing", path.display())));
        };
        if old == text.as_bytes() {
            continue;
        }
        let old = String::from_utf8_lossy(&old);
        let mut lines = 1;
        for (is, should_be) in old.lines().zip(text.lines()) {
            if is != should_be {
                let at = format!("{}:{lines}", path.display());
                return Ok(Some(format!("{at}:\n  is        {is}\n  should be {should_be}")));
            }
            lines += 1;
        }
        return Ok(Some(format!("{}:{lines}: one is longer, or the line ends differ", path.display())));
    }
    Ok(None)
}

/// The `.rs` files in the generated directories below `root`.
fn present(root: &Path) -> Result<Vec<PathBuf>, Error> {
    let mut found = Vec::new();
    let mut open: Vec<PathBuf> = GENERATED.iter().map(PathBuf::from).collect();
    while let Some(directory) = open.pop() {
        let Ok(entries) = fs::read_dir(root.join(&directory)) else { continue };
        for entry in entries {
            let entry = entry.map_err(|error| io(&directory, &error))?;
            let path = directory.join(entry.file_name());
            if root.join(&path).is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

fn io(path: &Path, error: &std::io::Error) -> Error {
    Error::new(error.to_string()).at(path.display())
}
