//! Faults that are injected: what fails, gets lost, or names nothing.

use std::ops::RangeInclusive;

use wddm_abi::NTSTATUS;

use super::{Departure, StrayEntry, StrayFlush, StrayRoot};

/// Calls of a named callback that must fail. Of several for one callback the first that names a call counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallbackFault {
    /// Member name in `DXGKRNL_INTERFACE`, or the type's name of a function in the interface of features. Of the last,
    /// each call of `DXGKCB_FEATURE_NATIVEFENCE_CAPS_1` fails, whatever `calls` says.
    pub callback: &'static str,
    /// Which calls fail, from 1.
    pub calls: RangeInclusive<u64>,
    /// The status that they fail with.
    pub status: NTSTATUS,
}

impl CallbackFault {
    /// Each call fails.
    pub fn each(callback: &'static str, status: NTSTATUS) -> Self {
        Self::of(callback, 1..=u64::MAX, status)
    }

    /// These calls fail, counted from 1: one, or all of a while.
    pub fn of(callback: &'static str, calls: RangeInclusive<u64>, status: NTSTATUS) -> Self {
        Self { callback, calls, status }
    }
}

/// What a page table entry names that VidMm left valid beside others. An access that touches those alone must not reach
/// it: of what an MDL names, Driver Verifier wants each frame to be locked memory (0xC4 with 0x85 and 0x89).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Neighbour {
    /// Registers of the device.
    Registers,
    /// Memory that is not locked, and so may be paged out.
    Unlocked,
    /// Nothing: the address lies behind the highest physical address of the machine.
    Behind,
}

/// Faults that are injected.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FaultPlan {
    /// The nth allocation of kernel memory from the start of the driver on fails; 0: none.
    pub allocation: u64,
    /// Callbacks that fail.
    pub callbacks: Vec<CallbackFault>,
    /// Bytes of every paging buffer, instead of what the driver asked for: small ones force several passes.
    pub paging_buffer_size: Option<u32>,
    /// The kernel reads a fence as unsignaled this many times before it looks: widens the race of wait and signal.
    pub slow_resample: u32,
    /// Behind `DxgkDdiUpdateMonitoredValues` the kernel does not read the current value again, but relies on the
    /// driver's interrupt. No Windows does that (article native-gpu-fence-objects, between GPU and CPU);
    /// with shadow state the driver looks by itself (between engine and CMP, step 3), and here nobody does it for it.
    pub trusts_updates: bool,
    /// Each batch of allocations that is closed or destroyed begins with a handle that names nothing. A driver must do
    /// the others all the same, since their handles are forgotten (DDI page DxgkDdiDestroyAllocation).
    pub stray_handles: bool,
    /// `DxgkDdiDisconnectDoorbell` is called beside `DxgkDdiConnectDoorbell` of the same doorbell, whose connection
    /// then comes to nothing. No page says that the OS has them one after the other.
    pub disconnects_beside: bool,
    /// An engine that asks for F1 goes there although a user-mode queue has not done what is queued: the article words
    /// no exception.
    pub f1_amid_work: bool,
    /// Which raise of a device is lost, counted from 1: no status bit, no line, no message. 0: none.
    pub lost_interrupt: u64,
    /// The arrays of `DxgkDdiUpdateMonitoredValues` and `DxgkDdiUpdateCurrentValuesFromCpu` begin and end with a
    /// handle that names no fence (any more). No Windows does that; a driver must not follow it, and do the others.
    pub stray_fences: bool,
    /// `D3DKMTCreateNativeFence` asks the driver for an intra-GPU fence although `GetOSCaps` says that the OS supports
    /// none. No Windows does that; a driver that has read the answer refuses.
    pub unchecked_fence_types: bool,
    /// `IsFeatureEnabled` says that native fences are on in this version, whatever was negotiated. No Windows does
    /// that; a driver that keeps the version it was told does not use one that it does not support.
    pub fence_version: Option<u16>,
    /// `HwQueueProgressFenceGPUVirtualAddress` of `DxgkDdiCreateHwQueue` lies four bytes behind the fence, at no
    /// multiple of 8. No Windows does that; its page lists no reason to refuse a queue for its progress fence (DDI
    /// pages DxgkDdiCreateHwQueue, DXGKARG_CREATEHWQUEUE).
    pub odd_progress: bool,
    /// Both places where `DxgkDdiCreateHwQueue` may name the native progress fence have the driver's handle of another
    /// native fence that the process has open, or one that names nothing when it has none; the addresses are right. No
    /// Windows does that; a driver goes by the address, whose meaning every header shows.
    pub other_progress: bool,
    /// Each update of a process's page tables ends with an entry that drivers need not know, where its table has room.
    pub stray_entry: Option<StrayEntry>,
    /// `DxgkDdiSetRootPageTable` names another root than the process's, the paging process's excepted.
    pub stray_root: Option<StrayRoot>,
    /// Behind each update of a process's page tables, each operation of
    /// [`STRAY_OPERATIONS`](super::STRAY_OPERATIONS), with a record of zeros. A driver need not know them, and may not
    /// fail (DDI page DxgkDdiBuildPagingBuffer, remarks).
    pub stray_operations: bool,
    /// Packets of processes name a context that the driver does not have, as if it had been destroyed. A driver must
    /// not run them for another context (DDI page DxgkDdiSubmitCommandVirtual, STATUS_INVALID_PARAMETER).
    pub stray_contexts: bool,
    /// Each update of a process's page tables leaves a valid entry behind the last, where its table has room and
    /// nothing is mapped.
    pub neighbour: Option<Neighbour>,
    /// FLUSH_TLB names no process, or none that there is.
    pub stray_flushes: Option<StrayFlush>,
    /// The kernel refuses to say whether it runs code that is signed for tests.
    pub signing_untold: bool,
    /// What the bytes of `Reserved` members hold in what DDIs of native fences are given, and the reserved bits of
    /// their flags.
    pub reserved: u8,
    /// How the model departs from the documents in a recovery.
    pub departure: Option<Departure>,
}

impl FaultPlan {
    /// [`reserved`](Self::reserved) as flags, without the `known` ones.
    pub(crate) fn reserved_flags(&self, known: u32) -> u32 {
        u32::from_ne_bytes([self.reserved; 4]) & !known
    }
}
