//! Calls that name several objects: waits and signals of contexts, and on whom they are queued; an allocation that is
//! named beside a range. A call that fails has done nothing.

use dxgkrnl_model::personality::Personality;
use dxgkrnl_model::process::End;
use nt_model::InterruptDelivery;
use wddm_abi::NTSTATUS;
use wddm_abi::ntstatus::{STATUS_DATA_ERROR, STATUS_DEVICE_REMOVED, STATUS_INVALID_PARAMETER};

use crate::client::{Client, Device, Fence};
use crate::toy::Options;
use crate::toy::gpu::opcode;
use crate::{assert_clean, tour};

fn expect(holds: bool) -> Result<(), NTSTATUS> {
    if holds { Ok(()) } else { Err(STATUS_DATA_ERROR) }
}

#[track_caller]
fn play(act: impl Fn(&Client<'_>) -> Result<(), NTSTATUS>) {
    play_on(tour::windows(), act);
}

#[track_caller]
fn play_on(windows: Personality, act: impl Fn(&Client<'_>) -> Result<(), NTSTATUS>) {
    let ended = tour::play(Options::default(), windows, 1, |os, _| {
        let process = os.create_process("named.exe");
        let result = Client::new(os, &process).and_then(|client| act(&client));
        process.end(End::Normal);
        result.map_err(|status| format!("{status:?}"))
    });
    assert_clean(&ended, "named");
}

fn in_device(act: impl Fn(&Device<'_>) -> Result<(), NTSTATUS>) {
    play(|client| {
        let device = client.device()?;
        act(&device)?;
        device.destroy()
    });
}

#[test]
fn a_hardware_context_without_queues_signals_at_once() {
    in_device(|device| {
        let context = device.hw_context()?;
        let fence = device.monitored_fence()?;
        device.signal_behind(context, fence.handle, 3)?;
        device.wait(fence.handle, 3)
    });
}

#[test]
fn a_hardware_context_without_queues_signals_behind_its_waits() {
    in_device(|device| {
        let context = device.hw_context()?;
        let (first, second) = (device.monitored_fence()?, device.monitored_fence()?);
        device.wait_before(context, first.handle, 1)?;
        device.signal_behind(context, second.handle, 1)?;
        device.client.pass(5);
        expect(second.word() == 0)?;
        device.signal(first.handle, 1)?;
        device.wait(second.handle, 1)?;
        // A wait that is never met does not keep the device from being destroyed.
        device.wait_before(context, first.handle, 2)?;
        device.signal_behind(context, second.handle, 2)
    });
}

#[test]
fn a_signal_to_a_lost_device_is_on_no_other_queue() {
    play(|client| {
        let (device, lost) = (client.device()?, client.device()?);
        let (context, gone) = (device.context()?, lost.context()?);
        let fence = device.monitored_fence()?;
        let commands = lost.memory(4096, 0)?;
        commands.write(0, &[opcode::WRITE, 0x10_0000_0000, 1]);
        lost.submit(gone, commands.gpu, 24)?;
        lost.lost()?;
        let status = device.broadcast(&[context.handle, gone.handle], fence.handle, 1);
        expect(status == Err(STATUS_DEVICE_REMOVED))?;
        client.pass(5);
        expect(fence.word() == 0)?;
        device.signal_behind(context, fence.handle, 2)?;
        device.wait(fence.handle, 2)?;
        lost.destroy()?;
        device.destroy()
    });
}

#[test]
fn an_allocation_that_a_range_without_access_names_is_one_of_the_device() {
    play(|client| {
        let (device, other) = (client.device()?, client.device()?);
        let (mine, foreign) = (device.memory(4096, 0)?, other.memory(4096, 0)?);
        for handle in [foreign.handle, 0x4000_1234] {
            expect(device.unmap(handle, mine.gpu, 1) == Err(STATUS_INVALID_PARAMETER))?;
        }
        device.unmap(mine.handle, mine.gpu, 1)?;
        other.destroy()?;
        device.destroy()
    });
}

#[test]
fn a_queue_that_is_being_destroyed_is_not_named_in_a_flush() {
    for seed in 0..20 {
        let mut windows = tour::windows().seeded(seed);
        windows.interrupt_delivery = InterruptDelivery::Seeded(seed);
        play_on(windows, |client| {
            let (device, other) = (client.device()?, client.device()?);
            let (queue, going) = (device.queue(true)?, other.queue(true)?);
            let (mut ring, mut ring_going) = (device.ring(queue)?, other.ring(going)?);
            let (commands, there) = (device.memory(4096, 0)?, other.memory(4096, 0)?);
            let (fence, fence_there) = (device.native_fence()?, other.native_fence()?);
            let signal = |fence: Fence, value: u64| [opcode::SIGNAL, fence.gpu, value, fence.handle.into()];
            let first = device.begin_wait(fence.handle, 1)?;
            let second = other.begin_wait(fence_there.handle, 1)?;
            other.ring_up(&mut ring_going, there, 0, &signal(fence_there, 1))?;
            device.ring_up(&mut ring, commands, 0, &signal(fence, 1))?;
            other.destroy()?;
            device.end_wait(&first)?;
            drop(second);
            device.destroy()
        });
    }
}

/// A queue that is late when the reset of its engine for another one has taken longer than TdrDelay: its probe begins
/// behind the reset.
#[test]
fn a_probe_behind_a_long_reset_has_all_of_its_time() {
    let options = Options { reset_takes: 150, slow_start: 50, ..Options::default() };
    let ended = tour::play(options, tour::windows(), 1, |os, _| {
        let process = os.create_process("long.exe");
        let result = Client::new(os, &process).and_then(|client| {
            let (hangs, waits) = (client.device()?, client.device()?);
            let (theirs, mine) = (hangs.memory(4096, 0)?, waits.memory(4096, 0)?);
            let (hung, late) = (hangs.queue(true)?, waits.queue(true)?);
            let (mut ring, mut late_ring) = (hangs.ring(hung)?, waits.ring(late)?);
            hangs.ring_up(&mut ring, theirs, 0, &[opcode::HANG])?;
            // One look of the watch later, so that both are due at one look.
            client.pass(100);
            let value = waits.ring_up(&mut late_ring, mine, 0, &[opcode::WRITE, mine.gpu + 256, 6])?;
            hangs.lost()?;
            waits.wait(late.progress, value)?;
            waits.destroy()
        });
        process.end(End::Normal);
        result.map_err(|status| format!("{status:?}"))
    });
    assert_clean(&ended, "long");
    assert_eq!(ended.report.counts.resets, 1);
}
