//! What is dear about doorbells, and seldom: a connection, one that takes another queue's doorbell, a notification, an
//! engine in F1.

use super::statistics::{Better, Figure, Taken, Target};
use super::{Bed, Benchmark, Measured, PATIENCE, RING, Resident, finish, limits, pause};
use crate::client::{List, Queue};
use anyhow::{Result, ensure};
use std::time::{Duration, Instant};

const CONNECT: Figure = Figure {
    name: "connect",
    about: "a submission that finds its doorbell disconnected, until it is done; beside a connected one",
    unit: "ns",
    limit: "a connected doorbell",
    better: Better::Lower,
    target: Target::None,
};
const VICTIM: Figure = Figure {
    name: "victim",
    about: "the same where the only physical doorbell is another queue's, which loses it",
    ..CONNECT
};
const NOTIFY: Figure = Figure {
    name: "notify",
    about: "a submission by CONNECTED_NOTIFY, until it is done; beside one by CONNECTED",
    ..CONNECT
};
const F1: Figure = Figure {
    name: "f1-wake",
    about: "a submission to an engine in F1, until it is done; beside a futex wake",
    limit: "futex wake",
    ..CONNECT
};

pub(super) const BENCHMARKS: &[Benchmark] = &[
    Benchmark { figures: &[CONNECT], run: connect },
    Benchmark { figures: &[VICTIM], run: victim },
    Benchmark { figures: &[NOTIFY], run: notify },
    Benchmark { figures: &[F1], run: from_f1 },
];

/// Time enough for an engine to find no work; it asks for F1 behind this.
const IDLE: u64 = 5;

/// A queue and what is submitted to it.
struct Client {
    queue: Queue,
    list: List,
}

impl Client {
    fn new(process: &Resident) -> Result<Self> {
        let queue = process.device.queue(0, RING, 0, 0)?;
        let mut list = queue.list()?;
        list.nop(16)?;
        let mut client = Self { queue, list };
        client.trip()?;
        Ok(client)
    }

    /// Nanoseconds of a submission, until it is seen to be done.
    fn trip(&mut self) -> Result<f64> {
        let begun = Instant::now();
        let value = self.queue.submit(&mut self.list)?;
        finish(&self.queue, value)?;
        Ok(begun.elapsed().as_nanos() as f64)
    }
}

/// So many trips.
fn trips(times: usize, trip: impl FnMut() -> Result<f64>) -> Result<Vec<f64>> {
    std::iter::repeat_with(trip).take(times).collect()
}

fn connect(bed: &Bed) -> Result<Vec<Measured>> {
    let (times, _) = bed.options.effort.of((200, 0));
    let adapter = bed.adapter()?;
    let process = Resident::new(bed, "bench")?;
    let mut client = Client::new(&process)?;
    bed.measure(&CONNECT, || {
        bed.rest();
        client.trip()?;
        let limit = trips(times, || client.trip())?;
        let before = client.queue.counters()?.reconnects;
        let value = trips(times, || {
            bed.world.os.disconnect_doorbells(&adapter, false);
            client.trip()
        })?;
        let connections = client.queue.counters()?.reconnects - before;
        ensure!(
            connections >= times as u64,
            "{connections} connections in {times} submissions: doorbells are on rung 3"
        );
        Ok(Taken::new(value, limit))
    })
}

fn victim(bed: &Bed) -> Result<Vec<Measured>> {
    let (times, _) = bed.options.effort.of((200, 0));
    let bed = bed.on_rung(3, &[("PhysicalDoorbells", 1), ("IdleMilliseconds", 0)])?;
    let measured = {
        let process = Resident::new(&bed, "bench")?;
        let mut clients = [Client::new(&process)?, Client::new(&process)?];
        bed.measure(&VICTIM, || {
            clients[0].trip()?;
            let limit = trips(times, || clients[0].trip())?;
            let connections = |clients: &[Client]| -> Result<u64> {
                clients.iter().map(|client| Ok(client.queue.counters()?.reconnects)).sum()
            };
            let before = connections(&clients)?;
            let value = trips(times, || {
                clients.reverse();
                clients[0].trip()
            })?;
            let taken = connections(&clients)? - before;
            ensure!(
                taken + 1 >= times as u64,
                "{taken} connections in {times} submissions: no doorbell changes hands, which takes dedicated ones, on \
                 rung 3"
            );
            Ok(Taken::new(value, limit))
        })?
    };
    bed.world.os.shut_down();
    Ok(measured)
}

fn notify(bed: &Bed) -> Result<Vec<Measured>> {
    let (times, _) = bed.options.effort.of((200, 0));
    let told = bed.on_rung(3, &[("ConnectNotify", 1)])?;
    // A process at a time, since a thread is in one machine at a time.
    let trips_on = |bed: &Bed| -> Result<_> {
        let process = Resident::new(bed, "bench")?;
        let mut client = Client::new(&process)?;
        client.trip()?;
        let before = client.queue.counters()?.notifies;
        Ok((trips(times, || client.trip())?, client.queue.counters()?.notifies - before))
    };
    let measured = bed.measure(&NOTIFY, || {
        bed.rest();
        let (limit, untold) = trips_on(bed)?;
        let (value, notified) = trips_on(&told)?;
        ensure!((untold, notified) == (0, times as u64), "{untold} and {notified} notifications");
        Ok(Taken::new(value, limit))
    })?;
    told.world.os.shut_down();
    Ok(measured)
}

fn from_f1(bed: &Bed) -> Result<Vec<Measured>> {
    let (times, _) = bed.options.effort.of((20, 0));
    let bed = bed.on_rung(3, &[("PowerComponents", 1), ("IdleMilliseconds", IDLE)])?;
    let adapter = bed.adapter()?;
    let measured = {
        let process = Resident::new(&bed, "bench")?;
        let mut client = Client::new(&process)?;
        bed.measure(&F1, || {
            let limit = limits::futex_wake(bed.pair.engine, Duration::from_millis(IDLE), times)?;
            let value = trips(times, || {
                let since = Instant::now();
                while bed.world.os.f_state(&adapter, 0) != Some(1) {
                    ensure!(since.elapsed() < PATIENCE, "the engine does not get to F1");
                    pause(Duration::from_millis(1));
                }
                client.trip()
            })?;
            Ok(Taken::new(value, limit))
        })?
    };
    bed.world.os.shut_down();
    Ok(measured)
}
