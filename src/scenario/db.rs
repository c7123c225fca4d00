//! DB: hardware queues and doorbells. Source of all: *User-mode work submission*.

use super::stage::PATIENCE;
use super::{Played, Scenario, Setup, Stage, same};
use umd_core::ffi::types::FP_KIND_SYSTEM;

const ARTICLE: &str = "User-mode work submission, Submit work";

pub(super) const CASES: &[Scenario] =
    &[Scenario { id: "DB-06", title: "five-step submission runs once", source: ARTICLE, play: five_steps }];

fn five_steps(stage: &Stage) -> Played {
    stage.play(Setup::default(), |scene| {
        let user = scene.process("client")?;
        let adapter = user.open()?;
        let device = adapter.device()?;
        let queue = device.queue(0, 64 << 10, 0, 0)?;
        let memory = device.allocate(FP_KIND_SYSTEM, 4096, 0)?;
        let at = memory.gpu_va()?;
        let progress = queue.run(|list| list.store(at, 0xC0FFEE))?;
        queue.wait(progress, PATIENCE)?;
        same("memory", memory.read_u64(0)?, 0xC0FFEE)?;
        same("progress", queue.progress()?, (progress, progress))?;
        same("rings", queue.counters()?.rings, 1)?;
        same("kernel submissions", scene.world.os.report().counts.kernel_submissions, 0)
    })
}
