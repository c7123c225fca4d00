//! Fence logs that say too little: overrun, without times, replaced at the wrong moment; and what the model makes of
//! them.

use dxgkrnl_model::os::Os;
use dxgkrnl_model::personality::Personality;
use dxgkrnl_model::process::End;
use dxgkrnl_model::report::{LogLoss, LogRecord, Report};
use std::sync::atomic::Ordering;
use wddm_abi::NTSTATUS;

use crate::assert_clean;
use crate::client::queue::{Queue, Ring};
use crate::client::{Client, Device, Fence, Memory};
use crate::tour::{Ended, play, windows};
use crate::toy::gpu::opcode;
use crate::toy::{Options, Toy};

/// A user-mode queue with two fences.
struct Bench<'a> {
    os: &'a Os,
    toy: &'a Toy,
    device: &'a Device<'a>,
    commands: Memory,
    queue: Queue,
    ring: Ring,
    watched: Fence,
    other: Fence,
}

impl Bench<'_> {
    /// Submits signals in one buffer and waits for their end by looking: no wait of the CPU comes into being.
    fn signal(&mut self, signals: &[(Fence, u64)]) -> Result<(), NTSTATUS> {
        let words: Vec<u64> = signals
            .iter()
            .flat_map(|(fence, value)| [opcode::SIGNAL, fence.gpu, *value, fence.handle.into()])
            .chain([opcode::WRITE, self.commands.gpu, self.commands.read(0) + 1])
            .collect();
        let before = self.commands.read(0);
        self.device.ring_up(&mut self.ring, self.commands, 64, &words)?;
        while self.commands.read(0) == before {
            self.device.client.pass(1);
        }
        self.device.client.pass(2);
        Ok(())
    }

    /// `count` signals of the fence that nobody waits for.
    fn others(&self, from: u64, count: u64) -> Vec<(Fence, u64)> {
        (from..from + count).map(|value| (self.other, value)).collect()
    }

    /// Entries of its log of signals.
    fn room(&self) -> u32 {
        self.room_of(self.queue)
    }

    fn room_of(&self, queue: Queue) -> u32 {
        let logs = self.os.fence_logs(&self.os.adapters()[0]);
        logs.iter().find(|log| !log.is_wait_log && log.queue == queue.handle).map_or(0, |log| log.entries)
    }
}

/// Plays `act` on a queue of a toy.
fn on_a_queue(
    options: Options,
    personality: Personality,
    act: impl FnOnce(&mut Bench<'_>) -> Result<(), NTSTATUS>,
) -> Ended {
    play(options, personality, 1, |os, toy| {
        let process = os.create_process("logs.exe");
        let result = (|| {
            let client = Client::new(os, &process)?;
            let device = client.device()?;
            let commands = device.memory(0x10000, 0)?;
            let queue = device.queue(true)?;
            let ring = device.ring(queue)?;
            let (watched, other) = (device.native_fence()?, device.native_fence()?);
            act(&mut Bench { os, toy, device: &device, commands, queue, ring, watched, other })?;
            device.destroy()
        })();
        process.end(if result.is_err() { End::Terminated } else { End::Normal });
        result.map_err(|status: NTSTATUS| format!("{status:?}"))
    })
}

fn optimized() -> Options {
    Options { optimized: true, ..Options::default() }
}

/// The interrupt names a queue, and the log has no entry of the fence that is waited for: the fences' values say
/// it.
#[test]
fn an_overrun_log_ends_waits_by_the_values_of_fences() {
    let mut personality = windows();
    personality.log_entries = 4;
    let ended = on_a_queue(optimized(), personality, |bench| {
        let waiter = bench.device.begin_wait(bench.watched.handle, 1)?;
        let mut signals = vec![(bench.watched, 1)];
        signals.extend(bench.others(1, 20));
        bench.signal(&signals)?;
        bench.device.end_wait(&waiter)
    });
    assert_clean(&ended, "overrun");
    let counts = &ended.report.counts;
    assert!(counts.log_overruns >= 1 && counts.log_scans >= 1, "{counts:?}");
    assert_eq!((counts.fence_scans, &ended.report.losses), (0, &Vec::new()));
}

/// The interrupt is served after the log was replaced: what the old buffer held wakes all the same.
#[test]
fn what_a_replaced_log_held_ends_waits() {
    let ended = on_a_queue(optimized(), windows(), |bench| {
        let waiter = bench.device.begin_wait(bench.watched.handle, 1)?;
        bench.toy.silent.store(true, Ordering::Release);
        bench.signal(&[(bench.watched, 1)])?;
        bench.os.recreate_fence_logs(&bench.os.adapters()[0]);
        let others = bench.others(1, 3);
        bench.signal(&others)?;
        bench.toy.silent.store(false, Ordering::Release);
        bench.toy.poke();
        bench.device.end_wait(&waiter)
    });
    assert_clean(&ended, "replaced");
    assert_eq!(ended.report.counts.fence_scans, 0);
}

fn of_signals(report: &Report, fence: u32) -> Vec<LogRecord> {
    report.log.iter().filter(|record| !record.is_wait_log && record.fence == fence).copied().collect()
}

/// While somebody traces, what was lost is marked where it belongs, and the next buffer has room.
#[test]
fn a_traced_log_marks_what_was_lost_and_grows() {
    for optimized in [false, true] {
        let mut personality = windows();
        (personality.log_entries, personality.traced_log_pages) = (8, 0);
        let (mut fence, mut rooms) = (0, [0; 2]);
        let ended = on_a_queue(Options { optimized, ..Options::default() }, personality, |bench| {
            fence = bench.other.handle;
            bench.os.set_fence_tracing(true);
            let first = bench.others(1, 3);
            bench.signal(&first)?;
            bench.os.report();
            let many = bench.others(4, 100);
            bench.signal(&many)?;
            rooms[0] = bench.room();
            bench.os.report();
            // The worker makes larger ones.
            bench.device.client.pass(20);
            rooms[1] = bench.room();
            let again = bench.others(104, 100);
            bench.signal(&again)
        });
        assert_clean(&ended, "traced");
        let report = &ended.report;
        assert_eq!(rooms[0], 8);
        // 101 entries (a progress fence's among them) came between two looks: twice as many, in whole pages.
        assert_eq!(rooms[1], 255, "{rooms:?}");
        assert_eq!((report.counts.log_overruns, report.losses.len()), (1, 1));
        let LogLoss { lost, after, before, at, is_wait_log, .. } = report.losses[0];
        let values: Vec<_> = of_signals(report, fence).iter().map(|record| record.value).collect();
        // Of the 101 the last eight were there: seven, and the signal of the progress fence.
        assert_eq!(values, (1..=3).chain(97..=203).collect::<Vec<_>>(), "{:?}", report.losses);
        assert_eq!((lost, is_wait_log), (93, false));
        assert_eq!(report.log[at].value, 97);
        assert!(report.log[..at].iter().all(|record| record.end <= after), "{after}");
        assert!(after < before && before == report.log[at].end);
        let timed = report.lost_events(10_000_000);
        assert_eq!(timed.len(), 1);
        let times = report.timeline(10_000_000);
        assert!(timed[0].cpu_after <= timed[0].cpu_before);
        let hidden = |cpu: u64| timed[0].cpu_after < cpu && cpu < timed[0].cpu_before;
        assert!(!times.iter().any(|time| hidden(time.cpu_end)), "{timed:?}");
    }
}

/// Tracing alone gives a log more pages, which GPU, paging process and CPU see at once; it ends, and new queues are
/// small.
#[test]
fn a_traced_log_has_more_pages() {
    let mut rooms = Vec::new();
    let ended = on_a_queue(Options::default(), windows(), |bench| {
        rooms.push(bench.room());
        bench.os.set_fence_tracing(true);
        rooms.push(bench.room());
        let many = bench.others(1, 300);
        bench.signal(&many)?;
        bench.os.set_fence_tracing(false);
        rooms.push(bench.room());
        let queue = bench.device.queue(true)?;
        rooms.push(bench.room_of(queue));
        Ok(())
    });
    assert_clean(&ended, "pages");
    assert_eq!(rooms, [84, 340, 340, 84]);
    assert_eq!(ended.report.counts.log_overruns, 0);
    assert!(ended.report.log.len() >= 300);
}

/// Without a trace nothing is marked and nothing grows.
#[test]
fn an_overrun_log_that_nobody_traces_stays_as_it_is() {
    let mut personality = windows();
    personality.log_entries = 8;
    let mut room = 0;
    let ended = on_a_queue(Options::default(), personality, |bench| {
        let many = bench.others(1, 100);
        bench.signal(&many)?;
        bench.os.report();
        bench.device.client.pass(20);
        room = bench.room();
        Ok(())
    });
    assert_clean(&ended, "untraced");
    assert_eq!((room, ended.report.counts.log_overruns, ended.report.losses.len()), (8, 1, 0));
}

/// Entries whose write was skipped have no times: nothing is wrong with them, and a timeline has no place for them.
#[test]
fn times_may_be_missing_or_repeat() {
    let options = Options { skips_writes: true, ..Options::default() };
    let mut fence = 0;
    let ended = on_a_queue(options, windows(), |bench| {
        fence = bench.other.handle;
        let many = bench.others(1, 16);
        bench.signal(&many)
    });
    assert_clean(&ended, "skipped");
    let ends: Vec<_> = of_signals(&ended.report, fence).iter().map(|record| record.end).collect();
    assert_eq!(ends.len(), 16);
    assert_eq!(ends.iter().filter(|end| **end == 0).count(), 8, "{ends:?}");
    let known: Vec<_> = ends.iter().copied().filter(|end| *end != 0).collect();
    assert!(known.is_sorted() && known.windows(2).any(|pair| pair[0] == pair[1]), "{ends:?}");
    let placed = ended.report.timeline(10_000_000).iter().filter(|timed| timed.record.fence == fence).count();
    assert_eq!(placed, 8);
}
