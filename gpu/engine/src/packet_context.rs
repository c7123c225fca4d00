//! A packet context: the address space that its packets run in, and where the packet stopped that a preemption took off
//! the engine in its middle.
//!
//! Such a packet comes back from the OS with the flag `Resubmission`, under another fence id (a paging packet under its
//! own), and goes on where it was. It comes back without the flag where a reset of the engine came between: the OS may
//! have reset the engine without having heard the answer to the preemption, and takes the packet for one that had not
//! begun. The state belongs to the *context*, whose packets run one behind the other: the
//! first packet that the OS submits of the context behind the preemption is the one that was taken off, or that one
//! never comes back.
//!
//! Source: *GPU preemption* (request mid-DMA buffer preemption); `DXGK_SUBMITCOMMANDFLAGS`, `Resubmission`.

use crate::NoMemory;
use crate::address_space::AddressSpace;
use crate::command_processor::FenceRef;
use crate::exec::Exec;
use crate::host::{Host, Lock};
use crate::shared::{Shared, try_box};
use alloc::boxed::Box;
use gpu_wire::GpuVa;

use crate::context::Process;

/// How often a node was reset.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Resets {
    /// With the whole adapter, so that what was in memory may be gone.
    pub adapter: u64,
    /// Its engine alone, so that packets were given back without a preemption.
    pub engine: u64,
}

/// Which command buffer was taken off, and whether it is on its way back.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Stopped {
    address: GpuVa,
    length: u64,
    /// The resets that its node had had by then.
    resets: Resets,
    /// It was submitted again, and has not begun.
    claimed: bool,
}

struct Saved<H: Host> {
    stopped: Option<Stopped>,
    /// Where it is, if one is stopped; otherwise memory for the next.
    exec: Box<Exec<FenceRef<H>>>,
}

/// A packet context.
pub struct PacketContext<H: Host> {
    /// The OS's handle of it.
    pub handle: u64,
    /// What its packets run in: its process's, by the root that the OS gave this context.
    pub space: AddressSpace<H>,
    saved: H::Lock<Saved<H>>,
}

impl<H: Host> PacketContext<H> {
    /// A context of `process`, which the OS calls `handle`, without a root page table.
    ///
    /// # Errors
    /// [`NoMemory`].
    pub fn new(process: Shared<Process<H>>, handle: u64) -> Result<Self, NoMemory> {
        let saved = Saved { stopped: None, exec: try_box(Exec::new())? };
        Ok(Self { handle, space: AddressSpace::new(process), saved: H::Lock::new(saved) })
    }

    /// A command buffer of the context is submitted, `resubmitted` with the flag `Resubmission`, when its node has had
    /// these resets. Returns whether it is the one that was taken off, and so is to go on where it was. Without the
    /// flag it is where the engine was reset since. Another one takes its place: what was taken off does not come back.
    /// Nor does it where the adapter was reset since: what it had done may be gone, and so it begins anew. Up to
    /// `DISPATCH_LEVEL`.
    ///
    /// Source: `DXGK_SUBMITCOMMANDFLAGS`, Resubmission (behind a preemption). That a packet which the reset of an
    /// engine gives back comes without it is by the same words.
    pub fn claim(&self, resubmitted: bool, address: GpuVa, length: u64, resets: Resets) -> bool {
        self.saved.with(|saved| {
            let Some(stopped) = saved.stopped.as_mut().filter(|stopped| !stopped.claimed) else { return false };
            let is_it = (stopped.address, stopped.length, stopped.resets.adapter) == (address, length, resets.adapter);
            stopped.claimed = is_it && (resubmitted || stopped.resets.engine != resets.engine);
            let claimed = stopped.claimed;
            if !claimed {
                saved.stopped = None;
            }
            claimed
        })
    }

    /// The OS took back a command buffer that had [claimed](Self::claim) the state and not begun. Up to
    /// `DISPATCH_LEVEL`.
    pub fn unclaim(&self) {
        self.saved.with(|saved| saved.stopped.iter_mut().for_each(|stopped| stopped.claimed = false));
    }

    /// Engine: the command buffer at `address` is taken off in its middle; `exec` is where it is, and memory for
    /// another one afterwards.
    pub(crate) fn save(&self, address: GpuVa, length: u64, resets: Resets, exec: &mut Box<Exec<FenceRef<H>>>) {
        self.saved.with(|saved| {
            saved.stopped = Some(Stopped { address, length, resets, claimed: false });
            core::mem::swap(&mut saved.exec, exec);
        });
    }

    /// Engine: the command buffer that has claimed the state begins; `exec` is where it was from now on.
    pub(crate) fn restore(&self, exec: &mut Box<Exec<FenceRef<H>>>) {
        self.saved.with(|saved| {
            if saved.stopped.take().is_some() {
                core::mem::swap(&mut saved.exec, exec);
            }
        });
    }
}
