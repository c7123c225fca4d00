//! What parked queues cost: a signal looks at the queues that wait for its fence, and at no other.
//!
//! The engine alone, stepped by this thread: a hundred thousand queues are more than one wants to create through an OS.

use super::statistics::{Better, Figure, Taken, Target};
use super::support::{self, Range, Rig, TestHost};
use super::{Bed, Benchmark, Measured};
use anyhow::{Context, Result};
use gpu_engine::host::Lock;
use gpu_engine::queue::{Binding, Queue};
use gpu_engine::shared::Shared;
use gpu_engine::word::{Ordering, Word};
use gpu_wire::packet::{Encoded, Fence};
use gpu_wire::ring::Geometry;
use std::time::Instant;

const PARKED: Figure = Figure {
    name: "parked-queues",
    about: "a signal while 100,000 queues are parked on other fences; beside none (the engine alone)",
    unit: "ns",
    limit: "none parked",
    better: Better::Lower,
    target: Target::None,
};

pub(super) const BENCHMARKS: &[Benchmark] = &[Benchmark { figures: &[PARKED], run: parked }];

/// Queues that are parked.
const QUEUES: u64 = 100_000;
/// Fences that they wait for.
const FENCES: usize = 64;
/// Signals in a round.
const SIGNALS: u64 = 20_000;

fn parked(bed: &Bed) -> Result<Vec<Measured>> {
    let effort = bed.options.effort;
    let (queues, signals) = (effort.count(QUEUES, 500), effort.count(SIGNALS, 100));
    let mut alone = Signaler::new(0)?;
    let mut among = Signaler::new(queues as usize)?;
    bed.measure(&PARKED, || Ok(Taken { limit: alone.round(signals), value: among.round(signals), ..Taken::default() }))
}

/// A GPU, and a queue of it that signals.
struct Signaler {
    rig: Rig,
    queue: support::TestQueue,
    fence: u64,
    value: u64,
    _parked: Vec<Shared<Queue<TestHost>>>,
}

impl Signaler {
    fn new(parked: usize) -> Result<Self> {
        let mut rig = Rig::new();
        let rings: Vec<_> = (0..FENCES).map(|_| ring_that_waits(&mut rig)).collect::<Result<_>>()?;
        let pages = Pages { progress: rig.map(1, false), waits: rig.map(1, false), signals: rig.map(1, false) };
        let context = rig.context(1);
        let mut queues = Vec::new();
        for number in 0..parked {
            let member = rig.gpu.admit(1).ok().context("memory")?;
            let slot = rig.gpu.slots.allocate(0xA000).ok().context("slots")?;
            let queue =
                Queue::new(member, slot, context.clone(), true, pages.progress.va, true).ok().context("memory")?;
            let queue = Shared::try_new(queue).ok().context("memory")?;
            queue.bind(Some(rings[number % FENCES]));
            queue.waits.with(|log| log.set(pages.waits.bytes, 84)).ok().context("log")?;
            queue.signals.with(|log| log.set(pages.signals.bytes, 84)).ok().context("log")?;
            rig.gpu.make_ready(&queue);
            queues.push(queue);
            if number % 1000 == 999 {
                rig.settle();
            }
        }
        rig.settle();
        let parked_now: u64 = rig.gpu.totals().waits_parked;
        anyhow::ensure!(parked_now == parked as u64, "{parked_now} of {parked} queues are parked");
        let fence = rig.fence().current.va.0;
        Ok(Self { queue: rig.queue(0, 0), rig, fence, value: 0, _parked: queues })
    }

    /// Nanoseconds of a signal, of a hundred at once each.
    fn round(&mut self, signals: u64) -> Vec<f64> {
        const AT_ONCE: u64 = 100;
        let hundred = |_| {
            let first = self.value + 1;
            self.value += AT_ONCE;
            let signals: Vec<Encoded> =
                (first..=self.value).map(|value| Fence { fence: self.fence, value }.to_packet()).collect();
            let begun = Instant::now();
            self.queue.submit(&signals);
            self.rig.settle();
            begun.elapsed().as_nanos() as f64 / AT_ONCE as f64
        };
        (0..signals / AT_ONCE).map(hundred).collect()
    }
}

struct Pages {
    progress: Range,
    waits: Range,
    signals: Range,
}

/// A ring with one packet in it, a wait for a fence of its own.
fn ring_that_waits(rig: &mut Rig) -> Result<Binding> {
    let fence = rig.fence();
    let (ring, control) = (rig.map(1, false), rig.map(1, false));
    let wait = Encoded::fence_wait(fence.current.va, 1);
    ring.bytes.write(wait.as_bytes());
    control.word(0).store(wait.as_bytes().len() as u64, Ordering::Release);
    let geometry = Geometry::new(4096).ok().context("a ring of a page")?;
    Ok(Binding { ring: ring.va, control: control.va, geometry })
}
