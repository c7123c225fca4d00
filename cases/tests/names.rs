//! The functions of gdi32 that the portable cases and their program call by name are functions that there are.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use wddm_abi::exports::D3DKMT_EXPORTS;

/// Functions that the SDK's gdi32.lib does not have, and of which the program does without.
const IN_API_SETS_ALONE: &[&str] = &["D3DKMTEnumAdapters3"];

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for path in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// What is quoted in a source and begins as the functions do.
fn names(text: &str) -> impl Iterator<Item = &str> {
    text.split('"').skip(1).step_by(2).filter(|quoted| {
        quoted
            .strip_prefix("D3DKMT")
            .is_some_and(|rest| !rest.is_empty() && rest.chars().all(|letter| letter.is_ascii_alphanumeric()))
    })
}

#[test]
fn every_function_that_is_called_by_name_is_one_of_gdi32() {
    let mut files = Vec::new();
    sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut files);
    let texts: Vec<_> = files.iter().map(|path| std::fs::read_to_string(path).unwrap()).collect();
    let called: BTreeSet<_> = texts.iter().flat_map(|text| names(text)).collect();
    assert!(called.len() > 20, "{called:?}");
    let of_the_driver = umd_core::thunks::Thunk::ALL.iter().map(|thunk| thunk.name());
    for name in called.into_iter().chain(of_the_driver) {
        let export = D3DKMT_EXPORTS.iter().find(|export| export.name == name);
        let export = export.unwrap_or_else(|| panic!("{name} is no function of abi/facts/d3dkmt_exports.tsv"));
        let is_there = export.dll == Some("GDI32.dll") || IN_API_SETS_ALONE.contains(&name);
        assert!(is_there, "{name} is in {:?} alone", export.api_set);
    }
}
