//! The toy with one thing wrong at a time: each mutant breaks the rule that it is named after.

mod counted;
mod declined;
mod sites;
pub mod special;

use std::collections::BTreeSet;
use std::time::Duration;

use dxgkrnl_model::personality::Personality;

use crate::tour::{Stage, run, windows};
use crate::toy::Options;

/// Real time that one machine may take; its own clock is virtual.
const LIMIT: Duration = Duration::from_secs(20);

/// A mutant and what it takes to see it.
pub struct Mutant {
    pub name: &'static str,
    pub stage: Stage,
    /// The rule, when the mutant is not named after it.
    pub rule: Option<&'static str>,
    /// Rules that cannot but be broken as well.
    pub also: &'static [&'static str],
    /// Rules that may be broken as well: whether they are is the host's.
    pub may: &'static [&'static str],
    pub options: fn(&mut Options),
    pub windows: fn(&mut Personality),
}

impl Mutant {
    pub const fn new(name: &'static str, stage: Stage) -> Self {
        Self { name, stage, rule: None, also: &[], may: &[], options: |_| (), windows: |_| () }
    }

    fn rule(&self) -> String {
        self.rule.map_or_else(|| format!("DXG-{}", self.name.to_uppercase()), str::to_owned)
    }
}

/// Mutants that need nothing special: `nf-lost` breaks DXG-NF-LOST, and nothing else.
#[rustfmt::skip]
const PLAIN: &[(Stage, &[&str])] = &[
    (
        Stage::Start,
        &[
            "init-version", "init-slot", "init-inside", "init-unload", "add-context", "start-status", "stop-status",
            "version-agrees", "qai-overrun", "qai-status", "qai-required", "qai-expected", "qai-private", "segment-probe",
            "segment-stride",
            "node-metadata", "node-name",
            "query-interface", "feature-support", "feature-input", "caps-multi-engine", "caps-flip", "caps-non-vga",
            "caps-cross-adapter-served", "segment-paging-visible", "segment-budget",
            "segment-aperture", "caps-physical-flags", "caps-internal-range", "feature-os-caps", "context-output",
            "context-companion", "context-segment", "caps-patching",
            "caps-granularity", "caps-per-engine-tdr", "caps-virtual", "caps-cross-adapter", "caps-user-mode", "caps-atomics",
            "caps-highest-address", "caps-nodes", "caps-paging-node", "caps-adapter-handle", "caps-history",
            "mmu-levels",
            "mmu-table-size", "mmu-table-segment", "mmu-table-cpu", "mmu-update-mode", "mmu-large-leaf", "segment-shape",
            "segment-paging-buffer", "native-fence-caps", "user-mode-caps", "cb-handle", "cb-object", "cb-pointer",
            "cb-map-range", "cb-unmap", "cb-free", "leak-mapping", "leak-memory", "leak-interface", "isr-claim", "clock-status",
            "clock-pair", "clock-forward",
            "object-destroy", "paging-immediate", "surprise-caps", "testing-interface", "feature-refusal",
        ],
    ),
    (
        Stage::Packets,
        &[
            "object-status", "alloc-size", "alloc-segment", "alloc-cpu-visible", "alloc-flags", "alloc-output",
            "context-info", "paging-status", "paging-overrun", "paging-private", "paging-progress",
            "paging-busy", "paging-copy", "paging-evicted", "submit-status",
            "escape-status", "int-fence", "int-node", "int-type", "int-vsync", "int-dpc", "dpc-notify", "isr-dismiss",
            "int-system-fault", "int-message", "int-level", "tdr-fence", "tdr-fence-behind",
        ],
    ),
    (Stage::KernelQueue, &["hw-submit-status", "resume-status", "hw-stall"]),
    (
        Stage::UserQueue,
        &[
            "nf-monitored-status", "nf-current-status", "nf-current-written", "nf-lost",
            "nf-destroy", "nf-write-after", "nf-address-cached", "int-native-fence", "log-set", "log-flush", "log-header",
            "log-time", "log-complete", "log-stale", "db-must-succeed", "db-connect", "db-status", "db-address", "db-page",
            "slog-header", "slog-entry", "slog-change", "slog-time", "slog-ran", "slog-stale", "slog-int",
        ],
    ),
    (Stage::Faults, &["int-fatal", "int-suspend-fence", "suspend-status"]),
    (Stage::QueueHang, &["tdr-invalidate", "tdr-collect", "tdr-guilty", "int-after-reset"]),
    (Stage::Preemption, &["preempt-answer"]),
    (Stage::PacketHang, &["tdr-mask", "tdr-query", "tdr-status", "tdr-aborted", "tdr-aborted-name", "tdr-adapter", "tdr-late", "preempt-status"]),
    (Stage::KillIdle, &["suspend-ack"]),
    (Stage::Sleep, &["int-engine-state", "power-state"]),
    (Stage::TwoAdapters, &["nf-current-untouched"]),
    (Stage::Testing, &["testing-size", "testing-build", "testing-overrun", "testing-context"]),
    (Stage::Removal, &["surprise-status", "surprise-touch"]),
];

fn all() -> Vec<Mutant> {
    let plain = PLAIN.iter().flat_map(|(stage, names)| names.iter().map(|name| Mutant::new(name, *stage)));
    plain.chain(special::list()).collect()
}

/// What is wrong with the verdict on a mutant. `None`: it is right.
fn try_out(mutant: Mutant) -> Option<String> {
    let name = mutant.name;
    let (sender, receiver) = std::sync::mpsc::channel();
    // A machine that hangs is left behind, so that its mutant can be named.
    std::thread::spawn(move || sender.send(judge(&mutant)));
    let verdict = receiver.recv_timeout(LIMIT).unwrap_or_else(|error| Some(error.to_string()));
    verdict.map(|text| format!("{name}: {text}"))
}

fn judge(mutant: &Mutant) -> Option<String> {
    let mut options = Options::default();
    (mutant.options)(&mut options);
    let mut personality = windows();
    (mutant.windows)(&mut personality);
    let right = run(options, mutant.stage, personality.clone());
    if !right.broken.is_empty() || right.stopped.is_some() {
        return Some(format!("without it {:?} are broken: {:?}, {:#?}", right.broken, right.stopped, right.violations));
    }
    options.mutant = mutant.name;
    let ended = run(options, mutant.stage, personality);
    let mut wanted = vec![mutant.rule()];
    wanted.extend(mutant.also.iter().map(|rule| (*rule).to_owned()));
    wanted.sort_unstable();
    let broken: Vec<_> = ended.broken.iter().filter(|rule| !mutant.may.contains(rule)).cloned().collect();
    (broken != wanted).then(|| format!("breaks {:?} instead of {wanted:?}; {:?}", ended.broken, ended.stopped))
}

#[test]
fn each_mutant_breaks_its_rule() {
    let only = std::env::var("MUTANT").ok();
    let chosen = all().into_iter().filter(|mutant| only.as_deref().is_none_or(|only| only == mutant.name));
    let wrong: Vec<_> = chosen.filter_map(try_out).collect();
    assert!(wrong.is_empty(), "{}:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn each_rule_has_a_mutant() {
    let broken: BTreeSet<_> = all().iter().map(Mutant::rule).collect();
    let rules: BTreeSet<_> = dxgkrnl_model::rules::ALL.iter().flat_map(|list| list.0).map(|rule| rule.name).collect();
    let missing: Vec<_> = rules.iter().filter(|rule| !broken.contains(**rule)).collect();
    assert!(missing.is_empty(), "no mutant breaks {missing:?}");
}

/// The rows of `docs/rules.md`: name, what a breach weighs, what is demanded, by which document, the bug check, and the
/// mutants of the toy driver that break it. Those of nt_model's rules are broken by that crate's own tests.
fn rows() -> Vec<String> {
    let mutants = all();
    let lists = nt_model::ALL_RULES.iter().chain(dxgkrnl_model::rules::ALL);
    let row = |rule: &&'static nt_model::Rule| {
        let stop = rule.bugcheck.map_or_else(String::new, |(code, first)| format!("{code:#x}, {first:#x}"));
        let mut breaks: Vec<_> =
            mutants.iter().filter(|mutant| mutant.rule() == rule.name).map(|mutant| mutant.name).collect();
        breaks.sort_unstable();
        breaks.dedup();
        let breaks: Vec<_> = breaks.iter().map(|name| format!("`{name}`")).collect();
        let (title, source) = (rule.title.replace('|', "\\|"), rule.source.replace('|', "\\|"));
        format!("| `{}` | {} | {title} | {source} | {stop} | {} |", rule.name, rule.severity, breaks.join(", "))
    };
    lists.flat_map(|list| list.0).map(row).collect()
}

#[test]
fn the_page_of_rules_is_what_the_rules_say() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/rules.md");
    let text = std::fs::read_to_string(path).expect("docs/rules.md");
    let (text, declined) = text.split_once(declined::HEAD).unwrap_or((&text, ""));
    let (there, rest): (Vec<_>, Vec<_>) = text.lines().partition(|line| line.starts_with("| `"));
    let want = rows();
    if std::env::var_os("WRITE_RULES").is_some() {
        let rest = rest.join("\n").trim_end().to_owned();
        let (rows, head, declined) = (want.join("\n"), declined::HEAD, declined::section());
        return std::fs::write(path, format!("{rest}\n{rows}\n{head}{declined}")).expect("docs/rules.md");
    }
    let wrong: Vec<_> = want.iter().filter(|row| !there.contains(&row.as_str())).collect();
    assert!(there == want, "WRITE_RULES=1 writes these rows of docs/rules.md:\n{wrong:#?}");
    assert!(
        declined == declined::section(),
        "WRITE_RULES=1 writes what docs/rules.md has of requirements without a rule"
    );
}
