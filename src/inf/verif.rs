//! What InfVerif says of an INF, by its documented codes: of any driver's, not of Fencepost's alone.
//!
//! | file | holds |
//! |---|---|
//! | `verif.rs` | the rules, each with its code, its severity and its page |
//! | `reach.rs` | what an installation reaches |
//! | `version.rs` | `[Version]` and `[Strings]` |
//! | `models.rs` | manufacturers, models, and the sections that they name |
//! | `files.rs` | files that are copied |
//! | `registry.rs` | registry values |
//! | `services.rs` | services, and what display drivers must have |
//!
//! The severities are those of `InfVerif /w`, the strictest of the documented modes that does not change with releases.
//! Where a page names a rule and not what it compares, the rule says what was chosen. docs/windows.md lists the codes
//! that are not looked at, with the reasons.

mod files;
mod models;
mod reach;
mod registry;
mod services;
mod version;

use super::parse::Inf;
use super::{Findings, Level, Rule};

const PAGE: &str = "article inf-validation-errors-and-warnings";

const fn error(name: &'static str, title: &'static str) -> Rule {
    Rule { name, title, source: PAGE, level: Level::Error }
}

const fn warning(name: &'static str, title: &'static str) -> Rule {
    Rule { name, title, source: PAGE, level: Level::Warning }
}

/// The rules, by InfVerif's codes.
pub const VERIF_RULES: &[Rule] = &[
    error("VERIF-1001", "[Version] is there, and its signature is $Windows NT$"),
    error("VERIF-1002", "every line can be parsed"),
    error("VERIF-1003", "the file is ANSI or UTF-16 LE; chosen: a file without a byte order mark is ASCII"),
    error("VERIF-1005", "a directive that takes a section names one"),
    error("VERIF-1006", "a directive of [Version] has a value"),
    error("VERIF-1008", "a file's disk ID is a number from 1 on"),
    error("VERIF-1010", "ClassGuid is a GUID in braces"),
    error("VERIF-1011", "an entry of [Manufacturer] names a section of models"),
    error("VERIF-1088", "no directive of [Version] is there twice"),
    error("VERIF-1100", "a file in DIRID 13 keeps its name and its folder"),
    error("VERIF-1101", "no security descriptor goes with DIRID 13"),
    error("VERIF-1102", "files in DIRID 13 are neither deleted nor renamed"),
    error("VERIF-1103", "no flag goes with DIRID 13; chosen: none of CopyFiles' flags, since the page names no list"),
    error("VERIF-1110", "CopyINF names INF files alone"),
    warning("VERIF-1201", "a directive of [Version] has no more values than it takes"),
    error("VERIF-1203", "a section that is named is there"),
    error("VERIF-1204", "the provider's name does not begin with Microsoft"),
    warning("VERIF-1205", "no section is named by two different directives of one kind"),
    error("VERIF-1206", "a section that a directive names is of that directive's kind"),
    error("VERIF-1209", "no section is there twice"),
    error("VERIF-1211", "an install section has one associated service"),
    error("VERIF-1213", "[SourceDisksFiles] lists no catalog"),
    error("VERIF-1214", "CatalogFile is NAME.cat"),
    error("VERIF-1217", "the version in DriverVer is w.x.y.z, each up to 65535"),
    error("VERIF-1218", "the date in DriverVer is MM/DD/YYYY, or with hyphens, as the directive's page has it"),
    error("VERIF-1224", "a registry root is HKR, HKLM, HKCR, HKCU or HKU"),
    error("VERIF-1229", "an entry of a list of files has a name"),
    error("VERIF-1230", "a file that is copied is listed in [SourceDisksFiles]"),
    error("VERIF-1231", "[SourceDisksFiles] lists files by their uncompressed names"),
    error("VERIF-1233", "[Version] has CatalogFile"),
    error("VERIF-1234", "[Version] and services have the directives that they need"),
    error("VERIF-1235", "a string that is used is defined"),
    error("VERIF-1243", "a DIRID is a number"),
    error("VERIF-1245", "FeatureScore is one byte in hexadecimal"),
    error("VERIF-1250", "an event log is System, Application or Security"),
    warning("VERIF-1251", "an associated service is not disabled"),
    error("VERIF-1253", "a service has a name, but where none is associated"),
    error("VERIF-1261", "the install section of a model is there"),
    error("VERIF-1265", "only a REG_MULTI_SZ value is appended to"),
    error("VERIF-1267", "binary data are bytes"),
    error("VERIF-1268", "a REG_DWORD is a number of 32 bits, a REG_QWORD of 64"),
    error("VERIF-1271", "a model names an install section"),
    error("VERIF-1272", "a service without a name has no section"),
    error("VERIF-1273", "a disk ID is listed in [SourceDisksNames]"),
    error("VERIF-1274", "$ARCH$ is stamped; a file that has no DriverVer yet is read as with /stampinf"),
    error("VERIF-1275", "a list of files has a destination"),
    error("VERIF-1280", "Class is the name that goes with a known ClassGuid"),
    error("VERIF-1281", "ClassGuid is the one that goes with a known Class"),
    error("VERIF-1284", "the class is none that is reserved; chosen: Sample, which the samples have"),
    error("VERIF-1285", "no [ClassInstall32] with a class that Microsoft defines"),
    error("VERIF-1286", "a class's name has up to 31 characters"),
    error("VERIF-1287", "the decoration of a section of models can be parsed"),
    error("VERIF-1288", "a build number in a decoration is 14310 or later, of Windows 10"),
    error("VERIF-1294", "no string is defined twice"),
    error("VERIF-1295", "each language has the same strings"),
    error("VERIF-1296", "an install section has an associated service, of its own or by Needs"),
    error("VERIF-1297", "a driver is for a device"),
    error("VERIF-1301", "no directive that a universal INF may not have"),
    error("VERIF-1303", "no co-installer"),
    error("VERIF-1305", "no value is appended to a REG_MULTI_SZ"),
    error("VERIF-1308", "nothing is deleted"),
    error("VERIF-1319", "what Needs names is in this INF or in one that Include names"),
    error("VERIF-1320", "a registry key is below HKR"),
    error("VERIF-1321", "a registry value is below HKR"),
    error("VERIF-1322", "a file's destination is DIRID 13"),
    error("VERIF-1323", "a registry value of a service is below Parameters"),
    error("VERIF-1324", "PnpLockdown is 1"),
    error("VERIF-1329", "filters are added by a section, not by registry values"),
    error("VERIF-1330", "one file is copied to one destination"),
    error("VERIF-1331", "a registry value is the same in each install section"),
    error("VERIF-1332", "a registry value of a service is the same in each install section"),
    error("VERIF-1333", "a service is the same in each install section"),
    error("VERIF-1380", "ExtensionId is a GUID in braces"),
    error("VERIF-1381", "an INF of class Extension has an ExtensionId"),
    error("VERIF-2006", "the section of a service is there"),
    warning("VERIF-2010", "a section of models is decorated with an architecture"),
    warning("VERIF-2083", "each section is used"),
    error("VERIF-2084", "a service's binary is a file that is copied"),
    error("VERIF-2085", "a service's binary is a path below a DIRID"),
    error(
        "VERIF-2600",
        "a display driver's files are below DIRID 13 (2600, 2601); chosen: service and user-mode driver",
    ),
    error(
        "VERIF-2602",
        "a display driver's service is started on demand; chosen: StartType 3, which the class's pages have",
    ),
];

/// What InfVerif would say of an INF.
pub(super) fn verify(inf: &Inf, is_unicode: bool, found: &mut Findings) {
    let installs = models::install_names(inf);
    let reach = reach::Reach::of(inf, &installs);
    version::check(inf, is_unicode, found);
    models::check(inf, &reach, found);
    let targets = files::check(inf, &reach, found);
    registry::check(inf, &reach, found);
    services::check(inf, &reach, &targets, found);
}
