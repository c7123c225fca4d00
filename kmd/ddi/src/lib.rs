//! The DRIVER_INITIALIZATION_DATA table and its thunks.
#![no_std]
