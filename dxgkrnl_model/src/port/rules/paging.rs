//! Rules of objects, memory and packet submission.

use nt_model::rules;

rules! {
    /// Memory, paging, packets.
    pub list PAGING_RULES;

    /// Statuses of object creation.
    OBJECT_STATUS = "DXG-OBJECT-STATUS" {
        title: "creation DDIs fail with the listed statuses only: device, context NO_MEMORY (context: DRIVER_MISMATCH too); allocation and open INVALID_PARAMETER, NO_MEMORY, DRIVER_MISMATCH",
        source: "DDI pages DxgkDdiCreateDevice, DxgkDdiCreateContext, DxgkDdiCreateAllocation, DxgkDdiOpenAllocation",
        bugcheck: none,
        fix: "map the error to one of the listed statuses",
    }
    /// Handles.
    OBJECT_HANDLE = "DXG-OBJECT-HANDLE" {
        title: "a creation DDI that succeeds has stored its handle",
        source: "DDI pages of the DXGKARG_CREATE structures (hDevice, hContext, hAllocation, hHwContext, hHwQueue, hDoorbell, hKmdProcess)",
        bugcheck: none,
        fix: "store a non-NULL handle before returning STATUS_SUCCESS",
    }
    /// Destruction.
    OBJECT_DESTROY = "DXG-OBJECT-DESTROY" {
        title: "destroying and closing DDIs succeed",
        source: "DDI pages DxgkDdiDestroyDevice, DxgkDdiDestroyContext, DxgkDdiDestroyAllocation, DxgkDdiCloseAllocation, DxgkDdiDestroyHwContext, DxgkDdiDestroyHwQueue, DxgkDdiDestroyProcess",
        bugcheck: none,
        fix: "free without failing",
    }
    /// Sizes of allocations.
    ALLOC_SIZE = "DXG-ALLOC-SIZE" {
        title: "an allocation has a size, and a priority other than 0",
        source: "DDI page DXGK_ALLOCATIONINFO (Size, AllocationPriority)",
        bugcheck: none,
        fix: "store both in DxgkDdiCreateAllocation",
    }
    /// Segments of allocations.
    ALLOC_SEGMENT = "DXG-ALLOC-SEGMENT" {
        title: "SupportedWriteSegmentSet names existing segments, PreferredSegment only supported ones, EvictionSegmentSet only apertures",
        source: "DDI page DXGK_ALLOCATIONINFO",
        bugcheck: none,
        fix: "correct the sets; bit 0 is segment 1",
    }
    /// CPU visibility.
    ALLOC_CPU_VISIBLE = "DXG-ALLOC-CPU-VISIBLE" {
        title: "a CPU-visible allocation can be placed in an aperture or a CPU-visible segment",
        source: "article gpu-segments",
        bugcheck: none,
        fix: "add the aperture segment to the set",
    }
    /// Flags of allocations.
    ALLOC_FLAGS = "DXG-ALLOC-FLAGS" {
        title: "ExplicitResidencyNotification requires AccessedPhysically, and MapApertureCpuVisible requires MapAperture2Supported",
        source: "DDI page DXGK_ALLOCATIONINFOFLAGS_WDDM2_0",
        bugcheck: none,
        fix: "set both flags, or neither",
    }
    /// DMA buffers of contexts.
    CONTEXT_INFO = "DXG-CONTEXT-INFO" {
        title: "DmaBufferSegmentSet of a context names aperture segments only",
        source: "DDI page DXGK_CONTEXTINFO, remarks",
        bugcheck: none,
        fix: "use 0 or an aperture segment",
    }
    /// DMA buffers of the system's contexts, on a display adapter.
    CONTEXT_SEGMENT = "DXG-CONTEXT-SEGMENT" {
        title: "DmaBufferSegmentSet of a system context names a segment where the GPU has page tables, unless the \
            adapter is compute-only",
        source: "bug check 0x10E/0x49; that it ends the start is seen with three drivers, of display adapters: the \
            pages of the record allow 0",
        bugcheck: (0x10E, 0x49),
        fix: "name the aperture segment",
    }
    /// A context's output record is written as a whole.
    CONTEXT_OUTPUT = "DXG-CONTEXT-OUTPUT" {
        title: "DxgkDdiCreateContext writes every member of DXGK_CONTEXTINFO: Reserved is 0, and AllocationListSize \
            256 for a GDI context",
        source: "DDI page DXGKARG_CREATECONTEXT, ContextInfo ([out]); DDI page DXGK_CONTEXTINFO; Microsoft's \
            compute-only sample leaves members as they were",
        bugcheck: none,
        severity: warning,
        fix: "store a whole record, whose other members are zero",
    }
    /// The node on which a context's page tables are written.
    CONTEXT_COMPANION = "DXG-CONTEXT-COMPANION" {
        title: "PagingCompanionNodeId names a node that takes packets",
        source: "DDI page DXGK_CONTEXTINFO, PagingCompanionNodeId; article tile-resources (the companion context is a \
            packet context of its own)",
        bugcheck: none,
        fix: "name the paging node",
    }
    /// An allocation's output record is written as a whole.
    ALLOC_OUTPUT = "DXG-ALLOC-OUTPUT" {
        title: "DxgkDdiCreateAllocation writes Flags2 of every DXGK_ALLOCATIONINFO",
        source: "DDI page DXGK_ALLOCATIONINFO, Flags2",
        bugcheck: none,
        fix: "store zero where none of the flags is meant",
    }
    /// Root page table sizes.
    ROOT_TABLE_SIZE = "DXG-ROOT-TABLE-SIZE" {
        title: "DxgkDdiGetRootPageTableSize returns a page multiple that holds the entries",
        source: "DDI page DxgkDdiGetRootPageTableSize",
        bugcheck: none,
        fix: "round up to the page size of the segment",
    }
    /// Status of BuildPagingBuffer.
    PAGING_STATUS = "DXG-PAGING-STATUS" {
        title: "DxgkDdiBuildPagingBuffer returns STATUS_SUCCESS, STATUS_GRAPHICS_ALLOCATION_BUSY or STATUS_GRAPHICS_INSUFFICIENT_DMA_BUFFER",
        source: "DDI page DxgkDdiBuildPagingBuffer, return value; bug check 0x10E/0xB",
        bugcheck: (0x10E, 0xB),
        fix: "handle everything else inside; ask for more buffer when there is none",
    }
    /// Memory that lost its content.
    PAGING_LOST = "DXG-PAGING-LOST" {
        title: "for a transfer of no bytes, by which VidMm says between DxgkDdiResetFromTimeout and \
            DxgkDdiRestartFromTimeout that the content of an allocation is lost, DxgkDdiBuildPagingBuffer builds nothing",
        source: "article thread-synchronization-and-tdr (such calls should not access the GPU unless absolutely \
            necessary)",
        bugcheck: none,
        fix: "return STATUS_SUCCESS for a transfer whose size is 0, and leave pDmaBuffer as it is",
    }
    /// Page tables that begin anew.
    PAGING_ANEW = "DXG-PAGING-ANEW" {
        title: "when page tables begin anew, because their memory was lost, every entry is written: those of the paging \
            process by the CPU, at once, also long after the adapter was initialized",
        source: "article system-paging-process (initialized at adapter initialization and every time after the memory \
            content is lost)",
        bugcheck: none,
        fix: "carry out each UPDATE_PAGE_TABLE, whatever the driver believes to be in the table",
    }
    /// Overrun of the DMA buffer.
    PAGING_OVERRUN = "DXG-PAGING-OVERRUN" {
        title: "DxgkDdiBuildPagingBuffer writes within DmaSize and leaves pDmaBuffer within the buffer",
        source: "bug check 0x10E/0x12; DDI page DxgkDdiBuildPagingBuffer",
        bugcheck: (0x10E, 0x12),
        fix: "check the space that is left first",
    }
    /// Overrun of the private data.
    PAGING_PRIVATE = "DXG-PAGING-PRIVATE" {
        title: "DxgkDdiBuildPagingBuffer writes within DmaBufferPrivateDataSize",
        source: "bug check 0x10E/0x13; DDI page DXGKARG_BUILDPAGINGBUFFER",
        bugcheck: (0x10E, 0x13),
        fix: "check the space that is left first",
    }
    /// Copies of page table entries.
    PAGING_COPY = "DXG-PAGING-COPY" {
        title: "entries that DXGK_OPERATION_COPY_PAGE_TABLE_ENTRIES copies are in the destination afterwards, as if \
            all were read before one is written, and no other entry of that table has changed",
        source: "article tile-resources (the update command updates the page table entries); DDI page \
            DXGK_BUILDPAGINGBUFFER_COPY_RANGE; D3DDDI_UPDATEGPUVIRTUALADDRESS_OPERATION, Copy (ranges may intersect)",
        bugcheck: none,
        fix: "build a copy of the entries; one that is left out leaves the GPU mappings that the OS has taken away",
    }
    /// Progress.
    PAGING_PROGRESS = "DXG-PAGING-PROGRESS" {
        title: "DxgkDdiBuildPagingBuffer asks for a further buffer only after progress in this one",
        source: "DDI page DxgkDdiBuildPagingBuffer, remarks (MultipassOffset)",
        bugcheck: none,
        fix: "write what fits, remember the rest in MultipassOffset",
    }
    /// Immediate updates of the paging process.
    PAGING_IMMEDIATE = "DXG-PAGING-IMMEDIATE" {
        title: "updates by which the page tables of the paging process are initialized are done at once, by the CPU: \
            pDmaBuffer is NULL, or names a buffer that is left as it is, with its private data and the members that \
            say how far they are used",
        source: "article system-paging-process; DDI page DXGK_BUILDPAGINGBUFFER_UPDATEPAGETABLE, UpdateMode; that a \
            buffer may be there was seen by the author of one driver",
        bugcheck: (0x10E, 0xB),
        fix: "write the entries through PageTableAddress.CpuVirtual, whatever pDmaBuffer is, and return STATUS_SUCCESS",
    }
    /// Busy although idle.
    PAGING_BUSY = "DXG-PAGING-BUSY" {
        title: "STATUS_GRAPHICS_ALLOCATION_BUSY is returned only for operations with an AllocationIsIdle flag, and not when it is set",
        source: "DDI page DxgkDdiBuildPagingBuffer, remarks",
        bugcheck: (0x10E, 0xB),
        fix: "when AllocationIsIdle is set the allocation is idle",
    }
    /// What an eviction leaves.
    PAGING_EVICTED = "DXG-PAGING-EVICTED" {
        title: "when an allocation is evicted, and no page table names it any more, the driver has none of its pages \
            mapped",
        source: "article user-mode-work-submission, engine D-state transitions (nothing is evicted that hardware still \
            refers to); DDI page DxgkDdiBuildPagingBuffer, DXGK_OPERATION_FLUSH_TLB",
        bugcheck: none,
        fix: "have the GPU let go of what it has translated before the flush is reported as done",
    }
    /// Status of packet submission.
    SUBMIT_STATUS = "DXG-SUBMIT-STATUS" {
        title: "DxgkDdiSubmitCommandVirtual returns STATUS_SUCCESS or STATUS_INVALID_PARAMETER, and STATUS_SUCCESS for paging",
        source: "DDI page DxgkDdiSubmitCommandVirtual, return value; bug check 0x119/0x2",
        bugcheck: (0x119, 0x2),
        fix: "accept, queue, and fail later",
    }
    /// Ends of paging buffers where no timeout is looked for.
    PAGING_END = "DXG-PAGING-END" {
        title: "a paging buffer that is submitted ends, also while an adapter starts or stops",
        source: "article supplying-fence-identifiers; chosen: while nothing looks for timeouts, five times TdrDelay \
            and TdrDdiDelay are waited for it",
        bugcheck: none,
        fix: "report the buffer's fence id by an interrupt; claim what was raised before a change of the power state",
    }
    /// Status of preemption.
    PREEMPT_STATUS = "DXG-PREEMPT-STATUS" {
        title: "DxgkDdiPreemptCommand succeeds",
        source: "DDI page DxgkDdiPreemptCommand; bug check 0x119/0x2",
        bugcheck: (0x119, 0x2),
        fix: "always succeed; report the preemption by interrupt",
    }
    /// Status of cancelling.
    CANCEL_STATUS = "DXG-CANCEL-STATUS" {
        title: "DxgkDdiCancelCommand succeeds",
        source: "bug check 0x119/0x9; DDI page DxgkDdiCancelCommand",
        bugcheck: (0x119, 0x9),
        fix: "always succeed",
    }
    /// Status of hardware queue submission.
    HW_SUBMIT_STATUS = "DXG-HW-SUBMIT-STATUS" {
        title: "DxgkDdiSubmitCommandToHwQueue accepts a well-formed submission",
        source: "bug check 0x119/0x2 (driver failed upon the submission of a command); DDI page DxgkDdiSubmitCommandToHwQueue",
        bugcheck: (0x119, 0x2),
        fix: "accept, queue, and report a fault by interrupt",
    }
    /// Statuses of Escape.
    ESCAPE_STATUS = "DXG-ESCAPE-STATUS" {
        title: "DxgkDdiEscape fails with INVALID_PARAMETER, NO_MEMORY, PRIVILEGED_INSTRUCTION, ILLEGAL_INSTRUCTION or DRIVER_MISMATCH",
        source: "DDI page DxgkDdiEscape, return value",
        bugcheck: none,
        fix: "map the error to one of the listed statuses",
    }
    /// Time in a DDI.
    DDI_TIME = "DXG-DDI-TIME" {
        title: "a DDI returns within the limit that the personality sets",
        source: "HLK PoliceDdi (250 ms)",
        bugcheck: none,
        fix: "queue the work",
    }
}
