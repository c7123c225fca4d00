//! The paging process: process, system device, system context and paging buffers, made when an adapter starts.
//!
//! Source: article system-paging-process.
//!
//! Chosen: the order is process, device, page tables (all that cover 1 GB, by the CPU), paging buffers, context, root
//! table of the context. A display adapter without GPU virtual addresses has process (where the driver knows
//! processes), device and context alone.

use std::sync::Arc;

use wddm_abi::{NTSTATUS, ntstatus};

use crate::memory::page_table::Purpose;
use crate::memory::paging::PagingError;
use crate::memory::space::{Content, PAGING_SPACE};
use crate::memory::va::{PAGE, Protection};
use crate::memory::{Hooks, Manager, VidMm};
use crate::objects::context::Context;
use crate::objects::device::Device;
use crate::objects::open_allocation::remap_locks;
use crate::objects::process::{ProcessAdapter, root};
use crate::port::caps::Caps;
use crate::port::miniport::Miniport;
use crate::port::personality::SystemProcesses;
use crate::port::sync::{Lock, Rank};
use crate::sched::vidsch::VidSch;

/// Paging buffers of an adapter. No page gives a number; with a driver of 1.3 two were seen.
const BUFFERS: usize = 4;

/// The paging process of an adapter, and a second system process, which does nothing: see
/// [`SystemProcesses`](crate::port::personality::SystemProcesses).
struct SystemProcess {
    process: Lock<Option<Arc<ProcessAdapter>>>,
    idle: Lock<Option<Arc<ProcessAdapter>>>,
}

impl Default for SystemProcess {
    fn default() -> Self {
        Self { process: Lock::new(Rank::Leaf, None), idle: Lock::new(Rank::Leaf, None) }
    }
}

/// Starts VidMm: the manager, the paging process, the paging worker.
///
/// # Errors
/// What a driver's function returned.
pub(crate) fn start(adapter: &Arc<Miniport>, caps: &Arc<Caps>) -> Result<(), NTSTATUS> {
    let manager = VidMm::of(adapter).start(adapter, caps);
    manager.set_hooks(Hooks {
        moved: remap_locks,
        replace_root: root::replace,
        submit: |adapter, companion, buffer, private, refers| {
            VidSch::of(adapter).submit_paging(adapter, companion, buffer, private, refers)
        },
        give_up: |adapter| VidSch::of(adapter).give_up_paging(adapter),
    });
    create(adapter, &manager)?;
    manager.begin(adapter);
    Ok(())
}

/// Ends the paging worker and takes the paging process down. Processes have left the adapter before.
pub(crate) fn stop(adapter: &Arc<Miniport>) {
    let Some(manager) = VidMm::of(adapter).manager() else { return };
    manager.end(adapter);
    let made: &SystemProcess = adapter.extension();
    let process = made.process.lock().take();
    manager.set_system(None);
    destroy(adapter, &manager, process);
    VidMm::of(adapter).forget(adapter);
}

/// Makes everything, and keeps what there is when a step fails, for [`stop`]. An adapter without GPU virtual addresses
/// has no paging process with page tables.
fn create(adapter: &Arc<Miniport>, manager: &Arc<Manager>) -> Result<(), NTSTATUS> {
    if manager.caps.mmu.is_none() {
        return create_physical(adapter, manager);
    }
    let made: &SystemProcess = adapter.extension();
    let kind = adapter.personality().system_processes;
    let another = |when| -> Result<(), NTSTATUS> {
        if kind == when {
            *made.idle.lock() = Some(ProcessAdapter::create_system(adapter, &manager.caps)?);
        }
        Ok(())
    };
    another(SystemProcesses::AnotherFirst)?;
    let process = ProcessAdapter::create_system(adapter, &manager.caps)?;
    *made.process.lock() = Some(process.clone());
    manager.set_system(Some(process.address_space()));
    another(SystemProcesses::AnotherLast)?;
    another(SystemProcesses::AnotherBriefly)?;
    let device = Device::create_system(&process)?;
    process.add_device(&device);
    process.initialize_tables(adapter, manager).map_err(status)?;
    let pages = PAGING_SPACE / PAGE;
    process.set_entries(adapter, manager, 0, pages, &Content::None, Purpose::default()).map_err(status)?;
    add_buffers(adapter, manager)?;
    let system = Context::create_system(&device, manager.caps.paging_node())?;
    VidMm::of(adapter).set_system_context(system.driver_handle());
    VidSch::of(adapter).set_system_context(&system);
    device.add_context(&system);
    another(SystemProcesses::AnotherLater)?;
    let brief = if kind == SystemProcesses::AnotherBriefly { made.idle.lock().take() } else { None };
    if let Some(idle) = brief {
        idle.destroy();
    }
    Ok(())
}

/// Makes the system's device and a context on the node that pages, for an adapter without any GPU virtual addresses.
///
/// Source: one author of a driver of 3.2 saw the start fail (Code 43) until DxgkDdiCreateContext succeeded, of a
/// display adapter; of others nothing is known. Chosen: one context; the process comes first, as with page tables.
fn create_physical(adapter: &Arc<Miniport>, manager: &Arc<Manager>) -> Result<(), NTSTATUS> {
    if manager.caps.is_io_mmu() || manager.caps.is_compute_only() {
        return Ok(());
    }
    let process = ProcessAdapter::create_system(adapter, &manager.caps)?;
    let made: &SystemProcess = adapter.extension();
    *made.idle.lock() = Some(process.clone());
    let device = Device::create_system(&process)?;
    process.add_device(&device);
    let context = Context::create_system(&device, manager.caps.paging_node())?;
    device.add_context(&context);
    Ok(())
}

fn add_buffers(adapter: &Arc<Miniport>, manager: &Arc<Manager>) -> Result<(), NTSTATUS> {
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
fn destroy(adapter: &Arc<Miniport>, manager: &Arc<Manager>, process: Option<Arc<ProcessAdapter>>) {
    VidSch::of(adapter).clear_system_context();
    VidMm::of(adapter).set_system_context(0);
    let made: &SystemProcess = adapter.extension();
    let idle = made.idle.lock().take();
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
