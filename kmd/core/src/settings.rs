//! Settings: values under the device's registry key. `docs/settings.md` has the table below in words; a test compares
//! the two.
//!
//! They are read at AddDevice and again at StartDevice, so that questions of the OS between the two are answered by
//! the settings as well.

use crate::irql::Passive;
use crate::platform::{Platform, SettingsKey};
use crate::setting_values::{FromValue, Part, Setting, Values};
use gpu_engine::fence_log::Barriers;
use gpu_wire::doorbell::Model;
use gpu_wire::private::Rung;
use gpu_wire::{NODE_COUNT, NODE_PAGING};

/// Makes the record, its defaults, the function that reads it and its table of one list: member, type, name, values,
/// default, meaning.
macro_rules! settings {
    ($($part:ident { $($field:ident: $type:ty, $name:literal, $values:expr, $default:expr, $meaning:literal;)* })*) => {
        /// The settings of an adapter; every value is in range.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub struct Settings {
            $($(#[doc = concat!("`", $name, "`: ", $meaning)] pub $field: $type,)*)*
        }

        impl Default for Settings {
            fn default() -> Self {
                Self { $($($field: <$type>::from_value($default),)*)* }
            }
        }

        impl Settings {
            /// Reads the values under `key`. A value that is absent or out of range keeps its default; the debugger is
            /// told of one that is out of range.
            pub fn read<P: Platform>(irql: &Passive, platform: &P, key: SettingsKey<'_>) -> Self {
                Self { $($($field: <$type>::from_value(number(irql, platform, key, $name, $values, $default)),)*)* }
            }

            /// Gives settings that break the GPU on purpose their defaults: they are for machines alone that run code
            /// which is signed for tests. `ignored` is told the name of each that had another value.
            pub fn disarm(&mut self, mut ignored: impl FnMut(&'static str)) {
                $($(
                    let usual = <$type>::from_value($default);
                    if $name.starts_with("Fault") && self.$field != usual {
                        self.$field = usual;
                        ignored($name);
                    }
                )*)*
            }

            /// Every setting, in the order of the documentation.
            pub const TABLE: &'static [Setting] = &[$($(
                Setting { name: $name, part: Part::$part, values: $values, default: $default, meaning: $meaning },
            )*)*];
        }
    };
}

/// The value `name` under `key`; `default` when it is absent or not among `values`.
fn number<P: Platform>(
    irql: &Passive,
    platform: &P,
    key: SettingsKey<'_>,
    name: &str,
    values: Values,
    default: u64,
) -> u64 {
    match platform.setting(irql, key, name) {
        None => default,
        Some(value) if values.take(value) => value,
        Some(value) => {
            platform.print(format_args!("fencepost: setting {name} = {value} is out of range; ignored\n"));
            default
        }
    }
}

impl Settings {
    /// The highest rung that the settings allow: `MaxRung`, or packets where the node of all work pages too, since the
    /// OS sends paging as packets.
    pub fn highest_rung(&self) -> Rung {
        if self.paging_node == NODE_PAGING.0 { self.max_rung } else { Rung::Packet }
    }
}

/// Off and on.
const SWITCH: Values = Values::Between(0, 1);

settings! {
    Usual {
        local_segment_size: u64, "LocalSegmentSize", Values::Megabytes(16, 16 << 10), 256 << 20,
            "bytes of the local segment: non-paged memory of the host, allocated at start; with less to be had the \
            segment takes half of what there is";
        max_rung: Rung, "MaxRung",
            Values::Named(&[(0, "packet"), (1, "hardware queues"), (2, "native fences"), (3, "user-mode submission")]),
            3,
            "how far up the driver goes even if the OS allows more; features above it are answered as unsupported";
        doorbell_model: Model, "DoorbellModel", Values::Named(&[(0, "dedicated"), (1, "global")]), 0,
            "one physical doorbell per connected queue, or one for all";
        physical_doorbells: u64, "PhysicalDoorbells", Values::Between(1, 256), 64,
            "dedicated doorbells in the pool; when they run out, one is taken from the queue that has executed \
            nothing for longest, of a process with more than its share if there is one";
        doorbell_pages: u64, "DoorbellPages", Values::Between(1, 4), 1,
            "pages of a physical doorbell, as `DoorbellSizeInBytes` says: the first holds the word that is rung, in \
            the others nothing is looked at. Every page is cleared for a new owner";
        doorbells_per_process: u64, "DoorbellsPerProcess", Values::Between(0, 256), 0,
            "dedicated doorbells that a process may keep while another wants one; 0: an even share, the pool over the \
            processes that have or want one. While no other wants one, a process may have all";
        objects_per_process: u32, "ObjectsPerProcess", Values::Between(16, 1 << 20), 1 << 16,
            "devices, contexts, queues, doorbells, openings of fences and of allocations, and fences and allocations \
            that it opened first, also if only an NT handle keeps them, that a process may have at once; more are \
            refused for want of memory, so that no process uses up what others need";
        idle_milliseconds: u32, "IdleMilliseconds", Values::Between(0, 1000), 10,
            "time without work after which an engine has its doorbells disconnected with RETRY, so that it sleeps until \
            user mode connects again; a queue that submits seldom is CONNECTED_NOTIFY from then on; one that rang 16 \
            times since it connected keeps its doorbell for 100 ms, and one that rang once at most for 2 s; 0: an engine \
            looks at its doorbells for ever";
        report_hangs: u32, "ReportHangs", Values::Between(0, 60_000), 0,
            "milliseconds after which an engine that was asked to come off its work, and cannot, says so, rather than \
            waiting for the OS's timeout: state HUNG on an engine of user-mode queues, GPU_ENGINE_TIMEOUT elsewhere; \
            0: it never does";
        engine_priority: u32, "EnginePriority", Values::Between(1, 31), 16,
            "priority of the engines' threads: from 16 on no ordinary process can keep them from a processor; 8 is that \
            of an ordinary thread";
        engine_share: u32, "EngineShare", Values::Between(50, 100), 90,
            "percent of each 100 ms for which a busy engine works at a real-time priority; then it pauses, and others \
            run; 100: it never pauses";
        time_stamps: bool, "TimeStamps", SWITCH, 1,
            "the GPU's clock is the processor's time-stamp counter where that is invariant; 0, or where it is not: the \
            performance counter";
        connect_notify: bool, "ConnectNotify", SWITCH, 0,
            "doorbells connect as CONNECTED_NOTIFY, so user mode must call `D3DKMTNotifyWorkSubmission` after each \
            ring";
        optimized_interrupt: bool, "OptimizedInterrupt", SWITCH, 0,
            "fence interrupts name the hardware queue, so the OS scans one log only";
        null_fence_array: bool, "NullFenceArray", SWITCH, 0,
            "fence interrupts name no fence: \"scan all\"; with `OptimizedInterrupt` no queue: \"scan the logs of the \
            engine\"";
        single_fence_interrupt: bool, "SingleFenceInterrupt", SWITCH, 0,
            "with native fences: one interrupt for both kinds of fences, with a NULL array and \
            `EvaluateLegacyMonitoredFences`, as of hardware that cannot tell them apart";
        basic_monitored_fences: bool, "BasicMonitoredFences", SWITCH, 0,
            "signals of monitored fences raise no interrupt, and the OS looks when a command buffer is done; the \
            progress fences of hardware queues still do, being how the OS learns of that";
        software_signal_nodes: u32, "SoftwareSignalNodes", Values::Between(0, (1 << NODE_COUNT) - 1), 0,
            "a bit per node whose engine cannot write monitored fences by their address (the progress fence of a \
            hardware queue excepted): the UMD has the OS signal them, in order";
        no_64_bit_atomics: bool, "No64BitAtomics", SWITCH, 0,
            "engines write 32 bits of monitored fences, and `DXGK_VIDSCHCAPS` says so; ignored on rungs with native \
            fences, whose values have 64 bits that must not come apart";
        map_to_system_process: bool, "MapToGpuSystemProcess", SWITCH, 0,
            "fence storage and logs are mapped into the paging process too";
        monitored_value_stride: u32, "MonitoredValueStride", Values::Multiples(8, 4096), 0,
            "goes as it is into `DXGK_NATIVE_FENCE_CAPS`: distance of packed values in the 26100 kit, bytes beyond 8 \
            in the 28000 kit; 0 is right under both";
        shadow_monitored_value: bool, "ShadowMonitoredValue", SWITCH, 0,
            "engines signal the context management processor only past a shadow of MonitoredValue, as on GPUs with \
            fence state in local memory; that processor decides";
        log_barriers: Barriers, "LogBarriers",
            Values::Named(&[(1, "one in `DxgkDdiUpdateNativeFenceLogs`"), (2, "both with the engine")]), 2,
            "where the two barriers of a native fence's log entry are";
    }
    FirstBoot {
        flip_caps: u32, "FlipCaps",
            Values::Named(&[(0, "none"), (1, "FlipOnVSyncMmIo and one queued flip"), (2, "FlipIndependent as well")]),
            1,
            "`DXGK_FLIPCAPS` of an adapter that never flips: without FlipOnVSyncMmIo several drivers of version 2.0 \
            and later got Code 43, one starts without; the page of `DXGK_FLIPCAPS` wants FlipIndependent from 1.3 on";
        support_non_vga: bool, "SupportNonVGA", SWITCH, 0,
            "`SupportNonVGA`, which promises `DxgkDdiStopDeviceAndReleasePostDisplayOwnership`, a slot that is NULL \
            here; Microsoft's compute-only sample sets it, the article on compute-only drivers forbids it";
        no_dma_patching: bool, "NoDmaPatching", SWITCH, 1,
            "`DXGK_VIDSCHCAPS.NoDmaPatching`: some drivers start with it, some without, and the article on \
            compute-only drivers forbids it";
        cancel_command_aware: bool, "CancelCommandAware", SWITCH, 1,
            "`DXGK_VIDSCHCAPS.CancelCommandAware`: some drivers start with it, some without";
        low_irql_preempt_command: bool, "LowIrqlPreemptCommand", SWITCH, 1,
            "`DXGK_VIDSCHCAPS.LowIrqlPreemptCommand`: some drivers start with it, some without";
        hw_queue_packet_cap: u32, "HwQueuePacketCap", Values::Between(0, 15), 8,
            "`DXGK_VIDSCHCAPS.HwQueuePacketCap`, from rung 1 on: packets that a node may hold; the article on \
            compute-only drivers wants 0";
        kernel_mode_command_buffer: bool, "KernelModeCommandBuffer", SWITCH, 0,
            "`DXGK_PRESENTATIONCAPS.SupportKernelModeCommandBuffer`: the table of capabilities has it as mandatory \
            for render-only drivers, and drivers start without";
        preemption_granularity: u32, "PreemptionGranularity",
            Values::Named(&[(0, "none"), (1, "DMA buffer boundary"), (2, "what the engines do")]), 2,
            "`DXGK_DRIVERCAPS.PreemptionCaps`, both members; 2: the boundaries of primitives and dispatches, since a \
            packet is taken off in its middle and goes on when it comes back, or that of DMA buffers with \
            `PreemptInBuffers` 0. The HLK wants them not to be none where packets are preempted, and one such driver \
            starts with none";
        per_engine_tdr: bool, "PerEngineTdr", SWITCH, 1,
            "`SupportPerEngineTDR`; without it the OS resets the whole adapter for a packet that hangs; the \
            compute-only form always says 1";
        power_components: bool, "PowerComponents", SWITCH, 0,
            "a power component per engine of user-mode queues: one that has slept for ten times `IdleMilliseconds` asks \
            the OS for F1, which disconnects its doorbells; never with `IdleMilliseconds` 0; drivers that are known to \
            start report none";
        cross_adapter_resource: bool, "CrossAdapterResource", SWITCH, 0,
            "`DXGK_VIDMMCAPS.CrossAdapterResource`, which promises standard allocations that this driver does not \
            serve; cross-adapter fences do not need it";
        history_buffer_precision: u32, "HistoryBufferPrecision", Values::ZeroOr(32, 64), 64,
            "valid bits of time stamps in history buffers, the same for every node; the page allows 0, and drivers \
            that answered less than 32 did not start";
        paging_buffer_segment: u32, "PagingBufferSegment",
            Values::Named(&[(0, "system memory"), (1, "the aperture")]), 0,
            "`PagingBufferSegmentId`: with an aperture that the CPU does not see, a driver's timeouts ended in bug \
            check 0x7E; with 1 set `ApertureCpuVisible` as well";
        local_segment_first: bool, "LocalSegmentFirst", SWITCH, 0,
            "segment 1 is the local one and segment 2 the aperture: systems without an aperture first faulted at \
            start, and the article on compute-only drivers says that none is needed";
        local_segment_cpu_visible: bool, "LocalSegmentCpuVisible", SWITCH, 0,
            "the local segment says CpuVisible, at an address where nothing is, since its memory is not in one piece; \
            drivers start with either. No allocation in it is visible to the CPU, and values of intra-GPU fences \
            are in system memory then: a Windows that writes by that address all the same ends in a bug check";
        dma_buffer_segment_set: bool, "DmaBufferSegmentSet", SWITCH, 1,
            "contexts name the aperture for DMA buffers; 0 names no segment, with which display drivers ended in bug \
            checks";
        aperture_cpu_visible: bool, "ApertureCpuVisible", SWITCH, 0,
            "the aperture says CpuVisible, at an address where nothing is: the page calls the flag meaningless for an \
            aperture, Microsoft's sample sets it";
        populated_from_system_memory: bool, "PopulatedFromSystemMemory", SWITCH, 1,
            "the local segment says that it is system memory which the driver allocated, as it is";
        local_segment_budget: u32, "LocalSegmentBudget",
            Values::Named(&[(0, "left to the OS"), (1, "local"), (2, "non-local")]), 2,
            "which budget of processes the local segment counts against";
        application_target: bool, "ApplicationTarget", SWITCH, 0,
            "budgets of applications aim at the local segment";
        page_table_update_mode: u32, "PageTableUpdateMode",
            Values::Named(&[(0, "CPU_VIRTUAL"), (2, "GPU_PHYSICAL")]), 2,
            "who writes the page tables of ordinary processes: the driver with the processor, or the paging node; \
            drivers start with either";
        pte_byte_addresses: bool, "PteByteAddresses", SWITCH, 0,
            "addresses in page table entries are bytes, as the page of `DXGK_PTE` can be read, not page numbers, as \
            drivers see them; under the other reading this driver's engines write to memory that is not theirs, so \
            only on a machine that may be lost";
        leaf_table_64k: bool, "LeafTable64K", SWITCH, 1,
            "`LeafPageTableSizeFor64KPagesInBytes` is 4096 although there are no 64 KB pages; 0 says so";
        driver_caps_version: bool, "DriverCapsVersion", SWITCH, 1,
            "`DXGK_DRIVERCAPS.WDDMVersion` is 3.2, as drivers that start have it; 0: zero, as its page demands since \
            Windows 7";
        friendly_names: bool, "FriendlyNames", SWITCH, 1,
            "nodes have names although they are of known types: the page of `DXGK_NODEMETADATA` wants none, \
            Microsoft's sample gives them";
        experimental_features: bool, "ExperimentalFeatures", SWITCH, 0,
            "the driver calls its support of hardware scheduling, native fences and user-mode submission \
            experimental: an OS that does not allow experimental support hears that it has none";
        kernel_mode_testing: bool, "KernelModeTesting", SWITCH, 1,
            "under test signing alone: the driver supports kernel-mode testing, as the OS offers it on test machines, and \
            builds the command buffers of Microsoft's tests; no driver is known to start with it";
        feature_interface_handle: u32, "FeatureInterfaceHandle",
            Values::Named(&[(0, "DeviceHandle"), (1, "the miniport's context")]), 0,
            "`hAdapter` in questions about features: the article passes the first, the page of the callback names the \
            second";
        only_64_bit: bool, "Only64Bit", SWITCH, 0,
            "`DXGKQAITYPE_64BITONLYCAPS` says SupportsOnly64Bit: there is no DLL for 32-bit processes, and on one \
            machine they were given the 64-bit one, which they cannot load; no page describes the query";
        paging_node: u32, "PagingNode",
            Values::Named(&[(0, "the node of all work"), (2, "a copy node of its own")]), 2,
            "the node that pages: most drivers that start have one 3-D node, which pages as well, and one was refused \
            until it named a copy node; with 0 the driver goes as far up as `MaxRung` 0, since a node that pages takes \
            packets";
        physical_adapter_handle: u32, "PhysicalAdapterHandle",
            Values::Named(&[(0, "DeviceHandle"), (1, "the miniport's context")]), 0,
            "`DXGK_PHYSICALADAPTERCAPS.DxgkPhysicalAdapterHandle`: drivers that start answer the first, and with \
            another value bug check 0x7E was seen; one driver answers the second";
        fence_storage_segment: u32, "FenceStorageSegment",
            Values::Named(&[(0, "by the fence's type"), (1, "the aperture"), (2, "refused")]), 0,
            "segment of values of native fences, where the OS asks for one: `D3DKMTCreateNativeFence` wants both values \
            of an intra-GPU fence in local memory, the page of `D3DKMDT_FENCESTORAGESURFACEDATA` wants MonitoredValue \
            where the CPU sees it; refused, they are in system memory";
        refuse_queries: u64, "RefuseQueries", Values::Any, 0,
            "a bit per type of `DxgkDdiQueryAdapterInfo` below 64: these are refused with `STATUS_INVALID_PARAMETER`; \
            for types that one driver answers and another refuses, 6 (NUMPOWERCOMPONENTS), 15 (PHYSICALADAPTERCAPS), \
            16, 25, 26, 27, 39, 47";
    }
    Fault {
        fault_corrupt_packet: u64, "FaultCorruptPacket", Values::Any, 0,
            "number of the packet (all nodes count together, from 1) whose opcode gets a flipped bit after it was \
            fetched; the GPU must fault; 0: none";
        preempt_in_buffers: bool, "PreemptInBuffers", SWITCH, 1,
            "0: an engine comes off a command buffer only where it ends, as on hardware that cannot be preempted there; \
            one that never ends, an INDIRECT to itself, then hangs its engine until a reset";
        fault_interrupts: u64, "FaultInterrupts", Values::Any, 0,
            "this many requests for an interrupt fail";
        fault_wedge_at: u64, "FaultWedgeAt", Values::Any, 0,
            "number of the packet at which an engine stops answering, for good: a reset of the adapter replaces it; 0: none";
        fault_lose_memory: bool, "FaultLoseMemory", SWITCH, 0,
            "1, under test signing alone: a reset of the adapter takes the content of the local segment along, as a GPU's \
            memory may lose it";
    }
}
