//! StartDevice and StopDevice. Source: `DxgkDdiStartDevice`, `DxgkDdiStopDevice`.

use crate::adapter::{Adapter, Census, EngineHost, Gpu, LocalMemory, Routines, Started, Threads};
use crate::asked::Features;
use crate::doorbell_pool::Doorbells;
use crate::dxgkrnl::Dxgkrnl;
use crate::engine_thread;
use crate::features::Grounds;
use crate::handle::Handle;
use crate::interrupt_source::InterruptSource;
use crate::irql::{AtMostDispatch, Passive};
use crate::keeper;
use crate::let_go;
use crate::paging_contexts::PagingContexts;
use crate::plan::Plan;
use crate::platform::{Pages, Platform, SettingsKey};
use crate::registers::Registers;
use crate::settings::Settings;
use crate::standing::Standing;
use crate::status::{self, Error, Result};
use crate::strays::Strays;
use crate::tracing::Event;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use gpu_engine::engine::Engine;
use gpu_engine::gpu::Setup;
use gpu_engine::host::{Host, Lock};
use gpu_engine::memory::Span;
use gpu_engine::monitored::MonitoredFences;
use gpu_engine::mutation::Mutation;
use gpu_engine::node::Control;
use gpu_engine::packet_node::PacketQueue;
use gpu_engine::shared::{Shared, try_box};
use gpu_wire::NODE_COUNT;
use gpu_wire::doorbell::Model;

/// A memory resource of the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemoryResource {
    /// Physical address.
    pub address: i64,
    /// Bytes.
    pub length: u64,
}

/// What StartDevice learnt from the OS's records.
pub struct StartInfo<'a> {
    /// The OS.
    pub dxgkrnl: Dxgkrnl,
    /// The adapter's own handle, for routines at the device's level.
    pub adapter: Handle,
    /// What runs at the device's level.
    pub routines: Routines,
    /// Registry path of the device, UTF-16.
    pub registry_path: &'a [u16],
    /// The first memory resource, if the device has one.
    pub memory: Option<MemoryResource>,
    /// Whether the device has an interrupt.
    pub interrupt: bool,
    /// `HighestPhysicalAddress`.
    pub highest_physical_address: u64,
    /// `DXGK_START_INFO.RequiredDmaQueueEntry`: packets that a node has room for beforehand.
    pub required_dma_queue_entries: u32,
}

/// Starts the adapter.
///
/// # Errors
/// [`Error::NoMemory`], a callback's, or [`Error::InvalidParameter`] when it is started already. Nothing is left
/// behind.
pub fn start<P: Platform>(irql: &Passive, adapter: &Adapter<P>, info: &StartInfo<'_>) -> Result<()> {
    let result = try_start(irql, adapter, info);
    adapter.platform.trace(|| Event::StartDevice {
        // CAST: a small number.
        node_count: adapter.with_started(|started| started.gpu.nodes.len()).unwrap_or_default() as u32,
        status: status::of(result),
    });
    result
}

fn try_start<P: Platform>(irql: &Passive, adapter: &Adapter<P>, info: &StartInfo<'_>) -> Result<()> {
    if adapter.started().is_ok() {
        return Err(Error::InvalidParameter);
    }
    let platform = &adapter.platform;
    let as_set = Settings::read(irql, platform, SettingsKey::Path(info.registry_path));
    let settings = armed(adapter, as_set);
    #[cfg(feature = "mutants")]
    let settings = kept(settings, &as_set, mutation(irql, platform, info));
    // Set before the negotiation: the OS may ask the driver about a feature while the driver asks the OS.
    adapter.set_settings(settings);
    adapter.note_interface(&info.dxgkrnl);
    let grounds = Grounds { settings: &settings, is_test_signing: adapter.is_test_signing };
    let plan = Plan::negotiate(irql, &info.dxgkrnl, info.adapter.as_ptr(), adapter.form, grounds);
    let (pages, doorbells) = make_doorbells(irql, platform, &settings)?;
    let gpu = make_gpu(irql, platform, info, &plan, &settings, pages.span())?;
    let started = make_started(adapter, info, &plan, gpu, doorbells, pages)?;
    let running = start_engines(irql, platform, &started).and_then(|()| adapter.publish(started.clone()));
    if let Err(error) = running {
        halt(irql, &started);
        tear_down(irql, &started);
        return Err(error);
    }
    let size = started.gpu.host.local_size();
    let written = platform.set_number(irql, info.registry_path, MEMORY_SIZE, size);
    print_start(adapter, &started, written);
    Ok(())
}

/// The value of the device's key in which dialogs look for the size of an adapter's memory. The other values of the
/// kind are constants, and in the INF.
///
/// Source: none that is published has this name, which tools read; windows-driver-docs
/// display/registering-hardware-information has `MemorySize`, of 32 bits, which is not written.
const MEMORY_SIZE: &str = "HardwareInformation.qwMemorySize";

// Each part of the start is a function of its own and not inlined: what it needs of the kernel's stack, it gives back
// before the next begins.

/// Bytes of a physical doorbell.
pub(crate) const fn doorbell_size(settings: &Settings) -> u64 {
    settings.doorbell_pages * gpu_wire::PAGE_SIZE
}

/// Pages for the physical doorbells, of each one behind another, and the pool of these.
#[inline(never)]
fn make_doorbells<P: Platform>(
    irql: &Passive,
    platform: &P,
    settings: &Settings,
) -> Result<(P::Pages, Doorbells<EngineHost<P>>)> {
    let count = match settings.doorbell_model {
        Model::Dedicated => settings.physical_doorbells,
        Model::Global => 1,
    };
    let places = match settings.doorbell_model {
        // CAST: at most 256.
        Model::Dedicated => count as usize,
        // There is a place for each doorbell, made with it.
        Model::Global => 0,
    };
    let pages = platform.allocate_pages(irql, count * settings.doorbell_pages)?;
    Ok((pages, Doorbells::<EngineHost<P>>::new(places)?))
}

/// What the engines' threads have.
#[inline(never)]
fn make_threads<P: Platform>(irql: &Passive, platform: &P, settings: &Settings) -> Result<Box<Threads<P>>> {
    Ok(try_box(Threads::new(irql, platform, settings)?)?)
}

/// The GPU's surroundings: local memory, the engines' events, the interrupt.
#[inline(never)]
fn make_host<P: Platform>(
    irql: &Passive,
    platform: &P,
    info: &StartInfo<'_>,
    settings: &Settings,
) -> Result<EngineHost<P>> {
    let local = LocalMemory::allocate(irql, platform, settings.local_segment_size)?;
    let wake = [platform.event(irql)?, platform.event(irql)?, platform.event(irql)?];
    let threads = make_threads(irql, platform, settings)?;
    let registers = match info.memory {
        Some(memory) if info.interrupt => Some(Registers::map(irql, &info.dxgkrnl, memory.address, memory.length)?),
        Some(_) => {
            platform.print(format_args!(
                "fencepost: the device has memory but no interrupt, and is run as if it had neither\n"
            ));
            None
        }
        None => None,
    };
    let interrupt = InterruptSource::new(registers, info.dxgkrnl.clone(), info.routines.report, info.adapter);
    let interrupt = Shared::try_new(interrupt)?;
    let highest = info.highest_physical_address;
    Ok(EngineHost::new(platform.clone(), info.dxgkrnl.clone(), highest, local, wake, threads, interrupt))
}

/// The pages of each physical doorbell, of all that there are.
#[inline(never)]
fn parted(doorbells: Span<'static>, size: u64) -> Result<Vec<Span<'static>>> {
    let count = doorbells.len() / size;
    let mut pages = Vec::new();
    // CAST: at most 256.
    pages.try_reserve_exact(count as usize).map_err(|_| Error::NoMemory)?;
    pages.extend((0..count).map(|index| doorbells.part(index * size, size)));
    Ok(pages)
}

/// The GPU, idle.
#[inline(never)]
fn make_gpu<P: Platform>(
    irql: &Passive,
    platform: &P,
    info: &StartInfo<'_>,
    plan: &Plan,
    settings: &Settings,
    doorbells: Span<'static>,
) -> Result<Shared<Gpu<P>>> {
    let pages = parted(doorbells, doorbell_size(settings))?;
    let setup = Setup {
        model: settings.doorbell_model,
        doorbells: &pages,
        barriers: settings.log_barriers,
        names_queues: plan.optimized_interrupt,
        monitored: MonitoredFences {
            basic: settings.basic_monitored_fences,
            narrow: plan.no_64_bit_atomics,
            unable: settings.software_signal_nodes,
        },
        preempts_in_buffers: settings.preempt_in_buffers,
    };
    if settings.no_64_bit_atomics && !plan.no_64_bit_atomics {
        platform.print(format_args!("fencepost: setting No64BitAtomics is ignored: there are native fences\n"));
    }
    let host = make_host(irql, platform, info, settings)?;
    let gpu = Shared::try_new(Gpu::<P>::new(host, &setup)?)?;
    make_room(platform, &gpu, info.required_dma_queue_entries)?;
    #[cfg(feature = "mutants")]
    gpu.mutation.set(mutation(irql, platform, info));
    let hang = u64::from(settings.report_hangs) * Host::clock_frequency(&gpu.host) / 1000;
    gpu.hang_after.store(hang, Ordering::Relaxed);
    arm_faults(&gpu, settings);
    Ok(gpu)
}

/// The number of the mutation that a test has asked for, as the value `Mutant` beside the settings; 0 for none. What
/// ships does not read it.
#[cfg(feature = "mutants")]
fn mutation<P: Platform>(irql: &Passive, platform: &P, info: &StartInfo<'_>) -> u32 {
    let number = platform.setting(irql, SettingsKey::Path(info.registry_path), "Mutant");
    number.and_then(|number| number.try_into().ok()).unwrap_or(0)
}

/// What exists until StopDevice, without its engines' threads.
#[inline(never)]
fn make_started<P: Platform>(
    adapter: &Adapter<P>,
    info: &StartInfo<'_>,
    plan: &Plan,
    gpu: Shared<Gpu<P>>,
    doorbells: Doorbells<EngineHost<P>>,
    pages: P::Pages,
) -> Result<Shared<Started<P>>> {
    let started = Started {
        platform: adapter.platform.clone(),
        plan: *plan,
        settings: try_box(adapter.settings())?,
        dxgkrnl: info.dxgkrnl.clone(),
        routines: info.routines,
        gpu,
        doorbells,
        paging_contexts: PagingContexts::new(),
        census: Census::default(),
        strays: Strays::new()?,
        reported: Default::default(),
        is_ending: AtomicBool::new(false),
        waits_in_vain: AtomicBool::new(false),
        halted: AtomicU64::new(0),
        standing: P::Lock::new(None),
        threads: P::Lock::new(Vec::new()),
        _doorbell_pages: pages,
    };
    Ok(Shared::try_new(started)?)
}

/// The largest number of packets that a node has room for beforehand, whatever the OS asks for. Room for that many
/// takes some megabytes of non-paged pool per node.
const MOST_ROOM: u32 = 1 << 16;

/// Reserves room for `packets` packets on every node, at most [`MOST_ROOM`]; says so to the debugger when that is less.
fn make_room<P: Platform>(platform: &P, gpu: &Gpu<P>, packets: u32) -> Result<()> {
    if packets > MOST_ROOM {
        platform.print(format_args!(
            "fencepost: room for {MOST_ROOM} packets per node beforehand; the OS requires {packets}\n"
        ));
    }
    for node in gpu.nodes.iter() {
        // Allocated and freed outside of the lock.
        let room = PacketQueue::room(packets.min(MOST_ROOM) as usize)?;
        drop(node.packets.with(|queue| queue.have_room(room)));
    }
    Ok(())
}

/// Prints what the OS asked, was answered and granted so far.
#[inline(never)]
fn print_start<P: Platform>(adapter: &Adapter<P>, started: &Started<P>, written: bool) {
    let (platform, plan) = (&adapter.platform, &started.plan);
    if !written {
        platform.print(format_args!("fencepost: {MEMORY_SIZE} could not be written\n"));
    }
    let questions = adapter.asked.questions();
    platform.print(format_args!("fencepost: {}\n", Features(questions, plan)));
    platform.print(format_args!(
        "fencepost: types asked of QueryAdapterInfo so far {:#x}, refused {:#x}\n",
        questions.queries, questions.refused
    ));
    platform.print(format_args!(
        "fencepost: started{} on the rung '{}', interface {} bytes, {} MiB local, {} doorbells\n",
        if plan.form.is_compute_only() { " as a compute-only driver" } else { "" },
        plan.rung.name(),
        started.dxgkrnl.size(),
        started.gpu.host.local_size() >> 20,
        started.doorbells.len(),
    ));
}

/// The settings, without what is for test machines alone where the machine is none.
fn armed<P: Platform>(adapter: &Adapter<P>, mut settings: Settings) -> Settings {
    if !adapter.is_test_signing {
        settings.disarm(|name| {
            adapter.platform.print(format_args!("fencepost: {name} is ignored without test signing\n"));
        });
    }
    settings
}

/// `settings`, of which one breaks the GPU as it was set, where the mutation with the number `mutant` says so.
#[cfg(feature = "mutants")]
fn kept(mut settings: Settings, as_set: &Settings, mutant: u32) -> Settings {
    let chosen = gpu_engine::mutation::Chosen::none();
    chosen.set(mutant);
    if chosen.is(Mutation::ArmsCorruption) {
        settings.fault_corrupt_packet = as_set.fault_corrupt_packet;
    }
    if chosen.is(Mutation::ArmsInterrupts) {
        settings.fault_interrupts = as_set.fault_interrupts;
    }
    if chosen.is(Mutation::ArmsWedge) {
        settings.fault_wedge_at = as_set.fault_wedge_at;
    }
    if chosen.is(Mutation::ArmsLoss) {
        settings.fault_lose_memory = as_set.fault_lose_memory;
    }
    settings
}

fn arm_faults<P: Platform>(gpu: &Gpu<P>, settings: &Settings) {
    gpu.faults.corrupt_packet.store(settings.fault_corrupt_packet, Ordering::Relaxed);
    gpu.faults.fail_interrupts.store(settings.fault_interrupts, Ordering::Relaxed);
    gpu.faults.wedge_at.store(settings.fault_wedge_at, Ordering::Relaxed);
    if settings.fault_corrupt_packet != 0 || settings.fault_interrupts != 0 || settings.fault_wedge_at != 0 {
        gpu.faults.arm();
    }
}

/// Starts the thread of an engine of `node`, which is the first one or takes the place of another.
fn start_engine<P: Platform>(
    irql: &Passive,
    platform: &P,
    started: &Started<P>,
    node: usize,
    standing: Standing,
    is_first: bool,
) -> Result<()> {
    let timer = platform.timer(irql)?;
    let make = if is_first { Engine::new } else { Engine::successor };
    let engine = make(started.gpu.clone(), node)?;
    let (gpu, inside) = (started.gpu.clone(), platform.clone());
    let body = move |irql: &Passive| engine_thread::run(irql, &inside, &gpu, engine, node, &timer, &standing);
    let body = try_box(body)?;
    if !is_first {
        started.gpu.nodes[node].supersede();
    }
    let thread = platform.spawn(irql, body).inspect_err(|_| {
        if !is_first {
            started.gpu.nodes[node].keep();
        }
    })?;
    started.threads.with(|t| t.push(thread));
    Ok(())
}

/// Gives `node` another engine in place of one that does not answer, and that says of itself that it touches nothing.
/// The old one's thread ends when it comes back, and is waited for at the stop.
///
/// # Errors
/// [`Error::NoMemory`], a thread's; the node keeps the engine that it has.
pub(crate) fn replace_engine<P: Platform>(irql: &Passive, started: &Started<P>, node: usize) -> Result<()> {
    let standing = started.standing.with(|standing| *standing).ok_or(Error::DeviceNotReady)?;
    started.threads.with(|t| t.try_reserve(1)).map_err(|_| Error::NoMemory)?;
    start_engine(irql, &started.platform, started, node, standing, false)
}

#[inline(never)]
fn start_engines<P: Platform>(irql: &Passive, platform: &P, started: &Shared<Started<P>>) -> Result<()> {
    let gpu = &started.gpu;
    // With a place for another engine of each node, so that the first that is given another needs none.
    started.threads.with(|t| t.try_reserve_exact(2 * NODE_COUNT + 2)).map_err(|_| Error::NoMemory)?;
    let standing = Standing::new(platform, &started.plan, &started.settings);
    started.standing.with(|known| *known = Some(standing));
    for node in 0..NODE_COUNT {
        start_engine(irql, platform, started, node, standing, true)?;
    }
    if started.plan.user_mode_submission() && started.settings.idle_milliseconds != 0 {
        let inside = started.clone();
        let thread =
            platform.spawn(irql, try_box(move |irql: &Passive| let_go::run(irql, &inside, standing.priority))?)?;
        started.threads.with(|t| t.push(thread));
    }
    let Some(periods) = standing.periods(Host::clock_frequency(&gpu.host)) else { return Ok(()) };
    let timer = platform.timer(irql)?;
    let (gpu, inside) = (gpu.clone(), platform.clone());
    let body =
        move |irql: &Passive| keeper::run(irql, &inside, gpu.host.keeper(), &gpu, &timer, standing.priority, &periods);
    let thread = platform.spawn(irql, try_box(body)?)?;
    started.threads.with(|t| t.push(thread));
    Ok(())
}

/// Stops the adapter: engines end, registers are unmapped. Objects that the OS forgot keep what they refer to alive.
///
/// # Errors
/// [`Error::DeviceNotReady`] when it is not started.
pub fn stop<P: Platform>(irql: &Passive, adapter: &Adapter<P>) -> Result<()> {
    // The interrupt routine finds what was started for as long as an engine may raise: a line that no routine claims
    // interrupts again for ever.
    halt(irql, &*adapter.started()?);
    let started = adapter.withdraw()?;
    tear_down(irql, &started);
    adapter.platform.trace(|| Event::StopDevice);
    Ok(())
}

/// Ends the engines, and clears what they have raised.
fn halt<P: Platform>(irql: &Passive, started: &Started<P>) {
    started.is_ending.store(true, Ordering::Release);
    for node in 0..started.gpu.nodes.len() {
        started.gpu.command(node, Control::Stop);
    }
    // The thread of an engine that a fault made stop answering (`FaultWedgeAt`) ends with the others: it looks for this
    // now and then, and then finds the command.
    started.gpu.faults.release.store(true, Ordering::Release);
    started.gpu.host.keeper().end();
    started.gpu.host.idle().end();
    let threads = started.threads.with(core::mem::take);
    for thread in threads {
        started.platform.join(irql, thread);
    }
    crate::interrupt::clear(irql, started);
}

/// Waits until nothing runs in what was started. Its engines are halted, and it is not published (any more).
fn tear_down<P: Platform>(irql: &Passive, started: &Shared<Started<P>>) {
    // The interrupt routine is left before the registers go.
    crate::interrupt::leave(irql, started);
    // A DPC that still runs has a reference to what was started. The last one falls at PASSIVE_LEVEL, here or later:
    // registers are unmapped and pages freed at no other level.
    started.platform.flush_dpcs(irql);
    started.paging_contexts.remove(|_| true);
}

/// The device went to D1, D2 or D3 (`on` is `false`), or came back to D0. Notices of the engines wait meanwhile and
/// none is lost.
/// Source: `DxgkDdiSetPowerState`.
pub fn set_power<P: Platform>(irql: &Passive, started: &Started<P>, on: bool) {
    started.platform.trace(|| Event::PowerState { is_on: on });
    if on {
        started.gpu.host.gpu_clock().come_back(&started.platform);
        started.gpu.host.interrupt.wake();
        for node in 0..started.gpu.nodes.len() {
            started.gpu.raise_again(node);
        }
    } else {
        crate::interrupt::sleep(irql, started);
        started.gpu.host.gpu_clock().leave(&started.platform);
    }
}

/// The OS tells power component `component` its F-state. At most `DISPATCH_LEVEL`. F0 is reached when this returns; F1
/// when the engine has taken its last look, behind which it says so (`DxgkCbCompleteFStateTransition`).
///
/// # Errors
/// [`Error::InvalidParameter`] when there is no such component or state.
///
/// Source: `DxgkDdiSetPowerComponentFState`.
pub fn set_component<P: Platform>(
    irql: &impl AtMostDispatch,
    started: &Started<P>,
    component: u32,
    state: u32,
) -> Result<()> {
    let host = &started.gpu.host;
    let set = host.power().set(&started.settings, component, state);
    started.platform.trace(|| Event::FState { component, state, status: status::of(set.map(drop)) });
    let node = set?;
    // Not by what is owed: the engine may have completed F1 by now.
    if host.power().is_in_f1(node) {
        if started.gpu.mutation.is(Mutation::CompletesEarly) {
            host.complete_f_state(irql, node);
        }
        // The engine comes off what it is at, where it can, and completes it: no request of the OS that it could owe.
        started.gpu.ask_rest(node);
        started.gpu.wake(node);
    } else {
        host.complete_f_state(irql, node);
    }
    Ok(())
}

/// The device is gone. When this returns, no thread touches a register any more, and the interrupt routine claims
/// nothing.
/// Source: `DxgkDdiNotifySurpriseRemoval`.
pub fn remove_by_surprise<P: Platform>(irql: &Passive, started: &Started<P>) {
    started.is_ending.store(true, Ordering::Release);
    started.gpu.host.interrupt.remove(irql, &started.platform);
    crate::interrupt::leave(irql, started);
    for node in 0..started.gpu.nodes.len() {
        started.gpu.raise_again(node);
    }
}
