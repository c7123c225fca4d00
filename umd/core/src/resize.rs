//! Another ring for a user-mode queue.
//!
//! The doorbell is destroyed, and made again with `ResizeRingBufferOperation` and the new ring. The kernel-mode driver
//! executes what is published in the old ring first, and begins the new one at position 0. So the old ring is kept
//! until its read pointer has come to its write pointer: nothing of it is read or written then.
//!
//! Source: d3dukmdt.h, `D3DKMT_CREATE_DOORBELL_FLAGS`: a doorbell is being recreated for this queue with a resized
//! ring.
//! Chosen: that a destruction comes first, since a queue has one doorbell; and that the last queued value is stored
//! again, since nothing says with which value the new word begins.
#![forbid(unsafe_code)]

use crate::device::Device;
use crate::doorbell::Doorbell;
use crate::error::UmdError;
use crate::mutation::Mutation;
use crate::ring::Ring;
use crate::submit::UserLane;
use crate::thunks::Thunks;
use crate::word::{Ordering, Word};
use alloc::sync::Arc;
use alloc::vec::Vec;
use gpu_wire::ring::Geometry;

/// Old rings that may still have work when another resize comes; the kernel-mode driver has room for one more.
const MAX_OLD: usize = 2;

/// Rings that were replaced, and may still have work.
pub(crate) struct OldRings<T: Thunks>(Vec<Ring<T>>);

impl<T: Thunks> OldRings<T> {
    /// None.
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// Lets go of those whose work is done.
    pub fn let_go(&mut self) {
        if !self.0.is_empty() {
            self.0.retain_mut(|ring| ring.look() != ring.producer.geometry().size());
        }
    }
}

impl<T: Thunks> UserLane<T> {
    /// Gives the queue a ring of `size` bytes. `last` is the progress value of the last submission.
    ///
    /// # Errors
    /// [`UmdError::InvalidArgument`] for a size that is no ring's; [`UmdError::Timeout`] when the rings of two resizes
    /// before have work left; [`UmdError::NoMemory`], [`UmdError::Thunk`]: the queue has its old ring.
    /// [`UmdError::QueueLost`] when the doorbell could not be made again.
    pub fn resize(&mut self, device: &Arc<Device<T>>, size: u64, last: u64) -> Result<(), UmdError> {
        Geometry::new(size).map_err(|_| UmdError::InvalidArgument("ring size"))?;
        self.old.let_go();
        if self.old.0.len() >= MAX_OLD {
            return Err(UmdError::Timeout);
        }
        self.old.0.try_reserve(1).map_err(|_| UmdError::NoMemory)?;
        let ring = Ring::create(device, size, false)?;
        self.doorbell.end();
        let made = Doorbell::create(&self.queue, ring.allocation(), ring.control(), true);
        self.doorbell = made.map_err(|_| self.lost(device))?;
        self.doorbell.last_queued.store(last, Ordering::Relaxed);
        let old = core::mem::replace(&mut self.ring, ring);
        if !device.os().mutation.is(Mutation::FreesOldRing) {
            self.old.0.push(old);
        }
        Ok(())
    }
}
