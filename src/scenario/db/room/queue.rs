//! A user-mode queue of a room: ring, control page and doorbell, written word by word.

use super::{CONNECTED, Doorbell, HardwareQueue, Memory, NOTIFY, RETRY, Room};
use crate::scenario::{Denied, Played, Scene};
use anyhow::{Context, Result, bail, ensure};
use gpu_wire::GpuVa;
use gpu_wire::doorbell::{Token, value};
use gpu_wire::packet::Encoded;
use gpu_wire::ring::{READ_POINTER, WRITE_POINTER};
use std::cell::Cell;
use wddm_abi::D3DKMT_DESTROY_DOORBELL;

/// A user-mode queue whose ring a case writes itself.
pub struct RingQueue<'a> {
    /// Whose it is.
    pub room: &'a Room<'a>,
    /// The hardware queue, made by thunks.
    pub queue: HardwareQueue,
    /// The memory of the queue's ring.
    pub ring: Memory,
    /// Its control page.
    pub control: Memory,
    /// The queue's doorbell.
    pub bell: Doorbell,
    /// Bytes written to the ring.
    pub written: Cell<u64>,
    /// The write pointer that was published last.
    published: Cell<u64>,
    /// The last progress value.
    pub last: Cell<u64>,
}

impl<'a> RingQueue<'a> {
    /// A queue on `node` with a doorbell that is not connected.
    ///
    /// # Errors
    /// When a step fails.
    pub fn new(scene: &Scene, room: &'a Room<'a>, node: u32, ring_size: u64) -> Result<Self> {
        Self::on(scene, room, room.queue(node, true).context("queue")?, ring_size)
    }

    /// A doorbell that is not connected, and a ring, for a queue of the room's.
    ///
    /// # Errors
    /// When a step fails.
    pub fn on(scene: &Scene, room: &'a Room<'a>, queue: HardwareQueue, ring_size: u64) -> Result<Self> {
        let ring = room.memory(scene, ring_size)?;
        let control = room.memory(scene, 4096)?;
        let bell = room.bell(queue.handle, &ring, &control).context("doorbell")?;
        let [written, published, last] = [0; 3].map(Cell::new);
        Ok(Self { room, queue, ring, control, bell, written, published, last })
    }

    /// As [`Self::new`], connected.
    ///
    /// # Errors
    /// When a step fails.
    pub fn connected(scene: &Scene, room: &'a Room<'a>, node: u32, ring_size: u64) -> Result<Self> {
        let queue = Self::new(scene, room, node, ring_size)?;
        queue.connect().context("connect")?;
        Ok(queue)
    }

    /// The same queue with a ring of `ring_size` bytes and a doorbell that is created with `ResizeRingBufferOperation`.
    ///
    /// # Errors
    /// When a step fails.
    pub fn resized(&self, scene: &Scene, ring_size: u64) -> Result<Self> {
        let Self { room, queue, .. } = *self;
        let ring = room.memory(scene, ring_size)?;
        let control = room.memory(scene, 4096)?;
        let bell = room.bell_with(queue.handle, &ring, &control, true).context("doorbell of another ring")?;
        Ok(self.with(ring, control, bell))
    }

    /// The same queue, which goes on with its progress values, with another ring and doorbell.
    pub fn with(&self, ring: Memory, control: Memory, bell: Doorbell) -> Self {
        let Self { room, queue, .. } = *self;
        let [written, published] = [0; 2].map(Cell::new);
        Self { room, queue, ring, control, bell, written, published, last: self.last.clone() }
    }

    /// Connects the doorbell.
    ///
    /// # Errors
    /// The function's status.
    pub fn connect(&self) -> Result<(), Denied> {
        self.room.connect(self.queue.handle, self.bell.handle)
    }

    /// Destroys the doorbell.
    ///
    /// # Errors
    /// The function's status.
    pub fn destroy_bell(&self) -> Result<(), Denied> {
        let mut record = D3DKMT_DESTROY_DOORBELL::zeroed();
        record.hDoorbell = self.bell.handle;
        self.room.raw.ok(self.room.raw.thunks.D3DKMTDestroyDoorbell, &mut record)
    }

    /// Tells the kernel-mode driver.
    ///
    /// # Errors
    /// The function's status.
    pub fn notify(&self) -> Result<(), Denied> {
        self.room.notify(self.queue.handle, self.bell.handle)
    }

    /// What the status word says.
    ///
    /// # Errors
    /// The access violation.
    pub fn status(&self) -> Result<u64> {
        Ok(self.room.raw.load(self.bell.status)?)
    }

    /// Writes bytes behind what was written, around the end of the ring. They are not published.
    ///
    /// # Errors
    /// The access violation.
    pub fn write(&self, bytes: &[u8]) -> Played {
        ensure!(bytes.len().is_multiple_of(8), "packets are multiples of 8 bytes");
        for word in bytes.chunks_exact(8) {
            let mut raw = [0; 8];
            raw.copy_from_slice(word);
            let at = self.written.get() % self.ring.size;
            // CAST: below the ring's size.
            self.room.raw.store(self.ring.cpu + at as usize, u64::from_le_bytes(raw))?;
            self.written.set(self.written.get() + 8);
        }
        Ok(())
    }

    /// Writes packets and, behind them, the next progress value's signal, which it returns.
    ///
    /// # Errors
    /// The access violation.
    pub fn record(&self, packets: &[Encoded]) -> Result<u64> {
        for packet in packets {
            self.write(packet.as_bytes())?;
        }
        let next = self.last.get() + 1;
        self.last.set(next);
        self.write(Encoded::fence_signal(GpuVa(self.queue.progress.gpu), next).as_bytes())?;
        Ok(next)
    }

    /// Tells the OS what is queued.
    ///
    /// # Errors
    /// The access violation.
    pub fn tell(&self, progress: u64) -> Played {
        Ok(self.room.raw.store(self.bell.last_queued, progress)?)
    }

    /// Publishes everything that was written.
    ///
    /// # Errors
    /// The access violation.
    pub fn publish(&self) -> Played {
        self.publish_as(self.written.get())
    }

    /// Publishes a write pointer.
    ///
    /// # Errors
    /// The access violation.
    pub fn publish_as(&self, pointer: u64) -> Played {
        self.published.set(pointer);
        Ok(self.room.raw.store(self.control.cpu + WRITE_POINTER, pointer)?)
    }

    /// Rings, and reads the status behind a full fence.
    ///
    /// # Errors
    /// The access violation.
    pub fn ring(&self) -> Result<u64> {
        let token = Token::new(self.bell.token).context("a token")?;
        self.room.raw.store(self.bell.doorbell, value(token, self.published.get()))?;
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
        self.status()
    }

    /// The five steps, once: the progress value and the status.
    ///
    /// # Errors
    /// The access violation.
    pub fn submit(&self, packets: &[Encoded]) -> Result<(u64, u64)> {
        let progress = self.record(packets)?;
        self.tell(progress)?;
        self.publish()?;
        Ok((progress, self.ring()?))
    }

    /// The five steps, and what the status asks for then, as a client does that lives long: connects and rings again
    /// behind RETRY, and announces behind NOTIFY. The progress value.
    ///
    /// # Errors
    /// When a step fails, or the doorbell is lost.
    pub fn submit_through(&self, packets: &[Encoded]) -> Result<u64> {
        let (progress, mut status) = self.submit(packets)?;
        loop {
            match status {
                CONNECTED => return Ok(progress),
                NOTIFY => {
                    self.notify()?;
                    return Ok(progress);
                }
                RETRY => {
                    self.connect()?;
                    status = self.ring()?;
                }
                lost => bail!("the doorbell's status is {lost}"),
            }
        }
    }

    /// What the progress fence says.
    ///
    /// # Errors
    /// The access violation.
    pub fn progress(&self) -> Result<u64> {
        Ok(self.room.raw.load(self.queue.progress.cpu)?)
    }

    /// Bytes that retired.
    ///
    /// # Errors
    /// The access violation.
    pub fn retired(&self) -> Result<u64> {
        Ok(self.room.raw.load(self.control.cpu + READ_POINTER)?)
    }

    /// Waits for a progress value.
    ///
    /// # Errors
    /// When it does not come.
    pub fn wait(&self, scene: &Scene, progress: u64) -> Played {
        scene.until("progress", || Ok(self.progress()? >= progress))
    }
}
