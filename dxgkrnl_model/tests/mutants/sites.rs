//! Mutants that break a rule at another place than the one that is named after it.

use dxgkrnl_model::personality::{HwContexts, LogReplacement};

use super::Mutant;
use crate::tour::Stage;

const fn at(name: &'static str, stage: Stage, rule: &'static str) -> Mutant {
    Mutant { rule: Some(rule), ..Mutant::new(name, stage) }
}

/// The mutants of each part of the driver, in turn.
pub fn list() -> impl Iterator<Item = Mutant> {
    let parts = resets().into_iter().chain(notices()).chain(fences()).chain(scheduling()).chain(adapters());
    parts
        .chain(handles())
        .chain(queries())
        .chain(interfaces())
        .chain(types())
        .chain(callbacks())
        .chain(extents())
        .chain(starts())
}

/// An engine that is not silent between its reset and the end of that; one whose driver does not say what ran.
fn resets() -> [Mutant; 9] {
    const SILENT: &str = "DXG-INT-AFTER-RESET";
    [
        Mutant {
            options: |options| options.asks_for_reset = true,
            ..at("tdr-invalidate-asked", Stage::QueueHang, "DXG-TDR-INVALIDATE")
        },
        at("int-after-reset-late", Stage::QueueHang, SILENT),
        at("int-after-reset-native", Stage::QueueHang, SILENT),
        Mutant { may: &["DXG-INT-SUSPEND-FENCE"], ..at("int-after-reset-suspended", Stage::QueueHang, SILENT) },
        at("int-after-reset-fault", Stage::QueueHang, SILENT),
        at("int-after-reset-timeout", Stage::QueueHang, SILENT),
        at("int-after-reset-state", Stage::QueueHang, SILENT),
        at("int-after-reset-log", Stage::QueueHang, SILENT),
        at("tdr-late-preemption", Stage::PacketHang, "DXG-TDR-LATE"),
    ]
}

/// A packet that is not with the driver, in an answer to a preemption and in a fault.
fn notices() -> [Mutant; 2] {
    [
        at("int-fence-preempted", Stage::Preemption, "DXG-INT-FENCE"),
        // What has faulted stays with the driver.
        Mutant { also: &["DXG-TDR-FENCE"], ..at("int-fence-faulted", Stage::Faults, "DXG-INT-FENCE") },
    ]
}

/// Storage that a fence had alone, and a signal of which a process that ends hears nothing.
fn fences() -> [Mutant; 2] {
    [at("nf-write-after-kept", Stage::TwoAdapters, "DXG-NF-WRITE-AFTER"), at("nf-lost", Stage::Unheard, "DXG-NF-LOST")]
}

/// Functions of scheduling that fail, and the index of a log that runs over.
fn scheduling() -> [Mutant; 4] {
    const RESUME: &str = "DXG-RESUME-STATUS";
    [
        at("resume-status-log", Stage::Start, RESUME),
        at("resume-status-bands", Stage::Start, RESUME),
        at("resume-status-again", Stage::QueueHang, RESUME),
        at("log-header-index", Stage::UserQueue, "DXG-LOG-HEADER"),
    ]
}

/// What concerns an adapter as a whole: its reset, and those that are linked; page tables in system memory by another
/// number, and of several pages there, with which the adapter works all the same.
fn adapters() -> [Mutant; 4] {
    [
        at("mmu-table-behind", Stage::Packets, "DXG-MMU-TABLE-SEGMENT"),
        // The model reckons an entry's size from the table's, which copies of entries would show.
        at("mmu-table-pages", Stage::Preemption, "DXG-MMU-TABLE-SIZE"),
        Mutant {
            options: |options| options.engine_reset = false,
            ..at("tdr-writes", Stage::AdapterHang, "DXG-TDR-WRITES")
        },
        Mutant {
            options: |options| options.engines = 2,
            also: &["DXG-INT-VSYNC"],
            ..at("int-adapter-mask", Stage::Linked, "DXG-INT-ADAPTER-MASK")
        },
    ]
}

/// The start of the paging process: a paging buffer that is there and must stay as it is, a table whose first entries
/// are valid, and a mapping of an aperture that is for no allocation.
fn starts() -> [Mutant; 6] {
    let buffer = |name| Mutant {
        windows: |personality| personality.paging_process.updates_with_buffer = true,
        ..at(name, Stage::Start, "DXG-PAGING-IMMEDIATE")
    };
    [
        buffer("paging-immediate-written"),
        buffer("paging-immediate-private"),
        buffer("paging-immediate-advanced"),
        buffer("paging-immediate-size"),
        at("int-system-fault-initial", Stage::Packets, "DXG-INT-SYSTEM-FAULT"),
        Mutant {
            options: |options| options.paging_aperture = true,
            ..at("paging-status-aperture", Stage::Start, "DXG-PAGING-STATUS")
        },
    ]
}

/// Objects whose handle the driver does not store: it goes by Dxgkrnl's, or has none.
fn handles() -> [Mutant; 6] {
    const HANDLE: &str = "DXG-OBJECT-HANDLE";
    [
        at("object-handle-process", Stage::Packets, HANDLE),
        at("object-handle-context", Stage::Packets, HANDLE),
        at("object-handle-allocation", Stage::Packets, HANDLE),
        Mutant {
            windows: |personality| personality.hw_contexts = HwContexts::CreateHwContext,
            ..at("object-handle-hw-context", Stage::UserQueue, HANDLE)
        },
        at("object-handle-hw-queue", Stage::UserQueue, HANDLE),
        at("object-handle-doorbell", Stage::UserQueue, HANDLE),
    ]
}

/// Queries that a start rests on, refused one at a time.
fn queries() -> [Mutant; 8] {
    const REQUIRED: &str = "DXG-QAI-REQUIRED";
    [
        at("qai-required-driver-caps", Stage::Start, REQUIRED),
        at("qai-required-segments", Stage::Start, REQUIRED),
        Mutant {
            options: |options| options.power_component = true,
            ..at("qai-required-component", Stage::Start, REQUIRED)
        },
        at("qai-required-mmu", Stage::Start, REQUIRED),
        at("qai-required-levels", Stage::Start, REQUIRED),
        at("qai-required-native-fence", Stage::Start, REQUIRED),
        at("qai-required-user-mode", Stage::Start, REQUIRED),
        Mutant {
            windows: |personality| personality.refusals_end_start = true,
            ..at("qai-required-nothing", Stage::Start, REQUIRED)
        },
    ]
}

/// An interface that is not refused untouched, and one that is not what was asked for.
fn interfaces() -> [Mutant; 5] {
    const INTERFACE: &str = "DXG-QUERY-INTERFACE";
    [
        at("query-interface-written", Stage::Start, INTERFACE),
        at("query-interface-version", Stage::Start, INTERFACE),
        at("query-interface-overrun", Stage::Start, INTERFACE),
        at("query-interface-display", Stage::Start, INTERFACE),
        at("query-interface-display-overrun", Stage::Start, INTERFACE),
    ]
}

/// A type of no notification, one of the other scheduling model, and native fences that are not advertised.
fn types() -> [Mutant; 3] {
    const TYPE: &str = "DXG-INT-TYPE";
    [
        at("int-type-unknown", Stage::Packets, TYPE),
        at("int-type-scheduled", Stage::Packets, TYPE),
        Mutant {
            options: |options| (options.user_mode, options.native_fences) = (false, false),
            ..at("int-type-native", Stage::Packets, TYPE)
        },
    ]
}

/// Handles of nothing, in each callback that takes one.
fn callbacks() -> [Mutant; 3] {
    [
        at("cb-object-released", Stage::Start, "DXG-CB-OBJECT"),
        at("cb-object-process", Stage::Start, "DXG-CB-OBJECT"),
        at("cb-free-object", Stage::Start, "DXG-CB-FREE"),
    ]
}

/// The driver writes descriptors beyond their array, cannot tell an engine's state, tells too much of a timeout,
/// refuses to let a log go, and completes a transition twice.
fn extents() -> [Mutant; 6] {
    [
        at("segment-overrun", Stage::Start, "DXG-QAI-OVERRUN"),
        at("tdr-query-status", Stage::PacketHang, "DXG-TDR-QUERY"),
        at("tdr-collect-payload", Stage::QueueHang, "DXG-TDR-COLLECT"),
        at("tdr-guilty-packet", Stage::PacketHang, "DXG-TDR-GUILTY"),
        Mutant {
            windows: |personality| personality.log_replacement = LogReplacement::Null,
            ..at("log-set-away", Stage::UserQueue, "DXG-LOG-SET")
        },
        Mutant {
            options: |options| options.power_component = true,
            ..at("power-fstate-again", Stage::Sleep, "DXG-POWER-FSTATE")
        },
    ]
}
