//! Manufacturers, models, and the sections that are named, used, or neither.

use super::super::Findings;
use super::super::parse::{Entry, Inf, Section, unsigned};
use super::reach::{Reach, Use};
use super::version::is_unstamped;
use std::collections::BTreeMap;

/// Directives that a universal INF may not have. Source: article using-a-universal-inf-file.
const NOT_UNIVERSAL: [&str; 9] = [
    "BitReg",
    "Ini2Reg",
    "LogConfig",
    "ProfileItems",
    "RegisterDlls",
    "UnregisterDlls",
    "UpdateIniFields",
    "UpdateInis",
    "RenFiles",
];
/// Directives that delete. Source: as above.
const DELETES: [&str; 4] = ["DelFiles", "DelProperty", "DelReg", "DelService"];

/// Fields of a decoration.
const PRODUCT_TYPE: usize = 3;
const SUITE_MASK: usize = 4;

/// A section of models that `[Manufacturer]` names.
struct Models<'a> {
    /// The line of the manufacturer.
    by: &'a Entry,
    /// Its name, with the decoration that was named.
    name: String,
    /// The decoration, as in `NTamd64.10.0...26100`; empty without one.
    decoration: &'a str,
}

fn models(inf: &Inf) -> Vec<Models<'_>> {
    let mut all = Vec::new();
    for by in inf.entries("Manufacturer") {
        let base = by.value(0);
        if base.is_empty() {
            continue;
        }
        let decorations: Vec<_> = by.values.iter().skip(1).map(String::as_str).filter(|it| !it.is_empty()).collect();
        // The undecorated section counts where no decoration is named.
        if decorations.is_empty() {
            all.push(Models { by, name: base.to_owned(), decoration: "" });
        }
        all.extend(decorations.iter().map(|it| Models { by, name: format!("{base}.{it}"), decoration: it }));
    }
    all
}

fn entries<'a>(inf: &'a Inf, models: &[Models<'_>]) -> Vec<&'a Entry> {
    models.iter().flat_map(|one| inf.entries(&one.name)).collect()
}

/// Names of the install sections that models name, without decoration, in lower case.
pub(super) fn install_names(inf: &Inf) -> Vec<String> {
    let named = entries(inf, &models(inf)).into_iter().map(|entry| entry.value(0).to_ascii_lowercase());
    named.filter(|name| !name.is_empty()).collect()
}

fn find<'a>(inf: &'a Inf, name: &str) -> Option<&'a Section> {
    inf.sections.iter().find(|section| section.name.eq_ignore_ascii_case(name))
}

pub(super) fn check(inf: &Inf, reach: &Reach<'_>, found: &mut Findings) {
    for by in inf.entries("Manufacturer") {
        let named = !by.value(0).is_empty();
        found.unless(named, "VERIF-1011", by.line, || {
            "the manufacturer names no section of models; write one".to_owned()
        });
    }
    let models = models(inf);
    for one in &models {
        decoration(inf, one, found);
        let there = find(inf, &one.name).is_some();
        found.unless(there, "VERIF-1203", one.by.line, || format!("there is no [{}]; add it", one.name));
    }
    let entries = entries(inf, &models);
    for entry in &entries {
        device(inf, reach, entry, found);
    }
    let is_driver = !reach.installs.iter().any(|one| one.name.to_ascii_lowercase().starts_with("defaultinstall"));
    let any = entries.iter().any(|entry| entry.values.iter().skip(1).any(|id| !id.is_empty()));
    found.unless(any || !is_driver, "VERIF-1297", 0, || "no model names a hardware ID; add a model".to_owned());
    named(inf, reach, found);
    directives(reach, found);
    for section in &inf.sections {
        let is_models = models.iter().any(|one| one.name.eq_ignore_ascii_case(&section.name));
        let used = is_models || reach.is_used(&section.name);
        let what = || format!("[{}] is used by nothing; remove it, or name it", section.name);
        found.unless(used, "VERIF-2083", section.line, what);
    }
}

/// The decoration of a section of models: `NT`, an architecture, a version, a product type, a mask of suites, a build.
/// Product type and mask may be hexadecimal. Source: article inf-manufacturer-section, Remarks.
fn decoration(inf: &Inf, one: &Models<'_>, found: &mut Findings) {
    let (text, line) = (one.decoration, one.by.line);
    if text.is_empty() {
        let what = || format!("[{}] has no decoration; write '{}, NTamd64' in [Manufacturer]", one.name, one.name);
        found.add("VERIF-2010", line, what());
        return;
    }
    if text.contains("$ARCH$") {
        let what = || format!("$ARCH$ in '{text}' is not stamped, and DriverVer is; write the architecture");
        found.unless(is_unstamped(inf), "VERIF-1274", line, what);
    }
    let parts: Vec<_> = text.split('.').collect();
    let architecture =
        parts.first().and_then(|it| it.get(..2).filter(|nt| nt.eq_ignore_ascii_case("nt")).map(|_| &it[2..]));
    let known = ["", "x86", "ia64", "amd64", "arm", "arm64", "$arch$"];
    let right = architecture.is_some_and(|it| known.contains(&it.to_ascii_lowercase().as_str()))
        && parts.len() <= 6
        && (1..).zip(parts.iter().skip(1)).all(|(index, it)| it.is_empty() || is_field(index, it));
    found.unless(right, "VERIF-1287", line, || format!("'{text}' is no decoration; write as NTamd64.10.0...26100"));
    let number = |index: usize| parts.get(index).and_then(|it| it.parse::<u32>().ok());
    if let Some(build) = number(5).filter(|_| right) {
        let late = number(1) == Some(10) && build >= 14_310;
        found.unless(late, "VERIF-1288", line, || format!("'{text}' names build {build}; write 14310 or a later one"));
    }
    let named = architecture.is_some_and(|it| !it.is_empty());
    found.unless(named, "VERIF-2010", line, || format!("'{text}' has no architecture; write NTamd64 or NTarm64"));
}

/// Returns whether a text is the field at `index` of a decoration.
fn is_field(index: usize, text: &str) -> bool {
    let hexadecimal = text.strip_prefix("0x").or(text.strip_prefix("0X"));
    match hexadecimal.filter(|_| [PRODUCT_TYPE, SUITE_MASK].contains(&index)) {
        Some(digits) => {
            digits.bytes().all(|digit| digit.is_ascii_hexdigit()) && u32::from_str_radix(digits, 16).is_ok()
        }
        None => text.bytes().all(|digit| digit.is_ascii_digit()) && text.parse::<u32>().is_ok(),
    }
}

/// A model: its install section.
fn device(inf: &Inf, reach: &Reach<'_>, entry: &Entry, found: &mut Findings) {
    let name = entry.value(0);
    if name.is_empty() {
        found.add("VERIF-1271", entry.line, format!("'{}' names no install section; write one", entry.key));
        return;
    }
    let lower = name.to_ascii_lowercase();
    let own = |section: &&&Section| {
        let decorated = section.name.to_ascii_lowercase();
        decorated == lower || decorated.strip_prefix(&lower).is_some_and(|rest| rest.starts_with(".nt"))
    };
    let there: Vec<_> = reach.installs.iter().filter(own).collect();
    found.unless(!there.is_empty(), "VERIF-1261", entry.line, || format!("there is no [{name}]; add it"));
    for section in there {
        let services = format!("{}.Services", section.name);
        let has_service = inf.entries(&services).any(|line| {
            let associated = inf.number(line.value(1)).is_some_and(|flags| flags & 2 != 0);
            (line.key.eq_ignore_ascii_case("AddService") && associated) || line.key.eq_ignore_ascii_case("Needs")
        });
        let what = || format!("[{services}] associates no service; add AddService with flag 0x2, or Include and Needs");
        found.unless(has_service, "VERIF-1296", section.line, what);
    }
}

/// Sections that directives name.
fn named(inf: &Inf, reach: &Reach<'_>, found: &mut Findings) {
    let mut uses: BTreeMap<String, (Use, String)> = BTreeMap::new();
    for one in &reach.named {
        let (section, by) = (one.section, &one.by.key);
        let rule = if one.used == Use::Service { "VERIF-2006" } else { "VERIF-1203" };
        found.unless(find(inf, section).is_some(), rule, one.by.line, || {
            format!("{by} names [{section}], which is not there; add it, or correct the name")
        });
        let directive = by.to_ascii_lowercase();
        let (used, first) = uses.entry(section.to_ascii_lowercase()).or_insert((one.used, directive.clone()));
        if *used != one.used {
            found.add(
                "VERIF-1206",
                one.by.line,
                format!("{first} and {by} name [{section}]; write a section for each"),
            );
        } else if *first != directive {
            found.add(
                "VERIF-1205",
                one.by.line,
                format!("{first} and {by} name [{section}]; write a section for each"),
            );
        }
    }
}

/// Directives that drivers of today do not have, and those that lack their section.
fn directives(reach: &Reach<'_>, found: &mut Findings) {
    let takes_section = ["CopyFiles", "AddReg", "DelReg", "DelFiles", "RenFiles", "Needs", "Include"];
    for entry in &reach.lines {
        let is = |names: &[&str]| names.iter().any(|name| name.eq_ignore_ascii_case(&entry.key));
        let what = || format!("{} is not for drivers of today; remove it", entry.key);
        found.unless(!is(&NOT_UNIVERSAL), "VERIF-1301", entry.line, what);
        let what = || format!("{} deletes; remove it: Windows cleans up", entry.key);
        found.unless(!is(&DELETES), "VERIF-1308", entry.line, what);
        let empty = is(&takes_section) && entry.values.iter().all(String::is_empty);
        found.unless(!empty, "VERIF-1005", entry.line, || format!("{} names no section; write one", entry.key));
        if is(&["FeatureScore"]) {
            let score = entry.value(0);
            let digits = unsigned(score).filter(|digits| digits.len() <= 2);
            let byte = digits.is_some_and(|digits| u8::from_str_radix(digits, 16).is_ok());
            found.unless(byte, "VERIF-1245", entry.line, || format!("FeatureScore is '{score}'; write 00 to FF"));
        }
        if is(&["CopyINF"]) {
            for file in entry.values.iter().filter(|file| !file.to_ascii_lowercase().ends_with(".inf")) {
                found.add("VERIF-1110", entry.line, format!("CopyINF names '{file}'; write an INF, or remove it"));
            }
        }
    }
}
