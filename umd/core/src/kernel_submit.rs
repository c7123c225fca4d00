//! Submission through the kernel, for the rungs below user-mode submission and for queues that want it: the same
//! command lists, cut where a command buffer has to end.
//!
//! | path | a command buffer | a wait for a fence | a signal of one, if in software | progress |
//! |---|---|---|---|---|
//! | hardware queue | `D3DKMTSubmitCommandToHwQueue` | `D3DKMTSubmitWaitForSyncObjectsToHwQueue` | `D3DKMTSubmitSignalSyncObjectsToHwQueue` | the queue's progress fence |
//! | packet context | `D3DKMTSubmitCommand` | `D3DKMTWaitForSynchronizationObjectFromGpu` | `D3DKMTSignalSynchronizationObjectFromGpu` | a monitored fence of our own |
//!
//! Signals are in software on nodes whose engines cannot write monitored fences; everywhere else they are packets, and
//! cut nothing. There the fence that counts for a packet context is signaled in software, too.
//!
//! An INDIRECT packet ends a command buffer, too: inside one there is no way back (SPEC §5). The buffer that it names
//! is submitted by itself and does not write the progress fence. A command buffer that does is made before it is
//! submitted, and submitted right behind it: a progress value that is not written would look like a buffer that hangs.
//!
//! The OS waits for native fences here, too. Source: *Native GPU fence object*: for kernel-mode queues such waits are
//! software commands of Dxgkrnl's. A buffer that waited on the GPU would be judged as one that makes no progress.
//!
//! Assumes:
//! - Submissions to one queue or context execute in order. Source: *Context monitoring*;
//!   `D3DKMT_SUBMITCOMMANDTOHWQUEUE`.
//! - `HwQueueProgressFenceId` may be one that a later submission signals: the fence then jumps over it. Source: none;
//!   the fence is monotonic, and OS and waiters compare with "at least".
//! - No private driver data is needed, and no allocation is listed: everything is resident. Source:
//!   `D3DKMTSubmitCommand`, Remarks.
#![forbid(unsafe_code)]

use crate::command_list::{CommandList, Cut, LogCounts, Tail};
use crate::command_pool::{CommandBuffer, CommandPool, Full};
use crate::context::PacketContext;
use crate::device::Device;
use crate::error::{UmdError, Unsupported};
use crate::hw_queue::{self, HwQueue, ProgressFence};
use crate::monitored_fence::MonitoredFence;
use crate::mutation::Mutation;
use crate::submit::{Submitted, Turn};
use crate::thunks::{Padded, Thunks};
use crate::wait::{self, Timeout};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::DerefMut;
use gpu_wire::NodeOrdinal;
use wddm_abi::{
    D3DKMT_HANDLE, D3DKMT_SIGNALSYNCHRONIZATIONOBJECTFROMGPU, D3DKMT_SUBMITCOMMAND, D3DKMT_SUBMITCOMMANDTOHWQUEUE,
    D3DKMT_SUBMITSIGNALSYNCOBJECTSTOHWQUEUE, D3DKMT_SUBMITWAITFORSYNCOBJECTSTOHWQUEUE,
    D3DKMT_WAITFORSYNCHRONIZATIONOBJECTFROMGPU,
};

/// What command buffers are submitted to.
pub(crate) enum Target<T: Thunks> {
    /// A hardware queue.
    Queue(Arc<HwQueue<T>>),
    /// A packet context, and the fence that counts for it.
    Context(PacketContext<T>, Arc<MonitoredFence<T>>),
}

/// A part of a list, as it is submitted.
enum Step {
    /// A command buffer, from and to offsets of the list.
    Piece { from: u64, to: u64 },
    /// The OS waits.
    Wait { handle: D3DKMT_HANDLE, value: u64 },
    /// The OS signals.
    Signal { handle: D3DKMT_HANDLE, value: u64 },
    /// A command buffer of the client's own, whose packet ended at this offset of the list.
    Indirect { buffer: CommandBuffer, at: u64 },
}

/// A command buffer in the pool.
struct Piece {
    progress: u64,
    /// `None` where the OS signals the progress fence and nothing else is to be done.
    buffer: Option<CommandBuffer>,
    logs: LogCounts,
    tail_logs: u64,
}

/// A queue whose work goes through the kernel.
pub(crate) struct KernelLane<T: Thunks> {
    // Drop order: queue or context before the command buffers that it may be reading.
    pub target: Target<T>,
    pool: CommandPool<T>,
    device: Arc<Device<T>>,
    /// Signals of monitored fences are the OS's.
    software: bool,
    /// Empty between submissions; kept so that they allocate nothing.
    steps: Vec<Step>,
}

impl<T: Thunks> KernelLane<T> {
    /// A hardware queue with a pool of `pool_size` bytes of command buffers.
    ///
    /// # Errors
    /// Those of the parts.
    pub fn create_queue(device: &Arc<Device<T>>, create: hw_queue::Create, pool_size: u64) -> Result<Self, UmdError> {
        let target = Target::Queue(Arc::new(HwQueue::create(device, create)?));
        Self::create(device, target, create.node, pool_size)
    }

    fn create(device: &Arc<Device<T>>, target: Target<T>, node: NodeOrdinal, pool_size: u64) -> Result<Self, UmdError> {
        let software =
            device.adapter().signals_in_software(node) && !device.os().mutation.is(Mutation::SignalsWhereItCannot);
        let pool = CommandPool::create(device, pool_size)?;
        Ok(Self { target, pool, device: device.clone(), software, steps: Vec::new() })
    }

    /// A packet context with a pool of `pool_size` bytes of command buffers.
    ///
    /// # Errors
    /// Those of the parts.
    pub fn create_context(device: &Arc<Device<T>>, create: hw_queue::Create, pool_size: u64) -> Result<Self, UmdError> {
        let fence = Arc::new(MonitoredFence::create(device, 0, false)?);
        let target = Target::Context(PacketContext::create(device, create.node, create.no_timeout)?, fence);
        Self::create(device, target, create.node, pool_size)
    }

    /// Bytes that a command list may have.
    pub fn list_limit(&self) -> u64 {
        self.pool.limit() - crate::command_list::MAX_TAIL
    }

    /// What counts submissions.
    pub fn progress(&self) -> ProgressFence {
        match &self.target {
            Target::Queue(queue) => queue.progress(),
            Target::Context(_, fence) => ProgressFence {
                handle: fence.handle(),
                value: fence.object().value,
                gpu_va: fence.gpu_va(),
                native: false,
                software: self.software,
            },
        }
    }

    /// Submits the lists in their order, in as many pieces as it takes. `published` hears of each piece that was.
    ///
    /// # Errors
    /// [`UmdError::NotSupported`]; [`UmdError::ListTooLarge`]; [`UmdError::Timeout`] when the pool has no room for all
    /// of it and `may_wait` is off, and then nothing is submitted; [`UmdError::DeviceLost`]; [`UmdError::Thunk`]. With
    /// the last two, pieces before the one that failed are submitted.
    pub fn submit<L: DerefMut<Target = CommandList>>(
        &mut self,
        lists: &mut [L],
        turn: &mut Turn<'_>,
        mut published: impl FnMut(Submitted),
    ) -> Result<(), UmdError> {
        if lists.iter().any(|list| list.uses_native_fences()) && matches!(self.target, Target::Context(..)) {
            return Err(UmdError::NotSupported(Unsupported::NativeFenceOnPacketContext));
        }
        if let Some(list) = lists.iter().find(|list| list.len() > self.list_limit()) {
            return Err(UmdError::ListTooLarge { bytes: list.len(), limit: self.list_limit() });
        }
        let mut steps = core::mem::take(&mut self.steps);
        let result = self.take_all(&mut steps, lists, turn, &mut published);
        steps.clear();
        self.steps = steps;
        result
    }

    /// Submits the lists, one after the other. `steps` is empty, and is room for what becomes of them.
    fn take_all<L: DerefMut<Target = CommandList>>(
        &mut self,
        steps: &mut Vec<Step>,
        lists: &mut [L],
        turn: &mut Turn<'_>,
        published: &mut impl FnMut(Submitted),
    ) -> Result<(), UmdError> {
        if !turn.may_wait {
            lists.iter().for_each(|list| self.cut(list, steps));
            if !self.has_room(steps, turn) {
                return Err(UmdError::Timeout);
            }
        }
        let mut executed = turn.executed;
        for list in lists {
            steps.clear();
            self.cut(list, steps);
            turn.executed = executed;
            self.take(steps, list, turn, &mut |submitted: Submitted| {
                executed += submitted.logs;
                published(submitted);
            })?;
        }
        Ok(())
    }

    /// Submits the list in these steps, for which there is room, or which may wait for it.
    fn take(
        &mut self,
        steps: &[Step],
        list: &mut CommandList,
        turn: &mut Turn<'_>,
        published: &mut impl FnMut(Submitted),
    ) -> Result<(), UmdError> {
        for step in steps {
            match *step {
                Step::Piece { from, to } => {
                    let progress = self.next(turn.last)?;
                    let piece = self.prepare(list, from, to, progress, turn)?;
                    self.send(piece, turn, published)?;
                }
                Step::Wait { handle, value } => self.wait(handle, value)?,
                Step::Signal { handle, value } => self.signal(handle, value)?,
                Step::Indirect { buffer, at } => {
                    let progress = self.next(turn.last)?;
                    // Made before the buffer is submitted: from then on nothing keeps its progress value from being
                    // written.
                    let tail = self.prepare(list, at, at, self.next(progress)?, turn)?;
                    let queued = turn.stamp(&self.device);
                    self.launch(buffer, progress)?;
                    turn.last = progress;
                    published(Submitted { progress, logs: LogCounts::default(), queued });
                    self.send(tail, turn, published)?;
                }
            }
        }
        Ok(())
    }

    /// Puts what becomes of the list behind `steps`, in order.
    fn cut(&self, list: &CommandList, steps: &mut Vec<Step>) {
        let before = steps.len();
        let in_buffers = self.device.os().mutation.is(Mutation::WaitsInBuffers);
        let mut start = 0;
        let mut step = |from: u64, to: u64, step: Step| {
            if from > start {
                steps.push(Step::Piece { from: start, to: from });
            }
            steps.push(step);
            start = to;
        };
        for cut in list.cuts() {
            match *cut {
                Cut::Wait { at, handle, value } => step(at, at, Step::Wait { handle, value }),
                Cut::NativeWait { .. } if in_buffers => {}
                Cut::NativeWait { from, to, handle, value } => step(from, to, Step::Wait { handle, value }),
                Cut::Signal { .. } if !self.software => {}
                Cut::Signal { from, to, handle, value } => step(from, to, Step::Signal { handle, value }),
                Cut::Indirect { from, to, address, length } => {
                    step(from, to, Step::Indirect { buffer: CommandBuffer { gpu_va: address, len: length }, at: to });
                }
            }
        }
        // Every submission ends with a buffer that says so.
        if start < list.len() || !matches!(steps.get(before..), Some([.., Step::Indirect { .. }])) {
            steps.push(Step::Piece { from: start, to: list.len() });
        }
    }

    /// Returns whether the pool has room for every buffer that the steps make, without a wait for the GPU.
    fn has_room(&mut self, steps: &[Step], turn: &Turn<'_>) -> bool {
        let fence = self.progress();
        let tail = Tail::new(&fence, &self.device.os().mutation);
        let length = |step: &Step| match step {
            Step::Piece { from, to } => buffer_len(&fence, to - from, &tail),
            Step::Indirect { .. } => buffer_len(&fence, 0, &tail),
            Step::Wait { .. } | Step::Signal { .. } => None,
        };
        self.pool.has_room(steps.iter().filter_map(length), fence.completed(turn.last))
    }

    /// The progress value behind `last`. A fence that is at its largest value was put there by a reset.
    fn next(&self, last: u64) -> Result<u64, UmdError> {
        last.checked_add(1).ok_or_else(|| UmdError::DeviceLost { state: self.device.state() })
    }

    /// Writes a part of the list, followed by the progress fence's signal, to the pool.
    fn prepare(
        &mut self,
        list: &mut CommandList,
        from: u64,
        to: u64,
        progress: u64,
        turn: &mut Turn<'_>,
    ) -> Result<Piece, UmdError> {
        list.set_index_hints(turn.executed);
        let in_part = list.log_counts_in(from, to);
        let before = LogCounts {
            waits: turn.executed.waits + list.log_counts_in(0, to).waits,
            signals: turn.executed.signals + list.log_counts_in(0, to).signals,
        };
        let fence = self.progress();
        let mut tail = Tail::new(&fence, &self.device.os().mutation);
        tail.stamp(progress, before);
        let logs = LogCounts { signals: in_part.signals + tail.logs, ..in_part };
        // CAST: offsets in the list.
        let part = list.bytes().get(from as usize..to as usize).unwrap_or_default();
        // A LOG behind the signal is proved executed by the next value only (command_pool.rs).
        let free_at = progress.saturating_add(tail.logs);
        if buffer_len(&fence, to - from, &tail).is_none() {
            return Ok(Piece { progress, buffer: None, logs, tail_logs: 0 });
        }
        let buffer = loop {
            match self.pool.write([part, tail.bytes()], free_at, fence.completed(turn.last)) {
                Ok(buffer) => break buffer,
                Err(_) if !turn.may_wait => return Err(UmdError::Timeout),
                Err(Full { until }) => {
                    turn.effort.stalls += 1;
                    let device = &self.device;
                    wait::sliced(device.os(), fence.object(device.handle()), until, Timeout::INFINITE, || {
                        if device.is_alive() { Ok(()) } else { Err(UmdError::DeviceLost { state: device.state() }) }
                    })?;
                }
            }
        };
        Ok(Piece { progress, buffer: Some(buffer), logs, tail_logs: tail.logs })
    }

    /// Submits what [`prepare`](Self::prepare) wrote.
    fn send(
        &mut self,
        piece: Piece,
        turn: &mut Turn<'_>,
        published: &mut impl FnMut(Submitted),
    ) -> Result<(), UmdError> {
        let queued = turn.stamp(&self.device);
        if let Some(buffer) = piece.buffer {
            self.launch(buffer, piece.progress)?;
        }
        // The tail's LOG comes between those of the list.
        turn.executed.signals += piece.tail_logs;
        // Where no packet says that it is done, the OS will.
        turn.last = piece.progress;
        published(Submitted { progress: piece.progress, logs: piece.logs, queued });
        let fence = self.progress();
        if fence.software { self.signal(fence.handle, piece.progress) } else { Ok(()) }
    }

    /// Hands a command buffer to the OS.
    fn launch(&self, buffer: CommandBuffer, progress: u64) -> Result<(), UmdError> {
        // CAST: at most MAX_INDIRECT_SIZE, 16 MiB.
        let length = buffer.len as u32;
        let os = self.device.os();
        let answer = match &self.target {
            Target::Queue(queue) => os.submit_command_to_hw_queue(&mut Padded::new(D3DKMT_SUBMITCOMMANDTOHWQUEUE {
                hHwQueue: queue.handle(),
                HwQueueProgressFenceId: progress,
                CommandBuffer: buffer.gpu_va.0,
                CommandLength: length,
                ..D3DKMT_SUBMITCOMMANDTOHWQUEUE::zeroed()
            })),
            Target::Context(context, _) => {
                let mut argument = Padded::new(D3DKMT_SUBMITCOMMAND {
                    Commands: buffer.gpu_va.0,
                    CommandLength: length,
                    BroadcastContextCount: 1,
                    ..D3DKMT_SUBMITCOMMAND::zeroed()
                });
                argument.BroadcastContext[0] = context.handle();
                os.submit_command(&mut argument)
            }
        };
        answer.map(|_| ()).map_err(|error| self.device.blame(error))
    }

    /// Has the OS hold back what is submitted from now on.
    fn wait(&self, fence: D3DKMT_HANDLE, value: u64) -> Result<(), UmdError> {
        let os = self.device.os();
        let answer = match &self.target {
            Target::Queue(queue) => os.submit_wait_for_sync_objects_to_hw_queue(&mut Padded::new(
                D3DKMT_SUBMITWAITFORSYNCOBJECTSTOHWQUEUE {
                    hHwQueue: queue.handle(),
                    ObjectCount: 1,
                    ObjectHandleArray: &raw const fence,
                    FenceValueArray: &raw const value,
                },
            )),
            Target::Context(context, _) => {
                let mut argument = Padded::new(D3DKMT_WAITFORSYNCHRONIZATIONOBJECTFROMGPU {
                    hContext: context.handle(),
                    ObjectCount: 1,
                    ObjectHandleArray: &raw const fence,
                    ..D3DKMT_WAITFORSYNCHRONIZATIONOBJECTFROMGPU::zeroed()
                });
                argument.set_MonitoredFenceValueArray(&raw const value);
                os.wait_for_synchronization_object_from_gpu(&mut argument)
            }
        };
        answer.map(|_| ()).map_err(|error| self.device.blame(error))
    }

    /// Has the OS signal a monitored fence when everything that was submitted before is done.
    fn signal(&self, fence: D3DKMT_HANDLE, value: u64) -> Result<(), UmdError> {
        let os = self.device.os();
        let answer = match &self.target {
            Target::Queue(queue) => {
                let handle = queue.handle();
                os.submit_signal_sync_objects_to_hw_queue(&mut Padded::new(D3DKMT_SUBMITSIGNALSYNCOBJECTSTOHWQUEUE {
                    BroadcastHwQueueCount: 1,
                    BroadcastHwQueueArray: &raw const handle,
                    ObjectCount: 1,
                    ObjectHandleArray: &raw const fence,
                    FenceValueArray: &raw const value,
                    ..D3DKMT_SUBMITSIGNALSYNCOBJECTSTOHWQUEUE::zeroed()
                }))
            }
            Target::Context(context, _) => {
                let mut argument = Padded::new(D3DKMT_SIGNALSYNCHRONIZATIONOBJECTFROMGPU {
                    hContext: context.handle(),
                    ObjectCount: 1,
                    ObjectHandleArray: &raw const fence,
                    ..D3DKMT_SIGNALSYNCHRONIZATIONOBJECTFROMGPU::zeroed()
                });
                argument.set_MonitoredFenceValueArray(&raw const value);
                os.signal_synchronization_object_from_gpu(&mut argument)
            }
        };
        answer.map(|_| ()).map_err(|error| self.device.blame(error))
    }
}

/// Bytes of the command buffer that `part` bytes of a list become. `None`: none is made, since the part is empty and
/// the OS signals the progress fence.
fn buffer_len(fence: &ProgressFence, part: u64, tail: &Tail) -> Option<u64> {
    // CAST: usize is 64 bits wide.
    (part != 0 || !fence.software).then(|| part + tail.bytes().len() as u64)
}
