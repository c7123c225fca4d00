//! Devices. Source: `DxgkDdiCreateDevice`, `DxgkDdiDestroyDevice`.

use crate::adapter::{Counted, Started};
use crate::handle::Handle;
use crate::irql::Passive;
use crate::platform::Platform;
use crate::process::Process;
use crate::status::Result;
use gpu_engine::shared::Shared;

/// A device of a process.
pub struct Device<P: Platform> {
    /// Whose it is.
    pub process: Shared<Process<P>>,
    /// Dxgkrnl's handle.
    pub os: u64,
    /// Counted in the census, and a reference to the adapter.
    pub counted: Counted<P>,
}

impl<P: Platform> Device<P> {
    /// Creates a device of `process`.
    ///
    /// # Errors
    /// [`crate::status::Error::NoMemory`] is the only one that the DDI lists besides success.
    pub fn create(
        _irql: &Passive,
        started: &Shared<Started<P>>,
        process: Shared<Process<P>>,
        os: u64,
    ) -> Result<Handle> {
        let counted = Counted::new(started.clone(), |c| &c.devices);
        Ok(Handle::create(Shared::try_new(Self { process, os, counted })?)?)
    }

    /// Destroys it. What it owned and nobody destroyed (a process that died) holds references of its own and goes when its
    /// own destroy call comes.
    ///
    /// # Errors
    /// [`crate::status::Error::InvalidParameter`].
    pub fn destroy(_irql: &Passive, handle: Handle) -> Result<()> {
        handle.take::<Self>().map(drop)
    }
}
