//! Debug information before a reset.
//!
//! Source: DDI pages DxgkDdiCollectDbgInfo, DxgkDdiCollectDbgInfo2, DXGK_TDR_TYPE, DXGK_TDR_PAYLOAD_ENGINE_TIMEOUT;
//! article tdr-debuggability-improvements.

use wddm_abi::{
    DXGK_TDR_PAYLOAD_ENGINE_TIMEOUT, DXGK_TDR_TYPE, DXGKARG_COLLECTDBGINFO, DXGKARG_COLLECTDBGINFO_EXT,
    DXGKARG_COLLECTDBGINFO2, NTSTATUS, ntstatus,
};

use super::steps::Reason;
use crate::adapter::Adapter;
use crate::adapter::query::Buffer;
use crate::ddi::{self, call_ddi};
use crate::rules::tdr::TDR_COLLECT;
use crate::vidsch::packet::Snapshot;

/// `VIDEO_ENGINE_TIMEOUT_DETECTED`.
pub(super) const ENGINE_TIMEOUT: u32 = 0x141;
/// `VIDEO_TDR_TIMEOUT_DETECTED`.
pub(super) const ADAPTER_TIMEOUT: u32 = 0x117;
/// Bytes of the report.
const SIZE: usize = 0x4000;

/// Before the engine of a packet node is reset.
pub(super) fn packet_engine(adapter: &Adapter, node: u32, snapshot: &Snapshot, reason: Reason) {
    let mut payload = DXGK_TDR_PAYLOAD_ENGINE_TIMEOUT::zeroed();
    payload.NodeOrdinal = node;
    payload.LastHwCompletedFenceId = snapshot.completed.into();
    payload.LastHwSubmittedFenceId = snapshot.submitted.into();
    collect(adapter, ENGINE_TIMEOUT, reason.tdr_type(), Some(&mut payload));
}

/// Before the engine of a hardware-scheduled node is reset. `pending`: suspensions that are not acknowledged. Returns
/// the handle of the context that the driver takes for the one that timed out, if it names one.
pub(super) fn hw_engine(adapter: &Adapter, node: u32, pending: u32, reason: Reason) -> Option<usize> {
    let mut payload = DXGK_TDR_PAYLOAD_ENGINE_TIMEOUT::zeroed();
    payload.NodeOrdinal = node;
    payload.NumberOfPendingSuspendRequests = pending;
    let interactive = |queue: &std::sync::Arc<crate::hw_queue::HwQueue>| {
        queue.context().node() == node && queue.progress().value() < queue.last_queued()
    };
    // CAST: queues.
    payload.NumberOfReadyInteractiveHwQueues =
        adapter.scheduler.queues().iter().filter(|queue| interactive(queue)).count() as u32;
    collect(adapter, ENGINE_TIMEOUT, reason.tdr_type(), Some(&mut payload));
    let named = payload.hContext.expose_provenance();
    (named != 0).then_some(named)
}

/// Before the adapter is reset.
pub(crate) fn whole(adapter: &Adapter, reason: Reason) {
    collect(adapter, ADAPTER_TIMEOUT, reason.tdr_type(), None);
}

fn collect(adapter: &Adapter, reason: u32, kind: DXGK_TDR_TYPE, payload: Option<&mut DXGK_TDR_PAYLOAD_ENGINE_TIMEOUT>) {
    let mut buffer = Buffer::new(SIZE, 0);
    let mut extension = DXGKARG_COLLECTDBGINFO_EXT::zeroed();
    let context = adapter.context();
    let status = if adapter.table().DxgkDdiCollectDbgInfo2.is_some() {
        let mut arguments = DXGKARG_COLLECTDBGINFO2::zeroed();
        arguments.Reason = reason;
        arguments.pBuffer = buffer.pointer().cast();
        arguments.BufferSize = SIZE;
        arguments.pExtension = &raw mut extension;
        arguments.TdrType = kind;
        if let Some(payload) = payload {
            arguments.TdrPayloadSize = size_of_val(payload) as u32;
            arguments.TdrPayload = core::ptr::from_mut(payload).cast();
        }
        let pointer = &raw mut arguments;
        ddi::status(call_ddi!(adapter, DxgkDdiCollectDbgInfo2(context, pointer)))
    } else {
        return without_payload(adapter, reason);
    };
    judge(adapter, status, &buffer);
}

/// `DxgkDdiCollectDbgInfo` for an adapter that timed out, of a driver that may have the function with a payload as
/// well.
pub(crate) fn older(adapter: &Adapter) {
    without_payload(adapter, ADAPTER_TIMEOUT);
}

fn without_payload(adapter: &Adapter, reason: u32) {
    if adapter.table().DxgkDdiCollectDbgInfo.is_none() {
        return;
    }
    let mut buffer = Buffer::new(SIZE, 0);
    let mut extension = DXGKARG_COLLECTDBGINFO_EXT::zeroed();
    let context = adapter.context();
    let mut arguments = DXGKARG_COLLECTDBGINFO::zeroed();
    arguments.Reason = reason;
    arguments.pBuffer = buffer.pointer().cast();
    arguments.BufferSize = SIZE;
    arguments.pExtension = &raw mut extension;
    let pointer = &raw const arguments;
    let status = ddi::status(call_ddi!(adapter, DxgkDdiCollectDbgInfo(context, pointer)));
    judge(adapter, status, &buffer);
}

fn judge(adapter: &Adapter, status: NTSTATUS, buffer: &Buffer) {
    let listed = matches!(
        status,
        ntstatus::STATUS_SUCCESS
            | ntstatus::STATUS_NO_MEMORY
            | ntstatus::STATUS_UNSUCCESSFUL
            | ntstatus::STATUS_SYSTEM_SHUTDOWN
    );
    if status.is_success() {
        *adapter.tdr.debug_info.lock() = buffer.bytes().to_vec();
    }
    adapter.rules().check(&TDR_COLLECT, listed && buffer.overrun().is_none(), || match buffer.overrun() {
        Some(at) => format!("byte {} of {SIZE} was written", SIZE + at),
        None => format!("{status:?}"),
    });
}
