//! `__chkstk`: called by functions with a frame of more than a page, with the frame's size in `rax`.
//!
//! It must keep every register but `r10`, `r11` and the flags. On Windows it touches the guard pages; here it tells the
//! model how deep the stack is about to be.
#![expect(unsafe_code, reason = "a naked function with a convention of its own")]

use core::arch::naked_asm;

use crate::cpu;
use crate::shim::{CodeAddress, ShimEntry};

pub(crate) static CHKSTK: &[ShimEntry] = &[ShimEntry { name: "__chkstk", address: CodeAddress(chkstk as *const ()) }];

#[unsafe(naked)]
unsafe extern "win64" fn chkstk() {
    naked_asm!(
        // A prologue calls it with any alignment, so the frame is aligned here.
        "push rbp",
        "mov rbp, rsp",
        "push rax", "push rcx", "push rdx", "push r8", "push r9",
        "sub rsp, 128",
        "and rsp, -16",
        "movaps [rsp + 32], xmm0", "movaps [rsp + 48], xmm1", "movaps [rsp + 64], xmm2",
        "movaps [rsp + 80], xmm3", "movaps [rsp + 96], xmm4", "movaps [rsp + 112], xmm5",
        // What rsp will be when the frame is taken: the caller's rsp, behind rbp and the return address, less rax.
        "lea rcx, [rbp + 16]",
        "sub rcx, rax",
        "call {inner}",
        "movaps xmm0, [rsp + 32]", "movaps xmm1, [rsp + 48]", "movaps xmm2, [rsp + 64]",
        "movaps xmm3, [rsp + 80]", "movaps xmm4, [rsp + 96]", "movaps xmm5, [rsp + 112]",
        "lea rsp, [rbp - 40]",
        "pop r9", "pop r8", "pop rdx", "pop rcx", "pop rax",
        "pop rbp",
        "ret",
        inner = sym about_to_take,
    )
}

extern "win64" fn about_to_take(pointer: usize) {
    cpu::with(|cpu| {
        if let Some(machine) = cpu.machine() {
            machine.measure_stack(pointer);
        }
    });
}
