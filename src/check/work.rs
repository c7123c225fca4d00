//! Work for a node that is not to be executed, which any driver can take: it needs nothing of the driver's own.

use super::Reach;
use super::run::Run;
use crate::scenario::Raw;
use anyhow::{Result, ensure};
use wddm_abi::{
    D3DDDI_CREATECONTEXTFLAGS, D3DKMT_CREATECONTEXTVIRTUAL, D3DKMT_CREATEHWQUEUE, D3DKMT_DEVICEEXECUTION_STATE,
    D3DKMT_HANDLE, D3DKMT_SIGNALSYNCHRONIZATIONOBJECTFROMGPU, D3DKMT_SUBMITCOMMAND, D3DKMT_SUBMITCOMMANDTOHWQUEUE,
};

/// Where a command buffer is said to be that is not to be executed. Nothing is mapped there.
const NOWHERE: u64 = 0x7000_0000_0000;
/// The length that it is said to have, in bytes.
const LENGTH: u32 = 64;

/// Where what was done, in words, and what was reached are noted.
pub(super) struct Notes<'a> {
    pub run: &'a Run,
    /// What is said of the process.
    pub round: &'static str,
}

impl Notes<'_> {
    /// Notes a step. Returns what it gave.
    pub fn tell<T>(&self, what: &str, result: Result<T>) -> Option<T> {
        let said = result.as_ref().err().map_or_else(|| "done".to_owned(), |error| format!("{error:#}"));
        self.say(what, &said);
        result.ok()
    }

    /// Notes a step that has failed. `None`: it has.
    pub fn tell_failure(&self, what: &str, result: Result<()>) -> Option<()> {
        if result.is_ok() { Some(()) } else { self.tell(what, result) }
    }

    /// Notes what came of a step.
    pub fn say(&self, what: &str, said: &str) {
        self.run.seen().steps.push(format!("{} process, {what}: {said}", self.round));
    }

    pub fn reach(&self, what: Reach) {
        self.run.seen().reach(what);
    }

    /// Notes that something was not reached, and why.
    pub fn lack(&self, what: Reach, why: &str) {
        self.run.seen().lacks.push((what, why.to_owned()));
    }
}

/// How work gets to a node.
enum Way {
    /// To a packet node by a context. A monitored fence tells the end; the value is the one that was signaled last.
    Packets { context: D3DKMT_HANDLE, fence: Option<(D3DKMT_HANDLE, u64)> },
    /// To a hardware queue, with its progress fence, and the value that was queued last.
    Queue { queue: D3DKMT_HANDLE, progress: D3DKMT_HANDLE, last: u64 },
}

/// Work of a process for a node.
pub(super) struct Work<'a> {
    raw: &'a Raw,
    device: D3DKMT_HANDLE,
    way: Way,
}

impl<'a> Work<'a> {
    /// Makes a context on a node, and where that is scheduled in hardware a queue. `fence`: a monitored fence, and its
    /// value, for packets.
    pub fn begin(
        raw: &'a Raw,
        device: D3DKMT_HANDLE,
        node: u32,
        in_hardware: bool,
        fence: Option<(D3DKMT_HANDLE, u64)>,
        notes: &Notes<'_>,
    ) -> Option<Self> {
        let context = context(raw, device, node, in_hardware, notes)?;
        if !in_hardware {
            return Some(Self { raw, device, way: Way::Packets { context, fence } });
        }
        let create = |tests: bool| {
            let mut record = D3DKMT_CREATEHWQUEUE::zeroed();
            record.hHwContext = context;
            record.Flags.set_TestQueue(tests);
            raw.ok(raw.thunks.D3DKMTCreateHwQueue, &mut record).map(|()| record)
        };
        let queue = create(true).or_else(|_| create(false)).map_err(Into::into);
        let queue = notes.tell("create a hardware queue", queue)?;
        let way = Way::Queue { queue: queue.hHwQueue, progress: queue.hHwQueueProgressFence, last: 0 };
        Some(Self { raw, device, way })
    }

    /// Submits a command buffer that the driver completes without a look at it.
    ///
    /// Source: DXGK_SUBMITCOMMANDFLAGS, NullRendering.
    pub fn submit(&mut self) -> Result<()> {
        let raw = self.raw;
        match &mut self.way {
            Way::Packets { context, .. } => {
                let mut record = D3DKMT_SUBMITCOMMAND::zeroed();
                (record.Commands, record.CommandLength, record.BroadcastContextCount) = (NOWHERE, LENGTH, 1);
                record.BroadcastContext[0] = *context;
                record.Flags.set_NullRendering(true);
                Ok(raw.ok(raw.thunks.D3DKMTSubmitCommand, &mut record)?)
            }
            Way::Queue { queue, last, .. } => {
                let mut record = D3DKMT_SUBMITCOMMANDTOHWQUEUE::zeroed();
                (record.hHwQueue, record.HwQueueProgressFenceId) = (*queue, *last + 1);
                (record.CommandBuffer, record.CommandLength) = (NOWHERE, LENGTH);
                raw.ok(raw.thunks.D3DKMTSubmitCommandToHwQueue, &mut record)?;
                *last += 1;
                Ok(())
            }
        }
    }

    /// Waits for the end of all that was submitted. Returns whether something tells it.
    pub fn end(&mut self, notes: &Notes<'_>) -> Result<bool> {
        let (raw, device) = (self.raw, self.device);
        match &mut self.way {
            Way::Packets { fence: None, .. } => Ok(false),
            Way::Packets { context, fence: Some((fence, value)) } => {
                let next = *value + 1;
                let mut signal = D3DKMT_SIGNALSYNCHRONIZATIONOBJECTFROMGPU::zeroed();
                (signal.hContext, signal.ObjectCount) = (*context, 1);
                signal.ObjectHandleArray = &raw const *fence;
                signal.set_MonitoredFenceValueArray(&raw const next);
                raw.ok(raw.thunks.D3DKMTSignalSynchronizationObjectFromGpu, &mut signal)?;
                *value = next;
                waited(notes, raw, device, *fence, next).map(|()| true)
            }
            Way::Queue { progress, last, .. } => waited(notes, raw, device, *progress, *last).map(|()| true),
        }
    }

    /// Submits so many command buffers, and waits for their end. Returns whether they have ended.
    pub fn is_done(&mut self, count: u32, notes: &Notes<'_>) -> bool {
        let submitted = (0..count).try_for_each(|_| self.submit());
        if notes.tell("submit a command buffer that is not to be executed", submitted).is_none() {
            return false;
        }
        match self.end(notes) {
            Ok(false) => false,
            ended => notes.tell("wait for its end", ended).is_some(),
        }
    }
}

/// Makes a context on a node with NullRendering, for tests where the driver knows such contexts.
///
/// Source: *Kernel-mode testing of WDDM features*; D3DDDI_CREATECONTEXTFLAGS, NullRendering.
fn context(raw: &Raw, device: D3DKMT_HANDLE, node: u32, queues: bool, notes: &Notes<'_>) -> Option<D3DKMT_HANDLE> {
    let create = |tests: bool| {
        let mut record = D3DKMT_CREATECONTEXTVIRTUAL::zeroed();
        (record.hDevice, record.NodeOrdinal, record.EngineAffinity) = (device, node, 1);
        let flags = D3DDDI_CREATECONTEXTFLAGS::zeroed().with_TestContext(tests).with_NullRendering(true);
        record.Flags = flags.with_HwQueueSupported(queues);
        raw.ok(raw.thunks.D3DKMTCreateContextVirtual, &mut record).map(|()| record.hContext)
    };
    let context = create(true).or_else(|_| create(false)).map_err(Into::into);
    let context = notes.tell(&format!("create a context on node {node}"), context)?;
    notes.reach(Reach::Context);
    Some(context)
}

/// Waits until a fence has a value, for a device that goes on, as long as the driver may take for it.
///
/// # Errors
/// When it has not, or the device is in error.
pub(super) fn waited(
    notes: &Notes<'_>,
    raw: &Raw,
    device: D3DKMT_HANDLE,
    fence: D3DKMT_HANDLE,
    value: u64,
) -> Result<()> {
    let (event, handle) = raw.event();
    raw.wait_cpu(device, &[(fence, value)], false, Some(handle))?;
    let limit = notes.run.deadline();
    let ended = raw.wait_event(&event, limit);
    raw.close(handle);
    ensure!(ended, "it has not ended within {limit:?}");
    let state = raw.execution_state(device)?;
    let active = D3DKMT_DEVICEEXECUTION_STATE::D3DKMT_DEVICEEXECUTION_ACTIVE;
    ensure!(state == active, "the device's state is {state:?}");
    Ok(())
}
