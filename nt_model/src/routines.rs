//! The services by name, with the IRQL at which each may be called.
//!
//! The limits are not written here: they are read at start-up from `facts/routines.tsv`, which was made from the SAL
//! annotations of Microsoft's headers (build 22621) and, where those are silent, from the documentation. A [`Routine`]
//! says only what that table cannot: the argument names to print, which annotation belongs to which case of a
//! conditional limit, and the Driver Verifier code where it has one of its own.

use std::collections::HashMap;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// PASSIVE_LEVEL.
pub const PASSIVE_LEVEL: u8 = 0;
/// APC_LEVEL.
pub const APC_LEVEL: u8 = 1;
/// DISPATCH_LEVEL.
pub const DISPATCH_LEVEL: u8 = 2;
/// The highest level at which a device of x64 Windows interrupts (levels 3 to 11 belong to devices).
pub const MAX_DEVICE_LEVEL: u8 = 11;
/// CLOCK_LEVEL and IPI_LEVEL of x64.
pub const IPI_LEVEL: u8 = 14;
/// HIGH_LEVEL.
pub const HIGH_LEVEL: u8 = 15;

/// A service that drivers call.
#[derive(Debug)]
pub struct Routine {
    /// Microsoft's name.
    pub name: &'static str,
    /// Names of the arguments, for printing.
    pub arguments: &'static [&'static str],
    /// Conditions under which a limit of its own holds, in the words of `routines.tsv`.
    pub(crate) conditions: &'static [&'static str],
    /// First parameter of bug check 0xC4 when the IRQL is wrong.
    pub(crate) verifier: u32,
    /// Byte 0: minimum; byte 1: maximum; bytes 2 to 7: maximum under each condition.
    limits: AtomicU64,
}

/// No limit known: every level passes.
const OPEN: u64 = 0x0F0F_0F0F_0F0F_0F00;

impl Routine {
    /// For tables of services: this crate's and those of other crates ([`shims!`](crate::shims!)).
    pub const fn new(name: &'static str, arguments: &'static [&'static str]) -> Self {
        Self { name, arguments, conditions: &[], verifier: 0xE5, limits: AtomicU64::new(OPEN) }
    }

    /// A routine whose limits no table holds (a callback of another component): between `min` and `max`.
    pub const fn limited(name: &'static str, arguments: &'static [&'static str], min: u8, max: u8) -> Self {
        let limits = (OPEN & !0xFFFF) | ((max as u64) << 8) | min as u64;
        Self { name, arguments, conditions: &[], verifier: 0xE5, limits: AtomicU64::new(limits) }
    }

    const fn conditions(mut self, conditions: &'static [&'static str]) -> Self {
        self.conditions = conditions;
        self
    }

    const fn verifier(mut self, verifier: u32) -> Self {
        self.verifier = verifier;
        self
    }

    /// Whether `irql` lies within the limits that hold in every case.
    #[inline]
    pub(crate) fn allows(&self, irql: u8) -> bool {
        let limits = self.limits.load(Ordering::Relaxed);
        irql >= limits as u8 && irql <= (limits >> 8) as u8
    }

    /// Whether `irql` lies within the limit of condition number `condition`.
    #[inline]
    pub(crate) fn allows_when(&self, condition: usize, irql: u8) -> bool {
        irql <= (self.limits.load(Ordering::Relaxed) >> (16 + 8 * condition)) as u8
    }

    /// Lowest and highest level at which the routine may be called in every case.
    pub fn limits(&self) -> (u8, u8) {
        let limits = self.limits.load(Ordering::Relaxed);
        (limits as u8, (limits >> 8) as u8)
    }

    fn resolve(&self, facts: &Facts) {
        let Some(limits) = facts.0.get(self.name) else { return };
        let mut packed = u64::from(limits.min) | u64::from(limits.max) << 8;
        for at in 0..6 {
            let max = self.conditions.get(at).and_then(|condition| limits.when.get(condition)).copied();
            packed |= u64::from(max.unwrap_or(HIGH_LEVEL)) << (16 + 8 * at);
        }
        self.limits.store(packed, Ordering::Relaxed);
    }
}

/// One row of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    pub(crate) min: u8,
    pub(crate) max: u8,
    pub(crate) when: HashMap<&'static str, u8>,
    /// `export`, `inline`, `macro`, `function`.
    pub(crate) kind: &'static str,
    /// `nt`, `hal`, `inline`, `-`.
    pub(crate) import: &'static str,
    /// Whether header or documentation says anything.
    pub(crate) known: bool,
}

/// `routines.tsv`, parsed.
#[derive(Debug)]
pub(crate) struct Facts(pub(crate) HashMap<&'static str, Limits>);

static TABLE: &str = include_str!("../facts/routines.tsv");

/// The table; parsed, and every [`Routine`] of this crate resolved, at the first call.
pub(crate) fn facts() -> &'static Facts {
    static FACTS: OnceLock<Facts> = OnceLock::new();
    FACTS.get_or_init(|| {
        let facts = Facts(TABLE.lines().filter(|line| !line.starts_with('#')).filter_map(parse_row).collect());
        for routine in ROUTINES {
            routine.resolve(&facts);
        }
        facts
    })
}

/// Whether Windows exports a kernel routine of this name, as far as the table knows.
pub(crate) fn is_known_export(name: &str) -> bool {
    facts().0.get(name).is_some_and(|row| matches!(row.import, "nt" | "hal") || row.kind == "export")
}

fn parse_row(line: &'static str) -> Option<(&'static str, Limits)> {
    let mut columns = line.split('\t');
    let name = columns.next()?;
    let kind = columns.nth(1)?;
    let import = columns.next()?;
    let header = columns.next()?;
    let docs = columns.next().unwrap_or("-");
    let mut limits = Limits { min: PASSIVE_LEVEL, max: HIGH_LEVEL, when: HashMap::new(), kind, import, known: false };
    if header != "-" {
        parse_header(header, &mut limits);
    } else if let Some((min, max)) = parse_docs(docs) {
        (limits.min, limits.max, limits.known) = (min, max, true);
    }
    Some((name, limits))
}

/// `max X`, `min X`, `= X`, `raises to X`, each with `when condition`, separated by semicolons.
fn parse_header(text: &'static str, limits: &mut Limits) {
    for clause in text.split(';') {
        let (clause, condition) = match clause.split_once(" when ") {
            Some((clause, condition)) => (clause.trim(), Some(condition.trim())),
            None => (clause.trim(), None),
        };
        let Some((what, level)) = clause.rsplit_once(' ') else { continue };
        let Some(level) = level_of(level) else { continue };
        match (what, condition) {
            ("max", None) => limits.max = level,
            ("max", Some(condition)) => _ = limits.when.insert(condition, level),
            ("min", None) => limits.min = level,
            ("=", None) => (limits.min, limits.max) = (level, level),
            // What raises to a level is not called above it.
            ("raises to", None) => limits.max = limits.max.min(level),
            _ => continue,
        }
        limits.known = true;
    }
}

/// The documentation's words. `None`: silent, or only "see remarks".
fn parse_docs(text: &str) -> Option<(u8, u8)> {
    let text = text.split('(').next()?.trim();
    let text = text.strip_prefix("IRQL").unwrap_or(text).trim();
    let (bound, level) = match text.strip_prefix("<=") {
        Some(level) => ("<=", level),
        None => match text.strip_prefix('<') {
            Some(level) => ("<", level),
            None => ("=", text),
        },
    };
    let level = level.trim();
    if level.eq_ignore_ascii_case("any level") || level.eq_ignore_ascii_case("any") {
        return Some((PASSIVE_LEVEL, HIGH_LEVEL));
    }
    let level = level_of(level)?;
    Some(match bound {
        "<=" => (PASSIVE_LEVEL, level),
        "<" => (PASSIVE_LEVEL, level.saturating_sub(1)),
        _ => (level, level),
    })
}

fn level_of(name: &str) -> Option<u8> {
    Some(match name {
        "PASSIVE_LEVEL" => PASSIVE_LEVEL,
        "APC_LEVEL" => APC_LEVEL,
        "DISPATCH_LEVEL" | "DPC_LEVEL" => DISPATCH_LEVEL,
        "SYNCH_LEVEL" => 12,
        "DIRQL" => 12,
        "IPI_LEVEL" => IPI_LEVEL,
        "IPI_LEVEL-1" => IPI_LEVEL - 1,
        "HIGH_LEVEL" => HIGH_LEVEL,
        _ => return None,
    })
}

macro_rules! routines {
    ($($id:ident = $name:literal ( $($arg:ident),* ) $(when [$($condition:literal),*])? $(verifier $code:literal)?;)*) => {
        $(
            #[doc = concat!("`", $name, "`.")]
            pub(crate) static $id: Routine = Routine::new($name, &[$(stringify!($arg)),*])
                $(.conditions(&[$($condition),*]))?
                $(.verifier($code))?;
        )*
        static ROUTINES: &[&Routine] = &[$(&$id),*];
    };
}

routines! {
    EX_ALLOCATE_POOL2 = "ExAllocatePool2"(Flags, NumberOfBytes, Tag)
        when ["(Flags & POOL_FLAG_PAGED) == 0", "(Flags & POOL_FLAG_PAGED) != 0"] verifier 0x2;
    EX_ALLOCATE_POOL_WITH_TAG = "ExAllocatePoolWithTag"(PoolType, NumberOfBytes, Tag)
        when ["(PoolType & PagedPool) == 0", "(PoolType & PagedPool) != 0"] verifier 0x2;
    EX_FREE_POOL = "ExFreePool"(P) verifier 0x12;
    EX_FREE_POOL_WITH_TAG = "ExFreePoolWithTag"(P, Tag) verifier 0x12;

    KE_GET_CURRENT_IRQL = "KeGetCurrentIrql"();
    KF_RAISE_IRQL = "KfRaiseIrql"(NewIrql) verifier 0x30;
    KE_LOWER_IRQL = "KeLowerIrql"(NewIrql) verifier 0x31;
    KE_RAISE_IRQL_TO_DPC_LEVEL = "KeRaiseIrqlToDpcLevel"() verifier 0x30;

    KE_ACQUIRE_SPIN_LOCK_RAISE_TO_DPC = "KeAcquireSpinLockRaiseToDpc"(SpinLock) verifier 0x42;
    KE_RELEASE_SPIN_LOCK = "KeReleaseSpinLock"(SpinLock, NewIrql) verifier 0x32;
    KE_ACQUIRE_SPIN_LOCK_AT_DPC_LEVEL = "KeAcquireSpinLockAtDpcLevel"(SpinLock) verifier 0x40;
    KE_RELEASE_SPIN_LOCK_FROM_DPC_LEVEL = "KeReleaseSpinLockFromDpcLevel"(SpinLock) verifier 0x41;
    KE_TRY_TO_ACQUIRE_SPIN_LOCK_AT_DPC_LEVEL = "KeTryToAcquireSpinLockAtDpcLevel"(SpinLock) verifier 0x40;
    KE_TEST_SPIN_LOCK = "KeTestSpinLock"(SpinLock);
    KE_INITIALIZE_SPIN_LOCK = "KeInitializeSpinLock"(SpinLock);
    KE_ACQUIRE_IN_STACK_QUEUED_SPIN_LOCK = "KeAcquireInStackQueuedSpinLock"(SpinLock, LockHandle) verifier 0x42;
    KE_RELEASE_IN_STACK_QUEUED_SPIN_LOCK = "KeReleaseInStackQueuedSpinLock"(LockHandle) verifier 0x32;
    KE_ACQUIRE_IN_STACK_QUEUED_SPIN_LOCK_AT_DPC_LEVEL = "KeAcquireInStackQueuedSpinLockAtDpcLevel"(SpinLock, LockHandle) verifier 0x40;
    KE_RELEASE_IN_STACK_QUEUED_SPIN_LOCK_FROM_DPC_LEVEL = "KeReleaseInStackQueuedSpinLockFromDpcLevel"(LockHandle) verifier 0x41;
    EX_ACQUIRE_SPIN_LOCK_EXCLUSIVE = "ExAcquireSpinLockExclusive"(SpinLock) verifier 0x42;
    EX_RELEASE_SPIN_LOCK_EXCLUSIVE = "ExReleaseSpinLockExclusive"(SpinLock, OldIrql) verifier 0x32;
    EX_ACQUIRE_SPIN_LOCK_SHARED = "ExAcquireSpinLockShared"(SpinLock) verifier 0x42;
    EX_RELEASE_SPIN_LOCK_SHARED = "ExReleaseSpinLockShared"(SpinLock, OldIrql) verifier 0x32;

    EX_INITIALIZE_N_PAGED_LOOKASIDE_LIST = "ExInitializeNPagedLookasideList"(Lookaside, Allocate, Free, Flags, Size, Tag);
    EX_DELETE_N_PAGED_LOOKASIDE_LIST = "ExDeleteNPagedLookasideList"(Lookaside);
    EX_QUERY_DEPTH_S_LIST = "ExQueryDepthSList"(SListHead);
    EX_SET_TIMER_RESOLUTION = "ExSetTimerResolution"(DesiredTime, SetResolution);
    EX_GET_PREVIOUS_MODE = "ExGetPreviousMode"();
    IO_CREATE_NOTIFICATION_EVENT = "IoCreateNotificationEvent"(EventName, EventHandle);
    IO_CREATE_SYNCHRONIZATION_EVENT = "IoCreateSynchronizationEvent"(EventName, EventHandle);
    KE_ATTACH_PROCESS = "KeAttachProcess"(Process);
    KE_DETACH_PROCESS = "KeDetachProcess"();
    KE_STACK_ATTACH_PROCESS = "KeStackAttachProcess"(Process, ApcState);
    KE_UNSTACK_DETACH_PROCESS = "KeUnstackDetachProcess"(ApcState);
    PS_REFERENCE_PRIMARY_TOKEN = "PsReferencePrimaryToken"(Process);
    PS_DEREFERENCE_PRIMARY_TOKEN = "PsDereferencePrimaryToken"(PrimaryToken);
    SE_TOKEN_IS_ADMIN = "SeTokenIsAdmin"(Token);

    KE_INITIALIZE_EVENT = "KeInitializeEvent"(Event, Type, State);
    KE_SET_EVENT = "KeSetEvent"(Event, Increment, Wait) when ["Wait==0", "Wait==1"] verifier 0x80;
    KE_RESET_EVENT = "KeResetEvent"(Event);
    KE_CLEAR_EVENT = "KeClearEvent"(Event);
    KE_PULSE_EVENT = "KePulseEvent"(Event, Increment, Wait);
    KE_READ_STATE_EVENT = "KeReadStateEvent"(Event);
    KE_INITIALIZE_SEMAPHORE = "KeInitializeSemaphore"(Semaphore, Count, Limit);
    KE_RELEASE_SEMAPHORE = "KeReleaseSemaphore"(Semaphore, Increment, Adjustment, Wait) when ["Wait==0", "Wait==1"];
    KE_READ_STATE_SEMAPHORE = "KeReadStateSemaphore"(Semaphore);
    KE_INITIALIZE_MUTEX = "KeInitializeMutex"(Mutex, Level);
    KE_RELEASE_MUTEX = "KeReleaseMutex"(Mutex, Wait) when ["Wait==0", "Wait==1"];
    KE_READ_STATE_MUTEX = "KeReadStateMutex"(Mutex);
    KE_WAIT_FOR_SINGLE_OBJECT = "KeWaitForSingleObject"(Object, WaitReason, WaitMode, Alertable, Timeout)
        when ["(Timeout!=NULL && Timeout->QuadPart==0)", "(Timeout==NULL || Timeout->QuadPart!=0)"] verifier 0x121;
    KE_WAIT_FOR_MULTIPLE_OBJECTS = "KeWaitForMultipleObjects"(Count, Object, WaitType, WaitReason, Alertable, Timeout)
        when ["(Timeout!=NULL && Timeout->QuadPart==0)", "(Timeout==NULL || Timeout->QuadPart!=0)"] verifier 0x121;
    KE_DELAY_EXECUTION_THREAD = "KeDelayExecutionThread"(WaitMode, Alertable, Interval) verifier 0x121;
    KE_ENTER_CRITICAL_REGION = "KeEnterCriticalRegion"() verifier 0x11A;
    KE_LEAVE_CRITICAL_REGION = "KeLeaveCriticalRegion"() verifier 0x11B;
    EX_ACQUIRE_FAST_MUTEX = "ExAcquireFastMutex"(FastMutex) verifier 0x33;
    EX_RELEASE_FAST_MUTEX = "ExReleaseFastMutex"(FastMutex) verifier 0x34;
    EX_TRY_TO_ACQUIRE_FAST_MUTEX = "ExTryToAcquireFastMutex"(FastMutex) verifier 0x33;

    KE_INITIALIZE_TIMER = "KeInitializeTimer"(Timer);
    KE_INITIALIZE_TIMER_EX = "KeInitializeTimerEx"(Timer, Type);
    KE_SET_TIMER = "KeSetTimer"(Timer, DueTime, Dpc);
    KE_SET_TIMER_EX = "KeSetTimerEx"(Timer, DueTime, Period, Dpc);
    KE_SET_COALESCABLE_TIMER = "KeSetCoalescableTimer"(Timer, DueTime, Period, TolerableDelay, Dpc);
    KE_CANCEL_TIMER = "KeCancelTimer"(Timer);
    KE_READ_STATE_TIMER = "KeReadStateTimer"(Timer);

    KE_INITIALIZE_DPC = "KeInitializeDpc"(Dpc, DeferredRoutine, DeferredContext);
    KE_INITIALIZE_THREADED_DPC = "KeInitializeThreadedDpc"(Dpc, DeferredRoutine, DeferredContext);
    KE_INSERT_QUEUE_DPC = "KeInsertQueueDpc"(Dpc, SystemArgument1, SystemArgument2);
    KE_REMOVE_QUEUE_DPC = "KeRemoveQueueDpc"(Dpc);
    KE_SET_IMPORTANCE_DPC = "KeSetImportanceDpc"(Dpc, Importance);
    KE_SET_TARGET_PROCESSOR_DPC = "KeSetTargetProcessorDpc"(Dpc, Number);
    KE_FLUSH_QUEUED_DPCS = "KeFlushQueuedDpcs"();

    PS_CREATE_SYSTEM_THREAD = "PsCreateSystemThread"(ThreadHandle, DesiredAccess, ObjectAttributes, ProcessHandle, ClientId, StartRoutine);
    PS_TERMINATE_SYSTEM_THREAD = "PsTerminateSystemThread"(ExitStatus);
    OB_REFERENCE_OBJECT_BY_HANDLE = "ObReferenceObjectByHandle"(Handle, DesiredAccess, ObjectType, AccessMode, Object, HandleInformation);
    OBF_REFERENCE_OBJECT = "ObfReferenceObject"(Object);
    OBF_DEREFERENCE_OBJECT = "ObfDereferenceObject"(Object);
    ZW_CLOSE = "ZwClose"(Handle);
    KE_SET_PRIORITY_THREAD = "KeSetPriorityThread"(Thread, Priority);
    KE_GET_CURRENT_THREAD = "KeGetCurrentThread"();
    PS_GET_CURRENT_PROCESS = "PsGetCurrentProcess"();
    PS_GET_CURRENT_PROCESS_ID = "PsGetCurrentProcessId"();
    PS_GET_CURRENT_THREAD_ID = "PsGetCurrentThreadId"();
    KE_SET_SYSTEM_AFFINITY_THREAD_EX = "KeSetSystemAffinityThreadEx"(Affinity);
    KE_REVERT_TO_USER_AFFINITY_THREAD_EX = "KeRevertToUserAffinityThreadEx"(Affinity);
    KE_GET_CURRENT_PROCESSOR_NUMBER_EX = "KeGetCurrentProcessorNumberEx"(ProcNumber);
    KE_QUERY_ACTIVE_PROCESSOR_COUNT_EX = "KeQueryActiveProcessorCountEx"(GroupNumber);
    KE_IPI_GENERIC_CALL = "KeIpiGenericCall"(BroadcastFunction, Context);
    KE_STALL_EXECUTION_PROCESSOR = "KeStallExecutionProcessor"(MicroSeconds);
    KE_BUG_CHECK = "KeBugCheck"(BugCheckCode);
    KE_BUG_CHECK_EX = "KeBugCheckEx"(BugCheckCode, BugCheckParameter1, BugCheckParameter2, BugCheckParameter3, BugCheckParameter4);
    KE_SAVE_EXTENDED_PROCESSOR_STATE = "KeSaveExtendedProcessorState"(Mask, XStateSave);
    KE_RESTORE_EXTENDED_PROCESSOR_STATE = "KeRestoreExtendedProcessorState"(XStateSave);
    KE_SYNCHRONIZE_EXECUTION = "KeSynchronizeExecution"(Interrupt, SynchronizeRoutine, SynchronizeContext);
    KE_ACQUIRE_INTERRUPT_SPIN_LOCK = "KeAcquireInterruptSpinLock"(Interrupt);
    IO_CONNECT_INTERRUPT_EX = "IoConnectInterruptEx"(Vector);
    IO_DISCONNECT_INTERRUPT = "IoDisconnectInterrupt"(InterruptObject);
    EX_ALLOCATE_TIMER = "ExAllocateTimer"(Callback, CallbackContext, Attributes);
    EX_SET_TIMER = "ExSetTimer"(Timer, DueTime, Period, Parameters);
    EX_CANCEL_TIMER = "ExCancelTimer"(Timer, Parameters);
    EX_DELETE_TIMER = "ExDeleteTimer"(Timer, Cancel, Wait, Parameters);

    MM_ALLOCATE_CONTIGUOUS_MEMORY = "MmAllocateContiguousMemory"(NumberOfBytes, HighestAcceptableAddress);
    MM_ALLOCATE_CONTIGUOUS_MEMORY_SPECIFY_CACHE = "MmAllocateContiguousMemorySpecifyCache"(NumberOfBytes, Lowest, Highest, Boundary, CacheType);
    MM_ALLOCATE_CONTIGUOUS_NODE_MEMORY = "MmAllocateContiguousNodeMemory"(NumberOfBytes, Lowest, Highest, Boundary, Protect, PreferredNode);
    MM_FREE_CONTIGUOUS_MEMORY = "MmFreeContiguousMemory"(BaseAddress);
    MM_FREE_CONTIGUOUS_MEMORY_SPECIFY_CACHE = "MmFreeContiguousMemorySpecifyCache"(BaseAddress, NumberOfBytes, CacheType);
    MM_ALLOCATE_PAGES_FOR_MDL_EX = "MmAllocatePagesForMdlEx"(LowAddress, HighAddress, SkipBytes, TotalBytes, CacheType, Flags) verifier 0x7E;
    MM_FREE_PAGES_FROM_MDL = "MmFreePagesFromMdl"(MemoryDescriptorList) verifier 0x7E;
    IO_ALLOCATE_MDL = "IoAllocateMdl"(VirtualAddress, Length, SecondaryBuffer, ChargeQuota, Irp);
    IO_FREE_MDL = "IoFreeMdl"(Mdl);
    IO_BUILD_PARTIAL_MDL = "IoBuildPartialMdl"(SourceMdl, TargetMdl, VirtualAddress, Length);
    MM_BUILD_MDL_FOR_NON_PAGED_POOL = "MmBuildMdlForNonPagedPool"(MemoryDescriptorList);
    MM_PROBE_AND_LOCK_PAGES = "MmProbeAndLockPages"(MemoryDescriptorList, AccessMode, Operation) verifier 0x70;
    MM_UNLOCK_PAGES = "MmUnlockPages"(MemoryDescriptorList) verifier 0x78;
    MM_MAP_LOCKED_PAGES_SPECIFY_CACHE = "MmMapLockedPagesSpecifyCache"(Mdl, AccessMode, CacheType, RequestedAddress, BugCheckOnFailure, Priority)
        when ["AccessMode==KernelMode", "AccessMode==UserMode"] verifier 0x76;
    MM_UNMAP_LOCKED_PAGES = "MmUnmapLockedPages"(BaseAddress, Mdl) verifier 0x79;
    MM_ALLOCATE_MAPPING_ADDRESS = "MmAllocateMappingAddress"(NumberOfBytes, PoolTag);
    MM_FREE_MAPPING_ADDRESS = "MmFreeMappingAddress"(BaseAddress, PoolTag);
    MM_MAP_LOCKED_PAGES_WITH_RESERVED_MAPPING = "MmMapLockedPagesWithReservedMapping"(MappingAddress, PoolTag, Mdl, CacheType);
    MM_UNMAP_RESERVED_MAPPING = "MmUnmapReservedMapping"(BaseAddress, PoolTag, Mdl);
    MM_PROTECT_MDL_SYSTEM_ADDRESS = "MmProtectMdlSystemAddress"(MemoryDescriptorList, NewProtect);
    MM_GET_CACHE_ATTRIBUTE = "MmGetCacheAttribute"(PhysicalAddress);
    MM_GET_PHYSICAL_ADDRESS = "MmGetPhysicalAddress"(BaseAddress);
    MM_MAP_IO_SPACE = "MmMapIoSpace"(PhysicalAddress, NumberOfBytes, CacheType) verifier 0x73;
    MM_MAP_IO_SPACE_EX = "MmMapIoSpaceEx"(PhysicalAddress, NumberOfBytes, Protect) verifier 0x73;
    MM_UNMAP_IO_SPACE = "MmUnmapIoSpace"(BaseAddress, NumberOfBytes) verifier 0x7B;
    MM_IS_ADDRESS_VALID = "MmIsAddressValid"(VirtualAddress);
    MM_GET_SYSTEM_ROUTINE_ADDRESS = "MmGetSystemRoutineAddress"(SystemRoutineName);
    MM_COPY_MEMORY = "MmCopyMemory"(TargetAddress, SourceAddress, NumberOfBytes, Flags, NumberOfBytesTransferred);

    RTL_QUERY_REGISTRY_VALUES = "RtlQueryRegistryValues"(RelativeTo, Path, QueryTable, Context, Environment);
    RTL_INTEGER_TO_UNICODE_STRING = "RtlIntegerToUnicodeString"(Value, Base);
    RTL_GET_VERSION = "RtlGetVersion"(VersionInformation);
    ZW_OPEN_KEY = "ZwOpenKey"(KeyHandle, DesiredAccess, ObjectAttributes);
    ZW_CREATE_KEY = "ZwCreateKey"(KeyHandle, DesiredAccess, ObjectAttributes, TitleIndex, Class, CreateOptions);
    ZW_QUERY_VALUE_KEY = "ZwQueryValueKey"(KeyHandle, ValueName, KeyValueInformationClass, KeyValueInformation, Length, ResultLength);
    ZW_SET_VALUE_KEY = "ZwSetValueKey"(KeyHandle, ValueName, TitleIndex, Type, Data, DataSize);
    ZW_ENUMERATE_KEY = "ZwEnumerateKey"(KeyHandle, Index, KeyInformationClass, KeyInformation, Length, ResultLength);
    ZW_DELETE_KEY = "ZwDeleteKey"(KeyHandle);
    IO_OPEN_DEVICE_REGISTRY_KEY = "IoOpenDeviceRegistryKey"(DeviceObject, DevInstKeyType, DesiredAccess, DeviceRegKey);
    ZW_LOAD_DRIVER = "ZwLoadDriver"(DriverServiceName);
    ZW_UNLOAD_DRIVER = "ZwUnloadDriver"(DriverServiceName);

    IO_WMI_REGISTRATION_CONTROL = "IoWMIRegistrationControl"(DeviceObject, Action);
    IO_CREATE_DEVICE = "IoCreateDevice"(DriverObject, DeviceExtensionSize, DeviceName, DeviceType, DeviceCharacteristics, Exclusive);
    IO_DELETE_DEVICE = "IoDeleteDevice"(DeviceObject);
    IO_CREATE_SYMBOLIC_LINK = "IoCreateSymbolicLink"(SymbolicLinkName, DeviceName);
    IO_DELETE_SYMBOLIC_LINK = "IoDeleteSymbolicLink"(SymbolicLinkName);
    IO_GET_DEVICE_OBJECT_POINTER = "IoGetDeviceObjectPointer"(ObjectName, DesiredAccess, FileObject, DeviceObject);
    IO_GET_DEVICE_PROPERTY = "IoGetDeviceProperty"(DeviceObject, DeviceProperty, BufferLength, PropertyBuffer, ResultLength);
    IO_GET_RELATED_DEVICE_OBJECT = "IoGetRelatedDeviceObject"(FileObject);
    ZW_CREATE_FILE = "ZwCreateFile"(FileHandle, DesiredAccess, ObjectAttributes, IoStatusBlock, AllocationSize, FileAttributes);
    IO_BUILD_SYNCHRONOUS_FSD_REQUEST = "IoBuildSynchronousFsdRequest"(MajorFunction, DeviceObject, Buffer, Length, StartingOffset, Event);
    IO_BUILD_DEVICE_IO_CONTROL_REQUEST = "IoBuildDeviceIoControlRequest"(IoControlCode, DeviceObject, InputBuffer, InputBufferLength, OutputBuffer, OutputBufferLength);
    IO_ALLOCATE_IRP = "IoAllocateIrp"(StackSize, ChargeQuota);
    IO_FREE_IRP = "IoFreeIrp"(Irp);
    IOF_CALL_DRIVER = "IofCallDriver"(DeviceObject, Irp);
    IOF_COMPLETE_REQUEST = "IofCompleteRequest"(Irp, PriorityBoost);
    IO_ATTACH_DEVICE_TO_DEVICE_STACK = "IoAttachDeviceToDeviceStack"(SourceDevice, TargetDevice);
    IO_DETACH_DEVICE = "IoDetachDevice"(TargetDevice);
    IO_ALLOCATE_WORK_ITEM = "IoAllocateWorkItem"(DeviceObject);
    IO_FREE_WORK_ITEM = "IoFreeWorkItem"(IoWorkItem);
    IO_QUEUE_WORK_ITEM = "IoQueueWorkItem"(IoWorkItem, WorkerRoutine, QueueType, Context);

    ETW_REGISTER = "EtwRegister"(ProviderId, EnableCallback, CallbackContext, RegHandle);
    ETW_UNREGISTER = "EtwUnregister"(RegHandle);
    ETW_SET_INFORMATION = "EtwSetInformation"(RegHandle, InformationClass, EventInformation, InformationLength);
    ETW_WRITE = "EtwWrite"(RegHandle, EventDescriptor, ActivityId, UserDataCount, UserData);
    ETW_WRITE_TRANSFER = "EtwWriteTransfer"(RegHandle, EventDescriptor, ActivityId, RelatedActivityId, UserDataCount, UserData);

    KE_REGISTER_BUG_CHECK_REASON_CALLBACK = "KeRegisterBugCheckReasonCallback"(CallbackRecord, CallbackRoutine, Reason, Component);
    KE_DEREGISTER_BUG_CHECK_REASON_CALLBACK = "KeDeregisterBugCheckReasonCallback"(CallbackRecord);

    DBG_PRINT = "DbgPrint"(Format);
    DBG_PRINT_EX = "DbgPrintEx"(ComponentId, Level, Format);
    VDBG_PRINT_EX = "vDbgPrintEx"(ComponentId, Level, Format, Arglist);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_come_from_the_table() {
        facts();
        assert_eq!(PS_CREATE_SYSTEM_THREAD.limits(), (PASSIVE_LEVEL, PASSIVE_LEVEL));
        assert_eq!(KE_RELEASE_SPIN_LOCK.limits(), (DISPATCH_LEVEL, DISPATCH_LEVEL));
        assert_eq!(KE_ACQUIRE_SPIN_LOCK_AT_DPC_LEVEL.limits(), (DISPATCH_LEVEL, HIGH_LEVEL));
        assert_eq!(KE_FLUSH_QUEUED_DPCS.limits(), (PASSIVE_LEVEL, APC_LEVEL));
        assert_eq!(KE_QUERY_ACTIVE_PROCESSOR_COUNT_EX.limits(), (PASSIVE_LEVEL, HIGH_LEVEL));
    }

    #[test]
    fn conditional_limits_come_from_the_table() {
        facts();
        assert!(EX_ALLOCATE_POOL2.allows_when(0, DISPATCH_LEVEL));
        assert!(!EX_ALLOCATE_POOL2.allows_when(1, DISPATCH_LEVEL));
        assert!(KE_WAIT_FOR_SINGLE_OBJECT.allows_when(0, DISPATCH_LEVEL));
        assert!(!KE_WAIT_FOR_SINGLE_OBJECT.allows_when(1, DISPATCH_LEVEL));
    }

    /// A condition that is not in the table would silently be "any level".
    #[test]
    fn every_condition_is_in_the_table() {
        for routine in ROUTINES {
            for condition in routine.conditions {
                let row = facts().0.get(routine.name);
                assert!(row.is_some_and(|row| row.when.contains_key(condition)), "{}: {condition}", routine.name);
            }
        }
    }

    /// Routines for which neither header nor documentation gives a level. New names here need a look at the remarks.
    #[test]
    fn routines_without_a_limit_are_these() {
        let silent: Vec<_> = ROUTINES
            .iter()
            .map(|routine| routine.name)
            .filter(|name| !facts().0.get(name).is_some_and(|row| row.known))
            .collect();
        assert_eq!(silent, SILENT);
    }

    /// KeTestSpinLock and PsGetCurrentProcess read one word and are called at any level; ExDeleteTimer's limit depends
    /// on its arguments, and the flush inside it checks the strict case.
    const SILENT: &[&str] = &["KeTestSpinLock", "PsGetCurrentProcess", "ExDeleteTimer"];

    #[test]
    fn documentation_wordings_parse() {
        assert_eq!(parse_docs("<= DISPATCH_LEVEL (see Remarks section)"), Some((0, 2)));
        assert_eq!(parse_docs("IRQL <= DISPATCH_LEVEL"), Some((0, 2)));
        assert_eq!(parse_docs("< DISPATCH_LEVEL"), Some((0, 1)));
        assert_eq!(parse_docs("IRQL <= DIRQL (see Comments section)"), Some((0, 12)));
        assert_eq!(parse_docs("PASSIVE_LEVEL"), Some((0, 0)));
        assert_eq!(parse_docs("Any level (see Remarks section)"), Some((0, 15)));
        assert_eq!(parse_docs("See Remarks section."), None);
        assert_eq!(parse_docs("-"), None);
    }
}
