//! Wrong on purpose: the steps that a test leaves out to see that something notices. Orders and steps inside of the GPU
//! alone: what shows at the driver's table or at its callbacks is done wrong there (`tests/mutations/broken.rs`).
//!
//! Those that are no orders, and why no function in front of the driver can make the mistake:
//!
//! - [`Mutation::MapsNeighbours`], [`Mutation::MapsWritable`]: which pages an engine maps, and with which rights, shows
//!   at the kernel's imports alone.
//! - [`Mutation::StoresNarrowWide`], [`Mutation::SignalsUnable`]: an engine stores to memory because of packets, which
//!   neither the table nor a callback sees.
//! - [`Mutation::WritesDeadFence`]: the same of native fences; and the fuzzer `engine`, which has no table, shows with
//!   it that it can find something.
//! - [`Mutation::DropOnOverflow`], [`Mutation::KeepsMarkWhenFull`], [`Mutation::ForgetsFailedInterrupt`]: what is lost
//!   from a full mailbox, or for want of an interrupt, never comes to a callback.
//! - [`Mutation::FlushNotWaited`], [`Mutation::ReportsWhileHeld`]: what is left out is a look at the state of another
//!   engine, at a moment that the engine alone knows.
//! - [`Mutation::AnswersResumed`], [`Mutation::ReportsLostSuspension`], [`Mutation::ReportsSuspensionsOfLost`]: the
//!   same of a context, between a call and the interrupt.
//! - [`Mutation::KeepsAborted`], [`Mutation::KeepsLost`], [`Mutation::KeepsLostAnswer`], [`Mutation::KeepsLostFault`],
//!   [`Mutation::KeepsLostHang`], [`Mutation::ReportsOldHang`], [`Mutation::ResetRaisesNothing`],
//!   [`Mutation::ResumeRaisesNothing`], [`Mutation::RestartRaisesNothing`]: what a reset takes out of a mailbox, or
//!   raises again, lies between an engine and its interrupt.
//! - [`Mutation::MergesByAddress`], [`Mutation::DrawsAtTheEnd`]: when a signal has its consequences is the engine's.
//! - [`Mutation::HeldKeepsReports`], [`Mutation::BacklogKeepsPackets`]: the same of an engine's own list.
//! - [`Mutation::AdapterNamesPacket`], [`Mutation::KeepsWaitingPackets`]: what a node keeps behind an adapter reset.
//! - [`Mutation::ArmsCorruption`], [`Mutation::ArmsInterrupts`], [`Mutation::ArmsWedge`], [`Mutation::ArmsLoss`]: what
//!   breaks the GPU on purpose breaks it where nothing else of the driver is.
//! - [`Mutation::LeavesQueuesOut`]: what a blob says of queues, the driver alone writes.
//! - [`Mutation::RunsLost`]: what an engine still runs behind a reset, it has from calls before that.
//! - [`Mutation::WatchesDestroyed`], [`Mutation::BelievesWritePointer`], [`Mutation::StarvedKeepsWindows`],
//!   [`Mutation::RunsWhenFull`], [`Mutation::KernelQueueStays`]: what an engine looks at, keeps or runs between calls.
//! - [`Mutation::WatchesOn`], [`Mutation::WatchesConnected`], [`Mutation::WatchesOld`]: the same of write pointers.
//! - [`Mutation::KeepsWindows`]: what an engine has mapped shows at the kernel's imports alone.
//! - [`Mutation::NextRingGoesOn`], [`Mutation::RunsAside`]: what an engine does in a ring comes to no call.
//! - [`Mutation::LeavesBusyQueue`], [`Mutation::LeavesRing`], [`Mutation::LeavesHeldEngine`]: what is left out is a
//!   wait for an engine, behind the marks that a call has set.
//! - [`Mutation::RestsAreWork`]: what an engine's thread counts comes to nothing but the timer that it waits for.
//! - [`Mutation::CompletesEarly`]: what comes too early is a callback, as against a look of the engine's thread.
//! - [`Mutation::ForgetsRefused`]: a packet that is refused and not kept is one for want of memory.
//! - [`Mutation::BeginsAnew`], [`Mutation::CountsTakenOff`]: where a packet was taken off, the engine alone knows.
//! - [`Mutation::WakesAllAtOnce`], [`Mutation::HoldForgetsWakes`]: how many queues wait, and are woken by an engine
//!   between two of its looks, the engine alone knows.
//! - [`Mutation::ResumesOne`], [`Mutation::KeepsRing`], [`Mutation::RunsInF1`]: which queues an engine is told to look
//!   at, and where, lies between driver and GPU.
//! - [`Mutation::RoundsBeginAnew`], [`Mutation::RoundsForgetRings`], [`Mutation::KeepsTheTurn`],
//!   [`Mutation::GivesNoGrace`], [`Mutation::KeepsShare`]: which queue an engine looks at next, and which it runs.
//! - [`Mutation::FencesRunBack`]: the last fence that was submitted shows in debug information alone.
//!
//! Compiled away unless the feature `mutants` is on; then one number, set from the registry value `Mutant` or by a
//! test, chooses. What ships has no such feature and does not read the value; `tests/image_files` looks for it.

gpu_word::mutations! {
    /// FENCE-1: no barrier between the CurrentValue store and the MonitoredValue load.
    NoSignalBarrier = 1,
    /// FENCE-1: no barrier after the MonitoredValue store in UpdateMonitoredValues.
    NoMonitoredBarrier = 2,
    /// The notification goes out before the value is written.
    NotifyBeforeValue = 3,
    /// LOG-1: FirstFreeEntryIndex is bumped before the entry is written.
    IndexBeforeEntry = 4,
    /// LOG-1: `DxgkDdiUpdateNativeFenceLogs` does not wait for entries that are being written.
    NoLogBarrier = 5,
    /// The NULL array is never used, so an overflow loses fences.
    DropOnOverflow = 9,
    /// PARK-1: no re-check after a queue was parked.
    NoParkRecheck = 14,
    /// A paging fence completes before the flush reached every engine.
    FlushNotWaited = 31,
    /// A wait in a shadow MonitoredValue update is not re-checked.
    ShadowNotRechecked = 39,
    /// AlwaysSignaled still writes the fence's storage.
    WritesDeadFence = 40,
    /// RESET-1: the engine says that it holds before its stores are visible.
    HoldsRelaxed = 41,
    /// RESET-1: an engine that goes on does not look whether it was told to hold again.
    RunsUnasked = 42,
    /// WAKE-1: no barrier between the engine's word that it sleeps and its last look for work.
    NoSleepBarrier = 43,
    /// READY-1: a queue's mark is cleared by a store, not by an exchange.
    ClearsReadyByStore = 44,
    /// In shadow mode a signal that the update finds is reported although the node that it would come from is held.
    ReportsWhileHeld = 45,
    /// GONE-1: no barrier between the engine's word whose turn it is and its look whether the queue is there.
    NoTurnBarrier = 72,
    /// GONE-1: a queue is destroyed without a look whether its engine is off it.
    LeavesBusyQueue = 76,
    /// A doorbell that is taken away is not followed by a look at its queue's write pointer.
    NoLastLook = 73,
    /// FENCE-1: signals of two fences that had one address one after the other are taken for signals of one.
    MergesByAddress = 120,
    /// What a signal brings about waits for the end of the burst, however long that takes.
    DrawsAtTheEnd = 121,
    /// LOG-1: what a signal with its own entry brings about is drawn before the entry is written.
    OwnEntryLate = 74,
    /// DEAD-1: a signal stores its value without the lock under which the fence becomes always signaled.
    StoresUnlocked = 75,
    /// A STORE to the word of a fence passes a signal of the fence that is not stored yet.
    StretchPassesStore = 95,
    /// IRQ-1: the interrupt is acknowledged behind the reading of the mailboxes.
    AcknowledgesLate = 71,
    /// IRQ-1: the interrupt routine withdraws the request behind the reading of a mailbox.
    WithdrawsLate = 91,
    /// IRQ-1: the interrupt routine clears the mark of a fence behind the report of it.
    ClearsMarkLate = 92,
    /// IRQ-1: the interrupt routine takes the scan word before it withdraws the request.
    TakesScanFirst = 93,
    /// IRQ-1: a mark is of a slot, whatever its generation.
    MarksTheSlot = 94,
    /// FENCE-1: the shadow of MonitoredValue is updated before the OS's word.
    ShadowFirst = 51,
    /// A translation maps the neighbours of what was asked for.
    MapsNeighbours = 63,
    /// A translation maps what may only be read for writing.
    MapsWritable = 64,
    /// Monitored fences of 32 bits are written with 64.
    StoresNarrowWide = 61,
    /// An engine that cannot write monitored fences does.
    SignalsUnable = 62,
    /// The suspension of a context that was resumed meanwhile is answered, with fence 0.
    AnswersResumed = 80,
    /// The mark of a fence whose notice found no room stays: no later signal of it makes a notice.
    KeepsMarkWhenFull = 81,
    /// An interrupt that could not be raised is not asked for again.
    ForgetsFailedInterrupt = 82,
    /// The write pointer of a queue is watched on when the queue is destroyed.
    WatchesDestroyed = 83,
    /// The write pointer is believed, wherever it is.
    BelievesWritePointer = 84,
    /// An engine that finds no memory for a mapping keeps what it has mapped.
    StarvedKeepsWindows = 85,
    /// An engine runs on although what it has to report has no room.
    RunsWhenFull = 86,
    /// A kernel-mode queue keeps its engine for as long as it has command buffers.
    KernelQueueStays = 87,
    /// What a reset has still to report of the suspension of the context that it takes is reported behind it.
    ReportsLostSuspension = 88,
    /// The same of an adapter reset, of every context.
    ReportsSuspensionsOfLost = 89,
    /// What a packet engine has raised of packets is reported behind the reset that ends them.
    KeepsAborted = 65,
    /// Behind a packet engine's reset what was raised before it, and is not over, is not raised again.
    ResetRaisesNothing = 66,
    /// The same behind a resumption.
    ResumeRaisesNothing = 67,
    /// What was raised of packets that are done is reported behind an adapter reset.
    KeepsLost = 68,
    /// The answer to a preemption is reported behind an adapter reset.
    KeepsLostAnswer = 111,
    /// A packet's fault is reported behind an adapter reset.
    KeepsLostFault = 112,
    /// An engine that was found to hang is told of behind an adapter reset.
    KeepsLostHang = 113,
    /// Behind an adapter reset nothing is raised again.
    RestartRaisesNothing = 69,
    /// An engine that was found to hang is told of behind its reset.
    ReportsOldHang = 70,
    /// Contexts from before an adapter reset run behind it.
    RunsLost = 110,
    /// Time for which an engine's thread rests counts as work, of which it may do so much in a period.
    RestsAreWork = 96,
    /// F1 is said to be reached before the engine has taken its last look, for which it takes its time.
    CompletesEarly = 97,
    /// The fence of a packet that is refused and not kept does not count as completed.
    ForgetsRefused = 90,
    /// A packet that comes back behind a preemption begins anew.
    BeginsAnew = 100,
    /// A packet that a preemption takes off in its middle counts as completed.
    CountsTakenOff = 101,
    /// The fence of a paging packet that comes back becomes the one that was submitted last.
    FencesRunBack = 102,
    /// A signal wakes each queue that waits for it before the engine looks up.
    WakesAllAtOnce = 103,
    /// An engine that is held forgets the queues that a signal still has to wake.
    HoldForgetsWakes = 104,
    /// RING-1: the write pointer is read without Acquire.
    ReadsRingUnordered = 105,
    /// READY-1: what an engine puts back for another one is put back without Release.
    HandsOverUnordered = 106,
    /// A signal lets waits go that began behind its store.
    GrantsLater = 107,
    /// DB-1: what the hot queue's doorbell says counts as served, whatever its write pointer says.
    NotesUnserved = 108,
    /// RESET-1: no barrier between the word that every fence is to be reported later and the second look whether a node
    /// may speak.
    SpeaksUnfenced = 109,
    /// The ring that replaces another one is begun at the position that was reached in that.
    NextRingGoesOn = 123,
    /// An engine goes on in a ring whose queue has no doorbell.
    RunsAside = 122,
    /// `FaultCorruptPacket` works without test signing.
    ArmsCorruption = 130,
    /// `FaultInterrupts` works without test signing.
    ArmsInterrupts = 131,
    /// `FaultWedgeAt` works without test signing.
    ArmsWedge = 132,
    /// `FaultLoseMemory` works without test signing.
    ArmsLoss = 133,
    /// An engine that holds for its own reset when the adapter's comes reports what it had to report before the latter.
    HeldKeepsReports = 134,
    /// What an engine had to report of packets, and no room for, is reported behind the reset that ends them.
    BacklogKeepsPackets = 135,
    /// An adapter reset moves the last completed fence on to that of the last packet alone.
    AdapterNamesPacket = 136,
    /// Packets that wait for an engine run behind an adapter reset.
    KeepsWaitingPackets = 137,
    /// What is told to hold is not waited for by an adapter reset and by the stop.
    LeavesHeldEngine = 139,
    /// Debug information leaves out the queues that come first and have no room there.
    LeavesQueuesOut = 138,
    /// An engine that was given up, and whose node another one has, goes on when it comes back.
    OldEngineGoesOn = 140,
    /// Debug information names another context of the node than the one that runs.
    NamesAnother = 141,
    /// Behind a resumption only the first queue of a context is looked at.
    ResumesOne = 170,
    /// The ring of a doorbell that is destroyed is not set aside.
    KeepsRing = 171,
    /// A notification has the engine look at the queue in F1, too.
    RunsInF1 = 172,
    /// A packet that was taken off in its middle begins anew where an engine's reset gave it back.
    ForgetsEngineResets = 173,
    /// A notification on the way to F1 is dropped although the queue has a doorbell.
    DropsInF1 = 174,
    /// What an engine finds behind a turn leaves the queue that was cut off no grace period.
    GivesNoGrace = 175,
    /// The normal band's share stays as it was before the OS said anything.
    KeepsShare = 176,
    /// Who destroys a doorbell does not wait until the engine is off its ring.
    LeavesRing = 160,
    /// An engine leaves a ring that was replaced by what its last look at the write pointer said, however old that is.
    LeavesUnlooked = 161,
    /// A device that is destroyed leaves its doorbells where they are.
    KeepsDoorbells = 162,
    /// A ring of the global doorbell during a round begins the round anew, at the end of the list.
    RoundsBeginAnew = 150,
    /// A ring of the global doorbell during a round begins none behind it.
    RoundsForgetRings = 163,
    /// The time that a queue has the engine while others wait counts for nothing: it has the next turn, too.
    KeepsTheTurn = 151,
    /// An engine acknowledges a flush before it has unmapped what that dooms.
    KeepsWindows = 152,
    /// The write pointer of a queue that lost its page to another is watched on.
    WatchesOn = 153,
    /// The write pointer of a queue whose doorbell is connected again is watched on.
    WatchesConnected = 154,
    /// The write pointer of a queue whose doorbell is destroyed is watched on.
    WatchesOld = 155,
}
