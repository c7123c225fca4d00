//! The mistakes, a row each: what brings it back, and what notices it.

use crate::{START, answers, doorbells, life, notices, objects, room, slots, spaces, start};
use fencepost::world::Decorator;

/// Name and number of a value under the driver's registry key.
pub type Setting = (&'static str, u32);

/// What brings a mistake back.
#[derive(Clone, Copy)]
pub enum Brings {
    /// Functions before those of the table.
    Table(Decorator),
    /// A setting.
    Registry(Setting),
}

/// A mistake that the driver once made.
#[derive(Clone, Copy)]
pub struct Mistake {
    /// What the driver did.
    pub name: &'static str,
    /// The page that it was against.
    pub source: &'static str,
    pub brings: Brings,
    /// A conformance case, [`START`], or one of [`crate::OWN`].
    pub case: &'static str,
    /// What the failure's text must contain: a rule's name, or words of the case.
    pub says: &'static str,
    /// Settings that the case is played with, with and without the mistake.
    pub settings: &'static [Setting],
    /// The reading of the documents that it is played under.
    pub windows: &'static str,
    /// Whether the case may hang instead, since what waits for an interrupt may wait for ever: a hang counts as
    /// noticed when the case without the mistake ends, and has ended [`crate::TIMES`] times by then.
    pub may_hang: bool,
}

/// A mistake that a function in front of the driver's table brings back.
const fn table(
    name: &'static str,
    source: &'static str,
    decorate: Decorator,
    case: &'static str,
    says: &'static str,
) -> Mistake {
    Mistake {
        name,
        source,
        brings: Brings::Table(decorate),
        case,
        says,
        settings: &[],
        windows: "default",
        may_hang: false,
    }
}

/// A mistake that a setting brings back; a plain start shows it.
const fn registry(name: &'static str, source: &'static str, setting: Setting, says: &'static str) -> Mistake {
    Mistake {
        name,
        source,
        brings: Brings::Registry(setting),
        case: START,
        says,
        settings: &[],
        windows: "default",
        may_hang: false,
    }
}

impl Mistake {
    const fn with(mut self, settings: &'static [Setting]) -> Self {
        self.settings = settings;
        self
    }

    /// The case that notices instead.
    const fn of_case(mut self, case: &'static str) -> Self {
        self.case = case;
        self
    }

    const fn or_hangs(mut self) -> Self {
        self.may_hang = true;
        self
    }

    const fn under(mut self, windows: &'static str) -> Self {
        self.windows = windows;
        self
    }
}

#[rustfmt::skip]
pub const MISTAKES: &[Mistake] = &[
    // Contexts.
    table(
        "contexts for queues are packet contexts", "DXGK_CREATECONTEXTFLAGS, HwQueueSupported",
        objects::packets_whatever_the_flag, "CL-04", "a queue in it",
    ),
    table(
        "Dxgkrnl's handle of a context is lost", "DXGKARGCB_INVALIDATEHWCONTEXT, hHwContext",
        objects::incoming_handle_lost, "WS-22", "DXG-CB-OBJECT",
    ),
    table(
        "contexts need private data", "DxgkDdiCreateContext, Return value",
        objects::private_data_demanded, "ST-56", "without private data",
    ),
    table(
        "a test's context is refused", "microsoft/libdxg",
        objects::private_data_demanded, "CL-03", "a context without private data",
    ),
    table(
        "the companion of a context is node 0", "DXGK_CONTEXTINFO, PagingCompanionNodeId",
        objects::companion_is_node_0, START, "DXG-CONTEXT-COMPANION",
    ),
    table(
        "outputs of CreateContext are left", "DXGK_CONTEXTINFO",
        objects::context_outputs_left, START, "DXG-CONTEXT-OUTPUT",
    ),
    table(
        "progress fences have to be opened", "DXGKARG_CREATEHWQUEUE",
        objects::unopened_progress_refused, "NF-01", "D3DKMTCreateHwQueue returned 0xc000000d",
    ).under("progress-never-opened"),
    table(
        "progress fences have to be at a multiple of 8", "DxgkDdiCreateHwQueue, Return value",
        objects::odd_progress_refused, "CL-14", "a queue whose progress fence is nowhere",
    ),
    // The start.
    registry(
        "no flip capabilities", "WDDM driver and feature caps",
        ("FlipCaps", 0), "DXG-CAPS-FLIP",
    ),
    registry(
        "SupportNonVGA without its function", "DXGK_DRIVERCAPS, SupportNonVGA",
        ("SupportNonVGA", 1), "DXG-CAPS-NON-VGA",
    ),
    registry(
        "cross-adapter resources are promised", "DXGK_VIDMMCAPS, CrossAdapterResource",
        ("CrossAdapterResource", 1), "DXG-CAPS-CROSS-ADAPTER-SERVED",
    ),
    registry(
        "paging buffers where the CPU sees nothing", "seen with one driver",
        ("PagingBufferSegment", 1), "DXG-SEGMENT-PAGING-VISIBLE",
    ),
    registry(
        "a query of nothing is refused", "DxgkDdiQueryAdapterInfo",
        ("RefuseQueries", 1 << 16), "DISPLAY_DRIVERCAPS_EXTENSION returned",
    ).under("refusals-end-start"),
    table(
        "history buffers of the first node only", "DXGKARG_HISTORYBUFFERPRECISION, Remarks",
        start::history_of_the_first_node, START, "DXG-CAPS-HISTORY",
    ),
    table(
        "SetVirtualMachineData is NULL", "DRIVER_INITIALIZATION_DATA",
        start::no_virtual_machine_data, START, "DXG-INIT-SLOT-VERSION",
    ),
    table(
        "CalibrateGpuClock is NULL", "DRIVER_INITIALIZATION_DATA",
        start::no_gpu_clock, START, "DXG-INIT-SLOT-VERSION",
    ),
    table(
        "SetStablePowerState is NULL", "DRIVER_INITIALIZATION_DATA",
        start::no_stable_power_state, START, "DXG-INIT-SLOT-VERSION",
    ),
    table(
        "removals are survived unheard", "DxgkDdiNotifySurpriseRemoval, Remarks",
        start::survives_removals_unheard, START, "DXG-SURPRISE-CAPS",
    ),
    table(
        "AllowExperimental is overwritten", "DXGKARG_QUERYFEATURESUPPORT",
        start::experimental_overwritten, START, "DXG-FEATURE-INPUT",
    ),
    table(
        "features are answered whatever MaxRung says", "DXGKARG_QUERYFEATURESUPPORT",
        start::supports_everything, START, "DXG-FEATURE-UNUSED",
    ).with(&[("MaxRung", 1)]),
    table(
        "no context is known as the paging process's", "DXGK_CREATECONTEXTFLAGS, SystemContext",
        objects::system_context_unread, "ST-57", "DXG-SUBMIT-STATUS",
    ),
    table(
        "large pages are mapped", "DXGK_PTE",
        objects::large_pages_mapped, "ST-58", "LargePage: ",
    ),
    table(
        "zero pages are mapped", "DXGK_PTE",
        objects::zero_pages_mapped, "ST-58", "Zero: ",
    ),
    table(
        "unknown segments are system memory", "DXGK_PTE",
        objects::unknown_segments_mapped, "ST-58", "Segment: ",
    ),
    table(
        "the segment behind the last one is system memory", "DXGK_PTE",
        objects::segment_behind_last_mapped, "ST-58", "SegmentBehindLast: ",
    ),
    table(
        "offsets into the aperture are system memory", "DXGK_PTE; GPU segments",
        objects::aperture_entries_mapped, "ST-58", "Aperture: ",
    ),
    table(
        "pages of another adapter are mapped", "DXGK_PTE",
        objects::other_adapters_mapped, "ST-58", "Adapter: ",
    ),
    table(
        "reserved bits of entries are not looked at", "DXGK_PTE",
        objects::reserved_bits_mapped, "ST-58", "Reserved: ",
    ),
    table(
        "tables of 64 KB pages are tables of 4 KB pages", "DXGK_PTE",
        objects::large_tables_mapped, "ST-58", "Table64K: ",
    ),
    table(
        "updates of 64 KB pages are updates of 4 KB pages", "DXGK_UPDATEPAGETABLEFLAGS, Use64KBPages",
        objects::large_updates_mapped, "ST-58", "Update64K: ",
    ),
    table(
        "reserved flags of updates are not looked at", "DXGK_UPDATEPAGETABLEFLAGS",
        objects::reserved_flags_mapped, "ST-58", "UpdateReserved: ",
    ),
    table(
        "levels that there are not are level 0", "DXGK_BUILDPAGINGBUFFER_UPDATEPAGETABLE, PageTableLevel",
        objects::unknown_levels_mapped, "ST-58", "UpdateLevel: ",
    ),
    table(
        "ranges that leave their table are cut", "DXGK_BUILDPAGINGBUFFER_UPDATEPAGETABLE, NumPageTableEntries",
        objects::ranges_behind_tables_cut, "ST-58", "UpdateBehindTable: ",
    ),
    table(
        "tables in unknown segments are in system memory", "DXGK_BUILDPAGINGBUFFER_UPDATEPAGETABLE, PageTableAddress",
        objects::tables_in_unknown_segments_written, "ST-83", "UpdateSegment: ",
    ),
    table(
        "tables in the aperture are in system memory", "DXGK_BUILDPAGINGBUFFER_UPDATEPAGETABLE, PageTableAddress",
        objects::tables_in_the_aperture_written, "ST-83", "UpdateAperture: ",
    ),
    table(
        "updates of a table at NULL are refused", "DxgkDdiBuildPagingBuffer, Return value",
        objects::tables_at_null_refused, "ST-83", "DXG-PAGING-STATUS",
    ),
    table(
        "updates of a table at NULL succeed", "DXGK_BUILDPAGINGBUFFER_UPDATEPAGETABLE, PageTableAddress",
        objects::tables_at_null_succeed, "ST-83", "UpdateNull: ",
    ),
    table(
        "roots in unknown segments are in system memory", "DXGKARG_SETROOTPAGETABLE, Address",
        objects::roots_in_unknown_segments_taken, "ST-58", "the root, Segment: ",
    ),
    table(
        "roots in the aperture are in system memory", "DXGKARG_SETROOTPAGETABLE, Address",
        objects::roots_in_the_aperture_taken, "ST-58", "the root, Aperture: ",
    ),
    table(
        "paging operations that are not carried out fail", "DxgkDdiBuildPagingBuffer, Remarks",
        objects::unknown_operations_fail, "ST-64", "DXG-PAGING-STATUS",
    ),
    table(
        "paging operations that are not carried out are not counted", "DXGK_BUILDPAGINGBUFFER_OPERATION",
        objects::unknown_operations_uncounted, "ST-64", "kinds of operations that the driver counted",
    ),
    table(
        "paging operations that cannot be carried out succeed", "DxgkDdiBuildPagingBuffer, Remarks",
        spaces::strange_operations_succeed, "ST-82", "the driver does not say",
    ),
    table(
        "a transfer of no bytes, which tells of lost memory, stops the adapter", "Thread synchronization and TDR",
        spaces::losses_stop, "TA-04", "behind the reset",
    ),
    table(
        "a transfer of no bytes is built as a copy", "Thread synchronization and TDR",
        spaces::losses_copied, "TA-04", "DXG-PAGING-LOST",
    ),
    table(
        "the root page table is the process's", "DxgkDdiSetRootPageTable; Tile resources",
        spaces::root_per_process, "ST-84", "the device is lost",
    ),
    table(
        "copies of page table entries are not made", "DXGK_BUILDPAGINGBUFFER_COPYPAGETABLEENTRIES",
        spaces::copies_dropped, "ST-86", "DXG-PAGING-COPY",
    ),
    table(
        "the first of several copies is made alone", "DXGK_BUILDPAGINGBUFFER_COPYPAGETABLEENTRIES, NumRanges",
        spaces::first_copy_alone, "ST-85", "DXG-PAGING-COPY",
    ),
    table(
        "copies leave translations in place", "Tile resources",
        spaces::copies_unflushed, "ST-86", "copies without flush: true",
    ),
    registry(
        "local memory does not say what it is", "DXGK_SEGMENTFLAGS, PopulatedFromSystemMemory",
        ("PopulatedFromSystemMemory", 0), "PopulatedFromSystemMemory of the memory segment: false",
    ).of_case("ST-50"),
    registry(
        "local memory counts against no budget", "DXGK_SEGMENTFLAGS, NonLocalBudgetGroup",
        ("LocalSegmentBudget", 0), "its budget group: (false, false)",
    ).of_case("ST-50"),
    table(
        "flushes for unknown processes flush nothing", "DXGK_BUILDPAGINGBUFFER_FLUSHTLB",
        objects::stray_flush_ignored, "ST-61", "NT-MAP-LEFT",
    ),
    table(
        "flushes for other objects flush nothing", "DXGK_BUILDPAGINGBUFFER_FLUSHTLB",
        objects::stray_flush_of_another_object, "ST-61", "AnotherObject: ",
    ),
    table(
        "flushes for processes that are gone flush nothing", "DXGK_BUILDPAGINGBUFFER_FLUSHTLB",
        objects::stray_flush_of_a_gone_process, "ST-61", "GoneProcess: ",
    ),
    table(
        "private data in one buffer is refused", "DxgkDdiQueryAdapterInfo, DXGKQAITYPE_UMDRIVERPRIVATE",
        start::one_buffer_refused, START, "DXG-QAI-PRIVATE",
    ),
    table(
        "nodes of no known type have no names", "DXGK_NODEMETADATA, FriendlyName",
        start::no_names, START, "DXG-NODE-NAME",
    ).with(&[("ComputeOnly", 1)]),
    table(
        "a context of GDI's has no list of allocations", "DXGK_CONTEXTINFO, AllocationListSize",
        objects::gdi_list_is_empty, "DD-01", "DXG-CONTEXT-OUTPUT",
    ),
    table(
        "refused packets are not noted", "DxgkDdiSubmitCommandVirtual, Return value",
        objects::refused_packets_unnoted, "BI-42", "refused packets were counted",
    ),
    table(
        "command buffers of queues that render nothing run", "DXGK_SUBMITCOMMANDFLAGS, NullRendering",
        objects::null_buffers_run, "DD-10", "rung 3, ",
    ),
    table(
        "packets that render nothing run", "DXGK_SUBMITCOMMANDFLAGS",
        objects::null_packets_run, "ST-60", "what did not run",
    ),
    table(
        "the room that the OS requires is not made", "DXGK_START_INFO, RequiredDmaQueueEntry",
        room::required_room_unread, room::NAME, "the required room",
    ),
    // Each function and its page.
    table(
        "RenderGdi is refused", "DxgkDdiRenderGdi, Return value",
        slots::render_gdi_refused, "DD-01", "DxgkDdiRenderGdi returned",
    ),
    table(
        "RenderGdi is refused for a list of allocations", "DxgkDdiRenderGdi, Return value",
        slots::render_gdi_of_allocations_refused, "DD-01", "DxgkDdiRenderGdi returned",
    ),
    table(
        "Present is not supported", "DxgkDdiPresent, Return value",
        slots::present_not_supported, "DD-01", "DxgkDdiPresent returned",
    ),
    table(
        "PresentToHwQueue is not supported", "DxgkDdiPresentToHwQueue, Return value",
        slots::present_to_queue_not_supported, "DD-01", "DxgkDdiPresentToHwQueue returned",
    ),
    table(
        "RenderKm is privileged", "DxgkDdiRenderKm, Return value",
        slots::render_km_privileged, "DD-01", "DxgkDdiRenderKm returned",
    ),
    table(
        "QueryDeviceDescriptor is not supported", "DxgkDdiQueryDeviceDescriptor, Return value",
        slots::descriptor_not_supported, "DD-01", "DxgkDdiQueryDeviceDescriptor returned",
    ),
    table(
        "PreemptCommand fails", "DxgkDdiPreemptCommand, Return value",
        slots::preemption_fails, "DD-01", "DXG-PREEMPT-STATUS",
    ),
    table(
        "FormatHistoryBuffer leaves outputs", "DXGKARG_FORMATHISTORYBUFFER",
        slots::history_half_formatted, "DD-01", "DxgkDdiFormatHistoryBuffer: ",
    ),
    table(
        "FormatHistoryBuffer leaves its offset", "DXGKARG_FORMATHISTORYBUFFER, Offset",
        slots::history_offset_left, "DD-01", "0x40 bits, offset 16",
    ),
    table(
        "RenderGdi counts a pass", "DXGKARG_RENDERGDI, MultipassOffset",
        slots::render_gdi_counts_a_pass, "DD-01", "DxgkDdiRenderGdi has nothing to do and wants pass",
    ),
    table(
        "CalibrateGpuClock overwrites its flags", "DXGK_GPUCLOCKDATA_FLAGS",
        slots::clock_flags_overwritten, "DD-01", "flags left false",
    ),
    table(
        "flags of allocations are left", "DXGK_ALLOCATIONINFO, Flags2",
        objects::allocation_flags_left, "DD-10", "DXG-ALLOC-OUTPUT",
    ),
    table(
        "a removal is forgotten", "DxgkDdiNotifySurpriseRemoval",
        life::removal_forgotten, "DD-02", "DXG-SURPRISE-TOUCH",
    ).or_hangs(),
    table(
        "interrupts are claimed by a device that is gone", "DxgkDdiInterruptRoutine",
        life::claims_when_gone, "DD-02", "DXG-ISR-CLAIM",
    ),
    table(
        "D0 restores nothing", "DxgkDdiSetPowerState",
        life::wake_ignored, "DD-03", "what was signaled in D3",
    ).or_hangs(),
    table(
        "what was raised on the way to D3 is not claimed", "DxgkDdiInterruptRoutine; DxgkDdiSetPowerState",
        life::sleeps_unclaimed, "DD-03", "DXG-ISR-CLAIM",
    ),
    table(
        "a fence is answered and not reported", "DxgkDdiQueryCurrentFence, Remarks",
        life::fence_not_reported, "DD-04", "DXG-TDR-FENCE",
    ),
    table(
        "packets that only waited count as aborted", "DXGKARG_RESETENGINE, LastAbortedFenceId",
        life::waiting_packet_aborted, "DD-12", "the packet behind the one that was aborted",
    ),
    table(
        "the ring of a queue without a doorbell is looked at", "User-mode work submission, normal termination",
        life::rings_looked_at, "DD-05", "faults of queues that did nothing wrong",
    ),
    table(
        "a log cannot be taken away", "DxgkDdiSetNativeFenceLogBuffer",
        life::log_kept, "DD-06", "DXG-LOG-SET",
    ),
    table(
        "ConnectDoorbell fails while all change hands", "DxgkDdiConnectDoorbell, Return value",
        life::short_of_doorbells, "DD-07", "DXG-DB-CONNECT",
    ),
    table(
        "ConnectDoorbell fails while all change hands for long", "DxgkDdiConnectDoorbell, Return value",
        life::short_of_doorbells, "DD-14", "DXG-DB-CONNECT",
    ),
    table(
        "engines are halted behind the interrupt routine", "DxgkDdiStopDevice",
        life::halted_last, "DD-15", "NT-INT-STORM",
    ),
    table(
        "D0 raises nothing again", "DxgkDdiSetPowerState",
        life::wake_ignored, notices::SLEEP, "node 0, after D3",
    ),
    table(
        "a removal raises nothing again", "DxgkDdiNotifySurpriseRemoval",
        notices::removal_forgotten, notices::REMOVAL, "node 0, after a removal",
    ),
    table(
        "ones are read and nothing follows", "PCI Local Bus Specification; DxgkDdiInterruptRoutine",
        notices::ones_unnoticed, notices::ONES, "a device that read as ones",
    ),
    table(
        "a doorbell that the OS keeps is asked for again and again", "DxgkCbDisconnectDoorbell, Return value",
        doorbells::keeps_asking, doorbells::KEPT, "DXG-DB-CONNECT",
    ),
    table(
        "a doorbell is gone while it is being taken", "DxgkDdiDestroyDoorbell; DxgkCbDisconnectDoorbell",
        doorbells::ends_early, doorbells::DESTROYED, "DXG-CB-DISCONNECT",
    ),
    table(
        "one thread at a time connects", "Threading and synchronization zero level",
        doorbells::connects_alone, "BI-45", "DXG-DB-CONNECT",
    ),
    table(
        "DisconnectDoorbell gives up the queue", "DxgkDdiDisconnectDoorbell; User-mode work submission",
        doorbells::forgets_at_disconnect, doorbells::LATE, "rung for before the rotation",
    ),
    table(
        "no scheduling log is written", "DXGKDDI_SETSCHEDULINGLOGBUFFER, Remarks",
        slots::scheduling_log_ignored, "DD-11", "the interrupt did not happen",
    ),
    table(
        "UpdateMonitorLinkInfo is not supported", "DxgkDdiUpdateMonitorLinkInfo",
        slots::link_info_not_supported, answers::NAME, "DxgkDdiUpdateMonitorLinkInfo: ",
    ),
    table(
        "UpdateHwContextState says that it is so", "DxgkDdiUpdateHwContextState",
        slots::context_state_ignored, answers::NAME, "DxgkDdiUpdateHwContextState: ",
    ),
    table(
        "standard allocations are not supported", "DxgkDdiGetStandardAllocationDriverData, Return value",
        slots::standard_allocation_not_supported, answers::NAME, "DxgkDdiGetStandardAllocationDriverData: ",
    ),
    table(
        "flushes end before their end", "DXGK_BUILDPAGINGBUFFER_FLUSHTLB, EndVirtualAddress",
        objects::flush_ends_before_its_end, "DD-08", "LastPage: NT-MAP-LEFT",
    ),
    table(
        "a bad handle ends a destruction", "DxgkDdiDestroyAllocation",
        objects::destroys_up_to_a_bad_handle, "DD-09", "DXG-LEAK-MAPPING",
    ),
];
