//! Private driver data: what travels through Dxgkrnl uninterpreted between the user-mode and the kernel-mode driver
//! (SPEC §3).
//!
//! The kernel-mode driver reads a captured copy, checks every field, [`MAGIC`] and the version where the block has
//! them, and refuses the call with `STATUS_INVALID_PARAMETER` (`STATUS_GRAPHICS_DRIVER_MISMATCH` for the version) when
//! one is wrong.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// "FNCP", little-endian: first word of every block that has room for it.
pub const MAGIC: u32 = u32::from_le_bytes(*b"FNCP");

/// What the adapter can do on this OS, decided once in `DxgkDdiStartDevice`. Each rung includes the ones below.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u32)]
pub enum Rung {
    /// Packet mode on every node, monitored fences.
    Packet = 0,
    /// Hardware queues on nodes 0 and 1, kernel-mode submission.
    HardwareQueues = 1,
    /// Native fences.
    NativeFences = 2,
    /// User-mode submission through doorbells.
    UserModeSubmission = 3,
}

impl Rung {
    /// The rung with this number.
    pub const fn from_raw(raw: u32) -> Option<Self> {
        match raw {
            0 => Some(Self::Packet),
            1 => Some(Self::HardwareQueues),
            2 => Some(Self::NativeFences),
            3 => Some(Self::UserModeSubmission),
            _ => None,
        }
    }

    /// The number.
    pub const fn raw(self) -> u32 {
        self as u32
    }

    /// In words.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Packet => "packet",
            Self::HardwareQueues => "hardware queues",
            Self::NativeFences => "native fences",
            Self::UserModeSubmission => "user-mode submission",
        }
    }
}

macro_rules! block {
    ($(#[$doc:meta])* $name:ident, $bytes:literal { $($(#[$fdoc:meta])* $field:ident: $type:ty,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
        #[repr(C)]
        pub struct $name { $($(#[$fdoc])* pub $field: $type,)* }

        const _: () = assert!(size_of::<$name>() == $bytes);

        impl $name {
            /// The block in the first bytes of `bytes`, or `None` when there are too few.
            pub fn read(bytes: &[u8]) -> Option<Self> {
                Self::read_from_prefix(bytes).ok().map(|(block, _)| block)
            }

            /// The block's bytes.
            pub fn bytes(&self) -> &[u8] {
                self.as_bytes()
            }
        }
    };
}

block! {
    /// Answer to `UMDRIVERPRIVATE`: kernel-mode driver → user-mode driver.
    AdapterInfo, 48 {
        /// [`MAGIC`].
        magic: u32,
        /// [`crate::INTERFACE_VERSION`] of the kernel-mode driver.
        interface_version: u32,
        /// [`Rung`] the adapter runs on.
        rung: u32,
        /// [`crate::doorbell::Model`] in use.
        doorbell_model: u32,
        /// Physical doorbells in the pool.
        physical_doorbells: u32,
        /// Nodes.
        node_count: u32,
        /// Bytes of the local segment.
        local_segment_size: u64,
        /// Ticks of the GPU clock per second.
        gpu_clock_frequency: u64,
        /// Nodes, one bit each, whose engines cannot write monitored fences: signals there are commands of the OS. The
        /// progress fence of a hardware queue is written all the same.
        software_signal_nodes: u32,
        /// Some of [`adapter_flags`].
        flags: u32,
    }
}

/// Bits of [`AdapterInfo::flags`].
pub mod adapter_flags {
    /// Monitored fences have 32 bits in memory.
    pub const NARROW_FENCES: u32 = 1;
}

block! {
    /// In: `D3DKMTCreateHwContext` and `D3DKMTCreateContextVirtual`.
    ContextData, 8 {
        /// [`MAGIC`].
        magic: u32,
        /// [`crate::INTERFACE_VERSION`] of the user-mode driver.
        interface_version: u32,
    }
}
block! {
    /// In: per allocation, `D3DKMTCreateAllocation2`.
    AllocationData, 24 {
        /// [`MAGIC`].
        magic: u32,
        /// One of [`allocation_kind`].
        kind: u32,
        /// Bytes, a multiple of the page size.
        size: u64,
        /// Zero.
        reserved: u64,
    }
}
block! {
    /// In and out: `D3DKMTCreateDoorbell`, 16 bytes at most by the DDI.
    ///
    /// In: where the process has its ring mapped. Out: see [`DoorbellReply`].
    DoorbellData, 16 {
        /// GPU address of the ring.
        ring: u64,
        /// GPU address of the control page.
        control: u64,
    }
}
block! {
    /// Out: what the kernel-mode driver writes over [`DoorbellData`].
    DoorbellReply, 16 {
        /// The queue's [`crate::doorbell::Token`].
        token: u32,
        /// [`crate::doorbell::Model`].
        model: u32,
        /// Bytes of the ring as the kernel-mode driver understood it.
        ring_size: u64,
    }
}
block! {
    /// Out: the last 16 bytes of the 64-byte block of a native fence. The other 48 bytes are the user's and come back
    /// unchanged.
    FenceReply, 16 {
        /// Number of the fence in debug blobs.
        index: u32,
        /// How often that number was used before.
        generation: u32,
        /// [`MAGIC`].
        magic: u32,
        /// How often the fence was opened so far, this time included; 0 from Create.
        opens: u32,
    }
}

/// Offset of [`FenceReply`] in the 64-byte private data of a native fence.
pub const FENCE_REPLY_OFFSET: usize = 48;

/// Values of [`AllocationData::kind`].
pub mod allocation_kind {
    /// System memory, visible to the CPU: rings, control pages, command buffers, staging.
    pub const SYSTEM: u32 = 1;
    /// The local segment; the CPU sees it through paging only.
    pub const LOCAL: u32 = 2;
}

block! {
    /// In and out: `D3DKMTEscape` with driver private data. The reply overwrites the block.
    EscapeHeader, 16 {
        /// [`MAGIC`].
        magic: u32,
        /// [`crate::INTERFACE_VERSION`].
        interface_version: u32,
        /// One of [`escape_command`].
        command: u32,
        /// Bytes of the whole block, header included.
        size: u32,
    }
}
block! {
    /// Reply to [`escape_command::COUNTERS`]: what all engines counted since start.
    EscapeCounters, 144 {
        /// The header, with the size of the reply.
        header: EscapeHeader,
        /// Packets executed.
        packets: u64,
        /// Doorbell rings seen.
        rings: u64,
        /// Native fence signals.
        signals: u64,
        /// Signals that asked for an interrupt.
        interrupts_wanted: u64,
        /// Signals that did not.
        interrupts_suppressed: u64,
        /// Interrupts raised.
        interrupts_raised: u64,
        /// Interrupts that could not be raised and were asked for again.
        interrupts_failed: u64,
        /// Waits met at once.
        waits_met: u64,
        /// Waits that parked.
        waits_parked: u64,
        /// Queues woken by signals of engines.
        wakes: u64,
        /// Signals that stored less than was there.
        backwards: u64,
        /// Log entries written.
        log_entries: u64,
        /// Faults.
        faults: u64,
        /// Bytes moved.
        bytes: u64,
        /// Packets of packet mode completed.
        completions: u64,
        /// Resets served.
        resets: u64,
    }
}

block! {
    /// Reply to [`escape_command::START`]: what the OS asked before and while the adapter started, what it was
    /// answered, and what it granted. `asked`, `answered` and `granted` have a bit per feature: 1 hardware scheduling,
    /// 2 native fences, 4 user-mode submission, 8 kernel-mode testing. Counts run from StartDevice on, those of
    /// questions from AddDevice on.
    EscapeStart, 136 {
        /// The header, with the size of the reply.
        header: EscapeHeader,
        /// [`Rung`] that the adapter started on.
        rung: u32,
        /// Highest [`Rung`] that the setting `MaxRung` allows.
        max_rung: u32,
        /// Features that the OS asked the driver about.
        asked: u32,
        /// Features that the driver last answered as supported.
        answered: u32,
        /// Features that the OS said are enabled, when the driver asked at StartDevice.
        granted: u32,
        /// Bytes of the `DXGKRNL_INTERFACE` that StartDevice got.
        interface_size: u32,
        /// A bit per type below 64 that `DxgkDdiQueryAdapterInfo` was asked for.
        queries: u64,
        /// A bit per type below 64 that was refused at least once.
        refused: u64,
        /// Page table entries that the driver does not know, and made invalid: an access faults.
        stray_entries: u64,
        /// Updates of page tables whose range, level, flags or table the driver does not know.
        stray_ranges: u64,
        /// Flushes for a process that the driver does not know: every space was flushed.
        stray_flushes: u64,
        /// Packets that `DxgkDdiSubmitCommandVirtual` refused.
        refused_packets: u64,
        /// Questions about features that this driver does not know.
        other_features: u64,
        /// Packet contexts that were made on hardware-scheduled nodes, since the start.
        odd_contexts: u64,
        /// Hardware queues whose native progress fence was not open when they were made, or whose progress fence was at
        /// no multiple of 8, since the start.
        plain_progress: u64,
        /// A bit per paging operation below 31 that the driver does not carry out and was asked for; bit 31: others.
        paging_kinds: u64,
        /// Paging operations that the driver does not carry out, since the start.
        paging_others: u64,
        /// Page tables and logs in memory that is not cached, since the start.
        uncached: u64,
    }
}

/// Values of [`EscapeHeader::command`].
pub mod escape_command {
    /// Reads the counters.
    pub const COUNTERS: u32 = 1;
    /// Reads what was asked, answered and granted at the start.
    pub const START: u32 = 2;
}
