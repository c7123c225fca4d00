//! A rule has as many mutants as places in the source that judge it by its name. What a rule is reached through a
//! variable or a table for is not counted, nor is it seen that two mutants reach two places: `sites.rs` says which.

use std::collections::BTreeMap;
use std::path::Path;

/// Rules with fewer mutants than places: the rule, how many places have none, and the reason.
const FEWER: &[(&str, usize, &str)] = &[
    ("DXG-CB-FREE", 1, "a mapping of device memory is of a physical memory object, of which the toy has none"),
    ("DXG-HW-STALL", 1, "the second place counts what holds"),
];

/// The constants that `.check(&…` names in a text, and how often.
fn checked(text: &str, counts: &mut BTreeMap<String, usize>) {
    for rest in text.split(".check(").skip(1) {
        let Some(path) = rest.trim_start().strip_prefix('&') else { continue };
        let path: String =
            path.chars().take_while(|sign| sign.is_ascii_alphanumeric() || "_:".contains(*sign)).collect();
        let constant = path.rsplit(':').next().unwrap_or_default().trim_end_matches("_RULE");
        *counts.entry(constant.to_owned()).or_default() += 1;
    }
}

fn walk(folder: &Path, counts: &mut BTreeMap<String, usize>) {
    for entry in std::fs::read_dir(folder).expect("a folder of the sources").flatten() {
        let path = entry.path();
        if path.is_dir() {
            walk(&path, counts);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            checked(&std::fs::read_to_string(&path).expect("a source"), counts);
        }
    }
}

#[test]
fn each_place_of_a_rule_has_a_mutant() {
    let mut places = BTreeMap::new();
    walk(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src")), &mut places);
    let mut mutants: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for mutant in super::all() {
        let names = mutants.entry(mutant.rule()).or_default();
        if !names.contains(&mutant.name) {
            names.push(mutant.name);
        }
    }
    let lists = dxgkrnl_model::rules::ALL.iter().flat_map(|list| list.0);
    let lacks = lists.filter_map(|rule| {
        let constant = rule.name.trim_start_matches("DXG-").replace('-', "_");
        let places = places.get(&constant).copied().unwrap_or(0);
        let lacking = places.saturating_sub(mutants.get(rule.name).map_or(0, Vec::len));
        (lacking != 0).then_some((rule.name, lacking))
    });
    let mut lacks: Vec<_> = lacks.collect();
    lacks.sort_unstable();
    let mut known: Vec<_> = FEWER.iter().map(|(rule, lacking, _)| (*rule, *lacking)).collect();
    known.sort_unstable();
    assert_eq!(lacks, known, "rules, and how many of their places no mutant breaks");
}
