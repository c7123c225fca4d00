//! InfVerif's documented rules: both INFs keep them, another driver's does, and a spoilt copy breaks each.

use fencepost::inf::{Level, VERIF_RULES, verify};
use std::collections::BTreeSet;
use std::path::Path;

/// Another driver's INF: of class System, with an included service, two models of two decorations, and a filter.
const OTHER: &str = r#"[Version]
Signature = "$Windows NT$"
Class = System
ClassGuid = {4D36E97D-E325-11CE-BFC1-08002BE10318}
Provider = %Maker%
CatalogFile = other.cat
DriverVer = 01/02/2025,1.2.3.4
PnpLockdown = 1

[DestinationDirs]
Other.Copy = 13
Filter.Copy = 13,sub

[SourceDisksNames.amd64]
1 = %Disk%

[SourceDisksFiles.amd64]
other.sys = 1
filter.sys = 1,sub

[Manufacturer]
%Maker% = Models, NTamd64.10.0...19041, NTamd64.10.0...26100

[Models.NTamd64.10.0...19041]
%Device% = Old, PCI\VEN_1234&DEV_0001

[Models.NTamd64.10.0...26100]
%Device% = New, PCI\VEN_1234&DEV_0001
%Device% = New, PCI\VEN_1234&DEV_0002

[Old.NT]
Include = machine.inf
Needs = NO_DRV

[Old.NT.Services]
Include = machine.inf
Needs = NO_DRV.Services

[New.NT]
CopyFiles = Other.Copy, Filter.Copy
AddReg = Other.Software

[New.NT.HW]
AddReg = Other.Hardware

[New.NT.Services]
AddService = Other, 0x2, Other.Service, Other.Log
AddService = Filter,, Filter.Service

[New.NT.Filters]
AddFilter = Filter,, Filter.Add

[Filter.Add]
FilterPosition = Upper

[Other.Copy]
other.sys

[Filter.Copy]
filter.sys

[Other.Software]
HKR,, Text, 0, "a; b"
HKR,, Bytes, 1, 01, FF
HKR,, Number, 0x10001, 0x80000000
HKR,, Long, 0xB0001, 0x100000000
HKR, Sub,, 0x10

[Other.Hardware]
HKR, "Interrupt Management", MSISupported, 0x10001, 1

[Other.Service]
ServiceType = 1
StartType = 0
ErrorControl = 1
ServiceBinary = %13%\other.sys
AddReg = Other.Parameters

[Filter.Service]
ServiceType = 1
StartType = 3
ErrorControl = 1
ServiceBinary = %13%\sub\filter.sys

[Other.Log]
AddReg = Other.LogValues

[Other.LogValues]
HKR,, TypesSupported, 0x10001, 7

[Other.Parameters]
HKR, Parameters, Value, 0x10001, 1

[Strings]
Maker = "Other"
Disk = "Disk"
Device = "Device"
"#;

/// A change to [`OTHER`], and the rules that its copy breaks.
struct Spoilt(&'static str, &'static str, &'static [&'static str]);

#[rustfmt::skip]
const SPOILT: &[Spoilt] = &[
    Spoilt("Signature = \"$Windows NT$\"", "Signature = \"$Windows 95$\"", &["VERIF-1001"]),
    Spoilt("[Other.Copy]", "[Other.Copy", &["VERIF-1002", "VERIF-1203", "VERIF-2084"]),
    // Article general-syntax-rules-for-inf-files, Line Format, Continuation, and Comments: a backslash at the end of a
    // line goes on in the next, with a comment behind it too, and of two the first is left out.
    Spoilt("CopyFiles = Other.Copy, Filter.Copy",
        "CopyFiles = \\\n    Other.Copy, \\ ; more follows\n    Filter.Copy", &[]),
    Spoilt("CopyFiles = Other.Copy, Filter.Copy", "CopyFiles = Other.Copy\\\\\n,Filter.Copy", &[]),
    Spoilt("HKR,, Text, 0, \"a; b\"", "HKR,, Text, 0, \"a; b\\\"", &[]),
    Spoilt("HKR,, Text, 0, \"a; b\"", "HKR,, Text, 0, \"a; \\\nb\"", &["VERIF-1002"]),
    // Lines that are comments have no relevance, amid a line that goes on, too; an empty one ends it.
    Spoilt("CopyFiles = Other.Copy, Filter.Copy", "CopyFiles = Other.Copy, \\\n ; the filter's\n Filter.Copy", &[]),
    Spoilt("CopyFiles = Other.Copy, Filter.Copy", "CopyFiles = Other.Copy, \\\n\n Filter.Copy",
        &["VERIF-1002", "VERIF-2083", "VERIF-2084"]),
    // A semicolon within %…% begins no comment; '%%' is a percent sign; within quotation marks two are one.
    Spoilt("%Device% = New, PCI\\VEN_1234&DEV_0001", "%De;vice% = New, PCI\\VEN_1234&DEV_0001", &["VERIF-1235"]),
    Spoilt("HKR,, Text, 0, \"a; b\"", "HKR,, Text, 0, 100%% ; of %Nothing%", &[]),
    Spoilt("HKR,, Text, 0, \"a; b\"", "HKR,, Text, 0, %%Nothing%%", &[]),
    Spoilt("HKR,, Text, 0, \"a; b\"", "HKR,, Text, 0, \"%%Nothing%%, %Nothing%\"", &["VERIF-1235"]),
    Spoilt("%13%\\other.sys", "\"\"\"%13%\\other.sys\"\" -v\"", &[]),
    Spoilt("%13%\\other.sys", "\"\"\"%13%\\others.sys\"\" -v\"", &["VERIF-2084"]),
    Spoilt("AddService = Filter,, Filter.Service", "AddService = Filter,, Filter.Service\\\n", &["VERIF-1002"]),
    Spoilt("AddService = Filter,, Filter.Service\n", "AddService = Filter,, Filter.Service\\", &["VERIF-1002"]),
    Spoilt("AddService = Filter,, Filter.Service\n", "AddService = Filter,, Filter.Service \\", &["VERIF-1002"]),
    Spoilt("Device = \"Device\"\n", "Device = \"Device\"\\", &["VERIF-1002"]),
    Spoilt("Maker = \"Other\"", "Maker = \"Ötherö\"", &["VERIF-1003"]),
    Spoilt("CopyFiles = Other.Copy, Filter.Copy", "CopyFiles =",
        &["VERIF-1005", "VERIF-2083", "VERIF-2084"]),
    Spoilt("CatalogFile = other.cat", "CatalogFile =", &["VERIF-1006"]),
    Spoilt("other.sys = 1", "other.sys = one", &["VERIF-1008"]),
    Spoilt("{4D36E97D-E325-11CE-BFC1-08002BE10318}", "4D36E97D-E325-11CE-BFC1-08002BE10318", &["VERIF-1010"]),
    Spoilt("%Maker% = Models, NTamd64.10.0...19041, NTamd64.10.0...26100", "%Maker% =",
        &["VERIF-1011", "VERIF-1297", "VERIF-2083"]),
    Spoilt("PnpLockdown = 1", "PnpLockdown = 1\nPnpLockdown = 1", &["VERIF-1088"]),
    Spoilt("[Filter.Copy]\nfilter.sys", "[Filter.Copy]\nother_filter.sys, filter.sys", &["VERIF-1100", "VERIF-2084"]),
    Spoilt("Filter.Copy = 13,sub", "Filter.Copy = 13", &["VERIF-1100"]),
    Spoilt("[Other.Software]", "[Other.Copy.Security]\n\"D:P(A;;GA;;;SY)\"\n\n[Other.Software]", &["VERIF-1101"]),
    Spoilt("AddReg = Other.Software", "AddReg = Other.Software\nDelFiles = Filter.Copy",
        &["VERIF-1102", "VERIF-1205", "VERIF-1308"]),
    Spoilt("[Other.Copy]\nother.sys", "[Other.Copy]\nother.sys,,,0x4000", &["VERIF-1103"]),
    Spoilt("AddReg = Other.Software", "AddReg = Other.Software\nCopyINF = other.sys", &["VERIF-1110"]),
    Spoilt("Class = System", "Class = System, Display", &["VERIF-1201"]),
    Spoilt("AddReg = Other.Hardware", "AddReg = Other.Hardwear", &["VERIF-1203", "VERIF-2083"]),
    Spoilt("%Maker% = Models, NTamd64.10.0...19041", "%Maker% = Models, NTamd64.10.0...19042",
        &["VERIF-1203", "VERIF-2083"]),
    Spoilt("Maker = \"Other\"", "Maker = \"Microsoft Partner\"", &["VERIF-1204"]),
    Spoilt("AddReg = Other.Software", "AddReg = Other.Software\nDelReg = Other.Software",
        &["VERIF-1205", "VERIF-1308"]),
    Spoilt("AddReg = Other.Hardware", "AddReg = Other.Copy", &["VERIF-1206", "VERIF-1224", "VERIF-2083"]),
    Spoilt("[Other.Log]", "[Filter.Add]\n[Other.Log]", &["VERIF-1209"]),
    Spoilt("AddService = Filter,, Filter.Service", "AddService = Filter, 2, Filter.Service", &["VERIF-1211"]),
    Spoilt("other.sys = 1", "other.sys = 1\nother.cat = 1", &["VERIF-1213"]),
    Spoilt("CatalogFile = other.cat", "CatalogFile = other.txt", &["VERIF-1214"]),
    Spoilt("1.2.3.4", "1.2.3", &["VERIF-1217"]),
    Spoilt("1.2.3.4", "1.2.3.70000", &["VERIF-1217"]),
    Spoilt("1.2.3.4", "0.0.0.0", &["VERIF-1217"]),
    Spoilt("01/02/2025", "1/2/2025", &["VERIF-1218"]),
    Spoilt("01/02/2025", "02/30/2025", &["VERIF-1218"]),
    // Article inf-driverver-directive, Entries: a hyphen can separate the fields.
    Spoilt("01/02/2025", "01-02-2025", &[]),
    Spoilt("01/02/2025", "01-02/2025", &["VERIF-1218"]),
    Spoilt("01/02/2025", "01.02.2025", &["VERIF-1218"]),
    Spoilt("01/02/2025", "2025-01-02", &["VERIF-1218"]),
    Spoilt("HKR,, Bytes", "HKZ,, Bytes", &["VERIF-1224"]),
    Spoilt("[Other.Copy]\nother.sys", "[Other.Copy]\nother.sys\n,other.sys", &["VERIF-1229"]),
    Spoilt("[Other.Copy]\nother.sys", "[Other.Copy]\nother.sys\nmore.dll", &["VERIF-1230"]),
    Spoilt("other.sys = 1", "other.sys = 1\nhelp.dl_ = 1", &["VERIF-1231"]),
    Spoilt("CatalogFile = other.cat\n", "", &["VERIF-1233"]),
    Spoilt("Provider = %Maker%\n", "", &["VERIF-1234"]),
    Spoilt("StartType = 0\n", "", &["VERIF-1234"]),
    Spoilt("HKR,, Text, 0, \"a; b\"", "HKR,, Text, 0, %SystemRoot%\\a", &["VERIF-1235"]),
    Spoilt("Other.Copy = 13", "Other.Copy = System32", &["VERIF-1243", "VERIF-1322"]),
    Spoilt("AddReg = Other.Software", "AddReg = Other.Software\nFeatureScore = 100", &["VERIF-1245"]),
    Spoilt("Other.Service, Other.Log", "Other.Service, Other.Log, Journal", &["VERIF-1250"]),
    Spoilt("StartType = 0", "StartType = 4", &["VERIF-1251"]),
    Spoilt("AddService = Filter,, Filter.Service", "AddService = Filter,, Filter.Service\nAddService = ,0x100",
        &["VERIF-1253"]),
    Spoilt("= New, PCI\\VEN_1234&DEV_0002", "= Newer, PCI\\VEN_1234&DEV_0002", &["VERIF-1261"]),
    Spoilt("HKR,, Text, 0,", "HKR,, Text, 8,", &["VERIF-1265"]),
    Spoilt("HKR,, Bytes, 1, 01, FF", "HKR,, Bytes, 1, 01, 100", &["VERIF-1267"]),
    Spoilt("0x80000000", "0x180000000", &["VERIF-1268"]),
    Spoilt("0x80000000", "eight", &["VERIF-1268"]),
    Spoilt("= New, PCI\\VEN_1234&DEV_0002", "= , PCI\\VEN_1234&DEV_0002", &["VERIF-1271"]),
    Spoilt("AddService = Filter,, Filter.Service", "AddService = ,, Filter.Service", &["VERIF-1272"]),
    Spoilt("other.sys = 1", "other.sys = 2", &["VERIF-1273"]),
    Spoilt("NTamd64.10.0...19041", "NT$ARCH$.10.0...19041", &["VERIF-1274"]),
    Spoilt("Other.Copy = 13\n", "", &["VERIF-1275", "VERIF-2084"]),
    Spoilt("Class = System", "Class = Sytem", &["VERIF-1280"]),
    Spoilt("Class = System", "Class = Net", &["VERIF-1281"]),
    Spoilt("Class = System\nClassGuid = {4D36E97D-E325-11CE-BFC1-08002BE10318}",
        "Class = Sample\nClassGuid = {78A1C341-4539-11D3-B88D-00C04FAD5171}", &["VERIF-1284"]),
    Spoilt("[Other.Log]", "[ClassInstall32]\nAddReg = Other.Hardware\n[Other.Log]", &["VERIF-1285"]),
    Spoilt("Class = System\nClassGuid = {4D36E97D-E325-11CE-BFC1-08002BE10318}",
        "Class = ClassWithANameThatNobodyCanRead\nClassGuid = {78A1C341-4539-11D3-B88D-00C04FAD5171}", &[]),
    Spoilt("Class = System\nClassGuid = {4D36E97D-E325-11CE-BFC1-08002BE10318}",
        "Class = ClassWithANameThatNobodyCanReads\nClassGuid = {78A1C341-4539-11D3-B88D-00C04FAD5171}",
        &["VERIF-1286"]),
    Spoilt("NTamd64.10.0...19041", "NTmips.10.0...19041", &["VERIF-1287"]),
    // Article inf-manufacturer-section, Remarks: product type and mask of suites, as in its example `NTx86....0x80`.
    Spoilt("NTamd64.10.0...19041", "NTamd64.10.0.0x0000001.0x00000080.19041", &[]),
    Spoilt("NTamd64.10.0...19041", "NTamd64....0x80", &[]),
    Spoilt("NTamd64.10.0...19041", "NTamd64.10.0.1.128", &[]),
    Spoilt("NTamd64.10.0...19041", "NTamd64.10.0.0x.19041", &["VERIF-1287"]),
    Spoilt("NTamd64.10.0...19041", "NTamd64.10.0..0x1FFFFFFFF", &["VERIF-1287"]),
    Spoilt("NTamd64.10.0...19041", "NTamd64.0x0A.0", &["VERIF-1287"]),
    Spoilt("NTamd64.10.0...19041", "NTamd64.10.0.workstation", &["VERIF-1287"]),
    Spoilt("NTamd64.10.0...19041", "NTamd64.10.0...10240", &["VERIF-1288"]),
    Spoilt("Disk = \"Disk\"", "Disk = \"Disk\"\nDisk = \"Disc\"", &["VERIF-1294"]),
    Spoilt("Device = \"Device\"\n", "Device = \"Device\"\n\n[Strings.0407]\nMaker = \"Other\"\n", &["VERIF-1295"]),
    Spoilt("AddService = Other, 0x2,", "AddService = Other, 0,", &["VERIF-1296"]),
    Spoilt("%Device% = New, PCI\\VEN_1234&DEV_0001\n%Device% = New, PCI\\VEN_1234&DEV_0002\n", "%Device% = New\n", &[]),
    Spoilt("AddReg = Other.Software", "AddReg = Other.Software\nRegisterDlls = Other.Copy",
        &["VERIF-1206", "VERIF-1301"]),
    Spoilt("HKR,, Text, 0,", "HKR,, CoInstallers32, 0x10000,", &["VERIF-1303"]),
    Spoilt("HKR,, Text, 0,", "HKR,, Text, 0x10008,", &["VERIF-1305"]),
    Spoilt("AddService = Filter,, Filter.Service", "AddService = Filter,, Filter.Service\nDelService = Old",
        &["VERIF-1308"]),
    Spoilt("[Old.NT]\nInclude = machine.inf\n", "[Old.NT]\n", &["VERIF-1319"]),
    Spoilt("HKR, Sub,, 0x10", "HKLM, Software\\Other,, 0x10", &["VERIF-1320"]),
    Spoilt("HKR,, Bytes", "HKLM, Software\\Other, Bytes", &["VERIF-1321"]),
    Spoilt("Other.Copy = 13", "Other.Copy = 12", &["VERIF-1322"]),
    Spoilt("HKR, Parameters, Value", "HKR,, Value", &["VERIF-1323"]),
    Spoilt("PnpLockdown = 1", "PnpLockdown = 0", &["VERIF-1324"]),
    Spoilt("HKR, \"Interrupt Management\", MSISupported, 0x10001, 1", "HKR,, UpperFilters, 0x10000, filter",
        &["VERIF-1329"]),
    Spoilt("[Other.Copy]\nother.sys", "[Other.Copy]\nother.sys\nother.sys, filter.sys", &["VERIF-1100", "VERIF-1330"]),
    Spoilt("[Old.NT]\nInclude",
        "[Old.NT]\nAddReg = Old.Software\n\n[Old.Software]\nHKR,, Text, 0, c\n\n[Old.Rest]\nInclude",
        &["VERIF-2083"]),
    // Code 1332 is about one service: another one's value of the same name is another value.
    Spoilt("[Old.NT.Services]\nInclude = machine.inf\nNeeds = NO_DRV.Services",
        "[Old.NT.Services]\nAddService = Old, 2, Old.Service\n\n[Old.Service]\nServiceType = 1\nStartType = 0\n\
         ErrorControl = 1\nServiceBinary = %13%\\other.sys\nAddReg = Old.Parameters\n\n\
         [Old.Parameters]\nHKR, Parameters, Value, 0x10001, 2", &[]),
    Spoilt("[Old.NT.Services]\nInclude = machine.inf\nNeeds = NO_DRV.Services",
        "[Old.NT.Services]\nAddService = Other, 2, Old.Service\n\n[Old.Service]\nServiceType = 1\nStartType = 0\n\
         ErrorControl = 1\nServiceBinary = %13%\\other.sys\nAddReg = Old.Parameters\n\n\
         [Old.Parameters]\nHKR, Parameters, Value, 0x10001, 2", &["VERIF-1332", "VERIF-1333"]),
    // Two services' event logs, and one's.
    Spoilt("[Old.NT.Services]\nInclude = machine.inf\nNeeds = NO_DRV.Services",
        "[Old.NT.Services]\nAddService = Old, 2, Other.Service, Old.Log\n\n\
         [Old.Log]\nAddReg = Old.LogValues\n\n[Old.LogValues]\nHKR,, TypesSupported, 0x10001, 3", &[]),
    Spoilt("[Old.NT.Services]\nInclude = machine.inf\nNeeds = NO_DRV.Services",
        "[Old.NT.Services]\nAddService = Other, 2, Other.Service, Old.Log\n\n\
         [Old.Log]\nAddReg = Old.LogValues\n\n[Old.LogValues]\nHKR,, TypesSupported, 0x10001, 3", &["VERIF-1331"]),
    Spoilt("[Old.NT.Services]\nInclude = machine.inf\nNeeds = NO_DRV.Services",
        "[Old.NT.Services]\nAddService = Other, 2, Old.Service\n\n[Old.Service]\nServiceType = 1\nStartType = 3\n\
         ErrorControl = 1\nServiceBinary = %13%\\other.sys", &["VERIF-1333"]),
    Spoilt("PnpLockdown = 1", "PnpLockdown = 1\nExtensionId = {1}", &["VERIF-1380"]),
    Spoilt("Class = System\nClassGuid = {4D36E97D-E325-11CE-BFC1-08002BE10318}",
        "Class = Extension\nClassGuid = {E2F84CE7-8EFA-411C-AA69-97454CA4CB57}", &["VERIF-1381"]),
    Spoilt("AddService = Filter,, Filter.Service", "AddService = Filter,, Filter.Servise",
        &["VERIF-2006", "VERIF-2083"]),
    Spoilt("NTamd64.10.0...19041", "NT.10.0...19041", &["VERIF-2010"]),
    Spoilt("[Other.Log]", "[Other.Leftover]\n[Other.Log]", &["VERIF-2083"]),
    Spoilt("%13%\\other.sys", "%13%\\others.sys", &["VERIF-2084"]),
    Spoilt("%13%\\other.sys", "\\SystemRoot\\System32\\drivers\\other.sys", &["VERIF-2085"]),
    // Beside the bounds, and in what a first row of the rule does not reach.
    Spoilt("1.2.3.4", "1.2.3.65535", &[]),
    Spoilt("1.2.3.4", "1.2.3.65536", &["VERIF-1217"]),
    Spoilt("1.2.3.4", "1.2.3.+4", &["VERIF-1217"]),
    Spoilt("NTamd64.10.0...19041", "NTamd64.10.0...14310", &[]),
    Spoilt("NTamd64.10.0...19041", "NTamd64.10.0...14309", &["VERIF-1288"]),
    Spoilt("NTamd64.10.0...19041", "NTamd64.6.3...19041", &["VERIF-1288"]),
    Spoilt("{4D36E97D-E325-11CE-BFC1-08002BE10318}", "{4D36E97G-E325-11CE-BFC1-08002BE10318}", &["VERIF-1010"]),
    Spoilt("CatalogFile = other.cat", "CatalogFile = sub\\other.cat", &["VERIF-1214"]),
    Spoilt("Other.Service, Other.Log", "Other.Service, Other.Log, System", &[]),
    Spoilt("Other.Service, Other.Log", "Other.Service, Other.Log, Application", &[]),
    Spoilt("Other.Service, Other.Log", "Other.Service, Other.Log, Security", &[]),
    Spoilt("HKR, \"Interrupt Management\", MSISupported, 0x10001, 1", "HKR,, LowerFilters, 0x10000, filter",
        &["VERIF-1329"]),
    Spoilt("[Old.NT]\nInclude = machine.inf\nNeeds = NO_DRV\n",
        "[Old.NT]\nNeeds = Old.More\n\n[Old.More]\nDelReg = Other.Gone\n\n[Other.Gone]\nHKR,, Gone\n",
        &["VERIF-1308"]),
    Spoilt("CopyFiles = Other.Copy, Filter.Copy", "CopyFiles = Other.Copy, Filter.Copy, @more.sys", &["VERIF-1275"]),
    Spoilt("AddReg = Other.Software", "AddReg = Other.Software\nCoInstallers32 = other.dll", &["VERIF-1303"]),
    Spoilt("HKR,, Long, 0xB0001, 0x100000000", "HKR,, Long, 0xB0001, long", &["VERIF-1268"]),
    Spoilt("0x80000000", "0xFFFFFFFF", &[]),
    Spoilt("0x80000000", "+5", &["VERIF-1268"]),
    Spoilt("0x80000000", "0x+5", &["VERIF-1268"]),
    Spoilt("HKR,, Bytes, 1, 01, FF", "HKR,, Bytes, 1, 01, +F", &["VERIF-1267"]),
    Spoilt("AddReg = Other.Software", "AddReg = Other.Software\nFeatureScore = +F", &["VERIF-1245"]),
    Spoilt("[Other.Log]", "[ClassInstall32.NTamd64]\nAddReg = Other.Hardware\n[Other.Log]", &["VERIF-1285"]),
    Spoilt("HKR,, Bytes", "HKCR, Other, Bytes", &["VERIF-1321"]),
    Spoilt("HKR,, Bytes", "HKCU, Other, Bytes", &["VERIF-1321"]),
    Spoilt("HKR,, Bytes", "HKU, Other, Bytes", &["VERIF-1321"]),
    Spoilt("%Device% = Old", "%Devise% = Old", &["VERIF-1235"]),
    Spoilt("Device = \"Device\"\n",
        "Device = \"Device\"\n[Strings.0407]\nMaker = \"M\"\nDisk = \"D\"\nDevice = \"D\"\nDevice = \"D\"\n",
        &["VERIF-1294"]),
    Spoilt("AddReg = Other.Hardware", "AddReg =", &["VERIF-1005", "VERIF-2083"]),
    Spoilt("Needs = NO_DRV\n", "Needs =\n", &["VERIF-1005"]),
    Spoilt("[Old.NT]\nInclude = machine.inf", "[Old.NT]\nInclude =", &["VERIF-1005"]),
    Spoilt("PnpLockdown = 1", "PnpLockdown = 1\npnplockdown = 1", &["VERIF-1088"]),
    Spoilt("[Other.Log]", "[filter.add]\n[Other.Log]", &["VERIF-1209"]),
];

/// Changes to the display INF, for the rules that are about such drivers.
#[rustfmt::skip]
const OF_DISPLAY: &[Spoilt] = &[
    Spoilt("%13%\\fencepost_d3d.dll, %13%\\fencepost_d3d.dll\n", "%13%\\fencepost_d3d.dll, fencepost_d3d.dll\n",
        &["VERIF-2600"]),
    Spoilt("%13%\\fencepost.sys", "%12%\\fencepost.sys", &["VERIF-2600"]),
    Spoilt("StartType     = 3", "StartType     = 1", &["VERIF-2602"]),
    Spoilt("%Device.Edu%  = Fencepost_Install, PCI\\VEN_1234&DEV_11E8\n\
            %Device.Root% = Fencepost_Install, ROOT\\FENCEPOST\n",
        "", &["VERIF-1297", "VERIF-2083"]),
];

fn own(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("inf/{name}.inx"));
    std::fs::read_to_string(path).expect("an INF")
}

/// The rules that a text breaks.
fn broken(text: &str) -> BTreeSet<&'static str> {
    verify(text).into_iter().map(|finding| finding.rule).collect()
}

#[test]
fn our_infs_and_another_drivers_hold() {
    let infs = [own("fencepost"), own("fencepost_compute"), OTHER.to_owned(), OTHER.replace('\n', "\r\n")];
    for text in infs {
        let found: Vec<_> = verify(&text).iter().map(ToString::to_string).collect();
        assert!(found.is_empty(), "{found:#?}");
    }
}

#[test]
fn each_rule_is_broken_by_a_spoilt_copy_and_no_other() {
    let mut noticed = BTreeSet::new();
    let display = own("fencepost");
    let spoilt = SPOILT.iter().map(|one| (OTHER, one)).chain(OF_DISPLAY.iter().map(|one| (display.as_str(), one)));
    let mut wrong = Vec::new();
    for (text, Spoilt(from, to, rules)) in spoilt {
        assert!(text.contains(from), "'{from}' is not there any more");
        let found = verify(&text.replace(from, to));
        let said: Vec<_> = found.iter().map(ToString::to_string).collect();
        let names: BTreeSet<_> = found.iter().map(|finding| finding.rule).collect();
        if names != rules.iter().copied().collect() {
            wrong.push(format!("'{to}' for '{from}': {said:#?}, not {rules:?}"));
        }
        for sentence in &said {
            let advises = ["write ", "add ", "remove ", "keep ", "put ", "define ", "correct "];
            assert!(advises.iter().any(|it| sentence.contains(it)), "{sentence}");
        }
        noticed.extend(rules.iter().copied());
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let unseen: Vec<_> = VERIF_RULES.iter().map(|rule| rule.name).filter(|name| !noticed.contains(name)).collect();
    assert!(unseen.is_empty(), "no spoilt copy breaks {unseen:?}");
}

/// The directives that a rule names, one by one, each in an install section.
#[test]
fn each_directive_of_a_list_is_noticed() {
    let with = |directive: &str| {
        let more = format!("AddReg = Other.Software\n{directive} = Other.Gone\n\n[Other.Gone]\ngone");
        broken(&OTHER.replace("AddReg = Other.Software", &more))
    };
    let not_universal =
        "BitReg Ini2Reg LogConfig ProfileItems RegisterDlls UnregisterDlls UpdateIniFields UpdateInis RenFiles";
    for directive in not_universal.split(' ') {
        assert!(with(directive).contains("VERIF-1301"), "{directive}");
    }
    for directive in ["DelFiles", "DelProperty", "DelReg", "DelService"] {
        assert!(with(directive).contains("VERIF-1308"), "{directive}");
    }
}

/// What belongs to an install section is none of its own.
#[test]
fn a_part_of_an_install_section_needs_no_service() {
    let parts = "Components CoInstallers Events FactDef Interfaces LogConfigOverride Security Software WMI";
    for part in parts.split(' ') {
        let found = broken(&OTHER.replace("[Other.Log]", &format!("[New.NT.{part}]\n[Other.Log]")));
        assert!(found.is_empty(), "{part}: {found:?}");
    }
}

/// Classes that Microsoft defines, by name and by GUID. Source: articles
/// system-defined-device-setup-classes-available-to-vendors and mcdm-implementation-guidelines.
#[test]
fn a_class_and_its_guid_go_together() {
    let classes = [
        ("ComputeAccelerator", "{F01A9D53-3FF6-48D2-9F97-C8A7004BE10C}"),
        ("Display", "{4D36E968-E325-11CE-BFC1-08002BE10318}"),
        ("Extension", "{E2F84CE7-8EFA-411C-AA69-97454CA4CB57}"),
        ("HIDClass", "{745A17A0-74D3-11D0-B6FE-00A0C90F57DA}"),
        ("MEDIA", "{4D36E96C-E325-11CE-BFC1-08002BE10318}"),
        ("Monitor", "{4D36E96E-E325-11CE-BFC1-08002BE10318}"),
        ("Net", "{4D36E972-E325-11CE-BFC1-08002BE10318}"),
        ("Ports", "{4D36E978-E325-11CE-BFC1-08002BE10318}"),
        ("SCSIAdapter", "{4D36E97B-E325-11CE-BFC1-08002BE10318}"),
        ("SoftwareComponent", "{5C4C3332-344D-483C-8739-259E934C9CC8}"),
        ("System", "{4D36E97D-E325-11CE-BFC1-08002BE10318}"),
        ("USBDevice", "{88BAE032-5A81-49F0-BC3D-A4FF138216D6}"),
    ];
    let with = |class: &str, guid: &str| {
        let version = format!("Class = {class}\nClassGuid = {guid}");
        let found =
            broken(&OTHER.replace("Class = System\nClassGuid = {4D36E97D-E325-11CE-BFC1-08002BE10318}", &version));
        found.into_iter().filter(|rule| ["VERIF-1280", "VERIF-1281"].contains(rule)).collect::<Vec<_>>()
    };
    for (class, guid) in classes {
        assert!(with(class, guid).is_empty(), "{class}");
        assert_eq!(with(class, "{78A1C341-4539-11D3-B88D-00C04FAD5171}"), ["VERIF-1281"], "{class}");
        assert_eq!(with("Other", guid), ["VERIF-1280"], "{class}");
    }
}

/// The severities are those of `InfVerif /w`: these are warnings, and all others errors.
#[test]
fn these_rules_are_warnings() {
    let warnings: Vec<_> =
        VERIF_RULES.iter().filter(|rule| rule.level == Level::Warning).map(|rule| rule.name).collect();
    assert_eq!(warnings, ["VERIF-1201", "VERIF-1205", "VERIF-1251", "VERIF-2010", "VERIF-2083"]);
}

/// A file that is UTF-16 may have letters beyond ASCII.
#[test]
fn a_file_with_a_mark_has_any_letters() {
    let text = OTHER.replace("Maker = \"Other\"", "Maker = \"Ötherö\"");
    assert_eq!(broken(&text), BTreeSet::from(["VERIF-1003"]));
    assert_eq!(broken(&format!("{}{text}", fencepost::inf::MARK)), BTreeSet::new());
}

#[test]
fn what_is_no_inf_is_refused() {
    for text in ["", "[", "]\n=\n%%%", "[Version]\nClass", "%\n[%]\n%=%,%", "a = \"b", "[Manufacturer]\n= ,\n"] {
        assert!(!broken(text).is_empty(), "{text:?}");
    }
    for cut in 0..OTHER.len() {
        let _ = verify(&OTHER[..cut]);
    }
    // Sections that name each other without end.
    let round =
        "[Manufacturer]\na = M, NTamd64\n[M.NTamd64]\nd = I, X\n[I]\nNeeds = I\n[I.Services]\nNeeds = I.Services\n";
    assert!(!broken(round).is_empty());
}

/// The codes in a cell of a table: `1000, 1210 to 1212`. What is of one section alone (`2010 of …`) is left out.
fn codes(cell: &str) -> Vec<u32> {
    let ranges = cell.split(',').map(str::trim).filter(|range| !range.contains(" of "));
    ranges
        .filter_map(|range| {
            let (first, last) = range.split_once(" to ").unwrap_or((range, range));
            Some(first.parse().ok()?..=last.parse().ok()?)
        })
        .flatten()
        .collect()
}

/// docs/windows.md lists the codes that are not looked at: none is looked at, and none is listed twice.
#[test]
fn the_page_lists_codes_that_are_no_rules() {
    let page =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/windows.md")).expect("the page");
    let table = page.split_once("\n| codes | why |\n").expect("the table").1;
    let rows = table.lines().take_while(|line| line.starts_with('|')).filter_map(|row| row.split('|').nth(1));
    let listed: Vec<u32> = rows.flat_map(codes).collect();
    assert!(listed.len() > 100, "{listed:?}");
    let unique: BTreeSet<_> = listed.iter().collect();
    assert_eq!(unique.len(), listed.len(), "a code is listed twice");
    let looked_at = |code: &&u32| VERIF_RULES.iter().any(|rule| rule.name == format!("VERIF-{code}"));
    let both: Vec<_> = listed.iter().filter(looked_at).collect();
    assert!(both.is_empty(), "{both:?} are rules");
    assert!(page.contains(&format!("(rules `VERIF-…`, {} of", VERIF_RULES.len())));
}
