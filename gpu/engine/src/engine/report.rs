//! What a turn tells user mode in the control page of a ring: the read pointer, and the fault that stopped the queue.

use super::place::Place;
use super::{Core, UNMAPPED_AT_ONCE};
use crate::address_space::EVERY_PROCESS;
use crate::command_processor::FenceRef;
use crate::counters::bump;
use crate::exec::Exec;
use crate::fault::Fault;
use crate::gpu::Gpu;
use crate::host::Host;
use crate::mmu::Stored;
use crate::node::{Node, attention};
use crate::notice::Notice;
use crate::ops::STEP;
use crate::queue::Queue;
use crate::shared::Shared;
use crate::tlb::Lack;
use crate::trace::Event;
use crate::word::Ordering;
use gpu_wire::packet::FaultKind;
use gpu_wire::{GpuVa, pte, ring};

/// Looks of the engine while it maps a page for a word: as many as that takes, several times.
const LOOKS_OF_A_WORD: u32 = 16;
/// Windows that one word takes at most: a page table of each level, and its page.
const WINDOWS_OF_A_WORD: usize = pte::LEVELS as usize + 1;

impl<H: Host> Core<H> {
    /// Between packets: stores the read pointer every eighth of the ring, since a producer that keeps the ring fed
    /// needs space, too. Not while a signal's consequences wait for its LOG.
    pub(super) fn report_while_running(&mut self, at: &Place<'_, H>, exec: &mut Exec<FenceRef<H>>) {
        let due =
            exec.usable_ring().is_some_and(|binding| exec.consumed - exec.reported >= binding.geometry.size() / 8);
        if due && exec.pending.as_ref().is_none_or(|pending| !pending.fresh) {
            self.report(at, exec);
        }
    }

    /// Stores the read pointer. Returns why it is still to be stored, where the page cannot be mapped now.
    pub(super) fn report(&mut self, at: &Place<'_, H>, exec: &mut Exec<FenceRef<H>>) -> Option<Lack> {
        let binding = exec.usable_ring()?;
        let retired = exec.retired();
        if exec.reported == retired {
            return None;
        }
        if let Some(queue) = at.job.queue {
            queue.consumed.store(retired, Ordering::Relaxed);
        }
        // ORDERING[RING-1]: Release: the packets were copied out before user mode may write over them. A control page
        // that went away is noticed at the next fetch.
        let pointer = GpuVa(binding.control.0 + ring::READ_POINTER as u64);
        let mut mmu = at.gpu.mmu(at.node, at.space, &mut self.tlb);
        match mmu.store_aside(pointer, retired) {
            Stored::NoMemory => Some(Lack::Memory),
            Stored::Later => Some(Lack::Look),
            Stored::Done | Stored::NotMapped => {
                exec.reported = retired;
                None
            }
        }
    }

    /// Adds the fault to what the engine reports, and stops the queue.
    pub(super) fn fault_queue(
        &mut self,
        at: &Place<'_, H>,
        exec: &Exec<FenceRef<H>>,
        queue: &Shared<Queue<H>>,
        fault: Fault,
    ) {
        let Place { gpu, node, .. } = *at;
        if !queue.stop() {
            return;
        }
        bump(&node.counters.faults);
        node.trace.push(Event::Fault, fault.kind.raw().into());
        let halted = fault.kind == FaultKind::AdapterStopped;
        // The buffer that faulted, by the number that the kernel gave it. What runs in a user-mode queue has no such
        // number: the values of its progress fence are user mode's words, and the OS is told none of them.
        let progress = if queue.user_mode { 0 } else { queue.running.load(Ordering::Relaxed) };
        if let Some(binding) = exec.binding.filter(|_| !halted) {
            let report = [
                (ring::FAULT_ADDRESS, fault.address.0),
                (ring::FAULT_POSITION, exec.consumed),
                (ring::FAULT_KIND, fault.kind.raw().into()),
            ];
            let mut gives_back = true;
            for (offset, value) in report {
                self.store_at_last(at, GpuVa(binding.control.0 + offset as u64), value, &mut gives_back);
            }
        }
        self.reports.notify(gpu, node, Notice::QueueFaulted { queue: queue.slot, fault, progress });
    }

    /// Stores a word for a queue that has no later turn, whatever must be mapped for it. The engine looks up meanwhile,
    /// but sees flushes alone. Without memory it gives back what it has mapped, where that is left to do: here as much
    /// as one page takes, and the rest between its next steps.
    fn store_at_last(&mut self, at: &Place<'_, H>, va: GpuVa, value: u64, gives_back: &mut bool) {
        let Place { gpu, node, space, .. } = *at;
        for _ in 0..LOOKS_OF_A_WORD {
            match gpu.mmu(node, space, &mut self.tlb).store_aside(va, value) {
                Stored::Later => self.look_for_flushes(gpu, node),
                Stored::NoMemory if core::mem::take(gives_back) => {
                    self.tlb.flush(EVERY_PROCESS, 0, 0);
                    self.gives_back = true;
                    node.attention.fetch_or(attention::FLUSH, Ordering::AcqRel);
                    (0..WINDOWS_OF_A_WORD).step_by(UNMAPPED_AT_ONCE).for_each(|_| self.look_for_flushes(gpu, node));
                }
                _ => return,
            }
        }
        // Flushes have taken away what was mapped, again and again.
        self.tlb.limit = u64::MAX;
        gpu.mmu(node, space, &mut self.tlb).store_aside(va, value);
    }

    fn look_for_flushes(&mut self, gpu: &Gpu<H>, node: &Node<H>) {
        self.take_work(node);
        self.serve_flushes(gpu, node);
        self.tlb.limit = self.tlb.work.saturating_add(STEP);
    }
}
