//! Whether the host lets the threads of this process run.
//!
//! Source: proc_pid_stat(5); Documentation/scheduler/sched-stats.rst of Linux.

use std::collections::BTreeMap;
use std::ffi::OsString;

use crate::kernel::Machine;

impl Machine {
    /// Returns whether a thread of this process was ready to run for all of `time`, in units of 100 ns, and the host
    /// had no processor for it. Takes so long. `false` where the scheduler decides who runs, and where the host does
    /// not say.
    ///
    /// IRQL: PASSIVE_LEVEL.
    #[track_caller]
    pub fn is_starved(&self, time: i64) -> bool {
        if self.interposes() {
            return false;
        }
        let before = ready();
        self.delay_execution(-time);
        let after = ready();
        before.iter().any(|(thread, ran)| after.get(thread) == Some(ran))
    }
}

/// The threads that run or are ready to, with how long and how often each has run.
fn ready() -> BTreeMap<OsString, String> {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let ready = tasks.filter_map(|task| {
        let stat = std::fs::read_to_string(task.path().join("stat")).ok()?;
        let state = stat.rsplit(") ").next()?;
        let ran = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
        state.starts_with('R').then(|| (task.file_name(), ran))
    });
    ready.collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use crate::{Kernel, KernelConfig};

    /// Twenty milliseconds.
    const SLICE: i64 = 200_000;

    /// More threads than processors, which all want to run.
    #[test]
    fn a_crowd_of_busy_threads_is_starved() {
        let over = Arc::new(AtomicBool::new(false));
        let crowd = std::thread::available_parallelism().map_or(1, usize::from) * 16;
        let busy = |_| {
            let over = over.clone();
            std::thread::spawn(move || while !over.load(Ordering::Relaxed) {})
        };
        let threads: Vec<_> = (0..crowd).map(busy).collect();
        let kernel = Kernel::new(KernelConfig::collecting());
        let entered = kernel.enter();
        let starved = (0..50).any(|_| kernel.is_starved(SLICE));
        drop(entered);
        over.store(true, Ordering::Relaxed);
        for thread in threads {
            thread.join().expect("it ends");
        }
        assert!(starved);
    }
}
