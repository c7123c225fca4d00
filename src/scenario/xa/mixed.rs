//! The second adapter has no native fences.

use super::super::{Denied, Played, Setup, Stage, same};
use crate::scenario::AdapterClient;
use anyhow::{Context, Result, ensure};
use std::time::Duration;
use umd_core::ffi::types::FP_MODE_PACKET;
use wddm_abi::{
    D3DKMT_SIGNALSYNCHRONIZATIONOBJECTFROMGPU, D3DKMT_SUBMITSIGNALSYNCOBJECTSTOHWQUEUE,
    D3DKMT_WAITFORSYNCHRONIZATIONOBJECTFROMGPU, ntstatus,
};

const LONG: Duration = Duration::from_secs(20);

/// A signal that the OS carries out when the queue gets there.
fn software_signal(side: &AdapterClient, fence: u32, value: u64) -> Result<(), Denied> {
    let queue = side.probe.queue.info().map_err(|error| Denied(error.status))?.handle;
    let mut record = D3DKMT_SUBMITSIGNALSYNCOBJECTSTOHWQUEUE::zeroed();
    record.BroadcastHwQueueCount = 1;
    record.BroadcastHwQueueArray = &raw const queue;
    record.ObjectCount = 1;
    record.ObjectHandleArray = &raw const fence;
    record.FenceValueArray = &raw const value;
    side.raw.ok(side.raw.thunks.D3DKMTSubmitSignalSyncObjectsToHwQueue, &mut record)
}

pub(super) fn native_as_monitored(stage: &Stage) -> Played {
    stage.play(Setup::default().without_native_fences_on_the_second(), |scene| {
        let (native, plain) = (AdapterClient::open(scene, 0)?, AdapterClient::open(scene, 1)?);
        let fence = native.fence(1)?;
        let opened = plain.open_fence(&fence, &native)?;
        ensure!(!fence.is_monitored()? && opened.is_monitored()?, "the kinds of the fence");
        same("the value", (opened.value()?, plain.probe.read(opened.info()?.gpu_va)?), (1, 1))?;
        for ddi in ["DxgkDdiCreateNativeFence", "DxgkDdiOpenNativeFence"] {
            same(ddi, plain.calls(ddi), 0)?;
        }
        // Waits of GPU and CPU on the adapter without, signals of both on the one with native fences.
        for (value, from_cpu) in [(10, false), (20, true)] {
            plain.queue_wait(&opened, value)?;
            let waiting = plain.wait(&opened, value)?;
            ensure!(!plain.is_woken(&waiting, Duration::ZERO), "woken too early");
            let reported = native.native_fence_interrupts();
            if from_cpu {
                native.signal(&fence, value)?;
            } else {
                native.queue_signal(&fence, value)?;
            }
            plain.until_ran(scene, "the queue that waits", value)?;
            ensure!(plain.is_woken(&waiting, LONG), "the CPU's wait did not end");
            ensure!(from_cpu || native.native_fence_interrupts() > reported, "the signal did not interrupt");
            same("the value", (fence.value()?, opened.value()?), (value, value))?;
        }
        same("calls about values of the driver without native fences", plain.current_value_updates(), 0)?;
        // A fence that is not for several adapters is for none of the others.
        let private = native.device.shared_fence(0)?;
        let refused = plain.open_fence(&private, &native).err().context("a fence of another adapter was opened")?;
        ensure!(refused.to_string().contains("INVALID_PARAMETER"), "{refused:#}");
        // It goes on where it is when its maker is gone.
        drop(fence);
        plain.queue_wait(&opened, 30)?;
        plain.signal(&opened, 30)?;
        plain.until_ran(scene, "the queue without the maker", 30)
    })
}

pub(super) fn monitored_as_native(stage: &Stage) -> Played {
    // Made as what either adapter has; signaled by packets, or by the OS since the engine cannot.
    for (made_native, software) in [(false, 0), (true, 0), (false, 7), (true, 7)] {
        let setup = Setup::default().without_native_fences_on_the_second();
        stage.play(setup.setting_of_others("SoftwareSignalNodes", software), |scene| {
            let (native, plain) = (AdapterClient::open(scene, 0)?, AdapterClient::open(scene, 1)?);
            let (waits, signals) = if made_native {
                let fence = native.fence(1)?;
                let opened = plain.open_fence(&fence, &native)?;
                (fence, opened)
            } else {
                let fence = plain.fence(1)?;
                (native.open_fence(&fence, &plain)?, fence)
            };
            ensure!(!waits.is_monitored()? && signals.is_monitored()?, "the kinds of the fence");
            same("the value", native.probe.read(waits.info()?.gpu_va)?, 1)?;
            let monitored = waits.info()?.monitored_va;
            same("MonitoredValue", native.probe.read(monitored)?, 0)?;
            for (value, how) in [(10, "GPU"), (20, "CPU"), (30, "OS, for a queue")] {
                let told = native.current_value_updates();
                native.queue_wait(&waits, value)?;
                let waiting = native.wait(&waits, value)?;
                ensure!(!native.is_woken(&waiting, Duration::ZERO), "woken too early");
                match how {
                    "GPU" => plain.queue_signal(&signals, value)?,
                    "CPU" => plain.signal(&signals, value)?,
                    _ => software_signal(&plain, signals.info()?.handle, value).context("a signal for a queue")?,
                }
                native.until_ran(scene, &format!("the queue that waits for the {how}"), value)?;
                ensure!(native.is_woken(&waiting, LONG), "{how}: the CPU's wait did not end");
                native.until_told(scene, told).context(how)?;
                same("the value", (waits.value()?, signals.value()?), (value, value))?;
            }
            same("calls about values of the driver without native fences", plain.current_value_updates(), 0)?;
            // On its own adapter nothing makes it a native one.
            let handle = signals.share()?;
            let nt_handle = std::ptr::with_exposed_provenance_mut(handle as usize);
            let refused = plain.raw.open_native_fence(plain.plain, nt_handle);
            ensure!(
                matches!(refused, Err(Denied(ntstatus::STATUS_INVALID_PARAMETER | ntstatus::STATUS_NOT_SUPPORTED))),
                "{refused:?}"
            );
            plain.raw.close(nt_handle);
            Ok(())
        })?;
    }
    Ok(())
}

pub(super) fn widths(stage: &Stage) -> Played {
    let setup = Setup::default().without_native_fences_on_the_second().setting_of_others("No64BitAtomics", 1);
    stage.play(setup, |scene| {
        let (wide, narrow) = (AdapterClient::open(scene, 0)?, AdapterClient::open(scene, 1)?);
        for (from, to) in [(&wide, &narrow), (&narrow, &wide)] {
            let fence = from.fence(1)?;
            let refused = to.open_fence(&fence, from).err().context("a fence of another width was opened")?;
            let text = format!("{refused:#}");
            ensure!(text.contains("INVALID_PARAMETER") || text.contains("NOT_SUPPORTED"), "{text}");
            from.signal(&fence, 2)?;
            same("the value", fence.value()?, 2)?;
        }
        Ok(())
    })
}

/// `D3DKMTWaitForSynchronizationObjectFromGpu`.
fn context_wait(side: &AdapterClient, context: u32, fence: u32, value: u64) -> Result<(), Denied> {
    let mut record = D3DKMT_WAITFORSYNCHRONIZATIONOBJECTFROMGPU::zeroed();
    record.hContext = context;
    record.ObjectCount = 1;
    record.ObjectHandleArray = &raw const fence;
    record.set_MonitoredFenceValueArray(&raw const value);
    side.raw.ok(side.raw.thunks.D3DKMTWaitForSynchronizationObjectFromGpu, &mut record)
}

/// `D3DKMTSignalSynchronizationObjectFromGpu`.
fn context_signal(side: &AdapterClient, context: u32, fence: u32, value: u64) -> Result<(), Denied> {
    let mut record = D3DKMT_SIGNALSYNCHRONIZATIONOBJECTFROMGPU::zeroed();
    record.hContext = context;
    record.ObjectCount = 1;
    record.ObjectHandleArray = &raw const fence;
    record.set_MonitoredFenceValueArray(&raw const value);
    side.raw.ok(side.raw.thunks.D3DKMTSignalSynchronizationObjectFromGpu, &mut record)
}

/// The packet node.
const PACKETS: u32 = 2;

/// Tables 2a and 2b with what a runtime calls for contexts that Dxgkrnl schedules itself.
pub(super) fn packet_contexts(stage: &Stage) -> Played {
    stage.play(Setup::default().without_native_fences_on_the_second(), |scene| {
        let (native, plain) = (AdapterClient::open(scene, 0)?, AdapterClient::open(scene, 1)?);
        let fence = native.fence(0)?;
        let opened = plain.open_fence(&fence, &native)?;
        let handle = opened.info()?.handle;
        let queue = plain.device.queue(PACKETS, 64 << 10, 0, 0)?;
        let info = queue.info()?;
        same("the mode of the packet node", info.mode, FP_MODE_PACKET)?;
        let at = plain.probe.memory.gpu_va()?;
        for (value, from_cpu) in [(10, false), (20, true)] {
            // 2a: held back by the OS until the other adapter's GPU, or the CPU there, has signalled.
            context_wait(&plain, info.handle, handle, value).context("a wait")?;
            queue.run(|list| list.store(at, value))?;
            native.probe.queue.run(|list| list.store(native.probe.memory.gpu_va()?, value))?;
            native.until_ran(scene, "the other adapter meanwhile", value)?;
            ensure!(plain.probe.memory.read_u64(0)? != value, "what is behind the wait ran before the signal");
            let reported = native.native_fence_interrupts();
            if from_cpu {
                native.signal(&fence, value)?;
            } else {
                native.queue_signal(&fence, value)?;
            }
            plain.until_ran(scene, "the context that waits", value)?;
            ensure!(from_cpu || native.native_fence_interrupts() > reported, "the signal did not interrupt");
            // 2b: behind the work before it, by the CPU; the other adapter's driver is notified.
            let (next, told) = (value + 5, native.current_value_updates());
            native.queue_wait(&fence, next)?;
            let waiting = native.wait(&fence, next)?;
            ensure!(!native.is_woken(&waiting, Duration::ZERO), "woken too early");
            queue.run(|list| list.store(at, next))?;
            context_signal(&plain, info.handle, handle, next).context("a signal")?;
            native.until_ran(scene, "the queue that waits for the context", next)?;
            ensure!(native.is_woken(&waiting, LONG), "the CPU's wait did not end");
            same("what came before the signal", plain.probe.memory.read_u64(0)?, next)?;
            native.until_told(scene, told)?;
            same("the value", (fence.value()?, opened.value()?), (next, next))?;
        }
        same("calls about values of the driver without native fences", plain.current_value_updates(), 0)
    })
}

/// Either of the adapters goes, with the fence made on either; whoever waits on the other one goes on.
pub(super) fn removed(stage: &Stage) -> Played {
    for (made_native, native_goes) in [(false, false), (false, true), (true, false), (true, true)] {
        let what = format!("made native: {made_native}, the native one goes: {native_goes}");
        let played = stage.play(Setup::default().without_native_fences_on_the_second(), |scene| {
            let (native, plain) = (AdapterClient::open(scene, 0)?, AdapterClient::open(scene, 1)?);
            let (maker, opener) = if made_native { (&native, &plain) } else { (&plain, &native) };
            let (goes, stays) = if native_goes { (&native, &plain) } else { (&plain, &native) };
            let made = maker.fence(0)?;
            let opened = opener.open_fence(&made, maker)?;
            let here = if std::ptr::eq(maker, stays) { &made } else { &opened };
            stays.queue_wait(here, 7)?;
            let waiting = stays.wait(here, 7)?;
            ensure!(!stays.is_woken(&waiting, Duration::ZERO), "woken too early");
            scene.world.os.remove_adapter(&goes.adapter);
            stays.until_ran(scene, "the queue of the adapter that stays", 7)?;
            ensure!(stays.is_woken(&waiting, LONG), "the CPU's wait did not end");
            same("the device that stays", stays.device.state()?.execution, 1)?;
            // Other fences are as ever.
            let other = stays.device.fence(0, 0)?;
            stays.queue_signal(&other, 1)?;
            other.wait(1, Some(LONG))?;
            Ok(())
        });
        played.with_context(|| what)?;
    }
    Ok(())
}
