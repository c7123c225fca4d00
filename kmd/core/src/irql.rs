//! IRQL as an argument.
//!
//! A token proves the level that code runs at: a function that allocates, waits or touches anything pageable takes
//! [`&Passive`](Passive); one that may run at up to `DISPATCH_LEVEL` takes [`impl AtMostDispatch`](AtMostDispatch).
//! Tokens are zero-sized, not `Send`, and minted by the thunks (`kmd_ddi`), `DriverEntry` and thread starts, from what
//! the documentation promises. Two places that no token reaches mint one as well, each with its reason: where the
//! device's registers are unmapped (`registers.rs`), and where an engine asks how much memory there is (`dxgkrnl.rs`).
#![expect(unsafe_code, reason = "a token is a claim about the processor's state")]

use core::marker::PhantomData;

macro_rules! level {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub struct $name(PhantomData<*const ()>);

        impl $name {
            /// Claims the level.
            ///
            /// # Safety
            /// The calling thread runs at this level (for `Dispatch`: at or below it) until the token is dropped.
            pub const unsafe fn assume() -> Self {
                Self(PhantomData)
            }
        }
    };
}

level! {
    /// `PASSIVE_LEVEL`.
    Passive
}
level! {
    /// At most `DISPATCH_LEVEL`.
    Dispatch
}
level! {
    /// The device's interrupt level, with the interrupt lock held.
    Dirql
}

/// Proof of running at or below `DISPATCH_LEVEL`.
pub trait AtMostDispatch {}
impl AtMostDispatch for Passive {}
impl AtMostDispatch for Dispatch {}
