//! Contexts: contexts for hardware queues, and packet contexts, which take command buffers themselves.
//!
//! Assumes:
//! - Private data of a context reaches the KMD uninterpreted; it refuses a version that is not its own with
//!   STATUS_GRAPHICS_DRIVER_MISMATCH. Source: `gpu_wire::private`; `D3DKMT_CREATECONTEXTVIRTUAL`, pPrivateDriverData.
//! - A context for hardware queues is made by `D3DKMTCreateContextVirtual` with HwQueueSupported.
//!   `D3DKMTCreateHwContext` is a fallback for a system that refuses the flag: Windows 11 answers
//!   STATUS_NOT_IMPLEMENTED to it. Source: every public user-mode driver calls the former;
//!   `D3DKMT_CREATEHWQUEUE`, hHwContext; `D3DDDI_CREATECONTEXTFLAGS`, HwQueueSupported.
//! - Engine 0 is the node's only engine. Source: `D3DKMT_CREATECONTEXTVIRTUAL`, EngineAffinity: zero-based index.
#![forbid(unsafe_code)]

use crate::device::Device;
use crate::error::UmdError;
use crate::mutation::Mutation;
use crate::thunks::{Padded, Thunks};
use alloc::sync::Arc;
use gpu_wire::private::{ContextData, MAGIC};
use gpu_wire::{INTERFACE_VERSION, NodeOrdinal};
use wddm_abi::ntstatus::{STATUS_INVALID_PARAMETER, STATUS_NOT_IMPLEMENTED, STATUS_NOT_SUPPORTED};
use wddm_abi::{
    D3DDDI_CREATECONTEXTFLAGS, D3DKMT_CLIENTHINT, D3DKMT_CREATECONTEXTVIRTUAL, D3DKMT_CREATEHWCONTEXT,
    D3DKMT_DESTROYCONTEXT, D3DKMT_DESTROYHWCONTEXT, D3DKMT_HANDLE,
};

/// The block that every context takes to the KMD.
fn context_data() -> [u8; size_of::<ContextData>()] {
    let mut bytes = [0; size_of::<ContextData>()];
    bytes.copy_from_slice(ContextData { magic: MAGIC, interface_version: INTERFACE_VERSION }.bytes());
    bytes
}

/// The call that made a context for hardware queues; the same pair destroys it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// `D3DKMTCreateContextVirtual`.
    Virtual,
    /// `D3DKMTCreateHwContext`.
    HwContext,
}

/// A context for hardware queues. Dropping it destroys it; its queues go before.
pub struct HwContext<T: Thunks> {
    device: Arc<Device<T>>,
    handle: D3DKMT_HANDLE,
    way: Way,
}

impl<T: Thunks> HwContext<T> {
    /// Creates a context on `node`.
    ///
    /// # Errors
    /// [`UmdError::Thunk`].
    pub fn create(device: &Arc<Device<T>>, node: NodeOrdinal) -> Result<Self, UmdError> {
        let flags = D3DDDI_CREATECONTEXTFLAGS::zeroed().with_HwQueueSupported(true);
        if device.os().mutation.is(Mutation::ObsoleteContextsOnly) {
            let handle = create_hw_context(device, node)?;
            return Ok(Self { device: device.clone(), handle, way: Way::HwContext });
        }
        let (handle, way) = match create_virtual(device, node, flags) {
            Ok(handle) => (handle, Way::Virtual),
            Err(error) if is_unknown_flag(&error) => match create_hw_context(device, node) {
                Ok(handle) => (handle, Way::HwContext),
                // The error of `D3DKMTCreateContextVirtual` is the one to report.
                Err(_) => return Err(error),
            },
            Err(error) => return Err(error),
        };
        Ok(Self { device: device.clone(), handle, way })
    }

    /// Its device.
    pub fn device(&self) -> &Arc<Device<T>> {
        &self.device
    }

    /// Its handle.
    pub fn handle(&self) -> D3DKMT_HANDLE {
        self.handle
    }
}

impl<T: Thunks> Drop for HwContext<T> {
    fn drop(&mut self) {
        let os = self.device.os();
        let _ = match self.way {
            Way::Virtual => os.destroy_context(&mut Padded::new(D3DKMT_DESTROYCONTEXT { hContext: self.handle })),
            Way::HwContext => {
                os.destroy_hw_context(&mut Padded::new(D3DKMT_DESTROYHWCONTEXT { hHwContext: self.handle }))
            }
        };
    }
}

/// Returns whether `error` is a status of a system that does not know HwQueueSupported. STATUS_INVALID_PARAMETER may
/// have other causes; then the fallback fails as well.
fn is_unknown_flag(error: &UmdError) -> bool {
    let unknown = [STATUS_NOT_SUPPORTED, STATUS_NOT_IMPLEMENTED, STATUS_INVALID_PARAMETER];
    matches!(error, UmdError::Thunk { status, .. } if unknown.contains(status))
}

/// Creates a context on `node` by `D3DKMTCreateContextVirtual`, with the private data of this driver.
///
/// # Errors
/// [`UmdError::Thunk`].
fn create_virtual<T: Thunks>(
    device: &Device<T>,
    node: NodeOrdinal,
    flags: D3DDDI_CREATECONTEXTFLAGS,
) -> Result<D3DKMT_HANDLE, UmdError> {
    let mut data = context_data();
    let mut argument = Padded::new(D3DKMT_CREATECONTEXTVIRTUAL {
        hDevice: device.handle(),
        NodeOrdinal: node.0,
        Flags: flags,
        pPrivateDriverData: data.as_mut_ptr().cast(),
        // CAST: 8 bytes.
        PrivateDriverDataSize: data.len() as u32,
        ClientHint: D3DKMT_CLIENTHINT::D3DKMT_CLIENTHINT_UNKNOWN,
        ..D3DKMT_CREATECONTEXTVIRTUAL::zeroed()
    });
    device.os().create_context_virtual(&mut argument)?;
    Ok(argument.hContext)
}

/// Creates a context on `node` by `D3DKMTCreateHwContext`.
///
/// # Errors
/// [`UmdError::Thunk`], also where gdi32 does not export it.
fn create_hw_context<T: Thunks>(device: &Device<T>, node: NodeOrdinal) -> Result<D3DKMT_HANDLE, UmdError> {
    let mut data = context_data();
    let mut argument = Padded::new(D3DKMT_CREATEHWCONTEXT {
        hDevice: device.handle(),
        NodeOrdinal: node.0,
        // CAST: 8 bytes.
        PrivateDriverDataSize: data.len() as u32,
        pPrivateDriverData: data.as_mut_ptr().cast(),
        ..D3DKMT_CREATEHWCONTEXT::zeroed()
    });
    device.os().create_hw_context(&mut argument)?;
    Ok(argument.hHwContext)
}

/// A packet context with GPU virtual addresses. Dropping it destroys it.
pub struct PacketContext<T: Thunks> {
    device: Arc<Device<T>>,
    handle: D3DKMT_HANDLE,
}

impl<T: Thunks> PacketContext<T> {
    /// Creates a context on `node`; `no_timeout` exempts it from the two seconds of TDR.
    ///
    /// # Errors
    /// [`UmdError::Thunk`].
    pub fn create(device: &Arc<Device<T>>, node: NodeOrdinal, no_timeout: bool) -> Result<Self, UmdError> {
        let flags = D3DDDI_CREATECONTEXTFLAGS::zeroed().with_DisableGpuTimeout(no_timeout);
        Ok(Self { device: device.clone(), handle: create_virtual(device, node, flags)? })
    }

    /// Its handle.
    pub fn handle(&self) -> D3DKMT_HANDLE {
        self.handle
    }
}

impl<T: Thunks> Drop for PacketContext<T> {
    fn drop(&mut self) {
        let mut argument = Padded::new(D3DKMT_DESTROYCONTEXT { hContext: self.handle });
        let _ = self.device.os().destroy_context(&mut argument);
    }
}
