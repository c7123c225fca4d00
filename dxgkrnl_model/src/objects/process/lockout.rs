//! A process that hangs engines again and again is blocked: it makes no device any more, until it is started again.
//!
//! Source: bug check (live dump) 0x142, VIDEO_TDR_APPLICATION_BLOCKED; WHLK, Multiple TDR Lockout and Recovery.
//!
//! Chosen: the block is the process's; it comes with one hang more than [`TdrSettings::process_limit`] within
//! TdrLimitTime; a blocked process is refused with STATUS_ACCESS_DENIED. No page says any of it.
//!
//! [`TdrSettings::process_limit`]: crate::port::personality::TdrSettings::process_limit

use std::sync::atomic::{AtomicBool, Ordering};

use nt_model::sched::Ticks;

use crate::port::miniport::Miniport;
use crate::port::sync::{Lock, Rank};

/// What a process has hung.
#[derive(Debug)]
pub(crate) struct Hangs {
    times: Lock<Vec<Ticks>>,
    blocked: AtomicBool,
}

impl Hangs {
    pub(crate) fn new() -> Self {
        Self { times: Lock::new(Rank::Leaf, Vec::new()), blocked: AtomicBool::new(false) }
    }

    /// A device of the process has hung an engine.
    pub(crate) fn note(&self, adapter: &Miniport, process: u64) {
        let settings = adapter.personality().tdr;
        let now = adapter.kernel().now();
        let count = {
            let mut times = self.times.lock();
            times.retain(|at| at + settings.limit_time > now);
            times.push(now);
            times.len()
        };
        if count > settings.process_limit as usize && !self.blocked.swap(true, Ordering::AcqRel) {
            adapter.note_event(format!(
                "TDR: VIDEO_TDR_APPLICATION_BLOCKED (0x142): process {process} hung {count} times"
            ));
        }
    }

    /// Whether the process makes no device any more.
    pub(crate) fn is_blocked(&self) -> bool {
        self.blocked.load(Ordering::Acquire)
    }
}
