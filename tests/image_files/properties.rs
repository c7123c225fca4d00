//! What every shipped image is: one entry of [`PROPERTIES`] each, with the reason beside the check.

use crate::image::Image;
use crate::image::Kind;
use crate::image::words;
use crate::image::workspace;
use iced_x86::Decoder;
use iced_x86::DecoderOptions;
use iced_x86::OpKind;
use iced_x86::Register;
use object::LittleEndian as LE;
use object::Object;
use object::pe;
use std::collections::BTreeSet;
use std::fs;

pub struct Property {
    pub name: &'static str,
    /// None: both images.
    pub only: Option<Kind>,
    pub check: fn(&Image) -> Result<(), String>,
}

impl Property {
    pub fn applies(&self, kind: Kind) -> bool {
        self.only.is_none_or(|only| only == kind)
    }

    const fn both(name: &'static str, check: fn(&Image) -> Result<(), String>) -> Self {
        Self { name, only: None, check }
    }

    const fn driver(name: &'static str, check: fn(&Image) -> Result<(), String>) -> Self {
        Self { name, only: Some(Kind::Driver), check }
    }
}

pub const PROPERTIES: &[Property] = &[
    Property::both("x86-64", machine),
    Property::both("subsystem", subsystem),
    Property::both("entry point", entry_point),
    Property::both("checksum", checksum),
    Property::both("imports", imports),
    Property::both("exports", exports),
    Property::both("symbol file", symbol_file),
    Property::both("no build path", no_build_path),
    Property::both("no thread-local storage", no_tls),
    Property::both("no gs or fs access", no_segment_access),
    Property::both("relocatable", relocatable),
    Property::both("no-execute compatible", no_execute),
    Property::both("sections writable or executable, not both", sections),
    Property::both("control-flow guard", control_flow_guard),
    Property::driver("forced integrity", forced_integrity),
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
        Kind::UserMode => pe::IMAGE_SUBSYSTEM_WINDOWS_GUI,
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

/// ntoskrnl exports these for code that compilers generate; no DDK header declares them, so the fact table has them not.
const COMPILER_ROUTINES: [&str; 5] = ["__chkstk", "memcmp", "memcpy", "memmove", "memset"];

/// The user-mode image imports little, so that the model can load it. D3DKMT functions of gdi32 aside, this is all.
const USER_MODE_IMPORTS: &[(&str, &[&str])] = &[
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
        Kind::UserMode => {
            let allowed = |library: &str, name: &str| {
                USER_MODE_IMPORTS.iter().any(|(l, names)| library.eq_ignore_ascii_case(l) && names.contains(&name))
                    || library.eq_ignore_ascii_case("gdi32.dll") && name.starts_with("D3DKMT")
            };
            image.imports()?.iter().filter(|(l, n)| !allowed(l, n)).map(|(l, n)| format!("{l}!{n}")).collect()
        }
    };
    expect("imports that are not allowed", unknown, Vec::new())
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

fn exports(image: &Image) -> Result<(), String> {
    let allowed = |name: &str| {
        name == image.kind.entry_point()
            || match image.kind {
                Kind::Driver => WDK_SYS_EXPORTS.contains(&name),
                Kind::UserMode => name.starts_with("fp_"),
            }
    };
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

/// Names of source files are in panic messages. They must be the same wherever the image is built, and tell nothing about
/// the place.
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

/// In a Linux process gs is not the Windows thread block or processor block, and fs is Linux's own thread pointer: an image
/// that uses either cannot run in the model.
///
/// Decodes every executable section from its start, and starts anew at each function that the exception directory knows,
/// lest data between functions put the decoder out of step.
fn no_segment_access(image: &Image) -> Result<(), String> {
    let file = image.parse()?;
    let (table, size) = directory(image, pe::IMAGE_DIRECTORY_ENTRY_EXCEPTION)?;
    let mut starts = BTreeSet::new();
    if size != 0 {
        let offset = image.file_offset(table)?;
        let entries = image.bytes.get(offset..offset + size as usize).ok_or("exception directory outside the file")?;
        starts
            .extend(entries.chunks_exact(12).map(|entry| u32::from_le_bytes([entry[0], entry[1], entry[2], entry[3]])));
    }
    for section in file.section_table().iter() {
        if !section.characteristics.get(LE).contains(pe::IMAGE_SCN_MEM_EXECUTE) {
            continue;
        }
        let code = section.pe_data(&*image.bytes).map_err(words)?;
        let base = section.virtual_address.get(LE);
        let end = base + u32::try_from(code.len()).map_err(words)?;
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

/// Loadable anywhere. An image without a single absolute address needs no relocation directory, but must not say that the
/// relocations were stripped.
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
