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
use gpu_engine::schedule::Times;
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
    policy.set_share(args.targetNormalBandPercentage);
    let bands = args.processQuantumForBand.iter().zip(args.processGracePeriodForBand).zip(args.gracePeriodForBand);
    for (band, ((quantum, process_grace), grace)) in bands.enumerate() {
        let times = Times {
            quantum: ticks(*quantum, LONGEST_QUANTUM, frequency),
            process_grace: ticks(process_grace, LONGEST_GRACE, frequency),
            grace: ticks(grace, LONGEST_GRACE, frequency),
        };
        policy.set_times(band, times);
    }
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
    let properties = Properties {
        // CAST: a band is no negative number; what is none is none of the bands either.
        band: args.priorityBand.0 as u32,
        level: args.realtimeBandPriorityLevel,
        priority: args.inProcessPriority,
        quantum: ticks(args.quantum, LONGEST_QUANTUM, frequency),
        grace_same: ticks(args.gracePeriodSamePriority, LONGEST_GRACE, frequency),
        grace_lower: ticks(args.gracePeriodLowerPriority, LONGEST_GRACE, frequency),
    };
    let exists = context.engine.set_properties(&started.gpu.policy, &properties);
    if exists { Ok(()) } else { Err(Error::InvalidParameter) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_ticks_and_have_a_bound() {
        assert_eq!(ticks(400_000, LONGEST_QUANTUM, 10_000_000), 400_000);
        assert_eq!(ticks(400_000, LONGEST_QUANTUM, 3_000_000_000), 120_000_000);
        assert_eq!(ticks(u64::MAX, LONGEST_QUANTUM, 3_000_000_000), 3_000_000_000);
        assert_eq!(ticks(u64::MAX, LONGEST_GRACE, 10_000_000), 1_000_000);
        assert_eq!(ticks(0, LONGEST_GRACE, 10_000_000), 0);
    }
}
