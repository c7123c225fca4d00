//! Which fact shows which reading.

/// A fact that tells machines apart.
#[derive(Clone, Copy, Debug)]
pub enum Fact {
    /// A machine under the reading has it, and none of the default.
    With(&'static str),
    /// A machine of the default has it, and none under the reading.
    Without(&'static str),
}

use Fact::{With, Without};

/// A reading, the case that shows it, and the fact by which it does.
pub const SHOWN: &[(&str, &str, Fact)] = &[
    ("obsolete-contexts", "CL-04", With("D3DKMTCreateHwContext answers STATUS_SUCCESS")),
    ("creator-locks", "CL-08", With("D3DKMTLock2 answers STATUS_INVALID_PARAMETER")),
    ("progress-nowhere", "WS-24", With("DxgkDdiCreateHwQueue has hHwQueueProgressFence 0")),
    ("paging-at-once", "CL-07", With("D3DKMTMakeResident answers STATUS_SUCCESS")),
    ("over-budget", "CL-07", With("D3DKMTMakeResident answers STATUS_NO_MEMORY")),
    ("progress-opened-late", "CL-10", With("DxgkDdiOpenNativeFence comes right behind DxgkDdiCreateHwQueue")),
    ("progress-never-opened", "CL-10", With("there are scans of all fences")),
    ("rings-by-open-handle", "CL-21", With("no allocation is named as a ring")),
    ("w26100-ga", "NF-15", With("D3DKMTOpenNativeFenceFromNtHandle answers STATUS_INVALID_PARAMETER")),
    ("created-behind-d3", "RP-06", With("DxgkDdiCreateDoorbell comes right behind DxgkDdiResumeContext")),
    ("refusals-end-start", "ST-54", Without("D3DKMTEscape answers STATUS_SUCCESS")),
    ("logs-gone-by-null", "DD-06", With("DxgkDdiSetNativeFenceLogBuffer has LogBufferGpuVa 0")),
    ("logs-gone-by-count", "DD-06", With("DxgkDdiSetNativeFenceLogBuffer has NumberOfEntries 0")),
    ("paging-without-context", "ST-57", With("DxgkDdiSubmitCommandVirtual has hContext 0")),
    ("another-system-process-first", "ST-57", With("DxgkDdiCreateProcess comes right behind DxgkDdiCreateProcess")),
    ("another-system-process-last", "ST-57", With("DxgkDdiCreateProcess comes right behind DxgkDdiCreateProcess")),
    ("gpu-exception", "CL-18", With("D3DKMTSubmitCommandToHwQueue answers STATUS_GRAPHICS_GPU_EXCEPTION_ON_DEVICE")),
    ("no-scheduling-logs", "DD-11", Without("DxgkDdiSetSchedulingLogBuffer is called")),
    ("flush-to-last-page", "DD-08", Without("DxgkDdiBuildPagingBuffer of operation 12 has 16384 bytes")),
    ("no-physical-adapter-caps", "ST-71", Without("at the start: query PHYSICALADAPTERCAPS -> STATUS_SUCCESS")),
    ("w28000", "ST-42", With("DxgkDdiCreateHwQueue has Flags 32")),
    ("physical-adapter-caps-needed", "ST-72", With("an adapter does not start: the adapter does not start")),
    ("copy-node-pages", "ST-71", With("an adapter does not start: the adapter does not start")),
    ("power-components-needed", "ST-54", Without("D3DKMTConnectDoorbell answers STATUS_SUCCESS")),
    ("affinity-passed", "TE-32", With("DxgkDdiCreateContext has EngineAffinity 0")),
    ("copy-without-flush", "ST-85", Without("paging operation 12 comes right behind 14")),
    ("childless-asked", "CL-22", With("DxgkDdiQueryChildRelations is called")),
    ("doorbells-destroyed-locked", "DD-16", Without("DxgkCbDisconnectDoorbell is called by the driver")),
    ("lost-by-address", "TA-04", With("DxgkDdiBuildPagingBuffer of operation 8 has TransferSizeInBytes 0")),
];

/// The case makes no machine that has the other choice: what it demands is what sees the reading.
const ALONE: &str = "its case does not hold without it";
/// What the reading changes is a place, a moment, or an order that the record of calls does not have.
const PLACES: &str = "a place or a moment changes, and no call, answer or order that is recorded; its case looks at it";
/// What is recorded of the two differs, but in numbers and neighbours that other choices of the case may change, too.
const COUNTS: &str = "no fact of its case is known to be of the reading alone; its case looks at it";

/// The model's own tests have the reading, and no case here.
const MODEL: &str = "no case of this driver's is about it: tests of the model see it (docs/choices.md)";

/// Readings of which no fact is named, and why.
pub const BY_THEIR_CASES: &[(&str, &str)] = &[
    ("alive-in-d3", COUNTS),
    ("another-system-process-briefly", PLACES),
    ("combined", COUNTS),
    ("companion-is-system", COUNTS),
    ("compute-by-filter", COUNTS),
    ("doorbells-first", PLACES),
    ("dpcs-elsewhere", ALONE),
    ("event-first", ALONE),
    ("every-slot", COUNTS),
    ("fences-mapped-late", ALONE),
    ("flagless-opening", ALONE),
    ("hasty-preemption", ALONE),
    ("kernel-progress-monitored", PLACES),
    ("kernel-queue-logs", COUNTS),
    ("local-in-64k", ALONE),
    ("memory-added", ALONE),
    ("no-flip-caps-needed", COUNTS),
    ("no-packet-contexts", COUNTS),
    ("no-test-signing", COUNTS),
    ("one-packet", COUNTS),
    ("packet-cap-of-queues", COUNTS),
    ("paging-engine-signals", ALONE),
    ("preemptions-not-submitted", PLACES),
    ("preempts-late", ALONE),
    ("privileged-at-reservation", COUNTS),
    ("progress-at-48", PLACES),
    ("pte-bytes", COUNTS),
    ("queues-end-at-once", ALONE),
    ("short-list", COUNTS),
    ("slow-disconnect", COUNTS),
    ("waits-end-at-once", PLACES),
    ("wakes-by-log", ALONE),
    ("contiguous", MODEL),
    ("either-handle", "it takes more than the default does, and refuses nothing"),
    ("no-fence-questions", MODEL),
    ("not-coherent", MODEL),
];
