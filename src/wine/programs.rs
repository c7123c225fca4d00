//! Wine's programs in a prefix, started again where one did not come to life.

use anyhow::{Context, Result, ensure};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// What is said where Wine is not there.
const ABSENT: &str = "Wine is not there: it comes with Debian's packages wine and wine64 (apt-get install wine wine64; \
                      ./x installs them)";
/// Seconds for one of Wine's programs.
pub(super) const LIMIT: &str = "600";
/// What Wine tells of itself: text of DbgPrint, errors, and which kernel routines are stubs.
const CHANNELS: &str = "-all,warn+debugstr,err+all,fixme+ntoskrnl";
/// Seconds for which Wine's server stays without a program of ours: by itself it ends its services after three, and a
/// machine that does other things leaves longer gaps.
const PERSISTENCE: &str = "-p900";
/// What Wine 8 says where a process of its own did not come to life: the kernel had put something else to the one
/// address that it needs, at random. The next attempt finds another layout.
const STILLBORN: &str = "failed to map the shared user data";
/// How often a program is started whose process, or one that it starts, is stillborn.
const ATTEMPTS: usize = 8;

/// A Wine prefix, `prefix` in a folder, whose programs tell of themselves in `wine.log` beside it. Its processes end
/// with this.
pub struct Wine {
    root: PathBuf,
    log: PathBuf,
}

impl Wine {
    /// The prefix in `folder`, which is there; the prefix need not be. What an earlier run has left running ends.
    ///
    /// # Errors
    /// The folder cannot be written into.
    pub fn of(folder: &Path) -> Result<Self> {
        let cannot = || format!("cannot write into {}", folder.display());
        // Wine wants it absolute.
        let folder = folder.canonicalize().with_context(cannot)?;
        let wine = Self { root: folder.join("prefix"), log: folder.join("wine.log") };
        // A file of this run's, which Wine's processes add to.
        File::create(&wine.log).with_context(cannot)?;
        wine.end();
        Ok(wine)
    }

    /// Where the prefix is.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Makes the prefix anew.
    ///
    /// # Errors
    /// Wine is not there, or makes none.
    pub fn make(&self) -> Result<()> {
        let _there = version()?;
        let root = &self.root;
        for attempt in 1.. {
            if root.exists() {
                self.end();
                std::fs::remove_dir_all(root).with_context(|| format!("cannot remove {}", root.display()))?;
            }
            let before = self.said().len();
            std::fs::create_dir_all(root).with_context(|| format!("cannot write into {}", root.display()))?;
            self.serve();
            self.output_once("wineboot", &["-i"])?;
            if !self.had_stillbirth(before) || attempt == ATTEMPTS {
                break;
            }
        }
        ensure!(root.join("drive_c/windows").is_dir(), "wineboot -i has made no prefix in {}", root.display());
        Ok(())
    }

    /// Runs one of Wine's programs, again where it failed and a process was stillborn.
    ///
    /// # Errors
    /// There is no program `timeout`.
    pub fn output(&self, program: &str, arguments: &[&str]) -> Result<Output> {
        let mut attempt = 1;
        loop {
            let before = self.said().len();
            let output = self.output_once(program, arguments)?;
            if output.status.success() || attempt == ATTEMPTS || !self.had_stillbirth(before) {
                return Ok(output);
            }
            attempt += 1;
        }
    }

    /// The program's standard output is a file: Wine's services, which it may start, have it as long as they run, and a
    /// pipe would not end before.
    fn output_once(&self, program: &str, arguments: &[&str]) -> Result<Output> {
        let mut command = Command::new("timeout");
        let log = File::options().append(true).open(&self.log).map_or_else(|_| Stdio::null(), Stdio::from);
        let printed = self.log.with_extension("out");
        let cannot = || format!("cannot write {}", printed.display());
        command.args(["--kill-after=10", LIMIT, program]).args(arguments).stdin(Stdio::null()).stderr(log);
        self.environment(&mut command);
        let status = command.stdout(File::create(&printed).with_context(cannot)?).status();
        let status = status.context("timeout, which runs Wine")?;
        Ok(Output { status, stdout: std::fs::read(&printed).with_context(cannot)?, stderr: Vec::new() })
    }

    /// Returns whether Wine has said behind `before` bytes of its log that a process did not come to life.
    fn had_stillbirth(&self, before: usize) -> bool {
        self.said().get(before..).is_some_and(|said| said.contains(STILLBORN))
    }

    /// What Wine has said of itself in this run.
    pub fn said(&self) -> String {
        std::fs::read(&self.log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
    }

    fn environment(&self, command: &mut Command) {
        command.env("WINEPREFIX", &self.root).env("WINEDEBUG", CHANNELS);
        // No display and no debugger: nothing waits for a person, and a process that breaks off ends.
        command.env_remove("DISPLAY").env_remove("WINEARCH").env("WINEDLLOVERRIDES", "mscoree,mshtml,winedbg.exe=");
    }

    /// Ends every process of the prefix.
    pub fn end(&self) {
        for argument in ["-k", "-w"] {
            self.server(argument);
        }
    }

    /// Starts Wine's server, to stay.
    pub(super) fn serve(&self) {
        self.server(PERSISTENCE);
    }

    fn server(&self, argument: &str) {
        let mut command = Command::new("wineserver");
        self.environment(&mut command);
        let _status = command.arg(argument).stdout(Stdio::null()).stderr(Stdio::null()).status();
    }
}

impl Drop for Wine {
    fn drop(&mut self) {
        self.end();
    }
}

/// `wine --version`.
///
/// # Errors
/// Wine is not there.
pub(super) fn version() -> Result<String> {
    let output = Command::new("wine").arg("--version").env("WINEDEBUG", "-all").output();
    let output = output.ok().filter(|output| output.status.success()).context(ABSENT)?;
    let said = String::from_utf8_lossy(&output.stdout);
    said.lines().find(|line| line.starts_with("wine-")).map(str::to_owned).context(ABSENT)
}
