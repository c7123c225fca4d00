//! `D3DKMTUpdateGpuVirtualAddress`: page tables that change in order with the work of a context.
//!
//! Source: DDI pages D3DKMTUpdateGpuVirtualAddress, D3DKMT_UPDATEGPUVIRTUALADDRESS,
//! D3DDDI_UPDATEGPUVIRTUALADDRESS_OPERATION.
//!
//! Chosen: the companion of a context that `DxgkDdiCreateHwContext` made, whose record names no node, is on the paging
//! node; with `DoNotWait` a call may name no fence, and then nothing is signaled; the thread that has more than 128
//! operations outstanding is not blocked.

use std::collections::BTreeSet;
use std::sync::Arc;

use wddm_abi::{
    D3DDDI_UPDATEGPUVIRTUALADDRESS_OPERATION, D3DDDI_UPDATEGPUVIRTUALADDRESS_OPERATION_Map,
    D3DDDI_UPDATEGPUVIRTUALADDRESS_OPERATION_TYPE as Type, D3DKMT_UPDATEGPUVIRTUALADDRESS, NTSTATUS, ntstatus,
};

use super::device::device;
use super::memory::{MOST_PAGES, has_gpu_addresses, protection};
use super::{Call, DONE, INVALID, capture, thunks};
use crate::memory::va::{PAGE, Protection, Use};
use crate::objects::command::Command;
use crate::objects::companion::{self, Change, Update};
use crate::objects::device::Device;
use crate::objects::fence::AnyFence;
use crate::port::worker::Worker;

/// Most operations of one call. Chosen.
const MOST: u32 = 4096;

/// Most changes that the operations of one call come to. A mapping that repeats a piece of an allocation is one change
/// for each repetition. Chosen, as [`MOST_PAGES`] is.
const MOST_CHANGES: u64 = 1 << 14;

/// What a call reads and changes.
struct Asked<'a> {
    call: &'a Call,
    device: &'a Arc<Device>,
    changes: Vec<Change>,
    /// Pages that are changed, each as often as it is.
    pages: u64,
    /// Reservations that are changed, and that are copied from.
    changed: BTreeSet<u64>,
    copied: BTreeSet<u64>,
}

/// Checks that a range is of whole pages.
fn pages(address: u64, size: u64) -> Result<(), NTSTATUS> {
    let whole = size != 0 && (address | size).is_multiple_of(PAGE);
    if whole { Ok(()) } else { Err(INVALID) }
}

impl Asked<'_> {
    /// The reservation that a range belongs to.
    fn reservation(&self, address: u64, size: u64) -> Result<u64, NTSTATUS> {
        let space = self.device.process().address_space();
        space.with_ranges(|ranges| ranges.reservation(address, size)).ok_or(INVALID)
    }

    fn change(&mut self, address: u64, size: u64) -> Result<(), NTSTATUS> {
        pages(address, size)?;
        let base = self.reservation(address, size)?;
        self.changed.insert(base);
        self.pages = self.pages.saturating_add(size / PAGE);
        if self.pages > MOST_PAGES { Err(ntstatus::STATUS_NO_MEMORY) } else { Ok(()) }
    }

    /// Maps a range, as often as the piece of the allocation fits.
    fn map(
        &mut self,
        map: &D3DDDI_UPDATEGPUVIRTUALADDRESS_OPERATION_Map,
        protection: Protection,
        driver_protection: u64,
    ) -> Result<(), NTSTATUS> {
        self.change(map.BaseAddress, map.SizeInBytes)?;
        let open = self.call.process.allocation(map.hAllocation).ok_or(INVALID)?;
        let piece = if map.AllocationSizeInBytes == 0 { map.SizeInBytes } else { map.AllocationSizeInBytes };
        pages(map.AllocationOffsetInBytes, piece)?;
        let end = map.AllocationOffsetInBytes.checked_add(piece).ok_or(INVALID)?;
        let fits = end <= open.allocation().size() && map.SizeInBytes.is_multiple_of(piece);
        if !fits || !Arc::ptr_eq(open.device(), self.device) {
            return Err(INVALID);
        }
        if map.SizeInBytes / piece + self.changes.len() as u64 > MOST_CHANGES {
            return Err(ntstatus::STATUS_NO_MEMORY);
        }
        for at in (0..map.SizeInBytes).step_by(piece as usize) {
            let used = Use::Allocation {
                allocation: open.allocation().clone(),
                offset: map.AllocationOffsetInBytes,
                protection,
                driver_protection,
            };
            self.changes.push(Change::Show { address: map.BaseAddress + at, size: piece, used });
        }
        Ok(())
    }

    fn add(&mut self, operation: &D3DDDI_UPDATEGPUVIRTUALADDRESS_OPERATION) -> Result<(), NTSTATUS> {
        match operation.OperationType {
            Type::D3DDDI_UPDATEGPUVIRTUALADDRESS_MAP => self.map(operation.Map(), Protection::READ_WRITE, 0),
            Type::D3DDDI_UPDATEGPUVIRTUALADDRESS_MAP_PROTECT => {
                let from = operation.MapProtect();
                let mut map = D3DDDI_UPDATEGPUVIRTUALADDRESS_OPERATION_Map::zeroed();
                (map.BaseAddress, map.SizeInBytes, map.hAllocation) =
                    (from.BaseAddress, from.SizeInBytes, from.hAllocation);
                (map.AllocationOffsetInBytes, map.AllocationSizeInBytes) =
                    (from.AllocationOffsetInBytes, from.AllocationSizeInBytes);
                let protection = protection(&from.Protection)?;
                if protection.zero || protection.no_access {
                    return Err(INVALID);
                }
                self.map(&map, protection, from.DriverProtection)
            }
            Type::D3DDDI_UPDATEGPUVIRTUALADDRESS_UNMAP => {
                let unmap = operation.Unmap();
                let protection = protection(&unmap.Protection)?;
                if protection.zero == protection.no_access {
                    return Err(INVALID);
                }
                self.change(unmap.BaseAddress, unmap.SizeInBytes)?;
                let used = Use::Reserved(protection);
                self.changes.push(Change::Show { address: unmap.BaseAddress, size: unmap.SizeInBytes, used });
                Ok(())
            }
            Type::D3DDDI_UPDATEGPUVIRTUALADDRESS_COPY => {
                let copy = operation.Copy();
                self.change(copy.DestAddress, copy.SizeInBytes)?;
                pages(copy.SourceAddress, copy.SizeInBytes)?;
                let base = self.reservation(copy.SourceAddress, copy.SizeInBytes)?;
                self.copied.insert(base);
                let (source, size, destination) = (copy.SourceAddress, copy.SizeInBytes, copy.DestAddress);
                self.changes.push(Change::Copy { source, size, destination });
                Ok(())
            }
            _ => Err(INVALID),
        }
    }
}

thunks! {
    /// Page tables that change in order with work.
    table THUNKS;

    fn D3DKMTUpdateGpuVirtualAddress(call, record: D3DKMT_UPDATEGPUVIRTUALADDRESS) {
        let device = device(call, record.hDevice)?;
        has_gpu_addresses(device.adapter())?;
        let reserved = record.Reserved0 != 0 || record.Reserved1 != 0 || record.Flags.Reserved() != 0;
        if reserved || record.NumOperations == 0 || record.NumOperations > MOST {
            return Err(INVALID);
        }
        let (owner, context, node) = match (call.process.context(record.hContext), call.process.hw_context(record.hContext)) {
            (Some(context), _) => (context.device().clone(), context.driver_handle(), context.companion_node()),
            (_, Some(context)) => {
                let node = context.companion_node().unwrap_or_else(|| device.adapter().known_caps().paging_node());
                (context.device().clone(), context.driver_handle(), node)
            }
            _ => return Err(INVALID),
        };
        let fence = call.process.monitored_fence(record.hFenceObject);
        let unnamed = record.hFenceObject == 0 && record.Flags.DoNotWait();
        if !Arc::ptr_eq(&owner, &device) || context == 0 || (fence.is_none() && !unnamed) {
            return Err(INVALID);
        }
        let (changed, copied) = (BTreeSet::new(), BTreeSet::new());
        let mut asked = Asked { call, device: &device, changes: Vec::new(), pages: 0, changed, copied };
        for operation in capture::array(record.Operations.cast_const(), record.NumOperations)? {
            asked.add(&operation)?;
        }
        if asked.changed.len() > 1 || asked.copied.len() > 1 {
            return Err(INVALID);
        }
        let Asked { changes, .. } = asked;
        let companion = companion::companion_of(&device, context, node)?;
        let fence = fence.map(|fence| AnyFence::Monitored(fence.state().clone()));
        let mut commands = Vec::new();
        if let Some(fence) = fence.clone().filter(|_| !record.Flags.DoNotWait()) {
            commands.push(Command::Wait(vec![(fence, record.FenceValue)]));
        }
        commands.push(Command::Update(Update::new(changes)));
        if let Some(fence) = fence {
            commands.push(Command::Signal(vec![(fence, record.FenceValue.wrapping_add(1))]));
        }
        for command in commands {
            if !companion.commands().push(command) {
                return Err(ntstatus::STATUS_DEVICE_REMOVED);
            }
        }
        Worker::of(device.adapter()).kick(device.adapter());
        DONE
    }
}
