//! `inf`: the linter of INF files.

use anyhow::{Result, ensure};
use clap::Args;
use fencepost::inf::{Level, MARK, RULES, Rule, VERIF_RULES, lint, verify};
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
    let (mut holds, mut unread) = (true, 0);
    for path in &arguments.files {
        let text = match std::fs::read(path).map_err(|error| error.to_string()).and_then(|bytes| text(&bytes)) {
            Ok(text) => text,
            Err(why) => {
                println!("{}: cannot be judged: {why}", path.display());
                unread += 1;
                continue;
            }
        };
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
    ensure!(unread == 0, "{unread} of {} files cannot be judged", arguments.files.len());
    Ok(holds)
}

/// The text of a file: UTF-16 LE with its mark, else what is ASCII of it. What is neither is found to be so.
///
/// # Errors
/// Another encoding, in words: what a file in it would be blamed for is not what is wrong with it.
fn text(bytes: &[u8]) -> Result<String, String> {
    const FIX: &str = "save it as ASCII, or as UTF-16 LE with a byte order mark";
    if let Some(rest) = bytes.strip_prefix(&[0xFF, 0xFE]) {
        let (words, half) = rest.as_chunks::<2>();
        if !half.is_empty() {
            return Err("it is UTF-16 LE and ends with half a letter; save it again".to_owned());
        }
        let words: Vec<_> = words.iter().map(|word| u16::from_le_bytes(*word)).collect();
        return Ok(format!("{MARK}{}", String::from_utf16_lossy(&words)));
    }
    if bytes.starts_with(&[0xFE, 0xFF]) {
        return Err(format!("it is UTF-16 BE; {FIX}"));
    }
    if bytes.starts_with(&[0xEF, 0xBB, 0xBF]) {
        return Err(format!("it is UTF-8 with a byte order mark; {FIX}"));
    }
    if bytes.contains(&0) {
        return Err(format!("it has bytes of 0, as UTF-16 without a byte order mark has; {FIX}"));
    }
    Ok(String::from_utf8_lossy(bytes).into_owned())
}
