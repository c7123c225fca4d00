//! The end of a paging buffer, and the wait for what a driver owes the system.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use nt_model::Machine;

use crate::memory::VidMm;
use crate::port::miniport::Miniport;
use crate::port::rules::paging::PAGING_END;
use crate::port::sync::Signal;
use crate::port::tdr::Tdr;

/// The end of a paging buffer, which a thread may wait for.
#[derive(Debug)]
pub(crate) struct Completion {
    state: AtomicU8,
    signal: Signal,
}

impl Completion {
    const DONE: u8 = 1;
    const LOST: u8 = 2;

    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { state: AtomicU8::new(0), signal: Signal::new() })
    }

    /// It is done, or will never be.
    pub(crate) fn end(&self, kernel: &Machine, done: bool) {
        let state = if done { Self::DONE } else { Self::LOST };
        let _ = self.state.compare_exchange(0, state, Ordering::AcqRel, Ordering::Acquire);
        self.signal.notify(kernel);
    }

    /// Waits for the end of a paging buffer. True: done.
    ///
    /// IRQL: PASSIVE_LEVEL.
    pub(crate) fn wait(&self, adapter: &Miniport) -> bool {
        let look = || match self.state.load(Ordering::Acquire) {
            0 => None,
            state => Some(state),
        };
        let done = owed(adapter, &self.signal, look) == Some(Self::DONE);
        if done {
            adapter.rules().count(&PAGING_END);
        }
        done
    }
}

/// Waits for what a driver owes the system. A driver that does not give it is reset while timeouts are looked for;
/// before and after that it breaks DXG-PAGING-END, and every paging buffer is lost. `None`: that, or the machine has
/// stopped.
///
/// IRQL: PASSIVE_LEVEL.
pub(crate) fn owed<R>(adapter: &Miniport, signal: &Signal, mut look: impl FnMut() -> Option<R>) -> Option<R> {
    let kernel = adapter.kernel();
    let settings = adapter.personality().tdr;
    // Only a time through which nothing would have reset the engine counts.
    let mut was_watched = Tdr::of(adapter).watches(adapter);
    loop {
        let limit = match Tdr::of(adapter).paging_lost.load(Ordering::Acquire) && !was_watched {
            true => 0,
            false => 5 * settings.delay + settings.ddi_delay,
        };
        let ended = signal.wait_for(kernel, Some(kernel.now() + limit), &mut look);
        if ended.is_some() || adapter.rules().is_stopped() {
            return ended;
        }
        let is_watched = Tdr::of(adapter).watches(adapter);
        if !is_watched && !was_watched {
            Tdr::of(adapter).paging_lost.store(true, Ordering::Release);
            adapter.rules().check(&PAGING_END, false, || "a paging buffer does not end".to_owned());
            if let Some(manager) = VidMm::of(adapter).manager()
                && let Some(hooks) = manager.hooks()
            {
                (hooks.give_up)(adapter);
            }
            return None;
        }
        was_watched = is_watched;
    }
}
