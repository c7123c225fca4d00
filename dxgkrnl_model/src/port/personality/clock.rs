//! Whose time a machine lives by.

use nt_model::sched::seeded::SeededOptions;

/// Whose time it is.
#[derive(Clone, Debug, Default)]
pub enum Clock {
    /// Threads of the operating system, and its time but for that in which none of them ran: a host that stands still
    /// is no engine that hangs.
    #[default]
    Patient,
    /// Threads and time of the operating system: for measuring.
    Real,
    /// One thread at a time, chosen from a seed; time is virtual.
    Seeded(SeededOptions),
}
