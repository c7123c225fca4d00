//! The committed files are those that the generator makes, and a table that contradicts itself stops it.

use std::fs;
use std::path::Path;
use std::path::PathBuf;

use abi_gen::Files;

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
