//! Destruction: with somebody waiting, with an interrupt on its way, after a failure, and often.

use super::super::stage::PATIENCE;
use super::super::{Denied, GpuReader, Played, Raw, Scene, Setup, Stage, same};
use super::{LIFE, Since, counts};
use anyhow::{Context, ensure};
use gpu_wire::GpuVa;
use gpu_wire::packet::Encoded;
use std::collections::BTreeSet;
use std::sync::mpsc;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;
use wddm_abi::ntstatus;

/// A wait that blocks, one by an event, and one for two fences of which one is left.
pub(super) fn waiters(stage: &Stage) -> Played {
    stage.play(Setup::default(), |scene| {
        let user = scene.process("client")?;
        let probe = GpuReader::new(&user.open()?.device()?)?;
        let raw = Raw::open(&user.process, scene.adapter().luid())?;
        let device = raw.device().context("device")?;
        let since = Since::begin(scene);
        let fence = raw.native_fence(device, 0).context("fence")?;
        let other = raw.native_fence(device, 0).context("other fence")?;
        let (event, handle) = raw.event();
        raw.wait_cpu(device, &[(fence.handle, 10)], false, Some(handle)).context("a wait by an event")?;
        let (done, ended) = mpsc::channel();
        let mut threads = Vec::new();
        for waits in [vec![(fence.handle, 20)], vec![(other.handle, 1), (fence.handle, 30)]] {
            let (raw, done) = (raw.again(), done.clone());
            threads.push(thread::spawn(move || {
                let result = raw.wait_cpu(device, &waits, false, None);
                drop(raw);
                let _ = done.send((waits.len(), result));
            }));
        }
        scene.until("the waits", || Ok(probe.read(fence.monitored)? == 9 && probe.read(other.monitored)? == 0))?;
        raw.destroy_fence(fence.handle).context("destroy")?;
        let first = ended.recv_timeout(PATIENCE.unwrap_or_default()).context("the wait hangs")?;
        same("who is woken", first.0, 1)?;
        ensure!(ended.try_recv().is_err(), "the wait for the fence that is left ended");
        raw.signal_cpu(device, &[(other.handle, 1)]).context("signal")?;
        let second = ended.recv_timeout(PATIENCE.unwrap_or_default()).context("the second wait hangs")?;
        same("who is woken then", second.0, 2)?;
        for thread in threads {
            ensure!(thread.join().is_ok(), "a panic");
        }
        // Set or not, the event can be waited for.
        raw.wait_event(&event, Duration::ZERO);
        raw.close(handle);
        same("its calls", since.calls().last().copied(), Some(LIFE[3]))?;
        // Nobody can name it any more, and its value moves no more.
        let gone = Err(Denied(ntstatus::STATUS_INVALID_PARAMETER));
        same("a wait afterwards", raw.wait_cpu(device, &[(fence.handle, 1)], false, None), gone)?;
        same("a signal afterwards", raw.signal_cpu(device, &[(fence.handle, 1)]), gone)
    })
}

/// A cross-adapter fence has a MonitoredValue of 0 and interrupts at every signal, so destruction finds interrupts on
/// their way; the device's interrupts fail at first and are asked for again. At last a queue signals what is gone.
pub(super) fn stale(stage: &Stage) -> Played {
    for (null, faults) in [(0, 0), (0, 40), (1, 40)] {
        let setup = Setup::default().setting("NullFenceArray", null).setting("FaultInterrupts", faults);
        stage.play(setup, storm)?;
    }
    Ok(())
}

fn storm(scene: &Scene) -> Played {
    let user = scene.process("client")?;
    let device = user.open()?.device()?;
    let probe = GpuReader::new(&device)?;
    let raw = Raw::open(&user.process, scene.adapter().luid())?;
    let owner = raw.device().context("device")?;
    let at = probe.memory.gpu_va()?;
    let mut last = 0;
    for round in 1..=60 {
        let mut record = Raw::native_fence_record(owner, 0);
        record.Info.Flags.set_Shared(true);
        record.Info.Flags.set_NtSecuritySharing(true);
        record.Info.Flags.set_CrossAdapter(true);
        let fence = raw.create_native_fence(&mut record).context("fence")?;
        last = fence.gpu;
        probe.queue.run(|list| {
            for value in 1..=8 {
                list.raw(Encoded::fence_signal(GpuVa(fence.gpu), value).as_bytes())?;
            }
            list.store(at, round)
        })?;
        while probe.memory.read_u64(0)? != round || raw.load(fence.cpu)? != 8 {
            thread::yield_now();
        }
        raw.destroy_fence(fence.handle).context("destroy")?;
    }
    ensure!(scene.evaluations("DXG-INT-NATIVE-FENCE") > 0, "no interrupt came");
    let [made, _, _, gone] = counts(scene);
    same("fences left", made - gone, 1)?;
    // The address is that of no fence any more.
    probe.queue.run(|list| list.raw(Encoded::fence_signal(GpuVa(last), 9).as_bytes()))?;
    scene.until("the device's error", || Ok(device.state()?.execution != 1))
}

/// Allocations of the driver's image fail; linked in, it allocates from the host and every creation succeeds.
pub(super) fn failures(stage: &Stage) -> Played {
    stage.play(Setup::default(), |scene| {
        let user = scene.process("client")?;
        let raw = Raw::open(&user.process, scene.adapter().luid())?;
        let device = raw.device().context("device")?;
        // Pages and tables that the first fence brings along stay.
        let first = raw.native_fence(device, 0).context("fence")?;
        raw.destroy_fence(first.handle).context("destroy")?;
        let kernel = scene.world.os.kernel();
        let (handles, pool) = (user.process.open_handles(), kernel.pool_usage().non_paged);
        let mut seen = BTreeSet::new();
        for nth in 1.. {
            let since = Since::begin(scene);
            kernel.fail_allocation(nth);
            let fence = raw.native_fence(device, nth);
            let left = kernel.allocations_until_failure();
            kernel.fail_allocation(0);
            match fence {
                Ok(fence) => {
                    same("its value", raw.load(fence.cpu)?, nth)?;
                    raw.destroy_fence(fence.handle).context("destroy")?;
                    ensure!(left != 0, "creation succeeded although allocation {nth} failed");
                    break;
                }
                Err(denied) => same("the status", denied, Denied(ntstatus::STATUS_NO_MEMORY))?,
            }
            seen.insert(since.calls());
            same("handles", user.process.open_handles(), handles)?;
            same("pool", kernel.pool_usage().non_paged, pool)?;
            let retry = raw.native_fence(device, 1).context("the retry")?;
            raw.destroy_fence(retry.handle).context("destroy")?;
        }
        // In DxgkDdiCreateNativeFence, and in DxgkDdiOpenNativeFence behind one that succeeded.
        let unwound = BTreeSet::from([vec![LIFE[0]], vec![LIFE[0], LIFE[1], LIFE[3]]]);
        same(
            "the driver's calls of failed creations",
            seen,
            if stage.is_native() { BTreeSet::new() } else { unwound },
        )?;
        same("pool at the end", kernel.pool_usage().non_paged, pool)
    })
}

pub(super) fn many(stage: &Stage) -> Played {
    const THREADS: u64 = 8;
    const EACH: u64 = 1250;
    stage.play(Setup::default(), |scene| {
        let user = scene.process("client")?;
        let raw = Raw::open(&user.process, scene.adapter().luid())?;
        let device = raw.device().context("device")?;
        // Tables grow to what so many at a time need, and stay so.
        let warm: Vec<_> = (0..THREADS).map(|_| raw.native_fence(device, 0)).collect();
        for fence in warm {
            raw.destroy_fence(fence.context("fence")?.handle).context("destroy")?;
        }
        let kernel = scene.world.os.kernel();
        let (handles, pool, before) = (user.process.open_handles(), kernel.pool_usage().non_paged, counts(scene));
        let pages = Mutex::new(BTreeSet::new());
        let churn = |thread: u64| -> Played {
            let mut seen = BTreeSet::new();
            for round in 0..EACH {
                let initial = thread << 32 | round;
                let fence = raw.native_fence(device, initial).context("fence")?;
                same("its value", raw.load(fence.cpu)?, initial)?;
                raw.signal_cpu(device, &[(fence.handle, initial + 1)]).context("signal")?;
                same("its value then", raw.load(fence.cpu)?, initial + 1)?;
                raw.destroy_fence(fence.handle).context("destroy")?;
                seen.insert(fence.cpu & !4095);
            }
            pages.lock().unwrap_or_else(PoisonError::into_inner).append(&mut seen);
            Ok(())
        };
        thread::scope(|scope| {
            let threads: Vec<_> = (1..=THREADS).map(|thread| scope.spawn(move || churn(thread))).collect();
            threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| anyhow::anyhow!("a panic"))?)
        })?;
        let done: Vec<_> = counts(scene).iter().zip(before).map(|(after, before)| after - before).collect();
        same("creations, opens, closes, destructions", done, vec![THREADS * EACH; 4])?;
        same("handles", user.process.open_handles(), handles)?;
        same("pool", kernel.pool_usage().non_paged, pool)?;
        let pages = pages.into_inner().unwrap_or_else(PoisonError::into_inner);
        // One per thread at most: eight fences at a time.
        ensure!(pages.len() as u64 <= THREADS, "{} pages for {THREADS} fences at a time", pages.len());
        Ok(())
    })
}
