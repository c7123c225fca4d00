//! Queries: adapter information, nodes, clock, features, escapes, debug information.

use crate::arguments::{array_mut, borrow, bytes, bytes_mut, object, record, record_mut, started, with_started};
use crate::testing::query_feature_interface;
use crate::thunk::ddi;
use core::ffi::c_void;
use gpu_wire::NodeOrdinal;
use kmd_core::adapter::Adapter;
use kmd_core::asked::bit_of;
use kmd_core::context::Context;
use kmd_core::debug::About;
use kmd_core::features::Grounds;
use kmd_core::hw_context::HwContext;
use kmd_core::nodes::of_engine;
use kmd_core::platform::Platform;
use kmd_core::status::{Error, Result, of};
use kmd_core::{caps, clock, debug, escape, nodes, segments};
use wddm_abi::ntstatus::{STATUS_INVALID_PARAMETER, STATUS_NOT_SUPPORTED, STATUS_SUCCESS, STATUS_UNSUCCESSFUL};
use wddm_abi::{
    DXGK_NODEMETADATA, DXGK_QUERYADAPTERINFOTYPE, DXGK_QUERYSEGMENTOUT4, DXGK_SEGMENTDESCRIPTOR4,
    DXGK_TDR_PAYLOAD_ENGINE_TIMEOUT, DXGK_TDR_TYPE, DXGKARG_CALIBRATEGPUCLOCK, DXGKARG_COLLECTDBGINFO,
    DXGKARG_COLLECTDBGINFO2, DXGKARG_ESCAPE, DXGKARG_FORMATHISTORYBUFFER, DXGKARG_QUERYADAPTERINFO,
    DXGKARG_QUERYFEATURESUPPORT, DXGKDDI_FEATURE_INTERFACE, GUID_WDDM_INTERFACE_FEATURE, HANDLE, NTSTATUS, Plain,
    QUERY_INTERFACE, win_extern,
};

ddi! {
    /// `DxgkDdiCalibrateGpuClock`, up to `DISPATCH_LEVEL`.
    fn calibrate_gpu_clock[P: Platform](adapter: HANDLE, node: u32, engine: u32, data: *mut DXGKARG_CALIBRATEGPUCLOCK) answers of {
        let read = with_started::<P, _>(adapter, |started| Ok(started.gpu.host.gpu_clock().calibrate(&started.platform)))?;
        // SAFETY: Dxgkrnl's record, valid for the call. It is packed, so it is written unaligned.
        let to = unsafe { record_mut(data.cast::<[u8; size_of::<DXGKARG_CALIBRATEGPUCLOCK>()]>()) }?;
        if node >= nodes::COUNT || engine != 0 {
            return Err(Error::InvalidParameter);
        }
        // The OS sets the flags to say which clock it wants. There is one clock, so they are left as they are.
        let flags = core::mem::offset_of!(DXGKARG_CALIBRATEGPUCLOCK, Flags);
        to[..flags].copy_from_slice(&read.as_bytes()[..flags]);
        Ok(())
    }

    /// `DxgkDdiFormatHistoryBuffer`, `DISPATCH_LEVEL`. The driver keeps no history buffers: the answer is no time
    /// stamps, and an offset of 0, so that the OS does not call again for the rest.
    fn format_history_buffer[P: Platform](context: HANDLE)
        with args: write *mut DXGKARG_FORMATHISTORYBUFFER, answers of {
        // The precision that QUERYADAPTERINFO answers with, but never 0, which is no precision of a time stamp.
        let of_packets = |context: &Context<P>| Ok(context.counted.started.settings.history_buffer_precision);
        let of_queues = |context: &HwContext<P>| Ok(context.counted.started.settings.history_buffer_precision);
        let bits = borrow(context, of_packets).or_else(|_| borrow(context, of_queues)).unwrap_or(0);
        args.NumTimestamps = 0;
        args.Precision.PrecisionBits = if bits == 0 { clock::PRECISION } else { bits };
        args.Offset = 0;
        Ok(())
    }

    /// `DxgkDdiEscape`, `PASSIVE_LEVEL`.
    fn escape[P: Platform](adapter: HANDLE) at irql: Passive, with args: read *const DXGKARG_ESCAPE, answers of {
        let adapter = object::<Adapter<P>>(adapter)?;
        let started = adapter.started()?;
        // SAFETY: Dxgkrnl's copy of the caller's buffer, of that size.
        let block = unsafe { bytes_mut(args.pPrivateDriverData, args.PrivateDriverDataSize) }?;
        escape::answer(&irql, &started, adapter.asked.questions(), block)
    }

    /// `DxgkDdiCollectDbgInfo`, any level. Success or `STATUS_UNSUCCESSFUL`.
    fn collect_dbg_info[P: Platform](adapter: HANDLE) with args: read *const DXGKARG_COLLECTDBGINFO, answers collected {
        // SAFETY: Dxgkrnl's buffer, of that size.
        let buffer = unsafe { array_mut(args.pBuffer.cast::<u8>(), args.BufferSize) }?;
        let about = About { reason: args.Reason, kind: 0, node: None };
        with_started::<P, _>(adapter, |started| Ok(debug::collect(started, &about, buffer)))
    }

    /// `DxgkDdiCollectDbgInfo2`, as above. Of the payload of an engine's timeout the node is read and the context
    /// written; nothing of it is kept.
    fn collect_dbg_info2[P: Platform](adapter: HANDLE) with args: read *mut DXGKARG_COLLECTDBGINFO2, answers collected {
        // SAFETY: Dxgkrnl's buffer, of that size.
        let buffer = unsafe { array_mut(args.pBuffer.cast::<u8>(), args.BufferSize) }?;
        let mut payload = timeout(args.TdrType, args.TdrPayload, args.TdrPayloadSize);
        let named = |payload: &DXGK_TDR_PAYLOAD_ENGINE_TIMEOUT| of_engine(payload.NodeOrdinal, payload.EngineOrdinal);
        let node = payload.as_ref().and_then(|payload| named(payload).ok());
        // CAST: small enumerators.
        let about = About { reason: args.Reason, kind: args.TdrType.0 as u32, node };
        with_started::<P, _>(adapter, |started| {
            let guilty = debug::collect(started, &about, buffer);
            // Of an engine that is not there no context can have timed out.
            if let Some(payload) = payload.as_mut().filter(|_| node.is_some()) {
                payload.hContext = core::ptr::without_provenance_mut(guilty as usize);
            }
            Ok(())
        })
    }
}

/// The payload of an engine's timeout, where the OS gives one of a size that this driver knows, or a larger one. `None`
/// for other types.
///
/// Source: *TDR debuggability improvements* (the payload may be NULL, and may grow at its end).
fn timeout<'a>(
    kind: DXGK_TDR_TYPE,
    payload: *mut c_void,
    size: u32,
) -> Option<&'a mut DXGK_TDR_PAYLOAD_ENGINE_TIMEOUT> {
    let of_engine = [DXGK_TDR_TYPE::DXGK_TDR_TYPE_ENGINE_TIMEOUT, DXGK_TDR_TYPE::DXGK_TDR_TYPE_ENGINE_PAGE_FAULT];
    let known = of_engine.contains(&kind) && size as usize >= size_of::<DXGK_TDR_PAYLOAD_ENGINE_TIMEOUT>();
    // SAFETY: Dxgkrnl's record, at least as large as ours, valid for the call.
    known.then(|| unsafe { record_mut(payload.cast()) }.ok()).flatten()
}

/// The status of CollectDbgInfo.
fn collected<T>(result: Result<T>) -> NTSTATUS {
    if result.is_ok() { STATUS_SUCCESS } else { STATUS_UNSUCCESSFUL }
}

win_extern! {
    /// `DxgkDdiQueryAdapterInfo`, `PASSIVE_LEVEL`.
    pub(crate) fn query_adapter_info[P: Platform](adapter: HANDLE, args: *const DXGKARG_QUERYADAPTERINFO) -> NTSTATUS {
        // SAFETY: Dxgkrnl's record, with buffers of the sizes that it says.
        of(unsafe { query::<P>(adapter, args) })
    }

    /// `DxgkDdiGetNodeMetadata`, `PASSIVE_LEVEL`.
    pub(crate) fn get_node_metadata[P: Platform](
        adapter: HANDLE,
        node_and_adapter: u32,
        metadata: *mut DXGK_NODEMETADATA,
    ) -> NTSTATUS {
        // The physical adapter's index is in the upper half; there is one.
        let (node, physical) = (node_and_adapter & 0xffff, node_and_adapter >> 16);
        of(started::<P>(adapter).and_then(|started| {
            // SAFETY: Dxgkrnl's record, valid for the call. It is packed, so it is written unaligned.
            let to = unsafe { record_mut(metadata.cast::<[u8; size_of::<DXGK_NODEMETADATA>()]>()) }?;
            if physical != 0 {
                return Err(Error::InvalidParameter);
            }
            to.copy_from_slice(nodes::metadata(&started.plan, &started.settings, NodeOrdinal(node))?.as_bytes());
            Ok(())
        }))
    }

    /// `DxgkDdiQueryInterface`, `PASSIVE_LEVEL`: the feature interface, and nothing else.
    pub(crate) fn query_interface[P: Platform](context: *mut c_void, query: *mut QUERY_INTERFACE) -> NTSTATUS {
        // SAFETY: Dxgkrnl's record, valid for the call.
        let Ok(query) = (unsafe { record(query.cast_const()) }) else { return STATUS_INVALID_PARAMETER };
        // SAFETY: points at a GUID, valid for the call.
        let Ok(kind) = (unsafe { record(query.InterfaceType) }) else { return STATUS_INVALID_PARAMETER };
        if *kind != GUID_WDDM_INTERFACE_FEATURE || usize::from(query.Size) < size_of::<DXGKDDI_FEATURE_INTERFACE>() {
            return STATUS_NOT_SUPPORTED;
        }
        // SAFETY: an interface of at least that size, to be filled.
        let Ok(interface) = (unsafe { record_mut(query.Interface.cast::<DXGKDDI_FEATURE_INTERFACE>()) }) else {
            return STATUS_INVALID_PARAMETER;
        };
        *interface = DXGKDDI_FEATURE_INTERFACE::zeroed();
        // CAST: 48 bytes. There is one version, which is the best match for whatever `query.Version` asks for.
        interface.Size = size_of::<DXGKDDI_FEATURE_INTERFACE>() as u16;
        interface.Version = 1;
        interface.Context = context;
        interface.InterfaceReference = Some(reference);
        interface.InterfaceDereference = Some(reference);
        interface.QueryFeatureSupport = Some(query_feature_support::<P>);
        interface.QueryFeatureInterface = Some(query_feature_interface::<P>);
        STATUS_SUCCESS
    }

    /// The interface is functions only: there is nothing to count.
    fn reference(_context: *mut c_void) {}

    /// `DxgkDdiQueryFeatureSupport`, `PASSIVE_LEVEL`.
    fn query_feature_support[P: Platform](adapter: HANDLE, args: *mut DXGKARG_QUERYFEATURESUPPORT) -> NTSTATUS {
        of((|| {
            let adapter = object::<Adapter<P>>(adapter)?;
            // SAFETY: Dxgkrnl's record, valid for the call.
            let args = unsafe { record_mut(args) }?;
            let (settings, is_test_signing) = (adapter.settings(), adapter.is_test_signing);
            let grounds = Grounds { settings: &settings, is_test_signing };
            let support = grounds.support(args.FeatureId, args.AllowExperimental != 0);
            adapter.asked.feature(args.FeatureId, support.is_some());
            args.MinSupportedVersion = support.map_or(0, |s| s.min);
            args.MaxSupportedVersion = support.map_or(0, |s| s.max);
            args.SupportedByDriver = support.is_some().into();
            let works = support.is_some() && adapter.is_on_configuration(args.FeatureId);
            args.SupportedOnCurrentConfig = works.into();
            Ok(())
        })())
    }
}

/// The body of QueryAdapterInfo.
///
/// # Safety
/// `args` is NULL or points at a record whose buffers have the sizes that it says.
unsafe fn query<P: Platform>(adapter: HANDLE, args: *const DXGKARG_QUERYADAPTERINFO) -> Result<()> {
    let context = adapter;
    let adapter = object::<Adapter<P>>(context)?;
    // SAFETY: the caller's promise.
    let args = unsafe { record(args) }?;
    // SAFETY: the caller's promise.
    let answered = unsafe { answer(&adapter, context, args) };
    adapter.asked.query(args.Type, answered.is_err());
    answered
}

/// Answers one question; `context` is the miniport's context, which `adapter` belongs to. A type that the setting
/// `RefuseQueries` names is refused with [`Error::InvalidParameter`].
///
/// # Safety
/// As for [`query`].
unsafe fn answer<P: Platform>(adapter: &Adapter<P>, context: HANDLE, args: &DXGKARG_QUERYADAPTERINFO) -> Result<()> {
    if adapter.settings().refuse_queries & bit_of(args.Type) != 0 {
        return Err(Error::InvalidParameter);
    }
    // The input is borrowed only for the types that have one. With private data the OS may pass one buffer as input and
    // output, and two references to it would be undefined behaviour.
    let is_read =
        args.Type == DXGK_QUERYADAPTERINFOTYPE::DXGKQAITYPE_POWERCOMPONENTINFO || caps::index_at(args.Type).is_some();
    let length = if is_read { args.InputDataSize } else { 0 };
    // SAFETY: the caller's promise.
    let input = unsafe { bytes(args.pInputData, length) }?;
    if caps::physical_adapter(args.Type, input) != 0 {
        return Err(Error::InvalidParameter);
    }
    // What is only known once started: the page lists no "not ready".
    let listed = |error| if error == Error::DeviceNotReady { Error::InvalidParameter } else { error };
    if args.Type == DXGK_QUERYADAPTERINFOTYPE::DXGKQAITYPE_QUERYSEGMENT4 {
        // SAFETY: the output is this record; its size is checked before it is used.
        return unsafe { query_segments(adapter, args) }.map_err(listed);
    }
    // SAFETY: the caller's promise.
    let output = unsafe { bytes_mut(args.pOutputData, args.OutputDataSize) }?;
    caps::answer(adapter, context, args.Type, input, output).map_err(listed)
}

/// QUERYSEGMENT4: asked twice, first with `NbSegment` 0 for the count alone, then with room for the descriptors, which
/// are walked by the stride that the OS gives.
///
/// # Safety
/// As for [`query`].
unsafe fn query_segments<P: Platform>(adapter: &Adapter<P>, args: &DXGKARG_QUERYADAPTERINFO) -> Result<()> {
    let started = adapter.started()?;
    if (args.OutputDataSize as usize) < size_of::<DXGK_QUERYSEGMENTOUT4>() {
        return Err(Error::BufferTooSmall);
    }
    // SAFETY: large enough, checked above.
    let out = unsafe { record_mut(args.pOutputData.cast::<DXGK_QUERYSEGMENTOUT4>()) }?;
    if out.NbSegment == 0 {
        out.NbSegment = segments::COUNT;
        return Ok(());
    }
    let stride = out.SegmentDescriptorStride;
    let n = out.NbSegment.min(segments::COUNT) as usize;
    // SAFETY: `NbSegment` elements of `SegmentDescriptorStride` bytes (the caller's promise).
    let all = unsafe { array_mut(out.pSegmentDescriptor, n.checked_mul(stride).ok_or(Error::InvalidParameter)?) }?;
    if stride == 0 {
        return Err(Error::InvalidParameter);
    }
    let local = started.gpu.host.local_size();
    for (index, element) in (0u32..).zip(all.chunks_exact_mut(stride)) {
        let descriptor = segments::describe(index, local, &started.settings).ok_or(Error::InvalidParameter)?;
        let bytes = descriptor.as_bytes();
        let n = bytes.len().min(stride);
        element[..n].copy_from_slice(&bytes[..n]);
    }
    let (segment, size, private) = caps::paging_buffer(&started.settings);
    out.PagingBufferSegmentId = segment;
    out.PagingBufferSize = size;
    out.PagingBufferPrivateDataSize = private;
    Ok(())
}

const _: () = assert!(size_of::<DXGK_SEGMENTDESCRIPTOR4>() == 96);
