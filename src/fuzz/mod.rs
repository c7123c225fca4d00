//! Fuzzers: hostile processes beside a good one, on real threads. `./x fuzz NAME` plays them for as long as is asked
//! for, `./x test` for some seconds each.
//!
//! A run is a sequence of rounds. A round has a seed, and starts on a machine (or a GPU) of its own; the seeds of the
//! corpus come first. The seed decides what each hostile thread does. The threads are real, so that the interleaving is
//! another one each time: a finding is played again by its seed, as often as it takes.
//!
//! A round finds a fault when the good process does not get on in time, when its memory or its device is not as it
//! should be, when the model finds a rule broken that no client can break by itself ([`machine::TOLERATED`]), when
//! something panics, or when the round does not end.
//!
//! | file | holds |
//! |---|---|
//! | `mod.rs` | [`FUZZERS`], rounds, the corpus |
//! | `coverage.rs` | what was reached, counted |
//! | `dice.rs` | random numbers, and those on which mistakes sit |
//! | `packets.rs` | random packets |
//! | `machine.rs` | a machine per round, and what is looked at behind it |
//! | `victim.rs` | the good process |
//! | `thunks.rs`, `rings.rs`, `doorbells.rs`, `interrupts.rs` | a fuzzer each |
//! | `engine.rs`, `engine/` | the fuzzer of the GPU by itself |

mod coverage;
pub(crate) mod dice;
mod doorbells;
mod engine;
mod interrupts;
mod machine;
mod packets;
mod rings;
mod thunks;
mod victim;

pub use coverage::Coverage;

use crate::scenario::Played;
use crate::world::Form;
use anyhow::{Result, anyhow, bail};
use dice::Dice;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// How long a round lasts, from the moment at which its processes run.
pub const ROUND: Duration = Duration::from_secs(2);

/// How much longer than [`ROUND`] a round may take, with its start and its end, before it counts as one that hangs.
const GRACE: Duration = Duration::from_secs(90);

/// A fuzzer.
pub struct Fuzzer {
    /// Its name.
    pub name: &'static str,
    /// What it does.
    pub about: &'static str,
    /// Whether the driver takes part, so that it matters in which form it runs.
    pub has_driver: bool,
    /// Seeds that reached something rare or have found something, with the reason.
    corpus: &'static str,
    play: fn(&Round) -> Played,
}

/// Every fuzzer.
pub const FUZZERS: &[Fuzzer] = &[
    Fuzzer {
        name: "engine",
        about: "rings, packets, page tables, flushes, suspensions and resets on engines with a host of their own",
        has_driver: false,
        corpus: include_str!("../../tests/corpus/engine.txt"),
        play: engine::play,
    },
    Fuzzer {
        name: "thunks",
        about: "D3DKMT functions with damaged records and private data, by three processes beside a good one",
        has_driver: true,
        corpus: include_str!("../../tests/corpus/thunks.txt"),
        play: thunks::play,
    },
    Fuzzer {
        name: "rings",
        about: "rings, control pages and command buffers that change while they are read, by two processes",
        has_driver: true,
        corpus: include_str!("../../tests/corpus/rings.txt"),
        play: rings::play,
    },
    Fuzzer {
        name: "doorbells",
        about: "doorbells that are made, taken, rung and destroyed at once by processes that share too few of them",
        has_driver: true,
        corpus: include_str!("../../tests/corpus/doorbells.txt"),
        play: doorbells::play,
    },
    Fuzzer {
        name: "interrupts",
        about: "a process whose every packet asks for an interrupt",
        has_driver: true,
        corpus: include_str!("../../tests/corpus/interrupts.txt"),
        play: interrupts::play,
    },
];

/// The fuzzer with this name.
pub fn find(name: &str) -> Option<&'static Fuzzer> {
    FUZZERS.iter().find(|fuzzer| fuzzer.name == name)
}

impl Fuzzer {
    /// The seeds that every run plays first.
    ///
    /// # Errors
    /// A line that is none.
    pub fn corpus(&self) -> Result<Vec<u64>> {
        let lines = self.corpus.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
        let seed = |line: &str| line.parse().map_err(|_| anyhow!("the corpus of {}: '{line}' is no seed", self.name));
        lines.filter(|line| !line.is_empty()).map(seed).collect()
    }
}

/// A round under way.
pub struct Round {
    /// The name of its fuzzer.
    fuzzer: &'static str,
    /// The form of the driver.
    form: Form,
    /// The step of the GPU that is done wrong (`gpu_engine::mutation`), in tests; 0 for none.
    mutation: u32,
    /// Decides what is done.
    seed: u64,
    coverage: Coverage,
}

impl Round {
    /// Random numbers of the thread `thread` of this round.
    fn dice(&self, thread: u64) -> Dice {
        Dice::new(self.seed.wrapping_mul(0x1_0000).wrapping_add(thread))
    }
}

/// What a run did.
pub struct Outcome {
    /// Rounds that ended.
    pub rounds: u64,
    /// What they reached.
    pub coverage: Coverage,
    /// The seed of the round that found something, and what.
    pub finding: Option<(u64, String)>,
}

/// What is played.
#[derive(Clone)]
pub struct Plan {
    /// The form of the driver.
    pub form: Form,
    /// The seed of the first round behind the corpus; the next round's is one more.
    pub first: u64,
    /// Play the rounds of `first` alone, again and again, without the corpus.
    pub alone: bool,
    /// How long to go on beginning rounds.
    pub length: Duration,
    /// In tests, the step that the fuzzer `engine` has the GPU do wrong (`gpu_engine::mutation`): what `./x` builds has
    /// no such steps. 0 for none.
    pub mutation: u32,
}

/// Plays rounds of `fuzzer` until the plan's time has passed, or one finds something.
///
/// # Errors
/// When the corpus cannot be read.
pub fn run(fuzzer: &Fuzzer, plan: &Plan) -> Result<Outcome> {
    let begun = Instant::now();
    let mut outcome = Outcome { rounds: 0, coverage: Coverage::default(), finding: None };
    let Plan { first, alone, .. } = *plan;
    let corpus = if alone { Vec::new() } else { fuzzer.corpus()? };
    let later = (0..).map(|round| if alone { first } else { first.wrapping_add(round) });
    for seed in corpus.into_iter().chain(later) {
        let (form, mutation) = (plan.form.clone(), plan.mutation);
        let round = Arc::new(Round { fuzzer: fuzzer.name, form, mutation, seed, coverage: Coverage::default() });
        let played = watched(fuzzer, &round);
        outcome.coverage.add(&round.coverage);
        if let Err(error) = played {
            outcome.finding = Some((seed, format!("{error:#}")));
            break;
        }
        outcome.rounds += 1;
        if begun.elapsed() >= plan.length {
            break;
        }
    }
    Ok(outcome)
}

/// Plays a round on a thread of its own, which is left alone when it does not end.
fn watched(fuzzer: &Fuzzer, round: &Arc<Round>) -> Played {
    let (ended, end) = channel();
    let (play, own) = (fuzzer.play, round.clone());
    std::thread::Builder::new().name(fuzzer.name.to_owned()).spawn(move || {
        // The receiver is gone when the round has taken too long.
        let _ = ended.send(catch_unwind(AssertUnwindSafe(|| play(&own))));
    })?;
    match end.recv_timeout(ROUND + GRACE) {
        Ok(Ok(played)) => played,
        Ok(Err(panic)) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            bail!("a panic: {}", text.unwrap_or_default())
        }
        Err(RecvTimeoutError::Timeout) => bail!("the round did not end within {} s", (ROUND + GRACE).as_secs()),
        Err(RecvTimeoutError::Disconnected) => bail!("the round's thread ended without a result"),
    }
}

#[cfg(test)]
mod tests {
    use super::FUZZERS;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_unique_and_each_corpus_has_seeds() {
        let names: BTreeSet<_> = FUZZERS.iter().map(|fuzzer| fuzzer.name).collect();
        assert_eq!(names.len(), FUZZERS.len());
        for fuzzer in FUZZERS {
            assert!(fuzzer.corpus().is_ok_and(|seeds| !seeds.is_empty()), "{}", fuzzer.name);
        }
    }
}
