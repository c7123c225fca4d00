//! What an engine has to report while its device sleeps or is gone: each node asks for its interrupt again in D0 and
//! after a removal, and a driver that has read ones reports without the device.
//!
//! The notice is the answer to a preemption that this case asks for, of one node alone: an interrupt for any node
//! reports those of all. The model does not hear of it.
#![expect(unsafe_code, reason = "functions of the driver's table are called and given records")]

use crate::gate::{Gate, or_ends};
use anyhow::{Context, anyhow, ensure};
use core::ffi::c_void;
use dxgkrnl_model::pci::InterruptModel;
use fencepost::scenario::{Played, Scene, Setup, Stage};
use fencepost::world::{Decorator, Form};
use fencepost::wrap::{copy, decorate, own};
use gpu_wire::NODE_COUNT;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;
use wddm_abi::ntstatus::STATUS_SUCCESS;
use wddm_abi::{
    BOOLEAN, DRIVER_INITIALIZATION_DATA, DXGK_INTERRUPT_TYPE, DXGK_START_INFO, DXGK_SURPRISE_REMOVAL_TYPE,
    DXGKARG_PREEMPTCOMMAND, DXGKARGCB_NOTIFY_INTERRUPT_DATA, DXGKCB_NOTIFY_INTERRUPT, DXGKRNL_INTERFACE, HANDLE,
    NTSTATUS, win_extern,
};

/// The name of the case in which the device sleeps.
pub const SLEEP: &str = "notices around D3";
/// The name of the case in which the device goes and the driver does not know.
pub const REMOVAL: &str = "notices around a removal";
/// The name of the case in which the device goes and reads as ones.
pub const ONES: &str = "notices after ones";

/// Every node.
const NODES: core::ops::Range<u32> = 0..NODE_COUNT as u32;
/// PreemptionFenceId of the first preemption that is asked for; the next ones count on.
const FIRST: u32 = 0x7700_0000;

/// What brings the mistake back; this process plays one.
static MISTAKE: OnceLock<Decorator> = OnceLock::new();
/// Dxgkrnl's own `DxgkCbNotifyInterrupt`.
static NOTIFY: OnceLock<DXGKCB_NOTIFY_INTERRUPT> = OnceLock::new();
/// The driver's handle of the adapter that was started last.
static ADAPTER: AtomicUsize = AtomicUsize::new(0);
/// PreemptionFenceId of the last preemption that was asked for.
static ASKED: AtomicU32 = AtomicU32::new(FIRST);
/// PreemptionFenceId of the last such preemption that was reported.
static REPORTED: AtomicU32 = AtomicU32::new(0);
/// Whether the device is about to go.
static GOES: AtomicBool = AtomicBool::new(false);
/// Before the driver's own NotifySurpriseRemoval, and behind it; one of each for each node.
static BEFORE: [Gate; NODE_COUNT] = [const { Gate::new() }; NODE_COUNT];
static BEHIND: [Gate; NODE_COUNT] = [const { Gate::new() }; NODE_COUNT];
/// Which of these the next removal comes to.
static REMOVAL_OF: AtomicUsize = AtomicUsize::new(0);

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
        NOTIFY.get_or_init(|| mine.DxgkCbNotifyInterrupt);
        mine.DxgkCbNotifyInterrupt = Some(notify);
        ADAPTER.store(context.expose_provenance(), Ordering::SeqCst);
        own!(DxgkDdiStartDevice(context, info, &raw mut mine, sources, children))
    }

    /// Stops at the gates.
    waits: DxgkDdiNotifySurpriseRemoval(context: *mut c_void, kind: DXGK_SURPRISE_REMOVAL_TYPE) -> NTSTATUS {
        between_gates(|| own!(DxgkDdiNotifySurpriseRemoval(context, kind)))
    }

    /// A removal was answered with success, and nothing was reported again.
    removal_forgotten: DxgkDdiNotifySurpriseRemoval(
        _context: *mut c_void,
        _kind: DXGK_SURPRISE_REMOVAL_TYPE,
    ) -> NTSTATUS {
        between_gates(|| STATUS_SUCCESS)
    }

    /// A device that read as ones counted as there until NotifySurpriseRemoval.
    ones_unnoticed: DxgkDdiInterruptRoutine(context: *mut c_void, message: u32) -> BOOLEAN {
        if GOES.load(Ordering::SeqCst) { 0 } else { own!(DxgkDdiInterruptRoutine(context, message)) }
    }
}

win_extern! {
    fn notify(adapter: HANDLE, data: *mut DXGKARGCB_NOTIFY_INTERRUPT_DATA) {
        let said = copy!(data);
        if said.InterruptType == DXGK_INTERRUPT_TYPE::DXGK_INTERRUPT_DMA_PREEMPTED {
            let fence = said.DmaPreempted().PreemptionFenceId;
            if fence > FIRST {
                REPORTED.store(fence, Ordering::SeqCst);
                return;
            }
        }
        if let Some(Some(own)) = NOTIFY.get() {
            // SAFETY: the driver's arguments, passed on.
            unsafe { own(adapter, data) };
        }
    }
}

fn between_gates(removed: impl FnOnce() -> NTSTATUS) -> NTSTATUS {
    let node = REMOVAL_OF.load(Ordering::SeqCst);
    BEFORE[node].pass();
    let status = removed();
    BEHIND[node].pass();
    status
}

/// Asks node `node` for a notice, and gives its engine the time to raise the interrupt for it. The device loses it.
fn ask(scene: &Scene, node: u32) {
    let adapter: HANDLE = core::ptr::with_exposed_provenance_mut(ADAPTER.load(Ordering::SeqCst));
    let mut preemption = DXGKARG_PREEMPTCOMMAND::zeroed();
    preemption.PreemptionFenceId = ASKED.fetch_add(1, Ordering::SeqCst) + 1;
    preemption.NodeOrdinal = node;
    let _success = scene.world.os.run(|| own!(DxgkDdiPreemptCommand(adapter, &raw const preemption)));
    std::thread::park_timeout(Duration::from_millis(20));
}

fn is_reported() -> bool {
    REPORTED.load(Ordering::SeqCst) == ASKED.load(Ordering::SeqCst)
}

/// The notice that was asked for comes.
fn comes(scene: &Scene) -> Played {
    scene.until("the report", || Ok(is_reported()))
}

fn stage(mistake: Option<Decorator>) -> Stage {
    if let Some(mistake) = mistake {
        MISTAKE.get_or_init(|| mistake);
    }
    let form = Form::Decorated(|table: &mut DRIVER_INITIALIZATION_DATA| {
        hears(table);
        waits(table);
        if let Some(decorate) = MISTAKE.get() {
            decorate(table);
        }
    });
    Stage::new(form, 1)
}

/// Each node has something to report in D3, and reports it in D0.
pub fn sleep(mistake: Option<Decorator>) -> Played {
    stage(mistake).play(Setup::default(), |scene| {
        let mut nodes = NODES;
        or_ends(nodes.try_for_each(|node| {
            scene.world.os.set_adapter_power(scene.adapter(), false);
            ask(scene, node);
            ensure!(!is_reported(), "node {node}: reported in D3");
            scene.world.os.set_adapter_power(scene.adapter(), true);
            comes(scene).with_context(|| format!("node {node}, after D3"))
        }))
    })
}

/// Takes the device away. `before` runs when it is gone and the driver was not told, `behind` when it was.
fn removed(scene: &Scene, node: u32, before: impl FnOnce() -> Played, behind: impl FnOnce() -> Played) -> Played {
    let at = node as usize;
    REMOVAL_OF.store(at, Ordering::SeqCst);
    std::thread::scope(|scope| {
        let remover = scope.spawn(|| scene.world.os.remove_by_surprise(scene.adapter()));
        let played = (|| {
            scene.until("NotifySurpriseRemoval", || Ok(BEFORE[at].is_reached()))?;
            before()?;
            BEFORE[at].open();
            scene.until("the answer", || Ok(BEHIND[at].is_reached()))?;
            behind()
        })();
        BEFORE[at].open();
        BEHIND[at].open();
        let status = remover.join().map_err(|_| anyhow!("a thread ended by itself"))?;
        played?;
        status.context("the driver was not told").map(|_| ())
    })
}

/// Each node raises an interrupt that the device does not deliver any more, and reports it once the driver was told.
pub fn removal(mistake: Option<Decorator>) -> Played {
    let stage = stage(mistake);
    let mut nodes = NODES;
    nodes.try_for_each(|node| {
        let mut setup = Setup::default();
        // A message interrupts for this device alone, so that the driver's routine is not entered for another device's
        // interrupt while it does not know that its own is gone.
        setup.adapter.device.interrupts = InterruptModel::Message;
        let play = |scene: &Scene| {
            let lost = || {
                ask(scene, node);
                ensure!(!is_reported(), "reported by a device that is gone");
                Ok(())
            };
            let reported = || or_ends(comes(scene).with_context(|| format!("node {node}, after a removal")));
            removed(scene, node, lost, reported)
        };
        stage.play(setup, play)
    })
}

/// Another device on the line interrupts, and the driver reads ones: from then on nothing waits for a register.
pub fn ones(mistake: Option<Decorator>) -> Played {
    let stage = stage(mistake);
    let mut setup = Setup::default();
    setup.adapter.device.interrupts = InterruptModel::Line;
    stage.play(setup, |scene| {
        GOES.store(true, Ordering::SeqCst);
        let played = removed(
            scene,
            0,
            || {
                ask(scene, 0);
                comes(scene).context("a device that read as ones")
            },
            || Ok(()),
        );
        GOES.store(false, Ordering::SeqCst);
        played
    })
}
