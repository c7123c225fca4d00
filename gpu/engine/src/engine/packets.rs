//! Packet mode on an engine: begins packets, finishes them in order, and answers preemptions between them.

use super::Core;
use super::outcome::Outcome;
use super::place::PACKET_STREAM;
use crate::command_processor::{FenceRef, Job};
use crate::counters::bump;
use crate::exec::Exec;
use crate::fault::Fault;
use crate::gpu::Gpu;
use crate::host::Host;
use crate::mutation::Mutation;
use crate::node::Node;
use crate::notice::Notice;
use crate::packet_node::{PacketQueue, PacketSubmission};
use crate::trace::Event;
use alloc::boxed::Box;
use gpu_wire::packet::{FaultKind, Privilege};

/// The packet on the engine.
pub(super) struct Running<H: Host> {
    pub packet: PacketSubmission<H>,
    pub exec: Box<Exec<FenceRef<H>>>,
}

impl<H: Host> Core<H> {
    /// Behind a reset: ends the packet that it has cut off, as one that did what it must not. After
    /// `DxgkDdiResetEngine` and an adapter reset there is none: the OS is told its fence, or takes it, as completed.
    pub(super) fn end_cut_off(&mut self, gpu: &Gpu<H>, node: &Node<H>) {
        if core::mem::take(&mut self.cut_off)
            && let Some(fence) = node.packets.with(PacketQueue::complete)
        {
            bump(&node.counters.faults);
            let fault = FaultKind::NotPermitted.into();
            self.reports.notify(gpu, node, Notice::PacketFaulted { fence, fault });
            self.answer_preempt(gpu, node);
        }
    }

    /// Goes on with the running packet or begins the next. Returns whether anything happened.
    pub(super) fn step_packets(&mut self, gpu: &Gpu<H>, node: &Node<H>) -> bool {
        let (mut running, fresh) = match self.running.take() {
            Some(running) => (running, false),
            None if !node.packets.is_busy() => return false,
            None => {
                let Some(mut exec) = self.spare.take() else { return false };
                let Some(packet) = node.packets.with(PacketQueue::begin) else {
                    self.spare = Some(exec);
                    return false;
                };
                *exec = Exec::new();
                let resumes = packet.resumes && !gpu.mutation.is(Mutation::BeginsAnew);
                if resumes {
                    packet.context.restore(&mut exec);
                    bump(&node.counters.resumed);
                }
                (Running { packet, exec }, !resumes)
            }
        };
        if fresh && let Err(kind) = running.exec.begin(running.packet.address, running.packet.length) {
            self.finish_packet(gpu, node, running, Some(kind.into()));
            return true;
        }
        let context = running.packet.context.clone();
        let space = &context.space;
        let packet = Some((context.handle, running.packet.fence));
        let job = Job { process: &space.process, privilege: running.packet.privilege, queue: None, packet };
        node.board.begin(PACKET_STREAM, 0, context.handle);
        let outcome = self.execute(gpu, node, &job, space, &mut running.exec);
        self.note_end(gpu, node, &job, &running.exec, outcome);
        match outcome {
            Outcome::Drained => self.finish_packet(gpu, node, running, None),
            // A paging packet that failed would stop the system.
            Outcome::Faulted(fault)
                if fault.kind == FaultKind::AdapterStopped && running.packet.privilege == Privilege::Paging =>
            {
                self.finish_packet(gpu, node, running, None);
            }
            Outcome::Faulted(fault) => self.finish_packet(gpu, node, running, Some(fault)),
            Outcome::Waiting => {
                self.running = Some(running);
                return false;
            }
            Outcome::Controlled | Outcome::Budget | Outcome::Preempted | Outcome::Parked | Outcome::Gone => {
                self.running = Some(running);
            }
        }
        self.queues_next = true;
        true
    }

    fn finish_packet(&mut self, gpu: &Gpu<H>, node: &Node<H>, running: Running<H>, fault: Option<Fault>) {
        // Unmapped before the OS hears of the completion.
        self.scratch.let_go();
        let Running { packet, exec } = running;
        self.spare = Some(exec);
        let Some(fence) = node.packets.with(PacketQueue::complete) else { return };
        bump(&node.counters.completions);
        node.trace.push(Event::Complete, fence.into());
        match fault {
            // Of what the driver refused the OS knows nothing, neither its end nor a fault.
            _ if packet.silent => {}
            None => self.reports.notify(gpu, node, Notice::PacketCompleted { fence }),
            Some(fault) => {
                bump(&node.counters.faults);
                node.trace.push(Event::Fault, fault.kind.raw().into());
                self.reports.notify(gpu, node, Notice::PacketFaulted { fence, fault });
            }
        }
        self.answer_preempt(gpu, node);
    }

    /// A preemption takes the running packet off in its middle, where the engine can come off, and is answered. One
    /// that stays until its end is answered behind it.
    pub(super) fn preempt_packet(&mut self, gpu: &Gpu<H>, node: &Node<H>) {
        let preempts = node.packets.is_busy() && node.packets.with(|queue| queue.is_preempting());
        if preempts && let Some(mut running) = self.running.take_if(|r| r.exec.may_leave(gpu.preempts_in_buffers)) {
            self.scratch.let_go();
            let Running { packet, exec } = &mut running;
            packet.context.save(packet.address, packet.length, node.all_resets(), exec);
            node.packets.with(|queue| match gpu.mutation.is(Mutation::CountsTakenOff) {
                true => drop(queue.complete()),
                false => queue.take_off(),
            });
            bump(&node.counters.taken_off);
            self.spare = Some(running.exec);
        }
        if self.running.is_none() {
            self.answer_preempt(gpu, node);
        }
    }

    /// Answers a preemption that waits for it, when no packet runs.
    fn answer_preempt(&mut self, gpu: &Gpu<H>, node: &Node<H>) {
        let answer = node.packets.with(PacketQueue::answer_preempt);
        if let Some((request, completed)) = answer {
            self.reports.notify(gpu, node, Notice::PacketPreempted { request, completed });
        }
    }
}
