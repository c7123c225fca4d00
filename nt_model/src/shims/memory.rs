//! MDLs, mappings, contiguous memory, device ranges.

use crate::memory::contiguous::ContiguousRequest;
use crate::memory::mapping::MapRequest;
use crate::memory::mdl::{LockOperation, Mdl};
use crate::memory::{CacheType, PAGE_SIZE, Rights};
use crate::records::{MDL, UnicodeString, status, status::NtStatus};
use crate::routines;
use crate::shim::{self, In, Out};
use crate::shims;

/// `MdlMappingNoWrite`.
const MAPPING_NO_WRITE: u32 = 0x8000_0000;
/// `MM_ALLOCATE_FULLY_REQUIRED`.
const FULLY_REQUIRED: u32 = 4;

fn cache(raw: u32) -> CacheType {
    CacheType::from_raw(raw).unwrap_or(CacheType::Cached)
}

/// The cache type in page protection flags (`PAGE_NOCACHE`, `PAGE_WRITECOMBINE`).
fn cache_of_protection(protect: u32) -> CacheType {
    if protect & 0x200 != 0 {
        CacheType::NonCached
    } else if protect & 0x400 != 0 {
        CacheType::WriteCombined
    } else {
        CacheType::Cached
    }
}

fn contiguous(bytes: usize, lowest: u64, highest: u64, boundary: u64, cache: CacheType) -> ContiguousRequest {
    ContiguousRequest { bytes, lowest, highest, boundary, cache }
}

shims! {
    pub(crate) table MEMORY;

    fn MmAllocateContiguousMemory(m, bytes: usize, highest: u64) -> usize {
        m.allocate_contiguous(&contiguous(bytes, 0, highest, 0, CacheType::Cached)).unwrap_or(0)
    }

    fn MmAllocateContiguousMemorySpecifyCache(
        m, bytes: usize, lowest: u64, highest: u64, boundary: u64, cache_type: u32,
    ) -> usize {
        m.allocate_contiguous(&contiguous(bytes, lowest, highest, boundary, cache(cache_type))).unwrap_or(0)
    }

    fn MmAllocateContiguousMemorySpecifyCacheNode(
        m, bytes: usize, lowest: u64, highest: u64, boundary: u64, cache_type: u32, _node: u32,
    ) -> usize {
        m.allocate_contiguous(&contiguous(bytes, lowest, highest, boundary, cache(cache_type))).unwrap_or(0)
    }

    fn MmAllocateContiguousNodeMemory(
        m, bytes: usize, lowest: u64, highest: u64, boundary: u64, protect: u32, _node: u32,
    ) -> usize {
        m.allocate_contiguous(&contiguous(bytes, lowest, highest, boundary, cache_of_protection(protect))).unwrap_or(0)
    }

    fn MmFreeContiguousMemory(m, address: usize) {
        m.free_contiguous(address, None);
    }

    fn MmFreeContiguousMemorySpecifyCache(m, address: usize, bytes: usize, cache_type: u32) {
        m.free_contiguous(address, Some((bytes, cache(cache_type))));
    }

    fn MmAllocatePagesForMdlEx(
        m, low: u64, high: u64, _skip: u64, bytes: usize, cache_type: u32, flags: u32,
    ) -> usize {
        let fully = flags & FULLY_REQUIRED != 0;
        m.allocate_pages_for_mdl(low..=high, bytes, cache(cache_type), fully).map_or(0, Mdl::address)
    }

    fn MmAllocatePagesForMdl(m, low: u64, high: u64, _skip: u64, bytes: usize) -> usize {
        m.allocate_pages_for_mdl(low..=high, bytes, CacheType::Cached, false).map_or(0, Mdl::address)
    }

    fn MmAllocateNodePagesForMdlEx(
        m, low: u64, high: u64, _skip: u64, bytes: usize, cache_type: u32, _node: u32, flags: u32,
    ) -> usize {
        let fully = flags & FULLY_REQUIRED != 0;
        m.allocate_pages_for_mdl(low..=high, bytes, cache(cache_type), fully).map_or(0, Mdl::address)
    }

    fn MmFreePagesFromMdl(m, mdl: In<MDL>) {
        m.free_pages_from_mdl(Mdl::of(mdl.get()));
    }

    fn MmFreePagesFromMdlEx(m, mdl: In<MDL>, _flags: u32) {
        m.free_pages_from_mdl(Mdl::of(mdl.get()));
    }

    // `secondary` and `irp` chain the MDL into an IRP, which nothing here reads.
    fn IoAllocateMdl(m, address: usize, bytes: u32, _secondary: u8, _charge: u8, _irp: usize) -> usize {
        m.allocate_mdl(address, bytes as usize).map_or(0, Mdl::address)
    }

    fn IoFreeMdl(m, mdl: In<MDL>) {
        m.free_mdl(Mdl::of(mdl.get()));
    }

    fn IoBuildPartialMdl(m, source: In<MDL>, target: In<MDL>, address: usize, bytes: u32) {
        m.build_partial_mdl(Mdl::of(source.get()), Mdl::of(target.get()), address, bytes as usize);
    }

    fn MmBuildMdlForNonPagedPool(m, mdl: In<MDL>) {
        m.build_mdl_for_nonpaged(Mdl::of(mdl.get()));
    }

    fn MmProbeAndLockPages(m, mdl: In<MDL>, mode: u8, operation: u32) {
        let operation = if operation == 0 { LockOperation::Read } else { LockOperation::Write };
        m.probe_and_lock(Mdl::of(mdl.get()), mode != 0, operation);
    }

    fn MmUnlockPages(m, mdl: In<MDL>) {
        m.unlock_pages(Mdl::of(mdl.get()));
    }

    fn MmMapLockedPagesSpecifyCache(
        m, mdl: In<MDL>, mode: u8, cache_type: u32, at: usize, bugcheck: u32, priority: u32,
    ) -> usize {
        let request = MapRequest {
            user_mode: mode != 0,
            cache: cache(cache_type),
            at,
            bugcheck_on_failure: bugcheck != 0,
            read_only: priority & MAPPING_NO_WRITE != 0,
        };
        m.map_locked_pages(Mdl::of(mdl.get()), &request).unwrap_or(0)
    }

    fn MmMapLockedPages(m, mdl: In<MDL>, mode: u8) -> usize {
        let request = MapRequest { user_mode: mode != 0, bugcheck_on_failure: true, ..MapRequest::default() };
        m.map_locked_pages(Mdl::of(mdl.get()), &request).unwrap_or(0)
    }

    fn MmUnmapLockedPages(m, address: usize, mdl: In<MDL>) {
        m.unmap_locked_pages(address, Mdl::of(mdl.get()));
    }

    fn MmAllocateMappingAddress(m, bytes: usize, tag: u32) -> usize {
        m.allocate_mapping_address(bytes, tag).unwrap_or(0)
    }

    fn MmFreeMappingAddress(m, address: usize, tag: u32) {
        m.free_mapping_address(address, tag);
    }

    fn MmMapLockedPagesWithReservedMapping(m, address: usize, tag: u32, mdl: In<MDL>, cache_type: u32) -> usize {
        m.map_at_reserved(address, tag, Mdl::of(mdl.get()), cache(cache_type)).unwrap_or(0)
    }

    fn MmUnmapReservedMapping(m, address: usize, tag: u32, mdl: In<MDL>) {
        m.unmap_reserved(address, tag, Mdl::of(mdl.get()));
    }

    fn MmProtectMdlSystemAddress(m, mdl: In<MDL>, protect: u32) -> NtStatus {
        const NO_ACCESS: u32 = 1;
        const READ_ONLY: u32 = 2;
        const READ_WRITE: u32 = 4;
        let rights = match protect {
            NO_ACCESS => Rights::None,
            READ_ONLY => Rights::Read,
            READ_WRITE => Rights::ReadWrite,
            _ => return status::INVALID_PAGE_PROTECTION,
        };
        if m.protect_mdl(Mdl::of(mdl.get()), rights) { status::SUCCESS } else { status::NOT_MAPPED_VIEW }
    }

    fn MmGetPhysicalAddress(m, address: usize) -> u64 {
        m.physical_address(address)
    }

    fn MmGetCacheAttribute(m, physical: u64, cache_type: Out<u32>) -> NtStatus {
        let Some(found) = m.cache_attribute(physical) else { return status::INVALID_PARAMETER };
        // CAST: an enumerator.
        cache_type.set(found as u32);
        status::SUCCESS
    }

    fn MmMapIoSpace(m, physical: u64, bytes: usize, cache_type: u32) -> usize {
        m.map_io_space(physical, bytes, cache(cache_type)).unwrap_or(0)
    }

    fn MmMapIoSpaceEx(m, physical: u64, bytes: usize, protect: u32) -> usize {
        m.map_io_space(physical, bytes, cache_of_protection(protect)).unwrap_or(0)
    }

    fn MmUnmapIoSpace(m, address: usize, bytes: usize) {
        m.unmap_io_space(address, bytes);
    }

    fn MmIsAddressValid(m, address: usize) -> u8 {
        m.is_address_valid(address).into()
    }

    fn MmGetSystemRoutineAddress(m, name: In<UnicodeString>) -> usize {
        let _service = m.service(&routines::MM_GET_SYSTEM_ROUTINE_ADDRESS, [name.address() as u64]);
        m.system_routine(&name.get().text()).unwrap_or(0)
    }

    fn MmSizeOfMdl(_m, base: usize, bytes: usize) -> usize {
        size_of::<MDL>() + 8 * (base % PAGE_SIZE + bytes).div_ceil(PAGE_SIZE)
    }

    // MM_COPY_ADDRESS is eight bytes by value: a virtual or a physical address.
    fn MmCopyMemory(m, target: usize, source: u64, bytes: usize, flags: u32, copied: Out<usize>) -> NtStatus {
        const PHYSICAL: u32 = 1;
        let _service = m.service(&routines::MM_COPY_MEMORY, [target as u64, source, bytes as u64, flags.into()]);
        copied.set(0);
        let data = if flags & PHYSICAL != 0 {
            let mut data = vec![0; bytes];
            for at in 0..bytes {
                let address = source + at as u64;
                let Some((object, index)) = m.page_of_frame(address / PAGE_SIZE as u64) else {
                    return status::INVALID_PARAMETER;
                };
                // CAST: below a page.
                let offset = index * PAGE_SIZE + (address % PAGE_SIZE as u64) as usize;
                if object.read(offset, &mut data[at..=at]).is_err() {
                    return status::INVALID_PARAMETER;
                }
            }
            data
        } else {
            // CAST: an address.
            if !shim::touch(source as usize, bytes) {
                return status::ACCESS_VIOLATION;
            }
            shim::read_bytes(source as usize, bytes)
        };
        shim::write_bytes(target, &data);
        copied.set(bytes);
        status::SUCCESS
    }
}
