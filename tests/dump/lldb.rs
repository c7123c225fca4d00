//! What LLDB finds in a dump.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;

/// Debian's name of the debugger.
const LLDB: &str = "lldb-19";

/// How often LLDB is run that ends by a signal: 19.1 of Debian does so now and then while it loads a dump, the same
/// dump that it reads the next time.
const RUNS: usize = 3;

/// Runs LLDB on a dump, with these commands, and returns what it prints.
pub fn ask(dump: &Path, commands: &[String]) -> Result<String, String> {
    let mut lldb = Command::new(LLDB);
    lldb.args(["--batch", "--no-lldbinit", "-o"]).arg(format!("target create --core {}", dump.display()));
    for command in commands {
        lldb.args(["-o", command]);
    }
    let mut run = || {
        lldb.output().map_err(|error| {
            format!("{LLDB} does not run ({error}): package {LLDB} of Debian, which ./x test installs")
        })
    };
    let mut output = run()?;
    for _ in 1..RUNS {
        if output.status.signal().is_none() {
            break;
        }
        output = run()?;
    }
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() { Ok(text) } else { Err(format!("{text}\n{}", String::from_utf8_lossy(&output.stderr))) }
}
