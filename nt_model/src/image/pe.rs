//! PE32+ headers, read with suspicion.
//!
//! Every number in an image is an allegation: a count, an offset or a size is checked before it is used, and what does
//! not hold is one [`LoadError`] that says which field and why. Nothing here panics on any input (the fuzz-like test in
//! `tests/corruption.rs` flips every header byte).
//!
//! The `object` crate was looked at and not taken: its import tables must lie in one section with their names, which
//! drivers linked by MSVC do not promise.
//!
//! Source: Microsoft, "PE Format" (win32/debug/pe-format).

/// Why an image was not loaded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// The file could not be read.
    #[error("cannot read the file: {0}")]
    Io(String),
    /// Not a PE file at all.
    #[error("not a PE image: {0}")]
    NotPe(&'static str),
    /// For another processor.
    #[error("machine {0:#06x} is not x64 (0x8664)")]
    Machine(u16),
    /// A 32-bit image.
    #[error("optional header magic {0:#06x} is not PE32+ (0x20b)")]
    NotPe32Plus(u16),
    /// Not a driver, or not a DLL.
    #[error("subsystem {found} is not {wanted}")]
    Subsystem {
        /// In the file.
        found: u16,
        /// What the loader was asked for.
        wanted: &'static str,
    },
    /// The file is shorter than its headers say.
    #[error("truncated: {what} needs bytes {start:#x}..{end:#x}, the file has {length:#x}")]
    Truncated {
        /// What lies there.
        what: &'static str,
        /// First byte.
        start: u64,
        /// End.
        end: u64,
        /// Length of the file.
        length: u64,
    },
    /// A header field contradicts another one or a limit.
    #[error("bad header field: {0}")]
    BadField(String),
    /// Without relocations the image cannot run at any base but its preferred one.
    #[error("the image has no relocations, so it cannot be loaded at another base")]
    NoRelocations,
    /// A table leads outside the image, or contradicts itself.
    #[error("bad {table}: {why}")]
    BadTable {
        /// Which.
        table: &'static str,
        /// Why.
        why: String,
    },
    /// Thread-local storage, which kernel images cannot have and this loader does not provide.
    #[error("the image has a TLS directory")]
    Tls,
    /// A managed image.
    #[error("the image has a CLR header")]
    Managed,
    /// Imports that neither the model nor the list of Windows's routines knows.
    #[error("unknown imports: {}", .0.join(", "))]
    UnknownImports(Vec<String>),
    /// The host refused memory.
    #[error("no memory for the image")]
    NoMemory,
}

/// What the loader expects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageKind {
    /// A `.sys`: subsystem native.
    Kernel,
    /// A user-mode `.dll`.
    User,
}

/// Largest image that is loaded.
const MAX_IMAGE: u32 = 512 << 20;
const MAX_SECTIONS: u16 = 96;
pub(super) const PAGE: u32 = 4096;

/// `IMAGE_SCN_MEM_EXECUTE`.
const SCN_EXECUTE: u32 = 0x2000_0000;
/// `IMAGE_SCN_MEM_WRITE`.
const SCN_WRITE: u32 = 0x8000_0000;
/// `IMAGE_FILE_RELOCS_STRIPPED`.
const RELOCS_STRIPPED: u16 = 1;

/// A section of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// Name, at most eight bytes.
    pub name: String,
    /// Address relative to the base.
    pub rva: u32,
    /// Bytes in memory.
    pub size: u32,
    /// Offset and bytes in the file.
    pub(super) file: (u32, u32),
    /// `IMAGE_SCN_*`.
    pub characteristics: u32,
}

impl Section {
    /// Code may run here.
    pub fn is_executable(&self) -> bool {
        self.characteristics & SCN_EXECUTE != 0
    }

    /// Data may be stored here. A section that claims both is mapped without write access.
    pub fn is_writable(&self) -> bool {
        self.characteristics & SCN_WRITE != 0 && !self.is_executable()
    }
}

/// Data directories by index.
pub(super) mod directory {
    pub(crate) const EXPORT: usize = 0;
    pub(crate) const IMPORT: usize = 1;
    pub(crate) const EXCEPTION: usize = 3;
    pub(crate) const RELOCATION: usize = 5;
    pub(crate) const DEBUG: usize = 6;
    pub(crate) const TLS: usize = 9;
    pub(crate) const LOAD_CONFIG: usize = 10;
    pub(crate) const DELAY_IMPORT: usize = 13;
    pub(crate) const CLR: usize = 14;
}

/// The headers of an image.
#[derive(Clone, Debug)]
pub(crate) struct Headers {
    pub(crate) preferred_base: u64,
    pub(crate) entry: u32,
    pub(crate) size: u32,
    pub(crate) header_size: u32,
    pub(crate) sections: Vec<Section>,
    /// RVA and size, 16 of them.
    pub(crate) directories: [(u32, u32); 16],
    pub(crate) timestamp: u32,
}

/// Bounded little-endian reads.
#[derive(Clone, Copy)]
pub(super) struct Bytes<'a>(pub(super) &'a [u8]);

impl<'a> Bytes<'a> {
    pub(super) fn get(self, at: u64, length: u64) -> Option<&'a [u8]> {
        let start = usize::try_from(at).ok()?;
        let end = start.checked_add(usize::try_from(length).ok()?)?;
        self.0.get(start..end)
    }

    pub(super) fn u16(self, at: u64) -> Option<u16> {
        self.get(at, 2)?.try_into().ok().map(u16::from_le_bytes)
    }

    pub(super) fn u32(self, at: u64) -> Option<u32> {
        self.get(at, 4)?.try_into().ok().map(u32::from_le_bytes)
    }

    pub(super) fn u64(self, at: u64) -> Option<u64> {
        self.get(at, 8)?.try_into().ok().map(u64::from_le_bytes)
    }

    /// A terminated ASCII string of at most 512 bytes.
    pub(super) fn text(self, at: u64) -> Option<&'a str> {
        let rest = self.0.get(usize::try_from(at).ok()?..)?;
        let end = rest.iter().take(512).position(|byte| *byte == 0)?;
        std::str::from_utf8(&rest[..end]).ok()
    }
}

fn field(text: impl Into<String>) -> LoadError {
    LoadError::BadField(text.into())
}

fn truncated(bytes: Bytes<'_>, what: &'static str, start: u64, length: u64) -> LoadError {
    LoadError::Truncated { what, start, end: start.saturating_add(length), length: bytes.0.len() as u64 }
}

impl Headers {
    /// Reads and judges the headers of `file`.
    pub(crate) fn parse(file: &[u8], kind: ImageKind) -> Result<Self, LoadError> {
        let bytes = Bytes(file);
        if bytes.u16(0) != Some(0x5A4D) {
            return Err(LoadError::NotPe("no MZ signature"));
        }
        let pe = u64::from(bytes.u32(0x3C).ok_or_else(|| truncated(bytes, "the DOS header", 0, 0x40))?);
        if bytes.u32(pe).ok_or_else(|| truncated(bytes, "the PE signature", pe, 4))? != 0x4550 {
            return Err(LoadError::NotPe("no PE signature"));
        }
        let coff = pe + 4;
        let header = |at: u64| bytes.u16(coff + at).ok_or_else(|| truncated(bytes, "the file header", coff, 20));
        let machine = header(0)?;
        if machine != 0x8664 {
            return Err(LoadError::Machine(machine));
        }
        let section_count = header(2)?;
        let optional_size = u64::from(header(16)?);
        let characteristics = header(18)?;
        let timestamp = bytes.u32(coff + 4).unwrap_or(0);
        if section_count == 0 || section_count > MAX_SECTIONS {
            return Err(field(format!("{section_count} sections")));
        }
        let optional = coff + 20;
        let magic = bytes.u16(optional).ok_or_else(|| truncated(bytes, "the optional header", optional, 2))?;
        if magic != 0x20B {
            return Err(LoadError::NotPe32Plus(magic));
        }
        if optional_size < 112 {
            return Err(field(format!("an optional header of {optional_size} bytes")));
        }
        bytes
            .get(optional, optional_size)
            .ok_or_else(|| truncated(bytes, "the optional header", optional, optional_size))?;
        let word = |at: u64| bytes.u32(optional + at).unwrap_or(0);
        let headers = Self {
            preferred_base: bytes.u64(optional + 24).unwrap_or(0),
            entry: word(16),
            size: word(56),
            header_size: word(60),
            sections: Self::sections(bytes, optional + optional_size, section_count)?,
            directories: Self::directories(bytes, optional, optional_size, word(108)),
            timestamp,
        };
        Self::check_subsystem(bytes.u16(optional + 68).unwrap_or(0), kind)?;
        headers.check_sizes(bytes, word(32), word(36))?;
        headers.check_sections(bytes)?;
        headers.check_directories()?;
        if characteristics & RELOCS_STRIPPED != 0 || headers.directories[directory::RELOCATION].1 == 0 {
            return Err(LoadError::NoRelocations);
        }
        headers.check_entry(kind)?;
        Ok(headers)
    }

    fn directories(bytes: Bytes<'_>, optional: u64, optional_size: u64, count: u32) -> [(u32, u32); 16] {
        let mut directories = [(0, 0); 16];
        // The count is believed only as far as the optional header goes.
        let room = (optional_size - 112) / 8;
        for (at, directory) in (0..room.min(u64::from(count))).zip(&mut directories) {
            let rva = bytes.u32(optional + 112 + 8 * at);
            let size = bytes.u32(optional + 116 + 8 * at);
            *directory = (rva.unwrap_or(0), size.unwrap_or(0));
        }
        directories
    }

    fn sections(bytes: Bytes<'_>, table: u64, count: u16) -> Result<Vec<Section>, LoadError> {
        let section = |at: u16| {
            let start = table + 40 * u64::from(at);
            let raw = bytes.get(start, 40).ok_or_else(|| truncated(bytes, "the section table", start, 40))?;
            let word = |at: u64| Bytes(raw).u32(at).unwrap_or(0);
            let name = raw[..8].split(|byte| *byte == 0).next().unwrap_or_default();
            let (size, file_size) = (word(8), word(16));
            Ok(Section {
                name: String::from_utf8_lossy(name).into_owned(),
                rva: word(12),
                // A virtual size of 0 means: as in the file.
                size: if size == 0 { file_size } else { size },
                file: (word(20), file_size),
                characteristics: word(36),
            })
        };
        (0..count).map(section).collect()
    }

    fn check_subsystem(found: u16, kind: ImageKind) -> Result<(), LoadError> {
        match (kind, found) {
            (ImageKind::Kernel, 1) | (ImageKind::User, 2 | 3) => Ok(()),
            (ImageKind::Kernel, _) => Err(LoadError::Subsystem { found, wanted: "native (1)" }),
            (ImageKind::User, _) => Err(LoadError::Subsystem { found, wanted: "Windows (2 or 3)" }),
        }
    }

    fn check_sizes(&self, bytes: Bytes<'_>, alignment: u32, file_alignment: u32) -> Result<(), LoadError> {
        if !alignment.is_power_of_two() || alignment < PAGE {
            return Err(field(format!("section alignment {alignment:#x} is below a page")));
        }
        if !file_alignment.is_power_of_two() {
            return Err(field(format!("file alignment {file_alignment:#x}")));
        }
        if self.size == 0 || self.size > MAX_IMAGE || !self.size.is_multiple_of(PAGE) {
            return Err(field(format!("image size {:#x}", self.size)));
        }
        if self.header_size == 0 || self.header_size > self.size {
            return Err(field(format!("header size {:#x} of an image of {:#x}", self.header_size, self.size)));
        }
        let length = u64::from(self.header_size);
        bytes.get(0, length).ok_or_else(|| truncated(bytes, "the headers", 0, length))?;
        Ok(())
    }

    fn check_sections(&self, bytes: Bytes<'_>) -> Result<(), LoadError> {
        let mut end = u64::from(self.header_size.next_multiple_of(PAGE));
        for section in &self.sections {
            let start = u64::from(section.rva);
            let name = &section.name;
            if !section.rva.is_multiple_of(PAGE) {
                return Err(field(format!("section {name} at {start:#x} is not page-aligned")));
            }
            if start < end {
                return Err(field(format!("section {name} at {start:#x} overlaps what ends at {end:#x}")));
            }
            end = start + u64::from(section.size);
            if end > u64::from(self.size) {
                return Err(field(format!("section {name} ends at {end:#x}, the image at {:#x}", self.size)));
            }
            end = end.next_multiple_of(u64::from(PAGE));
            let (at, length) = (u64::from(section.file.0), u64::from(section.file.1));
            if length != 0 && bytes.get(at, length).is_none() {
                return Err(truncated(bytes, "a section", at, length));
            }
        }
        Ok(())
    }

    fn check_directories(&self) -> Result<(), LoadError> {
        for (index, (rva, size)) in self.directories.iter().enumerate() {
            // 4 is the certificate table, whose "RVA" is a file offset.
            let end = u64::from(*rva) + u64::from(*size);
            if index != 4 && *size != 0 && end > u64::from(self.size) {
                return Err(field(format!("data directory {index} ends at {end:#x}, the image at {:#x}", self.size)));
            }
        }
        if self.directories[directory::TLS].1 != 0 {
            return Err(LoadError::Tls);
        }
        if self.directories[directory::CLR].1 != 0 {
            return Err(LoadError::Managed);
        }
        Ok(())
    }

    fn check_entry(&self, kind: ImageKind) -> Result<(), LoadError> {
        // A DLL may have no entry point.
        if kind == ImageKind::User && self.entry == 0 {
            return Ok(());
        }
        let inside = |section: &Section| {
            section.is_executable() && (section.rva..section.rva.saturating_add(section.size)).contains(&self.entry)
        };
        if self.sections.iter().any(inside) {
            return Ok(());
        }
        Err(field(format!("entry point {:#x} is in no executable section", self.entry)))
    }
}
