//! The hot path: a submission by doorbell, until its progress value is seen.

use super::alone::Alone;
use super::limits::ring::bare_ring;
use super::limits::uring::Sqpoll;
use super::path::{Path, stream, trips};
use super::statistics::{Better, Figure, Taken, Target};
use super::{Bed, Benchmark, Measured, QUEUES, RING, Resident, finish};
use crate::client::{List, Queue, Refused};
use anyhow::{Result, ensure};
use umd_core::ffi::types::FP_KIND_SYSTEM;

pub(super) const BENCHMARKS: &[Benchmark] =
    &[Benchmark { figures: TRIPS, run: round_trip }, Benchmark { figures: STREAMS, run: streaming }];

const TRIP: Figure = Figure { name: "", about: "", unit: "ns", limit: "", better: Better::Lower, target: Target::None };

const TRIPS: &[Figure] = &[
    Figure {
        name: "round-trip",
        about: "a doorbell rung, until the progress value is seen; beside a bare ring of 64-byte packets",
        limit: "bare ring",
        target: Target::ByRegime(1.25, 2.2, 1.5),
        ..TRIP
    },
    Figure {
        name: "doorbell-round-trip",
        about: "the same; beside a cache line's way to another core and back",
        limit: "line there and back",
        ..TRIP
    },
    Figure {
        name: "round-trip-sqpoll",
        about: "the same; beside io_uring's where the kernel polls (SQPOLL), if the kernel has it",
        limit: "io_uring SQPOLL",
        ..TRIP
    },
    Figure {
        name: "round-trip-alone",
        about: "the engine alone, with plain locks and no driver around it; beside the bare ring",
        limit: "bare ring",
        ..TRIP
    },
    Figure {
        name: "round-trip-shims",
        about: "round-trip beside round-trip-alone: what user-mode driver, locks and clock of the model make of it",
        limit: "engine alone",
        ..TRIP
    },
];

const STREAM: Figure =
    Figure { name: "", about: "", unit: "1/s", limit: "", better: Better::Higher, target: Target::None };

const STREAMS: &[Figure] = &[
    Figure {
        name: "streaming",
        about: "submissions of one STORE, a doorbell for each; beside io_uring SQPOLL's, else a bare ring's",
        limit: "io_uring SQPOLL",
        target: Target::Fixed(1.5, 1.0),
        ..STREAM
    },
    Figure {
        name: "submissions",
        about: "the same; beside a bare ring of 64-byte packets",
        limit: "bare ring",
        ..STREAM
    },
    Figure {
        name: "streaming-alone",
        about: "the engine alone, with plain locks and no driver around it; beside the bare ring",
        limit: "bare ring",
        ..STREAM
    },
    Figure {
        name: "streaming-shims",
        about: "streaming beside streaming-alone: what user-mode driver, locks and clock of the model make of it",
        limit: "engine alone",
        ..STREAM
    },
];

/// `streaming` where the kernel has no io_uring.
const STREAMING_BESIDE_RING: Figure =
    Figure { name: "streaming", limit: "bare ring", target: Target::Fixed(0.3, 0.3), ..STREAM };

/// Submissions by the user-mode driver.
pub(super) struct Submissions {
    queue: Queue,
    list: List,
    last: u64,
}

impl Submissions {
    /// Queues that submit what `record` records.
    pub(super) fn queues(process: &Resident, record: impl Fn(&mut List) -> Result<(), Refused>) -> Result<Vec<Self>> {
        Self::queues_with(process, 0, record)
    }

    /// The same, with these flags.
    pub(super) fn queues_with(
        process: &Resident,
        flags: u32,
        record: impl Fn(&mut List) -> Result<(), Refused>,
    ) -> Result<Vec<Self>> {
        let new = |_| {
            let queue = process.device.queue(0, RING, flags, 0)?;
            let mut list = queue.list()?;
            record(&mut list)?;
            Ok(Self { queue, list, last: 0 })
        };
        (0..QUEUES).map(new).collect()
    }
}

impl Path for Submissions {
    fn push(&mut self) -> Result<()> {
        self.last = self.queue.submit(&mut self.list)?;
        Ok(())
    }

    fn drain(&mut self) -> Result<()> {
        finish(&self.queue, self.last)
    }
}

fn round_trip(bed: &Bed) -> Result<Vec<Measured>> {
    let effort = bed.options.effort;
    let process = Resident::new(bed, "bench")?;
    let mut queues = Submissions::queues(&process, |list| list.nop(16))?;
    let has_sqpoll = Sqpoll::open(bed.pair).is_some();
    let rounds = bed.rounds(|| {
        queues.rotate_left(1);
        let line = bed.line()?;
        let (bare, bare_tail) = bare_ring(bed.pair, |ring| trips(ring, effort))?;
        let mut sqpoll = (Vec::new(), Vec::new());
        if let Some(mut ring) = has_sqpoll.then(|| Sqpoll::open(bed.pair)).flatten() {
            sqpoll = trips(&mut ring.path(), effort)?;
        }
        let (alone, alone_tail) = Alone::with(bed.pair, false, |path| trips(path, effort))?;
        let (value, value_tail) = trips(&mut queues[0], effort)?;
        let ours = |limit: Vec<f64>, limit_tail: Vec<f64>| Taken {
            value: value.clone(),
            value_tail: value_tail.clone(),
            limit,
            limit_tail,
        };
        Ok(vec![
            ours(bare.clone(), bare_tail.clone()),
            ours(vec![line], Vec::new()),
            ours(sqpoll.0, sqpoll.1),
            Taken { value: alone.clone(), value_tail: alone_tail.clone(), limit: bare, limit_tail: bare_tail },
            ours(alone, alone_tail),
        ])
    })?;
    let all = (0..).zip(TRIPS).filter(|(_, figure)| has_sqpoll || !figure.name.ends_with("-sqpoll"));
    Ok(all.map(|(at, figure)| rounds.measured(at, figure)).collect())
}

fn streaming(bed: &Bed) -> Result<Vec<Measured>> {
    let effort = bed.options.effort;
    let process = Resident::new(bed, "bench")?;
    let memory = process.device.allocate(FP_KIND_SYSTEM, 4096, 0)?;
    let address = memory.gpu_va()?;
    let mut queues = Submissions::queues(&process, |list| list.store(address, 1))?;
    let has_sqpoll = Sqpoll::open(bed.pair).is_some();
    let rounds = bed.rounds(|| {
        queues.rotate_left(1);
        bed.rest();
        let bare = bare_ring(bed.pair, |ring| stream(ring, effort))?;
        let mut sqpoll = bare.clone();
        if let Some(mut ring) = has_sqpoll.then(|| Sqpoll::open(bed.pair)).flatten() {
            sqpoll = stream(&mut ring.path(), effort)?;
        }
        let alone = Alone::with(bed.pair, true, |path| stream(path, effort))?;
        memory.write(0, &[0; 8])?;
        let value = stream(&mut queues[0], effort)?;
        ensure!(memory.read_u64(0)? == 1, "the store was not made");
        Ok(vec![
            Taken::new(value.clone(), sqpoll),
            Taken::new(value.clone(), bare.clone()),
            Taken::new(alone.clone(), bare),
            Taken::new(value, alone),
        ])
    })?;
    let of = |figure: &'static Figure| match figure.name {
        "streaming" if !has_sqpoll => &STREAMING_BESIDE_RING,
        _ => figure,
    };
    Ok((0..).zip(STREAMS).map(|(at, figure)| rounds.measured(at, of(figure))).collect())
}
