//! The rules of memory: MDLs, mappings, physical pages, device ranges.

use crate::rules;

rules! {
    /// Rules of memory.
    pub list MEMORY_RULES;

    /// MDL state.
    NT_MDL_STATE = "NT-MDL-STATE" {
        title: "an MDL is in the state that the operation needs: not locked twice, not mapped twice, locked before it is mapped or unlocked",
        source: "Verifier 0xC4/0xB0 (probe and lock), 0xB2 and 0xB3 (map), 0x7C and 0x7D (unlock)",
        bugcheck: (0xC4, 0xB2),
        fix: "follow the order: allocate, lock or build, map, unmap, unlock, free",
    }
    /// MDL shape.
    NT_MDL_SHAPE = "NT-MDL-SHAPE" {
        title: "an MDL is well formed: size, page-aligned start, offset below a page, known to IoAllocateMdl where that matters",
        source: "wdm.h IoAllocateMdl, MmSizeOfMdl, MmInitializeMdl",
        bugcheck: (0xC4, 0xB2),
        fix: "let IoAllocateMdl or MmInitializeMdl fill in the header",
    }
    /// Frames.
    NT_MDL_FRAME = "NT-MDL-FRAME" {
        title: "every page frame in an MDL is RAM that is allocated, unless the MDL says MDL_IO_SPACE",
        source: "Verifier 0xC4/0x89 (non-memory page in an MDL); bug check 0x4E PFN_LIST_CORRUPT",
        bugcheck: (0xC4, 0x89),
        fix: "use frames only while the allocation that they come from lives",
    }
    /// Residency.
    NT_MDL_LOCKED = "NT-MDL-LOCKED" {
        title: "pages are locked or non-paged while an MDL with them is mapped",
        source: "Verifier 0xC4/0x85; wdm.h MmMapLockedPagesSpecifyCache",
        bugcheck: (0xC4, 0x85),
        fix: "MmProbeAndLockPages first, or MmBuildMdlForNonPagedPool for non-paged pool",
    }
    /// Non-paged pool.
    NT_MDL_PAGED = "NT-MDL-PAGED" {
        title: "MmBuildMdlForNonPagedPool describes non-paged memory",
        source: "Verifier 0xC4/0x7F and 0x140",
        bugcheck: (0xC4, 0x7F),
        fix: "allocate from non-paged pool, or lock the pages instead",
    }
    /// Probing.
    NT_MDL_PROBE = "NT-MDL-PROBE" {
        title: "MmProbeAndLockPages is given an accessible buffer (it raises an exception otherwise, which a driver without structured exception handling cannot catch)",
        source: "wdm.h MmProbeAndLockPages, remarks",
        bugcheck: (0x7E, 0xC0000005),
        fix: "lock only buffers that the caller's process has mapped with the rights asked for",
    }
    /// Bug check on failure.
    NT_MDL_BUGCHECK = "NT-MDL-BUGCHECK" {
        title: "MmMapLockedPagesSpecifyCache is told not to bug-check on failure",
        source: "Verifier 0xC4/0x82",
        bugcheck: (0xC4, 0x82),
        fix: "pass FALSE and handle a NULL result",
    }
    /// Cache types.
    NT_CACHE = "NT-CACHE" {
        title: "all mappings of a page have one cache type, that which the page was allocated with",
        source: "wdm.h MmMapLockedPagesSpecifyCache (CacheType), MmMapIoSpaceEx; windows-driver-docs kernel/mapping-device-memory",
        bugcheck: none,
        fix: "map with the type that the pages were allocated with; of pages that are not one's own, MmGetCacheAttribute says it",
    }
    /// Rights.
    NT_MAP_WRITE = "NT-MAP-WRITE" {
        title: "what the memory manager lets a device only read is mapped with MdlMappingNoWrite, or protected by MmProtectMdlSystemAddress before it is unmapped",
        source: "wdm.h MmMapLockedPagesSpecifyCache (Priority); MmProtectMdlSystemAddress; MmProbeAndLockPages, IoReadAccess: a driver may look at such pages and not change them; d3dkmddi.h DXGK_PTE (ReadOnly)",
        bugcheck: none,
        fix: "keep the ReadOnly bit of the page table entry with the frame, and map by it",
    }
    /// Freed while mapped.
    NT_MAP_LEFT = "NT-MAP-LEFT" {
        title: "no page is freed while it is mapped or locked",
        source: "Verifier 0xC4/0xB8; bug checks 0x4E PFN_LIST_CORRUPT, 0xCB DRIVER_LEFT_LOCKED_PAGES_IN_PROCESS",
        bugcheck: (0xC4, 0xB8),
        fix: "unmap and unlock before you free",
    }
    /// Unmapping.
    NT_UNMAP = "NT-UNMAP" {
        title: "a mapping is removed once, by its own routine, with the address and MDL that made it",
        source: "bug check 0xDA SYSTEM_PTE_MISUSE; wdm.h MmUnmapLockedPages, MmUnmapIoSpace, MmUnmapReservedMapping",
        bugcheck: (0xDA, 0x0),
        fix: "keep the address that the mapping routine returned, and clear it when you unmap",
    }
    /// Reserved mappings.
    NT_MAPPING_TAG = "NT-MAPPING-TAG" {
        title: "a reserved mapping address is used with its tag, large enough, and not in use already",
        source: "bug check 0xDA SYSTEM_PTE_MISUSE parameters 0x100 to 0x10A; wdm.h MmMapLockedPagesWithReservedMapping",
        bugcheck: (0xDA, 0x100),
        fix: "use one constant tag, unmap before the next mapping, and check the length",
    }
    /// Contiguous memory.
    NT_CONTIGUOUS_FREE = "NT-CONTIGUOUS-FREE" {
        title: "MmFreeContiguousMemory is given the address that the allocation returned, once, with its size and cache type",
        source: "wdm.h MmFreeContiguousMemory(SpecifyCache); Verifier 0xC4/0x16",
        bugcheck: (0xC4, 0x16),
        fix: "keep base, size and cache type together and clear them when you free",
    }
    /// Addresses.
    NT_PHYSICAL_ADDRESS = "NT-PHYSICAL-ADDRESS" {
        title: "MmGetPhysicalAddress is asked about memory that is resident",
        source: "wdm.h MmGetPhysicalAddress, remarks",
        bugcheck: none,
        fix: "ask about locked or non-paged memory only",
    }
    /// I/O space of RAM.
    NT_IO_RAM = "NT-IO-RAM" {
        title: "MmMapIoSpace maps device ranges, not RAM",
        source: "Verifier 0xC4/0x83; wdm.h MmMapIoSpace (only for addresses from translated resources or locked pages)",
        bugcheck: (0xC4, 0x83),
        fix: "map RAM through an MDL",
    }
    /// Unknown physical addresses.
    NT_IO_UNKNOWN = "NT-IO-UNKNOWN" {
        title: "MmMapIoSpace maps addresses that a device answers",
        source: "wdm.h MmMapIoSpaceEx; windows-driver-docs kernel/mapping-bus-relative-addresses-to-virtual-addresses",
        bugcheck: none,
        fix: "take the range from the translated resource list",
    }
    /// Leaked pages.
    NT_PAGES_LEAKED = "NT-PAGES-LEAKED" {
        title: "a driver has freed its contiguous memory and MDL pages before it is unloaded",
        source: "Verifier 0xC4/0x62 (allocations not freed at unload)",
        bugcheck: (0xC4, 0x62),
        fix: "free them on the unload path",
    }
    /// Leaked MDLs.
    NT_MDL_LEAKED = "NT-MDL-LEAKED" {
        title: "a driver has freed its MDLs before it is unloaded",
        source: "wdm.h IoFreeMdl; Verifier 0xC4/0x62",
        bugcheck: (0xC4, 0x62),
        fix: "IoFreeMdl each one (ExFreePool for those of MmAllocatePagesForMdlEx)",
    }
    /// Leaked mappings.
    NT_MAP_LEAKED = "NT-MAP-LEAKED" {
        title: "a driver has removed its mappings before it is unloaded",
        source: "Verifier 0xC4/0xB8; wdm.h MmUnmapLockedPages, MmUnmapIoSpace",
        bugcheck: (0xC4, 0xB8),
        fix: "unmap on the unload path",
    }
    /// Locked user pages at process end.
    NT_PROCESS_LOCKED_PAGES = "NT-PROCESS-LOCKED-PAGES" {
        title: "no page of a process is locked when the process ends",
        source: "bug checks 0x76 PROCESS_HAS_LOCKED_PAGES, 0xCB DRIVER_LEFT_LOCKED_PAGES_IN_PROCESS",
        bugcheck: (0x76, 0x0),
        fix: "unlock in the process's cleanup path, before it ends",
    }
    /// Driver touching user memory.
    NT_USER_TOUCH = "NT-USER-TOUCH" {
        title: "driver code does not touch user addresses outside a documented capture",
        source: "windows-driver-docs kernel/errors-in-referencing-user-space-addresses; Verifier 0xC4/0xE0",
        bugcheck: (0xC4, 0xE0),
        fix: "work on what Dxgkrnl has captured, or on a system mapping of locked pages",
    }
}
