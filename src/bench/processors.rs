//! Where threads run, what they took of the processors, and what others did.

use crate::schedstat::Schedstat;
use anyhow::{Context, Result, ensure};
use rustix::thread::{CpuSet, Pid, gettid, sched_getaffinity, sched_setaffinity};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

/// Two processors: who submits runs on the one, who executes on the other.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pair {
    pub producer: usize,
    pub engine: usize,
}

impl Pair {
    /// The first two that this process may run on.
    ///
    /// # Errors
    /// When there is only one.
    pub fn find() -> Result<Self> {
        let allowed = sched_getaffinity(None).context("the processors of this process")?;
        let mut allowed = (0..CpuSet::MAX_CPU).filter(|number| allowed.is_set(*number));
        match (allowed.next(), allowed.next()) {
            (Some(producer), Some(engine)) => Ok(Self { producer, engine }),
            _ => anyhow::bail!("benchmarks need two processors, and this process may run on one alone"),
        }
    }
}

/// Puts a thread of this process on `processor`; `None`: the calling thread.
pub(super) fn pin(thread: Option<Pid>, processor: usize) -> Result<()> {
    let mut set = CpuSet::new();
    set.set(processor);
    sched_setaffinity(thread, &set).with_context(|| format!("a thread cannot be put on processor {processor}"))
}

/// The calling thread is on one processor as long as this lives.
pub(super) struct Pinned {
    before: CpuSet,
}

impl Pinned {
    pub fn to(processor: usize) -> Result<Self> {
        let before = sched_getaffinity(None).context("the processors of a thread")?;
        pin(None, processor)?;
        Ok(Self { before })
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // It was so before; if it cannot be so again, the thread stays where it is.
        let _ = sched_setaffinity(None, &self.before);
    }
}

/// Runs `f` with the calling thread on either processor.
pub(super) fn on_either<R>(pair: Pair, f: impl FnOnce() -> R) -> Result<R> {
    let mut set = CpuSet::new();
    set.set(pair.producer);
    set.set(pair.engine);
    let before = sched_getaffinity(None).context("the processors of a thread")?;
    sched_setaffinity(None, &set).context("a thread cannot be put on two processors")?;
    let result = f();
    sched_setaffinity(None, &before).context("a thread cannot be put back")?;
    Ok(result)
}

/// Threads of this process, and the nanoseconds that each has run.
pub(super) fn threads() -> Result<BTreeMap<i32, u64>> {
    let all = Schedstat::all();
    ensure!(!all.is_empty(), "/proc/self/task/*/schedstat: this kernel does not say how long threads ran");
    Ok(all.into_iter().map(|(number, thread)| (number, nanoseconds(thread.ran))).collect())
}

fn nanoseconds(time: Duration) -> u64 {
    // CAST: it was read as one.
    time.as_nanos() as u64
}

/// The thread that runs longest while `work` is done, of those that `known` does not have and the caller is not.
pub(super) fn busiest(known: &BTreeMap<i32, u64>, work: impl FnOnce() -> Result<()>) -> Result<Option<Pid>> {
    let before = threads()?;
    work()?;
    let own = gettid().as_raw_pid();
    let ran = |number: i32, after: u64| after.saturating_sub(before.get(&number).copied().unwrap_or(0));
    let strangers = threads()?.into_iter().filter(|(number, _)| *number != own && !known.contains_key(number));
    let most = strangers.max_by_key(|(number, after)| ran(*number, *after));
    Ok(most.and_then(|(number, _)| Pid::from_raw(number)))
}

/// Nanoseconds that `thread` has run; 0 of one that has ended.
pub(super) fn ran(thread: Pid) -> u64 {
    let folder = format!("/proc/self/task/{}", thread.as_raw_pid());
    Schedstat::of(Path::new(&folder)).map_or(0, |thread| nanoseconds(thread.ran))
}

/// Leaves the processor for `time`.
pub(super) fn pause(time: Duration) {
    let until = Instant::now() + time;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        std::thread::park_timeout(left);
    }
}

/// What the machine's processors were used for up to a moment, in hundredths of a second.
struct Used {
    all: u64,
    own: u64,
}

impl Used {
    fn now() -> Option<Self> {
        let machine = std::fs::read_to_string("/proc/stat").ok()?;
        // user nice system idle iowait irq softirq steal: what the host took counts as other work.
        let numbers: Vec<u64> =
            machine.lines().next()?.split_whitespace().skip(1).filter_map(|word| word.parse().ok()).collect();
        let all = numbers.iter().take(3).chain(numbers.iter().skip(5).take(3)).sum();
        let own = std::fs::read_to_string("/proc/self/stat").ok()?;
        // The name, which may have spaces, ends at the last parenthesis; utime and stime are 11 words behind the next.
        let own =
            own.rsplit_once(')')?.1.split_whitespace().skip(11).take(2).filter_map(|word| word.parse::<u64>().ok());
        Some(Self { all, own: own.sum() })
    }
}

/// Measures what other work takes of the processors.
pub(super) struct Load {
    begun: Instant,
    before: Option<Used>,
}

impl Load {
    pub fn begin() -> Self {
        Self { begun: Instant::now(), before: Used::now() }
    }

    /// Processors that other processes and the host took since; 0 where the kernel does not say.
    pub fn others(&self) -> f64 {
        /// Per second, of the numbers in `/proc`, on every Linux.
        const TICKS: f64 = 100.0;
        let (Some(before), Some(now)) = (&self.before, Used::now()) else { return 0.0 };
        let others = (now.all - before.all) as f64 - (now.own - before.own) as f64;
        (others / TICKS / self.begun.elapsed().as_secs_f64()).max(0.0)
    }
}

/// The load of the last minute, as the kernel counts it, which leaves this process in.
pub fn load_average() -> Option<f64> {
    std::fs::read_to_string("/proc/loadavg").ok()?.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    /// Two processors, or one twice where there is no other.
    fn pair() -> Result<Pair> {
        let allowed = sched_getaffinity(None)?;
        let mut numbers = (0..CpuSet::MAX_CPU).filter(|number| allowed.is_set(*number));
        let producer = numbers.next().context("a processor")?;
        Ok(Pair { producer, engine: numbers.next().unwrap_or(producer) })
    }

    #[test]
    fn one_processor_is_refused_with_a_sentence() -> Result<()> {
        let _pinned = Pinned::to(pair()?.engine)?;
        let refusal = Pair::find().expect_err("there is one processor").to_string();
        assert!(refusal.contains("two processors"), "{refusal}");
        Ok(())
    }

    #[test]
    fn the_thread_that_works_is_found_and_pinned() -> Result<()> {
        let pair = pair()?;
        let (known, stop) = (threads()?, AtomicBool::new(false));
        std::thread::scope(|scope| -> Result<()> {
            let number = scope.spawn(|| {
                let own = gettid();
                while !stop.load(Ordering::Acquire) {
                    std::hint::spin_loop();
                }
                (own, rustix::thread::sched_getcpu())
            });
            let found = busiest(&known, || {
                pause(Duration::from_millis(40));
                Ok(())
            });
            if let Ok(Some(found)) = &found {
                pin(Some(*found), pair.engine)?;
                pause(Duration::from_millis(20));
            }
            stop.store(true, Ordering::Release);
            let (own, processor) = number.join().ok().context("the thread ended")?;
            // Other tests of this process may have made a thread that works, too.
            if found? == Some(own) {
                ensure!(processor == pair.engine, "on {processor}");
            }
            Ok(())
        })
    }

    #[test]
    fn a_thread_is_put_back() -> Result<()> {
        let before = sched_getaffinity(None)?;
        let pair = pair()?;
        let pinned = Pinned::to(pair.engine)?;
        assert_eq!((sched_getaffinity(None)?.count(), rustix::thread::sched_getcpu()), (1, pair.engine));
        drop(pinned);
        assert_eq!(sched_getaffinity(None)?, before);
        Ok(())
    }

    #[test]
    fn a_pause_is_not_cut_short() {
        let begun = Instant::now();
        std::thread::current().unpark();
        pause(Duration::from_millis(5));
        assert!(begun.elapsed() >= Duration::from_millis(5));
    }
}
