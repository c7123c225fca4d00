//! What a test of the kernel-mode testing feature does: contexts, queues, command buffers and memory without a
//! user-mode driver.

use dxgkrnl_model::personality::Build;
use wddm_abi::ntstatus::STATUS_BUFFER_OVERFLOW;
use wddm_abi::{
    D3DDDI_ALLOCATIONINFO2, D3DDDI_BUILDTESTCOMMANDBUFFERFLAGS, D3DDDI_DRIVERESCAPE_BUILDTESTCOMMANDBUFFER,
    D3DDDI_DRIVERESCAPETYPE, D3DDDI_TESTCOMMANDBUFFER, D3DKMT_CREATEALLOCATION, D3DKMT_CREATECONTEXTVIRTUAL,
    D3DKMT_CREATEHWQUEUE, D3DKMT_CREATESTANDARDALLOCATION, D3DKMT_DESTROYCONTEXT, D3DKMT_ESCAPE, D3DKMT_ESCAPETYPE,
    D3DKMT_STANDARDALLOCATIONTYPE, D3DKMT_SUBMITCOMMAND, NTSTATUS,
};

use super::queue::{Context, Queue};
use super::{Device, checked, thunk};

/// A command buffer, and its private data.
#[derive(Clone, Debug)]
pub struct Built {
    pub buffer: Vec<u8>,
    pub private: Vec<u8>,
}

/// The escape, with what the 28000 line's has behind it: value and address of a progress fence.
#[repr(C)]
struct Escape {
    wanted: D3DDDI_DRIVERESCAPE_BUILDTESTCOMMANDBUFFER,
    newer: [u64; 2],
}

impl Device<'_> {
    /// Makes a context for tests.
    pub fn test_context(&self, node: u32, for_queues: bool) -> Result<Context, NTSTATUS> {
        let mut record = D3DKMT_CREATECONTEXTVIRTUAL::zeroed();
        (record.hDevice, record.NodeOrdinal, record.EngineAffinity) = (self.handle, node, 1);
        record.Flags.set_TestContext(true);
        record.Flags.set_HwQueueSupported(for_queues);
        checked(thunk!(self.client, D3DKMTCreateContextVirtual(record)))?;
        Ok(Context { handle: record.hContext })
    }

    /// Destroys a context.
    pub fn destroy_context(&self, context: Context) -> Result<(), NTSTATUS> {
        let mut record = D3DKMT_DESTROYCONTEXT::zeroed();
        record.hContext = context.handle;
        checked(thunk!(self.client, const D3DKMTDestroyContext(record)))
    }

    /// Makes a hardware queue for tests.
    pub fn test_queue(&self, context: Context) -> Result<Queue, NTSTATUS> {
        let mut record = D3DKMT_CREATEHWQUEUE::zeroed();
        record.hHwContext = context.handle;
        record.Flags.set_TestQueue(true);
        checked(thunk!(self.client, D3DKMTCreateHwQueue(record)))?;
        self.mapped()?;
        Ok(Queue {
            handle: record.hHwQueue,
            progress: record.hHwQueueProgressFence,
            progress_gpu: record.HwQueueProgressFenceGPUVirtualAddress,
        })
    }

    /// Asks for a command buffer in so much room; the status, what was stored, and both sizes.
    pub fn build_in(
        &self,
        (target, is_queue): (u32, bool),
        command: &D3DDDI_TESTCOMMANDBUFFER,
        room: (usize, usize),
    ) -> (NTSTATUS, Built, (u32, u32)) {
        let mut built = Built { buffer: vec![0; room.0], private: vec![0; room.1] };
        let mut escape = Escape { wanted: D3DDDI_DRIVERESCAPE_BUILDTESTCOMMANDBUFFER::zeroed(), newer: [0; 2] };
        let wanted = &mut escape.wanted;
        wanted.EscapeType = D3DDDI_DRIVERESCAPETYPE::D3DDDI_DRIVERESCAPETYPE_BUILDTESTCOMMANDBUFFER;
        (wanted.hDevice, wanted.hContext, wanted.Command) = (self.handle, target, *command);
        wanted.Flags = D3DDDI_BUILDTESTCOMMANDBUFFERFLAGS::zeroed().with_HardwareQueue(is_queue);
        if room.0 != 0 {
            wanted.pDmaBuffer = built.buffer.as_mut_ptr().cast();
        }
        if room.1 != 0 {
            wanted.pDmaBufferPrivateData = built.private.as_mut_ptr().cast();
        }
        (wanted.DmaBufferSize, wanted.DmaBufferPrivateDataSize) = (room.0 as u32, room.1 as u32);
        let is_newer = self.client.os.personality().build == Build::W28000;
        let mut record = D3DKMT_ESCAPE::zeroed();
        record.hAdapter = self.client.adapter;
        record.Type = D3DKMT_ESCAPETYPE::D3DKMT_ESCAPE_DRIVERPRIVATE;
        record.Flags.set_DriverKnownEscape(true);
        record.PrivateDriverDataSize = size_of_val(&escape.wanted) as u32;
        if is_newer {
            record.PrivateDriverDataSize = size_of_val(&escape) as u32;
        }
        record.pPrivateDriverData = (&raw mut escape).cast();
        let status = thunk!(self.client, const D3DKMTEscape(record));
        (status, built, (escape.wanted.DmaBufferSize, escape.wanted.DmaBufferPrivateDataSize))
    }

    /// Has a command built in buffers of the sizes that the driver asks for.
    pub fn build(&self, target: (u32, bool), command: &D3DDDI_TESTCOMMANDBUFFER) -> Result<Built, NTSTATUS> {
        let (status, _, (size, private)) = self.build_in(target, command, (0, 0));
        if status != STATUS_BUFFER_OVERFLOW {
            return Err(status);
        }
        let (status, built, _) = self.build_in(target, command, (size as usize, private as usize));
        checked(status).map(|()| built)
    }

    /// Submits a built buffer, which lies at a GPU address, to a packet context.
    pub fn submit_built(&self, context: Context, address: u64, built: &Built) -> Result<(), NTSTATUS> {
        let mut record = D3DKMT_SUBMITCOMMAND::zeroed();
        (record.Commands, record.CommandLength) = (address, built.buffer.len() as u32);
        (record.BroadcastContextCount, record.BroadcastContext[0]) = (1, context.handle);
        record.pPrivateDriverData = built.private.as_ptr().cast_mut().cast();
        record.PrivateDriverDataSize = built.private.len() as u32;
        checked(thunk!(self.client, const D3DKMTSubmitCommand(record)))
    }

    /// Makes memory that the driver knows nothing of: its handle.
    pub fn standard_memory(&self, bytes: usize) -> Result<u32, NTSTATUS> {
        let mut standard = D3DKMT_CREATESTANDARDALLOCATION::zeroed();
        standard.Type = D3DKMT_STANDARDALLOCATIONTYPE::D3DKMT_STANDARDALLOCATIONTYPE_INTERNALBACKINGSTORE;
        standard.ExistingHeapData_mut().Size = bytes as _;
        let mut info = D3DDDI_ALLOCATIONINFO2::zeroed();
        let mut record = D3DKMT_CREATEALLOCATION::zeroed();
        record.hDevice = self.handle;
        record.Flags.set_StandardAllocation(true);
        record.set_pStandardAllocation(&raw mut standard);
        record.NumAllocations = 1;
        record.set_pAllocationInfo2(&raw mut info);
        checked(thunk!(self.client, D3DKMTCreateAllocation2(record)))?;
        Ok(info.hAllocation)
    }
}
