//! The answer to a preemption that is owed while the device is to lose its power.
#![expect(unsafe_code, reason = "functions of the driver's table are called and given records")]

use super::super::client::Client;
use super::super::{Played, Scene, Setup, Stage, same};
use super::in_time::{Watch, in_time};
use super::{Hog, client, packet_resets, victim};
use crate::wrap::{copy, machine, own};
use anyhow::{Context, anyhow, ensure};
use core::ffi::c_void;
use dxgkrnl_model::adapter::Step;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use wddm_abi::{
    D3DKMT_ESCAPE, D3DKMT_ESCAPETYPE, DEVICE_POWER_STATE, DRIVER_INITIALIZATION_DATA, DXGKARG_ESCAPE,
    DXGKARG_PREEMPTCOMMAND, HANDLE, NTSTATUS, POWER_ACTION, ntstatus::STATUS_SUCCESS,
};

/// `PowerDeviceD0`.
const POWER_DEVICE_D0: i32 = 1;
/// Bytes of the escape that has the request carried out: a number that no other escape has.
const CARRIED_OUT: usize = 20;

/// What a driver with [`keeps_request`] knows.
#[derive(Clone, Copy, Default)]
struct Known {
    /// Requests are kept from here on.
    keeps: bool,
    /// The request that is kept.
    kept: Option<DXGKARG_PREEMPTCOMMAND>,
    /// The device lost its power while one was kept.
    slept: bool,
}

static KNOWN: Mutex<BTreeMap<usize, Known>> = Mutex::new(BTreeMap::new());

/// What the driver of the calling machine knows.
fn known<R>(look: impl FnOnce(&mut Known) -> R) -> R {
    look(KNOWN.lock().unwrap_or_else(PoisonError::into_inner).entry(machine()).or_default())
}

crate::decorate! {
    /// The request is taken, and reaches the engine when [`carries_out`] says so.
    keeps_request: DxgkDdiPreemptCommand(adapter: HANDLE, args: *const DXGKARG_PREEMPTCOMMAND) -> NTSTATUS {
        let request = copy!(args);
        let is_kept = known(|known| {
            let is_kept = core::mem::take(&mut known.keeps);
            if is_kept {
                known.kept = Some(request);
            }
            is_kept
        });
        if is_kept { STATUS_SUCCESS } else { own!(DxgkDdiPreemptCommand(adapter, &raw const request)) }
    }

    /// An escape has the request carried out that was kept.
    carries_out: DxgkDdiEscape(adapter: HANDLE, args: *const DXGKARG_ESCAPE) -> NTSTATUS {
        let args = copy!(args);
        if args.PrivateDriverDataSize as usize != CARRIED_OUT {
            return own!(DxgkDdiEscape(adapter, &raw const args));
        }
        match known(|known| known.kept.take()) {
            Some(request) => own!(DxgkDdiPreemptCommand(adapter, &raw const request)),
            None => STATUS_SUCCESS,
        }
    }

    notes_sleep: DxgkDdiSetPowerState(
        context: *mut c_void,
        device: u32,
        state: DEVICE_POWER_STATE,
        action: POWER_ACTION,
    ) -> NTSTATUS {
        if state.0 != POWER_DEVICE_D0 {
            let kept = known(|known| {
                known.slept |= known.kept.is_some();
                known.kept.take()
            });
            if let Some(request) = kept {
                // The case has failed, and is to have an end.
                let _answered = own!(DxgkDdiPreemptCommand(context, &raw const request));
            }
        }
        own!(DxgkDdiSetPowerState(context, device, state, action))
    }
}

fn answers_late(table: &mut DRIVER_INITIALIZATION_DATA) {
    keeps_request(table);
    carries_out(table);
    notes_sleep(table);
}

/// The device is to lose its power, and the packet that is preempted for that ends by itself. So its node is found
/// empty when TdrDelay is over, and nothing is reset; the device keeps its power until the preemption is answered, for
/// which the driver has another TdrDelay.
pub(super) fn answer(stage: &Stage) -> Played {
    let node = victim(stage);
    for hibernates in [false, true] {
        let setup = || {
            let setup = Setup::default().setting("PreemptInBuffers", 0).with_driver(answers_late);
            setup.windows(|windows| windows.preemption.in_ordinary_use = false)
        };
        in_time(stage, setup, |scene, watch| {
            let (rig, raw) = (Client::open(scene, "asks")?, client(scene, "ends")?);
            let hog = Hog::new(scene, &raw, &[node])?;
            let os = &scene.world.os;
            os.run(|| known(|known| *known = Known { keeps: true, ..Known::default() }));
            watch.begin();
            hog.spin(node, 0)?;
            hog.begins(scene, 0)?;
            std::thread::scope(|scope| -> Played {
                let sleep = scope.spawn(|| os.put_to_sleep(scene.adapter(), hibernates));
                let played = down(scene, watch, &hog);
                // Whatever came of it, the way down has its end.
                let carried = carry_out(&rig);
                watch.end();
                sleep.join().map_err(|_| anyhow!("a panic"))?;
                played.and(carried)
            })?;
            let (is_asleep, slept) = (os.is_asleep(scene.adapter()), os.run(|| known(|known| known.slept)));
            os.wake_up(scene.adapter());
            same("power that was lost before the answer", slept, false)?;
            ensure!(is_asleep, "the device has power");
            ensure!(hog.is_active()?, "the device whose packet was preempted is lost");
            hog.short(node, 1)?;
            scene.until("a packet behind the sleep", || hog.has_ended(1))
        })
        .with_context(|| format!("hibernates: {hibernates}"))?;
    }
    Ok(())
}

/// The packet ends when the request is kept; then the node is found empty, and another TdrDelay begins.
fn down(scene: &Scene, watch: &Watch, hog: &Hog<'_>) -> Played {
    let os = &scene.world.os;
    scene.until("the preemption", || Ok(os.run(|| known(|known| known.kept.is_some()))))?;
    hog.end(0)?;
    scene.until("the packet's end", || hog.has_ended(0))?;
    watch.end();
    let is_empty = || packet_resets(scene).iter().any(|one| one.is_over && one.has(|step| *step == Step::Emptied));
    scene.until("a node that is found empty", || Ok(is_empty()))?;
    watch.begin();
    // Time in which a way down that does not wait would show.
    std::thread::park_timeout(watch.delay / 4);
    same("resets", scene.calls("DxgkDdiResetEngine"), 0)
}

/// The driver carries out what it has kept.
fn carry_out(rig: &Client) -> Played {
    let mut bytes = [0_u8; CARRIED_OUT];
    let mut record = D3DKMT_ESCAPE::zeroed();
    record.hAdapter = rig.raw.adapter;
    record.Type = D3DKMT_ESCAPETYPE::D3DKMT_ESCAPE_DRIVERPRIVATE;
    record.pPrivateDriverData = (&raw mut bytes).cast();
    // CAST: some bytes.
    record.PrivateDriverDataSize = CARRIED_OUT as u32;
    Ok(rig.raw.ok(rig.raw.thunks.D3DKMTEscape, &mut record)?)
}
