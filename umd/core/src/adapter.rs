//! The adapter: finding it, agreeing with its kernel-mode driver, and deciding how work will be submitted.
//!
//! What there is to decide, and who decides:
//!
//! | question | answered by |
//! |---|---|
//! | is it ours? | `UMDRIVERPRIVATE` starts with [`gpu_wire::private::MAGIC`] |
//! | do we understand each other? | `AdapterInfo::interface_version` |
//! | what did the KMD negotiate with this OS? | `AdapterInfo::rung` |
//! | did the OS turn it on? | `WDDM_2_7_CAPS::HwSchEnabled`, `WDDM_3_1_CAPS::NativeGpuFenceSupported` |
//! | can this node do it? | [`node`](Adapter::node): `DXGK_NODEMETADATA_FLAGS` |
//! | are the doorbell calls the ones that we know? | gdi32's exports |
//!
//! Assumes:
//! - `D3DKMTEnumAdapters3` and `D3DKMTEnumAdapters2` with a NULL array answer with a count that suffices for the second
//!   call, and their handles are the caller's to close. Source: their pages, Remarks.
//! - `D3DKMTQueryAdapterInfo(UMDRIVERPRIVATE)` hands the buffer to the KMD uninterpreted; other drivers refuse it or
//!   write something that does not start with our magic. Source: `KMTQUERYADAPTERINFOTYPE`. That the OS passes a buffer
//!   of any size on is assumed.
//! - Unknown capability types are refused by an older OS; that reads as "no". Source: `KMTQUERYADAPTERINFOTYPE` gives
//!   the first Windows version of each.
#![forbid(unsafe_code)]

mod mode;

pub use mode::{Fallback, Mode, NodeInfo};

use crate::error::UmdError;
use crate::mutation::Mutation;
use crate::thunks::{Os, Padded, Thunk, Thunks};
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use gpu_wire::private::{AdapterInfo, MAGIC, Rung, adapter_flags};
use gpu_wire::{INTERFACE_VERSION, NodeOrdinal};
use wddm_abi::{
    D3DKMT_ADAPTERINFO, D3DKMT_CLOSEADAPTER, D3DKMT_ENUMADAPTERS_FILTER, D3DKMT_ENUMADAPTERS2, D3DKMT_ENUMADAPTERS3,
    D3DKMT_HANDLE, D3DKMT_NODEMETADATA, D3DKMT_OPENADAPTERFROMLUID, D3DKMT_QUERY_DEVICE_IDS, D3DKMT_QUERYADAPTERINFO,
    D3DKMT_WDDM_2_7_CAPS, D3DKMT_WDDM_3_1_CAPS, KMTQUERYADAPTERINFOTYPE, LUID, Plain,
};

/// Which adapter to open.
#[derive(Clone, Copy, Debug)]
pub enum Select {
    /// The first that is ours, in the order of enumeration.
    First,
    /// The one with this identifier.
    Luid(LUID),
}

/// An open adapter. Dropping it closes the handle; everything that is made on it keeps it open.
pub struct Adapter<T: Thunks> {
    /// The system.
    pub os: Os<T>,
    handle: D3DKMT_HANDLE,
    luid: LUID,
    info: AdapterInfo,
    rung: Rung,
    native_fences: bool,
    mode: Mode,
    fallback: Fallback,
}

impl<T: Thunks> Adapter<T> {
    /// Opens an adapter and agrees with its kernel-mode driver. `highest` bounds the submission mode from above.
    ///
    /// # Errors
    /// [`UmdError::NoAdapter`]; [`UmdError::InterfaceVersion`] when the drivers do not fit, also when another adapter
    /// of ours would; [`UmdError::Thunk`].
    pub fn open(thunks: T, select: Select, highest: Mode, mutant: u32) -> Result<Arc<Self>, UmdError> {
        let os = Os::new(thunks);
        os.mutation.set(mutant);
        let (handle, luid, info) = match select {
            Select::Luid(luid) => {
                let mut open = Padded::new(D3DKMT_OPENADAPTERFROMLUID {
                    AdapterLuid: luid,
                    ..D3DKMT_OPENADAPTERFROMLUID::zeroed()
                });
                os.open_adapter_from_luid(&mut open)?;
                match identify(&os, open.hAdapter) {
                    Some(info) => (open.hAdapter, luid, info),
                    None => {
                        close(&os, open.hAdapter);
                        return Err(UmdError::NoAdapter);
                    }
                }
            }
            Select::First => first(&os)?,
        };
        // From here on dropping closes the handle.
        let mut adapter = Self {
            os,
            handle,
            luid,
            info,
            rung: Rung::Packet,
            native_fences: false,
            mode: Mode::Packet,
            fallback: Fallback::None,
        };
        adapter.agree(highest)?;
        Ok(Arc::new(adapter))
    }

    fn agree(&mut self, highest: Mode) -> Result<(), UmdError> {
        let version = self.info.interface_version;
        if version != INTERFACE_VERSION && !self.os.mutation.is(Mutation::IgnoresInterfaceVersion) {
            return Err(UmdError::InterfaceVersion { kernel: version, user: INTERFACE_VERSION });
        }
        self.rung = Rung::from_raw(self.info.rung).ok_or(UmdError::BadReply { thunk: Thunk::QueryAdapterInfo })?;
        let caps = mode::Caps {
            rung: self.rung,
            scheduling: self
                .query::<D3DKMT_WDDM_2_7_CAPS>(KMTQUERYADAPTERINFOTYPE::KMTQAITYPE_WDDM_2_7_CAPS)
                .is_some_and(|caps| caps.HwSchEnabled()),
            native_fences: self
                .query::<D3DKMT_WDDM_3_1_CAPS>(KMTQUERYADAPTERINFOTYPE::KMTQAITYPE_WDDM_3_1_CAPS)
                .is_some_and(|caps| caps.NativeGpuFenceSupported()),
            newer_doorbells: self.os.thunks().has_export(mode::NEWER_DOORBELLS)
                && !self.os.mutation.is(Mutation::IgnoresNewerDoorbells),
            missing_export: Thunk::ALL
                .iter()
                .copied()
                .find(|thunk| thunk.is_optional() && !self.os.thunks().has_export(thunk.name())),
        };
        (self.mode, self.fallback) = mode::decide(&caps, highest);
        self.native_fences = caps.has_native_fences();
        Ok(())
    }

    /// A capability structure; `None` when the OS does not know the type.
    fn query<C: Plain>(&self, kind: KMTQUERYADAPTERINFOTYPE) -> Option<C> {
        let mut buffer = [0u64; 16];
        query(&self.os, self.handle, kind, &mut buffer, size_of::<C>())?;
        let bytes: Vec<u8> = buffer.iter().flat_map(|word| word.to_ne_bytes()).collect();
        C::from_bytes(&bytes)
    }

    /// What the node can do.
    ///
    /// # Errors
    /// [`UmdError::InvalidArgument`] for a node that the adapter does not have; [`UmdError::Thunk`].
    pub fn node(&self, node: NodeOrdinal) -> Result<NodeInfo, UmdError> {
        if node.0 >= self.info.node_count {
            return Err(UmdError::InvalidArgument("node"));
        }
        let mut metadata = D3DKMT_NODEMETADATA::zeroed();
        // Low half: node; high half: physical adapter, 0 outside linked adapters.
        metadata.NodeOrdinalAndAdapterIndex = node.0;
        let mut argument = Padded::new(D3DKMT_QUERYADAPTERINFO {
            hAdapter: self.handle,
            Type: KMTQUERYADAPTERINFOTYPE::KMTQAITYPE_NODEMETADATA,
            pPrivateDriverData: core::ptr::from_mut(&mut metadata).cast(),
            // CAST: 78 bytes.
            PrivateDriverDataSize: size_of::<D3DKMT_NODEMETADATA>() as u32,
            ..D3DKMT_QUERYADAPTERINFO::zeroed()
        });
        self.os.query_adapter_info(&mut argument)?;
        Ok(mode::node_info(self.mode, &metadata))
    }

    /// Its handle.
    pub fn handle(&self) -> D3DKMT_HANDLE {
        self.handle
    }

    /// Its identifier, until the next boot.
    pub fn luid(&self) -> LUID {
        self.luid
    }

    /// What the kernel-mode driver said.
    pub fn info(&self) -> &AdapterInfo {
        &self.info
    }

    /// What the kernel-mode driver negotiated with this OS.
    pub fn rung(&self) -> Rung {
        self.rung
    }

    /// How work is submitted on the nodes that can do it.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Why [`Self::mode`] is below user-mode submission.
    pub fn fallback(&self) -> Fallback {
        self.fallback
    }

    /// Whether signals of monitored fences on a node are commands of the OS, since its engine cannot write them.
    pub fn signals_in_software(&self, node: NodeOrdinal) -> bool {
        self.info.software_signal_nodes & 1_u32.checked_shl(node.0).unwrap_or(0) != 0
    }

    /// Whether monitored fences have 32 bits in memory.
    pub fn has_narrow_fences(&self) -> bool {
        self.info.flags & adapter_flags::NARROW_FENCES != 0
    }

    /// Whether fences are native ones.
    pub fn has_native_fences(&self) -> bool {
        self.native_fences
    }
}

impl<T: Thunks> Drop for Adapter<T> {
    fn drop(&mut self) {
        close(&self.os, self.handle);
    }
}

/// Closes a handle. What is refused is counted and otherwise ignored: there is nobody to tell.
fn close<T: Thunks>(os: &Os<T>, handle: D3DKMT_HANDLE) {
    let _ = os.close_adapter(&mut Padded::new(D3DKMT_CLOSEADAPTER { hAdapter: handle }));
}

/// Fills the first `bytes` of `buffer`; `None` when refused.
fn query<T: Thunks>(
    os: &Os<T>,
    adapter: D3DKMT_HANDLE,
    kind: KMTQUERYADAPTERINFOTYPE,
    buffer: &mut [u64; 16],
    bytes: usize,
) -> Option<()> {
    let mut argument = Padded::new(D3DKMT_QUERYADAPTERINFO {
        hAdapter: adapter,
        Type: kind,
        pPrivateDriverData: buffer.as_mut_ptr().cast(),
        // CAST: at most the buffer's 128 bytes.
        PrivateDriverDataSize: bytes.min(size_of_val(buffer)) as u32,
        ..D3DKMT_QUERYADAPTERINFO::zeroed()
    });
    os.query_adapter_info(&mut argument).ok().map(|_| ())
}

/// PCI vendor and device of the function that the driver runs on, QEMU's `edu`. Source: `inf/fencepost.inx`.
const EDU: (u32, u32) = (0x1234, 0x11E8);

/// Returns whether an adapter may be this driver's: it is [`EDU`], names no vendor (it is not on a PCI bus), or the
/// system does not answer. Asked before the private query, which another driver would take for one of its own. QEMU's
/// standard VGA has the same vendor.
fn may_be_ours<T: Thunks>(os: &Os<T>, adapter: D3DKMT_HANDLE) -> bool {
    let mut buffer = [0; 16];
    let kind = KMTQUERYADAPTERINFOTYPE::KMTQAITYPE_PHYSICALADAPTERDEVICEIDS;
    let known = query(os, adapter, kind, &mut buffer, size_of::<D3DKMT_QUERY_DEVICE_IDS>());
    // PhysicalAdapterIndex 0, then VendorID, then DeviceID.
    // CAST: the halves of the words.
    let ids = known.map(|()| ((buffer[0] >> 32) as u32, buffer[1] as u32));
    ids.is_none_or(|(vendor, device)| vendor == 0 || (vendor, device) == EDU)
}

/// What our kernel-mode driver says about the adapter; `None` for another driver's.
fn identify<T: Thunks>(os: &Os<T>, adapter: D3DKMT_HANDLE) -> Option<AdapterInfo> {
    if !may_be_ours(os, adapter) {
        return None;
    }
    let mut buffer = [0; 16];
    query(os, adapter, KMTQUERYADAPTERINFOTYPE::KMTQAITYPE_UMDRIVERPRIVATE, &mut buffer, size_of::<AdapterInfo>())?;
    let bytes: Vec<u8> = buffer.iter().flat_map(|word| word.to_ne_bytes()).collect();
    AdapterInfo::read(&bytes).filter(|info| info.magic == MAGIC)
}

/// Adapters that are looked at, whatever the OS says it supports.
const MOST_ADAPTERS: u32 = 1024;

/// Every adapter, those that only compute as well, each with an open handle.
///
/// `D3DKMTEnumAdapters3` lists compute-only adapters where it is asked to. `D3DKMTEnumAdapters2`, for a system that
/// refuses or lacks the other, lists them by the document, and by what another vendor's code says does not.
fn list<T: Thunks>(os: &Os<T>) -> Result<Vec<D3DKMT_ADAPTERINFO>, UmdError> {
    by_filter(os).or_else(|_| without_filter(os))
}

/// By `D3DKMTEnumAdapters3`, compute-only adapters included.
fn by_filter<T: Thunks>(os: &Os<T>) -> Result<Vec<D3DKMT_ADAPTERINFO>, UmdError> {
    let filter = D3DKMT_ENUMADAPTERS_FILTER::zeroed().with_IncludeComputeOnly(true);
    let mut count = Padded::new(D3DKMT_ENUMADAPTERS3 { Filter: filter, ..D3DKMT_ENUMADAPTERS3::zeroed() });
    os.enum_adapters3(&mut count)?;
    let mut adapters = room(count.NumAdapters);
    let mut list = Padded::new(D3DKMT_ENUMADAPTERS3 {
        Filter: filter,
        // CAST: at most MOST_ADAPTERS.
        NumAdapters: adapters.len() as u32,
        pAdapters: adapters.as_mut_ptr(),
        ..D3DKMT_ENUMADAPTERS3::zeroed()
    });
    os.enum_adapters3(&mut list)?;
    adapters.truncate(list.NumAdapters as usize);
    Ok(adapters)
}

/// By `D3DKMTEnumAdapters2`.
fn without_filter<T: Thunks>(os: &Os<T>) -> Result<Vec<D3DKMT_ADAPTERINFO>, UmdError> {
    let mut count = Padded::new(D3DKMT_ENUMADAPTERS2::zeroed());
    os.enum_adapters2(&mut count)?;
    let mut adapters = room(count.NumAdapters);
    let mut list = Padded::new(D3DKMT_ENUMADAPTERS2 {
        // CAST: at most MOST_ADAPTERS.
        NumAdapters: adapters.len() as u32,
        pAdapters: adapters.as_mut_ptr(),
        ..D3DKMT_ENUMADAPTERS2::zeroed()
    });
    os.enum_adapters2(&mut list)?;
    adapters.truncate(list.NumAdapters as usize);
    Ok(adapters)
}

/// Room for as many adapters as the system says there may be.
fn room(count: u32) -> Vec<D3DKMT_ADAPTERINFO> {
    vec![D3DKMT_ADAPTERINFO::zeroed(); count.min(MOST_ADAPTERS) as usize]
}

/// The first adapter that is ours. All other handles are closed.
fn first<T: Thunks>(os: &Os<T>) -> Result<(D3DKMT_HANDLE, LUID, AdapterInfo), UmdError> {
    let mut found = None;
    for adapter in &list(os)? {
        if found.is_none()
            && let Some(info) = identify(os, adapter.hAdapter)
        {
            found = Some((adapter.hAdapter, adapter.AdapterLuid, info));
        } else {
            close(os, adapter.hAdapter);
        }
    }
    found.ok_or(UmdError::NoAdapter)
}
