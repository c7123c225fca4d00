//! Many queues: what each of them submits, and what one more costs.

use super::statistics::{Better, Figure, Rounds, Taken, Target};
use super::{Bed, Benchmark, Effort, Measured, Resident, finish};
use crate::client::{List, Queue};
use anyhow::Result;
use std::time::Instant;

const ONE: Figure = Figure {
    name: "queues-1",
    about: "submissions of one NOP, a doorbell for each, by one queue; beside one queue",
    unit: "1/s",
    limit: "one queue",
    better: Better::Higher,
    target: Target::None,
};

const CROWDS: &[Figure] = &[
    ONE,
    Figure { name: "queues-16", about: "the same by 16 queues in turns", ..ONE },
    Figure { name: "queues-64", about: "the same by 64 queues in turns, as many as there are doorbells", ..ONE },
    Figure { name: "queues-256", about: "the same by 256 queues in turns, which take each other's doorbells", ..ONE },
    Figure { name: "queues-1024", about: "the same by 1,024 queues in turns", ..ONE },
    Figure {
        name: "queues-4096",
        about: "the same by 4,096 queues in turns, where this process may have as many",
        ..ONE
    },
    Figure { name: "queues-1024-global", about: "1,024 queues in turns on one global doorbell", ..ONE },
];

/// Queues of each figure but the last two.
const COUNTS: [usize; 5] = [1, 16, 64, 256, 1024];
/// Queues of the last but one.
const MANY: u64 = 4096;

const QUEUE: Figure = Figure {
    name: "queue-beside-512",
    about: "a queue created and destroyed where there are 512; beside where there is none",
    unit: "ns",
    limit: "no other queue",
    better: Better::Lower,
    target: Target::Fixed(1.2, 2.0),
};
const FENCE: Figure = Figure {
    name: "fence-beside-4096",
    about: "a native fence created and destroyed where there are 4,096; beside where there is none",
    limit: "no other fence",
    ..QUEUE
};

pub(super) const BENCHMARKS: &[Benchmark] = &[
    Benchmark { figures: CROWDS, run: crowds },
    Benchmark { figures: &[QUEUE], run: one_more_queue },
    Benchmark { figures: &[FENCE], run: one_more_fence },
];

/// Bytes of a ring.
const RING: u64 = 4096;

/// A queue and what is submitted to it.
struct Member {
    queue: Queue,
    list: List,
    last: u64,
}

impl Member {
    fn new(process: &Resident) -> Result<Self> {
        let queue = process.device.queue(0, RING, 0, 0)?;
        let mut list = queue.list()?;
        list.nop(16)?;
        Ok(Self { queue, list, last: 0 })
    }
}

/// Submissions per second, by `queues` in turns, each `times` times.
fn rate(queues: &mut [Member], times: usize) -> Result<f64> {
    let begun = Instant::now();
    for _ in 0..times {
        for member in &mut *queues {
            member.last = member.queue.submit(&mut member.list)?;
        }
    }
    queues.iter().try_for_each(|member| finish(&member.queue, member.last))?;
    Ok((queues.len() * times) as f64 / begun.elapsed().as_secs_f64())
}

/// Samples of `queues` in turns: as many submissions each, about.
fn samples(bed: &Bed, queues: &mut [Member]) -> Result<Vec<f64>> {
    let (samples, length) = bed.options.effort.of((2, 2048));
    rate(queues, 1)?;
    (0..samples).map(|_| rate(queues, length.div_ceil(queues.len()))).collect()
}

/// What a process has of something that the host limits, and the limit.
struct Limited {
    what: &'static str,
    has: u64,
    most: u64,
}

/// Descriptors and mappings of this process. Where the host does not say what is allowed, everything is.
fn limited() -> [Limited; 2] {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let limits = read("/proc/self/limits");
    let files = limits.lines().find_map(|line| line.strip_prefix("Max open files")?.split_whitespace().next());
    let maps = read("/proc/sys/vm/max_map_count");
    let number = |text: Option<&str>| text.and_then(|text| text.trim().parse().ok()).unwrap_or(u64::MAX);
    let open = std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
    [
        Limited { what: "RLIMIT_NOFILE", has: open as u64, most: number(files) },
        Limited {
            what: "vm.max_map_count",
            has: read("/proc/self/maps").lines().count() as u64,
            most: number(Some(&maps)),
        },
    ]
}

/// The limit that `count` queues would break, by what `some` of them have taken; `None`: none.
fn broken(before: &[Limited; 2], after: &[Limited; 2], some: u64, count: u64) -> Option<String> {
    before.iter().zip(after).find_map(|(before, after)| {
        let needed = before.has + after.has.saturating_sub(before.has) * count / some.max(1);
        // A queue has some for itself while it is made.
        let most = after.most;
        (needed > most - most / 32).then(|| format!("{} is {most}, and {count} queues need {needed}", before.what))
    })
}

fn crowds(bed: &Bed) -> Result<Vec<Measured>> {
    let most = bed.options.effort.count(1024, 80) as usize;
    let crowd = |bed: &Bed, count: usize| -> Result<(Resident, Vec<Member>)> {
        let process = Resident::new(bed, "bench")?;
        let queues = (0..count).map(|_| Member::new(&process)).collect::<Result<_>>()?;
        Ok((process, queues))
    };
    let before = limited();
    let after;
    let mut measured = {
        let (_process, mut queues) = crowd(bed, most)?;
        after = limited();
        let rounds = bed.rounds(|| {
            let limit = samples(bed, &mut queues[..1])?;
            let figure = |count: usize| Ok(Taken::new(samples(bed, &mut queues[..count.min(most)])?, limit.clone()));
            COUNTS.into_iter().map(figure).collect()
        })?;
        named(&rounds, &CROWDS[..COUNTS.len()])
    };
    let many = bed.options.effort.count(MANY, 100);
    if let Some(why) = broken(&before, &after, most as u64, many) {
        eprintln!("queues-4096 is left out: {why}");
    } else {
        let (_process, mut queues) = crowd(bed, many as usize)?;
        measured.extend(bed.measure(&CROWDS[COUNTS.len()], || {
            let limit = samples(bed, &mut queues[..1])?;
            // Thousands of submissions, each with a victim: one sample takes seconds.
            Ok(Taken::new(vec![rate(&mut queues, 1)?], limit))
        })?);
    }
    let global = bed.on_rung(3, &[("DoorbellModel", 1)])?;
    {
        let (_process, mut queues) = crowd(&global, most)?;
        let figure = &CROWDS[COUNTS.len() + 1];
        measured.extend(global.measure(figure, || {
            let limit = samples(&global, &mut queues[..1])?;
            Ok(Taken::new(samples(&global, &mut queues)?, limit))
        })?);
    }
    global.world.os.shut_down();
    Ok(measured)
}

fn named(rounds: &Rounds, figures: &'static [Figure]) -> Vec<Measured> {
    (0..).zip(figures).map(|(at, figure)| rounds.measured(at, figure)).collect()
}

/// Nanoseconds of making and destroying one.
fn timed<T>(effort: Effort, make: impl Fn() -> Result<T>) -> Result<Vec<f64>> {
    let (times, _) = effort.of((100, 0));
    (0..times)
        .map(|_| {
            let begun = Instant::now();
            drop(make()?);
            Ok(begun.elapsed().as_nanos() as f64)
        })
        .collect()
}

/// One more of what `make` makes, beside `count` of them.
fn one_more<T>(bed: &Bed, figure: &'static Figure, count: u64, make: impl Fn() -> Result<T>) -> Result<Vec<Measured>> {
    bed.measure(figure, || {
        let limit = timed(bed.options.effort, &make)?;
        let others: Vec<T> = (0..count).map(|_| make()).collect::<Result<_>>()?;
        let value = timed(bed.options.effort, &make)?;
        drop(others);
        Ok(Taken::new(value, limit))
    })
}

fn one_more_queue(bed: &Bed) -> Result<Vec<Measured>> {
    let process = Resident::new(bed, "bench")?;
    one_more(bed, &QUEUE, bed.options.effort.count(512, 20), || Ok(process.device.queue(0, RING, 0, 0)?))
}

fn one_more_fence(bed: &Bed) -> Result<Vec<Measured>> {
    let process = Resident::new(bed, "bench")?;
    one_more(bed, &FENCE, bed.options.effort.count(4096, 50), || Ok(process.device.fence(0, 0)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_that_would_be_broken_is_named() {
        let with = |files, maps| {
            [
                Limited { what: "RLIMIT_NOFILE", has: files, most: 20_000 },
                Limited { what: "vm.max_map_count", has: maps, most: 65_530 },
            ]
        };
        let before = with(100, 500);
        assert_eq!(broken(&before, &with(4196, 6644), 1024, 4096), None);
        let files = broken(&before, &with(5220, 6644), 1024, 4096);
        assert_eq!(files.as_deref(), Some("RLIMIT_NOFILE is 20000, and 4096 queues need 20580"));
        let maps = broken(&before, &with(4196, 17_000), 1024, 4096);
        assert_eq!(maps.as_deref(), Some("vm.max_map_count is 65530, and 4096 queues need 66500"));
        assert!(limited().iter().all(|limited| limited.has > 2 && limited.has < limited.most));
    }
}
