//! An entry of a native fence log.

/// What a LOG packet makes of itself, with the engine's timestamps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Fence value of the operation.
    pub value: u64,
    /// The user's handle of the fence.
    pub handle: u32,
    /// `DXGK_NATIVE_FENCE_LOG_OPERATION`.
    pub operation: u32,
    /// When the engine first saw the wait; 0 for a signal.
    pub observed: u64,
    /// When the signal executed or the wait was unblocked.
    pub end: u64,
}
