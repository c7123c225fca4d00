//! A client that is a Linux process of its own: what it submits by doorbell, until it sees the end.

use super::statistics::{Better, Figure, Taken, Target};
use super::{Bed, Benchmark, Measured, Resident, hot, path};
use anyhow::{Context, Result, ensure};

const TRIP: Figure = Figure {
    name: "process-round-trip",
    about: "a doorbell rung by a Linux process of its own, until it sees the end; beside one within",
    unit: "ns",
    limit: "within one process",
    better: Better::Lower,
    target: Target::Fixed(1.1, 1.5),
};

pub(super) const BENCHMARKS: &[Benchmark] = &[Benchmark { figures: &[TRIP], run: round_trip }];

fn round_trip(bed: &Bed) -> Result<Vec<Measured>> {
    let effort = bed.options.effort;
    let (batches, _) = effort.of((300, 0));
    // Doorbells stay connected over the pauses between rounds.
    let bed = bed.with(3, &[("IdleMilliseconds", 0)], |personality| personality.separate_processes = true)?;
    let measured = {
        let mut client = bed.world.separate("trips")?;
        client.expect("connected")?;
        let process = Resident::new(&bed, "bench")?;
        let mut queues = hot::Submissions::queues(&process, |list| list.nop(16))?;
        let measured = bed.measure(&TRIP, || {
            queues.rotate_left(1);
            bed.rest();
            let (limit, _) = path::trips(&mut queues[0], effort)?;
            bed.rest();
            let before = client.messages();
            client.say(&batches.to_string())?;
            let line = client.hear()?;
            ensure!(client.messages() == before, "messages while it submits");
            let value = line.split(' ').map(|number| number.parse().context("a time")).collect::<Result<Vec<f64>>>()?;
            Ok(Taken::new(value, limit))
        })?;
        client.say("0")?;
        ensure!(client.exit()?.success(), "the client failed");
        measured
    };
    bed.world.os.shut_down();
    Ok(measured)
}
