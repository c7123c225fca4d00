//! A kernel-mode queue of a room, without the user-mode driver: every packet is a case's own.

use super::{HardwareQueue, Memory, Room};
use crate::scenario::{Played, Raw, Scene};
use anyhow::{Context, Result, ensure};
use gpu_wire::GpuVa;
use gpu_wire::packet::{Copy, Encoded, Indirect, MonitoredSignal};
use wddm_abi::{D3DKMT_CREATEHWQUEUE, D3DKMT_HANDLE};

/// A queue for the kernel's submissions, whose buffers are at a page of its own.
pub struct KernelQueue {
    /// The hardware queue.
    pub queue: HardwareQueue,
    native: bool,
    code: Memory,
}

/// Bytes from one buffer to the next.
const SLOT: u64 = 256;
/// Where a copy of [`KernelQueue::spin`] takes its 1 from, and where it puts it.
const ONE: u64 = 16 << 10;
const RUNS: u64 = ONE + 8;

impl KernelQueue {
    /// A queue in `context`, and memory for its buffers.
    ///
    /// # Errors
    /// When a step fails.
    pub fn new(scene: &Scene, room: &Room<'_>, context: D3DKMT_HANDLE) -> Result<Self> {
        let mut record = D3DKMT_CREATEHWQUEUE::zeroed();
        record.hHwContext = context;
        room.raw.ok(room.raw.thunks.D3DKMTCreateHwQueue, &mut record).context("queue")?;
        let code = room.memory(scene, ONE + 4096)?;
        code.write(room.raw, ONE, &1_u64.to_le_bytes())?;
        Ok(Self { queue: HardwareQueue::of(context, &record), native: record.Flags.NativeProgressFence(), code })
    }

    /// The packet that stores a progress value.
    pub fn end(&self, value: u64) -> Encoded {
        let address = self.queue.progress.gpu;
        match self.native {
            true => Encoded::fence_signal(GpuVa(address), value),
            false => MonitoredSignal { address, value }.to_packet(),
        }
    }

    /// Submits these packets and the progress value behind them.
    ///
    /// # Errors
    /// What is refused, or does not happen.
    pub fn submit(&self, room: &Room<'_>, slot: u64, packets: &[Encoded], value: u64) -> Played {
        let end = self.end(value);
        let bytes: Vec<u8> = packets.iter().chain([&end]).flat_map(|packet| packet.as_bytes().to_vec()).collect();
        ensure!(bytes.len() as u64 <= SLOT, "a long buffer");
        self.code.write(room.raw, slot * SLOT, &bytes)?;
        // CAST: below SLOT.
        Ok(room.submit(self.queue.handle, self.code.gpu + slot * SLOT, bytes.len() as u32, value)?)
    }

    /// Submits a buffer that copies a 1 to its own memory, and to `also`, until [`stop`](Self::stop); the progress
    /// value comes behind it.
    ///
    /// # Errors
    /// What is refused, or does not happen.
    pub fn spin(&self, room: &Room<'_>, slot: u64, also: Option<u64>, value: u64) -> Played {
        let copy = |destination| Copy { source: self.code.gpu + ONE, destination, length: 8 }.to_packet();
        let runs = copy(self.code.gpu + RUNS);
        let mut packets = vec![runs];
        packets.extend(also.map(copy));
        let jump = |length| Indirect { address: self.code.gpu + slot * SLOT, length }.to_packet();
        let all = [&packets[..], &[jump(0), self.end(value)]].concat();
        packets.push(jump(all.iter().map(|packet| packet.as_bytes().len() as u64).sum()));
        self.submit(room, slot, &packets, value)
    }

    /// Lets a buffer that spins end; `copies`: 1, and one more with an `also`.
    ///
    /// # Errors
    /// What is refused, or does not happen.
    pub fn stop(&self, raw: &Raw, slot: u64, copies: u64) -> Played {
        let copy = Copy { source: 0, destination: 0, length: 8 }.to_packet().as_bytes().len() as u64;
        let jump = Indirect { address: 0, length: 0 }.to_packet().as_bytes().len();
        self.code.write(raw, slot * SLOT + copies * copy, &Encoded::nop(u32::try_from(jump)?).as_bytes()[..8])
    }

    /// Waits until the buffer that spins runs, from now on.
    ///
    /// # Errors
    /// What is refused, or does not happen.
    pub fn runs(&self, scene: &Scene, raw: &Raw) -> Played {
        let word = self.runs_at()?;
        raw.store(word, 0)?;
        scene.until("a buffer that does not end", || Ok(raw.load(word)? == 1))
    }

    /// How far it is.
    ///
    /// # Errors
    /// The access violation.
    pub fn value(&self, raw: &Raw) -> Result<u64> {
        Ok(raw.load(self.queue.progress.cpu)?)
    }

    /// Where the process finds the word to which a buffer that spins copies a 1.
    ///
    /// # Errors
    /// On a machine of another width.
    pub fn runs_at(&self) -> Result<usize> {
        Ok(self.code.cpu + usize::try_from(RUNS)?)
    }
}
