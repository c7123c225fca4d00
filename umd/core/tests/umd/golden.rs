//! Packet bytes against `tests/golden/*.txt`: what a command list records, and what a submission makes of it in the
//! ring and in command buffers. `UMD_BLESS=1 cargo test -p umd_core golden` writes the files anew.

use crate::mock::{Adapter, Mock};
use crate::submission::memory;
use gpu_wire::GpuVa;
use gpu_wire::packet::{CopyRect, FilterRect, HEADER_SIZE, Header, Packet, Privilege};
use gpu_wire::private::Rung;
use std::fmt::Write;
use std::path::PathBuf;
use umd_core::command_list::CommandList;
use umd_core::fence::Fence;

/// Offset, bytes, and what they decode to.
fn dump(bytes: &[u8]) -> String {
    let mut text = String::new();
    let mut at = 0;
    while at < bytes.len() {
        let header = Header::read(bytes[at..].first_chunk().unwrap());
        let packet = &bytes[at..at + header.length as usize];
        let hex: Vec<String> = packet
            .chunks(8)
            .map(|word| word.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(""))
            .collect();
        let decoded = Packet::decode(packet, Privilege::User).unwrap();
        assert!(packet.len() >= HEADER_SIZE);
        writeln!(text, "+{at:04x} {}\n      {decoded:?}", hex.join(" ")).unwrap();
        at += header.length as usize;
    }
    text
}

fn compare(name: &str, got: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("UMD_BLESS").is_some() {
        std::fs::write(&path, got).unwrap();
    }
    let wanted = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(got, wanted, "{} differs; UMD_BLESS=1 writes it anew", path.display());
}

fn record_everything(list: &mut CommandList) {
    list.nop(16).unwrap();
    list.store(GpuVa(0x1000), 0x1122_3344_5566_7788).unwrap();
    list.store32(GpuVa(0x1004), 7).unwrap();
    list.fill(GpuVa(0x2000), 64, 0xdead_beef).unwrap();
    list.copy(GpuVa(0x1000), GpuVa(0x3000), 100).unwrap();
    list.copy_rect(CopyRect {
        source: 1,
        destination: 2,
        source_pitch: 3,
        destination_pitch: 4,
        row_bytes: 5,
        rows: 6,
    })
    .unwrap();
    list.filter_rect(FilterRect {
        source: 0x4000,
        destination: 0x8000,
        source_pitch: 64,
        destination_pitch: 128,
        image_width: 16,
        image_height: 8,
        x: 1,
        y: 2,
        width: 3,
        height: 4,
        coefficients: [-1, 0, 1, -2, 0, 2, -1, 0, 1],
        bias: 128,
        shift: 2,
        reserved: 0,
    })
    .unwrap();
    list.timestamp(GpuVa(0x9000)).unwrap();
    list.indirect(GpuVa(0xa000), 64).unwrap();
}

#[test]
fn golden_commands() {
    let mut list = CommandList::new(4096);
    record_everything(&mut list);
    compare("commands.txt", &dump(list.bytes()));
}

#[test]
fn golden_native_fences_and_progress_in_a_ring() {
    let mock = Mock::new();
    let device = mock.device();
    let queue = mock.queue(&device);
    let fence = Fence::create(&device, 0, false, false, &[0; 48]).unwrap();
    let mut list = queue.new_list();
    list.fence_wait(&fence, 41).unwrap();
    list.store(GpuVa(0x1000), 1).unwrap();
    list.fence_signal(&fence, 42).unwrap();
    queue.submit(&mut list, true).unwrap();
    queue.submit(&mut list, true).unwrap();
    let world = mock.world();
    let doorbell = world.queues.values().find_map(|queue| queue.doorbell.as_ref()).unwrap();
    let published = world.memory[&doorbell.control].block.word(0).load(std::sync::atomic::Ordering::Relaxed);
    let mut bytes = vec![0; published as usize];
    world.memory[&doorbell.ring].block.read(0, &mut bytes);
    compare("ring.txt", &dump(&bytes));
}

#[test]
fn golden_command_buffers_of_a_kernel_mode_queue() {
    let mock = Mock::with(Adapter::ours(Rung::HardwareQueues));
    let device = mock.device();
    let (queue, memory) = (mock.queue(&device), memory(&device));
    let fence = Fence::create(&device, 0, false, false, &[0; 48]).unwrap();
    let mut list = queue.new_list();
    list.store(memory.gpu_va(), 1).unwrap();
    list.fence_wait(&fence, 7).unwrap();
    list.store(memory.gpu_va(), 2).unwrap();
    list.fence_signal(&fence, 8).unwrap();
    queue.submit(&mut list, true).unwrap();
    let mut world = mock.world();
    let submitted: Vec<_> = world.queues.values().flat_map(|queue| queue.submitted.clone()).collect();
    let mut text = String::new();
    for submission in submitted {
        match submission {
            crate::mock::Submission::Wait { value, .. } => writeln!(text, "wait for {value}").unwrap(),
            crate::mock::Submission::Signal { value, .. } => writeln!(text, "signal of {value}").unwrap(),
            crate::mock::Submission::Buffer { address, length, progress } => {
                let (block, offset) = world.translate(address, length).unwrap();
                let mut bytes = vec![0; length as usize];
                block.read(offset, &mut bytes);
                write!(text, "command buffer, progress {progress}\n{}", dump(&bytes)).unwrap();
            }
        }
    }
    compare("command_buffers.txt", &text);
}
