//! Kernel-mode testing for user mode: the escape by which a test has the driver build a command buffer, and the
//! judgement of what a test makes.
//!
//! Source: article kernel-mode-testing-of-wddm-features; `D3DDDI_DRIVERESCAPE_BUILDTESTCOMMANDBUFFER` (d3dukmdt.h),
//! which comes in `D3DKMTEscape` with DriverKnownEscape.
//!
//! Chosen: the context or the queue is the device's that the record names, on a node whose flags say that it builds
//! buffers for tests. With buffers that are too small the record goes back with the sizes, and the thunk returns the
//! driver's status. Of the 28000 line's record the progress fence is not looked at: the record of the driver's function
//! has no member for it in any kit whose reference is published.

use wddm_abi::{
    D3DDDI_DRIVERESCAPE_BUILDTESTCOMMANDBUFFER, D3DDDI_DRIVERESCAPETYPE, D3DKMT_ESCAPE, DXGK_FEATURE_ID, NTSTATUS,
    Plain, kit_28000, ntstatus,
};

use super::{Call, INVALID, Outcome, capture};
use crate::port::features::Features;
use crate::port::features::testing::{MOST_BYTES, MOST_PRIVATE, Order};
use crate::port::miniport::Miniport;
use crate::port::personality::Build;
use crate::port::rules::testing::TESTING_CONTEXT;

/// Returns whether user mode asks for a context or a queue for kernel-mode testing (`asked`) although that feature is
/// not enabled on the adapter.
///
/// Source: article kernel-mode-testing, "Testing availability".
pub(super) fn refuses_tests(adapter: &Miniport, asked: bool) -> bool {
    asked && !Features::of(adapter).query(adapter, DXGK_FEATURE_ID::DXGK_FEATURE_KERNEL_MODE_TESTING).enabled
}

/// Makes a context or a queue and, where it is for tests and has no private data (`bare`), judges that the driver does
/// so on a node that builds tests. A driver whose memory is made to fail may refuse.
///
/// # Errors
/// Those of `make`.
pub(super) fn made<T>(
    adapter: &Miniport,
    node: u32,
    bare: bool,
    make: impl FnOnce() -> Result<T, NTSTATUS>,
) -> Result<T, NTSTATUS> {
    let memory_fails = adapter.kernel().allocations_until_failure() != 0;
    let result = make();
    let judged = bare && !memory_fails && adapter.known_caps().node(node).is_some_and(|node| node.builds_tests());
    let held = result.is_ok() || !judged || adapter.rules().is_stopped();
    adapter.rules().check(&TESTING_CONTEXT, held, || format!("node {node}: {:?}", result.as_ref().err()));
    result
}

/// An escape that the driver knows: only the one that builds a command buffer.
pub(super) fn escape(call: &Call, record: &D3DKMT_ESCAPE) -> Outcome {
    let gpu_process = super::adapter::adapter(call, record.hAdapter)?;
    let adapter = gpu_process.adapter();
    let is_larger = adapter.personality().build == Build::W28000;
    let larger = size_of::<kit_28000::D3DDDI_DRIVERESCAPE_BUILDTESTCOMMANDBUFFER>();
    let size = if is_larger { larger } else { size_of::<D3DDDI_DRIVERESCAPE_BUILDTESTCOMMANDBUFFER>() };
    if record.PrivateDriverDataSize as usize != size || refuses_tests(adapter, true) {
        return Err(INVALID);
    }
    let at = record.pPrivateDriverData.expose_provenance();
    // What the newer record has more is at its end.
    let mut wanted: D3DDDI_DRIVERESCAPE_BUILDTESTCOMMANDBUFFER = capture::read(at)?;
    if wanted.EscapeType != D3DDDI_DRIVERESCAPETYPE::D3DDDI_DRIVERESCAPETYPE_BUILDTESTCOMMANDBUFFER {
        return Err(ntstatus::STATUS_NOT_SUPPORTED);
    }
    let device = super::device::device(call, wanted.hDevice)?;
    let is_hardware_queue = wanted.Flags.HardwareQueue();
    let (target, owner, node) = if is_hardware_queue {
        let queue = call.process.hw_queue(wanted.hContext).filter(|queue| !queue.is_user_mode()).ok_or(INVALID)?;
        (queue.driver_handle(), queue.context().device().clone(), queue.context().node())
    } else {
        let context = call.process.context(wanted.hContext).ok_or(INVALID)?;
        (context.driver_handle(), context.device().clone(), context.node())
    };
    let room = (wanted.DmaBufferSize as usize, wanted.DmaBufferPrivateDataSize as usize);
    let is_ours = std::sync::Arc::ptr_eq(&owner, &device) && std::sync::Arc::ptr_eq(device.adapter(), adapter);
    if !is_ours || wanted.Flags.Reserved() != 0 || room.0 > MOST_BYTES || room.1 > MOST_PRIVATE {
        return Err(INVALID);
    }
    if !adapter.known_caps().node(node).is_some_and(|node| node.builds_tests()) {
        return Err(ntstatus::STATUS_NOT_SUPPORTED);
    }
    let order = Order { target, is_hardware_queue, command: wanted.Command };
    let given = |pointer: *mut core::ffi::c_void, size| (!pointer.is_null()).then_some(size);
    let buffer = given(wanted.pDmaBuffer, room.0);
    let private = given(wanted.pDmaBufferPrivateData, room.1);
    let built = Features::of(adapter).build_test(adapter, &order, buffer, private)?;
    let is_overflow = built.status == ntstatus::STATUS_BUFFER_OVERFLOW;
    if !built.status.is_success() && !is_overflow {
        return Err(built.status);
    }
    if !is_overflow {
        // The caller's buffers have at least what the record says that they have.
        let front = |bytes: &[u8], size: u32| bytes.get(..size as usize).map(<[u8]>::to_vec).unwrap_or_default();
        capture::store(wanted.pDmaBuffer.expose_provenance(), &front(&built.buffer, built.sizes.0))?;
        capture::store(wanted.pDmaBufferPrivateData.expose_provenance(), &front(&built.private, built.sizes.1))?;
    }
    (wanted.DmaBufferSize, wanted.DmaBufferPrivateDataSize) = built.sizes;
    capture::store(at, wanted.as_bytes())?;
    Ok(built.status)
}
