//! What the OS says of bands of priority and of contexts, as engines follow it: who goes first, the normal band's
//! share, and grace periods.

use super::{RingQueue, Room, raw, store};
use crate::scenario::{Played, Raw, Scenario, Scene, Setup, Stage, same};
use anyhow::{Context, Result, ensure};
use gpu_wire::packet::Indirect;
use std::time::{Duration, Instant};
use wddm_abi::{
    D3DKMT_SETCONTEXTINPROCESSSCHEDULINGPRIORITY, DXGK_SCHEDULING_PRIORITY_BAND as Band,
    DXGKARG_SETCONTEXTSCHEDULINGPROPERTIES, DXGKARG_SETUPPRIORITYBANDS,
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
        title: "grace periods: of the band, the process and the context that take an engine from another's command buffer",
        source: "DXGKARG_SETUPPRIORITYBANDS, gracePeriodForBand, processGracePeriodForBand; \
            DXGKARG_SETCONTEXTSCHEDULINGPROPERTIES, gracePeriodSamePriority, gracePeriodLowerPriority",
        play: grace,
    },
];

/// Some fifty turns of an engine: for so long one queue has it and another has not.
const WINDOW: Duration = Duration::from_millis(20);

/// A queue whose command buffer stores for ever, and the word that it stores to.
struct Endless<'a> {
    raw: &'a Raw,
    word: usize,
    _queue: RingQueue<'a>,
}

impl<'a> Endless<'a> {
    fn begin(scene: &Scene, raw: &'a Raw, room: &'a Room<'a>, queue: RingQueue<'a>) -> Result<Self> {
        let (word, buffer) = (room.memory(scene, 4096)?, room.memory(scene, 4096)?);
        let store = store(word.gpu, 1).as_bytes().to_vec();
        let jump = Indirect { address: buffer.gpu, length: store.len() as u64 + 24 }.to_packet();
        buffer.write(raw, 0, &[store, jump.as_bytes().to_vec()].concat())?;
        // The OS is not told of it, and so does not look for its end.
        queue.write(jump.as_bytes())?;
        queue.publish()?;
        queue.ring()?;
        Ok(Self { raw, word: word.cpu, _queue: queue })
    }

    fn forget(&self) -> Played {
        Ok(self.raw.store(self.word, 0)?)
    }

    fn has_run(&self) -> Result<bool> {
        Ok(self.raw.load(self.word)? == 1)
    }

    /// Waits until it runs, from now on.
    fn runs(&self, scene: &Scene) -> Played {
        self.forget()?;
        scene.until_now("its turn", || self.has_run())
    }

    /// `self` has the engine for many turns, and `lower` has none.
    fn is_alone(&self, scene: &Scene, lower: &Self) -> Played {
        lower.forget()?;
        let begun = Instant::now();
        while begun.elapsed() < WINDOW {
            self.runs(scene)?;
        }
        same("stores of the lower band", lower.has_run()?, false)
    }

    /// Waits until `lower` rests while `self` runs; then it goes on to rest.
    fn keeps_off(&self, scene: &Scene, lower: &Self) -> Played {
        // Behind a turn of each the change has been followed.
        scene.until("the lower one to rest", || Ok(self.is_alone(scene, lower).is_ok()))?;
        self.is_alone(scene, lower)
    }
}

fn set_band(scene: &Scene, raw: &Raw, band: Band) {
    let change = |it: &mut DXGKARG_SETCONTEXTSCHEDULINGPROPERTIES| it.priorityBand = band;
    scene.world.os.set_scheduling(scene.adapter(), &raw.process, change);
}

/// Two processes whose command buffers store for ever, on one node.
fn bands(stage: &Stage) -> Played {
    stage.play(Setup::default(), |scene| {
        let raws = [raw(scene)?, raw(scene)?];
        let rooms = [Room::new(&raws[0])?, Room::new(&raws[1])?];
        let endless = |of: usize| -> Result<Endless<'_>> {
            let queue = RingQueue::connected(scene, &rooms[of], 0, 4096)?;
            Endless::begin(scene, &raws[of], &rooms[of], queue)
        };
        let [one, two] = [endless(0)?, endless(1)?];
        let by_turns = || [&one, &two, &one, &two].into_iter().try_for_each(|it| it.runs(scene));
        let band = |of: usize, band: Band| set_band(scene, &raws[of], band);
        by_turns().context("in one band")?;
        band(1, Band::DXGK_SCHEDULING_PRIORITY_BAND_FOCUS);
        by_turns().context("focus, and the normal band's share")?;
        let share = |percent| {
            let change = |it: &mut DXGKARG_SETUPPRIORITYBANDS| it.targetNormalBandPercentage = percent;
            scene.world.os.set_priority_bands(scene.adapter(), change);
        };
        share(0);
        two.keeps_off(scene, &one).context("focus, and no share of the normal band")?;
        share(10);
        by_turns().context("focus, and the normal band's share again")?;
        band(0, Band::DXGK_SCHEDULING_PRIORITY_BAND_IDLE);
        two.keeps_off(scene, &one).context("idle beside focus")?;
        // It has waited for a turn all the while.
        band(0, Band::DXGK_SCHEDULING_PRIORITY_BAND_REALTIME);
        one.keeps_off(scene, &two).context("focus beside real time")?;
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
    let endless = Endless::begin(scene, &raws[0], &rooms[0], queue)?;
    if graces.one_process && graces.is_higher {
        let mut record = D3DKMT_SETCONTEXTINPROCESSSCHEDULINGPRIORITY { hContext: second, Priority: 1 };
        raws[0].ok(raws[0].thunks.D3DKMTSetContextInProcessSchedulingPriority, &mut record)?;
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
