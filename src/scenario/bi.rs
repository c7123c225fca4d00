//! BI: bad input.

use super::Scenario;

pub(super) const CASES: &[Scenario] = &[];
