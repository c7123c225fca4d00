//! Rules of interrupts, notifications and DPCs.

use nt_model::rules;

rules! {
    /// Interrupts.
    pub list INTERRUPT_RULES;

    /// Fence ids of packets.
    INT_FENCE = "DXG-INT-FENCE" {
        title: "a completion, preemption or fault names a fence id that is outstanding on that node; as the last \
            completed one, that one, or 0 before the first completion",
        source: "bug check 0x119/0x1; DDI page DXGKARGCB_NOTIFY_INTERRUPT_DATA; article supplying-fence-identifiers",
        bugcheck: (0x119, 0x1),
        fix: "report each fence once, in submission order, from the section that takes it off the queue",
    }
    /// Nodes.
    INT_NODE = "DXG-INT-NODE" {
        title: "a notification names an existing node and engine",
        source: "DDI page DXGKARGCB_NOTIFY_INTERRUPT_DATA (NodeOrdinal, EngineOrdinal; engine 0 without a link)",
        bugcheck: none,
        fix: "use the ordinals of GetNodeMetadata, and engine 0 where no adapters are linked",
    }
    /// Types.
    INT_TYPE = "DXG-INT-TYPE" {
        title: "a notification has a type that fits the node: packet types on packet nodes, queue types on scheduled ones, native fences only when enabled",
        source: "DDI page DXGK_INTERRUPT_TYPE; article native-gpu-fence-objects",
        bugcheck: none,
        fix: "use the type of the node's scheduling model",
    }
    /// Vertical sync on a render-only adapter.
    INT_VSYNC = "DXG-INT-VSYNC" {
        title: "a render-only adapter reports no vertical sync",
        source: "bug check 0x119/0x7",
        bugcheck: (0x119, 0x7),
        fix: "do not report display interrupts without video present sources",
    }
    /// Adapters of a vertical sync.
    INT_ADAPTER_MASK = "DXG-INT-ADAPTER-MASK" {
        title: "a vertical sync of linked adapters names the physical adapters where it occurred",
        source: "bug check 0x119/0x6; DDI page DXGKARGCB_NOTIFY_INTERRUPT_DATA, PhysicalAdapterMask",
        bugcheck: (0x119, 0x6),
        fix: "set PhysicalAdapterMask, and Flags.ValidPhysicalAdapterMask",
    }
    /// Level and synchronisation.
    INT_LEVEL = "DXG-INT-LEVEL" {
        title: "DxgkCbNotifyInterrupt is called at the device's interrupt level, from the interrupt routine or a synchronised one",
        source: "DDI page DxgkCbNotifyInterrupt, remarks",
        bugcheck: none,
        fix: "call it inside a DxgkCbSynchronizeExecution routine",
    }
    /// Message number.
    INT_MESSAGE = "DXG-INT-MESSAGE" {
        title: "DxgkCbNotifyInterrupt is called from one interrupt message, the one that DRIVERCAPS.InterruptMessageNumber names",
        source: "DDI page DxgkCbNotifyInterrupt, remarks",
        bugcheck: none,
        fix: "report the message number, and synchronise with it",
    }
    /// Re-entrance.
    INT_REENTRANT = "DXG-INT-REENTRANT" {
        title: "DxgkCbNotifyInterrupt is not called while it runs for the same adapter",
        source: "DDI page DxgkCbNotifyInterrupt, remarks",
        bugcheck: none,
        fix: "notify from one synchronised routine",
    }
    /// DPC after a notification.
    INT_DPC = "DXG-INT-DPC" {
        title: "after DxgkCbNotifyInterrupt the driver queues a DPC before it leaves the interrupt routine",
        source: "DDI page DxgkCbNotifyInterrupt, remarks",
        bugcheck: none,
        fix: "call DxgkCbQueueDpc in the same routine",
    }
    /// NotifyDpc in the DPC.
    DPC_NOTIFY = "DXG-DPC-NOTIFY" {
        title: "DxgkDdiDpcRoutine calls DxgkCbNotifyDpc when notifications are pending",
        source: "DDI pages DxgkCbNotifyInterrupt, DxgkCbNotifyDpc",
        bugcheck: none,
        fix: "call DxgkCbNotifyDpc in DxgkDdiDpcRoutine",
    }
    /// Claiming.
    ISR_CLAIM = "DXG-ISR-CLAIM" {
        title: "DxgkDdiInterruptRoutine returns TRUE for its own device's interrupt and FALSE for another's",
        source: "DDI page DxgkDdiInterruptRoutine, return value",
        bugcheck: none,
        fix: "look at the device's status register first",
    }
    /// Dismissing.
    ISR_DISMISS = "DXG-ISR-DISMISS" {
        title: "DxgkDdiInterruptRoutine has dismissed the interrupt on the device when it returns TRUE",
        source: "DDI page DxgkDdiInterruptRoutine, return value",
        bugcheck: none,
        fix: "acknowledge every bit that is set",
    }
    /// Between reset and resume.
    INT_AFTER_RESET = "DXG-INT-AFTER-RESET" {
        title: "an engine that is scheduled by hardware raises no interrupt, of whatever type, between the return of \
            DxgkDdiResetHwEngine and DxgkDdiResumeHwEngine",
        source: "bug check 0x119/0x10; DDI pages DxgkDdiResetHwEngine, DxgkDdiResumeHwEngine (chosen: 5 ms between)",
        bugcheck: (0x119, 0x10),
        fix: "keep the engine stopped, and drop what was pending, until it is resumed",
    }
    /// Suspend fences.
    INT_SUSPEND_FENCE = "DXG-INT-SUSPEND-FENCE" {
        title: "a suspension is acknowledged with a fence that DxgkDdiSuspendContext got for that context",
        source: "bug check 0x119/0x11; DDI page DXGKARG_SUSPENDCONTEXT",
        bugcheck: (0x119, 0x11),
        fix: "return contextSuspendFence as it came",
    }
    /// Faulted system commands.
    INT_SYSTEM_FAULT = "DXG-INT-SYSTEM-FAULT" {
        title: "no paging or system command is reported as faulted",
        source: "bug check 0x119/0x5",
        bugcheck: (0x119, 0x5),
        fix: "paging commands must work; a fault there is a driver or hardware error",
    }
    /// Fatal fault.
    INT_FATAL = "DXG-INT-FATAL" {
        title: "no page fault says that the system's hardware cannot continue",
        source: "bug check 0x119/0xC; DXGK_PAGE_FAULT_FATAL_HARDWARE_ERROR",
        bugcheck: (0x119, 0xC),
        fix: "use the engine or adapter reset flag for what a reset cures",
    }
    /// Fault flags.
    INT_FAULT_FLAGS = "DXG-INT-FAULT-FLAGS" {
        title: "page fault flags are consistent: FENCE_INVALID comes with a reset flag and fence id 0; context and process flags only with FENCE_INVALID, and one at most",
        source: "bug check 0x119/0xD; DDI pages DXGK_PAGE_FAULT_FLAGS, DXGKARGCB_NOTIFY_INTERRUPT_DATA",
        bugcheck: (0x119, 0xD),
        fix: "name the packet when it is known; otherwise ask for the reset",
    }
    /// Handles in faults.
    INT_FAULT_HANDLE = "DXG-INT-FAULT-HANDLE" {
        title: "a page fault names a live queue, context or process",
        source: "DDI page DXGKARGCB_NOTIFY_INTERRUPT_DATA, HwQueuePageFaulted",
        bugcheck: none,
        fix: "name the queue that ran, by the handle that Dxgkrnl gave",
    }
    /// Native fence arrays.
    INT_NATIVE_FENCE = "DXG-INT-NATIVE-FENCE" {
        title: "pSignaledNativeFenceArray holds live hGlobalNativeFence values as Dxgkrnl passed them to DxgkDdiCreateNativeFence",
        source: "article native-gpu-fence-objects, native fence signaled interrupt (a destroyed object bug checks); DDI page DXGKARGCB_NOTIFY_INTERRUPT_DATA; DDI page DXGKARG_CREATENATIVEFENCE",
        bugcheck: none,
        fix: "save the input of hGlobalNativeFence before overwriting it, and purge what is pending in DxgkDdiDestroyNativeFence",
    }
    /// Queue handle of the optimized interrupt.
    INT_NATIVE_QUEUE = "DXG-INT-NATIVE-QUEUE" {
        title: "with OptimizedNativeFenceSignaledInterrupt hHWQueue is NULL or the driver's handle of a live queue of that node",
        source: "DDI page DXGKARGCB_NOTIFY_INTERRUPT_DATA, NativeFenceSignaled.hHWQueue",
        bugcheck: none,
        fix: "pass the handle that DxgkDdiCreateHwQueue returned",
    }
    /// Engine states.
    INT_ENGINE_STATE = "DXG-INT-ENGINE-STATE" {
        title: "EngineStateChange.NewState is TRANSITION_TO_F1, HUNG or ACTIVE",
        source: "DDI page DXGK_ENGINE_STATE; article user-mode-work-submission",
        bugcheck: none,
        fix: "use the enumerators of the 24H2 kit",
    }
}
