//! `check`: verdicts, exit statuses, and what is said of files that are no drivers.

use super::{fencepost, has_images, out, refused, text};
use serde_json::Value;
use std::collections::BTreeSet;
use std::process::Output;

/// A file with these bytes, checked.
fn check(bytes: &[u8]) -> Output {
    let file = tempfile::Builder::new().suffix(".sys").tempfile().expect("a file");
    std::fs::write(file.path(), bytes).expect("written");
    fencepost(&["check", &file.path().display().to_string()])
}

#[test]
fn what_is_no_driver_is_a_sentence() {
    refused(&check(b""), "cannot be loaded");
    refused(&check(b"MZ but nothing else"), "cannot be loaded");
}

#[test]
fn a_damaged_driver_is_a_sentence() {
    let Ok(driver) = std::fs::read(out().join("fencepost.sys")) else { return };
    refused(&check(&driver[..driver.len() / 2]), "cannot be loaded");
    let pe = u32::from_le_bytes([driver[0x3C], driver[0x3D], driver[0x3E], driver[0x3F]]) as usize;
    let mut other = driver.clone();
    other[pe + 4..pe + 6].copy_from_slice(&0xAA64_u16.to_le_bytes());
    refused(&check(&other), "cannot be loaded");
    // The file is called what it was given as, whatever its version resource says.
    let mut directory = driver.clone();
    let imports = pe + 24 + 112 + 8;
    directory[imports..imports + 4].copy_from_slice(&0x7FFF_0000_u32.to_le_bytes());
    let output = check(&directory);
    refused(&output, "cannot be loaded: bad header field: data directory 1");
    assert!(!text(&output.stderr).contains("fencepost.sys"), "{}", text(&output.stderr));
    let name = b"KeInitializeEvent";
    let at = driver.windows(name.len()).position(|w| w == name).expect("the import");
    let mut unknown = driver.clone();
    unknown[at..at + name.len()].copy_from_slice(b"KeInitializeEvenz");
    // What the model lacks is not held against the driver.
    let output = check(&unknown);
    assert_eq!(output.status.code(), Some(3), "{}", text(&output.stdout));
    let said = text(&output.stdout);
    assert!(said.contains("KeInitializeEvenz (threads, waiting, time and processors)"), "{said}");
    assert!(said.contains("not judged: it imports 1 services that the model does not know"), "{said}");
    // Nor is a call at what Windows has, and what follows from that: it is named before the driver runs.
    let mut lacking = driver;
    lacking[at..at + name.len()].copy_from_slice(b"KeInitializeQueue");
    let output = check(&lacking);
    assert_eq!(output.status.code(), Some(3), "{}", text(&output.stdout));
    let said = text(&output.stdout);
    let first = "the model lacks ntoskrnl.exe!KeInitializeQueue (threads, waiting, time and processors)";
    assert!(said.starts_with(first) && said.contains("not judged: it calls a service that the model lacks"), "{said}");
}

/// Where the code of a function of `DriverEntry`'s kind begins in the file of a driver.
fn entry_point(driver: &[u8]) -> usize {
    let word = |at: usize| u32::from_le_bytes(driver[at..at + 4].try_into().expect("four bytes")) as usize;
    let half = |at: usize| usize::from(u16::from_le_bytes(driver[at..at + 2].try_into().expect("two bytes")));
    let pe = word(0x3C);
    let (entry, sections) = (word(pe + 0x28), pe + 0x18 + half(pe + 0x14));
    // Of a section: its size, its address, and where it is in the file.
    let fields = |number: usize| [8, 12, 20].map(|field| word(sections + 40 * number + field));
    let around = |[size, address, _]: &[usize; 3]| (*address..address + size).contains(&entry);
    let [_, address, place] = (0..half(pe + 6)).map(fields).find(around).expect("a section around the entry point");
    entry - address + place
}

/// What a driver keeps for ever does not keep the check: it is named, and the report is written.
#[test]
fn a_driver_that_does_not_return_is_named() {
    let Ok(mut driver) = std::fs::read(out().join("fencepost.sys")) else { return };
    let at = entry_point(&driver);
    driver[at..at + 2].copy_from_slice(&[0xEB, 0xFE]); // jmp to itself
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (file, json) = (folder.path().join("loop.sys"), folder.path().join("verdict.json"));
    std::fs::write(&file, driver).expect("written");
    let [file, json] = [file, json].map(|path| path.display().to_string());
    let output = fencepost(&["check", &file, "--deadline", "1", "--json", &json]);
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{said}{}", text(&output.stderr));
    assert!(said.contains("rule    NT-RETURN") && said.contains("found   DriverEntry has not come back"), "{said}");
    let value: Value = serde_json::from_slice(&std::fs::read(json).expect("read")).expect("JSON");
    assert_eq!(value["outcome"], "broken");
    let returns = value["rules"].as_array().and_then(|rules| rules.iter().find(|rule| rule["name"] == "NT-RETURN"));
    assert_eq!(returns.expect("the rule")["status"], "broken");
    assert_eq!(fencepost(&["check", &file, "--deadline", "0"]).status.code(), Some(2));
}

#[test]
fn check_finds_nothing_wrong_with_the_driver() {
    if !has_images() {
        return;
    }
    let json = tempfile::NamedTempFile::new().expect("a file");
    let driver = out().join("fencepost.sys").display().to_string();
    let output = fencepost(&["check", &driver, "--json", &json.path().display().to_string()]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stdout));
    let value: Value = serde_json::from_slice(&std::fs::read(json.path()).expect("read")).expect("JSON");
    let rules = value["rules"].as_array().expect("rules");
    let count = |status: &str| rules.iter().filter(|rule| rule["status"] == status).count();
    assert_eq!(count("broken"), 0);
    assert!(count("held") > 60, "{} held", count("held"));
    assert_eq!((&value["outcome"], &value["unjudged"]), (&"held".into(), &serde_json::json!([])));
    assert_eq!(value["reached"].as_array().map(Vec::len), Some(7), "{}", value["reached"]);
    let silent: Vec<_> = value["never_called"].as_array().expect("names").iter().map(Value::to_string).collect();
    let is_silent = |name: &str| silent.contains(&format!("\"{name}\""));
    assert!(is_silent("DxgkDdiRender") && !is_silent("DxgkDdiStartDevice") && !is_silent("DxgkDdiUnload"));
    for ddi in ["PreemptCommand", "SuspendContext", "ResetEngine", "ResetHwEngine", "ResetFromTimeout"] {
        assert!(!is_silent(&format!("DxgkDdi{ddi}")), "{ddi}");
    }
    // On every rung, and in either form, each step is reached without anything of the driver's own.
    for setting in ["MaxRung=0", "MaxRung=1", "ComputeOnly=1"] {
        let all = "submit,paging,preemption,reset";
        let steps = ["--require", "device,context", "--require", all, "--setting", setting];
        let output = fencepost(&[&["check", &driver][..], &steps].concat());
        assert_eq!(output.status.code(), Some(0), "{setting}: {}", text(&output.stdout));
    }
    let output = fencepost(&["check", &driver, "--require", "everything"]);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    assert!(
        text(&output.stderr).contains("open, device, context, allocation, submit, paging, preemption, reset"),
        "{}",
        text(&output.stderr)
    );
}

#[test]
fn check_knows_the_settings_of_this_driver() {
    if !has_images() {
        return;
    }
    // Its file may have any name.
    let folder = tempfile::tempdir().expect("a temporary folder");
    let copy = folder.path().join("copy.sys");
    std::fs::copy(out().join("fencepost.sys"), &copy).expect("a copy");
    for driver in [out().join("fencepost.sys"), copy].map(|driver| driver.display().to_string()) {
        refused(&fencepost(&["check", &driver, "--setting", "MaxRang=2"]), "no setting is called 'MaxRang'");
        let json = tempfile::NamedTempFile::new().expect("a file");
        let place = json.path().display().to_string();
        let output = fencepost(&["check", &driver, "--setting", "ComputeOnly=1", "--json", &place]);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stdout));
        let value: Value = serde_json::from_slice(&std::fs::read(json.path()).expect("read")).expect("JSON");
        let rules = value["rules"].as_array().expect("rules");
        let judged = rules.iter().find(|rule| rule["name"] == "DXG-COMPUTE-CAPS").expect("the rule");
        assert_eq!(judged["status"], "held", "the service's value reached the driver");
    }
}

#[test]
fn a_driver_under_the_name_of_this_one_has_settings_of_its_own() {
    let Ok(driver) = std::fs::read(out().join("fencepost.sys")) else { return };
    let ours: Vec<u8> = "OriginalFilename\0".encode_utf16().flat_map(u16::to_le_bytes).collect();
    let at = driver.windows(ours.len()).position(|bytes| bytes == ours).expect("the version resource");
    let mut other = driver;
    other[at] = b'o';
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("fencepost.sys");
    std::fs::write(&file, other).expect("written");
    let output = fencepost(&["check", &file.display().to_string(), "--setting", "MaxRang=2"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
}

#[test]
fn a_setting_reaches_a_driver_that_is_checked() {
    if !has_images() {
        return;
    }
    let driver = out().join("fencepost.sys").display().to_string();
    for setting in ["FlipCaps=0", "FlipCaps=0x0", "FlipCaps=0X0"] {
        let output = fencepost(&["check", &driver, "--setting", setting]);
        assert_eq!(output.status.code(), Some(1), "{}", text(&output.stdout));
        assert!(text(&output.stdout).contains("DXG-CAPS-FLIP"), "{}", text(&output.stdout));
        // What it was asked until then is shown without --verbose.
        let said = text(&output.stdout);
        assert!(said.contains("      AddDevice: STATUS_SUCCESS") && said.contains("the adapter is refused"), "{said}");
    }
}

#[test]
fn the_rules_are_listed() {
    let json = tempfile::NamedTempFile::new().expect("a file");
    let output = fencepost(&["check", "--list", "--json", &json.path().display().to_string()]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let value: Value = serde_json::from_slice(&std::fs::read(json.path()).expect("read")).expect("JSON");
    let rules = value["rules"].as_array().expect("rules");
    assert!(text(&output.stdout).contains(&format!("\n{} rules\n", rules.len())), "{}", text(&output.stdout));
    let ids: BTreeSet<_> = rules.iter().map(|rule| rule["id"].as_str().expect("a name")).collect();
    assert!(ids.len() == rules.len() && ids.len() > 200, "{} names of {} rules", ids.len(), rules.len());
    let with = |severity: &str| rules.iter().filter(|rule| rule["severity"] == severity).count();
    assert_eq!(with("error") + with("warning") + with("note"), rules.len());
    assert!(with("warning") > 2 && with("note") > 0, "{} warnings, {} notes", with("warning"), with("note"));
    assert!(rules.iter().all(|rule| rule["title"] != "" && rule["source"] != "" && rule["fix"] != ""));
    // It takes no driver, and without it a driver must be named.
    assert_eq!(fencepost(&["check", "--list", "driver.sys"]).status.code(), Some(2));
    assert_eq!(fencepost(&["check"]).status.code(), Some(2));
}

/// What drivers do and are seen to run on Windows with is told, and does not count.
#[test]
fn a_warning_is_told_and_does_not_count() {
    if !has_images() {
        return;
    }
    let driver = out().join("fencepost.sys").display().to_string();
    // NUMPOWERCOMPONENTS is refused.
    let output = fencepost(&["check", &driver, "--setting", "RefuseQueries=0x40"]);
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("*** WARNING\n    rule    DXG-QAI-EXPECTED") && said.contains("1 with a warning"), "{said}");
    let output =
        fencepost(&["check", &driver, "--windows", "power-components-needed", "--setting", "RefuseQueries=0x40"]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stdout));
}
