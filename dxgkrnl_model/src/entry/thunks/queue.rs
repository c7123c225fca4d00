//! Thunks about hardware contexts, queues and doorbells.

use std::sync::Arc;

use wddm_abi::{
    D3DKMT_CREATE_DOORBELL, D3DKMT_CREATEHWCONTEXT, D3DKMT_CREATEHWQUEUE, D3DKMT_DESTROY_DOORBELL,
    D3DKMT_DESTROYHWCONTEXT, D3DKMT_DESTROYHWQUEUE, D3DKMT_GETNATIVEFENCELOGDETAIL, D3DKMT_SUBMITCOMMANDTOHWQUEUE,
    NTSTATUS, ntstatus,
};

use super::device::{device, node_of, private, submission};
use super::testing::{made, refuses_tests};
use super::{Call, DONE, INVALID, capture, thunks};
use crate::objects::command::Command;
use crate::objects::doorbell::{Doorbell, PRIVATE_MAX, Request};
use crate::objects::hw_context::{HwContext, Way};
use crate::objects::hw_queue::{self, HwQueue, end_of_wait};
use crate::objects::open_allocation::OpenAllocation;
use crate::objects::process::UserObject;
use crate::port::handle::HandleType;
use crate::port::miniport::Miniport;
use crate::port::personality::HwContexts;
use crate::port::worker::Worker;

/// Checks that this Windows has `D3DKMTCreateHwContext` and `D3DKMTDestroyHwContext`.
///
/// # Errors
/// STATUS_NOT_IMPLEMENTED with [`HwContexts::CreateContext`]; STATUS_PROCESS_IS_TERMINATING once the OS is gone.
fn has_pair(call: &Call) -> Result<(), NTSTATUS> {
    let shared = call.process.shared().ok_or(ntstatus::STATUS_PROCESS_IS_TERMINATING)?;
    match shared.personality().hw_contexts {
        HwContexts::CreateHwContext => Ok(()),
        HwContexts::CreateContext => Err(ntstatus::STATUS_NOT_IMPLEMENTED),
    }
}

/// Waits for the work of queues that are destroyed, of a device that is not. What is given up is taken off its engine
/// as it is destroyed.
fn drain(adapter: &Miniport, queues: Vec<Arc<HwQueue>>) {
    hw_queue::drain(adapter.kernel(), queues, end_of_wait(adapter));
}

/// Waits for the queues of a hardware context, all at once, and destroys it, them and their doorbells.
pub(super) fn destroy_hw_context(call: &Call, context: &Arc<HwContext>) {
    if context.device().usable().is_ok() {
        drain(context.device().adapter(), context.queues());
    }
    call.process.destroy_hw_context(context);
}

thunks! {
    /// Queues.
    table THUNKS;

    fn D3DKMTCreateHwContext(call, record: D3DKMT_CREATEHWCONTEXT) {
        has_pair(call)?;
        let device = device(call, record.hDevice)?;
        let caps = device.adapter().known_caps();
        let number = node_of(&device, record.NodeOrdinal, record.EngineAffinity)?;
        let node = caps.node(number).ok_or(INVALID)?;
        if record.Flags.Value != 0 {
            return Err(INVALID);
        }
        if !node.is_hardware_scheduled() {
            return Err(ntstatus::STATUS_NOT_SUPPORTED);
        }
        let address = record.pPrivateDriverData.expose_provenance();
        let mut private = private(address, record.PrivateDriverDataSize)?;
        let context =
            HwContext::create(&device, number, record.EngineAffinity, Way::CreateHwContext, &mut private)?;
        record.hHwContext = call.insert(UserObject::HwContext(context))?;
        capture::store(address, &private)?;
        DONE
    }

    fn D3DKMTDestroyHwContext(call, record: D3DKMT_DESTROYHWCONTEXT) {
        has_pair(call)?;
        let context =
            call.process.hw_context(record.hHwContext).filter(|context| !context.is_context()).ok_or(INVALID)?;
        destroy_hw_context(call, &context);
        DONE
    }

    fn D3DKMTCreateHwQueue(call, record: D3DKMT_CREATEHWQUEUE) {
        let context = call.process.hw_context(record.hHwContext).ok_or(INVALID)?;
        call.uses_context(&context)?;
        context.device().usable()?;
        let adapter = context.device().adapter();
        let for_tests = record.Flags.TestQueue();
        // A test's buffers come from the kernel.
        let both = for_tests && record.Flags.UserModeSubmission();
        if record.Flags.Reserved() != 0 || both || refuses_tests(adapter, for_tests) {
            return Err(INVALID);
        }
        let address = record.pPrivateDriverData.expose_provenance();
        let mut private = private(address, record.PrivateDriverDataSize)?;
        let bare = for_tests && private.is_empty();
        let make = || HwQueue::create(&call.process, &context, record.Flags, &mut private);
        let queue = made(adapter, context.node(), bare, make)?;
        record.hHwQueue = call.insert(UserObject::HwQueue(queue.clone()))?;
        capture::store(address, &private)?;
        queue.set_user_handle(record.hHwQueue);
        let (user, gpu) = queue.progress().addresses();
        record.hHwQueueProgressFence = queue.progress_handle();
        record.HwQueueProgressFenceCPUVirtualAddress = core::ptr::with_exposed_provenance_mut(user);
        record.HwQueueProgressFenceGPUVirtualAddress = gpu;
        record.Flags.set_NativeProgressFence(matches!(queue.progress(), crate::objects::hw_queue::Progress::Native(_)));
        DONE
    }

    fn D3DKMTDestroyHwQueue(call, record: D3DKMT_DESTROYHWQUEUE) {
        let queue = call.process.hw_queue(record.hHwQueue).ok_or(INVALID)?;
        let at_once = queue.adapter().personality().user_mode.queues_end_at_once;
        if queue.context().device().usable().is_ok() && !at_once {
            drain(queue.adapter(), vec![queue.clone()]);
        }
        call.process.destroy_queue(&queue);
        DONE
    }

    fn D3DKMTSubmitCommandToHwQueue(call, record: D3DKMT_SUBMITCOMMANDTOHWQUEUE) {
        let queue = call.process.hw_queue(record.hHwQueue).ok_or(INVALID)?;
        queue.context().device().usable()?;
        // A queue whose work comes through doorbells has no other way in.
        if queue.is_user_mode() || !queue.context().commands().may_render() {
            return Err(INVALID);
        }
        let private = private(record.pPrivateDriverData.expose_provenance(), record.PrivateDriverDataSize)?;
        let wanted = queue.context().private_size();
        if wanted.is_some_and(|most| private.len() > most) {
            return Err(INVALID);
        }
        let wanted = wanted.unwrap_or(private.len());
        let mut submission = submission(record.CommandBuffer, record.CommandLength, &private, wanted);
        submission.progress = record.HwQueueProgressFenceId;
        if !queue.commands().push(Command::Submit(submission)) {
            return Err(ntstatus::STATUS_DEVICE_REMOVED);
        }
        Worker::of(queue.adapter()).kick(queue.adapter());
        DONE
    }

    fn D3DKMTCreateDoorbell(call, record: D3DKMT_CREATE_DOORBELL) {
        let queue = call.process.hw_queue(record.hHwQueue).ok_or(INVALID)?;
        call.uses_queue(&queue)?;
        queue.context().device().usable()?;
        let size = record.PrivateDriverDataSize as usize;
        if record.Flags.Reserved() != 0 || size > PRIVATE_MAX {
            return Err(INVALID);
        }
        let find = |handle: u32| {
            let open = call.process.allocation(handle).ok_or(INVALID)?;
            let is_ours = Arc::ptr_eq(open.device(), queue.context().device());
            // The driver has a handle of it.
            if is_ours && !open.allocation().is_standard() { Ok(open) } else { Err(INVALID) }
        };
        let control = match record.hRingBufferControl {
            0 => None,
            handle => Some(find(handle)?),
        };
        let address = record.PrivateDriverData.expose_provenance();
        let ring: Arc<OpenAllocation> = find(record.hRingBuffer)?;
        let mut request = Request {
            ring,
            control,
            secondary: record.Flags.RequireSecondaryCpuVA(),
            resize: record.Flags.ResizeRingBufferOperation(),
            private: capture::bytes(address, size)?,
        };
        let doorbell = Doorbell::create(&queue, &mut request)?;
        let addresses = doorbell.addresses();
        let pointer = core::ptr::with_exposed_provenance_mut;
        record.DoorbellCPUVirtualAddress = pointer(addresses.doorbell);
        record.DoorbellSecondaryCPUVirtualAddress = pointer(addresses.secondary);
        record.DoorbellStatusCPUVirtualAddress = pointer(addresses.status);
        record.HwQueueProgressFenceLastQueuedValueCPUVirtualAddress = pointer(addresses.last_queued);
        record.hDoorbell = call.insert(UserObject::Doorbell(doorbell))?;
        capture::store(address, &request.private)?;
        DONE
    }

    fn D3DKMTDestroyDoorbell(call, record: D3DKMT_DESTROY_DOORBELL) {
        // What it belongs to is not destroyed before it.
        call.uses_queue(call.process.doorbell(record.hDoorbell).ok_or(INVALID)?.queue())?;
        match call.process.remove(record.hDoorbell, HandleType::Doorbell) {
            Some(UserObject::Doorbell(doorbell)) => {
                doorbell.destroy();
                DONE
            }
            _ => Err(INVALID),
        }
    }

    fn D3DKMTGetNativeFenceLogDetail(call, record: D3DKMT_GETNATIVEFENCELOGDETAIL) {
        // Deprecated: user mode has no business with the logs (DDI page).
        call.process.hw_queue(record.hHwQueue).ok_or(INVALID)?;
        Err(ntstatus::STATUS_NOT_SUPPORTED)
    }
}
