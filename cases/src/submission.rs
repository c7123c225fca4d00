//! Cases that calls of user mode alone can show: user-mode submission (rings, doorbells, their residency), waits and
//! signals, faults, and what tools ask.
//!
//! Over the model they are the conformance cases with these ids (`src/scenario`), which look at the driver's side
//! behind the portable part. What no function of gdi32 can bring about stays there: a doorbell that the OS takes away
//! at a moment of the case's choice, a context that is suspended, a device without power or one that is stopped
//! (PT-10, PT-42, RP-15). RP-13 is played on packets, too, which no case here submits without the user-mode driver.
//!
//! | file | holds |
//! |---|---|
//! | `submission/apart.rs` | cases with another process |
//! | `submission/words.rs` | cases that write every word themselves |
//! | `submission/driver.rs` | cases by the user-mode driver |
//! | `submission/every.rs` | cases that every way of submission has, packets too: faults, a long wait, what tools ask |

mod apart;
mod driver;
mod every;
mod words;

use crate::System;
use anyhow::Result;

/// A case.
#[derive(Debug)]
pub struct Case {
    /// Its id, which is that of the conformance case.
    pub id: &'static str,
    /// What must be, in a sentence.
    pub title: &'static str,
    /// Where that stands.
    pub source: &'static str,
    /// The lowest rung on which it can be played: 0 packets, 1 hardware queues, 2 native fences, 3 doorbells.
    pub rung: u32,
    /// A setting of the driver that it needs, and the value that it must have.
    pub needs: Option<(&'static str, u32)>,
    /// Plays it.
    pub play: fn(&dyn System) -> Result<()>,
}

impl Case {
    /// Why it cannot be played on a system whose driver is on `rung`; `None`: it can be.
    pub fn lacks(&self, system: &dyn System, rung: u32) -> Option<String> {
        if rung < self.rung {
            return Some(format!("needs rung {}, and the driver is on {rung}", self.rung));
        }
        let (name, value) = self.needs?;
        (system.setting(name) != Some(value)).then(|| format!("needs the setting {name}={value}"))
    }
}

/// The case with this id; letters of either case.
pub fn find(id: &str) -> Option<&'static Case> {
    CASES.iter().find(|case| case.id.eq_ignore_ascii_case(id))
}

const CREATE: &str = "D3DKMT_CREATE_DOORBELL; DxgkDdiCreateDoorbell";
const SUBMIT: &str = "User-mode work submission, Work submission pseudocode in UMD";
const PROGRESS: &str = "User-mode work submission, HW queue progress fence changes";
const RESIDENCY: &str = "User-mode work submission, Residency model of doorbell memory and ring buffer allocations";
const RESIZE: &str =
    "d3dukmdt.h, D3DKMT_CREATE_DOORBELL_FLAGS and DXGKARG_CREATEDOORBELL_FLAGS, ResizeRingBufferOperation";
const DESIGN: &str = "Native GPU fence objects, GPU native fence sync object design";
/// How many physical doorbells there are.
const PHYSICAL: &str = "PhysicalDoorbells";

const fn case(
    id: &'static str,
    title: &'static str,
    source: &'static str,
    rung: u32,
    play: fn(&dyn System) -> Result<()>,
) -> Case {
    Case { id, title, source, rung, needs: None, play }
}

/// The cases.
pub const CASES: &[Case] = &[
    case(
        "DB-01",
        "no user-mode queue on a node without user-mode submission",
        "User-mode work submission, KMD-reported node flag; DXGK_NODEMETADATA_FLAGS",
        3,
        words::node_without,
    ),
    case("DB-03", "a doorbell is created disconnected", CREATE, 3, words::created_disconnected),
    case(
        "DB-05",
        "connect rotates in a page that holds nothing but the doorbell",
        "D3DKMT_CREATE_DOORBELL, DoorbellStatusCPUVirtualAddress; DXGKARG_CONNECTDOORBELL",
        3,
        words::connect,
    ),
    Case {
        needs: Some((PHYSICAL, 1)),
        ..case(
            "DB-07",
            "addresses stay over 100 connections and disconnections",
            "D3DKMT_CREATE_DOORBELL, DoorbellCPUVirtualAddress (constant over the lifetime)",
            3,
            words::addresses_stay,
        )
    },
    case("DB-06", "five-step submission runs once", PROGRESS, 3, driver::five_steps),
    Case {
        needs: Some((PHYSICAL, 1)),
        ..case(
            "DB-08",
            "one physical doorbell, two queues: the callback first, then the doorbell moves",
            "User-mode work submission, Victimizing doorbell pseudocode in KMD",
            3,
            words::victim,
        )
    },
    Case {
        // Doorbells stay CONNECTED: the call is not asked for.
        needs: Some(("IdleMilliseconds", 0)),
        ..case(
            "DB-13",
            "a notification nobody asked for succeeds and runs nothing twice",
            "DxgkDdiNotifyWorkSubmission, Return value",
            3,
            words::notify_anyway,
        )
    },
    case(
        "DB-14",
        "a user-mode queue refuses D3DKMTSubmitCommandToHwQueue",
        "User-mode work submission, User-mode work submission DDIs",
        3,
        words::no_kernel_way,
    ),
    case("DB-15", "a kernel-mode queue has no doorbell", CREATE, 1, words::no_doorbell),
    case("DB-16", "a second doorbell is refused, the first works on", CREATE, 3, words::second),
    case(
        "DB-18",
        "no control allocation: the driver's policy is to refuse",
        "D3DKMT_CREATE_DOORBELL, hRingBufferControl (optional)",
        3,
        words::no_control,
    ),
    case("DB-24", "a full ring makes the producer wait", SUBMIT, 0, driver::full),
    case("DB-25", "packets across the ring's end", SUBMIT, 3, words::wrap),
    case(
        "DB-26",
        "impossible write pointers stop their own device only",
        "User-mode work submission, Residency model (device-lost scenarios); DXGKARGCB_NOTIFY_INTERRUPT_DATA",
        3,
        words::bad_pointer,
    ),
    case("DB-28", "eight threads, one queue", SUBMIT, 0, driver::threads),
    case(
        "DB-29",
        "kernel-mode and user-mode queues on one node",
        "User-mode work submission, Submit work",
        3,
        driver::mixed,
    ),
    case(
        "DB-48",
        "several lists in one submission: one doorbell, one progress value, all or none",
        PROGRESS,
        3,
        driver::together,
    ),
    case("DB-68", "fp_queue_resize: rings grow and shrink under load, and behind a wait", RESIZE, 3, driver::resize),
    case(
        "DB-72",
        "fp_queue_recreate: the same way of submission, and through the kernel; progress begins again; of a lost \
                device it is refused, and another device works",
        "User-mode work submission, Residency model (destroyed and made again by user mode), cleanup_fallback",
        0,
        driver::recreated,
    ),
    case(
        "RP-01",
        "a ring, or its control words, that is not resident: no doorbell is made",
        RESIDENCY,
        3,
        words::not_resident,
    ),
    case(
        "RP-02",
        "a ring that is destroyed under its doorbell is there until the doorbell goes",
        RESIDENCY,
        3,
        words::destroyed_under,
    ),
    case(
        "WS-02",
        "a CPU wait, then the GPU's signal: MonitoredValue 9, one interrupt, one wake",
        DESIGN,
        0,
        driver::cpu_waits,
    ),
    case("WS-03", "a queue waits, the CPU signals", "DxgkDdiUpdateCurrentValuesFromCpu", 0, driver::gpu_waits),
    case(
        "PT-06",
        "a process exits and leaves everything open",
        "D3DKMTDestroyDevice; PsSetCreateProcessNotifyRoutine",
        3,
        apart::leaves,
    ),
    case("PT-08", "another process's handles name nothing", "D3DKMTConnectDoorbell, Return value", 3, apart::foreign),
    case(
        "TE-19",
        "a bad opcode, length or address is its device's error, and no reset",
        "amdgpu queue reset tests; DXGK_PAGE_FAULT_FLAGS",
        0,
        every::bad_packets,
    ),
    case(
        "TE-20",
        "a queue that waits for longer than TdrDelay hangs nothing",
        "User-mode work submission, timeouts (inferred)",
        0,
        every::long_wait,
    ),
    case(
        "TE-95",
        "what user mode is told of a packet that faults: the address, whether it was written to, and what was wrong",
        "DXGKARGCB_NOTIFY_INTERRUPT_DATA, DmaPageFaulted; D3DKMT_DEVICEPAGEFAULT_STATE",
        0,
        every::told_of_a_fault,
    ),
    case(
        "ST-96",
        "what tools ask: version, hardware scheduling, names of engines, memory, performance, architecture",
        "D3DKMT_GPUVERSION; D3DKMT_ADAPTER_PERFDATA; D3DKMT_ADAPTER_PERFDATACAPS; D3DKMT_NODE_PERFDATA; \
         D3DKMT_NODEMETADATA; D3DKMT_SEGMENTSIZEINFO; D3DKMT_DRIVERVERSION; D3DKMT_WDDM_2_7_CAPS",
        0,
        every::tools,
    ),
];
