//! Why an adapter did not start, and what Windows shows of that.
//!
//! No page says what a failed start looks like. Source: authors of display drivers saw, on builds 22621 and 26100, the
//! problem code of the device manager and event 549 of the provider Microsoft-Windows-DxgKrnl:
//!
//! | what failed | problem | event 549 |
//! |---|---|---|
//! | DriverEntry | Code 37, its status | none |
//! | `DxgkDdiAddDevice` | Code 31, its status | none |
//! | `DxgkDdiStartDevice` | Code 43, status 0 | reason 1, DdiStartDeviceFailed |
//! | what came behind it | Code 43, status 0 | reason 3, AddAdapterFailed: STATUS_INVALID_PARAMETER for what the OS refuses, STATUS_REVISION_MISMATCH for versions that do not agree and for a slot of a newer interface, STATUS_DEVICE_CONFIGURATION_ERROR for HISTORYBUFFERPRECISION |
//!
//! Chosen: where a query or function behind the start failed, event 549 has the driver's own status; and what is no
//! step of its own there ([`StartError::Links`]) counts as the step that it was found in.

use std::fmt;

use nt_model::Rule;
use wddm_abi::{NTSTATUS, ntstatus};

use crate::entry::adapter::Adapter;
use crate::port::miniport::{AdapterState, Miniport};
use crate::port::rules::caps::CAPS_HISTORY;
use crate::port::rules::start::{ADD_CONTEXT, VERSION_AGREES};
use crate::port::sync::{Lock, Rank};

/// Why an adapter did not start.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StartError {
    /// The driver failed a step.
    #[error("{step} returned {status:?}")]
    Driver {
        /// DDI or query.
        step: String,
        /// What it returned.
        status: NTSTATUS,
    },
    /// The system refuses the driver, for a rule that it broke.
    #[error("the adapter is refused: {} ({})", rule.name, rule.title)]
    Refused {
        /// The rule that it broke.
        rule: &'static Rule,
        /// What the system's own function ends with.
        status: NTSTATUS,
    },
    /// The chain of linked adapters is another than the driver says.
    #[error("DxgkDdiLinkDevice names {links} links, and the machine has {there}")]
    Links {
        /// What the driver has said: `LINKED_DEVICE.NumberOfLinksInChain`.
        links: u32,
        /// Physical adapters that are there.
        there: u32,
    },
    /// The driver is a display-only one, whose device has been started and stopped: the model has no displays.
    #[error("a display-only driver, which the model starts and stops, and does not use")]
    DisplayOnly,
    /// It is started or being started already, or its driver is gone.
    #[error("the adapter is {0:?}")]
    State(AdapterState),
    /// The machine has stopped.
    #[error("the machine has stopped")]
    Stopped,
}

/// A refusal that the model went on past.
#[derive(Debug)]
pub(super) struct Passed(Lock<Option<StartError>>);

impl Default for Passed {
    fn default() -> Self {
        Self(Lock::new(Rank::Leaf, None))
    }
}

impl Passed {
    pub(super) fn of(adapter: &Miniport) -> &Self {
        adapter.extension()
    }

    pub(super) fn note(&self, refusal: Option<StartError>) {
        *self.0.lock() = refusal;
    }
}

impl Adapter {
    /// Why Windows would have refused the start that went on all the same; `None`: it would not have, or the model does
    /// not go on ([`Personality::past_refusals`](crate::personality::Personality::past_refusals)).
    pub fn passed_refusal(&self) -> Option<StartError> {
        Passed::of(self).0.lock().clone()
    }
}

/// Steps of which Windows shows something else than of those behind them, by the names of their functions.
pub(super) const ADD_DEVICE: &str = "DxgkDdiAddDevice";
pub(super) const LINK_DEVICE: &str = "DxgkDdiLinkDevice";
pub(super) const START_DEVICE: &str = "DxgkDdiStartDevice";

/// `FailureReason` of event 549, as far as it was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum FailureReason {
    /// The driver's `DxgkDdiStartDevice` returned a failure.
    DdiStartDeviceFailed = 1,
    /// The start failed behind `DxgkDdiStartDevice`.
    AddAdapterFailed = 3,
}

/// What Windows shows of an adapter that does not start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Problem code, as the device manager shows it: 31 or 43.
    pub code: u32,
    /// The device's problem status.
    pub status: NTSTATUS,
    /// Reason and status of event 549, where the adapter comes that far.
    pub event: Option<(FailureReason, NTSTATUS)>,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.event {
            Some((reason, status)) => {
                let number = reason as u32;
                write!(f, "Code {}, and event 549 with reason {number} ({reason:?}), {status:?}", self.code)
            }
            None => write!(f, "Code {}, {:?}", self.code, self.status),
        }
    }
}

impl StartError {
    /// The system refuses the driver for a rule.
    pub(super) fn refused(rule: &'static Rule) -> Self {
        let status = if std::ptr::eq(rule, &raw const VERSION_AGREES) {
            ntstatus::STATUS_REVISION_MISMATCH
        } else if std::ptr::eq(rule, &raw const CAPS_HISTORY) {
            ntstatus::STATUS_DEVICE_CONFIGURATION_ERROR
        } else {
            ntstatus::STATUS_INVALID_PARAMETER
        };
        Self::Refused { rule, status }
    }

    /// What Windows shows of it. `None`: the adapter was not to be started, or the model cannot go on.
    pub fn problem(&self) -> Option<Problem> {
        let added = |status| Some(Problem { code: 31, status, event: None });
        let started = |reason, status| {
            Some(Problem { code: 43, status: ntstatus::STATUS_SUCCESS, event: Some((reason, status)) })
        };
        match self {
            Self::Driver { step, status } => match step.as_str() {
                ADD_DEVICE | LINK_DEVICE => added(*status),
                START_DEVICE => started(FailureReason::DdiStartDeviceFailed, *status),
                _ => started(FailureReason::AddAdapterFailed, *status),
            },
            Self::Refused { rule, status } if std::ptr::eq(*rule, &raw const ADD_CONTEXT) => added(*status),
            Self::Refused { status, .. } => started(FailureReason::AddAdapterFailed, *status),
            Self::Links { .. } => added(ntstatus::STATUS_INVALID_PARAMETER),
            Self::DisplayOnly | Self::State(_) | Self::Stopped => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::port::rules::caps::CAPS_FLIP;

    #[test]
    fn a_failed_start_shows_what_was_seen_of_it() {
        let shown = |error: StartError| error.problem().map(|problem| problem.to_string());
        let failed = |step: &str| StartError::Driver { step: step.into(), status: ntstatus::STATUS_NO_MEMORY };
        let text = "Code 31, STATUS_NO_MEMORY";
        assert_eq!(shown(failed("DxgkDdiAddDevice")).as_deref(), Some(text));
        let text = "Code 43, and event 549 with reason 1 (DdiStartDeviceFailed), STATUS_NO_MEMORY";
        assert_eq!(shown(failed("DxgkDdiStartDevice")).as_deref(), Some(text));
        let text = "Code 43, and event 549 with reason 3 (AddAdapterFailed), STATUS_NO_MEMORY";
        assert_eq!(shown(failed("DRIVERCAPS")).as_deref(), Some(text));
        let text = "Code 43, and event 549 with reason 3 (AddAdapterFailed), STATUS_INVALID_PARAMETER";
        assert_eq!(shown(StartError::refused(&CAPS_FLIP)).as_deref(), Some(text));
        let text = "Code 43, and event 549 with reason 3 (AddAdapterFailed), STATUS_REVISION_MISMATCH";
        assert_eq!(shown(StartError::refused(&VERSION_AGREES)).as_deref(), Some(text));
        assert_eq!(shown(StartError::Stopped), None);
    }
}
