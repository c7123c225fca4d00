//! Which fact shows which reading.

/// A fact that tells machines apart.
#[derive(Clone, Copy, Debug)]
pub enum Fact {
    /// A machine under the reading has it, and none of the default.
    With(&'static str),
    /// A machine of the default has it, and none under the reading.
    Without(&'static str),
}

use Fact::{With, Without};

/// A reading, the case that shows it, and the fact by which it does.
pub const SHOWN: &[(&str, &str, Fact)] = &[
    ("obsolete-contexts", "DD-01", With("DxgkDdiCreateHwContext is called")),
    ("childless-asked", "CL-22", Without("x")),
];

/// Readings of which nothing is seen from outside, and why their cases notice them all the same.
pub const BY_THEIR_CASES: &[(&str, &str)] = &[];
