//! Values, order, many rounds.

use crate::client::{List, Refused};
use crate::scenario::client::{Client, native_interrupts, until_idle};
use crate::scenario::stage::PATIENCE;
use crate::scenario::{Played, Setup, Stage, begin_wait, same};
use anyhow::ensure;
use wddm_abi::D3DKMT_DEVICEEXECUTION_STATE;

pub(super) fn wide_values(stage: &Stage) -> Played {
    stage.play(Setup::default(), |scene| {
        let rig = Client::open(scene, "client")?;
        let (queue, other, peek, page) = (rig.queue(0)?, rig.queue(1)?, rig.peek()?, rig.page()?);
        let fence = rig.fence(0, true)?;
        let values = [
            u64::from(u32::MAX),
            1 << 32,
            (1 << 32) + 1,
            (1 << 63) - 1,
            1 << 63,
            (1 << 63) + 1,
            0xFFFF_FFFF_0000_0000,
            u64::MAX - 1,
        ];
        for (value, mark) in values.into_iter().zip(1..) {
            let wait = rig.wait(&[(&fence, value)], false)?;
            rig.native_same("MonitoredValue", peek.monitored(scene, &fence)?, value - 1)?;
            begin_wait(scene, &other, &fence, value, &page, mark)?;
            queue.run(|list| list.signal(&fence, value - 1))?;
            until_idle(scene, &queue)?;
            same("CurrentValue", rig.value(&fence)?, value - 1)?;
            wait.still_waits(&rig, "one below")?;
            same("the mark behind a queue's wait", page.word(1)?, mark - 1)?;
            queue.run(|list| list.signal(&fence, value))?;
            wait.comes(&rig, &format!("{value:#x}"))?;
            page.until(scene, "the mark behind a queue's wait", 1, mark)?;
            same("CurrentValue", rig.value(&fence)?, value)?;
        }
        // What has the highest bit set is more than what has not.
        let wait = rig.wait(&[(&fence, 5)], false)?;
        ensure!(wait.is_set(&rig), "5 at {:#x}", u64::MAX - 1);
        begin_wait(scene, &other, &fence, 1 << 62, &page, 100)?;
        page.until(scene, "a queue's wait for less", 1, 100)?;
        // The same through the CPU's signal, for both kinds.
        for native in [true, false] {
            let fence = rig.fence((1 << 63) - 1, native)?;
            let wait = rig.wait(&[(&fence, 1 << 63)], false)?;
            wait.still_waits(&rig, "2^63 at 2^63 - 1")?;
            rig.signal(&[(&fence, 1 << 63)])?;
            ensure!(wait.is_set(&rig), "2^63");
        }
        Ok(())
    })
}

pub(super) fn largest_value(stage: &Stage) -> Played {
    stage.play(Setup::default(), |scene| {
        let rig = Client::open(scene, "client")?;
        let (queue, peek) = (rig.queue(0)?, rig.peek()?);
        let fence = rig.fence(0, true)?;
        let wait = rig.wait(&[(&fence, u64::MAX)], false)?;
        rig.native_same("MonitoredValue", peek.monitored(scene, &fence)?, u64::MAX - 1)?;
        queue.run(|list| list.signal(&fence, u64::MAX - 1))?;
        until_idle(scene, &queue)?;
        wait.still_waits(&rig, "one below")?;
        queue.run(|list| list.signal(&fence, u64::MAX))?;
        wait.comes(&rig, "the largest value")?;
        same("CurrentValue", fence.value()?, u64::MAX)?;
        // Not a lost device: whoever takes the value for one asks, and is told that all is well.
        fence.wait(7, PATIENCE)?;
        let active = D3DKMT_DEVICEEXECUTION_STATE::D3DKMT_DEVICEEXECUTION_ACTIVE.0;
        // CAST: an enumerator's number.
        same("the device", rig.device.state()?.execution, active as u32)?;
        queue.run(|list| list.signal(&fence, 3))?;
        queue.wait(0, PATIENCE)?;
        same("CurrentValue", fence.value()?, 3)
    })
}

/// Rounds that the CPU takes part in.
const ROUNDS: u64 = 300;

pub(super) fn memory_first(stage: &Stage) -> Played {
    stage.play(Setup::default(), |scene| {
        let rig = Client::open(scene, "client")?;
        let (queue, page) = (rig.queue(0)?, rig.page()?);
        let (go, done) = (rig.fence(0, true)?, rig.fence(0, true)?);
        for round in 1..=ROUNDS {
            let wait = rig.wait(&[(&done, round)], false)?;
            queue.run(|list| {
                list.wait(&go, round)?;
                list.store(page.at(round % 512), round)?;
                list.copy(page.at(round % 512), page.at((round + 1) % 512), 8)?;
                list.signal(&done, round)
            })?;
            ensure!(rig.value(&done)? == round - 1, "round {round}: signaled before what it waits for");
            rig.signal(&[(&go, round)])?;
            if round.is_multiple_of(2) {
                wait.comes(&rig, "a round")?;
                same("the value when the waiter is woken", rig.value(&done)?, round)?;
            } else {
                scene.until("a round", || Ok(rig.value(&done)? >= round))?;
            }
            same("the store before the signal", page.word(round % 512)?, round)?;
            same("the copy before the signal", page.word((round + 1) % 512)?, round)?;
        }
        Ok(())
    })
}

/// Rounds of two queues.
const TURNS: u64 = 10_000;
/// Rounds in one command list.
const AT_ONCE: u64 = 500;

/// Turns of one side: its signals follow the other's values.
fn turns(
    list: &mut List,
    first: u64,
    mut turn: impl FnMut(&mut List, u64) -> Result<(), Refused>,
) -> Result<(), Refused> {
    (first..first + AT_ONCE).try_for_each(|round| turn(list, round))
}

pub(super) fn ping_pong(stage: &Stage) -> Played {
    stage.play(Setup::default(), |scene| {
        let rig = Client::open(scene, "client")?;
        let ring = 4 << 20;
        let (one, two) = (rig.device.queue(0, ring, 0, 0)?, rig.device.queue(1, ring, 0, 0)?);
        let (ping, pong) = (rig.fence(0, true)?, rig.fence(0, true)?);
        for first in (0..TURNS).step_by(AT_ONCE as usize) {
            one.run(|list| {
                turns(list, first, |list, round| {
                    list.wait(&pong, round)?;
                    list.signal(&ping, round + 1)
                })
            })?;
            two.run(|list| {
                turns(list, first, |list, round| {
                    list.wait(&ping, round + 1)?;
                    list.signal(&pong, round + 1)
                })
            })?;
        }
        until_idle(scene, &one)?;
        until_idle(scene, &two)?;
        same("the last values", (rig.value(&ping)?, rig.value(&pong)?), (TURNS, TURNS))?;
        rig.native_same("interrupts", native_interrupts(scene).len(), 0)
    })
}
