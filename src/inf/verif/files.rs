//! Files that are copied: their place in the package, and where they go.

use super::super::Findings;
use super::super::parse::{Entry, Inf, unsigned};
use super::reach::{Reach, Use};
use std::collections::BTreeMap;

/// The driver store.
const STORE: &str = "13";

/// A file and where it goes.
struct Copy<'a> {
    source: &'a str,
    target: &'a str,
    folder: Folder<'a>,
    by: &'a Entry,
}

/// Where a file goes: a folder of Windows, and a folder below it.
#[derive(Clone, Copy)]
struct Folder<'a> {
    dirid: &'a str,
    below: &'a str,
}

/// Whether a section has this name, decorated with an architecture or not.
fn is_section(name: &str, base: &str) -> bool {
    name.split('.').next().is_some_and(|it| it.eq_ignore_ascii_case(base))
}

fn decorated<'a>(inf: &'a Inf, base: &'a str) -> impl Iterator<Item = &'a Entry> {
    inf.sections.iter().filter(move |section| is_section(&section.name, base)).flat_map(|section| &section.entries)
}

fn destination<'a>(inf: &'a Inf, section: &str) -> Option<Folder<'a>> {
    let entry = inf.entry("DestinationDirs", section).or_else(|| inf.entry("DestinationDirs", "DefaultDestDir"))?;
    Some(Folder { dirid: entry.value(0), below: entry.value(1) })
}

/// Checks the files; returns the names that they have where they are copied to, in lower case: services name these.
pub(super) fn check(inf: &Inf, reach: &Reach<'_>, found: &mut Findings) -> Vec<String> {
    sources(inf, found);
    for entry in inf.entries("DestinationDirs") {
        let dirid = inf.resolved(entry.value(0));
        let number = unsigned(&dirid).is_some_and(|dirid| dirid.parse::<i32>().is_ok());
        found.unless(number, "VERIF-1243", entry.line, || format!("'{dirid}' is no DIRID; write a number, such as 13"));
    }
    let copies = copies(inf, reach, found);
    for copy in &copies {
        judge(inf, copy, found);
    }
    let mut targets: BTreeMap<(String, String), &str> = BTreeMap::new();
    for copy in &copies {
        let place = (format!("{}\\{}", copy.folder.dirid, copy.folder.below), copy.target.to_ascii_lowercase());
        let first = targets.entry(place).or_insert(copy.source);
        let same = first.eq_ignore_ascii_case(copy.source);
        let what = || format!("{first} and {} become {}; write two names", copy.source, copy.target);
        found.unless(same, "VERIF-1330", copy.by.line, what);
    }
    copies.iter().map(|copy| copy.target.to_ascii_lowercase()).collect()
}

fn copies<'a>(inf: &'a Inf, reach: &Reach<'a>, found: &mut Findings) -> Vec<Copy<'a>> {
    let mut copies = Vec::new();
    for one in reach.named.iter().filter(|one| one.used == Use::Files) {
        let Some(folder) = destination(inf, one.section) else {
            let what = || format!("[{}] has no destination; add it to [DestinationDirs]", one.section);
            found.add("VERIF-1275", one.by.line, what());
            continue;
        };
        let security = format!("{}.Security", one.section);
        if let Some(entry) = inf.entries(&security).next().filter(|_| folder.dirid == STORE) {
            found.add("VERIF-1101", entry.line, format!("[{security}] is for files in DIRID 13; remove it"));
        }
        if !one.by.key.eq_ignore_ascii_case("CopyFiles") {
            let what = || format!("{} names files in DIRID 13; remove it", one.by.key);
            found.unless(folder.dirid != STORE, "VERIF-1102", one.by.line, what);
            continue;
        }
        for by in inf.entries(one.section) {
            let target = by.value(0);
            if target.is_empty() {
                found.add("VERIF-1229", by.line, "the line names no file; write one, or remove it");
                continue;
            }
            let source = if by.value(1).is_empty() { target } else { by.value(1) };
            let flags = by.value(3);
            let none = flags.is_empty() || inf.number(flags) == Some(0) || folder.dirid != STORE;
            let what = || format!("{target} has flag {flags}, and goes to DIRID 13; remove the flag");
            found.unless(none, "VERIF-1103", by.line, what);
            copies.push(Copy { source, target, folder, by });
        }
    }
    for one in &reach.single {
        match destination(inf, "DefaultDestDir") {
            Some(folder) => copies.push(Copy { source: one.file, target: one.file, folder, by: one.by }),
            None => {
                found.add("VERIF-1275", one.by.line, format!("{} has no destination; add DefaultDestDir", one.file))
            }
        }
    }
    copies
}

/// `[SourceDisksFiles]` and the disks that it names.
fn sources(inf: &Inf, found: &mut Findings) {
    for entry in decorated(inf, "SourceDisksFiles") {
        let (file, disk) = (entry.key.to_ascii_lowercase(), inf.resolved(entry.value(0)));
        let catalog = file.ends_with(".cat");
        found.unless(!catalog, "VERIF-1213", entry.line, || format!("{file} is a catalog; remove the line"));
        let packed = file.ends_with('_');
        found.unless(!packed, "VERIF-1231", entry.line, || format!("{file} is compressed; write the name before that"));
        let number = unsigned(&disk).is_some_and(|disk| disk.parse::<u32>().is_ok_and(|disk| disk > 0));
        found.unless(number, "VERIF-1008", entry.line, || format!("the disk of {file} is '{disk}'; write its number"));
        let listed = decorated(inf, "SourceDisksNames").any(|one| inf.resolved(&one.key) == disk);
        let what = || format!("disk {disk} is not in [SourceDisksNames]; add it");
        found.unless(listed || !number, "VERIF-1273", entry.line, what);
    }
}

fn judge(inf: &Inf, copy: &Copy<'_>, found: &mut Findings) {
    let Copy { source, target, folder, by } = copy;
    let listed = decorated(inf, "SourceDisksFiles").find(|entry| entry.key.eq_ignore_ascii_case(source));
    let what = || format!("{source} is not in [SourceDisksFiles]; add it");
    found.unless(listed.is_some(), "VERIF-1230", by.line, what);
    let isolated = folder.dirid == STORE;
    let what = || format!("{target} goes to DIRID {}; write 13 in [DestinationDirs]", folder.dirid);
    found.unless(isolated, "VERIF-1322", by.line, what);
    if isolated {
        let here = listed.map_or("", |entry| entry.value(1));
        let same = source.eq_ignore_ascii_case(target) && here.eq_ignore_ascii_case(folder.below);
        let what = || format!("{here}\\{source} becomes {}\\{target} in DIRID 13; write the same", folder.below);
        found.unless(same, "VERIF-1100", by.line, what);
    }
}
