//! A root page table of two levels grows under a process that works (case RP-16): what was mapped stays mapped, and
//! each context follows.

use dxgkrnl_model::os::Os;
use dxgkrnl_model::process::End;
use wddm_abi::NTSTATUS;

use crate::assert_clean;
use crate::client::Client;
use crate::tour::{play, windows};
use crate::toy::gpu::opcode;
use crate::toy::{Options, Toy};

/// Addresses of 2 MiB each that a page of the root covers, in bytes.
const PAGE_OF_ROOT: u64 = 512 << 21;

fn ensure(holds: bool, what: &str) -> Result<(), String> {
    if holds { Ok(()) } else { Err(what.to_owned()) }
}

fn go(os: &Os, toy: &Toy) -> Result<(), String> {
    let text = |what: &'static str| move |status: NTSTATUS| format!("{what}: {status:?}");
    let process = os.create_process("roots.exe");
    let result = (|| {
        let client = Client::new(os, &process).map_err(text("client"))?;
        let device = client.device().map_err(text("device"))?;
        let commands = device.memory(4096, 0).map_err(text("commands"))?;
        let target = device.memory(4096, 0).map_err(text("target"))?;
        let context = device.context().map_err(text("context"))?;
        let fence = device.monitored_fence().map_err(text("fence"))?;
        let queue = device.queue(true).map_err(text("queue"))?;
        let mut ring = device.ring(queue).map_err(text("doorbell"))?;
        let gate = device.native_fence().map_err(text("gate"))?;
        let mut places = vec![target.gpu];
        // The context's companion changes page tables in a space of its own, before a root is replaced and behind it.
        let tile = |value: u64| -> Result<(), String> {
            let updated = device.monitored_fence().map_err(text("fence"))?;
            let at = device.map_tile(context.handle, updated.handle, target.handle).map_err(text("tile"))?;
            commands.write(3072, &[opcode::WRITE, at + 24, value]);
            device.submit(context, commands.gpu + 3072, 24).map_err(text("submit"))?;
            device.signal_behind(context, updated.handle, 2).map_err(text("signal behind"))?;
            device.wait(updated.handle, 2).map_err(text("the tile's packet"))?;
            device.destroy_fence(updated.handle).map_err(text("destroy"))?;
            ensure(target.read(24) == value, &format!("the store of {value} by a tile"))
        };
        tile(1)?;
        for step in 1..=3_u64 {
            // A wait that is not met, and behind it a store, are with the queue.
            let words = [opcode::WAIT, gate.gpu, step, gate.handle.into(), opcode::WRITE, target.gpu + 8, step];
            let value = device.ring_up(&mut ring, commands, 1024, &words).map_err(text("ring"))?;
            // Packets are with the driver as well, or about to be.
            commands.write(2048, &[opcode::WRITE, target.gpu + 16, step]);
            for _ in 0..20 {
                device.submit(context, commands.gpu + 2048, 24).map_err(text("submit"))?;
            }
            let before = toy.counted("another root");
            // The third is covered by what the second asked for.
            let high = device.map_at(target.handle, step * PAGE_OF_ROOT + (7 << 21)).map_err(text("map"))?;
            let moved = toy.counted("another root") - before;
            let wanted = if step < 3 { 2 } else { 0 };
            if (high, moved) != (step * PAGE_OF_ROOT + (7 << 21), wanted) {
                return Err(format!("step {step}: mapped at {high:#x}, {moved} contexts have another root"));
            }
            places.push(high);
            tile(100 + step)?;
            device.signal(gate.handle, step).map_err(text("signal"))?;
            device.wait(queue.progress, value).map_err(text("the queue"))?;
            if target.read(8) != step {
                return Err(format!("step {step}: the queue's store"));
            }
            for (number, place) in places.iter().enumerate() {
                let value = step * 100 + number as u64;
                commands.write(0, &[opcode::WRITE, *place, value]);
                device.submit(context, commands.gpu, 24).map_err(text("submit"))?;
                device.signal_behind(context, fence.handle, value).map_err(text("signal behind"))?;
                device.wait(fence.handle, value).map_err(text("the packet"))?;
                if target.read(0) != value {
                    return Err(format!("step {step}: a store to {place:#x}"));
                }
            }
        }
        // One that is made now has the root that there is.
        let late = device.context().map_err(text("a later context"))?;
        commands.write(0, &[opcode::WRITE, places[3], 1]);
        device.submit(late, commands.gpu, 24).map_err(text("submit"))?;
        device.signal_behind(late, fence.handle, 1000).map_err(text("signal behind"))?;
        device.wait(fence.handle, 1000).map_err(text("the later packet"))?;
        device.destroy().map_err(text("destroy"))
    })();
    process.end(End::Normal);
    result
}

#[test]
fn a_root_of_two_levels_grows_under_work() {
    for seed in 0..5 {
        let options = Options { two_levels: true, ..Options::default() };
        let ended = play(options, windows().seeded(seed), 1, |os, toy| go(os, toy));
        assert_clean(&ended, &format!("seed {seed}"));
    }
}
