//! Records that a driver embeds in its own memory and hands to the services: events, timers, DPCs, locks, strings.
//!
//! Layouts are those of x64 Windows 10 and 11 as the public headers declare them; the tests assert size and offsets.
//! Every word that the services change is an atomic, because driver threads share these records with the model: a
//! `&KEVENT` into driver memory is then sound whatever other threads do to it.
//!
//! Source: wdm.h and ntdef.h (build 22621), as measured against mingw-w64's headers.

use std::sync::atomic::{AtomicI16, AtomicI32, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize};

/// `DISPATCHER_HEADER`: the first 0x18 bytes of everything that can be waited for.
#[repr(C, align(8))]
#[derive(Debug, Default)]
pub struct DispatcherHeader {
    /// Kind of object, one of the `OBJECT_*` numbers.
    pub kind: AtomicU8,
    /// Depends on the kind.
    pub signalling: AtomicU8,
    /// Size of the object in 32-bit words.
    pub size: AtomicU8,
    /// Depends on the kind; for timers non-zero while inserted.
    pub reserved: AtomicU8,
    /// Above zero: signalled.
    pub signal_state: AtomicI32,
    /// `WaitListHead`. The model keeps its waiters elsewhere; an initialised object has both links at itself.
    pub wait_list: [AtomicUsize; 2],
}

/// `EventNotificationObject`.
pub const OBJECT_EVENT_NOTIFICATION: u8 = 0;
/// `EventSynchronizationObject`.
pub const OBJECT_EVENT_SYNCHRONIZATION: u8 = 1;
/// `MutantObject`.
pub const OBJECT_MUTANT: u8 = 2;
/// `SemaphoreObject`.
pub const OBJECT_SEMAPHORE: u8 = 5;
/// `ThreadObject`.
pub const OBJECT_THREAD: u8 = 6;
/// `TimerNotificationObject`.
pub const OBJECT_TIMER_NOTIFICATION: u8 = 8;
/// `TimerSynchronizationObject`.
pub const OBJECT_TIMER_SYNCHRONIZATION: u8 = 9;
/// `DpcObject`.
pub const OBJECT_DPC: u8 = 0x13;
/// `ThreadedDpcObject`.
pub const OBJECT_THREADED_DPC: u8 = 0x1A;

/// `KEVENT`.
#[repr(C)]
#[derive(Debug, Default)]
pub struct KEVENT {
    /// State and kind.
    pub header: DispatcherHeader,
}

/// `KSEMAPHORE`.
#[repr(C)]
#[derive(Debug, Default)]
pub struct KSEMAPHORE {
    /// State (the count) and kind.
    pub header: DispatcherHeader,
    /// Highest count.
    pub limit: AtomicI32,
    pad: AtomicU32,
}

/// `KMUTANT` (`KMUTEX`).
#[repr(C)]
#[derive(Debug, Default)]
pub struct KMUTANT {
    /// State: 1 free, 0 owned, below 0 owned recursively.
    pub header: DispatcherHeader,
    /// `MutantListEntry`.
    pub list: [AtomicUsize; 2],
    /// `OwnerThread`: the owning thread's object address.
    pub owner: AtomicUsize,
    /// Non-zero when its owner ended.
    pub abandoned: AtomicU8,
    /// Non-zero: owning it disables normal kernel APCs.
    pub apc_disable: AtomicU8,
    pad: [AtomicU8; 6],
}

/// `KTIMER`.
#[repr(C)]
#[derive(Debug, Default)]
pub struct KTIMER {
    /// State and kind.
    pub header: DispatcherHeader,
    /// Absolute interrupt time of the next expiry, 100 ns.
    pub due_time: AtomicU64,
    /// `TimerListEntry`.
    pub list: [AtomicUsize; 2],
    /// The DPC to queue, or 0.
    pub dpc: AtomicUsize,
    processor: AtomicU32,
    /// Milliseconds between expiries; 0: once.
    pub period: AtomicU32,
}

/// `KDPC`.
#[repr(C, align(8))]
#[derive(Debug, Default)]
pub struct KDPC {
    /// [`OBJECT_DPC`] or [`OBJECT_THREADED_DPC`].
    pub kind: AtomicU8,
    /// 0 low, 1 medium, 2 high, 3 medium-high.
    pub importance: AtomicU8,
    /// Target processor plus one where one was set.
    pub number: AtomicU16,
    pad: AtomicU32,
    list: AtomicUsize,
    history: AtomicUsize,
    /// `DeferredRoutine`.
    pub routine: AtomicUsize,
    /// `DeferredContext`.
    pub context: AtomicUsize,
    /// `SystemArgument1`.
    pub argument1: AtomicUsize,
    /// `SystemArgument2`.
    pub argument2: AtomicUsize,
    /// `DpcData`: non-zero while queued.
    pub data: AtomicUsize,
}

/// `KSPIN_LOCK`: 0 is free.
pub type SpinLockWord = AtomicU64;

/// `KLOCK_QUEUE_HANDLE`.
#[repr(C)]
#[derive(Debug, Default)]
pub struct LockQueueHandle {
    next: AtomicUsize,
    /// Address of the lock word.
    pub lock: AtomicUsize,
    /// IRQL to go back to.
    pub old_irql: AtomicU8,
    pad: [AtomicU8; 7],
}

/// `FAST_MUTEX`.
#[repr(C)]
#[derive(Debug, Default)]
pub struct FastMutex {
    /// 1 free.
    pub count: AtomicI32,
    pad: AtomicU32,
    /// The owning thread's object address.
    pub owner: AtomicUsize,
    /// How often a thread had to wait.
    pub contention: AtomicU32,
    pad2: AtomicU32,
    /// Set on release.
    pub event: KEVENT,
    /// IRQL to go back to.
    pub old_irql: AtomicU32,
    pad3: AtomicU32,
}

/// `UNICODE_STRING`: lengths in bytes, UTF-16, not necessarily terminated.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct UnicodeString {
    /// Bytes used.
    pub length: u16,
    /// Bytes there are.
    pub maximum_length: u16,
    /// The characters.
    pub buffer: *mut u16,
}

/// `ANSI_STRING`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct AnsiString {
    /// Bytes used.
    pub length: u16,
    /// Bytes there are.
    pub maximum_length: u16,
    /// The characters.
    pub buffer: *mut u8,
}

/// `OBJECT_ATTRIBUTES`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ObjectAttributes {
    /// Size of this record.
    pub length: u32,
    /// Handle that the name is relative to, or 0.
    pub root_directory: u64,
    /// Name.
    pub object_name: *const UnicodeString,
    /// `OBJ_*` flags.
    pub attributes: u32,
    /// Not looked at.
    pub security_descriptor: usize,
    /// Not looked at.
    pub security_quality_of_service: usize,
}

/// The fixed part of `MDL`; page frame numbers (64 bits each) follow it.
#[repr(C, align(8))]
#[derive(Debug, Default)]
pub struct MDL {
    /// Next in a chain.
    pub next: AtomicUsize,
    /// Bytes of header and frame numbers.
    pub size: AtomicI16,
    /// `MDL_*` flags.
    pub flags: AtomicU16,
    pad: AtomicU32,
    /// Process whose pages these are, or 0.
    pub process: AtomicUsize,
    /// Where the pages are mapped for the system, if they are.
    pub mapped_system_va: AtomicUsize,
    /// Page-aligned start of the described buffer.
    pub start_va: AtomicUsize,
    /// Its length.
    pub byte_count: AtomicU32,
    /// Offset of its first byte in its first page.
    pub byte_offset: AtomicU32,
}

/// `MDL_MAPPED_TO_SYSTEM_VA`.
pub const MDL_MAPPED_TO_SYSTEM_VA: u16 = 0x0001;
/// `MDL_PAGES_LOCKED`.
pub const MDL_PAGES_LOCKED: u16 = 0x0002;
/// `MDL_SOURCE_IS_NONPAGED_POOL`.
pub const MDL_SOURCE_IS_NONPAGED_POOL: u16 = 0x0004;
/// `MDL_ALLOCATED_FIXED_SIZE`.
pub const MDL_ALLOCATED_FIXED_SIZE: u16 = 0x0008;
/// `MDL_PARTIAL`.
pub const MDL_PARTIAL: u16 = 0x0010;
/// `MDL_PARTIAL_HAS_BEEN_MAPPED`.
pub const MDL_PARTIAL_HAS_BEEN_MAPPED: u16 = 0x0020;
/// `MDL_WRITE_OPERATION`.
pub const MDL_WRITE_OPERATION: u16 = 0x0080;
/// `MDL_IO_SPACE`.
pub const MDL_IO_SPACE: u16 = 0x0800;
/// `MDL_MAPPING_CAN_FAIL`.
pub const MDL_MAPPING_CAN_FAIL: u16 = 0x2000;

/// `NTSTATUS` values that the services return.
#[expect(missing_docs, reason = "Microsoft's names, in Microsoft's list")]
pub mod status {
    pub type NtStatus = i32;
    const fn s(value: u32) -> NtStatus {
        // CAST: NTSTATUS is the signed reading of the published hexadecimal number.
        value as i32
    }
    pub const SUCCESS: NtStatus = s(0x0000_0000);
    pub const WAIT_0: NtStatus = s(0x0000_0000);
    pub const ABANDONED_WAIT_0: NtStatus = s(0x0000_0080);
    pub const TIMEOUT: NtStatus = s(0x0000_0102);
    pub const PENDING: NtStatus = s(0x0000_0103);
    pub const OBJECT_NAME_EXISTS: NtStatus = s(0x4000_0000);
    pub const BUFFER_OVERFLOW: NtStatus = s(0x8000_0005);
    pub const NO_MORE_ENTRIES: NtStatus = s(0x8000_001A);
    pub const UNSUCCESSFUL: NtStatus = s(0xC000_0001);
    pub const NOT_IMPLEMENTED: NtStatus = s(0xC000_0002);
    pub const INVALID_INFO_CLASS: NtStatus = s(0xC000_0003);
    pub const INFO_LENGTH_MISMATCH: NtStatus = s(0xC000_0004);
    pub const ACCESS_VIOLATION: NtStatus = s(0xC000_0005);
    pub const NOT_MAPPED_VIEW: NtStatus = s(0xC000_0019);
    pub const INVALID_PAGE_PROTECTION: NtStatus = s(0xC000_0045);
    pub const INVALID_HANDLE: NtStatus = s(0xC000_0008);
    pub const INVALID_PARAMETER: NtStatus = s(0xC000_000D);
    pub const NO_SUCH_DEVICE: NtStatus = s(0xC000_000E);
    pub const INVALID_DEVICE_REQUEST: NtStatus = s(0xC000_0010);
    pub const CONFLICTING_ADDRESSES: NtStatus = s(0xC000_0018);
    pub const ACCESS_DENIED: NtStatus = s(0xC000_0022);
    pub const INVALID_PARAMETER_2: NtStatus = s(0xC000_00F0);
    pub const BUFFER_TOO_SMALL: NtStatus = s(0xC000_0023);
    pub const OBJECT_TYPE_MISMATCH: NtStatus = s(0xC000_0024);
    pub const OBJECT_NAME_NOT_FOUND: NtStatus = s(0xC000_0034);
    pub const OBJECT_NAME_COLLISION: NtStatus = s(0xC000_0035);
    pub const MUTANT_NOT_OWNED: NtStatus = s(0xC000_0046);
    pub const SEMAPHORE_LIMIT_EXCEEDED: NtStatus = s(0xC000_0047);
    pub const THREAD_IS_TERMINATING: NtStatus = s(0xC000_004B);
    pub const INSUFFICIENT_RESOURCES: NtStatus = s(0xC000_009A);
    pub const NOT_SUPPORTED: NtStatus = s(0xC000_00BB);
    pub const CANCELLED: NtStatus = s(0xC000_0120);
    pub const DRIVER_UNABLE_TO_LOAD: NtStatus = s(0xC000_026C);
    /// What waits return once the machine has stopped; Windows would not return at all.
    pub const SYSTEM_SHUTDOWN: NtStatus = s(0xC000_02EB);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::offset_of;

    #[test]
    fn sizes_are_those_of_windows() {
        assert_eq!(size_of::<DispatcherHeader>(), 0x18);
        assert_eq!(size_of::<KEVENT>(), 0x18);
        assert_eq!(size_of::<KSEMAPHORE>(), 0x20);
        assert_eq!(size_of::<KMUTANT>(), 0x38);
        assert_eq!(size_of::<KTIMER>(), 0x40);
        assert_eq!(size_of::<KDPC>(), 0x40);
        assert_eq!(size_of::<SpinLockWord>(), 8);
        assert_eq!(size_of::<LockQueueHandle>(), 0x18);
        assert_eq!(size_of::<FastMutex>(), 0x38);
        assert_eq!(size_of::<UnicodeString>(), 0x10);
        assert_eq!(size_of::<ObjectAttributes>(), 0x30);
        assert_eq!(size_of::<MDL>(), 0x30);
    }

    #[test]
    fn offsets_are_those_of_windows() {
        assert_eq!(offset_of!(DispatcherHeader, signal_state), 4);
        assert_eq!(offset_of!(DispatcherHeader, wait_list), 8);
        assert_eq!(offset_of!(KMUTANT, owner), 0x28);
        assert_eq!(offset_of!(KTIMER, due_time), 0x18);
        assert_eq!(offset_of!(KTIMER, dpc), 0x30);
        assert_eq!(offset_of!(KTIMER, period), 0x3C);
        assert_eq!(offset_of!(KDPC, routine), 0x18);
        assert_eq!(offset_of!(KDPC, data), 0x38);
        assert_eq!(offset_of!(LockQueueHandle, old_irql), 0x10);
        assert_eq!(offset_of!(FastMutex, event), 0x18);
        assert_eq!(offset_of!(FastMutex, old_irql), 0x30);
        assert_eq!(offset_of!(MDL, flags), 0x0A);
        assert_eq!(offset_of!(MDL, mapped_system_va), 0x18);
        assert_eq!(offset_of!(MDL, byte_offset), 0x2C);
    }
}
