//! Rules of the scheduling logs of nodes.

use nt_model::rules;

rules! {
    /// Scheduling logs.
    pub list SCHEDULING_RULES;

    /// The header of a scheduling log.
    SLOG_HEADER = "DXG-SLOG-HEADER" {
        title: "of a scheduling log's header the GPU changes FirstFreeEntryIndex and WraparoundCount alone, the index \
            stays below NumberOfEntries, and neither goes back",
        source: "DDI pages DXGK_SCHEDULING_LOG_HEADER; DXGKDDI_SETSCHEDULINGLOGBUFFER, Remarks (both zero, \
            NumberOfEntries set by the OS)",
        bugcheck: none,
        fix: "advance the 64-bit word in one store, behind the entry",
    }
    /// The entries of a scheduling log.
    SLOG_ENTRY = "DXG-SLOG-ENTRY" {
        title: "each entry that a scheduling log counts is written: a context state change, with the driver's handle \
            of a hardware context of that node and a state that exists",
        source: "DDI pages DXGK_SCHEDULING_LOG_ENTRY, DXGK_SCHEDULING_LOG_OPERATION, \
            DXGK_SCHEDULING_LOG_CONTEXT_STATE_CHANGE, DXGK_SCHEDULING_LOG_CONTEXT_STATE",
        bugcheck: none,
        fix: "write the entry, then the index; hKmdContext is what the driver stored when the context was created, and \
            no entry names a context after its destruction",
    }
    /// An entry that says no other state than the one before.
    SLOG_CHANGE = "DXG-SLOG-CHANGE" {
        title: "an entry of a scheduling log says another state than the entry of that context before it",
        source: "DDI page DXGK_SCHEDULING_LOG_CONTEXT_STATE (an event is logged when a context transitions)",
        bugcheck: none,
        fix: "log transitions, not turns",
    }
    /// Timestamps of entries.
    SLOG_TIME = "DXG-SLOG-TIME" {
        title: "GpuTimeStamp of a scheduling log does not go back",
        source: "DDI page DXGK_SCHEDULING_LOG_ENTRY (inferred: one node, one clock)",
        bugcheck: none,
        fix: "take the timestamp from one monotonic clock when the entry is written",
    }
    /// A context that ran and is not in the log.
    SLOG_RAN = "DXG-SLOG-RAN" {
        title: "a context that ran, by a progress fence of its queues, has an entry that says running in its node's \
            scheduling log",
        source: "DDI pages DXGKDDI_SETSCHEDULINGLOGBUFFER, Remarks (all new entries are written to the log); \
            DXGK_SCHEDULING_LOG_CONTEXT_STATE, RUNNING",
        bugcheck: none,
        fix: "write an entry when a context begins to execute",
    }
    /// Logs that were replaced stay as they are.
    SLOG_STALE = "DXG-SLOG-STALE" {
        title: "after DxgkDdiSetSchedulingLogBuffer the GPU writes no more to the previous log",
        source: "DDI page DXGKDDI_SETSCHEDULINGLOGBUFFER, Remarks (a synchronous call)",
        bugcheck: none,
        fix: "finish the write in progress before returning",
    }
    /// An interrupt that was not due.
    SLOG_INT = "DXG-SLOG-INT" {
        title: "a scheduling log interrupt comes after entry InterruptEntry of its node's log was written, and once \
            each time at most",
        source: "DDI page DXGKARG_SETSCHEDULINGLOGBUFFER, InterruptEntry",
        bugcheck: none,
        fix: "raise it behind the store of the index that counts the entry",
    }
    /// An interrupt that does not come.
    SLOG_INT_LOST = "DXG-SLOG-INT-LOST" {
        title: "an interrupt comes each time that entry InterruptEntry of a scheduling log was written; one serves \
            those that were written before it",
        source: "DDI page DXGKARG_SETSCHEDULINGLOGBUFFER, InterruptEntry",
        bugcheck: none,
        fix: "raise DXGK_INTERRUPT_SCHEDULING_LOG_INTERRUPT",
    }
}
