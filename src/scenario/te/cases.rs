//! The cases of group TE.

use super::{
    alone, amid, answers, behind, blame, blob, cancelled, debug, dependents, failed, faulted, faults, halves, hardware,
    held, late, long, notices, old, owed, packets, paging, policed, replaced, slips, snapshot, stopped, storm,
    unaffected, unasked, unsaid, wrong,
};
use crate::scenario::{Scenario, portable};

const ARTICLE: &str = "TDR changes in Windows 8, calling sequence";

pub(in crate::scenario) const CASES: &[Scenario] = &[
    Scenario {
        id: "TE-01",
        title: "each packet node is reset alone: the mask that the driver answers is the node's own bit",
        source: "DxgkDdiQueryDependentEngineGroup, Remarks",
        play: packets::masks,
    },
    Scenario {
        id: "TE-02",
        title: "a mask without the node is bug check 0x119, 8",
        source: "bug check 0x119; DxgkDdiQueryDependentEngineGroup",
        play: wrong::mask,
    },
    Scenario {
        id: "TE-03",
        title: "a packet that never ends: preemption, then the steps of the reset in their order; its device alone is \
                in error, and other nodes go on meanwhile",
        source: ARTICLE,
        play: packets::spin,
    },
    Scenario {
        id: "TE-04",
        title: "of three packets the second hangs: it is the last aborted one, and the third comes back under a new id",
        source: "DXGKARG_RESETENGINE, LastAbortedFenceId; TDR changes in Windows 8, packets not affected",
        play: packets::second_of_three,
    },
    Scenario {
        id: "TE-06",
        title: "a last aborted fence outside of last completed to last submitted is bug check 0x119, 0xA, with it and \
                the last completed one",
        source: "TDR changes in Windows 8, bug check 0x119",
        play: wrong::aborted,
    },
    Scenario {
        id: "TE-07",
        title: "a packet that takes longer than TdrDelay and can be preempted in its middle is no timeout, alone and \
                beside another context's",
        source: "WHLK, Long Running packet (no TDR); GPU preemption",
        play: long::preemptible,
    },
    Scenario {
        id: "TE-08",
        title: "the same on an engine that does not come off command buffers is a timeout (PreemptInBuffers 0, whatever \
                is given: with 1 it comes off, and TE-07 has that it is none)",
        source: "WHLK, Long Running packet (TDR); GPU preemption",
        play: long::not_preemptible,
    },
    Scenario {
        id: "TE-09",
        title: "many small packets that take longer than TdrDelay together are no timeout",
        source: "WHLK, Large Payload Penalty",
        play: long::large_payload,
    },
    Scenario {
        id: "TE-10",
        title: "a reset that takes a paging packet along: the engine's reset, then the adapter's; owners of allocations \
                are in error, the system device goes on",
        source: "TDR changes in Windows 8, recovery",
        play: paging::hit,
    },
    Scenario {
        id: "TE-12",
        title: "an engine that stops answering: its reset fails, the adapter is reset and gives the node another \
                engine",
        source: "TDR changes in Windows 8, failure; DXGK_TDR_TYPE, ENGINE_TIMEOUT_PROMOTED",
        play: hardware::wedged,
    },
    Scenario {
        id: "TE-14",
        title: "a queue hangs a hardware-scheduled engine: the context that ran is invalidated, the others run on behind the resumption",
        source: "DxgkDdiResetHwEngine, Remarks",
        play: hardware::engine,
    },
    Scenario {
        id: "TE-15",
        title: "an interrupt of an engine, of whatever kind, between its reset and its resumption is bug \
                check 0x119, 0x10",
        source: "bug check 0x119; DxgkDdiResetHwEngine, Remarks",
        play: hardware::early_interrupt,
    },
    Scenario {
        id: "TE-16",
        title: "an engine that cannot be resumed takes the adapter",
        source: "DxgkDdiResumeHwEngine",
        play: hardware::no_resume,
    },
    Scenario {
        id: "TE-17",
        title: "a user-mode queue hangs: doorbells of its device are ABORT, other processes run, a new device works",
        source: "User-mode work submission; DxgkDdiResetHwEngine",
        play: hardware::user_mode,
    },
    Scenario {
        id: "TE-18",
        title: "the driver says that an engine hangs: doorbells go first, and nobody waits for a timeout",
        source: "User-mode work submission, DXGK_INTERRUPT_GPU_ENGINE_STATE_CHANGE; DXGK_INTERRUPT_TYPE",
        play: hardware::told,
    },
    Scenario {
        id: "TE-19",
        title: "a bad opcode, length or address is its device's error, and no reset",
        source: "amdgpu queue reset tests; DXGK_PAGE_FAULT_FLAGS",
        play: hardware::bad_packets,
    },
    Scenario {
        id: "TE-20",
        title: "a queue that waits for longer than TdrDelay hangs nothing",
        source: "User-mode work submission, timeouts (inferred)",
        play: hardware::waiting,
    },
    Scenario {
        id: "TE-23",
        title: "debug information for every reason, by either function, with room for nothing, little and much, also \
                without power and in the adapter's reset",
        source: "DxgkDdiCollectDbgInfo, Remarks; DXGKARG_COLLECTDBGINFO",
        play: debug::sizes,
    },
    Scenario {
        id: "TE-24",
        title: "payloads that are NULL, known, shorter and longer; the driver names the context that runs, of several \
                on the node, and writes nothing else",
        source: "DxgkDdiCollectDbgInfo2; DXGK_TDR_PAYLOAD_ENGINE_TIMEOUT; TDR debuggability improvements",
        play: debug::payloads,
    },
    Scenario {
        id: "TE-26",
        title: "resets that user mode forces, of each engine while it is busy and of the adapter",
        source: "D3DKMT_TDRDBGCTRLTYPE; DXGK_TDR_TYPE, FORCED",
        play: hardware::forced,
    },
    Scenario {
        id: "TE-21",
        title: "a packet that ends while its timeout is detected is not reset, and its result stays",
        source: "TDR changes in Windows 8, step 4; drm_sched, skip_reset",
        play: late::emptied,
    },
    Scenario {
        id: "TE-27",
        title: "a hundred resets at random points of a running load: every innocent job's result is right, and nothing is left behind",
        source: "IGT, gt-reset-stress; TDR changes in Windows 8",
        play: storm::hundred,
    },
    Scenario {
        id: "TE-28",
        title: "a packet that ends between snapshot and reset: the driver names it, no interrupt of it comes, and its \
                device is in error",
        source: "TDR changes in Windows 8, special case",
        play: late::special_case,
    },
    Scenario {
        id: "TE-29",
        title: "interrupts of other nodes count while one node's are ignored",
        source: "TDR changes in Windows 8, step 3 (the engine that timed out)",
        play: late::others_count,
    },
    Scenario {
        id: "TE-30",
        title: "paging packets that a preemption gives back come again under their own ids, in their order, before \
                anything new",
        source: "GPU preemption, considerations; TDR changes in Windows 8, paging packets",
        play: paging::own_ids,
    },
    Scenario {
        id: "TE-31",
        title: "paging does not wait for a packet of user mode on its node, however long that one takes",
        source: "GPU preemption (said of paging commands that a preemption gave back; of all of them it is chosen)",
        play: paging::goes_first,
    },
    Scenario {
        id: "TE-32",
        title: "a context's engine is named by its bit, which is 1 whether user mode says 0 or 1",
        source: "TDR changes in Windows 8, engines; DXGKARG_CREATECONTEXT, EngineAffinity",
        play: packets::affinity,
    },
    Scenario {
        id: "TE-33",
        title: "what the driver says of a hang, in words: which packet or queue, where it is, and why it is guilty",
        source: "DxgkDdiCollectDbgInfo2; TDR debuggability improvements",
        play: debug::guilty,
    },
    Scenario {
        id: "TE-34",
        title: "calls of level zero go on while an engine of either kind is reset, and inside the driver's function for it",
        source: "TDR changes in Windows 8, level zero; DxgkDdiCollectDbgInfo, Remarks",
        play: debug::beside,
    },
    Scenario {
        id: "TE-36",
        title: "an engine that never answers: stop and unload end within TdrDdiDelay, and the next start works",
        source: "Testing and debugging TDR, TdrDdiDelay; DxgkDdiStopDevice, DxgkDdiUnload",
        play: stopped::ends,
    },
    Scenario {
        id: "TE-35",
        title: "a packet engine's reset that fails moves no id, and the adapter is reset",
        source: "TDR changes in Windows 8, failure; calling sequence (only a reset that succeeds)",
        play: failed::escalates,
    },
    Scenario {
        id: "TE-41",
        title: "preemptions that race with completions never name their own or a later fence as completed",
        source: "DXGKARGCB_NOTIFY_INTERRUPT_DATA, DmaPreempted; bug check 0x119, 1",
        play: long::watermarks,
    },
    Scenario {
        id: "TE-42",
        title: "two contexts on a packet node, preempted a thousand times a second, thousands of times: each packet runs \
                once to its end, and comes back with the private data that it had",
        source: "GPU preemption; DXGK_SUBMITCOMMANDFLAGS, Resubmission",
        play: long::at_rate,
    },
    Scenario {
        id: "TE-66",
        title: "a packet that the driver refuses stands between others that are preempted, or reset: what is named as \
                over is known, and nothing else is lost",
        source: "DDI page DxgkDdiSubmitCommandVirtual, return value; TDR changes in Windows 8, LastAbortedFenceId",
        play: long::refused_between,
    },
    Scenario {
        id: "TE-43",
        title: "a packet engine's reset: what it ends and was raised before is not reported, and a fence's signal is \
                raised again",
        source: "DxgkDdiResetEngine; TDR changes in Windows 8, steps 3 to 7",
        play: held::packets,
    },
    Scenario {
        id: "TE-44",
        title: "a hardware-scheduled engine's reset: the same, of suspensions and of fences of both kinds",
        source: "DxgkDdiResetHwEngine, Remarks; DXGKARG_SUSPENDCONTEXT",
        play: held::queues,
    },
    Scenario {
        id: "TE-45",
        title: "the adapter's reset: the same, of packets, suspensions and a fence that another adapter waits for",
        source: "DxgkDdiResetFromTimeout, Remarks; DxgkDdiRestartFromTimeout",
        play: held::adapter,
    },
    Scenario {
        id: "TE-46",
        title: "contexts behind a hang are probed and run on, the one that hangs alone is lost",
        source: "DxgkDdiSuspendContext, Remarks; DxgkDdiResetHwEngine, Remarks",
        play: blame::probed,
    },
    Scenario {
        id: "TE-47",
        title: "a context that is late and lets the engine go before the reset is not blamed",
        source: "DxgkDdiResetHwEngine, Remarks (the context that was running); DXGKARGCB_INVALIDATEHWCONTEXT",
        play: blame::let_go,
    },
    Scenario {
        id: "TE-50",
        title: "paging packets behind a packet that hangs come back under their own ids, in their order, before anything \
                new, and another process's packet under a new one: the reset takes the first alone",
        source: "TDR changes in Windows 8, packets not affected; DXGK_SUBMITCOMMANDFLAGS, Resubmission",
        play: unaffected::packets,
    },
    Scenario {
        id: "TE-51",
        title: "the driver says that an engine hangs while that is recovered: it is reset once",
        source: "DXGK_INTERRUPT_TYPE, GPU_ENGINE_TIMEOUT; TDR changes in Windows 8, step 3",
        play: notices::once,
    },
    Scenario {
        id: "TE-52",
        title: "engines that depend on one that is reset are preempted; those that do not answer are reset behind it",
        source: "DxgkDdiQueryDependentEngineGroup, Remarks",
        play: dependents::group,
    },
    Scenario {
        id: "TE-53",
        title: "page faults that ask for a reset of the engine or of the adapter, of packets and of queues",
        source: "DXGK_PAGE_FAULT_FLAGS; DXGK_TDR_TYPE, ENGINE_PAGE_FAULT, PAGE_FAULT",
        play: faults::resets,
    },
    Scenario {
        id: "TE-71",
        title: "the fence that the driver says is over is none from before an engine's reset, the adapter's, or before a fault",
        source: "DxgkDdiQueryCurrentFence (the most recently completed submission fence); TDR changes in Windows 8, \
                LastAbortedFenceId",
        play: answers::last_over,
    },
    Scenario {
        id: "TE-72",
        title: "an engine that is idle or only busy responds; one that was asked to come off and cannot does not",
        source: "DxgkDdiQueryEngineStatus; DXGK_ENGINESTATUS, Responsive",
        play: answers::responsive,
    },
    Scenario {
        id: "TE-73",
        title: "a packet that comes back goes on in its middle with the flag Resubmission alone; without it, it begins",
        source: "DXGK_SUBMITCOMMANDFLAGS, Resubmission; GPU preemption (request mid-DMA buffer preemption)",
        play: answers::resubmitted,
    },
    Scenario {
        id: "TE-74",
        title: "packets come off where the preemption granularity says: in their middle, or at the end of their buffer",
        source: "DXGK_DRIVERCAPS, PreemptionCaps; D3DKMDT_COMPUTE_PREEMPTION_GRANULARITY",
        play: answers::granularity,
    },
    Scenario {
        id: "TE-75",
        title: "memory runs out where the adapter's reset replaces an engine: the reset succeeds, and a later one \
                replaces it",
        source: "DxgkDdiResetFromTimeout, Return value",
        play: replaced::sweep,
    },
    Scenario {
        id: "TE-76",
        title: "long packets, reset and not, while no call of the driver may take 250 ms; but for a reset that fails \
                since its engine never answers, which ends within TdrDdiDelay",
        source: "WHLK, TDR2, PoliceDdi; Testing and debugging TDR, TdrDdiDelay",
        play: policed::long,
    },
    Scenario {
        id: "TE-77",
        title: "the debug blob tells of every queue, with its ring, its last turn and the fence that it waits for, and of \
                every fence",
        source: "DxgkDdiCollectDbgInfo; TDR debuggability improvements",
        play: blob::objects,
    },
    Scenario {
        id: "TE-78",
        title: "the scheduler notes what it knows of a node that timed out at the device's level, not while an interrupt \
                is served",
        source: "TDR changes in Windows 8, step 3",
        play: snapshot::at_the_devices_level,
    },
    Scenario {
        id: "TE-79",
        title: "an engine's reset, or the adapter's, does not return while an interrupt is served",
        source: "bug check 0x119, 0x10; DxgkDdiResetHwEngine, Remarks; DxgkCbSynchronizeExecution",
        play: snapshot::reset_waits,
    },
    Scenario {
        id: "TE-80",
        title: "a queue's fault that was raised before the adapter's reset is not reported behind it",
        source: "DxgkDdiResetFromTimeout, Remarks; DXGKARGCB_NOTIFY_INTERRUPT_DATA, HwQueuePageFaulted",
        play: faulted::ended,
    },
    Scenario {
        id: "TE-81",
        title: "work that waits for an engine when the adapter is reset does not run behind the reset",
        source: "DxgkDdiResetFromTimeout, Remarks; TDR changes in Windows 8, recovery",
        play: faulted::waiting,
    },
    Scenario {
        id: "TE-82",
        title: "two engines hang at once, and two threads find out: their recoveries come one after another",
        source: "TDR changes in Windows 8, sequence of a reset; Thread synchronization and TDR (inferred)",
        play: alone::one_by_one,
    },
    Scenario {
        id: "TE-83",
        title: "the answer to a preemption, a packet's fault and an engine's hang that were raised before the adapter's \
                reset are not reported behind it",
        source: "DxgkDdiResetFromTimeout, Remarks; DXGKARGCB_NOTIFY_INTERRUPT_DATA, DmaPreempted, DmaPageFaulted",
        play: old::notices,
    },
    Scenario {
        id: "TE-84",
        title: "a device is lost with packets that never got to the driver: it is told of each, if it wants to be",
        source: "DxgkDdiCancelCommand; DXGK_VIDSCHCAPS, CancelCommandAware",
        play: cancelled::behind_a_hang,
    },
    Scenario {
        id: "TE-85",
        title: "an engine's thread stays in the kernel, and the driver does not know: the engine's reset fails, and \
                the adapter's, or the stop, ends when the engine has let go",
        source: "TDR changes in Windows 8, failure; DxgkDdiResetFromTimeout, Remarks (access to memory stops)",
        play: unsaid::stuck,
    },
    Scenario {
        id: "TE-86",
        title: "the word that a packet engine hangs, which was raised before its reset, is not said behind it",
        source: "DXGK_INTERRUPT_TYPE, GPU_ENGINE_TIMEOUT; TDR changes in Windows 8, steps 3 to 7",
        play: old::packet_engine,
    },
    Scenario {
        id: "TE-61",
        title: "the portable part of the kit's job of two devices",
        source: "WHLK, Standard Two Device Test",
        play: portable::two_devices,
    },
    Scenario {
        id: "TE-62",
        title: "the portable part of the kit's job of a long packet without a timeout",
        source: "WHLK, Long Running packet (no TDR)",
        play: portable::long,
    },
    Scenario {
        id: "TE-90",
        title: "a queue hangs while the device is to lose its power: its engine is reset, and the way down goes on",
        source: "DxgkDdiSuspendContext; user-mode work submission, engine D-state transitions",
        play: amid::sleep,
    },
    Scenario {
        id: "TE-91",
        title: "a reset takes paging along while a queue of the memory's owner hangs another engine: both are reset, \
                and the adapter",
        source: "TDR changes in Windows 8, recovery; DxgkDdiResetHwEngine",
        play: amid::owner,
    },
    Scenario {
        id: "TE-102",
        title: "the driver refuses a packet beside a reset, whose device hangs another engine as well: both are reset",
        source: "DDI page DxgkDdiSubmitCommandVirtual, return value; TDR changes in Windows 8 (a node is scheduled by \
                itself)",
        play: amid::refused,
    },
    Scenario {
        id: "TE-103",
        title: "a context that is late lets the engine go while its reset is prepared: what runs by then is reset, and \
                has hung nothing",
        source: "DxgkDdiResetHwEngine, Remarks (the context that was running); D3DKMT_DEVICEEXECUTION_STATE",
        play: blame::runs_behind,
    },
    Scenario {
        id: "TE-104",
        title: "a context that is late lets the engine go before its reset begins: there is none",
        source: "TDR changes in Windows 8, step 4 (said of packet engines); DxgkDdiSuspendContext",
        play: blame::lets_go_in_time,
    },
    Scenario {
        id: "TE-105",
        title: "a packet that came off in its middle, and whose preemption nobody has heard of when its engine is reset, \
                comes back and goes on where it was",
        source: "DXGK_SUBMITCOMMANDFLAGS, Resubmission; DXGKARG_RESETENGINE; TDR changes in Windows 8, steps 3 to 7",
        play: old::taken_off,
    },
    Scenario {
        id: "TE-92",
        title: "another thread resets the adapter while a packet is about to be handed in: it comes behind the reset, \
                or not at all",
        source: "Thread synchronization and TDR (inferred); DxgkDdiResetFromTimeout, Remarks",
        play: slips::packets,
    },
    Scenario {
        id: "TE-93",
        title: "a packet engine that does not come off says that it hangs, by GPU_ENGINE_TIMEOUT, and is reset",
        source: "DXGK_INTERRUPT_TYPE, GPU_ENGINE_TIMEOUT",
        play: old::says,
    },
    Scenario {
        id: "TE-94",
        title: "a fence that is signaled on an engine whose interrupts are ignored: its waiter is woken behind the \
                reset",
        source: "TDR changes in Windows 8, step 3 (the interrupts); that fences are looked at behind it is inferred",
        play: late::fences,
    },
    Scenario {
        id: "TE-95",
        title: "what user mode is told of a packet that faults: the address, whether it was written to, and what was \
                wrong",
        source: "DXGKARGCB_NOTIFY_INTERRUPT_DATA, DmaPageFaulted; D3DKMT_DEVICEPAGEFAULT_STATE",
        play: faults::told,
    },
    Scenario {
        id: "TE-96",
        title: "paging takes its node from a packet after a slice of its own, which is shorter than that of a context",
        source: "GPU preemption (of paging commands that were preempted; of all of them, and the slice: chosen)",
        play: paging::short_slice,
    },
    Scenario {
        id: "TE-97",
        title: "a DPC that was queued when the DPCs are flushed: the reset is prepared when it is over",
        source: "TDR changes in Windows 8, step 5",
        play: halves::flushed,
    },
    Scenario {
        id: "TE-98",
        title: "a packet ends as the scheduler notes what it knows: it is noted as outstanding and reset, or counts as \
                completed, and never both",
        source: "TDR changes in Windows 8, step 3 (one step at the device's level)",
        play: halves::at_once,
    },
    Scenario {
        id: "TE-99",
        title: "a packet runs as the device loses its power for longer than TdrDelay: it is taken off, rests, and goes \
                on",
        source: "Timeout detection and recovery, TdrDelay; DxgkDdiSetPowerState (that packets are preempted in front of \
                it, and that time without power does not count, is inferred)",
        play: amid::packets_rest,
    },
    Scenario {
        id: "TE-100",
        title: "a packet hangs while the device is to lose its power: its engine is reset, and the way down goes on",
        source: "DxgkDdiPreemptCommand; DxgkDdiSetPowerState (inferred)",
        play: amid::packet_hangs,
    },
    Scenario {
        id: "TE-101",
        title: "a node that is preempted when a packet takes TdrDelay, and not before: who waits has it then",
        source: "GPU preemption (a request before a time-out, and no word of others); Timeout detection and recovery, TdrDelay",
        play: long::late_cadence,
    },
    Scenario {
        id: "TE-106",
        title: "the device is to lose its power while the answer to a preemption is owed and nothing is left to preempt: \
                the answer comes first",
        source: "DxgkDdiPreemptCommand, Remarks; DxgkDdiSetPowerState (inferred)",
        play: owed::answer,
    },
    Scenario {
        id: "TE-107",
        title: "the reset of a hardware-scheduled engine fails and takes the adapter; behind it the node is looked after \
                as before",
        source: "DxgkDdiResetHwEngine; TDR changes in Windows 8, failure",
        play: hardware::no_reset,
    },
    Scenario {
        id: "TE-108",
        title: "a packet is refused, or faults, and the OS is to signal a fence behind it: it does not",
        source: "DxgkDdiSubmitCommandVirtual; D3DKMT_GETDEVICE_STATE (chosen: a device in error does nothing any more)",
        play: behind::signals,
    },
    Scenario {
        id: "TE-109",
        title: "a context is taken off beside a long command buffer of another one: the driver tells of no hang",
        source: "DXGKARGCB_NOTIFY_INTERRUPT_DATA, GpuEngineTimeout; docs/settings.md, ReportHangs",
        play: unasked::context,
    },
    Scenario {
        id: "TE-63",
        title: "the portable part of the kit's job of a long packet with a timeout",
        source: "WHLK, Long Running packet (TDR)",
        play: portable::too_long,
    },
    Scenario {
        id: "TE-64",
        title: "the portable part of the kit's job of many packets",
        source: "WHLK, Large Payload Penalty",
        play: portable::many,
    },
    Scenario {
        id: "TE-65",
        title: "the portable part of the kit's job of timeouts that are asked for",
        source: "WHLK, Simulate Preemption TDR",
        play: portable::forced,
    },
    Scenario {
        id: "TE-87",
        title: "the portable part of the kit's job of the claim of resets by engine",
        source: "WHLK, Validate WDDM1.2 drivers say they support per engine resets; D3DKMT_WDDM_1_2_CAPS",
        play: portable::claim,
    },
    Scenario {
        id: "TE-88",
        title: "the portable part of the kit's job of preemption's granularity",
        source: "WHLK, Preempt; D3DKMT_WDDM_1_2_CAPS, PreemptionCaps",
        play: portable::granularity,
    },
    Scenario {
        id: "TE-89",
        title: "the portable part of the storm of resets",
        source: "IGT, gt-reset-stress; D3DKMT_TDRDBGCTRLTYPE",
        play: portable::storm,
    },
];
