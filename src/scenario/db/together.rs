//! Several lists in one submission.

use crate::scenario::{Played, Scenario, Stage, portable};

pub(super) const CASES: &[Scenario] = &[Scenario {
    id: "DB-48",
    title: "several lists in one submission: one doorbell, one progress value, all or none",
    source: "User-mode work submission, HW queue progress fence changes",
    play: together,
}];

fn together(stage: &Stage) -> Played {
    portable::case(stage, "DB-48", |_| Ok(()))
}
