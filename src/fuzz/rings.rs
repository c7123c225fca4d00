//! Rings, control pages and command buffers that change while engines read them.

use super::Round;
use super::dice::Dice;
use super::machine::{beside, play as on_a_machine, setup};
use super::packets::{KINDS, packet, sound};
use crate::scenario::{Memory, NativeFence, Played, Raw, RingQueue, Room, Scene};
use gpu_wire::packet::FaultKind;
use gpu_wire::private::allocation_kind;
use gpu_wire::ring::{FAULT_KIND, WRITE_POINTER};
use std::sync::atomic::{AtomicBool, Ordering};

/// Bytes of a hostile process's ring, of its command buffers, and of its local memory.
const RING: u64 = 4096;
const BUFFER: u64 = 32 << 10;
const LOCAL: u64 = 64 << 10;

/// Two hostile processes on both engines; a good one on each.
pub fn play(round: &Round) -> Played {
    on_a_machine(round, setup(), |scene| {
        let hostile = |scene: &Scene, raw: &Raw, dice: &mut Dice, stop: &AtomicBool| -> Played {
            for _ in 0..3 {
                device(round, scene, raw, dice, stop)?;
            }
            Ok(())
        };
        beside(round, scene, &[0, 1], 2, &hostile, std::thread::yield_now)
    })
}

/// What a hostile device has.
struct Attack<'a> {
    raw: &'a Raw,
    room: &'a Room<'a>,
    queues: Vec<RingQueue<'a>>,
    fences: Vec<NativeFence>,
    buffer: Memory,
    /// What packets are aimed at: first, bytes.
    ranges: Vec<(u64, u64)>,
}

/// Rings of one device until it is lost, or has been through enough.
fn device(round: &Round, scene: &Scene, raw: &Raw, dice: &mut Dice, stop: &AtomicBool) -> Played {
    let room = Room::new(raw)?;
    let attack = Attack::new(scene, raw, &room, dice)?;
    attack.write_buffer(dice)?;
    for _ in 0..4 + dice.below(20) {
        if stop.load(Ordering::Acquire) || !room.is_active()? {
            break;
        }
        attack.submit(round, dice)?;
        attack.scribble(dice)?;
        attack.call(dice);
    }
    let lost = !room.is_active()?;
    round.coverage.count(if lost { "devices: lost" } else { "devices: still active" }, 1);
    for queue in &attack.queues {
        // The page may be gone, or hold what this process has written there itself.
        let kind = raw.load(queue.control.cpu + FAULT_KIND).unwrap_or(0);
        if let Some(kind) = u32::try_from(kind).ok().and_then(FaultKind::from_raw) {
            round.coverage.count(&format!("faults reported: {kind:?}"), 1);
        }
    }
    Ok(())
}

impl<'a> Attack<'a> {
    fn new(scene: &Scene, raw: &'a Raw, room: &'a Room<'a>, dice: &mut Dice) -> anyhow::Result<Self> {
        let buffer = room.memory(scene, BUFFER)?;
        let local = room.create(allocation_kind::LOCAL, LOCAL)?;
        room.make_resident(scene, local)?;
        let mut ranges = vec![
            (buffer.gpu, BUFFER),
            (room.map(scene, local, 0)?, LOCAL),
            // The same pages at another address.
            (room.map(scene, buffer.handle, 0)?, BUFFER),
        ];
        let mut queues = Vec::new();
        for _ in 0..1 + dice.below(3) {
            // CAST: 0 or 1.
            let queue = RingQueue::connected(scene, room, dice.below(2) as u32, RING)?;
            ranges.extend([(queue.ring.gpu, RING), (queue.control.gpu, 4096), (queue.queue.progress.gpu, 8)]);
            queues.push(queue);
        }
        let fences: Vec<_> = (0..3).filter_map(|_| raw.native_fence(room.device, 0).ok()).collect();
        // Twice: packets for fences fault elsewhere.
        fences.iter().for_each(|fence| ranges.extend([(fence.gpu, 8), (fence.gpu, 8), (fence.monitored, 8)]));
        Ok(Self { raw, room, queues, fences, buffer, ranges })
    }

    /// A command buffer, for INDIRECT to jump to.
    fn write_buffer(&self, dice: &mut Dice) -> Played {
        let mut bytes = Vec::new();
        while bytes.len() < 4096 {
            bytes.extend_from_slice(packet(dice, &self.ranges).0.as_bytes());
        }
        self.buffer.write(self.raw, 0, &bytes[..4096])
    }

    /// Writes to each ring, publishes, now and then what cannot be true, and rings. What is told to the OS may never
    /// come true.
    fn submit(&self, round: &Round, dice: &mut Dice) -> Played {
        let fences: Vec<_> = self.fences.iter().map(|fence| fence.gpu).collect();
        for queue in &self.queues {
            let wild = dice.one_in(3);
            for _ in 0..1 + dice.below(24) {
                let packets = match wild {
                    true => vec![packet(dice, &self.ranges)],
                    false => sound(dice, self.ranges[0], &fences),
                };
                for (packet, kind) in packets {
                    queue.write(packet.as_bytes())?;
                    round.coverage.count(&format!("packets written: {}", KINDS[kind]), 1);
                }
            }
            if !dice.one_in(4) {
                queue.record(&[])?;
            }
            if dice.one_in(2) {
                queue.tell(queue.last.get())?;
            }
            match dice.below(40) {
                0 => queue.publish_as(dice.draw())?,
                1 => queue.publish_as(dice.below(0x1_0000) & !7)?,
                _ => queue.publish()?,
            }
            queue.ring()?;
        }
        Ok(())
    }

    /// Changes what engines may be reading.
    fn scribble(&self, dice: &mut Dice) -> Played {
        for _ in 0..dice.below(200) {
            let queue = dice.of(&self.queues);
            // CAST: below a page, or the buffer.
            let (word, far) = (dice.below(512) as usize * 8, dice.below(BUFFER / 8) as usize * 8);
            match dice.below(8) {
                0..=3 => self.raw.store(queue.ring.cpu + word, dice.draw())?,
                4 | 5 => self.raw.store(self.buffer.cpu + far, dice.draw())?,
                6 if word != WRITE_POINTER => self.raw.store(queue.control.cpu + word, dice.draw())?,
                // Destroyed doorbells have no page.
                _ => drop(self.raw.store(queue.bell.doorbell, dice.draw())),
            }
        }
        Ok(())
    }

    /// Calls that change what the rings are about. Each may be refused: fences and doorbells go, and do not come back.
    fn call(&self, dice: &mut Dice) {
        if let [first, ..] = self.fences.as_slice() {
            let fence = if dice.one_in(2) { first } else { dice.of(&self.fences) };
            let _ = self.raw.signal_cpu(self.room.device, &[(fence.handle, dice.below(1000))]);
            if dice.one_in(4) {
                let (_event, handle) = self.raw.event();
                let _ = self.raw.wait_cpu(self.room.device, &[(fence.handle, dice.below(2000))], false, Some(handle));
            }
            if dice.one_in(16) {
                let _ = self.raw.destroy_fence(fence.handle);
            }
        }
        let queue = dice.of(&self.queues);
        match dice.below(24) {
            0 => drop(queue.destroy_bell()),
            1 | 2 => {
                let _ = queue.connect();
                let _ = queue.notify();
            }
            _ => (),
        }
    }
}
