//! The names of the linter's rules, each with what it says and which document says so.

use super::{Level, Rule};

const fn rule(name: &'static str, title: &'static str, source: &'static str) -> Rule {
    Rule { name, title, source, level: Level::Error }
}

pub(super) const ASCII: &str = "INF-ASCII";
pub(super) const SECTION: &str = "INF-SECTION";
pub(super) const STRING: &str = "INF-STRING";
pub(super) const DIRECTIVE: &str = "INF-DIRECTIVE";
pub(super) const CLASS: &str = "INF-CLASS";
pub(super) const PROVIDER: &str = "INF-PROVIDER";
pub(super) const CATALOG: &str = "INF-CATALOG";
pub(super) const DRIVERVER: &str = "INF-DRIVERVER";
pub(super) const LOCKDOWN: &str = "INF-LOCKDOWN";
pub(super) const CONTROL: &str = "INF-CONTROL";
pub(super) const DIRID: &str = "INF-DIRID";
pub(super) const MODEL: &str = "INF-MODEL";
pub(super) const DEVICE: &str = "INF-DEVICE";
pub(super) const SCORE: &str = "INF-SCORE";
pub(super) const FILES: &str = "INF-FILES";
pub(super) const SERVICE: &str = "INF-SERVICE";
pub(super) const UMD: &str = "INF-UMD";
pub(super) const SETTING: &str = "INF-SETTING";
pub(super) const QWORD: &str = "INF-QWORD";
pub(super) const HKLM: &str = "INF-HKLM";
pub(super) const COMPUTE: &str = "INF-COMPUTE";
pub(super) const VALUES: &str = "INF-VALUES";

/// The linter's rules.
pub const RULES: &[Rule] = &[
    rule(ASCII, "the file is ASCII", "article general-syntax-rules-for-inf-files; InfVerif 1003"),
    rule(
        SECTION,
        "each section of the form is there once, is named where it must be, and nothing stands outside of sections",
        "article general-syntax-rules-for-inf-files",
    ),
    rule(
        STRING,
        "each string that is used is defined once, and each that is defined is used",
        "article inf-strings-section",
    ),
    rule(DIRECTIVE, "a section has the directives of its form and no other", "docs/windows.md, What the INFs write"),
    rule(
        CLASS,
        "signature, class and class GUID are those of the form",
        "article inf-version-section; article mcdm-implementation-guidelines",
    ),
    rule(PROVIDER, "the provider is Fencepost", "article inf-version-section"),
    rule(CATALOG, "the catalog is the form's own", "article inf-version-section"),
    rule(
        DRIVERVER,
        "DriverVer is empty before the file is stamped, and then a date and the version of inf/version",
        "article inf-driverver-directive; article wddm-2-1-features, Driver Versioning",
    ),
    rule(LOCKDOWN, "PnpLockdown is 1", "article inf-version-section; InfVerif 1324"),
    rule(
        CONTROL,
        "the PCI device, and nothing else, is excluded from selection lists",
        "article setting-the-driver-control-flags",
    ),
    rule(DIRID, "everything stays in the driver store, DIRID 13", "article run-from-driver-store; InfVerif 2600, 2601"),
    rule(
        MODEL,
        "models are decorated for 24H2 and later, for the architecture that is stamped in",
        "article inf-manufacturer-section",
    ),
    rule(
        DEVICE,
        "the devices are QEMU's edu function and the experiment, each by its hardware ID alone",
        "article inf-models-section; docs/windows.md, What is needed",
    ),
    rule(
        SCORE,
        "FeatureScore is F6 in the display form, as of a vendor's WDDM driver, and FF, the worst, in the other",
        "articles setting-the-driver-feature-score, inf-featurescore-directive (no page has one for accelerators)",
    ),
    rule(
        FILES,
        "each of the three files is copied once, without flags, and has its place on the disk",
        "article inf-copyfiles-directive; article inf-sourcedisksfiles-section",
    ),
    rule(
        SERVICE,
        "the service is a kernel driver, started on demand, whose failure stops no boot, and the function's driver",
        "article inf-addservice-directive; InfVerif 2602",
    ),
    rule(
        UMD,
        "UserModeDriverName names four times the library that refuses Direct3D",
        "article loading-a-user-mode-display-driver; seen by authors of drivers (four entries)",
    ),
    rule(
        SETTING,
        "of the settings MaxRung 0 is written, in the software key, where there is no value yet",
        "docs/settings.md; article inf-addreg-directive (FLG_ADDREG_NOCLOBBER)",
    ),
    rule(QWORD, "no value is a QWORD", "InfVerif 1268; the pages disagree about its form"),
    rule(
        HKLM,
        "nothing is written outside of the driver's own keys, no switch of Windows, and nothing is deleted",
        "InfVerif 1320 to 1322; article querying-wddm-feature-support",
    ),
    rule(
        COMPUTE,
        "ComputeOnly, a value of the service, is 1 with class ComputeAccelerator and 0 with class Display",
        "article mcdm-implementation-guidelines",
    ),
    rule(
        VALUES,
        "the values that Windows and programs look for are there once, with their types, and none of the other form's",
        "articles registering-hardware-information and enabling-message-signaled-interrupts-in-the-registry; \
         docs/windows.md, What the INFs write",
    ),
];
