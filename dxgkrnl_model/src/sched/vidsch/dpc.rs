//! What follows from an interrupt, at DISPATCH_LEVEL: ends of packets, wake-ups, acknowledgements. What needs
//! PASSIVE_LEVEL is left to the worker.

use std::sync::Arc;

use wddm_abi::DXGK_ENGINE_STATE;

use crate::objects::fence::monitored::scan;
use crate::objects::fence::native::NativeFence;
use crate::objects::scheduling_log::SchedulingLogSet;
use crate::port::miniport::Miniport;
use crate::port::personality::Departure;
use crate::port::tdr::steps::Reason;
use crate::port::tdr::{DeviceState, Tdr};
use crate::port::worker::{Escalation, Worker};
use crate::sched::interrupt::{NodeList, Notice, Signaled};
use crate::sched::vidsch::packet::{Load, Packet};
use crate::sched::vidsch::{Node, VidSch};

/// Works off one node's notifications in the order in which they came.
///
/// IRQL: DISPATCH_LEVEL.
pub(crate) fn work_off(adapter: &Arc<Miniport>, node: usize, list: NodeList) {
    for notice in list.notices {
        work_off_one(adapter, node, notice);
    }
    if list.scan_native {
        crate::objects::fence::update::scan_native(adapter);
    }
    if list.scan_monitored {
        scan::signaled(adapter);
    }
    if let Some(node) = u32::try_from(node).ok().and_then(|node| VidSch::of(adapter).node(node)) {
        node.packet.changed.notify(adapter.kernel());
    }
    Worker::of(adapter).kick(adapter);
}

fn work_off_one(adapter: &Arc<Miniport>, node: usize, notice: Notice) {
    let kernel = adapter.kernel();
    match notice {
        Notice::Completed(packets) => end(adapter, &packets),
        Notice::Preempted { done, back } => {
            end(adapter, &done);
            give_back(adapter, back, true);
            if let Some(node) = u32::try_from(node).ok().and_then(|node| VidSch::of(adapter).node(node)) {
                node.packet.given_back();
            }
        }
        Notice::Faulted { done, packet, fault, reset } => {
            end(adapter, &done);
            let device = packet.context.device();
            let state = if fault.is_some() { DeviceState::PageFault } else { DeviceState::DmaFault };
            if let Some(fault) = fault {
                device.set_fault(fault);
            }
            device.fail_later(state);
            packet.end(kernel, false);
            if let Some(reason) = reset {
                // CAST: a node's number.
                want_reset(adapter, node as u32, reason);
            }
        }
        Notice::QueueFaulted { context, fault, reset } => {
            context.device().set_fault(fault);
            context.device().fail_later(DeviceState::PageFault);
            if let Some(reason) = reset {
                want_reset(adapter, context.node(), reason);
            }
        }
        Notice::Native { signaled, legacy } => {
            let fences: Vec<_> = signaled.fences().iter().filter_map(|driver_fence| driver_fence.fence()).collect();
            NativeFence::signaled_on(kernel, adapter, &fences);
            if legacy {
                scan::signaled(adapter);
            }
            match signaled {
                Signaled::Fences(fences) if fences.is_empty() => {
                    crate::objects::fence::update::scan_native(adapter);
                    crate::objects::fence_log::collect(adapter);
                }
                Signaled::Fences(fences) => crate::objects::fence_log::collect_for(adapter, &fences),
                Signaled::Queue(Some(queue)) => crate::objects::fence_log::wake_from(adapter, &queue),
                // CAST: a node's number.
                Signaled::Queue(None) => crate::objects::fence_log::wake_from_engine(adapter, node as u32),
            }
        }
        Notice::Monitored => scan::signaled(adapter),
        Notice::Suspended { context, fence } => context.acknowledged(fence),
        // CAST: a node's number.
        Notice::ResetWanted(reason) => want_reset(adapter, node as u32, reason),
        Notice::EngineState(state) => engine_state(adapter, node, state),
        // CAST: a node's number.
        Notice::SchedulingLog => SchedulingLogSet::of(adapter).read(adapter, node as u32),
    }
}

/// An engine said how it is.
///
/// IRQL: DISPATCH_LEVEL.
fn engine_state(adapter: &Arc<Miniport>, node: usize, state: DXGK_ENGINE_STATE) {
    if state == DXGK_ENGINE_STATE::DXGK_ENGINE_STATE_TRANSITION_TO_F1 {
        // CAST: a node's number.
        let node = node as u32;
        let goes = move |adapter: &Arc<Miniport>| {
            Worker::escalate(adapter, node, Escalation::EngineIdle);
        };
        Worker::of(adapter).defer(adapter, Box::new(goes));
    }
}

/// Lets the worker reset a node, or the adapter, unless another reset is over by then: that has ended what the notice
/// was about.
///
/// Chosen: no page says what the OS does with a notice that it has worked off before the reset of the engine is over.
///
/// IRQL: DISPATCH_LEVEL.
fn want_reset(adapter: &Arc<Miniport>, node: u32, reason: Reason) {
    let of_fault = matches!(reason, Reason::Fault | Reason::UnknownFault | Reason::AdapterFault);
    if of_fault && adapter.personality().departs(Departure::IgnoresWishes) {
        return;
    }
    let before = Tdr::of(adapter).resets_for(node, reason);
    let work = move |adapter: &Arc<Miniport>| {
        let keeps = adapter.personality().departs(Departure::KeepsOldNotices);
        if keeps || Tdr::of(adapter).resets_for(node, reason) == before {
            Worker::escalate(adapter, node, Escalation::Reset(reason));
        }
    };
    Worker::of(adapter).defer(adapter, Box::new(work));
}

/// Works off what one node's notifications say of packets, which the node does not have any more, and of fences, whose
/// values a reset does not undo, and drops everything else.
///
/// IRQL: at most DISPATCH_LEVEL.
pub(crate) fn end_packets(adapter: &Arc<Miniport>, node: usize, list: NodeList) {
    for notice in list.notices {
        let of_packets = matches!(notice, Notice::Completed(_) | Notice::Preempted { .. } | Notice::Faulted { .. });
        if of_packets || matches!(notice, Notice::Native { .. } | Notice::Monitored) {
            work_off_one(adapter, node, notice);
        }
    }
    if list.scan_native {
        crate::objects::fence::update::scan_native(adapter);
    }
    if list.scan_monitored {
        scan::signaled(adapter);
    }
}

/// Looks at the fences of which the node's interrupts told while they were ignored.
///
/// IRQL: at most DISPATCH_LEVEL.
pub(crate) fn hear(adapter: &Miniport, node: &Node) {
    if node.packet.take_unheard() {
        crate::objects::fence::update::scan_native(adapter);
        scan::signaled(adapter);
    }
}

/// Buffers are done, and monitored fences that they may have signaled are looked at.
///
/// IRQL: DISPATCH_LEVEL.
fn end(adapter: &Miniport, packets: &[Packet]) {
    for packet in packets {
        packet.end(adapter.kernel(), true);
    }
    for (index, packet) in packets.iter().enumerate() {
        let process = packet.context.device().process();
        let again = packets[..index].iter().any(|other| Arc::ptr_eq(other.context.device().process(), process));
        if !again {
            scan::completed(adapter, process);
        }
    }
}

/// Gives the places of paging buffers to them in the opposite order.
fn swap_places(packets: &mut [Packet]) {
    let mut buffers: Vec<_> = packets
        .iter_mut()
        .filter_map(|packet| match &mut packet.load {
            Load::Paging(buffer) => Some(buffer),
            Load::Command(_) => None,
        })
        .collect();
    let numbers: Vec<_> = buffers.iter().rev().map(|buffer| buffer.number).collect();
    buffers.iter_mut().zip(numbers).for_each(|(buffer, number)| buffer.number = number);
}

/// Queues buffers that the driver gave back, the oldest first again; for a preemption or behind the reset of an engine.
/// Paging buffers keep their ids.
///
/// IRQL: at most DISPATCH_LEVEL.
pub(crate) fn give_back(adapter: &Arc<Miniport>, packets: Vec<Packet>, preempted: bool) {
    let mut packets = packets;
    if adapter.personality().departs(Departure::ReversesPaging) {
        swap_places(&mut packets);
    }
    packets.reverse();
    for packet in packets {
        match packet.load {
            Load::Paging(mut buffer) => {
                buffer.id = Some(packet.id);
                buffer.again |= preempted;
                VidSch::of(adapter).return_paging(buffer);
            }
            Load::Command(mut submission) => {
                submission.again |= preempted;
                submission.id = Some(packet.id);
                packet.context.commands().push_back_in_front(submission);
            }
        }
    }
}
