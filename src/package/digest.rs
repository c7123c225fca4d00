//! What is signed of a file: all of it, or of an image what Authenticode takes.
//!
//! Source: *Windows Authenticode Portable Executable Signature Format*, Calculating the PE Image Hash: the header's
//! checksum, the directory entry of the certificate table, and that table itself are left out. Signers fill the image
//! up with zeros to a multiple of 8 bytes, behind which they put the table; the zeros count.

use object::LittleEndian as LE;
use object::pe;
use object::read::pe::PeFile64;
use sha2::{Digest as _, Sha256};
use std::ops::Range;

/// SHA-256 of a file, as catalogs hold it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digest {
    /// The hash.
    pub bytes: [u8; 32],
    /// Whether it is an image's Authenticode hash.
    pub is_image: bool,
}

impl Digest {
    /// Of a file's bytes. What begins as an image and is none counts as a file like any other.
    pub fn of(file: &[u8]) -> Self {
        match left_out(file) {
            Some(parts) => Self { bytes: of_image(file, &parts), is_image: true },
            None => Self { bytes: Sha256::digest(file).into(), is_image: false },
        }
    }
}

/// What of an image is not hashed, in order: checksum, directory entry, certificate table (at the end; empty without a
/// signature). `None`: no image for x86-64 or ARM64.
fn left_out(file: &[u8]) -> Option<[Range<usize>; 3]> {
    let image = PeFile64::parse(file).ok()?;
    let optional =
        image.dos_header().nt_headers_offset() as usize + size_of::<u32>() + size_of::<pe::ImageFileHeader>();
    let checksum = optional + std::mem::offset_of!(pe::ImageOptionalHeader64, check_sum);
    let entry = optional
        + size_of::<pe::ImageOptionalHeader64>()
        + pe::IMAGE_DIRECTORY_ENTRY_SECURITY * size_of::<pe::ImageDataDirectory>();
    let table = image.data_directory(pe::IMAGE_DIRECTORY_ENTRY_SECURITY);
    // Of this directory alone the address is a place in the file.
    let (at, size) = table.map_or((0, 0), |table| (table.virtual_address.get(LE), table.size.get(LE)));
    let table = if at == 0 || size == 0 { file.len()..file.len() } else { at as usize..at as usize + size as usize };
    let entry = entry..entry + size_of::<pe::ImageDataDirectory>();
    (entry.end <= table.start && table.end == file.len()).then_some([checksum..checksum + 4, entry, table])
}

fn of_image(file: &[u8], [checksum, entry, table]: &[Range<usize>; 3]) -> [u8; 32] {
    let mut hash = Sha256::new();
    for part in [&file[..checksum.start], &file[checksum.end..entry.start], &file[entry.end..table.start]] {
        hash.update(part);
    }
    hash.update(&[0; 8][..table.start.next_multiple_of(8) - table.start]);
    hash.finalize().into()
}

/// The file version of an image, `A.B.C.D`, from its VS_FIXEDFILEINFO; `None` without one.
///
/// Source: `VS_FIXEDFILEINFO` (verrsrc.h): signature, structure version, then the file version in two DWORDs, in each
/// the higher word first.
pub fn file_version(image: &[u8]) -> Option<String> {
    const SIGNATURE: [u8; 4] = 0xFEEF_04BD_u32.to_le_bytes();
    let at = image.windows(4).step_by(4).position(|four| four == SIGNATURE)? * 4;
    let word = |index: usize| Some(u16::from_le_bytes(image.get(at + 8 + index * 2..)?.get(..2)?.try_into().ok()?));
    Some(format!("{}.{}.{}.{}", word(1)?, word(0)?, word(3)?, word(2)?))
}
