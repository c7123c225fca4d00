//! A recovery as the list of the steps that it consists of, in the order of the article.
//!
//! Every reset of an engine or of the adapter leaves such a list
//! ([`Adapter::recoveries`](crate::entry::adapter::Adapter)), and a line of it among the events of the report.
//!
//! Source: article tdr-changes-in-windows-8, calling sequence; DDI pages of the functions.

use std::fmt;

use wddm_abi::{DXGK_TDR_TYPE, NTSTATUS};

use crate::port::tdr::DeviceState;

/// What is reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// The engine of a packet node.
    PacketEngine {
        /// The node.
        node: u32,
    },
    /// The engine of a hardware-scheduled node.
    HwEngine {
        /// The node.
        node: u32,
    },
    /// The adapter.
    Adapter,
}

/// Why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// A preemption was not answered within TdrDelay.
    Preemption,
    /// A suspension was not acknowledged within TdrDelay.
    Suspension,
    /// A node depends on one that is reset, and did not answer its preemption.
    Dependent,
    /// The driver asked, by GPU_ENGINE_TIMEOUT.
    Asked,
    /// The driver reported the engine's state HUNG.
    Hung,
    /// A page fault asked for a reset of the engine, and the driver said whose it was.
    Fault,
    /// The same, of a packet or queue that could not be determined.
    UnknownFault,
    /// A page fault asked for a reset of the adapter.
    AdapterFault,
    /// User mode forced it for the adapter: D3DKMTEscape, TDRDBGCTRL.
    Forced,
    /// User mode forced it for an engine.
    ForcedEngine,
    /// The reset of an engine failed, or took a paging packet along.
    Promoted,
    /// The driver has no resets of engines.
    NoEngineReset,
}

impl Reason {
    /// Why the adapter is reset where the driver has no resets of engines, one of which was wanted for this.
    ///
    /// Source: DDI page DXGK_TDR_TYPE: PREEMPT_TIMEOUT is for an engine that timed out, on drivers without resets of
    /// engines; PAGE_FAULT and FORCED are of the adapter's reset. Chosen: a reset of the engine that a fault or user
    /// mode asks for is that of the adapter, for the same reason.
    pub(crate) fn without_engine_resets(self) -> Self {
        match self {
            Self::Fault | Self::UnknownFault | Self::AdapterFault => Self::AdapterFault,
            Self::Forced | Self::ForcedEngine => Self::Forced,
            _ => Self::NoEngineReset,
        }
    }

    /// Whether a page fault asked for a reset of the engine.
    pub(crate) fn is_fault(self) -> bool {
        matches!(self, Self::Fault | Self::UnknownFault)
    }

    /// What becomes of the device whose work the reset of an engine cut off in its middle: it hung the engine, unless a
    /// fault is why, and is known by its packet or queue. What runs by then began behind that, and is merely reset.
    ///
    /// Source: DDI page DXGK_PAGE_FAULT_FLAGS: the packet with FaultedFenceId is the cause, and the driver's last
    /// completed id moves on to it; article tdr-changes-in-windows-8: the device of the aborted packet is in error.
    /// Chosen: in which one.
    pub(crate) fn of_cut_off(self) -> DeviceState {
        if self == Self::Fault { DeviceState::Reset } else { DeviceState::Hung }
    }

    /// What the driver is told before the reset (`DXGKARG_COLLECTDBGINFO2.TdrType`).
    ///
    /// Source: DDI page DXGK_TDR_TYPE. Chosen: an engine reset that the driver asks for, or that user mode forces, is
    /// one of an engine that timed out.
    pub fn tdr_type(self) -> DXGK_TDR_TYPE {
        match self {
            Self::Preemption | Self::Suspension | Self::Dependent | Self::Asked | Self::Hung | Self::ForcedEngine => {
                DXGK_TDR_TYPE::DXGK_TDR_TYPE_ENGINE_TIMEOUT
            }
            Self::Fault | Self::UnknownFault => DXGK_TDR_TYPE::DXGK_TDR_TYPE_ENGINE_PAGE_FAULT,
            Self::AdapterFault => DXGK_TDR_TYPE::DXGK_TDR_TYPE_PAGE_FAULT,
            Self::Forced => DXGK_TDR_TYPE::DXGK_TDR_TYPE_FORCED,
            Self::Promoted => DXGK_TDR_TYPE::DXGK_TDR_TYPE_ENGINE_TIMEOUT_PROMOTED,
            Self::NoEngineReset => DXGK_TDR_TYPE::DXGK_TDR_TYPE_PREEMPT_TIMEOUT,
        }
    }

    /// `TdrReason` of the recovery context, as `!analyze` shows it. The article names one number,
    /// TdrEngineTimeoutPromotedToAdapterReset = 9, which is that of DXGK_TDR_TYPE_ENGINE_TIMEOUT_PROMOTED; the others
    /// are taken from there.
    pub fn tdr_reason(self) -> i32 {
        self.tdr_type().0
    }
}

/// A step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The node was asked to preempt, with this fence.
    PreemptionTried(u32),
    /// That was not answered in time.
    TimeoutDetected,
    /// The ids last completed and last submitted were noted, and the engine's interrupts are ignored from here on: one
    /// step at the device's interrupt level.
    Snapshot {
        /// Last completed.
        completed: u32,
        /// Last submitted.
        submitted: u32,
        /// Packets in the hardware queue.
        packets: usize,
    },
    /// The hardware queue was empty by then: that is all.
    Emptied,
    /// Every DPC that was queued has run.
    DpcsFlushed,
    /// DxgkDdiQueryDependentEngineGroup.
    Dependents(u64),
    /// A node that depends on this one has answered its preemption, or has nothing to do.
    DependentIdle(u32),
    /// DxgkDdiQueryEngineStatus; whether the node says that it is responsive.
    EngineStatus(bool),
    /// DxgkDdiCollectDbgInfo(2), with this reason.
    DebugInfo(u32),
    /// The doorbells of the engine's queues were disconnected; how many.
    DoorbellsDisconnected(usize),
    /// DxgkDdiResetEngine returned, with LastAbortedFenceId.
    ResetEngine(NTSTATUS, u32),
    /// DxgkDdiResetHwEngine returned; contexts that it invalidated.
    ResetHwEngine(NTSTATUS, usize),
    /// Interrupts of the engine count again.
    InterruptsEnabled,
    /// DxgkDdiResumeHwEngine returned.
    ResumeHwEngine(NTSTATUS),
    /// The reset took a paging packet along.
    PagingHit,
    /// Devices that own allocations to which that paging packet refers are in error; how many.
    OwnersLost(usize),
    /// Devices of packets or contexts that the reset took are in error; how many.
    DevicesLost(usize),
    /// Packets come back: paging packets under their own ids, and others.
    GivenBack {
        /// Paging packets.
        paging: usize,
        /// Others.
        render: usize,
    },
    /// Every thread has left the driver, and none is let in.
    ThreadsLeft,
    /// DxgkDdiResetFromTimeout returned.
    ResetFromTimeout(NTSTATUS),
    /// What was in memory that is lost was evicted, by transfers of no bytes; how many allocations.
    Evicted(usize),
    /// DxgkDdiRestartFromTimeout returned.
    RestartFromTimeout(NTSTATUS),
    /// The system device goes on; paging packets that are submitted again.
    SystemResumed(usize),
}

/// A recovery.
#[derive(Clone, Debug)]
pub struct Recovery {
    /// What is reset.
    pub what: What,
    /// Why.
    pub reason: Reason,
    /// The steps so far, in their order.
    pub steps: Vec<Step>,
    /// Whether it is over.
    pub is_over: bool,
}

impl Recovery {
    /// Whether a step like `probe`'s is there, whatever it carries.
    pub fn has(&self, probe: impl Fn(&Step) -> bool) -> bool {
        self.steps.iter().any(probe)
    }
}

impl fmt::Display for Recovery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.what {
            What::PacketEngine { node } => write!(f, "engine reset of packet node {node}")?,
            What::HwEngine { node } => write!(f, "engine reset of node {node}")?,
            What::Adapter => f.write_str("adapter reset")?,
        }
        write!(f, " ({:?}, TdrReason {})", self.reason, self.reason.tdr_reason())?;
        for (at, step) in self.steps.iter().enumerate() {
            write!(f, "{} {step:?}", if at == 0 { ":" } else { ";" })?;
        }
        Ok(())
    }
}
