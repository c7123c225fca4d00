//! Benchmarks, each beside its limit, measured in the same run in turns.
//!
//! A round measures the limit, then the thing. The value is the median of the rounds, the ratio the median of the
//! rounds' ratios (so that a noisy neighbour disturbs both), the spread the distance of the 10th and 90th percentile of
//! the rounds' values, in per cent of the median.

mod bulk;
mod hot;
mod limits;
mod parked;
mod wake;

use crate::client::{Adapter, Device, Inside};
use crate::setting::{self, Assignment};
use crate::world::{Form, User, World};
use anyhow::Result;
use dxgkrnl_model::personality::Personality;
use serde::Serialize;
use wddm_abi::LUID;

/// A benchmark.
pub struct Benchmark {
    /// Its name.
    pub name: &'static str,
    /// What is measured, and against what.
    pub about: &'static str,
    /// Measures.
    pub run: fn(&Bed) -> Result<Measured>,
}

/// What came of it.
#[derive(Clone, Debug, Serialize)]
pub struct Measured {
    /// The benchmark.
    pub name: &'static str,
    /// The value.
    pub value: f64,
    /// Its unit, and the limit's.
    pub unit: &'static str,
    /// What it is measured against.
    pub limit: &'static str,
    /// The limit.
    pub limit_value: f64,
    /// Value by limit.
    pub ratio: f64,
    /// Per cent: see the module.
    pub spread: f64,
}

/// Every benchmark.
pub fn all() -> impl Iterator<Item = &'static Benchmark> {
    [hot::BENCHMARKS, bulk::BENCHMARKS, wake::BENCHMARKS, parked::BENCHMARKS].into_iter().flatten()
}

/// Rounds of a benchmark.
const ROUNDS: usize = 9;

/// Measures both in turns. Each function returns one round's value.
fn compare(
    (name, unit, limit): (&'static str, &'static str, &'static str),
    mut limit_round: impl FnMut() -> Result<f64>,
    mut round: impl FnMut() -> Result<f64>,
) -> Result<Measured> {
    // Once for nothing: caches, mappings, sleeping engines.
    limit_round()?;
    round()?;
    let (mut values, mut limits, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let (bound, value) = (limit_round()?, round()?);
        values.push(value);
        limits.push(bound);
        ratios.push(value / bound);
    }
    let value = quantile(&mut values, 0.5);
    let spread = (quantile(&mut values, 0.9) - quantile(&mut values, 0.1)) / value * 100.0;
    let (limit_value, ratio) = (quantile(&mut limits, 0.5), quantile(&mut ratios, 0.5));
    Ok(Measured { name, value, unit, limit, limit_value, ratio, spread })
}

fn quantile(values: &mut [f64], q: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    // CAST: an index.
    values.get((q * (values.len() as f64 - 1.0)).round() as usize).copied().unwrap_or(f64::NAN)
}

/// A machine to measure on.
pub struct Bed {
    /// The machine.
    pub world: World,
    /// Its adapter.
    pub luid: LUID,
}

impl Bed {
    /// Boots a machine whose driver has these settings.
    ///
    /// # Errors
    /// When the driver does not start.
    pub fn new(form: &Form, settings: &[Assignment]) -> Result<Self> {
        let world = World::boot_with(form, Personality::collecting(), settings)?;
        let luid = world.adapter(setting::adapter_of_ours(settings))?.luid();
        Ok(Self { world, luid })
    }
}

/// A process that the calling thread stays in, so that entering it costs a call nothing: as in a real process.
///
/// The fields are dropped in this order: what the process has, before the process.
struct Resident {
    device: Device,
    _adapter: Adapter,
    _inside: dxgkrnl_model::process::Client,
    user: User,
}

/// The thread is inside already.
struct Here;

impl Inside for Here {
    fn inside(&self, f: &mut dyn FnMut()) {
        f();
    }
}

impl Resident {
    fn new(bed: &Bed, name: &str) -> Result<Self> {
        let user = bed.world.process(name)?;
        let inside = user.process.enter();
        let adapter = Adapter::open(user.table, Box::new(Here), None, 0, 0)?;
        let device = adapter.device()?;
        Ok(Self { device, _adapter: adapter, _inside: inside, user })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_round_decides() -> Result<()> {
        let mut n = 0.0;
        let round = || {
            n += 1.0;
            Ok(n)
        };
        let measured = compare(("a", "ns", "b"), || Ok(2.0), round)?;
        // Rounds 2 to 10, after the one for nothing.
        assert!((measured.value - 6.0).abs() < 1e-9 && (measured.ratio - 3.0).abs() < 1e-9, "{measured:?}");
        Ok(())
    }

    #[test]
    fn names_are_unique() {
        let names: Vec<_> = all().map(|benchmark| benchmark.name).collect();
        let set: std::collections::BTreeSet<_> = names.iter().collect();
        assert_eq!(set.len(), names.len());
    }
}
