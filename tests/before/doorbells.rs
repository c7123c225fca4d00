//! Doorbells that the OS keeps, that are destroyed while they are being taken, and that ring on the way to their
//! disconnection.
#![expect(unsafe_code, reason = "functions of the driver's table and callbacks are given records")]

use crate::gate::{Gate, or_ends};
use anyhow::{Context, anyhow, ensure};
use core::ffi::c_void;
use fencepost::scenario::{Played, Raw, RingQueue, Room, Scene, Setup, Stage, same};
use fencepost::world::{Decorator, Form};
use fencepost::wrap::{copy, decorate, own};
use gpu_wire::packet::Store;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use wddm_abi::ntstatus::{STATUS_INVALID_PARAMETER, STATUS_SUCCESS, STATUS_UNSUCCESSFUL};
use wddm_abi::{
    DRIVER_INITIALIZATION_DATA, DXGK_START_INFO, DXGKARG_CONNECTDOORBELL, DXGKARG_DESTROYDOORBELL,
    DXGKARG_DISCONNECTDOORBELL, DXGKARGCB_DISCONNECTDOORBELL, DXGKCB_DISCONNECTDOORBELL, DXGKRNL_INTERFACE, NTSTATUS,
    win_extern,
};

/// The name of the case in which the OS keeps a doorbell.
pub const KEPT: &str = "kept doorbell";
/// The name of the case in which a doorbell is destroyed while it is being taken.
pub const DESTROYED: &str = "destroyed doorbell";
/// The name of the case in which a doorbell rings between DisconnectDoorbell and the rotation.
pub const LATE: &str = "late ring";

/// What a doorbell's status word says of one that is connected.
const CONNECTED: u64 = 0;

/// What brings the mistake back; this process plays one.
static MISTAKE: OnceLock<Decorator> = OnceLock::new();
/// What the case itself puts in front of the table.
static HOOKS: OnceLock<Decorator> = OnceLock::new();
/// Dxgkrnl's own `DxgkCbDisconnectDoorbell`, noted at the first start.
static DISCONNECT: OnceLock<DXGKCB_DISCONNECTDOORBELL> = OnceLock::new();

/// The doorbell that the OS keeps: the first that it is asked for. 0 before.
static KEEPS: AtomicUsize = AtomicUsize::new(0);
/// How often the OS was asked for that doorbell.
static ASKED: AtomicU32 = AtomicU32::new(0);

/// Whether the doorbell is being taken.
static TAKEN: AtomicBool = AtomicBool::new(false);
/// Whether a thread is in ConnectDoorbell.
static CONNECTING: AtomicBool = AtomicBool::new(false);
/// Whether DestroyDoorbell has begun.
static BEGUN: AtomicBool = AtomicBool::new(false);
/// Whether it has ended.
static ENDED: AtomicBool = AtomicBool::new(false);
/// Whether it had ended while the doorbell was still being taken.
static EARLY: AtomicBool = AtomicBool::new(false);

/// Between DisconnectDoorbell and the rotation; one for each doorbell model.
static ROTATION: [Gate; 2] = [const { Gate::new() }; 2];
/// Which of these DisconnectDoorbell comes to.
static MODEL: AtomicUsize = AtomicUsize::new(0);

/// A decorator by which the driver reaches this function in place of Dxgkrnl's `DxgkCbDisconnectDoorbell`.
macro_rules! reaches {
    ($($(#[$meta:meta])* $name:ident: $callback:ident;)*) => { $(decorate! {
        $(#[$meta])*
        $name: DxgkDdiStartDevice(
            context: *mut c_void,
            info: *mut DXGK_START_INFO,
            interface: *mut DXGKRNL_INTERFACE,
            sources: *mut u32,
            children: *mut u32,
        ) -> NTSTATUS {
            let mut mine = hears(interface, Some($callback));
            own!(DxgkDdiStartDevice(context, info, &raw mut mine, sources, children))
        }
    })* };
}

reaches! {
    hears_of_kept: keeps_the_first;
    /// A doorbell that the OS keeps was asked for again and again, until ConnectDoorbell failed: so that it gets no
    /// other, it keeps all.
    keeps_asking: keeps_all;
    hears_of_taken: takes_until_destroyed;
}

decorate! {
    notes_end: DxgkDdiDestroyDoorbell(args: *mut DXGKARG_DESTROYDOORBELL) -> NTSTATUS {
        noted(|| own!(DxgkDdiDestroyDoorbell(args)))
    }

    /// DestroyDoorbell ended while a thread was taking the doorbell, whose handle meant nothing from then on.
    ends_early: DxgkDdiDestroyDoorbell(args: *mut DXGKARG_DESTROYDOORBELL) -> NTSTATUS {
        let is_taken = TAKEN.load(Ordering::SeqCst);
        noted(|| if is_taken { STATUS_SUCCESS } else { own!(DxgkDdiDestroyDoorbell(args)) })
    }

    /// ConnectDoorbell refused while another thread was in it.
    connects_alone: DxgkDdiConnectDoorbell(args: *mut DXGKARG_CONNECTDOORBELL) -> NTSTATUS {
        if CONNECTING.swap(true, Ordering::SeqCst) {
            return STATUS_UNSUCCESSFUL;
        }
        let status = own!(DxgkDdiConnectDoorbell(args));
        CONNECTING.store(false, Ordering::SeqCst);
        status
    }

    waits: DxgkDdiDisconnectDoorbell(args: *mut DXGKARG_DISCONNECTDOORBELL) -> NTSTATUS {
        let status = own!(DxgkDdiDisconnectDoorbell(args));
        ROTATION[MODEL.load(Ordering::SeqCst)].pass();
        status
    }

    /// DisconnectDoorbell gave up the queue with the doorbell.
    forgets: DxgkDdiDisconnectDoorbell(args: *mut DXGKARG_DISCONNECTDOORBELL) -> NTSTATUS {
        let mut destroy = DXGKARG_DESTROYDOORBELL::zeroed();
        destroy.hDoorbell = copy!(args).hDoorbell;
        let status = own!(DxgkDdiDestroyDoorbell(&raw mut destroy));
        ROTATION[MODEL.load(Ordering::SeqCst)].pass();
        status
    }

    /// What [`forgets`] has destroyed is not destroyed again.
    forgot: DxgkDdiDestroyDoorbell(_args: *mut DXGKARG_DESTROYDOORBELL) -> NTSTATUS {
        STATUS_SUCCESS
    }
}

win_extern! {
    fn keeps_the_first(args: *mut DXGKARGCB_DISCONNECTDOORBELL) -> NTSTATUS {
        let doorbell = copy!(args).hDoorbell.expose_provenance();
        let _first = KEEPS.compare_exchange(0, doorbell, Ordering::SeqCst, Ordering::SeqCst);
        if KEEPS.load(Ordering::SeqCst) == doorbell {
            ASKED.fetch_add(1, Ordering::SeqCst);
            return STATUS_UNSUCCESSFUL;
        }
        dxgkrnls(args)
    }

    fn keeps_all(_args: *mut DXGKARGCB_DISCONNECTDOORBELL) -> NTSTATUS {
        STATUS_UNSUCCESSFUL
    }

    fn takes_until_destroyed(args: *mut DXGKARGCB_DISCONNECTDOORBELL) -> NTSTATUS {
        TAKEN.store(true, Ordering::SeqCst);
        until(Duration::from_secs(10), || BEGUN.load(Ordering::SeqCst));
        // Long enough for a destruction that does not wait.
        until(Duration::from_millis(20), || ENDED.load(Ordering::SeqCst));
        EARLY.store(ENDED.load(Ordering::SeqCst), Ordering::SeqCst);
        let status = dxgkrnls(args);
        TAKEN.store(false, Ordering::SeqCst);
        status
    }
}

/// A copy of Dxgkrnl's interface with `callback` for `DxgkCbDisconnectDoorbell`.
fn hears(interface: *mut DXGKRNL_INTERFACE, callback: DXGKCB_DISCONNECTDOORBELL) -> DXGKRNL_INTERFACE {
    let mut mine = copy!(interface);
    DISCONNECT.get_or_init(|| mine.DxgkCbDisconnectDoorbell);
    mine.DxgkCbDisconnectDoorbell = callback;
    mine
}

/// Calls Dxgkrnl's own callback.
fn dxgkrnls(args: *mut DXGKARGCB_DISCONNECTDOORBELL) -> NTSTATUS {
    match DISCONNECT.get() {
        // SAFETY: the driver's arguments, passed on.
        Some(Some(own)) => unsafe { own(args) },
        _ => STATUS_INVALID_PARAMETER,
    }
}

fn noted(destroy: impl FnOnce() -> NTSTATUS) -> NTSTATUS {
    BEGUN.store(true, Ordering::SeqCst);
    let status = destroy();
    ENDED.store(true, Ordering::SeqCst);
    status
}

fn until(time: Duration, mut ready: impl FnMut() -> bool) {
    let end = Instant::now() + time;
    while !ready() && Instant::now() < end {
        std::thread::park_timeout(Duration::from_millis(1));
    }
}

fn stage(hooks: Decorator, mistake: Option<Decorator>) -> Stage {
    HOOKS.get_or_init(|| hooks);
    if let Some(mistake) = mistake {
        MISTAKE.get_or_init(|| mistake);
    }
    let form = Form::Decorated(|table: &mut DRIVER_INITIALIZATION_DATA| {
        for decorate in HOOKS.get().into_iter().chain(MISTAKE.get()) {
            decorate(table);
        }
    });
    Stage::new(form, 1)
}

fn raw(scene: &Scene) -> anyhow::Result<Raw> {
    Raw::open(&Arc::new(scene.world.os.create_process("client")), scene.adapter().luid())
}

/// The OS keeps the doorbell that was used least recently: the next one is taken.
pub fn kept(mistake: Option<Decorator>) -> Played {
    stage(hears_of_kept, mistake).play(Setup::default().setting("PhysicalDoorbells", 2), |scene| {
        let raw = raw(scene)?;
        let room = Room::new(&raw)?;
        // Nothing runs: what ran would count as used since.
        let [first, second] = [(); 2].map(|()| RingQueue::connected(scene, &room, 0, 4096));
        let (first, second) = (first?, second?);
        let third = RingQueue::new(scene, &room, 0, 4096)?;
        third.connect().context("a third connection")?;
        same("how often the OS was asked for what it keeps", ASKED.load(Ordering::SeqCst), 1)?;
        let connected = [&first, &second, &third].map(|queue| queue.status().ok() == Some(CONNECTED));
        same("which are connected", connected, [true, false, true])?;
        for queue in [first, third] {
            let (progress, _) = queue.submit(&[])?;
            queue.wait(scene, progress)?;
        }
        Ok(())
    })
}

/// A doorbell is destroyed while it is being taken: the destruction ends behind that.
pub fn destroyed(mistake: Option<Decorator>) -> Played {
    let hooks = |table: &mut DRIVER_INITIALIZATION_DATA| {
        hears_of_taken(table);
        notes_end(table);
    };
    stage(hooks, mistake).play(Setup::default().setting("PhysicalDoorbells", 1), |scene| {
        let one = raw(scene)?;
        let room = Room::new(&one)?;
        let victim = RingQueue::connected(scene, &room, 0, 4096)?;
        std::thread::scope(|scope| {
            let taker = scope.spawn(|| -> Played {
                let raw = raw(scene)?;
                let room = Room::new(&raw)?;
                let queue = RingQueue::connected(scene, &room, 0, 4096)?;
                let (progress, _) = queue.submit(&[])?;
                queue.wait(scene, progress)
            });
            let taken = scene.until("the callback", || Ok(TAKEN.load(Ordering::SeqCst)));
            victim.destroy_bell()?;
            taker.join().map_err(|_| anyhow!("a thread ended by itself"))??;
            taken
        })?;
        ensure!(
            !EARLY.load(Ordering::SeqCst),
            "DestroyDoorbell ended before DxgkCbDisconnectDoorbell for its doorbell"
        );
        Ok(())
    })
}

/// Between DisconnectDoorbell and the rotation user mode rings, and reads that the doorbell is connected: the work is
/// found without it.
pub fn late(mistake: Option<Decorator>) -> Played {
    let stage = stage(waits, mistake);
    for (model, gate) in (0..).zip(&ROTATION) {
        MODEL.store(model, Ordering::SeqCst);
        // CAST: 0 or 1.
        let setup = Setup::default().setting("DoorbellModel", model as u32);
        // A timeout has the context suspended and resumed, and then its queues are looked at.
        let setup = setup.windows(|windows| windows.tdr.enabled = false);
        let play = |scene: &Scene| {
            let raw = raw(scene)?;
            let room = Room::new(&raw)?;
            let (queue, memory) = (RingQueue::connected(scene, &room, 0, 4096)?, room.memory(scene, 4096)?);
            let (progress, _) = queue.submit(&[])?;
            queue.wait(scene, progress)?;
            let submitted = std::thread::scope(|scope| {
                scope.spawn(|| scene.world.os.disconnect_doorbells(scene.adapter(), false));
                let submitted = scene
                    .until("DisconnectDoorbell", || Ok(gate.is_reached()))
                    .and_then(|()| queue.submit(&[Store { address: memory.gpu, value: 7 }.to_packet()]));
                gate.open();
                submitted
            });
            let (progress, status) = submitted?;
            same("the status at the ring", status, CONNECTED)?;
            let what = || format!("work that was rung for before the rotation, doorbell model {model}");
            or_ends(queue.wait(scene, progress).with_context(what))?;
            same("memory", raw.load(memory.cpu)?, 7)
        };
        stage.play(setup, play).with_context(|| format!("doorbell model {model}"))?;
    }
    Ok(())
}

/// [`forgets`] and [`forgot`].
pub fn forgets_at_disconnect(table: &mut DRIVER_INITIALIZATION_DATA) {
    forgets(table);
    forgot(table);
}
