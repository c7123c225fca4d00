//! The portable parts of the jobs.

use super::hang::{Loop, until};
use super::{Portable, TooBusy};
use crate::{Process, System, call, escape};
use anyhow::{Result, ensure};
use gpu_wire::NodeOrdinal;

use std::time::{Duration, Instant};
use umd_core::ffi::types::{FP_KIND_SYSTEM, FP_QUEUE_KERNEL_MODE};
use wddm_abi::ntstatus::STATUS_DEVICE_REMOVED;
use wddm_abi::{
    D3DDDI_WAITFORSYNCHRONIZATIONOBJECTFROMCPU_FLAGS, D3DKMDT_COMPUTE_PREEMPTION_GRANULARITY,
    D3DKMDT_GRAPHICS_PREEMPTION_GRANULARITY, D3DKMT_CLOSEADAPTER, D3DKMT_CREATEDEVICE, D3DKMT_DESTROYDEVICE,
    D3DKMT_ESCAPE, D3DKMT_ESCAPETYPE, D3DKMT_HANDLE, D3DKMT_OPENADAPTERFROMLUID, D3DKMT_QUERYADAPTERINFO,
    D3DKMT_TDRDBGCTRL_ESCAPE, D3DKMT_TDRDBGCTRLTYPE, D3DKMT_WAITFORSYNCHRONIZATIONOBJECTFROMCPU, D3DKMT_WDDM_1_2_CAPS,
    KMTQUERYADAPTERINFOTYPE, LUID,
};

use crate::client::{Allocation, Device, Fence, List, Queue};

/// A device that is active.
pub const ACTIVE: u32 = 1;
/// Bytes of a queue's ring.
const RING: u64 = 64 << 10;
/// Whether an engine comes off a command buffer in its middle.
const PREEMPTS: &str = "PreemptInBuffers";

/// One device hangs, one works.
pub const TWO_DEVICES: Portable = Portable { needs: (PREEMPTS, 0), resets: 1, forces: false, play: two_devices };
/// A buffer that runs for three delays, and comes off when it is asked to.
pub const LONG: Portable = Portable { needs: (PREEMPTS, 1), resets: 0, forces: false, play: long };
/// A buffer that does not come off.
pub const TOO_LONG: Portable = Portable { needs: (PREEMPTS, 0), resets: 1, forces: false, play: too_long };
/// Buffers of a quarter of the delay.
pub const MANY: Portable = Portable { needs: (PREEMPTS, 0), resets: 0, forces: false, play: many };
/// Resets that are asked for: two of an engine and one of the adapter.
pub const FORCED: Portable = Portable { needs: (PREEMPTS, 0), resets: 3, forces: true, play: forced };

/// Each engine hangs in turn.
pub const CLAIM: Portable = Portable { needs: (PREEMPTS, 0), resets: 2, forces: false, play: claim };
/// Packets that are taken off, and come back.
pub const GRANULARITY: Portable = Portable { needs: (PREEMPTS, 1), resets: 0, forces: false, play: granularity };
/// Many resets that are asked for.
pub const STORM: Portable = Portable { needs: (PREEMPTS, 0), resets: ROUNDS, forces: true, play: storm };

fn is_active(device: &Device) -> Result<bool> {
    Ok(device.state()?.execution == ACTIVE)
}

/// A queue whose device is lost: it is not made anew, by either way of submission, and takes no work.
pub fn is_over(queue: &Queue, patience: Duration) -> Result<()> {
    for flags in [0, FP_QUEUE_KERNEL_MODE, 0] {
        let made = queue.recreate(flags).err().map(|refused| refused.status);
        ensure!(made == Some(STATUS_DEVICE_REMOVED), "a queue of a lost device is made anew: {made:?}");
    }
    // The doorbell says so soon behind the device's loss.
    until("a refusal of work", patience, || Ok(queue.run(|list| list.nop(8)).is_err()))
}

/// A device stores a word by a queue of its own on this node.
fn works(device: &Device, node: u32, value: u64, patience: Duration) -> Result<()> {
    let (queue, page) = (device.queue(node, RING, 0, 0)?, device.allocate(FP_KIND_SYSTEM, 4096, 0)?);
    let at = page.gpu_va()?;
    queue.run(|list| list.store(at, value))?;
    until("a job's result", patience, || Ok(page.read_u64(0)? == value))
}

/// A handle of the adapter, and a device, without the user-mode driver.
struct Plain<'a> {
    process: &'a dyn Process,
    adapter: D3DKMT_HANDLE,
    device: D3DKMT_HANDLE,
}

impl<'a> Plain<'a> {
    fn open(process: &'a dyn Process) -> Result<Self> {
        let info = process.adapter().info()?;
        let mut open = D3DKMT_OPENADAPTERFROMLUID::zeroed();
        open.AdapterLuid = LUID { LowPart: info.luid_low, HighPart: info.luid_high };
        call(process, "D3DKMTOpenAdapterFromLuid", &mut open)?;
        let mut plain = Self { process, adapter: open.hAdapter, device: 0 };
        let mut create = D3DKMT_CREATEDEVICE::zeroed();
        create.set_hAdapter(open.hAdapter);
        call(process, "D3DKMTCreateDevice", &mut create)?;
        plain.device = create.hDevice;
        Ok(plain)
    }

    /// An event that is set when the fence gets to a value.
    fn event_of(&self, fence: &Fence, value: u64) -> Result<u64> {
        let event = self.process.event()?;
        let (handles, values) = ([fence.info()?.handle], [value]);
        let mut wait = D3DKMT_WAITFORSYNCHRONIZATIONOBJECTFROMCPU::zeroed();
        wait.hDevice = self.device;
        wait.ObjectCount = 1;
        wait.ObjectHandleArray = handles.as_ptr();
        wait.FenceValueArray = values.as_ptr();
        wait.hAsyncEvent = std::ptr::with_exposed_provenance_mut(event as usize);
        wait.Flags = D3DDDI_WAITFORSYNCHRONIZATIONOBJECTFROMCPU_FLAGS::zeroed();
        call(self.process, "D3DKMTWaitForSynchronizationObjectFromCpu", &mut wait)?;
        Ok(event)
    }

    /// Asks the OS for the reset of a node's engine, or of the adapter.
    fn force(&self, node: Option<NodeOrdinal>) -> Result<()> {
        match node {
            Some(node) => self.escape(D3DKMT_TDRDBGCTRLTYPE::D3DKMT_TDRDBGCTRLTYPE_ENGINETDR, node),
            None => self.escape(D3DKMT_TDRDBGCTRLTYPE::D3DKMT_TDRDBGCTRLTYPE_FORCETDR, NodeOrdinal(0)),
        }
    }

    /// Asks the OS not to count resets.
    fn unlimited(&self) -> Result<()> {
        self.escape(D3DKMT_TDRDBGCTRLTYPE::D3DKMT_TDRDBGCTRLTYPE_UNCONDITIONAL, NodeOrdinal(0))
    }

    fn escape(&self, control: D3DKMT_TDRDBGCTRLTYPE, node: NodeOrdinal) -> Result<()> {
        let mut data = D3DKMT_TDRDBGCTRL_ESCAPE::zeroed();
        data.TdrControl = control;
        data.set_NodeOrdinal(node.0);
        let mut escape = D3DKMT_ESCAPE::zeroed();
        escape.hAdapter = self.adapter;
        escape.Type = D3DKMT_ESCAPETYPE::D3DKMT_ESCAPE_TDRDBGCTRL;
        escape.pPrivateDriverData = (&raw mut data).cast();
        // CAST: 8.
        escape.PrivateDriverDataSize = size_of_val(&data) as u32;
        call(self.process, "D3DKMTEscape", &mut escape)
    }
}

/// What the OS says of the driver's capabilities of WDDM 1.2.
fn capabilities(process: &dyn Process) -> Result<D3DKMT_WDDM_1_2_CAPS> {
    let plain = Plain::open(process)?;
    let mut caps = D3DKMT_WDDM_1_2_CAPS::zeroed();
    let mut query = D3DKMT_QUERYADAPTERINFO::zeroed();
    query.hAdapter = plain.adapter;
    query.Type = KMTQUERYADAPTERINFOTYPE::KMTQAITYPE_WDDM_1_2_CAPS;
    query.pPrivateDriverData = (&raw mut caps).cast();
    // CAST: 12.
    query.PrivateDriverDataSize = size_of_val(&caps) as u32;
    call(process, "D3DKMTQueryAdapterInfo", &mut query)?;
    Ok(caps)
}

impl Drop for Plain<'_> {
    fn drop(&mut self) {
        let mut device = D3DKMT_DESTROYDEVICE::zeroed();
        device.hDevice = self.device;
        let mut adapter = D3DKMT_CLOSEADAPTER::zeroed();
        adapter.hAdapter = self.adapter;
        // A device that is lost is destroyed as any other; of a process that ends nothing else is left to do.
        let _device = call(self.process, "D3DKMTDestroyDevice", &mut device);
        let _adapter = call(self.process, "D3DKMTCloseAdapter", &mut adapter);
    }
}

fn claim(system: &dyn System) -> Result<()> {
    let patience = system.patience();
    let beside = system.process("works", false)?;
    ensure!(capabilities(&*beside)?.SupportPerEngineTDR(), "the driver does not say SupportPerEngineTDR");
    let good = beside.adapter().device()?;
    for node in 0..2 {
        let hangs = system.process("hangs", false)?;
        let bad = hangs.adapter().device()?;
        let (queue, run) = (bad.queue(node, RING, 0, 0)?, Loop::new(&bad)?);
        let (_, before) = escape::said(&*beside)?;
        queue.run(|list| list.indirect(run.address, run.length))?;
        run.begins(patience)?;
        // On the other engine, while this one hangs and is reset.
        let mut value = 0;
        until("the loss of the device that hangs", patience, || {
            value += 1;
            works(&good, 1 - node, value, patience)?;
            Ok(!is_active(&bad)?)
        })?;
        ensure!(is_active(&good)?, "a device that worked on another engine is lost with node {node}");
        works(&good, node, 7, patience)?;
        let (_, after) = escape::said(&*beside)?;
        ensure!(after.resets > before.resets, "the driver counts no reset of node {node}: {} before", before.resets);
    }
    Ok(())
}

/// A device that counts: each list keeps the number that it finds and stores its own, at its beginning and at its end.
struct Counter {
    queue: Queue,
    memory: Allocation,
    lists: u64,
}

/// Bytes that a list fills between its two counts, and how often: longer than a turn on the engine.
const FILLED: u64 = 4 << 20;
const TIMES: u64 = 12;
/// Where the second count's words are.
const SECOND: u64 = 32 << 10;

impl Counter {
    fn new(device: &Device) -> Result<Self> {
        let (queue, memory) = (device.queue(0, RING, 0, 0)?, device.allocate(FP_KIND_SYSTEM, 64 << 10, 0)?);
        Ok(Self { queue, memory, lists: 0 })
    }

    /// Counts, takes a while, and counts: a list that begins anew finds its own number, and one that is left out, or
    /// ends in its middle, is missed by the one behind it.
    fn count(&mut self, filled: &Allocation) -> Result<()> {
        let (at, to) = (self.memory.gpu_va()?, filled.gpu_va()?);
        self.lists += 1;
        self.queue.run(|list| {
            let count = |list: &mut List, at: u64| {
                list.copy(at, at + 8 * self.lists, 8)?;
                list.store(at, self.lists)
            };
            count(list, at)?;
            (0..TIMES).try_for_each(|_| list.fill(to, FILLED, 0x5A5A_5A5A))?;
            count(list, at + SECOND)
        })?;
        Ok(())
    }

    fn is_right(&self, patience: Duration) -> Result<()> {
        self.queue.wait(0, Some(patience))?;
        for number in 0..self.lists {
            for part in [0, SECOND] {
                let seen = self.memory.read_u64(part + 8 * (number + 1))?;
                ensure!(seen == number, "list {} found {seen} at {part}, not {number}", number + 1);
            }
        }
        Ok(())
    }
}

fn granularity(system: &dyn System) -> Result<()> {
    let patience = system.patience();
    let processes = ["long", "counts", "counts beside"].map(|name| system.process(name, false));
    let [long, one, other] = processes;
    let (long, one, other) = (long?, one?, other?);
    let said = capabilities(&*long)?.PreemptionCaps;
    // An engine that comes off in a command buffer's middle is finer than the boundary of a buffer.
    let graphics = D3DKMDT_GRAPHICS_PREEMPTION_GRANULARITY::D3DKMDT_GRAPHICS_PREEMPTION_DMA_BUFFER_BOUNDARY;
    let compute = D3DKMDT_COMPUTE_PREEMPTION_GRANULARITY::D3DKMDT_COMPUTE_PREEMPTION_DMA_BUFFER_BOUNDARY;
    let is_finer = said.GraphicsPreemptionGranularity.0 > graphics.0 && said.ComputePreemptionGranularity.0 > compute.0;
    ensure!(is_finer, "the driver says {said:?}, and comes off in the middle of a command buffer");
    let devices = [long.adapter().device()?, one.adapter().device()?, other.adapter().device()?];
    let (queue, run) = (devices[0].queue(0, RING, 0, 0)?, Loop::new(&devices[0])?);
    queue.run(|list| list.indirect(run.address, run.length))?;
    run.begins(patience)?;
    let mut counters = [Counter::new(&devices[1])?, Counter::new(&devices[2])?];
    let filled = [devices[1].allocate(FP_KIND_SYSTEM, FILLED, 0)?, devices[2].allocate(FP_KIND_SYSTEM, FILLED, 0)?];
    // Each comes to its end although the long buffer does not, and the three take turns.
    for _ in 0..3 {
        for (counter, filled) in counters.iter_mut().zip(&filled) {
            (0..4).try_for_each(|_| counter.count(filled))?;
        }
        counters.iter().try_for_each(|counter| Ok::<_, anyhow::Error>(counter.queue.wait(0, Some(patience))?))?;
    }
    counters.iter().try_for_each(|counter| counter.is_right(patience))?;
    run.end()?;
    queue.wait(0, Some(patience))?;
    ensure!(devices.iter().map(is_active).collect::<Result<Vec<_>>>()? == [true; 3], "a device is lost");
    Ok(())
}

/// Resets of a storm, of which each tenth is the adapter's.
const ROUNDS: u64 = 20;

fn storm(system: &dyn System) -> Result<()> {
    let patience = system.patience();
    let (control, beside) = (system.process("controls", true)?, system.process("beside", false)?);
    let plain = Plain::open(&*control)?;
    plain.unlimited()?;
    let mut others = [beside.adapter().device()?, beside.adapter().device()?];
    let mut dice = 1_u64;
    for round in 0..ROUNDS {
        dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        // CAST: below 2; below 10000.
        let (node, pause) = ((dice >> 33 & 1) as u32, Duration::from_micros((dice >> 40) % 10_000));
        let process = system.process("busy", false)?;
        let device = process.adapter().device()?;
        let (queue, run) = (device.queue(node, RING, 0, 0)?, Loop::new(&device)?);
        queue.run(|list| list.indirect(run.address, run.length))?;
        run.begins(patience)?;
        works(&others[0], 1 - node, round + 1, patience)?;
        std::thread::park_timeout(pause);
        let adapter = round % 10 == 9;
        plain.force((!adapter).then_some(NodeOrdinal(node)))?;
        until("the loss of the device that was busy", patience, || Ok(!is_active(&device)?))?;
        is_over(&queue, patience)?;
        for other in &mut others {
            if adapter {
                until("the loss of a device beside it", patience, || Ok(!is_active(other)?))?;
                *other = beside.adapter().device()?;
            }
            ensure!(is_active(other)?, "round {round}: a device beside the one that was busy is lost");
            for node in 0..2 {
                works(other, node, round + 100, patience)?;
            }
        }
    }
    Ok(())
}

fn two_devices(system: &dyn System) -> Result<()> {
    let patience = system.patience();
    let (hangs, beside) = (system.process("hangs", false)?, system.process("works", false)?);
    let (bad, good) = (hangs.adapter().device()?, beside.adapter().device()?);
    let plain = Plain::open(&*beside)?;
    let (hung, queue) = (bad.queue(0, RING, 0, 0)?, good.queue(0, RING, 0, 0)?);
    let (page, fence) = (good.allocate(FP_KIND_SYSTEM, 4096, 0)?, good.fence(0, 0)?);
    let event = plain.event_of(&fence, 1)?;
    let run = Loop::new(&bad)?;
    hung.run(|list| list.indirect(run.address, run.length))?;
    run.begins(patience)?;
    // On the engine that hangs, behind it; and on another one meanwhile.
    let at = page.gpu_va()?;
    queue.run(|list| {
        list.store(at, 7)?;
        list.signal(&fence, 1)
    })?;
    works(&good, 1, 5, patience)?;
    until("the loss of the device that hangs", patience, || Ok(!is_active(&bad)?))?;
    until("work behind the hang", patience, || Ok(page.read_u64(0)? == 7))?;
    ensure!(beside.wait_event(event, patience), "the thread that waits for that work sleeps on");
    beside.close(event);
    // CAST: an address.
    ensure!(beside.load(fence.info()?.value_address as usize)? == 1, "the fence of that work is not at its value");
    ensure!(is_active(&good)?, "the device that worked is lost");
    is_over(&hung, patience)?;
    drop(hung);
    works(&hangs.adapter().device()?, 0, 9, patience)
}

fn long(system: &dyn System) -> Result<()> {
    let patience = system.patience();
    let (process, beside) = (system.process("long", false)?, system.process("short", false)?);
    let (device, other) = (process.adapter().device()?, beside.adapter().device()?);
    let (queue, run) = (device.queue(0, RING, 0, 0)?, Loop::new(&device)?);
    let page = device.allocate(FP_KIND_SYSTEM, 4096, 0)?;
    let at = page.gpu_va()?;
    queue.run(|list| list.indirect(run.address, run.length))?;
    queue.run(|list| list.store(at, 3))?;
    run.begins(patience)?;
    let end = Instant::now() + system.tdr_delay() * 3;
    while Instant::now() < end {
        works(&other, 0, 1, patience)?;
        std::thread::park_timeout(system.tdr_delay() / 20);
    }
    run.end()?;
    until("the end of the long buffer", patience, || Ok(page.read_u64(0)? == 3))?;
    ensure!(is_active(&device)? && is_active(&other)?, "a device is lost");
    Ok(())
}

fn too_long(system: &dyn System) -> Result<()> {
    let patience = system.patience();
    let process = system.process("long", false)?;
    let device = process.adapter().device()?;
    let (queue, run) = (device.queue(0, RING, 0, 0)?, Loop::new(&device)?);
    // The last moment at which it had not begun, however long this thread was kept from looking.
    let mut begun = Instant::now();
    queue.run(|list| list.indirect(run.address, run.length))?;
    until("the run of a buffer that does not end", patience, || {
        let now = Instant::now();
        let runs = run.runs()?;
        begun = if runs { begun } else { now };
        Ok(runs)
    })?;
    until("the loss of the device", patience, || Ok(!is_active(&device)?))?;
    let after = begun.elapsed();
    ensure!(after >= system.tdr_delay() / 2, "it was lost after {after:?}, long before the delay");
    is_over(&queue, patience)?;
    drop(queue);
    works(&process.adapter().device()?, 0, 2, patience)
}

fn many(system: &dyn System) -> Result<()> {
    let patience = system.patience();
    let process = system.process("many", false)?;
    let device = process.adapter().device()?;
    let queue = device.queue(0, RING, 0, 0)?;
    let runs = (0..12).map(|_| Loop::new(&device)).collect::<Result<Vec<_>>>()?;
    // Each begins when the one before it ends.
    let mut since = Instant::now();
    let mut late = false;
    for run in &runs {
        queue.run(|list| list.indirect(run.address, run.length))?;
    }
    for run in &runs {
        until("the run of a buffer, or the loss of its device", patience, || Ok(run.runs()? || !is_active(&device)?))?;
        std::thread::park_timeout(system.tdr_delay() / 4);
        let now = Instant::now();
        run.end()?;
        late |= since.elapsed() >= system.tdr_delay();
        since = now;
        if !is_active(&device)? {
            ensure!(late, "the device is lost");
            return Err(TooBusy.into());
        }
    }
    queue.wait(0, Some(patience))?;
    ensure!(is_active(&device)?, "the device is lost");
    Ok(())
}

fn forced(system: &dyn System) -> Result<()> {
    let patience = system.patience();
    let (control, beside) = (system.process("controls", true)?, system.process("beside", false)?);
    let other = beside.adapter().device()?;
    let plain = Plain::open(&*control)?;
    for round in 0..3 {
        let process = system.process("busy", false)?;
        let device = process.adapter().device()?;
        let (queue, run) = (device.queue(0, RING, 0, 0)?, Loop::new(&device)?);
        works(&other, 1, round + 1, patience)?;
        queue.run(|list| list.indirect(run.address, run.length))?;
        run.begins(patience)?;
        let adapter = round == 2;
        plain.force((!adapter).then_some(NodeOrdinal(0)))?;
        until("the loss of the device that was busy", patience, || Ok(!is_active(&device)?))?;
        if adapter {
            until("the loss of the device beside it", patience, || Ok(!is_active(&other)?))?;
        } else {
            works(&other, 1, round + 11, patience)?;
            ensure!(is_active(&other)?, "the device beside it is lost");
        }
        is_over(&queue, patience)?;
        drop(queue);
        works(&process.adapter().device()?, 0, round + 21, patience)?;
    }
    Ok(())
}
