//! The prefix of `./x wine`: made once (some seconds, 700 MB), and kept with the services in it.

use super::programs::{LIMIT, Wine, version};
use anyhow::{Context, Result, bail};
use std::fs::File;
use std::path::{Path, PathBuf};

/// The class of display adapters.
pub const CLASS: &str = "{4d36e968-e325-11ce-bfc1-08002be10318}";
/// The root-enumerated device's key; the device itself is `0000` below it.
pub const DEVICE: &str = r"HKLM\System\CurrentControlSet\Enum\ROOT\FENCEPOST";

/// The services, in one group, so that one of Wine's processes has all of them; and time for Wine's service manager,
/// which gives a service ten seconds otherwise, on a machine that is busy.
const SERVICES: &str = "Windows Registry Editor Version 5.00\r\n\r\n\
    [HKEY_LOCAL_MACHINE\\System\\CurrentControlSet\\Control]\r\n\"ServicesPipeTimeout\"=\"120000\"\r\n\r\n";

/// The prefix, which one run uses at a time.
pub struct Prefix {
    folder: PathBuf,
    version: String,
    wine: Wine,
    _lock: File,
}

impl Prefix {
    /// The prefix in `folder`, made where it is not there, or another Wine's. An earlier run's report is gone.
    pub fn at(folder: &Path) -> Result<Self> {
        let version = version()?;
        let cannot = || format!("cannot write into {}", folder.display());
        std::fs::create_dir_all(folder).with_context(cannot)?;
        let lock = File::create(folder.join("lock")).with_context(cannot)?;
        lock.lock().with_context(cannot)?;
        let prefix = Self { folder: folder.to_owned(), version, wine: Wine::of(folder)?, _lock: lock };
        let is_made = std::fs::read_to_string(prefix.made()).is_ok_and(|made| made == prefix.description());
        if !is_made || prefix.has_device() {
            prefix.make()?;
        }
        let _was_there = std::fs::remove_file(prefix.file("report.txt"));
        prefix.wine.serve();
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
        let registry = std::fs::read_to_string(self.wine.root().join("system.reg"));
        registry.is_ok_and(|text| text.contains("ROOT\\\\FENCEPOST"))
    }

    fn made(&self) -> PathBuf {
        self.folder.join("made")
    }

    /// The path of a file that Wine knows as `C:\fencepost\NAME`.
    fn file(&self, name: &str) -> PathBuf {
        self.wine.root().join("drive_c/fencepost").join(name)
    }

    fn make(&self) -> Result<()> {
        eprintln!("fencepost: making a Wine prefix (once; some seconds, 700 MB)");
        let _old = std::fs::remove_file(self.made());
        self.wine.make()?;
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
        self.wine.said()
    }

    /// Runs one of Wine's programs. Returns what it printed, or as an error that and how it ended.
    pub fn run(&self, arguments: &[&str]) -> Result<Result<String, String>> {
        let output = self.wine.output("wine", arguments)?;
        let said = String::from_utf8_lossy(&output.stdout).replace('\r', "");
        let said = said.trim();
        let command = arguments.join(" ");
        Ok(match output.status.code() {
            Some(0) => Ok(said.to_owned()),
            Some(124) => Err(format!("wine {command} did not end within {LIMIT} s")),
            _ => Err(format!("wine {command}: {} {said}", output.status)),
        })
    }

    /// Ends every process of the prefix.
    pub fn end(&self) {
        self.wine.end();
    }
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
