//! Video memory that a process has reserved.
//!
//! Source: DDI page D3DKMT_CHANGEVIDEOMMEMORYRESERVATION.

use std::collections::BTreeMap;

use crate::port::miniport::Miniport;
use crate::port::sync::{Lock, Rank};

/// Bytes by the adapter's LUID and the segment group: the adapter's own memory, or the system's.
#[derive(Debug)]
pub(crate) struct Reservations(Lock<BTreeMap<(u64, bool), u64>>);

impl Reservations {
    pub(super) fn new() -> Self {
        Self(Lock::new(Rank::Leaf, BTreeMap::new()))
    }

    /// Bytes that are reserved of an adapter's group.
    pub(crate) fn of(&self, adapter: &Miniport, shared: bool) -> u64 {
        self.0.lock().get(&(adapter.luid_number(), shared)).copied().unwrap_or(0)
    }

    /// Reserves bytes of an adapter's group, instead of those before.
    pub(crate) fn set(&self, adapter: &Miniport, shared: bool, bytes: u64) {
        self.0.lock().insert((adapter.luid_number(), shared), bytes);
    }
}
