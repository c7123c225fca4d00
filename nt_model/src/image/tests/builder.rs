//! Builds little drivers: PE files with assembled code, imports, exports, data and relocations.

use iced_x86::code_asm::{AsmRegister64, CodeAssembler, CodeLabel};
use iced_x86::{BlockEncoderOptions, Code, Instruction, MemoryOperand, Register};

pub(crate) const BASE: u64 = 0x1_4000_0000;
const TEXT: u32 = 0x1000;
const RDATA: u32 = 0x3000;
const DATA: u32 = 0x5000;
const RELOC: u32 = 0x7000;
const SIZE: u32 = 0x8000;
const HEADERS: u32 = 0x400;

/// A driver under construction.
pub(crate) struct DriverBuilder {
    pub(crate) asm: CodeAssembler,
    imports: Vec<(String, String)>,
    exports: Vec<(String, CodeLabel)>,
    data: Vec<u8>,
    scopes: Vec<(CodeLabel, CodeLabel, bool)>,
}

fn rip(target: u64) -> MemoryOperand {
    // CAST: addresses near the image base are far below i64::MAX.
    MemoryOperand::new(Register::RIP, Register::None, 1, target as i64, 8, false, Register::None)
}

impl DriverBuilder {
    /// `imports`: function names of ntoskrnl.exe, or `dll!name`.
    pub(crate) fn new(imports: &[&str]) -> Self {
        let split = |name: &&str| match name.split_once('!') {
            Some((dll, name)) => (dll.to_owned(), name.to_owned()),
            None => ("ntoskrnl.exe".to_owned(), (*name).to_owned()),
        };
        let asm = CodeAssembler::new(64).unwrap_or_else(|error| panic!("{error}"));
        Self {
            asm,
            imports: imports.iter().map(split).collect(),
            exports: Vec::new(),
            data: Vec::new(),
            scopes: Vec::new(),
        }
    }

    /// Adds an instruction.
    pub(crate) fn emit(&mut self, instruction: Result<Instruction, iced_x86::IcedError>) {
        let instruction = instruction.unwrap_or_else(|error| panic!("{error}"));
        self.asm.add_instruction(instruction).unwrap_or_else(|error| panic!("{error}"));
    }

    /// `call [import]`. The stack must be aligned and have home space.
    pub(crate) fn call(&mut self, name: &str) {
        let at = self.imports.iter().position(|(_, known)| known == name).unwrap_or_else(|| panic!("{name}"));
        let slot = BASE + u64::from(RDATA) + 0x100 + 16 * at as u64;
        self.emit(Instruction::with1(Code::Call_rm64, rip(slot)));
    }

    /// Adds initialised, writable data; returns its offset, for [`lea`](Self::lea).
    pub(crate) fn data(&mut self, bytes: &[u8]) -> u32 {
        let at = self.data.len().next_multiple_of(16);
        self.data.resize(at, 0);
        self.data.extend_from_slice(bytes);
        at as u32
    }

    /// `lea register, [data]`.
    pub(crate) fn lea(&mut self, register: AsmRegister64, data: u32) {
        let register: Register = register.into();
        self.emit(Instruction::with2(Code::Lea_r64_m, register, rip(BASE + u64::from(DATA + data))));
    }

    /// `lea register, [code at RVA]`, for writing where one may not.
    pub(crate) fn lea_text(&mut self, register: AsmRegister64) {
        let register: Register = register.into();
        self.emit(Instruction::with2(Code::Lea_r64_m, register, rip(BASE + u64::from(TEXT))));
    }

    /// Names the current place for the export table.
    pub(crate) fn export(&mut self, name: &str) {
        let mut label = self.asm.create_label();
        self.asm.set_label(&mut label).unwrap_or_else(|error| panic!("{error}"));
        self.exports.push((name.to_owned(), label));
    }

    /// A `__try` around `code`, with an `__except` that takes everything, or a `__finally`.
    pub(crate) fn guarded(
        &mut self,
        excepts: bool,
        code: impl FnOnce(&mut Self) -> Result<(), iced_x86::IcedError>,
    ) -> Result<(), iced_x86::IcedError> {
        let [mut begin, mut end] = [(); 2].map(|()| self.asm.create_label());
        self.asm.set_label(&mut begin)?;
        code(self)?;
        self.asm.set_label(&mut end)?;
        self.asm.nop()?;
        self.scopes.push((begin, end, excepts));
        Ok(())
    }

    /// Assembles `code` into the driver.
    pub(crate) fn code(mut self, code: impl FnOnce(&mut Self) -> Result<(), iced_x86::IcedError>) -> Self {
        code(&mut self).unwrap_or_else(|error| panic!("{error}"));
        self
    }

    /// The file as a user-mode DLL.
    pub(crate) fn build_dll(self) -> Vec<u8> {
        let mut file = self.build();
        file[0x98 + 68] = 2;
        file
    }

    /// The file. The entry point is the first instruction.
    pub(crate) fn build(mut self) -> Vec<u8> {
        let options = BlockEncoderOptions::RETURN_NEW_INSTRUCTION_OFFSETS;
        let assembled = self.asm.assemble_options(BASE + u64::from(TEXT), options);
        let assembled = assembled.unwrap_or_else(|error| panic!("{error}"));
        let exports: Vec<_> = self
            .exports
            .iter()
            .map(|(name, label)| (name.clone(), (assembled.label_ip(label).unwrap_or(0) - BASE) as u32))
            .collect();
        let rva = |label: &CodeLabel| (assembled.label_ip(label).unwrap_or(0) - BASE) as u32;
        let scopes: Vec<_> = self
            .scopes
            .iter()
            .map(|(begin, end, excepts)| [rva(begin), rva(end), 1, if *excepts { rva(end) } else { 0 }])
            .collect();
        let text = assembled.inner.code_buffer;
        let (mut rdata, import_at, export_at) = self.rdata(&exports);
        let exception = exceptions(&mut rdata, text.len() as u32, &scopes);
        // The first data word is a pointer to the data section: something to relocate.
        let mut data = self.data;
        let pointer = data.len().next_multiple_of(16);
        data.resize(pointer, 0);
        data.extend((BASE + u64::from(DATA)).to_le_bytes());
        let mut reloc = (DATA + (pointer as u32 & !0xFFF)).to_le_bytes().to_vec();
        reloc.extend(12_u32.to_le_bytes());
        reloc.extend((10 << 12 | pointer as u16 & 0xFFF).to_le_bytes());
        reloc.extend(0_u16.to_le_bytes());
        let sections: [(&[u8; 8], u32, &[u8], u32); 4] = [
            (b".text\0\0\0", TEXT, &text, 0x6000_0020),
            (b".rdata\0\0", RDATA, &rdata, 0x4000_0040),
            (b".data\0\0\0", DATA, &data, 0xC000_0040),
            (b".reloc\0\0", RELOC, &reloc, 0x4200_0040),
        ];
        file(&sections, import_at, export_at, exception, reloc.len() as u32)
    }

    /// Import and export tables: slots at 0x100, lookup entries behind them, names last.
    fn rdata(&self, exports: &[(String, u32)]) -> (Vec<u8>, (u32, u32), (u32, u32)) {
        let count = self.imports.len();
        let mut bytes = vec![0; 0x100 + 16 * count];
        let put = |bytes: &mut Vec<u8>, text: &str| {
            let at = RDATA + bytes.len() as u32;
            bytes.extend_from_slice(&[0, 0]);
            bytes.extend_from_slice(text.as_bytes());
            bytes.resize(bytes.len() + 1 + (bytes.len() + 1) % 2, 0);
            at
        };
        let mut descriptors = Vec::new();
        for (at, (dll, name)) in self.imports.iter().enumerate() {
            let name_at = if let Some(ordinal) = name.strip_prefix('#') {
                1 << 63 | ordinal.parse::<u64>().unwrap_or(0)
            } else {
                u64::from(put(&mut bytes, name))
            };
            let slot = 0x100 + 16 * at;
            bytes[slot..slot + 8].copy_from_slice(&name_at.to_le_bytes());
            // One descriptor per function: a slot and a terminator each.
            let dll_at = put(&mut bytes, dll) + 2;
            let slot = RDATA + slot as u32;
            descriptors.push([slot, 0, 0, dll_at, slot]);
        }
        descriptors.push([0; 5]);
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        let import_at = RDATA + bytes.len() as u32;
        let import_size = 20 * descriptors.len() as u32;
        bytes.extend(descriptors.iter().flatten().flat_map(|word| word.to_le_bytes()));
        let names: Vec<_> = exports.iter().map(|(name, _)| put(&mut bytes, name) + 2).collect();
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        let export_at = RDATA + bytes.len() as u32;
        let number = exports.len() as u32;
        let functions = export_at + 40;
        let (name_table, ordinals) = (functions + 4 * number, functions + 8 * number);
        let directory = [0, 0, 0, import_at, 1, number, number, functions, name_table, ordinals];
        bytes.extend(directory.iter().flat_map(|word| word.to_le_bytes()));
        bytes.extend(exports.iter().flat_map(|(_, rva)| rva.to_le_bytes()));
        bytes.extend(names.iter().flat_map(|rva| rva.to_le_bytes()));
        bytes.extend((0..number as u16).flat_map(u16::to_le_bytes));
        let export_size = RDATA + bytes.len() as u32 - export_at;
        (bytes, (import_at, import_size), (export_at, if number == 0 { 0 } else { export_size }))
    }
}

/// Adds the table of functions: one, which is all of the code, with a handler where there are scopes.
fn exceptions(rdata: &mut Vec<u8>, code: u32, scopes: &[[u32; 4]]) -> (u32, u32) {
    if scopes.is_empty() {
        return (0, 0);
    }
    rdata.resize(rdata.len().next_multiple_of(4), 0);
    let unwind = RDATA + rdata.len() as u32;
    // UNW_FLAG_EHANDLER and version 1, no prologue and no codes; the handler, which is never called; its scopes.
    rdata.extend([1 << 3 | 1, 0, 0, 0]);
    rdata.extend(TEXT.to_le_bytes());
    rdata.extend((scopes.len() as u32).to_le_bytes());
    rdata.extend(scopes.iter().flatten().flat_map(|word| word.to_le_bytes()));
    let function = RDATA + rdata.len() as u32;
    rdata.extend([TEXT, TEXT + code, unwind].iter().flat_map(|word| word.to_le_bytes()));
    (function, 12)
}

fn file(
    sections: &[(&[u8; 8], u32, &[u8], u32)],
    import: (u32, u32),
    export: (u32, u32),
    exception: (u32, u32),
    reloc: u32,
) -> Vec<u8> {
    let mut out = vec![0; HEADERS as usize];
    let mut put = |at: usize, bytes: &[u8]| out[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, b"MZ");
    put(0x3C, &0x80_u32.to_le_bytes());
    put(0x80, b"PE\0\0");
    put(0x84, &0x8664_u16.to_le_bytes());
    put(0x86, &(sections.len() as u16).to_le_bytes());
    put(0x94, &240_u16.to_le_bytes());
    put(0x96, &0x2022_u16.to_le_bytes());
    let optional = 0x98;
    put(optional, &0x20B_u16.to_le_bytes());
    put(optional + 16, &TEXT.to_le_bytes());
    put(optional + 24, &BASE.to_le_bytes());
    put(optional + 32, &0x1000_u32.to_le_bytes());
    put(optional + 36, &0x200_u32.to_le_bytes());
    put(optional + 56, &SIZE.to_le_bytes());
    put(optional + 60, &HEADERS.to_le_bytes());
    put(optional + 68, &1_u16.to_le_bytes());
    put(optional + 108, &16_u32.to_le_bytes());
    for (index, (rva, size)) in [(0, export), (1, import), (3, exception), (5, (RELOC, reloc))] {
        put(optional + 112 + 8 * index, &rva.to_le_bytes());
        put(optional + 116 + 8 * index, &size.to_le_bytes());
    }
    let mut raw = HEADERS;
    for (at, (name, rva, bytes, flags)) in sections.iter().enumerate() {
        let header = optional + 240 + 40 * at;
        let size = (bytes.len() as u32).next_multiple_of(0x200);
        put(header, &name[..]);
        put(header + 8, &(bytes.len() as u32).to_le_bytes());
        put(header + 12, &rva.to_le_bytes());
        put(header + 16, &size.to_le_bytes());
        put(header + 20, &raw.to_le_bytes());
        put(header + 36, &flags.to_le_bytes());
        raw += size;
    }
    for (.., bytes, _) in sections {
        out.extend_from_slice(bytes);
        out.resize(out.len().next_multiple_of(0x200), 0);
    }
    out
}
