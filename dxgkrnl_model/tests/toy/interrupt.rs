//! The interrupt: raising it, reporting what is pending, the DPC.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use wddm_abi::ntstatus::STATUS_INVALID_PARAMETER;
use wddm_abi::{
    BOOLEAN, DXGK_ENGINE_STATE, DXGK_INTERRUPT_TYPE, DXGK_PAGE_FAULT_FLAGS, DXGKARGCB_NOTIFY_INTERRUPT_DATA, HANDLE,
    win_extern,
};

use super::{Notice, Toy, callback, owner, raw};

impl Toy {
    /// Raises the interrupt for what is in `notices`.
    pub fn interrupt(&self) {
        let silent = self.silent.load(Ordering::Acquire);
        if self.state().notices().all(|notice| silent && notice.is_native()) {
            return;
        }
        let lost = matches!(self.options.mutant, "tdr-fence" | "tdr-fence-behind") && self.counted("query fence") == 0;
        let swallows = |notice: &Notice| matches!(notice, Notice::Completed(_, false));
        if self.asleep.load(Ordering::SeqCst) || (lost && self.state().notices().any(swallows)) {
            return;
        }
        let registers = self.registers.load(Ordering::Acquire);
        if registers != 0 && !self.gone.load(Ordering::SeqCst) {
            let raise: *mut u32 = core::ptr::with_exposed_provenance_mut(registers + 0x60);
            if self.is("dpc-elsewhere") && self.counted("guarded") == 0 {
                return self.guarded(raise);
            }
            // SAFETY: a register of the mapped BAR.
            unsafe { raise.write_volatile(1) };
            return;
        }
        let mut returned = 0;
        let handle = self.device_handle();
        let context = raw(self.handle);
        let _ = callback!(self, DxgkCbSynchronizeExecution(handle, Some(synchronized), context, 0, &raw mut returned));
    }
}

impl Toy {
    /// Raises the interrupt at DISPATCH_LEVEL, by which this mutant believes to keep its DPC away: that holds for the
    /// DPCs of the processor that it is on.
    fn guarded(&self, raise: *mut u32) {
        self.count("guarded");
        nt_model::Machine::with_current(|machine| {
            let Some(machine) = machine else { return };
            let old = machine.raise_irql(2);
            self.guarding.store(true, Ordering::SeqCst);
            // SAFETY: a register of the mapped BAR.
            unsafe { raise.write_volatile(1) };
            for _ in 0..1_000_000 {
                if self.counted("met") != 0 {
                    break;
                }
                machine.yield_point(nt_model::sched::YieldPoint::Custom(0));
                std::thread::yield_now();
            }
            self.guarding.store(false, Ordering::SeqCst);
            machine.lower_irql(old);
        });
    }
}

win_extern! {
    pub fn interrupt_routine(context: *mut core::ffi::c_void, _message: u32) -> BOOLEAN {
        let Some(toy) = owner(context) else { return 0 };
        let registers = toy.registers.load(Ordering::Acquire);
        if registers == 0 || toy.gone.load(Ordering::SeqCst) {
            return 0;
        }
        let status: *const u32 = core::ptr::with_exposed_provenance(registers + 0x24);
        // SAFETY: a register of the mapped BAR.
        let pending = unsafe { status.read_volatile() };
        if pending == 0 && !toy.is("isr-claim") {
            return 0;
        }
        // A function that is asleep or gone reads as ones.
        if pending == u32::MAX && !toy.is("isr-claims-ones") {
            return 0;
        }
        if !toy.is("isr-dismiss") || toy.counted("isr") > 0 {
            let acknowledge: *mut u32 = core::ptr::with_exposed_provenance_mut(registers + 0x64);
            // SAFETY: as above.
            unsafe { acknowledge.write_volatile(pending) };
        }
        toy.count("isr");
        if toy.is("cb-from-isr") && toy.counted("isr") == 1 {
            let _ = callback!(toy, DxgkCbSetPowerComponentIdle(toy.device_handle(), 0));
        }
        report(&toy);
        1
    }

    pub fn synchronized(context: *mut core::ffi::c_void) -> BOOLEAN {
        if let Some(toy) = owner(context) {
            report(&toy);
        }
        1
    }

    pub fn dpc_routine(context: *mut core::ffi::c_void) {
        let Some(toy) = owner(context) else { return };
        if toy.is("dpc-notify") && toy.counted("dpc") == 0 {
            toy.count("dpc");
            return;
        }
        toy.count("dpc");
        if toy.guarding.load(Ordering::SeqCst) {
            // What the other processor works on is not whole.
            toy.count("met");
            return;
        }
        let _ = callback!(toy, DxgkCbNotifyDpc(toy.device_handle()));
    }
}

/// Tells Dxgkrnl everything that is pending. At the device's level.
fn report(toy: &Toy) {
    let silent = toy.silent.load(Ordering::Acquire);
    let mut notices = Vec::new();
    for (engine, state) in toy.state().engines.iter_mut().enumerate() {
        let all = std::mem::take(&mut state.notices);
        let waits = |notice: &Notice| toy.options.log_waits && state.node_hung && matches!(notice, Notice::Scheduling);
        let (kept, told) =
            all.into_iter().partition::<VecDeque<_>, _>(|notice| silent && notice.is_native() || waits(notice));
        state.notices = kept;
        notices.extend(told.into_iter().map(|notice| (engine, notice)));
    }
    if notices.is_empty() {
        return;
    }
    for (engine, notice) in notices {
        let mut fences: Vec<HANDLE> = Vec::new();
        let data = data(toy, engine, &notice, &mut fences);
        notify(toy, data);
    }
    if !(toy.is("int-dpc") && toy.counted("int-dpc") == 0) {
        let _ = callback!(toy, DxgkCbQueueDpc(toy.device_handle()));
    }
    toy.count("int-dpc");
}

/// One call of DxgkCbNotifyInterrupt.
pub fn notify(toy: &Toy, mut data: DXGKARGCB_NOTIFY_INTERRUPT_DATA) {
    let _ = callback!(toy, DxgkCbNotifyInterrupt(toy.device_handle(), &raw mut data));
}

/// What some mutants report before what is right.
fn wrong_completion(toy: &Toy, mut data: DXGKARGCB_NOTIFY_INTERRUPT_DATA) {
    let part = data.DmaCompleted_mut();
    match toy.options.mutant {
        "int-fence" => part.SubmissionFenceId += 0x1000,
        "int-node" => part.NodeOrdinal = 7,
        "int-type" => part.NodeOrdinal = 0,
        "int-type-unknown" => data.InterruptType = DXGK_INTERRUPT_TYPE(99),
        "int-type-native" => {
            data = DXGKARGCB_NOTIFY_INTERRUPT_DATA::zeroed();
            data.InterruptType = DXGK_INTERRUPT_TYPE::DXGK_INTERRUPT_NATIVE_FENCE_SIGNALED;
        }
        // Of a packet node.
        "int-type-scheduled" => {
            data = DXGKARGCB_NOTIFY_INTERRUPT_DATA::zeroed();
            data.InterruptType = DXGK_INTERRUPT_TYPE::DXGK_INTERRUPT_SCHEDULING_LOG_INTERRUPT;
            data.SchedulingLogInterrupt_mut().NodeOrdinal = 1;
        }
        "int-vsync" => {
            data = DXGKARGCB_NOTIFY_INTERRUPT_DATA::zeroed();
            data.InterruptType = DXGK_INTERRUPT_TYPE::DXGK_INTERRUPT_CRTC_VSYNC;
        }
        _ => return,
    }
    notify(toy, data);
}

/// Reports at the device's level, without being synchronized with anything.
pub fn notify_alone(toy: &Toy, times: u32) {
    nt_model::Machine::with_current(|machine| {
        let Some(machine) = machine else { return };
        for _ in 0..times {
            let old = machine.raise_irql(7);
            let mut data = DXGKARGCB_NOTIFY_INTERRUPT_DATA::zeroed();
            data.InterruptType = DXGK_INTERRUPT_TYPE::DXGK_INTERRUPT_MONITORED_FENCE_SIGNALED;
            notify(toy, data);
            machine.lower_irql(old);
        }
    });
}

fn data(toy: &Toy, engine: usize, notice: &Notice, fences: &mut Vec<HANDLE>) -> DXGKARGCB_NOTIFY_INTERRUPT_DATA {
    use DXGK_INTERRUPT_TYPE as Type;
    let mut data = DXGKARGCB_NOTIFY_INTERRUPT_DATA::zeroed();
    // A mutant names the first engine whichever it was.
    let ordinal = if toy.is("int-node-engine") { 0 } else { engine as u32 };
    match notice {
        Notice::Completed(fence, paging) => {
            data.InterruptType = Type::DXGK_INTERRUPT_DMA_COMPLETED;
            toy.state().engines[engine].reported = *fence;
            let part = data.DmaCompleted_mut();
            part.SubmissionFenceId = *fence;
            (part.NodeOrdinal, part.EngineOrdinal) = (1, ordinal);
            if !paging && toy.counted("wrong") == 0 {
                toy.count("wrong");
                wrong_completion(toy, data);
            }
        }
        Notice::Preempted(fence, completed) => {
            data.InterruptType = Type::DXGK_INTERRUPT_DMA_PREEMPTED;
            toy.state().engines[engine].reported = *completed;
            let part = data.DmaPreempted_mut();
            part.PreemptionFenceId = *fence;
            part.LastCompletedFenceId = if toy.is("int-fence-preempted") { *completed + 0x1000 } else { *completed };
            (part.NodeOrdinal, part.EngineOrdinal) = (1, ordinal);
        }
        Notice::Faulted(fence) => {
            data.InterruptType = Type::DXGK_INTERRUPT_DMA_FAULTED;
            toy.state().engines[engine].reported = *fence;
            let part = data.DmaFaulted_mut();
            part.FaultedFenceId = *fence;
            part.Status = STATUS_INVALID_PARAMETER;
            (part.NodeOrdinal, part.EngineOrdinal) = (1, ordinal);
        }
        Notice::PageFaulted(fence, address) => {
            data.InterruptType = Type::DXGK_INTERRUPT_DMA_PAGE_FAULTED;
            toy.state().engines[engine].reported = *fence;
            let part = data.DmaPageFaulted_mut();
            part.FaultedFenceId = if toy.is("int-fence-faulted") { *fence + 0x1000 } else { *fence };
            part.FaultedVirtualAddress = *address;
            (part.NodeOrdinal, part.EngineOrdinal) = (1, ordinal);
        }
        Notice::Native(handles, queue) => {
            data.InterruptType = Type::DXGK_INTERRUPT_NATIVE_FENCE_SIGNALED;
            let part = data.NativeFenceSignaled_mut();
            if toy.options.optimized {
                part.hHWQueue = raw(match toy.options.mutant {
                    "int-native-queue" => 0x1234,
                    "int-other-queue" => toy.state().queues.keys().copied().find(|key| key != queue).unwrap_or(*queue),
                    "int-null-queue" => 0,
                    // The queue was destroyed meanwhile: NULL has Dxgkrnl look at all logs.
                    _ if !toy.state().queues.contains_key(queue) => 0,
                    _ => *queue,
                });
            } else {
                fences.extend(handles.iter().map(|handle| raw(*handle as usize)));
                if toy.is("int-native-fence") {
                    fences.push(raw(0x1234));
                }
                part.SignaledNativeFenceCount = fences.len() as u32;
                part.pSignaledNativeFenceArray = fences.as_mut_ptr();
            }
        }
        Notice::Monitored => {
            data.InterruptType = Type::DXGK_INTERRUPT_MONITORED_FENCE_SIGNALED;
            data.MonitoredFenceSignaled_mut().EngineOrdinal = ordinal;
        }
        Notice::QueueFaulted(queue, fence, address) => {
            data.InterruptType = Type::DXGK_INTERRUPT_HWQUEUE_PAGE_FAULTED;
            let part = data.HwQueuePageFaulted_mut();
            part.FaultedFenceId = *fence;
            part.FaultedVirtualAddress = *address;
            part.set_FaultedHwQueue(raw(if toy.is("int-fault-handle") { 0x1234 } else { *queue as usize }));
            part.PageFaultFlags = match toy.options.mutant {
                "int-fatal" => DXGK_PAGE_FAULT_FLAGS::DXGK_PAGE_FAULT_FATAL_HARDWARE_ERROR,
                "int-fault-flags" => DXGK_PAGE_FAULT_FLAGS::DXGK_PAGE_FAULT_FENCE_INVALID,
                _ if toy.options.faults_reset_all => DXGK_PAGE_FAULT_FLAGS::DXGK_PAGE_FAULT_ADAPTER_RESET_REQUIRED,
                _ => DXGK_PAGE_FAULT_FLAGS(0),
            };
        }
        Notice::Suspended(context, fence) => {
            data.InterruptType = Type::DXGK_INTERRUPT_SUSPEND_CONTEXT_COMPLETED;
            let part = data.SuspendContextCompleted_mut();
            part.hContext = raw(*context as usize);
            part.ContextSuspendFence = *fence;
            if toy.is("int-suspend-fence") {
                let mut wrong = data;
                wrong.SuspendContextCompleted_mut().ContextSuspendFence = 1;
                notify(toy, wrong);
            }
        }
        Notice::Scheduling => {
            data.InterruptType = Type::DXGK_INTERRUPT_SCHEDULING_LOG_INTERRUPT;
            data.SchedulingLogInterrupt_mut().EngineOrdinal = ordinal;
        }
        Notice::Timeout => {
            data.InterruptType = Type::DXGK_INTERRUPT_GPU_ENGINE_TIMEOUT;
            data.GpuEngineTimeout_mut().EngineOrdinal = ordinal;
        }
        Notice::Vsync => data.InterruptType = Type::DXGK_INTERRUPT_CRTC_VSYNC,
        Notice::ToF1 => {
            data.InterruptType = Type::DXGK_INTERRUPT_GPU_ENGINE_STATE_CHANGE;
            let state = if toy.is("int-engine-state") { 17 } else { 1 };
            let part = data.EngineStateChange_mut();
            part.NewState = DXGK_ENGINE_STATE(state);
            part.EngineOrdinal = ordinal;
        }
    }
    data
}
