//! `docs/native_fences.md` and `docs/tdr.md` say where each sentence is done and which case shows it: the files, the
//! names in them and the cases must be there.

use fencepost::scenario::all;
use std::collections::BTreeSet;
use std::path::Path;

const FENCES: &str = include_str!("../docs/native_fences.md");
const TDR: &str = include_str!("../docs/tdr.md");

/// What the page's first section calls the source folders.
const FOLDERS: [(&str, &str); 7] = [
    ("E/", "gpu/engine/src/"),
    ("K/", "kmd/core/src/"),
    ("D/", "kmd/ddi/src/"),
    ("U/", "umd/core/src/"),
    ("M/", "dxgkrnl_model/src/"),
    ("gpu/", "gpu/"),
    ("src/", "src/"),
];

/// The cells of a row of a page's tables, without its frame.
fn rows_of(page: &'static str) -> impl Iterator<Item = Vec<&'static str>> {
    let is_row = |line: &&str| line.starts_with("| ") && !line.starts_with("| # ");
    page.lines().filter(is_row).map(|line| line.trim_matches('|').split(" | ").map(str::trim).collect())
}

fn rows() -> impl Iterator<Item = Vec<&'static str>> {
    rows_of(FENCES).chain(rows_of(TDR))
}

/// What stands between backquotes, each with what stands before it.
fn quoted(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let mut parts = text.split('`');
    std::iter::from_fn(move || Some((parts.next()?, parts.next()?)))
}

/// The file that a quotation names, if it names one.
fn file(quotation: &str) -> Option<String> {
    let (short, folder) = FOLDERS.iter().find(|(short, _)| quotation.starts_with(short))?;
    quotation.ends_with(".rs").then(|| format!("{folder}{}", &quotation[short.len()..]))
}

#[test]
fn every_row_has_four_cells() {
    let wrong: Vec<_> = rows().filter(|row| row.len() != 4).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(rows_of(FENCES).count() > 250);
}

#[test]
fn every_sentence_about_timeouts_has_a_row_and_a_case() {
    let numbers: Vec<_> = rows_of(TDR).map(|row| row[0]).collect();
    let wanted: Vec<_> = (1..=76).map(|number| format!("TD-{number:03}")).collect();
    assert_eq!(numbers, wanted);
    let bare: Vec<_> = rows_of(TDR).filter(|row| row.get(3).is_none_or(|case| case.is_empty())).collect();
    assert!(bare.is_empty(), "{bare:#?}");
}

/// Every source file below `folder`, in one text.
fn sources(folder: &Path, text: &mut String) {
    for entry in std::fs::read_dir(folder).expect("a source folder").flatten() {
        let path = entry.path();
        if path.is_dir() {
            sources(&path, text);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            text.push_str(&std::fs::read_to_string(&path).expect("a source file"));
        }
    }
}

/// The name behind a file and a colon is in that file; other names are anywhere in the sources.
#[test]
fn every_place_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut everything = String::new();
    for folder in ["abi/src", "gpu", "kmd", "umd", "dxgkrnl_model", "src"] {
        sources(&root.join(folder), &mut everything);
    }
    let mut missing = BTreeSet::new();
    for row in rows() {
        let mut text = None;
        for (before, quotation) in quoted(row.get(2).unwrap_or(&"")) {
            if let Some(path) = file(quotation) {
                text = std::fs::read_to_string(root.join(&path)).ok();
                if text.is_none() {
                    missing.insert(path);
                }
                continue;
            }
            let is_name = quotation.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == ':');
            let name = quotation.rsplit("::").next().unwrap_or(quotation);
            let place = if before == ": " { text.take() } else { None };
            if is_name && !place.as_ref().unwrap_or(&everything).contains(name) {
                missing.insert(format!("{quotation} (row {} \"{}\")", row[0], row[1]));
            }
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
}

#[test]
fn every_case_exists() {
    let known: BTreeSet<_> = all().map(|case| case.id).collect();
    let is_id = |word: &str| {
        word.split_once('-').is_some_and(|(group, number)| {
            group.len() == 2
                && group.bytes().all(|b| b.is_ascii_uppercase())
                && number.len() == 2
                && number.bytes().all(|b| b.is_ascii_digit())
        })
    };
    let mut missing = BTreeSet::new();
    let mut cited = 0;
    for row in rows() {
        let words = row.get(3).unwrap_or(&"").split(|c: char| !(c.is_ascii_alphanumeric() || c == '-'));
        for id in words.filter(|word| is_id(word)) {
            cited += 1;
            if !known.contains(id) {
                missing.insert(id);
            }
        }
    }
    assert!(missing.is_empty() && cited > 200, "{missing:?} of {cited}");
}
