//! Wine, and a prefix of its own for this: made once (some seconds, 700 MB), and kept with the services in it.

use anyhow::{Context, Result, bail, ensure};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What is said where Wine is not there.
const ABSENT: &str = "Wine is not there: it comes with Debian's packages wine and wine64 (apt-get install wine wine64; \
                      ./x installs them)";
/// The class of display adapters.
pub const CLASS: &str = "{4d36e968-e325-11ce-bfc1-08002be10318}";
/// The root-enumerated device's key; the device itself is `0000` below it.
pub const DEVICE: &str = r"HKLM\System\CurrentControlSet\Enum\ROOT\FENCEPOST";
/// Seconds for one of Wine's programs.
const LIMIT: &str = "600";
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

/// The services, in one group, so that one of Wine's processes has all of them; and time for Wine's service manager,
/// which gives a service ten seconds otherwise, on a machine that is busy.
const SERVICES: &str = "Windows Registry Editor Version 5.00\r\n\r\n\
    [HKEY_LOCAL_MACHINE\\System\\CurrentControlSet\\Control]\r\n\"ServicesPipeTimeout\"=\"120000\"\r\n\r\n";

/// A prefix that nobody else uses meanwhile.
pub struct Prefix {
    folder: PathBuf,
    version: String,
    _lock: File,
}

impl Prefix {
    /// The prefix in `folder`, made where it is not there, or another Wine's. An earlier run's report is gone.
    pub fn at(folder: &Path) -> Result<Self> {
        let version = version()?;
        let cannot = || format!("cannot write into {}", folder.display());
        std::fs::create_dir_all(folder).with_context(cannot)?;
        // Wine wants it absolute.
        let folder = folder.canonicalize().with_context(cannot)?;
        let lock = File::create(folder.join("lock")).with_context(cannot)?;
        lock.lock().with_context(cannot)?;
        let prefix = Self { folder, version, _lock: lock };
        // A file of this run's, which Wine's processes add to.
        File::create(prefix.log()).with_context(cannot)?;
        // What a run that was ended has left running.
        prefix.end();
        let is_made = std::fs::read_to_string(prefix.made()).is_ok_and(|made| made == prefix.description());
        if !is_made || prefix.has_device() {
            prefix.make()?;
        }
        let _was_there = std::fs::remove_file(prefix.file("report.txt"));
        prefix.serve();
        Ok(prefix)
    }

    /// `wine --version`.
    pub fn version(&self) -> String {
        self.version.clone()
    }

    /// What the prefix is made of, as `made` has it.
    fn description(&self) -> String {
        format!("{}\n{}", self.version, services())
    }

    /// Returns whether a run that was ended has left the device there: Wine would load the driver with its services.
    fn has_device(&self) -> bool {
        std::fs::read_to_string(self.root().join("system.reg")).is_ok_and(|text| text.contains("ROOT\\\\FENCEPOST"))
    }

    fn root(&self) -> PathBuf {
        self.folder.join("prefix")
    }

    fn made(&self) -> PathBuf {
        self.folder.join("made")
    }

    fn log(&self) -> PathBuf {
        self.folder.join("wine.log")
    }

    /// The path of a file that Wine knows as `C:\fencepost\NAME`.
    fn file(&self, name: &str) -> PathBuf {
        self.folder.join("prefix/drive_c/fencepost").join(name)
    }

    fn make(&self) -> Result<()> {
        eprintln!("fencepost: making a Wine prefix (once; some seconds, 700 MB)");
        let root = self.root();
        let _old = std::fs::remove_file(self.made());
        for attempt in 1.. {
            if root.exists() {
                self.end();
                std::fs::remove_dir_all(&root).with_context(|| format!("cannot remove {}", root.display()))?;
            }
            let before = self.said().len();
            std::fs::create_dir_all(&root).with_context(|| format!("cannot write into {}", root.display()))?;
            self.serve();
            self.command("wineboot").arg("-i").stdout(Stdio::null()).status().context("timeout, which runs Wine")?;
            if !self.had_stillbirth(before) || attempt == ATTEMPTS {
                break;
            }
        }
        ensure!(root.join("drive_c/windows").is_dir(), "wineboot -i has made no prefix in {}", root.display());
        let folder = self.file("");
        std::fs::create_dir_all(&folder).with_context(|| format!("cannot write into {}", folder.display()))?;
        self.place("services.reg", services().as_bytes())?;
        if let Err(why) = self.run(&["reg", "import", r"C:\fencepost\services.reg"])? {
            bail!("Wine's registry does not take the services: {why}");
        }
        // Wine's service manager reads them, and its own settings, when it starts.
        self.end();
        std::fs::write(self.made(), self.description()).context("cannot write into the prefix's folder")
    }

    /// Puts a file to `C:\fencepost`.
    pub fn place(&self, name: &str, bytes: &[u8]) -> Result<()> {
        let path = self.file(name);
        std::fs::write(&path, bytes).with_context(|| format!("cannot write {}", path.display()))
    }

    /// A file of `C:\fencepost`, if it is there.
    pub fn read(&self, name: &str) -> Option<Vec<u8>> {
        std::fs::read(self.file(name)).ok()
    }

    /// What Wine has said of itself in this run.
    pub fn said(&self) -> String {
        std::fs::read(self.log()).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
    }

    /// Runs one of Wine's programs, again where a process was stillborn. Returns what it printed, or as an error that
    /// and how it ended.
    pub fn run(&self, arguments: &[&str]) -> Result<Result<String, String>> {
        let mut attempt = 1;
        loop {
            let before = self.said().len();
            let done = self.run_once(arguments)?;
            if done.is_ok() || attempt == ATTEMPTS || !self.had_stillbirth(before) {
                return Ok(done);
            }
            attempt += 1;
        }
    }

    /// Returns whether Wine has said behind `before` bytes of its log that a process did not come to life.
    fn had_stillbirth(&self, before: usize) -> bool {
        self.said().get(before..).is_some_and(|said| said.contains(STILLBORN))
    }

    fn run_once(&self, arguments: &[&str]) -> Result<Result<String, String>> {
        let output = self.command("wine").args(arguments).output().context("timeout, which runs Wine")?;
        let said = String::from_utf8_lossy(&output.stdout).replace('\r', "");
        let said = said.trim();
        let command = arguments.join(" ");
        Ok(match output.status.code() {
            Some(0) => Ok(said.to_owned()),
            Some(124) => Err(format!("wine {command} did not end within {LIMIT} s")),
            _ => Err(format!("wine {command}: {} {said}", output.status)),
        })
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new("timeout");
        let log = File::options().append(true).open(self.log()).map_or_else(|_| Stdio::null(), Stdio::from);
        command.args(["--kill-after=10", LIMIT, program]).stdin(Stdio::null()).stderr(log);
        self.environment(&mut command);
        command
    }

    fn environment(&self, command: &mut Command) {
        command.env("WINEPREFIX", self.root()).env("WINEDEBUG", CHANNELS);
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
    fn serve(&self) {
        self.server(PERSISTENCE);
    }

    fn server(&self, argument: &str) {
        let mut command = Command::new("wineserver");
        self.environment(&mut command);
        let _status = command.arg(argument).stdout(Stdio::null()).stderr(Stdio::null()).status();
    }
}

impl Drop for Prefix {
    fn drop(&mut self) {
        self.end();
    }
}

/// `wine --version`.
fn version() -> Result<String> {
    let output = Command::new("wine").arg("--version").env("WINEDEBUG", "-all").output();
    let output = output.ok().filter(|output| output.status.success()).context(ABSENT)?;
    let said = String::from_utf8_lossy(&output.stdout);
    said.lines().find(|line| line.starts_with("wine-")).map(str::to_owned).context(ABSENT)
}

/// The registry file of the services.
fn services() -> String {
    let mut text = SERVICES.to_owned();
    for (name, file) in
        [("DXGKrnl", "dxgkrnl.sys"), ("Fencepost", "fencepost.sys"), ("FencepostRemoval", "dxgkrnl.sys")]
    {
        text += &format!(
            "[HKEY_LOCAL_MACHINE\\System\\CurrentControlSet\\Services\\{name}]\r\n\"Type\"=dword:00000001\r\n\
             \"Start\"=dword:00000003\r\n\"ErrorControl\"=dword:00000000\r\n\"Group\"=\"fencepost\"\r\n\
             \"ImagePath\"=\"C:\\\\fencepost\\\\{file}\"\r\n\r\n"
        );
    }
    text
}
