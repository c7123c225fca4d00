//! A way on which work is submitted and seen to be done, and how each is timed: the same loops for the driver and for
//! what it stands beside.

use super::Effort;
use anyhow::Result;
use std::time::Instant;

/// A way from a submission to its end.
pub(super) trait Path {
    /// Submits one piece of work; waits for room where there is none.
    fn push(&mut self) -> Result<()>;
    /// Waits, by looking, until everything that was pushed is done.
    fn drain(&mut self) -> Result<()>;
}

/// Submissions between two looks at the clock. The clock's own cost, some 10 to 40 ns, would flatter a ratio of times.
const BATCH: u32 = 32;

/// Nanoseconds of a submission and its end: means of [`BATCH`] in a row, and single ones, with the clock's cost.
pub(super) fn trips(path: &mut impl Path, effort: Effort) -> Result<(Vec<f64>, Vec<f64>)> {
    let (batches, singles) = effort.of((300, 3000));
    for _ in 0..BATCH {
        path.push()?;
        path.drain()?;
    }
    let mut means = Vec::with_capacity(batches);
    for _ in 0..batches {
        let begun = Instant::now();
        for _ in 0..BATCH {
            path.push()?;
            path.drain()?;
        }
        means.push(begun.elapsed().as_nanos() as f64 / f64::from(BATCH));
    }
    let mut tail = Vec::with_capacity(singles);
    let mut last = Instant::now();
    for _ in 0..singles {
        path.push()?;
        path.drain()?;
        let now = Instant::now();
        tail.push((now - last).as_nanos() as f64);
        last = now;
    }
    Ok((means, tail))
}

/// Submissions per second: each sample is a stream from the first push until the last is done, so that what waits in a
/// ring does not count as done.
pub(super) fn stream(path: &mut impl Path, effort: Effort) -> Result<Vec<f64>> {
    let (samples, length) = effort.of((15, 5000));
    path.push()?;
    path.drain()?;
    (0..samples)
        .map(|_| {
            let begun = Instant::now();
            for _ in 0..length {
                path.push()?;
            }
            path.drain()?;
            Ok(length as f64 / begun.elapsed().as_secs_f64())
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts; a piece of work takes `1 ms` from the drain on.
    #[derive(Default)]
    struct Slow {
        pushed: u32,
        undone: u32,
    }

    impl Path for Slow {
        fn push(&mut self) -> Result<()> {
            self.pushed += 1;
            self.undone += 1;
            Ok(())
        }

        fn drain(&mut self) -> Result<()> {
            super::super::processors::pause(std::time::Duration::from_micros(100) * self.undone);
            self.undone = 0;
            Ok(())
        }
    }

    #[test]
    fn what_is_not_done_does_not_count() -> Result<()> {
        let rates = stream(&mut Slow::default(), Effort::Quick)?;
        assert!(rates.iter().all(|rate| *rate <= 10_000.0), "{rates:?}");
        let (means, tail) = trips(&mut Slow::default(), Effort::Quick)?;
        assert!(means.iter().chain(&tail).all(|nanoseconds| *nanoseconds >= 1e5), "{means:?} {tail:?}");
        Ok(())
    }
}
