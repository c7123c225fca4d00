//! Work items: routines that run later at PASSIVE_LEVEL on a system worker thread.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;

use super::allocate;
use crate::callback;
use crate::driver::EntryStack;
use crate::kernel::Machine;
use crate::routines;
use crate::rules::Details;
use crate::rules_nt::NT_WORK_ITEM;
use crate::thread::{Thread, ThreadKind};

const TAG: u32 = u32::from_le_bytes(*b"Work");
/// Size of the opaque record.
const BYTES: usize = 0x58;

#[derive(Clone, Copy, Debug)]
struct Item {
    device: usize,
    queued: bool,
}

#[derive(Debug, Default)]
struct State {
    items: HashMap<usize, Item>,
    /// Work item (0 for `ExQueueWorkItem`), routine, arguments.
    queue: VecDeque<(usize, usize, [usize; 3])>,
    worker: Option<Arc<Thread>>,
}

/// The work items of one machine.
#[derive(Debug, Default)]
pub(crate) struct WorkItems {
    state: Mutex<State>,
}

impl Machine {
    #[track_caller]
    pub(crate) fn allocate_work_item(&self, device: usize) -> usize {
        let _service = self.service(&routines::IO_ALLOCATE_WORK_ITEM, [device as u64]);
        if self.memory.must_fail() {
            return 0;
        }
        let Ok(address) = allocate(&self.memory, self, BYTES, TAG, "a work item") else { return 0 };
        self.io.work.state.lock().items.insert(address, Item { device, queued: false });
        address
    }

    #[track_caller]
    pub(crate) fn free_work_item(&self, item: usize) {
        let _service = self.service(&routines::IO_FREE_WORK_ITEM, [item as u64]);
        let found = self.io.work.state.lock().items.get(&item).copied();
        let idle = found.is_some_and(|item| !item.queued);
        let text =
            || Details::new(format!("the work item at {item:#x} is freed while it is queued, or does not exist"));
        if self.rules.check(&NT_WORK_ITEM, idle, text) {
            self.io.work.state.lock().items.remove(&item);
            self.release_pool(item);
        }
    }

    /// Queues `routine(DeviceObject, Context)`; with `extended`, `routine(DeviceObject, Context, IoWorkItem)`.
    #[track_caller]
    pub(crate) fn queue_work_item(&self, item: usize, routine: usize, context: usize, extended: bool) {
        let _service = self.service(&routines::IO_QUEUE_WORK_ITEM, [item as u64, routine as u64, 0, context as u64]);
        let device = {
            let mut state = self.io.work.state.lock();
            let found = state.items.get_mut(&item).filter(|found| !found.queued);
            found.map(|found| {
                found.queued = true;
                found.device
            })
        };
        let text = || Details::new(format!("the work item at {item:#x} is queued already, or does not exist"));
        if !self.rules.check(&NT_WORK_ITEM, device.is_some(), text) {
            return;
        }
        let arguments = match extended {
            true => [device.unwrap_or(0), context, item],
            false => [device.unwrap_or(0), context, 0],
        };
        self.queue_work(item, routine, arguments);
    }

    /// Runs a routine on the worker thread.
    pub(crate) fn queue_work(&self, item: usize, routine: usize, arguments: [usize; 3]) {
        let worker = {
            let mut state = self.io.work.state.lock();
            state.queue.push_back((item, routine, arguments));
            state.worker.clone()
        };
        let worker = worker.unwrap_or_else(|| {
            let machine = self.arc();
            let thread = self.start_thread("worker", ThreadKind::Service, 0, move || machine.serve_work());
            self.io.work.state.lock().worker.get_or_insert(thread).clone()
        });
        self.sched.unpark(&worker.slot);
    }

    fn serve_work(&self) {
        let slot = self.with_current_thread(|thread| thread.slot.clone());
        while !self.rules.is_stopped() {
            let next = self.io.work.state.lock().queue.pop_front();
            let Some((item, routine, arguments)) = next else {
                self.sched.park(&slot, None);
                continue;
            };
            // The item may be queued again, or freed, by its own routine.
            if let Some(item) = self.io.work.state.lock().items.get_mut(&item) {
                item.queued = false;
            }
            let _ = self.call_driver_on(EntryStack::Own, "work item", || callback::invoke(routine, arguments));
        }
    }
}
