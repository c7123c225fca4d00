//! Fallible ownership: a reference-counted pointer and a hand-over cell.
//!
//! `alloc::sync::Arc` aborts when memory runs out, and a kernel driver must refuse instead. [`Shared`] is the part of
//! Arc that the GPU needs, allocated fallibly. [`Handover`] holds one box that exactly one thread at a time takes out.
#![expect(
    unsafe_code,
    reason = "reference counting and pointer hand-over are built here so that nothing else needs unsafe"
)]

use crate::NoMemory;
use crate::mutation::{Chosen, Mutation};
use crate::word::Exchange;
use alloc::alloc::{Layout, alloc};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::marker::PhantomData;
use core::ops::Deref;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// What the kernel's pool aligns at least to, on 64-bit systems. The allocator of a driver (`wdk-alloc`) asks for no
/// more.
///
/// Source: DDI page ExAllocatePool2, Remarks.
const POOL_ALIGNMENT: usize = 16;

/// A box, or the value's absence when memory runs out.
///
/// # Errors
/// [`NoMemory`]; `value` is dropped.
pub fn try_box<T>(value: T) -> Result<Box<T>, NoMemory> {
    const { assert!(size_of::<T>() != 0 && align_of::<T>() <= POOL_ALIGNMENT) };
    let layout = Layout::new::<T>();
    // SAFETY: the layout's size is not zero (asserted above).
    let raw = unsafe { alloc(layout) }.cast::<T>();
    if raw.is_null() {
        return Err(NoMemory);
    }
    // SAFETY: raw is a fresh allocation of T's layout.
    unsafe { raw.write(value) };
    // SAFETY: raw came from the global allocator with T's layout and holds a T.
    Ok(unsafe { Box::from_raw(raw) })
}

/// A boxed array that is built in place: kernel stacks are small.
///
/// # Errors
/// [`NoMemory`].
pub fn try_array<T, const N: usize>(element: impl FnMut() -> T) -> Result<Box<[T; N]>, NoMemory> {
    const { assert!(align_of::<T>() <= POOL_ALIGNMENT) };
    let mut elements = Vec::new();
    elements.try_reserve_exact(N).map_err(|_| NoMemory)?;
    elements.resize_with(N, element);
    elements.into_boxed_slice().try_into().map_err(|_| NoMemory)
}

struct Inner<T> {
    count: AtomicUsize,
    value: T,
}

/// A counted reference. Like `Arc` without weak references and without a panicking constructor.
pub struct Shared<T> {
    inner: NonNull<Inner<T>>,
}

// SAFETY: a Shared gives out only &T, and drops T on whichever thread is last: both need T: Send + Sync.
unsafe impl<T: Send + Sync> Send for Shared<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for Shared<T> {}

impl<T> Shared<T> {
    /// Moves `value` to the heap.
    ///
    /// # Errors
    /// [`NoMemory`]; `value` is dropped.
    pub fn try_new(value: T) -> Result<Self, NoMemory> {
        let inner = try_box(Inner { count: AtomicUsize::new(1), value })?;
        Ok(Self { inner: NonNull::from(Box::leak(inner)) })
    }

    /// Whether both name the same object.
    pub fn ptr_eq(a: &Self, b: &Self) -> bool {
        a.inner == b.inner
    }

    /// Gives the reference away as a number for an OS structure to hold. [`Self::from_raw`] takes it back.
    pub fn into_raw(self) -> *const T {
        let inner = self.inner;
        core::mem::forget(self);
        // SAFETY: the allocation is alive: this reference's count was not given back.
        unsafe { &raw const (*inner.as_ptr()).value }
    }

    /// Takes back what [`Self::into_raw`] gave.
    ///
    /// # Safety
    /// `raw` came from `into_raw` of the same `T`, and is taken back once.
    pub unsafe fn from_raw(raw: *const T) -> Self {
        let offset = core::mem::offset_of!(Inner<T>, value);
        let start = raw.cast::<u8>().cast_mut();
        // SAFETY: raw points at `value` inside an Inner (the caller's promise), so the Inner starts `offset` before it.
        let inner = unsafe { start.sub(offset) }.cast::<Inner<T>>();
        // SAFETY: derived from a live allocation, so not null.
        Self { inner: unsafe { NonNull::new_unchecked(inner) } }
    }

    /// Another reference to what [`Self::into_raw`] gave, which stays given.
    ///
    /// # Safety
    /// `raw` came from `into_raw` of the same `T` and has not been taken back.
    pub unsafe fn clone_raw(raw: *const T) -> Self {
        // SAFETY: the caller's promise; the reference is forgotten below, so the given one is not consumed.
        let given = core::mem::ManuallyDrop::new(unsafe { Self::from_raw(raw) });
        Self::clone(&given)
    }

    fn counter(&self) -> &AtomicUsize {
        // SAFETY: the allocation lives while any reference does, and self is one.
        unsafe { &(*self.inner.as_ptr()).count }
    }
}

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Self {
        // A count can not overflow: each reference takes at least 8 bytes of memory somewhere.
        self.counter().fetch_add(1, Ordering::Relaxed);
        Self { inner: self.inner }
    }
}

impl<T> Deref for Shared<T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: the allocation lives while any reference does, and self is one.
        unsafe { &(*self.inner.as_ptr()).value }
    }
}

impl<T> Drop for Shared<T> {
    fn drop(&mut self) {
        // ORDERING: Release so that this thread's uses happen before the drop; Acquire below so that the last sees all.
        if self.counter().fetch_sub(1, Ordering::Release) == 1 {
            // A load, not a fence: as strong here, and ThreadSanitizer, which does not know fences, follows it.
            self.counter().load(Ordering::Acquire);
            // SAFETY: the count reached zero, so this is the only pointer left to an allocation made by try_box.
            drop(unsafe { Box::from_raw(self.inner.as_ptr()) });
        }
    }
}

/// Holds a box that one thread at a time takes out, uses, and puts back.
///
/// ORDERING[READY-1]: a thread puts the box back (Release) behind all that it did with it; the thread that takes it out
/// (Acquire) finds that. So an engine goes on where the one before it came off.
pub struct Handover<T, W: Exchange> {
    /// The address of the box, or 0.
    held: W,
    _box: PhantomData<AtomicPtr<T>>,
}

// SAFETY: the box moves between threads whole, and is never aliased: T: Send suffices for both.
unsafe impl<T: Send, W: Exchange + Send> Send for Handover<T, W> {}
// SAFETY: as above; &Handover gives no &T.
unsafe impl<T: Send, W: Exchange + Sync> Sync for Handover<T, W> {}

impl<T, W: Exchange> Handover<T, W> {
    /// Holds `value`; `word` makes the word.
    pub fn new(value: Box<T>, word: impl Fn(u64) -> W) -> Self {
        Self { held: word(Self::expose(value)), _box: PhantomData }
    }

    /// The address of the box, which is given away.
    fn expose(value: Box<T>) -> u64 {
        // CAST: usize is 64 bits wide.
        Box::into_raw(value).expose_provenance() as u64
    }

    /// Takes the box out; `None` while another thread has it.
    pub fn take(&self) -> Option<Box<T>> {
        // ORDERING[READY-1]: Acquire pairs with `put`.
        Self::held(self.held.swap(0, Ordering::AcqRel))
    }

    /// Puts the box back. What was put by mistake in between is dropped.
    pub fn put(&self, value: Box<T>, mutation: &Chosen) {
        // ORDERING[READY-1]: Release: what was done with the box is seen by the thread that takes it out.
        let order = if mutation.is(Mutation::HandsOverUnordered) { Ordering::Relaxed } else { Ordering::AcqRel };
        drop(Self::held(self.held.swap(Self::expose(value), order)));
    }

    /// The box at `address`, which an exchange has taken out; `None` where that found none.
    fn held(address: u64) -> Option<Box<T>> {
        if address == 0 {
            return None;
        }
        // CAST: usize is 64 bits wide.
        let raw = ptr::with_exposed_provenance_mut::<T>(address as usize);
        // SAFETY: raw came from Box::into_raw in `expose`, and the exchange made this the only holder.
        Some(unsafe { Box::from_raw(raw) })
    }
}

impl<T, W: Exchange> Drop for Handover<T, W> {
    fn drop(&mut self) {
        drop(self.take());
    }
}

/// Entries of a [`GrowOnly`] chunk.
const CHUNK: usize = 1024;
/// Chunks of a [`GrowOnly`].
const CHUNKS: usize = 4096;

/// An array that only grows: entries never move, so readers need no lock, at any IRQL.
pub struct GrowOnly<T> {
    directory: Box<[AtomicPtr<Slot<T>>]>,
    /// Entries pushed or being pushed.
    next: AtomicUsize,
}

/// A place in a chunk: written once, before `ready` is set.
struct Slot<T> {
    ready: AtomicUsize,
    value: core::cell::UnsafeCell<core::mem::MaybeUninit<T>>,
}

// SAFETY: entries are handed out as &T and dropped with the array: both need T: Send + Sync.
unsafe impl<T: Send + Sync> Send for GrowOnly<T> {}
// SAFETY: as above; a slot is written only before `ready` is released.
unsafe impl<T: Send + Sync> Sync for GrowOnly<T> {}

impl<T> GrowOnly<T> {
    const LAYOUT: Layout = Layout::new::<[Slot<T>; CHUNK]>();

    /// An empty array: one allocation for the directory.
    ///
    /// # Errors
    /// [`NoMemory`].
    pub fn new() -> Result<Self, NoMemory> {
        let mut directory = alloc::vec::Vec::new();
        directory.try_reserve_exact(CHUNKS)?;
        directory.resize_with(CHUNKS, || AtomicPtr::new(ptr::null_mut()));
        Ok(Self { directory: directory.into_boxed_slice(), next: AtomicUsize::new(0) })
    }

    /// Adds an entry and returns its index.
    ///
    /// # Errors
    /// [`NoMemory`], also when the array is full; no index is taken then.
    pub fn push(&self, value: T) -> Result<u32, NoMemory> {
        self.push_with(value, Self::allocate)
    }

    /// [`Self::push`] with `allocate` for a chunk that is not there yet.
    fn push_with(&self, value: T, allocate: impl Fn() -> Result<NonNull<Slot<T>>, NoMemory>) -> Result<u32, NoMemory> {
        let mut index = self.next.load(Ordering::Relaxed);
        // The chunk comes first and the index after it: an index that is taken cannot be given back, since others may
        // have been taken behind it.
        let chunk = loop {
            let chunk = self.chunk(index / CHUNK, &allocate)?;
            match self.next.compare_exchange_weak(index, index + 1, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => break chunk,
                Err(now) => index = now,
            }
        };
        let slot = chunk.wrapping_add(index % CHUNK);
        // SAFETY: slot lies inside a live chunk; only this thread was given this index, so nobody else writes it.
        let slot = unsafe { &*slot };
        // SAFETY: `ready` is still 0, so no reader looks at the value.
        unsafe { (*slot.value.get()).write(value) };
        slot.ready.store(1, Ordering::Release);
        // CAST: below CHUNK * CHUNKS, four million.
        Ok(index as u32)
    }

    /// Indices that were taken, of entries that are there or about to be.
    pub fn len(&self) -> usize {
        self.next.load(Ordering::Relaxed)
    }

    /// Returns whether none was.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The entry at `index`, if it was pushed.
    pub fn get(&self, index: u32) -> Option<&T> {
        let index = index as usize;
        let chunk = self.directory.get(index / CHUNK)?.load(Ordering::Acquire);
        if chunk.is_null() {
            return None;
        }
        // SAFETY: chunks are CHUNK slots long and live as long as self.
        let slot = unsafe { &*chunk.wrapping_add(index % CHUNK) };
        if slot.ready.load(Ordering::Acquire) == 0 {
            return None;
        }
        // SAFETY: `ready` was seen, so the value is written and never written again.
        let value = unsafe { &*slot.value.get() };
        // SAFETY: as above: initialised.
        Some(unsafe { value.assume_init_ref() })
    }

    /// A chunk, zeroed.
    fn allocate() -> Result<NonNull<Slot<T>>, NoMemory> {
        // SAFETY: the layout is CHUNK slots with an AtomicUsize each, so not empty. Zeroed, every `ready` is 0.
        let fresh = unsafe { alloc::alloc::alloc_zeroed(Self::LAYOUT) };
        NonNull::new(fresh.cast()).ok_or(NoMemory)
    }

    /// The chunk's first slot, allocated on first use.
    fn chunk(
        &self,
        n: usize,
        allocate: impl Fn() -> Result<NonNull<Slot<T>>, NoMemory>,
    ) -> Result<*mut Slot<T>, NoMemory> {
        let entry = self.directory.get(n).ok_or(NoMemory)?;
        let seen = entry.load(Ordering::Acquire);
        if !seen.is_null() {
            return Ok(seen);
        }
        let fresh = allocate()?.as_ptr();
        match entry.compare_exchange(ptr::null_mut(), fresh, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => Ok(fresh),
            Err(other) => {
                // SAFETY: fresh was made by `allocate` with this layout and published to nobody.
                unsafe { alloc::alloc::dealloc(fresh.cast(), Self::LAYOUT) };
                Ok(other)
            }
        }
    }
}

impl<T> Drop for GrowOnly<T> {
    fn drop(&mut self) {
        for entry in &self.directory {
            let chunk = entry.load(Ordering::Acquire);
            if chunk.is_null() {
                continue;
            }
            for i in 0..CHUNK {
                // SAFETY: i is inside the chunk; &mut self excludes readers.
                let slot = unsafe { &mut *chunk.wrapping_add(i) };
                if *slot.ready.get_mut() != 0 {
                    // SAFETY: `ready` says the value was written; it is dropped once, here.
                    unsafe { slot.value.get_mut().assume_init_drop() };
                }
            }
            // SAFETY: allocated in `chunk` with this layout, and no longer referenced.
            unsafe { alloc::alloc::dealloc(chunk.cast(), Self::LAYOUT) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    extern crate std;
    use core::sync::atomic::AtomicU64;
    use std::thread;

    struct Counted<'a>(&'a AtomicUsize);
    impl Drop for Counted<'_> {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn the_last_reference_drops_the_value_once() {
        let drops = AtomicUsize::new(0);
        let a = Shared::try_new(Counted(&drops)).unwrap();
        thread::scope(|s| {
            for _ in 0..4 {
                let b = a.clone();
                s.spawn(move || {
                    for _ in 0..1000 {
                        drop(b.clone());
                    }
                });
            }
        });
        assert_eq!(drops.load(Ordering::Relaxed), 0);
        drop(a);
        assert_eq!(drops.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn a_raw_reference_comes_back() {
        let a = Shared::try_new(41u64).unwrap();
        let raw = a.clone().into_raw();
        // SAFETY: raw came from into_raw just above and is not yet taken back.
        let b = unsafe { Shared::clone_raw(raw) };
        // SAFETY: raw came from into_raw, taken back here once.
        let c = unsafe { Shared::from_raw(raw) };
        assert!(Shared::ptr_eq(&a, &b) && Shared::ptr_eq(&b, &c));
        assert_eq!(*c, 41);
    }

    #[test]
    fn entries_stay_where_they_were_pushed() {
        let drops = AtomicUsize::new(0);
        let array = GrowOnly::new().unwrap();
        thread::scope(|s| {
            for _ in 0..4 {
                s.spawn(|| {
                    for _ in 0..1000 {
                        let i = array.push(Counted(&drops)).unwrap();
                        assert!(array.get(i).is_some());
                    }
                });
            }
        });
        assert!(array.get(3999).is_some() && array.get(4000).is_none() && array.get(u32::MAX).is_none());
        drop(array);
        assert_eq!(drops.load(Ordering::Relaxed), 4000);
    }

    /// No index is lost to a push that finds no memory: what fails costs nothing for ever.
    #[test]
    fn a_push_that_finds_no_memory_takes_no_index() {
        let array = GrowOnly::new().unwrap();
        for _ in 0..3 {
            assert_eq!(array.push_with(0, || Err(NoMemory)), Err(NoMemory));
        }
        assert_eq!(array.push(1), Ok(0));
        for i in 1..CHUNK {
            assert_eq!(array.push(i as u32), Ok(i as u32));
        }
        // The next chunk is wanted here.
        assert_eq!(array.push_with(0, || Err(NoMemory)), Err(NoMemory));
        assert_eq!(array.push(2), Ok(CHUNK as u32));
        array.next.store(CHUNK * CHUNKS, Ordering::Relaxed);
        assert_eq!((array.push(3), array.push(3)), (Err(NoMemory), Err(NoMemory)));
        assert_eq!(array.next.swap(CHUNK + 1, Ordering::Relaxed), CHUNK * CHUNKS, "a full array counts no further");
    }

    #[test]
    fn only_one_thread_holds_the_box() {
        let cell = Handover::new(Box::new(0u64), AtomicU64::new);
        thread::scope(|s| {
            for _ in 0..2 {
                s.spawn(|| {
                    let mut mine = 0;
                    while mine < 1000 {
                        if let Some(mut b) = cell.take() {
                            *b += 1;
                            mine += 1;
                            cell.put(b, &Chosen::none());
                        }
                    }
                });
            }
        });
        assert_eq!(*cell.take().unwrap(), 2000);
        assert!(cell.take().is_none());
    }
}
