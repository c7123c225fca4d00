//! What may come between two steps of a recovery: a DPC that is still under way, and an interrupt between the
//! scheduler's notes and the silence of the engine.
#![expect(unsafe_code, reason = "functions of the driver's table and of Dxgkrnl's interface are called")]

use super::super::{Played, Stage, same};
use super::hardware::{controller, force};
use super::snapshot::held;
use super::{Hog, client, is_lost, only_reset, stubborn, victim};
use crate::wrap::{machine, own};
use anyhow::{Context, ensure};
use dxgkrnl_model::adapter::{PacketEvent, Step};
use dxgkrnl_model::personality::Gate;
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use wddm_abi::NTSTATUS;
use wddm_abi::ntstatus::STATUS_SUCCESS;

/// How far the DPC routine of a machine's driver is: whether one is inside, and whether it may come back.
#[derive(Clone, Copy, Default)]
struct Routine {
    is_inside: bool,
    may_return: bool,
}

/// Machines whose driver's DPC routine takes its time.
static SLOW: Mutex<BTreeMap<usize, Routine>> = Mutex::new(BTreeMap::new());

fn routine<R>(machine: usize, f: impl FnOnce(&mut BTreeMap<usize, Routine>, usize) -> R) -> R {
    f(&mut SLOW.lock().unwrap_or_else(PoisonError::into_inner), machine)
}

crate::decorate! {
    /// Takes as long as the case wants.
    takes_its_time: DxgkDdiDpcRoutine(adapter: *mut c_void) {
        let here = machine();
        let waits = || {
            routine(here, |all, here| {
                all.get_mut(&here).is_some_and(|routine| {
                    routine.is_inside = true;
                    !routine.may_return
                })
            })
        };
        while waits() {
            std::thread::park_timeout(Duration::from_micros(100));
        }
        own!(DxgkDdiDpcRoutine(adapter));
    }
}

crate::reaches! {
    /// The interface is kept.
    keeps_interface: DxgkCbQueueDpc = as_it_is;
}

wddm_abi::win_extern! {
    fn as_it_is(adapter: wddm_abi::HANDLE) -> u8 {
        crate::theirs!(DxgkCbQueueDpc(adapter))
    }
}

fn slow(table: &mut wddm_abi::DRIVER_INITIALIZATION_DATA) {
    keeps_interface(table);
    takes_its_time(table);
}

/// What the preparation of a reset calls.
const PREPARES: [&str; 4] =
    ["DxgkDdiQueryDependentEngineGroup", "DxgkDdiQueryEngineStatus", "DxgkDdiCollectDbgInfo2", "DxgkDdiResetEngine"];

/// A while in which a recovery that does not wait would have gone on.
const BRIEF: Duration = Duration::from_millis(50);

/// A DPC that was queued by then is under way when the DPCs are flushed: the reset is prepared behind it.
pub(super) fn flushed(stage: &Stage) -> Played {
    let node = victim(stage);
    let gate = Gate::default();
    let setup = stubborn().windows(|windows| windows.gates.snapshot = Some(gate.clone()));
    stage.play(setup.resets(1).with_driver(slow), |scene| {
        let raw = client(scene, "hangs")?;
        let hog = Hog::new(scene, &raw, &[node])?;
        hog.spin(node, 0)?;
        hog.begins(scene, 0)?;
        scene.until("the timeout", || Ok(gate.came() == 1))?;
        let here = scene.world.os.run(machine);
        let of = |f: fn(&mut Routine)| routine(here, |all, here| f(all.entry(here).or_default()));
        of(|_| ());
        let queue = || {
            scene.world.os.hold_interrupts(scene.adapter(), || {
                let device = crate::wrap::interface().DeviceHandle;
                crate::theirs!(DxgkCbQueueDpc(device));
            })
        };
        let played = std::thread::scope(|scope| -> Played {
            // Where a DPC runs on the thread that has queued it, this one comes back with it.
            let queued = scope.spawn(queue);
            let is_inside = || routine(here, |all, here| all.get(&here).is_some_and(|routine| routine.is_inside));
            let played = scene.until("a DPC", || Ok(is_inside())).and_then(|()| {
                gate.let_through();
                std::thread::park_timeout(BRIEF);
                PREPARES.iter().try_for_each(|ddi| {
                    same(&format!("{ddi} while a DPC is under way that was queued before"), scene.calls(ddi), 0)
                })
            });
            of(|routine| routine.may_return = true);
            queued.join().map_err(|_| anyhow::anyhow!("a panic"))?.context("no interrupt is connected")?;
            played
        });
        gate.open(true);
        played?;
        is_lost(scene, &hog)?;
        let recovery = only_reset(scene)?;
        let at = |wanted: &Step| recovery.steps.iter().position(|step| step == wanted);
        let reset = recovery.steps.iter().position(|step| matches!(step, Step::ResetEngine(STATUS_SUCCESS, _)));
        ensure!(at(&Step::DpcsFlushed).is_some_and(|at| reset.is_some_and(|reset| at < reset)), "{recovery}");
        Ok(())
    })
}

/// How often a packet's end races with the scheduler's notes.
const ROUNDS: u32 = 4;

/// The scheduler notes what it knows, and a packet ends at that moment: what is noted as outstanding is reset, and what
/// counts as completed was never noted as outstanding.
pub(super) fn at_once(stage: &Stage) -> Played {
    (0..ROUNDS).try_for_each(|round| race(stage).with_context(|| format!("round {round}")))
}

fn race(stage: &Stage) -> Played {
    let node = victim(stage);
    let gate = Gate::default();
    let setup = stubborn().windows(|windows| windows.gates.snapshot = Some(gate.clone()));
    stage.play(setup.resets(1), |scene| {
        let raw = client(scene, "late")?;
        let hog = Hog::new(scene, &raw, &[node])?;
        hog.spin(node, 0)?;
        hog.begins(scene, 0)?;
        scene.until("the timeout", || Ok(gate.came() == 1))?;
        let newest = |events: &[PacketEvent]| {
            events.iter().rev().find_map(super::packets::submitted).map(|(id, ..)| id).context("a packet")
        };
        let id = newest(&scene.adapter().packet_journal(node))?;
        // Both wait for the device's level, the scheduler first: its notes and the report of the packet's end.
        let both = || {
            gate.let_through();
            std::thread::park_timeout(BRIEF);
            hog.end(0)?;
            scene.until("the end of the packet", || hog.has_ended(0))
        };
        held(scene, both, || Ok(()))?;
        gate.open(true);
        let recovery = only_reset(scene)?;
        let noted = recovery.steps.iter().find_map(|step| match step {
            Step::Snapshot { packets, .. } => Some(*packets),
            _ => None,
        });
        let is_reported = || scene.adapter().packet_journal(node).contains(&PacketEvent::Completed { id });
        match noted.context("no notes")? {
            0 => {
                ensure!(recovery.steps.last() == Some(&Step::Emptied), "{recovery}");
                ensure!(is_reported() && hog.is_active()?, "the packet's result is thrown away");
                // The reset that the audit counts.
                hog.spin(node, 1)?;
                hog.begins(scene, 1)?;
                same("the escape", force(&controller(scene)?, Some(node)), NTSTATUS(0))?;
            }
            1 => {
                ensure!(recovery.has(|step| *step == Step::DevicesLost(1)), "{recovery}");
                ensure!(!is_reported(), "the packet counts as completed, and was noted as outstanding: {recovery}");
            }
            other => anyhow::bail!("{other} packets: {recovery}"),
        }
        is_lost(scene, &hog)
    })
}
