//! Thunks with their calls counted and their statuses turned into errors. All of this crate calls through [`Os`].
#![forbid(unsafe_code)]

use super::{EventWait, NtHandle, Padded, Thunk, Thunks};
use crate::error::UmdError;
use crate::mutation::{Chosen, Mutation};
use core::sync::atomic::{AtomicU64, Ordering};
use wddm_abi::ntstatus::STATUS_PENDING;
use wddm_abi::{D3DKMT_HANDLE, NTSTATUS, OBJECT_ATTRIBUTES};

/// How often a thunk was called.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CallCount {
    /// Which.
    pub thunk: Thunk,
    /// Calls, refused ones included.
    pub calls: u64,
    /// Refused ones.
    pub failures: u64,
}

/// How a thunk that was not refused answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    /// It is done.
    Done,
    /// STATUS_PENDING: it will be.
    Pending,
}

/// The system, as one adapter's user sees it.
pub struct Os<T: Thunks> {
    thunks: T,
    calls: [AtomicU64; Thunk::COUNT],
    failures: [AtomicU64; Thunk::COUNT],
    /// Which step is done wrong on purpose.
    pub mutation: Chosen,
}

impl<T: Thunks> Os<T> {
    /// Over `thunks`, nothing counted.
    pub fn new(thunks: T) -> Self {
        Self {
            thunks,
            calls: [const { AtomicU64::new(0) }; Thunk::COUNT],
            failures: [const { AtomicU64::new(0) }; Thunk::COUNT],
            mutation: Chosen::none(),
        }
    }

    /// The thunks themselves.
    pub fn thunks(&self) -> &T {
        &self.thunks
    }

    /// How often `thunk` was called so far.
    pub fn calls(&self, thunk: Thunk) -> CallCount {
        let at = thunk as usize;
        CallCount {
            thunk,
            calls: self.calls[at].load(Ordering::Relaxed),
            failures: self.failures[at].load(Ordering::Relaxed),
        }
    }

    fn count(&self, thunk: Thunk, status: NTSTATUS) -> Result<Answer, UmdError> {
        self.calls[thunk as usize].fetch_add(1, Ordering::Relaxed);
        if status.is_success() {
            return Ok(if status == STATUS_PENDING { Answer::Pending } else { Answer::Done });
        }
        self.failures[thunk as usize].fetch_add(1, Ordering::Relaxed);
        Err(UmdError::Thunk { thunk, status })
    }

    /// `D3DKMTShareObjects` of one object, with attributes that say nothing.
    ///
    /// # Errors
    /// [`UmdError::Thunk`]; [`UmdError::BadReply`] when it succeeded without a handle.
    pub(crate) fn share_object(&self, object: D3DKMT_HANDLE, access: u32) -> Result<NtHandle, UmdError> {
        // CAST: 48 bytes.
        let mut attributes =
            OBJECT_ATTRIBUTES { Length: size_of::<OBJECT_ATTRIBUTES>() as u32, ..OBJECT_ATTRIBUTES::zeroed() };
        let (status, handle) = self.thunks.share_objects(&[object], &mut attributes, access);
        self.count(Thunk::ShareObjects, status)?;
        handle.ok_or(UmdError::BadReply { thunk: Thunk::ShareObjects })
    }

    /// An auto-reset event.
    ///
    /// # Errors
    /// [`UmdError::NoMemory`].
    pub(crate) fn create_event(&self) -> Result<NtHandle, UmdError> {
        self.thunks.create_event().ok_or(UmdError::NoMemory)
    }

    /// Waits for an event.
    pub(crate) fn wait_event(&self, event: NtHandle, milliseconds: u32) -> EventWait {
        self.thunks.wait_event(event, milliseconds)
    }
}

macro_rules! define {
    ($($method:ident, $id:ident, $export:ident, $record:ident, $presence:ident, $bytes:literal;)*) => {
        impl<T: Thunks> Os<T> {
            $(
                #[doc = concat!("`", stringify!($export), "`, counted; success and information statuses are `Ok`.")]
                pub(crate) fn $method(
                    &self,
                    argument: &mut Padded<wddm_abi::$record, { $bytes - size_of::<wddm_abi::$record>() }>,
                ) -> Result<Answer, UmdError> {
                    if self.mutation.is(Mutation::TightThunkBuffers) {
                        argument.spoil();
                    }
                    let status = self.thunks.$method(argument);
                    self.count(Thunk::$id, status)
                }
            )*
        }
    };
}

crate::for_each_thunk!(define);
