//! Flags and handles of what every rung has: devices, contexts, allocations, fences; hardware queues from rung 1 on.

use crate::scenario::db::{Room, denied};
use crate::scenario::{Denied, Played, Raw, Scene, Stage, same};
use anyhow::{Context, Result};
use gpu_wire::private::allocation_kind;
use wddm_abi::ntstatus::STATUS_INVALID_PARAMETER;
use wddm_abi::{
    D3DDDI_CREATECONTEXTFLAGS, D3DKMT_CREATEALLOCATION, D3DKMT_CREATECONTEXTVIRTUAL, D3DKMT_CREATEHWQUEUE,
    D3DKMT_DESTROYALLOCATION2, D3DKMT_DESTROYCONTEXT, D3DKMT_DESTROYHWQUEUE, D3DKMT_HANDLE,
    D3DKMT_SIGNALSYNCHRONIZATIONOBJECTFROMCPU, D3DKMT_SUBMITCOMMANDTOHWQUEUE,
    D3DKMT_WAITFORSYNCHRONIZATIONOBJECTFROMCPU,
};

/// Handles of a process.
#[derive(Clone, Copy)]
pub(super) struct Handles {
    device: D3DKMT_HANDLE,
    context: D3DKMT_HANDLE,
    allocation: D3DKMT_HANDLE,
    fence: D3DKMT_HANDLE,
    /// A kernel-mode queue; 0 below rung 1.
    queue: D3DKMT_HANDLE,
}

impl Handles {
    /// Makes one of each kind on a device.
    pub fn new(stage: &Stage, room: &Room<'_>) -> Result<Self> {
        let has_queues = stage.rung() >= 1;
        // Node 2 takes packets on every rung.
        let context = room.context_with(2, D3DDDI_CREATECONTEXTFLAGS::zeroed()).context("a context")?;
        Ok(Self {
            device: room.device,
            context,
            allocation: room.create(allocation_kind::SYSTEM, 4096).context("an allocation")?,
            fence: room.raw.monitored_fence(room.device, 0, false).context("a fence")?.handle,
            queue: if has_queues { room.queue(0, false).context("a queue")?.handle } else { 0 },
        })
    }

    /// Returns the allocation's handle.
    pub fn allocation(self) -> D3DKMT_HANDLE {
        self.allocation
    }

    /// The same handles, each in the place of another type.
    pub fn turned(self) -> [Self; 2] {
        let Self { device, context, allocation, fence, queue } = self;
        let once = Self { device: context, context: allocation, allocation: fence, fence: device, queue: device };
        let other = Self { device: fence, context: device, allocation: context, fence: allocation, queue };
        // A queue is none of the others either.
        [once, if queue == 0 { other } else { Self { device: queue, context: queue, queue: fence, ..other } }]
    }

    /// Every use of these handles is refused, and the driver is called for none.
    pub fn are_unusable(self, scene: &Scene, raw: &Raw) -> Played {
        let Self { device, context, allocation, fence, queue } = self;
        let before = reached(scene);
        let refused = |what: &str, result: Result<(), Denied>| denied(what, result, STATUS_INVALID_PARAMETER);
        refused("a fence on the device", raw.monitored_fence(device, 0, false).map(|_| ()))?;
        let mut record = D3DKMT_CREATECONTEXTVIRTUAL::zeroed();
        (record.hDevice, record.NodeOrdinal) = (device, 2);
        refused("a context on the device", raw.ok(raw.thunks.D3DKMTCreateContextVirtual, &mut record))?;
        refused("waiting on the device", raw.wait_cpu(device, &[(fence, 0)], false, None))?;
        refused("signaling on the device", raw.signal_cpu(device, &[(fence, 1)]))?;
        let mut record = D3DKMT_DESTROYALLOCATION2::zeroed();
        (record.hDevice, record.AllocationCount, record.phAllocationList) = (device, 1, &raw const allocation);
        refused("destroying the allocation", raw.ok(raw.thunks.D3DKMTDestroyAllocation2, &mut record))?;
        refused("destroying the fence", raw.destroy_fence(fence))?;
        let mut record = D3DKMT_CREATEHWQUEUE::zeroed();
        record.hHwContext = context;
        refused("a queue in the context", raw.ok(raw.thunks.D3DKMTCreateHwQueue, &mut record))?;
        let mut record = D3DKMT_SUBMITCOMMANDTOHWQUEUE::zeroed();
        (record.hHwQueue, record.HwQueueProgressFenceId) = (queue, 1);
        refused("a submission", raw.ok(raw.thunks.D3DKMTSubmitCommandToHwQueue, &mut record))?;
        let mut record = D3DKMT_DESTROYHWQUEUE::zeroed();
        record.hHwQueue = queue;
        refused("destroying the queue", raw.ok(raw.thunks.D3DKMTDestroyHwQueue, &mut record))?;
        let mut record = D3DKMT_DESTROYCONTEXT { hContext: context };
        refused("destroying the context", raw.ok(raw.thunks.D3DKMTDestroyContext, &mut record))?;
        refused("destroying the device", raw.destroy_device(device))?;
        same("calls of the driver", reached(scene), before)
    }

    /// Destroys everything, each once, and what is refused the second time is what is gone.
    pub fn destroy(self, raw: &Raw) -> Played {
        let Self { device, context, allocation, fence, queue } = self;
        let twice = |what: &str, destroy: &dyn Fn() -> Result<(), Denied>| -> Played {
            destroy().with_context(|| what.to_owned())?;
            denied(&format!("{what}, again"), destroy(), STATUS_INVALID_PARAMETER)
        };
        if queue != 0 {
            twice("the queue", &|| {
                let mut record = D3DKMT_DESTROYHWQUEUE::zeroed();
                record.hHwQueue = queue;
                raw.ok(raw.thunks.D3DKMTDestroyHwQueue, &mut record)
            })?;
        }
        twice("the context", &|| {
            raw.ok(raw.thunks.D3DKMTDestroyContext, &mut D3DKMT_DESTROYCONTEXT { hContext: context })
        })?;
        twice("the fence", &|| raw.destroy_fence(fence))?;
        twice("the allocation", &|| {
            let mut record = D3DKMT_DESTROYALLOCATION2::zeroed();
            (record.hDevice, record.AllocationCount, record.phAllocationList) = (device, 1, &raw const allocation);
            raw.ok(raw.thunks.D3DKMTDestroyAllocation2, &mut record)
        })?;
        twice("the device", &|| raw.destroy_device(device))
    }
}

/// What the driver's functions behind these calls have counted.
fn reached(scene: &Scene) -> u64 {
    let objects = ["Device", "Context", "HwContext", "HwQueue", "Allocation"];
    let of =
        |object: &str| scene.calls(&format!("DxgkDdiCreate{object}")) + scene.calls(&format!("DxgkDdiDestroy{object}"));
    objects.into_iter().map(of).sum::<u64>() + scene.calls("DxgkDdiSubmitCommandToHwQueue")
}

/// Each reserved bit of each flag word that every rung has.
pub(super) fn flags(scene: &Scene, raw: &Raw, room: &Room<'_>) -> Played {
    let t = raw.thunks;
    let fence = raw.monitored_fence(room.device, 0, false).context("a fence")?.handle;
    let before = reached(scene);
    let refused = |what: &str, bit: u32, status| same(&format!("{what}, bit {bit}"), status, STATUS_INVALID_PARAMETER);
    for bit in 0..32 {
        let (handle, value) = (fence, 1);
        let mut signal = D3DKMT_SIGNALSYNCHRONIZATIONOBJECTFROMCPU::zeroed();
        (signal.hDevice, signal.ObjectCount) = (room.device, 1);
        (signal.ObjectHandleArray, signal.FenceValueArray) = (&raw const handle, &raw const value);
        signal.Flags.Value = 1 << bit;
        if !signal.Flags.AllowFenceRewind() {
            refused("D3DKMT_SIGNAL…FROMCPU", bit, raw.call(t.D3DKMTSignalSynchronizationObjectFromCpu, &mut signal))?;
        }
        let mut wait = D3DKMT_WAITFORSYNCHRONIZATIONOBJECTFROMCPU::zeroed();
        (wait.hDevice, wait.ObjectCount) = (room.device, 1);
        (wait.ObjectHandleArray, wait.FenceValueArray) = (&raw const handle, &raw const value);
        wait.Flags.Value = 1 << bit;
        if wait.Flags.Reserved() != 0 {
            refused("D3DKMT_WAIT…FROMCPU", bit, raw.call(t.D3DKMTWaitForSynchronizationObjectFromCpu, &mut wait))?;
        }
        let mut context = D3DKMT_CREATECONTEXTVIRTUAL::zeroed();
        (context.hDevice, context.NodeOrdinal) = (room.device, 2);
        context.Flags.Value = 1 << bit;
        if context.Flags.Reserved() != 0 {
            refused("D3DKMT_CREATECONTEXTVIRTUAL", bit, raw.call(t.D3DKMTCreateContextVirtual, &mut context))?;
        }
        let mut memory = D3DKMT_CREATEALLOCATION::zeroed();
        (memory.hDevice, memory.NumAllocations) = (room.device, 1);
        memory.Flags.bits0 = 1 << bit;
        if memory.Flags.Reserved() != 0 {
            refused("D3DKMT_CREATEALLOCATION", bit, raw.call(t.D3DKMTCreateAllocation2, &mut memory))?;
        }
    }
    same("calls of the driver", reached(scene), before)?;
    same("the fence", raw.wait_cpu(room.device, &[(fence, 0)], false, None).is_ok(), true)
}

/// Each reserved bit of a hardware queue's flags.
pub(super) fn queue_flags(scene: &Scene, raw: &Raw, room: &Room<'_>) -> Played {
    let context = room.context(0).context("a context")?;
    let before = reached(scene);
    for bit in 0..32 {
        let mut record = D3DKMT_CREATEHWQUEUE::zeroed();
        record.hHwContext = context;
        record.Flags.Value = 1 << bit;
        if record.Flags.Reserved() != 0 {
            let status = raw.call(raw.thunks.D3DKMTCreateHwQueue, &mut record);
            same(&format!("D3DKMT_CREATEHWQUEUE, bit {bit}"), status, STATUS_INVALID_PARAMETER)?;
        }
    }
    same("calls of the driver", reached(scene), before)
}
