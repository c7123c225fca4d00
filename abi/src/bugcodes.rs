//! Bug check codes.

pub use crate::generated::bugcodes::*;

/// The name of a bug check code. Pulls in the table of all names.
pub fn name(code: u32) -> Option<&'static str> {
    let index = BUG_CODES.binary_search_by_key(&code, |&(value, _)| value).ok()?;
    Some(BUG_CODES[index].1)
}
