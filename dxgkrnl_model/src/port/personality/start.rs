//! Readings and faults of a start: how many system processes there are and how the paging process is made, what page
//! table entries may hold.

/// Processes of the OS with `DXGK_CREATEPROCESSFLAGS.SystemProcess`. The page of the flags says "a system process",
/// which does not say that there is one; the paging process is the one that the system context is made in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SystemProcesses {
    /// The paging process alone.
    #[default]
    One,
    /// Another is made before the paging process, and outlives it.
    AnotherFirst,
    /// Another is made behind the paging process, before its context, and is gone first.
    AnotherLast,
    /// Another is made as above, and is destroyed as soon as the system context exists.
    AnotherBriefly,
    /// Another is made behind the context of the paging process, and outlives it.
    AnotherLater,
}

/// How the paging process of an adapter with GPU virtual addresses is made, where no page says it or what was seen is
/// otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PagingProcess {
    /// The system context is made behind the page tables and the paging buffers. Article system-paging-process does not
    /// say when; starts of three drivers were seen with the context first.
    pub tables_before_context: bool,
    /// Page tables are initialized from the root down, each by one entry that is repeated before its parent names it.
    /// No page gives an order; the author of one driver saw the tables of level 0 first, and above them all entries of
    /// a table in one update without `Repeat`.
    pub root_first: bool,
    /// Updates that are done at once come with a paging buffer and private data of 4096 bytes each, into which nothing
    /// may be written. Seen by the author of one driver, with `UpdateMode` CPU_VIRTUAL; DDI page
    /// DXGK_BUILDPAGINGBUFFER_UPDATEPAGETABLE says that `pDmaBuffer` is NULL then.
    pub updates_with_buffer: bool,
    /// What the system maps for itself lies in the upper half of the address space. The author of one driver saw
    /// addresses above 2^39 of 40 bits; the example of article system-paging-process begins at 0.
    pub high_addresses: bool,
    /// System processes come without process address space identifiers. DDI page DXGKARG_CREATEPROCESS has one for each
    /// physical GPU, and does not say of which processes; one with `SystemProcess` was seen to have it.
    pub no_pasids: bool,
}

/// What becomes of PHYSICALADAPTERCAPS. Without an answer the number of nodes is that of DRIVERCAPS
/// (`GpuEngineTopology.NbAsymetricProcessingNodes`), and so is the node that pages (`MemoryManagementCaps.PagingNode`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PhysicalAdapterCaps {
    /// It is asked, and refusing it ends the start. One driver's author says so of interfaces from 2.0 on.
    Demanded,
    /// It is asked, and refusing it is tolerated: article mcdm-implementation-guidelines has it as optional, and one
    /// driver's author refuses it at 3.2 and at 2.1, and his driver starts.
    #[default]
    Tolerated,
    /// It is not asked, as of drivers of WDDM 1, which do not have the type.
    NotAsked,
}

/// A page table entry, or an update of entries, that a driver which advertises none of large pages, zero pages, 64 KB
/// tables and linked adapters need not know. It must fault: a mapping would be one of memory that the entry does not
/// mean.
///
/// Source: DDI pages DXGK_PTE, DXGK_GPUMMUCAPS, DXGK_UPDATEPAGETABLEFLAGS, DXGK_BUILDPAGINGBUFFER_UPDATEPAGETABLE;
/// article gpu-segments (what lies in an aperture is mapped by its system pages, with segment 0). That 4 KB and 64 KB
/// tables are mixed in one parent was seen with a driver that has both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StrayEntry {
    /// A leaf entry with `LargePage`.
    LargePage,
    /// A leaf entry with `Zero`.
    Zero,
    /// A leaf entry of a segment that the driver never described.
    Segment,
    /// A leaf entry of the segment behind the last one that the driver described. A driver for an older Windows may
    /// take it for system memory; real Windows says system memory with segment 0.
    SegmentBehindLast,
    /// A leaf entry of the first aperture segment that the driver described. An offset into an aperture is no frame of
    /// memory.
    Aperture,
    /// A leaf entry of another physical adapter.
    Adapter,
    /// A leaf entry with a reserved bit.
    Reserved,
    /// An entry of level 1, behind that of a table that was just made: the same table as one of 64 KB pages.
    Table64K,
    /// A leaf entry in an update with the flag `Use64KBPages`, which says that it is one of a table of 64 KB pages.
    Update64K,
    /// A leaf entry in an update with a reserved flag.
    UpdateReserved,
    /// A leaf entry in an update of a level that there is not: the one above the root's.
    UpdateLevel,
    /// Two leaf entries, of which the second lies behind the table.
    UpdateBehindTable,
    /// A leaf entry in an update of a table in a segment that the driver never described. Of drivers that update tables
    /// by physical address only, as the next.
    UpdateSegment,
    /// A leaf entry in an update of a table in the first aperture segment that the driver described.
    UpdateAperture,
    /// A leaf entry in an update by the CPU of a table at NULL.
    UpdateNull,
}

impl StrayEntry {
    /// Every kind, for a test that plays each.
    pub const ALL: [Self; 15] = [
        Self::LargePage,
        Self::Zero,
        Self::Segment,
        Self::SegmentBehindLast,
        Self::Aperture,
        Self::Adapter,
        Self::Reserved,
        Self::Table64K,
        Self::Update64K,
        Self::UpdateReserved,
        Self::UpdateLevel,
        Self::UpdateBehindTable,
        Self::UpdateSegment,
        Self::UpdateAperture,
        Self::UpdateNull,
    ];

    /// Whether what is unknown is the update's flags, range or table, and the entry itself is an ordinary one.
    pub fn is_of_update(self) -> bool {
        matches!(self, Self::Update64K | Self::UpdateReserved | Self::UpdateLevel | Self::UpdateBehindTable)
            || self.is_of_table()
    }

    /// Whether what is unknown is where the table of the update is.
    pub fn is_of_table(self) -> bool {
        matches!(self, Self::UpdateSegment | Self::UpdateAperture | Self::UpdateNull)
    }
}

/// What `hProcess` of FLUSH_TLB names instead of the process. A driver must flush all the same, since the operation may
/// not fail and translations are gone behind it.
///
/// Source: DDI pages DXGK_BUILDPAGINGBUFFER_FLUSHTLB, DxgkDdiBuildPagingBuffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StrayFlush {
    /// NULL, as was seen for a root page table that no context had.
    NoProcess,
    /// The driver's object of another kind: its system context.
    AnotherObject,
    /// The last process that was destroyed; none has been: NULL.
    GoneProcess,
}

/// Where the root page table of a process is said to be, instead of where it is. A driver cannot reach it there, and
/// SetRootPageTable cannot fail: the addresses of the process have to fault.
///
/// Source: DDI pages DXGKARG_SETROOTPAGETABLE, D3DGPU_PHYSICAL_ADDRESS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StrayRoot {
    /// In a segment that the driver never described.
    Segment,
    /// In the first aperture segment that the driver described.
    Aperture,
}

/// Numbers of paging operations that a driver with GPU virtual addresses and without context allocations and further
/// features is not asked for, and that ask for nothing with a record of zeros: notices, accesses of AGP memory whose
/// data are irrelevant, context allocations, mappings of an aperture that has no page table, a copy of no entries.
///
/// Source: DDI pages DXGK_BUILDPAGINGBUFFER_OPERATION, DxgkDdiBuildPagingBuffer.
pub const STRAY_OPERATIONS: [i32; 9] = [2, 3, 4, 10, 13, 14, 17, 21, 22];

/// Numbers of paging operations that move contents between physical places (those of WDDM 1), that map or unmap what no
/// page describes, or that no header of today has. A driver that does not know them cannot carry them out.
///
/// Source: as above.
pub const STRANGE_OPERATIONS: [i32; 6] = [0, 1, 7, 19, 20, 40];
