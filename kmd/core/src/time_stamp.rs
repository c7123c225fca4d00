//! The processor's time-stamp counter: an instruction in place of a call into the kernel.
#![cfg_attr(target_arch = "x86_64", expect(unsafe_code, reason = "an instruction that reads a counter"))]

/// Returns whether the counter is there and runs at one rate, whatever state of power the processor is in.
///
/// Source: Intel SDM volume 3, "Invariant TSC"; AMD64 APM volume 3, function 8000_0007h: bit 8 of EDX in both.
pub fn is_invariant() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        use core::arch::x86_64::__cpuid;
        const LEAF: u32 = 0x8000_0007;
        const INVARIANT: u32 = 1 << 8;
        __cpuid(0x8000_0000).eax >= LEAF && __cpuid(LEAF).edx & INVARIANT != 0
    }
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// The counter, not read ahead of what the thread has loaded before. Any IRQL. 0 where there is none.
///
/// Source: Intel SDM volume 2, RDTSC (LFENCE before it); AMD64 APM volume 3, RDTSC.
pub fn read() -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        // SAFETY: SSE2 is part of x86-64.
        unsafe { core::arch::x86_64::_mm_lfence() };
        // SAFETY: the instruction is there on every x86-64 processor, and the kernel may use it.
        unsafe { core::arch::x86_64::_rdtsc() }
    }
    #[cfg(not(target_arch = "x86_64"))]
    0
}
