//! Fence log buffers of a hardware queue. Source: `DxgkDdiSetNativeFenceLogBuffer`, `DxgkDdiUpdateNativeFenceLogs`.

use crate::handle::Handle;
use crate::hw_queue::HwQueue;
use crate::irql::AtMostDispatch;
use crate::platform::Platform;
use crate::status::{Error, Result};
use gpu_engine::fence_log::{
    ENTRY_END, ENTRY_HANDLE_AND_OPERATION, ENTRY_OBSERVED, ENTRY_SIZE, ENTRY_VALUE, HEADER_POSITION, HEADER_SIZE,
};
use gpu_engine::host::Lock;
use gpu_engine::memory::Span;
use wddm_abi::{
    DXGK_NATIVE_FENCE_LOG_ENTRY, DXGK_NATIVE_FENCE_LOG_HEADER, DXGK_NATIVE_FENCE_LOG_OPERATION,
    DXGK_NATIVE_FENCE_LOG_TYPE,
};

// The engine knows the layout by numbers of its own; they are Microsoft's.
const _: () = {
    assert!(HEADER_SIZE as usize == size_of::<DXGK_NATIVE_FENCE_LOG_HEADER>());
    assert!(ENTRY_SIZE as usize == size_of::<DXGK_NATIVE_FENCE_LOG_ENTRY>());
    assert!(HEADER_POSITION == 0);
    assert!(ENTRY_VALUE as usize == core::mem::offset_of!(DXGK_NATIVE_FENCE_LOG_ENTRY, FenceValue));
    assert!(ENTRY_HANDLE_AND_OPERATION as usize == core::mem::offset_of!(DXGK_NATIVE_FENCE_LOG_ENTRY, hNativeFence));
    assert!(ENTRY_OBSERVED as usize == core::mem::offset_of!(DXGK_NATIVE_FENCE_LOG_ENTRY, FenceObservedGpuTimestamp));
    assert!(ENTRY_END as usize == core::mem::offset_of!(DXGK_NATIVE_FENCE_LOG_ENTRY, FenceEndGpuTimestamp));
    assert!(
        gpu_wire::packet::log_operation::SIGNAL_EXECUTED as i32
            == DXGK_NATIVE_FENCE_LOG_OPERATION::DXGK_NATIVE_FENCE_LOG_OPERATION_SIGNAL_EXECUTED.0
    );
    assert!(
        gpu_wire::packet::log_operation::WAIT_UNBLOCKED as i32
            == DXGK_NATIVE_FENCE_LOG_OPERATION::DXGK_NATIVE_FENCE_LOG_OPERATION_WAIT_UNBLOCKED.0
    );
};

/// Sets one of a queue's two logs. The engine writes it under the same lock, so the old buffer is not touched any more
/// when this returns. Up to `DISPATCH_LEVEL`.
///
/// # Errors
/// [`Error::InvalidParameter`] for a log type that is neither waits nor signals, or entries that do not fit.
pub fn set<P: Platform>(
    _irql: &impl AtMostDispatch,
    queue: &HwQueue<P>,
    kind: DXGK_NATIVE_FENCE_LOG_TYPE,
    buffer: Span<'static>,
    entries: u32,
) -> Result<()> {
    let log = match kind {
        DXGK_NATIVE_FENCE_LOG_TYPE::DXGK_NATIVE_FENCE_LOG_TYPE_WAITS => &queue.engine.waits,
        DXGK_NATIVE_FENCE_LOG_TYPE::DXGK_NATIVE_FENCE_LOG_TYPE_SIGNALS => &queue.engine.signals,
        _ => return Err(Error::InvalidParameter),
    };
    let buffer = queue.counted.started.as_cached(buffer, "a fence log");
    log.with(|log| log.set(buffer, entries)).map_err(|_| Error::InvalidParameter)
}

/// Takes both logs of a queue away. When this returns, the engines do not touch the buffers any more; entries are
/// dropped until a log is set again. Up to `DISPATCH_LEVEL`.
pub fn clear<P: Platform>(_irql: &impl AtMostDispatch, queue: &HwQueue<P>) {
    for log in queue.engine.logs() {
        log.with(gpu_engine::fence_log::Log::clear);
    }
}

/// Makes every log entry that the listed queues counted readable. Up to `DISPATCH_LEVEL`.
///
/// # Errors
/// [`Error::InvalidParameter`] when a handle is no queue's; the others are flushed all the same.
pub fn flush<P: Platform>(_irql: &impl AtMostDispatch, queues: impl Iterator<Item = Handle>) -> Result<()> {
    let mut result = Ok(());
    for handle in queues {
        let flushed = handle.borrow(|queue: &HwQueue<P>| {
            let mutation = &queue.counted.started.gpu.mutation;
            gpu_engine::fence_log::flush(queue.engine.logs(), mutation);
        });
        result = result.and(flushed);
    }
    result
}
