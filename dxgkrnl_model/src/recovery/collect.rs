//! Debug information before a reset, and at any other time.
//!
//! Source: DDI pages DxgkDdiCollectDbgInfo, DxgkDdiCollectDbgInfo2, DXGK_TDR_TYPE, DXGK_TDR_PAYLOAD_ENGINE_TIMEOUT;
//! article tdr-debuggability-improvements.

use nt_model::dump::Moment;
use wddm_abi::{
    DXGK_TDR_PAYLOAD_ENGINE_TIMEOUT, DXGK_TDR_TYPE, DXGKARG_COLLECTDBGINFO, DXGKARG_COLLECTDBGINFO_EXT,
    DXGKARG_COLLECTDBGINFO2, NTSTATUS, Plain, ntstatus,
};

use crate::objects::hw_queue::HwQueue;
use crate::port::ddi::{self, call_ddi};
use crate::port::miniport::Miniport;
use crate::port::poison;
use crate::port::query::Buffer;
use crate::port::rules::tdr::TDR_COLLECT;
use crate::port::tdr::steps::Reason;
use crate::recovery::Watch;
use crate::sched::vidsch::packet::Snapshot;

/// `VIDEO_ENGINE_TIMEOUT_DETECTED`.
pub(super) const ENGINE_TIMEOUT: u32 = 0x141;
/// `VIDEO_TDR_TIMEOUT_DETECTED`.
pub(super) const ADAPTER_TIMEOUT: u32 = 0x117;
/// Bytes of the report.
const SIZE: usize = 0x4000;
/// What the driver said that is kept.
const KEPT: usize = 16;

/// What a driver said.
#[derive(Clone, Debug)]
pub struct DebugBlob {
    /// The bug check's code that it was asked with.
    pub reason: u32,
    /// The type of the recovery that it was told; that of an unknown one for the function without a payload.
    pub kind: DXGK_TDR_TYPE,
    /// The bytes, as many as there was room for.
    pub bytes: Vec<u8>,
}

/// What a driver is asked for debug information with.
#[derive(Clone, Debug)]
pub struct DebugQuestion {
    /// A bug check's code.
    pub reason: u32,
    /// Room for the answer, in bytes.
    pub size: usize,
    /// The type of the recovery, and the bytes of its payload, of which the driver may write; `None`: there is none.
    pub payload: (DXGK_TDR_TYPE, Option<Vec<u8>>),
    /// By `DxgkDdiCollectDbgInfo`, which knows neither.
    pub older: bool,
}

impl DebugQuestion {
    /// As before the reset of the adapter.
    pub(crate) fn adapter(reason: Reason) -> Self {
        Self { reason: ADAPTER_TIMEOUT, size: SIZE, payload: (reason.tdr_type(), None), older: false }
    }

    fn engine(reason: Reason, payload: &DXGK_TDR_PAYLOAD_ENGINE_TIMEOUT) -> Self {
        let payload = (reason.tdr_type(), Some(payload.as_bytes().to_vec()));
        Self { reason: ENGINE_TIMEOUT, size: SIZE, payload, older: false }
    }
}

/// Before the engine of a packet node is reset. Returns the handle of the context that the driver takes for the one
/// that timed out, if it names one.
pub(super) fn packet_engine(adapter: &Miniport, node: u32, snapshot: &Snapshot, reason: Reason) -> Option<usize> {
    let mut payload = DXGK_TDR_PAYLOAD_ENGINE_TIMEOUT::zeroed();
    let place = adapter.known_caps().place(node);
    (payload.NodeOrdinal, payload.EngineOrdinal) = (place.node, place.engine);
    payload.LastHwCompletedFenceId = snapshot.completed.into();
    payload.LastHwSubmittedFenceId = snapshot.submitted.into();
    before_engine(adapter, reason, &payload)
}

/// Before the engine of a hardware-scheduled node is reset. `pending`: suspensions that are not acknowledged. Returns
/// as [`packet_engine`].
pub(super) fn hw_engine(adapter: &Miniport, node: u32, pending: u32, reason: Reason) -> Option<usize> {
    let mut payload = DXGK_TDR_PAYLOAD_ENGINE_TIMEOUT::zeroed();
    let place = adapter.known_caps().place(node);
    (payload.NodeOrdinal, payload.EngineOrdinal) = (place.node, place.engine);
    payload.NumberOfPendingSuspendRequests = pending;
    let ready = |queue: &std::sync::Arc<crate::objects::hw_queue::HwQueue>| {
        queue.context().node() == node && queue.progress().value() < queue.last_queued()
    };
    // CAST: queues.
    payload.NumberOfReadyInteractiveHwQueues =
        HwQueue::all_of(adapter).iter().filter(|queue| ready(queue)).count() as u32;
    before_engine(adapter, reason, &payload)
}

fn before_engine(adapter: &Miniport, reason: Reason, payload: &DXGK_TDR_PAYLOAD_ENGINE_TIMEOUT) -> Option<usize> {
    let text = format!("engine {} of node {} is about to be reset", payload.EngineOrdinal, payload.NodeOrdinal);
    adapter.shared().kernel().dump_moment(Moment::TimedOut, &text);
    let mut question = DebugQuestion::engine(reason, payload);
    let _judged = ask(adapter, &mut question);
    let (_, answer) = &question.payload;
    let mut payload = *payload;
    payload.as_bytes_mut().copy_from_slice(answer.as_ref()?);
    let named = payload.hContext.expose_provenance();
    (named != 0).then_some(named)
}

/// Before the adapter is reset.
pub(super) fn whole(adapter: &Miniport, reason: Reason) {
    adapter.shared().kernel().dump_moment(Moment::TimedOut, "the adapter is about to be reset");
    let _judged = ask(adapter, &mut DebugQuestion::adapter(reason));
}

/// `DxgkDdiCollectDbgInfo` for an adapter that timed out, of a driver that may have the function with a payload as
/// well.
pub(crate) fn older(adapter: &Miniport) {
    let _judged = ask(adapter, &mut DebugQuestion { older: true, ..DebugQuestion::adapter(Reason::Forced) });
}

/// Asks the driver. What it writes to the payload is in the question afterwards; the payload's memory is gone.
///
/// IRQL: PASSIVE_LEVEL.
pub(crate) fn ask(adapter: &Miniport, question: &mut DebugQuestion) -> (NTSTATUS, Vec<u8>) {
    // What the driver does not write is nothing that it said.
    let mut buffer = Buffer::new(question.size, poison::BYTE);
    let mut extension = DXGKARG_COLLECTDBGINFO_EXT::zeroed();
    let context = adapter.context();
    let newer = !question.older && adapter.table().DxgkDdiCollectDbgInfo2.is_some();
    let status = if newer {
        let mut arguments = DXGKARG_COLLECTDBGINFO2::zeroed();
        arguments.Reason = question.reason;
        arguments.pBuffer = buffer.pointer().cast();
        arguments.BufferSize = question.size;
        arguments.pExtension = &raw mut extension;
        arguments.TdrType = question.payload.0;
        let mut memory = question.payload.1.as_ref().map(|bytes| {
            let mut memory = Buffer::new(bytes.len(), 0);
            memory.bytes_mut().copy_from_slice(bytes);
            memory
        });
        if let Some(memory) = &mut memory {
            // CAST: a payload is small.
            arguments.TdrPayloadSize = memory.bytes().len() as u32;
            arguments.TdrPayload = memory.pointer().cast();
        }
        let pointer = &raw mut arguments;
        let status = ddi::status(call_ddi!(adapter, DxgkDdiCollectDbgInfo2(context, pointer)));
        if let (Some(bytes), Some(memory)) = (&mut question.payload.1, &mut memory) {
            bytes.copy_from_slice(memory.bytes());
            adapter.rules().check(&TDR_COLLECT, memory.overrun().is_none(), || {
                format!("the payload of {} bytes is written beyond its end", bytes.len())
            });
            // A driver that keeps the pointer finds nothing of use there.
            memory.bytes_mut().fill(0xFF);
        }
        status
    } else if adapter.table().DxgkDdiCollectDbgInfo.is_some() {
        let mut arguments = DXGKARG_COLLECTDBGINFO::zeroed();
        arguments.Reason = question.reason;
        arguments.pBuffer = buffer.pointer().cast();
        arguments.BufferSize = question.size;
        arguments.pExtension = &raw mut extension;
        let pointer = &raw const arguments;
        ddi::status(call_ddi!(adapter, DxgkDdiCollectDbgInfo(context, pointer)))
    } else {
        return (ntstatus::STATUS_NOT_SUPPORTED, Vec::new());
    };
    judge(adapter, status, &buffer, question.size);
    let bytes = buffer.bytes().to_vec();
    if status.is_success() {
        let kind = if newer { question.payload.0 } else { DXGK_TDR_TYPE::DXGK_TDR_TYPE_UNKNOWN };
        Watch::of(adapter).keep_debug_info(DebugBlob { reason: question.reason, kind, bytes: bytes.clone() }, KEPT);
    }
    (status, bytes)
}

fn judge(adapter: &Miniport, status: NTSTATUS, buffer: &Buffer, size: usize) {
    let listed = matches!(
        status,
        ntstatus::STATUS_SUCCESS
            | ntstatus::STATUS_NO_MEMORY
            | ntstatus::STATUS_UNSUCCESSFUL
            | ntstatus::STATUS_SYSTEM_SHUTDOWN
    );
    adapter.rules().check(&TDR_COLLECT, listed && buffer.overrun().is_none(), || match buffer.overrun() {
        Some(at) => format!("byte {} of {size} was written", size + at),
        None => format!("{status:?}"),
    });
}
