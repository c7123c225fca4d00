//! Threads inside thunks while their process ends, or while an adapter is stopped under it.
//!
//! Nothing is destroyed while a thread is at work inside: an object that is made behind the destruction of all others
//! would stay for ever. No thunk begins once the end has begun; while an adapter is stopped, a thunk begins behind the
//! stop. A thread that waits for a fence is let go by the end, and does not keep a stop waiting; everything else that a
//! thunk does comes to its end by itself.
//!
//! Source: "How User-Mode Work Submission works", termination; NT ends a process's threads before its handles.

use std::sync::Arc;

use nt_model::Machine;
use nt_model::sched::TICKS_PER_MS;

use super::ProcessInner;
use crate::objects::device::Device;
use crate::port::hook::Hook;
use crate::port::miniport::Miniport;
use crate::port::sync::{Lock, Rank};

/// What a process knows of its threads inside.
#[derive(Debug)]
pub(super) struct Rundown(Lock<Inside>);

#[derive(Debug, Default)]
struct Inside {
    /// Threads that do something.
    working: usize,
    /// Threads that wait for a fence.
    waiting: usize,
    /// An adapter is being stopped under the process.
    destroying: bool,
    ending: bool,
    ended: bool,
}

/// A thread is inside a thunk while this lives.
#[derive(Debug)]
pub(crate) struct Admitted(Arc<ProcessInner>);

impl Drop for Admitted {
    fn drop(&mut self) {
        self.0.rundown.0.lock().working -= 1;
    }
}

/// An adapter is being stopped under the process while this lives: no thread is at work inside.
#[derive(Debug)]
pub(super) struct Stopping<'a>(&'a Rundown);

impl Drop for Stopping<'_> {
    fn drop(&mut self) {
        self.0.0.lock().destroying = false;
    }
}

/// Lets a thread in, behind a stop of an adapter that is under way. `None`: the process is ending.
///
/// IRQL: PASSIVE_LEVEL.
pub(super) fn admit(process: &Arc<ProcessInner>, machine: &Machine) -> Option<Admitted> {
    let rundown = &process.rundown;
    rundown.when(
        machine,
        |inside| inside.ending || !inside.destroying,
        |inside| {
            inside.working += usize::from(!inside.ending);
            (!inside.ending).then(|| Admitted(process.clone()))
        },
    )?
}

impl Admitted {
    /// Runs `wait`, which waits for a fence, as a thread that keeps no stop of an adapter waiting.
    ///
    /// IRQL: PASSIVE_LEVEL.
    pub(crate) fn waiting<R>(&self, machine: &Machine, wait: impl FnOnce() -> R) -> R {
        let rundown = &self.0.rundown;
        {
            let mut inside = rundown.0.lock();
            inside.working -= 1;
            inside.waiting += 1;
        }
        let answer = wait();
        // The end waits for those that wait as well.
        let back = |inside: &mut Inside| {
            inside.working += 1;
            inside.waiting -= 1;
        };
        if rundown.when(machine, |inside| !inside.destroying, back).is_none() {
            back(&mut rundown.0.lock());
        }
        answer
    }
}

/// Looks, when a process ends, for what its driver has not told: the recovery enters it as a [`Hook`]. IRQL:
/// PASSIVE_LEVEL.
pub(crate) type AtEnd = fn(&Miniport);

impl Rundown {
    pub(super) fn new() -> Self {
        Self(Lock::new(Rank::Registry, Inside::default()))
    }

    /// Waits until `ready`, and does `then` in the same section. `None`: the machine has stopped before.
    fn when<R>(
        &self,
        machine: &Machine,
        ready: impl Fn(&Inside) -> bool,
        then: impl FnOnce(&mut Inside) -> R,
    ) -> Option<R> {
        loop {
            {
                let mut inside = self.0.lock();
                if ready(&inside) {
                    return Some(then(&mut inside));
                }
            }
            if machine.rules.is_stopped() {
                return None;
            }
            // CAST: a constant.
            machine.delay_execution(-(TICKS_PER_MS as i64));
        }
    }

    /// Waits until no thread is at work inside, and lets none in until the guard is dropped. `None`: the process is
    /// ending, or the machine has stopped; where it is ending, its end is over.
    ///
    /// IRQL: PASSIVE_LEVEL.
    pub(super) fn stop(&self, machine: &Machine) -> Option<Stopping<'_>> {
        let begin = |inside: &mut Inside| {
            inside.destroying |= !inside.ending;
            !inside.ending
        };
        let has_begun = self.when(machine, |inside| inside.ended || !(inside.ending || inside.destroying), begin)?;
        let stopping = has_begun.then(|| Stopping(self))?;
        self.when(machine, |inside| inside.working == 0, |_| ())?;
        Some(stopping)
    }

    /// No thread is let in any more. Returns `false` where that is so already.
    pub(super) fn begin(&self) -> bool {
        !core::mem::replace(&mut self.0.lock().ending, true)
    }

    /// Waits until no thread is inside, and no adapter is being stopped. Waits of threads on `devices` are given up,
    /// once the driver had its time to tell of fences that are signaled.
    ///
    /// IRQL: PASSIVE_LEVEL.
    pub(super) fn wait(&self, machine: &Machine, devices: impl Fn() -> Vec<Arc<Device>>) {
        for device in devices() {
            if let Some(at_end) = Hook::<AtEnd>::of(device.adapter()) {
                at_end(device.adapter());
            }
        }
        let is_alone = |inside: &Inside| inside.working + inside.waiting == 0 && !inside.destroying;
        while !is_alone(&self.0.lock()) && !machine.rules.is_stopped() {
            for device in devices() {
                device.abandon_waits();
            }
            // CAST: a constant.
            machine.delay_execution(-(TICKS_PER_MS as i64));
        }
    }

    /// Everything that the process had is destroyed.
    pub(super) fn finish(&self) {
        self.0.lock().ended = true;
    }
}
