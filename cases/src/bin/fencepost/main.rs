//! `fencepost.exe`: what can be played of this project on a Windows machine, through its real `D3DKMT` functions. Built
//! on Linux by `./x exe`, and by `cargo make scenarios` and `cargo make tdr` on Windows, where it was never run; Wine
//! starts it, and has no such adapter.
//!
//! Exit: 0 everything that was played passed, 1 something did not, 2 wrong usage, or nothing could be played.

#[cfg(windows)]
mod scenario;
#[cfg(windows)]
mod tdr;

#[cfg(windows)]
mod program {
    use super::{scenario, tdr};
    use anyhow::Result;
    use clap::{Args, Parser, Subcommand};
    use portable_cases::machine::Machine;
    use std::path::PathBuf;

    /// Fencepost's conformance cases and the kit's jobs about timeouts, on this machine's adapter
    #[derive(Parser)]
    #[command(name = "fencepost", version)]
    pub struct Arguments {
        #[command(subcommand)]
        command: Command,
    }

    #[derive(Subcommand)]
    enum Command {
        Machine(Ask),
        Scenario(scenario::Arguments),
        Tdr(tdr::Arguments),
    }

    /// What this machine is: Windows' build, its adapters, and what the driver needs of it
    #[derive(Args)]
    struct Ask {
        /// Write it to this file as well
        #[arg(long, value_name = "FILE")]
        json: Option<PathBuf>,
    }

    /// Does what the arguments ask for, behind what the machine is. Returns whether everything held.
    pub fn run() -> Result<bool> {
        let arguments = Arguments::parse();
        let machine = Machine::look();
        let lists = match &arguments.command {
            Command::Machine(_) => false,
            Command::Scenario(scenario) => scenario.list,
            Command::Tdr(tdr) => tdr.list,
        };
        if !lists {
            print!("{machine}");
        }
        match arguments.command {
            Command::Machine(ask) => {
                if let Some(path) = ask.json {
                    std::fs::write(path, serde_json::to_vec_pretty(&machine)?)?;
                }
                Ok(machine.missing().is_none())
            }
            Command::Scenario(scenario) => scenario::run(scenario, &machine),
            Command::Tdr(tdr) => tdr::run(tdr, &machine),
        }
    }
}

#[cfg(windows)]
fn main() -> std::process::ExitCode {
    portable_cases::windows::exit("fencepost", program::run())
}

#[cfg(not(windows))]
fn main() -> std::process::ExitCode {
    eprintln!("this program is for Windows; here the same cases are ./x scenario, and the jobs ./x tdr");
    2.into()
}
