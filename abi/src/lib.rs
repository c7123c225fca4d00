//! WDDM structures, enums and callbacks under Microsoft's names.
#![no_std]
#![expect(
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    reason = "types, members and enumerators have Microsoft's names"
)]

#[cfg(not(target_pointer_width = "64"))]
compile_error!("the layouts are those of 64-bit Windows");

mod bits;
pub mod bugchecks;
pub mod bugcodes;
mod call;
pub mod exports;
#[rustfmt::skip]
mod generated;
pub mod nt_types;
pub mod ntstatus;
mod open_enum;
mod plain;
pub mod slots;

pub use generated::aliases;
pub use generated::callbacks;
pub use generated::d3dkmddi;
pub use generated::d3dkmdt;
pub use generated::d3dkmthk;
pub use generated::d3dukmdt;
pub use generated::dispmprt;
pub use generated::enums;
pub use generated::guids;
pub use generated::kit_28000;
pub use generated::macros;
pub use generated::variants;

pub use aliases::*;
pub use callbacks::*;
pub use d3dkmddi::*;
pub use d3dkmdt::*;
pub use d3dkmthk::*;
pub use d3dukmdt::*;
pub use dispmprt::*;
pub use enums::*;
pub use guids::*;
pub use macros::*;
pub use nt_types::*;
pub use ntstatus::NTSTATUS;
pub use plain::Padding;
pub use plain::Plain;

pub(crate) use bugchecks::BugCheck;
pub(crate) use exports::Export;
pub(crate) use nt_types::opaque_types;
pub(crate) use open_enum::open_enum;
pub(crate) use plain::plain_struct;
pub(crate) use plain::plain_union;
pub(crate) use slots::SizeAt;
pub(crate) use slots::Slot;
