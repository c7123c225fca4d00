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

use wddm_abi::POWER_ACTION;

use crate::objects::hw_context::suspension::await_suspensions;
use crate::objects::hw_context::{HwContext, Keeper, Suspend};
use crate::objects::hw_queue::HwQueue;
use crate::port::ddi::{self, call_ddi};
use crate::port::miniport::Miniport;
use crate::port::power::Power;
use crate::port::rules::queue::POWER_STATE;
use crate::recovery::lost::{self, Loss, Taken};

/// `D0` of `DEVICE_POWER_STATE`.
const D0: i32 = 1;
/// `D3`.
const D3: i32 = 4;
/// `DeviceUid` of the adapter itself.
const WHOLE_ADAPTER: u32 = 0xFFFF_FFFF;

/// Takes the power from a device that is awake.
///
/// IRQL: PASSIVE_LEVEL.
pub(crate) fn begin(adapter: &Arc<Miniport>, loss: Loss) {
    Power::of(adapter).sleep.begin(adapter, || {
        let (suspended, taken) = fall_asleep(adapter, loss);
        Box::new(|adapter| wake(adapter, suspended, taken))
    });
}

/// Takes everything off the hardware, and then the power. Returns the contexts that were suspended for it, and what was
/// moved out of memory that loses its content.
fn fall_asleep(adapter: &Arc<Miniport>, loss: Loss) -> (Vec<Arc<HwContext>>, Taken) {
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
    await_suspensions(adapter, &asked);
    super::take_packets_off(adapter);
    for doorbell in HwQueue::all_of(adapter).iter().flat_map(|queue| queue.doorbells()) {
        doorbell.disconnect_for_d3();
    }
    let taken = lost::take_out(adapter, loss);
    let action = match loss {
        Loss::Hibernate => POWER_ACTION::PowerActionHibernate,
        _ => POWER_ACTION::PowerActionNone,
    };
    set_device_state(adapter, false, action);
    lost::memory_is_gone(adapter, loss);
    (suspended, taken)
}

/// Gives the power back, and what was taken for it.
fn wake(adapter: &Arc<Miniport>, suspended: Vec<Arc<HwContext>>, taken: Taken) {
    set_device_state(adapter, true, POWER_ACTION::PowerActionNone);
    lost::tables_begin_anew(adapter);
    crate::memory::wait_for_tables(adapter);
    lost::bring_back(adapter, taken);
    for context in suspended {
        let _held = context.hold();
        if context.is_alive() && context.device().usable().is_ok() {
            context.let_on(Keeper::Sleep);
        }
    }
    super::forget_time(adapter);
}

/// Tells the driver the device's power state.
///
/// IRQL: PASSIVE_LEVEL.
pub(crate) fn set_device_state(adapter: &Miniport, on: bool, action: POWER_ACTION) {
    let context = adapter.context();
    let state = wddm_abi::DEVICE_POWER_STATE(if on { D0 } else { D3 });
    let dead = adapter.personality().dead_in_d3;
    if on && dead {
        adapter.device.set_asleep(false);
    }
    let status = ddi::status(call_ddi!(adapter, DxgkDdiSetPowerState(context, WHOLE_ADAPTER, state, action)));
    let fine = ddi::succeeded(status);
    adapter.rules().check(&POWER_STATE, fine, || format!("D{}: {status:?}", if on { 0 } else { 3 }));
    if !on && dead {
        adapter.device.set_asleep(true);
        crate::sched::interrupt::probe_foreign_interrupt(adapter);
    }
}
