//! Group DD: every function of the driver's table does what its page says.
//!
//! | file | holds |
//! |---|---|
//! | `dd.rs` | that each is called, and what it returns and fills |
//! | `dd/device.rs` | a device that sleeps, and one that goes |
//! | `dd/kernel.rs` | the kernel under the driver: time, priorities, want of addresses |
//! | `dd/memory.rs` | translations that go, allocations that go |
//! | `dd/queue.rs` | rings, logs and doorbells that come and go, contexts that render nothing |
//! | `dd/scheduling.rs` | scheduling logs |

mod device;
mod kernel;
mod memory;
mod polled;
mod queue;
mod scheduling;

use super::client::{Client, endless};
use super::nf::intra_gpu_record;
use super::stage::PATIENCE;
use super::{Played, Scenario, Scene, Setup, Stage};
use crate::demo::counters;
use anyhow::ensure;
use dxgkrnl_model::personality::HwContexts;
use std::collections::BTreeSet;
use umd_core::ffi::types::FP_QUEUE_KERNEL_MODE;
use wddm_abi::slots::DRIVER_INITIALIZATION_DATA_SLOTS;

pub(super) const CASES: &[Scenario] = &[
    Scenario {
        id: "DD-01",
        title: "every function of the table is called, returns what its page lists, fills what is [out] and leaves \
                what is [in]",
        source: "DRIVER_INITIALIZATION_DATA; the pages of the functions, Return value; DXGKARG_FORMATHISTORYBUFFER; \
                 DXGK_GPUCLOCKDATA_FLAGS",
        play: every_slot,
    },
    Scenario {
        id: "DD-02",
        title: "a device that goes while queues work: told, not touched, cleaned up; and its next start",
        source: "DxgkDdiNotifySurpriseRemoval; DxgkDdiInterruptRoutine",
        play: device::removal,
    },
    Scenario {
        id: "DD-03",
        title: "D3 and back loses no interrupt",
        source: "DxgkDdiSetPowerState; PCI Bus Power Management Interface Specification, D3hot",
        play: device::asleep,
    },
    Scenario {
        id: "DD-04",
        title: "a packet whose interrupt got lost is reported when the OS asks for its fence, and the answer is as new \
                as the report, behind an adapter reset too",
        source: "DxgkDdiQueryCurrentFence, Remarks",
        play: device::lost_interrupt,
    },
    Scenario {
        id: "DD-05",
        title: "a ring that is taken away before its doorbell is destroyed causes no fault",
        source: "User-mode work submission, normal termination; DxgkDdiDisconnectDoorbell",
        play: queue::rings_first,
    },
    Scenario {
        id: "DD-06",
        title: "a queue's logs are taken away, and made again",
        source: "DxgkDdiSetNativeFenceLogBuffer (can be destroyed and recreated)",
        play: queue::logs,
    },
    Scenario {
        id: "DD-07",
        title: "threads that connect and destroy more doorbells than there are: each connection succeeds",
        source: "DxgkDdiConnectDoorbell, Return value; DxgkCbDisconnectDoorbell, Return value",
        play: queue::short_of_doorbells,
    },
    Scenario {
        id: "DD-10",
        title: "a context that renders nothing: its fences come, and nothing runs",
        source: "DXGK_SUBMITCOMMANDFLAGS, NullRendering; D3DDDI_CREATECONTEXTFLAGS, NullRendering",
        play: queue::null_rendering,
    },
    Scenario {
        id: "DD-14",
        title: "a connection waits for as long as every doorbell changes hands, and no longer than the device is there",
        source: "DxgkDdiConnectDoorbell, Return value; DxgkCbDisconnectDoorbell",
        play: queue::waits_for_doorbells,
    },
    Scenario {
        id: "DD-16",
        title: "a doorbell that is destroyed while it is being taken is there until it is taken",
        source: "DxgkDdiDestroyDoorbell; DxgkCbDisconnectDoorbell",
        play: queue::destroyed_while_taken,
    },
    Scenario {
        id: "DD-15",
        title: "interrupts that arrive while StopDevice waits for the engines are claimed",
        source: "DxgkDdiStopDevice; DxgkDdiInterruptRoutine, Return value",
        play: device::late_interrupts,
    },
    Scenario {
        id: "DD-13",
        title: "StopDevice while a DPC runs: what was started goes when nothing runs in it, at PASSIVE_LEVEL",
        source: "DxgkDdiStopDevice; DxgkCbUnmapMemory, IRQL; KeFlushQueuedDpcs",
        play: device::stop_during_dpc,
    },
    Scenario {
        id: "DD-11",
        title: "the scheduling log says which context ran when, and interrupts at the entry that it was told",
        source: "DXGKDDI_SETSCHEDULINGLOGBUFFER; DXGK_SCHEDULING_LOG_CONTEXT_STATE",
        play: scheduling::logs,
    },
    Scenario {
        id: "DD-08",
        title: "translations go with either reading of where a flush ends",
        source: "DXGK_BUILDPAGINGBUFFER_FLUSHTLB, EndVirtualAddress",
        play: memory::flush_ends,
    },
    Scenario {
        id: "DD-09",
        title: "a handle that names nothing does not keep the rest of its batch alive",
        source: "DxgkDdiDestroyAllocation, Remarks; DxgkDdiCloseAllocation",
        play: memory::stray_handles,
    },
    Scenario {
        id: "DD-17",
        title: "what an engine raised before a reset held it is over with the reset, and the next packet is reported",
        source: "DxgkDdiResetEngine; TDR changes in Windows 8, steps 3 to 7",
        play: device::raised_before_a_reset,
    },
    Scenario {
        id: "DD-12",
        title: "an engine reset of packets names the one that ran: the packets behind it come back and run",
        source: "DXGKARG_RESETENGINE, LastAbortedFenceId; TDR changes in Windows 8",
        play: device::aborted,
    },
    Scenario {
        id: "DD-18",
        title: "the driver waits by ticks of the clock, or by a high-resolution timer: what is rung after a while runs \
                soon, whatever a short time-out does",
        source: "windows-driver-docs kernel/timer-accuracy, kernel/high-resolution-timers; ExAllocateTimer",
        play: kernel::waits,
    },
    Scenario {
        id: "DD-19",
        title: "engines and paging go on where the machine has no addresses left to map pages at",
        source: "MmMapLockedPagesSpecifyCache, Return value; MmMapLockedPagesWithReservedMapping, Return value",
        play: kernel::no_addresses,
    },
    Scenario {
        id: "DD-20",
        title: "an engine is reset in time while it unmaps thousands of pages, however long each takes",
        source: "DxgkDdiResetHwEngine; TDR changes in Windows 8; MmUnmapLockedPages",
        play: kernel::much_to_unmap,
    },
    Scenario {
        id: "DD-21",
        title: "engines have a real-time priority, and a busy one leaves the processors to others for a part of \
                the time",
        source: "KeSetPriorityThread; windows-driver-docs kernel/high-resolution-timers",
        play: kernel::priorities,
    },
    Scenario {
        id: "DD-22",
        title: "on one processor, of an engine that works for a moment now and then nothing is put off",
        source: "KeSetPriorityThread; KeSetTimerEx",
        play: kernel::short_work,
    },
    Scenario {
        id: "DD-23",
        title: "a DPC for which nothing is left: the driver tells nothing anew, and work goes on",
        source: "DxgkCbQueueDpc, Return value; DxgkDdiDpcRoutine, Remarks",
        play: device::late_dpc,
    },
    Scenario {
        id: "DD-24",
        title: "what the driver measures is asked for again and again: while an engine's reset is prepared, behind it, and \
                not once the adapter stops",
        source: "DXGK_QUERYADAPTERINFOTYPE, DXGKQAITYPE_NODEPERFDATA and DXGKQAITYPE_ADAPTERPERFDATA; D3DKMT_NODE_PERFDATA",
        play: polled::polled,
    },
];

/// Functions that DD-01 does not demand to see called, and why. Other cases call them.
const ELSEWHERE: &[(&str, &str)] = &[
    ("DxgkDdiInterruptRoutine", "entered by the interrupt, and counted there"),
    ("DxgkDdiRemoveDevice", "the adapter is gone then"),
    ("DxgkDdiUnload", "the driver is gone then"),
    ("DxgkDdiResetFromTimeout", "when an engine cannot be reset by itself"),
    ("DxgkDdiRestartFromTimeout", "after ResetFromTimeout"),
];

/// Functions that are called from a rung on, and on none below: they belong to what that rung adds.
#[rustfmt::skip]
const FROM_RUNG: &[(u32, &[&str])] = &[
    (1, &[
        "DxgkDdiCreateHwContext", "DxgkDdiDestroyHwContext", "DxgkDdiCreateHwQueue", "DxgkDdiDestroyHwQueue",
        "DxgkDdiSubmitCommandToHwQueue", "DxgkDdiPresentToHwQueue", "DxgkDdiSuspendContext", "DxgkDdiResumeContext",
        "DxgkDdiSwitchToHwContextList", "DxgkDdiUpdateHwContextState", "DxgkDdiSetContextSchedulingProperties",
        "DxgkDdiSetupPriorityBands", "DxgkDdiSetSchedulingLogBuffer", "DxgkDdiResetHwEngine", "DxgkDdiResumeHwEngine",
    ]),
    (2, &[
        "DxgkDdiCreateNativeFence", "DxgkDdiDestroyNativeFence", "DxgkDdiOpenNativeFence", "DxgkDdiCloseNativeFence",
        "DxgkDdiUpdateMonitoredValues", "DxgkDdiUpdateCurrentValuesFromCpu", "DxgkDdiGetStandardAllocationDriverData",
    ]),
    (3, &[
        "DxgkDdiCreateDoorbell", "DxgkDdiConnectDoorbell", "DxgkDdiDisconnectDoorbell", "DxgkDdiDestroyDoorbell",
        "DxgkDdiNotifyWorkSubmission", "DxgkDdiSetNativeFenceLogBuffer", "DxgkDdiUpdateNativeFenceLogs",
        "DxgkDdiSetPowerComponentFState",
    ]),
];

fn every_slot(stage: &Stage) -> Played {
    let rung = stage.rung();
    let mut called = BTreeSet::new();
    let mut filled = BTreeSet::new();
    stage.play(Setup::default().windows(|windows| windows.every_slot = true), |scene| {
        let rig = Client::open(scene, "client")?;
        let (user, kernel) = (rig.queue(0)?, rig.device.queue(1, 64 << 10, FP_QUEUE_KERNEL_MODE, 0)?);
        let (fence, page) = (rig.fence(0, true)?, rig.page()?);
        for (at, queue) in [(0, &user), (1, &kernel)] {
            queue.run(|list| list.store(page.at(at), 1))?;
            page.until(scene, "work", at, 1)?;
        }
        user.run(|list| list.signal(&fence, 1))?;
        fence.wait(1, PATIENCE)?;
        rig.signal(&[(&fence, 2)])?;
        scene.world.os.set_adapter_power(scene.adapter(), false);
        scene.world.os.set_adapter_power(scene.adapter(), true);
        scene.world.os.disconnect_doorbells(scene.adapter(), true);
        let null = scene.adapter().null_slots();
        let members = DRIVER_INITIALIZATION_DATA_SLOTS.iter().map(|slot| slot.member);
        filled.extend(members.filter(|member| *member != "Version" && !null.contains(member)));
        scene.world.os.stop_adapter(scene.adapter());
        note(scene, &mut called);
        Ok(())
    })?;
    // NotifyWorkSubmission, F1, a fence whose values are in local memory, suspension, and a removal.
    let setup = Setup::default().setting("ConnectNotify", 1).setting("PowerComponents", 1);
    let setup = setup.setting("IdleMilliseconds", 1);
    let setup = setup.windows(|windows| windows.native_fence_os_caps.intra_gpu = true);
    stage.play(setup, |scene| {
        let rig = Client::open(scene, "client")?;
        let (queue, page) = (rig.queue(0)?, rig.page()?);
        queue.run(|list| list.store(page.at(0), 1))?;
        page.until(scene, "work", 0, 1)?;
        if rung >= 3 {
            scene.until("F1", || Ok(scene.world.os.f_state(scene.adapter(), 0) == Some(1)))?;
        }
        if rig.has_native {
            rig.raw.create_native_fence(&mut intra_gpu_record(rig.plain))?;
        }
        counters::read(&rig.user, scene.adapter().luid())?;
        if rung > 0 {
            ensure!(scene.world.os.suspend(scene.adapter(), &rig.user.process), "not suspended");
            scene.world.os.resume(scene.adapter(), &rig.user.process);
        }
        scene.world.os.remove_by_surprise(scene.adapter());
        note(scene, &mut called);
        Ok(())
    })?;
    for setting in BTreeSet::from([rung, 0]) {
        // A hang of a hardware queue whose context was made by the obsolete pair, and one of packets.
        let setup = Setup::default().quick_tdr().setting("MaxRung", setting).resets(1);
        stage.play(setup.windows(|windows| windows.hw_contexts = HwContexts::CreateHwContext), |scene| {
            let rig = Client::open(scene, "client")?;
            let queue = rig.device.queue(0, 64 << 10, 0, 0)?;
            let (_memory, address, length) = endless(&rig.device)?;
            queue.run(|list| list.indirect(address, length))?;
            // Of packets, more than the driver is given at a time: those that never got there are cancelled.
            for _ in 0..4 {
                queue.run(|list| list.nop(16))?;
            }
            scene.until("the loss of the device", || Ok(rig.device.state()?.execution != 1))?;
            drop(queue);
            scene.world.os.stop_adapter(scene.adapter());
            note(scene, &mut called);
            Ok(())
        })?;
    }
    for (name, why) in ELSEWHERE {
        ensure!(filled.contains(name), "{name} is NULL, and is excused: {why}");
        ensure!(!called.contains(name), "{name} is called here, and is excused: {why}");
    }
    for name in FROM_RUNG.iter().filter(|(least, _)| *least > rung).flat_map(|(_, names)| *names) {
        ensure!(filled.contains(name), "{name} is NULL, and is of a higher rung");
        ensure!(called.insert(name), "{name} is called on rung {rung}, and is of a higher rung");
    }
    called.extend(ELSEWHERE.iter().map(|(name, _)| *name));
    let missing: Vec<_> = filled.difference(&called).collect();
    ensure!(missing.is_empty(), "never called: {missing:?}");
    Ok(())
}

/// Adds the functions of the first adapter's driver that the model has called to `called`.
fn note(scene: &Scene, called: &mut BTreeSet<&'static str>) {
    called.extend(scene.adapter().ddi_calls().into_keys());
}
