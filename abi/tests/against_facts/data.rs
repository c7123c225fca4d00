//! Lists that are data: statuses, bug checks, exports, GUIDs.

use wddm_abi::NTSTATUS;
use wddm_abi::bugchecks::BUG_CHECKS;
use wddm_abi::bugcodes;
use wddm_abi::exports::D3DKMT_EXPORTS;

use crate::tsv;

fn hexadecimal(text: &str) -> u32 {
    u32::from_str_radix(text, 16).expect("a hexadecimal number")
}

fn optional(cell: &str) -> Option<&str> {
    (cell != "-").then_some(cell)
}

#[test]
fn every_status_has_a_name_and_the_name_that_callers_use() {
    for line in tsv::read("ntstatus.tsv") {
        let status = NTSTATUS(hexadecimal(&line[1]).cast_signed());
        let name = status.name().expect("a name");
        let also_called = ["STATUS_WAIT_0", "STATUS_ABANDONED_WAIT_0"].contains(&line[0].as_str());
        assert!(name == line[0] || also_called, "{name} instead of {}", line[0]);
        assert_eq!(format!("{status:?}"), name);
    }
    assert_eq!(NTSTATUS(0).name(), Some("STATUS_SUCCESS"));
    assert_eq!(NTSTATUS(0x80).name(), Some("STATUS_ABANDONED"));
}

#[test]
fn every_bug_check_code_has_its_name() {
    let tabled = tsv::read("bugcodes.tsv");
    assert_eq!(bugcodes::BUG_CODES.len(), tabled.len());
    for line in tabled {
        assert_eq!(bugcodes::name(hexadecimal(&line[1])), Some(line[0].as_str()));
    }
}

#[test]
fn bug_checks_are_the_tabled_ones() {
    let tabled = tsv::read("bugchecks.tsv");
    assert_eq!(BUG_CHECKS.len(), tabled.len());
    for (check, line) in BUG_CHECKS.iter().zip(&tabled) {
        assert_eq!(check.code as usize, tsv::size(&line[0]));
        assert_eq!(check.parameter1, optional(&line[1]).map(|cell| tsv::size(cell) as u64), "{line:?}");
        assert_eq!(check.symbol, optional(&line[2]));
        assert_eq!(check.meaning, line[3]);
    }
}

#[test]
fn exports_are_the_tabled_ones() {
    let tabled = tsv::read("d3dkmt_exports.tsv");
    assert_eq!(D3DKMT_EXPORTS.len(), tabled.len());
    for (export, line) in D3DKMT_EXPORTS.iter().zip(&tabled) {
        assert_eq!(export.name, line[0]);
        assert_eq!(export.dll, optional(&line[1]));
        assert_eq!(export.api_set, optional(&line[2]));
        assert_eq!(export.first_build as usize, tsv::size(&line[3]));
        assert_eq!(export.declared, line[4] == "yes", "{line:?}");
    }
}

#[test]
fn guids_print_as_tabled() {
    for (name, guid) in crate::generated::names::GUIDS {
        let line = tsv::read("guids.tsv").into_iter().find(|line| line[0] == *name).expect("a line");
        assert_eq!(format!("{guid:?}"), format!("{{{}}}", line[1]));
    }
    assert_eq!(crate::generated::names::GUIDS.len(), tsv::read("guids.tsv").len());
}
