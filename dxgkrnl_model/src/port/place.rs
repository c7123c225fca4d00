//! Where nodes are.

/// Where a node is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// Its ordinal on its engine.
    pub node: u32,
    /// The ordinal of its engine, which is the index of a physical adapter.
    pub engine: u32,
}
