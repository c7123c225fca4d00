//! Memory is short: what a process has made resident is evicted though it wants it there, and comes back.
//!
//! The process's hardware contexts are suspended before and resumed behind it, and packets rest meanwhile. What the CPU
//! publishes in a ring, or submits, runs when everything is back.
//!
//! Chosen: everything of the process goes at once, but for rings of doorbells and their control words, which stay with
//! their doorbell. Packet nodes rest for all processes: no page says which packets a shortage holds back.
//!
//! Source: articles residency-overview (a context runs only while all that its device needs is resident),
//! user-mode-work-submission, hardware context suspension.

use std::sync::Arc;

use crate::memory::allocation::{Allocation, Place};
use crate::memory::paging::PagingError;
use crate::memory::{VidMm, residency};
use crate::objects::device::Device;
use crate::objects::hw_context::suspension::await_suspensions;
use crate::objects::hw_context::{HwContext, Keeper, Suspend};
use crate::port::miniport::Miniport;
use crate::port::power::Power;

/// Evicts what the process with this id has made resident, runs `meanwhile`, and brings it back. Returns the sizes of
/// the allocations that went.
///
/// IRQL: PASSIVE_LEVEL, not on the paging worker.
pub(crate) fn evict(adapter: &Arc<Miniport>, process: u64, meanwhile: impl FnOnce()) -> Vec<u64> {
    let mut sizes = Vec::new();
    Power::of(adapter).sleep.rest(adapter, || {
        let suspended = suspend(adapter, process);
        super::take_packets_off(adapter);
        let evicted = take_out(adapter, process);
        sizes = evicted.iter().map(|allocation| allocation.size()).collect();
        meanwhile();
        bring_back(adapter, evicted);
        for context in suspended {
            let _held = context.hold();
            if context.is_alive() && context.device().usable().is_ok() {
                context.let_on(Keeper::Memory);
            }
        }
        super::forget_time(adapter);
    });
    sizes
}

/// Returns whether a device belongs to the process.
fn is_of(device: &Device, process: u64) -> bool {
    device.process().process().is_some_and(|owner| owner.nt().id() == process)
}

/// Takes the contexts of the process off the hardware, and waits until they are.
fn suspend(adapter: &Arc<Miniport>, process: u64) -> Vec<Arc<HwContext>> {
    let (mut suspended, mut asked) = (Vec::new(), Vec::new());
    for context in HwContext::all_of(adapter).into_iter().filter(|context| is_of(context.device(), process)) {
        let answer = {
            let _held = context.hold();
            let runs = context.is_alive() && context.device().usable().is_ok();
            runs.then(|| context.keep_off(Keeper::Memory))
        };
        let Some(answer) = answer else { continue };
        if matches!(answer, Suspend::Pending(_)) {
            asked.push(context.clone());
        }
        suspended.push(context);
    }
    // None is held: a reset for the sake of an acknowledgement aborts contexts, perhaps one of these.
    await_suspensions(adapter, &asked);
    suspended
}

/// Evicts what the process's devices have made resident. Returns what has gone.
fn take_out(adapter: &Arc<Miniport>, process: u64) -> Vec<Arc<Allocation>> {
    let Some(manager) = VidMm::of(adapter).manager() else { return Vec::new() };
    let mut all: Vec<Arc<Allocation>> = Vec::new();
    let devices = Device::all_of(adapter);
    for open in devices.iter().filter(|device| is_of(device, process)).flat_map(|device| device.opened()) {
        if !all.iter().any(|known| Arc::ptr_eq(known, open.allocation())) {
            all.push(open.allocation().clone());
        }
    }
    let evicted = manager.run_on_worker(adapter, move |adapter, manager| {
        let mut evicted = Vec::new();
        for allocation in all {
            let left = {
                let mut placement = allocation.placement.lock();
                let may_go = placement.kept == 0 && placement.references != 0 && placement.place != Place::Evicted;
                may_go.then(|| residency::leave(&mut placement))
            };
            let Some(place) = left else { continue };
            // What the driver failed at is a broken rule.
            let _ = residency::move_out(adapter, manager, &allocation, place);
            evicted.push(allocation);
        }
        evicted
    });
    evicted.unwrap_or_default()
}

/// Brings back what is still wanted and has not come back yet.
fn bring_back(adapter: &Arc<Miniport>, evicted: Vec<Arc<Allocation>>) {
    let Some(manager) = VidMm::of(adapter).manager() else { return };
    manager.run_on_worker(adapter, move |adapter, manager| -> Result<(), PagingError> {
        for allocation in &evicted {
            let is_wanted = {
                let placement = allocation.placement.lock();
                (placement.references != 0 || placement.kept != 0) && placement.place == Place::Evicted
            };
            if is_wanted {
                residency::move_in(adapter, manager, allocation)?;
            }
        }
        Ok(())
    });
}
