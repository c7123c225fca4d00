//! Benchmarks, each beside its limit, measured in the same rounds, with who submits and who executes on processors of
//! their own.
//!
//! A round measures a cache line's way to the other processor and back, then limit and value in turns, then the line
//! again: hosts move virtual processors, and with them every figure. Rounds in which the line moved by more than a
//! tenth are dropped, as are those of the rarer regime (near, far). The value is the median of the rounds' medians, the
//! ratio the median of the rounds' ratios, the spread the distance of the 10th and 90th percentile of the rounds'
//! medians, in per cent of the value.
//!
//! | file | holds |
//! |---|---|
//! | `mod.rs` | the list, the bed that a benchmark is measured on |
//! | `statistics.rs` | rounds that count, medians, ratios, verdicts |
//! | `processors.rs` | where threads run and for how long, the load of other work |
//! | `path.rs` | how a way from a submission to its end is timed |
//! | `limits` | what this machine can do |
//! | `hot.rs`, `hops.rs` | submissions; from queue to queue |
//! | `alone.rs` | the engine with plain locks, without a driver and a model around it |
//! | `bulk.rs` | fills and copies |
//! | `wake.rs`, `idle.rs` | the CPU is woken, the engine is woken, nothing is awake |
//! | `interrupts.rs`, `parked.rs` | what must not be done |
//! | `doorbells.rs`, `crowd.rs` | connections, notifications, F1; many queues |
//! | `separate.rs` | a client in a Linux process of its own |
//! | `kernel.rs`, `resets.rs` | submissions through the kernel; engines and adapters that are reset |

mod alone;
mod bulk;
mod crowd;
mod doorbells;
mod hops;
mod hot;
mod idle;
mod interrupts;
mod kernel;
mod limits;
mod parked;
mod path;
mod processors;
mod resets;
mod separate;
mod statistics;
#[path = "../../gpu/engine/tests/support/mod.rs"]
mod support;
mod wake;

pub use processors::load_average;
pub use statistics::{Figure, Measured, Regime, Verdict};

use crate::client::{Adapter, Device, Inside, Queue};
use crate::setting::{self, Assignment};
use crate::world::{Form, User, World};
use anyhow::{Context, Result, ensure};
use dxgkrnl_model::personality::{Clock, Personality};
use processors::{Load, Pair, Pinned, pause};
use rustix::thread::Pid;
use statistics::{Round, Rounds, Taken};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use wddm_abi::LUID;

/// Figures that are measured together.
pub struct Benchmark {
    /// What it yields: all of them, but for those that need what this machine does not have.
    pub figures: &'static [Figure],
    run: fn(&Bed) -> Result<Vec<Measured>>,
}

/// Every benchmark.
pub fn all() -> impl Iterator<Item = &'static Benchmark> {
    [
        hot::BENCHMARKS,
        hops::BENCHMARKS,
        bulk::BENCHMARKS,
        wake::BENCHMARKS,
        idle::BENCHMARKS,
        interrupts::BENCHMARKS,
        parked::BENCHMARKS,
        doorbells::BENCHMARKS,
        crowd::BENCHMARKS,
        separate::BENCHMARKS,
        kernel::BENCHMARKS,
        resets::BENCHMARKS,
    ]
    .into_iter()
    .flatten()
}

/// How much is done for a sample.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effort {
    /// Enough to believe it.
    Full,
    /// As little as yields a number.
    Quick,
}

impl Effort {
    /// These counts, or as few as can be.
    fn of(self, counts: (usize, usize)) -> (usize, usize) {
        match self {
            Self::Full => counts,
            Self::Quick => (counts.0.min(3), counts.1.min(50)),
        }
    }

    /// This count, or as little as can be.
    fn count(self, full: u64, quick: u64) -> u64 {
        if self == Self::Full { full } else { quick }
    }
}

/// How benchmarks are measured.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Rounds that count, per figure; up to three times as many are played.
    pub rounds: usize,
    /// How much is done in each.
    pub effort: Effort,
}

impl Options {
    /// Rounds without more said.
    pub const ROUNDS: usize = 9;
}

/// Longer than anything that must happen takes.
const PATIENCE: Duration = Duration::from_secs(20);
/// Bytes of a ring.
const RING: u64 = 1 << 20;
/// Queues that rounds take in turns, since where the lines of each live differs.
const QUEUES: usize = 5;

/// Measures one benchmark on a machine of its own.
///
/// # Errors
/// When the driver does not start or refuses work, or there are not two processors.
pub fn play(benchmark: &Benchmark, form: &Form, settings: &[Assignment], options: Options) -> Result<Vec<Measured>> {
    let bed = Bed::new(form, settings, options, Pair::find()?, |_| ())?;
    let measured = (benchmark.run)(&bed)?;
    bed.world.os.shut_down();
    Ok(measured)
}

/// A machine to measure on. The thread that made it is on the producer's processor, the engines of nodes 0 and 1 are on
/// the other.
struct Bed {
    world: World,
    luid: LUID,
    form: Form,
    settings: Vec<Assignment>,
    options: Options,
    pair: Pair,
    /// Threads of nodes 0 and 1.
    engines: [Option<Pid>; 2],
    /// Threads that there were before the machine.
    known: BTreeMap<i32, u64>,
    _pinned: Pinned,
}

impl Bed {
    fn new(
        form: &Form,
        settings: &[Assignment],
        options: Options,
        pair: Pair,
        change: impl FnOnce(&mut Personality),
    ) -> Result<Self> {
        let known = processors::threads()?;
        let mut personality = Personality::collecting();
        // Processes are hung on purpose.
        personality.tdr.process_limit = u32::MAX;
        // So are resets forced, by the escape that TdrTestMode allows.
        personality.tdr.test_mode = true;
        // What is measured goes by the host's clock; and the other clock has a thread that wakes.
        personality.clock = Clock::Real;
        change(&mut personality);
        let world = World::boot_with(form, personality, settings)?;
        let luid = world.adapter(setting::adapter_of_ours(settings))?.luid();
        let pinned = Pinned::to(pair.producer)?;
        let (form, settings) = (form.clone(), settings.to_vec());
        let mut bed = Self { world, luid, form, settings, options, pair, engines: [None; 2], known, _pinned: pinned };
        bed.engines = bed.find_engines()?;
        bed.place([pair.engine; 2])?;
        Ok(bed)
    }

    /// Another machine, on this rung and with these settings, whatever the caller's say of them.
    fn on_rung(&self, rung: u64, with: &[(&str, u64)]) -> Result<Self> {
        self.with(rung, with, |_| ())
    }

    /// The same, with another Windows.
    fn with(&self, rung: u64, with: &[(&str, u64)], change: impl FnOnce(&mut Personality) + Send) -> Result<Self> {
        let ours: Vec<_> =
            [("MaxRung", rung)].iter().chain(with).map(|(name, value)| ((*name).to_owned(), *value)).collect();
        let is_ours = |name: &str| ours.iter().any(|(known, _)| known.eq_ignore_ascii_case(name));
        let others = self.settings.iter().filter(|(name, _)| !is_ours(name)).cloned();
        let settings: Vec<_> = others.chain(ours.clone()).collect();
        // Threads begin where the one that makes them may be.
        processors::on_either(self.pair, || Self::new(&self.form, &settings, self.options, self.pair, change))?
    }

    /// The adapter.
    fn adapter(&self) -> Result<Arc<dxgkrnl_model::adapter::Adapter>> {
        let mut adapters = self.world.os.adapters().into_iter();
        adapters.find(|adapter| adapter.luid() == self.luid).context("the adapter")
    }

    /// The threads that work when nodes 0 and 1 are given work.
    fn find_engines(&self) -> Result<[Option<Pid>; 2]> {
        let process = Resident::new(self, "finds engines")?;
        let time = Duration::from_millis(self.options.effort.count(15, 3));
        let mut found = [None; 2];
        for (node, found) in (0..).zip(&mut found) {
            // A driver may have one node of this kind only.
            let Ok(queue) = process.device.queue(node, RING, 0, 0) else { continue };
            let mut list = queue.list()?;
            list.nop(4096)?;
            *found = processors::busiest(&self.known, || {
                let begun = Instant::now();
                while begun.elapsed() < time {
                    let value = queue.submit(&mut list)?;
                    finish(&queue, value)?;
                }
                Ok(())
            })?;
        }
        Ok(found)
    }

    /// Puts the engines of nodes 0 and 1 on these processors.
    fn place(&self, processors: [usize; 2]) -> Result<()> {
        for (engine, processor) in self.engines.iter().zip(processors) {
            engine.map_or(Ok(()), |engine| processors::pin(Some(engine), processor))?;
        }
        Ok(())
    }

    /// Waits until the engines sleep, or half a second: one that looks for work would take the processor from what is
    /// measured on it.
    fn rest(&self) {
        const LOOK: Duration = Duration::from_millis(3);
        let ran = || self.engines.iter().flatten().map(|engine| processors::ran(*engine)).sum::<u64>();
        for _ in 0..160 {
            let before = ran();
            pause(LOOK);
            // A fifth of the time: threads that look now and then.
            if u128::from(ran().saturating_sub(before)) * 5 < LOOK.as_nanos() {
                return;
            }
        }
    }

    fn line(&self) -> Result<f64> {
        self.rest();
        limits::line(self.pair, self.options.effort)
    }

    /// Plays rounds until as many count as are wanted, or three times as many were played.
    fn rounds(&self, mut round: impl FnMut() -> Result<Vec<Taken>>) -> Result<Rounds> {
        // Once for nothing: caches, mappings.
        round()?;
        let wanted = self.options.rounds;
        let (mut all, load) = (Vec::<Round>::new(), Load::begin());
        let mut before = self.line()?;
        while all.len() < 3 * wanted && all.iter().filter(|round| !round.moved()).count() < wanted {
            let taken = round()?;
            let after = self.line()?;
            all.push(Round { before, after, taken });
            before = after;
        }
        Ok(Rounds { all, wanted, load: load.others() })
    }

    /// Rounds of one figure.
    fn measure(&self, figure: &Figure, mut round: impl FnMut() -> Result<Taken>) -> Result<Vec<Measured>> {
        Ok(vec![self.rounds(|| Ok(vec![round()?]))?.measured(0, figure)])
    }
}

/// Looks at the queue's progress until it is `value`.
fn finish(queue: &Queue, value: u64) -> Result<()> {
    let mut looks = 0_u32;
    let mut since = None;
    while queue.progress()?.0 < value {
        looks = looks.wrapping_add(1);
        if looks.is_multiple_of(1 << 16) {
            ensure!(since.get_or_insert_with(Instant::now).elapsed() < PATIENCE, "the queue does not go on");
        }
    }
    Ok(())
}

/// A process that the calling thread stays in, so that entering it costs a call nothing: as in a real process.
///
/// The fields are dropped in this order: what the process has, before the process.
struct Resident {
    device: Device,
    adapter: Adapter,
    _inside: dxgkrnl_model::process::Client,
    user: User,
}

/// The thread is inside already.
struct Here;

impl Inside for Here {
    fn inside(&self, f: &mut dyn FnMut()) {
        f();
    }
}

impl Resident {
    fn new(bed: &Bed, name: &str) -> Result<Self> {
        let user = bed.world.process(name)?;
        let inside = user.process.enter();
        let adapter = Adapter::open(user.table, Box::new(Here), None, 0, 0)?;
        let device = adapter.device().context("a device")?;
        Ok(Self { device, adapter, _inside: inside, user })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_explained() {
        let mut names = std::collections::BTreeSet::new();
        for figure in all().flat_map(|benchmark| benchmark.figures) {
            assert!(names.insert(figure.name), "{} is there twice", figure.name);
            assert!(figure.about.len() > 10 && figure.about.len() < 100, "{}: {}", figure.name, figure.about);
        }
    }

    #[test]
    fn the_document_has_a_row_for_every_figure() {
        let document = include_str!("../../docs/bench.md");
        let rows: Vec<_> = document.lines().filter(|line| line.starts_with("| `")).collect();
        let figures: Vec<_> = all().flat_map(|benchmark| benchmark.figures).map(Figure::row).collect();
        assert_eq!(rows, figures);
    }

    #[test]
    fn every_benchmark_yields_its_figures() -> Result<()> {
        let options = Options { rounds: 1, effort: Effort::Quick };
        if rustix::thread::sched_getaffinity(None)?.count() == 1 {
            for benchmark in all() {
                assert!(play(benchmark, &Form::Native, &[], options).is_err(), "benchmarks need two processors");
            }
            return Ok(());
        }
        for benchmark in all() {
            let measured = play(benchmark, &Form::Native, &[], options)
                .with_context(|| benchmark.figures.first().map_or("", |figure| figure.name))?;
            for figure in benchmark.figures {
                let Some(measured) = measured.iter().find(|measured| measured.name == figure.name) else {
                    assert!(figure.name.ends_with("-sqpoll"), "{} is missing", figure.name);
                    continue;
                };
                let numbers = [
                    measured.value,
                    measured.limit_value,
                    measured.ratio,
                    measured.spread,
                    measured.p99,
                    measured.limit_p99,
                    measured.line_ns.unwrap_or_default(),
                ];
                assert!(numbers.iter().all(|number| number.is_finite() && *number >= 0.0), "{measured:?}");
            }
            assert!(measured.len() <= benchmark.figures.len(), "{measured:?}");
        }
        Ok(())
    }
}
