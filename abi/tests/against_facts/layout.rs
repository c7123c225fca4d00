//! Every line of the layout tables: sizes, alignments, offsets, bit positions.

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use crate::generated;
use crate::probe::Extent;
use crate::probe::Reach;
use crate::probe::RecordProbe;
use crate::tsv;
use crate::tsv::Line;

/// A layout table without its leading group column; [`Table::groups`] keeps that.
struct Table {
    lines: Vec<Line>,
    groups: Vec<String>,
}

impl Table {
    fn main() -> Self {
        let lines = tsv::read("layout.tsv");
        let groups = vec![String::new(); lines.len()];
        Self { lines, groups }
    }

    /// The lines of a table with a group column whose group `wanted` accepts.
    fn grouped(file: &str, wanted: impl Fn(&str) -> bool) -> Self {
        let mut table = Self { lines: Vec::new(), groups: Vec::new() };
        for mut line in tsv::read(file) {
            let group = line.remove(0);
            if wanted(&group) {
                table.lines.push(line);
                table.groups.push(group);
            }
        }
        table
    }
}

/// Everything in which `table` and `probes` differ, one message each.
fn differences(table: &Table, probes: &[RecordProbe]) -> Vec<String> {
    let mut found = Vec::new();
    let mut records: BTreeMap<&str, &RecordProbe> = BTreeMap::new();
    for probe in probes {
        if records.insert(probe.name, probe).is_some() {
            found.push(format!("{}: generated twice", probe.name));
        }
    }
    let mut seen: BTreeSet<(&str, &str)> = BTreeSet::new();
    for (line, group) in table.lines.iter().zip(&table.groups) {
        let [record, path, offset, bit, width, size, what] = line.as_slice() else {
            found.push(format!("a line with {} cells", line.len()));
            continue;
        };
        let Some(probe) = records.get(record.as_str()).filter(|probe| probe.group == group) else {
            found.push(format!("{record}: missing"));
            continue;
        };
        if !seen.insert((record, path)) {
            found.push(format!("{record}.{path}: twice in the table"));
        }
        let wanted = Extent { offset: tsv::size(offset), size: tsv::size(size) };
        let outcome = if path == "@record" {
            record_difference(probe, wanted.size, what)
        } else {
            let row = probe.rows.iter().position(|(name, _)| name == path);
            let bits = (width != "-").then(|| (tsv::size(bit), tsv::size(width) as u32));
            row.map_or(Err("missing".to_owned()), |row| line_difference(probe, row, wanted, bits, what))
        };
        if let Err(difference) = outcome {
            found.push(format!("{record}.{path}: {difference}"));
        }
    }
    for probe in probes {
        if !seen.contains(&(probe.name, "@record")) {
            found.push(format!("{}: generated, but not in the table", probe.name));
        }
        for (path, _) in probe.rows {
            if !seen.contains(&(probe.name, path)) {
                found.push(format!("{}.{path}: generated, but not in the table", probe.name));
            }
        }
    }
    found
}

fn record_difference(probe: &RecordProbe, size: usize, what: &str) -> Result<(), String> {
    let align = what.split("align=").nth(1).and_then(|rest| rest.split(' ').next()).map(tsv::size);
    match (probe.size == size, Some(probe.align) == align) {
        (true, true) => Ok(()),
        _ => Err(format!("{} bytes aligned to {}, tabled {size} and {align:?}", probe.size, probe.align)),
    }
}

fn line_difference(
    probe: &RecordProbe,
    row: usize,
    wanted: Extent,
    bits: Option<(usize, u32)>,
    what: &str,
) -> Result<(), String> {
    let reach = probe.rows[row].1;
    let declared_in_place = matches!(what, "struct" | "union");
    let kind_fits = match reach {
        Reach::Bits => bits.is_some(),
        Reach::Nested(_) | Reach::Dissolved => declared_in_place,
        Reach::Field(_) | Reach::Leaf(_) => bits.is_none() && !declared_in_place,
    };
    if !kind_fits {
        return Err(format!("of another kind than `{what}`"));
    }
    let is = match (reach, bits) {
        (Reach::Field(extent), _) => extent,
        (Reach::Leaf(size), _) => probe.measure(row, size)?,
        (Reach::Nested(size), _) => Extent { size, ..wanted },
        (Reach::Bits, Some((bit, width))) => {
            let lowest = probe.measure_bits(row, width)?;
            if lowest != wanted.offset * 8 + bit {
                return Err(format!("begins at bit {lowest}, tabled {}", wanted.offset * 8 + bit));
            }
            wanted
        }
        (Reach::Dissolved | Reach::Bits, _) => wanted,
    };
    if is == wanted { Ok(()) } else { Err(format!("is at {is:?}, tabled {wanted:?}")) }
}

fn assert_same(table: &Table, probes: &[RecordProbe]) {
    let found = differences(table, probes);
    assert!(found.is_empty(), "{} differences:\n{}", found.len(), found.join("\n"));
}

#[test]
fn main_records_are_laid_out_as_tabled() {
    assert_same(&Table::main(), generated::wddm3_2_26100::RECORDS);
}

#[test]
fn records_of_the_22621_kit_are_laid_out_as_tabled() {
    let table = Table::grouped("layout_variants.tsv", |group| group == "WDDM3.1/WDK22621");
    assert_same(&table, generated::wddm3_1_22621::RECORDS);
}

#[test]
fn records_of_the_first_26100_kit_are_laid_out_as_tabled() {
    let table = Table::grouped("layout_variants.tsv", |group| group == "WDDM3.2/SDK26100-2024-10");
    assert_same(&table, generated::wddm3_2_26100_2024_10::RECORDS);
}

#[test]
fn no_older_kit_is_left_out() {
    let groups: BTreeSet<String> = Table::grouped("layout_variants.tsv", |_| true).groups.into_iter().collect();
    assert_eq!(groups.into_iter().collect::<Vec<_>>(), ["WDDM3.1/WDK22621", "WDDM3.2/SDK26100-2024-10"]);
}

#[test]
fn records_of_the_28000_kits_are_laid_out_as_tabled() {
    assert_same(&Table::grouped("layout_28000.tsv", |_| true), generated::kit_28000::RECORDS);
}

#[test]
fn every_union_that_dissolved_or_has_a_type_lies_where_its_members_do() {
    // A line of an aggregate declared in place has no offset of its own in Rust; its members' lines have. In C the
    // first member of each is at its beginning, so the table itself must say so.
    let table = Table::main();
    for (index, line) in table.lines.iter().enumerate() {
        if matches!(line[6].as_str(), "struct" | "union") {
            let next = &table.lines[index + 1];
            assert!(next[0] == line[0] && next[1].starts_with(&format!("{}.", line[1])), "{line:?} has no members");
            assert_eq!(next[2], line[2], "{line:?} begins elsewhere than its first member");
        }
    }
}

/// Tables with one cell changed, and what the comparison must then say.
#[test]
fn a_changed_cell_is_found() {
    let mutations: [(&str, &str, usize, &str); 8] = [
        ("DXGKARG_CREATENATIVEFENCE", "Flags", 2, "100"),
        ("DXGKARG_CREATENATIVEFENCE", "Flags", 5, "8"),
        ("DXGKARG_CREATENATIVEFENCE", "Flags", 1, "Flag"),
        ("DXGKARG_CREATENATIVEFENCE", "@record", 5, "144"),
        ("DXGK_VIDSCHCAPS", "{u0}.{s0}.NativeGpuFence", 3, "12"),
        ("DXGK_VIDSCHCAPS", "{u0}.{s0}.HwQueuePacketCap", 4, "5"),
        ("DXGKARGCB_NOTIFY_INTERRUPT_DATA", "{u0}.DmaFaulted.Status", 2, "16"),
        ("DXGK_PTE", "{u1}.PageTableAddress", 5, "4"),
    ];
    for (record, path, column, value) in mutations {
        let mut table = Table::main();
        let line = table.lines.iter_mut().find(|line| line[0] == record && line[1] == path).expect("a known line");
        assert_ne!(line[column], value);
        line[column] = value.to_owned();
        let found = differences(&table, generated::wddm3_2_26100::RECORDS);
        assert!(!found.is_empty(), "{record}.{path}: column {column} changed to {value} and nothing noticed");
        assert!(found.iter().all(|difference| difference.starts_with(record)), "{found:?}");
    }
}

#[test]
fn a_lost_line_is_found() {
    let mut table = Table::main();
    let index =
        table.lines.iter().position(|line| line[1] == "MonitoredValueSystemProcessGpuVa").expect("a known line");
    table.lines.remove(index);
    table.groups.remove(index);
    let found = differences(&table, generated::wddm3_2_26100::RECORDS);
    assert_eq!(found.len(), 1, "{found:?}");
}

#[test]
fn a_lost_record_is_found() {
    let mut probes = generated::wddm3_2_26100::RECORDS.iter();
    let lost = probes.next().expect("records");
    let found = differences(&Table::main(), probes.as_slice());
    assert!(found.iter().all(|difference| difference == &format!("{}: missing", lost.name)), "{found:?}");
    assert!(!found.is_empty());
}

#[test]
fn older_forms_say_how_many_bytes_are_common() {
    use wddm_abi::variants::wddm3_2_26100_2024_10 as first;
    assert_eq!(first::DXGKARG_OPENNATIVEFENCE_COMMON_BYTES, 44);
    assert_eq!(first::D3DKMT_OPENNATIVEFENCEFROMNTHANDLE_COMMON_BYTES, 80);
}
