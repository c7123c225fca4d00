//! Enumerations and macros.

use std::collections::BTreeMap;

use crate::generated::names;
use crate::tsv;

/// The enumerations of a table: name, then enumerators in order, repeated lines dropped.
fn enums() -> BTreeMap<String, Vec<(String, i128)>> {
    let mut enums: BTreeMap<String, Vec<(String, i128)>> = BTreeMap::new();
    for line in tsv::read("enums.tsv").into_iter().filter(|line| !line[0].starts_with("#define")) {
        let values = enums.entry(line[0].clone()).or_default();
        let value = (line[1].clone(), tsv::number(&line[2]));
        if !values.contains(&value) {
            values.push(value);
        }
    }
    enums
}

#[test]
fn enumerations_have_the_tabled_values_and_no_others() {
    let tabled = enums();
    assert_eq!(names::ENUMS.len(), tabled.len());
    for row in names::ENUMS {
        let values: Vec<(String, i128)> =
            (row.values)().into_iter().map(|(name, value, _)| (name.to_owned(), value)).collect();
        assert_eq!(Some(&values), tabled.get(row.name), "{}", row.name);
    }
}

#[test]
fn debug_prints_the_first_name_of_a_value() {
    for row in names::ENUMS {
        let values = (row.values)();
        for (_, value, printed) in &values {
            let first = values.iter().find(|(_, other, _)| other == value).map(|&(name, ..)| name);
            assert_eq!(Some(printed.as_str()), first, "{}", row.name);
        }
    }
}

#[test]
fn enumerations_have_the_size_of_the_members_that_hold_them() {
    for line in tsv::read("layout.tsv") {
        if let Some(row) = names::ENUMS.iter().find(|row| row.name == line[6] && line[4] == "-") {
            assert_eq!(row.size, tsv::size(&line[5]), "{} in {}", row.name, line[0]);
        }
    }
    let one_byte: Vec<&str> = names::ENUMS.iter().filter(|row| row.size == 1).map(|row| row.name).collect();
    assert_eq!(one_byte.len(), 6, "{one_byte:?}");
}

#[test]
fn macros_have_the_tabled_values() {
    let mut tabled: BTreeMap<String, i128> = BTreeMap::new();
    for line in tsv::read("enums.tsv").into_iter().filter(|line| line[0].starts_with("#define")) {
        tabled.insert(line[1].clone(), tsv::number(&line[2]));
    }
    let generated: BTreeMap<String, i128> =
        names::MACROS.iter().map(|&(name, value)| (name.to_owned(), value)).collect();
    assert_eq!(generated, tabled);
}

#[test]
fn additions_of_the_28000_kits_are_all_there() {
    let mut tabled: Vec<(String, String, i128)> = Vec::new();
    for line in tsv::read("enums_28000.tsv") {
        let row = (line[1].clone(), line[2].clone(), tsv::number(&line[3]));
        if !tabled.contains(&row) {
            tabled.push(row);
        }
    }
    let mut generated: Vec<(String, String, i128)> =
        names::KIT_28000.iter().map(|&(group, name, value)| (group.to_owned(), name.to_owned(), value)).collect();
    tabled.sort();
    generated.sort();
    assert_eq!(generated, tabled);
}
