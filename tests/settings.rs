//! `docs/settings.md` says what the driver's table of settings says, row by row; and what else names a setting names one that there is.

use fencepost::setting::find;
use kmd_core::setting_values::{Part, Setting, Values};
use kmd_core::settings::Settings;
use std::collections::BTreeSet;
use std::path::Path;

fn read(path: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).expect(path)
}

/// A default as the documentation has it.
fn default(setting: &Setting) -> String {
    match setting.values {
        Values::Megabytes(..) => format!("{} MiB", setting.default >> 20),
        _ => setting.default.to_string(),
    }
}

/// The row of a setting.
fn row(setting: &Setting) -> String {
    format!("| `{}` | {} | {} | {} |", setting.name, setting.values, default(setting), setting.meaning)
}

fn rows(part: Part) -> Vec<String> {
    Settings::TABLE.iter().filter(|setting| setting.part == part).map(row).collect()
}

#[test]
fn the_documentation_is_the_table() {
    let text = read("docs/settings.md");
    let there: Vec<_> = text.lines().filter(|line| line.starts_with("| `")).map(str::to_owned).collect();
    let want = [Part::Usual, Part::FirstBoot, Part::Fault].map(rows).concat();
    assert!(there == want, "docs/settings.md should have these rows, in its three tables:\n{}", want.join("\n"));
}

#[test]
fn names_are_unique_and_short_enough_and_defaults_are_values() {
    let mut seen = BTreeSet::new();
    for setting in Settings::TABLE {
        assert!(seen.insert(setting.name.to_lowercase()), "{} is there twice", setting.name);
        assert!(setting.name.len() <= 64 && setting.name.is_ascii(), "{}", setting.name);
        assert!(setting.values.take(setting.default), "{}: {} is no value of it", setting.name, setting.default);
        assert!(!setting.meaning.contains(['|', '\n']), "{}", setting.name);
    }
}

#[test]
fn the_inf_writes_settings_that_there_are_with_their_defaults() {
    let inf = read("inf/fencepost.inx");
    let (_, settings) = inf.split_once("docs/settings.md").expect("the INF's settings");
    let lines = settings.lines().skip(1).take_while(|line| line.starts_with("HKR"));
    let mut count = 0;
    for line in lines {
        let parts: Vec<_> = line.split(',').map(str::trim).collect();
        let setting = find(parts[2]).unwrap_or_else(|| panic!("{}: no such setting", parts[2]));
        let value = match parts[3] {
            // Bytes, the lowest first.
            "%REG_QWORD%" => parts[4..]
                .iter()
                .rev()
                .fold(0, |value, byte| value << 8 | u64::from_str_radix(byte, 16).expect("a byte")),
            _ => parts[4].parse().expect("a number"),
        };
        assert_eq!(value, setting.default, "{}", setting.name);
        count += 1;
    }
    assert!(count > 0, "the INF writes no setting");
}
