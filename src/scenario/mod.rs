//! Conformance cases: what the documents say of a WDDM driver, played against Fencepost.
//!
//! Each case has an id, the document it comes from, and a function that plays it on a [`Stage`]. A case passes when its
//! own checks hold *and* the model found no broken rule and nothing left behind at shutdown.
//!
//! # Writing a case
//!
//! A case is a function of a [`Stage`]: it has [`Stage::play`] boot a machine as a [`Setup`] says, plays on the
//! [`Scene`], and returns `Ok` or what is wrong. Behind it the machine is shut down and audited. `examples/own_case` is
//! a crate with two cases of its own, a program that plays them with the arguments of `fencepost scenario`
//! ([`cli::play_cases`](crate::cli::play_cases)) and a test that plays them natively, with the images, and with drivers
//! that are wrong. [`crates`](crate::crates) has the crates whose types it needs. `fencepost scenario NAME --native`
//! plays one case, `--repeat N --jobs N` many times, `--setting NAME=NUMBER` with a value of the driver's.
//!
//! # Which helper for which test
//!
//! | for a test of | there is |
//! |---|---|
//! | what a well-behaved client sees | `Client`: a process with the user-mode driver and direct calls on the same fences; `Client::queue`, `Client::fence`, `Client::page`, `Client::wait`, `Client::block`, `Client::signal` |
//! | a wait of the CPU that ends, or does not | `Waiting::comes`, `Waiting::still_waits`; on a thread of its own `block` and `returned` |
//! | a wait of a queue that has begun | `begin_wait`, between two marks in a `Page` |
//! | the end of work, without a wait of the CPU | `until_idle`, `Page::until`, `Scene::until`, `Scene::until_end`, `Scene::until_now` |
//! | MonitoredValue | `MonitoredValue::becomes`, `Client::peek`; what else the GPU reads: `GpuReader::read` |
//! | fences between adapters | `AdapterClient`: a process on one of several; `Setup::adapters`, `Setup::without_native_fences_on_the_second` |
//! | `D3DKMT*` functions, refusals, records of a case's own | `Raw`: `Raw::call`, `Raw::call_null`, `Raw::ok`, `Denied`; a second handle of the adapter by `Raw::again`; `Scene::raw` |
//! | what the OS evicts while its owner works | `Os::evict_under_pressure`, during which others take the places |
//! | memory and residency, without the user-mode driver | `Room`: a device and a paging queue; `Room::memory`, `Room::create`, `Room::map`, `Room::make_resident`, `Room::evict`, `Room::destroy` |
//! | packet contexts | `Room::packet_context`, `Raw::submit_command`, `Room::context_with` |
//! | an engine that hangs | `endless`; of packets `Hog`; `Setup::resets`, `Setup::quick_tdr` |
//! | hardware queues for the kernel's submissions | `KernelQueue`, `Room::submit`, `HardwareQueue` |
//! | rings, write pointers, doorbells | `RingQueue`, each of the five steps by itself: `RingQueue::record`, `RingQueue::tell`, `RingQueue::publish`, `RingQueue::ring`, `RingQueue::notify`; all of them: `RingQueue::submit`, and what the status asks for, too: `RingQueue::submit_through` |
//! | doorbells by flags and records | `Room::bell_record`, `Room::bell_with`, `Doorbell`, `Room::connect` |
//! | work that runs once, and no more often | `ExecutionCount` |
//! | native fence logs | `native_fence_logs`, `native_fence_log_records`, `native_fence_log_packet`; `Os::offer_fence_log`, `Os::set_fence_tracing` |
//! | sharing between processes | `duplicate`, `duplicate_number`, `Raw::share`, `User::receive` |
//! | the end of a process | `Process::finish`, which waits for what it queued or terminates; beside live objects of its user-mode driver `User::kill` |
//! | what the driver was called with | `Scene::calls`, `Scene::journal`; handles, nodes, fences and flags: `Scene::journal_with_arguments`, `DdiCall::get` |
//! | what the driver called and reported | `Scene::callbacks`, `Scene::interrupts`, `native_interrupts`, `Adapter::packet_journal` of the packets of a node |
//! | rules | each is looked at without being asked; `Scene::evaluations` says how often, `Setup::breaks` which must be broken, `Setup::may_break` where a race decides |
//! | a race whose outcome differs | `Setup::resets_within`, `Setup::may_break`; random numbers by `Dice`, `Stage::seed` |
//! | another Windows | `Setup::windows`, `Setup::without` a feature; a setting of the driver: `Setup::setting` |
//! | a callback that fails, once or for a while | `CallbackFault::of`, `CallbackFault::each` in `Personality::faults` |
//! | a callback that takes its time | `Gates::callback`, at which the driver's call waits until `Gate::let_through`; calls above PASSIVE_LEVEL wait for nothing: `Gate::passed_above` |
//! | a moment of a submission or a recovery | the other `Gates`; `Stuck` holds a thread of the driver's that maps pages |
//! | handles that name nothing, amid others | `FaultPlan::stray_handles`, `FaultPlan::stray_fences`, `FaultPlan::stray_contexts` |
//! | calls that come late | `Os::monitor_late`, `Os::queue_late_dpc`, `Os::probe_foreign_interrupt`, `Gates::submit` |
//! | power, removal, suspension, disconnections | `Os::put_to_sleep`, `Os::remove_by_surprise`, `Os::suspend`, `Os::disconnect_doorbells`, `Os::hold_interrupts` |
//! | a driver that is wrong | `Setup::with_driver`, with a function in front of the driver's own by `decorate!` and `own!` |
//! | what differs between two machines | `Stage::with_record` keeps what was `Seen` of each: calls, orders, answers |
//! | what a case returns | `same`, `refused`; a number in the result: `Stage::note`; not played, and why: `skip` |
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `stage.rs` | [`Stage`], [`Scene`]: a machine per case, and the audit at its end |
//! | `setup.rs` | [`Setup`]: how the machine of a case differs from the usual |
//! | `client.rs` | [`Client`]: a process with the user-mode driver |
//! | `adapter_client.rs` | [`AdapterClient`]: one on one of several adapters |
//! | `raw.rs` | [`Raw`]: `D3DKMT*` without the user-mode driver, for what it would never do |
//! | `db/room.rs` | [`Room`], [`RingQueue`], [`KernelQueue`]: memory, queues and doorbells by direct calls |
//! | `shared.rs` | what several groups use beside these |
//! | `run.rs` | selection, running, the JSON file |
//! | `groups.rs` | what each group is about |
//! | `forms.rs` | cases of the render-only form alone, and why |
//! | `rungs.rs` | the lowest rung of each case, and why |
//! | `seen.rs` | what a machine was seen to do, to compare two |
//! | `readings.rs` | under which readings of the documents a case cannot be played |
//! | one file per group | the cases |

mod adapter_client;
mod bi;
mod cl;
mod client;
mod db;
mod dd;
mod forms;
mod groups;
mod lb;
mod mf;
mod mr;
mod nf;
mod portable;
mod pt;
mod raw;
mod readings;
mod rp;
mod run;
mod rungs;
mod seen;
mod setup;
mod shared;
mod st;
mod stage;
mod stuck;
mod ta;
mod te;
mod unreached;
mod wn;
mod ws;
mod xa;

pub use crate::fuzz::dice::Dice;
pub use crate::world::User;
pub use adapter_client::{AdapterClient, AdapterWait};
pub use client::{Client, MonitoredValue, Page, Waiting, block, endless, native_interrupts, returned, until_idle};
pub use db::{
    ABORT, CONNECTED, Doorbell, HardwareQueue, KernelQueue, Memory, NOTIFY, RETRY, RingQueue, Room, crowd, store,
};
pub use dxgkrnl_model::adapter::DdiCall;
pub use dxgkrnl_model::personality::{CallbackFault, FaultPlan, Gate, Gates, Personality};
pub use forms::render_only;
pub use groups::{GROUPS, Group};
pub use pt::storm::{Deaths, play as deaths};
pub use raw::{Attributes, Denied, NativeFence, Raw, Thunk, duplicate, duplicate_number};
pub use run::{AT_ONCE, LIMIT, Outcome, Status, list, run, run_at_once, select, select_of};
pub use rungs::lowest;
pub use seen::Seen;
pub use setup::Setup;
pub use shared::{
    ExecutionCount, GpuReader, begin_wait, native_fence_log_packet, native_fence_log_records, native_fence_logs,
};
pub use stage::{PATIENCE, Scene, Stage, patience, refused, same, skip, wait_at_most};
pub use stuck::Stuck;
pub use te::Hog;
pub(crate) use te::hardware::{force, unconditional};
pub use te::storm::{Storm, play as storm};
pub use unreached::{UNREACHED, why_unreached};

/// What playing a case returns. An error's text is the reason of the failure.
pub type Played = anyhow::Result<()>;

/// A case.
#[derive(Clone, Copy)]
pub struct Scenario {
    /// Its id, `NF-01`.
    pub id: &'static str,
    /// What happens, in a few words.
    pub title: &'static str,
    /// The document and section that says so.
    pub source: &'static str,
    /// Plays it.
    pub play: fn(&Stage) -> Played,
}

impl Scenario {
    /// The letters before the dash.
    pub fn group(&self) -> &'static str {
        self.id.split('-').next().unwrap_or(self.id)
    }
}

/// Every case, by group.
pub fn all() -> impl Iterator<Item = &'static Scenario> {
    [
        nf::CASES,
        ws::CASES,
        mr::CASES,
        lb::CASES,
        db::CASES,
        xa::CASES,
        mf::CASES,
        bi::CASES,
        st::CASES,
        dd::CASES,
        cl::CASES,
        te::CASES,
        ta::CASES,
        rp::CASES,
        pt::CASES,
        wn::CASES,
    ]
    .into_iter()
    .flatten()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    #[test]
    fn ids_are_unique_and_well_formed() {
        let mut seen = BTreeSet::new();
        for case in super::all() {
            assert!(seen.insert(case.id), "{} is there twice", case.id);
            let (group, number) = case.id.split_once('-').expect("a dash");
            assert!(group.len() == 2 && group.bytes().all(|b| b.is_ascii_uppercase()), "{}", case.id);
            assert!((2..=3).contains(&number.len()) && number.bytes().all(|b| b.is_ascii_digit()), "{}", case.id);
            assert!(!case.title.is_empty() && !case.source.is_empty(), "{}", case.id);
        }
    }
}
