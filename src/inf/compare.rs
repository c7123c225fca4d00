//! A file against the table of its form.

use super::Findings;
use super::parse::{Entry, Inf, Section, date, tokens};
use super::rules::{ASCII, CONTROL, DEVICE, DIRID, DRIVERVER, HKLM, MODEL, QWORD, SECTION, SETTING, STRING, VALUES};
use super::table::{
    ANY, ARCHITECTURE, ARCHITECTURES, DECORATED, DECORATION, Form, Kind, Line, MODELS, SECTIONS, lines,
};
use crate::setting;
use kmd_core::setting_values::Part;
use std::collections::BTreeSet;

/// The version that every image has, and a stamped INF.
const VERSION: &str = include_str!("../../inf/version");

/// The flags of a QWORD in AddReg.
const QWORD_FLAGS: u64 = 0x000B_0001;

/// The form that a file is of: by its class, else by its class's GUID; Display if it has neither.
pub(super) fn form(inf: &Inf) -> Form {
    let is = |form, key| {
        let line = lines(form).find(|line| line.section == "Version" && line.key == key);
        line.is_some_and(|line| inf.directive("Version", key).0.eq_ignore_ascii_case(line.values[0]))
    };
    let by_guid = !is(Form::Display, "Class") && is(Form::Compute, "ClassGuid");
    if is(Form::Compute, "Class") || by_guid { Form::Compute } else { Form::Display }
}

/// Characters, lines outside of sections, and sections that there are too many or too few of.
pub(super) fn whole(inf: &Inf, found: &mut Findings) {
    super::lines(inf, Some(ASCII), SECTION, found);
    let deleted = deleted(inf);
    let mut seen = BTreeSet::new();
    for section in &inf.sections {
        let is_deleted = deleted.iter().any(|name| name.eq_ignore_ascii_case(&section.name));
        let name = canonical(&section.name);
        let known = name.eq_ignore_ascii_case("Strings")
            || is_deleted
            || SECTIONS.iter().any(|known| known.name.eq_ignore_ascii_case(name));
        let remove = || format!("[{}] is no section of these INFs; remove it, or correct its name", section.name);
        found.unless(known, SECTION, section.line, remove);
        let twice = || format!("[{}] is there twice; put its lines into one", section.name);
        found.unless(seen.insert(name.to_ascii_lowercase()), SECTION, section.line, twice);
    }
    for name in SECTIONS.iter().map(|section| section.name).chain(["Strings"]) {
        let shown = if name == MODELS { format!("{MODELS}.{DECORATED}") } else { name.to_owned() };
        found.unless(has(inf, name), SECTION, 0, || format!("there is no [{shown}]; add it"));
    }
}

/// The name of a section in the table: the decoration of models left out.
fn canonical(name: &str) -> &str {
    let decorated = name.get(..MODELS.len() + 3).is_some_and(|start| start.eq_ignore_ascii_case("Fencepost.NT"));
    if decorated { MODELS } else { name }
}

/// The models, of whatever decoration.
pub(super) fn models(inf: &Inf) -> impl Iterator<Item = &Entry> {
    let sections = inf.sections.iter().filter(|section| canonical(&section.name) == MODELS);
    sections.flat_map(|section| &section.entries)
}

fn has(inf: &Inf, section: &str) -> bool {
    inf.sections.iter().any(|found| canonical(&found.name).eq_ignore_ascii_case(section))
}

/// Names of sections that DelReg names.
fn deleted(inf: &Inf) -> Vec<String> {
    let entries = inf.sections.iter().flat_map(|section| &section.entries);
    entries.filter(|entry| is_deletion(entry)).flat_map(|entry| entry.values.clone()).collect()
}

fn is_deletion(entry: &Entry) -> bool {
    entry.key.eq_ignore_ascii_case("DelReg")
}

/// Strings that are not defined, not used, or defined twice.
pub(super) fn strings(inf: &Inf, found: &mut Findings) {
    let mut used = BTreeSet::new();
    for entry in inf.sections.iter().flat_map(|section| &section.entries) {
        let is_own = |token: &String| !token.eq_ignore_ascii_case(&entry.key);
        for token in
            tokens(&entry.key).into_iter().chain(entry.values.iter().flat_map(|value| tokens(value))).filter(is_own)
        {
            let defined = inf.entry("Strings", &token).is_some();
            found.unless(defined, STRING, entry.line, || format!("%{token}% is not defined; define it in [Strings]"));
            used.insert(token.to_ascii_lowercase());
        }
    }
    let mut defined = BTreeSet::new();
    for entry in inf.entries("Strings") {
        let (name, key) = (entry.key.to_ascii_lowercase(), &entry.key);
        found.unless(used.contains(&name), STRING, entry.line, || format!("%{key}% is not used; remove it"));
        let said = entry.values.iter().any(|value| !value.is_empty());
        found.unless(said, STRING, entry.line, || format!("{key} is empty; write what a person is to read"));
        found.unless(defined.insert(name), STRING, entry.line, || format!("{key} is defined twice; remove one"));
        let text = || format!("{key} has {} values; write one", entry.values.len());
        found.unless(entry.values.len() == 1, STRING, entry.line, text);
    }
}

/// Every line of every section against the table.
pub(super) fn table(inf: &Inf, found: &mut Findings) {
    let form = form(inf);
    for known in SECTIONS {
        let sections =
            || inf.sections.iter().filter(|section| canonical(&section.name).eq_ignore_ascii_case(known.name));
        let entries: Vec<&Entry> = sections().flat_map(|section| &section.entries).collect();
        // A section that is not there is one finding and not one for each of its lines.
        let Some(section) = sections().next() else { continue };
        for line in lines(form).filter(|line| line.section == known.name) {
            expect(inf, section, known.kind, &entries, line, found);
        }
        for entry in entries {
            let identity = identity(entry, known.kind);
            let mut own = lines(form).filter(|line| line.section == known.name);
            if !own.any(|line| line.identity().eq_ignore_ascii_case(identity)) {
                unexpected(inf, form, known, entry, found);
            }
        }
    }
    stamped(inf, found);
}

/// What tells an entry apart within its section.
fn identity(entry: &Entry, kind: Kind) -> &str {
    match kind {
        Kind::Directives => &entry.key,
        Kind::List => entry.value(0),
        Kind::Registry => entry.value(2),
    }
}

/// One line of the table, in its section.
fn expect(inf: &Inf, section: &Section, kind: Kind, entries: &[&Entry], line: &Line, found: &mut Findings) {
    let wanted = line.identity();
    let there: Vec<_> = entries.iter().filter(|entry| identity(entry, kind).eq_ignore_ascii_case(wanted)).collect();
    let [entry] = there.as_slice() else {
        match there.get(1) {
            Some(second) => {
                found.add(line.rule, second.line, format!("{wanted} is there {} times; keep one", there.len()))
            }
            None => found.add(line.rule, 0, format!("[{}] has no {wanted}; add '{line}'", section.name)),
        }
        return;
    };
    if line.section == "Version" && line.key == "DriverVer" {
        return;
    }
    let same = entry.values.len() == line.values.len()
        && entry.values.iter().zip(line.values).all(|(value, wanted)| is_same(inf, value, wanted));
    let keyless = entry.key.is_empty() == line.key.is_empty();
    if same && keyless {
        return;
    }
    let folder_alone = entry.values.len() == line.values.len()
        && entry.values.iter().zip(line.values).all(|(value, wanted)| {
            let file = |text: &str| in_folder(text).map(str::to_owned);
            is_same(inf, value, wanted) || file(wanted).is_some_and(|wanted| file(value) == Some(wanted))
        });
    let outside = line.is_registry() && !entry.value(0).eq_ignore_ascii_case("HKR");
    let rule = match (folder_alone, outside) {
        (true, _) => DIRID,
        (false, true) => HKLM,
        (false, false) => line.rule,
    };
    found.add(rule, entry.line, format!("'{}' is not what this form has; write '{line}'", entry.text(inf)));
}

/// What stands behind a folder's number, `%13%`; `None` without one.
fn in_folder(text: &str) -> Option<&str> {
    let (folder, file) = text.strip_prefix('%')?.split_once('%')?;
    folder.parse::<u32>().is_ok().then_some(file)
}

/// Returns whether a value is the one of the table, with its strings put in: numbers by what they are worth, texts in
/// any case.
fn is_same(inf: &Inf, value: &str, wanted: &str) -> bool {
    if wanted == ANY {
        return !value.is_empty();
    }
    if wanted == DECORATED {
        return architecture(value).is_some();
    }
    let value = inf.resolved(value);
    // FeatureScore is hexadecimal without a mark, and stays a text.
    match (inf.number(&value), inf.number(wanted)) {
        (Some(value), Some(wanted)) => value == wanted,
        _ => value.eq_ignore_ascii_case(wanted),
    }
}

/// The architecture of a decoration such as `NTamd64.10.0...26100`; `None` for another decoration.
fn architecture(decoration: &str) -> Option<&str> {
    let start = decoration.get(..2).is_some_and(|start| start.eq_ignore_ascii_case("NT"));
    let architecture = decoration.get(2..)?.strip_suffix(DECORATION).filter(|_| start)?;
    let known = architecture == ARCHITECTURE || ARCHITECTURES.iter().any(|it| it.eq_ignore_ascii_case(architecture));
    known.then_some(architecture)
}

/// A line that the table does not have in its section.
fn unexpected(inf: &Inf, form: Form, section: &super::table::Section, entry: &Entry, found: &mut Findings) {
    let text = entry.text(inf);
    if is_deletion(entry) {
        found.add(HKLM, entry.line, format!("'{text}' deletes values; remove it, and the section that it names"));
        return;
    }
    if section.kind != Kind::Registry {
        let device = section.rule == DEVICE || section.rule == CONTROL;
        let what = if device { "is no device of this driver" } else { "is no directive of this form" };
        found.add(section.rule, entry.line, format!("'{text}' {what}; remove the line"));
        return;
    }
    let (root, key, name) = (entry.value(0), entry.value(1).to_ascii_lowercase(), entry.value(2));
    let switch = key.starts_with("features")
        || name.eq_ignore_ascii_case("HwSchMode")
        || name.to_ascii_lowercase().starts_with("tdr");
    let in_form = |form| lines(form).find(|line| line.is_registry() && line.identity().eq_ignore_ascii_case(name));
    let (rule, what) = if !root.eq_ignore_ascii_case("HKR") {
        (HKLM, "is outside of the driver's own keys (HKR)".to_owned())
    } else if switch {
        (HKLM, "is the user's to switch".to_owned())
    } else if let Some(line) = in_form(form) {
        (line.rule, format!("belongs in [{}] as '{line}'", line.section))
    } else if in_form(form.other()).is_some() {
        (VALUES, format!("is the {} form's", form.other().name()))
    } else if inf.number(entry.value(3)) == Some(QWORD_FLAGS) {
        (QWORD, "is a QWORD".to_owned())
    } else {
        match setting::find(name) {
            Some(setting) if setting.part == Part::Service => (SETTING, "is the service's, and the user's".to_owned()),
            Some(_) => (SETTING, "is a setting, whose default is the driver's affair".to_owned()),
            None => (section.rule, "is no value that the driver or Windows reads".to_owned()),
        }
    };
    found.add(rule, entry.line, format!("'{text}': {name} {what}; remove the line"));
}

/// DriverVer and the architecture: neither stamped in, or both.
fn stamped(inf: &Inf, found: &mut Findings) {
    let manufacturer = inf.entries("Manufacturer").next();
    let named = manufacturer.map_or("", |entry| entry.value(1));
    let models = inf.sections.iter().find(|section| canonical(&section.name) == MODELS);
    if let Some(section) = models.filter(|_| manufacturer.is_some()) {
        let decoration = section.name.get(MODELS.len() + 1..).unwrap_or_default();
        let same = decoration.eq_ignore_ascii_case(named);
        let text = || format!("[{}] is not what [Manufacturer] names; call it [{MODELS}.{named}]", section.name);
        found.unless(same, SECTION, section.line, text);
    }
    let has_architecture = architecture(named).is_some_and(|architecture| architecture != ARCHITECTURE);
    let Some(entry) = inf.entry("Version", "DriverVer") else { return };
    let (date, version) = (entry.value(0), entry.value(1));
    if date.is_empty() && entry.values.len() == 1 {
        let line = manufacturer.map_or(0, |entry| entry.line);
        let text = || format!("'{named}' is stamped and DriverVer is not; write '{DECORATED}', or stamp both");
        found.unless(!has_architecture, MODEL, line, text);
        return;
    }
    let text = || format!("DriverVer is stamped and '{named}' is not; leave DriverVer empty, or stamp both");
    found.unless(has_architecture || architecture(named).is_none(), DRIVERVER, entry.line, text);
    let wanted = VERSION.trim();
    let right = entry.values.len() == 2 && is_date(date) && version == wanted;
    let written = entry.values.join(",");
    let text = || format!("DriverVer is '{written}'; write a day from {FIRST_YEAR} to today and the version, {wanted}");
    found.unless(right, DRIVERVER, entry.line, text);
}

/// Returns whether a date has come, by the clock of this machine. Inf2Cat refuses a later one; a day is left for time
/// zones.
fn has_come(date: jiff::civil::Date) -> bool {
    let tomorrow = jiff::Timestamp::now().to_zoned(jiff::tz::TimeZone::UTC).date().tomorrow();
    tomorrow.is_ok_and(|tomorrow| date <= tomorrow)
}

/// The first year of a date that is stamped in.
const FIRST_YEAR: i16 = 2020;

/// Checks that a package can be stamped with this date: from [`FIRST_YEAR`] to today. Chosen: the first year, so that
/// a clock that was never set is noticed.
///
/// # Errors
/// A sentence.
pub fn stampable(date: jiff::civil::Date) -> Result<(), String> {
    if date.year() < FIRST_YEAR {
        return Err(format!("the date {date} is before {FIRST_YEAR}: give a later one"));
    }
    if !has_come(date) {
        return Err(format!("the date {date} has not come, and Windows' tools refuse it"));
    }
    Ok(())
}

/// Returns whether a text is a date as DriverVer has it, `MM/DD/YYYY`, that has come.
fn is_date(text: &str) -> bool {
    date(text).is_some_and(|date| stampable(date).is_ok())
}
