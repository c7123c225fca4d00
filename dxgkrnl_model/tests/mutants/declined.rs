//! Documented requirements that have no rule, each with the reason: the last part of `docs/rules.md`.

/// Where that part begins.
pub const HEAD: &str = "\n## Requirements without a rule\n";

/// A requirement, its document, and why no rule holds a driver to it.
const DECLINED: &[[&str; 3]] = &[
    [
        "no thread of the driver keeps those of the system waiting for ever",
        "DDI page KeSetPriorityThread",
        "NT-PRIORITY holds what the priority of a thread may be, and cases DD-21 and DD-22 that ours yields. Which threads \
         of a driver are its engines, and how long one may run, no page says: a software GPU alone has such threads.",
    ],
    [
        "DxgkDdiResetHwEngine is not called while a suspension of the engine is outstanding",
        "bug check 0x119/0xA000 (VIDSCH_RESET_HW_ENGINE_SUSPEND), which was seen and is not on the page of 0x119",
        "Nothing says what a driver does to cause it. What a suspension owes is held by DXG-SUSPEND-ACK and by the reset \
         of the engine that follows when it is overdue.",
    ],
    [
        "a root page table is that of a context, not of a process",
        "DDI page DxgkDdiSetRootPageTable; article tile-resources",
        "The function answers nothing. The model gives the companion context of a process a root of its own: a driver \
         that keeps one for the process faults, or finds other memory (case ST-84; DXG-INT-SYSTEM-FAULT).",
    ],
    [
        "an operation that DxgkDdiBuildPagingBuffer answers with success is done",
        "DDI page DxgkDdiBuildPagingBuffer",
        "Held for copies of page table entries alone (DXG-PAGING-COPY). What a transfer or fill leaves is memory of \
         the GPU, into which the model has no look of its own; cases compare contents.",
    ],
    [
        "Responsive is clear for an engine that makes no progress",
        "DDI page DXGK_ENGINESTATUS",
        "The driver alone knows: a long packet that cannot be preempted makes progress, and its engine is reset all \
         the same. DXG-TDR-STATUS judges that the answer is one.",
    ],
    [
        "DxgkDdiCreateDoorbell assigns no physical doorbell, and one is given to another queue only when \
         DxgkCbDisconnectDoorbell has returned",
        "DDI pages DxgkDdiCreateDoorbell, DxgkCbDisconnectDoorbell",
        "What a driver has assigned shows at DxgkDdiConnectDoorbell alone, and no page says that two queues never share \
         a physical doorbell. Case DB-08 looks at it for a driver whose queues do not.",
    ],
    [
        "paging packets that a preemption or a reset gave back come again with their own ids, in their order",
        "article tdr-changes-in-windows-8",
        "It binds the OS, and the model does so.",
    ],
    [
        "in front of D3 contexts are suspended and doorbells disconnected; page tables begin anew behind it",
        "articles user-mode-work-submission, system-paging-process",
        "It binds the OS, and the model does so. What the driver owes in it has rules: DXG-SUSPEND-ACK, \
         DXG-DB-MUST-SUCCEED, DXG-PAGING-ANEW.",
    ],
    [
        "ExplicitPageTableInvalidation, PageTableUpdateRequireAddressSpaceIdle",
        "DDI page DXGK_GPUMMUCAPS",
        "They bind the OS, and the model does neither: a driver that sets them meets a memory manager that is rougher \
         than the real one, and `check` does not judge it.",
    ],
    [
        "DxgkDdiPreemptCommand is called at PASSIVE_LEVEL where LowIrqlPreemptCommand is set",
        "DDI pages DXGK_VIDSCHCAPS, DxgkDdiPreemptCommand",
        "The first page has the name of the flag and no word on it, and the second knows DISPATCH_LEVEL alone, at \
         which the model calls. A driver that is right there is right below, where it takes no page of paged memory.",
    ],
    [
        "the first segment is an aperture segment",
        "DDI page DXGK_QUERYSEGMENTOUT3, PagingBufferSegmentId (of the segment with the paging buffers); a start was \
         seen that failed with CPU-visible memory as the first segment, and went on with an aperture there",
        "One driver's start, of which nobody knows the reason. Which segment paging buffers may be in is \
         held by DXG-SEGMENT-PAGING-BUFFER and DXG-SEGMENT-PAGING-VISIBLE.",
    ],
    [
        "MaxInFlightHwQueueBuffers and HwQueuePacketCap are not exceeded",
        "DDI pages DXGK_NODEMETADATA_FLAGS, DXGK_VIDSCHCAPS",
        "They bind the OS, and the model keeps to them. A driver that refuses what is within them breaks \
         DXG-HW-SUBMIT-STATUS or DXG-SUBMIT-STATUS.",
    ],
    [
        "user mode stores the last queued value, then the write pointer, then the doorbell, and reads the status \
         behind",
        "article user-mode-work-submission",
        "Stores of a process to its own memory, which the model does not see. Tests of the user-mode driver hold it \
         (`umd/core/tests`).",
    ],
    [
        "DmaBufferSegmentSet and paging buffers are reached through page tables",
        "article gpu-virtual-address",
        "The tables have the driver's own format. A wrong entry shows as a fault (DXG-INT-SYSTEM-FAULT), or in what \
         cases read.",
    ],
];

/// The part, behind its heading.
pub fn section() -> String {
    let rows = DECLINED.iter().map(|[what, source, why]| format!("| {what} | {source} | {why} |\n"));
    let intro = "\nWhat documents ask for and no rule holds a driver to.\n\n\
                 | requirement | source | why there is no rule |\n|---|---|---|\n";
    intro.to_owned() + &rows.collect::<String>()
}
