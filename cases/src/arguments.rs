//! What the programs' command lines have in common: settings, and files for results.

use anyhow::{Context, Result};
use std::path::Path;

/// The settings of the driver that a case, a job or the demo looks at. docs/settings.md has them all.
const SETTINGS: [&str; 3] = ["IdleMilliseconds", "PhysicalDoorbells", "PreemptInBuffers"];

/// The name of a value under a driver's registry key, and the value.
pub type Assignment = (String, u64);

/// Parses `NAME=NUMBER` for any driver: names are the driver's own, numbers decimal, or hexadecimal with `0x` or `0X`,
/// of 64 bits.
///
/// # Errors
/// A sentence: no `=`, no name, or no number of 64 bits.
pub fn of_any(text: &str) -> Result<Assignment, String> {
    let (name, value) = text.split_once('=').ok_or("NAME=NUMBER is what it looks like")?;
    if name.is_empty() {
        return Err("the name before '=' is missing".to_owned());
    }
    let (digits, radix) = match value.strip_prefix("0x").or_else(|| value.strip_prefix("0X")) {
        Some(digits) => (digits, 16),
        None => (value, 10),
    };
    // A sign is not part of a number here, although the standard library takes `+`.
    let number = u64::from_str_radix(digits, radix).ok().filter(|_| !digits.starts_with('+'));
    number.map(|number| (name.to_owned(), number)).ok_or_else(|| format!("'{value}' is no number of 64 bits"))
}

/// Checks that no value is given twice: the registry's names are the same in any case.
///
/// # Errors
/// A sentence with the first name that is there twice.
pub fn each_once<T>(settings: &[(String, T)]) -> Result<(), String> {
    for (at, (name, _)) in settings.iter().enumerate() {
        if settings[..at].iter().any(|(other, _)| other.eq_ignore_ascii_case(name)) {
            return Err(format!("the setting {name} is given twice"));
        }
    }
    Ok(())
}

/// [`of_any`] of a setting that something here looks at, whose numbers have 32 bits.
///
/// # Errors
/// As [`of_any`], and for a name that nothing here looks at, with those that there are.
pub fn setting(text: &str) -> Result<(String, u32), String> {
    let (name, value) = of_any(text)?;
    let known = SETTINGS.iter().find(|known| known.eq_ignore_ascii_case(&name));
    let known = known.ok_or_else(|| format!("nothing here looks at '{name}': known are {}", SETTINGS.join(", ")))?;
    let value = u32::try_from(value).map_err(|_| format!("'{value}' is no number of 32 bits"))?;
    Ok(((*known).to_owned(), value))
}

/// Looks, before anything is played, whether results can be written to a file. One that is not there is not there
/// behind that either.
///
/// # Errors
/// It cannot be written.
pub fn can_write(path: Option<&Path>) -> Result<()> {
    let Some(path) = path else { return Ok(()) };
    let is_new = !path.exists();
    let opened = std::fs::OpenOptions::new().create(true).append(true).open(path);
    drop(opened.with_context(|| format!("cannot write {}", path.display()))?);
    if is_new {
        std::fs::remove_file(path).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// Writes results as JSON to a file.
///
/// # Errors
/// They cannot be written.
pub fn write_json(path: &Path, results: &impl serde::Serialize) -> Result<()> {
    let text = serde_json::to_vec_pretty(results)?;
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// Prints a line of a list. A reader that has read enough is no error.
pub fn list(line: &str) {
    use std::io::Write as _;
    drop(writeln!(std::io::stdout(), "{line}"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_known_names_with_numbers() {
        assert_eq!(setting("preemptinbuffers=0x0"), Ok(("PreemptInBuffers".to_owned(), 0)));
        assert_eq!(setting("IdleMilliseconds=10"), Ok(("IdleMilliseconds".to_owned(), 10)));
        assert!(setting("PreemptInBuffer=0").is_err_and(|why| why.contains("known are IdleMilliseconds, ")));
        for wrong in [
            "",
            "PreemptInBuffers",
            "PreemptInBuffers=",
            "PreemptInBuffers=+1",
            "PreemptInBuffers=0x+1",
            "PreemptInBuffers=0x100000000",
        ] {
            assert!(setting(wrong).is_err(), "{wrong}");
        }
        let twice = [("PreemptInBuffers".to_owned(), 0), ("PreemptInBuffers".to_owned(), 1)];
        assert!(each_once(&twice).is_err() && each_once(&twice[..1]).is_ok());
    }

    /// Each setting that a case or a job needs is one that the command line takes.
    #[test]
    fn what_is_needed_can_be_given() {
        let cases = crate::submission::CASES.iter().filter_map(|case| case.needs);
        let jobs = crate::jobs::JOBS.iter().filter_map(|job| job.portable.as_ref().ok()).map(|portable| portable.needs);
        for (name, value) in cases.chain(jobs) {
            assert!(setting(&format!("{name}={value}")).is_ok(), "{name}");
        }
    }

    #[test]
    fn a_file_that_cannot_be_written_is_named_before() {
        let nowhere = Path::new("/nonexistent/results.json");
        assert!(can_write(Some(nowhere)).is_err_and(|why| format!("{why:#}").contains("/nonexistent/results.json")));
        assert!(can_write(None).is_ok());
    }
}
