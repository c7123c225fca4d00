//! Several devices and processes.

use super::super::raw::{ALL, READ, duplicate, duplicate_number};
use super::super::stage::PATIENCE;
use super::super::{Denied, GpuReader, Played, Raw, Scene, Setup, Stage, same};
use super::{CLOSED, GONE, LIFE, MADE, OPENED, Since, counts};
use anyhow::{Context, ensure};
use dxgkrnl_model::personality::Clock;
use nt_model::sched::seeded::SeededOptions;
use std::sync::Barrier;
use std::thread;
use wddm_abi::{D3DDDI_SYNC_OBJECT_SIGNAL, D3DDDI_SYNC_OBJECT_WAIT, D3DKMT_HANDLE, ntstatus};

pub(super) fn second_device(stage: &Stage) -> Played {
    stage.play(Setup::default(), |scene| {
        let user = scene.process("client")?;
        let adapter = user.open()?;
        let (one, two) = (adapter.device()?, adapter.device()?);
        let probe = GpuReader::new(&two)?;
        let since = Since::begin(scene);
        let first = one.shared_fence(7)?;
        let handle = first.share()?;
        let second = two.open_fence(handle, false)?;
        adapter.close_nt_handle(handle)?;
        let (a, b) = (first.info()?, second.info()?);
        same("addresses", (b.gpu_va, b.monitored_va, b.value_address), (a.gpu_va, a.monitored_va, a.value_address))?;
        ensure!(a.handle != b.handle, "one handle for two openings: {:#x}", a.handle);
        same("the driver's calls", since.calls(), vec![MADE, OPENED, OPENED])?;
        second.signal(8)?;
        same("the value by the first handle", first.value()?, 8)?;
        // One opening less is not the last.
        drop(first);
        same("the driver's calls then", since.calls(), vec![MADE, OPENED, OPENED, CLOSED])?;
        probe.queue.run(|list| {
            list.wait(&second, 8)?;
            list.signal(&second, 9)
        })?;
        second.wait(9, PATIENCE)?;
        drop(second);
        same("the driver's last calls", since.calls().split_off(4), vec![CLOSED, GONE])
    })
}

pub(super) fn second_process(stage: &Stage) -> Played {
    stage.play(Setup::default(), |scene| {
        let (a, b) = (scene.process("signals")?, scene.process("waits")?);
        let (ours, theirs) = (a.open()?.device()?, b.open()?.device()?);
        let (signals, waits) = (GpuReader::new(&ours)?, GpuReader::new(&theirs)?);
        let since = Since::begin(scene);
        let fence = ours.shared_fence(3)?;
        let opened = theirs.open_fence(duplicate_number(fence.share()?, &a.process, &b.process)?, false)?;
        same("the driver's calls", since.calls(), vec![MADE, OPENED, OPENED])?;
        let (here, there) = (fence.info()?, opened.info()?);
        ensure!(here.value_address != there.value_address, "both see it at {:#x}", here.value_address);
        same("the value there", (opened.value()?, waits.read(there.gpu_va)?), (3, 3))?;
        let told = scene.calls("DxgkDdiUpdateMonitoredValues");
        thread::scope(|scope| {
            let waiter = scope.spawn(|| opened.wait(5, PATIENCE));
            scene.until("the wait", || Ok(waits.read(there.monitored_va)? == 4))?;
            // Not a wake for it: 4 is less.
            signals.queue.run(|list| list.signal(&fence, 4))?;
            scene.until("the first signal", || Ok(opened.value()? == 4))?;
            ensure!(!waiter.is_finished(), "woken by 4");
            signals.queue.run(|list| list.signal(&fence, 5))?;
            waiter.join().ok().context("a panic")??;
            anyhow::Ok(())
        })?;
        ensure!(scene.calls("DxgkDdiUpdateMonitoredValues") > told, "MonitoredValue was not moved");
        same("the value in both", (fence.value()?, opened.value()?), (5, 5))?;
        // And the other way round, queue to queue.
        let waited = signals.queue.run(|list| list.wait(&fence, 6))?;
        waits.queue.run(|list| list.signal(&opened, 6))?;
        signals.queue.wait(waited, PATIENCE)?;
        same("the value for the GPU", signals.read(here.gpu_va)?, 6)
    })
}

pub(super) fn creator_leaves(stage: &Stage) -> Played {
    stage.play(Setup::default(), |scene| {
        let (a, b) = (scene.process("creator")?, scene.process("stays")?);
        let theirs = b.open()?.device()?;
        let probe = GpuReader::new(&theirs)?;
        let raw = Raw::open(&a.process, scene.adapter().luid())?;
        let device = raw.device().context("device")?;
        let since = Since::begin(scene);
        let fence = raw.shared_native_fence(device, 1).context("fence")?;
        let handle = raw.share(fence.handle, ALL).context("share")?;
        let opened = theirs.open_fence(duplicate_number(handle as u64, &a.process, &b.process)?, false)?;
        raw.destroy_fence(fence.handle).context("destroy")?;
        raw.destroy_device(device).context("destroy device")?;
        same("the driver's calls", since.calls(), vec![MADE, OPENED, OPENED, CLOSED])?;
        drop(raw);
        drop(a);
        same("with the process gone", since.calls(), vec![MADE, OPENED, OPENED, CLOSED])?;
        opened.signal(2)?;
        let done = probe.queue.run(|list| {
            list.wait(&opened, 2)?;
            list.signal(&opened, 3)?;
            list.wait(&opened, 4)
        })?;
        opened.wait(3, PATIENCE)?;
        opened.signal(4)?;
        probe.queue.wait(done, PATIENCE)?;
        same("the value", opened.value()?, 4)?;
        drop(opened);
        same("the driver's calls, but for an NT handle", since.calls().split_off(4), vec![CLOSED])?;
        drop(probe);
        drop(theirs);
        drop(b);
        let calls = since.calls().split_off(5);
        same("destructions of it and of a queue's own", calls.iter().filter(|call| **call == GONE).count(), 2)
    })
}

/// The NT handle is closed at the same time, so that an open finds the fence dying or not at all.
pub(super) fn destroy_races_open(stage: &Stage) -> Played {
    stage.play(Setup::default(), |scene| {
        let pair = Pair::new(scene)?;
        (0..stage.rounds(2_000)).try_for_each(|round| pair.race(scene, round))
    })?;
    for seed in 0..stage.rounds(16) {
        let seed = stage.seed().wrapping_mul(1000) + seed;
        // Between their calls the threads are outside the machine, where the next call comes from.
        let options = SeededOptions { closed: false, ..SeededOptions::new(seed) };
        let setup = Setup::default().windows(|windows| windows.clock = Clock::Seeded(options.clone()));
        let played = stage.play(setup, |scene| {
            let pair = Pair::new(scene)?;
            (0..8).try_for_each(|round| pair.race(scene, round))
        });
        played.with_context(|| format!("schedule of seed {seed}"))?;
    }
    Ok(())
}

/// Two processes, and a device of each.
struct Pair {
    ours: Raw,
    device: D3DKMT_HANDLE,
    theirs: Raw,
    other: D3DKMT_HANDLE,
}

impl Pair {
    fn new(scene: &Scene) -> anyhow::Result<Self> {
        let (a, b) = (scene.process("creator")?, scene.process("opener")?);
        let luid = scene.adapter().luid();
        let (ours, theirs) = (Raw::open(&a.process, luid)?, Raw::open(&b.process, luid)?);
        let (device, other) = (ours.device().context("device")?, theirs.device().context("device")?);
        Ok(Self { ours, device, theirs, other })
    }

    fn race(&self, scene: &Scene, round: u64) -> Played {
        let Self { ours, device, theirs, other } = self;
        let (device, other) = (*device, *other);
        let before = counts(scene);
        let fence = ours.shared_native_fence(device, 0).context("fence")?;
        let shared = ours.share(fence.handle, ALL).context("share")?;
        let handle = duplicate(shared, &ours.process, &theirs.process)?.expose_provenance();
        ours.close(shared);
        let start = Barrier::new(2);
        let begin = || start.wait();
        let opened = thread::scope(|scope| {
            let open = scope.spawn(|| {
                begin();
                let _inside = theirs.process.enter();
                let handle = std::ptr::with_exposed_provenance_mut(handle);
                let opened = theirs.open_native_fence(other, handle);
                if let Ok(opened) = opened {
                    theirs.signal_cpu(other, &[(opened.handle, 1)])?;
                    theirs.destroy_fence(opened.handle)?;
                }
                Ok::<_, Denied>(opened.map(|_| ()))
            });
            begin();
            {
                let _inside = ours.process.enter();
                let handle = std::ptr::with_exposed_provenance_mut(handle);
                if round.is_multiple_of(2) {
                    theirs.close(handle);
                    ours.destroy_fence(fence.handle)?;
                } else {
                    ours.destroy_fence(fence.handle)?;
                    theirs.close(handle);
                }
            }
            open.join().map_err(|_| anyhow::anyhow!("a panic"))?.map_err(anyhow::Error::from)
        })?;
        let opens = match opened {
            Ok(()) => 2,
            Err(Denied(ntstatus::STATUS_INVALID_HANDLE)) => 1,
            Err(other) => return Err(other).context("opening a fence that is being destroyed"),
        };
        let after = counts(scene);
        let done: Vec<_> = after.iter().zip(before).map(|(after, before)| after - before).collect();
        same("creations, opens, closes, destructions", done, vec![1, opens, opens, 1])?;
        let calls = scene.journal(&LIFE);
        same("the last call", calls.last().copied(), Some(GONE))
    }
}

pub(super) fn rights(stage: &Stage) -> Played {
    stage.play(Setup::default(), |scene| {
        let Pair { ours, device, theirs, other } = Pair::new(scene)?;
        let denied = Err(Denied(ntstatus::STATUS_ACCESS_DENIED));
        let since = Since::begin(scene);
        let native = ours.shared_native_fence(device, 0).context("native fence")?;
        let monitored = ours.monitored_fence(device, 0, true).context("monitored fence")?;
        let give = |object, access| -> anyhow::Result<_> {
            let handle = ours.share(object, access)?;
            let copy = duplicate(handle, &ours.process, &theirs.process)?;
            ours.close(handle);
            Ok(copy)
        };
        let open = |native, handle| {
            if native { theirs.open_native_fence(other, handle) } else { theirs.open_monitored_fence(other, handle) }
        };
        for (is_native, fence) in [(true, native), (false, monitored)] {
            let handles = theirs.process.open_handles();
            let handle = give(fence.handle, D3DDDI_SYNC_OBJECT_WAIT | D3DDDI_SYNC_OBJECT_SIGNAL)?;
            same("an open without the right to read", open(is_native, handle), denied.map(|()| fence))?;
            same("handles", theirs.process.open_handles(), handles)?;
            theirs.close(handle);
            let cases = [(READ, false, false), (READ | D3DDDI_SYNC_OBJECT_WAIT, true, false)];
            let more = [(READ | D3DDDI_SYNC_OBJECT_SIGNAL, false, true), (ALL, true, true)];
            for (access, may_wait, may_signal) in cases.into_iter().chain(more) {
                let handle = give(fence.handle, access)?;
                let opened = open(is_native, handle).with_context(|| format!("access {access:#x}"))?;
                let wait = theirs.wait_cpu(other, &[(opened.handle, 0)], false, None);
                same("a wait", wait, if may_wait { Ok(()) } else { denied })?;
                let signal = theirs.signal_cpu(other, &[(opened.handle, 0)]);
                same("a signal", signal, if may_signal { Ok(()) } else { denied })?;
                // Sharing it again gives no more rights than there are.
                let more = theirs.share(opened.handle, ALL).context("share again")?;
                let again = open(is_native, more).context("open again")?;
                let signal = theirs.signal_cpu(other, &[(again.handle, 0)]);
                same("a signal by another handle", signal, if may_signal { Ok(()) } else { denied })?;
                theirs.destroy_fence(again.handle).context("destroy")?;
                theirs.close(more);
                theirs.destroy_fence(opened.handle).context("destroy")?;
                theirs.close(handle);
            }
            // Whoever made it may do everything.
            ours.signal_cpu(device, &[(fence.handle, 1)]).context("the creator's signal")?;
            ours.wait_cpu(device, &[(fence.handle, 1)], false, None).context("the creator's wait")?;
            ours.destroy_fence(fence.handle).context("destroy")?;
        }
        let calls = since.calls();
        let count = |ddi| calls.iter().filter(|call| **call == ddi).count();
        same("the driver's calls", LIFE.map(count), [1, 9, 9, 1])
    })
}

pub(super) fn wrong_kind(stage: &Stage) -> Played {
    stage.play(Setup::default(), |scene| {
        let user = scene.process("client")?;
        let raw = Raw::open(&user.process, scene.adapter().luid())?;
        let device = raw.device().context("device")?;
        let native = raw.shared_native_fence(device, 1).context("native fence")?;
        let monitored = raw.monitored_fence(device, 2, true).context("monitored fence")?;
        let (since, handles) = (Since::begin(scene), user.process.open_handles());
        let refused = Err(Denied(ntstatus::STATUS_INVALID_PARAMETER));
        let handle = raw.share(monitored.handle, ALL).context("share")?;
        same("a monitored fence as a native one", raw.open_native_fence(device, handle), refused)?;
        raw.close(handle);
        let handle = raw.share(native.handle, ALL).context("share")?;
        same("a native fence as a monitored one", raw.open_monitored_fence(device, handle), refused)?;
        raw.close(handle);
        let closed = Err(Denied(ntstatus::STATUS_INVALID_HANDLE));
        same("a handle that is closed", raw.open_native_fence(device, handle), closed)?;
        let (_event, handle) = raw.event();
        ensure!(raw.open_native_fence(device, handle).is_err(), "an event was opened as a fence");
        raw.close(handle);
        let private = raw.native_fence(device, 0).context("private fence")?;
        same(
            "a fence that cannot be shared",
            raw.share(private.handle, ALL),
            Err(Denied(ntstatus::STATUS_INVALID_PARAMETER)),
        )?;
        raw.destroy_fence(private.handle).context("destroy")?;
        same("handles", user.process.open_handles(), handles)?;
        same("the driver's calls", since.calls(), LIFE.to_vec())?;
        same("the values", (raw.load(native.cpu)?, raw.load(monitored.cpu)?), (1, 2))
    })
}
