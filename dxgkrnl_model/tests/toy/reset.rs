//! Preemption, resets, and what else the table must have.

use wddm_abi::ntstatus::{STATUS_ILLEGAL_INSTRUCTION, STATUS_NOT_SUPPORTED, STATUS_SUCCESS, STATUS_UNSUCCESSFUL};
use wddm_abi::{
    DRIVER_INITIALIZATION_DATA, DXGK_TDR_PAYLOAD_ENGINE_TIMEOUT, DXGKARG_CALIBRATEGPUCLOCK, DXGKARG_CANCELCOMMAND,
    DXGKARG_COLLECTDBGINFO, DXGKARG_COLLECTDBGINFO2, DXGKARG_PREEMPTCOMMAND, DXGKARG_PRESENT,
    DXGKARG_QUERYCURRENTFENCE, DXGKARG_QUERYDEPENDENTENGINEGROUP, DXGKARG_QUERYENGINESTATUS, DXGKARG_RESETENGINE,
    DXGKARG_RESETHWENGINE, DXGKARG_RESUMEHWENGINE, DXGKARG_SIGNALMONITOREDFENCE, DXGKARG_SWITCHTOHWCONTEXTLIST,
    DXGKARG_UPDATEHWCONTEXTSTATE, DXGKARGCB_INVALIDATEHWCONTEXT, HANDLE, NTSTATUS, win_extern,
};

use super::{Late, Notice, UNKNOWN, argument, callback, input, owner, raw};

/// How long a mutant stays in the driver: ten seconds.
const STAYS: i64 = -100_000_000;

pub fn fill(table: &mut DRIVER_INITIALIZATION_DATA) {
    table.DxgkDdiPreemptCommand = Some(preempt);
    table.DxgkDdiCancelCommand = Some(cancel);
    table.DxgkDdiQueryCurrentFence = Some(current_fence);
    table.DxgkDdiQueryDependentEngineGroup = Some(dependents);
    table.DxgkDdiQueryEngineStatus = Some(engine_status);
    table.DxgkDdiResetEngine = Some(reset_engine);
    table.DxgkDdiResetHwEngine = Some(reset_hw_engine);
    table.DxgkDdiResumeHwEngine = Some(resume_hw_engine);
    table.DxgkDdiResetFromTimeout = Some(reset_adapter);
    table.DxgkDdiRestartFromTimeout = Some(restart_adapter);
    table.DxgkDdiCollectDbgInfo = Some(collect);
    table.DxgkDdiCollectDbgInfo2 = Some(collect2);
    table.DxgkDdiCalibrateGpuClock = Some(calibrate);
    table.DxgkDdiPresentToHwQueue = Some(present);
    table.DxgkDdiSwitchToHwContextList = Some(switch_list);
    table.DxgkDdiSignalMonitoredFence = Some(signal_monitored);
    table.DxgkDdiUpdateHwContextState = Some(update_state);
}

win_extern! {
    fn preempt(adapter: HANDLE, arguments: *const DXGKARG_PREEMPTCOMMAND) -> NTSTATUS {
        let Some(toy) = owner(adapter) else { return UNKNOWN };
        toy.count("preempt");
        if toy.is("preempt-status") {
            return STATUS_UNSUCCESSFUL;
        }
        let arguments = input(arguments);
        toy.state().engines[arguments.EngineOrdinal as usize].preempt = Some(arguments.PreemptionFenceId);
        toy.poke();
        STATUS_SUCCESS
    }

    fn cancel(adapter: HANDLE, _arguments: *const DXGKARG_CANCELCOMMAND) -> NTSTATUS {
        let Some(toy) = owner(adapter) else { return UNKNOWN };
        toy.count("cancel");
        if toy.is("cancel-status") { STATUS_UNSUCCESSFUL } else { STATUS_SUCCESS }
    }

    fn current_fence(adapter: HANDLE, arguments: *mut DXGKARG_QUERYCURRENTFENCE) -> NTSTATUS {
        let Some(toy) = owner(adapter) else { return UNKNOWN };
        let engine = argument(arguments).EngineOrdinal as usize;
        if toy.is("tdr-fence") {
            toy.count("query fence");
            argument(arguments).CurrentFence = toy.state().engines[engine].completed;
            return STATUS_SUCCESS;
        }
        let mut returned = 0;
        let (handle, report) = (toy.device_handle(), Some(super::interrupt::synchronized as _));
        let before = toy.state().engines[engine].reported;
        let _ = callback!(toy, DxgkCbSynchronizeExecution(handle, report, adapter, 0, &raw mut returned));
        // From the count on, the GPU's own thread reports, too.
        toy.count("query fence");
        let after = toy.state().engines[engine].reported;
        argument(arguments).CurrentFence = if toy.is("tdr-fence-behind") { before } else { after };
        STATUS_SUCCESS
    }

    fn dependents(adapter: HANDLE, arguments: *mut DXGKARG_QUERYDEPENDENTENGINEGROUP) -> NTSTATUS {
        let Some(toy) = owner(adapter) else { return UNKNOWN };
        let arguments = argument(arguments);
        if toy.is("tdr-query") {
            return STATUS_UNSUCCESSFUL;
        }
        if toy.is("slot-group") {
            return STATUS_SUCCESS;
        }
        let own = 1 << arguments.NodeOrdinal;
        let others = if toy.options.dependent { 0b11 & !own } else { 0 };
        arguments.DependentNodeOrdinalMask = match toy.options.mutant {
            "tdr-mask" => 0x100,
            "tdr-mask-own" => others,
            _ => own | others,
        };
        STATUS_SUCCESS
    }

    fn engine_status(adapter: HANDLE, arguments: *mut DXGKARG_QUERYENGINESTATUS) -> NTSTATUS {
        let Some(toy) = owner(adapter) else { return UNKNOWN };
        let arguments = argument(arguments);
        arguments.EngineStatus.set_Responsive(false);
        if toy.is("stays-in-status") {
            nt_model::Machine::with_current(|machine| machine.map(|machine| machine.delay_execution(STAYS)));
        }
        if toy.is("tdr-query-status") {
            return STATUS_UNSUCCESSFUL;
        }
        if toy.is("tdr-status") {
            arguments.EngineStatus.Value = 0x80;
        }
        STATUS_SUCCESS
    }

    fn reset_engine(adapter: HANDLE, arguments: *mut DXGKARG_RESETENGINE) -> NTSTATUS {
        let Some(toy) = owner(adapter) else { return UNKNOWN };
        let engine = argument(arguments).EngineOrdinal as usize;
        toy.count(["reset engine", "reset engine 1"][engine]);
        if toy.is("tdr-adapter") {
            return STATUS_UNSUCCESSFUL;
        }
        let mut state = toy.state();
        let state = &mut *state;
        let at_work = |queue: &super::Queue| {
            let context = state.contexts.get(&queue.context).filter(|context| context.engine == engine);
            context.is_some_and(|context| !context.suspended) && !queue.faulted
        };
        if toy.options.dependent && !state.engines[engine].node_hung && state.queues.values().any(at_work) {
            toy.error("node 0 was at work when node 1 was reset".to_owned());
        }
        let late = &mut state.late;
        let state = &mut state.engines[engine];
        state.packet_hung = false;
        let preempting = state.preempt.take();
        let aborted = state.packets.front().map_or(state.completed, |packet| packet.fence);
        state.packets.clear();
        state.completed = aborted;
        state.reported = aborted;
        state.notices.retain(|notice| !matches!(notice, Notice::Completed(..) | Notice::Preempted(..)));
        if toy.is("tdr-late") {
            late.push((5, Late::Completed(aborted)));
        }
        if toy.is("tdr-late-preemption") {
            late.extend(preempting.map(|request| (5, Late::Preempted(request, aborted))));
        }
        argument(arguments).LastAbortedFenceId = match toy.options.mutant {
            "tdr-aborted" => aborted + 0x1000,
            // The preemption's own.
            "tdr-aborted-name" => preempting.unwrap_or(aborted),
            _ => aborted,
        };
        STATUS_SUCCESS
    }

    fn reset_hw_engine(adapter: HANDLE, arguments: *mut DXGKARG_RESETHWENGINE) -> NTSTATUS {
        let Some(toy) = owner(adapter) else { return UNKNOWN };
        let engine = argument(arguments).EngineOrdinal as usize;
        toy.count(["reset hw engine", "reset hw engine 1"][engine]);
        if toy.options.reset_takes != 0 {
            let ticks = toy.options.reset_takes.cast_signed() * -10_000;
            nt_model::Machine::with_current(|machine| machine.map(|machine| machine.delay_execution(ticks)));
        }
        if toy.options.resets_fail {
            return STATUS_UNSUCCESSFUL;
        }
        let os = {
            let mut state = toy.state();
            let own = &mut state.engines[engine];
            own.node_hung = false;
            own.stopped = true;
            if toy.options.slow_start != 0 {
                own.rests = u64::MAX;
            }
            if toy.options.lets_go_late {
                // What it owes is said, and what it was at goes on, once it is resumed.
                let running = own.running;
                let queue = state.queues.get_mut(&running);
                queue.into_iter().for_each(|queue| queue.current = None);
                return STATUS_SUCCESS;
            }
            own.notices.clear();
            let (running, keeps) = (own.running, toy.is("tdr-let-go"));
            let context = state.queues.get_mut(&running).map(|queue| {
                queue.current = None;
                queue.work.clear();
                queue.faulted = true;
                queue.context
            });
            context.and_then(|context| {
                let context = state.contexts.get_mut(&context)?;
                context.suspending = context.suspending.filter(|_| keeps);
                Some(context.os)
            })
        };
        if toy.is("tdr-let-go") {
            // The reset itself acknowledges what is owed.
            let owed: Vec<_> = {
                let mut state = toy.state();
                let take = |context: &mut super::Context| Some((context.os, context.suspending.take()?));
                state.contexts.values_mut().filter_map(take).collect()
            };
            toy.state().engines[engine].notices.extend(owed.into_iter().map(|(os, fence)| Notice::Suspended(os, fence)));
            toy.interrupt();
            nt_model::Machine::with_current(|machine| machine.map(|machine| machine.delay_execution(-10_000)));
        }
        let names_none = ["tdr-invalidate", "tdr-invalidate-asked", "tdr-let-go"].contains(&toy.options.mutant);
        if let Some(os) = os.filter(|_| !names_none) {
            let mut arguments = DXGKARGCB_INVALIDATEHWCONTEXT::zeroed();
            arguments.hAdapter = toy.device_handle();
            arguments.hHwContext = raw(os as usize);
            let _ = callback!(toy, DxgkCbInvalidateHwContext(&raw const arguments));
        }
        toy.poke();
        STATUS_SUCCESS
    }

    fn resume_hw_engine(adapter: HANDLE, arguments: *mut DXGKARG_RESUMEHWENGINE) -> NTSTATUS {
        let Some(toy) = owner(adapter) else { return UNKNOWN };
        toy.count("resume hw engine");
        let mut state = toy.state();
        let own = &mut state.engines[argument(arguments).EngineOrdinal as usize];
        own.stopped = false;
        own.rests = super::gpu::now() + toy.options.slow_start * 10_000;
        drop(state);
        toy.poke();
        STATUS_SUCCESS
    }

    fn reset_adapter(adapter: HANDLE) -> NTSTATUS {
        let Some(toy) = owner(adapter) else { return UNKNOWN };
        toy.count("reset adapter");
        let mut state = toy.state();
        for own in &mut state.engines {
            own.packet_hung = toy.is("tdr-limit");
            own.node_hung = false;
            own.preempt = None;
            let last = own.packets.back().map_or(own.completed, |packet| packet.fence);
            (own.completed, own.reported) = (last, last);
            own.packets.clear();
            own.notices.clear();
        }
        for queue in state.queues.values_mut() {
            queue.current = None;
            queue.work.clear();
        }
        // Every context is over: none is owed an acknowledgement.
        state.contexts.values_mut().for_each(|context| context.suspending = None);
        if toy.is("tdr-writes")
            && let Some(root) = state.paging_root()
        {
            let fences: Vec<_> = state.fences.values().map(|fence| fence.system.0).collect();
            state.late.extend(fences.into_iter().map(|current| (1, Late::Store(root, current))));
        }
        drop(state);
        toy.lose_memory();
        if toy.is("tdr-adapter") { STATUS_UNSUCCESSFUL } else { STATUS_SUCCESS }
    }

    fn restart_adapter(_adapter: HANDLE) -> NTSTATUS {
        STATUS_SUCCESS
    }

    fn collect(_adapter: HANDLE, _arguments: *const DXGKARG_COLLECTDBGINFO) -> NTSTATUS {
        STATUS_SUCCESS
    }

    fn collect2(adapter: HANDLE, arguments: *mut DXGKARG_COLLECTDBGINFO2) -> NTSTATUS {
        let Some(toy) = owner(adapter) else { return UNKNOWN };
        toy.count("collect");
        let arguments = argument(arguments);
        let bytes: *mut u8 = arguments.pBuffer.cast();
        let at = if toy.is("tdr-collect") { arguments.BufferSize } else { 0 };
        if toy.is("tdr-collect-payload") && !arguments.TdrPayload.is_null() {
            let payload: *mut u8 = arguments.TdrPayload.cast();
            // SAFETY: none: this mutant writes behind the payload, where the model watches.
            unsafe { payload.wrapping_add(arguments.TdrPayloadSize as usize).write(1) };
        }
        let names_nothing = matches!(toy.options.mutant, "tdr-guilty" | "tdr-guilty-packet");
        if names_nothing && !arguments.TdrPayload.is_null() {
            let payload: *mut DXGK_TDR_PAYLOAD_ENGINE_TIMEOUT = arguments.TdrPayload.cast();
            argument(payload).hContext = raw(0x1234);
        }
        // SAFETY: within the buffer; for the mutant behind it, where the model watches.
        unsafe { bytes.wrapping_add(at).write(1) };
        STATUS_SUCCESS
    }

    fn calibrate(adapter: HANDLE, _node: u32, _engine: u32, arguments: *mut DXGKARG_CALIBRATEGPUCLOCK) -> NTSTATUS {
        let Some(toy) = owner(adapter) else { return UNKNOWN };
        let arguments = argument(arguments);
        if toy.is("clock-status") {
            return STATUS_UNSUCCESSFUL;
        }
        arguments.GpuFrequency = 1_000_000;
        let clock = toy.time();
        arguments.GpuClockCounter = if toy.is("clock-forward") { u64::MAX - clock } else { clock };
        nt_model::Machine::with_current(|machine| {
            if let Some(machine) = machine {
                arguments.CpuClockCounter = if toy.is("clock-pair") { 1 } else { machine.query_performance_counter() };
            }
        });
        STATUS_SUCCESS
    }

    fn present(_context: HANDLE, _arguments: *mut DXGKARG_PRESENT) -> NTSTATUS { STATUS_ILLEGAL_INSTRUCTION }
    fn switch_list(_adapter: HANDLE, _arguments: *const DXGKARG_SWITCHTOHWCONTEXTLIST) -> NTSTATUS { STATUS_NOT_SUPPORTED }
    fn signal_monitored(context: HANDLE, arguments: *mut DXGKARG_SIGNALMONITOREDFENCE) -> NTSTATUS {
        if !owner(context).is_some_and(|toy| toy.is("slot-signal")) {
            return STATUS_NOT_SUPPORTED;
        }
        let arguments = argument(arguments);
        let end: *mut u8 = arguments.pDmaBuffer.cast();
        // SAFETY: none: this mutant writes behind the buffer, where the model watches.
        unsafe { end.wrapping_add(arguments.DmaSize as usize).write(0) };
        STATUS_SUCCESS
    }

    fn update_state(_adapter: HANDLE, _arguments: *const DXGKARG_UPDATEHWCONTEXTSTATE) -> NTSTATUS { STATUS_SUCCESS }
}
