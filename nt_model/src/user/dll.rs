//! User-mode DLLs: loaded per process, with the modules and procedures that they can ask for.

use std::path::Path;
use std::sync::Arc;

use super::eventing::EVENTING;
use super::guard::{AccessViolation, try_user};
use super::kernel32::KERNEL32;
use crate::callback;
use crate::image::{Image, ImageKind, LoadError, LoadOptions, Symbol};
use crate::kernel::Machine;
use crate::shim::ShimEntry;
use crate::shims::crt;
use crate::user::process::Process;

/// DLLs of the system that have functions here.
const SYSTEM: &[(&str, &[&[ShimEntry]])] = &[
    ("kernel32.dll", &[KERNEL32]),
    ("kernelbase.dll", &[KERNEL32]),
    ("advapi32.dll", &[EVENTING]),
    ("ntdll.dll", &[crt::CRT, crt::CRT_ALIASES]),
    ("msvcrt.dll", &[crt::CRT]),
    ("vcruntime140.dll", &[crt::CRT]),
];

/// Module handles of system DLLs: numbers that no image has as its base.
const SYSTEM_MODULE: usize = 0x7FF8_0000_0000;

/// Why a DLL was not loaded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DllError {
    /// The file is not good.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// Its entry point returned FALSE.
    #[error("DllMain refused to attach")]
    Refused,
    /// Its entry point crashed.
    #[error("DllMain: {0}")]
    Crashed(#[from] AccessViolation),
}

/// A DLL's name in lower case with its extension. API sets stand for what they are parts of: `api-ms-win-core-…` for
/// kernel32, `api-ms-win-eventing-provider-…` for advapi32.
fn canonical(name: &str) -> String {
    let mut name = name.to_ascii_lowercase();
    if !name.ends_with(".dll") {
        name.push_str(".dll");
    }
    const SETS: &[(&str, &str)] =
        &[("api-ms-win-core-", "kernel32.dll"), ("api-ms-win-eventing-provider-", "advapi32.dll")];
    let set = SETS.iter().find(|(prefix, _)| name.starts_with(prefix));
    set.map_or(name, |(_, whole)| (*whole).to_owned())
}

fn system(dll: &str, name: &str) -> Option<usize> {
    let (_, tables) = SYSTEM.iter().find(|(known, _)| *known == dll)?;
    tables.iter().flat_map(|table| table.iter()).find(|entry| entry.name == name).map(|entry| entry.address.get())
}

impl Machine {
    /// Loads a DLL file into a process and calls its entry point, on the calling thread.
    ///
    /// Imports are found among the functions here and those registered with
    /// [`register_imports`](Self::register_imports), which come first.
    ///
    /// # Errors
    /// [`DllError`].
    pub fn load_dll(&self, process: &Process, path: &Path, options: &LoadOptions) -> Result<Arc<Image>, DllError> {
        let file = std::fs::read(path).map_err(|error| LoadError::Io(error.to_string()))?;
        let name = path.file_name().map_or_else(|| "driver.dll".to_owned(), |name| name.to_string_lossy().into_owned());
        self.load_dll_bytes(process, &name, &file, options)
    }

    /// [`load_dll`](Self::load_dll) from memory.
    ///
    /// # Errors
    /// [`DllError`].
    pub fn load_dll_bytes(
        &self,
        process: &Process,
        name: &str,
        file: &[u8],
        options: &LoadOptions,
    ) -> Result<Arc<Image>, DllError> {
        let resolve = |dll: &str, symbol: &Symbol| match symbol {
            Symbol::Name(name) => self.user_import(&canonical(dll), name),
            Symbol::Ordinal(_) => None,
        };
        let image = Arc::new(self.load_image(name, file, ImageKind::User, options, &resolve)?);
        self.images.add(image.clone());
        process.modules.lock().push(image.clone());
        const ATTACH: usize = 1;
        if let Some(entry) = image.entry_point() {
            let _at = self.enter_process(process);
            let attached = try_user(|| callback::invoke(entry, [image.base(), ATTACH, 0]));
            // CAST: a BOOL is the low half of the return register.
            if attached? as u32 == 0 {
                return Err(DllError::Refused);
            }
        }
        Ok(image)
    }

    fn user_import(&self, dll: &str, name: &str) -> Option<usize> {
        self.imports.resolve_registered(dll, name).or_else(|| system(dll, name))
    }

    /// Unloads the DLLs of a process that has ended. No thread may be in their code.
    pub fn unload_dlls(&self, process: &Process) {
        for image in process.modules.lock().drain(..) {
            self.images.remove(&image);
            image.mapped.unmap(self);
        }
    }

    /// `GetModuleHandle` in the current process.
    pub(crate) fn module_handle(&self, name: Option<&str>) -> Option<usize> {
        let process = self.current_process();
        let modules = process.modules.lock();
        // The first image stands for the program.
        let Some(name) = name else { return modules.first().map(|image| image.base()) };
        let name = canonical(name.rsplit(['\\', '/']).next().unwrap_or_default());
        if let Some(image) = modules.iter().find(|image| image.name().eq_ignore_ascii_case(&name)) {
            return Some(image.base());
        }
        if let Some(at) = SYSTEM.iter().position(|(known, _)| *known == name) {
            return Some(SYSTEM_MODULE + at);
        }
        self.imports.dlls().iter().position(|known| *known == name).map(|at| SYSTEM_MODULE + SYSTEM.len() + at)
    }

    /// `GetProcAddress` in the current process.
    pub(crate) fn procedure(&self, module: usize, name: &str) -> Option<usize> {
        let process = self.current_process();
        if let Some(image) = process.modules.lock().iter().find(|image| image.base() == module) {
            return image.export(name);
        }
        let at = module.checked_sub(SYSTEM_MODULE)?;
        match SYSTEM.get(at) {
            Some((dll, _)) => self.user_import(dll, name),
            None => self.user_import(self.imports.dlls().get(at - SYSTEM.len())?, name),
        }
    }
}
