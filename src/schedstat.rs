//! What Linux counts of a thread: how long it ran, and how long it was ready to run without a processor.
//!
//! Source: Documentation/scheduler/sched-stats.rst, `/proc/<pid>/schedstat`: the first and the second number, in
//! nanoseconds.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

/// Times of a thread since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Schedstat {
    /// For how long it has run.
    pub ran: Duration,
    /// For how long it was ready to run, and waited for a processor.
    pub waited: Duration,
}

impl Schedstat {
    /// Of the thread whose folder below `/proc` this is. `None`: it has ended, or the kernel does not count.
    pub fn of(thread: &Path) -> Option<Self> {
        let text = std::fs::read_to_string(thread.join("schedstat")).ok()?;
        let mut numbers = text.split_whitespace().map(|field| field.parse().map(Duration::from_nanos));
        Some(Self { ran: numbers.next()?.ok()?, waited: numbers.next()?.ok()? })
    }

    /// Of the calling thread; zeros where the kernel does not count.
    pub fn own() -> Self {
        Self::of(Path::new("/proc/thread-self")).unwrap_or_default()
    }

    /// Of each thread of this process, by its number. Empty where the kernel does not count.
    pub fn all() -> BTreeMap<i32, Self> {
        let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
        tasks.filter_map(|task| Some((task.file_name().to_str()?.parse().ok()?, Self::of(&task.path())?))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::Schedstat;

    #[test]
    fn a_thread_that_computes_has_run() {
        let before = Schedstat::own();
        let mut after = before;
        while after.ran == before.ran {
            (0..1_000_000_u32).for_each(|number| {
                std::hint::black_box(number);
            });
            after = Schedstat::own();
        }
        assert!(after.ran > before.ran && after.waited >= before.waited);
        assert!(Schedstat::all().values().any(|one| one.ran >= after.ran));
        assert_eq!(Schedstat::of(std::path::Path::new("/proc/0")), None);
    }
}
