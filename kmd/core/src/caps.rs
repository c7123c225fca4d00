//! `DxgkDdiQueryAdapterInfo`: every answer is a function of the plan.
//!
//! Output buffers are versioned and may be shorter than the record that this driver knows; only `OutputDataSize` bytes
//! are written, and the rest of the buffer is zeroed. A type that means nothing here is `STATUS_INVALID_PARAMETER`,
//! which is quiet on Windows; `STATUS_NOT_SUPPORTED` is logged hundreds of times a boot.

use crate::adapter::{Adapter, Started};
use crate::context::PRIVATE_DATA_SIZE;
use crate::nodes;
use crate::plan::Plan;
use crate::platform::Platform;
use crate::power;
use crate::segments;
use crate::settings::Settings;
use crate::start::doorbell_size;
use crate::status::{Error, Result};
use core::mem::size_of;
use gpu_wire::private::{AdapterInfo, MAGIC, adapter_flags};
use gpu_wire::{GpuVa, INTERFACE_VERSION, pte};
use wddm_abi::{
    D3DKMDT_COMPUTE_PREEMPTION_GRANULARITY, D3DKMDT_GRAPHICS_PREEMPTION_GRANULARITY, DXGK_64_BIT_ONLY_CAPS,
    DXGK_ADAPTER_PERFDATA, DXGK_DEVICE_TYPE_CAPS, DXGK_DRIVERCAPS, DXGK_GPUMMUCAPS, DXGK_GPUVERSION, DXGK_IOMMU_CAPS,
    DXGK_NATIVE_FENCE_CAPS, DXGK_PAGE_TABLE_LEVEL_DESC, DXGK_PAGETABLEUPDATEMODE, DXGK_PHYSICAL_MEMORY_CAPS,
    DXGK_PHYSICALADAPTERCAPS, DXGK_QUERYADAPTERINFOTYPE, DXGK_USERMODESUBMISSION_CAPS, DXGK_WDDMDEVICECAPS,
    DXGK_WDDMVERSION, DXGKARG_HISTORYBUFFERPRECISION, HANDLE, Plain,
};

/// The WDDM version of the init table, the caps and the device caps: one place, so that they agree.
pub const VERSION: DXGK_WDDMVERSION = DXGK_WDDMVERSION::DXGKDDI_WDDMv3_2;

/// The answer's buffer: zeroed when made, written within bounds.
pub struct Output<'a>(&'a mut [u8]);

impl<'a> Output<'a> {
    /// Zeroes the buffer.
    pub fn new(buffer: &'a mut [u8]) -> Self {
        buffer.fill(0);
        Self(buffer)
    }

    /// Writes as much of `record` as the buffer has room for, and no less than `least` bytes.
    ///
    /// # Errors
    /// [`Error::BufferTooSmall`].
    pub fn put<T: Plain>(&mut self, record: &T, least: usize) -> Result<()> {
        let bytes = record.as_bytes();
        let n = bytes.len().min(self.0.len());
        if n < least {
            return Err(Error::BufferTooSmall);
        }
        self.0[..n].copy_from_slice(&bytes[..n]);
        Ok(())
    }

    /// Writes all of `record`.
    ///
    /// # Errors
    /// [`Error::BufferTooSmall`].
    pub fn put_whole<T: Plain>(&mut self, record: &T) -> Result<()> {
        self.put(record, size_of::<T>())
    }

    /// Writes `record` as often as it fits: the answer is an array with an element per node, and only the buffer's
    /// size says how many the OS wants.
    ///
    /// # Errors
    /// [`Error::BufferTooSmall`] when there is no room for one.
    pub fn put_array<T: Plain>(&mut self, record: &T) -> Result<()> {
        let bytes = record.as_bytes();
        let elements = self.0.chunks_exact_mut(bytes.len());
        if elements.len() == 0 {
            return Err(Error::BufferTooSmall);
        }
        elements.for_each(|element| element.copy_from_slice(bytes));
        Ok(())
    }

    /// Writes as many bytes as there is room for.
    pub fn put_bytes(&mut self, bytes: &[u8]) {
        let n = bytes.len().min(self.0.len());
        self.0[..n].copy_from_slice(&bytes[..n]);
    }
}

/// Where the input of a question names a physical adapter of a link, in bytes; `None` for one that is of the adapter as
/// a whole, or whose input is not known to have an index.
///
/// Source: `DXGK_QUERYPHYSICALADAPTERCAPSIN`, `DXGK_QUERYGPUMMUCAPSIN`, `DXGK_QUERYHISTORYBUFFERPRECISIONIN`,
/// `DXGK_QUERYSEGMENTIN4`, `DXGK_QUERYPAGETABLELEVELDESCIN`.
pub fn index_at(kind: DXGK_QUERYADAPTERINFOTYPE) -> Option<usize> {
    use DXGK_QUERYADAPTERINFOTYPE as Q;
    match kind {
        Q::DXGKQAITYPE_PHYSICALADAPTERCAPS
        | Q::DXGKQAITYPE_GPUMMUCAPS
        | Q::DXGKQAITYPE_HISTORYBUFFERPRECISION
        | Q::DXGKQAITYPE_QUERYSEGMENT4 => Some(0),
        // Behind the index of the level.
        Q::DXGKQAITYPE_PAGETABLELEVELDESC => Some(2),
        _ => None,
    }
}

/// The index of the physical adapter that a question is about, of 16 bits: there is one, 0. An input without room for
/// an index is about that one.
pub fn physical_adapter(kind: DXGK_QUERYADAPTERINFOTYPE, input: &[u8]) -> u16 {
    let index = index_at(kind).and_then(|at| input.get(at..)).and_then(<[u8]>::first_chunk);
    index.map_or(0, |bytes| u16::from_le_bytes(*bytes))
}

/// What Dxgkrnl asks before and after StartDevice alike. `context` is the miniport's context.
///
/// # Errors
/// [`Error::InvalidParameter`] for types that mean nothing here; [`Error::DeviceNotReady`] for what is only known once
/// started; [`Error::BufferTooSmall`].
pub fn answer<P: Platform>(
    adapter: &Adapter<P>,
    context: HANDLE,
    kind: DXGK_QUERYADAPTERINFOTYPE,
    input: &[u8],
    output: &mut [u8],
) -> Result<()> {
    use DXGK_QUERYADAPTERINFOTYPE as Q;
    let settings = adapter.settings();
    let started = adapter.started();
    let plan = || started.as_ref().map(|s| s.plan).map_err(|e| *e);
    let mut out = Output::new(output);
    match kind {
        Q::DXGKQAITYPE_WDDMDEVICECAPS => {
            let mut caps = DXGK_WDDMDEVICECAPS::zeroed();
            caps.WDDMVersion = VERSION;
            out.put_whole(&caps)
        }
        Q::DXGKQAITYPE_PHYSICAL_MEMORY_CAPS => {
            let mut caps = DXGK_PHYSICAL_MEMORY_CAPS::zeroed();
            // The engines reach whatever the processor reaches.
            caps.HighestVisibleAddress.QuadPart = i64::MAX;
            out.put_whole(&caps)
        }
        // No logical remapping: the engines are the processor, and there is no bus between them and memory.
        Q::DXGKQAITYPE_IOMMU_CAPS => out.put_whole(&DXGK_IOMMU_CAPS::zeroed()),
        // A compute-only driver must not know these two.
        Q::DXGKQAITYPE_DEVICE_TYPE_CAPS | Q::DXGKQAITYPE_DISPLAY_DRIVERCAPS_EXTENSION
            if adapter.form.is_compute_only() =>
        {
            Err(Error::InvalidParameter)
        }
        Q::DXGKQAITYPE_DEVICE_TYPE_CAPS => out.put_whole(&DXGK_DEVICE_TYPE_CAPS::zeroed()),
        Q::DXGKQAITYPE_UMDRIVERPRIVATE => {
            if let Ok(started) = &started {
                out.put_bytes(adapter_info(started).bytes());
            }
            Ok(())
        }
        Q::DXGKQAITYPE_DRIVERCAPS => out.put(&driver_caps(&*started?), 540),
        Q::DXGKQAITYPE_GPUMMUCAPS => out.put_whole(&gpu_mmu_caps(&settings)),
        Q::DXGKQAITYPE_PAGETABLELEVELDESC => {
            let level = input.first_chunk::<2>().map(|b| u16::from_le_bytes(*b)).ok_or(Error::InvalidParameter)?;
            out.put_whole(&page_table_level(level.into())?)
        }
        Q::DXGKQAITYPE_PHYSICALADAPTERCAPS => {
            let mut caps = DXGK_PHYSICALADAPTERCAPS::zeroed();
            // CAST: three nodes.
            caps.NumExecutionNodes = nodes::COUNT as u16;
            caps.PagingNodeIndex = settings.paging_node as u16;
            caps.DxgkPhysicalAdapterHandle = match settings.physical_adapter_handle {
                0 => started?.dxgkrnl.device(),
                _ => context,
            };
            caps.Flags.set_GpuMmuSupported(true);
            out.put_whole(&caps)
        }
        Q::DXGKQAITYPE_HISTORYBUFFERPRECISION => {
            let mut precision = DXGKARG_HISTORYBUFFERPRECISION::zeroed();
            precision.PrecisionBits = settings.history_buffer_precision;
            out.put_array(&precision)
        }
        Q::DXGKQAITYPE_GPUVERSION => out.put(&gpu_version(), 0),
        Q::DXGKQAITYPE_ADAPTERPERFDATA => {
            // No clock, memory, bus, fan or sensor of its own.
            let mut data = DXGK_ADAPTER_PERFDATA::zeroed();
            let has_power = started.is_ok_and(|started| started.gpu.host.interrupt.has_power());
            data.PowerStateOverride = has_power.into();
            out.put(&data, 0)
        }
        // Zeros are an answer and no refusal: no display, no limits of a fan or sensor, no clock or voltage of an
        // engine, which is a thread, no dirty bits, no limit to 64-bit processes. The OS bases other decisions on some
        // of these answers. The pages say of no input of NODEPERFDATA, so none is looked at.
        Q::DXGKQAITYPE_DISPLAY_DRIVERCAPS_EXTENSION
        | Q::DXGKQAITYPE_NODEPERFDATA
        | Q::DXGKQAITYPE_ADAPTERPERFDATA_CAPS
        | Q::DXGKQAITYPE_DIRTYBITTRACKINGCAPS => Ok(()),
        Q::DXGKQAITYPE_64BITONLYCAPS if settings.only_64_bit => {
            out.put_whole(&DXGK_64_BIT_ONLY_CAPS::zeroed().with_SupportsOnly64Bit(true))
        }
        Q::DXGKQAITYPE_64BITONLYCAPS => Ok(()),
        Q::DXGKQAITYPE_NUMPOWERCOMPONENTS => out.put_whole(&power::count(&settings)),
        Q::DXGKQAITYPE_POWERCOMPONENTINFO => {
            let index = input.first_chunk::<4>().map(|b| u32::from_le_bytes(*b)).ok_or(Error::InvalidParameter)?;
            let completes = started.is_ok_and(|started| started.gpu.host.completes_f_states());
            out.put_whole(&power::component(&settings, index, completes)?)
        }
        Q::DXGKQAITYPE_NATIVE_FENCE_CAPS if plan()?.native_fences() => {
            let started = started?;
            let mut caps = DXGK_NATIVE_FENCE_CAPS::zeroed();
            // 0 is right under both readings of this member (stride in 26100, padding in 28000).
            caps.MonitoredValueStride = started.settings.monitored_value_stride;
            caps.MapToGpuSystemProcess = started.plan.map_to_system_process.into();
            out.put_whole(&caps)
        }
        Q::DXGKQAITYPE_USERMODESUBMISSION_CAPS if plan()?.user_mode_submission() => {
            let mut caps = DXGK_USERMODESUBMISSION_CAPS::zeroed();
            // CAST: at most DXGK_MAX_DOORBELL_SIZE_BYTES, four pages.
            caps.DoorbellSizeInBytes = doorbell_size(&started?.settings) as u32;
            out.put_whole(&caps)
        }
        _ => Err(Error::InvalidParameter),
    }
}

/// What the GPU is: also `HardwareInformation.ChipType` of the INFs.
pub const ARCHITECTURE: &str = "Engine threads";
/// The BIOS that it does not have: also `HardwareInformation.BiosString` of the INF of the display form.
pub const BIOS: &str = "None";

/// Source: `DXGK_GPUVERSION`.
fn gpu_version() -> DXGK_GPUVERSION {
    // The zero behind the text is of the array.
    let wide = |text: &str| {
        let mut units = [0_u16; 32];
        for (to, unit) in units[..31].iter_mut().zip(text.encode_utf16()) {
            *to = unit;
        }
        units
    };
    let mut version = DXGK_GPUVERSION::zeroed();
    version.BiosVersion = wide(BIOS);
    version.GpuArchitecture = wide(ARCHITECTURE);
    version
}

fn adapter_info<P: Platform>(started: &Started<P>) -> AdapterInfo {
    AdapterInfo {
        magic: MAGIC,
        interface_version: INTERFACE_VERSION,
        rung: started.plan.rung.raw(),
        doorbell_model: started.settings.doorbell_model.raw(),
        // CAST: at most 256.
        physical_doorbells: started.settings.physical_doorbells as u32,
        node_count: nodes::COUNT,
        local_segment_size: started.gpu.host.local_size(),
        gpu_clock_frequency: started.gpu.host.gpu_clock().frequency(&started.platform),
        software_signal_nodes: started.settings.software_signal_nodes,
        flags: if started.plan.no_64_bit_atomics { adapter_flags::NARROW_FENCES } else { 0 },
    }
}

/// `DXGK_DRIVERCAPS`. In the compute-only form the article on such drivers comes before the settings.
fn driver_caps<P: Platform>(started: &Started<P>) -> DXGK_DRIVERCAPS {
    let plan: &Plan = &started.plan;
    let mut caps = DXGK_DRIVERCAPS::zeroed();
    caps.HighestAcceptableAddress.QuadPart = i64::MAX;
    caps.WDDMVersion = if started.settings.driver_caps_version { VERSION } else { DXGK_WDDMVERSION(0) };
    let settings = &started.settings;
    let compute_only = plan.form.is_compute_only();
    if !compute_only {
        // This adapter never flips; these members only let it start (setting `FlipCaps`).
        caps.FlipCaps.set_FlipOnVSyncMmIo(settings.flip_caps >= 1);
        caps.FlipCaps.set_FlipIndependent(settings.flip_caps >= 2);
        caps.MaxQueuedFlipOnVSync = u32::from(settings.flip_caps >= 1);
        caps.PresentationCaps.set_SupportKernelModeCommandBuffer(settings.kernel_mode_command_buffer);
        caps.SupportNonVGA = settings.support_non_vga.into();
    }
    let s = &mut caps.SchedulingCaps;
    s.set_MultiEngineAware(true);
    s.set_PreemptionAware(true);
    s.set_NoDmaPatching(settings.no_dma_patching && !compute_only);
    s.set_CancelCommandAware(settings.cancel_command_aware);
    s.set_LowIrqlPreemptCommand(settings.low_irql_preempt_command || compute_only);
    s.set_No64BitAtomics(plan.no_64_bit_atomics);
    if plan.hardware_queues() && !compute_only {
        s.set_HwQueuePacketCap(settings.hw_queue_packet_cap);
    }
    s.set_NativeGpuFence(plan.native_fences());
    s.set_OptimizedNativeFenceSignaledInterrupt(plan.optimized_interrupt);
    let m = &mut caps.MemoryManagementCaps;
    m.set_VirtualAddressingSupported(true);
    m.set_GpuMmuSupported(true);
    m.set_CrossAdapterResource(settings.cross_adapter_resource);
    m.PagingNode = settings.paging_node;
    caps.GpuEngineTopology.NbAsymetricProcessingNodes = nodes::COUNT;
    (caps.PreemptionCaps.GraphicsPreemptionGranularity, caps.PreemptionCaps.ComputePreemptionGranularity) =
        match settings.preemption_granularity {
            // Between any two packets, and between the steps of each.
            2 if settings.preempt_in_buffers => (
                D3DKMDT_GRAPHICS_PREEMPTION_GRANULARITY::D3DKMDT_GRAPHICS_PREEMPTION_PRIMITIVE_BOUNDARY,
                D3DKMDT_COMPUTE_PREEMPTION_GRANULARITY::D3DKMDT_COMPUTE_PREEMPTION_DISPATCH_BOUNDARY,
            ),
            0 => (
                D3DKMDT_GRAPHICS_PREEMPTION_GRANULARITY::D3DKMDT_GRAPHICS_PREEMPTION_NONE,
                D3DKMDT_COMPUTE_PREEMPTION_GRANULARITY::D3DKMDT_COMPUTE_PREEMPTION_NONE,
            ),
            _ => (
                D3DKMDT_GRAPHICS_PREEMPTION_GRANULARITY::D3DKMDT_GRAPHICS_PREEMPTION_DMA_BUFFER_BOUNDARY,
                D3DKMDT_COMPUTE_PREEMPTION_GRANULARITY::D3DKMDT_COMPUTE_PREEMPTION_DMA_BUFFER_BOUNDARY,
            ),
        };
    caps.SupportPerEngineTDR = (settings.per_engine_tdr || compute_only).into();
    caps.MiscCaps.set_ComputeOnly(compute_only);
    caps.SupportRuntimePowerManagement = settings.power_components.into();
    caps.SupportSurpriseRemoval = 1;
    caps.SupportSurpriseRemovalInHibernation = 1;
    caps
}

fn gpu_mmu_caps(settings: &Settings) -> DXGK_GPUMMUCAPS {
    let mut caps = DXGK_GPUMMUCAPS::zeroed();
    caps.set_ReadOnlyMemorySupported(true);
    caps.set_CacheCoherentMemorySupported(true);
    caps.set_InvalidTlbEntriesNotCached(true);
    caps.PageTableUpdateMode = match settings.page_table_update_mode {
        0 => DXGK_PAGETABLEUPDATEMODE::DXGK_PAGETABLEUPDATE_CPU_VIRTUAL,
        _ => DXGK_PAGETABLEUPDATEMODE::DXGK_PAGETABLEUPDATE_GPU_PHYSICAL,
    };
    caps.VirtualAddressBitCount = GpuVa::BITS;
    caps.LeafPageTableSizeFor64KPagesInBytes = if settings.leaf_table_64k { pte::TABLE_SIZE } else { 0 };
    caps.PageTableLevelCount = pte::LEVELS;
    caps
}

fn page_table_level(level: u32) -> Result<DXGK_PAGE_TABLE_LEVEL_DESC> {
    if level >= pte::LEVELS {
        return Err(Error::InvalidParameter);
    }
    let mut desc = DXGK_PAGE_TABLE_LEVEL_DESC::zeroed();
    desc.PageTableIndexBitCount = pte::INDEX_BITS;
    // Segment 0 is system memory.
    desc.PageTableSizeInBytes = pte::TABLE_SIZE;
    desc.PageTableAlignmentInBytes = pte::TABLE_SIZE;
    Ok(desc)
}

/// What QUERYSEGMENT4 says beside the descriptors: segment of paging buffers, their size, their private data.
pub const fn paging_buffer(settings: &Settings) -> (u32, u32, u32) {
    // Segment 0 is system memory.
    let segment = if settings.paging_buffer_segment == 0 { 0 } else { segments::Order::of(settings).aperture() };
    (segment, segments::PAGING_BUFFER_SIZE, PRIVATE_DATA_SIZE)
}
