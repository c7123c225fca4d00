//! Guarded access: run something that may touch what it must not, and get the fault as a value.

use crate::arch;
use crate::cpu::{self, USER_MODE};

/// A load or store that the page's rights forbid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("access violation: {} {address:#x}", if *.write { "a store to" } else { "a load from" })]
pub struct AccessViolation {
    /// What was touched; 0 when the processor did not say (a non-canonical address, a privileged instruction).
    pub address: usize,
    /// A store, as opposed to a load or a fetch.
    pub write: bool,
}

/// Runs `f` as user-mode code does: an access violation ends it and is returned.
///
/// When that happens `f`'s frames are left without being unwound: what it owned is leaked, a lock it held stays held.
/// So `f` should make plain accesses, or call into an image. A [`Kernel`](crate::Kernel) must have been made before,
/// which installs the handler.
///
/// # Errors
/// [`AccessViolation`].
pub fn try_user<R>(f: impl FnOnce() -> R) -> Result<R, AccessViolation> {
    let state = cpu::with(|cpu| cpu.push_entry(USER_MODE));
    let result = arch::enter(|context| cpu::with(|cpu| cpu.guard.set(context)), f);
    cpu::with(|cpu| {
        cpu.pop_entry(&state);
        if result.is_err() {
            cpu.irql.set(state.irql);
        }
        let (address, write) = cpu.fault.get();
        // CAST: an address.
        result.map_err(|_| AccessViolation { address: address as usize, write })
    })
}
