//! `abi_gen`: writes the generated part of `wddm_abi`; with `--check`, only compares; with `--verify`, compares the
//! tables with C headers.

use std::path::Path;
use std::path::PathBuf;
use std::process::ExitCode;

use abi_gen::Files;
use abi_gen::tsv::Error;
use abi_gen::verify;
use abi_gen::verify::Question;

const USAGE: &str = "\
usage: abi_gen [--check]
       abi_gen --header DIR
       abi_gen --verify [--compiler CC] [--include DIR]... [--header NAME]... [--argument ARG]... [--all]

--header writes the tables as a C header, wddm_abi.h, the headers of Microsoft's names that include it, and displib.c,
for drivers that are built without the WDK.

--verify has CC (clang) compare the tables of abi/facts with the headers, by default those that a kernel-mode display
driver includes, from the newest kit below WDKContentRoot. --all lists the records that the headers do not have. Exit
status: 0 nothing is otherwise, 1 something is, or the headers do not compile, 2 usage.";

/// What a kernel-mode display driver includes, in that order.
const HEADERS: [&str; 8] =
    ["ntddk.h", "windef.h", "wingdi.h", "winddi.h", "ntddvdeo.h", "d3dkmddi.h", "d3dkmthk.h", "dispmprt.h"];

/// The question of `--verify`, and whether all names are to be listed; `None`: usage.
fn question(arguments: &[&str]) -> Option<(Question, bool)> {
    let mut question =
        Question { compiler: "clang".to_owned(), include: Vec::new(), headers: Vec::new(), arguments: Vec::new() };
    let (mut all, mut rest) = (false, arguments.iter());
    while let Some(argument) = rest.next() {
        if *argument == "--all" {
            all = true;
            continue;
        }
        let value = rest.next()?.to_string();
        match *argument {
            "--compiler" => question.compiler = value,
            "--include" => question.include.push(value.into()),
            "--header" => question.headers.push(value),
            "--argument" => question.arguments.push(value),
            _ => return None,
        }
    }
    if question.headers.is_empty() {
        question.headers = HEADERS.map(str::to_owned).into();
        // ntddk.h asks for it; Microsoft's compilers are told so by the kit's project files.
        question.arguments.push("-D_AMD64_".to_owned());
        if question.include.is_empty() {
            question.include = kit();
        }
    }
    Some((question, all))
}

/// The folders of the newest headers below `WDKContentRoot`, which the kit's command prompt sets; none without it. The
/// other headers of Windows clang finds by itself.
fn kit() -> Vec<PathBuf> {
    let Some(root) = std::env::var_os("WDKContentRoot") else { return Vec::new() };
    let versions = std::fs::read_dir(Path::new(&root).join("Include")).into_iter().flatten().flatten();
    let newest = versions.map(|version| version.path()).filter(|version| version.join("km").is_dir()).max();
    newest.map(|version| ["km", "shared", "um"].map(|folder| version.join(folder)).into()).unwrap_or_default()
}

/// Compares the tables with headers; returns whether nothing is otherwise.
fn compare(root: &Path, arguments: &[&str]) -> Option<Result<bool, Error>> {
    let (question, all) = question(arguments)?;
    let answer = verify::verify(&root.join("facts"), &question).inspect(|answer| {
        print!("{}", verify::describe(answer, all));
    });
    Some(answer.map(|answer| answer.otherwise.is_empty()))
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    let check = match arguments.as_slice() {
        [] => false,
        ["--check"] => true,
        [.., "--help" | "-h"] => {
            println!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        ["--header", folder] => {
            return match abi_gen::write_header(root, Path::new(folder)) {
                Ok(()) => ExitCode::SUCCESS,
                Err(error) => {
                    eprintln!("abi_gen: {error}");
                    ExitCode::FAILURE
                }
            };
        }
        ["--verify", rest @ ..] => match compare(root, rest) {
            Some(Ok(same)) => return if same { ExitCode::SUCCESS } else { ExitCode::FAILURE },
            Some(Err(error)) => {
                eprintln!("abi_gen: {error}");
                return ExitCode::FAILURE;
            }
            None => {
                eprintln!("{USAGE}");
                return ExitCode::from(2);
            }
        },
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
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
