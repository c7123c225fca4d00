//! `DxgkDdiSetSchedulingLogBuffer`: sets the scheduling log of a node, or takes it away. Source:
//! `DXGKDDI_SETSCHEDULINGLOGBUFFER`.

use crate::adapter::{EngineHost, Started};
use crate::irql::Passive;
use crate::nodes;
use crate::platform::Platform;
use crate::status::{Error, Result};
use gpu_engine::memory::Span;
use gpu_engine::scheduling_log::{
    ContextState, ENTRY_CONTEXT, ENTRY_OPERATION, ENTRY_SIZE, ENTRY_STATE, ENTRY_TIME, HEADER_POSITION, HEADER_SIZE,
    SchedulingLog,
};
use gpu_wire::NodeOrdinal;
use wddm_abi::{
    DXGK_SCHEDULING_LOG_BUFFER, DXGK_SCHEDULING_LOG_CONTEXT_STATE, DXGK_SCHEDULING_LOG_CONTEXT_STATE_CHANGE,
    DXGK_SCHEDULING_LOG_ENTRY, DXGK_SCHEDULING_LOG_HEADER, DXGK_SCHEDULING_LOG_OPERATION,
};

// The engine has numbers of its own for the layout; here they are compared with Microsoft's records.
const _: () = {
    use DXGK_SCHEDULING_LOG_CONTEXT_STATE as State;
    assert!(HEADER_SIZE as usize == size_of::<DXGK_SCHEDULING_LOG_HEADER>());
    assert!(HEADER_SIZE as usize == core::mem::offset_of!(DXGK_SCHEDULING_LOG_BUFFER, Entries));
    assert!(ENTRY_SIZE as usize == size_of::<DXGK_SCHEDULING_LOG_ENTRY>());
    assert!(HEADER_POSITION == 0);
    assert!(ENTRY_TIME as usize == core::mem::offset_of!(DXGK_SCHEDULING_LOG_ENTRY, GpuTimeStamp));
    assert!(ENTRY_OPERATION == 8 && ENTRY_CONTEXT == 16);
    assert!(
        ENTRY_STATE - ENTRY_CONTEXT
            == core::mem::offset_of!(DXGK_SCHEDULING_LOG_CONTEXT_STATE_CHANGE, newContextState) as u64
    );
    assert!(DXGK_SCHEDULING_LOG_OPERATION::DXGK_SCHEDULING_LOG_OPERATION_CONTEXT_STATE_CHANGE.0 == 0);
    assert!(ContextState::Idle as i32 == State::DXGK_SCHEDULING_LOG_CONTEXT_STATE_IDLE.0);
    assert!(ContextState::Running as i32 == State::DXGK_SCHEDULING_LOG_CONTEXT_STATE_RUNNING.0);
    assert!(ContextState::Ready as i32 == State::DXGK_SCHEDULING_LOG_CONTEXT_STATE_READY.0);
};

/// The log of a node, named by `NodeOrdinal` and `EngineOrdinal`. `None` for a node that takes packets: the GPU
/// schedules no contexts there, and nothing is logged.
///
/// # Errors
/// [`Error::InvalidParameter`] for a node or engine that does not exist.
fn log_of<P: Platform>(
    started: &Started<P>,
    (node, engine): (NodeOrdinal, u32),
) -> Result<Option<&SchedulingLog<EngineHost<P>>>> {
    let found = started.gpu.nodes.get(node.index()).filter(|_| engine == 0).ok_or(Error::InvalidParameter)?;
    Ok(nodes::is_hardware_scheduled(&started.plan, node).then_some(&found.scheduling))
}

/// Sets the log of the node and engine `place` to `buffer`. `size` is its number of entries and the index of the entry
/// that raises the interrupt. When this returns, the engines do not touch the buffer before it any more.
///
/// # Errors
/// [`Error::InvalidParameter`] for a node or engine that does not exist, no entries, more entries than `buffer` holds,
/// or a buffer that is not aligned to 8.
pub fn set<P: Platform>(
    _irql: &Passive,
    started: &Started<P>,
    place: (NodeOrdinal, u32),
    buffer: Span<'static>,
    size: (u32, u32),
) -> Result<()> {
    let Some(log) = log_of(started, place)? else { return Ok(()) };
    let buffer = started.as_cached(buffer, "a scheduling log");
    log.set(buffer, size.0, size.1).map_err(|_| Error::InvalidParameter)
}

/// Takes the log of the node and engine `place` away. When this returns, the engines do not touch its buffer any more.
///
/// # Errors
/// [`Error::InvalidParameter`] for a node or engine that does not exist.
pub fn clear<P: Platform>(_irql: &Passive, started: &Started<P>, place: (NodeOrdinal, u32)) -> Result<()> {
    if let Some(log) = log_of(started, place)? {
        log.clear();
    }
    Ok(())
}
