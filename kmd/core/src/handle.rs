//! Handles: the only place where a number that Dxgkrnl passes becomes a reference.
//!
//! A handle is not a pointer. It is a tag, a generation and an index into one table of the image; a stale or foreign
//! handle finds another generation or another tag and is refused before anything is touched. Lookups take no lock and
//! are safe at any IRQL.
#![expect(unsafe_code, reason = "type-erased references are put into the table and taken out of it here")]

use crate::status::{Error, Result};
use core::ffi::c_void;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use gpu_engine::NoMemory;
use gpu_engine::shared::{GrowOnly, Shared};

/// What kind of object a handle names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Tag {
    /// `MiniportDeviceContext`, `hAdapter`.
    Adapter = 1,
    /// `hKmdProcess`.
    Process = 2,
    /// `hDevice`.
    Device = 3,
    /// `hContext` of a packet context.
    Context = 4,
    /// `hHwContext`, and `hContext` of the scheduling DDIs.
    HwContext = 5,
    /// `hHwQueue`.
    HwQueue = 6,
    /// `hDoorbell`.
    Doorbell = 7,
    /// `hGlobalNativeFence`.
    NativeFence = 8,
    /// `hLocalNativeFence`.
    LocalFence = 9,
    /// `hAllocation`.
    Allocation = 10,
    /// `hDeviceSpecificAllocation`.
    OpenAllocation = 11,
    /// An adapter between start and stop; never given to Dxgkrnl.
    Started = 12,
}

/// An object that handles name.
///
/// # Safety
/// No two implementors that exist in one image have the same tag.
pub unsafe trait Object: Send + Sync + 'static {
    /// Its tag.
    const TAG: Tag;
}

/// A tag that a type has. Implemented for each tag by [`object`], so that a second type with the tag does not compile.
pub trait Given {}
/// The tag with this number.
pub struct Number<const TAG: u8>;

/// Makes a type an [`Object`] with a tag of [`Tag`], beside the type: `object!(Device: Device<P>)`.
macro_rules! object {
    ($tag:ident: $type:ty) => {
        impl $crate::handle::Given for $crate::handle::Number<{ $crate::handle::Tag::$tag as u8 }> {}

        #[expect(unsafe_code, reason = "a promise that the line above keeps")]
        // SAFETY: no other type has the tag (`Given`), and an image has one Platform.
        unsafe impl<P: $crate::platform::Platform> $crate::handle::Object for $type {
            const TAG: $crate::handle::Tag = $crate::handle::Tag::$tag;
        }
    };
}
pub(crate) use object;

struct Entry {
    /// Odd: alive.
    generation: AtomicU32,
    tag: AtomicU32,
    object: AtomicPtr<()>,
}

/// The table, made when the first handle is.
pub(crate) static TABLE: AtomicPtr<Table> = AtomicPtr::new(core::ptr::null_mut());
/// Handles alive: 0 when everything was given back.
pub(crate) static ALIVE: AtomicU64 = AtomicU64::new(0);

/// Every handle of the image.
pub(crate) struct Table {
    entries: GrowOnly<Entry>,
    /// Head of the free list: index + 1 in the low half, a change count in the high one.
    free: AtomicU64,
}

/// A handle as Dxgkrnl holds it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Handle(u64);

impl Handle {
    /// From what a DDI was given.
    pub fn from_ptr(raw: *mut c_void) -> Self {
        Self(raw.addr() as u64)
    }

    /// From its number.
    pub fn from_raw(raw: u64) -> Self {
        Self(raw)
    }

    /// What a DDI gives back. Never NULL.
    pub fn as_ptr(self) -> *mut c_void {
        core::ptr::without_provenance_mut(self.0 as usize)
    }

    /// The number.
    pub fn raw(self) -> u64 {
        self.0
    }

    // Tag in bits 56..64, generation in 24..56, index in 0..24.
    fn new(tag: Tag, generation: u32, index: u32) -> Self {
        Self((tag as u64) << 56 | u64::from(generation) << 24 | u64::from(index))
    }

    /// Returns whether it names an object of this kind, alive or not.
    pub fn is(self, tag: Tag) -> bool {
        self.0 >> 56 == tag as u64
    }

    fn index(self) -> u32 {
        // CAST: masked to 24 bits.
        (self.0 & 0xff_ffff) as u32
    }

    fn generation(self) -> u32 {
        // CAST: 32 bits.
        (self.0 >> 24) as u32
    }

    fn entry(self, tag: Tag) -> Option<&'static Entry> {
        if self.0 >> 56 != tag as u64 {
            return None;
        }
        let entry = table()?.entries.get(self.index())?;
        let alive = entry.generation.load(Ordering::Acquire) == self.generation()
            && self.generation() & 1 == 1
            && entry.tag.load(Ordering::Relaxed) == tag as u32;
        alive.then_some(entry)
    }

    /// The object, if the handle is alive and of its kind. Any IRQL.
    ///
    /// # Errors
    /// [`Error::InvalidParameter`].
    pub fn get<T: Object>(self) -> Result<Shared<T>> {
        let entry = self.entry(T::TAG).ok_or(Error::InvalidParameter)?;
        let object = entry.object.load(Ordering::Acquire);
        if object.is_null() {
            return Err(Error::InvalidParameter);
        }
        // SAFETY: the entry has T's tag, and only `create::<T>` stores under that tag (Object's contract). Dxgkrnl does
        // not destroy an object while it passes its handle to another call, so the given reference is not taken back
        // meanwhile.
        Ok(unsafe { Shared::clone_raw(object.cast_const().cast::<T>()) })
    }

    /// Calls `f` with the object, if the handle is alive and of its kind. Counts no reference, so that none can be the
    /// last: this is the way in for what runs above `PASSIVE_LEVEL`, where nothing may be freed. Any IRQL.
    ///
    /// # Errors
    /// [`Error::InvalidParameter`].
    pub fn borrow<T: Object, R>(self, f: impl FnOnce(&T) -> R) -> Result<R> {
        let entry = self.entry(T::TAG).ok_or(Error::InvalidParameter)?;
        let object = entry.object.load(Ordering::Acquire).cast_const().cast::<T>();
        // SAFETY: the entry has T's tag, and only `create::<T>` stores under that tag (Object's contract). The table's
        // reference is not taken back meanwhile: Dxgkrnl does not destroy an object while it passes its handle to
        // another call, and StopDevice, which ends the handle first, keeps what was started until the interrupt routine
        // and the DPCs that may have found it have ended.
        let object = unsafe { object.as_ref() }.ok_or(Error::InvalidParameter)?;
        Ok(f(object))
    }

    /// A new handle for `object`; the table holds a reference until [`Self::take`].
    ///
    /// # Errors
    /// [`NoMemory`].
    pub fn create<T: Object>(object: Shared<T>) -> core::result::Result<Self, NoMemory> {
        let table = make_table()?;
        let index = table.reserve()?;
        let entry = table.entries.get(index).ok_or(NoMemory)?;
        entry.tag.store(T::TAG as u32, Ordering::Relaxed);
        entry.object.store(object.into_raw().cast_mut().cast(), Ordering::Release);
        let generation = entry.generation.fetch_add(1, Ordering::AcqRel).wrapping_add(1);
        ALIVE.fetch_add(1, Ordering::Relaxed);
        Ok(Self::new(T::TAG, generation, index))
    }

    /// Ends the handle and gives back the table's reference.
    ///
    /// # Errors
    /// [`Error::InvalidParameter`].
    pub fn take<T: Object>(self) -> Result<Shared<T>> {
        let entry = self.entry(T::TAG).ok_or(Error::InvalidParameter)?;
        let ended = self.generation().wrapping_add(1);
        entry
            .generation
            .compare_exchange(self.generation(), ended, Ordering::AcqRel, Ordering::Relaxed)
            .map_err(|_| Error::InvalidParameter)?;
        let object = entry.object.swap(core::ptr::null_mut(), Ordering::AcqRel);
        ALIVE.fetch_sub(1, Ordering::Relaxed);
        if let Some(table) = table() {
            table.give_back(self.index());
        }
        if object.is_null() {
            return Err(Error::InvalidParameter);
        }
        // SAFETY: stored by `create::<T>` (the tag says so), and this call alone ended the generation.
        Ok(unsafe { Shared::from_raw(object.cast_const().cast::<T>()) })
    }
}

/// Handles alive in this image.
pub fn alive() -> u64 {
    ALIVE.load(Ordering::Relaxed)
}

fn table() -> Option<&'static Table> {
    let raw = TABLE.load(Ordering::Acquire);
    // SAFETY: only `make_table` stores here, a leaked box that `free_table` takes back when no handle is left.
    unsafe { raw.as_ref() }
}

fn make_table() -> core::result::Result<&'static Table, NoMemory> {
    if let Some(table) = table() {
        return Ok(table);
    }
    let fresh = Table { entries: GrowOnly::new()?, free: AtomicU64::new(0) };
    let fresh = alloc::boxed::Box::into_raw(gpu_engine::shared::try_box(fresh)?);
    if TABLE.compare_exchange(core::ptr::null_mut(), fresh, Ordering::AcqRel, Ordering::Acquire).is_err() {
        // SAFETY: fresh came from Box::into_raw just above and was published to nobody.
        drop(unsafe { alloc::boxed::Box::from_raw(fresh) });
    }
    table().ok_or(NoMemory)
}

/// Frees the table, at unload.
///
/// # Safety
/// No other thread uses handles any more. Does nothing while handles are alive.
pub unsafe fn free_table() {
    if alive() != 0 {
        return;
    }
    let raw = TABLE.swap(core::ptr::null_mut(), Ordering::AcqRel);
    if !raw.is_null() {
        // SAFETY: from Box::into_raw in make_table; the caller promises that nobody holds a reference into it.
        drop(unsafe { alloc::boxed::Box::from_raw(raw) });
    }
}

impl Table {
    /// An index that nobody uses.
    fn reserve(&self) -> core::result::Result<u32, NoMemory> {
        let mut head = self.free.load(Ordering::Acquire);
        while let Some(index) = (head as u32).checked_sub(1) {
            // The next free index is kept in `tag` while the entry is free.
            let next = self.entries.get(index).map_or(0, |e| e.tag.load(Ordering::Relaxed));
            let changed = (head >> 32).wrapping_add(1) << 32 | u64::from(next);
            match self.free.compare_exchange_weak(head, changed, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Ok(index),
                Err(now) => head = now,
            }
        }
        self.entries.push(Entry {
            generation: AtomicU32::new(0),
            tag: AtomicU32::new(0),
            object: AtomicPtr::new(core::ptr::null_mut()),
        })
    }

    fn give_back(&self, index: u32) {
        let Some(entry) = self.entries.get(index) else { return };
        let mut head = self.free.load(Ordering::Acquire);
        loop {
            // CAST: the low half is an index + 1.
            entry.tag.store(head as u32, Ordering::Relaxed);
            let changed = (head >> 32).wrapping_add(1) << 32 | u64::from(index + 1);
            match self.free.compare_exchange_weak(head, changed, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct A(u32);
    struct B;
    // SAFETY: no other object of the test image has these tags.
    unsafe impl Object for A {
        const TAG: Tag = Tag::Device;
    }
    // SAFETY: as above.
    unsafe impl Object for B {
        const TAG: Tag = Tag::Context;
    }

    #[test]
    fn stale_foreign_and_made_up_handles_are_refused() {
        let a = Handle::create(Shared::try_new(A(7)).unwrap()).unwrap();
        assert_eq!(a.get::<A>().unwrap().0, 7);
        assert_eq!(a.borrow(|a: &A| a.0), Ok(7));
        assert!(a.get::<B>().is_err() && a.borrow(|_: &B| ()).is_err());
        for raw in [0, 1, u64::MAX, a.raw() ^ 1, a.raw() ^ (1 << 30), a.raw() ^ (1 << 57)] {
            assert!(Handle(raw).get::<A>().is_err(), "{raw:#x}");
        }
        assert_eq!(a.take::<A>().unwrap().0, 7);
        assert!(a.get::<A>().is_err() && a.borrow(|_: &A| ()).is_err() && a.take::<A>().is_err());
        let again = Handle::create(Shared::try_new(A(8)).unwrap()).unwrap();
        assert_ne!(again, a);
        assert!(a.get::<A>().is_err());
        drop(again.take::<A>().unwrap());
    }
}
