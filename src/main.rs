//! The command line. `./x` builds what it needs and passes on to it.

mod cli;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::main()
}
