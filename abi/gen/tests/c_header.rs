//! The C header says what the tables say, by clang and mingw-w64's `ntddk.h`.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use abi_gen::verify::{Answer, Question, verify};

/// clang and the folder of mingw-w64, or which of them is missing, in words.
fn tools() -> Result<(PathBuf, PathBuf), String> {
    let root = |name, default| PathBuf::from(env::var_os(name).unwrap_or_else(|| PathBuf::from(default).into()));
    let clang = root("LLVM_ROOT", "/usr/lib/llvm-19").join("bin/clang");
    let mingw = root("MINGW_ROOT", "/usr/x86_64-w64-mingw32").join("include");
    for (file, package) in [(&clang, "clang-19"), (&mingw.join("ddk/ntddk.h"), "mingw-w64-x86-64-dev")] {
        if !file.is_file() {
            return Err(format!("not compiled: {package} is not here"));
        }
    }
    Ok((clang, mingw))
}

fn ask(clang: &Path, mingw: &Path, folder: &Path) -> Answer {
    let question = Question {
        compiler: clang.display().to_string(),
        include: vec![folder.to_owned(), mingw.join("ddk"), mingw.to_owned()],
        headers: vec!["dispmprt.h".to_owned()],
        arguments: vec!["--target=x86_64-w64-mingw32".to_owned()],
    };
    let facts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../facts");
    verify(&facts, &question).expect("the header compiles")
}

#[test]
fn every_record_and_value_of_the_header_is_what_the_tables_say() {
    let (clang, mingw) = match tools() {
        Ok(tools) => tools,
        Err(why) => return eprintln!("{why}"),
    };
    let folder = env::temp_dir().join(format!("abi_gen_c_header_{}", std::process::id()));
    abi_gen::write_header(&Path::new(env!("CARGO_MANIFEST_DIR")).join(".."), &folder).expect("written");
    let answer = ask(&clang, &mingw, &folder);
    assert_eq!(answer.absent, Vec::<String>::new());
    assert!(answer.otherwise.is_empty(), "{:#?}", answer.otherwise);
    assert!(answer.records > 1000 && answer.held > 15_000, "{} records, {} held", answer.records, answer.held);
    // What is otherwise is seen: one member moved, one value changed.
    let header = folder.join("wddm_abi.h");
    let text = fs::read_to_string(&header).expect("the header");
    let moved = text.replacen("    UINT InputDataSize;\n", "    ULONGLONG InputDataSize;\n", 1);
    let other = moved.replacen("DXGKQAITYPE_DRIVERCAPS = 1,", "DXGKQAITYPE_DRIVERCAPS = 100,", 1);
    assert!(text != moved && moved != other);
    fs::write(&header, other).expect("written");
    let answer = ask(&clang, &mingw, &folder);
    let otherwise: Vec<_> = answer.otherwise.keys().map(String::as_str).collect();
    assert_eq!(otherwise, ["DXGKARG_QUERYADAPTERINFO", "DXGKQAITYPE_DRIVERCAPS"], "{:#?}", answer.otherwise);
    fs::write(&header, text).expect("written");
    // The display library, without a warning of its own.
    let mut command = Command::new(&clang);
    command.args([
        "--target=x86_64-w64-mingw32",
        "-fsyntax-only",
        "-ffreestanding",
        "-Wall",
        "-Werror",
        "-Wno-#warnings",
    ]);
    command.arg("-isystem").arg(mingw.join("ddk")).arg("-isystem").arg(&mingw).arg("-I").arg(&folder);
    let output = command.arg(folder.join("displib.c")).output().expect("clang starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    fs::remove_dir_all(&folder).expect("removed");
}
