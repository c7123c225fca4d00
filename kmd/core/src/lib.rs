//! The logic of Fencepost's display miniport driver.
#![no_std]
