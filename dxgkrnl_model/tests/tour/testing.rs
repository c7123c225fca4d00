//! Kernel-mode testing, as Microsoft's tests use it.

use wddm_abi::{D3DDDI_TESTCOMMANDBUFFER, D3DDDI_TESTCOMMANDBUFFEROP, NTSTATUS};

use super::expect;
use crate::client::Device;

pub fn copy(source: u64, target: u64, bytes: u32) -> D3DDDI_TESTCOMMANDBUFFER {
    let mut command = D3DDDI_TESTCOMMANDBUFFER::zeroed();
    command.Operation = D3DDDI_TESTCOMMANDBUFFEROP::D3DDDI_TESTCOMMANDBUFFEROP_COPY;
    let copy = command.Copy_mut();
    (copy.SrcAddress, copy.DstAddress, copy.NumBytes) = (source, target, bytes);
    command
}

pub fn fill(target: u64, bytes: u32, pattern: u32) -> D3DDDI_TESTCOMMANDBUFFER {
    let mut command = D3DDDI_TESTCOMMANDBUFFER::zeroed();
    command.Operation = D3DDDI_TESTCOMMANDBUFFEROP::D3DDDI_TESTCOMMANDBUFFEROP_FILL;
    let fill = command.Fill_mut();
    (fill.DstAddress, fill.NumBytes, fill.Pattern) = (target, bytes, pattern);
    command
}

/// Has both nodes fill and copy memory that the driver knows nothing of.
pub fn visit(device: &Device<'_>) -> Result<(), NTSTATUS> {
    if !device.client.os.personality().test_signing {
        return Ok(());
    }
    let commands = device.memory(4096, 0)?;
    let seen = device.memory(0x1_0000, 0)?;
    let hidden = device.resident(device.standard_memory(0x1_0000)?)?;
    let context = device.test_context(1, false)?;
    let fence = device.monitored_fence()?;
    let steps = [fill(hidden.gpu, 0x1_0000, 0x1234_5678), copy(hidden.gpu, seen.gpu, 0x1_0000)];
    for (step, command) in steps.iter().enumerate() {
        let built = device.build((context.handle, false), command)?;
        commands.store(step * 512, &built.buffer);
        device.submit_built(context, commands.gpu + step as u64 * 512, &built)?;
        device.signal_behind(context, fence.handle, step as u64 + 1)?;
        device.wait(fence.handle, step as u64 + 1)?;
    }
    expect(seen.read(0xFFF8), 0x1234_5678_1234_5678)?;
    // What is paged out and in again is still there, whatever the driver knows of it.
    device.evict(hidden.handle)?;
    device.make_resident(hidden.handle)?;
    seen.write(0, &[0]);
    let built = device.build((context.handle, false), &copy(hidden.gpu, seen.gpu, 8))?;
    commands.store(1024, &built.buffer);
    device.submit_built(context, commands.gpu + 1024, &built)?;
    device.signal_behind(context, fence.handle, 3)?;
    device.wait(fence.handle, 3)?;
    expect(seen.read(0), 0x1234_5678_1234_5678)?;
    device.free(hidden.handle)?;
    // From here on the toy's one context on the packet node is the paging process's.
    device.destroy_context(context)?;
    // The node that schedules itself, if it builds tests in this Windows.
    let Ok(context) = device.test_context(0, true) else { return device.destroy_fence(fence.handle) };
    let queue = device.test_queue(context)?;
    let built = device.build((queue.handle, true), &fill(seen.gpu, 4096, 7))?;
    commands.store(2048, &built.buffer);
    device.submit_to_queue(queue, commands.gpu + 2048, built.buffer.len() as u32, 1)?;
    device.wait(queue.progress, 1)?;
    expect(seen.read(0), 7 << 32 | 7)?;
    device.destroy_fence(fence.handle)
}
