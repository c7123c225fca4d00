//! The function tables, slot by slot, as data: for reports and checks. The tables themselves are
//! [`crate::DRIVER_INITIALIZATION_DATA`], [`crate::DXGKRNL_INTERFACE`] and the feature interfaces.

pub use crate::generated::slots::*;

/// One slot of a function table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Slot {
    /// Its number, from 0.
    pub index: u32,
    /// Its byte offset.
    pub offset: usize,
    /// The member's name.
    pub member: &'static str,
    /// The C type of the member.
    pub ctype: &'static str,
    /// The interface version that brought it: the macro and its value. None: it was always there.
    pub guard: Option<(&'static str, u32)>,
    /// The first system that has it, by the documentation.
    pub documented: Option<&'static str>,
    /// A remark.
    pub note: Option<&'static str>,
}

/// How large a table is for a driver that was compiled for one interface version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SizeAt {
    /// The macro.
    pub version: &'static str,
    /// Its value, where the table has it.
    pub value: Option<u32>,
    /// Bytes.
    pub size: usize,
}
