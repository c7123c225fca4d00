//! How far a display-only driver is started: the model has no displays, so it adds and starts the device, asks for the
//! capabilities, and stops it again.
//!
//! Source: DDI page DxgkInitializeDisplayOnlyDriver; article *Windows Display Driver Model (WDDM) operation flow*.

use crate::port::transcript::{Need, Step};

/// The steps.
pub(super) fn steps() -> Vec<Step> {
    let caps = Step::Query { name: "DRIVERCAPS".to_owned(), size: CAPS, need: Need::Optional };
    vec![Step::AddDevice, Step::StartDevice, caps]
}

/// Bytes of DXGK_DRIVERCAPS.
const CAPS: usize = size_of::<wddm_abi::DXGK_DRIVERCAPS>();
