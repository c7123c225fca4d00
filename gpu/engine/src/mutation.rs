//! Wrong on purpose: the steps that a test leaves out to see that something notices.
//!
//! Compiled away unless the feature `mutants` is on; then one number, set from the registry value `Mutant` or by a
//! test, chooses. What ships has no such feature, and a test looks at the image for it.

use core::sync::atomic::{AtomicU32, Ordering};

macro_rules! mutations {
    ($($(#[$doc:meta])* $name:ident = $n:literal,)*) => {
        /// One way to be wrong.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(u32)]
        pub enum Mutation { $($(#[$doc])* $name = $n,)* }
        impl Mutation {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name,)*];
            /// Name, as tests and messages print it.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => stringify!($name),)* }
            }
        }
    };
}

mutations! {
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
    /// MonitoredValue is only ever raised, never lowered.
    MonitoredOnlyRaised = 6,
    /// The interrupt carries the driver's handle instead of Dxgkrnl's.
    DriverHandleInInterrupt = 7,
    /// A destroyed fence's handle stays in the mailbox.
    StaleHandleInInterrupt = 8,
    /// The NULL array is never used, so an overflow loses fences.
    DropOnOverflow = 9,
    /// No interrupt is ever raised.
    NeverInterrupt = 10,
    /// An interrupt for every signal, wanted or not.
    AlwaysInterrupt = 11,
    /// The queue of a wait is not woken by a signal from the CPU.
    NoWakeFromCpu = 12,
    /// NotificationOnly writes CurrentValue all the same.
    NotificationWrites = 13,
    /// PARK-1: no re-check after a queue was parked.
    NoParkRecheck = 14,
    /// The log goes on in the old buffer after a new one was set.
    LogKeepsOldBuffer = 15,
    /// A LOG entry's timestamps run backwards now and then.
    TimestampsBackwards = 16,
    /// UpdateMonitoredValues touches the kernel address after the call.
    KeepsKernelVa = 17,
    /// Work that was published while disconnected is not looked for at connect.
    NoScanAtConnect = 18,
    /// The physical doorbell is reused before DxgkCbDisconnectDoorbell returned.
    ReusesDoorbellEarly = 19,
    /// A doorbell page holds two queues' doorbells.
    SharesDoorbellPage = 20,
    /// ResetHwEngine does not name the context that was running.
    ResetWithoutInvalidate = 21,
    /// An interrupt of the engine between ResetHwEngine and ResumeHwEngine.
    InterruptBeforeResume = 22,
    /// SuspendContext reports a fence the OS never issued.
    WrongSuspendFence = 23,
    /// Packets complete out of order.
    CompletesOutOfOrder = 24,
    /// The version in DRIVERCAPS differs from the table's.
    WrongWddmVersion = 25,
    /// NativeGpuFence is advertised although the OS has it off.
    AdvertisesDisabledFence = 26,
    /// UpdateMonitoredValues fails.
    FailsMonitoredUpdate = 27,
    /// UpdateCurrentValuesFromCpu fails.
    FailsCurrentUpdate = 28,
    /// BuildPagingBuffer answers with an unlisted status.
    BadPagingStatus = 29,
    /// QUERYSEGMENT4's count probe is refused.
    RefusesSegmentProbe = 30,
    /// A paging fence completes before the flush reached every engine.
    FlushNotWaited = 31,
    /// A pool block is leaked with every device.
    LeaksWithDevice = 32,
    /// GetNodeMetadata fails for the last node.
    HidesNode = 34,
    /// DisconnectDoorbell fails.
    FailsDisconnect = 35,
    /// CreateDoorbell binds a physical doorbell at once.
    BindsAtCreate = 36,
    /// The private data of a fence is scribbled over.
    ScribblesPrivateData = 37,
    /// CloseNativeFence is taken for DestroyNativeFence.
    DestroysOnClose = 38,
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
    /// A destroyed fence's slot is ended without excluding the interrupt routine.
    RetiresUnlocked = 70,
    /// IRQ-1: the interrupt is acknowledged behind the reading of the mailboxes.
    AcknowledgesLate = 71,
    /// FENCE-1: the shadow of MonitoredValue is updated before the OS's word.
    ShadowFirst = 51,
    /// UpdateMonitoredValues and UpdateCurrentValuesFromCpu stop at the first handle that names nothing.
    StopsAtBadFence = 52,
    /// UpdateMonitoredValues and UpdateCurrentValuesFromCpu carry out the first of a batch only.
    OnlyFirstOfBatch = 53,
    /// Values of intra-GPU fences are wanted in the aperture.
    IntraGpuInAperture = 50,
    /// A translation maps the neighbours of what was asked for.
    MapsNeighbours = 63,
    /// A translation maps what may only be read for writing.
    MapsWritable = 64,
    /// With the basic implementation of monitored fences, not even a queue's progress fence interrupts.
    BasicProgressSilent = 60,
    /// Monitored fences of 32 bits are written with 64.
    StoresNarrowWide = 61,
    /// An engine that cannot write monitored fences does.
    SignalsUnable = 62,
}

/// Which mutation is on, if any.
pub struct Chosen(AtomicU32);

impl Chosen {
    /// None.
    pub const fn none() -> Self {
        Self(AtomicU32::new(0))
    }

    /// Switches to the mutation with this number; 0 and unknown numbers switch it off. Nothing happens without
    /// `mutants`.
    pub fn set(&self, raw: u32) {
        if cfg!(feature = "mutants") {
            self.0.store(raw, Ordering::Relaxed);
        }
    }

    /// Whether `mutation` is on. Always false without the feature `mutants`.
    #[inline]
    pub fn is(&self, mutation: Mutation) -> bool {
        cfg!(feature = "mutants") && self.0.load(Ordering::Relaxed) == mutation as u32
    }
}
