//! The OS asks processes to evict memory, when a test says so.

use std::sync::Arc;

use wddm_abi::D3DDDI_TRIMRESIDENCYSET_FLAGS;

use crate::entry::adapter::Adapter;
use crate::entry::os::Os;
use crate::entry::trim::Trims;
use crate::objects::process::Process;
use crate::port::shared::shared_of;

/// What a process is asked to evict.
///
/// Source: DDI page D3DDDI_TRIMRESIDENCYSET_FLAGS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trim {
    /// What was not used since the last time.
    Periodic,
    /// Nothing: from now on it counts what is not used.
    RestartPeriodic,
    /// So many bytes, since it is over its budget.
    ToBudget(u64),
    /// Both what was not used and, where that is less, so many bytes.
    PeriodicToBudget(u64),
}

impl Trim {
    /// As a callback gets it: flags, and how many bytes.
    fn flags_and_bytes(self) -> (D3DDDI_TRIMRESIDENCYSET_FLAGS, u64) {
        let mut flags = D3DDDI_TRIMRESIDENCYSET_FLAGS::zeroed();
        flags.set_PeriodicTrim(matches!(self, Self::Periodic | Self::PeriodicToBudget(_)));
        flags.set_RestartPeriodicTrim(self == Self::RestartPeriodic);
        let bytes = match self {
            Self::ToBudget(bytes) | Self::PeriodicToBudget(bytes) => Some(bytes),
            Self::Periodic | Self::RestartPeriodic => None,
        };
        flags.set_TrimToBudget(bytes.is_some());
        (flags, bytes.unwrap_or(0))
    }
}

impl Os {
    /// Calls what a process has registered by `D3DKMTRegisterTrimNotification` for its devices on an adapter, one after
    /// the other, on the calling thread. Returns how many callbacks have returned: one that touches what it must not is
    /// left where it is.
    pub fn trim(&self, adapter: &Arc<Adapter>, process: &Process, trim: Trim) -> usize {
        let _inside = self.kernel().enter();
        let Some(shared) = shared_of(self.kernel()) else { return 0 };
        Trims::of(&shared).notify(process.nt(), adapter, trim.flags_and_bytes())
    }
}
