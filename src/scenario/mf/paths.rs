//! How the OS follows monitored fences: by interrupts, by the ends of buffers, by signals of its own.

use crate::client::{Fence, Queue};
use crate::scenario::client::{Client, Page, RING, Waiting, until_idle};
use crate::scenario::stage::PATIENCE;
use crate::scenario::{Played, Scene, Setup, Stage, same};
use anyhow::{Context, Result, ensure};
use dxgkrnl_model::report::Counts;
use gpu_wire::packet::Encoded;
use umd_core::ffi::types::FP_QUEUE_KERNEL_MODE;
use wddm_abi::DXGK_INTERRUPT_TYPE;

/// A command buffer that signals a fence and then goes round in circles until it is let go.
struct Loop {
    page: Page,
    /// Offset of the packet that jumps to itself.
    at: u64,
}

impl Loop {
    /// Submits it.
    fn begin(rig: &Client, queue: &Queue, fence: &Fence, value: u64) -> Result<Self> {
        let page = rig.page()?;
        let mut list = queue.list()?;
        list.signal(fence, value)?;
        let at = list.bytes()?.len() as u64;
        list.indirect(page.gpu + at, 24)?;
        page.write(0, &list.bytes()?)?;
        let length = at + 24;
        queue.run(|list| list.indirect(page.gpu, length))?;
        Ok(Self { page, at })
    }

    /// Turns the jump into a NOP of the same length.
    fn end(&self) -> Played {
        let nop = Encoded::nop(24);
        self.page.write(self.at, &nop.as_bytes()[..8])
    }
}

/// Interrupts for monitored fences so far, of all nodes.
fn interrupts(scene: &Scene) -> usize {
    let monitored = DXGK_INTERRUPT_TYPE::DXGK_INTERRUPT_MONITORED_FENCE_SIGNALED;
    scene.adapter().notification_journal().iter().filter(|notification| notification.kind == monitored).count()
}

fn counts(scene: &Scene) -> Counts {
    scene.world.os.counts()
}

/// A queue by way of the kernel on any rung, and a fence, a CPU wait and a queue that wait for it.
struct Watched {
    rig: Client,
    queue: Queue,
    fence: Fence,
    page: Page,
}

impl Watched {
    fn new(scene: &Scene) -> Result<Self> {
        let rig = Client::open(scene, "client")?;
        let queue = rig.device.queue(0, RING, FP_QUEUE_KERNEL_MODE, 0)?;
        let (fence, page) = (rig.fence(0, false)?, rig.page()?);
        Ok(Self { rig, queue, fence, page })
    }

    /// A CPU waits for `value`, and so does another queue of the same node or of another one.
    fn wait(&self, value: u64) -> Result<(Waiting, Queue)> {
        let waiting = self.rig.wait(&[(&self.fence, value)], false)?;
        let other = self.rig.device.queue(1, RING, FP_QUEUE_KERNEL_MODE, 0)?;
        other.run(|list| {
            list.wait(&self.fence, value)?;
            list.store(self.page.at(1), value)
        })?;
        Ok((waiting, other))
    }
}

/// With the basic implementation: the value is there, and nobody is woken before the buffer is done.
fn basic_on(scene: &Scene, rung: u32) -> Played {
    let watched = Watched::new(scene)?;
    let (rig, fence, page) = (&watched.rig, &watched.fence, &watched.page);
    let (waiting, other) = watched.wait(5)?;
    let before = counts(scene);
    let round = Loop::begin(rig, &watched.queue, fence, 5)?;
    scene.until("the value", || Ok(rig.value(fence)? == 5))?;
    waiting.still_waits(rig, "a CPU wait before the buffer is done")?;
    same("the queue that waits", page.word(1)?, 0)?;
    same("interrupts before the buffer is done", counts(scene).monitored_scans, before.monitored_scans)?;
    round.end()?;
    waiting.comes(rig, "the CPU wait")?;
    page.until(scene, "the queue that waits", 1, 5)?;
    other.wait(0, PATIENCE)?;
    watched.queue.wait(0, PATIENCE)?;
    let after = counts(scene);
    if rung == 1 {
        // The queue's progress fence is a monitored fence, whose interrupt is how the end of the buffer is known.
        ensure!(interrupts(scene) != 0, "no progress fence interrupted");
    } else {
        same("interrupts for monitored fences", interrupts(scene), 0)?;
        ensure!(after.completion_releases > before.completion_releases, "no wait ended with a buffer");
    }
    ensure!(after.completion_scans > before.completion_scans, "no fence was looked at when a buffer was done");
    // Many buffers in a row: no wait is forgotten.
    for value in 6..60 {
        let waiting = rig.wait(&[(fence, value)], false)?;
        watched.queue.run(|list| list.signal(fence, value))?;
        waiting.comes(rig, "a wait for a later value")?;
    }
    Ok(())
}

/// With the advanced one: the interrupt wakes while the buffer runs.
fn advanced_on(scene: &Scene) -> Played {
    let watched = Watched::new(scene)?;
    let (rig, fence, page) = (&watched.rig, &watched.fence, &watched.page);
    let (waiting, other) = watched.wait(5)?;
    let before = counts(scene);
    let round = Loop::begin(rig, &watched.queue, fence, 5)?;
    waiting.comes(rig, "the CPU wait while the buffer runs")?;
    page.until(scene, "the queue that waits, while the buffer runs", 1, 5)?;
    ensure!(interrupts(scene) != 0, "nothing interrupted");
    ensure!(counts(scene).monitored_scans > before.monitored_scans, "no fence was looked at");
    ensure!(!watched.queue.progress().map(|(done, last)| done >= last)?, "the buffer is done");
    round.end()?;
    other.wait(0, PATIENCE)?;
    Ok(watched.queue.wait(0, PATIENCE)?)
}

pub(super) fn basic(stage: &Stage) -> Played {
    for rung in 0..4 {
        let setup = Setup::default().setting("MaxRung", rung).setting("BasicMonitoredFences", 1);
        stage.play(setup, |scene| basic_on(scene, rung)).with_context(|| format!("rung {rung}"))?;
    }
    Ok(())
}

pub(super) fn advanced(stage: &Stage) -> Played {
    for rung in 0..4 {
        let setup = Setup::default().setting("MaxRung", rung);
        stage.play(setup, advanced_on).with_context(|| format!("rung {rung}"))?;
    }
    Ok(())
}

pub(super) fn paging(stage: &Stage) -> Played {
    for rung in [0, 3] {
        let setup = Setup::default().setting("MaxRung", rung).setting("BasicMonitoredFences", 1);
        let setup = setup.windows(|personality| personality.paging_engine_signals = true);
        stage.play(setup, |scene| {
            let rig = Client::open(scene, "client")?;
            let before = counts(scene);
            // Each allocation is made resident and mapped: the paging engine signals, and its buffers end.
            let pages = (0..8).map(|_| rig.page()).collect::<Result<Vec<_>>>()?;
            let queue = rig.device.queue(0, RING, FP_QUEUE_KERNEL_MODE, 0)?;
            for (index, page) in pages.iter().enumerate() {
                queue.run(|list| list.store(page.at(0), index as u64 + 1))?;
            }
            until_idle(scene, &queue)?;
            for (index, page) in pages.iter().enumerate() {
                same("what was stored", page.word(0)?, index as u64 + 1)?;
            }
            ensure!(counts(scene).completion_scans > before.completion_scans, "no paging buffer was noticed");
            let paging = scene.adapter().notification_journal().into_iter().filter(|one| one.node == 2);
            let monitored = DXGK_INTERRUPT_TYPE::DXGK_INTERRUPT_MONITORED_FENCE_SIGNALED;
            same("interrupts of the paging node", paging.filter(|one| one.kind == monitored).count(), 0)
        })?;
    }
    Ok(())
}

/// `[packets, signals of the OS to contexts, the same to queues]`, by calls of the user-mode driver.
fn signals(rig: &Client) -> Result<[u64; 2]> {
    let calls = rig.adapter.thunk_calls()?;
    let of = |name: &str| calls.iter().find(|(known, ..)| known == name).map_or(0, |(_, calls, _)| *calls);
    Ok([of("D3DKMTSignalSynchronizationObjectFromGpu"), of("D3DKMTSubmitSignalSyncObjectsToHwQueue")])
}

/// On engines that cannot write monitored fences: the list is cut, and the order is kept.
fn software_on(scene: &Scene, rung: u32) -> Played {
    let watched = Watched::new(scene)?;
    let (rig, queue, fence, page) = (&watched.rig, &watched.queue, &watched.fence, &watched.page);
    let before = signals(rig)?;
    let (waiting, other) = watched.wait(1)?;
    let late = rig.wait(&[(fence, 2)], false)?;
    queue.run(|list| {
        list.store(page.at(2), 1)?;
        list.signal(fence, 1)?;
        list.store(page.at(3), 2)?;
        list.signal(fence, 2)?;
        list.wait(fence, 3)?;
        list.store(page.at(4), 3)?;
        list.signal(fence, 4)?;
        list.store(page.at(5), 4)
    })?;
    waiting.comes(rig, "the CPU wait")?;
    late.comes(rig, "the wait for the second signal")?;
    page.until(scene, "the queue that waits", 1, 1)?;
    same("what was before the signals", (page.word(2)?, page.word(3)?), (1, 2))?;
    // An event may come before its value can be read.
    scene.until("the second signal's value", || Ok(rig.value(fence)? == 2))?;
    same("what is behind the wait", (page.word(4)?, page.word(5)?, rig.value(fence)?), (0, 0, 2))?;
    fence.signal(3)?;
    queue.wait(0, PATIENCE)?;
    other.wait(0, PATIENCE)?;
    same("what was behind the wait", (page.word(4)?, page.word(5)?, rig.value(fence)?), (3, 4, 4))?;
    let made = signals(rig)?;
    let (contexts, queues) = (made[0] - before[0], made[1] - before[1]);
    if rung == 0 {
        same("signals to hardware queues", queues, 0)?;
        ensure!(contexts >= 3, "{contexts} signals to contexts");
    } else {
        same("signals to contexts and to hardware queues", (contexts, queues), (0, 3))?;
    }
    // Signals of the OS and engines that run behind each other.
    for value in 5..60 {
        let waiting = rig.wait(&[(fence, value)], false)?;
        queue.run(|list| {
            list.store(page.at(2), value)?;
            list.signal(fence, value)
        })?;
        waiting.comes(rig, "a wait for a later value")?;
        same("what was before the signal", page.word(2)?, value)?;
    }
    Ok(())
}

pub(super) fn software(stage: &Stage) -> Played {
    for rung in 0..4 {
        let setup = Setup::default().setting("MaxRung", rung).setting("SoftwareSignalNodes", 7);
        stage.play(setup, |scene| software_on(scene, rung)).with_context(|| format!("rung {rung}"))?;
    }
    // One engine of the two can.
    let setup = Setup::default().setting("MaxRung", 1).setting("SoftwareSignalNodes", 1);
    stage.play(setup, |scene| {
        let watched = Watched::new(scene)?;
        let able = watched.rig.device.queue(1, RING, 0, 0)?;
        let before = signals(&watched.rig)?;
        let wait = watched.rig.wait(&[(&watched.fence, 7)], false)?;
        able.run(|list| list.signal(&watched.fence, 7))?;
        wait.comes(&watched.rig, "a signal by packet")?;
        same("signals of the OS", signals(&watched.rig)?, before)?;
        let wait = watched.rig.wait(&[(&watched.fence, 8)], false)?;
        watched.queue.run(|list| list.signal(&watched.fence, 8))?;
        wait.comes(&watched.rig, "a signal of the OS")?;
        same("signals of the OS", signals(&watched.rig)?, [before[0], before[1] + 1])
    })
}

/// A packet that signals what the engine cannot write is a fault of its queue.
pub(super) fn unable(stage: &Stage) -> Played {
    for rung in [0, 1, 3] {
        let setup = Setup::default().setting("MaxRung", rung).setting("SoftwareSignalNodes", 7);
        stage
            .play(setup, |scene| {
                let watched = Watched::new(scene)?;
                let list = {
                    let mut list = watched.queue.list()?;
                    list.signal(&watched.fence, 9)?;
                    list.bytes()?
                };
                // Who is fast enough is refused what comes behind.
                let _ = watched.queue.run(|to| to.raw(&list));
                let signaled = || Ok::<_, anyhow::Error>(watched.rig.value(&watched.fence)? == 9);
                let ended = || Ok(watched.rig.device.state()?.execution != 1 || signaled()?);
                scene.until("the device's error", ended)?;
                // What a lost device leaves, or nothing: not what the packet said.
                ensure!(!signaled()?, "the engine signaled");
                Ok(())
            })
            .with_context(|| format!("rung {rung}"))?;
    }
    Ok(())
}
