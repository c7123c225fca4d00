//! Flags of creating and opening a monitored fence: what a device may do with it.
//!
//! Source: DDI page D3DDDI_SYNCHRONIZATIONOBJECT_FLAGS; D3DKMT_OPENSYNCOBJECTFROMNTHANDLE2 ("the desired sync object
//! behavior for this device, such as wait and signal semantics and TDR handling").
//!
//! | flag | here |
//! |---|---|
//! | `Shared`, `NtSecuritySharing` | both or none: monitored fences are shared by NT handles only |
//! | `CrossAdapter` | with `Shared` |
//! | `TopOfPipeline` | taken. A signal may then come before its buffer is done; chosen: it does not, since nothing tells the OS when a buffer was copied |
//! | `NoSignal`, `NoWait` | not both. What is not allowed ends with STATUS_ACCESS_DENIED. Chosen: with `NoSignal` the device's GPU sees the value read-only |
//! | `NoSignalMaxValueOnTdr` | the value stays when the device is lost |
//! | `NoGPUAccess` | no GPU address, and a value of 64 bits whatever the adapter can do |
//! | `SignalByKmd` | refused: it goes with D3DDDI_CPU_NOTIFICATION only |
//! | `UnwaitCpuWaitersOnlyOnDestroy` | waits on the CPU outlive the handle that they were made with, while other handles are left |

use wddm_abi::{D3DDDI_SYNC_OBJECT_SIGNAL, D3DDDI_SYNC_OBJECT_WAIT, D3DDDI_SYNCHRONIZATIONOBJECT_FLAGS};

use crate::memory::va::Protection;

/// What a device may do with a monitored fence.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Behaviour(D3DDDI_SYNCHRONIZATIONOBJECT_FLAGS);

impl Default for Behaviour {
    /// No flags: a device may do everything.
    fn default() -> Self {
        Self(D3DDDI_SYNCHRONIZATIONOBJECT_FLAGS::zeroed())
    }
}

/// Returns whether flags fit together for a fence of any kind: NT sharing is the only kind, and cross-adapter fences
/// are shared.
pub(crate) fn is_sound(flags: D3DDDI_SYNCHRONIZATIONOBJECT_FLAGS) -> bool {
    flags.Shared() == flags.NtSecuritySharing()
        && (!flags.CrossAdapter() || flags.Shared())
        && flags.Reserved() == 0
        && !flags.Reserved0()
        && !flags.Unused()
        && !flags.SignalByKmd()
}

/// Returns whether a flag that only monitored fences may have is set.
///
/// Source: `TopOfPipeline`, `NoSignal`, `NoWait`: "can only be set to 1 (TRUE) for monitored fence synchronization
/// objects".
/// Chosen: `NoGPUAccess` too, since a native fence without a GPU has no use.
pub(crate) fn are_for_monitored(flags: D3DDDI_SYNCHRONIZATIONOBJECT_FLAGS) -> bool {
    flags.TopOfPipeline() || flags.NoSignal() || flags.NoWait() || flags.NoGPUAccess()
}

impl Behaviour {
    /// The behaviour that the flags of a monitored fence ask for. `None`: the flags do not fit together.
    pub(crate) fn of(flags: D3DDDI_SYNCHRONIZATIONOBJECT_FLAGS) -> Option<Self> {
        let contradicts = flags.NoSignal() && flags.NoWait();
        (is_sound(flags) && !contradicts).then_some(Self(flags))
    }

    /// This behaviour, for a fence that was shared.
    #[must_use]
    pub(crate) fn shared(self) -> Self {
        Self(self.0.with_Shared(true).with_NtSecuritySharing(true))
    }

    /// Returns whether the fence is made for several devices.
    pub(crate) fn is_shared(self) -> bool {
        self.0.Shared()
    }

    /// Returns whether the fence is made for several adapters.
    pub(crate) fn is_cross_adapter(self) -> bool {
        self.0.CrossAdapter()
    }

    /// Returns whether the flags permit `right`: `D3DDDI_SYNC_OBJECT_WAIT` or `D3DDDI_SYNC_OBJECT_SIGNAL`.
    pub(crate) fn allows(self, right: u32) -> bool {
        let denied = match right {
            D3DDDI_SYNC_OBJECT_SIGNAL => self.0.NoSignal(),
            D3DDDI_SYNC_OBJECT_WAIT => self.0.NoWait(),
            _ => false,
        };
        !denied
    }

    /// Returns whether the GPU may store to the value.
    pub(super) fn lets_gpu_signal(self) -> bool {
        !self.0.NoSignal() && !self.0.NoGPUAccess()
    }

    /// The protection of the GPU's mapping of the value; `None`: there is no mapping.
    pub(super) fn gpu_protection(self) -> Option<Protection> {
        let protection = if self.0.NoSignal() { Protection::READ_ONLY } else { Protection::READ_WRITE };
        (!self.0.NoGPUAccess()).then_some(protection)
    }

    /// This behaviour, without a GPU address if `hidden`.
    #[must_use]
    pub(super) fn hidden_from_gpu(self, hidden: bool) -> Self {
        Self(self.0.with_NoGPUAccess(self.0.NoGPUAccess() || hidden))
    }

    /// Returns whether the loss of the device signals the fence.
    ///
    /// Source: `NoSignalMaxValueOnTdr`: signaled "when a device that can potentially signal it is affected".
    pub(super) fn ends_with_device(self) -> bool {
        !self.0.NoSignalMaxValueOnTdr() && !self.0.NoSignal()
    }

    /// Returns whether waits on the CPU outlive the handle that they were made with.
    pub(super) fn waiters_stay(self) -> bool {
        self.0.UnwaitCpuWaitersOnlyOnDestroy()
    }
}
