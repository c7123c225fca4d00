//! The cases hold with the driver linked in, by the program, and with the images where they are built; and each notices
//! a driver that is wrong.

use fencepost::crates::wddm_abi::ntstatus::{STATUS_SUCCESS, STATUS_UNSUCCESSFUL};
use fencepost::crates::wddm_abi::{DXGKARG_NOTIFYWORKSUBMISSION, DXGKARG_UPDATECURRENTVALUESFROMCPU, NTSTATUS};
use fencepost::scenario::{LIMIT, Outcome, Stage, Status, run, wait_at_most};
use fencepost::world::{Decorator, Form};
use own_case::CASES;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fencepost::decorate! {
    /// A driver that refuses a notification.
    refuses: DxgkDdiNotifyWorkSubmission(_args: *mut DXGKARG_NOTIFYWORKSUBMISSION) -> NTSTATUS {
        STATUS_UNSUCCESSFUL
    }

    /// A driver that takes values of the CPU and writes none.
    writes_nothing: DxgkDdiUpdateCurrentValuesFromCpu(_args: *const DXGKARG_UPDATECURRENTVALUESFROMCPU) -> NTSTATUS {
        STATUS_SUCCESS
    }
}

/// What becomes of a case with a driver that is linked in and wrong in this way.
fn with(wrong: Decorator, id: &str) -> Outcome {
    let cases: Vec<_> = CASES.iter().filter(|case| case.id == id).collect();
    run(&cases, &Stage::new(Form::Decorated(wrong), 1), LIMIT, &|_| ()).remove(0)
}

#[test]
fn each_notices_a_driver_that_is_wrong() {
    wait_at_most(2);
    let outcome = with(refuses, "OC-02");
    let said = outcome.reason;
    assert!(outcome.status == Status::Fail && said.contains("DxgkDdiNotifyWorkSubmission"), "{said}");
    // The failure says what the driver was called with last.
    assert!(said.contains("; DxgkDdiNotifyWorkSubmission(hHwQueue 0x") && said.contains(", Flags 0x0)"), "{said}");
    let outcome = with(writes_nothing, "OC-01");
    assert_eq!(outcome.status, Status::Fail, "{}", outcome.reason);
}

fn out() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../out")
}

/// The program, with these arguments.
fn own_case(arguments: &[&str]) -> (Output, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_own_case"));
    let output = command.args(arguments).env("FENCEPOST_OUT", out()).output().expect("built with this test");
    let said = String::from_utf8_lossy(&[&output.stdout[..], &output.stderr[..]].concat()).into_owned();
    (output, said)
}

#[test]
fn they_hold_natively() {
    let (output, said) = own_case(&["--native", "--repeat", "2"]);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("4 passed, 0 failed, 0 skipped, native mode"), "{said}");
    assert!(said.contains("\n      notifications=1 to 1\n"), "{said}");
}

#[test]
fn they_hold_with_the_images() {
    if !out().join("fencepost.sys").is_file() {
        return eprintln!("not played: ./x image builds the images");
    }
    let folder = tempfile();
    let json = folder.join("cases.json");
    let (output, said) = own_case(&["--json", &json.display().to_string()]);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("2 passed, 0 failed, 0 skipped, image mode"), "{said}");
    let text = std::fs::read_to_string(&json).expect("a JSON file");
    assert!(text.contains("\"notifications\": 1"), "{text}");
    std::fs::remove_dir_all(folder).expect("removed");
}

/// A folder of this process.
fn tempfile() -> PathBuf {
    let folder = std::env::temp_dir().join(format!("own_case-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    folder
}

#[test]
fn a_case_is_named_listed_and_skipped_as_those_of_fencepost() {
    let (output, said) = own_case(&["--native", "--setting", "MaxRung=2", "oc-02"]);
    assert_eq!(output.status.code(), Some(0), "{said}");
    let skipped = "skip  OC-02  D3DKMTNotifyWorkSubmission";
    assert!(
        said.contains(skipped) && said.contains("\n      it is about doorbells, which rung 3 alone has\n"),
        "{said}"
    );
    let (output, said) = own_case(&["--list"]);
    assert!(output.status.success() && said.starts_with("OC-01 ") && !said.contains("NF-01"), "{said}");
    let (output, said) = own_case(&["NF-01", "--native"]);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("no case and no group is called 'NF-01'"), "{said}");
}
