//! Residency and mappings: jobs of the paging worker that place allocations and change page tables.
//!
//! Chosen: an allocation is where the GPU reaches it as long as any device has made it resident more often than evicted
//! it; with the last reference it is evicted at once (the documents let VidMm keep it), but for a ring of a doorbell
//! and its control words, which are evicted with their doorbell. Pages in a local segment are filled with zeros before
//! the first use.

use std::sync::Arc;

use nt_model::Mdl;
use wddm_abi::{DXGK_MEMORY_TRANSFER_DIRECTION, NTSTATUS, ntstatus};

use super::Manager;
use super::allocation::{Allocation, Place, Placement};
use super::page_table::Purpose;
use super::paging::{ApertureRange, Op, PagingError};
use super::space::Content;
use super::va::{PAGE, Protection, Use};
use crate::memory::VidMm;
use crate::memory::space::AddressSpace;
use crate::port::miniport::Miniport;
use crate::port::rules::paging::PAGING_EVICTED;

/// What user mode gets for it.
pub(crate) fn status_of(error: PagingError) -> NTSTATUS {
    match error {
        PagingError::Driver(status) if !status.is_success() => status,
        PagingError::Driver(_) => ntstatus::STATUS_UNSUCCESSFUL,
        PagingError::Lost => ntstatus::STATUS_DEVICE_REMOVED,
    }
}

/// Content of page table entries that show part of an allocation where it lies.
fn content(allocation: &Allocation, offset: u64, pages: u64, protection: Protection) -> Content {
    let place = allocation.placement.lock().place;
    match place {
        Place::Evicted => Content::None,
        Place::System => {
            // CAST: page numbers within the allocation.
            let first = (offset / PAGE) as usize;
            let frames = (first..first + pages as usize).map(|page| allocation.backing().frame(page) * PAGE);
            Content::Pages { segment: 0, addresses: frames.collect(), protection }
        }
        Place::Segment { id, address, .. } => {
            let addresses = (0..pages).map(|page| address + offset + page * PAGE).collect();
            Content::Pages { segment: id, addresses, protection }
        }
    }
}

/// What the entries of `pages` pages of this use are now, and what they are for.
pub(crate) fn entries_of(used: &Use, pages: u64) -> (Content, Purpose) {
    match used {
        Use::Allocation { allocation, offset, protection, driver_protection } => {
            let purpose = Purpose {
                allocation: Some((allocation.driver_handle(), *offset)),
                driver_protection: *driver_protection,
                native_fence: false,
            };
            (content(allocation, *offset, pages, *protection), purpose)
        }
        Use::Reserved(protection) if protection.zero => (Content::Zero, Purpose::default()),
        _ => (Content::None, Purpose::default()),
    }
}

/// Stores the entries of one range as its use is now. On the paging worker.
pub(crate) fn show_range(
    adapter: &Arc<Miniport>,
    manager: &Arc<Manager>,
    space: &AddressSpace,
    address: u64,
    size: u64,
    used: &Use,
) -> Result<(), PagingError> {
    let pages = size / PAGE;
    let (content, purpose) = entries_of(used, pages);
    space.set(adapter, manager, address, pages, &content, purpose)
}

/// Brings every page table up to where an allocation lies now.
fn show_everywhere(
    adapter: &Arc<Miniport>,
    manager: &Arc<Manager>,
    allocation: &Arc<Allocation>,
) -> Result<(), PagingError> {
    for space in manager.spaces() {
        let mappings = space.with_ranges(|ranges| ranges.mappings_of(allocation));
        for (address, range) in mappings {
            show_range(adapter, manager, &space, address, range.size, &range.used)?;
        }
    }
    Ok(())
}

/// Places an allocation where the GPU reaches it. On the paging worker.
pub(crate) fn make_resident(
    adapter: &Arc<Miniport>,
    manager: &Arc<Manager>,
    allocation: &Arc<Allocation>,
) -> Result<(), PagingError> {
    let needed = {
        let mut placement = allocation.placement.lock();
        placement.references += 1;
        placement.place == Place::Evicted
    };
    if needed { move_in(adapter, manager, allocation) } else { Ok(()) }
}

/// Places an evicted allocation where the GPU reaches it. On the paging worker.
pub(crate) fn move_in(
    adapter: &Arc<Miniport>,
    manager: &Arc<Manager>,
    allocation: &Arc<Allocation>,
) -> Result<(), PagingError> {
    let place = choose(manager, allocation);
    match place {
        Place::Segment { .. } => page_in(adapter, manager, allocation, place)?,
        _ => pin(adapter, allocation, true),
    }
    allocation.placement.lock().place = place;
    if allocation.accessed_physically {
        map_aperture(adapter, manager, allocation)?;
    }
    if allocation.notify_residency {
        notify(adapter, manager, allocation, place, true)?;
    }
    manager.moved(adapter, allocation);
    show_everywhere(adapter, manager, allocation)
}

fn choose(manager: &Manager, allocation: &Allocation) -> Place {
    for id in &allocation.segments {
        let Some(segment) = manager.caps.segment(*id) else { continue };
        if segment.is_aperture() {
            return Place::System;
        }
        let room = manager.allocate_in_segment(*id, allocation.size(), allocation.alignment, allocation.from_end);
        if let Some((address, offset)) = room {
            return Place::Segment { id: *id, offset, address };
        }
    }
    Place::System
}

/// Keeps the backing's pages in memory, or lets them go.
fn pin(adapter: &Miniport, allocation: &Allocation, on: bool) {
    allocation.backing().pin(adapter.kernel(), on);
}

/// The backing is named by no page table any more, and may be paged out: a driver that has it mapped still, as a GPU in
/// software has what it reaches, reaches what another will have there. Memory of a process may be another allocation's,
/// too.
fn judge_let_go(adapter: &Miniport, allocation: &Allocation) {
    if allocation.backing().is_existing() {
        return;
    }
    let mapped = adapter.kernel().mapped_by_a_driver(allocation.backing().object());
    adapter.rules().check(&PAGING_EVICTED, mapped.is_none(), || {
        let (page, address) = mapped.unwrap_or_default();
        format!("page {page} of {:#x} is mapped at {address:#x}", allocation.driver_handle())
    });
}

/// Takes back a reference, and the place with the last. On the paging worker.
pub(crate) fn evict(
    adapter: &Arc<Miniport>,
    manager: &Arc<Manager>,
    allocation: &Arc<Allocation>,
) -> Result<(), PagingError> {
    let left = {
        let mut placement = allocation.placement.lock();
        placement.references = placement.references.saturating_sub(1);
        leave_unwanted(&mut placement)
    };
    left.map_or(Ok(()), |place| move_out(adapter, manager, allocation, place))
}

/// Where no device and no doorbell wants an allocation in its place, that is [left](leave). One step: a doorbell that
/// comes behind it finds the allocation evicted, and one that comes before keeps it.
fn leave_unwanted(placement: &mut Placement) -> Option<Place> {
    is_unwanted(placement).then(|| leave(placement))
}

/// An allocation is evicted from now on; where it was, for [`move_out`].
pub(crate) fn leave(placement: &mut Placement) -> Place {
    std::mem::replace(&mut placement.place, Place::Evicted)
}

/// Returns whether an allocation lies somewhere, and no device and no doorbell wants it there.
fn is_unwanted(placement: &Placement) -> bool {
    (placement.references, placement.kept) == (0, 0) && placement.place != Place::Evicted
}

/// A doorbell lets go of a ring: it is evicted if every device has evicted it meanwhile.
///
/// IRQL: PASSIVE_LEVEL, not on the paging worker.
pub(crate) fn keep_no_more(allocation: &Arc<Allocation>) {
    let was_evicted = {
        let mut placement = allocation.placement.lock();
        placement.kept = placement.kept.saturating_sub(1);
        is_unwanted(&placement)
    };
    let adapter = allocation.adapter();
    if let Some(manager) = VidMm::of(adapter).manager().filter(|_| was_evicted) {
        let allocation = allocation.clone();
        manager.run_on_worker(adapter, move |adapter, manager| {
            // A device may have made it resident again.
            let left = leave_unwanted(&mut allocation.placement.lock());
            if let Some(place) = left {
                // What the driver failed at is a broken rule.
                let _ = move_out(adapter, manager, &allocation, place);
            }
        });
    }
}

/// Evicts an allocation, with its content, that has [left](leave) `place`. On the paging worker.
pub(crate) fn move_out(
    adapter: &Arc<Miniport>,
    manager: &Arc<Manager>,
    allocation: &Arc<Allocation>,
    place: Place,
) -> Result<(), PagingError> {
    let shown = show_everywhere(adapter, manager, allocation);
    if allocation.notify_residency {
        notify(adapter, manager, allocation, place, false)?;
    }
    unmap_aperture(adapter, manager, allocation)?;
    match place {
        Place::Segment { id, offset, address } => {
            let moved = copy(adapter, manager, allocation, (id, address), false);
            allocation.placement.lock().has_content = moved.is_ok();
            manager.free_in_segment(id, offset);
            moved?;
        }
        Place::System => {
            if shown.is_ok() {
                judge_let_go(adapter, allocation);
            }
            pin(adapter, allocation, false);
        }
        Place::Evicted => (),
    }
    manager.moved(adapter, allocation);
    shown
}

/// Fills or copies an allocation into its place in a segment.
fn page_in(
    adapter: &Arc<Miniport>,
    manager: &Arc<Manager>,
    allocation: &Arc<Allocation>,
    place: Place,
) -> Result<(), PagingError> {
    let Place::Segment { id, address, .. } = place else { return Ok(()) };
    let locked = allocation.placement.lock().has_content || allocation.cpu_visible;
    if locked {
        // What the CPU wrote while it was elsewhere is its content.
        return copy(adapter, manager, allocation, (id, address), true);
    }
    manager.fill_segment(adapter, (id, address), allocation.size(), allocation.driver_handle(), 0)
}

/// Maps part of a segment into the scratch area of the paging process.
fn show_scratch(
    adapter: &Arc<Miniport>,
    manager: &Arc<Manager>,
    id: u32,
    address: u64,
    size: u64,
) -> Result<u64, PagingError> {
    let addresses = (0..size / PAGE).map(|page| address + page * PAGE).collect();
    manager.map_scratch(adapter, id, addresses)
}

/// Copies between the backing and a place in a segment.
fn copy(
    adapter: &Arc<Miniport>,
    manager: &Arc<Manager>,
    allocation: &Arc<Allocation>,
    (id, address): (u32, u64),
    inward: bool,
) -> Result<(), PagingError> {
    pin(adapter, allocation, true);
    let frames = allocation.backing().frames();
    let result = transfer(adapter, manager, allocation.driver_handle(), frames, (id, address), inward);
    if result.is_ok() {
        judge_let_go(adapter, allocation);
    }
    pin(adapter, allocation, false);
    result
}

/// Copies between page frames and a place in a segment. `allocation`: the driver's handle, or 0.
pub(crate) fn transfer(
    adapter: &Arc<Miniport>,
    manager: &Arc<Manager>,
    allocation: usize,
    frames: Vec<u64>,
    (id, address): (u32, u64),
    inward: bool,
) -> Result<(), PagingError> {
    let pages = frames.len() as u64;
    let system = manager.map_scratch(adapter, 0, frames.into_iter().map(|frame| frame * PAGE).collect())?;
    let local = show_scratch(adapter, manager, id, address, pages * PAGE)?;
    let (source, destination) = if inward { (system, local) } else { (local, system) };
    let direction = if inward {
        DXGK_MEMORY_TRANSFER_DIRECTION::DXGK_MEMORY_TRANSFER_SYSTEM_TO_LOCAL
    } else {
        DXGK_MEMORY_TRANSFER_DIRECTION::DXGK_MEMORY_TRANSFER_LOCAL_TO_SYSTEM
    };
    let transfer = Op::Transfer { allocation, offset: 0, size: pages * PAGE, source, destination, direction };
    let copied = manager.pager.run(adapter, &[transfer]);
    manager.unmap_for_system(adapter, system, pages);
    manager.unmap_for_system(adapter, local, pages);
    copied
}

fn notify(
    adapter: &Arc<Miniport>,
    manager: &Arc<Manager>,
    allocation: &Allocation,
    place: Place,
    resident: bool,
) -> Result<(), PagingError> {
    let aperture = allocation.placement.lock().aperture;
    let (segment, address) = match (place, aperture) {
        (Place::Segment { id, address, .. }, _) => (id, address),
        (_, Some((id, first))) => (id, manager.aperture_address(id, first * PAGE)),
        _ => (0, allocation.backing().frame(0) * PAGE),
    };
    let op = Op::NotifyResidency { allocation: allocation.driver_handle(), segment, address, resident };
    manager.pager.run(adapter, &[op])
}

/// Maps an allocation in system memory into the first aperture that it supports.
fn map_aperture(
    adapter: &Arc<Miniport>,
    manager: &Arc<Manager>,
    allocation: &Arc<Allocation>,
) -> Result<(), PagingError> {
    if allocation.placement.lock().place != Place::System {
        return Ok(());
    }
    let is_aperture = |id: &&u32| manager.caps.segment(**id).is_some_and(crate::port::caps::Segment::is_aperture);
    let Some(id) = allocation.segments.iter().find(is_aperture).copied() else { return Ok(()) };
    let none = PagingError::Driver(ntstatus::STATUS_NO_MEMORY);
    let (_, offset) = manager.allocate_in_segment(id, allocation.size(), allocation.alignment, false).ok_or(none)?;
    let first = offset / PAGE;
    allocation.placement.lock().aperture = Some((id, first));
    let mdl = mdl_of(adapter, allocation).ok_or(none)?;
    let op = Op::MapAperture { range: aperture_range(allocation, id, first), mdl: mdl.address() };
    let mapped = manager.pager.run(adapter, &[op]);
    adapter.kernel().free_mdl(mdl);
    mapped
}

fn unmap_aperture(adapter: &Arc<Miniport>, manager: &Arc<Manager>, allocation: &Allocation) -> Result<(), PagingError> {
    let Some((id, first)) = allocation.placement.lock().aperture.take() else { return Ok(()) };
    let op = Op::UnmapAperture { range: aperture_range(allocation, id, first), dummy: manager.dummy_address() };
    let unmapped = manager.pager.run(adapter, &[op]);
    manager.free_in_segment(id, first * PAGE);
    unmapped
}

pub(crate) fn aperture_range(allocation: &Allocation, segment: u32, first: u64) -> ApertureRange {
    ApertureRange { allocation: allocation.driver_handle(), segment, first, pages: allocation.size() / PAGE }
}

/// A memory descriptor list of the backing.
fn mdl_of(adapter: &Miniport, allocation: &Allocation) -> Option<Mdl> {
    // CAST: a size.
    let mdl = adapter.kernel().allocate_mdl(0, allocation.size() as usize)?;
    mdl.set_frames(&allocation.backing().frames());
    Some(mdl)
}

/// The last user is gone: mappings become reservations without access, the place is given back.
pub(crate) fn release_everything(allocation: &Arc<Allocation>) {
    let adapter = allocation.adapter();
    let Some(manager) = VidMm::of(adapter).manager() else { return };
    let allocation = allocation.clone();
    manager.run_on_worker(adapter, move |adapter, manager| {
        for space in manager.spaces() {
            let mappings = space.with_ranges(|ranges| ranges.mappings_of(&allocation));
            for (address, range) in mappings {
                let none = Use::Reserved(Protection { no_access: true, ..Protection::default() });
                space.with_ranges(|ranges| ranges.replace(address, range.size, none.clone()));
                let _ = show_range(adapter, manager, &space, address, range.size, &none);
            }
        }
        if allocation.placement.lock().place != Place::Evicted {
            let _ = drop_place(adapter, manager, &allocation);
        }
    });
}

/// As [`move_out`], without saving the content.
fn drop_place(
    adapter: &Arc<Miniport>,
    manager: &Arc<Manager>,
    allocation: &Arc<Allocation>,
) -> Result<(), PagingError> {
    let place = std::mem::replace(&mut allocation.placement.lock().place, Place::Evicted);
    if allocation.notify_residency {
        notify(adapter, manager, allocation, place, false)?;
    }
    unmap_aperture(adapter, manager, allocation)?;
    match place {
        Place::Segment { id, offset, .. } => manager.free_in_segment(id, offset),
        Place::System => pin(adapter, allocation, false),
        Place::Evicted => (),
    }
    Ok(())
}
