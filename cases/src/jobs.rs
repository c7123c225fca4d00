//! The public jobs of Microsoft's kit about timeouts.
//!
//! The kit itself runs on Windows alone. What a job asks for is taken from its public page or, where that is gone, from
//! its name. A job has a portable part where calls of user mode alone can show what it asks for; over the model
//! conformance cases look at the driver's side, too (`src/tdr.rs`).

mod hang;
mod play;
mod table;

pub use hang::Loop;
pub(crate) use hang::until;
pub(crate) use play::{ACTIVE, is_over};
pub use table::{JOBS, REQUIREMENT};

use crate::System;

/// A job.
#[derive(Debug)]
pub struct Job {
    /// A short name, for the command line.
    pub id: &'static str,
    /// The name that the kit gives it, or, without one, what it is.
    pub name: &'static str,
    /// What must be, in a sentence.
    pub criterion: &'static str,
    /// Where that stands.
    pub source: &'static str,
    /// The kit's jobs that it stands for, by their whole names: variants of one that it does not tell apart, or that
    /// differ in what this adapter has not (graphics from compute, a desktop).
    pub kit: &'static [&'static str],
    /// What the kit's page says of when they pass.
    pub published: &'static str,
    /// What of it runs on Windows, too; or why nothing does.
    pub portable: Result<&'static Portable, &'static str>,
}

/// A job can say nothing, since the machine kept this thread from a processor for as long as `TdrDelay`.
#[derive(Clone, Copy, Debug)]
pub struct TooBusy;

impl std::fmt::Display for TooBusy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the machine is too busy: a buffer that was to be short ran for TdrDelay")
    }
}

impl std::error::Error for TooBusy {}

/// The part of a job that calls of user mode show.
#[derive(Debug)]
pub struct Portable {
    /// A setting of the driver that it needs, and the value that it must have.
    pub needs: (&'static str, u32),
    /// Resets that it brings about.
    pub resets: u64,
    /// It asks the OS for resets (`D3DKMT_ESCAPE_TDRDBGCTRL`), the adapter's among them, by which every process on the
    /// adapter loses its devices: for machines of a laboratory.
    pub forces: bool,
    /// Plays it; an error is [`TooBusy`] where it can say nothing.
    pub play: fn(&dyn System) -> anyhow::Result<()>,
}

impl Portable {
    /// Why it cannot be played on a system; `None`: it can be.
    pub fn lacks(&self, system: &dyn System) -> Option<String> {
        let (name, value) = self.needs;
        (system.setting(name) != Some(value)).then(|| format!("needs the setting {name}={value}"))
    }
}

/// The job with this name: its short one, its whole one, or that of one of the kit's; letters of either case.
pub fn find(id: &str) -> Option<&'static Job> {
    let is_called = |name: &str| name.eq_ignore_ascii_case(id);
    JOBS.iter().find(|job| is_called(job.id) || is_called(job.name) || job.kit.iter().any(|name| is_called(name)))
}
