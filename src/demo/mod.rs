//! `fencepost demo`: the portable demo (`portable_cases::demo`) over the model, and what the model knows of it.

pub mod actor;
pub mod audit;
pub mod counters;
pub mod history;
pub mod picture;
pub mod play;
pub mod run;
pub mod summary;
