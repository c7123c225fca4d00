//! The device without power: D3 while the system works or stands by, and hibernation.
//!
//! Before it, every hardware context is suspended, every packet node preempted, every doorbell disconnected, and what
//! lies in memory that loses its content is moved out; after it, page tables begin anew, everything comes back,
//! contexts are resumed, and packets handed in again. A client that connects a doorbell meanwhile wakes the device.
//!
//! Chosen: that packets are taken off as contexts are, since no page says what becomes of those that the driver has;
//! their page tables are lost. What does not come off within TdrDelay is reset.
//!
//! Source: article user-mode-work-submission, engine D-state transitions; article system-paging-process.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use nt_model::Machine;
use wddm_abi::POWER_ACTION;

use super::Power;
use crate::hw_context::{HwContext, Keeper, Suspend};
use crate::hw_queue::HwQueue;
use crate::memory::lost::{self, Loss, Taken};
use crate::miniport::Miniport;
use crate::sync::{Admission, Gate, Lock, Rank};
use crate::worker::Worker;

/// Whether the device sleeps, and what was taken from it.
#[derive(Debug)]
pub(crate) struct Sleep {
    /// The thread that changes it has it alone; threads that need the device awake share it.
    gate: Gate,
    asleep: Lock<Option<Asleep>>,
    /// No work runs, and the model looks for no timeouts.
    rests: AtomicBool,
    /// Shared by the watch for timeouts, which suspends and resumes contexts, too.
    watching: Gate,
}

#[derive(Debug)]
struct Asleep {
    suspended: Vec<Arc<HwContext>>,
    taken: Taken,
}

impl Sleep {
    pub(super) fn new() -> Self {
        Self {
            gate: Gate::new(),
            asleep: Lock::new(Rank::Log, None),
            rests: AtomicBool::new(false),
            watching: Gate::new(),
        }
    }

    pub(crate) fn is_asleep(&self) -> bool {
        self.asleep.lock().is_some()
    }

    /// Returns whether no work is to run: the device goes to sleep, sleeps, or wakes up. Paging may.
    pub(crate) fn rests(&self) -> bool {
        self.rests.load(Ordering::Acquire)
    }

    /// Forgets everything: the adapter stops.
    pub(super) fn clear(&self) {
        let asleep = self.asleep.lock().take();
        self.rests.store(false, Ordering::Release);
        drop(asleep);
    }

    /// Takes the power from a device that is awake.
    ///
    /// IRQL: PASSIVE_LEVEL.
    pub(crate) fn begin(&self, adapter: &Arc<Miniport>, loss: Loss) {
        let _alone = self.gate.exclusive(adapter.kernel());
        if self.asleep.lock().is_some() {
            return;
        }
        self.rests.store(true, Ordering::Release);
        drop(self.watching.exclusive(adapter.kernel()));
        let (mut suspended, mut asked) = (Vec::new(), Vec::new());
        for context in HwContext::all_of(adapter) {
            let answer = {
                let _held = context.hold();
                let runs = context.is_alive() && context.device().usable().is_ok();
                runs.then(|| context.keep_off(Keeper::Sleep))
            };
            let Some(answer) = answer else { continue };
            if matches!(answer, Suspend::Pending(_)) {
                asked.push(context.clone());
            }
            suspended.push(context);
        }
        // None is held: a reset for the sake of an acknowledgement aborts contexts, perhaps one of these.
        crate::recovery::await_suspensions(adapter, &asked);
        crate::recovery::take_packets_off(adapter);
        for doorbell in HwQueue::all_of(adapter).iter().flat_map(|queue| queue.doorbells()) {
            doorbell.disconnect_for_d3();
        }
        let taken = lost::take_out(adapter, loss);
        let action = match loss {
            Loss::Hibernate => POWER_ACTION::PowerActionHibernate,
            _ => POWER_ACTION::PowerActionNone,
        };
        Power::set_device_state(adapter, false, action);
        lost::memory_is_gone(adapter, loss);
        *self.asleep.lock() = Some(Asleep { suspended, taken });
    }

    /// Gives the power back, where it was taken.
    ///
    /// IRQL: PASSIVE_LEVEL.
    pub(crate) fn end(&self, adapter: &Arc<Miniport>) {
        let _alone = self.gate.exclusive(adapter.kernel());
        let Some(asleep) = self.asleep.lock().take() else { return };
        Power::set_device_state(adapter, true, POWER_ACTION::PowerActionNone);
        lost::tables_begin_anew(adapter);
        lost::wait_for_tables(adapter);
        lost::bring_back(adapter, asleep.taken);
        for context in asleep.suspended {
            let _held = context.hold();
            if context.is_alive() && context.device().usable().is_ok() {
                context.let_on(Keeper::Sleep);
            }
        }
        crate::recovery::forget_time(adapter);
        self.rests.store(false, Ordering::Release);
        Worker::of(adapter).kick(adapter);
    }

    /// Admits the thread that looks for timeouts; `None`: nothing runs.
    pub(crate) fn watch<'a>(&'a self, kernel: &'a Machine) -> Option<Admission<'a>> {
        let admission = self.watching.shared(kernel);
        (!self.rests()).then_some(admission)
    }

    /// Wakes the device if it sleeps, and keeps it awake until the guard is dropped.
    ///
    /// IRQL: PASSIVE_LEVEL.
    pub(crate) fn stay_awake<'a>(&'a self, adapter: &'a Arc<Miniport>) -> Admission<'a> {
        loop {
            let awake = self.gate.shared(adapter.kernel());
            if self.asleep.lock().is_none() {
                return awake;
            }
            drop(awake);
            self.end(adapter);
        }
    }
}
