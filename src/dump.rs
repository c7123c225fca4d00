//! Dumps of the machine for a debugger: what is kept of a run, and the files beside it.
//!
//! A [`Recorder`] keeps the most telling dump of the machines that are booted while it is listening: that of the first
//! broken rule, else of the first time-out if that was asked for, else of the end of the first machine. docs/windbg.md
//! opens one.

use anyhow::{Context, Result, bail};
use dxgkrnl_model::os::Os;
pub use nt_model::dump::{Dump, Moment};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// What a debugger needs beside a dump of this project's driver: the images and their symbol files.
pub const BESIDE: [&str; 4] = ["fencepost.sys", "fencepost.pdb", "fencepost_umd.dll", "fencepost_umd.pdb"];

thread_local! {
    static LISTENING: RefCell<Option<Arc<Recorder>>> = const { RefCell::new(None) };
}

/// Keeps one dump.
#[derive(Default)]
pub struct Recorder {
    kept: Mutex<Option<(Moment, Dump)>>,
    /// Of a time-out, too.
    time_outs: bool,
}

impl Recorder {
    /// One that keeps a dump of the first time-out as well: the model is held up before the recovery meanwhile.
    pub fn of_time_outs() -> Self {
        Self { time_outs: true, ..Self::default() }
    }

    /// Runs `f`; machines that this thread boots meanwhile give their dumps to the recorder.
    pub fn listening<R>(self: &Arc<Self>, f: impl FnOnce() -> R) -> R {
        let before = LISTENING.replace(Some(self.clone()));
        let result = f();
        LISTENING.set(before);
        result
    }

    fn keep(&self, moment: Moment, dump: Dump) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.as_ref().is_none_or(|(known, _)| *known < moment) {
            *kept = Some((moment, dump));
        }
    }

    /// Takes the dump that was kept.
    pub fn take(&self) -> Option<(Moment, Dump)> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Writes the dump that was kept to `path`, and copies of those of the files `beside` that are there beside it.
    /// Returns what it shows.
    ///
    /// # Errors
    /// When no machine was booted, or a file cannot be written.
    pub fn write(&self, path: &Path, beside: &[PathBuf]) -> Result<Shown> {
        let Some((moment, dump)) = self.take() else { bail!("nothing was started that a dump could be taken of") };
        let folder = path.parent().map_or_else(PathBuf::new, Path::to_path_buf);
        if !folder.as_os_str().is_empty() {
            std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        }
        std::fs::write(path, dump.to_bytes()).with_context(|| format!("cannot write {}", path.display()))?;
        for from in beside.iter().filter(|from| from.exists()) {
            let to = folder.join(from.file_name().unwrap_or_default());
            let same = from.canonicalize().ok().zip(to.canonicalize().ok()).is_some_and(|(from, to)| from == to);
            if !same {
                std::fs::copy(from, &to).with_context(|| format!("cannot write {}", to.display()))?;
            }
        }
        let what = match moment {
            Moment::Broken => "the broken rule",
            Moment::TimedOut => "the time-out",
            Moment::Ended => "the end",
        };
        Ok(Shown { what, missing: dump.missing().to_vec() })
    }
}

/// What a dump that was written shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    /// The moment, in words.
    pub what: &'static str,
    /// What it lacks, a sentence each; the comment of the file has these, too.
    pub missing: Vec<String>,
}

impl Shown {
    /// What is said of the dump, which was written to `path`: a line, and one for each thing that it lacks.
    pub fn lines(&self, path: &Path) -> Vec<String> {
        let first = format!("dump of {}: {} (docs/windbg.md)", self.what, path.display());
        std::iter::once(first).chain(self.missing.iter().map(|what| format!("  {what}"))).collect()
    }
}

/// Dumps of cases: of those that fail, or of each.
pub struct OfCases {
    each: bool,
    kept: Mutex<BTreeMap<&'static str, Arc<Recorder>>>,
}

impl OfCases {
    /// Cases of which a dump is kept when they fail. A dump has 64 MiB at most; of eight it is kept.
    const MOST: usize = 8;

    /// `each`: those that pass, too.
    pub fn new(each: bool) -> Self {
        Self { each, kept: Mutex::default() }
    }

    /// A recorder for a case: of its time-outs only where a dump of it was asked for.
    pub(crate) fn recorder(&self) -> Recorder {
        if self.each { Recorder::of_time_outs() } else { Recorder::default() }
    }

    /// The case `id` has ended with this recorder listening.
    pub(crate) fn ended(&self, id: &'static str, passed: bool, recorder: Arc<Recorder>) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if (self.each || !passed) && kept.len() < Self::MOST {
            kept.insert(id, recorder);
        }
    }

    /// The cases of which there is a dump.
    pub fn take(&self) -> BTreeMap<&'static str, Arc<Recorder>> {
        std::mem::take(&mut *self.kept.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Has a machine give its dumps to the recorder that listens on this thread, if one does.
pub fn watch(os: &Os) {
    let listening = LISTENING.with_borrow(Clone::clone);
    if let Some(recorder) = listening {
        let moments: &[Moment] = match recorder.time_outs {
            true => &[Moment::Ended, Moment::TimedOut, Moment::Broken],
            false => &[Moment::Ended, Moment::Broken],
        };
        os.kernel().keep_dumps(moments, move |moment, dump| recorder.keep(moment, dump));
    }
}
