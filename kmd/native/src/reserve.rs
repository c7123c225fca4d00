//! Mappings at reserved addresses, where the machine has no others.
#![expect(unsafe_code, reason = "promises about the model's mappings")]

use crate::machine;
use crate::memory::alike;
use gpu_engine::NoMemory;
use gpu_engine::host::Unmapped;
use gpu_engine::memory::Mapping;
use gpu_wire::PAGE_SIZE;
use kmd_core::platform::RESERVED_PAGES;
use nt_model::memory::Rights;
use nt_model::records::{MDL, MDL_PAGES_LOCKED};
use nt_model::{CacheType, Mdl};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const TAG: u32 = u32::from_le_bytes(*b"Fenc");

/// An MDL with room for the frames of a place.
#[repr(C)]
#[derive(Default)]
struct Room {
    header: MDL,
    frames: [AtomicU64; RESERVED_PAGES],
}

/// Addresses for one mapping.
struct Place {
    address: usize,
    room: Room,
    taken: AtomicBool,
}

impl Place {
    fn new() -> Result<Self, NoMemory> {
        let address = machine(|m| m.allocate_mapping_address(RESERVED_PAGES * PAGE_SIZE as usize, TAG));
        Ok(Self { address: address.ok_or(NoMemory)?, room: Room::default(), taken: AtomicBool::new(false) })
    }

    /// Has the MDL describe `frames`, as MmInitializeMdl and the locking of the pages would.
    fn describe(&self, frames: &[u64]) -> Mdl {
        let Room { header, frames: to } = &self.room;
        for (to, frame) in to.iter().zip(frames) {
            to.store(*frame, Ordering::Relaxed);
        }
        // CAST: at most 64 KiB; the record has some hundred bytes.
        header.byte_count.store((frames.len() as u64 * PAGE_SIZE) as u32, Ordering::Relaxed);
        header.size.store((size_of::<MDL>() + 8 * frames.len()) as i16, Ordering::Relaxed);
        header.flags.store(MDL_PAGES_LOCKED, Ordering::Relaxed);
        Mdl::of(header)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        machine(|m| m.free_mapping_address(self.address, TAG));
    }
}

/// The places of one engine.
pub struct Reserve(Arc<Vec<Place>>);

impl Reserve {
    pub(crate) fn new(places: usize) -> Result<Self, NoMemory> {
        let places: Result<Vec<_>, _> = (0..places).map(|_| Place::new()).collect();
        Ok(Self(Arc::new(places?)))
    }

    pub(crate) fn map(&self, frames: &[u64], write: bool) -> Result<ReservedMapping, Unmapped> {
        let (frames, cache) = alike(frames, RESERVED_PAGES)?;
        let take = |place: &Place| !place.taken.swap(true, Ordering::Acquire);
        let index = self.0.iter().position(take).ok_or(NoMemory)?;
        let place = &self.0[index];
        let mdl = place.describe(frames);
        let base = machine(|m| m.map_at_reserved(place.address, TAG, mdl, cache)).unwrap_or_default();
        let bytes = frames.len() as u64 * PAGE_SIZE;
        // From here on the place is given back with the mapping.
        let cached = cache == CacheType::Cached;
        let mapping = ReservedMapping { places: self.0.clone(), index, mdl, base, bytes, cached };
        if base == 0 || !(write || machine(|m| m.protect_mdl(mdl, Rights::Read))) {
            return Err(Unmapped::NoMemory);
        }
        Ok(mapping)
    }
}

/// A mapping at a place.
pub struct ReservedMapping {
    places: Arc<Vec<Place>>,
    index: usize,
    mdl: Mdl,
    /// 0: nothing is mapped.
    base: usize,
    bytes: u64,
    cached: bool,
}

impl Drop for ReservedMapping {
    fn drop(&mut self) {
        let place = &self.places[self.index];
        if self.base != 0 {
            machine(|m| m.unmap_reserved(place.address, TAG, self.mdl));
        }
        place.taken.store(false, Ordering::Release);
    }
}

// SAFETY: mapped as asked for, at a page boundary, until dropped; base and length never change.
unsafe impl Mapping for ReservedMapping {
    fn base(&self) -> *mut u8 {
        std::ptr::with_exposed_provenance_mut(self.base)
    }
    fn len(&self) -> u64 {
        self.bytes
    }
    fn is_ordered(&self) -> bool {
        self.cached
    }
}
