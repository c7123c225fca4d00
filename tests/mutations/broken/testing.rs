//! Kernel-mode testing.
#![expect(unsafe_code, reason = "functions of the driver's table are called and given records")]

use core::ffi::c_void;
use fencepost::wrap::{copy, decorate, own, record};
use std::sync::OnceLock;
use wddm_abi::ntstatus::{STATUS_BUFFER_OVERFLOW, STATUS_INVALID_PARAMETER, STATUS_SUCCESS};
use wddm_abi::{
    D3DDDI_TESTCOMMANDBUFFEROP as Operation, DXGK_FEATURE_ID, DXGKARG_BUILDTESTCOMMANDBUFFER, DXGKARG_CREATEHWQUEUE,
    DXGKARG_QUERYFEATUREINTERFACE, DXGKARG_QUERYFEATURESUPPORT, DXGKDDI_BUILDTESTCOMMANDBUFFER,
    DXGKDDI_FEATURE_INTERFACE, DXGKDDI_KERNELMODETESTINGINTERFACE, DXGKDDI_QUERYFEATUREINTERFACE,
    DXGKDDI_QUERYFEATURESUPPORT, HANDLE, NTSTATUS, QUERY_INTERFACE, win_extern,
};

/// The driver's own functions, which [`put`] and [`hand_out`] replace.
static SUPPORT: OnceLock<DXGKDDI_QUERYFEATURESUPPORT> = OnceLock::new();
static INTERFACE: OnceLock<DXGKDDI_QUERYFEATUREINTERFACE> = OnceLock::new();
static BUILD: OnceLock<DXGKDDI_BUILDTESTCOMMANDBUFFER> = OnceLock::new();

/// Calls the driver's own function.
macro_rules! driver {
    ($function:ident($($argument:expr),*)) => {
        match $function.get() {
            // SAFETY: Dxgkrnl's arguments, or such as it could have passed.
            Some(own) => unsafe { own($($argument),*) },
            None => unreachable!("the interface was asked for before"),
        }
    };
}

/// Changes the feature interface that the driver has filled.
fn put(query: *mut QUERY_INTERFACE, status: NTSTATUS, change: impl FnOnce(&mut DXGKDDI_FEATURE_INTERFACE)) -> NTSTATUS {
    if status.is_success() {
        let asked = copy!(query);
        let interface = record!(asked.Interface.cast::<DXGKDDI_FEATURE_INTERFACE>());
        interface.QueryFeatureSupport.inspect(|own| _ = SUPPORT.set(*own));
        interface.QueryFeatureInterface.inspect(|own| _ = INTERFACE.set(*own));
        change(interface);
    }
    status
}

/// Has the driver hand out its interface for tests, and puts `instead` there.
fn hand_out(
    adapter: HANDLE,
    args: *mut DXGKARG_QUERYFEATUREINTERFACE,
    instead: DXGKDDI_BUILDTESTCOMMANDBUFFER,
) -> NTSTATUS {
    let status = driver!(INTERFACE(adapter, args));
    if status.is_success() {
        let table = record!(record!(args).Interface.cast::<DXGKDDI_KERNELMODETESTINGINTERFACE>());
        if let Some(own) = table.pfnBuildTestCommandBuffer.replace(instead) {
            BUILD.get_or_init(|| own);
        }
    }
    status
}

decorate! {
    /// Tests are supported on any machine.
    tests_anywhere: DxgkDdiQueryInterface(context: *mut c_void, query: *mut QUERY_INTERFACE) -> NTSTATUS {
        let status = own!(DxgkDdiQueryInterface(context, query));
        put(query, status, |interface| interface.QueryFeatureSupport = Some(supports))
    }

    /// The interface is handed out in any version.
    tests_in_any_version: DxgkDdiQueryInterface(context: *mut c_void, query: *mut QUERY_INTERFACE) -> NTSTATUS {
        let status = own!(DxgkDdiQueryInterface(context, query));
        put(query, status, |interface| interface.QueryFeatureInterface = Some(in_any_version))
    }

    /// A fill is built without its pattern.
    fills_with_zeros: DxgkDdiQueryInterface(context: *mut c_void, query: *mut QUERY_INTERFACE) -> NTSTATUS {
        let status = own!(DxgkDdiQueryInterface(context, query));
        put(query, status, |interface| interface.QueryFeatureInterface = Some(of_zeros))
    }

    /// Buffers that are too small are refused, and not measured.
    tests_unmeasured: DxgkDdiQueryInterface(context: *mut c_void, query: *mut QUERY_INTERFACE) -> NTSTATUS {
        let status = own!(DxgkDdiQueryInterface(context, query));
        put(query, status, |interface| interface.QueryFeatureInterface = Some(of_unmeasured))
    }

    /// What does not exist is built as a fill of nothing.
    builds_anything: DxgkDdiQueryInterface(context: *mut c_void, query: *mut QUERY_INTERFACE) -> NTSTATUS {
        let status = own!(DxgkDdiQueryInterface(context, query));
        put(query, status, |interface| interface.QueryFeatureInterface = Some(of_anything))
    }

    /// Behind a buffer of a queue for tests the progress fence is not written.
    test_progress_missing: DxgkDdiCreateHwQueue(context: HANDLE, args: *mut DXGKARG_CREATEHWQUEUE) -> NTSTATUS {
        record!(args).Flags.set_TestQueue(false);
        own!(DxgkDdiCreateHwQueue(context, args))
    }
}

win_extern! {
    fn supports(adapter: HANDLE, args: *mut DXGKARG_QUERYFEATURESUPPORT) -> NTSTATUS {
        let status = driver!(SUPPORT(adapter, args));
        let args = record!(args);
        if args.FeatureId == DXGK_FEATURE_ID::DXGK_FEATURE_KERNEL_MODE_TESTING {
            (args.MinSupportedVersion, args.MaxSupportedVersion) = (1, 1);
            (args.SupportedByDriver, args.SupportedOnCurrentConfig) = (1, 1);
        }
        status
    }

    fn in_any_version(adapter: HANDLE, args: *mut DXGKARG_QUERYFEATUREINTERFACE) -> NTSTATUS {
        record!(args).Version = 1;
        driver!(INTERFACE(adapter, args))
    }

    fn of_zeros(adapter: HANDLE, args: *mut DXGKARG_QUERYFEATUREINTERFACE) -> NTSTATUS {
        hand_out(adapter, args, zeros)
    }

    fn zeros(adapter: HANDLE, args: *mut DXGKARG_BUILDTESTCOMMANDBUFFER) -> NTSTATUS {
        let command = record!(args).Command;
        if command.Operation == Operation::D3DDDI_TESTCOMMANDBUFFEROP_FILL {
            record!(args).Command.Fill_mut().Pattern = 0;
        }
        let status = driver!(BUILD(adapter, args));
        record!(args).Command = command;
        status
    }

    fn of_unmeasured(adapter: HANDLE, args: *mut DXGKARG_QUERYFEATUREINTERFACE) -> NTSTATUS {
        hand_out(adapter, args, unmeasured)
    }

    fn unmeasured(adapter: HANDLE, args: *mut DXGKARG_BUILDTESTCOMMANDBUFFER) -> NTSTATUS {
        match driver!(BUILD(adapter, args)) {
            STATUS_BUFFER_OVERFLOW => STATUS_INVALID_PARAMETER,
            status => status,
        }
    }

    fn of_anything(adapter: HANDLE, args: *mut DXGKARG_QUERYFEATUREINTERFACE) -> NTSTATUS {
        hand_out(adapter, args, anything)
    }

    fn anything(adapter: HANDLE, args: *mut DXGKARG_BUILDTESTCOMMANDBUFFER) -> NTSTATUS {
        match driver!(BUILD(adapter, args)) {
            STATUS_INVALID_PARAMETER => STATUS_SUCCESS,
            status => status,
        }
    }
}
