//! The command line. `./x` builds what it needs and passes on to it.

use std::process::ExitCode;

fn main() -> ExitCode {
    fencepost::cli::main()
}
