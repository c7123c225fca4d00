//! The model's verdict on a driver that it knows nothing of: start, what any driver must be able to do, stop.
//!
//! A verdict is worth what was reached: a driver that breaks no rule because next to nothing of it ran is not judged
//! ([`Outcome`]).
//!
//! | file | holds |
//! |---|---|
//! | `mod.rs` | from the image to the verdict |
//! | `outcome.rs` | what a verdict is, and what must be reached for one |
//! | `run.rs` | what is done with the driver, on a thread that it may keep |
//! | `exercise.rs` | processes that use an adapter without the driver's private data |
//! | `work.rs` | work for a node that is not to be executed |
//! | `resets.rs` | preemptions, suspensions, resets |
//! | `services.rs` | what services of Windows are for |

mod exercise;
mod outcome;
mod resets;
mod run;
mod services;
mod work;

pub use outcome::{Outcome, Reach};

use crate::dump;
use crate::setting::{self, Assignment};
use anyhow::{Context, Result};
use dxgkrnl_model::driver::Driver;
use dxgkrnl_model::os::Os;
use dxgkrnl_model::personality::{Personality, Windows};
use dxgkrnl_model::report::Report;
use nt_model::{Rule, Severity};
use serde::Serialize;
use std::time::Duration;

/// A rule and what came of it.
#[derive(Clone, Debug, Serialize)]
pub struct Verdict {
    /// Its name.
    pub name: &'static str,
    /// The document that says so.
    pub source: &'static str,
    /// `held`, `broken` or `not reached`.
    pub status: &'static str,
    /// What a breach weighs: `error`, `warning` or `note`. Errors alone count for the verdict.
    pub severity: &'static str,
    /// How often it was broken.
    pub count: u64,
    /// What was found, for a broken rule; what the rule says, for the others.
    pub detail: String,
}

/// A rule, as the index of all of them has it.
#[derive(Clone, Debug, Serialize)]
pub struct Listed {
    /// Its name.
    pub id: &'static str,
    /// What it demands.
    pub title: &'static str,
    /// The document that says so.
    pub source: &'static str,
    /// What a breach weighs: `error`, `warning` or `note`.
    pub severity: &'static str,
    /// Code and first parameter of the bug check that Windows or Driver Verifier has for it, where there is one.
    pub bugcheck: Option<(u32, u64)>,
    /// What the driver's author should do.
    pub fix: &'static str,
}

/// Every rule, in the model's order.
pub fn index() -> Vec<Listed> {
    let lists = nt_model::ALL_RULES.iter().chain(dxgkrnl_model::rules::ALL);
    let listed = |rule: &&'static Rule| {
        let Rule { name: id, title, source, bugcheck, fix, .. } = **rule;
        Listed { id, title, source, severity: rule.severity.name(), bugcheck, fix }
    };
    lists.flat_map(|list| list.0).map(listed).collect()
}

/// What was done with the driver, and what came of it.
#[derive(Serialize)]
pub struct Checked {
    /// The verdict.
    pub outcome: Outcome,
    /// Why the driver is not judged, or what of it is not, a sentence each.
    pub unjudged: Vec<String>,
    /// What was reached.
    pub reached: Vec<Reach>,
    /// Functions that the driver has registered, and that were never called.
    pub never_called: Vec<&'static str>,
    /// How many functions the driver has registered.
    pub registered: usize,
    /// Services that the driver imports and the model lacks, each with what it is for.
    pub missing: Vec<String>,
    /// Why Windows refuses the start, where the model was to go on past that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub would_refuse: Option<String>,
    /// Every rule, in the model's order.
    pub rules: Vec<Verdict>,
    /// Steps that the driver took or refused, in words.
    pub steps: Vec<String>,
}

/// The name that this project's driver was made under.
const OURS: &str = "fencepost.sys";

/// Returns whether the image says in its version resource that it was made as this project's driver. A copy under
/// another name says it, too; a driver of another project does not, whatever its file is called.
pub fn is_ours(image: &[u8]) -> bool {
    let wide = |text: &str| text.encode_utf16().chain([0]).flat_map(u16::to_le_bytes).collect::<Vec<_>>();
    let (key, value) = (wide("OriginalFilename"), wide(OURS));
    let Some(at) = image.windows(key.len()).position(|bytes| bytes == key) else { return false };
    // The value begins at a multiple of 4 bytes behind the key.
    let behind = &image[at + key.len()..];
    behind.starts_with(&value) || behind.get(2..).is_some_and(|behind| behind.starts_with(&value))
}

/// How a driver is checked.
#[derive(Clone, Copy, Debug)]
pub struct Terms<'a> {
    /// Values under the registry key: for this project's own driver those of the service under the service's key, and
    /// the device of the class that the form wants.
    pub settings: &'a [Assignment],
    /// On which Windows.
    pub windows: Windows,
    /// What must be reached besides an open adapter.
    pub demanded: &'a [Reach],
    /// How long a function of the driver may keep its caller, by the host's clock.
    pub deadline: Duration,
    /// Whether to go on past a refusal of the start, where the model can.
    pub past_refusals: bool,
}

/// Loads the driver, starts an adapter with it, uses the adapter as far as is possible without the driver's private
/// data, and stops it. `say` gets what is to be known before the driver runs, a line each.
///
/// A function of the driver that does not return within the deadline ends the check. Its thread cannot be ended where
/// it calls no service: it and the machine are left as they are, until the process ends.
///
/// # Errors
/// When the file is no driver image that can be loaded, or the model's start transcript is not understood. What the
/// driver does wrong, and what the model lacks, is a verdict and not an error.
pub fn check(name: &str, bytes: Vec<u8>, terms: &Terms<'_>, say: &dyn Fn(&str)) -> Result<Checked> {
    let mut personality = Personality::collecting();
    terms.windows.apply(&mut personality);
    personality.past_refusals = terms.past_refusals;
    let os = Os::boot(personality).context("the start transcript is not understood")?;
    dump::watch(&os);
    let given = name;
    // The service of this project's driver has one name, whatever the file's is.
    let (name, config) = if is_ours(&bytes) {
        setting::set_service(&os, terms.settings);
        (OURS, setting::adapter_of_ours(terms.settings))
    } else {
        (name, setting::adapter(terms.settings))
    };
    // The error of a file that has no table of imports is that of loading it.
    let missing = os.kernel().missing_imports(&bytes).unwrap_or_default();
    let missing: Vec<_> = missing.iter().map(|import| services::with_purpose(import)).collect();
    missing.iter().for_each(|import| say(&format!("the model lacks {import}")));
    let run = run::play(os, Driver::Image(name.to_owned(), bytes), config, terms.deadline)
        .map_err(|error| anyhow::Error::new(error).context(format!("{given} cannot be loaded")))?;
    let (os, seen) = (run.os(), run.seen());
    let report = os.report();
    let violations = os.kernel().rules.violations();
    let lacking = violations.iter().position(|violation| outcome::is_lacking(violation.rule.name));
    // What follows may follow from what the model lacks, and counts as not reached.
    let behind: Vec<_> = violations.iter().skip(lacking.map_or(violations.len(), |at| at + 1)).collect();
    let is_behind = |name: &str| behind.iter().any(|violation| violation.rule.name == name);
    let found = |name| violations.iter().find(|v| v.rule.name == name).map(ToString::to_string);
    let rules = verdicts(&report, &found, &is_behind);
    let calls = seen.adapter.as_ref().map(|adapter| adapter.ddi_calls()).unwrap_or_default();
    // The last function is called when the adapter is gone.
    let is_called = |slot: &&str| calls.contains_key(*slot) || *slot == "DxgkDdiUnload" && seen.ended;
    let never_called: Vec<_> = seen.slots.iter().copied().filter(|slot| !is_called(slot)).collect();
    let counts = |rule: &Rule| rule.severity == Severity::Error || outcome::is_lacking(rule.name);
    let counted = violations.iter().filter(|violation| counts(violation.rule));
    let broken: Vec<_> = counted.map(|violation| violation.rule.name).collect();
    let (outcome, unjudged) =
        outcome::judge(&broken, seen.refused, &seen.gaps, &seen.reached, &seen.lacks, terms.demanded);
    let (reached, registered, steps) = (seen.reached.clone(), seen.slots.len(), seen.steps.clone());
    let would_refuse = seen.would_refuse.clone();
    Ok(Checked { outcome, unjudged, reached, never_called, registered, missing, would_refuse, rules, steps })
}

fn verdicts(
    report: &Report,
    found: &dyn Fn(&'static str) -> Option<String>,
    is_behind: &dyn Fn(&str) -> bool,
) -> Vec<Verdict> {
    report
        .rules
        .iter()
        .map(|rule| {
            let broken = if is_behind(rule.rule.name) { 0 } else { rule.broken };
            let status = match (broken, rule.evaluations) {
                (0, _) if rule.broken != 0 => "not reached",
                (0, 0) => "not reached",
                (0, _) => "held",
                _ => "broken",
            };
            let name = rule.rule.name;
            let detail = if status == "broken" { found(name) } else { None };
            let detail = detail.unwrap_or_else(|| rule.rule.title.to_owned());
            let (source, severity) = (rule.rule.source, rule.rule.severity.name());
            Verdict { name, source, status, severity, count: broken, detail }
        })
        .collect()
}
