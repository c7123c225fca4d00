//! `umd/include/fencepost_umd.h` is what cbindgen makes of `src/ffi/types.rs` and of the declarations in
//! `src/ffi/table.rs`, and it compiles. `UMD_BLESS=1 cargo test -p umd_core header` writes it anew.

use std::path::{Path, PathBuf};
use std::process::Command;
use umd_core::ffi::FpUmdTable;

const PREFACE: &str = include_str!("preface.h");

fn crate_dir() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn header_path() -> PathBuf {
    crate_dir().join("../include/fencepost_umd.h")
}

/// The declarations of `table.rs` as a foreign block, which is what cbindgen understands.
fn declarations() -> String {
    let table = std::fs::read_to_string(crate_dir().join("src/ffi/table.rs")).unwrap();
    let (_, list) = table.split_once("functions! { ($)\n").expect("the list of functions");
    let (list, rest) = list.rsplit_once('}').expect("the end of the list");
    assert_eq!(rest.trim(), "");
    format!("unsafe extern \"C\" {{\n{list}\n}}\n")
}

fn generate() -> String {
    let folder = std::env::temp_dir().join(format!("fencepost-header-{}-{}", std::process::id(), line!()));
    std::fs::create_dir_all(&folder).unwrap();
    let source = folder.join("abi.rs");
    let types = std::fs::read_to_string(crate_dir().join("src/ffi/types.rs")).unwrap();
    // Inner documentation is the module's, not the header's.
    let types: Vec<&str> = types.lines().filter(|line| !line.starts_with("//!")).collect();
    std::fs::write(&source, format!("{}\nuse core::ffi::c_char;\n{}", types.join("\n"), declarations())).unwrap();
    let config = cbindgen::Config {
        language: cbindgen::Language::C,
        header: Some(PREFACE.trim_end().to_owned()),
        include_guard: Some("FENCEPOST_UMD_H".to_owned()),
        no_includes: true,
        sys_includes: vec!["stddef.h".to_owned(), "stdint.h".to_owned()],
        cpp_compat: true,
        usize_is_size_t: true,
        documentation_style: cbindgen::DocumentationStyle::C99,
        style: cbindgen::Style::Both,
        line_length: 120,
        tab_width: 4,
        ..cbindgen::Config::default()
    };
    let mut bytes = Vec::new();
    cbindgen::Builder::new().with_config(config).with_src(&source).generate().unwrap().write(&mut bytes);
    std::fs::remove_dir_all(&folder).unwrap();
    String::from_utf8(bytes).unwrap()
}

#[test]
fn the_header_is_what_the_sources_say() {
    let got = generate();
    if std::env::var_os("UMD_BLESS").is_some() {
        std::fs::create_dir_all(header_path().parent().unwrap()).unwrap();
        std::fs::write(header_path(), &got).unwrap();
    }
    let wanted = std::fs::read_to_string(header_path()).unwrap_or_default();
    assert!(got == wanted, "{} is not up to date; UMD_BLESS=1 writes it anew", header_path().display());
    for name in FpUmdTable::NAMES {
        assert!(got.contains(&format!(" {name}(")), "{name} is not in the header");
    }
}

/// A C compiler: any that is there.
fn compiler() -> Option<&'static str> {
    ["clang-19", "clang", "cc"].into_iter().find(|name| Command::new(name).arg("--version").output().is_ok())
}

/// Checks C source that includes the header, with warnings as errors.
fn compiles(source: &str) {
    let Some(compiler) = compiler() else {
        eprintln!("no C compiler here: not checked");
        return;
    };
    let folder = std::env::temp_dir().join(format!("fencepost-c-{}-{}", std::process::id(), source.len()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("example.c");
    std::fs::write(&file, source).unwrap();
    let flags = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-fsyntax-only"];
    let include = format!("-I{}", header_path().parent().unwrap().display());
    let output = Command::new(compiler).args(flags).arg(include).arg(&file).output().unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn the_header_compiles_alone_and_twice() {
    compiles("#include \"fencepost_umd.h\"\n#include \"fencepost_umd.h\"\nint unused;\n");
}

/// The example in the header's comment, without its stars.
#[test]
fn the_example_in_the_header_compiles() {
    let (_, example) = PREFACE.split_once("Example:\n").expect("an example");
    let (example, _) = example.split_once("*/").expect("the end of the comment");
    let code: Vec<&str> = example.lines().map(|line| line.strip_prefix(" *").unwrap_or(line)).collect();
    compiles(&code.join("\n"));
}
