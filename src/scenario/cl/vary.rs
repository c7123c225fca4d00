//! What the documents let vary, met by the user-mode driver.

use crate::scenario::raw::duplicate_number;
use crate::scenario::rig::{PATIENCE, Rig};
use crate::scenario::{Played, Scenario, Scene, Setup, Stage, same};
use anyhow::{Context, Result, ensure};
use dxgkrnl_model::personality::{KernelProgress, Personality, ProgressOpened, Residency};
use umd_core::ffi::types::{FP_KIND_SYSTEM, FP_QUEUE_KERNEL_MODE};
use wddm_abi::ntstatus::STATUS_NOT_SUPPORTED;

pub(super) const CASES: &[Scenario] = &[
    case("CL-07", "paging operations pend, are over at once, or are over the budget", "D3DDDI_MAKERESIDENT", residency),
    case(
        "CL-08",
        "an allocation that another process made: the GPU uses it, and the CPU where it may",
        "DXGK_ALLOCATIONINFOFLAGS_WDDM2_0, CpuVisible",
        locks,
    ),
    case(
        "CL-09",
        "an event before the value: the value is what counts",
        "D3DKMTWaitForSynchronizationObjectFromCpu",
        event,
    ),
    case(
        "CL-10",
        "progress fences of either kind, opened before the queue is made, after it, or never",
        "DXGKARG_CREATEHWQUEUE, NativeProgressFence",
        progress,
    ),
    case("CL-11", "fences whose GPU address is mapped late", "D3DKMT_OPENSYNCOBJECTFROMNTHANDLE2", late),
    case(
        "CL-12",
        "a kernel-mode buffer that is with the driver waits for nothing",
        "Native GPU fence objects, Kernel-mode work submission",
        cut,
    ),
];

const fn case(id: &'static str, title: &'static str, source: &'static str, play: fn(&Stage) -> Played) -> Scenario {
    Scenario { id, title, source, play }
}

/// Two processes, each with two queues, and a fence between them.
fn work(scene: &Scene) -> Played {
    let (one, two) = (Rig::open(scene, "one")?, Rig::open(scene, "two")?);
    let fence = one.device.shared_fence(0)?;
    let share = duplicate_number(fence.share()?, &one.user.process, &two.user.process)?;
    let opened = two.device.open_fence(share, false)?;
    for flags in [0, FP_QUEUE_KERNEL_MODE] {
        let (first, second) = (one.device.queue(0, 4096, flags, 0)?, two.device.queue(1, 4096, flags, 0)?);
        // A user-mode queue does not take monitored fences.
        if flags == 0 && fence.is_monitored()? != one.has_native {
            let (here, there) = (one.page()?, two.page()?);
            let base = fence.value()?;
            for round in 1..=10_u64 {
                second.run(|list| {
                    list.wait(&opened, base + 2 * round - 1)?;
                    list.store(there.at(0), round)?;
                    list.signal(&opened, base + 2 * round)
                })?;
                first.run(|list| {
                    list.store(here.at(0), round)?;
                    list.signal(&fence, base + 2 * round - 1)
                })?;
                fence.wait(base + 2 * round, Some(PATIENCE))?;
                same("stores", (here.word(0)?, there.word(0)?), (round, round))?;
            }
        }
        let page = one.page()?;
        for round in 1..=10_u64 {
            first.run(|list| list.store(page.at(1), round))?;
            first.wait(0, Some(PATIENCE))?;
            same("a store", page.word(1)?, round)?;
        }
    }
    Ok(())
}

/// Plays [`work`] under changes of Windows.
fn under(stage: &Stage, what: &str, change: impl FnOnce(&mut Personality)) -> Played {
    stage.play(Setup::default().windows(change), work).with_context(|| what.to_owned())
}

fn residency(stage: &Stage) -> Played {
    for residency in [Residency::Pending, Residency::Immediate, Residency::OverBudget] {
        under(stage, &format!("{residency:?}"), |w| w.user_mode.residency = residency)?;
    }
    Ok(())
}

fn locks(stage: &Stage) -> Played {
    for creator_locks in [false, true] {
        stage.play(Setup::default().windows(|w| w.user_mode.creator_locks = creator_locks), |scene| {
            let (maker, other) = (Rig::open(scene, "maker")?, Rig::open(scene, "other")?);
            let memory = maker.device.allocate_shared(FP_KIND_SYSTEM, 4096)?;
            memory.write(0, &7_u64.to_le_bytes())?;
            let share = duplicate_number(memory.share()?, &maker.user.process, &other.user.process)?;
            let opened = other.device.open_allocation(share).context("opening")?;
            let (queue, page, from) = (other.device.queue(0, 4096, 0, 0)?, other.page()?, opened.gpu_va()?);
            queue.run(|list| list.copy(from, page.at(0), 8))?;
            queue.wait(0, Some(PATIENCE))?;
            same("what the other process's GPU reads", page.word(0)?, 7)?;
            match (opened.read_u64(0), creator_locks) {
                (Ok(7), false) => Ok(()),
                (Err(refused), true) => same("the CPU's read", refused.status, STATUS_NOT_SUPPORTED),
                (read, _) => anyhow::bail!("the CPU's read: {read:?}"),
            }
        })?;
    }
    Ok(())
}

fn event(stage: &Stage) -> Played {
    // Engines that cannot write monitored fences: each signal is the OS's, and so is each event.
    let setup = Setup::default().setting("SoftwareSignalNodes", 7).windows(|w| w.user_mode.event_before_value = true);
    stage.play(setup, |scene| {
        let rig = Rig::open(scene, "client")?;
        let fence = rig.fence(0, false)?;
        let queue = rig.queue_for(false)?;
        for round in 1..=200_u64 {
            queue.run(|list| list.signal(&fence, round))?;
            fence.wait(round, Some(PATIENCE))?;
            ensure!(rig.value(&fence)? >= round, "the wait for {round} ended at {}", rig.value(&fence)?);
        }
        Ok(())
    })
}

fn progress(stage: &Stage) -> Played {
    for opened in [ProgressOpened::Before, ProgressOpened::After, ProgressOpened::Never] {
        for kind in [KernelProgress::Native, KernelProgress::Monitored] {
            let change =
                |w: &mut Personality| (w.user_mode.progress_opened, w.user_mode.kernel_progress) = (opened, kind);
            under(stage, &format!("{kind:?}, opened {opened:?}"), change)?;
        }
    }
    Ok(())
}

fn late(stage: &Stage) -> Played {
    under(stage, "late", |w| w.user_mode.fences_mapped_late = true)
}

fn cut(stage: &Stage) -> Played {
    stage.play(Setup::default(), |scene| {
        let rig = Rig::open(scene, "client")?;
        let (queue, page) = (rig.device.queue(0, 4096, FP_QUEUE_KERNEL_MODE, 0)?, rig.page()?);
        let gate = rig.fence(0, true)?;
        let submitted = || -> Result<u64> {
            Ok(scene.calls("DxgkDdiSubmitCommandToHwQueue") + scene.calls("DxgkDdiSubmitCommandVirtual"))
        };
        queue.run(|list| {
            list.store(page.at(0), 1)?;
            list.wait(&gate, 1)?;
            list.store(page.at(1), 1)
        })?;
        page.until(scene, "what is before the wait", 0, 1)?;
        scene.until("its progress", || Ok(queue.progress()?.0 == 1))?;
        let before = submitted()?;
        same("what is behind the wait", page.word(1)?, 0)?;
        rig.signal(&[(&gate, 1)])?;
        page.until(scene, "what is behind the wait", 1, 1)?;
        ensure!(submitted()? > before, "the buffer behind the wait was with the driver before it could run");
        Ok(())
    })
}
