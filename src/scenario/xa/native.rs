//! Both adapters have native fences.

use super::super::nf::intra_gpu_record;
use super::super::{Denied, Played, Raw, Scene, Setup, Stage, same};
use crate::scenario::AdapterClient;
use anyhow::{Context, ensure};
use std::time::Duration;
use wddm_abi::ntstatus;

const LONG: Duration = Duration::from_secs(20);
const LIFE: [&str; 4] =
    ["DxgkDdiCreateNativeFence", "DxgkDdiOpenNativeFence", "DxgkDdiCloseNativeFence", "DxgkDdiDestroyNativeFence"];

fn both() -> Setup {
    Setup::default().adapters(2)
}

pub(super) fn types(stage: &Stage) -> Played {
    stage.play(both().windows(|windows| windows.native_fence_os_caps.intra_gpu = true), |scene| {
        let side = AdapterClient::open(scene, 0)?;
        let before = LIFE.map(|ddi| side.calls(ddi));
        let mut record = intra_gpu_record(side.plain);
        record.Info.Flags.set_Shared(true);
        record.Info.Flags.set_NtSecuritySharing(true);
        record.Info.Flags.set_CrossAdapter(true);
        let refused = Err(Denied(ntstatus::STATUS_INVALID_PARAMETER));
        same("a cross-adapter fence of the intra-GPU type", side.raw.create_native_fence(&mut record), refused)?;
        let mut record = Raw::native_fence_record(side.plain, 0);
        record.Info.Flags.set_CrossAdapter(true);
        same("one that is not shared", side.raw.create_native_fence(&mut record), refused)?;
        same("the driver's calls", LIFE.map(|ddi| side.calls(ddi)), before)?;
        // Each alone is fine.
        let alone = side.raw.create_native_fence(&mut intra_gpu_record(side.plain)).context("an intra-GPU fence")?;
        side.raw.destroy_fence(alone.handle).context("destroy")?;
        ensure!(!side.fence(0)?.is_monitored()?, "the cross-adapter fence is a monitored one");
        Ok(())
    })
}

pub(super) fn values(stage: &Stage) -> Played {
    stage.play(both(), |scene| {
        let (one, two) = (AdapterClient::open(scene, 0)?, AdapterClient::open(scene, 1)?);
        let before = [&one, &two].map(|side| LIFE.map(|ddi| side.calls(ddi)));
        let calls = || {
            let now = [&one, &two].map(|side| LIFE.map(|ddi| side.calls(ddi)));
            [0, 1].map(|side| [0, 1, 2, 3].map(|ddi| now[side][ddi] - before[side][ddi]))
        };
        let fence = one.fence(0x1111)?;
        let opened = two.open_fence(&fence, &one)?;
        same("creations, opens, closes, destructions", calls(), [[1, 1, 0, 0], [1, 1, 0, 0]])?;
        let (here, there) = (fence.info()?, opened.info()?);
        ensure!(here.monitored_va != 0 && there.monitored_va != 0, "MonitoredValue is missing");
        same("MonitoredValue", (one.probe.read(here.monitored_va)?, two.probe.read(there.monitored_va)?), (0, 0))?;
        same("CurrentValue", (one.probe.read(here.gpu_va)?, two.probe.read(there.gpu_va)?), (0x1111, 0x1111))?;
        // One CurrentValue, and a MonitoredValue for each GPU.
        let places = scene.world.os.fence_places(one.user.process.nt().id(), here.handle);
        ensure!(places.len() == 2 && places[0].adapter != places[1].adapter, "{places:?}");
        let [(current, monitored), (its_current, its_monitored)] = [places[0].kernel, places[1].kernel];
        ensure!(current.is_some() && current == its_current, "CurrentValue: {places:?}");
        ensure!(
            monitored.is_some() && its_monitored.is_some() && monitored != its_monitored,
            "MonitoredValue: {places:?}"
        );
        two.queue_signal(&opened, 0x2222)?;
        scene.until("the signal on the other adapter", || Ok(fence.value()? == 0x2222))?;
        one.queue_signal(&fence, 0x3333)?;
        scene.until("the signal on this adapter", || Ok(opened.value()? == 0x3333))?;
        same("CurrentValue then", (one.probe.read(here.gpu_va)?, two.probe.read(there.gpu_va)?), (0x3333, 0x3333))?;
        // Another opening on the second adapter makes no second object there.
        let again = two.open_fence(&fence, &one)?;
        same("with another opening", calls(), [[1, 1, 0, 0], [1, 2, 0, 0]])?;
        drop(again);
        // The creator leaves; the value stays.
        drop(fence);
        same("without the creator", calls(), [[1, 1, 1, 1], [1, 2, 1, 0]])?;
        two.queue_signal(&opened, 0x4444)?;
        scene.until("a signal for nobody else", || Ok(opened.value()? == 0x4444))?;
        drop(opened);
        same("at the end", calls(), [[1, 1, 1, 1], [1, 2, 2, 1]])
    })
}

pub(super) fn monitored_value(stage: &Stage) -> Played {
    stage.play(both(), |scene| {
        let (one, two) = (AdapterClient::open(scene, 0)?, AdapterClient::open(scene, 1)?);
        let fence = one.fence(0)?;
        let opened = two.open_fence(&fence, &one)?;
        let updates = || [&one, &two].map(|side| side.calls("DxgkDdiUpdateMonitoredValues"));
        let values = || -> anyhow::Result<_> {
            Ok((one.probe.read(fence.info()?.monitored_va)?, two.probe.read(opened.info()?.monitored_va)?))
        };
        // Counted in the first round, in which no queue works: on kernel-mode queues the OS waits for the fence of a
        // queue itself.
        for (round, counted) in [(0, true), (10, false)] {
            let before = updates();
            let (here, there) = (one.wait(&fence, round + 5)?, two.wait(&opened, round + 9)?);
            match counted {
                true => same("updates of MonitoredValue with waiters", updates(), before)?,
                false => same("MonitoredValue with waiters", values()?, (0, 0))?,
            }
            one.signal(&fence, round + 5)?;
            ensure!(one.is_woken(&here, LONG), "the waiter for the lower value was not woken");
            ensure!(!two.is_woken(&there, Duration::ZERO), "the waiter for the higher value was woken by the lower");
            one.signal(&fence, round + 9)?;
            ensure!(two.is_woken(&there, LONG), "the waiter for the higher value was not woken");
            match counted {
                true => same("updates of MonitoredValue without waiters", updates(), before)?,
                false => same("MonitoredValue without waiters", values()?, (0, 0))?,
            }
        }
        Ok(())
    })
}

/// Each of the four pairs of GPU and CPU; with shadow state in the engines, and with interrupts that name queues, too.
pub(super) fn signal_and_wait(stage: &Stage) -> Played {
    for (shadow, optimized) in [(0, 0), (1, 0), (0, 1)] {
        let setup = both().setting("ShadowMonitoredValue", shadow).setting("OptimizedInterrupt", optimized);
        stage.play(setup, |scene| {
            let (one, two) = (AdapterClient::open(scene, 0)?, AdapterClient::open(scene, 1)?);
            let fence = two.fence(0)?;
            let opened = one.open_fence(&fence, &two)?;
            let before = (one.current_value_updates(), two.current_value_updates());
            // From the GPU: an interrupt there, a notification here, and nobody but the GPU has written.
            one.queue_wait(&opened, 10)?;
            let waiting = one.wait(&opened, 10)?;
            ensure!(!one.is_woken(&waiting, Duration::ZERO), "woken too early");
            let reported = two.native_fence_interrupts();
            two.queue_signal(&fence, 10)?;
            one.until_ran(scene, "the queue that waits for the other GPU", 10)?;
            ensure!(one.is_woken(&waiting, LONG), "the CPU's wait did not end");
            if one.has_native() {
                ensure!(two.native_fence_interrupts() > reported, "the signal did not interrupt");
                one.until_told(scene, before.0)?;
            }
            same("values written by the signalling adapter's driver", two.current_value_updates(), before.1)?;
            same("CurrentValue", (fence.value()?, opened.value()?), (10, 10))?;
            // From the CPU: written there, notified here.
            let before = (one.current_value_updates(), two.current_value_updates());
            one.queue_wait(&opened, 20)?;
            let waiting = one.wait(&opened, 20)?;
            two.signal(&fence, 20)?;
            one.until_ran(scene, "the queue that waits for the CPU", 20)?;
            ensure!(one.is_woken(&waiting, LONG), "the CPU's wait did not end");
            let calls = u64::from(one.has_native());
            same(
                "calls of either driver",
                (one.current_value_updates() - before.0, two.current_value_updates() - before.1),
                (calls, calls),
            )?;
            same("CurrentValue then", (fence.value()?, opened.value()?), (20, 20))?;
            // The other way round, to the adapter where the fence was made.
            two.queue_wait(&fence, 30)?;
            one.queue_signal(&opened, 30)?;
            two.until_ran(scene, "the queue of the fence's own adapter", 30)?;
            // The last of three may be under way.
            let judged = scene.evaluations("DXG-NF-CURRENT-UNTOUCHED") >= 2;
            ensure!(judged == one.has_native(), "notifications were not judged");
            Ok(())
        })?;
    }
    Ok(())
}

/// Both queues are of one adapter: the waiter goes on by itself, and only the other adapter's driver hears of the
/// signal.
pub(super) fn same_adapter(stage: &Stage) -> Played {
    stage.play(both(), |scene| {
        let (one, two) = (AdapterClient::open(scene, 0)?, AdapterClient::open(scene, 1)?);
        let fence = one.fence(0)?;
        let _opened = two.open_fence(&fence, &one)?;
        let signals = one.device.queue(1, 64 << 10, 0, 0)?;
        let before = (one.current_value_updates(), two.current_value_updates());
        for value in 1..=20 {
            one.queue_wait(&fence, value)?;
            signals.run(|list| list.signal(&fence, value))?;
            one.until_ran(scene, "the queue of the same adapter", value)?;
            two.until_told(scene, before.1)?;
        }
        same("calls of the signalling adapter's driver", one.current_value_updates(), before.0)?;
        scene.until("both queues are done", || {
            let (waited, signaled) = (one.probe.queue.progress()?, signals.progress()?);
            Ok(waited.0 == waited.1 && signaled.0 == signaled.1)
        })
    })
}

/// A call for each fence would be eight of each driver.
pub(super) fn many(stage: &Stage) -> Played {
    stage.play(both(), |scene| {
        let (one, two) = (AdapterClient::open(scene, 0)?, AdapterClient::open(scene, 1)?);
        let fences: Vec<_> = (0..8).map(|_| two.fence(0)).collect::<anyhow::Result<_>>()?;
        let opened: Vec<_> = fences.iter().map(|fence| one.open_fence(fence, &two)).collect::<anyhow::Result<_>>()?;
        one.probe.queue.run(|list| {
            opened.iter().try_for_each(|fence| list.wait(fence, 7))?;
            list.store(one.probe.memory.gpu_va()?, 7)
        })?;
        let waits: Vec<_> = opened.iter().map(|fence| one.wait(fence, 7)).collect::<anyhow::Result<_>>()?;
        let signals: Vec<_> =
            fences.iter().map(|fence| Ok((fence.info()?.handle, 7))).collect::<anyhow::Result<_>>()?;
        let before = (one.current_value_updates(), two.current_value_updates());
        two.raw.signal_cpu(two.plain, &signals).context("the signals")?;
        same(
            "calls of either driver",
            (one.current_value_updates() - before.0, two.current_value_updates() - before.1),
            (1, 1),
        )?;
        for wait in &waits {
            ensure!(one.is_woken(wait, LONG), "a waiter was not woken");
        }
        one.until_ran(scene, "the queue that waits for all", 7)?;
        for (fence, opened) in fences.iter().zip(&opened) {
            same("CurrentValue", (fence.value()?, opened.value()?), (7, 7))?;
        }
        Ok(())
    })
}

pub(super) fn nobody_waits(stage: &Stage) -> Played {
    stage.play(both(), stays_parked).context("a queue that waits for a later value")?;
    stage.play(both(), |scene| {
        let (one, two) = (AdapterClient::open(scene, 0)?, AdapterClient::open(scene, 1)?);
        let fence = two.fence(0)?;
        let opened = one.open_fence(&fence, &two)?;
        // A queue that waits for something else stays where it is.
        let other = one.device.fence(0, 0)?;
        one.queue_wait(&other, 1)?;
        let later = one.queue_wait(&opened, 6)?;
        let before = (one.current_value_updates(), one.native_fence_interrupts(), one.probe.queue.progress()?);
        for value in 1..=5 {
            two.signal(&fence, value)?;
            same("CurrentValue", (fence.value()?, opened.value()?), (value, value))?;
        }
        same("calls", one.current_value_updates() - before.0, 5)?;
        same("interrupts", one.native_fence_interrupts(), before.1)?;
        same("progress", one.probe.queue.progress()?, before.2)?;
        // And one that is behind it is woken when it is time.
        other.signal(1)?;
        one.until_ran(scene, "the first wait", 1)?;
        two.signal(&fence, 6)?;
        one.until_ran(scene, "the second wait", later)
    })
}

/// A queue that is parked on the fence itself stays there as long as the value is not its own.
fn stays_parked(scene: &Scene) -> Played {
    let (one, two) = (AdapterClient::open(scene, 0)?, AdapterClient::open(scene, 1)?);
    let fence = two.fence(0)?;
    let opened = one.open_fence(&fence, &two)?;
    let [waits, behind] = [one.device.queue(1, 64 << 10, 0, 0)?, one.device.queue(1, 64 << 10, 0, 0)?];
    let at = one.probe.memory.gpu_va()?;
    waits.run(|list| {
        list.store(at, 1)?;
        list.wait(&opened, 6)?;
        list.copy(opened.info()?.gpu_va, at + 8, 8)
    })?;
    one.until_ran(scene, "what is before the wait", 1)?;
    // One engine serves the node: what ran behind shows that the other queue has had its turn, and how it ended.
    let turn = || -> Played {
        let done = behind.run(|list| list.nop(8))?;
        Ok(behind.wait(done, Some(LONG))?)
    };
    turn()?;
    let before = one.current_value_updates();
    for value in 1..=5 {
        two.signal(&fence, value)?;
        turn()?;
        same("what the queue saw behind its wait", (value, one.probe.memory.read_u64(8)?), (value, 0))?;
    }
    ensure!(
        !one.has_native() || one.current_value_updates() - before >= 5,
        "{} notifications",
        one.current_value_updates() - before
    );
    two.signal(&fence, 6)?;
    scene.until("the queue that waits", || Ok(one.probe.memory.read_u64(8)? == 6))
}

/// The one that made the fence, or the one that opened it.
pub(super) fn removed(stage: &Stage) -> Played {
    for made_there in [true, false] {
        stage.play(both(), |scene| {
            let (one, two) = (AdapterClient::open(scene, 0)?, AdapterClient::open(scene, 1)?);
            let (here, _there) = if made_there {
                let fence = two.fence(0)?;
                (one.open_fence(&fence, &two)?, fence)
            } else {
                let fence = one.fence(0)?;
                let opened = two.open_fence(&fence, &one)?;
                (fence, opened)
            };
            one.queue_wait(&here, 7)?;
            let waiting = one.wait(&here, 7)?;
            ensure!(!one.is_woken(&waiting, Duration::ZERO), "woken too early");
            scene.world.os.remove_adapter(&two.adapter);
            one.until_ran(scene, "the queue that waits for the removed adapter", 7)?;
            ensure!(one.is_woken(&waiting, LONG), "the CPU's wait did not end");
            same("the device's state", one.device.state()?.execution, 1)?;
            ensure!(two.device.state().is_err() || two.device.state()?.execution != 1, "the removed device is well");
            // What waits from now on passes at once, signals do nothing, and other fences are as ever.
            one.queue_wait(&here, 8)?;
            one.until_ran(scene, "a later wait", 8)?;
            let value = here.value()?;
            one.queue_signal(&here, 9)?;
            let other = one.device.fence(0, 0)?;
            one.queue_signal(&other, 1)?;
            other.wait(1, Some(LONG))?;
            same("the value", here.value()?, value)
        })?;
    }
    Ok(())
}

/// Each queue notes the value that it sees behind its wait.
pub(super) fn turns(stage: &Stage) -> Played {
    const ROUNDS: u64 = 10_000;
    /// Rounds between two waits of the CPU; a page of memory has words for 512.
    const AT_ONCE: u64 = 100;
    stage.play(both(), |scene| {
        let (one, two) = (AdapterClient::open(scene, 0)?, AdapterClient::open(scene, 1)?);
        let fence = one.fence(0)?;
        let opened = two.open_fence(&fence, &one)?;
        let (mine, theirs) = (one.probe.memory.gpu_va()?, two.probe.memory.gpu_va()?);
        let (my_value, their_value) = (fence.info()?.gpu_va, opened.info()?.gpu_va);
        let rounds = stage.rounds(ROUNDS);
        for first in (0..rounds).step_by(AT_ONCE as usize) {
            for at in 0..AT_ONCE {
                let round = first + at;
                one.probe.queue.run(|list| {
                    list.wait(&fence, 2 * round)?;
                    list.copy(my_value, mine + 8 * at, 8)?;
                    list.signal(&fence, 2 * round + 1)
                })?;
                two.probe.queue.run(|list| {
                    list.wait(&opened, 2 * round + 1)?;
                    list.copy(their_value, theirs + 8 * at, 8)?;
                    list.signal(&opened, 2 * round + 2)
                })?;
            }
            fence.wait(2 * (first + AT_ONCE), Some(LONG))?;
            for at in 0..AT_ONCE {
                let seen = (one.probe.memory.read_u64(8 * at)?, two.probe.memory.read_u64(8 * at)?);
                same("the values in one round", seen, (2 * (first + at), 2 * (first + at) + 1))?;
            }
        }
        same("the value at the end", (fence.value()?, opened.value()?), (2 * rounds, 2 * rounds))?;
        ensure!(
            !one.has_native()
                || (one.current_value_updates() >= rounds / 2 && two.current_value_updates() >= rounds / 2),
            "{} and {} notifications",
            one.current_value_updates(),
            two.current_value_updates()
        );
        Ok(())
    })
}

pub(super) fn interrupts(stage: &Stage) -> Played {
    const SIGNALS: u64 = 10_000;
    let signals = stage.rounds(SIGNALS);
    stage.play(both(), |scene| {
        let side = AdapterClient::open(scene, 0)?;
        let plain = side.device.fence(0, 0)?;
        let cross = side.fence(0)?;
        let before = side.native_fence_interrupts();
        for value in 1..=signals {
            side.queue_signal(&plain, value)?;
            // Never so far ahead that the ring is full: waiting for room would interrupt like any other wait.
            scene.until_now("a signal", || Ok(side.probe.queue.progress()?.0 + 64 > value))?;
        }
        while plain.value()? != signals || side.probe.queue.progress()?.0 < signals {
            std::thread::yield_now();
        }
        same("interrupts of a fence that is not for others", side.native_fence_interrupts(), before)?;
        for value in 1..=signals {
            let before = side.native_fence_interrupts();
            side.queue_signal(&cross, value)?;
            scene.until_now("the interrupt of a signal", || Ok(side.native_fence_interrupts() > before))?;
        }
        same("interrupts of signals one by one", side.native_fence_interrupts() - before, signals)?;
        same("the value", cross.value()?, signals)
    })
}
