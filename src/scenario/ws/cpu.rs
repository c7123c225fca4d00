//! Waits and signals from the CPU.

use crate::client::Fence;
use crate::scenario::client::{Client, native_interrupts, returned, until_idle};
use crate::scenario::raw::duplicate_number;
use crate::scenario::{Denied, Played, Scene, Setup, Stage, portable, same};
use anyhow::{Context, Result, ensure};
use wddm_abi::ntstatus::STATUS_INVALID_PARAMETER;

const UPDATE_MONITORED: &str = "DxgkDdiUpdateMonitoredValues";
const UPDATE_CURRENT: &str = "DxgkDdiUpdateCurrentValuesFromCpu";

pub(super) fn passed(stage: &Stage) -> Played {
    stage.play(Setup::default(), |scene| {
        let rig = Client::open(scene, "client")?;
        for native in [true, false] {
            let fence = rig.fence(5, native)?;
            let updates = scene.calls(UPDATE_MONITORED);
            for value in [5, 4, 0] {
                let call = rig.block(&[(&fence, value)], false)?;
                same("the wait", returned("the wait", &call)?, Ok(()))?;
            }
            same("CurrentValue at the CPU's address", rig.value(&fence)?, 5)?;
            rig.native_same("updates of MonitoredValue", scene.calls(UPDATE_MONITORED), updates)?;
        }
        Ok(())
    })
}

pub(super) fn woken(stage: &Stage) -> Played {
    portable::case(stage, "WS-02", |_| Ok(()))?;
    stage.play(Setup::default(), |scene| {
        let rig = Client::open(scene, "client")?;
        let (queue, peek) = (rig.queue(0)?, rig.peek()?);
        let fence = rig.fence(0, true)?;
        rig.native_same("MonitoredValue without waiters", peek.monitored(scene, &fence)?, u64::MAX)?;
        let updates = scene.calls(UPDATE_MONITORED);
        let wait = rig.wait(&[(&fence, 10)], false)?;
        rig.native_same("updates when the wait has begun", scene.calls(UPDATE_MONITORED), updates + 1)?;
        rig.native_same("MonitoredValue when the wait has begun", peek.monitored(scene, &fence)?, 9)?;
        let interrupts = native_interrupts(scene).len();
        queue.run(|list| list.signal(&fence, 9))?;
        until_idle(scene, &queue)?;
        rig.native_same("interrupts of a signal that nobody waits for", native_interrupts(scene).len(), interrupts)?;
        wait.still_waits(&rig, "at 9")?;
        queue.run(|list| list.signal(&fence, 10))?;
        wait.comes(&rig, "at 10")?;
        let all = native_interrupts(scene);
        rig.native_same("interrupts", all.len(), interrupts + 1)?;
        rig.native_same("fences that it names", all.last().map(|last| last.fences.len()), Some(1))?;
        peek.becomes(scene, &fence, u64::MAX)?;
        // The other form of the call: it sleeps until the value is there.
        let call = rig.block(&[(&fence, 11)], false)?;
        peek.becomes(scene, &fence, 10)?;
        ensure!(call.try_recv().is_err(), "the wait for 11 returned at 10");
        queue.run(|list| list.signal(&fence, 11))?;
        same("the wait for 11", returned("the wait for 11", &call)?, Ok(()))
    })
}

/// Signals from the GPU as the fence's kind wants it.
fn signal_on(scene: &Scene, queue: &crate::client::Queue, fence: &Fence, value: u64) -> Played {
    queue.run(|list| list.signal(fence, value))?;
    until_idle(scene, queue)
}

pub(super) fn skips(stage: &Stage) -> Played {
    stage.play(Setup::default(), |scene| {
        let rig = Client::open(scene, "client")?;
        let peek = rig.peek()?;
        for native in [true, false] {
            let queue = rig.queue_for(native)?;
            let fence = rig.fence(0, native)?;
            // The least comes in the middle: the list is not in the order of the calls.
            let waits = [7, 3, 9, 12].map(|value| rig.wait(&[(&fence, value)], false));
            let [seven, three, nine, twelve] = waits;
            let (seven, three, nine, twelve) = (seven?, three?, nine?, twelve?);
            if native {
                rig.native_same("MonitoredValue", peek.monitored(scene, &fence)?, 2)?;
            }
            let interrupts = native_interrupts(scene).len();
            signal_on(scene, &queue, &fence, 9)?;
            for (wait, what) in [(&three, "3"), (&seven, "7"), (&nine, "9")] {
                wait.comes(&rig, what)?;
            }
            twelve.still_waits(&rig, "12")?;
            if native {
                rig.native_same("interrupts", native_interrupts(scene).len(), interrupts + 1)?;
                peek.becomes(scene, &fence, 11)?;
            }
            signal_on(scene, &queue, &fence, 12)?;
            twelve.comes(&rig, "12")?;
        }
        Ok(())
    })
}

/// The six orders of three things.
const ORDERS: [[usize; 3]; 6] = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];

pub(super) fn any_and_all(stage: &Stage) -> Played {
    stage.play(Setup::default(), |scene| {
        let rig = Client::open(scene, "client")?;
        let (queue, kernel, peek) = (rig.queue(0)?, rig.queue_for(false)?, rig.peek()?);
        for subset in 0..8_usize {
            let is_in = |index: usize| subset & 1 << index != 0;
            for before in [true, false] {
                let fences = [rig.fence(0, true)?, rig.fence(0, true)?, rig.fence(0, subset % 3 != 0)?];
                let waits: Vec<_> = fences.iter().zip([1, 5, 9]).collect();
                let signal = |index: usize| -> Played {
                    let (fence, value) = waits[index];
                    // From the CPU and from the GPU in turn.
                    if (index + subset).is_multiple_of(2) {
                        return rig.signal(&[(fence, value)]);
                    }
                    signal_on(scene, if fence.is_monitored()? { &kernel } else { &queue }, fence, value)
                };
                let signal_all = || ORDERS[subset % 6].into_iter().filter(|index| is_in(*index)).try_for_each(signal);
                if before {
                    signal_all()?;
                }
                let (any, all) = (rig.wait(&waits, true)?, rig.wait(&waits, false)?);
                if !before {
                    signal_all()?;
                }
                let what = format!("subset {subset:#b}, signaled {}", if before { "before" } else { "after" });
                if subset == 0 {
                    any.still_waits(&rig, &format!("any: {what}"))?;
                } else {
                    any.comes(&rig, &format!("any: {what}"))?;
                }
                if subset == 7 {
                    all.comes(&rig, &format!("all: {what}"))?;
                } else {
                    all.still_waits(&rig, &format!("all: {what}"))?;
                }
                // Which it was is told by the values.
                for (index, (fence, value)) in waits.iter().enumerate() {
                    same("a value", rig.value(fence)?, if is_in(index) { *value } else { 0 })?;
                }
                (0..3).filter(|index| !is_in(*index)).try_for_each(signal)?;
                if subset != 7 {
                    all.comes(&rig, &format!("all in the end: {what}"))?;
                }
                if subset == 0 {
                    any.comes(&rig, &format!("any in the end: {what}"))?;
                }
            }
        }
        // A wait for any that is over waits for none of the others.
        let (first, second) = (rig.fence(0, true)?, rig.fence(0, true)?);
        let any = rig.wait(&[(&first, 1), (&second, 6)], true)?;
        rig.native_same("MonitoredValue while any is waited for", peek.monitored(scene, &second)?, 5)?;
        signal_on(scene, &queue, &first, 1)?;
        any.comes(&rig, "any of two")?;
        peek.becomes(scene, &second, u64::MAX)?;
        let interrupts = native_interrupts(scene).len();
        signal_on(scene, &queue, &second, 6)?;
        rig.native_same("interrupts of the other fence", native_interrupts(scene).len(), interrupts)
    })
}

pub(super) fn nothing(stage: &Stage) -> Played {
    stage.play(Setup::default(), |scene| {
        let rig = Client::open(scene, "client")?;
        let (_event, handle) = rig.raw.event();
        let refused = Err(Denied(STATUS_INVALID_PARAMETER));
        for event in [None, Some(handle)] {
            for any in [false, true] {
                same("a wait for nothing", rig.raw.wait_cpu(rig.plain, &[], any, event), refused)?;
            }
        }
        same("a signal of nothing", rig.raw.signal_cpu(rig.plain, &[]), refused)?;
        let fence = rig.fence(1, true)?;
        let handle = fence.info()?.handle;
        let many = vec![(handle, 1); 33];
        same("a wait for more than 32", rig.raw.wait_cpu(rig.plain, &many, false, None), refused)?;
        same("a wait for 32", rig.raw.wait_cpu(rig.plain, &many[..32], false, None), Ok(()))
    })
}

pub(super) fn event_later(stage: &Stage) -> Played {
    stage.play(Setup::default(), |scene| {
        let rig = Client::open(scene, "client")?;
        for native in [true, false] {
            let queue = rig.queue_for(native)?;
            let fence = rig.fence(0, native)?;
            let wait = rig.wait(&[(&fence, 2)], false)?;
            wait.still_waits(&rig, "before any signal")?;
            signal_on(scene, &queue, &fence, 1)?;
            wait.still_waits(&rig, "at 1")?;
            signal_on(scene, &queue, &fence, 2)?;
            wait.comes(&rig, "the GPU's signal")?;
            let wait = rig.wait(&[(&fence, 3)], false)?;
            rig.signal(&[(&fence, 3)])?;
            // The CPU's signal ends it before the call returns.
            ensure!(wait.is_set(&rig), "the CPU's signal did not set the event");
            signal_on(scene, &queue, &fence, 4)?;
            wait.still_waits(&rig, "a later signal")?;
        }
        Ok(())
    })
}

pub(super) fn event_now(stage: &Stage) -> Played {
    stage.play(Setup::default(), |scene| {
        let rig = Client::open(scene, "client")?;
        for native in [true, false] {
            let fence = rig.fence(8, native)?;
            let updates = scene.calls(UPDATE_MONITORED);
            for value in [8, 7, 1] {
                let wait = rig.wait(&[(&fence, value)], false)?;
                ensure!(wait.is_set(&rig), "a wait for {value} at 8: the event is not set when the call returns");
                wait.still_waits(&rig, "a second time")?;
            }
            rig.native_same("updates of MonitoredValue", scene.calls(UPDATE_MONITORED), updates)?;
        }
        Ok(())
    })
}

pub(super) fn given_up(stage: &Stage) -> Played {
    stage.play(Setup::default(), |scene| {
        let rig = Client::open(scene, "stays")?;
        let (queue, peek) = (rig.queue(0)?, rig.peek()?);
        let fence = rig.device.shared_fence(0)?;
        let share = fence.share()?;
        let last = rig.wait(&[(&fence, 20)], false)?;
        // Another device of this process, and another process, wait for less; then they are gone.
        let device = rig.raw.device()?;
        let (event, handle) = rig.raw.event();
        rig.raw.wait_cpu(device, &[(fence.info()?.handle, 10)], false, Some(handle))?;
        rig.native_same("MonitoredValue with a waiter for 10", peek.monitored(scene, &fence)?, 9)?;
        rig.raw.destroy_device(device)?;
        peek.becomes(scene, &fence, 19)?;
        {
            let other = Client::open(scene, "leaves")?;
            let share = duplicate_number(share, &rig.user.process, &other.user.process)?;
            let opened = other.device.open_fence(share, false)?;
            let _wait = other.wait(&[(&opened, 15)], false)?;
            rig.native_same("MonitoredValue with a waiter for 15", peek.monitored(scene, &fence)?, 14)?;
        }
        peek.becomes(scene, &fence, 19)?;
        let interrupts = native_interrupts(scene).len();
        signal_on(scene, &queue, &fence, 19)?;
        rig.native_same("interrupts for waits that were given up", native_interrupts(scene).len(), interrupts)?;
        let given_up = rig.raw.wait_event(&event, std::time::Duration::ZERO);
        ensure!(!given_up, "the event of a wait that was given up was set");
        // An event whose handle is closed: whoever has the next handle is not woken.
        let closed = rig.wait(&[(&fence, 20)], false)?;
        rig.raw.close(closed.handle);
        let (next, _) = rig.raw.event();
        signal_on(scene, &queue, &fence, 20)?;
        last.comes(&rig, "the last waiter")?;
        ensure!(!rig.raw.wait_event(&next, std::time::Duration::ZERO), "an event that nobody gave was set");
        peek.becomes(scene, &fence, u64::MAX)
    })
}

pub(super) fn batch(stage: &Stage) -> Played {
    stage.play(Setup::default(), |scene| {
        let rig = Client::open(scene, "client")?;
        let fences: Vec<_> = (0..32).map(|_| rig.fence(0, true)).collect::<Result<_>>()?;
        let signals: Vec<_> = fences.iter().zip(1..).map(|(fence, n)| (fence, n * 0x1_0000_0001_u64)).collect();
        let waits: Vec<_> =
            signals.iter().map(|(fence, value)| rig.wait(&[(fence, *value)], false)).collect::<Result<_>>()?;
        let updates = scene.calls(UPDATE_CURRENT);
        rig.signal(&signals)?;
        rig.native_same("calls of the driver", scene.calls(UPDATE_CURRENT), updates + 1)?;
        for ((fence, value), wait) in signals.iter().zip(&waits) {
            same("CurrentValue", rig.value(fence)?, *value)?;
            ensure!(wait.is_set(&rig), "the waiter for {value:#x} was not woken");
        }
        // Monitored fences are the OS's own: it stores the value, and user mode sees it at once.
        let monitored = rig.fence(0, false)?;
        rig.signal(&[(&monitored, 3), (&fences[0], u64::MAX - 1)])?;
        same("a monitored fence", rig.value(&monitored)?, 3)?;
        same("a native fence beside it", rig.value(&fences[0])?, u64::MAX - 1)?;
        rig.native_same("calls of the driver", scene.calls(UPDATE_CURRENT), updates + 2)
    })
}

pub(super) fn zero(stage: &Stage) -> Played {
    stage.play(Setup::default(), |scene| {
        let rig = Client::open(scene, "client")?;
        let (queue, page) = (rig.queue(0)?, rig.page()?);
        for native in [true, false] {
            let fence = rig.fence(0, native)?;
            let updates = scene.calls(UPDATE_MONITORED);
            let call = rig.block(&[(&fence, 0)], false)?;
            same("the wait", returned("the wait", &call)?, Ok(()))?;
            let wait = rig.wait(&[(&fence, 0)], false)?;
            ensure!(wait.is_set(&rig), "the event is not set when the call returns");
            rig.native_same("updates of MonitoredValue", scene.calls(UPDATE_MONITORED), updates)?;
        }
        let fence = rig.fence(0, true)?;
        queue
            .run(|list| {
                list.wait(&fence, 0)?;
                list.store(page.at(0), 1)
            })
            .context("a queue's wait for 0")?;
        page.until(scene, "a queue's wait for 0", 0, 1)
    })
}
