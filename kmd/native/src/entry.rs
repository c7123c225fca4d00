//! What `DriverEntry` does before it registers its table.
#![expect(unsafe_code, reason = "claims the level that DriverEntry is called at, and has an entry of the table")]

use crate::Native;
use kmd_core::irql::Passive;
use kmd_core::service::{Form, Service};
use wddm_abi::{DRIVER_INITIALIZATION_DATA, win_extern};

/// The key of the driver's service.
pub const SERVICE_KEY: &str = r"\Registry\Machine\System\CurrentControlSet\Services\fencepost";

/// The table that `DriverEntry` registers on the machine that the calling thread is in: that of the form which the
/// service's key names.
///
/// # Panics
/// When the calling thread has not entered a machine.
pub fn entry_table() -> DRIVER_INITIALIZATION_DATA {
    // SAFETY: DriverEntry is called at PASSIVE_LEVEL.
    let irql = unsafe { Passive::assume() };
    let path: Vec<u16> = SERVICE_KEY.encode_utf16().collect();
    table_of(Service::read(&irql, &Native, &path).form)
}

/// The table that the render-only form of the driver registers.
pub fn table() -> DRIVER_INITIALIZATION_DATA {
    table_of(Form::Render)
}

fn table_of(form: Form) -> DRIVER_INITIALIZATION_DATA {
    let mut table = kmd_ddi::table::<Native>(form);
    table.DxgkDdiUnload = Some(unload);
    table
}

win_extern! {
    /// `DxgkDdiUnload`, `PASSIVE_LEVEL`. The handle table stays: an image has one of its own, but all machines of a
    /// process that have the driver linked in share one, and another of them may be making its first handle.
    fn unload() {}
}
