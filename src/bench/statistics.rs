//! What rounds come to: which of them count, medians, tails, ratios, and what is asked of these.

use serde::Serialize;

/// Nanoseconds of a cache line's way there and back from which on the two processors are far from each other.
pub(super) const FAR: f64 = 200.0;
/// The largest part by which the line may be slower behind a round than before it, or faster, where the round counts.
const MOVED: f64 = 0.1;

/// How far the two processors are from each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Regime {
    /// A line is there and back within [`FAR`].
    Near,
    /// It takes longer.
    Far,
}

impl Regime {
    fn of(line: f64) -> Self {
        if line < FAR { Self::Near } else { Self::Far }
    }

    /// In a word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Near => "near",
            Self::Far => "far",
        }
    }
}

/// Which of two values is the better one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    /// Times, counts.
    Lower,
    /// Rates.
    Higher,
}

/// What is asked of a ratio.
#[derive(Clone, Copy, Debug)]
pub(super) enum Target {
    /// Nothing.
    None,
    /// A goal, and what it must be at least.
    Fixed(f64, f64),
    /// A goal, and what it must be at least where processors are near, and where they are far.
    ByRegime(f64, f64, f64),
}

impl Target {
    /// The goal, and the ratio that it must be at least.
    fn numbers(self, regime: Option<Regime>) -> (Option<f64>, Option<f64>) {
        match (self, regime) {
            (Self::None, _) => (None, None),
            (Self::Fixed(goal, at_least), _) => (Some(goal), Some(at_least)),
            (Self::ByRegime(goal, near, _), Some(Regime::Near)) => (Some(goal), Some(near)),
            (Self::ByRegime(goal, _, far), _) => (Some(goal), Some(far)),
        }
    }
}

/// A figure: one line of the output.
#[derive(Clone, Copy, Debug)]
pub struct Figure {
    /// Its name.
    pub name: &'static str,
    /// What is measured, and beside what.
    pub about: &'static str,
    /// Unit of the value and of the limit.
    pub(super) unit: &'static str,
    /// What it stands beside, in a few words.
    pub(super) limit: &'static str,
    pub(super) better: Better,
    pub(super) target: Target,
}

#[cfg(test)]
impl Figure {
    /// Its row in `docs/bench.md`.
    pub(super) fn row(&self) -> String {
        let (goal, must) = match self.target {
            Target::None => (String::new(), String::new()),
            Target::Fixed(goal, must) => (format!(" {goal}"), format!(" {must}")),
            Target::ByRegime(goal, near, far) => (format!(" {goal}"), format!(" {near} near, {far} far")),
        };
        format!("| `{}` | {} |{goal} |{must} |", self.name, self.limit)
    }
}

/// What a round took of one figure: samples of the value and of its limit, in the figure's unit.
#[derive(Clone, Default, Debug)]
pub(super) struct Taken {
    /// Their median is the round's value.
    pub value: Vec<f64>,
    pub limit: Vec<f64>,
    /// Samples for the 99th percentile, where those above are means of several operations.
    pub value_tail: Vec<f64>,
    pub limit_tail: Vec<f64>,
}

impl Taken {
    pub fn new(value: Vec<f64>, limit: Vec<f64>) -> Self {
        Self { value, limit, ..Self::default() }
    }
}

/// A round.
#[derive(Clone, Debug)]
pub(super) struct Round {
    /// Nanoseconds of a line's way there and back, before and behind it.
    pub before: f64,
    pub after: f64,
    /// By figure.
    pub taken: Vec<Taken>,
}

impl Round {
    /// Returns whether the host moved the processors, or took one of them away, while the round was played.
    pub fn moved(&self) -> bool {
        (self.after - self.before).abs() > MOVED * self.before.min(self.after)
    }

    fn regime(&self) -> Regime {
        Regime::of(f64::midpoint(self.before, self.after))
    }
}

/// Rounds that were played.
pub(super) struct Rounds {
    pub all: Vec<Round>,
    /// How many were asked for.
    pub wanted: usize,
    /// Processors that other work and the host took meanwhile, 0 to the number of processors.
    pub load: f64,
}

/// What became of a figure.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The goal is reached.
    Goal,
    /// What it must be at least is reached.
    AtLeast,
    /// Neither is.
    Missed,
    /// Fewer than half of the rounds count: the machine was not steady.
    Unsteady,
    /// Nothing is asked of it.
    Free,
}

impl Verdict {
    /// In a word or two.
    pub fn name(self) -> &'static str {
        match self {
            Self::Goal => "goal",
            Self::AtLeast => "at least",
            Self::Missed => "missed",
            Self::Unsteady => "unsteady",
            Self::Free => "",
        }
    }
}

/// A figure, measured.
#[derive(Clone, Debug, Serialize)]
pub struct Measured {
    /// The figure.
    pub name: &'static str,
    /// The median of the rounds' medians.
    pub value: f64,
    /// Its unit, and the limit's.
    pub unit: &'static str,
    /// What it stands beside.
    pub limit: &'static str,
    /// The limit: the median of the rounds' medians.
    pub limit_value: f64,
    /// The median of the rounds' ratios of value by limit.
    pub ratio: f64,
    /// Distance of the 10th and 90th percentile of the rounds' medians, in per cent of the value.
    pub spread: f64,
    /// The value that 99 of 100 samples are at least as good as.
    pub p99: f64,
    /// The same of the limit.
    pub limit_p99: f64,
    /// Which way is better.
    pub better: Better,
    /// The goal for the ratio.
    pub goal: Option<f64>,
    /// What the ratio must be at least.
    pub at_least: Option<f64>,
    /// What became of it.
    pub verdict: Verdict,
    /// How far the processors were from each other; `None` where a figure does not depend on it.
    pub regime: Option<Regime>,
    /// Nanoseconds of a cache line's way there and back.
    pub line_ns: Option<f64>,
    /// Processors that other work and the host took meanwhile.
    pub load: Option<f64>,
    /// Rounds that count.
    pub rounds_kept: usize,
    /// Rounds in which the line moved, or which were of the rarer regime.
    pub rounds_dropped: usize,
}

impl Rounds {
    /// Rounds that count: the line did not move in them, and they are of the regime that most of these are of. Where
    /// there are none, all, and `false`.
    fn kept(&self) -> (Vec<&Round>, bool) {
        let steady: Vec<_> = self.all.iter().filter(|round| !round.moved()).collect();
        let near = steady.iter().filter(|round| round.regime() == Regime::Near).count();
        let usual = if near * 2 > steady.len() { Regime::Near } else { Regime::Far };
        let kept: Vec<_> = steady.into_iter().filter(|round| round.regime() == usual).collect();
        if kept.is_empty() { (self.all.iter().collect(), false) } else { (kept, true) }
    }

    /// What the rounds say of the figure with index `at`.
    pub fn measured(&self, at: usize, figure: &Figure) -> Measured {
        let (kept, any) = self.kept();
        let rounds_kept = if any { kept.len() } else { 0 };
        let of = |pick: fn(&Taken) -> &Vec<f64>| kept.iter().filter_map(move |round| round.taken.get(at)).map(pick);
        let medians = |pick| of(pick).map(|samples| median(samples)).collect::<Vec<_>>();
        let (values, limits) = (medians(|taken| &taken.value), medians(|taken| &taken.limit));
        let ratios: Vec<_> = values.iter().zip(&limits).map(|(value, limit)| value / limit).collect();
        let tail = |pick: fn(&Taken) -> &Vec<f64>, otherwise: fn(&Taken) -> &Vec<f64>| {
            let mut all: Vec<_> = of(pick).flatten().copied().collect();
            if all.is_empty() {
                all = of(otherwise).flatten().copied().collect();
            }
            quantile(&all, if figure.better == Better::Lower { 0.99 } else { 0.01 })
        };
        let (value, ratio) = (median(&values), median(&ratios));
        let line = median(&kept.iter().map(|round| f64::midpoint(round.before, round.after)).collect::<Vec<_>>());
        let regime = Regime::of(line);
        let (goal, at_least) = figure.target.numbers(Some(regime));
        let steady = rounds_kept * 2 >= self.wanted;
        Measured {
            name: figure.name,
            value,
            unit: figure.unit,
            limit: figure.limit,
            limit_value: median(&limits),
            ratio,
            spread: (quantile(&values, 0.9) - quantile(&values, 0.1)) / value * 100.0,
            p99: tail(|taken| &taken.value_tail, |taken| &taken.value),
            limit_p99: tail(|taken| &taken.limit_tail, |taken| &taken.limit),
            better: figure.better,
            goal,
            at_least,
            verdict: if steady { verdict(figure.better, ratio, goal, at_least) } else { Verdict::Unsteady },
            regime: Some(regime),
            line_ns: Some(line),
            load: Some(self.load),
            rounds_kept,
            rounds_dropped: self.all.len() - rounds_kept,
        }
    }
}

/// A figure that does not depend on where the processors are: a count, or a time per second. Where the limit is 0, the
/// ratio is the value.
pub(super) fn counted(figure: &Figure, values: &[f64], limit_value: f64) -> Measured {
    let value = median(values);
    let ratio = if limit_value == 0.0 { value } else { value / limit_value };
    let (goal, at_least) = figure.target.numbers(None);
    let spread = (quantile(values, 0.9) - quantile(values, 0.1)) / value * 100.0;
    Measured {
        name: figure.name,
        value,
        unit: figure.unit,
        limit: figure.limit,
        limit_value,
        ratio,
        spread: if value == 0.0 { 0.0 } else { spread },
        p99: quantile(values, 0.99),
        limit_p99: limit_value,
        better: figure.better,
        goal,
        at_least,
        verdict: verdict(figure.better, ratio, goal, at_least),
        regime: None,
        line_ns: None,
        load: None,
        rounds_kept: values.len(),
        rounds_dropped: 0,
    }
}

fn verdict(better: Better, ratio: f64, goal: Option<f64>, at_least: Option<f64>) -> Verdict {
    let reaches = |mark: f64| match better {
        Better::Lower => ratio <= mark,
        Better::Higher => ratio >= mark,
    };
    match (goal, at_least) {
        (Some(goal), _) if reaches(goal) => Verdict::Goal,
        (_, Some(at_least)) if reaches(at_least) => Verdict::AtLeast,
        (None, None) => Verdict::Free,
        _ => Verdict::Missed,
    }
}

/// The median; NaN of nothing.
pub(super) fn median(values: &[f64]) -> f64 {
    quantile(values, 0.5)
}

/// The sample below which the part `q` of the samples lies, 0 to 1; NaN of nothing.
pub(super) fn quantile(values: &[f64], q: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    // CAST: an index.
    sorted.get((q * (sorted.len() as f64 - 1.0)).round() as usize).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
#[path = "statistics_tests.rs"]
mod tests;
