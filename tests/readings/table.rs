//! Which fact shows which reading.

/// A fact that tells machines apart; one that ends in `…` begins so.
#[derive(Clone, Copy, Debug)]
pub enum Fact {
    /// A machine under the reading has it, and none of the default.
    With(&'static str),
    /// A machine of the default has it, and none under the reading.
    Without(&'static str),
}

use Fact::{With, Without};

/// A reading, the case that shows it, and the fact by which it does.
#[rustfmt::skip]
pub const SHOWN: &[(&str, &str, Fact)] = &[
    ("obsolete-contexts", "DD-01", With("DxgkDdiCreateHwContext is called")),
    ("progress-at-48", "WS-24", With("DxgkDdiCreateHwQueue has a hHwQueueProgressFence")),
    ("progress-nowhere", "WS-24", With("DxgkDdiCreateHwQueue has hHwQueueProgressFence 0")),
    ("progress-opened-late", "CL-10", With("DxgkDdiCreateHwQueue comes right behind DxgkDdiCreateNativeFence")),
    ("progress-never-opened", "CL-20", With("DXGK_INTERRUPT_MONITORED_FENCE_SIGNALED is reported")),
    ("kernel-progress-monitored", "CL-10", With("DxgkDdiCreateHwQueue has Flags 0")),
    ("creator-locks", "CL-08", With("D3DKMTLock2 answers STATUS_INVALID_PARAMETER")),
    ("over-budget", "CL-07", With("D3DKMTMakeResident answers STATUS_NO_MEMORY")),
    ("paging-at-once", "CL-07", Without("D3DKMTMapGpuVirtualAddress answers STATUS_PENDING")),
    ("rings-by-open-handle", "CL-21", With("no allocation is named as a ring")),
    ("created-behind-d3", "RP-06", With("the last DxgkDdiResumeContext comes before the last DxgkDdiCreateDoorbell")),
    ("paging-engine-signals", "MF-11", With("DxgkDdiBuildPagingBuffer of operation 16 has Operation 16")),
    ("w26100-ga", "NF-15", With("D3DKMTOpenNativeFenceFromNtHandle answers STATUS_INVALID_PARAMETER")),
    ("another-system-process-first", "ST-57", With("DxgkDdiCreateProcess comes right behind DxgkDdiCreateProcess")),
    ("another-system-process-last", "ST-57", With("DxgkDdiCreateProcess comes right behind DxgkDdiCreateProcess")),
    ("another-system-process-briefly", "ST-57", With("the first DxgkDdiDestroyProcess comes before the first DxgkDdiCreateAllocation")),
    ("paging-without-context", "ST-57", With("DxgkDdiSubmitCommandVirtual has hContext 0")),
    ("doorbells-first", "DD-05", With("the first DxgkDdiDestroyDoorbell comes before the first DxgkDdiCloseAllocation")),
    ("logs-gone-by-null", "DD-06", With("DxgkDdiSetNativeFenceLogBuffer has LogBufferGpuVa 0")),
    ("logs-gone-by-count", "DD-06", With("DxgkDdiSetNativeFenceLogBuffer has NumberOfEntries 0")),
    ("no-scheduling-logs", "DD-11", Without("DxgkDdiSetSchedulingLogBuffer is called")),
    ("flush-to-last-page", "DD-08", Without("DxgkDdiBuildPagingBuffer of operation 12 has 65536 bytes")),
    ("no-fence-questions", "DD-04", Without("DxgkDdiQueryCurrentFence is called")),
    ("compute-by-filter", "ST-69", With("D3DKMTCloseAdapter answers STATUS_SUCCESS, 2 times")),
    ("flagless-opening", "NF-06", With("D3DKMTOpenNativeFenceFromNtHandle answers STATUS_INVALID_PARAMETER")),
    ("local-in-64k", "CL-17", With("D3DKMTMapGpuVirtualAddress answers STATUS_INVALID_PARAMETER")),
    ("gpu-exception", "CL-18", With("D3DKMTCreateAllocation2 answers STATUS_GRAPHICS_GPU_EXCEPTION_ON_DEVICE")),
    ("no-physical-adapter-caps", "ST-71", Without("at the start: query PHYSICALADAPTERCAPS -> STATUS_SUCCESS")),
    ("every-slot", "DD-01", With("DxgkDdiControlEtwLogging is called")),
    ("w28000", "ST-90", With("D3DKMTConnectDoorbell answers STATUS_ACCESS_VIOLATION")),
    ("physical-adapter-caps-needed", "ST-72", With("an adapter does not start…")),
    ("copy-node-pages", "ST-71", With("an adapter does not start…")),
    ("kernel-queue-logs", "LB-15", With("DxgkDdiSetNativeFenceLogBuffer is called")),
    ("copy-without-flush", "ST-85", Without("paging operation 12 comes right behind 14")),
    ("memory-added", "ST-88", With("DxgkCbGetDeviceInformation is called by the driver 2 times")),
    ("affinity-passed", "CL-04", With("DxgkDdiCreateContext has EngineAffinity 0")),
    ("preempts-late", "TE-101", With("DxgkDdiQueryCurrentFence is called")),
    ("doorbells-destroyed-locked", "DD-16", Without("DxgkCbDisconnectDoorbell is called by the driver")),
    ("lost-by-address", "TA-04", With("DxgkDdiBuildPagingBuffer of operation 8 has TransferSizeInBytes 0")),
    ("no-test-signing", "TA-04", Without("DxgkDdiQueryFeatureInterface is called")),
    ("childless-asked", "CL-22", With("DxgkDdiQueryChildRelations is called")),
    ("fences-mapped-late", "CL-11", Without("DxgkDdiBuildPagingBuffer comes right behind DxgkDdiCreateNativeFence")),
    ("refusals-end-start", "ST-54", With("an adapter does not start: the adapter does not start: DISPLAY_DRIVERCAPS_EXTENSION returned…")),
    ("power-components-needed", "ST-54", With("an adapter does not start: the adapter does not start: NUMPOWERCOMPONENTS returned…")),
    ("no-flip-caps-needed", "ST-50", Without("an adapter does not start: the adapter does not start: the adapter is refused: DXG-CAPS-FLIP…")),
    ("tables-before-context", "ST-91", With("the first DxgkDdiBuildPagingBuffer comes before the first DxgkDdiCreateContext")),
    ("root-first", "ST-91", Without("DxgkDdiBuildPagingBuffer of operation 11 has Flags 2")),
    ("updates-with-buffer", "ST-91", Without("DxgkDdiBuildPagingBuffer of operation 11 has DmaSize 0")),
    ("paging-addresses-high", "ST-91", With("DxgkDdiBuildPagingBuffer of operation 12 has a wide StartVirtualAddress")),
    ("no-pasids", "ST-91", Without("DxgkDdiCreateProcess has NumPasid 1")),
    ("companion-is-system", "ST-84", With("DxgkDdiCreateContext has Flags 5 2 times")),
];

/// Readings of which no record tells, and why.
pub const BY_THEIR_CASES: &[(&str, &str)] = &[
    ("no-packet-contexts", "CL-04 asks for such contexts where they are refused alone, so its machines differ anyway"),
    ("queues-end-at-once", "when a call returns is no call; BI-51 has work under way then, and waits without end else"),
    ("event-first", "which of a value and an event comes first is no call; CL-09 waits at both"),
    ("either-handle", "more is taken than by default, and this driver gives what the default takes"),
    ("not-coherent", "a bit of page table entries, which the journal does not hold; the model's own test reads it"),
    ("contiguous", "which frames an allocation gets is no call; the model's own test compares them"),
    ("dpcs-elsewhere", "on which thread a DPC runs is no call; ST-66 looks at it"),
    ("combined", "a cache type of a mapping is no call; ST-80 looks at it"),
    ("short-list", "how many notifications wait in the list is a race; MR-17 counts what was said of them"),
    ("slow-disconnect", "a time alone; DB-43 rings within it"),
    ("alive-in-d3", "what a register reads in D3 is no call; DD-03 reads it"),
    ("pte-bytes", "a number in page table entries; ST-50 plays with the setting that follows it"),
    ("wakes-by-log", "which waits a log ends is no call of the driver's; LB-24 counts them"),
    ("privileged-at-reservation", "when an address space is made is seen where the driver keeps none before; ST-84"),
    ("waits-end-at-once", "a time alone; DD-18 measures it"),
    ("packet-cap-of-queues", "how many buffers are with the driver at once is a race; DB-56 counts them"),
    ("one-packet", "how many packets are with the driver at once is a race; TE-84 counts them"),
    ("hasty-preemption", "a rate alone; TE-42 rests on what it leaves"),
    ("performance-polled", "how often the same question comes is a time alone; DD-24 counts the questions"),
    ("preemptions-not-submitted", "a member that DxgkDdiResetFromTimeout is not given; TA-22 looks at what is told"),
];
