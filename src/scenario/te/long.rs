//! Packets that take long, and preemption in ordinary use.

use super::super::{Played, Scene, Setup, Stage, same};
use super::hog::COUNTS;
use super::in_time::in_time;
use super::{Hog, client, is_lost, packet_resets, private, victim};
use anyhow::{Context, ensure};
use dxgkrnl_model::adapter::Preemptions;
use dxgkrnl_model::personality::MS;
use std::time::{Duration, Instant};

/// How often a node was preempted, and how many packets came back.
fn preemptions(scene: &Scene, node: u32) -> (usize, usize) {
    let Preemptions { answers, back } = scene.adapter().packet_preemptions(node);
    (answers, back)
}

/// Runs a packet for three TdrDelays, alone or beside short ones of another process.
fn runs_long(scene: &Scene, node: u32, beside: bool, delay: Duration) -> Played {
    let (raw, other) = (client(scene, "long")?, client(scene, "short")?);
    let (hog, other) = (Hog::new(scene, &raw, &[node])?, Hog::new(scene, &other, &[node])?);
    hog.spin(node, 0)?;
    hog.begins(scene, 0)?;
    // Three times TdrDelay; longer where the host lets nothing run.
    let (begun, least, most) = (Instant::now(), delay * 3, Duration::from_secs(20));
    let mut rounds = 0;
    let is_seen = |rounds| preemptions(scene, node).0 >= 2 && (!beside || rounds >= 2);
    while begun.elapsed() < least || (!is_seen(rounds) && begun.elapsed() < most) {
        if beside {
            other.short(node, 0)?;
            scene.until("a packet beside a long one", || other.has_ended(0))?;
            rounds += 1;
        } else {
            std::thread::park_timeout(Duration::from_millis(20));
        }
    }
    hog.end(0)?;
    scene.until("the end of the long packet", || hog.has_ended(0))?;
    let (count, _) = preemptions(scene, node);
    ensure!(count >= 2 && (!beside || rounds >= 2), "{count} preemptions, {rounds} packets beside");
    ensure!(hog.is_active()? && other.is_active()?, "a device is lost");
    Ok(())
}

pub(super) fn preemptible(stage: &Stage) -> Played {
    let node = victim(stage);
    let setup = || Setup::default().quick_tdr().setting("PreemptInBuffers", 1);
    for beside in [false, true] {
        in_time(stage, setup, |scene, watch| runs_long(scene, node, beside, watch.delay))?;
    }
    Ok(())
}

/// Nobody preempts the node but for TdrDelay: short packets beside the long one run then, all the same, one each time.
pub(super) fn late_cadence(stage: &Stage) -> Played {
    let node = victim(stage);
    for in_flight in [1, 4] {
        let setup = || {
            Setup::default().quick_tdr().setting("PreemptInBuffers", 1).windows(|windows| {
                (windows.preemption.in_ordinary_use, windows.preemption.in_flight) = (false, in_flight);
            })
        };
        in_time(stage, setup, |scene, _| {
            let (raw, other) = (client(scene, "long")?, client(scene, "short")?);
            let (hog, other) = (Hog::new(scene, &raw, &[node])?, Hog::new(scene, &other, &[node])?);
            hog.spin(node, 0)?;
            hog.begins(scene, 0)?;
            for _ in 0..3 {
                let (before, _) = preemptions(scene, node);
                other.short(node, 0)?;
                scene.until("a packet beside a long one", || other.has_ended(0))?;
                ensure!(preemptions(scene, node).0 > before, "it ran beside a packet that nobody has preempted");
                // The long packet has the node again.
                hog.clear(0)?;
                hog.begins(scene, 0)?;
            }
            hog.end(0)?;
            scene.until("the end of the long packet", || hog.has_ended(0))?;
            ensure!(hog.is_active()? && other.is_active()?, "a device is lost");
            same("recoveries", scene.adapter().recoveries().len(), 0)
        })
        .with_context(|| format!("{in_flight} in flight"))?;
    }
    Ok(())
}

pub(super) fn not_preemptible(stage: &Stage) -> Played {
    let node = victim(stage);
    stage.play(super::stubborn().resets(1), |scene| {
        let raw = client(scene, "long")?;
        let hog = Hog::new(scene, &raw, &[node])?;
        hog.spin(node, 0)?;
        is_lost(scene, &hog)?;
        same("resets", packet_resets(scene).len(), 1)
    })
}

/// Packets of a quarter of TdrDelay each, six times TdrDelay in all.
pub(super) fn large_payload(stage: &Stage) -> Played {
    let node = victim(stage);
    in_time(stage, super::stubborn, |scene, watch| {
        let raw = client(scene, "many")?;
        let hog = Hog::new(scene, &raw, &[node])?;
        // Each begins when the one before it ends.
        watch.begin();
        for slot in 0..24 {
            hog.spin(node, slot)?;
        }
        for slot in 0..24 {
            scene.until("the run of a packet, or the loss of its device", || {
                Ok(hog.has_begun(slot)? || !hog.is_active()?)
            })?;
            std::thread::park_timeout(watch.delay / 4);
            let now = Instant::now();
            hog.end(slot)?;
            watch.end();
            watch.begin_at(now);
            ensure!(hog.is_active()?, "the device is lost with packet {slot}");
        }
        scene.until("the last packet", || hog.has_ended(23))?;
        ensure!(hog.is_active()?, "the device is lost");
        same("resets", packet_resets(scene).len(), 0)
    })
}

/// A packet that the driver refuses is the node's first, or stands behind the one that runs when the node is preempted,
/// or reset: what the driver names is known, and no other process loses anything.
pub(super) fn refused_between(stage: &Stage) -> Played {
    let node = victim(stage);
    for (is_first, resets) in [(true, false), (false, false), (false, true)] {
        let comes_off = || Setup::default().quick_tdr().setting("PreemptInBuffers", 1);
        let setup = || if resets { super::stubborn().resets(1) } else { comes_off() };
        in_time(stage, setup, |scene, _| {
            let raws = [client(scene, "refused")?, client(scene, "long")?, client(scene, "short")?];
            let [refused, long, short] = [0, 1, 2].map(|at: usize| Hog::new(scene, &raws[at], &[node]));
            let (refused, long, short) = (refused?, long?, short?);
            if is_first {
                refused.refused(node)?;
                scene.until("the refusal", || Ok(!refused.is_active()?))?;
            }
            long.spin(node, 0)?;
            long.begins(scene, 0)?;
            if !is_first {
                refused.refused(node)?;
                scene.until("the refusal", || Ok(!refused.is_active()?))?;
            }
            for _ in 0..3 {
                short.short(node, 0)?;
                scene.until("a packet behind the refused one", || short.has_ended(0))?;
            }
            if resets {
                is_lost(scene, &long)?;
            } else {
                long.end(0)?;
                scene.until("the end of the long packet", || long.has_ended(0))?;
                ensure!(long.is_active()?, "the long packet's device is lost");
            }
            ensure!(short.is_active()?, "an innocent device is lost");
            same("resets", packet_resets(scene).len(), usize::from(resets))
        })?;
    }
    Ok(())
}

/// Rounds of packets in which the wanted preemptions must have come, however the machine's threads run.
const MOST_ROUNDS: usize = 4_000;

/// Short packets of two processes, and a preemption as often as one is answered: the model looks at every answer.
pub(super) fn watermarks(stage: &Stage) -> Played {
    let node = victim(stage);
    for in_flight in [1, 2, 8] {
        let setup = Setup::default().windows(|windows| {
            windows.preemption.slice = (0, MS / 20);
            windows.preemption.in_flight = in_flight;
            windows.preemption.seed = stage.seed();
        });
        let play = |scene: &Scene| {
            let raws = [client(scene, "one")?, client(scene, "other")?];
            let hogs: Vec<_> = raws.iter().map(|raw| Hog::new(scene, raw, &[node])).collect::<Result<_, _>>()?;
            let (least, wanted) = if stage.is_whole() { (400, 200) } else { (20, 10) };
            for round in 0.. {
                let (answers, _) = preemptions(scene, node);
                if round >= least && answers >= wanted {
                    break;
                }
                ensure!(round < MOST_ROUNDS, "{answers} preemptions in {round} rounds");
                for slot in 0..32 {
                    for hog in &hogs {
                        hog.short(node, slot)?;
                    }
                }
                for hog in &hogs {
                    scene.until("the last packet of a round", || hog.has_ended(31))?;
                }
            }
            Ok(())
        };
        stage.play(setup, play).with_context(|| format!("{in_flight} in flight"))?;
    }
    Ok(())
}

/// Preemptions that are answered, in the suite and in the whole: ten seconds of a thousand each.
const ANSWERS: (usize, usize) = (1_000, 10_000);

/// Packets that count, preempted a thousand times a second: one that begins anew in its middle counts twice. However
/// long a busy machine takes, there are as many preemptions.
pub(super) fn at_rate(stage: &Stage) -> Played {
    let node = victim(stage);
    let setup = Setup::default().windows(|windows| {
        windows.preemption.slice = (MS / 2, MS);
        windows.preemption.seed = stage.seed();
        windows.tdr.delay = 2000 * MS;
    });
    let setup = setup.with_driver(private::watched);
    let wanted = if stage.is_whole() { ANSWERS.1 } else { ANSWERS.0 };
    stage.play(setup, |scene| {
        let (begun, mut submitted) = (Instant::now(), 0);
        while preemptions(scene, node).0 < wanted {
            submitted += counted(scene, node, wanted)?;
            let far = preemptions(scene, node).0;
            ensure!(begun.elapsed() < MOST, "{far} preemptions after {submitted} packets");
        }
        let (count, back) = preemptions(scene, node);
        ensure!(back > count / 2, "{count} preemptions, {back} packets came back, {submitted} submitted");
        private::is_unchanged(scene, count / 2)
    })
}

/// What that may take.
const MOST: Duration = Duration::from_secs(300);

/// Two processes' packets that count, until so many preemptions are answered or for as many as they can count; how many
/// each has submitted.
fn counted(scene: &Scene, node: u32, wanted: usize) -> anyhow::Result<u64> {
    let raws = [client(scene, "one")?, client(scene, "other")?];
    let hogs: Vec<_> =
        raws.iter().map(|raw| Hog::with_much(scene, raw, &[node], 16 << 20)).collect::<Result<_, _>>()?;
    let mut submitted = 0;
    while preemptions(scene, node).0 < wanted && submitted + 4 <= COUNTS {
        for slot in 0..4 {
            for hog in &hogs {
                hog.count(node, slot)?;
            }
        }
        submitted += 4;
        for hog in &hogs {
            scene.until("packets that are preempted", || Ok(hog.counted()? == submitted))?;
        }
    }
    for hog in &hogs {
        same("packets that ran once", hog.counted()?, submitted)?;
    }
    Ok(submitted)
}
