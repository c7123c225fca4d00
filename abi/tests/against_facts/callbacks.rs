//! Callbacks and typedefs.

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use crate::generated::names;
use crate::tsv;

/// The sizes that the spelling of a type settles by itself.
fn obvious_size(ctype: &str) -> Option<usize> {
    match ctype.trim_start_matches("const ").trim() {
        text if text.contains('*') => Some(8),
        "HANDLE" | "PVOID" | "SIZE_T" | "UINT64" | "ULONGLONG" | "ULONG64" | "D3DGPU_VIRTUAL_ADDRESS" => Some(8),
        "UINT" | "ULONG" | "UINT32" | "BOOL" | "NTSTATUS" | "D3DKMT_HANDLE" => Some(4),
        "BOOLEAN" | "UCHAR" => Some(1),
        "VOID" | "void" => Some(0),
        text if text.starts_with("PDXGK") || text.starts_with("DEREF_") => Some(8),
        _ => None,
    }
}

#[test]
fn callbacks_are_all_there_with_as_many_parameters() {
    let tabled = tsv::read("callbacks.tsv");
    assert_eq!(names::CALLBACKS.len(), tabled.len());
    for (line, row) in tabled.iter().zip(names::CALLBACKS) {
        assert_eq!(row.name, line[0]);
        let parameters: Vec<&str> = if line[3] == "VOID" { Vec::new() } else { line[3].split("; ").collect() };
        assert_eq!(row.parameters.len(), parameters.len(), "{}", row.name);
        for (parameter, size) in parameters.iter().zip(row.parameters) {
            let ctype = parameter.trim_end_matches(|c: char| c.is_alphanumeric() || c == '_');
            if let Some(wanted) = obvious_size(ctype) {
                assert_eq!(*size, wanted, "{}: {parameter}", row.name);
            }
        }
        if let Some(wanted) = obvious_size(&line[2]) {
            assert_eq!(row.returns, wanted, "{}", row.name);
        }
        assert_eq!(row.nullable, line[1] == "pointer-type", "{}", row.name);
    }
}

#[test]
fn typedefs_are_all_there() {
    let tabled = tsv::read("aliases.tsv");
    assert_eq!(names::ALIASES.len(), tabled.len());
    for (line, &(name, size)) in tabled.iter().zip(names::ALIASES) {
        assert_eq!(name, line[0]);
        if let Some(wanted) = obvious_size(&line[1]) {
            assert_eq!(size, wanted, "{name}");
        }
    }
}

#[test]
fn no_name_of_the_tables_is_missing_or_stands_for_two_things() {
    let mut names: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    for (file, column) in [("layout.tsv", 0), ("enums.tsv", 0), ("callbacks.tsv", 0), ("aliases.tsv", 0)] {
        for line in tsv::read(file) {
            names.entry(line[column].clone()).or_default().insert(file);
        }
    }
    // A typedef of a record or enumeration to its own tag, or of an enumeration to its integer, is that type.
    for (name, files) in &names {
        let kinds: Vec<&&str> = files.iter().filter(|file| **file != "aliases.tsv").collect();
        assert!(kinds.len() <= 1, "{name}: {kinds:?}");
    }
    let lines = |file: &str| tsv::read(file).into_iter().map(|line| line[0].clone()).collect::<BTreeSet<_>>();
    let enums = lines("enums.tsv").into_iter().filter(|name| !name.starts_with("#define")).count();
    assert_eq!(crate::generated::wddm3_2_26100::RECORDS.len(), lines("layout.tsv").len());
    assert_eq!(names::ENUMS.len(), enums);
}
