//! The ways in: thunks, the driver's callbacks, the life of adapters, and what tools and tests ask for.

pub mod adapter;
pub mod initiative;
pub(crate) mod interface;
pub mod os;
pub mod report;
pub(crate) mod statistics;
pub(crate) mod system;
pub mod thunks;
pub(crate) mod trim;
