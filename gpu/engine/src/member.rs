//! How many queues and contexts a node's lists must have room for.
#![forbid(unsafe_code)]

use crate::NoMemory;
use crate::shared::Shared;
use core::sync::atomic::{AtomicU32, Ordering};

/// The queues and contexts of a node.
pub(crate) struct Members(Shared<AtomicU32>);

impl Members {
    /// None.
    ///
    /// # Errors
    /// [`NoMemory`].
    pub fn new() -> Result<Self, NoMemory> {
        Ok(Self(Shared::try_new(AtomicU32::new(0))?))
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        // CAST: usize is 64 bits wide.
        self.0.load(Ordering::Relaxed) as usize
    }

    /// One more, and how many there are with it.
    pub fn add(&self) -> (Member, usize) {
        // CAST: usize is 64 bits wide.
        let members = self.0.fetch_add(1, Ordering::Relaxed) as usize + 1;
        (Member(self.0.clone()), members)
    }
}

/// A place in each list of a node. A queue or context has it until the object itself is gone: one that the OS has
/// destroyed stands in the lists until the engine comes round.
pub struct Member(Shared<AtomicU32>);

impl Drop for Member {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
