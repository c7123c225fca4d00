//! A host for the GPU by itself: pages that count how often they are mapped.
#![expect(unsafe_code, reason = "hands out pages as the real hosts do")]

use gpu_engine::host::{Host, Lock, Unmapped};
use gpu_engine::memory::{Mapping, Span};
use gpu_wire::{NodeOrdinal, PAGE_SIZE};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// Frames of system memory, and pages of the local segment.
pub const FRAMES: u64 = 1024;
/// As above.
pub const LOCAL: u64 = 128;

/// Words of a page.
pub const WORDS: u64 = PAGE_SIZE / 8;

/// A lock.
pub struct FuzzLock<T>(Mutex<T>);

impl<T: Send> Lock<T> for FuzzLock<T> {
    fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }

    fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        // A thread that panicked is a finding already.
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[repr(align(4096))]
struct Page([AtomicU64; WORDS as usize]);

/// Pages side by side.
pub struct Pages(Box<[Page]>);

impl Pages {
    fn new(count: u64) -> Self {
        Self((0..count).map(|_| Page(core::array::from_fn(|_| AtomicU64::new(0)))).collect())
    }

    /// A word of a page.
    pub fn word(&self, page: u64, index: u64) -> &AtomicU64 {
        // CAST: below the number of pages, and of words.
        &self.0[page as usize].0[index as usize]
    }

    fn base(&self, page: u64) -> *mut u8 {
        // CAST: below the number of pages. The pointer is of the whole block, not of one page.
        self.0.as_ptr().wrapping_add(page as usize).cast_mut().cast()
    }

    /// `count` pages from `page` on, all of which are there.
    pub fn span(&self, page: u64, count: u64) -> Span<'static> {
        assert!(page + count <= self.0.len() as u64, "page {page} and {count} on");
        // SAFETY: atomics of the block, which nothing refers to as bytes. It lives as long as the host, that is as the
        // GPU, which every user of a span holds: engines, mappings and the round.
        unsafe { Span::new(self.base(page), count * PAGE_SIZE) }
    }
}

/// A mapping of frames.
pub struct Mapped {
    base: *mut u8,
    count: u64,
    first: u64,
    live: Arc<[AtomicU32]>,
}

// SAFETY: an address of memory that every thread may access atomically.
unsafe impl Send for Mapped {}

// SAFETY: see `Pages::span`.
unsafe impl Mapping for Mapped {
    fn base(&self) -> *mut u8 {
        self.base
    }

    fn len(&self) -> u64 {
        self.count * PAGE_SIZE
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        for frame in self.first..self.first + self.count {
            // CAST: below the number of frames.
            self.live[frame as usize].fetch_sub(1, Ordering::SeqCst);
        }
    }
}

/// The host.
pub struct FuzzHost {
    /// System memory, by frame.
    pub system: Pages,
    /// The local segment.
    pub local: Pages,
    /// How many mappings each frame is in.
    pub live: Arc<[AtomicU32]>,
    /// Interrupts that engines asked for.
    pub interrupts: AtomicU64,
    begun: Instant,
}

impl FuzzHost {
    /// A host with zeroed memory.
    pub fn new() -> Self {
        Self {
            system: Pages::new(FRAMES),
            local: Pages::new(LOCAL),
            live: (0..FRAMES).map(|_| AtomicU32::new(0)).collect(),
            interrupts: AtomicU64::new(0),
            begun: Instant::now(),
        }
    }
}

impl Host for FuzzHost {
    type Lock<T: Send> = FuzzLock<T>;
    type Word = AtomicU64;
    type Mapping = Mapped;

    fn word(value: u64) -> AtomicU64 {
        AtomicU64::new(value)
    }

    fn map_system(&self, frames: &[u64], _write: bool) -> Result<Mapped, Unmapped> {
        let Some(first) = frames.first().copied() else { return Err(Unmapped::NotMemory) };
        let count = frames.windows(2).take_while(|pair| pair[1] == pair[0] + 1).count() as u64 + 1;
        assert!(first + count <= FRAMES, "an engine asks for frame {first} and {count} on, of {FRAMES}");
        for frame in first..first + count {
            // CAST: below the number of frames.
            self.live[frame as usize].fetch_add(1, Ordering::SeqCst);
        }
        Ok(Mapped { base: self.system.base(first), count, first, live: self.live.clone() })
    }

    fn local(&self, page: u64) -> Option<Span<'static>> {
        (page < LOCAL).then(|| self.local.span(page, LOCAL - page))
    }

    fn clock(&self) -> u64 {
        // CAST: the time of a round.
        self.begun.elapsed().as_nanos() as u64 / 100
    }

    fn clock_frequency(&self) -> u64 {
        10_000_000
    }

    fn kick(&self, _node: NodeOrdinal) {}

    fn raise_interrupt(&self, _node: NodeOrdinal) -> bool {
        self.interrupts.fetch_add(1, Ordering::Relaxed);
        true
    }
}
