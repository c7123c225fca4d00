//! Contexts whose work does not end, and who of two has the engine.

use super::{RingQueue, Room, store};
use crate::scenario::{Played, Raw, Scene};
use anyhow::{Result, ensure};
use gpu_wire::packet::Indirect;
use std::time::{Duration, Instant};
use wddm_abi::D3DKMT_HANDLE;

/// A context whose work does not end, and says all the while that it runs.
pub(super) struct Runner<'a> {
    pub(super) raw: &'a Raw,
    pub(super) context: D3DKMT_HANDLE,
    /// The word to which it stores 1.
    pub(super) word: usize,
}

impl<'a> Runner<'a> {
    /// Has a queue with a doorbell run a command buffer that stores for ever.
    ///
    /// # Errors
    /// When there is no memory for the buffer, or the doorbell cannot be rung.
    pub(super) fn of_ring(scene: &Scene, raw: &'a Raw, room: &Room<'_>, queue: &RingQueue<'_>) -> Result<Self> {
        let memory = room.memory(scene, 4096)?;
        let store = store(memory.gpu, 1).as_bytes().to_vec();
        let jump = Indirect { address: memory.gpu + 1024, length: store.len() as u64 + 24 }.to_packet();
        memory.write(raw, 1024, &[store, jump.as_bytes().to_vec()].concat())?;
        // The OS is not told of it, and so does not wait for its end.
        queue.write(jump.as_bytes())?;
        queue.publish()?;
        queue.ring()?;
        Ok(Self { raw, context: queue.queue.context, word: memory.cpu })
    }

    fn clear(&self) -> Played {
        Ok(self.raw.store(self.word, 0)?)
    }

    fn has_run(&self) -> Result<bool> {
        Ok(self.raw.load(self.word)? == 1)
    }

    /// Waits until it runs, from now on.
    pub(super) fn runs(&self, scene: &Scene) -> Played {
        self.clear()?;
        scene.until("its turn", || self.has_run())
    }

    /// Returns whether it runs all the time, for so long, and `other` never.
    fn is_alone(&self, scene: &Scene, other: &Self, time: Duration) -> Result<bool> {
        other.clear()?;
        let end = Instant::now() + time;
        while Instant::now() < end {
            self.runs(scene)?;
            if other.has_run()? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Waits until it has the engine for so long, and `other` has not.
    pub(super) fn goes_before(&self, scene: &Scene, other: &Self, time: Duration) -> Played {
        scene.until("the other one to rest", || self.is_alone(scene, other, time))
    }

    /// As [`goes_before`](Self::goes_before), and the other one does not run at all any more.
    pub(super) fn is_all(&self, scene: &Scene, other: &Self, time: Duration) -> Played {
        self.goes_before(scene, other, time)?;
        ensure!(self.is_alone(scene, other, time)?, "the other one ran");
        Ok(())
    }
}

/// Both run, one after the other.
pub(super) fn share(scene: &Scene, both: [&Runner<'_>; 2]) -> Played {
    (0..3).try_for_each(|_| both.iter().try_for_each(|runner| runner.runs(scene)))
}
