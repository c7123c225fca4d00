//! Handles that drivers get.

use std::any::Any;
use std::collections::HashMap;
use std::fmt;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::RwLock;
use wddm_abi::HANDLE;

/// First value given to a driver.
const FIRST: u64 = 0xFFFF_C100_0000_0000;
/// Distance of two values.
const STEP: u64 = 0x40;

/// What a driver's handle can stand for.
pub(crate) trait KernelObject: Any + Send + Sync {
    /// What it is, in the words of a violation.
    const KIND: &'static str;
}

#[derive(Clone)]
struct Entry {
    kind: &'static str,
    object: Weak<dyn Any + Send + Sync>,
}

struct Registry {
    entries: RwLock<Option<HashMap<u64, Entry>>>,
    next: AtomicU64,
}

/// One table for the whole process: values are unique across machines, and a value leads to its own machine only.
static REGISTRY: Registry = Registry { entries: RwLock::new(None), next: AtomicU64::new(FIRST) };

/// A handle of a `T` that a driver was given. It stops leading anywhere when this is dropped.
pub(crate) struct KernelHandle<T> {
    number: u64,
    object: PhantomData<fn() -> T>,
}

impl<T> fmt::Debug for KernelHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KernelHandle({:#x})", self.number)
    }
}

impl<T> KernelHandle<T> {
    /// A fresh handle that leads nowhere yet.
    pub(crate) fn reserve() -> Self {
        Self { number: REGISTRY.next.fetch_add(STEP, Ordering::Relaxed), object: PhantomData }
    }

    /// The number.
    pub(crate) fn value(&self) -> u64 {
        self.number
    }

    /// As the tables of functions spell it.
    pub(crate) fn raw(&self) -> HANDLE {
        raw(self.number)
    }
}

impl<T: KernelObject> KernelHandle<T> {
    /// Lets the handle lead to `object`.
    pub(crate) fn bind(&self, object: &Arc<T>) {
        let object: Weak<dyn Any + Send + Sync> = Arc::<T>::downgrade(object);
        let entry = Entry { kind: T::KIND, object };
        REGISTRY.entries.write().get_or_insert_with(HashMap::new).insert(self.number, entry);
    }
}

impl<T> Drop for KernelHandle<T> {
    fn drop(&mut self) {
        if let Some(entries) = REGISTRY.entries.write().as_mut() {
            entries.remove(&self.number);
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

fn entry(handle: HANDLE) -> Option<Entry> {
    REGISTRY.entries.read().as_ref()?.get(&value(handle)).cloned()
}

/// The `T` that `handle` stands for now. `None`: it stands for nothing, or for something else.
pub(crate) fn object<T: KernelObject>(handle: HANDLE) -> Option<Arc<T>> {
    entry(handle)?.object.upgrade()?.downcast().ok()
}

/// What `handle` is, whether it was given to a driver or not: for the words of a violation.
pub(crate) fn describe(handle: HANDLE) -> String {
    let number = value(handle);
    let was_given =
        (FIRST..REGISTRY.next.load(Ordering::Relaxed)).contains(&number) && (number - FIRST).is_multiple_of(STEP);
    match (entry(handle), was_given) {
        (Some(entry), _) => format!("{number:#x}, the handle of a {}", entry.kind),
        (None, true) => format!("{number:#x}, the handle of a destroyed object"),
        (None, false) => format!("{number:#x}, which Dxgkrnl never gave"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Thing;

    impl KernelObject for Thing {
        const KIND: &'static str = "thing";
    }

    struct Other;

    impl KernelObject for Other {
        const KIND: &'static str = "other";
    }

    #[test]
    fn kernel_handles_are_not_reused() {
        let one = KernelHandle::<Thing>::reserve();
        let number = one.value();
        drop(one);
        assert_ne!(KernelHandle::<Thing>::reserve().value(), number);
        assert!(describe(raw(number)).contains("destroyed"));
        assert!(describe(raw(0x1234)).contains("never"));
    }

    #[test]
    fn a_handle_leads_to_its_object_alone_and_only_while_it_lives() {
        let (thing, handle) = (Arc::new(Thing), KernelHandle::reserve());
        assert!(object::<Thing>(handle.raw()).is_none());
        handle.bind(&thing);
        assert!(object::<Thing>(handle.raw()).is_some_and(|found| Arc::ptr_eq(&found, &thing)));
        assert!(object::<Other>(handle.raw()).is_none());
        assert!(describe(handle.raw()).ends_with("of a thing"));
        drop(thing);
        assert!(object::<Thing>(handle.raw()).is_none());
    }
}
