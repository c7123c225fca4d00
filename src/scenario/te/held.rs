//! What an engine has raised before it is reset, and the interrupt routine comes to during the reset alone: what the
//! reset ends is not reported any more, and what it does not end is raised again.
#![expect(unsafe_code, reason = "functions of the driver's table are called")]

use super::super::db::{KernelQueue, Room};
use super::super::raw::{ALL, duplicate};
use super::super::{Played, Raw, Scene, Setup, Stage, same};
use super::hardware::{controller, force, recovered};
use super::in_time::in_time;
use super::packets::last_submitted;
use super::{Hog, aborted, client, is_lost, only_reset, stubborn, victim};
use crate::wrap::{copy, machine, own, theirs};
use anyhow::{Context, Result, anyhow, ensure};
use core::ffi::c_void;
use dxgkrnl_model::adapter::{PacketEvent, Reason, What};
use dxgkrnl_model::personality::{Gate, SECOND};
use gpu_wire::GpuVa;
use gpu_wire::packet::{Encoded, Fill, MonitoredSignal};
use nt_model::{Event, InterruptDelivery};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use wddm_abi::DXGK_INTERRUPT_TYPE as Type;
use wddm_abi::ntstatus::STATUS_SUCCESS;
use wddm_abi::{
    BOOLEAN, D3DDDI_SYNCHRONIZATIONOBJECT_FLAGS, DRIVER_INITIALIZATION_DATA, DXGKARG_RESETENGINE,
    DXGKARG_SUSPENDCONTEXT, DXGKARGCB_NOTIFY_INTERRUPT_DATA, HANDLE, NTSTATUS, PKSYNCHRONIZE_ROUTINE, win_extern,
};

/// Long enough for what must come.
const LONG: Duration = Duration::from_secs(20);

/// Holds the lock of the first adapter's interrupt while `work` ends what is to be ended and begins a reset. The lock
/// is held until the driver has been called `calls` times at `ddi` and waits for the lock itself: the routine for what
/// was raised meanwhile runs during the reset.
///
/// # Errors
/// What `work` returns; a reset that does not come.
pub(in super::super) fn while_held<R: Send>(
    scene: &Scene,
    ddi: &str,
    calls: u64,
    work: impl FnOnce() -> Result<R> + Send,
) -> Result<R> {
    let asked = || scene.callbacks("DxgkCbSynchronizeExecution");
    // How often the driver had asked for the lock when it was last seen not to be called yet.
    let (held, reset, before) = (AtomicBool::new(false), AtomicBool::new(false), AtomicU64::new(asked()));
    let is_called = || scene.calls(ddi) >= calls;
    let spin = |until: Duration, ready: &dyn Fn() -> bool| {
        let end = Instant::now() + until;
        while !ready() && Instant::now() < end {
            std::hint::spin_loop();
        }
    };
    let hold = || {
        held.store(true, Ordering::Release);
        spin(LONG, &|| reset.load(Ordering::Acquire));
        // Until the driver asks for the lock, however late, and as long again as it may take to get in line: a routine
        // that ran in front of it would report what the reset is to find.
        spin(LONG, &|| !is_called() || asked() != before.load(Ordering::Acquire));
        spin(Duration::from_millis(5), &|| false);
    };
    std::thread::scope(|scope| {
        let holder = scope.spawn(|| scene.world.os.hold_interrupts(scene.adapter(), hold));
        let lock = scene.until("the interrupt's lock", || Ok(held.load(Ordering::Acquire)));
        let worker = scope.spawn(|| lock.and_then(|()| work()));
        let came = scene.until("the reset", || {
            let already = asked();
            if !is_called() {
                before.store(already, Ordering::Release);
            }
            Ok(is_called() || worker.is_finished())
        });
        reset.store(true, Ordering::Release);
        let worked = worker.join().map_err(|_| anyhow!("a panic"))?;
        holder.join().map_err(|_| anyhow!("a panic"))?.context("no interrupt is connected")?;
        worked.and_then(|worked| came.map(|()| worked))
    })
}

/// Interrupts on a thread of their own, as on another processor.
fn remote(setup: Setup) -> Setup {
    setup.windows(|windows| windows.interrupt_delivery = InterruptDelivery::Remote)
}

/// What a driver has reported, of the kinds that matter here: whether the OS listens to it or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Said {
    /// A packet of this node and with this id is done.
    Completed(u32, u32),
    /// This node came off its packets, as it was asked to by this id.
    Preempted(u32, u32),
    /// A packet of this node and with this id has touched what it may not.
    Faulted(u32, u32),
    /// A hardware queue has touched what it may not.
    QueueFaulted,
    /// A context is asked to come off by this suspension: what the OS says, not the driver.
    Asked(u64),
    /// A context is off, by this suspension.
    Suspended(u64),
    /// A monitored fence was signalled.
    Signaled,
    /// Not signaled by the time that the restart has returned.
    Late,
    /// An engine hangs.
    Hung,
}

/// What was said on machines since [`listen`].
static SAID: Mutex<BTreeMap<usize, Vec<Said>>> = Mutex::new(BTreeMap::new());

/// Forgets what was said so far.
pub(super) fn listen(scene: &Scene) {
    let forget = || SAID.lock().unwrap_or_else(PoisonError::into_inner).insert(machine(), Vec::new());
    scene.world.os.run(|| drop(forget()));
}

/// What was said and asked since.
fn heard_of(scene: &Scene) -> Vec<Said> {
    let all = || SAID.lock().unwrap_or_else(PoisonError::into_inner).get(&machine()).cloned().unwrap_or_default();
    scene.world.os.run(all)
}

/// What the driver has said since.
pub(super) fn said(scene: &Scene) -> Vec<Said> {
    heard_of(scene).into_iter().filter(|said| !matches!(said, Said::Asked(_))).collect()
}

/// The answers to the suspensions that were asked for since.
fn answers(scene: &Scene) -> Vec<Said> {
    let answer = |said| match said {
        Said::Asked(fence) => Some(Said::Suspended(fence)),
        _ => None,
    };
    heard_of(scene).into_iter().filter_map(answer).collect()
}

/// Remembers what is said on the calling machine.
fn note(said: Option<Said>) {
    SAID.lock().unwrap_or_else(PoisonError::into_inner).entry(machine()).or_default().extend(said);
}

crate::reaches! {
    hears_driver: DxgkCbNotifyInterrupt = heard;
}

crate::decorate! {
    hears_os: DxgkDdiSuspendContext(adapter: HANDLE, args: *const DXGKARG_SUSPENDCONTEXT) -> NTSTATUS {
        note(Some(Said::Asked(copy!(args).contextSuspendFence)));
        own!(DxgkDdiSuspendContext(adapter, args))
    }
}

fn hears(table: &mut DRIVER_INITIALIZATION_DATA) {
    hears_driver(table);
    hears_os(table);
}

win_extern! {
    fn heard(adapter: HANDLE, data: *mut DXGKARGCB_NOTIFY_INTERRUPT_DATA) {
        let told = copy!(data);
        let said = match told.InterruptType {
            Type::DXGK_INTERRUPT_DMA_COMPLETED => {
                let part = told.DmaCompleted();
                Some(Said::Completed(part.NodeOrdinal, part.SubmissionFenceId))
            }
            Type::DXGK_INTERRUPT_DMA_PREEMPTED => {
                let part = told.DmaPreempted();
                Some(Said::Preempted(part.NodeOrdinal, part.PreemptionFenceId))
            }
            Type::DXGK_INTERRUPT_DMA_PAGE_FAULTED => {
                let part = told.DmaPageFaulted();
                Some(Said::Faulted(part.NodeOrdinal, part.FaultedFenceId))
            }
            Type::DXGK_INTERRUPT_HWQUEUE_PAGE_FAULTED => Some(Said::QueueFaulted),
            Type::DXGK_INTERRUPT_SUSPEND_CONTEXT_COMPLETED => {
                Some(Said::Suspended(told.SuspendContextCompleted().ContextSuspendFence))
            }
            Type::DXGK_INTERRUPT_MONITORED_FENCE_SIGNALED => Some(Said::Signaled),
            Type::DXGK_INTERRUPT_GPU_ENGINE_TIMEOUT => Some(Said::Hung),
            Type::DXGK_INTERRUPT_GPU_ENGINE_STATE_CHANGE => Some(Said::Hung),
            _ => None,
        };
        note(said);
        theirs!(DxgkCbNotifyInterrupt(adapter, data));
    }
}

/// A fence of a device of its own, and an event that is set when it gets to 1.
pub(super) struct Awaited {
    at: u64,
    pub(super) value: usize,
    pub(super) event: Arc<Event>,
}

impl Awaited {
    pub(super) fn new(raw: &Raw) -> Result<Self> {
        let device = raw.device()?;
        let fence = raw.monitored_fence(device, 0, false)?;
        let (event, handle) = raw.event();
        raw.wait_cpu(device, &[(fence.handle, 1)], false, Some(handle))?;
        Ok(Self { at: fence.gpu, value: fence.cpu, event })
    }

    pub(super) fn signal(&self) -> Encoded {
        MonitoredSignal { address: self.at, value: 1 }.to_packet()
    }
}

/// A packet engine: what the packet comes to, the answer to the preemption that it kept waiting, and a fence that it
/// has signalled are raised before the reset.
pub(super) fn packets(stage: &Stage) -> Played {
    packet(stage, &[]).context("a packet that ends")?;
    packet(stage, &[nowhere()]).context("a packet that faults")
}

/// A store to where nothing is.
fn nowhere() -> Encoded {
    Fill { address: 0x7FFF_0000_0000, length: 8, pattern: 0, reserved: 0 }.to_packet()
}

/// A packet with `behind` at its end, which is over before the reset.
fn packet(stage: &Stage, behind: &[Encoded]) -> Played {
    let node = victim(stage);
    let of_this_play = RefCell::new(Gate::default());
    let setup = || {
        let gate = Gate::default();
        of_this_play.replace(gate.clone());
        remote(stubborn().resets(1)).windows(|windows| windows.gates.reset = Some(gate.clone())).with_driver(hears)
    };
    in_time(stage, setup, |scene, _| {
        let gate = of_this_play.borrow().clone();
        let (raw, next) = (client(scene, "late")?, client(scene, "next")?);
        let (late, next) = (Hog::new(scene, &raw, &[node])?, Hog::new(scene, &next, &[node])?);
        let awaited = Awaited::new(&raw)?;
        late.spin_before(node, 0, &[&[awaited.signal()], behind].concat())?;
        scene.until("the preparation", || Ok(gate.came() == 1))?;
        let asked = scene.adapter().packet_journal(node).into_iter().rev().find_map(|event| match event {
            PacketEvent::Preempting { request } => Some(request),
            _ => None,
        });
        let asked = asked.context("a preemption before the timeout")?;
        while_held(scene, "DxgkDdiResetEngine", 1, || {
            listen(scene);
            late.end(0)?;
            scene.until("the fence", || Ok(raw.load(awaited.value)? == 1))?;
            if behind.is_empty() {
                scene.until("the end of the packet", || late.has_ended(0))?;
            }
            // Long enough for the engine to answer the preemption, too, or to fault.
            std::thread::park_timeout(Duration::from_millis(30));
            same("what was said", said(scene), vec![])?;
            gate.let_through();
            Ok(())
        })?;
        is_lost(scene, &late)?;
        ensure!(raw.wait_event(&awaited.event, LONG), "the fence's waiter sleeps on");
        scene.until("the interrupt for the fence", || Ok(said(scene).contains(&Said::Signaled)))?;
        let lost = aborted(&only_reset(scene)?)?;
        // The next packet's end has an interrupt of its own, and nothing is told of the one before.
        next.short(node, 0)?;
        scene.until("the report of the next packet", || {
            let journal = scene.adapter().packet_journal(node);
            Ok(journal.iter().any(|event| matches!(event, PacketEvent::Completed { id } if *id > lost)))
        })?;
        let old = [Said::Completed(node, lost), Said::Faulted(node, lost), Said::Preempted(node, asked)];
        ensure!(!said(scene).iter().any(|said| old.contains(said)), "{:?}, of which {old:?} are over", said(scene));
        same("the device behind it", next.is_active()?, true)
    })
}

/// A queue of a hardware-scheduled engine that spins, in a room of its own.
pub(super) struct Spinner<'a> {
    pub(super) room: Room<'a>,
    pub(super) queue: KernelQueue,
}

impl<'a> Spinner<'a> {
    pub(super) fn new(scene: &Scene, raw: &'a Raw) -> Result<Self> {
        let room = Room::new(raw)?;
        let context = room.context(0)?;
        let queue = KernelQueue::new(scene, &room, context)?;
        queue.spin(&room, 0, None, 1)?;
        queue.runs(scene, raw)?;
        Ok(Self { room, queue })
    }
}

/// A hardware-scheduled engine. Of queues beside the one that is reset one has signalled a fence, and one has faulted;
/// the context that is lost had left the engine for a suspension whose answer no thread waits for any more.
pub(super) fn queues(stage: &Stage) -> Played {
    hung(stage).context("an engine that hangs")?;
    // Three buffers that spin share the engine.
    let setup = remote(Setup::default().resets(1).setting("PreemptInBuffers", 1).setting("IdleMilliseconds", 0));
    let setup = setup.with_driver(hears);
    stage.play(setup, |scene| {
        let (control, innocent, guilty) = (controller(scene)?, client(scene, "beside")?, client(scene, "busy")?);
        let wrong = client(scene, "faults")?;
        let (beside, busy) = (Spinner::new(scene, &innocent)?, Spinner::new(scene, &guilty)?);
        let faulty = Spinner::new(scene, &wrong)?;
        faulty.queue.submit(&faulty.room, 1, &[nowhere()], 2)?;
        let native = scene.adapter().caps().context("caps")?.has_native_fences();
        let (monitored, device) = (Awaited::new(&innocent)?, innocent.device()?);
        let (event, handle) = innocent.event();
        let mut packets = vec![monitored.signal()];
        let fence = if native { Some(innocent.native_fence(device, 0)?) } else { None };
        if let Some(fence) = fence {
            innocent.wait_cpu(device, &[(fence.handle, 1)], false, Some(handle))?;
            packets.push(Encoded::fence_signal(GpuVa(fence.gpu), 1));
        }
        // The fences may be mapped behind the calls that made them: what is mapped later is mapped behind them.
        let _mapped = beside.room.memory(scene, 4096)?;
        beside.queue.submit(&beside.room, 1, &packets, 2)?;
        // Suspensions are counted by context: what the OS suspends behind a fault has another number.
        for _ in 0..2 {
            ensure!(scene.world.os.suspend(scene.adapter(), &guilty.process), "no suspension before the reset");
            scene.world.os.resume(scene.adapter(), &guilty.process);
        }
        let old = while_held(scene, "DxgkDdiResetHwEngine", 1, || {
            listen(scene);
            let os = &scene.world.os;
            same("suspensions under way", os.begin_suspension(scene.adapter(), &guilty.process).pending, 1)?;
            // Long enough for the engine to be off the context, which it says by an interrupt that is held.
            std::thread::park_timeout(Duration::from_millis(60));
            os.resume(scene.adapter(), &guilty.process);
            faulty.queue.stop(&wrong, 0, 1)?;
            scene.until("the work before the fault", || Ok(faulty.queue.value(&wrong)? == 1))?;
            beside.queue.stop(&innocent, 0, 1)?;
            scene.until("the work beside it", || Ok(beside.queue.value(&innocent)? == 2))?;
            busy.queue.runs(scene, &guilty)?;
            same("what was said", said(scene), vec![])?;
            let old = answers(scene);
            same("the escape", force(&control, Some(0)), STATUS_SUCCESS)?;
            Ok(old)
        })?;
        same("suspensions before the reset", old.len(), 1)?;
        let recovery = recovered(scene, 1)?.remove(0);
        same("what", (recovery.what, recovery.reason), (What::HwEngine { node: 0 }, Reason::ForcedEngine))?;
        ensure!(innocent.wait_event(&monitored.event, LONG), "the waiter for a monitored fence sleeps on");
        if native {
            ensure!(innocent.wait_event(&event, LONG), "the waiter for a native fence sleeps on");
        }
        scene.until("the loss of the device that was busy", || Ok(!busy.room.is_active()?))?;
        scene.until("the loss of the device that has faulted", || Ok(!faulty.room.is_active()?))?;
        same("the device beside it", beside.room.is_active()?, true)?;
        // Behind work of the engine everything that it had to say is said.
        beside.queue.submit(&beside.room, 2, &[], 3)?;
        scene.until("more work", || Ok(beside.queue.value(&innocent)? == 3))?;
        std::thread::park_timeout(Duration::from_millis(30));
        ensure!(!said(scene).contains(&old[0]), "an answer was given behind the reset");
        Ok(())
    })
}

/// An engine that hangs, of which the driver has something to say; the reset comes first, and there is no second one.
fn hung(stage: &Stage) -> Played {
    let setup = remote(stubborn().resets(1).setting("ReportHangs", 50)).with_driver(hears);
    stage.play(setup.windows(|windows| windows.tdr.delay = 3 * SECOND), |scene| {
        let (control, guilty) = (controller(scene)?, client(scene, "busy")?);
        let busy = Spinner::new(scene, &guilty)?;
        while_held(scene, "DxgkDdiResetHwEngine", 1, || {
            listen(scene);
            let begun = scene.world.os.begin_suspension(scene.adapter(), &guilty.process);
            same("suspensions under way", begun.pending, 1)?;
            // Long enough for the driver to find that its engine does not follow.
            std::thread::park_timeout(Duration::from_millis(200));
            same("what was said", said(scene), vec![])?;
            same("the escape", force(&control, Some(0)), STATUS_SUCCESS)
        })?;
        scene.until("the loss of the device that was busy", || Ok(!busy.room.is_active()?))?;
        super::hardware::works(scene)?;
        ensure!(!said(scene).contains(&Said::Hung), "the hang is told of behind the reset");
        let all = recovered(scene, 1)?;
        same("resets", all.iter().map(|one| one.reason).collect::<Vec<_>>(), vec![Reason::ForcedEngine])
    })
}

/// Machines whose driver does not hear its interrupts.
static DEAF: Mutex<BTreeSet<usize>> = Mutex::new(BTreeSet::new());

/// Whether the driver of the calling machine hears its interrupts.
pub(super) fn set_deaf(deaf: bool) {
    let mut machines = DEAF.lock().unwrap_or_else(PoisonError::into_inner);
    let _changed = if deaf { machines.insert(machine()) } else { machines.remove(&machine()) };
}

crate::decorate! {
    /// Claims an interrupt and does nothing, for as long as [`DEAF`] says: the rules of routines are broken by that.
    may_be_deaf: DxgkDdiInterruptRoutine(context: *mut c_void, message: u32) -> BOOLEAN {
        let deaf = DEAF.lock().unwrap_or_else(PoisonError::into_inner).contains(&machine());
        if deaf { 1 } else { own!(DxgkDdiInterruptRoutine(context, message)) }
    }

    /// The routine for what was raised before comes during the reset.
    hears_behind: DxgkDdiResetFromTimeout(adapter: HANDLE) -> NTSTATUS {
        let status = own!(DxgkDdiResetFromTimeout(adapter));
        set_deaf(false);
        let mut returned = 0;
        let (device, section): (_, PKSYNCHRONIZE_ROUTINE) = (crate::wrap::interface().DeviceHandle, Some(serves));
        let _ran = theirs!(DxgkCbSynchronizeExecution(device, section, adapter, 0, &raw mut returned));
        status
    }

    /// The same of a packet engine's reset.
    hears_behind_engine: DxgkDdiResetEngine(adapter: HANDLE, args: *mut DXGKARG_RESETENGINE) -> NTSTATUS {
        let status = own!(DxgkDdiResetEngine(adapter, args));
        set_deaf(false);
        let mut returned = 0;
        let (device, section): (_, PKSYNCHRONIZE_ROUTINE) = (crate::wrap::interface().DeviceHandle, Some(serves));
        let _ran = theirs!(DxgkCbSynchronizeExecution(device, section, adapter, 0, &raw mut returned));
        status
    }

    /// What was held is raised again by this function: nothing else raises an interrupt while it runs.
    hears_again: DxgkDdiRestartFromTimeout(adapter: HANDLE) -> NTSTATUS {
        let status = own!(DxgkDdiRestartFromTimeout(adapter));
        let is_told = || {
            let all = SAID.lock().unwrap_or_else(PoisonError::into_inner);
            all.get(&machine()).is_some_and(|said| said.contains(&Said::Signaled))
        };
        for _ in 0..500 {
            if is_told() {
                return status;
            }
            std::thread::park_timeout(Duration::from_millis(1));
        }
        note(Some(Said::Late));
        status
    }
}

win_extern! {
    /// At the device's level: its interrupt routine, as for an interrupt that was raised.
    fn serves(context: *mut c_void) -> BOOLEAN {
        own!(DxgkDdiInterruptRoutine(context, 0))
    }
}

/// Waits until a driver that is [deaf](set_deaf) has been interrupted: it leaves the device as it is, so that its line
/// storms, whenever the host lets the engine say something.
pub(super) fn unheard(scene: &Scene) -> Played {
    let storms = || scene.world.os.report().broken().any(|rule| rule.rule.name == "NT-INT-STORM");
    scene.until("an interrupt that is not heard", || Ok(storms()))
}

/// Hears no interrupt from [`set_deaf`] on until a packet engine's reset, and says what it reports.
pub(super) fn deaf_until_engine(table: &mut DRIVER_INITIALIZATION_DATA) {
    hears(table);
    may_be_deaf(table);
    hears_behind_engine(table);
}

/// Hears no interrupt from [`set_deaf`] on until the adapter's reset, and says what it reports.
pub(super) fn deaf_until_reset(table: &mut DRIVER_INITIALIZATION_DATA) {
    hears(table);
    may_be_deaf(table);
    hears_behind(table);
    hears_again(table);
}

/// The adapter. What ran has signalled a fence that another adapter's client waits for, and is done; the OS has taken
/// everything as completed by the time that the driver may interrupt again.
pub(super) fn adapter(stage: &Stage) -> Played {
    let node = victim(stage);
    let setup = Setup::default().adapters(2).resets(1).setting("PreemptInBuffers", 1).setting("IdleMilliseconds", 0);
    let setup = setup.with_driver(deaf_until_reset).breaks(&["NT-INT-STORM", "DXG-ISR-DISMISS"]);
    stage.play(setup, |scene| {
        let (control, busy) = (controller(scene)?, client(scene, "busy")?);
        let other = scene.adapters.get(1).context("a second adapter")?;
        let process = Arc::new(scene.world.os.create_process("beside"));
        let beside = Raw::open(&process, other.luid())?;
        let hog = Hog::new(scene, &busy, &[node])?;
        let mut flags = D3DDDI_SYNCHRONIZATIONOBJECT_FLAGS::zeroed();
        flags.set_Shared(true);
        flags.set_NtSecuritySharing(true);
        flags.set_CrossAdapter(true);
        let fence = busy.flagged_fence(busy.device()?, 0, flags, 0)?;
        let shared = busy.share(fence.handle, ALL)?;
        let theirs = duplicate(shared, &busy.process, &process)?;
        let device = beside.device()?;
        let opened = beside.open_monitored_fence(device, theirs)?;
        let (event, handle) = beside.event();
        beside.wait_cpu(device, &[(opened.handle, 1)], false, Some(handle))?;
        // On a hardware-scheduled node the same beside, with a suspension that is answered.
        let queue = if stage.rung() == 0 { None } else { Some(Spinner::new(scene, &busy)?) };
        let signal = MonitoredSignal { address: fence.gpu, value: 1 }.to_packet();
        hog.spin_before(node, 0, &[signal])?;
        hog.begins(scene, 0)?;
        let last = last_submitted(&scene.adapter().packet_journal(node))?;
        scene.world.os.run(|| set_deaf(true));
        listen(scene);
        if queue.is_some() {
            let begun = scene.world.os.begin_suspension(scene.adapter(), &busy.process);
            same("suspensions under way", begun.pending, 1)?;
            // Long enough for the engine to be off the context.
            std::thread::park_timeout(Duration::from_millis(60));
        }
        hog.end(0)?;
        scene.until("the end of the packet", || hog.has_ended(0))?;
        unheard(scene)?;
        same("what was said", said(scene), vec![])?;
        ensure!(!beside.wait_event(&event, Duration::ZERO), "the fence's signal was told of");
        let old = answers(scene);
        same("suspensions before the reset", old.len(), usize::from(queue.is_some()))?;
        same("the escape", force(&control, None), STATUS_SUCCESS)?;
        let recovery = recovered(scene, 1)?.remove(0);
        same("what", (recovery.what, recovery.reason), (What::Adapter, Reason::Forced))?;
        ensure!(beside.wait_event(&event, LONG), "the waiter on the other adapter sleeps on");
        is_lost(scene, &hog)?;
        scene.until("the interrupt for the fence", || Ok(said(scene).contains(&Said::Signaled)))?;
        ensure!(!said(scene).contains(&Said::Late), "the signal waits for another interrupt");
        super::hardware::works(scene)?;
        let old = |said: &Said| old.contains(said) || *said == Said::Completed(node, last);
        ensure!(!said(scene).iter().any(old), "behind the reset: {:?}", said(scene));
        Ok(())
    })
}
