//! `--dump`: where a dump for a debugger goes.

use super::{check_writable, image_folder};
use anyhow::{Context, Result};
use clap::Args;
use fencepost::dump::{BESIDE, Recorder};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Where dumps go that were not asked for.
const FOLDER: &str = "out/dump";

/// What is said of `--dump` with `--native`.
pub const NO_IMAGES: &str = "--dump shows image files: it does not go with --native";

/// A dump of the machine.
#[derive(Args)]
pub struct Dump {
    /// Write a Windows minidump to this file, and copies of the images and symbol files beside it: of the first broken
    /// rule, else of the first time-out, else of the end. Without this, a run that fails leaves one in out/dump, of the
    /// broken rule or of the end. docs/windbg.md opens it
    #[arg(long, value_name = "FILE.dmp")]
    dump: Option<PathBuf>,
}

impl Dump {
    /// The file that was asked for.
    pub fn path(&self) -> Option<&PathBuf> {
        self.dump.as_ref()
    }

    /// What listens to a run.
    pub fn recorder(&self) -> Arc<Recorder> {
        Arc::new(if self.dump.is_some() { Recorder::of_time_outs() } else { Recorder::default() })
    }

    /// Makes sure that it can be written, before a long run; the folder may be missing.
    pub fn check(&self) -> Result<()> {
        let Some(path) = &self.dump else { return Ok(()) };
        match path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() && !folder.exists() => {
                std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
            }
            _ => (),
        }
        check_writable(path)
    }

    /// [`write_with`](Self::write_with) the images that `./x` builds.
    pub fn write(&self, recorder: &Recorder, name: &str, failed: bool) -> Result<()> {
        self.write_with(recorder, name, failed, &BESIDE.map(|name| image_folder().join(name)))
    }

    /// Writes what was kept of a run, if it was asked for or the run failed, and says where. `name`: what the file is
    /// called that was not asked for. `beside`: what a debugger needs.
    pub fn write_with(&self, recorder: &Recorder, name: &str, failed: bool, beside: &[PathBuf]) -> Result<()> {
        let path = match &self.dump {
            Some(path) => path.clone(),
            None if failed => Path::new(FOLDER).join(format!("{name}.dmp")),
            None => return Ok(()),
        };
        match recorder.write(&path, beside) {
            Ok(shown) => shown.lines(&path).iter().for_each(|line| println!("{line}")),
            // What was not asked for is not missed.
            Err(error) if self.dump.is_some() => return Err(error),
            Err(_) => (),
        }
        Ok(())
    }
}
