//! Each reading of the documents changes something: the case that shows it (`docs/choices.md`) is played on the default
//! Windows and under the reading, in one process, and what the two machines were seen to do must differ in the fact
//! that the table here names: a function that is called, an order, an argument, an answer, what a case has counted. The
//! same fact must not tell two plays of the default apart, so that a reading that changes nothing fails.

mod table;

use dxgkrnl_model::personality::family::{READINGS, Reading};
use dxgkrnl_model::personality::{Personality, Windows};
use fencepost::scenario::{LIMIT, Outcome, Scenario, Seen, Stage, Status, all, run};
use fencepost::world::Form;
use libtest_mimic::{Arguments, Failed, Trial};
use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use table::{BY_THEIR_CASES, Fact, SHOWN};

/// What the machines of a case were seen to do, played with the driver linked in.
fn play(case: &'static Scenario, windows: Windows) -> Result<Vec<Seen>, String> {
    let (outcome, seen) = played(case, Stage::new(Form::Native, 1).with_windows(windows));
    if outcome.status != Status::Pass {
        return Err(format!("{} under {windows}: {}", case.id, outcome.reason));
    }
    Ok(seen)
}

/// The same on machines that all make the choice of a reading, or the default's, whatever the case sets. The case may
/// fail then: that it does, or does not, is a fact as well.
fn play_forced(case: &'static Scenario, reading: &'static Reading, is_made: bool) -> Vec<Seen> {
    let (outcome, mut seen) = played(case, Stage::new(Form::Native, 1).forced(reading, is_made));
    let holds = outcome.status == Status::Pass;
    let fact = if holds { "the case holds" } else { "the case does not hold" };
    seen.iter_mut().for_each(|seen| seen.facts.extend([fact.to_owned()]));
    seen
}

fn played(case: &'static Scenario, stage: Stage) -> (Outcome, Vec<Seen>) {
    let record = Arc::default();
    let outcome = run(&[case], &stage.in_part().with_record(&record), LIMIT, &|_| ()).remove(0);
    let seen = std::mem::take(&mut *record.lock().unwrap_or_else(PoisonError::into_inner));
    (outcome, seen)
}

/// The machines of cases on the default Windows, each case played once.
fn on_default(case: &'static Scenario) -> Result<Vec<Seen>, String> {
    type Played = BTreeMap<&'static str, Arc<OnceLock<Result<Vec<Seen>, String>>>>;
    static PLAYED: Mutex<Played> = Mutex::new(BTreeMap::new());
    let slot = PLAYED.lock().unwrap_or_else(PoisonError::into_inner).entry(case.id).or_default().clone();
    slot.get_or_init(|| play(case, Windows::Default)).clone()
}

/// Whether a Windows makes the default choice where the reading makes another.
fn is_default(reading: &Reading, personality: &Personality) -> bool {
    READINGS.iter().filter(|other| other.member == reading.member).all(|other| !other.is_made_by(personality))
}

/// The facts of machines that make the choice of a reading, and those of machines that make the default's.
struct Sides<'s> {
    with: Vec<&'s BTreeSet<String>>,
    without: Vec<&'s BTreeSet<String>>,
}

impl<'s> Sides<'s> {
    fn of(reading: &Reading, seen: &'s [Seen]) -> Self {
        let facts = |side: &dyn Fn(&Personality) -> bool| {
            seen.iter().filter(|seen| side(&seen.personality)).map(|seen| &seen.facts).collect()
        };
        Self {
            with: facts(&|personality| reading.is_made_by(personality)),
            without: facts(&|personality| is_default(reading, personality)),
        }
    }

    /// Says why the fact does not tell the two sides apart.
    fn differ(&self, fact: Fact) -> Result<(), String> {
        let (text, has, lacks) = match fact {
            Fact::With(text) => (text, &self.with, &self.without),
            Fact::Without(text) => (text, &self.without, &self.with),
        };
        if has.is_empty() || lacks.is_empty() {
            return Err(format!("{} machines have it and {} do not have it to show", has.len(), lacks.len()));
        }
        // What a start that fails says goes on behind the words that matter.
        let is_so = |facts: &&&BTreeSet<String>| match text.strip_suffix('…') {
            Some(begin) => facts.iter().any(|fact| fact.starts_with(begin)),
            None => facts.contains(text),
        };
        let (there, elsewhere) = (has.iter().filter(is_so).count(), lacks.iter().filter(is_so).count());
        if there != 0 && elsewhere == 0 {
            return Ok(());
        }
        Err(format!("'{text}' of {there} in {} machines, and of {elsewhere} in {} others", has.len(), lacks.len()))
    }
}

fn reading(name: &str) -> Result<(usize, &'static Reading), String> {
    READINGS.iter().enumerate().find(|(_, it)| it.name == name).ok_or_else(|| format!("there is no reading {name}"))
}

fn case(id: &str) -> Result<&'static Scenario, String> {
    all().find(|case| case.id == id).ok_or_else(|| format!("there is no case {id}"))
}

/// The machines of a case on the default Windows and under a reading. A case that plays both ways itself shows both
/// under either; where it sets one way alone, the other is forced.
fn machines(name: &str, id: &str) -> Result<Vec<Seen>, String> {
    let ((at, reading), case) = (reading(name)?, case(id)?);
    let mut seen = on_default(case)?;
    let is_played = !Stage::new(Form::Native, 1).with_windows(Windows::Reading(at)).is_pointless(id);
    if Sides::of(reading, &seen).with.is_empty() && is_played {
        seen.extend(play(case, Windows::Reading(at))?);
    }
    for is_made in [true, false] {
        let sides = Sides::of(reading, &seen);
        if (if is_made { sides.with } else { sides.without }).is_empty() {
            seen.extend(play_forced(case, reading, is_made));
        }
    }
    Ok(seen)
}

/// The same with both ways forced, for a case that does not hold without the one that it sets.
fn machines_forced(name: &str, id: &str) -> Result<Vec<Seen>, String> {
    let ((_, reading), case) = (reading(name)?, case(id)?);
    Ok([true, false].into_iter().flat_map(|is_made| play_forced(case, reading, is_made)).collect())
}

fn shows(name: &str, id: &str, fact: Fact) -> Result<(), Failed> {
    let seen = machines(name, id)?;
    let (_, reading) = reading(name)?;
    Sides::of(reading, &seen).differ(fact).map_err(|why| format!("{name} by {id}: {why}"))?;
    // A reading that changed nothing would have two equal sides: what tells them apart is not there twice.
    for side in [Sides::of(reading, &seen).with, Sides::of(reading, &seen).without] {
        let same = Sides { with: side.clone(), without: side };
        if same.differ(fact).is_ok() {
            return Err(format!("{name} by {id}: the fact tells a machine from itself").into());
        }
    }
    Ok(())
}

/// Each reading has a row, or a reason to have none, and the row's case is one that `docs/choices.md` names.
fn every_reading_has_a_row() -> Result<(), Failed> {
    let choices = include_str!("../../docs/choices.md");
    for reading in READINGS {
        let rows: Vec<_> = SHOWN.iter().filter(|(name, ..)| *name == reading.name).collect();
        let own = BY_THEIR_CASES.iter().filter(|(name, why)| *name == reading.name && !why.is_empty()).count();
        let line = choices.lines().find(|line| line.starts_with(&format!("| `{}` |", reading.name)));
        let cases = line.and_then(|line| line.trim_end_matches(" |").rsplit(" | ").next()).unwrap_or_default();
        if rows.len() + own != 1 {
            return Err(format!("{} has {} rows and {own} reasons", reading.name, rows.len()).into());
        }
        for (_, id, _) in rows {
            if !cases.split(", ").any(|named| named == *id) {
                return Err(format!("{}: docs/choices.md names {cases}, and not {id}", reading.name).into());
            }
        }
    }
    Ok(())
}

/// A reading without a consequence: its machines differ from the default's in the personality alone.
fn a_reading_that_changes_nothing_is_found() -> Result<(), Failed> {
    let (_, reading) = reading("childless-asked")?;
    let facts = BTreeSet::from(["DxgkDdiA is called".to_owned(), "the first DxgkDdiA comes before".to_owned()]);
    let default = Seen { personality: Personality::default(), facts };
    let mut dummy = default.clone();
    dummy.personality.asks_the_childless = true;
    let told = |fact, dummy: &Seen| Sides::of(reading, &[default.clone(), dummy.clone()]).differ(fact);
    for text in ["DxgkDdiA is called", "DxgkDdiB is called", "the first DxgkDdiA comes before"] {
        for fact in [Fact::With(text), Fact::Without(text)] {
            if told(fact, &dummy).is_ok() {
                return Err(format!("{fact:?} tells two equal machines apart").into());
            }
        }
    }
    let mut other = dummy.clone();
    other.facts.insert("DxgkDdiB is called".to_owned());
    told(Fact::With("DxgkDdiB is called"), &other)?;
    if told(Fact::With("DxgkDdiB is called"), &default).is_ok()
        || told(Fact::Without("DxgkDdiA is called"), &other).is_ok()
    {
        return Err("what is not so is told".into());
    }
    // Without machines of its own a reading shows nothing.
    if Sides::of(reading, std::slice::from_ref(&default)).differ(Fact::With("DxgkDdiA is called")).is_ok() {
        return Err("one machine alone is told apart".into());
    }
    Ok(())
}

/// What tells the two sides of a reading apart in each of its cases, for who writes a row.
fn facts_of(name: &str) -> Result<(), Failed> {
    let (at, reading) = reading(name)?;
    let choices = include_str!("../../docs/choices.md");
    let line = choices.lines().find(|line| line.starts_with(&format!("| `{name}` |"))).unwrap_or_default();
    let cases = line.trim_end_matches(" |").rsplit(" | ").next().unwrap_or_default();
    for id in cases.split(", ") {
        let Ok(case) = case(id) else { continue };
        let (mut seen, mut why) = (Vec::new(), Vec::new());
        if std::env::var_os("FORCED").is_some() {
            seen = [machines_forced(name, id)?, machines_forced(name, id)?].concat();
        } else {
            for windows in [Windows::Default, Windows::Reading(at), Windows::Default, Windows::Reading(at)] {
                match play(case, windows) {
                    Ok(more) => seen.extend(more),
                    Err(error) => why.push(error),
                }
            }
        }
        let sides = Sides::of(reading, &seen);
        println!("== {name} by {id}: {} with, {} without; {why:?}", sides.with.len(), sides.without.len());
        let texts: BTreeSet<&String> = seen.iter().flat_map(|seen| &seen.facts).collect();
        let rank =
            |text: &str| ["times", "right behind", "comes before"].iter().filter(|part| text.contains(**part)).count();
        for (what, has, lacks) in [("+", &sides.with, &sides.without), ("-", &sides.without, &sides.with)] {
            let is_so = |text: &&&String| {
                has.iter().filter(|facts| facts.contains(**text)).count() >= 2
                    && lacks.iter().all(|facts| !facts.contains(**text))
            };
            let mut found: Vec<_> = texts.iter().filter(is_so).collect();
            found.sort_by_key(|text| rank(text));
            for text in found.iter().take(20) {
                println!("  {what} {text}");
            }
        }
    }
    Ok(())
}

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads = arguments.test_threads.or(Some(4));
    let mut trials = vec![
        Trial::test("every reading has a row", every_reading_has_a_row),
        Trial::test("a reading that changes nothing is found", a_reading_that_changes_nothing_is_found),
    ];
    for (name, id, fact) in SHOWN {
        trials.push(Trial::test(format!("{name} is seen by {id}"), move || shows(name, id, *fact)));
    }
    // `-- --ignored facts` says what could stand in the table.
    for reading in READINGS {
        let facts = Trial::test(format!("facts of {}", reading.name), move || facts_of(reading.name));
        trials.push(facts.with_ignored_flag(true));
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}
