//! Which signals interrupt, and what the interrupt says.

use crate::client::{Fence, List, Queue};
use crate::scenario::client::{Client, Waiting, native_interrupts, until_idle};
use crate::scenario::raw::ALL;
use crate::scenario::{Played, Raw, Scene, Setup, Stage, same};
use anyhow::{Context, Result, bail, ensure};
use dxgkrnl_model::adapter::Notification;
use nt_model::InterruptDelivery;
use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use wddm_abi::DXGK_INTERRUPT_TYPE;

/// Signals from the GPU, and waits until the queue has done it.
fn signal(scene: &Scene, queue: &Queue, fence: &Fence, value: u64) -> Played {
    queue.run(|list| list.signal(fence, value))?;
    until_idle(scene, queue)
}

/// A fence whose MonitoredValue is 0 for its life, so that every signal interrupts: one that adapters can share.
fn always_interrupts(rig: &Client) -> Result<Fence> {
    let mut record = Raw::native_fence_record(rig.plain, 0);
    record.Info.Flags.set_Shared(true);
    record.Info.Flags.set_NtSecuritySharing(true);
    record.Info.Flags.set_CrossAdapter(true);
    let made = rig.raw.create_native_fence(&mut record).context("a cross-adapter fence")?;
    let handle = rig.raw.share(made.handle, ALL)?;
    Ok(rig.device.open_fence(handle.expose_provenance() as u64, false)?)
}

/// Waits until there are `count` native fence interrupts more than `before`.
fn until_interrupts(scene: &Scene, before: usize, count: usize) -> Played {
    scene.until("the interrupts", || Ok(native_interrupts(scene).len() >= before + count))
}

pub(super) fn spurious(stage: &Stage) -> Played {
    stage.play(Setup::default(), |scene| {
        let rig = Client::open(scene, "client")?;
        let (queue, peek) = (rig.queue(0)?, rig.peek()?);
        let fence = always_interrupts(&rig)?;
        let other = rig.fence(0, true)?;
        same("MonitoredValue", peek.monitored(scene, &fence)?, 0)?;
        let far = rig.wait(&[(&fence, 1000)], false)?;
        let elsewhere = rig.wait(&[(&other, 7)], false)?;
        let updates = scene.calls("DxgkDdiUpdateMonitoredValues");
        for value in 1..=20 {
            let before = native_interrupts(scene).len();
            signal(scene, &queue, &fence, value)?;
            until_interrupts(scene, before, 1)?;
            far.still_waits(&rig, "the waiter for 1000")?;
            same("CurrentValue", rig.value(&fence)?, value)?;
        }
        elsewhere.still_waits(&rig, "the waiter for another fence")?;
        same("updates of MonitoredValue", scene.calls("DxgkDdiUpdateMonitoredValues"), updates)?;
        same("MonitoredValue", peek.monitored(scene, &fence)?, 0)?;
        same("the other fence", (rig.value(&other)?, peek.monitored(scene, &other)?), (0, 6))?;
        signal(scene, &queue, &fence, 1000)?;
        far.comes(&rig, "the waiter for 1000")?;
        signal(scene, &queue, &other, 7)?;
        elsewhere.comes(&rig, "the waiter for the other fence")
    })
}

pub(super) fn duplicate(stage: &Stage) -> Played {
    stage.play(Setup::default(), |scene| {
        let rig = Client::open(scene, "client")?;
        let (one, two) = (rig.queue(0)?, rig.queue(1)?);
        let fence = always_interrupts(&rig)?;
        for value in 1..=20 {
            let wait = rig.wait(&[(&fence, value)], false)?;
            let before = native_interrupts(scene).len();
            signal(scene, &one, &fence, value)?;
            wait.comes(&rig, "the first report")?;
            // From another engine, and from the same one twice.
            signal(scene, &two, &fence, value)?;
            until_interrupts(scene, before, 2)?;
            signal(scene, &one, &fence, value)?;
            until_interrupts(scene, before, 3)?;
            wait.still_waits(&rig, "a report of the same value")?;
            same("CurrentValue", rig.value(&fence)?, value)?;
        }
        Ok(())
    })
}

pub(super) fn suppressed(stage: &Stage) -> Played {
    stage.play(Setup::default(), |scene| {
        let rig = Client::open(scene, "client")?;
        let (queue, peek) = (rig.queue(0)?, rig.peek()?);
        let fence = rig.fence(0, true)?;
        same("MonitoredValue", peek.monitored(scene, &fence)?, u64::MAX)?;
        for first in (1..=1000).step_by(100) {
            queue.run(|list| (first..first + 100).try_for_each(|value| list.signal(&fence, value)))?;
        }
        until_idle(scene, &queue)?;
        same("CurrentValue", rig.value(&fence)?, 1000)?;
        same("native fence interrupts", native_interrupts(scene).len(), 0)?;
        // One waiter later there is one.
        let wait = rig.wait(&[(&fence, 1001)], false)?;
        signal(scene, &queue, &fence, 1001)?;
        wait.comes(&rig, "1001")?;
        same("native fence interrupts", native_interrupts(scene).len(), 1)
    })
}

pub(super) fn threshold(stage: &Stage) -> Played {
    stage.play(Setup::default(), |scene| {
        let rig = Client::open(scene, "client")?;
        let (queue, peek) = (rig.queue(0)?, rig.peek()?);
        let fence = rig.fence(0, true)?;
        let wait = rig.wait(&[(&fence, 500)], false)?;
        let signals = |range: std::ops::Range<u64>| -> Played {
            queue.run(|list| range.clone().try_for_each(|value| list.signal(&fence, value)))?;
            until_idle(scene, &queue)
        };
        signals(1..250)?;
        signals(250..500)?;
        same("interrupts up to 499", native_interrupts(scene).len(), 0)?;
        wait.still_waits(&rig, "at 499")?;
        signals(500..750)?;
        wait.comes(&rig, "500")?;
        ensure!(!native_interrupts(scene).is_empty(), "the waiter was woken without an interrupt");
        peek.becomes(scene, &fence, u64::MAX)?;
        let interrupts = native_interrupts(scene).len();
        signals(750..1001)?;
        same("CurrentValue", rig.value(&fence)?, 1000)?;
        same("interrupts after MonitoredValue moved on", native_interrupts(scene).len(), interrupts)
    })
}

/// Six fences with a waiter each; the even ones are signaled in one list. What was notified.
fn signal_some(scene: &Scene, rig: &Client) -> Result<Vec<Notification>> {
    let queue = rig.queue(0)?;
    let fences: Vec<_> = (0..6).map(|_| rig.fence(0, true)).collect::<Result<_>>()?;
    let waits: Vec<_> = fences.iter().map(|fence| rig.wait(&[(fence, 5)], false)).collect::<Result<_>>()?;
    let before = native_interrupts(scene).len();
    queue.run(|list| {
        for (index, fence) in fences.iter().enumerate() {
            list.signal(fence, if index % 2 == 0 { 5 } else { 4 })?;
        }
        Ok(())
    })?;
    until_idle(scene, &queue)?;
    for (index, wait) in waits.iter().enumerate() {
        if index % 2 == 0 {
            wait.comes(rig, &format!("fence {index}"))?;
        }
    }
    for (index, wait) in waits.iter().enumerate() {
        wait.still_waits(rig, &format!("fence {index}"))?;
    }
    let notified = native_interrupts(scene).split_off(before);
    ensure!(!notified.is_empty(), "the waiters were woken without an interrupt");
    for (index, fence) in fences.iter().enumerate().filter(|(index, _)| index % 2 == 1) {
        signal(scene, &queue, fence, 5)?;
        waits[index].comes(rig, &format!("fence {index} in the end"))?;
    }
    Ok(notified)
}

pub(super) fn array(stage: &Stage) -> Played {
    stage.play(Setup::default(), |scene| {
        let notified = signal_some(scene, &Client::open(scene, "client")?)?;
        let named: Vec<_> = notified.iter().flat_map(|one| one.fences.iter().copied()).collect();
        let distinct: BTreeSet<_> = named.iter().copied().collect();
        same("fences named", distinct.len(), 3)?;
        same("notifications without a name", notified.iter().any(|one| one.fences.is_empty() || one.names_queue), false)
    })?;
    stage.play(Setup::default().setting("NullFenceArray", 1), |scene| {
        let notified = signal_some(scene, &Client::open(scene, "client")?)?;
        same("fences named", notified.iter().all(|one| one.fences.is_empty() && !one.names_queue), true)
    })?;
    stage.play(Setup::default().setting("OptimizedInterrupt", 1), |scene| {
        let notified = signal_some(scene, &Client::open(scene, "client")?)?;
        same("the queue named", notified.iter().all(|one| one.fences.is_empty() && one.names_queue), true)
    })
}

/// A native and a monitored fence with a waiter each.
struct Both {
    rig: Client,
    native: Fence,
    monitored: Fence,
    native_wait: Waiting,
    monitored_wait: Waiting,
}

impl Both {
    fn new(scene: &Scene) -> Result<Self> {
        let rig = Client::open(scene, "client")?;
        let (native, monitored) = (rig.fence(0, true)?, rig.fence(0, false)?);
        let native_wait = rig.wait(&[(&native, 1)], false)?;
        let monitored_wait = rig.wait(&[(&monitored, 1)], false)?;
        Ok(Self { rig, native, monitored, native_wait, monitored_wait })
    }

    /// Stores to the monitored fence by a packet that tells nobody.
    fn store(&self, scene: &Scene, queue: &Queue, value: u64) -> Played {
        self.store_alone(scene, queue, value)?;
        self.monitored_wait.still_waits(&self.rig, "a store that tells nobody")
    }

    /// As [`store`](Self::store), without a look at the waiter.
    fn store_alone(&self, scene: &Scene, queue: &Queue, value: u64) -> Played {
        let address = self.monitored.info()?.gpu_va;
        queue.run(|list| list.store(address, value))?;
        until_idle(scene, queue)?;
        same("the monitored fence", self.rig.value(&self.monitored)?, value)
    }
}

fn count(scene: &Scene, kind: DXGK_INTERRUPT_TYPE) -> usize {
    scene.adapter().notification_journal().iter().filter(|one| one.kind == kind).count()
}

pub(super) fn null_only_native(stage: &Stage) -> Played {
    stage.play(Setup::default().setting("NullFenceArray", 1), |scene| {
        let both = Both::new(scene)?;
        let (queue, kernel) = (both.rig.queue(0)?, both.rig.queue_for(false)?);
        both.store(scene, &queue, 1)?;
        signal(scene, &queue, &both.native, 1)?;
        both.native_wait.comes(&both.rig, "the native fence")?;
        let all = native_interrupts(scene);
        same("named fences, legacy flags", all.iter().any(|one| !one.fences.is_empty() || one.legacy), false)?;
        // The DPC that woke the one has looked at everything that it is going to look at by the next interrupt.
        let wait = both.rig.wait(&[(&both.native, 2)], false)?;
        signal(scene, &queue, &both.native, 2)?;
        wait.comes(&both.rig, "the native fence again")?;
        both.monitored_wait.still_waits(&both.rig, "an interrupt for native fences")?;
        signal(scene, &kernel, &both.monitored, 2)?;
        both.monitored_wait.comes(&both.rig, "an interrupt for monitored fences")
    })
}

/// Both kinds of fence, after a store to the monitored one, and a queue of each mode. Each interrupt has the OS look at
/// every fence here, and where the engine signals a paging queue's fence, that interrupt may come late: a store that an
/// interrupt came beside shows nothing, and another one is tried.
fn undisturbed(scene: &Scene) -> Result<(Both, Queue, Queue)> {
    for _ in 0..10 {
        let before = native_interrupts(scene).len();
        let both = Both::new(scene)?;
        let (queue, kernel) = (both.rig.queue(0)?, both.rig.queue_for(false)?);
        both.store_alone(scene, &queue, 1)?;
        let looked = both.monitored_wait.still_waits(&both.rig, "a store that tells nobody");
        if looked.is_ok() || native_interrupts(scene).len() == before {
            return looked.map(|()| (both, queue, kernel));
        }
    }
    bail!("each of ten stores woke its waiter, and an interrupt came beside each");
}

pub(super) fn null_for_both(stage: &Stage) -> Played {
    stage.play(Setup::default().setting("SingleFenceInterrupt", 1), |scene| {
        let (both, queue, kernel) = undisturbed(scene)?;
        signal(scene, &queue, &both.native, 1)?;
        both.native_wait.comes(&both.rig, "the native fence")?;
        both.monitored_wait.comes(&both.rig, "the monitored fence")?;
        // And the other way: the signal of a monitored fence comes as the same interrupt.
        let native = both.rig.wait(&[(&both.native, 9)], false)?;
        let monitored = both.rig.wait(&[(&both.monitored, 9)], false)?;
        signal(scene, &kernel, &both.monitored, 9)?;
        monitored.comes(&both.rig, "the monitored fence's own signal")?;
        native.still_waits(&both.rig, "the monitored fence's signal")?;
        signal(scene, &queue, &both.native, 9)?;
        native.comes(&both.rig, "the native fence's own signal")?;
        let all = native_interrupts(scene);
        same("names, missing flags", all.iter().any(|one| !one.fences.is_empty() || !one.legacy), false)?;
        let legacy = DXGK_INTERRUPT_TYPE::DXGK_INTERRUPT_MONITORED_FENCE_SIGNALED;
        same("interrupts for monitored fences alone", count(scene, legacy), 0)
    })
}

/// More than an interrupt names.
const MANY: usize = 100;
/// Fewer, on each of two nodes, than a driver is likely to keep while its interrupt is not served, and more than one
/// interrupt names.
const MANY_LATE: usize = 200;
/// More, on each of two nodes, than a driver is likely to keep while its interrupt is not served.
const MOST: usize = 800;

pub(super) fn overflow(stage: &Stage) -> Played {
    // The OS keeps no notification between interrupt and DPC, then one.
    for kept in [0, 1] {
        let setup = Setup::default().windows(|personality| personality.notification_list = kept);
        let played = stage.play(setup, |scene| {
            let many = Many::new(scene, MANY)?;
            many.signal()?;
            many.all_come()?;
            let report = scene.world.os.report();
            let folded = report.adapters.first().map_or(0, |adapter| adapter.overflows);
            ensure!(kept != 0 || folded > 0, "no notification was folded");
            Ok(())
        });
        played.with_context(|| format!("a list of {kept}"))?;
    }
    // So many that a driver keeps them all and names them in several interrupts; and more than it keeps.
    for count in [MANY_LATE, MOST] {
        let setup = Setup::default().windows(|personality| personality.interrupt_delivery = InterruptDelivery::Remote);
        stage
            .play(setup, |scene| not_served(scene, count))
            .with_context(|| format!("{count} signals while no interrupt is served"))?;
    }
    Ok(())
}

/// The interrupt is not served until all is signaled.
fn not_served(scene: &Scene, count: usize) -> Played {
    let many = Many::new(scene, count)?;
    let before = native_interrupts(scene).len();
    let (held, done) = (AtomicBool::new(false), AtomicBool::new(false));
    let hold = || {
        held.store(true, Ordering::Release);
        let end = Instant::now() + Duration::from_secs(10);
        while !done.load(Ordering::Acquire) && Instant::now() < end {
            std::hint::spin_loop();
        }
    };
    std::thread::scope(|scope| -> Played {
        let holder = scope.spawn(|| scene.world.os.hold_interrupts(scene.adapter(), hold));
        let signaled = scene
            .until("the interrupt's lock", || Ok(held.load(Ordering::Acquire)))
            .and_then(|()| many.signal())
            .and_then(|()| many.queues.iter().try_for_each(|queue| until_idle(scene, queue)));
        let early = native_interrupts(scene).len() - before;
        done.store(true, Ordering::Release);
        holder.join().map_err(|_| anyhow::anyhow!("a panic"))?.context("no interrupt is connected")?;
        signaled?;
        same("interrupts while none is served", early, 0)
    })?;
    many.all_come()?;
    ensure!(native_interrupts(scene).len() > before, "the waiters were woken without an interrupt");
    Ok(())
}

/// Fences with a waiter each, and a list per node that signals half of them.
struct Many {
    lists: Mutex<[List; 2]>,
    queues: [Queue; 2],
    _fences: Vec<Fence>,
    waits: Vec<Waiting>,
    rig: Client,
}

impl Many {
    fn new(scene: &Scene, count: usize) -> Result<Self> {
        let rig = Client::open(scene, "client")?;
        let ring = 1 << 20;
        let queues = [rig.device.queue(0, ring, 0, 0)?, rig.device.queue(1, ring, 0, 0)?];
        let fences: Vec<_> = (0..count).map(|_| rig.fence(0, true)).collect::<Result<_>>()?;
        let waits = fences.iter().map(|fence| rig.wait(&[(fence, 1)], false)).collect::<Result<_>>()?;
        let mut lists = [queues[0].list()?, queues[1].list()?];
        for (index, fence) in fences.iter().enumerate() {
            lists[index % 2].signal(fence, 1)?;
        }
        Ok(Self { lists: Mutex::new(lists), queues, _fences: fences, waits, rig })
    }

    /// Submits both lists, once.
    fn signal(&self) -> Played {
        let mut lists = self.lists.lock().map_err(|_| anyhow::anyhow!("a panic"))?;
        for (queue, list) in self.queues.iter().zip(lists.iter_mut()) {
            queue.submit(list)?;
        }
        Ok(())
    }

    fn all_come(&self) -> Played {
        let mut each = self.waits.iter().enumerate();
        each.try_for_each(|(index, wait)| wait.comes(&self.rig, &format!("fence {index}")))
    }
}
