//! The paging process: process, system device, system context and paging buffers, made when an adapter starts.
//!
//! Source: article system-paging-process.
//!
//! Chosen: the order is process, device, page tables (all that cover 1 GB, by the CPU), paging buffers, context, root
//! table of the context. A display adapter without GPU virtual addresses has process (where the driver knows
//! processes), device and context alone.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use wddm_abi::{NTSTATUS, ntstatus};

use super::Manager;
use super::page_table::Purpose;
use super::paging::PagingError;
use super::space::{Content, PAGING_SPACE};
use super::va::{PAGE, Protection};
use crate::adapter::Adapter;
use crate::context::Context;
use crate::device::Device;
use crate::personality::SystemProcesses;
use crate::process::ProcessAdapter;

/// Paging buffers of an adapter.
const BUFFERS: usize = 4;

/// Makes everything. `None`: the adapter has no GPU virtual addresses, and no paging process with page tables.
pub(super) fn create(
    adapter: &Arc<Adapter>,
    manager: &Arc<Manager>,
    context: &AtomicUsize,
) -> Result<Option<Arc<ProcessAdapter>>, NTSTATUS> {
    if manager.caps.mmu.is_none() {
        return create_physical(adapter, manager).map(|()| None);
    }
    let kind = adapter.personality().system_processes;
    let another = |when| -> Result<(), NTSTATUS> {
        if kind == when {
            *manager.idle.lock() = Some(ProcessAdapter::create_system(adapter, &manager.caps)?);
        }
        Ok(())
    };
    another(SystemProcesses::AnotherFirst)?;
    let process = ProcessAdapter::create_system(adapter, &manager.caps)?;
    *manager.system.lock() = Some(process.clone());
    another(SystemProcesses::AnotherLast)?;
    another(SystemProcesses::AnotherBriefly)?;
    let device = Device::create_system(&process)?;
    process.add_device(&device);
    process.initialize_tables(adapter, manager).map_err(status)?;
    let pages = PAGING_SPACE / PAGE;
    process.set_entries(adapter, manager, 0, pages, &Content::None, Purpose::default()).map_err(status)?;
    add_buffers(adapter, manager)?;
    let system = Context::create_system(&device, manager.caps.paging_node())?;
    context.store(system.driver_handle(), Ordering::Release);
    adapter.scheduler.set_system_context(&system);
    device.add_context(&system);
    another(SystemProcesses::AnotherLater)?;
    let brief = if kind == SystemProcesses::AnotherBriefly { manager.idle.lock().take() } else { None };
    if let Some(idle) = brief {
        idle.destroy();
    }
    Ok(Some(process))
}

/// Makes the system's device and a context on the node that pages, for an adapter without any GPU virtual addresses.
///
/// Source: one author of a driver of 3.2 saw the start fail (Code 43) until DxgkDdiCreateContext succeeded, of a
/// display adapter; of others nothing is known. Chosen: one context; the process comes first, as with page tables.
fn create_physical(adapter: &Arc<Adapter>, manager: &Arc<Manager>) -> Result<(), NTSTATUS> {
    if manager.caps.is_io_mmu() || manager.caps.is_compute_only() {
        return Ok(());
    }
    let process = ProcessAdapter::create_system(adapter, &manager.caps)?;
    *manager.idle.lock() = Some(process.clone());
    let device = Device::create_system(&process)?;
    process.add_device(&device);
    let context = Context::create_system(&device, manager.caps.paging_node())?;
    device.add_context(&context);
    Ok(())
}

fn add_buffers(adapter: &Arc<Adapter>, manager: &Arc<Manager>) -> Result<(), NTSTATUS> {
    let pages = manager.pager.pages();
    for index in 0..=BUFFERS {
        // One page more than the GPU sees, to be watched.
        let block = manager.pool.allocate_block(pages + 1).ok_or(ntstatus::STATUS_NO_MEMORY)?;
        let frames = (0..pages).map(|index| block.object().frame(index)).collect();
        let gpu = manager.map_for_system(adapter, frames, Protection::READ_WRITE).map_err(status)?;
        let private = manager.caps.paging_private_size as usize;
        if index < BUFFERS {
            manager.pager.add(block, gpu, private);
        } else {
            manager.pager.add_spare(block, gpu, private);
        }
    }
    Ok(())
}

fn status(error: PagingError) -> NTSTATUS {
    match error {
        PagingError::Driver(status) => status,
        PagingError::Lost => ntstatus::STATUS_SYSTEM_SHUTDOWN,
    }
}

/// Takes everything down, in the opposite order.
pub(super) fn destroy(
    adapter: &Arc<Adapter>,
    manager: &Arc<Manager>,
    process: Option<Arc<ProcessAdapter>>,
    context: &AtomicUsize,
) {
    adapter.scheduler.clear_system_context();
    context.store(0, Ordering::Release);
    let idle = manager.idle.lock().take();
    if manager.caps.mmu.is_none() {
        return take_down(manager, idle);
    }
    let (first, last) = match adapter.personality().system_processes {
        SystemProcesses::AnotherLast => (idle, None),
        _ => (None, idle),
    };
    if let Some(idle) = first {
        idle.destroy();
    }
    take_down(manager, process);
    if let Some(idle) = last {
        idle.destroy();
    }
}

/// Destroys the contexts and devices of the paging process, its page tables, and the process.
fn take_down(manager: &Arc<Manager>, process: Option<Arc<ProcessAdapter>>) {
    let Some(process) = process else { return };
    for device in process.take_devices() {
        for context in device.take_contexts() {
            context.destroy();
        }
        device.destroy();
    }
    process.address_space().take_down(manager);
    process.destroy();
}
