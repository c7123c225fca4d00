//! Kernel-mode queues, progress fences, the paging engine.

use crate::client::Queue;
use crate::scenario::client::{Client, Page, RING, native_interrupts, until_idle};
use crate::scenario::{Denied, Played, Raw, Scene, Setup, Stage, begin_wait, same};
use anyhow::{Context, Result, ensure};
use dxgkrnl_model::personality::ProgressFenceHandle;
use gpu_wire::GpuVa;
use gpu_wire::packet::Encoded;
use umd_core::ffi::types::{FP_MODE_KERNEL, FP_MODE_USER, FP_QUEUE_KERNEL_MODE};
use wddm_abi::ntstatus::STATUS_INVALID_PARAMETER;
use wddm_abi::{D3DDDI_MAPGPUVIRTUALADDRESS, D3DKMT_CREATEPAGINGQUEUE, D3DKMT_HANDLE, DXGK_INTERRUPT_TYPE};

const UPDATE_CURRENT: &str = "DxgkDdiUpdateCurrentValuesFromCpu";

pub(super) fn both_kinds(stage: &Stage) -> Played {
    stage.play(Setup::default(), |scene| {
        let rig = Client::open(scene, "client")?;
        let user = rig.queue(0)?;
        let kernel = rig.device.queue(0, RING, FP_QUEUE_KERNEL_MODE, 0)?;
        same("the modes", (user.info()?.mode, kernel.info()?.mode), (FP_MODE_USER, FP_MODE_KERNEL))?;
        let page = rig.page()?;
        let fence = rig.fence(0, true)?;
        let (handle, queue) = (fence.info()?.handle, kernel.info()?.handle);
        // A packet of the kernel-mode queue signals, the user-mode queue waits.
        begin_wait(scene, &user, &fence, 1, &page, 1)?;
        kernel.run(|list| list.signal(&fence, 1))?;
        page.until(scene, "the user-mode queue after a packet's signal", 1, 1)?;
        // A signal that is a command of the scheduler's: behind the buffers before it, by the CPU.
        begin_wait(scene, &user, &fence, 2, &page, 2)?;
        let updates = scene.calls(UPDATE_CURRENT);
        kernel.run(|list| list.store(page.at(2), 2))?;
        rig.raw.queue_signal(queue, handle, 2)?;
        page.until(scene, "the user-mode queue after a command's signal", 1, 2)?;
        same("what came before the signal", page.word(2)?, 2)?;
        rig.native_same("calls of the driver", scene.calls(UPDATE_CURRENT), updates + 1)?;
        // A wait that is a command of the scheduler's: what is behind it is not submitted before the value is there.
        rig.raw.queue_wait(queue, handle, 3)?;
        kernel.run(|list| list.store(page.at(3), 3))?;
        let submitted = scene.world.os.report().counts.kernel_submissions;
        user.run(|list| list.store(page.at(4), 3))?;
        page.until(scene, "the user-mode queue meanwhile", 4, 3)?;
        same("what is behind the wait", page.word(3)?, 0)?;
        same("submissions meanwhile", scene.world.os.report().counts.kernel_submissions, submitted)?;
        let interrupts = native_interrupts(scene).len();
        user.run(|list| list.signal(&fence, 3))?;
        page.until(scene, "what is behind the wait", 3, 3)?;
        ensure!(native_interrupts(scene).len() > interrupts, "the scheduler's wait ended without an interrupt");
        // A packet of the kernel-mode queue waits, the user-mode queue signals.
        begin_wait(scene, &kernel, &fence, 4, &page, 4)?;
        same("what is behind the packet's wait", page.word(1)? == 4, false)?;
        user.run(|list| list.signal(&fence, 4))?;
        page.until(scene, "what is behind the packet's wait", 1, 4)?;
        // User-mode queues have no software commands.
        let refused = Err(Denied(STATUS_INVALID_PARAMETER));
        same("a wait on a user-mode queue", rig.raw.queue_wait(user.info()?.handle, handle, 1), refused)?;
        same("a signal on a user-mode queue", rig.raw.queue_signal(user.info()?.handle, handle, 9), refused)?;
        monitored_fences(scene, &rig, &kernel, &page)
    })
}

/// Of monitored fences the GPU signals, the scheduler waits.
fn monitored_fences(scene: &Scene, rig: &Client, kernel: &Queue, page: &Page) -> Played {
    let other = rig.device.queue(1, RING, FP_QUEUE_KERNEL_MODE, 0)?;
    let fence = rig.fence(0, false)?;
    kernel.run(|list| {
        list.wait(&fence, 1)?;
        list.store(page.at(5), 5)
    })?;
    other.run(|list| list.store(page.at(6), 6))?;
    page.until(scene, "another queue meanwhile", 6, 6)?;
    same("what is behind the wait for a monitored fence", page.word(5)?, 0)?;
    other.run(|list| list.signal(&fence, 1))?;
    page.until(scene, "what is behind the wait for a monitored fence", 5, 5)?;
    same("the monitored fence", rig.value(&fence)?, 1)?;
    let user = rig.queue(0)?;
    let waits = user.run(|list| list.wait(&fence, 1));
    ensure!(waits.is_err(), "a user-mode queue waits for a monitored fence");
    Ok(())
}

pub(super) fn progress_fence(stage: &Stage) -> Played {
    use ProgressFenceHandle::{At24, At48, Nowhere};
    for place in [At24, At48, Nowhere] {
        let setup = Setup::default().windows(|personality| personality.progress_fence_handle = place);
        stage.play(setup, play_progress_fence).with_context(|| format!("{place:?}"))?;
    }
    Ok(())
}

fn play_progress_fence(scene: &Scene) -> Played {
    let rig = Client::open(scene, "client")?;
    let page = rig.page()?;
    for (flags, round) in [(0, 1), (FP_QUEUE_KERNEL_MODE, 2)] {
        let queue = rig.device.queue(0, RING, flags, 0)?;
        let calls = scene.journal(&["DxgkDdiCreateNativeFence", "DxgkDdiCreateHwQueue"]);
        let last: Vec<_> = calls.into_iter().rev().take(2).collect();
        same("the last calls", last, vec!["DxgkDdiCreateHwQueue", "DxgkDdiCreateNativeFence"])?;
        let info = queue.info()?;
        let (event, handle) = rig.raw.event();
        rig.raw.wait_cpu(rig.plain, &[(info.progress_fence, 1)], false, Some(handle)).context("a CPU wait for it")?;
        let waits = rig.queue(1)?;
        let wait = Encoded::fence_wait(GpuVa(info.progress_va), 2);
        waits.run(|list| {
            list.store(page.at(0), round)?;
            list.raw(wait.as_bytes())?;
            list.store(page.at(1), round)
        })?;
        page.until(scene, "the mark before a queue's wait", 0, round)?;
        let interrupts = native_interrupts(scene).len();
        ensure!(!rig.raw.wait_event(&event, std::time::Duration::ZERO), "progress before any work");
        let first = queue.run(|list| list.store(page.at(2), round))?;
        same("the first progress value", first, 1)?;
        ensure!(rig.raw.wait_event(&event, std::time::Duration::from_secs(20)), "the CPU's waiter was not woken");
        // CAST: an address.
        same("its value", rig.raw.load(info.progress_address as usize)?, 1)?;
        same("the work before it", page.word(2)?, round)?;
        ensure!(native_interrupts(scene).len() > interrupts, "the waiter was woken without a native fence interrupt");
        same("the mark behind a queue's wait", page.word(1)?, round - 1)?;
        queue.run(|list| list.store(page.at(2), 100 + round))?;
        page.until(scene, "the mark behind a queue's wait", 1, round)?;
        same("the work before the second value", page.word(2)?, 100 + round)?;
    }
    Ok(())
}

impl Raw {
    /// A paging queue: its handle, that of its fence, where the CPU reads the fence.
    ///
    /// # Errors
    /// The function's status.
    fn paging_queue(&self, device: D3DKMT_HANDLE) -> Result<(D3DKMT_HANDLE, D3DKMT_HANDLE, usize), Denied> {
        let mut record = D3DKMT_CREATEPAGINGQUEUE::zeroed();
        record.hDevice = device;
        self.ok(self.thunks.D3DKMTCreatePagingQueue, &mut record)?;
        Ok((record.hPagingQueue, record.hSyncObject, record.FenceValueCPUVirtualAddress.expose_provenance()))
    }

    /// Takes `pages` pages of address space that read as zeros; the address, and the value that says it is done.
    ///
    /// # Errors
    /// The function's status.
    fn map_zeros(&self, queue: D3DKMT_HANDLE, pages: u64) -> Result<(u64, u64), Denied> {
        let mut record = D3DDDI_MAPGPUVIRTUALADDRESS::zeroed();
        record.hPagingQueue = queue;
        record.SizeInPages = pages;
        record.Protection.set_Zero(true);
        self.ok(self.thunks.D3DKMTMapGpuVirtualAddress, &mut record)?;
        Ok((record.VirtualAddress, record.PagingFenceValue))
    }
}

fn paging_signals(scene: &Scene) -> Result<usize> {
    let monitored = DXGK_INTERRUPT_TYPE::DXGK_INTERRUPT_MONITORED_FENCE_SIGNALED;
    let paging = scene.adapter().notification_journal().into_iter().filter(|notification| notification.node == 2);
    Ok(paging.filter(|notification| notification.kind == monitored).count())
}

pub(super) fn paging_signal(stage: &Stage) -> Played {
    let setup = Setup::default().windows(|personality| personality.paging_engine_signals = true);
    stage.play(setup, |scene| {
        let rig = Client::open(scene, "client")?;
        let queue = rig.queue(0)?;
        let (paging, fence, address) = rig.raw.paging_queue(rig.plain)?;
        let mut last = 0;
        for _ in 0..10 {
            let before = paging_signals(scene)?;
            let mut seen = rig.raw.load(address)?;
            same("the value when all is done", seen, last)?;
            for _ in 0..4 {
                let (_, value) = rig.raw.map_zeros(paging, 3)?;
                same("the values in order", value, last + 1)?;
                last = value;
            }
            let (event, handle) = rig.raw.event();
            rig.raw.wait_cpu(rig.plain, &[(fence, last)], false, Some(handle))?;
            while seen < last {
                let now = rig.raw.load(address)?;
                ensure!((seen..=last).contains(&now), "the value went from {seen} to {now}, {last} was given out");
                seen = now;
                ensure!(scene.world.os.kernel().rules.violations().is_empty(), "a rule is broken");
                std::thread::yield_now();
            }
            ensure!(rig.raw.wait_event(&event, std::time::Duration::from_secs(20)), "{last} woke nobody");
            ensure!(paging_signals(scene)? > before, "the paging engine signaled nothing");
            // What was mapped before the signal is there: a queue stores to it without a fault.
            let page = rig.page()?;
            queue.run(|list| list.store(page.at(0), last))?;
            until_idle(scene, &queue)?;
            same("a store behind the signal", page.word(0)?, last)?;
        }
        same("the device", rig.device.state()?.execution, 1)
    })
}
