//! Damaged files: each is refused with a reason or loads; nothing panics, nothing leaks out of the image.

use super::{load, trivial};
use crate::image::LoadError;
use crate::kernel::Kernel;

/// Offset of the optional header in files of the builder.
const OPTIONAL: usize = 0x98;
const SECTIONS: usize = OPTIONAL + 240;

fn broken(at: usize, bytes: &[u8]) -> LoadError {
    let mut file = trivial();
    file[at..at + bytes.len()].copy_from_slice(bytes);
    match load(&Kernel::collecting(), &file) {
        Err(error) => error,
        Ok(image) => panic!("{:?} loaded with {bytes:x?} at {at:#x}", image.name()),
    }
}

#[test]
fn every_field_that_cannot_be_is_named() {
    assert!(matches!(broken(0, b"ZM"), LoadError::NotPe(_)));
    assert!(matches!(broken(0x80, b"LE"), LoadError::NotPe(_)));
    assert!(matches!(broken(0x3C, &[0xFF; 4]), LoadError::Truncated { .. }));
    assert_eq!(broken(0x84, &0x14C_u16.to_le_bytes()), LoadError::Machine(0x14C));
    assert_eq!(broken(0x84, &0xAA64_u16.to_le_bytes()), LoadError::Machine(0xAA64));
    assert_eq!(broken(OPTIONAL, &0x10B_u16.to_le_bytes()), LoadError::NotPe32Plus(0x10B));
    assert!(matches!(broken(OPTIONAL + 68, &[3]), LoadError::Subsystem { found: 3, .. }));
    // No sections; too many; relocations stripped; none.
    assert!(matches!(broken(0x86, &[0, 0]), LoadError::BadField(_)));
    assert!(matches!(broken(0x86, &[0xFF, 0xFF]), LoadError::BadField(_)));
    assert_eq!(broken(0x96, &0x2023_u16.to_le_bytes()), LoadError::NoRelocations);
    assert_eq!(broken(OPTIONAL + 112 + 8 * 5 + 4, &[0; 4]), LoadError::NoRelocations);
    // Image size, alignments, header size, entry point.
    assert!(matches!(broken(OPTIONAL + 56, &[0xFF; 4]), LoadError::BadField(_)));
    assert!(matches!(broken(OPTIONAL + 32, &[0x20, 0, 0, 0]), LoadError::BadField(_)));
    assert!(matches!(broken(OPTIONAL + 60, &[0xFF; 4]), LoadError::BadField(_)));
    assert!(matches!(broken(OPTIONAL + 16, &0x5000_u32.to_le_bytes()), LoadError::BadField(_)));
    // A TLS directory, a CLR header, a directory outside the image.
    assert_eq!(broken(OPTIONAL + 112 + 8 * 9 + 4, &[1]), LoadError::Tls);
    assert_eq!(broken(OPTIONAL + 112 + 8 * 14 + 4, &[1]), LoadError::Managed);
    assert!(matches!(broken(OPTIONAL + 112 + 8, &[0xFF; 4]), LoadError::BadField(_)));
}

#[test]
fn sections_must_lie_apart_and_inside() {
    let second = SECTIONS + 40;
    // The second section on top of the first, beyond the image, beyond the file.
    assert!(matches!(broken(second + 12, &0x1000_u32.to_le_bytes()), LoadError::BadField(_)));
    assert!(matches!(broken(second + 12, &0x7FFF_F000_u32.to_le_bytes()), LoadError::BadField(_)));
    assert!(matches!(broken(second + 8, &[0xFF; 4]), LoadError::BadField(_)));
    assert!(matches!(broken(second + 20, &[0xFF; 4]), LoadError::Truncated { .. }));
    assert!(matches!(broken(second + 16, &[0xFF; 4]), LoadError::Truncated { .. }));
}

#[test]
fn a_cut_file_is_refused_at_any_length() {
    let file = trivial();
    let kernel = Kernel::collecting();
    for length in 0..file.len() - 0x200 {
        assert!(load(&kernel, &file[..length]).is_err(), "{length} bytes");
    }
}

/// One byte of the headers and tables after the other gets several values. Whatever loads must be unloadable.
#[test]
fn no_byte_makes_the_loader_panic() {
    let file = trivial();
    let kernel = Kernel::collecting();
    let _in = kernel.enter();
    let (mut loaded, mut refused) = (0, 0);
    // Headers, and the sections with the tables (0x600 on: .rdata, .data, .reloc).
    for at in (0..0x200).chain(0x600..file.len()) {
        for value in [0x00, 0xFF, 0x80, file[at] ^ 1] {
            let mut file = file.clone();
            file[at] = value;
            match load(&kernel, &file) {
                Ok(image) => {
                    loaded += 1;
                    assert!(kernel.unload_image(&image));
                }
                Err(_) => refused += 1,
            }
        }
    }
    assert!(loaded > 0 && refused > 0, "{loaded} loaded, {refused} refused");
}

#[test]
fn random_damage_never_panics() {
    let file = trivial();
    let kernel = Kernel::collecting();
    let _in = kernel.enter();
    let mut random = 0x1234_5678_9ABC_DEF0_u64;
    for _ in 0..2000 {
        let mut file = file.clone();
        for _ in 0..8 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let at = (random >> 33) as usize % file.len();
            file[at] = (random >> 20) as u8;
        }
        if let Ok(image) = load(&kernel, &file) {
            kernel.unload_image(&image);
        }
    }
}
