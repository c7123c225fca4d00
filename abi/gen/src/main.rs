//! `abi_gen`: writes the generated part of `wddm_abi`; with `--check`, only compares.

use std::path::Path;
use std::process::ExitCode;

use abi_gen::Files;
use abi_gen::tsv::Error;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let check = match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        [] => false,
        ["--check"] => true,
        _ => {
            eprintln!("usage: abi_gen [--check]");
            return ExitCode::from(2);
        }
    };
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    match run(root, check) {
        Ok(None) => ExitCode::SUCCESS,
        Ok(Some(difference)) => {
            eprintln!(
                "the generated files are not those of abi/facts; `cargo run -p abi_gen` writes them\n{difference}"
            );
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("abi_gen: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Generates; returns the first difference when asked to compare.
fn run(root: &Path, check: bool) -> Result<Option<String>, Error> {
    let files: Files = abi_gen::generate(&root.join("facts"))?;
    if check {
        return abi_gen::first_difference(root, &files);
    }
    abi_gen::write(root, &files)?;
    println!("{} files, {} KB", files.len(), files.values().map(String::len).sum::<usize>() / 1024);
    Ok(None)
}
