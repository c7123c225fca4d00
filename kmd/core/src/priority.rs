//! What the OS says of priorities, in the engines' terms. Source: `DXGKARG_SETUPPRIORITYBANDS`,
//! `DXGKARG_SETCONTEXTSCHEDULINGPROPERTIES`.
//!
//! Times come in units of 100 ns, and engines count in ticks of the GPU clock. No document bounds them; a process that
//! keeps an engine for longer than a second, or beyond its time for longer than a tenth, is no wish of a scheduler's,
//! so longer times are these.

use crate::adapter::Started;
use crate::hw_context::HwContext;
use crate::irql::Passive;
use crate::platform::Platform;
use crate::status::{Error, Result};
use gpu_engine::context::Properties;
use gpu_engine::mutation::Mutation;
use gpu_engine::schedule::{BANDS, Policy, Times};
use wddm_abi::{DXGKARG_SETCONTEXTSCHEDULINGPROPERTIES, DXGKARG_SETUPPRIORITYBANDS};

/// The longest quantum, in units of 100 ns.
const LONGEST_QUANTUM: u64 = 10_000_000;
/// The longest grace period, in units of 100 ns.
const LONGEST_GRACE: u64 = 1_000_000;

/// `time`, in units of 100 ns and at most `longest`, in ticks of a clock of `frequency` hertz.
fn ticks(time: u64, longest: u64, frequency: u64) -> u64 {
    // At most a second: nothing is lost below 10^12 hertz.
    time.min(longest).saturating_mul(frequency) / 10_000_000
}

/// Sets what the OS says of the bands, from the next turns on.
pub fn set_bands<P: Platform>(_irql: &Passive, started: &Started<P>, args: &DXGKARG_SETUPPRIORITYBANDS) {
    let (policy, frequency) = (&started.gpu.policy, started.gpu.host.gpu_clock().frequency(&started.platform));
    let before = policy.share();
    tell(policy, args, frequency);
    if started.gpu.mutation.is(Mutation::KeepsShare) {
        policy.set_share(before);
    }
}

/// The same, with times in ticks of a clock of `frequency` hertz.
fn tell(policy: &Policy, args: &DXGKARG_SETUPPRIORITYBANDS, frequency: u64) {
    policy.set_share(args.targetNormalBandPercentage);
    for (band, times) in times_of(args, frequency).into_iter().enumerate() {
        policy.set_times(band, times);
    }
}

/// The times of each band, in ticks of a clock of `frequency` hertz.
fn times_of(args: &DXGKARG_SETUPPRIORITYBANDS, frequency: u64) -> [Times; BANDS] {
    core::array::from_fn(|band| Times {
        quantum: ticks(args.processQuantumForBand[band], LONGEST_QUANTUM, frequency),
        process_grace: ticks(args.processGracePeriodForBand[band], LONGEST_GRACE, frequency),
        grace: ticks(args.gracePeriodForBand[band], LONGEST_GRACE, frequency),
    })
}

/// Sets how a context is scheduled, from its queues' next turns on.
///
/// # Errors
/// [`Error::InvalidParameter`] for a band that does not exist.
pub fn set_properties<P: Platform>(
    _irql: &Passive,
    context: &HwContext<P>,
    args: &DXGKARG_SETCONTEXTSCHEDULINGPROPERTIES,
) -> Result<()> {
    let started = &context.counted.started;
    let frequency = started.gpu.host.gpu_clock().frequency(&started.platform);
    let exists = context.engine.set_properties(&started.gpu.policy, &properties_of(args, frequency));
    if exists { Ok(()) } else { Err(Error::InvalidParameter) }
}

/// How a context is scheduled, with times in ticks of a clock of `frequency` hertz.
fn properties_of(args: &DXGKARG_SETCONTEXTSCHEDULINGPROPERTIES, frequency: u64) -> Properties {
    Properties {
        // CAST: a band is no negative number; what is none is none of the bands either.
        band: args.priorityBand.0 as u32,
        level: args.realtimeBandPriorityLevel,
        priority: args.inProcessPriority,
        quantum: ticks(args.quantum, LONGEST_QUANTUM, frequency),
        grace_same: ticks(args.gracePeriodSamePriority, LONGEST_GRACE, frequency),
        grace_lower: ticks(args.gracePeriodLowerPriority, LONGEST_GRACE, frequency),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wddm_abi::DXGK_SCHEDULING_PRIORITY_BAND;

    /// Each time and each number of its own arrives where it belongs.
    #[test]
    fn nothing_that_the_os_says_takes_anothers_place() {
        let mut bands = DXGKARG_SETUPPRIORITYBANDS::zeroed();
        bands.processQuantumForBand = [1, 2, 3, 4];
        bands.processGracePeriodForBand = [11, 12, 13, 14];
        bands.gracePeriodForBand = [21, 22, 23, 24];
        let times = times_of(&bands, 20_000_000);
        let wanted = [(2, 22, 42), (4, 24, 44), (6, 26, 46), (8, 28, 48)];
        assert_eq!(times.map(|times| (times.quantum, times.process_grace, times.grace)), wanted);
        let policy = Policy::new();
        for (percent, share) in [(0, 0), (25, 25), (50, 50), (51, 50), (u32::MAX, 50)] {
            bands.targetNormalBandPercentage = percent;
            tell(&policy, &bands, 20_000_000);
            assert_eq!(policy.share(), share);
        }
        let mut said = DXGKARG_SETCONTEXTSCHEDULINGPROPERTIES::zeroed();
        said.priorityBand = DXGK_SCHEDULING_PRIORITY_BAND(2);
        (said.realtimeBandPriorityLevel, said.inProcessPriority) = (17, -3);
        (said.quantum, said.gracePeriodSamePriority, said.gracePeriodLowerPriority) = (5, 6, 7);
        let wanted = Properties { band: 2, level: 17, priority: -3, quantum: 10, grace_same: 12, grace_lower: 14 };
        assert_eq!(properties_of(&said, 20_000_000), wanted);
    }

    #[test]
    fn times_are_ticks_and_have_a_bound() {
        assert_eq!(ticks(400_000, LONGEST_QUANTUM, 10_000_000), 400_000);
        assert_eq!(ticks(400_000, LONGEST_QUANTUM, 3_000_000_000), 120_000_000);
        assert_eq!(ticks(u64::MAX, LONGEST_QUANTUM, 3_000_000_000), 3_000_000_000);
        assert_eq!(ticks(u64::MAX, LONGEST_GRACE, 10_000_000), 1_000_000);
        assert_eq!(ticks(0, LONGEST_GRACE, 10_000_000), 0);
    }
}
