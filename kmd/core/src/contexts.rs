//! The two kinds of contexts behind `DxgkDdiCreateContext` and `DxgkDdiDestroyContext`: packet contexts, and contexts
//! for hardware queues.
//!
//! Source: `DXGK_CREATECONTEXTFLAGS`, HwQueueSupported; `DXGKARGCB_INVALIDATEHWCONTEXT`, hHwContext ("passed to
//! DxgkDdiCreateContext"); `DXGKARG_CREATEHWQUEUE`, whose parent is such a context.

use crate::context::{Context, NewContext};
use crate::device::Device;
use crate::handle::{Handle, Tag};
use crate::hw_context::HwContext;
use crate::irql::Passive;
use crate::nodes;
use crate::platform::Platform;
use crate::status::Result;
use gpu_engine::shared::Shared;

/// Creates a context for `device`: with `HwQueueSupported` on a hardware-scheduled node one for hardware queues,
/// otherwise a packet context. The documents do not say what a context without the flag on such a node is: the driver
/// makes a packet context, and counts it in `Strays::odd_contexts`.
///
/// # Errors
/// Those of [`Context::create`] and [`HwContext::create`].
pub fn create<P: Platform>(
    irql: &Passive,
    device: &Shared<Device<P>>,
    new: &NewContext,
    private: &[u8],
) -> Result<Handle> {
    let started = &device.counted.started;
    let scheduled = nodes::is_hardware_scheduled(&started.plan, new.node);
    match (scheduled && !new.system, new.hw_queues) {
        (true, true) => HwContext::create(irql, device, new, private),
        (true, false) => {
            let handle = Context::create(irql, device, new, private)?;
            let (strays, node) = (&started.strays, new.node.0);
            let what = format_args!("packet contexts on hardware-scheduled nodes, the last on node {node}");
            strays.note(&strays.odd_contexts, 1, &started.platform, what);
            Ok(handle)
        }
        (false, _) => Context::create(irql, device, new, private),
    }
}

/// Destroys a context of either kind.
///
/// # Errors
/// [`crate::status::Error::InvalidParameter`] for a handle that names no context.
pub fn destroy<P: Platform>(irql: &Passive, handle: Handle) -> Result<()> {
    match handle.is(Tag::HwContext) {
        true => HwContext::<P>::destroy(irql, handle),
        false => Context::<P>::destroy(irql, handle),
    }
}
