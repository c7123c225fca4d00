//! What cases of this test's own share: a place where a function of the driver's table waits for the case, and an end
//! without a shutdown.

use fencepost::scenario::Played;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A gate, closed at first. Once open it stays open.
pub struct Gate {
    reached: AtomicBool,
    open: AtomicBool,
}

impl Gate {
    /// A closed gate.
    pub const fn new() -> Self {
        Self { reached: AtomicBool::new(false), open: AtomicBool::new(false) }
    }

    /// Waits until the gate is open.
    pub fn pass(&self) {
        self.reached.store(true, Ordering::SeqCst);
        while !self.open.load(Ordering::SeqCst) {
            std::thread::park_timeout(Duration::from_millis(1));
        }
    }

    /// Whether a thread has come to the gate.
    pub fn is_reached(&self) -> bool {
        self.reached.load(Ordering::SeqCst)
    }

    /// Opens it.
    pub fn open(&self) {
        self.open.store(true, Ordering::SeqCst);
    }
}

/// Ends the process at once where the case failed, with the reason on standard error: what lost an interrupt or work
/// does not shut down.
pub fn or_ends(played: Played) -> Played {
    if let Err(error) = &played {
        eprintln!("{error:#}");
        std::process::exit(1);
    }
    played
}
