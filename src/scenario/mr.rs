//! MR: the race of CurrentValue, MonitoredValue and interrupt. Source of all: *Native GPU fence objects*.

use super::Scenario;

pub(super) const CASES: &[Scenario] = &[];
