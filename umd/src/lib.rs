//! fencepost_umd.dll: the C ABI over gdi32. Built for Windows targets only.
#![cfg(windows)]
#![no_std]
