//! Device paging queues: the order of residency operations of one device, and the fence that says how far they are.
//!
//! An operation takes the next value of the queue's fence, becomes a job of the paging worker, and signals the value
//! when it is done. A device whose operation failed is put into the error state, since the handle's user cannot be told
//! otherwise.
//!
//! Source: article device-paging-queues; DDI pages D3DDDI_MAPGPUVIRTUALADDRESS, D3DDDI_MAKERESIDENT.
//!
//! Chosen: the OS signals the fence, unless the personality has the paging engine do it; a signal that the engine did
//! not carry out counts as a failed operation.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use wddm_abi::{D3DKMT_HANDLE, NTSTATUS, ntstatus};

use crate::memory::paging::{Op, PagingError};
use crate::memory::residency::{self, show_range};
use crate::memory::va::{PAGE, Protection, Use, Wanted};
use crate::memory::{Job, Manager, VidMm};
use crate::objects::device::Device;
use crate::objects::fence::monitored::{MonitoredFence, Request};
use crate::objects::open_allocation::OpenAllocation;
use crate::objects::process::ProcessAdapter;
use crate::port::miniport::Miniport;
use crate::port::sync::{Lock, Rank};
use crate::port::tdr::DeviceState;
use crate::port::worker::Worker;

/// A paging queue.
#[derive(Debug)]
pub(crate) struct PagingQueue {
    device: Arc<Device>,
    fence: Arc<MonitoredFence>,
    fence_handle: AtomicU32,
    /// Where the paging process sees the fence's value, when the paging engine signals it; else 0.
    engine_va: u64,
    /// The last value that was given out.
    last: Lock<u64>,
    destroyed: AtomicBool,
}

/// A range to be mapped.
#[derive(Clone, Debug)]
pub(crate) struct MapRequest {
    pub(crate) wanted: Wanted,
    pub(crate) allocation: Option<Arc<OpenAllocation>>,
    /// Bytes into the allocation.
    pub(crate) offset: u64,
    pub(crate) protection: Protection,
    pub(crate) driver_protection: u64,
}

impl PagingQueue {
    /// Makes a queue; its fence begins at 0.
    ///
    /// # Errors
    /// STATUS_NO_MEMORY, or what paging ended with.
    pub(crate) fn create(device: &Arc<Device>) -> Result<Arc<Self>, NTSTATUS> {
        let fence = MonitoredFence::create(device, Request::default())?;
        let mut engine_va = 0;
        if device.adapter().personality().paging_engine_signals {
            let shown = show_to_engine(device.adapter(), fence.state().frame());
            engine_va = shown.inspect_err(|_| fence.destroy())?;
            fence.state().set_paging();
        }
        Ok(Arc::new(Self {
            engine_va,
            device: device.clone(),
            fence,
            fence_handle: AtomicU32::new(0),
            last: Lock::new(Rank::Object, 0),
            destroyed: AtomicBool::new(false),
        }))
    }

    pub(crate) fn device(&self) -> &Arc<Device> {
        &self.device
    }

    pub(crate) fn fence(&self) -> &Arc<MonitoredFence> {
        &self.fence
    }

    /// User mode's handle of the fence.
    pub(crate) fn fence_handle(&self) -> D3DKMT_HANDLE {
        self.fence_handle.load(Ordering::Acquire)
    }

    pub(crate) fn set_fence_handle(&self, handle: D3DKMT_HANDLE) {
        self.fence_handle.store(handle, Ordering::Release);
    }

    /// Adds an operation; the value that says it is done.
    fn post(
        &self,
        run: impl FnOnce(&Arc<Miniport>, &Arc<Manager>) -> Result<(), PagingError> + Send + 'static,
    ) -> Result<u64, NTSTATUS> {
        self.device.usable()?;
        let adapter = self.device.adapter();
        let manager = VidMm::of(adapter).manager().ok_or(ntstatus::STATUS_DEVICE_REMOVED)?;
        let (state, device, engine_va) = (self.fence.state().clone(), self.device.clone(), self.engine_va);
        // The value and the job's place are taken together.
        let mut last = self.last.lock();
        *last += 1;
        let value = *last;
        let job: Job = Box::new(move |adapter, manager| {
            let mut done = run(adapter, manager).is_ok();
            if engine_va != 0 {
                let signal = Op::Signal { address: engine_va, value };
                done &= manager.pager.run(adapter, &[signal]).is_ok() && state.value() == value;
            }
            if !done {
                // Failing a device may need the worker that this is.
                Worker::of(adapter).defer(adapter, Box::new(move |_| device.fail(DeviceState::Stopped)));
            }
            if state.value() != value {
                state.signal(adapter.kernel(), value);
            }
        });
        manager.enqueue(job);
        drop(last);
        manager.wake(adapter);
        Ok(value)
    }

    /// Waits until the paging worker of the adapter has done every operation that was asked for so far.
    ///
    /// IRQL: PASSIVE_LEVEL.
    pub(crate) fn settle(&self) {
        let adapter = self.device.adapter();
        if let Some(manager) = VidMm::of(adapter).manager() {
            manager.run_on_worker(adapter, |_, _| ());
        }
    }

    /// Makes allocations resident.
    ///
    /// # Errors
    /// STATUS_DEVICE_REMOVED.
    pub(crate) fn make_resident(&self, allocations: &[Arc<OpenAllocation>]) -> Result<u64, NTSTATUS> {
        for open in allocations {
            open.residency.fetch_add(1, Ordering::AcqRel);
        }
        let allocations: Vec<_> = allocations.iter().map(|open| open.allocation().clone()).collect();
        self.post(move |adapter, manager| {
            allocations.iter().try_for_each(|allocation| residency::make_resident(adapter, manager, allocation))
        })
    }

    /// Takes a range and maps it.
    ///
    /// # Errors
    /// STATUS_INVALID_PARAMETER, STATUS_NO_MEMORY, STATUS_DEVICE_REMOVED.
    pub(crate) fn map(&self, request: &MapRequest) -> Result<(u64, u64), NTSTATUS> {
        let space = self.device.process().address_space();
        let size = request.wanted.size;
        let used = match &request.allocation {
            Some(open) => {
                let end = request.offset.checked_add(size).ok_or(ntstatus::STATUS_INVALID_PARAMETER)?;
                if end > open.allocation().size() {
                    return Err(ntstatus::STATUS_INVALID_PARAMETER);
                }
                Use::Allocation {
                    allocation: open.allocation().clone(),
                    offset: request.offset,
                    protection: request.protection,
                    driver_protection: request.driver_protection,
                }
            }
            None => Use::Reserved(request.protection),
        };
        let base = request.wanted.base;
        let covered = base != 0 && space.with_ranges(|ranges| ranges.is_covered(base, size));
        let address = if covered {
            let replaced = space.with_ranges(|ranges| ranges.replace(base, size, used.clone()));
            replaced.map(|_| base)
        } else {
            space.insert(&request.wanted, used.clone())
        };
        let address = address.ok_or(ntstatus::STATUS_NO_MEMORY)?;
        let gpu_process = self.device.process().clone();
        let value = self.post(move |adapter, manager| show_now(adapter, manager, &gpu_process, address, size));
        match value {
            Ok(value) => Ok((address, value)),
            Err(status) => {
                if !covered {
                    space.with_ranges(|ranges| ranges.remove(address, size));
                }
                Err(status)
            }
        }
    }

    /// The handle is gone: waits for what was asked for. A second call does nothing.
    pub(crate) fn destroy(&self) {
        if self.destroyed.swap(true, Ordering::AcqRel) {
            return;
        }
        let adapter = self.device.adapter();
        if let Some(manager) = VidMm::of(adapter).manager() {
            let engine_va = self.engine_va;
            manager.run_on_worker(adapter, move |adapter, manager| {
                if engine_va != 0 {
                    manager.unmap_for_system(adapter, engine_va, 1);
                }
            });
        }
        self.fence.destroy();
    }
}

/// Maps a fence's page into the paging process.
fn show_to_engine(adapter: &Arc<Miniport>, frame: u64) -> Result<u64, NTSTATUS> {
    let manager = VidMm::of(adapter).manager().ok_or(ntstatus::STATUS_DEVICE_REMOVED)?;
    let shown = manager.run_on_worker(adapter, move |adapter, manager| {
        manager.map_for_system(adapter, vec![frame], Protection::READ_WRITE)
    });
    shown.ok_or(ntstatus::STATUS_SYSTEM_SHUTDOWN)?.map_err(residency::status_of)
}

/// Stores entries for whatever lies in a range when the job runs, which may be newer than what asked for it.
fn show_now(
    adapter: &Arc<Miniport>,
    manager: &Arc<Manager>,
    gpu_process: &ProcessAdapter,
    address: u64,
    size: u64,
) -> Result<(), PagingError> {
    let mut at = address;
    while at < address + size {
        let found = gpu_process
            .address_space()
            .with_ranges(|ranges| ranges.at(at).map(|(start, range)| (start, range.clone())));
        // Freed meanwhile: that has its own job behind this one.
        let Some((start, range)) = found else { return Ok(()) };
        let skip = at - start;
        let covered = (range.size - skip).min(address + size - at);
        let used = match range.used {
            Use::Allocation { allocation, offset, protection, driver_protection } => {
                Use::Allocation { allocation, offset: offset + skip, protection, driver_protection }
            }
            other => other,
        };
        show_range(adapter, manager, gpu_process.address_space(), at, covered, &used)?;
        at += covered;
    }
    Ok(())
}

/// Gives allocations' references back.
///
/// # Errors
/// STATUS_INVALID_PARAMETER when one was not made resident by this device so often.
pub(crate) fn evict(device: &Arc<Device>, allocations: &[Arc<OpenAllocation>]) -> Result<(), NTSTATUS> {
    for (at, open) in allocations.iter().enumerate() {
        let taken = open.residency.fetch_update(Ordering::AcqRel, Ordering::Acquire, |count| count.checked_sub(1));
        if taken.is_err() {
            for open in &allocations[..at] {
                open.residency.fetch_add(1, Ordering::AcqRel);
            }
            return Err(ntstatus::STATUS_INVALID_PARAMETER);
        }
    }
    let adapter = device.adapter();
    let manager = VidMm::of(adapter).manager().ok_or(ntstatus::STATUS_DEVICE_REMOVED)?;
    let allocations: Vec<_> = allocations.iter().map(|open| open.allocation().clone()).collect();
    manager.post(
        adapter,
        Box::new(move |adapter, manager| {
            for allocation in &allocations {
                let _ = residency::evict(adapter, manager, allocation);
            }
        }),
    );
    Ok(())
}

/// Reserves a range.
///
/// # Errors
/// STATUS_NO_MEMORY.
pub(crate) fn reserve(gpu_process: &ProcessAdapter, wanted: &Wanted) -> Result<u64, NTSTATUS> {
    let none = Protection { no_access: true, ..Protection::default() };
    gpu_process.address_space().insert(wanted, Use::Reserved(none)).ok_or(ntstatus::STATUS_NO_MEMORY)
}

/// Frees a range; its entries become invalid before the range can be used again.
///
/// # Errors
/// STATUS_INVALID_PARAMETER when it is no range.
pub(crate) fn free(gpu_process: &Arc<ProcessAdapter>, base: u64, size: u64) -> Result<(), NTSTATUS> {
    let space = gpu_process.address_space();
    let usable = space.with_ranges(|ranges| {
        ranges.at(base).is_some_and(|(start, range)| {
            start == base && matches!(range.used, Use::Reserved(_) | Use::Allocation { .. }) && range.base == base
        })
    });
    if !usable {
        return Err(ntstatus::STATUS_INVALID_PARAMETER);
    }
    let adapter = gpu_process.adapter();
    let manager = VidMm::of(adapter).manager().ok_or(ntstatus::STATUS_DEVICE_REMOVED)?;
    let this = gpu_process.clone();
    let freed = manager.run_on_worker(adapter, move |adapter, manager| {
        let total = this.address_space().with_ranges(|ranges| ranges.extent(base));
        if total == 0 || (size != 0 && size.next_multiple_of(PAGE) != total) {
            return false;
        }
        let content = crate::memory::space::Content::None;
        let purpose = crate::memory::page_table::Purpose::default();
        let _ = this.set_entries(adapter, manager, base, total / PAGE, &content, purpose);
        this.address_space().with_ranges(|ranges| ranges.remove(base, 0)).is_some()
    });
    match freed {
        Some(true) => Ok(()),
        Some(false) => Err(ntstatus::STATUS_INVALID_PARAMETER),
        None => Err(ntstatus::STATUS_SYSTEM_SHUTDOWN),
    }
}
