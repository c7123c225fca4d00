//! `docs/native_fences.md`, `docs/tdr.md` and `docs/user_mode_submission.md` say where each sentence is done and which
//! case shows it: the files, the names in them, the cases and the tests must be there, and what no case shows is
//! collected at a page's end.

use fencepost::scenario::all;
use std::collections::BTreeSet;
use std::path::Path;

const FENCES: &str = include_str!("../docs/native_fences.md");
const TDR: &str = include_str!("../docs/tdr.md");
const SUBMISSION: &str = include_str!("../docs/user_mode_submission.md");

/// The pages whose sentences have numbers of their own: the page, the numbers' group, how many there are.
const NUMBERED: [(&str, &str, u32); 2] = [(TDR, "TD", 76), (SUBMISSION, "UM", 163)];

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
    [FENCES, TDR, SUBMISSION].into_iter().flat_map(rows_of)
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
fn every_numbered_sentence_has_a_row_and_a_case() {
    let says_nothing = |row: &Vec<&str>| row.get(3).is_none_or(|case| case.is_empty() || *case == "–" || *case == "-");
    for (page, group, count) in NUMBERED {
        let numbers: Vec<_> = rows_of(page).map(|row| row[0]).collect();
        let wanted: Vec<_> = (1..=count).map(|number| format!("{group}-{number:03}")).collect();
        assert_eq!(numbers, wanted);
        let bare: Vec<_> = rows_of(page).filter(says_nothing).collect();
        assert!(bare.is_empty(), "{bare:#?}");
    }
}

/// The numbers of sentences that a text names, with all between "UM-087 to UM-103".
fn named(text: &str, group: &str) -> BTreeSet<u32> {
    let words: Vec<_> =
        text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-')).filter(|w| !w.is_empty()).collect();
    let number = |word: &str| word.strip_prefix(group)?.strip_prefix('-')?.parse::<u32>().ok();
    let mut all = BTreeSet::new();
    for (at, word) in words.iter().enumerate() {
        let Some(last) = number(word) else { continue };
        let range = at.checked_sub(2).filter(|_| words[at - 1] == "to").and_then(|first| number(words[first]));
        all.extend(range.unwrap_or(last)..=last);
    }
    all
}

/// The numbers of the rows of a page whose cases say `mark`.
fn marked(page: &'static str, group: &str, mark: &str) -> BTreeSet<u32> {
    let says = |row: &Vec<&str>| row[3].to_lowercase().contains(mark);
    rows_of(page).filter(says).flat_map(|row| named(row[0], group)).collect()
}

/// A row that no case shows, or a part of it, has its words at the end of its page.
#[test]
fn what_no_case_shows_is_collected() {
    for (page, group, _) in NUMBERED {
        let (_, end) = page.split_once("\n# What is not done\n").expect("what is not done");
        let (not_done, end) = end.split_once("\n## By reading\n").expect("what is by reading");
        let (by_reading, windows_only) = end.split_once("\n## Windows only\n").expect("what is for Windows only");
        for (mark, list) in [("by reading", by_reading), ("windows only", windows_only)] {
            assert_eq!(marked(page, group, mark), named(list, group), "{group}: {mark}");
        }
        let missing = &marked(page, group, "not done") - &named(not_done, group);
        assert!(missing.is_empty(), "{group}: {missing:?}");
    }
    let (_, end) = SUBMISSION.split_once("\n# What is not done\n").expect("what is not done");
    let (not_done, _) = end.split_once("\n## By reading\n").expect("what is by reading");
    assert_eq!(marked(SUBMISSION, "UM", "not done"), named(not_done, "UM"));
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

/// Returns whether a text declares `name`: a function, a type, a constant, a member, a variant, a module. A call is
/// none, nor is a longer name. A name that stands alone in a line of a list is one of which a macro makes such.
fn declares(text: &str, name: &str) -> bool {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.match_indices(name).any(|(at, _)| {
        let (before, after) = (&text[..at], &text[at + name.len()..]);
        let whole = !before.ends_with(is_word) && !after.starts_with(is_word);
        let keyword = before.trim_end_matches(' ').rsplit(|c: char| !c.is_ascii_lowercase()).next().unwrap_or_default();
        let declared = ["fn", "struct", "enum", "union", "trait", "type", "const", "static", "mod", "pub"];
        let member = before.ends_with([' ', '(']) && (after.starts_with(':') && !after.starts_with("::"));
        let listed = before.trim_end_matches(' ').ends_with('\n') && after.starts_with(",\n");
        let variant = name.starts_with(|c: char| c.is_ascii_uppercase());
        whole && (declared.contains(&keyword) || member || listed || variant)
    })
}

/// The name behind a file and a colon is declared in that file; other names are anywhere in the sources.
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
            if is_name && !declares(place.as_ref().unwrap_or(&everything), name) {
                missing.insert(format!("{quotation} (row {} \"{}\")", row[0], row[1]));
            }
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
}

/// Returns whether a word is written LikeThis.
fn is_camel_case(word: &str) -> bool {
    let is_turn = |pair: &[u8]| pair[0].is_ascii_lowercase() && pair[1].is_ascii_uppercase();
    word.starts_with(|c: char| c.is_ascii_uppercase()) && word.as_bytes().windows(2).any(is_turn)
}

/// Tests, mutants and mutations that a row names beside its cases are somewhere in the sources.
#[test]
fn every_test_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut everything = String::new();
    for folder in ["abi", "gpu", "kmd", "umd", "dxgkrnl_model", "src", "tests"] {
        sources(&root.join(folder), &mut everything);
    }
    let mut missing = BTreeSet::new();
    for row in rows() {
        let case = row.get(3).unwrap_or(&"");
        let mut names: Vec<_> = quoted(case).map(|(_, name)| name).filter(|name| !name.starts_with("./")).collect();
        names.extend(case.split('"').skip(1).step_by(2));
        let plain = case.split('`').step_by(2).flat_map(|text| text.split(|c: char| !c.is_ascii_alphanumeric()));
        names.extend(plain.filter(|word| is_camel_case(word)));
        for name in names {
            let there = match name.contains('/') {
                true => root.join(name).exists(),
                false => everything.contains(name.rsplit("::").next().unwrap_or(name)),
            };
            if !there {
                missing.insert(format!("{name} (row {} \"{}\")", row[0], row[1]));
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
