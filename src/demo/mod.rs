//! `fencepost demo`.

pub mod actor;
pub mod audit;
pub mod counters;
pub mod history;
pub mod parts;
pub mod picture;
pub mod play;
pub mod recipe;
pub mod run;
pub mod summary;
