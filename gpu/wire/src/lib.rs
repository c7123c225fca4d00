//! What the user-mode driver, the kernel-mode driver and the engine of the Fencepost GPU agree on.
#![no_std]
