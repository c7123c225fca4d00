//! Recoveries of one adapter that are wanted at once.

use super::super::db::{KernelQueue, Room};
use super::super::{Played, Stage, same};
use super::hardware::{recovered, works};
use super::in_time::in_time;
use super::{Hog, client, stubborn, victim};
use anyhow::{anyhow, bail, ensure};
use dxgkrnl_model::adapter::{PacketEvent, Reason, What};
use dxgkrnl_model::personality::Gate;
use dxgkrnl_model::process::End;
use std::cell::RefCell;

/// A packet engine is about to be reset when a hardware-scheduled one does not answer a thread that ends a process
/// either: its recovery begins when the first is over.
pub(super) fn one_by_one(stage: &Stage) -> Played {
    let node = victim(stage);
    let of_this_play = RefCell::new(Gate::default());
    let setup = || {
        let gate = Gate::default();
        of_this_play.replace(gate.clone());
        stubborn().resets(2).windows(|windows| windows.gates.reset = Some(gate.clone()))
    };
    in_time(stage, setup, |scene, watch| {
        let (hangs, ended) = (client(scene, "hangs")?, client(scene, "ends")?);
        let (hog, room) = (Hog::new(scene, &hangs, &[node])?, Room::new(&ended)?);
        let gate = of_this_play.borrow().clone();
        let queue = KernelQueue::new(scene, &room, room.context(0)?)?;
        hog.spin(node, 0)?;
        let is_asked = |event: &PacketEvent| matches!(event, PacketEvent::Preempting { .. });
        scene.until("a preemption", || Ok(scene.adapter().packet_journal(node).iter().any(is_asked)))?;
        // So late that the thread that recovers the packet engine does not find out: it waits at the gate by then. And
        // so soon that it hands the buffer in before.
        watch.begin();
        queue.spin(&room, 0, None, 1)?;
        let runs = queue.runs_at()?;
        scene.until("a buffer that does not end, or the first recovery", || {
            Ok(ended.load(runs)? == 1 || gate.came() == 1)
        })?;
        watch.end();
        if ended.load(runs)? != 1 {
            // The thread that hands in buffers waits at the gate.
            watch.late.set(true);
            gate.open(true);
            bail!("the first recovery came before the buffer ran");
        }
        scene.until("the first recovery", || Ok(gate.came() == 1))?;
        std::thread::scope(|scope| -> Played {
            // Its context is taken off the run list by the thread that ends the process, which waits for that.
            let ends = scope.spawn(|| ended.process.finish(End::Terminated));
            // Two TdrDelays and a half: longer than the engine may take to answer.
            std::thread::park_timeout(watch.delay * 5 / 2);
            let (begun, came) = (scene.adapter().recoveries(), gate.came());
            // Both recoveries come to the gate.
            gate.let_through();
            gate.let_through();
            ends.join().map_err(|_| anyhow!("a panic"))?;
            same("recoveries at once", (begun.len(), came), (1, 1))
        })?;
        let all = recovered(scene, 2)?;
        same("the first", (all[0].what, all[0].reason), (What::PacketEngine { node }, Reason::Preemption))?;
        same("the second", (all[1].what, all[1].reason), (What::HwEngine { node: 0 }, Reason::Suspension))?;
        same("calls", scene.journal(&["DxgkDdiResetEngine", "DxgkDdiResetHwEngine"]).len(), 2)?;
        ensure!(!hog.is_active()?, "the device that hangs the packet engine goes on");
        works(scene)
    })
}
