//! Packets of two processes that share a packet node.

use super::Dice;
use anyhow::{Result, ensure};
use dxgkrnl_model::adapter::Adapter;
use dxgkrnl_model::personality::MS;
use fencepost::client::{Allocation, Device, Queue};
use fencepost::world::{User, World};
use nt_model::Machine;
use nt_model::sched::YieldPoint;
use std::sync::Arc;
use umd_core::ffi::types::FP_KIND_SYSTEM;

/// How long a context has the node before it is preempted for the other one, in virtual time.
pub const SLICE: (u64, u64) = (0, MS / 20);
/// The node.
const NODE: u32 = 0;
/// Bytes that a packet fills, at most: an engine looks up several times on the way.
const MOST: u64 = 256 << 10;

/// A process whose packets count.
struct Half {
    queue: Queue,
    memory: Allocation,
    value: u64,
    _device: Device,
    _user: User,
}

/// The two.
pub struct Packets {
    halves: [Half; 2],
    adapter: Arc<Adapter>,
}

impl Half {
    fn open(user: User) -> Result<Self> {
        let device = user.open()?.device()?;
        let (queue, memory) =
            (device.queue(NODE, super::RING, 0, 0)?, device.allocate(FP_KIND_SYSTEM, MOST + 4096, 0)?);
        Ok(Self { queue, memory, value: 0, _device: device, _user: user })
    }

    /// A packet of a length that is drawn.
    fn submit(&mut self, dice: &mut Dice) -> Result<()> {
        self.value += 1;
        let (value, at) = (self.value, self.memory.gpu_va()?);
        let bytes = 4096 * dice.below(MOST / 4096 + 1);
        self.queue.run(|list| {
            if bytes != 0 {
                list.fill(at + 4096, bytes, 1)?;
            }
            list.store(at, value)
        })?;
        Ok(())
    }
}

impl Packets {
    /// Two processes.
    ///
    /// # Errors
    /// When something cannot be made.
    pub fn open(world: &World, adapter: &Arc<Adapter>) -> Result<Self> {
        let half = |name| Half::open(world.process(name)?);
        Ok(Self { halves: [half("one")?, half("other")?], adapter: adapter.clone() })
    }

    /// Each submits some packets, and the last of each is waited for. What the driver answers to the preemptions
    /// meanwhile is judged by the model.
    ///
    /// # Errors
    /// A packet that does not end.
    pub fn round(&mut self, dice: &mut Dice) -> Result<()> {
        for _ in 0..1 + dice.below(4) {
            for half in &mut self.halves {
                half.submit(dice)?;
            }
        }
        for half in &self.halves {
            for _ in 0..1_000_000 {
                if half.memory.read_u64(0)? == half.value {
                    break;
                }
                Machine::with_current(|machine| machine.map(|machine| machine.yield_point(YieldPoint::Custom(4))));
            }
            ensure!(half.memory.read_u64(0)? == half.value, "a packet did not end");
        }
        Ok(())
    }

    /// There was a preemption in many of the rounds, and packets came back.
    ///
    /// # Errors
    /// When there were few.
    pub fn was_preempted(&self, rounds: u64) -> Result<()> {
        let counts = self.adapter.packet_preemptions(NODE);
        ensure!(counts.answers as u64 > rounds / 2 && counts.back != 0, "{rounds} rounds: {counts:?}");
        Ok(())
    }
}
