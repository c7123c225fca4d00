//! What has become of a device.

use wddm_abi::D3DKMT_DEVICEEXECUTION_STATE;

/// Why a device does not work, or that it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub(crate) enum DeviceState {
    Active = 1,
    /// Its engine or adapter was reset and it was innocent or not in the end: it must be made again.
    Reset = 2,
    /// Its work hung the engine.
    Hung = 3,
    /// Its adapter or process is going away.
    Stopped = 4,
    DmaFault = 6,
    PageFault = 7,
}

impl DeviceState {
    /// As `D3DKMTGetDeviceState` returns it.
    pub(crate) fn execution(self) -> D3DKMT_DEVICEEXECUTION_STATE {
        D3DKMT_DEVICEEXECUTION_STATE(self as i32)
    }

    pub(crate) fn from_raw(raw: i32) -> Self {
        match raw {
            2 => Self::Reset,
            3 => Self::Hung,
            4 => Self::Stopped,
            6 => Self::DmaFault,
            7 => Self::PageFault,
            _ => Self::Active,
        }
    }
}
