//! A client without the user-mode driver, whose packets run until it ends them.
//!
//! A packet in packet mode is one call of `D3DKMTSubmitCommand`; the user-mode driver would submit the end of its list
//! as a packet of its own.

use super::super::client::Client;
use super::super::db::{Memory, Room, store};
use super::super::{Played, Raw, Scene};
use anyhow::{Context, Result};
use gpu_wire::packet::{Copy, Encoded, Fill, Indirect};
use portable_cases::jobs;
use std::sync::atomic::{AtomicU64, Ordering};
use wddm_abi::{D3DDDI_CREATECONTEXTFLAGS, D3DKMT_DEVICEPAGEFAULT_STATE, D3DKMT_HANDLE, D3DKMT_SUBMITCOMMAND};

/// Where packets lie in the memory, and how far apart.
const CODE: u64 = 8192;
const SLOT: u64 = 512;
/// Packets that there is room for.
const SLOTS: u64 = 64;
/// A word that is 1.
const ONE: u64 = 512;
/// Words that say that a packet runs, one per slot.
const BEGUN: u64 = 1024;
/// Words that say that it has ended.
const ENDED: u64 = 2048;
/// The words that count: each counted packet shifts them on by one. [`SHIFTED`] numbers, and a second row of as many.
const ROW: u64 = 3072;
/// Numbers of the row.
const SHIFTED: u64 = 200;
const SECOND: u64 = ROW + 8 * SHIFTED;
/// Private data of a packet that is submitted.
const PRIVATE: u64 = SECOND + 8 * SHIFTED;
/// Packets so far, of every hog.
static PACKETS: AtomicU64 = AtomicU64::new(1);

/// A device with a packet context on each of some nodes.
pub struct Hog<'a> {
    /// The process.
    pub raw: &'a Raw,
    room: Room<'a>,
    memory: Memory,
    contexts: Vec<(u32, D3DKMT_HANDLE)>,
    /// Memory that packets fill to take long, and its bytes.
    big: Option<Memory>,
}

impl<'a> Hog<'a> {
    /// A device of `raw`'s process, with a context on each of `nodes`.
    ///
    /// # Errors
    /// When something cannot be made.
    pub fn new(scene: &Scene, raw: &'a Raw, nodes: &[u32]) -> Result<Self> {
        let room = Room::new(raw)?;
        let memory = room.memory(scene, CODE + SLOTS * SLOT)?;
        let context = |node: &u32| Ok((*node, room.context_with(*node, D3DDDI_CREATECONTEXTFLAGS::zeroed())?));
        let contexts = nodes.iter().map(context).collect::<Result<_>>()?;
        memory.write(raw, ONE, &1_u64.to_le_bytes())?;
        for index in 0..SHIFTED {
            memory.write(raw, ROW + index * 8, &index.to_le_bytes())?;
        }
        Ok(Self { raw, room, memory, contexts, big: None })
    }

    /// As [`new`](Self::new), with memory of `bytes` that [`count`](Self::count) fills.
    ///
    /// # Errors
    /// When something cannot be made.
    pub fn with_much(scene: &Scene, raw: &'a Raw, nodes: &[u32], bytes: u64) -> Result<Self> {
        let mut hog = Self::new(scene, raw, nodes)?;
        hog.big = Some(hog.room.memory(scene, bytes)?);
        Ok(hog)
    }

    /// Whether the device is active.
    ///
    /// # Errors
    /// When that cannot be told.
    pub fn is_active(&self) -> Result<bool> {
        Ok(self.room.is_active()?)
    }

    /// The state of the device.
    ///
    /// # Errors
    /// When that cannot be told.
    pub fn state(&self) -> Result<wddm_abi::D3DKMT_DEVICEEXECUTION_STATE> {
        Ok(self.room.state()?)
    }

    /// Puts packets into a slot; how many bytes they are.
    fn write(&self, slot: u64, packets: &[Encoded]) -> Result<u64> {
        let bytes: Vec<u8> = packets.iter().flat_map(|packet| packet.as_bytes().to_vec()).collect();
        self.memory.write(self.raw, CODE + slot * SLOT, &bytes)?;
        Ok(bytes.len() as u64)
    }

    fn submit(&self, node: u32, slot: u64, packets: &[Encoded]) -> Played {
        let bytes = self.write(slot, packets)?;
        let context = self.context(node)?;
        let mut record = D3DKMT_SUBMITCOMMAND::zeroed();
        record.Commands = self.memory.gpu + CODE + slot * SLOT;
        record.CommandLength = u32::try_from(bytes)?;
        // No two packets have the same private data.
        let private = [PACKETS.fetch_add(1, Ordering::Relaxed), record.Commands, !record.Commands];
        let private: Vec<u8> = private.iter().flat_map(|word| word.to_le_bytes()).collect();
        self.memory.write(self.raw, PRIVATE, &private)?;
        record.pPrivateDriverData = core::ptr::with_exposed_provenance_mut(self.memory.cpu + usize::try_from(PRIVATE)?);
        record.PrivateDriverDataSize = u32::try_from(private.len())?;
        (record.BroadcastContextCount, record.BroadcastContext[0]) = (1, context);
        Ok(self.raw.ok(self.raw.thunks.D3DKMTSubmitCommand, &mut record)?)
    }

    /// Its context on a node.
    ///
    /// # Errors
    /// When it has none there.
    pub fn context(&self, node: u32) -> Result<D3DKMT_HANDLE> {
        let of = self.contexts.iter().find(|(of, _)| *of == node);
        of.map(|(_, context)| *context).context("a context of the node")
    }

    /// Where the process has the word that says that the packet in a slot has begun.
    ///
    /// # Errors
    /// On a machine of another width.
    pub fn begun_at(&self, slot: u64) -> Result<usize> {
        Ok(self.memory.cpu + usize::try_from(BEGUN + slot * 8)?)
    }

    /// Where the GPU has the packet in a slot.
    pub(super) fn code(&self, slot: u64) -> u64 {
        self.memory.gpu + CODE + slot * SLOT
    }

    /// Submits what the driver refuses: a packet of a length that none has.
    ///
    /// # Errors
    /// The function's status; the refusal is none of it.
    pub fn refused(&self, node: u32) -> Played {
        let context = self.context(node)?;
        Ok(self.raw.submit_command(context, self.memory.gpu + CODE, 12)?)
    }

    /// Submits a packet that faults: it fills what is not mapped.
    ///
    /// # Errors
    /// The function's status; the fault is none of it.
    pub fn faults(&self, node: u32, slot: u64) -> Played {
        self.submit(node, slot, &[Fill { address: 0x7FFF_0000_0000, length: 8, pattern: 0, reserved: 0 }.to_packet()])
    }

    /// Submits this packet, and waits until the device is lost by it, which must be by a page fault.
    ///
    /// # Errors
    /// What is refused, or does not happen.
    pub fn faults_at(&self, scene: &Scene, node: u32, packet: Encoded) -> Result<D3DKMT_DEVICEPAGEFAULT_STATE> {
        self.submit(node, 0, &[packet])?;
        self.room.lost_by_page_fault(scene)?;
        Ok(self.room.page_fault()?)
    }

    /// Submits a packet that says that it runs, and goes on until [`end`](Self::end).
    ///
    /// # Errors
    /// The function's status.
    pub fn spin(&self, node: u32, slot: u64) -> Played {
        self.spin_before(node, slot, &[])
    }

    /// As [`spin`](Self::spin), with packets behind: the last thing that it does is to say that it has ended.
    ///
    /// # Errors
    /// The function's status.
    pub fn spin_before(&self, node: u32, slot: u64, behind: &[Encoded]) -> Played {
        self.submit(node, slot, &self.spinning(slot, behind)?)
    }

    /// What [`spin_before`](Self::spin_before) submits, in its slot.
    fn spinning(&self, slot: u64, behind: &[Encoded]) -> Result<Vec<Encoded>> {
        self.raw.store(self.begun_at(slot)?, 0)?;
        self.raw.store(self.memory.cpu + usize::try_from(ENDED + slot * 8)?, 0)?;
        // Behind the jump the engine reads the buffer anew.
        let (source, destination) = (self.memory.gpu + ONE, self.memory.gpu + BEGUN + slot * 8);
        let begun = Copy { source, destination, length: 8 }.to_packet();
        let ended = store(self.memory.gpu + ENDED + slot * 8, 1);
        let jump = |length| Indirect { address: self.memory.gpu + CODE + slot * SLOT, length }.to_packet();
        let bytes = |packet: Encoded| packet.as_bytes().len() as u64;
        let length = bytes(begun) + bytes(jump(0)) + behind.iter().copied().map(bytes).sum::<u64>() + bytes(ended);
        Ok([&[begun, jump(length)], behind, &[ended]].concat())
    }

    /// Submits a packet that counts once, and then goes on as one of [`spin`](Self::spin) in the slot behind its own.
    ///
    /// # Errors
    /// The function's status.
    pub fn count_and_spin(&self, node: u32, slot: u64) -> Played {
        let length = self.write(slot + 1, &self.spinning(slot + 1, &[])?)?;
        let [first, second] = self.counting();
        self.submit(node, slot, &[first, second, Indirect { address: self.code(slot + 1), length }.to_packet()])
    }

    /// Counts once: the words of a row move on by one.
    fn counting(&self) -> [Encoded; 2] {
        let at = |offset| self.memory.gpu + offset;
        let row = |from, to, words| Copy { source: at(from), destination: at(to), length: words * 8 }.to_packet();
        [row(ROW + 8, SECOND, SHIFTED - 1), row(SECOND, ROW, SHIFTED - 1)]
    }

    /// Lets the packet in a slot end: its jump becomes nothing.
    ///
    /// # Errors
    /// None that a live process brings about.
    pub fn end(&self, slot: u64) -> Played {
        let begun = Copy { source: 0, destination: 0, length: 8 }.to_packet();
        let length = u32::try_from(Indirect { address: 0, length: 0 }.to_packet().as_bytes().len())?;
        // The first word of a packet says what it is: one store, since an engine reads meanwhile.
        let at = CODE + slot * SLOT + begun.as_bytes().len() as u64;
        self.memory.write(self.raw, at, &Encoded::nop(length).as_bytes()[..8])
    }

    /// Whether the packet in a slot has begun.
    ///
    /// # Errors
    /// None that a live process brings about.
    pub fn has_begun(&self, slot: u64) -> Result<bool> {
        Ok(self.raw.load(self.begun_at(slot)?)? == 1)
    }

    /// Forgets that the packet in a slot has begun: if it runs, it says so again.
    ///
    /// # Errors
    /// None that a live process brings about.
    pub fn clear(&self, slot: u64) -> Played {
        Ok(self.raw.store(self.begun_at(slot)?, 0)?)
    }

    /// Whether the packet in a slot has ended.
    ///
    /// # Errors
    /// None that a live process brings about.
    pub fn has_ended(&self, slot: u64) -> Result<bool> {
        Ok(self.raw.load(self.memory.cpu + usize::try_from(ENDED + slot * 8)?)? == 1)
    }

    /// Waits until the packet in a slot runs.
    ///
    /// # Errors
    /// When it does not.
    pub fn begins(&self, scene: &Scene, slot: u64) -> Played {
        scene.until("the run of a packet that does not end", || self.has_begun(slot))
    }

    /// Submits a packet that stores a word and ends.
    ///
    /// # Errors
    /// The function's status.
    pub fn short(&self, node: u32, slot: u64) -> Played {
        self.raw.store(self.memory.cpu + usize::try_from(ENDED + slot * 8)?, 0)?;
        self.submit(node, slot, &[store(self.memory.gpu + ENDED + slot * 8, 1)])
    }

    /// Submits a packet that stores to this address, where nothing is.
    ///
    /// # Errors
    /// The function's status.
    pub fn stray(&self, node: u32, slot: u64, address: u64) -> Played {
        self.submit(node, slot, &[store(address, 1)])
    }

    /// Destroys the device, with what it has submitted.
    ///
    /// # Errors
    /// The function's status.
    pub fn destroy(self) -> Played {
        Ok(self.raw.destroy_device(self.room.device)?)
    }

    /// Submits a packet that counts once, and fills the big memory behind that and before: it takes long, and one that
    /// is begun anew in its middle counts twice.
    ///
    /// # Errors
    /// The function's status.
    pub fn count(&self, node: u32, slot: u64) -> Played {
        let big = self.big.context("memory to fill")?;
        let fill = |pattern| Fill { address: big.gpu, length: big.size, pattern, reserved: 0 }.to_packet();
        let [first, second] = self.counting();
        let packets = [fill(1), first, second, fill(2), store(self.memory.gpu + ENDED + slot * 8, 1)];
        self.submit(node, slot, &packets)
    }

    /// How often packets have counted; below [`SHIFTED`] less one.
    ///
    /// # Errors
    /// None that a live process brings about.
    pub fn counted(&self) -> Result<u64> {
        Ok(self.raw.load(self.memory.cpu + usize::try_from(ROW)?)?)
    }
}

/// Counted packets that a [`Hog`] can tell.
pub const COUNTS: u64 = SHIFTED - 2;

/// A command buffer of the user-mode driver's that runs until it is ended.
pub struct Loop {
    inner: jobs::Loop,
    /// Where it is.
    pub address: u64,
    /// Its bytes.
    pub length: u64,
}

impl Loop {
    /// Makes it, in `rig`'s process.
    ///
    /// # Errors
    /// When it has no memory.
    pub fn new(rig: &Client) -> Result<Self> {
        let inner = jobs::Loop::new(&rig.device)?;
        Ok(Self { address: inner.address, length: inner.length, inner })
    }

    /// Waits until it runs.
    ///
    /// # Errors
    /// When it does not.
    pub fn begins(&self, scene: &Scene) -> Played {
        scene.until("the run of a buffer that does not end", || self.inner.runs())
    }

    /// Returns whether it has run since [`forget`](Self::forget).
    ///
    /// # Errors
    /// None that a live process brings about.
    pub fn runs(&self) -> Result<bool> {
        self.inner.runs()
    }

    /// Forgets that it has begun: if it runs, it says so again.
    ///
    /// # Errors
    /// None that a live process brings about.
    pub fn forget(&self) -> Played {
        self.inner.forget()
    }

    /// Lets it end.
    ///
    /// # Errors
    /// None that a live process brings about.
    pub fn end(&self) -> Played {
        self.inner.end()
    }
}
