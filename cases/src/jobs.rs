//! The public jobs of Microsoft's kit about timeouts.
//!
//! The kit itself runs on Windows alone. What a job asks for is taken from its public page or, where that is gone, from
//! its name. A job has a portable part where calls of user mode alone can show what it asks for; over the model
//! conformance cases look at the driver's side, too (`src/tdr.rs`).

mod hang;
mod play;
mod table;

pub use hang::Loop;
pub use table::{JOBS, REQUIREMENT};

use crate::System;
use anyhow::Result;

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
    /// What of it runs on Windows, too.
    pub portable: Option<&'static Portable>,
}

/// The part of a job that calls of user mode show.
#[derive(Debug)]
pub struct Portable {
    /// A setting of the driver that it needs, and the value that it must have.
    pub needs: (&'static str, u32),
    /// Resets that it brings about.
    pub resets: u64,
    /// It asks the OS for resets (`D3DKMT_ESCAPE_TDRDBGCTRL`), of which the last is the adapter's, and every process on
    /// the adapter loses its devices: for machines of a laboratory.
    pub forces: bool,
    /// Plays it.
    pub play: fn(&dyn System) -> Result<()>,
}

impl Portable {
    /// Why it cannot be played on a system; `None`: it can be.
    pub fn lacks(&self, system: &dyn System) -> Option<String> {
        let (name, value) = self.needs;
        (system.setting(name) != Some(value)).then(|| format!("needs the setting {name}={value}"))
    }
}

/// The job with this short name, letters of either case.
pub fn find(id: &str) -> Option<&'static Job> {
    JOBS.iter().find(|job| job.id.eq_ignore_ascii_case(id) || job.name.eq_ignore_ascii_case(id))
}
