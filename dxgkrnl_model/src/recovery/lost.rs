//! Memory is gone: what becomes of memory segments, and of what lies in them, when their content is lost.
//!
//! One routine for a reset of the adapter, for D3 and for hibernation. What differs is who is told before: a reset
//! takes the content along, and each allocation that lay in a segment is evicted by a transfer of no bytes; power is
//! announced, so that the content was moved out before ([`take_out`]), and comes back after it ([`bring_back`]).
//!
//! Source: articles thread-synchronization-and-tdr, timeout-detection-and-recovery (all allocations are purged from
//! video memory), system-paging-process; DDI page DXGK_SEGMENTFLAGS (PreservedDuringStandby, PreservedDuringHibernate).
//!
//! Chosen: page tables begin anew wherever they lie, at their places; those of the paging process before anything
//! pages, the others as the next job of the paging worker, before a device can be made. Memory that the CPU sees is
//! overwritten.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::memory::allocation::{Allocation, Place};
use crate::memory::pages::Page;
use crate::memory::paging::{Op, PagingError};
use crate::memory::va::PAGE;
use crate::memory::{Manager, VidMm, residency};
use crate::objects::device::Device;
use crate::objects::process::ProcessAdapter;
use crate::port::caps::Segment;
use crate::port::miniport::Miniport;
use crate::port::personality::LostBy;
use crate::port::poison;

/// What takes the content of segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loss {
    /// A reset of the adapter.
    Reset,
    /// D3 while the system works or stands by.
    Standby,
    /// Hibernation.
    Hibernate,
}

impl Loss {
    /// Returns whether the content of a segment is lost. An aperture has none.
    fn takes(self, segment: &Segment) -> bool {
        let flags = segment.descriptor.Flags;
        !segment.is_aperture()
            && match self {
                Self::Reset => true,
                Self::Standby => !flags.PreservedDuringStandby(),
                Self::Hibernate => !flags.PreservedDuringHibernate(),
            }
    }
}

/// Segments whose content is lost.
fn segments(manager: &Manager, loss: Loss) -> Vec<Segment> {
    manager.caps.segments.iter().filter(|segment| loss.takes(segment)).copied().collect()
}

/// Every allocation that a device of the adapter has open, once.
fn allocations(adapter: &Arc<Miniport>) -> Vec<Arc<Allocation>> {
    let mut all: Vec<Arc<Allocation>> = Vec::new();
    for open in Device::all_of(adapter).iter().flat_map(|device| device.opened()) {
        if !all.iter().any(|known| Arc::ptr_eq(known, open.allocation())) {
            all.push(open.allocation().clone());
        }
    }
    all
}

/// The memory of segments is gone: what lies there still is evicted, without its content; what is mapped to an aperture
/// is unmapped where all of the hardware's state is lost. Returns how many allocations lost their content.
///
/// IRQL: PASSIVE_LEVEL; the calling thread alone is in the driver, and waits for nothing.
pub(crate) fn memory_is_gone(adapter: &Arc<Miniport>, loss: Loss) -> usize {
    let Some(manager) = VidMm::of(adapter).manager() else { return 0 };
    let lost = segments(&manager, loss);
    let by_address = adapter.personality().lost_by == LostBy::Address;
    let (mut ops, mut count) = (Vec::new(), 0);
    for allocation in allocations(adapter) {
        let (place, aperture) = {
            let mut placement = allocation.placement.lock();
            let place = match placement.place {
                Place::Segment { id, offset, address } if lost.iter().any(|segment| segment.id == id) => {
                    placement.place = Place::Evicted;
                    placement.has_content = false;
                    Some((id, offset, address))
                }
                _ => None,
            };
            // The place in the aperture stays: what was there is in system memory, and is mapped again.
            (place, placement.aperture.filter(|_| loss == Loss::Reset))
        };
        let driver = allocation.driver_handle();
        if let Some((id, offset, address)) = place {
            ops.push(Op::Lost { allocation: driver, segment: id, address, by_address });
            manager.free_in_segment(id, offset);
            manager.moved(adapter, &allocation);
            count += 1;
        }
        if let Some((id, first)) = aperture {
            let range = residency::aperture_range(&allocation, id, first);
            ops.push(Op::UnmapAperture { range, dummy: manager.dummy_address() });
            allocation.placement.lock().aperture = None;
            manager.free_in_segment(id, first * PAGE);
        }
    }
    manager.pager.notice(adapter, &ops);
    for segment in &lost {
        overwrite(adapter, &manager, segment);
    }
    count
}

/// Fills what the CPU sees of a segment with a pattern.
fn overwrite(adapter: &Arc<Miniport>, manager: &Manager, segment: &Segment) {
    if !segment.is_cpu_visible() {
        return;
    }
    let pattern = [poison::BYTE; PAGE as usize];
    for offset in (0..segment.size()).step_by(PAGE as usize) {
        match manager.kernel_address(adapter, segment.id, offset) {
            Some(address) => crate::port::raw::copy_to(address, &pattern),
            None => return,
        }
    }
}

/// The page tables of the paging process begin anew, by the CPU; those of other processes will, before a device is made
/// ([`wait_for_tables`](crate::memory::wait_for_tables)).
///
/// IRQL: PASSIVE_LEVEL; no paging buffer is with the driver.
pub(crate) fn tables_begin_anew(adapter: &Arc<Miniport>) {
    let Some(manager) = VidMm::of(adapter).manager() else { return };
    if let Some(system) = manager.system() {
        // What the driver failed at is a broken rule.
        let _ = system.begin_anew_by_cpu(adapter, &manager);
    }
    manager.tables_are_lost.store(true, Ordering::Release);
    manager.post_first(
        adapter,
        Box::new(|adapter, manager| {
            manager.pager.submit_notices(adapter);
            // A paging buffer that was lost with another reset is followed by another such job.
            let _ = ProcessAdapter::all_of(adapter)
                .try_for_each(|gpu_process| gpu_process.tables_begin_anew(adapter, manager));
            manager.tables_are_lost.store(false, Ordering::Release);
        }),
    );
}

/// What was moved out of segments.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    allocations: Vec<Arc<Allocation>>,
    /// Pages of fence values, which stay where they are: segment and address, what was there.
    values: Vec<((u32, u64), Page)>,
}

/// Moves what lies in segments whose content will be lost to system memory.
///
/// IRQL: PASSIVE_LEVEL, not on the paging worker.
pub(crate) fn take_out(adapter: &Arc<Miniport>, loss: Loss) -> Taken {
    let Some(manager) = VidMm::of(adapter).manager() else { return Taken::default() };
    let lost: Vec<u32> = segments(&manager, loss).iter().map(|segment| segment.id).collect();
    let is_lost = |allocation: &Arc<Allocation>| match allocation.placement.lock().place {
        Place::Segment { id, .. } => lost.contains(&id),
        Place::Evicted | Place::System => false,
    };
    let allocations: Vec<_> = allocations(adapter).into_iter().filter(is_lost).collect();
    let places: Vec<_> = manager.value_pages.lock().iter().filter(|(id, _)| lost.contains(id)).copied().collect();
    let taken = manager.run_on_worker(adapter, move |adapter, manager| -> Result<Taken, PagingError> {
        for allocation in &allocations {
            let place = residency::leave(&mut allocation.placement.lock());
            residency::move_out(adapter, manager, allocation, place)?;
        }
        let mut taken = Taken { allocations, values: Vec::new() };
        for place in places {
            let Some(page) = manager.pool.allocate() else { break };
            residency::transfer(adapter, manager, 0, vec![page.frame()], place, false)?;
            taken.values.push((place, page));
        }
        Ok(taken)
    });
    // What the driver failed at is a broken rule.
    taken.and_then(Result::ok).unwrap_or_default()
}

/// Moves everything back to where the GPU reaches it.
///
/// IRQL: PASSIVE_LEVEL, not on the paging worker.
pub(crate) fn bring_back(adapter: &Arc<Miniport>, taken: Taken) {
    let Some(manager) = VidMm::of(adapter).manager() else { return };
    manager.run_on_worker(adapter, move |adapter, manager| -> Result<(), PagingError> {
        for (place, page) in &taken.values {
            residency::transfer(adapter, manager, 0, vec![page.frame()], *place, true)?;
        }
        for allocation in &taken.allocations {
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
