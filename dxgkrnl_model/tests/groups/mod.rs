//! A packet node whose reset takes a hardware-scheduled one along.

use dxgkrnl_model::adapter::{Reason, Recovery, Step, What};
use dxgkrnl_model::os::Os;
use dxgkrnl_model::personality::{Departure, Personality};
use dxgkrnl_model::process::End;
use wddm_abi::NTSTATUS;
use wddm_abi::ntstatus::STATUS_SUCCESS;

use crate::client::{Client, Device};
use crate::tour::{self, Ended};
use crate::toy::Options;
use crate::toy::gpu::opcode;

/// Plays what a client does with a toy whose nodes depend on each other, and returns what was recovered.
fn play(windows: Personality, act: impl FnOnce(&Client<'_>) -> Result<(), NTSTATUS>) -> (Ended, Vec<Recovery>) {
    let mut recoveries = Vec::new();
    let all = &mut recoveries;
    let ended = tour::play(Options { dependent: true, ..Options::default() }, windows, 1, move |os: &Os, _| {
        let process = os.create_process("group.exe");
        let result = Client::new(os, &process).and_then(|client| act(&client));
        *all = os.adapters().swap_remove(0).recoveries();
        process.end(End::Normal);
        result.map_err(|status| format!("{status:?}"))
    });
    (ended, recoveries)
}

/// Hangs the packet node.
fn hang(device: &Device<'_>) -> Result<(), NTSTATUS> {
    let commands = device.memory(4096, 0)?;
    commands.write(0, &[opcode::HANG]);
    device.submit(device.context()?, commands.gpu, 8)
}

/// Each node of the group takes work again.
fn works(client: &Client<'_>) -> Result<(), NTSTATUS> {
    let device = client.device()?;
    let commands = device.memory(4096, 0)?;
    commands.write(0, &[opcode::WRITE, commands.gpu + 256, 77]);
    let (context, fence) = (device.context()?, device.monitored_fence()?);
    device.submit(context, commands.gpu, 24)?;
    device.signal_behind(context, fence.handle, 1)?;
    device.wait(fence.handle, 1)?;
    let queue = device.queue(false)?;
    device.submit_to_queue(queue, commands.gpu, 24, 1)?;
    device.wait(queue.progress, 1)?;
    device.destroy_fence(fence.handle)?;
    device.destroy()
}

fn whys(recoveries: &[Recovery]) -> Vec<(What, Reason)> {
    recoveries.iter().map(|one| (one.what, one.reason)).collect()
}

/// The node that depends comes off what it runs, which is suspended for the time of the reset, and goes on behind it.
#[test]
fn a_hardware_scheduled_node_that_depends_comes_off_and_goes_on() {
    for seed in 7..12 {
        let (ended, recoveries) = play(tour::windows().seeded(seed), |client| {
            let (hangs, waits) = (client.device()?, client.device()?);
            let commands = waits.memory(4096, 0)?;
            let fence = waits.native_fence()?;
            let queue = waits.queue(true)?;
            let mut ring = waits.ring(queue)?;
            // Half of its work lies behind the reset.
            let words = [opcode::WAIT, fence.gpu, 1, fence.handle.into(), opcode::WRITE, commands.gpu + 512, 6];
            let value = waits.ring_up(&mut ring, commands, 0, &words)?;
            hang(&hangs)?;
            hangs.lost()?;
            waits.signal(fence.handle, 1)?;
            // At once: no look of the watch has to find it off the run list.
            client.pass(20);
            assert_eq!(commands.read(512), 6, "seed {seed}");
            waits.wait(queue.progress, value)?;
            waits.destroy()?;
            hangs.destroy()?;
            works(client)
        });
        crate::assert_clean(&ended, &format!("seed {seed}"));
        assert_eq!(whys(&recoveries), [(What::PacketEngine { node: 1 }, Reason::Preemption)], "seed {seed}");
        let at = |step: Step| recoveries[0].steps.iter().position(|one| *one == step);
        let order = [at(Step::Dependents(0b11)), at(Step::DependentIdle(0)), at(Step::DebugInfo(0x141))];
        assert!(order.iter().all(Option::is_some) && order.is_sorted(), "seed {seed}: {}", recoveries[0]);
        let toy = ended.toy.expect("a toy");
        assert_eq!((toy.counted("reset engine"), toy.counted("reset hw engine")), (1, 0), "seed {seed}");
    }
}

/// The packet node hangs, and then the one that depends on it.
fn both(windows: Personality) -> (Ended, Vec<Recovery>) {
    play(windows, |client| {
        let (first, second, innocent) = (client.device()?, client.device()?, client.device()?);
        let commands = second.memory(4096, 0)?;
        let theirs = innocent.memory(4096, 0)?;
        let (queue, behind) = (second.queue(true)?, innocent.queue(true)?);
        let (mut ring, mut ring_behind) = (second.ring(queue)?, innocent.ring(behind)?);
        hang(&first)?;
        // So late that it is the packet's time that is over first.
        client.pass(150);
        second.ring_up(&mut ring, commands, 0, &[opcode::HANG])?;
        client.pass(5);
        let words = [opcode::WRITE, theirs.gpu + 256, 6];
        let value = innocent.ring_up(&mut ring_behind, theirs, 0, &words)?;
        first.lost()?;
        second.lost()?;
        innocent.wait(behind.progress, value)?;
        for device in [first, second, innocent] {
            device.destroy()?;
        }
        works(client)
    })
}

/// The node that depends does not come off: it is reset behind the one that it depends on, as the nodes of its kind
/// are.
#[test]
fn a_hardware_scheduled_node_that_depends_and_hangs_is_reset_behind_the_other() {
    let group = [(What::PacketEngine { node: 1 }, Reason::Preemption), (What::HwEngine { node: 0 }, Reason::Dependent)];
    for seed in 7..12 {
        let (ended, recoveries) = both(tour::windows().seeded(seed));
        crate::assert_clean(&ended, &format!("seed {seed}"));
        assert_eq!(whys(&recoveries), group, "seed {seed}");
        let [first, second] = recoveries.as_slice() else { unreachable!("compared") };
        assert!(first.has(|step| *step == Step::Dependents(0b11)), "seed {seed}: {first}");
        assert!(!first.has(|step| matches!(step, Step::DependentIdle(_))), "seed {seed}: {first}");
        assert!(second.has(|step| *step == Step::ResetHwEngine(STATUS_SUCCESS, 1)), "seed {seed}: {second}");
        let toy = ended.toy.expect("a toy");
        assert_eq!((toy.counted("reset engine"), toy.counted("reset hw engine")), (1, 1), "seed {seed}");
        // An OS that leaves it to its own timeout is told from one that does not.
        let mut windows = tour::windows().seeded(seed);
        windows.faults.departure = Some(Departure::LeavesDependents);
        let (_, recoveries) = both(windows);
        assert_ne!(whys(&recoveries), group, "seed {seed}");
    }
}
