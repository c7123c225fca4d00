//! Hardware contexts and queues, native fences, logs.

use std::sync::atomic::{AtomicU64, Ordering, fence};

use wddm_abi::ntstatus::{STATUS_INVALID_PARAMETER, STATUS_PENDING, STATUS_SUCCESS, STATUS_UNSUCCESSFUL};
use wddm_abi::{
    DRIVER_INITIALIZATION_DATA, DXGKARG_CLOSENATIVEFENCE, DXGKARG_CREATEHWCONTEXT, DXGKARG_CREATEHWQUEUE,
    DXGKARG_CREATENATIVEFENCE, DXGKARG_DESTROYNATIVEFENCE, DXGKARG_OPENNATIVEFENCE, DXGKARG_RESUMECONTEXT,
    DXGKARG_SETCONTEXTSCHEDULINGPROPERTIES, DXGKARG_SETNATIVEFENCELOGBUFFER, DXGKARG_SETUPPRIORITYBANDS,
    DXGKARG_SUBMITCOMMANDTOHWQUEUE, DXGKARG_SUSPENDCONTEXT, DXGKARG_UPDATECURRENTVALUESFROMCPU,
    DXGKARG_UPDATEMONITOREDVALUES, DXGKARG_UPDATENATIVEFENCELOGS, HANDLE, NTSTATUS, Plain, win_extern,
};

use super::caps::FENCE_RANGE;
use super::{
    Context, Fence, Late, Log, Queue, Toy, UNKNOWN, Work, argument, array, callback, input, number, owner, raw,
};

pub fn fill(table: &mut DRIVER_INITIALIZATION_DATA) {
    table.DxgkDdiCreateHwContext = Some(create_hw_context);
    table.DxgkDdiDestroyHwContext = Some(destroy_hw_context);
    table.DxgkDdiCreateHwQueue = Some(create_hw_queue);
    table.DxgkDdiDestroyHwQueue = Some(destroy_hw_queue);
    table.DxgkDdiSubmitCommandToHwQueue = Some(submit_to_hw_queue);
    table.DxgkDdiSuspendContext = Some(suspend_context);
    table.DxgkDdiResumeContext = Some(resume_context);
    table.DxgkDdiSetContextSchedulingProperties = Some(set_properties);
    table.DxgkDdiSetupPriorityBands = Some(set_bands);
    table.DxgkDdiCreateNativeFence = Some(create_fence);
    table.DxgkDdiDestroyNativeFence = Some(destroy_fence);
    table.DxgkDdiOpenNativeFence = Some(open_fence);
    table.DxgkDdiCloseNativeFence = Some(close_fence);
    table.DxgkDdiUpdateMonitoredValues = Some(update_monitored);
    table.DxgkDdiUpdateCurrentValuesFromCpu = Some(update_current);
    table.DxgkDdiSetNativeFenceLogBuffer = Some(set_log);
    table.DxgkDdiUpdateNativeFenceLogs = Some(update_logs);
}

/// Whether fences are mapped where they were wanted.
fn in_range(toy: &Toy, addresses: [u64; 2]) {
    if toy.options.fence_range {
        toy.count("fence range");
        if !addresses.iter().all(|address| FENCE_RANGE.contains(address)) {
            toy.error(format!("fence at {addresses:x?}"));
        }
    }
}

/// Stores a 64-bit value where Dxgkrnl said.
fn store(address: *mut core::ffi::c_void, value: u64) {
    let pointer: *const AtomicU64 = address.cast();
    // SAFETY: a kernel address of a fence value, valid for the call.
    unsafe { &*pointer }.store(value, Ordering::SeqCst);
}

win_extern! {
    fn create_hw_context(device: HANDLE, arguments: *mut DXGKARG_CREATEHWCONTEXT) -> NTSTATUS {
        let Some(toy) = owner(device) else { return UNKNOWN };
        let arguments = argument(arguments);
        let handle = toy.own_for(arguments.hHwContext, "object-handle-hw-context");
        let context = Context {
            engine: toy.engine(arguments.EngineAffinity),
            os: number(arguments.hHwContext) as u64,
            ..Context::default()
        };
        toy.state().contexts.insert(handle, context);
        arguments.hHwContext = raw(handle);
        STATUS_SUCCESS
    }

    fn destroy_hw_context(context: HANDLE) -> NTSTATUS {
        let Some(toy) = owner(context) else { return UNKNOWN };
        toy.state().contexts.remove(&number(context));
        toy.disown(number(context));
        STATUS_SUCCESS
    }

    fn create_hw_queue(context: HANDLE, arguments: *mut DXGKARG_CREATEHWQUEUE) -> NTSTATUS {
        let Some(toy) = owner(context) else { return UNKNOWN };
        let arguments = argument(arguments);
        if arguments.Flags.TestQueue() && toy.is("testing-queue") {
            return STATUS_INVALID_PARAMETER;
        }
        let handle = toy.own_for(arguments.hHwQueue, "object-handle-hw-queue");
        // Over hHwQueueProgressFence and its padding: the driver's handle, where Dxgkrnl puts it there.
        let named = arguments.as_bytes()[24..32].try_into().map_or(0, u64::from_le_bytes) as usize;
        let progress_fence = if toy.state().fences.contains_key(&named) { named } else { 0 };
        let queue = Queue {
            progress_fence,
            context: number(context),
            os: number(arguments.hHwQueue) as u64,
            progress_gpu: arguments.HwQueueProgressFenceGPUVirtualAddress,
            ..Queue::default()
        };
        toy.state().queues.insert(handle, queue);
        arguments.hHwQueue = raw(handle);
        STATUS_SUCCESS
    }

    fn destroy_hw_queue(queue: HANDLE) -> NTSTATUS {
        let Some(toy) = owner(queue) else { return UNKNOWN };
        let mut state = toy.state();
        state.queues.remove(&number(queue));
        // Notices of the queue are not reported any more.
        let of_it = |notice: &super::Notice| matches!(notice, super::Notice::Native(_, from) if *from == number(queue));
        for engine in &mut state.engines {
            engine.notices.retain(|notice| !of_it(notice));
        }
        drop(state);
        // An interrupt routine that is running has reported its notices when this returns.
        let (mut returned, device) = (0, toy.device_handle());
        let pointer = &raw mut returned;
        let _ = callback!(toy, DxgkCbSynchronizeExecution(device, Some(nothing_at_device_level), raw(0), 0, pointer));
        toy.disown(number(queue));
        STATUS_SUCCESS
    }

    fn nothing_at_device_level(_context: *mut core::ffi::c_void) -> wddm_abi::BOOLEAN {
        1
    }

    fn submit_to_hw_queue(adapter: HANDLE, arguments: *const DXGKARG_SUBMITCOMMANDTOHWQUEUE) -> NTSTATUS {
        let Some(toy) = owner(adapter) else { return UNKNOWN };
        let arguments = input(arguments);
        if toy.is("hw-submit-status") {
            return STATUS_INVALID_PARAMETER;
        }
        toy.count("kernel submission");
        let work = Work {
            address: arguments.DmaBufferVirtualAddress,
            size: arguments.DmaBufferSize.into(),
            at: 0,
            progress: arguments.HwQueueProgressFenceId,
            engine: 0,
        };
        if let Some(queue) = toy.state().queues.get_mut(&number(arguments.hHwQueue)) {
            queue.work.push_back(work);
        }
        toy.poke();
        STATUS_SUCCESS
    }

    fn suspend_context(adapter: HANDLE, arguments: *const DXGKARG_SUSPENDCONTEXT) -> NTSTATUS {
        let Some(toy) = owner(adapter) else { return UNKNOWN };
        let arguments = input(arguments);
        toy.count("suspend");
        if toy.is("suspend-status") {
            return STATUS_UNSUCCESSFUL;
        }
        let mut state = toy.state();
        let hung: Vec<_> = state.engines.iter().map(|own| own.node_hung || own.stopped).collect();
        if let Some(context) = state.contexts.get_mut(&number(arguments.hContext)) {
            if toy.options.suspends_at_once && !hung[context.engine] {
                context.suspended = true;
                toy.count("suspended at once");
                return STATUS_SUCCESS;
            }
            context.suspending = Some(arguments.contextSuspendFence);
        }
        drop(state);
        toy.poke();
        STATUS_PENDING
    }

    fn resume_context(adapter: HANDLE, arguments: *const DXGKARG_RESUMECONTEXT) -> NTSTATUS {
        let Some(toy) = owner(adapter) else { return UNKNOWN };
        toy.count("resume");
        if let Some(context) = toy.state().contexts.get_mut(&number(input(arguments).hContext)) {
            context.suspended = false;
        }
        toy.poke();
        if toy.is("resume-status-again") { STATUS_UNSUCCESSFUL } else { STATUS_SUCCESS }
    }

    fn set_properties(_adapter: HANDLE, _arguments: *const DXGKARG_SETCONTEXTSCHEDULINGPROPERTIES) -> NTSTATUS {
        match owner(_adapter) {
            Some(toy) if toy.is("resume-status") => STATUS_UNSUCCESSFUL,
            _ => STATUS_SUCCESS,
        }
    }

    fn set_bands(adapter: HANDLE, _arguments: *const DXGKARG_SETUPPRIORITYBANDS) -> NTSTATUS {
        match owner(adapter) {
            Some(toy) if toy.is("resume-status-bands") => STATUS_UNSUCCESSFUL,
            _ => STATUS_SUCCESS,
        }
    }

    fn create_fence(adapter: HANDLE, arguments: *mut DXGKARG_CREATENATIVEFENCE) -> NTSTATUS {
        let Some(toy) = owner(adapter) else { return UNKNOWN };
        let arguments = argument(arguments);
        if toy.is("nf-handle") {
            return STATUS_SUCCESS;
        }
        let handle = toy.own();
        let fence = Fence {
            os: number(arguments.hGlobalNativeFence) as u64,
            system: (arguments.CurrentValueSystemProcessGpuVa, arguments.MonitoredValueSystemProcessGpuVa),
            ..Fence::default()
        };
        in_range(&toy, [fence.system.0, fence.system.1]);
        toy.state().fences.insert(handle, fence);
        arguments.hGlobalNativeFence = raw(handle);
        arguments.pPrivateDriverData[0] = 0x42;
        STATUS_SUCCESS
    }

    fn destroy_fence(arguments: *mut DXGKARG_DESTROYNATIVEFENCE) -> NTSTATUS {
        let fence = argument(arguments).hGlobalNativeFence;
        let Some(toy) = owner(fence) else { return UNKNOWN };
        let mut state = toy.state();
        if let Some(gone) = state.fences.remove(&number(fence)) {
            if toy.is("nf-write-after") {
                let root = state.paging_root();
                state.late.extend(root.map(|root| (5, Late::Store(root, gone.system.0))));
            }
            if toy.is("nf-write-after-kept")
                && let Some(root) = state.paging_root()
            {
                // Of a fence that has its pages alone: the monitored value of a cross-adapter one is 0 all its life.
                let place = toy.translate(root, gone.system.1, true);
                let place = place.filter(|place| super::gpu::word(*place).load(Ordering::SeqCst) == 0);
                state.late.extend(place.map(|place| (5, Late::StoreAt(place))));
            }
            // What is pending for it is not reported any more.
            for notice in state.engines.iter_mut().flat_map(|engine| &mut engine.notices) {
                if let super::Notice::Native(handles, _) = notice {
                    handles.retain(|handle| *handle != gone.os);
                }
            }
        }
        drop(state);
        toy.disown(number(fence));
        if toy.is("nf-destroy") { STATUS_UNSUCCESSFUL } else { STATUS_SUCCESS }
    }

    fn open_fence(adapter: HANDLE, arguments: *mut DXGKARG_OPENNATIVEFENCE) -> NTSTATUS {
        let Some(toy) = owner(adapter) else { return UNKNOWN };
        let arguments = argument(arguments);
        in_range(&toy, [arguments.CurrentValueGpuVa, arguments.MonitoredValueGpuVa]);
        let handle = toy.own();
        let global = number(arguments.hGlobalNativeFence);
        let mut state = toy.state();
        let Some(fence) = state.fences.get_mut(&global) else { return STATUS_INVALID_PARAMETER };
        fence.current.push((handle, arguments.CurrentValueGpuVa, arguments.MonitoredValueGpuVa));
        state.locals.insert(handle, global);
        arguments.hLocalNativeFence = raw(handle);
        STATUS_SUCCESS
    }

    fn close_fence(adapter: HANDLE, arguments: *mut DXGKARG_CLOSENATIVEFENCE) -> NTSTATUS {
        let Some(toy) = owner(adapter) else { return UNKNOWN };
        let handle = number(argument(arguments).hLocalNativeFence);
        let mut state = toy.state();
        if let Some(global) = state.locals.remove(&handle)
            && let Some(fence) = state.fences.get_mut(&global)
        {
            fence.current.retain(|(local, ..)| *local != handle);
        }
        drop(state);
        toy.disown(handle);
        STATUS_SUCCESS
    }

    fn update_monitored(arguments: *const DXGKARG_UPDATEMONITOREDVALUES) -> NTSTATUS {
        let arguments = input(arguments);
        let count = arguments.NumFences as usize;
        let fences = array(arguments.NativeFenceArray.cast_const(), count);
        let Some(toy) = fences.first().and_then(|fence| owner(*fence)) else { return UNKNOWN };
        toy.count("monitored");
        if toy.is("nf-address-cached") {
            let kept = toy.kept.load(Ordering::Acquire);
            if kept != 0 {
                store(core::ptr::with_exposed_provenance_mut(kept), 1);
            }
        }
        let values = array(arguments.UpdatedValueArray.cast_const(), count);
        for (address, value) in array(arguments.MonitoredValueKernelCpuVa.cast_const(), count).iter().zip(values) {
            if !toy.is("nf-monitored-written") {
                store(*address, *value);
            }
            toy.kept.store(address.expose_provenance(), Ordering::Release);
        }
        fence(Ordering::SeqCst);
        if toy.is("nf-monitored-status") { STATUS_UNSUCCESSFUL } else { STATUS_SUCCESS }
    }

    fn update_current(arguments: *const DXGKARG_UPDATECURRENTVALUESFROMCPU) -> NTSTATUS {
        let arguments = input(arguments);
        let count = arguments.NumFences as usize;
        let fences = array(arguments.NativeFenceArray.cast_const(), count);
        let Some(toy) = fences.first().and_then(|fence| owner(*fence)) else { return UNKNOWN };
        toy.count("current");
        if toy.is("nf-current-status") {
            return STATUS_UNSUCCESSFUL;
        }
        let dead = arguments.Flags.AlwaysSignaled();
        let values = array(arguments.UpdatedValueArray.cast_const(), count);
        for (index, address) in array(arguments.CurrentValueKernelCpuVa.cast_const(), count).iter().enumerate() {
            // The CPU has no address of an intra-GPU fence.
            if !arguments.Flags.NotificationOnly() && !toy.is("nf-current-written") && !address.is_null() {
                store(*address, values[index]);
            }
            if arguments.Flags.NotificationOnly() && toy.is("nf-current-untouched") {
                // By the GPU: the address is read-only in such a call.
                let state = toy.state();
                let root = state.paging_root();
                let fence = state.fences.get(&number(fences[index])).map(|fence| fence.system.0);
                drop(state);
                if let (Some(root), Some(fence)) = (root, fence) {
                    toy.store(root, fence, 1);
                }
            }
            if dead && let Some(fence) = toy.state().fences.get_mut(&number(fences[index])) {
                fence.always = true;
            }
        }
        toy.poke();
        STATUS_SUCCESS
    }

    fn set_log(arguments: *const DXGKARG_SETNATIVEFENCELOGBUFFER) -> NTSTATUS {
        let arguments = input(arguments);
        let Some(toy) = owner(arguments.hHwQueue) else { return UNKNOWN };
        if toy.is("log-set") {
            return STATUS_UNSUCCESSFUL;
        }
        if arguments.LogBufferCpuVa.is_null() || arguments.NumberOfEntries == 0 {
            // The logs are taken away.
            if toy.is("log-set-away") {
                return STATUS_UNSUCCESSFUL;
            }
            if let Some(queue) = toy.state().queues.get_mut(&number(arguments.hHwQueue)) {
                queue.logs = <[Log; 2]>::default();
            }
            return STATUS_SUCCESS;
        }
        let kind = input(arguments.LogBufferCpuVa.cast_const()).Header.Type.0;
        let log = Log {
            gpu: arguments.LogBufferGpuVa,
            system: arguments.LogBufferSystemProcessGpuVa,
            entries: arguments.NumberOfEntries,
            ..Log::default()
        };
        let mut state = toy.state();
        if let Some(queue) = state.queues.get_mut(&number(arguments.hHwQueue)) {
            let slot = &mut queue.logs[if kind == 1 { 0 } else { 1 }];
            if !(toy.options.mutant == "log-stale" && slot.gpu != 0) {
                *slot = log;
            }
        }
        STATUS_SUCCESS
    }

    fn update_logs(arguments: *const DXGKARG_UPDATENATIVEFENCELOGS) -> NTSTATUS {
        let arguments = input(arguments);
        let queues = array(arguments.hHWQueue.cast_const(), arguments.NumberOfQueues as usize);
        fence(Ordering::SeqCst);
        let Some(toy) = queues.first().and_then(|queue| owner(*queue)) else { return UNKNOWN };
        let known = queues.iter().all(|queue| toy.state().queues.contains_key(&number(*queue)));
        match known && !toy.is("log-flush") {
            true => STATUS_SUCCESS,
            false => STATUS_UNSUCCESSFUL,
        }
    }
}
