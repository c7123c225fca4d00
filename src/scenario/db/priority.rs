//! Priorities that clients give their contexts, from the functions of gdi32 to what an engine runs next.

use super::super::te::hog::Hog;
use super::runner::{Runner, share};
use super::{KernelQueue, RingQueue, Room, raw};
use crate::scenario::{Played, Raw, Scenario, Scene, Setup, Stage, same};
use anyhow::{Context, Result, ensure};
use dxgkrnl_model::personality::SECOND;
use gpu_wire::NODE_PAGING;
use std::time::Duration;
use wddm_abi::ntstatus::{STATUS_INVALID_PARAMETER, STATUS_PRIVILEGE_NOT_HELD, STATUS_SUCCESS};
use wddm_abi::{
    D3DDDI_CREATECONTEXTFLAGS, D3DKMT_GETCONTEXTINPROCESSSCHEDULINGPRIORITY, D3DKMT_GETCONTEXTSCHEDULINGPRIORITY,
    D3DKMT_HANDLE, D3DKMT_SETCONTEXTINPROCESSSCHEDULINGPRIORITY, D3DKMT_SETCONTEXTSCHEDULINGPRIORITY, NTSTATUS,
};

pub(super) const CASES: &[Scenario] = &[Scenario {
    id: "DB-71",
    title: "priorities of contexts: their values, and who runs by them: packets, hardware queues, doorbells",
    source: "D3DKMTSetContextSchedulingPriority; D3DKMTSetContextInProcessSchedulingPriority; \
            IDXGIDevice::SetGPUThreadPriority, Remarks; DXGKARG_SETCONTEXTSCHEDULINGPROPERTIES",
    play: priorities,
}];

const DDI: &str = "DxgkDdiSetContextSchedulingProperties";
/// `D3DKMT_SETCONTEXTSCHEDULINGPRIORITY_ABSOLUTE`.
const ABSOLUTE: i32 = 1 << 30;
/// The node whose contexts have packets, on every rung.
const PACKETS: u32 = NODE_PAGING.0;
/// Longer than any context of equal priority has an engine while another wants it: slices are of 25 ms at most, quanta
/// of 40 ms.
const WINDOW: Duration = Duration::from_millis(120);

impl Raw {
    fn set_priority(&self, context: D3DKMT_HANDLE, value: i32) -> NTSTATUS {
        let mut record = D3DKMT_SETCONTEXTSCHEDULINGPRIORITY { hContext: context, Priority: value };
        self.call(self.thunks.D3DKMTSetContextSchedulingPriority, &mut record)
    }

    pub(super) fn set_in_process(&self, context: D3DKMT_HANDLE, value: i32) -> NTSTATUS {
        let mut record = D3DKMT_SETCONTEXTINPROCESSSCHEDULINGPRIORITY { hContext: context, Priority: value };
        self.call(self.thunks.D3DKMTSetContextInProcessSchedulingPriority, &mut record)
    }

    /// The scheduling priority, and the one within the process.
    fn priorities(&self, context: D3DKMT_HANDLE) -> Result<(i32, i32)> {
        let mut record = D3DKMT_GETCONTEXTSCHEDULINGPRIORITY { hContext: context, Priority: -100 };
        self.ok(self.thunks.D3DKMTGetContextSchedulingPriority, &mut record)?;
        let mut within = D3DKMT_GETCONTEXTINPROCESSSCHEDULINGPRIORITY { hContext: context, Priority: -100 };
        self.ok(self.thunks.D3DKMTGetContextInProcessSchedulingPriority, &mut within)?;
        Ok((record.Priority, within.Priority))
    }
}

fn priorities(stage: &Stage) -> Played {
    // Nothing that runs here ends by itself.
    let setup = || Setup::default().windows(|windows| windows.tdr.delay = 60 * SECOND);
    stage.play(setup(), |scene| values(scene, stage.rung() > 0)).context("values")?;
    stage.play(setup(), packets).context("packets")?;
    if stage.rung() > 0 {
        stage.play(setup(), queues).context("hardware queues")?;
    }
    if stage.rung() > 2 {
        stage.play(setup(), rings).context("queues with doorbells")?;
    }
    Ok(())
}

fn values(scene: &Scene, has_queues: bool) -> Played {
    let (raw, other) = (raw(scene)?, raw(scene)?);
    let room = Room::new(&raw)?;
    let packets = room.context_with(PACKETS, D3DDDI_CREATECONTEXTFLAGS::zeroed())?;
    let queues = if has_queues { Some(room.context(0)?) } else { None };
    for context in [Some(packets), queues].into_iter().flatten() {
        same("at first", raw.priorities(context)?, (0, 0))?;
        let calls = || if Some(context) == queues { scene.calls(DDI) } else { 0 };
        let before = calls();
        let fine = [-7, -1, 7, ABSOLUTE, ABSOLUTE | 1, 0, 5];
        for value in fine {
            same("a value", raw.set_priority(context, value), STATUS_SUCCESS).context(value)?;
            same("what it is then", raw.priorities(context)?, (value, 0))?;
        }
        same("within the process", raw.set_in_process(context, 1), STATUS_SUCCESS)?;
        let told = fine.len() as u64 + 1;
        same("calls of the driver", calls() - before, if Some(context) == queues { told } else { 0 })?;
        let none = [-8, 8, i32::MIN, i32::MAX, ABSOLUTE | 2, ABSOLUTE | 15, ABSOLUTE | 31, ABSOLUTE | 32];
        for value in none {
            same("no value", raw.set_priority(context, value), STATUS_INVALID_PARAMETER).context(value)?;
        }
        for value in [16, 29, 30] {
            same("without privilege", raw.set_priority(context, ABSOLUTE | value), STATUS_PRIVILEGE_NOT_HELD)?;
        }
        for value in [-1, 2, ABSOLUTE] {
            same("no value within", raw.set_in_process(context, value), STATUS_INVALID_PARAMETER).context(value)?;
        }
        same("another's", other.set_priority(context, 1), STATUS_INVALID_PARAMETER)?;
        same("another's, within", other.set_in_process(context, 1), STATUS_INVALID_PARAMETER)?;
        ensure!(other.priorities(context).is_err(), "another's priorities");
        same("what they are", raw.priorities(context)?, (5, 1))?;
        same("calls of the driver behind refusals", calls() - before, if calls() == 0 { 0 } else { told })?;
        room.destroy_context(context)?;
        same("of none", raw.set_priority(context, 1), STATUS_INVALID_PARAMETER)?;
        ensure!(raw.priorities(context).is_err(), "none's priorities");
    }
    for handle in [0, room.device, raw.adapter] {
        same("no context", raw.set_priority(handle, 0), STATUS_INVALID_PARAMETER)?;
        same("no context, within", raw.set_in_process(handle, 0), STATUS_INVALID_PARAMETER)?;
    }
    let nothing = raw.call_null::<D3DKMT_SETCONTEXTSCHEDULINGPRIORITY>(raw.thunks.D3DKMTSetContextSchedulingPriority);
    same("NULL", nothing, STATUS_INVALID_PARAMETER)?;
    raw.process.trust();
    let context = room.context_with(PACKETS, D3DDDI_CREATECONTEXTFLAGS::zeroed())?;
    same("with the privilege", raw.set_priority(context, ABSOLUTE | 30), STATUS_SUCCESS)?;
    same("what it is", raw.priorities(context)?, (ABSOLUTE | 30, 0))
}

impl Runner<'_> {
    fn set(&self, value: i32) -> Played {
        same("a priority", self.raw.set_priority(self.context, value), STATUS_SUCCESS)
    }

    fn set_in_process(&self, value: i32) -> Played {
        same("a priority within the process", self.raw.set_in_process(self.context, value), STATUS_SUCCESS)
    }
}

fn packets(scene: &Scene) -> Played {
    let raws = [raw(scene)?, raw(scene)?];
    raws[0].process.trust();
    // Two devices of the first process.
    let hog = |raw| Hog::new(scene, raw, &[PACKETS]);
    let hogs = [hog(&raws[0])?, hog(&raws[0])?, hog(&raws[1])?];
    let runner = |hog: &Hog<'_>, raw| -> Result<_> {
        hog.spin(PACKETS, 0)?;
        Ok(Runner { raw, context: hog.context(PACKETS)?, word: hog.begun_at(0)? })
    };
    let played = || -> Played {
        let (a, c) = (runner(&hogs[0], &raws[0])?, runner(&hogs[2], &raws[1])?);
        share(scene, [&a, &c]).context("as usual")?;
        c.set(3)?;
        c.goes_before(scene, &a, WINDOW).context("a raised one")?;
        a.runs(scene).context("its share beside a raised one")?;
        a.set(-7)?;
        c.is_all(scene, &a, WINDOW).context("idle beside a raised one")?;
        c.set(0)?;
        c.is_all(scene, &a, WINDOW).context("idle")?;
        a.set(ABSOLUTE | 16)?;
        a.goes_before(scene, &c, WINDOW).context("real time")?;
        c.runs(scene).context("its share beside real time")?;
        a.set(0)?;
        share(scene, [&a, &c]).context("as usual again")?;
        let b = runner(&hogs[1], &raws[0])?;
        share(scene, [&a, &b]).context("one process")?;
        b.set_in_process(1)?;
        b.goes_before(scene, &a, WINDOW).context("the first of its process")?;
        share(scene, [&b, &c]).context("beside another process")?;
        b.set_in_process(0)?;
        share(scene, [&a, &b]).context("one process again")
    }();
    // Before the devices go, which would wait for it.
    hogs.iter().try_for_each(|hog| hog.end(0))?;
    played?;
    hogs.iter().try_for_each(|hog| scene.until("the end", || hog.has_ended(0)))
}

fn queues(scene: &Scene) -> Played {
    let raws = [raw(scene)?, raw(scene)?];
    raws.iter().for_each(|raw| raw.process.trust());
    let rooms = [Room::new(&raws[0])?, Room::new(&raws[1])?];
    let queue = |room: &Room<'_>| KernelQueue::new(scene, room, room.context(0)?);
    let queues = [queue(&rooms[0])?, queue(&rooms[0])?, queue(&rooms[1])?];
    let runner = |queue: &KernelQueue, room: usize| -> Result<_> {
        queue.spin(&rooms[room], 0, None, 1)?;
        Ok(Runner { raw: &raws[room], context: queue.queue.context, word: queue.runs_at()? })
    };
    let played = || -> Played {
        by_priority(scene, [&runner(&queues[0], 0)?, &runner(&queues[1], 0)?], || runner(&queues[2], 1))
    }();
    // Before the devices go, which would wait for it.
    let all = || queues.iter().zip([&raws[0], &raws[0], &raws[1]]);
    all().try_for_each(|(queue, raw)| queue.stop(raw, 0, 1))?;
    played?;
    all().try_for_each(|(queue, raw)| scene.until("the end", || Ok(queue.value(raw)? == 1)))
}

/// What priorities make of three contexts of hardware queues that always have work, two of a process and the `third`
/// one of another.
fn by_priority<'a>(scene: &Scene, [a, b]: [&Runner<'a>; 2], third: impl FnOnce() -> Result<Runner<'a>>) -> Played {
    share(scene, [a, b]).context("as usual")?;
    b.set(3)?;
    b.is_all(scene, a, WINDOW).context("a raised one")?;
    a.set_in_process(1)?;
    a.is_all(scene, b, WINDOW).context("the first of its process")?;
    a.set_in_process(0)?;
    b.is_all(scene, a, WINDOW).context("no more")?;
    b.set(0)?;
    share(scene, [a, b]).context("as usual again")?;
    let c = third()?;
    b.set(7)?;
    share(scene, [b, &c]).context("a raised one beside another process")?;
    [a, b].into_iter().try_for_each(|runner| runner.set(-7))?;
    c.is_all(scene, b, WINDOW).context("idle")?;
    c.set(ABSOLUTE | 16)?;
    b.set(ABSOLUTE | 20)?;
    b.is_all(scene, &c, WINDOW).context("a higher level of real time")?;
    [a, b, &c].into_iter().try_for_each(|runner| runner.set(0))?;
    share(scene, [a, &c]).context("as usual at last")
}

/// The same of queues with doorbells, whose work the OS never sees.
fn rings(scene: &Scene) -> Played {
    let raws = [raw(scene)?, raw(scene)?];
    raws.iter().for_each(|raw| raw.process.trust());
    let rooms = [Room::new(&raws[0])?, Room::new(&raws[1])?];
    let queue = |of: usize| RingQueue::connected(scene, &rooms[of], 0, 4096);
    let queues = [queue(0)?, queue(0)?, queue(1)?];
    let runner = |number: usize, of: usize| Runner::of_ring(scene, &raws[of], &rooms[of], &queues[number]);
    by_priority(scene, [&runner(0, 0)?, &runner(1, 0)?], || runner(2, 1))
}
