//! `client`: what this program is when a machine has started it as one of its processes. It is not called by hand.

use anyhow::Result;
use clap::Args;

/// A client process of a machine that runs in another process
#[derive(Args)]
#[command(name = "client")]
pub struct Arguments {
    /// The machine's socket
    machine: String,
    /// What the client does
    role: String,
}

pub fn run(arguments: &Arguments) -> Result<bool> {
    fencepost::separate::main(&arguments.machine, &arguments.role).map(|()| true)
}
