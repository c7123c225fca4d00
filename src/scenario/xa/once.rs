//! A signal of the CPU that is not over when the other adapter's OS looks at the fence.
#![expect(unsafe_code, reason = "functions of the driver's table are called and given records")]

use super::super::{Played, Setup, Stage, same};
use crate::scenario::AdapterClient;
use crate::wrap::{copy, machine, own};
use anyhow::{Context, ensure};
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use umd_core::ffi::types::FP_QUEUE_KERNEL_MODE;
use wddm_abi::{DXGKARG_UPDATECURRENTVALUESFROMCPU, NTSTATUS};

/// How far a machine's driver is that was given a value to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Write {
    /// It stays in the function behind the next one.
    Awaited,
    /// It has written, and stays.
    Done,
}

/// By machine. One that is not listed stays nowhere.
static WRITES: Mutex<BTreeMap<usize, Write>> = Mutex::new(BTreeMap::new());

fn writes<R>(f: impl FnOnce(&mut BTreeMap<usize, Write>) -> R) -> R {
    f(&mut WRITES.lock().unwrap_or_else(PoisonError::into_inner))
}

crate::decorate! {
    /// Writes, and comes back when the case lets it.
    lingers: DxgkDdiUpdateCurrentValuesFromCpu(args: *const DXGKARG_UPDATECURRENTVALUESFROMCPU) -> NTSTATUS {
        let only_told = copy!(args).Flags.NotificationOnly();
        let status = own!(DxgkDdiUpdateCurrentValuesFromCpu(args));
        let here = machine();
        let stays = !only_told && writes(|all| all.get_mut(&here).map(|write| *write = Write::Done)).is_some();
        while stays && writes(|all| all.contains_key(&here)) {
            std::thread::yield_now();
        }
        status
    }
}

/// Looks at a fence that come between the write and the end of the signal tell no driver of the value once more.
pub(super) fn told_once(stage: &Stage) -> Played {
    // An interrupt that names nothing makes the OS look at all fences of the adapter.
    let setup = Setup::default().adapters(2).setting("OptimizedInterrupt", 1).with_driver(lingers);
    stage.play(setup, |scene| {
        let (one, two) = (AdapterClient::open(scene, 0)?, AdapterClient::open(scene, 1)?);
        let fence = two.fence(0)?;
        let opened = one.open_fence(&fence, &two)?;
        let (looks, other) = (one.device.queue(0, 64 << 10, FP_QUEUE_KERNEL_MODE, 0)?, one.device.fence(0, 0)?);
        let here = scene.world.os.kernel().number();
        let before = (one.current_value_updates(), two.current_value_updates());
        for value in 1..=3 {
            writes(|all| all.insert(here, Write::Awaited));
            std::thread::scope(|scope| {
                let signal = scope.spawn(|| two.signal(&fence, value));
                let looked = (|| {
                    scene.until("the write", || {
                        Ok(writes(|all| all.get(&here) == Some(&Write::Done)) || signal.is_finished())
                    })?;
                    same("CurrentValue", opened.value()?, value)?;
                    let reported = one.native_fence_interrupts();
                    let scans = scene.world.os.counts().fence_scans;
                    looks.run(|list| list.signal(&other, value))?;
                    scene.until("an interrupt", || Ok(one.native_fence_interrupts() > reported))?;
                    scene.until("a look", || Ok(scene.world.os.counts().fence_scans > scans))?;
                    let _inside = one.raw.process.enter();
                    nt_model::Machine::with_current(|machine| machine.map(nt_model::Machine::flush_queued_dpcs));
                    Ok(())
                })();
                writes(|all| all.remove(&here));
                let signaled = signal.join();
                looked.and_then(|()| signaled.unwrap_or_else(|_| Err(anyhow::anyhow!("the signal's thread died"))))
            })
            .with_context(|| format!("value {value}"))?;
            same(
                "calls of either driver",
                (one.current_value_updates() - before.0, two.current_value_updates() - before.1),
                (value, value),
            )?;
        }
        ensure!(fence.value()? == 3, "CurrentValue");
        Ok(())
    })
}
