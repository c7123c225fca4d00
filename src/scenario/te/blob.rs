//! Every queue and fence in the debug blob, in words.

use super::super::client::Client;
use super::super::stage::PATIENCE;
use super::super::{Played, Scene, Setup, Stage, same};
use super::hog::Loop;
use crate::decode::decode;
use anyhow::{Context, Result, ensure};
use dxgkrnl_model::adapter::DebugQuestion;
use gpu_wire::debug_blob::FIRST;
use umd_core::ffi::types::FP_QUEUE_KERNEL_MODE;
use wddm_abi::DXGK_TDR_TYPE;
use wddm_abi::ntstatus::STATUS_SUCCESS;

/// What the driver says now: the paragraphs that begin with `word`.
fn told(scene: &Scene, word: &str) -> Result<Vec<String>> {
    scene.world.os.collect_debug_info(scene.adapter());
    let told = decode(&scene.adapter().debug_info())?;
    same("bytes that are missing", told.missing, 0)?;
    let begins = |part: &&str| part.split_whitespace().next() == Some(word);
    Ok(told.text.split("\n\n").filter(begins).map(str::to_owned).collect())
}

/// The one of `parts` that has all of `lines`.
fn of(parts: &[String], lines: &[&str]) -> Result<String> {
    let found: Vec<_> = parts.iter().filter(|part| lines.iter().all(|line| part.contains(line))).collect();
    ensure!(found.len() == 1, "{} paragraphs with {lines:?} in\n{}", found.len(), parts.join("\n\n"));
    Ok(found[0].clone())
}

/// Room for all that there is to tell.
const LARGE: usize = 1 << 20;
/// Room that the OS gives.
const SIZE: usize = 0x4000;

/// More queues are in the middle of their work than come before the counters. With the room that the OS gives, those
/// are told of that come first; with enough room, each of them is, once.
fn many(scene: &Scene) -> Played {
    const QUEUES: usize = FIRST + 8;
    let rig = Client::open(scene, "many")?;
    let fence = rig.fence(0, true)?;
    let queues = (0..QUEUES).map(|at| rig.queue(u32::from(at % 2 == 1))).collect::<Result<Vec<_>>>()?;
    for (queue, value) in queues.iter().zip(0x1000..) {
        queue.run(|list| list.wait(&fence, value))?;
    }
    let told = |size| {
        let question =
            DebugQuestion { reason: 0x117, size, payload: (DXGK_TDR_TYPE::DXGK_TDR_TYPE_FORCED, None), older: false };
        let (status, bytes) = scene.world.os.ask_for_debug_info(scene.adapter(), &mut question.clone());
        same("the status", status, STATUS_SUCCESS)?;
        Ok::<_, anyhow::Error>(decode(&bytes)?.text)
    };
    let waiting = |text: &str| text.matches("  waits for fence").count();
    scene.until("the queues' waits", || Ok(waiting(&told(LARGE)?) == QUEUES))?;
    let text = told(LARGE)?;
    for value in 0x1000..0x1000 + QUEUES {
        same("a queue that is told of", text.matches(&format!(" to be {value:#x}")).count(), 1)?;
    }
    let first =
        |text: &str| Ok::<_, anyhow::Error>(waiting(text.split("counters of node").next().context("counters")?));
    same("queues before the counters", (first(&text)?, first(&told(SIZE)?)?), (FIRST, FIRST))?;
    rig.signal(&[(&fence, 0x1000 + QUEUES as u64)])?;
    queues.iter().try_for_each(|queue| queue.wait(0, PATIENCE))?;
    Ok(())
}

/// A queue that waits for a fence, one whose work is done, one that has had none, and one of the kernel's that is in
/// the middle of its work: each is told of, with its ring and with the fence that it waits for. What is destroyed is
/// told of no more.
pub(super) fn objects(stage: &Stage) -> Played {
    stage.play(Setup::default(), many).context("more queues than come first")?;
    stage.play(Setup::default(), |scene| {
        let before = (told(scene, "queue")?.len(), told(scene, "fence")?.len());
        let rig = Client::open(scene, "client")?;
        let (waits, done, idle) = (rig.queue(0)?, rig.queue(1)?, rig.queue(1)?);
        let kernel = rig.device.queue(1, 64 << 10, FP_QUEUE_KERNEL_MODE, 0)?;
        let (page, fence) = (rig.page()?, rig.fence(0, true)?);
        waits.run(|list| list.wait(&fence, 0x51))?;
        done.run(|list| list.store(page.at(0), 1))?;
        page.until(scene, "work", 0, 1)?;
        let run = Loop::new(&rig)?;
        kernel.run(|list| list.indirect(run.address, run.length))?;
        run.begins(scene)?;
        rig.signal(&[(&fence, 0x50)])?;
        let is_told = || Ok(told(scene, "queue")?.iter().any(|part| part.contains("waits for fence")));
        scene.until("the queue that waits", is_told)?;
        let (queues, fences) = (told(scene, "queue")?, told(scene, "fence")?);
        same("queues", queues.len(), before.0 + 4)?;
        let user = "from user mode";
        let waiting = of(&queues, &["node 0", user, "(waits for a fence)", "  waits for fence", " to be 0x51"])?;
        let waiting_for = waiting.split("  waits for fence").nth(1).context("a fence")?;
        let handle = waiting_for.split_whitespace().next().context("a handle")?;
        let info = fence.info()?;
        let name = format!("fence                   {handle}, number {}, opened 1 times", info.index);
        let told_of = of(&fences, &[&name, "processor    0x50"])?;
        let (at, ring) = (format!("{:#x}", info.gpu_va), " 65536 bytes, consumed to 0x");
        ensure!(told_of.contains(&at), "no CurrentValue at {at} in\n{told_of}");
        for (what, last) in [("done", "last turn             done"), ("idle", "last turn             none")] {
            of(&queues, &["node 1", user, last, ring, "a native fence"]).context(what)?;
        }
        ensure!(waiting.contains(ring), "no ring in\n{waiting}");
        let at_ring = waiting.lines().find_map(|line| line.strip_prefix("  ring at")).context("a ring")?;
        let at_ring = at_ring.split(',').next().context("an address")?.to_owned();
        let kernels = of(&queues, &["node 1", "from the kernel"])?;
        ensure!(!kernels.contains("ring at"), "a ring in\n{kernels}");
        rig.signal(&[(&fence, 0x51)])?;
        run.end()?;
        kernel.wait(0, PATIENCE)?;
        waits.wait(0, PATIENCE)?;
        let again = Loop::new(&rig)?;
        waits.run(|list| list.indirect(again.address, again.length))?;
        again.begins(scene)?;
        let runs = of(&told(scene, "queue")?, &[&at_ring, "last turn             it runs"])?;
        ensure!(!runs.contains("waits for"), "what the queue has waited for is over:\n{runs}");
        again.end()?;
        waits.wait(0, PATIENCE)?;
        let is_done = || Ok(!told(scene, "queue")?.iter().any(|part| part.contains("waits for")));
        scene.until("the end of the wait", is_done)?;
        drop((waits, done, idle, kernel, run, again, page, fence, rig));
        same("queues and fences behind their end", (told(scene, "queue")?.len(), told(scene, "fence")?.len()), before)
    })
}
