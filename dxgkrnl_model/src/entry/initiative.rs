//! What Dxgkrnl does of its own accord, done when a test asks for it.
//!
//! Windows suspends contexts and disconnects doorbells for power, for memory and before a process goes away; it reads
//! clocks and asks the driver questions whenever a tool wants to know. A test decides when.

mod trim;

use std::sync::Arc;

use wddm_abi::{
    D3DDDI_DOORBELLSTATUS, DXGK_BUILDPAGINGBUFFER_OPERATION, DXGK_NATIVE_FENCE_LOG_TYPE, DXGK_QUERYADAPTERINFOTYPE,
    NTSTATUS,
};
use wddm_abi::{DXGKARG_SETCONTEXTSCHEDULINGPROPERTIES, DXGKARG_SETUPPRIORITYBANDS};

use crate::entry::adapter::Adapter;
use crate::entry::os::Os;
use crate::memory::VidMm;
use crate::memory::paging::Op;
pub use crate::objects::fence_log::LogBuffer;
use crate::objects::hw_context::{HwContext, Keeper, Suspend};
use crate::objects::hw_queue::HwQueue;
use crate::objects::process::{Process, ProcessInner};
use crate::objects::scheduling_log::SchedulingLogSet;
pub use crate::objects::scheduling_log::SchedulingRecord;
use crate::port::counters::Calibration;
use crate::port::power::Power;
use crate::port::query::{Buffer, Query};
use crate::port::shared::shared_of;
use crate::recovery::collect::DebugQuestion;
use crate::recovery::lost::Loss;
use crate::sched::vidsch::VidSch;
pub use trim::Trim;

/// How suspensions of a process's contexts began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Suspended {
    /// The driver answered STATUS_SUCCESS: the context was off already.
    pub at_once: usize,
    /// The driver answered STATUS_PENDING and will acknowledge.
    pub pending: usize,
}

/// Where the values of a native fence are on one adapter that knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FencePlace {
    /// LUID of the adapter.
    pub adapter: u64,
    /// Segments of CurrentValue and MonitoredValue; 0: system memory.
    pub segments: (u32, u32),
    /// Addresses of the two in the paging process, as `DxgkDdiCreateNativeFence` was told; 0: none.
    pub system: (u64, u64),
    /// Kernel addresses of the two, which are the model's own: two that agree are one place. `None` where the CPU does
    /// not see the value.
    pub kernel: (Option<usize>, Option<usize>),
}

fn contexts_of(adapter: &Arc<Adapter>, process: &Process) -> Vec<Arc<HwContext>> {
    let id = process.nt().id();
    let of_process =
        |context: &Arc<HwContext>| context.device().process().process().is_some_and(|owner| owner.nt().id() == id);
    HwContext::all_of(adapter).into_iter().filter(|context| context.is_alive() && of_process(context)).collect()
}

impl Os {
    /// The last value that user mode has queued on each live hardware queue, as the queue's last-queued word says: id
    /// of the process, user mode's handle of the queue, value.
    pub fn queued_values(&self, adapter: &Arc<Adapter>) -> Vec<(u64, u32, u64)> {
        let queues = HwQueue::all_of(adapter);
        let value = |queue: &Arc<crate::objects::hw_queue::HwQueue>| {
            let process = queue.context().device().process().process()?;
            Some((process.nt().id(), queue.user_handle(), queue.last_queued()))
        };
        queues.iter().filter_map(value).collect()
    }

    /// Whether the MonitoredValue of a native fence was ever another than all ones, by the process's id and user mode's
    /// handle. Signals of one of which it never was need no interrupt. `None`: there is no such fence (any more), or
    /// the driver was never told that it is open; then it may interrupt for each signal, since it knows no
    /// MonitoredValue.
    pub fn was_monitored(&self, process: u64, fence: u32) -> Option<bool> {
        let processes = shared_of(self.kernel()).map(|shared| ProcessInner::all_of(&shared)).unwrap_or_default();
        let process = processes.iter().find(|known| known.nt().id() == process)?;
        let local = process.native_fence(fence)?;
        (local.driver_handle() != 0).then(|| local.fence().was_monitored())
    }

    /// Where the values of a native fence are, adapter by adapter, by the process's id and user mode's handle. Empty
    /// when there is no such fence.
    pub fn fence_places(&self, process: u64, fence: u32) -> Vec<FencePlace> {
        let processes = shared_of(self.kernel()).map(|shared| ProcessInner::all_of(&shared)).unwrap_or_default();
        let process = processes.iter().find(|known| known.nt().id() == process);
        let Some(local) = process.and_then(|process| process.native_fence(fence)) else { return Vec::new() };
        let place = |driver_fence: &Arc<crate::objects::fence::native::FenceOnAdapter>| FencePlace {
            adapter: driver_fence.adapter().luid_number(),
            segments: driver_fence.slot().segments(),
            system: driver_fence.slot().system(),
            kernel: (driver_fence.slot().current(), driver_fence.slot().monitored()),
        };
        local.fence().driver_fences().iter().map(place).collect()
    }

    /// Calls `DxgkDdiUpdateMonitoredValues` for a native fence, by the process's id and user mode's handle, with a
    /// value that no waiter asks for now: as if a thread that began to wait had lost its processor before the call, and
    /// the fence had been signaled meanwhile. Nothing is looked at afterwards. The next thread that waits has the value
    /// written that it needs.
    ///
    /// Returns whether there is such a fence.
    ///
    /// Source: article native-gpu-fence-objects, "Synchronization issues".
    pub fn monitor_late(&self, process: u64, fence: u32, value: u64) -> bool {
        let _inside = self.kernel().enter();
        let processes = shared_of(self.kernel()).map(|shared| ProcessInner::all_of(&shared)).unwrap_or_default();
        let process = processes.iter().find(|known| known.nt().id() == process);
        let local = process.and_then(|process| process.native_fence(fence));
        local.inspect(|local| crate::objects::fence::update::set_monitored_late(local.fence(), value)).is_some()
    }

    /// Asks the driver for a paging operation with a record of zeros (but a page to transfer), and waits for its end.
    /// Returns whether the driver took it and what it wrote was carried out.
    pub fn paging_operation(&self, adapter: &Arc<Adapter>, number: i32) -> bool {
        let _inside = self.kernel().enter();
        let Some(manager) = VidMm::of(adapter).manager() else { return false };
        let operation = Op::Stray(DXGK_BUILDPAGINGBUFFER_OPERATION(number));
        let run = manager.run_on_worker(adapter, move |adapter, manager| manager.pager.run(adapter, &[operation]));
        run.is_some_and(|run| run.is_ok())
    }

    /// Has the driver collect debug information of the adapter as it is, as a tool does: [`Adapter::debug_info`].
    pub fn collect_debug_info(&self, adapter: &Arc<Adapter>) {
        let _inside = self.kernel().enter();
        let _judged =
            self.ask_for_debug_info(adapter, &mut DebugQuestion::adapter(crate::port::tdr::steps::Reason::Forced));
    }

    /// Asks the driver for debug information: its status, and the bytes. What it writes to the payload is in the
    /// question afterwards. At any time, beside other calls.
    pub fn ask_for_debug_info(&self, adapter: &Arc<Adapter>, question: &mut DebugQuestion) -> (NTSTATUS, Vec<u8>) {
        let _inside = self.kernel().enter();
        crate::recovery::collect::ask(adapter, question)
    }

    /// Disconnects every doorbell on an adapter, as before a change of power: user mode finds RETRY. The driver is
    /// called for connected ones; with `all` for every one.
    ///
    /// Source: article user-mode-work-submission, engine D-state transitions; DDI page DxgkDdiDisconnectDoorbell.
    pub fn disconnect_doorbells(&self, adapter: &Arc<Adapter>, all: bool) {
        let _inside = self.kernel().enter();
        let retry = D3DDDI_DOORBELLSTATUS::D3DDDI_DOORBELLSTATUS_DISCONNECTED_RETRY;
        for doorbell in HwQueue::all_of(adapter).iter().flat_map(|queue| queue.doorbells()) {
            if all {
                doorbell.disconnect_if(retry, |_| true);
            } else {
                doorbell.disconnect(retry);
            }
        }
    }

    /// How many doorbells of an adapter lead to the GPU. No process is waited for.
    pub fn connected_doorbells(&self, adapter: &Arc<Adapter>) -> usize {
        let queues = HwQueue::all_of(adapter);
        queues.iter().flat_map(|queue| queue.doorbells()).filter(|doorbell| doorbell.is_connected()).count()
    }

    /// Evicts what a process has made resident on an adapter, as when memory is short: allocations in segments with
    /// their content, and those in system memory. Runs `meanwhile`, in which other processes may take the places, and
    /// brings everything back. The process's hardware contexts are suspended for it, and no packet of any process runs;
    /// its rings stay with their doorbells. The process may submit and ring meanwhile, on other threads or in
    /// `meanwhile`: that runs behind it.
    ///
    /// Returns the bytes of each allocation that went.
    ///
    /// Source: articles residency-overview; user-mode-work-submission, hardware context suspension.
    pub fn evict_under_pressure(
        &self,
        adapter: &Arc<Adapter>,
        process: &Process,
        meanwhile: impl FnOnce(),
    ) -> Vec<u64> {
        if !adapter.is_started() {
            meanwhile();
            return Vec::new();
        }
        let _inside = self.kernel().enter();
        crate::recovery::pressure::evict(adapter, process.nt().id(), meanwhile)
    }

    /// Takes the power from an adapter's device, for D3 or for hibernation: hardware contexts are suspended, packets
    /// preempted, doorbells disconnected, and what lies in memory that loses its content is moved out. The device
    /// [wakes](Self::wake_up), too, when a process that has the adapter open calls a thunk that is no wait, or ends. No
    /// client is inside a thunk when this is called, and none has buffers outstanding that the kernel has submitted to
    /// a hardware queue.
    ///
    /// Source: article user-mode-work-submission, engine D-state transitions.
    pub fn put_to_sleep(&self, adapter: &Arc<Adapter>, hibernates: bool) {
        let _inside = self.kernel().enter();
        if adapter.is_started() {
            crate::recovery::sleep::begin(adapter, if hibernates { Loss::Hibernate } else { Loss::Standby });
        }
    }

    /// Gives the power back to a device that [sleeps](Self::put_to_sleep): page tables begin anew, what was moved out
    /// comes back, contexts are resumed and packets handed in again.
    pub fn wake_up(&self, adapter: &Arc<Adapter>) {
        let _inside = self.kernel().enter();
        if adapter.is_started() {
            Power::of(adapter).sleep.end(adapter);
        }
    }

    /// Returns whether an adapter's device [sleeps](Self::put_to_sleep).
    pub fn is_asleep(&self, adapter: &Arc<Adapter>) -> bool {
        Power::of(adapter).sleep.is_asleep()
    }

    /// The F-state that the power component of a node's engine was told last, 0 before that. `None`: it has none.
    pub fn f_state(&self, adapter: &Arc<Adapter>, node: u32) -> Option<u32> {
        let _inside = self.kernel().enter();
        Power::of(adapter).state_of(node)
    }

    /// Calls `DxgkDdiSuspendContext` for each hardware context of a process, and waits for nothing.
    pub fn begin_suspension(&self, adapter: &Arc<Adapter>, process: &Process) -> Suspended {
        let _inside = self.kernel().enter();
        let mut counts = Suspended::default();
        for context in contexts_of(adapter, process) {
            context.keep(Keeper::System);
            match context.suspend_again() {
                Suspend::Pending(_) => counts.pending += 1,
                Suspend::Done => counts.at_once += 1,
                Suspend::Failed => (),
            }
        }
        counts
    }

    /// Suspends the hardware contexts of a process and waits, at most the TDR delay, until the driver has acknowledged
    /// all. Whether it has.
    pub fn suspend(&self, adapter: &Arc<Adapter>, process: &Process) -> bool {
        let _inside = self.kernel().enter();
        let contexts = contexts_of(adapter, process);
        for context in &contexts {
            let _ = context.keep_off(Keeper::System);
        }
        let deadline = self.kernel().now() + adapter.personality().tdr.delay;
        contexts.iter().all(|context| {
            let acknowledged = || (!context.is_suspending()).then_some(());
            context.changed.wait_for(self.kernel(), Some(deadline), acknowledged).is_some() && context.is_suspended()
        })
    }

    /// Tells the driver how the hardware contexts of a process are scheduled: as usual, but for what `change` changes.
    /// A client or a change of focus would have it so.
    ///
    /// Source: DDI page DxgkDdiSetContextSchedulingProperties, Remarks.
    pub fn set_scheduling(
        &self,
        adapter: &Arc<Adapter>,
        process: &Process,
        change: impl Fn(&mut DXGKARG_SETCONTEXTSCHEDULINGPROPERTIES),
    ) {
        let _inside = self.kernel().enter();
        for context in contexts_of(adapter, process) {
            let _held = context.hold();
            if context.is_alive() {
                let _ = context.set_properties(&change);
            }
        }
    }

    /// Tells the driver the quanta, grace periods and shares of priority bands anew: as at the start, but for what
    /// `change` changes. An administrator's setting would have it so.
    ///
    /// Source: DDI page DxgkDdiSetupPriorityBands; DXGKARG_SETUPPRIORITYBANDS.
    pub fn set_priority_bands(&self, adapter: &Arc<Adapter>, change: impl FnOnce(&mut DXGKARG_SETUPPRIORITYBANDS)) {
        let _inside = self.kernel().enter();
        VidSch::of(adapter).set_priority_bands(adapter, change);
    }

    /// Resumes the hardware contexts of a process, acknowledged or not: what is acknowledged later is an old fence.
    ///
    /// Source: DDI page DxgkDdiSuspendContext, Remarks ("doesn't wait for the suspend acknowledgment, resumes").
    pub fn resume(&self, adapter: &Arc<Adapter>, process: &Process) {
        let _inside = self.kernel().enter();
        for context in contexts_of(adapter, process) {
            let _held = context.hold();
            if context.is_alive() {
                context.let_on_early(Keeper::System);
            }
        }
    }

    /// Has a packet node preempted, whatever it has to do, and waits for the answer. Returns whether the driver took
    /// the request and answered it; an engine that owes the answer for too long is reset.
    ///
    /// Source: article gpu-preemption; DDI page DxgkDdiPreemptCommand.
    pub fn preempt(&self, adapter: &Arc<Adapter>, node: u32) -> bool {
        let _inside = self.kernel().enter();
        adapter.is_started() && crate::recovery::preempt(adapter, node)
    }

    /// Resets the engine of a node as tests force it, which is nothing where a packet node has no packet with the
    /// driver; or, with `anyway`, as behind a page fault of work that nobody can tell, which leaves an engine that only
    /// a reset makes go on. Returns when it is over: [`Adapter::recoveries`] has the steps.
    ///
    /// Source: DDI page D3DKMT_TDRDBGCTRLTYPE, ENGINETDR; DXGK_PAGE_FAULT_FLAGS; article tdr-changes-in-windows-8.
    pub fn reset_engine(&self, adapter: &Arc<Adapter>, node: u32, anyway: bool) {
        let _inside = self.kernel().enter();
        match (adapter.is_started(), anyway) {
            (true, true) => crate::recovery::force_anyway(adapter, node),
            (true, false) => crate::recovery::force(adapter, Some(node)),
            (false, _) => {}
        }
    }

    /// Resets the adapter as tests force it. Returns when it is over.
    ///
    /// Source: DDI page D3DKMT_TDRDBGCTRLTYPE, FORCETDR.
    pub fn reset_adapter(&self, adapter: &Arc<Adapter>) {
        let _inside = self.kernel().enter();
        if adapter.is_started() {
            crate::recovery::force(adapter, None);
        }
    }

    /// The native fence log buffers that an adapter's driver has been given.
    pub fn fence_logs(&self, adapter: &Arc<Adapter>) -> Vec<LogBuffer> {
        let _inside = self.kernel().enter();
        HwQueue::all_of(adapter).iter().flat_map(|queue| queue.log().describe(queue)).collect()
    }

    /// Replaces the scheduling logs of an adapter, as Dxgkrnl may at any time. Without logs there is nothing to do.
    pub fn recreate_scheduling_logs(&self, adapter: &Arc<Adapter>) {
        let _inside = self.kernel().enter();
        SchedulingLogSet::of(adapter).replace(adapter);
    }

    /// Entries that were read from the scheduling logs of an adapter since it was started, node by node, the oldest
    /// first; at most 65,536 of a node.
    pub fn scheduling_records(&self, adapter: &Arc<Adapter>) -> Vec<SchedulingRecord> {
        let _inside = self.kernel().enter();
        SchedulingLogSet::of(adapter).records(adapter)
    }

    /// Calls `DxgkDdiSetNativeFenceLogBuffer` for a queue by the driver's handle ([`LogBuffer::driver`]) with a buffer
    /// whose header names this type, and says what came back. Where the driver took it, the queue gets new buffers.
    ///
    /// Source: article native-gpu-fence-objects, optional and mandatory logging (other types may be added).
    pub fn offer_fence_log(
        &self,
        adapter: &Arc<Adapter>,
        queue: usize,
        kind: DXGK_NATIVE_FENCE_LOG_TYPE,
    ) -> Option<NTSTATUS> {
        let _inside = self.kernel().enter();
        let queue = HwQueue::all_of(adapter).into_iter().find(|known| known.driver_handle() == queue)?;
        Some(queue.log().offer(&queue, kind))
    }

    /// Calls `DxgkDdiUpdateNativeFenceLogs` with the driver's handles of queues ([`LogBuffer::driver`]), dead ones
    /// included; reads nothing.
    pub fn flush_fence_logs(&self, adapter: &Arc<Adapter>, queues: &[usize]) -> NTSTATUS {
        let _inside = self.kernel().enter();
        crate::objects::fence_log::flush(adapter, queues)
    }

    /// Reads the clocks of every node by `DxgkDdiCalibrateGpuClock`; the pair of `node`.
    pub fn calibrate_gpu_clock(&self, adapter: &Arc<Adapter>, node: u32) -> Option<Calibration> {
        let _inside = self.kernel().enter();
        crate::port::calibration::calibrate(adapter);
        adapter.shared().counters.last_calibration(adapter.luid_number(), node)
    }

    /// Lets the driver's interrupt routine see an interrupt of another device on the line; it must not claim it.
    pub fn probe_foreign_interrupt(&self, adapter: &Arc<Adapter>) {
        let _inside = self.kernel().enter();
        crate::sched::interrupt::probe_foreign_interrupt(adapter);
    }

    /// Queues the adapter's DPC, as if an interrupt had come whose DPC another one has run meanwhile: the driver has
    /// nothing to tell in it, and may tell nothing that it has told. Returns `false` where it is queued already, or the
    /// adapter is not started.
    ///
    /// Source: DDI page DxgkCbQueueDpc (several interrupts can come before the routine runs once).
    pub fn queue_late_dpc(&self, adapter: &Arc<Adapter>) -> bool {
        let _inside = self.kernel().enter();
        crate::port::section::queue_dpc(adapter)
    }

    /// Runs `f` at the device's level: an adapter's interrupt routine waits meanwhile, as behind a long routine of
    /// another device. `f` only looks at memory. `None`: no interrupt is connected.
    ///
    /// With [`InterruptDelivery::Inline`](nt_model::InterruptDelivery::Inline) the thread that raises an interrupt
    /// waits as well.
    pub fn hold_interrupts<R>(&self, adapter: &Arc<Adapter>, f: impl FnOnce() -> R) -> Option<R> {
        let _inside = self.kernel().enter();
        crate::port::section::synchronize(adapter, f)
    }

    /// Asks a driver by `DxgkDdiQueryAdapterInfo`, with `size` zeroed bytes of room and as many watched ones behind
    /// them; the rules about such queries apply. The status, and the bytes.
    pub fn query_adapter_info(
        &self,
        adapter: &Arc<Adapter>,
        kind: DXGK_QUERYADAPTERINFOTYPE,
        input: &[u8],
        size: usize,
    ) -> (NTSTATUS, Vec<u8>) {
        let _inside = self.kernel().enter();
        let mut output = Buffer::new(size, 0);
        let query = Query { input, ..Query::of(kind) };
        let status = adapter.query(&query, &mut output);
        (status, output.bytes().to_vec())
    }
}
