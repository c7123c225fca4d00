//! What a run reached.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};

/// Counts by name, which any thread may raise.
#[derive(Default)]
pub struct Coverage(Mutex<BTreeMap<String, u64>>);

impl Coverage {
    fn with<R>(&self, f: impl FnOnce(&mut BTreeMap<String, u64>) -> R) -> R {
        // A thread that panicked left a count behind that is as good as any.
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Counts `times` more of `what`.
    pub(super) fn count(&self, what: &str, times: u64) {
        self.with(|counts| match counts.get_mut(what) {
            Some(count) => *count += times,
            None => drop(counts.insert(what.to_owned(), times)),
        });
    }

    /// Raises `what`, which is a largest value and ends in "(most)", to `value` at least.
    pub(super) fn most(&self, what: &str, value: u64) {
        self.with(|counts| {
            let count = counts.entry(what.to_owned()).or_default();
            *count = value.max(*count);
        });
    }

    /// Adds the counts of another.
    pub(super) fn add(&self, other: &Self) {
        let counts = other.with(|counts| counts.clone());
        for (what, count) in &counts {
            if what.ends_with("(most)") { self.most(what, *count) } else { self.count(what, *count) }
        }
    }

    /// How often something was reached that begins with `what`.
    pub fn reached(&self, what: &str) -> u64 {
        self.with(|counts| counts.iter().filter(|(name, _)| name.starts_with(what)).map(|(_, count)| count).sum())
    }
}

/// A line for each group of names, which is what stands before the first ": ".
impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = self.with(|counts| counts.clone());
        let mut last = None;
        for (name, count) in &counts {
            let (group, what) = name.split_once(": ").unwrap_or(("", name));
            match last == Some(group) {
                true => write!(f, ", {what} {count}")?,
                false if last.is_none() => write!(f, "{group}: {what} {count}")?,
                false => write!(f, "\n{group}: {what} {count}")?,
            }
            last = Some(group);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::Coverage;

    #[test]
    fn counts_add_up_and_largest_values_do_not() {
        let (all, one) = (Coverage::default(), Coverage::default());
        for coverage in [&all, &one] {
            coverage.count("calls: a", 2);
            coverage.most("ms (most)", 5);
        }
        all.count("calls: b", 1);
        all.add(&one);
        assert_eq!((all.reached("calls: a"), all.reached("calls"), all.reached("ms")), (4, 5, 5));
        assert_eq!(all.to_string(), "calls: a 4, b 1\n: ms (most) 5");
    }
}
