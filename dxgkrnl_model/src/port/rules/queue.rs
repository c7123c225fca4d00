//! Rules of hardware contexts and queues, doorbells and power components.

use nt_model::rules;

rules! {
    /// Queues and doorbells.
    pub list QUEUE_RULES;

    /// Suspending.
    SUSPEND_STATUS = "DXG-SUSPEND-STATUS" {
        title: "DxgkDdiSuspendContext returns STATUS_PENDING, or STATUS_SUCCESS for a context that is suspended already",
        source: "DDI page DxgkDdiSuspendContext, return value",
        bugcheck: none,
        fix: "return STATUS_PENDING and acknowledge by interrupt",
    }
    /// Acknowledging.
    SUSPEND_ACK = "DXG-SUSPEND-ACK" {
        title: "a suspension that DxgkDdiSuspendContext left pending is acknowledged within TdrDelay by an engine that has nothing to do",
        source: "DDI page DxgkDdiSuspendContext; article user-mode-work-submission, hardware context suspension",
        bugcheck: none,
        fix: "take the context off the run list and raise SUSPEND_CONTEXT_COMPLETED",
    }
    /// Resuming.
    RESUME_STATUS = "DXG-RESUME-STATUS" {
        title: "DxgkDdiResumeContext, SetContextSchedulingProperties, SetupPriorityBands and SetSchedulingLogBuffer succeed",
        source: "DDI pages of these functions",
        bugcheck: none,
        fix: "accept; a context is created in the resumed state",
    }
    /// Doorbells that must not fail.
    DB_MUST_SUCCEED = "DXG-DB-MUST-SUCCEED" {
        title: "DxgkDdiDisconnectDoorbell, DestroyDoorbell and NotifyWorkSubmission return STATUS_SUCCESS",
        source: "DDI pages of the three functions, return value",
        bugcheck: none,
        fix: "succeed whatever the state",
    }
    /// Connecting.
    DB_CONNECT = "DXG-DB-CONNECT" {
        title: "DxgkDdiConnectDoorbell succeeds while the GPU works",
        source: "DDI page DxgkDdiConnectDoorbell, return value",
        bugcheck: none,
        fix: "take a doorbell from a queue that was not used for long, by DxgkCbDisconnectDoorbell",
    }
    /// Status of a connection.
    DB_STATUS = "DXG-DB-STATUS" {
        title: "DxgkDdiConnectDoorbell returns the status CONNECTED or CONNECTED_NOTIFY",
        source: "DDI page DXGKARG_CONNECTDOORBELL, Status",
        bugcheck: none,
        fix: "store one of the two",
    }
    /// Address of a connection.
    DB_ADDRESS = "DXG-DB-ADDRESS" {
        title: "KernelCpuVirtualAddress is a mapped kernel address that starts a page (chosen) and whose doorbell lies \
            within its pages, and the secondary one too where it is required",
        source: "DDI page DXGKARG_CONNECTDOORBELL; article user-mode-work-submission",
        bugcheck: none,
        fix: "return the kernel mapping of the physical doorbell",
    }
    /// Pages of doorbells.
    DB_PAGE = "DXG-DB-PAGE" {
        title: "the page of a doorbell holds nothing else: it becomes writable to user mode",
        source: "article user-mode-work-submission (inferred: the doorbell's user address leads to that page); DB-05",
        bugcheck: none,
        fix: "allocate whole pages (contiguous memory or pages for an MDL), not pool",
    }
    /// Transitions of power components.
    POWER_FSTATE = "DXG-POWER-FSTATE" {
        title: "DxgkDdiSetPowerComponentFState succeeds; DxgkCbCompleteFStateTransition completes the transitions of \
            components whose flags say so, and of no others",
        source: "DDI pages DxgkDdiSetPowerComponentFState, DxgkCbCompleteFStateTransition",
        bugcheck: none,
        fix: "call DxgkCbCompleteFStateTransition for the component, once per transition, where its flag \
            DriverCompletesFStateTransition is set, and nowhere else",
    }
    /// Power components.
    POWER_COMPONENT = "DXG-POWER-COMPONENT" {
        title: "a power component has 1 to 8 F-states, F0 without latency and residency, and no engine has two",
        source: "DDI pages DXGK_POWER_RUNTIME_COMPONENT, DXGK_POWER_RUNTIME_STATE, DXGK_POWER_COMPONENT_MAPPING",
        bugcheck: none,
        fix: "fill the whole record that DXGKQAITYPE_POWERCOMPONENTINFO asks for",
    }
    /// Device power states.
    POWER_STATE = "DXG-POWER-STATE" {
        title: "DxgkDdiSetPowerState succeeds",
        source: "DDI page DxgkDdiSetPowerState",
        bugcheck: none,
        fix: "accept the state",
    }
}
