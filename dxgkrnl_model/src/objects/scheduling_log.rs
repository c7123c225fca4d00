//! Scheduling logs: a buffer for each node that schedules in hardware, written by the GPU, read here.
//!
//! An entry says that a context became idle, ready or running. A log is given to the driver when the adapter has
//! started, and stays until it is replaced ([`crate::entry::os::Os::recreate_scheduling_logs`]) or the adapter is
//! stopped. It lies in system memory, and in the address space of the paging process.
//!
//! | file | holds |
//! |---|---|
//! | `scheduling_log.rs` | which logs there are; what is known of contexts; interrupts |
//! | `reading.rs` | one buffer, and what is new in it |
//!
//! Source: DDI pages DXGKDDI_SETSCHEDULINGLOGBUFFER, DXGKARG_SETSCHEDULINGLOGBUFFER, DXGK_SCHEDULING_LOG_ENTRY; article
//! allocation-notification names scheduling logs among what lies in the paging process's addresses.
//!
//! An interrupt is due when its entry was written since the last one came, and is waited for when the log is replaced
//! and when the adapter is stopped; one interrupt serves all writes before it.
//!
//! Chosen: when a log is read (its interrupt, the destruction of a context of that node, replacement, stop, and
//! whenever its records are asked for), and that an adapter is stopped with its logs in place. Entries that were
//! overwritten before they were read are not judged, nor are the contexts of that time.

mod reading;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use wddm_abi::{DXGKARG_SETSCHEDULINGLOGBUFFER, NTSTATUS, ntstatus};

use crate::memory::VidMm;
use crate::objects::hw_context::HwContext;
use crate::port::ddi::{self, call_ddi};
use crate::port::miniport::Miniport;
use crate::port::personality::SchedulingLogs;
use crate::port::rules::scheduling::{SLOG_INT, SLOG_INT_LOST, SLOG_RAN, SLOG_STALE};
use crate::port::sync::{Gate, Lock, Rank, Signal};
use crate::port::usage::LoggedUse;
use reading::Buffer;

/// Most entries of a node that are kept for [`Os::scheduling_records`](crate::entry::os::Os::scheduling_records).
const KEPT: usize = 1 << 16;

/// An entry, as it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SchedulingRecord {
    /// Ordinal of the node whose log had the entry.
    pub node: u32,
    /// `hKmdContext`, the driver's handle of the context, as a number.
    pub context: usize,
    /// `newContextState`, a value of `DXGK_SCHEDULING_LOG_CONTEXT_STATE` if the driver keeps DXG-SLOG-ENTRY.
    pub state: i32,
    /// `GpuTimeStamp`, in units of the driver's GPU clock.
    pub time: u64,
}

/// What is known of a context by its entries.
#[derive(Debug)]
struct Known {
    /// Address of the context object: a driver may give the same handle to a later context.
    who: usize,
    /// The number of its process.
    process: u64,
    state: Option<i32>,
    /// An entry said that it runs.
    ran: bool,
    /// It may have had entries that were overwritten before the model read them.
    excused: bool,
}

#[derive(Debug, Default)]
struct State {
    /// The log, once the driver has taken it.
    current: Option<Buffer>,
    /// The one that the driver is being given.
    next: Option<Buffer>,
    /// Logs that were replaced, and what they held.
    retired: Vec<(Buffer, Vec<u8>)>,
    /// How often the interrupt's entry was written in those.
    reached_before: u64,
    /// Interrupts that came.
    interrupts: u64,
    /// How often the interrupt's entry was written when the last interrupt came, or a reset dropped what was pending.
    served: u64,
    /// By the driver's handles.
    contexts: BTreeMap<usize, Known>,
    records: Vec<SchedulingRecord>,
    /// How long contexts ran.
    usage: LoggedUse,
}

impl State {
    /// How often the interrupt's entry was written.
    fn reached(&self) -> u64 {
        let now = self.current.iter().chain(&self.next).map(Buffer::reached).sum::<u64>();
        self.reached_before + now
    }

    /// Whether the driver has written any entry.
    fn is_used(&self) -> bool {
        self.retired.iter().any(|(buffer, _)| buffer.is_used()) || self.current.as_ref().is_some_and(Buffer::is_used)
    }
}

/// The log of one node.
#[derive(Debug)]
struct NodeLog {
    node: u32,
    state: Lock<State>,
    /// Number of contexts that the driver is making: it may log their handles before the model knows them.
    making: AtomicU32,
    /// An interrupt came.
    changed: Signal,
}

/// The logs of an adapter.
#[derive(Debug)]
pub(crate) struct SchedulingLogSet {
    nodes: Lock<Vec<Arc<NodeLog>>>,
    /// Replacements are one at a time.
    serial: Gate,
}

impl Default for SchedulingLogSet {
    fn default() -> Self {
        Self::new()
    }
}

impl SchedulingLogSet {
    /// That of an adapter.
    pub(crate) fn of(adapter: &Miniport) -> &Self {
        adapter.extension()
    }

    fn new() -> Self {
        Self { nodes: Lock::new(Rank::Registry, Vec::new()), serial: Gate::new() }
    }

    fn node(&self, node: u32) -> Option<Arc<NodeLog>> {
        self.nodes.lock().iter().find(|log| log.node == node).cloned()
    }

    /// Gives the driver a log for each node that it schedules itself.
    ///
    /// IRQL: PASSIVE_LEVEL.
    pub(crate) fn start(&self, adapter: &Arc<Miniport>) {
        if adapter.personality().scheduling_logs == SchedulingLogs::None {
            return;
        }
        let caps = adapter.known_caps();
        let log = |node: u32| {
            Arc::new(NodeLog {
                node,
                state: Lock::new(Rank::Leaf, State::default()),
                making: AtomicU32::new(0),
                changed: Signal::new(),
            })
        };
        let scheduled = (0..).zip(&caps.nodes).filter(|(_, node)| node.is_hardware_scheduled());
        *self.nodes.lock() = scheduled.map(|(ordinal, _)| log(ordinal)).collect();
        self.replace(adapter);
    }

    /// Gives the driver new logs.
    ///
    /// IRQL: PASSIVE_LEVEL.
    pub(crate) fn replace(&self, adapter: &Arc<Miniport>) {
        let _serial = self.serial.exclusive(adapter.kernel());
        let all = self.nodes.lock().clone();
        for log in all {
            log.await_interrupt(adapter);
            log.replace(adapter);
        }
    }

    /// Judges whether the interrupts came that the entries in the logs ask for, while the device still works.
    ///
    /// IRQL: PASSIVE_LEVEL.
    pub(crate) fn finish(&self, adapter: &Arc<Miniport>) {
        let all = self.nodes.lock().clone();
        for log in all {
            log.await_interrupt(adapter);
        }
    }

    /// Forgives the interrupts that are due: a reset of a node, or with `None` of the adapter, drops what is pending.
    ///
    /// IRQL: at most DISPATCH_LEVEL.
    pub(crate) fn forgive(&self, node: Option<u32>) {
        let all = self.nodes.lock().clone();
        for log in all.into_iter().filter(|log| node.is_none_or(|node| log.node == node)) {
            let mut state = log.state.lock();
            state.served = state.reached();
        }
    }

    /// Unmaps the logs from the paging process, which the adapter is about to lose. Every context is gone, so that the
    /// GPU has nothing to write.
    ///
    /// IRQL: PASSIVE_LEVEL.
    pub(crate) fn hide(&self, adapter: &Arc<Miniport>) {
        let Some(manager) = VidMm::of(adapter).manager() else { return };
        let all = self.nodes.lock().clone();
        manager.run_on_worker(adapter, move |adapter, manager| {
            for log in all {
                let state = log.state.lock();
                let old = state.retired.iter().map(|(buffer, _)| buffer);
                let places: Vec<_> = old.chain(&state.current).map(Buffer::place).collect();
                drop(state);
                for (gpu, pages) in places.into_iter().filter(|(gpu, _)| *gpu != 0) {
                    manager.unmap_for_system(adapter, gpu, pages);
                }
            }
        });
    }

    /// Judges what the logs hold, after the device was stopped, and frees them.
    ///
    /// IRQL: PASSIVE_LEVEL.
    pub(crate) fn stop(&self, adapter: &Miniport) {
        let all = std::mem::take(&mut *self.nodes.lock());
        for log in all {
            log.read(adapter);
            let retired = std::mem::take(&mut log.state.lock().retired);
            for (buffer, held) in retired {
                let same = buffer.bytes() == held;
                adapter.rules().check(&SLOG_STALE, same, || format!("node {}: a replaced log changed", log.node));
            }
        }
    }

    /// Reads and judges what is new in a node's log, and wakes who waits for its interrupt.
    ///
    /// IRQL: at most DISPATCH_LEVEL.
    pub(crate) fn read(&self, adapter: &Miniport, node: u32) {
        if let Some(log) = self.node(node) {
            log.read(adapter);
            log.changed.notify(adapter.kernel());
        }
    }

    /// What was read of a node's logs, the oldest first.
    pub(crate) fn records(&self, adapter: &Miniport) -> Vec<SchedulingRecord> {
        let all = self.nodes.lock().clone();
        let read = |log: Arc<NodeLog>| {
            log.read(adapter);
            log.state.lock().records.clone()
        };
        all.into_iter().flat_map(read).collect()
    }

    /// What is known of the running time of a node's contexts, once what is new in its log was read. `None`: it has no
    /// log.
    ///
    /// IRQL: at most DISPATCH_LEVEL.
    pub(crate) fn with_usage<R>(&self, adapter: &Miniport, node: u32, f: impl FnOnce(&LoggedUse) -> R) -> Option<R> {
        let log = self.node(node)?;
        log.read(adapter);
        Some(f(&log.state.lock().usage))
    }

    /// Reads what is new in the log of a context's node, and returns the context's last state in it. `None`: no entry
    /// says so.
    ///
    /// IRQL: PASSIVE_LEVEL.
    pub(crate) fn state(&self, adapter: &Miniport, context: &HwContext) -> Option<i32> {
        let log = self.node(context.node())?;
        log.read(adapter);
        let who = core::ptr::from_ref(context).addr();
        let state = log.state.lock();
        state.contexts.get(&context.driver_handle()).filter(|known| known.who == who)?.state
    }

    /// Counts an interrupt for a node's log. Returns whether one was due.
    ///
    /// IRQL: the device's.
    pub(crate) fn interrupted(&self, adapter: &Miniport, node: u32) -> bool {
        let count = |log: Arc<NodeLog>| {
            let mut state = log.state.lock();
            state.interrupts += 1;
            state.served = state.reached();
            (state.interrupts, state.served)
        };
        let (interrupts, reached) = self.node(node).map_or((1, 0), count);
        adapter.rules().check(&SLOG_INT, interrupts <= reached, || {
            format!("node {node}: interrupt {interrupts}, and the entry was written {reached} times")
        })
    }

    /// The driver is about to make a context of `node`; ends with [`made`](Self::made).
    pub(crate) fn making(&self, node: u32) {
        if let Some(log) = self.node(node) {
            log.making.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Ends [`making`](Self::making): `context` is what the driver made, `None` where it failed.
    pub(crate) fn made(&self, node: u32, context: Option<&Arc<HwContext>>) {
        let Some(log) = self.node(node) else { return };
        if let Some(context) = context {
            let (who, process) = (Arc::as_ptr(context).addr(), context.device().process().number());
            let known = Known { who, process, state: None, ran: false, excused: false };
            log.state.lock().contexts.insert(context.driver_handle(), known);
        }
        // A context that came before its log was given has never been counted.
        let _ = log.making.fetch_update(Ordering::AcqRel, Ordering::Acquire, |count| count.checked_sub(1));
    }

    /// Judges the log of a context that the driver has destroyed. `ran`: a progress fence of its queues has shown that
    /// it ran.
    ///
    /// IRQL: PASSIVE_LEVEL.
    pub(crate) fn destroyed(&self, adapter: &Miniport, context: &HwContext, driver: usize, ran: bool) {
        let Some(log) = self.node(context.node()) else { return };
        log.read(adapter);
        let who = core::ptr::from_ref(context).addr();
        let (known, used) = {
            let mut state = log.state.lock();
            state.usage.gone(driver);
            let is_it = state.contexts.get(&driver).is_some_and(|known| known.who == who);
            let known = if is_it { state.contexts.remove(&driver) } else { None };
            (known, state.is_used())
        };
        let judged = used || adapter.personality().scheduling_logs == SchedulingLogs::Demanded;
        if let Some(known) = known.filter(|known| judged && ran && !known.excused) {
            adapter.rules().check(&SLOG_RAN, known.ran, || format!("node {}: context {driver:#x}", log.node));
        }
    }
}

impl NodeLog {
    fn replace(&self, adapter: &Arc<Miniport>) {
        let Some(manager) = VidMm::of(adapter).manager() else { return };
        let entries = adapter.personality().scheduling_log_entries.max(1);
        let made = manager.run_on_worker(adapter, move |adapter, manager| Buffer::make(adapter, manager, entries));
        let Some(Some(buffer)) = made else { return };
        let mut arguments = DXGKARG_SETSCHEDULINGLOGBUFFER::zeroed();
        let place = adapter.known_caps().place(self.node);
        (arguments.NodeOrdinal, arguments.EngineOrdinal) = (place.node, place.engine);
        arguments.NumberOfEntries = entries;
        arguments.LogBufferCpuVa = core::ptr::with_exposed_provenance_mut(buffer.address());
        arguments.LogBufferGpuVa = buffer.place().0;
        arguments.InterruptEntry = buffer.interrupt();
        // Before the call: the driver may write and interrupt inside.
        self.state.lock().next = Some(buffer);
        let status = self.set(adapter, &arguments);
        let mut state = self.state.lock();
        let new = state.next.take();
        if !status.is_success() {
            // Nothing is written there; what was there before goes on.
            if let Some(buffer) = new {
                let held = buffer.bytes();
                state.retired.push((buffer, held));
            }
            for known in state.contexts.values_mut() {
                known.excused = true;
            }
            return;
        }
        // The last entries of the old log come before those of the new one.
        let verdict = reading::read(self.node, &mut state, self.making.load(Ordering::Acquire) != 0);
        if let Some(old) = std::mem::replace(&mut state.current, new) {
            state.reached_before += old.reached();
            let held = old.bytes();
            state.retired.push((old, held));
            // Whether the new log says again what was so before, no page says.
            for known in state.contexts.values_mut() {
                known.state = None;
            }
        }
        drop(state);
        verdict.judge(adapter);
    }

    fn set(&self, adapter: &Miniport, arguments: &DXGKARG_SETSCHEDULINGLOGBUFFER) -> NTSTATUS {
        let (miniport, pointer) = (adapter.context(), core::ptr::from_ref(arguments));
        let status = ddi::status(call_ddi!(adapter, DxgkDdiSetSchedulingLogBuffer(miniport, pointer)));
        if status != ntstatus::STATUS_NOT_SUPPORTED || adapter.table().DxgkDdiSetSchedulingLogBuffer.is_some() {
            adapter.judge_resume("DxgkDdiSetSchedulingLogBuffer", status);
        }
        status
    }

    fn read(&self, adapter: &Miniport) {
        let making = self.making.load(Ordering::Acquire) != 0;
        let verdict = {
            let mut state = self.state.lock();
            let making = making || self.making.load(Ordering::Acquire) != 0;
            reading::read(self.node, &mut state, making)
        };
        verdict.judge(adapter);
    }

    /// Where the interrupt's entry was written and no interrupt has come since, waits for one for as long as a timeout
    /// is, and judges whether it came. One interrupt answers for all entries that were written before it.
    fn await_interrupt(&self, adapter: &Arc<Miniport>) {
        let kernel = adapter.kernel();
        let due = self.state.lock().reached();
        let delivered = || adapter.device.edu().is_none_or(|edu| edu.delivers_interrupts());
        if due == 0 || !adapter.is_working() || !delivered() {
            return;
        }
        let deadline = kernel.now() + adapter.personality().tdr.delay;
        let came = || self.state.lock().served >= due;
        self.changed.wait_for(kernel, Some(deadline), || (came() || !adapter.is_working()).then_some(()));
        if adapter.is_working() && delivered() {
            adapter
                .rules()
                .check(&SLOG_INT_LOST, came(), || format!("node {}: the entry was written {due} times", self.node));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(node: u32) -> Arc<NodeLog> {
        let state = State { reached_before: 3, ..State::default() };
        Arc::new(NodeLog {
            node,
            state: Lock::new(Rank::Leaf, state),
            making: AtomicU32::new(0),
            changed: Signal::new(),
        })
    }

    #[test]
    fn the_reset_of_a_node_forgives_the_interrupts_of_that_node() {
        let set = SchedulingLogSet::new();
        *set.nodes.lock() = vec![log(0), log(1), log(2)];
        let served = || [0, 1, 2].map(|node| set.node(node).map(|log| log.state.lock().served));
        set.forgive(Some(1));
        assert_eq!(served(), [Some(0), Some(3), Some(0)]);
        set.forgive(None);
        assert_eq!(served(), [Some(3); 3]);
    }
}
