//! `inf`: the linter of INF files.

use anyhow::{Context, Result};
use clap::Args;
use fencepost::inf::{RULES, lint};
use std::path::PathBuf;

/// What is wrong with INF files of this driver, before Windows sees them
#[derive(Args)]
#[command(name = "inf")]
pub struct Arguments {
    /// INF files, before they are stamped or after; without any, a list of the rules
    files: Vec<PathBuf>,
}

pub fn run(arguments: &Arguments) -> Result<bool> {
    if arguments.files.is_empty() {
        for rule in RULES {
            println!("{:14} {}\n{:14} source: {}", rule.name, rule.title, "", rule.source);
        }
        return Ok(true);
    }
    let mut holds = true;
    for path in &arguments.files {
        let bytes = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        // What is not UTF-8 is not ASCII either, and is found to be so.
        let found = lint(&String::from_utf8_lossy(&bytes));
        for finding in &found {
            let rule = RULES.iter().find(|rule| rule.name == finding.rule);
            println!("{}: {finding}", path.display());
            println!("    {}", rule.map_or("", |rule| rule.title));
        }
        println!("{}: {}", path.display(), if found.is_empty() { "holds" } else { "does not hold" });
        holds &= found.is_empty();
    }
    Ok(holds)
}
