//! What `DriverEntry` does before it registers its table.
#![expect(unsafe_code, reason = "claims the level that DriverEntry is called at")]

use crate::Native;
use kmd_core::irql::Passive;
use kmd_core::service::Service;
use wddm_abi::DRIVER_INITIALIZATION_DATA;

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
    kmd_ddi::table::<Native>(Service::read(&irql, &Native, &path).form)
}
