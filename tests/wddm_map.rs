//! `docs/wddm_map.md` says what the driver's table has: every slot, in order, filled or empty as it says.

use dxgkrnl_model::statuses::{self, Answer, Listing};
use std::path::Path;
use wddm_abi::NTSTATUS;
use wddm_abi::slots::DRIVER_INITIALIZATION_DATA_SLOTS;

struct Row {
    slot: usize,
    offset: usize,
    member: String,
    verdict: String,
    page: String,
    why: String,
}

fn rows() -> Vec<Row> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/wddm_map.md");
    let text = std::fs::read_to_string(path).expect("docs/wddm_map.md");
    let cells = |line: &str| line.split('|').map(|cell| cell.trim().replace('`', "")).collect::<Vec<_>>();
    let row = |line: &str| {
        let [_, slot, offset, member, verdict, page, why, _] = <[String; 8]>::try_from(cells(line)).ok()?;
        Some(Row { slot: slot.parse().ok()?, offset: offset.parse().ok()?, member, verdict, page, why })
    };
    text.lines().filter(|line| line.starts_with('|')).filter_map(row).collect()
}

#[test]
fn every_slot_is_in_the_map_in_order() {
    let rows = rows();
    assert_eq!(rows.len(), DRIVER_INITIALIZATION_DATA_SLOTS.len());
    for (index, (row, slot)) in rows.iter().zip(DRIVER_INITIALIZATION_DATA_SLOTS).enumerate() {
        assert_eq!((row.slot, row.offset, row.member.as_str()), (index, slot.offset, slot.member));
        assert!(!row.why.is_empty(), "{}", row.member);
    }
}

#[test]
#[expect(unsafe_code, reason = "slots are looked at by offset")]
fn a_slot_is_filled_where_the_map_says_so() {
    let table = kmd_native::table();
    let base: *const u8 = (&raw const table).cast();
    for row in rows().iter().skip(1) {
        // SAFETY: the offset of a slot in the table (the test above compares them).
        let slot = unsafe { base.add(row.offset) }.cast::<usize>();
        // SAFETY: a slot is a function pointer or NULL, of a pointer's size and alignment.
        let filled = unsafe { slot.read() } != 0;
        let promised = match row.verdict.as_str() {
            "implemented" | "nothing to do" | "refused" => true,
            "NULL" => false,
            other => panic!("{}: unknown verdict '{other}'", row.member),
        };
        assert_eq!(filled, promised, "{}", row.member);
    }
}

#[test]
fn the_places_that_the_map_names_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for row in rows().iter().filter(|row| row.verdict == "implemented") {
        let file = row.why.split([' ', ',', ':', ';']).next().unwrap_or_default();
        assert!(root.join(file).is_file(), "{}: {file}", row.member);
    }
}

#[test]
fn the_map_and_the_model_have_the_same_kind_of_list_for_every_function() {
    for row in rows() {
        let listing = match row.page.as_str() {
            "listed" => Some(Listing::Listed),
            "bugcheck" => Some(Listing::BugCheck),
            "success" => Some(Listing::Success),
            "such-as" => Some(Listing::SuchAs),
            "any" => Some(Listing::Any),
            "none" => Some(Listing::Nothing),
            "–" => None,
            other => panic!("{}: unknown kind of list '{other}'", row.member),
        };
        assert_eq!(listing, statuses::of(&row.member).map(|entry| entry.listing), "{}", row.member);
    }
}

/// A page that names several statuses in words that leave room for others: the whole list, since a slot that is missing
/// here is judged too strictly, and one too many not at all.
#[test]
fn lists_of_examples_are_those_of_the_pages() {
    let examples: Vec<_> = statuses::all().iter().filter(|entry| entry.listing == Listing::SuchAs).collect();
    let names: Vec<_> = examples.iter().map(|entry| entry.function).collect();
    let of_the_pages = [
        "DxgkDdiQueryAdapterInfo",
        "DxgkDdiCommitVidPn",
        "DxgkDdiSetVidPnSourceAddressWithMultiPlaneOverlay3",
        "DxgkDdiValidateSubmitCommand",
        "DxgkDdiCollectDiagnosticInfo",
        "DxgkDdiSetFlipQueueLogBuffer",
        "DxgkDdiCancelFlips",
        "DxgkDdiRestoreImmutableMigrationData",
    ];
    assert_eq!(names, of_the_pages);
    // Success alone would be no list of examples.
    assert!(examples.iter().all(|entry| entry.statuses.len() > 1));
}

#[test]
fn a_refusal_is_a_status_that_the_page_lists() {
    for row in rows().iter().filter(|row| row.verdict == "refused") {
        let name = row.why.split(':').next().unwrap_or_default();
        let status = NTSTATUS::from_name(name).unwrap_or_else(|| panic!("{}: no status '{name}'", row.member));
        let entry = statuses::of(&row.member).unwrap_or_else(|| panic!("{}", row.member));
        assert_eq!(entry.judge(status), Answer::Fits, "{}: {name}; its page has {:?}", row.member, entry.statuses);
    }
}

#[test]
fn what_does_nothing_may_succeed_and_what_must_succeed_is_not_refused() {
    for row in rows().iter().filter(|row| matches!(row.verdict.as_str(), "nothing to do" | "refused")) {
        let entry = statuses::of(&row.member).unwrap_or_else(|| panic!("{}", row.member));
        let must = matches!(entry.listing, Listing::BugCheck | Listing::Success);
        assert!(!must || row.verdict == "nothing to do", "{} has to succeed", row.member);
    }
}

#[test]
fn the_sums_are_right() {
    let rows = rows();
    let count = |verdict: &str| rows.iter().filter(|row| row.verdict == verdict).count();
    let sums = format!(
        "{} implemented, {} nothing to do, {} refused, {} NULL",
        count("implemented"),
        count("nothing to do"),
        count("refused"),
        count("NULL")
    );
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/wddm_map.md");
    assert!(std::fs::read_to_string(path).expect("docs/wddm_map.md").contains(&sums), "{sums}");
}

/// The interfaces that `DxgkDdiQueryInterface` and `QueryFeatureInterface` hand out.
#[test]
fn the_interfaces_are_in_the_map_member_by_member() {
    use wddm_abi::slots::{DXGKDDI_FEATURE_INTERFACE_SLOTS, DXGKDDI_KERNELMODETESTINGINTERFACE_SLOTS};
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(root.join("docs/wddm_map.md")).expect("docs/wddm_map.md");
    let rows: Vec<Vec<_>> = text
        .lines()
        .filter(|line| line.starts_with("| `DXGKDDI_"))
        .map(|line| line.split('|').map(|cell| cell.trim().replace('`', "")).collect())
        .collect();
    let interfaces = [
        ("DXGKDDI_FEATURE_INTERFACE", DXGKDDI_FEATURE_INTERFACE_SLOTS),
        ("DXGKDDI_KERNELMODETESTINGINTERFACE", DXGKDDI_KERNELMODETESTINGINTERFACE_SLOTS),
    ];
    let members = interfaces.iter().flat_map(|(name, slots)| slots.iter().map(move |slot| (*name, slot.member)));
    let there: Vec<_> = rows.iter().map(|row| (row[1].as_str(), row[2].as_str())).collect();
    assert_eq!(there, members.collect::<Vec<_>>());
    for file in rows.iter().map(|row| row[3].split([' ', ',', ':']).next().unwrap_or_default()) {
        assert!(!file.contains('/') || root.join(file).is_file(), "{file}");
    }
}

#[test]
fn every_paging_operation_has_the_verdict_of_the_map() {
    use kmd_core::halt::{Verdict, verdict};
    use wddm_abi::DXGK_BUILDPAGINGBUFFER_OPERATION as Operation;
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/wddm_map.md");
    let text = std::fs::read_to_string(path).expect("docs/wddm_map.md");
    let cells = |line: &str| line.split('|').map(|cell| cell.trim().replace('`', "")).collect::<Vec<_>>();
    let row = |line: &str| {
        let [_, number, name, said, why, _] = <[String; 6]>::try_from(cells(line)).ok()?;
        Some((number.parse::<i32>().ok()?, name, said, why))
    };
    let rows: Vec<_> = text.lines().filter(|line| line.starts_with('|')).filter_map(row).collect();
    let named: Vec<_> = Operation::VALUES.iter().map(|(operation, name)| (operation.0, (*name).to_owned())).collect();
    let listed: Vec<_> = rows.iter().map(|(number, name, ..)| (*number, name.clone())).collect();
    assert_eq!(listed, named);
    for (number, name, said, why) in rows {
        let is = match verdict(Operation(number)) {
            Verdict::Done => "done",
            Verdict::Nothing => "nothing",
            Verdict::Impossible => "impossible",
        };
        assert_eq!(said, is, "{name}");
        assert!(!why.is_empty(), "{name}");
    }
    for number in [-1, 23, 24, 25, 40, i32::MAX] {
        assert_eq!(verdict(Operation(number)), Verdict::Impossible, "{number}");
    }
}
