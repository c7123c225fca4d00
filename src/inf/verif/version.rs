//! `[Version]`, `[Strings]`, and the file as a whole.

use super::super::parse::{Inf, date, tokens, unsigned};
use super::super::{Findings, lines};
use std::collections::{BTreeMap, BTreeSet};

/// Classes that Microsoft defines, with their GUIDs. Source: articles
/// system-defined-device-setup-classes-available-to-vendors and mcdm-implementation-guidelines.
const CLASSES: [(&str, &str); 12] = [
    ("Display", "{4D36E968-E325-11CE-BFC1-08002BE10318}"),
    ("ComputeAccelerator", "{F01A9D53-3FF6-48D2-9F97-C8A7004BE10C}"),
    ("Extension", "{E2F84CE7-8EFA-411C-AA69-97454CA4CB57}"),
    ("HIDClass", "{745A17A0-74D3-11D0-B6FE-00A0C90F57DA}"),
    ("MEDIA", "{4D36E96C-E325-11CE-BFC1-08002BE10318}"),
    ("Monitor", "{4D36E96E-E325-11CE-BFC1-08002BE10318}"),
    ("Net", "{4D36E972-E325-11CE-BFC1-08002BE10318}"),
    ("SCSIAdapter", "{4D36E97B-E325-11CE-BFC1-08002BE10318}"),
    ("SoftwareComponent", "{5C4C3332-344D-483C-8739-259E934C9CC8}"),
    ("System", "{4D36E97D-E325-11CE-BFC1-08002BE10318}"),
    ("USBDevice", "{88BAE032-5A81-49F0-BC3D-A4FF138216D6}"),
    ("Ports", "{4D36E978-E325-11CE-BFC1-08002BE10318}"),
];

/// Directives of `[Version]`, with the values that each takes at most.
const DIRECTIVES: [(&str, usize); 10] = [
    ("Signature", 1),
    ("Class", 1),
    ("ClassGuid", 1),
    ("Provider", 1),
    ("ExtensionId", 1),
    ("CatalogFile", 1),
    ("DriverVer", 2),
    ("PnpLockdown", 1),
    ("DriverPackageDisplayName", 1),
    ("LayoutFile", 8),
];

pub(super) fn check(inf: &Inf, is_unicode: bool, found: &mut Findings) {
    whole(inf, is_unicode, found);
    strings(inf, found);
    let (signature, line) = inf.directive("Version", "Signature");
    let windows = ["$Windows NT$", "$WINDOWS NT$", "$CHICAGO$"].iter().any(|it| it.eq_ignore_ascii_case(&signature));
    found.unless(windows, "VERIF-1001", line, || "[Version] has no Signature = \"$Windows NT$\"; write it".to_owned());
    directives(inf, found);
    class(inf, found);
    let (provider, line) = inf.directive("Version", "Provider");
    let microsoft = provider.to_ascii_lowercase().starts_with("microsoft");
    found.unless(!microsoft, "VERIF-1204", line, || format!("Provider is '{provider}'; write who made the driver"));
    catalog(inf, found);
    driver_version(inf, found);
    let lockdown = inf.directive("Version", "PnpLockdown");
    let is_one = inf.number(&lockdown.0) == Some(1);
    found.unless(is_one, "VERIF-1324", lockdown.1, || "PnpLockdown is not 1; write 'PnpLockdown = 1'".to_owned());
}

/// Encoding, lines that cannot be parsed, sections that come twice.
fn whole(inf: &Inf, is_unicode: bool, found: &mut Findings) {
    lines(inf, (!is_unicode).then_some("VERIF-1003"), "VERIF-1002", found);
    let mut seen = BTreeSet::new();
    for section in &inf.sections {
        let twice = || format!("[{}] is there twice; put its lines into one", section.name);
        found.unless(seen.insert(section.name.to_ascii_lowercase()), "VERIF-1209", section.line, twice);
    }
}

/// Strings that are not defined, defined twice, or not in each language.
fn strings(inf: &Inf, found: &mut Findings) {
    let is_strings = |name: &str| {
        let name = name.to_ascii_lowercase();
        name == "strings" || name.starts_with("strings.")
    };
    for section in inf.sections.iter().filter(|section| !is_strings(&section.name)) {
        for entry in &section.entries {
            let said = tokens(&entry.key).into_iter().chain(entry.values.iter().flat_map(|value| tokens(value)));
            for token in said.filter(|token| !token.is_empty()) {
                let defined = inf.entry("Strings", &token).is_some();
                let what = || format!("%{token}% is not defined; define it in [Strings], or write %%{token}%%");
                found.unless(defined, "VERIF-1235", entry.line, what);
            }
        }
    }
    let mut languages: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for section in inf.sections.iter().filter(|section| is_strings(&section.name)) {
        let names = languages.entry(section.name.to_ascii_lowercase()).or_default();
        for entry in &section.entries {
            let twice = || format!("{} is defined twice in [{}]; remove one", entry.key, section.name);
            found.unless(names.insert(entry.key.to_ascii_lowercase()), "VERIF-1294", entry.line, twice);
        }
    }
    let Some(own) = languages.get("strings").cloned() else { return };
    for (name, strings) in languages.iter().filter(|(name, _)| *name != "strings") {
        let line = inf.sections.iter().find(|one| one.name.eq_ignore_ascii_case(name)).map_or(0, |one| one.line);
        let what = || format!("[{name}] has {} strings, and [Strings] {}; write the same", strings.len(), own.len());
        found.unless(*strings == own, "VERIF-1295", line, what);
    }
}

fn directives(inf: &Inf, found: &mut Findings) {
    let mut seen = BTreeSet::new();
    for entry in inf.entries("Version") {
        let key = &entry.key;
        let twice = || format!("{key} is there twice; keep one");
        found.unless(seen.insert(key.to_ascii_lowercase()), "VERIF-1088", entry.line, twice);
        let is_version = key.eq_ignore_ascii_case("DriverVer");
        let empty = entry.values.iter().all(String::is_empty) && !is_version;
        found.unless(!empty, "VERIF-1006", entry.line, || format!("{key} has no value; write one"));
        if let Some((_, most)) = DIRECTIVES.iter().find(|(name, _)| name.eq_ignore_ascii_case(key)) {
            let what = || format!("{key} has {} values; keep {most}", entry.values.len());
            found.unless(entry.values.len() <= *most, "VERIF-1201", entry.line, what);
        }
    }
    for needed in ["Class", "ClassGuid", "Provider", "DriverVer"] {
        let is_there = inf.entry("Version", needed).is_some();
        found.unless(is_there, "VERIF-1234", 0, || format!("[Version] has no {needed}; add it"));
    }
}

/// Returns whether a text is a GUID in braces.
pub(super) fn is_guid(text: &str) -> bool {
    let Some(inside) = text.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')) else { return false };
    let parts: Vec<_> = inside.split('-').collect();
    parts.len() == 5
        && parts.iter().zip([8, 4, 4, 4, 12]).all(|(part, digits)| part.len() == digits)
        && parts.iter().all(|part| part.bytes().all(|digit| digit.is_ascii_hexdigit()))
}

fn class(inf: &Inf, found: &mut Findings) {
    let (class, line) = inf.directive("Version", "Class");
    let (guid, guid_line) = inf.directive("Version", "ClassGuid");
    if !guid.is_empty() && !is_guid(&guid) {
        found.add("VERIF-1010", guid_line, format!("ClassGuid is '{guid}'; write a GUID in braces"));
    }
    let by_name = CLASSES.iter().find(|(name, _)| name.eq_ignore_ascii_case(&class));
    let by_guid = CLASSES.iter().find(|(_, known)| known.eq_ignore_ascii_case(&guid));
    match (by_name, by_guid) {
        (Some((_, wanted)), _) if is_guid(&guid) && !wanted.eq_ignore_ascii_case(&guid) => {
            found.add("VERIF-1281", guid_line, format!("ClassGuid of class {class} is '{guid}'; write {wanted}"));
        }
        (None, Some((wanted, _))) if !class.is_empty() => {
            found.add("VERIF-1280", line, format!("Class of {guid} is '{class}'; write {wanted}"));
        }
        _ => (),
    }
    let reserved = class.eq_ignore_ascii_case("Sample");
    found.unless(!reserved, "VERIF-1284", line, || "class Sample is reserved; write the device's own class".to_owned());
    let what = || format!("'{class}' has {} characters; write 31 or fewer", class.len());
    found.unless(class.len() <= 31, "VERIF-1286", line, what);
    let installs = |section: &&super::super::parse::Section| {
        section.name.split('.').next().is_some_and(|base| base.eq_ignore_ascii_case("ClassInstall32"))
    };
    if let Some(section) = inf.sections.iter().find(installs).filter(|_| by_name.is_some()) {
        found.add("VERIF-1285", section.line, format!("[{}] installs class {class}; remove it", section.name));
    }
    let extension = inf.entry("Version", "ExtensionId");
    if let Some(entry) = extension {
        let id = inf.resolved(entry.value(0));
        found.unless(is_guid(&id), "VERIF-1380", entry.line, || {
            format!("ExtensionId is '{id}'; write a GUID in braces")
        });
    } else {
        let is_extension = class.eq_ignore_ascii_case("Extension");
        found.unless(!is_extension, "VERIF-1381", line, || "class Extension needs an ExtensionId; add it".to_owned());
    }
}

fn catalog(inf: &Inf, found: &mut Findings) {
    let is_catalog = |key: &str| key.to_ascii_lowercase().starts_with("catalogfile");
    let mut any = false;
    for entry in inf.entries("Version").filter(|entry| is_catalog(&entry.key)) {
        any = true;
        let name = inf.resolved(entry.value(0)).to_ascii_lowercase();
        let stem = name.strip_suffix(".cat").unwrap_or_default();
        let right = name.is_empty() || (!stem.is_empty() && !stem.contains(['\\', '/', ':']));
        found.unless(right, "VERIF-1214", entry.line, || format!("the catalog is '{name}'; write NAME.cat"));
    }
    found.unless(any, "VERIF-1233", 0, || "[Version] has no CatalogFile; add it".to_owned());
}

/// DriverVer, once it is stamped.
fn driver_version(inf: &Inf, found: &mut Findings) {
    let Some(entry) = inf.entry("Version", "DriverVer") else { return };
    if entry.values.iter().all(String::is_empty) {
        return;
    }
    let (day, version) = (inf.resolved(entry.value(0)), inf.resolved(entry.value(1)));
    let right = date(&day).is_some();
    found.unless(right, "VERIF-1218", entry.line, || format!("the date is '{day}'; write MM/DD/YYYY"));
    let numbers: Vec<_> = version.split('.').map(|part| unsigned(part).unwrap_or_default().parse::<u16>()).collect();
    // Chosen: up to 65535, where the directive's page has "less than 65535" and InfVerif's "between 0-65536".
    let is_zero = numbers.iter().all(|number| *number == Ok(0));
    let right = version.is_empty() || (numbers.len() == 4 && numbers.iter().all(Result::is_ok) && !is_zero);
    let what = || format!("the version is '{version}'; write w.x.y.z, which is not 0.0.0.0");
    found.unless(right, "VERIF-1217", entry.line, what);
}

/// Returns whether the INF is of a class that draws or computes: what InfVerif calls a display driver.
///
/// Chosen: class Display alone, as the pages say "display drivers".
pub(super) fn is_display(inf: &Inf) -> bool {
    inf.directive("Version", "Class").0.eq_ignore_ascii_case("Display")
}

/// Returns whether the file has not been stamped yet.
pub(super) fn is_unstamped(inf: &Inf) -> bool {
    inf.entry("Version", "DriverVer").is_none_or(|entry| entry.values.iter().all(String::is_empty))
}
