//! Functions that keep the scheduler's own thread: the one that would look for what makes no progress.
#![expect(unsafe_code, reason = "functions of the driver's table are called")]

use super::super::db::{KernelQueue, Room, raw};
use super::super::te::hardware::{controller, force};
use super::super::te::in_time::in_time;
use super::super::te::{Hog, client, stubborn, victim};
use super::super::{Played, Raw, Scene, Stage, same};
use super::stuck::stopped;
use crate::wrap::{machine, own};
use anyhow::{Context, ensure};
use dxgkrnl_model::driver::Decorator;
use dxgkrnl_model::personality::MS;
use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};
use wddm_abi::{
    DXGKARG_COLLECTDBGINFO2, DXGKARG_PREEMPTCOMMAND, DXGKARG_QUERYDEPENDENTENGINEGROUP, DXGKARG_QUERYENGINESTATUS,
    DXGKARG_RESETENGINE, DXGKARG_RESETHWENGINE, DXGKARG_SUBMITCOMMANDTOHWQUEUE, DXGKARG_SUBMITCOMMANDVIRTUAL,
    DXGKARG_SUSPENDCONTEXT, HANDLE, NTSTATUS,
};

/// Machines whose drivers stay in the function that is in front of theirs.
static STAYS: Mutex<BTreeSet<usize>> = Mutex::new(BTreeSet::new());

/// Does not come back where the machine's driver stays.
fn stays() {
    while STAYS.lock().unwrap_or_else(PoisonError::into_inner).contains(&machine()) {
        std::thread::park_timeout(std::time::Duration::from_secs(3600));
    }
}

macro_rules! stay {
    ($($name:ident: $slot:ident($($type:ty),*);)*) => {
        $(stay!(@ $name $slot $($type),*);)*
    };
    (@ $name:ident $slot:ident) => {
        crate::decorate! {
            $name: $slot(adapter: HANDLE) -> NTSTATUS {
                stays();
                own!($slot(adapter))
            }
        }
    };
    (@ $name:ident $slot:ident $type:ty) => {
        crate::decorate! {
            $name: $slot(object: HANDLE, args: $type) -> NTSTATUS {
                stays();
                own!($slot(object, args))
            }
        }
    };
}

stay! {
    submit: DxgkDdiSubmitCommandVirtual(*const DXGKARG_SUBMITCOMMANDVIRTUAL);
    preempt: DxgkDdiPreemptCommand(*const DXGKARG_PREEMPTCOMMAND);
    group: DxgkDdiQueryDependentEngineGroup(*mut DXGKARG_QUERYDEPENDENTENGINEGROUP);
    status: DxgkDdiQueryEngineStatus(*mut DXGKARG_QUERYENGINESTATUS);
    collect: DxgkDdiCollectDbgInfo2(*mut DXGKARG_COLLECTDBGINFO2);
    reset: DxgkDdiResetEngine(*mut DXGKARG_RESETENGINE);
    reset_adapter: DxgkDdiResetFromTimeout();
    restart: DxgkDdiRestartFromTimeout();
    suspend: DxgkDdiSuspendContext(*const DXGKARG_SUSPENDCONTEXT);
    submit_to_queue: DxgkDdiSubmitCommandToHwQueue(*const DXGKARG_SUBMITCOMMANDTOHWQUEUE);
    reset_hw: DxgkDdiResetHwEngine(*mut DXGKARG_RESETHWENGINE);
}

/// What brings the scheduler to a function.
#[derive(Clone, Copy)]
enum By {
    /// A packet that never ends.
    Packet,
    /// A reset of the adapter that user mode asks for.
    Force,
    /// A buffer of a kernel-mode queue that never ends.
    Queue,
}

/// A function, who stays in it, what brings the scheduler to it, and how many resets have begun by then.
type Kept = (&'static str, Decorator, By, u64);

const KEPT: &[Kept] = &[
    ("DxgkDdiQueryEngineStatus", status, By::Packet, 1),
    ("DxgkDdiResetFromTimeout", reset_adapter, By::Force, 1),
    ("DxgkDdiSubmitCommandVirtual", submit, By::Packet, 0),
    ("DxgkDdiPreemptCommand", preempt, By::Packet, 0),
    ("DxgkDdiQueryDependentEngineGroup", group, By::Packet, 1),
    ("DxgkDdiCollectDbgInfo2", collect, By::Packet, 1),
    ("DxgkDdiResetEngine", reset, By::Packet, 1),
    ("DxgkDdiRestartFromTimeout", restart, By::Force, 1),
];

/// The same of nodes that are scheduled by the hardware.
const KEPT_BY_QUEUES: &[Kept] = &[
    ("DxgkDdiSuspendContext", suspend, By::Queue, 0),
    ("DxgkDdiSubmitCommandToHwQueue", submit_to_queue, By::Queue, 0),
    ("DxgkDdiResetHwEngine", reset_hw, By::Queue, 1),
];

/// TdrDdiDelay in milliseconds.
const DDI_DELAY: u64 = 300;

/// How many of each list are played where the whole would take long.
const FEW: usize = 2;

/// Each function in turn does not come back: the system stops, and says which it is.
pub(super) fn scheduler(stage: &Stage) -> Played {
    let queues = if stage.rung() == 0 { &[][..] } else { KEPT_BY_QUEUES };
    let most = if stage.is_whole() { usize::MAX } else { FEW };
    for kept in [KEPT, queues].into_iter().flat_map(|list| list.iter().take(most)) {
        keep(stage, *kept).context(kept.0)?;
    }
    Ok(())
}

fn keep(stage: &Stage, (ddi, decorate, by, resets): Kept) -> Played {
    let setup = || {
        let setup = stubborn().with_driver(decorate).breaks(&["DXG-TDR-DDI-DELAY"]);
        let setup = if resets == 0 { setup } else { setup.resets(resets) };
        setup.windows(|windows| windows.tdr.ddi_delay = DDI_DELAY * MS)
    };
    in_time(stage, setup, |scene, watch| {
        let (control, other) = (controller(scene)?, raw(scene)?);
        hang(stage, scene, (&control, &other), by)?;
        let all = scene.world.os.kernel().rules.violations();
        let found = all.iter().find(|one| one.rule.name == "DXG-TDR-DDI-DELAY").context("no violation")?;
        ensure!(found.detail.starts_with(ddi), "{}", found.detail);
        stopped(found, 1)?;
        // Not before both delays, and no delay later.
        let passed = found.detail.split(" for ").nth(1).and_then(|rest| rest.split(' ').next());
        let passed: u64 = passed.context("how long it has stayed")?.parse()?;
        // CAST: some seconds.
        let delay = watch.delay.as_millis() as u64;
        let (least, most) = (delay + DDI_DELAY, 2 * delay + DDI_DELAY);
        ensure!((least..most).contains(&passed), "{}: not {least} to {most} ms", found.detail);
        same("calls", scene.calls("DxgkDdiResetFromTimeout"), u64::from(matches!(by, By::Force)))
    })
}

/// Brings the scheduler to the function, and waits until the system has stopped.
fn hang(stage: &Stage, scene: &Scene, (control, other): (&Raw, &Raw), by: By) -> Played {
    let stay = || {
        let here = scene.world.os.run(machine);
        STAYS.lock().unwrap_or_else(PoisonError::into_inner).insert(here);
    };
    let stops = || scene.until("the end", || Ok(scene.world.os.kernel().rules.is_stopped()));
    match by {
        By::Packet => {
            let raw = client(scene, "hangs")?;
            let hog = Hog::new(scene, &raw, &[victim(stage)])?;
            stay();
            hog.spin(victim(stage), 0)?;
            stops()
        }
        By::Force => {
            stay();
            let _the_system_stops = force(control, None);
            stops()
        }
        By::Queue => {
            let room = Room::new(other)?;
            let queue = KernelQueue::new(scene, &room, room.context(0)?)?;
            stay();
            queue.spin(&room, 0, None, 1)?;
            stops()
        }
    }
}
