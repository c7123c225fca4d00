//! Preemption, resets, and what else the table must have.

use wddm_abi::ntstatus::{STATUS_ILLEGAL_INSTRUCTION, STATUS_NOT_SUPPORTED, STATUS_SUCCESS, STATUS_UNSUCCESSFUL};
use wddm_abi::{
    DRIVER_INITIALIZATION_DATA, DXGKARG_CALIBRATEGPUCLOCK, DXGKARG_CANCELCOMMAND, DXGKARG_COLLECTDBGINFO,
    DXGKARG_COLLECTDBGINFO2, DXGKARG_PREEMPTCOMMAND, DXGKARG_PRESENT, DXGKARG_QUERYCURRENTFENCE,
    DXGKARG_QUERYDEPENDENTENGINEGROUP, DXGKARG_QUERYENGINESTATUS, DXGKARG_RESETENGINE, DXGKARG_RESETHWENGINE,
    DXGKARG_RESUMEHWENGINE, DXGKARG_SIGNALMONITOREDFENCE, DXGKARG_SWITCHTOHWCONTEXTLIST, DXGKARG_UPDATEHWCONTEXTSTATE,
    DXGKARGCB_INVALIDATEHWCONTEXT, HANDLE, NTSTATUS, win_extern,
};

use super::{Late, Notice, UNKNOWN, argument, callback, input, owner, raw};

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
        toy.state().preempt = Some(input(arguments).PreemptionFenceId);
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
        toy.count("query fence");
        if toy.is("tdr-fence") {
            argument(arguments).CurrentFence = toy.state().completed;
            return STATUS_SUCCESS;
        }
        let mut returned = 0;
        let (handle, report) = (toy.device_handle(), Some(super::interrupt::synchronized as _));
        let _ = callback!(toy, DxgkCbSynchronizeExecution(handle, report, adapter, 0, &raw mut returned));
        argument(arguments).CurrentFence = toy.state().reported;
        STATUS_SUCCESS
    }

    fn dependents(adapter: HANDLE, arguments: *mut DXGKARG_QUERYDEPENDENTENGINEGROUP) -> NTSTATUS {
        let Some(toy) = owner(adapter) else { return UNKNOWN };
        let arguments = argument(arguments);
        if toy.is("tdr-query") {
            return STATUS_UNSUCCESSFUL;
        }
        let own = 1 << arguments.NodeOrdinal;
        arguments.DependentNodeOrdinalMask = if toy.is("tdr-mask") { 0x100 } else { own };
        STATUS_SUCCESS
    }

    fn engine_status(_adapter: HANDLE, arguments: *mut DXGKARG_QUERYENGINESTATUS) -> NTSTATUS {
        argument(arguments).EngineStatus.set_Responsive(false);
        STATUS_SUCCESS
    }

    fn reset_engine(adapter: HANDLE, arguments: *mut DXGKARG_RESETENGINE) -> NTSTATUS {
        let Some(toy) = owner(adapter) else { return UNKNOWN };
        toy.count("reset engine");
        if toy.is("tdr-adapter") {
            return STATUS_UNSUCCESSFUL;
        }
        let mut state = toy.state();
        state.packet_hung = false;
        state.preempt = None;
        let aborted = state.packets.front().map_or(state.completed, |packet| packet.fence);
        state.packets.clear();
        state.completed = aborted;
        state.notices.retain(|notice| !matches!(notice, Notice::Completed(..) | Notice::Preempted(..)));
        if toy.is("tdr-late") {
            state.late.push((5, Late::Completed(aborted)));
        }
        argument(arguments).LastAbortedFenceId = if toy.is("tdr-aborted") { aborted + 0x1000 } else { aborted };
        STATUS_SUCCESS
    }

    fn reset_hw_engine(adapter: HANDLE, _arguments: *mut DXGKARG_RESETHWENGINE) -> NTSTATUS {
        let Some(toy) = owner(adapter) else { return UNKNOWN };
        toy.count("reset hw engine");
        let os = {
            let mut state = toy.state();
            state.node_hung = false;
            state.stopped = true;
            state.notices.clear();
            let running = state.running;
            let context = state.queues.get_mut(&running).map(|queue| {
                queue.current = None;
                queue.work.clear();
                queue.faulted = true;
                queue.context
            });
            context.and_then(|context| {
                let context = state.contexts.get_mut(&context)?;
                context.suspending = None;
                Some(context.os)
            })
        };
        if let Some(os) = os.filter(|_| !toy.is("tdr-invalidate")) {
            let mut arguments = DXGKARGCB_INVALIDATEHWCONTEXT::zeroed();
            arguments.hAdapter = toy.device_handle();
            arguments.hHwContext = raw(os as usize);
            let _ = callback!(toy, DxgkCbInvalidateHwContext(&raw const arguments));
        }
        toy.poke();
        STATUS_SUCCESS
    }

    fn resume_hw_engine(adapter: HANDLE, _arguments: *mut DXGKARG_RESUMEHWENGINE) -> NTSTATUS {
        let Some(toy) = owner(adapter) else { return UNKNOWN };
        toy.count("resume hw engine");
        toy.state().stopped = false;
        toy.poke();
        STATUS_SUCCESS
    }

    fn reset_adapter(adapter: HANDLE) -> NTSTATUS {
        let Some(toy) = owner(adapter) else { return UNKNOWN };
        toy.count("reset adapter");
        let mut state = toy.state();
        state.packet_hung = toy.is("tdr-limit");
        state.node_hung = false;
        state.preempt = None;
        state.packets.clear();
        state.notices.clear();
        for queue in state.queues.values_mut() {
            queue.current = None;
            queue.work.clear();
        }
        drop(state);
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
    fn signal_monitored(_adapter: HANDLE, _arguments: *mut DXGKARG_SIGNALMONITOREDFENCE) -> NTSTATUS { STATUS_NOT_SUPPORTED }
    fn update_state(_adapter: HANDLE, _arguments: *const DXGKARG_UPDATEHWCONTEXTSTATE) -> NTSTATUS { STATUS_SUCCESS }
}
