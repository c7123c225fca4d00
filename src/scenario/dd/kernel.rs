//! The kernel under the driver: time, priorities, want of addresses.

use super::super::client::{Client, endless};
use super::super::{Played, Scene, Setup, Stage, same};
use anyhow::{Context, ensure};
use dxgkrnl_model::personality::{Clock, MS, SECOND};
use gpu_wire::packet::{Indirect, Timestamp};
use nt_model::sched::seeded::SeededOptions;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use umd_core::ffi::types::FP_KIND_SYSTEM;

/// Rings after each of so many pauses, in which the engine has stopped to look all the time.
const ROUNDS: u64 = 15;
/// How long such a ring may take until its work is done. Half a tick of the clock, 7.8 ms, is what engines would take
/// on average that look once a tick.
const SOON: Duration = Duration::from_millis(3);

/// The time from a ring to its work, of the middle one of [`ROUNDS`].
fn rings(scene: &Scene) -> anyhow::Result<Duration> {
    let rig = Client::open(scene, "client")?;
    let (queue, page) = (rig.queue(0)?, rig.page()?);
    let mut times = Vec::new();
    for round in 1..=ROUNDS {
        std::thread::park_timeout(Duration::from_micros(20_000 + round * 1_000));
        let begun = Instant::now();
        queue.run(|list| list.store(page.at(0), round))?;
        scene.until_now("work", || Ok(page.word(0)? == round))?;
        times.push(begun.elapsed());
    }
    times.sort_unstable();
    Ok(times[times.len() / 2])
}

pub(super) fn waits(stage: &Stage) -> Played {
    for ends_at_once in [false, true] {
        let setup = Setup::default().windows(|windows| windows.time_outs.ends_at_once = ends_at_once);
        stage.play(setup, |scene| {
            let mut best = rings(scene)?;
            // Another process may have had the processors.
            for _ in 0..3 {
                best = if best <= SOON { best } else { best.min(rings(scene)?) };
            }
            ensure!(best <= SOON, "what was rung ran after {best:?}");
            scene.world.os.stop_adapter(scene.adapter());
            scene.world.os.restart_adapter(scene.adapter())?;
            same("time-outs of the driver below a tick", scene.world.os.kernel().waits_below_a_tick(), 0)
        })?;
    }
    Ok(())
}

/// Pages that a command list of [`work_without_addresses`] writes: more than an engine has reserved places.
const SCATTERED: u64 = 40;

/// Work, paging and fences, on every node, while no pages can be mapped at any addresses but those that are reserved.
fn work_without_addresses(scene: &Scene) -> Played {
    let kernel = scene.world.os.kernel();
    let rig = Client::open(scene, "client")?;
    let queues = [rig.queue(0)?, rig.queue(1)?];
    let before = rig.page()?;
    kernel.fail_mappings(true);
    for (node, queue) in (0..).zip(&queues) {
        // Page tables are written, and what was in system memory is moved.
        let pages = (0..SCATTERED).map(|_| rig.page()).collect::<Result<Vec<_>, _>>()?;
        let fence = rig.fence(0, true)?;
        let waiting = rig.wait(&[(&fence, 1)], false)?;
        queue.run(|list| {
            pages.iter().zip(1..).try_for_each(|(page, value)| list.store(page.at(0), value))?;
            list.copy(pages[0].at(0), before.at(node), 8)?;
            list.signal(&fence, 1)
        })?;
        for (page, value) in pages.iter().zip(1..) {
            page.until(scene, "work", 0, value).with_context(|| format!("node {node}"))?;
        }
        before.until(scene, "a copy", node, 1)?;
        waiting.comes(&rig, "the signal")?;
    }
    kernel.fail_mappings(false);
    // Nothing is held on to: other addresses are used again.
    let page = rig.page()?;
    queues[0].run(|list| list.store(page.at(0), 1))?;
    page.until(scene, "work with addresses", 0, 1)
}

pub(super) fn no_addresses(stage: &Stage) -> Played {
    let patient = Setup::default().windows(|windows| windows.tdr.delay = 20 * SECOND);
    stage.play(patient, work_without_addresses)
}

/// Pages that an engine has mapped one by one in DD-20, nearly as many as it can.
const WINDOWS: u64 = 4000;

/// A process that has [`WINDOWS`] pages mapped ends while another's work hangs on the same node: what unmapping takes,
/// a second in all, is more than an engine may take to answer a reset.
pub(super) fn much_to_unmap(stage: &Stage) -> Played {
    let setup = Setup::default().quick_tdr().resets(1).windows(|windows| windows.unmap_time = MS / 4);
    stage.play(setup, |scene| {
        let [maps, hangs] = [Client::open(scene, "maps")?, Client::open(scene, "hangs")?];
        let (queue, last) = (maps.queue(0)?, maps.page()?);
        let memory = maps.device.allocate(FP_KIND_SYSTEM, WINDOWS * 4096, 0)?;
        let at = memory.gpu_va()?;
        for first in (0..WINDOWS).step_by(500) {
            queue.run(|list| (first..first + 500).try_for_each(|page| list.store(at + page * 4096, page)))?;
        }
        queue.run(|list| list.store(last.at(0), 1))?;
        last.until(scene, "work", 0, 1)?;
        let hung = hangs.queue(0)?;
        let (_memory, address, length) = endless(&hangs.device)?;
        hung.run(|list| list.indirect(address, length))?;
        std::thread::scope(|scope| {
            let ends = scope.spawn(|| drop((queue, last, memory, maps)));
            let lost = scene.until("the loss of the device", || Ok(hangs.device.state()?.execution != 1));
            ends.join().map_err(|_| anyhow::anyhow!("a panic")).and(lost)
        })?;
        same("adapter resets", scene.calls("DxgkDdiResetFromTimeout"), 0)
    })
}

/// The priorities that the driver's `threads` get when the adapter starts: three engines', and with doorbells that of
/// the thread that lets them go.
fn started_with(scene: &Scene, threads: usize) -> anyhow::Result<Vec<i32>> {
    let given = Arc::new(Mutex::new(Vec::new()));
    let to = given.clone();
    let kernel = scene.world.os.kernel();
    kernel.set_at_priority(Some(Arc::new(move |_, priority| {
        to.lock().unwrap_or_else(PoisonError::into_inner).push(priority)
    })));
    scene.world.os.stop_adapter(scene.adapter());
    scene.world.os.restart_adapter(scene.adapter())?;
    // A thread has run when its engine has done something: paging, and work of both others.
    let rig = Client::open(scene, "client")?;
    for node in 0..2 {
        let (queue, page) = (rig.queue(node)?, rig.page()?);
        queue.run(|list| list.store(page.at(0), 1))?;
        page.until(scene, "work", 0, 1)?;
    }
    let count = || given.lock().unwrap_or_else(PoisonError::into_inner).len();
    scene.until("the priority of each thread", || Ok(count() >= threads))?;
    kernel.set_at_priority(None);
    let given = given.lock().unwrap_or_else(PoisonError::into_inner).clone();
    Ok(given)
}

/// How an endless command buffer ran for about a second.
struct Endless {
    /// Of the moments at which it ran, how many of a hundred were in the last 40 ms of a period of 100 ms: of the
    /// middle one of the periods, since a host that stands still spoils single ones.
    late: u64,
    /// Periods that had moments.
    periods: u64,
    /// Waits that system threads began, the engines' among them.
    waits: u64,
}

fn endless_work(scene: &Scene) -> anyhow::Result<Endless> {
    const MOMENTS: u64 = 1000;
    let rig = Client::open(scene, "client")?;
    let (queue, page) = (rig.queue(0)?, rig.page()?);
    let memory = rig.device.allocate(FP_KIND_SYSTEM, 4096, 0)?;
    let stamp = Timestamp { address: page.at(0) }.to_packet();
    let jump = |length: usize| -> anyhow::Result<_> {
        Ok(Indirect { address: memory.gpu_va()?, length: length as u64 }.to_packet())
    };
    let length = stamp.as_bytes().len() + jump(0)?.as_bytes().len();
    memory.write(0, &[stamp.as_bytes(), jump(length)?.as_bytes()].concat())?;
    queue.run(|list| list.indirect(memory.gpu_va()?, length as u64))?;
    let frequency = scene.world.os.kernel().performance_frequency();
    let waits = || scene.world.os.kernel().system_threads().iter().map(|thread| thread.waits()).sum::<u64>();
    scene.until_now("the first moment", || Ok(page.word(0)? != 0))?;
    let waits_before = waits();
    // Of each period, how many were late, and how many there were.
    let (mut periods, mut before) = (BTreeMap::<u64, (u64, u64)>::new(), 0);
    for _ in 0..MOMENTS {
        scene.until_now("another moment", || Ok(page.word(0)? != before))?;
        before = page.word(0)?;
        let millisecond = before % (frequency / 10) / (frequency / 1000);
        let (late, all) = periods.entry(before / (frequency / 10)).or_default();
        (*late, *all) = (*late + u64::from(millisecond >= 60), *all + 1);
        std::thread::park_timeout(Duration::from_micros(970));
    }
    let waits = waits() - waits_before;
    let seen = periods.values().filter(|(_, all)| *all >= 20);
    let mut shares: Vec<_> = seen.map(|(late, all)| late * 100 / all).collect();
    shares.sort_unstable();
    let late = shares.get(shares.len() / 2).copied().context("no period had enough moments")?;
    Ok(Endless { late, periods: periods.len() as u64, waits })
}

pub(super) fn priorities(stage: &Stage) -> Played {
    for (setting, priority) in [(None, 16), (Some(9), 9)] {
        let setup = setting.into_iter().fold(Setup::default(), |setup, to| setup.setting("EnginePriority", to));
        stage.play(setup, |scene| {
            let caps = scene.adapter().caps().context("caps")?;
            // Three engines, the one that lets doorbells go, and the one that has engines pause.
            let threads = 3 + usize::from(caps.has_user_mode_submission()) + usize::from(priority >= 16);
            same("priorities", started_with(scene, threads)?, vec![priority; threads])
        })?;
    }
    // An ordinary thread has no limit. However many processors there are, others' engines may have them as well.
    for (processors, priority, pauses) in [(1, 16, true), (1, 8, false), (4, 16, true)] {
        // Half the time: on this machine, whose threads have no such priorities, what ends the engine's work may be
        // late.
        let setup =
            Setup::default().setting("EnginePriority", priority).setting("EngineShare", 50).windows(|windows| {
                windows.processors = processors;
                windows.tdr.enabled = false;
            });
        // The periods are those of the performance counter, so that is what the moments are told by.
        let setup = setup.setting("TimeStamps", 0);
        let runs = |scene: &Scene| {
            let Endless { late, periods, waits } = endless_work(scene)?;
            match pauses {
                true => {
                    ensure!(late <= 15, "{late} of 100 moments of work are late");
                    ensure!(waits >= periods, "threads waited {waits} times in {periods} periods");
                }
                // Not by when the moments are: a host that gives its machines a part of each tenth of a second has
                // pauses of its own. An engine that never pauses never waits, nor do those that have nothing to do.
                false => ensure!(waits < periods / 2, "threads waited {waits} times in {periods} periods"),
            }
            Ok(())
        };
        stage.play(setup, runs).with_context(|| format!("{processors} processors, priority {priority}"))?;
    }
    Ok(())
}

/// Submissions of [`short_work`], each behind a pause.
const SUBMISSIONS: u64 = 60;
/// How long such a one may take, of the OS's virtual time, in which work itself takes hardly any: more than the longest
/// pause between two looks, and less than the pauses of engines that are busy, of up to half a period of 100 ms.
const PROMPT: u64 = 10 * MS;

/// Of an engine that works for a moment now and then, nothing is put off to the end of a period.
pub(super) fn short_work(stage: &Stage) -> Played {
    // Between its calls the client is outside the machine.
    let options = SeededOptions { closed: false, ..SeededOptions::new(stage.seed()) };
    let setup = Setup::default().setting("EngineShare", 50).windows(|windows| {
        windows.processors = 1;
        windows.clock = Clock::Seeded(options.clone());
    });
    stage.play(setup, |scene| {
        let rig = Client::open(scene, "client")?;
        let _inside = rig.user.process.enter();
        let (queue, fence) = (rig.queue(0)?, rig.fence(0, true)?);
        let (never, handle) = rig.raw.event();
        for round in 1..=SUBMISSIONS {
            // Every part of a period is met.
            rig.raw.wait_event(&never, Duration::from_millis(round * 7 % 23));
            let begun = scene.world.os.kernel().now();
            queue.run(|list| list.signal(&fence, round))?;
            rig.wait(&[(&fence, round)], false)?.comes(&rig, "the signal")?;
            let took = scene.world.os.kernel().now() - begun;
            ensure!(took <= PROMPT, "round {round}: {} ms", took / MS);
        }
        rig.raw.close(handle);
        Ok(())
    })
}
