//! Memory of fence values: where it lies, and who reaches it there.

pub(crate) mod kept;
pub(crate) mod place;
pub(crate) mod segments;
pub(crate) mod storage;
pub(crate) mod window;
