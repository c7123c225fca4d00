//! Cases for mutations that no conformance case provokes.

use crate::suspensions;
use anyhow::{Context, bail};
use fencepost::client::Device;
use fencepost::fuzz::Plan;
use fencepost::scenario::{Played, Scene, Setup, Stage, same};
use fencepost::world::User;
use std::time::Duration;
use umd_core::ffi::types::FP_KIND_SYSTEM;

/// Name and function.
type Case = (&'static str, fn(&Stage) -> Played);

/// Cases, by name.
pub const CASES: &[Case] = &[
    ("two doorbells of one node", two_doorbells),
    ("a hang and its recovery", hang),
    ("a suspension behind an engine reset", suspensions::engine),
    ("a suspension behind an adapter reset", suspensions::adapter),
    ("the fuzzer thunks", |stage| fuzzed(stage, "thunks", 1)),
    ("the fuzzer rings", |stage| fuzzed(stage, "rings", 1)),
    // Seed 1 has the doorbell that all share, which has one page anyhow.
    ("the fuzzer doorbells", |stage| fuzzed(stage, "doorbells", 2)),
    ("the fuzzer interrupts", |stage| fuzzed(stage, "interrupts", 1)),
];

/// The fuzzer `name` finds nothing, from seed `first` on.
fn fuzzed(stage: &Stage, name: &str, first: u64) -> Played {
    let fuzzer = fencepost::fuzz::find(name).context("no such fuzzer")?;
    let form = stage.form().clone();
    let plan = Plan { form, first, alone: false, length: Duration::from_secs(4), mutation: 0 };
    match fencepost::fuzz::run(fuzzer, &plan)?.finding {
        Some((seed, finding)) => bail!("seed {seed}: {finding}"),
        None => Ok(()),
    }
}

/// Long enough for a reset.
const PATIENCE: Duration = Duration::from_secs(8);
/// Bytes of a ring.
const RING: u64 = 64 << 10;

struct Client {
    device: Device,
    _user: User,
}

impl Client {
    fn open(scene: &Scene) -> anyhow::Result<Self> {
        let user = scene.process("client")?;
        Ok(Self { device: user.open()?.device()?, _user: user })
    }
}

/// Two connected doorbells of one node, rung in turn: each ring is heard as such. What is not heard is found when the
/// scheduler suspends the context because of its silence.
fn two_doorbells(stage: &Stage) -> Played {
    // An engine that lets a doorbell go looks at what its queue has published.
    stage.play(Setup::default().setting("IdleMilliseconds", 0), |scene| {
        let client = Client::open(scene)?;
        let queues = [client.device.queue(0, RING, 0, 0)?, client.device.queue(0, RING, 0, 0)?];
        for _ in 0..4 {
            for queue in &queues {
                let progress = queue.run(|list| list.nop(8))?;
                queue.wait(progress, Some(PATIENCE))?;
            }
        }
        same("suspensions", scene.calls("DxgkDdiSuspendContext"), 0)
    })
}

/// A command buffer that jumps to itself hangs its engine. The engine is reset, the process that hung it is told, and
/// another one works on.
fn hang(stage: &Stage) -> Played {
    stage.play(Setup::default().quick_tdr().resets(1), |scene| {
        let (guilty, other) = (Client::open(scene)?, Client::open(scene)?);
        let (hangs, works) = (guilty.device.queue(0, RING, 0, 0)?, other.device.queue(0, RING, 0, 0)?);
        let buffer = guilty.device.allocate(FP_KIND_SYSTEM, 4096, 0)?;
        let mut jump = hangs.list()?;
        jump.indirect(buffer.gpu_va()?, 8)?;
        let length = jump.bytes()?.len() as u64;
        jump.reset()?;
        jump.indirect(buffer.gpu_va()?, length)?;
        buffer.write(0, &jump.bytes()?)?;
        hangs.run(|list| list.indirect(buffer.gpu_va()?, length))?;
        let fence = other.device.fence(0, 0)?;
        works.run(|list| list.signal(&fence, 1))?;
        fence.wait(1, Some(PATIENCE))?;
        same("whether the hung queue is done", hangs.wait(0, Some(PATIENCE)).is_ok(), false)
    })
}
