//! Plays the cases, with the arguments of `fencepost scenario`: `own_case --native`, `own_case OC-02 --repeat 10`.

use std::process::ExitCode;

fn main() -> ExitCode {
    fencepost::cli::play_cases(own_case::CASES)
}
