//! A user-mode queue: ring, control page and doorbell, written word by word.

use super::{Bell, CONNECTED, Granted, HardwareQueue, Memory, NOTIFY, RETRY, Room};
use anyhow::{Context, Result, bail, ensure};
use gpu_wire::GpuVa;
use gpu_wire::doorbell::{Token, value};
use gpu_wire::packet::Encoded;
use gpu_wire::ring::{READ_POINTER, WRITE_POINTER};
use std::cell::Cell;
use std::sync::atomic::{Ordering, fence};
use wddm_abi::D3DKMT_DESTROY_DOORBELL;

/// A user-mode queue whose ring a case writes itself.
pub struct RingQueue<'a> {
    room: &'a Room<'a>,
    /// The hardware queue.
    pub queue: HardwareQueue,
    /// The memory of its ring.
    pub ring: Memory,
    /// Its control page.
    pub control: Memory,
    /// Its doorbell.
    pub bell: Bell,
    /// Bytes written to the ring.
    pub written: Cell<u64>,
    /// The write pointer that was published last.
    published: Cell<u64>,
    /// The last progress value.
    last: Cell<u64>,
}

impl<'a> RingQueue<'a> {
    /// A queue on `node` with a doorbell that is not connected.
    ///
    /// # Errors
    /// When a step fails.
    pub fn new(room: &'a Room<'a>, node: u32, ring_size: u64) -> Result<Self> {
        let queue = room.queue(node, true).context("queue")?;
        let (ring, control) = (room.memory(ring_size)?, room.memory(4096)?);
        let bell = room.bell(queue.handle, &ring, &control).context("doorbell")?;
        let [written, published, last] = [0; 3].map(Cell::new);
        Ok(Self { room, queue, ring, control, bell, written, published, last })
    }

    /// As [`Self::new`], connected.
    ///
    /// # Errors
    /// When a step fails.
    pub fn connected(room: &'a Room<'a>, node: u32, ring_size: u64) -> Result<Self> {
        let queue = Self::new(room, node, ring_size)?;
        queue.connect().context("connect")?;
        Ok(queue)
    }

    /// Connects the doorbell.
    ///
    /// # Errors
    /// The function's status.
    pub fn connect(&self) -> Granted<()> {
        self.room.connect(self.queue.handle, self.bell.handle)
    }

    /// Tells the kernel-mode driver of work.
    ///
    /// # Errors
    /// The function's status.
    pub fn notify(&self) -> Granted<()> {
        self.room.notify(self.queue.handle, self.bell.handle)
    }

    /// Destroys the doorbell.
    ///
    /// # Errors
    /// The function's status.
    pub fn destroy_bell(&self) -> Granted<()> {
        let mut record = D3DKMT_DESTROY_DOORBELL::zeroed();
        record.hDoorbell = self.bell.handle;
        self.room.ok("D3DKMTDestroyDoorbell", &mut record)
    }

    /// What the status word says.
    ///
    /// # Errors
    /// Those of [`Process::load`](crate::Process::load).
    pub fn status(&self) -> Result<u64> {
        self.room.process.load(self.bell.status)
    }

    /// Writes bytes behind what was written, around the end of the ring. They are not published.
    ///
    /// # Errors
    /// Those of [`Process::store`](crate::Process::store).
    pub fn write(&self, bytes: &[u8]) -> Result<()> {
        ensure!(bytes.len().is_multiple_of(8), "packets are multiples of 8 bytes");
        for word in bytes.as_chunks::<8>().0 {
            let at = self.written.get() % self.ring.size;
            // CAST: below the ring's size.
            self.room.process.store(self.ring.cpu + at as usize, u64::from_le_bytes(*word))?;
            self.written.set(self.written.get() + 8);
        }
        Ok(())
    }

    /// Writes packets and, behind them, the next progress value's signal, which it returns.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub fn record(&self, packets: &[Encoded]) -> Result<u64> {
        for packet in packets {
            self.write(packet.as_bytes())?;
        }
        let next = self.last.get() + 1;
        self.last.set(next);
        self.write(Encoded::fence_signal(GpuVa(self.queue.progress_gpu), next).as_bytes())?;
        Ok(next)
    }

    /// Tells the OS what is queued.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub fn tell(&self, progress: u64) -> Result<()> {
        self.room.process.store(self.bell.last_queued, progress)
    }

    /// Publishes a write pointer.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub fn publish_as(&self, pointer: u64) -> Result<()> {
        self.published.set(pointer);
        self.room.process.store(self.control.cpu + WRITE_POINTER, pointer)
    }

    /// Rings, and reads the status behind a full fence.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub fn ring(&self) -> Result<u64> {
        let token = Token::new(self.bell.token).context("a token")?;
        self.room.process.store(self.bell.doorbell, value(token, self.published.get()))?;
        fence(Ordering::SeqCst);
        self.status()
    }

    /// The five steps, once: the progress value and the status.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub fn submit(&self, packets: &[Encoded]) -> Result<(u64, u64)> {
        let progress = self.record(packets)?;
        self.tell(progress)?;
        self.publish_as(self.written.get())?;
        Ok((progress, self.ring()?))
    }

    /// The five steps, and what the status asks for then: connects and rings again behind RETRY, and announces behind
    /// NOTIFY. The progress value.
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
    /// As [`Self::status`].
    pub fn progress(&self) -> Result<u64> {
        self.room.process.load(self.queue.progress_cpu)
    }

    /// Bytes that retired.
    ///
    /// # Errors
    /// As [`Self::status`].
    pub fn retired(&self) -> Result<u64> {
        self.room.process.load(self.control.cpu + READ_POINTER)
    }

    /// Waits for a progress value.
    ///
    /// # Errors
    /// When it does not come.
    pub fn wait(&self, progress: u64) -> Result<()> {
        self.room.until("progress", || Ok(self.progress()? >= progress))
    }

    /// The five steps and the wait for what they submit.
    ///
    /// # Errors
    /// When a step fails.
    pub fn run(&self, packets: &[Encoded]) -> Result<()> {
        let progress = self.submit_through(packets)?;
        self.wait(progress)
    }
}
