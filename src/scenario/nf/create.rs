//! Types, storage, mappings, private data.

use super::super::raw::{ALL, duplicate};
use super::super::stage::PATIENCE;
use super::super::{Denied, GpuReader, Played, Raw, Scene, Setup, Stage, same};
use super::{LIFE, Since, counts, intra_gpu_record};
use anyhow::{Context, ensure};
use dxgkrnl_model::personality::{Build, CallbackFault};
use gpu_wire::GpuVa;
use gpu_wire::packet::Encoded;
use gpu_wire::private::{FENCE_REPLY_OFFSET, FenceReply, MAGIC};
use std::time::Duration;
use wddm_abi::{D3DKMT_DEVICEEXECUTION_STATE, DXGK_FEATURE_ID, DXGK_PAGE_FAULT_FLAGS, ntstatus};

const PAGE: u64 = 4096;

/// With the driver's capability MapToGpuSystemProcess and without.
pub(super) fn create_default(stage: &Stage) -> Played {
    for map in [0, 1] {
        let setup = Setup::default().setting("MapToGpuSystemProcess", map);
        stage.play(setup, |scene| default_fence(scene, Some(map == 1)))?;
    }
    Ok(())
}

/// The life of a fence. `mapped`: whether the paging process has addresses of its values, if that is known.
fn default_fence(scene: &Scene, mapped: Option<bool>) -> Played {
    let user = scene.process("client")?;
    let probe = GpuReader::new(&user.open()?.device()?)?;
    let raw = Raw::open(&user.process, scene.adapter().luid())?;
    let device = raw.device().context("device")?;
    let since = Since::begin(scene);
    let fence = raw.native_fence(device, 41).context("fence")?;
    same("CurrentValue for the CPU", raw.load(fence.cpu)?, 41)?;
    same("CurrentValue for the GPU", probe.read(fence.gpu)?, 41)?;
    same("MonitoredValue for the GPU", probe.read(fence.monitored)?, u64::MAX)?;
    let places = scene.world.os.fence_places(user.process.nt().id(), fence.handle);
    let [place] = places[..] else { anyhow::bail!("{places:?}") };
    let (current, monitored) = place.system;
    let told = (current != 0, monitored != 0, current != monitored);
    let mapped = mapped.unwrap_or(told.0);
    same("addresses in the paging process", told, (mapped, mapped, mapped))?;
    raw.destroy_fence(fence.handle).context("destroy")?;
    same("the driver's calls", since.calls(), LIFE.to_vec())?;
    same("a second destruction", raw.destroy_fence(fence.handle), Err(Denied(ntstatus::STATUS_INVALID_PARAMETER)))
}

pub(super) fn intra_gpu_off(stage: &Stage) -> Played {
    stage.play(Setup::default(), |scene| {
        let user = scene.process("client")?;
        let raw = Raw::open(&user.process, scene.adapter().luid())?;
        let device = raw.device().context("device")?;
        let (handles, since) = (user.process.open_handles(), Since::begin(scene));
        let mut record = intra_gpu_record(device);
        record.PrivateDriverData = [0x5A; 64];
        record.hSyncObject = 0x1234_5678;
        let before = record;
        let denied = raw.create_native_fence(&mut record);
        same("creation", denied, Err(Denied(ntstatus::STATUS_NOT_SUPPORTED)))?;
        ensure!(wddm_abi::Plain::as_bytes(&record) == wddm_abi::Plain::as_bytes(&before), "the record was written");
        same("handles", user.process.open_handles(), handles)?;
        same("the driver's calls", since.calls(), vec![])
    })?;
    if stage.rung() < 2 {
        return Ok(());
    }
    // The driver has asked what the OS supports, and would not make such a fence for an OS that asked it to.
    stage.play(Setup::default().windows(|windows| windows.faults.unchecked_fence_types = true), |scene| {
        let user = scene.process("client")?;
        let raw = Raw::open(&user.process, scene.adapter().luid())?;
        let device = raw.device().context("device")?;
        let since = Since::begin(scene);
        let denied = raw.create_native_fence(&mut intra_gpu_record(device));
        same("the driver's answer", denied, Err(Denied(ntstatus::STATUS_NOT_SUPPORTED)))?;
        same("the driver's calls", since.calls(), vec!["DxgkDdiCreateNativeFence"])?;
        raw.create_native_fence(&mut Raw::native_fence_record(device, 0)).map(drop).context("a fence of the other type")
    })
}

/// The OS offers the type: the model only, 24H2 does not.
pub(super) fn intra_gpu_on(stage: &Stage) -> Played {
    stage.play(Setup::default().windows(|windows| windows.native_fence_os_caps.intra_gpu = true), |scene| {
        let user = scene.process("client")?;
        let probe = GpuReader::new(&user.open()?.device()?)?;
        let raw = Raw::open(&user.process, scene.adapter().luid())?;
        let device = raw.device().context("device")?;
        let since = Since::begin(scene);
        let fence = raw.create_native_fence(&mut intra_gpu_record(device)).context("fence")?;
        same("CurrentValueCpuVa", fence.cpu, 0)?;
        let refused = Err(Denied(ntstatus::STATUS_INVALID_PARAMETER));
        let (event, handle) = raw.event();
        same("a wait from the CPU", raw.wait_cpu(device, &[(fence.handle, 1)], false, None), refused)?;
        same("a wait by an event", raw.wait_cpu(device, &[(fence.handle, 1)], false, Some(handle)), refused)?;
        same("a signal from the CPU", raw.signal_cpu(device, &[(fence.handle, 1)]), refused)?;
        ensure!(!raw.wait_event(&event, Duration::ZERO), "the event was set");
        same("CurrentValue", probe.read(fence.gpu)?, 0)?;
        // Between queues of the GPU it works as any other.
        let (signal, wait) = (Encoded::fence_signal(GpuVa(fence.gpu), 3), Encoded::fence_wait(GpuVa(fence.gpu), 3));
        let second = user.open()?.device()?.queue(1, 64 << 10, 0, 0)?;
        let waited = second.run(|list| list.raw(wait.as_bytes()))?;
        let signaled = probe.queue.run(|list| list.raw(signal.as_bytes()))?;
        probe.queue.wait(signaled, PATIENCE)?;
        second.wait(waited, PATIENCE)?;
        same("CurrentValue then", probe.read(fence.gpu)?, 3)?;
        raw.close(handle);
        raw.destroy_fence(fence.handle).context("destroy")?;
        let own = since.calls().into_iter().filter(|ddi| *ddi == LIFE[0] || *ddi == LIFE[3]).count();
        // The second queue's progress fence was made meanwhile.
        same("creations and destructions", own, 3)
    })
}

pub(super) fn read_only(stage: &Stage) -> Played {
    stage.play(Setup::default(), |scene| {
        let user = scene.process("client")?;
        let raw = Raw::open(&user.process, scene.adapter().luid())?;
        let device = raw.device().context("device")?;
        let native = raw.native_fence(device, 7).context("native fence")?;
        let monitored = raw.monitored_fence(device, 7, false).context("monitored fence")?;
        for fence in [native, monitored] {
            let violation = raw.store(fence.cpu, 8).err().context("a store through the value's address succeeded")?;
            ensure!(violation.write && violation.address == fence.cpu, "{violation:?}");
            same("the value", raw.load(fence.cpu)?, 7)?;
        }
        Ok(())
    })
}

pub(super) fn packing(stage: &Stage) -> Played {
    let setup = |stride| Setup::default().setting("MonitoredValueStride", stride);
    let newer = |setup: Setup| setup.windows(|windows| windows.build = Build::W28000);
    // The later kit counts the bytes beyond eight.
    for (setup, distance) in [(setup(0), 8), (setup(64), 64), (newer(setup(0)), 8), (newer(setup(64)), 72)] {
        stage.play(setup, |scene| packed(scene, distance))?;
    }
    Ok(())
}

fn packed(scene: &Scene, distance: u64) -> Played {
    let (a, b) = (scene.process("creator")?, scene.process("opener")?);
    let raw = Raw::open(&a.process, scene.adapter().luid())?;
    let device = raw.device().context("device")?;
    let secret = 0x5EC2_E75E_C2E7;
    let private = [(); 2].map(|()| raw.native_fence(device, secret));
    let [first, second] = [private[0].context("private fence")?, private[1].context("private fence")?];
    let shared = raw.shared_native_fence(device, 1).context("shared fence")?;
    let another = raw.shared_native_fence(device, 1).context("shared fence")?;
    let third = raw.native_fence(device, secret).context("private fence")?;
    same("distance for the CPU", second.cpu as u64 - first.cpu as u64, distance)?;
    same("distance of CurrentValue", second.gpu - first.gpu, distance)?;
    same("distance of MonitoredValue", second.monitored - first.monitored, distance)?;
    same("distance of the next one", third.gpu - second.gpu, distance)?;
    ensure!(first.gpu / PAGE != first.monitored / PAGE, "both values are in one page");
    let places =
        [first, shared, another].map(|fence| [fence.gpu / PAGE, fence.monitored / PAGE, fence.cpu as u64 / PAGE]);
    for kind in 0..3 {
        let mut pages = places.map(|place| place[kind]).to_vec();
        pages.sort_unstable();
        pages.dedup();
        ensure!(pages.len() == 3, "shared fences share pages: {places:x?}");
    }
    // What the second process maps shows the one value and nothing else.
    let handle = raw.share(shared.handle, ALL).context("share")?;
    let other = Raw::open(&b.process, scene.adapter().luid())?;
    let theirs = other.device().context("device")?;
    let handle = duplicate(handle, &a.process, &b.process)?;
    let opened = other.open_native_fence(theirs, handle).context("open")?;
    let page = opened.cpu & !(PAGE as usize - 1);
    for at in (page..page + PAGE as usize).step_by(8) {
        same("a word of the page", other.load(at)?, u64::from(at == opened.cpu))?;
    }
    Ok(())
}

/// In both forms of `DXGKARG_OPENNATIVEFENCE`, with private data and without.
pub(super) fn private_data(stage: &Stage) -> Played {
    for build in [Build::W26100Update, Build::W26100Ga] {
        stage.play(Setup::default().windows(|windows| windows.build = build), |scene| {
            let user = scene.process("client")?;
            let raw = Raw::open(&user.process, scene.adapter().luid())?;
            let device = raw.device().context("device")?;
            let pattern: [u8; 64] = std::array::from_fn(|at| 0xC0 ^ at as u8);
            let mut record = Raw::native_fence_record(device, 0);
            record.Info.Flags.set_Shared(true);
            record.Info.Flags.set_NtSecuritySharing(true);
            record.PrivateDriverData = pattern;
            let fence = raw.create_native_fence(&mut record).context("fence")?;
            let back = record.PrivateDriverData;
            same("bytes that are the caller's", &back[..FENCE_REPLY_OFFSET], &pattern[..FENCE_REPLY_OFFSET])?;
            let reply = FenceReply::read(&back[FENCE_REPLY_OFFSET..]).context("no reply")?;
            same("the reply's mark", reply.magic, MAGIC)?;
            // A second fence is another one to the driver.
            let mut record = Raw::native_fence_record(device, 0);
            record.PrivateDriverData = pattern;
            raw.create_native_fence(&mut record).context("second fence")?;
            let next = FenceReply::read(&record.PrivateDriverData[FENCE_REPLY_OFFSET..]).context("no reply")?;
            ensure!((next.index, next.generation) != (reply.index, reply.generation), "{next:?} twice");
            // The driver has nothing to say about an open.
            let handle = raw.share(fence.handle, ALL).context("share")?;
            let mut record = Raw::open_record(device, handle);
            if build == Build::W26100Ga {
                // The record of that kit has no private data, and ends where they begin, behind 32 reserved bytes.
                // What is behind its end is not read, and not written.
                record.PrivateDriverData[32..].copy_from_slice(&pattern[32..]);
                record.Reserved = [0xEE; 32];
                let theirs = (record.PrivateDriverData, record.Reserved);
                raw.ok(raw.thunks.D3DKMTOpenNativeFenceFromNtHandle, &mut record)
                    .context("open by the short record")?;
                same("what lies behind the short record", (record.PrivateDriverData, record.Reserved), theirs)?;
                ensure!(record.hSyncObject != 0 && record.NativeFenceMapping.CurrentValueGpuVa != 0, "{record:?}");
                record.PrivateDriverData[31] = 1;
                let refused = raw.ok(raw.thunks.D3DKMTOpenNativeFenceFromNtHandle, &mut record);
                same("a reserved byte of the short record", refused, Err(Denied(ntstatus::STATUS_INVALID_PARAMETER)))?;
            } else {
                record.PrivateDriverData = pattern;
                raw.ok(raw.thunks.D3DKMTOpenNativeFenceFromNtHandle, &mut record).context("open")?;
                same("private data of an open", record.PrivateDriverData, pattern)?;
            }
            raw.close(handle);
            Ok(())
        })?;
    }
    Ok(())
}

pub(super) fn reserved(stage: &Stage) -> Played {
    stage.play(Setup::default().windows(|windows| windows.faults.reserved = 0xA5), |scene| {
        let user = scene.process("client")?;
        let device = user.open()?.device()?;
        let fence = device.shared_fence(0)?;
        let opened = user.open()?.device()?.open_fence(fence.share()?, false)?;
        let probe = GpuReader::new(&device)?;
        let progress = probe.queue.run(|list| {
            list.signal(&fence, 1)?;
            list.wait(&fence, 2)?;
            list.signal(&fence, 3)
        })?;
        opened.wait(1, PATIENCE)?;
        opened.signal(2)?;
        opened.wait(3, PATIENCE)?;
        probe.queue.wait(progress, PATIENCE)?;
        drop(fence);
        same("the value", opened.value()?, 3)?;
        drop(opened);
        let [made, opened, closed, gone] = counts(scene);
        ensure!(made > gone && opened > closed, "the queue's own fence is left: {made} {opened} {closed} {gone}");
        Ok(())
    })
}

/// What the records of failed calls hold says that the feature is on.
pub(super) fn unanswered(stage: &Stage) -> Played {
    let questions = ["DXGKCB_ISFEATUREENABLED2", "DXGKCB_QUERYFEATUREINTERFACE", "DXGKCB_FEATURE_NATIVEFENCE_CAPS_1"];
    for callback in questions {
        let fault = CallbackFault::each(callback, ntstatus::STATUS_UNSUCCESSFUL);
        let setup = Setup::default().windows(|windows| windows.faults.callbacks.push(fault.clone()));
        // The OS has the feature on, and cannot know that its answer was lost.
        let setup = setup.breaks(&["DXG-FEATURE-UNUSED"]);
        stage.play(setup, |scene| {
            let caps = scene.adapter().caps().context("no caps")?;
            ensure!(!caps.has_native_fences(), "{callback} failed, and NativeGpuFence is set");
            let user = scene.process("client")?;
            let adapter = user.open()?;
            same("native fences, for user mode", adapter.info()?.native_fences, 0)?;
            let device = adapter.device()?;
            let fence = device.fence(0, 0)?;
            ensure!(fence.is_monitored()?, "the fence is native");
            let probe = GpuReader::new(&device)?;
            let progress = probe.queue.run(|list| list.signal(&fence, 2))?;
            fence.wait(2, PATIENCE)?;
            probe.queue.wait(progress, PATIENCE)?;
            LIFE.into_iter().try_for_each(|ddi| same(ddi, scene.calls(ddi), 0))
        })?;
    }
    Ok(())
}

/// `IsFeatureEnabled` answers with a version that the driver has not said it supports. The rule about the version that
/// is asked for holds in every case.
pub(super) fn other_version(stage: &Stage) -> Played {
    for version in [0, 2, u16::MAX] {
        let setup = Setup::default().windows(|windows| windows.faults.fence_version = Some(version));
        // The OS has the feature on.
        let setup = setup.breaks(&["DXG-FEATURE-UNUSED"]);
        stage.play(setup, |scene| {
            let caps = scene.adapter().caps().context("no caps")?;
            ensure!(!caps.has_native_fences(), "version {version}, and NativeGpuFence is set");
            let user = scene.process("client")?;
            let device = user.open()?.device()?;
            let fence = device.fence(0, 0)?;
            ensure!(fence.is_monitored()?, "version {version}: the fence is native");
            LIFE.into_iter().try_for_each(|ddi| same(ddi, scene.calls(ddi), 0))
        })?;
    }
    Ok(())
}

pub(super) fn feature_off(stage: &Stage) -> Played {
    let setup = Setup::default().without(DXGK_FEATURE_ID::DXGK_FEATURE_NATIVE_FENCE);
    stage.play(setup, |scene| {
        let caps = scene.adapter().caps().context("no caps")?;
        ensure!(!caps.has_native_fences(), "NativeGpuFence is set");
        ensure!(caps.has_hardware_scheduling(), "hardware scheduling is off, too");
        let user = scene.process("client")?;
        let adapter = user.open()?;
        same("native fences, for user mode", adapter.info()?.native_fences, 0)?;
        let raw = Raw::open(&user.process, scene.adapter().luid())?;
        let device = raw.device().context("device")?;
        same("creation", raw.native_fence(device, 0), Err(Denied(ntstatus::STATUS_NOT_SUPPORTED)))?;
        // Work goes on with monitored fences.
        let device = adapter.device()?;
        let fence = device.fence(0, 0)?;
        ensure!(fence.is_monitored()?, "the fence is native");
        let probe = GpuReader::new(&device)?;
        let progress = probe.queue.run(|list| {
            list.wait(&fence, 1)?;
            list.signal(&fence, 2)
        })?;
        fence.signal(1)?;
        fence.wait(2, PATIENCE)?;
        probe.queue.wait(progress, PATIENCE)?;
        let ours =
            ["DxgkDdiUpdateMonitoredValues", "DxgkDdiUpdateCurrentValuesFromCpu", "DxgkDdiSetNativeFenceLogBuffer"];
        for ddi in LIFE.into_iter().chain(ours) {
            same(ddi, scene.calls(ddi), 0)?;
        }
        Ok(())
    })
}

/// Each store faults and takes its own device; the other device of the process runs on.
pub(super) fn monitored_value_is_read_only(stage: &Stage) -> Played {
    stage.play(Setup::default(), |scene| {
        let user = scene.process("client")?;
        let adapter = user.open()?;
        let (culprit, innocent) = (adapter.device()?, adapter.device()?);
        let fence = innocent.fence(0, 0)?;
        let va = fence.info()?.monitored_va;
        let bad = GpuReader::new(&culprit)?;
        let good = GpuReader::new(&innocent)?;
        if let Err(early) = bad.queue.run(|list| list.store(va, 0)) {
            // The device may be lost before the submission is over.
            same("an early end", early.status, ntstatus::STATUS_CONNECTION_ABORTED)?;
        }
        scene.until("a page fault", || Ok(culprit.state()?.execution != 1))?;
        let state = culprit.state()?;
        let faulted = D3DKMT_DEVICEEXECUTION_STATE::D3DKMT_DEVICEEXECUTION_ERROR_DMAPAGEFAULT;
        same("the device's state", D3DKMT_DEVICEEXECUTION_STATE(state.execution as i32), faulted)?;
        same("the faulting address", state.page_fault_address, va)?;
        let write = DXGK_PAGE_FAULT_FLAGS::DXGK_PAGE_FAULT_WRITE.0 as u32;
        ensure!(state.page_fault_flags & write != 0, "flags {:#x}", state.page_fault_flags);
        same("MonitoredValue", good.read(va)?, u64::MAX)?;
        good.queue.run(|list| list.signal(&fence, 1))?;
        Ok(fence.wait(1, PATIENCE)?)
    })
}
