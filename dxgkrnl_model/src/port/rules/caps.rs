//! Rules of capabilities that must agree with each other.

use nt_model::rules;

rules! {
    /// Consistency of capabilities.
    pub list CAPS_RULES;

    /// Preemption.
    CAPS_PREEMPTION = "DXG-CAPS-PREEMPTION" {
        title: "PreemptionAware requires MultiEngineAware",
        source: "DDI page DXGK_VIDSCHCAPS, PreemptionAware",
        bugcheck: none,
        fix: "set MultiEngineAware as well",
    }
    /// Patching.
    CAPS_PATCHING = "DXG-CAPS-PATCHING" {
        title: "NoDmaPatching requires PreemptionAware and MultiEngineAware",
        source: "DDI page DXGK_VIDSCHCAPS, NoDmaPatching",
        bugcheck: none,
        fix: "set both as well",
    }
    /// Cancel.
    CAPS_CANCEL = "DXG-CAPS-CANCEL" {
        title: "CancelCommandAware requires MultiEngineAware",
        source: "DDI page DXGK_VIDSCHCAPS, CancelCommandAware",
        bugcheck: none,
        fix: "set MultiEngineAware as well",
    }
    /// Granularity.
    CAPS_GRANULARITY = "DXG-CAPS-GRANULARITY" {
        title: "a preemption-aware driver reports non-zero preemption granularities",
        source: "DDI page D3DKMDT_PREEMPTION_CAPS; HLK \"Preempt - Validate non-zero preemption values\"; one driver \
            starts with none",
        bugcheck: none,
        severity: warning,
        fix: "report D3DKMDT_GRAPHICS_PREEMPTION_DMA_BUFFER_BOUNDARY and the compute value at least",
    }
    /// Per-engine TDR.
    CAPS_PER_ENGINE_TDR = "DXG-CAPS-PER-ENGINE-TDR" {
        title: "SupportPerEngineTDR comes with QueryDependentEngineGroup, QueryEngineStatus, ResetEngine and CollectDbgInfo",
        source: "article tdr-changes-in-windows-8",
        bugcheck: none,
        fix: "implement all of them or none",
    }
    /// GPU virtual addressing.
    CAPS_VIRTUAL = "DXG-CAPS-VIRTUAL" {
        title: "GpuMmuSupported and IoMmuSupported are not both set",
        source: "DDI page DXGK_VIDMMCAPS (they cannot be set at the same time; article mcdm-implementation-guidelines \
            has and/or); that neither is set is seen with drivers that start",
        bugcheck: none,
        fix: "clear one of them",
    }
    /// Cross-adapter tiers.
    CAPS_CROSS_ADAPTER = "DXG-CAPS-CROSS-ADAPTER" {
        title: "CrossAdapterResourceScanout requires CrossAdapterResourceTexture, which requires CrossAdapterResource",
        source: "DDI page DXGK_VIDMMCAPS",
        bugcheck: none,
        fix: "set the lower tiers as well",
    }
    /// Scheduling of several engines.
    CAPS_MULTI_ENGINE = "DXG-CAPS-MULTI-ENGINE" {
        title: "from WDDM 2.0 on, DXGK_VIDSCHCAPS.MultiEngineAware is set",
        source: "DDI page DXGK_VIDSCHCAPS; that the start is refused with STATUS_INVALID_PARAMETER was seen by the author \
            of one driver, and no driver that starts is known to have it clear",
        bugcheck: none,
        fix: "set MultiEngineAware, and fill NodeOrdinal and EngineOrdinal as an adapter of several nodes does",
    }
    /// Flip capabilities of an adapter that never flips.
    CAPS_FLIP = "DXG-CAPS-FLIP" {
        title: "from WDDM 2.0 on, DXGK_FLIPCAPS.FlipOnVSyncMmIo is set, unless the adapter is compute-only",
        source: "article wddm-driver-and-feature-caps (mandatory, render-only drivers included); that the start is \
            refused is seen with three drivers, and a fourth starts without: Personality::flip_caps_demanded",
        bugcheck: none,
        fix: "set FlipOnVSyncMmIo and a MaxQueuedFlipOnVSync of 1, although nothing is ever flipped",
    }
    /// The promise to release ownership of the POST display.
    CAPS_NON_VGA = "DXG-CAPS-NON-VGA" {
        title: "SupportNonVGA comes with DxgkDdiStopDeviceAndReleasePostDisplayOwnership",
        source: "DDI page DXGK_DRIVERCAPS, SupportNonVGA",
        bugcheck: none,
        fix: "clear SupportNonVGA, or fill the slot: it is called at a PnP stop",
    }
    /// The promise of cross-adapter resources.
    CAPS_CROSS_ADAPTER_SERVED = "DXG-CAPS-CROSS-ADAPTER-SERVED" {
        title: "CrossAdapterResource comes with the standard allocation that the OS makes for it: \
            DxgkDdiGetStandardAllocationDriverData says sizes, then data, and DxgkDdiCreateAllocation takes them",
        source: "DDI page DXGK_VIDMMCAPS, CrossAdapterResource (such a resource is made by the OS as a standard \
            allocation); DDI page DXGKARG_GETSTANDARDALLOCATIONDRIVERDATA (asked twice: sizes, then data; not both \
            sizes zero); DDI page D3DKMT_CREATEALLOCATIONFLAGS, ExistingSysMem (asked for each heap of user mode's, \
            which may be refused with STATUS_NO_MEMORY)",
        bugcheck: none,
        fix: "clear the capability, or serve D3DKMDT_STANDARDALLOCATION_GDISURFACE of type \
            D3DKMDT_GDISURFACE_TEXTURE_CROSSADAPTER",
    }
    /// Optimized native fence interrupt.
    CAPS_OPTIMIZED = "DXG-CAPS-OPTIMIZED" {
        title: "OptimizedNativeFenceSignaledInterrupt requires NativeGpuFence",
        source: "article native-gpu-fence-objects (an optional addition to the native fence signaled interrupt)",
        bugcheck: none,
        fix: "set it only together with NativeGpuFence",
    }
    /// Widths of fence values.
    CAPS_ATOMICS = "DXG-CAPS-ATOMICS" {
        title: "NativeGpuFence requires 64-bit atomics: No64BitAtomics is clear",
        source: "article native-gpu-fence-objects, design (CurrentValue requires 64-bit writes to be atomic from both the CPU and the GPU point of view); DDI page DXGK_VIDSCHCAPS, No64BitAtomics",
        bugcheck: none,
        fix: "set No64BitAtomics only where the adapter goes without native fences",
    }
    /// Hardware needed by user-mode submission.
    CAPS_USER_MODE = "DXG-CAPS-USER-MODE" {
        title: "a node with UserModeSubmission has ContextSchedulingSupported, and the adapter NativeGpuFence",
        source: "article native-gpu-fence-objects (user-mode queues cannot use monitored fences); article querying-wddm-feature-support-and-enablement (dependencies)",
        bugcheck: none,
        fix: "advertise the rungs in order",
    }
    /// Addresses.
    CAPS_HIGHEST_ADDRESS = "DXG-CAPS-HIGHEST-ADDRESS" {
        title: "HighestVisibleAddress and HighestAcceptableAddress cover the installed memory",
        source: "DDI page DXGK_PHYSICAL_MEMORY_CAPS; article mcdm-implementation-guidelines",
        bugcheck: none,
        fix: "report the highest address that the device can reach; all ones for a software device",
    }
    /// Number of nodes.
    CAPS_NODES = "DXG-CAPS-NODES" {
        title: "GpuEngineTopology.NbAsymetricProcessingNodes equals PHYSICALADAPTERCAPS.NumExecutionNodes and is not zero",
        source: "article tdr-changes-in-windows-8, Nodes; DDI page DXGK_PHYSICALADAPTERCAPS",
        bugcheck: none,
        fix: "report the same number of nodes in both",
    }
    /// Nodes of linked adapters.
    LINK_NODES = "DXG-LINK-NODES" {
        title: "each physical adapter of a link has as many nodes as the first: PHYSICALADAPTERCAPS.NumExecutionNodes is the same for every index",
        source: "article tdr-changes-in-windows-8, Engines (each engine must have the same number of nodes)",
        bugcheck: none,
        fix: "link physical adapters of one kind only: DxgkDdiLinkDevice names no other",
    }
    /// Addresses of linked adapters.
    LINK_ADDRESSES = "DXG-LINK-ADDRESSES" {
        title: "each physical adapter of a link has GPU virtual addresses of as many bits as the first",
        source: "article linked-display-adapter, GpuMmu support (VirtualAddressBitCount must be the same for all)",
        bugcheck: none,
        fix: "report the smallest of their VirtualAddressBitCount for every index",
    }
    /// Paging node.
    CAPS_PAGING_NODE = "DXG-CAPS-PAGING-NODE" {
        title: "PagingNodeIndex names an existing node",
        source: "DDI page DXGK_PHYSICALADAPTERCAPS; one driver's author was refused until it was a copy node, and others \
            start with a 3-D node: Personality::copy_node_demanded",
        bugcheck: none,
        fix: "name a node of the adapter's: a copy node, to be on the safe side",
    }
    /// The physical adapter's handle.
    CAPS_ADAPTER_HANDLE = "DXG-CAPS-ADAPTER-HANDLE" {
        title: "DxgkPhysicalAdapterHandle is DXGKRNL_INTERFACE.DeviceHandle",
        source: "DDI page DXGK_PHYSICALADAPTERCAPS; that it is this handle is what drivers answer that start, and with \
            another value their authors saw bug check 0x7E in dxgmms2 at the start",
        bugcheck: none,
        fix: "write DXGKRNL_INTERFACE.DeviceHandle",
    }
    /// History buffers.
    CAPS_HISTORY = "DXG-CAPS-HISTORY" {
        title: "HISTORYBUFFERPRECISION is 32 to 64 bits for every node",
        source: "DDI page DXGKARG_HISTORYBUFFERPRECISION, Remarks (OutputDataSize is the structure's times \
            NbAsymetricProcessingNodes); that fewer than 32 or more than 64 end the start is seen, not documented",
        bugcheck: none,
        fix: "write 64 to every element of the output",
    }
    /// Page table levels.
    MMU_LEVELS = "DXG-MMU-LEVELS" {
        title: "page tables have 2 to 6 levels whose index bits and 12 bits of offset add up to VirtualAddressBitCount",
        source: "DDI pages DXGK_GPUMMUCAPS, DXGK_PAGE_TABLE_LEVEL_DESC; article gpu-virtual-address; macro DXGK_MAX_PAGE_TABLE_LEVEL_COUNT",
        bugcheck: none,
        fix: "describe every level; the root's bits too when there are more than two",
    }
    /// Page table sizes.
    MMU_TABLE_SIZE = "DXG-MMU-TABLE-SIZE" {
        title: "a page table's size is a multiple of 4096 bytes, and 4096 in system memory (segment 0)",
        source: "DDI page DXGK_PAGE_TABLE_LEVEL_DESC",
        bugcheck: none,
        fix: "correct PageTableSizeInBytes or the segment",
    }
    /// Page table segments.
    MMU_TABLE_SEGMENT = "DXG-MMU-TABLE-SEGMENT" {
        title: "page table segments exist and are memory segments or system memory (0)",
        source: "DDI page DXGK_PAGE_TABLE_LEVEL_DESC",
        bugcheck: none,
        fix: "name an existing memory segment or 0",
    }
    /// Page tables that the CPU does not see.
    MMU_TABLE_CPU = "DXG-MMU-TABLE-CPU" {
        title: "PagingProcessPageTableSegmentId is 0, system memory, or a segment that says CpuVisible",
        source: "not documented; bug check 0x10E/0x49, seen at the start by the author of a driver with GPU virtual \
            addresses: the OS fills the first tables of the paging process itself, whatever PageTableUpdateMode says",
        bugcheck: (0x10E, 0x49),
        fix: "put the paging process's page tables into system memory, or into a segment that the CPU sees",
    }
    /// Update mode.
    MMU_UPDATE_MODE = "DXG-MMU-UPDATE-MODE" {
        title: "PageTableUpdateMode is one of three, and not CPU_VIRTUAL with page directories in a local memory segment",
        source: "DDI page DXGK_GPUMMUCAPS, PageTableUpdateMode",
        bugcheck: (0x10E, 0x49),
        fix: "use GPU_PHYSICAL or GPU_VIRTUAL, or put the tables in system memory",
    }
    /// 64 KB leaf tables.
    MMU_LARGE_LEAF = "DXG-MMU-LARGE-LEAF" {
        title: "LeafPageTableSizeFor64KPagesInBytes is a multiple of 4096",
        source: "DDI page DXGK_GPUMMUCAPS",
        bugcheck: none,
        fix: "round it up",
    }
    /// Segments.
    SEGMENT_SHAPE = "DXG-SEGMENT-SHAPE" {
        title: "segments have a size; CPU-visible ones have a translated address; one with a CPU host aperture is the last",
        source: "DDI page DXGK_SEGMENTDESCRIPTOR4 (CpuTranslatedAddress and CpuHostAperture are a union); the order is seen, not documented",
        bugcheck: none,
        fix: "correct the descriptor",
    }
    /// Paging buffers.
    SEGMENT_PAGING_BUFFER = "DXG-SEGMENT-PAGING-BUFFER" {
        title: "PagingBufferSegmentId is 0 or an existing segment, and PagingBufferSize is not zero",
        source: "DDI page DXGK_QUERYSEGMENTOUT4",
        bugcheck: none,
        fix: "name a segment and a size",
    }
    /// Paging buffers lie where the CPU sees them.
    SEGMENT_PAGING_VISIBLE = "DXG-SEGMENT-PAGING-VISIBLE" {
        title: "PagingBufferSegmentId is 0, or a segment that says CpuVisible",
        source: "not documented; seen on build 26100 by the author of a virtio-gpu driver with GPU virtual addresses: with \
            paging buffers in an aperture that the CPU does not see, collecting debug data at a timeout ended in bug \
            check 0x7E; with 0 it recovered",
        bugcheck: none,
        fix: "set PagingBufferSegmentId to 0, or CpuVisible on the aperture",
    }
    /// Budget groups of segments.
    SEGMENT_BUDGET = "DXG-SEGMENT-BUDGET" {
        title: "a segment counts against one budget group at most, and no aperture says PopulatedFromSystemMemory",
        source: "DDI page DXGK_SEGMENTFLAGS (LocalBudgetGroup, NonLocalBudgetGroup; PopulatedFromSystemMemory is \
            invalid on aperture segments)",
        bugcheck: none,
        fix: "set one of the two, and PopulatedFromSystemMemory on memory segments only",
    }
    /// How many apertures there are.
    SEGMENT_APERTURE = "DXG-SEGMENT-APERTURE" {
        title: "an adapter with GpuMmuSupported reports one aperture segment",
        source: "article gpu-segments, Aperture Segments (a single one must be reported)",
        bugcheck: none,
        fix: "report one, and no second: what is in system memory needs none but where it is accessed physically",
    }
    /// What physical adapters say of their memory management.
    CAPS_PHYSICAL_FLAGS = "DXG-CAPS-PHYSICAL-FLAGS" {
        title: "PHYSICALADAPTERCAPS.Flags has IoMmuSupported and GpuMmuSupported as DRIVERCAPS has them",
        source: "DDI page DXGK_PHYSICALADAPTERCAPS, Flags",
        bugcheck: none,
        severity: warning,
        fix: "set in both what the adapter supports",
    }
    /// Where the OS has its own resources.
    CAPS_INTERNAL_RANGE = "DXG-CAPS-INTERNAL-RANGE" {
        title: "InternalGpuVirtualAddressRangeStart and -End are both zero, or an ascending range within \
            VirtualAddressBitCount; zero without GpuMmuSupported and IoMmuSupported",
        source: "article mcdm-implementation-guidelines, Driver capability requirements (zero if GpuVA isn't supported; \
            both zero: the entire range)",
        bugcheck: none,
        fix: "leave both zero where the OS may use every address",
    }
    /// Native fence caps.
    NATIVE_FENCE_CAPS = "DXG-NATIVE-FENCE-CAPS" {
        title: "MonitoredValueStride keeps 64-bit values aligned within a page, and MinimumAddress does not exceed MaximumAddress",
        source: "DDI page DXGK_NATIVE_FENCE_CAPS; article native-gpu-fence-objects (64-bit writes are atomic)",
        bugcheck: none,
        fix: "report 0 (no preference) or a multiple of 8 up to 4096",
    }
    /// User-mode submission caps.
    USER_MODE_CAPS = "DXG-USER-MODE-CAPS" {
        title: "DoorbellSizeInBytes is 1 to 16384, and so is SecondaryDoorbellSizeInBytes where secondary doorbells are supported",
        source: "article user-mode-work-submission (the size is needed to map); macro DXGK_MAX_DOORBELL_SIZE_BYTES",
        bugcheck: none,
        fix: "report the size of one doorbell",
    }
    /// Children of a render-only adapter.
    CAPS_CHILDREN = "DXG-CAPS-CHILDREN" {
        title: "DxgkDdiQueryChildRelations fills all elements but the last, which stays zero",
        source: "DDI page DxgkDdiQueryChildRelations",
        bugcheck: none,
        fix: "leave the array alone when there are no children",
    }
}
