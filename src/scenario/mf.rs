//! MF: monitored fences, on every rung of what the driver and the OS may agree on. Source of all: *Context monitoring*.
//!
//! The driver is kept on a rung by its setting `MaxRung`: 0 packets, 1 kernel-mode hardware queues, 2 native fences, 3
//! user-mode submission. On rungs 0 and 1 the user-mode driver's fences are monitored ones.

mod flags;
mod narrow;
mod paths;

use super::stage::PATIENCE;
use super::{Denied, Played, Raw, Scenario, Setup, Stage, same};
use crate::client::Device;
use anyhow::{Context, ensure};
use std::time::Duration;
use umd_core::ffi::types::FP_KIND_SYSTEM;
use wddm_abi::ntstatus::STATUS_IO_TIMEOUT;

const fn case(id: &'static str, title: &'static str, source: &'static str, play: fn(&Stage) -> Played) -> Scenario {
    Scenario { id, title, source, play }
}

pub(super) const CASES: &[Scenario] = &[
    case("MF-01", "create with an initial value; the CPU's view is aligned and read-only", CREATE, create),
    case("MF-02", "the GPU signals, the CPU waits", "Context monitoring, GPU signal; CPU wait", gpu_signals),
    case("MF-03", "a queue waits until the CPU signals", "Context monitoring, GPU wait; CPU signal", cpu_signals),
    case("MF-04", "two queues on two engines alternate", "Context monitoring, GPU wait; GPU signal", queues_alternate),
    case("MF-05", "CPU waits for any and for all, blocking and by event", "Context monitoring, CPU wait", any_and_all),
    case("MF-06", "a shared fence between two processes", "Context monitoring, Monitored fence creation", shared),
    case("MF-07", "a destroyed fence releases its CPU waiter", "Context monitoring, CPU wait", destroyed),
    case("MF-08", "a lost device releases who waits for its fence", "Timeout detection and recovery", lost_device),
    case("MF-09", "basic implementation: waits end with the buffer, without an interrupt", SIGNAL, paths::basic),
    case("MF-10", "advanced implementation: the interrupt ends waits while the buffer runs", SIGNAL, paths::advanced),
    case("MF-11", "basic implementation: the fences of paging queues", SIGNAL, paths::paging),
    case(
        "MF-12",
        "engines that cannot write monitored fences: software signal packets, in order",
        SIGNAL,
        paths::software,
    ),
    case("MF-13", "such an engine refuses a packet that signals", SIGNAL, paths::unable),
    case("MF-14", "32-bit values: signals and waits over the wrap", CREATE, narrow::wrap),
    case("MF-15", "32-bit values: nothing is further than UINT_MAX / 2 from the last signal", CREATE, narrow::limit),
    case("MF-16", "with native fences No64BitAtomics is ignored", ATOMIC, narrow::native),
    case("MF-17", "NoSignal, NoWait, TopOfPipeline; flags that do not fit", FLAGS, flags::behaviour),
    case("MF-18", "NoGPUAccess: no GPU address, 64 bits, signals and waits of the OS", FLAGS, flags::hidden),
    case("MF-19", "a handle that goes releases its CPU waiters, or only the last one does", FLAGS, flags::waiters),
];

const CREATE: &str = "Context monitoring, Monitored fence creation";
const FLAGS: &str = "D3DDDI_SYNCHRONIZATIONOBJECT_FLAGS; Context monitoring, Monitored fence creation";
const ATOMIC: &str = "Native GPU fence object, Design; DXGK_VIDSCHCAPS";
const SIGNAL: &str = "Context monitoring, GPU signal";

/// Plays on each of the given rungs.
fn on_rungs(stage: &Stage, rungs: &[u32], play: impl Fn(&super::Scene, u32) -> Played) -> Played {
    for rung in rungs {
        stage
            .play(Setup::default().setting("MaxRung", *rung), |scene| play(scene, *rung))
            .with_context(|| format!("rung {rung}"))?;
    }
    Ok(())
}

fn create(stage: &Stage) -> Played {
    on_rungs(stage, &[0, 1, 2, 3], |scene, _| {
        let user = scene.process("client")?;
        let raw = Raw::open(&user.process, scene.adapter().luid())?;
        let device = raw.device().context("device")?;
        for initial in [0, 41, u64::MAX >> 1] {
            let fence = raw.monitored_fence(device, initial, false).context("fence")?;
            same("value", raw.load(fence.cpu)?, initial)?;
            ensure!(fence.cpu.is_multiple_of(8) && fence.gpu.is_multiple_of(8), "{fence:?}");
            let violation = raw.store(fence.cpu, 5).err().context("a store to the CPU's view succeeded")?;
            ensure!(violation.write, "{violation:?}");
            same("value after the store", raw.load(fence.cpu)?, initial)?;
            raw.destroy_fence(fence.handle).context("destroy")?;
        }
        same("the driver's native fences", scene.calls("DxgkDdiCreateNativeFence"), 0)
    })
}

/// A device whose fences must be monitored ones.
fn monitored_device(user: &crate::world::User) -> anyhow::Result<Device> {
    let device = user.open()?.device()?;
    ensure!(device.fence(0, 0)?.is_monitored()?, "the user-mode driver made a native fence");
    Ok(device)
}

fn gpu_signals(stage: &Stage) -> Played {
    on_rungs(stage, &[0, 1], |scene, _| {
        let user = scene.process("client")?;
        let device = monitored_device(&user)?;
        let queue = device.queue(0, 64 << 10, 0, 0)?;
        let memory = device.allocate(FP_KIND_SYSTEM, 4096, 0)?;
        let (at, fence) = (memory.gpu_va()?, device.fence(3, 0)?);
        for turn in 4..20 {
            queue.run(|list| {
                list.store(at, turn)?;
                list.signal(&fence, turn)
            })?;
            fence.wait(turn, PATIENCE)?;
            same("value", fence.value()?, turn)?;
            same("memory", memory.read_u64(0)?, turn)?;
        }
        Ok(())
    })
}

fn cpu_signals(stage: &Stage) -> Played {
    on_rungs(stage, &[0, 1], |scene, _| {
        let user = scene.process("client")?;
        let device = monitored_device(&user)?;
        let (waiting, other) = (device.queue(0, 64 << 10, 0, 0)?, device.queue(0, 64 << 10, 0, 0)?);
        let memory = device.allocate(FP_KIND_SYSTEM, 4096, 0)?;
        let (at, fence) = (memory.gpu_va()?, device.fence(0, 0)?);
        let last = waiting.run(|list| {
            list.wait(&fence, 10)?;
            list.store(at, 1)
        })?;
        // The wait holds up its own queue and no other.
        other.run(|list| list.store(at + 8, 2))?;
        other.wait(0, PATIENCE)?;
        same("memory of the queue that waits", memory.read_u64(0)?, 0)?;
        fence.signal(9)?;
        let early = waiting.wait(last, Some(Duration::from_millis(30)));
        same("a wait for 10 at 9", early.err().map(|error| error.status), Some(STATUS_IO_TIMEOUT))?;
        fence.signal(10)?;
        waiting.wait(last, PATIENCE)?;
        same("memory", (memory.read_u64(0)?, memory.read_u64(8)?), (1, 2))
    })
}

fn queues_alternate(stage: &Stage) -> Played {
    const TURNS: u64 = 50;
    on_rungs(stage, &[0, 1], |scene, _| {
        let user = scene.process("client")?;
        let device = monitored_device(&user)?;
        let (one, two) = (device.queue(0, 64 << 10, 0, 0)?, device.queue(1, 64 << 10, 0, 0)?);
        let fence = device.fence(0, 0)?;
        for turn in (0..TURNS).map(|turn| turn * 2) {
            two.run(|list| {
                list.wait(&fence, turn + 1)?;
                list.signal(&fence, turn + 2)
            })?;
            one.run(|list| {
                list.wait(&fence, turn)?;
                list.signal(&fence, turn + 1)
            })?;
        }
        fence.wait(TURNS * 2, PATIENCE)?;
        same("value", fence.value()?, TURNS * 2)
    })
}

fn any_and_all(stage: &Stage) -> Played {
    on_rungs(stage, &[0, 1, 2, 3], |scene, _| {
        let user = scene.process("client")?;
        let raw = Raw::open(&user.process, scene.adapter().luid())?;
        let device = raw.device().context("device")?;
        let fences = [(); 3].map(|()| raw.monitored_fence(device, 0, false));
        let fences = fences.into_iter().collect::<Result<Vec<_>, Denied>>().context("fences")?;
        let waits: Vec<_> = fences.iter().map(|fence| (fence.handle, 1)).collect();
        let ((any, any_handle), (all, all_handle)) = (raw.event(), raw.event());
        raw.wait_cpu(device, &waits, true, Some(any_handle)).context("any")?;
        raw.wait_cpu(device, &waits, false, Some(all_handle)).context("all")?;
        let soon = Duration::from_millis(20);
        ensure!(!raw.wait_event(&any, soon), "any: set before a signal");
        raw.signal_cpu(device, &waits[1..2]).context("signal")?;
        ensure!(raw.wait_event(&any, PATIENCE.unwrap_or_default()), "any: not set by the second fence");
        ensure!(!raw.wait_event(&all, soon), "all: set by one fence");
        raw.signal_cpu(device, &[waits[0], waits[2]]).context("signal")?;
        ensure!(raw.wait_event(&all, PATIENCE.unwrap_or_default()), "all: not set by all fences");
        raw.wait_cpu(device, &waits, false, None).context("blocking, all, passed")?;
        raw.wait_cpu(device, &[(waits[0].0, 1), (waits[1].0, 9)], true, None).context("blocking, any, one passed")?;
        raw.close(any_handle);
        raw.close(all_handle);
        // A call for a value that has not come sleeps until the value does.
        let sleeper = super::client::block(&raw, device, vec![(waits[2].0, 7)], false);
        for value in [5, 6] {
            ensure!(sleeper.recv_timeout(soon).is_err(), "a blocking wait for 7 returned before {value}");
            raw.signal_cpu(device, &[(waits[2].0, value)]).context("signal")?;
        }
        ensure!(sleeper.recv_timeout(soon).is_err(), "a blocking wait for 7 returned at 6");
        raw.signal_cpu(device, &[(waits[2].0, 7)]).context("signal")?;
        let returned = sleeper.recv_timeout(PATIENCE.unwrap_or_default()).context("a blocking wait for 7 sleeps on")?;
        returned.context("the blocking wait")
    })
}

fn shared(stage: &Stage) -> Played {
    on_rungs(stage, &[0, 1], |scene, _| {
        let (a, b) = (scene.process("a")?, scene.process("b")?);
        let (at_a, at_b) = (monitored_device(&a)?, monitored_device(&b)?);
        let ours = at_a.shared_fence(1)?;
        let theirs = at_b.open_fence(b.receive(&a, ours.share()?)?, true)?;
        same("value in b", theirs.value()?, 1)?;
        let queue = at_b.queue(1, 64 << 10, 0, 0)?;
        queue.run(|list| {
            list.wait(&theirs, 2)?;
            list.signal(&theirs, 3)
        })?;
        ours.signal(2)?;
        ours.wait(3, PATIENCE)?;
        drop(ours);
        // The creator has gone; the fence is b's now.
        theirs.signal(4)?;
        theirs.wait(4, PATIENCE)?;
        Ok(())
    })
}

fn destroyed(stage: &Stage) -> Played {
    on_rungs(stage, &[0, 3], |scene, _| {
        let user = scene.process("client")?;
        let raw = Raw::open(&user.process, scene.adapter().luid())?;
        let device = raw.device().context("device")?;
        let fence = raw.monitored_fence(device, 0, false).context("fence")?;
        let (event, handle) = raw.event();
        raw.wait_cpu(device, &[(fence.handle, 1)], false, Some(handle)).context("wait")?;
        raw.destroy_fence(fence.handle).context("destroy")?;
        ensure!(raw.wait_event(&event, PATIENCE.unwrap_or_default()), "the waiter was not released");
        raw.close(handle);
        Ok(())
    })
}

fn lost_device(stage: &Stage) -> Played {
    stage.play(Setup::default().setting("MaxRung", 1).quick_tdr().resets(1), |scene| {
        let user = scene.process("client")?;
        let adapter = user.open()?;
        let device = adapter.device()?;
        let queue = device.queue(0, 64 << 10, 0, 0)?;
        let buffer = device.allocate(FP_KIND_SYSTEM, 4096, 0)?;
        let mut list = queue.list()?;
        list.indirect(buffer.gpu_va()?, 24)?;
        buffer.write(0, &list.bytes()?)?;
        let fence = device.fence(0, 0)?;
        queue.run(|list| {
            list.indirect(buffer.gpu_va()?, 24)?;
            list.signal(&fence, 1)
        })?;
        // Signaled, or refused: what counts is that nobody waits for what does not come.
        let waited = fence.wait(1, PATIENCE).err().map(|error| error.status);
        ensure!(waited != Some(STATUS_IO_TIMEOUT), "the fence of a lost device was waited for in vain");
        ensure!(device.state()?.execution != 1, "the device is said to be well");
        // A call can be refused, and an event set, before the value can be read.
        scene.until("the value of a lost device's fence", || Ok(fence.value()? == u64::MAX))?;
        drop(adapter.device()?);
        Ok(())
    })
}
