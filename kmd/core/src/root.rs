//! Where a debugger begins: `dx fencepost!kmd_core::root::FENCEPOST`, the one variable from which all else is reached.
//!
//! The driver writes it in StartDevice and StopDevice; of its own code only what collects the blobs for the dump of a
//! bug check reads it (`debug::collect_all`, `HIGH_LEVEL`). `kmd/fencepost.natvis` says what it and what it leads to
//! look like; a kernel dump, a live session, and a dump of the model are read in the same way (docs/windbg.md).

use crate::handle::{ALIVE, TABLE, Table};
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

/// Started adapters that are listed; of more, the last are missing.
pub(crate) const LISTED: usize = 4;

/// What a debugger begins at.
pub(crate) struct Root {
    /// The adapters that are started (`adapter::Started`); null where none is. StartDevice and StopDevice write them; a
    /// bug check may read them at any moment of either, and finds what an adapter that is listed consists of: stored
    /// with Release, loaded with Acquire.
    adapters: [AtomicPtr<()>; LISTED],
    /// Starts and stops since the image was loaded.
    starts: AtomicU64,
    stops: AtomicU64,
    /// Every object that Dxgkrnl has a handle of; null before the first.
    #[expect(dead_code, reason = "a debugger reads it")]
    handles: &'static AtomicPtr<Table>,
    /// How many of them there are.
    #[expect(dead_code, reason = "a debugger reads it")]
    alive: &'static AtomicU64,
}

/// The one of this image.
pub(crate) static FENCEPOST: Root = Root {
    adapters: [const { AtomicPtr::new(core::ptr::null_mut()) }; LISTED],
    starts: AtomicU64::new(0),
    stops: AtomicU64::new(0),
    handles: &TABLE,
    alive: &ALIVE,
};

impl Root {
    /// StartDevice: lists what is started. Any IRQL.
    pub(crate) fn add<T>(&self, started: &T) {
        self.starts.fetch_add(1, Ordering::Relaxed);
        let at = core::ptr::from_ref(started).cast_mut().cast();
        for place in &self.adapters {
            if place.compare_exchange(core::ptr::null_mut(), at, Ordering::Release, Ordering::Relaxed).is_ok() {
                return;
            }
        }
    }

    /// What is listed, as it was added. Any IRQL.
    pub fn listed(&self) -> impl Iterator<Item = *mut ()> {
        self.adapters.iter().map(|place| place.load(Ordering::Acquire)).filter(|at| !at.is_null())
    }

    /// StopDevice: takes it off the list, before it may be freed. Any IRQL.
    pub(crate) fn remove<T>(&self, started: &T) {
        self.stops.fetch_add(1, Ordering::Relaxed);
        let at = core::ptr::from_ref(started).cast_mut().cast();
        for place in &self.adapters {
            let _ = place.compare_exchange(at, core::ptr::null_mut(), Ordering::Release, Ordering::Relaxed);
        }
    }
}
