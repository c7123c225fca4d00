//! Mappings at reserved addresses, where the machine has no others: nothing is allocated for them.
//!
//! Source: `MmMapLockedPagesWithReservedMapping` ("to make forward progress even in low-resource scenarios").

use super::mapping::{alike, is_ordered};
use alloc::vec::Vec;
use core::cell::UnsafeCell;
use core::ffi::c_void;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, Ordering};
use gpu_engine::NoMemory;
use gpu_engine::host::Unmapped;
use gpu_engine::memory::Mapping;
use gpu_engine::shared::Shared;
use gpu_wire::PAGE_SIZE;
use kmd_core::irql::Passive;
use kmd_core::platform::RESERVED_PAGES;
use wdk_sys::MDL;
use wdk_sys::MDL_PAGES_LOCKED;
use wdk_sys::NT_SUCCESS;
use wdk_sys::PAGE_READONLY;
use wdk_sys::PMDL;
use wdk_sys::ntddk::MmAllocateMappingAddress;
use wdk_sys::ntddk::MmFreeMappingAddress;
use wdk_sys::ntddk::MmMapLockedPagesWithReservedMapping;
use wdk_sys::ntddk::MmProtectMdlSystemAddress;
use wdk_sys::ntddk::MmUnmapReservedMapping;

const TAG: u32 = u32::from_le_bytes(*b"Fenc");

/// An MDL of our own, in the pool's non-paged memory, with room for the frames of a place.
#[repr(C)]
struct Room {
    header: MDL,
    frames: [u64; RESERVED_PAGES],
}

/// Addresses for one mapping.
struct Place {
    address: NonNull<c_void>,
    room: UnsafeCell<Room>,
    /// Whether it is in use; then the room is the user's.
    taken: AtomicBool,
}

// SAFETY: addresses and an MDL belong to no thread.
unsafe impl Send for Place {}
// SAFETY: the room is touched by the thread alone that has taken the place.
unsafe impl Sync for Place {}

impl Place {
    fn new(_irql: &Passive) -> Result<Self, NoMemory> {
        // CAST: 64 KiB.
        // SAFETY: PASSIVE_LEVEL (the token).
        let address = unsafe { MmAllocateMappingAddress((RESERVED_PAGES as u64 * PAGE_SIZE) as _, TAG) };
        let room = UnsafeCell::new(Room { header: MDL::default(), frames: [0; RESERVED_PAGES] });
        Ok(Self { address: NonNull::new(address).ok_or(NoMemory)?, room, taken: AtomicBool::new(false) })
    }

    /// Has the MDL describe `frames`: what MmInitializeMdl does, and that the pages are locked, as
    /// [`OwnMapping`](super::mapping::OwnMapping) says it.
    ///
    /// # Safety
    /// The caller has taken the place, and nothing is mapped there.
    unsafe fn describe(&self, frames: &[u64]) -> PMDL {
        // CAST: at most 16 pages; 2.
        let header = MDL {
            Size: (size_of::<MDL>() + size_of_val(frames)) as i16,
            MdlFlags: MDL_PAGES_LOCKED as i16,
            ByteCount: (frames.len() as u64 * PAGE_SIZE) as u32,
            ..MDL::default()
        };
        let mut room = Room { header, frames: [0; RESERVED_PAGES] };
        for (to, frame) in room.frames.iter_mut().zip(frames) {
            *to = *frame;
        }
        // SAFETY: the caller's promise: nobody else looks at the room.
        unsafe { self.room.get().write(room) };
        self.room.get().cast()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // SAFETY: our addresses, with their tag, freed once; a mapping there would keep the place alive. PASSIVE_LEVEL
        // by the trait's rule.
        unsafe { MmFreeMappingAddress(self.address.as_ptr(), TAG) };
    }
}

/// The places of one engine.
pub struct Reserve(Shared<Vec<Place>>);

impl Reserve {
    pub fn new(irql: &Passive, count: usize) -> Result<Self, NoMemory> {
        let mut places = Vec::new();
        places.try_reserve_exact(count)?;
        for _ in 0..count {
            places.push(Place::new(irql)?);
        }
        Ok(Self(Shared::try_new(places)?))
    }

    /// Maps the first of `frames` that are [`alike`], as many as a place has room for.
    pub fn map(&self, frames: &[u64], write: bool) -> Result<ReservedMapping, Unmapped> {
        let (frames, cache) = alike(frames, RESERVED_PAGES)?;
        let take = |place: &Place| !place.taken.swap(true, Ordering::Acquire);
        let index = self.0.iter().position(take).ok_or(NoMemory)?;
        let bytes = frames.len() as u64 * PAGE_SIZE;
        // Gives the place back when it is dropped.
        let places = self.0.clone();
        let mut mapping = ReservedMapping { places, index, base: None, bytes, ordered: is_ordered(cache) };
        let place = mapping.places.get(index).ok_or(NoMemory)?;
        // SAFETY: the place was just taken.
        let mdl = unsafe { place.describe(frames) };
        // SAFETY: our addresses, with their tag; nothing is mapped there, and they have room for the MDL's pages, which
        // Dxgkrnl keeps locked.
        let base = unsafe { MmMapLockedPagesWithReservedMapping(place.address.as_ptr(), TAG, mdl, cache) };
        mapping.base = NonNull::new(base.cast());
        let Some(_base) = mapping.base else { return Err(Unmapped::NoMemory) };
        if !write {
            // The mapping takes no rights. Nobody knows its address yet.
            // SAFETY: an MDL that is mapped; at most DISPATCH_LEVEL.
            let status = unsafe { MmProtectMdlSystemAddress(mdl, PAGE_READONLY) };
            if !NT_SUCCESS(status) {
                return Err(Unmapped::NoMemory);
            }
        }
        Ok(mapping)
    }
}

/// A mapping at a place.
pub struct ReservedMapping {
    places: Shared<Vec<Place>>,
    index: usize,
    base: Option<NonNull<u8>>,
    bytes: u64,
    ordered: bool,
}

// SAFETY: a kernel mapping belongs to no thread.
unsafe impl Send for ReservedMapping {}

impl Drop for ReservedMapping {
    fn drop(&mut self) {
        let Some(place) = self.places.get(self.index) else { return };
        if self.base.is_some() {
            // SAFETY: our mapping at our addresses, by the MDL that made it, removed once.
            unsafe { MmUnmapReservedMapping(place.address.as_ptr(), TAG, place.room.get().cast()) };
        }
        place.taken.store(false, Ordering::Release);
    }
}

// SAFETY: mapped as asked for, at a page boundary, until dropped; base and length never change.
unsafe impl Mapping for ReservedMapping {
    fn base(&self) -> *mut u8 {
        self.base.map_or(core::ptr::null_mut(), NonNull::as_ptr)
    }
    fn len(&self) -> u64 {
        self.bytes
    }
    fn is_ordered(&self) -> bool {
        self.ordered
    }
}
