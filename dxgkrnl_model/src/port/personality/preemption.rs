//! Packet nodes: preemption, and what the OS counts.

use nt_model::sched::Ticks;

use super::MS;

/// What the last submitted fence id of a packet node is, where a preemption was asked for behind the last packet: the
/// two share one sequence of ids. It bounds LastAbortedFenceId, is `LastHwSubmittedFenceId` of debug information, and
/// is what the last completed id moves on to in a reset of the adapter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Submitted {
    /// The preemption's. Source: DDI page DxgkDdiPreemptCommand, remarks: a preemption fence is submitted, too.
    #[default]
    WithPreemptions,
    /// The packet's. Source: article tdr-changes-in-windows-8 speaks of packets alone. Chosen: a driver that names the
    /// preemption behind such a reset means the packet before it.
    Packets,
}

/// How contexts share a packet node. Source: article gpu-preemption; the numbers are what one driver's author saw on
/// Windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preemption {
    /// A node that two contexts want, or paging and a context, is preempted in ordinary use. Otherwise it is when a
    /// packet takes TdrDelay alone.
    pub in_ordinary_use: bool,
    /// The shortest and the longest time between two preemptions of a node that two contexts want.
    pub slice: (Ticks, Ticks),
    /// How long a context's packet runs on while paging waits for its node.
    pub paging_slice: Ticks,
    /// Packets that the driver is given per node at a time; 0 counts as 1.
    pub in_flight: u32,
    /// What the lengths of slices are drawn from.
    pub seed: u64,
    /// Which ids count as submitted.
    pub submitted: Submitted,
}

impl Default for Preemption {
    fn default() -> Self {
        // 40 to 70 a second.
        let slice = (14 * MS, 25 * MS);
        Self { in_ordinary_use: true, slice, paging_slice: MS, in_flight: 4, seed: 1, submitted: Submitted::default() }
    }
}
