//! Packets of a device that is lost before they got to the driver.
#![expect(unsafe_code, reason = "functions of the driver's table are called and given records")]

use super::super::{Played, Raw, Scene, Setup, Stage, same};
use super::hardware::{recovered, works};
use super::{Hog, client, is_lost, stubborn, victim};
use crate::wrap::{copy, machine, own};
use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use wddm_abi::{DXGKARG_CANCELCOMMAND, HANDLE, NTSTATUS};

/// Packets behind the one that hangs.
const BEHIND: u64 = 3;

/// Buffers that the driver was told are cancelled, by machine.
static CANCELLED: Mutex<BTreeMap<usize, Vec<u64>>> = Mutex::new(BTreeMap::new());

crate::decorate! {
    told: DxgkDdiCancelCommand(adapter: HANDLE, args: *const DXGKARG_CANCELCOMMAND) -> NTSTATUS {
        let address = copy!(args).DmaBufferVirtualAddress;
        CANCELLED.lock().unwrap_or_else(PoisonError::into_inner).entry(machine()).or_default().push(address);
        own!(DxgkDdiCancelCommand(adapter, args))
    }
}

/// One packet at a time is with the driver.
fn setup(aware: u32) -> Setup {
    let setup = stubborn().resets(1).setting("CancelCommandAware", aware);
    setup.windows(|windows| windows.preemption.in_flight = 1)
}

/// A packet that never ends, and others of its context behind it.
fn hang<'a>(scene: &Scene, raw: &'a Raw, node: u32) -> Result<Hog<'a>> {
    let hog = Hog::new(scene, raw, &[node])?;
    hog.spin(node, 0)?;
    hog.begins(scene, 0)?;
    (1..=BEHIND).try_for_each(|slot| hog.short(node, slot))?;
    Ok(hog)
}

/// A packet hangs, with others of its context behind it that are not with the driver: its device is lost with the
/// reset, and the driver is told of each of the others, where it says that it wants to know.
pub(super) fn behind_a_hang(stage: &Stage) -> Played {
    let node = victim(stage);
    for aware in [1, 0] {
        if stage.setting("CancelCommandAware").is_some_and(|set| set != aware) {
            continue;
        }
        let setup = setup(aware).with_driver(told);
        let play = |scene: &Scene| {
            let raw = client(scene, "hangs")?;
            let hog = hang(scene, &raw, node)?;
            is_lost(scene, &hog)?;
            recovered(scene, 1)?;
            let want: Vec<_> = (1..=BEHIND).filter(|_| aware == 1).map(|slot| hog.code(slot)).collect();
            let number = scene.world.os.run(machine);
            // Taken out: a later machine may have the number.
            let told = || CANCELLED.lock().unwrap_or_else(PoisonError::into_inner).remove(&number);
            scene.until("the calls", || Ok(scene.calls("DxgkDdiCancelCommand") >= want.len() as u64))?;
            works(scene)?;
            same("buffers", told().unwrap_or_default(), want)?;
            for slot in 1..=BEHIND {
                same("a packet that never ran", hog.has_ended(slot)?, false)?;
            }
            Ok(())
        };
        stage.play(setup, play).with_context(|| format!("CancelCommandAware {aware}"))?;
    }
    // With the driver's own function in the table.
    stage.play(setup(1), |scene| {
        let raw = client(scene, "hangs")?;
        let hog = hang(scene, &raw, node)?;
        is_lost(scene, &hog)?;
        works(scene)
    })
}
