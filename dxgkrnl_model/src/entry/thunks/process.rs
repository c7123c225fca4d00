//! Handles to processes, and thunks about the priorities of processes.
//!
//! Source: DDI pages D3DKMTSetProcessSchedulingPriorityClass, D3DKMTGetProcessSchedulingPriorityClass,
//! D3DKMT_SCHEDULINGPRIORITYCLASS. Chosen: a process begins as normal; the priority is told, and schedules nothing,
//! since no document says what it is for the driver; those above ABOVE_NORMAL need SE_INC_BASE_PRIORITY_NAME, which
//! clients in the field enable for them.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use nt_model::shims;
use wddm_abi::{D3DKMT_SCHEDULINGPRIORITYCLASS, HANDLE, NTSTATUS, ntstatus};

use super::{Call, DONE, INVALID, Outcome, capture, enter};
use crate::objects::process::{OtherProcess, ProcessInner, ProcessRights};

/// The right to ask.
pub(super) const MAY_ASK: ProcessRights = ProcessRights { query: true, set: false };
/// The right to change.
pub(super) const MAY_SET: ProcessRights = ProcessRights { query: false, set: true };

/// What GetCurrentProcess returns.
const THIS_PROCESS: usize = usize::MAX;

/// The process that a handle of the caller's leads to, with these rights at least.
///
/// # Errors
/// STATUS_INVALID_HANDLE; STATUS_ACCESS_DENIED for one that was opened without a right that is needed.
pub(super) fn named(call: &Call, handle: HANDLE, needed: ProcessRights) -> Result<Arc<ProcessInner>, NTSTATUS> {
    if handle.addr() == THIS_PROCESS {
        return Ok(call.process.clone());
    }
    let other =
        call.process.nt().handle::<OtherProcess>(handle.addr() as u64).ok_or(ntstatus::STATUS_INVALID_HANDLE)?;
    let has = other.rights();
    let may = (has.query || !needed.query) && (has.set || !needed.set);
    if may { Ok(other.process().clone()) } else { Err(ntstatus::STATUS_ACCESS_DENIED) }
}

/// The process of the caller where the handle is NULL, or [`named`].
///
/// # Errors
/// As [`named`].
pub(super) fn own_or_named(call: &Call, handle: HANDLE, needed: ProcessRights) -> Result<Arc<ProcessInner>, NTSTATUS> {
    if handle.is_null() { Ok(call.process.clone()) } else { named(call, handle, needed) }
}

/// # Errors
/// Those of [`named`]; STATUS_INVALID_PARAMETER for no priority; STATUS_PRIVILEGE_NOT_HELD.
fn set_class(call: &Call, process: HANDLE, class: i32) -> Outcome {
    use D3DKMT_SCHEDULINGPRIORITYCLASS as Class;
    let process = named(call, process, MAY_SET)?;
    if Class(class).name().is_none() {
        return Err(INVALID);
    }
    if class > Class::D3DKMT_SCHEDULINGPRIORITYCLASS_ABOVE_NORMAL.0 && !call.process.is_trusted() {
        return Err(ntstatus::STATUS_PRIVILEGE_NOT_HELD);
    }
    process.class.store(class, Ordering::Release);
    DONE
}

/// # Errors
/// Those of [`named`] and of [`capture::write`].
fn get_class(call: &Call, process: HANDLE, class: usize) -> Outcome {
    let process = named(call, process, MAY_ASK)?;
    capture::write(class, &process.class.load(Ordering::Acquire))?;
    DONE
}

fn handle(number: usize) -> HANDLE {
    core::ptr::with_exposed_provenance_mut(number)
}

shims! {
    /// Priorities of processes.
    pub(super) table THUNKS;

    fn D3DKMTSetProcessSchedulingPriorityClass(machine, process: usize, class: i32) -> NTSTATUS {
        enter(machine, "D3DKMTSetProcessSchedulingPriorityClass", |call| set_class(call, handle(process), class))
    }

    fn D3DKMTGetProcessSchedulingPriorityClass(machine, process: usize, class: usize) -> NTSTATUS {
        enter(machine, "D3DKMTGetProcessSchedulingPriorityClass", |call| get_class(call, handle(process), class))
    }
}
