//! What a Direct3D runtime meets: it loads the library that `UserModeDriverName` names, asks it for the adapter by the
//! function of its version, and where that is refused unloads it and goes on without this adapter.
#![expect(unsafe_code, reason = "functions of the library are called by pointer")]

use super::Library;
use anyhow::{Context, Result, ensure};
use std::ffi::c_void;
use std::path::Path;
use std::ptr;
use wddm_abi::winfn;

/// The functions, and which version of Direct3D asks by which.
///
/// Source: DDI pages PFND3DDDI_OPENADAPTER, PFND3D10DDI_OPENADAPTER; article *Initializing Communication with the
/// Direct3D Version 11 DDI*; for 12 the name is that of Microsoft's compute-only sample.
pub const FUNCTIONS: [(&str, &str); 4] =
    [("OpenAdapter", "9"), ("OpenAdapter10", "10"), ("OpenAdapter10_2", "10.1 and 11"), ("OpenAdapter12", "12")];

/// Bytes of a record, more than any of the functions' has, and what they are filled with.
const RECORD: usize = 256;
const FILL: u8 = 0xA5;

/// Asks by each function; what each returned. The records must stay as they are, since a runtime takes none of a driver
/// that refuses.
///
/// # Errors
/// When the library does not load or unload, lacks a function, or one writes to its record.
pub fn open_adapters(path: &Path) -> Result<Vec<u32>> {
    let library = Library::load(path)?;
    let mut answers = Vec::new();
    for (name, _) in FUNCTIONS {
        let at = library.export(name);
        // SAFETY: null, or the function with this name, which takes a pointer and returns an HRESULT.
        let function = unsafe { std::mem::transmute::<*const c_void, Option<winfn!(fn(*mut c_void) -> i32)>>(at) };
        let function = function.with_context(|| format!("{} does not export {name}", path.display()))?;
        let mut record = [FILL; RECORD];
        // SAFETY: a record that is longer than the function's. Its pointers are none: a driver that refuses uses none.
        let answer = unsafe { function(ptr::from_mut(&mut record).cast()) };
        ensure!(record == [FILL; RECORD], "{name} wrote to its record");
        answers.push(answer.cast_unsigned());
    }
    library.unload()?;
    Ok(answers)
}
