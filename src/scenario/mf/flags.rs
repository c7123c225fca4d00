//! Flags of creating and opening a monitored fence.

use crate::scenario::client::{Client, RING, until_idle};
use crate::scenario::raw::{ALL, NativeFence, duplicate};
use crate::scenario::{Denied, Played, Raw, Setup, Stage, same};
use anyhow::{Context, Result, ensure};
use gpu_wire::GpuVa;
use gpu_wire::packet::MonitoredSignal;
use std::time::Duration;
use umd_core::ffi::types::FP_QUEUE_KERNEL_MODE;
use wddm_abi::ntstatus::{STATUS_ACCESS_DENIED, STATUS_INVALID_PARAMETER};
use wddm_abi::{
    D3DDDI_SYNCHRONIZATIONOBJECT_FLAGS as Flags, D3DKMT_HANDLE, D3DKMT_OPENSYNCOBJECTFROMNTHANDLE2, HANDLE,
};

const REFUSED: Result<(), Denied> = Err(Denied(STATUS_INVALID_PARAMETER));
const DENIED: Result<(), Denied> = Err(Denied(STATUS_ACCESS_DENIED));
const SOON: Duration = Duration::from_secs(20);

fn none() -> Flags {
    Flags::zeroed()
}

fn shared() -> Flags {
    none().with_Shared(true).with_NtSecuritySharing(true)
}

impl Raw {
    /// Creates a monitored fence with these flags.
    ///
    /// # Errors
    /// The function's status.
    fn flagged(&self, device: D3DKMT_HANDLE, initial: u64, flags: Flags) -> Result<NativeFence, Denied> {
        self.flagged_fence(device, initial, flags, 0)
    }

    /// Opens a monitored fence with these flags; its handle.
    ///
    /// # Errors
    /// The function's status.
    fn open_flagged(&self, device: D3DKMT_HANDLE, handle: HANDLE, flags: Flags) -> Result<D3DKMT_HANDLE, Denied> {
        let mut record = D3DKMT_OPENSYNCOBJECTFROMNTHANDLE2::zeroed();
        record.hNtHandle = handle;
        record.hDevice = device;
        record.Flags = flags;
        self.ok(self.thunks.D3DKMTOpenSyncObjectFromNtHandle2, &mut record)?;
        Ok(record.hSyncObject)
    }
}

/// What may be done to a fence: waits and signals of the CPU, then of a queue. Values must be free to take.
fn allowed(rig: &Client, queue: D3DKMT_HANDLE, fence: D3DKMT_HANDLE, value: u64) -> [Result<(), Denied>; 4] {
    let (event, handle) = rig.raw.event();
    let wait = rig.raw.wait_cpu(rig.plain, &[(fence, 0)], false, Some(handle));
    let signal = rig.raw.signal_cpu(rig.plain, &[(fence, value)]);
    rig.raw.close(handle);
    drop(event);
    [wait, signal, rig.raw.queue_wait(queue, fence, 0), rig.raw.queue_signal(queue, fence, value)]
}

pub(super) fn behaviour(stage: &Stage) -> Played {
    stage.play(Setup::default().setting("MaxRung", 1), |scene| {
        let rig = Client::open(scene, "client")?;
        let queue = rig.device.queue(0, RING, FP_QUEUE_KERNEL_MODE, 0)?;
        let on = queue.info()?.handle;
        let make = |flags| rig.raw.flagged(rig.plain, 3, flags);
        let both = none().with_NoSignal(true).with_NoWait(true);
        let refused = [
            ("NoSignal and NoWait", both),
            ("SignalByKmd", none().with_SignalByKmd(true)),
            ("Shared alone", none().with_Shared(true)),
            ("NtSecuritySharing alone", none().with_NtSecuritySharing(true)),
            ("CrossAdapter alone", none().with_CrossAdapter(true)),
            ("Unused", none().with_Unused(true)),
            ("Reserved", none().with_Reserved(1)),
        ];
        for (what, flags) in refused {
            same(what, make(flags).map(drop), REFUSED)?;
        }
        same("a second physical adapter", rig.raw.flagged_fence(rig.plain, 0, none(), 2).map(drop), REFUSED)?;
        rig.raw.flagged_fence(rig.plain, 0, none(), 1).context("the first physical adapter")?;
        let plain = make(none().with_TopOfPipeline(true)).context("TopOfPipeline")?;
        same("TopOfPipeline", allowed(&rig, on, plain.handle, 4), [Ok(()); 4])?;
        let waits = make(none().with_NoSignal(true)).context("NoSignal")?;
        same("NoSignal", allowed(&rig, on, waits.handle, 4), [Ok(()), DENIED, Ok(()), DENIED])?;
        let signals = make(none().with_NoWait(true)).context("NoWait")?;
        same("NoWait", allowed(&rig, on, signals.handle, 5), [DENIED, Ok(()), DENIED, Ok(())])?;
        until_idle(scene, &queue)?;
        scene.until("a software signal", || Ok(rig.raw.load(signals.cpu)? == 5))?;
        same("the fence that nobody may signal", rig.raw.load(waits.cpu)?, 3)?;
        // Native fences have none of these.
        let native = shared().with_NoWait(true);
        let mut record = Raw::native_fence_record(rig.plain, 0);
        record.Info.Flags = native;
        same("NoWait of a native fence", rig.raw.create_native_fence(&mut record).map(drop), REFUSED)?;
        // The GPU may read it.
        let page = rig.page()?;
        queue.run(|list| list.copy(waits.gpu, page.at(0), 8))?;
        until_idle(scene, &queue)?;
        same("what the GPU reads", page.word(0)?, 3)?;
        // And not write it: that ends its device.
        let store = MonitoredSignal { address: GpuVa(waits.gpu).0, value: 9 }.to_packet();
        let _ = queue.run(|list| list.raw(store.as_bytes()));
        scene.until("the device's error", || Ok(rig.device.state()?.execution != 1))?;
        same("the fence that nobody may signal", rig.raw.load(waits.cpu)?, 3)
    })
}

pub(super) fn hidden(stage: &Stage) -> Played {
    for narrow in [0, 1] {
        let setup = Setup::default().setting("MaxRung", 1).setting("No64BitAtomics", narrow);
        stage.play(setup, |scene| {
            let rig = Client::open(scene, "client")?;
            let queue = rig.device.queue(0, RING, FP_QUEUE_KERNEL_MODE, 0)?;
            let (on, page) = (queue.info()?.handle, rig.page()?);
            let fence = rig.raw.flagged(rig.plain, 1 << 40, none().with_NoGPUAccess(true)).context("NoGPUAccess")?;
            same("its GPU address", fence.gpu, 0)?;
            same("its value", rig.raw.load(fence.cpu)?, 1 << 40)?;
            // Signals and waits are packets of the OS; all 64 bits count whatever the adapter can do.
            rig.raw.queue_wait(on, fence.handle, 1 << 50)?;
            queue.run(|list| list.store(page.at(0), 1))?;
            let other = rig.device.queue(1, RING, FP_QUEUE_KERNEL_MODE, 0)?;
            other.run(|list| list.store(page.at(1), 1))?;
            rig.raw.queue_signal(other.info()?.handle, fence.handle, 1 << 50)?;
            page.until(scene, "what is behind the wait", 0, 1)?;
            same("what was before the signal", page.word(1)?, 1)?;
            same("its value", rig.raw.load(fence.cpu)?, 1 << 50)?;
            rig.raw.rewind_cpu(rig.plain, fence.handle, 7)?;
            same("its value", rig.raw.load(fence.cpu)?, 7)
        })?;
    }
    Ok(())
}

/// Two processes share a fence; each waits on its CPU, and the one that made it goes away.
fn first_goes(stage: &Stage, stay: bool) -> Played {
    stage.play(Setup::default().setting("MaxRung", 1), |scene| {
        let (a, b) = (Client::open(scene, "a")?, Client::open(scene, "b")?);
        let flags = shared().with_UnwaitCpuWaitersOnlyOnDestroy(stay);
        let made = a.raw.flagged(a.plain, 1, flags).context("a shared fence")?;
        let handle = a.raw.share(made.handle, ALL)?;
        let received = duplicate(handle, &a.raw.process, &b.raw.process)?;
        a.raw.close(handle);
        let opened = b.raw.open_flagged(b.plain, received, shared().with_NoSignal(true)).context("opening it")?;
        b.raw.close(received);
        // What the opener asked for binds the opener.
        same("a signal of b's", b.raw.signal_cpu(b.plain, &[(opened, 2)]), DENIED)?;
        a.raw.signal_cpu(a.plain, &[(made.handle, 2)]).context("a signal of a's")?;
        let (at_a, handle_a) = a.raw.event();
        let (at_b, handle_b) = b.raw.event();
        a.raw.wait_cpu(a.plain, &[(made.handle, 9)], false, Some(handle_a))?;
        b.raw.wait_cpu(b.plain, &[(opened, 9)], false, Some(handle_b))?;
        a.raw.destroy_fence(made.handle).context("destroying a's handle")?;
        let released = a.raw.wait_event(&at_a, if stay { Duration::from_millis(30) } else { SOON });
        same("a's waiter is released", released, !stay)?;
        ensure!(!b.raw.wait_event(&at_b, Duration::ZERO), "b's waiter was released");
        b.raw.destroy_fence(opened).context("destroying b's handle")?;
        ensure!(b.raw.wait_event(&at_b, SOON), "b's waiter was not released in the end");
        if stay {
            ensure!(a.raw.wait_event(&at_a, SOON), "a's waiter was not released in the end");
        }
        a.raw.close(handle_a);
        b.raw.close(handle_b);
        Ok(())
    })
}

pub(super) fn waiters(stage: &Stage) -> Played {
    first_goes(stage, false).context("by default")?;
    first_goes(stage, true).context("UnwaitCpuWaitersOnlyOnDestroy")
}
