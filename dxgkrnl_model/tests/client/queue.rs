//! Contexts, queues and doorbells of a client.

use wddm_abi::ntstatus::STATUS_NOT_SUPPORTED;
use wddm_abi::{
    D3DKMT_CREATE_DOORBELL, D3DKMT_CREATECONTEXTVIRTUAL, D3DKMT_CREATEHWCONTEXT, D3DKMT_CREATEHWQUEUE,
    D3DKMT_DESTROY_DOORBELL, D3DKMT_SIGNALSYNCHRONIZATIONOBJECTFROMGPU, D3DKMT_SIGNALSYNCHRONIZATIONOBJECTFROMGPU2,
    D3DKMT_SUBMITCOMMAND, D3DKMT_SUBMITCOMMANDTOHWQUEUE, D3DKMT_WAITFORSYNCHRONIZATIONOBJECTFROMGPU, NTSTATUS,
};

use super::{Device, Memory, checked, thunk};
use crate::toy::gpu::opcode;

/// A packet context.
#[derive(Clone, Copy, Debug)]
pub struct Context {
    pub handle: u32,
}

/// A hardware queue.
#[derive(Clone, Copy, Debug)]
pub struct Queue {
    pub handle: u32,
    pub progress: u32,
    pub progress_gpu: u64,
}

/// A ring with its doorbell.
#[derive(Debug)]
pub struct Ring {
    queue: Queue,
    pub doorbell: u32,
    ring: Memory,
    control: Memory,
    /// User addresses of the doorbell and of its secondary part, if it has one.
    pub bell: usize,
    pub secondary: usize,
    status: usize,
    queued: usize,
    written: u64,
}

fn word(address: usize) -> *mut u64 {
    core::ptr::with_exposed_provenance_mut(address)
}

impl Device<'_> {
    /// Makes a context on the packet node.
    pub fn context(&self) -> Result<Context, NTSTATUS> {
        let mut record = D3DKMT_CREATECONTEXTVIRTUAL::zeroed();
        record.hDevice = self.handle;
        record.NodeOrdinal = 1;
        record.EngineAffinity = self.affinity;
        checked(thunk!(self.client, D3DKMTCreateContextVirtual(record)))?;
        Ok(Context { handle: record.hContext })
    }

    /// Submits commands at a GPU address to a packet context.
    pub fn submit(&self, context: Context, address: u64, bytes: u32) -> Result<(), NTSTATUS> {
        let mut record = D3DKMT_SUBMITCOMMAND::zeroed();
        record.Commands = address;
        record.CommandLength = bytes;
        record.BroadcastContextCount = 1;
        record.BroadcastContext[0] = context.handle;
        checked(thunk!(self.client, const D3DKMTSubmitCommand(record)))
    }

    /// Lets a packet context signal a fence behind what was submitted.
    pub fn signal_behind(&self, context: Context, fence: u32, value: u64) -> Result<(), NTSTATUS> {
        let mut record = D3DKMT_SIGNALSYNCHRONIZATIONOBJECTFROMGPU::zeroed();
        record.hContext = context.handle;
        record.ObjectCount = 1;
        record.ObjectHandleArray = &raw const fence;
        record.set_MonitoredFenceValueArray(&raw const value);
        checked(thunk!(self.client, const D3DKMTSignalSynchronizationObjectFromGpu(record)))
    }

    /// Lets a context wait for a fence before it does anything else.
    pub fn wait_before(&self, context: Context, fence: u32, value: u64) -> Result<(), NTSTATUS> {
        let mut record = D3DKMT_WAITFORSYNCHRONIZATIONOBJECTFROMGPU::zeroed();
        record.hContext = context.handle;
        record.ObjectCount = 1;
        record.ObjectHandleArray = &raw const fence;
        record.set_MonitoredFenceValueArray(&raw const value);
        checked(thunk!(self.client, const D3DKMTWaitForSynchronizationObjectFromGpu(record)))
    }

    /// Lets several contexts signal a fence.
    pub fn broadcast(&self, contexts: &[u32], fence: u32, value: u64) -> Result<(), NTSTATUS> {
        let mut record = D3DKMT_SIGNALSYNCHRONIZATIONOBJECTFROMGPU2::zeroed();
        record.ObjectCount = 1;
        record.ObjectHandleArray = &raw const fence;
        record.BroadcastContextCount = contexts.len() as u32;
        record.BroadcastContextArray = contexts.as_ptr();
        record.set_MonitoredFenceValueArray(&raw const value);
        checked(thunk!(self.client, const D3DKMTSignalSynchronizationObjectFromGpu2(record)))
    }

    /// Makes a context for hardware queues as Windows 11 does, or by the obsolete call.
    pub fn hw_context(&self) -> Result<Context, NTSTATUS> {
        let mut context = D3DKMT_CREATECONTEXTVIRTUAL::zeroed();
        context.hDevice = self.handle;
        context.EngineAffinity = self.affinity;
        context.Flags.set_HwQueueSupported(true);
        match checked(thunk!(self.client, D3DKMTCreateContextVirtual(context))) {
            Ok(()) => return Ok(Context { handle: context.hContext }),
            Err(STATUS_NOT_SUPPORTED) => (),
            Err(status) => return Err(status),
        }
        let mut context = D3DKMT_CREATEHWCONTEXT::zeroed();
        context.hDevice = self.handle;
        context.EngineAffinity = self.affinity;
        checked(thunk!(self.client, D3DKMTCreateHwContext(context)))?;
        Ok(Context { handle: context.hHwContext })
    }

    /// Makes a hardware context and a queue in it.
    pub fn queue(&self, user_mode: bool) -> Result<Queue, NTSTATUS> {
        let context = self.hw_context()?;
        self.queue_in(context, user_mode)
    }

    /// Makes a queue in a hardware context.
    pub fn queue_in(&self, context: Context, user_mode: bool) -> Result<Queue, NTSTATUS> {
        let mut record = D3DKMT_CREATEHWQUEUE::zeroed();
        record.hHwContext = context.handle;
        record.Flags.set_UserModeSubmission(user_mode);
        checked(thunk!(self.client, D3DKMTCreateHwQueue(record)))?;
        self.mapped()?;
        Ok(Queue {
            handle: record.hHwQueue,
            progress: record.hHwQueueProgressFence,
            progress_gpu: record.HwQueueProgressFenceGPUVirtualAddress,
        })
    }

    /// Submits commands to a kernel-mode queue; its progress fence gets `value` behind them.
    pub fn submit_to_queue(&self, queue: Queue, address: u64, bytes: u32, value: u64) -> Result<(), NTSTATUS> {
        let mut record = D3DKMT_SUBMITCOMMANDTOHWQUEUE::zeroed();
        record.hHwQueue = queue.handle;
        record.HwQueueProgressFenceId = value;
        record.CommandBuffer = address;
        record.CommandLength = bytes;
        checked(thunk!(self.client, const D3DKMTSubmitCommandToHwQueue(record)))
    }

    /// Makes a ring and a connected doorbell for a user-mode queue.
    pub fn ring(&self, queue: Queue) -> Result<Ring, NTSTATUS> {
        let ring = self.ring_apart(queue, false)?;
        self.connect(&ring)?;
        Ok(ring)
    }

    /// Makes a ring and a doorbell that is not connected; `secondary`: with a secondary address.
    pub fn ring_apart(&self, queue: Queue, secondary: bool) -> Result<Ring, NTSTATUS> {
        let (ring, control) = (self.memory(4096, 0)?, self.memory(4096, 0)?);
        let mut private = [ring.gpu, control.gpu];
        let mut record = D3DKMT_CREATE_DOORBELL::zeroed();
        record.hHwQueue = queue.handle;
        record.hRingBuffer = ring.handle;
        record.hRingBufferControl = control.handle;
        record.PrivateDriverDataSize = 16;
        record.PrivateDriverData = (&raw mut private).cast();
        record.Flags.set_RequireSecondaryCpuVA(secondary);
        checked(thunk!(self.client, D3DKMTCreateDoorbell(record)))?;
        Ok(Ring {
            queue,
            doorbell: record.hDoorbell,
            ring,
            control,
            bell: record.DoorbellCPUVirtualAddress.expose_provenance(),
            secondary: record.DoorbellSecondaryCPUVirtualAddress.expose_provenance(),
            status: record.DoorbellStatusCPUVirtualAddress.expose_provenance(),
            queued: record.HwQueueProgressFenceLastQueuedValueCPUVirtualAddress.expose_provenance(),
            written: 0,
        })
    }

    /// Connects a doorbell.
    pub fn connect(&self, ring: &Ring) -> Result<(), NTSTATUS> {
        let mut record = wddm_abi::D3DKMT_CONNECT_DOORBELL::zeroed();
        record.hDoorbell = ring.doorbell;
        checked(thunk!(self.client, D3DKMTConnectDoorbell(record)))
    }

    /// Tells the driver of work.
    pub fn notify(&self, ring: &Ring) -> Result<(), NTSTATUS> {
        let mut record = wddm_abi::D3DKMT_NOTIFY_WORK_SUBMISSION::zeroed();
        record.hDoorbell = ring.doorbell;
        checked(thunk!(self.client, D3DKMTNotifyWorkSubmission(record)))
    }

    /// Destroys a doorbell.
    pub fn destroy_ring(&self, ring: &Ring) -> Result<(), NTSTATUS> {
        let mut record = D3DKMT_DESTROY_DOORBELL::zeroed();
        record.hDoorbell = ring.doorbell;
        checked(thunk!(self.client, D3DKMTDestroyDoorbell(record)))
    }

    /// Submits commands through a ring: the words are stored in `buffer` at `offset`, followed by a signal of the
    /// queue's progress fence. The value that the fence gets.
    pub fn ring_up(&self, ring: &mut Ring, buffer: Memory, offset: usize, commands: &[u64]) -> Result<u64, NTSTATUS> {
        ring.written += 1;
        let value = ring.written;
        let mut words = commands.to_vec();
        words.extend([opcode::SIGNAL, ring.queue.progress_gpu, value, ring.queue.progress.into()]);
        buffer.write(offset, &words);
        let slot = ((value - 1) % 64) as usize * 16;
        ring.ring.write(slot, &[buffer.gpu + offset as u64, words.len() as u64 * 8]);
        // SAFETY: the process's own page.
        unsafe { word(ring.queued).write_volatile(value) };
        ring.control.write(0, &[value]);
        // SAFETY: as above.
        let status = unsafe { word(ring.status).read_volatile() };
        if status >= 2 {
            self.connect(ring)?;
        }
        // SAFETY: as above.
        unsafe { word(ring.bell).write_volatile(value) };
        if status == 1 {
            self.notify(ring)?;
        }
        Ok(value)
    }
}
