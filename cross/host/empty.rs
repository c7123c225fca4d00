//! Stands in for the crates that the `windows` crate is made of; nothing refers to what is in them (see windows.rs).
#![no_std]
