//! What a run was like: rules, counts, records.

mod log;
mod user;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use nt_model::RuleReport;
use nt_model::driver::STACK_ADVICE;
use wddm_abi::DXGK_INTERRUPT_TYPE;

use crate::hw_context::HwContext;
use crate::interrupt::Interrupts;
use crate::memory::VidMm;
use crate::miniport::Miniport;
use crate::os::Shared;
use crate::power::Power;
use crate::recovery::Tdr;
use crate::sync::{Lock, Rank};
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
    /// How often every native fence of an adapter was looked at, because nothing said which was signalled.
    pub fence_scans: u64,
    /// How often every native fence of a process was looked at, because a log did not say which was signalled: it was
    /// overrun, or was being replaced.
    pub log_scans: u64,
    /// How often every monitored fence of an adapter was looked at, because an interrupt said that one was signalled.
    pub monitored_scans: u64,
    /// How often the monitored fences of a process were looked at, because a buffer of it was done.
    pub completion_scans: u64,
    /// Waiters for monitored fences that were let go by that.
    pub completion_releases: u64,
    /// Thunk calls by name.
    pub thunks: BTreeMap<&'static str, u64>,
    /// Thunk calls that were refused because the model does not implement them.
    pub unimplemented: BTreeMap<&'static str, u64>,
    /// Thunk calls inside hot windows: what a hot path must not do.
    pub hot_thunks: BTreeMap<&'static str, u64>,
}

#[derive(Debug, Default)]
struct Tables {
    thunks: BTreeMap<&'static str, u64>,
    unimplemented: BTreeMap<&'static str, u64>,
    hot: BTreeMap<&'static str, u64>,
    log: Vec<LogRecord>,
    losses: Vec<LogLoss>,
    calibrations: Vec<Calibration>,
    events: Vec<Event>,
    advice: Vec<String>,
    user_faults: Vec<UserFault>,
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
            tables: Lock::new(Rank::Log, Tables::default()),
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

/// What one adapter did.
#[derive(Clone, Debug, Default)]
pub struct AdapterReport {
    /// Its LUID; 0 once it is stopped for good.
    pub luid: u64,
    /// Calls of each DDI.
    pub ddis: BTreeMap<&'static str, u64>,
    /// Calls of each callback.
    pub callbacks: BTreeMap<&'static str, u64>,
    /// Interrupts of the device that reached the interrupt routine.
    pub interrupts: u64,
    /// How often the driver told the device to interrupt. Raises that come before the first of them is served share an
    /// interrupt.
    pub raises: u64,
    /// Native fences that notifications named, each as often as it was named.
    pub fences_named: u64,
    /// Notifications of native fences that named none, and did not ask to look at monitored fences as well.
    pub fences_unnamed: u64,
    /// `DxgkCbNotifyInterrupt` calls.
    pub notifications: u64,
    /// Those that made sense, by `InterruptType`.
    pub kinds: BTreeMap<DXGK_INTERRUPT_TYPE, u64>,
    /// DPCs that ran.
    pub dpcs: u64,
    /// Notification lists that were full.
    pub overflows: u64,
    /// Engine resets.
    pub engine_resets: u64,
    /// Adapter resets.
    pub adapter_resets: u64,
    /// Contexts that were probed and found alive.
    pub innocent_probes: u64,
    /// Contexts that owe the acknowledgement of their suspension.
    pub suspending: usize,
    /// F-state transitions.
    pub power_transitions: u32,
    /// Segments: number, bytes in use, bytes.
    pub segments: Vec<(u32, u64, u64)>,
}

/// What a run was like so far.
#[derive(Clone, Debug)]
pub struct Report {
    /// Every rule: how often it was checked and broken. Rules that were not reached have a count of 0.
    pub rules: Vec<RuleReport>,
    /// Counts.
    pub counts: Counts,
    /// Adapters that are there.
    pub adapters: Vec<AdapterReport>,
    /// Fence log entries, in the order in which they were read.
    pub log: Vec<LogRecord>,
    /// Where entries were lost while fences were traced, in the order in which that was seen.
    pub losses: Vec<LogLoss>,
    /// Clock pairs.
    pub calibrations: Vec<Calibration>,
    /// Resets and other events, in order.
    pub events: Vec<Event>,
    /// Driver entries that took more of the kernel stack than others may leave, in bytes: advice, no rule.
    pub deep_entries: BTreeMap<&'static str, usize>,
    /// What a document asks of the drivers that were started and drivers in the field run without: advice, no rule.
    pub advice: Vec<String>,
    /// What user-mode drivers did wrong: no rule, since the kernel-mode driver has no part in it.
    pub user_faults: Vec<UserFault>,
}

impl AdapterReport {
    /// What an adapter did so far.
    pub(crate) fn of(adapter: &Miniport) -> Self {
        let (interrupts, tdr) = (Interrupts::of(adapter), Tdr::of(adapter));
        Self {
            luid: adapter.luid_number(),
            ddis: adapter.ddi_calls(),
            callbacks: adapter.callback_calls(),
            interrupts: interrupts.interrupts.load(Ordering::Relaxed),
            raises: adapter.device.edu().map_or(0, |edu| edu.told()),
            fences_named: interrupts.fences_named(),
            fences_unnamed: interrupts.fences_unnamed(),
            notifications: interrupts.notifications.load(Ordering::Relaxed),
            kinds: interrupts.kinds(),
            dpcs: interrupts.dpcs.load(Ordering::Relaxed),
            overflows: interrupts.overflows.load(Ordering::Relaxed),
            engine_resets: tdr.engine_resets.load(Ordering::Relaxed),
            adapter_resets: tdr.adapter_resets.load(Ordering::Relaxed),
            innocent_probes: tdr.innocent_probes.load(Ordering::Relaxed),
            suspending: HwContext::all_of(adapter).iter().filter(|context| context.is_suspending()).count(),
            power_transitions: Power::of(adapter).transitions(),
            segments: VidMm::of(adapter).manager().map(|manager| manager.segment_usage()).unwrap_or_default(),
        }
    }
}

impl Report {
    /// Resets of adapters, which are among `counts.resets`.
    pub fn adapter_resets(&self) -> u64 {
        self.adapters.iter().map(|adapter| adapter.adapter_resets).sum()
    }

    pub(crate) fn of(shared: &Arc<Shared>) -> Self {
        let _inside = shared.kernel().enter();
        for adapter in shared.adapters().iter().filter(|adapter| adapter.is_started()) {
            crate::fence_log::collect(adapter);
            crate::calibration::calibrate(adapter);
        }
        let adapters = shared.adapters().iter().map(|adapter| AdapterReport::of(adapter)).collect();
        let counters = &shared.counters;
        let counts = counters.counts();
        let tables = counters.tables.lock();
        Self {
            rules: shared.kernel().rules.report(),
            counts,
            adapters,
            log: tables.log.clone(),
            losses: tables.losses.clone(),
            calibrations: tables.calibrations.clone(),
            events: tables.events.clone(),
            deep_entries: shared.kernel().deep_entries(),
            advice: tables.advice.clone(),
            user_faults: tables.user_faults.clone(),
        }
    }

    /// Rules that were broken.
    pub fn broken(&self) -> impl Iterator<Item = &RuleReport> {
        self.rules.iter().filter(|rule| rule.broken != 0)
    }

    /// Rules that nothing has reached.
    pub fn not_reached(&self) -> impl Iterator<Item = &RuleReport> {
        self.rules.iter().filter(|rule| rule.evaluations == 0)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reached = self.rules.iter().filter(|rule| rule.evaluations != 0).count();
        let broken = self.broken().count();
        writeln!(f, "{reached} of {} rules reached, {broken} broken", self.rules.len())?;
        for rule in self.broken() {
            writeln!(f, "  broken {} times: {}", rule.broken, rule.rule.name)?;
        }
        writeln!(
            f,
            "{} packets, {} kernel submissions, {} doorbell connections, {} resets",
            self.counts.packets, self.counts.kernel_submissions, self.counts.doorbell_connects, self.counts.resets
        )?;
        for (name, count) in &self.counts.thunks {
            writeln!(f, "  {name}: {count}")?;
        }
        for (entry, bytes) in &self.deep_entries {
            writeln!(
                f,
                "advice: {entry} took {bytes} bytes of the kernel stack; others may leave no more than {STACK_ADVICE}"
            )?;
        }
        for text in &self.advice {
            writeln!(f, "advice: {text}")?;
        }
        for fault in &self.user_faults {
            writeln!(f, "user mode: {fault}")?;
        }
        for event in &self.events {
            writeln!(f, "{}", event.text)?;
        }
        Ok(())
    }
}
