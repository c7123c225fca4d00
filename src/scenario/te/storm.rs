//! Resets at random points of a running load.

use super::super::client::Client;
use super::super::{Played, Raw, Scene, Setup, Stage, same};
use super::client;
use super::hardware::{ACTIVE, controller, force, unconditional};
use super::hog::{Hog, Loop};
use super::in_time::were_kept;
use crate::decode::decode;
use crate::fuzz::dice::Dice;
use crate::schedstat::Schedstat;
use anyhow::{Context, Result, ensure};
use dxgkrnl_model::adapter::{Reason, Step, What};
use std::time::{Duration, Instant};
use wddm_abi::ntstatus::STATUS_SUCCESS;

/// The nodes: two ordinary ones, and the paging node.
const NODES: usize = 3;
const PAGING: u32 = 2;

/// Resets that may find an engine between two turns though the host has kept no thread from its processor: in any
/// storm, and one in so many besides.
const MISSES: u64 = 3;
const MISSED: u64 = 32;
/// For how long threads waited for a processor, in all, in a round whose miss is the host's: much longer than a change
/// of turns takes.
const KEPT: Duration = Duration::from_millis(1);

/// Resets of a storm: of engines, and of the adapter.
#[derive(Clone, Copy, Debug)]
pub struct Storm {
    /// Of engines.
    pub engines: u64,
    /// Of the adapter.
    pub adapters: u64,
    /// What the points are drawn from.
    pub seed: u64,
    /// Whether the engines come off command buffers. Then one may be between two turns of the queue that it is about
    /// to run on when its reset comes, which takes nothing along: the contexts to invalidate are those that were
    /// running, and this one has lost nothing. So it is where a packet was preempted for another process and the next
    /// one has not begun. Never where they do not come off.
    ///
    /// Source: `DxgkDdiResetHwEngine`, Remarks.
    pub preempts: bool,
}

/// A process that works on an engine.
struct Load {
    node: u32,
    rig: Client,
    queue: crate::client::Queue,
    page: super::super::client::Page,
    value: u64,
}

impl Load {
    fn new(scene: &Scene, node: u32) -> Result<Self> {
        let rig = Client::open(scene, "load")?;
        let (queue, page) = (rig.queue(node)?, rig.page()?);
        Ok(Self { node, rig, queue, page, value: 0 })
    }

    fn is_lost(&self) -> Result<bool> {
        Ok(self.rig.device.state()?.execution != ACTIVE)
    }

    /// Begins a job: the value that arrives.
    fn submit(&mut self) -> Result<u64> {
        self.value += 1;
        self.queue.run(|list| list.store(self.page.at(0), self.value))?;
        Ok(self.value)
    }

    /// A job: its value arrives, or its device is lost.
    fn job(&mut self, scene: &Scene) -> Result<bool> {
        let Ok(value) = self.submit() else {
            ensure!(self.is_lost()?, "work is refused of a device that is active");
            return Ok(false);
        };
        let mut lost = false;
        scene.until("a job's result, or the loss of its device", || {
            lost = self.is_lost()?;
            Ok(lost || self.page.word(0)? == value)
        })?;
        Ok(!lost)
    }
}

/// A process that has its engine until it is ended, or lost with a reset.
enum Victim<'a> {
    /// By a queue of an ordinary node: a list that does not end, and a store behind it.
    Queue(Box<Load>, Loop),
    /// By packets of the paging node.
    Packets(Hog<'a>),
}

impl<'a> Victim<'a> {
    fn new(scene: &Scene, raw: &'a Raw, node: u32) -> Result<Self> {
        if node == PAGING {
            return Ok(Self::Packets(Hog::new(scene, raw, &[node])?));
        }
        let load = Load::new(scene, node)?;
        let run = Loop::new(&load.rig)?;
        Ok(Self::Queue(Box::new(load), run))
    }

    fn start(&self) -> Played {
        match self {
            Self::Queue(load, run) => {
                load.queue.run(|list| {
                    list.indirect(run.address, run.length)?;
                    list.store(load.page.at(0), 1)
                })?;
                Ok(())
            }
            Self::Packets(hog) => hog.spin(PAGING, 0),
        }
    }

    fn begins(&self, scene: &Scene) -> Played {
        match self {
            Self::Queue(_, run) => run.begins(scene),
            Self::Packets(hog) => hog.begins(scene, 0),
        }
    }

    fn is_lost(&self) -> Result<bool> {
        match self {
            Self::Queue(load, _) => load.is_lost(),
            Self::Packets(hog) => Ok(!hog.is_active()?),
        }
    }

    /// Lets it end.
    fn end(&self) -> Played {
        match self {
            Self::Queue(_, run) => run.end(),
            Self::Packets(hog) => hog.end(0),
        }
    }

    /// Waits for its end, which it comes to since it has lost nothing.
    fn ends(&self, scene: &Scene) -> Played {
        scene.until("the end of a process that was not reset", || match self {
            Self::Queue(load, _) => Ok(load.page.word(0)? == 1),
            Self::Packets(hog) => hog.has_ended(0),
        })?;
        ensure!(!self.is_lost()?, "a process that ran on is lost");
        Ok(())
    }
}

/// How many devices the last recovery has lost.
fn taken(scene: &Scene) -> Result<usize> {
    let all = scene.adapter().recoveries();
    let last = all.last().context("a recovery")?;
    let lost = last.steps.iter().find_map(|step| match step {
        Step::DevicesLost(count) => Some(*count),
        Step::Emptied => Some(0),
        _ => None,
    });
    lost.with_context(|| last.to_string())
}

/// How often the engine of a node was held, as the driver counts it.
fn holds(scene: &Scene, node: u32) -> Result<u64> {
    counter(scene, node, "resets")
}

/// A counter of a node's, by its name in the debug information.
///
/// # Errors
/// When the debug information says nothing of the node.
pub(super) fn counter(scene: &Scene, node: u32, name: &str) -> Result<u64> {
    scene.world.os.collect_debug_info(scene.adapter());
    let text = decode(&scene.adapter().debug_info())?.text;
    let head = format!("counters of node {node}");
    let part = text.split("\n\n").find(|part| part.trim_start().starts_with(&head)).context("counters")?;
    let mut lines = part.lines().filter_map(|line| line.trim().rsplit_once(' '));
    // A count of none is not told of.
    let count = lines.find(|(of, _)| of.trim() == name).and_then(|(_, count)| count.parse().ok());
    Ok(count.unwrap_or(0))
}

/// What is counted in a storm.
#[derive(Default)]
struct Counts {
    jobs: u64,
    /// Resets that found an engine between two turns.
    missed: u64,
    /// Those of them in whose rounds the host has kept no thread from its processor.
    missed_alone: u64,
    /// Resets of engines that processes took turns on.
    turns: u64,
    /// Resets of each node.
    nodes: [u64; NODES],
    /// Processes beside another one on the engine that was reset.
    together: u64,
}

/// One reset, of the engine of `node` or of the adapter: at a random moment, with up to three processes on that engine
/// and jobs on others. `false`: nothing was with the driver, so that there was nothing to reset.
fn round(
    (scene, control): (&Scene, &Raw),
    storm: &Storm,
    dice: &mut Dice,
    besides: &mut [Load; 2],
    counts: &mut Counts,
    adapter: bool,
) -> Result<bool> {
    let mut happened = true;
    // CAST: below the number of nodes.
    let node = dice.below(NODES as u64) as u32;
    let number = 1 + dice.below(3);
    let raws = (0..number).map(|_| client(scene, "victim")).collect::<Result<Vec<_>>>()?;
    // All of them before the first runs: behind one that has the paging node nothing is paged.
    let victims = raws.iter().map(|raw| Victim::new(scene, raw, node)).collect::<Result<Vec<_>>>()?;
    for (at, victim) in victims.iter().enumerate() {
        victim.start()?;
        if at == 0 {
            victim.begins(scene)?;
        }
    }
    // A job behind the one that has the engine for itself.
    let behind = besides.iter_mut().find(|load| load.node == node).filter(|_| !storm.preempts);
    let behind = match behind {
        Some(load) => Some((load.node, load.submit()?)),
        None => None,
    };
    for _ in 0..dice.below(3) {
        for load in besides.iter_mut().filter(|load| load.node != node) {
            counts.jobs += u64::from(load.job(scene)?);
        }
    }
    // Where processes take turns, over a turn; elsewhere about as long as a reset takes to begin.
    let turns = storm.preempts && number > 1;
    let threads = Schedstat::all();
    let wait = Instant::now() + Duration::from_micros(dice.below(if turns { 20_000 } else { 300 }));
    while Instant::now() < wait {
        if turns { std::thread::yield_now() } else { std::hint::spin_loop() }
    }
    let held = holds(scene, node)?;
    same("the escape", force(control, (!adapter).then_some(node)), STATUS_SUCCESS)?;
    if adapter {
        for victim in &victims {
            scene.until("the loss of a device with the adapter", || victim.is_lost())?;
        }
        for load in besides.iter_mut() {
            ensure!(load.is_lost()?, "a device outlived the adapter's reset");
            *load = Load::new(scene, load.node)?;
        }
    } else {
        let lost = taken(scene)?;
        ensure!(lost <= 1, "{lost} devices are lost with one engine");
        let all = scene.adapter().recoveries();
        happened = !all.last().is_some_and(|last| last.has(|step| *step == Step::Emptied));
        // The engine was held, whatever it was found at.
        same("holds of the engine", holds(scene, node)? - held, u64::from(happened))?;
        if lost == 0 {
            // It was between the turns of two processes. Those that it has lost nothing of come to their ends below.
            ensure!(turns, "a reset has cut off nothing of the one process that has the engine");
            counts.missed += 1;
            counts.missed_alone += u64::from(!were_kept(&threads, KEPT));
            let most = MISSES + storm.engines / MISSED;
            ensure!(counts.missed_alone <= most, "{} resets cut nothing off", counts.missed_alone);
        }
        let count = || victims.iter().map(Victim::is_lost).collect::<Result<Vec<_>>>();
        let gone = |all: &[bool]| all.iter().filter(|lost| **lost).count();
        scene.until("the loss of the device that ran", || Ok(gone(&count()?) == lost)).context("the victims")?;
        let all = victims.iter().zip(count()?).collect::<Vec<_>>();
        let others = || all.iter().filter(|(_, lost)| !lost).map(|(victim, _)| victim);
        // Whichever of them has the engine by now.
        others().try_for_each(|victim| victim.end())?;
        others().try_for_each(|victim| victim.ends(scene))?;
        same("lost in the end", gone(&count()?), lost)?;
        counts.turns += u64::from(turns);
        if happened {
            counts.nodes[node as usize] += 1;
            counts.together += number - 1;
        }
        if let Some((node, value)) = behind {
            let load = besides.iter().find(|load| load.node == node).context("the job's process")?;
            scene.until("a job behind the reset", || Ok(load.page.word(0)? == value))?;
            counts.jobs += 1;
        }
    }
    for load in besides {
        ensure!(!load.is_lost()?, "an innocent device is lost with an engine");
        ensure!(load.job(scene)?, "an innocent job's device is lost");
        counts.jobs += 1;
    }
    Ok(happened)
}

/// Plays a storm on a machine of its own: every innocent job's result is right, and nothing is left behind.
///
/// # Errors
/// What was wrong.
pub fn play(stage: &Stage, storm: Storm) -> Played {
    // An engine that is reset while nothing runs on it does not count on packet nodes: those are forced while busy.
    let setup = Setup::default().windows(|windows| windows.tdr.process_limit = u32::MAX);
    let mut happened = 0;
    let setup = setup.resets(storm.engines + storm.adapters).setting("PreemptInBuffers", storm.preempts.into());
    stage
        .play(setup, |scene| {
            let control = controller(scene)?;
            same("the escape", unconditional(&control), STATUS_SUCCESS)?;
            let mut dice = Dice::new(storm.seed);
            let mut besides = [Load::new(scene, 0)?, Load::new(scene, 1)?];
            let (mut left, mut counts) = ([storm.engines, storm.adapters], Counts::default());
            while left.iter().sum::<u64>() > 0 {
                let adapter = dice.below(left[0] + left[1]) >= left[0];
                if round((scene, &control), &storm, &mut dice, &mut besides, &mut counts, adapter)? {
                    left[usize::from(adapter)] -= 1;
                    happened += 1;
                }
            }
            ensure!(counts.jobs >= storm.engines + storm.adapters, "{} jobs", counts.jobs);
            ensure!(counts.nodes.iter().all(|count| *count != 0), "resets by node: {:?}", counts.nodes);
            // A change of turns takes some microseconds of a turn's milliseconds, and a busy host draws it out. An
            // engine that never has anything to lose misses always.
            let Counts { missed, turns, .. } = counts;
            ensure!(2 * missed <= turns, "{missed} of {turns} resets cut nothing off");
            ensure!(counts.together != 0, "no two processes were on an engine that was reset");
            let all = scene.adapter().recoveries();
            let adapters = all.iter().filter(|one| one.what == What::Adapter).count() as u64;
            same("adapter resets", adapters, storm.adapters)?;
            ensure!(all.iter().all(|one| one.is_over && [Reason::Forced, Reason::ForcedEngine].contains(&one.reason)));
            let emptied = all.iter().filter(|one| one.has(|step| *step == Step::Emptied)).count() as u64;
            ensure!(emptied <= counts.missed, "{emptied} engine resets found nothing");
            Ok(())
        })
        .with_context(|| format!("seed {}, after {happened} resets", storm.seed))
}

/// A hundred, by the stage's seed: half of them of engines that come off command buffers.
pub(super) fn hundred(stage: &Stage) -> Played {
    let storm = |preempts| Storm { engines: 45, adapters: 5, seed: stage.seed(), preempts };
    play(stage, storm(true)).context("engines that come off")?;
    play(stage, storm(false)).context("engines that do not")
}
