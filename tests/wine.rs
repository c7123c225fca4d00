//! A second reader of the INFs: Wine's setupapi parses the packages' INFs, copies their files, writes their values and
//! makes their services. The program for Windows, which Wine starts. And the driver itself, which starts, works and is
//! unloaded there, with a stand-in for Dxgkrnl.
//!
//! Wine has no keys of devices here, so a copy of each INF names a key of its own where the software and the hardware
//! key are meant (HKR); all else is the INF of the package. It does not know DIRID 13 and puts such files into a folder
//! `unknown`. Its PnP matches undecorated models only, so that the install sections are named by hand.

use fencepost::package::{Certificate, FORMS, Form, make};
use fencepost::wine::{Places, Played, STEPS, Status, Whose, Wine, play};
use jiff::civil::date;
use libtest_mimic::{Arguments, Trial};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Where the copies' values go.
const SOFTWARE: &str = r"Software\FencepostPackage\Software";
const HARDWARE: &str = r"Software\FencepostPackage\Hardware";
/// The folder of what has DIRID 13.
const STORE: &str = "drive_c/windows/system32/unknown";

/// A registry value as `reg query` prints it: name, type, data.
type Value = (&'static str, &'static str, &'static str);

/// The library that refuses Direct3D, four times, as `reg query` prints a list.
const D3D: &str = "C:\\windows\\system32\\unknown\\fencepost_d3d.dll\\0\
                   C:\\windows\\system32\\unknown\\fencepost_d3d.dll\\0\
                   C:\\windows\\system32\\unknown\\fencepost_d3d.dll\\0\
                   C:\\windows\\system32\\unknown\\fencepost_d3d.dll";
const CLIENT: &str = r"C:\windows\system32\unknown\fencepost_umd.dll";

/// What the software key has in both forms.
const BOTH: &[Value] = &[
    ("UserModeDriverName", "REG_MULTI_SZ", D3D),
    ("FencepostClient", "REG_SZ", CLIENT),
    ("HardwareInformation.ChipType", "REG_SZ", "Engine threads"),
    ("MaxRung", "REG_DWORD", "0x0"),
];
/// What the display form has besides.
const DISPLAY: &[Value] = &[
    ("InstalledDisplayDrivers", "REG_MULTI_SZ", r"fencepost_d3d\0fencepost_umd"),
    ("HardwareInformation.AdapterString", "REG_SZ", "Fencepost software GPU"),
    ("HardwareInformation.DacType", "REG_SZ", "None"),
    ("HardwareInformation.BiosString", "REG_SZ", "None"),
    ("VgaCompatible", "REG_DWORD", "0x0"),
    ("CapabilityOverride", "REG_DWORD", "0x8"),
];
/// And the compute form.
const COMPUTE: &[Value] = &[("HardwareInformation.AdapterString", "REG_SZ", "Fencepost software compute accelerator")];

/// A Wine prefix of this test's own.
struct OwnWine {
    wine: Wine,
}

impl OwnWine {
    /// A new prefix in `folder`.
    fn new(folder: &Path) -> Self {
        let wine = Wine::of(folder).expect("a folder");
        wine.make().expect("a prefix");
        Self { wine }
    }

    /// What one of Wine's programs prints.
    fn run(&self, arguments: &[&str]) -> String {
        let output = self.wine.output("wine", arguments).expect("timeout");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_ne!(output.status.code(), Some(124), "{arguments:?} did not end in time: {said}");
        said
    }

    /// Has setupapi install a section of an INF, which lies at `C:\package`.
    fn install(&self, section: &str, inf: &str) {
        let inf = format!(r"C:\package\{inf}");
        self.run(&["rundll32", "setupapi,InstallHinfSection", section, "132", &inf]);
    }

    /// The values directly below a key: name, type, data.
    fn values(&self, key: &str) -> Vec<(String, String, String)> {
        let said = self.run(&["reg", "query", &format!(r"HKLM\{key}")]);
        let lines = said.lines().filter_map(|line| line.trim_end().strip_prefix("    "));
        let value = |line: &str| {
            let mut parts = line.splitn(3, "    ").map(str::to_owned);
            Some((parts.next()?, parts.next()?, parts.next().unwrap_or_default()))
        };
        lines.filter_map(value).collect()
    }

    fn has(&self, key: &str, wanted: &[Value]) {
        let mut found = self.values(key);
        let mut wanted: Vec<_> =
            wanted.iter().map(|(name, of, data)| ((*name).to_owned(), (*of).to_owned(), (*data).to_owned())).collect();
        found.sort();
        wanted.sort();
        assert_eq!(found, wanted, "{key}");
    }
}

/// Packages, and a prefix that has a copy of one of them at `C:\package`.
struct Scene {
    // Wine ends before its folder is gone, without which it would not find its processes.
    wine: OwnWine,
    folder: tempfile::TempDir,
}

impl Scene {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let images = std::env::var_os("FENCEPOST_OUT")
            .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("out"), PathBuf::from);
        let certificate = Certificate::of(&folder.path().join("certificate")).expect("a certificate");
        make(&images, folder.path(), date(2026, 3, 9), &certificate).expect("the packages");
        let wine = OwnWine::new(folder.path());
        Self { wine, folder }
    }

    /// Puts a form's package to `C:\package`, its INF changed by `change` behind what Wine lacks.
    fn place(&self, form: &Form, change: impl Fn(String) -> String) {
        let (from, to) = (self.folder.path().join(form.folder), self.wine.wine.root().join("drive_c/package"));
        std::fs::create_dir_all(&to).expect("a folder");
        for entry in std::fs::read_dir(from).expect("a package") {
            let entry = entry.expect("a file");
            std::fs::copy(entry.path(), to.join(entry.file_name())).expect("copied");
        }
        let inf = to.join(format!("{}.inf", form.name));
        let text = std::fs::read_to_string(&inf).expect("an INF");
        let text = text
            .replace("HKR,, ", &format!("HKLM, \"{SOFTWARE}\", "))
            .replace("HKR, \"Interrupt Management", &format!("HKLM, \"{HARDWARE}\\Interrupt Management"));
        std::fs::write(inf, change(text)).expect("an INF");
    }

    fn store(&self, file: &str) -> Option<Vec<u8>> {
        std::fs::read(self.wine.wine.root().join(STORE).join(file)).ok()
    }
}

/// Both packages, one behind the other: as on a machine that changes from one form to the other.
fn installs_both(scene: &Scene) {
    for form in &FORMS {
        let compute = form.name.ends_with("compute");
        let (own, display_name) = match compute {
            true => (COMPUTE, "Fencepost compute miniport"),
            false => (DISPLAY, "Fencepost display miniport"),
        };
        scene.place(form, |text| text);
        let inf = format!("{}.inf", form.name);
        scene.wine.run(&["reg", "delete", r"HKLM\Software\FencepostPackage", "/f"]);
        scene.wine.install("Fencepost_Install", &inf);
        scene.wine.install("Fencepost_Install.HW", &inf);
        scene.wine.has(SOFTWARE, &[BOTH, own].concat());
        let interrupts = format!(r"{HARDWARE}\Interrupt Management\MessageSignaledInterruptProperties");
        scene.wine.has(&interrupts, &[("MSISupported", "REG_DWORD", "0x0")]);
        let service = r"System\CurrentControlSet\Services\Fencepost";
        let found = scene.wine.values(service);
        let wanted = [
            ("DisplayName", "REG_SZ", display_name),
            ("ErrorControl", "REG_DWORD", "0x0"),
            ("ImagePath", "REG_SZ", r"C:\windows\system32\unknown\fencepost.sys"),
            ("Start", "REG_DWORD", "0x3"),
            ("Type", "REG_DWORD", "0x1"),
        ];
        for (name, of, data) in wanted {
            let there = found.iter().any(|(n, o, d)| (n.as_str(), o.as_str(), d.as_str()) == (name, of, data));
            // Wine makes a service once, and leaves the name of one that is there.
            assert!(there || (compute && name == "DisplayName"), "{service}: no {name} {of} {data} in {found:#?}");
        }
        let kind = if compute { "0x1" } else { "0x0" };
        scene.wine.has(&format!(r"{service}\Parameters"), &[("ComputeOnly", "REG_DWORD", kind)]);
        for file in ["fencepost.sys", "fencepost_d3d.dll", "fencepost_umd.dll"] {
            let packed = std::fs::read(scene.folder.path().join(form.folder).join(file)).expect("an image");
            assert!(scene.store(file).is_some_and(|copied| copied == packed), "{file} was not copied");
        }
    }
}

/// What setupapi cannot parse it does not install: the pass above is no accident.
fn refuses_what_is_no_inf(scene: &Scene) {
    let form = &FORMS[0];
    for (from, to) in [("[Fencepost_Files]", "[Fencepost_Files"), ("\"$WINDOWS NT$\"", "\"$WINDOWS 3$\"")] {
        scene.place(form, |text| {
            assert!(text.contains(from), "{from} is not there any more");
            text.replace(from, to)
        });
        scene.wine.install("Fencepost_Install", &format!("{}.inf", form.name));
        assert!(scene.store("fencepost.sys").is_none(), "installed with '{to}'");
        assert_eq!(scene.wine.values(SOFTWARE), [], "installed with '{to}'");
    }
}

/// One prefix for both: making one takes seconds, and 700 MB.
fn setupapi_refuses_what_is_no_inf_and_installs_both() {
    let scene = Scene::new();
    refuses_what_is_no_inf(&scene);
    installs_both(&scene);
}

/// `fencepost.exe`, which `./x exe` builds, starts under Wine: it says what it can play, and what this machine lacks.
fn the_program_for_windows_starts_and_says_what_is_missing() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = tempfile::tempdir().expect("a folder");
    let wine = OwnWine::new(folder.path());
    let place = wine.wine.root().join("drive_c/program");
    std::fs::create_dir_all(&place).expect("a folder");
    // Wine before 9 has no such library, which Rust's standard library takes random numbers from; a built-in one is
    // taken where there is one.
    let files = [
        "out/fencepost.exe",
        "out/fencepost_umd.dll",
        "out/fencepost_d3d.dll",
        "target/cross/exe/bcryptprimitives.dll",
    ];
    for file in files {
        let path = root.join(file);
        let name = path.file_name().expect("a name");
        std::fs::copy(&path, place.join(name)).unwrap_or_else(|error| panic!("{file}: {error} (./x exe)"));
    }
    let run = |arguments: &[&str]| {
        let program = r"C:\program\fencepost.exe";
        wine.run(&[&[program], arguments].concat()).replace('\r', "")
    };
    let said = run(&["machine", "--json", r"C:\program\machine.json"]);
    assert!(said.starts_with("machine   Windows build ") && said.contains(", played by Wine "), "{said}");
    assert!(said.contains("gdi32     lacks (of 24H2): D3DKMTCreateNativeFence, "), "{said}");
    assert!(said.contains("D3DKMTCreateDoorbell, D3DKMTConnectDoorbell, D3DKMTDestroyDoorbell"), "{said}");
    assert!(said.contains("missing   this is Wine ") && said.ends_with("the cases want Windows\n"), "{said}");
    let json = std::fs::read_to_string(place.join("machine.json")).expect("the file");
    let machine: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert!(machine["build"].as_u64().is_some_and(|build| build > 0) && machine["wine"].is_string(), "{json}");
    // What the model plays of the same code, and no case more.
    let listed = run(&["scenario", "--list"]);
    let ids: Vec<_> = listed.lines().filter(|line| !line.starts_with(' ')).filter_map(|line| line.get(..5)).collect();
    let cases: Vec<_> = portable_cases::submission::CASES.iter().map(|case| case.id).collect();
    assert_eq!(ids, cases);
    for command in [&["scenario", "DB-14"][..], &["tdr", "two-device"], &["demo", "--picture", r"C:\program\no.png"]] {
        let said = run(command);
        assert!(said.contains("missing   this is Wine ") && !said.contains("pass"), "{said}");
    }
    assert!(!place.join("no.png").exists(), "a picture that nothing made");
    // The demo's processes: this program once more, twice, and a handle of one that the other gets.
    let said = run(&["demo", "--rehearse"]);
    assert!(said.ends_with("\ntwo processes, and a handle from one to the other\n"), "{said}");
    // What Direct3D's runtimes load refuses each of them; what is no such library is not mistaken for one.
    let refused = "OpenAdapter      (Direct3D 9) 0x887A0004\nOpenAdapter10    (Direct3D 10) 0x887A0004\n\
                   OpenAdapter10_2  (Direct3D 10.1 and 11) 0x887A0004\nOpenAdapter12    (Direct3D 12) 0x887A0004\n";
    assert_eq!(run(&["d3d", r"C:\program\fencepost_d3d.dll"]), refused);
    assert_eq!(run(&["d3d", r"C:\program\fencepost_umd.dll"]), "");
}

/// Plays the driver of `driver` under Wine, in the prefix that `./x wine` uses too.
fn second_opinion(driver: &str, settings: &[(&str, u64)]) -> Played {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let stand_in = root.join("out/wine/dxgkrnl.sys");
    let places = Places { driver: root.join(driver), stand_in, folder: root.join("target/wine") };
    let settings: Vec<_> = settings.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
    play(&places, &settings).expect("Wine, the images, and the stand-in's (cross/build --wine)")
}

/// The shipped image loads under Wine, starts, does what one paging buffer says, and gives everything back.
fn the_driver_starts_works_and_unloads() {
    let played = second_opinion("out/fencepost.sys", &[]);
    assert!(played.held, "{played:#?}");
    // What is filled in is filled in no more than it must be: each of these Wine has.
    let filled = |name: &str| played.services.iter().any(|s| s.name == name && s.whose == Whose::Filled);
    for name in ["KeSetEvent", "PsCreateSystemThread", "KeWaitForSingleObject", "IoOpenDeviceRegistryKey", "ExFreePool"]
    {
        assert!(!filled(name), "{name} is filled in");
    }
    for (whose, at_least) in [(Whose::Wine, 20), (Whose::Filled, 10)] {
        let (_, called) = played.count(whose);
        assert!(called >= at_least, "{called} services of {whose:?} were called: {:#?}", played.services);
    }
}

/// What the driver does wrong is seen, and named: a capability that it refuses; and a driver that is none.
fn what_does_not_hold_is_named() {
    // DXGKQAITYPE_GPUMMUCAPS is type 13.
    let played = second_opinion("out/fencepost.sys", &[("RefuseQueries", 1 << 13)]);
    let first = played.first_failure().expect("a step that failed");
    assert_eq!((first.name.as_str(), first.status), ("GPUMMUCAPS", Status::Fail), "{played:#?}");
    assert!(!played.held && !played.steps.iter().any(|step| step.name == "memory" && step.status == Status::Pass));
    let missing = |name: &str| played.steps.iter().any(|step| step.name == name && step.status == Status::Missing);
    assert!(missing("DMA_COMPLETED") && missing("memory"), "{played:#?}");
    // It was stopped, removed and unloaded all the same.
    assert!(!missing("DxgkDdiUnload"), "{played:#?}");
    // The user-mode driver has another entry point: it is no driver, and never asks for DxgkInitialize.
    let played = second_opinion("out/fencepost_umd.dll", &[]);
    let first = played.first_failure().map(|step| step.name.as_str());
    assert!(!played.held && first == Some("handshake") && played.steps.len() == STEPS.len(), "{played:#?}");
}

/// Both in one prefix, which is used by one run at a time.
fn the_driver_under_wine() {
    the_driver_starts_works_and_unloads();
    what_does_not_hold_is_named();
}

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let name = "setupapi_refuses_what_is_no_inf_and_installs_both";
    let trial = Trial::test(name, || {
        setupapi_refuses_what_is_no_inf_and_installs_both();
        Ok(())
    });
    let program = Trial::test("the_program_for_windows_starts_and_says_what_is_missing", || {
        the_program_for_windows_starts_and_says_what_is_missing();
        Ok(())
    });
    let driver = Trial::test("the_driver_starts_works_and_unloads_and_what_does_not_hold_is_named", || {
        the_driver_under_wine();
        Ok(())
    });
    libtest_mimic::run(&arguments, vec![trial, program, driver]).exit_code()
}
