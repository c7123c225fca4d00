//! A second opinion: the shipped driver under Wine, from the handshake to its unload, with a stand-in for Dxgkrnl.
//!
//! The model is ours, and what it gets wrong of NT the driver may get wrong with it. Wine is somebody else's NT: its
//! loader, its I/O manager, its Plug and Play, its registry, threads, events and locks. What it lacks, the stand-in
//! (`wine/`) fills in, service by service, and the report names each. docs/wine.md says what that shows.

mod prefix;
mod programs;
mod report;

pub use programs::Wine;
pub use report::{Played, STEPS, Service, Status, Step, Whose};

use crate::setting::Assignment;
use crate::world::hex;
use anyhow::{Context, Result};
use prefix::Prefix;
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// What the device's key has unless settings say otherwise: packets, and the smallest local segment.
const DEFAULTS: [(&str, u64); 2] = [("MaxRung", 0), ("LocalSegmentSize", 16 << 20)];
/// How long the run with the started adapter may take, on a machine that does other things as well.
const PATIENCE: Duration = Duration::from_secs(300);
/// How often it is looked whether the driver's service still runs.
const LOOK: Duration = Duration::from_secs(10);

/// Where things are.
pub struct Places {
    /// The driver's image.
    pub driver: PathBuf,
    /// The stand-in's image.
    pub stand_in: PathBuf,
    /// The folder of Wine's prefix, which is made where it is not there.
    pub folder: PathBuf,
}

/// Loads the driver under Wine with `settings` in its device's key, runs it, and unloads it.
///
/// # Errors
/// Wine or an image is not there, or a file cannot be written. What Wine or the driver does wrong is in the result.
pub fn play(places: &Places, settings: &[Assignment]) -> Result<Played> {
    let begun = Instant::now();
    let read = |path: &Path| std::fs::read(path).with_context(|| format!("cannot read {}", path.display()));
    let (driver, stand_in) = (read(&places.driver)?, read(&places.stand_in)?);
    let prefix = Prefix::at(&places.folder)?;
    prefix.place("fencepost.sys", &driver)?;
    prefix.place("dxgkrnl.sys", &stand_in)?;
    prefix.place("device.reg", device(settings).as_bytes())?;
    let mut complaints = run(&prefix)?;
    prefix.end();
    let sha256 = hex(&Sha256::digest(&driver));
    if prefix.read("fencepost.sys").is_none_or(|after| after != driver) {
        complaints.push("the image's file is not as it was".to_owned());
    }
    let text = prefix.read("report.txt").unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    Ok(report::judge(&text, &prefix.said(), complaints, prefix.version(), sha256, begun.elapsed().as_secs_f64()))
}

/// The run. Returns what went wrong that the report cannot say.
fn run(prefix: &Prefix) -> Result<Vec<String>> {
    let mut complaints = Vec::new();
    let mut must = |what: &str, arguments: &[&str]| -> Result<bool> {
        let done = prefix.run(arguments)?;
        if let Err(why) = &done {
            complaints.push(format!("{what}: {why}"));
        }
        Ok(done.is_ok())
    };
    must("the device's keys", &["reg", "import", r"C:\fencepost\device.reg"])?;
    let is_there = must("the stand-in's service", &["sc", "start", "DXGKrnl"])?
        && must("the driver's service", &["sc", "start", "Fencepost"])?;
    if is_there {
        wait(prefix)?;
    }
    // The device leaves, Wine's PnP looks for it, and the driver can be unloaded.
    must("the device's removal", &["reg", "delete", prefix::DEVICE, "/f"])?;
    if is_there {
        must("the removal's service", &["sc", "start", "FencepostRemoval"])?;
        must("the driver's unload", &["sc", "stop", "Fencepost"])?;
    }
    Ok(complaints)
}

/// Waits until the report says that the run is over, or the driver's service is not there any more.
fn wait(prefix: &Prefix) -> Result<()> {
    let begun = Instant::now();
    let mut looked = Instant::now();
    let is_over = || {
        let text = prefix.read("report.txt").unwrap_or_default();
        report::is_over(&String::from_utf8_lossy(&text), &prefix.said())
    };
    while !is_over() && begun.elapsed() < PATIENCE {
        if looked.elapsed() > LOOK {
            looked = Instant::now();
            if prefix.run(&["sc", "query", "Fencepost"])?.is_ok_and(|said| !said.contains("RUNNING")) {
                break;
            }
        }
        pause();
    }
    Ok(())
}

/// Lets some time go by between two looks.
#[expect(clippy::disallowed_methods, reason = "a file that a process of Wine's writes: there is no event to wait for")]
fn pause() {
    std::thread::sleep(Duration::from_millis(50));
}

/// The registry file of the device: a root-enumerated one of the driver's service, and its software key.
fn device(settings: &[Assignment]) -> String {
    let mut text = format!(
        "Windows Registry Editor Version 5.00\r\n\r\n[{}\\0000]\r\n\"ClassGUID\"=\"{}\"\r\n\"Class\"=\"Display\"\r\n\
         \"Service\"=\"Fencepost\"\r\n\"Driver\"=\"{}\\\\0777\"\r\n\"ConfigFlags\"=dword:00000000\r\n\r\n\
         [-{key}]\r\n\r\n[{key}]\r\n",
        prefix::DEVICE.replace("HKLM", "HKEY_LOCAL_MACHINE"),
        prefix::CLASS,
        prefix::CLASS,
        key = format_args!(r"HKEY_LOCAL_MACHINE\System\CurrentControlSet\Control\Class\{}\0777", prefix::CLASS),
    );
    let given = |name: &str| settings.iter().any(|(other, _)| other.eq_ignore_ascii_case(name));
    let defaults = DEFAULTS.iter().filter(|(name, _)| !given(name)).map(|(name, value)| (*name, *value));
    for (name, value) in defaults.chain(settings.iter().map(|(name, value)| (name.as_str(), *value))) {
        let bytes: Vec<_> = value.to_le_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
        text += &format!("\"{name}\"=hex(b):{}\r\n", bytes.join(","));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_devices_key_has_the_settings_and_the_defaults_that_they_leave() {
        let text = device(&[("maxrung".to_owned(), 3), ("RefuseQueries".to_owned(), 0x2000)]);
        assert!(text.contains("\"maxrung\"=hex(b):03,00,00,00,00,00,00,00\r\n"), "{text}");
        assert!(text.contains("\"RefuseQueries\"=hex(b):00,20,00,00,00,00,00,00\r\n"), "{text}");
        assert!(text.contains("\"LocalSegmentSize\"=hex(b):00,00,00,01,00,00,00,00\r\n"), "{text}");
        assert!(!text.contains("\"MaxRung\""), "{text}");
    }
}
