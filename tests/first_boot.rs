//! What `docs/first_boot.md` names exists: cases, settings with their values, rules, mutants, files, commands. Each of
//! its commands with a setting is played natively, and fails as the document says.

use fencepost::scenario::all;
use fencepost::setting::{find, of_ours};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn document() -> String {
    std::fs::read_to_string(root().join("docs/first_boot.md")).expect("docs/first_boot.md")
}

/// What stands in backquotes, in order.
fn quoted(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

/// Words of letters, digits, `-` and `_`.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-' || c == '_')).filter(|word| !word.is_empty())
}

/// The cells of the rows of the table in §2: symptom, look first, likely, setting, place, tried.
fn rows(document: &str) -> Vec<Vec<&str>> {
    let table = document.split("\n## ").find(|part| part.starts_with("2.")).expect("§2");
    let rows = table.lines().filter(|line| line.starts_with("| ")).skip(1);
    rows.map(|line| line.trim_matches('|').split(" | ").map(str::trim).collect::<Vec<_>>())
        .inspect(|row| assert_eq!(row.len(), 6, "{row:?}"))
        .collect()
}

#[test]
fn cases_and_rules_exist() {
    let document = document();
    let cases: BTreeSet<_> = all().map(|case| case.id).collect();
    let groups: BTreeSet<_> = all().map(|case| case.group()).collect();
    let rules: BTreeSet<_> = dxgkrnl_model::rules::ALL.iter().flat_map(|list| list.0).map(|rule| rule.name).collect();
    let (mut cited, mut named) = (0, 0);
    for word in words(&document) {
        if word.starts_with("DXG-") || word.starts_with("NT-") {
            assert!(rules.contains(word), "there is no rule {word}");
            named += 1;
        } else if word.split_once('-').is_some_and(|(group, _)| groups.contains(group)) {
            assert!(cases.contains(word), "there is no case {word}");
            cited += 1;
        }
    }
    assert!(cited > 20 && named > 5, "{cited} cases, {named} rules");
}

#[test]
fn settings_exist_and_take_the_values_that_are_named() {
    let document = document();
    let mut seen = 0;
    // Names of the OS's functions and structures, which are no settings.
    let is_setting = |name: &str| {
        let camel =
            name.starts_with(|c: char| c.is_ascii_uppercase()) && name.contains(|c: char| c.is_ascii_lowercase());
        camel
            && name.chars().all(|c| c.is_ascii_alphanumeric())
            && !name.starts_with("Dxgk")
            && !name.starts_with("D3D")
    };
    let parts: Vec<_> = document.split('`').collect();
    for pair in parts[1..].chunks(2) {
        let [name, behind] = pair else { continue };
        if !is_setting(name) {
            continue;
        }
        let setting = find(name).unwrap_or_else(|| panic!("there is no setting {name}"));
        assert_eq!(setting.name, *name);
        seen += 1;
        // `NAME` NUMBER.
        let value = behind
            .strip_prefix(' ')
            .and_then(|rest| rest.split([' ', ',', ';', '.', ':', '\n']).next())
            .unwrap_or_default();
        if value.starts_with(|c: char| c.is_ascii_digit()) {
            of_ours(&format!("{name}={value}")).unwrap_or_else(|why| panic!("{name} {value}: {why}"));
        }
    }
    assert!(seen > 30, "{seen} settings");
}

#[test]
fn mutants_exist() {
    let mut text = String::new();
    for file in ["mod.rs", "special.rs"] {
        let path = root().join("dxgkrnl_model/tests/mutants").join(file);
        text += &std::fs::read_to_string(&path).expect("the model's mutants");
    }
    let document = document();
    let mut seen = 0;
    for row in rows(&document) {
        let tried = row[5];
        let Some((_, names)) = tried.split_once("mutant") else { continue };
        let is_name = |name: &&str| name.contains('-') && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
        for name in
            quoted(names).into_iter().filter(is_name).filter(|name| name.starts_with(|c: char| c.is_lowercase()))
        {
            assert!(text.contains(&format!("\"{name}\"")), "there is no mutant {name}");
            seen += 1;
        }
        if let Some(own) = tried.split("own mutation ").nth(1).and_then(|rest| words(rest).next()) {
            let broken = include_str!("mutations/broken.rs");
            assert!(broken.contains(&format!("(\"{own}\", ")), "there is no mutation {own}");
        }
    }
    assert!(seen > 8, "{seen} mutants");
}

#[test]
fn files_and_what_is_in_them_exist() {
    let document = document();
    let mut seen = 0;
    for row in rows(&document) {
        // The file that was named last.
        let mut last = PathBuf::new();
        let parts: Vec<_> = row[4].split('`').collect();
        for pair in parts.chunks_exact(2) {
            let (before, name) = (pair[0], pair[1]);
            if before == ": " {
                let text = std::fs::read_to_string(&last).expect("a file");
                assert!(text.contains(name), "{name} is not in {}", last.display());
            } else if name.contains('.') {
                // From the root, or beside the file before it.
                let places = [root().join(name), last.with_file_name(name)];
                last = places.into_iter().find(|path| path.is_file()).unwrap_or_else(|| panic!("there is no {name}"));
                seen += 1;
            }
        }
    }
    assert!(seen > 30, "{seen} files");
    for path in quoted(&document).into_iter().filter(|path| path.starts_with("docs/")) {
        assert!(root().join(path).is_file(), "there is no {path}");
    }
}

/// A command with a setting, and what its failure must say: a rule, or words in asterisks behind the colon.
fn commands(document: &str) -> Vec<(&str, &str)> {
    let parts: Vec<_> = document.split('`').collect();
    let with = parts[1..].chunks(2).filter(|pair| pair[0].starts_with("./x ") && pair[0].contains("--setting"));
    with.map(|pair| {
        let says = pair.get(1).and_then(|behind| behind.strip_prefix(": ")).unwrap_or_default();
        let says = match says.strip_prefix('*') {
            Some(words) => words.split('*').next().unwrap_or_default(),
            None => words(says).next().unwrap_or_default(),
        };
        assert!(!says.is_empty(), "{}: nothing is said of what comes of it", pair[0]);
        (pair[0], says)
    })
    .collect()
}

#[test]
fn commands_exist() {
    let script = std::fs::read_to_string(root().join("x")).expect("x");
    for command in quoted(&document()).into_iter().filter_map(|text| text.strip_prefix("./x ")) {
        let name = words(command).next().unwrap_or_default();
        assert!(script.contains(&format!("\n  {name} ")), "./x has no {name}");
    }
}

fn played(command: &str) -> Child {
    let arguments = command.split(' ').skip(1);
    let mut program = Command::new(env!("CARGO_BIN_EXE_fencepost"));
    let program = program.args(arguments).arg("--native").current_dir(Path::new("/"));
    program.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program was built with this test")
}

#[test]
fn commands_with_settings_fail_as_the_document_says() {
    let document = document();
    let commands = commands(&document);
    assert!(commands.len() >= 8, "{commands:?}");
    // One of them takes half a minute.
    let running: Vec<_> = commands.iter().map(|(command, says)| (command, says, played(command))).collect();
    for (command, says, child) in running {
        let output = child.wait_with_output().expect("it ends");
        let said = String::from_utf8_lossy(&output.stdout);
        assert_eq!(output.status.code(), Some(1), "{command}: {said}");
        assert!(said.contains(says), "{command}: '{says}' is not in {said}");
    }
}
