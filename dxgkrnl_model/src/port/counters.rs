//! Counters and records of one machine: what its [report](crate::entry::report) is made of.

mod log;
mod user;

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use wddm_abi::NTSTATUS;

use crate::port::shared::Shared;
use crate::port::sync::{Lock, Rank};
pub use log::{Calibration, LogLoss, LogRecord, TimedLoss, TimedRecord};
pub use user::{UserFault, UserMistake};

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Performance counter.
    pub cpu: u64,
    /// What.
    pub text: String,
}

/// How often something happened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Buffers handed to packet nodes.
    pub packets: u64,
    /// Buffers handed to kernel-mode hardware queues.
    pub kernel_submissions: u64,
    /// Calls of `DxgkDdiConnectDoorbell`.
    pub doorbell_connects: u64,
    /// How often a connected doorbell was taken away, by the driver or by the OS.
    pub doorbell_disconnects: u64,
    /// Engine and adapter resets.
    pub resets: u64,
    /// Log buffers that were found overrun.
    pub log_overruns: u64,
    /// Queues whose logs were flushed by `DxgkDdiUpdateNativeFenceLogs`.
    pub logs_flushed: u64,
    /// How often every native fence of an adapter was looked at, because nothing said which was signaled.
    pub fence_scans: u64,
    /// How often every native fence of a process was looked at, because a log did not say which was signaled: it was
    /// overrun, or was being replaced.
    pub log_scans: u64,
    /// How often every monitored fence of an adapter was looked at, because an interrupt said that one was signaled.
    pub monitored_scans: u64,
    /// How often the monitored fences of a process were looked at, because a buffer of it was done.
    pub completion_scans: u64,
    /// Waiters for monitored fences that were let go by that.
    pub completion_releases: u64,
    /// Thunk calls by name.
    pub thunks: BTreeMap<&'static str, u64>,
    /// What thunks have answered, by name and status, and how often.
    pub answers: BTreeMap<(&'static str, NTSTATUS), u64>,
    /// Thunk calls that were refused because the model does not implement them.
    pub unimplemented: BTreeMap<&'static str, u64>,
    /// Thunk calls inside hot windows: what a hot path must not do.
    pub hot_thunks: BTreeMap<&'static str, u64>,
}

/// Records of one machine, each in order.
#[derive(Debug, Default)]
pub(crate) struct Tables {
    thunks: BTreeMap<&'static str, u64>,
    answers: BTreeMap<(&'static str, NTSTATUS), u64>,
    unimplemented: BTreeMap<&'static str, u64>,
    hot: BTreeMap<&'static str, u64>,
    pub(crate) log: Vec<LogRecord>,
    pub(crate) losses: Vec<LogLoss>,
    pub(crate) calibrations: Vec<Calibration>,
    pub(crate) events: Vec<Event>,
    pub(crate) advice: Vec<String>,
    pub(crate) user_faults: Vec<UserFault>,
}

/// Counters of one machine.
#[derive(Debug)]
pub(crate) struct Counters {
    packets: AtomicU64,
    kernel_submissions: AtomicU64,
    doorbell_connects: AtomicU64,
    doorbell_disconnects: AtomicU64,
    resets: AtomicU64,
    log_overruns: AtomicU64,
    logs_flushed: AtomicU64,
    fence_scans: AtomicU64,
    log_scans: AtomicU64,
    monitored_scans: AtomicU64,
    completion_scans: AtomicU64,
    completion_releases: AtomicU64,
    hot: AtomicU64,
    tables: Lock<Tables>,
}

impl Counters {
    pub(crate) fn new() -> Self {
        Self {
            packets: AtomicU64::new(0),
            kernel_submissions: AtomicU64::new(0),
            doorbell_connects: AtomicU64::new(0),
            doorbell_disconnects: AtomicU64::new(0),
            resets: AtomicU64::new(0),
            log_overruns: AtomicU64::new(0),
            logs_flushed: AtomicU64::new(0),
            fence_scans: AtomicU64::new(0),
            log_scans: AtomicU64::new(0),
            monitored_scans: AtomicU64::new(0),
            completion_scans: AtomicU64::new(0),
            completion_releases: AtomicU64::new(0),
            hot: AtomicU64::new(0),
            tables: Lock::new(Rank::Leaf, Tables::default()),
        }
    }

    pub(crate) fn packet(&self) {
        self.packets.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn kernel_submission(&self) {
        self.kernel_submissions.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn doorbell_connect(&self) {
        self.doorbell_connects.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn doorbell_disconnect(&self) {
        self.doorbell_disconnects.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn tdr(&self) {
        self.resets.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn log_overrun(&self) {
        self.log_overruns.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn logs_flushed(&self, queues: u64) {
        self.logs_flushed.fetch_add(queues, Ordering::Relaxed);
    }

    pub(crate) fn fence_scan(&self) {
        self.fence_scans.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn log_scan(&self) {
        self.log_scans.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn monitored_scan(&self) {
        self.monitored_scans.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn completion_scan(&self, released: u64) {
        self.completion_scans.fetch_add(1, Ordering::Relaxed);
        self.completion_releases.fetch_add(released, Ordering::Relaxed);
    }

    pub(crate) fn thunk(&self, name: &'static str) {
        let hot = self.hot.load(Ordering::Relaxed) != 0;
        let mut tables = self.tables.lock();
        *tables.thunks.entry(name).or_default() += 1;
        if hot {
            *tables.hot.entry(name).or_default() += 1;
        }
    }

    /// A thunk has come to its end.
    pub(crate) fn answered(&self, name: &'static str, status: NTSTATUS) {
        *self.tables.lock().answers.entry((name, status)).or_default() += 1;
    }

    pub(crate) fn unimplemented(&self, name: &'static str) {
        *self.tables.lock().unimplemented.entry(name).or_default() += 1;
    }

    /// Adds what was read of one log, behind what was lost of it.
    pub(crate) fn add_log(&self, records: &[LogRecord], loss: Option<LogLoss>) {
        let mut tables = self.tables.lock();
        if let Some(loss) = loss {
            let at = tables.log.len();
            tables.losses.push(LogLoss { at, ..loss });
        }
        tables.log.extend_from_slice(records);
    }

    /// The last pair of a node.
    pub(crate) fn last_calibration(&self, adapter: u64, node: u32) -> Option<Calibration> {
        let tables = self.tables.lock();
        tables.calibrations.iter().rev().find(|c| c.adapter == adapter && c.node == node).copied()
    }

    pub(crate) fn add_calibration(&self, calibration: Calibration) {
        self.tables.lock().calibrations.push(calibration);
    }

    /// A user-mode driver did something wrong.
    pub(crate) fn user_fault(&self, fault: UserFault) {
        self.tables.lock().user_faults.push(fault);
    }

    /// Says what a document asks for and drivers in the field run without.
    pub(crate) fn advise(&self, text: String) {
        self.tables.lock().advice.push(text);
    }

    pub(crate) fn event(&self, cpu: u64, text: String) {
        self.tables.lock().events.push(Event { cpu, text });
    }

    /// What was recorded so far.
    pub(crate) fn tables(&self) -> impl Deref<Target = Tables> + '_ {
        self.tables.lock()
    }

    /// The counts so far.
    pub(crate) fn counts(&self) -> Counts {
        let tables = self.tables.lock();
        Counts {
            packets: self.packets.load(Ordering::Relaxed),
            kernel_submissions: self.kernel_submissions.load(Ordering::Relaxed),
            doorbell_connects: self.doorbell_connects.load(Ordering::Relaxed),
            doorbell_disconnects: self.doorbell_disconnects.load(Ordering::Relaxed),
            resets: self.resets.load(Ordering::Relaxed),
            log_overruns: self.log_overruns.load(Ordering::Relaxed),
            logs_flushed: self.logs_flushed.load(Ordering::Relaxed),
            fence_scans: self.fence_scans.load(Ordering::Relaxed),
            log_scans: self.log_scans.load(Ordering::Relaxed),
            monitored_scans: self.monitored_scans.load(Ordering::Relaxed),
            completion_scans: self.completion_scans.load(Ordering::Relaxed),
            completion_releases: self.completion_releases.load(Ordering::Relaxed),
            thunks: tables.thunks.clone(),
            answers: tables.answers.clone(),
            unimplemented: tables.unimplemented.clone(),
            hot_thunks: tables.hot.clone(),
        }
    }

    /// Begins or ends a window in which thunk calls are counted separately.
    pub(crate) fn hot(&self, begin: bool) {
        if begin {
            self.hot.fetch_add(1, Ordering::Relaxed);
        } else {
            self.hot.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// A window in which thunk calls are counted as hot, until it is dropped.
#[derive(Debug)]
#[must_use = "the window ends when the guard is dropped"]
pub struct HotWindow {
    shared: Arc<Shared>,
}

impl HotWindow {
    pub(crate) fn open(shared: &Arc<Shared>) -> Self {
        shared.counters.hot(true);
        Self { shared: shared.clone() }
    }
}

impl Drop for HotWindow {
    fn drop(&mut self) {
        self.shared.counters.hot(false);
    }
}
