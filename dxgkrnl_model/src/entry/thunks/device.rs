//! Thunks about devices and contexts.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use wddm_abi::{
    D3DDDI_CREATECONTEXTFLAGS, D3DKMT_CREATECONTEXTVIRTUAL, D3DKMT_CREATEDEVICE, D3DKMT_DESTROYCONTEXT,
    D3DKMT_DESTROYDEVICE, D3DKMT_DEVICESTATE_TYPE, D3DKMT_GETDEVICESTATE, D3DKMT_SUBMITCOMMAND, D3DKMT_WAITFORIDLE,
    DXGK_CREATECONTEXTFLAGS, NTSTATUS, ntstatus,
};

use super::testing::{made, refuses_tests};
use super::{Call, DONE, INVALID, capture, thunks};
use crate::objects::command::{Command, Submission};
use crate::objects::context::Context;
use crate::objects::device::Device;
use crate::objects::hw_context::{HwContext, Way};
use crate::objects::hw_queue::end_of_wait;
use crate::objects::process::UserObject;
use crate::port::handle::HandleType;
use crate::port::personality::HwContexts;
use crate::port::place::Place;
use crate::port::tdr::DeviceState;
use crate::port::worker::Worker;

/// Most bytes of private data.
pub(super) const PRIVATE_LIMIT: usize = 1 << 20;

/// The device of a handle, when it takes work. It is there until the thunk returns.
pub(super) fn device(call: &Call, handle: u32) -> Result<Arc<Device>, NTSTATUS> {
    let device = call.process.device(handle).ok_or(INVALID)?;
    call.uses_device(&device)?;
    device.usable()?;
    Ok(device)
}

/// Private data of a call.
pub(super) fn private(address: usize, size: u32) -> Result<Vec<u8>, NTSTATUS> {
    let size = size as usize;
    if size > PRIVATE_LIMIT { Err(INVALID) } else { capture::bytes(address, size) }
}

/// Private data of a submission as the driver gets it: user mode's bytes, then zeros up to what the driver wants.
pub(super) fn submission(address: u64, size: u32, user: &[u8], wanted: usize) -> Submission {
    let total = wanted.max(user.len());
    let mut private = vec![0_u64; total.div_ceil(8).max(1)];
    for (index, chunk) in user.chunks(8).enumerate() {
        let mut bytes = [0; 8];
        bytes[..chunk.len()].copy_from_slice(chunk);
        private[index] = u64::from_le_bytes(bytes);
    }
    Submission {
        address,
        size,
        private: private.into_iter().map(AtomicU64::new).collect(),
        // CAST: limited by `private`.
        private_user: user.len() as u32,
        private_size: total as u32,
        progress: 0,
        again: false,
        id: None,
        null_rendering: false,
    }
}

/// The driver's flags of a context, from user mode's. NullRendering and SynchronizationOnly are the OS's own.
///
/// Chosen: InitialData, DisableGpuTimeout and NoKmdAccess change nothing. DXGK_CREATECONTEXTFLAGS has no member for
/// them; no page says who may set the second, and one public client sets it on its contexts (CL-01).
fn driver_flags(user: D3DDDI_CREATECONTEXTFLAGS) -> DXGK_CREATECONTEXTFLAGS {
    let mut flags = DXGK_CREATECONTEXTFLAGS::zeroed();
    flags.set_HwQueueSupported(user.HwQueueSupported());
    flags.set_TestContext(user.TestContext());
    flags
}

/// The number of the node that user mode names by its ordinal and by the engine's number.
///
/// # Errors
/// STATUS_INVALID_PARAMETER for one that is not there.
pub(super) fn node_of(device: &Device, node: u32, affinity: u32) -> Result<u32, NTSTATUS> {
    let adapter = device.adapter();
    let caps = adapter.known_caps();
    let engine = adapter.personality().affinity.engine(affinity, caps.engines()).ok_or(INVALID)?;
    caps.node_at(Place { node, engine }).ok_or(INVALID)
}

thunks! {
    /// Devices.
    table THUNKS;

    fn D3DKMTCreateDevice(call, record: D3DKMT_CREATEDEVICE) {
        let gpu_process = super::adapter::adapter(call, record.hAdapter())?;
        // LegacyMode, RequestVSync and DisableGpuTimeout are the flags that there are.
        if record.Flags.bits0 & !0x7 != 0 {
            return Err(INVALID);
        }
        let device = Device::create(&gpu_process)?;
        record.hDevice = call.insert(UserObject::Device(device))?;
        DONE
    }

    fn D3DKMTDestroyDevice(call, record: D3DKMT_DESTROYDEVICE) {
        let device = call.process.device(record.hDevice).ok_or(INVALID)?;
        if device.usable().is_ok() {
            Device::drain(std::slice::from_ref(&device));
        }
        crate::recovery::unheard::judge_at_end(device.adapter());
        call.process.destroy_device(&device);
        DONE
    }

    fn D3DKMTWaitForIdle(call, record: D3DKMT_WAITFORIDLE) {
        let device = device(call, record.hDevice)?;
        call.waiting(|| device.wait_until_idle());
        device.usable()?;
        DONE
    }

    fn D3DKMTGetDeviceState(call, record: D3DKMT_GETDEVICESTATE) {
        use D3DKMT_DEVICESTATE_TYPE as Type;
        let device = call.process.device(record.hDevice).ok_or(INVALID)?;
        match record.StateType {
            Type::D3DKMT_DEVICESTATE_EXECUTION => record.set_ExecutionState(device.state().execution()),
            Type::D3DKMT_DEVICESTATE_RESET => record.ResetState_mut().Value = 0,
            Type::D3DKMT_DEVICESTATE_PAGE_FAULT if device.state() == DeviceState::PageFault => {
                record.set_PageFaultState(device.fault().ok_or(INVALID)?.record());
            }
            _ => return Err(INVALID),
        }
        DONE
    }

    fn D3DKMTCreateContextVirtual(call, record: D3DKMT_CREATECONTEXTVIRTUAL) {
        let device = device(call, record.hDevice)?;
        let caps = device.adapter().known_caps();
        let number = node_of(&device, record.NodeOrdinal, record.EngineAffinity)?;
        let node = caps.node(number).ok_or(INVALID)?;
        if record.Flags.Reserved() != 0 || refuses_tests(device.adapter(), record.Flags.TestContext()) {
            return Err(INVALID);
        }
        let personality = device.adapter().personality();
        let hardware = node.is_hardware_scheduled() && record.Flags.HwQueueSupported();
        let takes = match hardware {
            true => personality.hw_contexts == HwContexts::CreateContext,
            false => !node.is_hardware_scheduled() || personality.packet_contexts_anywhere,
        };
        // Chosen: a driver without virtual addresses has contexts by D3DKMTCreateContext alone, which the model lacks.
        if !takes || !(caps.is_gpu_mmu() || caps.is_io_mmu()) {
            return Err(ntstatus::STATUS_NOT_SUPPORTED);
        }
        let address = record.pPrivateDriverData.expose_provenance();
        let mut private = private(address, record.PrivateDriverDataSize)?;
        let flags = driver_flags(record.Flags);
        let (node, affinity) = (number, record.EngineAffinity);
        let (adapter, bare) = (device.adapter(), record.Flags.TestContext() && private.is_empty());
        let object = if hardware {
            let way = Way::CreateContext(flags);
            let make = || HwContext::create(&device, node, affinity, way, &mut private);
            let context = made(adapter, node, bare, make)?;
            context.commands().set_purpose(record.Flags);
            UserObject::HwContext(context)
        } else {
            let make = || Context::create(&device, node, affinity, &mut private, flags);
            let context = made(adapter, node, bare, make)?;
            context.commands().set_purpose(record.Flags);
            context.enter();
            UserObject::Context(context)
        };
        record.hContext = call.insert(object)?;
        capture::store(address, &private)?;
        DONE
    }

    fn D3DKMTDestroyContext(call, record: D3DKMT_DESTROYCONTEXT) {
        if let Some(context) = call.process.hw_context(record.hContext).filter(|context| context.is_context()) {
            super::queue::destroy_hw_context(call, &context);
            return DONE;
        }
        match call.process.remove(record.hContext, HandleType::Context) {
            Some(UserObject::Context(context)) => {
                context.drain(end_of_wait(context.device().adapter()));
                context.destroy();
                DONE
            }
            _ => Err(INVALID),
        }
    }

    fn D3DKMTSubmitCommand(call, record: D3DKMT_SUBMITCOMMAND) {
        // Source: as of `Commands::may_render`.
        if record.Commands == 0 {
            return Err(ntstatus::STATUS_INVALID_USER_BUFFER);
        }
        let count = record.BroadcastContextCount as usize;
        let handles = record.BroadcastContext.get(..count).filter(|handles| !handles.is_empty()).ok_or(INVALID)?;
        let contexts = handles.iter().map(|handle| call.process.context(*handle).ok_or(INVALID));
        let contexts = contexts.collect::<Result<Vec<_>, _>>()?;
        let private = private(record.pPrivateDriverData.expose_provenance(), record.PrivateDriverDataSize)?;
        for context in &contexts {
            context.device().usable()?;
            let takes = context.takes_commands() && context.commands().may_render();
            if private.len() > context.private_size() || !takes {
                return Err(INVALID);
            }
        }
        for context in contexts {
            let mut submission = submission(record.Commands, record.CommandLength, &private, context.private_size());
            submission.null_rendering = record.Flags.NullRendering();
            if !context.commands().push(Command::Submit(submission)) {
                return Err(ntstatus::STATUS_DEVICE_REMOVED);
            }
            Worker::of(context.device().adapter()).kick(context.device().adapter());
        }
        DONE
    }
}
