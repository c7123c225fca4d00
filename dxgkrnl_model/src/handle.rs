//! Handles: those that drivers get, and those that user mode gets.
//!
//! **Drivers** get opaque 64-bit values that look like kernel addresses. They are unique in the Linux process, never
//! reused, and looked up here, never trusted; so a callback needs no other context than the handle in its arguments,
//! and a handle of a destroyed object is told from one that never was.
//!
//! **User mode** gets `D3DKMT_HANDLE`s: 20 bits of index, 6 of generation, 5 of type. A table belongs to one process; a
//! handle of another process, of another type, or of a dead object is refused.

use std::collections::HashMap;
use std::sync::Weak;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;
use wddm_abi::{D3DKMT_HANDLE, HANDLE};

use crate::adapter::Adapter;
use crate::context::Context;
use crate::device::Device;
use crate::doorbell::Doorbell;
use crate::fence::native::{FenceOnAdapter, LocalFence};
use crate::hw_context::HwContext;
use crate::hw_queue::HwQueue;
use crate::process::ProcessAdapter;

/// First value given to a driver.
const FIRST: u64 = 0xFFFF_C100_0000_0000;
/// Distance of two values.
const STEP: u64 = 0x40;

/// What a driver's handle stands for.
#[derive(Clone, Debug)]
#[expect(dead_code, reason = "not every object is looked up")]
pub(crate) enum KernelObject {
    Adapter(Weak<Adapter>),
    Process(Weak<ProcessAdapter>),
    Device(Weak<Device>),
    Context(Weak<Context>),
    HwContext(Weak<HwContext>),
    HwQueue(Weak<HwQueue>),
    Fence(Weak<FenceOnAdapter>),
    LocalFence(Weak<LocalFence>),
    Doorbell(Weak<Doorbell>),
}

struct Registry {
    objects: RwLock<Option<HashMap<u64, KernelObject>>>,
    next: AtomicU64,
}

/// One table for the whole process: values are unique across machines, and a value leads to its own machine only.
static REGISTRY: Registry = Registry { objects: RwLock::new(None), next: AtomicU64::new(FIRST) };

/// A handle given to a driver. It stops leading anywhere when this is dropped.
#[derive(Debug)]
pub(crate) struct KernelHandle(u64);

impl KernelHandle {
    /// A fresh handle that leads nowhere yet.
    pub(crate) fn reserve() -> Self {
        Self(REGISTRY.next.fetch_add(STEP, Ordering::Relaxed))
    }

    /// Lets the handle lead to `object`.
    pub(crate) fn bind(&self, object: KernelObject) {
        REGISTRY.objects.write().get_or_insert_with(HashMap::new).insert(self.0, object);
    }

    /// The number.
    pub(crate) fn value(&self) -> u64 {
        self.0
    }

    /// As the tables of functions spell it.
    pub(crate) fn raw(&self) -> HANDLE {
        raw(self.0)
    }
}

impl Drop for KernelHandle {
    fn drop(&mut self) {
        if let Some(objects) = REGISTRY.objects.write().as_mut() {
            objects.remove(&self.0);
        }
    }
}

/// A number as a handle.
pub(crate) fn raw(value: u64) -> HANDLE {
    // CAST: addresses and handles have 64 bits here.
    core::ptr::without_provenance_mut(value as usize)
}

/// The number of a handle.
pub(crate) fn value(handle: HANDLE) -> u64 {
    handle.addr() as u64
}

/// What `handle` stands for now.
pub(crate) fn lookup(handle: HANDLE) -> Option<KernelObject> {
    REGISTRY.objects.read().as_ref()?.get(&value(handle)).cloned()
}

/// Whether `handle` was given to a driver once, alive or not: for the words of a violation.
pub(crate) fn describe(handle: HANDLE) -> String {
    let number = value(handle);
    let was_given =
        (FIRST..REGISTRY.next.load(Ordering::Relaxed)).contains(&number) && (number - FIRST).is_multiple_of(STEP);
    match (lookup(handle), was_given) {
        (Some(object), _) => format!("{number:#x}, the handle of a {}", kind(&object)),
        (None, true) => format!("{number:#x}, the handle of a destroyed object"),
        (None, false) => format!("{number:#x}, which Dxgkrnl never gave"),
    }
}

fn kind(object: &KernelObject) -> &'static str {
    match object {
        KernelObject::Adapter(_) => "adapter",
        KernelObject::Process(_) => "process",
        KernelObject::Device(_) => "device",
        KernelObject::Context(_) => "context",
        KernelObject::HwContext(_) => "hardware context",
        KernelObject::HwQueue(_) => "hardware queue",
        KernelObject::Fence(_) => "native fence",
        KernelObject::LocalFence(_) => "local native fence",
        KernelObject::Doorbell(_) => "doorbell",
    }
}

/// Makes a typed lookup: `lookup_queue(handle) -> Option<Arc<HwQueue>>`.
macro_rules! typed_lookups {
    ($($(#[$meta:meta])* $name:ident: $variant:ident => $type:ty;)*) => {$(
        $(#[$meta])*
        pub(crate) fn $name(handle: HANDLE) -> Option<std::sync::Arc<$type>> {
            match lookup(handle)? {
                KernelObject::$variant(object) => object.upgrade(),
                _ => None,
            }
        }
    )*};
}

typed_lookups! {
    /// The adapter whose DeviceHandle this is.
    adapter: Adapter => Adapter;
    /// The process with this `hDxgkProcess`.
    process: Process => ProcessAdapter;
    /// The hardware context with this handle.
    hw_context: HwContext => HwContext;
    /// The hardware queue with this handle.
    hw_queue: HwQueue => HwQueue;
    /// The native fence with this `hGlobalNativeFence`.
    fence: Fence => FenceOnAdapter;
    /// The doorbell with this handle.
    doorbell: Doorbell => Doorbell;
}

/// Type of a user-mode handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
#[expect(missing_docs, reason = "one variant per object")]
pub enum HandleType {
    Adapter = 1,
    Device,
    Context,
    HwContext,
    HwQueue,
    PagingQueue,
    Allocation,
    Resource,
    SyncObject,
    NativeFence,
    Doorbell,
}

const TYPE_BITS: u32 = 5;
const GENERATION_BITS: u32 = 6;
const INDEX_BITS: u32 = 20;

#[derive(Debug)]
struct Slot<T> {
    generation: u32,
    kind: HandleType,
    object: Option<T>,
}

/// Objects by user-mode handle.
#[derive(Debug)]
pub(crate) struct HandleTable<T> {
    slots: Vec<Slot<T>>,
    /// Free indices, oldest first, so that a stale handle stays stale for long.
    free: std::collections::VecDeque<u32>,
}

impl<T> Default for HandleTable<T> {
    fn default() -> Self {
        Self { slots: Vec::new(), free: std::collections::VecDeque::new() }
    }
}

/// Indices kept free before one is used again.
const KEEP_FREE: usize = 64;

impl<T: Clone> HandleTable<T> {
    /// Adds an object. `None`: the table is full.
    pub(crate) fn insert(&mut self, kind: HandleType, object: T) -> Option<D3DKMT_HANDLE> {
        let index = if self.free.len() > KEEP_FREE {
            self.free.pop_front()?
        } else if self.slots.len() < 1 << INDEX_BITS {
            self.slots.push(Slot { generation: 0, kind, object: None });
            u32::try_from(self.slots.len() - 1).ok()?
        } else {
            self.free.pop_front()?
        };
        let slot = self.slots.get_mut(index as usize)?;
        slot.kind = kind;
        slot.object = Some(object);
        Some(compose(index, slot.generation, kind))
    }

    /// The object of this type behind `handle`.
    pub(crate) fn get(&self, handle: D3DKMT_HANDLE, kind: HandleType) -> Option<T> {
        self.slot(handle, kind)?.object.clone()
    }

    /// Takes an object out.
    pub(crate) fn remove(&mut self, handle: D3DKMT_HANDLE, kind: HandleType) -> Option<T> {
        let (index, generation, found) = decompose(handle);
        let slot = self.slots.get_mut(index as usize)?;
        if slot.generation != generation || slot.kind != kind || found != kind as u32 {
            return None;
        }
        let object = slot.object.take()?;
        slot.generation = (slot.generation + 1) % (1 << GENERATION_BITS);
        self.free.push_back(index);
        Some(object)
    }

    fn slot(&self, handle: D3DKMT_HANDLE, kind: HandleType) -> Option<&Slot<T>> {
        let (index, generation, found) = decompose(handle);
        let slot = self.slots.get(index as usize)?;
        (slot.generation == generation && slot.kind == kind && found == kind as u32).then_some(slot)
    }

    /// Every object.
    pub(crate) fn objects(&self) -> impl Iterator<Item = &T> {
        self.slots.iter().filter_map(|slot| slot.object.as_ref())
    }

    /// Returns whether `is_it` holds for an object.
    pub(crate) fn any(&self, is_it: impl FnMut(&T) -> bool) -> bool {
        self.slots.iter().filter_map(|slot| slot.object.as_ref()).any(is_it)
    }

    /// Every object with its handle.
    pub(crate) fn entries(&self) -> Vec<(D3DKMT_HANDLE, T)> {
        let mut entries = Vec::new();
        for (index, slot) in self.slots.iter().enumerate() {
            if let (Some(object), Ok(index)) = (&slot.object, u32::try_from(index)) {
                entries.push((compose(index, slot.generation, slot.kind), object.clone()));
            }
        }
        entries
    }

    /// How many objects.
    pub(crate) fn len(&self) -> usize {
        self.objects().count()
    }
}

fn compose(index: u32, generation: u32, kind: HandleType) -> D3DKMT_HANDLE {
    // Bit 31 stays clear and the type is not 0: neither 0 nor a small number nor all ones is a handle.
    (index << (TYPE_BITS + GENERATION_BITS)) | (generation << TYPE_BITS) | kind as u32
}

fn decompose(handle: D3DKMT_HANDLE) -> (u32, u32, u32) {
    let kind = handle & ((1 << TYPE_BITS) - 1);
    let generation = (handle >> TYPE_BITS) & ((1 << GENERATION_BITS) - 1);
    (handle >> (TYPE_BITS + GENERATION_BITS), generation, kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_has_a_type_and_dies_with_its_object() {
        let mut table = HandleTable::default();
        let one = table.insert(HandleType::Device, "one").unwrap_or_default();
        assert_eq!(table.get(one, HandleType::Device), Some("one"));
        assert_eq!(table.get(one, HandleType::HwQueue), None);
        assert_eq!(table.remove(one, HandleType::Device), Some("one"));
        assert_eq!(table.get(one, HandleType::Device), None);
        assert_eq!(table.remove(one, HandleType::Device), None);
        for filler in [0, u32::MAX, 0xA5A5_A5A5] {
            assert_eq!(table.get(filler, HandleType::Device), None);
        }
    }

    #[test]
    fn an_index_is_not_used_again_at_once() {
        let mut table = HandleTable::default();
        let first = table.insert(HandleType::Context, 0).unwrap_or_default();
        table.remove(first, HandleType::Context);
        for _ in 0..200 {
            let next = table.insert(HandleType::Context, 1).unwrap_or_default();
            assert_ne!(next, first);
            table.remove(next, HandleType::Context);
        }
        assert_eq!(table.len(), 0);
    }

    #[test]
    fn kernel_handles_are_not_reused() {
        let one = KernelHandle::reserve();
        let number = one.value();
        drop(one);
        assert_ne!(KernelHandle::reserve().value(), number);
        assert!(describe(raw(number)).contains("destroyed"));
        assert!(describe(raw(0x1234)).contains("never"));
    }
}
