//! Packet mode: submission and preemption. Source: `DxgkDdiSubmitCommandVirtual`, `DxgkDdiPreemptCommand`; *TDR changes
//! in Windows 8 and later*.

use crate::adapter::Started;
use crate::irql::{AtMostDispatch, Passive};
use crate::platform::Platform;
use crate::process::EngineContext;
use crate::status::{Error, Result};
use crate::tracing::Event;
use core::ffi::c_void;
use core::sync::atomic::Ordering;
use gpu_engine::packet_node::PacketSubmission;
use gpu_engine::shared::Shared;
use gpu_wire::packet::Privilege;
use gpu_wire::{GpuVa, NodeOrdinal};

/// A packet as the OS submits it.
pub struct Packet<P: Platform> {
    /// Its node, which may not exist.
    pub node: NodeOrdinal,
    /// `SubmissionFenceId`.
    pub fence: u32,
    /// The context that it is of.
    pub context: Shared<EngineContext<P>>,
    /// Whether it is a paging buffer: the kernel wrote it, and it may write page tables.
    pub paging: bool,
    /// The command buffer.
    pub address: GpuVa,
    /// Bytes.
    pub length: u64,
    /// The flag `Resubmission`: it comes back behind a preemption.
    pub resubmitted: bool,
}

/// Queues a packet. Up to `DISPATCH_LEVEL`.
///
/// A packet that is refused still completes: the OS counts its fence as completed after those before it, and so do we.
///
/// # Errors
/// [`Error::InvalidParameter`]: the one that the DDI allows. Dxgkrnl puts the device in error.
pub fn submit<P: Platform>(_irql: &impl AtMostDispatch, started: &Started<P>, packet: Packet<P>) -> Result<()> {
    started.platform.trace(|| Event::DmaPacketStart {
        node: packet.node.0,
        fence: packet.fence,
        is_paging: packet.paging,
        is_resubmitted: packet.resubmitted,
    });
    let Some(node) = started.gpu.nodes.get(packet.node.index()) else {
        refuse(started, packet.node, packet.fence);
        return Err(Error::InvalidParameter);
    };
    let sane = packet.address.is_aligned(8) && packet.length.is_multiple_of(8);
    let resumes = sane && packet.context.claim(packet.resubmitted, packet.address, packet.length, node.all_resets());
    let submission = PacketSubmission {
        fence: packet.fence,
        context: packet.context,
        privilege: if packet.paging { Privilege::Paging } else { Privilege::User },
        // Nothing runs, so nothing may fault either: the OS has forgotten the fence.
        address: if sane { packet.address } else { GpuVa(0) },
        length: if sane { packet.length } else { 0 },
        silent: !sane,
        resumes,
    };
    let mutation = &started.gpu.mutation;
    let (is_first, taken) = node.packets.with(|q| (q.is_unused(), q.submit(submission, mutation)));
    let taken = taken.map_err(|_| Error::InvalidParameter);
    if is_first {
        number(started, packet.node, packet.fence);
    }
    if taken.is_err() {
        refuse(started, packet.node, packet.fence);
    }
    started.gpu.wake(packet.node.index());
    if taken.is_ok() && !sane {
        note(started, packet.node, packet.fence);
    }
    if sane { taken } else { Err(Error::InvalidParameter) }
}

/// Notes a packet that is refused and not kept: its fence counts as completed behind those before it. Up to
/// `DISPATCH_LEVEL`.
///
/// Source: `DxgkDdiSubmitCommandVirtual`, STATUS_INVALID_PARAMETER (the driver's own last completed id moves as well).
pub fn refuse<P: Platform>(started: &Started<P>, node: NodeOrdinal, fence: u32) {
    if let Some(shared) = started.gpu.nodes.get(node.index()) {
        shared.packets.with(|q| q.refuse(fence, &started.gpu.mutation));
    }
    note(started, node, fence);
}

/// Counts a refused packet and prints it to the debugger, which takes text at `DISPATCH_LEVEL` too.
fn note<P: Platform>(started: &Started<P>, node: NodeOrdinal, fence: u32) {
    let (strays, node) = (&started.strays, node.0);
    let what = format_args!("packets refused (fence {fence} of node {node})");
    strays.note(&strays.packets, 1, &started.platform, what);
}

/// The first id that the OS names of a node: until something is reported, the one before it is the last that is
/// complete.
fn number<P: Platform>(started: &Started<P>, node: NodeOrdinal, first: u32) {
    if let Some(reported) = started.reported.get(node.index()) {
        // When this fails, the interrupt routine has reported meanwhile.
        let _reported = reported.compare_exchange(0, first.wrapping_sub(1), Ordering::AcqRel, Ordering::Relaxed);
    }
}

/// Takes back everything that has not started on `node`, and has the engine take off what runs, in its middle where it
/// can. The engine answers at interrupt level.
///
/// # Errors
/// [`Error::InvalidParameter`] for a node that does not exist.
pub fn preempt<P: Platform>(
    _irql: &impl AtMostDispatch,
    started: &Started<P>,
    node: NodeOrdinal,
    fence: u32,
) -> Result<()> {
    let shared = started.gpu.nodes.get(node.index()).ok_or(Error::InvalidParameter)?;
    let (is_first, mut dropped) = shared.packets.with(|q| (q.is_unused(), q.preempt(fence)));
    if is_first {
        number(started, node, fence);
    }
    started.gpu.ask_preempt(node.index());
    dropped.clear();
    shared.packets.with(|q| q.give_back(dropped));
    Ok(())
}

/// Reports what an interrupt was lost for, and returns the `SubmissionFenceId` of the last packet of `node` that the
/// OS was told to be complete.
/// Source: `DxgkDdiQueryCurrentFence`, Remarks.
///
/// # Errors
/// [`Error::InvalidParameter`] for a node that does not exist.
pub fn current_fence<P: Platform>(
    _irql: &Passive,
    started: &Started<P>,
    adapter: *mut c_void,
    node: NodeOrdinal,
) -> Result<u32> {
    let last = started.reported.get(node.index()).ok_or(Error::InvalidParameter)?;
    // The OS refuses this when no interrupt is connected. Then nothing can be reported, and the answer is the last one
    // that was.
    started.dxgkrnl.synchronize(started.routines.report, adapter);
    Ok(last.load(Ordering::Acquire))
}
