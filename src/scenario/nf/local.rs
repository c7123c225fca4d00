//! Values in local memory: the OS offers it in the model only, 24H2 does not.

use super::super::db::Room;
use super::super::raw::{ALL, duplicate};
use super::super::stage::PATIENCE;
use super::super::{Denied, GpuReader, Played, Raw, Scene, Setup, Stage, same};
use super::intra_gpu_record;
use crate::client::{Allocation, Device};
use anyhow::{Context, Result, ensure};
use gpu_wire::GpuVa;
use gpu_wire::packet::Encoded;
use gpu_wire::private::allocation_kind;
use umd_core::ffi::types::FP_KIND_LOCAL;
use wddm_abi::{D3DKMT_DEVICEEXECUTION_STATE, D3DKMT_HANDLE, ntstatus};

const PAGE: u64 = 4096;
/// What is taken of local memory at a time.
const CHUNK: u64 = 256 << 10;
/// The driver's local segment.
const LOCAL: u32 = 2;
const ASKED: &str = "DxgkDdiGetStandardAllocationDriverData";

fn offered() -> Setup {
    Setup::default().windows(|windows| windows.native_fence_os_caps.intra_gpu = true)
}

/// Bytes of local memory in use.
fn used(scene: &Scene) -> u64 {
    let report = scene.world.os.report();
    let segments = report.adapters.first().map(|adapter| adapter.segments.clone()).unwrap_or_default();
    segments.iter().filter(|(id, ..)| *id == LOCAL).map(|(_, used, _)| *used).sum()
}

/// Fences whose values both lie in this segment; 0: system memory.
fn in_segment(scene: &Scene, segment: u32) -> usize {
    scene.adapter().native_fence_segments().iter().filter(|places| **places == (segment, segment)).count()
}

/// A process with a queue and direct calls.
struct IntraGpuClient {
    raw: Raw,
    plain: D3DKMT_HANDLE,
    probe: GpuReader,
    device: Device,
}

impl IntraGpuClient {
    fn open(scene: &Scene, name: &str) -> Result<Self> {
        let user = scene.process(name)?;
        let device = user.open()?.device()?;
        let raw = Raw::open(&user.process, scene.adapter().luid())?;
        Ok(Self { plain: raw.device().context("device")?, raw, probe: GpuReader::new(&device)?, device })
    }

    fn fence(&self) -> Result<super::super::NativeFence> {
        self.raw.create_native_fence(&mut intra_gpu_record(self.plain)).context("an intra-GPU fence")
    }

    /// The GPU stores a word.
    fn store(&self, va: u64, value: u64) -> Played {
        let progress = self.probe.queue.run(|list| list.store(va, value))?;
        Ok(self.probe.queue.wait(progress, PATIENCE)?)
    }
}

/// With the driver's capability MapToGpuSystemProcess and without.
pub(super) fn place(stage: &Stage) -> Played {
    for map in [0, 1] {
        stage.play(offered().setting("MapToGpuSystemProcess", map), |scene| {
            same("questions for segments", scene.calls(ASKED), 2)?;
            let (one, two) = (IntraGpuClient::open(scene, "first")?, IntraGpuClient::open(scene, "second")?);
            let before = used(scene);
            let (first, second) = (one.fence()?, one.fence()?);
            same("fences in local memory", in_segment(scene, LOCAL), 2)?;
            // Packed: a page for each of the values, whatever the number of fences.
            same("bytes for two", used(scene) - before, 2 * PAGE)?;
            same("distances", (second.gpu - first.gpu, second.monitored - first.monitored), (8, 8))?;
            same("addresses for the CPU", (first.cpu, second.cpu), (0, 0))?;
            // No other process's.
            let other = two.fence()?;
            same("bytes for another process", used(scene) - before, 4 * PAGE)?;
            // Nobody's old data; the initial value is user mode's to store, by the GPU.
            for fence in [first, second] {
                same("CurrentValue", one.probe.read(fence.gpu)?, 0)?;
                same("MonitoredValue", one.probe.read(fence.monitored)?, u64::MAX)?;
            }
            one.store(first.gpu, 41)?;
            two.store(other.gpu, 42)?;
            same("CurrentValue then", (one.probe.read(first.gpu)?, one.probe.read(second.gpu)?), (41, 0))?;
            same("that of the other process", two.probe.read(other.gpu)?, 42)?;
            // The memory goes back with the last of the process.
            one.raw.destroy_fence(first.handle).context("destroy")?;
            same("bytes with one of two", used(scene) - before, 4 * PAGE)?;
            one.raw.destroy_fence(second.handle).context("destroy")?;
            same("bytes of the other process", used(scene) - before, 2 * PAGE)?;
            // The next one finds nothing of it; and a process gives back what it has not destroyed.
            let third = one.fence()?;
            same("CurrentValue of a later one", one.probe.read(third.gpu)?, 0)?;
            drop((one, two));
            scene.until("the return of the memory", || Ok(used(scene) == 0 && in_segment(scene, LOCAL) == 0))
        })?;
    }
    Ok(())
}

/// The GPU cannot write MonitoredValue there either, and what is in system memory elsewhere is as ever.
pub(super) fn rights(stage: &Stage) -> Played {
    stage.play(offered(), |scene| {
        let client = IntraGpuClient::open(scene, "client")?;
        let (intra, plain) = (client.fence()?, client.raw.native_fence(client.plain, 9).context("a fence")?);
        same("fences in local memory", in_segment(scene, LOCAL), 1)?;
        same("a fence of the default type", (client.raw.load(plain.cpu)?, client.probe.read(plain.gpu)?), (9, 9))?;
        client.probe.queue.run(|list| list.store(intra.monitored, 1))?;
        let lost = D3DKMT_DEVICEEXECUTION_STATE::D3DKMT_DEVICEEXECUTION_ERROR_DMAPAGEFAULT;
        scene.until("the fault", || Ok(client.device.state()?.execution == lost.0.cast_unsigned()))
    })
}

/// Takes local memory in chunks until there is no more of it.
fn fill(scene: &Scene, device: &Device) -> Result<Vec<Allocation>> {
    let mut taken = Vec::new();
    loop {
        let before = used(scene);
        let memory = device.allocate(FP_KIND_LOCAL, CHUNK, 0)?;
        memory.gpu_va()?;
        if used(scene) == before {
            return Ok(taken);
        }
        taken.push(memory);
    }
}

pub(super) fn pressure(stage: &Stage) -> Played {
    stage.play(offered().setting("LocalSegmentSize", 16 << 20), |scene| {
        let (one, two) = (IntraGpuClient::open(scene, "first")?, IntraGpuClient::open(scene, "second")?);
        let early = one.fence()?;
        one.store(early.gpu, 7)?;
        // Everything else is taken, written, given up and taken again: the fence stays where it is.
        for round in 0..2 {
            let taken = fill(scene, &one.device)?;
            ensure!(taken.len() > 50, "{} chunks of local memory", taken.len());
            let progress = one
                .probe
                .queue
                .run(|list| taken.iter().try_for_each(|memory| list.fill(memory.gpu_va()?, CHUNK, 0xDEAD_BEEF)))?;
            one.probe.queue.wait(progress, PATIENCE)?;
            same("CurrentValue in a full segment", one.probe.read(early.gpu)?, 7)?;
            same("MonitoredValue in a full segment", one.probe.read(early.monitored)?, u64::MAX)?;
            same("fences in local memory", in_segment(scene, LOCAL), 1)?;
            if round == 1 {
                // A page is still free where no chunk fits.
                let room = Room::new(&one.raw)?;
                while used(scene) < 16 << 20 {
                    let page = room.create(allocation_kind::LOCAL, PAGE).context("a page")?;
                    room.make_resident(scene, page)?;
                }
                // No room: system memory, and the same to user mode.
                let late = two.fence()?;
                same("fences in local memory", in_segment(scene, LOCAL), 1)?;
                same("the late one's address for the CPU", late.cpu, 0)?;
                same("its values", (two.probe.read(late.gpu)?, two.probe.read(late.monitored)?), (0, u64::MAX))?;
                signal_and_wait(&two, late.gpu)?;
                two.raw.destroy_fence(late.handle).context("destroy")?;
            }
        }
        signal_and_wait(&one, early.gpu)?;
        one.raw.destroy_fence(early.handle).context("destroy")
    })
}

/// A queue of node 1 waits for one of node 0.
fn signal_and_wait(client: &IntraGpuClient, fence: u64) -> Played {
    let second = client.device.queue(1, 64 << 10, 0, 0)?;
    let waited = second.run(|list| list.raw(Encoded::fence_wait(GpuVa(fence), 100).as_bytes()))?;
    let signaled = client.probe.queue.run(|list| list.raw(Encoded::fence_signal(GpuVa(fence), 100).as_bytes()))?;
    client.probe.queue.wait(signaled, PATIENCE)?;
    second.wait(waited, PATIENCE)?;
    same("the value", client.probe.read(fence)?, 100)
}

pub(super) fn shared(stage: &Stage) -> Played {
    stage.play(offered(), |scene| {
        let (one, two) = (IntraGpuClient::open(scene, "creator")?, IntraGpuClient::open(scene, "opener")?);
        let before = used(scene);
        let mut record = intra_gpu_record(one.plain);
        record.Info.Flags.set_Shared(true);
        record.Info.Flags.set_NtSecuritySharing(true);
        let fence = one.raw.create_native_fence(&mut record).context("a shared one")?;
        same("fences in local memory", (in_segment(scene, LOCAL), used(scene) - before), (0, 0))?;
        let handle = one.raw.share(fence.handle, ALL).context("share")?;
        let handle = duplicate(handle, &one.raw.process, &two.raw.process)?;
        let opened = two.raw.open_native_fence(two.plain, handle).context("open")?;
        two.raw.close(handle);
        same("addresses for the CPU", (fence.cpu, opened.cpu), (0, 0))?;
        // Nobody waits or signals from the CPU, whoever has it.
        let refused = Err(Denied(ntstatus::STATUS_INVALID_PARAMETER));
        same("a signal from the CPU", two.raw.signal_cpu(two.plain, &[(opened.handle, 1)]), refused)?;
        let waits = one.probe.queue.run(|list| list.raw(Encoded::fence_wait(GpuVa(fence.gpu), 5).as_bytes()))?;
        two.probe.queue.run(|list| list.raw(Encoded::fence_signal(GpuVa(opened.gpu), 5).as_bytes()))?;
        one.probe.queue.wait(waits, PATIENCE)?;
        same("the value", (one.probe.read(fence.gpu)?, two.probe.read(opened.gpu)?), (5, 5))
    })
}

/// A driver whose local memory the CPU does not see keeps MonitoredValue where it was; on 24H2 it is not even asked.
pub(super) fn optimized(stage: &Stage) -> Played {
    for (offered, questions) in [(false, 0), (true, 1)] {
        let setup = Setup::default().windows(|windows| windows.native_fence_os_caps.optimized_default = offered);
        stage.play(setup, |scene| {
            same("questions for segments", scene.calls(ASKED), questions)?;
            let client = IntraGpuClient::open(scene, "client")?;
            let before = used(scene);
            let fence = client.raw.native_fence(client.plain, 3).context("a fence")?;
            same("bytes of local memory", used(scene), before)?;
            let places = scene.adapter().native_fence_segments();
            ensure!(places.iter().all(|places| *places == (0, 0)), "{places:?}");
            let (event, handle) = client.raw.event();
            client.raw.wait_cpu(client.plain, &[(fence.handle, 9)], false, Some(handle)).context("a wait")?;
            same("MonitoredValue", client.probe.read(fence.monitored)?, 8)?;
            client.probe.queue.run(|list| list.raw(Encoded::fence_signal(GpuVa(fence.gpu), 9).as_bytes()))?;
            ensure!(client.raw.wait_event(&event, PATIENCE.unwrap_or_default()), "the waiter was not woken");
            client.raw.close(handle);
            Ok(())
        })?;
    }
    Ok(())
}
