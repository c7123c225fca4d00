//! Contexts: hardware contexts, which hardware queues belong to, and packet contexts, which take command buffers themselves.
//!
//! Assumes:
//! - Private data of a context reaches the KMD uninterpreted; it refuses a version that is not its own with
//!   STATUS_GRAPHICS_DRIVER_MISMATCH. Source: `gpu_wire::private`; `D3DKMT_CREATECONTEXTVIRTUAL`, pPrivateDriverData.
//! - Engine 0 is the node's only engine. Source: `D3DKMT_CREATECONTEXTVIRTUAL`, EngineAffinity: zero-based index.
#![forbid(unsafe_code)]

use crate::device::Device;
use crate::error::UmdError;
use crate::thunks::{Padded, Thunks};
use alloc::sync::Arc;
use gpu_wire::private::{ContextData, MAGIC};
use gpu_wire::{INTERFACE_VERSION, NodeOrdinal};
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

/// A hardware context. Dropping it destroys it; its queues go before.
pub struct HwContext<T: Thunks> {
    device: Arc<Device<T>>,
    handle: D3DKMT_HANDLE,
}

impl<T: Thunks> HwContext<T> {
    /// Creates a context on `node`.
    ///
    /// # Errors
    /// [`UmdError::Thunk`].
    pub fn create(device: &Arc<Device<T>>, node: NodeOrdinal) -> Result<Self, UmdError> {
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
        Ok(Self { device: device.clone(), handle: argument.hHwContext })
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
        let mut argument = Padded::new(D3DKMT_DESTROYHWCONTEXT { hHwContext: self.handle });
        let _ = self.device.os().destroy_hw_context(&mut argument);
    }
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
        let mut data = context_data();
        let mut argument = Padded::new(D3DKMT_CREATECONTEXTVIRTUAL {
            hDevice: device.handle(),
            NodeOrdinal: node.0,
            Flags: D3DDDI_CREATECONTEXTFLAGS::zeroed().with_DisableGpuTimeout(no_timeout),
            pPrivateDriverData: data.as_mut_ptr().cast(),
            // CAST: 8 bytes.
            PrivateDriverDataSize: data.len() as u32,
            ClientHint: D3DKMT_CLIENTHINT::D3DKMT_CLIENTHINT_UNKNOWN,
            ..D3DKMT_CREATECONTEXTVIRTUAL::zeroed()
        });
        device.os().create_context_virtual(&mut argument)?;
        Ok(Self { device: device.clone(), handle: argument.hContext })
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
