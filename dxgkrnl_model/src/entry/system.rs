//! The paging process: process, system device, system context and paging buffers, made when an adapter starts.
//!
//! Source: article system-paging-process. In which order, three drivers' authors saw: the context is there before any
//! page table is changed.
//!
//! Chosen: the order is process, device, context, page tables (all that cover 1 GB, by the CPU), paging buffers, root
//! table of the context; the context can be made behind the buffers
//! ([`PagingProcess`](crate::port::personality::PagingProcess)). A display adapter without GPU virtual addresses has
//! process (where the driver knows processes), device and context alone.

use std::sync::Arc;

use wddm_abi::{NTSTATUS, ntstatus};

use crate::memory::paging::{ApertureRange, Op, PagingError};
use crate::memory::va::{PAGE, Protection};
use crate::memory::{Hooks, Manager, VidMm};
use crate::objects::context::Context;
use crate::objects::device::Device;
use crate::objects::open_allocation::remap_locks;
use crate::objects::process::{ProcessAdapter, root};
use crate::port::caps::{Caps, Segment};
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
    /// Where paging buffers are mapped in an aperture.
    mapped: Lock<Vec<ApertureRange>>,
}

impl Default for SystemProcess {
    fn default() -> Self {
        Self {
            process: Lock::new(Rank::Leaf, None),
            idle: Lock::new(Rank::Leaf, None),
            mapped: Lock::new(Rank::Leaf, Vec::new()),
        }
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
    unmap_buffers(adapter, &manager);
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
    let tables = || {
        process.address_space().initialize_paging(adapter, manager).map_err(status)?;
        add_buffers(adapter, manager)
    };
    let tables_first = adapter.personality().paging_process.tables_before_context;
    let frames = if tables_first { Some(tables()?) } else { None };
    let system = Context::create_system(&device, manager.caps.paging_node())?;
    VidMm::of(adapter).set_system_context(system.driver_handle());
    VidSch::of(adapter).set_system_context(&system);
    device.add_context(&system);
    let frames = match frames {
        Some(frames) => frames,
        None => tables()?,
    };
    system.give_root();
    map_buffers(adapter, manager, &frames).map_err(status)?;
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

/// Makes the paging buffers, and maps them into the paging process. Returns the page frames of each.
fn add_buffers(adapter: &Arc<Miniport>, manager: &Arc<Manager>) -> Result<Vec<Vec<u64>>, NTSTATUS> {
    let pages = manager.pager.pages();
    let mut all = Vec::new();
    for index in 0..=BUFFERS {
        // One page more than the GPU sees, to be watched.
        let block = manager.pool.allocate_block(pages + 1).ok_or(ntstatus::STATUS_NO_MEMORY)?;
        let frames: Vec<u64> = (0..pages).map(|index| block.object().frame(index)).collect();
        all.push(frames.clone());
        let gpu = manager.map_for_system(adapter, frames, Protection::READ_WRITE).map_err(status)?;
        let private = manager.caps.paging_private_size as usize;
        if index < BUFFERS {
            manager.pager.add(block, gpu, private);
        } else {
            manager.pager.add_spare(block, gpu, private);
        }
    }
    Ok(all)
}

/// Maps paging buffers into the aperture that the driver has named for them, from its end downwards; they are no
/// allocations, so that hAllocation is NULL.
///
/// Chosen: behind their mapping in the paging process, by which they run; those of companions are mapped there alone.
///
/// Source: DDI pages DXGK_QUERYSEGMENTOUT4, PagingBufferSegmentId, and DXGKARG_BUILDPAGINGBUFFER, MapApertureSegment
/// (hAllocation is NULL when a DMA buffer is mapped); seen with two drivers, of a start of one of them: one mapping of
/// PagingBufferSize for each buffer, from the end of the segment downwards.
fn map_buffers(adapter: &Arc<Miniport>, manager: &Arc<Manager>, buffers: &[Vec<u64>]) -> Result<(), PagingError> {
    let segment = manager.caps.segment(manager.caps.paging_buffer_segment).filter(|segment| segment.is_aperture());
    let Some(&Segment { id, .. }) = segment else { return Ok(()) };
    let none = PagingError::Driver(ntstatus::STATUS_NO_MEMORY);
    let made: &SystemProcess = adapter.extension();
    for frames in buffers {
        let pages = frames.len() as u64;
        let (_, offset) = manager.allocate_in_segment(id, pages * PAGE, PAGE, true).ok_or(none)?;
        let range = ApertureRange { allocation: 0, segment: id, first: offset / PAGE, pages };
        made.mapped.lock().push(range);
        // CAST: a buffer.
        let mdl = adapter.kernel().allocate_mdl(0, (pages * PAGE) as usize).ok_or(none)?;
        mdl.set_frames(frames);
        let mapped = manager.pager.run(adapter, &[Op::MapAperture { range, mdl: mdl.address() }]);
        adapter.kernel().free_mdl(mdl);
        mapped?;
    }
    Ok(())
}

/// Undoes [`map_buffers`], as far as it came. The paging worker has ended.
fn unmap_buffers(adapter: &Arc<Miniport>, manager: &Arc<Manager>) {
    let made: &SystemProcess = adapter.extension();
    let mapped = std::mem::take(&mut *made.mapped.lock());
    for range in mapped.into_iter().rev() {
        // What the driver failed at is a broken rule.
        let _ = manager.pager.run(adapter, &[Op::UnmapAperture { range, dummy: manager.dummy_address() }]);
        manager.free_in_segment(range.segment, range.first * PAGE);
    }
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
