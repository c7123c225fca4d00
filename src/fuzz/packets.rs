//! Random packets: of every kind that user mode may write, on addresses that are good and that are not, and damaged.

use super::dice::Dice;
use gpu_wire::GpuVa;
use gpu_wire::packet::{
    Copy, CopyRect, Encoded, FenceLogged, Fill, FilterRect, HEADER_SIZE, Header, Indirect, Log, MonitoredSignal,
    Progress, Store, Timestamp, TlbFlush, log_operation,
};

/// Names of [`packet`]'s kinds, for coverage.
pub const KINDS: [&str; 17] = [
    "STORE",
    "STORE_32",
    "FILL",
    "COPY",
    "COPY_RECT",
    "FILTER_RECT",
    "FENCE_WAIT",
    "FENCE_SIGNAL",
    "LOG",
    "TIMESTAMP",
    "INDIRECT",
    "MONITORED_SIGNAL",
    "TLB_FLUSH",
    "NOP",
    "FENCE_WAIT_LOGGED",
    "FENCE_SIGNAL_LOGGED",
    "PROGRESS",
];

/// A packet on addresses in `ranges` (first, bytes), and the index of its kind in [`KINDS`].
pub fn packet(dice: &mut Dice, ranges: &[(u64, u64)]) -> (Encoded, usize) {
    // CAST: below the number of kinds.
    let kind = dice.below(KINDS.len() as u64) as usize;
    let sound = of_kind(kind, dice, ranges);
    (if dice.one_in(16) { damaged(dice, &sound) } else { sound }, kind)
}

/// Packets that run: on `plain` memory, and on `fences` with the LOG that belongs behind. A queue that has faulted
/// reaches nothing more, so that without these little would be executed.
pub fn sound(dice: &mut Dice, plain: (u64, u64), fences: &[u64]) -> Vec<(Encoded, usize)> {
    let (first, bytes) = plain;
    let [address, other] = [0; 2].map(|_| first + dice.below(bytes / 2) / 8 * 8);
    let length = 8 + dice.below(bytes / 16) / 8 * 8;
    let logged = |operation: u32, value: u64| {
        (Log { fence_handle: 1, operation, value, index_hint: 0, reserved: 0 }.to_packet(), 8)
    };
    let value = dice.below(1000);
    match dice.below(6) {
        0 => vec![(Store { address, value }.to_packet(), 0)],
        // CAST: below 1000.
        1 => vec![(Fill { address, length, pattern: value as u32, reserved: 0 }.to_packet(), 2)],
        2 if address.abs_diff(other) >= length => {
            vec![(Copy { source: address, destination: other, length }.to_packet(), 3)]
        }
        3 if !fences.is_empty() => {
            let fence = GpuVa(*dice.of(fences));
            // What few signals have reached, so that queues park, and not all for ever.
            let value = dice.below(700);
            if dice.one_in(2) {
                let body = FenceLogged { fence: fence.0, value, fence_handle: 1, index_hint: 0 };
                return vec![(Encoded::fence_wait_logged(body), 14)];
            }
            vec![(Encoded::fence_wait(fence, value), 6), logged(log_operation::WAIT_UNBLOCKED, value)]
        }
        4 if !fences.is_empty() => {
            let fence = *dice.of(fences);
            if dice.one_in(2) {
                return vec![(FenceLogged { fence, value, fence_handle: 1, index_hint: 0 }.to_packet(), 15)];
            }
            let signal = Encoded::fence_signal(GpuVa(fence), value);
            vec![(signal, 7), logged(log_operation::SIGNAL_EXECUTED, value)]
        }
        _ => vec![(Timestamp { address }.to_packet(), 9)],
    }
}

fn of_kind(kind: usize, dice: &mut Dice, ranges: &[(u64, u64)]) -> Encoded {
    let address = dice.address(ranges);
    let word = address & !7;
    match kind {
        0 => Store { address, value: dice.draw() }.to_packet(),
        // CAST: any 32 bits.
        1 => Encoded::store32(GpuVa(address), dice.draw() as u32),
        2 => {
            let length = dice.length() & !3;
            // CAST: any 32 bits.
            Fill { address: address & !3, length, pattern: dice.draw() as u32, reserved: 0 }.to_packet()
        }
        3 => Copy { source: address, destination: dice.address(ranges), length: dice.length() }.to_packet(),
        4 => CopyRect {
            source: address,
            destination: dice.address(ranges),
            source_pitch: dice.small(),
            destination_pitch: dice.small(),
            row_bytes: dice.small(),
            rows: dice.small(),
        }
        .to_packet(),
        5 => filter(dice, address, ranges),
        6 => Encoded::fence_wait(GpuVa(word), dice.below(4)),
        7 => Encoded::fence_signal(GpuVa(word), dice.below(1000)),
        8 => Log {
            // CAST: any 32 bits.
            fence_handle: dice.draw() as u32,
            // CAST: 0 to 2, of which 2 is no operation.
            operation: dice.below(3) as u32,
            value: dice.draw(),
            index_hint: dice.small(),
            reserved: 0,
        }
        .to_packet(),
        9 => Timestamp { address: word }.to_packet(),
        10 => Indirect { address: word, length: dice.length() & !7 }.to_packet(),
        11 => MonitoredSignal { address: word, value: dice.draw() }.to_packet(),
        14 => Encoded::fence_wait_logged(logged(dice, word, 4)),
        15 => logged(dice, word, 1000).to_packet(),
        16 => {
            let FenceLogged { value, fence_handle, index_hint, .. } = logged(dice, word, 1000);
            Progress { value, fence_handle, index_hint }.to_packet()
        }
        12 => TlbFlush { process: dice.below(8), start: 0, end: 0 }.to_packet(),
        _ => Encoded::nop(8),
    }
}

fn logged(dice: &mut Dice, fence: u64, values: u64) -> FenceLogged {
    // CAST: any 32 bits.
    let fence_handle = dice.draw() as u32;
    FenceLogged { fence, value: dice.below(values), fence_handle, index_hint: dice.small() }
}

fn filter(dice: &mut Dice, source: u64, ranges: &[(u64, u64)]) -> Encoded {
    let wild = dice.one_in(4);
    let (width, height) = (1 + dice.small() % 40, 1 + dice.small() % 40);
    let mut or = |usual: u32| if wild { dice.small() } else { usual };
    FilterRect {
        source: source & !3,
        source_pitch: or(width * 4) & !3,
        destination_pitch: or(width * 4) & !3,
        image_width: or(width),
        image_height: or(height),
        x: or(width / 2),
        y: or(height / 2),
        width: or(1),
        height: or(1),
        destination: dice.address(ranges) & !3,
        // CAST: -1024 to 1024.
        coefficients: core::array::from_fn(|_| dice.below(2049) as i16 - 1024),
        // CAST: -256 to 256.
        bias: dice.below(513) as i16 - 256,
        // CAST: 0 to 17.
        shift: dice.below(18) as u16,
        reserved: 0,
    }
    .to_packet()
}

/// The packet with one bit of it turned.
fn damaged(dice: &mut Dice, packet: &Encoded) -> Encoded {
    let mut bytes = packet.as_bytes().to_vec();
    // CAST: below the length.
    let at = dice.below(bytes.len() as u64) as usize;
    bytes[at] ^= 1 << dice.below(8);
    let (head, body) = bytes.split_at(HEADER_SIZE);
    let Ok(head) = head.try_into() else { return Encoded::nop(8) };
    let Header { opcode, flags, .. } = Header::read(head);
    Encoded::new(opcode, flags, body)
}
