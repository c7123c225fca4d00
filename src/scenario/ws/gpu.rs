//! Between queues, and between queues and the CPU.

use crate::scenario::client::{Client, native_interrupts, until_idle};
use crate::scenario::{Played, Setup, Stage, begin_wait, portable, same};

const UPDATE_CURRENT: &str = "DxgkDdiUpdateCurrentValuesFromCpu";

pub(super) fn cpu_signals(stage: &Stage) -> Played {
    portable::case(stage, "WS-03", |_| Ok(()))?;
    stage.play(Setup::default(), |scene| {
        let rig = Client::open(scene, "client")?;
        let (queue, other, page) = (rig.queue(0)?, rig.queue(0)?, rig.page()?);
        let fence = rig.fence(0, true)?;
        for round in 1..=20_u64 {
            let value = round * 10;
            begin_wait(scene, &queue, &fence, value, &page, round)?;
            // A queue of the same node runs meanwhile: waiting takes no engine.
            other.run(|list| list.store(page.at(2), round))?;
            page.until(scene, "another queue of the node", 2, round)?;
            same("the mark behind the wait", page.word(1)?, round - 1)?;
            let updates = scene.calls(UPDATE_CURRENT);
            rig.signal(&[(&fence, value - 1)])?;
            same("CurrentValue", rig.value(&fence)?, value - 1)?;
            until_idle(scene, &other)?;
            same("the mark behind the wait", page.word(1)?, round - 1)?;
            rig.signal(&[(&fence, value)])?;
            same("CurrentValue", rig.value(&fence)?, value)?;
            rig.native_same("calls of the driver", scene.calls(UPDATE_CURRENT), updates + 2)?;
            page.until(scene, "the mark behind the wait", 1, round)?;
        }
        rig.native_same("interrupts", native_interrupts(scene).len(), 0)
    })
}

pub(super) fn queue_signals(stage: &Stage) -> Played {
    stage.play(Setup::default(), |scene| {
        let rig = Client::open(scene, "client")?;
        let page = rig.page()?;
        for (from, to) in [(0, 1), (1, 0), (0, 0)] {
            let (waits, signals) = (rig.queue(to)?, rig.queue(from)?);
            let fence = rig.fence(0, true)?;
            for round in 1..=20_u64 {
                let mark = u64::from(from * 200 + to * 100) + round;
                begin_wait(scene, &waits, &fence, round, &page, mark)?;
                same("the mark behind the wait", page.word(1)? == mark, false)?;
                signals.run(|list| list.signal(&fence, round))?;
                page.until(scene, "the mark behind the wait", 1, mark)?;
                same("CurrentValue", rig.value(&fence)?, round)?;
            }
            // The user-mode driver waits for a busy queue before it destroys it, and that wait is told by an interrupt.
            until_idle(scene, &waits)?;
            until_idle(scene, &signals)?;
        }
        rig.native_same("interrupts", native_interrupts(scene).len(), 0)
    })
}
