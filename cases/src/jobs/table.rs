//! The jobs: names, criteria, sources.

use super::{Job, play};

/// The requirement that the jobs belong to, as the kit names it. It is mandatory for render-only drivers, too.
///
/// Source: the kit's page *TDR2 - Standard Two Device Test Graphics*, specifications; *TDR changes in Windows 8*,
/// requirements, which leaves out the middle of the name.
pub const REQUIREMENT: &str = "Device.Graphics.WDDM12.Render.TDRResiliency";

/// What the one page of the kit's twenty TDR2 jobs publishes of each. Source: HLK testref
/// 575d868d-b89a-48f7-b356-1c9f8c371a6f.
const NAME_ALONE: &str = "the name, and that it measures the recovery from timeouts, in 2 minutes or so: no criterion";
/// The same of those that have variants.
const VARIANTS: &str = "as of the others the name: no criterion, no limit of PoliceDdi, nor what Interactive and \
    NonInteractive mean; a render-only adapter has no desktop, and both are one play here";
/// Of a job that is not the kit's.
const NOT_THE_KITS: &str = "not a job of the kit";

/// The jobs.
pub const JOBS: &[Job] = &[
    Job {
        id: "claim",
        name: "Per-engine reset claim check",
        criterion: "the driver says SupportPerEngineTDR, and each engine is reset alone by the functions that belong \
                    to it",
        source: "TDR changes in Windows 8, TDR DDI and requirements",
        kit: &["TDR2 - Scheduler WLK Validate WDDM1.2 drivers say they support per engine resets"],
        published: NAME_ALONE,
        portable: Ok(&play::CLAIM),
    },
    Job {
        id: "two-device",
        name: "Standard Two Device Test",
        criterion: "of two devices the one that hangs an engine is lost, the other one works on, and new ones can be \
                    made",
        source: "WHLK, TDR2, Standard Two Device Test; TDR changes in Windows 8, calling sequence",
        kit: &["TDR2 - Standard Two Device Test Graphics (Uninterrupted when another app TDRs)"],
        published: NAME_ALONE,
        portable: Ok(&play::TWO_DEVICES),
    },
    Job {
        id: "long-no-tdr",
        name: "Long Running Packet (NO TDR)",
        criterion: "a packet that takes longer than TdrDelay and can be preempted ends, and nothing is reset",
        source: "WHLK, TDR2, Long Running Compute/Graphics Packet expecting no TDR",
        kit: &[
            "TDR2 - Long Running Compute Packet Expect NO TDR (Interactive - win7)",
            "TDR2 - Long Running Graphics Packet Expect NO TDR (Interactive - win7)",
        ],
        published: VARIANTS,
        portable: Ok(&play::LONG),
    },
    Job {
        id: "long-tdr",
        name: "Long Running Packet (TDR)",
        criterion: "a packet that takes longer than TdrDelay and cannot be preempted is reset",
        source: "WHLK, TDR2, Long Running Compute/Graphics Packet expecting TDR",
        kit: &[
            "TDR2 - Long Running Compute Packet Expect TDR (Interactive - win7)",
            "TDR2 - Long Running Compute Packet Expect TDR (NonInteractive - win8)",
            "TDR2 - Long Running Graphics Packet Expect TDR (Interactive - win7)",
            "TDR2 - Long Running Graphics Packet Expect TDR (NonInteractive - win8)",
        ],
        published: VARIANTS,
        portable: Ok(&play::TOO_LONG),
    },
    Job {
        id: "police-ddi",
        name: "Long Running Packet (PoliceDdi)",
        criterion: "no function of the driver takes longer than 250 ms; a reset that fails since its engine never \
                    answers takes longer, and less than TdrDdiDelay; as the system stops, a function that keeps the \
                    scheduler for good is named",
        source: "WHLK, TDR2, PoliceDdi variants (the threshold); Testing and debugging TDR, TdrDdiDelay",
        kit: &[
            "TDR2 - Long Running Compute Packet Expect NO TDR (Interactive - win7, PoliceDdi)",
            "TDR2 - Long Running Compute Packet Expect TDR (PoliceDdi)",
            "TDR2 - Long Running Compute Packet Expect TDR (PoliceDdi, NonInteractive)",
            "TDR2 - Long Running Graphics Packet Expect NO TDR (Interactive - win7, PoliceDdi)",
            "TDR2 - Long Running Graphics Packet Expect TDR (PoliceDdi)",
            "TDR2 - Long Running Graphics Packet Expect TDR (PoliceDdi, NonInteractive)",
        ],
        published: VARIANTS,
        portable: Err("user mode does not see how long a function of the driver takes, nor can it keep one"),
    },
    Job {
        id: "large-payload",
        name: "Large Payload Penalty",
        criterion: "many small packets that take longer than TdrDelay together are no timeout",
        source: "WHLK, TDR2, Large Payload Penalty",
        kit: &[
            "TDR2 - Large Payload Penalty Compute Application Test",
            "TDR2 - Large Payload Penalty Graphics Application Test",
        ],
        published: NAME_ALONE,
        portable: Ok(&play::MANY),
    },
    Job {
        id: "lockout",
        name: "Multiple TDR Lockout and Recovery",
        criterion: "an application that hangs too often makes no device any more until it is started again; more \
                    adapter resets than TdrLimitCount are bug check 0x116",
        source: "WHLK, TDR2, Multiple TDR Lockout and Recovery; TDR registry keys",
        kit: &[
            "TDR2 - Multiple TDR Compute Lockout and Recovery Test (Enumerated Adapter)",
            "TDR2 - Multiple TDR Compute Lockout and Recovery Test (NULL Adapter)",
            "TDR2 - Multiple TDR Graphics Lockout and Recovery Test (Enumerated Adapter)",
            "TDR2 - Multiple TDR Graphics Lockout and Recovery Test (NULL Adapter)",
        ],
        published: NAME_ALONE,
        portable: Err(
            "the process that is to be blocked is the program that plays the jobs, and one reset of the adapter too many \
             stops the machine",
        ),
    },
    Job {
        id: "preemption",
        name: "Simulate Preemption TDR",
        criterion: "timeouts that user mode forces are recovered, one behind another, beside work of others",
        source: "WHLK, Simulate Preemption TDR; D3DKMT_TDRDBGCTRLTYPE",
        kit: &["SimulatePreemption TDR"],
        published: "the kit's page says that its content is not available yet; 2 minutes expected, 120 at most; its requirement is \
                    Device.Graphics.AdapterBase.SubsystemResettable",
        portable: Ok(&play::FORCED),
    },
    Job {
        id: "granularity",
        name: "Preempt: validate non-zero preemption values",
        criterion: "preemptions happen at the granularity that the capabilities say, and each packet runs once",
        source: "WHLK, Preempt; DXGK_DRIVERCAPS, PreemptionCaps",
        kit: &[],
        published: "the kit's job is public by its name alone; no page of it was found",
        portable: Ok(&play::GRANULARITY),
    },
    Job {
        id: "escalation",
        name: "Reset of the adapter",
        criterion: "a reset of an engine that fails, or takes paging along, becomes the adapter's, with TdrReason 9",
        source: "TDR changes in Windows 8, failure and recovery",
        kit: &[],
        published: NOT_THE_KITS,
        portable: Err("no call of user mode makes a reset of an engine fail, or has it take a paging packet along"),
    },
    Job {
        id: "storm",
        name: "Reset storm",
        criterion: "a hundred resets at random points of a running load leave nothing behind",
        source: "IGT, gt-reset-stress",
        kit: &[],
        published: NOT_THE_KITS,
        portable: Ok(&play::STORM),
    },
];
