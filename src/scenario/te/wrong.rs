//! Drivers that answer wrongly: functions in front of the table of the driver that is played, linked in or an image.
#![expect(unsafe_code, reason = "functions of the driver's table are called and given records")]

use super::super::{Played, Raw, Scene, Setup, Stage, same};
use super::{Hog, client, is_lost, stubborn, victim, violation};
use crate::wrap::{own, record};
use anyhow::Context;
use dxgkrnl_model::driver::Decorator;
use nt_model::Policy;
use wddm_abi::{DXGKARG_QUERYDEPENDENTENGINEGROUP, DXGKARG_RESETENGINE, HANDLE, NTSTATUS};

crate::decorate! {
    no_mask: DxgkDdiQueryDependentEngineGroup(adapter: HANDLE, args: *mut DXGKARG_QUERYDEPENDENTENGINEGROUP) -> NTSTATUS {
        let status = own!(DxgkDdiQueryDependentEngineGroup(adapter, args));
        record!(args).DependentNodeOrdinalMask = 0;
        status
    }

    aborts_zero: DxgkDdiResetEngine(adapter: HANDLE, args: *mut DXGKARG_RESETENGINE) -> NTSTATUS {
        let status = own!(DxgkDdiResetEngine(adapter, args));
        record!(args).LastAbortedFenceId = 0;
        status
    }

    aborts_future: DxgkDdiResetEngine(adapter: HANDLE, args: *mut DXGKARG_RESETENGINE) -> NTSTATUS {
        let status = own!(DxgkDdiResetEngine(adapter, args));
        record!(args).LastAbortedFenceId += 1000;
        status
    }
}

/// A client whose second packet hangs: the node has completed one, before which 0 is no wrong id.
fn hangs<'a>(scene: &Scene, raw: &'a Raw, node: u32) -> anyhow::Result<Hog<'a>> {
    let hog = Hog::new(scene, raw, &[node])?;
    hog.short(node, 1)?;
    scene.until("the first packet", || hog.has_ended(1))?;
    hog.spin(node, 0)?;
    Ok(hog)
}

/// A packet hangs, with a driver that answers wrongly.
fn hang(stage: &Stage, setup: Setup, check: impl Fn(&Scene) -> Played) -> Played {
    let node = victim(stage);
    stage.play(setup, |scene| {
        let raw = client(scene, "hangs")?;
        let hog = hangs(scene, &raw, node)?;
        is_lost(scene, &hog)?;
        check(scene)
    })
}

pub(super) fn mask(stage: &Stage) -> Played {
    let setup = stubborn().resets(1).with_driver(no_mask).breaks(&["DXG-TDR-MASK"]);
    hang(stage, setup, |scene| {
        let found = violation(scene, "DXG-TDR-MASK")?;
        same("bug check", (found.code, found.params[0]), (0x119, 8))
    })?;
    stops(stage, no_mask, "DXG-TDR-MASK", 8).context("a Windows that stops")
}

/// The same on a Windows that stops at a bug check, as Windows does: nothing of the recovery comes behind it.
fn stops(stage: &Stage, driver: Decorator, rule: &'static str, first: u64) -> Played {
    let node = victim(stage);
    let setup = stubborn().resets(1).with_driver(driver).breaks(&[rule]);
    stage.play(setup.windows(|windows| windows.policy = Policy::Stop), |scene| {
        let raw = client(scene, "hangs")?;
        let _hog = hangs(scene, &raw, node)?;
        let rules = &scene.world.os.kernel().rules;
        scene.until("the system's stop", || Ok(rules.is_stopped()))?;
        let found = rules.stopped().context("no bug check")?;
        same("rule", found.rule.name, rule)?;
        same("bug check", (found.code, found.params[0]), (0x119, first))?;
        same("resets of the adapter", scene.calls("DxgkDdiResetFromTimeout"), 0)
    })
}

pub(super) fn aborted(stage: &Stage) -> Played {
    let drivers: [(&str, Decorator); 2] = [("below", aborts_zero), ("above", aborts_future)];
    for (what, driver) in drivers {
        let setup = stubborn().resets(1).with_driver(driver).breaks(&["DXG-TDR-ABORTED"]);
        let play = hang(stage, setup, |scene| {
            let found = violation(scene, "DXG-TDR-ABORTED")?;
            same("bug check", (found.code, found.params[0]), (0x119, 0xA))?;
            let recovery = super::only_reset(scene)?;
            let completed = recovery.steps.iter().find_map(|step| match step {
                dxgkrnl_model::adapter::Step::Snapshot { completed, .. } => Some(u64::from(*completed)),
                _ => None,
            });
            let aborted = u64::from(super::aborted(&recovery)?);
            same("parameters 2 and 3", (found.params[1], Some(found.params[2])), (aborted, completed))
        });
        play.with_context(|| format!("{what} the range"))?;
        let stop = stops(stage, driver, "DXG-TDR-ABORTED", 0xA);
        stop.with_context(|| format!("{what} the range, a Windows that stops"))?;
    }
    Ok(())
}
