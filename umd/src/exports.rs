//! The exports. Source of their meaning: `umd_core/src/ffi/table.rs`, or the header made from it.

umd_core::c_abi_exports!(crate::gdi32::Gdi32);
