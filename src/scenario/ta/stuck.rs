//! Threads that stay in the driver, and resets of the adapter that fail.
#![expect(unsafe_code, reason = "functions of the driver's table are called and given records")]

use super::super::db::raw;
use crate::demo::counters;
use crate::scenario::client::Client;
use crate::scenario::te::hardware::{controller, force};
use crate::scenario::{Played, Raw, Scene, Setup, Stage, same};
use crate::wrap::own;
use anyhow::{Context, ensure};
use dxgkrnl_model::driver::Decorator;
use dxgkrnl_model::personality::MS;
use dxgkrnl_model::thunks::Thunks;
use gpu_wire::private::{EscapeCounters, escape_command};
use nt_model::rules::Violation;
use std::sync::atomic::{AtomicU64, Ordering};
use wddm_abi::ntstatus::STATUS_UNSUCCESSFUL;
use wddm_abi::{DXGKARG_ESCAPE, HANDLE, NTSTATUS};

/// In how many plays of the case a thread is to stay in the driver.
static STAYS: AtomicU64 = AtomicU64::new(0);

crate::decorate! {
    /// Comes back when it is let go.
    stays: DxgkDdiEscape(adapter: HANDLE, args: *const DXGKARG_ESCAPE) -> NTSTATUS {
        while STAYS.load(Ordering::Acquire) != 0 {
            std::thread::park_timeout(std::time::Duration::from_millis(1));
        }
        own!(DxgkDdiEscape(adapter, args))
    }

    refuses_reset: DxgkDdiResetFromTimeout(adapter: HANDLE) -> NTSTATUS {
        _ = own!(DxgkDdiResetFromTimeout(adapter));
        STATUS_UNSUCCESSFUL
    }

    refuses_restart: DxgkDdiRestartFromTimeout(adapter: HANDLE) -> NTSTATUS {
        _ = own!(DxgkDdiRestartFromTimeout(adapter));
        STATUS_UNSUCCESSFUL
    }
}

/// A thread comes back behind TdrDdiDelay, and either half of a reset fails.
pub(super) fn comes_back(stage: &Stage) -> Played {
    let setup = Setup::default().quick_tdr().resets(1).with_driver(stays).breaks(&["DXG-TDR-DDI-DELAY"]);
    stage.play(setup.windows(|windows| windows.tdr.ddi_delay = 300 * MS), |scene| {
        let (control, caller) = (controller(scene)?, Client::open(scene, "calls")?);
        STAYS.fetch_add(1, Ordering::AcqRel);
        std::thread::scope(|scope| -> Played {
            let call = scope.spawn(|| counters::read(&caller.user, scene.adapter().luid()).map(|_| ()));
            let inside = scene.until("a thread in the driver", || Ok(scene.calls("DxgkDdiEscape") >= 1));
            let _the_system_stops = force(&control, None);
            STAYS.fetch_sub(1, Ordering::AcqRel);
            let _abandoned = call.join().map_err(|_| anyhow::anyhow!("a panic"))?;
            inside
        })?;
        let all = scene.world.os.kernel().rules.violations();
        let found = all.iter().find(|one| one.rule.name == "DXG-TDR-DDI-DELAY").context("no violation")?;
        stopped(found, 1)?;
        ensure!(scene.world.os.kernel().rules.is_stopped(), "the machine runs on");
        same("resets", scene.calls("DxgkDdiResetFromTimeout"), 0)
    })?;
    for (what, driver) in [("the first half", refuses_reset as Decorator), ("the second half", refuses_restart)] {
        let setup = Setup::default().resets(1).with_driver(driver).breaks(&["DXG-TDR-ADAPTER"]);
        let play = |scene: &Scene| {
            let control = controller(scene)?;
            let _the_system_stops = force(&control, None);
            let all = scene.world.os.kernel().rules.violations();
            let found = all.iter().find(|one| one.rule.name == "DXG-TDR-ADAPTER").context("no violation")?;
            // As debuggers show it.
            let status = i64::from(STATUS_UNSUCCESSFUL.0).cast_unsigned();
            same("bug check and status", (found.code, found.params[2]), (0x116, status))?;
            ensure!(found.params[1] != 0, "no pointer into the driver");
            Ok(())
        };
        stage.play(setup, play).with_context(|| format!("{what} fails"))?;
    }
    Ok(())
}

/// Bug check 0x116, a pointer into the driver, no status of a function that failed, and `count`.
pub(super) fn stopped(found: &Violation, count: u64) -> Played {
    let [_, driver, status, counted] = found.params;
    same("bug check, status and count", (found.code, status, counted), (0x116, 0, count))?;
    ensure!(driver != 0, "no pointer into the driver");
    Ok(())
}

crate::decorate! {
    /// Does not come back.
    never_returns: DxgkDdiEscape(_adapter: HANDLE, _args: *const DXGKARG_ESCAPE) -> NTSTATUS {
        loop {
            std::thread::park_timeout(std::time::Duration::from_secs(3600));
        }
    }
}

/// Two threads are in the driver for good: the system stops, and the machine comes to its end without them.
pub(super) fn never(stage: &Stage) -> Played {
    const THREADS: u64 = 2;
    let setup = Setup::default().quick_tdr().resets(1).with_driver(never_returns).breaks(&["DXG-TDR-DDI-DELAY"]);
    stage.play(setup.windows(|windows| windows.tdr.ddi_delay = 300 * MS), |scene| {
        let control = controller(scene)?;
        for _ in 0..THREADS {
            let caller = raw(scene)?;
            let own = Raw { process: caller.process.clone(), thunks: Thunks::new(), adapter: caller.adapter };
            // It ends with the process that plays the case.
            std::thread::spawn(move || {
                counters::ask(&own, escape_command::COUNTERS, size_of::<EscapeCounters>()).map(drop)
            });
        }
        scene.until("the threads in the driver", || Ok(scene.calls("DxgkDdiEscape") >= THREADS))?;
        let _the_system_stops = force(&control, None);
        let all = scene.world.os.kernel().rules.violations();
        let found = all.iter().find(|one| one.rule.name == "DXG-TDR-DDI-DELAY").context("no violation")?;
        stopped(found, THREADS)?;
        ensure!(scene.world.os.kernel().rules.is_stopped(), "the machine runs on");
        same("resets", scene.calls("DxgkDdiResetFromTimeout"), 0)
    })
}
