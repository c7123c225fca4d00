//! Memory that a driver has from callbacks: register mappings, contiguous memory, pages of an MDL.
//!
//! [`DriverMemory`] remembers it all, so that what is left at stop is named (leak rules) and a wrong handle refused.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, Ordering};

use nt_model::memory::ContiguousRequest;
use nt_model::{CacheType, In, Mdl, PageObject, hex_list, shims};
use std::sync::Arc;
use wddm_abi::{
    DXGK_DEVICE_INFO, DXGKARGCB_ALLOCATECONTIGUOUSMEMORY, DXGKARGCB_ALLOCATEPAGESFORMDL,
    DXGKARGCB_FREECONTIGUOUSMEMORY, DXGKARGCB_FREEPAGESFROMMDL, NTSTATUS, ntstatus,
};

use crate::memory::VidMm;
use crate::port::callback::{callback, record, routines, store_record};
use crate::port::handle::{self, raw};
use crate::port::miniport::Miniport;
use crate::port::rules::interface::CB_FREE;
use crate::port::rules::leak::{LEAK_INTERFACE, LEAK_MAPPING, LEAK_MEMORY};
use crate::port::sync::{Lock, Rank};

routines! {
    ALLOCATE_CONTIGUOUS = "DxgkCbAllocateContiguousMemory"("hAdapter", "pArgs") 0..=0;
    FREE_CONTIGUOUS = "DxgkCbFreeContiguousMemory"("hAdapter", "pArgs") 0..=0;
    ALLOCATE_PAGES = "DxgkCbAllocatePagesForMdl"("hAdapter", "pArgs") 0..=0;
    FREE_PAGES = "DxgkCbFreePagesFromMdl"("hAdapter", "pArgs") 0..=0;
}

/// The highest physical address of a machine that gets more memory, until the adapter has started: 64 KB.
const FIRST_HIGHEST: u64 = 0xFFFF;

/// `MM_ALLOCATE_FULLY_REQUIRED`.
const FULLY_REQUIRED: u32 = 4;
/// Handles of driver memory count from here, away from everything else.
const FIRST_HANDLE: u64 = 0xFFFF_C200_0000_0000;

/// Something a callback allocated.
#[derive(Clone, Debug)]
pub(crate) enum Memory {
    /// `DxgkCbAllocateContiguousMemory`: address, size, how it is cached.
    Contiguous(usize, usize, CacheType),
    /// `DxgkCbAllocatePagesForMdl`.
    Pages(Mdl),
    /// `DxgkCbCreatePhysicalMemoryObject`.
    Physical(Arc<super::physical::PhysicalObject>),
}

#[derive(Debug, Default)]
struct State {
    registers: BTreeMap<usize, usize>,
    memory: BTreeMap<u64, Memory>,
    next: u64,
    mappings: BTreeMap<usize, (usize, Option<Arc<PageObject>>)>,
}

/// What the driver of one adapter has from callbacks.
#[derive(Debug)]
pub(crate) struct DriverMemory {
    state: Lock<State>,
    /// References on the feature interface beyond those dropped.
    pub(crate) interface_references: AtomicI64,
}

/// `DXGK_DEVICE_INFO`.
pub(crate) fn device_info(adapter: &Miniport) -> DXGK_DEVICE_INFO {
    let mut info = DXGK_DEVICE_INFO::zeroed();
    info.MiniportDeviceContext = adapter.context();
    info.PhysicalDeviceObject = core::ptr::with_exposed_provenance_mut(adapter.object.address());
    info.DeviceRegistryPath = adapter.object.path();
    info.TranslatedResourceList = adapter.device.resources();
    let memory = adapter.kernel().installed_memory();
    info.SystemMemorySize.QuadPart = memory.cast_signed();
    let added = adapter.personality().memory_added && VidMm::of(adapter).manager().is_none();
    let highest = if added { FIRST_HIGHEST } else { adapter.kernel().highest_physical_address() };
    info.HighestPhysicalAddress.QuadPart = highest.cast_signed();
    info
}

impl Default for DriverMemory {
    fn default() -> Self {
        Self { state: Lock::new(Rank::Leaf, State::default()), interface_references: AtomicI64::new(0) }
    }
}

impl DriverMemory {
    /// That of an adapter's driver.
    pub(crate) fn of(adapter: &Miniport) -> &Self {
        adapter.extension()
    }

    pub(super) fn add_register_mapping(&self, address: usize, length: usize) {
        self.state.lock().registers.insert(address, length);
    }

    pub(super) fn take_register_mapping(&self, address: usize) -> Option<usize> {
        self.state.lock().registers.remove(&address)
    }

    /// Remembers something and gives it a handle.
    pub(super) fn add(&self, memory: Memory) -> u64 {
        let mut state = self.state.lock();
        state.next += 0x10;
        let handle = FIRST_HANDLE + state.next;
        state.memory.insert(handle, memory);
        handle
    }

    pub(super) fn get(&self, handle: u64) -> Option<Memory> {
        self.state.lock().memory.get(&handle).cloned()
    }

    /// Takes out what `wanted` says it is.
    pub(super) fn take(&self, handle: u64, wanted: impl Fn(&Memory) -> bool) -> Option<Memory> {
        let mut state = self.state.lock();
        if !state.memory.get(&handle).is_some_and(wanted) {
            return None;
        }
        state.memory.remove(&handle)
    }

    pub(super) fn add_mapping(&self, address: usize, bytes: usize, object: Option<Arc<PageObject>>) {
        self.state.lock().mappings.insert(address, (bytes, object));
    }

    pub(super) fn take_mapping(&self, address: usize) -> Option<(usize, Option<Arc<PageObject>>)> {
        self.state.lock().mappings.remove(&address)
    }

    /// The adapter was stopped: whatever is left is the driver's leak, and taken back.
    pub(crate) fn reclaim(&self, adapter: &Miniport) {
        let (registers, memory, mappings) = {
            let mut state = self.state.lock();
            (
                std::mem::take(&mut state.registers),
                std::mem::take(&mut state.memory),
                std::mem::take(&mut state.mappings),
            )
        };
        adapter
            .rules()
            .check(&LEAK_MAPPING, registers.is_empty(), || format!("mapped at {}", hex_list(registers.keys())));
        let left = memory.is_empty() && mappings.is_empty();
        adapter.rules().check(&LEAK_MEMORY, left, || {
            format!("handles {}, mapped at {}", hex_list(memory.keys()), hex_list(mappings.keys()))
        });
        for (address, length) in registers {
            adapter.kernel().unmap_io_space(address, length);
        }
        for (address, (bytes, object)) in mappings {
            super::physical::unmap(adapter, address, bytes, object.as_ref());
        }
        for memory in memory.into_values() {
            free(adapter, &memory);
        }
    }

    /// The adapter is being removed.
    pub(crate) fn judge_references(&self, adapter: &Miniport) {
        let left = self.interface_references.swap(0, Ordering::Relaxed);
        adapter.rules().check(&LEAK_INTERFACE, left <= 0, || format!("{left} references on DXGK_FEATURE_INTERFACE"));
    }
}

/// Frees what a callback allocated.
pub(super) fn free(adapter: &Miniport, memory: &Memory) {
    let kernel = adapter.kernel();
    match memory {
        Memory::Contiguous(address, bytes, cache) => kernel.free_contiguous(*address, Some((*bytes, *cache))),
        Memory::Pages(mdl) => {
            kernel.free_pages_from_mdl(*mdl);
            kernel.free_mdl(*mdl);
        }
        Memory::Physical(object) => object.free(adapter),
    }
}

/// `DXGK_MEMORY_CACHING_TYPE` has the numbers of `MEMORY_CACHING_TYPE`.
pub(super) fn cache_type(raw: i32) -> Option<CacheType> {
    CacheType::from_raw(u32::try_from(raw).ok()?)
}

shims! {
    /// Memory callbacks.
    pub(crate) table CALLBACKS;

    fn DxgkCbAllocateContiguousMemory(
        _machine,
        adapter: usize,
        args: In<[u8; size_of::<DXGKARGCB_ALLOCATECONTIGUOUSMEMORY>()]>,
    ) -> NTSTATUS {
        let numbers = [adapter as u64, args.address() as u64];
        let status = callback(raw(adapter as u64), &ALLOCATE_CONTIGUOUS, numbers, |adapter| {
            let mut arguments: DXGKARGCB_ALLOCATECONTIGUOUSMEMORY = record(args);
            let Some(cache) = cache_type(arguments.CacheType.0) else { return ntstatus::STATUS_INVALID_PARAMETER };
            let request = ContiguousRequest {
                bytes: arguments.NumberOfBytes,
                lowest: arguments.LowestAcceptableAddress.QuadPart.cast_unsigned(),
                highest: arguments.HighestAcceptableAddress.QuadPart.cast_unsigned(),
                boundary: arguments.BoundaryAddressMultiple.QuadPart.cast_unsigned(),
                cache,
            };
            let Some(address) = adapter.kernel().allocate_contiguous(&request) else {
                return ntstatus::STATUS_NO_MEMORY;
            };
            let handle = DriverMemory::of(adapter).add(Memory::Contiguous(address, request.bytes, cache));
            arguments.hMemoryHandle = raw(handle);
            arguments.pMemory = core::ptr::with_exposed_provenance_mut(address);
            store_record(args, &arguments);
            ntstatus::STATUS_SUCCESS
        });
        status.unwrap_or_else(|status| status)
    }

    fn DxgkCbFreeContiguousMemory(
        _machine,
        adapter: usize,
        args: In<[u8; size_of::<DXGKARGCB_FREECONTIGUOUSMEMORY>()]>,
    ) -> NTSTATUS {
        let numbers = [adapter as u64, args.address() as u64];
        let status = callback(raw(adapter as u64), &FREE_CONTIGUOUS, numbers, |adapter| {
            let arguments: DXGKARGCB_FREECONTIGUOUSMEMORY = record(args);
            free_handle(adapter, handle::value(arguments.hMemoryHandle), |memory| matches!(memory, Memory::Contiguous(..)))
        });
        status.unwrap_or_else(|status| status)
    }

    fn DxgkCbAllocatePagesForMdl(
        _machine,
        adapter: usize,
        args: In<[u8; size_of::<DXGKARGCB_ALLOCATEPAGESFORMDL>()]>,
    ) -> NTSTATUS {
        let numbers = [adapter as u64, args.address() as u64];
        let status = callback(raw(adapter as u64), &ALLOCATE_PAGES, numbers, |adapter| {
            let mut arguments: DXGKARGCB_ALLOCATEPAGESFORMDL = record(args);
            let Some(cache) = cache_type(arguments.CacheType.0) else { return ntstatus::STATUS_INVALID_PARAMETER };
            let low = arguments.LowAddress.QuadPart.cast_unsigned();
            let high = arguments.HighAddress.QuadPart.cast_unsigned();
            let fully = arguments.Flags & FULLY_REQUIRED != 0;
            let mdl = adapter.kernel().allocate_pages_for_mdl(low..=high, arguments.TotalBytes, cache, fully);
            let Some(mdl) = mdl else { return ntstatus::STATUS_NO_MEMORY };
            arguments.hMemoryHandle = raw(DriverMemory::of(adapter).add(Memory::Pages(mdl)));
            arguments.pMdl = core::ptr::with_exposed_provenance_mut(mdl.address());
            store_record(args, &arguments);
            ntstatus::STATUS_SUCCESS
        });
        status.unwrap_or_else(|status| status)
    }

    fn DxgkCbFreePagesFromMdl(
        _machine,
        adapter: usize,
        args: In<[u8; size_of::<DXGKARGCB_FREEPAGESFROMMDL>()]>,
    ) -> NTSTATUS {
        let numbers = [adapter as u64, args.address() as u64];
        let status = callback(raw(adapter as u64), &FREE_PAGES, numbers, |adapter| {
            let arguments: DXGKARGCB_FREEPAGESFROMMDL = record(args);
            free_handle(adapter, handle::value(arguments.hMemoryHandle), |memory| matches!(memory, Memory::Pages(_)))
        });
        status.unwrap_or_else(|status| status)
    }
}

/// Frees by handle, or breaks DXG-CB-FREE.
pub(super) fn free_handle(adapter: &Miniport, handle: u64, wanted: impl Fn(&Memory) -> bool) -> NTSTATUS {
    let memory = DriverMemory::of(adapter).take(handle, wanted);
    adapter.rules().check(&CB_FREE, memory.is_some(), || format!("{handle:#x} is no such allocation"));
    match memory {
        Some(memory) => {
            free(adapter, &memory);
            ntstatus::STATUS_SUCCESS
        }
        None => ntstatus::STATUS_INVALID_PARAMETER,
    }
}
