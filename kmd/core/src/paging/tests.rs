//! Tests of paging buffers: what each operation writes, in buffers of any size.

extern crate std;

use super::{
    Buffer, Reading, TableEntries, Unit, build_copy, build_update, copies_within_tables, place_of, table_at, translate,
};
use crate::segments::Order;
use crate::settings::Settings;
use crate::status::Error;
use gpu_wire::packet::{OWN_PROCESS, Packet, Privilege, TableCopy, TlbFlush};
use gpu_wire::pte::{ENTRIES, Place, Pte};
use std::vec::Vec;
use wddm_abi::{D3DGPU_PHYSICAL_ADDRESS, DXGK_BUILDPAGINGBUFFER_COPY_RANGE, DXGK_PTE};

fn orders() -> [Order; 2] {
    [false, true].map(|local_segment_first| Order::of(&Settings { local_segment_first, ..Settings::default() }))
}

#[test]
fn an_address_is_in_system_memory_in_local_memory_or_nowhere() {
    for order in orders() {
        assert_eq!(place_of(order, 0, 0x5000), Some(Place::System(5)));
        assert_eq!(place_of(order, order.local(), 0x7fff), Some(Place::Local(7)));
        // An offset in the aperture is no frame.
        for segment in [order.aperture(), 3, 31, u32::MAX] {
            assert_eq!(place_of(order, segment, 0), None, "segment {segment}");
        }
    }
}

#[test]
fn a_table_lies_where_an_entry_can_say() {
    for order in orders() {
        let mut address = D3DGPU_PHYSICAL_ADDRESS::zeroed();
        (address.SegmentId, address.SegmentOffset) = (order.local(), 0x3000);
        assert_eq!(table_at(order, &address), Pte::table(Place::Local(3)));
        address.SegmentOffset = u64::MAX;
        assert_eq!(table_at(order, &address), None, "too high");
        (address.SegmentId, address.SegmentOffset) = (order.aperture(), 0x3000);
        assert_eq!(table_at(order, &address), None, "the aperture");
    }
}

#[test]
fn an_entry_that_the_driver_does_not_know_maps_nothing() {
    let reading = Reading { unit: Unit::Pages, order: orders()[0] };
    let mut known = DXGK_PTE::zeroed();
    assert_eq!(translate(&known, 0, reading), Some(Pte::INVALID));
    known.set_Valid(true);
    known.set_PageAddress(9);
    assert_eq!(translate(&known, 0, reading), Pte::leaf(Place::System(9), false));
    let unknown: [fn(&mut DXGK_PTE); 6] = [
        |entry| entry.set_Zero(true),
        |entry| entry.set_LargePage(true),
        |entry| entry.set_PhysicalAdapterIndex(1),
        |entry| entry.set_Reserved(1),
        |entry| entry.set_Segment(1),
        |entry| entry.set_Segment(31),
    ];
    for (number, change) in unknown.iter().enumerate() {
        let mut entry = known;
        change(&mut entry);
        assert_eq!(translate(&entry, 0, reading), None, "number {number}");
    }
}

#[test]
fn copies_stay_within_tables() {
    let mut range = DXGK_BUILDPAGINGBUFFER_COPY_RANGE::zeroed();
    (range.SrcPageTableAddress, range.DstPageTableAddress) = (0x1_0000, 0x2_0000);
    (range.SrcStartPteIndex, range.DstStartPteIndex, range.NumPageTableEntries) = (500, 0, 12);
    assert!(copies_within_tables(&[range]) && copies_within_tables(&[]));
    let wrong: [fn(&mut DXGK_BUILDPAGINGBUFFER_COPY_RANGE); 5] = [
        |range| range.SrcStartPteIndex += 1,
        |range| range.DstStartPteIndex = u32::MAX,
        |range| range.SrcPageTableAddress += 8,
        |range| range.DstPageTableAddress = 1 << 60,
        |range| range.NumPageTableEntries = u32::MAX,
    ];
    for (number, change) in wrong.iter().enumerate() {
        let mut wrong = range;
        change(&mut wrong);
        assert!(!copies_within_tables(&[range, wrong]), "number {number}");
    }
}

/// A range of `count` entries, the `number`-th of its operation.
fn range(number: u64, count: u32) -> DXGK_BUILDPAGINGBUFFER_COPY_RANGE {
    let mut range = DXGK_BUILDPAGINGBUFFER_COPY_RANGE::zeroed();
    (range.SrcPageTableAddress, range.DstPageTableAddress) = (0x10_0000 * number, 0x20_0000 * number);
    (range.SrcStartPteIndex, range.DstStartPteIndex, range.NumPageTableEntries) = (3, 5, count);
    range
}

/// The packets in `bytes`, which hold nothing else.
fn packets(mut bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    while let Some(header) = bytes.first_chunk::<8>() {
        // CAST: below the size of a packet.
        let length = (u64::from_le_bytes(*header) >> 32) as usize;
        let (packet, rest) = bytes.split_at(length);
        all.push(packet.to_vec());
        bytes = rest;
    }
    all
}

/// Builds in buffers of `size` bytes until the whole is built: the packets of all of them.
fn in_buffers(
    size: usize,
    mut build: impl FnMut(&mut Buffer<'_>, &mut u32) -> crate::status::Result<()>,
) -> Vec<Vec<u8>> {
    let (mut all, mut multipass) = (Vec::new(), 0);
    for _ in 0..2 * ENTRIES {
        let mut bytes = std::vec![0; size];
        let mut buffer = Buffer::new(&mut bytes);
        let built = build(&mut buffer, &mut multipass);
        let used = buffer.used;
        all.extend(packets(&bytes[..used]));
        match built {
            Ok(()) => return all,
            Err(error) => assert_eq!((error, used != 0), (Error::InsufficientDmaBuffer, true), "{size} bytes"),
        }
    }
    panic!("no end in buffers of {size} bytes");
}

/// However small the buffer is, each range is copied once, in its order; none that did not fit is lost, and one of no
/// entries is nothing. The translations go last.
#[test]
fn a_copy_goes_on_with_the_range_that_did_not_fit() {
    let ranges = [range(1, 4), range(2, 0), range(3, ENTRIES - 5), range(4, 1)];
    let copy = |range: &DXGK_BUILDPAGINGBUFFER_COPY_RANGE| {
        let (source, destination) = (range.SrcPageTableAddress + 24, range.DstPageTableAddress + 40);
        Packet::TableCopy(TableCopy { source, destination, count: range.NumPageTableEntries, reserved: 0 })
    };
    let flush = Packet::TlbFlush(TlbFlush { process: OWN_PROCESS, start: 0, end: 0 });
    let wanted = [copy(&ranges[0]), copy(&ranges[2]), copy(&ranges[3]), flush];
    for size in [32, 40, 64, 96, 127, 128, 4096] {
        let built = in_buffers(size, |buffer, multipass| build_copy(&ranges, buffer, multipass));
        let built: Vec<_> = built.iter().map(|packet| Packet::decode(packet, Privilege::Paging)).collect();
        assert_eq!(built, wanted.map(Ok), "{size} bytes");
    }
    let (mut buffer, mut multipass) = (Buffer::new(&mut []), 0);
    assert_eq!(build_copy(&[], &mut buffer, &mut multipass), Ok(()), "of no ranges");
    let nowhere = build_copy(&ranges, &mut buffer, &mut multipass);
    assert_eq!((nowhere, multipass), (Err(Error::InsufficientDmaBuffer), 0), "in a buffer of nothing");
}

/// However small the buffer is, each entry is written once, to its place.
#[test]
fn an_update_goes_on_with_the_entry_that_did_not_fit() {
    const FIRST: u32 = 7;
    let reading = Reading { unit: Unit::Pages, order: orders()[0] };
    let entry = |number: u32| {
        let mut entry = DXGK_PTE::zeroed();
        entry.set_Valid(true);
        entry.set_PageAddress(0x1000 + u64::from(number));
        entry
    };
    let from: Vec<_> = (0..100).map(entry).collect();
    let table = Pte::table(Place::System(9)).expect("a table");
    let entries = TableEntries::new(&from, FIRST, 100, false, reading).expect("within a table");
    for size in [32, 39, 40, 48, 200, 256, 4096] {
        let built = in_buffers(size, |buffer, multipass| build_update(table, 0, &entries, buffer, multipass));
        let mut next = FIRST;
        for packet in &built {
            let Ok(Packet::TableWrite(write, written)) = Packet::decode(packet, Privilege::Paging) else {
                panic!("{size} bytes: {packet:x?}");
            };
            assert_eq!((write.table, write.first), (table.0, next), "{size} bytes");
            for index in 0..write.count {
                let wanted = Pte::leaf(Place::System(0x1000 + u64::from(next - FIRST)), false);
                assert_eq!(written.get(index), wanted, "{size} bytes, entry {next}");
                next += 1;
            }
        }
        assert_eq!(next, FIRST + 100, "{size} bytes");
    }
    // One that is repeated is one packet, or none.
    let repeated = TableEntries::new(&from, FIRST, 100, true, reading).expect("within a table");
    let built = in_buffers(4096, |buffer, multipass| build_update(table, 0, &repeated, buffer, multipass));
    assert_eq!(built.len(), 1);
    assert!(
        matches!(Packet::decode(&built[0], Privilege::Paging), Ok(Packet::TableWrite(write, _)) if write.count == 100)
    );
}

/// Entries lie within one table, and there are as many as are written.
#[test]
fn entries_that_leave_their_table_or_are_not_there_are_none() {
    let reading = Reading { unit: Unit::Pages, order: orders()[0] };
    let from = [DXGK_PTE::zeroed(); 4];
    let has = |first, count, repeat| TableEntries::new(&from, first, count, repeat, reading).is_some();
    assert!(has(ENTRIES - 4, 4, false) && has(0, ENTRIES, true) && has(ENTRIES, 0, false));
    assert!(!has(ENTRIES - 3, 4, false) && !has(1, ENTRIES, true) && !has(0, 5, false) && !has(u32::MAX, 2, true));
    assert!(TableEntries::new(&[], 0, 1, true, reading).is_none(), "the one that is repeated is not there");
}
