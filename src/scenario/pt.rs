//! Group PT: processes of their own, the user-mode driver in another Linux process: its exit, its death at any moment,
//! and what it tries to get.
//!
//! | file | holds |
//! |---|---|
//! | `pt/end.rs` | exits, and what a process leaves behind |
//! | `pt/kill.rs` | SIGKILL |
//! | `pt/storm.rs` | very many deaths at drawn moments |
//! | `pt/attack.rs` | clients that are after others |
//! | `pt/left.rs` | what is left open, and rude exits, of processes in this Linux process |
//! | `pt/under.rs` | adapters that are stopped under processes in this Linux process |

mod attack;
mod end;
mod kill;
mod left;
pub mod storm;
mod under;

pub(in crate::scenario) use left::census;

use super::client::{Client, Page};
use super::{Played, Scenario, Scene, Setup, same};
use crate::client::Queue;
use anyhow::Result;

/// The section that says how processes end.
const END: &str = "User-mode work submission, Process termination";

/// What a client can reach, by the page that says what it must not.
const REACH: &str = "SECURITY.md, What it must not do to others";

pub(super) const CASES: &[Scenario] =
    &super::db::joined::<{ OWN.len() + left::CASES.len() + under::CASES.len() }>(&[OWN, left::CASES, under::CASES]);

const OWN: &[Scenario] = &[
    Scenario {
        id: "PT-01",
        title: "a process of its own submits through a doorbell without a message, and exits",
        source: END,
        play: end::exits,
    },
    Scenario {
        id: "PT-02",
        title: "a process exits with work under way: it is disconnected, and all that it queued is done",
        source: END,
        play: end::works_on,
    },
    Scenario {
        id: "PT-03",
        title: "a busy process is killed; its neighbour's work is right",
        source: END,
        play: kill::busy,
    },
    Scenario { id: "PT-04", title: "a process that hangs an engine is killed", source: END, play: kill::hung },
    Scenario {
        id: "PT-05",
        title: "processes die at drawn moments, inside calls as well, and nothing of them is left",
        source: "User-mode work submission, Process termination; IGT, close-execqueues-close-fd",
        play: storm::part,
    },
    Scenario {
        id: "PT-06",
        title: "a process exits and leaves everything open",
        source: "D3DKMTDestroyDevice; PsSetCreateProcessNotifyRoutine",
        play: end::leaves,
    },
    Scenario {
        id: "PT-08",
        title: "another process's handles name nothing",
        source: "D3DKMTConnectDoorbell, Return value",
        play: attack::foreign_handles,
    },
    Scenario {
        id: "PT-11",
        title: "a doorbell that two processes take from each other, again and again: the work of both runs",
        source: "User-mode work submission, Doorbells; DxgkCbDisconnectDoorbell",
        play: end::shares,
    },
    Scenario {
        id: "PT-12",
        title: "a process that lets no doorbell be taken away is ended",
        source: "DxgkCbDisconnectDoorbell: it returns when user mode has lost the page; the time is chosen",
        play: kill::stopped,
    },
    Scenario {
        id: "PT-13",
        title: "a process gets no more of the pages that it sees, and nothing of the machine",
        source: REACH,
        play: attack::pages,
    },
    Scenario {
        id: "PT-14",
        title: "a process that says it is another one is refused",
        source: REACH,
        play: attack::forged,
    },
    Scenario {
        id: "PT-15",
        title: "a process whose driver knows kernel-mode submission alone works with one that has doorbells",
        source: "User-mode work submission, introduction (older guests know kernel-mode hardware queues only)",
        play: end::older_beside_newer,
    },
    Scenario {
        id: "PT-16",
        title: "a client that is ended leaves a process behind, which holds all of its files: its end comes \
                all the same",
        source: "User-mode work submission, Abnormal process termination",
        play: attack::left_behind,
    },
    Scenario {
        id: "PT-17",
        title: "a client exits, or is killed, while a thread of it waits for an event that nobody sets",
        source: END,
        play: end::waits_for_ever,
    },
    Scenario {
        id: "PT-18",
        title: "a client whose agent says that it takes no page away is ended",
        source: "DxgkCbDisconnectDoorbell: it returns when user mode has lost the page",
        play: kill::refusing,
    },
    Scenario {
        id: "PT-19",
        title: "a client has so many connections and no more, and one that says nothing keeps no other waiting",
        source: REACH,
        play: attack::crowd,
    },
    Scenario {
        id: "PT-20",
        title: "a client whose agent computes and lets no page be taken away is ended as soon as one that sleeps",
        source: "DxgkCbDisconnectDoorbell: it returns when user mode has lost the page; the time is chosen",
        play: kill::spinning,
    },
];

/// A machine whose processes may be Linux processes.
fn setup() -> Setup {
    Setup::default().windows(|windows| windows.separate_processes = true)
}

/// A process beside, in this Linux process, whose work must come out right whatever happens to others.
struct Neighbour {
    _rig: Client,
    queue: Queue,
    page: Page,
    value: u64,
}

impl Neighbour {
    fn new(scene: &Scene, node: u32) -> Result<Self> {
        let rig = Client::open(scene, "neighbour")?;
        let (queue, page) = (rig.queue(node)?, rig.page()?);
        Ok(Self { _rig: rig, queue, page, value: 0 })
    }

    /// A job, whose result must be right.
    fn job(&mut self, scene: &Scene) -> Played {
        self.value += 1;
        self.queue.run(|list| list.store(self.page.at(0), self.value))?;
        self.page.until(scene, "the neighbour's result", 0, self.value)
    }
}

/// What processes have at the first adapter now.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Held {
    processes: u64,
    devices: u64,
    doorbells: u64,
    /// What the driver says that it has: queues, contexts and fences, too.
    objects: Vec<String>,
    free_ram: u64,
}

impl Held {
    fn now(scene: &Scene) -> Result<Self> {
        let calls = scene.adapter().ddi_calls();
        let count = |name: &str| calls.get(name).copied().unwrap_or(0);
        let open = |what: &str| count(&format!("DxgkDdiCreate{what}")) - count(&format!("DxgkDdiDestroy{what}"));
        Ok(Self {
            processes: open("Process"),
            devices: open("Device"),
            doorbells: open("Doorbell"),
            objects: census(scene)?,
            free_ram: scene.world.os.kernel().free_ram(),
        })
    }

    /// The same objects are held as then.
    fn has_objects_again(&self, scene: &Scene) -> Played {
        let (then, now) = (self.clone(), Self::now(scene)?);
        same("objects", Self { free_ram: 0, ..now }, Self { free_ram: 0, ..then })
    }

    /// Waits until as much is held as then. Pages that pools keep for the next time do not count, up to `kept`.
    fn until_again(self, scene: &Scene, kept: u64) -> Played {
        self.has_objects_again(scene)?;
        // Page tables are freed behind the end.
        scene.until("memory is free again", || Ok(scene.world.os.kernel().free_ram() + kept >= self.free_ram))
    }
}
