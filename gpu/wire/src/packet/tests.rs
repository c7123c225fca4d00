extern crate std;
use std::vec;
use std::vec::Vec;

use super::*;
use crate::pte::{Place, Pte};

/// One of each, with its bytes: what `golden/packets.txt` of the user-mode driver is built from.
fn samples() -> [Encoded; 14] {
    [
        Encoded::nop(8),
        Store { address: 0x1000, value: 7 }.to_packet(),
        Encoded::store32(GpuVa(0x1004), 7),
        Fill { address: 0x2000, length: 64, pattern: 0xdead_beef, reserved: 0 }.to_packet(),
        Copy { source: 0x1000, destination: 0x3000, length: 100 }.to_packet(),
        CopyRect { source: 1, destination: 2, source_pitch: 3, destination_pitch: 4, row_bytes: 5, rows: 6 }
            .to_packet(),
        Encoded::fence_wait(GpuVa(0x8000), 41),
        Encoded::fence_signal(GpuVa(0x8000), 42),
        Log { fence_handle: 9, operation: 1, value: 42, index_hint: 0, reserved: 0 }.to_packet(),
        Timestamp { address: 0x9000 }.to_packet(),
        Indirect { address: 0xa000, length: 64 }.to_packet(),
        MonitoredSignal { address: 0xb000, value: 1 }.to_packet(),
        TlbFlush { process: 1, start: 0, end: 0 }.to_packet(),
        TableCopy { source: 0x1000, destination: 0x2008, count: 3, reserved: 0 }.to_packet(),
    ]
}

#[test]
fn every_packet_decodes_to_itself_and_no_other_length() {
    for packet in samples() {
        let bytes = packet.as_bytes();
        let header = Header::read(bytes.first_chunk().unwrap());
        assert_eq!(header.check_length(bytes.len() as u64), Ok(bytes.len() as u64));
        let decoded = Packet::decode(bytes, Privilege::Paging).unwrap();
        if decoded == Packet::Nop {
            continue;
        }
        for wrong in [header.length - 8, header.length + 8] {
            let mut other = [0u8; MAX_SIZE];
            other[..bytes.len()].copy_from_slice(bytes);
            other[4..8].copy_from_slice(&wrong.to_le_bytes());
            let r = Packet::decode(&other[..wrong as usize], Privilege::Paging);
            assert_eq!(r, Err(FaultKind::BadLength), "opcode {:#x} length {wrong}", header.opcode);
        }
    }
}

/// A NOP may be as long as a ring's padding; everything else is a packet's length at most.
#[test]
fn lengths_end_at_their_limits() {
    let check = |opcode, length| Header { opcode, flags: 0, length }.check_length(u64::MAX);
    assert_eq!(check(opcode::NOP, MAX_NOP_SIZE), Ok(MAX_NOP_SIZE.into()));
    assert_eq!(check(opcode::NOP, MAX_NOP_SIZE + 8), Err(FaultKind::BadLength));
    assert_eq!(check(opcode::STORE, MAX_SIZE as u32), Ok(MAX_SIZE as u64));
    assert_eq!(check(opcode::STORE, MAX_SIZE as u32 + 8), Err(FaultKind::BadLength));
}

/// The entries of a TABLE_WRITE are as many as it says, no fewer and no more.
#[test]
fn a_table_write_has_the_entries_that_it_counts() {
    let written = |count| Encoded::table_write(Pte(0x1001), 0, vec![Pte::INVALID; count]);
    let head = written(2);
    for count in [1, 3] {
        // The head of one of two entries, before other entries than two.
        let other = written(count);
        let (bytes, entries) = (other.as_bytes().to_vec(), head.as_bytes().len() - 2 * 8);
        let mut bytes = bytes;
        bytes[HEADER_SIZE..entries].copy_from_slice(&head.as_bytes()[HEADER_SIZE..entries]);
        assert_eq!(Packet::decode(&bytes, Privilege::Paging), Err(FaultKind::BadLength), "{count} entries");
    }
    assert!(Packet::decode(head.as_bytes(), Privilege::Paging).is_ok());
}

#[test]
fn paging_packets_of_user_mode_are_refused_by_name() {
    let flush = TlbFlush { process: 1, start: 0, end: 0 }.to_packet();
    let copy = TableCopy { source: 0x1000, destination: 0x2000, count: 1, reserved: 0 }.to_packet();
    for packet in [flush, copy] {
        assert_eq!(Packet::decode(packet.as_bytes(), Privilege::User), Err(FaultKind::NotPermitted));
    }
    let unknown = Encoded::new(0xff, 0, &[]);
    assert_eq!(Packet::decode(unknown.as_bytes(), Privilege::User), Err(FaultKind::BadOpcode));
    let unknown = Encoded::new(0x7f, 0, &[]);
    assert_eq!(Packet::decode(unknown.as_bytes(), Privilege::User), Err(FaultKind::BadOpcode));
}

#[test]
fn unknown_flags_fault() {
    for packet in samples() {
        let mut bytes = packet.bytes;
        bytes[3] = 0x80;
        assert_eq!(Packet::decode(&bytes[..packet.length], Privilege::Paging), Err(FaultKind::BadFlags));
    }
}

#[test]
fn lengths_beyond_what_was_published_fault() {
    let header = Header { opcode: opcode::STORE, flags: 0, length: 24 };
    assert_eq!(header.check_length(16), Err(FaultKind::BadLength));
    assert_eq!(Header { length: 0, ..header }.check_length(64), Err(FaultKind::BadLength));
    assert_eq!(Header { length: 12, ..header }.check_length(64), Err(FaultKind::BadLength));
    assert_eq!(Header { length: u32::MAX, ..header }.check_length(u64::MAX), Err(FaultKind::BadLength));
    let nop = Header { opcode: opcode::NOP, flags: 0, length: 4096 };
    assert_eq!(nop.check_length(4096), Ok(4096));
}

#[test]
fn table_entries_come_out_in_order_and_repeat() {
    let table = Pte::table(Place::System(5)).unwrap();
    let entries: [Pte; 3] = core::array::from_fn(|i| Pte::leaf(Place::Local(i as u64), i == 1).unwrap());
    let packet = Encoded::table_write(table, 10, entries);
    let Ok(Packet::TableWrite(head, got)) = Packet::decode(packet.as_bytes(), Privilege::Paging) else {
        panic!("table write does not decode")
    };
    assert_eq!((head.table, head.first, head.count), (table.0, 10, 3));
    assert_eq!(
        [got.get(0), got.get(1), got.get(2), got.get(3)],
        [Some(entries[0]), Some(entries[1]), Some(entries[2]), None]
    );
    let packet = Encoded::table_repeat(table, 0, 512, Pte::INVALID);
    let Ok(Packet::TableWrite(_, got)) = Packet::decode(packet.as_bytes(), Privilege::Paging) else {
        panic!("repeat does not decode")
    };
    assert_eq!((got.get(0), got.get(511)), (Some(Pte::INVALID), Some(Pte::INVALID)));
    let packet = Encoded::table_repeat(table, 1, 512, Pte::INVALID);
    assert_eq!(Packet::decode(packet.as_bytes(), Privilege::Paging), Err(FaultKind::BadOperand));
}

#[test]
fn fault_numbers_come_back() {
    for kind in FaultKind::ALL {
        assert_eq!(FaultKind::from_raw(kind.raw()), Some(kind));
    }
    assert_eq!(FaultKind::from_raw(0), None);
}

proptest::proptest! {
    #[test]
    fn random_bytes_never_panic(bytes: [u8; 32], more: Vec<u8>) {
        let mut all = bytes.to_vec();
        all.extend(more);
        let _ = Packet::decode(&all, Privilege::User);
        let _ = Packet::decode(&all, Privilege::Paging);
    }
}
