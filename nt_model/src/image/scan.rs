//! Looks through an image's code for what cannot work in a Linux process as it stands.

use iced_x86::{Code, Decoder, DecoderOptions, Instruction, Register};

/// What the code contains, by address relative to the base.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CodeFacts {
    /// Instructions that go through `gs` (the processor control region in the kernel, the thread block in user mode).
    pub gs_accesses: Vec<u32>,
    /// `mov` to or from `cr8`, which the trap handler emulates.
    pub cr8_moves: Vec<u32>,
    /// Instructions that no driver may run, or that the model cannot: `in`, `out`, `hlt`, `rdmsr`, …
    pub privileged: Vec<u32>,
}

/// Scans functions, given as ranges in `memory`.
pub(super) fn scan(memory: &[u8], functions: &[(u32, u32)]) -> CodeFacts {
    let mut facts = CodeFacts::default();
    let mut instruction = Instruction::default();
    for (start, end) in functions {
        let Some(code) = memory.get(*start as usize..*end as usize) else { continue };
        let mut decoder = Decoder::with_ip(64, code, u64::from(*start), DecoderOptions::NONE);
        while decoder.can_decode() {
            decoder.decode_out(&mut instruction);
            // CAST: an address in the image, whose size is 32 bits.
            let at = instruction.ip() as u32;
            if instruction.segment_prefix() == Register::GS {
                facts.gs_accesses.push(at);
            }
            match instruction.code() {
                Code::Mov_r64_cr if instruction.op1_register() == Register::CR8 => facts.cr8_moves.push(at),
                Code::Mov_cr_r64 if instruction.op0_register() == Register::CR8 => facts.cr8_moves.push(at),
                _ if instruction.is_privileged() => facts.privileged.push(at),
                _ => (),
            }
        }
    }
    facts
}
