//! Thunks about the priorities of contexts. What they mean: [`crate::objects::priority`].
//!
//! Chosen: a process that may force resets has SE_INC_BASE_PRIORITY_NAME as well, since both are administrators'; a
//! context of a lost device has its priorities still, and takes no others.

use std::sync::Arc;

use wddm_abi::{
    D3DKMT_GETCONTEXTINPROCESSSCHEDULINGPRIORITY, D3DKMT_GETCONTEXTSCHEDULINGPRIORITY,
    D3DKMT_SETCONTEXTINPROCESSSCHEDULINGPRIORITY, D3DKMT_SETCONTEXTSCHEDULINGPRIORITY, NTSTATUS,
};

use super::{Call, DONE, INVALID, Outcome, thunks};
use crate::objects::context::Context;
use crate::objects::hw_context::HwContext;
use crate::objects::priority::Priority;

/// A context of either kind.
enum Either {
    Packets(Arc<Context>),
    Hardware(Arc<HwContext>),
}

/// The context of a handle.
///
/// # Errors
/// STATUS_INVALID_PARAMETER.
fn context(call: &Call, handle: u32) -> Result<Either, NTSTATUS> {
    let packets = call.process.context(handle).map(Either::Packets);
    packets.or_else(|| call.process.hw_context(handle).map(Either::Hardware)).ok_or(INVALID)
}

/// The priorities of the context with this handle.
fn get(call: &Call, handle: u32) -> Result<Priority, NTSTATUS> {
    Ok(match context(call, handle)? {
        Either::Packets(context) => context.priority(),
        Either::Hardware(context) => context.priority(),
    })
}

/// Changes the priorities of the context with this handle.
fn set(call: &Call, handle: u32, change: impl FnOnce(&mut Priority)) -> Outcome {
    match context(call, handle)? {
        Either::Packets(context) => {
            call.uses_device(context.device())?;
            context.device().usable()?;
            context.set_priority(change);
        }
        Either::Hardware(context) => {
            call.uses_context(&context)?;
            context.device().usable()?;
            context.set_priority(change)?;
        }
    }
    DONE
}

thunks! {
    /// Priorities.
    table THUNKS;

    fn D3DKMTSetContextSchedulingPriority(call, record: D3DKMT_SETCONTEXTSCHEDULINGPRIORITY) {
        let value = record.Priority;
        Priority::check_scheduling(value, call.process.is_trusted())?;
        set(call, record.hContext, |priority| priority.scheduling = value)
    }

    fn D3DKMTGetContextSchedulingPriority(call, record: D3DKMT_GETCONTEXTSCHEDULINGPRIORITY) {
        record.Priority = get(call, record.hContext)?.scheduling;
        DONE
    }

    fn D3DKMTSetContextInProcessSchedulingPriority(call, record: D3DKMT_SETCONTEXTINPROCESSSCHEDULINGPRIORITY) {
        let value = record.Priority;
        Priority::check_in_process(value)?;
        set(call, record.hContext, |priority| priority.in_process = value)
    }

    fn D3DKMTGetContextInProcessSchedulingPriority(call, record: D3DKMT_GETCONTEXTINPROCESSSCHEDULINGPRIORITY) {
        record.Priority = get(call, record.hContext)?.in_process;
        DONE
    }
}
