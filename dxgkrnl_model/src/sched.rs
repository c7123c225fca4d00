//! VidSch: what is submitted to nodes, and what interrupts say of it.

pub(crate) mod interrupt;
pub(crate) mod vidsch;
