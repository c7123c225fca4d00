//! Packet mode: submission, preemption, reset.

use crate::arguments::{borrow, started, with_started};
use crate::thunk::{always, ddi};
use gpu_wire::GpuVa;
use gpu_wire::packet::Privilege;
use kmd_core::context::Context;
use kmd_core::nodes::of_engine;
use kmd_core::platform::Platform;
use kmd_core::reset;
use kmd_core::status::{Error, Result, of};
use kmd_core::submit::{self, Packet};
use wddm_abi::ntstatus::STATUS_SUCCESS;
use wddm_abi::{
    DXGKARG_CANCELCOMMAND, DXGKARG_PATCH, DXGKARG_PREEMPTCOMMAND, DXGKARG_QUERYCURRENTFENCE,
    DXGKARG_QUERYDEPENDENTENGINEGROUP, DXGKARG_QUERYENGINESTATUS, DXGKARG_RESETENGINE, DXGKARG_SUBMITCOMMAND,
    DXGKARG_SUBMITCOMMANDVIRTUAL, HANDLE, NTSTATUS, win_extern,
};

ddi! {
    /// `DxgkDdiQueryCurrentFence`, `PASSIVE_LEVEL`. Reports completions whose interrupt was lost before it answers.
    fn query_current_fence[P: Platform](adapter: HANDLE) at irql: Passive,
        with args: write *mut DXGKARG_QUERYCURRENTFENCE, answers of {
        let started = started::<P>(adapter)?;
        let node = of_engine(args.NodeOrdinal, args.EngineOrdinal)?;
        args.CurrentFence = submit::current_fence(&irql, &started, adapter, node)?;
        Ok(())
    }

    /// `DxgkDdiQueryDependentEngineGroup`, `PASSIVE_LEVEL`. Must succeed for every node that exists.
    fn query_dependent_engine_group[P: Platform](adapter: HANDLE) with args: write *mut DXGKARG_QUERYDEPENDENTENGINEGROUP,
        answers of {
        let started = started::<P>(adapter)?;
        let node = of_engine(args.NodeOrdinal, args.EngineOrdinal)?;
        args.DependentNodeOrdinalMask = reset::dependent_nodes(&started, node)?;
        Ok(())
    }

    /// `DxgkDdiQueryEngineStatus`, `PASSIVE_LEVEL`.
    fn query_engine_status[P: Platform](adapter: HANDLE) with args: write *mut DXGKARG_QUERYENGINESTATUS, answers of {
        let started = started::<P>(adapter)?;
        let responsive = reset::is_responsive(&started, of_engine(args.NodeOrdinal, args.EngineOrdinal)?)?;
        args.EngineStatus.Value = 0;
        args.EngineStatus.set_Responsive(responsive);
        Ok(())
    }

    /// `DxgkDdiResetEngine`, `PASSIVE_LEVEL`. A failure makes the OS reset the adapter.
    fn reset_engine[P: Platform](adapter: HANDLE) at irql: Passive,
        with args: write *mut DXGKARG_RESETENGINE, answers of {
        let started = started::<P>(adapter)?;
        let node = of_engine(args.NodeOrdinal, args.EngineOrdinal)?;
        args.LastAbortedFenceId = reset::reset_engine(&irql, &started, node)?;
        Ok(())
    }

    /// `DxgkDdiSubmitCommandVirtual`: coded for `DISPATCH_LEVEL`, since sources disagree. Success or
    /// `STATUS_INVALID_PARAMETER`.
    fn submit_command_virtual[P: Platform](adapter: HANDLE) at irql: Dispatch,
        with args: read *const DXGKARG_SUBMITCOMMANDVIRTUAL, answers submitted {
        with_started::<P, _>(adapter, |started| {
            // Fences are counted by engine and node: one of another engine is none of ours.
            let named = of_engine(args.NodeOrdinal, args.EngineOrdinal)?;
            // Only a packet without a context is the paging process's: one of a context that is not there (any more)
            // is refused.
            let found = match args.hContext.is_null() {
                true => started.paging_context().map(|context| (named, context)),
                false => borrow::<Context<P>, _>(args.hContext, |found| Ok((found.node, found.engine.clone()))).ok(),
            };
            let Some((node, context)) = found else {
                submit::refuse(started, named, args.SubmissionFenceId);
                return Err(Error::InvalidParameter);
            };
            // Null rendering: the packet completes, and nothing of it runs.
            let (address, length) = match args.Flags.NullRendering() {
                true => (0, 0),
                false => (args.DmaBufferVirtualAddress, args.DmaBufferSize),
            };
            let (fence, address, length) = (args.SubmissionFenceId, GpuVa(address), length.into());
            // What the OS calls a paging buffer is the kernel's, also in a companion context of an ordinary process;
            // user mode cannot set the flag. All packets of the paging process are such.
            let paging = args.Flags.Paging() || context.space.process.privilege == Privilege::Paging;
            let resubmitted = args.Flags.Resubmission();
            submit::submit(&irql, started, Packet { node, fence, context, paging, address, length, resubmitted })
        })
    }

    /// `DxgkDdiSubmitCommand`, `DISPATCH_LEVEL`. Must succeed. With GpuMmu every packet comes through the virtual form;
    /// one that comes here has no address to run, and completes.
    fn submit_command[P: Platform](adapter: HANDLE) at irql: Dispatch,
        with args: read *const DXGKARG_SUBMITCOMMAND, answers always {
        with_started::<P, _>(adapter, |started| {
            let node = of_engine(args.NodeOrdinal, args.EngineOrdinal)?;
            let Some(context) = started.paging_context() else {
                submit::refuse(started, node, args.SubmissionFenceId);
                return Err(Error::InvalidParameter);
            };
            let fence = args.SubmissionFenceId;
            let (address, length, resubmitted) = (GpuVa(0), 0, false);
            let packet = Packet { node, fence, context, paging: true, address, length, resubmitted };
            submit::submit(&irql, started, packet)
        })
    }

    /// `DxgkDdiPreemptCommand`, up to `DISPATCH_LEVEL`. Must succeed.
    fn preempt_command[P: Platform](adapter: HANDLE) at irql: Dispatch,
        with args: read *const DXGKARG_PREEMPTCOMMAND, answers always {
        with_started::<P, _>(adapter, |started| {
            let node = of_engine(args.NodeOrdinal, args.EngineOrdinal)?;
            submit::preempt(&irql, started, node, args.PreemptionFenceId)
        })
    }
}

/// The status of SubmitCommandVirtual, whose page lists one refusal.
fn submitted(result: Result<()>) -> NTSTATUS {
    of(result.map_err(|_| Error::InvalidParameter))
}

win_extern! {
    /// `DxgkDdiPatch`, `PASSIVE_LEVEL`. Must succeed: buffers hold virtual addresses.
    pub(crate) fn patch(_adapter: HANDLE, _args: *const DXGKARG_PATCH) -> NTSTATUS {
        STATUS_SUCCESS
    }

    /// `DxgkDdiCancelCommand`. Must succeed: a command that was not submitted holds nothing of ours.
    pub(crate) fn cancel_command(_adapter: HANDLE, _args: *const DXGKARG_CANCELCOMMAND) -> NTSTATUS {
        STATUS_SUCCESS
    }
}
