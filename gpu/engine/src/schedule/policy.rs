//! What the OS says of the order in which queues run: bands, shares and times; and the rank of a context.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use gpu_wire::NODE_COUNT;

/// Bands of priority: idle, normal, focus, real time.
pub const BANDS: usize = 4;
/// The band that contexts start in.
pub const NORMAL: usize = 1;
/// The band in which contexts have levels.
pub const REAL_TIME: usize = 3;

/// The share of the normal band until the OS sets one. Source: DXGKARG_SETUPPRIORITYBANDS, targetNormalBandPercentage
/// (0 to 50, 10 by default).
const SHARE: u32 = 10;
/// Bits of a rank that are the priority within a process.
const PRIORITY_BITS: u32 = 4;

/// What an engine knows of a process in a band. The node's engine writes it.
#[derive(Default)]
pub(super) struct Turn {
    /// When the process was served last: a number of the band.
    pub served: AtomicU64,
    /// Where its entry is, if it has one.
    pub place: AtomicU32,
}

/// What the engines know of a process, per node and band.
#[derive(Default)]
pub struct Turns([[Turn; BANDS]; NODE_COUNT]);

impl Turns {
    pub(super) fn of(&self, node: usize, band: usize) -> Option<&Turn> {
        self.0.get(node)?.get(band)
    }
}

/// Times of a band.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Times {
    /// For how long a process has the engine before another one of the band has it.
    pub quantum: u64,
    /// How long a process of the band waits for one that it takes the place of.
    pub process_grace: u64,
    /// How long the band waits for a lower one that it takes the place of.
    pub grace: u64,
}

/// What the OS says of the bands. Times are ticks of the GPU clock. Any thread writes it, engines read it.
pub struct Policy {
    /// The share of the normal band in the turns while higher bands have work, in hundredths.
    pub(super) share: AtomicU32,
    /// Of each band: its quantum, the grace of a process, the grace of the band.
    times: [[AtomicU64; 3]; BANDS],
    /// How often a context of each node got another place among others.
    pub(super) changes: [AtomicU64; NODE_COUNT],
}

impl Policy {
    /// Before the OS has said anything: turns by turns, and no grace.
    pub fn new() -> Self {
        Self { share: AtomicU32::new(SHARE), times: Default::default(), changes: Default::default() }
    }

    /// Sets the share of the normal band in the turns while higher bands have work, in hundredths; above 50 it is 50.
    pub fn set_share(&self, percent: u32) {
        self.share.store(percent.min(50), Ordering::Relaxed);
    }

    /// The share of the normal band in the turns while higher bands have work, in hundredths: 0 to 50.
    pub fn share(&self) -> u32 {
        self.share.load(Ordering::Relaxed)
    }

    /// Sets the times of a band.
    pub fn set_times(&self, band: usize, times: Times) {
        let Some(places) = self.times.get(band) else { return };
        for (place, time) in places.iter().zip([times.quantum, times.process_grace, times.grace]) {
            place.store(time, Ordering::Relaxed);
        }
    }

    /// A context of `node` has another band or rank: its queues that are ready have other places in line.
    pub(crate) fn note_change(&self, node: usize) {
        if let Some(changes) = self.changes.get(node) {
            // Release: the properties are seen by an engine that sees the number.
            changes.fetch_add(1, Ordering::Release);
        }
    }

    pub(super) fn times(&self, band: usize) -> Times {
        let Some([quantum, process_grace, grace]) = self.times.get(band) else { return Times::default() };
        let [quantum, process_grace, grace] = [quantum, process_grace, grace].map(|time| time.load(Ordering::Relaxed));
        Times { quantum, process_grace, grace }
    }
}

impl Default for Policy {
    fn default() -> Self {
        Self::new()
    }
}

/// The rank of a context in its band: of the level of the real-time band, and of the priority within its process, which
/// is -7 to 7. What is beyond counts as the nearest of them.
pub(crate) fn rank(band: usize, level: i32, priority: i32) -> u32 {
    let level = if band == REAL_TIME { level.clamp(0, 31).cast_unsigned() } else { 0 };
    level << PRIORITY_BITS | (priority.clamp(-7, 7) + 7).cast_unsigned()
}

/// The level in a rank.
pub(super) fn level(rank: u32) -> u32 {
    rank >> PRIORITY_BITS
}
