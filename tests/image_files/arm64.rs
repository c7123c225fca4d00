//! The driver for ARM64, where `./x test` or `./x image --arm64` has built it. It was never run, but it can be read.

use crate::functions::names;
use crate::image::{Image, Kind};
use libtest_mimic::{Failed, Trial};
use std::sync::Arc;

/// `dsb sy`: what stands before it is done, for the whole system, before what stands behind it begins.
const BARRIER: u32 = 0xD503_3F9F;
/// `nop`.
const NOTHING: u32 = 0xD503_201F;

/// What touches device registers: nothing else in the driver does.
const ACCESSES: [&str; 2] = ["kmd_core::registers::Registers::read", "kmd_core::registers::Registers::write"];

pub fn trials() -> Vec<Trial> {
    let image = match Image::built_for_arm64(Kind::Driver) {
        Ok(image) => image.map(Arc::new),
        Err(error) => return vec![Trial::test("ARM64: readable", move || Err(Failed::from(error)))],
    };
    let ignored = image.is_none();
    let copy = image.clone();
    let ordered = move || image.as_deref().map_or(Ok(()), registers_are_ordered).map_err(Failed::from);
    let caught = move || copy.as_deref().map_or(Ok(()), a_missing_barrier_is_caught).map_err(Failed::from);
    vec![
        Trial::test("ARM64: register accesses stand between barriers", ordered).with_ignored_flag(ignored),
        Trial::test("ARM64: a copy with a barrier less is caught", caught).with_ignored_flag(ignored),
    ]
}

/// The instructions of a function: the place of each in the file, and its word.
type Code = Vec<(usize, u32)>;

/// The functions in [`ACCESSES`], by name.
fn accesses(image: &Image) -> Result<Vec<(String, Code)>, String> {
    let mut found = Vec::new();
    for (start, (length, name)) in names(image)? {
        if !ACCESSES.contains(&name.as_str()) {
            continue;
        }
        let place = image.file_offset(start)?;
        let code = image.bytes.get(place..place + length as usize).ok_or("code outside the file")?;
        let words = code.chunks_exact(4).map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]]));
        found.push((name, words.enumerate().map(|(at, word)| (place + at * 4, word)).collect()));
    }
    if found.len() == ACCESSES.len() { Ok(found) } else { Err(format!("{ACCESSES:?} are not all in the image")) }
}

/// Whether an instruction loads or stores 32 bits, by any form of address that compilers use for a field.
///
/// Source: Arm Architecture Reference Manual, LDR and STR (immediate, register), LDUR, STUR.
fn is_access(word: u32) -> bool {
    [0xB940_0000, 0xB900_0000].contains(&(word & 0xFFC0_0000))
        || [0xB860_0800, 0xB820_0800, 0xB840_0000, 0xB800_0000].contains(&(word & 0xFFE0_0C00))
}

fn registers_are_ordered(image: &Image) -> Result<(), String> {
    for (name, code) in accesses(image)? {
        let words: Vec<u32> = code.iter().map(|(_, word)| *word).collect();
        let between = words.split(|word| *word == BARRIER).map(|part| part.iter().any(|word| is_access(*word)));
        // Before the first barrier, between the two, behind the second.
        if between.collect::<Vec<_>>() != [false, true, false] {
            return Err(format!("{name} is {words:08x?}"));
        }
    }
    Ok(())
}

fn a_missing_barrier_is_caught(image: &Image) -> Result<(), String> {
    let places = accesses(image)?.into_iter().flat_map(|(_, code)| code).filter(|(_, word)| *word == BARRIER);
    for (place, _) in places {
        let mut broken = image.clone();
        broken.bytes[place..place + 4].copy_from_slice(&NOTHING.to_le_bytes());
        if registers_are_ordered(&broken).is_ok() {
            return Err(format!("the barrier at {place:#x} is not missed"));
        }
    }
    Ok(())
}
