//! What each form's INF has, directive by directive: the one table that the linter compares a file with.

use super::rules::{
    CATALOG, CLASS, COMPUTE, CONTROL, DEVICE, DIRECTIVE, DIRID, DRIVERVER, FILES, LOCKDOWN, MODEL, PROVIDER, SCORE,
    SECTION, SERVICE, SETTING, UMD, VALUES,
};

/// Which of the two INFs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// `fencepost.inx`, class Display.
    Display,
    /// `fencepost_compute.inx`, class ComputeAccelerator.
    Compute,
}

impl Form {
    /// What a finding calls it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Display => "display",
            Self::Compute => "compute",
        }
    }

    pub fn other(self) -> Self {
        match self {
            Self::Display => Self::Compute,
            Self::Compute => Self::Display,
        }
    }
}

/// How a section's lines are told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// By what stands before the `=`.
    Directives,
    /// By their first value: lists of files.
    List,
    /// By the names of registry values: root, key, name, flags, values.
    Registry,
}

/// A section that both forms have.
pub(super) struct Section {
    pub name: &'static str,
    pub kind: Kind,
    /// The rule that a line breaks which the table does not have.
    pub rule: &'static str,
}

const fn section(name: &'static str, kind: Kind, rule: &'static str) -> Section {
    Section { name, kind, rule }
}

/// The section of models goes by this name in the table; in a file its decoration stands behind it.
pub(super) const MODELS: &str = "Fencepost";
/// Decoration of the models behind the architecture: Windows 11 24H2 and later.
pub(super) const DECORATION: &str = ".10.0...26100";
/// What stands for the architecture before the file is stamped.
pub(super) const ARCHITECTURE: &str = "$ARCH$";
/// What stampinf puts in its place.
pub(super) const ARCHITECTURES: [&str; 2] = ["amd64", "arm64"];
/// A value that may be any text but an empty one.
pub(super) const ANY: &str = "*";
/// The decoration in the line of the manufacturer.
pub(super) const DECORATED: &str = "NT$ARCH$.10.0...26100";

/// Sections, strings aside.
pub(super) const SECTIONS: &[Section] = &[
    section("Version", Kind::Directives, DIRECTIVE),
    section("ControlFlags", Kind::Directives, CONTROL),
    section("DestinationDirs", Kind::Directives, DIRID),
    section("SourceDisksNames", Kind::Directives, FILES),
    section("SourceDisksFiles", Kind::Directives, FILES),
    section("Manufacturer", Kind::Directives, MODEL),
    section(MODELS, Kind::Directives, DEVICE),
    section("Fencepost_Install", Kind::Directives, DIRECTIVE),
    section("Fencepost_Files", Kind::List, FILES),
    section("Fencepost_Software", Kind::Registry, SETTING),
    section("Fencepost_Install.HW", Kind::Directives, DIRECTIVE),
    section("Fencepost_Hardware", Kind::Registry, VALUES),
    section("Fencepost_Install.Services", Kind::Directives, SERVICE),
    section("Fencepost_Service", Kind::Directives, SERVICE),
    section("Fencepost_Parameters", Kind::Registry, VALUES),
];

/// A line of a form: its section, what stands before the `=` (empty without one), its values with strings and numbers
/// put in, and the rule that another line in its place breaks.
pub(super) struct Line {
    pub section: &'static str,
    pub key: &'static str,
    pub values: &'static [&'static str],
    pub rule: &'static str,
}

const fn line(section: &'static str, key: &'static str, values: &'static [&'static str], rule: &'static str) -> Line {
    Line { section, key, values, rule }
}

const PCI: &str = r"PCI\VEN_1234&DEV_11E8";
const INTERRUPTS: &str = r"Interrupt Management\MessageSignaledInterruptProperties";
const STUB: &str = r"%13%\fencepost_d3d.dll";

/// Flags of AddReg: REG_SZ, REG_MULTI_SZ, REG_DWORD, and REG_DWORD with FLG_ADDREG_NOCLOBBER.
const SZ: &str = "0x00000000";
const MULTI_SZ: &str = "0x00010000";
const DWORD: &str = "0x00010001";
const DWORD_KEEP: &str = "0x00010003";

/// What both forms have.
#[rustfmt::skip]
const BOTH: &[Line] = &[
    line("Version", "Signature", &["$WINDOWS NT$"], CLASS),
    line("Version", "Provider", &["Fencepost"], PROVIDER),
    // Compared by a rule of its own: empty, or stamped.
    line("Version", "DriverVer", &[ANY], DRIVERVER),
    line("Version", "PnpLockdown", &["1"], LOCKDOWN),
    line("ControlFlags", "ExcludeFromSelect", &[PCI], CONTROL),
    line("DestinationDirs", "DefaultDestDir", &["13"], DIRID),
    line("SourceDisksNames", "1", &[ANY], FILES),
    line("SourceDisksFiles", "fencepost.sys", &["1"], FILES),
    line("SourceDisksFiles", "fencepost_d3d.dll", &["1"], FILES),
    line("SourceDisksFiles", "fencepost_umd.dll", &["1"], FILES),
    line("Manufacturer", "%Provider%", &["Fencepost", DECORATED], MODEL),
    line(MODELS, "%Device.Edu%", &["Fencepost_Install", PCI], DEVICE),
    line(MODELS, "%Device.Root%", &["Fencepost_Install", r"ROOT\FENCEPOST"], DEVICE),
    line("Fencepost_Install", "CopyFiles", &["Fencepost_Files"], SECTION),
    line("Fencepost_Install", "AddReg", &["Fencepost_Software"], SECTION),
    line("Fencepost_Files", "", &["fencepost.sys"], FILES),
    line("Fencepost_Files", "", &["fencepost_d3d.dll"], FILES),
    line("Fencepost_Files", "", &["fencepost_umd.dll"], FILES),
    line("Fencepost_Software", "", &["HKR", "", "UserModeDriverName", MULTI_SZ, STUB, STUB, STUB, STUB], UMD),
    line("Fencepost_Software", "", &["HKR", "", "FencepostClient", SZ, r"%13%\fencepost_umd.dll"], VALUES),
    line("Fencepost_Software", "", &["HKR", "", "HardwareInformation.AdapterString", SZ, ANY], VALUES),
    line("Fencepost_Software", "", &["HKR", "", "HardwareInformation.ChipType", SZ, ANY], VALUES),
    line("Fencepost_Software", "", &["HKR", "", "MaxRung", DWORD_KEEP, "0"], SETTING),
    line("Fencepost_Install.HW", "AddReg", &["Fencepost_Hardware"], SECTION),
    line("Fencepost_Hardware", "", &["HKR", INTERRUPTS, "MSISupported", DWORD, "0"], VALUES),
    line("Fencepost_Install.Services", "AddService", &["Fencepost", "0x00000002", "Fencepost_Service"], SERVICE),
    line("Fencepost_Service", "DisplayName", &[ANY], SERVICE),
    line("Fencepost_Service", "ServiceType", &["1"], SERVICE),
    line("Fencepost_Service", "StartType", &["3"], SERVICE),
    line("Fencepost_Service", "ErrorControl", &["0"], SERVICE),
    line("Fencepost_Service", "ServiceBinary", &[r"%13%\fencepost.sys"], SERVICE),
    line("Fencepost_Service", "AddReg", &["Fencepost_Parameters"], SECTION),
];

/// What the display form has beside it.
#[rustfmt::skip]
const DISPLAY: &[Line] = &[
    line("Version", "Class", &["Display"], CLASS),
    line("Version", "ClassGuid", &["{4D36E968-E325-11CE-BFC1-08002BE10318}"], CLASS),
    line("Version", "CatalogFile", &["fencepost.cat"], CATALOG),
    line("Fencepost_Install", "FeatureScore", &["F6"], SCORE),
    line("Fencepost_Software", "",
        &["HKR", "", "InstalledDisplayDrivers", MULTI_SZ, "fencepost_d3d", "fencepost_umd"], VALUES),
    line("Fencepost_Software", "", &["HKR", "", "HardwareInformation.DacType", SZ, ANY], VALUES),
    line("Fencepost_Software", "", &["HKR", "", "HardwareInformation.BiosString", SZ, ANY], VALUES),
    line("Fencepost_Software", "", &["HKR", "", "VgaCompatible", DWORD, "0"], VALUES),
    line("Fencepost_Software", "", &["HKR", "", "CapabilityOverride", DWORD, "0x8"], VALUES),
    line("Fencepost_Parameters", "", &["HKR", "Parameters", "ComputeOnly", DWORD, "0"], COMPUTE),
];

/// What the compute form has beside it.
const ONLY_COMPUTE: &[Line] = &[
    line("Version", "Class", &["ComputeAccelerator"], CLASS),
    line("Version", "ClassGuid", &["{F01A9D53-3FF6-48D2-9F97-C8A7004BE10C}"], CLASS),
    line("Version", "CatalogFile", &["fencepost_compute.cat"], CATALOG),
    line("Fencepost_Install", "FeatureScore", &["FF"], SCORE),
    line("Fencepost_Parameters", "", &["HKR", "Parameters", "ComputeOnly", DWORD, "1"], COMPUTE),
];

/// The lines of a form.
pub(super) fn lines(form: Form) -> impl Iterator<Item = &'static Line> + Clone {
    let own = match form {
        Form::Display => DISPLAY,
        Form::Compute => ONLY_COMPUTE,
    };
    BOTH.iter().chain(own)
}

impl Line {
    /// Returns whether the line is a registry value.
    pub fn is_registry(&self) -> bool {
        self.values.first().is_some_and(|root| *root == "HKR")
    }

    /// What tells the line apart within its section.
    pub fn identity(&self) -> &'static str {
        match (self.is_registry(), self.key) {
            (true, _) => self.values[2],
            (false, "") => self.values[0],
            (false, key) => key,
        }
    }
}

impl std::fmt::Display for Line {
    /// The line as an INF has it.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let values: Vec<_> = self.values.iter().map(|value| if *value == ANY { "TEXT" } else { value }).collect();
        let values = values.join(", ").replace(", ,", ",,");
        match self.key {
            "" => f.write_str(&values),
            key => write!(f, "{key} = {values}"),
        }
    }
}
