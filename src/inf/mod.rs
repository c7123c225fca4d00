//! A reader and a linter of INF files: what Fencepost's two must be, before any Windows sees them, and what Microsoft's
//! InfVerif would say of any driver's.
//!
//! | file | holds |
//! |---|---|
//! | `mod.rs` | the findings, and what is asked of a file as a whole |
//! | `parse.rs` | sections, entries, values |
//! | `table.rs` | what each form's INF has, directive by directive |
//! | `compare.rs` | a file against that table |
//! | `rules.rs` | the rules' names, with their sources |
//! | `verif.rs` | what InfVerif's documented codes say, of any INF |
//!
//! The table knows what these INFs use of the format, and not more: an .inx before it is stamped or an .inf after, one
//! directive a line. Whatever the table does not have is a finding, and so is what it has and the file has not.

mod compare;
mod parse;
mod rules;
mod table;
mod verif;

use std::fmt;

pub use compare::stampable;
pub use rules::RULES;
pub use verif::VERIF_RULES;

/// How grave a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// The file is refused.
    Error,
    /// The file is probably not what was meant.
    Warning,
}

/// A rule of the linter.
#[derive(Debug)]
pub struct Rule {
    /// Its name: `INF-…` of what Fencepost's own must be, `VERIF-…` with InfVerif's code.
    pub name: &'static str,
    /// The rule as a sentence that holds.
    pub title: &'static str,
    /// The document or tool that says so.
    pub source: &'static str,
    /// How grave a finding is.
    pub level: Level,
}

impl Rule {
    /// The rule of this name.
    pub fn find(name: &str) -> Option<&'static Self> {
        RULES.iter().chain(VERIF_RULES).find(|rule| rule.name == name)
    }
}

/// Something that breaks a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Name of the rule.
    pub rule: &'static str,
    /// Line, from 1; 0 for what is not there.
    pub line: usize,
    /// What was found, and what to write instead.
    pub what: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.rule, self.what),
            line => write!(f, "line {line}: {}: {}", self.rule, self.what),
        }
    }
}

/// Collects findings.
#[derive(Default)]
struct Findings(Vec<Finding>);

impl Findings {
    fn add(&mut self, rule: &'static str, line: usize, what: impl Into<String>) {
        self.0.push(Finding { rule, line, what: what.into() });
    }

    fn unless(&mut self, holds: bool, rule: &'static str, line: usize, what: impl FnOnce() -> String) {
        if !holds {
            self.add(rule, line, what());
        }
    }
}

/// The byte order mark, with which a text begins that may have any letters.
pub const MARK: char = '\u{FEFF}';

/// Lines that are not ASCII, by the rule `ascii` where there is one, and those that are no INF syntax, by the rule
/// `syntax`.
fn lines(inf: &parse::Inf, ascii: Option<&'static str>, syntax: &'static str, found: &mut Findings) {
    if let Some(ascii) = ascii {
        for (line, text) in (1..).zip(inf.text.lines()) {
            found.unless(text.is_ascii(), ascii, line, || format!("'{}' is not ASCII; write it in ASCII", text.trim()));
        }
    }
    for (line, mistake) in &inf.malformed {
        found.add(syntax, *line, *mistake);
    }
    for line in &inf.stray {
        found.add(syntax, *line, "the line stands before any section; put it into one, or remove it");
    }
}

/// What an INF installs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contents {
    /// The files that it copies, in the order of `[SourceDisksFiles]`.
    pub files: Vec<String>,
    /// The hardware IDs of its models, in their order, each once.
    pub hardware: Vec<String>,
}

impl Contents {
    /// Of an INF's text.
    pub fn of(text: &str) -> Self {
        let inf = parse::Inf::read(text);
        let files = inf.entries("SourceDisksFiles").map(|entry| entry.key.clone()).collect();
        let mut hardware: Vec<String> = Vec::new();
        for entry in compare::models(&inf) {
            // The first value is the section that installs the model.
            for id in entry.values.iter().skip(1).filter(|id| !id.is_empty()) {
                if !hardware.iter().any(|known| known.eq_ignore_ascii_case(id)) {
                    hardware.push(id.clone());
                }
            }
        }
        Self { files, hardware }
    }
}

/// What InfVerif's documented rules say of any driver's INF, the first line first, and before it what is missing.
/// A text that begins with [`MARK`] is of a file that is UTF-16; any other is ASCII.
pub fn verify(text: &str) -> Vec<Finding> {
    let mut found = Findings::default();
    let unmarked = text.strip_prefix(MARK);
    verif::verify(&parse::Inf::read(unmarked.unwrap_or(text)), unmarked.is_some(), &mut found);
    found.0.sort_by_key(|finding| finding.line);
    found.0.dedup();
    found.0
}

/// What is wrong with an INF of Fencepost's, the first line first, and before it what is missing.
pub fn lint(text: &str) -> Vec<Finding> {
    let inf = parse::Inf::read(text.strip_prefix(MARK).unwrap_or(text));
    let mut found = Findings::default();
    compare::whole(&inf, &mut found);
    compare::strings(&inf, &mut found);
    compare::table(&inf, &mut found);
    found.0.sort_by_key(|finding| finding.line);
    found.0
}
