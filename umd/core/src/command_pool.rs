//! Command buffers of the kernel-mode paths: one allocation, handed out front to back and round again.
//!
//! A command buffer is contiguous, so one that does not fit before the end starts at the beginning. When is its space
//! free? The GPU reads a command buffer up to its last packet. Where that is the one that writes the progress fence,
//! the space is free once the fence has the buffer's value. Where a LOG packet stands behind it, seeing the value
//! proves only that the LOG is next; the value of a *later* submission proves that it was executed.
#![forbid(unsafe_code)]

use crate::allocation::{Allocation, Create, Kind};
use crate::device::Device;
use crate::error::UmdError;
use crate::memory::Pages;
use crate::mutation::Mutation;
use crate::thunks::{Thunk, Thunks};
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use gpu_wire::GpuVa;

/// A command buffer that the GPU may still read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Ticket {
    offset: u64,
    /// Progress value at which its space is free.
    free_at: u64,
}

/// Which bytes are in use: no memory, only arithmetic.
#[derive(Clone, Debug)]
struct Space {
    size: u64,
    head: u64,
    tickets: VecDeque<Ticket>,
}

impl Space {
    fn new(size: u64) -> Self {
        Self { size, head: 0, tickets: VecDeque::new() }
    }

    /// Forgets what is free by now.
    fn retire(&mut self, completed: u64) {
        while self.tickets.front().is_some_and(|ticket| ticket.free_at <= completed) {
            self.tickets.pop_front();
        }
    }

    /// Where `len` bytes in a row are free.
    fn find(&self, len: u64) -> Option<u64> {
        let Some(oldest) = self.tickets.front() else { return (len <= self.size).then_some(0) };
        let tail = oldest.offset;
        if self.head <= tail {
            // In use: from the tail to the end, and from the start to the head. Equal: all of it.
            return (tail - self.head >= len).then_some(self.head);
        }
        if self.size - self.head >= len {
            return Some(self.head);
        }
        (tail >= len).then_some(0)
    }

    /// Takes bytes that [`Self::find`] found.
    fn take(&mut self, offset: u64, len: u64, free_at: u64) {
        self.head = offset + len;
        self.tickets.push_back(Ticket { offset, free_at });
    }
}

/// The pool.
pub(crate) struct CommandPool<T: Thunks> {
    memory: Allocation<T>,
    pages: Pages,
    space: Space,
}

/// A command buffer that is ready to be submitted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CommandBuffer {
    /// Where the GPU finds it.
    pub gpu_va: GpuVa,
    /// Its length in bytes.
    pub len: u64,
}

/// There is no room until the progress fence has this value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Full {
    pub until: u64,
}

impl<T: Thunks> CommandPool<T> {
    /// A pool of `size` bytes.
    ///
    /// # Errors
    /// Those of [`Allocation::create`].
    pub fn create(device: &Arc<Device<T>>, size: u64) -> Result<Self, UmdError> {
        let create = Create { size, kind: Kind::System, shared: false, read_only: true };
        let memory = Allocation::create(device, create)?;
        let pages = memory.pages().ok_or(UmdError::BadReply { thunk: Thunk::Lock2 })?;
        let space = Space::new(memory.size());
        Ok(Self { memory, pages, space })
    }

    /// The longest command buffer: a third, so that one fits beside any other wherever that lies.
    pub fn limit(&self) -> u64 {
        self.space.size / 3 / 8 * 8
    }

    /// Returns whether command buffers of these lengths have room, one behind the other, when the progress fence has
    /// `completed`.
    pub fn has_room(&mut self, lengths: impl Iterator<Item = u64>, completed: u64) -> bool {
        self.space.retire(completed);
        let mut space = self.space.clone();
        for length in lengths {
            let Some(offset) = space.find(length) else { return false };
            space.take(offset, length, u64::MAX);
        }
        true
    }

    /// Copies `parts`, one behind the other, to a command buffer whose space is free again when the progress fence has
    /// `free_at`.
    pub fn write(&mut self, parts: [&[u8]; 2], free_at: u64, completed: u64) -> Result<CommandBuffer, Full> {
        let early = self.memory.os().mutation.is(Mutation::ReusesCommandBuffersEarly);
        self.space.retire(if early { u64::MAX } else { completed });
        // CAST: usize is 64 bits wide.
        let [first, second] = parts.map(|part| part.len() as u64);
        let len = first + second;
        let Some(offset) = self.space.find(len) else {
            let until = self.space.tickets.front().map_or(0, |oldest| oldest.free_at);
            return Err(Full { until });
        };
        let inside = self.pages.write(offset, parts[0]) && self.pages.write(offset + first, parts[1]);
        assert!(inside, "mapping shorter than the command buffer pool");
        self.space.take(offset, len, free_at);
        Ok(CommandBuffer { gpu_va: GpuVa(self.memory.gpu_va().0 + offset), len })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    extern crate std;
    use proptest::prelude::*;
    use std::vec::Vec;

    #[test]
    fn a_third_always_fits_beside_the_last_buffer() {
        for offset in (0..=4096 - 1360).step_by(8) {
            let mut space = Space::new(4096);
            space.take(offset, 1360, 2);
            assert!(space.find(1360).is_some(), "offset {offset}");
        }
    }

    #[test]
    fn a_full_pool_says_so_and_space_comes_back_in_order() {
        let mut space = Space::new(96);
        for (n, offset) in [0, 32, 64].into_iter().enumerate() {
            assert_eq!(space.find(32), Some(offset));
            space.take(offset, 32, n as u64 + 1);
        }
        assert_eq!(space.find(8), None);
        space.retire(1);
        assert_eq!((space.find(32), space.find(40)), (Some(0), None));
        space.take(0, 32, 4);
        assert_eq!(space.find(8), None);
        space.retire(4);
        assert_eq!(space.find(96), Some(0));
    }

    proptest! {
        /// Buffers that are in use never overlap, wherever they come to lie and whenever others are retired.
        #[test]
        fn buffers_in_use_do_not_overlap(steps in proptest::collection::vec((1u64..60, 0u64..3), 1..300)) {
            let mut space = Space::new(1024);
            let mut live: Vec<(u64, u64, u64)> = Vec::new();
            let (mut submitted, mut completed) = (0, 0);
            for (words, done) in steps {
                completed = submitted.min(completed + done);
                space.retire(completed);
                live.retain(|(_, _, free_at)| *free_at > completed);
                let len = words * 8;
                if let Some(offset) = space.find(len) {
                    submitted += 1;
                    prop_assert!(offset + len <= 1024);
                    for (start, end, _) in &live {
                        prop_assert!(offset + len <= *start || *end <= offset);
                    }
                    space.take(offset, len, submitted);
                    live.push((offset, offset + len, submitted));
                }
            }
        }
    }
}
