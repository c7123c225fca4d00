//! LB: native fence log buffers. Source of all: *Native GPU fence objects*.

use super::Scenario;

pub(super) const CASES: &[Scenario] = &[];
