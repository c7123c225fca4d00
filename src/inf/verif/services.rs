//! Services, Include and Needs, and what is asked of display drivers.

use super::super::Findings;
use super::super::parse::{Entry, Inf};
use super::reach::{Reach, Service, Use};
use super::version::is_display;
use std::collections::BTreeMap;

/// SPSVCINST_ASSOCSERVICE. Source: article inf-addservice-directive.
const ASSOCIATED: u64 = 2;

/// Checks the services. `targets`: the names of the files that are copied, in lower case.
pub(super) fn check(inf: &Inf, reach: &Reach<'_>, targets: &[String], found: &mut Findings) {
    let mut configured: BTreeMap<String, (String, &str)> = BTreeMap::new();
    let mut associated: BTreeMap<String, usize> = BTreeMap::new();
    for service in &reach.services {
        let Service { of, by } = service;
        let is_associated = inf.number(by.value(1)).is_some_and(|flags| flags & ASSOCIATED != 0);
        named(by, is_associated, found);
        if is_associated {
            let count = associated.entry(of.name.to_ascii_lowercase()).or_default();
            *count += 1;
            let what = || format!("[{}] associates {count} services; write 0x2 for one", of.name);
            found.unless(*count == 1, "VERIF-1211", by.line, what);
        }
        if let Some(log) = by.values.get(4).filter(|log| !log.is_empty()) {
            let log = inf.resolved(log);
            let known = ["System", "Application", "Security"].iter().any(|it| it.eq_ignore_ascii_case(&log));
            let what = || format!("the event log is '{log}'; write System, Application or Security");
            found.unless(known, "VERIF-1250", by.line, what);
        }
        let name = by.value(0).to_ascii_lowercase();
        let section = by.value(2);
        if name.is_empty() || section.is_empty() || inf.entries(section).next().is_none() {
            continue;
        }
        let said: Vec<_> = inf.entries(section).map(|line| line.text(inf)).collect();
        let (first, by_section) = configured.entry(name).or_insert_with(|| (said.join("\n"), of.name.as_str()));
        let what = || format!("{} is otherwise by [{by_section}]; write the same in both", by.value(0));
        found.unless(*first == said.join("\n"), "VERIF-1333", by.line, what);
        body(inf, by, is_associated, targets, found);
    }
    for entry in &reach.lines {
        let coinstaller = entry.key.eq_ignore_ascii_case("CoInstallers32");
        found.unless(!coinstaller, "VERIF-1303", entry.line, || "co-installers are gone; remove it".to_owned());
    }
    let added = reach.named.iter().filter(|one| one.used == Use::Registry);
    for entry in added.flat_map(|one| inf.entries(one.section)) {
        let coinstaller = entry.value(2).eq_ignore_ascii_case("CoInstallers32");
        found.unless(!coinstaller, "VERIF-1303", entry.line, || "co-installers are gone; remove it".to_owned());
        if is_display(inf) && entry.value(2).eq_ignore_ascii_case("UserModeDriverName") {
            for path in entry.values.iter().skip(4).filter(|path| !path.starts_with("%13%\\") && *path != "<>") {
                found.add("VERIF-2600", entry.line, format!("UserModeDriverName has '{path}'; write %13%\\FILE"));
            }
        }
    }
    needs(inf, found);
}

/// Names: there where they must be.
fn named(by: &Entry, is_associated: bool, found: &mut Findings) {
    let (name, section) = (by.value(0), by.value(2));
    if name.is_empty() && !section.is_empty() {
        found.add("VERIF-1272", by.line, format!("a service without a name has [{section}]; remove it, or name it"));
    } else if name.is_empty() && !is_associated {
        found.add("VERIF-1253", by.line, "the service has no name; write one, or flag 0x2 for no service");
    }
}

/// The section of a service.
fn body(inf: &Inf, by: &Entry, is_associated: bool, targets: &[String], found: &mut Findings) {
    let section = by.value(2);
    for needed in ["ServiceType", "StartType", "ErrorControl", "ServiceBinary"] {
        let there = inf.entry(section, needed).is_some_and(|entry| !entry.value(0).is_empty());
        found.unless(there, "VERIF-1234", by.line, || format!("[{section}] has no {needed}; add it"));
    }
    let (start, line) = inf.directive(section, "StartType");
    let start = inf.number(&start);
    let disabled = is_associated && start == Some(4);
    found.unless(!disabled, "VERIF-1251", line, || "the device's own service is disabled; write 3".to_owned());
    let demanded = !is_display(inf) || disabled || start.is_none() || start == Some(3);
    found.unless(demanded, "VERIF-2602", line, || "a display driver's StartType is not 3; write 3".to_owned());
    let (binary, line) = inf.directive(section, "ServiceBinary");
    // A path with spaces has quotation marks of its own, and arguments behind them.
    let binary = binary.strip_prefix('"').and_then(|rest| rest.split('"').next()).unwrap_or(&binary);
    if binary.is_empty() {
        return;
    }
    let below = binary.strip_prefix('%').and_then(|rest| rest.split_once('%'));
    let below = below.filter(|(dirid, _)| dirid.parse::<i32>().is_ok());
    let Some((dirid, path)) = below else {
        found.add("VERIF-2085", line, format!("ServiceBinary is '{binary}'; write %13%\\FILE"));
        return;
    };
    let file = path.rsplit('\\').next().unwrap_or_default().to_ascii_lowercase();
    let what = || format!("{file} is no file that is copied; add it to CopyFiles");
    found.unless(targets.contains(&file), "VERIF-2084", line, what);
    let right = !is_display(inf) || dirid == "13";
    found.unless(right, "VERIF-2600", line, || format!("ServiceBinary is '{binary}'; write %13%\\{file}"));
}

/// What Needs names is here, or in an INF that the same section includes.
fn needs(inf: &Inf, found: &mut Findings) {
    for section in &inf.sections {
        let includes = section.entries.iter().any(|entry| entry.key.eq_ignore_ascii_case("Include"));
        for entry in section.entries.iter().filter(|entry| entry.key.eq_ignore_ascii_case("Needs")) {
            for name in entry.values.iter().filter(|name| !name.is_empty()) {
                let here = inf.sections.iter().any(|one| one.name.eq_ignore_ascii_case(name));
                let what = || format!("[{name}] is not here, and nothing is included; add Include = FILE.inf");
                found.unless(here || includes, "VERIF-1319", entry.line, what);
            }
        }
    }
}
