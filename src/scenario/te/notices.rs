//! Notices of a hang that are worked off while the hang is recovered from.
#![expect(unsafe_code, reason = "functions of Dxgkrnl's interface are called")]

use super::super::{Played, Scene, Setup, Stage, same};
use super::hardware::{hears_interrupts, recovered, works};
use super::held::Spinner;
use super::{Hog, client, is_lost, stubborn, victim};
use crate::wrap::{interface, theirs};
use anyhow::{Context, ensure};
use dxgkrnl_model::adapter::{Reason, What};
use dxgkrnl_model::personality::{Gate, Gates};
use wddm_abi::DXGK_ENGINE_STATE;
use wddm_abi::{DXGK_INTERRUPT_TYPE as Type, DXGKARGCB_NOTIFY_INTERRUPT_DATA};

/// What the driver may say of an engine that hangs.
#[derive(Clone, Copy, Debug)]
enum Word {
    /// GPU_ENGINE_TIMEOUT.
    Timeout,
    /// GPU_ENGINE_STATE_CHANGE, to HUNG.
    Hung,
}

impl Word {
    /// At the device's level: says it of a node.
    fn say(self, node: u32) {
        let mut data = DXGKARGCB_NOTIFY_INTERRUPT_DATA::zeroed();
        match self {
            Self::Timeout => {
                data.InterruptType = Type::DXGK_INTERRUPT_GPU_ENGINE_TIMEOUT;
                data.GpuEngineTimeout_mut().NodeOrdinal = node;
            }
            Self::Hung => {
                data.InterruptType = Type::DXGK_INTERRUPT_GPU_ENGINE_STATE_CHANGE;
                let part = data.EngineStateChange_mut();
                (part.NodeOrdinal, part.NewState) = (node, DXGK_ENGINE_STATE::DXGK_ENGINE_STATE_HUNG);
            }
        }
        let device = interface().DeviceHandle;
        theirs!(DxgkCbNotifyInterrupt(device, &raw mut data));
        theirs!(DxgkCbQueueDpc(device));
    }
}

/// A gate of the model's.
type At = fn(Gate) -> Gates;

/// Where the driver's word comes: before the engine's interrupts are ignored, and while its reset is prepared.
const BEFORE: (&str, At) = ("before the snapshot", |gate| Gates { snapshot: Some(gate), ..Gates::default() });
const DURING: (&str, At) = ("while the reset is prepared", |gate| Gates { reset: Some(gate), ..Gates::default() });

/// The driver says that an engine hangs while that is recovered: the engine is reset once.
pub(super) fn once(stage: &Stage) -> Played {
    for (what, at) in [BEFORE, DURING] {
        let node = victim(stage);
        let play = |scene: &Scene, gate: &Gate| {
            let raw = client(scene, "hangs")?;
            let hog = Hog::new(scene, &raw, &[node])?;
            hog.spin(node, 0)?;
            says(scene, gate, Word::Timeout, node)?;
            is_lost(scene, &hog)?;
            is_reset_once(scene, What::PacketEngine { node }, Reason::Preemption)
        };
        at_gate(stage, at, play).with_context(|| format!("a packet engine, {what}"))?;
    }
    if stage.rung() == 0 {
        return Ok(());
    }
    for word in [Word::Timeout, Word::Hung] {
        let play = |scene: &Scene, gate: &Gate| {
            let raw = client(scene, "hangs")?;
            let hog = Spinner::new(scene, &raw)?;
            says(scene, gate, word, 0)?;
            scene.until("the loss of the device that hangs", || Ok(!hog.room.is_active()?))?;
            is_reset_once(scene, What::HwEngine { node: 0 }, Reason::Suspension)
        };
        at_gate(stage, DURING.1, play).with_context(|| format!("a hardware-scheduled engine, {word:?}"))?;
    }
    Ok(())
}

fn at_gate(stage: &Stage, at: At, play: impl Fn(&Scene, &Gate) -> Played) -> Played {
    let gate = Gate::default();
    let setup: Setup = stubborn().resets(1).with_driver(hears_interrupts);
    stage.play(setup.windows(|windows| windows.gates = at(gate.clone())), |scene| {
        let played = play(scene, &gate);
        gate.let_through();
        played
    })
}

/// The driver says it once the recovery has come to the gate, which then opens.
fn says(scene: &Scene, gate: &Gate, word: Word, node: u32) -> Played {
    scene.until("the recovery", || Ok(gate.came() == 1))?;
    let said = scene.world.os.hold_interrupts(scene.adapter(), || word.say(node));
    gate.let_through();
    said.context("no interrupt is connected")
}

fn is_reset_once(scene: &Scene, what: What, reason: Reason) -> Played {
    recovered(scene, 1)?;
    // The thread that recovers is the one that hands work in: by the end of new work it has done what it had to do.
    works(scene)?;
    let all = scene.adapter().recoveries();
    let first = all.first().context("a recovery")?;
    same("the first", (first.what, first.reason), (what, reason))?;
    ensure!(all.len() == 1, "then: {}", all[1]);
    Ok(())
}
