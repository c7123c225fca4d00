//! What a run was like: rules, counts, records.

mod timeline;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use nt_model::RuleReport;
use nt_model::driver::STACK_ADVICE;
use wddm_abi::DXGK_INTERRUPT_TYPE;

use crate::memory::VidMm;
use crate::objects::hw_context::HwContext;
pub use crate::port::counters::{
    Calibration, Counts, Event, HotWindow, LogLoss, LogRecord, TimedLoss, TimedRecord, UserFault, UserMistake,
};
use crate::port::miniport::Miniport;
use crate::port::power::Power;
use crate::port::shared::Shared;
use crate::port::tdr::Tdr;
use crate::sched::interrupt::Interrupts;

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
            crate::objects::fence_log::collect(adapter);
            crate::port::calibration::calibrate(adapter);
        }
        let adapters = shared.adapters().iter().map(|adapter| AdapterReport::of(adapter)).collect();
        let counters = &shared.counters;
        let counts = counters.counts();
        let tables = counters.tables();
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
