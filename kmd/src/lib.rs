//! fencepost.sys: the NT shell. Built for Windows targets only.
#![cfg(windows)]
#![no_std]
