//! Cases without the user-mode driver.

use crate::room::{ABORT, CONNECTED, NOTIFY, RETRY, RingQueue, Room, denied, same};
use crate::{Process, System};
use anyhow::{Context, Result, ensure};
use gpu_wire::NODE_PAGING;
use gpu_wire::packet::{Copy, Encoded, FaultKind, Store};
use gpu_wire::ring::FAULT_KIND;
use wddm_abi::D3DKMT_DEVICEEXECUTION_STATE;
use wddm_abi::ntstatus::{STATUS_INVALID_PARAMETER, STATUS_NOT_SUPPORTED};

/// Bytes of a small ring.
const RING: u64 = 4096;

/// A store of 8 bytes.
fn store(address: u64, value: u64) -> Encoded {
    Store { address, value }.to_packet()
}

fn is_connected(queue: &RingQueue<'_>) -> Result<bool> {
    Ok(matches!(queue.status()?, CONNECTED | NOTIFY))
}

/// Plays in a room of a process of its own.
fn inside(system: &dyn System, play: impl FnOnce(&dyn Process, &Room<'_>) -> Result<()>) -> Result<()> {
    let process = system.process("client", false)?;
    let room = Room::new(system, &*process)?;
    play(&*process, &room)
}

pub fn node_without(system: &dyn System) -> Result<()> {
    inside(system, |_, room| match room.context(NODE_PAGING.0) {
        // A packet context, which has no queues.
        Ok(context) => denied("a user-mode queue", room.queue_in(context, true), STATUS_INVALID_PARAMETER),
        refused => denied("a hardware context on it", refused, STATUS_NOT_SUPPORTED),
    })
}

pub fn created_disconnected(system: &dyn System) -> Result<()> {
    inside(system, |process, room| {
        let queue = RingQueue::new(room, 0, RING)?;
        same("status", queue.status()?, RETRY)?;
        process.store(queue.bell.doorbell, 1).context("the doorbell is mapped")?;
        process.store(queue.bell.last_queued, 0).context("the last queued value is mapped")?;
        same("status", queue.status()?, RETRY)?;
        same("no secondary address", queue.bell.secondary, 0)
    })
}

pub fn connect(system: &dyn System) -> Result<()> {
    inside(system, |process, room| {
        let queue = RingQueue::new(room, 0, RING)?;
        process.store(queue.bell.doorbell + 8, 0x5EED).context("the dummy page")?;
        queue.connect()?;
        ensure!(is_connected(&queue)?, "status {}", queue.status()?);
        for word in (0..4096).step_by(8) {
            same("a word of the physical doorbell's page", process.load(queue.bell.doorbell + word)?, 0)?;
        }
        queue.run(&[])?;
        // Connecting a connected doorbell changes nothing.
        queue.connect()?;
        ensure!(is_connected(&queue)?, "status {}", queue.status()?);
        Ok(())
    })
}

pub fn addresses_stay(system: &dyn System) -> Result<()> {
    inside(system, |process, room| {
        let (queue, other) = (RingQueue::new(room, 0, RING)?, RingQueue::new(room, 0, RING)?);
        let target = room.memory(4096)?;
        for round in 1..=100 {
            queue.connect()?;
            let progress = queue.submit_through(&[store(target.gpu, round)])?;
            queue.wait(progress)?;
            same("memory", process.load(target.cpu)?, round)?;
            same("last queued value", process.load(queue.bell.last_queued)?, progress)?;
            // There is one physical doorbell.
            other.connect()?;
            same("status at its address", queue.status()?, RETRY)?;
        }
        Ok(())
    })
}

pub fn victim(system: &dyn System) -> Result<()> {
    inside(system, |process, room| {
        let first = RingQueue::connected(room, 0, RING)?;
        let second = RingQueue::new(room, 0, RING)?;
        second.connect()?;
        same("the first's status", first.status()?, RETRY)?;
        ensure!(is_connected(&second)?, "the second's status {}", second.status()?);
        // What the first rings with does not reach the second's page.
        let before = process.load(second.bell.doorbell)?;
        process.store(first.bell.doorbell, 0xDEAD)?;
        same("the second's page", process.load(second.bell.doorbell)?, before)?;
        // Both work, the doorbell goes back and forth.
        for _ in 0..10 {
            for queue in [&first, &second] {
                queue.run(&[])?;
            }
        }
        same("progress", (first.progress()?, second.progress()?), (10, 10))
    })
}

pub fn notify_anyway(system: &dyn System) -> Result<()> {
    inside(system, |process, room| {
        let queue = RingQueue::connected(room, 0, RING)?;
        let (a, b) = (room.memory(4096)?, room.memory(4096)?);
        // A mark moves by a word each time.
        process.store(a.cpu, 1)?;
        let there = Copy { source: a.gpu, destination: b.gpu + 8, length: 4088 }.to_packet();
        let back = Copy { source: b.gpu, destination: a.gpu, length: 4096 }.to_packet();
        queue.notify().context("with nothing to do")?;
        for round in 1..=30 {
            let progress = queue.submit_through(&[there, back])?;
            queue.notify()?;
            queue.wait(progress)?;
            queue.notify()?;
            for word in 0..512 {
                let mark = u64::from(word == round);
                same("a word that the executions move on", process.load(a.cpu + word * 8)?, mark)?;
            }
        }
        Ok(())
    })
}

pub fn no_kernel_way(system: &dyn System) -> Result<()> {
    inside(system, |_, room| {
        let queue = RingQueue::connected(room, 0, RING)?;
        let buffer = room.memory(4096)?;
        denied("submission", room.submit(queue.queue.handle, buffer.gpu, 8, 1), STATUS_INVALID_PARAMETER)?;
        queue.run(&[])
    })
}

pub fn no_doorbell(system: &dyn System) -> Result<()> {
    inside(system, |_, room| {
        let queue = room.queue(0, false)?;
        let (ring, control) = (room.memory(4096)?, room.memory(4096)?);
        denied("a doorbell", room.bell(queue.handle, &ring, &control), STATUS_INVALID_PARAMETER)
    })
}

pub fn second(system: &dyn System) -> Result<()> {
    inside(system, |_, room| {
        let queue = RingQueue::connected(room, 0, RING)?;
        let ring = room.memory(4096)?;
        denied("a second doorbell", room.bell(queue.queue.handle, &ring, &queue.control), STATUS_INVALID_PARAMETER)?;
        queue.run(&[])?;
        // Once it is gone there may be another.
        queue.destroy_bell()?;
        room.bell(queue.queue.handle, &queue.ring, &queue.control).context("another")?;
        Ok(())
    })
}

pub fn no_control(system: &dyn System) -> Result<()> {
    inside(system, |_, room| {
        let queue = room.queue(0, true)?;
        let (ring, control) = (room.memory(4096)?, room.memory(4096)?);
        denied("without control", room.bell_of(queue.handle, &ring, &control, 0), STATUS_INVALID_PARAMETER)?;
        room.bell(queue.handle, &ring, &control).context("a good one")?;
        Ok(())
    })
}

pub fn wrap(system: &dyn System) -> Result<()> {
    inside(system, |process, room| {
        // 48 bytes a submission: the end falls into packets, headers and bodies alike.
        let queue = RingQueue::connected(room, 0, RING)?;
        let target = room.memory(4096)?;
        for round in 1..=300 {
            queue.run(&[store(target.gpu, round)])?;
            same("memory", process.load(target.cpu)?, round)?;
        }
        // A submission as large as the ring.
        let room_left = 4096 - 24;
        let mut nop = vec![0; room_left];
        nop[..8].copy_from_slice(&Encoded::nop(u32::try_from(room_left)?).as_bytes()[..8]);
        room.until("retirement", || Ok(queue.retired()? == queue.written.get()))?;
        queue.write(&nop)?;
        queue.run(&[])
    })
}

pub fn bad_pointer(system: &dyn System) -> Result<()> {
    inside(system, |process, good_room| {
        let good = RingQueue::connected(good_room, 0, RING)?;
        // Behind 240 consumed bytes of a ring of 4096.
        for (what, pointer) in
            [("misaligned", 244), ("backwards", 8), ("too far", 240 + 4096 + 8), ("far beyond", u64::MAX - 7)]
        {
            let room = Room::new(system, process)?;
            let bad = RingQueue::connected(&room, 0, RING)?;
            for _ in 0..10 {
                bad.run(&[])?;
            }
            room.until("retirement", || Ok(bad.retired()? == 240))?;
            bad.tell(11)?;
            bad.publish_as(pointer)?;
            bad.ring()?;
            let lost = D3DKMT_DEVICEEXECUTION_STATE::D3DKMT_DEVICEEXECUTION_ERROR_DMAPAGEFAULT;
            room.until(what, || Ok(room.state()? == lost))?;
            let kind = process.load(bad.control.cpu + FAULT_KIND)?;
            same("the reported fault", kind, FaultKind::BadWritePointer.raw().into())?;
            room.until("ABORT", || Ok(bad.status()? == ABORT))?;
            good.run(&[]).context("the other device")?;
            ensure!(good_room.is_active()?, "the other device is lost");
        }
        Ok(())
    })
}

pub fn not_resident(system: &dyn System) -> Result<()> {
    inside(system, |_, room| {
        let queue = room.queue(0, true)?;
        let (ring, control) = (room.memory(4096)?, room.memory(4096)?);
        for (what, evicted) in
            [("the ring", &[ring][..]), ("the control words", &[control]), ("both", &[ring, control])]
        {
            evicted.iter().try_for_each(|memory| room.evict(memory.handle))?;
            room.settle()?;
            denied(what, room.bell(queue.handle, &ring, &control), STATUS_INVALID_PARAMETER)?;
            evicted.iter().try_for_each(|memory| room.make_resident(memory.handle))?;
        }
        room.bell(queue.handle, &ring, &control).context("a doorbell of what is resident")?;
        Ok(())
    })
}

pub fn destroyed_under(system: &dyn System) -> Result<()> {
    inside(system, |process, room| {
        let queue = RingQueue::connected(room, 0, RING)?;
        let memory = room.memory(4096)?;
        for ring in [queue.ring.handle, queue.control.handle] {
            room.destroy(ring)?;
            denied("its handle, again", room.destroy(ring), STATUS_INVALID_PARAMETER)?;
        }
        room.settle()?;
        for value in 1..=3 {
            queue.run(&[store(memory.gpu, value)])?;
            same("memory", process.load(memory.cpu)?, value)?;
        }
        queue.destroy_bell()?;
        let again = room.bell(queue.queue.handle, &queue.ring, &queue.control);
        denied("a doorbell of what is gone", again, STATUS_INVALID_PARAMETER)
    })
}
