//! Numbers that public drivers assert of the same records, written down by people who had the headers.
//!
//! They came to hand after the tables were made and are independent of them.

use core::mem::offset_of;

use wddm_abi::slots::DRIVER_INITIALIZATION_DATA_SIZES;
use wddm_abi::*;

fn driver_data_size_at(version: u32) -> usize {
    let size = DRIVER_INITIALIZATION_DATA_SIZES.iter().find(|size| size.value == Some(version));
    size.expect("a tabled version").size
}

#[test]
fn function_tables() {
    assert_eq!(driver_data_size_at(DXGKDDI_INTERFACE_VERSION_WDDM2_6), 1224);
    assert_eq!(driver_data_size_at(DXGKDDI_INTERFACE_VERSION_WDDM2_9), 0x4f0);
    assert_eq!(driver_data_size_at(DXGKDDI_INTERFACE_VERSION_WDDM3_0), 1296);
    assert_eq!(driver_data_size_at(DXGKDDI_INTERFACE_VERSION_WDDM3_2), 1544);
    assert_eq!(size_of::<DRIVER_INITIALIZATION_DATA>(), 0x608);
    assert_eq!(offset_of!(DRIVER_INITIALIZATION_DATA, DxgkDdiGetNodeMetadata), 664);
    assert_eq!(offset_of!(DRIVER_INITIALIZATION_DATA, DxgkDdiSubmitCommandVirtual), 720);
    assert_eq!(offset_of!(DRIVER_INITIALIZATION_DATA, DxgkDdiSetStablePowerState), 816);
    assert_eq!(offset_of!(DRIVER_INITIALIZATION_DATA, DxgkDdiResetDisplayEngine), 0x600);
    // 0x238 bytes in WDDM 2.9: the next slot begins there.
    assert_eq!(offset_of!(DXGKRNL_INTERFACE, DxgkCbDisconnectDoorbell), 0x238);
    assert_eq!(size_of::<KMDDOD_INITIALIZATION_DATA>(), 0x150);
}

#[test]
fn capabilities() {
    assert_eq!(size_of::<DXGK_DRIVERCAPS>(), 0x250);
    assert_eq!(offset_of!(DXGK_DRIVERCAPS, WDDMVersion), 0x150);
    assert_eq!(offset_of!(DXGK_DRIVERCAPS, SchedulingCaps), 64);
    assert_eq!(offset_of!(DXGK_DRIVERCAPS, MaxHwQueuedFlips), 0x244);
    assert_eq!(offset_of!(DXGK_NODEMETADATA, GpuMmuSupported), 72);
}

#[test]
fn display() {
    assert_eq!(size_of::<DXGK_CHILD_STATUS>(), 0x10);
    assert_eq!(size_of::<D3DKMDT_VIDPN_TARGET_MODE>(), 80);
}

#[test]
fn feature_interfaces() {
    assert_eq!(size_of::<DXGK_FEATURE_INTERFACE>(), 0x30);
    assert_eq!(size_of::<DXGKDDI_FEATURE_INTERFACE>(), 0x30);
}
