//! What a person meets at the command line: results, exit statuses, one clear sentence for what is wrong.

mod check;

use serde_json::Value;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

fn fencepost(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fencepost"));
    command.args(arguments).env("FENCEPOST_OUT", out());
    command.output().expect("the program was built with this test")
}

fn out() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("out")
}

fn has_images() -> bool {
    out().join("fencepost.sys").is_file()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Exit status 2, and one line on the standard error stream that contains `what`.
#[track_caller]
fn refused(output: &Output, what: &str) {
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(error.contains(what), "{error}");
    assert_eq!(error.trim_end().lines().count(), 1, "{error}");
}

fn demo(mode: &str, extra: &[&str]) -> (Output, Option<Value>, tempfile::TempDir) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let json = folder.path().join("d.json");
    let place = folder.path().display().to_string();
    let mut arguments = vec!["demo", mode, "--out", &place, "--json"];
    let json_text = json.display().to_string();
    arguments.push(&json_text);
    arguments.extend_from_slice(extra);
    let output = fencepost(&arguments);
    let value = std::fs::read(&json).ok().map(|bytes| serde_json::from_slice(&bytes).expect("JSON"));
    (output, value, folder)
}

fn demo_holds(mode: &str) {
    let (output, json, folder) = demo(&format!("--{mode}"), &[]);
    assert_eq!(output.status.code(), Some(0), "{}{}", text(&output.stdout), text(&output.stderr));
    let json = json.expect("a JSON file");
    assert_eq!(json["schema"], 1);
    assert_eq!(json["mode"], mode);
    assert_eq!(json["rules_broken"], 0);
    assert_eq!(json["thunk_calls_hot"], 0);
    assert_eq!(json["processes"], 2);
    assert_eq!(json["process_kind"], "Linux process of its own");
    assert_eq!(json["messages_hot"], 0);
    assert_eq!(json["resets"], 1);
    assert_eq!(json["picture_right"], true);
    assert!(json["rules_run"].as_u64() > Some(100), "{json}");
    assert!(json["interrupts_suppressed"].as_u64() > Some(0), "{json}");
    let state = json["device_state_hung"].as_str().expect("a name");
    assert!(state.ends_with("_HUNG") || state.ends_with("_RESET"), "{state}");
    for name in ["picture.png", "timeline.html", "trace.json"] {
        assert!(folder.path().join(name).is_file(), "{name}");
    }
}

#[test]
fn the_demo_holds_in_native_mode() {
    demo_holds("native");
}

#[test]
fn the_demo_holds_in_image_mode() {
    if has_images() {
        demo_holds("image");
    }
}

/// The user-mode driver's file sees what its gdi32 exports, in a process of its own as well.
#[test]
fn the_demo_holds_where_the_doorbell_calls_are_newer_ones() {
    let modes = if has_images() { &["--image", "--native"][..] } else { &["--native"] };
    for mode in modes {
        let (output, json, _folder) = demo(mode, &["--windows", "w28000"]);
        assert_eq!(output.status.code(), Some(0), "{mode}: {}{}", text(&output.stdout), text(&output.stderr));
        let json = json.expect("a JSON file");
        assert_eq!((&json["doorbell_rings"], &json["picture_right"]), (&0.into(), &true.into()), "{mode}: {json}");
    }
}

#[test]
fn a_full_disk_behind_the_standard_output_is_a_sentence() {
    let full = || std::fs::OpenOptions::new().write(true).open("/dev/full").expect("Linux has it");
    for arguments in [&["scenario", "DB-03", "--native"][..], &["scenario", "--list"], &["inf"], &["bench", "--list"]] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fencepost"));
        let output = command.args(arguments).stdout(full()).output().expect("it runs");
        refused(&output, "cannot write to standard output: No space left on device");
    }
}

#[test]
fn one_corrupted_packet_makes_the_demo_fail() {
    let (output, _, _folder) = demo("--native", &["--setting", "FaultCorruptPacket=200"]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stdout));
}

/// A driver without resets of engines: the adapter's is not called an engine's.
#[test]
fn the_demo_tells_the_adapters_reset_from_an_engines() {
    let (output, _, _folder) = demo("--native", &["--setting", "PerEngineTdr=0", "--setting", "MaxRung=0"]);
    let said = text(&output.stdout);
    let counts: Vec<_> = said.lines().filter(|line| line.contains(" resets ")).collect();
    assert!(said.contains("the adapter was reset where an engine was to be"), "{said}");
    assert!(matches!(&counts[..], [e, a] if e.ends_with(" 0") && a.ends_with(" 1")), "{counts:?}");
}

#[test]
fn a_missing_picture_is_a_sentence_and_leaves_nothing() {
    let (output, json, folder) = demo("--native", &["--png", "/nonexistent/cat.png"]);
    refused(&output, "cannot read the picture /nonexistent/cat.png");
    assert!(json.is_none());
    assert_eq!(std::fs::read_dir(folder.path()).expect("the folder").count(), 0);
}

#[test]
fn a_picture_that_is_none_is_a_sentence() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), b"no picture").expect("written");
    let (output, ..) = demo("--native", &["--png", &file.path().display().to_string()]);
    refused(&output, "not a PNG file");
}

#[test]
fn an_unwritable_folder_is_a_sentence() {
    refused(&fencepost(&["demo", "--native", "--out", "/proc/nowhere"]), "cannot write into /proc/nowhere");
}

/// Before the images are built, which takes minutes.
#[test]
fn a_file_for_results_that_cannot_be_written_is_said_at_once() {
    let commands: [&[&str]; 6] = [&["demo"], &["scenario"], &["tdr"], &["check", "x.sys"], &["bench"], &["package"]];
    for command in commands {
        let arguments = [&["--only-check"][..], command, &["--json", "/no-such-folder/x.json"]].concat();
        refused(&fencepost(&arguments), "cannot write into /no-such-folder");
    }
}

#[test]
fn an_unknown_case_is_a_sentence() {
    refused(&fencepost(&["scenario", "ZZ-99", "--native"]), "no case and no group is called 'ZZ-99'");
}

#[test]
fn images_that_are_not_there_are_a_sentence() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fencepost"));
    let output = command.args(["scenario", "NF-01"]).env("FENCEPOST_OUT", "/nonexistent").output().expect("it runs");
    refused(&output, "./x image builds it");
}

#[test]
fn demo_does_not_write_over_the_picture_to_work_on() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let picture = folder.path().join("picture.png");
    std::fs::copy(Path::new(env!("CARGO_MANIFEST_DIR")).join("assets/coffee.png"), &picture).expect("a copy");
    let (place, png) = (folder.path().display().to_string(), picture.display().to_string());
    let output = fencepost(&["demo", "--native", "--out", &place, "--png", &png]);
    refused(&output, "is the picture to work on");
    assert!(picture.is_file());
}

#[test]
fn a_benchmark_writes_the_keys_that_programs_read() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    let bench = |mode: &str| {
        let path = file.path().display().to_string();
        let output = fencepost(&["bench", "fill", mode, "--quick", "--json", &path]);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        let report: Value = serde_json::from_slice(&std::fs::read(&path).expect("read")).expect("JSON");
        assert_eq!((&report["schema"], &report["mode"]), (&Value::from(1), &Value::from(&mode[2..])));
        let [fill] = &report["results"].as_array().expect("results")[..] else { panic!("{report}") };
        assert_eq!((&fill["name"], &fill["unit"], &fill["limit"]), (&"fill".into(), &"GB/s".into(), &"memset".into()));
        for number in ["value", "limit_value", "ratio", "spread"] {
            assert!(fill[number].is_number(), "{number}: {report}");
        }
    };
    refused(&fencepost(&["bench", "ring-toss", "--native"]), "no benchmark is called 'ring-toss'; --list names them");
    if std::thread::available_parallelism().is_ok_and(|processors| processors.get() == 1) {
        return refused(&fencepost(&["bench", "fill", "--native"]), "benchmarks need two processors");
    }
    bench("--native");
    if has_images() {
        bench("--image");
    }
}

#[test]
fn the_list_names_every_case_and_help_every_command() {
    let list = text(&fencepost(&["scenario", "--list"]).stdout);
    for case in fencepost::scenario::all() {
        assert!(list.contains(case.id), "{}", case.id);
    }
    let help = text(&fencepost(&["--help"]).stdout);
    for command in ["demo", "scenario", "gpu", "tdr", "check", "bench", "decode", "soak"] {
        assert!(help.contains(command), "{help}");
    }
}

#[test]
fn a_list_has_what_its_name_selects() {
    let ids = |arguments: &[&str]| -> Vec<String> {
        let listed = text(&fencepost(&[&["scenario"][..], arguments, &["--list"]].concat()).stdout);
        let titles = listed.lines().filter(|line| !line.starts_with(' '));
        titles.filter_map(|line| line.split_whitespace().next().map(str::to_owned)).collect()
    };
    assert_eq!(ids(&["NF-02"]), ["NF-02"]);
    let group = ids(&["xa"]);
    assert!(group.len() > 5 && group.iter().all(|id| id.starts_with("XA-")), "{group:?}");
    assert_eq!(ids(&[]), ids(&["all"]));
    refused(&fencepost(&["scenario", "ZZ-99", "--list"]), "no case and no group is called 'ZZ-99'");
}

#[test]
fn a_job_has_a_verdict_on_each_rung_and_fails_with_a_case() {
    refused(&fencepost(&["tdr", "no-such-job"]), "no job is called 'no-such-job'");
    let results = tempfile::NamedTempFile::new().unwrap();
    let path = results.path().to_str().unwrap();
    let play = |extra: &[&str]| {
        let output = fencepost(&[&["tdr", "claim", "--native", "--json", path][..], extra].concat());
        let value: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        let verdicts = value["results"].as_array().unwrap().clone();
        let told: Vec<_> = verdicts.iter().map(|one| (one["rung"].as_u64(), one["status"].clone())).collect();
        assert_eq!(value["requirement"], "Device.Graphics.WDDM12.Render.TDRResiliency");
        let (kit, published) = (&verdicts[0]["kit"], verdicts[0]["published"].as_str().unwrap_or_default());
        assert!(kit[0].as_str().is_some_and(|name| name.starts_with("TDR2 - ")), "{kit}");
        assert!(published.contains("no criterion"), "{published}");
        (output.status.code(), told)
    };
    let (code, told) = play(&[]);
    assert_eq!((code, told), (Some(0), vec![(Some(0), "pass".into()), (Some(3), "pass".into())]));
    let (code, told) = play(&["--setting", "PerEngineTdr=0", "--setting", "MaxRung=0"]);
    assert_eq!((code, told), (Some(1), vec![(Some(0), "fail".into())]));
}

#[test]
fn fuzzers_are_listed_and_a_name_that_there_is_not_is_a_sentence() {
    let listed = fencepost(&["fuzz", "--list"]);
    assert_eq!(listed.status.code(), Some(0), "{}", text(&listed.stderr));
    for name in ["engine", "thunks", "rings", "doorbells", "interrupts"] {
        assert!(text(&listed.stdout).lines().any(|line| line.starts_with(name)), "{}", text(&listed.stdout));
    }
    refused(&fencepost(&["fuzz", "printers"]), "no fuzzer is called 'printers'; --list names them");
    assert_eq!(fencepost(&["fuzz"]).status.code(), Some(2));
    assert_eq!(fencepost(&["fuzz", "engine", "--seconds", "0"]).status.code(), Some(2));
}

#[test]
fn a_fuzzer_says_what_it_reached() {
    let played = fencepost(&["fuzz", "engine", "--seconds", "1", "--seed", "5"]);
    let said = text(&played.stdout);
    assert_eq!(played.status.code(), Some(0), "{said}");
    assert!(said.contains("seeds from 5") && said.contains("1 rounds held"), "{said}");
    assert!(said.contains("packets written: ") && said.contains("faults: "), "{said}");
}

/// The same bytes from standard input.
fn decode_input(name: &str, bytes: &[u8]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fencepost"));
    command.args(["decode", name]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("it runs");
    child.stdin.take().expect("its standard input").write_all(bytes).expect("it reads");
    child.wait_with_output().expect("it ends")
}

#[test]
fn the_help_of_tdr_names_the_jobs() {
    let output = fencepost(&["tdr", "--help"]);
    let help = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0));
    for job in fencepost::tdr::JOBS {
        let is_line = |line: &&str| line.trim_start().starts_with(job.id) && line.ends_with(job.name);
        let line = help.lines().find(is_line);
        // The mark of those that no part of runs on Windows, too; the list says why.
        let is_marked = line.map(|line| line.contains(&format!("{} * ", job.id)));
        assert_eq!(is_marked, Some(job.portable.is_err()), "{}: {help}", job.id);
    }
}

/// A file with these bytes, decoded.
fn decode(bytes: &[u8]) -> Output {
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), bytes).expect("written");
    fencepost(&["decode", &file.path().display().to_string()])
}

#[test]
fn a_stump_and_noise_are_no_debug_blobs() {
    refused(&decode(b""), "the file is empty: no engine was reset");
    refused(&decode(b"noise"), "no Fencepost debug blob");
    refused(&decode_input("-", b"noise"), "cannot decode standard input: this is no Fencepost debug blob");
    refused(&decode(b"FNCPDBG\x04\x41\x01"), "a stump of a debug blob: 10 bytes");
    let noise: Vec<u8> = (0..900_u32).map(|n| (n.wrapping_mul(0x9E37_79B9) >> 24) as u8).collect();
    refused(&decode(&[b"FNCPDBG\x04", &noise[..]].concat()), "no debug blob that a driver of this version wrote");
    // The head, of six words, and a node, of which two of its words are there.
    let words = [6 << 32 | 1, 0x141_u64, 0, 0, 0, 0, 0, 10 << 32 | 3, 0, 0].map(u64::to_le_bytes).concat();
    let bytes = [b"FNCPDBG\x04", &words[..]].concat();
    let (cut, from_input) = (decode(&bytes), decode_input("-", &bytes));
    assert_eq!((from_input.status, &from_input.stdout), (cut.status, &cut.stdout));
    assert_eq!(cut.status.code(), Some(1), "{}", text(&cut.stdout));
    assert!(text(&cut.stdout).contains("node 0                  running"), "{}", text(&cut.stdout));
    assert!(text(&cut.stderr).contains("the blob has 88 bytes, and"), "{}", text(&cut.stderr));
}

/// A pipe gives its bytes once; and in a dump a damaged blob hides no whole one.
#[test]
fn a_blob_is_decoded_from_a_pipe_and_behind_a_damaged_one() {
    // The head, and who is guilty.
    let blob = |reason: u64, guilt: u64| {
        let words = [6 << 32 | 1, reason, 0, 0, 0, 0, 0, 3 << 32 | 2, guilt, 0, 0].map(u64::to_le_bytes).concat();
        [b"FNCPDBG\x04", &words[..]].concat()
    };
    let whole = blob(0x141, 2);
    let (from_file, from_pipe) = (decode(&whole), decode_input("/dev/stdin", &whole));
    assert_eq!(from_file.status.code(), Some(0), "{}", text(&from_file.stderr));
    assert_eq!((from_pipe.status, &from_pipe.stdout), (from_file.status, &from_file.stdout));
    let dump = [&b"PAGEDU64"[..], &blob(0x142, 99), &[0; 100], &whole, &[0; 64]].concat();
    for told in [decode(&dump), decode_input("/dev/stdin", &dump), decode_input("-", &dump)] {
        assert_eq!(told.status.code(), Some(1), "{}", text(&told.stderr));
        assert!(text(&told.stderr).contains("cannot decode blob 1 of "), "{}", text(&told.stderr));
        let said = text(&told.stdout);
        assert!(said.contains("blob 2 of 2, 96 bytes\nreason                  0x141\n"), "{said}");
    }
}

#[test]
fn a_reading_that_needs_a_setting_says_so() {
    for command in [&["demo", "--help"][..], &["scenario", "--help"]] {
        let help = text(&fencepost(command).stdout);
        assert!(help.contains("PteByteAddresses=1"), "{help}");
    }
    let advice = "works under the reading pte-bytes with --setting PteByteAddresses=1 alone";
    let stage = ["scenario", "MF-01", "--native", "--windows", "pte-bytes"];
    let failed = fencepost(&stage);
    assert_eq!(failed.status.code(), Some(1), "{}", text(&failed.stdout));
    assert!(text(&failed.stdout).contains(advice), "{}", text(&failed.stdout));
    let held = fencepost(&[&stage[..], &["--setting", "PteByteAddresses=1"]].concat());
    assert_eq!(held.status.code(), Some(0), "{}", text(&held.stdout));
    assert!(!text(&held.stdout).contains(advice), "{}", text(&held.stdout));
}

#[test]
fn soak_takes_settings_but_for_those_of_its_rounds() {
    let soak = |setting: &str| fencepost(&["soak", "readings", "--native", "--setting", setting]);
    refused(&soak("MaxRung=1"), "soak sets MaxRung in each round: --rung decides");
    refused(&soak("PteByteAddresses=0"), "soak sets PteByteAddresses in each round: the reading pte-bytes decides");
    assert!(text(&soak("MaxRang=1").stderr).contains("no setting is called 'MaxRang'"));
    refused(&fencepost(&["soak", "resets", "--native", "--seeds", "0"]), "no seed is left to play");
    let twice = ["--setting", "ComputeOnly=1", "--setting", "ComputeOnly=1"];
    refused(&fencepost(&[&["soak", "readings", "--native"][..], &twice].concat()), "ComputeOnly is given twice");
}

#[test]
fn a_setting_that_there_is_not_is_a_sentence_with_those_that_there_are() {
    for command in [&["demo"][..], &["scenario", "ST-01"], &["bench"]] {
        let unknown = fencepost(&[command, &["--native", "--setting", "MaxRang=1"]].concat());
        assert_eq!(unknown.status.code(), Some(2), "{command:?}");
        let said = text(&unknown.stderr);
        assert!(said.contains("MaxRang") && said.contains("MaxRung") && said.contains("FlipCaps"), "{said}");
        let beyond = fencepost(&[command, &["--native", "--setting", "MaxRung=9"]].concat());
        assert_eq!(beyond.status.code(), Some(2), "{command:?}");
        assert!(text(&beyond.stderr).contains("2 native fences"), "{}", text(&beyond.stderr));
    }
}

#[test]
fn a_setting_that_is_given_twice_is_named() {
    let twice = ["--setting", "MaxRung=1", "--setting", "maxrung=2"];
    for command in [&["demo", "--native"][..], &["scenario", "ST-01", "--native"], &["bench", "--native"]] {
        refused(&fencepost(&[command, &twice].concat()), "the setting MaxRung is given twice");
    }
    let twice = ["--setting", "Own=1", "--setting", "OWN=1"];
    refused(&fencepost(&[&["check", "driver.sys"][..], &twice].concat()), "the setting OWN is given twice");
    refused(&fencepost(&["soak", "readings", "--native", "--rung", "1,1"]), "rung 1 is given twice");
}

#[test]
fn a_setting_without_a_name_and_a_rung_that_there_is_not_are_sentences() {
    let nameless = fencepost(&["check", "driver.sys", "--setting", "=5"]);
    assert_eq!(nameless.status.code(), Some(2), "{}", text(&nameless.stdout));
    assert!(text(&nameless.stderr).contains("the name before '=' is missing"), "{}", text(&nameless.stderr));
    for rungs in ["4", "0,7", "-1", "two"] {
        let soak = fencepost(&["soak", "readings", "--native", &format!("--rung={rungs}")]);
        assert_eq!(soak.status.code(), Some(2), "{rungs}");
        assert!(text(&soak.stderr).contains("2 native fences or 3 doorbells"), "{}", text(&soak.stderr));
    }
}

#[test]
fn the_list_of_cases_can_be_a_file() {
    let json = tempfile::NamedTempFile::new().expect("a file");
    let path = json.path().display().to_string();
    let output = fencepost(&["scenario", "CL", "--list", "--json", &path]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let value: Value = serde_json::from_slice(&std::fs::read(json.path()).expect("read")).expect("JSON");
    let cases = value["cases"].as_array().expect("cases");
    assert!(cases.len() > 10 && cases.iter().all(|case| case["title"] != "" && case["source"] != ""), "{cases:?}");
    assert_eq!(cases[0]["id"], "CL-01");
}

#[test]
fn the_list_of_jobs_can_be_a_file() {
    let json = tempfile::NamedTempFile::new().expect("a file");
    let path = json.path().display().to_string();
    let output = fencepost(&["tdr", "--list", "--json", &path]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let value: Value = serde_json::from_slice(&std::fs::read(json.path()).expect("read")).expect("JSON");
    let jobs = value["jobs"].as_array().expect("jobs");
    assert_eq!((jobs.len(), &jobs[0]["id"], &jobs[0]["cases"][0]), (11, &"claim".into(), &"TE-01".into()));
    assert!(jobs[0]["kit"][0].as_str().is_some_and(|name| name.starts_with("TDR2 - ")), "{}", jobs[0]);
    refused(&fencepost(&["tdr", "--list", "--json", "/no-such-folder/x.json"]), "cannot write into /no-such-folder");
}

/// What a setting is called a fault for is a value that injects one: not its default.
#[test]
fn the_default_of_a_fault_is_none() {
    for (value, named) in [(1, false), (0, true)] {
        let setting = format!("PreemptInBuffers={value}");
        let output = fencepost(&["scenario", "CL-01", "--native", "--setting", &setting]);
        let said = text(&output.stdout);
        assert_eq!(said.contains("faults that are injected: PreemptInBuffers=0"), named, "{said}");
        assert_eq!(said.contains("faults that are injected"), named, "{said}");
    }
}

/// Without test signing the driver has the default of a setting that begins with `Fault`; the others are the GPU's.
#[test]
fn a_fault_that_the_driver_ignores_is_called_so() {
    let faults = ["--setting", "FaultWedgeAt=3", "--setting", "PreemptInBuffers=0"];
    for command in [&["scenario", "CL-01"][..], &["tdr", "claim", "--setting", "MaxRung=0"]] {
        let play = |extra: &[&str]| text(&fencepost(&[command, &["--native"], &faults, extra].concat()).stdout);
        let said = play(&["--windows", "no-test-signing"]);
        assert!(said.contains("Windows: no-test-signing\n"), "{said}");
        assert!(said.contains("faults that are injected: PreemptInBuffers=0\n"), "{said}");
        assert!(said.contains("ignores, since this Windows has no test signing: FaultWedgeAt=3\n"), "{said}");
    }
    let said = text(&fencepost(&[&["scenario", "CL-01", "--native"], &faults[..]].concat()).stdout);
    assert!(said.contains("faults that are injected: FaultWedgeAt=3, PreemptInBuffers=0\n"), "{said}");
}

#[test]
fn the_results_of_cases_say_under_what_they_were_played() {
    let json = tempfile::NamedTempFile::new().expect("a file");
    let path = json.path().display().to_string();
    let stage = ["--setting", "MaxRung=2", "--windows", "obsolete-contexts"];
    let output = fencepost(&[&["scenario", "CL-04", "--native", "--json", &path][..], &stage].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stdout));
    let value: Value = serde_json::from_slice(&std::fs::read(json.path()).expect("read")).expect("JSON");
    assert_eq!(value["windows"], "obsolete-contexts");
    assert_eq!(value["settings"]["MaxRung"], 2);
    assert_eq!(value["results"][0]["status"], "skip");
    assert_eq!(value["results"][0]["reason"], "not under obsolete-contexts: it plays both ways itself");
}

#[test]
fn a_setting_reaches_the_cases() {
    let output = fencepost(&["scenario", "ST-02", "--native", "--setting", "FlipCaps=0"]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stdout));
    assert!(text(&output.stdout).contains("DXG-CAPS-FLIP"), "{}", text(&output.stdout));
}

#[test]
fn a_standard_output_that_takes_nothing_is_a_sentence() {
    let full = std::fs::File::create("/dev/full").expect("Linux has it");
    let mut command = Command::new(env!("CARGO_BIN_EXE_fencepost"));
    refused(&command.args(["tdr", "--list"]).stdout(full).output().expect("it runs"), "No space left on device");
}

/// Without a name the groups are shown, which are no success.
#[test]
fn a_scenario_without_a_name_shows_the_groups() {
    let output = fencepost(&["scenario"]);
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{error}");
    for group in fencepost::scenario::GROUPS {
        assert!(error.contains(&format!("\n  {}  ", group.name)) && error.contains(group.title), "{error}");
    }
}

/// What `./x` asks before it builds anything: whether the arguments are right, and whether the images run.
#[test]
fn arguments_are_checked_before_anything_is_built() {
    for (arguments, images) in [
        (&["scenario", "NF"][..], true),
        (&["scenario", "nf-01", "--native"], false),
        (&["scenario", "--list"], false),
        (&["tdr"], true),
        (&["bench", "round-trip"], true),
        (&["bench", "--list"], false),
        (&["demo"], true),
        (&["demo", "--native"], false),
        (&["check", "out/fencepost.sys"], true),
        (&["check", "other.sys"], false),
        (&["soak", "resets"], true),
        (&["soak", "readings", "--seeds", "0"], true),
        (&["fuzz", "rings"], true),
        (&["fuzz", "engine"], false),
        (&["decode", "x.bin"], false),
        (&["inf"], false),
    ] {
        let output = fencepost(&[&["--only-check"], arguments].concat());
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", text(&output.stderr));
        assert_eq!(text(&output.stdout), if images { "images\n" } else { "" }, "{arguments:?}");
    }
    for arguments in [
        &["scenario"][..],
        &["scenario", "NF-99"],
        &["scenario", "NF", "--seed", "many"],
        &["scenario", "NF", "--setting", "MaxRung=9"],
        &["tdr", "nothing"],
        &["bench", "nothing"],
        &["demo", "--setting", "NoSuchSetting=1"],
        &["soak", "resets", "--rung", "1,1"],
        &["soak", "resets", "--seeds", "0"],
        &["scenario", "NF", "--json", "/no-such-folder/x.json"],
        &["tdr", "--json", "/"],
        &["demo", "--json", "/no-such-folder/x.json"],
        &["fuzz", "nothing"],
    ] {
        let output = fencepost(&[&["--only-check"], arguments].concat());
        assert_eq!((output.status.code(), text(&output.stdout)), (Some(2), String::new()), "{arguments:?}");
    }
}

/// What a monitor shows: of an adapter that does nothing, and beside the demo.
#[test]
fn gpu_shows_engines_memory_and_who_has_them() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("gpu.json").display().to_string();
    for watch in [false, true] {
        let command = ["gpu", "--native", "--every", "20", "--json", &path];
        let output = fencepost(&[&command[..], if watch { &["--watch"] } else { &[] }].concat());
        assert!(output.status.success(), "{output:?}");
        let json: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).expect("the file")).expect("JSON");
        assert_eq!((&json["name"], &json["wddm"]), (&"Fencepost software GPU".into(), &3200.into()));
        assert_eq!(json["timeouts"], u32::from(watch), "the demo's hang costs a reset");
        let engines = json["engines"].as_array().expect("engines");
        let ran: Vec<_> = engines.iter().map(|engine| engine["running_time"].as_u64().unwrap_or(0)).collect();
        assert_eq!(ran.len(), 3);
        // The hang alone lasts longer than a second.
        assert_eq!((ran[0] > 10_000_000, ran[1] > 0), (watch, watch), "{ran:?}");
        let text = String::from_utf8_lossy(&output.stdout);
        assert_eq!(text.contains("process  demo-a"), watch, "{text}");
        assert!(text.contains("engine 0 3D and compute"), "{text}");
    }
}

/// An INF in an encoding that is not taken says which, and how to save it; those behind it are judged all the same.
#[test]
fn encodings_of_infs_that_are_not_taken_are_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let own = std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/inf/fencepost.inx")).expect("an INF");
    let ascii = String::from_utf8(own.clone()).expect("ASCII");
    let words = |swap: fn(u16) -> [u8; 2]| ascii.encode_utf16().flat_map(swap).collect::<Vec<u8>>();
    let files = [
        ("bom.inf", [&[0xEF, 0xBB, 0xBF], &own[..]].concat(), Some("UTF-8 with a byte order mark")),
        ("be.inf", [&[0xFE, 0xFF], &words(u16::to_be_bytes)[..]].concat(), Some("UTF-16 BE")),
        ("bare.inf", words(u16::to_le_bytes), Some("without a byte order mark")),
        ("le.inf", [&[0xFF, 0xFE], &words(u16::to_le_bytes)[..]].concat(), None),
    ];
    let mut arguments = vec!["inf".to_owned(), folder.path().join("nothing.inf").display().to_string()];
    for (name, bytes, _) in &files {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).expect("written");
        arguments.push(path.display().to_string());
    }
    arguments.push(folder.path().display().to_string());
    let output = fencepost(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
    let said = text(&output.stdout);
    for (name, _, wrong) in files {
        let line = said.lines().find(|line| line.contains(&format!("{name}: "))).expect(name);
        match wrong {
            Some(wrong) => assert!(line.contains(wrong) && line.contains("save it as ASCII"), "{line}"),
            None => assert!(line.ends_with("holds: 0 errors, 0 warnings"), "{line}"),
        }
    }
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(text(&output.stderr).contains("5 of 6 files cannot be judged"), "{}", text(&output.stderr));
}
