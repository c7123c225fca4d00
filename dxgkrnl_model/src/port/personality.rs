//! Which Windows the model is, and where the documents leave Windows a choice, which one it makes.
//!
//! Every "Chosen:" in this crate that a real Windows may decide otherwise is a member here, with the model's choice as
//! the default. A driver that runs on several personalities does not rest on one reading.

mod clock;
pub mod covering;
mod departure;
pub mod family;
mod faults;
mod gate;
pub mod handshake;
mod logs;
mod lost;
mod preemption;
mod start;
mod user_mode;

pub use clock::Clock;
pub use departure::Departure;
pub use family::Windows;
pub use faults::{CallbackFault, FaultPlan, Neighbour};
pub use gate::{Gate, Gates};
pub use logs::{LogReplacement, LogWakes, SchedulingLogs};
pub use lost::LostBy;
pub use preemption::{Preemption, Submitted};
pub use start::{
    PagingProcess, PhysicalAdapterCaps, STRANGE_OPERATIONS, STRAY_OPERATIONS, StrayEntry, StrayFlush, StrayRoot,
    SystemProcesses,
};
pub use user_mode::{KernelProgress, ProgressOpened, Residency, UserMode};

use std::collections::BTreeMap;

use nt_model::sched::Ticks;
use nt_model::sched::seeded::SeededOptions;
use nt_model::time::ClockOptions;
use nt_model::{DpcDelivery, InterruptDelivery, Policy};
use wddm_abi::DXGK_FEATURE_ID;

/// Ticks (100 ns) in a millisecond.
pub const MS: Ticks = 10_000;
/// Ticks (100 ns) in a second.
pub const SECOND: Ticks = 10_000_000;

/// A Windows build, as far as it differs for a driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Build {
    /// 24H2 as first shipped (2024-10): `DXGKARG_OPENNATIVEFENCE` has 80 bytes (the SDK of 2024-10).
    W26100Ga,
    /// 24H2 of the SDK 10.0.26100.9169: `DXGKARG_OPENNATIVEFENCE` has 144 bytes.
    W26100Update,
    /// The 28000 line: interface selector 0x11008, and other user-mode submission thunks under old names.
    /// Source: SDK 10.0.28000.2957, d3dkmthk.h, d3dukmdt.h.
    W28000,
}

impl Build {
    /// `DXGKDDI_INTERFACE_VERSION` of this build's kit: the version that `DXGKRNL_INTERFACE` names.
    pub fn interface_version(self) -> u32 {
        match self {
            Self::W26100Ga | Self::W26100Update => 0x1_1007,
            Self::W28000 => 0x1_1008,
        }
    }

    /// Bytes of `DXGKARG_OPENNATIVEFENCE`.
    pub fn open_native_fence_size(self) -> usize {
        match self {
            Self::W26100Ga => 80,
            Self::W26100Update | Self::W28000 => 144,
        }
    }

    /// Whether `D3DKMTConnectDoorbell` takes 88 bytes and the queue owns the doorbell.
    pub fn has_queue_doorbells(self) -> bool {
        self == Self::W28000
    }
}

/// What this Windows says about one feature, before the driver is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FeatureSetting {
    /// The OS supports it here: a build's default, or the registry override `Enabled`.
    pub supported: bool,
    /// Lowest version on offer.
    pub min_version: u16,
    /// Highest version on offer.
    pub max_version: u16,
    /// A driver whose support is experimental is taken: the registry override `AllowExperimental`.
    pub allow_experimental: bool,
}

impl FeatureSetting {
    /// Supported in version 1.
    pub const ON: Self = Self { supported: true, min_version: 1, max_version: 1, allow_experimental: true };
    /// Not supported.
    pub const OFF: Self = Self { supported: false, min_version: 1, max_version: 1, allow_experimental: false };
}

/// Per-feature settings; a feature that is not named has the build's default ([`crate::port::features`]).
pub type FeatureSettings = BTreeMap<u32, FeatureSetting>;

/// What `GetOSCaps` of the native fence feature answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NativeFenceOsCaps {
    /// `SupportOptimizedDefaultFenceType`.
    pub optimized_default: bool,
    /// `SupportIntraGpuFenceType`: without it `D3DKMTCreateNativeFence` refuses that type.
    pub intra_gpu: bool,
}

/// Timeout detection and recovery, by the registry names.
///
/// Source: `display/tdr-registry-keys`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TdrSettings {
    /// `TdrDelay`: how long an engine may show no progress, and how long it may take to preempt or suspend.
    pub delay: Ticks,
    /// `TdrDdiDelay`: how long threads may take to leave the driver before an adapter reset; then 0x116.
    pub ddi_delay: Ticks,
    /// `TdrLimitCount`: adapter resets allowed in [`limit_time`](Self::limit_time); one more is 0x116.
    pub limit_count: u32,
    /// `TdrLimitTime`.
    pub limit_time: Ticks,
    /// Devices that a process may hang in [`limit_time`](Self::limit_time); one more, and it is blocked. No page gives
    /// the number; chosen: one that is blocked can no longer stop the system by itself.
    pub process_limit: u32,
    /// `TdrLevel` 3 (recover) or 0 (off).
    pub enabled: bool,
    /// How long the scheduler waits for dependent engines to preempt. Source: `DxgkDdiQueryDependentEngineGroup`.
    pub dependents_delay: Ticks,
    /// `TdrTestMode`: the escape by which tests control recovery works. Source: `D3DKMT_ESCAPE`, TDRDBGCTRL.
    pub test_mode: bool,
}

impl Default for TdrSettings {
    fn default() -> Self {
        Self {
            delay: 2 * SECOND,
            ddi_delay: 5 * SECOND,
            limit_count: 5,
            limit_time: 60 * SECOND,
            process_limit: 4,
            enabled: true,
            dependents_delay: 500 * MS,
            test_mode: false,
        }
    }
}

/// Where `DXGKARG_CREATEHWQUEUE` names the native progress fence. No public header shows `hHwQueueNativeProgressFence`
/// (the remarks of its DDI page alone name it), so a driver must work with each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProgressFenceHandle {
    /// The driver's 64-bit handle in the eight bytes at offset 24, over `hHwQueueProgressFence` and its padding.
    #[default]
    At24,
    /// The driver's handle in eight bytes appended at offset 48; offset 24 holds the `D3DKMT_HANDLE`.
    At48,
    /// Nowhere: only the addresses tell which fence it is.
    Nowhere,
}

/// Whose handle a driver puts where the document says only "the handle".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandleReading {
    /// The value that Dxgkrnl passed in when the object was created.
    Dxgkrnl,
    /// The value that the driver returned.
    Driver,
    /// Both are accepted.
    Either,
}

impl HandleReading {
    /// Whether Dxgkrnl's value is accepted.
    pub fn takes_dxgkrnl(self) -> bool {
        self != Self::Driver
    }

    /// Whether the driver's value is accepted.
    pub fn takes_driver(self) -> bool {
        self != Self::Dxgkrnl
    }
}

/// The readings of each place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HandleReadings {
    /// `NativeFenceSignaled.hHWQueue`. The page says "KMD handle of the HWQueue": the driver's.
    pub interrupt_queue: HandleReading,
    /// `HwQueuePageFaulted.FaultedHwQueue`, `.FaultedHwContext`, `.FaultedProcessHandle`. The page says "the handle";
    /// chosen: Dxgkrnl's, as for everything else that a driver hands to a callback ("the handle that the driver should
    /// use when it calls back", `DXGKARG_CREATEDEVICE`), and as `DmaPageFaulted.FaultedProcessHandle` says outright.
    pub faulted: HandleReading,
    /// `SuspendContextCompleted.hContext`. The page says "hardware context that the acknowledgment is for"; chosen as
    /// above.
    pub suspended_context: HandleReading,
    /// `DXGKARGCB_DISCONNECTDOORBELL.hHwQueue` and `.hDoorbell`. The page says "previously created using
    /// DxgkDdiCreate…"; chosen: Dxgkrnl's, since `DXGKARG_CREATEDOORBELL` says of its input "KMD can store the input
    /// handle".
    pub disconnect_doorbell: HandleReading,
}

impl Default for HandleReadings {
    fn default() -> Self {
        Self {
            interrupt_queue: HandleReading::Driver,
            faulted: HandleReading::Dxgkrnl,
            suspended_context: HandleReading::Dxgkrnl,
            disconnect_doorbell: HandleReading::Dxgkrnl,
        }
    }
}

impl HandleReadings {
    /// Every place takes either.
    pub const LENIENT: Self = Self {
        interrupt_queue: HandleReading::Either,
        faulted: HandleReading::Either,
        suspended_context: HandleReading::Either,
        disconnect_doorbell: HandleReading::Either,
    };
}

/// By which calls contexts for hardware queues are made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HwContexts {
    /// By `D3DKMTCreateContextVirtual` with `HwQueueSupported`, which reaches the driver as `DxgkDdiCreateContext` with
    /// `DXGK_CREATECONTEXTFLAGS.HwQueueSupported`. `D3DKMTCreateHwContext` and its counterpart are
    /// STATUS_NOT_IMPLEMENTED.
    ///
    /// Source: DDI pages DXGKARGCB_INVALIDATEHWCONTEXT (hHwContext is the value "passed to DxgkDdiCreateContext") and
    /// DXGK_CREATECONTEXTFLAGS (HwQueueSupported); every public user-mode driver; Microsoft's dxgkrnl for Linux, which
    /// calls the other pair an obsolete entry.
    #[default]
    CreateContext,
    /// By `D3DKMTCreateHwContext`, which reaches the driver as `DxgkDdiCreateHwContext`; `D3DKMTCreateContextVirtual`
    /// with `HwQueueSupported` is STATUS_NOT_SUPPORTED on hardware-scheduled nodes.
    ///
    /// Source: the names in dispmprt.h, d3dkmddi.h and d3dkmthk.h alone; the functions have no pages.
    CreateHwContext,
}

/// Which of a driver's handles names a ring in `DXGKARG_CREATEDOORBELL`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RingHandle {
    /// `DXGK_ALLOCATIONINFO.hAllocation`, of `DxgkDdiCreateAllocation`.
    #[default]
    Allocation,
    /// `DXGK_OPENALLOCATIONINFO.hDeviceSpecificAllocation`, of `DxgkDdiOpenAllocation`.
    DeviceSpecific,
}

/// What `DXGK_VIDSCHCAPS.HwQueuePacketCap` bounds. Its page has one sentence: DMA packets that may be queued to a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PacketCap {
    /// The packets of a packet node; buffers of hardware queues are bounded by `MaxInFlightHwQueueBuffers`, those of
    /// each queue by themselves.
    #[default]
    PacketNodes,
    /// Those, and the buffers of all kernel-mode queues of a node together.
    Nodes,
}

/// What a driver gets as `EngineAffinity` of a context.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Affinity {
    /// The bit of the engine, `1 << EngineOrdinal`: 1 on an adapter of one engine, whether user mode says 0 or 1, and
    /// a number of user mode's that is no engine's bit is refused. Source: article tdr-changes-in-windows-8. Clients
    /// say either.
    #[default]
    Bit,
    /// What user mode says, and 0 for contexts of the system. Source: DDI page D3DKMT_CREATECONTEXTVIRTUAL calls the
    /// member an index.
    Passed,
}

impl Affinity {
    /// The engine, of so many, that user mode's number names; `None`: none of them.
    pub(crate) fn engine(self, user: u32, engines: u32) -> Option<u32> {
        match self {
            Self::Bit if user == 0 => Some(0),
            // The ordinal is the highest bit, and there is one.
            Self::Bit => Some(user.trailing_zeros()).filter(|engine| user.is_power_of_two() && *engine < engines),
            // A driver with one engine says which affinity it accepts: clients say 0 and 1.
            Self::Passed if engines == 1 => Some(0),
            Self::Passed => Some(user).filter(|engine| *engine < engines),
        }
    }

    /// What the driver gets of a context on this engine for user mode's number.
    pub(crate) fn of(self, user: u32, engine: u32) -> u32 {
        match self {
            Self::Bit => 1 << engine,
            Self::Passed => user,
        }
    }
}

/// What `DXGK_PTE::PageAddress` counts.
///
/// The page of `DXGK_PTE` says "the high 52 bits of the 64 bit physical address", and that the low 12 bits are zero,
/// which reads either way. Drivers in the field shift the member left by 12, so page numbers are the default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PteAddress {
    /// A byte address with twelve zero bits at its end.
    Bytes,
    /// A page number.
    #[default]
    Frames,
}

/// What `DXGK_BUILDPAGINGBUFFER_FLUSHTLB.EndVirtualAddress` is. The page calls it the end of the range, and does not
/// say whether it belongs to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FlushEnd {
    /// The address behind the last page.
    #[default]
    Behind,
    /// The address of the last page.
    LastPage,
}

/// One Windows. [`Personality::default`] is 24H2 as updated, with hardware scheduling, native fences and user-mode
/// submission on.
#[derive(Clone, Debug)]
pub struct Personality {
    /// Which build.
    pub build: Build,
    /// Feature settings that differ from the build's defaults, for every adapter.
    pub features: FeatureSettings,
    /// OS capabilities of the native fence feature.
    pub native_fence_os_caps: NativeFenceOsCaps,
    /// `DXGKRNL_INTERFACE.Size` and the number of bytes that exist behind the pointer; the rest is unmapped or
    /// poisoned.
    pub interface_size: u32,
    /// A driver of WDDM 2.0 or later that is not compute-only fails to start without `DXGK_FLIPCAPS.FlipOnVSyncMmIo`:
    /// article wddm-driver-and-feature-caps has it as mandatory, and three drivers' authors saw Code 43 without. A
    /// fourth says that its render-only driver of version 3.2 starts with no flip capability: with this off it does.
    pub flip_caps_demanded: bool,
    /// Refusals of `QueryAdapterInfo` types that say nothing of a render-only adapter (DISPLAY_DRIVERCAPS_EXTENSION,
    /// 64BITONLYCAPS) end the start. One driver's author says so from version 2.0 on; another's refuses several and
    /// starts (default).
    pub refusals_end_start: bool,
    /// Refusing NUMPOWERCOMPONENTS ends the start of every driver, as a page has it that each from version 1.2 on
    /// answers. By default it does so of compute-only drivers and of those with SupportRuntimePowerManagement: the
    /// author of a render-only one refuses it, and his driver starts. Then no power component is there.
    pub power_components_demanded: bool,
    /// DxgkDdiQueryChildRelations is called although DxgkDdiStartDevice has said that there are no children. Starts of
    /// render-only drivers were seen without the call; no page says so.
    pub asks_the_childless: bool,
    /// No Windows does that: a start that Windows refuses goes on where the model can, so that a check finds what there
    /// is behind the refusal ([`Adapter::passed_refusal`](crate::adapter::Adapter::passed_refusal)).
    pub past_refusals: bool,
    /// How often the driver is asked for NODEPERFDATA of each node and for ADAPTERPERFDATA, from its start to its stop;
    /// `None`: when a monitor wants to know. About once a second was seen.
    pub polls: Option<Ticks>,
    /// How an allocation's content is said to be lost.
    pub lost_by: LostBy,
    /// What becomes of PHYSICALADAPTERCAPS.
    pub physical_adapter_caps: PhysicalAdapterCaps,
    /// The paging node has to be a copy node, or the start fails: seen by one driver's author. Others name the only
    /// node that they have, which is a 3-D node.
    pub copy_node_demanded: bool,
    /// Which system processes there are beside the paging process.
    pub system_processes: SystemProcesses,
    /// How the paging process is made.
    pub paging_process: PagingProcess,
    /// Packets of the paging process name no context, only their node. Source: DDI page DXGKARG_SUBMITCOMMANDVIRTUAL,
    /// NodeOrdinal ("identifies the node when the context is NULL").
    pub paging_without_context: bool,
    /// The machine gets memory after the driver has started: `HighestPhysicalAddress` grows. DDI page DXGK_DEVICE_INFO
    /// does not say that the value stays.
    pub memory_added: bool,
    /// Companion contexts have the flag `SystemContext`. DDI page DXGK_CREATECONTEXTFLAGS: a system context is created
    /// for the paging engine only; article tile-resources says nothing of flags.
    pub companion_is_system: bool,
    /// A process gets its privileged address space with its first reservation of addresses, as article
    /// per-process-gpu-virtual-address-spaces has it; otherwise with the first update of page tables in order with work
    /// (article tile-resources speaks of the companion context).
    pub privileged_at_reservation: bool,
    /// No flush of translations follows a copy of page table entries; the documents name the copy alone.
    pub copy_without_flush: bool,
    /// `DXGK_START_INFO.RequiredDmaQueueEntry`. The page gives no number.
    pub required_dma_queue_entries: u32,
    /// Timeouts.
    pub tdr: TdrSettings,
    /// How contexts share a packet node.
    pub preemption: Preemption,
    /// Physical pages that belong together are consecutive (a driver must not rely on it).
    pub contiguous_pages: bool,
    /// Pages that Dxgkrnl makes for itself and shows to the GPU (page tables, fences, logs, paging buffers) are
    /// write-combined. No document says of which type they are.
    pub combined_pages: bool,
    /// Where the native progress fence is named.
    pub progress_fence_handle: ProgressFenceHandle,
    /// Whose handle goes where.
    pub handles: HandleReadings,
    /// By which calls contexts for hardware queues are made.
    pub hw_contexts: HwContexts,
    /// `D3DKMTCreateContextVirtual` without `HwQueueSupported` makes a packet context on a hardware-scheduled node,
    /// too. The documents are silent; otherwise it is STATUS_NOT_SUPPORTED there.
    pub packet_contexts_anywhere: bool,
    /// How the OS answers user mode where documents leave it open.
    pub user_mode: UserMode,
    /// How `DxgkInitialize` is handed to a driver that asks for it by a request.
    pub handshake: handshake::Handshake,
    /// How rings are named.
    pub ring_handle: RingHandle,
    /// How a context's engine is named.
    pub affinity: Affinity,
    /// What the driver's cap of packets counts.
    pub packet_cap: PacketCap,
    /// What a page table entry's address counts.
    pub pte_address: PteAddress,
    /// Notifications that Dxgkrnl keeps per node between interrupt and DPC; more are folded into a full scan. The
    /// number is the model's; that there is one is inferred from ETW event 556.
    pub notification_list: usize,
    /// Entries of each fence log buffer; 0: as many as fit 4 KiB.
    pub log_entries: u32,
    /// Pages of a log buffer that is made while fences are traced; 0: as when they are not.
    pub traced_log_pages: u32,
    /// Pages that a log buffer grows to at most, when it is overrun while fences are traced.
    pub most_log_pages: u32,
    /// A DDI may take this long, 0: no limit (HLK PoliceDdi uses 250 ms).
    pub police_ddi: Ticks,
    /// What is made to fail.
    pub faults: FaultPlan,
    /// Where the model waits for a test.
    pub gates: Gates,
    /// Whose time.
    pub clock: Clock,
    /// What a broken rule does: stop the machine, or be collected.
    pub policy: Policy,
    /// Print what drivers print.
    pub echo_debug_print: bool,
    /// Where interrupts are delivered.
    pub interrupt_delivery: InterruptDelivery,
    /// Where DPCs run: on the processor that queued them, or on another one, while the first goes on.
    pub dpc_delivery: DpcDelivery,
    /// Active processors that the machine reports.
    pub processors: u32,
    /// When the time-outs of drivers end.
    pub time_outs: ClockOptions,
    /// What unmapping takes of the calling thread's time: an interrupt to every processor.
    pub unmap_time: Ticks,
    /// Whether user mode may be other Linux processes. Not a property of Windows: it costs descriptors.
    pub separate_processes: bool,
    /// The order of queries at start; `None`: [`crate::port::transcript::START_26100`].
    pub start_transcript: Option<String>,
    /// Test signing is on: kernel-mode testing may be enabled.
    pub test_signing: bool,
    /// The fences of device paging queues are signaled by the paging engine (`DXGK_OPERATION_SIGNAL_MONITORED_FENCE`
    /// behind the operations), as opposed to by the CPU. The documents leave it open.
    pub paging_engine_signals: bool,
    /// The platform keeps what devices write coherent with the processors' caches: monitored fences are mapped
    /// write-back for user mode, and page table entries of system memory ask for coherency. Otherwise uncached, and
    /// they do not.
    /// Source: article context-monitoring, monitored fence creation.
    pub io_coherent: bool,
    /// What the end of a flushed range is.
    pub flush_end: FlushEnd,
    /// How long a rotation takes, in `DxgkCbDisconnectDoorbell` and behind `DxgkDdiDisconnectDoorbell`, in units of
    /// 100 ns; 0: no time. It changes the pages of another process, and waits for its turn; no page names a limit.
    pub disconnect_time: Ticks,
    /// `DxgkDdiDestroyDoorbell` is called with a lock held that `DxgkCbDisconnectDoorbell` takes before it looks for
    /// the doorbell: a driver that destroys one for as long as its own thread is in the callback never returns.
    ///
    /// Source: none; no page says what the OS holds meanwhile.
    pub destroys_locked: bool,
    /// How long `DxgkCbNotifyDpc` takes at least, in units of 100 ns; 0: no time of its own. A processor that is
    /// stopped by its hypervisor there, or by a higher interrupt, takes as long.
    pub notify_dpc_time: Ticks,
    /// How the native fence logs of a queue are replaced.
    pub log_replacement: LogReplacement,
    /// Whether nodes that schedule in hardware get scheduling logs.
    pub scheduling_logs: SchedulingLogs,
    /// Which waits an optimized interrupt of native fences ends.
    pub log_wakes: LogWakes,
    /// Kernel-mode queues get logs of native fences too. The article says two "for each HWQueue", and speaks of
    /// user-mode submission before and after.
    pub kernel_queue_logs: bool,
    /// `NumberOfEntries` of a scheduling log; 0 counts as 1. The interrupt is asked for at the entry in the middle.
    pub scheduling_log_entries: u32,
    /// The rings of a process that ends normally are unmapped and destroyed between the wait for the last queued value
    /// and `DxgkDdiDestroyDoorbell`, in the order in which article user-mode-work-submission lists what is destroyed
    /// (ring buffer and control allocations, and doorbell, and hardware queue). Otherwise doorbells go first.
    pub rings_first: bool,
    /// A process that is terminated, and whose device has packet contexts alone: `DxgkDdiDestroyDevice` comes first,
    /// `DxgkDdiDestroyContext` not at all, and `DxgkDdiCloseAllocation` behind it. A driver's author saw it; the pages
    /// have an order for hardware queues only.
    pub ends_rudely: bool,
    /// Before Dxgkrnl preempts an overdue packet, it asks the driver by `DxgkDdiQueryCurrentFence`, as the function's
    /// page says that it might. The MCDM article forbids the function, WDDM's pages of later versions do not speak of
    /// it.
    pub asks_for_fences: bool,
    /// `D3DKMTEnumAdapters2` lists compute-only adapters, as the page of `D3DKMT_ENUMADAPTERS3` has it, which says that
    /// the newer function lists fewer. Otherwise only `D3DKMTEnumAdapters3` does, where its filter asks for them.
    pub lists_compute_only: bool,
    /// A device in D3 decodes no memory cycles: its registers read as ones, and what is written is dropped, as PCI's
    /// power management has it (PCI Bus Power Management Interface Specification, D3hot). Otherwise it goes on as in
    /// D0.
    pub dead_in_d3: bool,
    /// The device interrupts in `DxgkDdiStopDevice`, each time a system thread ends there: an engine's last interrupt,
    /// which arrives late. Real devices do so without being asked; this one only then.
    pub late_interrupts: bool,
    /// Before an adapter is stopped, functions of its table that an adapter without displays does not need in its
    /// ordinary life are called once each, and what they return and fill is judged. Windows does no such thing, and a
    /// driver may rightly expect more of a present than the model can show it.
    pub every_slot: bool,
}

impl Default for Personality {
    fn default() -> Self {
        Self {
            build: Build::W26100Update,
            features: FeatureSettings::new(),
            native_fence_os_caps: NativeFenceOsCaps::default(),
            interface_size: 576,
            flip_caps_demanded: true,
            refusals_end_start: false,
            power_components_demanded: false,
            asks_the_childless: false,
            past_refusals: false,
            polls: None,
            lost_by: LostBy::default(),
            physical_adapter_caps: PhysicalAdapterCaps::default(),
            copy_node_demanded: false,
            system_processes: SystemProcesses::default(),
            paging_process: PagingProcess::default(),
            paging_without_context: false,
            memory_added: false,
            companion_is_system: false,
            privileged_at_reservation: false,
            copy_without_flush: false,
            required_dma_queue_entries: 64,
            tdr: TdrSettings::default(),
            preemption: Preemption::default(),
            contiguous_pages: false,
            combined_pages: false,
            progress_fence_handle: ProgressFenceHandle::default(),
            handles: HandleReadings::default(),
            hw_contexts: HwContexts::default(),
            packet_contexts_anywhere: true,
            user_mode: UserMode::default(),
            handshake: handshake::Handshake::default(),
            ring_handle: RingHandle::default(),
            affinity: Affinity::default(),
            packet_cap: PacketCap::default(),
            pte_address: PteAddress::default(),
            notification_list: 16,
            log_entries: 0,
            traced_log_pages: 4,
            most_log_pages: 64,
            police_ddi: 0,
            faults: FaultPlan::default(),
            gates: Gates::default(),
            clock: Clock::default(),
            policy: Policy::Stop,
            echo_debug_print: false,
            interrupt_delivery: InterruptDelivery::Inline,
            dpc_delivery: DpcDelivery::Inline,
            processors: 8,
            time_outs: ClockOptions::default(),
            unmap_time: 0,
            separate_processes: false,
            start_transcript: None,
            test_signing: true,
            paging_engine_signals: false,
            io_coherent: true,
            flush_end: FlushEnd::default(),
            disconnect_time: 0,
            destroys_locked: false,
            notify_dpc_time: 0,
            log_replacement: LogReplacement::default(),
            scheduling_logs: SchedulingLogs::default(),
            log_wakes: LogWakes::default(),
            kernel_queue_logs: false,
            scheduling_log_entries: 511,
            rings_first: true,
            ends_rudely: false,
            asks_for_fences: true,
            lists_compute_only: true,
            dead_in_d3: true,
            late_interrupts: false,
            every_slot: false,
        }
    }
}

impl Personality {
    /// The default with broken rules collected instead of stopping the machine: for tests.
    pub fn collecting() -> Self {
        Self { policy: Policy::Collect, ..Self::default() }
    }

    /// This with `feature` supported by the OS, or not.
    #[must_use]
    pub fn with_feature(mut self, feature: DXGK_FEATURE_ID, on: bool) -> Self {
        // CAST: the identifier as the 32 bits that it is.
        let id = feature.0 as u32;
        self.features.insert(id, if on { FeatureSetting::ON } else { FeatureSetting::OFF });
        self
    }

    /// This with virtual time and the interleaving of `seed`.
    #[must_use]
    pub fn seeded(mut self, seed: u64) -> Self {
        self.clock = Clock::Seeded(SeededOptions::new(seed));
        self
    }
}
