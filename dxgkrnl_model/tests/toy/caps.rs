//! What the adapter is: answers to DxgkDdiQueryAdapterInfo.

use std::sync::atomic::Ordering;

use wddm_abi::ntstatus::{STATUS_INVALID_PARAMETER, STATUS_NOT_SUPPORTED, STATUS_SUCCESS};
use wddm_abi::{
    D3DKMDT_COMPUTE_PREEMPTION_GRANULARITY, D3DKMDT_GRAPHICS_PREEMPTION_GRANULARITY, DXGK_DRIVERCAPS, DXGK_GPUMMUCAPS,
    DXGK_NATIVE_FENCE_CAPS, DXGK_PAGE_TABLE_LEVEL_DESC, DXGK_PAGETABLEUPDATEMODE, DXGK_PHYSICALADAPTERCAPS,
    DXGK_POWER_COMPONENT_TYPE, DXGK_POWER_RUNTIME_COMPONENT, DXGK_QUERYADAPTERINFOTYPE, DXGK_QUERYSEGMENTOUT4,
    DXGK_SEGMENTDESCRIPTOR4, DXGK_USERMODESUBMISSION_CAPS, DXGK_WDDMVERSION, DXGKARG_QUERYADAPTERINFO, NTSTATUS, Plain,
};

use super::start::{HIDDEN_BASE, HIDDEN_BYTES, LOCAL_BASE, LOCAL_BYTES};
use super::{Toy, argument, input};

/// Where fences are wanted with `fence_range`, in every address space.
pub const FENCE_RANGE: core::ops::Range<u64> = 0x5000_0000..0x5080_0000;

/// Stores an answer, as much of it as there is room for.
fn give<T: Plain>(arguments: &DXGKARG_QUERYADAPTERINFO, value: &T) -> NTSTATUS {
    let size = size_of::<T>().min(arguments.OutputDataSize as usize);
    let to: *mut u8 = arguments.pOutputData.cast();
    // SAFETY: the output has at least `size` bytes, as Dxgkrnl said.
    unsafe { to.copy_from_nonoverlapping(value.as_bytes().as_ptr(), size) };
    STATUS_SUCCESS
}

/// Index of the physical adapter that is asked about; `None`: there is none with it.
fn engine(toy: &Toy, arguments: &DXGKARG_QUERYADAPTERINFO) -> Option<u32> {
    let index = if arguments.pInputData.is_null() { 0 } else { *input(arguments.pInputData.cast::<u32>()) };
    ((index as usize) < toy.options.engines).then_some(index)
}

/// Whether a mutant refuses the query.
fn refuses(toy: &Toy, kind: DXGK_QUERYADAPTERINFOTYPE) -> bool {
    use DXGK_QUERYADAPTERINFOTYPE as Type;
    let refused = match toy.options.mutant {
        "qai-required-driver-caps" => Type::DXGKQAITYPE_DRIVERCAPS,
        "qai-required-component" => Type::DXGKQAITYPE_POWERCOMPONENTINFO,
        "qai-required-mmu" => Type::DXGKQAITYPE_GPUMMUCAPS,
        "qai-required-levels" => Type::DXGKQAITYPE_PAGETABLELEVELDESC,
        "qai-required-native-fence" => Type::DXGKQAITYPE_NATIVE_FENCE_CAPS,
        "qai-required-user-mode" => Type::DXGKQAITYPE_USERMODESUBMISSION_CAPS,
        "qai-required-nothing" => Type::DXGKQAITYPE_64BITONLYCAPS,
        _ => return false,
    };
    kind == refused
}

/// Answers DxgkDdiQueryAdapterInfo.
pub fn answer(toy: &Toy, arguments: &DXGKARG_QUERYADAPTERINFO) -> NTSTATUS {
    use DXGK_QUERYADAPTERINFOTYPE as Type;
    let (_, version) = toy.options.version;
    match arguments.Type {
        Type::DXGKQAITYPE_UMDRIVERPRIVATE => {
            if toy.is("qai-private") && arguments.pInputData == arguments.pOutputData {
                return STATUS_INVALID_PARAMETER;
            }
            if arguments.OutputDataSize == 0 { STATUS_SUCCESS } else { give(arguments, &0x0070_7954_u32) }
        }
        kind if refuses(toy, kind) => STATUS_INVALID_PARAMETER,
        Type::DXGKQAITYPE_WDDMDEVICECAPS if toy.is("qai-expected-version") => STATUS_INVALID_PARAMETER,
        Type::DXGKQAITYPE_WDDMDEVICECAPS => {
            let wrong = DXGK_WDDMVERSION::DXGKDDI_WDDMv3_1;
            give(arguments, &if toy.is("version-agrees") { wrong } else { version })
        }
        Type::DXGKQAITYPE_PHYSICAL_MEMORY_CAPS => {
            give(arguments, &if toy.is("caps-highest-address") { 0_u64 } else { u64::MAX })
        }
        Type::DXGKQAITYPE_DRIVERCAPS => {
            if toy.is("qai-overrun") {
                let end: *mut u8 = arguments.pOutputData.cast();
                // SAFETY: none: this mutant writes behind the buffer, where the model watches.
                unsafe { end.wrapping_add(arguments.OutputDataSize as usize).write(0) };
            }
            give(arguments, &driver_caps(toy))
        }
        Type::DXGKQAITYPE_HISTORYBUFFERPRECISION if toy.is("qai-required") => STATUS_INVALID_PARAMETER,
        // An element for each node; the mutant writes the first only.
        Type::DXGKQAITYPE_HISTORYBUFFERPRECISION => match toy.is("caps-history") {
            true => give(arguments, &64_u32),
            false => give(arguments, &[64_u32; 2]),
        },
        Type::DXGKQAITYPE_NUMPOWERCOMPONENTS => {
            if toy.is("qai-required-components") || toy.is("qai-expected") {
                return STATUS_INVALID_PARAMETER;
            }
            give(arguments, &u32::from(toy.options.power_component))
        }
        Type::DXGKQAITYPE_POWERCOMPONENTINFO => give(arguments, &power_component(toy)),
        Type::DXGKQAITYPE_QUERYSEGMENT4 => segments(toy, argument(arguments.pOutputData.cast())),
        // What they say of displays, and of 32-bit programs, is nothing.
        Type::DXGKQAITYPE_PREFERREDGPUNODE if toy.is("compute-query-node") => give(arguments, &0_u32),
        Type::DXGKQAITYPE_DISPLAY_DRIVERCAPS_EXTENSION if toy.options.compute_only && !toy.is("compute-query") => {
            STATUS_INVALID_PARAMETER
        }
        Type::DXGKQAITYPE_DISPLAY_DRIVERCAPS_EXTENSION | Type::DXGKQAITYPE_64BITONLYCAPS if !toy.is("qai-status") => {
            // SAFETY: the output has so many bytes, as Dxgkrnl said.
            unsafe { arguments.pOutputData.cast::<u8>().write_bytes(0, arguments.OutputDataSize as usize) };
            STATUS_SUCCESS
        }
        Type::DXGKQAITYPE_GPUMMUCAPS => match engine(toy, arguments) {
            Some(engine) => give(arguments, &mmu_caps(toy, engine)),
            None => STATUS_INVALID_PARAMETER,
        },
        Type::DXGKQAITYPE_PAGETABLELEVELDESC => {
            let level = *input(arguments.pInputData.cast::<u32>());
            give(arguments, &level_description(toy, level))
        }
        Type::DXGKQAITYPE_PHYSICALADAPTERCAPS if toy.is("qai-expected-physical") => STATUS_INVALID_PARAMETER,
        Type::DXGKQAITYPE_PHYSICALADAPTERCAPS => {
            let Some(engine) = engine(toy, arguments) else { return STATUS_INVALID_PARAMETER };
            let mut caps = DXGK_PHYSICALADAPTERCAPS::zeroed();
            caps.NumExecutionNodes = match (toy.options.mutant, engine) {
                ("caps-nodes", _) => 3,
                ("link-nodes", 1) => 1,
                _ => 2,
            };
            caps.PagingNodeIndex = if toy.is("caps-paging-node") { 2 } else { 1 };
            let gpu_mmu = !toy.options.io_mmu && !toy.options.physical;
            caps.Flags.set_GpuMmuSupported(gpu_mmu && !toy.is("caps-physical-flags"));
            caps.Flags.set_IoMmuSupported(toy.options.io_mmu || toy.is("caps-virtual"));
            if !toy.is("caps-adapter-handle") {
                caps.DxgkPhysicalAdapterHandle = toy.device_handle();
            }
            give(arguments, &caps)
        }
        Type::DXGKQAITYPE_NATIVE_FENCE_CAPS => {
            let mut caps = DXGK_NATIVE_FENCE_CAPS::zeroed();
            caps.MonitoredValueStride = if toy.is("native-fence-caps") { 12 } else { 64 };
            // Monitored values that are shown to the paging process as well are shown there for writing.
            caps.MapToGpuSystemProcess = u8::from(!toy.is("map-write"));
            if toy.options.fence_range {
                (caps.MinimumAddress, caps.MaximumAddress) = (FENCE_RANGE.start, FENCE_RANGE.end);
            }
            give(arguments, &caps)
        }
        Type::DXGKQAITYPE_USERMODESUBMISSION_CAPS => {
            let mut caps = DXGK_USERMODESUBMISSION_CAPS::zeroed();
            caps.DoorbellSizeInBytes = if toy.is("user-mode-caps") { 0 } else { toy.options.doorbell_bytes };
            caps.Flags.set_SecondaryDoorbellSupported(toy.options.secondary_bytes != 0);
            caps.SecondaryDoorbellSizeInBytes = toy.options.secondary_bytes;
            give(arguments, &caps)
        }
        _ if toy.is("qai-status") => STATUS_NOT_SUPPORTED,
        _ => STATUS_INVALID_PARAMETER,
    }
}

fn driver_caps(toy: &Toy) -> DXGK_DRIVERCAPS {
    let mut caps = DXGK_DRIVERCAPS::zeroed();
    caps.HighestAcceptableAddress.QuadPart = -1;
    caps.SupportSurpriseRemoval = 1;
    caps.SupportSurpriseRemovalInHibernation = u8::from(!toy.is("surprise-caps"));
    caps.WDDMVersion = toy.options.version.1;
    let (_, _, native) = *toy.features.lock().unwrap_or_else(|error| error.into_inner());
    let compute_only = toy.options.compute_only;
    caps.MiscCaps.set_ComputeOnly(compute_only);
    caps.FlipCaps.set_FlipOnVSyncMmIo(!toy.is("caps-flip") && (!compute_only || toy.is("compute-caps")));
    caps.MaxQueuedFlipOnVSync = u32::from(!compute_only);
    caps.SupportNonVGA = toy.is("caps-non-vga").into();
    caps.MemoryManagementCaps
        .set_CrossAdapterResource(toy.options.cross_adapter || toy.is("caps-cross-adapter-served"));
    let scheduling = &mut caps.SchedulingCaps;
    scheduling.set_MultiEngineAware(!toy.is("caps-preemption") && !toy.is("caps-multi-engine"));
    scheduling.set_PreemptionAware(!toy.is("caps-patching") && !toy.is("caps-multi-engine"));
    scheduling.set_CancelCommandAware(toy.options.cancel_aware);
    scheduling.set_LowIrqlPreemptCommand(compute_only && !toy.is("compute-caps-level"));
    scheduling.set_NoDmaPatching(toy.is("caps-patching"));
    scheduling.set_NativeGpuFence(toy.options.native_fences && (native || toy.is("feature-native-fence")));
    scheduling.set_OptimizedNativeFenceSignaledInterrupt(toy.options.optimized || toy.is("caps-optimized"));
    scheduling.set_No64BitAtomics(toy.options.narrow || toy.is("caps-atomics"));
    if toy.is("caps-cancel") {
        scheduling.set_CancelCommandAware(true);
        scheduling.set_MultiEngineAware(false);
        scheduling.set_PreemptionAware(false);
    }
    let memory = &mut caps.MemoryManagementCaps;
    memory.PagingNode = 1;
    memory.set_GpuMmuSupported(!toy.options.io_mmu && !toy.options.physical);
    memory.set_IoMmuSupported(toy.options.io_mmu || toy.is("caps-virtual"));
    memory.set_VirtualAddressingSupported(!toy.options.physical);
    memory.set_CrossAdapterResourceScanout(toy.is("caps-cross-adapter"));
    memory.set_NonCpuVisiblePrimary(toy.is("compute-caps-primary"));
    if toy.is("caps-internal-range") {
        (caps.InternalGpuVirtualAddressRangeStart, caps.InternalGpuVirtualAddressRangeEnd) = (0x2000, 0x1000);
    }
    caps.GpuEngineTopology.NbAsymetricProcessingNodes = 2;
    caps.SupportPerEngineTDR = toy.options.engine_reset.into();
    caps.InterruptMessageNumber = if toy.is("int-message") { 5 } else { 0 };
    let none = toy.is("caps-granularity") || toy.is("caps-patching") || toy.is("caps-cancel");
    if !none {
        caps.PreemptionCaps.GraphicsPreemptionGranularity =
            D3DKMDT_GRAPHICS_PREEMPTION_GRANULARITY::D3DKMDT_GRAPHICS_PREEMPTION_DMA_BUFFER_BOUNDARY;
        caps.PreemptionCaps.ComputePreemptionGranularity =
            D3DKMDT_COMPUTE_PREEMPTION_GRANULARITY::D3DKMDT_COMPUTE_PREEMPTION_DMA_BUFFER_BOUNDARY;
    }
    caps
}

fn segments(toy: &Toy, out: &mut DXGK_QUERYSEGMENTOUT4) -> NTSTATUS {
    if out.NbSegment == 0 {
        out.NbSegment = 3;
        if toy.is("segment-probe") {
            out.PagingBufferSize = 0x1000;
        }
        return STATUS_SUCCESS;
    }
    if toy.is("qai-required-segments") {
        return STATUS_INVALID_PARAMETER;
    }
    out.PagingBufferSize = if toy.is("segment-paging-buffer") { 0 } else { 0x1000 };
    // The CPU does not see the third segment.
    out.PagingBufferSegmentId = match toy.options.mutant {
        "segment-paging-visible" => 3,
        _ => u32::from(toy.options.paging_aperture),
    };
    out.PagingBufferPrivateDataSize = 64;
    let mut aperture = DXGK_SEGMENTDESCRIPTOR4::zeroed();
    aperture.Flags.set_Aperture(true);
    aperture.Flags.set_CpuVisible(true);
    aperture.Flags.set_CacheCoherent(true);
    aperture.BaseAddress.QuadPart = 0x1_0000_0000;
    aperture.Size = 64 << 20;
    let mut local = DXGK_SEGMENTDESCRIPTOR4::zeroed();
    local.Flags.set_CpuVisible(true);
    local.BaseAddress.QuadPart = LOCAL_BASE.cast_signed();
    local.Size = if toy.is("segment-shape") { 0 } else { LOCAL_BYTES };
    local.CpuTranslatedAddress_mut().QuadPart = toy.local_physical.load(Ordering::Acquire).cast_signed();
    let stride =
        if toy.is("segment-stride") { size_of::<DXGK_SEGMENTDESCRIPTOR4>() } else { out.SegmentDescriptorStride };
    let mut hidden = DXGK_SEGMENTDESCRIPTOR4::zeroed();
    hidden.BaseAddress.QuadPart = HIDDEN_BASE.cast_signed();
    hidden.Size = HIDDEN_BYTES;
    hidden.Flags.set_Aperture(toy.is("segment-aperture"));
    hidden.Flags.set_LocalBudgetGroup(true);
    hidden.Flags.set_NonLocalBudgetGroup(toy.is("segment-budget"));
    for (index, descriptor) in [aperture, local, hidden].into_iter().enumerate() {
        // SAFETY: Dxgkrnl gave room for three descriptors at its stride.
        let at = unsafe { out.pSegmentDescriptor.add(index * stride) };
        *argument(at.cast::<DXGK_SEGMENTDESCRIPTOR4>()) = descriptor;
    }
    if toy.is("segment-overrun") {
        // SAFETY: none: this mutant writes behind the last descriptor, where the model watches.
        unsafe { out.pSegmentDescriptor.wrapping_add(3 * stride).write(0) };
    }
    STATUS_SUCCESS
}

fn mmu_caps(toy: &Toy, engine: u32) -> DXGK_GPUMMUCAPS {
    let mut caps = DXGK_GPUMMUCAPS::zeroed();
    caps.set_ReadOnlyMemorySupported(true);
    caps.set_ZeroInPteSupported(true);
    caps.set_CacheCoherentMemorySupported(true);
    caps.PageTableUpdateMode = match toy.options.mutant {
        "mmu-update-mode" => DXGK_PAGETABLEUPDATEMODE(9),
        _ => toy.options.update_mode,
    };
    caps.VirtualAddressBitCount = match (toy.options.mutant, engine) {
        ("mmu-levels", _) => 48,
        ("link-addresses", 1) => 40,
        _ => bits(toy).iter().sum::<u32>() + 12,
    };
    caps.PageTableLevelCount = bits(toy).len() as u32;
    caps.LeafPageTableSizeFor64KPagesInBytes = if toy.is("mmu-large-leaf") { 100 } else { 0 };
    caps
}

/// Index bits of each level, leaf first.
pub fn bits(toy: &Toy) -> &'static [u32] {
    if toy.options.two_levels { &[9, 11] } else { &[9, 9, 9] }
}

fn level_description(toy: &Toy, level: u32) -> DXGK_PAGE_TABLE_LEVEL_DESC {
    let mut description = DXGK_PAGE_TABLE_LEVEL_DESC::zeroed();
    let bits = bits(toy);
    description.PageTableIndexBitCount = bits.get(level as usize).copied().unwrap_or(0);
    let root = level as usize + 1 == bits.len();
    // A root of two levels has the size that is asked for, in local memory since it may have several pages.
    let resizable = root && toy.options.two_levels;
    description.PageTableSegmentId = if resizable { 2 } else { 0 };
    description.PagingProcessPageTableSegmentId = description.PageTableSegmentId;
    description.PageTableSizeInBytes = if resizable { 0 } else { 4096 };
    match toy.options.mutant {
        "mmu-table-size" if level == 1 => description.PageTableSizeInBytes = 8192,
        "mmu-table-segment" if level == 1 => {
            description.PageTableSegmentId = 1;
        }
        // The CPU does not see the third segment.
        "mmu-table-cpu" if level == 0 => description.PagingProcessPageTableSegmentId = 3,
        // Behind the last of three segments.
        "mmu-table-behind" if level == 0 => {
            (description.PageTableSegmentId, description.PagingProcessPageTableSegmentId) = (4, 4);
        }
        "mmu-table-pages" if level == 0 => description.PageTableSizeInBytes = 4 * 4096,
        _ => (),
    }
    description
}

/// The engine of node 0, with F0 and F1.
fn power_component(toy: &Toy) -> DXGK_POWER_RUNTIME_COMPONENT {
    let mut component = DXGK_POWER_RUNTIME_COMPONENT::zeroed();
    component.StateCount = if toy.is("power-component") { 0 } else { 2 };
    component.States[1].TransitionLatency = 1000;
    component.ComponentMapping.ComponentType = DXGK_POWER_COMPONENT_TYPE::DXGK_POWER_COMPONENT_ENGINE;
    component.Flags.set_DriverCompletesFStateTransition(!toy.is("power-completion"));
    component
}
