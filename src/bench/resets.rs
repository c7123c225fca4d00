//! Resets: how long they take, by rung, and what a neighbour loses by them.

use super::statistics::{Better, Figure, Rounds, Taken, Target};
use super::{Bed, Benchmark, Measured, PATIENCE, RING, Resident, finish, limits};
use crate::bench::processors::pause;
use crate::client::{Adapter, Device, Queue};
use crate::scenario::{Raw, force, unconditional};
use crate::world::User;
use anyhow::{Result, ensure};
use portable_cases::jobs::Loop;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use wddm_abi::ntstatus::STATUS_SUCCESS;

const ENGINE: Figure = Figure {
    name: "reset-engine-rung-0",
    about: "from the request for a busy packet engine's reset until its device is lost; beside a futex wake",
    unit: "ns",
    limit: "futex wake",
    better: Better::Lower,
    target: Target::None,
};
const SCHEDULED: &str = "the same of a hardware-scheduled engine";
const ADAPTER: Figure = Figure { about: "the same of the adapter", ..ENGINE };

/// Of an engine and of the adapter, by rung.
const RESETS: [[Figure; 2]; 4] = [
    [ENGINE, Figure { name: "reset-adapter-rung-0", ..ADAPTER }],
    [
        Figure { name: "reset-engine-rung-1", about: SCHEDULED, ..ENGINE },
        Figure { name: "reset-adapter-rung-1", ..ADAPTER },
    ],
    [
        Figure { name: "reset-engine-rung-2", about: SCHEDULED, ..ENGINE },
        Figure { name: "reset-adapter-rung-2", ..ADAPTER },
    ],
    [
        Figure { name: "reset-engine-rung-3", about: SCHEDULED, ..ENGINE },
        Figure { name: "reset-adapter-rung-3", ..ADAPTER },
    ],
];
const NEIGHBOUR: Figure = Figure {
    name: "neighbour-of-resets",
    about: "jobs on node 1 while node 0 hangs and is reset again and again; beside node 0 at rest",
    unit: "1/s",
    limit: "node 0 at rest",
    better: Better::Higher,
    target: Target::None,
};

pub(super) const BENCHMARKS: &[Benchmark] = &[
    Benchmark { figures: &RESETS[0], run: |bed| times(bed, 0) },
    Benchmark { figures: &RESETS[1], run: |bed| times(bed, 1) },
    Benchmark { figures: &RESETS[2], run: |bed| times(bed, 2) },
    Benchmark { figures: &RESETS[3], run: |bed| times(bed, 3) },
    Benchmark { figures: &[NEIGHBOUR], run: neighbour },
];

/// Long enough for a futex's thread to sleep.
const SLEEPY: Duration = Duration::from_millis(1);

/// A process that keeps engine 0 busy until it is reset. Dropped in this order.
struct Victim {
    _run: Loop,
    _queue: Queue,
    device: Device,
    _adapter: Adapter,
    _user: User,
}

impl Victim {
    fn new(bed: &Bed) -> Result<Self> {
        let user = bed.world.process("busy")?;
        let adapter = user.open()?;
        let device = adapter.device()?;
        let (queue, run) = (device.queue(0, RING, 0, 0)?, Loop::new(&device)?);
        queue.run(|list| list.indirect(run.address, run.length))?;
        run.begins(PATIENCE)?;
        Ok(Self { _run: run, _queue: queue, device, _adapter: adapter, _user: user })
    }

    fn is_lost(&self) -> Result<bool> {
        Ok(self.device.state()?.execution != 1)
    }
}

/// A process that may force resets, as many as it wants.
fn controller(bed: &Bed) -> Result<(User, Raw)> {
    let user = bed.world.process("controls")?;
    user.process.trust();
    let raw = Raw::open(&user.process, bed.luid)?;
    ensure!(unconditional(&raw) == STATUS_SUCCESS, "the OS keeps its conditions on resets");
    Ok((user, raw))
}

/// Resets what `node` names while a victim runs on engine 0: nanoseconds until the victim is lost.
fn reset(bed: &Bed, control: &Raw, node: Option<u32>) -> Result<f64> {
    let victim = Victim::new(bed)?;
    let begun = Instant::now();
    ensure!(force(control, node) == STATUS_SUCCESS, "the reset is refused");
    while !victim.is_lost()? {
        ensure!(begun.elapsed() < PATIENCE, "the reset did not come");
    }
    Ok(begun.elapsed().as_nanos() as f64)
}

fn times(bed: &Bed, rung: usize) -> Result<Vec<Measured>> {
    // What comes off by itself may be off when the reset comes.
    let bed = bed.on_rung(rung as u64, &[("PreemptInBuffers", 0)])?;
    let (_user, control) = controller(&bed)?;
    let (times, _) = bed.options.effort.of((10, 0));
    let rounds: Rounds = bed.rounds(|| {
        bed.rest();
        let limit = limits::futex_wake(bed.pair.engine, SLEEPY, times)?;
        let resets = |node| (0..times).map(|_| reset(&bed, &control, node)).collect::<Result<Vec<_>>>();
        Ok(vec![Taken::new(resets(Some(0))?, limit.clone()), Taken::new(resets(None)?, limit)])
    })?;
    let measured = (0..).zip(&RESETS[rung]).map(|(at, figure)| rounds.measured(at, figure)).collect();
    drop(control);
    bed.world.os.shut_down();
    Ok(measured)
}

fn neighbour(bed: &Bed) -> Result<Vec<Measured>> {
    let bed = bed.on_rung(3, &[("PreemptInBuffers", 0)])?;
    let (_user, control) = controller(&bed)?;
    let window = Duration::from_millis(bed.options.effort.count(100, 5));
    let measured = {
        let process = Resident::new(&bed, "neighbour")?;
        let queue = process.device.queue(1, RING, 0, 0)?;
        let mut list = queue.list()?;
        list.nop(16)?;
        // Jobs per second, one behind the other, until the end.
        let mut jobs = |end: &dyn Fn() -> bool| -> Result<f64> {
            let (begun, mut done) = (Instant::now(), 0_u64);
            while !end() {
                let value = queue.submit(&mut list)?;
                finish(&queue, value)?;
                done += 1;
            }
            Ok(done as f64 / begun.elapsed().as_secs_f64())
        };
        bed.measure(&NEIGHBOUR, || {
            bed.rest();
            // Until what goes on beside them is over.
            let mut beside = |work: &(dyn Fn() -> Result<()> + Sync)| -> Result<f64> {
                let over = AtomicBool::new(false);
                std::thread::scope(|scope| {
                    let thread = scope.spawn(|| {
                        let worked = work();
                        over.store(true, Ordering::Release);
                        worked
                    });
                    let rate = jobs(&|| over.load(Ordering::Acquire));
                    thread.join().map_err(|_| anyhow::anyhow!("a panic"))??;
                    rate
                })
            };
            let quiet = beside(&|| {
                pause(window);
                Ok(())
            })?;
            let count = AtomicU64::new(0);
            let resets = beside(&|| {
                let until = Instant::now() + window;
                while Instant::now() < until {
                    reset(&bed, &control, Some(0))?;
                    count.fetch_add(1, Ordering::Relaxed);
                }
                Ok(())
            })?;
            ensure!(count.load(Ordering::Relaxed) > 0, "no reset in the window");
            Ok(Taken::new(vec![resets], vec![quiet]))
        })?
    };
    drop(control);
    bed.world.os.shut_down();
    Ok(measured)
}
