//! Memory that runs out where an adapter's reset gives a node another engine.
#![expect(unsafe_code, reason = "functions of the driver's table are called")]

use super::super::client::Client;
use super::super::{Played, Scene, Setup, Stage, same};
use super::hardware::{controller, feed_until_lost, force, recovered, unconditional, works};
use crate::decode::decode;
use crate::wrap::{machine, own};
use anyhow::{Context, Result, ensure};
use nt_model::Machine;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use wddm_abi::ntstatus::STATUS_SUCCESS;
use wddm_abi::{HANDLE, NTSTATUS};

/// The packet at which the engine stops answering: far behind what starts and first clients need.
const AT: u32 = 4000;
/// More than a reset allocates.
const MANY: u64 = 1 << 32;

/// A reset of the adapter.
#[derive(Clone, Copy, Debug, Default)]
struct Reset {
    /// The number of the driver's allocation that fails in it.
    nth: u64,
    /// Allocations that there were; 0 where the one that was to fail has failed.
    made: u64,
    status: Option<NTSTATUS>,
}

/// By machine.
static RESETS: Mutex<BTreeMap<usize, Reset>> = Mutex::new(BTreeMap::new());

fn resets<R>(f: impl FnOnce(&mut Reset) -> R) -> R {
    f(RESETS.lock().unwrap_or_else(PoisonError::into_inner).entry(machine()).or_default())
}

crate::decorate! {
    /// An allocation of the driver's function fails. Those of other threads meanwhile do not count.
    short_of_memory: DxgkDdiResetFromTimeout(adapter: HANDLE) -> NTSTATUS {
        let nth = resets(|reset| reset.nth);
        let fail = |nth| {
            Machine::with_current(|machine| machine.inspect(|machine| machine.fail_own_allocation(nth)).is_some())
        };
        fail(nth);
        let status = own!(DxgkDdiResetFromTimeout(adapter));
        let left = Machine::with_current(|machine| machine.map_or(0, Machine::allocations_until_failure));
        fail(0);
        resets(|reset| (reset.made, reset.status) = (if left == 0 { 0 } else { nth - left }, Some(status)));
        status
    }
}

/// Says which allocation of the next reset fails.
fn plan(scene: &Scene, nth: u64) {
    scene.world.os.run(|| resets(|reset| *reset = Reset { nth, ..Reset::default() }));
}

/// What came of the last reset.
fn last(scene: &Scene) -> Reset {
    scene.world.os.run(|| resets(|reset| *reset))
}

/// Whether the driver says that an engine does not answer.
fn is_silent(scene: &Scene) -> Result<bool> {
    scene.world.os.collect_debug_info(scene.adapter());
    let text = decode(&scene.adapter().debug_info())?.text;
    Ok(text.lines().any(|line| line.split_whitespace().eq(["answers", "no"])))
}

/// An engine that never answers, and a reset of the adapter in which no memory is left for another one, at the first
/// allocation, at the second, and so on: the reset succeeds, as it must, and the node keeps the engine that it has. The
/// next one gives it another.
pub(super) fn sweep(stage: &Stage) -> Played {
    let setup =
        |resets| Setup::default().quick_tdr().setting("FaultWedgeAt", AT).with_driver(short_of_memory).resets(resets);
    let mut made = 0;
    stage.play(setup(2), |scene| {
        plan(scene, MANY);
        feed_until_lost(scene, &Client::open(scene, "hangs")?)?;
        recovered(scene, 2)?;
        same("the status", last(scene).status, Some(STATUS_SUCCESS))?;
        made = last(scene).made;
        works(scene)
    })?;
    // Linked in, the driver's own objects are the process's memory, and none of it fails.
    let least = if stage.is_native() { 0 } else { 4 };
    ensure!((least..100).contains(&made), "another engine takes {made} allocations");
    // The engine's reset that fails, and the adapter's for each allocation and for none.
    stage.play(setup(made + 2), |scene| {
        let control = controller(scene)?;
        same("the limits' end", unconditional(&control), STATUS_SUCCESS)?;
        for nth in 1..=made {
            plan(scene, nth);
            if nth == 1 {
                feed_until_lost(scene, &Client::open(scene, "hangs")?)?;
            } else {
                same("the escape", force(&control, None), STATUS_SUCCESS)?;
            }
            let what = || format!("allocation {nth} of {made} fails");
            recovered(scene, usize::try_from(nth)? + 1).with_context(what)?;
            let Reset { made, status, .. } = last(scene);
            same("the status, and allocations left", (status, made), (Some(STATUS_SUCCESS), 0)).with_context(what)?;
            ensure!(is_silent(scene)?, "{}: the node has another engine", what());
        }
        plan(scene, MANY);
        if made == 0 {
            feed_until_lost(scene, &Client::open(scene, "hangs")?)?;
        } else {
            same("the escape", force(&control, None), STATUS_SUCCESS)?;
        }
        recovered(scene, usize::try_from(made)? + 2)?;
        ensure!(!is_silent(scene)?, "the node has no other engine");
        works(scene).context("with memory again")
    })
}
