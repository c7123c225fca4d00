//! How the paging process is made, and its readings: what the driver is asked for, in which order and form.

use dxgkrnl_model::adapter::{AdapterConfig, DdiCall, FailureReason, Problem};
use dxgkrnl_model::os::Os;
use dxgkrnl_model::personality::{PagingProcess, Personality};
use wddm_abi::DXGK_PAGETABLEUPDATEMODE;
use wddm_abi::ntstatus::{STATUS_INVALID_PARAMETER, STATUS_SUCCESS};

use crate::assert_clean;
use crate::tour::{Ended, Stage, play, run, windows};
use crate::toy::{Options, Toy};

const UPDATE_PAGE_TABLE: u64 = 11;
const FLUSH_TLB: u64 = 12;
const MAP_APERTURE: u64 = 5;
/// Flags of an update.
const REPEAT: u64 = 1;
const INITIAL: u64 = 2;

/// Windows whose paging process is made so.
fn with(paging_process: PagingProcess) -> Personality {
    Personality { paging_process, ..windows() }
}

/// The calls of a start, and how the machine ended.
fn start(options: Options, paging_process: PagingProcess) -> (Vec<DdiCall>, Ended) {
    let mut calls = Vec::new();
    let ended = play(options, with(paging_process), 1, |os, _| {
        calls = os.adapters().swap_remove(0).ddi_journal();
        Ok(())
    });
    assert_clean(&ended, &format!("{paging_process:?}"));
    (calls, ended)
}

fn counted(ended: &Ended, what: &'static str) -> u64 {
    ended.toy.as_ref().map_or(0, |toy| toy.counted(what))
}

/// The arguments of calls for a paging operation.
fn operations(calls: &[DdiCall], operation: u64) -> impl Iterator<Item = &DdiCall> {
    calls.iter().filter(move |call| call.get("Operation") == Some(operation))
}

#[test]
fn the_context_is_there_before_page_tables_change() {
    for tables_before_context in [false, true] {
        let (calls, ended) = start(Options::default(), PagingProcess { tables_before_context, ..Default::default() });
        let first = |name: &str| calls.iter().position(|call| call.name == name);
        let [context, update, root] =
            ["DxgkDdiCreateContext", "DxgkDdiBuildPagingBuffer", "DxgkDdiSetRootPageTable"].map(first);
        assert_eq!(context > update, tables_before_context, "{context:?} {update:?}");
        assert!(root > context && root > update, "{root:?}");
        let [with, without] = ["update with context", "update without context"].map(|what| counted(&ended, what));
        assert!((with != 0) != tables_before_context && (without != 0) == tables_before_context, "{with} {without}");
    }
}

#[test]
fn tables_begin_at_their_leaves_or_at_the_root() {
    for (two_levels, root_first) in [(false, false), (false, true), (true, false), (true, true)] {
        let options = Options { two_levels, ..Options::default() };
        let (calls, _) = start(options, PagingProcess { root_first, ..Default::default() });
        let form = |call: &DdiCall| Some((call.get("PageTableLevel")?, call.get("Flags")?));
        let all: Vec<_> = operations(&calls, UPDATE_PAGE_TABLE).filter_map(form).collect();
        let made: Vec<_> = all.iter().filter(|(_, flags)| flags & INITIAL != 0).collect();
        let top = if two_levels { 1 } else { 2 };
        assert_eq!(made.first().map(|(level, _)| *level), Some(if root_first { top } else { 0 }));
        // 1 GB: 512 tables of level 0.
        assert_eq!(made.iter().filter(|(level, _)| *level == 0).count(), 512);
        let repeated = |(level, flags): &&(u64, u64)| (flags & REPEAT != 0) == (root_first || *level == 0);
        assert!(made.iter().all(repeated), "{made:?}");
        assert!(root_first || made.is_sorted_by_key(|(level, _)| level), "{made:?}");
        // Without the flag, parents name tables one by one, or nothing but paging buffers is mapped.
        let others = all.iter().filter(|(level, flags)| *level > 0 && flags & INITIAL == 0).count();
        assert_eq!(others, if root_first { 511 + top as usize } else { 0 });
    }
}

#[test]
fn updates_that_are_done_at_once_may_have_a_buffer() {
    for updates_with_buffer in [false, true] {
        let process = PagingProcess { updates_with_buffer, ..Default::default() };
        let (calls, _) = start(Options::default(), process);
        let size = if updates_with_buffer { 4096 } else { 0 };
        let made =
            operations(&calls, UPDATE_PAGE_TABLE).filter(|call| call.get("Flags").is_some_and(|it| it & INITIAL != 0));
        let sizes: Vec<_> = made.map(|call| call.get("DmaSize")).collect();
        assert!(sizes.len() > 512 && sizes.iter().all(|given| *given == Some(size)), "{sizes:?}");
        // Behind a loss of memory, and where tables of processes are shown to the paging process.
        let by_address = DXGK_PAGETABLEUPDATEMODE::DXGK_PAGETABLEUPDATE_GPU_VIRTUAL;
        for (stage, update_mode) in [(Stage::Sleep, Options::default().update_mode), (Stage::Packets, by_address)] {
            let ended = run(Options { update_mode, ..Options::default() }, stage, with(process));
            assert_clean(&ended, &format!("{stage:?}, {updates_with_buffer}"));
        }
    }
}

#[test]
fn what_the_system_maps_for_itself_may_be_in_the_upper_half() {
    for (two_levels, half) in [(false, 1_u64 << 38), (true, 1 << 31)] {
        for high_addresses in [false, true] {
            let mut highest = None;
            let options = Options { two_levels, ..Options::default() };
            let process = PagingProcess { high_addresses, ..Default::default() };
            let ended = play(options, with(process), 1, |os, _| {
                let adapter = os.adapters().swap_remove(0);
                crate::tour::visit(os, &adapter, Stage::Packets).map_err(|status| format!("{status:?}"))?;
                let calls = adapter.ddi_journal();
                highest = operations(&calls, FLUSH_TLB).filter_map(|call| call.get("StartVirtualAddress")).max();
                Ok(())
            });
            assert_clean(&ended, &format!("{process:?}"));
            assert_eq!(highest.map(|address| address >= half), Some(high_addresses), "{highest:x?}");
        }
    }
}

/// Paging buffers are no allocations: what maps them in the aperture has no handle. They lie at its end, the first one
/// last.
#[test]
fn paging_buffers_are_mapped_in_the_aperture_that_is_named_for_them() {
    for tables_before_context in [false, true] {
        let process = PagingProcess { tables_before_context, ..Default::default() };
        let (calls, ended) = start(Options { paging_aperture: true, ..Options::default() }, process);
        let place = |call: &DdiCall| ["hAllocation", "OffsetInPages", "NumberOfPages"].map(|member| call.get(member));
        let places: Vec<_> = operations(&calls, MAP_APERTURE).map(place).collect();
        let pages = (64 << 20) / 4096;
        let wanted: Vec<_> = (1..=5).map(|number| [Some(0), Some(pages - number), Some(1)]).collect();
        assert_eq!(places, wanted);
        assert_eq!(["map buffer", "unmap buffer"].map(|what| counted(&ended, what)), [5, 5]);
        let (calls, _) = start(Options::default(), process);
        assert_eq!(operations(&calls, MAP_APERTURE).count(), 0);
    }
}

/// One identifier for each physical adapter, of system processes. The driver that refuses them was not started: event
/// 549, reason 3, 0xC000000D.
#[test]
fn system_processes_have_identifiers() {
    for no_pasids in [false, true] {
        let process = PagingProcess { no_pasids, ..Default::default() };
        let (calls, ended) = start(Options { engines: 2, ..Options::default() }, process);
        let given: Vec<_> = calls.iter().filter_map(|call| call.get("NumPasid")).collect();
        assert_eq!((given, counted(&ended, "pasid")), if no_pasids { (vec![0], 0) } else { (vec![2], 1) });
        let os = Os::boot(with(process)).unwrap_or_else(|error| panic!("{error}"));
        let toy = Toy::driver(Options { mutant: "process-pasid", ..Options::default() });
        let driver = os.load_driver(&toy).unwrap_or_else(|error| panic!("{error}"));
        let (_, started) = os.try_adapter(&driver, AdapterConfig::default());
        let event = Some((FailureReason::AddAdapterFailed, STATUS_INVALID_PARAMETER));
        let refused = Problem { code: 43, status: STATUS_SUCCESS, event };
        assert_eq!(started.err().and_then(|error| error.problem()), (!no_pasids).then_some(refused));
        os.shut_down();
    }
}
