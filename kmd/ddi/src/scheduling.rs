//! Hardware contexts and queues, suspension, engine reset.

use crate::arguments::{borrow, bytes, bytes_mut, object, os, started};
use crate::thunk::ddi;
use gpu_engine::memory::Span;
use gpu_engine::queue::Submission;
use gpu_wire::{GpuVa, NodeOrdinal};
use kmd_core::context::NewContext;
use kmd_core::device::Device;
use kmd_core::handle::Handle;
use kmd_core::hw_context::HwContext;
use kmd_core::hw_queue::{HwQueue, NewQueue};
use kmd_core::nodes::of_engine;
use kmd_core::paging::{self, Buffer, Operation};
use kmd_core::platform::Platform;
use kmd_core::priority;
use kmd_core::reset;
use kmd_core::scheduling_log;
use kmd_core::status::{Result, of};
use wddm_abi::ntstatus::{STATUS_PENDING, STATUS_SUCCESS};
use wddm_abi::{
    DXGK_SCHEDULING_LOG_BUFFER, DXGKARG_CREATEHWCONTEXT, DXGKARG_CREATEHWQUEUE, DXGKARG_RESETHWENGINE,
    DXGKARG_RESUMECONTEXT, DXGKARG_RESUMEHWENGINE, DXGKARG_SETCONTEXTSCHEDULINGPROPERTIES,
    DXGKARG_SETSCHEDULINGLOGBUFFER, DXGKARG_SETUPPRIORITYBANDS, DXGKARG_SIGNALMONITOREDFENCE,
    DXGKARG_SUBMITCOMMANDTOHWQUEUE, DXGKARG_SUSPENDCONTEXT, DXGKARG_SWITCHTOHWCONTEXTLIST,
    DXGKARG_UPDATEHWCONTEXTSTATE, HANDLE, NTSTATUS, win_extern,
};

ddi! {
    /// `DxgkDdiCreateHwContext`, `PASSIVE_LEVEL`: the obsolete way to make a context for hardware queues. Windows 11
    /// makes these by `DxgkDdiCreateContext`.
    fn create_hw_context[P: Platform](device: HANDLE) at irql: Passive,
        with args: write *mut DXGKARG_CREATEHWCONTEXT, answers of {
        let device = object::<Device<P>>(device)?;
        // SAFETY: Dxgkrnl's copy of the private data, of that size.
        let private = unsafe { bytes(args.pPrivateDriverData.cast_const(), args.PrivateDriverDataSize) }?;
        let new = NewContext {
            os: os(args.hHwContext),
            node: NodeOrdinal(args.NodeOrdinal),
            affinity: args.EngineAffinity,
            system: false,
            hw_queues: true,
        };
        args.hHwContext = HwContext::create(&irql, &device, &new, private)?.as_ptr();
        args.ContextCaps.Value = 0;
        Ok(())
    }

    /// `DxgkDdiDestroyHwContext`, `PASSIVE_LEVEL`: destroys a context that `DxgkDdiCreateHwContext` made.
    fn destroy_hw_context[P: Platform](context: HANDLE) at irql: Passive, answers of {
        HwContext::<P>::destroy(&irql, Handle::from_ptr(context))
    }

    /// `DxgkDdiCreateHwQueue`, `PASSIVE_LEVEL`.
    fn create_hw_queue[P: Platform](context: HANDLE) at irql: Passive,
        with args: write *mut DXGKARG_CREATEHWQUEUE, answers of {
        let context = object::<HwContext<P>>(context)?;
        let new = NewQueue {
            os: os(args.hHwQueue),
            user_mode: args.Flags.UserModeSubmission(),
            native_progress_fence: args.Flags.NativeProgressFence(),
            is_for_tests: args.Flags.TestQueue(),
            progress: GpuVa(args.HwQueueProgressFenceGPUVirtualAddress),
        };
        args.hHwQueue = HwQueue::create(&irql, &context, &new)?.as_ptr();
        Ok(())
    }

    /// `DxgkDdiDestroyHwQueue`, `PASSIVE_LEVEL`.
    fn destroy_hw_queue[P: Platform](queue: HANDLE) at irql: Passive, answers of {
        HwQueue::<P>::destroy(&irql, Handle::from_ptr(queue))
    }

    /// `DxgkDdiSubmitCommandToHwQueue`, up to `DISPATCH_LEVEL`.
    fn submit_command_to_hw_queue[P: Platform](_adapter: HANDLE) at irql: Dispatch,
        with args: read *const DXGKARG_SUBMITCOMMANDTOHWQUEUE, answers of {
        let submission = Submission {
            address: GpuVa(args.DmaBufferVirtualAddress),
            length: args.DmaBufferSize.into(),
            progress: args.HwQueueProgressFenceId,
            // Null rendering: the progress fence gets its value, and nothing of the buffer runs.
            null: args.Flags.NullRendering(),
        };
        borrow::<HwQueue<P>, _>(args.hHwQueue, |queue| queue.submit(&irql, submission))
    }

    /// `DxgkDdiResumeContext`, `PASSIVE_LEVEL`.
    fn resume_context[P: Platform](_adapter: HANDLE) at irql: Passive,
        with args: read *const DXGKARG_RESUMECONTEXT, answers of {
        object::<HwContext<P>>(args.hContext)?.resume(&irql);
        Ok(())
    }

    /// `DxgkDdiResetHwEngine`, `PASSIVE_LEVEL`.
    fn reset_hw_engine[P: Platform](adapter: HANDLE) at irql: Passive,
        with args: read *mut DXGKARG_RESETHWENGINE, answers of {
        let started = started::<P>(adapter)?;
        reset::reset_hw_engine(&irql, &started, of_engine(args.NodeOrdinal, args.EngineOrdinal)?)
    }

    /// `DxgkDdiResumeHwEngine`, `PASSIVE_LEVEL`.
    fn resume_hw_engine[P: Platform](adapter: HANDLE) at irql: Passive,
        with args: read *mut DXGKARG_RESUMEHWENGINE, answers of {
        let started = started::<P>(adapter)?;
        reset::resume_hw_engine(&irql, &started, of_engine(args.NodeOrdinal, args.EngineOrdinal)?)
    }

    /// `DxgkDdiSetupPriorityBands`, `PASSIVE_LEVEL`.
    fn setup_priority_bands[P: Platform](adapter: HANDLE) at irql: Passive,
        with args: read *const DXGKARG_SETUPPRIORITYBANDS, answers of {
        priority::set_bands(&irql, &*started::<P>(adapter)?, args);
        Ok(())
    }

    /// `DxgkDdiSetContextSchedulingProperties`, `PASSIVE_LEVEL`.
    fn set_context_scheduling_properties[P: Platform](_adapter: HANDLE) at irql: Passive,
        with args: read *const DXGKARG_SETCONTEXTSCHEDULINGPROPERTIES, answers of {
        priority::set_properties(&irql, &*object::<HwContext<P>>(args.hContext)?, args)
    }

    /// `DxgkDdiSetSchedulingLogBuffer`, `PASSIVE_LEVEL`. A NULL buffer, or one without entries, takes the log away.
    fn set_scheduling_log_buffer[P: Platform](adapter: HANDLE) at irql: Passive,
        with args: read *const DXGKARG_SETSCHEDULINGLOGBUFFER, answers of {
        let started = started::<P>(adapter)?;
        let place = (NodeOrdinal(args.NodeOrdinal), args.EngineOrdinal);
        if args.LogBufferCpuVa.is_null() || args.NumberOfEntries == 0 {
            return scheduling_log::clear(&irql, &started, place);
        }
        let first = core::mem::offset_of!(DXGK_SCHEDULING_LOG_BUFFER, Entries) as u64;
        let len = first + u64::from(args.NumberOfEntries) * gpu_engine::scheduling_log::ENTRY_SIZE;
        // SAFETY: a buffer of that many entries, mapped until it is replaced or the device is stopped.
        let buffer = unsafe { Span::new(args.LogBufferCpuVa.cast(), len) };
        scheduling_log::set(&irql, &started, place, buffer, (args.NumberOfEntries, args.InterruptEntry))
    }

    /// `DxgkDdiSignalMonitoredFence`: adds the signal to a DMA buffer of the kernel's.
    fn signal_monitored_fence(_context: HANDLE) at irql: Passive,
        with args: write *mut DXGKARG_SIGNALMONITOREDFENCE, answers of {
        // SAFETY: Dxgkrnl's buffer, of that size.
        let bytes = unsafe { bytes_mut(args.pDmaBuffer, args.DmaSize) }?;
        let mut buffer = Buffer::new(bytes);
        let signal = Operation::Signal { fence: GpuVa(args.MonitoredFenceGpuVa), value: args.MonitoredFenceValue };
        paging::build(&irql, &signal, &mut buffer, &mut args.MultipassOffset)?;
        args.pDmaBuffer = args.pDmaBuffer.wrapping_byte_add(buffer.used);
        Ok(())
    }

    /// `DxgkDdiSuspendContext`, `PASSIVE_LEVEL`: success when suspended already, else pending, and an interrupt.
    fn suspend_context[P: Platform](_adapter: HANDLE) at irql: Passive,
        with args: read *const DXGKARG_SUSPENDCONTEXT, answers suspended {
        Ok(object::<HwContext<P>>(args.hContext)?.suspend(&irql, args.contextSuspendFence))
    }
}

/// The status of SuspendContext, by whether the context is suspended already.
fn suspended(result: Result<bool>) -> NTSTATUS {
    match result {
        Ok(true) => STATUS_SUCCESS,
        Ok(false) => STATUS_PENDING,
        Err(error) => error.status(),
    }
}

win_extern! {
    /// `DxgkDdiSwitchToHwContextList`, `PASSIVE_LEVEL`: the older scheduling model, in which the OS gives lists.
    pub(crate) fn switch_to_hw_context_list(_adapter: HANDLE, _args: *const DXGKARG_SWITCHTOHWCONTEXTLIST) -> NTSTATUS {
        wddm_abi::ntstatus::STATUS_NOT_SUPPORTED
    }

    /// `DxgkDdiUpdateHwContextState`: belongs to that model, too. Success would say that the context is off the GPU.
    pub(crate) fn update_hw_context_state(_adapter: HANDLE, _args: *const DXGKARG_UPDATEHWCONTEXTSTATE) -> NTSTATUS {
        wddm_abi::ntstatus::STATUS_NOT_SUPPORTED
    }
}
