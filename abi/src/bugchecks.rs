//! The bug checks that a display driver can cause, and what parameter 1 means: in our words.
//!
//! Source: Microsoft's bug check reference, 2025-11 state.

pub use crate::generated::bugchecks::*;

/// A bug check, or one of the meanings that its first parameter has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BugCheck {
    /// The code. See [`crate::bugcodes`] for its name.
    pub code: u32,
    /// The value of parameter 1, where the meaning depends on it.
    pub parameter1: Option<u64>,
    /// The symbol of that value or of the code, where the reference gives one.
    pub symbol: Option<&'static str>,
    /// What went wrong.
    pub meaning: &'static str,
}
