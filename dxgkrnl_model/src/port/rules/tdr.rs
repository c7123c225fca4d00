//! Rules of timeout detection and recovery.

use nt_model::rules;

rules! {
    /// TDR.
    pub list TDR_RULES;

    /// Dependent engines.
    TDR_MASK = "DXG-TDR-MASK" {
        title: "DependentNodeOrdinalMask contains the node itself and existing nodes only",
        source: "bug check 0x119/0x8; DDI page DxgkDdiQueryDependentEngineGroup",
        bugcheck: (0x119, 0x8),
        fix: "set bit NodeOrdinal",
    }
    /// A fence that is complete and was not reported.
    TDR_FENCE = "DXG-TDR-FENCE" {
        title: "a fence that DxgkDdiQueryCurrentFence says to be complete was reported by DxgkCbNotifyInterrupt before \
            the call returned",
        source: "DDI page DxgkDdiQueryCurrentFence, remarks (must call DxgkCbNotifyInterrupt to report the fence, at \
            device interrupt level)",
        bugcheck: none,
        fix: "compare last reported with last completed through DxgkCbSynchronizeExecution, report what is newer, then \
            answer",
    }
    /// A fence that was reported and is not answered.
    TDR_FENCE_BEHIND = "DXG-TDR-FENCE-BEHIND" {
        title: "DxgkDdiQueryCurrentFence does not answer a fence before one that the driver has reported, in the call \
            or before it, or that a reset has ended",
        source: "DDI page DxgkDdiQueryCurrentFence (the most recently completed submission fence identifier), remarks; \
            article timeout-detection-and-recovery",
        bugcheck: none,
        fix: "report first and answer behind that; a reset moves the answer on as the OS moves its own count",
    }
    /// Queries that must succeed.
    TDR_QUERY = "DXG-TDR-QUERY" {
        title: "DxgkDdiQueryDependentEngineGroup and DxgkDdiQueryEngineStatus succeed",
        source: "DDI pages of the two functions (it should always succeed)",
        bugcheck: none,
        fix: "answer from state that needs no hardware",
    }
    /// The status of an engine.
    TDR_STATUS = "DXG-TDR-STATUS" {
        title: "DxgkDdiQueryEngineStatus answers Responsive, and no reserved bit",
        source: "DDI page DXGK_ENGINESTATUS (Responsive must be set to 1 or to 0; Reserved should be set to zero)",
        bugcheck: none,
        fix: "store the whole of EngineStatus.Value",
    }
    /// The answer to a preemption.
    PREEMPT_ANSWER = "DXG-PREEMPT-ANSWER" {
        title: "a preemption of a node that has nothing in its hardware queue is answered within two TdrDelays",
        source: "DDI page DxgkDdiPreemptCommand, remarks (a driver whose hardware has finished informs the scheduler \
            at interrupt level by itself)",
        bugcheck: none,
        fix: "answer by DXGK_INTERRUPT_DMA_PREEMPTED although there is nothing to preempt",
    }
    /// The aborted fence names something.
    TDR_ABORTED_NAME = "DXG-TDR-ABORTED-NAME" {
        title: "LastAbortedFenceId of DxgkDdiResetEngine is the fence of a packet in the hardware queue, or the last completed one",
        source: "article tdr-changes-in-windows-8, calling sequence (the scheduler makes sure of it; what it does \
            otherwise is not said)",
        bugcheck: none,
        fix: "return the fence of the packet that ran, or the last completed one when the queue is empty",
    }
    /// The aborted fence.
    TDR_ABORTED = "DXG-TDR-ABORTED" {
        title: "LastAbortedFenceId of DxgkDdiResetEngine lies in [last completed, last submitted], as they were when the engine's interrupts began to be ignored",
        source: "bug check 0x119/0xA; article tdr-changes-in-windows-8, calling sequence",
        bugcheck: (0x119, 0xA),
        fix: "return the fence of the packet that was aborted, or the last completed one when the queue is empty",
    }
    /// Debug information.
    TDR_COLLECT = "DXG-TDR-COLLECT" {
        title: "DxgkDdiCollectDbgInfo(2) returns STATUS_SUCCESS, STATUS_NO_MEMORY or STATUS_UNSUCCESSFUL and writes within its buffer",
        source: "DDI pages DxgkDdiCollectDbgInfo, DxgkDdiCollectDbgInfo2",
        bugcheck: none,
        fix: "copy at most BufferSize bytes, and look at TdrPayloadSize and a NULL TdrPayload",
    }
    /// The guilty context.
    TDR_GUILTY = "DXG-TDR-GUILTY" {
        title: "the context that DxgkDdiCollectDbgInfo2 names in DXGK_TDR_PAYLOAD_ENGINE_TIMEOUT is one of the node that timed out, or NULL",
        source: "DDI page DXGK_TDR_PAYLOAD_ENGINE_TIMEOUT, hContext",
        bugcheck: none,
        fix: "leave hContext NULL where the driver does not know",
    }
    /// Adapter reset.
    TDR_ADAPTER = "DXG-TDR-ADAPTER" {
        title: "DxgkDdiResetFromTimeout and DxgkDdiRestartFromTimeout succeed",
        source: "DDI pages of the two functions; bug check 0x116",
        bugcheck: (0x116, 0x0),
        fix: "reset whatever the state of the hardware",
    }
    /// Memory between an adapter reset and its end.
    TDR_WRITES = "DXG-TDR-WRITES" {
        title: "between the return of DxgkDdiResetFromTimeout and DxgkDdiRestartFromTimeout the GPU writes nothing: \
            CurrentValue of every native fence stays",
        source: "DDI page DxgkDdiResetFromTimeout (guarantees that the GPU is not writing or reading any memory by the \
            time that it returns); article thread-synchronization-and-tdr",
        bugcheck: none,
        fix: "wait in DxgkDdiResetFromTimeout until every engine has stopped",
    }
    /// Threads that stay in the driver.
    TDR_DDI_DELAY = "DXG-TDR-DDI-DELAY" {
        title: "every thread leaves the driver within TdrDdiDelay of an adapter reset, and a call for which the \
            scheduler waits comes back within TdrDelay and TdrDdiDelay",
        source: "article tdr-registry-keys, TdrDelay, TdrDdiDelay; bug check 0x116 (chosen: a \
            scheduler that the driver keeps counts as one that makes no progress)",
        bugcheck: (0x116, 0x0),
        fix: "wait inside DDIs only for what a reset ends",
    }
    /// Too many resets.
    TDR_LIMIT = "DXG-TDR-LIMIT" {
        title: "no more than TdrLimitCount adapter resets happen within TdrLimitTime",
        source: "article tdr-registry-keys, TdrLimitCount, TdrLimitTime; bug check 0x116",
        bugcheck: (0x116, 0x0),
        fix: "find out why the engine hangs again after each reset",
    }
    /// Invalidation.
    TDR_INVALIDATE = "DXG-TDR-INVALIDATE" {
        title: "DxgkDdiResetHwEngine reports the contexts that ran by DxgkCbInvalidateHwContext: where one owes the \
            acknowledgement of its suspension, one whose queue made no progress is among them; where the driver said \
            that the engine hangs, one that its scheduling log has running",
        source: "DDI page DxgkDdiResetHwEngine, remarks (all running contexts that were affected)",
        bugcheck: none,
        fix: "call DxgkCbInvalidateHwContext for every running context before returning",
    }
    /// Buffers that are with the driver and do not run.
    HW_STALL = "DXG-HW-STALL" {
        title: "a command buffer of a kernel-mode hardware queue that is with the driver runs until its HwQueueProgressFenceId is in the fence: it waits for no fence on the GPU, and its value is written",
        source: "article native-gpu-fence-object (for kernel-mode submission, waits are software commands of Dxgkrnl's); DDI page D3DKMT_SUBMITCOMMANDTOHWQUEUE, HwQueueProgressFenceId (inferred: seen by the scheduling log, over two TdrDelays in which the node has nothing else)",
        bugcheck: none,
        fix: "user mode: leave waits to D3DKMTSubmitWaitForSyncObjectsToHwQueue, and end each buffer with the write of the value that it is submitted with",
    }
    /// Completions after an adapter reset.
    TDR_LATE = "DXG-TDR-LATE" {
        title: "after a reset the driver does not report fences that the reset has ended, packets' or preemptions'",
        source: "article tdr-changes-in-windows-8 (last completed fence id)",
        bugcheck: (0x119, 0x1),
        fix: "give work an epoch and drop what comes late",
    }
}
