//! XA: cross-adapter fences. Source of all: *Native GPU fence objects*.

use super::Scenario;

pub(super) const CASES: &[Scenario] = &[];
