//! The suite of timeouts: the public jobs of Microsoft's kit for TDR, each by the conformance cases that play it.
//!
//! The kit itself runs on Windows alone. What a job asks for is taken from its public page or, where that is gone, from
//! its name; the cases ask for it of the driver in the model.

/// The requirement that the jobs belong to, as the kit names it. It is mandatory for render-only drivers, too.
///
/// Source: *TDR changes in Windows 8*, requirements.
pub const REQUIREMENT: &str = "Device.Graphics...TDRResiliency";

/// A job.
#[derive(Debug)]
pub struct Job {
    /// A short name, for the command line.
    pub id: &'static str,
    /// The name that the kit gives it, or, without one, what it is.
    pub name: &'static str,
    /// What must be, in a sentence.
    pub criterion: &'static str,
    /// Where that stands.
    pub source: &'static str,
    /// The cases that play it: every one must hold.
    pub cases: &'static [&'static str],
}

/// The rungs on which the jobs are played, where no setting says otherwise: packets alone, and everything.
pub const RUNGS: [u8; 2] = [0, 3];

/// The jobs.
pub const JOBS: &[Job] = &[
    Job {
        id: "claim",
        name: "Per-engine reset claim check",
        criterion: "the driver says SupportPerEngineTDR, and each engine is reset alone by the functions that belong \
                    to it",
        source: "TDR changes in Windows 8, TDR DDI and requirements",
        cases: &["TE-01", "TE-14", "ST-05"],
    },
    Job {
        id: "two-device",
        name: "Standard Two Device Test",
        criterion: "of two devices the one that hangs an engine is lost, the other one works on, and new ones can be \
                    made",
        source: "WHLK, TDR2, Standard Two Device Test; TDR changes in Windows 8, calling sequence",
        cases: &["TE-03", "TE-04", "TE-17"],
    },
    Job {
        id: "long-no-tdr",
        name: "Long Running Packet (NO TDR)",
        criterion: "a packet that takes longer than TdrDelay and can be preempted ends, and nothing is reset",
        source: "WHLK, TDR2, Long Running Compute/Graphics Packet expecting no TDR",
        cases: &["TE-07", "TE-20"],
    },
    Job {
        id: "long-tdr",
        name: "Long Running Packet (TDR)",
        criterion: "a packet that takes longer than TdrDelay and cannot be preempted is reset",
        source: "WHLK, TDR2, Long Running Compute/Graphics Packet expecting TDR",
        cases: &["TE-08"],
    },
    Job {
        id: "police-ddi",
        name: "Long Running Packet (PoliceDdi)",
        criterion: "no function of the driver takes longer than 250 ms",
        source: "WHLK, TDR2, PoliceDdi variants (the threshold)",
        cases: &["BI-19"],
    },
    Job {
        id: "large-payload",
        name: "Large Payload Penalty",
        criterion: "many small packets that take longer than TdrDelay together are no timeout",
        source: "WHLK, TDR2, Large Payload Penalty",
        cases: &["TE-09"],
    },
    Job {
        id: "lockout",
        name: "Multiple TDR Lockout and Recovery",
        criterion: "an application that hangs too often makes no device any more until it is started again; more \
                    adapter resets than TdrLimitCount are bug check 0x116",
        source: "WHLK, TDR2, Multiple TDR Lockout and Recovery; TDR registry keys",
        cases: &["TA-06", "TA-07"],
    },
    Job {
        id: "preemption",
        name: "Simulate Preemption TDR",
        criterion: "timeouts that user mode forces are recovered, one behind another, beside work of others",
        source: "WHLK, Simulate Preemption TDR; D3DKMT_TDRDBGCTRLTYPE",
        cases: &["TA-11", "TE-26"],
    },
    Job {
        id: "granularity",
        name: "Preempt: validate non-zero preemption values",
        criterion: "preemptions happen at the granularity that the capabilities say, and each packet runs once",
        source: "WHLK, Preempt; DXGK_DRIVERCAPS, PreemptionCaps",
        cases: &["TE-41", "TE-42"],
    },
    Job {
        id: "escalation",
        name: "Reset of the adapter",
        criterion: "a reset of an engine that fails, or takes paging along, becomes the adapter's, with TdrReason 9",
        source: "TDR changes in Windows 8, failure and recovery",
        cases: &["TE-10", "TE-12", "TE-16", "TE-35", "TA-01"],
    },
    Job {
        id: "storm",
        name: "Reset storm",
        criterion: "a hundred resets at random points of a running load leave nothing behind",
        source: "IGT, gt-reset-stress",
        cases: &["TE-27"],
    },
];

/// The job with this short name, letters of either case.
pub fn find(id: &str) -> Option<&'static Job> {
    JOBS.iter().find(|job| job.id.eq_ignore_ascii_case(id))
}

/// The list of the jobs, four lines each.
pub fn list() -> String {
    let line = |job: &Job| {
        let cases = job.cases.join(" ");
        format!("{:14}{}\n      {}\n      {}\n      {cases}\n", job.id, job.name, job.criterion, job.source)
    };
    JOBS.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::all;
    use std::collections::BTreeSet;

    #[test]
    fn every_job_has_cases_that_there_are_and_a_name_of_its_own() {
        let known: BTreeSet<_> = all().map(|case| case.id).collect();
        for job in JOBS {
            assert!(!job.cases.is_empty() && job.cases.iter().all(|case| known.contains(case)), "{}", job.id);
            assert_eq!(find(&job.id.to_uppercase()).map(|found| found.name), Some(job.name));
        }
        assert!(find("no-such-job").is_none());
    }
}
