//! Looking at monitored fences: when an interrupt says that one was signaled, and when a buffer is done.
//!
//! The documents know a *basic* and an *advanced* implementation of the monitored fence per engine, and describe what
//! follows from the end of a command buffer: the fences with pending waits that its process may have signaled are
//! read, and waits that are over end. They neither say what the advanced one is nor let a driver declare either.
//!
//! Chosen: the advanced one is `DXGK_INTERRUPT_MONITORED_FENCE_SIGNALED` ("raise this interrupt type when the monitored
//! fence is signaled"), which names an engine and no fence, so that every fence of the adapter is looked at. Both are
//! at work on every engine; an engine that raises no such interrupt has the basic one alone. The ends of buffers that
//! count: packets and paging buffers as they are reported, buffers of kernel-mode hardware queues when their progress
//! fence gets there. The OS does not see those of user-mode queues, which cannot use monitored fences. What the process
//! of a paging buffer may signal is the fences of paging queues.
//!
//! Source: article context-monitoring, GPU signal.

use std::sync::Arc;

use super::FenceState;
use crate::objects::process::ProcessAdapter;
use crate::port::miniport::Miniport;

/// Call when the driver reported that a monitored fence was signaled: looks at every one of the adapter.
///
/// IRQL: at most DISPATCH_LEVEL.
pub(crate) fn signaled(adapter: &Miniport) {
    adapter.shared().counters.monitored_scan();
    for fence in FenceState::all_of(adapter) {
        fence.looked_at(adapter.kernel());
    }
}

/// Call when a buffer of a process is done: looks at the fences that the buffer may have signaled.
///
/// IRQL: at most DISPATCH_LEVEL.
pub(crate) fn completed(adapter: &Miniport, gpu_process: &ProcessAdapter) {
    let mut fences: Vec<Arc<FenceState>> = Vec::new();
    if gpu_process.is_system() {
        fences.extend(FenceState::all_of(adapter).into_iter().filter(|fence| fence.is_paging()));
    } else {
        for device in gpu_process.devices() {
            let open = device.monitored_fences().into_iter().filter(|open| open.may_be_signaled_by_gpu());
            fences.extend(open.map(|open| open.state().clone()));
        }
    }
    let ended: usize = fences.iter().map(|fence| fence.looked_at_if_awaited(adapter.kernel())).sum();
    adapter.shared().counters.completion_scan(ended as u64);
}
