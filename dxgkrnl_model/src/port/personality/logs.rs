//! How logs come and go: those of native fences, and those of scheduled nodes.

/// How Dxgkrnl replaces the native fence logs of a queue. The page of `DXGKDDI_SETNATIVEFENCELOGBUFFER` says that
/// Dxgkrnl can destroy a log and make it again, and is silent about what the driver hears between.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogReplacement {
    /// The driver gets the new log, then the old one goes.
    #[default]
    NewFirst,
    /// The driver gets NULL, the old ones go, then it gets new ones.
    Null,
    /// The driver gets the address of an old log with no entries, the old ones go, then it gets new ones.
    NoEntries,
}

/// Whether nodes that schedule in hardware get a scheduling log. When Dxgkrnl gives one, no document says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SchedulingLogs {
    /// No log is given.
    None,
    /// One is given, and what is in it is judged: a driver may take it and write nothing.
    Given,
    /// As above, and each context that ran has to be in it, as the page of `DXGKDDI_SETSCHEDULINGLOGBUFFER` has it
    /// ("All new entries will be written to the log buffer").
    #[default]
    Demanded,
}

/// Which waits an optimized interrupt ends. The article has Dxgkrnl look for the fences and values that are in the
/// logs, and says nothing of values that no log has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogWakes {
    /// The logs say which fences to look at, and a fence's value which of its waits end. Where they end none, every
    /// fence is looked at.
    #[default]
    Values,
    /// Waits end for the fences and values that are in the logs, and for no others. A fence that was signaled and set
    /// back before the logs are read has ended its waits.
    Entries,
}
