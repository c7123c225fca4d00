//! The rules of the INF linter.

use super::parse::{Entry, Inf, tokens};
use super::{Findings, Rule};
use crate::setting;
use kmd_core::setting_values::Part;
use std::collections::BTreeSet;

const DISPLAY: (&str, &str) = ("Display", "{4D36E968-E325-11CE-BFC1-08002BE10318}");
const COMPUTE: (&str, &str) = ("ComputeAccelerator", "{F01A9D53-3FF6-48D2-9F97-C8A7004BE10C}");

/// The library that programs use, which Direct3D must not load.
const CLIENT: &str = "fencepost_umd.dll";
/// FLG_ADDREG_NOCLOBBER in a DWORD's flags.
const DWORD_KEEP: u64 = 0x0001_0003;
/// A DWORD's flags.
const DWORD: u64 = 0x0001_0001;
/// The flags of a list of texts.
const MULTI_SZ: u64 = 0x0001_0000;
/// A QWORD's flags.
const QWORD: u64 = 0x000B_0001;
/// The Windows that the models are for.
const DECORATION: &str = "NT$ARCH$.10.0...26100";

const fn rule(
    name: &'static str,
    title: &'static str,
    source: &'static str,
    check: fn(&Inf, &mut Findings<'_>),
) -> Rule {
    Rule { name, title, source, check }
}

/// The linter's rules, in the order in which they are checked and listed.
pub const RULES: &[Rule] = &[
    rule("INF-ASCII", "the file is ASCII", "article general-syntax-rules-for-inf-files; InfVerif 1003", ascii),
    rule(
        "INF-SECTION",
        "each section that is named is there, and each that is there is named",
        "article general-syntax-rules-for-inf-files",
        sections,
    ),
    rule(
        "INF-STRING",
        "each string that is used is defined once, and each that is defined is used",
        "article inf-strings-section",
        strings,
    ),
    rule(
        "INF-CLASS",
        "class and class GUID are a pair that this driver has",
        "article inf-version-section; article mcdm-implementation-guidelines",
        class,
    ),
    rule("INF-CATALOG", "a catalog is named", "article inf-version-section", catalog),
    rule(
        "INF-DRIVERVER",
        "date and version are stamped in, from inf/version",
        "article inf-driverver-directive; article wddm-2-1-features, Driver Versioning",
        driver_version,
    ),
    rule("INF-LOCKDOWN", "PnpLockdown is 1", "article inf-version-section; InfVerif 1324", lockdown),
    rule(
        "INF-CONTROL",
        "hardware is excluded from selection lists",
        "article setting-the-driver-control-flags",
        control,
    ),
    rule(
        "INF-DIRID",
        "everything stays in the driver store, DIRID 13",
        "article run-from-driver-store; InfVerif 2600, 2601",
        folders,
    ),
    rule(
        "INF-MODEL",
        "models are decorated for 24H2 and later, for the architecture that is stamped in",
        "article inf-manufacturer-section",
        models,
    ),
    rule(
        "INF-FILES",
        "each file is copied once, and has its place on the disk",
        "article inf-copyfiles-directive; article inf-sourcedisksfiles-section",
        files,
    ),
    rule(
        "INF-SERVICE",
        "the service is a kernel driver, started on demand, whose failure stops no boot, and the function's driver",
        "article inf-addservice-directive; InfVerif 2602",
        service,
    ),
    rule(
        "INF-UMD",
        "UserModeDriverName names four times one library that is copied and that programs do not use",
        "article loading-a-user-mode-display-driver; seen by authors of drivers (four entries)",
        user_mode_driver,
    ),
    rule(
        "INF-SETTING",
        "of the settings MaxRung 0 is written, where there is no value yet",
        "docs/settings.md; article inf-addreg-directive (FLG_ADDREG_NOCLOBBER)",
        settings,
    ),
    rule("INF-QWORD", "no value is a QWORD", "InfVerif 1268; the pages disagree about its form", qwords),
    rule(
        "INF-HKLM",
        "nothing is written outside of the driver's own keys, nor a switch of Windows",
        "InfVerif 1320 to 1322; article querying-wddm-feature-support",
        own_keys,
    ),
    rule(
        "INF-COMPUTE",
        "class ComputeAccelerator comes with ComputeOnly 1, class Display with 0 (the other form's may be there)",
        "article mcdm-implementation-guidelines",
        compute_only,
    ),
    rule(
        "INF-VALUES",
        "the values that Windows and programs look for are there once, with their types, and none of the other form's",
        "articles registering-hardware-information and enabling-message-signaled-interrupts-in-the-registry; \
         docs/windows.md, What the INFs write",
        values,
    ),
];

fn ascii(inf: &Inf, found: &mut Findings<'_>) {
    for (line, text) in (1..).zip(inf.text.lines()) {
        found.unless(text.is_ascii(), line, || format!("'{}' is not ASCII", text.trim()));
    }
}

/// Sections that Windows looks for by their names.
const KNOWN: [&str; 7] =
    ["Version", "ControlFlags", "DestinationDirs", "SourceDisksNames", "SourceDisksFiles", "Manufacturer", "Strings"];

/// Names of sections that entries name, each with the line of the entry.
fn named(inf: &Inf) -> Vec<(String, usize)> {
    let mut names: Vec<(String, usize)> = Vec::new();
    for models in models_sections(inf) {
        for entry in inf.entries(&models.0) {
            names.push((entry.value(0).to_owned(), entry.line));
        }
        names.push(models);
    }
    let installs: BTreeSet<_> = installs(inf).into_iter().collect();
    for install in installs {
        for part in ["", ".HW", ".Services"] {
            let section = format!("{install}{part}");
            names.extend(referenced(inf.entries(&section)));
        }
    }
    for service in inf.sections.iter().flat_map(|section| &section.entries).filter(|entry| is_service(entry)) {
        names.extend(referenced(inf.entries(service.value(2))));
    }
    names
}

/// What AddReg, CopyFiles and AddService name.
fn referenced(entries: &[Entry]) -> Vec<(String, usize)> {
    let mut names = Vec::new();
    for entry in entries {
        if ["AddReg", "CopyFiles", "DelReg"].iter().any(|key| entry.key.eq_ignore_ascii_case(key)) {
            let sections = entry.values.iter().filter(|name| !name.starts_with('@'));
            names.extend(sections.map(|name| (name.clone(), entry.line)));
        }
        if is_service(entry) {
            names.push((entry.value(2).to_owned(), entry.line));
        }
    }
    names
}

fn is_service(entry: &Entry) -> bool {
    entry.key.eq_ignore_ascii_case("AddService")
}

/// Sections of models: `Fencepost, NT$ARCH$…` names `[Fencepost.NT$ARCH$…]`.
fn models_sections(inf: &Inf) -> Vec<(String, usize)> {
    let mut names = Vec::new();
    for entry in inf.entries("Manufacturer") {
        for decoration in entry.values.iter().skip(1) {
            names.push((format!("{}.{decoration}", entry.value(0)), entry.line));
        }
    }
    names
}

/// Names of the sections that install a device.
fn installs(inf: &Inf) -> Vec<String> {
    let models = models_sections(inf);
    models.iter().flat_map(|(name, _)| inf.entries(name)).map(|entry| entry.value(0).to_owned()).collect()
}

fn sections(inf: &Inf, found: &mut Findings<'_>) {
    let named = named(inf);
    for (name, line) in &named {
        found.unless(inf.section(name).is_some(), *line, || format!("there is no section [{name}]"));
    }
    let mut used: BTreeSet<String> = named.into_iter().map(|(name, _)| name.to_ascii_lowercase()).collect();
    used.extend(KNOWN.map(str::to_ascii_lowercase));
    for install in installs(inf) {
        used.extend([".hw", ".services"].map(|part| format!("{}{part}", install.to_ascii_lowercase())));
    }
    let mut seen = BTreeSet::new();
    for section in &inf.sections {
        let name = section.name.to_ascii_lowercase();
        found.unless(used.contains(&name), section.line, || format!("nothing names [{}]", section.name));
        found.unless(seen.insert(name), section.line, || format!("[{}] is there twice", section.name));
    }
    for name in KNOWN {
        found.unless(inf.section(name).is_some(), 0, || format!("there is no section [{name}]"));
    }
}

fn strings(inf: &Inf, found: &mut Findings<'_>) {
    let mut used = BTreeSet::new();
    for entry in inf.sections.iter().flat_map(|section| &section.entries) {
        for token in tokens(&entry.key).into_iter().chain(entry.values.iter().flat_map(|value| tokens(value))) {
            found.unless(inf.entry("Strings", &token).is_some(), entry.line, || format!("%{token}% is not defined"));
            used.insert(token.to_ascii_lowercase());
        }
    }
    let mut defined = BTreeSet::new();
    for entry in inf.entries("Strings") {
        let name = entry.key.to_ascii_lowercase();
        found.unless(used.contains(&name), entry.line, || format!("{} is not used", entry.key));
        found.unless(defined.insert(name), entry.line, || format!("{} is defined twice", entry.key));
    }
}

fn class(inf: &Inf, found: &mut Findings<'_>) {
    let ((class, line), (guid, _)) = (inf.directive("Version", "Class"), inf.directive("Version", "ClassGuid"));
    let known = [DISPLAY, COMPUTE].iter().any(|pair| class == pair.0 && guid.eq_ignore_ascii_case(pair.1));
    found.unless(known, line, || format!("class '{class}' with GUID '{guid}'"));
    let (signature, line) = inf.directive("Version", "Signature");
    found.unless(signature == "$WINDOWS NT$", line, || format!("the signature is '{signature}'"));
}

fn is_compute(inf: &Inf) -> bool {
    inf.directive("Version", "Class").0 == COMPUTE.0
}

fn catalog(inf: &Inf, found: &mut Findings<'_>) {
    let (catalog, line) = inf.directive("Version", "CatalogFile");
    let wanted = if is_compute(inf) { "fencepost_compute.cat" } else { "fencepost.cat" };
    found.unless(catalog == wanted, line, || format!("CatalogFile is '{catalog}', not {wanted}"));
}

fn driver_version(inf: &Inf, found: &mut Findings<'_>) {
    match inf.entry("Version", "DriverVer") {
        None => found.add(0, "there is no DriverVer, so nothing is stamped in"),
        Some(entry) => {
            found.unless(entry.value(0).is_empty(), entry.line, || format!("DriverVer is {}", entry.values.join(",")));
        }
    }
}

fn lockdown(inf: &Inf, found: &mut Findings<'_>) {
    let (value, line) = inf.directive("Version", "PnpLockdown");
    found.unless(value == "1", line, || format!("PnpLockdown is '{value}'"));
}

fn control(inf: &Inf, found: &mut Findings<'_>) {
    let excluded: Vec<_> = inf
        .entries("ControlFlags")
        .iter()
        .filter(|entry| entry.key.eq_ignore_ascii_case("ExcludeFromSelect"))
        .flat_map(|entry| entry.values.iter().map(|value| value.to_ascii_lowercase()))
        .collect();
    for entry in models_sections(inf).iter().flat_map(|(name, _)| inf.entries(name)) {
        for id in entry.values.iter().skip(1).filter(|id| id.to_ascii_uppercase().starts_with("PCI\\")) {
            let is_excluded = excluded.contains(&id.to_ascii_lowercase());
            found.unless(is_excluded, entry.line, || format!("{id} is not in ExcludeFromSelect"));
        }
    }
}

fn folders(inf: &Inf, found: &mut Findings<'_>) {
    let (folder, line) = inf.directive("DestinationDirs", "DefaultDestDir");
    found.unless(folder == "13", line, || format!("DefaultDestDir is '{folder}'"));
    for section in inf.sections.iter().filter(|section| section.name != "Strings") {
        for entry in &section.entries {
            for value in &entry.values {
                let folder = value.strip_prefix('%').and_then(|rest| rest.split_once('%')).map(|(folder, _)| folder);
                let folder = folder.and_then(|folder| folder.parse::<u32>().ok());
                found.unless(folder.is_none_or(|folder| folder == 13), entry.line, || format!("'{value}'"));
            }
        }
    }
}

fn models(inf: &Inf, found: &mut Findings<'_>) {
    for entry in inf.entries("Manufacturer") {
        let holds = entry.values.len() == 2 && entry.value(1) == DECORATION;
        found.unless(holds, entry.line, || format!("'{}', not {DECORATION}", entry.values[1..].join(", ")));
    }
    found.unless(!inf.entries("Manufacturer").is_empty(), 0, || "there is no manufacturer".to_owned());
}

/// Files that are copied, each with its line.
fn copied(inf: &Inf) -> Vec<(String, usize)> {
    let mut files = Vec::new();
    let installs: BTreeSet<_> = installs(inf).into_iter().collect();
    for entry in installs.iter().flat_map(|install| inf.entries(install)) {
        if entry.key.eq_ignore_ascii_case("CopyFiles") {
            let listed = entry.values.iter().flat_map(|list| inf.entries(list));
            files.extend(listed.map(|file| (file.value(0).to_owned(), file.line)));
        }
    }
    files
}

fn files(inf: &Inf, found: &mut Findings<'_>) {
    let copied = copied(inf);
    for (file, line) in &copied {
        let on_disk = inf.entry("SourceDisksFiles", file).is_some();
        found.unless(on_disk, *line, || format!("{file} is not in SourceDisksFiles"));
    }
    for entry in inf.entries("SourceDisksFiles") {
        let times = copied.iter().filter(|(file, _)| file.eq_ignore_ascii_case(&entry.key)).count();
        found.unless(times == 1, entry.line, || format!("{} is copied {times} times", entry.key));
        let disk = inf.entry("SourceDisksNames", entry.value(0)).is_some();
        found.unless(disk, entry.line, || format!("disk {} is not in SourceDisksNames", entry.value(0)));
    }
}

fn service(inf: &Inf, found: &mut Findings<'_>) {
    let installs: BTreeSet<_> = installs(inf).into_iter().collect();
    for install in installs {
        let section = format!("{install}.Services");
        let services: Vec<_> = inf.entries(&section).iter().filter(|entry| is_service(entry)).collect();
        let [service] = services[..] else {
            found.add(0, format!("[{section}] has {} services, not one", services.len()));
            continue;
        };
        let flags = inf.number(service.value(1));
        found.unless(flags == Some(2), service.line, || format!("flags {flags:?}, not 2: the function's driver"));
        for (key, wanted) in [("ServiceType", "1"), ("StartType", "3"), ("ErrorControl", "0")] {
            let (value, line) = inf.directive(service.value(2), key);
            found.unless(value == wanted, line, || format!("{key} is '{value}', not {wanted}"));
        }
        let (binary, line) = inf.directive(service.value(2), "ServiceBinary");
        let file = binary.strip_prefix("%13%\\").unwrap_or_default().to_owned();
        let is_copied = copied(inf).iter().any(|(copied, _)| copied.eq_ignore_ascii_case(&file));
        found.unless(is_copied, line, || format!("ServiceBinary is '{binary}', not a file that is copied"));
    }
}

/// Entries of AddReg sections of devices, of their hardware keys and of services.
fn registry(inf: &Inf) -> Vec<&Entry> {
    let mut lists: BTreeSet<String> = BTreeSet::new();
    for entry in inf.sections.iter().flat_map(|section| &section.entries) {
        if entry.key.eq_ignore_ascii_case("AddReg") {
            lists.extend(entry.values.iter().cloned());
        }
    }
    lists.iter().flat_map(|list| inf.entries(list)).collect()
}

fn user_mode_driver(inf: &Inf, found: &mut Findings<'_>) {
    let registry = registry(inf);
    let Some(entry) = registry.iter().find(|entry| entry.value(2).eq_ignore_ascii_case("UserModeDriverName")) else {
        found.add(0, "there is no UserModeDriverName");
        return;
    };
    let names = &entry.values[entry.values.len().min(4)..];
    let first = names.first().map_or("", String::as_str);
    let same = names.len() == 4 && names.iter().all(|name| name == first);
    found.unless(same, entry.line, || format!("'{}': not four times the same", names.join(", ")));
    let file = first.rsplit('\\').next().unwrap_or_default();
    let is_copied = copied(inf).iter().any(|(copied, _)| copied.eq_ignore_ascii_case(file));
    found.unless(is_copied, entry.line, || format!("{file} is not copied"));
    let client = file.eq_ignore_ascii_case(CLIENT);
    found.unless(!client, entry.line, || format!("{file} is what programs use: every Direct3D process would load it"));
}

/// Values of the device's software key that are not settings.
const NOT_SETTINGS: [&str; 9] = [
    "UserModeDriverName",
    "InstalledDisplayDrivers",
    "FencepostClient",
    "HardwareInformation.AdapterString",
    "HardwareInformation.ChipType",
    "HardwareInformation.DacType",
    "HardwareInformation.BiosString",
    "VgaCompatible",
    "CapabilityOverride",
];

fn settings(inf: &Inf, found: &mut Findings<'_>) {
    let (mut lowest, qword) = (false, Some(QWORD));
    for entry in registry(inf) {
        let (key, name) = (entry.value(1), entry.value(2));
        let software = entry.value(0).eq_ignore_ascii_case("HKR") && key.is_empty();
        // A QWORD and a name that Windows knows are other rules'.
        let other = NOT_SETTINGS.contains(&name) || inf.number(entry.value(3)) == qword;
        if !software || other {
            continue;
        }
        match setting::find(name) {
            // The service's, which INF-COMPUTE is about.
            Some(setting) if setting.part == Part::Service => {}
            None => found.add(entry.line, format!("{name} is no setting of docs/settings.md")),
            Some(setting) if setting.name != "MaxRung" => {
                found.add(entry.line, format!("{name} is written: its default is the driver's affair"));
            }
            Some(_) => {
                lowest = true;
                let (flags, value) = (inf.number(entry.value(3)), inf.number(entry.value(4)));
                found.unless(value == Some(0), entry.line, || format!("MaxRung is {value:?}: begin with 0"));
                let kept = flags == Some(DWORD_KEEP);
                found.unless(kept, entry.line, || format!("flags {flags:#x?} write over a user's value"));
            }
        }
    }
    found.unless(lowest, 0, || "MaxRung is not written: the first start would be on the highest rung".to_owned());
}

fn qwords(inf: &Inf, found: &mut Findings<'_>) {
    for entry in registry(inf) {
        let qword = inf.number(entry.value(3)) == Some(QWORD);
        found.unless(!qword, entry.line, || format!("{} is a QWORD", entry.value(2)));
    }
}

fn own_keys(inf: &Inf, found: &mut Findings<'_>) {
    for entry in registry(inf) {
        let (root, key, name) = (entry.value(0), entry.value(1).to_ascii_lowercase(), entry.value(2));
        found.unless(root.eq_ignore_ascii_case("HKR"), entry.line, || format!("{root}\\{}", entry.value(1)));
        let switch = key.starts_with("features")
            || name.eq_ignore_ascii_case("HwSchMode")
            || name.to_ascii_lowercase().starts_with("tdr");
        let own = root.eq_ignore_ascii_case("HKR");
        found.unless(!(own && switch), entry.line, || format!("{key}\\{name} is the user's to switch"));
    }
}

/// A value that an INF writes: key below the device's, name, flags, the number or the end of the text that it has
/// (empty: any), and whether the display form alone has it.
type Value = (&'static str, &'static str, u64, &'static str, bool);

/// Where line-based interrupts are asked for.
const INTERRUPTS: &str = r"Interrupt Management\MessageSignaledInterruptProperties";

/// The values that are neither settings nor what other rules are about.
const VALUES: &[Value] = &[
    ("", "FencepostClient", 0, CLIENT, false),
    ("", "HardwareInformation.AdapterString", 0, "", false),
    ("", "HardwareInformation.ChipType", 0, "", false),
    ("", "HardwareInformation.DacType", 0, "", true),
    ("", "HardwareInformation.BiosString", 0, "", true),
    ("", "InstalledDisplayDrivers", MULTI_SZ, "", true),
    ("", "VgaCompatible", DWORD, "0", true),
    ("", "CapabilityOverride", DWORD, "0x8", true),
    (INTERRUPTS, "MSISupported", DWORD, "0", false),
];

fn values(inf: &Inf, found: &mut Findings<'_>) {
    // Whether their lists are reached is another rule's.
    let all = inf.sections.iter().flat_map(|section| &section.entries);
    let registry: Vec<_> = all.filter(|entry| entry.value(0).eq_ignore_ascii_case("HKR")).collect();
    for (key, name, flags, end, display) in VALUES {
        let there: Vec<_> = registry.iter().filter(|entry| entry.value(2).eq_ignore_ascii_case(name)).collect();
        if *display && is_compute(inf) {
            for entry in &there {
                found.add(entry.line, format!("{name} is the display form's"));
            }
            continue;
        }
        let [entry] = there.as_slice() else {
            found.add(there.get(1).map_or(0, |entry| entry.line), format!("{name} is there {} times", there.len()));
            continue;
        };
        let (at, value) = (entry.value(1), entry.value(4));
        found.unless(at.eq_ignore_ascii_case(key), entry.line, || format!("{name} stands under '{at}', not '{key}'"));
        let given = inf.number(entry.value(3));
        found.unless(given == Some(*flags), entry.line, || format!("{name} has the flags {}", entry.value(3)));
        let right = match inf.number(end) {
            Some(number) if !end.is_empty() => inf.number(value) == Some(number),
            _ => !value.is_empty() && value.to_ascii_lowercase().ends_with(end),
        };
        found.unless(right, entry.line, || format!("{name} is '{value}'"));
    }
}

fn compute_only(inf: &Inf, found: &mut Findings<'_>) {
    let wanted = u64::from(is_compute(inf));
    let registry = registry(inf);
    let entry = registry.iter().find(|entry| entry.value(2).eq_ignore_ascii_case("ComputeOnly"));
    match entry {
        None => found.add(0, format!("ComputeOnly is not written: {wanted} is due")),
        Some(entry) => {
            let (flags, value) = (inf.number(entry.value(3)), inf.number(entry.value(4)));
            found.unless(value == Some(wanted), entry.line, || format!("ComputeOnly is {value:?}, not {wanted}"));
            let place = entry.value(1).eq_ignore_ascii_case("Parameters") && flags == Some(DWORD);
            found.unless(place, entry.line, || "ComputeOnly is a DWORD of the service's Parameters".to_owned());
        }
    }
}
