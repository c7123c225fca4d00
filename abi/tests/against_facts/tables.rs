//! The function tables: slots, guards, sizes.

use std::collections::BTreeMap;

use wddm_abi::slots;
use wddm_abi::slots::SizeAt;
use wddm_abi::slots::Slot;

use crate::generated::names;
use crate::generated::wddm3_2_26100::RECORDS;
use crate::probe::Reach;
use crate::tsv;
use crate::tsv::Line;

const TABLES: &[(&str, &[Slot])] = &[
    ("DRIVER_INITIALIZATION_DATA", slots::DRIVER_INITIALIZATION_DATA_SLOTS),
    ("DXGKRNL_INTERFACE", slots::DXGKRNL_INTERFACE_SLOTS),
    ("DXGKDDI_FEATURE_INTERFACE", slots::DXGKDDI_FEATURE_INTERFACE_SLOTS),
    ("DXGK_FEATURE_INTERFACE", slots::DXGK_FEATURE_INTERFACE_SLOTS),
    ("KMDDOD_INITIALIZATION_DATA", slots::KMDDOD_INITIALIZATION_DATA_SLOTS),
    ("DXGKCBINT_FEATURE_NATIVEFENCE_1", slots::DXGKCBINT_FEATURE_NATIVEFENCE_1_SLOTS),
    ("DXGKDDI_KERNELMODETESTINGINTERFACE", slots::DXGKDDI_KERNELMODETESTINGINTERFACE_SLOTS),
];

fn lines(table: &str, wanted: impl Fn(&str) -> bool) -> Vec<Line> {
    tsv::read("ddi_slots.tsv").into_iter().filter(|line| line[0] == table && wanted(&line[3])).collect()
}

fn optional(cell: &str) -> Option<&str> {
    (cell != "-").then_some(cell)
}

#[test]
fn no_table_is_left_out() {
    let mut tabled: Vec<String> = tsv::read("ddi_slots.tsv").into_iter().map(|line| line[0].clone()).collect();
    tabled.dedup();
    tabled.pop();
    assert_eq!(tabled, TABLES.iter().map(|&(name, _)| name).collect::<Vec<_>>());
}

#[test]
fn slots_have_the_tabled_order_offset_and_guard() {
    for &(table, slots) in TABLES {
        let tabled = lines(table, |member| !member.starts_with('@'));
        assert_eq!(slots.len(), tabled.len(), "{table}");
        for (slot, line) in slots.iter().zip(&tabled) {
            assert_eq!(slot.index, tsv::size(&line[1]) as u32, "{line:?}");
            assert_eq!(slot.offset, tsv::size(&line[2]), "{line:?}");
            assert_eq!(slot.member, line[3]);
            assert_eq!(slot.ctype, line[4]);
            let guard = optional(&line[5]).map(|name| (name, tsv::size(&line[6]) as u32));
            assert_eq!(slot.guard, guard, "{line:?}");
            assert_eq!(slot.documented, optional(&line[7]), "{line:?}");
            assert_eq!(slot.note, optional(&line[8]), "{line:?}");
        }
    }
}

#[test]
fn members_lie_in_their_slots() {
    for &(table, slots) in TABLES {
        let record = RECORDS.iter().find(|record| record.name == table).expect("the table is a record");
        assert_eq!(record.rows.len(), slots.len(), "{table}");
        for (slot, (member, reach)) in slots.iter().zip(record.rows) {
            let Reach::Field(extent) = reach else { panic!("{table}.{member} is no field") };
            assert_eq!((slot.member, slot.offset), (*member, extent.offset), "{table}");
        }
        let end = lines(table, |member| member == "@end");
        assert_eq!(record.size, tsv::size(&end[0][2]), "{table}");
    }
}

#[test]
fn members_have_the_callback_types_of_their_slots() {
    let callbacks: BTreeMap<String, String> =
        tsv::read("callbacks.tsv").into_iter().map(|line| (line[0].clone(), line[1].clone())).collect();
    let is_callback = |ctype: &str| {
        callbacks.get(ctype).is_some_and(|kind| kind == "pointer-type")
            || ctype
                .strip_prefix('P')
                .is_some_and(|name| callbacks.get(name).is_some_and(|kind| kind == "function-type"))
    };
    let tabled: Vec<(String, String, String)> = tsv::read("ddi_slots.tsv")
        .into_iter()
        .filter(|line| is_callback(&line[4]))
        .map(|line| (line[0].clone(), line[3].clone(), line[4].clone()))
        .collect();
    let generated: Vec<(String, String, String)> = names::SLOTS
        .iter()
        .map(|&(table, member, ctype)| (table.to_owned(), member.to_owned(), ctype.to_owned()))
        .collect();
    assert_eq!(generated, tabled);
}

#[test]
fn every_slot_but_data_and_reserved_ones_is_typed() {
    let data =
        ["ULONG", "USHORT", "HANDLE", "PVOID", "VOID *", "void *", "PINTERFACE_REFERENCE", "PINTERFACE_DEREFERENCE"];
    for line in tsv::read("ddi_slots.tsv").into_iter().filter(|line| !line[3].starts_with('@')) {
        let typed = names::SLOTS.iter().any(|slot| slot.0 == line[0] && slot.1 == line[3]);
        assert!(typed || data.contains(&line[4].as_str()), "{line:?}");
    }
}

#[test]
fn sizes_per_interface_version_are_the_tabled_ones_and_follow_from_the_guards() {
    let sizes: &[SizeAt] = slots::DRIVER_INITIALIZATION_DATA_SIZES;
    let tabled = lines("DRIVER_INITIALIZATION_DATA", |member| member == "@size_at");
    assert_eq!(sizes.len(), tabled.len());
    for (size, line) in sizes.iter().zip(&tabled) {
        assert_eq!(size.version, line[4]);
        assert_eq!(size.value, optional(&line[6]).map(|value| tsv::size(value) as u32));
        assert_eq!(size.size, tsv::size(&line[2]));
        let limit = size.value.unwrap_or(0);
        let last = slots::DRIVER_INITIALIZATION_DATA_SLOTS
            .iter()
            .filter(|slot| slot.guard.is_none_or(|(_, value)| value <= limit))
            .map(|slot| slot.offset + 8)
            .max();
        assert_eq!(last, Some(size.size), "{line:?}");
    }
    let newest = sizes.last().expect("sizes");
    assert_eq!(newest.size, size_of::<wddm_abi::DRIVER_INITIALIZATION_DATA>());
    assert_eq!(newest.value, Some(wddm_abi::DXGKDDI_INTERFACE_VERSION_WDDM3_2));
}
