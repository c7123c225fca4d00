//! Loads `.sys` and `.dll` files as they ship.
//!
//! An image is judged (`pe.rs`), laid out, relocated to a base that is never its preferred one, linked against the
//! model's services, and mapped with the rights that its sections ask for (never writable and executable at once). Its
//! pages are real pages of the machine, so a driver may describe its own data by an MDL.
//!
//! An import that Windows has but the model has not resolves to a stub that stops the machine with the routine's name
//! when it is called ([`Image::missing_imports`] lists them); one that the model does not know is a load error.
//! Structured exceptions are not modelled: `.pdata` is used to find the code, and whether a fault lies in a `__try`
//! (`handlers.rs`), behind which nothing can be judged.

mod handlers;
mod link;
mod mapped;
pub(crate) mod missing;
mod pe;
mod scan;
#[cfg(test)]
pub(crate) mod tests;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use parking_lot::RwLock;
use sha2::{Digest, Sha256};

pub use link::{Import, Symbol};
pub use pe::{ImageKind, LoadError, Section};
pub use scan::CodeFacts;

use crate::kernel::Machine;
use mapped::MappedImage;
use missing::MissingImport;
use pe::Headers;

/// How to load.
#[derive(Clone, Debug, Default)]
pub struct LoadOptions {
    /// Give imports that not even `routines.tsv` knows a stub instead of refusing the image.
    pub allow_unknown_imports: bool,
}

/// Finds the address of an import.
pub(crate) type Resolver<'a> = &'a dyn Fn(&str, &Symbol) -> Option<usize>;

/// A loaded image. Dropping it does not unload it: see [`Machine::unload_image`].
#[derive(Debug)]
pub struct Image {
    name: String,
    kind: ImageKind,
    base: usize,
    headers: Headers,
    exports: BTreeMap<String, u32>,
    imports: Vec<Import>,
    missing: Vec<Arc<MissingImport>>,
    facts: CodeFacts,
    relocations: usize,
    sha256: [u8; 32],
    pub(crate) mapped: MappedImage,
}

impl Image {
    /// File name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Kernel or user.
    pub fn kind(&self) -> ImageKind {
        self.kind
    }

    /// Where it lies.
    pub fn base(&self) -> usize {
        self.base
    }

    /// Where it wanted to lie; what symbol files count from.
    pub fn preferred_base(&self) -> u64 {
        self.headers.preferred_base
    }

    /// Bytes in memory.
    pub fn size(&self) -> usize {
        self.headers.size as usize
    }

    /// `TimeDateStamp` of the file header.
    pub fn timestamp(&self) -> u32 {
        self.headers.timestamp
    }

    /// Address of the entry point; `None` for a DLL without one.
    pub fn entry_point(&self) -> Option<usize> {
        (self.headers.entry != 0).then(|| self.base + self.headers.entry as usize)
    }

    /// Sections in the order of their addresses.
    pub fn sections(&self) -> &[Section] {
        &self.headers.sections
    }

    /// Address of an exported function or variable.
    pub fn export(&self, name: &str) -> Option<usize> {
        self.exports.get(name).map(|rva| self.base + *rva as usize)
    }

    /// Every export and its address relative to the base.
    pub fn exports(&self) -> &BTreeMap<String, u32> {
        &self.exports
    }

    /// Every import.
    pub fn imports(&self) -> &[Import] {
        &self.imports
    }

    /// Imports that the model has no service for: calling one stops the machine.
    pub fn missing_imports(&self) -> Vec<String> {
        self.missing.iter().map(|import| import.to_string()).collect()
    }

    /// What was found in its code.
    pub fn code_facts(&self) -> &CodeFacts {
        &self.facts
    }

    /// How many addresses were relocated.
    pub fn relocations(&self) -> usize {
        self.relocations
    }

    /// SHA-256 of the file.
    pub fn sha256(&self) -> [u8; 32] {
        self.sha256
    }

    /// [`sha256`](Self::sha256) in hexadecimal.
    pub fn sha256_hex(&self) -> String {
        self.sha256.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// `CheckSum` of the optional header.
    pub fn checksum(&self) -> u32 {
        const CHECKSUM: usize = 64;
        self.at_rva(self.optional_header() + CHECKSUM, 4).map_or(0, |bytes| u32_at(&bytes, 0))
    }

    /// The record of the debug directory that names the symbol file by GUID, age and path (`RSDS` at its beginning), if
    /// there is one.
    pub fn codeview(&self) -> Option<Vec<u8>> {
        const ENTRY: usize = 28;
        const CODEVIEW: u32 = 2;
        let (rva, size) = self.headers.directories[pe::directory::DEBUG];
        let entries = self.at_rva(rva as usize, size as usize)?;
        let entry = entries.chunks_exact(ENTRY).find(|entry| u32_at(entry, 12) == CODEVIEW)?;
        self.at_rva(u32_at(entry, 20) as usize, u32_at(entry, 16) as usize).filter(|bytes| bytes.starts_with(b"RSDS"))
    }

    /// Where the optional header is, relative to the base.
    fn optional_header(&self) -> usize {
        const NEW_HEADER: usize = 0x3C;
        const SIGNATURE_AND_FILE_HEADER: usize = 24;
        let at = self.at_rva(NEW_HEADER, 4).map_or(0, |bytes| u32_at(&bytes, 0));
        at as usize + SIGNATURE_AND_FILE_HEADER
    }

    /// `bytes` of the image in memory at `rva`; `None` beyond its end.
    fn at_rva(&self, rva: usize, bytes: usize) -> Option<Vec<u8>> {
        if rva.checked_add(bytes)? > self.size() {
            return None;
        }
        let mut content = vec![0; bytes];
        crate::dump::read(self.base + rva, &mut content).then_some(content)
    }

    /// Whether `address` lies in the image.
    pub fn contains(&self, address: usize) -> bool {
        (self.base..self.base + self.size()).contains(&address)
    }
}

/// Four bytes of a record that has them; 0 where it has not.
fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map_or(0, u32::from_le_bytes)
}

/// The images of one machine.
#[derive(Debug, Default)]
pub(crate) struct Images {
    list: RwLock<Vec<Arc<Image>>>,
}

impl Images {
    pub(crate) fn add(&self, image: Arc<Image>) {
        self.list.write().push(image);
    }

    pub(crate) fn remove(&self, image: &Arc<Image>) -> bool {
        let mut list = self.list.write();
        let before = list.len();
        list.retain(|other| !Arc::ptr_eq(other, image));
        list.len() != before
    }

    /// The image around a code address: its name, and the address relative to its base.
    pub(crate) fn locate(&self, address: usize) -> Option<(String, u64)> {
        let list = self.list.read();
        let image = list.iter().find(|image| image.contains(address))?;
        Some((image.name.clone(), (address - image.base) as u64))
    }

    pub(crate) fn contains(&self, address: usize) -> bool {
        self.list.read().iter().any(|image| image.contains(address))
    }

    /// Whether an instruction lies in a `__try` of the image that it belongs to.
    pub(crate) fn is_in_try(&self, address: usize) -> bool {
        self.list.read().iter().any(|image| image.contains(address) && image.is_in_try(address))
    }

    pub(crate) fn all(&self) -> Vec<Arc<Image>> {
        self.list.read().clone()
    }
}

impl Machine {
    /// Loads a driver file. Its entry point is not called: see [`Machine::start_driver`](Self::start_driver).
    ///
    /// # Errors
    /// [`LoadError`], which says what is wrong with the file.
    pub fn load_driver(&self, path: &Path, options: &LoadOptions) -> Result<Arc<Image>, LoadError> {
        let file = std::fs::read(path).map_err(|error| LoadError::Io(error.to_string()))?;
        let name = path.file_name().map_or_else(|| "driver.sys".to_owned(), |name| name.to_string_lossy().into_owned());
        self.load_driver_bytes(&name, &file, options)
    }

    /// Loads a driver from memory.
    ///
    /// # Errors
    /// [`LoadError`], which says what is wrong with the bytes.
    pub fn load_driver_bytes(&self, name: &str, file: &[u8], options: &LoadOptions) -> Result<Arc<Image>, LoadError> {
        let resolve = |dll: &str, symbol: &Symbol| self.imports.resolve_kernel(dll, symbol);
        let image = Arc::new(self.load_image(name, file, ImageKind::Kernel, options, &resolve)?);
        self.images.add(image.clone());
        Ok(image)
    }

    /// Returns the imports of a driver's file that the model has no service for, as `dll!name`, whether Windows is
    /// known to have them or not. Nothing is loaded.
    ///
    /// # Errors
    /// [`LoadError`], when the file's headers or its table of imports cannot be read.
    pub fn missing_imports(&self, file: &[u8]) -> Result<Vec<String>, LoadError> {
        let headers = Headers::parse(file, ImageKind::Kernel)?;
        let imports = link::imports(&link::lay_out(file, &headers), &headers)?;
        let lacks = |import: &&Import| self.imports.resolve_kernel(&import.dll, &import.symbol).is_none();
        Ok(imports.iter().filter(lacks).map(|import| MissingImport::new(import).to_string()).collect())
    }

    pub(crate) fn load_image(
        &self,
        name: &str,
        file: &[u8],
        kind: ImageKind,
        options: &LoadOptions,
        resolve: Resolver<'_>,
    ) -> Result<Image, LoadError> {
        let headers = Headers::parse(file, kind)?;
        let mut memory = link::lay_out(file, &headers);
        // All tables are read before any memory is mapped, so a bad one leaves nothing behind.
        let imports = link::imports(&memory, &headers)?;
        let exports = link::exports(&memory, &headers)?;
        let facts = scan::scan(&memory, &link::code_ranges(&memory, &headers));
        let mapped = MappedImage::reserve(self, headers.size as usize, headers.preferred_base, imports.len())?;
        let base = mapped.base();
        let relocations = link::relocate(&mut memory, &headers, base as u64)?;
        link::set_security_cookie(&mut memory, &headers, base as u64);
        let missing = bind(&mut memory, &imports, kind, options, resolve, &mapped)?;
        mapped.fill(&memory, &headers.sections)?;
        Ok(Image {
            name: name.to_owned(),
            kind,
            base,
            headers,
            exports,
            imports,
            missing,
            facts,
            relocations,
            sha256: Sha256::digest(file).into(),
            mapped,
        })
    }

    /// Every loaded driver.
    pub fn drivers(&self) -> Vec<Arc<Image>> {
        self.images.all().into_iter().filter(|image| image.kind == ImageKind::Kernel).collect()
    }
}

/// Writes the address of every import into its slot. What the model lacks gets a stub.
fn bind(
    memory: &mut [u8],
    imports: &[Import],
    kind: ImageKind,
    options: &LoadOptions,
    resolve: Resolver<'_>,
    mapped: &MappedImage,
) -> Result<Vec<Arc<MissingImport>>, LoadError> {
    let mut missing = Vec::new();
    let mut unknown = Vec::new();
    for import in imports {
        let address = match resolve(&import.dll, &import.symbol) {
            Some(address) => address,
            None => {
                // Shared, because the stub's code contains its address.
                let record = Arc::new(MissingImport::new(import));
                if !missing::is_known(kind, import) && !options.allow_unknown_imports {
                    unknown.push(record.to_string());
                }
                let stub = mapped.write_stub(missing.len(), &record);
                missing.push(record);
                stub
            }
        };
        let slot = import.slot as usize;
        if let Some(slot) = memory.get_mut(slot..slot + 8) {
            slot.copy_from_slice(&(address as u64).to_le_bytes());
        }
    }
    if unknown.is_empty() { Ok(missing) } else { Err(LoadError::UnknownImports(unknown)) }
}
