//! A rule counts once something that breaks it was caught: every rule of this crate is named in a test.
//!
//! Reads the sources: rules from `src/rules_*.rs`, tests from files named `tests.rs` or below `tests/`, and from the
//! `#[cfg(test)]` part of the others.

use std::path::{Path, PathBuf};

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())).flatten() {
        let path = entry.path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

#[test]
fn every_rule_has_a_test_that_breaks_it() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    sources(&folder, &mut files);
    let (mut rules, mut tests) = (Vec::new(), String::new());
    for file in &files {
        let text = std::fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name.starts_with("rules_") {
            // `    NT_IRQL = "NT-IRQL" {`
            let declared = text.lines().filter_map(|line| line.trim().strip_suffix('{')?.split_once(" = \""));
            rules.extend(declared.map(|(identifier, _)| identifier.to_owned()));
        }
        let is_test = name == "tests.rs" || file.components().any(|part| part.as_os_str() == "tests");
        if is_test {
            tests.push_str(&text);
        } else if let Some((_, part)) = text.split_once("#[cfg(test)]\nmod tests {") {
            tests.push_str(part);
        }
    }
    assert!(rules.len() > 60, "{} rules found", rules.len());
    let names_it = |rule: &String| {
        let rule = rule.as_str();
        tests.match_indices(rule).any(|(at, _)| {
            let rest = &tests[at + rule.len()..];
            rest.starts_with(')') || rest.starts_with(".name")
        })
    };
    let unbroken: Vec<_> = rules.iter().filter(|rule| !names_it(rule)).collect();
    assert!(unbroken.is_empty(), "no test breaks {unbroken:?}");
}
