//! The GPU clock: the processor's time-stamp counter where it is invariant, and the performance counter elsewhere.
//!
//! Engines and the context management processor have no other clock, nor has their duty. The driver's own times
//! (patience, habits) are the performance counter's. The time-stamp counter's frequency is measured against the
//! performance counter, once for as long as the driver is loaded; so `GpuFrequency` stays, and is exact to some
//! millionths. What adds up between two calibrations is the OS's to find: it calibrates at least every 30 ms.
//!
//! Source: `DxgkDdiCalibrateGpuClock`.

use crate::irql::Passive;
use crate::platform::{self, Platform};
use crate::time_stamp;
use core::sync::atomic::{AtomicU64, Ordering};
use wddm_abi::DXGK_GPUCLOCKDATA;

/// Valid bits of a GPU time stamp: those of either counter.
pub const PRECISION: u32 = 64;

/// What the time-stamp counter counts per second, as it was measured; 0: not yet. A property of the machine.
static MEASURED: AtomicU64 = AtomicU64::new(0);
/// For how long it is measured at least, in units of 100 ns.
const MEASURES: u64 = 100_000;
/// Readings of both counters, of which the tightest pair counts: a thread may be interrupted between two.
const READINGS: usize = 4;
/// What a frequency is between, in hertz: any other was not measured against a clock of this machine.
const PLAUSIBLE: core::ops::RangeInclusive<u64> = 100_000_000..=20_000_000_000;

/// The clock of a GPU.
pub struct GpuClock {
    /// What the time-stamp counter counts per second; 0: the clock is the performance counter.
    stamps: u64,
    /// What is added to the time-stamp counter, so that the clock does not go back where the counter began anew.
    ahead: AtomicU64,
    /// The clock when the device last left D0.
    left: AtomicU64,
}

impl GpuClock {
    /// The time-stamp counter where `wants_stamps` and the processor says that it is invariant.
    pub(crate) fn new<P: Platform>(irql: &Passive, platform: &P, wants_stamps: bool) -> Self {
        let usable = wants_stamps && time_stamp::is_invariant();
        let stamps = if usable { frequency(irql, platform) } else { 0 };
        Self { stamps, ahead: AtomicU64::new(0), left: AtomicU64::new(0) }
    }

    /// The clock. Any IRQL.
    pub fn now<P: Platform>(&self, platform: &P) -> u64 {
        if self.stamps == 0 { platform.clock() } else { self.at(time_stamp::read()) }
    }

    /// The clock where the time-stamp counter is `stamp`.
    fn at(&self, stamp: u64) -> u64 {
        stamp.wrapping_add(self.ahead.load(Ordering::Relaxed))
    }

    /// Its ticks per second.
    pub fn frequency<P: Platform>(&self, platform: &P) -> u64 {
        if self.stamps == 0 { platform.clock_frequency() } else { self.stamps }
    }

    /// The device leaves D0.
    pub(crate) fn leave<P: Platform>(&self, platform: &P) {
        self.left.store(self.now(platform), Ordering::Relaxed);
    }

    /// The device came back to D0: the machine may have slept, and the time-stamp counter may have begun at 0.
    pub(crate) fn come_back<P: Platform>(&self, platform: &P) {
        if self.stamps != 0 {
            self.go_on(self.now(platform));
        }
    }

    /// The clock says `now`, and is not to be behind what it said when the device left D0.
    fn go_on(&self, now: u64) {
        self.ahead.fetch_add(self.left.load(Ordering::Relaxed).saturating_sub(now), Ordering::Relaxed);
    }

    /// GPU and CPU clocks at one moment. At most `DISPATCH_LEVEL`.
    pub fn calibrate<P: Platform>(&self, platform: &P) -> DXGK_GPUCLOCKDATA {
        let mut data = DXGK_GPUCLOCKDATA::zeroed();
        data.GpuFrequency = self.frequency(platform);
        (data.GpuClockCounter, data.CpuClockCounter) = if self.stamps == 0 {
            // One reading is both.
            let now = platform.clock();
            (now, now)
        } else {
            self.both(pair(platform))
        };
        data
    }

    /// The clock where the time-stamp counter is `stamp`, and the performance counter at that moment.
    fn both(&self, (stamp, counter): (u64, u64)) -> (u64, u64) {
        (self.at(stamp), counter)
    }
}

/// The time-stamp counter and the performance counter at one moment.
fn pair<P: Platform>(platform: &P) -> (u64, u64) {
    let mut best = (u64::MAX, 0, 0);
    for _ in 0..READINGS {
        let before = platform.clock();
        let stamp = time_stamp::read();
        let between = platform.clock().saturating_sub(before);
        if between < best.0 {
            best = (between, stamp, before + between / 2);
        }
    }
    (best.1, best.2)
}

/// What the time-stamp counter counts per second; 0 where that was not to be found out.
fn frequency<P: Platform>(irql: &Passive, platform: &P) -> u64 {
    let known = MEASURED.load(Ordering::Relaxed);
    if known != 0 {
        return known;
    }
    let first = pair(platform);
    platform::until(irql, platform, Some(MEASURES), || false);
    let found = rate(first, pair(platform), platform.clock_frequency());
    if !PLAUSIBLE.contains(&found) {
        platform.print(format_args!("fencepost: the time-stamp counter is not used: {found} Hz\n"));
        return 0;
    }
    // Two devices that start at once: the first to have it says it for both.
    match MEASURED.compare_exchange(0, found, Ordering::Relaxed, Ordering::Relaxed) {
        Ok(_) => found,
        Err(other) => other,
    }
}

/// What the time-stamp counter counted per second between two pairs. `frequency` is the performance counter's.
fn rate(first: (u64, u64), second: (u64, u64), frequency: u64) -> u64 {
    let (stamps, ticks) = (second.0.saturating_sub(first.0), second.1.saturating_sub(first.1));
    let rate = u128::from(stamps) * u128::from(frequency) / u128::from(ticks.max(1));
    u64::try_from(rate).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_of_the_time_between_two_pairs() {
        assert_eq!(rate((1_000, 50), (31_000_000_000 + 1_000, 100_000_050), 10_000_000), 3_100_000_000);
        assert_eq!(rate((5, 7), (5, 7), 10_000_000), 0);
        assert_eq!(rate((0, 7), (u64::MAX, 7), 10_000_000), u64::MAX);
    }

    #[test]
    fn a_counter_that_began_anew_does_not_take_the_clock_back() {
        let clock = GpuClock { stamps: 1, ahead: AtomicU64::new(0), left: AtomicU64::new(1000) };
        clock.go_on(clock.at(1001));
        assert_eq!(clock.at(1002), 1002);
        clock.go_on(clock.at(10));
        assert_eq!((clock.at(10), clock.at(30)), (1000, 1020));
        assert_eq!(clock.both((30, 7)), (1020, 7), "what is calibrated is the clock, and not the counter");
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn the_counter_goes_on() {
        let first = time_stamp::read();
        assert!(time_stamp::read() > first && first != 0);
    }
}
