//! Cases that every way of submission has, packets too.

use crate::client::Device;
use crate::jobs::{ACTIVE, until};
use crate::room::{Room, same};
use crate::{Process, System, escape};
use anyhow::{Context, Result, ensure};
use gpu_wire::packet::{Encoded, Fill, TlbFlush};
use gpu_wire::private::Rung;
use umd_core::ffi::types::FP_KIND_SYSTEM;
use wddm_abi::KMTQUERYADAPTERINFOTYPE as Type;
use wddm_abi::{
    D3DKMT_DEVICEEXECUTION_STATE as State, D3DKMT_DRIVERVERSION, D3DKMT_NODEMETADATA, D3DKMT_SEGMENTSIZEINFO,
    D3DKMT_WDDM_2_7_CAPS, D3DKMT_WDDM_2_9_CAPS, DXGK_ENGINE_TYPE, DXGK_PAGE_FAULT_FLAGS,
};

/// Bytes of a queue's ring.
const RING: u64 = 64 << 10;
/// An address at which nothing is.
const NOWHERE: u64 = 0x7FFF_0000_0000;

/// A device beside others stores a word.
struct Beside<'a> {
    system: &'a dyn System,
    process: Box<dyn Process>,
    device: Device,
    /// Resets of engines and adapter before the case's work.
    resets: u64,
}

impl<'a> Beside<'a> {
    fn new(system: &'a dyn System) -> Result<Self> {
        let process = system.process("works", false)?;
        let device = process.adapter().device()?;
        let (_, before) = escape::said(&*process)?;
        Ok(Self { system, process, device, resets: before.resets })
    }

    fn works(&self, value: u64) -> Result<()> {
        let (queue, page) = (self.device.queue(0, RING, 0, 0)?, self.device.allocate(FP_KIND_SYSTEM, 4096, 0)?);
        let at = page.gpu_va()?;
        queue.run(|list| list.store(at, value))?;
        until("work beside it", self.system.patience(), || Ok(page.read_u64(0)? == value))
    }

    /// Nothing was lost here, and nothing was reset.
    fn is_as_before(&self) -> Result<()> {
        same("the device beside it", self.device.state()?.execution, ACTIVE)?;
        let (_, after) = escape::said(&*self.process)?;
        same("resets", after.resets, self.resets)
    }
}

/// A process of its own runs these bytes as packets, which are wrong, and its device is lost. Returns what is said
/// then: whether it is a page fault, the address, and the flags.
fn faults(system: &dyn System, name: &str, bytes: &[u8]) -> Result<(bool, u64, u32)> {
    let process = system.process(name, false)?;
    let device = process.adapter().device()?;
    let (queue, code) = (device.queue(0, RING, 0, 0)?, device.allocate(FP_KIND_SYSTEM, 4096, 0)?);
    code.write(0, bytes)?;
    let at = code.gpu_va()?;
    // Below rung 3 the end of the list is a call of its own, which may find the device lost.
    let _refused = queue.run(|list| list.indirect(at, bytes.len() as u64));
    until("the device's error", system.patience(), || Ok(device.state()?.execution != ACTIVE))?;
    let state = device.state()?;
    // CAST: states are small numbers.
    let found = State(state.execution as i32);
    let errors = [State::D3DKMT_DEVICEEXECUTION_ERROR_DMAFAULT, State::D3DKMT_DEVICEEXECUTION_ERROR_DMAPAGEFAULT];
    ensure!(errors.contains(&found), "the state is {found:?}");
    Ok((found == errors[1], state.page_fault_address, state.page_fault_flags))
}

pub fn bad_packets(system: &dyn System) -> Result<()> {
    let beside = Beside::new(system)?;
    let mut opcode = Encoded::nop(8).as_bytes().to_vec();
    opcode[0] = 0x7F;
    let nowhere = Fill { address: NOWHERE, length: 8, pattern: 0, reserved: 0 }.to_packet();
    let cases = [
        ("a bad opcode", opcode),
        ("a bad length", Encoded::nop(1 << 20).as_bytes()[..8].to_vec()),
        ("a bad address", nowhere.as_bytes().to_vec()),
    ];
    for (round, (what, bytes)) in (1..).zip(cases) {
        faults(system, what, &bytes).context(what)?;
        beside.works(round).context(what)?;
    }
    beside.is_as_before()
}

pub fn told_of_a_fault(system: &dyn System) -> Result<()> {
    let beside = Beside::new(system)?;
    let write = DXGK_PAGE_FAULT_FLAGS::DXGK_PAGE_FAULT_WRITE.0.cast_unsigned();
    let fill = Fill { address: NOWHERE, length: 8, pattern: 0, reserved: 0 }.to_packet();
    same("a store", faults(system, "stores", fill.as_bytes())?, (true, NOWHERE, write))?;
    let process = system.process("reads", false)?;
    let page = process.adapter().device()?.allocate(FP_KIND_SYSTEM, 4096, 0)?;
    let copy = gpu_wire::packet::Copy { source: NOWHERE, destination: page.gpu_va()?, length: 8 }.to_packet();
    same("a load", faults(system, "loads", copy.as_bytes())?, (true, NOWHERE, 0))?;
    let flush = TlbFlush { process: 0, start: NOWHERE, end: NOWHERE }.to_packet();
    // Which of the two errors it is, no page says.
    let (_, address, flags) = faults(system, "flushes", flush.as_bytes())?;
    same("what user mode may not do", (address, flags), (0, 0))?;
    beside.is_as_before()
}

pub fn long_wait(system: &dyn System) -> Result<()> {
    let beside = Beside::new(system)?;
    let process = system.process("waits", false)?;
    let device = process.adapter().device()?;
    let (queue, page) = (device.queue(0, RING, 0, 0)?, device.allocate(FP_KIND_SYSTEM, 4096, 0)?);
    let (fence, at) = (device.fence(0, 0)?, page.gpu_va()?);
    queue.run(|list| {
        list.wait(&fence, 1)?;
        list.store(at, 8)
    })?;
    // The time is what it is about.
    std::thread::park_timeout(system.tdr_delay() * 4);
    same("a store behind the wait", page.read_u64(0)?, 0)?;
    beside.works(5)?;
    fence.signal(1)?;
    until("the store behind the wait", system.patience(), || Ok(page.read_u64(0)? == 8))?;
    same("the device", device.state()?.execution, ACTIVE)?;
    beside.is_as_before()
}

/// The characters before the zero, which must be there.
fn text(units: &[u16]) -> Result<String> {
    let end = units.iter().position(|unit| *unit == 0).with_context(|| format!("a text without an end: {units:?}"))?;
    Ok(String::from_utf16_lossy(&units[..end]))
}

pub fn tools(system: &dyn System) -> Result<()> {
    let process = system.process("asks", false)?;
    let room = Room::new(system, &*process)?;
    let mut version = 0_u32;
    room.ask(Type::KMTQAITYPE_DRIVERVERSION, &mut version).context("DRIVERVERSION")?;
    // CAST: an enumerator's number.
    same("the driver model", D3DKMT_DRIVERVERSION(version as i32), D3DKMT_DRIVERVERSION::KMT_DRIVERVERSION_WDDM_3_2)?;
    let on = process.adapter().info()?.rung >= Rung::HardwareQueues.raw();
    let mut older = D3DKMT_WDDM_2_7_CAPS::zeroed();
    room.ask(Type::KMTQAITYPE_WDDM_2_7_CAPS, &mut older).context("WDDM_2_7_CAPS")?;
    // Whether a Windows that has it off says that it is supported, no page says.
    let is_right = |supported: bool, enabled: bool| enabled == on && (supported || !on);
    ensure!(is_right(older.HwSchSupported(), older.HwSchEnabled()), "hardware scheduling is on: {on}; {older:?}");
    let mut newer = D3DKMT_WDDM_2_9_CAPS::zeroed();
    room.ask(Type::KMTQAITYPE_WDDM_2_9_CAPS, &mut newer).context("WDDM_2_9_CAPS")?;
    ensure!(
        is_right(newer.HwSchSupportState() != 0, newer.HwSchEnabled()),
        "hardware scheduling is on: {on}; {newer:?}"
    );
    let copy = DXGK_ENGINE_TYPE::DXGK_ENGINE_TYPE_COPY;
    // Of either form.
    let first = [
        (DXGK_ENGINE_TYPE::DXGK_ENGINE_TYPE_3D, "3D and compute"),
        (DXGK_ENGINE_TYPE::DXGK_ENGINE_TYPE_OTHER, "Compute"),
    ];
    let names: [&[(DXGK_ENGINE_TYPE, &str)]; 3] = [&first, &[(copy, "Copy")], &[(copy, "Paging")]];
    for (node, known) in (0..).zip(names) {
        let mut engine = D3DKMT_NODEMETADATA::zeroed();
        engine.NodeOrdinalAndAdapterIndex = node;
        room.ask(Type::KMTQAITYPE_NODEMETADATA, &mut engine).context("NODEMETADATA")?;
        let data = engine.NodeData;
        let found = (data.EngineType, text(&{ data.FriendlyName })?);
        // With FriendlyNames 0 there are none.
        let is_known = known.iter().any(|(kind, name)| *kind == found.0 && (*name == found.1 || found.1.is_empty()));
        ensure!(is_known, "node {node} is {found:?}, not {known:?}");
    }
    let mut memory = D3DKMT_SEGMENTSIZEINFO::zeroed();
    room.ask(Type::KMTQAITYPE_GETSEGMENTSIZE, &mut memory).context("GETSEGMENTSIZE")?;
    let sizes = ({ memory.DedicatedVideoMemorySize }, { memory.SharedSystemMemorySize });
    ensure!(sizes.0 != 0 && sizes.1 != 0, "memory: {sizes:?}");
    Ok(())
}
