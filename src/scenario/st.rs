//! ST: start and negotiation.

use super::Scenario;

pub(super) const CASES: &[Scenario] = &[];
