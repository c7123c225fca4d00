//! Allocations: memory that the GPU sees, in system memory (which the CPU sees too) or in the local segment.
//!
//! An allocation here is always mapped into the process's GPU address space and resident from creation to destruction,
//! so its address can be put into packets at any time.
//!
//! A shared one is a resource with one allocation, created with NtSecuritySharing; another process opens it by an NT
//! handle and learns size and place from the private data that travels with it.
//!
//! Assumes:
//! - The KMD makes `SYSTEM` allocations CPU-visible and cached, so that `D3DKMTLock2` returns a pointer that stays
//!   valid, GPU or not, until the allocation is unlocked or destroyed. Source: *User-mode work submission*, "as long as
//!   the ring buffer allocation exists, its CPUVA is valid"; `D3DKMTLock2`.
//! - New memory reads as zeros (AllowNotZeroed is not set). Source: `D3DKMT_CREATEALLOCATIONFLAGS`.
//! - `D3DKMTDestroyAllocation2` waits until the GPU no longer uses the memory, and frees its GPU address. Source:
//!   `D3DKMTMapGpuVirtualAddress`, Remarks; `D3DDDICB_DESTROYALLOCATION2FLAGS::AssumeNotInUse`, not set here.
//! - Opening returns the allocation's private data as it was at creation, in `pTotalPrivateDriverDataBuffer` and by a
//!   pointer into it. Source: `D3DKMT_OPENRESOURCEFROMNTHANDLE`, `D3DDDI_OPENALLOCATIONINFO2`. This driver reads the
//!   start of the buffer, which holds the one allocation's block.
#![forbid(unsafe_code)]

use crate::device::Device;
use crate::error::{UmdError, Unsupported};
use crate::memory::Pages;
use crate::mutation::Mutation;
use crate::thunks::{NtHandle, Os, Padded, Thunk, Thunks};
use alloc::sync::Arc;
use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};
use gpu_wire::private::{AllocationData, MAGIC, allocation_kind};
use gpu_wire::{GpuVa, PAGE_SIZE};
use wddm_abi::{
    D3DDDI_ALLOCATIONINFO2, D3DDDI_OPENALLOCATIONINFO2, D3DKMT_CREATEALLOCATION, D3DKMT_CREATEALLOCATIONFLAGS,
    D3DKMT_DESTROYALLOCATION2, D3DKMT_HANDLE, D3DKMT_LOCK2, D3DKMT_OPENRESOURCEFROMNTHANDLE,
    D3DKMT_QUERYRESOURCEINFOFROMNTHANDLE, D3DKMT_UNLOCK2, SHARED_ALLOCATION_WRITE,
};

/// `STANDARD_RIGHTS_READ` (winnt.h). Source: `D3DKMTShareObjects`: it must be specified.
pub(crate) const STANDARD_RIGHTS_READ: u32 = 0x0002_0000;

/// Sizes of allocations in local memory are multiples of this: a public user-mode driver found that memory which the
/// CPU does not see is mapped for the GPU in units of 64 KB alone. No page says so.
const LOCAL_UNIT: u64 = 64 << 10;

/// Where the memory lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Kind {
    /// System memory, which the CPU sees.
    System = allocation_kind::SYSTEM,
    /// The local segment, which it does not.
    Local = allocation_kind::LOCAL,
}

impl Kind {
    /// The kind with this number.
    pub const fn from_raw(raw: u32) -> Option<Self> {
        match raw {
            allocation_kind::SYSTEM => Some(Self::System),
            allocation_kind::LOCAL => Some(Self::Local),
            _ => None,
        }
    }
}

/// What to create.
#[derive(Clone, Copy, Debug)]
pub struct Create {
    /// Bytes; rounded up to whole pages.
    pub size: u64,
    /// Where.
    pub kind: Kind,
    /// Whether another process may open it.
    pub shared: bool,
    /// Whether this process's GPU mapping refuses stores.
    pub read_only: bool,
}

/// Handles of an allocation, destroyed with it.
struct Handles<T: Thunks> {
    device: Arc<Device<T>>,
    allocation: D3DKMT_HANDLE,
    /// 0 when it stands alone.
    resource: D3DKMT_HANDLE,
}

/// An allocation. Dropping it unlocks and destroys it (or, if it was opened, closes it).
pub struct Allocation<T: Thunks> {
    // Drop order does not matter: `pages` is an address only.
    handles: Handles<T>,
    size: u64,
    kind: Kind,
    shared: bool,
    gpu_va: GpuVa,
    /// The CPU's address of the allocation; null until it is locked.
    base: AtomicPtr<c_void>,
}

impl<T: Thunks> Allocation<T> {
    /// Creates an allocation, locks it if the CPU can see it, maps it, and makes it resident.
    ///
    /// # Errors
    /// [`UmdError::InvalidArgument`] for a size of 0 or beyond the GPU's address space; [`UmdError::Thunk`];
    /// [`UmdError::BadReply`].
    pub fn create(device: &Arc<Device<T>>, create: Create) -> Result<Self, UmdError> {
        let this = Self::create_evicted(device, create)?;
        this.make_resident()?;
        Ok(this)
    }

    /// [`Self::create`] without the last step: the caller makes it resident before the GPU touches it.
    pub(crate) fn create_evicted(device: &Arc<Device<T>>, create: Create) -> Result<Self, UmdError> {
        let mut this = Self::create_unmapped(device, create)?;
        // Locked before it is mapped: a public user-mode driver found that CPU-visible memory that the GPU has cannot
        // be locked.
        this.lock()?;
        this.map(create.read_only)?;
        Ok(this)
    }

    fn create_unmapped(device: &Arc<Device<T>>, create: Create) -> Result<Self, UmdError> {
        let by_pages = device.os().mutation.is(Mutation::MapsLocalByPages);
        let unit = if create.kind == Kind::Local && !by_pages { LOCAL_UNIT } else { PAGE_SIZE };
        let size = create.size.checked_next_multiple_of(unit).filter(|s| *s != 0 && s >> GpuVa::BITS == 0);
        let size = size.ok_or(UmdError::InvalidArgument("size"))?;
        // CAST: a value of allocation_kind.
        let data = AllocationData { magic: MAGIC, kind: create.kind as u32, size, reserved: 0 };
        let mut bytes = [0; size_of::<AllocationData>()];
        bytes.copy_from_slice(data.bytes());
        let mut info = D3DDDI_ALLOCATIONINFO2 {
            pPrivateDriverData: bytes.as_mut_ptr().cast(),
            // CAST: 24 bytes.
            PrivateDriverDataSize: size_of::<AllocationData>() as u32,
            ..D3DDDI_ALLOCATIONINFO2::zeroed()
        };
        let mut flags = D3DKMT_CREATEALLOCATIONFLAGS::zeroed();
        if create.shared {
            flags.set_CreateResource(true);
            flags.set_CreateShared(true);
            flags.set_NtSecuritySharing(!device.os().mutation.is(Mutation::SharesWithoutNtSecurity));
        }
        let mut argument = Padded::new(D3DKMT_CREATEALLOCATION {
            hDevice: device.handle(),
            NumAllocations: 1,
            Flags: flags,
            ..D3DKMT_CREATEALLOCATION::zeroed()
        });
        argument.set_pAllocationInfo2(&raw mut info);
        device.os().create_allocation2(&mut argument)?;
        let resource = if create.shared { argument.hResource } else { 0 };
        let handles = Handles { device: device.clone(), allocation: info.hAllocation, resource };
        if info.hAllocation == 0 || (create.shared && resource == 0) {
            return Err(UmdError::BadReply { thunk: Thunk::CreateAllocation2 });
        }
        Ok(Self {
            handles,
            size,
            kind: create.kind,
            shared: create.shared,
            gpu_va: GpuVa(0),
            base: AtomicPtr::default(),
        })
    }

    /// Opens what another process shared, with a GPU address of this process's own. It is locked for the CPU when it
    /// is first read or written, not here: a system may let only the process that made an allocation lock it.
    ///
    /// # Errors
    /// [`UmdError::Thunk`]; [`UmdError::BadReply`] when it is no allocation of ours.
    pub fn open(device: &Arc<Device<T>>, handle: NtHandle) -> Result<Self, UmdError> {
        let os = device.os();
        let mut query = Padded::new(D3DKMT_QUERYRESOURCEINFOFROMNTHANDLE {
            hDevice: device.handle(),
            hNtHandle: handle.as_raw(),
            ..D3DKMT_QUERYRESOURCEINFOFROMNTHANDLE::zeroed()
        });
        os.query_resource_info_from_nt_handle(&mut query)?;
        let bad = UmdError::BadReply { thunk: Thunk::QueryResourceInfoFromNtHandle };
        // Private data sizes are multiples of 8 here, but another driver's resource may be anything.
        let mut data = [0u8; 512];
        let mut resource_data = [0u8; 512];
        let mut runtime_data = [0u8; 512];
        let fits = |size: u32, buffer: &[u8]| size as usize <= buffer.len();
        if query.NumAllocations != 1
            || !fits(query.TotalPrivateDriverDataSize, &data)
            || !fits(query.ResourcePrivateDriverDataSize, &resource_data)
            || !fits(query.PrivateRuntimeDataSize, &runtime_data)
        {
            return Err(bad);
        }
        let mut info = D3DDDI_OPENALLOCATIONINFO2::zeroed();
        let mut open = Padded::new(D3DKMT_OPENRESOURCEFROMNTHANDLE {
            hDevice: device.handle(),
            hNtHandle: handle.as_raw(),
            NumAllocations: 1,
            pOpenAllocationInfo2: &raw mut info,
            PrivateRuntimeDataSize: query.PrivateRuntimeDataSize,
            pPrivateRuntimeData: runtime_data.as_mut_ptr().cast(),
            ResourcePrivateDriverDataSize: query.ResourcePrivateDriverDataSize,
            pResourcePrivateDriverData: resource_data.as_mut_ptr().cast(),
            TotalPrivateDriverDataBufferSize: query.TotalPrivateDriverDataSize,
            pTotalPrivateDriverDataBuffer: data.as_mut_ptr().cast(),
            ..D3DKMT_OPENRESOURCEFROMNTHANDLE::zeroed()
        });
        os.open_resource_from_nt_handle(&mut open)?;
        // From here on dropping closes it.
        let handles = Handles { device: device.clone(), allocation: info.hAllocation, resource: open.hResource };
        let block = data.get(..query.TotalPrivateDriverDataSize as usize).and_then(AllocationData::read);
        let block = block.filter(|b| b.magic == MAGIC && b.size != 0 && b.size.is_multiple_of(PAGE_SIZE));
        let bad = UmdError::BadReply { thunk: Thunk::OpenResourceFromNtHandle };
        let (Some(block), true) = (block, info.hAllocation != 0) else { return Err(bad) };
        let kind = Kind::from_raw(block.kind).ok_or(bad)?;
        let mut this =
            Self { handles, size: block.size, kind, shared: true, gpu_va: GpuVa(0), base: AtomicPtr::default() };
        if os.mutation.is(Mutation::LocksWhatItOpens) {
            this.lock()?;
        }
        this.make_resident()?;
        this.map(false)?;
        Ok(this)
    }

    /// Brings it to memory that the GPU reaches. It stays there until it is destroyed, evictions by the OS aside, which
    /// the GPU does not notice.
    pub(crate) fn make_resident(&self) -> Result<(), UmdError> {
        self.handles.device.paging().make_resident(&[self.handles.allocation])
    }

    fn map(&mut self, read_only: bool) -> Result<(), UmdError> {
        let pages = self.size / PAGE_SIZE;
        self.gpu_va = self.handles.device.paging().map(self.handles.allocation, pages, read_only)?;
        Ok(())
    }

    /// Locks the allocation for the CPU, unless it is locked already or lies where the CPU does not see it. Locks
    /// nest: when two threads lock it at once, the later one undoes its own lock.
    ///
    /// # Errors
    /// [`UmdError::Thunk`]; [`UmdError::BadReply`] for an address that cannot be one.
    fn lock(&self) -> Result<(), UmdError> {
        if self.kind != Kind::System || !self.base.load(Ordering::Acquire).is_null() {
            return Ok(());
        }
        let mut lock = Padded::new(D3DKMT_LOCK2 {
            hDevice: self.handles.device.handle(),
            hAllocation: self.handles.allocation,
            ..D3DKMT_LOCK2::zeroed()
        });
        self.handles.device.os().lock2(&mut lock)?;
        let bad = UmdError::BadReply { thunk: Thunk::Lock2 };
        if Pages::new(lock.pData, self.size).is_none() {
            return Err(bad);
        }
        let base = self.base.compare_exchange(ptr::null_mut(), lock.pData, Ordering::AcqRel, Ordering::Acquire);
        if base.is_err() {
            self.unlock();
        }
        Ok(())
    }

    /// Undoes one lock. A refusal is ignored.
    fn unlock(&self) {
        let mut unlock =
            Padded::new(D3DKMT_UNLOCK2 { hDevice: self.handles.device.handle(), hAllocation: self.handles.allocation });
        let _ = self.handles.device.os().unlock2(&mut unlock);
    }

    /// An NT handle by which another process opens it. The caller closes it.
    ///
    /// # Errors
    /// [`UmdError::NotSupported`] when it was not created to be shared; [`UmdError::Thunk`].
    pub fn share(&self) -> Result<NtHandle, UmdError> {
        if !self.shared {
            return Err(UmdError::NotSupported(Unsupported::Sharing));
        }
        let access = STANDARD_RIGHTS_READ | SHARED_ALLOCATION_WRITE;
        self.handles.device.os().share_object(self.handles.resource, access)
    }

    /// The system.
    pub(crate) fn os(&self) -> &Os<T> {
        self.handles.device.os()
    }

    /// Its handle.
    pub fn handle(&self) -> D3DKMT_HANDLE {
        self.handles.allocation
    }

    /// The resource that it belongs to; 0 for one that is not shared.
    pub fn resource(&self) -> D3DKMT_HANDLE {
        self.handles.resource
    }

    /// Bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Where it lies.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Its address in this process's GPU address space.
    pub fn gpu_va(&self) -> GpuVa {
        self.gpu_va
    }

    /// The CPU's mapping, if the allocation is locked: an opened allocation is not before the CPU first uses it. Makes
    /// no call.
    pub fn mapped(&self) -> Option<Pages> {
        Pages::new(self.base.load(Ordering::Acquire), self.size)
    }

    /// The CPU's mapping; locks the allocation if it is not locked yet. `None` for the local segment, and where the
    /// system refuses this process the lock.
    pub fn pages(&self) -> Option<Pages> {
        self.lock().ok()?;
        self.mapped()
    }

    /// Copies `from` to `offset`. Ordered with the GPU by fences only.
    ///
    /// # Errors
    /// [`UmdError::NotSupported`] for the local segment, and for another process's allocation that the system does not
    /// let this process lock; [`UmdError::InvalidArgument`] when it does not fit.
    pub fn write(&self, offset: u64, from: &[u8]) -> Result<(), UmdError> {
        let pages = self.pages().ok_or(UmdError::NotSupported(Unsupported::CpuAccess))?;
        if pages.write(offset, from) { Ok(()) } else { Err(UmdError::InvalidArgument("range")) }
    }

    /// Copies bytes from `offset` to `to`. Ordered with the GPU by fences only.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub fn read(&self, offset: u64, to: &mut [u8]) -> Result<(), UmdError> {
        let pages = self.pages().ok_or(UmdError::NotSupported(Unsupported::CpuAccess))?;
        if pages.read(offset, to) { Ok(()) } else { Err(UmdError::InvalidArgument("range")) }
    }
}

impl<T: Thunks> Drop for Allocation<T> {
    fn drop(&mut self) {
        if !self.base.get_mut().is_null() {
            self.unlock();
        }
    }
}

impl<T: Thunks> Drop for Handles<T> {
    fn drop(&mut self) {
        let mut argument = Padded::new(D3DKMT_DESTROYALLOCATION2 {
            hDevice: self.device.handle(),
            ..D3DKMT_DESTROYALLOCATION2::zeroed()
        });
        if self.resource != 0 {
            argument.hResource = self.resource;
        } else if self.allocation != 0 {
            argument.phAllocationList = &raw const self.allocation;
            argument.AllocationCount = 1;
        } else {
            return;
        }
        let _ = self.device.os().destroy_allocation2(&mut argument);
    }
}
