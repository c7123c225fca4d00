//! The committed files are those that the generator makes, and a table that contradicts itself stops it.

use std::fs;
use std::path::Path;
use std::path::PathBuf;

use abi_gen::Files;
use abi_gen::verify::{Question, describe, verify};

fn crate_root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn generate() -> Files {
    abi_gen::generate(&crate_root().join("facts")).expect("the tables fit together")
}

#[test]
fn committed_files_are_what_the_tables_give() {
    let difference = abi_gen::first_difference(&crate_root(), &generate()).expect("readable files");
    assert_eq!(difference, None, "`cargo run -p abi_gen` writes them");
}

#[test]
fn generation_is_deterministic() {
    assert!(generate() == generate());
}

#[test]
fn every_difference_is_found() {
    let path = PathBuf::from("src/generated/aliases.rs");
    let mut changed = generate();
    changed.get_mut(&path).expect("a generated file").insert(40, '?');
    let found = abi_gen::first_difference(&crate_root(), &changed).expect("readable files");
    assert!(found.is_some_and(|text| text.starts_with("src/generated/aliases.rs:1:")));

    let mut shorter = generate();
    shorter.remove(&path);
    let found = abi_gen::first_difference(&crate_root(), &shorter).expect("readable files");
    assert!(found.is_some_and(|text| text.contains("is not generated")));

    let mut longer = generate();
    longer.insert(PathBuf::from("src/generated/more.rs"), String::new());
    let found = abi_gen::first_difference(&crate_root(), &longer).expect("readable files");
    assert!(found.is_some_and(|text| text.contains("is missing")));
}

/// A copy of the tables in which, in `file`, the first `from` is `to`.
fn facts_with(name: &str, file: &str, from: &str, to: &str) -> PathBuf {
    let copy = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::create_dir_all(&copy).expect("a directory for the copy");
    for entry in fs::read_dir(crate_root().join("facts")).expect("the tables") {
        let path = entry.expect("an entry").path();
        let mut text = fs::read_to_string(&path).expect("a table");
        if path.ends_with(file) {
            assert!(text.contains(from), "{file} has no `{from}`");
            text = text.replacen(from, to, 1);
        }
        fs::write(copy.join(path.file_name().expect("a name")), text).expect("a copy");
    }
    copy
}

fn refusal(name: &str, from: &str, to: &str) -> String {
    let facts = facts_with(name, "layout.tsv", from, to);
    abi_gen::generate(&facts).expect_err("a contradiction").to_string()
}

#[test]
fn overlapping_members_are_refused() {
    let said = refusal("overlap", "DXGKARG_CREATENATIVEFENCE\tFlags\t96", "DXGKARG_CREATENATIVEFENCE\tFlags\t92");
    assert!(said.contains("`Flags` overlaps"), "{said}");
}

#[test]
fn a_size_that_is_not_the_types_is_refused() {
    let said = refusal(
        "size",
        "DXGKARG_CREATENATIVEFENCE\tFlags\t96\t-\t-\t4",
        "DXGKARG_CREATENATIVEFENCE\tFlags\t96\t-\t-\t8",
    );
    assert!(said.contains("has 4 bytes, the table says 8"), "{said}");
}

#[test]
fn a_type_nobody_knows_is_refused() {
    let said = refusal("unknown", "4\tDXGKARG_CREATENATIVEFENCE_FLAGS", "4\tDXGKARG_CREATENATIVEFENCE_FLOGS");
    assert!(said.contains("nothing is known of the type `DXGKARG_CREATENATIVEFENCE_FLOGS`"), "{said}");
}

#[test]
fn a_function_pointer_in_a_union_is_refused() {
    let said = refusal(
        "function",
        "DXGK_PTE\t{u1}.PageAddress\t8\t-\t-\t8\tULONGLONG",
        "DXGK_PTE\t{u1}.PageAddress\t8\t-\t-\t8\tPDXGKDDI_UNLOAD",
    );
    assert!(said.contains("a function pointer inside a union"), "{said}");
}

#[test]
fn a_bit_field_outside_its_unit_is_refused() {
    let said = refusal(
        "bits",
        "DXGK_VIDSCHCAPS\t{u0}.{s0}.Reserved\t0\t13\t19",
        "DXGK_VIDSCHCAPS\t{u0}.{s0}.Reserved\t0\t13\t20",
    );
    assert!(said.contains("bit-field outside its unit"), "{said}");
}

/// Headers that have two records as the table says, one that has not, and some values.
const HEADER: &str = "
typedef unsigned int UINT;
typedef struct _D3DKMT_CLOSEADAPTER { UINT hAdapter; } D3DKMT_CLOSEADAPTER;
typedef struct _LUID { UINT LowPart; int HighPart; } LUID;
typedef struct _D3DKMT_OPENADAPTERFROMLUID { LUID AdapterLuid; UINT hAdapter; } D3DKMT_OPENADAPTERFROMLUID;
typedef struct _D3DDDI_RATIONAL { UINT Numerator; unsigned char Denominator; } D3DDDI_RATIONAL;
typedef struct _DXGK_VIDSCHCAPS {
    union { struct { UINT MultiEngineAware : 1; UINT NotInTheTable : 31; }; UINT Value; };
} DXGK_VIDSCHCAPS;
enum { D3DDDIFMT_UNKNOWN = 0, D3DDDIFMT_R8G8B8 = 20, D3DDDIFMT_A8R8G8B8 = 22 };
";

fn question(header: &str, folder: &Path) -> Question {
    fs::write(folder.join("one.h"), header).expect("a header");
    let headers = vec!["one.h".to_owned()];
    Question { compiler: "cc".to_owned(), include: vec![folder.to_owned()], headers, arguments: Vec::new() }
}

/// Each kind of difference between headers and tables is named, and what is the same is not.
#[test]
fn headers_are_compared_with_the_tables() {
    let folder = std::env::temp_dir().join(format!("abi_gen_test_{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder");
    let facts = crate_root().join("facts");
    let answer = verify(&facts, &question(HEADER, &folder)).expect("the headers compile");
    let names: Vec<_> = answer.otherwise.keys().map(String::as_str).collect();
    assert_eq!(names, ["D3DDDIFMT_A8R8G8B8", "D3DDDI_RATIONAL", "DXGK_VIDSCHCAPS"]);
    assert_eq!(answer.otherwise["D3DDDI_RATIONAL"], ["Denominator does not have 4 bytes"]);
    assert_eq!(answer.otherwise["D3DDDIFMT_A8R8G8B8"], ["its value is not 21"]);
    assert!(answer.otherwise["DXGK_VIDSCHCAPS"].iter().all(|what| what.ends_with("there is no such bit-field")));
    assert_eq!((answer.values, answer.records), (3, 4));
    assert!(answer.held >= 15 && answer.absent.iter().any(|name| name == "D3DKMT_ESCAPE"), "{answer:?}");
    assert!(describe(&answer, false).contains("3 names are otherwise"), "{}", describe(&answer, false));
    // A size, an offset, a header that does not compile, none at all, and one that shares nothing.
    let longer = HEADER.replace("LUID AdapterLuid; UINT hAdapter;", "UINT hAdapter; LUID AdapterLuid; UINT more;");
    let answer = verify(&facts, &question(&longer, &folder)).expect("the headers compile");
    let luid = &answer.otherwise["D3DKMT_OPENADAPTERFROMLUID"];
    assert!(luid.iter().any(|what| what.contains("size is not 12")), "{luid:?}");
    assert!(luid.iter().any(|what| what.contains("hAdapter is not at 8")), "{luid:?}");
    for (header, says) in [("int x = ;", "do not compile"), ("", "nothing that the tables have")] {
        let error = verify(&facts, &question(header, &folder)).expect_err("refused").to_string();
        assert!(error.contains(says), "{error}");
    }
    let mut lacking = question(HEADER, &folder);
    lacking.headers.push("is_not_there.h".to_owned());
    let error = verify(&facts, &lacking).expect_err("refused").to_string();
    assert!(error.contains("is_not_there.h"), "{error}");
    lacking.compiler = "no-such-compiler".to_owned();
    let error = verify(&facts, &lacking).expect_err("refused").to_string();
    assert!(error.contains("--compiler names another"), "{error}");
    fs::remove_dir_all(&folder).expect("removed");
}
