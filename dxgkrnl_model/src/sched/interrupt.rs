//! Interrupts: from the device's line through the driver's routine to the list that the DPC works off.
//!
//! `DxgkDdiInterruptRoutine` runs at the device's level under the interrupt's lock, and so does everything that
//! `DxgkCbSynchronizeExecution` runs and `DxgkDdiUpdateMonitoredValues`. `DxgkCbNotifyInterrupt` copies what it is
//! given (arrays too), judges it at once, and appends it to a bounded list per node; the list is worked off inside
//! `DxgkCbNotifyDpc`.
//!
//! Chosen: a list that is full folds further fence signals into "scan everything"; nothing else is ever dropped (that
//! the list is bounded is inferred from the event FenceInterruptListFull of Microsoft-Windows-DxgKrnl). Work found by
//! `DxgkCbNotifyDpc` is done inside that call, at DISPATCH_LEVEL, before it returns; a driver that holds a lock of its
//! own across the call therefore meets its own DDIs there.

pub(crate) mod callbacks;
mod classify;
mod journal;
mod vsync;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use nt_model::Dpc;
use nt_model::sched::YieldPoint;
use wddm_abi::{DXGK_INTERRUPT_TYPE, DXGKARGCB_NOTIFY_INTERRUPT_DATA};

use crate::objects::scheduling_log::SchedulingLogSet;
use crate::port::ddi::call_ddi;
use crate::port::miniport::Miniport;
use crate::port::pci::DEVICE_IRQL;
use crate::port::rules::interrupt::{DPC_NOTIFY, INT_LEVEL, INT_MESSAGE, INT_REENTRANT, ISR_CLAIM, ISR_DISMISS};
use crate::port::section::{self, in_section, is_synchronized, synchronize};
use crate::port::sync::{Lock, Rank};
use crate::port::tdr::Tdr;
use crate::sched::vidsch::VidSch;
pub(crate) use classify::{Notice, Signaled};
pub use journal::Notification;

/// What one node's interrupts have reported and no DPC has worked off.
#[derive(Debug, Default)]
pub(crate) struct NodeList {
    pub(crate) notices: Vec<Notice>,
    /// Signals were folded: scan every waiter of a native fence.
    pub(crate) scan_native: bool,
    /// And of a monitored one.
    pub(crate) scan_monitored: bool,
}

impl NodeList {
    fn is_empty(&self) -> bool {
        self.notices.is_empty() && !self.scan_native && !self.scan_monitored
    }
}

/// Interrupt state of one adapter.
#[derive(Debug)]
pub(crate) struct Interrupts {
    lists: Lock<Vec<NodeList>>,
    notifying: AtomicBool,
    /// Calls of DxgkCbNotifyDpc. The DPC may run on two processors at a time, so that a flag would not do.
    notified_dpc: AtomicU64,
    /// What was notified.
    journal: journal::Journal,
    /// Interrupts, notifications, DPCs, lists that were full.
    pub(crate) interrupts: AtomicU64,
    pub(crate) notifications: AtomicU64,
    pub(crate) dpcs: AtomicU64,
    pub(crate) overflows: AtomicU64,
}

impl Default for Interrupts {
    fn default() -> Self {
        Self::new()
    }
}

impl Interrupts {
    /// That of an adapter.
    pub(crate) fn of(adapter: &Miniport) -> &Self {
        adapter.extension()
    }

    fn new() -> Self {
        Self {
            lists: Lock::new(Rank::Interrupt, Vec::new()),
            notifying: AtomicBool::new(false),
            notified_dpc: AtomicU64::new(0),
            journal: journal::Journal::new(),
            interrupts: AtomicU64::new(0),
            notifications: AtomicU64::new(0),
            dpcs: AtomicU64::new(0),
            overflows: AtomicU64::new(0),
        }
    }

    /// Connects the driver's routine and prepares the DPC. Called before `DxgkDdiStartDevice`: the driver enables its
    /// interrupts inside.
    pub(crate) fn connect(&self, adapter: &Arc<Miniport>) {
        // What an interrupt looks at is made before the first comes, and not under the interrupt's lock.
        let _made = (VidSch::of(adapter), Tdr::of(adapter), SchedulingLogSet::of(adapter));
        let weak = Arc::downgrade(adapter);
        let dpc = Dpc::new(adapter.kernel(), move |_, _| {
            if let Some(adapter) = weak.upgrade() {
                run_dpc(&adapter);
            }
        });
        section::set_dpc(adapter, Some(Arc::new(dpc)));
        let weak = Arc::downgrade(adapter);
        adapter
            .device
            .connect(adapter.shared(), move |message| weak.upgrade().is_some_and(|adapter| run_isr(&adapter, message)));
    }

    /// Notifications that made sense, by kind.
    pub(crate) fn kinds(&self) -> BTreeMap<DXGK_INTERRUPT_TYPE, u64> {
        self.journal.kinds()
    }

    /// How many native fences notifications have named, each as often as it was named.
    pub(crate) fn fences_named(&self) -> u64 {
        self.journal.fences_named()
    }

    /// How many notifications of native fences alone named none.
    pub(crate) fn fences_unnamed(&self) -> u64 {
        self.journal.fences_unnamed()
    }

    /// Disconnects and waits until neither routine nor DPC runs.
    ///
    /// IRQL: PASSIVE_LEVEL.
    pub(crate) fn disconnect(&self, adapter: &Miniport) {
        adapter.device.disconnect(adapter.shared());
        adapter.kernel().flush_queued_dpcs();
        section::set_dpc(adapter, None);
        self.lists.lock().clear();
    }

    /// One list per node.
    pub(crate) fn set_nodes(&self, count: usize) {
        self.lists.lock().resize_with(count, NodeList::default);
    }

    /// Takes what is pending.
    pub(crate) fn take(&self) -> Vec<(usize, NodeList)> {
        let mut lists = self.lists.lock();
        let taken = lists.iter_mut().enumerate().filter(|(_, list)| !list.is_empty());
        taken.map(|(node, list)| (node, std::mem::take(list))).collect()
    }

    fn take_node(&self, node: usize) -> NodeList {
        self.lists.lock().get_mut(node).map(std::mem::take).unwrap_or_default()
    }

    fn has_pending(&self) -> bool {
        self.lists.lock().iter().any(|list| !list.is_empty())
    }

    fn push(&self, node: usize, notice: Notice, limit: usize) {
        let mut lists = self.lists.lock();
        let Some(list) = lists.get_mut(node) else { return };
        if list.notices.len() < limit || !notice.can_be_folded() {
            list.notices.push(notice);
            return;
        }
        self.overflows.fetch_add(1, Ordering::Relaxed);
        match notice {
            Notice::Native { legacy, .. } => {
                list.scan_native = true;
                list.scan_monitored |= legacy;
            }
            _ => list.scan_monitored = true,
        }
    }
}

/// Drops what is pending for one node: its engine was reset. What it reported of packets and of fences counts all the
/// same.
///
/// Chosen: no page says what the OS does with interrupts that it has not worked off by then.
///
/// IRQL: at most DISPATCH_LEVEL.
pub(crate) fn forget_node(adapter: &Arc<Miniport>, node: usize) {
    let interrupts = Interrupts::of(adapter);
    // An interrupt routine that runs has reported everything by then.
    let list = synchronize(adapter, || interrupts.take_node(node)).unwrap_or_else(|| interrupts.take_node(node));
    crate::sched::vidsch::dpc::end_packets(adapter, node, list);
    Tdr::of(adapter).note_reset(node);
}

fn run_isr(adapter: &Arc<Miniport>, message: u32) -> bool {
    Interrupts::of(adapter).interrupts.fetch_add(1, Ordering::Relaxed);
    let edu = adapter.device.edu();
    let before = edu.map(|edu| (edu.resets(), edu.raised(), edu.interrupt_status()));
    // A routine that a stopped machine has not called, or has not let return, says nothing.
    let Some(claimed) = call_isr(adapter, message) else { return false };
    if let (Some(edu), Some((resets, raised, status))) = (edu, before) {
        // Read before it is asked whether somebody has set bits meanwhile.
        let left = edu.interrupt_status();
        let untouched = edu.is_untouched_since(raised);
        let own = status != 0;
        // A message is always the device's own, and one may be left over from a raise that is acknowledged already.
        // A device that left, or fell asleep, after its status was read is not claimed for, though it be back by now.
        let left_meanwhile = !claimed && (!edu.is_awake() || edu.resets() != resets);
        let right = if adapter.device.shares_line() { claimed == own || !untouched } else { claimed || !own };
        let right = right || left_meanwhile;
        adapter.rules().check(&ISR_CLAIM, right, || {
            format!("interrupt status {status:#x}, message {message}: returned {claimed}")
        });
        let dismissed = !claimed || !untouched || left == 0;
        adapter.rules().check(&ISR_DISMISS, dismissed, || {
            format!("the interrupt status register is {left:#x} after the routine claimed the interrupt")
        });
        return own || claimed;
    }
    claimed
}

/// What the driver's routine returned; false without one, `None` in a machine that has stopped.
fn call_isr(adapter: &Miniport, message: u32) -> Option<bool> {
    let Some(function) = adapter.table().DxgkDdiInterruptRoutine else { return Some(false) };
    let context = adapter.context();
    in_section(adapter, true, message, || {
        let _inside = crate::port::sync::InDriver::new();
        adapter.kernel().call_interrupt_routine("DxgkDdiInterruptRoutine", || {
            // SAFETY: the slot holds a function of this type; the context is what the driver gave for it.
            #[expect(unsafe_code, reason = "a driver's function is called")]
            let claimed = unsafe { function(context, message) };
            claimed != 0
        })
    })
}

/// Lets the routine see an interrupt of another device on the same line: it must not claim it.
///
/// IRQL: at most DISPATCH_LEVEL.
pub(crate) fn probe_foreign_interrupt(adapter: &Miniport) {
    if !adapter.device.shares_line() {
        return;
    }
    let Some(interrupt) = adapter.device.connection() else { return };
    adapter.kernel().synchronize(&interrupt, || {
        let Some(edu) = adapter.device.edu() else { return };
        let raised = edu.raised();
        if edu.interrupt_status() != 0 {
            return;
        }
        let Some(claimed) = call_isr(adapter, 0) else { return };
        adapter.rules().check(&ISR_CLAIM, !claimed || !edu.is_untouched_since(raised), || {
            "an interrupt of another device on the line was claimed".to_owned()
        });
    });
}

fn run_dpc(adapter: &Arc<Miniport>) {
    let interrupts = Interrupts::of(adapter);
    interrupts.dpcs.fetch_add(1, Ordering::Relaxed);
    let had_pending = interrupts.has_pending();
    let before = interrupts.notified_dpc.load(Ordering::Relaxed);
    let context = adapter.context();
    let called = call_ddi!(adapter, DxgkDdiDpcRoutine(context));
    let notified = interrupts.notified_dpc.load(Ordering::Relaxed) != before;
    let owed = had_pending && called.is_ok();
    if owed {
        adapter.rules().check(&DPC_NOTIFY, notified, || {
            "DxgkDdiDpcRoutine returned without DxgkCbNotifyDpc while notifications were pending".to_owned()
        });
    }
    if owed && !notified {
        work_off(adapter);
    }
}

/// Works off what interrupts reported.
///
/// IRQL: DISPATCH_LEVEL.
fn work_off(adapter: &Arc<Miniport>) {
    for (node, list) in Interrupts::of(adapter).take() {
        crate::sched::vidsch::dpc::work_off(adapter, node, list);
    }
}

/// `DxgkCbNotifyInterrupt`.
///
/// IRQL: the device's.
fn notify(adapter: &Arc<Miniport>, data: &DXGKARGCB_NOTIFY_INTERRUPT_DATA) {
    let interrupts = Interrupts::of(adapter);
    interrupts.notifications.fetch_add(1, Ordering::Relaxed);
    let kernel = adapter.kernel();
    let synchronized = is_synchronized(adapter) && kernel.irql() >= DEVICE_IRQL;
    adapter.rules().check(&INT_LEVEL, synchronized, || {
        format!("called at IRQL {}, not from the interrupt routine or a synchronized one", kernel.irql())
    });
    section::note_notified(synchronized);
    if synchronized {
        let message = section::message();
        let named = adapter.known_caps().driver.InterruptMessageNumber;
        adapter.rules().check(&INT_MESSAGE, message == named, || {
            format!("called for message {message}, InterruptMessageNumber is {named}")
        });
    }
    let alone = !interrupts.notifying.swap(true, Ordering::AcqRel);
    adapter.rules().check(&INT_REENTRANT, alone, || "called while another call runs for this adapter".to_owned());
    // Two that run at once meet here.
    kernel.yield_point(YieldPoint::Service);
    if let Some((node, notice)) = classify::classify(adapter, data) {
        interrupts.journal.note(data, node, &notice);
        interrupts.push(node, notice, adapter.personality().notification_list);
    }
    if alone {
        interrupts.notifying.store(false, Ordering::Release);
    }
}
