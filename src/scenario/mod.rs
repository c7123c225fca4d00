//! Conformance cases: what the documents say of a WDDM driver, played against Fencepost.
//!
//! Each case has an id, the document it comes from, and a function that plays it on a [`Stage`]. A case passes when its
//! own checks hold *and* the model found no broken rule and nothing left behind at shutdown.
//!
//! | file | holds |
//! |---|---|
//! | `stage.rs` | [`Stage`], [`Scene`]: a machine per case, and the audit at its end |
//! | `setup.rs` | [`Setup`]: how the machine of a case differs from the usual |
//! | `raw.rs` | [`Raw`]: `D3DKMT*` without the user-mode driver, for what it would never do |
//! | `run.rs` | selection, running, the JSON file |
//! | `groups.rs` | what each group is about |
//! | `forms.rs` | cases of the render-only form alone, and why |
//! | `rungs.rs` | the lowest rung of each case, and why |
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
pub use adapter_client::{AdapterClient, AdapterWait};
pub use client::{Client, MonitoredValue, Page, Waiting, block, endless, native_interrupts, returned, until_idle};
pub use db::{
    ABORT, CONNECTED, Doorbell, HardwareQueue, KernelQueue, Memory, NOTIFY, RETRY, RingQueue, Room, crowd, store,
};
pub use forms::render_only;
pub use groups::{GROUPS, Group};
pub use pt::storm::{Deaths, play as deaths};
pub use raw::{Attributes, Denied, NativeFence, Raw, Thunk, duplicate, duplicate_number};
pub use run::{AT_ONCE, LIMIT, Outcome, Status, list, run, run_at_once, select, select_of};
pub use rungs::lowest;
pub use setup::Setup;
pub use shared::{
    ExecutionCount, GpuReader, begin_wait, native_fence_log_packet, native_fence_log_records, native_fence_logs,
};
pub use stage::{PATIENCE, Scene, Stage, patience, refused, same, skip, wait_at_most};
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
