//! A process that works whatever the rung is: by the user-mode driver's queue of it, which is one for doorbells, a
//! hardware queue or a packet context.

use crate::client::Queue;
use crate::scenario::client::{Client, Page};
use crate::scenario::te::hardware::ACTIVE;
use crate::scenario::{Played, Scene};
use anyhow::Result;
use gpu_wire::packet::{Encoded, Store};
use std::cell::Cell;

/// Where its words are, behind its command buffer.
const WORD: u64 = 2048;

/// The process, with a queue on a node and a page: its command buffer, and words.
pub(super) struct Worker {
    rig: Client,
    queue: Queue,
    page: Page,
    rounds: Cell<u64>,
}

impl Worker {
    /// Makes it, on `node`.
    pub fn new(scene: &Scene, name: &str, node: u32) -> Result<Self> {
        let rig = Client::open(scene, name)?;
        let (queue, page) = (rig.queue(node)?, rig.page()?);
        Ok(Self { rig, queue, page, rounds: Cell::new(0) })
    }

    /// Where the GPU has its word with this number, and what it is.
    pub fn at(&self, number: u64) -> u64 {
        self.page.gpu + WORD + number * 8
    }

    /// Its word with this number.
    pub fn word(&self, number: u64) -> Result<u64> {
        self.page.word(WORD / 8 + number)
    }

    /// Whether its device is active.
    pub fn is_active(&self) -> Result<bool> {
        Ok(self.rig.device.state()?.execution == ACTIVE)
    }

    /// Submits a command buffer of these bytes. Below rung 3 the end of the list is a call of its own, which may find
    /// the device lost.
    pub fn submit(&self, bytes: &[u8]) -> Played {
        self.page.write(0, bytes)?;
        let _refused = self.queue.run(|list| list.indirect(self.page.gpu, bytes.len() as u64));
        Ok(())
    }

    /// Has these packets run, and waits until a store behind them is there.
    pub fn run(&self, scene: &Scene, packets: &[Encoded]) -> Played {
        let round = self.rounds.replace(self.rounds.get() + 1) + 1;
        let behind = Store { address: self.at(0), value: round }.to_packet();
        let bytes: Vec<u8> = packets.iter().chain([&behind]).flat_map(|packet| packet.as_bytes().to_vec()).collect();
        self.submit(&bytes)?;
        scene.until("a process's work", || Ok(self.word(0)? == round))
    }

    /// Waits until its device is in error, or everything that it was given is done.
    pub fn ends(&self, scene: &Scene) -> Played {
        scene.until("an end", || {
            let (done, submitted) = self.queue.progress()?;
            Ok(!self.is_active()? || done >= submitted)
        })
    }
}
