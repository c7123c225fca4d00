//! What docs/judge_your_driver.md says comes true: its driver is built from its text, judged, mended by its line, and
//! judged again; so are the drivers of examples/drivers, and what is spoiled in them.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The page's texts in C, in order.
fn texts() -> Vec<String> {
    let page = include_str!("../docs/judge_your_driver.md");
    let parts = page.split("```c\n").skip(1);
    parts.map(|part| part.split_once("```").expect("an end of the text").0.to_owned()).collect()
}

/// What building C needs and is not here; `None`: all of it is.
fn missing() -> Option<&'static str> {
    let root = |name, default: &str| std::env::var_os(name).map_or_else(|| PathBuf::from(default), PathBuf::from);
    let (llvm, mingw) = (root("LLVM_ROOT", "/usr/lib/llvm-19"), root("MINGW_ROOT", "/usr/x86_64-w64-mingw32"));
    let files = [
        (llvm.join("bin/clang"), "clang-19"),
        (llvm.join("bin/lld-link"), "lld-19"),
        (mingw.join("include/ddk/wdm.h"), "mingw-w64-x86-64-dev"),
    ];
    files.into_iter().find(|(file, _)| !file.is_file()).map(|(_, package)| package)
}

/// Builds a text as `name`.sys.
fn build(folder: &Path, name: &str, text: &str) -> PathBuf {
    let (source, image) = (folder.join(format!("{name}.c")), folder.join(format!("{name}.sys")));
    std::fs::write(&source, text).expect("written");
    let compiler = Path::new(env!("CARGO_MANIFEST_DIR")).join("cross/cc");
    // `__try` is an extension.
    let arguments = [&image, Path::new("-fms-extensions"), &source];
    let output = Command::new(compiler).args(arguments).output().expect("a shell");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !said.contains("warning:"), "{said}");
    image
}

/// Checks it.
fn check(image: &Path, more: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fencepost"));
    command.arg("check").arg(image).args(more).current_dir(image.parent().expect("a folder"));
    let Output { status, stdout, stderr } = command.output().expect("the program was built with this test");
    (status.code(), format!("{}{}", String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr)))
}

#[test]
fn the_driver_of_the_page_is_broken_and_its_line_mends_it() {
    if let Some(package) = missing() {
        return eprintln!("not built: {package} is not here");
    }
    let texts = texts();
    let [driver, line] = texts.as_slice() else { panic!("{} texts", texts.len()) };
    assert!(driver.lines().count() <= 100, "{} lines", driver.lines().count());
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (status, said) = check(&build(folder.path(), "leak", driver), &[]);
    assert!(status == Some(1) && said.contains("rule    NT-POOL-LEAKED"), "{status:?} {said}");
    assert!(said.contains(" 1 broken"), "{said}");
    let begin = "remove_device(PVOID context)\n{\n";
    let mended = driver.replacen(begin, &format!("{begin}{line}"), 1);
    assert_ne!(&mended, driver);
    let (status, said) = check(&build(folder.path(), "mended", &mended), &[]);
    let reason = "not judged: it refuses its start, perhaps for hardware that the model lacks: DxgkDdiStartDevice \
                  returned STATUS_DEVICE_CONFIGURATION_ERROR";
    assert!(status == Some(3) && said.contains(reason) && said.contains(" 0 broken"), "{status:?} {said}");
    // A driver that hangs in a function of its table is named by the function, and the check ends.
    let hangs = mended.replacen("    *sources = *children = 0;\n", "    for (;;)\n        ;\n", 1);
    assert_ne!(hangs, mended);
    let (status, said) = check(&build(folder.path(), "hangs", &hangs), &["--deadline", "1"]);
    let found = "found   DxgkDdiStartDevice has not come back for";
    assert!(status == Some(1) && said.contains("rule    NT-RETURN") && said.contains(found), "{status:?} {said}");
    assert!(said.contains("      AddDevice: STATUS_SUCCESS"), "{said}");
}

/// What a driver's own handler would take is not held against it: the model cannot run the handler.
#[test]
fn a_fault_in_a_try_is_not_judged() {
    if let Some(package) = missing() {
        return eprintln!("not built: {package} is not here");
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let begin = "    *sources = *children = 0;\n";
    // What clang puts under the handler are calls alone.
    let reads = "UNICODE_STRING string;\n    RtlInitUnicodeString(&string, (PCWSTR)(ULONG_PTR)0x30);";
    let tries = format!("    __try {{\n    {reads}\n    }} __except (1) {{\n    }}\n{begin}");
    let spoiled = |name: &str, text: &str| {
        let image = build(folder.path(), name, &replaced(&texts()[0], begin, text));
        check(&image, &[])
    };
    let (status, said) = spoiled("tries", &tries);
    let why = "not judged: a fault inside __try: structured exceptions are not modelled";
    assert!(
        status == Some(3) && said.contains("rule    NT-HANDLED") && said.contains(" 0 broken") && said.contains(why),
        "{status:?} {said}"
    );
    let (status, said) = spoiled("reads", &format!("    {reads}\n{begin}"));
    assert!(status == Some(1) && said.contains("rule    NT-POINTER"), "{status:?} {said}");
}

/// A driver of examples/drivers.
const RENDER: &str = include_str!("../examples/drivers/render.c");
/// All that can be demanded of it: it advertises no cross-adapter resources.
const STEPS: [&str; 2] = ["--require", "device,context,submit,paging,preemption,reset"];

/// `text` with `new` in the place of `old`, which is there once.
fn replaced(text: &str, old: &str, new: &str) -> String {
    assert_eq!(text.matches(old).count(), 1, "{old}");
    text.replacen(old, new, 1)
}

#[test]
fn a_whole_driver_is_held_and_every_step_is_reached() {
    if let Some(package) = missing() {
        return eprintln!("not built: {package} is not here");
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let image = build(folder.path(), "render", RENDER);
    let json = folder.path().join("verdict.json").display().to_string();
    let (status, said) = check(&image, &[&STEPS[..], &["--json", &json, "--verbose"]].concat());
    assert!(status == Some(0) && said.contains(" 0 broken"), "{status:?} {said}");
    // A millisecond is time for a buffer to be taken off.
    let had = said.contains("reset the engine of node 0, which had") && !said.contains("node 0, which had no packet");
    assert!(said.contains("packets came back") && had, "{said}");
    assert!(
        said.contains("reset the adapter: done") && said.contains("later process, wait for its end: done"),
        "{said}"
    );
    let value: Value = serde_json::from_slice(&std::fs::read(json).expect("read")).expect("JSON");
    let names = |list: &str| {
        let names = value[list].as_array().expect("a list").iter().filter_map(Value::as_str);
        names.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(names("reached"), ["open", "device", "context", "submit", "paging", "preemption", "reset"]);
    let silent = names("never_called");
    for ddi in ["PreemptCommand", "QueryDependentEngineGroup", "QueryEngineStatus", "ResetEngine", "CollectDbgInfo"] {
        assert!(!silent.contains(&format!("DxgkDdi{ddi}")), "{silent:?}");
    }
    for ddi in ["ResetFromTimeout", "RestartFromTimeout"] {
        assert!(!silent.contains(&format!("DxgkDdi{ddi}")), "{silent:?}");
    }
}

/// One that completes each buffer inside of its submission has nothing to be taken off: it is asked all the same.
#[test]
fn a_driver_that_completes_its_work_at_once_is_held() {
    if let Some(package) = missing() {
        return eprintln!("not built: {package} is not here");
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let at_once =
        replaced(RENDER, "    start_timer(adapter);\n    return", "    synchronize(finish, &call);\n    return");
    let (status, said) = check(&build(folder.path(), "at_once", &at_once), &[&STEPS[..], &["--verbose"]].concat());
    assert!(status == Some(0), "{status:?} {said}");
    let said_so = said.contains("none of which had work") && said.contains("node 0, which had no packet");
    assert!(said_so, "{said}");
}

#[test]
fn what_is_not_reached_is_named_with_its_reason() {
    if let Some(package) = missing() {
        return eprintln!("not built: {package} is not here");
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let claim = "    caps.SchedulingCaps.PreemptionAware = 1;\n";
    let unaware = replaced(&replaced(RENDER, claim, ""), "SupportPerEngineTDR = TRUE", "SupportPerEngineTDR = FALSE");
    let image = build(folder.path(), "unaware", &unaware);
    let (status, said) = check(&image, &STEPS);
    let why = "not judged: no preemption was answered, and no suspension acknowledged: the driver does not claim \
               preemption (SchedulingCaps.PreemptionAware)";
    assert!(status == Some(3) && said.contains(why), "{status:?} {said}");
    // Without resets of engines that of the adapter is what is asked for.
    let (status, said) = check(&image, &["--require", "reset", "--verbose"]);
    let engine = "reset the engine of node 0: not reached: the driver has no resets of engines (SupportPerEngineTDR)";
    assert!(
        status == Some(0) && said.contains(engine) && said.contains("reset the adapter: done"),
        "{status:?} {said}"
    );
}

/// A driver that the model's memory manager would treat worse than Windows does is used, and not judged.
#[test]
fn what_the_memory_manager_does_not_keep_to_is_not_judged() {
    if let Some(package) = missing() {
        return eprintln!("not built: {package} is not here");
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let caps = "caps.ReadOnlyMemorySupported = ";
    let asks = replaced(RENDER, caps, &format!("caps.ExplicitPageTableInvalidation = {caps}"));
    let (status, said) = check(&build(folder.path(), "asks", &asks), &STEPS);
    let why = "not judged: it sets ExplicitPageTableInvalidation of DXGK_GPUMMUCAPS";
    assert!(status == Some(3) && said.contains(why) && said.contains(" 0 broken"), "{status:?} {said}");
}

/// What the page's table says of each spoiled place.
#[test]
fn every_spoiled_place_is_named() {
    if let Some(package) = missing() {
        return eprintln!("not built: {package} is not here");
    }
    let page = include_str!("../docs/judge_your_driver.md");
    let spoiled: [(&str, &str, &str, &str); 10] = [
        (
            "a preemption is refused",
            "    synchronize(preempt, &call);\n    return STATUS_SUCCESS;",
            "    synchronize(preempt, &call);\n    return STATUS_UNSUCCESSFUL;",
            "DXG-PREEMPT-STATUS",
        ),
        (
            "a preemption is never answered",
            "    data.DmaPreempted.NodeOrdinal = NODE;\n    notify(adapter, &data);",
            "    (void)data;",
            "DXG-PREEMPT-ANSWER",
        ),
        (
            "the answer names a wrong last fence",
            "LastCompletedFenceId = adapter->completed;",
            "LastCompletedFenceId = adapter->completed + 9;",
            "DXG-INT-FENCE",
        ),
        (
            "the reset of an engine names a wrong fence as the last that was aborted",
            "LastAbortedFenceId = call.fence;",
            "LastAbortedFenceId = call.fence + 900;",
            "DXG-TDR-ABORTED",
        ),
        (
            "the engine's status has bits that mean nothing",
            "EngineStatus.Value = 0;",
            "EngineStatus.Value = 0x80;",
            "DXG-TDR-STATUS",
        ),
        (
            "the engine's own node is not among those that depend on it",
            "DependentNodeOrdinalMask = 1 << NODE;",
            "DependentNodeOrdinalMask = 0;",
            "DXG-TDR-MASK",
        ),
        (
            "the reset of the adapter fails",
            "    synchronize(forget, &call);\n    return STATUS_SUCCESS;",
            "    synchronize(forget, &call);\n    return STATUS_UNSUCCESSFUL;",
            "DXG-TDR-ADAPTER",
        ),
        (
            "command buffers from before the reset of an engine are completed behind it",
            "    adapter->count = 0;\n    call->fence",
            "    call->fence",
            "DXG-TDR-LATE",
        ),
        (
            "a store to NULL in the submission",
            "    synchronize(begin, &call);\n",
            "    synchronize(begin, &call);\n    if (!arguments->Flags.Paging)\n        *(volatile int *)NULL = 1;\n",
            "NT-ACCESS",
        ),
        (
            "contexts are not freed",
            "    .DxgkDdiDestroyContext = destroy,",
            "    .DxgkDdiDestroyContext = destroys_nothing,",
            "NT-POOL-LEAKED",
        ),
    ];
    let folder = tempfile::tempdir().expect("a temporary folder");
    for (at, (what, old, new, rule)) in spoiled.into_iter().enumerate() {
        assert!(page.contains(&format!("| {what} | `{rule}` |")), "the page does not have: {what}");
        let mut text = replaced(RENDER, old, new);
        if rule == "DXG-TDR-LATE" {
            // Within a millisecond each they would all be over when the engine is reset.
            text = replaced(&text, "-10000 };", "-500000 };");
            text = replaced(&text, "UINT waiting[ROOM];", "UINT waiting[8 * ROOM];");
        }
        if new.contains("destroys_nothing,") {
            text = text.replacen(
                "/* Of a device",
                "static NTSTATUS destroys_nothing(HANDLE object)\n{\n    return 0;\n}\n/*",
                1,
            );
        }
        let (status, said) = check(&build(folder.path(), &format!("spoiled{at}"), &text), &["--deadline", "5"]);
        assert!(status == Some(1) && said.contains(&format!("rule    {rule}:")), "{what}: {status:?} {said}");
    }
}

#[test]
fn a_display_only_driver_is_told_so_and_not_judged() {
    if let Some(package) = missing() {
        return eprintln!("not built: {package} is not here");
    }
    let page = include_str!("../docs/judge_your_driver.md");
    let text = include_str!("../examples/drivers/display_only.c");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (status, said) = check(&build(folder.path(), "display_only", text), &STEPS);
    let (_, told) = page.rsplit_once("```text\n").expect("the last text");
    let told = told.lines().next().expect("a line");
    assert!(told.contains("display-only") && said.contains(told), "{said}");
    assert!(status == Some(3) && said.contains(" 0 broken"), "{status:?} {said}");
    assert!(said.contains("      StartDevice: STATUS_SUCCESS, 1 sources, 1 children"), "{said}");
    // What is broken until then counts.
    let leaks = replaced(text, "    ExFreePoolWithTag(context, TAG);\n", "");
    let (status, said) = check(&build(folder.path(), "leaks", &leaks), &[]);
    assert!(status == Some(1) && said.contains("rule    NT-POOL-LEAKED") && said.contains(told), "{status:?} {said}");
}

/// The driver in Rust: broken as it is, and not with its feature.
#[test]
fn the_driver_in_rust_is_broken_and_its_feature_mends_it() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    // The images that the tests are run with are built by the same kit.
    if !root.join("out/fencepost.sys").is_file() {
        return eprintln!("not built: there are no images, so that the kit may not be here");
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let built = |features: &str, name: &str| {
        let mut command = Command::new(root.join("cross/build"));
        let output = command.arg(format!("--driver=rust_driver{features}")).output().expect("a shell");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let image = folder.path().join(name);
        std::fs::copy(root.join("out/drivers/rust_driver.sys"), &image).expect("a copy");
        image
    };
    let (status, said) = check(&built("", "leaks.sys"), &[]);
    let found = said.contains("rule    NT-POOL-LEAKED") && said.contains("tag 'rust'") && said.contains(" 1 broken");
    assert!(status == Some(1) && found, "{status:?} {said}");
    let (status, said) = check(&built(",mended", "mended.sys"), &[]);
    let reason = "not judged: it refuses its start, perhaps for hardware that the model lacks: DxgkDdiStartDevice";
    assert!(status == Some(3) && said.contains(reason) && said.contains(" 0 broken"), "{status:?} {said}");
}

/// This project's driver without flip capabilities: the start ends, or goes on and is told to be refused.
#[test]
fn a_refusal_is_gone_past_where_that_is_asked_for() {
    let image = Path::new(env!("CARGO_MANIFEST_DIR")).join("out/fencepost.sys");
    if !image.is_file() {
        return eprintln!("not checked: {} is not built", image.display());
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    // Behind a copy: a dump of the finding is left beside it.
    let copy = folder.path().join("fencepost.sys");
    std::fs::copy(&image, &copy).expect("copied");
    let json = folder.path().join("verdict.json");
    let json = json.to_str().expect("a name");
    let report = || -> Value { serde_json::from_slice(&std::fs::read(json).expect("written")).expect("JSON") };
    let refused = ["--setting", "FlipCaps=0", "--json", json];
    let (status, said) = check(&copy, &refused);
    assert!(status == Some(1) && said.contains("DXG-CAPS-FLIP") && said.contains("Code 43"), "{status:?} {said}");
    assert_eq!((&report()["would_refuse"], &report()["reached"]), (&Value::Null, &serde_json::json!([])));
    let (status, said) = check(&copy, &[&refused[..], &["--past-refusals"]].concat());
    let line = "would be refused: the adapter is refused: DXG-CAPS-FLIP";
    assert!(status == Some(1) && said.contains(line) && said.contains("Code 43"), "{status:?} {said}");
    let reached = report()["reached"].as_array().map_or(0, Vec::len);
    assert!(reached >= 4, "{}", report()["reached"]);
    assert!(report()["would_refuse"].as_str().is_some_and(|why| why.contains("DXG-CAPS-FLIP")), "{}", report());
}
