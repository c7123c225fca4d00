//! Rules with names: what a driver must do, where that is written, and what happened when it did not.
//!
//! A [`Rule`] is a static, declared with [`rules!`](crate::rules!) in the crate that enforces it and gathered there in
//! a [`RuleList`]. A [`Rulebook`] (one per simulated machine) counts every evaluation, so that a report can say which
//! rules *held*, which were *broken* and which were *not reached*; "no violation" alone proves nothing.
//!
//! ```
//! use nt_model::{Details, Policy, Rulebook, rules};
//!
//! rules! {
//!     /// The rules of this example.
//!     pub list EXAMPLE_RULES;
//!     /// A box is closed before it is shipped.
//!     BOX_CLOSED = "EX-BOX-CLOSED" {
//!         title: "a box is closed before it is shipped",
//!         source: "Packing handbook, section 3",
//!         bugcheck: (0xC4, 0x100),
//!         fix: "close the box first",
//!     }
//! }
//!
//! let book = Rulebook::new(Policy::Collect, &[&EXAMPLE_RULES]);
//! let open = true;
//! let held = book.check(&BOX_CLOSED, !open, || Details::new("the lid is open").params([1, 2, 3]));
//! assert!(!held);
//! assert_eq!(book.violations()[0].rule.name, "EX-BOX-CLOSED");
//! assert_eq!(book.rules_run(), 1);
//! ```
//!
//! An evaluation that holds costs one increment of a counter that belongs to the calling thread: no lock, no
//! allocation, no shared cache line.

mod violation;

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use crate::cpu;
pub use violation::{CallRecord, Caller, Context, Details, Violation, hex_list};

/// How many distinct rules one process may register.
pub const MAX_RULES: usize = 512;
/// How many violations a rulebook keeps; further ones are counted only.
pub const MAX_VIOLATIONS: usize = 1000;

/// How much a broken rule weighs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Worth knowing: a document leaves it open, or the driver could do better.
    Note,
    /// A document asks for it, and drivers that do otherwise were seen to run on Windows.
    Warning,
    /// Windows refuses the driver, bug-checks, or relies on it: what comes of it is not the driver's to say.
    Error,
}

impl Severity {
    /// The word for it, in lower case.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A rule that a driver must keep.
#[derive(Debug)]
pub struct Rule {
    /// Unique name, upper case with hyphens, beginning with the area: `NT-IRQL-MAX`.
    pub name: &'static str,
    /// What the rule demands, as one sentence without a full stop.
    pub title: &'static str,
    /// Document and section that the demand was read in.
    pub source: &'static str,
    /// Bug check code and first parameter that Windows (or Driver Verifier) raises for this; `None` where it raises
    /// none.
    pub bugcheck: Option<(u32, u64)>,
    /// How much a breach weighs.
    pub severity: Severity,
    /// What the driver's author should do, in one sentence.
    pub fix: &'static str,
    /// Process-wide number plus one; 0 until registered.
    id: AtomicU32,
}

impl Rule {
    /// For [`rules!`](crate::rules!).
    pub const fn new(
        name: &'static str,
        title: &'static str,
        source: &'static str,
        bugcheck: Option<(u32, u64)>,
        fix: &'static str,
    ) -> Self {
        Self { name, title, source, bugcheck, severity: Severity::Error, fix, id: AtomicU32::new(0) }
    }

    /// The same rule with another severity.
    #[must_use]
    pub const fn weighing(mut self, severity: Severity) -> Self {
        self.severity = severity;
        self
    }

    /// Index into counter arrays. Registers the rule when nobody has.
    #[inline]
    fn index(&self) -> usize {
        match self.id.load(Ordering::Relaxed) {
            0 => self.register(),
            id => id as usize - 1,
        }
    }

    #[cold]
    fn register(&self) -> usize {
        static LAST: Mutex<u32> = Mutex::new(0);
        let mut last = LAST.lock();
        if self.id.load(Ordering::Relaxed) == 0 {
            assert!((*last as usize) < MAX_RULES, "more than {MAX_RULES} rules");
            *last += 1;
            self.id.store(*last, Ordering::Relaxed);
        }
        self.id.load(Ordering::Relaxed) as usize - 1
    }
}

/// The rules of one crate or area.
#[derive(Debug)]
pub struct RuleList(pub &'static [&'static Rule]);

/// Declares rules as statics, and a [`RuleList`] of them. See the module's example. Behind `bugcheck` a rule may say
/// `severity: warning` or `severity: note`; without it is an error.
#[macro_export]
macro_rules! rules {
    (
        $(#[$lm:meta])* $lv:vis list $list:ident;
        $(
            $(#[$m:meta])*
            $id:ident = $name:literal {
                title: $title:literal,
                source: $source:literal,
                bugcheck: $bugcheck:tt,
                $(severity: $severity:ident,)?
                fix: $fix:literal $(,)?
            }
        )*
    ) => {
        $(
            $(#[$m])*
            pub static $id: $crate::Rule =
                $crate::Rule::new($name, $title, $source, $crate::rules!(@bugcheck $bugcheck), $fix)
                    $(.weighing($crate::rules!(@severity $severity)))?;
        )*
        $(#[$lm])*
        $lv static $list: $crate::RuleList = $crate::RuleList(&[$(&$id),*]);
    };
    (@bugcheck none) => { None };
    (@severity warning) => { $crate::Severity::Warning };
    (@severity note) => { $crate::Severity::Note };
    (@bugcheck ($code:literal, $param:literal)) => { Some(($code, $param)) };
}

/// What a rulebook does with a violation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// The first violation that is an [error](Severity::Error) is printed like a bug check and stops the machine: waits
    /// end, driver code is left at its next call of a service. The process lives on; a runner asks
    /// [`Rulebook::stopped`] and exits 1. The default of tools. Others are recorded.
    Stop,
    /// Violations are recorded and the call goes on with a defined value. For tests that break rules on purpose.
    Collect,
}

/// One rule's line in a report.
#[derive(Clone, Debug)]
pub struct RuleReport {
    /// Which.
    pub rule: &'static Rule,
    /// How often it was evaluated.
    pub evaluations: u64,
    /// How often it was broken.
    pub broken: u64,
}

/// Counters of one thread. Only that thread writes them.
#[derive(Debug)]
pub(crate) struct Counts([AtomicU64; MAX_RULES]);

impl Counts {
    fn new() -> Self {
        Self([const { AtomicU64::new(0) }; MAX_RULES])
    }

    /// Adds one, on the owning thread.
    #[inline]
    pub(crate) fn count_own(&self, index: usize) {
        // A plain load and store: nobody else writes, and a reader that misses the last one reports one less.
        let counter = &self.0[index];
        counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }
}

type First = Box<dyn FnOnce(&Violation) + Send>;
type Sink = Arc<dyn Fn(&Violation) + Send + Sync>;

/// What is known about every rule on one machine.
pub struct Rulebook {
    policy: Policy,
    rules: Mutex<Vec<&'static Rule>>,
    /// Evaluations by threads that have ended or never had counters of their own.
    base: Counts,
    threads: Mutex<Vec<Arc<Counts>>>,
    broken: Counts,
    violations: Mutex<Vec<Violation>>,
    halted: AtomicBool,
    stop: OnceLock<Violation>,
    sink: Mutex<Option<Sink>>,
    on_stop: Mutex<Option<Box<dyn Fn() + Send + Sync>>>,
    /// Called once, at the first violation of a rule that is an error, before any sink.
    on_first: Mutex<Option<First>>,
}

impl fmt::Debug for Rulebook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rulebook")
            .field("policy", &self.policy)
            .field("rules_run", &self.rules_run())
            .field("violations", &self.violations.lock().len())
            .finish_non_exhaustive()
    }
}

impl Rulebook {
    /// A book with the rules of `lists`.
    pub fn new(policy: Policy, lists: &[&RuleList]) -> Self {
        let book = Self {
            policy,
            rules: Mutex::new(Vec::new()),
            base: Counts::new(),
            threads: Mutex::new(Vec::new()),
            broken: Counts::new(),
            violations: Mutex::new(Vec::new()),
            halted: AtomicBool::new(false),
            stop: OnceLock::new(),
            sink: Mutex::new(None),
            on_stop: Mutex::new(None),
            on_first: Mutex::new(None),
        };
        for list in lists {
            book.register(list);
        }
        book
    }

    /// Adds rules, so that a report shows them as "not reached" when nothing evaluates them.
    pub fn register(&self, list: &RuleList) {
        let mut rules = self.rules.lock();
        for rule in list.0 {
            rule.index();
            if !rules.iter().any(|known| std::ptr::eq(*known, *rule)) {
                rules.push(rule);
            }
        }
    }

    /// What happens at a violation.
    pub fn policy(&self) -> Policy {
        self.policy
    }

    /// Called for every recorded violation, on the thread that broke the rule. Without a sink, [`Policy::Stop`] prints
    /// the first one to standard error.
    pub fn set_sink(&self, sink: impl Fn(&Violation) + Send + Sync + 'static) {
        *self.sink.lock() = Some(Arc::new(sink));
    }

    pub(crate) fn set_on_stop(&self, hook: impl Fn() + Send + Sync + 'static) {
        *self.on_stop.lock() = Some(Box::new(hook));
    }

    pub(crate) fn set_on_first(&self, hook: impl FnOnce(&Violation) + Send + 'static) {
        *self.on_first.lock() = Some(Box::new(hook));
    }

    /// Evaluates `rule`: counts, and records a violation when `holds` is false. Returns `holds`.
    ///
    /// IRQL: any. Cost when it holds: one or two nanoseconds.
    #[inline]
    #[track_caller]
    pub fn check<D: Into<Details>>(&self, rule: &'static Rule, holds: bool, details: impl FnOnce() -> D) -> bool {
        self.count(rule);
        if !holds {
            self.record(rule, details().into(), false);
        }
        holds
    }

    /// Counts an evaluation of `rule` that held.
    #[inline]
    pub fn count(&self, rule: &'static Rule) {
        let index = rule.index();
        if !cpu::count_rule(self, index) {
            self.base.0[index].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Records a violation of `rule` that was found in another way than by [`check`](Self::check).
    pub fn broken(&self, rule: &'static Rule, details: impl Into<Details>) {
        self.count(rule);
        self.record(rule, details.into(), false);
    }

    /// Records a violation after which the machine cannot go on, whatever the policy.
    #[track_caller]
    pub fn broken_fatally(&self, rule: &'static Rule, details: impl Into<Details>) {
        self.count(rule);
        self.record(rule, details.into(), true);
    }

    /// Stops the machine without a violation: it is being dropped.
    pub(crate) fn halt_quietly(&self) {
        self.halted.store(true, Ordering::SeqCst);
    }

    #[cold]
    #[inline(never)]
    fn record(&self, rule: &'static Rule, details: Details, fatal: bool) {
        let (code, param1) = rule.bugcheck.unwrap_or((0, 0));
        let [p2, p3, p4] = details.params;
        let violation = Violation {
            rule,
            code: details.code.unwrap_or(code),
            params: [details.param1.unwrap_or(param1), p2, p3, p4],
            detail: details.text,
            context: cpu::context(),
        };
        let stops = fatal || self.policy == Policy::Stop && rule.severity == Severity::Error;
        let first = stops && self.stop.set(violation.clone()).is_ok();
        {
            let mut violations = self.violations.lock();
            // After a stop nothing that driver code does is its own fault any more.
            if self.is_stopped() && !first {
                return;
            }
            self.broken.0[rule.index()].fetch_add(1, Ordering::Relaxed);
            if violations.len() >= MAX_VIOLATIONS {
                return;
            }
            violations.push(violation.clone());
        }
        let hook = if rule.severity == Severity::Error { self.on_first.lock().take() } else { None };
        if let Some(hook) = hook {
            hook(&violation);
        }
        let sink = self.sink.lock().clone();
        match sink {
            Some(sink) => sink(&violation),
            None if first && self.policy == Policy::Stop => eprintln!("{violation}"),
            None => (),
        }
        if first {
            self.halted.store(true, Ordering::SeqCst);
            if let Some(hook) = &*self.on_stop.lock() {
                hook();
            }
        }
    }

    /// Whether the machine has stopped.
    #[inline]
    pub fn is_stopped(&self) -> bool {
        self.halted.load(Ordering::Relaxed)
    }

    /// The violation that stopped the machine.
    pub fn stopped(&self) -> Option<&Violation> {
        self.stop.get()
    }

    /// Every recorded violation, oldest first.
    pub fn violations(&self) -> Vec<Violation> {
        self.violations.lock().clone()
    }

    /// Takes the recorded violations, so that the next look sees only new ones.
    pub fn take_violations(&self) -> Vec<Violation> {
        std::mem::take(&mut *self.violations.lock())
    }

    /// Whether `rule` was broken at least once.
    pub fn was_broken(&self, rule: &'static Rule) -> bool {
        self.broken.0[rule.index()].load(Ordering::Relaxed) != 0
    }

    /// How often `rule` was evaluated.
    pub fn evaluations(&self, rule: &'static Rule) -> u64 {
        let index = rule.index();
        let threads = self.threads.lock();
        let own = self.base.0[index].load(Ordering::Relaxed);
        threads.iter().fold(own, |sum, counts| sum + counts.0[index].load(Ordering::Relaxed))
    }

    /// How many distinct rules were evaluated at least once.
    pub fn rules_run(&self) -> usize {
        let rules = self.rules.lock().clone();
        rules.into_iter().filter(|rule| self.evaluations(rule) != 0).count()
    }

    /// Every registered rule, with its counts.
    pub fn report(&self) -> Vec<RuleReport> {
        let rules = self.rules.lock().clone();
        let report = |rule: &'static Rule| RuleReport {
            rule,
            evaluations: self.evaluations(rule),
            broken: self.broken.0[rule.index()].load(Ordering::Relaxed),
        };
        rules.into_iter().map(report).collect()
    }

    /// Gives a thread counters of its own.
    pub(crate) fn add_counts(&self) -> Arc<Counts> {
        let counts = Arc::new(Counts::new());
        self.threads.lock().push(counts.clone());
        counts
    }

    /// Adds a thread's counters to the base when the thread ends.
    pub(crate) fn retire_counts(&self, counts: &Arc<Counts>) {
        let mut threads = self.threads.lock();
        let Some(at) = threads.iter().position(|known| Arc::ptr_eq(known, counts)) else { return };
        threads.swap_remove(at);
        for (sum, count) in self.base.0.iter().zip(counts.0.iter()) {
            sum.fetch_add(count.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    rules! {
        list TEST_RULES;
        /// For these tests.
        FIRST = "TEST-FIRST" { title: "one", source: "here", bugcheck: (0xC4, 0x1), fix: "none" }
        /// For these tests.
        SECOND = "TEST-SECOND" { title: "two", source: "here", bugcheck: none, fix: "none" }
        /// For these tests.
        THIRD = "TEST-THIRD" { title: "three", source: "here", bugcheck: none, severity: warning, fix: "none" }
    }

    #[test]
    fn collect_records_and_goes_on() {
        let book = Rulebook::new(Policy::Collect, &[&TEST_RULES]);
        assert!(book.check(&FIRST, true, || ""));
        assert!(!book.check(&FIRST, false, || Details::new("no").params([2, 3, 4])));
        assert!(!book.check(&SECOND, false, || "no either"));
        assert_eq!(book.evaluations(&FIRST), 2);
        assert!(!book.is_stopped());
        let violations = book.violations();
        assert_eq!((violations[0].code, violations[0].params), (0xC4, [1, 2, 3, 4]));
        assert_eq!(violations[1].code, 0);
        assert_eq!(book.rules_run(), 2);
    }

    #[test]
    fn stop_keeps_the_first_violation_only() {
        let book = Rulebook::new(Policy::Stop, &[&TEST_RULES]);
        let seen = Arc::new(AtomicU32::new(0));
        let counter = seen.clone();
        book.set_sink(move |_| _ = counter.fetch_add(1, Ordering::Relaxed));
        book.broken(&FIRST, "first");
        book.broken(&SECOND, "second");
        assert!(book.is_stopped());
        assert_eq!(book.stopped().map(|v| v.rule.name), Some("TEST-FIRST"));
        assert_eq!(book.violations().len(), 1);
        assert_eq!(seen.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn a_warning_stops_nothing_and_says_what_it_is() {
        let book = Rulebook::new(Policy::Stop, &[&TEST_RULES]);
        book.set_sink(|_| ());
        book.broken(&THIRD, "well");
        assert!(!book.is_stopped() && book.was_broken(&THIRD));
        book.broken(&FIRST, "no");
        assert_eq!(book.stopped().map(|v| v.rule.name), Some("TEST-FIRST"));
        let heads: Vec<_> = book.violations().iter().map(|v| v.to_string().lines().next().map(str::to_owned)).collect();
        assert_eq!(
            heads,
            [Some("*** WARNING".to_owned()), Some("*** STOP: 0x000000C4 (0x1, 0x0, 0x0, 0x0)".to_owned())]
        );
    }

    #[test]
    fn a_rule_that_nobody_evaluates_is_in_the_report() {
        let book = Rulebook::new(Policy::Collect, &[&TEST_RULES]);
        book.count(&FIRST);
        let report = book.report();
        assert_eq!(report.iter().map(|r| r.evaluations).collect::<Vec<_>>(), [1, 0, 0]);
    }

    #[test]
    fn counts_of_ended_threads_stay() {
        let book = Rulebook::new(Policy::Collect, &[&TEST_RULES]);
        let counts = book.add_counts();
        counts.count_own(FIRST.index());
        assert_eq!(book.evaluations(&FIRST), 1);
        book.retire_counts(&counts);
        assert_eq!(book.evaluations(&FIRST), 1);
    }
}
