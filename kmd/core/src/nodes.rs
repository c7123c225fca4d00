//! Node metadata. Source: `DxgkDdiGetNodeMetadata`; *User-mode work submission*, "DXGK_NODEMETADATA_FLAGS".

use crate::plan::Plan;
use crate::settings::Settings;
use crate::status::{Error, Result};
use gpu_engine::queue::KERNEL_QUEUE_DEPTH;
use gpu_wire::{NODE_COMPUTE, NODE_COPY, NODE_COUNT, NODE_PAGING, NodeOrdinal};
use wddm_abi::{DXGK_ENGINE_TYPE, DXGK_NODEMETADATA};

/// Command buffers in flight on a kernel-mode hardware queue, as reported. Less than what a queue holds.
pub const MAX_IN_FLIGHT: u32 = KERNEL_QUEUE_DEPTH as u32 / 2;

/// The node that the OS names by its ordinal and that of its engine. Engines are physical adapters that act as one:
/// this driver links none, so that there is engine 0 and no other, and its bit, 1 << 0, is the affinity of every
/// context.
///
/// Source: *TDR changes in Windows 8*, engines.
///
/// # Errors
/// [`Error::InvalidParameter`] for an engine that does not exist. Whether the node does is the caller's to ask.
pub fn of_engine(node: u32, engine: u32) -> Result<NodeOrdinal> {
    if engine == 0 { Ok(NodeOrdinal(node)) } else { Err(Error::InvalidParameter) }
}

/// Returns whether `EngineAffinity` names the engine that there is: by its bit, or by 0, where the OS passes on what
/// user mode says, or makes a context for itself.
pub fn has_engine(affinity: u32) -> bool {
    affinity <= 1
}

/// Every node.
pub fn ordinals() -> impl Iterator<Item = NodeOrdinal> {
    (0..COUNT).map(NodeOrdinal)
}

/// Whether a node is hardware-scheduled under `plan`.
pub fn is_hardware_scheduled(plan: &Plan, node: NodeOrdinal) -> bool {
    plan.hardware_queues() && (node == NODE_COMPUTE || node == NODE_COPY)
}

/// Whether a node takes user-mode submission under `plan`.
pub fn takes_doorbells(plan: &Plan, node: NodeOrdinal) -> bool {
    plan.user_mode_submission() && is_hardware_scheduled(plan, node)
}

/// The metadata of node `node`.
///
/// # Errors
/// [`Error::InvalidParameter`] for a node that does not exist.
pub fn metadata(plan: &Plan, settings: &Settings, node: NodeOrdinal) -> Result<DXGK_NODEMETADATA> {
    let (kind, name) = match node {
        // No engine type is called compute; a compute-only adapter has no 3-D workloads.
        NODE_COMPUTE if plan.form.is_compute_only() => (DXGK_ENGINE_TYPE::DXGK_ENGINE_TYPE_OTHER, "Compute"),
        NODE_COMPUTE => (DXGK_ENGINE_TYPE::DXGK_ENGINE_TYPE_3D, "3D and compute"),
        NODE_COPY => (DXGK_ENGINE_TYPE::DXGK_ENGINE_TYPE_COPY, "Copy"),
        NODE_PAGING => (DXGK_ENGINE_TYPE::DXGK_ENGINE_TYPE_COPY, "Paging"),
        _ => return Err(Error::InvalidParameter),
    };
    let mut data = DXGK_NODEMETADATA::zeroed();
    data.EngineType = kind;
    // Packed record: the name is written as a whole.
    let mut friendly = [0u16; 32];
    // A node of no known type has to have a name.
    if settings.friendly_names || kind == DXGK_ENGINE_TYPE::DXGK_ENGINE_TYPE_OTHER {
        for (to, c) in friendly.iter_mut().zip(name.encode_utf16()) {
            *to = c;
        }
    }
    data.FriendlyName = friendly;
    let mut flags = data.Flags;
    flags.set_ContextSchedulingSupported(is_hardware_scheduled(plan, node));
    // The user-mode driver ends a command buffer with the progress fence itself.
    flags.set_RingBufferFenceRelease(false);
    flags.set_UserModeSubmission(takes_doorbells(plan, node));
    flags.set_SupportBuildTestCommandBuffer(plan.testing);
    if is_hardware_scheduled(plan, node) {
        flags.set_MaxInFlightHwQueueBuffers(MAX_IN_FLIGHT);
    }
    data.Flags = flags;
    data.GpuMmuSupported = 1;
    Ok(data)
}

/// Number of nodes.
pub const COUNT: u32 = NODE_COUNT as u32;
