//! Threads inside thunks while their process ends.
//!
//! No thunk begins once the end has begun, and nothing is destroyed while one runs: an object that is made behind the
//! destruction of all others would stay for ever. A thread that waits for a fence is let go; everything else that a
//! thunk does comes to its end by itself.
//!
//! Source: "How User-Mode Work Submission works", termination; NT ends a process's threads before its handles.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use nt_model::Machine;
use nt_model::sched::TICKS_PER_MS;

use super::ProcessInner;
use crate::device::Device;

/// What a process knows of its threads inside.
#[derive(Debug)]
pub(super) struct Rundown {
    ending: AtomicBool,
    inside: AtomicUsize,
}

/// A thread is inside a thunk while this lives.
#[derive(Debug)]
pub(crate) struct Admitted(Arc<ProcessInner>);

impl Drop for Admitted {
    fn drop(&mut self) {
        self.0.rundown.inside.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Lets a thread in. `None`: the process is ending.
pub(super) fn admit(process: &Arc<ProcessInner>) -> Option<Admitted> {
    // Counted first: either the end sees the count, or this sees the end.
    process.rundown.inside.fetch_add(1, Ordering::SeqCst);
    let admitted = Admitted(process.clone());
    (!process.rundown.ending.load(Ordering::SeqCst)).then_some(admitted)
}

impl Rundown {
    pub(super) fn new() -> Self {
        Self { ending: AtomicBool::new(false), inside: AtomicUsize::new(0) }
    }

    /// No thread is let in any more. Returns `false` where that is so already.
    pub(super) fn begin(&self) -> bool {
        !self.ending.swap(true, Ordering::SeqCst)
    }

    /// Waits until no thread is inside. Waits of threads on `devices` are given up.
    ///
    /// IRQL: PASSIVE_LEVEL.
    pub(super) fn wait(&self, machine: &Machine, devices: impl Fn() -> Vec<Arc<Device>>) {
        while self.inside.load(Ordering::SeqCst) != 0 && !machine.rules.is_stopped() {
            for device in devices() {
                device.abandon_waits();
            }
            // CAST: a constant.
            machine.delay_execution(-(TICKS_PER_MS as i64));
        }
    }
}
