//! Callbacks that the model does not implement: each refuses and is counted under its name, so that a report shows what
//! a driver asked for in vain. They belong to displays, virtual functions, frame buffer saving and IOMMUs.

use nt_model::{Machine, Routine, shims};
use wddm_abi::{NTSTATUS, ntstatus};

use crate::port::callback::{callback, callback_of, routines};
use crate::port::handle::raw;

/// Refuses a callback whose first argument is a device handle.
fn refuse(handle: usize, routine: &'static Routine) -> NTSTATUS {
    let status = callback(raw(handle as u64), routine, [handle as u64], |_| ntstatus::STATUS_NOT_SUPPORTED);
    status.unwrap_or_else(|status| status)
}

/// Refuses one that names no adapter: it is counted with the first.
fn refuse_any(machine: &Machine, argument: usize, routine: &'static Routine) -> NTSTATUS {
    let first = crate::port::shared::shared_of(machine).and_then(|shared| shared.adapters().first().cloned());
    let Some(adapter) = first else { return ntstatus::STATUS_NOT_SUPPORTED };
    let status = callback_of(&adapter, routine, [argument as u64], |_| ntstatus::STATUS_NOT_SUPPORTED);
    status.unwrap_or_else(|status| status)
}

macro_rules! refusals {
    (handle { $($handled:ident $hmin:literal..=$hmax:literal,)* } argument { $($other:ident $omin:literal..=$omax:literal,)* }) => {
        mod routine {
            #![expect(non_upper_case_globals, reason = "the slots have Microsoft's names")]
            $(pub(super) static $handled: nt_model::Routine =
                nt_model::Routine::limited(stringify!($handled), &["DeviceHandle"], $hmin, $hmax);)*
            $(pub(super) static $other: nt_model::Routine =
                nt_model::Routine::limited(stringify!($other), &["argument"], $omin, $omax);)*
        }

        shims! {
            /// Callbacks that refuse.
            table REFUSED;

            $(fn $handled(_machine, handle: usize) -> NTSTATUS { refuse(handle, &routine::$handled) })*
            $(fn $other(machine, argument: usize) -> NTSTATUS { refuse_any(machine, argument, &routine::$other) })*
        }
    };
}

refusals! {
    handle {
        DxgkCbEvalAcpiMethod 0..=0,
        DxgkCbIndicateChildStatus 0..=2,
        DxgkCbIsDevicePresent 0..=0,
        DxgkCbQueryMonitorInterface 0..=1,
        DxgkCbExcludeAdapterAccess 0..=0,
        DxgkCbDestroyContextAllocation 0..=0,
        DxgkCbCompletePStateTransition 0..=2,
        DxgkCbUpdateContextAllocation 0..=0,
        DxgkCbHardwareContentProtectionTeardown 0..=2,
        DxgkCbMultiPlaneOverlayDisabled 0..=2,
        DxgkCbMitigatedRangeUpdate 0..=0,
        DxgkCbIndicateConnectorChange 0..=2,
        DxgkCbUnblockUEFIFrameBufferRanges 0..=2,
        DxgkCbPinFrameBufferForSave 0..=0,
        DxgkCbUnpinFrameBufferForSave 0..=0,
        DxgkCbMapFrameBufferPointer 0..=0,
        DxgkCbUnmapFrameBufferPointer 0..=0,
        DxgkCbMapMdlToIoMmu 0..=0,
        DxgkCbUnmapMdlFromIoMmu 0..=0,
        DxgkCbSaveMemoryForHotUpdate 0..=0,
        DxgkCbPinFrameBufferForSave2 0..=0,
    }
    argument {
        DxgkCbQueryVidPnInterface 0..=1,
        DxgkCbGetCaptureAddress 0..=0,
        DxgkCbCreateContextAllocation 0..=0,
        DxgkCbSetProtectedSessionStatus 0..=0,
        DxgkCbSignalEvent 0..=0,
        DxgkCbNotifyCursorSupportChange 0..=0,
    }
}

routines! {
    MAP_CONTEXT = "DxgkCbMapContextAllocation"("hAdapter", "pArgs") 0..=0;
    LOG_EVENT = "DxgkCbLogEtwEvent"("EventGuid", "Type", "EventBufferSize") 0..=15;
    DIAGNOSTIC = "DxgkCbReportDiagnostic"("DeviceHandle", "pDiagnostic") 0..=2;
}

shims! {
    /// Callbacks without a status, and those that are taken note of.
    table OTHERS;

    fn DxgkCbMapContextAllocation(_machine, handle: usize, arguments: usize) -> u64 {
        let _ = callback(raw(handle as u64), &MAP_CONTEXT, [handle as u64, arguments as u64], |_| ());
        0
    }

    fn DxgkCbLogEtwEvent(machine, guid: usize, kind: u32, size: u32, _buffer: usize) {
        // IRQL: any up to a buffer of 256 bytes, PASSIVE_LEVEL above (the page's remarks).
        let _service = machine.service(&LOG_EVENT, [guid as u64, kind.into(), size.into()]);
    }

    fn DxgkCbReportDiagnostic(_machine, handle: usize, diagnostic: usize) -> NTSTATUS {
        let arguments = [handle as u64, diagnostic as u64];
        let status = callback(raw(handle as u64), &DIAGNOSTIC, arguments, |_| ntstatus::STATUS_SUCCESS);
        status.unwrap_or_else(|status| status)
    }
}

/// Both tables, refusals first.
pub(super) fn tables() -> [&'static [nt_model::ShimEntry]; 2] {
    [REFUSED, OTHERS]
}
