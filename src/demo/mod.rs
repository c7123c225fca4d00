//! `fencepost demo`.

pub mod picture;
pub mod recipe;
