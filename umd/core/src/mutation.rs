//! Wrong on purpose: the steps that a test leaves out or swaps to see that something notices.
//!
//! Compiled away unless the feature `mutants` is on; then one number per adapter chooses: an argument of
//! [`Adapter::open`](crate::adapter::Adapter::open), and in the C interface the first reserved word of
//! `FpAdapterOpen`. What ships has no such feature, and `tests/image_files` looks for it.
#![forbid(unsafe_code)]

gpu_word::mutations! {
    /// Step 4 before step 3: the write pointer is published before the last queued progress value is stored.
    PublishBeforeLastQueued = 1,
    /// DB-1: no barrier between the ring and the read of the status.
    NoStatusBarrier = 2,
    /// The submission is appended again when the status says RETRY.
    AppendTwiceOnRetry = 3,
    /// Step 5 before step 4: the doorbell is rung before the write pointer is published.
    RingBeforePublish = 4,
    /// What lies behind a thunk's argument is not zero, as behind an argument of the 26100 size.
    TightThunkBuffers = 5,
    /// RING-1: the write pointer is published without Release.
    PublishRelaxed = 6,
    /// Step 2: the last packet of a submission is not the progress fence's signal.
    NoProgressSignal = 7,
    /// No LOG packet follows a wait or signal.
    NoLog = 8,
    /// The LOG packet stands before the operation that it describes.
    LogBeforeOperation = 9,
    /// RETRY is taken for success.
    IgnoresRetry = 10,
    /// CONNECTED_NOTIFY is taken for CONNECTED.
    IgnoresNotify = 11,
    /// ABORT is taken for success.
    IgnoresAbort = 12,
    /// Free space in the ring is not looked at.
    OverrunsRing = 13,
    /// Step 1: the progress value of the submission before is used again.
    ReusesProgressValue = 14,
    /// The doorbell is connected before every submission.
    ConnectsAlways = 15,
    /// The doorbell is created before the rings are resident.
    DoorbellBeforeResidency = 16,
    /// Paging fences are not waited for.
    SkipsPagingWait = 17,
    /// The 24H2 doorbell calls are used although gdi32 has the newer ones.
    IgnoresNewerDoorbells = 18,
    /// A shared object is created without NtSecuritySharing.
    SharesWithoutNtSecurity = 19,
    /// The kernel-mode driver's interface version is not looked at.
    IgnoresInterfaceVersion = 20,
    /// Index hints start at zero with every command list.
    RestartsIndexHints = 21,
    /// Space of the command buffer pool is reused before the GPU has executed what lies there.
    ReusesCommandBuffersEarly = 22,
    /// Monitored fences are signaled by packets although the engine cannot.
    SignalsWhereItCannot = 23,
    /// MakeResident that is over the budget is not repeated with CantTrimFurther.
    NeverExceedsBudget = 24,
    /// A fence's value is not read again after its event: the event counts.
    TrustsEvents = 25,
    /// An allocation that was opened is locked for the CPU at once.
    LocksWhatItOpens = 26,
    /// A queue's progress fence is native where the adapter has native fences, whatever CreateHwQueue answers.
    ProgressByCapabilities = 27,
    /// A fence that was made or opened is used before its GPU address is mapped.
    UsesFencesUnmapped = 28,
    /// Command buffers of kernel-mode queues wait for native fences on the GPU.
    WaitsInBuffers = 29,
    /// Contexts for hardware queues are made by `D3DKMTCreateHwContext` alone.
    ObsoleteContextsOnly = 30,
    /// A shared fence is opened with the flags that it is created with.
    OpensWithSharingFlags = 31,
    /// A queue is destroyed with work in it.
    DestroysBusyQueues = 32,
    /// Local memory is allocated and mapped in pages of 4 KB.
    MapsLocalByPages = 33,
    /// A device in an error state is known by STATUS_DEVICE_REMOVED alone.
    KnowsOneStatus = 34,
    /// Step 3: the last queued value is not stored.
    TellsNothing = 35,
    /// The ring that a resize has replaced is freed at once.
    FreesOldRing = 36,
}
