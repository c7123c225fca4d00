//! A machine with Fencepost in it: the model, the driver in one of its two forms, and processes that use it.

use crate::client::{Adapter as ClientAdapter, Inside, NativeThunks, Refused};
use crate::dump::{self, Moment};
use crate::events;
use crate::separate::Separate;
use crate::setting::{self, Assignment};
use anyhow::{Context, Result};
use dxgkrnl_model::adapter::{Adapter, AdapterConfig};
pub use dxgkrnl_model::driver::Decorator;
use dxgkrnl_model::driver::{Driver, LoadedDriver};
use dxgkrnl_model::os::Os;
use dxgkrnl_model::personality::Personality;
use dxgkrnl_model::process::{End, Process};
use nt_model::{LoadOptions, Machine};
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use umd_core::ffi::FpUmdTable;

/// What runs: the files that ship, or the same code linked in.
#[derive(Clone)]
pub enum Form {
    /// `fencepost.sys` and `fencepost_umd.dll`.
    Image(Arc<Images>),
    /// `kmd_native` and `umd_core`.
    Native,
    /// `kmd_native` with functions of its table replaced or wrapped, and `umd_core`: a test makes a mistake so, without
    /// code for it in the product.
    Decorated(Decorator),
    /// The files that ship, with functions of the driver's table replaced or wrapped.
    DecoratedImage(Arc<Images>, Decorator),
    /// `kmd_native`, and `umd_core` with the step of this number done wrong (`umd_core::mutation`): in tests, since
    /// what `./x` builds has no such steps.
    UserModeMutant(u32),
}

/// The two files, as they were read.
pub struct Images {
    /// `fencepost.sys`.
    pub driver: File,
    /// `fencepost_umd.dll`.
    pub umd: File,
}

/// A file.
pub struct File {
    /// Where it was.
    pub path: PathBuf,
    /// What was in it.
    pub bytes: Vec<u8>,
}

impl File {
    fn read(path: &Path) -> Result<Self> {
        let bytes = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        Ok(Self { path: path.to_owned(), bytes })
    }

    /// SHA-256 in hexadecimal.
    pub fn sha256(&self) -> String {
        hex(&Sha256::digest(&self.bytes))
    }

    fn name(&self) -> String {
        self.path.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }
}

/// Bytes in hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::new(), |mut text, byte| {
        // A string takes every write.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

impl Images {
    /// Reads both from `folder`.
    ///
    /// # Errors
    /// When one cannot be read; `./x image` makes them.
    pub fn read(folder: &Path) -> Result<Self> {
        let read = |name| File::read(&folder.join(name)).context("the driver has not been built: ./x image builds it");
        Ok(Self { driver: read("fencepost.sys")?, umd: read("fencepost_umd.dll")? })
    }
}

impl Form {
    /// The name that JSON files carry.
    pub fn mode(&self) -> &'static str {
        match self {
            Self::Image(_) | Self::DecoratedImage(..) => "image",
            Self::Native | Self::Decorated(_) | Self::UserModeMutant(_) => "native",
        }
    }

    fn driver(&self) -> Driver {
        match self {
            Self::Image(images) => Driver::Image(images.driver.name(), images.driver.bytes.clone()),
            Self::Native | Self::UserModeMutant(_) => {
                Driver::native("fencepost", |start| start.initialize(&kmd_native::entry_table()))
            }
            Self::Decorated(decorate) => Driver::Decorated(Box::new(Self::Native.driver()), *decorate),
            Self::DecoratedImage(images, decorate) => {
                Driver::Decorated(Box::new(Self::Image(images.clone()).driver()), *decorate)
            }
        }
    }
}

/// A machine with the driver loaded. Dropping it shuts it down.
pub struct World {
    form: Form,
    /// The driver.
    pub driver: Arc<LoadedDriver>,
    /// The machine.
    pub os: Os,
}

impl World {
    /// Boots a machine and loads the driver.
    ///
    /// # Errors
    /// When the driver does not load.
    pub fn boot(form: &Form, personality: Personality) -> Result<Self> {
        Self::boot_with(form, personality, &[])
    }

    /// The same, with values under the service's key. Those of an adapter among `settings` are left out.
    ///
    /// # Errors
    /// When the driver does not load.
    pub fn boot_with(form: &Form, personality: Personality, settings: &[Assignment]) -> Result<Self> {
        Self::boot_decorated(form, personality, settings, None)
    }

    /// The same, with functions of the driver's table replaced or wrapped by `decorate`.
    ///
    /// # Errors
    /// When the driver does not load.
    pub fn boot_decorated(
        form: &Form,
        personality: Personality,
        settings: &[Assignment],
        decorate: Option<Decorator>,
    ) -> Result<Self> {
        let driver = match decorate {
            Some(decorate) => Driver::Decorated(Box::new(form.driver()), decorate),
            None => form.driver(),
        };
        let os = Os::boot(personality).context("the start transcript is not understood")?;
        dump::watch(&os);
        events::watch(&os);
        setting::set_service(&os, settings);
        let driver = os.load_driver(&driver).context("the driver does not load")?;
        Ok(Self { form: form.clone(), driver, os })
    }

    /// Adds and starts an adapter.
    ///
    /// # Errors
    /// When it does not start.
    pub fn adapter(&self, mut config: AdapterConfig) -> Result<Arc<Adapter>> {
        if self.os.seeded_scheduler().is_some() {
            // The machine's clock is not this one's: the processor's time-stamp counter tells another time.
            config.registry.entry("TimeStamps".to_owned()).or_insert_with(|| setting::registry_value(0));
        }
        self.os.add_adapter(&self.driver, config).context("the adapter does not start")
    }

    /// Makes a process and loads the user-mode driver into it.
    ///
    /// # Errors
    /// When the library does not load or lacks an export.
    pub fn process(&self, name: &str) -> Result<User> {
        let process = Arc::new(self.os.create_process(name));
        let table = match &self.form {
            Form::Native | Form::Decorated(_) | Form::UserModeMutant(_) => *umd_core::c_abi_table!(NativeThunks),
            Form::Image(images) | Form::DecoratedImage(images, _) => load(&process, &images.umd)?,
        };
        let mutant = if let Form::UserModeMutant(mutant) = self.form { mutant } else { 0 };
        Ok(User { process, table, mutant })
    }
}

impl World {
    /// Starts a process of its own that plays `role`, with the user-mode driver in the form that the driver has.
    ///
    /// # Errors
    /// When the machine was booted without `separate_processes`, or the process does not come up.
    pub fn separate(&self, role: &str) -> Result<Separate> {
        let process = Arc::new(self.os.create_process(role));
        let driver = match &self.form {
            Form::Image(images) | Form::DecoratedImage(images, _) => Some(&*images.umd.bytes),
            Form::Native | Form::Decorated(_) | Form::UserModeMutant(_) => None,
        };
        Separate::start(self.os.kernel(), process, role, driver)
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.os.kernel().dump_moment(Moment::Ended, "the machine before it was shut down");
    }
}

/// Loads the library into a process; the table of its exports.
#[expect(unsafe_code, reason = "addresses of exports become functions")]
fn load(process: &Process, file: &File) -> Result<FpUmdTable> {
    let _inside = process.enter();
    let image = Machine::with_current(|machine| {
        let machine = machine.context("the thread has just entered")?;
        let options = LoadOptions::default();
        machine
            .load_dll_bytes(process.nt(), &file.name(), &file.bytes, &options)
            .context("the user-mode driver does not load")
    })?;
    let find = |name: &'static str| {
        let address = image.export(name).unwrap_or(0);
        std::ptr::with_exposed_provenance(address)
    };
    // SAFETY: the exports of this image, which stays loaded as long as its process; their types are those of this
    // crate's interface version, which `fp_adapter_open` is preceded by a check of (the first export).
    let table = unsafe { FpUmdTable::from_exports(find) };
    table.map_err(|name| anyhow::anyhow!("{} does not export {name}", file.path.display()))
}

/// A process with the user-mode driver in it.
pub struct User {
    /// The process.
    pub process: Arc<Process>,
    /// The user-mode driver.
    pub table: FpUmdTable,
    /// The step that it does wrong; 0 for none.
    mutant: u32,
}

struct In(Arc<Process>);

impl Inside for In {
    fn inside(&self, f: &mut dyn FnMut()) {
        let _inside = self.0.enter();
        f();
    }
}

impl User {
    /// Opens the first Fencepost adapter.
    ///
    /// # Errors
    /// Those of `fp_adapter_open`.
    pub fn open(&self) -> Result<ClientAdapter, Refused> {
        self.open_with(None, 0)
    }

    /// Takes an NT handle of `other` into this process, as `DuplicateHandle` does, and closes the original.
    ///
    /// # Errors
    /// When it is not open.
    pub fn receive(&self, other: &Self, handle: u64) -> Result<u64> {
        let object = other.process.nt().handle_any(handle).context("the NT handle is not open")?;
        let received = self.process.nt().insert_handle(object);
        drop(other.process.nt().close_handle(handle));
        Ok(received)
    }

    /// Ends the process, as TerminateProcess does, although objects of its user-mode driver live: their calls fail from
    /// then on.
    pub fn kill(&self) {
        self.process.finish(End::Terminated);
    }

    /// Opens the adapter with this LUID, or the first; `flags`: `FP_OPEN_…`.
    ///
    /// # Errors
    /// Those of `fp_adapter_open`.
    pub fn open_with(&self, luid: Option<u64>, flags: u32) -> Result<ClientAdapter, Refused> {
        ClientAdapter::open(self.table, Box::new(In(self.process.clone())), luid, flags, self.mutant)
    }
}
