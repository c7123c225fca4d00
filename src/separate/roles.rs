//! What client processes do. A role speaks with the case that plays it by lines: over its standard output, and back
//! over its standard input.

use crate::client::{Adapter, Inside, Refused};
use anyhow::{Context, Result, bail, ensure};
use nt_model::Rights;
use nt_model::memory::Handed;
use std::time::Duration;
use umd_core::ffi::FpUmdTable;
use umd_core::ffi::types::FP_KIND_SYSTEM;

/// Longer than anything takes that comes.
const PATIENCE: Option<Duration> = Some(Duration::from_secs(20));

/// The process that plays a role.
pub struct Here {
    table: FpUmdTable,
    inside: Box<dyn Fn() -> Box<dyn Inside>>,
}

impl Here {
    /// The process with this user-mode driver.
    pub fn new(table: FpUmdTable, inside: impl Fn() -> Box<dyn Inside> + 'static) -> Self {
        Self { table, inside: Box::new(inside) }
    }

    /// Opens the first adapter.
    ///
    /// # Errors
    /// Those of `fp_adapter_open`.
    pub fn open(&self) -> Result<Adapter, Refused> {
        Adapter::open(self.table, (self.inside)(), None, 0, 0)
    }
}

/// Says a line.
fn say(line: &str) {
    println!("{line}");
}

/// Waits until the case says this line.
fn hear(wanted: &str) -> Result<()> {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line)?;
    ensure!(line.trim_end() == wanted, "the case says {:?}, not {wanted:?}", line.trim_end());
    Ok(())
}

/// Looks at pages that the machine has handed over, before the agent lets go of them.
pub fn keep(handed: Handed, rights: Rights) {
    let _ = (handed, rights);
}

/// Plays a role.
///
/// # Errors
/// When there is none of this name, or it fails.
pub fn play(role: &str, here: &Here) -> Result<()> {
    match role {
        "submit" => submit(here),
        _ => bail!("no role is called {role}"),
    }
}

/// Submits a list through a doorbell, and a hundred more when the case says so, each by stores alone.
fn submit(here: &Here) -> Result<()> {
    let adapter = here.open()?;
    let device = adapter.device()?;
    let queue = device.queue(0, 64 << 10, 0, 0)?;
    let memory = device.allocate(FP_KIND_SYSTEM, 4096, 0)?;
    let at = memory.gpu_va()?;
    let progress = queue.run(|list| list.store(at, 1))?;
    queue.wait(progress, PATIENCE)?;
    say("connected");
    hear("go")?;
    let mut last = 0;
    for value in 2..=101 {
        last = queue.run(|list| list.store(at, value))?;
    }
    let end = std::time::Instant::now() + PATIENCE.context("a limit")?;
    while queue.progress()?.0 < last {
        ensure!(std::time::Instant::now() < end, "progress stays {:?}", queue.progress()?);
        std::thread::yield_now();
    }
    let seen = memory.read_u64(0)?;
    let rings = queue.counters()?.rings;
    say(&format!("memory {seen}, rings {rings}"));
    hear("end")
}
