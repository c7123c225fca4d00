//! Steps of a recovery that the model leaves out, or does otherwise than the documents say.

use super::Personality;

macro_rules! departures {
    ($($(#[doc = $text:literal])+ $name:ident,)*) => {
        /// A way in which the model departs from article tdr-changes-in-windows-8. No Windows does any of it; a test
        /// sets one to show that a case notices.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Departure {
            $($(#[doc = $text])+ $name,)*
        }

        impl Departure {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name,)*];
        }
    };
}

departures! {
    /// What is submitted again: a paging packet gets a new id.
    RenumbersPaging,
    /// Paging packets come back in the opposite order.
    ReversesPaging,
    /// Contexts hand in their packets before paging packets that came back.
    NewBeforePaging,
    /// Render packets come back under the ids that they had.
    KeepsRenderIds,
    /// Packets come back with zeros in place of their private data.
    ForgetsPrivateData,
    /// What was behind the aborted packet does not come back.
    TakesAllBehind,
    /// Step 1: no preemption is tried.
    NoPreemption,
    /// Step 3: what is known of the engine is noted, and its interrupts are ignored from a later moment on.
    NotesFirst,
    /// Step 3: interrupts of the engine that timed out count.
    HearsTheEngine,
    /// Step 3: interrupts of other engines are ignored as well.
    IgnoresAllEngines,
    /// Step 4: an engine with an empty queue is reset all the same, and one whose contexts have let go.
    ResetsEmptyQueues,
    /// Step 5: DPCs are not flushed.
    FlushesNothing,
    /// Step 6: neither the engines that depend nor the engine's status are asked for.
    PreparesNothing,
    /// What `DxgkDdiResetEngine` returns as LastAbortedFenceId is not looked at.
    JudgesNothing,
    /// The device of the aborted packet goes on.
    SparesTheAborted,
    /// The last completed id stays what it was behind the reset of an engine.
    EngineMovesNothing,
    /// The last completed ids stay what they were behind the reset of the adapter.
    AdapterMovesNothing,
    /// Where a paging packet is in the hardware queue, the adapter is reset without the engine before it.
    AdapterWithoutEngine,
    /// A paging packet that was hit brings no reset of the adapter about.
    EngineWithoutAdapter,
    /// Devices that own allocations to which a paging packet refers that was hit are lost with the adapter alone.
    SparesOwners,
    /// The loss of such a device counts as a hang of its process.
    BlamesOwners,
    /// Engines that depend on the one that is reset, and do not answer their preemption, are not reset.
    LeavesDependents,
    /// A page fault that asks for a reset brings none about.
    IgnoresWishes,
    /// What a fault's reset cuts off has hung the engine, although the driver said whose fault it was.
    BlamesWhatRuns,
    /// The system device is in error: paging that the reset interrupted does not go on.
    LosesTheSystem,
    /// The reset of an engine fails, and nothing follows.
    EndsAtFailure,
    /// The reset of the adapter behind one of an engine that failed has the reason of a driver without those.
    NamesNoPromotion,
    /// Doorbells of an engine that hangs by the driver's word stay connected.
    LeavesDoorbells,
    /// A notice of a hang that was worked off before a reset is over asks for another one.
    KeepsOldNotices,
    /// A recovery begins beside another one of the adapter.
    RecoversAtOnce,
    /// No node gets work while the engine of another one is being reset.
    StopsBesideResets,
    /// The device loses its power while the driver has packets.
    SleepsAmidPackets,
    /// A packet that takes TdrDelay is preempted, and goes first behind that.
    PreemptsForNobody,
}

impl Personality {
    /// Whether it departs from the documents in this way.
    pub(crate) fn departs(&self, how: Departure) -> bool {
        self.faults.departure == Some(how)
    }
}
