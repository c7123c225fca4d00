//! What a driver reported when it was started, kept as it came.

use wddm_abi::{
    DXGK_DRIVERCAPS, DXGK_ENGINE_TYPE, DXGK_GPUMMUCAPS, DXGK_NATIVE_FENCE_CAPS, DXGK_NODEMETADATA,
    DXGK_PAGE_TABLE_LEVEL_DESC, DXGK_PAGETABLEUPDATEMODE, DXGK_PHYSICALADAPTERCAPS, DXGK_POWER_RUNTIME_COMPONENT,
    DXGK_SEGMENTDESCRIPTOR4, DXGK_USERMODESUBMISSION_CAPS, DXGK_WDDMVERSION,
};

use crate::port::place::Place;

/// A memory segment, numbered from 1.
#[derive(Clone, Copy, Debug)]
pub struct Segment {
    /// Its number; 0 is system memory and not in the list.
    pub id: u32,
    /// As the driver described it.
    pub descriptor: DXGK_SEGMENTDESCRIPTOR4,
}

impl Segment {
    /// Whether it is an aperture: allocations in it are in system memory.
    pub fn is_aperture(&self) -> bool {
        self.descriptor.Flags.Aperture()
    }

    /// Whether the CPU reaches it directly.
    pub fn is_cpu_visible(&self) -> bool {
        self.descriptor.Flags.CpuVisible() && !self.descriptor.Flags.SupportsCpuHostAperture()
    }

    /// Bytes.
    pub fn size(&self) -> u64 {
        self.descriptor.Size as u64
    }

    /// Granularity of allocations in it, in bytes.
    pub fn page_size(&self) -> u64 {
        if self.descriptor.Flags.Use64KBPages() { 0x1_0000 } else { 0x1000 }
    }
}

/// A node.
#[derive(Clone, Debug)]
pub struct NodeInfo {
    /// Where it is.
    pub place: Place,
    /// As the driver described it.
    pub metadata: DXGK_NODEMETADATA,
}

impl NodeInfo {
    /// What kind of engine.
    pub fn engine_type(&self) -> DXGK_ENGINE_TYPE {
        self.metadata.EngineType
    }

    /// Whether the GPU schedules contexts itself.
    pub fn is_hardware_scheduled(&self) -> bool {
        self.metadata.Flags.ContextSchedulingSupported()
    }

    /// Whether queues on it may take work from user mode.
    pub fn takes_user_mode_work(&self) -> bool {
        self.metadata.Flags.UserModeSubmission()
    }

    /// Whether the GPU or driver writes progress fences after a buffer retires, instead of its last instruction.
    pub fn releases_ring_fence(&self) -> bool {
        self.metadata.Flags.RingBufferFenceRelease()
    }

    /// Whether the driver builds command buffers for kernel-mode tests of the node.
    pub fn builds_tests(&self) -> bool {
        self.metadata.Flags.SupportBuildTestCommandBuffer()
    }

    /// Buffers that may be in flight per queue; 0: no limit.
    pub fn max_in_flight(&self) -> u32 {
        self.metadata.Flags.MaxInFlightHwQueueBuffers()
    }
}

/// GPU virtual addressing.
#[derive(Clone, Debug)]
pub struct Mmu {
    /// As the driver described it.
    pub caps: DXGK_GPUMMUCAPS,
    /// Levels, leaf first.
    pub levels: Vec<DXGK_PAGE_TABLE_LEVEL_DESC>,
}

impl Mmu {
    /// How page tables are addressed in updates.
    pub fn update_mode(&self) -> DXGK_PAGETABLEUPDATEMODE {
        self.caps.PageTableUpdateMode
    }

    /// Entries of a table at `level`.
    pub fn entries(&self, level: usize) -> u64 {
        self.levels.get(level).map_or(0, |level| 1 << level.PageTableIndexBitCount.min(32))
    }

    /// Lowest address bit that a table at `level` translates.
    pub fn shift(&self, level: usize) -> u32 {
        12 + self.levels.iter().take(level).map(|level| level.PageTableIndexBitCount).sum::<u32>()
    }
}

/// Everything that a driver reported.
#[derive(Clone, Debug)]
pub struct Caps {
    /// `DRIVERCAPS`.
    pub driver: DXGK_DRIVERCAPS,
    /// `WDDMDEVICECAPS`, where it was answered.
    pub device_version: Option<DXGK_WDDMVERSION>,
    /// `PHYSICAL_MEMORY_CAPS.HighestVisibleAddress`, where it was answered.
    pub highest_visible: Option<u64>,
    /// `HISTORYBUFFERPRECISION.PrecisionBits`: bits of a GPU time stamp in history buffers, one element for each node.
    pub history_bits: Vec<u32>,
    /// Segments, from 1.
    pub segments: Vec<Segment>,
    /// `QUERYSEGMENT4.PagingBufferSegmentId`.
    pub paging_buffer_segment: u32,
    /// `QUERYSEGMENT4.PagingBufferSize`, bytes.
    pub paging_buffer_size: u32,
    /// `QUERYSEGMENT4.PagingBufferPrivateDataSize`, bytes.
    pub paging_private_size: u32,
    /// GPU virtual addressing, where it is supported.
    pub mmu: Option<Mmu>,
    /// `PHYSICALADAPTERCAPS`, or what `DRIVERCAPS` say of the same.
    pub physical: DXGK_PHYSICALADAPTERCAPS,
    /// Whether `PHYSICALADAPTERCAPS` was asked and answered.
    pub is_physical_answered: bool,
    /// Nodes: of engine 0, then of each engine behind it.
    pub nodes: Vec<NodeInfo>,
    /// What the engines behind the first say of themselves.
    pub followers: Vec<Follower>,
    /// `NATIVE_FENCE_CAPS`, where native fences are advertised.
    pub native_fence: Option<DXGK_NATIVE_FENCE_CAPS>,
    /// `USERMODESUBMISSION_CAPS`, where a node has user-mode submission.
    pub user_mode: Option<DXGK_USERMODESUBMISSION_CAPS>,
    /// Power components.
    pub power_components: Vec<DXGK_POWER_RUNTIME_COMPONENT>,
    /// Video present sources and children.
    pub sources: u32,
    /// Children.
    pub children: u32,
}

#[expect(unsafe_code, reason = "records of the driver with raw pointers in them, which nobody follows")]
// SAFETY: plain data; the pointers in it are the driver's and are only compared or printed.
unsafe impl Send for Caps {}
#[expect(unsafe_code, reason = "as above")]
// SAFETY: as above; it never changes once it is made.
unsafe impl Sync for Caps {}

impl Default for Caps {
    fn default() -> Self {
        Self {
            driver: DXGK_DRIVERCAPS::zeroed(),
            device_version: None,
            highest_visible: None,
            history_bits: Vec::new(),
            segments: Vec::new(),
            paging_buffer_segment: 0,
            paging_buffer_size: 0,
            paging_private_size: 0,
            mmu: None,
            physical: DXGK_PHYSICALADAPTERCAPS::zeroed(),
            is_physical_answered: false,
            nodes: Vec::new(),
            followers: Vec::new(),
            native_fence: None,
            user_mode: None,
            power_components: Vec::new(),
            sources: 0,
            children: 0,
        }
    }
}

impl Caps {
    /// Whether native fences are advertised.
    pub fn has_native_fences(&self) -> bool {
        self.driver.SchedulingCaps.NativeGpuFence()
    }

    /// Whether GPUs store 64 bits in one piece: monitored fences have 64 bits then, else 32.
    pub fn has_64_bit_atomics(&self) -> bool {
        !self.driver.SchedulingCaps.No64BitAtomics()
    }

    /// Whether native fence interrupts name queues instead of fences.
    pub fn has_optimized_interrupt(&self) -> bool {
        self.driver.SchedulingCaps.OptimizedNativeFenceSignaledInterrupt()
    }

    /// Whether any node takes work from user mode.
    pub fn has_user_mode_submission(&self) -> bool {
        self.nodes.iter().any(NodeInfo::takes_user_mode_work)
    }

    /// Whether any node schedules in hardware.
    pub fn has_hardware_scheduling(&self) -> bool {
        self.nodes.iter().any(NodeInfo::is_hardware_scheduled)
    }

    /// Whether engines can be reset one by one.
    pub fn has_engine_reset(&self) -> bool {
        self.driver.SupportPerEngineTDR != 0
    }

    /// Packets that may be queued to a node; `usize::MAX`: the driver names no number.
    pub(crate) fn packet_cap(&self) -> usize {
        match self.driver.SchedulingCaps.HwQueuePacketCap() {
            0 => usize::MAX,
            // CAST: four bits.
            cap => cap as usize,
        }
    }

    /// Whether GPU virtual addresses are translated by the GPU's own page tables.
    pub fn is_gpu_mmu(&self) -> bool {
        self.driver.MemoryManagementCaps.GpuMmuSupported()
    }

    /// Whether the GPU uses the CPU's addresses of a process.
    pub fn is_io_mmu(&self) -> bool {
        self.driver.MemoryManagementCaps.IoMmuSupported()
    }

    /// Returns whether the adapter is compute-only (`DXGK_DRIVERCAPS.MiscCaps.ComputeOnly`), which excuses it from
    /// flips.
    pub fn is_compute_only(&self) -> bool {
        self.driver.MiscCaps.ComputeOnly()
    }

    /// Whether it has no display part.
    pub fn is_render_only(&self) -> bool {
        self.sources == 0
    }

    /// Returns whether a segment's number is read as system memory: 0, and the number behind the last segment, which
    /// drivers take for that of the segment that VidMm adds.
    ///
    /// Source: article gpu-segments ("System Memory Segments": always 0). Microsoft's compute-only sample names the
    /// number behind the last one, for page tables and allocations.
    pub(crate) fn is_system_memory(&self, id: u32) -> bool {
        id == 0 || id as usize == self.segments.len() + 1
    }

    /// Page tables that lie behind the last segment lie in system memory.
    pub(crate) fn name_system_memory(&mut self) {
        let Some(mut mmu) = self.mmu.take() else { return };
        for level in &mut mmu.levels {
            for id in [&mut level.PageTableSegmentId, &mut level.PagingProcessPageTableSegmentId] {
                if self.is_system_memory(*id) {
                    *id = 0;
                }
            }
        }
        self.mmu = Some(mmu);
    }

    /// A segment by number.
    pub fn segment(&self, id: u32) -> Option<&Segment> {
        self.segments.iter().find(|segment| segment.id == id)
    }

    /// A node by number: those of engine 0 come first.
    pub fn node(&self, number: u32) -> Option<&NodeInfo> {
        self.nodes.get(number as usize)
    }

    /// Physical adapters that act as one.
    pub fn engines(&self) -> u32 {
        // CAST: 32 at most.
        self.followers.len() as u32 + 1
    }

    /// The number of the node that is there; `None`: there is none.
    pub fn node_at(&self, place: Place) -> Option<u32> {
        // CAST: at most 64 for each of 32 engines.
        self.nodes.iter().position(|node| node.place == place).map(|at| at as u32)
    }

    /// Where a node is; one that there is not is on engine 0.
    pub fn place(&self, number: u32) -> Place {
        self.node(number).map_or(Place { node: number, engine: 0 }, |node| node.place)
    }

    /// The node that paging runs on.
    pub fn paging_node(&self) -> u32 {
        u32::from(self.physical.PagingNodeIndex)
    }

    /// What `DRIVERCAPS` say of the members of `PHYSICALADAPTERCAPS`: the number of nodes, and the one that pages.
    pub(crate) fn physical_by_driver_caps(&self) -> DXGK_PHYSICALADAPTERCAPS {
        let mut physical = DXGK_PHYSICALADAPTERCAPS::zeroed();
        // CAST: nodes; a number that does not fit breaks DXG-CAPS-NODES.
        physical.NumExecutionNodes = self.driver.GpuEngineTopology.NbAsymetricProcessingNodes as u16;
        physical.PagingNodeIndex = self.driver.MemoryManagementCaps.PagingNode as u16;
        physical
    }

    /// Distance of fences packed into one page, in bytes.
    ///
    /// Chosen: `MonitoredValueStride` holds for both values (the remarks name a `CurrentValueStride` that the structure
    /// does not have); 0 means eight bytes. In the 28000 kit the same member is padding beyond eight bytes.
    pub fn fence_stride(&self, counts_padding: bool) -> u64 {
        let said = self.native_fence.map_or(0, |caps| u64::from(caps.MonitoredValueStride));
        if counts_padding { said.saturating_add(8) } else { said.max(8) }
    }
}

/// What an engine behind the first one says of itself.
#[derive(Clone, Copy, Debug)]
pub struct Follower {
    /// `PHYSICALADAPTERCAPS` with its index; `None`: refused.
    pub physical: Option<DXGK_PHYSICALADAPTERCAPS>,
    /// `GPUMMUCAPS` with its index; `None`: refused, or not asked.
    pub mmu: Option<DXGK_GPUMMUCAPS>,
}

#[expect(unsafe_code, reason = "a record of the driver with a handle in it, which nobody follows")]
// SAFETY: plain data; the handle in it is the driver's and is only printed.
unsafe impl Send for Follower {}
#[expect(unsafe_code, reason = "as above")]
// SAFETY: as above; it never changes once it is made.
unsafe impl Sync for Follower {}
