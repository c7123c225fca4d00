//! A process that ends soon after the fence that it waits for was signalled.

use wddm_abi::NTSTATUS;

use crate::client::Device;
use crate::toy::gpu::opcode;

/// Has an event set when a queue signals a fence, and looks at it no more.
pub fn visit(device: &Device<'_>) -> Result<(), NTSTATUS> {
    let commands = device.memory(4096, 0)?;
    let fence = device.native_fence()?;
    let queue = device.queue(true)?;
    let mut ring = device.ring(queue)?;
    let _event = device.begin_wait(fence.handle, 1)?;
    device.ring_up(&mut ring, commands, 0, &[opcode::SIGNAL, fence.gpu, 1, fence.handle.into()])?;
    // Long enough for the signal, and no tenth of TdrDelay.
    device.client.pass(8);
    Ok(())
}
