//! A reader and a linter of INF files: what Fencepost's two must be, before any Windows sees them.
//!
//! | file | holds |
//! |---|---|
//! | `mod.rs` | the findings, and what is asked of a file as a whole |
//! | `parse.rs` | sections, entries, values |
//! | `rules.rs` | the rules, with their sources |
//!
//! It knows what these INFs use of the format, and not more: an .inx before it is stamped, one directive a line.

mod parse;
mod rules;

use std::fmt;

pub use rules::RULES;

/// A rule of the linter.
#[derive(Debug)]
pub struct Rule {
    /// Its name, `INF-…`.
    pub name: &'static str,
    /// The rule as a sentence that holds.
    pub title: &'static str,
    /// The document or tool that says so.
    pub source: &'static str,
    check: fn(&parse::Inf, &mut Findings<'_>),
}

/// Something that breaks a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Name of the rule.
    pub rule: &'static str,
    /// Line, from 1; 0 for what is not there.
    pub line: usize,
    /// What was found.
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

/// Collects the findings of one rule.
struct Findings<'a> {
    rule: &'static str,
    all: &'a mut Vec<Finding>,
}

impl Findings<'_> {
    fn add(&mut self, line: usize, what: impl Into<String>) {
        self.all.push(Finding { rule: self.rule, line, what: what.into() });
    }

    fn unless(&mut self, holds: bool, line: usize, what: impl FnOnce() -> String) {
        if !holds {
            self.add(line, what());
        }
    }
}

/// What is wrong with an INF, the first line first.
pub fn lint(text: &str) -> Vec<Finding> {
    let inf = parse::Inf::read(text);
    let mut all = Vec::new();
    for rule in RULES {
        (rule.check)(&inf, &mut Findings { rule: rule.name, all: &mut all });
    }
    all.sort_by_key(|finding| finding.line);
    all
}
