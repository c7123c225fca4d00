//! Recoveries of one adapter that are wanted at once.

use super::super::db::{KernelQueue, Room};
use super::super::{Played, Stage, same};
use super::hardware::{recovered, works};
use super::{Hog, client, stubborn, victim};
use anyhow::{anyhow, ensure};
use dxgkrnl_model::adapter::{PacketEvent, Reason, What};
use dxgkrnl_model::personality::Gate;
use dxgkrnl_model::process::End;
use std::time::Duration;

/// Two TdrDelays and a half of [`stubborn`].
const LONG: Duration = Duration::from_millis(500);

/// A packet engine is about to be reset when a hardware-scheduled one does not answer a thread that ends a process
/// either: its recovery begins when the first is over.
pub(super) fn one_by_one(stage: &Stage) -> Played {
    let (node, gate) = (victim(stage), Gate::default());
    let setup = stubborn().resets(2).windows(|windows| windows.gates.reset = Some(gate.clone()));
    stage.play(setup, |scene| {
        let (hangs, ended) = (client(scene, "hangs")?, client(scene, "ends")?);
        let (hog, room) = (Hog::new(scene, &hangs, &[node])?, Room::new(&ended)?);
        let queue = KernelQueue::new(scene, &room, room.context(0)?)?;
        hog.spin(node, 0)?;
        let is_asked = |event: &PacketEvent| matches!(event, PacketEvent::Preempting { .. });
        scene.until("a preemption", || Ok(scene.adapter().packet_journal(node).iter().any(is_asked)))?;
        // So late that the thread that recovers the packet engine does not find out: it waits at the gate by then.
        queue.spin(&room, 0, None, 1)?;
        queue.runs(scene, &ended)?;
        scene.until("the first recovery", || Ok(gate.came() == 1))?;
        std::thread::scope(|scope| -> Played {
            // Its context is taken off the run list by the thread that ends the process, which waits for that.
            let ends = scope.spawn(|| ended.process.finish(End::Terminated));
            // Longer than the engine may take to answer.
            std::thread::park_timeout(LONG);
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
