//! Calling the driver: one way for every function of its table.
//!
//! A call takes its place in WDDM's synchronization levels, raises to the level that the page of the function names,
//! enters the driver through [`nt_model::Machine::call_driver`] and comes back. What a returned status means is the
//! caller's business.
//!
//! | level | who may be inside at the same time |
//! |---|---|
//! | zero | anybody |
//! | first | one thread per class |
//! | third | nobody else |
//! | free | not synchronized: interrupts, DPCs, power transitions |
//!
//! Source: articles threading-and-synchronization-zero-level, -first-level, -second-level, -third-level.
//!
//! Chosen: level zero keeps two threads of one process apart, says its article, and no page says by which handle; here
//! they meet, which is harder on a driver. Escape, which the articles name under level two, is called at level zero
//! unless its flags ask for hardware access, as `D3DDDI_ESCAPEFLAGS` says.
#![expect(non_upper_case_globals, reason = "the slots have Microsoft's names")]

use nt_model::Machine;
use nt_model::sched::Ticks;
use wddm_abi::NTSTATUS;
use wddm_abi::ntstatus::{STATUS_NOT_SUPPORTED, STATUS_SYSTEM_SHUTDOWN};

/// At which IRQL a function is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum At {
    /// PASSIVE_LEVEL.
    Passive,
    /// DISPATCH_LEVEL.
    Dispatch,
    /// Whatever the caller is at: interrupt routines, and what runs synchronized with them.
    Caller,
}

/// Synchronization level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    /// Re-entrant.
    Zero,
    /// The GPU scheduler class.
    Scheduler,
    /// The class of memory management.
    Memory,
    /// Alone.
    Third,
    /// Not synchronized.
    Free,
}

/// A function of the driver's table.
#[derive(Debug)]
pub(crate) struct Ddi {
    /// Member of `DRIVER_INITIALIZATION_DATA`.
    pub(crate) name: &'static str,
    pub(crate) at: At,
    pub(crate) level: Level,
}

macro_rules! ddis {
    ($($name:ident: $at:ident, $level:ident;)*) => {
        $(pub(crate) static $name: Ddi =
            Ddi { name: stringify!($name), at: At::$at, level: Level::$level };)*

        /// Every function that the model calls.
        #[cfg(test)]
        static ALL: &[&Ddi] = &[$(&$name),*];
    };
}

ddis! {
    DxgkDdiAddDevice: Passive, Third;
    DxgkDdiLinkDevice: Passive, Third;
    DxgkDdiStartDevice: Passive, Third;
    DxgkDdiStopDevice: Passive, Third;
    DxgkDdiRemoveDevice: Passive, Third;
    DxgkDdiUnload: Passive, Free;
    DxgkDdiDpcRoutine: Caller, Free;
    DxgkDdiDispatchIoRequest: Passive, Zero;
    DxgkDdiQueryChildRelations: Passive, Third;
    DxgkDdiQueryChildStatus: Passive, Third;
    DxgkDdiQueryDeviceDescriptor: Passive, Third;
    DxgkDdiNotifyAcpiEvent: Passive, Third;
    DxgkDdiNotifySurpriseRemoval: Passive, Free;
    DxgkDdiResetDevice: Caller, Free;
    DxgkDdiControlEtwLogging: Passive, Zero;
    DxgkDdiSetStablePowerState: Passive, Zero;
    DxgkDdiSetVirtualMachineData: Passive, Third;
    DxgkDdiBeginExclusiveAccess: Passive, Third;
    DxgkDdiEndExclusiveAccess: Passive, Third;
    DxgkDdiUpdateMonitorLinkInfo: Passive, Zero;
    DxgkDdiSetPowerState: Passive, Third;
    DxgkDdiQueryInterface: Passive, Zero;
    DxgkDdiQueryAdapterInfo: Passive, Zero;
    DxgkDdiGetNodeMetadata: Passive, Zero;
    DxgkDdiSetPowerComponentFState: Passive, Free;
    DxgkDdiCreateProcess: Passive, Zero;
    DxgkDdiDestroyProcess: Passive, Zero;
    DxgkDdiCreateDevice: Passive, Zero;
    DxgkDdiDestroyDevice: Passive, Zero;
    DxgkDdiCreateContext: Passive, Zero;
    DxgkDdiDestroyContext: Passive, Zero;
    DxgkDdiCreateAllocation: Passive, Zero;
    DxgkDdiDestroyAllocation: Passive, Zero;
    DxgkDdiOpenAllocation: Passive, Zero;
    DxgkDdiCloseAllocation: Passive, Zero;
    DxgkDdiDescribeAllocation: Passive, Zero;
    DxgkDdiGetStandardAllocationDriverData: Passive, Zero;
    DxgkDdiRender: Passive, Zero;
    DxgkDdiRenderKm: Passive, Zero;
    DxgkDdiRenderGdi: Passive, Zero;
    DxgkDdiPresent: Passive, Zero;
    DxgkDdiPresentToHwQueue: Passive, Zero;
    DxgkDdiPatch: Passive, Scheduler;
    DxgkDdiQueryCurrentFence: Passive, Scheduler;
    DxgkDdiFormatHistoryBuffer: Dispatch, Zero;
    DxgkDdiSignalMonitoredFence: Passive, Scheduler;
    DxgkDdiSwitchToHwContextList: Passive, Scheduler;
    DxgkDdiUpdateHwContextState: Passive, Scheduler;
    DxgkDdiGetRootPageTableSize: Passive, Zero;
    DxgkDdiSetRootPageTable: Passive, Memory;
    DxgkDdiBuildPagingBuffer: Passive, Scheduler;
    DxgkDdiSubmitCommand: Dispatch, Scheduler;
    DxgkDdiSubmitCommandVirtual: Passive, Scheduler;
    DxgkDdiPreemptCommand: Dispatch, Scheduler;
    DxgkDdiCancelCommand: Passive, Scheduler;
    DxgkDdiQueryDependentEngineGroup: Passive, Scheduler;
    DxgkDdiQueryEngineStatus: Passive, Scheduler;
    DxgkDdiResetEngine: Passive, Scheduler;
    DxgkDdiResetHwEngine: Passive, Scheduler;
    DxgkDdiResumeHwEngine: Passive, Scheduler;
    DxgkDdiResetFromTimeout: Passive, Third;
    DxgkDdiRestartFromTimeout: Passive, Third;
    DxgkDdiCollectDbgInfo: Passive, Free;
    DxgkDdiCollectDbgInfo2: Passive, Free;
    DxgkDdiEscape: Passive, Zero;
    DxgkDdiCalibrateGpuClock: Dispatch, Zero;
    DxgkDdiCreateHwContext: Passive, Zero;
    DxgkDdiDestroyHwContext: Passive, Zero;
    DxgkDdiCreateHwQueue: Passive, Zero;
    DxgkDdiDestroyHwQueue: Passive, Zero;
    DxgkDdiSubmitCommandToHwQueue: Dispatch, Zero;
    DxgkDdiSuspendContext: Passive, Scheduler;
    DxgkDdiResumeContext: Passive, Scheduler;
    DxgkDdiSetContextSchedulingProperties: Passive, Scheduler;
    DxgkDdiSetupPriorityBands: Passive, Scheduler;
    DxgkDdiSetSchedulingLogBuffer: Passive, Scheduler;
    DxgkDdiCreateNativeFence: Passive, Zero;
    DxgkDdiDestroyNativeFence: Passive, Zero;
    DxgkDdiOpenNativeFence: Passive, Zero;
    DxgkDdiCloseNativeFence: Passive, Zero;
    DxgkDdiUpdateMonitoredValues: Caller, Free;
    DxgkDdiUpdateCurrentValuesFromCpu: Dispatch, Zero;
    DxgkDdiSetNativeFenceLogBuffer: Dispatch, Zero;
    DxgkDdiUpdateNativeFenceLogs: Dispatch, Free;
    DxgkDdiCreateDoorbell: Passive, Zero;
    DxgkDdiConnectDoorbell: Passive, Zero;
    DxgkDdiDisconnectDoorbell: Passive, Zero;
    DxgkDdiDestroyDoorbell: Passive, Zero;
    DxgkDdiNotifyWorkSubmission: Passive, Zero;
}

/// A call did not reach the driver, or did not come back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoCall {
    /// The slot is NULL.
    #[error("the driver has no such function")]
    Missing,
    /// The machine has stopped.
    #[error("the machine has stopped")]
    Stopped,
}

impl NoCall {
    /// What a thunk returns for it.
    pub(crate) fn status(self) -> NTSTATUS {
        match self {
            Self::Missing => STATUS_NOT_SUPPORTED,
            Self::Stopped => STATUS_SYSTEM_SHUTDOWN,
        }
    }
}

/// The status of a call, or of why there was none.
pub(crate) fn status(result: Result<NTSTATUS, NoCall>) -> NTSTATUS {
    result.unwrap_or_else(NoCall::status)
}

/// Returns whether a call succeeded, or ended with the machine, which is not the driver's doing.
pub(crate) fn succeeded(status: NTSTATUS) -> bool {
    status.is_success() || status == STATUS_SYSTEM_SHUTDOWN
}

/// Enters the driver at the level that `ddi` wants. `f` only makes the call.
pub(crate) fn enter<R>(kernel: &Machine, ddi: &'static Ddi, f: impl FnOnce() -> R) -> Result<R, NoCall> {
    crate::port::sync::assert_free(ddi.name);
    let inside = crate::port::sync::InDriver::new();
    let old = match ddi.at {
        At::Dispatch if kernel.irql() < nt_model::routines::DISPATCH_LEVEL => {
            Some(kernel.raise_irql(nt_model::routines::DISPATCH_LEVEL))
        }
        _ => None,
    };
    let result = kernel.call_driver(ddi.name, f);
    drop(inside);
    if let Some(old) = old {
        kernel.lower_irql(old);
    }
    result.map_err(|_| NoCall::Stopped)
}

/// Calls a function of an adapter's table: `call_ddi!(adapter, DxgkDdiCreateDevice(context, &raw mut arguments))`.
/// Evaluates to `Result<_, NoCall>`. An argument is a plain local, since it is looked at twice: for the call, and for
/// the journal.
macro_rules! call_ddi {
    ($adapter:expr, $slot:ident($($argument:expr),* $(,)?)) => {
        match $adapter.table().$slot {
            None => Err($crate::port::ddi::NoCall::Missing),
            Some(function) => $adapter.call(&$crate::port::ddi::$slot, &$crate::port::ddi::kept!($($argument),*), move || {
                // SAFETY: the driver put a function of this slot's type here (the types are Microsoft's; a wrong one is
                // what this crate is there to find out, and a trap is reported by nt_model). The pointers that are
                // passed are valid for the call.
                #[expect(unsafe_code, reason = "a function of the driver's table is called")]
                unsafe { function($($argument),*) }
            }),
        }
    };
}
pub(crate) use call_ddi;

/// What the journal keeps of each argument.
macro_rules! kept {
    ($($argument:expr),*) => {{
        use $crate::port::miniport::arguments::{Argument, NotKept as _};
        let mut all = (&Argument(())).kept();
        $(all.add(&(&Argument($argument)).kept());)*
        all
    }};
}
pub(crate) use kept;

/// How long a call took, against the personality's limit.
pub(crate) fn over_limit(limit: Ticks, took: Ticks) -> bool {
    limit != 0 && took > limit
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Functions that are called at whatever level the caller is, which is the right one: Dxgkrnl's DPC calls them.
    const BY_CALLER: [&str; 1] = ["DxgkDdiDpcRoutine"];

    #[test]
    fn levels_are_those_of_the_pages() {
        let differs = |ddi: &&&Ddi| {
            let fits = match crate::port::statuses::of(ddi.name).map_or("no such function", |entry| entry.irql) {
                // The page says nothing, or nothing that is a level.
                "-" | "IRQL" | "See Remarks section." => true,
                "PASSIVE_LEVEL or DISPATCH_LEVEL" | "<=DISPATCH_LEVEL" => ddi.at != At::Caller,
                "< DISPATCH_LEVEL" | "<= APC_LEVEL" => ddi.at == At::Passive,
                level if level.starts_with("PASSIVE") => ddi.at == At::Passive,
                "DISPATCH_LEVEL" => ddi.at == At::Dispatch,
                "no such function" => false,
                _ => ddi.at == At::Caller,
            };
            !fits && !BY_CALLER.contains(&ddi.name)
        };
        let wrong: Vec<_> = ALL
            .iter()
            .filter(differs)
            .map(|ddi| (ddi.name, ddi.at, crate::port::statuses::of(ddi.name).map(|entry| entry.irql)))
            .collect();
        assert!(wrong.is_empty(), "{wrong:#?}");
    }
}
