//! Which entries of drivers are under way, and since when: for those who end a run in which a driver does not come
//! back.
//!
//! A driver that loops, or waits for what never comes, keeps its thread, and no call of the model's ends. A thread that
//! is in no machine looks from outside ([`Machine::judge_returns`]), by the host's clock: whatever the machine's clock
//! does, a person waits.

use std::fmt::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::driver::EntryStack;
use crate::kernel::Machine;
use crate::rules_nt::NT_RETURN;

/// An entry that has not returned.
struct Entry {
    number: u64,
    name: &'static str,
    thread: ThreadId,
    begun: Instant,
}

/// The entries of a machine.
#[derive(Default)]
pub(crate) struct Entries {
    watched: AtomicBool,
    next: AtomicU64,
    /// In the order in which they began.
    under_way: Mutex<Vec<Entry>>,
}

/// An entry is known while this lives.
pub(crate) struct UnderWay<'a> {
    machine: &'a Machine,
    number: u64,
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.machine.entries.under_way.lock().retain(|entry| entry.number != self.number);
        self.machine.rules.count(&NT_RETURN);
    }
}

impl Machine {
    /// Has the machine note from here on which entries of drivers are under way.
    pub fn watch_returns(&self) {
        self.entries.watched.store(true, Ordering::Release);
    }

    /// Notes an entry where entries are watched. A thread of the driver's own may run for as long as it likes.
    pub(crate) fn begin_entry(&self, stack: EntryStack, name: &'static str) -> Option<UnderWay<'_>> {
        if stack == EntryStack::Thread || !self.entries.watched.load(Ordering::Acquire) {
            return None;
        }
        let number = self.entries.next.fetch_add(1, Ordering::Relaxed);
        let entry = Entry { number, name, thread: std::thread::current().id(), begun: Instant::now() };
        self.entries.under_way.lock().push(entry);
        Some(UnderWay { machine: self, number })
    }

    /// Judges whether every entry has come back within `limit` of the host's time: the machine stops otherwise, and a
    /// thread of the driver leaves at its next service, if it calls one. Returns whether they have. The calling thread
    /// may be in no machine.
    pub fn judge_returns(&self, limit: Duration) -> bool {
        let said = {
            let under_way = self.entries.under_way.lock();
            let Some(first) = under_way.iter().find(|entry| entry.begun.elapsed() >= limit) else { return true };
            let mut said = format!("{} has not come back for {} s", first.name, first.begun.elapsed().as_secs());
            // What it calls, and what has called it, is on the same thread.
            for inner in under_way.iter().filter(|other| other.thread == first.thread && other.number > first.number) {
                let _ = write!(said, ", {} in it for {} s", inner.name, inner.begun.elapsed().as_secs());
            }
            said
        };
        self.rules.broken_fatally(&NT_RETURN, said);
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::Kernel;

    #[test]
    fn an_entry_that_does_not_come_back_is_named_with_what_it_is_in() {
        let kernel = Kernel::collecting();
        let _in = kernel.enter();
        // Entries are not watched yet.
        let _ = kernel.call_driver("Before", || assert!(kernel.judge_returns(Duration::ZERO)));
        kernel.watch_returns();
        let _ = kernel.call_driver("Short", || ());
        assert!(kernel.judge_returns(Duration::ZERO), "it has come back");
        let _ = kernel.call_driver_on(EntryStack::Thread, "Thread", || assert!(kernel.judge_returns(Duration::ZERO)));
        let _ = kernel.call_driver("Outer", || {
            assert!(kernel.judge_returns(Duration::MAX), "there is time left");
            kernel.call_driver("Inner", || {
                let judge = || kernel.judge_returns(Duration::ZERO);
                assert!(!std::thread::scope(|scope| scope.spawn(judge).join().expect("no panic")));
            })
        });
        assert!(kernel.rules.is_stopped());
        let violations = kernel.rules.violations();
        assert_eq!(violations[0].rule.name, NT_RETURN.name);
        let found = &violations[0].detail;
        assert!(found.starts_with("Outer has not come back for 0 s, Inner in it for 0 s"), "{found}");
    }
}
