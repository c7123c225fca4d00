//! What docs/judge_your_driver.md says comes true: its driver is built from its text, judged, mended by its line, and
//! judged again.

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
    let output = Command::new(compiler).arg(&image).arg(&source).output().expect("a shell");
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
