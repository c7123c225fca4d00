//! Two adapters that know one fence, and the engines of a link.

use wddm_abi::NTSTATUS;

use super::{kernel_queue, packets, user_queue};
use crate::client::{Client, Device};
use crate::toy::gpu::opcode;

pub fn two_adapters(device: &Device<'_>) -> Result<(), NTSTATUS> {
    let client = device.client;
    let second = Client::on(client.os, client.process, 1)?;
    let other = second.device()?;
    let (fence, shared) = device.cross_adapter_fence()?;
    let opened = other.open_fence(shared)?;
    // A queue of the first adapter waits for the CPU on the second, then signals, which the second's queue waits for.
    let (here, there) = (device.memory(4096, 0)?, other.memory(4096, 0)?);
    let (queue, waiter) = (device.queue(true)?, other.queue(true)?);
    let (mut ring, mut ring_there) = (device.ring(queue)?, other.ring(waiter)?);
    let words = [opcode::WAIT, fence.gpu, 5, fence.handle.into(), opcode::SIGNAL, fence.gpu, 9, fence.handle.into()];
    let value = device.ring_up(&mut ring, here, 0, &words)?;
    let words = [opcode::WAIT, opened.gpu, 9, opened.handle.into()];
    let value_there = other.ring_up(&mut ring_there, there, 0, &words)?;
    client.pass(3);
    other.signal(opened.handle, 5)?;
    device.wait(queue.progress, value)?;
    other.wait(waiter.progress, value_there)?;
    other.wait(opened.handle, 9)?;
    other.destroy_fence(opened.handle)?;
    drop(client.process.nt().close_handle(shared.expose_provenance() as u64));
    device.destroy_fence(fence.handle)?;
    // What is stored late is stored by then.
    client.pass(20);
    other.destroy()
}

/// A device of its own, whose contexts are on the last engine.
fn far<'a>(device: &Device<'a>) -> Result<Device<'a>, NTSTATUS> {
    let mut far = device.client.device()?;
    let toys = device.client.os.adapters();
    far.affinity = toys.first().map_or(1, |adapter| 1 << (adapter.engines() - 1));
    Ok(far)
}

pub fn linked(device: &Device<'_>) -> Result<(), NTSTATUS> {
    let worker = far(device)?;
    packets(&worker)?;
    kernel_queue(&worker)?;
    user_queue(&worker)?;
    worker.destroy()?;
    // A hang of a packet, then one of a queue; what is on engine 0 goes on meanwhile, unless that is the one.
    for in_queue in [false, true] {
        let guilty = far(device)?;
        let commands = guilty.memory(4096, 0)?;
        commands.write(0, &[opcode::HANG]);
        if in_queue {
            let queue = guilty.queue(false)?;
            guilty.submit_to_queue(queue, commands.gpu, 8, 1)?;
        } else {
            let context = guilty.context()?;
            guilty.submit(context, commands.gpu, 8)?;
        }
        device.client.pass(5);
        if guilty.affinity != 1 {
            kernel_queue(device)?;
            let beside = device.context()?;
            let fence = device.monitored_fence()?;
            device.signal_behind(beside, fence.handle, 1)?;
            device.wait(fence.handle, 1)?;
            device.destroy_fence(fence.handle)?;
        }
        guilty.lost()?;
        guilty.destroy()?;
    }
    packets(device)?;
    let after = far(device)?;
    packets(&after)?;
    kernel_queue(&after)?;
    after.destroy()
}
