//! A bare ring of 64-byte packets: a doorbell store for each, a fence store when each is done, nothing decoded.

use super::{Line, PLACES, beside, places, until};
use crate::bench::path::Path;
use crate::bench::processors::Pair;
use anyhow::Result;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

const SLOTS: u64 = 1024;
/// What the doorbell says when the ring ends.
const END: u64 = u64::MAX;

/// A packet.
#[repr(align(64))]
struct Packet([AtomicU64; 8]);

/// The producer's side.
pub(in crate::bench) struct BareRing<'a> {
    packets: &'a [Packet],
    doorbell: &'a Line,
    fence: &'a Line,
    pushed: u64,
    seen: u64,
}

/// Which lines the next ring has: others each time, so that rounds differ in where theirs live.
static NEXT: AtomicUsize = AtomicUsize::new(0);

/// Runs `f` with the producer's side of a ring whose other side is on the other processor.
pub(in crate::bench) fn bare_ring<R>(pair: Pair, f: impl FnOnce(&mut BareRing<'_>) -> Result<R>) -> Result<R> {
    let packets: Vec<_> = (0..SLOTS).map(|_| Packet(std::array::from_fn(|_| AtomicU64::new(0)))).collect();
    let lines = places();
    let [doorbell, fence] = &lines[NEXT.fetch_add(1, Ordering::Relaxed) % PLACES];
    let engine = || {
        let mut done = 0;
        loop {
            let rung = doorbell.0.load(Ordering::Acquire);
            if rung == END {
                return;
            }
            while done < rung {
                // CAST: below SLOTS.
                let value = packets[(done % SLOTS) as usize].0[1].load(Ordering::Relaxed);
                done += 1;
                fence.0.store(value, Ordering::Release);
            }
        }
    };
    beside(pair, engine, || {
        let mut ring = BareRing { packets: &packets, doorbell, fence, pushed: 0, seen: 0 };
        let result = f(&mut ring);
        doorbell.0.store(END, Ordering::Release);
        result
    })?
}

impl Path for BareRing<'_> {
    fn push(&mut self) -> Result<()> {
        while self.pushed - self.seen >= SLOTS {
            self.seen = self.fence.0.load(Ordering::Acquire);
        }
        // CAST: below SLOTS.
        let packet = &self.packets[(self.pushed % SLOTS) as usize];
        self.pushed += 1;
        for word in &packet.0 {
            word.store(self.pushed, Ordering::Relaxed);
        }
        self.doorbell.0.store(self.pushed, Ordering::Release);
        Ok(())
    }

    fn drain(&mut self) -> Result<()> {
        until(&self.fence.0, self.pushed);
        self.seen = self.pushed;
        Ok(())
    }
}
