//! The jobs: names, criteria, sources.

use super::{Job, play};

/// The requirement that the jobs belong to, as the kit names it. It is mandatory for render-only drivers, too.
///
/// Source: *TDR changes in Windows 8*, requirements.
pub const REQUIREMENT: &str = "Device.Graphics...TDRResiliency";

/// The jobs.
pub const JOBS: &[Job] = &[
    Job {
        id: "claim",
        name: "Per-engine reset claim check",
        criterion: "the driver says SupportPerEngineTDR, and each engine is reset alone by the functions that belong \
                    to it",
        source: "TDR changes in Windows 8, TDR DDI and requirements",
        portable: None,
    },
    Job {
        id: "two-device",
        name: "Standard Two Device Test",
        criterion: "of two devices the one that hangs an engine is lost, the other one works on, and new ones can be \
                    made",
        source: "WHLK, TDR2, Standard Two Device Test; TDR changes in Windows 8, calling sequence",
        portable: Some(&play::TWO_DEVICES),
    },
    Job {
        id: "long-no-tdr",
        name: "Long Running Packet (NO TDR)",
        criterion: "a packet that takes longer than TdrDelay and can be preempted ends, and nothing is reset",
        source: "WHLK, TDR2, Long Running Compute/Graphics Packet expecting no TDR",
        portable: Some(&play::LONG),
    },
    Job {
        id: "long-tdr",
        name: "Long Running Packet (TDR)",
        criterion: "a packet that takes longer than TdrDelay and cannot be preempted is reset",
        source: "WHLK, TDR2, Long Running Compute/Graphics Packet expecting TDR",
        portable: Some(&play::TOO_LONG),
    },
    Job {
        id: "police-ddi",
        name: "Long Running Packet (PoliceDdi)",
        criterion: "no function of the driver takes longer than 250 ms",
        source: "WHLK, TDR2, PoliceDdi variants (the threshold)",
        portable: None,
    },
    Job {
        id: "large-payload",
        name: "Large Payload Penalty",
        criterion: "many small packets that take longer than TdrDelay together are no timeout",
        source: "WHLK, TDR2, Large Payload Penalty",
        portable: Some(&play::MANY),
    },
    Job {
        id: "lockout",
        name: "Multiple TDR Lockout and Recovery",
        criterion: "an application that hangs too often makes no device any more until it is started again; more \
                    adapter resets than TdrLimitCount are bug check 0x116",
        source: "WHLK, TDR2, Multiple TDR Lockout and Recovery; TDR registry keys",
        portable: None,
    },
    Job {
        id: "preemption",
        name: "Simulate Preemption TDR",
        criterion: "timeouts that user mode forces are recovered, one behind another, beside work of others",
        source: "WHLK, Simulate Preemption TDR; D3DKMT_TDRDBGCTRLTYPE",
        portable: Some(&play::FORCED),
    },
    Job {
        id: "granularity",
        name: "Preempt: validate non-zero preemption values",
        criterion: "preemptions happen at the granularity that the capabilities say, and each packet runs once",
        source: "WHLK, Preempt; DXGK_DRIVERCAPS, PreemptionCaps",
        portable: None,
    },
    Job {
        id: "escalation",
        name: "Reset of the adapter",
        criterion: "a reset of an engine that fails, or takes paging along, becomes the adapter's, with TdrReason 9",
        source: "TDR changes in Windows 8, failure and recovery",
        portable: None,
    },
    Job {
        id: "storm",
        name: "Reset storm",
        criterion: "a hundred resets at random points of a running load leave nothing behind",
        source: "IGT, gt-reset-stress",
        portable: None,
    },
];
