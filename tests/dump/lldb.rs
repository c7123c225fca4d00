//! What LLDB finds in a dump.

use std::path::Path;
use std::process::Command;

/// Debian's name of the debugger.
const LLDB: &str = "lldb-19";

/// Runs LLDB on a dump, with these commands, and returns what it prints.
pub fn ask(dump: &Path, commands: &[String]) -> Result<String, String> {
    let mut lldb = Command::new(LLDB);
    lldb.args(["--batch", "--no-lldbinit", "-o"]).arg(format!("target create --core {}", dump.display()));
    for command in commands {
        lldb.args(["-o", command]);
    }
    let output = lldb
        .output()
        .map_err(|error| format!("{LLDB} does not run ({error}): package {LLDB} of Debian, which ./x test installs"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() { Ok(text) } else { Err(format!("{text}\n{}", String::from_utf8_lossy(&output.stderr))) }
}
