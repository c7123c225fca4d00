//! `inf`: the linter of INF files.

use anyhow::{Context, Result};
use clap::Args;
use fencepost::inf::{Level, RULES, Rule, VERIF_RULES, lint, verify};
use std::path::PathBuf;

/// What is wrong with INF files, before Windows sees them: this driver's own, and with --any those of any driver
///
/// Rules INF-… are about what Fencepost's two INFs must be. Rules VERIF-… are the codes that Microsoft documents
/// for its InfVerif, with the severities of its mode /w. docs/windows.md names the codes that are not looked at.
#[derive(Args)]
#[command(name = "inf")]
pub struct Arguments {
    /// INF files, before they are stamped or after; without any, a list of the rules
    files: Vec<PathBuf>,

    /// Judge them by InfVerif's rules alone: they are another driver's
    #[arg(long)]
    any: bool,
}

fn print_rule(rule: &Rule) {
    let level = if rule.level == Level::Warning { " (warning)" } else { "" };
    println!("{:14} {}{level}\n{:14} source: {}", rule.name, rule.title, "", rule.source);
}

pub fn run(arguments: &Arguments) -> Result<bool> {
    if arguments.files.is_empty() {
        let own = if arguments.any { &[] } else { RULES };
        own.iter().chain(VERIF_RULES).for_each(print_rule);
        return Ok(true);
    }
    let mut holds = true;
    for path in &arguments.files {
        let bytes = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        let text = text(&bytes);
        let mut found = verify(&text);
        if !arguments.any {
            found.extend(lint(&text));
            found.sort_by_key(|finding| finding.line);
        }
        let (mut errors, mut warnings) = (0, 0);
        for finding in &found {
            let rule = Rule::find(finding.rule);
            let is_warning = rule.is_some_and(|rule| rule.level == Level::Warning);
            *(if is_warning { &mut warnings } else { &mut errors }) += 1;
            println!("{}: {}{finding}", path.display(), if is_warning { "warning: " } else { "" });
            println!("    {}", rule.map_or("", |rule| rule.title));
        }
        let verdict = if errors == 0 { "holds" } else { "does not hold" };
        println!("{}: {verdict}: {errors} errors, {warnings} warnings", path.display());
        holds &= errors == 0;
    }
    Ok(holds)
}

/// The text of a file: UTF-16 LE behind its mark, else what is ASCII of it. What is neither is found to be so.
fn text(bytes: &[u8]) -> String {
    match bytes.strip_prefix(&[0xFF, 0xFE]) {
        Some(rest) => {
            let words: Vec<_> = rest.as_chunks::<2>().0.iter().map(|word| u16::from_le_bytes(*word)).collect();
            String::from_utf16_lossy(&words)
        }
        None => String::from_utf8_lossy(bytes).into_owned(),
    }
}
