//! A wait that begins while the value is signaled.

use crate::fuzz::dice::Dice;
use crate::scenario::client::{Client, RING, native_interrupts, until_idle};
use crate::scenario::{Played, Scene, Setup, Stage, same};
use anyhow::{Context, ensure};
use dxgkrnl_model::personality::Clock;
use nt_model::sched::seeded::SeededOptions;
use std::time::Duration;

/// The setting with which engines compare with a shadow.
const SHADOW: &str = "ShadowMonitoredValue";

/// Does nothing for about `turns` nanoseconds.
pub(super) fn dawdle(turns: u64) {
    for _ in 0..turns {
        std::hint::spin_loop();
    }
}

/// A queue signals each value while a wait for it begins. Every wait must end; what is lost for the length of TdrDelay
/// breaks a rule, too. One interrupt more per update is tolerated where an update looks again itself.
fn race(scene: &Scene, dice: &mut Dice, rounds: u64, looks_again: bool) -> Played {
    let rig = Client::open(scene, "client")?;
    let (queue, page) = (rig.queue(0)?, rig.page()?);
    let fence = rig.fence(0, true)?;
    let _inside = rig.user.process.enter();
    for round in 1..=rounds {
        let (work, pause) = (dice.below(6), dice.below(3000));
        queue.run(|list| {
            // Delays the engine by a few microseconds each.
            (0..work).try_for_each(|_| list.fill(page.at(0), 4096, 0))?;
            list.signal(&fence, round)
        })?;
        dawdle(pause);
        let wait = rig.wait(&[(&fence, round)], false)?;
        wait.comes(&rig, &format!("round {round}"))?;
        ensure!(rig.value(&fence)? >= round, "round {round}: woken before the value was there");
    }
    let interrupts = native_interrupts(scene).len() as u64;
    // Where an update looks again it interrupts by itself, with the optimized interrupt once for each of three engines.
    let most = if looks_again { rounds * 4 } else { rounds };
    ensure!(interrupts <= most, "{interrupts} interrupts for {rounds} waits");
    Ok(())
}

/// A personality whose interleaving is drawn from `seed`.
fn seeded(setup: Setup, seed: u64) -> Setup {
    // Between its calls the client is outside the machine.
    let options = SeededOptions { closed: false, ..SeededOptions::new(seed) };
    setup.windows(|personality| personality.clock = Clock::Seeded(options.clone()))
}

pub(super) fn begins(stage: &Stage) -> Played {
    let mut dice = Dice::new(stage.seed());
    let shadow = stage.setting(SHADOW) == Some(1);
    for slow in [0, 30] {
        let setup = Setup::default().quick_tdr().windows(|personality| personality.faults.slow_resample = slow);
        stage
            .play(setup, |scene| race(scene, &mut dice, 500, shadow))
            .with_context(|| format!("{slow} yields before the look"))?;
    }
    for seed in 0..12 {
        let seed = stage.seed().wrapping_mul(1000) + seed;
        let setup = seeded(Setup::default(), seed).windows(|personality| personality.faults.slow_resample = 3);
        let played = stage.play(setup, |scene| race(scene, &mut dice, 12, shadow));
        played.with_context(|| format!("schedule of seed {seed}"))?;
    }
    Ok(())
}

pub(super) fn forms(stage: &Stage) -> Played {
    let forms: [&[(&str, u32)]; 7] = [
        &[(SHADOW, 1)],
        &[("LogBarriers", 1)],
        &[(SHADOW, 1), ("LogBarriers", 1)],
        &[("OptimizedInterrupt", 1)],
        &[("NullFenceArray", 1)],
        &[("SingleFenceInterrupt", 1)],
        &[(SHADOW, 1), ("SingleFenceInterrupt", 1)],
    ];
    let mut dice = Dice::new(stage.seed());
    // A stage may have engines with a shadow in every form.
    let forced = stage.setting(SHADOW) == Some(1);
    for form in forms {
        let setting = |setup: Setup, (name, value): &(&str, u32)| setup.setting(name, *value);
        let setup = form.iter().fold(Setup::default().quick_tdr(), setting);
        let setup = setup.windows(|personality| personality.faults.slow_resample = 10);
        stage
            .play(setup, |scene| race(scene, &mut dice, 150, form[0].0 == SHADOW || forced))
            .with_context(|| format!("{form:?}"))?;
    }
    for seed in 0..6 {
        let setup = seeded(Setup::default(), stage.seed().wrapping_mul(1000) + seed).setting(SHADOW, 1);
        let played = stage.play(setup, |scene| race(scene, &mut dice, 12, true));
        played.with_context(|| format!("the shadow under the schedule of seed {seed}"))?;
    }
    Ok(())
}

pub(super) fn leaves(stage: &Stage) -> Played {
    let mut dice = Dice::new(stage.seed());
    stage.play(Setup::default().quick_tdr(), |scene| {
        let rig = Client::open(scene, "client")?;
        let (queue, peek) = (rig.device.queue(0, RING, 0, 0)?, rig.peek()?);
        let fence = rig.fence(0, true)?;
        let handle = fence.info()?.handle;
        for round in 0..150_u64 {
            let (low, high) = (round * 2 + 1, round * 2 + 2);
            let stays = rig.wait(&[(&fence, high)], false)?;
            let device = rig.raw.device()?;
            let (event, nt_handle) = rig.raw.event();
            rig.raw.wait_cpu(device, &[(handle, low)], false, Some(nt_handle))?;
            let (pause, both) = (dice.below(3000), round.is_multiple_of(3));
            queue.run(|list| {
                list.signal(&fence, low)?;
                if both { list.signal(&fence, high) } else { Ok(()) }
            })?;
            dawdle(pause);
            rig.raw.destroy_device(device)?;
            if !both {
                until_idle(scene, &queue)?;
                stays.still_waits(&rig, "the waiter for more")?;
                queue.run(|list| list.signal(&fence, high))?;
            }
            stays.comes(&rig, &format!("round {round}: the waiter that stays"))?;
            // Whether the one that left was woken first is a matter of luck.
            let _ = rig.raw.wait_event(&event, Duration::ZERO);
            rig.raw.close(nt_handle);
            rig.raw.close(stays.handle);
        }
        peek.becomes(scene, &fence, u64::MAX)?;
        let interrupts = native_interrupts(scene).len();
        queue.run(|list| list.signal(&fence, 10_000))?;
        until_idle(scene, &queue)?;
        same("interrupts when nobody waits", native_interrupts(scene).len(), interrupts)
    })
}

/// The fence has its value, and only then MonitoredValue falls below it. The context management processor finds that in
/// the third step, and interrupts. Without a shadow there is no such processor: the OS, which looks at CurrentValue
/// after its update, is the one that finds it.
pub(super) fn behind(stage: &Stage) -> Played {
    // With the optimized interrupt each engine gets one, since which one signaled is not known any more.
    let forced = stage.setting(SHADOW);
    for (shadow, optimized, due) in [(1, 0, 1), (0, 0, 0), (1, 1, 3)] {
        if forced.is_some_and(|forced| forced != shadow) {
            continue;
        }
        let setup = Setup::default().setting(SHADOW, shadow).setting("OptimizedInterrupt", optimized);
        let play = |scene: &Scene| {
            let rig = Client::open(scene, "client")?;
            let (queue, fence) = (rig.queue(1)?, rig.fence(0, true)?);
            let (process, handle) = (rig.raw.process.nt().id(), fence.info()?.handle);
            // The first one makes the shadow count.
            let mut after = 0;
            for (at, value) in (0..).zip([10, 20, 30]) {
                queue.run(|list| list.signal(&fence, value))?;
                until_idle(scene, &queue)?;
                // Interrupts come behind what they tell of: the signal's, where it passes what update before it left,
                // and the packet's end, for which the OS waits where the queue has no doorbell.
                let own = usize::from(at > 0) + usize::from(queue.info()?.doorbell == 0);
                scene.until("the signal's own interrupts", || Ok(native_interrupts(scene).len() >= after + own))?;
                let before = native_interrupts(scene).len();
                same(&format!("interrupts of signal {at}"), before - after, own)?;
                ensure!(scene.world.os.monitor_late(process, handle, value - 1), "the fence is not known");
                after = native_interrupts(scene).len();
                same(&format!("interrupts of update {at}"), after - before, due)?;
                // A value that no signal has passed, and one that was: none is due.
                ensure!(scene.world.os.monitor_late(process, handle, value + 5), "the fence is not known");
                same(&format!("interrupts behind update {at}"), native_interrupts(scene).len(), after)?;
            }
            let waits = rig.wait(&[(&fence, 40)], false)?;
            queue.run(|list| list.signal(&fence, 40))?;
            waits.comes(&rig, "a wait behind it all")
        };
        stage.play(setup, play).with_context(|| format!("{SHADOW} = {shadow}, OptimizedInterrupt = {optimized}"))?;
    }
    Ok(())
}
