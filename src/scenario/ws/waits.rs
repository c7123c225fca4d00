//! Waits and signals that the OS carries out for a queue.

use crate::scenario::{Denied, Raw};
use wddm_abi::{
    D3DDDICB_SIGNALFLAGS, D3DKMT_HANDLE, D3DKMT_SIGNALSYNCHRONIZATIONOBJECTFROMGPU,
    D3DKMT_SUBMITSIGNALSYNCOBJECTSTOHWQUEUE, D3DKMT_SUBMITWAITFORSYNCOBJECTSTOHWQUEUE,
    D3DKMT_WAITFORSYNCHRONIZATIONOBJECTFROMGPU,
};

impl Raw {
    /// `D3DKMTSubmitWaitForSyncObjectsToHwQueue` for one fence.
    ///
    /// # Errors
    /// The function's status.
    pub fn queue_wait(&self, queue: D3DKMT_HANDLE, fence: D3DKMT_HANDLE, value: u64) -> Result<(), Denied> {
        self.queue_waits(queue, &[(fence, value)])
    }

    /// `D3DKMTSubmitWaitForSyncObjectsToHwQueue` for fences and their values.
    ///
    /// # Errors
    /// The function's status.
    pub fn queue_waits(&self, queue: D3DKMT_HANDLE, fences: &[(D3DKMT_HANDLE, u64)]) -> Result<(), Denied> {
        let (handles, values): (Vec<_>, Vec<_>) = fences.iter().copied().unzip();
        let mut record = D3DKMT_SUBMITWAITFORSYNCOBJECTSTOHWQUEUE::zeroed();
        record.hHwQueue = queue;
        // CAST: tens.
        record.ObjectCount = handles.len() as u32;
        (record.ObjectHandleArray, record.FenceValueArray) = (handles.as_ptr(), values.as_ptr());
        self.ok(self.thunks.D3DKMTSubmitWaitForSyncObjectsToHwQueue, &mut record)
    }

    /// `D3DKMTSubmitSignalSyncObjectsToHwQueue` for one fence.
    ///
    /// # Errors
    /// The function's status.
    pub fn queue_signal(&self, queue: D3DKMT_HANDLE, fence: D3DKMT_HANDLE, value: u64) -> Result<(), Denied> {
        self.queues_signal(&[queue], D3DDDICB_SIGNALFLAGS::zeroed(), (fence, value))
    }

    /// `D3DKMTSubmitSignalSyncObjectsToHwQueue` on several queues, for one fence and its value.
    ///
    /// # Errors
    /// The function's status.
    pub fn queues_signal(
        &self,
        queues: &[D3DKMT_HANDLE],
        flags: D3DDDICB_SIGNALFLAGS,
        (fence, value): (D3DKMT_HANDLE, u64),
    ) -> Result<(), Denied> {
        let mut record = D3DKMT_SUBMITSIGNALSYNCOBJECTSTOHWQUEUE::zeroed();
        record.Flags = flags;
        // CAST: tens.
        record.BroadcastHwQueueCount = queues.len() as u32;
        record.BroadcastHwQueueArray = queues.as_ptr();
        record.ObjectCount = 1;
        record.ObjectHandleArray = &raw const fence;
        record.FenceValueArray = &raw const value;
        self.ok(self.thunks.D3DKMTSubmitSignalSyncObjectsToHwQueue, &mut record)
    }

    /// `D3DKMTWaitForSynchronizationObjectFromGpu` for one fence.
    ///
    /// # Errors
    /// The function's status.
    pub fn context_wait(&self, context: D3DKMT_HANDLE, fence: D3DKMT_HANDLE, value: u64) -> Result<(), Denied> {
        let mut record = D3DKMT_WAITFORSYNCHRONIZATIONOBJECTFROMGPU::zeroed();
        record.hContext = context;
        record.ObjectCount = 1;
        record.ObjectHandleArray = &raw const fence;
        record.set_MonitoredFenceValueArray(&raw const value);
        self.ok(self.thunks.D3DKMTWaitForSynchronizationObjectFromGpu, &mut record)
    }

    /// `D3DKMTSignalSynchronizationObjectFromGpu` for one fence.
    ///
    /// # Errors
    /// The function's status.
    pub fn context_signal(&self, context: D3DKMT_HANDLE, fence: D3DKMT_HANDLE, value: u64) -> Result<(), Denied> {
        let mut record = D3DKMT_SIGNALSYNCHRONIZATIONOBJECTFROMGPU::zeroed();
        record.hContext = context;
        record.ObjectCount = 1;
        record.ObjectHandleArray = &raw const fence;
        record.set_MonitoredFenceValueArray(&raw const value);
        self.ok(self.thunks.D3DKMTSignalSynchronizationObjectFromGpu, &mut record)
    }
}
