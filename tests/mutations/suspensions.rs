//! What a reset ends is not reported behind it: the answer to a suspension that the driver had still to give when the
//! context was lost. The OS waits for none by then. The model does not hear of it: this case listens itself.

use anyhow::{Context, ensure};
use core::ffi::c_void;
use dxgkrnl_model::personality::Personality;
use fencepost::scenario::{Played, Stage, same};
use fencepost::setting;
use fencepost::world::{Form, World};
use fencepost::wrap::{copy, decorate, own, theirs};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use umd_core::ffi::types::FP_KIND_SYSTEM;
use wddm_abi::{
    BOOLEAN, DRIVER_INITIALIZATION_DATA, DXGK_INTERRUPT_TYPE, DXGK_START_INFO, DXGKARG_RESETHWENGINE,
    DXGKARG_RESUMEHWENGINE, DXGKARGCB_NOTIFY_INTERRUPT_DATA, DXGKRNL_INTERFACE, HANDLE, NTSTATUS,
    PKSYNCHRONIZE_ROUTINE, win_extern,
};

/// The driver's handle of the adapter.
static ADAPTER: AtomicUsize = AtomicUsize::new(0);
/// Whether the interrupt routine does not come to the driver.
static DEAF: AtomicBool = AtomicBool::new(false);
/// Answers to suspensions that were reported while this case listens.
static ANSWERS: AtomicU32 = AtomicU32::new(0);
/// Whether it does.
static LISTENS: AtomicBool = AtomicBool::new(false);

/// Long enough for an engine to answer, and for an interrupt to be reported.
const WHILE: Duration = Duration::from_millis(60);

decorate! {
    /// Notes the adapter and puts [`notify`] in front of `DxgkCbNotifyInterrupt`.
    hears: DxgkDdiStartDevice(
        context: *mut c_void,
        info: *mut DXGK_START_INFO,
        interface: *mut DXGKRNL_INTERFACE,
        sources: *mut u32,
        children: *mut u32,
    ) -> NTSTATUS {
        let mut mine = copy!(interface);
        fencepost::wrap::keep(&mine);
        mine.DxgkCbNotifyInterrupt = Some(notify);
        ADAPTER.store(context.expose_provenance(), Ordering::SeqCst);
        own!(DxgkDdiStartDevice(context, info, &raw mut mine, sources, children))
    }

    /// Does nothing for as long as [`DEAF`] says.
    may_be_deaf: DxgkDdiInterruptRoutine(context: *mut c_void, message: u32) -> BOOLEAN {
        if DEAF.load(Ordering::SeqCst) { 1 } else { own!(DxgkDdiInterruptRoutine(context, message)) }
    }
}

win_extern! {
    fn notify(adapter: HANDLE, data: *mut DXGKARGCB_NOTIFY_INTERRUPT_DATA) {
        let is_answer = copy!(data).InterruptType == DXGK_INTERRUPT_TYPE::DXGK_INTERRUPT_SUSPEND_CONTEXT_COMPLETED;
        if is_answer && LISTENS.load(Ordering::SeqCst) {
            ANSWERS.fetch_add(1, Ordering::SeqCst);
            return;
        }
        theirs!(DxgkCbNotifyInterrupt(adapter, data));
    }

    fn serves(_context: *mut c_void) -> BOOLEAN {
        own!(DxgkDdiInterruptRoutine(adapter_handle(), 0))
    }
}

/// What resets, while the driver is deaf, and what lets it go on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reset {
    None,
    Engine,
    Adapter,
}

fn adapter_handle() -> HANDLE {
    core::ptr::with_exposed_provenance_mut(ADAPTER.load(Ordering::SeqCst))
}

impl Reset {
    fn begin(self) -> Played {
        let mut reset = DXGKARG_RESETHWENGINE::zeroed();
        let status = match self {
            Self::None => return Ok(()),
            Self::Engine => own!(DxgkDdiResetHwEngine(adapter_handle(), &raw mut reset)),
            Self::Adapter => own!(DxgkDdiResetFromTimeout(adapter_handle())),
        };
        ensure!(status.is_success(), "the reset: {status:?}");
        Ok(())
    }

    fn end(self) -> Played {
        let mut resume = DXGKARG_RESUMEHWENGINE::zeroed();
        let status = match self {
            Self::None => return Ok(()),
            Self::Engine => own!(DxgkDdiResumeHwEngine(adapter_handle(), &raw mut resume)),
            Self::Adapter => own!(DxgkDdiRestartFromTimeout(adapter_handle())),
        };
        ensure!(status.is_success(), "behind the reset: {status:?}");
        Ok(())
    }
}

/// Has the interrupt routine called at the device's level.
fn interrupt() -> Played {
    let mut returned = 0;
    let (device, at) = (fencepost::wrap::interface().DeviceHandle, core::ptr::null_mut());
    let section: PKSYNCHRONIZE_ROUTINE = Some(serves);
    let status = theirs!(DxgkCbSynchronizeExecution(device, section, at, 0, &raw mut returned));
    ensure!(status.is_success(), "the section: {status:?}");
    Ok(())
}

/// A context of node 0 leaves its engine, and the interrupt about that does not come to the driver; the context is
/// resumed, and hangs its engine where that is reset. Returns how many answers were reported behind the reset.
fn answers(stage: &Stage, reset: Reset) -> anyhow::Result<u32> {
    let form = Form::Decorated(|table: &mut DRIVER_INITIALIZATION_DATA| {
        hears(table);
        may_be_deaf(table);
    });
    let world = World::boot(&form, Personality::collecting())?;
    let mutant = u64::from(stage.setting("Mutant").unwrap_or(0));
    let started = world.adapter(setting::adapter(&[("Mutant".to_owned(), mutant)]))?;
    let user = world.process("client")?;
    let device = user.open()?.device()?;
    let (queue, memory) = (device.queue(0, 64 << 10, 0, 0)?, device.allocate(FP_KIND_SYSTEM, 4096, 0)?);
    let progress = queue.run(|list| list.nop(8))?;
    queue.wait(progress, Some(Duration::from_secs(10)))?;
    // A buffer that says that it runs, and begins again.
    let mut endless = queue.list()?;
    endless.store(memory.gpu_va()? + 2048, 1)?;
    endless.indirect(memory.gpu_va()?, 8)?;
    let length = endless.bytes()?.len() as u64;
    endless.reset()?;
    endless.store(memory.gpu_va()? + 2048, 1)?;
    endless.indirect(memory.gpu_va()?, length)?;
    memory.write(0, &endless.bytes()?)?;

    DEAF.store(true, Ordering::SeqCst);
    // A routine that was called before, for the progress fence, is over behind this.
    world.os.run(interrupt)?;
    LISTENS.store(true, Ordering::SeqCst);
    ANSWERS.store(0, Ordering::SeqCst);
    same("suspensions under way", world.os.begin_suspension(&started, &user.process).pending, 1)?;
    std::thread::park_timeout(WHILE);
    if reset == Reset::Engine {
        world.os.resume(&started, &user.process);
        queue.run(|list| list.indirect(memory.gpu_va()?, length))?;
        let end = Instant::now() + Duration::from_secs(10);
        while memory.read_u64(2048)? == 0 {
            ensure!(Instant::now() < end, "the buffer does not run");
        }
    }
    world.os.run(|| reset.begin())?;
    DEAF.store(false, Ordering::SeqCst);
    world.os.run(|| reset.end())?;
    std::thread::park_timeout(WHILE);
    // The device has raised its interrupt before, so that it does not again: the routine is called for it.
    world.os.run(interrupt)?;
    // The model knows nothing of these resets: the machine ends with the process.
    std::mem::forget((endless, queue, memory, device, user, started, world));
    Ok(ANSWERS.load(Ordering::SeqCst))
}

pub fn engine(stage: &Stage) -> Played {
    same("answers behind an engine reset", answers(stage, Reset::Engine)?, 0)
}

pub fn adapter(stage: &Stage) -> Played {
    same("answers behind an adapter reset", answers(stage, Reset::Adapter)?, 0)?;
    // And so that this can fail: without a reset the answer comes.
    same("answers without one", answers(stage, Reset::None)?, 1).context("the answer that was kept back")
}
