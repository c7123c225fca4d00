//! What the documents let vary: our user-mode driver works under each reading.

use crate::scenario::client::{Client, PATIENCE};
use crate::scenario::db::Room;
use crate::scenario::raw::duplicate_number;
use crate::scenario::{Played, Scenario, Scene, Setup, Stage, same};
use anyhow::{Context, Result, ensure};
use dxgkrnl_model::personality::{KernelProgress, Personality, ProgressOpened, Residency};
use gpu_wire::private::allocation_kind;
use std::time::Duration;
use umd_core::ffi::types::{FP_KIND_SYSTEM, FP_QUEUE_KERNEL_MODE};
use wddm_abi::ntstatus::{STATUS_NO_MEMORY, STATUS_NOT_SUPPORTED, STATUS_PENDING, STATUS_SUCCESS};
use wddm_abi::{D3DDDI_MAKERESIDENT, DXGK_INTERRUPT_TYPE as Type};

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

/// Lets two processes work: on the queues that the adapter gives by default, taking turns by a shared fence; then on
/// those and on kernel-mode queues, a process by itself.
fn work(scene: &Scene) -> Played {
    let (one, two) = (Client::open(scene, "one")?, Client::open(scene, "two")?);
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

/// Plays [`work`] on a Windows that `change` makes; `what` names it in a failure.
fn under(stage: &Stage, what: &str, change: impl Fn(&mut Personality)) -> Played {
    stage.play(Setup::default().windows(change), work).with_context(|| what.to_owned())
}

fn residency(stage: &Stage) -> Played {
    for residency in [Residency::Pending, Residency::Immediate, Residency::OverBudget] {
        let what = format!("{residency:?}");
        under(stage, &what, |w| w.user_mode.residency = residency)?;
        let setup = Setup::default().windows(|w| w.user_mode.residency = residency);
        stage.play(setup, |scene| answers(scene, residency)).context(what)?;
    }
    Ok(())
}

/// The OS answers MakeResident as this reading says: without the user-mode driver, and with it, by the driver's count
/// of calls that failed.
fn answers(scene: &Scene, residency: Residency) -> Played {
    let raw = super::raw(scene)?;
    let room = Room::new(&raw)?;
    let handle = room.create(allocation_kind::SYSTEM, 4096).context("allocation")?;
    let mut record = D3DDDI_MAKERESIDENT::zeroed();
    (record.hPagingQueue, record.NumAllocations, record.AllocationList) = (room.paging(), 1, &raw const handle);
    let status = raw.call(raw.thunks.D3DKMTMakeResident, &mut record);
    let (wanted, waits) = match residency {
        Residency::Pending => (STATUS_PENDING, true),
        Residency::Immediate => (STATUS_SUCCESS, false),
        Residency::OverBudget => (STATUS_NO_MEMORY, false),
    };
    same("MakeResident", (status, record.PagingFenceValue != 0), (wanted, waits))?;
    let over = residency == Residency::OverBudget;
    same("whether there is something to trim", record.NumBytesToTrim != 0, over)?;
    room.paged(scene, record.PagingFenceValue)?;
    let rig = Client::open(scene, "client")?;
    rig.page()?;
    let calls = rig.adapter.thunk_calls()?;
    let failures = calls.iter().find(|(name, ..)| name == "D3DKMTMakeResident").map(|(.., failures)| *failures);
    same("whether MakeResident failed for the user-mode driver", failures.is_some_and(|failures| failures != 0), over)
}

fn locks(stage: &Stage) -> Played {
    for creator_locks in [false, true] {
        stage.play(Setup::default().windows(|w| w.user_mode.creator_locks = creator_locks), |scene| {
            let (maker, other) = (Client::open(scene, "maker")?, Client::open(scene, "other")?);
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
    // Engines that cannot write monitored fences: the OS stores each value and sets each event.
    let setup = Setup::default().setting("SoftwareSignalNodes", 7).windows(|w| w.user_mode.event_before_value = true);
    stage.play(setup, |scene| {
        let rig = Client::open(scene, "client")?;
        let fence = rig.fence(0, false)?;
        let queue = rig.queue_for(false)?;
        for round in 1..=200_u64 {
            queue.run(|list| list.signal(&fence, round))?;
            fence.wait(round, Some(PATIENCE))?;
            ensure!(rig.value(&fence)? >= round, "the wait for {round} ended at {}", rig.value(&fence)?);
        }
        // Without the user-mode driver an event is seen before its value, sooner or later.
        for round in 201..=4000_u64 {
            let waiting = rig.wait(&[(&fence, round)], false)?;
            queue.run(|list| list.signal(&fence, round))?;
            ensure!(waiting.came(&rig), "the event for {round} was not set");
            if rig.value(&fence)? < round {
                return Ok(());
            }
            fence.wait(round, Some(PATIENCE))?;
        }
        anyhow::bail!("no event came before its value")
    })
}

fn progress(stage: &Stage) -> Played {
    for opened in [ProgressOpened::Before, ProgressOpened::After, ProgressOpened::Never] {
        for kind in [KernelProgress::Native, KernelProgress::Monitored] {
            let change =
                |w: &mut Personality| (w.user_mode.progress_opened, w.user_mode.kernel_progress) = (opened, kind);
            let what = format!("{kind:?}, opened {opened:?}");
            let setup = Setup::default().windows(change);
            let play = |scene: &Scene| {
                // An interrupt says which kind of fence was signaled, unless it is to say so of none.
                if kind == KernelProgress::Monitored && stage.setting("SingleFenceInterrupt").unwrap_or(0) == 0 {
                    monitored_progress(scene)?;
                }
                work(scene)?;
                let raw = super::raw(scene)?;
                let counted = crate::demo::counters::start(&raw)?.plain_progress;
                // Of four queues two are for doorbells, where there are any; the progress fences of those are native.
                let native = match (stage.rung(), kind) {
                    (2 | 3, KernelProgress::Native) => 4,
                    (3, KernelProgress::Monitored) => 2,
                    _ => 0,
                };
                let unopened = if opened == ProgressOpened::Before { 0 } else { native };
                same("queues without an open progress fence", counted, unopened)
            };
            stage.play(setup, play).context(what)?;
        }
    }
    Ok(())
}

/// A kernel-mode queue alone: its progress fence is signaled as the monitored fence that it is, by the interrupts.
fn monitored_progress(scene: &Scene) -> Played {
    let rig = Client::open(scene, "alone")?;
    let queue = rig.device.queue(0, 4096, FP_QUEUE_KERNEL_MODE, 0)?;
    for _ in 0..3 {
        queue.run(|list| list.nop(8))?;
        queue.wait(0, Some(PATIENCE))?;
    }
    let monitored = scene.adapter().notifications_of(Type::DXGK_INTERRUPT_MONITORED_FENCE_SIGNALED);
    ensure!(monitored != 0, "no queue signaled a monitored progress fence");
    let native = scene.adapter().notifications_of(Type::DXGK_INTERRUPT_NATIVE_FENCE_SIGNALED);
    same("interrupts of native fences", native, 0)
}

fn late(stage: &Stage) -> Played {
    under(stage, "late", |w| w.user_mode.fences_mapped_late = true)?;
    stage.play(Setup::default().windows(|w| w.user_mode.fences_mapped_late = true), mapped_behind_the_call)?;
    // Used at once, by queues that are there already: nothing else is mapped in between.
    let at_once = |scene: &Scene| {
        let (one, two) = (Client::open(scene, "one")?, Client::open(scene, "two")?);
        let (first, second) = (one.device.queue(0, 4096, 0, 0)?, two.device.queue(1, 4096, 0, 0)?);
        for queue in [&first, &second] {
            queue.run(|list| list.nop(8))?;
            queue.wait(0, Some(PATIENCE))?;
        }
        for _ in 0..5 {
            let fence = one.device.shared_fence(0)?;
            first.run(|list| list.signal(&fence, 1))?;
            fence.wait(1, Some(PATIENCE)).context("a fence that was just made")?;
            let share = duplicate_number(fence.share()?, &one.user.process, &two.user.process)?;
            let opened = two.device.open_fence(share, false)?;
            second.run(|list| list.signal(&opened, 2))?;
            fence.wait(2, Some(PATIENCE)).context("a fence that was just opened")?;
        }
        Ok(())
    };
    let setup = Setup::default().windows(|w| w.user_mode.fences_mapped_late = true);
    stage.play(setup, at_once).context("fences that are used at once")
}

/// The function that makes a fence returns before the driver has been asked to map it: at least once in ten times,
/// since this thread may be stopped for as long as the mapping takes.
fn mapped_behind_the_call(scene: &Scene) -> Played {
    let raw = super::raw(scene)?;
    let device = raw.device()?;
    let built = || scene.calls("DxgkDdiBuildPagingBuffer");
    for _ in 0..10 {
        raw.monitored_fence(device, 0, false)?;
        let returned = built();
        for _ in 0..100 {
            if built() > returned {
                return Ok(());
            }
            std::thread::park_timeout(Duration::from_millis(1));
        }
    }
    anyhow::bail!("fences were mapped before the function returned")
}

fn cut(stage: &Stage) -> Played {
    stage.play(Setup::default(), |scene| {
        let rig = Client::open(scene, "client")?;
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
