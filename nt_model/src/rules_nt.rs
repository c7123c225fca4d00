//! The rules of the kernel services. Each has a test that breaks it, beside the service that checks it.
//!
//! "Verifier 0xC4/n" is bug check DRIVER_VERIFIER_DETECTED_VIOLATION with first parameter n, in Microsoft's bug check
//! reference (windows-driver-docs, debugger/bug-check-0xc4--driver-verifier-detected-violation).

use crate::rules;

rules! {
    /// Rules of the NT kernel services.
    pub list NT_RULES;

    /// Every service.
    NT_IRQL = "NT-IRQL" {
        title: "a service is called at an IRQL that its declaration allows",
        source: "SAL annotations of wdm.h, ntddk.h, ntifs.h (22621), else the IRQL line of the routine's page; facts/routines.tsv",
        bugcheck: (0xC4, 0xE5),
        fix: "call it at a lower (or the stated) level, or move the work to a DPC or a thread that runs there",
    }
    /// Raising.
    NT_IRQL_RAISE = "NT-IRQL-RAISE" {
        title: "KeRaiseIrql raises to a level between the current one and HIGH_LEVEL",
        source: "Verifier 0xC4/0x30; wdm.h KeRaiseIrql",
        bugcheck: (0xC4, 0x30),
        fix: "raise only; go down with KeLowerIrql",
    }
    /// Lowering.
    NT_IRQL_LOWER = "NT-IRQL-LOWER" {
        title: "KeLowerIrql lowers to the level that KeRaiseIrql returned",
        source: "Verifier 0xC4/0x31; wdm.h KeLowerIrql",
        bugcheck: (0xC4, 0x31),
        fix: "pass the old level that KeRaiseIrql gave you",
    }
    /// Lowering with locks.
    NT_IRQL_LOWER_LOCKED = "NT-IRQL-LOWER-LOCKED" {
        title: "IRQL stays at DISPATCH_LEVEL or above while a spin lock is held",
        source: "windows-driver-docs kernel/introduction-to-spin-locks",
        bugcheck: (0xC4, 0x31),
        fix: "release the spin lock before you lower the IRQL",
    }
    /// Return of a driver routine.
    NT_IRQL_RETURN = "NT-IRQL-RETURN" {
        title: "a driver routine returns at the IRQL at which it was called",
        source: "bug check 0xC8 IRQL_UNEXPECTED_VALUE; Verifier 0xC4/0x111 for interrupt routines",
        bugcheck: (0xC8, 0x0),
        fix: "lower the IRQL (or release the lock) on every path out of the routine",
    }

    /// Recursion.
    NT_SPIN_RECURSIVE = "NT-SPIN-RECURSIVE" {
        title: "a thread does not take a spin lock that it holds",
        source: "Verifier 0xC4/0x1000; windows-driver-docs kernel/preventing-errors-and-deadlocks-while-using-spin-locks",
        bugcheck: (0xC4, 0x1000),
        fix: "split the routine so that the inner part expects the lock to be held",
    }
    /// Release without acquire.
    NT_SPIN_NOT_OWNED = "NT-SPIN-NOT-OWNED" {
        title: "a spin lock is released by the thread that holds it",
        source: "Verifier 0xC4/0x1007 (released before it was acquired), 0x1004 (by another thread)",
        bugcheck: (0xC4, 0x1007),
        fix: "pair every release with an acquire on the same thread",
    }
    /// Lock order.
    NT_SPIN_ORDER = "NT-SPIN-ORDER" {
        title: "spin locks are taken in one order everywhere",
        source: "Verifier 0xC4/0x1001 (lock hierarchy violation)",
        bugcheck: (0xC4, 0x1001),
        fix: "give the locks ranks and take them in that order",
    }
    /// Leaving with a lock.
    NT_SPIN_LEAKED = "NT-SPIN-LEAKED" {
        title: "a driver routine returns with the spin locks that it was called with",
        source: "Verifier 0xC4/0x100A (a thread ends owning a lock); windows-driver-docs kernel/introduction-to-spin-locks",
        bugcheck: (0xC4, 0x100A),
        fix: "release the lock on every path out of the routine",
    }
    /// Stuck.
    NT_SPIN_STUCK = "NT-SPIN-STUCK" {
        title: "a spin lock is held for a short time only",
        source: "windows-driver-docs kernel/introduction-to-spin-locks (25 microseconds); bug check 0x133 DPC_WATCHDOG_VIOLATION",
        bugcheck: (0x133, 0x1),
        fix: "look for the owner that waits, loops or never releases",
    }
    /// Release level.
    NT_SPIN_OLD_IRQL = "NT-SPIN-OLD-IRQL" {
        title: "KeReleaseSpinLock goes back to a level at or below DISPATCH_LEVEL",
        source: "wdm.h KeReleaseSpinLock: NewIrql is what KeAcquireSpinLock returned",
        bugcheck: (0xC4, 0x35),
        fix: "pass the level that KeAcquireSpinLock gave you",
    }
    /// Use of a lock of the wrong kind.
    NT_SPIN_KIND = "NT-SPIN-KIND" {
        title: "a lock word is used with one family of routines only, and is zero before its first use",
        source: "Verifier 0xC4/0x1008 (mismatched API), 0x1002 (uninitialized)",
        bugcheck: (0xC4, 0x1008),
        fix: "initialise the lock with KeInitializeSpinLock and use one family of routines on it",
    }

    /// Wait preconditions.
    NT_WAIT_LOCKED = "NT-WAIT-LOCKED" {
        title: "a thread does not wait while it holds a spin lock",
        source: "windows-driver-docs kernel/preventing-errors-and-deadlocks-while-using-spin-locks; Verifier 0xC4/0x121",
        bugcheck: (0xC4, 0x121),
        fix: "release the spin lock before the wait",
    }
    /// Dispatcher objects.
    NT_OBJECT_KIND = "NT-OBJECT-KIND" {
        title: "an object given to a service is initialised and of the kind that the service takes",
        source: "wdm.h KeInitializeEvent, KeInitializeTimer, KeInitializeDpc …: storage must be initialised first; Verifier 0xC4/0xE1",
        bugcheck: (0xC4, 0xE1),
        fix: "initialise the object before its first use, and do not overwrite it",
    }
    /// Reinitialisation.
    NT_OBJECT_IN_USE = "NT-OBJECT-IN-USE" {
        title: "an object is not initialised again while it is waited for, set or queued",
        source: "Verifier 0xC4/0x1005 (multiple initialisation); bug check 0xC7 TIMER_OR_DPC_INVALID",
        bugcheck: (0xC4, 0x1005),
        fix: "initialise once; to reset an event use KeClearEvent, to stop a timer KeCancelTimer",
    }
    /// Timers of ExAllocateTimer.
    NT_EX_TIMER = "NT-EX-TIMER" {
        title: "ExAllocateTimer is not asked for both HIGH_RESOLUTION and NO_WAKE, a high-resolution timer is set to a relative time, and ExDeleteTimer with Wait has Cancel",
        source: "wdm.h ExAllocateTimer (Attributes), ExSetTimer (DueTime), ExDeleteTimer (Cancel): the routine bug checks otherwise",
        bugcheck: none,
        fix: "set high-resolution timers by a negative time, and delete with Cancel and Wait",
    }
    /// Priorities.
    NT_PRIORITY = "NT-PRIORITY" {
        title: "KeSetPriorityThread is given a thread that a driver made, and a priority from 1 to 31",
        source: "wdm.h KeSetPriorityThread (a driver-created thread; LOW_PRIORITY is reserved), LOW_PRIORITY, HIGH_PRIORITY",
        bugcheck: none,
        fix: "set the priority of the driver's own system threads, LOW_REALTIME_PRIORITY (16) as a rule",
    }
    /// Mutexes.
    NT_MUTEX_NOT_OWNED = "NT-MUTEX-NOT-OWNED" {
        title: "a mutex is released by the thread that owns it",
        source: "wdm.h KeReleaseMutex (raises STATUS_MUTANT_NOT_OWNED); Verifier 0xC4/0x1004",
        bugcheck: (0xC4, 0x1004),
        fix: "release on the thread whose wait got the mutex",
    }
    /// Semaphores.
    NT_SEMAPHORE_LIMIT = "NT-SEMAPHORE-LIMIT" {
        title: "a semaphore's count stays within its limit",
        source: "wdm.h KeReleaseSemaphore (raises STATUS_SEMAPHORE_LIMIT_EXCEEDED)",
        bugcheck: (0x7E, 0xC0000047),
        fix: "release only what was taken, or raise the limit",
    }
    /// Deadlock of all threads under a deterministic scheduler.
    NT_DEADLOCK = "NT-DEADLOCK" {
        title: "some thread can always run, or some deadline is set",
        source: "the seeded scheduler's observation: every thread waits for another one",
        bugcheck: none,
        fix: "look at what each thread waits for; a wake-up was lost or an order inverted",
    }

    /// Threads.
    NT_THREAD_LEAKED = "NT-THREAD-LEAKED" {
        title: "a driver's system threads have ended before it is unloaded",
        source: "windows-driver-docs kernel/synchronizing-termination-of-driver-threads; bug check 0xCE",
        bugcheck: (0xCE, 0x0),
        fix: "signal the thread to end and wait for its object in the unload routine",
    }
    /// Termination.
    NT_THREAD_END = "NT-THREAD-END" {
        title: "PsTerminateSystemThread is called by a thread that PsCreateSystemThread made, in its own context",
        source: "wdm.h PsTerminateSystemThread, remarks",
        bugcheck: none,
        fix: "return from driver entry points; only system threads terminate themselves",
    }
    /// Handles.
    NT_HANDLE = "NT-HANDLE" {
        title: "a handle is open and names an object of the expected kind",
        source: "Verifier 0xC4/0x3C (bad handle), 0xF5 (null handle)",
        bugcheck: (0xC4, 0x3C),
        fix: "pass the handle that the creating routine returned, and only until ZwClose",
    }
    /// Open handles.
    NT_HANDLE_LEAKED = "NT-HANDLE-LEAKED" {
        title: "a driver has closed its handles before it is unloaded",
        source: "wdm.h ZwClose; windows-driver-docs kernel/object-handles",
        bugcheck: none,
        fix: "ZwClose each handle once",
    }
    /// References.
    NT_REFERENCE = "NT-REFERENCE" {
        title: "an object is referenced and dereferenced only while it has references",
        source: "Verifier 0xC4/0x3F",
        bugcheck: (0xC4, 0x3F),
        fix: "pair each ObDereferenceObject with the reference that you took",
    }

    /// Timers.
    NT_TIMER_LEAKED = "NT-TIMER-LEAKED" {
        title: "no timer is set when its memory is freed or its driver is unloaded",
        source: "Verifier 0xC4/0x15 (pool contains an active timer); bug check 0xC7 TIMER_OR_DPC_INVALID",
        bugcheck: (0xC7, 0x0),
        fix: "KeCancelTimer (and KeFlushQueuedDpcs for its DPC) before you free or unload",
    }
    /// DPCs.
    NT_DPC_LEAKED = "NT-DPC-LEAKED" {
        title: "no DPC is queued when its memory is freed or its driver is unloaded",
        source: "bug check 0xC7 TIMER_OR_DPC_INVALID; wdm.h KeFlushQueuedDpcs",
        bugcheck: (0xC7, 0x1),
        fix: "KeRemoveQueueDpc or KeFlushQueuedDpcs before you free or unload",
    }
    /// Objects waited for.
    NT_WAITED_FREED = "NT-WAITED-FREED" {
        title: "no thread waits for an object whose memory is freed",
        source: "Verifier 0xC4/0xE1; wdm.h KeWaitForSingleObject: the object's storage must be resident",
        bugcheck: (0xC4, 0xE1),
        fix: "wake and join the waiters before you free the memory",
    }

    /// Pool calls.
    NT_POOL_SIZE = "NT-POOL-SIZE" {
        title: "a pool request is not of zero bytes",
        source: "Verifier 0xC4/0x0; wdm.h ExAllocatePool2",
        bugcheck: (0xC4, 0x0),
        fix: "do not allocate when there is nothing to hold",
    }
    /// Pool tags.
    NT_POOL_TAG_ZERO = "NT-POOL-TAG-ZERO" {
        title: "a pool request has a tag",
        source: "wdm.h ExAllocatePool2 (Tag must not be zero); bug check 0xC2/0x9B",
        bugcheck: (0xC2, 0x9B),
        fix: "pass four printable characters that are unique to the driver",
    }
    /// Pool flags.
    NT_POOL_FLAGS = "NT-POOL-FLAGS" {
        title: "pool flags name one kind of pool and no unknown required flag",
        source: "wdm.h POOL_FLAGS: without a pool type, or with an unrecognised required flag, the call fails",
        bugcheck: none,
        fix: "pass exactly one of POOL_FLAG_NON_PAGED, _NON_PAGED_EXECUTE, _PAGED",
    }
    /// Freeing something else.
    NT_POOL_BAD_ADDRESS = "NT-POOL-BAD-ADDRESS" {
        title: "what is freed was returned by an allocation routine",
        source: "Verifier 0xC4/0x10",
        bugcheck: (0xC4, 0x10),
        fix: "free the address that the allocation returned",
    }
    /// Double free.
    NT_POOL_DOUBLE_FREE = "NT-POOL-DOUBLE-FREE" {
        title: "an allocation is freed once",
        source: "Verifier 0xC4/0x13; bug check 0xC2/0x7",
        bugcheck: (0xC4, 0x13),
        fix: "clear the pointer when you free it; look for two owners",
    }
    /// Wrong tag.
    NT_POOL_TAG = "NT-POOL-TAG" {
        title: "an allocation is freed with the tag that it was made with",
        source: "wdm.h ExFreePoolWithTag; bug check 0xC2/0xA",
        bugcheck: (0xC2, 0xA),
        fix: "use one constant for both calls",
    }
    /// Overrun.
    NT_POOL_OVERRUN = "NT-POOL-OVERRUN" {
        title: "a driver writes only inside its allocations",
        source: "Verifier 0xC4/0x53; bug check 0x19 BAD_POOL_HEADER",
        bugcheck: (0xC4, 0x53),
        fix: "check the length that is written; run with guard pages to stop at the store",
    }
    /// Use after free.
    NT_POOL_USE_AFTER_FREE = "NT-POOL-USE-AFTER-FREE" {
        title: "freed pool is not written",
        source: "bug check 0xC5 DRIVER_CORRUPTED_EXPOOL; Verifier special pool",
        bugcheck: (0xC5, 0x0),
        fix: "look for a pointer that outlives its allocation; run with guard pages to stop at the access",
    }
    /// Leaks.
    NT_POOL_LEAKED = "NT-POOL-LEAKED" {
        title: "a driver has freed its pool before it is unloaded",
        source: "Verifier 0xC4/0x60 and 0x62",
        bugcheck: (0xC4, 0x62),
        fix: "free it on the unload path; the tag and call site say which it is",
    }

    /// Kernel stack.
    NT_STACK = "NT-STACK" {
        title: "driver code stays within the kernel stack",
        source: "windows-driver-docs kernel/using-the-kernel-stack (the size differs by platform; no number for x64); \
            24 KiB: ntddk.h KERNEL_STACK_SIZE for x64; a driver that takes 17,936 bytes of them is known to start on 24H2",
        bugcheck: (0x7F, 0x8),
        fix: "move large locals to pool, flatten the call chain, or hand the work to a thread",
    }
    /// Wild accesses.
    NT_ACCESS = "NT-ACCESS" {
        title: "driver code touches only memory that it may touch",
        source: "bug checks 0x50 PAGE_FAULT_IN_NONPAGED_AREA, 0xD1 DRIVER_IRQL_NOT_LESS_OR_EQUAL",
        bugcheck: (0x50, 0x0),
        fix: "the address and the instruction say which pointer it is",
    }
    /// Exceptions.
    NT_EXCEPTION = "NT-EXCEPTION" {
        title: "driver code raises no processor exception",
        source: "bug check 0x7E SYSTEM_THREAD_EXCEPTION_NOT_HANDLED; 0x139 for __fastfail",
        bugcheck: (0x7E, 0x0),
        fix: "the instruction says what it did: ud2 is a compiler's trap, int 29h a __fastfail, int3 a break point",
    }
    /// Exceptions that are handled.
    NT_HANDLED = "NT-HANDLED" {
        title: "driver code raises no exception in a `__try`, which its `__except` would take: the model cannot go on there",
        source: "structured exceptions, which nt_model has not; x64 exception handling (UNWIND_INFO, SCOPE_TABLE)",
        bugcheck: none,
        severity: note,
        fix: "nothing: what is behind it is not judged",
    }
    /// Pointers given to services.
    NT_POINTER = "NT-POINTER" {
        title: "a pointer given to a service points to accessible memory",
        source: "Verifier 0xC4/0xE1; the routine's page",
        bugcheck: (0xC4, 0xE1),
        fix: "pass the address of live memory",
    }
    /// Bug checks by the driver.
    NT_BUGCHECK = "NT-BUGCHECK" {
        title: "a driver does not stop the machine",
        source: "wdm.h KeBugCheckEx",
        bugcheck: (0x0, 0x0),
        fix: "the code and parameters are the driver's own; look at its call",
    }
    /// Interrupt connections.
    NT_INT_CONNECT = "NT-INT-CONNECT" {
        title: "an interrupt is connected once, at a device level (3 to 11 on x64)",
        source: "wdm.h IoConnectInterruptEx; windows-driver-docs kernel/managing-hardware-priorities",
        bugcheck: none,
        fix: "connect with the level of the translated resource, and disconnect before you connect again",
    }
    /// Interrupts left.
    NT_INT_LEAKED = "NT-INT-LEAKED" {
        title: "no interrupt is connected when its driver is unloaded",
        source: "wdm.h IoDisconnectInterruptEx; bug check 0xCE",
        bugcheck: (0xCE, 0x0),
        fix: "disconnect in the stop path",
    }
    /// Interrupt storms.
    NT_INT_STORM = "NT-INT-STORM" {
        title: "a level-triggered interrupt is claimed and silenced by its device's routine",
        source: "windows-driver-docs kernel/writing-an-isr; display DXGKDDI_INTERRUPT_ROUTINE: return FALSE only for foreign interrupts, dismiss the own ones",
        bugcheck: none,
        fix: "acknowledge the device in the interrupt routine and return TRUE",
    }
    /// Mutexes at thread end.
    NT_MUTEX_LEAKED = "NT-MUTEX-LEAKED" {
        title: "a thread ends without owning a mutex",
        source: "bug check 0x4000008A THREAD_TERMINATE_HELD_MUTEX",
        bugcheck: (0x4000008A, 0x0),
        fix: "release the mutex on every path out of the thread",
    }
    /// Driver life.
    NT_DRIVER_ENTRY = "NT-DRIVER-ENTRY" {
        title: "a driver that DriverEntry leaves loaded can be unloaded: DriverUnload is set and its devices are deleted by it",
        source: "wdm.h DRIVER_UNLOAD; windows-driver-docs kernel/writing-an-unload-routine",
        bugcheck: none,
        fix: "set DriverObject->DriverUnload, and delete every device in it",
    }
    /// Device objects.
    NT_DEVICE = "NT-DEVICE" {
        title: "a device object given to a service was created and is not deleted",
        source: "wdm.h IoDeleteDevice, IofCallDriver",
        bugcheck: (0xC4, 0x3F),
        fix: "use a device object only between IoCreateDevice and IoDeleteDevice",
    }
    /// IRPs.
    NT_IRP = "NT-IRP" {
        title: "an IRP is completed once, not pending by mistake, and not used afterwards",
        source: "bug check 0x44 MULTIPLE_IRP_COMPLETE_REQUESTS; wdm.h IoCompleteRequest",
        bugcheck: (0x44, 0x0),
        fix: "complete each IRP on exactly one path",
    }
    /// ETW handles.
    NT_ETW_HANDLE = "NT-ETW-HANDLE" {
        title: "an ETW registration handle is used between EtwRegister and EtwUnregister",
        source: "Verifier 0xC4/0xDC",
        bugcheck: (0xC4, 0xDC),
        fix: "keep the handle and clear it when you unregister",
    }
    /// ETW at unload.
    NT_ETW_LEAKED = "NT-ETW-LEAKED" {
        title: "a driver has unregistered its ETW providers before it is unloaded",
        source: "Verifier 0xC4/0xDD",
        bugcheck: (0xC4, 0xDD),
        fix: "call EtwUnregister in the unload routine",
    }
    /// Bug check callbacks at unload.
    NT_BUG_CHECK_LEAKED = "NT-BUGCHECK-LEAKED" {
        title: "a driver has removed its bug check callbacks before it is unloaded",
        source: "Writing a Bug Check Callback Routine: must remove any registered callback routines in DRIVER_UNLOAD",
        bugcheck: none,
        fix: "call KeDeregisterBugCheckReasonCallback in the unload routine",
    }
    /// Lookaside lists.
    NT_LOOKASIDE = "NT-LOOKASIDE" {
        title: "a lookaside list is initialized once and deleted once",
        source: "DDI pages ExInitializeNPagedLookasideList, ExDeleteNPagedLookasideList",
        bugcheck: none,
        fix: "pair the two where the memory of the list is made and freed",
    }
    /// Lookaside lists at unload.
    NT_LOOKASIDE_LEAKED = "NT-LOOKASIDE-LEAKED" {
        title: "a driver has deleted its lookaside lists before it is unloaded",
        source: "bug check 0xCE (the driver did not cancel lookaside lists, DPCs, worker threads before it was unloaded)",
        bugcheck: (0xCE, 0x0),
        fix: "call ExDeleteNPagedLookasideList in the unload routine",
    }
    /// The clock at unload.
    NT_RESOLUTION_LEAKED = "NT-RESOLUTION-LEAKED" {
        title: "a driver has restored the clock's resolution before it is unloaded",
        source: "DDI page ExSetTimerResolution, Remarks",
        bugcheck: none,
        fix: "call ExSetTimerResolution(0, FALSE) as often as with TRUE",
    }
    /// Attaching to processes.
    NT_ATTACH = "NT-ATTACH" {
        title: "a thread attaches to a process that there is, detaches what it attached before it returns, and nests by \
            KeStackAttachProcess alone",
        source: "bug checks 0x5 INVALID_PROCESS_ATTACH_ATTEMPT, 0x6 INVALID_PROCESS_DETACH_ATTEMPT; DDI page \
            KeStackAttachProcess",
        bugcheck: (0x5, 0x0),
        fix: "detach on every path, and use KeStackAttachProcess",
    }
    /// Registry and other names.
    NT_UNICODE_STRING = "NT-UNICODE-STRING" {
        title: "a UNICODE_STRING given to a service is well formed: even length, not beyond its maximum, with a buffer",
        source: "Verifier 0xC4/0xE4",
        bugcheck: (0xC4, 0xE4),
        fix: "initialise it with RtlInitUnicodeString",
    }
    /// Extended state.
    NT_XSTATE = "NT-XSTATE" {
        title: "KeRestoreExtendedProcessorState gets what KeSaveExtendedProcessorState filled, once, on the same thread",
        source: "wdm.h KeRestoreExtendedProcessorState",
        bugcheck: (0x131, 0x0),
        fix: "pair save and restore in one routine",
    }
    /// Work items.
    NT_WORK_ITEM = "NT-WORK-ITEM" {
        title: "a work item is not queued twice, and not freed while it is queued",
        source: "wdm.h IoQueueWorkItem, IoFreeWorkItem; bug check 0xE4 WORKER_INVALID",
        bugcheck: (0xE4, 0x0),
        fix: "queue again only after the routine has begun, free after it has run",
    }
    /// A driver that keeps its caller.
    NT_RETURN = "NT-RETURN" {
        title: "a function of a driver returns, within the time that who runs it waits for (`check --deadline`)",
        source: "HLK PoliceDdi (a DDI takes 250 ms at most); what is looked for here is what never returns",
        bugcheck: none,
        fix: "bound each loop and each wait by what hardware may take; a panic handler that loops ends here, too: let \
            it call KeBugCheckEx",
    }
    /// Missing imports.
    NT_IMPORT = "NT-IMPORT" {
        title: "a driver calls only services that the model has",
        source: "nt_model's list of shims; the routine exists on Windows",
        bugcheck: none,
        severity: note,
        fix: "nothing in the driver: what is behind it is not judged. To judge it, add a shim for it to nt_model, or \
            register one with Kernel::register_import",
    }
}
