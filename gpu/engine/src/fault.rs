//! Faults: what a queue did wrong, and what a test makes go wrong.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use gpu_wire::GpuVa;
use gpu_wire::packet::FaultKind;

/// What a queue did wrong. It ends in *its* device's error; everything else runs on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fault {
    /// What.
    pub kind: FaultKind,
    /// The GPU address, for [`FaultKind::Address`]; 0 for the rest.
    pub address: GpuVa,
    /// Whether the access was a store.
    pub write: bool,
}

impl Fault {
    /// An access that no translation allows.
    pub const fn address(address: GpuVa, write: bool) -> Self {
        Self { kind: FaultKind::Address, address, write }
    }
}

impl From<FaultKind> for Fault {
    fn from(kind: FaultKind) -> Self {
        Self { kind, address: GpuVa(0), write: false }
    }
}

/// What a test makes go wrong, by the registry (`docs/settings.md`) or directly. All counters count packets of all
/// nodes; 0 means never.
#[derive(Default)]
pub struct FaultPlan {
    /// Whether anything is planned: the one word that the hot path looks at.
    armed: AtomicBool,
    packets: AtomicU64,
    /// The packet with this number has a bit of its opcode flipped after it was fetched.
    pub corrupt_packet: AtomicU64,
    /// Every interrupt request up to this count fails to be raised.
    pub fail_interrupts: AtomicU64,
    /// The engine that fetches the packet with this number stops answering until released.
    pub wedge_at: AtomicU64,
    /// Whether a wedged engine goes on.
    pub release: AtomicBool,
}

impl FaultPlan {
    /// Starts counting.
    pub fn arm(&self) {
        self.armed.store(true, Ordering::Release);
    }

    /// Returns whether anything is planned.
    pub fn is_armed(&self) -> bool {
        self.armed.load(Ordering::Relaxed)
    }

    /// Called for every packet; what shall happen to it.
    #[inline]
    pub fn at_packet(&self) -> Option<Injected> {
        if !self.armed.load(Ordering::Relaxed) {
            return None;
        }
        let n = self.packets.fetch_add(1, Ordering::Relaxed) + 1;
        if n == self.corrupt_packet.load(Ordering::Relaxed) {
            return Some(Injected::Corrupt);
        }
        if n == self.wedge_at.load(Ordering::Relaxed) {
            return Some(Injected::Wedge);
        }
        None
    }

    /// The packet that was counted last is executed again, and counts then.
    pub fn comes_again(&self) {
        if self.armed.load(Ordering::Relaxed) {
            self.packets.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Whether this request for an interrupt shall fail.
    pub fn interrupt_fails(&self) -> bool {
        self.armed.load(Ordering::Relaxed)
            && self.fail_interrupts.try_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1)).is_ok()
    }
}

/// What [`FaultPlan::at_packet`] asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Injected {
    /// Flip a bit of the private copy.
    Corrupt,
    /// Stop answering.
    Wedge,
}
