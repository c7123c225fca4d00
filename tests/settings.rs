//! `docs/settings.md` says what the driver's tables of settings say, row by row, and `docs/choices.md` what the
//! model's table of readings says. What the INFs write: `tests/inf.rs`.

use dxgkrnl_model::personality::family::{READINGS, Reading};
use kmd_core::service;
use kmd_core::setting_values::{Part, Setting, Values};
use kmd_core::settings::Settings;
use std::collections::BTreeSet;
use std::path::Path;

fn read(path: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).expect(path)
}

/// A default as the documentation writes it: megabytes where the values are.
fn default(setting: &Setting) -> String {
    match setting.values {
        Values::Megabytes(..) => format!("{} MiB", setting.default >> 20),
        _ => setting.default.to_string(),
    }
}

/// The row of a setting in `docs/settings.md`.
fn row(setting: &Setting) -> String {
    format!("| `{}` | {} | {} | {} |", setting.name, setting.values, default(setting), setting.meaning)
}

/// The settings of the service and those of an adapter.
fn all() -> impl Iterator<Item = &'static Setting> {
    service::TABLE.iter().chain(Settings::TABLE)
}

fn rows(part: Part) -> Vec<String> {
    all().filter(|setting| setting.part == part).map(row).collect()
}

#[test]
fn the_documentation_is_the_table() {
    let text = read("docs/settings.md");
    let there: Vec<_> = text.lines().filter(|line| line.starts_with("| `")).map(str::to_owned).collect();
    let want = [Part::Service, Part::Usual, Part::FirstBoot, Part::Fault].map(rows).concat();
    assert!(there == want, "docs/settings.md should have these rows, in its four tables:\n{}", want.join("\n"));
}

/// The columns of the table of readings, a row each, without what is around them.
fn choices() -> Vec<Vec<String>> {
    let text = read("docs/choices.md");
    let rows = text.lines().filter(|line| line.starts_with("| `"));
    rows.map(|row| row.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect()).collect()
}

#[test]
fn the_readings_are_documented() {
    let drawn = |drawn| if drawn { "yes" } else { "by name only" };
    let row = |r: &Reading| [format!("`{}`", r.name), r.title.into(), r.source.into(), drawn(r.drawn).into()].to_vec();
    let want: Vec<_> = READINGS.iter().map(row).collect();
    let there: Vec<_> = choices().iter().map(|row| row[..4].to_vec()).collect();
    assert!(there == want, "docs/choices.md should have these columns:\n{want:#?}");
}

/// What depends on a reading is in files that there are, and cases that there are show it. A reading that no case shows
/// says why.
#[test]
fn what_depends_on_a_reading_is_there_and_seen() {
    for row in choices() {
        let [reading, .., depends, cases] = &row[..] else { panic!("{row:?}") };
        let is_there = |file: &str| Path::new(env!("CARGO_MANIFEST_DIR")).join(file).is_file();
        let mut files = depends.split('`').skip(1).step_by(2).filter(|name| name.ends_with(".rs")).peekable();
        assert!(files.peek().is_some() || depends.starts_with("nothing: "), "{reading}: no file in '{depends}'");
        for file in files {
            assert!(is_there(file), "{reading}: {file} is not there");
        }
        assert!(!cases.is_empty(), "{reading}: nothing shows it");
        for id in cases.split(", ") {
            let is_case = fencepost::scenario::all().any(|case| case.id == id);
            assert!(is_case || is_there(id.trim_matches('`')), "{reading}: {id} is no case, and no file");
        }
    }
}

#[test]
fn names_are_unique_and_short_enough_and_defaults_are_values() {
    let mut seen = BTreeSet::new();
    for setting in all() {
        assert!(seen.insert(setting.name.to_lowercase()), "{} is there twice", setting.name);
        assert!(setting.name.len() <= 64 && setting.name.is_ascii(), "{}", setting.name);
        assert!(setting.values.take(setting.default), "{}: {} is no value of it", setting.name, setting.default);
        assert!(!setting.meaning.contains(['|', '\n']), "{}", setting.name);
    }
}

/// Values at the edges of what is in range: those that are, and those that are not.
fn edges(values: Values) -> (Vec<u64>, Vec<u64>) {
    const MIB: u64 = 1 << 20;
    match values {
        Values::Any => (vec![0, u64::MAX], vec![]),
        Values::Between(0, most) => (vec![0, most], vec![most + 1, u64::MAX]),
        Values::Between(least, most) => (vec![least, most], vec![least - 1, most + 1, u64::MAX]),
        Values::ZeroOr(least, most) => (vec![0, least, most], vec![least - 1, most + 1, u64::MAX]),
        Values::Multiples(of, most) => (vec![0, of, most], vec![of - 1, of + 1, most + 1, most + of, u64::MAX]),
        Values::Megabytes(least, most) => (
            vec![least * MIB, most * MIB],
            vec![0, (least - 1) * MIB, least * MIB + 1, (most + 1) * MIB, most * MIB + 1, u64::MAX],
        ),
        Values::Named(named) => {
            let known: Vec<_> = named.iter().map(|(value, _)| *value).collect();
            let last = known.iter().max().copied().unwrap_or(0);
            (known, vec![last + 1, u64::MAX])
        }
    }
}

#[test]
fn values_are_taken_up_to_their_bounds_and_no_further() {
    for setting in all() {
        let (inside, outside) = edges(setting.values);
        for value in inside {
            assert!(setting.values.take(value), "{} does not take {value}", setting.name);
        }
        for value in outside {
            assert!(!setting.values.take(value), "{} takes {value}", setting.name);
        }
    }
}
