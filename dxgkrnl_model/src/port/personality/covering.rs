//! A pairwise covering set of the family of Windows: few members, among which each two choices meet.
//!
//! Readings that set the same member of the personality exclude each other. Together with its default they are a
//! *question*, each of them and the default an answer. Whatever two questions and whatever two answers are taken, some
//! row of the set gives these answers. A driver that fails where two readings meet fails in a row, then.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use super::family::{READINGS, Reading, mix};

/// Rows that are tried for each that is kept.
const TRIED: u64 = 40;

/// What may be answered to one question: the default, and places in [`READINGS`].
type Question = Vec<Option<usize>>;

/// An answer to each question, as its place in the question.
type Row = Vec<usize>;

/// The rows of the covering set, of the readings that are [`drawn`](Reading::drawn), each in the order of
/// [`READINGS`]. They are the same on every machine. A reading that is added or removed may change all of them.
pub fn rows() -> &'static [Vec<&'static Reading>] {
    static ROWS: OnceLock<Vec<Vec<&'static Reading>>> = OnceLock::new();
    ROWS.get_or_init(|| {
        let questions = questions();
        let readings = |row: Row| {
            let mut places: Vec<_> =
                questions.iter().zip(row).filter_map(|(question, answer)| question[answer]).collect();
            places.sort_unstable();
            places.into_iter().map(|at| &READINGS[at]).collect()
        };
        covering(&questions).into_iter().map(readings).collect()
    })
}

/// The questions, in the order in which [`READINGS`] has their first answers.
fn questions() -> Vec<Question> {
    let mut by_member: BTreeMap<&str, Question> = BTreeMap::new();
    for (at, reading) in READINGS.iter().enumerate().filter(|(_, reading)| reading.drawn) {
        by_member.entry(reading.member).or_insert_with(|| vec![None]).push(Some(at));
    }
    let mut questions: Vec<_> = by_member.into_values().collect();
    questions.sort_unstable_by_key(|question| question[1]);
    questions
}

/// Which pairs of answers still have to meet.
struct Unmet {
    /// By the place of each answer, counted over all questions, twice.
    unmet: Vec<Vec<bool>>,
    /// Where each question's answers begin.
    first: Vec<usize>,
}

impl Unmet {
    fn all(questions: &[Question]) -> Self {
        let mut first = Vec::new();
        let mut count = 0;
        for question in questions {
            first.push(count);
            count += question.len();
        }
        Self { unmet: vec![vec![true; count]; count], first }
    }

    fn place(&self, (question, answer): (usize, usize)) -> usize {
        self.first[question] + answer
    }

    fn is_unmet(&self, one: (usize, usize), other: (usize, usize)) -> bool {
        self.unmet[self.place(one)][self.place(other)]
    }

    /// How many pairs meet for the first time in a row, as far as it has answers.
    fn gained(&self, row: &[Option<usize>], (question, answer): (usize, usize)) -> usize {
        let given = row.iter().enumerate().filter_map(|(at, given)| given.map(|given| (at, given)));
        given.filter(|given| self.is_unmet((question, answer), *given)).count()
    }

    fn meet(&mut self, row: &Row) {
        for (one, answer) in row.iter().enumerate() {
            for (other, second) in row.iter().enumerate() {
                let (from, to) = (self.place((one, *answer)), self.place((other, *second)));
                self.unmet[from][to] = false;
            }
        }
    }

    /// The first pair of answers, to different questions, that has not met.
    fn first_pair(&self, questions: &[Question]) -> Option<[(usize, usize); 2]> {
        let all = || {
            questions.iter().enumerate().flat_map(|(at, question)| (0..question.len()).map(move |answer| (at, answer)))
        };
        all().find_map(|one| {
            let other = all().find(|other| one.0 < other.0 && self.is_unmet(one, *other))?;
            Some([one, other])
        })
    }
}

/// Rows in which every two answers to different questions meet: as long as a pair has not met, it begins a row, whose
/// other questions are answered, in an order that is drawn, as most new pairs meet; of several such rows the best is
/// kept.
///
/// Source: Cohen, Dalal, Fredman, Patton, "The AETG System: An Approach to Testing Based on Combinatorial Design", IEEE
/// Transactions on Software Engineering 23 (7), 1997.
fn covering(questions: &[Question]) -> Vec<Row> {
    let mut unmet = Unmet::all(questions);
    let mut rows = Vec::new();
    while let Some(pair) = unmet.first_pair(questions) {
        let tries = (0..TRIED).map(|seed| {
            // CAST: some tens of rows.
            let seed = rows.len() as u64 * TRIED + seed;
            tried(questions, &unmet, pair, seed)
        });
        let Some((_, best)) = tries.max_by_key(|(gained, _)| *gained) else { break };
        unmet.meet(&best);
        rows.push(best);
    }
    rows
}

/// A row that begins with a pair, and how many pairs meet in it for the first time.
fn tried(questions: &[Question], unmet: &Unmet, pair: [(usize, usize); 2], seed: u64) -> (usize, Row) {
    let mut row: Vec<Option<usize>> = vec![None; questions.len()];
    let mut all = 1;
    for (question, answer) in pair {
        row[question] = Some(answer);
    }
    let mut order: Vec<usize> = (0..questions.len()).filter(|question| row[*question].is_none()).collect();
    // CAST: some tens of questions.
    order.sort_by_key(|question| mix(seed, *question as u64));
    for question in order {
        let gains = (0..questions[question].len()).map(|answer| {
            let gained = unmet.gained(&row, (question, answer));
            // Of answers that gain as much a drawn one is taken.
            ((gained, mix(seed, (question * 7 + answer) as u64)), answer)
        });
        if let Some(((gained, _), answer)) = gains.max() {
            row[question] = Some(answer);
            all += gained;
        }
    }
    (all, row.into_iter().map(Option::unwrap_or_default).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns whether a row gives this answer to this question.
    fn answers(row: &[&Reading], question: &Question, answer: Option<usize>) -> bool {
        let given: Vec<_> =
            question.iter().flatten().filter(|at| row.iter().any(|it| it.name == READINGS[**at].name)).collect();
        given.len() <= 1 && given.first().map(|at| **at) == answer
    }

    /// Whatever two questions, and whatever answers to them: a row gives both.
    #[test]
    fn every_two_answers_meet_in_a_row() {
        let questions = questions();
        assert!(questions.iter().map(|question| question.len() - 1).sum::<usize>() > 40);
        for (at, one) in questions.iter().enumerate() {
            for (other, (first, second)) in questions[at + 1..]
                .iter()
                .flat_map(|other| one.iter().flat_map(move |a| other.iter().map(move |b| (other, (*a, *b)))))
            {
                let met = rows().iter().any(|row| answers(row, one, first) && answers(row, other, second));
                assert!(met, "{first:?} and {second:?}");
            }
        }
    }

    /// Two questions of most answers give the least number of rows; half as many again is what the method may need.
    #[test]
    fn the_rows_are_few() {
        let mut most: Vec<_> = questions().iter().map(Vec::len).collect();
        most.sort_unstable_by(|a, b| b.cmp(a));
        assert!((most[0] * most[1]..=most[0] * most[1] * 2).contains(&rows().len()), "{}", rows().len());
    }
}
