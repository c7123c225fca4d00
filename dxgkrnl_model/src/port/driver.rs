//! Loading a driver: its entry point, `DxgkInitialize`, its end.
//!
//! A loaded image finds `DxgkInitialize` as on Windows, by displib's handshake: it opens `\Device\DxgKrnl` and sends
//! one of two internal control codes, each of which answers with the function's address. A native driver is given the
//! address.
//!
//! A display-only driver has a request of its own, which answers with the address of
//! `DxgkInitializeDisplayOnlyDriver`, and a table of its own, whose functions are all in the other table, too.
//!
//! Source: DDI pages DxgkInitialize and DxgkInitializeDisplayOnlyDriver; the handshake is not documented
//! (`docs/decisions/0001-cross-build.md`), and the request of display-only drivers is the one that the image of such a
//! driver was seen to send.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use nt_model::io::Driver as NtDriver;
use nt_model::{Image, In, LoadError, LoadOptions, shims};
use wddm_abi::slots::{
    DRIVER_INITIALIZATION_DATA_SIZES, DRIVER_INITIALIZATION_DATA_SLOTS, KMDDOD_INITIALIZATION_DATA_SLOTS,
};
use wddm_abi::{
    DEVICE_OBJECT, DRIVER_INITIALIZATION_DATA, DRIVER_OBJECT, DXGK_WDDMVERSION, KMDDOD_INITIALIZATION_DATA, NTSTATUS,
    Plain, ntstatus,
};

use crate::port::ddi;
use crate::port::miniport::Miniport;
use crate::port::personality::handshake::Requests;
use crate::port::rules::slot::INIT_INSIDE;
use crate::port::rules::start::{INIT_STATUS, INIT_UNLOAD, INIT_VERSION};
use crate::port::shared::Shared;
use crate::port::sync::{Lock, Rank};

/// Internal control codes that are answered with the address of a `DxgkInitialize`: that of Windows 7, and that of
/// Windows 8 and later. Source: public filter drivers; no Microsoft document.
const OLDER_REQUEST: u32 = 0x0023_003F;
const NEWER_REQUEST: u32 = 0x0023_0047;
/// The same for a display-only driver.
const DISPLAY_ONLY_REQUEST: u32 = 0x0023_0043;
/// `DRIVER_INITIALIZATION_DATA.Version` of WDDM 2.0, from which on [`Requests::OlderForOldTables`] refuses.
const WDDM_2_0: u32 = wddm_abi::DXGKDDI_INTERFACE_VERSION_WDDM2_0;
/// `IRP_MJ_INTERNAL_DEVICE_CONTROL`.
const INTERNAL_CONTROL: u8 = 0x0F;

/// What a native driver's entry point gets: what `DriverEntry` and displib have between them.
#[derive(Clone, Copy, Debug)]
pub struct NativeStart {
    driver_object: usize,
    registry_path: usize,
}

impl NativeStart {
    /// The driver object; only to be handed to [`initialize`](Self::initialize).
    pub fn driver_object(&self) -> *mut DRIVER_OBJECT {
        core::ptr::with_exposed_provenance_mut(self.driver_object)
    }

    /// The `UNICODE_STRING` of the driver's registry path, as an address.
    pub fn registry_path(&self) -> usize {
        self.registry_path
    }

    /// `DxgkInitialize`. The table is copied.
    pub fn initialize(&self, table: &DRIVER_INITIALIZATION_DATA) -> NTSTATUS {
        let status = initialize_here(self.driver_object, table.as_bytes());
        if status.is_success() {
            set_unload(self.driver_object);
        }
        status
    }

    /// `DxgkInitializeDisplayOnlyDriver`. The table is copied.
    pub fn initialize_display_only(&self, table: &KMDDOD_INITIALIZATION_DATA) -> NTSTATUS {
        let status = initialize_display_only_here(self.driver_object, table.as_bytes());
        if status.is_success() {
            set_unload(self.driver_object);
        }
        status
    }
}

/// The entry point of a natively linked driver.
pub type NativeEntry = Arc<dyn Fn(&NativeStart) -> NTSTATUS + Send + Sync>;

/// A driver to be loaded.
#[derive(Clone)]
pub enum Driver {
    /// A `.sys` file: its name and its bytes.
    Image(String, Vec<u8>),
    /// Linked into this process: its name and its entry point.
    Native(String, NativeEntry),
    /// Another driver with functions of its table replaced or wrapped, to see a rule broken. The rules about the table
    /// itself judge it as the driver registered it.
    Decorated(Box<Self>, Decorator),
}

/// Replaces or wraps functions of the table that a driver has registered.
pub type Decorator = fn(&mut DRIVER_INITIALIZATION_DATA);

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Image(name, bytes) => write!(f, "Image({name}, {} bytes)", bytes.len()),
            Self::Native(name, _) => write!(f, "Native({name})"),
            Self::Decorated(driver, _) => write!(f, "Decorated({driver:?})"),
        }
    }
}

impl Driver {
    /// A natively linked driver.
    pub fn native(name: &str, entry: impl Fn(&NativeStart) -> NTSTATUS + Send + Sync + 'static) -> Self {
        Self::Native(name.to_owned(), Arc::new(entry))
    }
}

/// Why a driver was not loaded.
#[derive(Debug, thiserror::Error)]
pub enum DriverError {
    /// The image cannot be loaded.
    #[error(transparent)]
    Image(#[from] LoadError),
    /// `DriverEntry` failed; the device manager shows this as Code 37.
    #[error("DriverEntry returned {0:?}")]
    Entry(NTSTATUS),
    /// `DriverEntry` succeeded without `DxgkInitialize`.
    #[error("DriverEntry did not call DxgkInitialize")]
    NotInitialized,
    /// The machine has stopped.
    #[error("the machine has stopped")]
    Stopped,
}

/// What a driver is made of.
enum Body {
    Image(Arc<NtDriver>),
    Native(#[expect(dead_code, reason = "the driver object, which stays where it is")] Box<[u64; 64]>),
}

/// A driver that called `DxgkInitialize`.
pub struct LoadedDriver {
    name: String,
    body: Lock<Option<Body>>,
    object: std::sync::atomic::AtomicUsize,
    table: Lock<Option<DRIVER_INITIALIZATION_DATA>>,
    fixed: std::sync::OnceLock<DRIVER_INITIALIZATION_DATA>,
    initialized: AtomicBool,
    display_only: AtomicBool,
    initialize_status: AtomicI32,
    image: Option<Arc<Image>>,
}

#[expect(unsafe_code, reason = "the table is made of function pointers and never changes once it is fixed")]
// SAFETY: the raw pointers in the table are the driver's functions; calling them from any thread is what they are for.
unsafe impl Send for LoadedDriver {}
#[expect(unsafe_code, reason = "as above")]
// SAFETY: as above; everything that changes is behind locks.
unsafe impl Sync for LoadedDriver {}

impl fmt::Debug for LoadedDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoadedDriver").field("name", &self.name).finish_non_exhaustive()
    }
}

impl LoadedDriver {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The name of its service.
    pub(crate) fn service(&self) -> &str {
        service_of(&self.name)
    }

    /// The image, unless it is native.
    pub fn image(&self) -> Option<&Arc<Image>> {
        self.image.as_ref()
    }

    /// `DRIVER_INITIALIZATION_DATA.Version`.
    pub fn version(&self) -> u32 {
        self.table().Version
    }

    /// Returns whether it called `DxgkInitializeDisplayOnlyDriver`.
    pub fn is_display_only(&self) -> bool {
        self.display_only.load(Ordering::Acquire)
    }

    /// The table. Of a display-only driver: its functions, in their places in this table.
    ///
    /// # Panics
    /// Before [`load`] has returned it: a mistake of this crate.
    pub fn table(&self) -> &DRIVER_INITIALIZATION_DATA {
        // PANIC: documented; `load` sets it before anybody else sees the driver.
        self.fixed.get().expect("a loaded driver has its table")
    }

    /// Address of the driver object; 0 before an image's `DxgkInitialize`.
    pub(crate) fn object(&self) -> usize {
        self.object.load(Ordering::Acquire)
    }

    /// Takes `object` for this driver's, when it is an image that has none yet.
    pub(crate) fn adopt_object(&self, object: usize) -> bool {
        let fresh = self.image.is_some() && self.object() == 0;
        if fresh {
            self.object.store(object, Ordering::Release);
        }
        fresh
    }

    /// Names of the slots that are not NULL.
    pub fn slots(&self) -> Vec<&'static str> {
        let table = self.table().as_bytes();
        let filled = |offset: usize| table[offset..offset + 8] != [0; 8];
        DRIVER_INITIALIZATION_DATA_SLOTS
            .iter()
            .filter(|slot| slot.index != 0 && filled(slot.offset))
            .map(|slot| slot.member)
            .collect()
    }

    /// The physical device object that stands for an adapter's function on the bus: opaque.
    pub(crate) fn physical_device_object(&self, adapter: &Miniport) -> *mut DEVICE_OBJECT {
        core::ptr::with_exposed_provenance_mut(adapter.object.address())
    }
}

/// WDDM version that an interface version implies. Source: the macros and enumerators of one release have one name.
pub(crate) fn wddm_version(interface: u32) -> Option<DXGK_WDDMVERSION> {
    use wddm_abi as m;
    let known = [
        (m::DXGKDDI_INTERFACE_VERSION_WIN8, DXGK_WDDMVERSION::DXGKDDI_WDDMv1_2),
        (m::DXGKDDI_INTERFACE_VERSION_WDDM1_3, DXGK_WDDMVERSION::DXGKDDI_WDDMv1_3),
        (m::DXGKDDI_INTERFACE_VERSION_WDDM2_0, DXGK_WDDMVERSION::DXGKDDI_WDDMv2),
        (m::DXGKDDI_INTERFACE_VERSION_WDDM2_1, DXGK_WDDMVERSION::DXGKDDI_WDDMv2_1),
        (m::DXGKDDI_INTERFACE_VERSION_WDDM2_1_5, DXGK_WDDMVERSION::DXGKDDI_WDDMv2_1_5),
        (m::DXGKDDI_INTERFACE_VERSION_WDDM2_1_6, DXGK_WDDMVERSION::DXGKDDI_WDDMv2_1_6),
        (m::DXGKDDI_INTERFACE_VERSION_WDDM2_2, DXGK_WDDMVERSION::DXGKDDI_WDDMv2_2),
        (m::DXGKDDI_INTERFACE_VERSION_WDDM2_3, DXGK_WDDMVERSION::DXGKDDI_WDDMv2_3),
        (m::DXGKDDI_INTERFACE_VERSION_WDDM2_4, DXGK_WDDMVERSION::DXGKDDI_WDDMv2_4),
        (m::DXGKDDI_INTERFACE_VERSION_WDDM2_5, DXGK_WDDMVERSION::DXGKDDI_WDDMv2_5),
        (m::DXGKDDI_INTERFACE_VERSION_WDDM2_6, DXGK_WDDMVERSION::DXGKDDI_WDDMv2_6),
        (m::DXGKDDI_INTERFACE_VERSION_WDDM2_7, DXGK_WDDMVERSION::DXGKDDI_WDDMv2_7),
        (m::DXGKDDI_INTERFACE_VERSION_WDDM2_8, DXGK_WDDMVERSION::DXGKDDI_WDDMv2_8),
        (m::DXGKDDI_INTERFACE_VERSION_WDDM2_9, DXGK_WDDMVERSION::DXGKDDI_WDDMv2_9),
        (m::DXGKDDI_INTERFACE_VERSION_WDDM3_0, DXGK_WDDMVERSION::DXGKDDI_WDDMv3_0),
        (m::DXGKDDI_INTERFACE_VERSION_WDDM3_1, DXGK_WDDMVERSION::DXGKDDI_WDDMv3_1),
        (m::DXGKDDI_INTERFACE_VERSION_WDDM3_2, DXGK_WDDMVERSION::DXGKDDI_WDDMv3_2),
        // The selector of the 28000 kit; the table is the same (SDK 10.0.28000.2957).
        (0x1_1008, DXGK_WDDMVERSION::DXGKDDI_WDDMv3_2),
    ];
    known.iter().find(|(version, _)| *version == interface).map(|(_, version)| *version)
}

/// Bytes of the table of a driver that registers `version`.
fn table_size(version: u32) -> usize {
    let whole = size_of::<DRIVER_INITIALIZATION_DATA>();
    let sizes = DRIVER_INITIALIZATION_DATA_SIZES.iter().filter(|size| size.value.is_some_and(|value| value <= version));
    sizes.map(|size| size.size).max().unwrap_or(whole).min(whole)
}

/// Loads a driver.
///
/// IRQL: PASSIVE_LEVEL.
///
/// # Errors
/// See [`DriverError`].
pub(crate) fn load(shared: &Arc<Shared>, driver: &Driver) -> Result<Arc<LoadedDriver>, DriverError> {
    let kernel = shared.kernel();
    if shared.personality().faults.allocation != 0 {
        kernel.fail_allocation(shared.personality().faults.allocation);
    }
    let mut driver = driver;
    let mut decorators = Vec::new();
    while let Driver::Decorated(inner, decorate) = driver {
        decorators.push(*decorate);
        driver = inner;
    }
    let loaded = match driver {
        Driver::Image(name, bytes) => {
            let image = kernel.load_driver_bytes(name, bytes, &LoadOptions::default())?;
            load_image(shared, name, &image)?
        }
        Driver::Native(name, entry) => load_native(shared, name, entry)?,
        Driver::Decorated(..) => return Err(DriverError::NotInitialized),
    };
    let table = loaded.table.lock().take();
    match table {
        Some(mut table) => {
            // How much of a display-only driver's table an older kit has is not known.
            if !loaded.is_display_only() {
                judge_places(shared, &loaded, &table);
            }
            decorators.iter().rev().for_each(|decorate| decorate(&mut table));
            let _ = loaded.fixed.set(table);
            Ok(loaded)
        }
        None => Err(DriverError::NotInitialized),
    }
}

fn new_driver(shared: &Arc<Shared>, name: &str, object: usize, image: Option<Arc<Image>>) -> Arc<LoadedDriver> {
    let driver = Arc::new(LoadedDriver {
        name: name.to_owned(),
        body: Lock::new(Rank::Leaf, None),
        object: std::sync::atomic::AtomicUsize::new(object),
        table: Lock::new(Rank::Leaf, None),
        fixed: std::sync::OnceLock::new(),
        initialized: AtomicBool::new(false),
        display_only: AtomicBool::new(false),
        initialize_status: AtomicI32::new(0),
        image,
    });
    shared.add_driver(&driver);
    driver
}

/// What a driver's service is called: as its file, without the end of its name.
fn service_of(name: &str) -> &str {
    name.strip_suffix(".sys").unwrap_or(name)
}

fn load_image(shared: &Arc<Shared>, name: &str, image: &Arc<Image>) -> Result<Arc<LoadedDriver>, DriverError> {
    let service = service_of(name);
    // The object's address is known when DxgkInitialize is called from inside the entry point.
    let driver = new_driver(shared, name, 0, Some(image.clone()));
    let started = shared.kernel().start_driver(image, service);
    let status = match &started {
        Ok(_) => ntstatus::STATUS_SUCCESS,
        Err(nt_model::io::StartError::Status(status)) => NTSTATUS(*status),
        Err(_) => ntstatus::STATUS_SYSTEM_SHUTDOWN,
    };
    match started {
        Ok(started) => {
            *driver.body.lock() = Some(Body::Image(started));
            judge_entry(shared, &driver, status)?;
            Ok(driver)
        }
        Err(_) => {
            let failed = judge_entry(shared, &driver, status);
            shared.remove_driver(&driver);
            shared.kernel().unload_image(image);
            Err(failed.err().unwrap_or(DriverError::Stopped))
        }
    }
}

fn load_native(shared: &Arc<Shared>, name: &str, entry: &NativeEntry) -> Result<Arc<LoadedDriver>, DriverError> {
    let block = Box::new([0_u64; 64]);
    let object = core::ptr::from_ref(&*block).expose_provenance();
    let driver = new_driver(shared, name, object, None);
    *driver.body.lock() = Some(Body::Native(block));
    let start = NativeStart { driver_object: object, registry_path: 0 };
    let inside = crate::port::sync::InDriver::new();
    let entered = shared.kernel().call_driver("DriverEntry", || entry(&start));
    drop(inside);
    let status = entered.unwrap_or(ntstatus::STATUS_SYSTEM_SHUTDOWN);
    let judged = judge_entry(shared, &driver, status);
    if judged.is_err() {
        shared.remove_driver(&driver);
    }
    judged.map(|()| driver)
}

/// Judges whether each function of the table lies in the driver: within its image, or, for a driver that is linked into
/// this process, in any executable memory of the process. A linked driver passes where that memory is not known.
fn judge_places(shared: &Shared, driver: &LoadedDriver, table: &DRIVER_INITIALIZATION_DATA) {
    let code = if driver.image.is_none() { own_code() } else { Vec::new() };
    let inside = |address: usize| match &driver.image {
        Some(image) => image.contains(address),
        None => code.is_empty() || code.iter().any(|range| range.contains(&address)),
    };
    let table = table.as_bytes();
    let slots = DRIVER_INITIALIZATION_DATA_SLOTS.iter().filter(|slot| slot.index != 0);
    let places = slots.filter_map(|slot| {
        let word = table.get(slot.offset..slot.offset + 8)?.first_chunk()?;
        // CAST: an address.
        let address = u64::from_le_bytes(*word) as usize;
        (address != 0 && !inside(address)).then(|| format!("{} is {address:#x}", slot.member))
    });
    let outside: Vec<_> = places.collect();
    shared.kernel().rules.check(&INIT_INSIDE, outside.is_empty(), || outside.join(", "));
}

/// Address ranges of executable memory of this process; empty where `/proc/self/maps` cannot be read.
fn own_code() -> Vec<std::ops::Range<usize>> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let range = |line: &str| {
        let (range, rest) = line.split_once(' ')?;
        let (begin, end) = range.split_once('-')?;
        let address = |text| usize::from_str_radix(text, 16).ok();
        (rest.as_bytes().get(2) == Some(&b'x')).then_some(address(begin)?..address(end)?)
    };
    maps.lines().filter_map(range).collect()
}

/// What `DriverEntry` returned against what `DxgkInitialize` said.
fn judge_entry(shared: &Shared, driver: &LoadedDriver, status: NTSTATUS) -> Result<(), DriverError> {
    if status == ntstatus::STATUS_SYSTEM_SHUTDOWN {
        return Err(DriverError::Stopped);
    }
    let called = driver.initialized.load(Ordering::Acquire);
    let said = NTSTATUS(driver.initialize_status.load(Ordering::Acquire));
    let agrees = !status.is_success() || (called && said.is_success());
    shared.kernel().rules.check(&INIT_STATUS, agrees, || {
        if called {
            format!("DxgkInitialize returned {said:?}, DriverEntry {status:?}")
        } else {
            format!("DxgkInitialize was not called, and DriverEntry returned {status:?}")
        }
    });
    match (status.is_success(), called && said.is_success()) {
        (true, true) => Ok(()),
        (true, false) => Err(DriverError::NotInitialized),
        (false, _) => Err(DriverError::Entry(status)),
    }
}

/// Ends a driver: `DxgkDdiUnload`, the image, leftovers.
///
/// IRQL: PASSIVE_LEVEL. No adapter of it is left.
pub(crate) fn unload(shared: &Arc<Shared>, driver: &Arc<LoadedDriver>) {
    let body = driver.body.lock().take();
    match body {
        Some(Body::Image(nt)) => {
            let unload = nt.object().driver_unload.load(Ordering::Relaxed);
            judge_unload(shared, driver, unload);
            let _ = shared.kernel().unload_driver(&nt);
        }
        Some(Body::Native(_)) => {
            let driver_unload = core::mem::offset_of!(nt_model::records_io::DriverObject, driver_unload);
            judge_unload(shared, driver, crate::port::raw::load(driver.object() + driver_unload) as usize);
            call_unload(shared, driver);
            shared.kernel().check_native_leaks();
        }
        None => (),
    }
    shared.remove_driver(driver);
}

/// Judges whether `DriverObject.DriverUnload` is still Dxgkrnl's, which `DxgkInitialize` put there. Of a driver that
/// did not call it, that is the one thing to say.
fn judge_unload(shared: &Shared, driver: &LoadedDriver, unload: usize) {
    if driver.fixed.get().is_none() {
        return;
    }
    let ours = shims_address("DxgkDriverUnload");
    shared.kernel().rules.check(&INIT_UNLOAD, unload == ours, || {
        format!("DriverObject.DriverUnload is {unload:#x}, Dxgkrnl's is {ours:#x}")
    });
}

fn call_unload(shared: &Shared, driver: &LoadedDriver) {
    let Some(function) = driver.fixed.get().and_then(|table| table.DxgkDdiUnload) else { return };
    let _ = ddi::enter(shared.kernel(), &ddi::DxgkDdiUnload, move || {
        // SAFETY: the slot holds a function of this type.
        #[expect(unsafe_code, reason = "a driver's function is called")]
        unsafe {
            function();
        }
    });
}

/// Registers `\Device\DxgKrnl` and the imports of older libraries.
pub(crate) fn register(shared: &Arc<Shared>) {
    let handshake = shared.personality().handshake;
    let older = match handshake.requests {
        Requests::OlderForOldTables => Some("DxgkInitializeOlder"),
        Requests::Both | Requests::Older => Some("DxgkInitialize"),
        Requests::Newer => None,
    };
    let newer = (handshake.requests != Requests::Older).then_some("DxgkInitialize");
    shared.kernel().register_device("\\Device\\DxgKrnl", move |request| {
        if request.major != INTERNAL_CONTROL {
            // Create, cleanup and close succeed.
            return if matches!(request.major, 0 | 2 | 0x12) { 0 } else { ntstatus::STATUS_INVALID_DEVICE_REQUEST.0 };
        }
        let function = match request.code {
            OLDER_REQUEST => older,
            NEWER_REQUEST => newer,
            DISPLAY_ONLY_REQUEST => Some("DxgkInitializeDisplayOnlyDriver"),
            _ => None,
        };
        match function {
            Some(function) if request.write_pointer(shims_address(function)) => 0,
            Some(_) => ntstatus::STATUS_BUFFER_TOO_SMALL.0,
            None => ntstatus::STATUS_INVALID_DEVICE_REQUEST.0,
        }
    });
    shared.kernel().delay_device("\\Device\\DxgKrnl", handshake.device_after);
}

fn shims_address(name: &str) -> usize {
    ENTRIES.iter().find(|entry| entry.name == name).map_or(0, |entry| entry.address.get())
}

shims! {
    /// What displib finds.
    pub(crate) table ENTRIES;

    fn DxgkInitialize(_machine, driver_object: usize, _registry_path: usize, table: In<[u8; 8]>) -> NTSTATUS {
        let version = u32::from_le_bytes([table.get()[0], table.get()[1], table.get()[2], table.get()[3]]);
        let bytes = crate::port::raw::bytes_at(table.address(), table_size(version));
        let status = initialize_here(driver_object, &bytes);
        if status.is_success() {
            set_unload(driver_object);
        }
        status
    }

    // What answers to the older request where that is for older tables.
    fn DxgkInitializeOlder(_machine, driver_object: usize, _registry_path: usize, table: In<[u8; 8]>) -> NTSTATUS {
        let version = u32::from_le_bytes([table.get()[0], table.get()[1], table.get()[2], table.get()[3]]);
        if version >= WDDM_2_0 {
            return ntstatus::STATUS_REVISION_MISMATCH;
        }
        let status = initialize_here(driver_object, &crate::port::raw::bytes_at(table.address(), table_size(version)));
        if status.is_success() {
            set_unload(driver_object);
        }
        status
    }

    fn DxgkInitializeDisplayOnlyDriver(
        _machine, driver_object: usize, _registry_path: usize, table: In<[u8; 8]>,
    ) -> NTSTATUS {
        let bytes = crate::port::raw::bytes_at(table.address(), size_of::<KMDDOD_INITIALIZATION_DATA>());
        let status = initialize_display_only_here(driver_object, &bytes);
        if status.is_success() {
            set_unload(driver_object);
        }
        status
    }

    fn DxgkDriverUnload(machine, driver_object: usize) {
        let Some(shared) = crate::port::shared::shared_of(machine) else { return };
        if let Some(driver) = shared.driver_by_object(driver_object) {
            call_unload(&shared, &driver);
        }
    }
}

/// Stores Dxgkrnl's unload routine in a driver object.
fn set_unload(driver_object: usize) {
    let driver_unload = core::mem::offset_of!(nt_model::records_io::DriverObject, driver_unload);
    crate::port::raw::store(driver_object + driver_unload, shims_address("DxgkDriverUnload") as u64);
}

/// `DxgkInitializeDisplayOnlyDriver`, for the machine that the calling thread is in.
fn initialize_display_only_here(driver_object: usize, bytes: &[u8]) -> NTSTATUS {
    let mut table = DRIVER_INITIALIZATION_DATA::zeroed();
    for slot in KMDDOD_INITIALIZATION_DATA_SLOTS {
        let place = DRIVER_INITIALIZATION_DATA_SLOTS.iter().find(|other| other.member == slot.member);
        let (Some(place), Some(word)) = (place, bytes.get(slot.offset..slot.offset + 8)) else { continue };
        table.as_bytes_mut()[place.offset..place.offset + 8].copy_from_slice(word);
    }
    let status = initialize_here(driver_object, table.as_bytes());
    let shared = nt_model::Machine::with_current(|machine| machine.and_then(crate::port::shared::shared_of));
    if let Some(driver) = shared.and_then(|shared| shared.loading_driver(driver_object)) {
        driver.display_only.store(true, Ordering::Release);
    }
    status
}

/// `DxgkInitialize`, for the machine that the calling thread is in.
fn initialize_here(driver_object: usize, bytes: &[u8]) -> NTSTATUS {
    let shared = nt_model::Machine::with_current(|machine| machine.and_then(crate::port::shared::shared_of));
    let Some(shared) = shared else { return ntstatus::STATUS_UNSUCCESSFUL };
    let Some(driver) = shared.loading_driver(driver_object) else { return ntstatus::STATUS_INVALID_PARAMETER };
    let mut table = DRIVER_INITIALIZATION_DATA::zeroed();
    let size = bytes.len().min(size_of_val(&table));
    table.as_bytes_mut()[..size].copy_from_slice(&bytes[..size]);
    let known = wddm_version(table.Version);
    let system = shared.personality().build.interface_version();
    // A driver built with the 28000 kit starts on 26100 (seen, not documented): a later selector of a known table
    // passes.
    let holds = shared
        .kernel()
        .rules
        .check(&INIT_VERSION, known.is_some(), || format!("Version {:#x}; the system's is {system:#x}", table.Version));
    let status = if holds { ntstatus::STATUS_SUCCESS } else { ntstatus::STATUS_REVISION_MISMATCH };
    driver.initialized.store(true, Ordering::Release);
    driver.initialize_status.store(status.0, Ordering::Release);
    if holds {
        *driver.table.lock() = Some(table);
    }
    status
}
