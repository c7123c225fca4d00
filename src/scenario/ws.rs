//! WS: waits and signals. Source of all: *Native GPU fence objects*; *Monitored fences*.

use super::Scenario;

pub(super) const CASES: &[Scenario] = &[];
