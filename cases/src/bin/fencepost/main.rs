//! `fencepost.exe`: what can be played of this project on a Windows machine, through its real `D3DKMT` functions. Built
//! on Linux by `./x exe`, and by `cargo make scenarios` and `cargo make tdr` on Windows, where it was never run; Wine
//! starts it, and has no such adapter.
//!
//! Exit: 0 everything that was played passed, 1 something did not, 2 wrong usage, or nothing could be played.

#[cfg(windows)]
mod demo;
#[cfg(windows)]
mod scenario;
#[cfg(windows)]
mod tdr;

#[cfg(windows)]
mod program {
    use super::{demo, scenario, tdr};
    use anyhow::{Context, Result};
    use clap::{Args, Parser, Subcommand};
    use portable_cases::arguments::{can_write, each_once, write_json};
    use portable_cases::escape::{self, EscapeCounters, EscapeStart};
    use portable_cases::machine::Machine;
    use portable_cases::windows::{ACT, Windows, d3d, user_mode_driver};
    use portable_cases::{System as _, apart};
    use std::path::{Path, PathBuf};
    use std::time::Duration;

    /// Fencepost's demo, its conformance cases and the kit's jobs about timeouts, on this machine's adapter
    #[derive(Parser)]
    #[command(name = "fencepost", version)]
    pub struct Arguments {
        #[command(subcommand)]
        command: Command,
    }

    #[derive(Subcommand)]
    enum Command {
        Machine(Ask),
        Demo(demo::Arguments),
        #[command(name = demo::PART, hide = true)]
        Part(demo::Part),
        #[command(name = ACT, hide = true)]
        Act(Acting),
        #[command(name = "d3d")]
        Direct3D(Library),
        Scenario(scenario::Arguments),
        Tdr(tdr::Arguments),
    }

    /// What a case has another process do
    #[derive(Args)]
    struct Acting {
        name: String,
        numbers: Vec<u64>,
        #[arg(long)]
        umd: Option<PathBuf>,
    }

    /// Plays an act, and ends without closing anything.
    fn act(acting: &Acting) -> Result<bool> {
        let act = apart::find(&acting.name).context("no act has this name")?;
        let umd = user_mode_driver(acting.umd.as_deref());
        let process = Windows::new(&umd, Duration::from_secs(2), Vec::new())?.process("guest", false)?;
        let played = (act.play)(&*process, &acting.numbers);
        std::mem::forget(process);
        played.map(|()| true)
    }

    /// What Direct3D's runtimes are answered by the library that they load: each function that opens an adapter is
    /// called, and refuses
    #[derive(Args)]
    struct Library {
        /// fencepost_d3d.dll
        file: PathBuf,
    }

    /// `DXGI_ERROR_UNSUPPORTED`: what was seen to have a runtime go on without the adapter.
    const UNSUPPORTED: u32 = 0x887A_0004;

    /// Asks as the runtimes do. Returns whether each is refused as it should be.
    fn direct_3d(file: &Path) -> Result<bool> {
        let answers = d3d::open_adapters(file)?;
        for ((name, version), answer) in d3d::FUNCTIONS.iter().zip(&answers) {
            println!("{name:16} (Direct3D {version}) {answer:#010X}");
        }
        Ok(answers.iter().all(|answer| *answer == UNSUPPORTED))
    }

    /// What this machine is: Windows' build, its adapters, and what the driver needs of it; and what the driver says of
    /// its start and has counted
    #[derive(Args)]
    struct Ask {
        /// The user-mode driver (without this: that beside this program, else out/fencepost_umd.dll)
        #[arg(long, value_name = "FILE")]
        umd: Option<PathBuf>,
        /// Write it to this file as well
        #[arg(long, value_name = "FILE")]
        json: Option<PathBuf>,
    }

    /// Says what the driver says of its start: rung, features, queries. Returns that, and its counters.
    pub fn say_driver(windows: &Windows) -> Result<(EscapeStart, EscapeCounters)> {
        let (start, counters) = escape::said(&*windows.process("asks", false)?)?;
        for line in escape::words(&start) {
            println!("driver    {line}");
        }
        Ok((start, counters))
    }

    /// Does what the arguments ask for, behind what the machine is. Returns whether everything held.
    pub fn run() -> Result<bool> {
        let arguments = Arguments::parse();
        if let Command::Part(part) = &arguments.command {
            return demo::role(part).map(|()| true);
        }
        if let Command::Direct3D(library) = &arguments.command {
            return direct_3d(&library.file);
        }
        if let Command::Act(acting) = &arguments.command {
            return act(acting);
        }
        let machine = Machine::look();
        let lists = match &arguments.command {
            Command::Machine(_) | Command::Demo(_) | Command::Part(_) | Command::Act(_) | Command::Direct3D(_) => false,
            Command::Scenario(scenario) => scenario.list,
            Command::Tdr(tdr) => tdr.list,
        };
        let (json, settings) = match &arguments.command {
            Command::Machine(ask) => (&ask.json, &[][..]),
            Command::Demo(demo) => (&demo.json, &demo.settings[..]),
            Command::Scenario(scenario) => (&scenario.json, &scenario.settings[..]),
            Command::Tdr(tdr) => (&tdr.json, &tdr.settings[..]),
            Command::Part(_) | Command::Act(_) | Command::Direct3D(_) => (&None, &[][..]),
        };
        each_once(settings).map_err(anyhow::Error::msg)?;
        can_write(json.as_deref())?;
        if !lists {
            print!("{machine}");
        }
        match arguments.command {
            Command::Machine(ask) => {
                if let Some(path) = &ask.json {
                    write_json(path, &machine)?;
                }
                let is_there = machine.missing().is_none();
                if is_there {
                    let umd = user_mode_driver(ask.umd.as_deref());
                    let (_, counters) = say_driver(&Windows::new(&umd, Duration::from_secs(2), Vec::new())?)?;
                    println!("counters  {counters:?}");
                }
                Ok(is_there)
            }
            Command::Demo(demo) => demo::run(&demo, &machine),
            Command::Part(part) => demo::role(&part).map(|()| true),
            Command::Act(acting) => act(&acting),
            Command::Direct3D(library) => direct_3d(&library.file),
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
    eprintln!("this program is for Windows; here the demo is ./x demo, the cases ./x scenario, the jobs ./x tdr");
    2.into()
}
