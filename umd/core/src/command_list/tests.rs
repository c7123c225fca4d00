#![forbid(unsafe_code)]

use super::*;

fn list() -> CommandList {
    CommandList::new(64)
}

#[test]
fn lengths_that_are_no_packet_are_refused_and_record_nothing() {
    let mut list = list();
    for length in [0, 4, 12, 20, MAX_NOP_SIZE + 8, u32::MAX] {
        assert_eq!(list.nop(length), Err(UmdError::InvalidArgument("packet length")), "{length}");
    }
    assert_eq!(list.raw(&[0; 12]), Err(UmdError::InvalidArgument("packet length")));
    for (address, length) in [(4, 64), (8, 12), (8, 0), (8, MAX_INDIRECT_SIZE + 8)] {
        assert_eq!(list.indirect(GpuVa(address), length), Err(UmdError::InvalidArgument("command buffer")));
    }
    assert!(list.is_empty() && list.cuts().is_empty());
}

#[test]
fn what_does_not_fit_is_refused_whole() {
    let mut list = list();
    list.nop(48).unwrap();
    assert_eq!(list.store(GpuVa(0), 0), Err(UmdError::ListTooLarge { bytes: 72, limit: 64 }));
    assert_eq!(list.indirect(GpuVa(8), 8), Err(UmdError::ListTooLarge { bytes: 72, limit: 64 }));
    assert_eq!((list.len(), list.cuts().len()), (48, 0));
    list.nop(16).unwrap();
    assert_eq!(list.len(), list.limit());
}

#[test]
fn a_reset_list_is_an_empty_one() {
    let mut list = list();
    list.indirect(GpuVa(8), 8).unwrap();
    list.reset();
    assert!(list.is_empty() && list.fence_operations().is_empty());
    assert_eq!(list.log_counts(), LogCounts::default());
    list.nop(64).unwrap();
}

#[test]
fn the_longest_tail_fits_its_room() {
    assert_eq!(MAX_TAIL, 24);
    assert_eq!(LOG_ENTRIES, 84);
}
