//! Handles: those that drivers get, and those that user mode gets.
//!
//! **Drivers** get opaque 64-bit values that look like kernel addresses. They are unique in the Linux process, never
//! reused, and looked up here, never trusted; so a callback needs no other context than the handle in its arguments,
//! and a handle of a destroyed object is told from one that never was.
//!
//! **User mode** gets `D3DKMT_HANDLE`s, of a table that belongs to its process ([`HandleTable`]).

mod user;

use std::collections::HashMap;
use std::sync::Weak;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;
use wddm_abi::HANDLE;

use crate::adapter::Adapter;
use crate::context::Context;
use crate::device::Device;
use crate::doorbell::Doorbell;
use crate::fence::native::{FenceOnAdapter, LocalFence};
use crate::hw_context::HwContext;
use crate::hw_queue::HwQueue;
use crate::process::ProcessAdapter;

pub(crate) use user::HandleTable;
pub use user::HandleType;

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

#[cfg(test)]
mod tests {
    use super::*;

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
