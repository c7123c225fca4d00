//! What a reset has ended asks for no second one, and owes nothing.

use dxgkrnl_model::adapter::{Reason, What};
use dxgkrnl_model::personality::{Gate, Personality};
use dxgkrnl_model::process::End;
use nt_model::Machine;
use wddm_abi::NTSTATUS;

use crate::client::Client;
use crate::tour::{self, Ended};
use crate::toy::Options;
use crate::toy::gpu::opcode;

/// Plays what a client does with this toy; what was recovered, and why.
fn play(
    options: Options,
    windows: Personality,
    act: impl FnOnce(&Client<'_>) -> Result<(), NTSTATUS>,
) -> (Ended, Vec<(What, Reason)>) {
    let mut recoveries = Vec::new();
    let all = &mut recoveries;
    let ended = tour::play(options, windows, 1, move |os, _| {
        let process = os.create_process("once.exe");
        let result = Client::new(os, &process).and_then(|client| act(&client));
        *all = os.adapters().swap_remove(0).recoveries();
        process.end(End::Normal);
        result.map_err(|status| format!("{status:?}"))
    });
    (ended, recoveries.iter().map(|one| (one.what, one.reason)).collect())
}

/// Two queues whose faults ask for a reset of the adapter, in one interrupt: the reset that the first has brought about
/// has ended what the second is about.
#[test]
fn two_faults_at_once_reset_the_adapter_once() {
    let options = Options { faults_reset_all: true, ..Options::default() };
    for seed in 7..17 {
        let (ended, recoveries) = play(options, tour::windows().seeded(seed), |client| {
            let (one, two) = (client.device()?, client.device()?);
            let fence = one.native_fence()?;
            let mut lost = Vec::new();
            for device in [&one, &two] {
                let (queue, commands) = (device.queue(true)?, device.memory(4096, 0)?);
                let mut ring = device.ring(queue)?;
                let words = [opcode::WAIT, fence.gpu, 1, fence.handle.into(), opcode::WRITE, 0x10_0000_0000, 1];
                device.ring_up(&mut ring, commands, 0, &words)?;
                lost.push(ring);
            }
            client.pass(3);
            one.signal(fence.handle, 1)?;
            one.lost()?;
            two.lost()?;
            client.pass(10);
            one.destroy()?;
            two.destroy()
        });
        crate::assert_clean(&ended, &format!("seed {seed}"));
        assert_eq!(recoveries, [(What::Adapter, Reason::AdapterFault)], "seed {seed}");
    }
}

/// An entry of the scheduling log asks for an interrupt, and the engine hangs before that is raised: a reset of the
/// engine, or of the adapter, ends what is owed.
#[test]
fn a_reset_ends_the_interrupt_that_a_log_owes() {
    for (engine, seed) in (7..12).flat_map(|seed| [(true, seed), (false, seed)]) {
        let options = Options { log_waits: true, engine_reset: engine, ..Options::default() };
        let mut windows = tour::windows().seeded(seed);
        windows.scheduling_log_entries = 1;
        let (ended, recoveries) = play(options, windows, |client| {
            let (hangs, other) = (client.device()?, client.device()?);
            let commands = hangs.memory(4096, 0)?;
            let queue = hangs.queue(false)?;
            commands.write(0, &[opcode::HANG]);
            if !engine {
                // The packet's time is over before the queue's.
                let theirs = other.memory(4096, 0)?;
                theirs.write(0, &[opcode::HANG]);
                other.submit(other.context()?, theirs.gpu, 8)?;
                client.pass(150);
            }
            hangs.submit_to_queue(queue, commands.gpu, 8, 1)?;
            hangs.lost()?;
            hangs.destroy()?;
            other.destroy()
        });
        crate::assert_clean(&ended, &format!("engine {engine}, seed {seed}"));
        let last = if engine { What::HwEngine { node: 0 } } else { What::Adapter };
        assert_eq!(recoveries.last().map(|(what, _)| *what), Some(last), "seed {seed}");
    }
}

/// Two engines hang, and two threads find out: the resets of both fail, and the adapter's, which both want then, is
/// one.
#[test]
fn two_engines_that_cannot_be_reset_reset_the_adapter_once() {
    let options = Options { engines: 2, resets_fail: true, ..Options::default() };
    // Around the time at which both find out at once, more often; and so that both have failed before the adapter's
    // reset begins.
    let steps = (0..20).map(|step| (step * 10, step as u64, false)).chain((0..30).map(|seed| (100, seed, false)));
    for (wait, seed, meet) in steps.chain((0..3).map(|seed| (100, seed, true))) {
        let mut windows = tour::windows().seeded(seed);
        let gate = Gate::default();
        windows.gates.promotion = meet.then(|| gate.clone());
        let (ended, recoveries) = play(options, windows, |client| {
            if meet {
                let kernel = client.os.kernel();
                kernel.spawn_system_thread("lets through", move || {
                    let delay =
                        || Machine::with_current(|machine| machine.map(|machine| machine.delay_execution(-10_000)));
                    while gate.came() < 2 && delay().is_some_and(|status| status == 0) {}
                    gate.let_through();
                });
            }
            let mut far = client.device()?;
            far.affinity = 2;
            let commands = far.memory(4096, 0)?;
            commands.write(0, &[opcode::HANG]);
            let queue = far.queue(false)?;
            far.submit_to_queue(queue, commands.gpu, 8, 1)?;
            let theirs = client.os.create_process("other.exe");
            let other = Client::new(client.os, &theirs)?;
            let device = other.device()?;
            let memory = device.memory(4096, 0)?;
            memory.write(0, &[opcode::HANG]);
            let hung = device.queue(false)?;
            device.submit_to_queue(hung, memory.gpu, 8, 1)?;
            // The watch looks at the one, and the end of a process waits for the other to come off.
            client.pass(wait);
            drop(other);
            theirs.end(End::Terminated);
            far.lost()?;
            client.pass(50);
            far.destroy()
        });
        crate::assert_clean(&ended, &format!("{wait} ms, seed {seed}"));
        let adapters = recoveries.iter().filter(|(what, _)| *what == What::Adapter).count();
        assert_eq!(adapters, 1, "{wait} ms, seed {seed}: {recoveries:?}");
    }
}
