//! io_uring whose submissions a thread of the kernel polls for (SQPOLL), with operations that do nothing: what a ring
//! between programs and a kernel costs that decodes, checks and completes.
#![expect(unsafe_code, reason = "an entry of io_uring may name memory; these name none")]

use crate::bench::path::Path;
use crate::bench::processors::Pair;
use anyhow::{Context, Result, ensure};
use io_uring::{CompletionQueue, IoUring, SubmissionQueue, Submitter, opcode};
use std::time::Instant;

const ENTRIES: u32 = 256;
/// Milliseconds without work after which the kernel's thread sleeps: longer than a round.
const IDLE: u32 = 2000;

/// A ring, with the kernel's thread on the engine's processor.
pub(in crate::bench) struct Sqpoll(IoUring);

impl Sqpoll {
    /// Makes one; `None` where the kernel has none, or does not let this process.
    pub fn open(pair: Pair) -> Option<Self> {
        let processor = u32::try_from(pair.engine).ok()?;
        let ring = IoUring::builder().setup_sqpoll(IDLE).setup_sqpoll_cpu(processor).build(ENTRIES).ok()?;
        let mut sqpoll = Self(ring);
        // It may be refused late.
        let tried = {
            let mut path = sqpoll.path();
            path.push().and_then(|()| path.drain())
        };
        tried.is_ok().then_some(sqpoll)
    }

    /// The producer's side.
    pub fn path(&mut self) -> SqpollPath<'_> {
        let (submitter, submissions, completions) = self.0.split();
        SqpollPath { submitter, submissions, completions, in_flight: 0 }
    }
}

/// The producer's side of such a ring.
pub(in crate::bench) struct SqpollPath<'a> {
    submitter: Submitter<'a>,
    submissions: SubmissionQueue<'a>,
    completions: CompletionQueue<'a>,
    in_flight: usize,
}

impl SqpollPath<'_> {
    fn reap(&mut self) {
        self.completions.sync();
        self.in_flight -= self.completions.by_ref().count();
        self.completions.sync();
    }
}

impl Path for SqpollPath<'_> {
    fn push(&mut self) -> Result<()> {
        // Never more than the queue of completions holds.
        while self.in_flight >= ENTRIES as usize {
            self.reap();
        }
        let nop = opcode::Nop::new().build();
        // SAFETY: the operation names no memory.
        while unsafe { self.submissions.push(&nop) }.is_err() {
            self.submissions.sync();
        }
        self.in_flight += 1;
        self.submissions.sync();
        // A call into the kernel only if its thread sleeps.
        self.submitter.submit().context("io_uring_enter")?;
        Ok(())
    }

    fn drain(&mut self) -> Result<()> {
        let mut looks = 0_u32;
        let mut begun = None;
        while self.in_flight > 0 {
            self.reap();
            looks = looks.wrapping_add(1);
            if looks.is_multiple_of(1 << 20) {
                let begun = *begun.get_or_insert_with(Instant::now);
                ensure!(begun.elapsed() < crate::bench::PATIENCE, "io_uring does not complete");
            }
        }
        Ok(())
    }
}
