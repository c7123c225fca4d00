//! What a packet node hands to its driver: buffers, and requests to preempt.
//!
//! The place of the call among WDDM's levels is taken first, and what must be true of the node is looked at then: so no
//! packet slips in front of a reset that another thread makes.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use wddm_abi::{DXGKARG_PREEMPTCOMMAND, DXGKARG_SUBMITCOMMAND, DXGKARG_SUBMITCOMMANDVIRTUAL, NTSTATUS, ntstatus};

use super::{Load, Packet, PacketNode, PagingBuffer, is_before};
use crate::memory::completion::Completion;
use crate::objects::context::Context;
use crate::port::ddi::{self, call_ddi};
use crate::port::miniport::Miniport;
use crate::port::personality::Departure;
use crate::port::power::Power;
use crate::port::rules::paging::{PREEMPT_STATUS, SUBMIT_STATUS};
use crate::sched::vidsch::VidSch;
use crate::sched::vidsch::journal::PacketEvent;

impl PacketNode {
    /// Hands a buffer to the driver. Returns it where the node is being reset: another thread than the one that hands
    /// buffers in may have begun that.
    ///
    /// IRQL: PASSIVE_LEVEL.
    pub(crate) fn submit(&self, adapter: &Arc<Miniport>, context: &Arc<Context>, load: Load) -> Result<(), Load> {
        adapter.pass(adapter.personality().gates.submit.as_ref());
        let entered = adapter.in_place_of(&ddi::DxgkDdiSubmitCommandVirtual, || {
            let id = self.enter(adapter, context, load.clone())?;
            adapter.shared().counters.packet();
            Power::of(adapter).wake_node(adapter, self.ordinal);
            Some((id, self.call_submit(adapter, context, &load, id)))
        });
        let Some((id, status)) = entered else { return Err(load) };
        self.judge_submitted(adapter, context, &load, id, status);
        Ok(())
    }

    /// What becomes of a buffer that the driver was given, perhaps between two steps of another node's reset.
    fn judge_submitted(&self, adapter: &Arc<Miniport>, context: &Context, load: &Load, id: u32, status: NTSTATUS) {
        if ddi::succeeded(status) {
            adapter.rules().count(&SUBMIT_STATUS);
            self.state.lock().took(id);
            return;
        }
        let refusable = status == ntstatus::STATUS_INVALID_PARAMETER && matches!(load, Load::Command(_));
        adapter
            .rules()
            .check(&SUBMIT_STATUS, refusable, || format!("node {}, fence {id:#x}: {status:?}", self.ordinal));
        if let Some(packet) = self.take(id) {
            if !packet.is_paging() {
                context.device().fail_later(crate::port::tdr::DeviceState::DmaFault);
            }
            packet.end(adapter.kernel(), false);
        }
    }

    /// Hands an empty paging buffer to `DxgkDdiSubmitCommand`, the way of contexts without GPU virtual addresses.
    /// Returns what the function returned, and what ends with the buffer; a node that is being reset gets none.
    ///
    /// IRQL: PASSIVE_LEVEL, on the scheduler's worker, so that ids reach the driver in their order.
    pub(crate) fn submit_physical(
        &self,
        adapter: &Arc<Miniport>,
        context: &Arc<Context>,
    ) -> (Result<NTSTATUS, ddi::NoCall>, Arc<Completion>) {
        let completion = Completion::new();
        let buffer = PagingBuffer {
            address: 0,
            size: 0,
            private: 0,
            private_size: 0,
            companion: None,
            refers: Arc::default(),
            // It is in no list, and none is before it.
            number: 0,
            id: None,
            again: false,
            completion: completion.clone(),
        };
        let entered = adapter.in_place_of(&ddi::DxgkDdiSubmitCommand, || {
            let id = self.enter(adapter, context, Load::Paging(buffer))?;
            let mut arguments = DXGKARG_SUBMITCOMMAND::zeroed();
            arguments.SubmissionFenceId = id;
            (arguments.NodeOrdinal, arguments.EngineOrdinal) = (self.place.node, self.place.engine);
            arguments.Flags.set_Paging(true);
            let (miniport, pointer) = (adapter.context(), &raw const arguments);
            Some((id, call_ddi!(adapter, DxgkDdiSubmitCommand(miniport, pointer))))
        });
        let Some((id, returned)) = entered else {
            completion.end(adapter.kernel(), false);
            return (Err(ddi::NoCall::Stopped), completion);
        };
        if returned.is_ok_and(NTSTATUS::is_success) {
            self.state.lock().took(id);
        } else if let Some(refused) = self.take(id) {
            refused.end(adapter.kernel(), false);
        }
        (returned, completion)
    }

    /// Enters a packet with the next id, or with its own, which it returns. Called before the driver's function, which
    /// may complete the packet inside. `None`: the node is being reset, or what the reset has left is not in its lists
    /// yet, or stands there before this one.
    fn enter(&self, adapter: &Miniport, context: &Arc<Context>, load: Load) -> Option<u32> {
        let since = adapter.kernel().now();
        let mut state = self.state.lock();
        if state.frozen || state.giving_back {
            return None;
        }
        // A reset that another thread made may have given back what stands before it, and have ended its id.
        if let Load::Paging(buffer) = &load
            && VidSch::of(adapter).has_paging_before(buffer.number, self.ordinal, context)
        {
            return None;
        }
        let departs = |how| adapter.personality().departs(how);
        let own = match &load {
            Load::Paging(buffer) => {
                let lives = |id: &u32| is_before(state.ended, *id);
                buffer.id.filter(lives).filter(|_| !departs(Departure::RenumbersPaging))
            }
            Load::Command(submission) => submission.id.filter(|_| departs(Departure::KeepsRenderIds)),
        };
        let id = own.unwrap_or_else(|| {
            state.last_packet = state.next_id();
            state.last_packet
        });
        let (paging, again) = match &load {
            Load::Paging(buffer) => (true, buffer.again),
            Load::Command(submission) => (false, submission.again),
        };
        self.journal.note(PacketEvent::Submitted { id, paging, again });
        state.flights.push_back(Packet { id, context: context.clone(), load, since });
        Some(id)
    }

    fn call_submit(&self, adapter: &Miniport, context: &Context, load: &Load, id: u32) -> NTSTATUS {
        let mut arguments = DXGKARG_SUBMITCOMMANDVIRTUAL::zeroed();
        arguments.hContext = crate::port::handle::of_driver(context.driver_handle());
        arguments.SubmissionFenceId = id;
        (arguments.NodeOrdinal, arguments.EngineOrdinal) = (self.place.node, self.place.engine);
        match load {
            Load::Paging(buffer) => {
                arguments.DmaBufferVirtualAddress = buffer.address;
                arguments.DmaBufferSize = buffer.size;
                arguments.pDmaBufferPrivateData = core::ptr::with_exposed_provenance_mut(buffer.private);
                arguments.DmaBufferPrivateDataSize = buffer.private_size;
                arguments.Flags.set_Paging(true);
                arguments.Flags.set_Resubmission(buffer.again);
                if adapter.personality().paging_without_context && buffer.companion.is_none() {
                    arguments.hContext = core::ptr::null_mut();
                }
            }
            Load::Command(submission) => {
                arguments.DmaBufferVirtualAddress = submission.address;
                arguments.DmaBufferSize = submission.size;
                if submission.again && adapter.personality().departs(Departure::ForgetsPrivateData) {
                    submission.private.iter().for_each(|word| word.store(0, Ordering::Relaxed));
                }
                arguments.pDmaBufferPrivateData = submission.private.as_ptr().cast_mut().cast();
                arguments.DmaBufferPrivateDataSize = submission.private_size;
                arguments.DmaBufferUmdPrivateDataSize = submission.private_user;
                if adapter.personality().faults.stray_contexts {
                    // Another number of the same kind: no handle that the driver ever gave out.
                    arguments.hContext = crate::port::handle::of_driver(context.driver_handle() ^ (1 << 20));
                }
                arguments.Flags.set_Resubmission(submission.again);
                arguments.Flags.set_NullRendering(submission.null_rendering || context.commands().renders_nothing());
            }
        }
        let (miniport, pointer) = (adapter.context(), &raw const arguments);
        ddi::status(call_ddi!(adapter, DxgkDdiSubmitCommandVirtual(miniport, pointer)))
    }

    /// Asks the driver to preempt the node. False: it runs already, the node is being reset, or the driver failed.
    ///
    /// IRQL: PASSIVE_LEVEL.
    pub(crate) fn preempt(&self, adapter: &Arc<Miniport>) -> bool {
        let entered = adapter.in_place_of(&ddi::DxgkDdiPreemptCommand, || {
            let id = {
                let mut state = self.state.lock();
                if state.preempting.is_some() || state.frozen {
                    return None;
                }
                let request = state.next_id();
                state.preempting = Some((request, adapter.kernel().now()));
                self.journal.note(PacketEvent::Preempting { request });
                request
            };
            let mut arguments = DXGKARG_PREEMPTCOMMAND::zeroed();
            arguments.PreemptionFenceId = id;
            (arguments.NodeOrdinal, arguments.EngineOrdinal) = (self.place.node, self.place.engine);
            let (miniport, pointer) = (adapter.context(), &raw const arguments);
            Some((id, ddi::status(call_ddi!(adapter, DxgkDdiPreemptCommand(miniport, pointer)))))
        });
        let Some((id, status)) = entered else { return false };
        let fine = ddi::succeeded(status);
        adapter.rules().check(&PREEMPT_STATUS, fine, || format!("node {}, fence {id:#x}: {status:?}", self.ordinal))
    }
}
