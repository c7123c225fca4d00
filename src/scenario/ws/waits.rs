//! Waits and signals that the OS carries out for a queue.

use crate::scenario::{Denied, Raw};
use wddm_abi::{
    D3DKMT_HANDLE, D3DKMT_SIGNALSYNCHRONIZATIONOBJECTFROMGPU, D3DKMT_SUBMITSIGNALSYNCOBJECTSTOHWQUEUE,
    D3DKMT_SUBMITWAITFORSYNCOBJECTSTOHWQUEUE, D3DKMT_WAITFORSYNCHRONIZATIONOBJECTFROMGPU,
};

impl Raw {
    /// `D3DKMTSubmitWaitForSyncObjectsToHwQueue` for one fence.
    ///
    /// # Errors
    /// The function's status.
    pub fn queue_wait(&self, queue: D3DKMT_HANDLE, fence: D3DKMT_HANDLE, value: u64) -> Result<(), Denied> {
        let mut record = D3DKMT_SUBMITWAITFORSYNCOBJECTSTOHWQUEUE::zeroed();
        record.hHwQueue = queue;
        record.ObjectCount = 1;
        record.ObjectHandleArray = &raw const fence;
        record.FenceValueArray = &raw const value;
        self.ok(self.thunks.D3DKMTSubmitWaitForSyncObjectsToHwQueue, &mut record)
    }

    /// `D3DKMTSubmitSignalSyncObjectsToHwQueue` for one fence.
    ///
    /// # Errors
    /// The function's status.
    pub fn queue_signal(&self, queue: D3DKMT_HANDLE, fence: D3DKMT_HANDLE, value: u64) -> Result<(), Denied> {
        let mut record = D3DKMT_SUBMITSIGNALSYNCOBJECTSTOHWQUEUE::zeroed();
        record.BroadcastHwQueueCount = 1;
        record.BroadcastHwQueueArray = &raw const queue;
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
