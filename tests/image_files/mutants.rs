//! Copies of an image, each broken in one place, to show that the properties can fail.

use crate::image::Image;
use crate::image::Kind;
use object::LittleEndian as LE;
use object::Object;
use object::pe;
use std::mem::offset_of;

pub struct Mutant {
    /// Completes "a copy with … is caught".
    pub what: &'static str,
    /// The property that must fail, alone.
    pub breaks: &'static str,
    /// None: every image.
    only: Option<Kind>,
    change: fn(&mut Image) -> Result<(), String>,
}

impl Mutant {
    pub fn applies(&self, kind: Kind) -> bool {
        self.only.is_none_or(|only| only == kind)
    }

    /// The broken copy. Its checksum is right, unless the checksum is what is broken.
    pub fn make(&self, image: &Image) -> Result<Image, String> {
        let mut copy = image.clone();
        (self.change)(&mut copy)?;
        if copy.bytes == image.bytes && copy.pdb == image.pdb {
            return Err("the mutant is the image".into());
        }
        if self.breaks != "checksum" {
            let place = copy.checksum_place()?;
            let sum = copy.computed_checksum()?;
            put(&mut copy, place, &sum.to_le_bytes());
        }
        Ok(copy)
    }

    const fn every(what: &'static str, breaks: &'static str, change: fn(&mut Image) -> Result<(), String>) -> Self {
        Self { what, breaks, only: None, change }
    }

    const fn driver(what: &'static str, breaks: &'static str, change: fn(&mut Image) -> Result<(), String>) -> Self {
        Self { what, breaks, only: Some(Kind::Driver), change }
    }
}

pub const MUTANTS: &[Mutant] = &[
    Mutant::every("another machine", "x86-64", |image| {
        let place = file_header(image)? + offset_of!(pe::ImageFileHeader, machine);
        put(image, place, &pe::IMAGE_FILE_MACHINE_ARM64.0.to_le_bytes());
        Ok(())
    }),
    Mutant::every("another subsystem", "subsystem", |image| {
        let place = image.optional_header()? + offset_of!(pe::ImageOptionalHeader64, subsystem);
        put(image, place, &pe::IMAGE_SUBSYSTEM_WINDOWS_CUI.0.to_le_bytes());
        Ok(())
    }),
    Mutant::every("a moved entry point", "entry point", |image| {
        let entry = image.parse()?.nt_headers().optional_header.address_of_entry_point.get(LE);
        let place = image.optional_header()? + offset_of!(pe::ImageOptionalHeader64, address_of_entry_point);
        put(image, place, &(entry + 16).to_le_bytes());
        Ok(())
    }),
    Mutant::every("a wrong checksum", "checksum", |image| {
        let place = image.checksum_place()?;
        image.bytes[place] ^= 1;
        Ok(())
    }),
    Mutant::driver("an import that the fact table lacks", "imports", |image| rename(image, "DbgPrint", "DbgPrinz")),
    Mutant::driver("a library that is not the kernel", "imports", |image| {
        rename(image, "ntoskrnl.exe", "netskrnl.exe")
    }),
    Mutant::driver("an unlisted export", "exports", |image| rename(image, "_fltused", "_fltusee")),
    Mutant {
        only: Some(Kind::UserMode),
        ..Mutant::every("an unlisted export", "exports", |image| {
            rename(image, "fp_interface_version", "xp_interface_version")
        })
    },
    Mutant::every("the .pdb's name in a folder", "symbol file", |image| {
        let name = image.kind.pdb_name();
        rename(image, name, &format!("\\{}", &name[1..]))
    }),
    Mutant::every("another .pdb", "symbol file", |image| {
        let guid = image.parse()?.pdb_info().map_err(crate::image::words)?.ok_or("no record of a .pdb")?.guid();
        let places: Vec<usize> =
            (0..image.pdb.len() - guid.len()).filter(|&i| image.pdb[i..].starts_with(&guid)).collect();
        for place in places {
            image.pdb[place] ^= 1;
        }
        Ok(())
    }),
    Mutant::every("a path of the build machine", "no build path", |image| {
        put(image, DOS_STUB, b"/home/builder/fencepost");
        Ok(())
    }),
    Mutant::every("a path of the build machine in UTF-16", "no build path", |image| {
        let path: Vec<u8> = "/root".encode_utf16().flat_map(u16::to_le_bytes).collect();
        put(image, DOS_STUB, &path);
        Ok(())
    }),
    Mutant::every("the value that chooses a mutation", "no mutation", |image| {
        put(image, DOS_STUB, b"Mutant");
        Ok(())
    }),
    Mutant::every("the name of a mutation in UTF-16", "no mutation", |image| {
        let name: Vec<u8> = "MutationX".encode_utf16().flat_map(u16::to_le_bytes).collect();
        put(image, DOS_STUB, &name);
        Ok(())
    }),
    Mutant::every("a TLS directory", "no thread-local storage", |image| {
        set_directory(image, pe::IMAGE_DIRECTORY_ENTRY_TLS, (0x2000, 40))
    }),
    Mutant::every("a read of the thread block", "no gs or fs access", |image| {
        let entry = image.export(image.kind.entry_point())?;
        let place = image.file_offset(entry)?;
        put(image, place, &[0x65, 0x8b, 0x00]); // mov eax, gs:[rax]
        Ok(())
    }),
    Mutant::every("a fixed base", "relocatable", |image| {
        clear_dll_characteristic(image, pe::IMAGE_DLLCHARACTERISTICS_DYNAMIC_BASE)
    }),
    Mutant::every("relocations stripped", "relocatable", |image| {
        let place = file_header(image)? + offset_of!(pe::ImageFileHeader, characteristics);
        image.bytes[place] |= 1; // IMAGE_FILE_RELOCS_STRIPPED
        Ok(())
    }),
    Mutant::driver("no relocation directory", "relocatable", |image| {
        set_directory(image, pe::IMAGE_DIRECTORY_ENTRY_BASERELOC, (0, 0))
    }),
    Mutant::every("executable data", "no-execute compatible", |image| {
        clear_dll_characteristic(image, pe::IMAGE_DLLCHARACTERISTICS_NX_COMPAT)
    }),
    Mutant::every("a writable code section", "sections writable or executable, not both", |image| {
        // The first section is .text; its flags are the last field of the section header.
        let place = first_section(image)? + offset_of!(pe::ImageSectionHeader, characteristics) + 3;
        image.bytes[place] |= 0x80; // IMAGE_SCN_MEM_WRITE
        Ok(())
    }),
    Mutant::every("a claim of control-flow guard", "control-flow guard", |image| {
        let flags = image.dll_characteristics()? | pe::IMAGE_DLLCHARACTERISTICS_GUARD_CF;
        set_dll_characteristics(image, flags)
    }),
    Mutant::every("another version", "version", |image| {
        let signature = 0xFEEF_04BD_u32.to_le_bytes();
        let place = image.bytes.windows(4).position(|window| window == signature).ok_or("no version resource")?;
        image.bytes[place + 12] ^= 1; // the last number
        Ok(())
    }),
    Mutant::every("no resources", "version", |image| set_directory(image, pe::IMAGE_DIRECTORY_ENTRY_RESOURCE, (0, 0))),
    Mutant {
        only: Some(Kind::Direct3D),
        ..Mutant::every("an interface that is missing", "exports", |image| {
            rename(image, "OpenAdapter12", "OpenAdapter13")
        })
    },
    Mutant::driver("code that may be paged out", "sections of known names, none to be paged out", |image| {
        let place = first_section(image)? + offset_of!(pe::ImageSectionHeader, characteristics) + 3;
        image.bytes[place] &= !0x08; // IMAGE_SCN_MEM_NOT_PAGED
        Ok(())
    }),
    Mutant::driver("a section of another name", "sections of known names, none to be paged out", |image| {
        // .data is the third; nothing looks it up by its name.
        let place = first_section(image)? + 2 * size_of::<pe::ImageSectionHeader>();
        put(image, place, b".retplne");
        Ok(())
    }),
    Mutant::driver("a large frame", "small frames", |image| {
        // 1040 bytes, where there were 728.
        widen(image, |name| name.starts_with("kmd_ddi::scheduling::create_hw_queue"), 130)
    }),
    Mutant::driver("frames that add up", "stack", |image| widen(image, |_| true, 110)),
    Mutant::driver("a panic at the device's level", "what the device's level reaches", |image| {
        call(image, "kmd_ddi::adapter::interrupt_routine", "KeBugCheckEx")
    }),
    Mutant::driver(
        "an update of logs that looks at none",
        "UpdateNativeFenceLogs takes the lock of the logs",
        |image| {
            // xor eax, eax; ret; and nothing behind it.
            let (start, length) = function(image, "kmd_ddi::fences::update_native_fence_logs")?;
            let place = image.file_offset(start)?;
            put(image, place, &[&[0x31, 0xC0, 0xC3], vec![0xCC; length as usize - 3].as_slice()].concat());
            Ok(())
        },
    ),
    Mutant::driver("an object that is let go at DISPATCH_LEVEL", "nothing ends at DISPATCH_LEVEL", |image| {
        rename(image, "MmGetPhysicalAddress", "ObfDereferenceObject")
    }),
    Mutant::driver("an older subsystem", "made for Windows 10.0", |image| {
        let place = image.optional_header()? + offset_of!(pe::ImageOptionalHeader64, major_subsystem_version);
        put(image, place, &6_u16.to_le_bytes());
        Ok(())
    }),
    Mutant::driver("an older operating system", "made for Windows 10.0", |image| {
        let place = image.optional_header()? + offset_of!(pe::ImageOptionalHeader64, major_operating_system_version);
        put(image, place, &6_u16.to_le_bytes());
        Ok(())
    }),
    // fld1; vzeroupper; vpxorq zmm0, zmm0, zmm0; emms begins as no other, pxor mm0, mm0.
    Mutant::driver("an instruction of x87", "no x87, MMX, AVX or AVX-512", |image| begin(image, &[0xD9, 0xE8])),
    Mutant::driver("an instruction of AVX", "no x87, MMX, AVX or AVX-512", |image| begin(image, &[0xC5, 0xF8, 0x77])),
    Mutant::driver("an instruction of AVX-512", "no x87, MMX, AVX or AVX-512", |image| {
        begin(image, &[0x62, 0xF1, 0xFD, 0x48, 0xEF, 0xC0])
    }),
    Mutant::driver("an instruction of MMX", "no x87, MMX, AVX or AVX-512", |image| begin(image, &[0x0F, 0xEF, 0xC0])),
    Mutant::driver("a function less in the exception directory", "unwind information", |image| {
        let file = image.parse()?;
        let directory = file.data_directories().get(pe::IMAGE_DIRECTORY_ENTRY_EXCEPTION);
        let directory = directory.ok_or("no exception directory")?;
        let (address, size) = (directory.virtual_address.get(LE), directory.size.get(LE));
        set_directory(image, pe::IMAGE_DIRECTORY_ENTRY_EXCEPTION, (address, size - 12))
    }),
    Mutant::driver("a register that is read by a byte", "registers by 32 bits", |image| {
        // mov r32, [memory] becomes mov r8, [memory].
        narrow(image, "kmd_core::registers::Registers::read", 0x8B, 0x8A)
    }),
    Mutant::driver("a register that is written by a byte", "registers by 32 bits", |image| {
        narrow(image, "kmd_core::registers::Registers::write", 0x89, 0x88)
    }),
    Mutant::driver("integrity not forced", "forced integrity", |image| {
        clear_dll_characteristic(image, pe::IMAGE_DLLCHARACTERISTICS_FORCE_INTEGRITY)
    }),
];

/// Bytes of the MS-DOS program that nothing looks at.
const DOS_STUB: usize = 0x40;

fn put(image: &mut Image, place: usize, bytes: &[u8]) {
    image.bytes[place..place + bytes.len()].copy_from_slice(bytes);
}

/// Puts instructions where the driver's entry begins.
fn begin(image: &mut Image, code: &[u8]) -> Result<(), String> {
    let place = image.file_offset(image.export(image.kind.entry_point())?)?;
    put(image, place, code);
    Ok(())
}

/// Replaces an opcode that stands before the memory operand of a function's access of 32 bits.
fn narrow(image: &mut Image, function: &str, from: u8, to: u8) -> Result<(), String> {
    let names = crate::functions::names(image)?;
    let (start, (length, _)) = names.iter().find(|(_, (_, name))| name == function).ok_or("no such function")?;
    let place = image.file_offset(*start)?;
    let code = image.bytes[place..place + *length as usize].to_vec();
    let decoder = iced_x86::Decoder::with_ip(64, &code, 0, iced_x86::DecoderOptions::NONE);
    for instruction in decoder {
        // CAST: inside the function.
        let at = instruction.ip() as usize;
        let access = instruction.mnemonic() == iced_x86::Mnemonic::Mov
            && instruction.memory_size() == iced_x86::MemorySize::UInt32;
        if let (true, Some(opcode)) = (access, code[at..].iter().take(2).position(|byte| *byte == from)) {
            put(image, place + at + opcode, &[to]);
        }
    }
    Ok(())
}

/// Address and length of the first function whose name begins with `prefix`.
fn function(image: &Image, prefix: &str) -> Result<(u32, u32), String> {
    let names = crate::functions::names(image)?;
    let found = names.iter().find(|(_, (_, name))| name.starts_with(prefix));
    found.map(|(start, (length, _))| (*start, *length)).ok_or_else(|| format!("{prefix} is not in the image"))
}

/// Puts a call of an imported function where a function begins.
fn call(image: &mut Image, function: &str, import: &str) -> Result<(), String> {
    let (start, _) = self::function(image, function)?;
    let slots = crate::functions::imported(image)?;
    let (slot, _) = slots.iter().find(|(_, name)| *name == import).ok_or("no such import")?;
    let place = image.file_offset(start)?;
    // call [rip + distance], and the distance is from the next instruction.
    let distance = slot.wrapping_sub(start + 6).to_le_bytes();
    put(image, place, &[[0xFF, 0x15].as_slice(), &distance].concat());
    Ok(())
}

/// Overwrites every zero-terminated string `from` with one of the same length.
fn rename(image: &mut Image, from: &str, to: &str) -> Result<(), String> {
    assert_eq!(from.len(), to.len(), "a name is renamed in place");
    let pattern = [b"", from.as_bytes(), b"\0"].concat();
    let places: Vec<usize> =
        (0..image.bytes.len() - pattern.len()).filter(|&i| image.bytes[i..].starts_with(&pattern)).collect();
    for place in &places {
        put(image, *place, to.as_bytes());
    }
    if places.is_empty() { Err(format!("{from} is not in the image")) } else { Ok(()) }
}

/// Makes large frames of functions that `wanted` names at least `eights` times 8 bytes, by their unwind information.
fn widen(image: &mut Image, wanted: fn(&str) -> bool, eights: u16) -> Result<(), String> {
    let functions = crate::functions::Functions::read(image)?;
    let (table, size) = {
        let file = image.parse()?;
        let directory = file.data_directories().get(pe::IMAGE_DIRECTORY_ENTRY_EXCEPTION);
        let directory = directory.ok_or("no exception directory")?;
        (directory.virtual_address.get(LE), directory.size.get(LE))
    };
    let place = image.file_offset(table)?;
    let word = |bytes: &[u8], at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    for entry in (place..place + size as usize).step_by(12) {
        let (start, unwind) = (word(&image.bytes, entry), word(&image.bytes, entry + 8));
        if !functions.0.get(&start).is_some_and(|function| function.frame >= 256 && wanted(&function.name)) {
            continue;
        }
        let unwind = image.file_offset(unwind)?;
        let codes = usize::from(image.bytes[unwind + 2]);
        for code in (unwind + 4..unwind + 4 + codes * 2).step_by(2) {
            // UWOP_ALLOC_LARGE with a 16-bit size behind it.
            if image.bytes[code + 1] == 1 {
                let old = u16::from_le_bytes([image.bytes[code + 2], image.bytes[code + 3]]);
                put(image, code + 2, &old.max(eights).to_le_bytes());
                break;
            }
        }
    }
    Ok(())
}

/// Where the header of the first section is.
fn first_section(image: &Image) -> Result<usize, String> {
    let headers = image.parse()?.nt_headers().file_header.size_of_optional_header.get(LE);
    Ok(image.optional_header()? + usize::from(headers))
}

fn file_header(image: &Image) -> Result<usize, String> {
    Ok(image.optional_header()? - size_of::<pe::ImageFileHeader>())
}

fn clear_dll_characteristic(image: &mut Image, flag: pe::DllFlags) -> Result<(), String> {
    let flags = pe::DllFlags(image.dll_characteristics()?.0 & !flag.0);
    set_dll_characteristics(image, flags)
}

fn set_dll_characteristics(image: &mut Image, flags: pe::DllFlags) -> Result<(), String> {
    let place = image.optional_header()? + offset_of!(pe::ImageOptionalHeader64, dll_characteristics);
    put(image, place, &flags.0.to_le_bytes());
    Ok(())
}

fn set_directory(image: &mut Image, index: usize, (address, size): (u32, u32)) -> Result<(), String> {
    let directories = image.optional_header()? + size_of::<pe::ImageOptionalHeader64>();
    let place = directories + index * size_of::<pe::ImageDataDirectory>();
    put(image, place, &address.to_le_bytes());
    put(image, place + 4, &size.to_le_bytes());
    Ok(())
}
