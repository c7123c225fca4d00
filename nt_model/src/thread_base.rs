//! The jump from a system thread's current frame to its base.
#![expect(unsafe_code, reason = "leaves the thread's frames; see arch::leave")]

use crate::arch::{self, JumpContext};

/// Returns to the base of the calling thread. `base` must be the thread's own, from the thread-local record.
pub(crate) fn leave(base: *mut JumpContext) -> ! {
    // SAFETY: the record's `thread_base` is set by `thread_main` on this thread and reset when its `enter` has
    // returned; the caller of PsTerminateSystemThread gives up its frames, which is what the routine is for.
    unsafe { arch::leave(base, 2) }
}
