//! One machine, the toy in it, and everything a process can do with it, in stages.

mod linked;
mod testing;
mod unheard;

use std::sync::Arc;

use dxgkrnl_model::adapter::compute::DeviceClass;
use dxgkrnl_model::adapter::{Adapter, AdapterConfig};
use dxgkrnl_model::os::Os;
use dxgkrnl_model::pci::DeviceConfig;
use dxgkrnl_model::personality::{MS, Personality};
use dxgkrnl_model::process::End;
use nt_model::Violation;
use wddm_abi::NTSTATUS;
use wddm_abi::ntstatus::{STATUS_DATA_ERROR, STATUS_NOT_SUPPORTED};

use crate::client::{Client, Device};
use crate::toy::gpu::opcode;
use crate::toy::{self, Options, Toy, memory::want};

/// What a tour goes through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Only loading, starting, stopping.
    Start,
    /// Allocations, paging, packets.
    Packets,
    /// Hardware queues that the OS submits to.
    KernelQueue,
    /// Doorbells, native fences, logs.
    UserQueue,
    /// A page fault on each node.
    Faults,
    /// A hang of the hardware-scheduled node.
    QueueHang,
    /// What seems to be a hang of the hardware-scheduled node, and is none: of a toy that lets go late.
    QueueLate,
    /// A hang of the packet node.
    PacketHang,
    /// A packet that takes long, but can be preempted.
    Preemption,
    /// A process that is killed while its queue waits for a fence.
    Kill,
    /// A process that is killed while its queue has nothing to do.
    KillIdle,
    /// A pause in which the GPU may sleep.
    Sleep,
    /// A hang that takes the adapter, with a thread in the driver.
    AdapterHang,
    /// A native fence that a second adapter knows, too.
    TwoAdapters,
    /// Kernel-mode testing.
    Testing,
    /// The device is taken off the bus while a process has objects on it.
    Removal,
    /// Work on the last engine of a link, and its hang.
    Linked,
    /// A wait of a process that ends long before TdrDelay is over.
    Unheard,
}

/// How a tour ended.
pub struct Ended {
    /// Names of the broken rules, each once, in alphabetical order.
    pub broken: Vec<&'static str>,
    pub violations: Vec<Violation>,
    /// Why a stage ended early.
    pub stopped: Option<String>,
    /// What went wrong on the toy's GPU.
    pub errors: Vec<String>,
    pub toy: Option<Arc<Toy>>,
    pub report: dxgkrnl_model::report::Report,
}

impl Stage {
    pub const ALL: [Self; 17] = [
        Self::Start,
        Self::Packets,
        Self::KernelQueue,
        Self::UserQueue,
        Self::Faults,
        Self::QueueHang,
        Self::PacketHang,
        Self::Preemption,
        Self::Kill,
        Self::KillIdle,
        Self::Sleep,
        Self::AdapterHang,
        Self::TwoAdapters,
        Self::Testing,
        Self::Removal,
        Self::Linked,
        Self::Unheard,
    ];

    /// Whether the stage uses doorbells.
    pub fn needs_user_mode(self) -> bool {
        matches!(
            self,
            Self::UserQueue
                | Self::QueueHang
                | Self::Kill
                | Self::KillIdle
                | Self::Sleep
                | Self::TwoAdapters
                | Self::Linked
                | Self::Unheard
        )
    }
}

/// Windows with a virtual clock and short timeouts.
pub fn windows() -> Personality {
    let mut personality = Personality::collecting().seeded(7);
    personality.tdr.delay = 100 * MS;
    personality.tdr.ddi_delay = 200 * MS;
    personality
}

/// Runs a stage with this toy on this Windows.
pub fn run(options: Options, stage: Stage, personality: Personality) -> Ended {
    let adapters = if stage == Stage::TwoAdapters { 2 } else { 1 };
    play(options, personality, adapters, |os, _| {
        let adapter = os.adapters().swap_remove(0);
        visit(os, &adapter, stage).map_err(|status| format!("{stage:?}: {status:?}"))
    })
}

/// An adapter whose INF names the class that the toy is for, or for a mutant the other one.
fn config(options: Options) -> AdapterConfig {
    let compute_only = options.compute_only != (options.mutant == "compute-class");
    let class = if compute_only { DeviceClass::ComputeAccelerator } else { DeviceClass::Display };
    let mut device = DeviceConfig::default();
    if options.doorbells_in_bar {
        device.memory_pages = toy::start::bar_bytes(&options) / 4096;
    }
    // CAST: a handful.
    AdapterConfig { device, class: Some(class), links: options.engines as u32, ..AdapterConfig::default() }
}

/// Runs something else with so many toys: `act` gets the first, and returns why it ended early.
pub fn play(
    options: Options,
    personality: Personality,
    adapters: usize,
    act: impl FnOnce(&Os, &Arc<Toy>) -> Result<(), String>,
) -> Ended {
    let os = Os::boot(personality).unwrap_or_else(|error| panic!("{error}"));
    let mut errors = Vec::new();
    let mut stopped = None;
    let mut toy = None;
    match os.load_driver(&Toy::driver(options)) {
        Err(error) => stopped = Some(error.to_string()),
        Ok(driver) => match os.add_adapter(&driver, config(options)) {
            Err(error) => stopped = Some(error.to_string()),
            Ok(_) => {
                toy = Toy::last();
                let mut toys = Vec::from_iter(toy.clone());
                if adapters == 2 {
                    stopped = os.add_adapter(&driver, config(options)).err().map(|error| error.to_string());
                    toys.extend(Toy::last());
                }
                if stopped.is_none()
                    && let Some(toy) = &toy
                {
                    stopped = act(&os, toy).err();
                }
                os.report();
                os.shut_down();
                for toy in toys {
                    errors.append(&mut toy.errors.lock().unwrap_or_else(|error| error.into_inner()));
                }
            }
        },
    }
    os.shut_down();
    let report = os.report();
    let mut broken: Vec<_> = report.broken().map(|rule| rule.rule.name).collect();
    broken.sort_unstable();
    Ended { broken, violations: os.kernel().rules.violations(), stopped, errors, toy, report }
}

/// What a process does in a stage.
///
/// # Errors
/// What a call of it returned.
pub fn visit(os: &Os, adapter: &Arc<Adapter>, stage: Stage) -> Result<(), NTSTATUS> {
    if stage == Stage::Start {
        return Ok(());
    }
    let process = os.create_process("tour.exe");
    let result = {
        let client = Client::new(os, &process)?;
        go(&client, stage)
    };
    if stage == Stage::Removal {
        os.remove_by_surprise(adapter);
    }
    let killed = result.is_err() || matches!(stage, Stage::Kill | Stage::KillIdle);
    process.end(if killed { End::Terminated } else { End::Normal });
    if stage == Stage::Sleep {
        os.set_adapter_power(adapter, false);
        os.set_adapter_power(adapter, true);
    }
    result
}

fn go(client: &Client<'_>, stage: Stage) -> Result<(), NTSTATUS> {
    expect(client.escape(5).unwrap_or(!5).into(), (!5_u32).into())?;
    let device = client.device()?;
    match stage {
        Stage::Start => Ok(()),
        Stage::Packets => packets(&device),
        Stage::KernelQueue => kernel_queue(&device),
        Stage::UserQueue => user_queue(&device),
        Stage::Faults => faults(&device),
        Stage::QueueHang => queue_hang(&device),
        Stage::QueueLate => queue_late(&device),
        Stage::PacketHang => packet_hang(&device),
        Stage::Preemption => preemption(&device),
        Stage::Kill => kill(&device),
        Stage::KillIdle => kill_idle(&device),
        Stage::Sleep => sleep(&device),
        Stage::AdapterHang => adapter_hang(&device),
        Stage::TwoAdapters => linked::two_adapters(&device),
        Stage::Testing => testing::visit(&device),
        Stage::Removal => kernel_queue(&device),
        Stage::Linked => linked::linked(&device),
        Stage::Unheard => unheard::visit(&device),
    }?;
    let leaves = matches!(stage, Stage::Kill | Stage::KillIdle | Stage::Removal | Stage::Unheard);
    if leaves { Ok(()) } else { device.destroy() }
}

/// What the GPU was to leave in memory.
fn expect(found: u64, wanted: u64) -> Result<(), NTSTATUS> {
    if found == wanted { Ok(()) } else { Err(STATUS_DATA_ERROR) }
}

fn packets(device: &Device<'_>) -> Result<(), NTSTATUS> {
    let commands = device.memory(4096, 0)?;
    let target = device.memory(0x4000, want::LOCAL)?;
    let physical = device.memory(4096, want::PHYSICAL)?;
    commands.write(0, &[opcode::FILL, target.gpu, 0x4000, 0x1234_5678, opcode::COPY, target.gpu, physical.gpu, 4096]);
    let context = device.context()?;
    let fence = device.monitored_fence()?;
    device.submit(context, commands.gpu, 64)?;
    device.signal_behind(context, fence.handle, 1)?;
    device.wait(fence.handle, 1)?;
    expect(target.read(0x3FF8), 0x1234_5678_1234_5678)?;
    expect(physical.read(0), 0x1234_5678_1234_5678)?;
    // Content survives eviction.
    device.evict(target.handle)?;
    device.make_resident(target.handle)?;
    expect(target.read(0x2000), 0x1234_5678_1234_5678)?;
    let system = device.memory(4096, 0)?;
    device.evict(system.handle)?;
    device.free(system.handle)?;
    device.destroy_fence(fence.handle)?;
    // Page tables that change in order with work.
    let updated = device.monitored_fence()?;
    let tile = device.map_tile(context.handle, updated.handle, physical.handle)?;
    commands.write(0, &[opcode::WRITE, tile + 64, 77]);
    device.submit(context, commands.gpu, 24)?;
    device.signal_behind(context, updated.handle, 2)?;
    device.wait(updated.handle, 2)?;
    expect(physical.read(64), 77)?;
    device.destroy_fence(updated.handle)?;
    device.free(physical.handle)
}

fn kernel_queue(device: &Device<'_>) -> Result<(), NTSTATUS> {
    let commands = device.memory(4096, 0)?;
    let queue = device.queue(false)?;
    commands.write(0, &[opcode::WRITE, commands.gpu + 256, 77]);
    device.submit_to_queue(queue, commands.gpu, 24, 1)?;
    device.wait(queue.progress, 1)?;
    expect(commands.read(256), 77)
}

fn user_queue(device: &Device<'_>) -> Result<(), NTSTATUS> {
    let commands = device.memory(4096, 0)?;
    let queue = device.queue(true)?;
    let mut ring = device.ring(queue)?;
    let (ours, theirs) = (device.native_fence()?, device.native_fence()?);
    // The queue waits for the CPU, and the CPU for the queue.
    let words = [opcode::WAIT, theirs.gpu, 5, theirs.handle.into(), opcode::SIGNAL, ours.gpu, 9, ours.handle.into()];
    let value = device.ring_up(&mut ring, commands, 0, &words)?;
    device.client.pass(3);
    device.signal(theirs.handle, 5)?;
    device.wait(ours.handle, 9)?;
    device.wait(queue.progress, value)?;
    for adapter in device.client.os.adapters() {
        device.client.os.recreate_fence_logs(&adapter);
        device.client.os.recreate_scheduling_logs(&adapter);
    }
    // Another queue, for which a doorbell may have to be taken away.
    let second = device.queue(true)?;
    let mut other = device.ring(second)?;
    let words = [opcode::SIGNAL, ours.gpu, 10, ours.handle.into()];
    let value = device.ring_up(&mut other, commands, 256, &words)?;
    device.wait(second.progress, value)?;
    device.wait(ours.handle, 10)?;
    for step in 0..3_u64 {
        let words = [opcode::SIGNAL, ours.gpu, 11 + step, ours.handle.into()];
        let value = device.ring_up(&mut ring, commands, 512 + step as usize * 128, &words)?;
        device.wait(ours.handle, 11 + step)?;
        device.wait(queue.progress, value)?;
    }
    match device.intra_gpu_fence() {
        Ok(fence) => {
            let places: Vec<_> = device.client.os.adapters().iter().flat_map(|a| a.native_fence_segments()).collect();
            expect(places.contains(&(3, 3)).into(), 1)?;
            expect(places.contains(&(0, 2)).into(), 1)?;
            // One queue waits for the other.
            let words = [opcode::WAIT, fence.gpu, 4, fence.handle.into()];
            let value = device.ring_up(&mut ring, commands, 1024, &words)?;
            device.client.pass(3);
            let words = [opcode::SIGNAL, fence.gpu, 4, fence.handle.into()];
            device.ring_up(&mut other, commands, 1280, &words)?;
            device.wait(queue.progress, value)?;
            device.destroy_fence(fence.handle)?;
        }
        Err(STATUS_NOT_SUPPORTED) => (),
        Err(status) => return Err(status),
    }
    device.destroy_ring(&other)?;
    device.destroy_fence(theirs.handle)?;
    device.destroy_fence(ours.handle)
}

fn faults(device: &Device<'_>) -> Result<(), NTSTATUS> {
    let commands = device.memory(4096, 0)?;
    commands.write(0, &[opcode::WRITE, 0x10_0000_0000, 1]);
    let client = device.client;
    let queue = device.queue(false)?;
    device.submit_to_queue(queue, commands.gpu, 24, 1)?;
    // The device is lost, which ends the wait.
    device.lost()?;
    let packet = client.device()?;
    let commands = packet.memory(4096, 0)?;
    commands.write(0, &[opcode::WRITE, 0x10_0000_0000, 1]);
    let context = packet.context()?;
    let fence = packet.monitored_fence()?;
    packet.submit(context, commands.gpu, 24)?;
    // It may be lost already.
    let _ = packet.signal_behind(context, fence.handle, 1);
    packet.lost()?;
    packet.destroy()
}

fn queue_hang(device: &Device<'_>) -> Result<(), NTSTATUS> {
    let commands = device.memory(4096, 0)?;
    let fence = device.native_fence()?;
    // Older than the one that hangs, so that it is late first.
    let innocent = device.client.device()?;
    let theirs = innocent.memory(4096, 0)?;
    let behind = innocent.queue(true)?;
    let mut behind_ring = innocent.ring(behind)?;
    let queue = device.queue(true)?;
    let mut ring = device.ring(queue)?;
    // A queue that only waits is left alone.
    let words = [opcode::WAIT, fence.gpu, 1, fence.handle.into()];
    let value = device.ring_up(&mut ring, commands, 0, &words)?;
    device.client.pass(350);
    device.signal(fence.handle, 1)?;
    device.wait(queue.progress, value)?;
    // One that hangs is not, and what waits behind it goes on.
    device.ring_up(&mut ring, commands, 256, &[opcode::HANG])?;
    device.client.pass(5);
    let value = innocent.ring_up(&mut behind_ring, theirs, 0, &[opcode::WRITE, theirs.gpu + 256, 6])?;
    device.lost()?;
    innocent.wait(behind.progress, value)?;
    expect(theirs.read(256), 6)?;
    innocent.destroy()?;
    // The node works again.
    let other = device.client.device()?;
    let result = kernel_queue(&other);
    other.destroy()?;
    result
}

fn queue_late(device: &Device<'_>) -> Result<(), NTSTATUS> {
    let commands = device.memory(4096, 0)?;
    let queue = device.queue(true)?;
    let mut ring = device.ring(queue)?;
    device.ring_up(&mut ring, commands, 0, &[opcode::HANG])?;
    let value = device.ring_up(&mut ring, commands, 256, &[opcode::WRITE, commands.gpu + 512, 6])?;
    device.wait(queue.progress, value)?;
    expect(commands.read(512), 6)
}

fn packet_hang(device: &Device<'_>) -> Result<(), NTSTATUS> {
    let commands = device.memory(4096, 0)?;
    commands.write(0, &[opcode::HANG]);
    let context = device.context()?;
    let fence = device.monitored_fence()?;
    for _ in 0..4 {
        // More than the driver gets at a time.
        device.submit(context, commands.gpu, 8)?;
    }
    device.signal_behind(context, fence.handle, 1)?;
    device.lost()?;
    // Something may still come.
    device.client.pass(10);
    let other = device.client.device()?;
    let result = packets(&other);
    other.destroy()?;
    result
}

fn adapter_hang(device: &Device<'_>) -> Result<(), NTSTATUS> {
    let commands = device.memory(4096, 0)?;
    // What lies in local memory is lost.
    device.memory(0x4000, want::LOCAL)?;
    commands.write(0, &[opcode::HANG]);
    let context = device.context()?;
    let fence = device.monitored_fence()?;
    // Nobody writes it while the adapter is reset.
    let _still = device.native_fence();
    device.submit(context, commands.gpu, 8)?;
    device.signal_behind(context, fence.handle, 1)?;
    expect(device.client.escape(9).unwrap_or(!9).into(), (!9_u32).into())?;
    device.lost()?;
    let mut result = Ok(());
    // Six times, should it hang again.
    for _ in 0..6 {
        result = device.client.device().and_then(|other| {
            let result = packets(&other);
            other.destroy().and(result)
        });
        if result.is_ok() {
            break;
        }
    }
    result
}

fn preemption(device: &Device<'_>) -> Result<(), NTSTATUS> {
    let commands = device.memory(4096, 0)?;
    commands.write(0, &[opcode::LONG, 250, opcode::WRITE, commands.gpu + 256, 3]);
    let context = device.context()?;
    let fence = device.monitored_fence()?;
    device.submit(context, commands.gpu, 40)?;
    device.signal_behind(context, fence.handle, 1)?;
    device.wait(fence.handle, 1)?;
    expect(commands.read(256), 3)
}

fn kill(device: &Device<'_>) -> Result<(), NTSTATUS> {
    let commands = device.memory(4096, 0)?;
    let fence = device.native_fence()?;
    let queue = device.queue(true)?;
    let mut ring = device.ring(queue)?;
    device.ring_up(&mut ring, commands, 0, &[opcode::WAIT, fence.gpu, 1, fence.handle.into()])?;
    device.client.pass(3);
    Ok(())
}

fn kill_idle(device: &Device<'_>) -> Result<(), NTSTATUS> {
    let commands = device.memory(4096, 0)?;
    let queue = device.queue(true)?;
    let mut ring = device.ring(queue)?;
    let value = device.ring_up(&mut ring, commands, 0, &[opcode::WRITE, commands.gpu + 256, 1])?;
    device.wait(queue.progress, value)
}

fn sleep(device: &Device<'_>) -> Result<(), NTSTATUS> {
    let commands = device.memory(4096, 0)?;
    let queue = device.queue(true)?;
    let mut ring = device.ring(queue)?;
    let value = device.ring_up(&mut ring, commands, 0, &[opcode::IDLE])?;
    device.wait(queue.progress, value)?;
    device.client.pass(5);
    let value = device.ring_up(&mut ring, commands, 256, &[opcode::WRITE, commands.gpu + 1024, 4])?;
    device.wait(queue.progress, value)?;
    expect(commands.read(1024), 4)?;
    // Without power: what lay in local memory comes back, and so do values of fences.
    let local = device.memory(0x4000, want::LOCAL)?;
    let (fence, hidden) = (device.native_fence()?, device.intra_gpu_fence().ok());
    let mut words = vec![opcode::FILL, local.gpu, 0x4000, 0x1234_5678];
    for fence in [Some(&fence), hidden.as_ref()].into_iter().flatten() {
        words.extend([opcode::SIGNAL, fence.gpu, 4, fence.handle.into()]);
    }
    let value = device.ring_up(&mut ring, commands, 0, &words)?;
    device.wait(queue.progress, value)?;
    for round in 1..=4_u64 {
        let adapter = device.client.os.adapters().swap_remove(0);
        device.client.os.put_to_sleep(&adapter, round > 2);
        expect(device.client.os.is_asleep(&adapter).into(), 1)?;
        // By itself, or because a doorbell is connected.
        if round % 2 == 0 {
            device.client.os.wake_up(&adapter);
        }
        let mut words = vec![opcode::COPY, local.gpu + 0x3000, commands.gpu + 2048, 8];
        for fence in [Some(&fence), hidden.as_ref()].into_iter().flatten() {
            words.extend([opcode::WAIT, fence.gpu, 4, fence.handle.into()]);
        }
        commands.write(2048, &[round]);
        let value = device.ring_up(&mut ring, commands, 256, &words)?;
        device.wait(queue.progress, value)?;
        expect(device.client.os.is_asleep(&adapter).into(), 0)?;
        expect(commands.read(2048), 0x1234_5678_1234_5678)?;
    }
    Ok(())
}
