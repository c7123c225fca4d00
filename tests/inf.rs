//! Both INFs hold under the linter, stamped and not, and each spoilt copy of them breaks the rules that it is about.

use fencepost::inf::{RULES, lint};
use std::collections::BTreeSet;
use std::path::Path;

const DISPLAY: &str = "fencepost";
const COMPUTE: &str = "fencepost_compute";

fn read(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("inf/{name}.inx"));
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Which INF, what is replaced by what, wherever it stands, and the rules that must notice.
struct Spoilt(&'static str, &'static str, &'static str, &'static [&'static str]);

/// A list of four libraries, of which the last is another one.
const FOUR: &str = r"%13%\fencepost_d3d.dll, %13%\fencepost_d3d.dll, %13%\fencepost_d3d.dll, %13%\fencepost_d3d.dll";
const THREE: &str = r"%13%\fencepost_d3d.dll, %13%\fencepost_d3d.dll, %13%\fencepost_d3d.dll";
const MIXED: &str = r"%13%\fencepost_d3d.dll, %13%\fencepost_d3d.dll, %13%\fencepost_d3d.dll, %13%\fencepost_umd.dll";
const CLIENT: &str = r"%13%\fencepost_umd.dll, %13%\fencepost_umd.dll, %13%\fencepost_umd.dll, %13%\fencepost_umd.dll";
/// Six, as a list for Direct3D from version 7 on would have.
const SIX: &str = r"%13%\fencepost_d3d.dll, %13%\fencepost_d3d.dll, %13%\fencepost_d3d.dll, %13%\fencepost_d3d.dll, %13%\fencepost_d3d.dll, %13%\fencepost_d3d.dll";
const ABSENT: &str = r"%13%\fencepost_dxg.dll, %13%\fencepost_dxg.dll, %13%\fencepost_dxg.dll, %13%\fencepost_dxg.dll";

const RUNG: &str = "HKR,, MaxRung, %REG_DWORD_KEEP%, 0";

#[rustfmt::skip]
const SPOILT: &[Spoilt] = &[
    Spoilt(DISPLAY, "AddReg = Fencepost_Hardware", "AddReg = Fencepost_Hardwear", &["INF-SECTION"]),
    Spoilt(DISPLAY, "[Fencepost_Hardware]", "[Fencepost_Hardwear]", &["INF-SECTION"]),
    Spoilt(DISPLAY, "SPSVCINST_ASSOCSERVICE = 0x00000002", "SPSVCINST_ASSOCSERVICE = 0x00000000", &["INF-SERVICE"]),
    Spoilt(DISPLAY, "CatalogFile = fencepost.cat", "", &["INF-CATALOG"]),
    Spoilt(COMPUTE, "CatalogFile = fencepost_compute.cat", "CatalogFile = fencepost.cat", &["INF-CATALOG"]),
    Spoilt(DISPLAY, "Class       = Display", "Class       = Displays", &["INF-CLASS"]),
    // By its GUID it is still the other form; texts are the same in any case.
    Spoilt(COMPUTE, "Class       = ComputeAccelerator", "Class       = Computer", &["INF-CLASS"]),
    Spoilt(DISPLAY, r"ServiceBinary = %13%\fencepost.sys", r"ServiceBinary = %13%\FENCEPOST.SYS", &[]),
    Spoilt(DISPLAY, "4D36E968-E325", "4D36E972-E325", &["INF-CLASS"]),
    Spoilt(COMPUTE, "C8A7004BE10C", "C8A7004BE10D", &["INF-CLASS"]),
    Spoilt(DISPLAY, "ComputeOnly, %REG_DWORD%, 0", "ComputeOnly, %REG_DWORD%, 1", &["INF-COMPUTE"]),
    Spoilt(COMPUTE, "ComputeOnly, %REG_DWORD%, 1", "ComputeOnly, %REG_DWORD%, 0", &["INF-COMPUTE"]),
    Spoilt(DISPLAY, "HKR, Parameters, ComputeOnly, %REG_DWORD%, 0\n", "", &["INF-COMPUTE"]),
    Spoilt(DISPLAY, "HKR,, FencepostClient, %REG_SZ%, %13%\\fencepost_umd.dll\n", "", &["INF-VALUES"]),
    Spoilt(COMPUTE, "FencepostClient, %REG_SZ%, %13%\\fencepost_umd.dll", "FencepostClient, %REG_SZ%, x.dll", &["INF-VALUES"]),
    Spoilt(DISPLAY, "HKR,, VgaCompatible, %REG_DWORD%, 0\n", "", &["INF-VALUES"]),
    Spoilt(DISPLAY, "VgaCompatible, %REG_DWORD%, 0", "VgaCompatible, %REG_DWORD%, 1", &["INF-VALUES"]),
    Spoilt(DISPLAY, "CapabilityOverride, %REG_DWORD%, 0x8", "CapabilityOverride, %REG_SZ%, 0x8", &["INF-VALUES"]),
    Spoilt(COMPUTE, "MSISupported, %REG_DWORD%, 0", "MSISupported, %REG_DWORD%, 1", &["INF-VALUES"]),
    Spoilt(DISPLAY, "AdapterString, %REG_SZ%", "AdapterString, %REG_DWORD%", &["INF-VALUES"]),
    Spoilt(COMPUTE, "HKR, Parameters, ComputeOnly", "HKR,, ComputeOnly", &["INF-COMPUTE"]),
    Spoilt(COMPUTE, "fencepost_d3d.dll\nfencepost_umd.dll\n", "fencepost_d3d.dll\n", &["INF-FILES"]),
    Spoilt(DISPLAY, "fencepost_umd.dll = 1\n", "", &["INF-FILES"]),
    Spoilt(DISPLAY, "fencepost.sys     = 1", "fencepost.sys     = 2", &["INF-FILES"]),
    Spoilt(DISPLAY, "DefaultDestDir = 13", "DefaultDestDir = 12", &["INF-DIRID"]),
    Spoilt(COMPUTE, r"%REG_SZ%, %13%\fencepost_umd.dll", r"%REG_SZ%, %11%\fencepost_umd.dll", &["INF-DIRID"]),
    Spoilt(DISPLAY, "Service     = \"Fencepost display miniport\"\n", "", &["INF-STRING"]),
    Spoilt(DISPLAY, "Service     = \"Fencepost display miniport\"", "Service     = \"\"", &["INF-STRING"]),
    Spoilt(COMPUTE, "Chip        = ", "Dac = \"None\"\nChip        = ", &["INF-STRING"]),
    Spoilt(DISPLAY, "DriverVer   =", "DriverVer   = 01/01/2024, 32.0.26110.1", &["INF-DRIVERVER"]),
    Spoilt(DISPLAY, "DriverVer   =", "", &["INF-DRIVERVER"]),
    Spoilt(DISPLAY, "ErrorControl  = 0", "ErrorControl  = 1", &["INF-SERVICE"]),
    Spoilt(DISPLAY, "ServiceType   = 1", "ServiceType   = 16", &["INF-SERVICE"]),
    Spoilt(COMPUTE, "StartType     = 3", "StartType     = 0", &["INF-SERVICE"]),
    Spoilt(COMPUTE, r"ServiceBinary = %13%\fencepost.sys", r"ServiceBinary = %13%\fencepost.exe", &["INF-SERVICE"]),
    Spoilt(DISPLAY, "ExcludeFromSelect = PCI\\VEN_1234&DEV_11E8", "", &["INF-CONTROL"]),
    Spoilt(DISPLAY, "NT$ARCH$.10.0...26100", "NT$ARCH$.10.0...22621", &["INF-MODEL"]),
    Spoilt(COMPUTE, "NT$ARCH$.10.0...26100", "NTamd64.10.0...26100", &["INF-MODEL"]),
    Spoilt(COMPUTE, "PnpLockdown = 1", "PnpLockdown = 0", &["INF-LOCKDOWN"]),
    Spoilt(DISPLAY, "Fencepost driver files", "Fencep\u{f6}st driver files", &["INF-ASCII"]),
    Spoilt(COMPUTE, "MaxRung", "MaxRing", &["INF-SETTING"]),
    Spoilt(DISPLAY, "MaxRung, %REG_DWORD_KEEP%, 0", "MaxRung, %REG_DWORD_KEEP%, 3", &["INF-SETTING"]),
    Spoilt(DISPLAY, "REG_DWORD_KEEP = 0x00010003", "REG_DWORD_KEEP = 0x00010001", &["INF-SETTING"]),
    Spoilt(DISPLAY, FOUR, THREE, &["INF-UMD"]),
    Spoilt(DISPLAY, FOUR, CLIENT, &["INF-UMD"]),
    Spoilt(COMPUTE, FOUR, MIXED, &["INF-UMD"]),
    Spoilt(DISPLAY, FOUR, ABSENT, &["INF-UMD"]),
    Spoilt(DISPLAY, FOUR, SIX, &["INF-UMD"]),
    Spoilt(COMPUTE, "UserModeDriverName, %REG_MULTI_SZ%", "UserModeDriverName, %REG_SZ%", &["INF-STRING", "INF-UMD"]),
    Spoilt(COMPUTE, FOUR, r"%13%\fencepost_d3d.dll", &["INF-UMD"]),
    // Devices.
    Spoilt(DISPLAY, "Fencepost_Install, PCI\\VEN_1234&DEV_11E8", "Fencepost_Install, PCI\\VEN_1234&DEV_1111", &["INF-DEVICE"]),
    Spoilt(COMPUTE, "Fencepost_Install, PCI\\VEN_1234&DEV_11E8", "Fencepost_Install, PCI\\VEN_1234", &["INF-DEVICE"]),
    Spoilt(DISPLAY, "Fencepost_Install, PCI\\VEN_1234&DEV_11E8", "Fencepost_Install, PCI\\VEN_1234&DEV_11E8, PCI\\CC_00FF", &["INF-DEVICE"]),
    Spoilt(DISPLAY, "ROOT\\FENCEPOST\n", "ROOT\\FENCEPOST2\n", &["INF-DEVICE"]),
    Spoilt(COMPUTE, "Fencepost_Install, ROOT\\FENCEPOST\n", "Fencepost_Install\n", &["INF-DEVICE"]),
    Spoilt(DISPLAY, "ROOT\\FENCEPOST\n", "ROOT\\FENCEPOST\n%Device.Edu% = Fencepost_Install, PCI\\VEN_1234&DEV_11E8\n", &["INF-DEVICE"]),
    Spoilt(DISPLAY, "ROOT\\FENCEPOST\n", "ROOT\\FENCEPOST\n%Chip% = Fencepost_Install, PCI\\VEN_1AF4&DEV_1050\n", &["INF-DEVICE"]),
    Spoilt(DISPLAY, "ExcludeFromSelect = PCI\\VEN_1234&DEV_11E8", "ExcludeFromSelect = *", &["INF-CONTROL"]),
    Spoilt(COMPUTE, "PCI\\VEN_1234&DEV_11E8\n\n[Dest", "PCI\\VEN_1234&DEV_11E8\nBasicDriverOk = *\n\n[Dest", &["INF-CONTROL"]),
    // The service.
    Spoilt(DISPLAY, "AddService = Fencepost,", "AddService = Fencepost2,", &["INF-SERVICE"]),
    Spoilt(DISPLAY, "%SPSVCINST_ASSOCSERVICE%, Fencepost_Service", "0x00000802, Fencepost_Service", &["INF-SERVICE", "INF-STRING"]),
    Spoilt(COMPUTE, "AddService = Fencepost, %SPSVCINST_ASSOCSERVICE%, Fencepost_Service", "AddService = Fencepost", &["INF-SERVICE", "INF-STRING"]),
    Spoilt(COMPUTE, "ErrorControl  = 0", "ErrorControl  =", &["INF-SERVICE"]),
    Spoilt(DISPLAY, "StartType     = 3\n", "StartType     = 3\nStartType     = 0\n", &["INF-SERVICE"]),
    Spoilt(DISPLAY, "StartType     = 3\n", "StartType     = 3\nLoadOrderGroup = Video\n", &["INF-SERVICE"]),
    Spoilt(COMPUTE, "AddReg        = Fencepost_Parameters\n", "", &["INF-SECTION"]),
    Spoilt(DISPLAY, "ServiceBinary = %13%", "ServiceBinary = %12%", &["INF-DIRID"]),
    // Version and installation.
    Spoilt(DISPLAY, "FeatureScore = F6", "FeatureScore = E0", &["INF-SCORE"]),
    Spoilt(COMPUTE, "FeatureScore = FF\n", "", &["INF-SCORE"]),
    Spoilt(DISPLAY, "Provider    = \"Fencepost\"", "Provider    = \"Microsoft\"", &["INF-PROVIDER"]),
    Spoilt(COMPUTE, "Provider    = %Provider%\n", "", &["INF-PROVIDER"]),
    Spoilt(DISPLAY, "Signature   = \"$WINDOWS NT$\"", "Signature   = \"$CHICAGO$\"", &["INF-CLASS"]),
    Spoilt(DISPLAY, "ClassGuid   = {4D36E968-E325-11CE-BFC1-08002BE10318}\n", "", &["INF-CLASS"]),
    Spoilt(DISPLAY, "PnpLockdown = 1", "PnpLockdown = 1\nPnpLockdown = 1", &["INF-LOCKDOWN"]),
    Spoilt(COMPUTE, "PnpLockdown = 1", "PnpLockdown =", &["INF-LOCKDOWN"]),
    Spoilt(DISPLAY, "PnpLockdown = 1", "PnpLockdown = 1\nDriverPackageType = PlugAndPlay", &["INF-DIRECTIVE"]),
    Spoilt(DISPLAY, "FeatureScore = F6", "FeatureScore = F6\nInclude = msdv.inf", &["INF-DIRECTIVE"]),
    Spoilt(COMPUTE, "AddReg = Fencepost_Hardware", "AddReg = Fencepost_Hardware\nAddProperty = Fencepost_Hardware", &["INF-DIRECTIVE"]),
    Spoilt(DISPLAY, "CopyFiles    = Fencepost_Files\n", "", &["INF-SECTION"]),
    Spoilt(DISPLAY, "CopyFiles    = Fencepost_Files", "CopyFiles    = @fencepost.sys", &["INF-SECTION"]),
    Spoilt(DISPLAY, "[Strings]", "[Strings]\n[strings]", &["INF-SECTION"]),
    Spoilt(COMPUTE, "[Version]", "Unread = 1\n[Version]", &["INF-SECTION"]),
    Spoilt(DISPLAY, "[Fencepost_Install.HW]", "[Fencepost_Install.HW]\n[Fencepost_Install.Components]", &["INF-SECTION"]),
    // Files.
    Spoilt(DISPLAY, "\nfencepost_d3d.dll\n", "\nfencepost_d3d.dll,,,0x4000\n", &["INF-FILES"]),
    Spoilt(DISPLAY, "\nfencepost_d3d.dll\n", "\nfencepost_d3d.dll\nfencepost_d3d.dll\n", &["INF-FILES"]),
    Spoilt(COMPUTE, "fencepost_d3d.dll = 1\n", "fencepost_d3d.dll = 1\nfencepost_cat.dll = 1\n", &["INF-FILES"]),
    Spoilt(COMPUTE, "1 = %Disk%", "2 = %Disk%", &["INF-FILES"]),
    Spoilt(DISPLAY, "DefaultDestDir = 13\n", "DefaultDestDir = 13\nFencepost_Files = 12\n", &["INF-DIRID"]),
    Spoilt(COMPUTE, "DefaultDestDir = 13\n", "", &["INF-DIRID"]),
    // Values in the wrong key, of the wrong form, without a value, twice.
    Spoilt(DISPLAY, "HKR, Parameters, ComputeOnly", "HKR, Parameters, MaxRung, %REG_DWORD_KEEP%, 0\nHKR, Parameters, ComputeOnly", &["INF-SETTING"]),
    Spoilt(COMPUTE, "HKR, \"Interrupt", "HKR,, MaxRung, %REG_DWORD_KEEP%, 0\nHKR, \"Interrupt", &["INF-SETTING"]),
    Spoilt(DISPLAY, "HKR, \"Interrupt", "HKR,, ComputeOnly, %REG_DWORD%, 0\nHKR, \"Interrupt", &["INF-COMPUTE"]),
    Spoilt(COMPUTE, "MaxRung, %REG_DWORD_KEEP%, 0", "MaxRung, %REG_DWORD_KEEP%", &["INF-SETTING"]),
    Spoilt(DISPLAY, "HKR, \"Interrupt Management\\MessageSignaledInterruptProperties\"", "HKR, \"Interrupt Management\"", &["INF-VALUES"]),
    Spoilt(DISPLAY, "HKR,, VgaCompatible, %REG_DWORD%, 0\n", "HKR,, VgaCompatible, %REG_DWORD%, 0\nHKR,, VgaCompatible, %REG_DWORD%, 0\n", &["INF-VALUES"]),
    Spoilt(DISPLAY, "fencepost_d3d, fencepost_umd\n", "fencepost_d3d\n", &["INF-VALUES"]),
    Spoilt(DISPLAY, "HardwareInformation.ChipType, %REG_SZ%, %Chip%", "HardwareInformation.ChipType, %REG_SZ%", &["INF-STRING", "INF-VALUES"]),
    Spoilt(COMPUTE, "HKR, Parameters, ComputeOnly", "HKR, Parameters, HandshakeCode, %REG_DWORD%, 0\nHKR, Parameters, ComputeOnly", &["INF-SETTING"]),
    Spoilt(DISPLAY, "Chip        = \"Engine threads\"", "Chip        = \"Engine threads", &["INF-SECTION"]),
    Spoilt(DISPLAY, "[DestinationDirs]", "[DestinationDirs] these", &["INF-CONTROL", "INF-SECTION"]),
    Spoilt(DISPLAY, "HKR,, MaxRung", "= HKR,, MaxRung", &["INF-SECTION"]),
    Spoilt(DISPLAY, "Device.Edu  = \"Fencepost software GPU\"", "Device.Edu  = \"Fencepost software GPU\"\nLoop = \"%Loop%\"", &["INF-STRING"]),
    Spoilt(DISPLAY, "[Fencepost_Files]\nfencepost.sys", "[Fencepost_Files]\nx = fencepost.sys", &["INF-DIRID"]),
    Spoilt(DISPLAY, "HKR,, MaxRung", "HKR,, HwSchMode, %REG_DWORD%, 2\nHKR,, MaxRung", &["INF-HKLM"]),
    Spoilt(DISPLAY, "FeatureScore = F6\n", "FeatureScore = F6\nDelReg = Old\n[Old]\nHKLM, SOFTWARE\\Fencepost\n", &["INF-HKLM"]),
    Spoilt(DISPLAY, "HKR,, MaxRung", "HKLM, SOFTWARE\\Fencepost, MaxRung", &["INF-HKLM"]),
    // Stamped by halves, or otherwise than by inf/version.
    Spoilt(DISPLAY, "[Fencepost.NT$ARCH$.10.0...26100]", "[Fencepost.NTamd64.10.0...26100]", &["INF-SECTION"]),
    Spoilt(COMPUTE, "NT$ARCH$.10.0...26100", "NTx86.10.0...26100", &["INF-MODEL"]),
    Spoilt(COMPUTE, "NT$ARCH$.10.0...26100", "NT$ARCH$", &["INF-MODEL"]),
];

/// Lines that are added behind the one about MaxRung, and the rule that must notice.
#[rustfmt::skip]
const ADDED: &[(&str, &str, &str)] = &[
    (DISPLAY, "HKR, Features\\37, Enabled, %REG_DWORD%, 1", "INF-HKLM"),
    (DISPLAY, "HKLM, SYSTEM\\CurrentControlSet\\Control\\GraphicsDrivers, HwSchMode, %REG_DWORD%, 2", "INF-HKLM"),
    (COMPUTE, "HKLM, SYSTEM\\CurrentControlSet\\Control\\GraphicsDrivers, TdrLevel, %REG_DWORD%, 0", "INF-HKLM"),
    (DISPLAY, "HKR,, LocalSegmentSize, %REG_DWORD_KEEP%, 0x10000000", "INF-SETTING"),
    (DISPLAY, "HKR,, HardwareInformation.qwMemorySize, 0x000B0001, 0x10000000", "INF-QWORD"),
    (COMPUTE, "HKR,, VgaCompatible, %REG_DWORD%, 0", "INF-VALUES"),
    (COMPUTE, "HKR,, InstalledDisplayDrivers, %REG_MULTI_SZ%, fencepost_d3d, fencepost_umd", "INF-VALUES"),
    (COMPUTE, "HKR,, DXCoreAttributes, %REG_DWORD%, 1", "INF-SETTING"),
    (DISPLAY, "HKR,, UserModeDriverNameWow, %REG_SZ%, fencepost_umd.dll", "INF-SETTING"),
    (DISPLAY, "HKR,, MaxRung, %REG_DWORD_KEEP%, 3", "INF-SETTING"),
    (DISPLAY, "HKCR, Fencepost, Name, %REG_SZ%, x", "INF-HKLM"),
];

/// The rules that a text breaks, each once.
fn broken(text: &str) -> BTreeSet<&'static str> {
    lint(text).into_iter().map(|finding| finding.rule).collect()
}

/// What GPUVERSION says is what the INFs write for dialogs.
#[test]
fn the_driver_says_the_words_of_the_infs() {
    use kmd_core::caps::{ARCHITECTURE, BIOS};
    for (inf, words) in [(DISPLAY, &[("Chip", ARCHITECTURE), ("None", BIOS)][..]), (COMPUTE, &[("Chip", ARCHITECTURE)])]
    {
        let text = read(inf);
        for (name, word) in words {
            let value = text.lines().filter_map(|line| line.split_once('=')).find(|(left, _)| left.trim() == *name);
            assert_eq!(value.map(|(_, right)| right.trim()), Some(&*format!("\"{word}\"")), "{name}");
        }
    }
}

#[test]
fn both_infs_hold() {
    for name in [DISPLAY, COMPUTE] {
        let found = lint(&read(name));
        assert!(found.is_empty(), "{name}.inx:\n{}", found.iter().map(|f| format!("{f}\n")).collect::<String>());
    }
}

/// A copy as stampinf leaves it, with Windows' ends of lines.
fn stamped(name: &str, architecture: &str, date_and_version: &str) -> String {
    let version = format!("DriverVer = {date_and_version}");
    read(name).replace("$ARCH$", architecture).replace("DriverVer   =", &version).replace('\n', "\r\n")
}

#[test]
fn stamped_copies_hold_and_others_do_not() {
    let version = include_str!("../inf/version").trim();
    for name in [DISPLAY, COMPUTE] {
        for architecture in ["amd64", "arm64"] {
            let found = lint(&stamped(name, architecture, &format!("12/18/2024,{version}")));
            assert!(found.is_empty(), "{name} for {architecture}: {found:?}");
        }
        let wrong = [
            "12/18/2024,32.0.26110.0".to_owned(),
            "12/18/2024,0.0.0.0".to_owned(),
            "12/18/2024".to_owned(),
            format!("2026-11-23,{version}"),
            format!("13/01/2024,{version}"),
            format!("02/31/2024,{version}"),
            format!("+1/+1/2024,{version}"),
            format!("12/31/2999,{version}"),
            format!("12/18/2024,{version},1"),
            format!(",{version}"),
        ];
        for written in wrong {
            assert_eq!(broken(&stamped(name, "amd64", &written)), BTreeSet::from(["INF-DRIVERVER"]), "{written}");
        }
        assert_eq!(broken(&stamped(name, "x86", &format!("12/18/2024,{version}"))), BTreeSet::from(["INF-MODEL"]));
        assert_eq!(
            broken(&stamped(name, "$ARCH$", &format!("12/18/2024,{version}"))),
            BTreeSet::from(["INF-DRIVERVER"])
        );
    }
}

/// Without any one of its lines an INF does not hold, nor with any one of them twice.
#[test]
fn every_line_is_needed_once() {
    for name in [DISPLAY, COMPUTE] {
        let text = read(name);
        let lines: Vec<_> = text.lines().collect();
        let said = lines.iter().enumerate().filter(|(_, line)| !line.trim().is_empty() && !line.starts_with(';'));
        for (at, line) in said {
            let without: String =
                lines.iter().enumerate().filter(|(i, _)| *i != at).map(|(_, l)| format!("{l}\n")).collect();
            assert!(!lint(&without).is_empty(), "{name}: '{line}' is not missed");
            let twice: String = lines
                .iter()
                .enumerate()
                .map(|(i, l)| if i == at { format!("{l}\n{l}\n") } else { format!("{l}\n") })
                .collect();
            assert!(!lint(&twice).is_empty(), "{name}: '{line}' may be there twice");
        }
    }
}

#[test]
fn each_spoilt_copy_breaks_its_rules_and_no_other() {
    let mut noticed = BTreeSet::new();
    let spoilt = SPOILT.iter().map(|Spoilt(name, from, to, rules)| {
        let text = read(name);
        assert!(text.contains(from), "{name}.inx does not have '{from}' any more");
        (text.replace(from, to), format!("{name}: '{to}' for '{from}'"), rules.to_vec())
    });
    let added = ADDED.iter().map(|(name, line, rule)| {
        let text = read(name);
        assert!(text.contains(RUNG), "{name}.inx does not have '{RUNG}' any more");
        (text.replace(RUNG, &format!("{RUNG}\n{line}")), format!("{name}: with '{line}'"), vec![*rule])
    });
    for (text, what, rules) in spoilt.chain(added) {
        let found = lint(&text);
        let said: Vec<_> = found.iter().map(ToString::to_string).collect();
        assert_eq!(broken(&text), rules.iter().copied().collect(), "{what}: {said:#?}");
        // In the words of INFs, with what to do.
        for sentence in &said {
            let advises = ["write ", "leave ", "add ", "remove ", "keep ", "put ", "call ", "define "]
                .iter()
                .any(|it| sentence.contains(it));
            let foreign =
                ["Some(", "is None", "[\"", "&["].iter().any(|it| sentence.contains(it) && !what.contains(it));
            assert!(advises && !foreign, "{sentence}");
        }
        noticed.extend(rules);
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
