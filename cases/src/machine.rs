//! What a Windows machine is, as far as this driver is concerned: its build, its adapters with their driver models,
//! what gdi32 exports, and what is missing. Compiled on Linux; under Wine it says what Wine lacks.
#![expect(unsafe_code, reason = "functions of gdi32 and ntdll")]

use crate::windows::Library;
use serde::Serialize;
use std::ffi::{CStr, c_char, c_void};
use std::fmt;
use std::path::Path;
use umd_core::thunks::Thunk;
use wddm_abi::{
    D3DKMT_ADAPTERINFO, D3DKMT_ADAPTERREGISTRYINFO, D3DKMT_CLOSEADAPTER, D3DKMT_ENUMADAPTERS2, D3DKMT_ENUMADAPTERS3,
    D3DKMT_HANDLE, D3DKMT_QUERYADAPTERINFO, D3DKMT_WDDM_2_7_CAPS, D3DKMT_WDDM_3_1_CAPS, KMTQUERYADAPTERINFOTYPE,
    NTSTATUS, Plain, winfn,
};

/// The first build whose Dxgkrnl has doorbells and native fences: Windows 11 24H2.
const BUILD: u32 = 26100;
/// What lists adapters that only compute, too.
const NEWER: &str = "D3DKMTEnumAdapters3";
/// What the INFs call the adapter.
const NAME: &str = "Fencepost";

/// A machine.
#[derive(Debug, Serialize)]
pub struct Machine {
    /// The build of Windows, as `RtlGetVersion` says it.
    pub build: u32,
    /// Wine's version, where it is Wine.
    pub wine: Option<String>,
    /// Its adapters; empty where they cannot be enumerated.
    pub adapters: Vec<Adapter>,
    /// Why adapters cannot be enumerated.
    pub no_adapters: Option<String>,
    /// Functions of before 24H2 that the user-mode driver calls and gdi32 lacks.
    pub without: Vec<&'static str>,
    /// Functions of 24H2 that gdi32 lacks: then work is submitted through the kernel.
    pub without_new: Vec<&'static str>,
}

/// An adapter.
#[derive(Debug, Serialize)]
pub struct Adapter {
    /// Its locally unique id.
    pub luid: u64,
    /// Its name in the registry.
    pub name: String,
    /// Its driver model, 3200 for WDDM 3.2; `None` where it does not say.
    pub driver_model: Option<u32>,
    /// Hardware scheduling, supported and on; `None` where it does not say.
    pub hardware_scheduling: Option<(bool, bool)>,
    /// Native fences.
    pub native_fences: Option<bool>,
}

#[link(name = "ntdll", kind = "raw-dylib")]
unsafe extern "system" {
    fn RtlGetVersion(version: *mut [u32; 71]) -> NTSTATUS;
}

/// The build of Windows.
fn build() -> u32 {
    // RTL_OSVERSIONINFOEXW has 284 bytes: its size, major, minor, build, ...
    let mut version = [0; 71];
    version[0] = 284;
    // SAFETY: a live record that begins with its size.
    let _always = unsafe { RtlGetVersion(&raw mut version) };
    version[3]
}

/// Wine's version; `None` on Windows.
fn wine() -> Option<String> {
    let at = Library::load(Path::new("ntdll.dll")).ok()?.export("wine_get_version");
    // SAFETY: null, or Wine's function of this name, which takes nothing and returns a constant text.
    let version = unsafe { std::mem::transmute::<*const c_void, Option<winfn!(fn() -> *const c_char)>>(at) }?;
    // SAFETY: Wine's function; it takes nothing.
    let text = unsafe { version() };
    // SAFETY: a constant text with a terminator.
    Some(unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
}

/// gdi32.
struct Gdi32(Library);

impl Gdi32 {
    /// Calls a function that takes a record.
    fn call<T: Plain>(&self, name: &'static str, record: &mut T) -> Result<(), String> {
        let at = self.0.export(name);
        // SAFETY: null, or the address of the export with this name, which takes its record's address.
        let thunk = unsafe { std::mem::transmute::<*const c_void, Option<winfn!(fn(*mut c_void) -> NTSTATUS)>>(at) };
        let Some(thunk) = thunk else { return Err(format!("gdi32 does not export {name}")) };
        let at: *mut T = record;
        // SAFETY: a live record of the type that the caller names the function by, whose pointers are live.
        let status = unsafe { thunk(at.cast()) };
        if status.is_success() { Ok(()) } else { Err(format!("{name} returned {status:?}")) }
    }

    /// What an adapter answers to a query; `None` where it does not.
    fn query<T: Plain>(&self, adapter: D3DKMT_HANDLE, kind: KMTQUERYADAPTERINFOTYPE, mut answer: T) -> Option<T> {
        let mut record = D3DKMT_QUERYADAPTERINFO {
            hAdapter: adapter,
            Type: kind,
            pPrivateDriverData: (&raw mut answer).cast(),
            // CAST: some hundreds of bytes.
            PrivateDriverDataSize: size_of::<T>() as u32,
            ..D3DKMT_QUERYADAPTERINFO::zeroed()
        };
        self.call("D3DKMTQueryAdapterInfo", &mut record).ok()?;
        Some(answer)
    }

    fn adapters(&self) -> Result<Vec<Adapter>, String> {
        let mut list = vec![D3DKMT_ADAPTERINFO::zeroed(); 64];
        // CAST: 64.
        let (room, array) = (list.len() as u32, list.as_mut_ptr());
        // The older call may leave out adapters that only compute, as one form of the driver is.
        let count = if self.0.export(NEWER).is_null() {
            let mut record = D3DKMT_ENUMADAPTERS2::zeroed();
            (record.NumAdapters, record.pAdapters) = (room, array);
            self.call("D3DKMTEnumAdapters2", &mut record)?;
            record.NumAdapters
        } else {
            let mut record = D3DKMT_ENUMADAPTERS3::zeroed();
            record.Filter.set_IncludeComputeOnly(true);
            (record.NumAdapters, record.pAdapters) = (room, array);
            self.call(NEWER, &mut record)?;
            record.NumAdapters
        };
        list.truncate(count as usize);
        Ok(list.iter().map(|info| self.adapter(info)).collect())
    }

    fn adapter(&self, info: &D3DKMT_ADAPTERINFO) -> Adapter {
        let handle = info.hAdapter;
        let of = |kind| KMTQUERYADAPTERINFOTYPE(kind);
        let names = self.query(handle, of(8), D3DKMT_ADAPTERREGISTRYINFO::zeroed());
        let name = names.map_or_else(String::new, |names| {
            let end = names.AdapterString.iter().position(|unit| *unit == 0).unwrap_or(names.AdapterString.len());
            String::from_utf16_lossy(&names.AdapterString[..end])
        });
        let caps = self.query(handle, of(70), D3DKMT_WDDM_2_7_CAPS::zeroed());
        let fences = self.query(handle, of(80), D3DKMT_WDDM_3_1_CAPS::zeroed());
        let adapter = Adapter {
            luid: u64::from(info.AdapterLuid.LowPart) | u64::from(info.AdapterLuid.HighPart.cast_unsigned()) << 32,
            name,
            driver_model: self.query(handle, of(13), 0_u32),
            hardware_scheduling: caps.map(|caps| (caps.HwSchSupported(), caps.HwSchEnabled())),
            native_fences: fences.map(|caps| caps.NativeGpuFenceSupported()),
        };
        let _closed = self.call("D3DKMTCloseAdapter", &mut D3DKMT_CLOSEADAPTER { hAdapter: handle });
        adapter
    }
}

impl Machine {
    /// Looks at this machine.
    pub fn look() -> Self {
        let gdi32 = Library::load(Path::new("gdi32.dll")).map(Gdi32).map_err(|error| format!("{error:#}"));
        let adapters = gdi32.as_ref().map_err(Clone::clone).and_then(Gdi32::adapters);
        let (no_adapters, adapters) = match adapters {
            Ok(list) => (None, list),
            Err(why) => (Some(why), Vec::new()),
        };
        let lacks = |thunk: &&Thunk| gdi32.as_ref().is_ok_and(|gdi32| gdi32.0.export(thunk.name()).is_null());
        let (new, old): (Vec<Thunk>, Vec<Thunk>) =
            Thunk::ALL.iter().filter(lacks).copied().partition(|thunk| thunk.is_optional());
        let names = |thunks: Vec<Thunk>| thunks.into_iter().map(Thunk::name).collect();
        Self { build: build(), wine: wine(), adapters, no_adapters, without: names(old), without_new: names(new) }
    }

    /// What the driver's cases cannot be played without, and this machine lacks, in a sentence.
    pub fn missing(&self) -> Option<String> {
        if let Some(version) = &self.wine {
            return Some(format!("this is Wine {version}, which runs no display driver: the cases want Windows"));
        }
        if let Some(why) = &self.no_adapters {
            return Some(format!("adapters cannot be enumerated: {why}"));
        }
        if self.adapters.iter().all(|adapter| !adapter.name.starts_with(NAME)) {
            return Some(format!("no adapter is called {NAME}: install the driver (docs/windows.md)"));
        }
        None
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "machine   Windows build {}", self.build)?;
        match &self.wine {
            Some(version) => writeln!(f, ", played by Wine {version}")?,
            None if self.build < BUILD => writeln!(f, ": before {BUILD}, whose Dxgkrnl the driver is for")?,
            None => writeln!(f)?,
        }
        for adapter in &self.adapters {
            write!(f, "adapter   {} (LUID {:#x})", adapter.name, adapter.luid)?;
            if let Some(model) = adapter.driver_model {
                write!(f, ", WDDM {}.{}", model / 1000, model / 100 % 10)?;
            }
            if let Some((supported, enabled)) = adapter.hardware_scheduling {
                let state = ["not supported", "supported, off", "on"][usize::from(supported) + usize::from(enabled)];
                write!(f, ", hardware scheduling {state}")?;
            }
            if let Some(fences) = adapter.native_fences {
                write!(f, ", {} native fences", if fences { "with" } else { "without" })?;
            }
            writeln!(f)?;
        }
        for (what, names) in [("of before 24H2", &self.without), ("of 24H2", &self.without_new)] {
            if !names.is_empty() {
                writeln!(f, "gdi32     lacks ({what}): {}", names.join(", "))?;
            }
        }
        match self.missing() {
            Some(what) => writeln!(f, "missing   {what}"),
            None => Ok(()),
        }
    }
}
