//! The tables of an image, over a copy of it laid out as in memory: relocations, imports, exports, load configuration.

use std::collections::BTreeMap;

use super::pe::{Bytes, Headers, LoadError, directory};

/// An import as the image asks for it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Import {
    /// DLL, in lower case.
    pub dll: String,
    /// Function.
    pub symbol: Symbol,
    /// Where its address goes.
    pub(super) slot: u32,
}

/// How an import names its function.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Symbol {
    /// By name.
    Name(String),
    /// By ordinal.
    Ordinal(u16),
}

impl std::fmt::Display for Symbol {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Ordinal(ordinal) => write!(f, "#{ordinal}"),
        }
    }
}

fn bad(table: &'static str, why: impl Into<String>) -> LoadError {
    LoadError::BadTable { table, why: why.into() }
}

/// Lays the file out as it will be in memory.
pub(super) fn lay_out(file: &[u8], headers: &Headers) -> Vec<u8> {
    let mut memory = vec![0; headers.size as usize];
    let mut copy = |to: u32, from: u32, length: u32| {
        // Both ranges were checked by `Headers::parse`; a copy that does not fit is cut, never out of bounds.
        let (to, from, length) = (to as usize, from as usize, length as usize);
        if let (Some(to), Some(from)) = (memory.get_mut(to..to + length), file.get(from..from + length)) {
            to.copy_from_slice(from);
        }
    };
    copy(0, 0, headers.header_size);
    for section in &headers.sections {
        copy(section.rva, section.file.0, section.file.1.min(section.size));
    }
    memory
}

/// Applies the relocations for a load at `base`. Returns how many there were.
pub(super) fn relocate(memory: &mut [u8], headers: &Headers, base: u64) -> Result<usize, LoadError> {
    const TABLE: &str = "relocation table";
    let delta = base.wrapping_sub(headers.preferred_base);
    let (start, size) = headers.directories[directory::RELOCATION];
    let (mut at, end) = (u64::from(start), u64::from(start) + u64::from(size));
    let mut fixes: Vec<(u32, u16)> = Vec::new();
    while at + 8 <= end {
        let bytes = Bytes(memory);
        let (Some(page), Some(length)) = (bytes.u32(at), bytes.u32(at + 4)) else { break };
        if length == 0 {
            break;
        }
        if length < 8 || at + u64::from(length) > end {
            return Err(bad(TABLE, format!("a block of {length} bytes at {at:#x}")));
        }
        for entry in (at + 8..at + u64::from(length)).step_by(2) {
            let Some(entry) = bytes.u16(entry) else { break };
            let rva = page.checked_add(u32::from(entry & 0xFFF));
            fixes.push((rva.ok_or_else(|| bad(TABLE, "an address wraps"))?, entry >> 12));
        }
        at += u64::from(length);
    }
    let mut count = 0;
    for (rva, kind) in fixes {
        match kind {
            // IMAGE_REL_BASED_ABSOLUTE: padding.
            0 => continue,
            // IMAGE_REL_BASED_DIR64.
            10 => (),
            kind => return Err(bad(TABLE, format!("kind {kind} at {rva:#x}"))),
        }
        let old = Bytes(memory).u64(rva.into()).ok_or_else(|| bad(TABLE, format!("{rva:#x} is outside the image")))?;
        let new = old.wrapping_add(delta);
        memory[rva as usize..rva as usize + 8].copy_from_slice(&new.to_le_bytes());
        count += 1;
    }
    Ok(count)
}

/// Reads the import table.
pub(super) fn imports(memory: &[u8], headers: &Headers) -> Result<Vec<Import>, LoadError> {
    const TABLE: &str = "import table";
    const MAX_IMPORTS: usize = 20_000;
    let bytes = Bytes(memory);
    let (start, size) = headers.directories[directory::IMPORT];
    let mut found = Vec::new();
    if size == 0 {
        return Ok(found);
    }
    if headers.directories[directory::DELAY_IMPORT].1 != 0 {
        return Err(bad("delay import table", "delay-loaded imports are not supported"));
    }
    for descriptor in (u64::from(start)..).step_by(20) {
        let outside = || bad(TABLE, format!("descriptor {descriptor:#x} is outside the image"));
        let word = |at: u64| bytes.u32(descriptor + at).ok_or_else(outside);
        let (lookup, name, slots) = (word(0)?, word(12)?, word(16)?);
        if name == 0 && slots == 0 {
            break;
        }
        let dll = bytes.text(name.into()).ok_or_else(|| bad(TABLE, format!("a DLL name at {name:#x}")))?;
        let dll = dll.to_ascii_lowercase();
        let lookup = if lookup == 0 { slots } else { lookup };
        for index in 0.. {
            let entry = bytes
                .u64(u64::from(lookup) + 8 * index)
                .ok_or_else(|| bad(TABLE, format!("the entries of {dll} run out of the image")))?;
            if entry == 0 {
                break;
            }
            // CAST: the bits that name the ordinal, or the RVA.
            let symbol = if entry >> 63 != 0 {
                Symbol::Ordinal(entry as u16)
            } else {
                let name = (entry & 0x7FFF_FFFF) + 2;
                let name = bytes.text(name).ok_or_else(|| bad(TABLE, format!("a name of {dll} at {name:#x}")))?;
                Symbol::Name(name.to_owned())
            };
            let slot = u64::from(slots) + 8 * index;
            if bytes.u64(slot).is_none() || found.len() >= MAX_IMPORTS {
                return Err(bad(TABLE, format!("slot {slot:#x} of {dll}!{symbol}")));
            }
            // CAST: the slot is inside the image, whose size is 32 bits.
            found.push(Import { dll: dll.clone(), symbol, slot: slot as u32 });
        }
    }
    Ok(found)
}

/// Reads the export table: name to RVA. Forwarders are left out.
pub(super) fn exports(memory: &[u8], headers: &Headers) -> Result<BTreeMap<String, u32>, LoadError> {
    const TABLE: &str = "export table";
    let bytes = Bytes(memory);
    let (start, size) = headers.directories[directory::EXPORT];
    let mut found = BTreeMap::new();
    if size == 0 {
        return Ok(found);
    }
    let at = u64::from(start);
    let word = |offset: u64| bytes.u32(at + offset).ok_or_else(|| bad(TABLE, "it is outside the image"));
    let (addresses, names) = (word(20)?, word(24)?);
    let (functions, name_table, ordinals) = (word(28)?, word(32)?, word(36)?);
    if addresses > 0x1_0000 || names > addresses {
        return Err(bad(TABLE, format!("{names} names for {addresses} addresses")));
    }
    for index in 0..u64::from(names) {
        let entry = || bad(TABLE, format!("name {index} leads outside the image"));
        let name = bytes.u32(u64::from(name_table) + 4 * index).and_then(|name| bytes.text(name.into()));
        let ordinal = bytes.u16(u64::from(ordinals) + 2 * index).ok_or_else(entry)?;
        let rva = bytes.u32(u64::from(functions) + 4 * u64::from(ordinal)).ok_or_else(entry)?;
        if rva >= headers.size || u32::from(ordinal) >= addresses {
            return Err(entry());
        }
        let is_forwarder = (start..start.saturating_add(size)).contains(&rva);
        if !is_forwarder {
            found.insert(name.ok_or_else(entry)?.to_owned(), rva);
        }
    }
    Ok(found)
}

/// Gives the stack cookie of an MSVC-built image a value: its entry code refuses to run with the one in the file.
pub(super) fn set_security_cookie(memory: &mut [u8], headers: &Headers, base: u64) {
    let (start, size) = headers.directories[directory::LOAD_CONFIG];
    // IMAGE_LOAD_CONFIG_DIRECTORY64: SecurityCookie, an address, at 0x58.
    if size < 0x60 {
        return;
    }
    let Some(address) = Bytes(memory).u64(u64::from(start) + 0x58) else { return };
    let Some(rva) = address.checked_sub(base).and_then(|rva| usize::try_from(rva).ok()) else { return };
    if let Some(cookie) = memory.get_mut(rva..rva.saturating_add(8)) {
        let value = (base ^ 0x5DEE_CE66_D1CE_4E5B) & 0x0000_FFFF_FFFF_FFFF | 1;
        cookie.copy_from_slice(&value.to_le_bytes());
    }
}

/// Code ranges of functions (`.pdata`), or the executable sections when there is no such table.
pub(super) fn code_ranges(memory: &[u8], headers: &Headers) -> Vec<(u32, u32)> {
    let bytes = Bytes(memory);
    let (start, size) = headers.directories[directory::EXCEPTION];
    let functions: Vec<_> = (0..u64::from(size) / 12)
        .filter_map(|at| Some((bytes.u32(u64::from(start) + 12 * at)?, bytes.u32(u64::from(start) + 12 * at + 4)?)))
        .filter(|(begin, end)| begin < end && *end <= headers.size)
        .collect();
    if !functions.is_empty() {
        return functions;
    }
    let code = headers.sections.iter().filter(|section| section.is_executable());
    code.map(|section| (section.rva, section.rva + section.size)).collect()
}
