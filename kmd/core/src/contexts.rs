//! What `DxgkDdiCreateContext` and `DxgkDdiDestroyContext` do: they take contexts of either kind.
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
use core::sync::atomic::Ordering;
use gpu_engine::shared::Shared;

/// Creates a context for `device`: one for hardware queues when it is asked for on a hardware-scheduled node, otherwise a
/// packet context. What Windows does with a context without `HwQueueSupported` on such a node is undocumented: it is counted.
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
            started.census.odd_contexts.fetch_add(1, Ordering::Relaxed);
            let node = new.node;
            started.platform.print(format_args!(
                "fencepost: a context without HwQueueSupported on hardware-scheduled node {node}: a packet context\n"
            ));
            Ok(handle)
        }
        (false, _) => Context::create(irql, device, new, private),
    }
}

/// Destroys a context of either kind.
///
/// # Errors
/// [`crate::status::Error::InvalidParameter`].
pub fn destroy<P: Platform>(irql: &Passive, handle: Handle) -> Result<()> {
    match handle.is(Tag::HwContext) {
        true => HwContext::<P>::destroy(irql, handle),
        false => Context::<P>::destroy(irql, handle),
    }
}
