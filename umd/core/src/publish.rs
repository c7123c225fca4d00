//! Stage 3 of 8: publish, ring, read the status. Steps 3 to 5 of the article, and nothing else.
//!
//! Four words, each written by one side:
//!
//! | word | written by | read by |
//! |---|---|---|
//! | last queued progress value (LQ) | user mode, before the write pointer | Dxgkrnl: is work pending? how far to wait at process end? |
//! | write pointer (WP) | user mode, Release | engine, Acquire |
//! | doorbell | user mode | engine (or nobody: the dummy page of a disconnected doorbell) |
//! | doorbell status | Dxgkrnl | user mode, after the ring |
//!
//! ORDERING[RING-1]: the packets are written before WP is stored with Release; the engine loads WP with Acquire and
//! then reads packets. Without Release it executes what was in the ring before. LQ is stored before WP in the same way:
//! an agent that sees the work sees that it is queued.
//!
//! ORDERING[DB-1]: WP is stored before the doorbell (Release on the doorbell); the engine loads the doorbell (Acquire)
//! before WP, so a ring that it sees shows its work. Between the ring and the read of the status stands a full fence;
//! Dxgkrnl (or the KMD) rotates the page, writes RETRY, fences, and looks at the doorbell a last time. So a ring that
//! went to the dummy page is always followed by a status that says so. Without the fence both may miss, and the work
//! lies there for ever.
//!
//! Source: *User-mode work submission*, "HW queue progress fence changes" (steps 3 to 5) and the UMD pseudo code;
//! `D3DKMT_CREATE_DOORBELL`, DoorbellStatusCPUVirtualAddress: "Each time the UMD submits new work to the queue and
//! rings the doorbell, it must check this value".
#![forbid(unsafe_code)]

use crate::mutation::{Chosen, Mutation};
use crate::word::{Ordering, Word};

/// The words of one queue.
#[derive(Clone, Copy)]
pub struct Words<'a, W: Word> {
    /// `HwQueueProgressFenceLastQueuedValueCPUVirtualAddress`.
    pub last_queued: &'a W,
    /// The write pointer in the ring's control page.
    pub write_pointer: &'a W,
    /// `DoorbellCPUVirtualAddress`.
    pub doorbell: &'a W,
    /// `DoorbellStatusCPUVirtualAddress`. Never stored to: the mapping is read-only.
    pub status: &'a W,
}

/// What a submission publishes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Publication {
    /// The progress value N + 1 that the submission's last packet signals.
    pub progress: u64,
    /// The write pointer behind the submission: a count of bytes that only grows.
    pub write_pointer: u64,
    /// What the doorbell is rung with.
    pub doorbell: u64,
}

/// Steps 3, 4 and 5: tells the OS, shows the GPU, rings. The doorbell's status as read after the ring.
pub fn publish<W: Word>(words: Words<'_, W>, publication: Publication, mutation: &Chosen) -> u64 {
    let Publication { progress, write_pointer, doorbell: value } = publication;
    let early_ring = mutation.is(Mutation::RingBeforePublish);
    if mutation.is(Mutation::PublishBeforeLastQueued) {
        words.write_pointer.store(write_pointer, Ordering::Release);
    }
    if early_ring {
        words.doorbell.store(value, Ordering::Release);
    }
    // Step 3. Relaxed: the Release of step 4 puts it before the write pointer.
    if !mutation.is(Mutation::TellsNothing) {
        words.last_queued.store(progress, Ordering::Relaxed);
    }
    // Step 4. ORDERING[RING-1]: pairs with the engine's Acquire load of the write pointer.
    let release = if mutation.is(Mutation::PublishRelaxed) { Ordering::Relaxed } else { Ordering::Release };
    words.write_pointer.store(write_pointer, release);
    if early_ring {
        return words.status.load(Ordering::Relaxed);
    }
    // Step 5.
    ring_doorbell(words, value, mutation)
}

/// Step 5 alone: rings and reads the status. Also what follows a reconnect: the write pointer is published already, and
/// a count that has not changed appends nothing.
pub fn ring_doorbell<W: Word>(words: Words<'_, W>, value: u64, mutation: &Chosen) -> u64 {
    // ORDERING[DB-1]: pairs with the engine's Acquire load of the doorbell; without it a ring shows an old write
    // pointer.
    words.doorbell.store(value, Ordering::Release);
    if !mutation.is(Mutation::NoStatusBarrier) {
        // ORDERING[DB-1]: pairs with the disconnecting side's fence between its store of RETRY and its last look at the
        // doorbell; without it a ring into the dummy page may read CONNECTED.
        W::fence(Ordering::SeqCst);
    }
    words.status.load(Ordering::Relaxed)
}
