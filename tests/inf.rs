//! Both INFs hold under the linter, and spoilt copies of them break one rule each.

use fencepost::inf::{RULES, lint};
use std::collections::BTreeSet;
use std::path::Path;

const DISPLAY: &str = "fencepost";
const COMPUTE: &str = "fencepost_compute";

fn read(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("inf/{name}.inx"));
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Which INF, what is replaced by what, wherever it stands, and the rule that must notice.
type Spoilt = (&'static str, &'static str, &'static str, &'static str);

/// A list of four libraries, of which the last is another one.
const FOUR: &str = r"%13%\fencepost_d3d.dll, %13%\fencepost_d3d.dll, %13%\fencepost_d3d.dll, %13%\fencepost_d3d.dll";
const THREE: &str = r"%13%\fencepost_d3d.dll, %13%\fencepost_d3d.dll, %13%\fencepost_d3d.dll";
const MIXED: &str = r"%13%\fencepost_d3d.dll, %13%\fencepost_d3d.dll, %13%\fencepost_d3d.dll, %13%\fencepost_umd.dll";
const CLIENT: &str = r"%13%\fencepost_umd.dll, %13%\fencepost_umd.dll, %13%\fencepost_umd.dll, %13%\fencepost_umd.dll";
const ABSENT: &str = r"%13%\fencepost_dxg.dll, %13%\fencepost_dxg.dll, %13%\fencepost_dxg.dll, %13%\fencepost_dxg.dll";

const RUNG: &str = "HKR,, MaxRung, %REG_DWORD_KEEP%, 0";

#[rustfmt::skip]
const SPOILT: &[Spoilt] = &[
    (DISPLAY, "AddReg = Fencepost_Hardware", "AddReg = Fencepost_Hardwear", "INF-SECTION"),
    (DISPLAY, "[Fencepost_Hardware]", "[Fencepost_Hardwear]", "INF-SECTION"),
    (DISPLAY, "SPSVCINST_ASSOCSERVICE = 0x00000002", "SPSVCINST_ASSOCSERVICE = 0x00000000", "INF-SERVICE"),
    (DISPLAY, "CatalogFile = fencepost.cat", "", "INF-CATALOG"),
    (COMPUTE, "CatalogFile = fencepost_compute.cat", "CatalogFile = fencepost.cat", "INF-CATALOG"),
    (DISPLAY, "Class       = Display", "Class       = Displays", "INF-CLASS"),
    (DISPLAY, "4D36E968-E325", "4D36E972-E325", "INF-CLASS"),
    (COMPUTE, "C8A7004BE10C", "C8A7004BE10D", "INF-CLASS"),
    (DISPLAY, "ComputeOnly, %REG_DWORD%, 0", "ComputeOnly, %REG_DWORD%, 1", "INF-COMPUTE"),
    (COMPUTE, "ComputeOnly, %REG_DWORD%, 1", "ComputeOnly, %REG_DWORD%, 0", "INF-COMPUTE"),
    (DISPLAY, "HKR, Parameters, ComputeOnly, %REG_DWORD%, 0\n", "", "INF-COMPUTE"),
    (DISPLAY, "HKR,, FencepostClient, %REG_SZ%, %13%\\fencepost_umd.dll\n", "", "INF-VALUES"),
    (COMPUTE, "FencepostClient, %REG_SZ%, %13%\\fencepost_umd.dll", "FencepostClient, %REG_SZ%, x.dll", "INF-VALUES"),
    (DISPLAY, "HKR,, VgaCompatible, %REG_DWORD%, 0\n", "", "INF-VALUES"),
    (DISPLAY, "VgaCompatible, %REG_DWORD%, 0", "VgaCompatible, %REG_DWORD%, 1", "INF-VALUES"),
    (DISPLAY, "CapabilityOverride, %REG_DWORD%, 0x8", "CapabilityOverride, %REG_SZ%, 0x8", "INF-VALUES"),
    (COMPUTE, "MSISupported, %REG_DWORD%, 0", "MSISupported, %REG_DWORD%, 1", "INF-VALUES"),
    (DISPLAY, "AdapterString, %REG_SZ%", "AdapterString, %REG_DWORD%", "INF-VALUES"),
    (COMPUTE, "HKR, Parameters, ComputeOnly", "HKR,, ComputeOnly", "INF-COMPUTE"),
    (COMPUTE, "fencepost_d3d.dll\nfencepost_umd.dll\n", "fencepost_d3d.dll\n", "INF-FILES"),
    (DISPLAY, "fencepost_umd.dll = 1\n", "", "INF-FILES"),
    (DISPLAY, "fencepost.sys     = 1", "fencepost.sys     = 2", "INF-FILES"),
    (DISPLAY, "DefaultDestDir = 13", "DefaultDestDir = 12", "INF-DIRID"),
    (COMPUTE, r"%REG_SZ%, %13%\fencepost_umd.dll", r"%REG_SZ%, %11%\fencepost_umd.dll", "INF-DIRID"),
    (DISPLAY, "Service     = \"Fencepost display miniport\"\n", "", "INF-STRING"),
    (COMPUTE, "Chip        = ", "Dac = \"None\"\nChip        = ", "INF-STRING"),
    (DISPLAY, "DriverVer   =", "DriverVer   = 01/01/2026, 32.0.26110.1", "INF-DRIVERVER"),
    (DISPLAY, "DriverVer   =", "", "INF-DRIVERVER"),
    (DISPLAY, "ErrorControl  = 0", "ErrorControl  = 1", "INF-SERVICE"),
    (DISPLAY, "ServiceType   = 1", "ServiceType   = 16", "INF-SERVICE"),
    (COMPUTE, "StartType     = 3", "StartType     = 0", "INF-SERVICE"),
    (COMPUTE, r"ServiceBinary = %13%\fencepost.sys", r"ServiceBinary = %13%\fencepost.exe", "INF-SERVICE"),
    (DISPLAY, "ExcludeFromSelect = PCI\\VEN_1234&DEV_11E8", "", "INF-CONTROL"),
    (DISPLAY, "NT$ARCH$.10.0...26100", "NT$ARCH$.10.0...22621", "INF-MODEL"),
    (COMPUTE, "NT$ARCH$.10.0...26100", "NTamd64.10.0...26100", "INF-MODEL"),
    (COMPUTE, "PnpLockdown = 1", "PnpLockdown = 0", "INF-LOCKDOWN"),
    (DISPLAY, "= \"Fencepost\"", "= \"Fencep\u{f6}st\"", "INF-ASCII"),
    (COMPUTE, "MaxRung", "MaxRing", "INF-SETTING"),
    (DISPLAY, "MaxRung, %REG_DWORD_KEEP%, 0", "MaxRung, %REG_DWORD_KEEP%, 3", "INF-SETTING"),
    (DISPLAY, "REG_DWORD_KEEP = 0x00010003", "REG_DWORD_KEEP = 0x00010001", "INF-SETTING"),
    (DISPLAY, FOUR, THREE, "INF-UMD"),
    (DISPLAY, FOUR, CLIENT, "INF-UMD"),
    (COMPUTE, FOUR, MIXED, "INF-UMD"),
    (DISPLAY, FOUR, ABSENT, "INF-UMD"),
];

/// Lines that are added behind the one about MaxRung, and the rule that must notice.
#[rustfmt::skip]
const ADDED: &[(&str, &str, &str)] = &[
    (DISPLAY, "HKR, Features\\37, Enabled, %REG_DWORD%, 1", "INF-HKLM"),
    (DISPLAY, "HKLM, SYSTEM\\CurrentControlSet\\Control\\GraphicsDrivers, HwSchMode, %REG_DWORD%, 2", "INF-HKLM"),
    (COMPUTE, "HKLM, SYSTEM\\CurrentControlSet\\Control\\GraphicsDrivers, TdrLevel, %REG_DWORD%, 0", "INF-HKLM"),
    (DISPLAY, "HKR,, LocalSegmentSize, %REG_DWORD_KEEP%, 0x10000000", "INF-SETTING"),
    (DISPLAY, "HKR,, HardwareInformation.qwMemorySize, 0x000B0001, 0x10000000", "INF-QWORD"),
];

/// The rules that a text breaks, each once.
fn broken(text: &str) -> BTreeSet<&'static str> {
    lint(text).into_iter().map(|finding| finding.rule).collect()
}

#[test]
fn both_infs_hold() {
    for name in [DISPLAY, COMPUTE] {
        let found = lint(&read(name));
        assert!(found.is_empty(), "{name}.inx:\n{}", found.iter().map(|f| format!("{f}\n")).collect::<String>());
    }
}

#[test]
fn each_spoilt_copy_breaks_its_rule_and_no_other() {
    let mut noticed = BTreeSet::new();
    let spoilt = SPOILT.iter().map(|(name, from, to, rule)| {
        let text = read(name);
        assert!(text.contains(from), "{name}.inx does not have '{from}' any more");
        (text.replace(from, to), format!("{name}: '{to}' for '{from}'"), *rule)
    });
    let added = ADDED.iter().map(|(name, line, rule)| {
        let text = read(name);
        assert!(text.contains(RUNG), "{name}.inx does not have '{RUNG}' any more");
        (text.replace(RUNG, &format!("{RUNG}\n{line}")), format!("{name}: with '{line}'"), *rule)
    });
    for (text, what, rule) in spoilt.chain(added) {
        assert_eq!(broken(&text), BTreeSet::from([rule]), "{what}");
        noticed.insert(rule);
    }
    let unseen: Vec<_> = RULES.iter().map(|rule| rule.name).filter(|name| !noticed.contains(name)).collect();
    assert!(unseen.is_empty(), "no spoilt copy breaks {unseen:?}");
}

/// Not INFs at all: no panic, and a finding.
#[test]
fn what_is_no_inf_is_refused() {
    for text in ["", "[", "]\n=\n%%%", "[Version]\nClass", "%\n[%]\n%=%,%", "a = \"b", "[Manufacturer]\n= ,\n"] {
        assert!(!broken(text).is_empty(), "{text:?}");
    }
    let display = read(DISPLAY);
    for cut in (0..display.len()).step_by(97) {
        let _ = lint(&display[..cut]);
    }
}
