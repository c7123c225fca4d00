//! What a turn tells user mode in the control page of a ring: the read pointer, and the fault that stopped the queue.

use super::Core;
use super::turn::Place;
use crate::address_space::EVERY_PROCESS;
use crate::command_processor::FenceRef;
use crate::counters::bump;
use crate::exec::Exec;
use crate::fault::Fault;
use crate::host::Host;
use crate::mmu::Stored;
use crate::node::attention;
use crate::notice::Notice;
use crate::queue::Queue;
use crate::shared::Shared;
use crate::trace::Event;
use crate::word::Ordering;
use gpu_wire::packet::FaultKind;
use gpu_wire::{GpuVa, pte, ring};

/// Windows that one word takes at most: a page table of each level, and its page.
const WINDOWS_OF_A_WORD: usize = pte::LEVELS as usize + 1;

impl<H: Host> Core<H> {
    /// Between packets: stores the read pointer every eighth of the ring, since a producer that keeps the ring fed
    /// needs space, too. Not while a signal's consequences wait for its LOG.
    pub(super) fn report_while_running(&mut self, at: &Place<'_, H>, exec: &mut Exec<FenceRef<H>>) {
        let due = exec.binding.is_some_and(|binding| exec.consumed - exec.reported >= binding.geometry.size() / 8);
        if due && exec.pending.as_ref().is_none_or(|pending| !pending.fresh) {
            self.report(at, exec);
        }
    }

    /// Stores the read pointer. Returns `false` where the page cannot be mapped now: it is still to be stored.
    pub(super) fn report(&mut self, at: &Place<'_, H>, exec: &mut Exec<FenceRef<H>>) -> bool {
        let Some(binding) = exec.binding else { return true };
        let retired = exec.retired();
        if exec.reported == retired {
            return true;
        }
        if let Some(queue) = at.job.queue {
            queue.consumed.store(retired, Ordering::Relaxed);
        }
        // ORDERING[RING-1]: Release: the packets were copied out before user mode may write over them. A control page
        // that went away is noticed at the next fetch.
        let pointer = GpuVa(binding.control.0 + ring::READ_POINTER as u64);
        let mut mmu = at.gpu.mmu(at.node, at.space, &mut self.tlb);
        let stored = !matches!(mmu.store_aside(pointer, retired), Stored::NoMemory | Stored::Later);
        if stored {
            exec.reported = retired;
        }
        stored
    }

    /// Adds the fault to what the engine reports, and stops the queue.
    pub(super) fn fault_queue(
        &mut self,
        at: &Place<'_, H>,
        exec: &Exec<FenceRef<H>>,
        queue: &Shared<Queue<H>>,
        fault: Fault,
    ) {
        let Place { gpu, node, space, .. } = *at;
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
            // There is no later turn of this queue.
            self.tlb.limit = u64::MAX;
            for (offset, value) in report {
                let word = GpuVa(binding.control.0 + offset as u64);
                let mut mmu = gpu.mmu(node, space, &mut self.tlb);
                if mmu.store_aside(word, value) == Stored::NoMemory && core::mem::take(&mut gives_back) {
                    // The engine gives back what it has mapped: here as much as one page takes, once for all words, and
                    // the rest between its next steps.
                    mmu.tlb.flush(EVERY_PROCESS, 0, 0);
                    mmu.tlb.give_back(WINDOWS_OF_A_WORD);
                    mmu.store_aside(word, value);
                    self.gives_back = true;
                    node.attention.fetch_or(attention::FLUSH, Ordering::AcqRel);
                }
            }
        }
        self.reports.notify(gpu, node, Notice::QueueFaulted { queue: queue.slot, fault, progress });
    }
}
