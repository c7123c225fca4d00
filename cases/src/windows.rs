//! [`System`] over Windows: gdi32, kernel32, and `fencepost_umd.dll`. Compiled on Linux; Wine starts it, and rehearses
//! the processes of the demo (`windows/actor.rs`); Windows has not run it.
#![expect(unsafe_code, reason = "functions of gdi32 and kernel32")]

pub mod actor;
pub mod d3d;

use crate::apart::Act;
use crate::client::{Adapter, Inside, Refused};
use crate::{Process, System};
use anyhow::{Context, Result, bail, ensure};
use std::ffi::{CString, c_char, c_void};
use std::iter::once;
use std::os::windows::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::ptr;
use std::time::Duration;
use umd_core::ffi::FpUmdTable;
use umd_core::ffi::types::FP_INTERFACE_VERSION;
use wddm_abi::ntstatus::STATUS_PROCEDURE_NOT_FOUND;
use wddm_abi::{HANDLE, NTSTATUS, winfn};

const WAIT_OBJECT_0: u32 = 0;

#[link(name = "kernel32", kind = "raw-dylib")]
unsafe extern "system" {
    fn LoadLibraryW(name: *const u16) -> *mut c_void;
    fn FreeLibrary(module: *mut c_void) -> i32;
    fn GetProcAddress(module: *mut c_void, name: *const c_char) -> *const c_void;
    fn CreateEventA(attributes: *const c_void, manual: i32, set: i32, name: *const c_char) -> HANDLE;
    fn WaitForSingleObject(handle: HANDLE, milliseconds: u32) -> u32;
    fn CloseHandle(handle: HANDLE) -> i32;
}

/// A library that stays loaded.
#[derive(Clone, Copy)]
pub(crate) struct Library(*mut c_void);

impl Library {
    pub(crate) fn load(path: &Path) -> Result<Self> {
        let name: Vec<u16> = path.as_os_str().encode_wide().chain(once(0)).collect();
        // SAFETY: a name that ends in a zero.
        let module = unsafe { LoadLibraryW(name.as_ptr()) };
        ensure!(!module.is_null(), "{} does not load: {}", path.display(), std::io::Error::last_os_error());
        Ok(Self(module))
    }

    /// Lets it go. Nothing of it is used any more.
    fn unload(self) -> Result<()> {
        // SAFETY: a module that was loaded here; the caller uses nothing of it behind this.
        let gone = unsafe { FreeLibrary(self.0) };
        ensure!(gone != 0, "the library does not unload: {}", std::io::Error::last_os_error());
        Ok(())
    }

    /// The address of an export; null when there is none.
    pub(crate) fn export(self, name: &str) -> *const c_void {
        let Ok(name) = CString::new(name) else { return ptr::null() };
        // SAFETY: a module that stays loaded, and a name that ends in a zero.
        unsafe { GetProcAddress(self.0, name.as_ptr()) }
    }
}

/// The hidden command of a process that plays an act.
pub const ACT: &str = "act";

/// This machine.
pub struct Windows {
    table: FpUmdTable,
    /// The user-mode driver's file.
    umd: PathBuf,
    gdi32: Library,
    /// `TdrDelay`.
    tdr_delay: Duration,
    /// What the driver has under its registry key.
    settings: Vec<(String, u32)>,
}

impl Windows {
    /// This machine, with the user-mode driver in the file `umd`. `settings` is what its registry says, `TdrDelay`
    /// likewise.
    ///
    /// # Errors
    /// When a library does not load, or is of another version.
    pub fn new(umd: &Path, tdr_delay: Duration, settings: Vec<(String, u32)>) -> Result<Self> {
        let (driver, gdi32) = (Library::load(umd)?, Library::load(Path::new("gdi32.dll"))?);
        // SAFETY: addresses of the exports with these names, of a library that stays loaded; the version is asked for
        // before anything else is called.
        let table = unsafe { FpUmdTable::from_exports(|name| driver.export(name)) };
        let table = match table {
            Ok(table) => table,
            Err(name) => bail!("{} does not export {name}", umd.display()),
        };
        let version = table.fp_interface_version;
        // SAFETY: the function takes nothing.
        let version = unsafe { version() };
        ensure!(version == FP_INTERFACE_VERSION, "{} has version {version} of the interface", umd.display());
        Ok(Self { table, umd: umd.to_owned(), gdi32, tdr_delay, settings })
    }

    /// Opens the first adapter of this driver.
    ///
    /// # Errors
    /// Those of `fp_adapter_open`.
    pub fn open(&self) -> Result<Adapter, Refused> {
        Adapter::open(self.table, Box::new(Here), None, 0, 0)
    }
}

/// Every thread is in the one process.
struct Here;

impl Inside for Here {
    fn inside(&self, f: &mut dyn FnMut()) {
        f();
    }
}

impl System for Windows {
    fn process(&self, _name: &str, _trusted: bool) -> Result<Box<dyn Process>> {
        let adapter = self.open().context("no adapter of this driver")?;
        Ok(Box::new(This { adapter, gdi32: self.gdi32 }))
    }

    fn apart(&self, act: &'static Act, numbers: &[u64]) -> Result<()> {
        let program = std::env::current_exe().context("this program's file")?;
        let mut command = Command::new(program);
        command.arg(ACT).arg("--umd").arg(&self.umd).arg(act.name);
        let status = command.args(numbers.iter().map(u64::to_string)).status().context("it does not start")?;
        ensure!(status.success(), "the process of the act {} ended with {status}", act.name);
        Ok(())
    }

    fn tdr_delay(&self) -> Duration {
        self.tdr_delay
    }

    fn setting(&self, name: &str) -> Option<u32> {
        self.settings.iter().find(|(of, _)| of.eq_ignore_ascii_case(name)).map(|(_, value)| *value)
    }
}

/// The calling process.
struct This {
    adapter: Adapter,
    gdi32: Library,
}

impl Process for This {
    fn adapter(&self) -> &Adapter {
        &self.adapter
    }

    unsafe fn thunk(&self, name: &'static str, record: *mut c_void) -> NTSTATUS {
        let at = self.gdi32.export(name);
        // SAFETY: null, or the address of the export with this name, which takes its record's address.
        let thunk = unsafe { std::mem::transmute::<*const c_void, Option<winfn!(fn(*mut c_void) -> NTSTATUS)>>(at) };
        // SAFETY: the caller's promise.
        thunk.map_or(STATUS_PROCEDURE_NOT_FOUND, |thunk| unsafe { thunk(record) })
    }

    fn load(&self, address: usize) -> Result<u64> {
        ensure!(address != 0 && address.is_multiple_of(8), "nothing is at {address:#x}");
        // SAFETY: an address that the OS gave out; what is not there any more ends the process, as documented.
        Ok(unsafe { ptr::with_exposed_provenance::<u64>(address).read_volatile() })
    }

    fn store(&self, address: usize, value: u64) -> Result<()> {
        ensure!(address != 0 && address.is_multiple_of(8), "nothing is at {address:#x}");
        // SAFETY: an address that the OS gave out; what is not there any more ends the process, as documented.
        unsafe { ptr::with_exposed_provenance_mut::<u64>(address).write_volatile(value) };
        Ok(())
    }

    fn exports(&self, name: &str) -> bool {
        !self.gdi32.export(name).is_null()
    }

    fn event(&self) -> Result<u64> {
        // SAFETY: no security attributes and no name; auto-reset, not set.
        let event = unsafe { CreateEventA(ptr::null(), 0, 0, ptr::null()) };
        ensure!(!event.is_null(), "no event: {}", std::io::Error::last_os_error());
        Ok(event.expose_provenance() as u64)
    }

    fn wait_event(&self, event: u64, limit: Duration) -> bool {
        // All ones would be for ever.
        let milliseconds = u32::try_from(limit.as_millis()).unwrap_or(u32::MAX).min(u32::MAX - 1);
        // CAST: a handle.
        let handle = ptr::with_exposed_provenance_mut(event as usize);
        // SAFETY: any handle value may be passed; one that cannot be waited for is refused.
        unsafe { WaitForSingleObject(handle, milliseconds) == WAIT_OBJECT_0 }
    }

    fn close(&self, event: u64) {
        // CAST: a handle.
        let handle = ptr::with_exposed_provenance_mut(event as usize);
        // SAFETY: any handle value may be passed; one that is not open is refused.
        unsafe { CloseHandle(handle) };
    }
}

/// The user-mode driver's file: the one that is named; else the one beside the program; else the one in `out`.
pub fn user_mode_driver(named: Option<&Path>) -> PathBuf {
    const NAME: &str = "fencepost_umd.dll";
    let beside = || std::env::current_exe().ok().map(|program| program.with_file_name(NAME));
    let is_there = |path: &PathBuf| path.exists();
    named.map(Path::to_owned).or_else(|| beside().filter(is_there)).unwrap_or_else(|| Path::new("out").join(NAME))
}

/// How a program ends: 0 where all held, 1 where something did not, 2 behind an error, which it prints.
pub fn exit(program: &str, held: Result<bool>) -> ExitCode {
    match held {
        Ok(held) => u8::from(!held).into(),
        Err(error) => {
            eprintln!("{program}: {error:#}");
            2.into()
        }
    }
}
