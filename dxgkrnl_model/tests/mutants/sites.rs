//! Mutants that break a rule at another place than the one that is named after it.

use super::Mutant;
use crate::tour::Stage;

const fn at(name: &'static str, stage: Stage, rule: &'static str) -> Mutant {
    Mutant { rule: Some(rule), ..Mutant::new(name, stage) }
}

/// The mutants of each part of the driver, in turn.
pub fn list() -> impl Iterator<Item = Mutant> {
    let adapters = adapters().into_iter().chain(starts());
    resets().into_iter().chain(notices()).chain(fences()).chain(scheduling()).chain(adapters)
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
