//! What waits for the level of the device in a recovery: the scheduler's snapshot, and the driver's reset.
#![expect(unsafe_code, reason = "a function of the driver's table is called")]

use super::super::{Played, Scene, Setup, Stage, same};
use super::hardware::{controller, force, recovered, works};
use super::held::Spinner;
use super::{Hog, client, is_lost, only_reset, packet_resets, stubborn, victim};
use crate::wrap::{machine, own};
use anyhow::{Context, ensure};
use dxgkrnl_model::adapter::Step;
use dxgkrnl_model::personality::Gate;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use wddm_abi::ntstatus::STATUS_SUCCESS;
use wddm_abi::{HANDLE, NTSTATUS};

/// How long the device's level is held while nothing may be noted: many times what that takes.
const HELD: Duration = Duration::from_millis(50);
/// How long it is held at most.
const LONG: Duration = Duration::from_secs(20);

/// Holds the level of the device, as an interrupt routine does that is served, while `begin` is called and for a while
/// behind it; then, with the level still held, `check`.
pub(super) fn held(scene: &Scene, begin: impl FnOnce() -> Played, check: impl FnOnce() -> Played) -> Played {
    let (held, over) = (AtomicBool::new(false), AtomicBool::new(false));
    let hold = || {
        held.store(true, Ordering::Release);
        // A failure of the other thread ends it, too.
        let end = Instant::now() + LONG;
        while !over.load(Ordering::Acquire) && Instant::now() < end {
            std::hint::spin_loop();
        }
    };
    std::thread::scope(|scope| -> Played {
        let holder = scope.spawn(|| scene.world.os.hold_interrupts(scene.adapter(), hold));
        let played = scene.until("the device's level", || Ok(held.load(Ordering::Acquire))).and_then(|()| {
            begin()?;
            std::thread::park_timeout(HELD);
            check()
        });
        over.store(true, Ordering::Release);
        holder.join().map_err(|_| anyhow::anyhow!("a panic"))?.context("no interrupt is connected")?;
        played
    })
}

/// While an interrupt of the device could be served, that is while its level is held, the scheduler notes nothing of
/// the node; then it does, and the reset goes on.
pub(super) fn at_the_devices_level(stage: &Stage) -> Played {
    let node = victim(stage);
    let gate = Gate::default();
    let setup = stubborn().windows(|windows| windows.gates.snapshot = Some(gate.clone())).resets(1);
    stage.play(setup, |scene| {
        let raw = client(scene, "hangs")?;
        let hog = Hog::new(scene, &raw, &[node])?;
        hog.spin(node, 0)?;
        hog.begins(scene, 0)?;
        scene.until("the timeout", || Ok(gate.came() == 1))?;
        let has_noted = || {
            let is_noted = |step: &Step| matches!(step, Step::Snapshot { .. } | Step::Emptied);
            packet_resets(scene).iter().any(|recovery| recovery.has(is_noted))
        };
        let let_through = || {
            gate.let_through();
            Ok(())
        };
        held(scene, let_through, || {
            ensure!(!has_noted(), "the scheduler has noted what it knows while an interrupt could be served");
            Ok(())
        })?;
        is_lost(scene, &hog)?;
        let recovery = only_reset(scene)?;
        ensure!(recovery.has(|step| matches!(step, Step::Snapshot { packets: 1, .. })), "{recovery}");
        Ok(())
    })
}

/// An interrupt routine that began before a reset may still report for the engine. So while one could be served, the
/// driver's function does not return: behind it, nothing comes from the engine.
pub(super) fn reset_waits(stage: &Stage) -> Played {
    adapter_waits(stage).context("the adapter's reset")?;
    let node = victim(stage);
    let gate = Gate::default();
    let setup = stubborn().windows(|windows| windows.gates.reset = Some(gate.clone())).resets(1);
    stage.play(setup, |scene| {
        let raw = client(scene, "hangs")?;
        let hog = Hog::new(scene, &raw, &[node])?;
        hog.spin(node, 0)?;
        hog.begins(scene, 0)?;
        scene.until("the preparation", || Ok(gate.came() == 1))?;
        let call = || {
            gate.let_through();
            called(scene, "DxgkDdiResetEngine")
        };
        held(scene, call, || is_inside(scene))?;
        is_lost(scene, &hog)?;
        works(scene)
    })?;
    if stage.rung() == 0 {
        return Ok(());
    }
    // The reset is asked for, and no timeout comes before it, however busy the machine is.
    stage
        .play(Setup::default().resets(1), |scene| {
            let (control, raw) = (controller(scene)?, client(scene, "hangs")?);
            let _hog = Spinner::new(scene, &raw)?;
            std::thread::scope(|scope| -> Played {
                let mut reset = None;
                let call = || {
                    reset = Some(scope.spawn(|| force(&control, Some(0))));
                    called(scene, "DxgkDdiResetHwEngine")
                };
                held(scene, call, || is_inside(scene))?;
                let status = reset.context("a reset")?.join().map_err(|_| anyhow::anyhow!("a panic"))?;
                same("the escape", status, STATUS_SUCCESS)
            })?;
            recovered(scene, 1)?;
            works(scene)
        })
        .context("a hardware-scheduled engine")
}

/// Where the adapter's reset is, by machine.
static AT: Mutex<BTreeMap<usize, Place>> = Mutex::new(BTreeMap::new());

/// Where an adapter's reset is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    /// In front of the driver's function, until the case lets it go on.
    InFront,
    /// In the driver's function.
    Inside,
    /// Behind it.
    Behind,
}

/// Where the reset of the calling machine's adapter is; `to`: from now on.
fn at(to: Option<Place>) -> Option<Place> {
    let mut all = AT.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(to) = to {
        all.insert(machine(), to);
    }
    all.get(&machine()).copied()
}

crate::decorate! {
    /// Waits in front of the driver's function.
    stops_in_front: DxgkDdiResetFromTimeout(adapter: HANDLE) -> NTSTATUS {
        at(Some(Place::InFront));
        let end = Instant::now() + LONG;
        while at(None) == Some(Place::InFront) && Instant::now() < end {
            std::thread::park_timeout(Duration::from_millis(1));
        }
        let status = own!(DxgkDdiResetFromTimeout(adapter));
        at(Some(Place::Behind));
        status
    }
}

/// The same of the adapter's reset. What the scheduler notes at the device's level comes before it: the level is held
/// from in front of the driver's function on.
fn adapter_waits(stage: &Stage) -> Played {
    stage.play(Setup::default().resets(1).with_driver(stops_in_front), |scene| {
        let place = |to| scene.world.os.run(|| at(to));
        let control = controller(scene)?;
        std::thread::scope(|scope| -> Played {
            let reset = scope.spawn(|| force(&control, None));
            let played = scene.until("the reset", || Ok(place(None) == Some(Place::InFront))).and_then(|()| {
                let goes_on = || {
                    place(Some(Place::Inside));
                    Ok(())
                };
                held(scene, goes_on, || same("where the reset is", place(None), Some(Place::Inside)))
            });
            // It goes on whatever was seen, and where it has gone on it may be behind the function by now.
            if place(None) == Some(Place::InFront) {
                place(Some(Place::Inside));
            }
            let status = reset.join().map_err(|_| anyhow::anyhow!("a panic"))?;
            played.and_then(|()| same("the escape", status, STATUS_SUCCESS))
        })?;
        recovered(scene, 1)?;
        same("where the reset is", place(None), Some(Place::Behind))?;
        works(scene)
    })
}

fn called(scene: &Scene, ddi: &str) -> Played {
    scene.until(ddi, || Ok(scene.calls(ddi) == 1))
}

/// The driver's function has not returned.
fn is_inside(scene: &Scene) -> Played {
    let is_over = |step: &Step| matches!(step, Step::ResetEngine(..) | Step::ResetHwEngine(..));
    let over = scene.adapter().recoveries().iter().any(|recovery| recovery.has(is_over));
    ensure!(!over, "the engine's reset was over while an interrupt could be served");
    Ok(())
}
