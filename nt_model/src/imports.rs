//! What images can import: the shims of this crate, and what other crates register.

use std::collections::HashMap;
use std::sync::OnceLock;

use parking_lot::RwLock;

use crate::image::Symbol;
use crate::kernel::Machine;
use crate::shim::{CodeAddress, ShimEntry};
use crate::shims;

/// DLLs that are the kernel. On Windows 10 and later what hal.dll exports is the kernel's too.
const KERNEL_DLLS: &[&str] = &["ntoskrnl.exe", "hal.dll", "ntkrnlpa.exe", "ntkrnlmp.exe"];

/// Functions and variables of the kernel by name.
fn kernel_exports() -> &'static HashMap<&'static str, usize> {
    static EXPORTS: OnceLock<HashMap<&'static str, usize>> = OnceLock::new();
    EXPORTS.get_or_init(|| {
        let functions = shims::TABLES.iter().flat_map(|table| table.iter());
        let functions = functions.map(|entry| (entry.name, entry.address.get()));
        functions.chain(shims::data::variables()).collect()
    })
}

/// Imports registered on one machine: by DLL (lower case) and name.
#[derive(Debug, Default)]
pub(crate) struct Imports {
    registered: RwLock<HashMap<(String, String), usize>>,
}

impl Imports {
    pub(crate) fn resolve_kernel(&self, dll: &str, symbol: &Symbol) -> Option<usize> {
        let Symbol::Name(name) = symbol else { return None };
        if let Some(address) = self.registered.read().get(&(dll.to_owned(), name.clone())) {
            return Some(*address);
        }
        if !KERNEL_DLLS.contains(&dll) {
            return None;
        }
        kernel_exports().get(name.as_str()).copied()
    }

    /// DLLs that something was registered for, in order of their names.
    pub(crate) fn dlls(&self) -> Vec<String> {
        let mut names: Vec<_> = self.registered.read().keys().map(|(dll, _)| dll.clone()).collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    pub(crate) fn resolve_registered(&self, dll: &str, name: &str) -> Option<usize> {
        self.registered.read().get(&(dll.to_owned(), name.to_owned())).copied()
    }
}

impl Machine {
    /// Makes `dll!name` resolve to `address` in images that are loaded from now on; replaces a service of this crate.
    /// Functions have the Windows calling convention ([`shims!`](crate::shims!)).
    pub fn register_import(&self, dll: &str, name: &str, address: CodeAddress) {
        let key = (dll.to_ascii_lowercase(), name.to_owned());
        self.imports.registered.write().insert(key, address.get());
    }

    /// [`register_import`](Self::register_import) for a whole table.
    pub fn register_imports(&self, dll: &str, table: &[ShimEntry]) {
        for entry in table {
            self.register_import(dll, entry.name, entry.address);
        }
    }

    /// Address of a kernel routine by name, as `MmGetSystemRoutineAddress` finds it.
    #[doc(alias = "MmGetSystemRoutineAddress")]
    pub fn system_routine(&self, name: &str) -> Option<usize> {
        self.imports.resolve_kernel("ntoskrnl.exe", &Symbol::Name(name.to_owned()))
    }

    /// Names of the kernel routines that this crate has.
    pub fn kernel_routines() -> Vec<&'static str> {
        let mut names: Vec<_> = kernel_exports().keys().copied().collect();
        names.sort_unstable();
        names
    }
}
