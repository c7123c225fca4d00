//! The family of Windows: readings of the documents by name, and members drawn from a seed.
//!
//! A reading is one choice that differs from the default [`Personality`]. It changes a member only where
//! nothing else has: a case that is about that member keeps its own choice.

use std::fmt;
use std::str::FromStr;

use nt_model::DpcDelivery;

use super::{
    Affinity, Build, FlushEnd, HandleReadings, HwContexts, KernelProgress, LogReplacement, LogWakes, LostBy, MS,
    PacketCap, Personality, PhysicalAdapterCaps, ProgressFenceHandle, ProgressOpened, PteAddress, Residency,
    RingHandle, SchedulingLogs, Submitted, SystemProcesses, covering,
};

/// A choice that a real Windows may make otherwise than the default.
#[derive(Clone, Copy)]
pub struct Reading {
    /// Its name on the command line (`--windows NAME`).
    pub name: &'static str,
    /// What this Windows does, in words for a list of readings.
    pub title: &'static str,
    /// The document that leaves the choice open, or what was seen; "none" where the model's authors chose.
    pub source: &'static str,
    /// Whether seeds draw it. A reading that changes what a driver can do at all is only played by its name.
    pub drawn: bool,
    /// The member of [`Personality`] that it sets: readings of the same exclude each other.
    pub member: &'static str,
    apply: fn(&mut Personality, &Personality),
    choose: fn(&mut Personality, Option<&Personality>),
    holds: fn(&Personality) -> bool,
}

/// The members that `change` sets, among those that readings set: to the default's value, to a reading's, or to
/// another.
pub fn members_set(change: impl Fn(&mut Personality)) -> Vec<&'static str> {
    // Where a member has a reading's value, setting the default's shows, too.
    let mut personality = Personality::default();
    let default = personality.clone();
    let mut first: Vec<&Reading> = Vec::new();
    for reading in READINGS {
        if first.iter().all(|other| other.member != reading.member) {
            (reading.apply)(&mut personality, &default);
            first.push(reading);
        }
    }
    change(&mut personality);
    let mut members: Vec<_> = first.iter().filter(|it| !(it.holds)(&personality)).map(|it| it.member).collect();
    let mut alone = default;
    change(&mut alone);
    members.extend(first.iter().filter(|reading| (reading.holds)(&alone)).map(|reading| reading.member));
    members
}

impl Reading {
    /// Has a Windows make this choice, or the default's, whatever else it makes now.
    pub fn choose(&self, personality: &mut Personality, is_made: bool) {
        let default = Personality::default();
        (self.choose)(personality, (!is_made).then_some(&default));
    }

    /// Returns whether a Windows makes this choice.
    pub fn is_made_by(&self, personality: &Personality) -> bool {
        (self.holds)(personality)
    }
}

impl fmt::Debug for Reading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// The list of readings. Each sets a member (or a member's member) to a value; `@named` keeps it from being drawn.
macro_rules! readings {
    ($($(@$kind:ident)? $name:literal, $title:literal, $source:literal: $($member:ident).+ = $value:expr;)*) => {
        /// All readings, in the order in which they are applied: of two that set the same member the first wins.
        pub const READINGS: &[Reading] = &[$(
            Reading {
                name: $name,
                title: $title,
                source: $source,
                drawn: readings!(@drawn $($kind)?),
                member: stringify!($($member).+),
                apply: |personality, default| {
                    if personality.$($member).+ == default.$($member).+ {
                        personality.$($member).+ = $value;
                    }
                },
                choose: |personality, default| match default {
                    Some(default) => personality.$($member).+ = default.$($member).+,
                    None => personality.$($member).+ = $value,
                },
                holds: |personality| personality.$($member).+ == $value,
            },
        )*];
    };
    (@drawn) => { true };
    (@drawn named) => { false };
}

readings! {
    "obsolete-contexts", "contexts for hardware queues come by D3DKMTCreateHwContext and DxgkDdiCreateHwContext",
        "the names in dispmprt.h, d3dkmddi.h and d3dkmthk.h alone; the functions have no pages":
        hw_contexts = HwContexts::CreateHwContext;
    "no-packet-contexts", "a context without HwQueueSupported on a scheduled node is refused by the OS",
        "none: the documents are silent":
        packet_contexts_anywhere = false;
    "progress-at-48", "the native progress fence's handle stands behind the record, at offset 48",
        "DDI page DXGKARG_CREATEHWQUEUE names the member in its remarks, and no public header shows it":
        progress_fence_handle = ProgressFenceHandle::At48;
    "progress-nowhere", "only addresses say which fence counts a queue's progress",
        "DDI page DXGKARG_CREATEHWQUEUE names the member in its remarks, and no public header shows it":
        progress_fence_handle = ProgressFenceHandle::Nowhere;
    "progress-opened-late", "DxgkDdiOpenNativeFence for a progress fence comes after DxgkDdiCreateHwQueue",
        "DDI page DXGKARG_CREATEHWQUEUE promises that the fence was created, not that it was opened":
        user_mode.progress_opened = ProgressOpened::After;
    "progress-never-opened", "DxgkDdiOpenNativeFence is not called for progress fences",
        "DDI page DXGKARG_CREATEHWQUEUE promises that the fence was created, not that it was opened":
        user_mode.progress_opened = ProgressOpened::Never;
    "kernel-progress-monitored", "kernel-mode queues have monitored progress fences",
        "article user-mode-work-submission asks for native fences with user-mode queues alone":
        user_mode.kernel_progress = KernelProgress::Monitored;
    "creator-locks", "only the process that made a shared allocation may lock it",
        "DDI page DXGK_ALLOCATIONINFOFLAGS_WDDM2_0, CpuVisible":
        user_mode.creator_locks = true;
    "over-budget", "MakeResident refuses half and says what to trim",
        "DDI page D3DDDI_MAKERESIDENT, NumBytesToTrim and CantTrimFurther":
        user_mode.residency = Residency::OverBudget;
    "paging-at-once", "paging operations are done when the call returns",
        "DDI pages D3DDDI_MAKERESIDENT and D3DDDI_MAPGPUVIRTUALADDRESS: a zero fence value might be returned":
        user_mode.residency = Residency::Immediate;
    "event-first", "an event is set before the value that it waits for can be read",
        "none; a public user-mode driver reads the value again after the event, and waits again":
        user_mode.event_before_value = true;
    "fences-mapped-late", "GPU addresses of fences are mapped some time after the call that returned them",
        "DDI page D3DKMT_OPENSYNCOBJECTFROMNTHANDLE2: mapped asynchronously":
        user_mode.fences_mapped_late = true;
    "rings-by-open-handle", "DxgkDdiCreateDoorbell names rings by the handles of DxgkDdiOpenAllocation",
        "DDI page DXGKARG_CREATEDOORBELL does not say which of the driver's handles names a ring":
        ring_handle = RingHandle::DeviceSpecific;
    @named "created-behind-d3",
        "a doorbell's first connection behind D3 has DxgkDdiCreateDoorbell called in front of it",
        "article user-mode-work-submission, engine D-state transitions, has it called to establish the connection":
        user_mode.creates_behind_d3 = true;
    "either-handle", "callbacks take Dxgkrnl's handles and the driver's",
        "DDI pages DXGKARGCB_NOTIFY_INTERRUPT_DATA and DXGKARGCB_DISCONNECTDOORBELL say only: the handle":
        handles = HandleReadings::LENIENT;
    "paging-engine-signals", "the paging engine signals the fences of paging queues",
        "DDI page DXGK_BUILDPAGINGBUFFER_OPERATION has SIGNAL_MONITORED_FENCE, and no page says for what":
        paging_engine_signals = true;
    @named "not-coherent", "devices are not coherent with the processors' caches",
        "article context-monitoring, monitored fence creation":
        io_coherent = false;
    "contiguous", "physical pages that belong together are consecutive",
        "none: what a young machine happens to give":
        contiguous_pages = true;
    @named "dpcs-elsewhere", "DPCs run on another processor than the one that queued them",
        "article introduction-to-dpcs: a DPC may be targeted at another processor; no page says which DxgkCbQueueDpc takes":
        dpc_delivery = DpcDelivery::Remote;
    @named "combined", "what Dxgkrnl makes for the GPU is write-combined",
        "DDI page DXGK_ALLOCATIONINFOFLAGS_WDDM2_0, Cached; a machine whose VidMm maps nothing cached was not seen":
        combined_pages = true;
    "short-list", "Dxgkrnl keeps one notification per node",
        "inferred from ETW event 556: there is a list, of a length that no page gives":
        notification_list = 1;
    "w26100-ga", "24H2 as first shipped",
        "the SDK of 2024-10, where DXGKARG_OPENNATIVEFENCE has 80 bytes":
        build = Build::W26100Ga;
    "another-system-process-first", "a system process beside the paging process, made before it",
        "DDI page DXGKARG_CREATEPROCESS, SystemProcess: the paging process is not said to be the only one":
        system_processes = SystemProcesses::AnotherFirst;
    "another-system-process-last", "a system process beside the paging process, made behind it",
        "DDI page DXGKARG_CREATEPROCESS, SystemProcess: the paging process is not said to be the only one":
        system_processes = SystemProcesses::AnotherLast;
    "another-system-process-briefly", "a system process beside the paging process while the adapter starts",
        "DDI page DXGKARG_CREATEPROCESS, SystemProcess: the paging process is not said to be the only one":
        system_processes = SystemProcesses::AnotherBriefly;
    "paging-without-context", "packets of the paging process name no context",
        "DDI page DXGKARG_SUBMITCOMMANDVIRTUAL, NodeOrdinal, identifies the node when the context is NULL":
        paging_without_context = true;
    "no-flip-caps-needed", "an adapter without flip capabilities starts",
        "seen by the author of one render-only driver; three others saw Code 43":
        flip_caps_demanded = false;
    "refusals-end-start", "refusing queries that say nothing of a render-only adapter ends the start",
        "seen by the author of one driver from version 2.0 on; another's refuses several and starts":
        refusals_end_start = true;
    "doorbells-first", "a process that ends loses its doorbells before its rings",
        "article user-mode-work-submission lists what is destroyed, and gives no order":
        rings_first = false;
    @named "logs-gone-by-null", "a fence log is taken away by NULL before another is made",
        "DDI page DXGKDDI_SETNATIVEFENCELOGBUFFER is silent about what comes between two logs":
        log_replacement = LogReplacement::Null;
    @named "logs-gone-by-count", "a fence log is taken away by no entries before another is made",
        "DDI page DXGKDDI_SETNATIVEFENCELOGBUFFER is silent about what comes between two logs":
        log_replacement = LogReplacement::NoEntries;
    "no-scheduling-logs", "nodes that schedule in hardware get no scheduling log",
        "none: no document says when a log is given":
        scheduling_logs = SchedulingLogs::None;
    "flush-to-last-page", "a flush of translations ends with the last page's address",
        "DDI page DXGK_BUILDPAGINGBUFFER_FLUSHTLB does not say whether the end belongs to the range":
        flush_end = FlushEnd::LastPage;
    "slow-disconnect", "a doorbell's page is rotated a millisecond late, by either side's wish",
        "DDI page DXGKCB_DISCONNECTDOORBELL names no limit":
        disconnect_time = MS;
    "alive-in-d3", "a device in D3 has its registers",
        "none: PCI Bus Power Management Interface Specification, D3hot, has it otherwise; platforms differ":
        dead_in_d3 = false;
    "no-fence-questions", "DxgkDdiQueryCurrentFence is not called",
        "DDI page DxgkDdiQueryCurrentFence says might; the MCDM article forbids the function":
        asks_for_fences = false;
    "compute-by-filter", "D3DKMTEnumAdapters2 leaves out compute-only adapters",
        "DDI page D3DKMT_ENUMADAPTERS3 has it otherwise; libnvidia-container needs the newer function for them":
        lists_compute_only = false;
    "flagless-opening", "opening a shared fence takes no flags",
        "DDI page D3DKMT_OPENNATIVEFENCEFROMNTHANDLE: sharing is asked for at creation; Wine's tests open with 0":
        user_mode.bare_opening = true;
    "queues-end-at-once", "D3DKMTDestroyHwQueue waits for nothing",
        "article user-mode-work-submission promises the wait at the end of a process alone":
        user_mode.queues_end_at_once = true;
    "local-in-64k", "memory that the CPU does not see is mapped in units of 64 KB alone",
        "none of Microsoft's; a public user-mode driver says so of the Windows that it was tried on":
        user_mode.local_in_64k = true;
    "gpu-exception", "calls for a failed device fail with STATUS_GRAPHICS_GPU_EXCEPTION_ON_DEVICE",
        "logs of three clients, of submissions; no page says what such a call returns":
        user_mode.gpu_exception = true;
    "no-physical-adapter-caps", "PHYSICALADAPTERCAPS is not asked, and DRIVERCAPS name the node that pages",
        "inferred: one driver's author refuses it at 3.2 and 2.1, and WDDM 1 does not have it; DDI page DXGK_VIDMMCAPS, PagingNode":
        physical_adapter_caps = PhysicalAdapterCaps::NotAsked;
    @named "every-slot", "every function of the table is called before an adapter is stopped",
        "none: each slot's own page; Windows does no such thing":
        every_slot = true;
    @named "w28000", "the 28000 line",
        "SDK 10.0.28000.2957, d3dkmthk.h, d3dukmdt.h: interface selector 0x11008, doorbell thunks with other records":
        build = Build::W28000;
    @named "pte-bytes", "page table entries hold byte addresses",
        "DDI page DXGK_PTE, PageAddress, reads either way; drivers in the field shift by 12":
        pte_address = PteAddress::Bytes;
    @named "physical-adapter-caps-needed", "refusing PHYSICALADAPTERCAPS ends the start",
        "seen by the author of one driver from 2.0 on; another's refuses it and starts, and the MCDM article has it as optional":
        physical_adapter_caps = PhysicalAdapterCaps::Demanded;
    @named "copy-node-pages", "the paging node has to be a copy node",
        "seen by the author of one driver, who was refused until a copy node paged; four others page by a 3-D node":
        copy_node_demanded = true;
    @named "power-components-needed", "refusing NUMPOWERCOMPONENTS ends the start of every driver",
        "DDI page DXGK_QUERYADAPTERINFOTYPE, and an article of compute-only drivers; a render-only one refuses it and starts":
        power_components_demanded = true;
    @named "wakes-by-log", "with OptimizedInterrupt, waits end for the fences and values that are in the logs alone",
        "article Native GPU fence objects, Optimized native fence signaled interrupt":
        log_wakes = LogWakes::Entries;
    @named "kernel-queue-logs", "kernel-mode queues get logs of native fences too",
        "article Native GPU fence objects, Native fence log buffer (two for each HWQueue)":
        kernel_queue_logs = true;
    "companion-is-system", "companion contexts have the flag SystemContext",
        "DDI page DXGK_CREATECONTEXTFLAGS: a system context is for the paging engine; article tile-resources names no flag":
        companion_is_system = true;
    "copy-without-flush", "no flush of translations follows a copy of page table entries",
        "article tile-resources names the copy alone":
        copy_without_flush = true;
    "privileged-at-reservation", "a process gets its privileged address space with its first reservation",
        "article per-process-gpu-virtual-address-spaces; article tile-resources speaks of the first update":
        privileged_at_reservation = true;
    "memory-added", "the machine gets memory after the driver has started",
        "DDI page DXGK_DEVICE_INFO, HighestPhysicalAddress: nothing says that the value stays; Windows adds memory to virtual machines":
        memory_added = true;
    "waits-end-at-once", "a time-out that is shorter than the rest of a clock tick ends at once",
        "article timer-accuracy: a relative time near or below the period of the clock might expire immediately":
        time_outs.ends_at_once = true;
    "affinity-passed", "a context's EngineAffinity is what user mode says, and 0 for contexts of the system",
        "DDI page D3DKMT_CREATECONTEXTVIRTUAL calls it an index; article tdr-changes-in-windows-8 has it as a bit":
        affinity = Affinity::Passed;
    "packet-cap-of-queues", "HwQueuePacketCap bounds the buffers of all kernel-mode queues of a node together, too",
        "DDI page DXGK_VIDSCHCAPS: packets queued to a node, whatever they come from; MaxInFlightHwQueueBuffers is for queues":
        packet_cap = PacketCap::Nodes;
    "preempts-late", "a packet node is preempted when a packet takes TdrDelay, and not before",
        "article gpu-preemption promises a request before a time-out alone; 40 to 70 a second were seen":
        preemption.in_ordinary_use = false;
    "one-packet", "a packet node has one packet at a time",
        "none: no page says how many; DXGK_VIDSCHCAPS, HwQueuePacketCap, is the most":
        preemption.in_flight = 1;
    "hasty-preemption", "a packet node that two contexts want is preempted a thousand times a second",
        "none: what Windows does is seen as 40 to 70 times a second":
        preemption.slice = (MS / 2, 2 * MS);
    "preemptions-not-submitted", "the last submitted id of a packet node is a packet's, although a preemption came behind",
        "article tdr-changes-in-windows-8 speaks of packets; DDI page DxgkDdiPreemptCommand says that a preemption fence is submitted":
        preemption.submitted = Submitted::Packets;
    "doorbells-destroyed-locked", "DxgkCbDisconnectDoorbell waits for DxgkDdiDestroyDoorbell of the same doorbell",
        "none: no page says what the OS holds while it calls the function":
        destroys_locked = true;
    "lost-by-address", "content that a reset loses is a virtual transfer of no bytes",
        "article thread-synchronization-and-tdr has DXGK_OPERATION_TRANSFER; no page says which of the two it is with GPU virtual addresses":
        lost_by = LostBy::Address;
    "no-test-signing", "the machine runs no code that is signed for tests: there is no kernel-mode testing",
        "article kernel-mode-testing-of-wddm-features, testing availability":
        test_signing = false;
    "childless-asked", "a driver without children is asked for them all the same",
        "none: starts of render-only drivers were seen without the question":
        asks_the_childless = true;
    "tables-before-context", "the system context is made behind the page tables and buffers of the paging process",
        "none: article system-paging-process does not say when; starts of three drivers were seen with the context first":
        paging_process.tables_before_context = true;
    "root-first", "page tables of the paging process are initialized from the root down, each by a repeated entry",
        "none: the author of one driver saw level 0 first, and above it all entries of a table in one update without Repeat":
        paging_process.root_first = true;
    "updates-with-buffer", "page tables of the paging process are initialized with a paging buffer, which has to stay as it is",
        "seen by the author of one driver; DDI page DXGK_BUILDPAGINGBUFFER_UPDATEPAGETABLE, UpdateMode, has NULL":
        paging_process.updates_with_buffer = true;
    "paging-addresses-high", "what the system maps for itself lies in the upper half of the paging process's addresses",
        "seen by the author of one driver, above 2^39 of 40 bits; article system-paging-process has an example from 0 on":
        paging_process.high_addresses = true;
    "no-pasids", "system processes come without process address space identifiers",
        "none: DDI page DXGKARG_CREATEPROCESS does not say which processes have them; a system process was seen to":
        paging_process.no_pasids = true;
    "performance-polled", "each node's NODEPERFDATA and ADAPTERPERFDATA are asked for fifty times a second",
        "none: about once a second was seen, for as long as the adapter was up":
        polls = Some(20 * MS);
}

/// Which member of the family is played.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Windows {
    /// The default personality, without any reading.
    #[default]
    Default,
    /// The default with one reading: its place in [`READINGS`].
    Reading(usize),
    /// The default with several readings: a bit for the place of each in [`READINGS`], to see which of a row or a seed
    /// something needs.
    Several(u128),
    /// A random half of the readings that are [`drawn`](Reading::drawn): the same for equal seeds, on every machine.
    Seed(u64),
    /// A row of the pairwise [covering set](covering::rows): its place, from 0.
    Row(usize),
}

// As many as `Windows::Several` has bits for.
const _: () = assert!(READINGS.len() <= u128::BITS as usize, "more readings than bits");

/// The error of a `--windows` value that is neither a number nor a known name. Its text lists the names.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "no Windows is called '{0}': a number draws one, row-1 to row-{rows} are those in which each two readings meet, or \
     one of default, {names}, or several of these with a + between",
    rows = covering::rows().len(),
    names = names().join(", ")
)]
pub struct UnknownWindows(String);

/// The names of all readings, in the order of [`READINGS`].
pub fn names() -> Vec<&'static str> {
    READINGS.iter().map(|reading| reading.name).collect()
}

impl FromStr for Windows {
    type Err = UnknownWindows;

    fn from_str(text: &str) -> Result<Self, UnknownWindows> {
        // Digits alone: `parse` takes a sign as well.
        if let Some(seed) = text.parse().ok().filter(|_| !text.starts_with('+')) {
            return Ok(Self::Seed(seed));
        }
        if text == "default" {
            return Ok(Self::Default);
        }
        if let Some(number) = text.strip_prefix("row-").filter(|number| !number.starts_with(['+', '0'])) {
            let row = number.parse().ok().and_then(|row: usize| row.checked_sub(1));
            let row = row.filter(|row| *row < covering::rows().len());
            return row.map(Self::Row).ok_or_else(|| UnknownWindows(text.to_owned()));
        }
        let place = |name: &str| READINGS.iter().position(|reading| reading.name == name);
        let found = if text.contains('+') {
            let bits = text.split('+').map(|name| place(name.trim()).map(|at| 1 << at));
            bits.collect::<Option<Vec<u128>>>().map(|bits| Self::Several(bits.iter().fold(0, |all, bit| all | bit)))
        } else {
            place(text).map(Self::Reading)
        };
        found.ok_or_else(|| UnknownWindows(text.to_owned()))
    }
}

impl Windows {
    /// The readings that it has, in the order of [`READINGS`]; empty for a place beyond the list.
    pub fn readings(self) -> Vec<&'static Reading> {
        match self {
            Self::Default => Vec::new(),
            Self::Reading(at) => READINGS.get(at).into_iter().collect(),
            Self::Several(bits) => {
                let all = READINGS.iter().enumerate();
                all.filter(|(at, _)| bits & (1 << at) != 0).map(|(_, reading)| reading).collect()
            }
            Self::Row(at) => covering::rows().get(at).cloned().unwrap_or_default(),
            Self::Seed(seed) => {
                let drawn = READINGS.iter().filter(|reading| reading.drawn);
                drawn.enumerate().filter(|(at, _)| mix(seed, *at as u64) & 1 == 1).map(|(_, reading)| reading).collect()
            }
        }
    }

    /// Makes `personality` this member, where nothing else has changed it.
    pub fn apply(self, personality: &mut Personality) {
        self.apply_without(personality, &[]);
    }

    /// [`apply`](Self::apply), but for the readings that have one of these names, or set one of these members.
    pub fn apply_without(self, personality: &mut Personality, without: &[&str]) {
        let default = Personality::default();
        let is_left_out = |reading: &Reading| without.contains(&reading.name) || without.contains(&reading.member);
        for reading in self.readings().into_iter().filter(|reading| !is_left_out(reading)) {
            (reading.apply)(personality, &default);
        }
    }
}

impl fmt::Display for Windows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.readings().iter().map(|reading| reading.name).collect();
        f.write_str(if names.is_empty() { "default" } else { "" })?;
        f.write_str(&names.join(" + "))
    }
}

/// Mixes two numbers to a bit pattern (splitmix64), the same on every machine.
pub(super) fn mix(seed: u64, at: u64) -> u64 {
    let mut z = seed.wrapping_mul(0x1_0001).wrapping_add(at).wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The readings of seed 3, on every machine. A reading that is added or removed may change them.
    const SEED_3: [&str; 29] = [
        "obsolete-contexts",
        "progress-at-48",
        "progress-nowhere",
        "progress-never-opened",
        "kernel-progress-monitored",
        "over-budget",
        "event-first",
        "either-handle",
        "paging-engine-signals",
        "another-system-process-last",
        "paging-without-context",
        "no-flip-caps-needed",
        "slow-disconnect",
        "no-fence-questions",
        "flagless-opening",
        "queues-end-at-once",
        "local-in-64k",
        "no-physical-adapter-caps",
        "companion-is-system",
        "privileged-at-reservation",
        "memory-added",
        "packet-cap-of-queues",
        "one-packet",
        "hasty-preemption",
        "preemptions-not-submitted",
        "doorbells-destroyed-locked",
        "lost-by-address",
        "no-test-signing",
        "updates-with-buffer",
    ];

    #[test]
    fn each_reading_changes_something_and_has_a_name_of_its_own() {
        let default = format!("{:?}", Personality::default());
        for (at, reading) in READINGS.iter().enumerate() {
            let mut personality = Personality::default();
            Windows::Reading(at).apply(&mut personality);
            assert_ne!(format!("{personality:?}"), default, "{}", reading.name);
            assert_eq!(reading.name.parse(), Ok(Windows::Reading(at)), "{} is there twice", reading.name);
        }
    }

    #[test]
    fn what_a_case_has_chosen_stays() {
        let mut personality = Personality { contiguous_pages: true, ..Personality::default() };
        personality.notification_list = 4;
        assert_eq!("short-list".parse().map(|windows: Windows| windows.apply(&mut personality)), Ok(()));
        assert_eq!(personality.notification_list, 4);
    }

    #[test]
    fn members_that_are_set_are_known_whatever_they_are_set_to() {
        let members = |change: fn(&mut Personality)| members_set(change);
        assert_eq!(members(|_| ()), [] as [&str; 0]);
        let known = READINGS.iter().find(|reading| reading.name == "doorbells-first").map(|reading| reading.member);
        for change in [(|it| it.rings_first = true) as fn(&mut Personality), |it| it.rings_first = false] {
            assert_eq!(members(change), Vec::from_iter(known));
        }
        // The second reading of a member, too.
        let known = READINGS.iter().find(|reading| reading.name == "paging-at-once").map(|reading| reading.member);
        assert_eq!(members(|it| it.user_mode.residency = Residency::Immediate), Vec::from_iter(known));
    }

    #[test]
    fn seeds_draw_each_reading_and_are_the_same_again() {
        for reading in READINGS.iter().filter(|reading| reading.drawn) {
            let has = |seed| Windows::Seed(seed).readings().iter().any(|other| other.name == reading.name);
            assert!((1..20).any(has) && !(1..20).all(has), "{}", reading.name);
        }
        assert_eq!(Windows::Seed(3).to_string(), SEED_3.join(" + "));
        assert!("+5".parse::<Windows>().is_err());
        let two: Option<Windows> = "event-first+progress-at-48".parse().ok();
        assert_eq!(two.map(|two| two.to_string()), Some("progress-at-48 + event-first".to_owned()));
        // What a run says that it played can be played again, or a part of it.
        let said = SEED_3.join(" + ");
        assert_eq!(said.parse().map(|windows: Windows| windows.to_string()), Ok(said));
        for wrong in ["event-first+", "event-first+frobnicate", "row-0", "row-+1"] {
            assert!(wrong.parse::<Windows>().is_err(), "{wrong}");
        }
        assert!("frobnicate".parse::<Windows>().is_err_and(|error| error.to_string().contains("over-budget")));
    }
}
