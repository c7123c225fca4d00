//! One of the three images, with the places in it that the properties and the mutants look at.

use object::LittleEndian as LE;
use object::pe;
use object::pe::ImageNtHeaders64;
use object::read::pe::PeFile64;
use std::fs;
use std::io;
use std::path::Path;
use std::path::PathBuf;

/// Which of the images.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Driver,
    UserMode,
    Direct3D,
}

impl Kind {
    pub fn file_name(self) -> &'static str {
        match self {
            Self::Driver => "fencepost.sys",
            Self::UserMode => "fencepost_umd.dll",
            Self::Direct3D => "fencepost_d3d.dll",
        }
    }

    pub fn pdb_name(self) -> &'static str {
        match self {
            Self::Driver => "fencepost.pdb",
            Self::UserMode => "fencepost_umd.pdb",
            Self::Direct3D => "fencepost_d3d.pdb",
        }
    }

    pub fn entry_point(self) -> &'static str {
        match self {
            Self::Driver => "DriverEntry",
            Self::UserMode | Self::Direct3D => "DllMain",
        }
    }
}

/// An image file and the .pdb beside it.
#[derive(Clone)]
pub struct Image {
    pub kind: Kind,
    pub bytes: Vec<u8>,
    pub pdb: Vec<u8>,
}

impl Image {
    /// The image as `./x image` left it, or None if it is not there.
    pub fn built(kind: Kind) -> Result<Option<Self>, String> {
        Self::read(&workspace().join("out"), kind)
    }

    /// The image as `./x image --arm64` left it, or None if it is not there.
    pub fn built_for_arm64(kind: Kind) -> Result<Option<Self>, String> {
        Self::read(&workspace().join("out/arm64"), kind)
    }

    fn read(out: &Path, kind: Kind) -> Result<Option<Self>, String> {
        let path = out.join(kind.file_name());
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(format!("{}: {error}", path.display())),
        };
        let pdb = fs::read(out.join(kind.pdb_name())).map_err(|error| format!("{}: {error}", kind.pdb_name()))?;
        let image = Self { kind, bytes, pdb };
        image.parse()?;
        Ok(Some(image))
    }

    pub fn parse(&self) -> Result<PeFile64<'_>, String> {
        PeFile64::parse(&*self.bytes).map_err(|error| format!("not a PE32+ image: {error}"))
    }

    /// The executable sections: the address of each from the image's base, and its bytes.
    pub fn code(&self) -> Result<Vec<(u32, &[u8])>, String> {
        let file = self.parse()?;
        let executable =
            |section: &&pe::ImageSectionHeader| section.characteristics.get(LE).contains(pe::IMAGE_SCN_MEM_EXECUTE);
        let sections = file.section_table().iter().filter(executable);
        let part = |section: &pe::ImageSectionHeader| {
            let bytes = section.pe_data(&*self.bytes).map_err(|error| error.to_string())?;
            u32::try_from(bytes.len()).map_err(|error| error.to_string())?;
            Ok((section.virtual_address.get(LE), bytes))
        };
        sections.map(part).collect()
    }

    /// The optional header's `DllCharacteristics`.
    pub fn dll_characteristics(&self) -> Result<pe::DllFlags, String> {
        Ok(self.parse()?.nt_headers().optional_header.dll_characteristics.get(LE))
    }

    /// The address (from the image's base) of an exported name.
    pub fn export(&self, name: &str) -> Result<u32, String> {
        let exports = self.exports()?;
        let found = exports.iter().find(|(export, _)| export == name);
        found.map(|(_, address)| *address).ok_or_else(|| format!("{name} is not exported"))
    }

    /// Every exported name with its address from the image's base.
    pub fn exports(&self) -> Result<Vec<(String, u32)>, String> {
        let file = self.parse()?;
        let table = file.export_table().map_err(words)?.ok_or("no export table")?;
        let mut exports = Vec::new();
        for (name, index) in table.name_iter() {
            let name = table.name_from_pointer(name).map_err(words)?;
            let address = table.address_by_index(index).map_err(words)?;
            exports.push((String::from_utf8_lossy(name).into_owned(), address));
        }
        Ok(exports)
    }

    /// Every imported function as (library, name).
    pub fn imports(&self) -> Result<Vec<(String, String)>, String> {
        let file = self.parse()?;
        let mut imports = Vec::new();
        let Some(table) = file.import_table().map_err(words)? else { return Ok(imports) };
        let mut libraries = table.descriptors().map_err(words)?;
        while let Some(library) = libraries.next().map_err(words)? {
            let library_name = String::from_utf8_lossy(table.name(library.name.get(LE)).map_err(words)?).into_owned();
            let mut thunks = table.thunks(library.original_first_thunk.get(LE)).map_err(words)?;
            while let Some(thunk) = thunks.next::<ImageNtHeaders64>().map_err(words)? {
                let import = table.import::<ImageNtHeaders64>(thunk).map_err(words)?;
                let name = match import {
                    object::read::pe::Import::Ordinal(ordinal) => format!("#{ordinal}"),
                    object::read::pe::Import::Name(_, name) => String::from_utf8_lossy(name).into_owned(),
                };
                imports.push((library_name.clone(), name));
            }
        }
        Ok(imports)
    }

    /// Where the file has what is loaded at this address from the image's base.
    pub fn file_offset(&self, address: u32) -> Result<usize, String> {
        let file = self.parse()?;
        for section in file.section_table().iter() {
            let start = section.virtual_address.get(LE);
            if (start..start + section.size_of_raw_data.get(LE)).contains(&address) {
                return Ok((section.pointer_to_raw_data.get(LE) + address - start) as usize);
            }
        }
        Err(format!("nothing in the file is loaded at {address:#x}"))
    }

    /// Where the optional header begins.
    pub fn optional_header(&self) -> Result<usize, String> {
        let file = self.parse()?;
        let nt_headers = file.dos_header().nt_headers_offset() as usize;
        // CAST: signature and file header have fixed sizes.
        Ok(nt_headers + 4 + size_of::<pe::ImageFileHeader>())
    }

    /// Where the header's checksum is.
    pub fn checksum_place(&self) -> Result<usize, String> {
        Ok(self.optional_header()? + std::mem::offset_of!(pe::ImageOptionalHeader64, check_sum))
    }

    /// The checksum that the header should have: the 16-bit ones' complement sum of the file's words, the checksum
    /// itself left out, plus the file's length.
    ///
    /// Source: the algorithm is imagehlp's CheckSumMappedFile, which no document spells out; lld-link's /RELEASE and
    /// osslsigncode compute the same.
    pub fn computed_checksum(&self) -> Result<u32, String> {
        let place = self.checksum_place()?;
        let mut sum = 0_u32;
        for (index, pair) in self.bytes.chunks(2).enumerate() {
            if (place..place + 4).contains(&(index * 2)) {
                continue;
            }
            sum += u32::from(pair[0]) | u32::from(pair.get(1).copied().unwrap_or(0)) << 8;
            sum = (sum & 0xffff) + (sum >> 16);
        }
        let length = u32::try_from(self.bytes.len()).map_err(words)?;
        Ok(sum + length)
    }
}

/// The folder of the root Cargo.toml.
pub fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_path_buf()
}

/// Any error as its words.
pub fn words(error: impl std::fmt::Display) -> String {
    error.to_string()
}
