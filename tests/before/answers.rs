//! What functions answer that the model does not call, or of which no page lists the statuses: `docs/wddm_map.md` says
//! what the driver answers, and why. The functions of its table are called here.
#![expect(unsafe_code, reason = "functions of the driver's table are called and given records")]

use core::ffi::c_void;
use fencepost::scenario::{Played, Setup, Stage, same};
use fencepost::world::{Decorator, Form};
use fencepost::wrap::{copy, decorate, own};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use wddm_abi::ntstatus::{STATUS_NO_MEMORY, STATUS_NOT_SUPPORTED, STATUS_SUCCESS};
use wddm_abi::{
    D3DKMDT_STANDARDALLOCATION_TYPE as Standard, DEVICE_OBJECT, DRIVER_INITIALIZATION_DATA,
    DXGKARG_GETSTANDARDALLOCATIONDRIVERDATA, DXGKARG_UPDATEHWCONTEXTSTATE, DXGKARG_UPDATEMONITORLINKINFO, HANDLE,
    NTSTATUS,
};

/// The name of the case.
pub const NAME: &str = "answers";

/// What brings the mistake back; this process plays one.
static MISTAKE: OnceLock<Decorator> = OnceLock::new();
/// The driver's handle of the adapter that was added last.
static ADAPTER: AtomicUsize = AtomicUsize::new(0);

decorate! {
    /// Notes the driver's handle of the adapter.
    notes_adapter: DxgkDdiAddDevice(device: *mut DEVICE_OBJECT, context: *mut *mut c_void) -> NTSTATUS {
        let status = own!(DxgkDdiAddDevice(device, context));
        ADAPTER.store(copy!(context).expose_provenance(), Ordering::Relaxed);
        status
    }
}

/// The table of the driver with the mistake, if there is one.
fn table() -> DRIVER_INITIALIZATION_DATA {
    let mut table = kmd_native::table();
    if let Some(decorate) = MISTAKE.get() {
        decorate(&mut table);
    }
    notes_adapter(&mut table);
    table
}

/// Calls the function of the slot with a record of zeros, changed by `prepare`; its status.
macro_rules! call {
    ($slot:ident($record:ident) $prepare:expr) => {{
        let adapter: HANDLE = core::ptr::with_exposed_provenance_mut(ADAPTER.load(Ordering::Relaxed));
        let mut record = $record::zeroed();
        let prepare: fn(&mut $record) = $prepare;
        prepare(&mut record);
        // SAFETY: the adapter's handle, at PASSIVE_LEVEL, and a record that lives until the call returns.
        table().$slot.map(|function| unsafe { function(adapter, &raw mut record) })
    }};
}

/// Plays the case on a driver with `mistake`, or without one.
pub fn play(mistake: Option<Decorator>) -> Played {
    if let Some(mistake) = mistake {
        MISTAKE.get_or_init(|| mistake);
    }
    let form = Form::Decorated(|to| *to = table());
    Stage::new(form, 1).play(Setup::default(), |scene| {
        let user = scene.process("caller")?;
        let _inside = user.process.enter();
        let link = call!(DxgkDdiUpdateMonitorLinkInfo(DXGKARG_UPDATEMONITORLINKINFO) | _ | ());
        same("DxgkDdiUpdateMonitorLinkInfo", link, Some(STATUS_SUCCESS))?;
        let state = call!(DxgkDdiUpdateHwContextState(DXGKARG_UPDATEHWCONTEXTSTATE) | _ | ());
        same("DxgkDdiUpdateHwContextState", state, Some(STATUS_NOT_SUPPORTED))?;
        let shadow = call!(
            DxgkDdiGetStandardAllocationDriverData(DXGKARG_GETSTANDARDALLOCATIONDRIVERDATA) | record | {
                record.StandardAllocationType = Standard::D3DKMDT_STANDARDALLOCATION_SHADOWSURFACE;
            }
        );
        same("DxgkDdiGetStandardAllocationDriverData", shadow, Some(STATUS_NO_MEMORY))
    })
}
