//! What the OS says of bands of priority and of contexts, as engines follow it: who goes first, the normal band's
//! share, and grace periods.

use super::runner::{Runner, share};
use super::{RingQueue, Room, raw};
use crate::scenario::{Played, Raw, Scenario, Scene, Setup, Stage, same};
use anyhow::{Context, Result, ensure};
use std::time::{Duration, Instant};
use wddm_abi::ntstatus::STATUS_SUCCESS;
use wddm_abi::{
    DXGK_SCHEDULING_PRIORITY_BAND as Band, DXGKARG_SETCONTEXTSCHEDULINGPROPERTIES, DXGKARG_SETUPPRIORITYBANDS,
};

pub(super) const CASES: &[Scenario] = &[
    Scenario {
        id: "DB-35",
        title: "bands of priority: a higher one goes first, the normal one has its share, and changes count at once",
        source: "DXGKARG_SETUPPRIORITYBANDS; DXGKARG_SETCONTEXTSCHEDULINGPROPERTIES; \
            DxgkDdiSetContextSchedulingProperties, Remarks",
        play: bands,
    },
    Scenario {
        id: "DB-81",
        title: "grace periods: of the band, the process and the context that take an engine from another's buffer",
        source: "DXGKARG_SETUPPRIORITYBANDS, gracePeriodForBand, processGracePeriodForBand; \
            DXGKARG_SETCONTEXTSCHEDULINGPROPERTIES, gracePeriodSamePriority, gracePeriodLowerPriority",
        play: grace,
    },
];

/// Some fifty turns of an engine: for so long one queue has it and another has not.
const WINDOW: Duration = Duration::from_millis(20);

fn set_band(scene: &Scene, raw: &Raw, band: Band) {
    let change = |it: &mut DXGKARG_SETCONTEXTSCHEDULINGPROPERTIES| it.priorityBand = band;
    scene.world.os.set_scheduling(scene.adapter(), &raw.process, change);
}

/// Two processes whose command buffers store for ever, on one node.
fn bands(stage: &Stage) -> Played {
    stage.play(Setup::default(), |scene| {
        let raws = [raw(scene)?, raw(scene)?];
        let rooms = [Room::new(&raws[0])?, Room::new(&raws[1])?];
        let queue = |of: usize| RingQueue::connected(scene, &rooms[of], 0, 4096);
        let queues = [queue(0)?, queue(1)?];
        let endless = |of: usize| Runner::of_ring(scene, &raws[of], &rooms[of], &queues[of]);
        let (one, two) = (&endless(0)?, &endless(1)?);
        let by_turns = || share(scene, [one, two]);
        let band = |of: usize, band: Band| set_band(scene, &raws[of], band);
        by_turns().context("in one band")?;
        band(1, Band::DXGK_SCHEDULING_PRIORITY_BAND_FOCUS);
        by_turns().context("focus, and the normal band's share")?;
        let share = |percent| {
            let change = |it: &mut DXGKARG_SETUPPRIORITYBANDS| it.targetNormalBandPercentage = percent;
            scene.world.os.set_priority_bands(scene.adapter(), change);
        };
        share(0);
        two.is_all(scene, one, WINDOW).context("focus, and no share of the normal band")?;
        share(10);
        by_turns().context("focus, and the normal band's share again")?;
        band(0, Band::DXGK_SCHEDULING_PRIORITY_BAND_IDLE);
        two.is_all(scene, one, WINDOW).context("idle beside focus")?;
        // It has waited for a turn all the while.
        band(0, Band::DXGK_SCHEDULING_PRIORITY_BAND_REALTIME);
        one.is_all(scene, two, WINDOW).context("focus beside real time")?;
        band(0, Band::DXGK_SCHEDULING_PRIORITY_BAND_IDLE);
        band(1, Band::DXGK_SCHEDULING_PRIORITY_BAND_IDLE);
        by_turns().context("both idle")
    })
}

/// The longest grace period that the driver follows.
const GRACE: Duration = Duration::from_millis(100);
/// The same in units of 100 ns.
const TICKS: u64 = 1_000_000;
/// Times that a grace period is looked at.
const LOOKS: usize = 3;

/// What the OS says in one part of the case. Times that are not named are 0.
struct Graces {
    what: &'static str,
    bands: fn(&mut DXGKARG_SETUPPRIORITYBANDS),
    contexts: fn(&mut DXGKARG_SETCONTEXTSCHEDULINGPROPERTIES),
    /// Both contexts are of one process; else each has its own.
    one_process: bool,
    /// The one that comes has the higher priority: within the process, or by its band.
    is_higher: bool,
}

const GRACES: [Graces; 4] = [
    Graces {
        what: "gracePeriodForBand",
        bands: |it| it.gracePeriodForBand = [TICKS; 4],
        contexts: |_| (),
        one_process: false,
        is_higher: true,
    },
    Graces {
        what: "processGracePeriodForBand",
        bands: |it| it.processGracePeriodForBand = [TICKS; 4],
        contexts: |_| (),
        one_process: false,
        is_higher: false,
    },
    Graces {
        what: "gracePeriodLowerPriority",
        bands: |_| (),
        contexts: |it| it.gracePeriodLowerPriority = TICKS,
        one_process: true,
        is_higher: true,
    },
    Graces {
        what: "gracePeriodSamePriority",
        bands: |_| (),
        contexts: |it| it.gracePeriodSamePriority = TICKS,
        one_process: true,
        is_higher: false,
    },
];

/// A command buffer that stores for ever has the engine. Another queue's work begins no earlier than the grace period
/// of the kind in question is over; where it is 0, it begins earlier at least once.
fn grace(stage: &Stage) -> Played {
    GRACES.iter().try_for_each(|graces| {
        stage
            .play(Setup::default().setting("IdleMilliseconds", 0), |scene| one_grace(scene, graces))
            .context(graces.what)
    })
}

fn one_grace(scene: &Scene, graces: &Graces) -> Played {
    let raws = [raw(scene)?, raw(scene)?];
    let rooms = [Room::new(&raws[0])?, Room::new(&raws[1])?];
    let other = usize::from(!graces.one_process);
    let (first, second) = (rooms[0].context(0)?, rooms[other].context(0)?);
    let coming = RingQueue::on(scene, &rooms[other], rooms[other].queue_in(second, true)?, 4096)?;
    coming.connect()?;
    let queue = RingQueue::on(scene, &rooms[0], rooms[0].queue_in(first, true)?, 4096)?;
    queue.connect()?;
    let endless = Runner::of_ring(scene, &raws[0], &rooms[0], &queue)?;
    if graces.one_process && graces.is_higher {
        same("the priority", raws[0].set_in_process(second, 1), STATUS_SUCCESS)?;
    }
    let say = |has_grace: bool| {
        let os = &scene.world.os;
        os.set_priority_bands(scene.adapter(), |it| {
            it.processQuantumForBand = [0; 4];
            (it.gracePeriodForBand, it.processGracePeriodForBand) = ([0; 4], [0; 4]);
            if has_grace {
                (graces.bands)(it);
            }
        });
        let is_focus = !graces.one_process && graces.is_higher;
        for (of, raw) in raws[..=other].iter().enumerate() {
            os.set_scheduling(scene.adapter(), &raw.process, |it| {
                (it.quantum, it.gracePeriodSamePriority, it.gracePeriodLowerPriority) = (0, 0, 0);
                if has_grace {
                    (graces.contexts)(it);
                }
                if is_focus && of == other {
                    it.priorityBand = Band::DXGK_SCHEDULING_PRIORITY_BAND_FOCUS;
                }
            });
        }
    };
    // How long the other one's work has taken to its end, from before it was submitted.
    let took = || -> Result<Duration> {
        endless.runs(scene)?;
        let begun = Instant::now();
        let progress = coming.submit_through(&[])?;
        scene.until_now("progress", || Ok(coming.progress()? >= progress))?;
        Ok(begun.elapsed())
    };
    say(true);
    took().context("behind the change")?;
    for _ in 0..LOOKS {
        let took = took()?;
        ensure!(took >= GRACE, "it had the engine {took:?} after it was submitted, and the grace period is {GRACE:?}");
    }
    say(false);
    scene.until("an end before any grace period", || Ok(took()? < GRACE))?;
    say(true);
    took().context("behind the change")?;
    ensure!(took()? >= GRACE, "a grace period that was set again is not kept");
    Ok(())
}
