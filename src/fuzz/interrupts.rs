//! A process whose every packet asks for an interrupt. Nothing forbids it; the good process must get on all the same,
//! and there may be no more interrupts than were asked for.

use super::Round;
use super::dice::Dice;
use super::machine::{beside, play as on_a_machine, setup};
use crate::scenario::{Played, Raw, RingQueue, Room, Scene};
use anyhow::ensure;
use gpu_wire::GpuVa;
use gpu_wire::packet::{Encoded, Fill, MonitoredSignal};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Signals in one submission.
const BURST: u64 = 500;

/// So many signals of one submission have an interrupt between them, at most: engines gather those of a turn.
const FEW: u64 = 50;

/// Interrupts that are not a signal's: of what the OS makes the driver do (suspensions, paging, the good process).
const OTHERS: u64 = 2000;

/// A storm on each engine, a good process on each.
pub fn play(round: &Round) -> Played {
    on_a_machine(round, setup(), |scene| {
        let signals = AtomicU64::new(0);
        let hostile =
            |scene: &Scene, raw: &Raw, dice: &mut Dice, stop: &AtomicBool| storm(scene, raw, dice, stop, &signals);
        let before = scene.interrupts();
        beside(round, scene, &[0, 1], 2, &hostile, std::thread::yield_now)?;
        let (signals, interrupts) = (signals.into_inner(), scene.interrupts() - before);
        round.coverage.count("storm: signals", signals);
        round.coverage.count("storm: interrupts", interrupts);
        let others = OTHERS + round.coverage.reached("victim: submissions");
        ensure!(interrupts <= signals / FEW + others, "{interrupts} interrupts for {signals} signals");
        Ok(())
    })
}

fn storm(scene: &Scene, raw: &Raw, dice: &mut Dice, stop: &AtomicBool, signals: &AtomicU64) -> Played {
    let room = Room::new(raw)?;
    // CAST: 0 or 1.
    let queue = RingQueue::connected(scene, &room, dice.below(2) as u32, 64 << 10)?;
    let memory = room.memory(scene, 4096)?;
    // In turns: what follows from signals of one fence is drawn once for many.
    let fences = [raw.native_fence(room.device, 0)?, raw.native_fence(room.device, 0)?];
    let mut signaled = 0;
    while !stop.load(Ordering::Acquire) {
        // Signals of a monitored fence; the same with a small operation behind each; signals of native fences that no
        // CPU waits for.
        let fill = Fill { address: memory.gpu + 64, length: 4, pattern: 0, reserved: 0 }.to_packet();
        let kind = dice.below(3);
        let packets: Vec<_> = (1..=BURST)
            .flat_map(|value| match kind {
                // CAST: 0 or 1.
                2 => {
                    let fence = &fences[value as usize % 2];
                    [Some(Encoded::fence_signal(GpuVa(fence.gpu), signaled + value)), None]
                }
                _ => {
                    let signal = MonitoredSignal { address: memory.gpu, value }.to_packet();
                    [Some(signal), (kind == 1).then_some(fill)]
                }
            })
            .flatten()
            .collect();
        signaled += BURST;
        signals.fetch_add(BURST, Ordering::Relaxed);
        let progress = queue.submit_through(&packets)?;
        queue.wait(scene, progress)?;
    }
    Ok(())
}
