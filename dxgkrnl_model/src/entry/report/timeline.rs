//! What was logged of fences, on the OS's clock.

use super::Report;
use crate::port::counters::{Calibration, LogLoss, LogRecord, TimedLoss, TimedRecord};

impl Report {
    /// The performance counter at a GPU time of a node: between the calibrations before and after it, since the clocks
    /// drift; outside of them by the nearest one and the frequency that the driver says. `performance_frequency` is
    /// that of the performance counter, in ticks per second.
    fn cpu_time(&self, adapter: u64, node: u32, gpu: u64, performance_frequency: u64) -> Option<u64> {
        let same = |calibration: &&Calibration| calibration.adapter == adapter && calibration.node == node;
        let of_node: Vec<_> = self.calibrations.iter().filter(same).copied().collect();
        cpu_between(&of_node, gpu, performance_frequency)
    }

    /// Log entries joined with the OS's clock by the calibrations of their node. An entry without an end (0: a
    /// write that was skipped) has no place. `performance_frequency` is that of the performance counter, in ticks per
    /// second.
    pub fn timeline(&self, performance_frequency: u64) -> Vec<TimedRecord> {
        let place = |record: &LogRecord| {
            let cpu_end = self.cpu_time(record.adapter, record.node, record.end, performance_frequency)?;
            Some(TimedRecord { record: *record, cpu_end })
        };
        self.log.iter().filter(|record| record.end != 0).filter_map(place).collect()
    }

    /// Lost entries on the same clock; those between two entries that have no time are left out.
    pub fn lost_events(&self, performance_frequency: u64) -> Vec<TimedLoss> {
        let place = |loss: &LogLoss| {
            let ends = [loss.after, loss.before].map(|gpu| if gpu == 0 { loss.after.max(loss.before) } else { gpu });
            let at = |gpu: u64| self.cpu_time(loss.adapter, loss.node, gpu, performance_frequency);
            Some(TimedLoss { loss: *loss, cpu_after: at(ends[0])?, cpu_before: at(ends[1])? })
        };
        self.losses.iter().filter(|loss| loss.after.max(loss.before) != 0).filter_map(place).collect()
    }
}

/// The performance counter at GPU time `gpu`, by calibrations of one node in the order in which they were made.
fn cpu_between(calibrations: &[Calibration], gpu: u64, performance_frequency: u64) -> Option<u64> {
    let before = calibrations.iter().rev().find(|calibration| calibration.gpu <= gpu);
    let after = calibrations.iter().find(|calibration| calibration.gpu > gpu);
    let calibration = before.or(after)?;
    let distance = i128::from(gpu) - i128::from(calibration.gpu);
    let (cpu_ticks, gpu_ticks) = match (before, after) {
        (Some(from), Some(to)) => (to.cpu.saturating_sub(from.cpu), to.gpu - from.gpu),
        _ => (performance_frequency, calibration.frequency.max(1)),
    };
    let ticks = distance * i128::from(cpu_ticks) / i128::from(gpu_ticks);
    Some(u64::try_from(i128::from(calibration.cpu) + ticks).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A clock that says 1 GHz and runs a hundredth faster, beside a counter of 10 MHz.
    #[test]
    fn gpu_times_lie_between_the_calibrations_around_them() {
        let at = |gpu, cpu| Calibration { adapter: 1, node: 0, frequency: 1_000_000_000, gpu, cpu };
        let calibrations = [at(1_000_000, 500), at(102_000_000, 1_000_500), at(203_000_000, 2_000_500)];
        let cpu = |gpu| cpu_between(&calibrations, gpu, 10_000_000);
        assert_eq!((cpu(1_000_000), cpu(102_000_000), cpu(203_000_000)), (Some(500), Some(1_000_500), Some(2_000_500)));
        assert_eq!((cpu(51_500_000), cpu(152_500_000)), (Some(500_500), Some(1_500_500)));
        // Outside: by the frequency that was said.
        assert_eq!((cpu(203_000_100), cpu(999_900)), (Some(2_000_501), Some(499)));
        assert_eq!(cpu_between(&[], 5, 10_000_000), None);
    }
}
