//! The `D3DKMT` entry points, as data. Their types are in [`crate::callbacks`].

pub use crate::generated::exports::*;

/// An entry point.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Export {
    /// Its name.
    pub name: &'static str,
    /// The DLL that the SDK's import library names.
    pub dll: Option<&'static str>,
    /// The API set that the SDK's umbrella library names.
    pub api_set: Option<&'static str>,
    /// The first SDK build in which it was seen.
    pub first_build: u32,
    /// Whether `d3dkmthk.h` of 26100.9169 declares it.
    pub declared: bool,
}
