//! What every shipped image is: one entry of [`PROPERTIES`] each, with the reason beside the check.

use crate::functions::{Functions, frames, names};
use crate::image::Image;
use crate::image::Kind;
use crate::image::words;
use crate::image::workspace;
use crate::reach::{device_level, dispatch_level, logs_are_locked, small_frames, stack};
use iced_x86::Decoder;
use iced_x86::DecoderOptions;
use iced_x86::FlowControl;
use iced_x86::MemorySize;
use iced_x86::Mnemonic;
use iced_x86::OpKind;
use iced_x86::Register;
use object::LittleEndian as LE;
use object::Object;
use object::pe;
use std::collections::BTreeSet;
use std::fs;

pub struct Property {
    pub name: &'static str,
    /// None: every image.
    pub only: Option<Kind>,
    pub check: fn(&Image) -> Result<(), String>,
}

impl Property {
    pub fn applies(&self, kind: Kind) -> bool {
        self.only.is_none_or(|only| only == kind)
    }

    const fn every(name: &'static str, check: fn(&Image) -> Result<(), String>) -> Self {
        Self { name, only: None, check }
    }

    const fn driver(name: &'static str, check: fn(&Image) -> Result<(), String>) -> Self {
        Self { name, only: Some(Kind::Driver), check }
    }
}

pub const PROPERTIES: &[Property] = &[
    Property::every("x86-64", machine),
    Property::every("subsystem", subsystem),
    Property::every("entry point", entry_point),
    Property::every("checksum", checksum),
    Property::every("imports", imports),
    Property::every("exports", exports),
    Property::every("symbol file", symbol_file),
    Property::every("no build path", no_build_path),
    Property::every("no thread-local storage", no_tls),
    Property::every("no gs or fs access", no_segment_access),
    Property::every("relocatable", relocatable),
    Property::every("no-execute compatible", no_execute),
    Property::every("sections writable or executable, not both", sections),
    Property::every("control-flow guard", control_flow_guard),
    Property::every("version", version),
    Property::every("no mutation", no_mutation),
    Property::driver("made for Windows 10.0", made_for),
    Property::driver("addresses that are taken are followed", addresses_are_followed),
    Property::driver("no x87, MMX, AVX or AVX-512", no_extended_state),
    Property::driver("unwind information", unwind_information),
    Property::driver("registers by 32 bits", narrow_registers),
    Property::driver("forced integrity", forced_integrity),
    Property::driver("sections of known names, none to be paged out", resident),
    Property::driver("small frames", small_frames),
    Property::driver("stack", stack),
    Property::driver("what the device's level reaches", device_level),
    Property::driver("nothing ends at DISPATCH_LEVEL", dispatch_level),
    Property::driver("UpdateNativeFenceLogs takes the lock of the logs", logs_are_locked),
];

fn expect<T: PartialEq + std::fmt::Debug>(what: &str, got: T, wanted: T) -> Result<(), String> {
    if got == wanted { Ok(()) } else { Err(format!("{what} is {got:x?}, not {wanted:x?}")) }
}

fn machine(image: &Image) -> Result<(), String> {
    expect("machine", image.parse()?.nt_headers().file_header.machine.get(LE), pe::IMAGE_FILE_MACHINE_AMD64)
}

fn subsystem(image: &Image) -> Result<(), String> {
    let wanted = match image.kind {
        Kind::Driver => pe::IMAGE_SUBSYSTEM_NATIVE,
        Kind::UserMode | Kind::Direct3D => pe::IMAGE_SUBSYSTEM_WINDOWS_GUI,
    };
    expect("subsystem", image.parse()?.nt_headers().optional_header.subsystem.get(LE), wanted)
}

fn entry_point(image: &Image) -> Result<(), String> {
    let entry = image.parse()?.nt_headers().optional_header.address_of_entry_point.get(LE);
    expect("entry point", entry, image.export(image.kind.entry_point())?)
}

/// Windows refuses a driver whose checksum is wrong.
fn checksum(image: &Image) -> Result<(), String> {
    let stated = image.parse()?.nt_headers().optional_header.check_sum.get(LE);
    expect("checksum", stated, image.computed_checksum()?)
}

/// ntoskrnl exports these for code that compilers generate; no DDK header declares them, so the fact table has them
/// not.
const COMPILER_ROUTINES: [&str; 5] = ["__chkstk", "memcmp", "memcpy", "memmove", "memset"];

/// The user-mode image imports little, so that the model can load it. D3DKMT functions of gdi32 aside, this is all.
const USER_MODE_IMPORTS: &[(&str, &[&str])] = &[
    (
        "api-ms-win-eventing-provider-l1-1-0.dll",
        &["EventRegister", "EventSetInformation", "EventUnregister", "EventWriteTransfer"],
    ),
    (
        "kernel32.dll",
        &[
            "CloseHandle",
            "CreateEventA",
            "GetCurrentThreadId",
            "GetModuleHandleA",
            "GetProcAddress",
            "GetProcessHeap",
            "HeapAlloc",
            "HeapFree",
            "HeapReAlloc",
            "QueryPerformanceCounter",
            "QueryPerformanceFrequency",
            "SetEvent",
            "WaitForSingleObject",
        ],
    ),
    ("ntdll.dll", &COMPILER_ROUTINES),
];

fn imports(image: &Image) -> Result<(), String> {
    let unknown: Vec<String> = match image.kind {
        Kind::Driver => {
            let known = kernel_routines()?;
            let allowed = |library: &str, name: &str| {
                let kernel = library.eq_ignore_ascii_case("ntoskrnl.exe");
                (kernel || library.eq_ignore_ascii_case("hal.dll")) && known.contains(name)
                    || kernel && COMPILER_ROUTINES.contains(&name)
            };
            image.imports()?.iter().filter(|(l, n)| !allowed(l, n)).map(|(l, n)| format!("{l}!{n}")).collect()
        }
        Kind::Direct3D => image.imports()?.iter().map(|(l, n)| format!("{l}!{n}")).collect(),
        Kind::UserMode => {
            let allowed = |library: &str, name: &str| {
                USER_MODE_IMPORTS.iter().any(|(l, names)| library.eq_ignore_ascii_case(l) && names.contains(&name))
                    || library.eq_ignore_ascii_case("gdi32.dll") && is_of_gdi32(name)
            };
            image.imports()?.iter().filter(|(l, n)| !allowed(l, n)).map(|(l, n)| format!("{l}!{n}")).collect()
        }
    };
    expect("imports that are not allowed", unknown, Vec::new())
}

/// Returns whether the SDK's gdi32.lib has a function, without which an import of it may keep the image from loading.
fn is_of_gdi32(name: &str) -> bool {
    let export = wddm_abi::exports::D3DKMT_EXPORTS.iter().find(|export| export.name == name);
    export.is_some_and(|export| export.dll == Some("GDI32.dll"))
}

/// What `nt_model/facts/routines.tsv` names as a routine of the kernel or HAL (and not as a macro or inline function).
fn kernel_routines() -> Result<BTreeSet<String>, String> {
    let path = workspace().join("nt_model/facts/routines.tsv");
    let table = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let rows = table.lines().map(|line| line.split('\t').collect::<Vec<_>>());
    let routines = rows.filter(|row| matches!(row[..], [_, _, "export" | "function", "nt" | "hal", ..]));
    Ok(routines.map(|row| row[0].to_owned()).collect())
}

/// wdk-sys defines these so that the linker finds them, and Rust exports what it defines under a plain name.
const WDK_SYS_EXPORTS: [&str; 4] = ["_fltused", "__CxxFrameHandler3", "__CxxFrameHandler4", "__GSHandlerCheck_EH4"];

/// What Direct3D runtimes look for, from version 9 to 12.
const OPEN_ADAPTER: [&str; 4] = ["OpenAdapter", "OpenAdapter10", "OpenAdapter10_2", "OpenAdapter12"];

fn exports(image: &Image) -> Result<(), String> {
    let allowed = |name: &str| {
        name == image.kind.entry_point()
            || match image.kind {
                Kind::Driver => WDK_SYS_EXPORTS.contains(&name),
                Kind::UserMode => name.starts_with("fp_"),
                Kind::Direct3D => OPEN_ADAPTER.contains(&name),
            }
    };
    let missing: Vec<_> = match image.kind {
        Kind::Direct3D => OPEN_ADAPTER.iter().filter(|name| image.export(name).is_err()).collect(),
        Kind::Driver | Kind::UserMode => Vec::new(),
    };
    expect("exports that are missing", missing, Vec::new())?;
    let unknown: Vec<String> = image.exports()?.into_iter().map(|(n, _)| n).filter(|n| !allowed(n)).collect();
    expect("exports that are not allowed", unknown, Vec::new())
}

/// A debugger finds the .pdb beside the image by its bare name, and knows it by its id.
fn symbol_file(image: &Image) -> Result<(), String> {
    let file = image.parse()?;
    let record = file.pdb_info().map_err(words)?.ok_or("no record of a .pdb")?;
    expect("name of the .pdb", String::from_utf8_lossy(record.path()).as_ref(), image.kind.pdb_name())?;
    let guid = record.guid();
    if image.pdb.windows(guid.len()).any(|window| window == guid) {
        Ok(())
    } else {
        Err(format!("{} has another id than the image", image.kind.pdb_name()))
    }
}

/// Nothing of what tests make the driver do wrong is in what ships: neither the value that chooses it nor a name.
fn no_mutation(image: &Image) -> Result<(), String> {
    let words = ["mutant", "mutation"].map(str::as_bytes);
    let text = image.bytes.to_ascii_lowercase();
    let narrow: Vec<u8> = text.iter().copied().filter(|byte| *byte != 0).collect();
    // Without zeros, text in UTF-16 reads as text in ASCII.
    for word in words {
        if [&text, &narrow].iter().any(|text| text.windows(word.len()).any(|part| part == word)) {
            return Err(format!("'{}' is in it", String::from_utf8_lossy(word)));
        }
    }
    Ok(())
}

/// Names of source files are in panic messages. They must be the same wherever the image is built, and tell nothing
/// about the place.
fn no_build_path(image: &Image) -> Result<(), String> {
    let workspace = workspace().display().to_string();
    let mut needles = vec!["/root", "/home", "/Users", "C:\\", "/tmp/", "/usr/"];
    // The images call the workspace /fencepost. In a workspace that really is there, nothing is given away.
    if workspace != "/fencepost" {
        needles.push(&workspace);
    }
    for needle in needles {
        let wide: Vec<u8> = needle.encode_utf16().flat_map(u16::to_le_bytes).collect();
        for pattern in [needle.as_bytes(), &wide] {
            if let Some(place) = image.bytes.windows(pattern.len()).position(|window| window == pattern) {
                return Err(format!("{needle:?} stands at offset {place:#x}"));
            }
        }
    }
    Ok(())
}

fn directory(image: &Image, index: usize) -> Result<(u32, u32), String> {
    let file = image.parse()?;
    let directory = file.data_directories().get(index);
    Ok(directory.map_or((0, 0), |directory| (directory.virtual_address.get(LE), directory.size.get(LE))))
}

/// The kernel's loader has no thread-local storage to give, nor has the model's.
fn no_tls(image: &Image) -> Result<(), String> {
    expect("TLS directory", directory(image, pe::IMAGE_DIRECTORY_ENTRY_TLS)?, (0, 0))
}

/// In a Linux process gs is not the Windows thread block or processor block, and fs is Linux's own thread pointer: an
/// image that uses either cannot run in the model.
///
/// Decodes every executable section from its start, and starts anew at each function that the exception directory
/// knows, lest data between functions put the decoder out of step.
fn no_segment_access(image: &Image) -> Result<(), String> {
    let (table, size) = directory(image, pe::IMAGE_DIRECTORY_ENTRY_EXCEPTION)?;
    let mut starts = BTreeSet::new();
    if size != 0 {
        let offset = image.file_offset(table)?;
        let entries = image.bytes.get(offset..offset + size as usize).ok_or("exception directory outside the file")?;
        starts
            .extend(entries.chunks_exact(12).map(|entry| u32::from_le_bytes([entry[0], entry[1], entry[2], entry[3]])));
    }
    for (base, code) in image.code()? {
        // CAST: `code` has looked that it fits.
        let end = base + code.len() as u32;
        let mut cuts: Vec<u32> = starts.range(base..end).copied().collect();
        cuts.insert(0, base);
        cuts.push(end);
        for range in cuts.windows(2) {
            let function = &code[(range[0] - base) as usize..(range[1] - base) as usize];
            for instruction in Decoder::with_ip(64, function, u64::from(range[0]), DecoderOptions::NONE) {
                let segment = instruction.memory_segment();
                let touches_memory = (0..instruction.op_count()).any(|i| instruction.op_kind(i) == OpKind::Memory);
                if touches_memory && matches!(segment, Register::GS | Register::FS) {
                    return Err(format!("{segment:?} is used at {:#x}", instruction.ip()));
                }
            }
        }
    }
    Ok(())
}

/// Loadable anywhere. An image without a single absolute address needs no relocation directory, but must not say that
/// the relocations were stripped.
fn relocatable(image: &Image) -> Result<(), String> {
    let file = image.parse()?;
    let stripped = file.nt_headers().file_header.characteristics.get(LE) & pe::IMAGE_FILE_RELOCS_STRIPPED;
    expect("relocations-stripped flag", stripped.0, 0)?;
    let wanted = pe::IMAGE_DLLCHARACTERISTICS_DYNAMIC_BASE | pe::IMAGE_DLLCHARACTERISTICS_HIGH_ENTROPY_VA;
    expect("address-space randomisation", image.dll_characteristics()? & wanted, wanted)?;
    let Some(mut blocks) =
        file.data_directories().relocation_blocks(&*image.bytes, &file.section_table()).map_err(words)?
    else {
        return if image.kind == Kind::Driver { Err("no relocation directory".into()) } else { Ok(()) };
    };
    while let Some(block) = blocks.next().map_err(words)? {
        for relocation in block {
            if relocation.typ != pe::IMAGE_REL_BASED_DIR64 {
                return Err(format!("a relocation of type {} at {:#x}", relocation.typ, relocation.virtual_address));
            }
        }
    }
    Ok(())
}

fn no_execute(image: &Image) -> Result<(), String> {
    let wanted = pe::IMAGE_DLLCHARACTERISTICS_NX_COMPAT;
    expect("NX flag", image.dll_characteristics()? & wanted, wanted)
}

fn sections(image: &Image) -> Result<(), String> {
    let both = pe::IMAGE_SCN_MEM_WRITE | pe::IMAGE_SCN_MEM_EXECUTE;
    for section in image.parse()?.section_table().iter() {
        let flags = section.characteristics.get(LE);
        if flags.contains(both) || flags.contains(pe::IMAGE_SCN_MEM_SHARED) {
            return Err(format!("{} has flags {flags:#x}", String::from_utf8_lossy(section.raw_name())));
        }
    }
    Ok(())
}

/// lld-link writes no guard tables for code without a C runtime's load configuration, so the image must not claim them.
/// A WDK build on Windows may have both.
fn control_flow_guard(image: &Image) -> Result<(), String> {
    let claimed = image.dll_characteristics()?.contains(pe::IMAGE_DLLCHARACTERISTICS_GUARD_CF);
    let tables = directory(image, pe::IMAGE_DIRECTORY_ENTRY_LOAD_CONFIG)? != (0, 0);
    if claimed && !tables { Err("claimed without a load configuration".into()) } else { Ok(()) }
}

/// wdk-build asks for it: only a signed driver loads, even where the policy would let an unsigned one pass.
fn forced_integrity(image: &Image) -> Result<(), String> {
    let wanted = pe::IMAGE_DLLCHARACTERISTICS_FORCE_INTEGRITY;
    expect("forced-integrity flag", image.dll_characteristics()? & wanted, wanted)
}

/// The signature of a fixed version resource, `VS_FIXEDFILEINFO`.
const FIXED_VERSION: [u8; 4] = 0xFEEF_04BD_u32.to_le_bytes();

/// Windows wants INF, driver and user-mode driver to have one version: that of `inf/version`.
fn version(image: &Image) -> Result<(), String> {
    let path = workspace().join("inf/version");
    let wanted = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let (place, size) = directory(image, pe::IMAGE_DIRECTORY_ENTRY_RESOURCE)?;
    if size == 0 {
        return Err("there is no resource directory".into());
    }
    let offset = image.file_offset(place)?;
    let resources = image.bytes.get(offset..offset + size as usize).ok_or("resource directory outside the file")?;
    let found = resources.windows(16).find(|window| window[..4] == FIXED_VERSION).ok_or("no version resource")?;
    // dwFileVersionMS and dwFileVersionLS stand 8 bytes behind the signature.
    let half = |at: usize| u16::from_le_bytes([found[at], found[at + 1]]);
    let version = format!("{}.{}.{}.{}", half(10), half(8), half(14), half(12));
    expect("version", version.as_str(), wanted.trim())
}

/// Code that runs above APC_LEVEL must not be paged out. Microsoft's linker sets NOT_PAGED for /DRIVER, and lld-link
/// does when it is told to; which of name and bit counts, documents do not say. A section without access bits
/// (`.retplne`) has kept a driver from loading.
fn resident(image: &Image) -> Result<(), String> {
    const KNOWN: [&str; 6] = [".text", ".rdata", ".data", ".pdata", ".rsrc", ".reloc"];
    for section in image.parse()?.section_table().iter() {
        let name = String::from_utf8_lossy(section.raw_name()).into_owned();
        let flags = section.characteristics.get(LE);
        if !KNOWN.contains(&name.as_str()) {
            return Err(format!("{name} is a section of no known name"));
        }
        if !flags.contains(pe::IMAGE_SCN_MEM_READ) {
            return Err(format!("{name} has flags {flags:#x}: nothing may read it"));
        }
        // Read by the loader and by tools only.
        let passive = [".rsrc", ".reloc"].contains(&name.as_str());
        if !passive && !flags.contains(pe::IMAGE_SCN_MEM_NOT_PAGED) {
            return Err(format!("{name} has flags {flags:#x}: it may be paged out"));
        }
    }
    Ok(())
}

/// The WDK's own projects link drivers with /OSVERSION:10.0 and /SUBSYSTEM:NATIVE,10.0; a linker left alone writes 6.0.
fn made_for(image: &Image) -> Result<(), String> {
    let file = image.parse()?;
    let header = &file.nt_headers().optional_header;
    let subsystem = (header.major_subsystem_version.get(LE), header.minor_subsystem_version.get(LE));
    expect("subsystem version", subsystem, (10, 0))?;
    let system = (header.major_operating_system_version.get(LE), header.minor_operating_system_version.get(LE));
    expect("operating system version", system, (10, 0))
}

/// The first function of an engine's thread is called by the kernel alone, which gets its address: a call graph that
/// did not count addresses would not have it below StartDevice.
fn addresses_are_followed(image: &Image) -> Result<(), String> {
    let functions = Functions::read(image)?;
    let thread = functions.named("core::ops::function::FnOnce::call_once<kmd_core::start::start_engines::");
    let start = functions.named("kmd_ddi::adapter::start_device");
    let reached: BTreeSet<u32> = start.into_iter().flat_map(|root| functions.reachable(root)).collect();
    match thread.iter().find(|function| !reached.contains(function)) {
        _ if thread.is_empty() => Err("no thread's first function is in the image".into()),
        Some(_) => Err("StartDevice does not reach the first function of its threads".into()),
        None => Ok(()),
    }
}

/// A procedure: its address, its name, its bytes.
type Procedure<'a> = (u32, String, &'a [u8]);

/// The procedures that the .pdb names.
fn procedures(image: &Image) -> Result<Vec<Procedure<'_>>, String> {
    let code = image.code()?;
    let mut found = Vec::new();
    for (start, (length, name)) in names(image)? {
        for (base, bytes) in &code {
            let place = start.checked_sub(*base).map(|place| place as usize);
            if let Some(bytes) = place.and_then(|place| bytes.get(place..place + length as usize)) {
                found.push((start, name.clone(), bytes));
            }
        }
    }
    Ok(found)
}

/// The opcode behind prefixes and REX; `None` at the end of the bytes.
fn opcode(bytes: &[u8]) -> Option<u8> {
    let is_prefix = |byte: &u8| matches!(byte, 0x26 | 0x2E | 0x36 | 0x3E | 0x64..=0x67 | 0xF0 | 0xF2 | 0xF3);
    let mut rest = bytes.iter().skip_while(|byte| is_prefix(byte)).peekable();
    rest.next_if(|byte| matches!(byte, 0x40..=0x4F));
    rest.next().copied()
}

/// Drivers on x64 may use XMM registers at any level, interrupt routines too. Those of x87 and MMX they may not touch,
/// and those of YMM and ZMM only between
/// KeSaveExtendedProcessorState and KeRestoreExtendedProcessorState, which this driver does not call: an instruction
/// that touches them would change a program's registers. The VEX and EVEX encodings clear or need the upper halves, so
/// they are not to be there with XMM registers either.
///
/// Source: article *Using floating point in a WDM driver*; DDI page KeSaveExtendedProcessorState.
fn no_extended_state(image: &Image) -> Result<(), String> {
    for (start, name, code) in procedures(image)? {
        for instruction in Decoder::with_ip(64, code, start.into(), DecoderOptions::NONE) {
            // CAST: inside the function.
            let at = (instruction.ip() - u64::from(start)) as usize;
            let mmx = (0..instruction.op_count())
                .any(|i| instruction.op_kind(i) == OpKind::Register && instruction.op_register(i).is_mm());
            let what = match opcode(&code[at..]) {
                Some(0xC4 | 0xC5) => "an instruction of AVX",
                Some(0x62) => "an instruction of AVX-512",
                Some(0xD8..=0xDF | 0x9B) => "an instruction of x87",
                _ if mmx => "an instruction of MMX",
                _ => continue,
            };
            return Err(format!("{name} has {what} at {:#x}", instruction.ip()));
        }
    }
    Ok(())
}

/// Registers that a function gives back as they came. Source: x64 calling convention.
const PRESERVED: [Register; 9] = [
    Register::RSP,
    Register::RBX,
    Register::RBP,
    Register::RSI,
    Register::RDI,
    Register::R12,
    Register::R13,
    Register::R14,
    Register::R15,
];

/// Instructions that read their first operand and leave it alone.
const READERS: [Mnemonic; 4] = [Mnemonic::Cmp, Mnemonic::Test, Mnemonic::Push, Mnemonic::Bt];

/// A bug check's dump, a debugger and Driver Verifier go by the exception directory when they look through a stack.
/// Only a leaf may have no entry there: a function that calls nothing, takes nothing of the stack and preserves
/// registers by not touching them.
///
/// Source: article *x64 exception handling*, RUNTIME_FUNCTION.
fn unwind_information(image: &Image) -> Result<(), String> {
    let known = frames(image)?;
    for (start, name, code) in procedures(image)? {
        if known.contains_key(&start) {
            continue;
        }
        for instruction in Decoder::with_ip(64, code, start.into(), DecoderOptions::NONE) {
            let calls = matches!(instruction.flow_control(), FlowControl::Call | FlowControl::IndirectCall);
            let first = instruction.op0_register().full_register();
            let writes = instruction.op0_kind() == OpKind::Register
                && PRESERVED.contains(&first)
                && !READERS.contains(&instruction.mnemonic());
            let pushes = matches!(instruction.mnemonic(), Mnemonic::Push | Mnemonic::Pop);
            if calls || writes || pushes {
                return Err(format!("{name} has no unwind information, and is no leaf at {:#x}", instruction.ip()));
            }
        }
    }
    Ok(())
}

/// What touches device registers: nothing else in the driver does.
const ACCESSES: [&str; 2] = ["kmd_core::registers::Registers::read", "kmd_core::registers::Registers::write"];

/// A device's register takes one access of its own width. An access that a compiler has made wider, or two that it has
/// put together, would be another access, and edu answers only those of 32 bits below 0x80.
fn narrow_registers(image: &Image) -> Result<(), String> {
    let procedures = procedures(image)?;
    for access in ACCESSES {
        let (start, _, code) = procedures
            .iter()
            .find(|(_, name, _)| name == access)
            .ok_or_else(|| format!("{access} is not in the image"))?;
        let mut count = 0;
        for instruction in Decoder::with_ip(64, code, u64::from(*start), DecoderOptions::NONE) {
            let device = (0..instruction.op_count()).any(|i| instruction.op_kind(i) == OpKind::Memory)
                && instruction.mnemonic() == Mnemonic::Mov
                && instruction.memory_base() != Register::RSP;
            let vector = (0..instruction.op_count()).any(|i| instruction.op_register(i).is_vector_register());
            if vector {
                return Err(format!("{access} has a vector instruction at {:#x}", instruction.ip()));
            }
            count += u32::from(device && instruction.memory_size() == MemorySize::UInt32);
        }
        if count == 0 {
            return Err(format!("{access} has no access of 32 bits"));
        }
    }
    Ok(())
}
