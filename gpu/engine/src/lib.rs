//! The Fencepost GPU: command processor, MMU, context management processor, fences, logs.
#![no_std]
